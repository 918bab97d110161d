/*
 * spin.h - polling for a moment before a sleep: shared by recv, poll and epoll_wait.
 */
#ifndef RDMASHIM_SPIN_H
#define RDMASHIM_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct spin {
	uint64_t end_tsc, next_yield;
	_Atomic uint32_t *hit_rate;
	/* A CPU that others use is no reason to stop, unless nothing comes of it. */
	bool patient;
	bool crowd;		/* others used it */
};
/* How long this waiter may spin; adapts to its hit_rate (state word kept by the caller) and to
 * spare CPUs. net: for a peer on another host. */
bool spin_begin(struct spin *sp, _Atomic uint32_t *hit_rate, bool net);
bool spin_again(struct spin *sp);		/* pauses a little; false: time is up */
void spin_end(_Atomic uint32_t *hit_rate, bool won);
/* Nobody else wants this CPU just now: asked by a yield, which takes long if so. */
bool spin_cpu_spare(void);
/* The wait slept for `ns` in the end: had a longer spin caught it? */
void spin_slept(_Atomic uint32_t *hit_rate, uint64_t ns, bool net);

#endif
