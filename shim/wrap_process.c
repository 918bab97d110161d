/*
 * wrap_process.c - wrappers of exec, daemon, prctl and syscall(2).
 *
 * fork needs none: libc runs the pthread_atfork handlers. In a child of vfork or clone nothing
 * but the real call is made; our state belongs to the parent there.
 * Holds no lock.
 */
#include "libc.h"

#include <limits.h>
#include <string.h>
#include <sys/prctl.h>

extern char **environ;

/* ---- exec ---- */

/* True: the streams were sent home, and shim_exec_failed() must follow if we come back. */
static bool before_exec(void)
{
	int e = errno;

	if (!shim_on || foreign_image())
		return false;
	shim_before_exec();
	errno = e;
	return true;
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
		if (!stream_pinned(s))
			(void)sent_home(s, REASON_STDIO);
		stream_forget_fd(s, fd);
	}
	errno = e;
	return REAL(daemon)(nochdir, noclose);
}

/* ---- prctl, syscall ---- */

static void before_seccomp(void)
{
	int e = errno;

	if (shim_on && !foreign_image())
		shim_before_seccomp();
	errno = e;
}

int wrap_prctl(int option, ...)
{
	va_list ap;
	long va[4];

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		va[i] = va_arg(ap, long);
	va_end(ap);
	if (option == PR_SET_SECCOMP)
		before_seccomp();
	return REAL(prctl)(option, va[0], va[1], va[2], va[3]);
}

/* The kernel's signal set is shorter than libc's. */
static const sigset_t *wide_mask(long mask, sigset_t *buf)
{
	if (!mask)
		return NULL;
	memset(buf, 0, sizeof(*buf));
	memcpy(buf, (const void *)mask, 8);
	return buf;
}

/* Raw calls on an fd that the shim knows: as if made by name. False: it is not one of these. */
static bool raw_on_known(long n, const long *va, long *ret)
{
	sigset_t wide;
	int fd = (int)va[0];

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
		*ret = wrap_sendto(fd, (void *)va[1], (size_t)va[2], (int)va[3], (void *)va[4], (socklen_t)va[5]);
		return true;
	case SYS_recvfrom:
		*ret = wrap_recvfrom(fd, (void *)va[1], (size_t)va[2], (int)va[3], (void *)va[4], (void *)va[5]);
		return true;
	case SYS_shutdown: *ret = wrap_shutdown(fd, (int)va[1]); return true;
	case SYS_epoll_ctl: *ret = wrap_epoll_ctl(fd, (int)va[1], (int)va[2], (void *)va[3]); return true;
#ifdef SYS_epoll_wait
	case SYS_epoll_wait: *ret = wrap_epoll_wait(fd, (void *)va[1], (int)va[2], (int)va[3]); return true;
#endif
	case SYS_epoll_pwait:
		*ret = wrap_epoll_pwait(fd, (void *)va[1], (int)va[2], (int)va[3], wide_mask(va[4], &wide));
		return true;
	case SYS_epoll_pwait2:
		*ret = wrap_epoll_pwait2(fd, (void *)va[1], (int)va[2], (void *)va[3], wide_mask(va[4], &wide));
		return true;
	default:
		return false;
	}
}

/* Raw calls that matter whatever their first argument is. */
static bool raw_seen(long n, const long *va, long *ret)
{
	switch (n) {
	case SYS_close_range:
		*ret = wrap_close_range((unsigned int)va[0], (unsigned int)va[1], (int)va[2]);
		return true;
#ifdef SYS_dup2
	case SYS_dup2: *ret = wrap_dup2((int)va[0], (int)va[1]); return true;
#endif
	case SYS_dup3: *ret = wrap_dup3((int)va[0], (int)va[1], (int)va[2]); return true;
	case SYS_execve: *ret = wrap_execve((void *)va[0], (void *)va[1], (void *)va[2]); return true;
	case SYS_execveat:
		*ret = wrap_execveat((int)va[0], (void *)va[1], (void *)va[2], (void *)va[3], (int)va[4]);
		return true;
	case SYS_prctl:
		if (va[0] == PR_SET_SECCOMP)
			before_seccomp();
		return false;
	case SYS_seccomp:
		if (va[0] == 0 || va[0] == 1)	/* SECCOMP_SET_MODE_STRICT, _FILTER */
			before_seccomp();
		return false;
	case SYS_io_uring_setup: {
		int e = errno;

		if (!foreign_image())
			shim_before_io_uring();
		errno = e;
		return false;
	}
	default:
		return false;
	}
}

long wrap_syscall(long n, ...)
{
	va_list ap;
	long va[6], ret;

	va_start(ap, n);
	for (int i = 0; i < 6; i++)
		va[i] = va_arg(ap, long);
	va_end(ap);
	if (shim_on) {
		if (raw_seen(n, va, &ret))
			return ret;
		if ((unsigned long)va[0] < FDTAB_MAX && fdtab_get((int)va[0]) && raw_on_known(n, va, &ret))
			return ret;
	}
	return REAL(syscall)(n, va[0], va[1], va[2], va[3], va[4], va[5]);
}
