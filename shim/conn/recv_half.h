/*
 * recv_half.h - what a stream receives: its half of the machine, its end of the ring.
 *
 * Owns: the cut half, the ring's receiving end, the buffers known to be writable, what has been
 *   shown or sent again, the end of the input, the watch over a poller.
 * Lock: `lock`, which survives reuse of the stream. Kernel receives in ATTACHED are made with it
 * held. Atomic members are read without it, and may be stale then. It is taken before the sending
 * half's lock.
 */
#ifndef RDMASHIM_RECV_HALF_H
#define RDMASHIM_RECV_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/usermem.h"
#include "conn/poller.h"
#include "cut/cut.h"
#include "rdma/shm/ring.h"

struct recv_half {
	_Alignas(64) struct lock lock;
	struct cut_rx cut;
	struct ring_rx ring;
	/* to here: what every message touches */
	struct usermem mem;	/* buffers that could be written */
	uint64_t peeked;	/* bytes before it a peek or FIONREAD has shown, some in the ring */
	_Atomic uint32_t late_epoch;	/* epoch of the last rewind that was waited for in vain */
	uint64_t resent_to;	/* bytes before it the last rewind sent again: the kernel's ... */
	_Atomic uint64_t resent_end;	/* ... when it has received so many; 0: it has */
	uint64_t resent_ns;	/* when that was */
	struct poller poller;
	uint32_t takes;	/* of blocks out of the peer's memory, begun */
	_Atomic uint32_t hit_rate;	/* of spinning, see base/spin.h */
	uint64_t idle_us;	/* on TCP since then, as was seen */
	uint8_t used;	/* the ring, since its memory was given back last */
	uint8_t synced;	/* rd was set from the kernel's counts */
	uint8_t fin_held;	/* FIN came while armed or frozen: told when BACK settles it */
	_Atomic uint8_t fin_known;	/* FINAL was seen: RDHUP stays, also through a rewind */
	uint8_t end_peeked;	/* end_at is in `peeked` */
	_Atomic uint8_t end_awaited;	/* looked so often for TCP's bytes before FINAL */
	uint8_t eof;	/* the end was delivered: stays so, even before the kernel's FIN */
	_Atomic uint64_t end_at;	/* FINAL's offset, written before fin_known */
};
_Static_assert(offsetof(struct recv_half, mem) <= 3 * 64, "a message touches three lines");

#endif
