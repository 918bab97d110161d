/*
 * stream_cut.c - carries out what the cut machine (shim/cut) decides.
 *
 * Every entry is called with the lock of the half that it touches. Link, bell and epoll locks are
 * leaves below it. Nothing here sleeps: kernel calls are non-blocking.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/event.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "base/trace.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_wake.h"
#include "link/link.h"
#include "link/path.h"
#include "policy/log.h"

static void base_is(_Atomic uint64_t *base, uint64_t at, _Atomic uint64_t *counted)
{
	atomic_store_explicit(base, at - atomic_load_explicit(counted, memory_order_relaxed),
			      memory_order_relaxed);
}

/* One half alone: its lock is held, the other's perhaps not. */
static void count_half_here(struct stream *s, bool tx)
{
	struct stat_row *w = s->row;
	struct stat_moves *m = stat_row_moves(w);

	if (tx) {
		atomic_store_explicit(&s->moves.tx, m->n[cut_tx_on_ring(&s->snd.cut)],
				      memory_order_relaxed);
		base_is(&w->tx_base, s->snd.ring.wr, &w->tx_bytes[s->path]);
	} else {
		atomic_store_explicit(&s->moves.rx, m->n[s->rcv.cut.state == CUT_RX_RING],
				      memory_order_relaxed);
		base_is(&w->rx_base, s->rcv.ring.rd, &w->rx_bytes[s->path]);
	}
}

void stream_count_here(struct stream *s)
{
	_Static_assert(offsetof(struct stat_row, rx_bytes) - offsetof(struct stat_row, tx_bytes) ==
			       PATH_KINDS * sizeof(uint64_t),
		       "see fast_bytes");
	s->moves.fast_bytes = &s->row->tx_bytes[s->path];
	count_half_here(s, true);
	count_half_here(s, false);
	stream_count_ring(s);
}

static void publish_half(struct stream *s, bool tx)
{
	struct stat_row *w = s->row;
	_Atomic uint8_t *path = tx ? &w->tx_path : &w->rx_path;
	bool fast = tx ? cut_tx_on_ring(&s->snd.cut) : s->rcv.cut.state == CUT_RX_RING;

	atomic_store_explicit(tx ? &w->tx_state : &w->rx_state,
			      tx ? s->snd.cut.state : s->rcv.cut.state, memory_order_relaxed);
	count_half_here(s, tx);
	if (fast && atomic_load_explicit(path, memory_order_relaxed) == PATH_TCP) {
		stat_add(STAT_cuts, 1);
		if (!atomic_exchange(&s->fallback.was_fast, 1))
			stat_add(STAT_conns_fast, 1);
	}
	atomic_store_explicit(path, fast ? s->path : PATH_TCP, memory_order_relaxed);
}

void stream_publish_state(struct stream *s)
{
	publish_half(s, true);
	publish_half(s, false);
}

/* RST now: disconnecting does that, and leaves the application its fd. */
void stream_reset(struct stream *s)
{
	struct sockaddr sa = { .sa_family = AF_UNSPEC };

	log_line(2, "stream fd %d: lost, resetting", atomic_load(&s->fd));
	atomic_store(&s->err, ECONNRESET);
	stream_set_gone(s, 2);
	if (atomic_load(&s->fd) >= 0)
		sys(SYS_connect, atomic_load(&s->fd), &sa, sizeof sa);
	stream_wake(s);
	bg_look(s);
}

/* Where the direction ends, before the kernel's FIN says that it does: a reader that is armed or
 * frozen still, because its BACK waits for the background thread, knows by that that the FIN is
 * true. snd.lock held. */
void stream_publish_final(struct stream *s)
{
	/* TCP-only: TCP has bytes that were not counted */
	if (!atomic_load(&s->link) || !s->snd.synced ||
	    (stream_tcp_only(s) && !cut_tx_on_ring(&s->snd.cut)))
		return;
	atomic_store_explicit(&s->snd.ring.sh->final, s->snd.cut.wr, memory_order_release);
	stream_notify_peer(s);
}

/* The kernel's RST is about to follow: a poller that sees the path ready all the time must look
 * for it. */
void stream_publish_reset(struct stream *s)
{
	if (!atomic_load(&s->link))
		return;
	atomic_store_explicit(&s->snd.ring.sh->final, RING_RESET, memory_order_release);
	stream_notify_peer(s);
}

static void kernel_fin(struct stream *s)
{
	int fd = atomic_load(&s->fd);

	/* After shutdown() in any case; after close() unless another process holds the socket
	 * too: then the kernel sends FIN when the last one closes. */
	if (fd >= 0 && (atomic_load(&s->shut.wr) || (atomic_load(&s->dead) && !fork_shared(s)))) {
		stream_publish_final(s);
		sys(SYS_shutdown, fd, SHUT_WR);
		s->snd.fin_out = 1;
	}
	bg_look(s);
}

