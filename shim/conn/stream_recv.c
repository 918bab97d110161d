/*
 * stream_recv.c - the one receive core in which every libc variant ends. See stream_io.h.
 *
 * Locks: rcv.lock, and below it snd.lock if a reader finds the peer dead.
 */

#include <netinet/tcp.h>

#include "base/copy.h"
#include "base/loop.h"
#include "base/seen.h"
#include "base/signals.h"
#include "base/sys.h"
#include "conn/pull.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_io.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_wait.h"
#include "conn/stream_wake.h"
#include "gpu/gpu.h"

/* At most `max` bytes, or into what begins within a chunk: all that the kernel has of them, as
 * by one call. */
static __attribute__((noinline)) long kernel_recv_some(struct stream *s, int fd, struct cursor c,
						       size_t max, int flags)
{
	struct iovec v[KERNEL_IOVS];
	struct msghdr h = { .msg_iov = v };
	long done = 0, r, whole;

	do {
		h.msg_iovlen = (size_t)cursor_iov(&c, v, KERNEL_IOVS, max - (size_t)done);
		whole = (long)iov_sum(v, h.msg_iovlen);
		r = sys(SYS_recvmsg, fd, &h, flags);
		if (r < 0 && done)
			stream_untold(s, r);
		if (r <= 0)
			return done ? done : r;
		done += r;
		cursor_step(&c, (size_t)r);
		/* Less than was asked for: there is no more, or the end, an error or the urgent
		 * mark is next, which is the next call's. */
	} while (r == whole && c.left && (size_t)done < max && !(flags & MSG_PEEK));
	return done;
}

static long kernel_recvv(struct stream *s, int fd, const struct cursor *c, size_t max, int flags)
{
	struct msghdr h = { .msg_iov = (struct iovec *)c->iov, .msg_iovlen = (size_t)c->n };

	return c->skip || c->left > max ? kernel_recv_some(s, fd, *c, max, flags)
					: sys(SYS_recvmsg, fd, &h, flags);
}

static long kernel_recv(struct stream *s, int fd, const struct cursor *c, size_t max, int flags)
{
	fdtab_kernel_call();
	if (c->n == 1) {
		size_t len = c->left < max ? c->left : max;

		return sys(SYS_recvfrom, fd, (char *)c->iov->iov_base + c->skip, len, flags, NULL,
			   NULL);
	}
	return kernel_recvv(s, fd, c, max, flags);
}

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
	stream_consumed(s);
}

/* As short_send(): one small buffer, bytes in the ring and nothing before them. Their count, or
 * 0: nothing is done. rcv.lock held. */
static inline size_t short_recv(struct stream *s, const struct iovec *iov, int n, int flags)
{
	size_t len = iov->iov_len, avail;

	if (n != 1 || flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL) || s->rcv.cut.state != CUT_RX_RING ||
	    s->rcv.cut.rd < s->rcv.cut.cut_at || s->rcv.cut.back_pending ||
	    s->rcv.ring.dev_hi > s->rcv.ring.rd || atomic_load(&s->peer_gone))
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
	if (!len || len > SHORT_MAX || usermem_ok(&s->rcv.mem, iov->iov_base, len, true) < len)
		return 0;
	ring_rx_copy(&s->rcv.ring, 0, iov->iov_base, len);
	count(&s->moves.fast_bytes[PATH_KINDS], len);
	took_from_ring(s, len);
	if (atomic_load_explicit(&s->nonblock, memory_order_relaxed))
		asks_again(s, (long)len);
	return len;
}

/* Up to n bytes that lie in device memory. Count, or -EAGAIN: the direction falls back. rcv.lock
 * held. */
static ssize_t device_chunk(struct stream *s, struct cursor *c, size_t n, uint64_t peeked,
			    int flags)
{
	struct iovec v[16];
	ssize_t r = (ssize_t)n;

	if (!(flags & MSG_TRUNC))
		/* cppcheck-suppress uninitvar; cursor_iov() fills v in */
		r = device_recv(s, s->rcv.ring.rd + peeked, n, v, cursor_iov(c, v, 16, n),
				flags & MSG_PEEK);
	if (r < 0)
		return r;
	cursor_step(c, (size_t)r);
	if (!(flags & MSG_PEEK))
		took_from_ring(s, (size_t)r);
	return r;
}

/* n bytes of the ring, behind `peeked`, into the cursor. False: not all of that memory is the
 * caller's, and where the cursor stands says nothing. rcv.lock held. */
