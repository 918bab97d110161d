/*
 * cuda_rec.c - snapshots: the room for them, a ring of device memory for each context, and the records of which range of host memory has the same
 * bytes as which part of a ring. Which copies get one, and what a send does with it: cuda_lane.c.
 *
 * Room is given out in turn; what is held (a pin, a copy that is not complete, a peer that may still read) is stepped over. A record ends when its range
 * is written, or when its room is needed.
 *
 * Lock: cuda_lock, see cuda_int.h.
 */
#include "gpu/cuda_int.h"

#include "base/shim.h"
#include "base/sys.h"
#include "policy/log.h"

struct cuda_rec cuda_recs[RECS];
_Atomic int cuda_veil_refs[RECS];
_Atomic uint64_t cuda_veil_touched[RECS];
struct cuda_ring cuda_rings[RINGS];

/* ---- rings ---- */

static bool ring_make(struct cuda_ring *g, gpu_ctx ctx)
{
	size_t left;

	*g = (struct cuda_ring){ .ctx = ctx, .bad = true };
	if (!gpu->left(&left))
		return false;
	for (g->size = shim_tunables()->device_memory & ~0xfffffull; ; g->size /= 2) {
		if (g->size < 4 * LANE_MIN)
			return false;
		if (g->size > left / 8)		/* the program will want more, too */
			continue;
		if (!gpu->alloc(&g->base, g->size))
			break;
	}
	g->shared = !gpu->share(g->ipc, g->base);
	if (!gpu->device(&g->dev) || gpu->stream_new(&g->st) ||
	    (cuda_track_guards() && gpu->stream_new(&g->fill)) ||
	    sys(SYS_getrandom, &g->id, sizeof g->id, 0) != sizeof g->id) {
		gpu->free(g->base);
		return false;
	}
	g->all = g->size;
	g->bad = false;
	log_line(3, "device lane: %lu bytes of device memory, %sshared", (unsigned long)g->size, g->shared ? "" : "not ");
	return true;
}

int cuda_ring_of(gpu_ctx ctx)
{
	int i;

	for (i = 0; i < RINGS && cuda_rings[i].ctx && cuda_rings[i].ctx != ctx; i++)
		;
	if (i == RINGS)
		return -1;
	if (!cuda_rings[i].ctx && !ring_make(&cuda_rings[i], ctx))
		log_line(2, "device lane: no device memory for snapshots");
	return cuda_rings[i].bad ? -1 : i;
}

bool cuda_device_writes(int ring, uintptr_t lo, size_t n)
{
	return cuda_rings[ring].dev.all_memory || deferred->pinned_before(lo, n) ||
	       gpu->pointer(lo).known || gpu->pointer(lo + n - 1).known;
}

/* ---- records ---- */

/* More was written than the use makes up for. */
#define PRICE 4
static bool harmful(const struct cuda_rec *r)
{
	return r->state == REC_LIVE && cuda_track_written(r->lo, r->hi, LANE_MIN + r->used / PRICE);
}

static void rec_over(struct cuda_rec *r, enum fate fate)
{
	cuda_learn(r, fate);
	if (r->veiled)
		deferred->ended(r);
	if (!r->rx && r->used < r->bytes)
		cuda_site_not(r->site, (enum reason)r->why, r->bytes - r->used);
	r->lo = r->hi = 0;
	if (r->state == REC_LIVE)
		atomic_fetch_sub(&cuda_live, 1);
}

static void rec_end(struct cuda_rec *r, enum fate fate)
{
	bool harm;

	if (!r->hi)
		return;
	harm = harmful(r);
	if (harm)
		cuda_track_pause(r->lo, r->hi);
	rec_over(r, harm ? FATE_HARM : fate);
}

static void rec_untrue(struct cuda_rec *r) { rec_end(r, FATE_OVER); }

void cuda_judge(struct cuda_rec *r)
{
	if (r->hi && harmful(r))
		rec_untrue(r);
}

gpu_event cuda_rec_last(const struct cuda_rec *r) { return r->only_comes ? r->in : r->ev; }

/* What was put into a stream before something that has ended has ended, too. To ask the driver costs more than to look at all the others. */
bool cuda_rec_ended(struct cuda_rec *r)
{
	if (r->done || gpu->event(cuda_rec_last(r)) != GPU_ENDED)
		return r->done;
	r->done = true;
	for (struct cuda_rec *o = cuda_recs; r->st && o < cuda_recs + RECS; o++)
		if (o->st == r->st && o->ring == r->ring && o->turn < r->turn)
			o->done = true;
	return true;
}

void cuda_rec_stream_gone(gpu_stream st)
{
	for (struct cuda_rec *r = cuda_recs; r < cuda_recs + RECS; r++)
		if (r->st == st)
			r->st = NULL;
}

