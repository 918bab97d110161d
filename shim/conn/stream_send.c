/*
 * stream_send.c - the one send core in which every libc variant ends. See stream_io.h.
 *
 * Locks: snd.lock.
 */
#include <signal.h>
#include <sys/stat.h>

#include "base/copy.h"
#include "base/loop.h"
#include "base/signals.h"
#include "base/sys.h"
#include "conn/pull.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_io.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "conn/stream_wait.h"
#include "conn/stream_wake.h"
#include "gpu/gpu.h"
#include "link/patience.h"

/* a receiver that copies out of our memory, and perhaps was stopped there, is waited for so long
 * ... */
#define STUCK_NS     1000000000
/* (so long also if others were waited for in vain: patience.h) ... */
#define STUCK_LEAST_NS 50000000
/* ... and, as an older library does not ring when it has the block, looked at so often */
#define STUCK_LOOK_NS 1000000

/* What is left begins within a chunk. All that the kernel takes, as by one call: who waits for
 * an edge takes a short count for no room. */
static __attribute__((noinline)) long kernel_send_rest(struct stream *s, int fd, struct cursor c,
						       int flags)
{
	struct iovec v[KERNEL_IOVS];
	struct msghdr h = { .msg_iov = v };
	long done = 0, r, whole;

	do {
		h.msg_iovlen = (size_t)cursor_iov(&c, v, KERNEL_IOVS, SIZE_MAX);
		whole = (long)iov_sum(v, h.msg_iovlen);
		r = sys(SYS_sendmsg, fd, &h, done ? flags | MSG_NOSIGNAL : flags);
		if (r < 0) {
			if (done)
				stream_untold(s, r);
			return done ? done : r;
		}
		done += r;
		cursor_step(&c, (size_t)r);
	} while (r == whole && c.left);
	return done;
}

static long kernel_sendv(struct stream *s, int fd, const struct cursor *c, int flags)
{
	struct msghdr h = { .msg_iov = (struct iovec *)c->iov, .msg_iovlen = (size_t)c->n };

	return c->skip ? kernel_send_rest(s, fd, *c, flags) : sys(SYS_sendmsg, fd, &h, flags);
}

static long kernel_send(struct stream *s, int fd, const struct cursor *c, int flags)
{
	stream_learn_may_send(s);
	fdtab_kernel_call();
	if (c->n == 1)
		return sys(SYS_sendto, fd, (char *)c->iov->iov_base + c->skip, c->left, flags, NULL,
			   0);
	return kernel_sendv(s, fd, c, flags);
}

void stream_untold(struct stream *s, long r)
{
	uint8_t plain = MODE_NEW;

	if (r != -ECONNRESET && r != -ETIMEDOUT && r != -EHOSTUNREACH && r != -ENETUNREACH)
		return;
	atomic_store(&s->err, (int)-r);
	atomic_compare_exchange_strong(&s->mode, &plain, MODE_ATTACHED);
}

void stream_sigpipe(int flags)
{
	long pid = sys(SYS_getpid), tid = sys(SYS_gettid);

	if (!(flags & MSG_NOSIGNAL))
		sys(SYS_tgkill, pid, tid, SIGPIPE);
}

/* No error holds, whatever the path. snd.lock held. */
static inline bool tx_sound(struct stream *s)
{
	return !atomic_load(&s->shut.wr) && !s->snd.lost && !atomic_load(&s->err) &&
	       !s->lost.reset_ours && (!atomic_load(&s->peer_gone) || cut_tx_on_tcp(&s->snd.cut));
}

/* 0, or -errno, which is told once. snd.lock held. */
int stream_tx_trouble(struct stream *s)
{
	int e;

	if (tx_sound(s))
		return 0;
	e = atomic_exchange(&s->err, 0);
	return e ? -e : -EPIPE;
}

/* The peer's process has ended, without a reset yet: the kernel takes what comes now, and hears by
 * that of the reset. */
