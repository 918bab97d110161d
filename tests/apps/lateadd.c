/*
 * lateadd.c ROUNDS: fds that are added to an epoll instance late. Knows nothing of the library.
 *
 * First: one thread makes, uses and closes TCP connections, another adds their fds to the
 * instance all the while, so often just when they are closed. Each round ends with the close of
 * the instance. Then: a thread sleeps in the instance, another adds a connection that was used
 * in other ways before; what comes on it must wake the sleeper.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int fds[2], ep;
static _Atomic bool over;

static void *adder(void *arg)
{
	uint64_t n = 0;

	(void)arg;
	while (!over)
		for (int i = 0; i < 2; i++) {
			struct epoll_event e = { .events = EPOLLIN, .data.u64 = n++ };

			/* it may be closed, or there already */
			epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e);
		}
	return NULL;
}

static void must(bool ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void byte(int from, int to)
{
	char b = 'x';

	must(send(from, &b, 1, 0) == 1 && recv(to, &b, 1, 0) == 1, "byte");
}

/* c is the client's end, s the server's. */
static void join_up(int l, const struct sockaddr_in *a, int *c, int *s)
{
	*c = socket(AF_INET, SOCK_STREAM, 0);
	must(*c >= 0 && !connect(*c, (const void *)a, sizeof *a), "connect");
	*s = accept(l, NULL, NULL);
	must(*s >= 0, "accept");
}

static void connection(int l, const struct sockaddr_in *a)
{
	int c, s;

	join_up(l, a, &c, &s);
	fds[0] = c;
	fds[1] = s;
	byte(c, s);
	close(c);
	close(s);
}

/* ---- the sleeper ---- */

static _Atomic int sleeper_id;	/* its thread id, when it is about to sleep */
static int receiver_fd;

static void *sleeper(void *arg)
{
	struct epoll_event e;

	(void)arg;
	sleeper_id = (int)syscall(SYS_gettid);
	return (void *)(long)epoll_wait(ep, &e, 1, 20000);
}

static void *receiver(void *arg)
{
	char b;

	(void)arg;
	sleeper_id = (int)syscall(SYS_gettid);
	return (void *)(long)recv(receiver_fd, &b, 1, 0);
}

/* The state of the thread as the kernel shows it. */
static char state_of(int id)
{
	char path[64], line[256] = "", *p;
	FILE *f;

	snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
	f = fopen(path, "r");
	if (!f)
		return 0;
	p = fgets(line, sizeof line, f) ? line : NULL;
	fclose(f);
	while (p && *p && *p != ')')
		p++;
	return p && *p ? p[2] : 0;
}

static pthread_t sleeping(void *(*what)(void *))
{
	struct timespec t = { 0, 1000000 };
	pthread_t th;

	sleeper_id = 0;
	must(!pthread_create(&th, NULL, what, NULL), "thread");
	for (int calm = 0; calm < 5;
	     calm = sleeper_id && state_of(sleeper_id) == 'S' ? calm + 1 : 0)
		nanosleep(&t, NULL);
	return th;
}

static void woken(int l, const struct sockaddr_in *a)
{
	struct epoll_event e = { .events = EPOLLIN };
	pthread_t in_epoll, in_recv;
	int c, s;
	void *r;

	ep = epoll_create1(0);
	in_epoll = sleeping(sleeper);
	join_up(l, a, &c, &s);
	for (int i = 0; i < 200; i++) {
		byte(c, s);
		byte(s, c);
	}
	receiver_fd = s;
	in_recv = sleeping(receiver);
	must(send(c, "x", 1, 0) == 1 && !pthread_join(in_recv, &r) && (long)r == 1,
	     "blocked receive");
	must(!epoll_ctl(ep, EPOLL_CTL_ADD, s, &e), "add");
	must(send(c, "x", 1, 0) == 1 && !pthread_join(in_epoll, &r), "send");
	if ((long)r != 1) {
		fprintf(stderr, "the thread in epoll_wait() slept on: %ld\n", (long)r);
		exit(1);
	}
	close(c);
	close(s);
	must(!close(ep), "close");
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), rounds = argc > 1 ? atoi(argv[1]) : 10;
	socklen_t len = sizeof a;

	must(l >= 0 && !bind(l, (void *)&a, len) && !listen(l, 16) &&
		     !getsockname(l, (void *)&a, &len),
	     "listener");
	for (int r = 0; r < rounds; r++) {
		pthread_t t;

		fds[0] = fds[1] = -1;
		over = false;
		ep = epoll_create1(0);
		must(!pthread_create(&t, NULL, adder, NULL), "thread");
		for (int i = 0; i < 300; i++)
			connection(l, &a);
		over = true;
		pthread_join(t, NULL);
		must(!close(ep), "close");
	}
	for (int r = 0; r < rounds; r++)
		woken(l, &a);
	printf("%d rounds\n", rounds);
	return 0;
}
