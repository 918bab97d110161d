/* lock.c - the contended way into a lock, and the end of a critical section that put signals
 * off; see lock.h. */
#include "base/lock.h"

#include <signal.h>

_Thread_local struct thread_signals thread_signals;
_Atomic uint32_t lock_sleepers;

void lock_slow(struct lock *l)
{
	for (int i = 0; i < 100; i++) {
		if (atomic_load_explicit(&l->v, memory_order_relaxed) == 0 && lock_word_try(l))
			return;
		arch_pause();
	}
	atomic_fetch_add(&lock_sleepers, 1);
	while (atomic_exchange_explicit(&l->v, 2, memory_order_acquire) != 0)
		sys(SYS_futex, &l->v, FUTEX_WAIT, 2, NULL, NULL, 0);
	atomic_fetch_sub(&lock_sleepers, 1);
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
