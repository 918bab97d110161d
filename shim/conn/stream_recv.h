/*
 * stream_recv.h - a call that receives: what stream_recv.c and stream_recv_tcp.c share.
 */
#ifndef RDMASHIM_STREAM_RECV_H
#define RDMASHIM_STREAM_RECV_H

#include "conn/stream_int.h"
#include "conn/stream_io.h"
#include "conn/turn.h"

/* A call that receives, while it is under way. */
struct receiving {
	struct cursor c;
	int fd, flags;
	uint32_t gen;
	bool mine;		/* the turn, still */
	/* the stream went on while the lock was free: look again, at once */
	bool again;
};

/* The lock is taken again: is it where it was? */
static inline bool still_its_turn(const struct stream *s, const struct turn *was)
{
	struct turn is = turn_of(s);

	return same_turn(was, &is);
}

/* The lock is given for a while, in which the program's memory may be touched. */
struct apart {
	struct turn was;
	struct usermem mem;
};

static inline void apart_begins(struct stream *s, struct apart *a)
{
	a->was = turn_of(s);
	a->mem = s->rcv.mem;
	lock_leave(&s->rcv.lock);
}

/* False: the stream went on, and what was done counts for nothing. */
static inline bool apart_ends(struct stream *s, struct receiving *x, struct apart *a)
{
	lock_back(&s->rcv.lock);
	x->again = !still_its_turn(s, &a->was) || !stream_still_named(s, x->gen, &x->fd);
	if (!x->again)
		usermem_learned(&s->rcv.mem, &a->mem);
	return !x->again;
}

/* At most `max` bytes of TCP's: all that it has of them, as by one call. Count, and x->again: it is
 * not known what comes next; 0, -errno, -ESTALE. rcv.lock held, and given for a while. */
long tcp_recv(struct stream *s, struct receiving *x, uint64_t max);

#endif
