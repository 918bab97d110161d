/*
 * cuda_net.c - device memory that an RDMA device reads from or writes to: what stream_device.c needs of the driver.
 *
 * A snapshot is read where it lies. What comes lands in memory of our ring's (cuda_ring_carve()), so that device_memory is the measure of all of it. It is
 * given to one link at a time: as long as that link's queue pair lives, its peer can write there.
 *
 * An RDMA device reaches device memory by a dma-buf (cuMemGetHandleForAddressRange() and ibv_reg_dmabuf_mr(3)), or by its address, where nvidia-peermem tells
 * the kernel's verbs what that is. Before Hopper and without an option of the driver's, a GPU may show a reader what came by PCIe out of order: then
 * cuFlushGPUDirectRDMAWrites() puts that right (CUDA driver API, "GPUDirect RDMA").
 *
 * A few bytes are read by the CPU itself, where that is possible (cuda_gdr.h): from anything else the driver copies.
 *
 * Lock: cuda_lock.
 */
#include "gpu/cuda_int.h"

#include "base/fdtab.h"
#include "base/shim.h"
#include "gpu/cuda_gdr.h"
#include "policy/log.h"

#define LANDINGS 16
#define LANDING  (8ull << 20)	/* bytes: more than TCP would take back, mostly */

enum {	/* CUdevice_attribute, and what the driver says there */
	RDMA_SUPPORTED = 116, FLUSH_OPTIONS = 117, WRITES_ORDERING = 118, DMA_BUF_SUPPORTED = 124,
	FLUSH_BY_HOST = 1, ORDERED_FOR_OWNER = 100,
};
#define FLUSH_THIS_CONTEXT 0	/* CUflushGPUDirectRDMAWritesTarget */
#define FLUSH_FOR_OWNER    100	/* CUflushGPUDirectRDMAWritesScope */
#define RANGE_DMA_BUF      1	/* CUmemRangeHandleType */

static struct landing {
	uint64_t link;		/* 0: nobody can write there */
	uint32_t slot;
	bool used;		/* by the slot */
	bool flush;
	bool looked;		/* for a window */
	CUcontext ctx;
	CUdeviceptr base;	/* 0: not made yet */
	const uint8_t *window;	/* cuda_gdr.h, or NULL */
} landings[LANDINGS];

static CUresult (*flush)(int target, int scope);

static int attribute(int which)
{
	CUdevice dev;
	int v = 0;

	return cu.cuCtxGetDevice(&dev) || cu.cuDeviceGetAttribute(&v, which, dev) ? 0 : v;
}

/* ---- regions ---- */

void cuda_region_open(struct cuda_region *r)
{
	CUresult (*handle)(int *, CUdeviceptr, size_t, int, unsigned long long);
	int mode, fd = -1;

	r->dmabuf = -1;
	*(void **)&handle = cuda_real("cuMemGetHandleForAddressRange");
	if (!handle)
		return;
	cuda_enter(r->ctx, &mode);
	fd_brief_lock();
	if (attribute(DMA_BUF_SUPPORTED) && !handle(&fd, r->base, r->size, RANGE_DMA_BUF, 0))
		r->dmabuf = fd_moment(fd);
	fd_brief_unlock();
	cuda_leave(r->ctx, &mode);
}

void cuda_region_close(struct cuda_region *r)
{
	if (r->dmabuf >= 0)
		fd_internal_close(r->dmabuf);
	r->dmabuf = -1;
}

bool cuda_region_of(const struct cuda_ref *ref, const void *p, struct cuda_region *ret, uint64_t *ret_at)
{
	const struct cuda_rec *r = &cuda_recs[ref->rec];
	const struct cuda_ring *g;
	bool ok;

	if (!cuda_lock_soon())
		return false;
	g = &cuda_rings[r->ring];
	ok = atomic_load(&cuda_lane) == LANE_ON && !cuda_paused && (uintptr_t)p >= r->lo && (uintptr_t)p + ref->len <= r->hi;
	*ret = (struct cuda_region){ g->base, g->all, -1, g->ctx };
	*ret_at = g->base + r->data + ((uintptr_t)p - r->lo);
	lock_give(&cuda_lock);
	return ok;
}

bool cuda_region_read(const struct cuda_ref *ref, uint64_t at, void *to, size_t n)
{
	struct cuda_ring *g = &cuda_rings[cuda_recs[ref->rec].ring];
	CUresult r;
	int mode;

	if (atomic_load(&cuda_ended))
		return false;
	cuda_enter(g->ctx, &mode);
	r = cu.cuMemcpyDtoHAsync_v2(to, at, n, g->st);
	if (!r)
		r = cu.cuStreamSynchronize(g->st);
	cuda_leave(g->ctx, &mode);
	if (r)
		log_line(1, "device lane: copy of what was sent already: CUDA error %d", r);
	return !r;
}

/* ---- landing rings ---- */

