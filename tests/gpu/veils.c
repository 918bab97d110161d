/*
 * veils.c - buffers whose bytes may not be there yet, on the stand-in driver: everybody who
 * looks finds them. Both ends in one process. Each scene makes such a buffer by a copy to the
 * host or by a receive, checks with DEFERRED=1 that its pages are hidden, and then looks at it
 * in one way.
 *
 * 	veils [NAME...]	all, or those; status 1 if one failed
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
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

#define N (1 << 19)
static int out_fd, in_fd, deferring, helper_in, helper_out;
static CUdeviceptr dev, dev2;
static CUstream a, b;
static char *sink, *back;

/* ---- the far end: receives into `into` when told ---- */
static char *into;
static _Atomic int go, done_;

static void *receiver(void *arg)
{
	(void)arg;
	for (;;) {
		while (!atomic_exchange(&go, 0))
			usleep(50);
		for (size_t at = 0; at < N;) {
			ssize_t r = recv(in_fd, into + at, N - at, 0);

			if (r <= 0)
				exit(4);
			at += (size_t)r;
		}
		atomic_store(&done_, 1);
	}
	return NULL;
}

static void transfer(char *to, const char *p)
{
	into = to;
	atomic_store(&go, 1);
	usleep(300);	/* most often it waits in recv() by then, so that an offer is taken */
	for (size_t at = 0; at < N;) {
		ssize_t r = send(out_fd, p + at, N - at, 0);

		if (r <= 0)
			exit(4);
		at += (size_t)r;
	}
	while (!atomic_exchange(&done_, 0))
		usleep(20);
}

/* ---- buffers ---- */

static char *pinned(void) { void *p; CK(d.cuMemHostAlloc(&p, N + 16384, 0)); return p; }

static int hidden(const char *p)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t e = 0;

	if (fd < 0 || pread(fd, &e, sizeof e, (off_t)((uintptr_t)p / 4096 * 8)) != sizeof e)
		exit(4);
	close(fd);
	return !(e >> 63);
}

static int all(const char *p, size_t n, int v)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (char)v)
			return 0;
	return 1;
}

static void copied(char *p, size_t n, int v)
{
	CK(d.cuMemsetD8Async(dev, (unsigned char)v, n, a));
	CK(d.cuStreamSynchronize(a));
	CK(d.cuMemcpyDtoH(p, dev, n));
}

/* p is learned: what is copied there is sent. */
static void teach(char *p)
{
	for (int i = 0; i < 3; i++) {
		copied(p, N, 100 + i);
		transfer(sink, p);
	}
}

static int sent;	/* which kind of buffer: copied to, to be sent; or received into */
static int missed;	/* it was not deferred: a receiver that came late, say. The scene is
			 * played again. */
static char *from;

static void must_hide(const char *p)
{
	missed |= deferring && !hidden(p + N / 2);
}

/* N bytes at p are v, and with the GPU path not there yet. */
static void put_off(char *p, int v)
{
	if (sent) {
		transfer(sink, p);
		copied(p, N, v);
	} else {
		CK(d.cuMemcpyHtoD(dev2, p, N));
		copied(from, N, v);
		transfer(p, from);
	}
	must_hide(p);
}

static void learn(char *p)
{
	if (sent) {
		teach(p);
		return;
	}
	from = pinned();
	for (int i = 0; i < 3; i++) {
		copied(from, N, i);
		transfer(p, from);
		CK(d.cuMemcpyHtoD(dev2, p, N));
	}
}

static char *fresh(int v)
{
	char *p = pinned();

	learn(p);
	put_off(p, v);
	return p;
}

static int on_device(CUdeviceptr at, size_t n, int v)
{
	CK(d.cuMemcpyDtoH(back, at, n));
	return all(back, n, v);
}

/* ---- the scenes: 1 for right. Each with a buffer that was copied to, and with one that was
 * received into. ---- */

static int load(void) { return all(fresh(7), N, 7); }

static int store(void)
{
	int ok = 1;
	char *p = fresh(8);

	p[100000] = 1;
	p[N - 1] = 2;
	return all(p, 100000, 8) & all(p + 100001, N - 100002, 8) & (p[100000] == 1) &
	       (p[N - 1] == 2) & ok;
}

