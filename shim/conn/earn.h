/*
 * earn.h - whether a stream is worth an upgrade, and whether others like it were (earn.c).
 *
 * Observes: bytes and rounds, approximately, in plain calls; how long upgraded streams went on.
 * Decides: when the other end is searched for, and when again after nobody was found.
 * Switched off by earn_bytes 0: then at once. Nothing is counted once it has earned.
 * Lock: none while it is young (a lost count does no harm), then those of both halves.
 */
#ifndef RDMASHIM_EARN_H
#define RDMASHIM_EARN_H

#include <stdint.h>

struct earn {
	uint64_t bytes;
	uint32_t rounds;
	uint32_t place;		/* where it has earned by the policy's own figures; 0: not yet */
	/* a plain call touches nothing beyond this line */
	uint64_t with;		/* bytes that it had moved then */
	uint8_t firm;		/* `with` is what it, or one like it, had when it earned */
	uint8_t looked_up;	/* its place was */
	uint8_t early;		/* ... and said: at once */
	uint8_t judged;		/* it is known whether it lived on */
	uint8_t searched;	/* nobody was found, so often: again when it has moved much more */
	_Atomic uint8_t stopped;	/* policy says tcp: do not earn */
	uint64_t next_us;	/* not before */
};

#endif
