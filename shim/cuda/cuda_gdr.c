/*
 * cuda_gdr.c - see cuda_gdr.h. Holds no lock.
 */
#include "cuda/cuda_gdr.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "arch/arch.h"
#include "base/fdtab.h"
#include "base/sys.h"
#include "policy/log.h"

/* gdrdrv.h of GDRCopy 2. The second request's size is that of a pointer, there. */
struct gdr_pin { uint64_t addr, size, token; uint32_t space; uint64_t handle; };
struct gdr_version { uint32_t module, least_user; };
#define GDR_PIN     _IOWR(0xDA, 1, struct gdr_pin)
#define GDR_VERSION _IOWR(0xDA, 255, void *)
#define MAJOR(v)    ((v) >> 16)
#define KNOWN_MAJOR 2
#define DEVICE_PAGE 65536ul
#define PAGE_SHIFT  12

static long do_open(const char *path)
{
	return fd_moment_sys(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
}
static long do_ioctl(int fd, unsigned long what, void *arg)
{
	return sys(SYS_ioctl, fd, what, arg);
}
static long do_map(int fd, size_t n, uint64_t off)
{
	return sys(SYS_mmap, NULL, n, PROT_READ, MAP_SHARED, fd, off);
}

struct gdr_calls cuda_gdr_calls = { do_open, do_ioctl, do_map, fd_internal_close };

/* The mapping keeps the file, and what is pinned by it, when its descriptor is closed. */
static long window(int fd, CUdeviceptr base, size_t n)
{
	struct gdr_version v = { 0, 0 };
	struct gdr_pin pin = { .addr = base, .size = n };
	long r = cuda_gdr_calls.ioctl(fd, GDR_VERSION, &v);

	if (r >= 0 && (MAJOR(v.module) != KNOWN_MAJOR || MAJOR(v.least_user) > KNOWN_MAJOR))
		r = -EPROTONOSUPPORT;
	if (r >= 0)
		r = cuda_gdr_calls.ioctl(fd, GDR_PIN, &pin);
	return r < 0 ? r : cuda_gdr_calls.map(fd, n, pin.handle << PAGE_SHIFT);
}

const uint8_t *cuda_gdr_map(CUdeviceptr base, size_t n)
{
	long fd, r;

	if (base % DEVICE_PAGE || n % DEVICE_PAGE || !arch_can_stream_read())
		return NULL;
	fd = cuda_gdr_calls.open("/dev/gdrdrv");
	if (fd < 0)		/* most machines do not have it */
		return NULL;
	r = window((int)fd, base, n);
	cuda_gdr_calls.close((int)fd);
	if (r < 0 && r > -4096) {
		log_line(2,
			 "GPU path: /dev/gdrdrv gives no window to device memory (errno %ld): "
			 "small reads are copied by the driver",
			 -r);
		return NULL;
	}
	log_line(3, "GPU path: small reads of device memory go through /dev/gdrdrv");
	return (const uint8_t *)r;
}

void cuda_gdr_read(void *to, const uint8_t *from, size_t n)
{
	_Alignas(16) uint8_t room[GDR_MOST + ARCH_STREAM_SLACK];

	arch_stream_read(to, from, n, room);
}
