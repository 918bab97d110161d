/*
 * test_gpu_net.c - device memory for RDMA devices: what is asked of the driver and in which
 * order, who gets which landing ring, and when nothing is given. The driver is a table that
 * writes down what it is asked; a GPU is what its attributes say.
 *
 * LINK: shim/gpu/net.c shim/cuda/cuda_ops.c shim/cuda/cuda_gdr.c
 */
#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../shim/cuda/cuda_gdr.h"
#include "../../shim/cuda/cuda_hook.h"
#include "../../shim/gpu/hooks.h"
#include "../../shim/gpu/net.h"
#include "../../shim/gpu/range.h"
#include "../../shim/gpu/take.h"
#include "../../shim/base/fdtab.h"

struct cuda_api cu;
const struct gpu_ops *gpu = &cuda_ops;
struct lock gpu_lock, fd_number_word;
struct gpu_range gpu_ranges[RANGES];
struct gpu_ring gpu_rings[RINGS];
_Atomic int gpu_path = GPU_PATH_ON;
_Atomic(gpu_ctx) gpu_context;
bool gpu_paused;
_Atomic int shim_pid;
_Atomic unsigned gpu_reading;
_Atomic bool gpu_ended;
_Thread_local struct thread_signals thread_signals __attribute__((tls_model("initial-exec")));
void critical_done(void) {}
void lock_slow(struct lock *l) { (void)l; ck_abort_msg("locked twice"); }
bool gpu_lock_soon(void)
{
	lock_take(&gpu_lock);
	return true;
}

#define CTX ((CUcontext)0x11)
#define OTHER ((CUcontext)0x12)
#define BASE 0x700000000000ull
#define RING (64ull << 20)
#define CHUNK (8ull << 20)

static char did[256];		/* a letter for each call: P push, p pop, H handle, F flush, D
				 * copy to the host, S wait, T take */
static int attr[256];
static bool allowed, no_handle, no_flush;
static int fd_open, takes_fail, flush_fails;
static CUdeviceptr took_from;
static size_t took;
static bool kept;

static void note(char c)
{
	size_t n = strlen(did);
	ck_assert_uint_lt(n, sizeof did - 1);
	did[n] = c;
}

bool gpu_allowed(void) { return allowed; }
bool cuda_bind(void) { return true; }
bool cuda_hooks_proved(void) { return true; }
int gpu_ring_of(gpu_ctx ctx) { return ctx == CTX ? 0 : ctx == OTHER ? 1 : -1; }
void fd_number_lock(void) { note('('); }
void fd_number_unlock(void) { note(')'); }
int fd_moment(int fd) { return fd + 1000; }
int fd_internal_made(int fd, bool counted) { (void)fd, (void)counted; return -ENOENT; }
bool fd_may_make(void) { return true; }
void fd_internal_close(int fd) { ck_assert_int_eq(fd, 1007); fd_open--; }

/* As range.c: from the end, half of it at most. */
CUdeviceptr gpu_ring_carve(int ring, uint64_t n)
{
	struct gpu_ring *g = &gpu_rings[ring];

	if (g->size - n < g->all / 2)
		return 0;
	g->size -= n;
	return g->base + g->size;
}

bool gpu_take_from(gpu_ctx ctx, CUdeviceptr src, size_t n, const struct iovec *iov, int niov,
		    bool keep)
{
	(void)iov, (void)niov;
	ck_assert_ptr_eq(ctx, CTX);
	note('T');
	took_from = src;
	took = n;
	kept = keep;
	return !takes_fail;
}

static CUresult push(CUcontext c) { (void)c; note('P'); return 0; }
static CUresult pop(CUcontext *c) { (void)c; note('p'); return 0; }
static CUresult mode(int *m) { (void)m; return 0; }
static CUresult device(CUdevice *d) { *d = 3; return 0; }
static CUresult attribute(int *v, int a, CUdevice d)
{
	ck_assert_int_eq(d, 3);
	*v = attr[a];
	return 0;
}
static CUresult d2h(void *to, CUdeviceptr p, size_t n, CUstream st)
{
	(void)to, (void)p, (void)n, (void)st;
	note('D');
	return 0;
}
static CUresult wait_for(CUstream st) { (void)st; note('S'); return 0; }
static CUresult flush_writes(int target, int scope)
{
	note('F');
	ck_assert_int_eq(target, 0);
	ck_assert_int_eq(scope, 100);
	return flush_fails;
}

