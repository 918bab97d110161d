/*
 * deepbind.c - dlopen() with RTLD_DEEPBIND, and dlmopen(): what comes by them finds libc's own
 * functions before ours, or has a libc of its own, and moves bytes past us (dlopen(3); PHP opens
 * its extensions so). From then on the process stays on TCP.
 *
 * Both are entered by a few instructions that jump on to the real one, which looks at who has
 * called it: for its run path, and for its name space. No lock; the loader's may be held.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "arch/entries.h"
#include "base/shim.h"
#include "wrap/wrap.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static void *real(_Atomic(void *) *p, const char *name)
{
	void *f = atomic_load_explicit(p, memory_order_relaxed);

	if (!f) {
		f = libc_next(name);
		atomic_store_explicit(p, f, memory_order_relaxed);
	}
	return f;
}

/* Is it there? Whether a name without a slash is found only the loader knows, and what "$" stands
 * for. */
static bool may_open(const char *file, int mode)
{
	struct stat st;

	if (!file || mode & RTLD_NOLOAD || !(mode & (RTLD_LAZY | RTLD_NOW)))
		return false;
	return !strchr(file, '/') || strchr(file, '$') ||
	       sys(SYS_newfstatat, AT_FDCWD, file, &st, 0) >= 0;
}

__attribute__((visibility("hidden"), used)) void *deepbind_dlopen(const char *file, int mode)
{
	static _Atomic(void *) f;

	if (mode & RTLD_DEEPBIND && may_open(file, mode)) {
		/* Its pthread_atfork() goes past us, perhaps before shim_init(). */
		fork_handlers_first();
		shim_before_deepbind();
	}
	return real(&f, "dlopen");
}

__attribute__((visibility("hidden"), used)) void *deepbind_dlmopen(Lmid_t space, const char *file,
								   int mode)
{
	static _Atomic(void *) f;

	if (may_open(file, mode) && (space != LM_ID_BASE || mode & RTLD_DEEPBIND))
		shim_before_deepbind();
	return real(&f, "dlmopen");
}

#ifdef ARCH_JUMP_ON
__asm__(
	ARCH_JUMP_ON
	"JUMP_ON dlopen deepbind_dlopen\n"
	"JUMP_ON dlmopen deepbind_dlmopen\n"
);
#else
__attribute__((visibility("default"))) ARCH_TAIL void *dlopen(const char *file, int mode)
{
	void *(*f)(const char *, int) = (void *(*)(const char *, int))deepbind_dlopen(file, mode);

	return f(file, mode);
}

__attribute__((visibility("default"))) ARCH_TAIL
void *dlmopen(Lmid_t space, const char *file, int mode)
{
	void *(*f)(Lmid_t, const char *, int) =
		(void *(*)(Lmid_t, const char *, int))deepbind_dlmopen(space, file, mode);

	return f(space, file, mode);
}
#endif
#endif
