/*
 * path.h - what a path is: a way by which the bytes of a link get to its other end.
 *
 * A path is a row of policy/path.def, which has its name, and a file of this folder that fills in a
 * struct path; paths[] joins the two. TCP has a row, too, for streams without a link. Code that
 * uses a link asks its path what it can do, never which one it is.
 *
 * All paths have the same segment (rdma/shm/segment.h). A sender writes into a ring of it, and a
 * receiver reads from one. Cursors, machine, waits and rewinds are the same. Paths differ in this:
 *
 *   far      as its row says, the ends are on two hosts. They find each other in another way, the
 *            control connection is TCP, and no descriptor can come beside a record
 *   registered  a device has the pages of its rings. All pages are made at the start, count as that
 *            device's, and are not given back (conn/stream_idle.c)
 *   wire     NULL: both ends have one segment, so the other end sees what is written there.
 *            Otherwise each end has its own, and the wire brings what is new from one to the other.
 *            Then a segment lasts no longer than the process that wrote it, and nothing else of the
 *            other's segment can be seen
 *   pull     with a wire: a large block can be read out of the sender's memory; NULL: it cannot
 *   device   with a wire: bytes can go from device memory to device memory; NULL: they cannot
 *
 * Cost: link.wire is a copy of path->wire. The calls that move bytes compare it with NULL, and then
 * use the shared segment inline. For shared memory they call no function of a path.
 *
 * Contracts. For "sender" and "receiver" the stream's snd.lock or rcv.lock is held, or nobody else
 * can have the slot. Cursors are stream offsets, sizes are bytes, times are microseconds. Nothing
 * waits. Errors are -errno. A function that returns none fails quietly once the wire is dead:
 * `channel` returns -1 then, and the background thread calls link_user->path_dead. Callers are in
 * link_read_enter() or have a stream attached.
 */
#ifndef RDMASHIM_PATH_H
#define RDMASHIM_PATH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "policy/policy.h"
#include "policy/stat.h"
#include "rdma/shm/pull.h"

struct ctl_msg;
struct link;

struct path_wire {
	/* ---- slots: background thread ---- */
	/* A new stream on the slot: what is on the way for others of it is dropped from here on.
	 * `life` tells them apart. Gives what the peer must know, for BIND or BOUND. 0 or
	 * -errno. */
	int (*bind)(struct link *l, uint32_t slot, uint16_t life, uint64_t *ret_addr,
		    uint32_t *ret_key);
	/* The peer's BIND or BOUND has come, with that of its. */
	void (*peer)(struct link *l, uint32_t slot, uint64_t addr, uint32_t key);
	void (*unbind)(struct link *l, uint32_t slot);	/* our stream has left it */
	void (*left)(struct link *l, uint32_t slot);	/* and the peer's, too */

	/* ---- bytes ---- */
	/* Sender: what is new in its ring's header (wr, final, epoch, cut) goes to the peer. */
	void (*publish)(struct link *l, uint32_t slot);
	/* Receiver: rd has moved. Told when it is worth it. */
	void (*credit)(struct link *l, uint32_t slot);
	/* Takes in what has come, for all slots, and rings our bells. Any thread; true: an
	 * event. */
	bool (*poll)(struct link *l);

	/* ---- sleep ---- */
	/* The next event makes `channel` readable. `own`: for a thread that sleeps on it itself, so
	 * that no other thread need be woken. Then poll once more before sleeping. Any thread. */
	void (*arm)(struct link *l, bool own);
	int (*channel)(const struct link *l);	/* a descriptor; -1: it is dead, or not there yet */
	/* The channel was readable: takes the event, polls, and arms again for threads that still
	 * need it. Any thread, not to be cancelled here. */
	void (*woken)(struct link *l);
	/* The background thread does not watch it any more */
	void (*unwatched)(struct link *l);

	/* ---- room ---- */
	/* Of a ring of `size` bytes a sender must use no less, whatever TCP would take: what the
	 * receiver has consumed and not told yet is less than half of that. */
	uint64_t (*least)(const struct link *l, uint64_t size);
	/* The peer asks for a large landing ring for what it sends on the slot. Bytes, where they
	 * are, and what it must know; 0: it gets none; -ENOMEM: because memory is short.
	 * Background thread. */
	int64_t (*large_land)(struct link *l, uint32_t slot, const uint8_t **ret_ring,
			      uint64_t *ret_addr, uint32_t *ret_key);
	/* It has given us one. How much of that, and of *ret_ring, we shall use; 0: nothing;
	 * -ENOMEM: because memory is short; -EPROTO: that is none. Background thread. */
	int64_t (*large_peer)(struct link *l, uint32_t slot, uint64_t size, uint64_t addr,
			      uint32_t key, uint8_t **ret_ring);
	/* A larger ring to send from is left: worth asking the peer for one (CTL_MORE). Roughly */
	bool (*large_left)(const struct link *l);
	/* Sender: from now on what is published lies in `size` bytes of the slot's large ring, a
	 * power of two above the small one's. False: the peer has to be told something first. */
	bool (*enlarge)(struct link *l, uint32_t slot, uint64_t size);

	/* ---- life: background thread, but for kill ---- */
	/* A wire that is dead is told to the streams, one that is stuck is given up; and the
	 * link ends when nobody needs it any more. When to come again; UINT64_MAX: not until
	 * loop_kick(). */
	uint64_t (*work)(struct link *l);
	void (*peer_says_dead)(struct link *l);
	/* nothing is brought any more, as if it had died; any thread */
	void (*kill)(struct link *l);
	void (*ended)(struct link *l);	/* the link has: nothing is watched nor brought any more */
	/* It may leave its device before the link ends; then release(), when no reader is
	 * inside. */
	bool (*may_release)(const struct link *l);
	void (*release)(struct link *l);
	void (*close)(struct link *l);	/* the end of all of it. Nobody is inside any more */
	void (*log)(const struct link *l);	/* what went over it */

