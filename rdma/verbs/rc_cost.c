/*
 * rc_cost.c - from which size on a block is worth being read out of the sender's memory: what
 * registering costs on a device, against what copying costs here.
 *
 * Observes: the time of a registration and its end, of a small and of a large block, and of a copy
 *   of memory that is in no cache; each the best of a few.
 * Decides: the size at which both are alike, with the waits of a block added; a power of two.
 * Bounds: PULL_LEAST to PULL_NEVER; once for each device, some milliseconds, 2 MiB registered for a
 *   moment, and only if the budget has them.
 * Shown: in the log, with the link.
 * Lock: none; background thread.
 * Tested: unit/test_rc (costs), nic/pull.
 */
#include "rdma/verbs/rc_int.h"

#include <sys/mman.h>
#include <time.h>

#define SMALL     (64u << 10)
#define LARGE     (2u << 20)
#define COPY      (1u << 20)
#define MEMORY    (8u << 20)	/* more than a second-level cache has */
#define TRIES     4
#define WAITS_NS  20000		/* two sleeps and the words, which copying has not */
#define DEVICES   16

static uint64_t now_ns(void)
{
	struct timespec t = { 0, 0 };

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ns, UINT64_MAX: it cannot be registered */
static uint64_t registering(struct rc *rc, uint8_t *p, uint32_t n)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		struct pull_mem m;
		uint64_t from = now_ns(), ns;

		if (rc_pull_reg(rc, (uintptr_t)p, n, true, &m))
			return UINT64_MAX;
		rc_pull_dereg(rc, &m);
		ns = now_ns() - from;
		best = ns < best ? ns : best;
	}
	return best;
}

/* ns for COPY bytes */
static uint64_t copying(uint8_t *p)
{
	uint64_t best = UINT64_MAX;

	for (uint32_t at = 0; at + 2 * COPY <= MEMORY; at += 2 * COPY) {
		uint64_t from = now_ns(), ns;

		memcpy(p + at, p + at + COPY, COPY);
		ns = now_ns() - from;
		best = ns < best ? ns : best;
	}
	return best;
}

uint64_t rc_cost_least(uint64_t small_ns, uint64_t large_ns, uint64_t copy_ns)
{
	uint64_t n = PULL_LEAST, reg;

	if (small_ns == UINT64_MAX || large_ns == UINT64_MAX)
		return PULL_NEVER;
	large_ns = large_ns > small_ns ? large_ns : small_ns;
	for (; n < PULL_NEVER; n *= 2) {
		reg = small_ns + (large_ns - small_ns) * (n / SMALL - 1) / (LARGE / SMALL - 1);
		if (reg + WAITS_NS <= copy_ns * (n / SMALL) / (COPY / SMALL))
			break;
	}
	return n;
}

uint64_t rc_pull_least(struct rc *rc)
{
	static struct { char name[64]; uint64_t least; } known[DEVICES];
	static unsigned n;
	const char *name = rc_device(rc);
	uint64_t small, large, least;
	uint8_t *p;

	for (unsigned i = 0; i < n; i++)
		if (!strncmp(known[i].name, name, sizeof known[i].name - 1))
			return known[i].least;
	p = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return PULL_NEVER;
	memset(p, 1, MEMORY);
	small = registering(rc, p, SMALL);
	large = registering(rc, p, LARGE);
	least = rc_cost_least(small, large, copying(p));
	munmap(p, MEMORY);
	if (n < DEVICES) {
		strncpy(known[n].name, name, sizeof known[n].name - 1);
		known[n++].least = least;
	}
	return least;
}
