/*
 * stream_end.c - what becomes of a stream whose peer has died or whose link was lost.
 *
 * Both locks are held, unless stream_end.h says otherwise. Nothing here sleeps: kernel calls are
 * non-blocking.
 */
#include "base/procs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_life.h"
#include "link/link.h"

/* Of a reset that stream_resent_in_vain() knows the kernel says something else. */
static void note_error(struct stream *s)
{
	int none = 0, some = ECONNRESET, e;
	bool first;

	/* Its calls are the kernel's alone, which tells the error. An ARM that is declined
	 * meanwhile makes it look like one on the path. */
	if (stream_tcp_only(s)) {
		__atomic_store_n(&s->lost.reset_seen, 1, __ATOMIC_RELEASE);
		return;
	}
	first = atomic_compare_exchange_strong(&s->err, &none, some);
	/* Before the kernel's is taken: from then on it shows the end without the error. */
	__atomic_store_n(&s->lost.reset_seen, 1, __ATOMIC_RELEASE);
	e = stream_kernel_error(s);
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
	return s->rcv.cut.state == CUT_RX_RING && s->rcv.cut.rd >= s->rcv.cut.cut_at &&
	       atomic_load(&s->rcv.ring.sh->final) == s->rcv.ring.wr;
}

/* A dead peer's last words are in the segment; what reads give after them depends on how it
 * went. */
void stream_peer_dead(struct stream *s)
{
	struct pollfd p = { .fd = atomic_load(&s->fd), .events = POLLRDHUP };
	struct timespec zero = { 0, 0 };

	if (atomic_load(&s->peer_gone) || p.fd < 0 ||
	    (s->snd.cut.state == CUT_TX_TCP && s->rcv.cut.state == CUT_RX_TCP))
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
	if (s->snd.cut.state >= CUT_TX_CUT_SENT && !(p.revents & (POLLHUP | POLLERR))) {
		ring_tx_refresh(&s->snd.ring);
		if (s->snd.ring.rd < s->snd.ring.wr)
			/* it left input unread: TCP would have reset */
			stream_reset_with(s, ECONNRESET);
	}
	/* Without a common segment what the dead process had not sent off, or told us of, is lost:
	 * never a clean end. */
	if (s->wired && s->rcv.cut.state != CUT_RX_TCP && !s->rcv.cut.back_pending &&
	    !ended_here(s))
		stream_reset_with(s, ECONNRESET);
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

	return !atomic_load(&s->dead) && !atomic_load(&s->peer_gone) && stream_both_on_tcp(s) &&
	       p.fd >= 0 && !sys(SYS_ppoll, &p, 1, &zero, NULL, 0);
}

/*
 * FIN while we are on the path: did the peer's process end? Then the machine hears of it. True:
 * it is known in a moment. Either it is ending, and has left input unread, and its control socket
 * follows; or that has ended, and the background thread has to read its last words, perhaps a
 * BACK, by which the end is a clean one. Both locks held.
 */
bool stream_fin_seen(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	if (!l || atomic_load(&s->peer_gone) || stream_both_on_tcp(s))
		return false;
	if (atomic_load(&l->state) == LINK_DEAD) {
		stream_peer_dead(s);
		return false;
	}
	if (link_ended(l))
		return true;
	if (s->snd.cut.state < CUT_TX_CUT_SENT)
		return false;
	ring_tx_refresh(&s->snd.ring);
	return s->snd.ring.rd < s->snd.ring.wr && link_peer_ending(l);
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
	done = atomic_load(&s->peer_gone) || last_chance || stream_both_on_tcp(s);
	if (done && !s->lost.told) {
		s->lost.told = 1;
		stream_tx_event(s, CUT_EV_CTL_LOST, 0, 0);
		stream_rx_event(s, CUT_EV_CTL_LOST, 0, 0);
		if (!atomic_load(&s->peer_gone) && !stream_both_on_tcp(s) &&
		    s->rcv.cut.state != CUT_RX_ARMED)
			stream_reset(s);
		if (outlives_link(s))
			stat_row_reason(s->row, REASON_PATH_DEAD);
		stream_publish_state(s);
		stream_wake(s);
	}
	stream_unlock(s);
	return done;
}
