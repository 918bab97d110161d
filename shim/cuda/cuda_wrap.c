/*
 * cuda_wrap.c - the hooks with arguments that matter: rows CUDA of cuda_calls.def. Each sorts
 * the call into one of a few kinds (copy to the host, from the host, a write to a known place, a
 * launch) and makes the driver's call. Holds no lock.
 */
#include "cuda/cuda_hook.h"
#include "gpu/hooks.h"

#define EACH(name) cu_wrap_##name
#define REAL_CU(name) cu_real_##name

/* Stream 0 means one of two streams. */
static inline CUstream stream_of(CUstream st, int flavour)
{
	return st ? st : flavour == THREAD ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static bool on_device(CUdeviceptr p) { return cuda_ops.pointer(p).on_device; }

/* ---- to the host ---- */
#define D2H(name, flavour, is_sync, st, call) do { \
	struct gpu_copy c_; \
	CUresult r_; \
	if (!gpu_path_on(&cuda_ops) || !gpu_d2h_begin(dst, &src, n, stream_of(st, flavour), \
		is_sync, GPU_FROM, &c_)) \
		return call; \
	if (c_.done) \
		return CUDA_SUCCESS; \
	r_ = call; \
	gpu_d2h_end(&c_, r_); \
	return r_; \
} while (0)

#define D2H_SYNC(name, flavour) CUresult EACH(name)(void *dst, CUdeviceptr src, size_t n) \
	{ D2H(name, flavour, true, NULL, REAL_CU(name)(dst, src, n)); }
#define D2H_ASYNC(name, flavour) CUresult EACH(name)(void *dst, CUdeviceptr src, size_t n, \
	CUstream st) \
	{ D2H(name, flavour, false, st, REAL_CU(name)(dst, src, n, st)); }
D2H_SYNC(cuMemcpyDtoH_v2, LEGACY)
D2H_SYNC(cuMemcpyDtoH_v2_ptds, THREAD)
D2H_ASYNC(cuMemcpyDtoHAsync_v2, LEGACY)
D2H_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, THREAD)

/* The driver is about to read there. */
#define FILL(src, n) do { \
	CUresult fill_ = gpu_veil_fill((uintptr_t)(src), n); \
	if (fill_) \
		return fill_; \
} while (0)

/* ---- from the host ---- */
#define H2D(flavour, is_sync, st, call) do { \
	CUresult r_; \
	if (gpu_path_on(&cuda_ops)) { \
		gpu_touch(dst, n); \
		if (gpu_h2d(dst, src, n, stream_of(st, flavour), is_sync, GPU_FROM, &r_)) \
			return r_; \
		FILL(src, n); \
	} \
	return call; \
} while (0)

#define H2D_SYNC(name, flavour) CUresult EACH(name)(CUdeviceptr dst, const void *src, size_t n) \
	{ H2D(flavour, true, NULL, REAL_CU(name)(dst, src, n)); }
#define H2D_ASYNC(name, flavour) CUresult EACH(name)(CUdeviceptr dst, const void *src, size_t n, \
	CUstream st) \
	{ H2D(flavour, false, st, REAL_CU(name)(dst, src, n, st)); }
H2D_SYNC(cuMemcpyHtoD_v2, LEGACY)
H2D_SYNC(cuMemcpyHtoD_v2_ptds, THREAD)
H2D_ASYNC(cuMemcpyHtoDAsync_v2, LEGACY)
H2D_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, THREAD)

