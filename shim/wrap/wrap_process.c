/*
 * wrap_process.c - wrappers of fork, exec, posix_spawn, system, popen, daemon and syscall(2).
 *
 * fork's work is done by pthread_atfork handlers, which libc also runs for its own forks. In a
 * child of vfork or clone our state belongs to the parent: before exec it is asked to make fall
 * back what survives, no more. Spawned children run libc's internal code, so all is done in the
 * parent, before. Holds no lock.
 */
#include "wrap/wrap.h"
#include "base/loop.h"
#include "base/procs.h"
#include "link/link.h"
#include "wrap/uring.h"
#include "base/usermem.h"

#include "gpu/gpu.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

extern char **environ;

/* ---- the end ---- */

/* exit() has called exit_fallback() through its destructors. */
void wrap__exit(int status)
{
	if (shim_on && !foreign_image())
		exit_fallback();
	for (;;)
		sys(SYS_exit_group, status);
}

void wrap__Exit(int status)
{
	wrap__exit(status);
}

/* ---- exec ---- */

/* True: the streams fell back, and shim_exec_failed() must follow if we come back. */
static bool before_exec(void)
{
	int e = errno;

	bool ours;

	if (!shim_on)
		return false;
	ours = !foreign_image();
	if (ours) {
		exit_fallback();	/* also of those that the exec closes */
		shim_before_exec();
	}
	else
		fork_hold_survivors();	/* also if exec fails: this child holds them as long as
					 * it lives */
	errno = e;
	return ours;
}

static int exec_failed(bool sent, int r)
{
	int e = errno;

	if (sent)
		shim_exec_failed();
	errno = e;
	return r;
}

int wrap_execve(const char *path, char *const argv[], char *const envp[])
{
	bool sent = before_exec();

	return exec_failed(sent, REAL(execve)(path, argv, envp));
}

int wrap_execv(const char *path, char *const argv[])
{
	bool sent = before_exec();

	return exec_failed(sent, REAL(execv)(path, argv));
}

int wrap_execvp(const char *file, char *const argv[])
{
	bool sent = before_exec();

	return exec_failed(sent, REAL(execvp)(file, argv));
}

int wrap_execvpe(const char *file, char *const argv[], char *const envp[])
{
	bool sent = before_exec();

	return exec_failed(sent, REAL(execvpe)(file, argv, envp));
}

int wrap_fexecve(int fd, char *const argv[], char *const envp[])
{
	bool sent = before_exec();

	return exec_failed(sent, REAL(fexecve)(fd, argv, envp));
}

int wrap_execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	bool sent = before_exec();

	return exec_failed(sent, REAL(execveat)(dir, path, argv, envp, flags));
}

/* Arguments after `arg`, without the null pointer at their end. */
static size_t count_args(const char *arg, va_list ap)
{
	size_t n = 0;

	for (; arg; arg = va_arg(ap, const char *))
		n++;
	return n;
}

/* The list as an array on the stack: exec may be called where malloc may not. */
#define COLLECT(first, argv, ap) \
	va_list ap; \
	va_start(ap, first); \
	size_t count_ = count_args(first, ap); \
	va_end(ap); \
	char *argv[count_ + 1]; \
	va_start(ap, first); \
	argv[0] = (char *)(first); \
	for (size_t i_ = 1; i_ <= count_; i_++) \
		argv[i_] = va_arg(ap, char *)

int wrap_execl(const char *path, const char *arg, ...)
{
	COLLECT(arg, argv, ap);
	va_end(ap);
	return wrap_execv(path, argv);
}

int wrap_execlp(const char *file, const char *arg, ...)
{
	COLLECT(arg, argv, ap);
	va_end(ap);
	return wrap_execvp(file, argv);
}

int wrap_execle(const char *path, const char *arg, ...)
{
	char **envp;

	COLLECT(arg, argv, ap);
	/* without arguments the null pointer was `arg` itself */
	envp = va_arg(ap, char **);
	va_end(ap);
	return wrap_execve(path, argv, envp);
}

/* ---- fork ---- */

pid_t wrap_fork(void)
{
	pid_t pid = REAL(fork)();
	int e = errno;

	if (shim_on && pid < 0)
		fork_failed();
	else if (shim_on && pid > 0)
		fork_watch(pid);
	errno = e;
	return pid;
}

pid_t wrap___fork(void)
{
	return wrap_fork();
}

/* ---- posix_spawn: the child's dup2 is made inside libc ---- */

/* Streams that file actions name as the source of a dup2. Entries go with their file actions, so
 * there are few; if they are not destroyed and the table fills, every stream counts as named. */
