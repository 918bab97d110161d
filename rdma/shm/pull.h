/*
 * pull.h - a block that its receiver reads by RDMA out of the sender's memory: what the two ends
 * tell each other of it (docs/zerocopy.md), and memory that a device may reach for that. Plain
 * values; who owns one says so.
 */
#ifndef RDMASHIM_PULL_H
#define RDMASHIM_PULL_H

#include <stdbool.h>
#include <stdint.h>

struct pull_offer {
	uint64_t at;		/* offset of the first byte in the stream */
	uint64_t addr, len;	/* in the sender's memory */
	uint64_t got;		/* so many were read, and count */
	uint32_t key;		/* by which the sender's device lets them be read */
	uint32_t epoch;		/* of the cut: that of an earlier one is over */
	uint32_t serial;	/* of a slot's life, from 1 on */
};

struct pull_mem {
	void *mr;		/* NULL: none */
	uint64_t bytes;
	uint32_t lkey, rkey;
};

/* One READ: from where in the sender's memory, to where in ours. */
struct pull_piece {
	uint64_t from, to;
	uint32_t n, lkey, rkey;
	bool last;		/* of those that are waited for: its end is told, by a bell */
};

#endif
