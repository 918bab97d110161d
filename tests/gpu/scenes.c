/*
 * scenes.c - one after the other, the ways in which a snapshot may stop being what the buffer
 * holds, on the stand-in driver; both ends in one process. Each scene first makes the GPU path
 * learn its buffers, then checks what arrives.
 *
 * 	scenes [NAME...]	all, or those; status 1 if one failed
 * RING: an io_uring instance is made first, and the rest is done by a child: what is registered
 * with it counts for the parent. RING=own: by the same process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drv.h"

#define N (300000)
static CUdeviceptr dev, dev2;
static CUstream a, b;
static char *expect;
static _Atomic int gate;

#include "far_end.h"

/* ---- helpers ---- */
static char *pinned(size_t n) { void *p; CK(d.cuMemHostAlloc(&p, n, 0)); return p; }
static char *pageable(size_t n)
{
	return mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* The device's memory becomes v, and then the buffer. */
static void load(char *p, CUdeviceptr from, size_t n, int v, CUstream st)
{
	CK(d.cuMemsetD8Async(from, (unsigned char)v, n, st));
	CK(d.cuMemcpyDtoHAsync(p, from, n, st));
}

static void loaded(char *p, CUdeviceptr from, size_t n, int v)
{
	load(p, from, n, v, a);
	CK(d.cuStreamSynchronize(a));
}

static char *sink;

static void prime(char *p, size_t n)
{
	for (int i = 0; i < 3; i++) {
		loaded(p, dev, n, 1 + i);
		transfer(sink, p, n);
	}
}

static int arrives(const char *p, size_t n)
{
	memcpy(expect, p, n);
	transfer(sink, p, n);
	return !memcmp(sink, expect, n);
}

static void wait_gate(void *arg)
{
	(void)arg;
	while (!atomic_load(&gate))
		usleep(50);
}

static void gated_fill(void **params)
{
	wait_gate(NULL);
	memset(params[0], 0x77, 5000);
}

static void launch(void (*f)(void **), void *p, CUstream st)
{
	void *params[] = { p, NULL };

	CK(d.cuLaunchKernel((void *)f, 1, 1, 1, 1, 1, 1, 0, st, params, NULL));
}

/* ---- the scenes: 1 for right ---- */

static int written(void)
{
	char *p = pinned(N);

	prime(p, N);
	loaded(p, dev, N, 9);
	p[150000] = 55;
	return arrives(p, N);
}

static int page_given_back(void)
{
	char *p = pageable(N + 8192);

	prime(p, N);
	loaded(p, dev, N, 9);
	memset(expect, 9, N);
	memset(expect + 40960, 0, 4096);
	madvise(p + 40960, 4096, MADV_DONTNEED);
	transfer(sink, p, N);
	return !memcmp(sink, expect, N);
}

static int kernel_after(void)
{
	char *p = pinned(N);

	prime(p, N);
	loaded(p, dev, N, 9);
	drv_fill(p + 1000, 0x44, 100, b);
	CK(d.cuStreamSynchronize(b));
	return arrives(p, N);
}

/* Begun before the copy, in another stream; writes after it. */
static int kernel_before(void)
{
	char *p = pinned(N);

	prime(p, N);
	atomic_store(&gate, 0);
	launch(gated_fill, standin_dma(p + 100000), b);
	loaded(p, dev, N, 9);
	atomic_store(&gate, 1);
	CK(d.cuStreamSynchronize(b));
	return arrives(p, N) && p[100000] == 0x77;
}

/* The same by a call of a kind that is only counted, behind something that is not even that. */
static int writer_before(void)
{
	extern int cuLaunchHostFunc(CUstream, void (*)(void *), void *);
	char *p = pinned(N);
	int ok;

	prime(p, N);
	atomic_store(&gate, 0);
	CK(cuLaunchHostFunc(b, wait_gate, NULL));
	CK(d.cuMemsetD2D8Async((uintptr_t)p + 100000, 100, 0x66, 100, 1, b));
	loaded(p, dev, N, 9);
	atomic_store(&gate, 1);
	CK(d.cuStreamSynchronize(b));
	ok = arrives(p, N) && p[100000] == 0x66;
	CK(d.cuCtxSynchronize());
	CK(d.cuCtxSynchronize());
	return ok;
}

static int copy_over_a_part(void)
{
	char *p = pinned(N);

	prime(p, N);
	loaded(p, dev, N, 9);
	CK(d.cuMemcpyDtoH(p + 5000, dev2, 100));
	return arrives(p, N);
}

/* A second buffer's watch begins on the page on which the first one's end was written. */
static int shared_page(void)
{
	char *p = pinned(2 * N);

	prime(p, N);
	prime(p + N, N);
	loaded(p, dev, N, 9);
	p[N - 1] = 33;
	loaded(p + N, dev, N, 10);
	return arrives(p, N);
}

/* A snapshot that is still to be taken keeps its room. */
static int room(void)
{
	extern int cuLaunchHostFunc(CUstream, void (*)(void *), void *);
	size_t n = 1500000;
	char *p = pinned(n), *q[6];
	CUstream c;	/* has never had work that may write anywhere */
	int ok = 1;

	CK(d.cuStreamCreate(&c, 1));
	prime(p, n);
	for (int i = 0; i < 6; i++) {
		q[i] = pinned(n);
		prime(q[i], n);
	}
	atomic_store(&gate, 0);
	CK(cuLaunchHostFunc(c, wait_gate, NULL));
	load(p, dev2, n, 99, c);
	for (int i = 0; i < 6; i++)	/* the ring has room for five */
		loaded(q[i], dev, n, 20 + i);
	atomic_store(&gate, 1);
	CK(d.cuStreamSynchronize(c));
	for (int i = 5; i >= 0; i--)
		ok &= arrives(q[i], n);
	return ok & arrives(p, n);
}

/* The send comes before the copy is done: what it sends may be old, but it is what is there. */
static int too_early(void)
{
	extern int cuLaunchHostFunc(CUstream, void (*)(void *), void *);
	char *p = pinned(N);
	int ok;

	prime(p, N);
	atomic_store(&gate, 0);
	CK(cuLaunchHostFunc(b, wait_gate, NULL));
	load(p, dev2, N, 42, b);
	ok = arrives(p, N);	/* nothing has been copied yet */
	atomic_store(&gate, 1);
	CK(d.cuStreamSynchronize(b));
	return ok && arrives(p, N) && p[0] == 42;
}

static int on_device_as_in(char *p, size_t n)
{
	char *back = malloc(n);
	int ok;

	CK(d.cuMemcpyHtoD(dev2, p, n));
	CK(d.cuMemcpyDtoH(back, dev2, n));
	ok = !memcmp(back, p, n);
	free(back);
	return ok;
}

/* Receives into a buffer that has been learned, unlearned, and is used again. */
static int received_again(void)
{
	char *p = pinned(N), *to = pinned(N);
	int ok = 1;

	prime(p, N);
	for (int i = 0; i < 12; i++) {
		loaded(p, dev, N, 30 + i);
		transfer(to, p, N);
		if (i < 4 || i > 9)
			ok &= on_device_as_in(to, N);
		ok &= to[0] == 30 + i && to[N - 1] == 30 + i;
	}
	return ok;
}

/* Written by the CPU, and by a kernel, between the receive and the copy to the device. */
static int received_and_written(void)
{
	char *p = pinned(N), *to = pinned(N);
	int ok = 1;

	prime(p, N);
	for (int i = 0; i < 9; i++) {
		loaded(p, dev, N, 50 + i);
		transfer(to, p, N);
		if (i % 3 == 1)
			to[7777] = 1;
		if (i % 3 == 2) {
			drv_fill(to + 9999, 0x12, 50, b);
			CK(d.cuStreamSynchronize(b));
		}
		ok &= on_device_as_in(to, N);
	}
	return ok;
}

/* Nobody asks a stream that is being captured anything. */
static int captured(void)
{
	char *p = pinned(N);
	CUstream c;
	void *g;
	int ok;

	CK(d.cuStreamCreate(&c, 1));
	prime(p, N);
	CK(d.cuStreamBeginCapture(c, 2));
	launch(gated_fill, standin_dma(p), c);
	loaded(p, dev, N, 9);
	ok = arrives(p, N);
	CK(d.cuStreamEndCapture(c, &g));
	CK(d.cuStreamDestroy(c));
	return ok;
}

static char *handler_p;
static void handler(int sig)
{
	(void)sig;
	send_all(handler_p, N);
}

static int in_a_handler(void)
{
	char *p = handler_p = pinned(N);

	signal(SIGUSR1, handler);
	prime(p, N);
	loaded(p, dev, N, 9);
	p[1] = 3;
	memcpy(expect, p, N);
	begin_recv(sink, N);
	raise(SIGUSR1);
	end_recv();
	return !memcmp(sink, expect, N);
}

/* A child writes into memory that it shares, before and after the parent's next copy. */
static int forked(void)
{
	char *p = pinned(N), *q = pinned(N), c;
	int st, up[2], down[2], ok;
	pid_t pid;

	prime(p, N);
	prime(q, N);
	loaded(p, dev, N, 9);
	if (pipe(up) || pipe(down))
		return 0;
	pid = fork();
	if (!pid) {
		p[100] = 77;
		if (write(up[1], "", 1) != 1 || read(down[0], &c, 1) != 1)
			_exit(1);
		q[200] = 78;
		_exit(write(up[1], "", 1) != 1);
	}
	if (read(up[0], &c, 1) != 1)
		return 0;
	ok = arrives(p, N) && p[100] == 77;
	loaded(q, dev, N, 9);
	if (write(down[1], "", 1) != 1 || read(up[0], &c, 1) != 1)
		return 0;
	ok &= arrives(q, N) && q[200] == 78;
	waitpid(pid, &st, 0);
	return ok;
}

#include "scenes_learn.h"

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof addr;
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, bad = 0;
	CUcontext ctx;
	pthread_t t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (getenv("RING")) {
		int status;

		make_ring();
		if (strcmp(getenv("RING"), "own") && fork())
			return wait(&status) < 0 || status;
	}
	if (bind(l, (struct sockaddr *)&addr, sizeof addr) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&addr, &len))
		return 4;
	out_fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(out_fd, (struct sockaddr *)&addr, sizeof addr))
		return 4;
	in_fd = accept(l, NULL, NULL);
	setsockopt(out_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	drv_open("linked");
	CK(d.cuDevicePrimaryCtxRetain(&ctx, 0));
	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemAlloc(&dev, 4 << 20));
	CK(d.cuMemAlloc(&dev2, 4 << 20));
	CK(d.cuStreamCreate(&a, 1));
	CK(d.cuStreamCreate(&b, 1));
	expect = malloc(4 << 20);
	sink = pinned(4 << 20);
	CK(d.cuMemcpyHtoD(dev2, sink, 4 << 20));
	pthread_create(&t, NULL, receiver, NULL);
	if (preloaded()) {	/* until the GPU path is at work, if it ever is */
		char *p = pageable(N);
		uint64_t was = standin_d2d();

		for (time_t end = time(NULL) + 20; time(NULL) < end && standin_d2d() == was; )
			prime(p, N);
	}
	for (unsigned i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		int wanted = argc < 2, ok;

		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], scenes[i].name);
		if (!wanted)
			continue;
		ok = scenes[i].f();
		printf("%s %s\n", ok ? "ok" : "WRONG", scenes[i].name);
		bad |= !ok;
	}
	_exit(bad);
}
