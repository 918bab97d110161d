/*
 * idle.c - many connections that do little: an echo server and a client that sends a numbered
 * message on each of its connections when it is told to, and checks what comes back. Between two
 * rounds both only wait. Knows nothing of the library.
 *
 * 	idle server HOW PORT		echoes until its standard input's peer ends it
 * 	idle client HOW PORT N FIFO	N connections; commands from FIFO, a line each: `go K`
 * 					K rounds, `run MS` rounds at intervals of MS until the
 * 					next command, `quit`
 * At 127.0.0.1, or $IDLE_ADDR. HOW: epoll (one thread, edge-triggered at the client), poll, or
 * threads (the server has a blocked thread per connection; the client as poll)
 *
 * The client prints "connected", "done TOTAL" after each `go`, "still TOTAL" when a `run` is
 * interrupted, and exits 0; 1 after a wrong byte, a lost connection or a round of more than 20
 * s.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MSG 100

enum how { EPOLL, POLL, THREADS };

static void die(const char *what)
{
	fflush(stdout);
	perror(what);
	_exit(1);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int tcp(int port, bool server)
{
	const char *addr = getenv("IDLE_ADDR");
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
				 .sin_addr.s_addr = addr ? inet_addr(addr)
					 : htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (server ? bind(fd, (void *)&a, sizeof(a)) || listen(fd, 4096)
		   : connect(fd, (void *)&a, sizeof(a)))
		die(server ? "listen" : "connect");
	return fd;
}

/* ---- server ---- */

/* Returns false at the end of the connection. */
static bool echo(int fd)
{
	char b[4096];
	ssize_t n = recv(fd, b, sizeof(b), 0);

	if (n < 0 && errno == EAGAIN)
		return true;
	if (n <= 0)
		return false;
	if (send(fd, b, n, MSG_NOSIGNAL) != n)
		die("echo");
	return true;
}

static void *echo_thread(void *p)
{
	int fd = (int)(intptr_t)p;

	while (echo(fd))
		;
	close(fd);
	return NULL;
}

static int take(int l, bool nonblock)
{
	int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC | (nonblock ? SOCK_NONBLOCK : 0)), one = 1;

	if (fd < 0)
		die("accept");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void serve_threads(int l)
{
	pthread_attr_t a;
	pthread_t t;

	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 65536);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	for (;;)
		if (pthread_create(&t, &a, echo_thread, (void *)(intptr_t)take(l, false)))
			die("thread");
}

static void serve_epoll(int l)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = { .events = EPOLLIN, .data.fd = l }, ev[64];

	epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
	for (;;) {
		int n = epoll_wait(ep, ev, 64, -1);

		for (int i = 0; i < n; i++) {
			if (ev[i].data.fd == l) {
				e.data.fd = take(l, true);
				epoll_ctl(ep, EPOLL_CTL_ADD, e.data.fd, &e);
			} else if (!echo(ev[i].data.fd)) {
				close(ev[i].data.fd);
			}
		}
	}
}

static void serve_poll(int l)
{
	static struct pollfd p[4096];
	int n = 1;

	p[0] = (struct pollfd){ .fd = l, .events = POLLIN };
	for (;;) {
		int i, had = n;

		if (poll(p, n, -1) < 0)
			die("poll");
		if (p[0].revents)
			p[n++] = (struct pollfd){ .fd = take(l, true), .events = POLLIN };
		for (i = had - 1; i > 0; i--)
			if (p[i].revents && !echo(p[i].fd)) {
				close(p[i].fd);
				p[i] = p[--n];
			}
	}
}

/* ---- client ---- */

static int *fds, conns, ep = -1, fifo;
static enum how how;
static uint64_t total;
static bool *in;			/* the answer is in */

static void message(char *b, int i)
{
	snprintf(b, MSG, "connection %d message %llu", i, (unsigned long long)total);
	for (size_t k = strlen(b); k < MSG; k++)
		b[k] = (char)(k * 7 + i + total);
}

/* The answer of connection i, if it is there. */
static bool answer(int i)
{
	char want[MSG], got[MSG + 1];
	ssize_t n = recv(fds[i], got, sizeof(got), MSG_DONTWAIT | MSG_PEEK);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n == 0)
		errno = 0;
	if (n <= 0)
		die("connection lost");
	if (n < MSG)
		return false;		/* the rest comes with another event */
	n = recv(fds[i], got, sizeof(got), MSG_DONTWAIT);
	message(want, i);
	if (n != MSG || memcmp(want, got, MSG)) {
		fprintf(stderr, "connection %d message %llu: wrong answer\n", i,
			(unsigned long long)total);
		_exit(1);
	}
	return true;
}