static bool goes_nowhere(const struct stream *s)
{
	return atomic_load(&s->peer_gone) == 1 && !atomic_load(&s->shut.wr) && !s->snd.lost &&
	       !s->lost.reset_ours;
}

/* Blocks with a snapshot go by themselves: from device to device, or as an offer in a common
 * segment. */
static bool takes_snapshots(const struct stream *s)
{
	return stream_path(s)->device || !s->wired;
}

/* The block at the cursor, if the ring is empty; one with a snapshot waits a little for that.
 * Who does not want to wait has other work: to stand by while the receiver copies costs such a
 * thread more than its own copy does, which goes on beside the receiver's. */
static ssize_t offer(struct stream *s, struct cursor *c, bool nonblock, bool *plain)
{
	size_t n = c->iov->iov_len - c->skip;
	struct gpu_ref ref;
	ssize_t r;

	if (n < DIRECT_MIN)
		return 0;
	if (!*plain && atomic_load_explicit(&gpu_sends, memory_order_relaxed) &&
	    takes_snapshots(s)) {
		if (gpu_find((const char *)c->iov->iov_base + c->skip, n, &ref)) {
			const void *at = (const char *)c->iov->iov_base + c->skip;

			r = stream_path(s)->device ? (ssize_t)device_send(s, at, &ref) :
						     direct_send_device(s, at, &ref, !nonblock);
			if (r > 0)
				cursor_step(c, (size_t)r);
			*plain = !r;	/* nobody takes it now */
			return r;
		}
		*plain = ref.len == n;
		n = ref.len;
		if (n < DIRECT_MIN)
			return 0;
	}
	if (nonblock)
		return 0;
	if (s->wired)
		return pull_send(s, (const char *)c->iov->iov_base + c->skip, n);
	if (s->snd.ring.rd != s->snd.ring.wr && ring_tx_refresh(&s->snd.ring))
		return -EPROTO;
	if (s->snd.ring.rd != s->snd.ring.wr)
		return 0;
	r = direct_send(s, (const char *)c->iov->iov_base + c->skip, n);
	if (r > 0)
		cursor_step(c, (size_t)r);
	return r;
}

/* Bytes before the next large block, which may have a snapshot. */
static size_t before_block(const struct cursor *c)
{
	size_t n = c->iov->iov_len - c->skip;

	for (int i = 1; i < c->n && c->iov[i].iov_len < DIRECT_MIN; i++)
		n += c->iov[i].iov_len;
	return n;
}

/* n bytes have been copied behind wr: the receiver may have them. snd.lock held. */
static inline void put_in_ring(struct stream *s, size_t n)
{
	ring_tx_ahead(&s->snd.ring, n);
	ring_tx_publish(&s->snd.ring, n);
	s->snd.cut.wr += n;
	if (stream_notify_peer(s))
		stream_filled(s);
}

/* What most calls are, in a straight line: one small chunk, and room for it in the ring. False,
 * and nothing is done, where anything is out of the ordinary: ring_send() knows all of it.
 * snd.lock held, nothing of the call is sent yet. */
static inline bool short_send(struct stream *s, const struct iovec *iov, int n)
{
	size_t len = iov->iov_len;

	if (n != 1 || len > SHORT_MAX || !cut_tx_on_ring(&s->snd.cut) || !tx_sound(s) ||
	    s->direct.stuck || s->direct.done || !s->snd.held)
		return false;
	if (ring_tx_room(&s->snd.ring) < len ||
	    usermem_ok(&s->snd.mem, iov->iov_base, len, false) < len)
		return false;
	ring_tx_copy(&s->snd.ring, 0, iov->iov_base, len);
	count(&s->moves.fast_bytes[0], len);
	put_in_ring(s, len);
	return true;
}

/* n bytes of the cursor behind wr, where there is room. False: not all of them can be read, and
 * where the cursor stands says nothing. snd.lock held. */
