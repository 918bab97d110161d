/*
 * learn.h - what was learned: of ranges of host memory, whether what is copied there is sent (or
 * what is received there is copied to a device), and of the places in the program that copy. And
 * what became of each place's bytes, for rdmastat.
 *
 * Observes: each copy and its place, each send, what became of each range. Decides: whether a copy
 * gets a snapshot, whether a receive is watched, whether either may be deferred. Bounds: 64 places,
 * 128 ranges; a surprise makes it four or sixteen times as slow to try again. Off: `device off`.
 */
#ifndef RDMASHIM_GPU_LEARN_H
#define RDMASHIM_GPU_LEARN_H

#include "gpu/hooks.h"
#include "gpu/range.h"
#include "policy/stat.h"

void gpu_site_open(void);		/* no lock held */
int gpu_site(struct gpu_from f, size_t n, bool rx);	/* not under gpu_lock */
bool gpu_site_dull(int site);		/* counts a copy; true: not worth a look */
/* not under gpu_lock; the others anywhere */
void gpu_site_copy(int site, uintptr_t lo, size_t n);
void gpu_site_not(int site, enum reason why, size_t n);
void gpu_site_taken(int site, size_t n);
/* Under gpu_lock. */
/* a copy to there is made. True: with a snapshot, please. */
bool gpu_expected(uintptr_t lo, size_t n, int site);
void gpu_sending(uintptr_t lo);
/* a receive to there is probably followed by a copy to the device */
bool gpu_wants_watch(uintptr_t lo, size_t n);
void gpu_copied_from(uintptr_t lo, size_t n, int site);	/* such a copy */
enum outcome { outcome_OVER, outcome_HARM, outcome_EVICTED };
/* what became of a snapshot */
void gpu_learn(const struct gpu_range *r, enum outcome outcome);
bool gpu_site_may_defer(uintptr_t lo, bool rx);
void gpu_site_put_off(uintptr_t lo, bool rx);	/* a copy, or a receive, was */
void gpu_site_deferred(uintptr_t lo, bool rx, bool good);	/* ... and what came of it */

#endif
