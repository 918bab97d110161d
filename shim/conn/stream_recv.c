/*
 * stream_recv.c - the one receive core that every libc variant ends in. See stream_io.h.
 *
 * Locks: rcv.lock, and snd.lock under that where a reader finds the peer dead.
 */

#include <netinet/tcp.h>

#include "base/copy.h"
#include "base/loop.h"
#include "base/seen.h"
#include "base/signals.h"
#include "base/sys.h"
#include "conn/pull.h"
#include "conn/stream_int.h"
#include "conn/stream_recv.h"
#include "conn/stream_wait.h"
#include "gpu/cuda.h"

/* What a read gives when the ring (and TCP before it) is empty for good. 0 = EOF. EPIPE, of a
 * reset after the FIN, is told to those who send, or ask for SO_ERROR: for reads the FIN counts
 * (SOCK_DONE in tcp_recvmsg_locked(), net/ipv4/tcp.c). */
static long at_the_end(struct stream *s)
{
	int e = atomic_exchange(&s->err, 0), none = 0;

	if (e != EPIPE)
		return -e;
	atomic_compare_exchange_strong(&s->err, &none, EPIPE);
	return 0;
}

/* A read of the kernel's gives EPIPE where stream_reset() has disconnected the socket: to those
 * who slept in it (sk_wait_event() in include/net/sock.h), and as what was left of an RST after
 * the FIN. */
ssize_t stream_kernel_read(struct stream *s, ssize_t n)
{
	long r;

	if (n >= 0 || errno != EPIPE || atomic_load(&s->peer_gone) != 2)
		return n;
	r = at_the_end(s);
	if (r)
		errno = (int)-r;
	return r ? -1 : 0;
}

/* The peer is dead and all is read. rcv.lock held. */
static bool ring_ended(struct stream *s)
{
	if (!atomic_load(&s->peer_gone))
		return false;
	ring_rx_refresh(&s->rcv.ring);	/* its last bytes came before its end */
	return !ring_rx_avail(&s->rcv.ring);
}

/* A read that must not block has been made. True: by one who seems to wait by that. rcv.lock
 * held. */
static bool asks_again(struct stream *s, long r)
{
	bool known = atomic_load_explicit(&s->waits_seen, memory_order_relaxed);
	bool empty_reads = poller_read(&s->rcv.poller, r == -EAGAIN, known);

	SEEN("poller", s, "read", r == -EAGAIN, known, empty_reads);
	return empty_reads;
}

/* n bytes of the ring have been copied out: the sender may have their place. rcv.lock held. */
static inline void took_from_ring(struct stream *s, size_t n)
{
	ring_rx_consume(&s->rcv.ring, n);
	s->rcv.cut.rd += n;
	count(&s->moves.fast_bytes[PATH_KINDS], n);
	stream_consumed(s);
}

/* As short_send(): one small buffer, bytes in the ring and nothing before them. Their count, or
 * 0: nothing is done. `own`: where they go first, NULL: the lock is given for a while. rcv.lock
 * held, and given back if it is done. */
static inline size_t short_recv(struct stream *s, void *to, size_t len, char *own)
{
	size_t avail;

	if (s->rcv.cut.state != CUT_RX_K || s->rcv.cut.rd < s->rcv.cut.cut_at ||
	    s->rcv.cut.back_pending || s->rcv.ring.dev_hi > s->rcv.ring.rd ||
	    atomic_load_explicit(&s->rcv.turn, memory_order_relaxed) || atomic_load(&s->peer_gone))
		return 0;
	avail = ring_rx_avail(&s->rcv.ring);
	if (avail < len) {
		if (ring_rx_refresh(&s->rcv.ring))
			return 0;
		avail = ring_rx_avail(&s->rcv.ring);
		if (s->rcv.ring.dev_hi > s->rcv.ring.rd)
			return 0;
		if (avail < len) {
			len = avail;
			if (stream_owes(s, len, false))
				return 0;
		}
	}
	if (!len)
		return 0;
	if (own) {
		ring_rx_copy_by(&s->rcv.ring, 0, own, len, small_copier);
	} else {
		struct turn was = turn_of(s);
		struct ring_rx ring = s->rcv.ring;

		turn_take(&s->rcv.turn);
		lock_leave(&s->rcv.lock);
		ring_rx_copy(&ring, 0, to, len);
		lock_back(&s->rcv.lock);
		if (!still_its_turn(s, &was) || atomic_load(&s->dead)) {
			turn_over(s, &s->rcv.lock, &s->rcv.turn);
			lock_take(&s->rcv.lock);
			return 0;
		}
	}
	took_from_ring(s, len);
	/* a BACK has come meanwhile, of which these were the last bytes */
	if (!own && s->rcv.cut.back_pending)
		stream_rx_event(s, CUT_EV_CREDIT, 0, s->rcv.cut.rd);
	if (atomic_load_explicit(&s->nonblock, memory_order_relaxed))
		asks_again(s, (long)len);
	if (own) {
		lock_leave(&s->rcv.lock);
		copy_small(to, own, len);
		critical_leave();
	} else {
		turn_over(s, &s->rcv.lock, &s->rcv.turn);
	}
	return len;
}