/* May its room be used again? */
static bool may_go(struct cuda_rec *r)
{
	if (r->pins || r->state != REC_LIVE)
		return r->state == REC_FREE;
	if (r->hold_ns && now_ns() < r->hold_ns)
		return false;
	return cuda_rec_ended(r);
}

static bool reclaim(struct cuda_rec *r)
{
	if (!may_go(r))
		return false;
	if (r->state == REC_FREE)
		return true;
	if (atomic_load(&cuda_veil_refs[r - cuda_recs]))
		deferred->leave_room((int)(r - cuda_recs));
	rec_end(r, FATE_EVICTED);
	r->state = REC_FREE;
	return true;
}

static bool is_in(const struct cuda_rec *r, int ring, uint64_t off, uint64_t n)
{
	return r->state != REC_FREE && r->ring == ring && r->off < off + n && off < r->off + r->len;
}

/* Where what keeps [off, off + n) from being used ends; or 0, and it is free. */
static uint64_t in_the_way(int ring, uint64_t off, uint64_t n)
{
	uint64_t end = 0;

	for (struct cuda_rec *r = cuda_recs; r < cuda_recs + RECS; r++)
		if (is_in(r, ring, off, n) && !may_go(r) && r->off + r->len > end)
			end = r->off + r->len;
	for (struct cuda_rec *r = cuda_recs; !end && r < cuda_recs + RECS; r++)
		if (is_in(r, ring, off, n))
			reclaim(r);
	return end;
}

/* The next n bytes after the newest that are to be had: what is held is stepped over. */
static bool find_room(int ring, uint64_t n, uint64_t *ret)
{
	struct cuda_ring *g = &cuda_rings[ring];
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
static uint64_t turn_of(const struct cuda_rec *r, uint64_t next)
{
	const struct cuda_ring *g = &cuda_rings[r->ring];

	return r->off >= next ? r->off - next : r->off + g->size - next;
}

/* Free, or of no use any more, best without veils of other buffers; or else the one that would be next to go. */
static int spare(int ring, uint64_t next)
{
	struct cuda_rec *best = NULL;

	for (int i = 0; i < RECS; i++)
		if (cuda_recs[i].state == REC_FREE)
			return i;
	for (int i = 0; i < RECS; i++)
		if (!cuda_recs[i].hi && !atomic_load(&cuda_veil_refs[i]) && reclaim(&cuda_recs[i]))
			return i;
	for (int i = 0; i < RECS; i++)
		if (!cuda_recs[i].hi && reclaim(&cuda_recs[i]))
			return i;
	for (struct cuda_rec *r = cuda_recs; r < cuda_recs + RECS; r++)
		if (r->ring == ring && may_go(r) && (!best || turn_of(r, next) < turn_of(best, next)))
			best = r;
	return best && reclaim(best) ? (int)(best - cuda_recs) : -1;
}

int cuda_rec_new(int ring, size_t n)
{
	struct cuda_ring *g = &cuda_rings[ring];
	uint64_t len = (n + 511) & ~511ull, off;
	int rec;

	if (len > g->size / 2 || !find_room(ring, len, &off))
		return -1;
	rec = spare(ring, off + len);
	if (rec < 0)
		return -1;
	cuda_recs[rec] = (struct cuda_rec){ .state = REC_FILLING, .ring = ring, .off = off, .len = len, .data = off,
		.pins = 1, .done = true, .seq = cuda_seq(), .ev = cuda_recs[rec].ev, .ev_ring = cuda_recs[rec].ev_ring,
		.in = cuda_recs[rec].in, .in_ring = cuda_recs[rec].in_ring };
	g->next = off + len;
	return rec;
}

/* One that nobody needs any more is made free, if there is none: before the next is needed in a hurry. The youngest is asked about, so that it speaks for the others. */
void cuda_rec_spare(void)
{
	struct cuda_rec *young = NULL;

	for (int i = 0; i < RECS; i++) {
		struct cuda_rec *r = &cuda_recs[i];

		if (r->state == REC_FREE)
			return;
		if (r->hi || atomic_load(&cuda_veil_refs[i]))
			continue;
		if (r->done && reclaim(r))
			return;
		if (!r->done && (!young || r->turn > young->turn))
			young = r;
	}
	if (young && reclaim(young))
		return;
	for (int i = 0; i < RECS; i++)
		if (!cuda_recs[i].hi && !atomic_load(&cuda_veil_refs[i]) && reclaim(&cuda_recs[i]))
			return;
}

gpu_addr cuda_ring_carve(int ring, uint64_t n)
{
	struct cuda_ring *g = &cuda_rings[ring];
	uint64_t off = g->size - n;

	if (n > g->size || off < g->all / 2 || in_the_way(ring, off, n))
		return 0;
	g->size = off;
	if (g->next > off)
		g->next = 0;
	return g->base + off;
}

void cuda_rec_live(int rec, uintptr_t lo, uintptr_t hi, uint64_t data)
{
	struct cuda_rec *r = &cuda_recs[rec];

	r->lo = lo;
	r->hi = hi;
	r->data = data;
	r->state = REC_LIVE;
	r->pins--;
	if (hi)
		atomic_fetch_add(&cuda_live, 1);
}

void cuda_overwrite(const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++)		/* at once, not page by page as the bytes come */
		cuda_veil_fill((uintptr_t)iov[i].iov_base, iov[i].iov_len);
	if (!cuda_lock_soon())		/* then page by page */
		return;
	for (int i = 0; i < n; i++) {
		uintptr_t lo = (uintptr_t)iov[i].iov_base, hi = lo + iov[i].iov_len;

		for (int k = 0; k < RECS; k++) {
			struct cuda_rec *r = &cuda_recs[k];
			enum fate fate;

			if (r->state != REC_LIVE || !(r->lo < hi && lo < r->hi))
				continue;
			fate = harmful(r) ? FATE_HARM : FATE_OVER;
			cuda_track_pause(r->lo, r->hi);
			rec_over(r, fate);
		}
	}
	lock_give(&cuda_lock);
}

