/*
 * bell.h - what wakes a sleeping waiter: one timerfd per waiting thread or epoll instance.
 *
 * Bells are numbered 0..62 within the process, so that a set of them is a 64-bit mask, both in
 * private memory (struct stream.bells) and in the segment (segment.h). Peers hold duplicates of
 * the timerfds, sent over the control socket of each link.
 *
 * Why a timer: whoever rings or silences it must not be made to block by somebody else who has
 * the same open file. Writing to an eventfd or a pipe blocks when another holder fills it and
 * clears O_NONBLOCK; a message on a socket may carry descriptors whose closing blocks the
 * receiver (SO_LINGER). Setting a timer's ticks is one system call, takes a spin lock and
 * nothing else, knows no full and no flag, and is refused on every other kind of file. What
 * another holder can do is to ring without need, and to silence a ring that is for us: see
 * bell_slice().
 *
 * To sleep:  stream_bell_add(s, b)  ->  bell_arm(b)  ->  look again  ->  poll(..., b->fd)  ->
 *            bell_disarm(b)
 * To wake:   change the state  ->  stream_wake(s)  (local waiters)  or  segment_notify (the
 *            peer's).
 * arm/look and change/wake have a full fence between them on both sides.
 *
 * Lock: bell.c's own, a leaf, only for allocation. bell_arm/disarm/ring are async-signal-safe.
 */
#ifndef RDMASHIM_BELL_H
#define RDMASHIM_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <linux/ioctl.h>

#include "base/sys.h"

#define BELL_MAX 63
#define BELL_SET_TICKS _IOW('T', 0, uint64_t)	/* TFD_IOC_SET_TICKS */

struct bell {
	int fd;				/* timerfd, internal */
	uint8_t idx;
	_Atomic uint32_t sleeping;	/* 1: ring fd to wake */
	_Atomic uint32_t deaf;		/* a peer had no fd left for it: sleep in slices of 1 ms */
	bool threads;			/* a thread's, not an epoll instance's */
	uint32_t depth;			/* of a thread's: a signal handler may wait inside a wait */
};

extern struct bell bells[BELL_MAX];
/* Who tells others of them: which there are, and who sleeps (link.c). Once, before the first
 * bell. */
struct bell_events {
	void (*made)(struct bell *b);
	void (*armed)(uint64_t mask);
	void (*disarmed)(uint64_t mask);
};
void bell_tell(const struct bell_events *n);
/* Links to users who need not trust each other: kept by link.c. */
extern _Atomic bool bells_mixed;
extern _Atomic bool bells_deaf;		/* one is, or was */

/* A duplicate that a peer has sent: is it a timer at all? Only then may it be rung. */
static inline bool bell_plausible(int fd)
{
	uint64_t it[4];

	return !sys(SYS_timerfd_gettime, fd, it);
}

/* Makes the timer readable and wakes who waits for that, each time. Never blocks,
 * async-signal-safe. 0 or -errno. */
static inline long bell_ring_fd(int fd)
{
	uint64_t one = 1;
	long r = sys(SYS_ioctl, fd, BELL_SET_TICKS, &one);

	if (r == -ENOTTY) {	/* a kernel without checkpoint/restore: a nanosecond, and an
				 * interrupt */
		const uint64_t soon[4] = { 0, 0, 0, 1 };

		r = sys(SYS_timerfd_settime, fd, 0, soon, NULL);
	}
	return r;
}

/* It wakes its sleeper. */
static inline bool bell_hears(const struct bell *b) { return b && !atomic_load_explicit(&b->deaf,
	memory_order_relaxed); }

/* one whom none wakes, and who has slept for so long, releases the fast path: it would look a
 * thousand times a second for ever ... */
#define BELL_PATIENCE_NS 100000000u
/* ... and then so often, since another policy may let the stream go there again */
#define BELL_SELDOM_NS   1000000000u

/*
 * The longest sleep, in nanoseconds, after which the sleeper looks by itself. For ever, except:
 * - 1 ms without a bell, or when a peer had no descriptor left for it;
 * - 100 ms while another user's process, which might silence rings for a third's, holds the bell
 *   too.
 */
static inline uint64_t bell_slice(const struct bell *b)
{
	if (!bell_hears(b))
		return 1000000;
	return atomic_load_explicit(&bells_mixed, memory_order_relaxed) ? 100000000 : UINT64_MAX;
}

/* The same as the end of a sleep that starts at `now` and would end at `until`. */
static inline uint64_t bell_until(const struct bell *b, uint64_t now, uint64_t until)
{
	uint64_t slice = bell_slice(b);

	return slice != UINT64_MAX && now + slice < until ? now + slice : until;
}

struct bell *bell_new(void);		/* NULL: none left or no fd; pooled, fd stays open */
void bell_free(struct bell *b);
struct bell *bell_thread(void);		/* this thread's, made on first use, freed at thread
					 * exit; NULL as above */

/* Says "I am about to sleep" to this process and to all links. Full fence inside. */
void bell_arm(struct bell *b);
void bell_sleep(struct bell *b);	/* the same, by a call of the program's that waits:
					 * counted */
void bell_disarm(struct bell *b);
/* Wakes the sleepers among `mask` (bit = bell index). */
void bell_ring(uint64_t mask);
/* After a poll() that showed the bell readable: silences it, so that the next poll sleeps.
 * Not needed for epoll (registered EPOLLET). */
void bell_drain(struct bell *b);
uint64_t bell_made_mask(void);		/* those that have a timerfd */
void bell_after_fork(void);

#endif
