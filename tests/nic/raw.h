/* raw.h - system calls past whatever wraps libc's in the same program: what the libraries do by
 * themselves is nobody's business. */
#ifndef NIC_RAW_H
#define NIC_RAW_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The result, or -errno. */
static inline long raw6(long n, long a, long b, long c, long d, long e, long f)
{
#ifdef __x86_64__
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
#else
	long r = syscall(n, a, b, c, d, e, f);

	return r < 0 ? -errno : r;
#endif
}
#define RAW_(n, a, b, c, d, e, f, ...) \
	raw6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define raw(...) RAW_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

#endif
