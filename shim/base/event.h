/*
 * event.h - waiting until another thread of this process says that something has changed.
 *
 * One word: bit 0 says that somebody waits, the rest counts the times that it was rung. To wait:
 *
 *	seen = event_look(&e)  ->  look at what is waited for  ->  event_wait(&e, seen, until)
 *
 * and again. Whoever changes it does so first and then rings, so a change is either seen by that
 * look or ends the wait. Whoever waits and has a part in it, because he asks for it or answers
 * others, does so between the same two: what came after he last did may have rung when nobody
 * waited. A ring costs a load where nobody waits. A wait may end for no reason, also
 * because a signal handler has run; nothing is left behind by one that jumps out.
 *
 * For what has a descriptor, and for waits beside a socket's, there are bells (bell.h).
 *
 * Locks: rung with any held, also in signal handlers; waited for with none.
 */
#ifndef RDMASHIM_EVENT_H
#define RDMASHIM_EVENT_H

#include <stdatomic.h>
#include <stdint.h>

#include "arch/arch.h"

struct event { _Atomic uint32_t v; };

static inline uint32_t event_look(struct event *e)
{
	uint32_t seen = atomic_fetch_or(&e->v, 1) | 1;

	arch_fence_taken();	/* before the caller looks: event_ring() has one, too */
	return seen;
}

/* Until it is rung after that look, or `until_ns` of now_ns() has come. */
void event_wait(struct event *e, uint32_t seen, uint64_t until_ns);

void event_ring_slow(struct event *e);

static inline void event_ring(struct event *e)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&e->v, memory_order_relaxed) & 1, 0))
		event_ring_slow(e);
}

/*
 * The same for a word in memory that processes share, which others may write: until it is no longer
 * `seen`, and whoever changes it says so by word_ring(). A liar makes it end early, or not before
 * `until_ns`.
 */
void word_wait(const _Atomic uint32_t *w, uint32_t seen, uint64_t until_ns);
void word_ring(const _Atomic uint32_t *w);

#endif
