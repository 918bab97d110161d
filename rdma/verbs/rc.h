/*
 * rc.h - carries a link's segment between two hosts over one RC queue pair.
 *
 * Each host has a segment of its own, laid out as on one host (segment.h). The half of a stream
 * that writes works on its local ring as if the reader shared it; rc_publish() brings what is
 * new to the peer's segment: bytes into the peer's landing ring, then the cursor. The half that
 * reads works on the landing ring; rc_credit() brings its cursor back. So the ring code, the cut
 * machine and the waits know nothing of the wire, and the bytes that a rewind sends again lie in
 * the sender's own memory.
 *
 * Wire. Bytes above RC_SMALL go by RDMA WRITE into the landing ring, then a SEND of a struct
 * rc_rec tells of them; fewer travel in the record. Both are ordered on the queue pair, and
 * neither needs immediate data, which iWARP has not. A record names slot and life (a number
 * given at each BIND), so that one that is late for an earlier stream of the slot is recognised.
 * Its cursors are absolute stream offsets and only move forward here; whether they are credible
 * is checked where they are used (ring.h).
 *
 * Flow control. Every record takes a receive buffer at the peer; `acked` in each says how many
 * were taken up, and a sender stays below RC_RECVS. What cannot be posted now (no buffer, send
 * queue full, or enough small ones under way to be worth collecting) is remembered per slot and
 * goes with a later completion. Small ones of a stream that come faster than the peer takes them
 * up go together when it has taken up the last one: it could not have read them before.
 *
 * Large rings. A ring of a link is small, since each one is registered. A sender whose ring
 * keeps it waiting asks for a larger one (shim/link/link.h, MORE): the receiver takes one of its
 * link's few large landing rings for the slot, rc_large_land(), the sender one of its own to
 * write from, rc_large_peer(), and changes over when the peer was told all that lies in the
 * small ring, rc_enlarge(). From then on each record says so. A large ring stays registered as
 * long as the link lives, and serves another slot when both ends have left this one: what the
 * device still does for the old one comes, on one queue pair, before anything of the new.
 *
 * Device memory. Bytes that the sender has in device memory go from there by RDMA WRITE into
 * device memory of the receiver's: a ring that it has registered for this slot
 * (shim/link/link.h, DEVICE), where a byte lies at its stream offset as in the other rings. The
 * record has RC_DEVICE and no payload, and tells of one run of such bytes, from what was told
 * before up to its wr. Nothing follows that lies elsewhere before the receiver has told that it
 * has consumed the run, so it tells of that at once. The sender's device memory can be read by
 * its own device only, so what a peer is given is its landing ring and nothing else.
 *
 * Pull. A large block may stay where it is: the sender offers it, by a word, and the receiver reads
 * it by RDMA READ into the program's buffer, and says how much of it (rc_pull.c).
 *
 * Round-trip time. A completion on RC is the acknowledgement of the peer's device: of the first
 * few small records that go out while nothing else is on the way, and of one in 1024 later, the
 * time from posting to the completion's being seen is taken, and the shortest of the last 8 to
 * 16 is told. It is the network's and both devices', and never too short; of a thread that
 * sleeps it contains the waking. No message is sent for it.
 *
 * A queue pair that is stuck. RC reports a peer that it cannot reach, by an error, after some
 * retries; a driver or a device may fail to. While work requests are under way somebody calls
 * rc_look() from time to time: what has no completion the first time is followed by a small
 * record that must have one, and when RC_LOOKS looks in a row have found none, the queue pair is
 * taken for dead. Counted are looks, not time: while the process is stopped, there are none.
 *
 * Locks: `post` (send queue, what was told to the peer), `poll` (completion queue, handling
 * records), order poll -> post. Callers are in a critical section (shim/base/lock.h) and may
 * hold a direction's lock; nothing here takes one. Everything fails quietly once the queue pair
 * is dead: rc_dead() tells, and the `died` callback was called.
 */
#ifndef RDMASHIM_RC_H
#define RDMASHIM_RC_H

