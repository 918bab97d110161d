/*
 * net.c - device memory that an RDMA device reads from or writes to: what stream_device.c needs
 * of the driver.
 *
 * A snapshot is read where it lies. What comes lands in memory of our ring's
 * (gpu_ring_carve()), so that device_memory is the measure of all of it. It is given to one
 * link at a time: as long as that link's queue pair lives, its peer can write there.
 *
 * A few bytes are read by the CPU itself, where that is possible (gpu_ops.h, window): from anything
 * else the driver copies.
 *
 * Lock: gpu_lock.
 */
#include "gpu/net.h"

#include "base/fdtab.h"
#include "base/shim.h"
#include "gpu/hooks.h"
#include "gpu/range.h"
#include "gpu/take.h"
#include "policy/log.h"

#define LANDINGS 16
#define LANDING  (8ull << 20)	/* bytes: more than TCP would take back, mostly */

static struct landing {
	uint64_t link;		/* 0: nobody can write there */
	uint32_t slot;
	bool used;		/* by the slot */
	bool flush;
	bool looked;		/* for a window */
	gpu_ctx ctx;
	gpu_addr base;	/* 0: not made yet */
	const uint8_t *window;	/* or NULL */
} landings[LANDINGS];

/* ---- regions ---- */

void gpu_region_open(struct gpu_region *r)
{
	int mode, fd = -1;

	r->dmabuf = -1;
	gpu->enter(r->ctx, &mode);
	fd_number_lock();
	if (gpu->dmabuf(r->base, r->size, &fd))
		r->dmabuf = fd_moment(fd);
	fd_number_unlock();
	gpu->leave(r->ctx, &mode);
}

void gpu_region_close(struct gpu_region *r)
{
	if (r->dmabuf >= 0)
		fd_internal_close(r->dmabuf);
	r->dmabuf = -1;
}

bool gpu_region_of(const struct gpu_ref *ref, const void *p, struct gpu_region *ret,
		    uint64_t *ret_at)
{
	const struct gpu_range *r = &gpu_ranges[ref->rec];
	const struct gpu_ring *g;
	bool ok;

	if (!gpu_lock_soon())
		return false;
	g = &gpu_rings[r->ring];
	ok = atomic_load(&gpu_path) == GPU_PATH_ON && !gpu_paused && (uintptr_t)p >= r->lo &&
		(uintptr_t)p + ref->len <= r->hi;
	*ret = (struct gpu_region){ g->base, g->all, -1, g->ctx };
	*ret_at = g->base + r->data + ((uintptr_t)p - r->lo);
	lock_give(&gpu_lock);
	return ok;
}

bool gpu_region_read(const struct gpu_ref *ref, uint64_t at, void *to, size_t n)
{
	struct gpu_ring *g = &gpu_rings[gpu_ranges[ref->rec].ring];
	gpu_result r;
	int mode;

	if (atomic_load(&gpu_ended))
		return false;
	gpu->enter(g->ctx, &mode);
	r = gpu->to_host(to, at, n, g->st);
	if (!r)
		r = gpu->wait(g->st);
	gpu->leave(g->ctx, &mode);
	if (r)
		log_line(1, "GPU path: copy of what was sent already: %s error %d", gpu->name,
			 r);
	return !r;
}

/* ---- landing rings ---- */

/* The context is current. False: no RDMA device can write to this GPU so that we could read it. */
static bool orderly(bool *ret_flush)
{
	static bool said;

	if (gpu->lands(ret_flush))
		return true;
	if (!said)
		log_line(2, "GPU path: RDMA devices cannot write to this GPU: bytes from other "
			 "hosts come by host memory");
	said = true;
	return false;
}

/* One of the same link's before a fresh one. gpu_lock held. */
static struct landing *place(uint64_t link, gpu_ctx ctx)
{
	struct landing *best = NULL;

