/*
 * stream_send.c - the one send core that every libc variant ends in. See stream_io.h.
 *
 * Locks: snd.lock.
 */
#include <signal.h>
#include <sys/stat.h>

#include "base/copy.h"
#include "base/signals.h"
#include "base/sys.h"
#include "conn/pull.h"
#include "conn/stream_int.h"
#include "conn/stream_io.h"
#include "conn/stream_learn.h"
#include "conn/stream_wait.h"
#include "gpu/cuda.h"
#include "base/loop.h"
#include "link/patience.h"

/* a receiver that copies out of our memory, and perhaps was stopped there, is waited for so long
 * ... */
#define STUCK_NS     1000000000
/* (so long also if others were waited for in vain: patience.h) ... */
#define STUCK_LEAST_NS 50000000
/* ... and, as an older library does not ring when it has the block, looked at so often */
#define STUCK_LOOK_NS 1000000

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

/* A call that sends, while it is under way. */
struct sending {
	struct cursor c;
	size_t done;
	int fd;
	uint32_t gen;
	/* of the attempt */
	bool ours;		/* its EPIPE: the kernel raises SIGPIPE itself for its own */
	bool mine;		/* the turn, still */
	/* at once, with what is there now: the machine has stepped meanwhile */
	bool again;
	bool stuck;		/* its block was given back to it, or taken: on with the rest */
	bool theirs;		/* another thread's block is in the way */
	uint32_t seen;		/* ... as of then, for event_wait() */
};

static void sent(struct sending *x, size_t n)
{
	x->done += n;
	cursor_moved(&x->c, n);
}

/* Where a copy goes while the lock is free. */
struct place { struct ring_tx ring; uint32_t epoch; };

static inline struct place place_of(const struct stream *s)
{
	return (struct place){ { .buf = s->snd.ring.buf,
				 .size = s->snd.ring.size,
				 .wr = s->snd.ring.wr },
			       s->snd.cut.epoch };
}

/* The lock is taken again. False: what was copied there counts for nothing. */
static inline bool same_place(struct stream *s, const struct place *p)
{
	return cut_tx_on_ring(&s->snd.cut) && s->snd.cut.epoch == p->epoch &&
	       s->snd.ring.wr == p->ring.wr && s->snd.ring.buf == p->ring.buf &&
	       s->snd.ring.size == p->ring.size && !s->snd.cut.closing && tx_sound(s) &&
	       !atomic_load(&s->dead);
}

/* The lock was free: is x->fd the stream's still, and is it the kernel's turn? */
static bool still_by_tcp(struct stream *s, struct sending *x)
{
	return stream_still_named(s, x->gen, &x->fd) &&
	       (cut_tx_on_tcp(&s->snd.cut) ? tx_sound(s) : goes_nowhere(s));
}

/* Behind a block that was taken: to the next chunk. 0, -ESTALE. snd.lock held, and given for a
 * while. */
static ssize_t to_next_chunk(struct stream *s, struct cursor *c)
{
	struct place at = place_of(s);

	if (!c->owed)
		return 0;
	lock_leave(&s->snd.lock);
	cursor_settle(c);
	lock_back(&s->snd.lock);
	return same_place(s, &at) ? 0 : -ESTALE;
}

/* What is not there yet, as of a file on a slow disk, our call waits for, and not whoever reads
 * it, who may have others to serve. False: it cannot be read. Without the lock. */
static bool present(struct usermem *m, const struct iovec *v)
{
	const volatile uint8_t *at = v->iov_base;

	if (usermem_ok(m, v->iov_base, v->iov_len, false) < v->iov_len)
		return false;
	for (size_t i = 0; i < v->iov_len; i += 4096)	/* the smallest page that there is */
		(void)at[i];
	(void)at[v->iov_len - 1];
	return true;
}

/* The first n bytes of the chunk. As direct_send(), or -ESTALE: the stream went on meanwhile.
 * snd.lock held, and given for a while. */
