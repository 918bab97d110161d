/*
 * bigfirst.c - programs that send megabytes before they read. TCP's buffers take that, so
 * nothing faster may hang on it.
 *
 * 	bigfirst listen [-n BYTES] PORT | connect [-n BYTES] HOST PORT	two processes
 * 	bigfirst self [-n BYTES] PORT	one thread holds both ends
 * Each end first exchanges -r small rounds (so that the connection is busy enough to be
 * noticed), then sends BYTES with blocking calls, then reads and verifies as many. Rounds of
 * that -k times on the same connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pattern.h"

static size_t bytes = 1 << 20;
static int rounds = 200, times = 3;
static char *buf;

/* What one end has sent and received so far. */
struct end {
	int fd;
	uint64_t tx_seed, rx_seed, sent, got;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void send_n(struct end *e, size_t n)
{
	size_t done = 0;

	pattern_fill(buf, n, e->tx_seed, e->sent);
	while (done < n) {
		ssize_t r = send(e->fd, buf + done, n - done, MSG_NOSIGNAL);

		if (r < 0)
			die("send");
		done += r;
	}
	e->sent += n;
}

static void receive_n(struct end *e, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = recv(e->fd, buf + done, n - done, 0);

		if (r < 0)
			die("recv");
		if (r == 0) {
			fprintf(stderr, "end of file at %llu\n",
				(unsigned long long)(e->got + done));
			exit(1);
		}
		done += r;
	}
	if (pattern_check(buf, n, e->rx_seed, e->got) != n) {
		fprintf(stderr, "wrong byte after %llu\n", (unsigned long long)e->got);
		exit(1);
	}
	e->got += n;
}

static int tcp_socket(const char *host, const char *port, bool listening)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || inet_pton(AF_INET, host, &a.sin_addr) != 1)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (listening ? bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 4)
		      : connect(fd, (struct sockaddr *)&a, sizeof(a)))
		die(listening ? "listen" : "connect");
	return fd;
}

static void expect_eof(struct end *e)
{
	if (recv(e->fd, buf, 1, 0) != 0) {
		fprintf(stderr, "something after the end\n");
		exit(1);
	}
}

static void talk(struct end *e, bool first)
{
	int t, i;

	for (t = 0; t < times; t++) {
		for (i = 0; i < rounds; i++) {
			if (first)
				send_n(e, 100);
			receive_n(e, 100);
			if (!first)
				send_n(e, 100);
		}
		send_n(e, bytes);
		receive_n(e, bytes);
	}
	shutdown(e->fd, SHUT_WR);
	expect_eof(e);
}

static void talk_to_self(struct end *a, struct end *b)
{
	int t, i;

	for (t = 0; t < times; t++) {
		for (i = 0; i < rounds; i++) {
			send_n(a, 100);
			receive_n(b, 100);
			send_n(b, 100);
			receive_n(a, 100);
			usleep(i % 20 ? 0 : 1000);
		}
		send_n(a, bytes);
		send_n(b, bytes);
		receive_n(a, bytes);
		receive_n(b, bytes);
	}
	shutdown(a->fd, SHUT_WR);
	expect_eof(b);
	shutdown(b->fd, SHUT_WR);
	expect_eof(a);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "", *port = argc > 1 ? argv[argc - 1] : "";
	struct end up = { .tx_seed = 1, .rx_seed = 2 }, down = { .tx_seed = 2, .rx_seed = 1 };
	int o, l;

	while (argc > 1 && (o = getopt(argc - 1, argv + 1, "n:r:k:")) != -1)
		switch (o) {
		case 'n': bytes = strtoull(optarg, NULL, 0); break;
		case 'r': rounds = atoi(optarg); break;
		case 'k': times = atoi(optarg); break;
		default: return 2;
		}
	buf = malloc(bytes + 100);
	if (argc < 3 || !buf) {
		fprintf(stderr, "usage: bigfirst listen|connect|self [-n BYTES] [-r ROUNDS] [-k "
				"TIMES] [HOST] PORT\n");
		return 2;
	}
	if (!strcmp(mode, "connect")) {
		up.fd = tcp_socket(argv[argc - 2], port, false);
		talk(&up, true);
	} else {
		l = tcp_socket("127.0.0.1", port, true);
		if (!strcmp(mode, "self"))
			up.fd = tcp_socket("127.0.0.1", port, false);
		down.fd = accept(l, NULL, NULL);
		if (down.fd < 0)
			die("accept");
		if (!strcmp(mode, "self"))
			talk_to_self(&up, &down);
		else
			talk(&down, false);
	}
	printf("%s %llu bytes each way\n", mode, (unsigned long long)bytes);
	return 0;
}