static bool copy_out(struct stream *s, struct cursor *c, uint64_t peeked, size_t n, int flags)
{
	for (size_t at = 0; at < n;) {
		size_t part = c->iov->iov_len - c->skip, good;

		if (part > n - at)
			part = n - at;
		good = part;
		if (part && !(flags & MSG_TRUNC)) {
			char *p = (char *)c->iov->iov_base + c->skip;

			good = usermem_ok(&s->rcv.mem, p, part, true);
			if (good >= COPY_SHARE_MIN)
				ring_rx_copy_by(&s->rcv.ring, peeked + at, p, good, copy_shared);
			else if (good)
				ring_rx_copy(&s->rcv.ring, peeked + at, p, good);
		}
		if (good < part)
			return false;
		at += part;
		cursor_step(c, part);
		if (at < n)
			cursor_skip_empty(c);
	}
	return true;
}

/* The block that the sender offers. As direct_read(). rcv.lock held. */
static ssize_t take_offer(struct stream *s, struct cursor *c, int flags)
{
	struct iovec v[16];
	int n = flags & (MSG_PEEK | MSG_TRUNC) ? 0 : cursor_iov(c, v, 16, SIZE_MAX);
	bool waits = !(flags & MSG_DONTWAIT) &&
		     !atomic_load_explicit(&s->nonblock, memory_order_relaxed);
	ssize_t got = s->wired ? pull_read(s, v, n, waits) : direct_read(s, v, n);

	if (got > 0)
		cursor_step(c, (size_t)got);
	else if (!got)
		stream_show(s, 1);
	return got;
}

/* Reads the ring into the cursor. Count, -EAGAIN, 0 = EOF, -errno, -ESTALE as direct_read().
 * `first`: nothing was read before; else an offer stays for the next call, since it may have to
 * forget what was read. rcv.lock held. */
static long ring_recv(struct stream *s, struct cursor *c, int flags, bool first)
{
	size_t done = 0, chunk = PUBLISH_CHUNK * copy_threads_for(c->left), copied = 0;
	uint64_t peeked = 0;

	while (c->left) {
		uint64_t avail = ring_rx_avail(&s->rcv.ring) - peeked;
		struct cursor before = *c;
		ssize_t r;
		size_t n;
		bool dev;

		if (avail < c->left) {
			if (ring_rx_refresh(&s->rcv.ring))
				return -EPROTO;
			avail = ring_rx_avail(&s->rcv.ring) - peeked;
		}
		n = c->left < avail ? c->left : avail;
		if (!n && stream_look_at_wire(s))
			continue;
		if (!n && direct_offered(&s->rcv.ring)) {
			if (done || !first)
				break;
			r = take_offer(s, c, flags);
			if (r < 0)
				return r;
			done = (size_t)r;
			if (r)
				continue;
		}
		if (!n) {
			direct_idle(s);
			break;
		}
		n = ring_rx_alike(&s->rcv.ring, s->rcv.ring.rd + peeked, n, &dev);
		if (dev) {
			r = device_chunk(s, c, n, peeked, flags);
			if (r == -EIO && !done)
				return r;
			if (r < 0)
				break;
			done += (size_t)r;
			if (flags & MSG_PEEK)
				peeked += (uint64_t)r;
			continue;
		}
		if (n > chunk)
			n = chunk;
		if (!copy_out(s, c, peeked, n, flags)) {
			*c = before;	/* the kernel drops its whole chunk, too */
			if (done)
				break;
			return -EFAULT;
		}
		done += n;
		copied += n;
		if (flags & MSG_PEEK)
			peeked += n;
		else
			took_from_ring(s, n);
	}
	copy_done(copied);
	if (!done)
		return c->left && ring_ended(s) ? at_the_end(s) : -EAGAIN;
	if (!(flags & MSG_PEEK)) {
		count(&s->moves.fast_bytes[PATH_KINDS], done);
		if (s->rcv.cut.back_pending)
			stream_rx_event(s, CUT_EV_CREDIT, 0, s->rcv.cut.rd);
	}
	return (long)done;
}

/* The kernel shows FIN. While armed, cut or frozen that alone says nothing: the sender may have
 * died with bytes in the ring. But a sender that closes says so before its FIN, and one that
 * never cut left no header. rcv.lock held. */
static bool true_fin(struct stream *s)
{
	int e = atomic_load(&s->err);

	/* or it was an RST, whose error was taken before: see stream_kernel_error() */
	if (s->rcv.cut.state == CUT_RX_TCP ||
	    (s->rcv.cut.state == CUT_RX_ARMED &&
	     atomic_load(&s->rcv.ring.sh->epoch) < s->rcv.cut.epoch))
		return !e || e == EPIPE || stream_at_end(s);
	return stream_at_end(s);
}

