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
 *
 * One kind of owner may wait all the same: who copies to or from the program's memory, of which a
 * page may never come (another user's FUSE file). It takes the lock by lock_take_mem(), and the
 * word says so. Whoever must not wait for that uses lock_take_soon(), or shuts the lock first:
 * it is free then for all but such owners, so whatever takes it until lock_open() waits for short
 * stretches only (tests/sim/mem.pml).
 */
#ifndef RDMASHIM_LOCK_H
#define RDMASHIM_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/sys.h"

struct lock { _Atomic uint32_t v; };	/* 0: free */
#define LOCK_HELD   1u
#define LOCK_SLEEPS 2u	/* somebody */
#define LOCK_MEM    4u	/* its owner may be in the program's memory */
#define LOCK_SHUT   8u	/* to such owners. By the background thread, or who does its work */

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

void lock_slow(struct lock *l, uint32_t as);		/* lock.c. as: LOCK_HELD, LOCK_MEM, too */
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

/* It is shut, or free with somebody asleep. */
static inline __attribute__((cold)) bool lock_word_try_again(struct lock *l)
{
	uint32_t v = atomic_load_explicit(&l->v, memory_order_relaxed);

	while (!(v & LOCK_HELD))
		if (atomic_compare_exchange_weak_explicit(&l->v, &v, v | LOCK_HELD,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	return false;
}

/* The caller is in a critical section. */
static inline bool lock_word_try(struct lock *l)
{
	uint32_t z = 0;

	if (atomic_compare_exchange_strong_explicit(&l->v, &z, LOCK_HELD, memory_order_acquire,
						    memory_order_relaxed))
		return true;
	return !(z & LOCK_HELD) && lock_word_try_again(l);
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
		lock_slow(l, LOCK_HELD);
}

static inline void lock_free(struct lock *l)
{
	if (atomic_exchange_explicit(&l->v, 0, memory_order_release) & LOCK_SLEEPS)
		sys(SYS_futex, &l->v, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline __attribute__((cold)) void lock_give_shut(struct lock *l)
{
	uint32_t v = atomic_load(&l->v);

	/* it may be opened at any time */
	while (!atomic_compare_exchange_weak(&l->v, &v, v & LOCK_SHUT))
		;
	if (v & LOCK_SLEEPS)	/* all: one of them may be kept out */
		sys(SYS_futex, &l->v, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static inline void lock_give(struct lock *l)
{
	/* nobody shuts it but its owner, as it gives it */
	if (__builtin_expect(atomic_load_explicit(&l->v, memory_order_relaxed) & LOCK_SHUT, 0))
		lock_give_shut(l);
	else
		lock_free(l);
	critical_leave();
}

static inline void lock_take_mem(struct lock *l)
{
	uint32_t z = 0;

	critical_enter();
	if (!atomic_compare_exchange_strong_explicit(&l->v, &z, LOCK_HELD | LOCK_MEM,
						     memory_order_acquire, memory_order_relaxed))
		lock_slow(l, LOCK_HELD | LOCK_MEM);
}

/* ... and it is not shut, for it is held so. */
static inline void lock_give_mem(struct lock *l)
{
	lock_free(l);
	critical_leave();
}

/* Waits for an owner who may be in the program's memory until then (0: not at all), for others as
 * long as they take. False: he has it still. */
bool lock_take_soon(struct lock *l, uint64_t end_ns);
void lock_give_and_shut(struct lock *l);	/* the lock is held */
void lock_open(struct lock *l);

/* For a while: whoever wants the lock has it, and what it guards may be another thing afterwards.
 * The program's handlers wait all the same: one that jumped out would not come back to it. Of one
 * who had it by lock_take_mem(). */
static inline void lock_leave(struct lock *l)
{
	critical_enter();
	lock_give(l);
}

static inline void lock_back(struct lock *l)
{
	lock_take_mem(l);
	critical_leave();
}

#endif
