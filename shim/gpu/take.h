/*
 * take.h - what a take leaves for others of the GPU path to use and to end (gpu.h has its calls).
 */
#ifndef RDMASHIM_GPU_TAKE_H
#define RDMASHIM_GPU_TAKE_H

#include <sys/uio.h>

#include "gpu/gpu_ops.h"

/* From device memory that is nobody's but ours now into the buffers. Keep: so that a copy from
 * there to a device may be one between devices. False: they are not there. */
bool gpu_take_from(gpu_ctx ctx, gpu_addr src, size_t n, const struct iovec *iov, int niov,
		    bool keep);

void gpu_reads_end(void);	/* at exit(): the driver is asked for no read's end any more */

#endif
