/*
 * stream_cut.c - carries out what the cut/rewind machine (cut.c) decides.
 *
 * Every entry is called with the lock of the half that it touches; link, bell and epoll locks are
 * leaves below. Nothing here sleeps: kernel calls are non-blocking.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "base/loop.h"
#include "base/procs.h"
#include "base/seen.h"
#include "base/sys.h"
#include "base/trace.h"
#include "conn/stream_int.h"
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
		atomic_store_explicit(&s->moves.rx, m->n[s->rcv.cut.state == CUT_RX_K],
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
	bool fast = tx ? cut_tx_on_ring(&s->snd.cut) : s->rcv.cut.state == CUT_RX_K;

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
	/* pinned: TCP has bytes that were not counted */
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

static int kernel_error(struct stream *s);

/* In this order: whoever polls sees both, or none yet. */
static void reset_with(struct stream *s, int e)
{
	atomic_store(&s->err, e);
	s->lost.reset_ours = 1;
	__atomic_store_n(&s->lost.reset_seen, 1, __ATOMIC_RELEASE);
}

/*
 * Bytes that the peer has not read were sent again to where its process had ended: TCP would
 * have reset the connection then. The kernel knows of them too late, if FIN came first, and
 * takes it for a clean end. snd.lock held.
 */
static void resent_in_vain(struct stream *s)
{
	struct pollfd p = { .fd = atomic_load(&s->fd), .events = POLLRDHUP };
	struct link *l = atomic_load(&s->link);
	struct timespec zero = { 0, 0 };

	if (atomic_load(&s->peer_gone))		/* it is known, and was perhaps told already */
		return;
	if (sys(SYS_ppoll, &p, 1, &zero, NULL, 0) < 1 || !(p.revents & POLLRDHUP) || !l)
		return;
	if (!link_ended(l) && !process_ending(l->peer_pid, l->peer_start))
		return;
	if ((p.revents & (POLLHUP | POLLERR)) == POLLHUP)	/* a reset that was told already */
		return;
	if (p.revents & POLLERR)
		kernel_error(s);	/* taken: it is told once */
	/* One that had closed its direction before it ended has said so in the ring. */
	reset_with(s,
		   atomic_load(&s->rcv.ring.sh->final) == RING_NO_FINAL || atomic_load(&s->shut.wr)
			   ? ECONNRESET
			   : EPIPE);
}

/* Bytes that were counted when the ring took them are on TCP after all. Those from before a fork
 * were counted in another process's row. snd.lock held. */
static void count_resent(struct stream *s, uint64_t n)
{
	uint64_t fast = atomic_load_explicit(s->moves.fast_bytes, memory_order_relaxed);

	atomic_store_explicit(s->moves.fast_bytes, fast > n ? fast - n : 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], n, memory_order_relaxed);
}

/* A child that could not wait any longer for what it should have found on TCP has sent there: what
 * is to come before that can only come behind it now. */
static bool overtaken(struct stream *s)
{
	int64_t k = -1;

	if (atomic_load(&s->others.holders))
		k = stream_kernel_offset(atomic_load(&s->fd), true, s->role == ROLE_CLIENT);
	return k >= 0 && (uint64_t)k != s->snd.cut.resend - s->snd.cut.delta;
}

bool stream_resend(struct stream *s)
{
	while (s->snd.cut.state == CUT_TX_R && atomic_load(&s->peer_gone) != 2) {
		size_t n;
		const uint8_t *p = ring_tx_held(&s->snd.ring, s->snd.cut.resend, &n);
		long r;

		if (!p)
			p = device_held(s, s->snd.cut.resend, &n);
		if (overtaken(s))
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
			resent_in_vain(s);
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
				ring_received(s);
				ring_rx_open(&s->rcv.ring, a->off);
			}
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
	event_ring(&stream_steps);	/* a step without actions may end an arming, too */
	if (resend && stream_resend(s))
		bg_look(s);
}

static void judge(struct stream *s, const struct cut_out *out, const char *half, enum cut_ev ev)
{
	if (!out->bad)
		return;
	log_line(1, "fd %d: %s: %s half, event %s", atomic_load(&s->fd),
		 out->stray ? "the cut machine left its table" : "protocol error", half,
		 cut_ev_name(ev));
	if (!out->stray)
		stat_add(STAT_bad_peer, 1);
	stat_row_reason(s->row, REASON_PROTOCOL);
	stream_reset(s);
}