/* ---- anywhere to anywhere: what the pointers are decides ---- */
#define ANYCOPY(flavour, is_sync, st, call) do { \
	CUresult r_; \
	if (gpu_path_on(&cuda_ops) && n >= GPU_PATH_MIN && atomic_load_explicit(&gpu_linked, \
		memory_order_relaxed)) { \
		bool from_ = on_device(src), to_ = on_device(dst); \
		if (from_ && !to_) { \
			struct gpu_copy c_; \
			if (!gpu_d2h_begin((void *)(uintptr_t)dst, &src, n, \
				stream_of(st, flavour), is_sync, GPU_FROM, &c_)) \
				return call; \
			if (c_.done) \
				return CUDA_SUCCESS; \
			r_ = call; \
			gpu_d2h_end(&c_, r_); \
			return r_; \
		} \
		gpu_touch(dst, n); \
		if (to_ && !from_ && gpu_h2d(dst, (void *)(uintptr_t)src, n, \
			stream_of(st, flavour), is_sync, GPU_FROM, &r_)) \
			return r_; \
		FILL(src, n); \
	} else if (gpu_path_on(&cuda_ops)) { \
		gpu_touch(dst, n); \
		FILL(src, n); \
	} \
	return call; \
} while (0)

#define ANY_SYNC(name, flavour) CUresult EACH(name)(CUdeviceptr dst, CUdeviceptr src, size_t n) \
	{ ANYCOPY(flavour, true, NULL, REAL_CU(name)(dst, src, n)); }
#define ANY_ASYNC(name, flavour) CUresult EACH(name)(CUdeviceptr dst, CUdeviceptr src, size_t n, \
	CUstream st) \
	{ ANYCOPY(flavour, false, st, REAL_CU(name)(dst, src, n, st)); }
ANY_SYNC(cuMemcpy, LEGACY)
ANY_SYNC(cuMemcpy_ptds, THREAD)
ANY_ASYNC(cuMemcpyAsync, LEGACY)
ANY_ASYNC(cuMemcpyAsync_ptsz, THREAD)

/* ---- two dimensions: a copy of one chunk is one of the above; any other is a write to its
 * destination ---- */

static bool one_chunk(const struct cu_memcpy2d *c)
{
	return c && c->height && c->width && !c->src_array && !c->dst_array &&
	       (c->height == 1 || (c->src_pitch == c->width && c->dst_pitch == c->width));
}

static CUdeviceptr end_2d(unsigned type, const void *host, CUdeviceptr dev, size_t x, size_t y,
			  size_t pitch)
{
	return (type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : dev) + y * pitch + x;
}

/* The destination's whole extent. */
static void touch_2d(const struct cu_memcpy2d *c)
{
	if (c && !c->dst_array && c->height)
		gpu_touch(end_2d(c->dst_type, c->dst_host, c->dst_device, c->dst_x, c->dst_y,
				  c->dst_pitch),
			   (c->height - 1) * c->dst_pitch + c->width);
}

static CUresult copy_2d(const struct cu_memcpy2d *c, CUstream st, bool sync, struct gpu_from from,
			bool *done)
{
	CUdeviceptr dst =
		end_2d(c->dst_type, c->dst_host, c->dst_device, c->dst_x, c->dst_y, c->dst_pitch);
	CUdeviceptr src =
		end_2d(c->src_type, c->src_host, c->src_device, c->src_x, c->src_y, c->src_pitch);
	size_t n = c->width * c->height;
	struct gpu_copy cc;
	CUresult r = 0;

	*done = false;
	if (n < GPU_PATH_MIN || !atomic_load_explicit(&gpu_linked, memory_order_relaxed))
		return 0;
	if (on_device(src) && !on_device(dst)) {
		if (!gpu_d2h_begin((void *)(uintptr_t)dst, &src, n, st, sync, from, &cc))
			return 0;
		*done = true;
		if (cc.done)
			return CUDA_SUCCESS;
		r = cu.cuMemcpyDtoHAsync_v2((void *)(uintptr_t)dst, src, n, st);
		if (!r && sync)
			r = cu.cuStreamSynchronize(st);
		gpu_d2h_end(&cc, r);
		return r;
	}
	*done = on_device(dst) && !on_device(src) && gpu_h2d(dst, (void *)(uintptr_t)src, n, st,
							      sync, from, &r);
	return r;
}

