/*
 * interp.h - which dynamic linker a program names for itself (PT_INTERP), if any.
 */
#ifndef RDMASHIM_INTERP_H
#define RDMASHIM_INTERP_H

#include <stdbool.h>
#include <stddef.h>

/* The program, found as execvp() finds it, or the interpreter of a script, has a linker of another
 * libc, musl: that one ends a program whose preloaded library wants glibc. Its name in `linker`. */
bool program_of_musl(const char *program, char *linker, size_t len);
/* It has no linker, so nothing can be preloaded. */
bool program_is_static(const char *program);

#endif
