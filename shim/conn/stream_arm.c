/*
 * stream_arm.c - what has to hold before a direction is cut over: TCP's counts agree with ours, and
 * every thread that waits for the socket sees the path.
 */
#include "base/loop.h"
#include "base/seen.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "link/link.h"
#include "policy/log.h"

/* The kernel has counted other bytes than we have. */
static int went_past(uint64_t kernels, uint64_t ours)
{
	stat_add(STAT_bytes_past, kernels > ours ? kernels - ours : ours - kernels);
	return -EXDEV;
}

/* The library's count and the kernel's must agree, else bytes moved behind our back. */
static int sync_tx(struct stream *s)
{
	int64_t k = stream_kernel_offset(atomic_load(&s->fd), true, s->role == ROLE_CLIENT);

	if (k < 0)
		return (int)k;
	if (s->snd.synced && (uint64_t)k != s->snd.cut.wr - s->snd.cut.delta)
		return went_past((uint64_t)k, s->snd.cut.wr - s->snd.cut.delta);
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
		return went_past((uint64_t)k, s->rcv.cut.rd - s->rcv.cut.delta);
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
	if (s->rcv.cut.state == CUT_RX_ARMED) {
		over = false;
	} else {
		poller_stops(&s->rcv.poller);
		SEEN("poller", s, "stops", 0, 0, s->rcv.poller.stopped);
		stat_row_event(s->row, EVENT_POLLER_GONE,
			       IDLE_ROUNDS_MOST << s->rcv.poller.stopped);
		if (s->rcv.cut.state == CUT_RX_RING && !atomic_load(&s->waits_seen)) {
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
	if (s->rcv.cut.state == CUT_RX_TCP && s->rcv.cut.arm_pending && atomic_load(&s->link) &&
	    !atomic_load(&s->plain.rx) && waits_known(s) && !atomic_load(&s->dead) &&
	    !atomic_load(&s->earn.stopped) && !atomic_load(&s->fallback.going) && !fork_shared(s)) {
		rx = prepare(s, sync_rx);
		if (!rx && fork_may_cut(s))
			stream_rx_event(s, CUT_EV_NO_WAITERS, 0, 0);
	}
	lock_give(&s->rcv.lock);
	lock_take(&s->snd.lock);
	had = s->snd.held;
	if (s->snd.cut.state == CUT_TX_TCP && may_earn(s) && !atomic_load(&s->plain.tx) &&
	    !stream_pauses(s) && ring_memory_take(s, s->snd.ring.size)) {
		tx = prepare(s, sync_tx);
		if (!tx && fork_may_cut(s)) {
			hold_again(s);
			stream_tx_event(s, CUT_EV_EARNED, 0, 0);
		} else if (!had) {
			ring_memory_free(s);
		}
	}
	lock_give(&s->snd.lock);
	return rx == -EAGAIN || tx == -EAGAIN;
}
