/*
 * stream_io.h - what the send core (stream_send.c) and the receive core (stream_recv.c) share.
 *
 * Each call follows one pattern. It takes the lock of the half, checks that the fd still belongs to
 * this stream, does what can be done without sleeping on whatever carries the direction now, and
 * releases the lock. Only then it waits (stream_wait.h), and looks again from the start. So the
 * stream may be cut, rewound, closed or made TCP-only during any sleep, and a caller never holds
 * anything while it sleeps.
 */
#ifndef RDMASHIM_STREAM_IO_H
#define RDMASHIM_STREAM_IO_H

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/uio.h>

#include "arch/arch.h"
#include "conn/stream.h"

/* One publication at least every so often, so that the reader copies while we copy. */
#define PUBLISH_CHUNK 32768
/* A message that goes in a straight line, and so in one publication. */
#define SHORT_MAX 16384
/* at a time, where the application's own array cannot be used: its thread may have a small stack */
#define KERNEL_IOVS 64
#define THEIRS_NS 1000000000	/* a call waits for another thread's block no longer */

/* A position in an iovec. */
struct cursor {
	const struct iovec *iov;
	int n;
	size_t skip;		/* into iov[0] */
	size_t left;		/* in all */
};

static inline int cursor_init(struct cursor *c, const struct iovec *iov, int n)
{
	*c = (struct cursor){ .iov = iov, .n = n };
	for (int i = 0; i < n; i++) {
		/* the kernel's half: it says so before it waits */
		if ((intptr_t)iov[i].iov_base < 0 && iov[i].iov_len)
			return -EFAULT;
		if (iov[i].iov_len > (size_t)SSIZE_MAX - c->left)
			return -EINVAL;
		c->left += iov[i].iov_len;
	}
	return 0;
}

static inline void cursor_step(struct cursor *c, size_t n)
{
	c->left -= n;
	while (n) {
		size_t here = c->iov->iov_len - c->skip;

		if (n < here) {
			c->skip += n;
			return;
		}
		n -= here;
		c->skip = 0;
		c->iov++;
		c->n--;
	}
}

/* Empty chunks; the cursor is not at its end. */
static inline void cursor_skip_empty(struct cursor *c)
{
	while (c->n && c->skip == c->iov->iov_len) {
		c->iov++;
		c->n--;
		c->skip = 0;
	}
}

static inline size_t iov_sum(const struct iovec *v, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += v[i].iov_len;
	return sum;
}

/* The rest as an array for the kernel, at most `max` bytes in at most `cap` chunks. */
static inline int cursor_iov(const struct cursor *c, struct iovec *out, int cap, size_t max)
{
	int n = 0;
	size_t skip = c->skip;

	for (int i = 0; i < c->n && n < cap && max; i++) {
		size_t len = c->iov[i].iov_len - skip;

		if (len > max)
			len = max;
		if (len) {
			out[n].iov_base = (char *)c->iov[i].iov_base + skip;
			out[n++].iov_len = len;
		}
		max -= len;
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

/* Another thread's block comes first: the ring has room, and takes nothing. snd.lock held. */
static inline bool stream_block_in_way(const struct stream *s)
{
	return s->direct.stuck || s->direct.done;
}

#endif
