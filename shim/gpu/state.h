/*
 * state.h - what the whole GPU path has one of: whether it is on, its lock, and what stands still
 * while a context ends.
 *
 * gpu_lock guards records, rings, candidates, maps and the table of busy streams; it comes
 * after snd.lock and rcv.lock, and only the veils' lock comes after it. Short calls into the
 * driver are made under it, none that waits for the device but for a copy of our own (a veil's),
 * and none that puts something into a stream of the program's: where that is full, it waits for
 * what the program does next. The driver may wait for other threads all the same, so calls on
 * sockets wait for this lock a moment only: gpu_lock_soon().
 */
#ifndef RDMASHIM_GPU_STATE_H
#define RDMASHIM_GPU_STATE_H

#include "base/lock.h"
#include "base/signals.h"
#include "gpu/gpu.h"
#include "gpu/gpu_ops.h"

enum gpu_path_state { GPU_PATH_ASLEEP, GPU_PATH_ON, GPU_PATH_OFF };
extern _Atomic int gpu_path;		/* enum gpu_path_state */
extern struct lock gpu_lock;
/* False: it is not to be had, perhaps because the driver waits for our caller. */
bool gpu_lock_soon(void);
bool gpu_allowed(void);		/* by the policy, now */

extern const struct gpu_user *gpu_user;	/* never NULL */
/* The one that the program last copied from the host in. */
extern _Atomic(gpu_ctx) gpu_context;
/* No new use of the contexts; and one of them is being ended. gpu_lock. */
extern bool gpu_paused, gpu_closing;
/* Copies that no record is pinned for; begun with gpu_lock held. */
extern _Atomic unsigned gpu_reading;
extern _Atomic bool gpu_ended;		/* a context is gone, and what was in it */

/* In a signal handler the driver may be in the middle of something that this thread was
 * interrupted in. */
static inline bool gpu_unsafe_here(void) { return thread_signals.handlers != 0; }

#endif
