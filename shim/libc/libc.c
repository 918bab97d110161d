/*
 * libc.c - finds the real libc entries behind our wrappers.
 *
 * Each real_NAME starts as a stub that binds itself to what dlsym(RTLD_NEXT) would find and calls
 * on, so that calls before our constructor work, also those of an allocator that begins: nothing is
 * allocated (elf_symbols.h). The constructor binds them all: the loader's lock is not for signal
 * handlers. Every writer stores the same value, so threads may bind at once.
 * Locks: none of its own.
 */
#include "libc/elf_symbols.h"
#include "libc/libc.h"

#include "arch/arch.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include "arch/newer.h"

static void bind_one(enum call_id id);

/* What a call returns when no library has it. */
#define FAILED(ret) _Generic((ret)0, FILE *: (ret)0, default: (ret)-1)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CALL(ret, name, params, args, where, doc) \
	static ret missing_##name params { errno = ENOSYS; return FAILED(ret); }
#define CALLV(name, params, args, where, doc) \
	static void missing_##name params { errno = ENOSYS; }
#define VCALL(ret, name, params, last, args, where, doc) \
	static ret missing_##name params { errno = ENOSYS; return FAILED(ret); }
#include "libc/calls.def"
#pragma GCC diagnostic pop

/* Calls that libc may be too old for and the kernel not: by number, also for a program that makes
 * them so itself. */
static int kernel_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *t,
			       const sigset_t *mask)
{
	return (int)real_syscall(SYS_epoll_pwait2, ep, ev, max, t, mask, 8);
}

static int kernel_close_range(unsigned first, unsigned last, int flags)
{
	return (int)real_syscall(SYS_close_range, first, last, flags);
}

static int kernel_execveat(int dir, const char *path, char *const argv[], char *const envp[],
			   int flags)
{
	return (int)real_syscall(SYS_execveat, dir, path, argv, envp, flags);
}

#define CALL(ret, name, params, args, where, doc) \
	static ret stub_##name params { bind_one(ID_##name); return real_##name args; } \
	ret (*real_##name) params = stub_##name;
#define CALLV(name, params, args, where, doc) \
	static void stub_##name params { bind_one(ID_##name); real_##name args; } \
	void (*real_##name) params = stub_##name;
/* Reads more arguments than there may be, as libc itself does: they are garbage that nobody
 * looks at. */
#define VCALL(ret, name, params, last, args, where, doc) \
	__attribute__((no_sanitize("address"))) static ret stub_##name params \
	{ \
		va_list ap; \
		long va[6]; \
		va_start(ap, last); \
		for (int i = 0; i < 6; i++) \
			va[i] = va_arg(ap, long); \
		va_end(ap); \
		bind_one(ID_##name); \
		return real_##name args; \
	} \
	ret (*real_##name) params = stub_##name;
#include "libc/calls.def"

static const struct {
	const char *name;
	void **slot;
	void *missing;
} calls[] = {
#define ENTRY(name) { #name, (void **)&real_##name, (void *)missing_##name },
#define CALL(ret, name, params, args, where, doc) ENTRY(name)
#define CALLV(name, params, args, where, doc) ENTRY(name)
#define VCALL(ret, name, params, last, args, where, doc) ENTRY(name)
#include "libc/calls.def"
};

/* Their runtimes' functions of ours are to be found as they arrange it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ASK_LOADER true
#else
#define ASK_LOADER false
#endif

void *libc_next(const char *name)
{
	void *p = NULL;

	return ASK_LOADER || !elf_find_next(&name, &p, 1) ? dlsym(RTLD_NEXT, name) : p;
}

static void *without(unsigned id)
{
	switch (id) {
	case ID_epoll_pwait2: return (void *)kernel_epoll_pwait2;
	case ID_close_range: return (void *)kernel_close_range;
	case ID_execveat: return (void *)kernel_execveat;
	default: return calls[id].missing;
	}
}

static void set_real(unsigned id, void *p)
{
	__atomic_store_n(calls[id].slot, p ? p : without(id), __ATOMIC_RELAXED);
}

static void bind_one(enum call_id id)
{
	int e = errno;
	void *p = libc_next(calls[id].name);

	set_real(id, p);
	errno = e;
}

const char *libc_call_name(unsigned id)
{
	return id < CALL_IDS ? calls[id].name : "";
}

bool libc_behind_others;
bool libc_sigaction_is_libcs;

static bool is_libcs(void *f)
{
	Dl_info is, libc;

	return dladdr(f, &is) && dladdr((void *)gnu_get_libc_version, &libc) &&
	       is.dli_fbase == libc.dli_fbase;
}

void libc_bind_all(void)
{
	const char *names[CALL_IDS];
	void *found[CALL_IDS] = { NULL };
	bool all;

	for (int i = 0; i < CALL_IDS; i++)
		names[i] = calls[i].name;
	all = !ASK_LOADER && elf_find_next(names, found, CALL_IDS);
	for (unsigned i = 0; i < CALL_IDS; i++)
		if (all)
			set_real(i, found[i]);
		else
			bind_one((enum call_id)i);
	libc_sigaction_is_libcs = is_libcs((void *)real_sigaction);
	libc_behind_others = !is_libcs((void *)real_dup2) || !is_libcs((void *)real_dup3);
	if (real_close_range != kernel_close_range && !is_libcs((void *)real_close_range))
		libc_behind_others = true;
}

#ifndef ARCH_SYS
long arch_libc_syscall(long n, long a, long b, long c, long d, long e, long f)
{
	return real_syscall(n, a, b, c, d, e, f);
}
#endif
