/*
 * stream_view.c - what a stream shows to those who poll it, whatever carries it now; and what the
 * socket itself has shown while the stream was off TCP. stream_wake.c wakes those who wait when
 * that changes.
 *
 * stream_view() reads the stream without a lock and may be stale. That does no harm to waits: a
 * thread that changes a half wakes after the change, and a woken thread looks again. But all that
 * it returns is of one moment, because a caller that does not wait is not woken, and what was shown
 * must not vanish between two states. What it reads of the path stays mapped because the caller is
 * inside link_read_enter().
 *
 * Locks: stream_home_event() takes both of the stream, stream_told_under_way() takes rcv.lock; the
 * others take none.
 */
#include <netinet/tcp.h>

#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_wake.h"
#include "link/link.h"

static bool leaves_room(uint64_t used, uint64_t limit)
{
	return used < limit && limit - used >= limit / 4;
}

/* As the kernel: writable when a third or more is free, here a quarter of the ring. */
static bool roomy(const struct ring_tx *r)
{
	uint64_t rd = r->rd, wr = r->wr, dev = __atomic_load_n(&r->dev_hi, __ATOMIC_RELAXED),
		 limit = r->size - __atomic_load_n(&r->unused, __ATOMIC_RELAXED);

	/* With the credit that we know: its line is the receiver's, who writes it with each
	 * message. Nothing follows a run in device memory. */
	if (dev <= rd && leaves_room(wr - rd, limit))
		return true;
	rd = atomic_load_explicit(&r->sh->rd, memory_order_acquire);
	if (rd < r->rd)
		rd = r->rd;
	/* rd > wr: the ring is about to be opened, and empty */
	return dev <= rd && leaves_room(rd > wr ? 0 : wr - rd, limit);
}

bool stream_rx_resent(struct stream *s)
{
	uint64_t end = atomic_load_explicit(&s->rcv.resent_end, memory_order_acquire);
	int64_t here;

	if (!end || s->rcv.resent_to <= s->rcv.cut.rd)
		return false;
	here = stream_kernel_received(atomic_load(&s->fd));
	if (here >= 0 && (uint64_t)here < end)
		return true;
	atomic_compare_exchange_strong(&s->rcv.resent_end, &end, 0);
	return false;
}

bool stream_arriving(struct stream *s)
{
	return stream_rx_resent(s) && now_ns() < s->rcv.resent_ns + STREAM_PATIENCE_NS;
}

/* The peer has said where it ends, and there is more before that. Where the kernel alone has
 * shown the end it has all, too. */
static bool before_end(struct stream *s)
{
	return s->rcv.end_at != RING_NO_FINAL && !stream_at_end(s);
}

/* `final`: of stream_final_seen(), whose line is the sender's. */
static bool promised(struct stream *s, bool final)
{
	if (atomic_load_explicit(&s->rcv.late_epoch, memory_order_relaxed) == s->rcv.cut.epoch)
		return false;
	/* On TCP a FIN that was held back is here, and no read would bring it nearer. */
	return stream_rx_coming(s) ||
	       (s->rcv.fin_held && s->rcv.cut.state != CUT_RX_TCP) ||
	       (final && before_end(s)) || stream_rx_resent(s);
}

bool stream_rx_promised(struct stream *s) { return promised(s, stream_final_seen(s)); }

static bool tx_coming(struct stream *s, uint8_t tx)
{
	if (atomic_load_explicit(&s->snd.late_epoch, memory_order_relaxed) == s->snd.cut.epoch)
		return false;
	return (tx == CUT_TX_REWINDING || (tx == CUT_TX_RESENDING && !s->snd.resend_full)) &&
		roomy(&s->snd.ring);
}

bool stream_tx_coming(struct stream *s) { return tx_coming(s, s->snd.cut.state); }

/* What is there to read, for those who poll. `gone`: the peer is. */
static inline void view_input(struct stream *s, struct stream_view *v, uint8_t rx, bool gone)
{
	uint64_t wr;

	if (s->rcv.fin_held && rx != CUT_RX_RING) {
		/* The kernel's edge for FIN was spent while it could not be believed; it is ours
		 * to report. */
		if (rx == CUT_RX_TCP || gone)
			v->synth |= EPOLLIN | EPOLLRDHUP;
		return;
	}
	if (rx != CUT_RX_RING) {
		v->kern |= EPOLLIN;
		if (gone && s->rcv.cut.tail)
			v->synth |= EPOLLIN;
		return;
	}
	wr = atomic_load_explicit(&s->rcv.ring.sh->wr, memory_order_acquire);
	/* No lock is held here: between the step to RING and the opening of the ring ring.rd is of
	 * another time. A blocking reader that is told of bytes then would wait for ever. */
	if (s->rcv.cut.rd < s->rcv.cut.cut_at) {
		v->kern |= EPOLLIN;	/* the ring's turn comes after */
		v->behind = wr > s->rcv.ring.rd;
	} else if ((wr > s->rcv.ring.rd && wr > s->rcv.cut.rd) || direct_offered(&s->rcv.ring)) {
		v->synth |= EPOLLIN;
	}
}

