/*
 * late.h - how long a full ring is waited for before its direction goes back to TCP. Pure: it takes
 * what was seen and returns a decision.
 *
 * `least` is the policy's overflow, or rdma_overflow. Every reader may take that long, so a reader
 * that comes sooner teaches nothing. `most` is the policy's overflow_max, or half of the sender's
 * SO_SNDTIMEO if that is more. If the other end waits for room, too, nobody reads before one of the
 * two sends by TCP, so the limit is `least` in any case. A reader that would run but has no
 * processor is waited for up to `most`, since it would not read from TCP either. Otherwise the
 * limit is learned for each stream:
 *
 *   least -- overflows --> a trial, TRIAL times as long -- the reader comes back in it --> twice
 *     ^                       |                              as long each time, to `most`
 *     +-- another overflow ---+  <--- an overflow halves it, for another trial ---+
 *
 * A trial in vain may have held up a program that has to send before anybody reads. Nothing on this
 * connection tells such a program from one whose reader is late. So the next trial comes after
 * twice as many overflows, and all trials together cost little more than the overflows do.
 *
 * Times are in us. Thread-safety: none; the caller holds the stream's snd.lock.
 */
#ifndef RDMASHIM_LATE_H
#define RDMASHIM_LATE_H

#include <stdbool.h>
#include <stdint.h>

#define LATE_TRIAL 10	/* times as long */
#define LATE_RARE  8	/* a trial comes after 2^LATE_RARE overflows at least */

struct late {		/* all 0: nothing is known yet */
	uint64_t limit;		/* learned; below `least`: it is that */
	uint16_t lost;		/* overflows since the last trial */
	uint8_t rare;		/* log2 of how many of them there are to be before the next */
	bool proven;		/* a reader has come back within this limit */
};

struct late_bounds { uint64_t least, most; };

enum late_verdict { LATE_WAIT, LATE_NOBODY, LATE_BOTH };

/* So long a full ring is waited for, if the other end does not wait, too. */
uint64_t late_limit(const struct late *p, struct late_bounds b);
/* It has been full so long, and nothing was read. NOBODY, BOTH: fallback, and tell
 * late_fallback(). */
enum late_verdict late_judge(const struct late *p, struct late_bounds b, uint64_t waited,
			     bool peer_waits);
/* NOBODY was said of a ring that is full since then. Is the reader waited for, whose process was
 * seen to want a processor and have none at `starved` (never: `since`)? It may be asleep for a
 * moment when it gets one. */
bool late_spared(struct late_bounds b, uint64_t now, uint64_t since, uint64_t starved);
/* The reader goes on, after so long at least. Both: has the limit changed? */
bool late_back(struct late *p, struct late_bounds b, uint64_t waited);
bool late_fallback(struct late *p, struct late_bounds b, enum late_verdict v);

#endif
