/*
 * turn.h - whether a stream is where it was before its receiver released the lock. A receiver does
 * so while a block is copied, or read, into the program's buffer. If the stream has moved
 * meanwhile, what came does not count.
 *
 * Lock: rcv.lock is held in both calls of turn_of().
 */
#ifndef RDMASHIM_TURN_H
#define RDMASHIM_TURN_H

#include "conn/stream.h"

/* What must be as it was when the receiver's lock, which was free meanwhile, is taken again. */
struct turn {
	struct link *link;
	struct ring_shared *sh;
	uint64_t rd, ring_rd;
	uint32_t gen, epoch, takes;
	uint8_t state, peer_gone;
};

static inline struct turn turn_of(const struct stream *s)
{
	return (struct turn){ atomic_load(&s->link),
			      s->rcv.ring.sh,
			      s->rcv.cut.rd,
			      s->rcv.ring.rd,
			      atomic_load(&s->gen),
			      s->rcv.cut.epoch,
			      s->rcv.takes,
			      (uint8_t)s->rcv.cut.state,
			      atomic_load(&s->peer_gone) };
}

static inline bool same_turn(const struct turn *a, const struct turn *b)
{
	return a->link == b->link && a->sh == b->sh && a->rd == b->rd && a->ring_rd == b->ring_rd &&
	       a->gen == b->gen && a->epoch == b->epoch && a->takes == b->takes &&
	       a->state == b->state && a->peer_gone == b->peer_gone;
}

#endif