/* The connection has ended, or has an error: what is told of that. */
static inline void view_end(struct stream *s, struct stream_view *v, bool gone, bool shut_wr)
{
	bool reset = __atomic_load_n(&s->lost.reset_seen, __ATOMIC_ACQUIRE);
	int err = atomic_load(&s->err);	/* was written first, so with `reset` it is here; or both
					 * came just now */

	if (err && !reset)
		reset = __atomic_load_n(&s->lost.reset_seen, __ATOMIC_ACQUIRE);
	gone |= reset;
	if (gone && err)
		v->cut = true;	/* the kernel's own error was taken: we report it */
	if (gone && v->cut)
		v->synth |= EPOLLIN | EPOLLRDHUP | (reset ? EPOLLHUP : 0) | (err ? EPOLLERR : 0);
	if (atomic_load_explicit(&s->shut.rd, memory_order_relaxed) && v->cut)
		v->synth |= EPOLLIN | EPOLLRDHUP;
	if (shut_wr && v->synth & EPOLLRDHUP)
		*(v->synth & EPOLLIN ? &v->synth : &v->coming) |= EPOLLIN | EPOLLHUP;
}

static struct stream_view view_once(struct stream *s)
{
	struct stream_view v = { .kern = 0 };
	uint8_t rx = __atomic_load_n(&s->rcv.cut.state, __ATOMIC_ACQUIRE), tx = s->snd.cut.state;
	bool gone = atomic_load_explicit(&s->peer_gone, memory_order_relaxed);
	bool final, end, shut_wr;

	stream_look_at_wire(s);
	if (!atomic_load(&s->link)) {	/* as a reader: tests/litmus/view-enter */
		v.kern = EPOLLIN | EPOLLOUT;
		if (s->rcv.fin_held) {	/* settled, but perhaps not told: the kernel's edge is
					 * spent */
			v.kern = EPOLLOUT;
			v.synth = EPOLLIN | EPOLLRDHUP;
			v.cut = true;
		}
		return v;
	}
	v.look = !gone &&
		 atomic_load_explicit(&s->rcv.ring.sh->final, memory_order_relaxed) == RING_RESET;
	final = stream_final_seen(s);
	end = final || s->rcv.eof;
	if (end) {
		v.synth |= EPOLLRDHUP;
		if (stream_at_end(s))
			v.synth |= EPOLLIN;
	}
	shut_wr = atomic_load_explicit(&s->shut.wr, memory_order_relaxed);
	/* An end that the kernel does not show yet is ours to report, whatever the path. */
	v.cut = rx == CUT_RX_RING || tx >= CUT_TX_CUT_SENT || s->rcv.fin_held ||
		(shut_wr && !s->snd.fin_out) ||
		atomic_load_explicit(&s->shut.rd_owed, memory_order_relaxed) ||
		(end && !atomic_load_explicit(&s->fallback.rdhup, memory_order_relaxed));
	view_input(s, &v, rx, gone);
	/* To those who poll a rewind is no change: what could be read, or written, still can, a
	 * moment later. */
	if (promised(s, final))
		v.coming |= EPOLLIN;
	v.cut |= rx == CUT_RX_FROZEN && stream_rx_coming(s);
	/* One look at the state for all of this: it may be TCP's by now, which has not been
	 * asked. */
	if (tx_coming(s, tx))
		v.coming |= EPOLLOUT;
	if (tx <= CUT_TX_ARMING)
		v.kern |= EPOLLOUT;
	else if (gone || s->snd.lost || shut_wr ||
		 ((tx == CUT_TX_CUT_SENT || tx == CUT_TX_RING) && roomy(&s->snd.ring)))
		v.synth |= EPOLLOUT;
	view_end(s, &v, gone, shut_wr);
	return v;
}

struct moment { uint32_t rx_epoch, tx_epoch; uint8_t rx, tx; };

static struct moment moment_of(const struct stream *s)
{
	return (struct moment){ __atomic_load_n(&s->rcv.cut.epoch, __ATOMIC_RELAXED),
				__atomic_load_n(&s->snd.cut.epoch, __ATOMIC_RELAXED),
				__atomic_load_n(&s->rcv.cut.state, __ATOMIC_ACQUIRE),
				__atomic_load_n(&s->snd.cut.state, __ATOMIC_ACQUIRE) };
}

static bool same_moment(struct moment a, struct moment b)
{
	return a.rx == b.rx && a.tx == b.tx && a.rx_epoch == b.rx_epoch && a.tx_epoch == b.tx_epoch;
}

