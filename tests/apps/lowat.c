/*
 * lowat.c - TCP_NOTSENT_LOWAT of a sender whose other end is looked for, and SO_MAX_PACING_RATE,
 * are the library's for a while. The program sees its own all the same, the kernel has them
 * again after that while, and no other process gets the socket without.
 *
 *   lowat own	the program has set it: it stays
 *   lowat get	it asks
 *   lowat set	it sets it
 *   lowat fork	a child has the socket
 *   lowat vfork	... and another program in it
 *   lowat past	it sets it past the library: it stays
 *   lowat thread	the library's thread cannot be made
 *   lowat paced	as own, of the rate, set past the library
 *   lowat rate	as get, of the rate: what is sent until then goes no faster
 *   lowat pace	as set, of the rate
 *   lowat passed	as past, of the rate
 *   lowat time	nobody reads, and the time is up
 *   lowat poll	... and who polls hears of the room
 *   lowat told	... and who was told of room finds it
 *   lowat listener	... and a send that blocks ends by its listener's SO_SNDTIMEO
 *   lowat timeout	... or by one that is set meanwhile
 *
 * The kernel's value is read past the library. Its word that it was held at all is the exit
 * status: 0 it was, or would have been, 3 it was not.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/arch.h"

#define OWN 40000
#define OWN_RATE 3000000000ul
#define NO_RATE (~0ul)

static char buf[4 << 20], much[100 << 20];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Not by libc's syscall(), which the library follows. */
static int kernels(int fd)
{
	socklen_t len = sizeof(int);
	int v = -1;

	return sys6(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, (long)&v, (long)&len, 0)
		? -1 : v;
}

static unsigned long kernels_rate(int fd)
{
	unsigned long v = 0;
	socklen_t len = sizeof v;

	if (sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_MAX_PACING_RATE, (long)&v, (long)&len, 0))
		die("getsockopt");
	return v;
}

static void past(int fd, int v)
{
	if (sys6(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, (long)&v, sizeof v, 0))
		die("setsockopt");
}

static int programs(int fd)
{
	int v = -1;
	socklen_t len = sizeof v;

	if (getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &v, &len))
		die("getsockopt");
	return v;
}

static void set(int fd, int v)
{
	if (setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &v, sizeof v))
		die("setsockopt");
}

static unsigned long programs_rate(int fd)
{
	unsigned long v = 0;
	socklen_t len = sizeof v;

	if (getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &v, &len))
		die("getsockopt");
	return v;
}

static void pace(int fd, unsigned long v)
{
	if (setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &v, sizeof v))
		die("setsockopt");
}

static void pace_past(int fd, unsigned long v)
{
	if (sys6(SYS_setsockopt, fd, SOL_SOCKET, SO_MAX_PACING_RATE, (long)&v, sizeof v, 0))
		die("setsockopt");
}

static void want_rate(int fd, unsigned long should)
{
	if (programs_rate(fd) == should && kernels_rate(fd) == should)
		return;
	fprintf(stderr, "rate: %lu of the program, %lu of the kernel, not %lu\n",
		programs_rate(fd), kernels_rate(fd), should);
	exit(1);
}

static void want(const char *what, int is, int should)
{
	if (is == should)
		return;
	fprintf(stderr, "%s: %d, not %d\n", what, is, should);
	exit(1);
}

/* Both ends in this process; nobody ever waits for the other in a way that the library could
 * see, so it is not cut over. */
static const struct timeval none, some = { .tv_sec = 1, .tv_usec = 100000 };

static void timeout(int fd, const struct timeval *tv)
{
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, tv, sizeof *tv))
		die("SO_SNDTIMEO");
}

static void pair(int fd[2], const struct timeval *listeners)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	timeout(l, listeners);
	if (l < 0 || fd[0] < 0 || bind(l, (void *)&a, len) || listen(l, 1) ||
	    getsockname(l, (void *)&a, &len) ||
	    connect(fd[0], (void *)&a, len) || (fd[1] = accept4(l, NULL, NULL, SOCK_NONBLOCK)) < 0)
		die("pair");
	if (fcntl(fd[0], F_SETFL, O_NONBLOCK))
		die("fcntl");
}

static void ended(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "the child's socket is held\n");
		exit(1);
	}
}

static void in_child(int fd)
{
	pid_t pid = fork();

	if (!pid)
		_exit(kernels(fd) || kernels_rate(fd) != NO_RATE);
	ended(pid);
}

static void in_program(int fd)
{
	char number[12];
	pid_t pid;

	snprintf(number, sizeof number, "%d", fd);
	pid = vfork();
	if (!pid) {
		execl("/proc/self/exe", "lowat", "of", number, NULL);
		_exit(1);
	}
	ended(pid);
}

/* Another connection earns while the thread is made for the first, which then cannot be. */
static int second = -1;
static bool second_held;

__attribute__((visibility("default")))
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (second < 0) {
		next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_create");
		return next(t, a, f, arg);
	}
	if (send(second, buf, 100000, MSG_NOSIGNAL) < 0)
		die("send");
	second_held = kernels(second) > 0;
	return EAGAIN;
}

