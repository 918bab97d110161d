/*
 * gpu_ops.h - a vendor's driver, as the GPU path calls it: one table for each vendor, in the
 * vendor's own folder (../cuda). Its hooks say what the program does (hooks.h).
 *
 * A result is 0, or the vendor's own error number: where it is the result of a call that the
 * program made, the program gets it. Addresses are one space for host and devices. Any thread,
 * with gpu_lock or without it, unless a row says otherwise; not in a signal handler, and past
 * all hooks. The context of what is named must be current: enter().
 */
#ifndef RDMASHIM_GPU_OPS_H
#define RDMASHIM_GPU_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *gpu_ctx;		/* a context: what a device's memory and streams belong to */
typedef void *gpu_stream;
typedef void *gpu_event;
typedef uint64_t gpu_addr;
typedef int gpu_result;

/* Two streams that have no handle of their own: that of the context, and that of the thread. */
#define GPU_STREAM_CTX    ((gpu_stream)0x1)
#define GPU_STREAM_THREAD ((gpu_stream)0x2)
static inline bool gpu_stream_named(gpu_stream st)	/* it is one of these, or none */
{
	return (uintptr_t)st <= (uintptr_t)GPU_STREAM_THREAD;
}

/* What the driver knows of an address. Host memory that it knows is pinned, or managed. */
struct gpu_pointer { gpu_ctx ctx; bool known, on_device; };

struct gpu_device {
	uint8_t uuid[16];
	bool all_memory;	/* it reads and writes all host memory, not only what is pinned */
};

#define GPU_HANDLE 64		/* bytes of what names memory to another process */

enum gpu_state { GPU_ENDED, GPU_UNDER_WAY, GPU_FAILED };

struct gpu_ops {
	const char *name;		/* "NAME error N" in the log */
	const char *const *libraries;	/* of the vendor: beginnings of file names, then NULL */

	/* ---- before the GPU path goes on, no lock held ---- */
	bool (*bind)(void);		/* the driver has all that is called here */
	bool (*proved)(void);		/* every way to an entry that counts leads to its hook */

	/* ---- contexts ---- */
	gpu_ctx (*current)(void);	/* the calling thread's; NULL: none, or the driver fails */
	/* Until leave(), with the same two, ctx is current (NULL: what is current stays so), and
	 * what we call is no part of what the program captures. */
	void (*enter)(gpu_ctx ctx, int *was);
	void (*leave)(gpu_ctx ctx, const int *was);
	bool (*device)(struct gpu_device *ret);		/* the current context's */

	/* ---- memory ---- */
	struct gpu_pointer (*pointer)(gpu_addr p);
	/* Device memory of the context, which is current, or of its device. */
	bool (*in_context)(gpu_addr p, gpu_ctx ctx);
	/* Host memory of the driver's that devices have at no other address. */
	bool (*plain_pinned)(gpu_addr p);
	bool (*left)(size_t *ret);			/* device memory that is free */
	gpu_result (*alloc)(gpu_addr *ret, size_t n);
	void (*free)(gpu_addr p);
	gpu_result (*extent)(gpu_addr p, gpu_addr *start, size_t *n);	/* of the allocation */
	gpu_result (*share)(uint8_t handle[GPU_HANDLE], gpu_addr p);	/* of alloc() */
	/* Another process' memory, for reading. Its allocation may be smaller than is said. */
	gpu_result (*map)(gpu_addr *ret, const uint8_t handle[GPU_HANDLE]);
	void (*unmap)(gpu_addr p);

	/* ---- streams and events. What is put into a stream of the program's may wait for what the
	 * program does next: not with gpu_lock held. Host memory in a copy is pinned, or the call
	 * waits. ---- */
	gpu_result (*stream_new)(gpu_stream *ret);	/* waits for no other */
	bool (*capturing)(gpu_stream st);		/* or it cannot be said */
	bool (*idle)(gpu_stream st);			/* not while it captures */
	gpu_result (*wait)(gpu_stream st);
	gpu_result (*wait_event)(gpu_stream st, gpu_event ev);	/* what follows in st does */
	gpu_result (*event_new)(gpu_event *ret);	/* never given back */
	gpu_result (*record)(gpu_event ev, gpu_stream st);
	enum gpu_state (*event)(gpu_event ev);
	gpu_result (*to_device)(gpu_addr dst, const void *src, size_t n, gpu_stream st);
	gpu_result (*to_host)(void *dst, gpu_addr src, size_t n, gpu_stream st);
	gpu_result (*between)(gpu_addr dst, gpu_addr src, size_t n, gpu_stream st);

	/* ---- RDMA devices and the CPU at device memory ---- */
	/* A descriptor by which an RDMA device reaches it. fd_number_lock held. */
	bool (*dmabuf)(gpu_addr base, size_t n, int *ret_fd);
	/* An RDMA device can write to the current device so that it can be read; *flush: after
	 * flush() only, in the same context. */
	bool (*lands)(bool *flush);
	gpu_result (*flush)(void);
	/* Where the CPU reads [base, base + n) itself; NULL: it cannot. As long as the context. */
	const uint8_t *(*window)(gpu_addr base, size_t n);
	void (*window_read)(void *to, const uint8_t *from, size_t n);
};

/* The one whose hooks woke the GPU path: set before it is on, and never changed. */
extern const struct gpu_ops *gpu;

#endif