static CUresult handle(int *fd, CUdeviceptr p, size_t n, int type, unsigned long long flags)
{
	note('H');
	ck_assert_uint_eq(p % 65536, 0);
	ck_assert_uint_eq(n % 65536, 0);
	ck_assert_int_eq(type, 1);
	ck_assert_uint_eq(flags, 0);
	*fd = 7;
	fd_open++;
	return 0;
}

void *cuda_real(const char *name)
{
	if (!strcmp(name, "cuMemGetHandleForAddressRange"))
		return no_handle ? NULL : (void *)handle;
	ck_assert_str_eq(name, "cuFlushGPUDirectRDMAWrites");
	return no_flush ? NULL : (void *)flush_writes;
}

static void begin(void)
{
	cu = (struct cuda_api){ .cuCtxPushCurrent_v2 = push, .cuCtxPopCurrent_v2 = pop,
				.cuThreadExchangeStreamCaptureMode = mode,
		.cuCtxGetDevice = device, .cuDeviceGetAttribute = attribute,
			.cuMemcpyDtoHAsync_v2 = d2h, .cuStreamSynchronize = wait_for };
	memset(gpu_rings, 0, sizeof gpu_rings);
	memset(gpu_ranges, 0, sizeof gpu_ranges);
	for (int i = 0; i < 2; i++)
		gpu_rings[i] = (struct gpu_ring){ .ctx = i ? OTHER : CTX,
						    .base = BASE + (uint64_t)i * 2 * RING,
							    .size = RING, .all = RING };
	gpu_context = CTX;
	allowed = true;
	memset(attr, 0, sizeof attr);
	attr[116] = 1;
	attr[118] = 100;
	attr[124] = 1;
	memset(did, 0, sizeof did);
}

static void end(void)
{
	for (uint64_t link = 1; link < 10; link++)
		gpu_landings_end(link);
	ck_assert_int_eq(fd_open, 0);
	ck_assert(!gpu_lock.v);
}

/* Whoever calls a row does not look whether it is there. */
START_TEST(no_row_is_missing)
{
	const void *row[sizeof(struct gpu_ops) / sizeof(void *)];

	memcpy(row, &cuda_ops, sizeof row);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		ck_assert_msg(row[i] != NULL, "row %zu", i);
}
END_TEST

/* A dma-buf where driver and device have it; its descriptor is among ours, and only for the
 * moment. */
START_TEST(dma_buf)
{
	struct gpu_region r = { BASE, RING, -1, CTX };

	gpu_region_open(&r);
	ck_assert_int_eq(r.dmabuf, 1007);
	ck_assert_str_eq(did, "P(H)p");
	gpu_region_close(&r);
	ck_assert_int_eq(r.dmabuf, -1);
	attr[124] = 0;
	gpu_region_open(&r);
	ck_assert_int_eq(r.dmabuf, -1);
	attr[124] = 1;
	no_handle = true;
	gpu_region_open(&r);
	ck_assert_int_eq(r.dmabuf, -1);
	gpu_region_close(&r);
}
END_TEST

/* A landing ring is one link's until its queue pair has gone; within it, one slot's at a time. */
START_TEST(whose)
{
	struct gpu_region a, b, c;
	int x, y, n;

	x = gpu_landing_take(1, 5, &a);
	y = gpu_landing_take(1, 6, &b);
	ck_assert_int_ge(x, 0);
	ck_assert_int_ge(y, 0);
	ck_assert_uint_ne(a.base, b.base);
	ck_assert_uint_eq(a.size, CHUNK);
	ck_assert_uint_eq(a.size & (a.size - 1), 0);
	ck_assert_uint_ge(a.base, BASE + RING / 2);
	ck_assert_uint_le(a.base + a.size, BASE + RING);
	gpu_landing_give(2, 5);			/* another's */
	ck_assert_int_ne(gpu_landing_take(1, 7, &c), x);
	gpu_landing_give(1, 5);
	ck_assert_int_ne(gpu_landing_take(2, 5, &c), x);	/* link 1 can still write there */
	ck_assert_int_eq(gpu_landing_take(1, 9, &c), x);
	ck_assert_uint_eq(c.base, a.base);
	for (n = 4; gpu_landing_take(3, (uint32_t)n, &c) >= 0; n++)
		;
	ck_assert_int_eq(n, 4);				/* half of the ring's memory is for
							 * snapshots */
	gpu_landings_end(1);
	ck_assert_int_eq(gpu_landing_take(3, 5, &c), x);	/* nobody else can by now */
	gpu_context = OTHER;
	ck_assert_int_ge(y = gpu_landing_take(3, 6, &c), 0);
	ck_assert_uint_ge(c.base, BASE + 2 * RING);	/* the other device's */
}
END_TEST