static bool copy_in(struct stream *s, struct cursor *c, size_t n)
{
	for (size_t at = 0; at < n;) {
		size_t part = c->iov->iov_len - c->skip, good;
		char *p = (char *)c->iov->iov_base + c->skip;

		if (part > n - at)
			part = n - at;
		good = part ? usermem_ok(&s->snd.mem, p, part, false) : 0;
		if (good >= COPY_SHARE_MIN)
			ring_tx_copy_by(&s->snd.ring, at, p, good, copy_shared);
		else if (good)
			ring_tx_copy(&s->snd.ring, at, p, good);
		if (good < part)
			return false;
		at += part;
		cursor_step(c, part);
		if (at < n)
			cursor_skip_empty(c);
	}
	return true;
}

/* The ring has too little room. snd.lock held. */
void stream_short_of_room(struct stream *s, size_t want, bool nonblock)
{
	if (nonblock)
		stream_enlarge(s, want);
	stream_waits_for_room(s);
}

/* How much is published at once. With a wire each one is a record, and perhaps wakes the reader. */
static size_t chunk_for(const struct stream *s, size_t left)
{
	size_t chunk = PUBLISH_CHUNK * copy_threads_for(left), quarter;

	quarter = s->wired ? (s->snd.ring.size - s->snd.ring.unused) / 4 : 0;
	return quarter > chunk ? quarter : chunk;
}

/* Copies what fits into the ring. Count, -EPROTO, or -EFAULT if not even the first byte can be
 * read. snd.lock held. */
static ssize_t ring_send(struct stream *s, struct cursor *c, bool nonblock, bool *stuck)
{
	size_t done = 0, chunk = chunk_for(s, c->left), copied = 0;
	bool plain = false;

	if (stream_block_in_way(s))
		return 0;
	if (s->device.out)
		device_settle(s);
	if (ring_tx_room(&s->snd.ring) < c->left) {
		if (ring_tx_refresh(&s->snd.ring))
			return -EPROTO;
		if (ring_tx_room(&s->snd.ring) < c->left)
			stream_short_of_room(s, c->left, nonblock);
	}
	while (c->left) {
		struct cursor before;
		uint64_t room;
		size_t n;

		if (c->left >= DIRECT_MIN) {
			ssize_t r = offer(s, c, nonblock, &plain);

			if (r == -EBUSY) {
				*stuck = true;
				break;
			}
			if (r < 0)
				return r;
			done += (size_t)r;
			if (r)
				continue;
		}
		room = ring_tx_room(&s->snd.ring);
		n = c->left < room ? c->left : room;
		if (!n) {
			if (ring_tx_refresh(&s->snd.ring))
				return -EPROTO;
			if (!ring_tx_room(&s->snd.ring) && !stream_more_room(s) &&
			    !stream_look_at_wire(s))
				break;
			continue;
		}
		if (n > chunk)
			n = chunk;
		if (n < c->left && before_block(c) && before_block(c) < n &&
		    atomic_load_explicit(&gpu_sends, memory_order_relaxed))
			n = before_block(c);
		before = *c;
		if (!copy_in(s, c, n)) {
			*c = before;	/* the kernel drops its whole chunk, too */
			if (done)
				break;
			return -EFAULT;
		}
		put_in_ring(s, n);
		done += n;
		copied += n;
	}
	copy_done(copied);
	count(&s->moves.fast_bytes[0], done);
	return (ssize_t)done;
}

/* A non-blocking caller will be told of room by an event; and if nobody ever reads, TCP takes
 * over. */
bool stream_ring_still_full(struct stream *s)
{
	segment_want_room(&s->snd.ring);
	ring_tx_refresh(&s->snd.ring);
	if (ring_tx_room(&s->snd.ring) || (stream_more_room(s) && ring_tx_room(&s->snd.ring)))
		return false;
	if (!atomic_exchange(&s->snd.ring_full, 1))
		bg_look(s);
	return true;
}

