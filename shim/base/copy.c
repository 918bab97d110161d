/*
 * copy.c - see copy.h.
 *
 * A copy that is shared is a number of chunks. `ticket` has the copy's number, how many chunks
 * it has and the next one that nobody has taken; a chunk is taken by compare-and-swap of all
 * three, so who succeeds knows that `job` is this copy's: the caller changes it only when all
 * chunks are taken and done. A helper that comes late finds no chunk, and the caller has lost
 * nothing.
 */
#include "base/copy.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/copy_rule.h"
#include "base/lock.h"
#include "base/loop.h"
#include "base/own_thread.h"
#include "base/shim.h"
#include "base/sys.h"
#include "policy/log.h"

#define CHUNK       32768u
#define CHUNKS_MAX  0xffffu
#define POLL_NS     100000	/* a call's next copy comes sooner */
#define YIELD_NS    5000
#define CROWDED_NS  1500	/* a yield that takes longer: somebody else has use for this CPU */
#define IDLE_S      1

static _Alignas(64) _Atomic uint64_t ticket;	/* copy's number << 32 | chunks << 16 | next
						 * chunk */
static _Alignas(64) _Atomic uint32_t undone;	/* chunks */
static _Alignas(64) struct { char *dst; const char *src; size_t n; } job;
static struct lock job_lock;			/* only ever tried */

static _Alignas(64) _Atomic uint32_t calls;	/* futex of those who sleep */
static _Atomic uint32_t sleepers, running, asked;
static _Atomic bool quit;
/* a value of copy_threads for which there was none */
static _Atomic uint64_t refused;
static struct copy_rule rule;

unsigned copy_running(void) { return atomic_load(&running); }

static inline bool chunk_left(uint64_t t) { return (t & 0xffff) < (t >> 16 & 0xffff); }

/* Copies one chunk. False: there is none. */
static bool one_chunk(void)
{
	uint64_t t = atomic_load_explicit(&ticket, memory_order_acquire);
	size_t at, n;

	do
		if (!chunk_left(t))
			return false;
	while (!atomic_compare_exchange_weak_explicit(&ticket, &t, t + 1, memory_order_acquire,
						      memory_order_acquire));
	at = (t & 0xffff) * CHUNK;
	n = job.n - at < CHUNK ? job.n - at : CHUNK;
	memcpy(job.dst + at, job.src + at, n);
	atomic_fetch_sub_explicit(&undone, 1, memory_order_release);
	return true;
}

/* Another thread has a chunk still; perhaps it is this CPU that it needs. */
static void wait_done(void)
{
	uint64_t yielded = now_ns();

	while (atomic_load_explicit(&undone, memory_order_acquire)) {
		arch_pause();
		if (now_ns() - yielded > YIELD_NS) {
			sys(SYS_sched_yield);
			yielded = now_ns();
		}
	}
}

