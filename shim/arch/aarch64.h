/* aarch64.h - instructions of 64-bit ARM; see arch.h. Counts are added to in plain C. */
#ifndef RDMASHIM_AARCH64_H
#define RDMASHIM_AARCH64_H

#define ARCH_SYS
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}

/* yield does nothing on most of these processors; isb waits some ten nanoseconds. */
#define ARCH_PAUSE
static inline void arch_pause(void) { __asm__ volatile("isb" ::: "memory"); }

/* isb: else the clock may be read ahead of what came before. */
#define ARCH_TICKS
static inline uint64_t arch_ticks(void)
{
	uint64_t t;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(t) : : "memory");
	return t;
}

/* As on x86-64. */
#define ARCH_RESULT(uc) ((ucontext_t *)(uc))->uc_mcontext.regs[0]
#define ARCH_TRAP "udf #0"

#endif
