/*
 * stream_wait.c - how a blocking call waits for its stream. It spins for a moment, then sleeps on
 * the socket, the thread's bell and, between hosts, the device's completion channel, until it may
 * look again, its time is up, or a signal handler has run. Also the short wait of a call that must
 * not block and meets a rewind.
 *
 * Called with no lock held. Takes snd.lock for the watch over a full ring, and both locks if the
 * socket shows an end. Holds no lock during a sleep.
 *
 * The order of a sleep is: arm the bell, say that room is wanted, look at the stream and the
 * signals, sleep. A thread that changes the stream does so first and then rings. So a change is
 * either seen by that look, or rings.
 */
#include "conn/stream_wait.h"

#include <errno.h>
#include <poll.h>

#include "base/loop.h"
#include "base/signals.h"
#include "base/spin_rule.h"
#include "base/sys.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "libc/libc.h"

/* ---- spinning ---- */

/* A reader that takes every small message as it comes makes each one cost two transfers of the
 * cursor's cache line, and on RDMA a record. In a flow, where nobody waits for our answer, it
 * looks a little later and finds many; it is not worth a round trip's patience either, for then
 * the sender never gathers. */
#define FLOW 16
#define FLOW_PAUSES 64	/* some microseconds; a wake-up costs ten times that */

static void let_it_fill(void)
{
	for (int i = 0; i < FLOW_PAUSES; i++)
		arch_pause();
}

/* In a conversation: the message that has come is read next, and the place of the answer
 * written; both lines are in the peer's cache, and to fetch them takes as long as all that we do
 * until then. */
__attribute__((no_sanitize("thread"))) static void expect_answer(const struct stream *s)
{
	const uint8_t *in, *out;

	if (!s->rcv.ring.buf || !s->snd.ring.buf)
		return;
	in = s->rcv.ring.buf + (s->rcv.ring.rd & (s->rcv.ring.size - 1));
	out = s->snd.ring.buf + (s->snd.ring.wr & (s->snd.ring.size - 1));
	__builtin_prefetch(in);
	__builtin_prefetch(in + 64);
	arch_prefetch_write(out);
}

/* ---- nobody reads ---- */

/* Long stretch without credit on a full ring: nobody reads; TCP's buffers take what the ring
 * does not. */
static void overflow_check(struct stream *s, struct full_watch *w)
{
	lock_take(&s->snd.lock);
	if (s->snd.cut.state == CUT_TX_RING) {
		ring_tx_refresh(&s->snd.ring);
		stream_more_room(s);
		if (stream_roomy(s))
			full_pause_over(s, w);
		else if (s->snd.tcp_full)	/* nothing to go back to */
			w->since = 0;
		else
			full_look(s, w, now_us());
	} else {
		w->since = 0;
	}
	lock_give(&s->snd.lock);
}

/* The wait is over: because the reader came back? */
static void overflow_over(struct stream *s, struct full_watch *w)
{
	if (w->seen <= w->since)	/* it was short */
		return;
	lock_take(&s->snd.lock);
	if (s->snd.cut.state == CUT_TX_RING)
		full_pause_over(s, w);
	lock_give(&s->snd.lock);
}

/* ---- sleeping ---- */

static int sleep_until(struct pollfd *p, int n, uint64_t deadline)
{
	struct timespec t, *tp = NULL;
	int r, saved = errno;

	if (deadline != UINT64_MAX) {
		uint64_t now = now_ns(), d = deadline > now ? deadline - now : 0;

		t = (struct timespec){ (time_t)(d / 1000000000u), (long)(d % 1000000000u) };
		tp = &t;
	}
	r = REAL(ppoll)(p, (nfds_t)n, tp, NULL);	/* a cancellation point, as the call we
							 * stand for */
	if (r < 0)
		r = -errno;
	errno = saved;
	return r;
}

/* A nap: RLIMIT_NOFILE has become less than the number of descriptors that are waited on (poll(2),
 * EINVAL), or there is no bell, so nobody can ring. The call that we stand for needs none. 0 or
 * -EINTR. */
static int sleep_blind(void)
{
	struct timespec nap = { 0, 1000000 };

	return (int)sys(SYS_nanosleep, &nap, NULL);
}

void stream_doze(struct bell *b, uint64_t until)
{
	struct pollfd p = { .fd = b ? b->fd : -1, .events = POLLIN };
	uint64_t now = now_ns(), d = until > now ? until - now : 0;
	struct timespec t = { (time_t)(d / 1000000000u), (long)(d % 1000000000u) };
	long r = b ? sys(SYS_ppoll, &p, 1, &t, NULL, 0) : -EINVAL;

	if (r < 0 && r != -EINTR)
		sleep_blind();
	if (!b)
		return;
	bell_disarm(b);
	if (r > 0)
		bell_drain(b);
}

