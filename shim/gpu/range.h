/*
 * range.h - a copied range: host memory that a copy fills, and the same bytes in device memory of
 * ours, its snapshot. One object from the copy to the end of its room:
 *
 *   learned    learn.c says of a place in memory that it is worth one (gpu_expected()), and
 *              is told what became of it (gpu_learn())
 *   FILLING    range_new(): it has room in a ring, a pin, and no host memory yet
 *   LIVE       range_live(): [lo, hi) is what the snapshot is, as long as nobody writes there:
 *              range_watch() begins that, range_at() and range_true() ask
 *   veiled     the host memory is not filled yet: veils (deferred.h) have the bytes here
 *   described  an offer names the range's desc: a peer reads that, and the snapshot, while it is
 *              pinned
 *   over       lo and hi are 0: no longer true, only its room is still taken
 *   FREE       nobody uses the room: no pin, no veil, no copy under way, no peer that may read
 *
 * A range is a struct gpu_range * wherever the GPU path hands it on, and a number to who is outside
 * (struct gpu_ref). It stays where it is while it is pinned or gpu_lock is held.
 *
 * Lock: gpu_lock, but for what is atomic; veils and touched are the veils' lock's. Those that call
 * the driver want the ring's context current.
 */
#ifndef RDMASHIM_GPU_RANGE_H
#define RDMASHIM_GPU_RANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu_desc.h"
#include "gpu/gpu_ops.h"

#define RANGES 64
#define RINGS  8

enum range_state { RANGE_FREE, RANGE_FILLING, RANGE_LIVE };
struct gpu_range {
	int state;

	/* ---- host memory ---- */
	uintptr_t lo, hi;	/* 0, 0: no longer true, only its room is still taken */
	bool device_writable;		/* a device may write there */
	bool rx;		/* of a receive */
	uint64_t seq;		/* gpu_seq() before the copy */

	/* ---- the snapshot ---- */
	int ring;
	uint64_t off, len;	/* its room in the ring */
	uint64_t data;		/* where in the ring the byte at lo is */
	_Atomic uint8_t pins;	/* a peer, or a thread of ours, reads the snapshot */
	bool in_use;		/* a copy from it is being put into a stream, without the lock */
	/* until then a peer that has not said so may still read it */
	_Atomic uint64_t hold_ns;
	struct gpu_desc desc;	/* what an offer of it points to; constant while it is pinned */

	/* ---- what is under way there ---- */
	bool done;		/* all that was asked of the snapshot is complete */
	gpu_event ev;		/* after its last use that may not be complete, unless it is `in` */
	int ev_ring;		/* whose context the event is of */
	gpu_stream st;		/* where that use is; NULL: who is behind whom is not known */
	uint64_t turn;		/* ... and its number among all of them */
	bool coming;		/* the bytes may still be on their way from a peer's device ... */
	bool only_comes;	/* ... and nothing else has used them yet: `in` is the last event */
	gpu_event in;		/* ... until then; not recorded anew while they are of use */
	int in_ring;

	/* ---- the lazy GPU path ---- */
	bool veiled;		/* left without the bytes at first; while it is made: is to be */
	_Atomic int veils;	/* whose bytes are in its room */
	_Atomic uint64_t touched;	/* of their bytes, filled because somebody looked */

	/* ---- what is learned from it ---- */
	uint8_t site;		/* of the copy to the host */
	_Atomic uint8_t why;	/* enum reason: why its last send did without it */
	bool sent;		/* was found unchanged by a send */
	_Atomic bool early;	/* ... which could not use it yet */
	uint64_t bytes;		/* of that copy */
	_Atomic uint64_t used;	/* bytes that a peer or a copy to the device fetched */
	uint64_t judged;	/* ... when a send last asked if it is worth it */
};
extern struct gpu_range gpu_ranges[RANGES];

/* Device memory of ours in one context, out of which snapshots are cut. */
struct gpu_ring {
	gpu_ctx ctx;		/* NULL: free */
	bool bad;
	gpu_addr base;
	uint64_t size, next;	/* where the next snapshot goes */
	uint64_t all;		/* size, and what gpu_ring_carve() took */
	uint64_t id;
	uint8_t ipc[GPU_HANDLE];
	bool shared;		/* ipc is valid */
	struct gpu_device dev;
	gpu_stream st;		/* for receives */
	gpu_stream fill;	/* for veils, if guards are permitted */
};
extern struct gpu_ring gpu_rings[RINGS];

int gpu_ring_of(gpu_ctx ctx);	/* made on first need; -1 */
/* n bytes of it for something else, for good; 0: not now. */
gpu_addr gpu_ring_carve(int ring, uint64_t n);
/* A device can write there: pinned, or all of memory. */
bool gpu_device_writes(int ring, uintptr_t lo, size_t n);

/* In FILLING, pinned once, with room for n bytes; or NULL. */
struct gpu_range *range_new(int ring, size_t n);
void range_spare(void);		/* when there is time: so that the next one comes soon */
/* It gives its pin back; lo and hi 0: only its room is of use to somebody. */
void range_live(struct gpu_range *r, uintptr_t lo, uintptr_t hi, uint64_t data);
void ranges_drop(uintptr_t lo, uintptr_t hi);	/* somebody writes there */
void range_judge(struct gpu_range *r);	/* the program writes to it: worth it? */

/* gpu_track_begin() for one that is not yet live. */
bool range_watch(struct gpu_range *r, uintptr_t lo, uintptr_t hi);
/* The one that holds p and whose host bytes no device has written since; or NULL and where the
 * next one starts. */
struct gpu_range *range_at(uintptr_t p, uintptr_t end, uintptr_t *next);
/* From `at`, which it has, for so many bytes, at most to `end`, the buffer is as it was at the
 * copy: nobody has written there, and no other device can have, unseen. 0: not at `at`, *next is
 * where to look again; because of such a device: *ret_device_writable. */
size_t range_true(const struct gpu_range *r, uintptr_t at, uintptr_t end, uintptr_t *next,
		  bool *ret_device_writable);

/* What is in the stream now uses the snapshot: range_record() without the lock, since a stream that
 * is full waits for the program, then range_marked() with it. *turn: from the one to the other. */
bool range_record(struct gpu_range *r, gpu_stream st, uint64_t *turn);
void range_marked(struct gpu_range *r, gpu_stream st, uint64_t turn);
bool range_comes(struct gpu_range *r, gpu_stream st);	/* ... and brings its bytes */
void range_came(struct gpu_range *r);			/* that was waited for */
/* after all its uses; NULL: there was none */
gpu_event range_last(const struct gpu_range *r);
bool range_ended(struct gpu_range *r);			/* it has happened */
void range_stream_gone(gpu_stream st);			/* another may be called the same soon */

#endif
