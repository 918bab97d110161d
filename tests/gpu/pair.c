/*
 * pair.c - random GPU programs over TCP, checked by the bytes themselves: a sender that copies
 * device memory to host buffers and sends them, with everything going on around it that could
 * make a snapshot a lie, and a receiver that compares what arrives with a hash of what the
 * sender's buffer held when it was sent, and what reaches its device with its buffer.
 *
 * 	pair HOW ROUNDS SEED [MAX]	HOW as in drv.h; blocks of up to MAX bytes (4 MiB)
 *
 * Before the random rounds some with a buffer of their own that nothing disturbs: there the GPU
 * path has learned nothing yet, and no reason not to be used.
 *
 * CALM=1: a buffer is left alone seven times of eight, so ranges are learned and the GPU path is
 * used most of the time. FAR=same: the receiver is on the sender's device, not on the last one;
 * plain: it has no device at all; bare: nor what is preloaded.
 *
 * The last line says what was compared. Status 1: a difference.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drv.h"

extern char **environ;

static uint64_t rng;
static size_t max_block = 4 << 20;
#define BUFS 3
static char *shadow, *host[2][BUFS];	/* pageable, pinned */
#define STEADY 40		/* rounds with: */
#define STEADY_MOST 262144
static char *fresh;
static size_t steady_size;
static CUdeviceptr dev[2];
static CUstream streams[3];	/* default, blocking, not blocking */

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}
static size_t below(size_t n) { return rnd() % n; }
static int one_in(unsigned n) { return rnd() % n == 0; }
static int calm;

static uint64_t hash(const void *p, size_t n)
{
	const uint8_t *b = p;
	uint64_t h = n, w;

	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&w, b, 8);
		h = (h ^ w) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	for (; n; n--)
		h = (h ^ *b++) * 0x100000001b3ull;
	return h;
}

static void fill_random(void *p, size_t n)
{
	uint64_t *w = p, x = rnd() | 1;

	for (size_t i = 0; i < n / 8; i++)
		w[i] = x += 0x9e3779b97f4a7c15ull * (i | 1);
}