/* What a GPU must say to be written to. */
static const struct {
	int supported, ordering, options;
	bool no_symbol;
	bool taken, flushed;
} gpus[] = {
	{ 1, 100, 0, false, true, false }, { 1, 200, 0, false, true, false },
	{ 1, 0, 1, false, true, true },	   { 1, 0, 0, false, false, false },
	{ 1, 0, 2, false, false, false },  { 0, 100, 1, false, false, false },
	{ 1, 0, 1, true, false, false },   { 1, 100, 0, true, true, false },
};

START_TEST(order)
{
	char buf[64];
	struct iovec v = { buf, sizeof buf };
	struct gpu_region r;
	int n;

	attr[116] = gpus[_i].supported;
	attr[118] = gpus[_i].ordering;
	attr[117] = gpus[_i].options;
	no_flush = gpus[_i].no_symbol;
	n = gpu_landing_take(1, 1, &r);
	ck_assert_int_eq(n >= 0, gpus[_i].taken);
	if (n < 0)
		return;
	memset(did, 0, sizeof did);
	ck_assert_uint_eq(gpu_landing_read(n, 4096, sizeof buf, &v, 1, false), sizeof buf);
	ck_assert_str_eq(did, gpus[_i].flushed ? "PFpT" : "T");	/* flushed first, each time */
	ck_assert_uint_eq(took_from, r.base + 4096);
	ck_assert_uint_eq(gpu_landing_read(n, 0, sizeof buf, &v, 1, false), sizeof buf);
	ck_assert_str_eq(did, gpus[_i].flushed ? "PFpTPFpT" : "TT");
	flush_fails = 999;
	ck_assert_uint_eq(gpu_landing_read(n, 0, sizeof buf, &v, 1, false),
			  gpus[_i].flushed ? 0 : sizeof buf);
	flush_fails = 0;
}
END_TEST

/* No more than the buffers hold; kept for a copy to a device only if it is worth it and not
 * shown twice; nothing from a GPU path that is off. */
START_TEST(reads)
{
	static char buf[2 * GPU_PATH_MIN];
	struct iovec v[2] = { { buf, 100 }, { buf + 100, GPU_PATH_MIN } };
	struct gpu_region r;
	int n = gpu_landing_take(1, 1, &r);

	ck_assert_int_ge(n, 0);
	ck_assert_uint_eq(gpu_landing_read(n, 0, 1 << 20, v, 2, false), GPU_PATH_MIN + 100);
	ck_assert_uint_eq(took, GPU_PATH_MIN + 100);
	ck_assert(kept);
	gpu_landing_read(n, 0, 1 << 20, v, 1, false);
	ck_assert_uint_eq(took, 100);
	ck_assert(!kept);
	gpu_landing_read(n, 0, 1 << 20, v, 2, true);
	ck_assert(!kept);
	takes_fail = 1;
	ck_assert_uint_eq(gpu_landing_read(n, 0, 100, v, 2, false), 0);
	takes_fail = 0;
	allowed = false;
	ck_assert_uint_eq(gpu_landing_read(n, 0, 100, v, 2, false), 0);
	ck_assert_int_eq(gpu_landing_take(1, 2, &r), -1);
	allowed = true;
	gpu_path = GPU_PATH_OFF;
	ck_assert_uint_eq(gpu_landing_read(n, 0, 100, v, 2, false), 0);
	ck_assert_int_eq(gpu_landing_take(1, 2, &r), -1);
	gpu_path = GPU_PATH_ON;
	gpu_context = NULL;
	ck_assert_int_eq(gpu_landing_take(1, 2, &r), -1);
}
END_TEST

/* Where the snapshot of a byte is; none once it is another buffer's, or the GPU path is at its
 * end. What is held is read with its own context. */
