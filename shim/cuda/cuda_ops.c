/*
 * cuda_ops.c - gpu_ops.h for CUDA. Holds no lock.
 *
 * An RDMA device reaches device memory by a dma-buf (cuMemGetHandleForAddressRange() and
 * ibv_reg_dmabuf_mr(3)), or by its address, where nvidia-peermem tells the kernel's verbs what
 * that is. Before Hopper and without an option of the driver's, a GPU may show a reader what
 * came by PCIe out of order: then cuFlushGPUDirectRDMAWrites() puts that right (CUDA driver API,
 * "GPUDirect RDMA").
 */
#include <string.h>

#include "cuda/cuda_gdr.h"
#include "cuda/cuda_hook.h"

enum {	/* CUdevice_attribute, and what the driver says there */
	RDMA_SUPPORTED = 116, FLUSH_OPTIONS = 117, WRITES_ORDERING = 118, DMA_BUF_SUPPORTED = 124,
	FLUSH_BY_HOST = 1, ORDERED_FOR_OWNER = 100,
};
#define FLUSH_THIS_CONTEXT 0	/* CUflushGPUDirectRDMAWritesTarget */
#define FLUSH_FOR_OWNER    100	/* CUflushGPUDirectRDMAWritesScope */
#define RANGE_DMA_BUF      1	/* CUmemRangeHandleType */

/* GPU_STREAM_CTX and GPU_STREAM_THREAD are CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. */
_Static_assert(sizeof(CUipcMemHandle) == GPU_HANDLE, "struct gpu_desc");

/* ---- contexts ---- */

static gpu_ctx current(void)
{
	CUcontext ctx = NULL;

	return cu.cuCtxGetCurrent(&ctx) ? NULL : ctx;
}

/* What did not change is not put back: the program's own context and mode must be there
 * afterwards. */
enum { MODE = 3, MODE_SET = 4, PUSHED = 8 };

static void enter(gpu_ctx ctx, int *was)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	*was = cu.cuThreadExchangeStreamCaptureMode(&mode) ? 0 : (mode & MODE) | MODE_SET;
	if (ctx && !cu.cuCtxPushCurrent_v2(ctx))
		*was |= PUSHED;
}

static void leave(gpu_ctx ctx, const int *was)
{
	CUcontext old;
	int mode = *was & MODE;

	if (ctx && *was & PUSHED)
		cu.cuCtxPopCurrent_v2(&old);
	if (*was & MODE_SET)
		cu.cuThreadExchangeStreamCaptureMode(&mode);
}

static bool device(struct gpu_device *ret)
{
	CUdevice dev;
	CUuuid uuid;
	int all = 0;

	if (cu.cuCtxGetDevice(&dev) || cu.cuDeviceGetUuid(&uuid, dev) ||
	    cu.cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, dev))
		return false;
	memcpy(ret->uuid, &uuid, sizeof ret->uuid);
	ret->all_memory = all != 0;
	return true;
}

static int attribute(int which)
{
	CUdevice dev;
	int v = 0;

	return cu.cuCtxGetDevice(&dev) || cu.cuDeviceGetAttribute(&v, which, dev) ? 0 : v;
}

/* ---- memory ---- */

/* Not by the driver's single-attribute form: that calls an unknown address an error, which tools
 * report. */
static struct gpu_pointer look_at(gpu_addr p, int *ret_device)
{
	int what[] = { CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		       CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	CUcontext ctx = NULL;
	unsigned type = 0, managed = 0;
	int dev = -1;
	void *to[] = { &ctx, &type, &managed, &dev };

	if (cu.cuPointerGetAttributes(4, what, to, p))
		type = 0;
	*ret_device = dev;
	return (struct gpu_pointer){ ctx, type != 0, type == CU_MEMORYTYPE_DEVICE && !managed };
}

static struct gpu_pointer pointer(gpu_addr p)
{
	int dev;

