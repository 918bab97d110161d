/*
 * cuda_hook.c - how programs get at the CUDA driver, and the hooks on those ways.
 *
 * There are three: symbols of a program linked with libcuda (we export the same names, and are
 * found first), dlsym()/dlvsym() on a handle (the CUDA runtime, static or not, ctypes), and
 * cuGetProcAddress() in its two forms (the runtime, for nearly everything). A pointer is
 * replaced by a hook only if it is the driver's own entry; every other name, handle and pointer
 * passes. dlsym() itself is entered by a few instructions that jump on to the real one, so that
 * it sees the caller's address, on which RTLD_NEXT and RTLD_DEFAULT depend.
 *
 * A CUDA_WRITER row needs no C: its hook counts and jumps, whatever its arguments are; so does
 * that of a CUDA_READER or CUDA_WAITER row, without counting. For versions that the table does
 * not know there are nameless hooks, one per pointer.
 *
 * Locks: pool_lock, a leaf. The real dlsym() takes the loader's, which may be held by a thread
 * that is in our constructor.
 */
#include "cuda/cuda_hook.h"

#include <dlfcn.h>
#include <string.h>

#include "arch/entries.h"
#include "base/lock.h"
#include "base/shim.h"
#include "gpu/busy.h"
#include "gpu/deferred.h"
#include "policy/log.h"

/* ---- the driver's entries ---- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CUDA(name, base, flavour, params, args) \
	static CUresult missing_##name params { return CUDA_ERROR_NOT_INITIALIZED; } \
	static CUresult stub_##name params { \
		void *p = cuda_real(#name); \
		cu_real_##name = p ? (CUresult (*) params)p : missing_##name; \
		return cu_real_##name args; \
	} \
	CUresult (*cu_real_##name) params = stub_##name;
#include "cuda/cuda_calls.def"
#pragma GCC diagnostic pop

#ifdef ARCH_CUDA_STUBS

static struct lock pool_lock;
static _Atomic bool leaky;	/* an entry got away unhooked */

/* ---- hooks that only count ---- */

enum {
#define CUDA_WRITER(name, base) W_##name,
#include "cuda/cuda_calls.def"
	WRITERS
};
#define POOL_WRITERS 64
#define POOL_READERS 32
#define POOL_WAITERS 16
#define POOL (POOL_WRITERS + POOL_READERS + POOL_WAITERS)

__attribute__((visibility("hidden"), used)) void *cuda_writer_real[WRITERS + POOL];

static CUresult no_writer(void) { return CUDA_ERROR_NOT_INITIALIZED; }

static const char *const writer_name[] = {
#define CUDA_WRITER(name, base) #name,
#include "cuda/cuda_calls.def"
};

__attribute__((visibility("hidden"), used)) void *cuda_writer_bind(uint64_t i)
{
	void *p = i < WRITERS ? cuda_real(writer_name[i]) : NULL;

	if (!p)
		p = (void *)no_writer;
	cuda_writer_real[i] = p;
	return p;
}

/* arch/entries.h */
__asm__(ARCH_CUDA_STUBS
	".set cuda_writer_n,0\n"
#define STUB(name, kind) \
	".globl " #name "\n.type " #name ",%function\n.globl cu_own_" #name "\n.hidden " \
		"cu_own_" #name "\n.p2align 4\n" #name ":\ncu_own_" #name ":\n" \
	"	CUDA_STUB cuda_writer_n " kind "\n.set cuda_writer_n,cuda_writer_n+1\n.size " \
		"" #name ",.-" #name "\n"
#define CUDA_WRITER(name, base) STUB(name, "writes=1")
#define CUDA_READER(name, base) STUB(name, "")
#define CUDA_WAITER(name, base) STUB(name, "waits=1")
#include "cuda/cuda_calls.def"
	ARCH_STUB_ALIGN ".globl cuda_writer_pool\n.hidden cuda_writer_pool\ncuda_writer_pool:\n"
	".rept 64\n" ARCH_STUB_ALIGN
	"	CUDA_STUB cuda_writer_n writes=1\n.set cuda_writer_n,cuda_writer_n+1\n.endr\n"
	".rept 32\n" ARCH_STUB_ALIGN
	"	CUDA_STUB cuda_writer_n\n.set cuda_writer_n,cuda_writer_n+1\n.endr\n"
	".rept 16\n" ARCH_STUB_ALIGN
	"	CUDA_STUB cuda_writer_n waits=1\n.set cuda_writer_n,cuda_writer_n+1\n.endr\n");