	/* ---- of the path, not of a link ---- */
	/* What it watches as LOOP_PATH, by path_watched(kind, what), is readable. Background
	 * thread */
	void (*event)(uint32_t what);
	/* There may have been a link by it in this process. Any thread */
	bool (*ever)(void);
	void (*forked)(void);		/* in the child: its links and devices are the parent's */
};

/* Device memory of both ends. The bytes of a run lie at their offsets in a landing ring there. */
struct path_device {
	/* The wire's device may use that memory until the link ends: by `dmabuf`, or with -1 as any
	 * memory. The same again gives the same key. 0 or -errno. Background thread for landing
	 * rings, for others any that holds a direction's lock. */
	int (*reg)(struct link *l, uint64_t addr, uint64_t size, int dmabuf, bool landing,
		   uint32_t *ret_key);
	/* It may already, to send from. Any thread. */
	bool (*known)(struct link *l, uint64_t addr, uint64_t size, uint32_t *ret_key);
	/* The peer may send into a landing ring of so many bytes, a power of two. Background
	 * thread. */
	void (*land)(struct link *l, uint32_t slot, uint64_t size);
	/* The peer has one; size 0: no more. 0 or -EPROTO: that is none. Background thread. */
	int (*peer)(struct link *l, uint32_t slot, uint64_t size, uint64_t addr, uint32_t key);
	uint64_t (*size)(const struct link *l, uint32_t slot);	/* of the peer's, or 0. Sender */
	/* Sender: the next n bytes of the stream are at `addr` in memory of `key`, and stay there
	 * until they are consumed. False: not now. Else ring_tx_publish() must follow. */
	bool (*publish)(struct link *l, uint32_t slot, uint64_t addr, uint32_t key, uint64_t n,
			uint64_t *ret_seq);
	/* What was published as `seq` is read no more. Any thread; wire->poll() brings it on. */
	bool (*done)(struct link *l, uint64_t seq);
	const char *(*name)(const struct link *l);	/* of the wire's device */
};

/* Blocks that the receiver reads out of the sender's memory: docs/zerocopy.md. What each does, and
 * who may call it: rc.h. */
struct path_pull {
	bool (*can)(const struct link *l);	/* now */
	uint64_t (*least)(const struct link *l);	/* bytes that are worth it */
	int (*reg)(struct link *l, uint64_t addr, uint64_t n, bool landing, struct pull_mem *ret);
	void (*dereg)(struct link *l, struct pull_mem *m);
	/* sender */
	bool (*offer)(struct link *l, uint32_t slot, struct pull_offer *o);
	void (*withdraw)(struct link *l, uint32_t slot);
	void (*settled)(struct link *l, uint32_t slot, uint64_t wr);
	uint32_t (*heard)(const struct link *l, uint32_t slot);
	/* receiver */
	bool (*begin)(struct link *l, uint32_t slot, uint32_t epoch, uint64_t rd,
		      struct pull_offer *ret);
	void (*end)(struct link *l, uint32_t slot, uint32_t serial, uint64_t n, bool stop);
	void (*frozen)(struct link *l, uint32_t slot, uint32_t epoch);
	void (*alive)(struct link *l, uint32_t slot);
	int (*read)(struct link *l, uint32_t slot, const struct pull_piece *x, uint64_t *ret_seq);
	int (*done)(const struct link *l, uint64_t seq);
};

struct path {
	enum path_kind kind;
	bool far, registered;
	const struct path_wire *wire;
	const struct path_device *device;
	const struct path_pull *pull;

	/* ---- how a link is made: background thread ---- */
	/* Far. 0, or the reason why this host has none of it for that address. */
	int (*available)(const struct sockaddr *local);
	/* Far: a control connection that is proven. The connector says HELLO, the acceptor has got
	 * it. 0 or -errno (fd stays open). */
	int (*hello)(int fd, const struct sockaddr_storage *host, uint32_t *ret_index);
	int (*welcome)(int fd, const struct sockaddr_storage *host, const struct ctl_msg *hello);
	/* On one host: the acceptor has got HELLO. A link in LINK_HELLO with all that it needs, and
	 * in *ret_fd what goes with WELCOME, the caller's. NULL: *why. */
	struct link *(*open)(int ctl, uid_t uid, pid_t pid, int *ret_fd, enum reason *why);
	/* The connector has got WELCOME, on one host with that descriptor, the caller's: the link
	 * is up, will be, or is killed. */
	void (*welcomed)(struct link *l, const struct ctl_msg *m, int fd);
};

#define PATH(NAME, name, far, unasked, doc) extern const struct path path_##name;
#include "policy/path.def"
#undef PATH
extern const struct path *const paths[PATH_KINDS];

/* the first that is far: a call does not say which */
const struct path *path_between_hosts(void);
static inline uint32_t path_watched(enum path_kind kind, uint32_t what)
{
	return what * PATH_KINDS + (uint32_t)kind;
}
void path_event(uint32_t watched);	/* loop_duties.event[LOOP_PATH] */
bool paths_ever(void);			/* something may have gone by a wire. Any thread */
void paths_after_fork(void);		/* before links_after_fork() */

#endif