#include <stddef.h>

#include "rdma/shm/pull.h"
#include "rdma/shm/segment.h"
#include "rdma/verbs/verbs.h"

#define RC_REC_MAX   512		/* bytes of a record with its payload */
#define RC_RECVS     256		/* receive buffers of a link */
#define RC_SENDS     256		/* send queue, work requests */

/* Wire, little-endian (the handshake of a link refuses other byte orders). */
struct rc_rec {
	uint16_t slot;		/* RC_NO_SLOT: only `acked` */
	uint16_t life;		/* low bits of the slot's life */
	uint16_t len;		/* payload bytes after this header: they end at wr */
	uint16_t flags;		/* RC_ASKS, ... */
	uint32_t acked;		/* records taken up by the sender of this, modulo 2^32 */
	uint32_t large;		/* bytes of the slot's large ring that its sender uses, 0: it is
				 * the small one */
	uint64_t wr;		/* bytes published in the slot's ring */
	uint64_t rd;		/* bytes consumed from the other direction's ring */
	uint64_t final;		/* as in the ring's header */
};
_Static_assert(sizeof(struct rc_rec) == 40, "wire layout: bump NET_VERSION when it changes");

/* With RC_SHORT it is 24 bytes: `large` is what it was before, `rd` has its low half in the
 * place of `large`, and `final` is not known. That most records are, and so one of 64 bytes is
 * sent from the work request by devices that take 96 bytes there. */
#define RC_SHORT_BYTES 24
_Static_assert(offsetof(struct rc_rec, rd) == RC_SHORT_BYTES,
	       "wire layout: bump NET_VERSION when it changes");

#define RC_NO_SLOT 0xffff	/* every other record is solicited: it wakes who sleeps */
/* the sender of this collects until it is acknowledged: say so at once */
#define RC_ASKS    1
#define RC_DEVICE  2		/* the bytes lie in the slot's ring of device memory */
#define RC_SHORT   4
/* its payload is a word about a block that is read, see rc_pull.c. Only where both ends said that
 * they know them */
#define RC_OFFER    8
#define RC_WITHDRAW 16
#define RC_TAKEN    32
#define RC_WORDS    (RC_OFFER | RC_WITHDRAW | RC_TAKEN)
#define RC_SMALL   (RC_REC_MAX - sizeof(struct rc_rec))

/* Where the bytes of a direction lie. */
struct rc_ring {
	uint8_t *buf;
	uint64_t size;
	struct ibv_mr *mr;
};

/* A receiver tells that it has consumed so much of a ring of `size` at once: what it owes is
 * always less. A sender must not use less than twice that, or it could wait for what is never
 * told. */
static inline uint64_t rc_credit_step(uint64_t size, uint64_t small)
{
	return size / 16 > small / 4 ? size / 16 : small / 4;
}

#define RC_READS      16		/* READs of a link under way */
#define RC_PULL_MOST  (1ull << 30)	/* bytes of a block that is offered */
/* A slot's blocks, one for each direction; `post`. */
struct rc_pull {
	struct pull_offer out, in;
	uint32_t floor;		/* offers of an earlier epoch are over */
	uint32_t late;		/* serial of one that was settled before TAKEN came; 0: none */
	uint32_t heard;		/* records of the peer's about the slot, roughly */
	uint8_t say;		/* words to send */
	bool open, answered;	/* out: it stands; TAKEN has come */
	bool known, taking, withdrawn;	/* in: it stands, is being read, is to end with that */
};

#define RC_LARGE_MOST 64	/* large rings of a link, for each direction */