	return look_at(p, &dev);
}

/* Memory of a pool, or mapped by hand, is of no context. */
static bool in_context(gpu_addr at, gpu_ctx ctx)
{
	int its;
	struct gpu_pointer p = look_at(at, &its);
	CUdevice dev;

	return p.on_device &&
	       (p.ctx == ctx || (!p.ctx && !cu.cuCtxGetDevice(&dev) && dev == its));
}

static bool plain_pinned(gpu_addr p)
{
	int what[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		       CU_POINTER_ATTRIBUTE_DEVICE_POINTER };
	unsigned type = 0, managed = 0;
	CUdeviceptr dev = 0;
	void *to[] = { &type, &managed, &dev };

	return !cu.cuPointerGetAttributes(3, what, to, p) && type == CU_MEMORYTYPE_HOST &&
	       !managed && dev == p;
}

static bool left(size_t *ret)
{
	size_t all;

	return !cu.cuMemGetInfo_v2(ret, &all);
}

static gpu_result alloc(gpu_addr *ret, size_t n) { return cu.cuMemAlloc_v2(ret, n); }
static void give_back(gpu_addr p) { cu.cuMemFree_v2(p); }

static gpu_result extent(gpu_addr p, gpu_addr *start, size_t *n)
{
	return cu.cuMemGetAddressRange_v2(start, n, p);
}

static gpu_result share(uint8_t handle[GPU_HANDLE], gpu_addr p)
{
	CUipcMemHandle h;
	CUresult r = cu.cuIpcGetMemHandle(&h, p);

	if (!r)
		memcpy(handle, &h, sizeof h);
	return r;
}

static gpu_result map(gpu_addr *ret, const uint8_t handle[GPU_HANDLE])
{
	CUipcMemHandle h;

	memcpy(&h, handle, sizeof h);
	return cu.cuIpcOpenMemHandle_v2(ret, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static void unmap(gpu_addr p) { cu.cuIpcCloseMemHandle(p); }

/* ---- streams and events ---- */

static gpu_result stream_new(gpu_stream *ret)
{
	CUstream st;
	CUresult r = cu.cuStreamCreate(&st, CU_STREAM_NON_BLOCKING);

	if (!r)
		*ret = st;
	return r;
}

static bool capturing(gpu_stream st)
{
	int status = 0;

	return cu.cuStreamIsCapturing(st, &status) || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool idle(gpu_stream st) { return cu.cuStreamQuery(st) == CUDA_SUCCESS; }
static gpu_result wait_for(gpu_stream st) { return cu.cuStreamSynchronize(st); }

static gpu_result wait_event(gpu_stream st, gpu_event ev)
{
	return cu.cuStreamWaitEvent(st, ev, 0);
}

static gpu_result event_new(gpu_event *ret)
{
	CUevent ev;
	CUresult r = cu.cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING);

	if (!r)
		*ret = ev;
	return r;
}

static gpu_result record(gpu_event ev, gpu_stream st) { return cu.cuEventRecord(ev, st); }

static enum gpu_state event(gpu_event ev)
{
	CUresult r = cu.cuEventQuery(ev);

	return !r ? GPU_ENDED : r == CUDA_ERROR_NOT_READY ? GPU_UNDER_WAY : GPU_FAILED;
}

static gpu_result to_device(gpu_addr dst, const void *src, size_t n, gpu_stream st)
{
	return cu.cuMemcpyHtoDAsync_v2(dst, src, n, st);
}

static gpu_result to_host(void *dst, gpu_addr src, size_t n, gpu_stream st)
{
	return cu.cuMemcpyDtoHAsync_v2(dst, src, n, st);
}

static gpu_result between(gpu_addr dst, gpu_addr src, size_t n, gpu_stream st)
{
	return cu.cuMemcpyDtoDAsync_v2(dst, src, n, st);
}

/* ---- RDMA devices ---- */

static bool dmabuf(gpu_addr base, size_t n, int *ret_fd)
{
	CUresult (*handle)(int *, CUdeviceptr, size_t, int, unsigned long long);

	*(void **)&handle = cuda_real("cuMemGetHandleForAddressRange");
	return handle && attribute(DMA_BUF_SUPPORTED) &&
	       !handle(ret_fd, base, n, RANGE_DMA_BUF, 0);
}

static CUresult (*flush_writes)(int target, int scope);

static bool lands(bool *ret_flush)
{
	*ret_flush = attribute(WRITES_ORDERING) < ORDERED_FOR_OWNER;
	if (*ret_flush && attribute(FLUSH_OPTIONS) & FLUSH_BY_HOST && !flush_writes)
		*(void **)&flush_writes = cuda_real("cuFlushGPUDirectRDMAWrites");
	return attribute(RDMA_SUPPORTED) &&
	       (!*ret_flush || (flush_writes && attribute(FLUSH_OPTIONS) & FLUSH_BY_HOST));
}

static gpu_result flush(void) { return flush_writes(FLUSH_THIS_CONTEXT, FLUSH_FOR_OWNER); }

/* The functions of these say nothing of the program that calls. */
static const char *const libraries[] = { "libcudart", "libcuda.", NULL };

const struct gpu_ops cuda_ops = {
	.name = "CUDA", .libraries = libraries,
	.bind = cuda_bind, .proved = cuda_hooks_proved,
	.current = current, .enter = enter, .leave = leave, .device = device,
	.pointer = pointer, .in_context = in_context, .plain_pinned = plain_pinned,
	.left = left, .alloc = alloc, .free = give_back, .extent = extent,
	.share = share, .map = map, .unmap = unmap,
	.stream_new = stream_new, .capturing = capturing, .idle = idle, .wait = wait_for,
	.wait_event = wait_event, .event_new = event_new, .record = record, .event = event,
	.to_device = to_device, .to_host = to_host, .between = between,
	.dmabuf = dmabuf, .lands = lands, .flush = flush,
	.window = cuda_gdr_map, .window_read = cuda_gdr_read,
};
