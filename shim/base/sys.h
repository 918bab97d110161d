/*
 * sys.h - raw system calls for the library's own needs.
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

#include "arch/arch.h"
#include "arch/newer.h"

#define SYS_ARGS_(n, a, b, c, d, e, f, ...) sys6((n), (long)(a), (long)(b), (long)(c), (long)(d), \
	(long)(e), (long)(f))
/* sys(SYS_write, fd, buf, n): up to six arguments. */
#define sys(n, ...) SYS_ARGS_(n, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)

#endif