static ssize_t offer_plain(struct stream *s, struct sending *x, size_t n)
{
	struct iovec v = { x->c.here.iov_base, n };
	struct usermem mem = s->snd.mem;
	bool far = s->wired;
	struct place to;
	bool good;

	if (!far && s->snd.ring.rd != s->snd.ring.wr && ring_tx_refresh(&s->snd.ring))
		return -EPROTO;
	if (far ? !pull_may(s, n) : s->snd.ring.rd != s->snd.ring.wr || !direct_may(s))
		return 0;
	to = place_of(s);
	lock_leave(&s->snd.lock);
	good = present(&mem, &v);
	lock_back(&s->snd.lock);
	if (!same_place(s, &to))
		return -ESTALE;
	usermem_learned(&s->snd.mem, &mem);
	if (!good)
		return 0;
	return far ? pull_send(s, v.iov_base, n) : direct_send(s, v.iov_base, n);
}

/* The block at the cursor, if the ring is empty; one with a snapshot waits a little for that.
 * Who does not want to wait has other work: to stand by while the receiver copies costs such a
 * thread more than its own copy does, which goes on beside the receiver's. */
static ssize_t offer(struct stream *s, struct sending *x, bool nonblock, bool *plain)
{
	size_t n = x->c.here.iov_len;
	const void *at = x->c.here.iov_base;
	struct cuda_ref ref;
	ssize_t r;

	if (n < DIRECT_MIN)
		return 0;
	if (!*plain && atomic_load_explicit(&cuda_sends, memory_order_relaxed) &&
	    takes_snapshots(s)) {
		if (cuda_find(at, n, &ref)) {
			r = stream_path(s)->device ? (ssize_t)device_send(s, at, &ref) :
						     direct_send_device(s, at, &ref, !nonblock);
			*plain = !r;	/* nobody takes it now */
			return r;
		}
		*plain = ref.len == n;
		n = ref.len;
		if (n < DIRECT_MIN)
			return 0;
	}
	return nonblock ? 0 : offer_plain(s, x, n);
}

/* Bytes before the next large block, which may have a snapshot. Without the lock. */
static size_t before_block(const struct cursor *c)
{
	size_t n = c->here.iov_len;

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
	count(&s->moves.fast_bytes[0], n);
	if (stream_notify_peer(s))
		stream_filled(s);
}

/* What most calls are, in a straight line: one small chunk, and room for it in the ring. False,
 * and nothing is done, where anything is out of the ordinary: ring_send() knows all of it.
 * `own`: a copy, NULL: the lock is given for a while. snd.lock held, and given back if it is done;
 * nothing of the call is sent yet. */
static inline bool short_send(struct stream *s, const struct iovec *iov, const char *own)
{
	size_t len = iov->iov_len;

	if (!cut_tx_on_ring(&s->snd.cut) || !tx_sound(s) || s->direct.stuck || s->direct.done ||
	    !s->snd.held || atomic_load_explicit(&s->snd.turn, memory_order_relaxed) ||
	    ring_tx_room(&s->snd.ring) < len)
		return false;
	if (own) {
		ring_tx_copy_by(&s->snd.ring, 0, own, len, small_copier);
	} else {
		struct place to = place_of(s);

		turn_take(&s->snd.turn);
		lock_leave(&s->snd.lock);
		ring_tx_copy(&to.ring, 0, iov->iov_base, len);
		lock_back(&s->snd.lock);
		if (!same_place(s, &to)) {
			turn_over(s, &s->snd.lock, &s->snd.turn);
			lock_take(&s->snd.lock);
			return false;
		}
	}
	put_in_ring(s, len);
	if (own)
		lock_give(&s->snd.lock);
	else
		turn_over(s, &s->snd.lock, &s->snd.turn);
	return true;
}

/* Up to n bytes of the cursor behind wr, where there is room. Bytes; -EFAULT: not all of them can
 * be read, or -ESTALE: they count for nothing, and where the cursor stands says nothing. snd.lock
 * held, and given for a while. */
