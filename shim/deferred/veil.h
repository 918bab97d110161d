/*
 * veil.h - pages of the program's pinned memory whose bytes are still in device memory of
 * ours: the table of them, for defer.c alone; all others ask
 * gpu/deferred.h.
 */
#ifndef RDMASHIM_DEFERRED_VEIL_H
#define RDMASHIM_DEFERRED_VEIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu_ops.h"

struct gpu_range;

/* Whole pages [lo, hi) get the bytes at `data` of the range's ring when somebody looks.
 * gpu_lock held. */
bool veil_put(struct gpu_range *r, uintptr_t lo, uintptr_t hi, uint64_t data);

/* As in struct deferred_ops. */
bool veils_open(void);
void veils_end(void);
void veils_after_fork(void);
gpu_result veils_fill(uintptr_t lo, size_t n);
void veils_leave_room(struct gpu_range *r);
void veils_forget(uintptr_t lo, size_t n);
bool veils_at(uintptr_t p, uintptr_t hi, uintptr_t *end);

#endif
