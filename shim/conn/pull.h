/*
 * pull.h - blocks between hosts that the receiver's device reads out of the sender's memory
 * (docs/zerocopy.md, and path_pull of link/path.h).
 *
 * A sender that has offered a block releases its lock and waits. Meanwhile `direct.stuck` keeps all
 * other threads away. Events for the cut machine are put off if they would count bytes that are not
 * known yet.
 *
 * Locks: snd.lock for the sender's half, rcv.lock for the receiver's.
 * Tested: tests/nic/pull.sh; the rules of the words: tests/unit/test_rc.c.
 */
#ifndef RDMASHIM_CONN_PULL_H
#define RDMASHIM_CONN_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "cut/cut.h"
#include "rdma/shm/pull.h"

struct stream;

/* The block that this end offers. */
struct pull {
	struct pull_mem mem;	/* its registration */
	uint64_t at, len;
	uint32_t put_off;	/* events of the machine, by their bits: for when it is over, see
				 * stream_tx_put_off() */
	bool open;		/* it stands */
	bool fenced;		/* nobody reads it any more: FROZEN says how much was */
	bool asked;		/* withdrawn, not answered for yet */
	bool hurry;		/* somebody else waits for its end */
};

/* Offers a block. -EBUSY: it stands, pull_await() is next; 0: it goes by the ring. snd.lock
 * held. */
ssize_t pull_send(struct stream *s, const void *p, size_t n);
/* Until it is settled: bytes that were taken. snd.lock held, and given for a while. */
size_t pull_await(struct stream *s, uint32_t gen);
/* While one stands an event comes for the sender's half. True: it is not to be told now. snd.lock
 * held. */
bool pull_puts_off(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off);
/* The stream leaves its link: nothing more is known of the block. Both locks held. */
void pull_over(struct stream *s);
/* A block that the peer offers, into the first of these. Bytes; 0: it goes by the ring, or there is
 * none; -ESTALE as direct_read(). rcv.lock held, and given for a while. `waits`: the call may. */
ssize_t pull_read(struct stream *s, const struct iovec *iov, int n, bool waits);
/* The receiving half has frozen, at that epoch. rcv.lock held. */
void pull_frozen(struct stream *s, uint32_t epoch);

#endif
