/*
 * learn.h - both initial sequence numbers (ISN) of a TCP connection, out of the header of one
 * packet: a send with a control message (SO_TIMESTAMPING, TX_SCHED) makes the kernel put a copy of
 * it into the socket's error queue. NAT keeps ISNs, and no two connections have the same pair.
 *
 * As long as it lies there polls say ERR, and it may come late, and again when the packet is sent
 * again. So from then on until the socket is closed whoever is told ERR asks learn_true_error().
 * Who empties the queue keeps the header: any thread may. What it means is said by who sent, or by
 * whoever comes later with the same lock (learn_settle()).
 *
 * A program that uses the error queue itself finds there what is its own. Before it asks for that
 * ours is taken out (learn_leave()), and while it does nothing is read there.
 *
 * Lock: of all but learn_true_error() and learn_known() the caller's. Async-signal-safe; errno is
 * kept.
 */
#ifndef RDMASHIM_LEARN_H
#define RDMASHIM_LEARN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LEARN_TRIES 6

enum learn_state { LEARN_NOT, LEARN_SENT, LEARN_AGAIN, LEARN_KNOWN, LEARN_FAILED };

struct learn {
	_Atomic uint8_t state;		/* enum learn_state */
	uint8_t tries;
	_Atomic uint8_t taken;		/* 1: the header is somebody's; 2: it is here */
	bool own_known, peer_seen;	/* by an earlier try; the peer's may be wrong */
	bool spoiled;			/* the packet may not be the first since then */
	uint32_t seq, ack;		/* of the packet: its first byte, what it acknowledges */
	uint32_t before;		/* bytes that were acknowledged when it was sent, and ... */
	uint32_t sent;			/* ... that it has */
	uint32_t received;		/* bytes received by then */
	uint32_t own, peer;		/* the ISNs */
	uint32_t claim;			/* of a check: what own is said to be */
	uint32_t heard, dropped;	/* ... bytes received, packets dropped, as of then */
	uint64_t since_us;		/* ... when it began */
	bool heard_known;
};

/* Bytes of the stream, modulo 2^32: sent for the first time, acknowledged, received. False: it is
 * not established. */
struct learn_counts { uint32_t sent, acked, received; };
bool learn_count(int fd, bool client, struct learn_counts *c);

/* Would the program feel it, which uses the error queue itself? */
bool learn_disturbs(int fd);
/* Sends what there is of `p`, one segment at most, and learns. Bytes sent, or -errno; -ENODATA:
 * nothing was, and it is to be sent as ever: something is unacknowledged. */
ssize_t learn_send(struct learn *l, int fd, const void *p, size_t n, int flags);
/*
 * An end that has nothing to send is told its ISN by the other, and sees whether that is so: for a
 * moment it takes no packet but such that acknowledge all that was sent and nothing else, by a
 * filter, and if bytes come it is. Where it is not so packets are lost, and come again. The program
 * must send nothing meanwhile, no FIN either. Its end: learn_check_end().
 */
bool learn_check_begin(struct learn *l, int fd, uint32_t claim, uint64_t now);
/* 1: it is so; 0: not known yet; -1: it is not; -ETIMEDOUT: nothing came. */
int learn_check_look(struct learn *l, int fd, uint64_t now);
void learn_check_end(int fd);
/* A header that has come late. True: nothing more comes of this try, another one may be made, or
 * all is known or has failed. */
bool learn_settle(struct learn *l, int fd);
/* The packet may be sent again, and its header come again. */
bool learn_may_come(struct learn *l, int fd, bool client);
/* The program is about to use the error queue: nothing of ours is in it any more, and nobody of us
 * reads there from here on. Not while learn_may_come(). */
void learn_leave(struct learn *l, int fd);
/* The kernel has said ERR of the socket: is it the connection's error? Any thread. */
bool learn_true_error(struct learn *l, int fd);
static inline bool learn_known(const struct learn *l)
{
	return atomic_load(&l->state) == LEARN_KNOWN;
}

#endif
