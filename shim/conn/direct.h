/*
 * direct.h - direct offers of a stream: blocks that the receiver copies out of the sender's memory.
 *
 * Observes: whether an offer was taken, taken in part, or waited for in vain (stream_direct.c).
 * Decides: whether the next block is offered (`luck`), and whether its end is waited for.
 * Bounds: `skip` offers are left out after one that nobody took, twice as many each time.
 * Lock: snd.lock for the sender's; rcv.lock for the receiver's, which is `reading`.
 */
#ifndef RDMASHIM_DIRECT_H
#define RDMASHIM_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/cuda.h"

/* Offers not to make, after one that nobody took. */
struct direct_luck { uint32_t skip, pause; };
/* The snapshot of a stuck offer. */
struct direct_held { int rec; uint8_t held, read; };
/* The receiver's: copies out of the peer's snapshots of such bytes, and when the last began. */
struct direct_reading {
	struct cuda_read read;
	uint64_t from, to;		/* to 0: none */
	uint64_t last_us;
	uint32_t count;
	bool lost;
};

struct direct {
	uint8_t stuck;	/* the receiver copies from an offer, and it lasts; or ... */
	uint64_t until;	/* ... it is waited for to begin, until then: ns, 0: no longer */
	uint8_t in_vain;	/* the last such wait was */
	uint64_t len;	/* of the offer that stands */
	uint64_t last_ns;	/* a block with a snapshot was sent, or offered, last */
	uint64_t done;	/* taken while stuck: the sender's call must step over them */
	struct direct_luck luck[2];	/* of plain blocks, and of snapshots */
	struct direct_held held;
	struct direct_reading reading;
	_Atomic uint8_t watched; /* the background thread tells of its end, if no receive does */
};

#endif