extern char cuda_writer_pool[] __attribute__((visibility("hidden")));

#define CUDA_WRITER(name, \
	base) void *cu_writer_##name(void) __asm__("cu_own_" #name) \
	__attribute__((visibility("hidden")));
#include "cuda/cuda_calls.def"

static const struct { const char *name, *base; void *hook; int pool, end; } writers[] = {
#define CUDA_WRITER(name, base) { #name, #base, (void *)cu_writer_##name, WRITERS, \
	WRITERS + POOL_WRITERS },
#define CUDA_READER(name, base) { #name, #base, (void *)cu_writer_##name, WRITERS + POOL_WRITERS, \
	WRITERS + POOL - POOL_WAITERS },
#define CUDA_WAITER(name, base) { #name, #base, (void *)cu_writer_##name, \
	WRITERS + POOL - POOL_WAITERS, WRITERS + POOL },
#include "cuda/cuda_calls.def"
};

static const struct { const char *name, *base; void *hook; int flavour; } calls[] = {
#define CUDA(name, base, flavour, params, args) { #name, #base, (void *)cu_own_##name, flavour },
#include "cuda/cuda_calls.def"
};
#define CALLS ((int)(sizeof calls / sizeof calls[0]))

/* A hook for an entry that has no row of its own, of the numbers [first, end). */
static void *pooled(void *p, int first, int end)
{
	void *hook = NULL;

	lock_take(&pool_lock);
	for (int i = first; i < end && !hook; i++) {
		if (!cuda_writer_real[i])
			cuda_writer_real[i] = p;
		if (cuda_writer_real[i] == p)
			hook = cuda_writer_pool + (i - WRITERS) * ARCH_STUB_STEP;
	}
	lock_give(&pool_lock);
	if (!hook) {
		atomic_store(&leaky, true);
		hook = p;
	}
	return hook;
}

/* ---- substitution ---- */

static void *by_symbol(const char *name)
{
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].hook;
	for (int i = 0; i < WRITERS; i++)
		if (!strcmp(writers[i].name, name))
			return writers[i].hook;
	return NULL;
}

/* interface version from which sizes and addresses are as in the table */
#define SIXTY_FOUR_BITS 3020

/* What a program that asks for `name` gets for the driver's p: interface version and stream
 * flavour decide which row. */
void *cuda_substitute(const char *name, void *p, int version, uint64_t flags)
{
	int flavour = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? THREAD : LEGACY;

	if (!p || !name || name[0] != 'c' || name[1] != 'u')
		return p;
	if (!strcmp(name, "cuGetProcAddress"))
		return version >= 12000 ? (void *)cu_own_cuGetProcAddress_v2
					: (void *)cu_own_cuGetProcAddress;
	if (!strcmp(name, "cuCtxSynchronize") && version >= 13000)
		return p;	/* of a context that it is told: only makes us less certain */
	for (int i = 0; i < CALLS; i++)	/* the very entry of a row, whatever was asked for */
		if (!strcmp(calls[i].base, name) && p == cuda_real(calls[i].name))
			return calls[i].hook;
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].base, name) &&
		    (calls[i].flavour == flavour || calls[i].flavour == ANY))
			return version >= SIXTY_FOUR_BITS
				       ? calls[i].hook
				       : pooled(p, WRITERS, WRITERS + POOL_WRITERS);
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].hook;
	for (int i = 0; i < WRITERS; i++)
		if (!strcmp(writers[i].base, name) || !strcmp(writers[i].name, name))
			return pooled(p, writers[i].pool, writers[i].end);
	return p;
}

struct answer { void *p; uint64_t mine; };	/* mine 0: let the real one answer */

static struct answer substitute_symbol(void *handle, const char *name, const char *v)
{
	struct answer a = { NULL, 0 };
	void *hook, *real;

