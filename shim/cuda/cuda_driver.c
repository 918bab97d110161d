/*
 * cuda_driver.c - see cuda_driver.h. The real dlsym() is found in the tables of the loaded
 * libraries, since the library exports one of its own.
 */
#include "cuda/cuda_driver.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "libc/elf_symbols.h"

struct cuda_api cu;

/* ---- the real dlsym, found without dlsym ---- */

typedef void *dlsym_fn(void *, const char *);
typedef void *dlvsym_fn(void *, const char *, const char *);
__attribute__((visibility("hidden"))) dlsym_fn *cuda_real_dlsym;
__attribute__((visibility("hidden"))) dlvsym_fn *cuda_real_dlvsym;

static int look_in(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *base = strrchr(info->dlpi_name, '/');
	struct elf_symbols e;

	(void)size;
	(void)arg;
	base = base ? base + 1 : info->dlpi_name;
	if ((strcmp(base, "libc.so.6") && strcmp(base, "libdl.so.2")) || !elf_open(info, &e))
		return 0;
	if (!cuda_real_dlsym)
		cuda_real_dlsym = (dlsym_fn *)elf_find(info, &e, "dlsym");
	if (!cuda_real_dlvsym)
		cuda_real_dlvsym = (dlvsym_fn *)elf_find(info, &e, "dlvsym");
	return cuda_real_dlsym && cuda_real_dlvsym;
}

static void *no_dlsym(void *h, const char *name)
{
	(void)h;
	(void)name;
	return NULL;
}

static void *no_dlvsym(void *h, const char *name, const char *v)
{
	(void)v;
	return no_dlsym(h, name);
}

void cuda_find_dlsym(void)
{
	dl_iterate_phdr(look_in, NULL);
	if (!cuda_real_dlsym)
		cuda_real_dlsym = no_dlsym;
	if (!cuda_real_dlvsym)
		cuda_real_dlvsym = no_dlvsym;
}

/* ---- the driver's entries ---- */

void *cuda_library(void)
{
	static _Atomic(void *) h;
	void *p = atomic_load_explicit(&h, memory_order_relaxed);

	if (!p) {
		p = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
		atomic_store(&h, p);
	}
	return p;
}

void *cuda_real(const char *name)
{
	void *h = cuda_library();

	if (!cuda_real_dlsym)
		cuda_find_dlsym();
	return h ? cuda_real_dlsym(h, name) : NULL;
}

bool cuda_bind(void)
{
#define USE(name, params) if (!cu.name) cu.name = (CUresult (*) params)cuda_real(#name); \
if (!cu.name) return false;
	CUDA_USES
#undef USE
	return true;
}
