/*
 * take.c - the receiver's half of the GPU path.
 *
 * A take: the peer's ring is mapped (map.c), a copy of the bytes into our ring on our device is
 * put into a stream, and the peer is told that it may go on. The copy to the application's
 * buffer follows in the same stream; or, deferred, nothing does, and a copy from that buffer to
 * the device, unwritten since, becomes a copy from our ring that waits on the device for the
 * first one. So the peer's next block, our copy and what our program does with it overlap. When
 * the first copy has ended, the peer is told that, too (gpu_read_over(), stream_direct.c):
 * until then its snapshot stays. The price is that a device that fails in between takes the
 * connection with it.
 *
 * Lock: gpu_lock, not held while the device is waited for: what is in use has a pin.
 */
#include "gpu/take.h"

#include <stdlib.h>
#include <string.h>

#include "base/shim.h"
#include "base/sys.h"
#include "base/trace.h"
#include "gpu/hooks.h"
#include "gpu/learn.h"
#include "gpu/map.h"
#include "gpu/range.h"
#include "gpu/track.h"
#include "policy/log.h"
#include "policy/stat.h"

#define READ_WITHIN_NS 20000000	/* a copy between devices that nothing else is before */

/* ---- a take ---- */

/* The description is read before the ring is mapped, and again when that was a while ago: so the
 * peer lives, and is one whose memory we may read. In between the words of the offer are enough. */
#define READ_ANEW_NS   1000000
#define READ_FORCED_NS 1000000000	/* tests: a stand-in for a device is slower than that */

/* As the driver is to know it: 0 is ourselves. */
static int peer_of(int pid)
{
	return pid == atomic_load(&shim_pid) ? 0 : pid;
}

bool gpu_take_finds(int pid, const struct gpu_offer *o, size_t n, struct gpu_found *f)
{
	uint64_t now = now_ns(), since = now - (shim_tunables()->force_defer ? READ_FORCED_NS
						: READ_ANEW_NS);
	gpu_ctx ctx = atomic_load(&gpu_context);
	bool known;

	f->wanted = ctx && n >= GPU_PATH_MIN && pid > 0 && gpu_allowed();
	if (!f->wanted)
		return false;
	f->wanted = gpu_lock_soon();
	if (!f->wanted)
		return false;
	known = gpu_map_known(peer_of(pid), o->ring, ctx, since, &f->d);
	lock_give(&gpu_lock);
	f->read_ns = known ? 0 : now;
	return known;
}

/* Where in the ring the n bytes are, in d->off. */
static bool place(const struct gpu_offer *o, struct gpu_found *f, size_t *n)
{
	struct gpu_desc *d = &f->d;

	if (!f->read_ns) {
		d->off = o->at;
		d->len = *n;
		return true;
	}
	if (d->magic != GPU_DESC_MAGIC || o->addr < d->host || o->addr - d->host >= d->len ||
	    __builtin_add_overflow(d->off, o->addr - d->host, &d->off))
		return false;
	d->len -= o->addr - d->host;
	if (*n > d->len)
		*n = d->len;
	return true;
}

/* A bad address must be found while there is a way back. gpu_lock held. */
static bool writable(const struct iovec *iov, int niov)
{
	for (int i = 0; i < niov; i++) {
		uintptr_t lo = (uintptr_t)iov[i].iov_base, hi = lo + iov[i].iov_len;

		if (lo == hi || deferred->pinned_before(lo, hi - lo) ||
		    (gpu->pointer(lo).known && gpu->pointer(hi - 1).known))
			continue;
		ranges_drop(lo, hi);	/* before all pages count as written */
		if (!gpu_track_writable(lo, hi))
			return false;
	}
	return true;
}

/* Both copies are in the ring's stream: nothing is under way when that is idle. */
static gpu_result landed(struct gpu_take *t)
{
	gpu_result r = gpu->wait(gpu_rings[t->ring].st);

	t->read.ev = NULL;
	if (!r && t->range)
		range_came(t->range);	/* nobody else uses it yet */
	return r;
}