/* Bytes that TCP holds back for a cork, for MSG_MORE, or until the peer has acknowledged what went
 * before, would come late: nobody writes TCP after the cut, and what is sent again may have been
 * shown to the reader. TCP_NODELAY pushes all that is queued, through a cork, too. */
static void push_out(struct stream *s)
{
	int fd = atomic_load(&s->fd), on = 0;
	uint32_t len = sizeof on;

	if (sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, &len) < 0)
		return;
	sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof on);
	if (!on)
		sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Bytes that were counted when the ring took them are on TCP after all. Those from before a fork
 * were counted in another process's row. snd.lock held. */
static void count_resent(struct stream *s, uint64_t n)
{
	uint64_t fast = atomic_load_explicit(s->moves.fast_bytes, memory_order_relaxed);

	atomic_store_explicit(s->moves.fast_bytes, fast > n ? fast - n : 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], n, memory_order_relaxed);
}

bool stream_resend(struct stream *s)
{
	while (s->snd.cut.state == CUT_TX_RESENDING && atomic_load(&s->peer_gone) != 2) {
		uint64_t at = s->snd.cut.resend;
		size_t n;
		const uint8_t *p = ring_tx_held(&s->snd.ring, at, &n);
		long r;

		if (!p)
			p = device_held(s, at, &n);
		if (!s->snd.lost && stream_overtaken(s, at))
			p = NULL;
		if (!p) {
			stream_reset(s);
			return false;
		}
		r = s->snd.lost ? -EPIPE
				: sys(SYS_sendto, atomic_load(&s->fd), p, n,
				      MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
		s->snd.resend_full = r == -EAGAIN;
		if (r == -EAGAIN || r == -EINTR)
			return true;
		/* since that look, and before the reader hears that all is his kernel's */
		if (!s->snd.lost && (r == -EPIPE || r == (long)(s->snd.cut.wr - at)) &&
		    stream_overtaken(s, r > 0 ? s->snd.cut.wr : at)) {
			stream_reset(s);
			return false;
		}
		if (r < 0) {	/* the connection is gone: as TCP would have told; EPIPE it only
				 * says to those who send */
			if (r != -EPIPE)
				atomic_store(&s->err, stream_reset_errno(s, (int)-r));
			s->snd.lost = 1;
			r = (long)n;
		} else {
			count_resent(s, (uint64_t)r);
			if ((uint64_t)r == s->snd.cut.wr - s->snd.cut.resend)
				push_out(s);	/* before the peer hears that all is his kernel's */
			stream_resent_in_vain(s);
		}
		stream_tx_event(s, CUT_EV_RESENT, 0, (uint64_t)r);
	}
	return false;
}

/* What kept it on TCP for a while is over. */
static void passed(struct stream *s)
{
	switch (atomic_load_explicit(&s->row->reason, memory_order_relaxed)) {
	case REASON_FORCED: case REASON_OVERFLOW: case REASON_NO_COUNTS: case REASON_FOREIGN_WAIT:
	case REASON_REWOUND: case REASON_NO_MEMORY:
		stat_row_reason(s->row, REASON_NONE);
	}
}

static void carry_out(struct stream *s, bool tx, const struct cut_out *out)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	bool resend = false;

	for (int i = 0; i < out->n; i++) {
		const struct cut_action *a = &out->act[i];

		switch (a->kind) {
		case CUT_ACT_SEND:
			log_line(4, "fd %d: say %s e=%u off=%lu", atomic_load(&s->fd),
				 cut_msg_name(a->msg), a->epoch, a->off);
			if (l)
				link_send_cut(l, s->slot, a->msg, a->epoch, a->off);
			break;
		case CUT_ACT_OPEN_RING:
			if (tx) {
				hold_end(s);
				push_out(s);
				s->snd.left_us = now_us();
				ring_tx_open(&s->snd.ring, a->epoch, a->off);
			} else {
				ring_memory_received(s);
				ring_rx_open(&s->rcv.ring, a->off);
			}
			atomic_store(&s->fallback.late, FALLBACK_IN_TIME);
			atomic_fetch_add_explicit(&s->row->cuts, 1, memory_order_relaxed);
			stat_row_event(s->row, tx ? EVENT_CUT_TX : EVENT_CUT_RX, a->off);
			TRACE3(cut, atomic_load(&s->fd), (int)tx, a->off);
			passed(s);
			log_line(3, "fd %d: %s cut over at %lu", atomic_load(&s->fd),
				 tx ? "send" : "receive", a->off);
			break;
		case CUT_ACT_DROP_RING:
			if (tx) {
				stream_fell_back(s);
				/* who polls when the next cut is not open yet finds room */
				s->snd.ring.rd = s->snd.ring.wr;
			}
			atomic_fetch_add_explicit(&s->row->rewinds, 1, memory_order_relaxed);
			stat_add(STAT_rewinds, 1);
			stat_row_event(s->row, tx ? EVENT_BACK_TX : EVENT_BACK_RX, 0);
			TRACE2(back, atomic_load(&s->fd), (int)tx);
			log_line(3, "fd %d: %s back on TCP", atomic_load(&s->fd),
				 tx ? "send" : "receive");
			break;
		case CUT_ACT_RESEND:
			resend = true;
			break;
		case CUT_ACT_FINAL:
			atomic_store_explicit(&s->snd.ring.sh->final, a->off, memory_order_release);
			stream_notify_peer(s);
			break;
		case CUT_ACT_FIN:
			kernel_fin(s);
			break;
		case CUT_ACT_RESET:
			/* A dead peer's last bytes stay readable; only what we would send has
			 * nowhere to go. If it had read all, the kernel takes what comes next:
			 * it is the one that says how sends end. */
			if (!tx || !atomic_load(&s->peer_gone))
				stream_reset(s);
			else if (ring_tx_refresh(&s->snd.ring) || s->snd.ring.rd < s->snd.ring.wr)
				s->snd.lost = 1;
			break;
		case CUT_ACT_WAKE:
			stream_wake(s);
			bg_look(s);
			break;
		}
	}
	if (out->n)
		publish_half(s, tx);
	if (resend && stream_resend(s))
		bg_look(s);
}