static void setup(const char *how, int device)
{
	CUcontext ctx;
	int n;

	drv_open(how);
	CK(d.cuDeviceGetCount(&n));
	CK(d.cuDevicePrimaryCtxRetain(&ctx, device % n));
	CK(d.cuCtxSetCurrent(ctx));
	shadow = malloc(max_block);
	CK(d.cuMemHostAlloc((void **)&fresh, steady_size, 0));
	for (int i = 0; i < BUFS; i++) {
		host[0][i] = mmap(NULL, max_block + 8192, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CK(d.cuMemHostAlloc((void **)&host[1][i], max_block + 8192, 0));
	}
	for (int i = 0; i < 2; i++)
		CK(d.cuMemAlloc(&dev[i], max_block + 8192));
	CK(d.cuStreamCreate(&streams[1], 0));
	CK(d.cuStreamCreate(&streams[2], 1));
}

static CUdeviceptr P(void *p) { return (uintptr_t)p; }

/* Device to host in one of the ways; complete when it returns, or after
 * cuStreamSynchronize(*st). */
static void to_host(void *dst, CUdeviceptr src, size_t n, CUstream *st)
{
	struct standin_2d c = { .src_type = 2, .src_device = src, .src_pitch = n, .dst_type = 1,
				.dst_host = dst, .dst_pitch = n,
				.width = n, .height = 1 };

	*st = streams[below(3)];
	switch (below(6)) {
	case 0: CK(d.cuMemcpyDtoH(dst, src, n)); *st = NULL; break;
	case 1: CK(d.cuMemcpy(P(dst), src, n)); *st = NULL; break;
	case 2: CK(d.cuMemcpyAsync(P(dst), src, n, *st)); break;
	case 3: CK(d.cuMemcpy2D(&c)); *st = NULL; break;
	case 4: CK(d.cuMemcpy2DAsync(&c, *st)); break;
	default: CK(d.cuMemcpyDtoHAsync(dst, src, n, *st)); break;
	}
}

static void to_device(CUdeviceptr dst, void *src, size_t n, CUstream *st)
{
	*st = streams[below(3)];
	switch (below(4)) {
	case 0: CK(d.cuMemcpyHtoD(dst, src, n)); *st = NULL; break;
	case 1: CK(d.cuMemcpy(dst, P(src), n)); *st = NULL; break;
	case 2: CK(d.cuMemcpyAsync(dst, P(src), n, *st)); break;
	default: CK(d.cuMemcpyHtoDAsync(dst, src, n, *st)); break;
	}
}

static void all(int fd, struct iovec *v, int n, int out)
{
	while (n) {
		ssize_t r = out ? writev(fd, v, n) : readv(fd, v, n);

		if (r <= 0) {
			perror(out ? "writev" : "readv");
			exit(4);
		}
		while (n && (size_t)r >= v->iov_len) {
			r -= (ssize_t)v->iov_len;
			v++;
			n--;
		}
		if (n) {
			v->iov_base = (char *)v->iov_base + r;
			v->iov_len -= (size_t)r;
		}
	}
}

enum { RANDOM_ROUND, LAST_ROUND, STEADY_ROUND };
struct head { uint64_t len, hash, kind; };

/* The receiver has taken it, and waits for the next one, or will in a moment. */
static void settled(int fd, int there)
{
	char c = 1;

	if (there ? write(fd, &c, 1) != 1 : read(fd, &c, 1) != 1)
		exit(4);
	if (!there)
		usleep(1000);
}

static void steady_out(int fd, char *pattern)
{
	for (int k = 0; k < STEADY; k++) {
		struct head h = { .len = steady_size, .kind = STEADY_ROUND };
		struct iovec v = { &h, sizeof h };

		fill_random(pattern, steady_size);
		CK(d.cuMemcpyHtoD(dev[0], pattern, steady_size));
		CK(d.cuCtxSynchronize());
		CK(d.cuCtxSynchronize());
		CK(d.cuMemcpyDtoHAsync(fresh, dev[0], steady_size, streams[2]));
		CK(d.cuStreamSynchronize(streams[2]));
		h.hash = hash(pattern, steady_size);
		all(fd, &v, 1, 1);
		v = (struct iovec){ fresh, steady_size };
		all(fd, &v, 1, 1);
		settled(fd, 0);
	}
}

/* A page of the buffer becomes zero, without anybody looking at it. Returns the hash that the
 * buffer has from then on. */
static uint64_t give_back_page(char *buf, size_t n, size_t at)
{
	size_t page = (((uintptr_t)buf + at + 4095) & ~4095ul) - (uintptr_t)buf;

	if (page + 4096 > n)
		return hash(buf, n);
	memcpy(shadow, buf, n);
	memset(shadow + page, 0, 4096);
	madvise(buf + page, 4096, MADV_DONTNEED);
	return hash(shadow, n);
}

/* What could make the snapshot differ from the buffer, before the send. Returns the hash of what
 * the buffer holds. */
static uint64_t disturb(char *buf, size_t n, int pinned, CUdeviceptr src)
{
	size_t at = below(n), len = 1 + below(n - at < 20000 ? n - at : 20000);

	if (calm && !one_in(8))
		return hash(buf, n);
	switch (below(16)) {
	case 0: buf[at] ^= 0x55; break;				/* a byte */
	case 1: memset(buf + at, 0xa5, len); break;		/* some */
	case 2: buf[0] ^= 1; break;				/* the edges */
	case 3: buf[n - 1] ^= 1; break;
	case 4:							/* the source, afterwards */
		CK(d.cuMemsetD8(src, 0x11, n));
		break;
	case 5:							/* a kernel writes pinned memory */
		if (pinned) {
			drv_fill(buf + at, 0x77, (unsigned)len, streams[1]);
			CK(d.cuStreamSynchronize(streams[1]));
		}
		break;
	case 6:
		/* a memset of a kind that is only counted */
		if (pinned) {
			CK(d.cuMemsetD2D8Async(P(buf + at), len, 0x33, len, 1, streams[2]));
			CK(d.cuStreamSynchronize(streams[2]));
		}
		break;
	case 7:							/* a second copy over a part */
		CK(d.cuMemcpyDtoH(buf + at, dev[1], len));
		break;
	case 8:
		/* the kernel writes on the program's behalf */
		{
			int p[2];

			len = len < 4096 ? len : 4096;
			if (pipe(p) || write(p[1], buf + (n - len) / 2, len) != (ssize_t)len ||
			    read(p[0], buf + at, len < n - at ? len : n - at) < 0)
				exit(4);
			close(p[0]);
			close(p[1]);
		}
		break;
	case 9:							/* a page given back */
		if (!pinned)
			return give_back_page(buf, n, at);
		break;
	case 10:						/* pages replaced */
		if (!pinned && n > 16384)
			mmap((void *)(((uintptr_t)buf + at + 4095) & ~4095ul), 4096,
			     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			     0);
		break;
	default: break;
	}
	return hash(buf, n);
}

/* On the device, by way of the host and in the order of a stream: nobody waits for the bytes in
 * between. */
static void around(char *buf, const char *pattern, char *back, size_t n)
{
	CUstream st = streams[1];

	CK(d.cuMemcpyHtoD(dev[0], pattern, n));
	drv_fill((char *)dev[1], 0x24, 1000, st);
	CK(d.cuMemcpyDtoHAsync(buf, dev[0], n, st));
	CK(d.cuMemcpyHtoDAsync(dev[1], buf, n, st));
	CK(d.cuStreamSynchronize(st));
	CK(d.cuMemcpyDtoH(back, dev[1], n));
	if (memcmp(back, pattern, n) || memcmp(buf, pattern, n)) {
		fprintf(stderr, "by way of the host: %zu bytes differ\n", n);
		exit(1);
	}
}

/* Somebody else in the process has the context, too, for a moment. */
static void retained(void)
{
	CUcontext ctx;

	CK(d.cuDevicePrimaryCtxRetain(&ctx, 0));
	CK(d.cuDevicePrimaryCtxRelease(0));
}

static void sender(int fd, long rounds)
{
	char *pattern = malloc(max_block), *back = malloc(max_block);

	steady_out(fd, pattern);
	for (long i = 0; i < rounds; i++) {
		int pinned = (int)below(2);
		size_t n = one_in(4) ? 1 + below(200000)
				     : max_block / 4 + below(max_block - max_block / 4),
		       off = !one_in(4) ? 0 : below(4096);
		char *buf = host[pinned][one_in(3) ? below(BUFS) : 0] + off;
		struct head h = { .len = n, .kind = i == rounds - 1 ? LAST_ROUND : RANDOM_ROUND };
		CUstream st = NULL;
		size_t done = 0;

		if (one_in(3)) {
			CK(d.cuCtxSynchronize());
			CK(d.cuCtxSynchronize());
		}
		if (!one_in(8)) {
			fill_random(pattern, n);
			CK(d.cuMemcpyHtoD(dev[0], pattern, n));
			if (one_in(6))	/* work in another stream that may still run when the
					 * copy is made */
				drv_fill(pinned ? buf : (char *)dev[1], 0x42, 1000, streams[2]);
			to_host(buf, dev[0], n, &st);
			if (one_in(4))	/* the source is overwritten in stream order, perhaps
					 * before anybody waits */
				CK(d.cuMemsetD8Async(dev[0], 0x99, n, st));
			CK(d.cuStreamSynchronize(st));
			CK(d.cuStreamSynchronize(streams[2]));
		}
		if (getenv("AROUND") && i % 4 == 1)
			retained();
		if (getenv("AROUND") && i % 4 == 2) {
			fill_random(pattern, n);
			around(host[1][0], pattern, back, n);
		}
		h.hash = disturb(buf, n, pinned, dev[0]);
		if (one_in(2)) {
			struct iovec v[2] = { { &h, sizeof h }, { buf, n } };

			all(fd, v, 2, 1);
			done = n;
		} else {
			struct iovec v = { &h, sizeof h };

			all(fd, &v, 1, 1);
		}
		while (done < n) {	/* in one chunk, or in some */
			size_t part = one_in(2) ? n - done : 1 + below(n - done);
			struct iovec v = { buf + done, part };

			all(fd, &v, 1, 1);
			done += part;
		}
	}
	free(pattern);
	free(back);
}

static long bad, compared;

static void check(const char *what, long round, uint64_t want, const void *p, size_t n)
{
	compared++;
	if (hash(p, n) == want)
		return;
	bad++;
	fprintf(stderr, "round %ld: %s differs (%zu bytes)\n", round, what, n);
}

static void steady_in(int fd, long round, const struct head *h, char *back)
{
	struct iovec v = { fresh, h->len };

	if (h->len != steady_size)
		exit(4);
	CK(d.cuCtxSynchronize());
	CK(d.cuCtxSynchronize());
	all(fd, &v, 1, 0);
	CK(d.cuMemcpyHtoDAsync(dev[0], fresh, h->len, streams[2]));
	CK(d.cuStreamSynchronize(streams[2]));
	CK(d.cuMemcpyDtoH(back, dev[0], h->len));
	check("what reached the device at first", round, h->hash, back, h->len);
	check("what arrived at first", round, h->hash, fresh, h->len);
	settled(fd, 1);
}

static void receiver(int fd)
{
	char *back = malloc(max_block);
	struct head h = { 0 };

	for (long i = 0; h.kind != LAST_ROUND; i++) {
		struct iovec v = { &h, sizeof h };
		int pinned = (int)below(2);
		char *buf = host[pinned][one_in(3) ? below(BUFS) : 0] +
			    (!one_in(4) ? 0 : below(4096));
		CUstream st = NULL;
		uint64_t now;
		size_t got = 0;

		if (one_in(3)) {
			CK(d.cuCtxSynchronize());
			CK(d.cuCtxSynchronize());
		}
		all(fd, &v, 1, 0);
		if (h.len > max_block)
			exit(4);
		if (h.kind == STEADY_ROUND) {
			steady_in(fd, i, &h, back);
			continue;
		}
		while (got < h.len) {
			size_t part = one_in(2) ? h.len - got : 1 + below(h.len - got);

			v = (struct iovec){ buf + got, part };
			all(fd, &v, 1, 0);
			got += part;
		}
		if (!one_in(3))
			check("what arrived", i, h.hash, buf, h.len);
		now = one_in(3) ? disturb(buf, h.len, pinned, dev[1]) : hash(buf, h.len);
		if (one_in(8))
			continue;
		if (one_in(4) && h.len > 4096) {	/* in two, or from the middle */
			size_t cut = below(h.len);

			to_device(dev[0], buf, cut ? cut : 1, &st);
			CK(d.cuStreamSynchronize(st));
			to_device(dev[0] + cut, buf + cut, h.len - cut, &st);
		} else {
			to_device(dev[0], buf, h.len, &st);
		}
		if (one_in(3)) {	/* the buffer is used again as soon as it may */
			CK(d.cuStreamSynchronize(st));
			memset(buf, 0, h.len);
		}
		CK(d.cuStreamSynchronize(st));
		CK(d.cuMemcpyDtoH(back, dev[0], h.len));
		check("what reached the device", i, now, back, h.len);
	}
	printf("%ld comparisons, %ld differences\n", compared, bad);
	exit(bad != 0);
}

/* Without a device: only what arrives is compared. */
static void plain_receiver(int fd)
{
	char *buf = malloc(max_block);
	struct head h = { 0 };

	for (long i = 0; h.kind != LAST_ROUND; i++) {
		struct iovec v = { &h, sizeof h };

		all(fd, &v, 1, 0);
		if (h.len > max_block)
			exit(4);
		v = (struct iovec){ buf, h.len };
		all(fd, &v, 1, 0);
		check("what arrived", i, h.hash, buf, h.len);
		if (h.kind == STEADY_ROUND)
			settled(fd, 1);
	}
	printf("%ld comparisons, %ld differences\n", compared, bad);
	exit(bad != 0);
}

static int tcp_pair(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = drv_address() };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
		perror("connect");
		exit(4);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = drv_address() };
	socklen_t len = sizeof a;
	const char *far = getenv("FAR") ? getenv("FAR") : "";
	char port[16], seed[32];
	int l, fd, status;
	pid_t pid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	calm = getenv("CALM") != NULL;
	if (argc < 4)
		return 2;
	if (argc > 4)
		max_block = strtoull(argv[4], NULL, 0);
	steady_size = max_block < STEADY_MOST ? max_block : STEADY_MOST;
	rng = strtoull(argv[3], NULL, 0) * 0x9e3779b97f4a7c15ull | 1;
	if (argc > 5) {		/* the receiver */
		fd = tcp_pair(atoi(argv[5]));
		if (!strcmp(far, "plain") || !strcmp(far, "bare"))
			plain_receiver(fd);
		setup(argv[1], strcmp(far, "same") != 0);
		receiver(fd);
	}
	l = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len))
		return 4;
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	snprintf(seed, sizeof seed, "%llu", strtoull(argv[3], NULL, 0) + 7777);
	{
		char max[32], *args[] = { argv[0], argv[1], argv[2], seed, max, port, NULL };

		snprintf(max, sizeof max, "%zu", max_block);
		if (!strcmp(far, "bare"))
			unsetenv("LD_PRELOAD");		/* read when a program starts: this one
							 * goes on as it is */
		if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ))
			return 4;
	}
	fd = accept(l, NULL, NULL);
	setup(argv[1], 0);
	drv_gate();
	sender(fd, atol(argv[2]));
	if (waitpid(pid, &status, 0) != pid)
		return 4;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}