#define COPY_2D(flavour, is_sync, st, call) do { \
	if (gpu_path_on(&cuda_ops)) { \
		touch_2d(c); \
		if (one_chunk(c)) { \
			bool done_; \
			CUresult r_ = copy_2d(c, stream_of(st, flavour), is_sync, GPU_FROM, \
				&done_); \
			if (done_) \
				return r_; \
		} \
		if (c && !c->src_array && c->height) \
			FILL(end_2d(c->src_type, c->src_host, c->src_device, c->src_x, c->src_y, \
				c->src_pitch), \
			     (c->height - 1) * c->src_pitch + c->width); \
	} \
	return call; \
} while (0)
#define SYNC_2D(name, flavour) CUresult EACH(name)(const struct cu_memcpy2d *c) { COPY_2D(flavour, \
	true, NULL, REAL_CU(name)(c)); }
#define ASYNC_2D(name, flavour) \
	CUresult EACH(name)(const struct cu_memcpy2d *c, CUstream st) { COPY_2D(flavour, false, \
		st, REAL_CU(name)(c, st)); }
SYNC_2D(cuMemcpy2D_v2, LEGACY)
SYNC_2D(cuMemcpy2D_v2_ptds, THREAD)
SYNC_2D(cuMemcpy2DUnaligned_v2, LEGACY)
SYNC_2D(cuMemcpy2DUnaligned_v2_ptds, THREAD)
ASYNC_2D(cuMemcpy2DAsync_v2, LEGACY)
ASYNC_2D(cuMemcpy2DAsync_v2_ptsz, THREAD)

/* ---- writes to a known place ---- */
#define TOUCH(dst, n, call) do { if (gpu_path_on(&cuda_ops)) gpu_touch(dst, n); return call; \
	} while (0)
#define COPY(dst, src, n, call) do { if (gpu_path_on(&cuda_ops)) { gpu_touch(dst, n); \
	FILL(src, n); } return call; } while (0)

#define D2D_SYNC(name) CUresult EACH(name)(CUdeviceptr dst, CUdeviceptr src, \
	size_t n) { COPY(dst, src, n, REAL_CU(name)(dst, src, n)); }
#define D2D_ASYNC(name) CUresult EACH(name)(CUdeviceptr dst, CUdeviceptr src, size_t n, \
	CUstream st) \
	{ COPY(dst, src, n, REAL_CU(name)(dst, src, n, st)); }
D2D_SYNC(cuMemcpyDtoD_v2)
D2D_SYNC(cuMemcpyDtoD_v2_ptds)
D2D_ASYNC(cuMemcpyDtoDAsync_v2)
D2D_ASYNC(cuMemcpyDtoDAsync_v2_ptsz)

#define PEER_SYNC(name) CUresult EACH(name)(CUdeviceptr dst, CUcontext dctx, CUdeviceptr src, \
	CUcontext sctx, size_t n) \
	{ COPY(dst, src, n, REAL_CU(name)(dst, dctx, src, sctx, n)); }
#define PEER_ASYNC(name) \
	CUresult EACH(name)(CUdeviceptr dst, CUcontext dctx, CUdeviceptr src, CUcontext sctx, \
		size_t n, CUstream st) \
	{ COPY(dst, src, n, REAL_CU(name)(dst, dctx, src, sctx, n, st)); }
PEER_SYNC(cuMemcpyPeer)
PEER_SYNC(cuMemcpyPeer_ptds)
PEER_ASYNC(cuMemcpyPeerAsync)
PEER_ASYNC(cuMemcpyPeerAsync_ptsz)

#define SET(name, type) CUresult EACH(name)(CUdeviceptr dst, type v, \
	size_t n) { TOUCH(dst, n * sizeof v, REAL_CU(name)(dst, v, n)); }
