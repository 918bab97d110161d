/* lock.c - the contended way into a lock, and the end of a critical section that put signals
 * off; see lock.h. */
#include "base/lock.h"

#include <limits.h>
#include <signal.h>
#include <time.h>

#include "base/shim.h"

_Thread_local struct thread_signals thread_signals;
_Atomic uint32_t lock_sleepers;

static bool is_free(uint32_t v, uint32_t as)
{
	return !(v & LOCK_HELD) && !(v & LOCK_SHUT && as & LOCK_MEM);
}

/* v is what it was. */
static bool step(struct lock *l, uint32_t v, uint32_t to)
{
	return atomic_compare_exchange_strong_explicit(&l->v, &v, to, memory_order_acquire,
						       memory_order_relaxed);
}

static bool spin(struct lock *l, uint32_t as)
{
	for (int i = 0; i < 100; i++) {
		uint32_t v = atomic_load_explicit(&l->v, memory_order_relaxed);

		if (is_free(v, as) && step(l, v, v | as))
			return true;
		arch_pause();
	}
	return false;
}

/* Whoever has slept does not know who else does. */
static bool take(struct lock *l, uint32_t v, uint32_t as)
{
	return is_free(v, as) && step(l, v, v | as | LOCK_SLEEPS);
}

static void sleep_on(struct lock *l, uint32_t v, const struct timespec *t)
{
	if (v & LOCK_SLEEPS || step(l, v, v | LOCK_SLEEPS))
		sys(SYS_futex, &l->v, FUTEX_WAIT, v | LOCK_SLEEPS, t, NULL, 0);
}

void lock_slow(struct lock *l, uint32_t as)
{
	uint32_t v;

	if (spin(l, as))
		return;
	atomic_fetch_add(&lock_sleepers, 1);
	while (!take(l, v = atomic_load(&l->v), as))
		if (!is_free(v, as))
			sleep_on(l, v, NULL);
	atomic_fetch_sub(&lock_sleepers, 1);
}

bool lock_take_soon(struct lock *l, uint64_t end_ns)
{
	uint32_t v;
	bool got;

	critical_enter();
	if (lock_word_try(l) || spin(l, LOCK_HELD))
		return true;
	atomic_fetch_add(&lock_sleepers, 1);
	while (!(got = take(l, v = atomic_load(&l->v), LOCK_HELD))) {
		uint64_t now = v & LOCK_MEM ? now_ns() : 0;
		struct timespec t = { 0, 1000000 };

		if (is_free(v, LOCK_HELD))
			continue;
		/* whoever slept and leaves may have been woken in another's place */
		if (v & LOCK_MEM && now >= end_ns) {
			if (v & LOCK_SLEEPS || step(l, v, v | LOCK_SLEEPS))
				break;
			continue;
		}
		if (v & LOCK_MEM && end_ns - now < 1000000)
			t.tv_nsec = (long)(end_ns - now);
		sleep_on(l, v, &t);	/* who has it then may be the other kind */
	}
	atomic_fetch_sub(&lock_sleepers, 1);
	if (!got)
		critical_leave();
	return got;
}

static void wake(struct lock *l, int n)
{
	sys(SYS_futex, &l->v, FUTEX_WAKE, n, NULL, NULL, 0);
}

void lock_give_and_shut(struct lock *l)
{
	if (atomic_exchange(&l->v, LOCK_SHUT) & LOCK_SLEEPS)
		wake(l, INT_MAX);
	critical_leave();
}

void lock_open(struct lock *l)
{
	/* the memory may be free, and its page gone */
	if (atomic_load(&l->v) & LOCK_SHUT && atomic_fetch_and(&l->v, ~LOCK_SHUT) & LOCK_SLEEPS)
		wake(l, 1);
}

/* They wait in the kernel: it runs their handlers as soon as they are not blocked, before this
 * call returns. A handler that jumps out takes the mask of its choice with it, as always. */
void critical_done(void)
{
	uint64_t mask = thread_signals.mask;

	thread_signals.put_off = 0;
	atomic_signal_fence(memory_order_seq_cst);
	sys(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
}
