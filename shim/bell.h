/*
 * bell.h - what wakes a sleeping waiter: one eventfd per waiting thread or epoll instance.
 *
 * Bells are numbered 0..62 within the process, so that a set of them is a 64-bit mask, both in
 * private memory (struct stream.bells) and in the arena (arena.h). Peers hold duplicates of
 * the eventfds, sent over the control socket of each link.
 *
 * To sleep:  stream_bell_add(s, b)  ->  bell_arm(b)  ->  look again  ->  poll(..., b->fd)  ->  bell_disarm(b)
 * To wake:   change the state  ->  stream_wake(s)  (local waiters)  or  arena_notify (the peer's).
 * arm/look and change/wake have a full fence between them on both sides.
 *
 * Lock: bell.c's own, a leaf, only for allocation. bell_arm/disarm/ring are async-signal-safe.
 */
#ifndef RDMASHIM_BELL_H
#define RDMASHIM_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BELL_MAX 63

struct bell {
	int fd;				/* eventfd, non-blocking, internal */
	uint8_t idx;
	_Atomic uint32_t sleeping;	/* 1: write to fd to wake */
	_Atomic uint32_t deaf;		/* a peer had no fd left for it: sleep in slices of 1 ms */
	bool threads;			/* a thread's, not an epoll instance's */
	uint32_t depth;			/* of a thread's: a signal handler may wait inside a wait */
};

extern struct bell bells[BELL_MAX];

struct bell *bell_new(void);		/* NULL: none left or no fd; pooled, fd stays open */
void bell_free(struct bell *b);
struct bell *bell_thread(void);		/* this thread's, made on first use, freed at thread exit; NULL as above */

/* Says "I am about to sleep" to this process and to all links. Full fence inside. */
void bell_arm(struct bell *b);
void bell_disarm(struct bell *b);
/* Wakes the sleepers among `mask` (bit = bell index). */
void bell_ring(uint64_t mask);
/* After a poll() that showed the bell readable: takes the count, so that the next poll sleeps.
 * Not needed for epoll (registered EPOLLET). */
void bell_drain(struct bell *b);
uint64_t bell_made_mask(void);		/* those that have an eventfd */
void bell_after_fork(void);

#endif
