/*
 * stream_plain.c - calls on a stream that is on TCP and not on a link (NEW, SOFT): they go to the kernel as they came,
 * counted while they are inside, because a cut has to wait for them. Every byte that stays on TCP comes through here, so
 * the way is short, and touches one cache line of the stream and one of its counter row.
 *
 * Locks: none.
 */
#include "bg.h"
#include "libc.h"
#include "stream_int.h"

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
	if (s->seen_rounds >= MARK_TURNS || s->seen_bytes >= MARK_BYTES)
		stream_mark(s);
	if (s->seen_bytes >= t->earn_bytes || s->seen_rounds / 2 >= t->earn_rounds)
		stream_earned(s);
	errno = e;
}

/* Somebody waits for the last one to leave: a cut, or the end of a closed stream. */
static __attribute__((noinline)) void was_last(struct stream *s, uint32_t gen)
{
	int e = errno;

	if (atomic_load(&s->dead) && !atomic_load(&s->link) && !atomic_load(&s->upgrade))
		stream_try_free(s, gen);
	else
		bg_look(s);
	errno = e;
}

static inline void leave(struct stream *s, _Atomic uint32_t *n, _Atomic uint64_t *moved, ssize_t r, uint8_t turn)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);	/* ours while we are counted */

	if (r > 0) {
		/* Two threads that use one plain stream at once may lose a count: not worth a locked add per call. */
		atomic_store_explicit(moved, atomic_load_explicit(moved, memory_order_relaxed) + (uint64_t)r,
				      memory_order_relaxed);
		if (!atomic_load_explicit(&s->upgrade, memory_order_relaxed) &&
		    atomic_load_explicit(&s->mode, memory_order_relaxed) == MODE_NEW)
			earn(s, (uint64_t)r, turn);
	}
	if (atomic_fetch_sub(n, 1) == 1 && (atomic_load(&s->mode) == MODE_CAND || atomic_load(&s->dead)))
		was_last(s, gen);
}

/* A non-blocking connect() is under way still, or has failed: a search would end before there is anything to find. */
static bool connecting(struct stream *s)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return s->role == ROLE_CLIENT && !s->seen_bytes && sys(SYS_getpeername, atomic_load(&s->fd), &peer, &len) < 0;
}

/*
 * A call that may last. What it will move is counted before it: the other end may have earned after the first part of it, and searches for an end that
 * is not marked for a moment only, and for one that does not answer for seconds.
 */
static __attribute__((noinline)) void will_move(struct stream *s, uint64_t n)
{
	int e = errno;

	if (atomic_load(&s->upgrade) || atomic_load(&s->mode) != MODE_NEW || !atomic_load(&s->connected))
		return;
	stream_mark(s);
	if (s->seen_bytes + n >= shim_tunables()->earn_bytes && !connecting(s))
		stream_earned(s);
	errno = e;
}

/* True after the count: it is a plain stream still, or one that stays on TCP for good. */
static inline bool enter(struct stream *s, _Atomic uint32_t *n, size_t moves)
{
	uint8_t m;

	if (atomic_load_explicit(&s->fork_cut, memory_order_relaxed))
		fork_child_touch(s);
	m = atomic_load_explicit(&s->mode, memory_order_relaxed);
	if (m != MODE_NEW && m != MODE_SOFT)
		return false;
	atomic_fetch_add(n, 1);
	m = atomic_load(&s->mode);
	if (__builtin_expect(m != MODE_CAND && m != MODE_FREE, 1)) {
		if (__builtin_expect(moves >= MARK_BYTES, 0))
			will_move(s, moves);
		return true;
	}
	leave(s, n, NULL, 0, 0);	/* who saw the count waits for its end */
	return false;
}

bool stream_plain_tx(struct stream *s, size_t n) { return enter(s, &s->plain_tx, n); }
bool stream_plain_rx(struct stream *s, size_t n) { return enter(s, &s->plain_rx, n); }

void stream_plain_tx_leave(struct stream *s, ssize_t n)
{
	leave(s, &s->plain_tx, &s->row->tx_bytes[PATH_TCP], n, 1);
}

void stream_plain_rx_leave(struct stream *s, ssize_t n)
{
	leave(s, &s->plain_rx, &s->row->rx_bytes[PATH_TCP], n, 2);
}