/* We have reset the connection: nothing is on TCP any more, so neither half may say so. */
static bool over(const struct stream *s) { return atomic_load(&s->peer_gone) == 2; }

void stream_tx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	struct cut_out out;

	if (s->direct.stuck)
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
}

/* Where the direction ends, as the sender says after its last byte was published; anything else
 * is a lie. */
static uint64_t final_in_ring(struct stream *s)
{
	uint64_t final = atomic_load_explicit(&s->rcv.ring.sh->final, memory_order_acquire);

	if (final >= RING_RESET ||
	    final != atomic_load_explicit(&s->rcv.ring.sh->wr, memory_order_acquire) ||
	    final < s->rcv.cut.rd)
		return RING_NO_FINAL;
	return final;
}

void stream_show_end(struct stream *s, uint64_t at)
{
	if (s->rcv.end_peeked || at == RING_NO_FINAL || !atomic_load(&s->link) || fork_shared(s))
		return;
	s->rcv.end_peeked = 1;
	if (at > s->rcv.peeked)
		s->rcv.peeked = at;
}

void stream_rx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	uint8_t before = s->rcv.cut.state;
	struct cut_out out;

	if (over(s))
		return;
	stream_final_seen(s);		/* noted before a BACK makes it the kernel's */
	if (ev == CUT_EV_BACK && s->rcv.cut.state == CUT_RX_F && s->rcv.cut.was_cut &&
	    epoch == s->rcv.cut.epoch - 1) {
		s->rcv.resent_ns = now_ns();
		s->rcv.resent_to = off;
		atomic_store(&s->rcv.resent_end, off - s->rcv.cut.delta);
	}
	cut_rx_step(&s->rcv.cut, ev, epoch, off, &out);
	judge(s, &out, "receiver", ev);
	/* FIN was shown when it could not be believed; now reads are TCP's, and so is their end */
	if (before != CUT_RX_T && s->rcv.cut.state == CUT_RX_T && atomic_load(&s->fallback.rdhup) &&
	    !s->lost.reset_seen && !atomic_load(&s->err))
		s->rcv.fin_known = 1;
	/* who polls sees the end without a lock, perhaps at this moment */
	if (before == CUT_RX_K && s->rcv.cut.state == CUT_RX_F)
		stream_show_end(s, final_in_ring(s));
	if (s->rcv.cut.state == CUT_RX_T && atomic_load(&s->shut.rd_owed)) {
		sys(SYS_shutdown, atomic_load(&s->fd), SHUT_RD);
		atomic_store(&s->shut.rd_owed, 0);
	}
	if (before != CUT_RX_T && s->rcv.cut.state == CUT_RX_T)
		ring_back(s);
	carry_out(s, false, &out);
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