/* The block is the receiver's until it has finished, but not for ever. Bytes that it took.
 * snd.lock held, and given for a while; the program's handlers wait, for one that jumps out
 * would leave the block to nobody. */
static size_t await_take(struct stream *s, uint32_t gen)
{
	struct bell *b;
	uint64_t until, most = patience_ns(PATIENCE_CALL, atomic_load(&s->link), STUCK_NS);
	uint64_t start = now_ns(), now = start, n;

	most = most > STUCK_LEAST_NS ? most : STUCK_LEAST_NS;
	lock_leave(&s->snd.lock);
	b = bell_thread();
	lock_back(&s->snd.lock);
	/* Closed: then it was settled. */
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) != gen)
		return 0;
	if (b)
		stream_bell_add(s, b, false);
	for (; s->direct.stuck; now = now_ns()) {
		if (now - start > most && direct_late(s))
			patience_spent(PATIENCE_CALL, atomic_load(&s->link), now - start);
		if (b)
			bell_arm(b);
		segment_want_room(&s->snd.ring);	/* who has the block rings */
		if (direct_settle(s, now - start > most || atomic_load(&s->peer_gone))) {
			if (b)
				bell_disarm(b);
			break;
		}
		until = now + STUCK_LOOK_NS;
		if (s->direct.until > now && s->direct.until < until)
			until = s->direct.until;
		lock_leave(&s->snd.lock);
		stream_doze(b, until);
		lock_back(&s->snd.lock);
		if (atomic_load_explicit(&s->gen, memory_order_relaxed) != gen)
			return 0;
	}
	n = s->direct.done;
	s->direct.done = 0;
	return (size_t)n;
}

/* A call that sends, while it is under way. */
struct sending {
	struct cursor c;
	size_t done;
	/* of the attempt */
	bool ours;		/* its EPIPE: the kernel raises SIGPIPE itself for its own */
	bool stuck;		/* its block was given back to it, or taken: on with the rest */
	bool theirs;		/* another thread's block is in the way */
	uint32_t seen;		/* ... as of then, for event_wait() */
};

static void sent(struct sending *x, size_t n)
{
	x->done += n;
	cursor_step(&x->c, n);
}

/* Through the ring. -EAGAIN, with what was sent in x, or -errno. snd.lock held, and given for a
 * while where a block is stuck. */
static long send_by_ring(struct stream *s, struct sending *x, uint32_t gen, bool nonblock)
{
	long r;

	do
		r = ring_send(s, &x->c, nonblock, &x->stuck);
	while (r >= 0 && x->c.left && nonblock && !x->stuck && !stream_block_in_way(s) &&
	       !stream_ring_still_full(s) && (x->done += (size_t)r, true));
	if (r == -EPROTO) {
		stream_protocol_error(s);
		r = -ECONNRESET;
	}
	if (r >= 0) {
		x->done += (size_t)r;
		r = -EAGAIN;
	}
	x->theirs = !x->stuck && s->direct.stuck;
	if (x->theirs)
		x->seen = event_look(&stream_steps);
	if (x->stuck && s->pull.open) {
		sent(x, pull_await(s, gen));
		stream_tx_put_off(s);
	} else if (x->stuck) {
		sent(x, await_take(s, gen));
	}
	return r;
}

static void sent_by_tcp(struct stream *s, struct sending *x, size_t n)
{
	s->snd.cut.wr += n;
	atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], n, memory_order_relaxed);
	sent(x, n);
}

