/*
 * busy.c - see busy.h.
 *
 * Lock: gpu_lock for the table of streams.
 */
#include "gpu/busy.h"

#include "base/shim.h"
#include "base/sys.h"
#include "gpu/state.h"

static _Atomic uint64_t launches;
/* gpu_writers up to here are complete, and will be at the next look */
static uint64_t settled, settled_next;
static _Atomic bool slept;	/* there was work before we looked */
static _Atomic bool blind;	/* kernels were launched that we did not look at */

__attribute__((visibility("hidden"), used)) uint64_t gpu_writers;

void gpu_busy_unseen(void) { atomic_store(&slept, true); }

static bool kernels_blind(void)
{
	return shim_tunables()->device == 2 && shim_tunables()->alias == 1;
}

#define BUSY 64
static struct busy { gpu_stream st; gpu_ctx ctx; long tid; } busy[BUSY];
static _Atomic uint64_t busy_gen = 1;	/* grows when one is taken out */
static bool busy_lost;			/* one that we know no more of */

uint64_t gpu_seq(void)
{
	return atomic_load(&launches) + __atomic_load_n(&gpu_writers, __ATOMIC_SEQ_CST);
}

static struct busy busy_key(gpu_stream st)
{
	struct busy b = { .st = st };

	if (st == GPU_STREAM_CTX || st == GPU_STREAM_THREAD)
		b.ctx = gpu->current();
	if (st == GPU_STREAM_THREAD)
		b.tid = sys(SYS_gettid);
	return b;
}

static bool same(const struct busy *a, const struct busy *b)
{
	return a->st == b->st && a->ctx == b->ctx && a->tid == b->tid;
}

void gpu_launching(void) { atomic_fetch_add(&launches, 1); }

bool gpu_launch_unseen(void)
{
	if (!kernels_blind())
		return false;
	if (!atomic_load_explicit(&blind, memory_order_relaxed))
		atomic_store(&blind, true);
	return true;
}

/* Most launches go where the thread's last one went, and that is still in the table. */
void gpu_launched(gpu_stream st)
{
	static _Thread_local struct { struct busy key; uint64_t gen;
				      } last __attribute__((tls_model("initial-exec")));
	struct busy b = busy_key(st);
	int at = -1;

	atomic_fetch_add(&launches, 1);
	if (last.gen == atomic_load(&busy_gen) && same(&last.key, &b))
		return;
	lock_take(&gpu_lock);
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
	lock_give(&gpu_lock);
}

static bool stream_idle(const struct busy *b)
{
	bool idle;
	int mode;

	if (b->tid && b->tid != sys(SYS_gettid))
		return false;
	gpu->enter(b->ctx, &mode);
	/* Work that is being captured does not run; asking about its stream would spoil the
	 * capture. */
	idle = gpu->capturing(b->st) || gpu->idle(b->st);
	gpu->leave(b->ctx, &mode);
	return idle;
}

bool gpu_busy(gpu_stream but)
{
	struct busy mine = busy_key(but);

	if (atomic_load(&slept) || (atomic_load(&blind) && !kernels_blind()) || busy_lost ||
	    settled != __atomic_load_n(&gpu_writers, __ATOMIC_SEQ_CST))
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

bool gpu_busy_in(const gpu_ctx but)
{
	for (int i = 0; i < BUSY; i++)
		if (busy[i].st && busy[i].ctx && busy[i].ctx != but)
			return true;
	return false;
}

void gpu_busy_gone(gpu_stream st)
{
	struct busy b = { .st = st };

	for (int i = 0; i < BUSY; i++)
		if (same(&busy[i], &b)) {
			busy_lost |= !stream_idle(&b);
			busy[i].st = NULL;
			atomic_fetch_add(&busy_gen, 1);
		}
}

/* Counted before it was called: the one before the last is surely in what has been waited for. */
void gpu_busy_settled(uint64_t before)
{
	settled = settled_next;
	settled_next = before;
	busy_lost = false;
	atomic_store(&slept, false);
	atomic_store(&blind, false);
}
