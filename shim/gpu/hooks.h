/*
 * hooks.h - what a vendor's hooks say to the GPU path: the program is about to do something,
 * or has done it. Addresses, streams and results are those of gpu_ops.h.
 *
 * Called where the program called, so any lock of the program's may be held; none of ours is.
 */
#ifndef RDMASHIM_GPU_HOOKS_H
#define RDMASHIM_GPU_HOOKS_H

#include "gpu/busy.h"
#include "gpu/deferred.h"
#include "gpu/gpu_ops.h"
#include "gpu/state.h"

#define GPU_PATH_MIN   (128 * 1024)	/* smaller copies are not worth a snapshot */

/* ASLEEP to ON or OFF, with that vendor; true: on. */
bool gpu_wake(const struct gpu_ops *vendor);

/* For a vendor's hooks: the GPU path is on, and this vendor's. */
static inline bool gpu_path_on(const struct gpu_ops *vendor)
{
	int s = atomic_load_explicit(&gpu_path, memory_order_relaxed);

	return s == GPU_PATH_ON ? gpu == vendor : s == GPU_PATH_ASLEEP && gpu_wake(vendor);
}

/* Where the program calls from. */
struct gpu_from { const void *ra, *sp; };
#define GPU_FROM ((struct gpu_from){ __builtin_return_address(0), __builtin_frame_address(0) })

struct gpu_range;

/* A copy to the host is about to be made, or was. True: made with a snapshot, *src is now the
 * snapshot, and gpu_d2h_end() must follow the real copy, unless it is done. */
struct gpu_copy {
	struct gpu_range *range;	/* its snapshot */
	int site;
	size_t n;
	bool sync, done;	/* done: nothing is left to do */
	gpu_stream st;
};
bool gpu_d2h_begin(void *dst, gpu_addr *src, size_t n, gpu_stream st, bool sync,
		    struct gpu_from from, struct gpu_copy *c);
void gpu_d2h_end(const struct gpu_copy *c, gpu_result r);

/* A copy from the host. True: done from device memory of ours, *ret is its result. */
bool gpu_h2d(gpu_addr dst, const void *src, size_t n, gpu_stream st, bool sync,
	      struct gpu_from from, gpu_result *ret);

/* The device is about to write dst[0..n), which may be host memory. */
void gpu_touch(gpu_addr dst, size_t n);

void gpu_stream_gone(gpu_stream st);
/* The current context has done everything that was asked before: gpu_writers, then. */
void gpu_synced(uint64_t writers_before);
void gpu_context_gone(const struct gpu_ops *vendor);
void gpu_pause(bool on);	/* no snapshots and takes from here on; waits for those under way */

#endif
