/* lock.c - the contended way into a lock, see lock.h. */
#include "lock.h"

void lock_slow(struct lock *l)
{
	for (int i = 0; i < 100; i++) {
		if (atomic_load_explicit(&l->v, memory_order_relaxed) == 0 && lock_try(l))
			return;
		__builtin_ia32_pause();
	}
	while (atomic_exchange_explicit(&l->v, 2, memory_order_acquire) != 0)
		sys(SYS_futex, &l->v, FUTEX_WAIT, 2, NULL, NULL, 0);
}