/* Stored while the rest is not there yet; then sent, and copied to the device. */
static int store_and_use(void)
{
	int ok = 1;
	char *p = fresh(9);

	p[300000] = 1;
	CK(d.cuMemcpyHtoD(dev2, p, N));
	CK(d.cuMemcpyDtoH(back, dev2, N));
	ok &= all(back, 300000, 9) & (back[300000] == 1) & all(back + 300001, N - 300001, 9);
	transfer(sink, p);
	return ok & all(sink, 300000, 9) & (sink[300000] == 1) & all(sink + 300001, N - 300001, 9);
}

static int memory_file(void) { return (int)syscall(SYS_memfd_create, "veils", 0); }

static int file_is(int fd, int v)
{
	memset(back, 0, N);
	return pread(fd, back, N, 0) == N && all(back, N, v);
}

static int raw_write(void)
{
	int ok = 1, fd = memory_file();
	char *p = fresh(10);

	ok &= syscall(SYS_pwrite64, fd, p, (size_t)N, 0) == N;
	ok &= file_is(fd, 10);
	close(fd);
	return ok;
}

static int raw_read(void)
{
	int ok = 1, fd = memory_file();
	char *p;

	memset(back, 3, 5000);
	if (pwrite(fd, back, 5000, 0) != 5000)
		return 0;
	p = fresh(11);
	ok &= syscall(SYS_pread64, fd, p + 70000, (size_t)5000, 0) == 5000;
	close(fd);
	return ok & all(p, 70000, 11) & all(p + 70000, 5000, 3) & all(p + 75000, N - 75000, 11);
}

static int stdio(void)
{
	int ok = 1, fd = memory_file();
	char *p = fresh(12);
	FILE *f = fdopen(fd, "w+");

	ok &= fwrite(p, 1, N, f) == N && !fflush(f);
	ok &= file_is(fd, 12);
	fclose(f);
	return ok;
}

static int other_process(void)
{
	char *p = fresh(13), answer;

	if (write(helper_out, &p, sizeof p) != sizeof p || read(helper_in, &answer, 1) != 1)
		exit(4);
	return answer == 13;
}

static int small_copy(void)
{
	int ok = 1;
	char *p = fresh(14);

	CK(d.cuMemcpyHtoD(dev2, p + 50000, 3000));
	ok &= on_device(dev2, 3000, 14);
	CK(d.cuMemcpyHtoDAsync(dev2, p + 250000, 100000, b));
	CK(d.cuStreamSynchronize(b));
	return ok & on_device(dev2, 100000, 14) & all(p, N, 14);
}

static int as_device_memory(void)
{
	int ok = 1;
	char *p = fresh(15);

	CK(d.cuMemcpyDtoD(dev2, (uintptr_t)p, N));
	return ok & on_device(dev2, N, 15);
}

static int two_dimensions(void)
{
	int ok = 1;
	char *p = fresh(16);
	struct standin_2d c = { .src_type = 1, .src_host = p + 1000, .src_pitch = 4096,
				.dst_type = 2, .dst_device = dev2, .dst_pitch = 1000,
		.width = 1000, .height = 100 };

	CK(d.cuMemcpy2D(&c));
	return ok & on_device(dev2, 100000, 16);
}

static int into_an_array(void)
{
	extern int cuMemcpyHtoA_v2(void *, size_t, const void *, size_t);
	int ok = 1;
	char *p = fresh(17);

	CK(cuMemcpyHtoA_v2((void *)(uintptr_t)dev2, 0, p, N));
	return ok & on_device(dev2, N, 17);
}

static void copy_kernel(void **params) { memcpy(params[0], params[1], 100000); }

static int kernel(void)
{
	int ok = 1;
	char *p = fresh(18);
	void *params[] = { (void *)(uintptr_t)dev2, standin_dma(p + 200000) };

	CK(d.cuLaunchKernel((void *)copy_kernel, 1, 1, 1, 1, 1, 1, 0, b, params, NULL));
	CK(d.cuStreamSynchronize(b));
	return ok & on_device(dev2, 100000, 18);
}

static int graph(void)
{
	int ok = 1;
	char *p = fresh(19);
	CUstream c;
	void *g, *x;

	CK(d.cuStreamCreate(&c, 1));
	CK(d.cuStreamBeginCapture(c, 2));
	CK(d.cuMemcpyHtoDAsync(dev2, p, N, c));
	CK(d.cuStreamEndCapture(c, &g));
	CK(d.cuGraphInstantiateWithFlags(&x, g, 0));
	put_off(p, 20);
	CK(d.cuGraphLaunch(x, c));
	CK(d.cuStreamSynchronize(c));
	ok &= on_device(dev2, N, 20);
	CK(d.cuStreamDestroy(c));
	return ok;
}