#define NAMED 256
static struct named {
	_Atomic uintptr_t fa;		/* 0 free, 1 being filled */
	_Atomic int fd;
} named[NAMED];
static _Atomic bool named_any, named_all;

static void forget_named(const posix_spawn_file_actions_t *fa)
{
	for (int i = 0; atomic_load(&named_any) && i < NAMED; i++) {
		uintptr_t p = (uintptr_t)fa;

		atomic_compare_exchange_strong(&named[i].fa, &p, 0);
	}
}

static bool is_named(const void *fa, int fd)
{
	if (atomic_load(&named_all))
		return true;
	for (int i = 0; fa && atomic_load(&named_any) && i < NAMED; i++)
		if (atomic_load(&named[i].fa) == (uintptr_t)fa && atomic_load(&named[i].fd) == fd)
			return true;
	return false;
}

int wrap_posix_spawn_file_actions_init(posix_spawn_file_actions_t *fa)
{
	forget_named(fa);
	return REAL(posix_spawn_file_actions_init)(fa);
}

int wrap_posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *fa)
{
	forget_named(fa);
	return REAL(posix_spawn_file_actions_destroy)(fa);
}

int wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *fa, int fd, int to)
{
	int i;

	if (shim_on && (fdtab_stream(fd) || fdtab_epoll(fd)) && !is_named(fa, fd)) {
		atomic_store(&named_any, true);
		for (i = 0; i < NAMED; i++) {
			uintptr_t zero = 0;

			if (!atomic_compare_exchange_strong(&named[i].fa, &zero, 1))
				continue;
			atomic_store(&named[i].fd, fd);
			atomic_store(&named[i].fa, (uintptr_t)fa);
			break;
		}
		if (i == NAMED)
			atomic_store(&named_all, true);
	}
	return REAL(posix_spawn_file_actions_adddup2)(fa, fd, to);
}

/* True: after_child() must follow. */
static bool before_child(const posix_spawn_file_actions_t *fa)
{
	int e = errno;
	bool ours;

	if (!shim_on)
		return false;
	ours = !foreign_image();
	if (ours)
		fork_before_spawn(is_named, fa);
	else
		fork_hold_survivors();
	errno = e;
	return ours;
}

static void after_child(bool begun, int pid)
{
	int e = errno;

	if (begun)
		fork_after_spawn(pid);
	errno = e;
}

int wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa,
		     const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	bool begun = before_child(fa);
	pid_t child = 0;
	int r = REAL(posix_spawn)(&child, path, fa, attr, argv, envp);

	after_child(begun, r ? 0 : child);
	if (!r && pid)
		*pid = child;
	return r;
}

int wrap_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa,
		      const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	bool begun = before_child(fa);
	pid_t child = 0;
	int r = REAL(posix_spawnp)(&child, file, fa, attr, argv, envp);

	after_child(begun, r ? 0 : child);
	if (!r && pid)
		*pid = child;
	return r;
}

/* Where libc has none: like the other two it gives the error, not -1. */
static int after_pidfd(bool begun, int r, const int *pidfd)
{
	if (r < 0)
		r = ENOSYS;
	after_child(begun, r ? 0 : process_of_pidfd(*pidfd));
	return r;
}

int wrap_pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *fa,
		     const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	bool begun = before_child(fa);

	return after_pidfd(begun, REAL(pidfd_spawn)(pidfd, path, fa, attr, argv, envp), pidfd);
}

int wrap_pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *fa,
		      const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	bool begun = before_child(fa);

	return after_pidfd(begun, REAL(pidfd_spawnp)(pidfd, file, fa, attr, argv, envp), pidfd);
}

/* A thread that is cancelled in here stands for the child until it has ended. */
int wrap_system(const char *cmd)
{
	bool begun = cmd && before_child(NULL);
	int r = REAL(system)(cmd);

	after_child(begun, 0);
	return r;
}

/* libc keeps the child's pid behind its FILE and a pointer. Believed only if it is a child of
 * ours. */
static int popen_pid(FILE *f)
{
	siginfo_t si;
	pid_t pid;

	memcpy(&pid, (char *)f + sizeof(FILE) + sizeof(void *), sizeof(pid));
	if (pid <= 0 || sys(SYS_waitid, P_PID, pid, &si, WEXITED | WNOHANG | WNOWAIT, NULL) < 0)
		return -1;
	return pid;
}

FILE *wrap_popen(const char *cmd, const char *mode)
{
	bool begun = before_child(NULL);
	FILE *f = REAL(popen)(cmd, mode);

	after_child(begun, f ? popen_pid(f) : 0);
	return f;
}