/* What is left as an array. Chunks; 0: the stream went on. rcv.lock held, and given for a while. */
static int chunks_left(struct stream *s, struct receiving *x, struct iovec *v, int cap, size_t max)
{
	struct apart a;
	int n;

	if (x->c.iov == &x->c.one)
		return cursor_iov(&x->c, v, cap, max);
	apart_begins(s, &a);
	cursor_settle(&x->c);
	n = cursor_iov(&x->c, v, cap, max);
	return apart_ends(s, x, &a) ? n : 0;
}

/* Up to n bytes that lie in device memory. Count, or -EAGAIN: the direction falls back. rcv.lock
 * held, and given for a while. */
static ssize_t device_chunk(struct stream *s, struct receiving *x, size_t n, uint64_t peeked)
{
	struct iovec v[16];
	ssize_t r = (ssize_t)n;
	int chunks;

	if (!(x->flags & MSG_TRUNC)) {
		chunks = chunks_left(s, x, v, 16, n);
		if (x->again)
			return -ESTALE;
		/* cppcheck-suppress uninitvar; cursor_iov() fills v in */
		r = device_recv(s, s->rcv.ring.rd + peeked, n, v, chunks, x->flags & MSG_PEEK);
	}
	if (r < 0)
		return r;
	cursor_moved(&x->c, (size_t)r);
	if (!(x->flags & MSG_PEEK))
		took_from_ring(s, (size_t)r);
	return r;
}

/* n bytes of the ring, behind `peeked`, into the cursor. False: not all of that memory is the
 * caller's, and where the cursor stands says nothing. Without the lock. */
static bool copy_to(struct cursor *c, struct usermem *m, const struct ring_rx *ring,
		    uint64_t peeked, size_t n)
{
	size_t part, good;

	cursor_settle(c);
	for (size_t at = 0; at < n; at += part) {
		char *p = c->here.iov_base;

		part = c->here.iov_len < n - at ? c->here.iov_len : n - at;
		good = usermem_ok(m, p, part, true);
		if (good >= COPY_SHARE_MIN)
			ring_rx_copy_by(ring, peeked + at, p, good, copy_shared);
		else if (good)
			ring_rx_copy(ring, peeked + at, p, good);
		if (good < part)
			return false;
		cursor_step(c, part);
	}
	return true;
}

/* The same, or -EFAULT, or -ESTALE. rcv.lock held, and given for a while. */
static int copy_out(struct stream *s, struct receiving *x, uint64_t peeked, size_t n)
{
	struct ring_rx ring = s->rcv.ring;
	struct apart a;
	bool good;

	if (x->flags & MSG_TRUNC) {
		cursor_moved(&x->c, n);
		return 0;
	}
	apart_begins(s, &a);
	good = copy_to(&x->c, &a.mem, &ring, peeked, n);
	if (!apart_ends(s, x, &a))
		return -ESTALE;
	return good ? 0 : -EFAULT;
}

/* The block that the sender offers. As direct_read(). Its copy may never end, and is found to be
 * overtaken: so others may have the turn meanwhile. rcv.lock held, and given for a while. */
