/*
 * link.h - two processes with the library that have found each other: one control socket (AF_UNIX
 * SOCK_SEQPACKET), one segment, many streams.
 *
 * Life: search.c makes a link (background thread); it ends when the control socket ends. The struct
 * is type-stable. The segment is unmapped only when no reader is inside link_read_enter() and no
 * stream is attached.
 *
 * Wire format: struct ctl_msg, of fixed size, in host byte order (both ends run on one host). Each
 * SEQPACKET record is one, with at most one fd beside it (SCM_RIGHTS). Any other size, an unknown
 * type, a slot out of range, or an fd where none belongs ends the link. Descriptors are taken only
 * from those who may pass them (rights_taken_from()): the kernel has named the sender before a
 * record is read.
 *
 *   HELLO       connector -> acceptor  the first record on a new control socket. Its type, its
 *                                      version and its build (in the tuple's place) stay where they
 *                                      are in all versions, and so do its 64 bytes. A HELLO of
 *                                      another version is answered by HELLO, and the end
 *   WELCOME     acceptor -> connector  fd = segment
 *   BELL        both                   fd = timerfd, index = bell number
 *   BIND        both                   fd = its proof: "the slot is for the connection `tuple`"
 *   BOUND       both                   fd = its proof: "yes, that one is mine"
 *   NOT_MINE    both                   index = enum reason
 *   UNBIND      both                   this half will not touch the slot again
 *   CUT         both                   index = enum cut_msg, epoch, off
 *
 * A proof is an O_PATH descriptor of the TCP socket (identity.h).
 *
 * Between network namespaces (docs/namespaces.md) the acceptor speaks first:
 *
 *   PROOF       acceptor -> connector  tuple: laddr, paddr = mac. Nothing is taken before it
 *   PROOF       connector -> acceptor  the same, just before HELLO
 *   DIAG        both, after WELCOME    fd = a sock_diag socket
 *   BIND        both                   off = both ISNs, the client's in the upper half; index,
 *                                      epoch = bytes acknowledged, received
 *   BOUND       both                   off = 1 and, below it, the SYN's timestamp; the same counts
 *
 * Between hosts the control socket is TCP. Each host has its own segment, and a queue pair joins
 * the two (link_net.c, rdma/verbs/rc.h). No fd comes with a record, and these differ:
 *
 *   HELLO       connector -> acceptor  index = slots, off = ring size, epoch = LINK_PULLS, ...
 *   WELCOME     acceptor -> connector  index = 0 or enum reason; epoch = LINK_PULLS if both can;
 *                                      tuple: laddr, lport = where to connect, pport = the most
 *                                      bytes of a packet or 0, paddr = the token
 *   BIND, BOUND both                   epoch = life of the slot, index and off = key and address of
 *                                      the landing ring
 *   BOUND       both                   tuple: pport = 1 and paddr = the timestamp of the
 *                                      connection's SYN, or pport = 0
 *   MORE        both                   what I send on the slot could use a larger landing ring
 *   RING        both                   here is one: index and off = its key and address, epoch =
 *                                      its size
 *   DEVICE      both                   I have bytes in device memory for the slot: where do they go
 *                                      in yours?
 *   DEVICE_RING both                   here: index and off = key and address of a ring in device
 *                                      memory, epoch = its size; size 0: nowhere any more
 *   DEAD        both                   the queue pair no longer exists: everything falls back
 *
 * Locks: out_lock (a leaf) guards the queue of records that the kernel did not take at once. slots
 * and streams change in the background thread only; others read them atomically.
 */
#ifndef RDMASHIM_LINK_H
#define RDMASHIM_LINK_H

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bell.h"
#include "base/lock.h"
#include "base/sock.h"
#include "link/peer_rights.h"
#include "policy/stat.h"
#include "rdma/shm/segment.h"

struct path;
struct path_wire;
struct stream;
struct rc;
struct cm;

enum ctl_type { CTL_HELLO = 1, CTL_WELCOME, CTL_BELL, CTL_BIND, CTL_BOUND, CTL_NOT_MINE, CTL_UNBIND,
		CTL_CUT, CTL_DEAD, CTL_MORE, CTL_RING, CTL_DEVICE, CTL_DEVICE_RING,
		CTL_PROOF, CTL_DIAG, CTL_TYPES };

#define CTL_VERSION 6	/* raise it with SEGMENT_VERSION, too: HELLO tells this one */
/* of ctl_recv() and link_recv(): HELLO of another version */
#define CTL_OTHER   (-EPROTONOSUPPORT)

struct ctl_msg {
	uint16_t type, version;
	uint32_t slot;
	uint32_t index;
	uint32_t epoch;
	uint64_t off;
	struct ctl_tuple tuple;
};
_Static_assert(sizeof(struct ctl_msg) == 64, "wire layout: bump CTL_VERSION when it changes");

/* What an end can do beyond what every end can. An end that does not know a bit ignores it. */
#define LINK_PULLS 1		/* blocks that are read out of the sender's memory: path_pull */