static ssize_t copy_in(struct stream *s, struct cursor *c, size_t n)
{
	struct place to = place_of(s);
	struct usermem mem = s->snd.mem;
	size_t at = 0, good = 0, part = 0;

	lock_leave(&s->snd.lock);
	cursor_settle(c);
	if (atomic_load_explicit(&cuda_sends, memory_order_relaxed) && n < c->left &&
	    before_block(c) && before_block(c) < n)
		n = before_block(c);
	for (; at < n && good == part; at += part) {
		char *p = c->here.iov_base;

		part = c->here.iov_len < n - at ? c->here.iov_len : n - at;
		good = usermem_ok(&mem, p, part, false);
		if (good >= COPY_SHARE_MIN)
			ring_tx_copy_by(&to.ring, at, p, good, copy_shared);
		else if (good)
			ring_tx_copy(&to.ring, at, p, good);
		cursor_step(c, good);
	}
	lock_back(&s->snd.lock);
	if (!same_place(s, &to))
		return -ESTALE;
	usermem_learned(&s->snd.mem, &mem);
	return good == part ? (ssize_t)n : -EFAULT;
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

/* There may be more room than is known. False: there is none; -EPROTO. snd.lock held. */
static int more_room(struct stream *s)
{
	if (ring_tx_refresh(&s->snd.ring))
		return -EPROTO;
	return ring_tx_room(&s->snd.ring) || stream_more_room(s) || stream_look_at_wire(s);
}

/* One chunk into the ring, where there is room. Count; 0: no room; -errno. snd.lock held, and given
 * for a while. */
static ssize_t chunk_send(struct stream *s, struct sending *x, size_t chunk)
{
	uint64_t room = ring_tx_room(&s->snd.ring);
	size_t n = x->c.left < room ? x->c.left : room;
	struct cursor before = x->c;
	ssize_t r = copy_in(s, &x->c, n < chunk ? n : chunk);

	if (r < 0)
		x->c = before;	/* the kernel drops its whole chunk, too */
	else
		put_in_ring(s, (size_t)r);
	return r;
}

/* Copies what fits into the ring. Count, -EPROTO, or -EFAULT if not even the first byte can be
 * read. snd.lock held, and given for a while. */
static ssize_t ring_send(struct stream *s, struct sending *x, bool nonblock)
{
	size_t done = 0, chunk = chunk_for(s, x->c.left), copied = 0;
	bool plain = false;
	ssize_t r = 0;

	if (stream_block_in_way(s))
		return 0;
	if (s->device.out)
		device_settle(s);
	if (ring_tx_room(&s->snd.ring) < x->c.left) {
		if (ring_tx_refresh(&s->snd.ring))
			return -EPROTO;
		if (ring_tx_room(&s->snd.ring) < x->c.left)
			stream_short_of_room(s, x->c.left, nonblock);
	}
	while (x->c.left) {
		r = to_next_chunk(s, &x->c);
		if (!r && x->c.left >= DIRECT_MIN)
			r = offer(s, x, nonblock, &plain);
		if (r > 0) {
			cursor_moved(&x->c, (size_t)r);
			count(&s->moves.fast_bytes[0], (size_t)r);
		}
		if (!r && !ring_tx_room(&s->snd.ring)) {
			r = more_room(s);
			if (r <= 0)
				break;
			continue;
		}
		if (!r) {
			r = chunk_send(s, x, chunk);
			copied += r > 0 ? (size_t)r : 0;
		}
		if (r < 0)
			break;
		done += (size_t)r;
	}
	copy_done(copied);
	x->again = r == -ESTALE;
	x->stuck = r == -EBUSY;
	return r >= 0 || r == -ESTALE || r == -EBUSY || (r == -EFAULT && done) ? (ssize_t)done : r;
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
static size_t await_take(struct stream *s, struct sending *x)
{
	struct bell *b;
	uint64_t until, most = patience_ns(PATIENCE_CALL, atomic_load(&s->link), STUCK_NS);
	uint64_t start = now_ns(), now = start, n;

	most = most > STUCK_LEAST_NS ? most : STUCK_LEAST_NS;
	critical_enter();
	turn_over(s, &s->snd.lock, &s->snd.turn);	/* others find the block in the way */
	x->mine = false;
	b = bell_thread();
	lock_take(&s->snd.lock);
	critical_leave();
	/* Closed: then it was settled. */
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) != x->gen)
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
		critical_enter();
		lock_give(&s->snd.lock);
		stream_doze(b, until);
		lock_take(&s->snd.lock);
		critical_leave();
		if (atomic_load_explicit(&s->gen, memory_order_relaxed) != x->gen)
			return 0;
	}
	n = s->direct.done;
	s->direct.done = 0;
	return (size_t)n;
}

