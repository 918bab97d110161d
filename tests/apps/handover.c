/*
 * handover.c serve PORT | ask PORT SECS: one thread waits in an epoll instance, removes the
 * connection that has something to read and hands it over to one of many workers, who answer,
 * add it again or close it: as Apache's event MPM does. An event for a connection that was
 * removed would hand it to two of them, or one that is no more. Knows nothing of the library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 20
#define CLIENTS 20
#define CONNS   1024
#define TURNS   30	/* then the server ends the connection */
#define ASKS    100
#define ANSWERS 1200

enum { FREE, WAITED_FOR, HANDED };
static struct conn { _Atomic int state; int fd, turns; } conns[CONNS];
static int ep, todo[2], port;
static _Atomic long answers;
static _Atomic int over;

static void die(const char *what)
{
	fprintf(stderr, "handover: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* It may be another worker's before this returns. */
static void wait_for(struct conn *c)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

	atomic_store(&c->state, WAITED_FOR);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev))
		die("epoll_ctl, add");
}

static void end(struct conn *c)
{
	close(c->fd);
	atomic_store(&c->state, FREE);
}

/* What has come is read, answered, and at the end thrown away. */
static void serve(struct conn *c)
{
	char in[8192], out[ANSWERS];
	ssize_t n;

	memset(out, 'a', sizeof out);
	for (;;) {
		n = recv(c->fd, in, sizeof in, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) {
			wait_for(c);
			return;
		}
		if (n <= 0) {
			end(c);
			return;
		}
		if (c->turns >= TURNS)
			continue;
		if (send(c->fd, out, sizeof out, MSG_NOSIGNAL) < 0) {
			end(c);
			return;
		}
		atomic_fetch_add(&answers, 1);
		if (++c->turns == TURNS)
			shutdown(c->fd, SHUT_WR);
	}
}

static void *worker(void *arg)
{
	struct conn *c;

	while (read(todo[0], &c, sizeof c) == sizeof c)
		serve(c);
	return arg;
}

static void hand(struct conn *c)
{
	int waited = WAITED_FOR;

	if (!atomic_compare_exchange_strong(&c->state, &waited, HANDED)) {
		errno = 0;
		die(waited == FREE ? "an event of a connection that is closed"
				   : "an event of a connection that was removed");
	}
	if (epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL))
		die("epoll_ctl, remove");
	if (write(todo[1], &c, sizeof c) != sizeof c)
		die("write");
}

static int listen_at(int p)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)p),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (l < 0 || bind(l, (void *)&a, sizeof a) || listen(l, 100))
		die("listen");
	return l;
}

static void begin(int l)
{
	struct conn *c = conns;
	int fd = accept(l, NULL, NULL);

	if (fd < 0)
		die("accept");
	while (c < conns + CONNS && atomic_load(&c->state) != FREE)
		c++;
	if (c == conns + CONNS)
		die("too many connections");
	c->fd = fd;
	c->turns = 0;
	wait_for(c);
}

static void server(void)
{
	struct epoll_event ev[64] = { { .events = EPOLLIN } };
	int l = listen_at(port), n;
	pthread_t t;

	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0 || pipe(todo) || epoll_ctl(ep, EPOLL_CTL_ADD, l, ev))
		die("start");
	for (int i = 0; i < WORKERS; i++)
		if (pthread_create(&t, NULL, worker, NULL))
			die("thread");
	for (;;) {
		n = epoll_wait(ep, ev, 64, 30000);
		if (n <= 0)
			die("nothing comes");
		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr)
				hand(ev[i].data.ptr);
			else
				begin(l);
		}
	}
}

static void *client(void *arg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char buf[8192] = "";

	while (!over) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		ssize_t n = 1;

		if (fd < 0 || connect(fd, (void *)&a, sizeof a))
			die("connect");
		while (n > 0) {
			size_t got = 0;

			if (send(fd, buf, ASKS, MSG_NOSIGNAL) != ASKS)
				die("send");
			while (got < ANSWERS && (n = recv(fd, buf, sizeof buf, 0)) > 0)
				got += (size_t)n;
			if (n < 0)
				die("recv");
			atomic_fetch_add(&answers, got == ANSWERS);
		}
		close(fd);
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t[CLIENTS];

	if (argc < 3)
		return 2;
	port = atoi(argv[2]);
	if (!strcmp(argv[1], "serve"))
		server();
	for (int i = 0; i < CLIENTS; i++)
		if (pthread_create(t + i, NULL, client, NULL))
			die("thread");
	sleep((unsigned)atoi(argv[3]));
	over = 1;
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(t[i], NULL);
	fprintf(stderr, "%ld answers\n", answers);
	return answers < 100;
}
