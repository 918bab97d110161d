/* standin.h - types of the stand-in driver (standin.c), as the CUDA driver's ABI has them. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

struct standin_2d {
	size_t src_x, src_y;
	unsigned src_type;
	const void *src_host;
	CUdeviceptr src_device;
	void *src_array;
	size_t src_pitch;
	size_t dst_x, dst_y;
	unsigned dst_type;
	void *dst_host;
	CUdeviceptr dst_device;
	void *dst_array;
	size_t dst_pitch;
	size_t width, height;
};

/* Where "the device" sees pinned memory: a kernel must write there. Exported, for tests'
 * kernels. */
void *standin_dma(void *p) __attribute__((visibility("default")));
int standin_full(void) __attribute__((visibility("default")));
uint64_t standin_d2d(void) __attribute__((visibility("default")));
/* From now on every copy from a device to the host fails, as when a kernel's fault has ended the
 * context. */
void standin_break(void) __attribute__((visibility("default")));
void *standin_symbol(const char *name);

#endif
