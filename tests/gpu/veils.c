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
static int deferring, helper_in, helper_out;
static CUdeviceptr dev, dev2;
static CUstream a, b;
static char *sink, *back;

#include "far_end.h"

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
		transfer(sink, p, N);
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
		transfer(sink, p, N);
		copied(p, N, v);
	} else {
		CK(d.cuMemcpyHtoD(dev2, p, N));
		copied(from, N, v);
		transfer(p, from, N);
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
		transfer(p, from, N);
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
	transfer(sink, p, N);
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

#include "veils_driver.h"

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
		copied(from, N, 49), transfer(p, from, N);
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