/* A device writes a part. */
static int written_in_part(void)
{
	int ok = 1;
	char *p = fresh(24);

	CK(d.cuMemsetD8Async((uintptr_t)p + 9000, 5, 1000, b));
	CK(d.cuStreamSynchronize(b));
	CK(d.cuMemsetD8Async(dev2, 6, 1000, b));
	CK(d.cuMemcpyDtoHAsync(p + 400000, dev2, 1000, b));
	CK(d.cuStreamSynchronize(b));
	return ok & all(p, 9000, 24) & all(p + 9000, 1000, 5) & all(p + 10000, 390000, 24) &
	       all(p + 400000, 1000, 6) & all(p + 401000, N - 401000, 24);
}

/* Several in the same place, one after the other, and beside it. */
static int again(void)
{
	int ok = 1;
	char *p = fresh(25);

	for (int i = 0; i < 5; i++)
		put_off(p, 26 + i);
	ok &= all(p, N, 30);
	put_off(p, 31);
	copied(p + 12345, 300000, 32);
	return ok & all(p, 12345, 31) & all(p + 12345, 300000, 32) &
	       all(p + 312345, N - 312345, 31);
}

static int unaligned(void)
{
	int ok = 1;
	char *p = pinned();

	memset(p, 77, N + 16384);
	for (int i = 0; i < 6; i++) {
		if (sent) {
			copied(p + 5000, N, 33 + i);
			transfer(sink, p + 5000);
			ok &= all(sink, N, 33 + i);
		} else {
			copied(from, N, 33 + i);
			transfer(p + 5000, from);
			CK(d.cuMemcpyHtoD(dev2, p + 5000, N));
			ok &= on_device(dev2, N, 33 + i);
		}
		if (sent && i == 5) {
			copied(p + 5000, N, 38);
			must_hide(p);
		}
	}
	return ok & all(p, 5000, 77) & all(p + 5000, N, 38) & all(p + 5000 + N, 16384 - 5000, 77);
}

/* With the whole of it on the device, nothing comes from the host. */
static int to_the_device(void)
{
	int ok = 1;
	char *p = fresh(40);
	uint64_t before = standin_d2d();

	CK(d.cuMemcpyHtoD(dev2, p, N));
	ok &= !deferring || missed || (standin_d2d() == before + 1 && hidden(p + N / 2));
	return ok & on_device(dev2, N, 40) & all(p, N, 40);
}

static int freed(void)
{
	int ok = 1;
	char *p = fresh(41), *q;

	CK(d.cuMemFreeHost(p));
	q = pinned();
	ok &= all(q, N, 0);
	CK(d.cuMemFreeHost(q));
	return ok;
}

static int unregistered(void)
{
	extern int cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *);
	static uintptr_t where = 0x300000000000;	/* where nothing was learned */
	char *p = mmap((void *)(where += 1 << 24), N, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int ok;

	CK(cuMemHostRegister_v2(p, N, 0));
	learn(p);
	put_off(p, 42);
	CK(cuMemHostUnregister(p));
	ok = all(p, N, 42);
	munmap(p, N);
	return ok;
}

/* What comes to the place of memory that was unmapped is nobody's but the program's. */
static int unmapped(void)
{
	extern int cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *);
	static uintptr_t where = 0x310000000000;
	int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, ok;
	char *p = mmap((void *)(where += 1 << 24), N, PROT_READ | PROT_WRITE, flags, -1, 0), *q;
	void *params[] = { (void *)(uintptr_t)dev2, back };

	CK(cuMemHostRegister_v2(p, N, 0));
	learn(p);
	put_off(p, 57);
	munmap(p, N);
	q = mmap(p, N, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
	ok = q == p && all(q, N / 2, 0);
	memset(q, 3, N / 4);
	/* fills what is not there */
	CK(d.cuLaunchKernel((void *)copy_kernel, 1, 1, 1, 1, 1, 1, 0, b, params, NULL));
	CK(d.cuStreamSynchronize(b));
	ok &= all(q, N / 4, 3) & all(q + N / 4, N - N / 4, 0);
	CK(cuMemHostUnregister(p));
	ok &= all(q, N / 4, 3) & all(q + N / 4, N - N / 4, 0);
	munmap(q, N);
	return ok;
}