/* Whoever looks may be off his processor meanwhile, perhaps for a whole rewind and the next cut. */
struct stream_view stream_view(struct stream *s)
{
	struct stream_view v;
	struct moment m;

	do {
		m = moment_of(s);
		v = view_once(s);
		atomic_thread_fence(memory_order_acquire);
	} while (!same_moment(m, moment_of(s)));
	return v;
}

/* ---- waking ---- */

bool stream_roomy(const struct stream *s) { return roomy(&s->snd.ring); }

void stream_want_room(struct stream *s)
{
	link_read_enter();
	if (atomic_load(&s->link) && cut_tx_on_ring(&s->snd.cut))
		segment_want_room(&s->snd.ring);
	link_read_leave();
}

void stream_told_full(struct stream *s)
{
	if (atomic_load_explicit(&s->snd.ring_full, memory_order_relaxed))
		return;
	link_read_enter();
	if (atomic_load(&s->link) && cut_tx_on_ring(&s->snd.cut) && !roomy(&s->snd.ring) &&
	    !atomic_exchange(&s->snd.ring_full, 1))
		bg_look(s);
	link_read_leave();
}

/* ---- the socket of a stream that is off TCP ---- */

#define END_LOOK_MIN_NS 50000000u
#define END_LOOK_MAX_NS 5000000000u

/* The caller looked some time ago: the struct may be another stream's by now. */
static bool home_shows(struct stream *s)
{
	struct pollfd p = { .fd = atomic_load(&s->fd), .events = POLLRDHUP };
	struct timespec zero = { 0, 0 };

	return p.fd >= 0 && sys(SYS_ppoll, &p, 1, &zero, NULL, 0) > 0;
}

uint64_t stream_told_under_way(struct stream *s)
{
	uint64_t since, now = now_ns();
	bool end, count;

	lock_take(&s->rcv.lock);
	end = s->rcv.fin_known || s->rcv.end_peeked;
	count = stream_rx_resent(s) && s->rcv.peeked > s->rcv.cut.rd;
	since = now - s->rcv.resent_ns;
	lock_give(&s->rcv.lock);
	if (!count && (!end || atomic_load(&s->fallback.rdhup) || home_shows(s)))
		return 0;
	/* Perhaps nobody makes room for them: rarer and rarer. */
	return since < END_LOOK_MIN_NS * 2   ? END_LOOK_MIN_NS / 1000
	       : since < END_LOOK_MAX_NS * 2 ? since / 2000
					     : END_LOOK_MAX_NS / 1000;
}

static void home_event_seen(struct stream *s, uint32_t events)
{
	/* ERR alone may be of the error queue (MSG_ZEROCOPY), or of a reset whose new state is not
	 * written down yet: asking for that waits for it. */
	if ((events & (EPOLLERR | EPOLLHUP)) == EPOLLERR &&
	    stream_tcp_state(atomic_load(&s->fd)) != TCP_CLOSE)
		events &= ~(uint32_t)EPOLLERR;
	if (!events)
		return;
	if (home_shows(s)) {
		stream_fin_seen(s);
		if (events & (EPOLLERR | EPOLLHUP) && atomic_load(&s->link) &&
		    !atomic_load(&s->peer_gone) && !stream_both_on_tcp(s)) {
			/* FIN both ways while bytes are on the path happens only when the peer
			 * died. */
			if (events & EPOLLERR || !s->snd.cut.fin_sent ||
			    !cut_tx_on_tcp(&s->snd.cut))
				stream_peer_dead(s);
		} else if (events & (EPOLLERR | EPOLLHUP) && atomic_load(&s->peer_gone) == 1) {
			stream_reset_late(s, events);
		}
		/* Where reads are TCP's, so is their end; elsewhere FIN says nothing before
		 * BACK. A reset shows RDHUP, too. */
		if ((events & (EPOLLRDHUP | EPOLLERR)) == EPOLLRDHUP &&
		    s->rcv.cut.state == CUT_RX_TCP)
			s->rcv.fin_known = 1;
		atomic_store(&s->fallback.rdhup, 1);
	}
}

void stream_home_event(struct stream *s, uint32_t events)
{
	stream_lock(s);
	home_event_seen(s, events);
	stream_unlock(s);
	bg_look(s);
}

bool stream_look_for_reset(struct stream *s)
{
	struct pollfd p = { atomic_load(&s->fd), 0, 0 };
	struct timespec zero = { 0, 0 };

	if (!atomic_load(&s->link) || atomic_load(&s->peer_gone) || stream_both_on_tcp(s) ||
	    p.fd < 0 || sys(SYS_ppoll, &p, 1, &zero, NULL, 0) < 1 || p.revents & POLLNVAL)
		return false;
	home_event_seen(s, (uint32_t)p.revents);
	return true;
}
