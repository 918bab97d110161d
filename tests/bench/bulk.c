/*
 * bulk.c - bulk answers, a connection for each, as servers of different kinds send them. Knows
 * nothing of the library.
 *
 *	bulk server PORT			until a client says that all is over
 *	bulk client PORT KIND N FILE		N connections, one after the other, SIZE bytes each:
 *	  page	blocking, 64 KiB a send()
 *	  poll	not blocking, as much as goes, then epoll
 *	  file	sendfile() of FILE, which has SIZE bytes
 *	  once	one send()
 *	  late	page, for a client that works 1 ms on each 64 KiB
 *	  log	a log is shipped: the client sends batches of 16 to 256 KiB, five at most before
 *		their answers of 16 bytes
 *
 * The client prints "took SECONDS", from before the first connect() to the last byte. A wrong byte,
 * of those that are looked at (eight of each 4 KiB), ends it.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE (20u << 20)
#define PIECE 65536
#define AT_ONCE 5

struct request { char kind[8]; char file[248]; };
struct answer { uint64_t batch, pad; };

static char *data;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void work(double seconds)
{
	for (double end = now() + seconds; now() < end;)
		;
}

/* The eight bytes at this offset, a multiple of 4096. */
static uint64_t mark_at(size_t off) { return (off + 1) * 0x9e3779b97f4a7c15u; }

static void fill(void)
{
	data = calloc(1, SIZE);
	if (!data)
		err(1, "memory");
	for (size_t i = 0; i < SIZE; i += 4096) {
		uint64_t m = mark_at(i);

		memcpy(data + i, &m, sizeof m);
	}
}

static void verify(const char *p)
{
	for (size_t i = 0; i < SIZE; i += 4096)
		if (memcmp(p + i, data + i, 8))
			errx(1, "wrong bytes at %zu", i);
}

static void all_sent(int fd, const char *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = send(fd, p + at, n - at, MSG_NOSIGNAL);

		if (r < 0)
			err(1, "send");
		at += (size_t)r;
	}
}

static void all_read(int fd, void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = recv(fd, (char *)p + at, n - at, 0);

		if (r <= 0)
			errx(1, "recv: %s", r ? strerror(errno) : "the end");
		at += (size_t)r;
	}
}

/* ---- server ---- */

static void pages(int fd, size_t piece)
{
	for (size_t at = 0; at < SIZE; at += piece)
		all_sent(fd, data + at, piece);
}

static void polled(int fd)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = { .events = EPOLLOUT };
	size_t at = 0;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	while (at < SIZE) {
		ssize_t r = send(fd, data + at, SIZE - at, MSG_NOSIGNAL);

		if (r >= 0)
			at += (size_t)r;
		else if (errno != EAGAIN)
			err(1, "send");
		else if (epoll_wait(ep, &e, 1, 60000) != 1)
			errx(1, "no room in a minute");
	}
	close(ep);
}

static void file(int fd, const char *name)
{
	int in = open(name, O_RDONLY | O_CLOEXEC);
	off_t at = 0;

	while (at < SIZE)
		if (sendfile(fd, in, &at, SIZE - (size_t)at) <= 0)
			err(1, "sendfile %s", name);
	close(in);
}

static size_t batch_of(size_t i) { return 16384u << i % 5; }

/* The broker. */
static void take_log(int fd)
{
	size_t at = 0;
	char *p = malloc(SIZE);

	if (!p)
		err(1, "memory");
	for (size_t i = 0; at < SIZE; i++) {
		size_t n = batch_of(i) < SIZE - at ? batch_of(i) : SIZE - at;
		struct answer a = { i, 0 };

		all_read(fd, p + at, n);
		at += n;
		all_sent(fd, (char *)&a, sizeof a);
	}
	verify(p);
	free(p);
}

static bool serve(int fd)
{
	struct request q;
	char end;

	all_read(fd, &q, sizeof q);
	if (!strcmp(q.kind, "page") || !strcmp(q.kind, "late"))
		pages(fd, PIECE);
	else if (!strcmp(q.kind, "once"))
		pages(fd, SIZE);
	else if (!strcmp(q.kind, "poll"))
		polled(fd);
	else if (!strcmp(q.kind, "file"))
		file(fd, q.file);
	else if (!strcmp(q.kind, "log"))
		take_log(fd);
	else
		return false;
	fcntl(fd, F_SETFL, 0);
	shutdown(fd, SHUT_WR);
	while (recv(fd, &end, 1, 0) > 0)
		;
	return true;
}

static int server(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(l, (void *)&a, sizeof a) || listen(l, 16))
		err(1, "listen");
	for (bool more = true; more;) {
		int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			err(1, "accept");
		more = serve(fd);
		close(fd);
	}
	return 0;
}

/* ---- client ---- */

static int request(int port, const char *kind, const char *name)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	struct request q;

	memset(&q, 0, sizeof q);
	snprintf(q.kind, sizeof q.kind, "%s", kind);
	if (snprintf(q.file, sizeof q.file, "%s", name) >= (int)sizeof q.file)
		errx(1, "too long a name");
	if (fd < 0 || connect(fd, (void *)&a, sizeof a))
		err(1, "connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	all_sent(fd, (char *)&q, sizeof q);
	return fd;
}

static void get(int fd, char *p, bool late)
{
	for (size_t at = 0; at < SIZE; at += PIECE) {
		all_read(fd, p + at, PIECE);
		if (late)
			work(0.001);
	}
}

static void answered(int fd, size_t i)
{
	struct answer a;

	all_read(fd, &a, sizeof a);
	if (a.batch != i)
		errx(1, "answer %zu instead of %zu", (size_t)a.batch, i);
}

static void ship_log(int fd)
{
	size_t at = 0, sent = 0, done = 0;

	while (at < SIZE) {
		size_t n = batch_of(sent) < SIZE - at ? batch_of(sent) : SIZE - at;

		all_sent(fd, data + at, n);
		at += n;
		if (++sent - done == AT_ONCE)
			answered(fd, done++);
	}
	while (done < sent)
		answered(fd, done++);
}

static int client(int port, const char *kind, int n, const char *name)
{
	char *p = calloc(1, SIZE);
	double begun, spent;
	bool log = !strcmp(kind, "log"), from_file = !strcmp(kind, "file");

	if (!p)
		err(1, "memory");
	memset(p, 1, SIZE);
	begun = now();
	for (int i = 0; i < n; i++) {
		int fd = request(port, kind, name);

		if (log)
			ship_log(fd);
		else
			get(fd, p, !strcmp(kind, "late"));
		close(fd);
	}
	spent = now() - begun;
	if (!log && !from_file)
		verify(p);
	close(request(port, "over", ""));
	printf("took %.6f\n", spent);
	return 0;
}

int main(int argc, char **argv)
{
	fill();
	if (argc == 3 && !strcmp(argv[1], "server"))
		return server(atoi(argv[2]));
	if (argc == 6 && !strcmp(argv[1], "client"))
		return client(atoi(argv[2]), argv[3], atoi(argv[4]), argv[5]);
	fprintf(stderr, "usage: bulk server PORT | bulk client PORT KIND N FILE\n");
	return 2;
}
