/*
 * range.c - see range.h. Which copies get a snapshot, and what a send does with it: send.c.
 *
 * Room is given out in turn; what is held (a pin, a copy that is not complete, a peer that may
 * still read) is stepped over. A range ends when it is written, or when its room is needed.
 */
#include "gpu/range.h"

#include "base/shim.h"
#include "base/sys.h"
#include "gpu/busy.h"
#include "gpu/deferred.h"
#include "gpu/hooks.h"
#include "gpu/learn.h"
#include "gpu/track.h"
#include "policy/log.h"

struct gpu_range gpu_ranges[RANGES];
struct gpu_ring gpu_rings[RINGS];

/* ---- rings ---- */

static bool ring_make(struct gpu_ring *g, gpu_ctx ctx)
{
	size_t left;

	*g = (struct gpu_ring){ .ctx = ctx, .bad = true };
	if (!gpu->left(&left))
		return false;
	for (g->size = shim_tunables()->device_memory & ~0xfffffull; ; g->size /= 2) {
		if (g->size < 4 * GPU_PATH_MIN)
			return false;
		if (g->size > left / 8)		/* the program will want more, too */
			continue;
		if (!gpu->alloc(&g->base, g->size))
			break;
	}
	g->shared = !gpu->share(g->ipc, g->base);
	if (!gpu->device(&g->dev) || gpu->stream_new(&g->st) ||
	    (gpu_track_guards() && gpu->stream_new(&g->fill)) ||
	    sys(SYS_getrandom, &g->id, sizeof g->id, 0) != sizeof g->id) {
		gpu->free(g->base);
		return false;
	}
	g->all = g->size;
	g->bad = false;
	log_line(3, "GPU path: %lu bytes of device memory, %sshared", (unsigned long)g->size,
		 g->shared ? "" : "not ");
	return true;
}

int gpu_ring_of(gpu_ctx ctx)
{
	int i;

	for (i = 0; i < RINGS && gpu_rings[i].ctx && gpu_rings[i].ctx != ctx; i++)
		;
	if (i == RINGS)
		return -1;
	if (!gpu_rings[i].ctx && !ring_make(&gpu_rings[i], ctx))
		log_line(2, "GPU path: no device memory for snapshots");
	return gpu_rings[i].bad ? -1 : i;
}

bool gpu_device_writes(int ring, uintptr_t lo, size_t n)
{
	return gpu_rings[ring].dev.all_memory || deferred->pinned_before(lo, n) ||
	       gpu->pointer(lo).known || gpu->pointer(lo + n - 1).known;
}

/* ---- ranges ---- */

/* More was written than the use makes up for. */
#define PRICE 4
static bool harmful(const struct gpu_range *r)
{
	return r->state == RANGE_LIVE && gpu_track_written(r->lo, r->hi,
							    GPU_PATH_MIN + r->used / PRICE);
}

static void is_over(struct gpu_range *r, enum outcome outcome)
{
	gpu_learn(r, outcome);
	if (r->veiled)
		deferred->ended(r);
	if (!r->rx && r->used < r->bytes)
		gpu_site_not(r->site, (enum reason)r->why, r->bytes - r->used);
	r->lo = r->hi = 0;
	if (r->state == RANGE_LIVE)
		atomic_fetch_sub(&gpu_live, 1);
}

static void end_with(struct gpu_range *r, enum outcome outcome)
{
	bool harm;

	if (!r->hi)
		return;
	harm = harmful(r);
	if (harm)
		gpu_track_pause(r->lo, r->hi);
	is_over(r, harm ? outcome_HARM : outcome);
}

static void untrue(struct gpu_range *r) { end_with(r, outcome_OVER); }

void range_judge(struct gpu_range *r)
{
	if (r->hi && harmful(r))
		untrue(r);
}

gpu_event range_last(const struct gpu_range *r) { return r->only_comes ? r->in : r->ev; }

/* What was put into a stream before something that has ended has ended, too. To ask the driver
 * costs more than to look at all the others. */
bool range_ended(struct gpu_range *r)
{
	if (r->done || gpu->event(range_last(r)) != GPU_ENDED)
		return r->done;
	r->done = true;
	for (struct gpu_range *o = gpu_ranges; r->st && o < gpu_ranges + RANGES; o++)
		if (o->st == r->st && o->ring == r->ring && o->turn < r->turn)
			o->done = true;
	return true;
}

void range_stream_gone(gpu_stream st)
{
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++)
		if (r->st == st)
			r->st = NULL;
}

/* May its room be used again? */
static bool may_go(struct gpu_range *r)
{
	if (r->pins || r->state != RANGE_LIVE)
		return r->state == RANGE_FREE;
	if (r->hold_ns && now_ns() < r->hold_ns)
		return false;
	return range_ended(r);
}

