/*
 * sendfirst.c - programs that send before they read, which TCP's buffers let them: nobody may
 * hang on a ring that is full, or on TCP that takes less for a while. All over 127.0.0.1,
 * between processes of its own.
 *
 *   sendfirst two BYTES ROUNDS	both ends send so many, then read as many
 *   sendfirst three BYTES ROUNDS	A sends so many to B and then a byte to C; C waits for
 * 					that and sends a byte to B; B waits for C
 * 					before it reads what A sent, and answers A by a byte
 *   ... poll				the same by non-blocking sockets and poll()
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pattern.h"

static size_t bytes;
static int rounds;
static bool polls;
static char *buf;

struct end { int fd; uint64_t seed_out, seed_in, sent, got; };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void await(int fd, short what)
{
	struct pollfd p = { .fd = fd, .events = what };

	if (polls && poll(&p, 1, -1) < 0)
		die("poll");
}

static void put(struct end *e, size_t n)
{
	size_t done = 0;

	pattern_fill(buf, n, e->seed_out, e->sent);
	while (done < n) {
		ssize_t r = send(e->fd, buf + done, n - done, MSG_NOSIGNAL);

		if (r < 0 && errno == EAGAIN)
			await(e->fd, POLLOUT);
		else if (r < 0)
			die("send");
		else
			done += (size_t)r;
	}
	e->sent += n;
}

static void get(struct end *e, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = recv(e->fd, buf + done, n - done, 0);

		if (r < 0 && errno == EAGAIN)
			await(e->fd, POLLIN);
		else if (r < 0)
			die("recv");
		else if (!r)
			exit(2);
		else
			done += (size_t)r;
	}
	if (pattern_check(buf, n, e->seed_in, e->got) != n)
		exit(3);
	e->got += n;
}

static struct end made(int fd, bool client)
{
	if (fd < 0)
		die("connection");
	if (polls && fcntl(fd, F_SETFL, O_NONBLOCK))
		die("fcntl");
	return (struct end){ fd, client ? 1 : 2, client ? 2 : 1, 0, 0 };
}

/* A connection of two processes: one connects to the listener, the other accepts. */
static int listener[3];

static struct end connects(int l)
{
	struct sockaddr_in a;
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (getsockname(listener[l], (void *)&a, &len) || connect(fd, (void *)&a, len))
		die("connect");
	return made(fd, true);
}

static struct end accepts(int l) { return made(accept(listener[l], NULL, NULL), false); }

static void both(struct end e)
{
	for (int i = 0; i < rounds; i++) {
		put(&e, bytes);
		get(&e, bytes);
	}
}

static void one(void) { both(connects(0)); }
static void other(void) { both(accepts(0)); }

static void a(void)
{
	struct end b = connects(0), c = connects(1);

	for (int i = 0; i < rounds; i++) {
		put(&b, bytes);
		put(&c, 1);
		get(&b, 1);
	}
}

static void b(void)
{
	struct end a = accepts(0), c = accepts(2);

	for (int i = 0; i < rounds; i++) {
		get(&c, 1);
		get(&a, bytes);
		put(&a, 1);
	}
}

static void c(void)
{
	struct end a = accepts(1), b = connects(2);

	for (int i = 0; i < rounds; i++) {
		get(&a, 1);
		put(&b, 1);
	}
}

static void listen_all(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	for (int i = 0; i < 3; i++) {
		listener[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (listener[i] < 0 || bind(listener[i], (void *)&at, sizeof at) ||
		    listen(listener[i], 1))
			die("listen");
	}
}

int main(int argc, char **argv)
{
	static void (*const two[])(void) = { one, other }, (*const three[])(void) = { a, b, c };
	bool circle = argc > 1 && !strcmp(argv[1], "three");
	int n = circle ? 3 : 2, status;

	if (argc < 4)
		return 2;
	bytes = strtoull(argv[2], NULL, 0);
	rounds = atoi(argv[3]);
	polls = argc > 4;
	buf = malloc(bytes);
	if (!buf)
		die("malloc");
	listen_all();
	for (int i = 0; i < n; i++)
		if (!fork()) {
			(circle ? three : two)[i]();
			exit(0);
		}
	for (int i = 0; i < n; i++)
		if (wait(&status) < 0 || status) {
			fprintf(stderr, "status %#x\n", status);
			return 1;
		}
	printf("%s %zu bytes, %d rounds%s: well\n", argv[1], bytes, rounds, polls ? ", by poll"
	       : "");
	return 0;
}