/* The copy from the peer's device; while it is put on its way the buffers are looked at. Not
 * early: it has ended. */
static bool fetch(struct gpu_take *t, gpu_addr src, const struct iovec *iov, int niov, bool early)
{
	struct gpu_ring *g = &gpu_rings[t->ring];
	gpu_result r = gpu->between(t->from, src, t->len, g->st);
	bool ok;

	lock_take(&gpu_lock);
	ok = writable(iov, niov);
	lock_give(&gpu_lock);
	if (ok && !r && early)
		return true;
	if (!r)
		r = landed(t);
	if (ok && !r)
		return true;
	if (r)
		log_line(2, "GPU path: copy from the peer's device: %s error %d", gpu->name, r);
	lock_take(&gpu_lock);
	range_live(t->range, 0, 0, 0);
	g->bad |= r != 0;
	lock_give(&gpu_lock);
	return false;
}

/* By which the end of the copy will be known. */
static void mark(struct gpu_take *t)
{
	struct gpu_range *range = t->range;
	bool ok;

	if (!gpu_lock_soon()) {
		landed(t);
		return;
	}
	ok = range_comes(range, gpu_rings[t->ring].st);
	t->read = (struct gpu_read){ range->in, t->map, t->ring };
	lock_give(&gpu_lock);
	if (!ok)
		landed(t);
}

/* What is still being read stays mapped. */
static void take_done(struct gpu_take *t, gpu_ctx ctx)
{
	gpu->leave(ctx, &t->mode);
	if (t->map && !t->read.ev)
		atomic_fetch_sub(&t->map->users, 1);
}

static bool exiting;		/* the driver ends with the process, whoever is in it. gpu_lock */

void gpu_reads_end(void)
{
	lock_take(&gpu_lock);
	exiting = true;
	lock_give(&gpu_lock);
}

enum { READ_ENDED, READ_UNDER_WAY, READ_UNKNOWN };

/* gpu_lock held: the context does not end meanwhile. The event may be of a later copy by now,
 * if the record is used again: that came after. */
static int read_state(const struct gpu_read *r)
{
	struct gpu_ring *g = &gpu_rings[r->ring];
	bool ended;
	int mode;

	if (atomic_load(&gpu_ended))
		return READ_ENDED;
	if (gpu_closing || exiting)
		return READ_UNKNOWN;
	gpu->enter(g->ctx, &mode);
	ended = gpu->event(r->ev) != GPU_UNDER_WAY;		/* an error is an end, too */
	if (ended)
		range_spare();
	gpu->leave(g->ctx, &mode);
	return ended ? READ_ENDED : READ_UNDER_WAY;
}

bool gpu_read_over(struct gpu_read *r, bool wait)
{
	uint64_t until = wait ? now_ns() + READ_WITHIN_NS : 0;
	int state;

	if (!r->ev)
		return true;
	if (gpu_unsafe_here())
		return false;
	do {
		if (!gpu_lock_soon())
			return false;
		state = read_state(r);
		if (state == READ_ENDED && r->map)
			atomic_fetch_sub(&r->map->users, 1);
		lock_give(&gpu_lock);
	} while (state == READ_UNDER_WAY && now_ns() < until);
	if (state == READ_ENDED)
		*r = (struct gpu_read){ NULL, NULL, 0 };
	return state == READ_ENDED;
}

/* Two processes take turns on one device, unless MPS joins them: each copy that waits for the
 * other's work costs some 0.3 ms, in which the host copies a megabyte or two. gpu_lock held. */
static bool takes_turns(const struct gpu_desc *d, int ring, size_t n, bool own)
{
	static bool said;

	if (own || n >= shim_tunables()->device_shared_min ||
	    memcmp(d->uuid, gpu_rings[ring].dev.uuid, sizeof d->uuid))
		return false;
	if (!said)
		log_line(3, "GPU path: the peer works on the same device: blocks below %llu "
			 "bytes come from the host (device_shared_min)",
			 (unsigned long long)shim_tunables()->device_shared_min);
	said = true;
	return true;
}

