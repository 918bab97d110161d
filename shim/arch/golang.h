/*
 * golang.h - Go's system calls on this processor: how the instructions look, what takes their
 * place, and the entries to which that leads. Defined only where ARCH_GOLANG is.
 *
 *	arch_go_find()		the one system call of that form in a function's code
 *	arch_go_jump()		in its place: a jump to its stub
 *	arch_go_stub()		the stub, at most ARCH_GO_STUB bytes, which may be so far from it
 *				as ARCH_GO_NEAR
 *	ARCH_GOLANG_ENTRIES	for __asm__(), of golang/call.c, whose names it has:
 *		golang_entry	from the stub, with what the system call would have, and where to go
 *				on; to golang_call(), on a stack of this thread's own, or back to
 *				the stub, which has the system call itself, too
 *		golang_vfork	the same, of the call by which Go makes a child in its own memory
 *		golang_vforked	behind that system call, in both processes
 *
 * Registers, flags and stack are afterwards as behind a system call.
 */
#ifndef RDMASHIM_ARCH_GOLANG_H
#define RDMASHIM_ARCH_GOLANG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum arch_go_form {
	ARCH_GO_ANY,	/* whatever number comes; the result is compared */
	ARCH_GO_VFORK,	/* the same, and the return address is put back on the stack between */
	ARCH_GO_FIXED	/* the number stands before it */
};

/* A system call in a function: where, as an offset, and what takes its place. */
struct arch_go_site { size_t at, len; enum arch_go_form form; int number; };

#define ARCH_GO_STACK 262144	/* bytes of a thread's own stack; what nobody touches takes none */

/* Places in struct golang_thread (golang/call.c), for the entries. */
#define ARCH_GO_TOP   0
#define ARCH_GO_BUSY  8
#define ARCH_GO_CHILD 12
#define ARCH_GO_KEPT  16

#if defined(ARCH_PLAIN)
#elif defined(__x86_64__) && defined(__LP64__)
#include "arch/x86_64_golang.h"
#endif

#endif
