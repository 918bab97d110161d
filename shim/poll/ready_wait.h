/*
 * ready_wait.h - one epoll_wait call, shared by ready_epoll.c, which waits, and ready_filter.c,
 * which decides what is reported.
 */
#ifndef RDMASHIM_READY_WAIT_H
#define RDMASHIM_READY_WAIT_H

#include "poll/ready_int.h"

/* events of ours in one answer of the kernel: the bell, the channel, one for a stream that says
 * nothing */
#define BELLS_MOST 3

/* One ready_epoll_wait() call. */
struct batch {
	struct epoll_event *ev;
	int n, max;
	uint64_t id;		/* unique in the instance, finds an item's place in ev */
	uint32_t gen;		/* of the instance: if it is another one's now, none of its items
				 * is this call's */
	uint64_t blocked;	/* of signals_block() */
	bool heard;		/* the kernel has told of the bell */
	uint32_t dropped;	/* events of the kernel's that say nothing */
	struct epoll_event was[BELLS_MOST];
};

/* Of an event: its registration was parked when the kernel was asked. No bit of the kernel's. */
#define OF_PARKED (1u << 20)

static inline bool has_inner(const struct epoll *e)
{
	return atomic_load_explicit(&e->ninner, memory_order_relaxed);
}

/* ---- ready_filter.c; no lock ---- */
/* What the fast paths have to say, until the batch holds `cap`. */
void batch_own(struct epoll *e, struct batch *b, int cap);
/* k events that the kernel wrote at b->ev[b->n]. Reports take their places: never more than
 * there were. `parked`: some are of such registrations. */
void batch_filter(struct epoll *e, struct batch *b, int k, bool parked);
/* ready_learned.c: of k events that the kernel wrote there, how many are left when its ERR is not
 * told where it is none. */
int batch_true_errors(struct epoll *e, struct batch *b, int k);
/* Where fewer events are told than the kernel wrote the array keeps what it had, as the kernel
 * leaves it: before, and when k events came, at `at`, and were filtered. */
void batch_remember(struct batch *b);
void batch_restore(struct batch *b, int at, long k);

#endif
