/*
 * deepbind.c - dlopen() with RTLD_DEEPBIND, and dlmopen(): what comes by them finds libc's own functions before ours, or has a libc of its own, and moves bytes past us
 * (dlopen(3); PHP opens its extensions so). From then on the process stays on TCP.
 *
 * Both are entered by a few instructions that jump on to the real one, which looks at who has called it: for its run path, and for its name space.
 * No lock; the loader's may be held.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/shim.h"
#include "wrap/wrap.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

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

__attribute__((visibility("hidden"), used)) void *deepbind_dlmopen(Lmid_t space, const char *file, int mode)
{
	static _Atomic(void *) f;

	if (may_open(file, mode) && (space != LM_ID_BASE || mode & RTLD_DEEPBIND))
		shim_before_deepbind();
	return real(&f, "dlmopen");
}

__asm__(
	".macro DEEPBIND name\n"
	".globl \\name\n.type \\name,@function\n.p2align 4\n\\name:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	push %rdi\n	.cfi_adjust_cfa_offset 8\n"
	"	push %rsi\n	.cfi_adjust_cfa_offset 8\n"
	"	push %rdx\n	.cfi_adjust_cfa_offset 8\n"
	"	call deepbind_\\name\n"
	"	pop %rdx\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %rsi\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %rdi\n	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size \\name,.-\\name\n"
	".endm\n"
	".text\n"
	"DEEPBIND dlopen\n"
	"DEEPBIND dlmopen\n"
);
#endif
