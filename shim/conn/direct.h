/*
 * direct.h - direct offers of a stream: blocks that the receiver copies out of the sender's memory.
 *
 * Observes: whether an offer was taken, or waited for in vain (stream_direct.c). Decides:
 * whether the next block is offered (`backoff`), apart for plain ones and for those with a
 *   snapshot on a device.
 * Bounds: after one that nobody took in its time (200 us, see stream_direct.c for those with a
 *   snapshot) DIRECT_SKIP_FIRST are left out, twice as many each time, to DIRECT_SKIP_MOST; one
 *   that is taken ends that.
 * Switched off: for a whole link, by a peer that may not, or twice did not finish, a read.
 * Shown: `rdmastat why`, not-taken, when it comes to DIRECT_SKIP_TOLD.
 * Lock: snd.lock for the sender's; rcv.lock for the receiver's, which is `reading`.
 * Tested on recorded offers: tests/unit/test_offers.c.
 */
#ifndef RDMASHIM_DIRECT_H
#define RDMASHIM_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"

/* In offers: left out after the first in vain; at most; from which on `rdmastat why` tells. */
#define DIRECT_SKIP_FIRST 4
#define DIRECT_SKIP_MOST  4096
#define DIRECT_SKIP_TOLD  64

/* Offers that are left out after one that nobody took: how many still, and how many it were. */
struct direct_backoff { uint32_t skip, pause; };

/* What became of an offer: was it taken? */
static inline void direct_tried(struct direct_backoff *backoff, bool taken)
{
	backoff->pause = taken ? 0 : backoff->pause ? backoff->pause * 2 : DIRECT_SKIP_FIRST;
	if (backoff->pause > DIRECT_SKIP_MOST)
		backoff->pause = DIRECT_SKIP_MOST;
	backoff->skip = backoff->pause;
}

/* A block comes. True: it is not offered. */
static inline bool direct_skips(struct direct_backoff *backoff)
{
	if (!backoff->skip)
		return false;
	backoff->skip--;
	return true;
}

/* The snapshot of a stuck offer. */
struct direct_held { int rec; uint8_t held, read; };
/* The receiver's: copies out of the peer's snapshots of such bytes, and when the last began. */
struct direct_reading {
	struct gpu_read read;
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
	struct direct_backoff backoff[2];	/* of plain blocks, and of snapshots */
	struct direct_held held;
	struct direct_reading reading;
	_Atomic uint8_t watched; /* the background thread tells of its end, if no receive does */
};

#endif
