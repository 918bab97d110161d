/*
 * stream_close.c - the end of a stream as the application causes it: close(), a descriptor that is
 * replaced or closed by another call, shutdown().
 *
 * Locks: the two direction locks as in stream.h.
 */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_slab.h"
#include "conn/stream_wake.h"
#include "link/link.h"

/* Unread input at close makes TCP reset; so must we. rcv.lock held. */
bool stream_unread_input(struct stream *s)
{
	int q = 0;

	if (s->rcv.cut.state == CUT_RX_RING) {
		stream_look_at_wire(s);
		ring_rx_refresh(&s->rcv.ring);
		if (ring_rx_avail(&s->rcv.ring) || direct_offered(&s->rcv.ring))
			return true;
	}
	if (stream_rx_coming(s) || stream_rx_resent(s))	/* on its way again by TCP */
		return true;
	return sys(SYS_ioctl, atomic_load(&s->fd), SIOCINQ, &q) >= 0 && q > 0;
}

/* What was not read may still be on its way through the kernel, which would say FIN first. */
static void reset_at_close(struct stream *s, int fd)
{
	struct linger reset = { 1, 0 };

	sys(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	stream_publish_reset(s);
}

/* A closed stream ends by RST: our descriptor of it goes. Both locks held. */
void stream_abort(struct stream *s)
{
	int fd = atomic_exchange(&s->fd, -1);

	atomic_store(&s->err, ECONNRESET);
	stream_set_gone(s, 2);
	if (fd < 0)
		return;
	reset_at_close(s, fd);
	if (fdtab_internal(fd))
		fd_internal_close(fd);
}

/* Ends an arming that is under way; nothing was cut. Both locks held. */
void stream_decline(struct stream *s)
{
	if (!atomic_load(&s->link))
		return;
	if (s->snd.cut.state == CUT_TX_ARMING)
		stream_tx_event(s, CUT_EV_FALLBACK, 0, 0);
	/* An ARM that was never answered: armed, and at once frozen. */
	if (s->rcv.cut.state == CUT_RX_TCP && s->rcv.cut.arm_pending)
		stream_rx_event(s, CUT_EV_NO_WAITERS, 0, 0);
	if (s->rcv.cut.state == CUT_RX_ARMED)
		stream_rx_event(s, CUT_EV_FALLBACK, 0, 0);
}

/* close() means RST, as with TCP: input was not read, or SO_LINGER says so. Both locks held. */
static bool ends_by_reset(struct stream *s, int fd)
{
	struct linger l;
	uint32_t len = sizeof l;

	return stream_unread_input(s) ||
	       (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_LINGER, &l, &len) >= 0 && l.l_onoff &&
		!l.l_linger);
}

/* The last fd goes while a direction is off TCP: the socket lives on, as ours, until all is
 * told. */
static void linger(struct stream *s, int keep)
{
	struct bell *b = loop_bell();

	atomic_store(&s->fd, keep);
	if (ends_by_reset(s, keep)) {
		stream_abort(s);
		return;
	}
	/* Input after close() is answered by a reset, as TCP does: a peer that sends on must
	 * hear of it. */
	loop_watch_fd(keep, EPOLLIN | EPOLLET, LOOP_FALLBACK, s->index);
	if (b)
		stream_bell_add(s, b, true);
	if (!atomic_load(&s->plain.tx))		/* a kernel call that sends goes on, and the end
						 * comes after it: watch_close() in stream_work.c */
		stream_tx_event(s, CUT_EV_CLOSE, 0, 0);
	stream_rx_event(s, CUT_EV_FALLBACK, 0, 0);
	if (cut_tx_on_ring(&s->snd.cut))
		segment_want_room(&s->snd.ring);
}

/*
 * Both locks taken for the close of the last fd. *keep: a descriptor of ours if the stream has a
 * path, where one can be had; a stream for which none can has fallen back. The background thread
 * may bind and cut the stream until the locks are held.
 */
