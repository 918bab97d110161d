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
static int out_fd, in_fd;
static CUdeviceptr dev, dev2;
static CUstream a, b;
static char *expect;
static _Atomic int gate;

/* ---- the far end: receives into `into` when told ---- */
static char *into;
static size_t into_n;
static _Atomic int go, done_;

static void *receiver(void *arg)
{
	(void)arg;
	for (;;) {
		while (!atomic_exchange(&go, 0))
			usleep(50);
		for (size_t at = 0; at < into_n;) {
			ssize_t r = recv(in_fd, into + at, into_n - at, 0);

			if (r <= 0)
				exit(4);
			at += (size_t)r;
		}
		atomic_store(&done_, 1);
	}
	return NULL;
}

static void begin_recv(char *p, size_t n)
{
	into = p;
	into_n = n;
	atomic_store(&go, 1);
	usleep(300);	/* most often it waits in recv() by then, so that an offer is taken;
			 * nothing depends on it */
}

static void end_recv(void)
{
	while (!atomic_exchange(&done_, 0))
		usleep(20);
}

static void send_all(const char *p, size_t n)
{
	while (n) {
		ssize_t r = send(out_fd, p, n, 0);

		if (r <= 0)
			exit(4);
		p += r;
		n -= (size_t)r;
	}
}

static void transfer(char *to, const char *from, size_t n)
{
	begin_recv(to, n);
	send_all(from, n);
	end_recv();
}

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

/* ---- learning: what is copied with a snapshot, seen by the driver ---- */

static int preloaded(void)
{
	const char *e = getenv("LD_PRELOAD");

	return e && *e;
}

/* Snapshots taken by one copy from `at` places in the program: 0 always without the library, and
 * `want` with it. */
static int snapshots(char *p, int want)
{
	uint64_t before = standin_d2d();

	loaded(p, dev, N, 4);
	before = standin_d2d() - before;
	return before == (uint64_t)(preloaded() ? want : 0);
}

/* Given up at the first copy that is not sent; longer each time. */
static int unlearned(void)
{
	char *p = pageable(N);
	int ok = 1;

	prime(p, N);
	ok &= snapshots(p, 1);		/* and not sent */
	ok &= snapshots(p, 0);
	for (int i = 0; i < 3; i++) {	/* needs four uses now */
		transfer(sink, p, N);
		ok &= snapshots(p, 0);
	}
	transfer(sink, p, N);
	ok &= snapshots(p, 1);
	transfer(sink, p, N);
	ok &= snapshots(p, 1);
	return ok;
}

/* Other memory at the same place. */
static int unmapped(void)
{
	char *p = pageable(N);

	prime(p, N);
	loaded(p, dev, N, 9);
	munmap(p, N);
	if (mmap(p, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p)
		return 0;
	memset(expect, 0, N);
	transfer(sink, p, N);
	return !memcmp(sink, expect, N);
}

static int freed(void)
{
	char *p = malloc(N), *q;
	int ok;

	prime(p, N);
	loaded(p, dev, N, 9);
	free(p);
	p = malloc(N);		/* most often the same place */
	memset(p, 11, N);
	ok = arrives(p, N);
	free(p);
	q = pinned(N);
	prime(q, N);
	loaded(q, dev, N, 12);
	CK(d.cuMemFreeHost(q));
	q = pinned(N);
	return ok & arrives(q, N);
}

/* Registered memory: when devices no longer know it, and when they know it anew. */
static int registered(void)
{
	extern int cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *);
	char *p = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE,
		       -1, 0);
	int ok;

	prime(p, N);
	loaded(p, dev, N, 9);
	CK(cuMemHostRegister_v2(p, N, 0));
	CK(d.cuMemsetD8Async((uintptr_t)p + 5000, 13, 100, b));
	CK(d.cuStreamSynchronize(b));
	ok = arrives(p, N) && p[5000] == 13;
	prime(p, N);
	loaded(p, dev, N, 14);
	CK(cuMemHostUnregister(p));
	p[70000] = 15;
	return ok & arrives(p, N);
}

/* A device that looks finds what was copied. */
static void copy_kernel(void **params) { memcpy(params[0], params[1], 1000); }

