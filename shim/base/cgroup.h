/*
 * cgroup.h - how much of the machine the process may have. No locks; opens files; not for a signal
 * handler. errno may be lost.
 */
#ifndef RDMASHIM_CGROUP_H
#define RDMASHIM_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes: the least of what its control groups permit, as far as they can be seen, and of what
 * the machine has. 0: not known. */
uint64_t memory_limit(void);

/* Bytes: the least of what is left of those, what holds files only counted as left. UINT64_MAX: not
 * known. Whoever else is in the group, or on the machine, has the same answer. */
uint64_t memory_left(void);

/* A control group of its limits its processor time, so that a thread that polls takes from what
 * the program has. True, too, where /proc is not to be asked. */
bool cpu_limited(void);

/* Tasks of the machine that run or wait for a processor now, the caller among them. UINT_MAX: not
 * known. */
unsigned tasks_runnable(void);

#endif
