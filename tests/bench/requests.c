/*
 * requests.c - connections of so many requests of 64 bytes, one after the other: is a short one
 * slower by what it is looked at? Knows nothing of the library.
 *
 *	requests server PORT			answers until a client says that all is over
 *	requests client PORT COUNT SECS		connections of COUNT requests each, for so long
 *
 * Each prints its connections, seconds and the seconds of processor time that they took, once the
 * first tenth of a second is over.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE 64
#define WARM 0.1

static struct { double at, cpu; long conns; } begun;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6 +
	       (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec / 1e6;
}

static void warm(double since, long conns)
{
	if (begun.at > 0 || now() - since < WARM)
		return;
	begun.at = now();
	begun.cpu = cpu();
	begun.conns = conns;
}

static void tell(long conns)
{
	printf("%ld %.6f %.6f\n", conns - begun.conns, now() - begun.at, cpu() - begun.cpu);
}

static bool take(int fd, char *p)
{
	for (ssize_t at = 0; at < SIZE;) {
		ssize_t r = recv(fd, p + at, (size_t)(SIZE - at), 0);

		if (r <= 0)
			return false;
		at += r;
	}
	return true;
}

static struct sockaddr_in address(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int server(int port)
{
	struct sockaddr_in a = address(port);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	char b[SIZE] = "";
	double since = 0;
	long n = 0;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(l, (void *)&a, sizeof a) || listen(l, 64))
		err(1, "listen");
	while (*b != 'o') {
		int fd = accept(l, NULL, NULL);

		if (fd < 0)
			err(1, "accept");
		since = since > 0 ? since : now();
		while (take(fd, b) && send(fd, b, SIZE, MSG_NOSIGNAL) == SIZE)
			;
		close(fd);
		warm(since, ++n);
	}
	tell(n - 1);
	return 0;
}

static void connection(int port, int count, char what)
{
	struct sockaddr_in a = address(port);
	struct linger reset = { 1, 0 };	/* or the ports are all used up */
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	char b[SIZE] = "";

	if (fd < 0 || connect(fd, (void *)&a, sizeof a))
		err(1, "connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	*b = what;
	for (int i = 0; i < count; i++)
		if (send(fd, b, SIZE, MSG_NOSIGNAL) != SIZE || !take(fd, b))
			errx(1, "no answer");
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	close(fd);
}

static int client(int port, int count, double secs)
{
	double since = now();
	long n = 0;

	while (now() - since < secs + WARM) {
		connection(port, count, 'r');
		warm(since, ++n);
	}
	tell(n);
	connection(port, 1, 'o');
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server"))
		return server(atoi(argv[2]));
	if (argc == 5 && !strcmp(argv[1], "client"))
		return client(atoi(argv[2]), atoi(argv[3]), atof(argv[4]));
	fprintf(stderr, "usage: requests server PORT | requests client PORT COUNT SECS\n");
	return 2;
}
