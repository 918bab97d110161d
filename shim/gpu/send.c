/*
 * send.c - the sender's half of the GPU path: which copies get a snapshot, when a snapshot
 * still is what the buffer holds, and what may have written the buffer since.
 *
 * With a snapshot, a copy from the device is: device to snapshot, snapshot to host. So the host
 * bytes are the snapshot's, whatever happens to the source meanwhile. They still are at a send
 * if the copy is complete, no page was written by the CPU (track.c), and no device can have
 * written: nothing was launched since, and when the copy was made no other stream had work under
 * way. Only then the receiver is told of the snapshot (stream_direct.c).
 *
 * Ranges and call sites are learned (learn.c): a snapshot is taken only where the pattern was seen.
 *
 * Lock: gpu_lock, see state.h.
 */
#include "gpu/hooks.h"

#include <stdlib.h>
#include <string.h>

#include "base/shim.h"
#include "base/sys.h"
#include "base/trace.h"
#include "gpu/learn.h"
#include "gpu/net.h"
#include "gpu/range.h"
#include "gpu/take.h"
#include "gpu/track.h"
#include "policy/log.h"
#include "policy/stat.h"

/* ---- on and off ---- */

void gpu_off(const char *why)
{
	gpu_veil_end();	/* while the hooks still look at what is left */
	if (atomic_exchange(&gpu_path, GPU_PATH_OFF) == GPU_PATH_OFF)
		return;
	atomic_store(&gpu_sends, 0);
	atomic_store(&gpu_receives, 0);
	log_line(2, "GPU path off: %s", why);
}

/* The driver's own end was registered when it began, so ours comes before it. */
static void at_exit(void)
{
	if (foreign_image())	/* a child that fork() does not know of */
		return;
	gpu_user->end();
	gpu_reads_end();
	gpu_windows_end();
	gpu_veil_end();
}

/* Registered here, where no lock is held: it may allocate, and the program's malloc() have a
 * lock of its own. */
static const char *unfit(void)
{
	if (!gpu->bind())
		return reason_name(REASON_DEVICE_DRIVER);
	if (!gpu->proved())
		return reason_name(REASON_DEVICE_HOOKS);
	if (gpu_track_open(gpu_deferred_here() && shim_tunables()->device == 2))
		return reason_name(REASON_DEVICE_TRACKING);
	return atexit(at_exit) ? reason_name(REASON_NO_MEMORY) : NULL;
}

/* Why nothing is deferred, or NULL. */
static const char *undeferred(void)
{
	if (!gpu_deferred_here())
		return "this library was built without it";
	if (!gpu_track_guards())
		return "userfaultfd(2) for accesses by the kernel is not permitted";
	return gpu_veil_open() ? NULL : "no thread for it, or a device waits for host memory";
}

/* No lock is held: the dynamic loader has one of its own, and runs programs' constructors under
 * it. */
bool gpu_wake(const struct gpu_ops *vendor)
{
	static _Atomic bool waking;
	const char *why;

	if (!shim_on)
		return false;
	if (!shim_tunables()->device || atomic_exchange(&waking, true)) {
		gpu_busy_unseen();	/* somebody's work goes by unseen */
		return false;
	}
	gpu = vendor;
	why = unfit();
	if (why) {
		gpu_off(why);
		return false;
	}
	gpu_site_open();
	why = shim_tunables()->device == 2 ? undeferred() : NULL;
	if (why)
		log_line(2, "GPU path: nothing is deferred: %s", why);
	log_line(3, "GPU path on");
	atomic_store(&gpu_path, GPU_PATH_ON);
	return true;
}

void gpu_stream_gone(gpu_stream st)
{
	lock_take(&gpu_lock);
	gpu_busy_gone(st);
	range_stream_gone(st);
	lock_give(&gpu_lock);
}

/* With several contexts, one that has finished says nothing of the others. */
void gpu_synced(uint64_t before)
{
	gpu_ctx ctx = gpu->current();
	bool others;

	lock_take(&gpu_lock);
	others = gpu_busy_in(ctx);
	for (int i = 0; i < RINGS; i++)
		others |= gpu_rings[i].ctx && gpu_rings[i].ctx != ctx;
	if (!others)
		gpu_busy_settled(before);
	lock_give(&gpu_lock);
}

