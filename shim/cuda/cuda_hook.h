/*
 * cuda_hook.h - the hooks on the CUDA driver: what cuda_hook.c and cuda_wrap.c have of each other.
 */
#ifndef RDMASHIM_CUDA_HOOK_H
#define RDMASHIM_CUDA_HOOK_H

#include "cuda/cuda_driver.h"

enum { LEGACY, THREAD, ANY };	/* flavours, cuda_calls.def */

bool cuda_hooks_proved(void);		/* every way to an entry leads to its hook */
/* What a program that asks cuGetProcAddress() gets. */
void *cuda_substitute(const char *name, void *p, int version, uint64_t flags);

#define CUDA(name, base, flavour, params, args) extern CUresult (*cu_real_##name) params; \
	CUresult cu_wrap_##name params __asm__(#name) __attribute__((visibility("default"))); \
	extern __typeof__(cu_wrap_##name) cu_own_##name __attribute__((visibility("hidden")));
#include "cuda/cuda_calls.def"

#endif