static void lock_for_close(struct stream *s, int fd, int *keep)
{
	for (bool bound;; stream_unlock(s)) {
		bound = atomic_load(&s->link);
		if (bound && fork_shared(s) && !stream_both_on_tcp(s))
			/* the other process goes on with TCP */
			stream_fall_back(s, REASON_SHARED);
		if (bound && *keep < 0) {
			*keep = fd_internal_dup(fd);
			if (*keep < 0)
				stream_fall_back(s, REASON_NO_FDS);
		}
		stream_lock(s);
		if (bound || !atomic_load(&s->link))
			return;
	}
}

/*
 * Is a direction off TCP, so that the socket must be kept until all is told? Somebody else who
 * has the socket goes on with it, on TCP: what we said of it, a reset or an end, would be his.
 * An ARM that came since was frozen at once, and all that is owed is the peer's BACK, which
 * needs no socket.
 */
static bool must_linger(struct stream *s)
{
	return s->snd.cut.state >= CUT_TX_CUT_SENT || s->rcv.cut.state == CUT_RX_RING ||
	       (s->rcv.cut.state == CUT_RX_FROZEN && !fork_shared(s) &&
		!atomic_load(&s->others.passed));
}

/* Takes the application's last fd from the stream. The caller closes the number afterwards. */
static void last_fd(struct stream *s, int fd)
{
	bool done = false;
	int keep = -1;
	uint32_t gen;

	lock_for_close(s, fd, &keep);
	stream_learn_may_send(s);	/* nobody would take its filter away any more */
	gen = atomic_load(&s->gen);
	stream_count_tcp_only(s);
	if (!fork_shared(s) && !atomic_load(&s->others.passed))	/* else it goes on elsewhere */
		earn_over(s);
	atomic_store(&s->dead, 1);
	stream_pollers->forget(s, fd, true);
	if (keep >= 0 && atomic_load(&s->link) && must_linger(s)) {
		linger(s, keep);
		keep = -1;
	} else {
		/* All bytes are the kernel's, and so is the close; only the peer's library waits
		 * for answers. */
		if (keep >= 0 && atomic_load(&s->link) && !fork_shared(s) &&
		    !atomic_load(&s->others.passed)) {
			if (ends_by_reset(s, keep))
				reset_at_close(s, keep);
			else
				stream_publish_final(s);
		}
		atomic_store(&s->fd, -1);
		stream_decline(s);
		done = !atomic_load(&s->link) && !atomic_load(&s->upgrade);
	}
	stream_unlock(s);
	if (keep >= 0)
		fd_internal_close(keep);
	stream_wake(s);
	if (done)
		stream_try_free(s, gen);	/* the background thread never saw it */
	else
		bg_look(s);
	earn_tell();
}

/* False: another thread has closed it. */
static bool forget(struct stream *s, int fd, bool closing)
{
	bool ours, last = false, parted = false;

	for (;;) {
		stream_lock(s);
		if (parted || atomic_load(&s->nfds) <= 1)
			break;
		stream_unlock(s);
		stream_pollers->part(s, fd);
		parted = true;
	}
	ours = stream_drop_number(s, fd, closing, &last);
	stream_unlock(s);
	if (!ours)
		return false;
	if (last) {
		last_fd(s, fd);
		return true;
	}
	stream_pollers->forget(s, fd, false);
	stream_wake(s);
	return true;
}

int stream_close(struct stream *s, int fd)
{
	int r;

	if (!forget(s, fd, true))
		return -EBADF;
	r = (int)sys(SYS_close, fd);
	fdtab_closed(fd);
	return r;
}