void gpu_touch(gpu_addr dst, size_t n)
{
	gpu_veil_fill((uintptr_t)dst, n);
	if (!atomic_load_explicit(&gpu_live, memory_order_relaxed))
		return;
	lock_take(&gpu_lock);
	ranges_drop((uintptr_t)dst, (uintptr_t)dst + n);
	lock_give(&gpu_lock);
}

/* ---- a copy to the host ---- */

/* Into device_writable memory the device writes unseen by the page tables, so the watch starts
 * before the copy, and nothing else may be writing. Other memory is filled by the driver's
 * stores: then it starts after the copy, but must be possible. */
static enum reason watch_first(struct gpu_range *r, uintptr_t lo, size_t n, gpu_stream st)
{
	if (r->device_writable && gpu_busy(st))
		return REASON_DEVICE_BUSY;
	if (r->veiled)
		return REASON_NONE;
	if (r->device_writable ? !range_watch(r, lo, lo + n) : !gpu_track_pause(lo, lo + n))
		return REASON_DEVICE_UNWATCHED;
	return REASON_NONE;
}

static void forget(struct gpu_range *r)
{
	r->lo = r->hi = 0;
	atomic_store(&r->pins, 0);
	__atomic_store_n(&r->state, RANGE_FREE, __ATOMIC_RELEASE);
}

/* Room and watch for a snapshot, *ret, NULL if there is none. gpu_lock held, capture mode
 * relaxed. */
static enum reason snapshot_room(uintptr_t lo, size_t n, gpu_stream st, gpu_ctx ctx,
				 struct gpu_range **ret)
{
	int ring = gpu_ring_of(ctx);
	struct gpu_range *r;
	enum reason why;

	if (ring < 0 || gpu_paused)
		return REASON_DEVICE_MEMORY;
	if (!gpu_rings[ring].shared)
		return REASON_DEVICE_UNSHARED;
	r = range_new(ring, n);
	if (!r)
		return REASON_DEVICE_MEMORY;
	r->device_writable = gpu_device_writes(ring, lo, n);
	r->veiled = deferred->may(r, lo, n);
	why = watch_first(r, lo, n, st);
	if (why) {
		forget(r);
		return why;
	}
	*ret = r;
	r->lo = lo;
	r->hi = lo + n;
	r->bytes = n;
	r->why = REASON_DEVICE_UNSENT;
	return REASON_NONE;
}

/* ... and the copy into it, without the lock: where the program's stream is full, it waits for
 * what the program does next. Nobody uses the record before it is live. */
static enum reason snapshot(uintptr_t lo, gpu_addr src, size_t n, gpu_stream st, gpu_ctx ctx,
			    struct gpu_range **ret)
{
	enum reason why = snapshot_room(lo, n, st, ctx, ret);
	gpu_addr to;
	gpu_result e;

	if (why)
		return why;
	to = gpu_rings[(*ret)->ring].base + (*ret)->off;
	lock_give(&gpu_lock);
	e = gpu->between(to, src, n, st);
	lock_take(&gpu_lock);
	if (!e)
		return REASON_NONE;
	forget(*ret);
	*ret = NULL;
	return REASON_DEVICE_FAILED;
}

/* Why a copy of n bytes is not worth a closer look, or none. */
static enum reason dull(int site, size_t n)
{
	if (n < GPU_PATH_MIN)
		return REASON_DEVICE_SMALL;
	return gpu_site_dull(site) ? REASON_DEVICE_UNLEARNED : REASON_NONE;
}

static bool begin(void *dst, gpu_addr *src, size_t n, gpu_stream st, bool sync,
		  struct gpu_from from, struct gpu_copy *c)
{
	uintptr_t lo = (uintptr_t)dst;
	gpu_ctx ctx = NULL;
	enum reason why;
	int mode;