FILE *wrap__IO_popen(const char *cmd, const char *mode)
{
	return wrap_popen(cmd, mode);
}

/* libc's daemon() puts /dev/null on 0, 1 and 2 from inside. If it then fails the sockets are merely
 * unknown, which is TCP, where they are already. */
int wrap_daemon(int nochdir, int noclose)
{
	struct stream *s;
	int e = errno;

	for (int fd = 0; shim_on && !noclose && fd <= 2; fd++) {
		s = fdtab_stream(fd);
		if (!s || foreign_image())
			continue;
		if (!stream_tcp_only(s))
			(void)fall_back_now(s, REASON_STDIO);
		stream_forget_fd(s, fd);
	}
	if (shim_on && !foreign_image())
		exit_fallback_all();	/* its parent ends without a word to us, and the path
					 * with it */
	errno = e;
	return REAL(daemon)(nochdir, noclose);
}

/* ---- syscall ---- */

/* The kernel's signal set is shorter than libc's. One that cannot be read the wrapper leaves to
 * the kernel. */
static const sigset_t *wide_mask(long mask, sigset_t *buf)
{
	if (!mask || usermem_bad((const void *)mask, 8, false))
		return (const sigset_t *)mask;
	memset(buf, 0, sizeof(*buf));
	memcpy(buf, (const void *)mask, 8);
	return buf;
}

/* A set of signals of another size than the kernel's is refused. */
static bool mask_refused(long mask, long size) { return mask && size != 8; }

/* Raw calls on an fd that the library knows: as if made by name. False: it is not one of these,
 * or the kernel refuses it. */
static bool raw_on_known(long n, const long *va, long *ret)
{
	sigset_t wide;
	int fd = (int)va[0];

	if ((n == SYS_epoll_pwait || n == SYS_epoll_pwait2) && mask_refused(va[4], va[5]))
		return false;
	switch (n) {
	case SYS_close: *ret = wrap_close(fd); return true;
	case SYS_dup: *ret = wrap_dup(fd); return true;
	case SYS_read: *ret = wrap_read(fd, (void *)va[1], (size_t)va[2]); return true;
	case SYS_readv: *ret = wrap_readv(fd, (void *)va[1], (int)va[2]); return true;
	case SYS_write: *ret = wrap_write(fd, (void *)va[1], (size_t)va[2]); return true;
	case SYS_writev: *ret = wrap_writev(fd, (void *)va[1], (int)va[2]); return true;
	case SYS_sendmsg: *ret = wrap_sendmsg(fd, (void *)va[1], (int)va[2]); return true;
	case SYS_recvmsg: *ret = wrap_recvmsg(fd, (void *)va[1], (int)va[2]); return true;
	case SYS_sendto:
		*ret = wrap_sendto(fd, (void *)va[1], (size_t)va[2], (int)va[3], (void *)va[4],
				   (socklen_t)va[5]);
		return true;
	case SYS_recvfrom:
		*ret = wrap_recvfrom(fd, (void *)va[1], (size_t)va[2], (int)va[3], (void *)va[4],
				     (void *)va[5]);
		return true;
	case SYS_sendmmsg:
		*ret = wrap_sendmmsg(fd, (void *)va[1], (unsigned int)va[2], (int)va[3]);
		return true;
	case SYS_recvmmsg:
		*ret = wrap_recvmmsg(fd, (void *)va[1], (unsigned int)va[2], (int)va[3],
				     (void *)va[4]);
		return true;
	/* the offset is in two halves, of which the upper one is nothing here */
	case SYS_preadv2:
		*ret = wrap_preadv2(fd, (void *)va[1], (int)va[2], va[3], (int)va[5]);
		return true;
	case SYS_pwritev2:
		*ret = wrap_pwritev2(fd, (void *)va[1], (int)va[2], va[3], (int)va[5]);
		return true;
	case SYS_fcntl: *ret = wrap_fcntl(fd, (int)va[1], va[2]); return true;
	case SYS_ioctl: *ret = wrap_ioctl(fd, (unsigned long)va[1], va[2]); return true;
	case SYS_connect: *ret = wrap_connect(fd, (void *)va[1], (socklen_t)va[2]); return true;
	case SYS_setsockopt:
		*ret = wrap_setsockopt(fd, (int)va[1], (int)va[2], (void *)va[3], (socklen_t)va[4]);
		return true;
	case SYS_getsockopt:
		*ret = wrap_getsockopt(fd, (int)va[1], (int)va[2], (void *)va[3], (void *)va[4]);
		return true;
	case SYS_shutdown: *ret = wrap_shutdown(fd, (int)va[1]); return true;
	case SYS_listen: *ret = wrap_listen(fd, (int)va[1]); return true;
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
		*ret = wrap_epoll_wait(fd, (void *)va[1], (int)va[2], (int)va[3]);
		return true;
#endif
	case SYS_epoll_pwait:
		*ret = wrap_epoll_pwait(fd, (void *)va[1], (int)va[2], (int)va[3],
					wide_mask(va[4], &wide));
		return true;
	case SYS_epoll_pwait2:
		*ret = wrap_epoll_pwait2(fd, (void *)va[1], (int)va[2], (void *)va[3],
					 wide_mask(va[4], &wide));
		return true;
	default:
		return false;
	}
}

