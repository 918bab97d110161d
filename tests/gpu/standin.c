/*
 * standin.c - a libcuda.so.1 for tests on machines without a GPU: enough of the driver API for
 * copies, in host memory.
 *
 * What matters is that it is as loose as a device: every stream is a thread of its own that
 * works with random delays, so that whoever forgets to wait sees old bytes. Device memory is a
 * shared file, so that other processes can map it by an IPC handle. Pinned memory is mapped
 * twice: "the device" writes through the other mapping, as DMA does, unseen by the page tables;
 * pageable memory is copied by the caller, as the real driver does.
 *
 * STANDIN_QUEUE: so many things a stream takes, then who puts another into it waits;
 * standin_full() says how many do. STANDIN_SEED the seed of the delays; STANDIN_DELAY longest
 * delay in us (200); STANDIN_NO_IPC=1 refuses to map handles; STANDIN_MEM bytes of device memory
 * (1 GiB); STANDIN_STALL=FILE: once, the first wait for a stream after the first handle was
 * mapped makes FILE and lasts until it is gone. STANDIN_RDMA=reach: RDMA devices can use its
 * device memory as if it were the host's; flush: and what they wrote there is to be flushed;
 * refuse: they cannot, though the driver says so. A "function" for cuLaunchKernel is a C
 * function (void **params).
 *
 * While a stream is captured in global mode, calls that a capture forbids spoil it unless their
 * thread's mode is relaxed. The end of a context is the end of its memory and its streams: who
 * uses them later faults or waits for ever. standin_d2d() counts copies between places on
 * devices.
 *
 * Locks: `big` over all tables, then a stream's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, INVALID = 1, NOMEM = 2, NOTINIT = 3, BADHANDLE = 400, NOTFOUND = 500, NOTREADY = 600,
       LOST = 700, CAPTURE = 900, SPOILED = 901 };

#include "standin_streams.h"

/* ---- memory ---- */

#define REGIONS 1024
static struct region {
	char *at, *dma;		/* dma: where "the device" writes */
	size_t size;
	CUcontext ctx;
	bool device, own;
	int fd;
	uint64_t file_off;
} regions[REGIONS];

static struct region *region_of(const void *p)
{
	struct region *f = NULL;

	pthread_mutex_lock(&big);
	for (int i = 0; i < REGIONS && !f; i++)
		if (regions[i].at && (const char *)p >= regions[i].at &&
		    (const char *)p < regions[i].at + regions[i].size)
			f = &regions[i];
	pthread_mutex_unlock(&big);
	return f;
}

static struct region *region_add(char *at, char *dma, size_t size, CUcontext ctx, bool device,
				 bool own, int fd)
{
	struct region *f = NULL;

	pthread_mutex_lock(&big);
	for (int i = 0; i < REGIONS && !f; i++)
		if (!regions[i].at) {
			f = &regions[i];
			*f = (struct region){ at, dma, size, ctx, device, own, fd, 0 };
		}
	pthread_mutex_unlock(&big);
	return f;
}

static void *as_device(const void *p)
{
	struct region *f = region_of(p);

	return f ? f->dma + ((const char *)p - f->at) : (void *)p;
}

void *standin_dma(void *p) { return as_device(p); }

static void copy_op(struct op *o)
{
	size_t half = o->n / 2;

	/* in two steps, so that who looks too early may see a part */
	memcpy(o->dst, o->src, half);
	if (max_delay)
		usleep(max_delay / 8);
	memcpy((char *)o->dst + half, (const char *)o->src + half, o->n - half);
}

static int copy(void *dst, const void *src, size_t n, CUstream st, bool sync)
{
	CUstream s = real_stream(st);
	struct region *to = region_of(dst), *from = region_of(src);
	struct op *o;
	uint64_t t;

	if (!s)
		return inited ? 201 : NOTINIT;
	if (!n)
		return OK;
	if (broken && from && from->device && !(to && to->device))
		return LOST;
	if (to && from && to->device && from->device)
		d2d++;
	if (s->capturing && (!to || !from))
		return CAPTURE;
	if ((to && (char *)dst + n > to->at + to->size) ||
	    (from && (const char *)src + n > from->at + from->size))
		return INVALID;
	if (!to || !from) {	/* pageable: in order with the stream, but by this thread */
		o = op(set_op);
		o->ev = calloc(1, sizeof *o->ev);
		stream_wait(s, submit(s, o));
		memcpy(to ? as_device(dst) : dst, from ? as_device(src) : src, n);
		return OK;
	}
	o = op(copy_op);
	o->dst = as_device(dst);
	o->src = as_device(src);
	o->n = n;
	if (s->capturing) {
		o->next = s->graph;
		s->graph = o;
		return OK;
	}
	t = submit(s, o);
	if (sync && !(to->device && from->device))
		stream_wait(s, t);
	return OK;
}

