/*
 * stream_plain.c - calls on a stream that is on TCP and not on a link (NEW, TCP_FOR_NOW). They go
 * to the kernel as they came. They are counted while they are inside, because a cut has to wait for
 * them. Every byte that stays on TCP comes through here. So this path is short, and touches one
 * cache line of the stream and one of its counter row.
 *
 * Locks: none.
 */
#include <pthread.h>

#include "base/loop.h"
#include "base/shim.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_slab.h"

/*
 * The calls that this thread is in. A thread that is cancelled, or leaves otherwise, comes back
 * from none of them; nor does one that jumps out of a signal handler, whose calls are given up
 * with it. More, one in the handler of the other, are not noted.
 */
#define CALLS 4
static __thread struct {
	_Alignas(32) uint32_t depth;	/* on one cache line with the first call: it is cold
					 * right after a system call */
	bool keyed;
	struct { struct stream *s; uint32_t n; } call[CALLS];
} in __attribute__((tls_model("initial-exec")));

/* Only until it is attached. */
static __attribute__((noinline)) void earn(struct stream *s, uint64_t moved, uint8_t turn)
{
	int e = errno;

	earn_moved(s, moved, turn);
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

/* n: PLAIN_TX or PLAIN_RX. It is ours while we are counted. */
static inline void uncount(struct stream *s, uint32_t n)
{
	uint64_t was = atomic_fetch_sub(&s->life, 1ull << n);

	if ((uint16_t)(was >> n) == 1 &&
	    (atomic_load(&s->mode) == MODE_ATTACHED || atomic_load(&s->dead)))
		was_last(s, (uint32_t)(was >> LIFE_GEN));
}

/* We were counted in one that is free. It may be zero by now, or another stream. */
static __attribute__((noinline)) void uncount_late(struct stream *s, uint32_t n, uint32_t gen)
{
	uint64_t was = atomic_load(&s->life);

	while (was >> LIFE_GEN == gen && (uint16_t)(was >> n) &&
	       !atomic_compare_exchange_weak(&s->life, &was, was - (1ull << n)))
		;
}

static void thread_gone(void *unused)
{
	(void)unused;
	while (in.depth)
		if (--in.depth < CALLS)
			uncount(in.call[in.depth].s, in.call[in.depth].n);
	in.keyed = false;
}

void stream_plain_after_fork(void) { in.depth = 0; }

/* At the start of the program: the C library has a place for the values of its first keys, and
 * allocates for the others. */
static pthread_key_t key;
void stream_plain_start(void) { pthread_key_create(&key, thread_gone); }

static __attribute__((noinline)) void note_thread(void)
{
	int e = errno;

	in.keyed = true;
	pthread_setspecific(key, &in);
	errno = e;
}

static inline void leave(struct stream *s, uint32_t n, _Atomic uint64_t *moved, ssize_t r,
			 uint8_t turn)
{
	if (r > 0) {
		/* Two threads that use one plain stream at once may lose a count: not worth a
		 * locked add per call. */
		atomic_store_explicit(
			moved, atomic_load_explicit(moved, memory_order_relaxed) + (uint64_t)r,
			memory_order_relaxed);
		if (atomic_load_explicit(&s->mode, memory_order_relaxed) == MODE_NEW)
			earn(s, (uint64_t)r, turn);
	}
	if (in.depth) {		/* not in a child that was forked inside the call, in a handler:
				 * its counts began anew */
		in.depth--;
		uncount(s, n);
	}
}

/* A non-blocking connect() is under way still, or has failed: a search would end before there is
 * anything to find. */
static bool connecting(struct stream *s)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return s->role == ROLE_CLIENT && !s->earn.bytes &&
	       sys(SYS_getpeername, atomic_load(&s->fd), &peer, &len) < 0;
}

/*
 * A call that may last. What it will move is counted before it: the other end may have earned
 * after the first part of it, and searches for an end that is not marked for a moment only, and
 * for one that does not answer for seconds.
 */