/* Libc reads the time of a wait itself, and crashes where the kernel says EFAULT. */
static bool time_refused(long at, size_t n) { return at && usermem_bad((void *)at, n, false); }

#ifdef SYS_select
/* The kernel does not mind if it cannot write the time back. */
static long raw_select(const long *va)
{
	struct timeval *at = (void *)va[4], t;
	long r;

	if (at)
		memcpy(&t, at, sizeof(t));
	r = wrap_select((int)va[0], (void *)va[1], (void *)va[2], (void *)va[3], at ? &t : NULL);
	if (at && !usermem_bad(at, sizeof(t), true))
		memcpy(at, &t, sizeof(t));
	return r;
}
#endif

/* What the kernel writes back of the time of other waits, and libc does not: until when, of a
 * time that is one. 0: nothing is written. */
static uint64_t raw_end(const struct timespec *t)
{
	if (!t || usermem_bad(t, sizeof(*t), true) || t->tv_sec < 0 || t->tv_sec > 4000000000 ||
	    (unsigned long)t->tv_nsec >= 1000000000u || (!t->tv_sec && !t->tv_nsec))
		return 0;
	return now_ns() + (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

static void raw_left(uint64_t end, struct timespec *t)
{
	uint64_t now = now_ns(), left = end > now ? end - now : 0;

	if (end)
		*t = (struct timespec){ (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
}

static long raw_ppoll(const long *va)
{
	uint64_t end = raw_end((void *)va[2]);
	sigset_t wide;
	long r = wrap_ppoll((void *)va[0], (unsigned int)va[1], (void *)va[2],
			    wide_mask(va[3], &wide));

	raw_left(end, (void *)va[2]);
	return r;
}

/* The last argument of pselect6(2). False: there is none, or it is refused. */
static bool pselect_mask(long at, long *ret_mask)
{
	struct { long mask; size_t len; } arg = { 0, 0 };

	if (at) {
		if (usermem_bad((void *)at, sizeof(arg), false))
			return false;
		memcpy(&arg, (void *)at, sizeof(arg));
	}
	*ret_mask = arg.mask;
	return !mask_refused(arg.mask, (long)arg.len);
}

static long raw_pselect(const long *va, long mask)
{
	uint64_t end = raw_end((void *)va[4]);
	sigset_t wide;
	long r = wrap_pselect((int)va[0], (void *)va[1], (void *)va[2], (void *)va[3],
			      (void *)va[4], wide_mask(mask, &wide));

	raw_left(end, (void *)va[4]);
	return r;
}

static bool raw_uring(long n, const long *va, long *ret)
{
	switch (n) {
	case SYS_io_uring_setup:
		*ret = REAL(syscall)(n, va[0], va[1]);
		if (*ret >= 0 && !foreign_image()) {
			int e = errno;

			fd_fresh((int)*ret);
			uring_made((int)*ret, (void *)va[1]);
			errno = e;
		}
		return true;
	case SYS_io_uring_enter:
		if (!foreign_image())
			uring_enter((int)va[0], (unsigned)va[1], (unsigned)va[3]);
		return false;
	case SYS_io_uring_register:
		*ret = REAL(syscall)(n, va[0], va[1], va[2], va[3]);
		if (*ret < 0)
			return true;
		if (!foreign_image())
			uring_register((unsigned)va[1]);
		/* buffers, in its four forms: the kernel writes to their pages without looking
		 * at the page tables */
		if (!(int)va[1] || (int)va[1] == 15 || (int)va[1] == 16 || (int)va[1] == 30)
			gpu_off("io_uring may write into registered buffers unseen");
		return true;
	default:
		return false;
	}
}

/* As raw_seen(), of calls by which a process gives rights up or changes what it is in. */
static bool raw_seen_rights(long n, const long *va, long *ret)
{
	switch (n) {
	case SYS_prctl:
		if (!prctl_is_seen((int)va[0], va[1]))
			return false;
		*ret = wrap_prctl((int)va[0], va[1], va[2], va[3], va[4]);
		return true;
	case SYS_capset: *ret = wrap_capset((void *)va[0], (const void *)va[1]); return true;
	case SYS_unshare: *ret = wrap_unshare((int)va[0]); return true;
	case SYS_setns: *ret = wrap_setns((int)va[0], (int)va[1]); return true;
	case SYS_setuid: case SYS_setreuid: case SYS_setresuid:
	case SYS_setgid: case SYS_setregid: case SYS_setresgid: case SYS_setgroups:
	case SYS_landlock_restrict_self: case SYS_lsm_set_self_attr: case SYS_keyctl:
		*ret = raw_rights(n, va);
		return true;
	case SYS_seccomp:
		*ret = raw_seccomp((unsigned)va[0], (unsigned)va[1], (void *)va[2]);
		return true;
	default: return false;
	}
}

/* Raw calls that matter whatever their first argument is. False: the kernel's, now. */
static bool raw_seen(long n, const long *va, long *ret)
{
	long mask;

	switch (n) {
	case SYS_sendfile:
		*ret = wrap_sendfile((int)va[0], (int)va[1], (void *)va[2], (size_t)va[3]);
		return true;
	case SYS_splice:
		*ret = wrap_splice((int)va[0], (void *)va[1], (int)va[2], (void *)va[3],
				   (size_t)va[4], (unsigned int)va[5]);
		return true;
#ifdef SYS_poll
	case SYS_poll:
		*ret = wrap_poll((void *)va[0], (unsigned int)va[1], (int)va[2]);
		return true;
#endif
#ifdef SYS_select
	case SYS_select:
		if (time_refused(va[4], sizeof(struct timeval)))
			return false;
		*ret = raw_select(va);
		return true;
#endif
	case SYS_ppoll:
		if (mask_refused(va[3], va[4]) || time_refused(va[2], sizeof(struct timespec)))
			return false;
		*ret = raw_ppoll(va);
		return true;
	case SYS_pselect6:
		if (!pselect_mask(va[5], &mask) || time_refused(va[4], sizeof(struct timespec)))
			return false;
		*ret = raw_pselect(va, mask);
		return true;
#ifdef SYS_epoll_create
	case SYS_epoll_create: *ret = wrap_epoll_create((int)va[0]); return true;
#endif
	case SYS_epoll_create1: *ret = wrap_epoll_create1((int)va[0]); return true;
	case SYS_epoll_ctl:
		*ret = wrap_epoll_ctl((int)va[0], (int)va[1], (int)va[2], (void *)va[3]);
		return true;
	case SYS_close_range:
		*ret = wrap_close_range((unsigned int)va[0], (unsigned int)va[1], (int)va[2]);
		return true;
#ifdef SYS_dup2
	case SYS_dup2: *ret = wrap_dup2((int)va[0], (int)va[1]); return true;
#endif
	case SYS_dup3: *ret = wrap_dup3((int)va[0], (int)va[1], (int)va[2]); return true;
	case SYS_execve:
		*ret = wrap_execve((void *)va[0], (void *)va[1], (void *)va[2]);
		return true;
	case SYS_execveat:
		*ret = wrap_execveat((int)va[0], (void *)va[1], (void *)va[2], (void *)va[3],
				     (int)va[4]);
		return true;
#ifdef SYS_fork
	case SYS_fork:
#endif
	case SYS_clone:
	case SYS_clone3: return raw_clone(n, va, ret);
	case SYS_io_uring_setup:
	case SYS_io_uring_enter:
	case SYS_io_uring_register: return raw_uring(n, va, ret);
	default: return raw_seen_rights(n, va, ret);
	}
}

/* syscall(2) is no cancellation point, whatever it is asked for. */
static bool raw_ours(long n, const long *va, long *ret)
{
	int cancel;
	bool done;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	/* a descriptor is the lower half of its register: of the upper the kernel takes no
	 * notice */
	done = raw_seen(n, va, ret) || (fdtab_get((int)va[0]) && raw_on_known(n, va, ret));
	pthread_setcancelstate(cancel, NULL);
	return done;
}

/* Reads more arguments than there may be, as libc itself does. */
__attribute__((no_sanitize("address"))) long wrap_syscall(long n, ...)
{
	va_list ap;
	long va[6], ret;

	va_start(ap, n);
	for (int i = 0; i < 6; i++)
		va[i] = va_arg(ap, long);
	va_end(ap);
	if (shim_on && raw_ours(n, va, &ret))
		return ret;
	return REAL(syscall)(n, va[0], va[1], va[2], va[3], va[4], va[5]);
}