/* What need not be done before the peer is told, is left to gpu_take_end(). */
size_t gpu_take_begin(int pid, const struct gpu_offer *o, struct gpu_found *f, size_t n,
		       const struct iovec *iov, int niov, bool early,
		       struct gpu_take *t)
{
	gpu_ctx ctx = atomic_load(&gpu_context);
	gpu_addr src = 0;
	int peer = peer_of(pid);
	bool ok;

	if (!ctx || !place(o, f, &n) || n < GPU_PATH_MIN)
		return 0;
	*t = (struct gpu_take){ .len = n };
	if (!gpu_lock_soon())
		return 0;
	gpu->enter(ctx, &t->mode);
	t->ring = atomic_load(&gpu_path) == GPU_PATH_ON && !gpu_paused ? gpu_ring_of(ctx) : -1;
	if (t->ring >= 0 && !takes_turns(&f->d, t->ring, n, !peer))
		t->map = gpu_map_get(&f->d, ctx, peer);
	if (t->map && f->read_ns)
		t->map->read_ns = f->read_ns;
	if (t->map)
		t->range = range_new(t->ring, n);
	if (t->range) {
		t->from = gpu_rings[t->ring].base + t->range->off;
		src = t->map->base + f->d.off;
	}
	lock_give(&gpu_lock);
	t->early = early;
	ok = t->range && fetch(t, src, iov, niov, early);
	if (!ok)
		take_done(t, ctx);
	TRACE3(staging_take, o->addr, n, (int)ok);
	return ok ? n : 0;
}

/* One buffer's part. Watch: remember that it is the snapshot's. */
static gpu_result fill(struct gpu_take *t, void *to, size_t n, uint64_t at, bool watch)
{
	struct gpu_ring *g = &gpu_rings[t->ring];
	struct gpu_range *range = t->range;
	uintptr_t lo = (uintptr_t)to;
	bool device_writable, ok = false, defer = false;
	gpu_result r;

	lock_take(&gpu_lock);
	ranges_drop(lo, lo + n);
	device_writable = gpu_device_writes(t->ring, lo, n);
	if (watch && gpu_wants_watch(lo, n)) {
		range->device_writable = device_writable;
		range->rx = true;
		range->seq = gpu_seq();
		ok = device_writable ? !gpu_busy(g->st) : gpu_track_pause(lo, lo + n);
		defer = ok && deferred->may(range, lo, n);
		if (ok && device_writable && !defer)
			ok = range_watch(range, lo, lo + n);
	}
	lock_give(&gpu_lock);
	if (defer && deferred->take(range, lo, n, t->from - g->base + at, g->st)) {
		t->range = NULL;
		return 0;
	}
	if (defer) {
		lock_take(&gpu_lock);
		ok = range_watch(range, lo, lo + n);
		lock_give(&gpu_lock);
	}
	gpu_veil_fill(lo, n);
	r = gpu->to_host(to, t->from + at, n, g->st);
	if (!r)
		r = landed(t);
	if (ok && !r) {
		lock_take(&gpu_lock);
		if (!device_writable)
			ok = range_watch(range, lo, lo + n);
		if (ok) {
			range_live(t->range, lo, lo + n, t->from - g->base + at);
			t->range = NULL;
		}
		lock_give(&gpu_lock);
	}
	return r;
}

void gpu_take_drop(struct gpu_take *t)
{
	landed(t);
	lock_take(&gpu_lock);
	range_live(t->range, 0, 0, 0);
	lock_give(&gpu_lock);
	take_done(t, gpu_rings[t->ring].ctx);
}