static void fill_op(struct op *o) { memset(o->dst, o->value, o->n); }

static int fill(void *dst, int v, size_t n, CUstream st)
{
	CUstream s = real_stream(st);
	struct op *o;

	if (!s)
		return NOTINIT;
	o = op(fill_op);
	o->dst = as_device(dst);
	o->value = v;
	o->n = n;
	if (s->capturing) {
		o->next = s->graph;
		s->graph = o;
	} else {
		submit(s, o);
	}
	return OK;
}

#define P(x) ((void *)(uintptr_t)(x))

/* ---- the API ---- */

EXPORT int cuInit(unsigned flags)
{
	const char *e;

	(void)flags;
	if ((e = getenv("STANDIN_QUEUE")))
		queue_max = (unsigned)atoi(e);
	if ((e = getenv("STANDIN_SEED")))
		seed = (unsigned)atoi(e) * 1000 + 1;
	if ((e = getenv("STANDIN_DELAY")))
		max_delay = (unsigned)atoi(e);
	if (!inited)
		atexit(standin_break);
	inited = true;
	return OK;
}

EXPORT int cuDriverGetVersion(int *v) { *v = 13000; return OK; }
EXPORT int cuDeviceGetCount(int *n)
{
	*n = getenv("STANDIN_DEVICES") ? atoi(getenv("STANDIN_DEVICES")) : 2;
	return OK;
}
EXPORT int cuDeviceGet(int *d, int i) { *d = i; return i < 2 ? OK : 101; }

/* Of GPUDirect RDMA: what a GPU says that can be reached, here by its memory's addresses, or
 * that cannot. */
EXPORT int cuDeviceGetAttribute(int *v, int a, int d)
{
	const char *rdma = getenv("STANDIN_RDMA");

	(void)d;
	*v = 0;
	if (rdma && a == 116)		/* supported */
		*v = 1;
	if (rdma && a == 117)		/* may be flushed by the host ... */
		*v = 1;
	if (rdma && a == 118)		/* ... and need not be */
		*v = strcmp(rdma, "flush") ? 100 : 0;
	return OK;
}
static _Atomic uint64_t flushes;
EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	flushes++;
	return target == 0 && scope == 100 ? OK : INVALID;
}
EXPORT int cuMemGetHandleForAddressRange(int *fd, CUdeviceptr p, size_t n, int type,
					 unsigned long long flags)
{
	(void)fd; (void)p; (void)n; (void)type; (void)flags;
	return 801;
}
EXPORT int cuDeviceGetUuid(char *u, int d) { memset(u, 0x40 + d, 16); return OK; }

EXPORT int cuDevicePrimaryCtxRetain(CUcontext *c, int d)
{
	pthread_mutex_lock(&big);
	primary[d].dev = d;
	primary[d].refs++;
	pthread_mutex_unlock(&big);
	if (!primary[d].legacy)
		primary[d].legacy = stream_make(&primary[d], true);
	*c = &primary[d];
	return OK;
}
EXPORT int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active)
{
	*flags = 0;
	*active = primary[d].refs > 0;
	return OK;
}

/* What was asked for is not done any more, and nobody may ask. Its structures stay, so that a
 * late call is a fault of the test. */
static size_t used;
static _Atomic int events_made;
static void end_context(CUcontext c)
{
	for (int i = 0; i < STREAMS; i++) {
		CUstream s = streams[i];

		if (!s || s->ctx != c)
			continue;
		s->dead = s->ending = true;
		pthread_mutex_lock(&s->m);
		pthread_cond_broadcast(&s->c);
		pthread_mutex_unlock(&s->m);
		pthread_join(s->thread, NULL);
		s->asked = s->done + 1;		/* never idle again */
		streams[i] = NULL;
	}
	for (int i = 0; i < REGIONS; i++) {
		struct region *f = &regions[i];

		if (!f->at || f->ctx != c)
			continue;
		munmap(f->at, f->size);
		if (f->dma != f->at)
			munmap(f->dma, f->size);
		if (f->device && f->own)
			used -= f->size;
		if (f->fd >= 0)
			close(f->fd);
		f->at = NULL;
	}
	c->legacy = NULL;
	mine = NULL;
	depth = 0;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int d)
{
	if (!--primary[d].refs)
		end_context(&primary[d]);
	return OK;
}
EXPORT int cuDevicePrimaryCtxReset_v2(int d)
{
	primary[d].refs = 0;
	end_context(&primary[d]);
	return OK;
}

