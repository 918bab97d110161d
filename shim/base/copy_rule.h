/*
 * copy_rule.h - whether threads of ours share large copies, with `copy_threads auto`.
 *
 * Observes: how many bytes large calls copied within a tenth of a second; how many processors the
 *   process may use, and how many tasks of the machine want one; whether a control group counts
 *   its processor time; that a helper's yield was taken by another thread.
 * Decides: how many helpers are begun; 0: none, and it is asked again after another such flow.
 * Bounds: one for every eight processors, 4 at the most, and none that would leave a task without
 *   a processor. A helper of which others end turn after turn (COPY_RULE_CROWD more than they
 *   leave it) ends, and none is begun for a second, twice as long each time, up to a minute.
 * Switched off by `copy_threads 0`; a number is that many, whoever else runs.
 * Lock: none. A lost update does no harm. Tested in tests/unit/test_copy.c.
 */
#ifndef RDMASHIM_COPY_RULE_H
#define RDMASHIM_COPY_RULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define COPY_RULE_WINDOW_NS 100000000u
#define COPY_RULE_BYTES	    (64u << 20)	/* in a window: copying is what the flow waits for */
#define COPY_RULE_CPUS	    8		/* for each helper */
#define COPY_RULE_MOST	    4
#define COPY_RULE_CROWD	    8
#define COPY_RULE_AWAY_NS   1000000000u
#define COPY_RULE_AWAY_MOST 6		/* times doubled */

struct copy_rule {
	_Atomic uint64_t since, moved, not_before;	/* ns, bytes, ns */
	_Atomic uint32_t crowded;			/* times */
};

/* n bytes were copied. Is it worth to look for helpers? */
static inline bool copy_rule_moved(struct copy_rule *r, uint64_t n, uint64_t now)
{
	uint64_t since = atomic_load_explicit(&r->since, memory_order_relaxed), moved;

	if (now - since > COPY_RULE_WINDOW_NS) {
		atomic_store_explicit(&r->since, now, memory_order_relaxed);
		atomic_store_explicit(&r->moved, n, memory_order_relaxed);
		return false;
	}
	moved = atomic_load_explicit(&r->moved, memory_order_relaxed) + n;
	atomic_store_explicit(&r->moved, moved, memory_order_relaxed);
	return moved >= COPY_RULE_BYTES &&
	       now >= atomic_load_explicit(&r->not_before, memory_order_relaxed);
}

/* How many, of `cpus` processors, for which `running` tasks are there now. */
static inline unsigned copy_rule_helpers(unsigned cpus, unsigned running, bool limited)
{
	unsigned n = cpus / COPY_RULE_CPUS;

	n = n < COPY_RULE_MOST ? n : COPY_RULE_MOST;
	if (limited || running >= cpus)
		return 0;
	return n < cpus - running ? n : cpus - running;
}

/* A helper was in somebody's way, or there was no processor for one. */
static inline void copy_rule_crowded(struct copy_rule *r, uint64_t now)
{
	uint32_t times = atomic_load_explicit(&r->crowded, memory_order_relaxed);

	atomic_store_explicit(&r->not_before, now + ((uint64_t)COPY_RULE_AWAY_NS << times),
			      memory_order_relaxed);
	if (times < COPY_RULE_AWAY_MOST)
		atomic_store_explicit(&r->crowded, times + 1, memory_order_relaxed);
}

#endif