	for (struct landing *l = landings; l < landings + LANDINGS; l++)
		if (!l->used && (l->link == link || !l->link) && (!l->base || l->ctx == ctx) &&
		    (!best || (l->base && !best->base) || (l->link == link && best->link != link)))
			best = l;
	if (!best || best->base)
		return best;
	best->ctx = ctx;
	best->base = gpu_ring_carve(gpu_ring_of(ctx), LANDING);
	return best->base ? best : NULL;
}

static bool windows_over;	/* gpu_lock held */

/* At exit() the driver takes its memory away under a window, and other threads may be reading
 * there: after this none does. */
void gpu_windows_end(void)
{
	bool any = true;

	if (foreign_image())	/* a child that fork() does not know of */
		return;
	for (int naps = 0; any && naps < 1000; naps++) {
		struct timespec nap = { 0, 1000000 };

		lock_take(&gpu_lock);
		windows_over = true;
		any = gpu_reading != 0;
		lock_give(&gpu_lock);
		if (any)
			sys(SYS_nanosleep, &nap, NULL);
	}
}

int gpu_landing_take(uint64_t link, uint32_t slot, struct gpu_region *ret)
{
	gpu_ctx ctx = atomic_load(&gpu_context);
	struct landing *l = NULL;
	bool late;
	int mode;

	if (!ctx || !gpu_allowed() || atomic_load(&gpu_path) != GPU_PATH_ON)
		return -1;
	gpu->enter(ctx, &mode);
	if (orderly(&late)) {
		lock_take(&gpu_lock);
		if (!gpu_paused && gpu_ring_of(ctx) >= 0)
			l = place(link, ctx);
		if (l) {
			l->link = link;
			l->slot = slot;
			l->used = true;
			l->flush = late;
			*ret = (struct gpu_region){ l->base, LANDING, -1, ctx };
		}
		lock_give(&gpu_lock);
	}
	gpu->leave(ctx, &mode);
	if (l && !l->looked)
		l->window = gpu->window(l->base, LANDING);
	if (l)
		l->looked = true;
	return l ? (int)(l - landings) : -1;
}

void gpu_landing_give(uint64_t link, uint32_t slot)
{
	for (struct landing *l = landings; l < landings + LANDINGS; l++)
		if (l->link == link && l->slot == slot)
			l->used = false;
}

void gpu_landings_end(uint64_t link)
{
	for (struct landing *l = landings; l < landings + LANDINGS; l++)
		if (l->link == link) {
			l->used = false;
			l->link = 0;
		}
}

bool gpu_landing_over(void) { return atomic_load(&gpu_path) != GPU_PATH_ON; }

/* What has come is what will be read. */
static bool settle(const struct landing *l)
{
	gpu_result r;
	int mode;

	if (!l->flush)
		return true;
	gpu->enter(l->ctx, &mode);
	r = gpu->flush();
	gpu->leave(l->ctx, &mode);
	return !r;
}

bool gpu_landing_small(int landing, uint64_t pos, void *to, size_t n)
{
	struct landing *l = &landings[landing];
	bool ok;

	if (!l->window || n > GPU_SMALL || !gpu_allowed() || gpu_landing_over())
		return false;
	if (!gpu_lock_soon())
		return false;
	ok = !gpu_paused && !windows_over && !atomic_load(&gpu_ended);
	gpu_reading += ok;	/* the context does not end before */
	lock_give(&gpu_lock);
	if (!ok)
		return false;
	ok = settle(l);
	if (ok)
		gpu->window_read(to, l->window + pos, n);
	atomic_fetch_sub(&gpu_reading, 1);
	return ok;
}

size_t gpu_landing_read(int landing, uint64_t pos, size_t n, const struct iovec *iov, int niov,
			 bool peek)
{
	struct landing *l = &landings[landing];
	size_t room = 0;

	for (int i = 0; i < niov; i++)
		room += iov[i].iov_len;
	if (n > room)
		n = room;
	if (!gpu_allowed() || gpu_landing_over())
		return 0;
	return settle(l) && gpu_take_from(l->ctx, l->base + pos, n, iov, niov, !peek &&
					   n >= GPU_PATH_MIN) ? n : 0;
}