enum link_state { LINK_FREE, LINK_HELLO, LINK_UP, LINK_DEAD };

#define LINK_MAX  1024

struct link {
	_Atomic int state;		/* enum link_state */
	int ctl;			/* control socket */
	uint32_t index;			/* in links[] */
	uid_t peer_uid;
	pid_t peer_pid;
	int peer_fd;			/* a pidfd of the very process, or -1 */
	struct lock look_lock;		/* a leaf; guards what peer_memory.c knows of its rights: */
	struct peer_rights rights;
	uint64_t looked_ns;		/* when that was; 0: not yet */
	bool looked_well;
	uint64_t peer_start;		/* when it began (process_start()): the number may be
					 * another process's later */
	struct segment segment;
	uint32_t nstreams;		/* attached */
	uint32_t next_slot;		/* between hosts: rotating start for the search of a free
					 * slot */
	uint64_t since_us;
	uint64_t left_us;		/* when a stream left a slot of ours last; 0: nothing is
					 * kept of those */
	_Atomic bool proven;		/* a stream was bound: the peer holds the other end of
					 * one of ours */
	_Atomic int peer_bell[BELL_MAX];	/* duplicates of the peer's timerfds, -1 = not
						 * known */
	uint32_t peer_bells;		/* so many are known */
	struct stream *_Atomic *streams;	/* [segment.slots], mmap'd */
	uint8_t *slot_used;		/* [segment.slots] */
	struct lock out_lock;
	uint32_t out_head, out_tail;
	struct ctl_msg *outq;		/* made on first need */
	_Atomic bool out_waiting;
	_Atomic bool vain;		/* a call that must not block waited for the peer in vain */
	_Atomic uint32_t reading;	/* blocks that our device reads out of the peer's
					 * snapshots and that the peer was not told of, of all
					 * streams */
	_Atomic bool no_direct;		/* none of our blocks is offered to be read out of our
					 * memory: another user's, or it refused one */
	_Atomic bool no_read;		/* none of the peer's is read: another user's, not
					 * permitted, or not the process that it was */
	_Atomic uint32_t withdrawn;	/* blocks that the peer began to read and did not finish */
	_Atomic bool distrusted;	/* the peer's user may not pass us descriptors any more:
					 * link_trusts() */
	uint64_t distrusted_us;		/* since when */
	bool bells_untold;		/* a BELL found the socket full */
	const struct path *path;	/* by which it goes; set with it */
	const struct path_wire *wire;	/* path->wire while that is there: set before LINK_UP,
					 * until link_reap(); or NULL */
	/* what only a wire, or its path, needs */
	struct rc *rc;
	struct cm *cm;
	struct stat_link *stat;		/* what rdmastat shows of it */
	_Atomic bool bg_waits;		/* the background thread sleeps for a credit of one of
					 * its streams */
	_Atomic uint64_t direct;	/* bells whose threads sleep on the channel themselves:
					 * the background thread need not */
	struct sockaddr_storage host;	/* the peer's address, normal, port 0; on one host: of
					 * the connection that we made it for, or nothing */
	_Atomic bool no_device;		/* the RDMA device cannot reach the GPUs' memory */
	_Atomic bool path_dead;		/* the queue pair is */
	bool path_told;
	bool pulls;			/* LINK_PULLS; written before LINK_UP, as is this: */
	uint64_t pull_least;		/* from which size on that costs less than copying */
	uint64_t look_us;		/* when to look next whether the queue pair is stuck; 0:
					 * it is idle */
	uint8_t why;			/* enum reason of its end */
	bool hung_up;			/* the peer read our HELLO and said nothing */
	uint16_t other;			/* REASON_VERSION: the peer's */
	uint32_t caller;		/* on one host: which stream made it, index + 1; 0: none
					 * of ours */
	/* between network namespaces of one host, discovery/across.c */
	bool across;
	bool greeted;			/* the other end has proven that it has the key */
	int diag, pidfd;		/* asks its kernel of sockets, names its process; or -1 */
	uint64_t process;		/* inode of that */
	uint32_t isn[2];		/* of the connection that it was made for */
	uint16_t life;			/* of slots, counted by us when we ask */
	uint32_t in_len, out_sent;	/* bytes of a record that has come, or gone, in part */
	struct ctl_msg in;
};

extern struct link links[LINK_MAX];
extern _Atomic uint32_t links_top;	/* one past the highest that was ever used */

/* A number that no other link of this process ever has. */
static inline uint64_t link_id(const struct link *l) { return l->since_us * LINK_MAX + l->index; }

/* ---- any thread ---- */
/* Sends or queues a record without an fd. False: the link is broken (the background thread will
 * see). */
bool link_send(struct link *l, const struct ctl_msg *m);
void link_send_cut(struct link *l, uint32_t slot, unsigned msg, uint32_t epoch, uint64_t off);
/* Drains the dirty bits of all links: every stream named there gets attention (struct link_user).
 * Returns true if anything was found. *taking, if not NULL, is held while a bit may have been taken
 * whose stream has not had attention yet; it is not taken if no bit is set. Only inside
 * link_read_enter/leave. */
