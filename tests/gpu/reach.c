/*
 * reach.c - what this GPU and its driver offer to RDMA devices, by the calls that the library
 * makes (shim/cuda/cuda_ops.c): attributes, a dma-buf of a whole allocation and of a chunk of
 * it, the flush. Nothing is written by RDMA: that needs a NIC.
 *
 * The last line says what a link between hosts would use. Status 1: the driver says that it can,
 * and cannot.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drv.h"

#define SIZE  (64u << 20)
#define CHUNK (8u << 20)

extern int cuDeviceGetAttribute(int *v, int a, int d);
extern int cuMemGetHandleForAddressRange(int *fd, CUdeviceptr p, size_t n, int type,
					 unsigned long long flags);
extern int cuFlushGPUDirectRDMAWrites(int target, int scope);

static int attribute(const char *name, int a)
{
	int v = -1;

	CK(cuDeviceGetAttribute(&v, a, 0));
	printf("%s %d\n", name, v);
	return v;
}

/* 0, or what is wrong. */
static int dma_buf(const char *what, CUdeviceptr p, size_t n)
{
	struct stat st;
	int fd = -1, e = cuMemGetHandleForAddressRange(&fd, p, n, 1, 0);

	printf("dma-buf of %s: error %d, descriptor %d, %lld bytes\n", what, e, fd,
	       fd >= 0 && !fstat(fd, &st) ? (long long)st.st_size : -1);
	if (fd >= 0)
		close(fd);
	return e;
}

int main(void)
{
	int supported, options, order, exports, bad = 0, flush = 0, dma = 0;
	CUdeviceptr p;
	CUcontext ctx;

	drv_open("linked");
	CK(d.cuInit(0));
	CK(d.cuDevicePrimaryCtxRetain(&ctx, 0));
	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemAlloc(&p, SIZE));
	supported = attribute("GPUDirect RDMA supported", 116);
	options = attribute("ways to flush", 117);
	order = attribute("order of writes", 118);
	exports = attribute("dma-buf supported", 124);
	if (exports) {
		dma = !dma_buf("all", p, SIZE) &&
		      !dma_buf("the last chunk", p + SIZE - CHUNK, CHUNK);
		bad |= !dma;
	}
	if (options & 1) {
		int e = cuFlushGPUDirectRDMAWrites(0, 100);

		printf("flush: error %d\n", e);
		flush = !e;
		bad |= e != 0;
	}
	printf("RDMA devices: %s, registered %s, %s\n",
	       supported && (order >= 100 || flush) ? "yes" : "no",
	       dma ? "as a dma-buf" : "by address (nvidia-peermem)",
	       order >= 100 ? "in order"
	       : flush	    ? "flushed before a read"
			    : "without order");
	return bad;
}
