/*
 * pipe.c - the staged pipe, as programs write it: device to host, TCP, host to device, between
 * GPU 0 and the last GPU.
 *
 * 	pipe stream SIZE BLOCKS pinned|pageable	one way; prints GB/s
 * 	pipe flow SIZE BLOCKS pinned|pageable	the same, but nobody looks at the receiver's
 * 						host buffer, only at its device
 * 	pipe leave SIZE BLOCKS pinned|pageable	as stream, but the sender ends as soon as it
 * 						has sent, while the receiver is behind by four
 * 						blocks; that one says if it got all
 * 	pipe round SIZE ROUNDS pinned|pageable	there and back; prints us per round
 * 	pipe unsent SIZE COPIES pinned|pageable	kernels and copies to the host and from it, of
 * 						which nothing is sent; prints us per three,
 * 						and how much of that is whoever stands between
 * 						the program and the driver: in turn by the
 * 						calls that programs get and by the driver's
 * 						own
 *
 * The content of every tenth block is checked in the receiver's buffer and on its device. Status
 * 1: it was wrong.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drv.h"

extern char **environ;
static size_t size;
static long count;
static int round_trip, look, leave;
static char *buf, *back;
static CUdeviceptr dev;
static CUstream st;
#define WARM 16

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void setup(int last, int pinned)
{
	CUcontext ctx;
	int n;

	drv_open("address");
	CK(d.cuDeviceGetCount(&n));
	CK(d.cuDevicePrimaryCtxRetain(&ctx, last ? n - 1 : 0));
	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemAlloc(&dev, size));
	CK(d.cuStreamCreate(&st, 1));
	back = malloc(size);
	if (pinned)
		CK(d.cuMemHostAlloc((void **)&buf, size, 0));
	else
		buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void move(int fd, int out)
{
	for (size_t at = 0; at < size;) {
		ssize_t r = out ? send(fd, buf + at, size - at, 0)
				: recv(fd, buf + at, size - at, 0);

		if (r <= 0) {
			perror(out ? "send" : "recv");
			exit(4);
		}
		at += (size_t)r;
	}
}

static void out(int fd)
{
	CK(d.cuMemcpyDtoHAsync(buf, dev, size, st));
	CK(d.cuStreamSynchronize(st));
	move(fd, 1);
}

static void in(int fd)
{
	move(fd, 0);
	CK(d.cuMemcpyHtoDAsync(dev, buf, size, st));
	CK(d.cuStreamSynchronize(st));
}

static void mark(long i)
{
	size_t at = size > 4096 ? (size_t)i * 40961 % (size - 4096) : 0;

	CK(d.cuMemsetD8Async(dev + at, (unsigned char)(i + 1), size < 4096 ? size : 4096, st));
}

static void check(long i)
{
	size_t at = size > 4096 ? (size_t)i * 40961 % (size - 4096) : 0,
	       n = size < 4096 ? size : 4096;

	memset(back, 0, n);
	CK(d.cuMemcpyDtoHAsync(back, dev + at, n, st));
	CK(d.cuStreamSynchronize(st));
	for (size_t k = 0; k < n; k++)
		if (back[k] != (char)(i + 1) || (look && buf[at + k] != back[k])) {
			fprintf(stderr, "block %ld is wrong at %zu\n", i, at + k);
			exit(1);
		}
}

/* A program that uses the connection for other things: bytes of its own. */
static void other_bytes(int fd, int there)
{
	static char other[65536];

	for (long i = 0; i < WARM; i++)
		for (size_t at = 0; at < sizeof other;) {
			ssize_t r = there ? read(fd, other + at, sizeof other - at)
					  : write(fd, other + at, sizeof other - at);

			if (r <= 0)
				exit(4);
			at += (size_t)r;
		}
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Seconds for n of: a kernel, a copy to the host, a copy from it. */
static double three(long n)
{
	double t = now();

	for (long i = 0; i < n; i++) {
		drv_fill((void *)(uintptr_t)dev, (unsigned char)i, 4096, st);
		CK(d.cuMemcpyDtoHAsync(buf, dev, size, st));
		CK(d.cuMemcpyHtoDAsync(dev, buf, size, st));
		CK(d.cuStreamSynchronize(st));
	}
	return now() - t;
}

static void unsent(int fd, int there)
{
	enum { TURNS = 100 };
	static double more[TURNS];
	struct drv got = d, past;
	double t = 0, pair[2];
	long n = count / TURNS / 2 + 1;

	other_bytes(fd, there);
	if (there)
		exit(0);
	drv_past(&past);
	three(n);
	for (int i = 0; i < TURNS; i++) {
		for (int k = 0; k < 2; k++) {	/* each first as often as the other */
			d = (k + i) % 2 ? past : got;
			pair[(k + i) % 2] = three(n);
		}
		t += pair[0];
		more[i] = 100 * (pair[0] / pair[1] - 1);
	}
	qsort(more, TURNS, sizeof *more, by_size);
	printf("%.2f us %+.2f %%\n", t / TURNS / (double)n * 1e6, more[TURNS / 2]);
	exit(0);
}

static void far_end(int fd)
{
	char c = 1;

	for (long i = 0; i < count + WARM; i++) {
		if (i == WARM && write(fd, &c, 1) != 1)
			exit(4);
		if (leave && i == count + WARM - 4)
			sleep(1);
		in(fd);
		if (i % 10 == 9 || (leave && i >= count + WARM - 4))
			check(i);
		if (round_trip)
			out(fd);
	}
	if (leave) {
		printf("all came, then %zd\n", read(fd, &c, 1));
		exit(0);
	}
	if (write(fd, &c, 1) != 1)
		exit(4);
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = drv_address() };
	socklen_t len = sizeof a;
	int l, fd, one = 1, status, pinned;
	double t = 0;
	char c, port[16];
	pid_t pid;

	if (argc < 5)
		return 2;
	round_trip = !strcmp(argv[1], "round");
	look = strcmp(argv[1], "flow");
	leave = !strcmp(argv[1], "leave");
	size = strtoull(argv[2], NULL, 0);
	count = atol(argv[3]);
	pinned = !strcmp(argv[4], "pinned");
	if (argc > 5) {
		a.sin_port = htons((uint16_t)atoi(argv[5]));
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof a))
			return 4;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setup(1, pinned);
		if (argv[1][0] == 'u')
			unsent(fd, 1);
		far_end(fd);
	}
	l = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len))
		return 4;
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, (char *[]){ argv[0], argv[1], argv[2],
		argv[3], argv[4], port, NULL }, environ))
		return 4;
	fd = accept(l, NULL, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setup(0, pinned);
	drv_gate();
	if (argv[1][0] == 'u')
		unsent(fd, 0);
	for (long i = 0; i < count + WARM; i++) {
		if (i == WARM) {
			if (read(fd, &c, 1) != 1)
				return 4;
			t = now();
		}
		mark(i);
		out(fd);
		if (round_trip)
			in(fd);
	}
	if (leave)
		exit(0);
	if (read(fd, &c, 1) != 1)
		return 4;
	t = now() - t;
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	if (round_trip)
		printf("%.1f us\n", t / (double)count * 1e6);
	else
		printf("%.2f GB/s\n", (double)size * (double)count / t * 1e-9);
	return 0;
}