int gpu_take_end(struct gpu_take *t, const struct iovec *iov, int niov)
{
	uint64_t at = 0;
	gpu_result r = 0;
	int largest = 0;

	if (t->early)
		mark(t);
	for (int i = 1; i < niov; i++)
		if (iov[i].iov_len > iov[largest].iov_len)
			largest = i;
	for (int i = 0; i < niov && at < t->len && !r; i++) {
		size_t n = iov[i].iov_len < t->len - at ? iov[i].iov_len : t->len - at;

		if (!n)
			continue;
		/* The watched one last, since the record may be used from then on: small ones
		 * are few. */
		if (i != largest || !t->range)
			r = fill(t, iov[i].iov_base, n, at, false);
		else
			r = fill(t, iov[i].iov_base, n, at, niov == 1 && n >= GPU_PATH_MIN);
		at += n;
	}
	lock_take(&gpu_lock);
	if (t->range)
		range_live(t->range, 0, 0, 0);
	if (!t->read.ev)
		range_spare();
	lock_give(&gpu_lock);
	take_done(t, gpu_rings[t->ring].ctx);
	if (r)
		log_line(1, "GPU path: copy to the buffer: %s error %d", gpu->name, r);
	return r ? -EIO : 0;
}

bool gpu_read_next(struct gpu_read *r, const struct gpu_read *next)
{
	if (!next->ev)
		return true;
	if (!r->ev) {
		*r = *next;
		return true;
	}
	if (r->map != next->map || r->ring != next->ring)
		return false;
	atomic_fetch_sub(&r->map->users, 1);
	r->ev = next->ev;
	return true;
}

bool gpu_take_from(gpu_ctx ctx, gpu_addr src, size_t n, const struct iovec *iov, int niov,
		    bool keep)
{
	struct gpu_take t = { .len = n, .from = src };
	bool ok;

	if (!gpu_lock_soon())
		return false;
	gpu->enter(ctx, &t.mode);
	t.ring = atomic_load(&gpu_path) == GPU_PATH_ON && !gpu_paused ? gpu_ring_of(ctx) : -1;
	if (t.ring >= 0 && keep)
		t.range = range_new(t.ring, n);
	if (t.range)
		t.from = gpu_rings[t.ring].base + t.range->off;
	ok = t.ring >= 0 && (t.range || writable(iov, niov));
	gpu_reading++;
	lock_give(&gpu_lock);
	if (t.range)
		ok = fetch(&t, src, iov, niov, false);	/* the caller gives the place away */
	if (ok)
		ok = !gpu_take_end(&t, iov, niov);
	else
		take_done(&t, ctx);
	atomic_fetch_sub(&gpu_reading, 1);
	return ok;
}

/* ---- a copy from the host ---- */

/* What is at p: a record that is still true for *n bytes from there, or NULL and *n bytes that
 * have none. */
static struct gpu_range *chunk_at(uintptr_t p, uintptr_t end, gpu_ctx ctx, size_t *n)
{
	uintptr_t next;
	struct gpu_range *r = range_at(p, end, &next);
	bool device_writable;

	if (r && gpu_rings[r->ring].ctx == ctx) {
		*n = range_true(r, p, end, &next, &device_writable);
		if (*n)
			return r;
		range_judge(r);
	} else if (r) {
		next = r->hi < end ? r->hi : end;
	}
	*n = next - p;
	return NULL;
}

/*
 * A copy out of the range's snapshot into the stream. False: it could not wait for the snapshot,
 * which may not be whole yet. The program has not asked it to: its own copy is made. gpu_lock
 * held, but not while the driver is called: one at a time, since each waits for the last event
 * and becomes it.
 */
static bool from_range(struct gpu_range *r, gpu_addr dst, uintptr_t p, size_t n, gpu_stream st,
		       gpu_result *ret)
{
	gpu_event last = r->done ? NULL : range_last(r);
	gpu_addr src = gpu_rings[r->ring].base + r->data + (p - r->lo);
	bool comes, marked = false;
	uint64_t turn = 0;

	r->in_use = true;
	atomic_fetch_add(&r->pins, 1);
	lock_give(&gpu_lock);
	comes = !last || !gpu->wait_event(st, last);
	if (comes)
		*ret = gpu->between(dst, src, n, st);
	if (comes && !*ret)
		marked = range_record(r, st, &turn);
	lock_take(&gpu_lock);
	if (marked)
		range_marked(r, st, turn);
	else if (comes && !*ret)
		gpu_rings[r->ring].bad = true;
	r->in_use = false;
	atomic_fetch_sub(&r->pins, 1);
	if (comes && !*ret) {
		atomic_fetch_add(&r->used, n);
		stat_add(STAT_device_to_device, n);
	}
	return comes;
}

