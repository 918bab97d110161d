/*
 * segment.h - the shared memory of a link between two processes of one host.
 *
 * A sealed memfd, sparse: memory is taken page by page as rings are used.
 *
 *   0            struct segment_header  written once by the creator (side 0), read once by side 1
 *   side[0..1]   struct segment_side   who sleeps, which slots want a look
 *   slot[0..n)   struct segment_slot   one stream: two rings' cursors, who is interested
 *   ring[0..2n)  bytes                 slot i: 2i from side 0 to side 1, 2i+1 the other way
 *   large[0..2n) bytes                 the large ring of each, for who needs it; none on a link
 *                                      between hosts
 *
 * Waking. A process has up to 63 bells (timerfds, numbered; shim/base/bell.h). A side says in
 * slot.side[s].bells which of its bells care about the slot, and in side[s].armed which of them
 * sleep. Whoever publishes to side s calls segment_notify(): full fence, marks the slot dirty if an
 * epoll instance cares, takes the armed bells that care and returns them; the caller rings them.
 * The sleeper sets its armed bit, then looks again, then sleeps: between the two full fences no
 * wake-up is lost (Dekker).
 *
 * Everything in here may be garbage written by a hostile peer: masks are masks, so any value is
 * harmless; cursors are checked in ring.h; geometry is kept privately in struct segment.
 */
#ifndef RDMASHIM_SEGMENT_H
#define RDMASHIM_SEGMENT_H

#include "rdma/shm/ring.h"

#define SEGMENT_MAGIC     0x524d53484152454eull
#define SEGMENT_VERSION   8	/* also when a word in it gets another meaning */
#define SEGMENT_MAX_SLOTS 4096
#define SEGMENT_MAX_BYTES (64ull << 30)

struct segment_header {
	uint64_t magic;
	uint32_t version, slots;
	uint64_t ring_size, total_size, large_size;
};

struct segment_side {
	_Alignas(64) _Atomic uint64_t armed;	/* bit b: bell b sleeps, ring it */
	_Alignas(64) _Atomic uint64_t summary;	/* bit w: dirty[w] has a bit set */
	_Alignas(64) _Atomic uint64_t dirty[SEGMENT_MAX_SLOTS / 64];
};

struct segment_slot_side {
	_Alignas(64) _Atomic uint64_t bells;	/* bells of this side that care about the slot */
	_Atomic uint64_t epolls;		/* nonzero: mark dirty on notify */
	uint64_t pad[6];
};

struct segment_slot {
	struct ring_shared dir[2];		/* [s]: sent by side s */
	struct segment_slot_side side[2];
};

/* Private view of one end. */
struct segment {
	uint8_t *base;
	uint64_t total, ring_size, large_size;
	uint32_t slots;
	uint8_t me;			/* my side, 0 or 1 */
	bool permanent;			/* a device knows its pages: they are never given back */
	bool apart;			/* parts of it are not in a child, and others' may be
					 * there */
	bool kept;			/* they are not given back: see segment_give() */
	bool preallocated;			/* a slot's pages are made before it is used: see
						 * segment_have() */
	struct segment_side *side;	/* [2] */
	struct segment_slot *slot;
	uint8_t *ring, *large;
};

/* Side 0: makes and maps a sealed segment; *ret_fd (CLOEXEC) is for the peer, caller closes it.
 * -errno on failure. slots <= SEGMENT_MAX_SLOTS, ring_size a power of two >= 4096, large_size
 * one above that, or 0: none. */
int segment_create(struct segment *a, uint32_t slots, uint64_t ring_size, uint64_t large_size,
		   int *ret_fd);
/* Side 1: checks seals, size and header, maps. -EPROTO if it is not a segment. */
int segment_attach(struct segment *a, int fd);
void segment_unmap(struct segment *a);
/* With strict overcommit (vm.overcommit_memory 2; shmem_inode_acct_blocks() in mm/shmem.c) a
 * page that is not there yet is SIGBUS at the first touch, if nothing is left to commit. So for
 * a segment that is to be preallocated its pages are made where that can still be told: from p,
 * of which the first `used` bytes are in use. False: they cannot be had; those beyond are given
 * back. Any thread. */
bool segment_have(const struct segment *a, void *p, size_t used, size_t n);
/* By a stream before; false also where its pages are made only then. */
bool segment_slot_was_used(const struct segment *a, uint32_t slot);
/* Both rings' cursors and masks to zero; what is in the rings is of no meaning: 0, or -ENOMEM: a
 * preallocated segment's cannot be written. Only while neither side uses it. */
