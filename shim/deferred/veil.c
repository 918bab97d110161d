/*
 * veil.c - pages of the program's pinned memory whose bytes are still in device memory of ours:
 * the lazy GPU path's veils, and the thread that lifts them for whoever touches one
 * (docs/gpu.md).
 *
 * A page is under a veil if and only if it is in the table. Then it is in no page table of this
 * process, and only fill() puts it there, after it has copied the bytes. So nothing that a CPU
 * stores can be lost to a fill, and what a device would read or write itself must be filled
 * before it starts (veils_fill()).
 *
 * A fill waits for copies on streams of ours, of bytes that are complete in our ring or in a
 * peer's: for nothing of the program's. The driver is called for it with veil_lock held, by the
 * lifting thread and by callers of the hooks.
 *
 * Lock: veil_lock, after gpu_lock; a leaf, but it is held while that copy is waited for. The
 * lifting thread takes no other.
 */
#include "deferred/veil.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/own_thread.h"
#include "base/shim.h"
#include "base/sys.h"
#include "gpu/deferred.h"
#include "gpu/range.h"
#include "gpu/state.h"
#include "gpu/track.h"
#include "policy/log.h"

#define PAGE arch_page()
#define VEILS 128
/* Filled at the first touch of a veil; four times as much at each further one, and a part of
 * that before the place, for who looks from the end to the beginning. To hide a page again that
 * was shown costs its place in the TLB, some 4 us where a hypervisor does it, to fault again 20. */
#define STEP_FIRST (2 * PAGE)
#define STEP_BACK  4

static struct veil {
	uintptr_t lo, hi;	/* whole pages; hi 0: free */
	struct gpu_range *range;	/* whose room in the ring holds them */
	uint64_t data;		/* where in the ring the byte at lo is */
	uint64_t age;
	size_t step;
} veils[VEILS];
static struct lock veil_lock;
static bool closed = true;
/* process: a child of clone() has the table, but other page tables */
static int owner;
/* around all veils that there are, and perhaps some that were */
static _Atomic uintptr_t all_lo, all_hi;
static uint64_t next_age;
static uint64_t put_bytes, put_times, touch_bytes, hook_bytes, room_bytes;	/* for the log */

/* ---- the table; veil_lock held ---- */

static bool mine(void) { return sys(SYS_getpid) == owner; }

static struct veil *free_one(void)
{
	for (int i = 0; i < VEILS; i++)
		if (!veils[i].hi)
			return &veils[i];
	return NULL;
}

static struct veil *veil_over(uintptr_t lo, uintptr_t hi)
{
	for (int i = 0; i < VEILS; i++)
		if (veils[i].lo < hi && lo < veils[i].hi)
			return &veils[i];
	return NULL;
}

/* Is p under a veil? *end: as far as that is so, hi at most. */
static bool veil_at(uintptr_t p, uintptr_t hi, uintptr_t *end)
{
	*end = hi;
	for (int i = 0; i < VEILS; i++) {
		struct veil *v = &veils[i];

		if (v->lo <= p && p < v->hi) {
			*end = v->hi < hi ? v->hi : hi;
			return true;
		}
		if (v->hi && v->lo > p && v->lo < *end)
			*end = v->lo;
	}
	return false;
}

/* [lo, hi), all of it under v, is under no veil any more. If it is in the middle there must be a
 * free one. */
static void take_out(struct veil *v, uintptr_t lo, uintptr_t hi)
{
	if (lo > v->lo && hi < v->hi) {
		struct veil *w = free_one();

		*w = *v;
		w->data += hi - v->lo;
		w->lo = hi;
		v->hi = lo;
		atomic_fetch_add(&v->range->veils, 1);
		atomic_fetch_add(&gpu_veils, 1);
	} else if (lo > v->lo) {
		v->hi = lo;
	} else if (hi < v->hi) {
		v->data += hi - v->lo;
		v->lo = hi;
	} else {
		v->lo = v->hi = 0;
		atomic_fetch_sub(&v->range->veils, 1);
		atomic_fetch_sub(&gpu_veils, 1);
	}
}

/* The bytes from the ring to the pages. */
static gpu_result bring(struct veil *v, uintptr_t lo, uintptr_t hi)
{
	struct gpu_range *range = v->range;
	struct gpu_ring *g = &gpu_rings[range->ring];
	gpu_result r = 0;
	int mode;

	gpu->enter(g->ctx, &mode);
	if (range->coming)
		r = gpu->wait_event(g->fill, range->in);
	if (!r)
		r = gpu->to_host((void *)lo, g->base + v->data + (lo - v->lo), hi - lo, g->fill);
	if (!r)
		r = gpu->wait(g->fill);
	gpu->leave(g->ctx, &mode);
	return r;
}