static __attribute__((noinline)) void will_move(struct stream *s, uint64_t n, uint8_t turn)
{
	int e = errno;

	if (atomic_load(&s->mode) != MODE_NEW || !atomic_load(&s->connected))
		return;
	stream_mark(s);
	/* one that is upgraded at once is held like one that earns now */
	if (atomic_load(&s->upgrade) || !connecting(s))
		earn_will_move(s, n, turn);
	errno = e;
}

/* True after the count: it is a plain stream still, or one that stays on TCP for good. */
static inline bool count(struct stream *s, uint32_t n)
{
	uint32_t gen;
	uint8_t m;

	if (atomic_load_explicit(&s->fork_cut, memory_order_relaxed))
		fork_child_touch(s);
	m = atomic_load_explicit(&s->mode, memory_order_relaxed);
	if (m != MODE_NEW && m != MODE_TCP_FOR_NOW)
		return false;
	gen = (uint32_t)(atomic_fetch_add(&s->life, 1ull << n) >> LIFE_GEN);
	if (__builtin_expect(!gen_lives(gen), 0)) {
		uncount_late(s, n, gen);
		return false;
	}
	m = atomic_load(&s->mode);
	if (__builtin_expect(m != MODE_ATTACHED && m != MODE_FREE, 1))
		return true;
	uncount(s, n);	/* who saw the count waits for its end */
	return false;
}

static inline void note_call(uint32_t at, struct stream *s, uint32_t n)
{
	if (at < CALLS) {
		in.call[at].s = s;
		in.call[at].n = n;
	}
}

/* A long send that blocks would last in the kernel, and the cut have to wait for it. But there
 * it goes on when another thread closes the number. */
static __attribute__((noinline)) bool waits_here(struct stream *s)
{
	return atomic_load_explicit(&s->snd.hold.on, memory_order_relaxed) &&
	       !atomic_load(&s->nonblock) && loop_only_other_thread();
}

static inline bool enter(struct stream *s, uint32_t n, size_t moves)
{
	if (!count(s, n))
		return false;
	note_call(in.depth, s, n);
	atomic_signal_fence(memory_order_seq_cst);
	in.depth++;
	atomic_signal_fence(memory_order_seq_cst);
	note_call(in.depth - 1, s, n);	/* a handler that ran before the step has used the place */
	if (__builtin_expect(!in.keyed, 0))
		note_thread();
	if (__builtin_expect(atomic_load_explicit(&s->learns, memory_order_relaxed) & LEARNS_WANT,
			     0) && n == PLAIN_TX) {
		in.depth--;		/* by stream_send() */
		uncount(s, n);
		return false;
	}
	if (__builtin_expect(moves >= MARK_BYTES, 0)) {
		will_move(s, moves, n == PLAIN_TX ? 1 : 2);
		if (n == PLAIN_TX && waits_here(s)) {
			in.depth--;
			uncount(s, n);
			return false;
		}
	}
	return true;
}

bool stream_plain_tx(struct stream *s, size_t n) { return enter(s, PLAIN_TX, n); }
bool stream_plain_rx(struct stream *s, size_t n) { return enter(s, PLAIN_RX, n); }

/* The other half may have been cut over meanwhile: what the kernel said of this one is said of
 * both. */
static __attribute__((noinline)) void failed(struct stream *s)
{
	int e = errno;

	if (e != EAGAIN && atomic_load(&s->link)) {
		stream_lock(s);
		stream_look_for_reset(s);
		stream_unlock(s);
	}
	errno = e;
}

void stream_plain_tx_leave(struct stream *s, ssize_t n)
{
	if (__builtin_expect(n < 0, 0))
		failed(s);
	leave(s, PLAIN_TX, &stream_row(s)->tx_bytes[PATH_TCP], n, 1);
}

ssize_t stream_plain_rx_leave(struct stream *s, ssize_t n)
{
	if (__builtin_expect(n < 0, 0)) {
		failed(s);
		n = stream_kernel_read(s, n);
	}
	leave(s, PLAIN_RX, &stream_row(s)->rx_bytes[PATH_TCP], n, 2);
	return n;
}

bool stream_plain_wait(struct stream *s) { return count(s, PLAIN_RX); }
void stream_plain_wait_leave(struct stream *s) { uncount(s, PLAIN_RX); }
