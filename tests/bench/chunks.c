/*
 * chunks.c - how a collectives library (NCCL) uses sockets, without a GPU: a few connections
 * between two processes, one thread in each that never waits for them and asks them in turn,
 * again and again; a block of half a megabyte with its length before it; eight buffers for each
 * connection.
 *
 * 	chunks CONNECTIONS KIB COUNT [both]	prints GB/s, of each way if both
 *
 * What is left in the buffers is compared in the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
#define SLOTS 8
#define WARM 64		/* blocks of each connection before the clock starts */
#define CONNS 64

struct side {
	int fd, sends;
	uint32_t head;
	size_t at;		/* in the block, its head first */
	long block;
	char *mem;
};

static size_t size;
static long count;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
	perror(what);
	exit(4);
}

static char *slot(struct side *c, long block)
{
	return c->mem + (size_t)(block % SLOTS) * size;
}

/* One attempt, as far as it goes. */
static void progress(struct side *c)
{
	while (c->block < count) {
again:;
		size_t hs = sizeof c->head;
		char *p = c->at < hs ? (char *)&c->head + c->at : slot(c, c->block) + (c->at - hs);
		size_t n = c->at < hs ? hs - c->at : hs + size - c->at;
		ssize_t r = c->sends ? send(c->fd, p, n, MSG_NOSIGNAL) : recv(c->fd, p, n, 0);

		if (r < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (r < 0)
			die(c->sends ? "send" : "recv");
		if (!r) {
			fprintf(stderr, "the other end is gone\n");
			exit(1);
		}
		c->at += (size_t)r;
		if (c->at < hs + size)
			goto again;
		if (!c->sends && c->head != size) {
			fprintf(stderr, "length %u\n", c->head);
			exit(1);
		}
		c->at = 0;
		c->block++;
		return;		/* the next connection's turn */
	}
}

static void fill(struct side *c, int which)
{
	for (size_t i = 0; i < SLOTS * size / 8; i++)
		((uint64_t *)(void *)c->mem)[i] = i * 0x9e3779b97f4a7c15u + (uint64_t)which;
}

static void check(struct side *c, int which)
{
	for (size_t i = 0; i < SLOTS * size / 8; i++)
		if (((uint64_t *)(void *)c->mem)[i] != i * 0x9e3779b97f4a7c15u + (uint64_t)which) {
			fprintf(stderr, "connection %d: wrong at %zu\n", which, i * 8);
			exit(1);
		}
}

int main(int argc, char **argv)
{
	static struct side c[CONNS];
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int n, both, rank, one = 1, status = 0;
	pid_t pid = 0;
	double t = 0;

	if (argc < 4)
		return 2;
	n = atoi(argv[1]);
	size = strtoull(argv[2], NULL, 0) << 10;
	count = strtol(argv[3], NULL, 0) + WARM;
	both = argc > 4 && !strcmp(argv[4], "both");
	rank = argc > 5;
	if (n < 1 || n * (1 + both) > CONNS || !size)
		return 2;
	n *= 1 + both;
	if (!rank) {
		char port[16], *args[] = { argv[0], argv[1], argv[2], argv[3], both ? "both"
					   : "one", port, NULL };
		int l = socket(AF_INET, SOCK_STREAM, 0);

		if (bind(l, (struct sockaddr *)&a, len) || listen(l, n) ||
		    getsockname(l, (struct sockaddr *)&a, &len))
			die("listen");
		snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
		if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ))
			die("spawn");
		for (int i = 0; i < n; i++)
			c[i].fd = accept(l, NULL, NULL);
	} else {
		a.sin_port = htons((uint16_t)atoi(argv[5]));
		for (int i = 0; i < n; i++) {
			c[i].fd = socket(AF_INET, SOCK_STREAM, 0);
			if (connect(c[i].fd, (struct sockaddr *)&a, sizeof a))
				die("connect");
		}
	}
	for (int i = 0; i < n; i++) {
		c[i].sends = rank ^ !(i & both);
		c[i].head = (uint32_t)size;
		setsockopt(c[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (fcntl(c[i].fd, F_SETFL, O_NONBLOCK))
			die("fcntl");
		c[i].mem = mmap(NULL, SLOTS * size, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (c[i].mem == MAP_FAILED)
			die("mmap");
		memset(c[i].mem, 0, SLOTS * size);
		if (c[i].sends)
			fill(&c[i], i);
	}
	for (long left = 1; left;) {
		left = 0;
		for (int i = 0; i < n; i++) {
			progress(&c[i]);
			left += count - c[i].block;
		}
		if (t == 0 && left <= (count - WARM) * n)
			t = now();
	}
	t = now() - t;
	for (int i = 0; i < n; i++)
		if (!c[i].sends)
			check(&c[i], i);
	/* The other end may still read: it is done when it ends. */
	if (rank)
		return 0;
	if (waitpid(pid, &status, 0) != pid || status)
		_exit(1);
	printf("%.2f GB/s\n", (double)size * (double)(count - WARM) * (n / (1 + both)) / t * 1e-9);
	return 0;
}
