/*
 * send_half.h - what a stream sends: its half of the machine, its end of the ring.
 *
 * Owns: the cut half, the ring's sending end, the buffers known to be readable, how often and since
 *   when the ring has been full, back-offs.
 * Lock: `lock`, which survives reuse of the stream. Kernel sends in ATTACHED are made with it held.
 * Atomic members are read without it, and may be stale then. It is taken after the receiving half's
 * lock.
 */
#ifndef RDMASHIM_SEND_HALF_H
#define RDMASHIM_SEND_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/usermem.h"
#include "conn/late.h"
#include "cut/cut.h"
#include "rdma/shm/ring.h"

/* A ring that is full: since when, when it was last seen to be, and the reader's progress all that
 * time. In us; since 0: it is not. */
struct full_watch {
	uint64_t since, seen, progress;
	uint64_t starved;	/* when its process last wanted a processor in vain, or since */
	uint64_t cpu_ns;	/* that it had had at `since`; 0: not known */
};

/* TCP takes little of it until it is cut, see stream_hold.c. */
struct hold {
	_Atomic uint8_t on;	/* until due_us, and then own_lowat is put back */
	uint8_t never, bulk;
	uint32_t own_lowat, ours;
	unsigned long pace;	/* ours, bytes a second; 0: it has its own */
	uint64_t due_us;
};

struct send_half {
	_Alignas(64) struct lock lock;
	/* bytes of its ring that count as memory; 0: none, and who writes asks, stream_idle.c */
	uint32_t held;
	struct cut_tx cut;
	struct ring_tx ring;
	/* to here: what every message touches */
	struct usermem mem;	/* buffers that could be read */
	uint8_t lost;	/* the peer can get nothing more: sends fail */
	uint8_t resend_full;	/* TCP did not take all of a resend */
	_Atomic uint32_t late_epoch;	/* epoch of the last rewind that was waited for in vain */
	struct full_watch full;	/* while a non-blocking sender is told that the ring is full */
	struct late late;	/* how long a full ring is waited for */
	struct hold hold;
	uint64_t overflow_wr;	/* wr at the last one */
	uint8_t overflows;	/* back-off exponent */
	_Atomic uint8_t ring_full;	/* seen by a non-blocking send, or a poll */
	uint8_t fulls;	/* the ring had less room than a call wanted, so often */
	uint8_t tcp_full;	/* when it was looked at last, see stream_more_room() */
	uint8_t declined;	/* back-off after ARMs that were answered by FROZEN */
	uint8_t refused;	/* so often there was no memory for its ring */
	uint8_t synced;	/* wr was set from the kernel's counts */
	uint8_t fin_out;	/* the kernel's FIN was sent: it shows HUP itself */
	_Atomic uint8_t back_soon;	/* back on TCP soon after a cut, so often: stream_pause.c */
	uint64_t left_us;	/* when it was cut last */
	uint64_t idle_us, idle_at;	/* it has sent little since then, when it was there */
	_Atomic uint32_t hit_rate;	/* of spinning, see base/spin.h */
};
_Static_assert(offsetof(struct send_half, mem) <= 3 * 64, "a message touches three lines");

#endif