static int looked_at_by_a_device(void)
{
	char *p = pinned(N), got[1000];
	void *params[] = { (void *)(uintptr_t)dev2, standin_dma(p + 100000), NULL };

	prime(p, N);
	loaded(p, dev, N, 16);
	CK(d.cuLaunchKernel((void *)copy_kernel, 1, 1, 1, 1, 1, 1, 0, b, params, NULL));
	CK(d.cuMemcpyHtoDAsync(dev2 + 1000, p, 50000, b));
	CK(d.cuStreamSynchronize(b));
	memset(expect, 16, N);
	CK(d.cuMemcpyDtoH(got, dev2, 1000));
	if (memcmp(got, expect, 1000))
		return 0;
	CK(d.cuMemcpyDtoH(got, dev2 + 50000, 1000));
	return !memcmp(got, expect, 1000) && arrives(p, N);
}

/* Watched pages are no concern of the program's: it has its handlers and its mask, and writes. */
static _Atomic int faults;
static void on_fault(int sig) { (void)sig; faults++; _exit(9); }

static int signals_blocked(void)
{
	char *p = pinned(N);
	sigset_t set, old;
	int ok;

	prime(p, N);
	signal(SIGSEGV, on_fault);
	signal(SIGBUS, on_fault);
	sigfillset(&set);
	pthread_sigmask(SIG_SETMASK, &set, &old);
	loaded(p, dev, N, 17);
	for (size_t i = 0; i < N; i += 50000)
		p[i] = 18;
	ok = arrives(p, N);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	return ok & !faults;
}

/* Buffers that are used once each: their call site is trusted after four, and no more after a
 * surprise. */
static int trusted(void)
{
	volatile char apart[4096] = { 0 };	/* a call site is told by where its stack is,
						 * most of the time: not where that of another
						 * scene is */
	char *p = pageable(64 << 20);	/* nor the buffers where other scenes had any */
	int ok = 1 + apart[0];

	for (int i = 0; i < 8; i++, p += 1 << 20) {
		ok &= snapshots(p, i >= 4);
		transfer(sink, p, N);
	}
	for (int i = 0; i < 2; i++, p += 1 << 20) {
		ok &= snapshots(p, !i);		/* not sent, and then copied to again: the
						 * surprise */
		ok &= snapshots(p, 0);
	}
	return ok;
}

/* A system call of one's own, as liburing makes them. */
static long own_call(long n, long a1, long a2, long a3, long a4)
{
	register long r10 __asm__("r10") = a4, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a1), "S"(a2), "d"(a3), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}

/* An io_uring instance that writes to one registered buffer: its pages are pinned, no page table
 * tells. */
static struct { int fd; struct io_uring_params params; } ring = { .fd = -1 };

static void make_ring(void)
{
	ring.fd = (int)own_call(SYS_io_uring_setup, 2, (long)&ring.params, 0, 0);
}

static int ring_has(char *p)
{
	struct iovec iov = { p, N };

	return !own_call(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, (long)&iov, 1);
}

static int ring_writes(char *p, unsigned n)
{
	size_t len = ring.params.sq_off.array + ring.params.sq_entries * sizeof(unsigned),
	       sqes = ring.params.sq_entries * sizeof(struct io_uring_sqe);
	char *q = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqe =
		mmap(NULL, sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	int file = (int)syscall(SYS_memfd_create, "file", 0u), ok;

	memset(expect, 0x5a, n);
	ok = write(file, expect, n) == n;
	*sqe = (struct io_uring_sqe){ .opcode = IORING_OP_READ_FIXED, .fd = file,
				      .addr = (uintptr_t)p, .len = n };
	*(unsigned *)(q + ring.params.sq_off.array) = 0;
	__atomic_store_n((unsigned *)(q + ring.params.sq_off.tail), 1, __ATOMIC_RELEASE);
	ok &= own_call(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS) == 1 &&
	      *p == 0x5a;
	munmap(q, len);
	munmap(sqe, sqes);
	close(file);
	return ok;
}

static int pinned_pages(void)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");
	int kb = 0;

	while (f && fgets(line, sizeof line, f))
		sscanf(line, "VmPin: %d", &kb);
	if (f)
		fclose(f);
	return kb;
}

