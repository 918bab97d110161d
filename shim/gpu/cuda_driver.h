/*
 * cuda_driver.h - the CUDA driver as the library itself calls it, past all hooks; and what it is
 * asked in more than one place.
 *
 * Any thread, with or without cuda_lock; not in a signal handler.
 */
#ifndef RDMASHIM_CUDA_DRIVER_H
#define RDMASHIM_CUDA_DRIVER_H

#include <stdbool.h>

#include "gpu/cuda_api.h"

extern struct cuda_api cu;		/* all set once cuda_bind() has said true */
bool cuda_bind(void);
void *cuda_library(void);		/* a handle of it, NULL if it is not loaded */
void *cuda_real(const char *name);	/* the driver's symbol, NULL if there is no driver */
/* The real ones, once cuda_find_dlsym() was called; then never NULL. */
void cuda_find_dlsym(void);
extern void *(*cuda_real_dlsym)(void *, const char *) __attribute__((visibility("hidden")));
extern void *(*cuda_real_dlvsym)(void *, const char *, const char *)
	__attribute__((visibility("hidden")));

/* What the driver knows of an address. Not its single-attribute form: that calls an unknown one
 * an error, which tools report. */
/* Type 0: nothing. */
struct cuda_pointer { CUcontext ctx; unsigned type, managed; int device; };
struct cuda_pointer cuda_pointer(CUdeviceptr p);
/* Device memory of the context, which is current, or of its device */
bool cuda_in_context(CUdeviceptr p, CUcontext ctx);
static inline bool cuda_on_device(struct cuda_pointer p)
{
	return p.type == CU_MEMORYTYPE_DEVICE && !p.managed;
}

bool cuda_capturing(CUstream st);

/* What did not change is not put back: the program's own context and mode must be there
 * afterwards. */
enum { CUDA_MODE = 3, CUDA_MODE_SET = 4, CUDA_PUSHED = 8 };

static inline void cuda_enter(CUcontext ctx, int *was)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	*was = cu.cuThreadExchangeStreamCaptureMode(&mode) ? 0 : (mode & CUDA_MODE) | CUDA_MODE_SET;
	if (ctx && !cu.cuCtxPushCurrent_v2(ctx))
		*was |= CUDA_PUSHED;
}

static inline void cuda_leave(CUcontext ctx, const int *was)
{
	CUcontext old;
	int mode = *was & CUDA_MODE;

	if (ctx && *was & CUDA_PUSHED)
		cu.cuCtxPopCurrent_v2(&old);
	if (*was & CUDA_MODE_SET)
		cu.cuThreadExchangeStreamCaptureMode(&mode);
}

#endif
