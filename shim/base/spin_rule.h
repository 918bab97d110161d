/*
 * spin_rule.h - how long a waiter polls before it sleeps, by what became of its waits before.
 *
 * Observes: whether a spin was answered, how long a sleep was, how long a yield took meanwhile.
 * Decides: for how many microseconds the next wait spins; 0: it sleeps at once.
 * Bounds: the policy's `spin` (`rdma_spin` to another host), a sixteenth of it at the least. After
 *   a yield that another thread took, 16 waits sleep, twice as many each time; after one that cost
 *   a slice of the scheduler's, as many as make that small beside what a wait costs.
 * Switched off by `spin 0`. Shown: `rdmastat why`, "others need its processor" (crowded).
 * Lock: none. State is one word of each waiter's; a lost update of it does no harm.
 * Tested on recorded waits: tests/unit/test_spin.c.
 */
#ifndef RDMASHIM_SPIN_RULE_H
#define RDMASHIM_SPIN_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* The word: bits 0-8 hit_rate (0: not known yet), bits 9-12 how often it was crowded, the rest
 * how many spins to leave out. */
#define SPIN_HIT_RATE(w)	((w) & 0x1ff)
#define SPIN_CROWD(w)	((w) >> 9 & 15)
#define SPIN_LEAVE(w)	((w) >> 13)
#define SPIN_WORD(hit_rate, crowd, leave) ((hit_rate) | (crowd) << 9 | (leave) << 13)

#define SPIN_HIT_RATE_START	   128
#define SPIN_HIT_RATE_LEAST	   16
#define SPIN_HIT_RATE_MOST	   256
#define SPIN_CROWD_MOST	   8
#define SPIN_LEAVE_MOST	   0x7ffffu
#define SPIN_LEAVE_FIRST   16
#define SPIN_LEAVE_PATIENT 1
#define SPIN_LEAVE_TOLD	   1024	/* so many are told of */
#define SPIN_SLICE_US	   1000	/* less is a peer that had work to do */
/* A wait takes some 5 us then, so that no more than a twentieth of the time goes so. */
#define SPIN_SLEEPS_PER_US 4

/* A wait begins: how long it spins, in microseconds; 0: not. */
static inline uint64_t spin_rule_wait(uint32_t *w, uint64_t limit)
{
	uint64_t l = SPIN_HIT_RATE(*w);

	if (!limit)
		return 0;
	if (SPIN_LEAVE(*w)) {
		*w = SPIN_WORD(SPIN_HIT_RATE(*w), SPIN_CROWD(*w), SPIN_LEAVE(*w) - 1);
		return 0;
	}
	limit = limit * (l ? l : SPIN_HIT_RATE_START) / SPIN_HIT_RATE_MOST;
	return limit < 2 ? 0 : limit;
}

/* Another thread had use for the CPU, for so long. first: as how many sleeps it counts the first
 * time. */
static inline uint32_t spin_rule_crowded(uint32_t w, uint32_t first, uint64_t lost_us)
{
	uint32_t n = SPIN_CROWD(w), leave = first << n;

	if (lost_us > SPIN_LEAVE_MOST / SPIN_SLEEPS_PER_US)
		lost_us = SPIN_LEAVE_MOST / SPIN_SLEEPS_PER_US;
	if (lost_us >= SPIN_SLICE_US && leave < lost_us * SPIN_SLEEPS_PER_US)
		leave = (uint32_t)lost_us * SPIN_SLEEPS_PER_US;
	return SPIN_WORD(SPIN_HIT_RATE(w), n < SPIN_CROWD_MOST ? n + 1 : SPIN_CROWD_MOST, leave);
}

/* A spin was answered or not; or a sleep was so short that one would have been. */
static inline uint32_t spin_rule_learned(uint32_t w, bool won)
{
	uint32_t l = SPIN_HIT_RATE(w), n = SPIN_CROWD(w);

	if (!l)
		l = SPIN_HIT_RATE_START;
	if (won)
		l = l + 32 > SPIN_HIT_RATE_MOST ? SPIN_HIT_RATE_MOST : l + 32;
	else
		l = l > SPIN_HIT_RATE_LEAST ? l - l / 8 : SPIN_HIT_RATE_LEAST;
	if (won && n && !SPIN_LEAVE(w))	/* one that was answered while nobody else wanted the CPU */
		n--;
	return SPIN_WORD(l, n, SPIN_LEAVE(w));
}

/* Half of such a short sleep was the wake-up itself: a peer that busy is worth a spin. */
static inline bool spin_rule_short(uint64_t slept_ns, uint64_t limit)
{
	return slept_ns < limit * 2000;
}

#endif
