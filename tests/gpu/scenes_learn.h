/*
 * scenes_learn.h - a part of scenes.c: learning: what is copied with a snapshot, seen by the
 * driver.
 */
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