void cuda_drop_range(uintptr_t lo, uintptr_t hi)
{
	for (int i = 0; i < RECS; i++) {
		struct cuda_rec *r = &cuda_recs[i];

		if (r->state != REC_FREE && r->lo < hi && lo < r->hi)
			rec_untrue(r);
	}
}

/* A new watch over [lo, hi) forgets what was written to its first and last page, also beside the range: so records there
 * end where those pages begin. */
static void give_way(uintptr_t lo, uintptr_t hi)
{
	lo &= ~4095ul;
	hi = (hi + 4095) & ~4095ul;
	for (int i = 0; i < RECS; i++) {
		struct cuda_rec *r = &cuda_recs[i];

		if (r->state == REC_FREE || r->lo >= hi || lo >= r->hi)
			continue;
		if (r->state == REC_FILLING || (r->lo >= lo && r->hi <= hi)) {
			rec_untrue(r);
		} else if (r->lo < lo) {
			r->hi = lo;
		} else {
			r->data += hi - r->lo;
			r->lo = hi;
		}
	}
}

bool cuda_watch(struct cuda_rec *r, uintptr_t lo, uintptr_t hi)
{
	uintptr_t rlo = r->lo, rhi = r->hi;
	bool ok;

	r->lo = r->hi = 0;	/* not before itself */
	give_way(lo, hi);
	ok = cuda_track_begin(lo, hi);
	r->lo = rlo;
	r->hi = rhi;
	return ok;
}

/* An event of the ring's own context: records wander between rings. */
static bool mark(const struct cuda_rec *r, gpu_event *ev, int *ring, gpu_stream st)
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
static void marked(struct cuda_rec *r, gpu_stream st, bool comes)
{
	r->only_comes = comes;
	r->done = false;
	r->st = gpu_stream_named(st) ? NULL : st;
	r->turn = atomic_fetch_add(&turns, 1) + 1;
}

bool cuda_rec_record(struct cuda_rec *r, gpu_stream st, uint64_t *turn)
{
	*turn = atomic_load(&turns);
	return mark(r, &r->ev, &r->ev_ring, st);
}

/* If another was marked meanwhile, it is not known which of the two is first in the stream. */
void cuda_rec_marked(struct cuda_rec *r, gpu_stream st, uint64_t turn)
{
	marked(r, turn == atomic_load(&turns) ? st : NULL, false);
}

bool cuda_rec_comes(struct cuda_rec *r, gpu_stream st)
{
	r->coming = mark(r, &r->in, &r->in_ring, st);
	if (r->coming)
		marked(r, st, true);
	return r->coming;
}

void cuda_rec_came(struct cuda_rec *r)
{
	r->coming = false;
	r->done = true;
}

int cuda_rec_at(uintptr_t p, uintptr_t end, uintptr_t *next)
{
	*next = end;
	for (int i = 0; i < RECS; i++) {
		struct cuda_rec *r = &cuda_recs[i];

		if (r->state != REC_LIVE || !r->hi || r->hi <= p || r->lo >= end)
			continue;
		if (r->pinned && r->seq != cuda_seq()) {
			r->why = REASON_DEVICE_WRITTEN;
			rec_untrue(r);
			continue;
		}
		if (r->lo <= p)
			return i;
		if (r->lo < *next)
			*next = r->lo;
	}
	return -1;
}

size_t cuda_rec_true(const struct cuda_rec *r, uintptr_t at, uintptr_t end, uintptr_t *next, bool *ret_pinned)
{
	uintptr_t to = r->hi < end ? r->hi : end;
	size_t n = cuda_track_clean(at, to, next);

	*ret_pinned = n && !r->veiled && !cuda_track_alone(at, at + n);
	if (!*ret_pinned)
		return n;
	*next = to;
	return 0;
}
