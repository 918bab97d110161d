/*
 * track.h - which pages of a host range were written since a moment.
 */
#ifndef RDMASHIM_GPU_TRACK_H
#define RDMASHIM_GPU_TRACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0 or -errno: the kernel cannot do it. guard: also gpu_track_hide(), if permitted */
int gpu_track_open(bool guard);
bool gpu_track_guards(void);		/* it is */
/* Nobody will ask for gpu_track_event(), which forks would wait for: nothing is held back. Before
 * anything is watched. */
void gpu_track_unguard(void);
/* Writes to [lo, hi) are noticed from here on; what was written before is forgotten. False: not
 * possible there. */
bool gpu_track_begin(uintptr_t lo, uintptr_t hi);
/* The same memory is about to be written all over: spares the cost of noticing. False: as above. */
bool gpu_track_pause(uintptr_t lo, uintptr_t hi);
/* No other device has pages of the process pinned, where it might write unseen. As far as the
 * kernel counts them (docs/limits.md). gpu_lock held. */
bool gpu_track_alone(uintptr_t lo, uintptr_t hi);
/* ... a millisecond ago, at least */
bool gpu_track_alone_lately(uintptr_t lo, uintptr_t hi);
/* Length of the run from lo whose pages were not written; 0: the first one was, *next is where a
 * clean one starts. */
size_t gpu_track_clean(uintptr_t lo, uintptr_t hi, uintptr_t *next);
/* Can the driver, which knows no EFAULT, store there? Pages are made present. */
bool gpu_track_writable(uintptr_t lo, uintptr_t hi);
/* Is at least `limit` of it written? */
bool gpu_track_written(uintptr_t lo, uintptr_t hi, size_t limit);
void gpu_track_fork(bool child);
/* Whole pages of shared memory of our own leave the page tables; accesses wait, and are
 * reported. False: not there. */
bool gpu_track_hide(uintptr_t lo, uintptr_t hi);
/* a range that was hidden as a whole is still that memory */
bool gpu_track_hidden(uintptr_t lo, uintptr_t hi);
/* clean: later writes are noticed, as after gpu_track_begin() */
void gpu_track_show(uintptr_t lo, uintptr_t hi, bool clean);
void gpu_track_poison(uintptr_t lo, uintptr_t hi);	/* hidden pages: accesses fail */
enum gpu_veil_event { GPU_VEIL_EVENT_END, GPU_VEIL_EVENT_TOUCH, GPU_VEIL_EVENT_FORK,
		      GPU_VEIL_EVENT_MOVE };
/* waits. at: the page, which tid touched; or what gpu_track_forked() is to be told */
enum gpu_veil_event gpu_track_event(uintptr_t *at, int *tid);
void gpu_track_forked(int child);

#endif
