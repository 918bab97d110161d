/*
 * rdmastat_killed.h - how a process of the doctor's ended, in words.
 */
#ifndef RDMASHIM_RDMASTAT_KILLED_H
#define RDMASHIM_RDMASTAT_KILLED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* `who` is the child `pid`. True: it has been ended by a signal, which `why` names, and under a
 * filter that kills the calls that the library makes and it forbids; it is waited for, a second at
 * most, and not reaped. */
bool killed(const char *who, pid_t pid, char *why, size_t size, bool *ret_filter);

/* A filter here ends a process for this system call, whatever its arguments. */
bool call_forbidden(int nr);

#endif