/* Later scenes are to find nothing pinned: the kernel takes its time. */
static void close_ring(void)
{
	close(ring.fd);
	ring.fd = -1;
	for (int i = 0; pinned_pages() && i < 5000; i++)
		usleep(1000);
}

static int pinned_by_a_ring(char *p)
{
	int ok;

	if (ring.fd < 0)
		make_ring();
	if (ring.fd < 0)		/* not permitted here */
		return 1;
	prime(p, N);
	ok = ring_has(p);
	for (int i = 0; i < 12; i++)	/* so that the GPU path would learn it anew */
		prime(p, N);
	loaded(p, dev, N, 9);
	ok &= ring_writes(p + 100000, 9000);
	ok &= arrives(p, N);
	close_ring();
	return ok;
}
static int pinned_elsewhere(void)
{
	return pinned_by_a_ring(pageable(N)) & pinned_by_a_ring(pinned(N));
}

/* Pages are being pinned, and not yet counted, when the copy is made. */
static struct iovec large;
static _Atomic int registering;

static void *registers(void *arg)
{
	(void)arg;
	atomic_store(&registering, 1);
	own_call(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, (long)&large, 1);
	atomic_store(&registering, 2);
	return NULL;
}

static int pinned_meanwhile(void)
{
	large = (struct iovec){ pinned(128 << 20), 128 << 20 };
	pthread_t t;
	char *p = large.iov_base;
	int ok = 1;

	make_ring();
	if (ring.fd < 0)
		return 1;
	prime(p, N);
	pthread_create(&t, NULL, registers, NULL);
	while (!atomic_load(&registering))
		;
	do
		loaded(p, dev, N, 9);
	while (atomic_load(&registering) < 2);
	pthread_join(t, NULL);
	for (int i = 0; i < 3; i++) {
		ok &= ring_writes(p + 100000 + i * 20000, 9000) && arrives(p, N);
		close_ring();
		make_ring();
		ok &= ring_has(p);
	}
	close_ring();
	CK(d.cuMemFreeHost(p));
	return ok;
}

/* Shared memory that the driver does not know: another mapping of it is no matter of these
 * pages. */
static int mapped_twice(void)
{
	char *p = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *q;

	prime(p, N);
	q = mremap(p, 0, N, MREMAP_MAYMOVE);
	prime(p, N);
	loaded(p, dev, N, 9);
	q[50000] = 77;
	return arrives(p, N);
}

static int punched(void)
{
	char *p = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ok;

	prime(p, N);
	loaded(p, dev, N, 9);
	ok = !madvise(p + 40960, 4096, MADV_REMOVE) && !((volatile char *)p)[40960];
	return ok & arrives(p, N);
}

/* A part of a mapping was watched: it is one mapping still. */
static int grown(void)
{
	size_t pages = 512 * 4096;
	char *p = pageable(pages), *q;

	prime(p, N);
	loaded(p, dev, N, 9);
	q = mremap(p, pages, 4 * pages, MREMAP_MAYMOVE);
	if (q == MAP_FAILED)
		return 0;
	prime(q, N);
	loaded(q, dev, N, 9);
	q[50000] = 77;
	return arrives(q, N);
}

static const struct { const char *name; int (*f)(void); } scenes[] = {
#define SCENE(f) { #f, f },
	SCENE(written) SCENE(page_given_back) SCENE(kernel_after) SCENE(kernel_before)
		SCENE(writer_before) SCENE(copy_over_a_part)
	SCENE(shared_page) SCENE(room) SCENE(too_early) SCENE(received_again)
		SCENE(received_and_written) SCENE(captured)
	SCENE(in_a_handler) SCENE(unmapped) SCENE(freed) SCENE(registered)
		SCENE(looked_at_by_a_device) SCENE(signals_blocked)
	SCENE(unlearned) SCENE(trusted) SCENE(pinned_elsewhere) SCENE(pinned_meanwhile)
		SCENE(mapped_twice) SCENE(punched) SCENE(grown)
	SCENE(forked)
};

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