/* The number names something else already: nothing may be done with it, not even a reset. */
void stream_fd_stale(struct stream *s, int fd)
{
	bool ours, last = false, done = false;
	uint32_t gen;

	stream_lock(s);
	gen = atomic_load(&s->gen);
	ours = stream_drop_number(s, fd, false, &last);
	if (ours)
		stream_pollers->forget(s, fd, last);
	if (last) {
		atomic_store(&s->dead, 1);
		atomic_store(&s->fd, -1);
		stream_set_gone(s, 2);
		atomic_store(&s->err, ECONNRESET);
		done = !atomic_load(&s->link) && !atomic_load(&s->upgrade);
	}
	stream_unlock(s);
	if (done)
		stream_try_free(s, gen);
	else if (last)
		bg_look(s);
}

void stream_forget_fd(struct stream *s, int fd)
{
	forget(s, fd, false);
}

void stream_vacate_fd(struct stream *s, int fd)
{
	forget(s, fd, true);
}

/* A shutdown() that the kernel does not hear of yet: as after one, a connect() gives EISCONN, also
 * the first after one that did not wait. -ENOTCONN: it is not connected any more. */
static int as_connected(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	int r = (int)sys(SYS_getpeername, fd, &peer, &len);

	if (!r)
		sys(SYS_connect, fd, &peer, len);
	return r;
}

/*
 * The kernel hears of SHUT_RD only where all that was sent before is its own: after a FIN it
 * answers bytes that a rewind sends again with a reset (tcp_rcv_state_process() in
 * net/ipv4/tcp_input.c). Until then we stand for it. Both locks held.
 */
static void shut_reads(struct stream *s, int fd, bool connected)
{
	if (s->rcv.cut.state == CUT_RX_TCP)
		sys(SYS_shutdown, fd, SHUT_RD);
	else if (connected)
		atomic_store(&s->shut.rd_owed, 1);
	atomic_store(&s->shut.rd, 1);
}

int stream_shutdown(struct stream *s, uint32_t gen, int fd, int how)
{
	int r = 0;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return (int)sys(SYS_shutdown, fd, how);
	if (atomic_load(&s->fork_cut))	/* the FIN comes after what our parent has in the ring */
		fork_child_touch(s);
	stream_lock(s);
	if (!stream_still_named(s, gen, &fd)) {
		stream_unlock(s);
		return -EBADF;
	}
	if (s->lost.reset_ours) {	/* the kernel knows nothing of it */
		stream_unlock(s);
		return -ENOTCONN;
	}
	stream_learn_may_send(s);
	if (!atomic_load(&s->link) || (stream_both_on_tcp(s) && !s->snd.cut.closing)) {
		if (how != SHUT_RD)
			stream_publish_final(s);
		r = (int)sys(SYS_shutdown, fd, how);
		if (!r && how != SHUT_RD) {
			s->snd.fin_out = 1;
			atomic_store(&s->shut.wr, 1);
			s->snd.cut.closing = s->snd.cut.fin_sent = true;
		}
		if (!r && how != SHUT_WR)
			atomic_store(&s->shut.rd, 1);
		if (r == -ENOTCONN)	/* and yet the kernel has shut it, for the connection
					 * that may come */
			s->shut.before = 1;
		stream_unlock(s);
		return r;
	}
	r = as_connected(fd);
	if (how != SHUT_WR) {
		stream_show_unread(s, fd);	/* comes before the end that reads find from now
						 * on */
		shut_reads(s, fd, !r);
	}
	if (how != SHUT_RD && !atomic_exchange(&s->shut.wr, 1)) {
		struct bell *b = loop_bell();

		if (b)
			stream_bell_add(s, b, true);	/* somebody must see the last credit */
		stream_tx_event(s, CUT_EV_CLOSE, 0, 0);
		if (cut_tx_on_ring(&s->snd.cut))
			segment_want_room(&s->snd.ring);
		bg_look(s);
	}
	stream_unlock(s);
	stream_wake(s);
	return r;
}

void stream_link_ended(struct stream *s, enum reason r)
{
	if (r == REASON_PROTOCOL)
		stat_row_reason(stream_row(s), REASON_PROTOCOL);
	s->lost.us = now_us();
	bg_look(s);
}
