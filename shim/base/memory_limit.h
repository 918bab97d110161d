/* memory_limit.h - how much memory the process may have. No locks; opens files. */
#ifndef RDMASHIM_MEMORY_LIMIT_H
#define RDMASHIM_MEMORY_LIMIT_H

#include <stdint.h>

/* Bytes: the least of what its control groups permit, as far as they can be seen, and of what
 * the machine has. 0: not known. */
uint64_t memory_limit(void);

#endif