static ssize_t take_offer(struct stream *s, struct receiving *x)
{
	bool waits = !(x->flags & MSG_DONTWAIT) &&
		     !atomic_load_explicit(&s->nonblock, memory_order_relaxed);
	struct iovec v[16];
	ssize_t got;
	int n = 0;

	if (!(x->flags & (MSG_PEEK | MSG_TRUNC)))
		n = chunks_left(s, x, v, 16, SIZE_MAX);
	if (x->again || !direct_offered(&s->rcv.ring))
		return x->again ? -ESTALE : 0;
	turn_lend(s, &s->rcv.turn);
	got = s->wired ? pull_read(s, v, n, waits) : direct_read(s, v, n);
	x->mine = turn_take(&s->rcv.turn);
	if (got > 0) {
		cursor_moved(&x->c, (size_t)got);
		count(&s->moves.fast_bytes[PATH_KINDS], (size_t)got);
	} else if (!got) {
		stream_show(s, 1);
	}
	return got || x->mine ? got : -ESTALE;
}

/* n bytes, or fewer, of what is in the ring behind `peeked`. Count, -EAGAIN, -EIO, -EFAULT,
 * -ESTALE. rcv.lock held, and given for a while. */
static ssize_t take_chunk(struct stream *s, struct receiving *x, uint64_t peeked, size_t n,
			  size_t chunk)
{
	struct cursor before = x->c;
	bool dev;
	int r;

	n = ring_rx_alike(&s->rcv.ring, s->rcv.ring.rd + peeked, n, &dev);
	if (dev)
		return device_chunk(s, x, n, peeked);
	if (n > chunk)
		n = chunk;
	r = copy_out(s, x, peeked, n);
	if (r) {
		x->c = before;	/* the kernel drops its whole chunk, too */
		return r;
	}
	if (!(x->flags & MSG_PEEK))
		took_from_ring(s, n);
	return (ssize_t)n;
}

/* Reads the ring into the cursor. Count, -EAGAIN, 0 = EOF, -errno, -ESTALE: again, from the start.
 * `first`: nothing was read before; else an offer stays for the next call, since it may have to
 * forget what was read. rcv.lock held, and given for a while. */
static long ring_recv(struct stream *s, struct receiving *x, bool first)
{
	size_t done = 0, chunk = PUBLISH_CHUNK * copy_threads_for(x->c.left), copied = 0;
	bool peek = x->flags & MSG_PEEK;
	uint64_t peeked = 0;

	while (x->c.left) {
		uint64_t avail = ring_rx_avail(&s->rcv.ring) - peeked;
		ssize_t r;
		size_t n;

		if (avail < x->c.left) {
			if (ring_rx_refresh(&s->rcv.ring))
				return -EPROTO;
			avail = ring_rx_avail(&s->rcv.ring) - peeked;
		}
		n = x->c.left < avail ? x->c.left : avail;
		if (!n && stream_look_at_wire(s))
			continue;
		if (!n && direct_offered(&s->rcv.ring)) {
			if (done || !first)
				break;
			r = take_offer(s, x);
			if (r < 0)
				return r;
			done = (size_t)r;
			if (!x->mine)
				break;
			if (r)
				continue;
		}
		if (!n) {
			direct_idle(s);
			break;
		}
		r = take_chunk(s, x, peeked, n, chunk);
		if (r < 0 && !done && r != -EAGAIN)
			return r;
		if (r < 0)
			break;
		done += (size_t)r;
		copied += (size_t)r;
		if (peek)
			peeked += (uint64_t)r;
	}
	copy_done(copied);
	if (!done)
		return x->c.left && ring_ended(s) ? at_the_end(s) : -EAGAIN;
	if (!peek && s->rcv.cut.back_pending)
		stream_rx_event(s, CUT_EV_CREDIT, 0, s->rcv.cut.rd);
	return (long)done;
}

/* The kernel shows FIN. While armed, cut or frozen that alone says nothing: the sender may have
 * died with bytes in the ring. But a sender that closes says so before its FIN, and one that
 * never cut left no header. rcv.lock held. */
static bool true_fin(struct stream *s)
{
	int e = atomic_load(&s->err);

	/* or it was an RST, whose error was taken before: see stream_kernel_error() */
	if (s->rcv.cut.state == CUT_RX_T ||
	    (s->rcv.cut.state == CUT_RX_A &&
	     atomic_load(&s->rcv.ring.sh->epoch) < s->rcv.cut.epoch))
		return !e || e == EPIPE || stream_at_end(s);
	return stream_at_end(s);
}

