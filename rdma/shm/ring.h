/*
 * ring.h - one direction of one stream: a single-producer single-consumer byte ring in
 * memory that two processes share.
 *
 *   sender's line     wr   final   epoch   cut   large   written by the sender only; and what
 *                     did not fit into the offer's
 *   receiver's line   rd    read_word                written by the receiver only; below the
 *                     cut: ring_rx_below()
 *   flag line         tx_want                        set by the sender, taken by the receiver
 *                     offer_sh                       written by the sender only, with an offer
 *   offer line        a large block that the receiver may copy straight out of the sender's memory
 *
 * Cursors are stream offsets (they run free, position = offset & (size - 1)), so that `rd`
 * is at once the credit: nothing below it is ever needed again, everything from it to wr is
 * still held by the sender. Each half works on private copies of all that it must trust; what
 * the other side wrote is taken only through the checks here. A liar gets -EPROTO.
 *
 * A ring begins small, so that it stays in a cache, or little of it is registered with a device.
 * A sender may change over to the large one of the same slot, and says from which offset on:
 * what is unread below that stays where it is. To use more of the large ring it has to be empty.
 *
 * Between hosts a run of bytes may lie in device memory instead (rc.h, "Device memory"), at the
 * same offset of a ring of its own: [dev_lo, dev_hi). Nothing comes behind such a run before all
 * of it is consumed, but more of its kind.
 *
 * Thread-safety: one thread at a time per half (the caller's direction lock).
 */
#ifndef RDMASHIM_RING_H
#define RDMASHIM_RING_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arch/arch.h"

#define RING_NO_FINAL UINT64_MAX
/* as `final`: the sender has reset the connection, look at its socket */
#define RING_RESET (UINT64_MAX - 1)

/*
 * An offer stands only while the ring is empty and the sender is inside its send call, so the bytes
 * are still the application's own to hold:
 *   sender    NONE -> OFFERED             and OFFERED -> NONE if nobody takes it in time
 *   receiver  OFFERED -> TAKING -> TAKEN  process_vm_readv(2) did it
 *                               READING  as TAKEN, but the snapshot of the block is still being
 *                                        read: until offer_read says so
 *                               REFUSED  not permitted, or failed: never again on this link
 *             OFFERED -> DECLINED         its buffer is small: this one by the ring, please
 *   sender    TAKING -> NONE              withdrawn after all: what the receiver has copied does
 *             not count
 *   sender    TAKEN, READING, REFUSED, DECLINED -> NONE; TAKEN and READING count as written and
 *             consumed at once
 * OFFERED and TAKING are left by compare-and-swap, by whichever end comes first.
 */
enum ring_offer { RING_OFFER_NONE, RING_OFFERED, RING_TAKING, RING_TAKEN, RING_REFUSED,
		  RING_DECLINED, RING_READING };

struct ring_shared {
	_Alignas(64) _Atomic uint64_t wr;	/* bytes published (TCP: snd_nxt) */
	_Atomic uint64_t final;			/* offset of the EOF, or RING_NO_FINAL */
	_Atomic uint64_t epoch;			/* of the cut that opened the ring, 0 = never */
	_Atomic uint64_t cut;			/* S of that cut */
	_Atomic uint32_t large;			/* so many bytes of the large ring are in use, 0:
						 * it is the small one */
	_Atomic uint64_t large_from;		/* bytes from this offset on lie there */
	_Atomic uint64_t offer_ring, offer_at;	/* the block of offer_dev: which ring
						 * (gpu_desc.ring_id), and where in it the first
						 * byte is */
	_Alignas(64) _Atomic uint64_t rd;	/* bytes consumed by the application (TCP:
						 * snd_una) */
	_Atomic uint64_t read_word;		/* random, before each copy:
						 * shim/link/peer_memory.h */
	_Alignas(64) _Atomic uint32_t tx_want;	/* 1: tell the sender when room appears */
	uint32_t pad;
	_Atomic uint64_t offer_sh;		/* where the sender of an offer has this
						 * structure, in its address space */
	uint64_t pad2[6];
	_Alignas(64) _Atomic uint32_t offer;	/* enum ring_offer */
	_Atomic uint64_t offer_addr, offer_len;	/* in the sender's address space */
	_Atomic uint64_t offer_read_n;		/* bytes that the receiver copied */
	_Atomic uint64_t offer_dev;		/* a struct gpu_desc in the sender's memory, or
						 * 0; the receiver clears it if it read the block
						 * itself */
	_Atomic uint64_t dev_lo, dev_hi;	/* between hosts: the run that lies in device
						 * memory. hi is written last and read first */
	_Atomic uint64_t offer_read;		/* receiver: no snapshot is read any more that is
						 * of bytes below this offset */
};
_Static_assert(sizeof(struct ring_shared) == 256,
	       "shared-memory layout: bump SEGMENT_VERSION when it changes");