/* While frozen TCP has only a part of what the ring still shows. `r`: what a peek found in TCP. */
static long peek_on(struct stream *s, const struct cursor *c, long r, int flags)
{
	struct cursor at = *c;
	size_t done = r > 0 ? (size_t)r : 0, got;

	cursor_step(&at, done);
	do {
		uint64_t held = stream_held(s, s->rcv.cut.rd + done);
		struct iovec v[16];
		int n = cursor_iov(&at, v, 16, SIZE_MAX);

		if (flags & MSG_TRUNC)
			got = held < at.left ? held : at.left;
		else
			got = stream_peek_held(s, s->rcv.cut.rd + done, v, n);
		cursor_step(&at, got);
		done += got;
	} while (got && at.left);
	return done ? (long)done : r;
}

static long try_recv(struct stream *s, int fd, struct cursor *c, int flags);

/* TCP gave `r`: a reset. What the ring still has comes before the error. Who sends through a ring
 * must hear of it, too. rcv.lock held. */
static long tcp_reset(struct stream *s, int fd, struct cursor *c, int flags, long r)
{
	bool kernels = s->rcv.cut.state == CUT_RX_TCP;

	if (!kernels)
		atomic_store(&s->err, stream_reset_errno(s, (int)-r));
	lock_take(&s->snd.lock);
	stream_peer_dead(s);
	lock_give(&s->snd.lock);
	return !kernels && atomic_load(&s->peer_gone) ? try_recv(s, fd, c, flags) : r;
}

/* TCP gave `r`: 0, or -errno. What the read gives. rcv.lock held. */
static long tcp_gave_none(struct stream *s, int fd, struct cursor *c, int flags, long r)
{
	bool bound = !atomic_load(&s->peer_gone) && atomic_load(&s->link);

	if (r == -EAGAIN || r == -EFAULT)	/* EFAULT: of the caller, not of the connection */
		return r;
	if (r < 0 && !stream_both_on_tcp(s) && bound)
		return tcp_reset(s, fd, c, flags, r);
	/* No FIN, but SHUT_RD, perhaps by another process: what comes later can be read. */
	if (r == 0 && (atomic_load(&s->shut.rd) || stream_tcp_state(fd) == TCP_ESTABLISHED))
		return 0;
	/* its process may have ended, and left input unread */
	if (r == 0 && bound) {
		bool later;

		lock_take(&s->snd.lock);
		later = stream_fin_seen(s);
		lock_give(&s->snd.lock);
		if (later) {
			s->rcv.fin_held = s->rcv.cut.state != CUT_RX_TCP;
			return -EAGAIN;
		}
		if (atomic_load(&s->peer_gone))
			return try_recv(s, fd, c, flags);
	}
	if (r == 0 && true_fin(s)) {
		s->rcv.eof = 1;
		return 0;
	}
	/* BACK, or the end of the control socket, settles it in a moment. */
	if (r == 0 && s->rcv.cut.state != CUT_RX_TCP && !atomic_load(&s->peer_gone) &&
	    atomic_load(&s->link)) {
		s->rcv.fin_held = 1;
		return -EAGAIN;
	}
	if (r == 0 && s->rcv.cut.state == CUT_RX_RING)
		r = -ECONNRESET;	/* bytes below S are missing: never a clean EOF */
	if (cut_rx_ring_after_tcp(&s->rcv.cut)) {
		if (r < 0)
			atomic_store(&s->err, (int)-r);	/* after what the ring still has */
		/* The sender died in the middle of a rewind; what it held is still there. */
		if (s->rcv.cut.rd < s->rcv.cut.cut_at)
			return -ECONNRESET;
		s->rcv.ring.rd = s->rcv.cut.rd;
		s->rcv.ring.wr = s->rcv.cut.rd;
		return ring_recv(s, c, flags, true);
	}
	return r ? r : at_the_end(s);
}

/* n bytes were read from TCP. rcv.lock held. */
static void took_from_tcp(struct stream *s, uint64_t n)
{
	s->rcv.cut.rd += n;
	atomic_fetch_add_explicit(&s->row->rx_bytes[PATH_TCP], n, memory_order_relaxed);
	if (s->rcv.cut.state == CUT_RX_RING)
		ring_rx_below(&s->rcv.ring, s->rcv.cut.rd);
	if (s->rcv.cut.back_pending)
		stream_rx_event(s, CUT_EV_CREDIT, 0, s->rcv.cut.rd);
}

/* One attempt without sleeping, across segments. Count, 0 = EOF, -EAGAIN, -errno, -ESTALE: try
 * again. rcv.lock held. */
