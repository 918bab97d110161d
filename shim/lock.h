/*
 * lock.h - a futex lock of one word.
 *
 * Held for short stretches only; its owner never sleeps and never waits for another thread
 * while it has it (a non-blocking kernel call or a bounded copy is the most it does). Lives in
 * memory that may be shared with a forked child, hence the futexes are not private.
 */
#ifndef RDMASHIM_LOCK_H
#define RDMASHIM_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "sys.h"

struct lock { _Atomic uint32_t v; };	/* 0 free, 1 held, 2 held and somebody sleeps */

void lock_slow(struct lock *l);		/* lock.c */

static inline bool lock_try(struct lock *l)
{
	uint32_t z = 0;

	return atomic_compare_exchange_strong_explicit(&l->v, &z, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void lock_take(struct lock *l)
{
	if (!lock_try(l))
		lock_slow(l);
}

static inline void lock_give(struct lock *l)
{
	if (atomic_exchange_explicit(&l->v, 0, memory_order_release) == 2)
		sys(SYS_futex, &l->v, FUTEX_WAKE, 1, NULL, NULL, 0);
}

#endif
