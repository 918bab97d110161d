/*
 * stream_learn.h - how a stream learns the ISNs of its connection (stream_learn.c).
 */
#ifndef RDMASHIM_STREAM_LEARN_H
#define RDMASHIM_STREAM_LEARN_H

#include "conn/stream.h"

/* stream.learns */
#define LEARNS_WANT    1	/* the next send shall */
#define LEARNS_HEADERS 2	/* until it is closed: what the kernel calls ERR may be a header */
#define LEARNS_LEFT    4	/* the program uses the error queue itself: never again */
#define LEARNS_CHECKS  8	/* a filter of ours is there (learn_check_begin()) */

/* Some stream of this process ever did. */
extern _Atomic bool stream_learned_any;

/* ---- background thread ---- */
void stream_learn_want(struct stream *s);
static inline void stream_learn_over(struct stream *s)
{
	atomic_fetch_and(&s->learns, (uint8_t)~LEARNS_WANT);
}
bool stream_learn_settle(struct stream *s);	/* as learn_settle(). Takes snd.lock */

bool stream_learn_silent(struct stream *s);	/* it has had nothing to send */
/* What the other end says of our ISN; `peer`: its own. As learn_check_look(), and begins; 1: all is
 * known. Takes both locks. */
int stream_learn_check(struct stream *s, uint32_t peer, uint32_t claim, uint64_t now);

/* ---- any thread ---- */
/* Before anything is sent, or another process may have the socket. snd.lock held. */
static inline void stream_learn_unfilter(struct stream *s)
{
	if (atomic_fetch_and(&s->learns, (uint8_t)~LEARNS_CHECKS) & LEARNS_CHECKS &&
	    atomic_load(&s->fd) >= 0)
		learn_check_end(atomic_load(&s->fd));
}
static inline void stream_learn_may_send(struct stream *s)
{
	if (__builtin_expect(atomic_load_explicit(&s->learns, memory_order_relaxed) &
			     LEARNS_CHECKS, 0))
		stream_learn_unfilter(s);
}
/* The first bytes of a send: how many went, 0: none, and all is as ever; -errno. snd.lock held. */
ssize_t stream_learn_send(struct stream *s, int fd, const void *p, size_t n, int flags);
static inline bool stream_learned(const struct stream *s)
{
	return atomic_load_explicit(&s->learns, memory_order_relaxed) & LEARNS_HEADERS;
}
/* The program is about to use the error queue, or a filter: they are its own from here on. No lock
 * held. */
void stream_learn_leave(struct stream *s, uint32_t gen);
/* The kernel says ERR of such a stream, which had that gen: is it so? Takes rcv.lock. */
bool stream_true_error(struct stream *s, uint32_t gen);

#endif
