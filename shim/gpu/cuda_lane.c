/*
 * cuda_lane.c - the sender's half of the device lane: which copies get a snapshot, when a snapshot still is what the
 * buffer holds, and what may have written the buffer since.
 *
 * With a snapshot, a copy from the device is: device to snapshot, snapshot to host. So the host bytes are the snapshot's,
 * whatever happens to the source meanwhile. They still are at a send if the copy is complete, no page was
 * written by the CPU (cuda_track.c), and no device can have written: nothing was launched since, and when the copy was
 * made no other stream had work under way. Only then the receiver is told of the snapshot (stream_direct.c).
 *
 * Ranges and call sites are learned (cuda_site.c): a snapshot is taken only where the pattern was seen.
 *
 * Lock: cuda_lock, see cuda_int.h.
 */
#include "gpu/cuda_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/shim.h"
#include "base/sys.h"
#include "base/trace.h"
#include "gpu/cuda_desc.h"
#include "policy/log.h"
#include "policy/stat.h"

static void nothing(void) { }
static bool no(void) { return false; }
static const struct cuda_user nobody = { nothing, nothing, nothing, nothing, no };
const struct cuda_user *cuda_user = &nobody;

void cuda_serve(const struct cuda_user *u) { cuda_user = u; }

_Atomic int cuda_sends, cuda_receives, cuda_lane, cuda_live, cuda_linked;
struct lock cuda_lock;
_Atomic(CUcontext) cuda_ctx;

static struct cuda_desc descs[RECS];
static _Atomic uint64_t launches;
static uint64_t settled, settled_next;	/* cuda_writers up to here are complete, and will be at the next look */
static _Atomic bool slept;	/* there was work before we looked */
static _Atomic bool blind;	/* kernels were launched that we did not look at */

#define SOON_NS 1000000

/* Once it was waited for in vain, nobody waits until it is free again. */
bool cuda_lock_soon(void)
{
	static _Atomic bool in_vain;
	struct timespec nap = { 0, 20000 };
	uint64_t until = now_ns() + SOON_NS;

	while (!lock_try(&cuda_lock)) {
		if (atomic_load(&in_vain) || now_ns() > until) {
			atomic_store(&in_vain, true);
			return false;
		}
		sys(SYS_nanosleep, &nap, NULL);
	}
	if (atomic_load(&in_vain))
		atomic_store(&in_vain, false);
	return true;
}

/* ---- on and off ---- */

bool cuda_allowed(void)
{
	return shim_tunables()->device && !cuda_unsafe_here();
}

void cuda_off(const char *why)
{
	cuda_veil_end();	/* while the hooks still look at what is left */
	if (atomic_exchange(&cuda_lane, LANE_OFF) == LANE_OFF)
		return;
	atomic_store(&cuda_sends, 0);
	atomic_store(&cuda_receives, 0);
	log_line(2, "device lane off: %s", why);
}

/* The driver's own end was registered when it began, so ours comes before it. */
static void at_exit(void)
{
	if (foreign_image())	/* a child that fork() does not know of */
		return;
	cuda_user->end();
	cuda_reads_end();
	cuda_windows_end();
	cuda_veil_end();
}

/* Registered here, where no lock is held: it may allocate, and the program's malloc() have a lock of its own. */
static const char *unfit(void)
{
	if (!cuda_bind())
		return reason_name(REASON_DEVICE_DRIVER);
	if (!cuda_hooks_proved())
		return reason_name(REASON_DEVICE_HOOKS);
	if (cuda_track_open(shim_tunables()->device == 2))
		return reason_name(REASON_DEVICE_TRACKING);
	return atexit(at_exit) ? reason_name(REASON_NO_MEMORY) : NULL;
}