EXPORT int cuCtxCreate_v2(CUcontext *c, unsigned flags, int d)
{
	CUcontext x = calloc(1, sizeof *x);

	(void)flags;
	x->dev = d;
	x->legacy = stream_make(x, true);
	current[depth++] = *c = x;
	return OK;
}
EXPORT int cuCtxDestroy_v2(CUcontext c) { end_context(c); return OK; }
EXPORT int cuCtxGetCurrent(CUcontext *c) { *c = now_current(); return OK; }
EXPORT int cuCtxPushCurrent_v2(CUcontext c)
{
	if (depth == 8)
		return INVALID;
	current[depth++] = c;
	return OK;
}
EXPORT int cuCtxPopCurrent_v2(CUcontext *c)
{
	if (!depth)
		return 201;
	*c = current[--depth];
	return OK;
}
EXPORT int cuCtxSetCurrent(CUcontext c) { depth = c ? 1 : 0; current[0] = c; return OK; }
EXPORT int cuCtxGetDevice(int *d)
{
	if (!now_current())
		return 201;
	*d = now_current()->dev;
	return OK;
}

static void all_streams(CUcontext c)
{
	for (int i = 0; i < STREAMS; i++) {
		CUstream s;

		pthread_mutex_lock(&big);
		s = streams[i] && streams[i]->ctx == c ? streams[i] : NULL;
		pthread_mutex_unlock(&big);
		if (s)
			stream_wait(s, s->asked);
	}
}
EXPORT int cuCtxSynchronize(void)
{
	if (!now_current())
		return 201;
	all_streams(now_current());
	return OK;
}

static size_t memory(void)
{
	const char *e = getenv("STANDIN_MEM");

	return e ? strtoull(e, NULL, 0) : 1ull << 30;
}
EXPORT int cuMemGetInfo_v2(size_t *left, size_t *all)
{
	*left = memory() - used;
	*all = memory();
	return OK;
}

EXPORT int cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
	size_t limit = memory(), size = (n + 0x1fffff) & ~0x1fffffull;
	int fd;
	char *at, *dma;

	if (forbidden())
		return CAPTURE;
	if (!now_current())
		return 201;
	if (!n || used + size > limit)
		return n ? NOMEM : INVALID;
	fd = memfd_create("standin", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size))
		return NOMEM;
	at = dma = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return NOMEM;
	/* nobody else reaches it */
	if (getenv("STANDIN_RDMA") && !strcmp(getenv("STANDIN_RDMA"), "refuse"))
		at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return NOMEM;
	used += size;
	region_add(at, dma, size, now_current(), true, true, fd);
	*p = (uintptr_t)at;
	return OK;
}

EXPORT int cuMemFree_v2(CUdeviceptr p)
{
	struct region *f = region_of(P(p));

	if (!f || !f->device || !f->own)
		return INVALID;
	all_streams(f->ctx);
	munmap(f->at, f->size);
	if (f->dma != f->at)
		munmap(f->dma, f->size);
	close(f->fd);
	used -= f->size;
	f->at = NULL;
	return OK;
}

EXPORT int cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
	size_t size = (n + 4095) & ~4095ull;
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
	     *dma;

	(void)flags;
	if (at == MAP_FAILED)
		return NOMEM;
	dma = mremap(at, 0, size, MREMAP_MAYMOVE);	/* the same pages once more */
	if (dma == MAP_FAILED)
		return NOMEM;
	memset(dma, 0, size);
	region_add(at, dma, size, now_current(), false, true, -1);
	*p = at;
	return OK;
}
EXPORT int cuMemAllocHost_v2(void **p, size_t n) { return cuMemHostAlloc(p, n, 0); }

/* Shared memory of the program's own. */
EXPORT int cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	char *dma = mremap(p, 0, n, MREMAP_MAYMOVE);

	(void)flags;
	if (dma == MAP_FAILED)
		return INVALID;
	region_add(p, dma, n, now_current(), false, false, -1);
	return OK;
}
EXPORT int cuMemHostUnregister(void *p)
{
	struct region *f = region_of(p);

	if (!f || f->device || f->own)
		return INVALID;
	all_streams(f->ctx);
	munmap(f->dma, f->size);
	f->at = NULL;
	return OK;
}

