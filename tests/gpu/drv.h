/*
 * drv.h - the driver's functions for test programs, got in one of the ways in which programs get
 * them:
 * 	linked    symbols of libcuda
 * 	dlsym     dlopen() and dlsym(), as ctypes
 * 	address   cuGetProcAddress by dlsym(), as the CUDA runtime; address1 its older form
 * 	thread    as address, with the per-thread meaning of stream 0
 */
#ifndef DRV_H
#define DRV_H

#include "standin.h"

typedef struct { char b[64]; } drv_handle;

#define DRV_CALLS \
	F(cuInit,, (unsigned)) \
	F(cuDeviceGetCount,, (int *)) \
	F(cuDevicePrimaryCtxRetain,, (CUcontext *, int)) \
	F(cuCtxSetCurrent,, (CUcontext)) \
	F(cuCtxSynchronize,, (void)) \
	F(cuMemAlloc, _v2, (CUdeviceptr *, size_t)) \
	F(cuMemFree, _v2, (CUdeviceptr)) \
	F(cuMemHostAlloc,, (void **, size_t, unsigned)) \
	F(cuMemFreeHost,, (void *)) \
	F(cuStreamCreate,, (CUstream *, unsigned)) \
	F(cuStreamDestroy, _v2, (CUstream)) \
	F(cuEventCreate,, (CUevent *, unsigned)) \
	F(cuDevicePrimaryCtxReset, _v2, (int)) \
	F(cuDevicePrimaryCtxRelease, _v2, (int)) \
	F(cuCtxCreate, _v2, (CUcontext *, unsigned, int)) \
	F(cuCtxDestroy, _v2, (CUcontext)) \
	F(cuMemGetInfo, _v2, (size_t *, size_t *)) \
	F(cuGraphInstantiateWithFlags,, (void **, void *, unsigned long long)) \
	F(cuGraphExecDestroy,, (void *)) \
	F(cuGraphDestroy,, (void *)) \
	S(cuGraphLaunch,, _ptsz, (void *, CUstream)) \
	S(cuStreamEndCapture,, _ptsz, (CUstream, void **)) \
	S(cuStreamSynchronize,, _ptsz, (CUstream)) \
	S(cuStreamWaitEvent,, _ptsz, (CUstream, CUevent, unsigned)) \
	S(cuEventRecord,, _ptsz, (CUevent, CUstream)) \
	S(cuStreamBeginCapture, _v2, _v2_ptsz, (CUstream, int)) \
	S(cuMemcpyDtoH, _v2, _v2_ptds, (void *, CUdeviceptr, size_t)) \
	S(cuMemcpyDtoHAsync, _v2, _v2_ptsz, (void *, CUdeviceptr, size_t, CUstream)) \
	S(cuMemcpyHtoD, _v2, _v2_ptds, (CUdeviceptr, const void *, size_t)) \
	S(cuMemcpyHtoDAsync, _v2, _v2_ptsz, (CUdeviceptr, const void *, size_t, CUstream)) \
	S(cuMemcpyDtoD, _v2, _v2_ptds, (CUdeviceptr, CUdeviceptr, size_t)) \
	S(cuMemcpyDtoDAsync, _v2, _v2_ptsz, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	S(cuMemcpy,, _ptds, (CUdeviceptr, CUdeviceptr, size_t)) \
	S(cuMemcpyAsync,, _ptsz, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	S(cuMemcpy2D, _v2, _v2_ptds, (const struct standin_2d *)) \
	S(cuMemcpy2DAsync, _v2, _v2_ptsz, (const struct standin_2d *, CUstream)) \
	S(cuMemsetD8, _v2, _v2_ptds, (CUdeviceptr, unsigned char, size_t)) \
	S(cuMemsetD8Async,, _ptsz, (CUdeviceptr, unsigned char, size_t, CUstream)) \
	S(cuMemsetD2D8Async,, _ptsz, (CUdeviceptr, size_t, unsigned char, size_t, size_t, \
		CUstream)) \
	S(cuLaunchKernel,, _ptsz, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, \
		unsigned, unsigned, CUstream, void **, void **))

struct drv {
#define F(name, v, params) int (*name) params;
#define S(name, v, tv, params) int (*name) params;
	DRV_CALLS
#undef F
#undef S
};
extern struct drv d;

void drv_open(const char *how);
/* The driver's own entries, read from its symbol table: whoever stands before symbols and
 * dlsym() is passed by. After drv_open(). */
void drv_past(struct drv *ret);
/* Waits until there is a file $GATE, if that is set. */
void drv_gate(void);
/* Where both ends of the connection are: $ADDRESS, an IPv4 address of this host, else its
 * loopback. Network order. */
uint32_t drv_address(void);
/* Fills n bytes at p (device memory or pinned) by a kernel. */
void drv_fill(void *p, unsigned char v, unsigned n, CUstream st);

#define CK(call) do { \
	int ck_ = (call); \
	if (ck_) { \
		fprintf(stderr, "%s:%d: %s: CUDA error %d\n", __FILE__, __LINE__, #call, ck_); \
		exit(3); \
	} \
} while (0)

#endif
