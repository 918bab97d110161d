/*
 * leftbehind.c server PORT | client PORT STOP: when the file STOP is there, a client is killed
 * while a child of its, which knows nothing of the library, has its socket still: what was on
 * the way is lost. The server's thread that has been reading from the start, and its next calls,
 * or the one that sends, hear of a reset, once, and the reader never of EPIPE, which is for
 * those who send.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arch/arch.h"

static struct sockaddr_in at;
static const struct timespec long_time = { 20, 0 };

/* Past libc: who calls fork() by syscall(2) is seen by the library. */
static long unseen_fork(void) { return sys6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0); }

static void die(const char *what)
{
	fprintf(stderr, "leftbehind: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void *writes(void *arg)
{
	static const char buf[20000];
	int fd = *(int *)arg;

	while (send(fd, buf, sizeof buf, MSG_NOSIGNAL) > 0)
		;
	printf("send: %s\n", strerror(errno));
	return NULL;
}

static int server(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd;
	char buf[100];
	pthread_t t;
	ssize_t n;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (l < 0 || bind(l, (void *)&at, sizeof at) || listen(l, 4))
		die("listen");
	fd = accept(l, NULL, NULL);
	if (fd < 0 || pthread_create(&t, NULL, writes, &fd))
		die("accept");
	for (int i = 0; i < 3; i++) {
		n = recv(fd, buf, sizeof buf, 0);
		printf("recv: %s\n", n < 0 ? strerror(errno) : n ? "bytes" : "the end");
		if (n > 0 || (n < 0 && errno == EPIPE))
			die("recv");
	}
	pthread_join(t, NULL);
	return 0;
}

static int client(const char *stop)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), ready[2];
	static char buf[20000];
	struct pollfd p = { .fd = 1 };
	char c = 0;

	if (fd < 0 || connect(fd, (void *)&at, sizeof at) || pipe(ready))
		die("connect");
	while (access(stop, F_OK))
		if (recv(fd, buf, sizeof buf, 0) <= 0)
			die("recv");
	poll(NULL, 0, 50);	/* so that something is on the way: had all been read, the end
				 * were right */
	if (!unseen_fork()) {
		dup2(ready[1], 0);
		syscall(SYS_dup3, fd, 1, 0);
		syscall(SYS_close_range, 2, ~0u, 0);
		if (write(0, &c, 1) == 1)
			/* until the server resets it */
			syscall(SYS_ppoll, &p, 1, &long_time, NULL, 8);
		_exit(0);
	}
	if (read(ready[0], &c, 1) != 1)
		die("the child");
	raise(SIGKILL);
	return 1;
}

int main(int argc, char **argv)
{
	at = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	at.sin_port = htons((uint16_t)(argc > 2 ? atoi(argv[2]) : 0));
	if (argc == 3 && !strcmp(argv[1], "server"))
		return server();
	return argc == 4 ? client(argv[3]) : 2;
}