/* Through the ring. -EAGAIN, with what was sent in x, or -errno. snd.lock held, and given for a
 * while. */
static long send_by_ring(struct stream *s, struct sending *x, bool nonblock)
{
	long r;

	do
		r = ring_send(s, x, nonblock);
	while (r >= 0 && x->c.left && nonblock && !x->stuck && !x->again &&
	       !stream_block_in_way(s) && !stream_ring_still_full(s) &&
	       (x->done += (size_t)r, true));
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
		turn_lend(s, &s->snd.turn);	/* others find the block in the way */
		x->mine = false;
		sent(x, pull_await(s, x->gen));
		stream_tx_put_off(s);
	} else if (x->stuck) {
		sent(x, await_take(s, x));
	}
	return r;
}

/* The first bytes may tell of the other end: stream_learn.h. */
static long to_kernel(struct stream *s, int fd, const char *p, size_t n, int flags)
{
	long r = 0, more;

	if (__builtin_expect(atomic_load_explicit(&s->learns, memory_order_relaxed) & LEARNS_WANT,
			     0))
		r = stream_learn_send(s, fd, p, n, flags);
	if (r < 0 || (size_t)r == n)
		return r;
	more = sys(SYS_sendto, fd, p + r, n - (size_t)r, r ? flags | MSG_NOSIGNAL : flags, NULL, 0);
	return r && more < 0 ? r : r + more;
}

/* By TCP, from memory of ours. The same. */
static long send_by_tcp(struct stream *s, struct sending *x, int flags)
{
	char own[SMALL_MAX];
	struct bounce b;
	size_t n;
	long r;

	fdtab_kernel_call();
	bounce_take(&b, x->c.left, false, own, sizeof own);
	do {
		struct usermem mem = s->snd.mem;
		struct cursor c = x->c;

		lock_leave(&s->snd.lock);
		cursor_settle(&c);
		n = cursor_get(&c, &mem, b.p, c.left < b.size ? c.left : b.size);
		lock_back(&s->snd.lock);
		r = -EFAULT;
		x->again = !still_by_tcp(s, x);
		if (x->again || !n)
			break;
		usermem_learned(&s->snd.mem, &mem);
		r = to_kernel(s, x->fd, b.p, n,
			      flags | MSG_DONTWAIT | (x->done ? MSG_NOSIGNAL : 0));
		if (r <= 0)
			break;
		sent(x, (size_t)r);
		if (!cut_tx_on_tcp(&s->snd.cut))
			continue;
		s->snd.cut.wr += (uint64_t)r;
		atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], (uint64_t)r,
					  memory_order_relaxed);
	} while ((size_t)r == n && x->c.left);
	bounce_give(&b);
	if (r > 0 || x->again)
		return -EAGAIN;
	/* Its FIN waits until we have read all, so the kernel does not know that this comes after
	 * it. */
	if (r == -ECONNRESET && stream_final_seen(s)) {
		x->ours = true;
		return -EPIPE;
	}
	return r;
}

/* One attempt, on whatever carries the direction now. -EAGAIN: what could be sent is in x; or
 * -errno. snd.lock held, and given for a while. */
