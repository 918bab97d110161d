/*
 * cuda_driver.h - the CUDA driver as the library itself calls it, past all hooks.
 *
 * Any thread, with or without gpu_lock; not in a signal handler.
 */
#ifndef RDMASHIM_CUDA_DRIVER_H
#define RDMASHIM_CUDA_DRIVER_H

#include <stdbool.h>

#include "cuda/cuda_api.h"
#include "gpu/gpu_ops.h"

extern struct cuda_api cu;		/* all set once cuda_bind() has said true */
bool cuda_bind(void);
void *cuda_library(void);		/* a handle of it, NULL if it is not loaded */
void *cuda_real(const char *name);	/* the driver's symbol, NULL if there is no driver */
/* The real ones, once cuda_find_dlsym() was called; then never NULL. */
void cuda_find_dlsym(void);
extern void *(*cuda_real_dlsym)(void *, const char *) __attribute__((visibility("hidden")));
extern void *(*cuda_real_dlvsym)(void *, const char *, const char *)
	__attribute__((visibility("hidden")));

extern const struct gpu_ops cuda_ops;	/* cuda_ops.c */

#endif
