/*
 * idlerings.c - many connections that move much and then rest: an echo server, and a client that
 * sends numbered bytes by each connection in turn and checks what comes back. Knows nothing of
 * the library.
 *
 *	idlerings server PORT			echoes until it is killed
 *	idlerings client PORT N KIB FIFO	N connections; a line of FIFO is a number: so many
 *						rounds, of KIB by each connection; `quit`
 *
 * The client prints "connected", "done ROUNDS" after each line, and exits 0; 1 after a wrong byte,
 * a lost connection, or 20 s without a byte.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK (64 << 10)

static int tcp(int port, bool server)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (server ? bind(fd, (void *)&a, sizeof(a)) || listen(fd, 4096) : connect(fd, (void *)&a,
		sizeof(a)))
		err(1, server ? "listen" : "connect");
	return fd;
}

static void send_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t r = send(fd, p, n, MSG_NOSIGNAL);

		if (r < 0 && errno == EAGAIN) {
			struct pollfd w = { .fd = fd, .events = POLLOUT };

			if (poll(&w, 1, 20000) < 1)
				errx(1, "no room for 20 s");
			continue;
		}
		if (r <= 0)
			err(1, "send");
		p += r;
		n -= (size_t)r;
	}
}

/* ---- server ---- */

/* False: it has ended. */
static bool echo(int fd)
{
	static char b[BLOCK];
	ssize_t n = recv(fd, b, sizeof(b), 0);

	if (n < 0 && errno == EAGAIN)
		return true;
	if (n <= 0)
		return false;
	send_all(fd, b, (size_t)n);
	return true;
}

static int server(int port)
{
	int l = tcp(port, true), ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = { .events = EPOLLIN, .data.fd = l }, ev[256];

	epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
	for (;;) {
		int n = epoll_wait(ep, ev, 256, -1);

		for (int i = 0; i < n; i++) {
			int fd = ev[i].data.fd;

			if (fd != l) {
				if (!echo(fd))
					close(fd);
				continue;
			}
			fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
			if (fd < 0)
				err(1, "accept");
			e = (struct epoll_event){ .events = EPOLLIN, .data.fd = fd };
			epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
		}
	}
}

/* ---- client ---- */

/* Words that tell connection and place. */
static void fill(char *b, size_t n, uint32_t conn, uint64_t at)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t w = (at + i) * 0x9e3779b97f4a7c15ull ^ (uint64_t)conn << 40;

		memcpy(b + i, &w, 8);
	}
}

static void one_round(int fd, uint32_t conn, uint64_t at, size_t n)
{
	static char out[BLOCK], in[BLOCK];

	for (size_t done = 0; done < n; done += BLOCK) {
		size_t part = n - done < BLOCK ? n - done : BLOCK;

		fill(out, part, conn, at + done);
		send_all(fd, out, part);
		for (size_t got = 0; got < part;) {
			ssize_t r = recv(fd, in + got, part - got, 0);

			if (r <= 0)
				errx(1, "connection %u: %s", conn, r ? strerror(errno) : "ended");
			got += (size_t)r;
		}
		if (memcmp(in, out, part))
			errx(1, "connection %u: wrong bytes after %lu", conn,
			     (unsigned long)(at + done));
	}
}

static int client(int port, int n, size_t bytes, const char *fifo)
{
	int *fd = calloc((size_t)n, sizeof(*fd)), rounds = 0;
	struct timeval most = { 20, 0 };
	char line[64];
	FILE *f;

	for (int i = 0; i < n; i++) {
		fd[i] = tcp(port, false);
		setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	}
	puts("connected");
	f = fopen(fifo, "r+");
	while (f && fgets(line, sizeof(line), f) && strcmp(line, "quit\n")) {
		for (int k = atoi(line); k > 0; k--, rounds++)
			for (int i = 0; i < n; i++)
				one_round(fd[i], (uint32_t)i, (uint64_t)rounds * bytes, bytes);
		printf("done %d\n", rounds);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit lim;

	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "server"))
		return server(atoi(argv[2]));
	if (argc == 6 && !strcmp(argv[1], "client"))
		return client(atoi(argv[2]), atoi(argv[3]), strtoul(argv[4], NULL, 10) << 10,
			      argv[5]);
	errx(2, "usage: see idlerings.c");
}