static long send_some(struct stream *s, struct sending *x, int flags, bool nonblock)
{
	long r = stream_tx_trouble(s);

	x->ours = r < 0;
	if (r == -EPIPE && goes_nowhere(s)) {
		x->ours = false;
		return send_by_tcp(s, x, flags);
	}
	if (r)
		return r;
	if (cut_tx_on_ring(&s->snd.cut) && ring_ready(s))
		return send_by_ring(s, x, nonblock);
	if (cut_tx_on_tcp(&s->snd.cut))
		return send_by_tcp(s, x, flags);
	return -EAGAIN;		/* W, R: a rewind is under way */
}

/* As stream_send(). locked: snd.lock is held, there is one chunk, and it is the stream's. */
static __attribute__((noinline)) ssize_t send_long(struct stream *s, int fd,
						   const struct iovec *iov, int n, int flags,
						   uint32_t gen, bool locked)
{
	struct call call = { .mark = signals_mark() };
	struct sending x = { .fd = fd, .gen = gen };
	uint32_t epoch;
	bool nonblock, hiccup, late = false;
	long r;

	r = cursor_init(&x.c, iov, n);
	if (r || !x.c.left) {
		if (locked)
			lock_give(&s->snd.lock);
		return r ? r : sys(SYS_sendto, fd, NULL, 0, flags, NULL, 0);
	}
	for (;; locked = false) {
		if (!locked)
			lock_take(&s->snd.lock);
		x.stuck = x.theirs = false;
		if (!x.c.left || !stream_still_named(s, gen, &x.fd)) {
			lock_give(&s->snd.lock);
			return x.done ? (ssize_t)x.done : -EBADF;
		}
		x.mine = turn_take(&s->snd.turn);
		if (!x.mine) {
			turn_wait(&s->snd.lock, &s->snd.turn);
			continue;
		}
		atomic_store_explicit(&s->one_way, 0, memory_order_relaxed);
		nonblock = late || flags & MSG_DONTWAIT ||
			   atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		/* in one go: a handler that ran in between would send into the middle */
		do {
			x.again = false;
			r = send_some(s, &x, flags, nonblock);
		} while (x.again && stream_still_named(s, gen, &x.fd));
		hiccup = r == -EAGAIN && !x.stuck && !x.again && nonblock && x.c.left && !x.done &&
			 !call.switched_path && stream_tx_coming(s);
		epoch = s->snd.cut.epoch;
		if (x.done)
			stream_untold(s, r);
		if (x.mine)
			turn_over(s, &s->snd.lock, &s->snd.turn);
		else
			lock_give(&s->snd.lock);
		if (hiccup) {
			stream_ride_out(s, x.fd, EPOLLOUT, epoch, &call);
			continue;
		}
		if (x.stuck || x.again)
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
		r = stream_call_wait(s, x.fd, EPOLLOUT, &call, &late);
		if (r)
			return x.done ? (ssize_t)x.done : r;
	}
}

ssize_t stream_send(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	/* the struct may be another stream's after a sleep */
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	char own[SMALL_MAX];
	struct iovec v;
	bool small;

	if (n != 1)
		return send_long(s, fd, iov, n, flags, gen, false);
	v = *iov;
	if (v.iov_len - 1 >= SHORT_MAX || !usermem_known(&s->snd.mem, v.iov_base, v.iov_len))
		return send_long(s, fd, &v, 1, flags, gen, false);
	small = v.iov_len <= SMALL_MAX;
	critical_enter();	/* a handler may write there, before the call or after it */
	if (small)
		copy_small(own, v.iov_base, v.iov_len);
	lock_back(&s->snd.lock);
	if (!stream_still_named(s, gen, &fd)) {
		lock_give(&s->snd.lock);
		return -EBADF;
	}
	atomic_store_explicit(&s->one_way, 0, memory_order_relaxed);
	if (short_send(s, &v, small ? own : NULL))
		return (ssize_t)v.iov_len;
	return send_long(s, fd, &v, 1, flags, gen, true);
}