static long try_recv(struct stream *s, struct receiving *x);

/* TCP gave `r`: a reset. What the ring still has comes before the error. Who sends through a ring
 * must hear of it, too. rcv.lock held. */
static long tcp_reset(struct stream *s, struct receiving *x, long r)
{
	bool kernels = s->rcv.cut.state == CUT_RX_T;

	if (!kernels)
		atomic_store(&s->err, stream_reset_errno(s, (int)-r));
	lock_take(&s->snd.lock);
	stream_peer_dead(s);
	lock_give(&s->snd.lock);
	return !kernels && atomic_load(&s->peer_gone) ? try_recv(s, x) : r;
}

/* TCP gave `r`: 0, or -errno. What the read gives. rcv.lock held. */
static long tcp_gave_none(struct stream *s, struct receiving *x, long r)
{
	bool bound = !atomic_load(&s->peer_gone) && atomic_load(&s->link);

	/* not of the connection */
	if (r == -EAGAIN || r == -EFAULT || r == -ESTALE)
		return r;
	if (r < 0 && !stream_fallback_both(s) && bound)
		return tcp_reset(s, x, r);
	/* No FIN, but SHUT_RD, perhaps by another process: what comes later can be read. */
	if (r == 0 && (atomic_load(&s->shut.rd) || stream_tcp_state(x->fd) == TCP_ESTABLISHED))
		return 0;
	/* its process may have ended, and left input unread */
	if (r == 0 && bound) {
		bool later;

		lock_take(&s->snd.lock);
		later = stream_fin_seen(s);
		lock_give(&s->snd.lock);
		if (later) {
			s->rcv.fin_held = s->rcv.cut.state != CUT_RX_T;
			return -EAGAIN;
		}
		if (atomic_load(&s->peer_gone))
			return try_recv(s, x);
	}
	if (r == 0 && true_fin(s)) {
		s->rcv.eof = 1;
		return 0;
	}
	/* BACK, or the end of the control socket, settles it in a moment. */
	if (r == 0 && s->rcv.cut.state != CUT_RX_T && !atomic_load(&s->peer_gone) &&
	    atomic_load(&s->link)) {
		s->rcv.fin_held = 1;
		return -EAGAIN;
	}
	if (r == 0 && s->rcv.cut.state == CUT_RX_K)
		r = -ECONNRESET;	/* bytes below S are missing: never a clean EOF */
	if (cut_rx_ring_after_tcp(&s->rcv.cut)) {
		if (r < 0)
			atomic_store(&s->err, (int)-r);	/* after what the ring still has */
		/* The sender died in the middle of a rewind; what it held is still there. */
		if (s->rcv.cut.rd < s->rcv.cut.cut_at)
			return -ECONNRESET;
		s->rcv.ring.rd = s->rcv.cut.rd;
		s->rcv.ring.wr = s->rcv.cut.rd;
		return ring_recv(s, x, true);
	}
	return r ? r : at_the_end(s);
}

/* One attempt without sleeping, across segments. Count, 0 = EOF, -EAGAIN, -errno, -ESTALE: try
 * again. rcv.lock held, and given for a while. */
static long try_recv(struct stream *s, struct receiving *x)
{
	uint64_t tcp = cut_rx_tcp_left(&s->rcv.cut);
	size_t done = 0;
	long r;

	if (atomic_load(&s->peer_gone) == 2)
		return at_the_end(s);
	/* With bytes known to be in the ring this is not the end, and to look would fetch the
	 * line that the sender writes with each message. */
	/* an error, if there is one, is for those who send: SOCK_DONE in tcp_recvmsg() */
	if (!(s->rcv.cut.state == CUT_RX_K && ring_rx_avail(&s->rcv.ring)) && stream_at_end(s)) {
		s->rcv.eof = 1;
		return 0;
	}
	if (tcp) {
		r = tcp_recv(s, x, tcp);
		if (r <= 0)
			return tcp_gave_none(s, x, r);
		done = (size_t)r;
		if (x->again || s->rcv.cut.state != CUT_RX_K || (uint64_t)r < tcp)
			return (long)done;
		/* Exactly at S. What came into the ring before was nobody's event while TCP's
		 * bytes were in front of it; an edge-triggered waiter that does not read on
		 * (FIONREAD told it less) needs one now. */
		stream_wake(s);
		if (!x->c.left)
			return (long)done;
		/* go on without a short read */
	}
	r = ring_recv(s, x, !done);
	if (r == -EPROTO || r == -EIO) {
		if (r == -EPROTO)
			stream_protocol_error(s);
		else
			stream_reset(s);
		r = -ECONNRESET;
	}
	if (done)
		stream_untold(s, r);
	if (done)
		return r > 0 ? (long)done + r : (long)done;
	return r;
}

