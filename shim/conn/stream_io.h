/*
 * stream_io.h - what the send core (stream_send.c) and the receive core (stream_recv.c) share.
 *
 * Pattern of each call: take the lock of the half, see that the fd is still this stream, do what
 * can be done without sleeping on whatever carries the direction now, release the lock; only
 * then wait (stream_wait.h), and look again from the start. So a cut, a rewind, a close or its
 * becoming TCP-only may happen during any sleep, and a caller never holds anything while it
 * sleeps.
 */
#ifndef RDMASHIM_STREAM_IO_H
#define RDMASHIM_STREAM_IO_H

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "arch/arch.h"
#include "conn/stream.h"
#include "conn/stream_int.h"

/* One publication at least every so often, so that the reader copies while we copy. */
#define PUBLISH_CHUNK 32768
/* A message that goes in a straight line, and so in one publication; ... */
#define SHORT_MAX 16384
/* ... by way of the stack: its thread may have a small one. A second copy, in the nearest cache,
 * costs less than to give the lock back and to take it again. */
#define SMALL_MAX 1024
#define THEIRS_NS 1000000000	/* a call waits for another thread's block no longer */

/*
 * A position in an iovec. The array is the program's, so only who has no lock steps through it;
 * `left` and `here` are ours. Of a single chunk there is a copy, which anybody may step through.
 */
struct cursor {
	const struct iovec *iov;
	int n;
	size_t skip;		/* into iov[0] */
	size_t left;		/* in all */
	size_t owed;		/* moved under a lock, and not stepped yet: cursor_settle() */
	struct iovec here;	/* the rest of the chunk that it stands in, if nothing is owed */
	struct iovec one;
};

/* Past empty chunks. No lock of a stream is held, or there is one chunk. */
static inline void cursor_look(struct cursor *c)
{
	while (c->left && c->skip == c->iov->iov_len) {
		c->iov++;
		c->n--;
		c->skip = 0;
	}
	c->here = c->left ? (struct iovec){ (char *)c->iov->iov_base + c->skip,
					    c->iov->iov_len - c->skip }
			  : (struct iovec){ NULL, 0 };
}

/* No lock of a stream is held, or there is one chunk, which is ours. */
static inline int cursor_init(struct cursor *c, const struct iovec *iov, int n)
{
	*c = (struct cursor){ .iov = iov, .n = n };
	if (n == 1) {
		c->one = *iov;
		iov = c->iov = &c->one;
	}
	for (int i = 0; i < n; i++) {
		size_t len = iov[i].iov_len;

		/* the kernel's half: it says so before it waits */
		if ((intptr_t)iov[i].iov_base < 0 && len)
			return -EFAULT;
		if (len > (size_t)SSIZE_MAX - c->left)
			return -EINVAL;
		c->left += len;
	}
	cursor_look(c);
	return 0;
}

/* The same. */
static inline void cursor_step(struct cursor *c, size_t n)
{
	c->left -= n;
	while (n) {
		size_t here = c->iov->iov_len - c->skip;

		if (n < here) {
			c->skip += n;
			break;
		}
		n -= here;
		c->skip = 0;
		c->iov++;
		c->n--;
	}
	if (c->left)
		cursor_look(c);
}

/* n bytes have been moved, under a lock. */
static inline void cursor_moved(struct cursor *c, size_t n)
{
	if (c->iov == &c->one) {
		cursor_step(c, n);
		return;
	}
	c->left -= n;
	c->owed += n;
}

static inline void cursor_settle(struct cursor *c)
{
	size_t n = c->owed;

	c->owed = 0;
	c->left += n;
	if (n)
		cursor_step(c, n);
}

/* The rest as an array, at most `max` bytes in at most `cap` chunks. No lock of a stream is held,
 * or there is one chunk. */
