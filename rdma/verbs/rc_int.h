/*
 * rc_int.h - what rc.c, which posts and polls, rc_wait.c and rc_stuck.c beside it, and rc_mem.c,
 * which has what is registered, share. See rc.h.
 *
 * The memory of records, send and receive, is one mapping. Work request ids: a send's is its
 * number, of which the completion frees all up to it (selective signalling); a receive's is
 * RECV_ID plus the buffer.
 */
#ifndef RDMASHIM_RC_INT_H
#define RDMASHIM_RC_INT_H

#include "rdma/verbs/rc.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include "arch/arch.h"
#include "base/sys.h"

#define RECV_ID     (1ull << 63)
#define SIGNAL_EACH 16		/* one completion for so many sends */
#define RC_BATCH    16		/* completions taken at a time */
#define DEVICE_MOST 64		/* registrations of device memory */

struct large {
	uint8_t *mem;
	struct ibv_mr *mr;
	_Atomic bool used;
};

struct device_mem {
	uint64_t addr, size;
	bool landing;
	struct ibv_mr *_Atomic mr;
};

struct rc_read {
	uint64_t seq;
	uint32_t slot;
	bool last;
};

struct rc {
	struct segment *a;
	struct rc_conf conf;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;		/* of `mem` */
	uint8_t *mem;			/* send records, then receive buffers */
	struct rc_slot *slot;		/* [a->slots] */
	size_t slot_bytes;
	uint32_t max_inline;
	bool iwarp;
	_Atomic bool dead;
	_Atomic uint64_t registered;
	struct large large[2][RC_LARGE_MOST];	/* to send from, to land in; background thread */
	uint64_t large_bytes;		/* of those that are registered */
	struct device_mem device[DEVICE_MOST];	/* added under `post` */
	uint8_t reads_most;

	_Alignas(64) _Atomic uint32_t post;	/* lock */
	uint64_t posted, done;		/* work requests */
	uint64_t unsignalled;
	uint64_t sent, peer_acked;	/* records; between the two lies the window */
	uint32_t told_acked;
	uint32_t npending, next_pending;
	uint64_t timed, timed_from;	/* the work request that is timed, plus 1; ns */
	uint64_t time_next;		/* the next record that may be */
	uint32_t rtts, rtt_now, rtt_before;	/* how many there were; the shortest of the last
						 * few, and of those before */
	uint64_t done_seen;		/* at the last look */
	uint32_t looks;			/* in a row that found nothing new completed */
	uint32_t nreads;		/* READs under way: */
	struct rc_read read[RC_READS];
	_Atomic bool busy;

	_Alignas(64) _Atomic uint32_t poll;	/* lock */
	_Atomic uint32_t again;		/* somebody found `poll` taken */
	_Atomic uint64_t armed;		/* events + 1: an event will come, or came and has not
					 * been taken. Written when that is so */
	_Atomic uint64_t arming_all, armed_all;	/* the same for every completion, not only for
						 * what the peer tells: begun, made */
	_Atomic uint32_t watched;	/* conf.watch() was called, rc_unwatched() not yet */
	_Atomic uint64_t arms, events;
	uint64_t polls, completions;	/* counted under `poll` */
	_Atomic uint32_t taken;		/* records taken up; changes under `poll` */
	_Atomic bool owes;		/* one of them asked to be acknowledged */
};

#define TAKE_SPINS 200

/* Locks: a word and a futex, as everywhere. They are held for a post or a batch of completions,
 * much shorter than it takes to sleep and be woken: who finds one taken looks some times more. */
static inline void take(_Atomic uint32_t *l)
{
	uint32_t z = 0;

	for (unsigned i = 0; i <= TAKE_SPINS; i++) {
		if (atomic_load_explicit(l, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong_explicit(l, &z, 1, memory_order_acquire,
							    memory_order_relaxed))
			return;
		z = 0;
		arch_pause();
	}
	while (atomic_exchange_explicit(l, 2, memory_order_acquire))
		sys(SYS_futex, l, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static inline bool try(_Atomic uint32_t *l)
{
	uint32_t z = 0;

	return atomic_compare_exchange_strong_explicit(l, &z, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void give(_Atomic uint32_t *l)
{
	if (atomic_exchange_explicit(l, 0, memory_order_release) == 2)
		sys(SYS_futex, l, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline bool is_dead(const struct rc *rc)
{
	return atomic_load_explicit(&rc->dead, memory_order_relaxed);
}

/* Work requests that may be posted, and records that the peer has not acknowledged; `post` held */
static inline uint64_t room(const struct rc *rc) { return RC_SENDS - (rc->posted - rc->done); }
static inline uint64_t under_way(const struct rc *rc) { return rc->sent - rc->peer_acked; }

/* The place of a record that is posted as that work request; `post` held */
static inline struct rc_rec *record(struct rc *rc, uint64_t seq)
{
	return (struct rc_rec *)(rc->mem + (size_t)(seq % RC_SENDS) * RC_REC_MAX);
}

/* What the next record says of those taken up; `post` held */
static inline uint32_t acknowledge(struct rc *rc)
{
	atomic_store(&rc->owes, false);		/* before the count is read: one that comes now
						 * asks again */
	return rc->told_acked = atomic_load_explicit(&rc->taken, memory_order_relaxed);
}

/* A record with `acked` and nothing else. `post` held, and there is room() for it. rc.c */
void rc_post_acked(struct rc *rc);
/* ---- rc.c, for rc_pull.c; `post` held ---- */
void rc_post(struct rc *rc, struct ibv_send_wr *wr);
void rc_look_at_epoch(struct rc_slot *sl, struct ring_shared *sh);
void rc_post_bare(struct rc *rc, struct rc_rec *rec);	/* a record that tells of no writes */
/* what there is to say of the slot; leaves `post` */
void rc_tell(struct rc *rc, uint32_t slot);
/* ---- rc_pull.c, for rc.c ---- */
void rc_pull_say(struct rc *rc, uint32_t slot);	/* the next word of the slot, which is posted */
/* one has come. False: it breaks the rules. `poll` held */
bool rc_pull_word(struct rc *rc, const struct rc_rec *r, const void *payload);
/* Completed are those up to `done`: of so many slots somebody waits for it, RC_READS at most. */
uint32_t rc_pull_completed(struct rc *rc, uint32_t *slots);

/* The queue pair is of no use any more: told once. */
void rc_died(struct rc *rc);
/* These receive buffers, RC_BATCH at most, may be filled again. 0, or the device's error. */
int rc_post_recvs(struct rc *rc, const uint32_t *i, unsigned n);

#endif