/* ... and it may go on with it, if it has its CPU for itself: a peer that needs that CPU does
 * better with TCP's long queues. */
static void found_poller(struct stream *s, int fd, uint32_t gen)
{
	/* the test hook cuts what it can */
	bool spare = shim_tunables()->force_cut_every || spin_cpu_spare();
	bool found;

	lock_take(&s->rcv.lock);
	found = poller_dry(&s->rcv.poller, spare);
	SEEN("poller", s, "empty_reads", spare, 0, found);
	if (found && fdtab_stream(fd) == s &&
	    atomic_load_explicit(&s->gen, memory_order_relaxed) == gen) {
		poller_begins(&s->rcv.poller);
		SEEN("poller", s, "begins", 0, 0, 0);
		stat_row_event(s->row, EVENT_POLLER, 0);
		bg_look(s);
	}
	lock_give(&s->rcv.lock);
}

/* TCP's urgent mark is next: no read goes across it (tcp_recvmsg_locked() in net/ipv4/tcp.c). */
static bool at_mark(int fd)
{
	int mark = 0;

	return sys(SYS_ioctl, fd, SIOCATMARK, &mark) >= 0 && mark;
}

/* What one attempt under the lock has found. */
struct attempt {
	long r;
	bool hiccup;		/* a rewind is under way, which is waited for though the call must
				 * not block */
	bool owed;		/* less than was promised to those who poll */
	bool empty_reads;	/* asks_again() */
	bool tcp;		/* TCP had the first bytes */
	uint32_t epoch;
};

/* `done`: bytes of the call before. rcv.lock held, and given for a while. */
static void recv_once(struct stream *s, struct receiving *x, size_t done, bool nonblock,
		      bool switched, struct attempt *a)
{
	bool resent = stream_rx_resent(s), peek = x->flags & MSG_PEEK, shut;
	long r;

	a->tcp = cut_rx_tcp_left(&s->rcv.cut) != 0;
	a->r = r = try_recv(s, x);
	if (r == -ESTALE)
		return;
	shut = (r == 0 || r == -EAGAIN) && atomic_load(&s->shut.rd);
	if (shut)	/* the end, behind what was there before it */
		r = !switched && stream_owes_any(s, resent) ? -EAGAIN : 0;
	if (peek && r > 0)
		stream_show(s, (uint64_t)r);
	a->owed = false;
	if (peek && r > 0)
		a->owed = x->c.left && !switched && stream_owes_peek(s, (uint64_t)r, resent);
	else if (r > 0)
		a->owed = x->c.left && !switched && stream_owes_more(s, resent);
	else if (r == -EAGAIN && (nonblock || done || shut))
		a->owed = x->c.left && !switched &&
			  (done ? stream_owes_more(s, resent) : stream_owes_any(s, resent));
	a->empty_reads = atomic_load_explicit(&s->nonblock, memory_order_relaxed) &&
			 asks_again(s, r);
	a->hiccup = r == -EAGAIN && (nonblock || shut) && !done && !switched &&
		    (resent || stream_rx_promised(s));
	a->epoch = s->rcv.cut.epoch;
	if (done)
		stream_untold(s, r);
	a->r = r;
}

/* The stream went on meanwhile, and there may be more. */
static bool goes_on(const struct receiving *x, long r)
{
	return x->again && x->mine &&
	       (r == -ESTALE || (r > 0 && x->c.left && !(x->flags & MSG_PEEK)));
}

/* In one go: a handler that ran in between would take what comes next. *done: bytes before the last
 * look; *before: where that began. As recv_once(). */