START_TEST(snapshots)
{
	static char buf[1000];
	struct gpu_ref ref = { .rec = 4, .len = 600 };
	struct gpu_region r;
	uint64_t at;

	gpu_ranges[4] = (struct gpu_range){ .state = RANGE_LIVE, .ring = 0, .lo = (uintptr_t)buf,
					    .hi = (uintptr_t)buf + 1000, .data = 8192 };
	ck_assert(gpu_region_of(&ref, buf + 300, &r, &at));
	ck_assert_uint_eq(at, BASE + 8192 + 300);
	ck_assert_uint_eq(r.base, BASE);
	ck_assert_uint_eq(r.size, RING);
	ck_assert(!gpu_region_of(&ref, buf + 401, &r, &at));
	gpu_paused = true;
	ck_assert(!gpu_region_of(&ref, buf, &r, &at));
	gpu_paused = false;
	ck_assert(gpu_region_read(&ref, at, buf, 10));
	ck_assert_str_eq(did, "PDSp");
	gpu_ended = true;
	ck_assert(!gpu_region_read(&ref, at, buf, 10));
	ck_assert_str_eq(did, "PDSp");		/* not asked */
	gpu_ended = false;
	gpu_ranges[4].hi = 0;
	ck_assert(!gpu_region_of(&ref, buf, &r, &at));
}
END_TEST

/* A machine with GDRCopy's module, as its header says. */
static struct {
	long open, version, pin, map;
	unsigned module, least;
	int opened, closed;
	uint8_t *window;
} gdr;

static long gdr_open(const char *path)
{
	ck_assert_str_eq(path, "/dev/gdrdrv");
	ck_assert(!gpu_lock.v);		/* it may take its time */
	gdr.opened += gdr.open >= 0;
	return gdr.open;
}

static long gdr_ioctl(int fd, unsigned long what, void *arg)
{
	struct { uint64_t addr, size, token; uint32_t space; uint64_t handle; } *pin = arg;
	uint32_t *v = arg;

	ck_assert_int_eq(fd, gdr.open);
	if (what == 0xc008daff) {	/* _IOWR(0xDA, 255, a pointer) */
		v[0] = gdr.module;
		v[1] = gdr.least;
		return gdr.version;
	}
	ck_assert_uint_eq(what, 0xc028da01);	/* _IOWR(0xDA, 1, 40 bytes) */
	ck_assert_uint_eq(sizeof *pin, 40);
	ck_assert_uint_eq(pin->addr % 65536, 0);
	ck_assert_uint_eq(pin->size, CHUNK);
	ck_assert_uint_eq(pin->token, 0);
	ck_assert_uint_eq(pin->space, 0);
	pin->handle = 0x123;
	return gdr.pin;
}

static long gdr_map(int fd, size_t n, uint64_t off)
{
	ck_assert_int_eq(fd, gdr.open);
	ck_assert_uint_eq(n, CHUNK);
	ck_assert_uint_eq(off, 0x123000);
	return gdr.map ? gdr.map : (long)gdr.window;
}

static void gdr_close(int fd) { ck_assert_int_eq(fd, gdr.open); gdr.closed++; }

static void gdr_begin(void)
{
	cuda_gdr_calls = (struct gdr_calls){ gdr_open, gdr_ioctl, gdr_map, gdr_close };
	memset(&gdr, 0, sizeof gdr);
	gdr.open = 1009;
	gdr.module = 2 << 16 | 4;
	gdr.least = 2 << 16;
	gdr.window = aligned_alloc(65536, CHUNK);
	for (size_t i = 0; i < CHUNK; i++)
		gdr.window[i] = (uint8_t)(i * 7 ^ i >> 8);
}

/* Through the window: the right bytes at every place and length, none beside them, what has come
 * is flushed, and the driver copies nothing. */