/* One message on each connection, and its echo. The fifo is left alone. */
static void one_round(void)
{
	static struct epoll_event ev[64];
	static struct pollfd *p;
	uint64_t end = now_ms() + 20000;
	int left = conns, i, n;
	char b[MSG];

	if (!p)
		p = calloc(conns, sizeof(*p));
	total++;
	for (i = 0; i < conns; i++) {
		in[i] = false;
		message(b, i);
		if (send(fds[i], b, MSG, MSG_NOSIGNAL) != MSG)
			die("send");
	}
	while (left) {
		if (now_ms() > end) {
			fprintf(stderr, "message %llu: %d answers missing after 20 s\n",
				(unsigned long long)total, left);
			_exit(1);
		}
		if (how == EPOLL) {
			n = epoll_wait(ep, ev, 64, 1000);
			for (i = 0; i < n; i++) {
				int k = (int)ev[i].data.u32;

				if (k >= 0 && !in[k] && answer(k)) {
					in[k] = true;
					left--;
				}
			}
		} else {
			for (i = 0; i < conns; i++)
				p[i] = (struct pollfd){ .fd = in[i] ? -1 : fds[i],
							.events = POLLIN };
			if (poll(p, conns, 1000) > 0)
				for (i = 0; i < conns; i++)
					if (p[i].revents && answer(i)) {
						in[i] = true;
						left--;
					}
		}
	}
}

/* Waits for a command on the fifo and on all connections, as an idle client does. timeout -1:
 * for ever. */
static bool command(char *line, size_t len, int timeout)
{
	static struct pollfd *p;
	struct epoll_event e;
	bool ready;
	size_t at = 0;

	if (how == EPOLL) {
		do {
			ready = epoll_wait(ep, &e, 1, timeout) == 1;
		} while (ready && (int)e.data.u32 >= 0);
	} else {
		if (!p)
			p = calloc(conns + 1, sizeof(*p));
		for (int i = 0; i < conns; i++)
			p[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
		p[conns] = (struct pollfd){ .fd = fifo, .events = POLLIN };
		ready = poll(p, conns + 1, timeout) > 0 && p[conns].revents;
	}
	if (!ready)
		return false;
	while (at < len - 1 && read(fifo, line + at, 1) == 1 && line[at] != '\n')
		at++;
	line[at] = 0;
	return true;
}

static void client(int port, const char *path)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	char line[64];
	int i, one = 1, ms = -1;

	fds = calloc(conns, sizeof(*fds));
	in = calloc(conns, sizeof(*in));
	fifo = open(path, O_RDWR | O_CLOEXEC);
	if (fifo < 0)
		die(path);
	ep = epoll_create1(EPOLL_CLOEXEC);
	for (i = 0; i < conns; i++) {
		fds[i] = tcp(port, false);
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (how == EPOLL) {
			e.data.u32 = i;
			fcntl(fds[i], F_SETFL, O_NONBLOCK);
			epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e);
		}
	}
	if (how == EPOLL) {
		e = (struct epoll_event){ .events = EPOLLIN, .data.u32 = ~0u };
		epoll_ctl(ep, EPOLL_CTL_ADD, fifo, &e);
	}
	puts("connected");
	for (;;) {
		int k;

		if (!command(line, sizeof(line), ms)) {
			if (ms >= 0)
				one_round();
			continue;
		}
		if (ms >= 0)
			printf("still %llu\n", (unsigned long long)total);
		ms = -1;
		if (sscanf(line, "go %d", &k) == 1) {
			while (k--) {
				one_round();
				usleep(1000);
			}
			printf("done %llu\n", (unsigned long long)total);
		} else if (sscanf(line, "run %d", &k) == 1) {
			ms = k;
		} else {
			break;
		}
	}
	for (i = 0; i < conns; i++)
		close(fds[i]);
	printf("end %llu\n", (unsigned long long)total);
}

int main(int argc, char **argv)
{
	struct rlimit r;

	if (argc < 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	how = !strcmp(argv[2], "epoll") ? EPOLL : !strcmp(argv[2], "poll") ? POLL : THREADS;
	if (!strcmp(argv[1], "server")) {
		int l = tcp(atoi(argv[3]), true);

		if (how == EPOLL)
			serve_epoll(l);
		else if (how == POLL)
			serve_poll(l);
		else
			serve_threads(l);
	}
	if (argc < 6)
		return 2;
	conns = atoi(argv[4]);
	client(atoi(argv[3]), argv[5]);
	return 0;
}
