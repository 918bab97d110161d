/*
 * hot.c - both ends of a TCP connection in one process and one thread: N messages of SIZE bytes,
 * each sent and received at once, so that nothing ever waits. What is left is the way of a
 * message through the library, to be counted in instructions.
 *
 * 	hot N [SIZE]
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char out[65536], in[65536];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void message(int from, int to, size_t size)
{
	size_t got = 0;

	if (send(from, out, size, 0) != (ssize_t)size)
		die("send");
	while (got < size) {
		ssize_t n = recv(to, in + got, size - got, 0);

		if (n <= 0)
			die("recv");
		got += (size_t)n;
	}
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 10000, i;
	size_t size = argc > 2 ? (size_t)atol(argv[2]) : 64;
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;

	if (size < 1 || size > sizeof(out) || bind(l, (void *)&a, sizeof(a)) || listen(l, 1) ||
	    getsockname(l, (void *)&a, &len))
		die("hot");
	if (connect(c, (void *)&a, sizeof(a)) || (s = accept(l, NULL, NULL)) < 0)
		die("connect");
	for (i = 0; i < 200; i++) {		/* time to leave TCP */
		message(c, s, size);
		message(s, c, size);
		usleep(1000);
	}
	for (i = 0; i < n; i++)
		message(i & 1 ? s : c, i & 1 ? c : s, size);
	memset(out, 0, sizeof(out));
	return 0;
}
