/* x86_64.h - instructions of x86-64; see arch.h. */
#ifndef RDMASHIM_X86_64_H
#define RDMASHIM_X86_64_H

#include <smmintrin.h>

#define ARCH_SYS
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

#define ARCH_PAUSE
static inline void arch_pause(void) { __builtin_ia32_pause(); }

#define ARCH_FENCE_TAKEN
static inline void arch_fence_taken(void) { __asm__ volatile("" ::: "memory"); }

#define ARCH_TICKS
static inline uint64_t arch_ticks(void) { return __builtin_ia32_rdtsc(); }

/* One instruction: of a load and a store the compiler would make three, and a locked one costs as
 * much as ten. */
#define ARCH_ADD
static inline void arch_add(uint64_t *n, uint64_t by)
{
	__asm__("addq %1, %0" : "+m"(*n) : "er"(by));
}
static inline void arch_inc(uint64_t *n) { __asm__("addq $1, %0" : "+m"(*n)); }

#define ARCH_PAGE
static inline size_t arch_page(void) { return 4096; }

#define ARCH_PREFETCH_WRITE
static inline void arch_prefetch_write(const void *p)
{
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
}

/* Whole lines by streaming loads: an ordinary load of write-combining memory fetches 8 bytes at a
 * time. `room` is aligned to 16 bytes, and larger than n by ARCH_STREAM_SLACK. */
#define ARCH_STREAM_READ
#define ARCH_STREAM_SLACK 32
static inline bool arch_can_stream_read(void) { return __builtin_cpu_supports("sse4.1"); }
__attribute__((target("sse4.1"), unused))
static void arch_stream_read(void *to, const uint8_t *from, size_t n, void *room)
{
	__m128i *part = room;
	size_t skip = (uintptr_t)from & 15, lines = (skip + n + 15) / 16;
	__m128i *at = (__m128i *)((uintptr_t)from - skip);

	_mm_mfence();		/* what an earlier streaming load has fetched is not used again */
	for (size_t i = 0; i < lines; i++)
		part[i] = _mm_stream_load_si128(at + i);
	__builtin_memcpy(to, (const uint8_t *)part + skip, n);
}

/* Of a signal's context: what the interrupted system call returns. An instruction that ends the
 * program. For tests. */
#define ARCH_RESULT(uc) ((ucontext_t *)(uc))->uc_mcontext.gregs[REG_RAX]
#define ARCH_TRAP "ud2"

#endif
