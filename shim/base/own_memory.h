/*
 * own_memory.h - a child that no handler of ours knows of has a copy of this memory. It tells by a
 * page that such a copy does not inherit (MADV_WIPEONFORK, Linux 4.14; before that all memory is
 * ours).
 */
#ifndef RDMASHIM_OWN_MEMORY_H
#define RDMASHIM_OWN_MEMORY_H

#include <stdbool.h>

void memory_mark(void);			/* from now on that can be told; background thread */
void memory_marked_anew(void);		/* in a child that our handlers know */
/* Is this process's memory the one in which our threads run, or a copy that a fork without handlers
 * made? Any thread, async-signal-safe. */
bool memory_is_ours(void);

#endif