struct ring_tx {
	struct ring_shared *sh;
	uint8_t *buf;
	uint64_t size;		/* power of two */
	uint64_t wr;		/* private truth */
	uint64_t rd;		/* newest credible credit */
	uint64_t unused;	/* bytes of the ring that are not used: TCP could not take them
				 * back */
	uint8_t *large;		/* buf, once it is in use */
	uint64_t large_size;	/* most of it that may be; 0: there is none */
	uint8_t *old;		/* where bytes below old_to lie: the ring before */
	uint64_t old_size, old_to;
	uint64_t dev_lo, dev_hi;	/* the last run that lies in device memory */
};

struct ring_rx {
	struct ring_shared *sh;
	const uint8_t *buf;
	uint64_t size;
	uint64_t rd;		/* private truth */
	uint64_t wr;		/* newest credible publication */
	const uint8_t *large;
	uint64_t large_size;	/* as in ring_tx */
	uint32_t large_now;	/* what the sender said of it last */
	const uint8_t *old;	/* as in ring_tx */
	uint64_t old_size, old_to;
	uint64_t dev_size;	/* of the ring in device memory, 0: there is none */
	uint64_t dev_lo, dev_hi;
};

/* Sender: opens the ring of `epoch` at stream offset `cut`. */
static inline void ring_tx_open(struct ring_tx *r, uint64_t epoch, uint64_t cut)
{
	/* first: who polls without a lock takes rd > wr for a ring without bytes */
	__atomic_store_n(&r->rd, cut, __ATOMIC_RELEASE);
	__atomic_store_n(&r->wr, cut, __ATOMIC_RELEASE);
	atomic_store_explicit(&r->sh->final, RING_NO_FINAL, memory_order_relaxed);
	atomic_store_explicit(&r->sh->tx_want, 0, memory_order_relaxed);
	atomic_store_explicit(&r->sh->offer, RING_OFFER_NONE, memory_order_relaxed);
	atomic_store_explicit(&r->sh->wr, cut, memory_order_relaxed);
	atomic_store_explicit(&r->sh->cut, cut, memory_order_relaxed);
	atomic_store_explicit(&r->sh->epoch, epoch, memory_order_release);
}

/* Receiver: starts to read at stream offset `cut`. */
static inline void ring_rx_open(struct ring_rx *r, uint64_t cut)
{
	r->rd = r->wr = cut;
	atomic_store_explicit(&r->sh->rd, cut, memory_order_release);
}

/* Receiver, which still reads what came by TCP before the ring's first byte: how far it has come.
 * As a credit it is stale; it shows the sender that somebody reads. */
static inline void ring_rx_below(struct ring_rx *r, uint64_t at)
{
	if (at < r->rd)
		atomic_store_explicit(&r->sh->rd, at, memory_order_relaxed);
}

/* Sender: what changes while the receiver reads, in the ring or below it. Never to be counted
 * with. */
static inline uint64_t ring_tx_progress(const struct ring_tx *r)
{
	return atomic_load_explicit(&r->sh->rd, memory_order_relaxed);
}

/* Re-reads the peer's credit. 0 or -EPROTO. An older value than known is only stale: the receiver
 * has not yet opened its half of this epoch, or reads below it. */
