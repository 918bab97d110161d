/*
 * poller.h - a program that waits by reading again and again without blocking: a poller.
 *
 * Observes: reads that found nothing (stream_recv.c), and whether a CPU was to spare meanwhile.
 * Decides: `polls`: the direction may be cut: the program looks without being woken.
 * Bounds: `stopped`: each time that a poller stops, twice as many calm reads are asked for.
 * Lock: rcv.lock. `seen` and `due_us` are the background thread's alone (shim/main/stream_work.c).
 */
#ifndef RDMASHIM_POLLER_H
#define RDMASHIM_POLLER_H

#include <stdint.h>

struct poller {
	uint32_t dry;		/* reads in a row that found nothing; not known how it waits */
	uint32_t calm;		/* times in a row that DRY_POLLS of them found a spare CPU, too */
	uint32_t asked;		/* reads that would not have blocked */
	uint8_t stopped;	/* so often has a poller stopped */
	uint8_t polls;		/* the program waits by asking again and again */
	uint32_t seen;		/* `asked` when it was looked at last, ... */
	uint64_t due_us;	/* ... and when it must have changed */
};

#endif