/* Makes [lo, hi), all of it under v, true: or more of it. */
static gpu_result fill(struct veil *v, uintptr_t lo, uintptr_t hi)
{
	gpu_result r;

	if (lo > v->lo && hi < v->hi && !free_one())
		hi = v->hi;
	r = bring(v, lo, hi);
	take_out(v, lo, hi);
	if (!r) {
		gpu_track_show(lo, hi, true);
	} else {
		log_line(1, "GPU path: %lu bytes that were only on the device are lost: "
			 "%s error %d", (unsigned long)(hi - lo), gpu->name, r);
		gpu_track_poison(lo, hi);
	}
	return r;
}

static gpu_result fill_range(uintptr_t lo, uintptr_t hi, uint64_t *count)
{
	gpu_result r = 0, one;
	struct veil *v;

	while ((v = veil_over(lo, hi))) {
		uintptr_t from = lo > v->lo ? lo : v->lo, to = hi < v->hi ? hi : v->hi;

		atomic_fetch_add(&v->range->touched, to - from);
		*count += to - from;
		one = fill(v, from, to);
		r = r ? r : one;
	}
	return r;
}

/* ---- for the hooks ---- */

gpu_result veils_fill(uintptr_t lo, size_t n)
{
	uintptr_t hi = (lo + n + PAGE - 1) & ~(PAGE - 1);
	gpu_result r;

	if (hi < lo)		/* an extent that cannot be */
		hi = UINTPTR_MAX;
	if (hi <= atomic_load(&all_lo) || lo >= atomic_load(&all_hi) || !mine())
		return 0;
	lock_take(&veil_lock);
	r = fill_range(lo & ~(PAGE - 1), hi, &hook_bytes);
	lock_give(&veil_lock);
	return r;
}

void veils_forget(uintptr_t lo, size_t n)
{
	struct veil *v;

	if (!mine())
		return;
	lock_take(&veil_lock);
	while ((v = veil_over(lo, lo + n)))
		take_out(v, v->lo, v->hi);
	lock_give(&veil_lock);
}

void veils_leave_room(struct gpu_range *r)
{
	lock_take(&veil_lock);
	for (int i = 0; i < VEILS; i++)
		if (veils[i].hi && veils[i].range == r) {
			room_bytes += veils[i].hi - veils[i].lo;
			fill(&veils[i], veils[i].lo, veils[i].hi);
		}
	lock_give(&veil_lock);
}

bool veils_at(uintptr_t p, uintptr_t hi, uintptr_t *end)
{
	bool under;

	lock_take(&veil_lock);
	under = veil_at(p, hi, end);
	lock_give(&veil_lock);
	return under;
}

static int free_veils(void)
{
	int n = 0;

	for (int i = 0; i < VEILS; i++)
		n += !veils[i].hi;
	return n;
}

static struct veil *oldest(void)
{
	struct veil *v = NULL;

	for (int i = 0; i < VEILS; i++)
		if (veils[i].hi && (!v || veils[i].age < v->age))
			v = &veils[i];
	return v;
}

/*
 * Who touches a page sleeps until the lifting thread has filled it. On another CPU, idle until
 * then, that costs two wake-ups, on a virtual machine 20 us of them; on its own, which is free
 * while it sleeps, two switches. Where a thread looks at what it has received itself the place
 * is known beforehand. Where others look that CPU may be busy: then the thread is free to go
 * anywhere.
 */
static struct {
	_Atomic int tid;	/* of the lifting thread */
	_Atomic int putter;	/* who has put the last veil */
	_Atomic bool follow;	/* ... and looks at it, too */
	int cpu;		/* the lifting thread's only one, or -1. veil_lock */
	cpu_set_t any;
} lifter = { .cpu = -1 };

static void lifter_goes(int cpu)
{
	cpu_set_t one;

	if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &lifter.any))
		cpu = -1;
	if (cpu == lifter.cpu || !atomic_load(&lifter.tid))
		return;
	CPU_ZERO(&one);
	if (cpu >= 0)
		CPU_SET(cpu, &one);
	if (sys(SYS_sched_setaffinity, atomic_load(&lifter.tid), sizeof one, cpu < 0 ? &lifter.any
		: &one) >= 0)
		lifter.cpu = cpu;
}

/* A veil is being put. */
static void lifter_follows(void)
{
	static _Thread_local int tid __attribute__((tls_model("initial-exec")));

	if (!tid)
		tid = (int)sys(SYS_gettid);
	atomic_store_explicit(&lifter.putter, tid, memory_order_relaxed);
	if (atomic_load_explicit(&lifter.follow, memory_order_relaxed))
		lifter_goes(sched_getcpu());
}

/* `tid` has touched one. */
static void lifter_learns(int tid)
{
	bool same = tid == atomic_load_explicit(&lifter.putter, memory_order_relaxed);

	atomic_store_explicit(&lifter.follow, same, memory_order_relaxed);
	if (!same)
		lifter_goes(-1);
}