#define SET_ASYNC(name, type) CUresult EACH(name)(CUdeviceptr dst, type v, size_t n, CUstream st) \
	{ TOUCH(dst, n * sizeof v, REAL_CU(name)(dst, v, n, st)); }
SET(cuMemsetD8_v2, unsigned char)
SET(cuMemsetD8_v2_ptds, unsigned char)
SET(cuMemsetD16_v2, unsigned short)
SET(cuMemsetD16_v2_ptds, unsigned short)
SET(cuMemsetD32_v2, unsigned)
SET(cuMemsetD32_v2_ptds, unsigned)
SET_ASYNC(cuMemsetD8Async, unsigned char)
SET_ASYNC(cuMemsetD8Async_ptsz, unsigned char)
SET_ASYNC(cuMemsetD16Async, unsigned short)
SET_ASYNC(cuMemsetD16Async_ptsz, unsigned short)
SET_ASYNC(cuMemsetD32Async, unsigned)
SET_ASYNC(cuMemsetD32Async_ptsz, unsigned)

/* ---- launches. What is veiled comes first. Counted before the driver is called, since the
 * kernel may be done when it returns, and after: only then asking its stream means something.
 * ---- */
#define LAUNCH(st, flavour, call) do { \
	CUresult r_; \
	if (!gpu_path_on(&cuda_ops)) \
		return call; \
	gpu_veil_fill_all(); \
	gpu_launching(); \
	r_ = call; \
	gpu_launched(stream_of(st, flavour)); \
	return r_; \
} while (0)

/* A graph may also copy. */
#define LAUNCH_KERNEL(st, flavour, call) do { \
	if (gpu_path_on(&cuda_ops) && gpu_launch_unseen()) \
		return call; \
	LAUNCH(st, flavour, call); \
} while (0)

#define KERNEL(name, flavour) CUresult EACH(name)(void *f, unsigned gx, unsigned gy, unsigned gz, \
	unsigned bx, unsigned by, \
		unsigned bz, unsigned shared, CUstream st, void **params, void **extra) \
	{ LAUNCH_KERNEL(st, flavour, REAL_CU(name)(f, gx, gy, gz, bx, by, bz, shared, st, params, \
		extra)); }
KERNEL(cuLaunchKernel, LEGACY)
KERNEL(cuLaunchKernel_ptsz, THREAD)

#define KERNEL_EX(name, flavour) CUresult EACH(name)(const struct cu_launch_config *c, void *f, \
	void **params, void **extra) \
	{ LAUNCH_KERNEL(c ? c->stream : NULL, flavour, REAL_CU(name)(c, f, params, extra)); }
KERNEL_EX(cuLaunchKernelEx, LEGACY)
KERNEL_EX(cuLaunchKernelEx_ptsz, THREAD)

#define COOPERATIVE(name, flavour) CUresult EACH(name)(void *f, unsigned gx, unsigned gy, \
	unsigned gz, unsigned bx, \
		unsigned by, unsigned bz, unsigned shared, CUstream st, void **params) \
	{ LAUNCH_KERNEL(st, flavour, REAL_CU(name)(f, gx, gy, gz, bx, by, bz, shared, st, \
		params)); }
COOPERATIVE(cuLaunchCooperativeKernel, LEGACY)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, THREAD)

#define GRAPH(name, flavour) CUresult EACH(name)(void *graph, CUstream st) { LAUNCH(st, flavour, \
	REAL_CU(name)(graph, st)); }
GRAPH(cuGraphLaunch, LEGACY)
GRAPH(cuGraphLaunch_ptsz, THREAD)

/* ---- registered memory: what is known of it was learned when only the CPU could write there
 * ---- */
CUresult EACH(cuMemHostRegister_v2)(void *p, size_t n, unsigned flags)
{
	TOUCH((uintptr_t)p, n, REAL_CU(cuMemHostRegister_v2)(p, n, flags));
}
CUresult EACH(cuMemHostRegister)(void *p, size_t n, unsigned flags)
{
	TOUCH((uintptr_t)p, n, REAL_CU(cuMemHostRegister)(p, n, flags));
}