void stream_protocol_error(struct stream *s)
{
	stat_add(STAT_bad_peer, 1);
	stat_row_reason(s->row, REASON_PROTOCOL);
	stream_reset(s);
}

static void judge(struct stream *s, const struct cut_out *out, const char *half, enum cut_ev ev)
{
	if (!out->bad)
		return;
	log_line(1, "fd %d: %s: %s half, event %s", atomic_load(&s->fd),
		 out->stray ? "the cut machine left its table" : "protocol error", half,
		 cut_ev_name(ev));
	if (!out->stray) {
		stream_protocol_error(s);
		return;
	}
	stat_row_reason(s->row, REASON_PROTOCOL);
	stream_reset(s);
}

/* We have reset the connection: nothing is on TCP any more, so neither half may say so. */
static bool over(const struct stream *s) { return atomic_load(&s->peer_gone) == 2; }

void stream_tx_put_off(struct stream *s)
{
	uint32_t events = s->pull.open ? 0 : s->pull.put_off;

	if (!events)
		return;
	s->pull.put_off = 0;
	for (uint32_t ev = 0; events; ev++, events >>= 1)
		if (events & 1)
			stream_tx_event(s, (enum cut_ev)ev, 0, 0);
}

void stream_tx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	uint8_t before = s->snd.cut.state;
	struct cut_out out;

	if (s->pull.open && pull_puts_off(s, ev, epoch, off))
		return;
	stream_tx_put_off(s);
	if (s->direct.stuck && !s->pull.open)
		direct_settle(s, true);
	if (over(s))
		return;
	/* Credit is checked by ring_tx_refresh before it gets here. */
	if (ev != CUT_EV_CREDIT && ev != CUT_EV_RESENT && cut_tx_on_ring(&s->snd.cut)) {
		ring_tx_refresh(&s->snd.ring);
		s->snd.cut.credit = s->snd.ring.rd > s->snd.cut.credit ? s->snd.ring.rd
								       : s->snd.cut.credit;
	}
	cut_tx_step(&s->snd.cut, ev, epoch, off, &out);
	judge(s, &out, "sender", ev);
	carry_out(s, true, &out);
	/* Not for a step that changes nothing: who waits asks for one again and again. */
	if (out.n || s->snd.cut.state != before)
		event_ring(&stream_steps);
}