struct rc_slot {
	uint16_t life;
	bool bound;		/* set up here: records of `life` are taken */
	bool linked;		/* the peer's landing ring is known */
	bool pending;		/* something could not be posted */
	bool credit;		/* rd is to be told */
	uint64_t owes_from;	/* when there was first something to tell that was not worth it,
				 * ns; 0: there is nothing */
	uint64_t final, final_told;	/* the ring's FINAL, and what of it was told */
	uint64_t epoch;		/* of the cut that want_wr belongs to */
	uint64_t want_wr, told_wr, told_rd;
	uint64_t small, fence;	/* numbers of the last record with payload, and of the one before
				 * this epoch */
	uint64_t last;		/* number of its last record */
	uint8_t flow;		/* publications in a row that found their forerunner not taken up
				 * yet */
	bool asked;		/* its last record bears RC_ASKS */
	uint64_t raddr;		/* peer's landing ring */
	uint32_t rkey;
	struct rc_ring tx, rx;	/* our ring, our landing ring */
	struct ibv_mr *small_tx, *small_rx;	/* of the small ones; made with the slot's first
						 * life */
	struct rc_ring large_tx, large_rx;	/* size 0: none */
	uint64_t large_raddr;
	uint32_t large_rkey;
	uint32_t large, large_told;	/* bytes of the large ring that we send by, and that a
					 * record has told */
	uint32_t large_got;	/* that the peer sends by */
	uint64_t dev_rx, dev_tx;	/* bytes of our landing ring in device memory, and of the
					 * peer's; 0: there is none */
	uint64_t dev_raddr;
	uint32_t dev_rkey;
	struct rc_pull pull;
};

struct rc_conf {
	void (*ring)(void *arg, uint64_t bells);	/* wake these local bells */
	void (*died)(void *arg);			/* the queue pair is dead; any thread,
							 * locks held */
	void (*busy)(void *arg);		/* from now on, until it says RC_IDLE, somebody
						 * must call rc_look() now and then; any thread,
						 * locks held */
	void (*watch)(void *arg);		/* from now on, until rc_unwatched(), somebody
						 * must hear rc_fd(); any thread, locks held */
	void *arg;
	_Atomic uint32_t *rtt;	/* NULL, or where rc keeps the round-trip time in ns, 0 before
				 * the first */
	uint64_t large_size;	/* bytes of a large ring, a power of two above the segment's ring
				 * size; 0: there are none */
	uint64_t budget;	/* bytes that all links together may have registered, half of them
				 * in large rings; 0: no bound */
	uint32_t large_most;	/* how many for each direction, RC_LARGE_MOST at most */
};

/* What a link cost, since it was made. */
struct rc_counts {
	uint64_t wrs, records;		/* work requests posted, and how many of them were
					 * records */
	uint64_t polls, completions;	/* of which an empty poll has none */
	uint64_t arms, events;		/* completion events asked for, and taken */
};

struct rc;

/* Memory of a link; the segment stays the caller's and must outlive it. NULL: no memory. */
struct rc *rc_new(struct segment *a, const struct rc_conf *conf);
/* Protection domain, queues and receive buffers on the device of `id`, then its queue pair. 0 or
 * -errno. Background thread, before rdma_connect or rdma_accept. */
int rc_open(struct rc *rc, struct rdma_cm_id *id);
/* What keeps the device from being removed: queue pair, completion queue, registrations. rc is
 * dead from now on and harmless to call. Nobody may be inside that has not seen rc_dead();
 * rc_fd() is closed. */
void rc_release(struct rc *rc);
void rc_close(struct rc *rc);	/* all of rc_open() and rc_new(); nobody may be inside any more */

/* A new stream on the slot: the slot's records of other lives are dropped from here on. Gives
 * what the peer must know. 0 or -errno. Background thread. */
int rc_slot_bind(struct rc *rc, uint32_t slot, uint16_t life, uint64_t *ret_addr,
		 uint32_t *ret_rkey);
void rc_slot_peer(struct rc *rc, uint32_t slot, uint64_t addr, uint32_t rkey);
void rc_slot_unbind(struct rc *rc, uint32_t slot);
void rc_slot_left(struct rc *rc, uint32_t slot);	/* the peer has left it, too: its large
							 * rings may serve another */

/* The peer asks for a large landing ring for what it sends on the slot, the first time in this
 * life. Bytes, or 0: it gets none; -ENOMEM: for want of memory that may be registered. Background
 * thread. */
