/*
 * stacks.c - a process whose threads wait in known places, for `rdmastat stacks`: in recv() and
 * in send() of a connection to itself, in epoll_wait(), in a lock of its own. It talks on all
 * three until a line on stdin, then prints "ready", the descriptors and thread numbers; after
 * another line it ends all waits by what they wait for, and counts what was lost or interrupted
 * meanwhile.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS 400
#define FULL (8u << 20)

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static int reading[2], writing[2], polled[2], ep;
static long tid[4];
static int wrong;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void round_trip(const int fd[2])
{
	char c = 'x';

	need(write(fd[0], &c, 1) == 1 && read(fd[1], &c, 1) == 1 && write(fd[1], &c, 1) == 1 &&
	     read(fd[0], &c, 1) == 1, "a round");
}

static void connect_pair(int fd[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), i;

	need(!bind(l, (struct sockaddr *)&a, len) && !listen(l, 1) &&
	     !getsockname(l, (struct sockaddr *)&a, &len), "listen");
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	need(!connect(fd[0], (struct sockaddr *)&a, len), "connect");
	fd[1] = accept(l, NULL, NULL);
	need(fd[1] >= 0, "accept");
	close(l);
	for (i = 0; i < ROUNDS; i++)
		round_trip(fd);
}

/* Until there is a line on stdin: they are on the fast path by then. */
static void talk(void)
{
	struct pollfd p = { .fd = 0, .events = POLLIN };

	puts("talks");
	fflush(stdout);
	while (!poll(&p, 1, 2)) {
		round_trip(reading);
		round_trip(writing);
		round_trip(polled);
	}
	need(getchar() == '\n', "stdin");
}

static void *waits_to_receive(void *arg)
{
	char c = 0;

	tid[0] = syscall(SYS_gettid);
	if (recv(reading[0], &c, 1, 0) != 1 || c != 'r')
		wrong |= 1;
	return arg;
}

static void *waits_to_send(void *arg)
{
	static char block[FULL];

	tid[1] = syscall(SYS_gettid);
	memset(block, 's', sizeof(block));
	if (send(writing[0], block, FULL, 0) != FULL)
		wrong |= 2;
	return arg;
}

static void *waits_for_events(void *arg)
{
	struct epoll_event e;

	tid[2] = syscall(SYS_gettid);
	int n;

	do
		n = epoll_wait(ep, &e, 1, -1);
	while (n < 0 && errno == EINTR);	/* signal(7): also when a debugger looks */
	if (n != 1 || e.data.fd != polled[0])
		wrong |= 4;
	return arg;
}

static void *waits_for_a_lock(void *arg)
{
	tid[3] = syscall(SYS_gettid);
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
	return arg;
}

int main(void)
{
	void *(*const run[4])(void *) = { waits_to_receive, waits_to_send, waits_for_events,
					  waits_for_a_lock };
	struct epoll_event e = { .events = EPOLLIN };
	static char block[65536];
	size_t got = 0;
	pthread_t t[4];
	ssize_t n;
	int i;

	connect_pair(reading);
	connect_pair(writing);
	connect_pair(polled);
	ep = epoll_create1(0);
	e.data.fd = polled[0];
	need(!epoll_ctl(ep, EPOLL_CTL_ADD, polled[0], &e), "epoll_ctl");
	setvbuf(stdin, NULL, _IONBF, 0);
	talk();
	pthread_mutex_lock(&held);
	for (i = 0; i < 4; i++)
		need(!pthread_create(&t[i], NULL, run[i], NULL), "pthread_create");
	for (i = 0; i < 4; i++)
		while (!__atomic_load_n(&tid[i], __ATOMIC_RELAXED))
			usleep(1000);
	printf("ready %d %d %d, threads %ld %ld %ld %ld\n", reading[0], writing[0], polled[0],
	       tid[0], tid[1], tid[2], tid[3]);
	fflush(stdout);
	need(getchar() == '\n', "stdin");
	need(write(reading[1], "r", 1) == 1 && write(polled[1], "p", 1) == 1, "write");
	while (got < FULL && (n = read(writing[1], block, sizeof(block))) > 0)
		got += (size_t)n;
	pthread_mutex_unlock(&held);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("received %zu, wrong %d\n", got, wrong);
	return wrong || got != FULL;
}
