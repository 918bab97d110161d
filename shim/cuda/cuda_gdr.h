/*
 * cuda_gdr.h - device memory that the CPU reads by itself, through the window of GDRCopy's
 * kernel module.
 *
 * A copy by the driver takes some 10 us however small it is; a kilobyte through the window takes
 * 2 (figures of GDRCopy's README). Reads of it are uncached, so beyond a few kilobytes the
 * driver is faster. Needs /dev/gdrdrv; without it nothing changes.
 *
 * The module's calls (its header gdrdrv.h, version 2) are made directly: libgdrapi keeps a
 * descriptor among the program's numbers.
 */
#ifndef RDMASHIM_CUDA_GDR_H
#define RDMASHIM_CUDA_GDR_H

#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_api.h"
#include "gpu/gpu.h"

#define GDR_MOST GPU_SMALL	/* bytes that are read in this way at most */

/* Device memory [base, base + n), whole pages of 64 KiB, where the CPU can read it; NULL: it
 * cannot. It stays as long as the memory's context; after that an access is SIGBUS. Any thread. */
const uint8_t *cuda_gdr_map(CUdeviceptr base, size_t n);

/* n <= GDR_MOST bytes from the window. What a device wrote before, and was waited for (and
 * flushed, if it needs that), is seen. Any thread. */
void cuda_gdr_read(void *to, const uint8_t *from, size_t n);

/* The kernel, for tests: as open(2) of the module's file, ioctl(2), mmap(2) of n bytes to read,
 * close(2); results as of sys.h. */
struct gdr_calls {
	long (*open)(const char *path);
	long (*ioctl)(int fd, unsigned long what, void *arg);
	long (*map)(int fd, size_t n, uint64_t off);
	void (*close)(int fd);
};
extern struct gdr_calls cuda_gdr_calls;

#endif