static bool reclaim(struct gpu_range *r)
{
	if (!may_go(r))
		return false;
	if (r->state == RANGE_FREE)
		return true;
	if (atomic_load(&r->veils))
		deferred->leave_room(r);
	end_with(r, outcome_EVICTED);
	r->state = RANGE_FREE;
	return true;
}

static bool is_in(const struct gpu_range *r, int ring, uint64_t off, uint64_t n)
{
	return r->state != RANGE_FREE && r->ring == ring && r->off < off + n &&
		off < r->off + r->len;
}

/* Where what keeps [off, off + n) from being used ends; or 0, and it is free. */
static uint64_t in_the_way(int ring, uint64_t off, uint64_t n)
{
	uint64_t end = 0;

	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++)
		if (is_in(r, ring, off, n) && !may_go(r) && r->off + r->len > end)
			end = r->off + r->len;
	for (struct gpu_range *r = gpu_ranges; !end && r < gpu_ranges + RANGES; r++)
		if (is_in(r, ring, off, n))
			reclaim(r);
	return end;
}

/* The next n bytes after the newest that are to be had: what is held is stepped over. */
static bool find_room(int ring, uint64_t n, uint64_t *ret)
{
	struct gpu_ring *g = &gpu_rings[ring];
	uint64_t off = g->next, past;

	for (int laps = 0; laps < 2; laps++, off = 0) {
		for (; off + n <= g->size; off = past) {
			past = in_the_way(ring, off, n);
			if (!past) {
				*ret = off;
				return true;
			}
		}
	}
	return false;
}

/* How soon the ring comes to its room, if all goes round. */
static uint64_t turn_of(const struct gpu_range *r, uint64_t next)
{
	const struct gpu_ring *g = &gpu_rings[r->ring];

	return r->off >= next ? r->off - next : r->off + g->size - next;
}

/* Free, or of no use any more, best without veils of other buffers; or else the one that would
 * be next to go. */
static struct gpu_range *spare(int ring, uint64_t next)
{
	struct gpu_range *best = NULL;

	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++)
		if (r->state == RANGE_FREE)
			return r;
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++)
		if (!r->hi && !atomic_load(&r->veils) && reclaim(r))
			return r;
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++)
		if (!r->hi && reclaim(r))
			return r;
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++)
		if (r->ring == ring && may_go(r) &&
		    (!best || turn_of(r, next) < turn_of(best, next)))
			best = r;
	return best && reclaim(best) ? best : NULL;
}

/* Its events are used again, and its description is still read by who was late. */
struct gpu_range *range_new(int ring, size_t n)
{
	struct gpu_ring *g = &gpu_rings[ring];
	uint64_t len = (n + 511) & ~511ull, off;
	struct gpu_range *r;

	if (len > g->size / 2 || !find_room(ring, len, &off))
		return NULL;
	r = spare(ring, off + len);
	if (!r)
		return NULL;
	*r = (struct gpu_range){
		.state = RANGE_FILLING, .ring = ring, .off = off, .len = len, .data = off,
		.pins = 1, .done = true, .seq = gpu_seq(), .ev = r->ev, .ev_ring = r->ev_ring,
		.in = r->in, .in_ring = r->in_ring, .desc = r->desc,
	};
	g->next = off + len;
	return r;
}

/* One that nobody needs any more is made free, if there is none: before the next is needed in a
 * hurry. The youngest is asked about, so that it speaks for the others. */
void range_spare(void)
{
	struct gpu_range *young = NULL;

	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++) {
		if (r->state == RANGE_FREE)
			return;
		if (r->hi || atomic_load(&r->veils))
			continue;
		if (r->done && reclaim(r))
			return;
		if (!r->done && (!young || r->turn > young->turn))
			young = r;
	}
	if (young && reclaim(young))
		return;
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++)
		if (!r->hi && !atomic_load(&r->veils) && reclaim(r))
			return;
}

gpu_addr gpu_ring_carve(int ring, uint64_t n)
{
	struct gpu_ring *g = &gpu_rings[ring];
	uint64_t off = g->size - n;

	if (n > g->size || off < g->all / 2 || in_the_way(ring, off, n))
		return 0;
	g->size = off;
	if (g->next > off)
		g->next = 0;
	return g->base + off;
}

void range_live(struct gpu_range *r, uintptr_t lo, uintptr_t hi, uint64_t data)
{
	r->lo = lo;
	r->hi = hi;
	r->data = data;
	r->state = RANGE_LIVE;
	r->pins--;
	if (hi)
		atomic_fetch_add(&gpu_live, 1);
}