bool stream_fallback_both(const struct stream *s)
{
	return s->snd.cut.state == CUT_TX_T && s->rcv.cut.state == CUT_RX_T &&
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
	if (s->direct.stuck)	/* after a reset */
		direct_settle(s, true);
	stream_give_large(s);
	ring_free(s);
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

/* The library's count and the kernel's must agree, else bytes moved behind our back. */
static int sync_tx(struct stream *s)
{
	int64_t k = stream_kernel_offset(atomic_load(&s->fd), true, s->role == ROLE_CLIENT);

	if (k < 0)
		return (int)k;
	if (s->snd.synced && (uint64_t)k != s->snd.cut.wr - s->snd.cut.delta)
		return -EXDEV;
	s->snd.cut.wr = (uint64_t)k + s->snd.cut.delta;
	s->snd.synced = 1;
	return 0;
}

/* While it was shared another process may have said SHUT_RD, which the kernel alone knows: it shows
 * the end of a connection that has none. Our own is not said before the direction is on TCP. */
static bool shut_by_other(const struct stream *s)
{
	struct pollfd p = { .fd = atomic_load(&s->fd), .events = POLLRDHUP };
	struct timespec zero = { 0, 0 };

	return atomic_load(&s->others.holders) && !atomic_load(&s->shut.rd) &&
	       sys(SYS_ppoll, &p, 1, &zero, NULL, 0) > 0;
}

static int sync_rx(struct stream *s)
{
	int64_t k = stream_kernel_offset(atomic_load(&s->fd), false, false);

	if (k < 0)
		return (int)k;
	if (shut_by_other(s))
		return -ENOTCONN;
	if (s->rcv.synced && (uint64_t)k != s->rcv.cut.rd - s->rcv.cut.delta)
		return -EXDEV;
	s->rcv.cut.rd = (uint64_t)k + s->rcv.cut.delta;
	s->rcv.synced = 1;
	return 0;
}

static bool may_earn(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	/* A peer that is behind with its control socket gets no new work: ARM and BACK in turn,
	 * neither waiting for an answer, would fill the queue without bound. */
	return l && !atomic_load(&l->out_waiting) && !atomic_load(&l->path_dead) &&
	       atomic_load(&s->mode) == MODE_ATTACHED && stream_keeps_link(s) && !fork_shared(s);
}

static bool waits_known(struct stream *s)
{
	return !atomic_load(&s->nonblock) || atomic_load(&s->waits_seen) || s->rcv.poller.polls;
}

bool stream_poller_gone(struct stream *s)
{
	bool over = true;

	lock_take(&s->rcv.lock);
	/* CUT comes, or not: then there is something to fall back from */
	if (s->rcv.cut.state == CUT_RX_A) {
		over = false;
	} else {
		poller_stops(&s->rcv.poller);
		SEEN("poller", s, "stops", 0, 0, s->rcv.poller.stopped);
		stat_row_event(s->row, EVENT_POLLER_GONE,
			       IDLE_ROUNDS_MOST << s->rcv.poller.stopped);
		if (s->rcv.cut.state == CUT_RX_K && !atomic_load(&s->waits_seen)) {
			log_line(3, "fd %d: nobody asks for its bytes, back to TCP",
				 atomic_load(&s->fd));
			stat_row_reason(s->row, REASON_FOREIGN_WAIT);
			stream_rx_event(s, CUT_EV_FALLBACK, 0, 0);
		}
	}
	lock_give(&s->rcv.lock);
	return over;
}

/* Arming of either half: every wait on the socket must see the path first. */
static int prepare(struct stream *s, int (*sync)(struct stream *))
{
	int r = stream_pollers->arm(s);

	if (r) {
		stat_row_reason(s->row, REASON_FOREIGN_WAIT);
		return r;
	}
	r = sync(s);
	if (r == -EXDEV) {
		log_line(2, "fd %d: bytes moved behind the library, staying on TCP",
			 atomic_load(&s->fd));
		stat_row_reason(s->row, REASON_BYPASS);
		atomic_store(&s->earn.stopped, REASON_BYPASS);
	} else if (r && r != -EAGAIN && r != -ENOTCONN && r != -EBADF) {
		stat_row_reason(s->row, REASON_NO_COUNTS);
	}
	return r;
}

bool stream_try_cut(struct stream *s)
{
	int rx = 0, tx = 0;
	bool had;

	lock_take(&s->rcv.lock);
	if (s->rcv.cut.state == CUT_RX_T && s->rcv.cut.arm_pending && atomic_load(&s->link) &&
	    !atomic_load(&s->plain.rx) && waits_known(s) && !atomic_load(&s->dead) &&
	    !atomic_load(&s->earn.stopped) && !atomic_load(&s->fallback.going) && !fork_shared(s)) {
		rx = prepare(s, sync_rx);
		if (!rx && fork_leaves_fallback(s))
			stream_rx_event(s, CUT_EV_NO_WAITERS, 0, 0);
	}
	lock_give(&s->rcv.lock);
	lock_take(&s->snd.lock);
	had = s->snd.held;
	if (s->snd.cut.state == CUT_TX_T && may_earn(s) && !atomic_load(&s->plain.tx) &&
	    !stream_pauses(s) && ring_take(s, s->snd.ring.size)) {
		tx = prepare(s, sync_tx);
		if (!tx && fork_leaves_fallback(s)) {
			hold_again(s);
			stream_tx_event(s, CUT_EV_EARNED, 0, 0);
		} else if (!had) {
			ring_free(s);
		}
	}
	lock_give(&s->snd.lock);
	return rx == -EAGAIN || tx == -EAGAIN;
}

/* Of what comes before the ring: TCP has all of it for us, nothing is under way. */
static bool tcp_part_here(struct stream *s)
{
	int64_t left = (int64_t)(s->rcv.cut.cut_at - s->rcv.cut.rd);
	int q = 0;

	return left <= 0 || (sys(SYS_ioctl, atomic_load(&s->fd), FIONREAD, &q) >= 0 && q >= left);
}

/*
 * As the kernel, which shows FIN when all that was sent before it is here: a reader that is told
 * of the end may take a read that is not full for the last one. While armed or frozen bytes are
 * under way through TCP, so there it is the end only if all was read.
 */
bool stream_final_seen(struct stream *s)
{
	uint64_t final;

	/* In T the kernel answers; what was seen before stays. */
	if (atomic_load_explicit(&s->rcv.fin_known, memory_order_acquire))
		return true;
	if (s->rcv.cut.state == CUT_RX_T || !atomic_load_explicit(&s->link, memory_order_acquire))
		return atomic_load_explicit(&s->rcv.fin_known, memory_order_acquire);
	final = final_in_ring(s);
	if (final == RING_NO_FINAL)
		return false;
	if (s->rcv.cut.state != CUT_RX_K) {
		if (final != s->rcv.cut.rd)
			return false;
	} else if (!tcp_part_here(s)) {
		uint8_t none = 0;

		/* Nobody rings when it has come; who is dead sends no more. */
		if (!atomic_load(&s->peer_gone) &&
		    atomic_compare_exchange_strong(&s->rcv.end_awaited, &none, 1))
			bg_look(s);
		return false;
	}
	atomic_store_explicit(&s->rcv.end_at, final, memory_order_relaxed);
	atomic_store_explicit(&s->rcv.fin_known, 1, memory_order_release);
	return true;
}

bool stream_at_end(struct stream *s)
{
	return s->rcv.eof ||
	       (stream_final_seen(s) &&
		s->rcv.cut.rd >= atomic_load_explicit(&s->rcv.end_at, memory_order_relaxed));
}

/* A reset after FIN is EPIPE, unless we had closed too: tcp_reset() in net/ipv4/tcp_input.c. A
 * FIN that is on its way through the ring the kernel does not know. */
int stream_reset_errno(struct stream *s, int e)
{
	return e == ECONNRESET && stream_final_seen(s) && !atomic_load(&s->shut.wr) ? EPIPE : e;
}

/* Takes the socket's pending error, so that it is told once, by whoever of us and the kernel
 * comes first. */
static int kernel_error(struct stream *s)
{
	int e = 0;
	uint32_t len = sizeof e;

	if (sys(SYS_getsockopt, atomic_load(&s->fd), SOL_SOCKET, SO_ERROR, &e, &len) < 0 || !e)
		e = ECONNRESET;
	return stream_reset_errno(s, e);
}

/* Of a reset that resent_in_vain() knows the kernel says something else. */
static void note_error(struct stream *s)
{
	int none = 0, some = ECONNRESET, e;
	bool first = atomic_compare_exchange_strong(&s->err, &none, some);

	/* Before the kernel's is taken: from then on it shows the end without the error. */
	__atomic_store_n(&s->lost.reset_seen, 1, __ATOMIC_RELEASE);
	e = kernel_error(s);
	if (first)
		atomic_compare_exchange_strong(&s->err, &some, e);
	else if (e != EPIPE)
		atomic_store(&s->err, e);
}

/* The dead peer's kernel has answered what was sent after its FIN. Both locks held. */
void stream_reset_late(struct stream *s, uint32_t events)
{
	if (events & EPOLLERR)
		note_error(s);
	else
		s->lost.reset_seen = 1;
}

/* All that the peer ever sent is here. */
static bool ended_here(struct stream *s)
{
	ring_rx_refresh(&s->rcv.ring);
	return s->rcv.cut.state == CUT_RX_K && s->rcv.cut.rd >= s->rcv.cut.cut_at &&
	       atomic_load(&s->rcv.ring.sh->final) == s->rcv.ring.wr;
}

/* A dead peer's last words are in the segment; what reads give after them depends on how it
 * went. */
void stream_peer_dead(struct stream *s)
{
	struct pollfd p = { .fd = atomic_load(&s->fd), .events = POLLRDHUP };
	struct timespec zero = { 0, 0 };

	if (atomic_load(&s->peer_gone) || p.fd < 0 ||
	    (s->snd.cut.state == CUT_TX_T && s->rcv.cut.state == CUT_RX_T))
		return;		/* all is TCP's: so is the end */
	if (sys(SYS_ppoll, &p, 1, &zero, NULL, 0) < 1 ||
	    !(p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
		return;
	/* A thread that is inside a plain call still, because one direction alone was cut, gets
	 * it from the kernel: one that receives would take the end of a socket without error for
	 * EOF. */
	if (p.revents & POLLERR && !atomic_load(&s->plain.rx) && !atomic_load(&s->plain.tx))
		note_error(s);
	else if (p.revents & (POLLHUP | POLLERR))
		s->lost.reset_seen = 1;
	/* Only FIN: its process ended. An RST speaks for itself, and its error may have been
	 * taken already. */
	if (s->snd.cut.state >= CUT_TX_K && !(p.revents & (POLLHUP | POLLERR))) {
		ring_tx_refresh(&s->snd.ring);
		if (s->snd.ring.rd < s->snd.ring.wr)
			reset_with(s, ECONNRESET);	/* it left input unread: TCP would have
							 * reset */
	}
	/* Without a common segment what the dead process had not sent off, or told us of, is lost:
	 * never a clean end. */
	if (s->wired && s->rcv.cut.state != CUT_RX_T && !s->rcv.cut.back_pending && !ended_here(s))
		reset_with(s, ECONNRESET);
	if (atomic_load(&s->err))
		s->lost.reset_seen = 1;
	stream_rx_event(s, CUT_EV_KERNEL_EOF, (uint32_t)atomic_load(&s->rcv.ring.sh->epoch),
			atomic_load(&s->rcv.ring.sh->cut));
	stream_set_gone(s, 1);
	if (atomic_load(&atomic_load(&s->link)->state) == LINK_DEAD)
		stat_row_reason(s->row, REASON_PEER_GONE);
	stream_wake(s);
}

/* The control socket broke, the connection did not: it goes on, on TCP. */
static bool outlives_link(struct stream *s)
{
	struct pollfd p = { .fd = atomic_load(&s->fd), .events = POLLRDHUP };
	struct timespec zero = { 0, 0 };

	return !atomic_load(&s->dead) && !atomic_load(&s->peer_gone) && stream_fallback_both(s) &&
	       p.fd >= 0 && !sys(SYS_ppoll, &p, 1, &zero, NULL, 0);
}

/*
 * FIN while we are on the path: did the peer's process end? Then the machine hears of it. True:
 * it is ending, and has left input unread; its control socket follows in a moment, and then it
 * is known to be a reset. Both locks held.
 */
bool stream_fin_seen(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	if (!l || atomic_load(&s->peer_gone) || stream_fallback_both(s))
		return false;
	if (link_ended(l)) {
		stream_peer_dead(s);
		return false;
	}
	if (s->snd.cut.state < CUT_TX_K)
		return false;
	ring_tx_refresh(&s->snd.ring);
	return s->snd.ring.rd < s->snd.ring.wr && process_ending(l->peer_pid, l->peer_start);
}

/*
 * Control socket gone: the peer's process is dead, or as good as. Its FIN or RST tells how it
 * went, and is nearly always there already; it is waited for a moment because the machine must
 * hear of it first. No FIN: somebody else holds the peer's end, who knows nothing of the path.
 * True: settled.
 */
bool stream_link_lost(struct stream *s, bool last_chance)
{
	bool done;

	stream_lock(s);
	stream_peer_dead(s);
	done = atomic_load(&s->peer_gone) || last_chance || stream_fallback_both(s);
	if (done && !s->lost.told) {
		s->lost.told = 1;
		stream_tx_event(s, CUT_EV_CTL_LOST, 0, 0);
		stream_rx_event(s, CUT_EV_CTL_LOST, 0, 0);
		if (!atomic_load(&s->peer_gone) && !stream_fallback_both(s) &&
		    s->rcv.cut.state != CUT_RX_A)
			stream_reset(s);
		if (outlives_link(s))
			stat_row_reason(s->row, REASON_PATH_DEAD);
		stream_publish_state(s);
		stream_wake(s);
	}
	stream_unlock(s);
	return done;
}