void stream_rx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	uint8_t before = s->rcv.cut.state;
	uint32_t e = s->rcv.cut.epoch;
	bool arms = s->rcv.cut.arm_pending;
	struct cut_out out;

	if (over(s))
		return;
	stream_final_seen(s);		/* noted before a BACK makes it the kernel's */
	if (ev == CUT_EV_BACK && s->rcv.cut.state == CUT_RX_FROZEN && epoch == s->rcv.cut.epoch -
	    1 &&
	    stream_rx_coming(s)) {
		s->rcv.resent_ns = now_ns();
		s->rcv.resent_to = off;
		atomic_store(&s->rcv.resent_end, off - s->rcv.cut.delta);
	}
	cut_rx_step(&s->rcv.cut, ev, epoch, off, &out);
	judge(s, &out, "receiver", ev);
	/* FIN was shown when it could not be believed; now reads are TCP's, and so is their end */
	if (before != CUT_RX_TCP && s->rcv.cut.state == CUT_RX_TCP &&
	    atomic_load(&s->fallback.rdhup) &&
	    !s->lost.reset_seen && !atomic_load(&s->err))
		s->rcv.fin_known = 1;
	/* who polls sees the end without a lock, perhaps at this moment */
	if (before == CUT_RX_RING && s->rcv.cut.state == CUT_RX_FROZEN)
		stream_show_end(s, stream_final_in_ring(s));
	if (s->wired && before == CUT_RX_RING && s->rcv.cut.state != CUT_RX_RING)
		pull_frozen(s, e);
	if (s->rcv.cut.state == CUT_RX_TCP && atomic_load(&s->shut.rd_owed)) {
		sys(SYS_shutdown, atomic_load(&s->fd), SHUT_RD);
		atomic_store(&s->shut.rd_owed, 0);
	}
	if (before != CUT_RX_TCP && s->rcv.cut.state == CUT_RX_TCP)
		ring_memory_unused(s);
	carry_out(s, false, &out);
	if (out.n || s->rcv.cut.state != before || s->rcv.cut.arm_pending != arms)
		event_ring(&stream_steps);
}

void stream_path_dead(struct stream *s)
{
	stream_lock(s);
	if (atomic_load(&s->link) && !atomic_load(&s->peer_gone)) {
		stream_tx_event(s, CUT_EV_PATH_DEAD, 0, 0);
		stream_rx_event(s, CUT_EV_PATH_DEAD, 0, 0);
	}
	stream_unlock(s);
	bg_look(s);
}

bool stream_both_on_tcp(const struct stream *s)
{
	return s->snd.cut.state == CUT_TX_TCP && s->rcv.cut.state == CUT_RX_TCP &&
	       !s->rcv.cut.arm_pending;
}

void stream_attach(struct stream *s, struct link *l, uint32_t slot)
{
	struct segment_slot_side *mine = &l->segment.slot[slot].side[l->segment.me];
	uint64_t b = atomic_load(&s->bells);

	earn_asked(s);
	cut_tx_init(&s->snd.cut);
	cut_rx_init(&s->rcv.cut);
	if (atomic_load(&s->shut.wr))	/* its FIN went before: both ends' FINs are no sign that
					 * the peer died */
		s->snd.cut.closing = s->snd.cut.fin_sent = true;
	segment_ring_tx(&l->segment, slot, &s->snd.ring);
	segment_ring_rx(&l->segment, slot, &s->rcv.ring);
	s->slot = slot;
	s->snd.fulls = 0;
	s->rcv.used = 0;
	s->device.lost = 0;
	s->device.held_until_us = 0;
	s->direct.in_vain = 0;
	/* offsets begin anew */
	atomic_store_explicit(&s->rcv.ring.sh->offer_read, 0, memory_order_relaxed);
	s->path = (uint8_t)l->path->kind;
	s->wired = l->wire != NULL;
	stream_count_here(s);
	s->fallback.unbind_sent = s->fallback.unbind_got = 0;
	s->fallback.rdhup = 0;
	s->rcv.end_at = RING_NO_FINAL;
	s->rcv.end_peeked = 0;
	atomic_store(&s->rcv.end_awaited, 0);
	s->lost.us = 0;
	s->snd.synced = s->rcv.synced = 0;
	stream_owes_nothing(s);
	link_streams(l, 1);
	atomic_fetch_or(&mine->bells, b);
	if (s->reg.n)
		atomic_store(&mine->epolls, 1);
	atomic_store(&l->streams[slot], s);
	atomic_store(&s->link, l);
	stream_count_ring(s);
	atomic_store(&s->mode, MODE_ATTACHED);
	/* bells that were added between the two looks */
	atomic_fetch_or(&mine->bells, atomic_load(&s->bells));
}

void stream_detach(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	if (!l)
		return;
	if (s->pull.open)
		pull_over(s);
	else if (s->direct.stuck)	/* after a reset */
		direct_settle(s, true);
	stream_give_large(s);
	ring_memory_free(s);
	direct_read_over(s, true);
	direct_forget(s);	/* if the driver cannot be asked now, the peer keeps its snapshot
				 * for good */
	atomic_store(&s->direct.watched, 0);
	device_detach(s);
	stream_owes_nothing(s);		/* reads are not counted any more */
	atomic_store(&l->streams[s->slot], NULL);
	atomic_store(&s->link, NULL);
	event_ring(&stream_steps);
	stream_count_ring(s);
	link_streams(l, -1);
}