/* What is under a veil is hidden already, unless other memory is there by now. To look at a
 * range, and to hide it, costs by its length. */
static bool hide(uintptr_t lo, uintptr_t hi)
{
	uintptr_t end;

	for (uintptr_t at = lo; at < hi; at = end)
		if (!(veil_at(at, hi, &end) ? gpu_track_hidden(at, end) : gpu_track_hide(at,
			end)))
			return gpu_track_hide(lo, hi);
	return true;
}

bool veil_put(struct gpu_range *r, uintptr_t lo, uintptr_t hi, uint64_t data)
{
	bool ok = mine();
	struct veil *v;

	lock_take(&veil_lock);
	lifter_follows();
	ok = ok && !closed;
	/* one for this, one for an older one that it splits */
	while (ok && free_veils() < 2) {
		v = oldest();
		room_bytes += v->hi - v->lo;
		fill(v, v->lo, v->hi);
	}
	ok = ok && hide(lo, hi);
	if (ok) {
		while ((v = veil_over(lo, hi)))
			take_out(v, lo > v->lo ? lo : v->lo, hi < v->hi ? hi : v->hi);
		if (!atomic_load(&gpu_veils) || lo < atomic_load(&all_lo))
			atomic_store(&all_lo, lo);
		if (!atomic_load(&gpu_veils) || hi > atomic_load(&all_hi))
			atomic_store(&all_hi, hi);
		*free_one() = (struct veil){ lo, hi, r, data, next_age++, STEP_FIRST };
		atomic_fetch_add(&r->veils, 1);
		atomic_store(&r->touched, 0);
		atomic_fetch_add(&gpu_veils, 1);
		put_bytes += hi - lo;
		put_times++;
	}
	lock_give(&veil_lock);
	return ok;
}

/* ---- the lifting thread ---- */

static void touched(uintptr_t at, int tid)
{
	struct veil *v;

	lock_take(&veil_lock);
	lifter_learns(tid);
	v = veil_over(at, at + PAGE);
	if (v) {
		size_t back = v->step == STEP_FIRST ? 0 : v->step / STEP_BACK;
		uintptr_t lo = at - v->lo > back ? at - back : v->lo;
		uintptr_t hi = v->hi - at > v->step ? at + v->step : v->hi;

		v->step *= v->step < (1ul << 30) ? 4 : 1;
		fill_range(lo, hi, &touch_bytes);
	} else {
		/* Filled meanwhile, or it left the page tables in another way: what it holds is
		 * true, but perhaps written. */
		gpu_track_show(at, at + PAGE, false);
	}
	lock_give(&veil_lock);
}

static void *lift(void *arg)
{
	uintptr_t at = 0;
	int tid = 0;

	(void)arg;
	own_thread_begins();
	if (sys(SYS_sched_getaffinity, 0, sizeof lifter.any, &lifter.any) >= 0)
		atomic_store(&lifter.tid, (int)sys(SYS_gettid));
	for (;;) {
		switch (gpu_track_event(&at, &tid)) {
		case GPU_VEIL_EVENT_TOUCH:
			touched(at, tid);
			break;
		/* a child of fork() and its like waits at what was veiled until its userfaultfd
		 * is gone */
		case GPU_VEIL_EVENT_FORK:
			gpu_veil_fill_all();
			gpu_track_forked((int)at);
			break;
		/* under new addresses, in no table: so they must hold what is true */
		case GPU_VEIL_EVENT_MOVE:
			gpu_veil_fill_all();
			break;
		case GPU_VEIL_EVENT_END:
			own_thread_ends();
			return NULL;
		}
	}
}

/* ---- begin and end ---- */

bool veils_open(void)
{
	owner = (int)sys(SYS_getpid);
	if (own_thread(lift, NULL, NULL) == 0)
		closed = false;
	else
		gpu_track_unguard();
	return !closed;
}

void veils_end(void)
{
	if (closed || !mine())
		return;
	lock_take(&veil_lock);
	closed = true;
	log_line(3, "GPU path: %lu copies and receives of %lu bytes were deferred; %lu bytes "
		 "filled when touched, %lu for the driver, %lu for room",
		 (unsigned long)put_times, (unsigned long)put_bytes, (unsigned long)touch_bytes,
			 (unsigned long)hook_bytes,
		 (unsigned long)room_bytes);
	fill_range(0, UINTPTR_MAX, &room_bytes);
	lock_give(&veil_lock);
}

void veils_after_fork(void)
{
	atomic_store(&veil_lock.v, 0);
	memset(veils, 0, sizeof veils);
	for (int i = 0; i < RANGES; i++)
		atomic_store(&gpu_ranges[i].veils, 0);
	atomic_store(&gpu_veils, 0);
	closed = true;
	atomic_store(&lifter.follow, false);
	lifter.cpu = -1;
}
