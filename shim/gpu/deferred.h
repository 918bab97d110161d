/*
 * deferred.h - the lazy GPU path as the rest of the GPU path sees it: a table that it
 * registers. Where there is none, nothing is deferred, and each of these does nothing.
 *
 * A veil is a range of whole pages whose bytes are still in the ring (deferred/veil.c).
 */
#ifndef RDMASHIM_GPU_DEFERRED_H
#define RDMASHIM_GPU_DEFERRED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu_ops.h"

struct gpu_copy;
struct gpu_range;

struct deferred_ops {
	bool (*open)(void);		/* no lock held. False: nothing will be deferred */
	void (*end)(void);		/* what is veiled is filled, and no more will be */
	void (*after_fork)(void);	/* in the child */

	/* ---- which copies; gpu_lock held ---- */
	/* The range was pinned memory at the last look, and still is. */
	bool (*pinned_before)(uintptr_t lo, size_t n);
	bool (*may)(const struct gpu_range *r, uintptr_t lo, size_t n);
	void (*ended)(const struct gpu_range *r);	/* a deferred range: was it worth it? */

	/* ---- the copies themselves; gpu_lock not held ---- */
	/* Instead of the copy to the host after gpu_d2h_begin(): true: done, the buffer is
	 * veiled. */
	bool (*copy)(struct gpu_copy *c, uintptr_t lo, size_t n);
	/* Instead of the copy to the buffer of what a peer sent: as above. */
	bool (*take)(struct gpu_range *r, uintptr_t lo, size_t n, uint64_t off, gpu_stream st);

	/* ---- veils; only called where there are some, with any lock or none ---- */
	/* A device is about to read or write there. The driver's error: the bytes are lost. */
	gpu_result (*fill)(uintptr_t lo, size_t n);
	void (*leave_room)(struct gpu_range *r);	/* the same for all that is in its room */
	void (*forget)(uintptr_t lo, size_t n);		/* nobody will look any more */
	/* p is under one; and up to where that is so, or not so. */
	bool (*at)(uintptr_t p, uintptr_t hi, uintptr_t *end);
};

/* Once, before the GPU path goes on. */
void deferred_serve(const struct deferred_ops *ops);
extern const struct deferred_ops *deferred;	/* never NULL */

/* How many veils there are; also read by the hooks that only count. */
extern _Atomic int gpu_veils __attribute__((visibility("hidden")));
/* Grows when host memory that devices know is given back. */
extern _Atomic uint64_t gpu_pins_gen;

gpu_result gpu_veil_fill(uintptr_t lo, size_t n);
void gpu_veil_fill_all(void) __attribute__((visibility("hidden")));
/* A device will look at host memory again and again: nothing is deferred from here on. */
void gpu_veil_waiter(void) __attribute__((visibility("hidden")));
void gpu_veil_forget(uintptr_t lo, size_t n);
bool gpu_veil_at(uintptr_t p, uintptr_t hi, uintptr_t *end);
bool gpu_deferred_here(void);	/* there is a table */
bool gpu_veil_open(void);		/* false, too, once there was such a device */

#endif