static long try_recv(struct stream *s, int fd, struct cursor *c, int flags)
{
	uint64_t tcp = cut_rx_tcp_left(&s->rcv.cut);
	size_t done = 0;
	long r;

	if (atomic_load(&s->peer_gone) == 2)
		return at_the_end(s);
	/* With bytes known to be in the ring this is not the end, and to look would fetch the
	 * line that the sender writes with each message. */
	/* an error, if there is one, is for those who send: SOCK_DONE in tcp_recvmsg() */
	if (!(s->rcv.cut.state == CUT_RX_RING && ring_rx_avail(&s->rcv.ring)) && stream_at_end(s)) {
		s->rcv.eof = 1;
		return 0;
	}
	if (tcp) {
		r = kernel_recv(s, fd, c, tcp, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);
		if (flags & MSG_PEEK && s->rcv.cut.state == CUT_RX_FROZEN &&
		    (r > 0 || r == -EAGAIN))
			r = peek_on(s, c, r, flags);
		if (r <= 0)
			return tcp_gave_none(s, fd, c, flags, r);
		if (!(flags & MSG_PEEK))
			took_from_tcp(s, (uint64_t)r);
		done = (size_t)r;
		cursor_step(c, done);
		if (s->rcv.cut.state != CUT_RX_RING || (uint64_t)r < tcp)
			return (long)done;
		/* Exactly at S. What came into the ring before was nobody's event while TCP's
		 * bytes were in front of it; an edge-triggered waiter that does not read on
		 * (FIONREAD told it less) needs one now. */
		stream_wake(s);
		if (!c->left)
			return (long)done;
		/* go on without a short read */
	}
	r = ring_recv(s, c, flags, !done);
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

/* `done`: bytes of the call before. rcv.lock held. */
static void recv_once(struct stream *s, int fd, struct cursor *c, int flags, size_t done,
		      bool nonblock, bool switched, struct attempt *a)
{
	bool resent = stream_rx_resent(s), peek = flags & MSG_PEEK, shut;
	long r;

	a->tcp = cut_rx_tcp_left(&s->rcv.cut) != 0;
	a->r = r = try_recv(s, fd, c, flags);
	if (r == -ESTALE)
		return;
	shut = (r == 0 || r == -EAGAIN) && atomic_load(&s->shut.rd);
	if (shut)	/* the end, behind what was there before it */
		r = !switched && stream_owes_any(s, resent) ? -EAGAIN : 0;
	if (peek && r > 0)
		stream_show(s, (uint64_t)r);
	a->owed = false;
	if (peek && r > 0)
		a->owed = c->left && !switched && stream_owes_peek(s, (uint64_t)r, resent);
	else if (r > 0)
		a->owed = c->left && !switched && stream_owes_more(s, resent);
	else if (r == -EAGAIN && (nonblock || done || shut))
		a->owed = c->left && !switched &&
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

ssize_t stream_recv(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	struct call call = { .mark = signals_mark() };
	bool peek = flags & MSG_PEEK, late = false;
	struct cursor c, before;
	struct stream_peeked waited = { 0, 0 };
	size_t done = 0;
	long r;

	r = cursor_init(&c, iov, n);
	if (r)
		return r;
	if (!c.left)
		return 0;
	for (;;) {
		struct attempt a;
		bool nonblock;

		lock_take(&s->rcv.lock);
		if (!stream_still_named(s, gen, &fd)) {
			lock_give(&s->rcv.lock);
			return done ? (ssize_t)done : -EBADF;
		}
		/* what comes next may have been read in a handler */
		if (done && signals_since(call.mark)) {
			lock_give(&s->rcv.lock);
			return (ssize_t)done;
		}
		if (!done && (r = (long)short_recv(s, iov, n, flags))) {
			lock_give(&s->rcv.lock);
			return r;
		}
		nonblock = late || flags & MSG_DONTWAIT ||
			   atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		before = c;
		recv_once(s, fd, &c, flags, done, nonblock, call.switched_path, &a);
		lock_give(&s->rcv.lock);
		r = a.r;
		if (r == -ESTALE)
			continue;
		if (a.empty_reads)
			found_poller(s, fd, gen);
		if (a.hiccup) {
			stream_ride_out(s, fd, EPOLLIN, a.epoch, &call);
			continue;
		}
		if (r > 0 && a.tcp && c.left && !peek && (a.owed || flags & MSG_WAITALL) &&
		    at_mark(fd))
			return (ssize_t)done + r;
		if (a.owed && stream_await_peeked(s, gen, fd, peek && r > 0, &waited)) {
			if (peek)
				c = before;
			else if (r > 0)
				done += (size_t)r;
			continue;
		}
		if (r > 0) {
			done += (size_t)r;
			if (!(flags & MSG_WAITALL) || !c.left || nonblock || peek)
				return (ssize_t)done;
			continue;
		}
		if (r != -EAGAIN || nonblock || (done && !(flags & MSG_WAITALL)))
			return done ? (ssize_t)done : r;
		call.done = done;
		r = stream_call_wait(s, fd, EPOLLIN, &call, &late);
		if (r)
			return done ? (ssize_t)done : r;
	}
}
