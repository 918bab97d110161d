/*
 * arch.h - what depends on the processor, with a form in plain C for those that have no file here.
 *
 *	sys6()			a system call; the result, or negative errno; errno stays
 *	arch_pause()		in a loop that waits for another processor
 *	arch_fence_taken()	after an atomic exchange: a full fence, where that is none itself
 *	arch_ticks()		a clock that is read quickly, of any rate; ARCH_TICKS: there is one
 *	arch_add(), arch_inc()	to a count that has one writer, read by others as a whole
 *	arch_page()		bytes of a page
 *	arch_prefetch_write()	asks for a line in order to write it
 *	arch_stream_read()	out of write-combining memory, lines as a whole; false: not here
 *
 * Those who have entries in assembly include arch/entries.h.
 */
#ifndef RDMASHIM_ARCH_H
#define RDMASHIM_ARCH_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

#if defined(ARCH_PLAIN)
#elif defined(__x86_64__) && defined(__LP64__)
#include "arch/x86_64.h"
#elif defined(__aarch64__) && defined(__LP64__)
#include "arch/aarch64.h"
#endif

#ifndef ARCH_SYS
#include <unistd.h>

/* libc's own, where the name leads to our wrapper of it. */
long arch_libc_syscall(long n, long a, long b, long c, long d, long e, long f)
	__attribute__((weak, visibility("hidden")));

static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	int saved = errno;
	long ret = arch_libc_syscall ? arch_libc_syscall(n, a, b, c, d, e, f)
				      : syscall(n, a, b, c, d, e, f);

	if (ret == -1)
		ret = -errno;
	errno = saved;
	return ret;
}
#endif

#ifndef ARCH_PAUSE
static inline void arch_pause(void) { atomic_signal_fence(memory_order_seq_cst); }
#endif

#ifndef ARCH_FENCE_TAKEN
static inline void arch_fence_taken(void) { atomic_thread_fence(memory_order_seq_cst); }
#endif

#ifndef ARCH_ADD
static inline void arch_add(uint64_t *n, uint64_t by)
{
	uint64_t now = __atomic_load_n(n, __ATOMIC_RELAXED);

	__atomic_store_n(n, now + by, __ATOMIC_RELAXED);
}
static inline void arch_inc(uint64_t *n) { arch_add(n, 1); }
#endif

/* 4, 16 or 64 KiB, as the kernel was made. */
#ifndef ARCH_PAGE
static inline size_t arch_page(void) { return getauxval(AT_PAGESZ); }
#endif

#ifndef ARCH_PREFETCH_WRITE
static inline void arch_prefetch_write(const void *p) { __builtin_prefetch(p, 1); }
#endif

/* Debian's name of the processor in paths of libraries. */
#if defined(__x86_64__)
#define ARCH_TRIPLET "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define ARCH_TRIPLET "aarch64-linux-gnu"
#else
#define ARCH_TRIPLET "."
#endif

#ifndef ARCH_STREAM_READ
#define ARCH_STREAM_SLACK 0
static inline bool arch_can_stream_read(void) { return false; }
static inline void arch_stream_read(void *to, const uint8_t *from, size_t n, void *room)
{
	(void)room;
	__builtin_memcpy(to, from, n);
}
#endif

#endif
