/*
 * lock.h - a futex lock of one word.
 *
 * Held for short stretches only; its owner never sleeps and never waits for another thread
 * while it has it (a non-blocking kernel call or a bounded copy is the most it does). Lives in
 * memory that may be shared with a forked child, hence the futexes are not private.
 *
 * While a thread has a lock, or waits for one, it is in a critical section: the application's
 * signal handlers are put off until it has left (signals.h), so a handler may use the stream
 * that it interrupted, or jump out. critical_enter() and critical_leave() do the same for a
 * stretch that takes no lock.
 */
#ifndef RDMASHIM_LOCK_H
#define RDMASHIM_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/sys.h"

struct lock { _Atomic uint32_t v; };	/* 0 free, 1 held, 2 held and somebody sleeps */

/* What a thread and the signal handlers that run in it share. Written by that thread only. */
struct thread_signals {
	uint32_t critical;	/* depth */
	uint32_t put_off;	/* signals wait, blocked, until critical is 0 ... */
	uint64_t mask;		/* ... when this becomes the thread's mask again */
	uint32_t seen;		/* handlers run */
	uint32_t broke;		/* value of `seen` at the last one without SA_RESTART */
	uint32_t wake;		/* 1 + the fd of a bell to ring after a handler has run; 0: none */
	uint32_t handlers;	/* application's handlers that this thread is in; too many after
				 * one jumped out */
};
extern _Thread_local struct thread_signals thread_signals
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

void lock_slow(struct lock *l);		/* lock.c */
/* Threads that are about to sleep, or do, for whatever lock; 0: who has just made a lock free by
 * zeroing its memory need wake nobody. In a child of the process: of those, some are not there. */
extern _Atomic uint32_t lock_sleepers __attribute__((visibility("hidden")));
void critical_done(void);		/* lock.c: lets the signals come that were put off */

static inline void critical_enter(void)
{
	thread_signals.critical++;
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void critical_leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	thread_signals.critical--;
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(thread_signals.put_off, 0) && !thread_signals.critical)
		critical_done();
}

/* The caller is in a critical section. */
static inline bool lock_word_try(struct lock *l)
{
	uint32_t z = 0;

	return atomic_compare_exchange_strong_explicit(&l->v, &z, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline bool lock_try(struct lock *l)
{
	critical_enter();
	if (lock_word_try(l))
		return true;
	critical_leave();
	return false;
}

static inline void lock_take(struct lock *l)
{
	critical_enter();
	if (!lock_word_try(l))
		lock_slow(l);
}

static inline void lock_give(struct lock *l)
{
	if (atomic_exchange_explicit(&l->v, 0, memory_order_release) == 2)
		sys(SYS_futex, &l->v, FUTEX_WAKE, 1, NULL, NULL, 0);
	critical_leave();
}

/* For a while: whoever wants the lock has it, and what it guards may be another thing afterwards.
 * The program's handlers wait all the same: one that jumped out would not come back to it. */
static inline void lock_leave(struct lock *l)
{
	critical_enter();
	lock_give(l);
}

static inline void lock_back(struct lock *l)
{
	lock_take(l);
	critical_leave();
}

#endif