CUresult EACH(cuMemHostUnregister)(void *p)
{
	CUresult r;

	gpu_veil_fill_all();
	r = REAL_CU(cuMemHostUnregister)(p);
	atomic_fetch_add(&gpu_pins_gen, 1);
	return r;
}

CUresult EACH(cuMemFreeHost)(void *p)
{
	CUdeviceptr start = 0;
	size_t n = 0;
	CUresult r;

	if (atomic_load(&gpu_veils) && !cu.cuMemGetAddressRange_v2(&start, &n, (uintptr_t)p))
		gpu_veil_forget(start, n);
	else
		gpu_veil_fill_all();
	r = REAL_CU(cuMemFreeHost)(p);
	atomic_fetch_add(&gpu_pins_gen, 1);
	return r;
}

/* ---- ends ---- */

CUresult EACH(cuCtxSynchronize)(void)
{
	uint64_t before = __atomic_load_n(&gpu_writers, __ATOMIC_SEQ_CST);
	CUresult r = REAL_CU(cuCtxSynchronize)();

	if (!r && gpu_path_on(&cuda_ops))
		gpu_synced(before);
	return r;
}

CUresult EACH(cuStreamDestroy_v2)(CUstream st)
{
	if (gpu_path_on(&cuda_ops))
		gpu_stream_gone(st);
	return REAL_CU(cuStreamDestroy_v2)(st);
}

CUresult EACH(cuStreamDestroy)(CUstream st)
{
	if (gpu_path_on(&cuda_ops))
		gpu_stream_gone(st);
	return REAL_CU(cuStreamDestroy)(st);
}

CUresult EACH(cuCtxDestroy_v2)(CUcontext ctx)
{
	gpu_context_gone(&cuda_ops);
	return REAL_CU(cuCtxDestroy_v2)(ctx);
}

CUresult EACH(cuDevicePrimaryCtxReset_v2)(CUdevice dev)
{
	gpu_context_gone(&cuda_ops);
	return REAL_CU(cuDevicePrimaryCtxReset_v2)(dev);
}

CUresult EACH(cuDevicePrimaryCtxRelease_v2)(CUdevice dev)
{
	unsigned flags;
	int active = 0;
	CUresult r;

	if (!gpu_path_on(&cuda_ops))
		return REAL_CU(cuDevicePrimaryCtxRelease_v2)(dev);
	gpu_pause(true);
	gpu_veil_fill_all();
	r = REAL_CU(cuDevicePrimaryCtxRelease_v2)(dev);
	/* Most often it was not the last one's. */
	if (cu.cuDevicePrimaryCtxGetState(dev, &flags, &active) || !active)
		gpu_context_gone(&cuda_ops);
	gpu_pause(false);
	return r;
}

/* ---- addresses ---- */

CUresult EACH(cuGetProcAddress)(const char *name, void **ret, int version, uint64_t flags)
{
	CUresult r = REAL_CU(cuGetProcAddress)(name, ret, version, flags);

	if (!r && ret)
		*ret = cuda_substitute(name, *ret, version, flags);
	return r;
}

CUresult EACH(cuGetProcAddress_v2)(const char *name, void **ret, int version, uint64_t flags,
				   void *status)
{
	CUresult r = REAL_CU(cuGetProcAddress_v2)(name, ret, version, flags, status);

	if (!r && ret)
		*ret = cuda_substitute(name, *ret, version, flags);
	return r;
}

/* Their addresses as we mean them: the exported name is another library's function if that is
 * loaded before us. */
#define CUDA(name, base, flavour, params, \
	args) extern __typeof__(cu_wrap_##name) cu_own_##name __attribute__((alias(#name), \
		visibility("hidden")));
#include "cuda/cuda_calls.def"
