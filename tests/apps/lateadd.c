/*
 * lateadd.c ROUNDS: one thread makes, uses and closes TCP connections, another adds their fds to an epoll instance all the while, so
 * often just when they are closed. Each round ends with the close of the instance. Knows nothing of the shim.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
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

			epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e);	/* it may be closed, or there already */
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

static void connection(int l, const struct sockaddr_in *a)
{
	int c = socket(AF_INET, SOCK_STREAM, 0), s;
	char b = 'x';

	must(c >= 0 && !connect(c, (const void *)a, sizeof *a), "connect");
	s = accept(l, NULL, NULL);
	must(s >= 0, "accept");
	fds[0] = c;
	fds[1] = s;
	must(send(c, &b, 1, 0) == 1 && recv(s, &b, 1, 0) == 1, "byte");
	close(c);
	close(s);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), rounds = argc > 1 ? atoi(argv[1]) : 10;
	socklen_t len = sizeof a;

	must(l >= 0 && !bind(l, (void *)&a, len) && !listen(l, 16) && !getsockname(l, (void *)&a, &len), "listener");
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
	printf("%d rounds\n", rounds);
	return 0;
}
