/*
 * fallback.h - a stream's fallback to TCP, and the end of its link.
 *
 * Owns: who waits for the stream to be on TCP, the slot's release, and what is known of a lost
 *   peer.
 * Lock: none for atomic members. The background thread sets unbind_*, `us` and next_force_us;
 * `told` and reset_* are set with both halves' locks held.
 */
#ifndef RDMASHIM_FALLBACK_H
#define RDMASHIM_FALLBACK_H

#include <stdint.h>

/* a child was started, or exec() called, without it */
enum fallback_late { FALLBACK_IN_TIME, FALLBACK_LATE_AT_START, FALLBACK_LATE_AT_EXEC };

struct fallback {
	_Atomic uint8_t going;	/* stream_fall_back() waits; never earn again */
	/* enum fallback_late: the peer did not answer, and is not on the path anew */
	_Atomic uint8_t late;
	_Atomic uint8_t rdhup;	/* the home socket showed FIN while cut */
	_Atomic uint8_t was_fast;	/* among the connections that were on a fast path */
	_Atomic uint8_t crowded;	/* its history says so: once is enough */
	uint8_t unbind_sent, unbind_got;
	uint64_t next_force_us;	/* the test hook's */
};

struct lost {
	uint64_t us;		/* when the link ended under us */
	uint8_t told;		/* the machine knows */
	uint8_t reset_seen;	/* peer_gone by RST, not by FIN alone */
	uint8_t reset_ours;	/* ... and TCP would have sent it: the kernel saw FIN alone */
};

#endif