static void recv_now(struct stream *s, struct receiving *x, size_t *done, bool nonblock,
		     bool switched, struct attempt *a, struct cursor *before)
{
	*before = x->c;
	x->again = false;
	recv_once(s, x, *done, nonblock, switched, a);
	while (goes_on(x, a->r) && stream_still_named(s, x->gen, &x->fd)) {
		if (a->r > 0)
			*done += (size_t)a->r;
		else
			x->c = *before;
		*before = x->c;
		x->again = false;
		recv_once(s, x, *done, nonblock, switched, a);
	}
}

/* As stream_recv(). locked: rcv.lock is held, there is one chunk, and it is the stream's. */
static __attribute__((noinline)) ssize_t recv_long(struct stream *s, int fd,
						   const struct iovec *iov, int n, int flags,
						   uint32_t gen, bool locked)
{
	struct call call = { .mark = signals_mark() };
	bool peek = flags & MSG_PEEK, late = false;
	struct receiving x = { .fd = fd, .flags = flags, .gen = gen };
	struct stream_peeked waited = { 0, 0 };
	struct cursor before;
	size_t done = 0;
	long r;

	r = cursor_init(&x.c, iov, n);
	if (r || !x.c.left) {
		if (locked)
			lock_give(&s->rcv.lock);
		return r;
	}
	for (;; locked = false) {
		struct attempt a = { .r = 0 };
		bool nonblock;

		if (!locked)
			lock_take(&s->rcv.lock);
		if (!stream_still_named(s, gen, &x.fd)) {
			lock_give(&s->rcv.lock);
			return done ? (ssize_t)done : -EBADF;
		}
		/* what comes next may have been read in a handler */
		if (done && signals_since(call.mark)) {
			lock_give(&s->rcv.lock);
			return (ssize_t)done;
		}
		x.mine = turn_take(&s->rcv.turn);
		if (!x.mine) {
			turn_wait(&s->rcv.lock, &s->rcv.turn);
			continue;
		}
		nonblock = late || flags & MSG_DONTWAIT ||
			   atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		recv_now(s, &x, &done, nonblock, call.switched_path, &a, &before);
		if (x.mine)
			turn_over(s, &s->rcv.lock, &s->rcv.turn);
		else
			lock_give(&s->rcv.lock);
		r = a.r;
		if (r == -ESTALE) {
			x.c = before;
			continue;
		}
		if (a.empty_reads)
			found_poller(s, x.fd, gen);
		if (a.hiccup) {
			stream_ride_out(s, x.fd, EPOLLIN, a.epoch, &call);
			continue;
		}
		if (r > 0 && a.tcp && x.c.left && !peek && (a.owed || flags & MSG_WAITALL) &&
		    at_mark(x.fd))
			return (ssize_t)done + r;
		if (a.owed && stream_await_peeked(s, gen, x.fd, peek && r > 0, &waited)) {
			if (peek)
				x.c = before;
			else if (r > 0)
				done += (size_t)r;
			continue;
		}
		if (r > 0) {
			done += (size_t)r;
			if (!(flags & MSG_WAITALL) || !x.c.left || nonblock || peek)
				return (ssize_t)done;
			continue;
		}
		if (r != -EAGAIN || nonblock || (done && !(flags & MSG_WAITALL)))
			return done ? (ssize_t)done : r;
		call.done = done;
		r = stream_call_wait(s, x.fd, EPOLLIN, &call, &late);
		if (r)
			return done ? (ssize_t)done : r;
	}
}

ssize_t stream_recv(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	char own[SMALL_MAX];
	struct iovec v;
	size_t got;

	if (n != 1)
		return recv_long(s, fd, iov, n, flags, gen, false);
	v = *iov;
	if (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL) || v.iov_len - 1 >= SHORT_MAX ||
	    !usermem_known(&s->rcv.mem, v.iov_base, v.iov_len))
		return recv_long(s, fd, &v, 1, flags, gen, false);
	lock_take(&s->rcv.lock);
	if (!stream_still_named(s, gen, &fd)) {
		lock_give(&s->rcv.lock);
		return -EBADF;
	}
	got = short_recv(s, v.iov_base, v.iov_len, v.iov_len <= SMALL_MAX ? own : NULL);
	return got ? (ssize_t)got : recv_long(s, fd, &v, 1, flags, gen, true);
}