/* The context is current. False: no RDMA device can write to this GPU so that we could read it. */
static bool orderly(bool *ret_flush)
{
	static bool said;

	*ret_flush = attribute(WRITES_ORDERING) < ORDERED_FOR_OWNER;
	if (*ret_flush && attribute(FLUSH_OPTIONS) & FLUSH_BY_HOST && !flush)
		*(void **)&flush = cuda_real("cuFlushGPUDirectRDMAWrites");
	if (attribute(RDMA_SUPPORTED) && (!*ret_flush || (flush && attribute(FLUSH_OPTIONS) & FLUSH_BY_HOST)))
		return true;
	if (!said)
		log_line(2, "device lane: RDMA devices cannot write to this GPU: bytes from other hosts come by host memory");
	said = true;
	return false;
}

/* One of the same link's before a fresh one. cuda_lock held. */
static struct landing *place(uint64_t link, CUcontext ctx)
{
	struct landing *best = NULL;

	for (struct landing *l = landings; l < landings + LANDINGS; l++)
		if (!l->used && (l->link == link || !l->link) && (!l->base || l->ctx == ctx) &&
		    (!best || (l->base && !best->base) || (l->link == link && best->link != link)))
			best = l;
	if (!best || best->base)
		return best;
	best->ctx = ctx;
	best->base = cuda_ring_carve(cuda_ring_of(ctx), LANDING);
	return best->base ? best : NULL;
}

static bool windows_over;	/* cuda_lock held */

/* At exit() the driver takes its memory away under a window, and other threads may be reading there: after this none does. */
void cuda_windows_end(void)
{
	bool any = true;

	if (foreign_image())	/* a child that fork() does not know of */
		return;
	for (int naps = 0; any && naps < 1000; naps++) {
		struct timespec nap = { 0, 1000000 };

		lock_take(&cuda_lock);
		windows_over = true;
		any = cuda_reading != 0;
		lock_give(&cuda_lock);
		if (any)
			sys(SYS_nanosleep, &nap, NULL);
	}
}

int cuda_landing_take(uint64_t link, uint32_t slot, struct cuda_region *ret)
{
	CUcontext ctx = atomic_load(&cuda_ctx);
	struct landing *l = NULL;
	bool late;
	int mode;

	if (!ctx || !cuda_allowed() || atomic_load(&cuda_lane) != LANE_ON)
		return -1;
	cuda_enter(ctx, &mode);
	if (orderly(&late)) {
		lock_take(&cuda_lock);
		if (!cuda_paused && cuda_ring_of(ctx) >= 0)
			l = place(link, ctx);
		if (l) {
			l->link = link;
			l->slot = slot;
			l->used = true;
			l->flush = late;
			*ret = (struct cuda_region){ l->base, LANDING, -1, ctx };
		}
		lock_give(&cuda_lock);
	}
	cuda_leave(ctx, &mode);
	if (l && !l->looked)
		l->window = cuda_gdr_map(l->base, LANDING);
	if (l)
		l->looked = true;
	return l ? (int)(l - landings) : -1;
}

void cuda_landing_give(uint64_t link, uint32_t slot)
{
	for (struct landing *l = landings; l < landings + LANDINGS; l++)
		if (l->link == link && l->slot == slot)
			l->used = false;
}

void cuda_landings_end(uint64_t link)
{
	for (struct landing *l = landings; l < landings + LANDINGS; l++)
		if (l->link == link) {
			l->used = false;
			l->link = 0;
		}
}

bool cuda_landing_over(void) { return atomic_load(&cuda_lane) != LANE_ON; }

/* What has come is what will be read. */
static bool settle(const struct landing *l)
{
	CUresult r;
	int mode;

	if (!l->flush)
		return true;
	cuda_enter(l->ctx, &mode);
	r = flush(FLUSH_THIS_CONTEXT, FLUSH_FOR_OWNER);
	cuda_leave(l->ctx, &mode);
	return !r;
}

bool cuda_landing_small(int landing, uint64_t pos, void *to, size_t n)
{
	struct landing *l = &landings[landing];
	bool ok;

	if (!l->window || n > GDR_MOST || !cuda_allowed() || cuda_landing_over())
		return false;
	if (!cuda_lock_soon())
		return false;
	ok = !cuda_paused && !windows_over && !atomic_load(&cuda_ended);
	cuda_reading += ok;	/* the context does not end before */
	lock_give(&cuda_lock);
	if (!ok)
		return false;
	ok = settle(l);
	if (ok)
		cuda_gdr_read(to, l->window + pos, n);
	atomic_fetch_sub(&cuda_reading, 1);
	return ok;
}

size_t cuda_landing_read(int landing, uint64_t pos, size_t n, const struct iovec *iov, int niov, bool peek)
{
	struct landing *l = &landings[landing];
	size_t room = 0;

	for (int i = 0; i < niov; i++)
		room += iov[i].iov_len;
	if (n > room)
		n = room;
	if (!cuda_allowed() || cuda_landing_over())
		return 0;
	return settle(l) && cuda_take_from(l->ctx, l->base + pos, n, iov, niov, !peek && n >= LANE_MIN) ? n : 0;
}
