/*
 * raw.h - system calls by syscall(2), with the error as their result: in a preloaded process
 * open(), read() and close() are the library's own wrappers.
 */
#ifndef RDMASHIM_RAW_H
#define RDMASHIM_RAW_H

#include <errno.h>

/* What syscall(2) gave: its result, or -errno. */
static inline int raw(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

/* The first bytes of a small file, such as /proc has: one read. Their number, or -errno. Any
 * thread; no malloc. */
int raw_read_file(const char *path, char *buf, int max);

#endif