static inline int ring_tx_refresh(struct ring_tx *r)
{
	uint64_t rd = atomic_load_explicit(&r->sh->rd, memory_order_acquire);

	if (rd <= r->rd)
		return 0;
	if (rd > r->wr)
		return -EPROTO;
	r->rd = rd;
	return 0;
}

/* Changes over to `size` bytes of the large ring. Only if that is more than now, at most
 * large_size and a power of two; and all that was sent is consumed, if some of the large ring is
 * in use already. */
static inline void ring_tx_enlarge(struct ring_tx *r, uint64_t size)
{
	r->old = r->buf;
	r->old_size = r->size;
	r->old_to = r->wr;
	r->buf = r->large;
	r->size = size;
	atomic_store_explicit(&r->sh->large_from, r->wr, memory_order_relaxed);
	/* seen with what is published next, or before */
	atomic_store_explicit(&r->sh->large, (uint32_t)size, memory_order_release);
}

static inline uint64_t ring_tx_room(const struct ring_tx *r)
{
	if (__builtin_expect(r->dev_hi > r->rd, 0))
		return 0;

	uint64_t from = r->rd > r->old_to ? r->rd : r->old_to, taken = r->wr - from + r->unused;

	return taken < r->size ? r->size - taken : 0;
}

/* The sender says that it uses `size` bytes of the large ring for what comes from offset `from`
 * on. */
static inline int ring_rx_enlarge(struct ring_rx *r, uint32_t size, uint64_t from)
{
	if (from < r->wr && r->rd == r->wr)	/* it had told of nothing yet when this ring was
						 * opened */
		from = r->rd;
	if (size <= r->size || size > r->large_size || size & (size - 1) || from < r->wr ||
	    from - r->rd > r->size || (r->buf == r->large && from != r->rd))
		return -EPROTO;
	r->old = r->buf;
	r->old_size = r->size;
	r->old_to = from;
	r->buf = r->large;
	r->size = r->large_now = size;
	return 0;
}

/* How many of the bytes [from, wr) may lie in device memory if those of [lo, hi) do, as the ring
 * there is that large. */
static inline uint64_t ring_rx_device(const struct ring_rx *r, uint64_t lo, uint64_t hi,
				      uint64_t from, uint64_t wr)
{
	lo = lo > from ? lo : from;
	hi = hi < wr ? hi : wr;
	return hi <= lo ? 0 : hi - lo < r->dev_size ? hi - lo : r->dev_size;
}

/* Re-reads what the peer published. 0 or -EPROTO. A smaller value is stale: of a block that was
 * taken from an offer the sender publishes the end only when it sees that. */
static inline int ring_rx_refresh(struct ring_rx *r)
{
	uint64_t wr = atomic_load_explicit(&r->sh->wr, memory_order_acquire), from, lo = 0, hi = 0;
	uint32_t large;

	if (wr <= r->wr)
		return 0;
	large = atomic_load_explicit(&r->sh->large, memory_order_acquire);
	if (large != r->large_now) {
		uint64_t from = atomic_load_explicit(&r->sh->large_from, memory_order_relaxed);

		/* above: seen early, wr is of before */
		if (from <= wr && ring_rx_enlarge(r, large, from))
			return -EPROTO;
	}
	if (__builtin_expect(r->dev_size != 0, 0)) {
		hi = atomic_load_explicit(&r->sh->dev_hi, memory_order_acquire);
		lo = atomic_load_explicit(&r->sh->dev_lo, memory_order_relaxed);
	}
	from = r->rd > r->old_to ? r->rd : r->old_to;
	if (wr - from - ring_rx_device(r, lo, hi, from, wr) > r->size)
		return -EPROTO;
	r->dev_lo = lo;		/* with wr: what was refused is not believed in part */
	r->dev_hi = hi;
	r->wr = wr;
	return 0;
}

/* Of n bytes from offset `off`: those up to where the kind of memory changes. *ret_dev: of which
 * kind they are. */
static inline uint64_t ring_rx_alike(const struct ring_rx *r, uint64_t off, uint64_t n,
				     bool *ret_dev)
{
	uint64_t to = off + n;

	*ret_dev = off >= r->dev_lo && off < r->dev_hi;
	if (*ret_dev)
		return to < r->dev_hi ? n : r->dev_hi - off;
	return off < r->dev_lo && r->dev_lo < r->dev_hi && to > r->dev_lo ? r->dev_lo - off : n;
}

