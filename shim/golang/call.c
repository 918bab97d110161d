/*
 * call.c - a system call that the program's own stub has brought here is made as by the function
 * of libc, which is our wrapper.
 *
 * It runs on a stack of the thread's own, for a goroutine's is small and may be anywhere. That is
 * made with the thread's first call (by the entry, without any stack) and goes with the thread. A
 * handler of Go's that interrupts it has Go's stack for signals; its calls go to the kernel.
 *
 * Children that have our memory (vfork) are in the thread's variables, too, with its stack, while
 * their parent waits: of their calls only those are seen by which descriptors change hands.
 */
#include "golang/golang_int.h"

#include "wrap/wrap.h"

#include <pthread.h>
#include <sys/mman.h>

#include "golang/golang.h"

#ifdef ARCH_GOLANG
/* What a thread of the program has. */
struct golang_thread {
	char *top;		/* end of its own stack; NULL: none yet */
	uint32_t busy;		/* that is in use */
	uint32_t child;		/* this is a child in its parent's memory */
	long kept[8];		/* registers, while it is made */
	bool settled;		/* its end is known to take the stack, too */
};
_Static_assert(offsetof(struct golang_thread, top) == ARCH_GO_TOP, "ARCH_GO_TOP");
_Static_assert(offsetof(struct golang_thread, busy) == ARCH_GO_BUSY, "ARCH_GO_BUSY");
_Static_assert(offsetof(struct golang_thread, child) == ARCH_GO_CHILD, "ARCH_GO_CHILD");
_Static_assert(offsetof(struct golang_thread, kept) == ARCH_GO_KEPT, "ARCH_GO_KEPT");

__thread struct golang_thread golang_me __attribute__((tls_model("initial-exec")));

/* 0: the kernel's alone; 1: comes here; 2: comes here but with CLONE_VM. */
uint8_t golang_routed[512];

__asm__(ARCH_GOLANG_ENTRIES);

static pthread_key_t ends;

/* ---- a thread's stack ---- */

static void thread_ends(void *top)
{
	golang_me.top = NULL;
	golang_me.settled = false;
	sys(SYS_munmap, (char *)top - ARCH_GO_STACK, ARCH_GO_STACK);
}

static void settle(void)
{
	sys(SYS_mprotect, golang_me.top - ARCH_GO_STACK, arch_page(), PROT_NONE);
	golang_me.settled = !pthread_setspecific(ends, golang_me.top);
}

/* ---- calls ---- */

static long result(long r) { return r == -1 ? -errno : r; }

/* All else that is known of descriptors and processes wrap_syscall() knows by its number. */
static long call(long n, long a, long b, long c, long d, long e, long f)
{
	if (n == SYS_exit_group)
		wrap__exit((int)a);
	switch (n) {
	case SYS_read: return result(wrap_read((int)a, (void *)b, (size_t)c));
	case SYS_write: return result(wrap_write((int)a, (void *)b, (size_t)c));
	case SYS_close: return result(wrap_close((int)a));
	case SYS_socket: return result(wrap_socket((int)a, (int)b, (int)c));
	case SYS_accept: return result(wrap_accept((int)a, (void *)b, (void *)c));
	case SYS_accept4: return result(wrap_accept4((int)a, (void *)b, (void *)c, (int)d));
	/* Go then copies by read and write. Out of its pipe it could not take back what it has put
	 * there, so that is left as it is. */
	case SYS_splice:
		if (live_stream((int)a))
			return -EINVAL;
		break;
	default:
		break;
	}
	return result(wrap_syscall(n, a, b, c, d, e, f));
}

/* In a child whose parent waits. An exec that succeeds does not come back. */
static long child_call(long n, long a, long b, long c, long d, long e, long f)
{
	switch (n) {
	case SYS_close: return result(wrap_close((int)a));
	case SYS_dup: return result(wrap_dup((int)a));
	case SYS_dup2: return result(wrap_dup2((int)a, (int)b));
	case SYS_dup3: return result(wrap_dup3((int)a, (int)b, (int)c));
	case SYS_fcntl: return result(wrap_fcntl((int)a, (int)b, c));
	case SYS_close_range:
		return result(wrap_close_range((unsigned)a, (unsigned)b, (int)c));
	case SYS_execve: return result(wrap_execve((void *)a, (void *)b, (void *)c));
	case SYS_execveat:
		return result(wrap_execveat((int)a, (void *)b, (void *)c, (void *)d, (int)e));
	default: return sys6(n, a, b, c, d, e, f);
	}
}

/* From the entry, on the thread's own stack. */
__attribute__((used))
long golang_call(long n, long a, long b, long c, long d, long e, long f)
{
	int saved = errno, cancel;
	long r;

	if (golang_me.child) {
		r = child_call(n, a, b, c, d, e, f);
		errno = saved;
		return r;
	}
	if (!golang_me.settled)
		settle();
	/* as the system call is no cancellation point */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	r = call(n, a, b, c, d, e, f);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return r;
}

/* ---- which ---- */

static const int routed[] = {
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_preadv2, SYS_pwritev2,
	SYS_recvfrom, SYS_sendto, SYS_recvmsg, SYS_sendmsg, SYS_recvmmsg, SYS_sendmmsg,
	SYS_sendfile, SYS_splice,
	SYS_socket, SYS_connect, SYS_accept, SYS_accept4, SYS_listen, SYS_shutdown,
	SYS_setsockopt, SYS_getsockopt,
	SYS_close, SYS_close_range, SYS_dup, SYS_dup2, SYS_dup3, SYS_fcntl, SYS_ioctl,
	SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6,
	SYS_epoll_create, SYS_epoll_create1, SYS_epoll_ctl,
	SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2,
	SYS_execve, SYS_execveat, SYS_fork, SYS_exit_group,
	SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
	SYS_prctl, SYS_seccomp, SYS_capset, SYS_unshare, SYS_setns,
	SYS_setuid, SYS_setreuid, SYS_setresuid, SYS_setgid, SYS_setregid, SYS_setresgid,
	SYS_setgroups, SYS_landlock_restrict_self, SYS_lsm_set_self_attr, SYS_keyctl,
};

bool golang_calls_prepare(void) { return !pthread_key_create(&ends, thread_ends); }

void golang_calls_begin(void)
{
	golang_routed[SYS_clone] = 2;
	for (size_t i = 0; i < sizeof routed / sizeof *routed; i++)
		golang_routed[routed[i]] = 1;
}

bool golang_patched(void) { return golang_routed[SYS_read]; }
#else
bool golang_calls_prepare(void) { return false; }
void golang_calls_begin(void) {}
bool golang_patched(void) { return false; }
#endif