/* By TCP. The same. */
static long send_by_tcp(struct stream *s, int fd, struct sending *x, int flags)
{
	long r = 0;

	if (__builtin_expect(atomic_load_explicit(&s->learns, memory_order_relaxed) & LEARNS_WANT,
			     0)) {
		cursor_skip_empty(&x->c);
		r = stream_learn_send(s, fd, (char *)x->c.iov->iov_base + x->c.skip,
				      x->c.iov->iov_len - x->c.skip, flags | MSG_DONTWAIT);
		if (r > 0)
			sent_by_tcp(s, x, (size_t)r);
	}
	if (r >= 0 && x->c.left)
		r = kernel_send(s, fd, &x->c, flags | MSG_DONTWAIT);
	else if (r > 0)
		return -EAGAIN;
	/* Its FIN waits until we have read all, so the kernel does not know that this comes after
	 * it. */
	if (r == -ECONNRESET && stream_final_seen(s)) {
		x->ours = true;
		return -EPIPE;
	}
	if (r <= 0)
		return r;
	sent_by_tcp(s, x, (size_t)r);
	return -EAGAIN;
}

/* One attempt, on whatever carries the direction now. -EAGAIN: what could be sent is in x; or
 * -errno. snd.lock held. */
static long send_some(struct stream *s, int fd, struct sending *x, uint32_t gen, int flags,
		      bool nonblock)
{
	long r = stream_tx_trouble(s);

	x->ours = r < 0;
	if (r == -EPIPE && goes_nowhere(s)) {
		x->ours = false;
		r = kernel_send(s, fd, &x->c, flags | MSG_DONTWAIT);
		if (r <= 0)
			return r;
		sent(x, (size_t)r);
		return -EAGAIN;
	}
	if (r)
		return r;
	if (cut_tx_on_ring(&s->snd.cut) && ring_memory_ready(s))
		return send_by_ring(s, x, gen, nonblock);
	if (cut_tx_on_tcp(&s->snd.cut))
		return send_by_tcp(s, fd, x, flags);
	return -EAGAIN;		/* a rewind is under way */
}

ssize_t stream_send(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct call call = { .mark = signals_mark() };
	struct sending x;
	/* the struct may be another stream's after a sleep */
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed), epoch;
	bool nonblock, hiccup, late = false;
	long r;

	x.done = 0;
	r = cursor_init(&x.c, iov, n);
	if (r)
		return r;
	if (!x.c.left)
		return sys(SYS_sendto, fd, NULL, 0, flags, NULL, 0);
	for (;;) {
		lock_take(&s->snd.lock);
		x.stuck = x.theirs = false;
		if (!x.c.left || !stream_still_named(s, gen, &fd)) {
			lock_give(&s->snd.lock);
			return x.done ? (ssize_t)x.done : -EBADF;
		}
		/* what a handler has sent meanwhile would lie in the middle */
		if (x.done && signals_since(call.mark)) {
			lock_give(&s->snd.lock);
			return (ssize_t)x.done;
		}
		atomic_store_explicit(&s->one_way, 0, memory_order_relaxed);
		if (!x.done && short_send(s, iov, n)) {
			lock_give(&s->snd.lock);
			return (ssize_t)iov->iov_len;
		}
		nonblock = late || flags & MSG_DONTWAIT ||
			   atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		r = send_some(s, fd, &x, gen, flags, nonblock);
		hiccup = r == -EAGAIN && !x.stuck && nonblock && x.c.left && !x.done &&
			 !call.switched_path && stream_tx_coming(s);
		epoch = s->snd.cut.epoch;
		if (x.done)
			stream_untold(s, r);
		lock_give(&s->snd.lock);
		if (hiccup) {
			stream_ride_out(s, fd, EPOLLOUT, epoch, &call);
			continue;
		}
		if (x.stuck)
			continue;
		if (!x.c.left)
			return (ssize_t)x.done;
		/* another thread's block: the ring has room, so nothing else would wait for it */
		if (x.theirs && !nonblock) {
			event_wait(&stream_steps, x.seen, now_ns() + THEIRS_NS);
			continue;
		}
		if (r == -EPIPE && x.ours && !x.done)
			stream_sigpipe(flags);
		if (r != -EAGAIN || nonblock)
			return x.done ? (ssize_t)x.done : r;
		call.done = x.done;
		r = stream_call_wait(s, fd, EPOLLOUT, &call, &late);
		if (r)
			return x.done ? (ssize_t)x.done : r;
	}
}