bool links_drain(struct lock *taking);
void link_read_enter(void);
void link_read_leave(void);
/* What is called in the code that uses links, or waits for one. Set once, before the first link. */
struct link_user {
	void (*attention)(struct stream *s);	/* the peer says that something is new for it.
						 * Any thread, within link_read_enter() */
	/* The others: background thread. */
	void (*look)(struct stream *s);		/* it may have to leave the link */
	void (*lost)(struct stream *s, enum reason r);	/* the link has ended */
	void (*path_dead)(struct stream *s);	/* the link's queue pair is no more */
	/* a link to another host is up, or will not be */
	void (*settled)(struct link *l, enum reason why);
};
extern const struct link_user *link_user;
void link_serve(const struct link_user *u);
extern const struct bell_events link_bell_events;	/* of new ones, and of those who sleep,
							 * all links hear */
/* Rings the peer's bells in `mask`, as given by segment_notify(). */
void link_ring_peer(struct link *l, uint64_t mask);

/* ---- background thread ---- */
/* NULL: there are as many as there can be, or may be of that user */
struct link *link_new(const struct path *path, int ctl, uid_t uid, pid_t pid);
/* takes it over, before link_up(). 0 or -ENOMEM: it stays the caller's */
int link_has_segment(struct link *l, const struct segment *a);
/* Both; NULL also without memory, and the segment and the socket stay the caller's. */
struct link *link_new_with(const struct path *path, int ctl, const struct segment *a, uid_t uid,
			   pid_t pid);
void link_up(struct link *l);			/* after the handshake: arms sleepers */
void link_proven(struct link *l);		/* a stream was bound: sends our bells */
void link_flush(struct link *l);
/* it had one, for which this process has no number left, or it may not pass us any */
#define CTL_FD_LOST (-2)
/* Receives one record; *fd = -1, CTL_FD_LOST, or a received fd (caller: rights_done()). Beside a
 * record that carries none it is closed apart, and -EPROTO. 1 record, 0 would block, -errno,
 * -EPIPE at the end. */
int ctl_recv(int sock, bool takes_fd, struct ctl_msg *m, int *fd);
int ctl_send_fd(int sock, const struct ctl_msg *m, int fd);	/* 0 or -errno */
/* May the peer's user still pass us descriptors? It was let in, but the policy, or our own user,
 * may have changed. If not, that is final: nothing is passed any more in either direction, and the
 * link's streams fall back. The link ends after that, or when the peer has not released them for as
 * long as an exec would wait. */
bool link_trusts(struct link *l);
void links_look_at_users(void);		/* the same of all, when the policy has changed */
/* May processes of that user have one more link, or bell? Those of another user than our own and
 * root get as much of our links and descriptors as they leave to others, so that they cannot
 * keep them out. */
bool link_user_has_room(uid_t uid);
uint64_t link_distrust_work(struct link *l);	/* when to come again, us; UINT64_MAX: when asked */
bool link_fits(const struct segment *a);	/* RLIMIT_AS leaves room for a segment like that,
						 * besides those that there are */
/* segment_create() as the policy says; for a peer with whom there are links, a larger one than
 * the last. */
int link_segment(struct segment *a, pid_t peer, int *ret_fd);
int link_slot_alloc(struct link *l);		/* from our half, or -ENOSPC */
void link_streams(struct link *l, int more);	/* so many have been attached, or detached */
bool link_slot_ours(const struct link *l, uint32_t slot);	/* one that we take, not the peer */
bool link_has_room(const struct link *l);	/* it would get one */
void link_slot_free(struct link *l, uint32_t slot);
/* Both ends have left one of ours: its memory is given back, but for a little that is kept for
 * the next stream. */
void link_slot_left(struct link *l, uint32_t slot);
bool links_rest(uint64_t now, uint64_t idle);	/* ... for so long. True: come again. Background
						 * thread */
/* The other end of the control socket is gone: known already, or to be seen right now. Takes
 * out_lock. */
bool link_ended(struct link *l);
bool link_peer_ending(const struct link *l);	/* its process is on its way through exit */
void link_kill(struct link *l, int reason);	/* marks dead, tells the streams */
bool link_reap(void);				/* unmaps dead links that nobody looks into;
						 * true: one is left, try again soon */
void links_after_fork(void);
/* One record of the link, as ctl_recv(). */
int link_recv(struct link *l, struct ctl_msg *m, int *fd);

/* ---- link_net.c, background thread ---- */
/* As in path.h. */
int link_net_hello(int fd, const struct sockaddr_storage *host, uint32_t *ret_index);
int link_net_welcome(int fd, const struct sockaddr_storage *host, const struct ctl_msg *hello);
void link_net_welcomed(struct link *l, const struct ctl_msg *m, int fd);
void link_net_events(uint32_t what);		/* of connections, or of devices */
int link_net_available(const struct sockaddr *local);	/* 0, or the reason why this host has no
							 * RDMA */
void link_net_after_fork(void);

#endif
