/*
 * hip.c - a sketch of HIP as a vendor: its table, and the hook of one copy. bind() says no, so the
 * GPU path stays off. Holds no lock.
 */
#include "gpu/hooks.h"
#include "libc/elf_symbols.h"

#define HIP(name) #name,
static const char *const names[] = {
#include "hip/hip_calls.def"
};
#define HIP(name) HIP_##name,
enum {
#include "hip/hip_calls.def"
	ENTRIES };
static void *real[ENTRIES];

typedef int copy_fn(void *dst, const void *src, size_t n, int kind);
enum { TO_HOST = 2, NOT_INITIALIZED = 3 };	/* hipMemcpyKind, hipError_t */

static bool bind(void) { return false; }

static const char *const libraries[] = { "libamdhip64.so", NULL };
static const struct gpu_ops hip_ops = { .name = "HIP", .libraries = libraries, .bind = bind };

static copy_fn *real_copy(void)
{
	if (!real[HIP_hipMemcpy])
		elf_find_next(names, real, ENTRIES);
	return (copy_fn *)real[HIP_hipMemcpy];
}

__attribute__((visibility("default"))) int hipMemcpy(void *dst, const void *src, size_t n, int kind)
{
	gpu_addr from = (uintptr_t)src;
	copy_fn *copy = real_copy();
	struct gpu_copy c;
	int r;

	if (!copy)
		return NOT_INITIALIZED;
	if (kind != TO_HOST || !gpu_path_on(&hip_ops) ||
	    !gpu_d2h_begin(dst, &from, n, GPU_STREAM_CTX, true, GPU_FROM, &c))
		return copy(dst, src, n, kind);
	r = c.done ? 0 : copy(dst, (const void *)(uintptr_t)from, n, kind);
	if (!c.done)
		gpu_d2h_end(&c, r);
	return r;
}
