/*
 * stream_plain.c - calls on a stream that is on TCP and not on a link (NEW, SOFT): they go to the kernel as they came,
 * counted while they are inside, because a cut has to wait for them. Every byte that stays on TCP comes through here.
 *
 * A locked add before and one after the kernel call cost a tenth of a small send() (the store buffer is full of what the kernel
 * wrote). So the thread that uses a direction first owns its counter and writes it with plain stores; other threads have a
 * counter with locked adds. Whoever changes mode or dead and then looks at the counters pays instead: plain_fence() makes
 * every thread of the process pass a barrier (membarrier(2)), so that either it sees the count, or the thread sees the
 * change. Where the kernel has no membarrier nobody owns anything.
 *
 * Locks: none on the way of a byte.
 */
#include "bg.h"
#include "libc.h"
#include "stream_int.h"

#define CMD_PRIVATE_EXPEDITED		8
#define CMD_REGISTER_PRIVATE_EXPEDITED	16

static _Atomic uint32_t next_id = 1;
static bool owners;		/* threads may own counters; set before the first stream, per process image */

/* At once while the process has one thread, which is when it matters how long it takes. */
void plain_init(void)
{
	owners = sys(SYS_membarrier, CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void plain_fence(struct stream *s)
{
	uint32_t me = thread_signals.id, t = atomic_load(&s->tx_owner), r = atomic_load(&s->rx_owner);

	if (owners && ((t && t != me) || (r && r != me)))
		sys(SYS_membarrier, CMD_PRIVATE_EXPEDITED, 0, 0);
}

bool stream_inside(struct stream *s, bool tx)
{
	plain_fence(s);
	return tx ? atomic_load(&s->plain_tx) || atomic_load(&s->own_tx) : atomic_load(&s->plain_rx) || atomic_load(&s->own_rx);
}

/* The first who comes owns the direction until the stream ends. A number, not an address: those are used again. */
static __attribute__((noinline)) bool claim(_Atomic uint32_t *owner)
{
	uint32_t none = 0;

	if (!thread_signals.id)
		thread_signals.id = atomic_fetch_add(&next_id, 1);
	return owners && atomic_compare_exchange_strong(owner, &none, thread_signals.id);
}

static inline bool mine(_Atomic uint32_t *owner)
{
	uint32_t o = atomic_load_explicit(owner, memory_order_relaxed);

	return o ? o == thread_signals.id : claim(owner);
}

static inline void step(_Atomic uint32_t *own, uint32_t by)
{
	atomic_store_explicit(own, atomic_load_explicit(own, memory_order_relaxed) + by, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);	/* the rest of the fence is plain_fence()'s */
}

/* After the count: is it still a plain stream? */
static inline bool still_plain(struct stream *s)
{
	uint8_t m = atomic_load(&s->mode);

	return m != MODE_CAND && m != MODE_FREE && !atomic_load(&s->dead);
}

/* For all who have no counter of their own; also the owner's first call. */
static __attribute__((noinline)) bool enter_slow(struct stream *s, _Atomic uint32_t *owner, _Atomic uint32_t *own,
						 _Atomic uint32_t *others)
{
	bool me = mine(owner);
	uint8_t m;

	if (atomic_load_explicit(&s->fork_cut, memory_order_relaxed))
		fork_child_touch(s);
	m = atomic_load_explicit(&s->mode, memory_order_relaxed);
	if (m != MODE_NEW && m != MODE_SOFT)
		return false;
	if (me)
		step(own, 1);
	else
		atomic_fetch_add(others, 1);
	if (still_plain(s))
		return true;
	if (me)
		step(own, -1u);
	else
		atomic_fetch_sub(others, 1);
	return false;
}

static inline bool enter(struct stream *s, _Atomic uint32_t *owner, _Atomic uint32_t *own, _Atomic uint32_t *others)
{
	uint8_t m = atomic_load_explicit(&s->mode, memory_order_relaxed);

	if (m != MODE_NEW && m != MODE_SOFT)
		return false;
	if (!thread_signals.id || atomic_load_explicit(owner, memory_order_relaxed) != thread_signals.id ||
	    atomic_load_explicit(&s->fork_cut, memory_order_relaxed))
		return enter_slow(s, owner, own, others);
	step(own, 1);
	if (still_plain(s))
		return true;
	step(own, -1u);
	return false;
}

bool stream_plain_tx(struct stream *s) { return enter(s, &s->tx_owner, &s->own_tx, &s->plain_tx); }
bool stream_plain_rx(struct stream *s) { return enter(s, &s->rx_owner, &s->own_rx, &s->plain_rx); }

/* Approximate on purpose: two threads may lose a count. Only until it has earned. */
static __attribute__((noinline)) void earn(struct stream *s, uint64_t moved, uint8_t turn)
{
	const struct policy_tunables *t = shim_tunables();
	int e = errno;

	s->seen_bytes += moved;
	if (s->last_turn != turn) {
		s->last_turn = turn;
		s->seen_rounds++;
	}
	if (s->seen_bytes >= t->earn_bytes || s->seen_rounds / 2 >= t->earn_rounds)
		stream_earned(s);
	errno = e;
}

/* Somebody waits for the last one to leave: a cut, or the end of a closed stream. */
static __attribute__((noinline)) void left(struct stream *s)
{
	int e = errno;

	if (atomic_load(&s->dead) && !atomic_load(&s->link) && !atomic_load(&s->upgrade))
		stream_try_free(s);
	else
		bg_look(s);
	errno = e;
}

static inline void leave(struct stream *s, _Atomic uint32_t *owner, _Atomic uint32_t *own, _Atomic uint32_t *others,
			 _Atomic uint64_t *moved, ssize_t r, uint8_t turn)
{
	if (r > 0) {
		/* Two threads that use one plain stream at once may lose a count: not worth a locked add per call. */
		atomic_store_explicit(moved, atomic_load_explicit(moved, memory_order_relaxed) + (uint64_t)r,
				      memory_order_relaxed);
		if (!atomic_load_explicit(&s->upgrade, memory_order_relaxed) &&
		    atomic_load_explicit(&s->mode, memory_order_relaxed) == MODE_NEW)
			earn(s, (uint64_t)r, turn);
	}
	if (thread_signals.id && atomic_load_explicit(owner, memory_order_relaxed) == thread_signals.id)
		step(own, -1u);
	else
		atomic_fetch_sub(others, 1);
	if (atomic_load(&s->mode) == MODE_CAND || atomic_load(&s->dead))
		left(s);
}

void stream_plain_tx_leave(struct stream *s, ssize_t n)
{
	leave(s, &s->tx_owner, &s->own_tx, &s->plain_tx, &s->row->tx_bytes[PATH_TCP], n, 1);
}

void stream_plain_rx_leave(struct stream *s, ssize_t n)
{
	leave(s, &s->rx_owner, &s->own_rx, &s->plain_rx, &s->row->rx_bytes[PATH_TCP], n, 2);
}
