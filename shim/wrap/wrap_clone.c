/*
 * wrap_clone.c - children that libc's fork() does not make: _Fork(), clone(), the system calls;
 * and who registers handlers for those that it does.
 *
 * Such a child has a copy of our memory as other threads left it, runs no handler, and may be in
 * a PID namespace of its own, perhaps with our own pid in there. So it gets nothing of ours: its
 * streams are held by it, all of them, as to one of posix_spawn(), and in it the library is off.
 * And while it is made our threads stand still, outside of libc (own_thread.h).
 *
 * With CLONE_VM it has no memory of its own: then it is as one of vfork(), for which wrappers
 * compare getpid().
 */
#include "wrap/wrap.h"

#include <dlfcn.h>
#include <linux/sched.h>
#include <pthread.h>
#include <string.h>

#include "base/own_thread.h"
#include "base/usermem.h"

#define HOLD_US 5000000

struct birth {
	bool ours;		/* the child is to be told, the parent takes note */
	bool held, bg_held;
};

static bool any_fd(const void *what, int fd)
{
	(void)what, (void)fd;
	return true;
}

static struct birth before_birth(uint64_t flags)
{
	struct birth b = { .ours = shim_on && !(flags & CLONE_VM) && !foreign_image() };
	int e = errno;

	if (!b.ours)
		return b;
	fork_before_spawn(any_fd, NULL);
	/* A parent that waits for its child's end of vfork() must not stop our threads so long. */
	if (!(flags & CLONE_VFORK)) {
		uint64_t end = now_us() + HOLD_US;

		b.bg_held = loop_hold(end);
		own_threads_hold(end);
		b.held = true;
	}
	errno = e;
	return b;
}

static void go_on(struct birth b)
{
	if (b.held)
		own_threads_go_on();
	if (b.bg_held)
		loop_go_on();
}

/* pid: the child's, 0 in the child, less than 0 if there is none. */
static void after_birth(struct birth b, long pid)
{
	int e = errno;

	if (!b.ours)
		return;
	if (!pid)
		fork_not_seen();
	go_on(b);
	if (pid)
		fork_after_spawn(pid > 0 ? (int)pid : 0);
	errno = e;
}

pid_t wrap__Fork(void)
{
	struct birth b = before_birth(0);
	pid_t pid = REAL(_Fork)();

	after_birth(b, pid);
	return pid;
}

/* What the child of this thread's clone() is to run. Not on the stack: the program may have given
 * that to the child. */
static __thread struct newborn {
	int (*fn)(void *arg);
	void *arg;
	struct birth b;
} newborn __attribute__((tls_model("initial-exec")));

static int first_steps(void *arg)
{
	struct newborn me = newborn;

	(void)arg;
	after_birth(me.b, 0);
	return me.fn(me.arg);
}

/* Reads more arguments than there may be, as libc itself does. */
__attribute__((no_sanitize("address"))) int wrap_clone(int (*fn)(void *arg), void *stack, int flags,
						       void *arg, ...)
{
	struct newborn before = newborn;	/* of whom a signal handler interrupted */
	struct birth b;
	va_list ap;
	long va[3];
	int pid;

	va_start(ap, arg);
	for (int i = 0; i < 3; i++)
		va[i] = va_arg(ap, long);
	va_end(ap);
	b = (struct birth){ .ours = false };
	if (fn && stack && !(flags & CLONE_SETTLS))
		b = before_birth((unsigned)flags);
	if (!b.ours)
		return REAL(clone)(fn, stack, flags, arg, va[0], va[1], va[2]);
	newborn = (struct newborn){ fn, arg, b };
	pid = REAL(clone)(first_steps, stack, flags, NULL, va[0], va[1], va[2]);
	newborn = before;
	after_birth(b, pid);
	return pid;
}

bool raw_clone(long n, const long *va, long *ret)
{
	uint64_t flags = n == SYS_clone ? (uint64_t)va[0] : 0;
	struct birth b;

	/* A child upon another stack would return into a frame that is not there. */
	if (n == SYS_clone && va[1])
		return false;
	if (n == SYS_clone3) {
		struct clone_args args;

		if ((size_t)va[1] < CLONE_ARGS_SIZE_VER0 ||
		    usermem_bad((void *)va[0], CLONE_ARGS_SIZE_VER0, false))
			return false;
		memcpy(&args, (void *)va[0], CLONE_ARGS_SIZE_VER0);
		if (args.stack)
			return false;
		flags = args.flags;
	}
	if (flags & (CLONE_VM | CLONE_SETTLS))
		return false;
	b = before_birth(flags);
	*ret = REAL(syscall)(n, va[0], va[1], va[2], va[3], va[4], va[5]);
	after_birth(b, *ret);
	return true;
}

/* ---- handlers of fork() ---- */

extern void *__dso_handle __attribute__((visibility("hidden")));

static _Atomic bool handlers_begun;

/* pthread_atfork() is this call, from libc's static part in each library, so its wrapper sees who
 * is the first: also constructors that run before ours, for our symbols come before libc's from
 * the start. */
bool fork_handlers_first(void)
{
	static _Atomic bool there;

	if (!atomic_load(&handlers_begun) && shim_wanted() &&
	    !atomic_exchange(&handlers_begun, true))
		atomic_store(&there, !REAL(__register_atfork)(shim_fork_prepare, shim_fork_parent,
							      shim_fork_child, &__dso_handle));
	return atomic_load(&there);
}

/* ThreadSanitizer's runtime registers its own while it begins, and cannot follow a function of ours
 * before it has. So it goes first there, and nothing here is followed. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"))) static bool runtime_begins(void)
{
	return !*(volatile bool *)&handlers_begun;
}
#else
static bool runtime_begins(void) { return false; }
#endif

__attribute__((no_sanitize("thread")))
int wrap___register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			   void *dso)
{
	int (*real)(void (*)(void), void (*)(void), void (*)(void), void *);

	if (runtime_begins()) {
		*(void **)&real = dlsym(RTLD_NEXT, "__register_atfork");
		return real ? real(prepare, parent, child, dso) : ENOMEM;
	}
	fork_handlers_first();
	return REAL(__register_atfork)(prepare, parent, child, dso);
}

WRAP_ALIAS(__clone, clone)