static void wake(void)
{
	atomic_fetch_add(&calls, 1);
	sys(SYS_futex, &calls, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

void *copy_shared(void *dst, const void *src, size_t n)
{
	uint64_t chunks = (n + CHUNK - 1) / CHUNK, number;

	if (n < COPY_SHARE_MIN || chunks > CHUNKS_MAX ||
	    !atomic_load_explicit(&running, memory_order_relaxed) || !lock_word_try(&job_lock))
		return memcpy(dst, src, n);
	job.dst = dst;
	job.src = src;
	job.n = n;
	atomic_store_explicit(&undone, (uint32_t)chunks, memory_order_relaxed);
	number = (atomic_load_explicit(&ticket, memory_order_relaxed) >> 32) + 1;
	atomic_store_explicit(&ticket, number << 32 | chunks << 16, memory_order_release);
	if (atomic_load_explicit(&sleepers, memory_order_relaxed))
		wake();
	while (one_chunk())
		;
	wait_done();
	atomic_store_explicit(&job_lock.v, 0, memory_order_release);
	return dst;
}

static void ask(uint64_t want)
{
	if (atomic_load(&refused) != want && !atomic_load(&quit) && !atomic_exchange(&asked, 1))
		loop_kick();
}

unsigned copy_threads_for(size_t left)
{
	uint64_t want = shim_tunables()->copy_threads;
	unsigned n;

	if (left < COPY_CALL_MIN || !want)
		return 1;
	n = atomic_load_explicit(&running, memory_order_relaxed);
	if (!n && want != COPY_THREADS_AUTO)
		ask(want);
	return 1 + n;
}

void copy_done(size_t n)
{
	if (n >= COPY_SHARE_MIN && shim_tunables()->copy_threads == COPY_THREADS_AUTO &&
	    !atomic_load_explicit(&running, memory_order_relaxed) &&
	    copy_rule_moved(&rule, n, now_ns()))
		ask(COPY_THREADS_AUTO);
}

/* ---- the threads ---- */

/* Takes chunks until there was none for a while. False: others need the CPU. */
static bool serve(void)
{
	uint64_t now = now_ns(), end = now + POLL_NS, yield = now + YIELD_NS;

	while (now < end && !atomic_load_explicit(&quit, memory_order_relaxed)) {
		if (one_chunk()) {
			now = now_ns();
			end = now + POLL_NS;
			continue;
		}
		arch_pause();
		now = now_ns();
		if (now >= yield) {
			sys(SYS_sched_yield);
			yield = now_ns();
			if (yield - now > CROWDED_NS)
				return false;
			yield += YIELD_NS;
		}
	}
	return true;
}

/* False: nobody came for long. */
static bool sleep_for_call(void)
{
	struct timespec t = { IDLE_S, 0 };
	uint32_t seen = atomic_load(&calls);
	long r = 0;

	atomic_fetch_add(&sleepers, 1);
	if (!chunk_left(atomic_load(&ticket)) && !atomic_load(&quit))
		r = sys(SYS_futex, &calls, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, &t, NULL, 0);
	atomic_fetch_sub(&sleepers, 1);
	return r != -ETIMEDOUT;
}

/* A helper has had its turn. Does it stay? *crowd: how many more of its turns others ended. */
static bool stays(uintptr_t me, bool alone, unsigned *crowd)
{
	uint64_t most = shim_tunables()->copy_threads;

	*crowd = !alone ? *crowd + 1 : *crowd ? *crowd - 1 : 0;
	if (*crowd == COPY_RULE_CROWD && most == COPY_THREADS_AUTO) {
		copy_rule_crowded(&rule, now_ns());
		return false;
	}
	return !atomic_load(&quit) && me < most && sleep_for_call();
}

static void *help(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	unsigned crowd = 0;

	own_thread_begins();
	sys(SYS_prctl, 15 /* PR_SET_NAME */, "rdmashim-copy", 0, 0, 0);
	while (stays(me, serve(), &crowd))
		;
	atomic_fetch_sub(&running, 1);
	own_thread_ends();
	return NULL;
}

/* The CPUs of the program's main thread: that of the background thread, which begot us, may be
 * of a thread that was tied to one. */
static unsigned cpus(cpu_set_t *set)
{
	long pid = sys(SYS_getpid);

	CPU_ZERO(set);		/* the call writes as many bytes as the kernel has processors */
	return sys(SYS_sched_getaffinity, pid, sizeof *set, set) > 0 ? (unsigned)CPU_COUNT(set) : 0;
}

/* How many are begun, of what the policy permits. */
static unsigned helpers(unsigned most)
{
	uint64_t n = shim_tunables()->copy_threads;

	if (n == COPY_THREADS_AUTO) {
		n = copy_rule_helpers(most, tasks_runnable(), cpu_limited());
		if (most < COPY_RULE_CPUS)
			atomic_store(&refused, COPY_THREADS_AUTO);
		if (!n)
			copy_rule_crowded(&rule, now_ns());
		return (unsigned)n;
	}
	if (most < 2)
		atomic_store(&refused, n);
	most /= 2;		/* who sends and who receives have work of their own */
	if (n > most) {
		log_line(2, "copy_threads %u: only %u, there are too few processors for more",
			 (unsigned)n, most);
		n = most;
	}
	return (unsigned)n;
}

void copy_start(void)
{
	cpu_set_t set;
	unsigned n;

	if (!atomic_load(&asked) || atomic_load(&running) || atomic_load(&quit))
		return;
	n = helpers(cpus(&set));
	for (uintptr_t i = 0; i < n; i++) {
		atomic_fetch_add(&running, 1);
		if (own_thread(help, (void *)i, &set)) {
			atomic_fetch_sub(&running, 1);
			atomic_store(&refused, shim_tunables()->copy_threads);
			break;
		}
	}
	atomic_store(&asked, 0);
}

void copy_quit(void)
{
	atomic_store(&quit, true);
	wake();
}

void copy_resume(void) { atomic_store(&quit, false); }

void copy_after_fork(void)
{
	atomic_store(&running, 0);
	atomic_store(&sleepers, 0);
	atomic_store(&asked, 0);
	atomic_store(&undone, 0);
	atomic_store(&ticket, 0);
	atomic_store(&job_lock.v, 0);
	atomic_store(&quit, false);
	atomic_store(&refused, 0);
}