	if (!atomic_load_explicit(&gpu_linked, memory_order_relaxed) || !gpu_allowed()) {
		gpu_touch(lo, n);
		return false;
	}
	*c = (struct gpu_copy){ .site = gpu_site(from, n, false), .n = n, .sync = sync,
				 .st = st };
	gpu_site_copy(c->site, lo, n);
	why = dull(c->site, n);
	if (why) {
		gpu_touch(lo, n);
		gpu_site_not(c->site, why, n);
		return false;
	}
	ctx = gpu->current();
	if (!ctx || gpu->capturing(st)) {
		gpu_site_not(c->site, ctx ? REASON_DEVICE_CAPTURE : REASON_DEVICE_CONTEXT, n);
		return false;
	}
	gpu_user->settle();	/* their room may be needed */
	lock_take(&gpu_lock);
	ranges_drop(lo, lo + n);
	if (!gpu_expected(lo, n, c->site)) {
		why = REASON_DEVICE_UNLEARNED;
	} else if (!gpu->in_context(*src, ctx)) {
		why = REASON_DEVICE_CONTEXT;
	} else {
		gpu->enter(NULL, &mode);
		why = snapshot(lo, *src, n, st, ctx, &c->range);
		gpu->leave(NULL, &mode);
	}
	if (c->range) {
		c->range->site = (uint8_t)c->site;
		*src = gpu_rings[c->range->ring].base + c->range->off;
	}
	lock_give(&gpu_lock);
	TRACE3(staging_snapshot, lo, n, (int)(c->range != NULL));
	if (c->range)
		return true;
	log_line(4, "GPU path: no snapshot of %lu bytes: %s", (unsigned long)n,
		 reason_name(why));
	gpu_site_not(c->site, why, n);
	return false;
}

bool gpu_d2h_begin(void *dst, gpu_addr *src, size_t n, gpu_stream st, bool sync,
		    struct gpu_from from, struct gpu_copy *c)
{
	bool snap = begin(dst, src, n, st, sync, from, c);

	if (snap)
		c->done = c->range->veiled && deferred->copy(c, (uintptr_t)dst, n);
	if (!snap || !c->done)
		gpu_veil_fill((uintptr_t)dst, n);
	return snap;
}

void gpu_d2h_end(const struct gpu_copy *c, gpu_result result)
{
	struct gpu_range *r = c->range;
	enum reason why = result == 0 ? REASON_NONE : REASON_DEVICE_FAILED;
	bool marked = true;
	uint64_t turn = 0;
	int mode;

	gpu->enter(NULL, &mode);
	if (!c->sync || why)
		marked = range_record(r, c->st, &turn);
	gpu->leave(NULL, &mode);
	lock_take(&gpu_lock);
	if (marked && (!c->sync || why)) {
		range_marked(r, c->st, turn);
	} else if (!marked) {
		/* We'll never know when its room is free. */
		gpu_rings[r->ring].bad = true;
		why = REASON_DEVICE_FAILED;
	}
	/* lo and hi are 0 if somebody wrote there meanwhile. */
	if (!why && r->hi && !r->device_writable && !range_watch(r, r->lo, r->hi))
		why = REASON_DEVICE_UNWATCHED;
	if (why && r->hi)
		gpu_site_not(c->site, why, c->n);
	range_live(r, why ? 0 : r->lo, why ? 0 : r->hi, r->off);
	lock_give(&gpu_lock);
}

/* ---- a send ---- */

static bool complete(struct gpu_range *r)
{
	int mode;

	if (!r->done) {
		gpu->enter(gpu_rings[r->ring].ctx, &mode);
		range_ended(r);
		gpu->leave(gpu_rings[r->ring].ctx, &mode);
	}
	return r->done;
}

static void describe(struct gpu_range *r)
{
	struct gpu_ring *g = &gpu_rings[r->ring];
	struct gpu_desc *d = &r->desc;

	*d = (struct gpu_desc){ .magic = GPU_DESC_MAGIC, .ring_id = g->id, .ring_size = g->size,
				 .ring_base = g->base,
		.host = r->lo, .off = r->data, .len = r->hi - r->lo };
	memcpy(d->ipc, g->ipc, sizeof d->ipc);
	memcpy(d->uuid, g->dev.uuid, sizeof d->uuid);
}

/* A buffer that is written while it goes out part by part, as sums are, is found out after a
 * fourth of it: the rest need not fault. */
static bool still_worth(struct gpu_range *r)
{
	if (r->used - r->judged < (r->hi - r->lo) / 4)
		return true;
	r->judged = r->used;
	range_judge(r);
	return r->hi != 0;
}