/* From the buffer. gpu_lock held, but not while the driver is called. */
static gpu_result from_buffer(gpu_addr dst, uintptr_t p, size_t n, gpu_stream st)
{
	gpu_result r;

	lock_give(&gpu_lock);
	r = gpu_veil_fill(p, n);
	if (!r)
		r = gpu->to_device(dst, (void *)p, n, st);
	lock_take(&gpu_lock);
	return r;
}

/* Worth a look, at the place *site? */
static bool h2d_wanted(uintptr_t p, size_t n, struct gpu_from from, gpu_ctx *ctx, int *site)
{
	enum reason why;

	if (!atomic_load_explicit(&gpu_linked, memory_order_relaxed) || !gpu_allowed())
		return false;
	*site = gpu_site(from, n, true);
	gpu_site_copy(*site, p, n);
	why = n < GPU_PATH_MIN	      ? REASON_DEVICE_SMALL
	      : gpu_site_dull(*site) ? REASON_DEVICE_UNLEARNED
				      : REASON_NONE;
	if (!why)
		*ctx = gpu->current();
	if (!why && !*ctx)
		why = REASON_DEVICE_CONTEXT;
	gpu_site_not(*site, why, why ? n : 0);
	return !why;
}

bool gpu_h2d(gpu_addr dst, const void *src, size_t n, gpu_stream st, bool sync,
	      struct gpu_from from, gpu_result *ret)
{
	uintptr_t p = (uintptr_t)src, end = p + n;
	enum reason why = REASON_DEVICE_UNSENT, miss;
	gpu_ctx ctx = NULL;
	gpu_result r = 0;
	bool any = false;
	size_t len;
	int mode, site;
	struct gpu_range *range;

	if (!h2d_wanted(p, n, from, &ctx, &site))
		return false;
	if (atomic_load_explicit(&gpu_context, memory_order_relaxed) != ctx)
		atomic_store(&gpu_context, ctx);
	atomic_store_explicit(&gpu_receives, 1, memory_order_relaxed);
	lock_take(&gpu_lock);
	gpu_copied_from(p, n, site);
	lock_give(&gpu_lock);
	if (!atomic_load_explicit(&gpu_live, memory_order_relaxed))
		;
	else if (gpu->capturing(st))
		why = REASON_DEVICE_CAPTURE;
	else if (!gpu->in_context(dst, ctx))
		why = REASON_DEVICE_CONTEXT;
	else
		why = REASON_NONE;
	if (why) {
		gpu_site_not(site, why, n);
		return false;
	}
	lock_take(&gpu_lock);
	gpu->enter(NULL, &mode);
	/* Nothing is done until a first chunk is found; then all of the copy is ours. */
	for (uintptr_t q = p; q < end && !any; q += len)
		any = chunk_at(q, end, ctx, &len) && len >= GPU_PATH_MIN / 2;
	for (; any && p < end && !r; p += len, dst += len) {
		range = chunk_at(p, end, ctx, &len);
		miss = REASON_DEVICE_WRITTEN;
		if (range && (range->in_use || atomic_load(&range->pins) == UINT8_MAX))
			range = NULL;
		if (range && !from_range(range, dst, p, len, st, &r)) {
			range = NULL;
			miss = REASON_DEVICE_FAILED;
		}
		if (!range)
			r = from_buffer(dst, p, len, st);
		if (range)
			gpu_site_taken(site, len);
		else
			gpu_site_not(site, miss, len);
	}
	if (!any)
		gpu_site_not(site, REASON_DEVICE_UNSENT, n);
	gpu->leave(NULL, &mode);
	lock_give(&gpu_lock);
	if (any && !r && sync)
		r = gpu->wait(st);
	*ret = r;
	return any;
}