/* TCP takes little for a while: see stream_hold.c. */
static uint64_t until_released(struct stream *s, uint64_t now, uint64_t until)
{
	uint64_t due = hold_watch(s, now / 1000);

	return due < until / 1000 ? due * 1000 : until;
}

/* Has a handler run? As the kernel: a call that has moved bytes ends with them, one with a
 * timeout never starts again, otherwise the handlers' SA_RESTART decides. 0: none; 1: look
 * again, as if just called; -EINTR. */
static int interrupted(struct call *call)
{
	int how = signals_since(call->mark);

	if (!how)
		return 0;
	call->mark = signals_mark();
	return how == 1 && !call->done && call->deadline == UINT64_MAX ? 1 : -EINTR;
}

/* The sleep was interrupted, which SA_RESTART never prevents: does the call that we stand for go
 * on? */
static bool goes_on(struct call *call)
{
	if (signals_since(call->mark))
		return interrupted(call) > 0;
	return !call->done && call->deadline == UINT64_MAX && signals_unseen_restart();
}

static inline _Atomic uint32_t *hit_rate_of(struct stream *s, uint32_t want)
{
	return want == EPOLLIN ? &s->rcv.hit_rate : &s->snd.hit_rate;
}

/* Before the thread sleeps. True: what is wanted has come. */
static bool spin_first(struct stream *s, uint32_t want, bool far)
{
	_Atomic uint32_t *hit_rate = hit_rate_of(s, want);
	uint8_t way = atomic_load_explicit(&s->one_way, memory_order_relaxed);
	bool flow = want == EPOLLIN && way >= FLOW, hit = false;
	struct stream_view v;
	uint32_t left_out;
	struct spin sp;

	link_read_enter();
	v = stream_view(s);
	if (!v.cut || v.kern & want || !spin_begin(&sp, hit_rate, far)) {
		link_read_leave();
		return false;
	}
	if (want == EPOLLIN && way < FLOW)
		atomic_store_explicit(&s->one_way, way + 1, memory_order_relaxed);
	if (flow)
		let_it_fill();
	do {
		v = stream_view(s);
		hit = v.synth & (want | EPOLLERR | EPOLLHUP) || v.kern & want;
		if (hit && want == EPOLLIN && !flow)
			expect_answer(s);
		else if (!hit && flow)
			let_it_fill();
	} while (!hit && spin_again(&sp));
	spin_end(hit_rate, hit);
	left_out = SPIN_LEAVE(atomic_load_explicit(hit_rate, memory_order_relaxed));
	if (!hit && left_out >= SPIN_LEAVE_TOLD && !atomic_exchange(&s->fallback.crowded, 1))
		stat_row_event(stream_row(s), EVENT_CROWDED, left_out);
	link_read_leave();
	return hit;
}

/* A wait that sleeps. */
struct pause {
	uint32_t want;
	bool far;
	struct bell *bell;	/* armed for each sleep; NULL: there is none */
	uint64_t began;		/* 0: not yet */
	/* of the sleep that is next */
	struct stream_view v;
	int wire;		/* a completion channel, -1: none */
	uint64_t t0;
	bool blind;		/* see sleep_blind() */
};

/* Before its deadline, to look whether the ring is full still, or if nobody rings. */
static uint64_t pause_end(struct stream *s, const struct pause *w, uint64_t until)
{
	if (w->want == EPOLLOUT && w->v.cut && w->t0 + 1000000 < until)
		until = w->t0 + 1000000;
	else if (w->want == EPOLLOUT)
		until = until_released(s, w->t0, until);
	if (!bell_hears(w->bell) && !w->v.cut && atomic_load(&s->earn.stopped) == REASON_NO_BELL)
		return w->t0 + BELL_SELDOM_NS < until ? w->t0 + BELL_SELDOM_NS : until;
	return bell_until(w->bell, w->t0, until);
}

/* With the bell armed: 1, nothing has come yet; 0, look again; -EINTR. */
static int pause_ready(struct stream *s, struct pause *w, struct call *call)
{
	struct bell *b = w->bell;
	int r = 0;

	signals_wake(b ? b->fd : -1);
	if (b && w->began)	/* the same wait still */
		bell_arm(b);
	else if (b)
		bell_sleep(b);
	if (w->want == EPOLLOUT)
		stream_want_room(s);
	link_read_enter();
	w->v = stream_view(s);
	link_read_leave();
	if (!(w->v.synth & (w->want | EPOLLERR | EPOLLHUP))) {
		r = interrupted(call);
		if (!r)
			return 1;
	}
	signals_wake(-1);
	if (b)
		bell_disarm(b);
	return r < 0 ? r : 0;
}