static _Atomic int faults;
static void on_fault(int sig) { (void)sig; faults++; _exit(9); }

static int fault_handler(void)
{
	int ok = 1;
	char *p = fresh(43);

	signal(SIGSEGV, on_fault);
	ok &= all(p, N, 43);
	signal(SIGSEGV, SIG_DFL);
	return ok & !faults;
}

static char *looked_at;
static void *look(void *ok)
{
	sigset_t set;

	sigfillset(&set);
	pthread_sigmask(SIG_SETMASK, &set, NULL);
	*(int *)ok = all(looked_at, N, 44);
	return NULL;
}

static int signals_blocked(void)
{
	int ok = 1, good[3] = { 0, 0, 0 };
	pthread_t t[3];

	looked_at = fresh(44);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, look, &good[i]);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	return ok & good[0] & good[1] & good[2];
}

static _Atomic int handled;
static void on_signal(int sig) { (void)sig; handled = all(looked_at, N, 45); }

static int in_a_handler(void)
{
	int ok = 1;

	looked_at = fresh(45);
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	return ok & handled;
}

static int moved(void)
{
	int ok = 1;
	char *p = fresh(46), *q = mremap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED,
		(char *)mmap(NULL, N, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	/* The stand-in still knows the old place: nothing else must come there. */
	mmap(p, N, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return ok & (q != MAP_FAILED && all(q, N, 46));
}

static int protected(void)
{
	int ok = 1;
	char *p = fresh(47);

	mprotect(p, N, PROT_READ);
	ok &= all(p, N, 47);
	mprotect(p, N, PROT_READ | PROT_WRITE);
	return ok;
}

static int locked(void)
{
	int ok = 1;
	char *p = fresh(48);

	if (mlock(p, N))
		return 1;	/* not permitted */
	ok &= all(p, N, 48);
	if (sent)
		copied(p, N, 49);
	else
		copied(from, N, 49), transfer(p, from);
	ok &= all(p, N, 49);
	munlock(p, N);
	return ok;
}

static int vforked(void)
{
	int ok = 1, st;
	char *p = fresh(50);
	pid_t pid = vfork();

	if (!pid)
		_exit(!all(p, N, 50));
	return ok & (waitpid(pid, &st, 0) == pid && !st);
}

static int child_ends_well(pid_t pid)
{
	int st;

	return waitpid(pid, &st, 0) == pid && !st;
}

/* These last: who shares its memory with a child is not watched any more. */
static int raw_fork(void)
{
	int ok = 1;
	char *p = fresh(51);
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (!pid)
		syscall(SYS_exit_group, !all(p, N, 51));
	return ok & child_ends_well(pid) & all(p, N, 51);
}

/* A child's beginning is told with a descriptor of its own, and there is none left. */
static int no_descriptors(void)
{
	static int fds[4096];
	int ok = 1, n = 0;
	char *p = fresh(56);
	pid_t pid;

	while (n < 4096 && (fds[n] = dup(0)) >= 0)
		n++;
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		syscall(SYS_exit_group, !all(p, N, 56));
	ok &= n < 4096 && child_ends_well(pid);
	while (n)
		close(fds[--n]);
	return ok & all(p, N, 56);
}

static int forked(void)
{
	int ok = 1;
	char *p = fresh(52);
	pid_t pid = fork();

	if (!pid)
		_exit(!all(p, N, 52));
	return ok & child_ends_well(pid) & all(p, N, 52);
}

/* A stream that waits for a value in a buffer is not made to wait for ever. After that nothing
 * is deferred. */
static int waiting_stream(void)
{
	extern int cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
	int ok = 1;
	char *p = fresh(53);

	CK(cuStreamWaitValue32_v2(b, (uintptr_t)p + N / 2, 0x36363636, 1));
	for (int i = 0; i < 3; i++)
		copied(p, N, 0x36);
	CK(d.cuStreamSynchronize(b));
	return ok;
}

static sigjmp_buf here;
static void on_bus(int sig) { (void)sig; siglongjmp(here, 1); }

/* What is lost with the device is not replaced by anything. */
static int device_lost(void)
{
	int fd = memory_file();
	volatile int caught = 0;
	char *volatile p = fresh(54);

	if (!deferring)
		return 1;
	standin_break();
	signal(SIGBUS, on_bus);
	if (sigsetjmp(here, 1))
		caught = 1;
	else
		caught = -all(p, N, 54);
	signal(SIGBUS, SIG_DFL);
	return caught > 0 && (syscall(SYS_pwrite64, fd, p, (size_t)N, 0) != N);
}

static const struct { const char *name; int (*f)(void); int once; } scenes[] = {
#define SCENE(f) { #f, f, 0 },
#define ONCE(f) { #f, f, 1 },
	SCENE(load) SCENE(store) SCENE(store_and_use) SCENE(raw_write) SCENE(raw_read) SCENE(stdio)
		SCENE(other_process) SCENE(small_copy)
	SCENE(as_device_memory) SCENE(two_dimensions) SCENE(into_an_array) SCENE(kernel)
		SCENE(graph) SCENE(written_in_part) SCENE(again)
	SCENE(unaligned) SCENE(to_the_device) SCENE(freed) SCENE(unregistered) SCENE(unmapped)
		SCENE(fault_handler) SCENE(signals_blocked)
	SCENE(in_a_handler) SCENE(moved) SCENE(protected) SCENE(locked) SCENE(vforked)
		SCENE(raw_fork)
	ONCE(no_descriptors) ONCE(forked) ONCE(waiting_stream) ONCE(device_lost)
};

/* Reads what the parent points at, in the parent. */
static void help(void)
{
	int up[2], down[2];
	pid_t parent = getpid();

	if (pipe(up) || pipe(down))
		exit(4);
	helper_in = up[0];
	helper_out = down[1];
	if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))	/* fork() would make the library take all
							 * shared memory for shared with a child */
		return;
	close(down[1]);
	for (char *p, answer; read(down[0], &p, sizeof p) == sizeof p; ) {
		char *mine = malloc(N);
		struct iovec to = { mine, N }, at = { p, N };

		answer = process_vm_readv(parent, &to, 1, &at, 1, 0) == N && all(mine, N, mine[0])
				 ? mine[0]
				 : -1;
		free(mine);
		if (write(up[1], &answer, 1) != 1)
			break;
	}
	_exit(0);
}

