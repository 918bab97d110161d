/*
 * busy.h - what may write host memory at places that are not known: launches and calls are counted,
 * and the streams are remembered in which such work may still be under way.
 */
#ifndef RDMASHIM_GPU_BUSY_H
#define RDMASHIM_GPU_BUSY_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu_ops.h"

/* Calls so far that may write anywhere and are no launches (CUDA_WRITER rows). */
extern uint64_t gpu_writers __attribute__((visibility("hidden")));
uint64_t gpu_seq(void);		/* grows with all that may write anywhere */

/* Work that may write anything goes into the stream: before and after. */
void gpu_launching(void);
void gpu_launched(gpu_stream st);
/* A kernel that by the policy sees no host buffers: not counted. */
bool gpu_launch_unseen(void);
void gpu_busy_unseen(void);		/* there was work before we looked */

/* gpu_lock held. */
bool gpu_busy(gpu_stream but);		/* such work is, or may be, under way in another stream */
bool gpu_busy_in(gpu_ctx but);	/* ... or was, in another context */
void gpu_busy_gone(gpu_stream st);	/* another stream may be called the same soon */
void gpu_busy_settled(uint64_t before);	/* what was counted up to `before` is complete */

#endif