/* No lock is held: the dynamic loader has one of its own, and runs programs' constructors under it. */
bool cuda_wake(void)
{
	static _Atomic bool waking;
	const char *why;

	if (!shim_on)
		return false;
	if (!shim_tunables()->device || atomic_exchange(&waking, true)) {
		atomic_store(&slept, true);	/* somebody's work goes by unseen */
		return false;
	}
	why = unfit();
	if (why) {
		cuda_off(why);
		return false;
	}
	cuda_site_open();
	if (shim_tunables()->device == 2 && !(cuda_track_guards() && cuda_veil_open()))
		log_line(2, "device lane: nothing is deferred: userfaultfd(2) for accesses by the kernel is not permitted");
	log_line(3, "device lane on");
	atomic_store(&cuda_lane, LANE_ON);
	return true;
}

bool cuda_capturing(CUstream st)
{
	int status = 0;

	return cu.cuStreamIsCapturing(st, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- what may write anywhere ---- */

#define BUSY 64
static struct busy { CUstream st; CUcontext ctx; long tid; } busy[BUSY];
static _Atomic uint64_t busy_gen = 1;	/* grows when one is taken out */
static bool busy_lost;			/* one that we know no more of */

uint64_t cuda_seq(void)
{
	return atomic_load(&launches) + __atomic_load_n(&cuda_writers, __ATOMIC_SEQ_CST);
}

static struct busy busy_key(CUstream st)
{
	struct busy b = { .st = st };

	if (st == CU_STREAM_LEGACY || st == CU_STREAM_PER_THREAD)
		cu.cuCtxGetCurrent(&b.ctx);
	if (st == CU_STREAM_PER_THREAD)
		b.tid = sys(SYS_gettid);
	return b;
}

static bool same(const struct busy *a, const struct busy *b) { return a->st == b->st && a->ctx == b->ctx && a->tid == b->tid; }

void cuda_launching(void) { atomic_fetch_add(&launches, 1); }

bool cuda_launch_unseen(void)
{
	if (!cuda_kernels_blind())
		return false;
	if (!atomic_load_explicit(&blind, memory_order_relaxed))
		atomic_store(&blind, true);
	return true;
}

/* Most launches go where the thread's last one went, and that is still in the table. */
void cuda_launched(CUstream st)
{
	static _Thread_local struct { struct busy key; uint64_t gen; } last __attribute__((tls_model("initial-exec")));
	struct busy b = busy_key(st);
	int at = -1;

	atomic_fetch_add(&launches, 1);
	if (last.gen == atomic_load(&busy_gen) && same(&last.key, &b))
		return;
	lock_take(&cuda_lock);
	for (int i = 0; i < BUSY && at < 0; i++)
		if (same(&busy[i], &b))
			at = i;
	for (int i = 0; i < BUSY && at < 0; i++)
		if (!busy[i].st)
			at = i;
	if (at >= 0) {
		busy[at] = b;
		last.key = b;
		last.gen = atomic_load(&busy_gen);
	} else {
		busy_lost = true;
	}
	lock_give(&cuda_lock);
}

static bool stream_idle(const struct busy *b)
{
	bool idle;
	int mode;

	if (b->tid && b->tid != sys(SYS_gettid))
		return false;
	cuda_enter(b->ctx, &mode);
	/* Work that is being captured does not run; asking about its stream would spoil the capture. */
	idle = cuda_capturing(b->st) || cu.cuStreamQuery(b->st) == CUDA_SUCCESS;
	cuda_leave(b->ctx, &mode);
	return idle;
}

bool cuda_busy(CUstream but)
{
	struct busy mine = busy_key(but);

	if (atomic_load(&slept) || (atomic_load(&blind) && !cuda_kernels_blind()) || busy_lost || settled != __atomic_load_n(&cuda_writers, __ATOMIC_SEQ_CST))
		return true;
	for (int i = 0; i < BUSY; i++) {
		if (!busy[i].st || same(&busy[i], &mine))
			continue;
		if (!stream_idle(&busy[i]))
			return true;
		busy[i].st = NULL;
		atomic_fetch_add(&busy_gen, 1);
	}
	return false;
}

void cuda_stream_gone(CUstream st)
{
	struct busy b = { .st = st };

	lock_take(&cuda_lock);
	for (int i = 0; i < BUSY; i++)
		if (same(&busy[i], &b)) {
			busy_lost |= !stream_idle(&b);
			busy[i].st = NULL;
			atomic_fetch_add(&busy_gen, 1);
		}
	cuda_rec_stream_gone(st);
	lock_give(&cuda_lock);
}

/* With several contexts, one that has finished says nothing of the others. */
void cuda_synced(uint64_t before)
{
	CUcontext ctx = NULL;
	int others = 0;

	cu.cuCtxGetCurrent(&ctx);
	lock_take(&cuda_lock);
	for (int i = 0; i < BUSY; i++)
		others += busy[i].st && busy[i].ctx && busy[i].ctx != ctx;
	for (int i = 0; i < RINGS; i++)
		others += cuda_rings[i].ctx && cuda_rings[i].ctx != ctx;
	if (!others) {
		/* Counted before it was called: the one before the last is surely in what has been waited for. */
		settled = settled_next;
		settled_next = before;
		busy_lost = false;
		atomic_store(&slept, false);
		atomic_store(&blind, false);
	}
	lock_give(&cuda_lock);
}

void cuda_touch(CUdeviceptr dst, size_t n)
{
	cuda_veil_fill((uintptr_t)dst, n);
	if (!atomic_load_explicit(&cuda_live, memory_order_relaxed))
		return;
	lock_take(&cuda_lock);
	cuda_drop_range((uintptr_t)dst, (uintptr_t)dst + n);
	lock_give(&cuda_lock);
}

struct cuda_pointer cuda_pointer(CUdeviceptr p)
{
	int what[] = { CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	struct cuda_pointer r = { NULL, 0, 0, -1 };
	void *to[] = { &r.ctx, &r.type, &r.managed, &r.device };

	if (cu.cuPointerGetAttributes(4, what, to, p))
		r.type = 0;
	return r;
}

bool cuda_device_writes(int ring, uintptr_t lo, size_t n)
{
	return cuda_rings[ring].hmm || cuda_pinned_before(lo, n) || cuda_pointer(lo).type || cuda_pointer(lo + n - 1).type;
}

/* ---- a copy to the host ---- */

/* Memory of a pool, or mapped by hand, is of no context. */
bool cuda_in_context(CUdeviceptr at, CUcontext ctx)
{
	struct cuda_pointer p = cuda_pointer(at);
	CUdevice dev;

	return cuda_on_device(p) && (p.ctx == ctx || (!p.ctx && !cu.cuCtxGetDevice(&dev) && dev == p.device));
}

/* Into pinned memory the device writes unseen by the page tables, so the watch starts before the copy, and nothing else may be
 * writing. Other memory is filled by the driver's stores: then it starts after the copy, but must be possible. */
static enum reason watch_first(struct cuda_rec *r, uintptr_t lo, size_t n, CUstream st)
{
	if (r->pinned && cuda_busy(st))
		return REASON_DEVICE_BUSY;
	if (r->veiled)
		return REASON_NONE;
	if (r->pinned ? !cuda_watch(r, lo, lo + n) : !cuda_track_pause(lo, lo + n))
		return REASON_DEVICE_UNWATCHED;
	return REASON_NONE;
}

static void rec_forget(int rec)
{
	struct cuda_rec *r = &cuda_recs[rec];

	r->lo = r->hi = 0;
	atomic_store(&r->pins, 0);
	__atomic_store_n(&r->state, REC_FREE, __ATOMIC_RELEASE);
}

/* Room and watch for a snapshot, *rec. cuda_lock held, capture mode relaxed. */
static enum reason snapshot_room(uintptr_t lo, size_t n, CUstream st, CUcontext ctx, int *rec)
{
	int ring = cuda_ring_of(ctx);
	struct cuda_rec *r;
	enum reason why;

	if (ring < 0 || cuda_paused)
		return REASON_DEVICE_MEMORY;
	if (!cuda_rings[ring].shared)
		return REASON_DEVICE_UNSHARED;
	*rec = cuda_rec_new(ring, n);
	if (*rec < 0)
		return REASON_DEVICE_MEMORY;
	r = &cuda_recs[*rec];
	r->pinned = cuda_device_writes(ring, lo, n);
	r->veiled = cuda_may_defer(r, lo, n);
	why = watch_first(r, lo, n, st);
	if (why) {
		rec_forget(*rec);
		*rec = -1;
		return why;
	}
	r->lo = lo;
	r->hi = lo + n;
	r->bytes = n;
	r->why = REASON_DEVICE_UNSENT;
	return REASON_NONE;
}

/* ... and the copy into it, without the lock: where the program's stream is full, it waits for what the
 * program does next. Nobody uses the record before it is live. */
static enum reason snapshot(uintptr_t lo, CUdeviceptr src, size_t n, CUstream st, CUcontext ctx, int *rec)
{
	enum reason why = snapshot_room(lo, n, st, ctx, rec);
	CUdeviceptr to;
	CUresult e;

	if (why)
		return why;
	to = cuda_rings[cuda_recs[*rec].ring].base + cuda_recs[*rec].off;
	lock_give(&cuda_lock);
	e = cu.cuMemcpyDtoDAsync_v2(to, src, n, st);
	lock_take(&cuda_lock);
	if (!e)
		return REASON_NONE;
	rec_forget(*rec);
	*rec = -1;
	return REASON_DEVICE_FAILED;
}

/* Why a copy of n bytes is not worth a closer look, or none. */
static enum reason dull(int site, size_t n)
{
	if (n < LANE_MIN)
		return REASON_DEVICE_SMALL;
	return cuda_site_dull(site) ? REASON_DEVICE_UNLEARNED : REASON_NONE;
}

static bool begin(void *dst, CUdeviceptr *src, size_t n, CUstream st, bool sync, struct cuda_from from, struct cuda_copy *c)
{
	uintptr_t lo = (uintptr_t)dst;
	CUcontext ctx = NULL;
	enum reason why;
	int mode;

	if (!atomic_load_explicit(&cuda_linked, memory_order_relaxed) || !cuda_allowed()) {
		cuda_touch(lo, n);
		return false;
	}
	*c = (struct cuda_copy){ .rec = -1, .site = cuda_site(from, n, false), .n = n, .sync = sync, .st = st };
	cuda_site_copy(c->site, lo, n);
	why = dull(c->site, n);
	if (why) {
		cuda_touch(lo, n);
		cuda_site_not(c->site, why, n);
		return false;
	}
	if (cu.cuCtxGetCurrent(&ctx) || !ctx || cuda_capturing(st)) {
		cuda_site_not(c->site, ctx ? REASON_DEVICE_CAPTURE : REASON_DEVICE_CONTEXT, n);
		return false;
	}
	cuda_user->settle();	/* their room may be needed */
	lock_take(&cuda_lock);
	cuda_drop_range(lo, lo + n);
	if (!cuda_expected(lo, n, c->site)) {
		why = REASON_DEVICE_UNLEARNED;
	} else if (!cuda_in_context(*src, ctx)) {
		why = REASON_DEVICE_CONTEXT;
	} else {
		cuda_enter(NULL, &mode);
		why = snapshot(lo, *src, n, st, ctx, &c->rec);
		cuda_leave(NULL, &mode);
	}
	if (c->rec >= 0) {
		cuda_recs[c->rec].site = (uint8_t)c->site;
		*src = cuda_rings[cuda_recs[c->rec].ring].base + cuda_recs[c->rec].off;
	}
	lock_give(&cuda_lock);
	TRACE3(staging_snapshot, lo, n, (int)(c->rec >= 0));
	if (c->rec >= 0)
		return true;
	log_line(4, "device lane: no snapshot of %lu bytes: %s", (unsigned long)n, reason_name(why));
	cuda_site_not(c->site, why, n);
	return false;
}

bool cuda_d2h_begin(void *dst, CUdeviceptr *src, size_t n, CUstream st, bool sync, struct cuda_from from, struct cuda_copy *c)
{
	bool snap = begin(dst, src, n, st, sync, from, c);

	if (snap)
		c->done = cuda_defer_copy(c, (uintptr_t)dst, n);
	if (!snap || !c->done)
		cuda_veil_fill((uintptr_t)dst, n);
	return snap;
}

void cuda_d2h_end(const struct cuda_copy *c, CUresult result)
{
	struct cuda_rec *r = &cuda_recs[c->rec];
	enum reason why = result == CUDA_SUCCESS ? REASON_NONE : REASON_DEVICE_FAILED;
	bool marked = true;
	uint64_t turn = 0;
	int mode;

	cuda_enter(NULL, &mode);
	if (!c->sync || why)
		marked = cuda_rec_record(r, c->st, &turn);
	cuda_leave(NULL, &mode);
	lock_take(&cuda_lock);
	if (marked && (!c->sync || why)) {
		cuda_rec_marked(r, c->st, turn);
	} else if (!marked) {
		/* We'll never know when its room is free. */
		cuda_rings[r->ring].bad = true;
		why = REASON_DEVICE_FAILED;
	}
	/* lo and hi are 0 if somebody wrote there meanwhile. */
	if (!why && r->hi && !r->pinned && !cuda_watch(r, r->lo, r->hi))
		why = REASON_DEVICE_UNWATCHED;
	if (why && r->hi)
		cuda_site_not(c->site, why, c->n);
	cuda_rec_live(c->rec, why ? 0 : r->lo, why ? 0 : r->hi, r->off);
	lock_give(&cuda_lock);
}

/* ---- a send ---- */

static bool complete(struct cuda_rec *r)
{
	int mode;

	if (!r->done) {
		cuda_enter(cuda_rings[r->ring].ctx, &mode);
		cuda_rec_ended(r);
		cuda_leave(cuda_rings[r->ring].ctx, &mode);
	}
	return r->done;
}

static void describe(int rec)
{
	struct cuda_rec *r = &cuda_recs[rec];
	struct cuda_ring *g = &cuda_rings[r->ring];
	struct cuda_desc *d = &descs[rec];

	*d = (struct cuda_desc){ .magic = CUDA_DESC_MAGIC, .ring_id = g->id, .ring_size = g->size, .ring_base = g->base,
		.host = r->lo, .off = r->data, .len = r->hi - r->lo };
	memcpy(d->ipc, &g->ipc, sizeof d->ipc);
	memcpy(d->uuid, &g->uuid, sizeof d->uuid);
}

/* A buffer that is written while it goes out part by part, as sums are, is found out after a fourth of it: the rest need not fault. */
static bool still_worth(struct cuda_rec *r)
{
	if (r->used - r->judged < (r->hi - r->lo) / 4)
		return true;
	r->judged = r->used;
	cuda_judge(r);
	return r->hi != 0;
}

bool cuda_find(const void *p, size_t n, struct cuda_ref *ret)
{
	uintptr_t at = (uintptr_t)p, next, end = at + n;
	struct cuda_rec *r = NULL;
	size_t len = 0;
	int rec;

	*ret = (struct cuda_ref){ .len = n, .rec = -1 };
	if (!cuda_allowed() || !cuda_lock_soon())
		return false;
	cuda_sending(at);
	rec = cuda_rec_at(at, end, &next);
	if (rec >= 0) {
		r = &cuda_recs[rec];
		if (!complete(r) || r->pins == UINT8_MAX) {
			r->why = REASON_DEVICE_EARLY;
			next = r->hi < end ? r->hi : end;
		} else if (still_worth(r)) {
			bool pinned;

			len = cuda_rec_true(r, at, end, &next, &pinned);
			r->why = pinned ? REASON_DEVICE_UNWATCHED : len < LANE_MIN ? REASON_DEVICE_WRITTEN : REASON_DEVICE_NOT_TAKEN;
			r->sent |= len >= LANE_MIN;
			if (!len)
				cuda_judge(r);
		}
	}
	if (len >= LANE_MIN) {
		if (!r->pins)
			describe(rec);
		r->pins++;
		*ret = (struct cuda_ref){ (uint64_t)(uintptr_t)&descs[rec], descs[rec].ring_id, r->data + (at - r->lo), len, rec, r->veiled };
	} else {
		ret->len = len ? len : next - at;
	}
	lock_give(&cuda_lock);
	return ret->rec >= 0;
}

void cuda_ref_why(const struct cuda_ref *ref, int reason, bool soon)
{
	atomic_store(&cuda_recs[ref->rec].why, (uint8_t)reason);
	atomic_store(&cuda_recs[ref->rec].early, soon);
}

/* Its pin keeps the record what it is: no lock. */
static void used(const struct cuda_ref *ref)
{
	atomic_fetch_add(&cuda_recs[ref->rec].used, ref->len);
	cuda_site_taken(cuda_recs[ref->rec].site, ref->len);
}

void cuda_ref_used(const struct cuda_ref *ref)
{
	used(ref);
}

void cuda_unref(const struct cuda_ref *ref, bool taken)
{
	if (taken)
		used(ref);
	atomic_fetch_sub(&cuda_recs[ref->rec].pins, 1);
}

#define READ_FOR_NS 10000000000ull	/* a copy that was put into a stream of a device so long ago has ended */

void cuda_unref_late(const struct cuda_ref *ref)
{
	atomic_store(&cuda_recs[ref->rec].hold_ns, now_ns() + READ_FOR_NS);
	atomic_fetch_sub(&cuda_recs[ref->rec].pins, 1);
}

/* ---- ends ---- */

bool cuda_paused, cuda_closing;
_Atomic unsigned cuda_reading;
_Atomic bool cuda_ended;

/* What is under way uses the context: it is short. What is on the way to another host is kept. */
void cuda_pause(bool on)
{
	bool any = on;

	lock_take(&cuda_lock);
	cuda_paused = on;
	cuda_closing = false;
	lock_give(&cuda_lock);
	if (on && !atomic_load(&cuda_ended))
		cuda_user->save();
	for (int naps = 0; any && naps < 1000; naps++) {
		struct timespec nap = { 0, 1000000 };

		lock_take(&cuda_lock);
		any = cuda_reading != 0;
		for (int i = 0; i < RECS; i++)
			any |= cuda_recs[i].pins != 0;
		lock_give(&cuda_lock);
		if (any)
			sys(SYS_nanosleep, &nap, NULL);
	}
	lock_take(&cuda_lock);
	cuda_closing = on;
	lock_give(&cuda_lock);
}

void cuda_context_gone(void)
{
	int was = atomic_load(&cuda_lane);

	if (was == LANE_ASLEEP)
		return;
	if (was == LANE_ON)
		cuda_off("the program ends a CUDA context");
	if (cuda_paused)	/* it has ended already: what could be kept was, before */
		atomic_store(&cuda_ended, true);
	cuda_pause(true);
	atomic_store(&cuda_ended, true);
}

/* A child shares what is mapped shared, and writes there unseen. */
void cuda_before_fork(void)
{
	lock_take(&cuda_lock);
	cuda_veil_fill_all();
	if (atomic_load(&cuda_live))
		cuda_drop_range(0, UINTPTR_MAX);
}

void cuda_after_fork(bool child)
{
	cuda_track_fork(child);
	lock_give(&cuda_lock);
	if (child && atomic_load(&cuda_lane) == LANE_ON) {	/* the driver does not work in here */
		cuda_veil_after_fork();
		cuda_user->forked();
		memset(cuda_recs, 0, sizeof cuda_recs);
		cuda_reading = 0;
		atomic_store(&cuda_live, 0);
		cuda_off("in a forked child");
	}
}