EXPORT int cuMemFreeHost(void *p)
{
	struct region *f = region_of(p);

	if (!f || f->device)
		return INVALID;
	all_streams(f->ctx);
	munmap(f->at, f->size);
	munmap(f->dma, f->size);
	f->at = NULL;
	return OK;
}

EXPORT int cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	struct region *f = region_of(P(p));

	if (!f)
		return NOTFOUND;
	*base = (uintptr_t)f->at;
	*size = f->size;
	return OK;
}

EXPORT int cuPointerGetAttribute(void *v, int a, CUdeviceptr p)
{
	struct region *f = region_of(P(p));

	if (!f)
		return INVALID;
	if (a == 1)
		*(CUcontext *)v = f->ctx;
	else if (a == 2)
		*(unsigned *)v = f->device ? 2 : 1;
	else if (a == 3)
		*(CUdeviceptr *)v = p;
	else if (a == 8)
		*(unsigned *)v = 0;
	else if (a == 9)
		*(int *)v = f->ctx ? f->ctx->dev : 0;
	else
		return INVALID;
	return OK;
}

EXPORT int cuPointerGetAttributes(unsigned n, int *what, void **to, CUdeviceptr p)
{
	for (unsigned i = 0; i < n; i++)
		if (cuPointerGetAttribute(to[i], what[i], p)) {
			if (what[i] == 1 || what[i] == 3)
				*(void **)to[i] = NULL;
			else
				*(unsigned *)to[i] = 0;
		}
	return OK;
}

struct handle { uint64_t magic; int pid, fd; uint64_t size; char rest[40]; };

EXPORT int cuIpcGetMemHandle(struct handle *h, CUdeviceptr p)
{
	struct region *f = region_of(P(p));

	if (!f || !f->device || !f->own)
		return INVALID;
	memset(h, 0, sizeof *h);
	*h = (struct handle){ .magic = 0x5354414e44494e, .pid = getpid(), .fd = f->fd,
			      .size = f->size };
	return OK;
}

static const char *_Atomic stalls;
static bool stalled;

static void stall(void)
{
	const char *file = atomic_exchange(&stalls, NULL);
	int fd = file ? open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	close(fd);
	while (!access(file, F_OK))
		usleep(1000);
}

EXPORT int cuIpcOpenMemHandle_v2(CUdeviceptr *p, struct handle h, unsigned flags)
{
	char path[64], *at;
	int fd;

	(void)flags;
	if (h.magic != 0x5354414e44494e || getenv("STANDIN_NO_IPC") || h.pid == getpid() ||
	    !now_current())
		return BADHANDLE;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return BADHANDLE;
	at = mmap(NULL, h.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return NOMEM;
	region_add(at, at, h.size, now_current(), true, false, -1);
	*p = (uintptr_t)at;
	if (!stalled) {
		stalled = true;
		atomic_store(&stalls, getenv("STANDIN_STALL"));
	}
	return OK;
}

EXPORT int cuIpcCloseMemHandle(CUdeviceptr p)
{
	struct region *f = region_of(P(p));

	if (!f || f->own)
		return INVALID;
	munmap(f->at, f->size);
	f->at = NULL;
	return OK;
}

#include "standin_api.h"

/* ---- cuGetProcAddress ---- */

static void *self(const char *name, const char *suffix)
{
	char full[128];

	snprintf(full, sizeof full, "%s%s", name, suffix);
	return standin_symbol(full);
}

EXPORT int cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
			       int *status)
{
	static const char *const legacy[] = { "_v2", "", NULL }, *const thread[] = { "_v2_ptsz",
		"_v2_ptds", "_ptsz", "_ptds", "_v2", "", NULL };

	*ret = NULL;
	if (!strcmp(name, "cuGetProcAddress"))
		*ret = self(name, version >= 12000 ? "_v2" : "");
	for (const char *const *s = flags & 2 ? thread : legacy; *s && !*ret; s++)
		*ret = self(name, *s);
	if (status)
		*status = *ret ? 0 : 1;
	return *ret ? OK : NOTFOUND;
}

EXPORT int cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, ret, version, flags, NULL);
}

#include "standin_faults.h"
