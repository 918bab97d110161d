/*
 * direct.h - direct offers of a stream: blocks that the receiver copies out of the sender's memory.
 *
 * Observes: whether an offer was taken, or was waited for in vain (stream_direct.c).
 * Decides: whether the next block is offered (`backoff`), separately for plain blocks and for those
 *   with a snapshot on a device.
 * Bounds: after a block that nobody took in its time, DIRECT_SKIP_FIRST blocks are not offered,
 *   twice as many each time, up to DIRECT_SKIP_MOST. That time is 200 us; stream_direct.c has the
 *   times for blocks with a snapshot. A block that is taken ends the pause.
 * Switched off: for a whole link, by a peer that may not read, or twice did not finish a read.
 * Shown: `rdmastat why`, not-taken, once the pause reaches DIRECT_SKIP_TOLD.
 * Lock: snd.lock for the sender's fields; rcv.lock for the receiver's, which is `reading`.
 * Tested on recorded offers: tests/unit/test_offers.c.
 */
#ifndef RDMASHIM_DIRECT_H
#define RDMASHIM_DIRECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "gpu/gpu.h"

struct ring_rx;
struct stream;

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

/* ---- stream_direct.c: not for wrappers ---- */
#define DIRECT_MIN  (128 * 1024)	/* smaller blocks are faster through the ring */
#define DIRECT_ROOM (64 * 1024)		/* a receiver with less declines one with a snapshot */
/* Offers the block to the receiver. Bytes taken, 0 = use the ring, -EPROTO, or -EBUSY: the
 * receiver's copy lasts, see direct_settle(). snd.lock held, ring empty. */
ssize_t direct_send(struct stream *s, const void *p, size_t n);
/* The same for a block of which a snapshot on a device is held, which this releases. waits: for
 * room, too */
ssize_t direct_send_device(struct stream *s, const void *p, struct gpu_ref *ref, bool waits);
/* Takes an offer into `n` iovecs, or declines it. Bytes, 0 (what is in the iovecs then is
 * nothing), or -EIO: the bytes are lost. rcv.lock held, ring empty. */
ssize_t direct_read(struct stream *s, const struct iovec *iov, int n);
bool direct_offered(const struct ring_rx *r);
/* What is read out of the peer's snapshot: the peer is told if that has ended. False: it has
 * not. rcv.lock held. */
bool direct_read_over(struct stream *s, bool wait);
void direct_forget(struct stream *s);		/* ... and nothing more of it */
void direct_idle(struct stream *s);	/* a receive found nothing: direct_read_over(), if enough
					 * was read. rcv.lock held */
/* direct_idle() by the background thread, for a program that does not receive meanwhile. Returns
 * when to come again, in us; UINT64_MAX: nothing is read. Takes rcv.lock, if it is free */
uint64_t direct_watch(struct stream *s, uint64_t now);
/* While direct.stuck: true once the receiver has finished and the bytes are accounted for, or
 * has not begun in time. Now: it may not go on, what is not finished is withdrawn. snd.lock
 * held. */
bool direct_settle(struct stream *s, bool now);
/* To be called before a block is withdrawn because the receiver has begun and does not finish. A
 * receiver that does so again gets no more blocks. */
bool direct_late(struct stream *s);	/* False: it has not begun */

#endif
