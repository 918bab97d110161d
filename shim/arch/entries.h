/*
 * entries.h - entries that look at a call and jump on to the real function, which sees the caller
 * and all arguments as they were. Strings for __asm__(), of macros of the assembler:
 *
 *	ARCH_JUMP_ON		JUMP_ON name, look: `name` jumps to what look(arguments) returns
 *	ARCH_ANSWER		ANSWER name, look, real: look(arguments) returns { p, mine };
 *				if mine `name` returns p, else it jumps to *real
 *	ARCH_CUDA_STUBS		see cuda/cuda_hook.c, whose functions and tables it names:
 *				CUDA_STUB n, writes, waits; each takes ARCH_STUB_STEP bytes at most
 *
 * Three arguments at most are seen by JUMP_ON and ANSWER, those of dlopen's family. Defined only
 * where there are such entries: another processor has C in their place, which is compiled to a jump
 * (ARCH_TAIL), and no hooks of CUDA.
 */
#ifndef RDMASHIM_ENTRIES_H
#define RDMASHIM_ENTRIES_H

#if defined(ARCH_PLAIN)
#elif defined(__x86_64__) && defined(__LP64__)
#include "arch/x86_64_entries.h"
#elif defined(__aarch64__) && defined(__LP64__)
#include "arch/aarch64_entries.h"
#endif

/* Of a function that ends with a call of the real one. */
#if defined(__clang__)
#define ARCH_TAIL
#else
#define ARCH_TAIL __attribute__((optimize("O2", "optimize-sibling-calls")))
#endif

#endif
