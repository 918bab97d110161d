/*
 * defer.c - which copies to pinned memory are put off until somebody looks, and the two ways
 * there: a copy to the host, and what a peer sent (docs/gpu.md, the lazy GPU path). The pages
 * are in veil.c.
 *
 * A deferred copy is complete when the program's call returns: its bytes are in the ring, for
 * good. So whoever looks later waits for a copy of ours only, never for something that the
 * program does afterwards. Bytes beside the whole pages, at both ends, are copied at once.
 *
 * Lock: gpu_lock, not held while the device is waited for: what is in use has a pin.
 */
#include "deferred/defer.h"

#include "base/shim.h"
#include "deferred/veil.h"
#include "gpu/hooks.h"
#include "gpu/learn.h"
#include "gpu/range.h"
#include "gpu/track.h"

#define PAGE arch_page()
#define COPY_FIRST_NS 200000	/* a stream may take to come to the copy; and to make it: */
#define COPY_PER_NS   300	/* bytes */
#define COPY_FORCED_NS 50000000

static uintptr_t first_page(uintptr_t lo) { return (lo + PAGE - 1) & ~(PAGE - 1); }
static uintptr_t end_page(uintptr_t hi) { return hi & ~(PAGE - 1); }

static bool deferring(void) { return shim_tunables()->device == 2 && gpu_track_guards(); }

/* The driver is asked once for each place, until memory is given back to it. gpu_lock held. */
static struct { uintptr_t lo, hi; uint64_t gen; } seen[16];

static unsigned slot(uintptr_t lo) { return (unsigned)(lo >> 16 ^ lo >> 12) % 16; }

static bool pinned_before(uintptr_t lo, size_t n)
{
	unsigned at = slot(lo);

	return seen[at].gen == atomic_load(&gpu_pins_gen) + 1 && seen[at].lo <= lo &&
		lo + n <= seen[at].hi;
}

static bool plain_pinned(uintptr_t lo, size_t n)
{
	uint64_t gen = atomic_load(&gpu_pins_gen) + 1;
	unsigned at = slot(lo);

	if (pinned_before(lo, n))
		return true;
	if (!gpu->plain_pinned(lo) || !gpu->plain_pinned(lo + n - 1))
		return false;
	seen[at].lo = lo;
	seen[at].hi = lo + n;
	seen[at].gen = gen;
	return true;
}

static bool may_defer(const struct gpu_range *r, uintptr_t lo, size_t n)
{
	return deferring() && r->device_writable &&
	       first_page(lo) + GPU_PATH_MIN <= end_page(lo + n) && plain_pinned(lo, n) &&
	       gpu_site_may_defer(lo, r->rx) && gpu_track_alone_lately(lo, lo + n);
}

/* What lies beside the whole pages, from the ring, which has it from `off` on. Others' bytes on
 * these pages come first. */
static gpu_result copy_edges(const struct gpu_ring *g, uintptr_t lo, size_t n, uint64_t off,
			     gpu_stream st)
{
	uintptr_t from = first_page(lo), to = end_page(lo + n), hi = lo + n;
	gpu_result r = 0;

	if (lo < from)
		r = gpu_veil_fill(lo, from - lo);
	if (!r && to < hi)
		r = gpu_veil_fill(to, hi - to);
	if (!r && lo < from)
		r = gpu->to_host((void *)lo, g->base + off, from - lo, st);
	if (!r && to < hi)
		r = gpu->to_host((void *)to, g->base + off + (to - lo), hi - to, st);
	return r;
}

/* The record, which is ours alone, becomes that of a veiled buffer; or stays as it was. */
static bool veil(struct gpu_range *r, uintptr_t lo, size_t n, uint64_t off)
{
	uintptr_t from = first_page(lo), to = end_page(lo + n);

	if (!veil_put(r, from, to, off + (from - lo)))
		return false;
	gpu_site_put_off(lo, r->rx);
	r->veiled = true;
	range_live(r, lo, lo + n, off);
	return true;
}

/* The edges first: their watch begins before they are written. */
static bool watch_edges(struct gpu_range *r, uintptr_t lo, size_t n)
{
	uintptr_t from = first_page(lo), to = end_page(lo + n);

	return (lo == from || range_watch(r, lo, from)) &&
		(to == lo + n || range_watch(r, to, lo + n));
}

static bool comes_in_time(struct gpu_range *r, const struct gpu_copy *c)
{
	uint64_t until = now_ns() + (shim_tunables()->force_defer ? COPY_FORCED_NS
				     : COPY_FIRST_NS) + c->n / COPY_PER_NS;
	enum gpu_state e;

	if (c->sync)
		return !gpu->wait(c->st);
	while ((e = gpu->event(r->ev)) == GPU_UNDER_WAY && now_ns() < until)
		arch_pause();
	return e == GPU_ENDED;
}

static bool defer_copy(struct gpu_copy *c, uintptr_t lo, size_t n)
{
	struct gpu_range *r = c->range;
	uint64_t turn = 0;
	bool ok;
	int mode;

	r->veiled = false;
	gpu->enter(NULL, &mode);
	lock_take(&gpu_lock);
	ok = watch_edges(r, lo, n);
	lock_give(&gpu_lock);
	ok = ok && !copy_edges(&gpu_rings[r->ring], lo, n, r->off, c->st) &&
		range_record(r, c->st, &turn);
	lock_take(&gpu_lock);
	if (ok)
		range_marked(r, c->st, turn);
	lock_give(&gpu_lock);
	if (ok)
		ok = comes_in_time(r, c);
	gpu->leave(NULL, &mode);
	lock_take(&gpu_lock);
	if (ok)
		r->done = true;
	else
		gpu_site_deferred(lo, false, false);
	ok = ok && r->hi && veil(r, lo, n, r->off);
	if (!ok && r->hi && !range_watch(r, lo, lo + n))	/* the copy is made after all */
		r->lo = r->hi = 0;
	lock_give(&gpu_lock);
	return ok;
}

static bool defer_take(struct gpu_range *r, uintptr_t lo, size_t n, uint64_t off, gpu_stream st)
{
	bool ok;

	lock_take(&gpu_lock);
	ok = watch_edges(r, lo, n) && !copy_edges(&gpu_rings[r->ring], lo, n, off, st);
	lock_give(&gpu_lock);
	if (ok && (first_page(lo) != lo || end_page(lo + n) != lo + n))
		ok = !gpu->wait(st);
	lock_take(&gpu_lock);
	ok = ok && veil(r, lo, n, off);
	lock_give(&gpu_lock);
	return ok;
}

static void ended(const struct gpu_range *r)
{
	uint64_t touched = atomic_load(&r->touched);

	gpu_site_deferred(r->lo, r->rx, touched * 4 <= r->hi - r->lo);
}

void deferred_begin(void)
{
	static const struct deferred_ops ops = {
		.open = veils_open, .end = veils_end, .after_fork = veils_after_fork,
		.pinned_before = pinned_before, .may = may_defer, .ended = ended,
		.copy = defer_copy, .take = defer_take,
		.fill = veils_fill, .leave_room = veils_leave_room, .forget = veils_forget,
		.at = veils_at,
	};

	deferred_serve(&ops);
}
