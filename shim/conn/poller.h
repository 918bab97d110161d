/*
 * poller.h - a program that waits by reading again and again without blocking: a poller.
 *
 * A program that waits for a non-blocking socket through the library will see the fast path. A
 * program that waits in a way that the library does not see must find its bytes in the kernel. A
 * program that does not wait, but reads again and again, finds its bytes wherever they are. This
 * file tells it from the others.
 *
 * Observes: reads in a row that found nothing (stream_recv.c), and whether a CPU was free then; of
 *   a poller, each 100 ms, whether it has read since (shim/main/stream_work.c).
 * Decides: `polls`: the direction may be cut. When it is cleared the direction falls back.
 * Bounds: IDLE_ROUNDS_MOST times EMPTY_READS_MOST such reads; twice as many after each time that
 *   the program stopped.
 * Switched off: by any wait that the library sees (`waits_seen`).
 * Shown: `rdmastat why`, poller, poller-gone.
 * Lock: rcv.lock. `seen` and `due_us` belong to the background thread alone.
 * Tested on recorded reads: tests/unit/test_poller.c.
 */
#ifndef RDMASHIM_POLLER_H
#define RDMASHIM_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#define EMPTY_READS_MOST    32
#define IDLE_ROUNDS_MOST   8
#define STOPPED_MOST 16
#define POLLER_US    100000

struct poller {
	uint32_t empty_reads;		/* reads in a row that found nothing; not known how it
					 * waits */
	uint32_t idle_rounds;		/* times in a row that EMPTY_READS_MOST of them found a
					 * spare CPU, too */
	uint32_t asked;		/* reads that would not have blocked */
	uint8_t stopped;	/* so often has a poller stopped */
	uint8_t polls;		/* the program waits by asking again and again */
	uint32_t seen;		/* `asked` when it was looked at last, ... */
	uint64_t due_us;	/* ... and when it must have changed */
};

/* A read that must not block was made. known: we see how the program waits. True:
 * EMPTY_READS_MOST in a row have found nothing. */
static inline bool poller_read(struct poller *p, bool empty, bool known)
{
	p->asked++;
	if (!empty) {
		p->empty_reads = 0;
		return false;
	}
	return !p->polls && !known && ++p->empty_reads >= EMPTY_READS_MOST;
}

/* The next question after that: was a CPU to spare? A peer that needs it does better with TCP's
 * long queues. True: it is a poller if it still is there (then poller_begins()). */
static inline bool poller_dry(struct poller *p, bool spare)
{
	p->empty_reads = 0;
	p->idle_rounds = spare ? p->idle_rounds + 1 : 0;
	return p->idle_rounds >> p->stopped >= IDLE_ROUNDS_MOST;
}

static inline void poller_begins(struct poller *p)
{
	p->idle_rounds = 0;
	p->polls = 1;
}

/* It is watched as long as it polls; it keeps a CPU busy anyway. False: it has not asked for
 * POLLER_US. Else *ret_due is when to look again. */
static inline bool poller_goes_on(struct poller *p, uint32_t asked, uint64_t now, uint64_t *ret_due)
{
	bool stopped = asked == p->seen && p->due_us && now >= p->due_us;

	if (asked != p->seen || !p->due_us || stopped) {
		p->seen = asked;
		p->due_us = now + POLLER_US;
	}
	*ret_due = p->due_us;
	return !stopped;
}

static inline void poller_stops(struct poller *p)
{
	p->polls = 0;
	p->empty_reads = 0;
	p->stopped += p->stopped < STOPPED_MOST;
}

#endif