static inline int cursor_iov(const struct cursor *c, struct iovec *out, int cap, size_t max)
{
	int n = 0;
	size_t skip = c->skip, left = c->left < max ? c->left : max;

	for (int i = 0; i < c->n && n < cap && left; i++) {
		size_t len = c->iov[i].iov_len - skip;

		if (len > left)
			len = left;
		if (len) {
			out[n].iov_base = (char *)c->iov[i].iov_base + skip;
			out[n++].iov_len = len;
		}
		left -= len;
		skip = 0;
	}
	return n;
}

static inline void count(_Atomic uint64_t *c, size_t n)
{
	/* One writer at a time (the lock of the half): no need for a locked add. The count is
	 * taken as the type it has: a copy of it only for this would be two more instructions. */
	arch_add((uint64_t *)c, n);
}

/* The connection's error that a call met after it had moved bytes is the next call's. It may
 * have given its slot back meanwhile; but a plain call would ask the kernel, which has told it.
 * Lock of either half held. */
void stream_untold(struct stream *s, long r);	/* stream_send.c */

/* What both forms of sending do (stream_send.c). snd.lock held, but for the first. */
void stream_sigpipe(int flags);		/* SIGPIPE for this thread, unless MSG_NOSIGNAL */
int stream_tx_trouble(struct stream *s);	/* 0, or -errno, which is told once */
void stream_short_of_room(struct stream *s, size_t want, bool nonblock);
bool stream_ring_still_full(struct stream *s);	/* and is told of room, or goes to TCP in time */

/* ---- stream_turn.c ---- */
enum { TURN_FREE, TURN_TAKEN, TURN_WANTED };

/* The half's lock is held. False: another call has it. */
static inline bool turn_take(_Atomic uint8_t *turn)
{
	if (atomic_load_explicit(turn, memory_order_relaxed))
		return false;
	atomic_store_explicit(turn, TURN_TAKEN, memory_order_relaxed);
	return true;
}
/* Until it may be free. The lock is given back, here and by turn_over(). */
void turn_wait(struct lock *l, _Atomic uint8_t *turn);
void turn_over(struct stream *s, struct lock *l, _Atomic uint8_t *turn);

/* Others may have it, though the call is not over. The half's lock is held. */
void turn_lend(struct stream *s, _Atomic uint8_t *turn);

/* Memory of ours on the way between the program's and a call of the kernel's. */
#define BOUNCE_SIZE 65536
struct bounce { char *p; size_t size; int place; };
/* For `want` bytes, or as many as there is room for; own: what the caller has. all: it must be as
 * many, if that can be. */
void bounce_take(struct bounce *b, size_t want, bool all, char *own, size_t own_size);
void bounce_give(struct bounce *b);

/* n bytes of the program's memory to `to`, or from it. Bytes: fewer are its own. No lock of a
 * stream is held. */
size_t cursor_get(struct cursor *c, struct usermem *m, char *to, size_t n);
size_t cursor_put(struct cursor *c, struct usermem *m, const char *from, size_t n);
/* How many of n bytes that may be written there could be. They stay as they are. */
size_t cursor_good(const struct cursor *c, struct usermem *m, size_t n);

/* A small message: by registers, where a call of memcpy() would cost more. */
static inline void copy_small(void *to, const void *from, size_t n)
{
	typedef uint64_t word __attribute__((vector_size(16), aligned(1), may_alias));
	const char *f = from;
	char *t = to;

	if (n - 16 > 48) {
		memcpy(to, from, n);
		return;
	}
	*(word *)t = *(const word *)f;
	*(word *)(t + n - 16) = *(const word *)(f + n - 16);
	if (n > 32) {
		*(word *)(t + 16) = *(const word *)(f + 16);
		*(word *)(t + n - 32) = *(const word *)(f + n - 32);
	}
}

static inline void *small_copier(void *to, const void *from, size_t n)
{
	copy_small(to, from, n);
	return to;
}

/* Another thread's block comes first: the ring has room, and takes nothing. snd.lock held. */
static inline bool stream_block_in_way(const struct stream *s)
{
	return s->direct.stuck || s->direct.done;
}

#endif