void gpu_overwrite(const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++)		/* at once, not page by page as the bytes come */
		gpu_veil_fill((uintptr_t)iov[i].iov_base, iov[i].iov_len);
	if (!gpu_lock_soon())		/* then page by page */
		return;
	for (int i = 0; i < n; i++) {
		uintptr_t lo = (uintptr_t)iov[i].iov_base, hi = lo + iov[i].iov_len;

		for (int k = 0; k < RANGES; k++) {
			struct gpu_range *r = &gpu_ranges[k];
			enum outcome outcome;

			if (r->state != RANGE_LIVE || !(r->lo < hi && lo < r->hi))
				continue;
			outcome = harmful(r) ? outcome_HARM : outcome_OVER;
			gpu_track_pause(r->lo, r->hi);
			is_over(r, outcome);
		}
	}
	lock_give(&gpu_lock);
}

void ranges_drop(uintptr_t lo, uintptr_t hi)
{
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++) {
		if (r->state != RANGE_FREE && r->lo < hi && lo < r->hi)
			untrue(r);
	}
}

/* A new watch over [lo, hi) forgets what was written to its first and last page, also beside the
 * range: so records there end where those pages begin. */
static void give_way(uintptr_t lo, uintptr_t hi)
{
	lo &= ~4095ul;
	hi = (hi + 4095) & ~4095ul;
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++) {
		if (r->state == RANGE_FREE || r->lo >= hi || lo >= r->hi)
			continue;
		if (r->state == RANGE_FILLING || (r->lo >= lo && r->hi <= hi)) {
			untrue(r);
		} else if (r->lo < lo) {
			r->hi = lo;
		} else {
			r->data += hi - r->lo;
			r->lo = hi;
		}
	}
}

bool range_watch(struct gpu_range *r, uintptr_t lo, uintptr_t hi)
{
	uintptr_t rlo = r->lo, rhi = r->hi;
	bool ok;

	r->lo = r->hi = 0;	/* not before itself */
	give_way(lo, hi);
	ok = gpu_track_begin(lo, hi);
	r->lo = rlo;
	r->hi = rhi;
	return ok;
}

/* An event of the ring's own context: records wander between rings. */
static bool mark(const struct gpu_range *r, gpu_event *ev, int *ring, gpu_stream st)
{
	if (!*ev || *ring != r->ring) {
		*ev = NULL;
		if (gpu->event_new(ev))
			return false;
		*ring = r->ring;
	}
	return !gpu->record(*ev, st);
}

static _Atomic uint64_t turns;	/* so often was something marked */

/* The streams with fixed names are of a context or of a thread, so their order says nothing. */
static void marked(struct gpu_range *r, gpu_stream st, bool comes)
{
	r->only_comes = comes;
	r->done = false;
	r->st = gpu_stream_named(st) ? NULL : st;
	r->turn = atomic_fetch_add(&turns, 1) + 1;
}

bool range_record(struct gpu_range *r, gpu_stream st, uint64_t *turn)
{
	*turn = atomic_load(&turns);
	return mark(r, &r->ev, &r->ev_ring, st);
}

/* If another was marked meanwhile, it is not known which of the two is first in the stream. */
void range_marked(struct gpu_range *r, gpu_stream st, uint64_t turn)
{
	marked(r, turn == atomic_load(&turns) ? st : NULL, false);
}

bool range_comes(struct gpu_range *r, gpu_stream st)
{
	r->coming = mark(r, &r->in, &r->in_ring, st);
	if (r->coming)
		marked(r, st, true);
	return r->coming;
}

void range_came(struct gpu_range *r)
{
	r->coming = false;
	r->done = true;
}

struct gpu_range *range_at(uintptr_t p, uintptr_t end, uintptr_t *next)
{
	*next = end;
	for (struct gpu_range *r = gpu_ranges; r < gpu_ranges + RANGES; r++) {
		if (r->state != RANGE_LIVE || !r->hi || r->hi <= p || r->lo >= end)
			continue;
		if (r->device_writable && r->seq != gpu_seq()) {
			r->why = REASON_DEVICE_WRITTEN;
			untrue(r);
			continue;
		}
		if (r->lo <= p)
			return r;
		if (r->lo < *next)
			*next = r->lo;
	}
	return NULL;
}

size_t range_true(const struct gpu_range *r, uintptr_t at, uintptr_t end, uintptr_t *next,
		  bool *ret_device_writable)
{
	uintptr_t to = r->hi < end ? r->hi : end;
	size_t n = gpu_track_clean(at, to, next);

	*ret_device_writable = n && !r->veiled && !gpu_track_alone(at, at + n);
	if (!*ret_device_writable)
		return n;
	*next = to;
	return 0;
}