/* Beyond what it has earned with. */
static bool told(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	bool held = false;

	for (size_t all = 0; all < 1000000;) {
		ssize_t n;

		if (poll(&p, 1, 10000) != 1)
			die("no room for what TCP takes");
		n = send(fd, buf, 16384, MSG_NOSIGNAL | MSG_EOR);	/* no room beside it */
		if (n < 0)
			die("there was room, and then a send");
		all += (size_t)n;
		held |= kernels(fd) > 0;
	}
	return held;
}

/* Of far more than TCP takes. */
static void ends(int fd)
{
	if (send(fd, much, sizeof much, MSG_NOSIGNAL) == sizeof much) {
		fprintf(stderr, "all of it was sent\n");
		exit(1);
	}
}

static void fills_up(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	ssize_t n;

	/* so much TCP has always taken */
	for (size_t all = 100000; all < 1000000; all += (size_t)n) {
		n = send(fd, buf, 1000000 - all, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			die("send");
		n = n < 0 ? 0 : n;
		if (poll(&p, 1, 10000) != 1)
			die("no room for what TCP takes");
	}
}

/* It was held when it had earned. What the program and the kernel say then; is that what it is
 * about? */
static bool of_the_rate(const char *what, int fd)
{
	if (!strcmp(what, "paced")) {
		want_rate(fd, OWN_RATE);
	} else if (!strcmp(what, "rate")) {
		if (programs_rate(fd) != NO_RATE)
			die("not its own rate");
		want_rate(fd, NO_RATE);
		want("of the kernel", kernels(fd), 0);
	} else if (!strcmp(what, "pace")) {
		pace(fd, OWN_RATE);
		want_rate(fd, OWN_RATE);
		want("of the kernel", kernels(fd), 0);
	} else if (!strcmp(what, "passed")) {
		pace_past(fd, OWN_RATE);
		want_rate(fd, OWN_RATE);
	} else {
		return false;
	}
	return true;
}

/* False: there is no such case. */
static bool of_the_room(const char *what, int fd)
{
	if (!strcmp(what, "own")) {
		want("of the kernel", kernels(fd), OWN);
		want("of the program", programs(fd), OWN);
	} else if (!strcmp(what, "get")) {
		want("of the program", programs(fd), 0);
		want("of the kernel, then", kernels(fd), 0);
		want_rate(fd, NO_RATE);
	} else if (!strcmp(what, "set")) {
		set(fd, OWN);
		want("of the kernel", kernels(fd), OWN);
		want("of the program", programs(fd), OWN);
	} else if (!strcmp(what, "fork")) {
		in_child(fd);
	} else if (!strcmp(what, "vfork")) {
		in_program(fd);
	} else if (!strcmp(what, "past")) {
		past(fd, OWN);
		want("of the program", programs(fd), OWN);
		want("of the kernel", kernels(fd), OWN);
	} else if (!strcmp(what, "thread")) {
		want("of the kernel", kernels(second), 0);
	} else if (!strcmp(what, "timeout")) {
		timeout(fd, &(struct timeval){ .tv_usec = 5000 });
		want("of the kernel", kernels(fd), 0);
	} else if (!strcmp(what, "time")) {
		while (kernels(fd) || kernels_rate(fd) != NO_RATE)
			usleep(1000);
	} else if (!strcmp(what, "poll")) {
		fills_up(fd);
	} else {
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	bool held;
	ssize_t n;
	int fd[2];

	if (argc > 2)
		return kernels(atoi(argv[2])) || kernels_rate(atoi(argv[2])) != NO_RATE;
	pair(fd, strcmp(what, "listener") ? &none : &some);
	if (!strcmp(what, "own"))
		set(fd[0], OWN);
	if (!strcmp(what, "paced"))	/* with the library's knowledge it would stay on TCP */
		pace_past(fd[0], OWN_RATE);
	if (!strcmp(what, "listener")) {
		if (fcntl(fd[1], F_SETFL, 0))
			die("fcntl");
		ends(fd[1]);
		printf("%s: well\n", what);
		return 0;
	}
	if (!strcmp(what, "told")) {
		held = told(fd[0]);
		printf("%s: well\n", what);
		return held ? 0 : 3;
	}
	if (!strcmp(what, "thread")) {
		int other[2];

		pair(other, &none);
		second = other[0];
	}
	n = send(fd[0], buf, 100000, MSG_NOSIGNAL);	/* it has earned */
	if (n < 0)
		die("send");
	held = kernels(fd[0]) > 0;
	if (held && strcmp(what, "own") && strcmp(what, "paced") && kernels_rate(fd[0]) == NO_RATE)
		die("as fast as it can");
	if (!of_the_rate(what, fd[0]) && !of_the_room(what, fd[0]))
		return 2;
	if (!strcmp(what, "own"))
		held = true;
	if (!strcmp(what, "thread"))
		held = second_held;
	printf("%s: well\n", what);
	return held ? 0 : 3;
}