static inline uint64_t ring_rx_avail(const struct ring_rx *r) { return r->wr - r->rd; }

/* The lines that the messages after this one will fill: the receiver's cache has them still, and
 * a message that has to wait for its line waits with all that is locked or fenced after it.
 * Larger messages overlap their own. */
#define RING_AHEAD 512
static inline void ring_tx_ahead(const struct ring_tx *r, size_t n)
{
	if (n <= 256 && ring_tx_room(r) >= 2 * RING_AHEAD)
		for (size_t at = 0; at < n; at += 64)
			arch_prefetch_write(r->buf + ((r->wr + RING_AHEAD + at) & (r->size - 1)));
}

/* Like memcpy(). */
typedef void *ring_copier(void *dst, const void *src, size_t n);

/* Copies n <= room bytes in at offset `at` bytes beyond wr; not visible before ring_tx_publish. */
static inline __attribute__((always_inline))
void ring_tx_copy_by(struct ring_tx *r, uint64_t at, const void *src, size_t n, ring_copier *copy)
{
	uint64_t pos = (r->wr + at) & (r->size - 1);
	size_t first = n < r->size - pos ? n : r->size - pos;

	copy(r->buf + pos, src, first);
	if (first < n)
		copy(r->buf, (const uint8_t *)src + first, n - first);
}

static inline void ring_tx_copy(struct ring_tx *r, uint64_t at, const void *src,
				size_t n) { ring_tx_copy_by(r, at, src, n, memcpy); }

static inline void ring_tx_publish(struct ring_tx *r, uint64_t n)
{
	r->wr += n;
	atomic_store_explicit(&r->sh->wr, r->wr, memory_order_release);
}

static inline __attribute__((always_inline)) void ring_out(void *dst, const uint8_t *buf,
							   uint64_t size, uint64_t off, size_t n,
							   ring_copier *copy)
{
	uint64_t pos = off & (size - 1);
	size_t first = n < size - pos ? n : size - pos;

	copy(dst, buf + pos, first);
	if (first < n)
		copy((uint8_t *)dst + first, buf, n - first);
}

/* Copies n <= avail bytes out from offset `at` bytes beyond rd; the sender still holds them. */
static inline __attribute__((always_inline))
void ring_rx_copy_by(const struct ring_rx *r, uint64_t at, void *dst, size_t n, ring_copier *copy)
{
	uint64_t off = r->rd + at;

	if (off < r->old_to) {
		size_t m = n < r->old_to - off ? n : r->old_to - off;

		ring_out(dst, r->old, r->old_size, off, m, copy);
		dst = (uint8_t *)dst + m;
		off += m;
		n -= m;
	}
	ring_out(dst, r->buf, r->size, off, n, copy);
}

static inline void ring_rx_copy(const struct ring_rx *r, uint64_t at, void *dst,
				size_t n) { ring_rx_copy_by(r, at, dst, n, memcpy); }

static inline void ring_rx_consume(struct ring_rx *r, uint64_t n)
{
	r->rd += n;
	atomic_store_explicit(&r->sh->rd, r->rd, memory_order_release);
}

/* Sender, in a rewind: the longest contiguous chunk of held bytes from offset `off` < wr. NULL:
 * they lie in device memory. */
static inline const uint8_t *ring_tx_held(const struct ring_tx *r, uint64_t off, size_t *ret_n)
{
	bool old = off < r->old_to;
	uint64_t size = old ? r->old_size : r->size, pos = off & (size - 1),
		 n = (old ? r->old_to : r->wr) - off;

	if (off >= r->dev_lo && off < r->dev_hi) {
		*ret_n = r->dev_hi - off;
		return NULL;
	}
	if (off < r->dev_lo && r->dev_lo < r->dev_hi && n > r->dev_lo - off)
		n = r->dev_lo - off;

	*ret_n = n < size - pos ? n : size - pos;
	return (old ? r->old : r->buf) + pos;
}

#endif