	if (__builtin_expect(!cuda_real_dlsym, 0))
		cuda_find_dlsym();
	if (!name || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT)
		return a;
	hook = by_symbol(name);
	if (!hook || !shim_on)
		return a;
	real = cuda_real(name);
	a.p = v ? cuda_real_dlvsym(handle, name, v) : cuda_real_dlsym(handle, name);
	a.mine = 1;
	if (a.p == hook && !real)	/* no driver: as if we did not export it; and dlerror()
					 * has something to say */
		a.p = cuda_real_dlsym(handle, "CUDA driver API: no driver is loaded");
	else if (real && a.p == real)
		a.p = hook;
	return a;
}

__attribute__((visibility("hidden"), used)) struct answer cuda_dlsym(void *handle, const char *name)
{
	return substitute_symbol(handle, name, NULL);
}

__attribute__((visibility("hidden"), used)) struct answer cuda_dlvsym(void *handle,
								      const char *name,
								      const char *v)
{
	return substitute_symbol(handle, name, v);
}

/* The runtimes of these sanitizers call dlsym() before they can bear any code of ours: so there
 * dlsym() is libc's, and there is no GPU path, because cuda_hooks_proved() finds that its hooks
 * do not hold. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__asm__(
	ARCH_ANSWER
	"ANSWER dlsym cuda_dlsym cuda_real_dlsym\n"
	"ANSWER dlvsym cuda_dlvsym cuda_real_dlvsym\n"
);
#endif

/* ---- proof ---- */

static bool proved_symbol(void *h, const char *name, const void *hook)
{
	return !cuda_real(name) || (dlsym(h, name) == hook && dlsym(RTLD_DEFAULT, name) == hook);
}

/* Of rows with the same base the driver may give one for the other. */
static bool is_hook(const char *base, int flavour, const void *p)
{
	for (int i = 0; i < CALLS; i++)
		if (calls[i].hook == p && calls[i].flavour == flavour &&
		    !strcmp(calls[i].base, base))
			return true;
	return false;
}

/* As the runtime asks, in both forms, for the first version of an entry and for later ones.
 * Entries that this driver does not have need no hook. */
static bool proved_address(const char *base, int flavour)
{
	CUresult (*v1)(const char *, void **, int, uint64_t) = (CUresult(*)(
		const char *, void **, int, uint64_t))dlsym(cuda_library(), "cuGetProcAddress");
	CUresult (*v2)(const char *, void **, int, uint64_t, void *) =
		(CUresult(*)(const char *, void **, int, uint64_t, void *))dlsym(
			cuda_library(), "cuGetProcAddress_v2");
	static const int versions[] = { SIXTY_FOUR_BITS, 4000, 7000, 12000 };
	uint64_t flags = flavour == THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
	void *p = NULL;
	int status = 0;

	if (v1 && v1(base, &p, 12000, flags) == CUDA_SUCCESS && p && !is_hook(base, flavour, p))
		return false;
	for (size_t i = 0; v2 && i < sizeof versions / sizeof *versions; i++) {
		p = NULL;
		if ((flavour != THREAD || versions[i] >= 7000) &&
		    v2(base, &p, versions[i], flags, &status) == CUDA_SUCCESS && p &&
		    !is_hook(base, flavour, p))
			return false;
	}
	return true;
}

bool cuda_hooks_proved(void)
{
	for (int i = 0; i < CALLS; i++) {
		if (!proved_symbol(cuda_library(), calls[i].name, calls[i].hook) ||
		    !proved_address(calls[i].base, calls[i].flavour)) {
			log_line(2, "GPU path: %s is not hooked on every way", calls[i].name);
			return false;
		}
	}
	for (int i = 0; i < WRITERS; i++)
		if (!proved_symbol(cuda_library(), writers[i].name, writers[i].hook)) {
			log_line(2, "GPU path: %s is not hooked on every way", writers[i].name);
			return false;
		}
	return !atomic_load(&leaky);
}

#else	/* no hooks: no GPU path */

bool cuda_hooks_proved(void) { return false; }
void *cuda_substitute(const char *name, void *p, int version, uint64_t flags)
{
	(void)name, (void)version, (void)flags;
	return p;
}

#endif