/* Sleeps once. 1: nothing came; 0: look again; -errno. */
static int pause_sleep(struct stream *s, int fd, struct pause *w, struct call *call)
{
	struct pollfd p[3] = { { .fd = fd, .events = (short)(w->v.kern & w->want) },
			       { .fd = w->bell ? w->bell->fd : -1, .events = POLLIN },
			       { .fd = w->wire, .events = POLLIN } };
	int r;

	if (w->v.cut && !atomic_load(&s->fallback.rdhup))
		p[0].events |= POLLRDHUP;
	else if (w->v.cut && !(w->v.kern & w->want))
		p[0].fd = -1;
	w->t0 = now_ns();
	if (!w->began)
		w->began = w->t0;
	r = sleep_until(p, w->wire < 0 ? 2 : 3, pause_end(s, w, call->deadline));
	w->blind = r == -EINVAL;
	if (w->blind)
		r = sleep_blind();
	signals_wake(-1);
	if (w->bell) {
		bell_disarm(w->bell);
		if (p[1].revents)
			bell_drain(w->bell);
		if (p[2].revents)
			wire_woken(&s->link, w->wire);
	}
	spin_slept(hit_rate_of(s, w->want), now_ns() - w->t0, w->far);
	if (r == -EINTR && goes_on(call))
		return 0;
	if (r < 0)
		return r;
	if (p[0].revents & POLLERR && stream_learned(s) &&
	    !stream_true_error(s, atomic_load(&s->gen)))
		return 0;
	if (w->v.cut && p[0].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) {
		stream_home_event(s, (uint32_t)p[0].revents);
		return 0;
	}
	return r == 0;
}

static int wait_for(struct stream *s, int fd, uint32_t want, struct call *call,
		    struct full_watch *full)
{
	struct pause w = { .want = want, .far = stream_sought(s)->far };

	if (want == EPOLLIN && atomic_load_explicit(&s->one_way, memory_order_relaxed) >= FLOW)
		w.far = false;
	if (spin_first(s, want, w.far))
		return 0;
	w.bell = bell_thread();
	if (w.bell)
		stream_bell_add(s, w.bell, false);
	do {
		int r;

		w.wire = stream_sleep_on(s, w.bell, 0);
		r = pause_ready(s, &w, call);
		if (r > 0)
			r = pause_sleep(s, fd, &w, call);
		if (r <= 0)
			return r;
		if (call->deadline != UINT64_MAX && now_ns() >= call->deadline)
			return -EAGAIN;
		if (want == EPOLLOUT)
			overflow_check(s, full);
		else if (w.v.cut && !bell_hears(w.bell) && now_ns() - w.began > BELL_PATIENCE_NS)
			stream_leave_path(s, REASON_NO_BELL);
	} while (!w.blind);
	return 0;
}

int stream_wait(struct stream *s, int fd, uint32_t want, struct call *call)
{
	struct full_watch full = { 0 };
	int r = wait_for(s, fd, want, call, &full);

	overflow_over(s, &full);
	return r;
}

int stream_call_wait(struct stream *s, int fd, uint32_t want, struct call *call, bool *ret_late)
{
	int r;

	if (!call->deadline)
		call->deadline = deadline_of(want == EPOLLOUT ? s->opt.snd_timeo_us
							      : s->opt.rcv_timeo_us);
	r = stream_wait(s, fd, want, call);
	*ret_late = r == -EAGAIN && !call->done;
	if (!*ret_late)
		return r;
	call->deadline = 0;
	return 0;
}

void stream_ride_out(struct stream *s, int fd, uint32_t want, uint32_t epoch, struct call *call)
{
	uint64_t now = now_ns();

	if (!call->since)
		call->since = now;
	if (!call->deadline)
		call->deadline = now + stream_patience(s, PATIENCE_CALL, STREAM_PATIENCE_NS);
	stream_wait(s, fd, want, call);		/* a signal handler ends no call that does not
						 * block */
	now = now_ns();
	if (now < call->deadline)
		return;
	call->switched_path = true;
	atomic_store_explicit(want == EPOLLOUT ? &s->snd.late_epoch : &s->rcv.late_epoch, epoch,
			      memory_order_relaxed);
	stream_in_vain(s, PATIENCE_CALL, now - call->since);
}