START_TEST(window)
{
	static uint8_t to[GPU_SMALL + 32];
	struct gpu_region r;
	int n;

	gdr_begin();
	attr[118] = 0;
	attr[117] = 1;
	n = gpu_landing_take(1, 1, &r);
	ck_assert_int_ge(n, 0);
	ck_assert_int_eq(gdr.opened, 1);
	ck_assert_int_eq(gdr.closed, 1);
	for (size_t at = 0; at < 40; at++)
		for (size_t len = 0; len <= GPU_SMALL; len += len < 70 ? 1 : 211) {
			size_t pos = at < 20 ? at : CHUNK - GPU_SMALL + at - 39;

			if (pos + len > CHUNK)
				continue;
			memset(to, 0xee, sizeof to);
			memset(did, 0, sizeof did);
			ck_assert(gpu_landing_small(n, pos, to + 1, len));
			ck_assert_str_eq(did, "PFp");
			ck_assert_int_eq(memcmp(to + 1, gdr.window + pos, len), 0);
			ck_assert_int_eq(to[0], 0xee);
			ck_assert_int_eq(to[len + 1], 0xee);
			ck_assert_uint_eq(gpu_reading, 0);
		}
	ck_assert(!gpu_landing_small(n, 0, to, GPU_SMALL + 1));
	flush_fails = 999;
	ck_assert(!gpu_landing_small(n, 0, to, 8));
	flush_fails = 0;
	memset(did, 0, sizeof did);
	gpu_paused = true;
	ck_assert(!gpu_landing_small(n, 0, to, 8));
	gpu_paused = false;
	gpu_ended = true;
	ck_assert(!gpu_landing_small(n, 0, to, 8));
	gpu_ended = false;
	allowed = false;
	ck_assert(!gpu_landing_small(n, 0, to, 8));
	allowed = true;
	gpu_path = GPU_PATH_OFF;
	ck_assert(!gpu_landing_small(n, 0, to, 8));
	gpu_path = GPU_PATH_ON;
	ck_assert_str_eq(did, "");
	ck_assert_uint_eq(gpu_reading, 0);
	gpu_landing_give(1, 1);
	ck_assert_int_eq(gpu_landing_take(1, 2, &r), n);
	ck_assert_int_eq(gdr.opened, 1);	/* as before */
	ck_assert(gpu_landing_small(n, 0, to, 8));
	gpu_windows_end();	/* in another process: not ours to end */
	ck_assert(gpu_landing_small(n, 0, to, 8));
	shim_pid = getpid();
	gpu_windows_end();
	ck_assert(!gpu_landing_small(n, 0, to, 8));
}
END_TEST

/* Each step that may fail: no window, nothing left open, and not asked again. */
static const struct { long open, version, pin, map; unsigned module, least; } no_window[] = {
	{ -ENOENT, 0, 0, 0, 2 << 16, 2 << 16 }, { 1009, -EINVAL, 0, 0, 2 << 16, 2 << 16 },
		{ 1009, 0, -EINVAL, 0, 2 << 16, 2 << 16 },
	{ 1009, 0, 0, -EPERM, 2 << 16, 2 << 16 }, { 1009, 0, 0, 0, 1 << 16, 1 << 16 },
		{ 1009, 0, 0, 0, 3 << 16, 2 << 16 }, { 1009, 0, 0, 0, 2 << 16, 3 << 16 },
};

START_TEST(windowless)
{
	struct gpu_region r;
	uint8_t to[8];
	int n;

	gdr_begin();
	gdr.open = no_window[_i].open;
	gdr.version = no_window[_i].version;
	gdr.pin = no_window[_i].pin;
	gdr.map = no_window[_i].map;
	gdr.module = no_window[_i].module;
	gdr.least = no_window[_i].least;
	n = gpu_landing_take(1, 1, &r);
	ck_assert_int_ge(n, 0);
	ck_assert(!gpu_landing_small(n, 0, to, 8));
	if (!arch_can_stream_read())	/* then nobody tries */
		return;
	ck_assert_int_eq(gdr.opened, gdr.closed);
	gdr.open = -ENOENT;
	gpu_landing_give(1, 1);
	ck_assert_int_eq(gpu_landing_take(1, 2, &r), n);
	ck_assert_int_eq(gdr.opened, no_window[_i].open >= 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_net");
	TCase *t = tcase_create("cuda_net");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, no_row_is_missing);
	tcase_add_test(t, dma_buf);
	tcase_add_test(t, whose);
	tcase_add_loop_test(t, order, 0, (int)(sizeof gpus / sizeof gpus[0]));
	tcase_add_test(t, reads);
	tcase_add_test(t, snapshots);
	tcase_add_test(t, window);
	tcase_add_loop_test(t, windowless, 0, (int)(sizeof no_window / sizeof no_window[0]));
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
