/*
 * grown.c - connections, one after the other, each of which makes its sender's ring grow and is
 * closed: what do they leave in the segment?
 *
 * 	grown N KIB	N connections; waits until at most KIB of the segments are in memory,
 * 			5 s at most; prints "fine", or how many there are
 *
 * Both ends are here, so each page counts twice: two mappings. Locks: none.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 1000000

static char out[BLOCK], in[BLOCK];

static void nap_ms(long ms)
{
	struct timespec t = { 0, ms * 1000000 };

	nanosleep(&t, NULL);
}

/* KiB of the segments that are in memory. */
static long segments(void)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	bool segment = false;
	long sum = 0, v;

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			segment = strstr(line, "memfd:rdmashim");
		else if (segment && sscanf(line, "Rss: %ld", &v) == 1)
			sum += v;
	}
	if (!f)
		err(2, "smaps");
	fclose(f);
	return sum;
}

/* A block from a to b, neither of which waits in its call. */
static void block(int a, int b)
{
	size_t sent = 0, got = 0;
	ssize_t n;

	while (got < BLOCK) {
		struct pollfd p[2] = { { sent < BLOCK ? a : -1, POLLOUT, 0 }, { b, POLLIN, 0 } };

		if (poll(p, 2, 5000) <= 0)
			errx(1, "stands still at %zu of %d bytes", got, BLOCK);
		n = p[0].revents ? send(a, out + sent, BLOCK - sent, 0) : 0;
		sent += n > 0 ? (size_t)n : 0;
		n = p[1].revents ? recv(b, in, BLOCK - got, 0) : 0;
		got += n > 0 ? (size_t)n : 0;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), n = argc > 1 ? atoi(argv[1]) : 0;
	long most = argc > 2 ? atol(argv[2]) : 0, now = 0;
	socklen_t len = sizeof(at);

	if (bind(l, (void *)&at, len) || listen(l, 8) || getsockname(l, (void *)&at, &len))
		err(2, "listen");
	for (int i = 0; i < n; i++) {
		int a = socket(AF_INET, SOCK_STREAM, 0), b;

		if (connect(a, (void *)&at, len))
			err(2, "connect");
		b = accept(l, NULL, NULL);
		fcntl(a, F_SETFL, O_NONBLOCK);
		fcntl(b, F_SETFL, O_NONBLOCK);
		for (int k = 0; k < 20; k++) {
			block(a, b);
			nap_ms(k < 10);		/* it may be cut over */
		}
		close(a);
		close(b);
	}
	for (int i = 0; i < 500; i++) {
		now = segments();
		if (now <= most) {
			puts("fine");
			return 0;
		}
		nap_ms(10);
	}
	printf("%ld KiB\n", now);
	return 0;
}