bool gpu_find(const void *p, size_t n, struct gpu_ref *ret)
{
	uintptr_t at = (uintptr_t)p, next, end = at + n;
	struct gpu_range *r;
	size_t len = 0;

	*ret = (struct gpu_ref){ .len = n, .rec = -1 };
	if (!gpu_allowed() || !gpu_lock_soon())
		return false;
	gpu_sending(at);
	r = range_at(at, end, &next);
	if (r) {
		if (!complete(r) || r->pins == UINT8_MAX) {
			r->why = REASON_DEVICE_EARLY;
			next = r->hi < end ? r->hi : end;
		} else if (still_worth(r)) {
			bool device_writable;

			len = range_true(r, at, end, &next, &device_writable);
			r->why = device_writable ? REASON_DEVICE_UNWATCHED : len < GPU_PATH_MIN
				? REASON_DEVICE_WRITTEN : REASON_DEVICE_NOT_TAKEN;
			r->sent |= len >= GPU_PATH_MIN;
			if (!len)
				range_judge(r);
		}
	}
	if (len >= GPU_PATH_MIN) {
		if (!r->pins)
			describe(r);
		r->pins++;
		*ret = (struct gpu_ref){ (uint64_t)(uintptr_t)&r->desc, r->desc.ring_id,
					  r->data + (at - r->lo), len, (int)(r - gpu_ranges),
					  r->veiled };
	} else {
		ret->len = len ? len : next - at;
	}
	lock_give(&gpu_lock);
	return ret->rec >= 0;
}

void gpu_ref_why(const struct gpu_ref *ref, int reason, bool soon)
{
	atomic_store(&gpu_ranges[ref->rec].why, (uint8_t)reason);
	atomic_store(&gpu_ranges[ref->rec].early, soon);
}

/* Its pin keeps the record what it is: no lock. */
static void used(const struct gpu_ref *ref)
{
	atomic_fetch_add(&gpu_ranges[ref->rec].used, ref->len);
	gpu_site_taken(gpu_ranges[ref->rec].site, ref->len);
}

void gpu_ref_used(const struct gpu_ref *ref)
{
	used(ref);
}

void gpu_unref(const struct gpu_ref *ref, bool taken)
{
	if (taken)
		used(ref);
	atomic_fetch_sub(&gpu_ranges[ref->rec].pins, 1);
}

/* A copy that was put into a stream of a device so long ago has ended. */
#define READ_FOR_NS 10000000000ull

void gpu_unref_late(const struct gpu_ref *ref)
{
	atomic_store(&gpu_ranges[ref->rec].hold_ns, now_ns() + READ_FOR_NS);
	atomic_fetch_sub(&gpu_ranges[ref->rec].pins, 1);
}

/* ---- ends ---- */

/* What is under way uses the context: it is short. What is on the way to another host is kept. */
void gpu_pause(bool on)
{
	bool any = on;

	lock_take(&gpu_lock);
	gpu_paused = on;
	gpu_closing = false;
	lock_give(&gpu_lock);
	if (on && !atomic_load(&gpu_ended))
		gpu_user->save();
	for (int naps = 0; any && naps < 1000; naps++) {
		struct timespec nap = { 0, 1000000 };

		lock_take(&gpu_lock);
		any = gpu_reading != 0;
		for (int i = 0; i < RANGES; i++)
			any |= gpu_ranges[i].pins != 0;
		lock_give(&gpu_lock);
		if (any)
			sys(SYS_nanosleep, &nap, NULL);
	}
	lock_take(&gpu_lock);
	gpu_closing = on;
	lock_give(&gpu_lock);
}

void gpu_context_gone(const struct gpu_ops *vendor)
{
	int was = atomic_load(&gpu_path);

	if (was == GPU_PATH_ASLEEP || gpu != vendor)
		return;
	if (was == GPU_PATH_ON)
		gpu_off("the program ends a CUDA context");
	if (gpu_paused)	/* it has ended already: what could be kept was, before */
		atomic_store(&gpu_ended, true);
	gpu_pause(true);
	atomic_store(&gpu_ended, true);
}

/* A child shares what is mapped shared, and writes there unseen. */
void gpu_before_fork(void)
{
	lock_take(&gpu_lock);
	gpu_veil_fill_all();
	if (atomic_load(&gpu_live))
		ranges_drop(0, UINTPTR_MAX);
}

void gpu_after_fork(bool child)
{
	gpu_track_fork(child);
	lock_give(&gpu_lock);
	/* the driver does not work in here */
	if (child && atomic_load(&gpu_path) == GPU_PATH_ON) {
		deferred->after_fork();
		gpu_user->forked();
		memset(gpu_ranges, 0, sizeof gpu_ranges);
		gpu_reading = 0;
		atomic_store(&gpu_live, 0);
		gpu_off("in a forked child");
	}
}