int64_t rc_large_land(struct rc *rc, uint32_t slot, const uint8_t **ret_ring, uint64_t *ret_addr,
		      uint32_t *ret_rkey);
/* The peer has given us one. How much of it, and of *ret_ring, we shall use; 0: nothing; -ENOMEM:
 * nothing, for that want; -EPROTO: that is no such ring. Background thread. */
int64_t rc_large_peer(struct rc *rc, uint32_t slot, uint64_t size, uint64_t addr, uint32_t rkey,
		      uint8_t **ret_ring);
bool rc_large_left(const struct rc *rc);	/* there is one to send from: worth asking the
						 * peer. Roughly; any thread */
/* From now on what is published lies in `size` bytes of that ring, a power of two above the
 * small one's. False: the peer has to be told of something else first. Sender, its direction's
 * lock held. */
bool rc_enlarge(struct rc *rc, uint32_t slot, uint64_t size);

/* Device memory for this link, registered until rc_release(): by `dmabuf`
 * (ibv_reg_dmabuf_mr(3)), or with -1 as any memory, which works if the device's driver has told
 * the kernel's verbs of it (nvidia-peermem). The same memory again gives the same. 0 or -errno.
 * Background thread for landing rings, any thread that holds a direction's lock for others. */
int rc_device_reg(struct rc *rc, uint64_t addr, uint64_t size, int dmabuf, bool landing,
		  uint32_t *ret_key);
/* It is registered already, to send from. Any thread. */
bool rc_device_known(struct rc *rc, uint64_t addr, uint64_t size, uint32_t *ret_key);
/* From now on the peer may send into a landing ring of so many bytes, a power of two, in device
 * memory. Background thread. */
void rc_device_land(struct rc *rc, uint32_t slot, uint64_t size);
/* The peer has one, or, size 0, no more. 0 or -EPROTO: that is none. Background thread. */
int rc_device_peer(struct rc *rc, uint32_t slot, uint64_t size, uint64_t addr, uint32_t rkey);
/* of the peer's; 0: it has none. Sender */
uint64_t rc_device_size(const struct rc *rc, uint32_t slot);
/* Sender, its direction's lock held: the next n bytes of the stream are at `addr` in memory
 * registered by `key`, and stay there until they are consumed. False: not now. True: they are on
 * their way, and ring_tx_publish() must follow. */
bool rc_device_publish(struct rc *rc, uint32_t slot, uint64_t addr, uint32_t key, uint64_t n,
		       uint64_t *ret_seq);
/* The device reads that memory no more: what was published as `seq` is complete, or the queue
 * pair is at its end. Any thread; rc_poll() brings it on. */
bool rc_device_done(struct rc *rc, uint64_t seq);

/* ---- blocks that are read, rc_pull.c ---- */
/* READs may be under way, so many at a time; 0: none. Before records come. */
void rc_pull_reads(struct rc *rc, uint8_t most);
bool rc_pull_can(const struct rc *rc);
#define PULL_LEAST (128ull << 10)
#define PULL_NEVER (1ull << 31)
/* From which size on that is worth it, on this device and host: rc_cost.c. Background thread. */
uint64_t rc_pull_least(struct rc *rc);
/* ... by what registering 64 KiB and 2 MiB, and copying 1 MiB, cost; UINT64_MAX: it cannot be. */
uint64_t rc_cost_least(uint64_t small_ns, uint64_t large_ns, uint64_t copy_ns);
/* The program's memory, to be read by the peer or, `landing`, to read into. 0 or -errno: -ENOMEM:
 * what rdma_memory leaves for it is used up. Any thread; the link must stay meanwhile. */
int rc_pull_reg(struct rc *rc, uint64_t addr, uint64_t n, bool landing, struct pull_mem *ret);
void rc_pull_dereg(struct rc *rc, struct pull_mem *m);	/* no device reaches it any more */
/* Sender, its direction's lock held. The next o->len bytes of the stream lie at o->addr in memory
 * of o->key, and stay there; nothing is published before rc_pull_settled(). False: not now. */
