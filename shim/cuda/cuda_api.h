/*
 * cuda_api.h - as much of the CUDA driver API as the library hooks or calls: types, constants
 * and prototypes are the driver's ABI, written down here so that nothing of CUDA is needed to
 * build.
 *
 * Names are those of the driver library's symbols (with _v2, _ptds, _ptsz), not of its header's
 * macros.
 */
#ifndef RDMASHIM_CUDA_API_H
#define RDMASHIM_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { char bytes[16]; } CUuuid;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_INITIALIZED = 3, CUDA_ERROR_NOT_READY = 600 };

#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

enum {
	CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2,
		CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
	CU_POINTER_ATTRIBUTE_CONTEXT = 1, CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
		CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3, CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_UNIFIED = 4,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2, CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
	CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
};

struct cu_memcpy2d {
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
_Static_assert(sizeof(struct cu_memcpy2d) == 128, "CUDA_MEMCPY2D_v2");

struct cu_launch_config {
	unsigned grid[3], block[3], shared;
	CUstream stream;
	void *attrs;
	unsigned nattrs;
};

/* What the library itself calls: USE(symbol, (parameters)). Never through a hook. */
#define CUDA_USES \
	USE(cuCtxGetCurrent, (CUcontext *)) \
	USE(cuCtxPushCurrent_v2, (CUcontext)) \
	USE(cuCtxPopCurrent_v2, (CUcontext *)) \
	USE(cuCtxGetDevice, (CUdevice *)) \
	USE(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
	USE(cuDeviceGetUuid, (CUuuid *, CUdevice)) \
	USE(cuDeviceGetAttribute, (int *, int, CUdevice)) \
	USE(cuPointerGetAttributes, (unsigned, int *, void **, CUdeviceptr)) \
	USE(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
	USE(cuMemFree_v2, (CUdeviceptr)) \
	USE(cuMemGetInfo_v2, (size_t *, size_t *)) \
	USE(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
	USE(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr)) \
	USE(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned)) \
	USE(cuIpcCloseMemHandle, (CUdeviceptr)) \
	USE(cuStreamCreate, (CUstream *, unsigned)) \
	USE(cuStreamQuery, (CUstream)) \
	USE(cuStreamSynchronize, (CUstream)) \
	USE(cuStreamWaitEvent, (CUstream, CUevent, unsigned)) \
	USE(cuStreamIsCapturing, (CUstream, int *)) \
	USE(cuThreadExchangeStreamCaptureMode, (int *)) \
	USE(cuEventCreate, (CUevent *, unsigned)) \
	USE(cuEventRecord, (CUevent, CUstream)) \
	USE(cuEventQuery, (CUevent)) \
	USE(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	USE(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
	USE(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))

struct cuda_api {
#define USE(name, params) CUresult (*name) params;
	CUDA_USES
#undef USE
};

#endif
