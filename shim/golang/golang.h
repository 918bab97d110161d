/*
 * golang.h - a Go program's own system calls go by the library (docs/go.md).
 *
 * Called by the constructor, where the policy says so: before the program's first instruction, and
 * so before Go has a thread.
 */
#ifndef RDMASHIM_GOLANG_H
#define RDMASHIM_GOLANG_H

#include <stdbool.h>

/* False: this is no Go program. What became of one is in shim_go (base/shim.h). */
bool golang_begin(void);
/* It is one, and its calls come here. */
bool golang_patched(void);

#endif
