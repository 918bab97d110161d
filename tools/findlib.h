/*
 * findlib.h - where librdmashim.so is, for the tools that start programs with it.
 */
#ifndef RDMASHIM_FINDLIB_H
#define RDMASHIM_FINDLIB_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The library: $RDMASHIM_LIB, else the one that LD_PRELOAD names, else beside the running
 * program (build/), else in the lib directory of its prefix. Returns its absolute path in buf,
 * or false.
 */
bool find_library(char *buf, size_t len);
/* After that: why not. Static. */
const char *library_missing(void);

/* LD_PRELOAD with the library added at the end, if it is not there already. malloc; NULL if out
 * of memory. */
char *preload_with(const char *lib);

/* LD_PRELOAD with all else that is in it, "" if that is nothing. malloc; NULL if out of memory. */
char *preload_without(void);

#endif