int segment_slot_reset(struct segment *a, uint32_t slot);
/* The rings are about to be used. False: a preallocated segment's cannot be had. */
bool segment_slot_have(const struct segment *a, uint32_t slot);
/* What is there is of no meaning any more. The kernel takes the lock of the file for that, which
 * who has the file may hold for as long as he likes, by a write() from memory that never comes; and
 * no signal ends who waits for it. So of a link's memory that is `kept`, since the peer is not
 * trusted so far, nothing is given back before the link ends, and few of its slots have a large
 * ring. */
void segment_give(const struct segment *a, void *p, size_t n);
/* That direction's rings, of the large one so much, hold nothing that anybody will read: their
 * pages are given back. False: they are not. */
bool segment_ring_rest(const struct segment *a, uint32_t slot, int from, uint64_t large);
/* Both sides have left the slot: its memory is given back, but for the small rings of the first
 * few slots of each side, and the large ones of the first. */
void segment_slot_left(struct segment *a, uint32_t slot);

bool segment_slot_warm(const struct segment *a, uint32_t slot);	/* it is one of these first */
/* what was kept is given back */
void segment_slot_cools(const struct segment *a, uint32_t slot);

static inline uint8_t *segment_large(const struct segment *a, uint32_t slot, int from)
{
	return a->large_size ? a->large + (2ull * slot + (unsigned)from) * a->large_size : NULL;
}

#define SEGMENT_KEPT_LARGE (16ull << 20)

static inline uint64_t segment_sends_large(const struct segment *a, uint32_t slot)
{
	if (a->kept && a->large_size && slot % (a->slots / 2) >= SEGMENT_KEPT_LARGE / a->large_size)
		return 0;
	return a->large_size;
}

static inline void segment_ring_tx(const struct segment *a, uint32_t slot, struct ring_tx *r)
{
	r->sh = &a->slot[slot].dir[a->me];
	r->size = a->ring_size;
	r->unused = r->old_to = r->dev_lo = r->dev_hi = 0;
	r->buf = a->ring + (2ull * slot + a->me) * a->ring_size;
	r->large = segment_large(a, slot, a->me);
	r->large_size = segment_sends_large(a, slot);
}

static inline void segment_ring_rx(const struct segment *a, uint32_t slot, struct ring_rx *r)
{
	r->sh = &a->slot[slot].dir[!a->me];
	r->size = a->ring_size;
	r->buf = a->ring + (2ull * slot + !a->me) * a->ring_size;
	r->large = segment_large(a, slot, !a->me);
	r->large_size = a->large_size;
	r->large_now = 0;
	r->old_to = r->dev_size = r->dev_lo = r->dev_hi = 0;
}

/* After a publication, a credit that was wanted, a FINAL: returns the peer's bells to ring. */
static inline uint64_t segment_notify(struct segment *a, uint32_t slot)
{
	struct segment_side *ps = &a->side[!a->me];
	struct segment_slot_side *ss = &a->slot[slot].side[!a->me];
	uint64_t m;

	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&ss->epolls, memory_order_relaxed)) {
		uint64_t bit = 1ull << (slot & 63);

		if (!(atomic_load_explicit(&ps->dirty[slot >> 6], memory_order_relaxed) & bit)) {
			atomic_fetch_or(&ps->dirty[slot >> 6], bit);
			atomic_fetch_or(&ps->summary, 1ull << (slot >> 6));
		}
	}
	m = atomic_load_explicit(&ss->bells, memory_order_relaxed) &
	    atomic_load_explicit(&ps->armed, memory_order_relaxed);
	if (m)
		m &= atomic_fetch_and(&ps->armed, ~m);
	return m;
}

/* Receiver, after ring_rx_consume(): does the sender wait for room? Contains the full fence. */
static inline bool segment_room_wanted(struct ring_rx *r)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&r->sh->tx_want, memory_order_relaxed))
		return false;
	return atomic_exchange(&r->sh->tx_want, 0) == 1;
}

static inline void segment_want_room(struct ring_tx *r)
{
	atomic_store(&r->sh->tx_want, 1);	/* seq_cst: then look at rd again */
	atomic_thread_fence(memory_order_seq_cst);
}

#endif