static char *last;
static void at_exit(void)
{
	if (last && !all(last, N, 55)) {
		fprintf(stderr, "what was looked at in the end is wrong\n");
		_exit(1);
	}
}

static void connected(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof addr;
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (bind(l, (struct sockaddr *)&addr, sizeof addr) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&addr, &len))
		exit(4);
	out_fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(out_fd, (struct sockaddr *)&addr, sizeof addr))
		exit(4);
	in_fd = accept(l, NULL, NULL);
	setsockopt(out_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int main(int argc, char **argv)
{
	int bad = 0;
	CUcontext ctx;
	pthread_t t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	deferring = getenv("DEFERRED") && getenv("LD_PRELOAD");
	atexit(at_exit);	/* runs after the driver's own end */
	help();
	connected();
	drv_open("linked");
	CK(d.cuDevicePrimaryCtxRetain(&ctx, 0));
	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemAlloc(&dev, 2 * N));
	CK(d.cuMemAlloc(&dev2, 2 * N));
	CK(d.cuStreamCreate(&a, 1));
	CK(d.cuStreamCreate(&b, 1));
	back = malloc(2 * N);
	sink = pinned();
	from = pinned();
	pthread_create(&t, NULL, receiver, NULL);
	/* until the GPU path is at work */
	for (time_t end = time(NULL) + 20; deferring && time(NULL) < end; ) {
		missed = sent = 0;
		load();
		CK(d.cuMemcpyHtoD(dev2, from, N));
		if (!missed)
			break;
	}
	for (unsigned i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		int wanted = argc < 2;

		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], scenes[i].name);
		for (sent = 1; sent >= 0 && wanted; sent--) {
			int ok, tries = 0;

			/* these by name: nothing is deferred after them */
			if (scenes[i].once && (!sent || argc < 2))
				continue;
			do {
				missed = 0;
				ok = scenes[i].f();
			} while (ok && missed && ++tries < 20);
			if (ok && missed)
				fprintf(stderr, "never deferred\n");
			ok &= !missed;
			printf("%s %s, %s\n", ok ? "ok" : "WRONG", scenes[i].name,
			       sent ? "copied" : "received");
			bad |= !ok;
		}
	}
	sent = 1;
	if (argc < 2)
		last = fresh(55);
	exit(bad);
}
