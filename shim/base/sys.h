/*
 * sys.h - raw system calls for the shim's own needs.
 *
 * They never enter an interposed libc symbol, never touch errno and are no cancellation
 * points, so they may be used under a direction lock and in signal handlers.
 * Return: the result, or negative errno.
 */
#ifndef RDMASHIM_SYS_H
#define RDMASHIM_SYS_H

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Older libcs have no names for them; the numbers are those of all machines. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

#if defined(__x86_64__)
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = f;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#else
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	int saved = errno;
	long ret = syscall(n, a, b, c, d, e, f);

	if (ret == -1)
		ret = -errno;
	errno = saved;
	return ret;
}
#endif

#define SYS_ARGS_(n, a, b, c, d, e, f, ...) sys6((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
/* sys(SYS_write, fd, buf, n): up to six arguments. */
#define sys(n, ...) SYS_ARGS_(n, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)

#endif