bool rc_pull_offer(struct rc *rc, uint32_t slot, struct pull_offer *o);
void rc_pull_withdraw(struct rc *rc, uint32_t slot);
void rc_pull_settled(struct rc *rc, uint32_t slot, uint64_t wr);
uint32_t rc_pull_heard(const struct rc *rc, uint32_t slot);	/* changes when the peer says
								 * something */
/* Receiver, its direction's lock held: the block that begins, or goes on, at rd. False: there is
 * none that may be begun. Else rc_pull_end(): n bytes were read, `stop`: and no more will be. */
bool rc_pull_begin(struct rc *rc, uint32_t slot, uint32_t epoch, uint64_t rd,
		   struct pull_offer *ret);
void rc_pull_end(struct rc *rc, uint32_t slot, uint32_t serial, uint64_t n, bool stop);
void rc_pull_frozen(struct rc *rc, uint32_t slot, uint32_t epoch);	/* offers of that cut are
									 * over */
void rc_pull_alive(struct rc *rc, uint32_t slot);	/* tells the peer so */
/* 0: it is posted, and *ret_seq is for rc_pull_done(); -EAGAIN: too many are under way; -ENETDOWN.
 * Any thread. */
int rc_pull_read(struct rc *rc, uint32_t slot, const struct pull_piece *x, uint64_t *ret_seq);
int rc_pull_done(const struct rc *rc, uint64_t seq);	/* 1, 0: not yet, -ENETDOWN: never */

/* Sender, its direction's lock held: what is new in its ring's header goes to the peer. */
void rc_publish(struct rc *rc, uint32_t slot);
/* Receiver, its direction's lock held: rd has moved. Told when it is worth it. */
void rc_credit(struct rc *rc, uint32_t slot);
/* Takes completions and what hangs on them. Any thread; returns at once if another one does it.
 * True: an event. */
bool rc_poll(struct rc *rc);
/* The next record of the peer's that says something of a slot, and while something could not be
 * posted the next completion, makes rc_fd() readable, and whoever watches that calls rc_event().
 * Poll once after it, then sleep. */
void rc_arm(struct rc *rc);
/* The same for one who waits for rc_fd() himself, so that nobody else need be woken for it. */
void rc_arm_own(struct rc *rc);
void rc_unwatched(struct rc *rc);	/* who was told by conf.watch() has heard rc_fd() and
					 * listens no longer */
bool rc_waits(struct rc *rc);	/* something could not be posted yet */
int rc_fd(const struct rc *rc);
/* rc_fd() was readable: takes the event, if no other thread was faster. The caller polls, then
 * arms and polls again if somebody sleeps or rc_waits(): who found it armed relies on that. Any
 * thread. */
void rc_event(struct rc *rc);
bool rc_dead(const struct rc *rc);
#define RC_LOOKS 4
enum rc_looks { RC_IDLE, RC_BUSY, RC_STUCK };
/* Any thread but one that is inside. RC_IDLE: all work requests are completed; conf.busy() tells
 * of the next. RC_STUCK: kill it. */
enum rc_looks rc_look(struct rc *rc);
bool rc_busy(const struct rc *rc);	/* conf.busy() was called, and rc_look() has not said
					 * RC_IDLE since; any thread */
/* The device has had an event: a queue pair that is in error is killed, another one gets
 * something to do, so that rc_look() tells. Background thread. */
void rc_try(struct rc *rc);
void rc_kill(struct rc *rc);	/* no more posts; the queue pair goes to its error state */
void rc_counts(const struct rc *rc, struct rc_counts *ret);	/* roughly: no lock */
uint64_t rc_registered(const struct rc *rc);	/* bytes of memory registered */
uint64_t rc_pinned(void);	/* of all links, without device memory */
const char *rc_device(const struct rc *rc);	/* name of the device, "" before rc_open() */
uint32_t rc_mtu(const struct rc *rc);	/* bytes of a packet, once it is connected; 0: not known */

#endif
