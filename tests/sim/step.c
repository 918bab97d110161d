/*
 * step.c - everything that can happen next, and doing it. The search decides the order.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

const char *const step_name[STEP_KINDS] = {
#define STEP(name, optional) [S_##name] = #name,
#include "step.def"
};
const bool step_optional[STEP_KINDS] = {
#define STEP(name, optional) [S_##name] = optional,
#include "step.def"
};

struct list {
	struct step *s;
	int n;
};

static void add(struct list *l, int kind, int who)
{
	if (l->n < STEPS_MAX)
		l->s[l->n++] = (struct step){ .kind = (uint8_t)kind, .who = (uint8_t)who, .n = 1 };
}

static bool acts(const struct end *e)
{
	return !e->dead && !e->stopped && !e->aborted;
}

/* May this end start anything new? */
static bool willing(const struct end *e)
{
	return acts(e) && !e->exec && !e->urgent && !e->tcp_only && !e->shared && !e->closed;
}

static bool credit_due(const struct world *w, int d)
{
	const struct dir *x = &w->d[d];
	const struct ring *r = &x->ring;

	if (x->tx.state < CUT_TX_CUT_SENT || x->tx.state == CUT_TX_RESENDING ||
	    r->rd <= x->tx.credit)
		return false;
	/* rdma: FINAL must have landed (or the path be dead) before the sender leaves */
	return !(w->cfg.rdma && x->tx.closing && r->rd == x->tx.wr && !r->final_landed &&
		 !r->dead && x->tx.state == CUT_TX_RING);
}

/* May direction d ask for its offset and arm? */
static bool may_earn(const struct world *w, int d)
{
	const struct dir *x = &w->d[d];
	const struct end *e = &w->e[d];
	bool over = ENV(NO_FIN_YET) && (x->tx.closing || x->tcp.fin);

	if (w->cfg.proxy && ENV(CROSSWISE))	/* the route, or the timestamp of the SYN, says
						 * so */
		return false;
	if (x->bypassed)			/* the kernel has counted more than the library */
		return false;
	return x->tx.state == CUT_TX_TCP && willing(e) && e->ctl == CTL_UP && !over &&
	       !(x->ring.dead && !(x->path_told_rx && x->path_told_tx));
}

static bool on_tcp(const struct world *w, int i)
{
	const struct dir *out = &w->d[i], *in = &w->d[1 - i];

	return (out->tx.state == CUT_TX_TCP || out->w_err) &&
	       (in->rx.state == CUT_RX_TCP || in->r_eof || in->r_err || in->tcp.rst ||
		w->e[1 - i].dead);
}

static void steps_urgent(const struct world *w, int d, struct list *l)
{
	if (w->e[d].urgent && (on_tcp(w, d) || !ENV(URGENT_FALLBACK)) &&
	    (world_tcp_room(w, d) > 0 || w->d[d].w_err || w->e[1 - d].dead))
		add(l, S_URGENT_PUT, d);
}

/* The same over RDMA. */
static void steps_pull(const struct world *w, int d, struct list *l)
{
	const struct dir *x = &w->d[d];
	const struct pull *p = &x->pull;
	const struct end *e = &w->e[d], *r = &w->e[1 - d];

	if (x->taking && !p->fetched && !x->ring.dead && !e->dead && !r->dead)
		add(l, S_PULL_FETCH, d);
	if (acts(r)) {
		if (p->n_said)
			add(l, S_PULL_HEAR, d);
		if (x->taking && p->fetched)
			add(l, S_PULL_END, d);
		if (x->taking && (x->ring.dead || e->dead))
			add(l, S_PULL_FAIL, d);
		if (p->known && !x->taking)
			add(l, S_PULL_STOP, d);
	}
	if (!acts(e))
		return;
	if (w->cfg.offer && app_can_write(w, d) && cut_tx_on_ring(&x->tx) && !x->ring.dead &&
	    x->ring.rd == x->tx.wr)
		add(l, S_OFFER, d);
	if (x->offer && !p->asked && !p->fenced && !x->ring.dead)
		add(l, S_PULL_WITHDRAW, d);
	if (x->offer && !p->fenced && (x->ring.dead || r->stopped || r->dead))
		add(l, S_PULL_FENCE, d);
	if (p->answered)
		add(l, S_PULL_TAKEN, d);
	steps_urgent(w, d, l);
}

/* A block that is offered, and what becomes of it. */
static void steps_offer(const struct world *w, int d, struct list *l)
{
	const struct dir *x = &w->d[d];
	const struct end *e = &w->e[d];

	if (w->cfg.rdma) {
		steps_pull(w, d, l);
		return;
	}
	if (x->taking && acts(&w->e[1 - d]))
		add(l, S_TAKE_END, d);
	if (!acts(e))
		return;
	if (w->cfg.offer && app_can_write(w, d) && cut_tx_on_ring(&x->tx) &&
	    !x->offer && x->ring.rd == x->tx.wr)
		add(l, S_OFFER, d);
	if (x->offer == OFFER_OFFERED || (x->offer == OFFER_READING && x->stuck))
		add(l, S_WITHDRAW, d);
	if (x->offer == OFFER_READING && !x->stuck)
		add(l, S_STUCK, d);
	if (x->offer == OFFER_READ || (x->offer == OFFER_READING && w->e[1 - d].dead))
		add(l, S_TAKEN, d);
	steps_urgent(w, d, l);
}

static void steps_tx(const struct world *w, int d, struct list *l)
{
	const struct dir *x = &w->d[d];
	const struct end *e = &w->e[d];

	if (app_can_write(w, d))
		add(l, S_WRITE, d);
	if (x->w_mid && acts(e))
		add(l, S_WRITE_END, d);
	steps_offer(w, d, l);
	if (!world_tx_free(w, d))
		return;
	/* What the reader has behind a fence is not known yet: all but the path's end waits. */
	if (x->pull.fenced && ENV(PULL_SETTLE)) {
		if (acts(e) && !x->w_err && x->ring.dead && !x->path_told_tx)
			add(l, S_PATH_TX, d);
		return;
	}
	if (acts(e) && !e->exec && !e->urgent && !x->w_closed && !x->w_err && !x->w_mid &&
	    /* by another thread, perhaps */
	    (x->stuck || (!x->offer && x->tx.wr == w->cfg.n[d])))
		add(l, S_CLOSE, d);
	if (!acts(e) || x->w_err)
		return;
	if (credit_due(w, d))
		add(l, S_CREDIT, d);
	if (x->tx.state == CUT_TX_RESENDING && (world_tcp_room(w, d) > 0 || w->e[1 - d].dead))
		add(l, S_RESEND, d);
	if (cut_tx_on_ring(&x->tx) && !x->tx.fallback && x->w_sleep && app_ring_full(w, d) &&
	    !app_can_read(w, d) && !x->r_sleep && ENV(OVERFLOW) &&
	    (e->ctl != CTL_NONE || !w->e[1 - d].dead))
		add(l, S_OVERFLOW, d);
	if (x->ring.dead && !x->path_told_tx)
		add(l, S_PATH_TX, d);
	if (w->cfg.earn && !x->measuring && may_earn(w, d))
		add(l, S_EARN, d);
	if (x->measuring)
		add(l, S_MEASURE, d);
	if (!ENV(MASK_OUT) && cut_tx_on_ring(&x->tx) && x->w_sleep && world_tcp_room(w, d) > 0)
		add(l, S_FALSE_ROOM, d);
	if (w->cfg.fallback && x->tx.state != CUT_TX_TCP && !x->tx.fallback &&
	    !(e->ctl == CTL_NONE))
		add(l, S_FALLBACK_TX, d);
}

static void steps_rx(const struct world *w, int d, struct list *l)
{
	const struct dir *x = &w->d[d];
	const struct end *e = &w->e[1 - d];

	if (x->tcp.sqn || (x->tcp.fin && !x->tcp.fin_arr && !x->tcp.rst))
		add(l, S_DELIVER, d);
	if (w->cfg.rdma && !x->ring.dead &&
	    (x->ring.late == x->ring.late_end || !ENV(LATE_WRITE)) &&
	    (x->ring.landed < x->ring.wr || (x->ring.has_final && !x->ring.final_landed)))
		add(l, S_LAND, d);
	if (!x->ring.dead && x->ring.late < x->ring.late_end)
		add(l, S_LAND_LATE, d);
	if (!acts(e))
		return;
	if (app_can_read(w, d) || x->r_foreign)
		add(l, S_READ, d);
	if (x->r_mid)
		add(l, S_READ_END, d);
	if (!world_rx_free(w, d))
		return;
	if (x->rx.state == CUT_RX_TCP && x->rx.arm_pending && willing(e) &&
	    (x->r_sleep != SLEEP_SOCK || !ENV(BELL)))
		add(l, S_NO_WAITERS, d);
	/* control ended earlier, with the peer alive; now TCP ends too */
	if (e->ctl == CTL_NONE && !x->rx.eof && (x->tcp.fin_arr || x->tcp.rst) && !w->cfg.rdma)
		add(l, S_KERNEL_EOF, d);
	if (w->e[d].aborted && !x->rx.eof && x->rx.state != CUT_RX_TCP)
		add(l, S_RST_SEEN, d);
	if (x->ring.dead && !x->path_told_rx)
		add(l, S_PATH_RX, d);
	if (w->cfg.fallback && x->rx.state != CUT_RX_TCP && x->rx.state != CUT_RX_FROZEN &&
	    e->ctl != CTL_NONE)
		add(l, S_FALLBACK_RX, d);
}

static bool notice(const struct world *w, int i)
{
	const struct end *e = &w->e[i];

	if (e->ctl == CTL_UP)
		return e->ctl_closed && !e->qn;
	return e->ctl == CTL_DOWN && (e->ctl_closed || w->ctl_gone);
}

static void steps_end(const struct world *w, int i, struct list *l)
{
	const struct end *e = &w->e[i];
	const struct config *c = &w->cfg;
	bool free = world_tx_free(w, i) && world_rx_free(w, 1 - i);
	bool moved = w->d[i].tx.wr || w->d[1 - i].rx.rd || w->d[i].tx.state || w->d[1 - i].rx.state;

	if (e->stopped && !e->dead)
		add(l, S_CONT, i);
	if (!acts(e))
		return;
	if (e->qn && e->ctl == CTL_UP &&
	    (e->q[0].dir == i ? world_tx_free(w, i) : world_rx_free(w, 1 - i)))
		add(l, S_MESSAGE, i);
	if (notice(w, i) && free)
		add(l, S_CTL_NOTICE, i);
	/* control went first, the peer died later: pidfd (shm) or queue pair (rdma) tells */
	if (e->ctl == CTL_NONE && free && w->e[1 - i].dead && w->d[i].tx.state != CUT_TX_TCP &&
	    !w->d[i].w_err && ENV(PIDFD))
		add(l, S_PEER_DEAD, i);
	if (e->exec && on_tcp(w, i))
		add(l, S_EXEC_DONE, i);
	if (e->shared)
		add(l, S_FORK_DONE, i);
	if (c->kill && !e->shared && moved)
		add(l, S_KILL, i);
	if (c->stop)
		add(l, S_STOP, i);
	if (!free || (w->d[i].pull.fenced && ENV(PULL_SETTLE)))
		return;
	if (c->exec && willing(e) && moved) {
		add(l, S_EXEC, i);
		add(l, S_PASS, i);
	}
	if (c->fork && willing(e))
		add(l, S_FORK, i);
	if (c->full_close && willing(e) && w->d[i].tx.wr == c->n[i] && !w->d[i].w_err &&
	    !w->d[1 - i].r_mid)
		add(l, S_CLOSE_ALL, i);
	if (c->bypass && cut_tx_on_ring(&w->d[i].tx) && world_tcp_room(w, i) > 0 &&
	    !w->d[i].w_closed && !w->d[i].w_err && !w->d[i].tcp.rst && !w->e[1 - i].dead)
		add(l, S_BYPASS, i);
	if (c->claim && !ENV(STRANGER) && w->d[i].tx.state == CUT_TX_TCP)
		add(l, S_CLAIM, i);
	if (c->abort && willing(e) && moved && !w->d[i].w_err && !w->d[1 - i].r_mid &&
	    !w->d[i].w_mid)
		add(l, S_ABORT, i);
	if (c->urgent && willing(e) && moved && !w->d[i].w_closed && !w->d[i].w_err &&
	    !w->d[i].w_mid && !w->d[i].w_sleep && !w->d[i].measuring && !w->d[i].offer)
		add(l, S_URGENT, i);
}

int world_steps(const struct world *w, struct step *out)
{
	struct list l = { out, 0 };
	const struct end *a = &w->e[0], *b = &w->e[1];
	bool both = !a->dead && !b->dead && !a->ctl_closed && !b->ctl_closed;

	for (int i = 0; i < 2; i++) {
		steps_tx(w, i, &l);
		steps_rx(w, i, &l);
		steps_end(w, i, &l);
	}
	if (both && w->cfg.breaks && !w->ctl_gone)
		add(&l, S_CTL_BREAK, 0);
	if (w->cfg.path_death && w->cfg.rdma && !w->d[0].ring.dead)
		add(&l, S_PATH_DIE, 0);
	return l.n;
}

/* ---- doing ---------------------------------------------------------------------------- */

static void do_deliver(struct world *w, int d, int n)
{
	struct tcp *t = &w->d[d].tcp;

	if (w->e[1 - d].dead || w->e[1 - d].closed) {
		bool data = t->sqn;

		memset(t->sq, 0, sizeof(t->sq));
		t->sqn = 0;
		t->urg = 0;
		if (data)
			world_rst(w, 1 - d, true);
		else
			t->fin_arr = true;
		return;
	}
	if (!t->sqn)
		t->fin_arr = true;
	for (; n > 0 && t->sqn; n--) {
		t->rq[t->rqn++] = t->sq[0] ^ (w->cfg.proxy ? PROXY_XOR : 0);
		memmove(t->sq, t->sq + 1, TCP_MAX - 1);
		t->sq[TCP_MAX - 1] = 0;
		t->sqn--;
	}
	world_wake(w, d, true, SLEEP_SOCK);
}

static void do_message(struct world *w, int i)
{
	struct end *e = &w->e[i];
	struct ctl_msg m = e->q[0];
	static const uint8_t event[] = {
		[CUT_MSG_ARM] = CUT_EV_ARM, [CUT_MSG_ARMED] = CUT_EV_ARMED,
		[CUT_MSG_CUT] = CUT_EV_CUT, [CUT_MSG_CUT_OK] = CUT_EV_CUT_OK,
		[CUT_MSG_REWIND] = CUT_EV_REWIND, [CUT_MSG_FROZEN] = CUT_EV_FROZEN,
		[CUT_MSG_BACK] = CUT_EV_BACK,
	};

	memmove(e->q, e->q + 1, (CTL_MAX - 1) * sizeof(e->q[0]));
	memset(&e->q[CTL_MAX - 1], 0, sizeof(e->q[0]));
	e->qn--;
	if (m.dir == i)
		world_tx(w, i, event[m.msg], m.epoch, m.off);
	else
		world_rx(w, m.dir, event[m.msg], m.epoch, m.off);
}

static void do_resend(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];
	int i, room = world_tcp_room(w, d), left = (int)(x->tx.wr - x->tx.resend);

	if (w->e[1 - d].dead) {
		x->w_err = true;
		return;
	}
	if (n > room)
		n = room;
	if (n > left)
		n = left;
	for (i = 0; i < n; i++)
		world_tcp_put(w, d, x->ring.buf[(x->tx.resend + i) % w->cfg.ring_cap]);
	world_tx(w, d, CUT_EV_RESENT, 0, n);
}

/* End i learns that control is gone for good, perhaps because the peer is. */
static void do_ctl_lost(struct world *w, int i)
{
	struct dir *out = &w->d[i], *in = &w->d[1 - i];
	bool dead = w->e[1 - i].dead;
	bool fin = in->tcp.fin_arr || in->tcp.rst;

	w->e[i].ctl = CTL_NONE;
	if (dead && !w->cfg.rdma && (fin || ENV(DEATH)))
		world_rx(w, 1 - i, CUT_EV_KERNEL_EOF, in->ring.epoch, in->ring.s);
	else if (w->cfg.rdma && fin)
		world_rx(w, 1 - i, CUT_EV_KERNEL_EOF, 0, 0);
	world_tx(w, i, CUT_EV_CTL_LOST, 0, 0);
	if (!in->r_err)
		world_rx(w, 1 - i, CUT_EV_CTL_LOST, 0, 0);
	if (dead && out->tx.state != CUT_TX_TCP)
		out->w_err = true;
	world_wake(w, 1 - i, true, SLEEP_BELL);
	world_wake(w, i, false, SLEEP_BELL);
}

/* What was on its way is lost; the ends notice at their own time. */
static void do_ctl_break(struct world *w)
{
	w->cfg.breaks--;
	w->ctl_gone = w->reset_ok = true;
	for (int i = 0; i < 2; i++) {
		memset(w->e[i].q, 0, sizeof(w->e[i].q));
		w->e[i].qn = 0;
		if (w->e[i].ctl == CTL_UP)
			w->e[i].ctl = CTL_DOWN;
	}
}

static void fall_back(struct world *w, int i)
{
	world_tx(w, i, CUT_EV_FALLBACK, 0, 0);
	world_rx(w, 1 - i, CUT_EV_FALLBACK, 0, 0);
}

static void do_exec(struct world *w, int i, bool keeps)
{
	w->cfg.exec--;
	w->e[i].exec = true;
	w->e[i].exec_keeps_ctl = keeps;
	/* A dead sender's ring cannot be carried over an exec, a lost BACK not be repeated. */
	if (w->e[1 - i].dead || w->e[1 - i].aborted || (w->ctl_gone && !keeps)) {
		w->reset_ok = true;
		w->d[1 - i].owed = 0;
	}
	fall_back(w, i);
}

static void do_exec_done(struct world *w, int i)
{
	struct end *e = &w->e[i];

	e->exec = false;
	e->tcp_only = true;
	w->d[i].w_sleep = w->d[1 - i].r_sleep = SLEEP_NO;
	/* a dead sender's ring does not survive exec: a reset, where TCP would have the bytes */
	if (w->d[1 - i].rx.state != CUT_RX_TCP && !w->d[1 - i].r_eof)
		w->d[1 - i].r_err = true;
	if (e->exec_keeps_ctl)
		return;
	if (w->ctl_gone)
		w->reset_ok = true;
	memset(e->q, 0, sizeof(e->q));
	e->qn = 0;
	e->ctl = CTL_NONE;
	w->e[1 - i].ctl_closed = true;
}

/* TCP_INFO, SIOCOUTQ, TCP_INFO: what arrived was acked, what is on its way is queued, and FIN is
 * counted as a byte. */
static void do_measure(struct world *w, int d)
{
	struct dir *x = &w->d[d];
	uint8_t acked = x->tcp.put - x->tcp.sqn + x->tcp.fin_arr;

	if (!x->measuring || (ENV(OFFSET_STILL) && acked != x->acked)) {
		x->measuring = true;	/* the first look, or once more */
		x->acked = acked;
		return;
	}
	x->measuring = false;
	if (!may_earn(w, d))
		return;
	x->tx.wr += (int8_t)(x->acked + x->tcp.sqn - (x->tcp.put - x->tcp.urg_put));
	world_tx(w, d, CUT_EV_EARNED, 0, 0);
}

/* write(2) that did not pass the wrappers. Where the byte belongs nobody can say: the connection
 * is lost when it leaves the ring, but until then nothing wrong may be read. */
static void do_bypass(struct world *w, int d)
{
	struct tcp *t = &w->d[d].tcp;

	w->cfg.bypass--;
	t->sq[t->sqn++] = BYPASS_BYTE;
	w->d[d].bypassed = w->reset_ok = true;
	w->d[d].owed = 0;
}

/* send(MSG_OOB): a byte that has a place in TCP's stream, but is not of it. It waits for the
 * ring to be empty. */
static void do_urgent(struct world *w, int i)
{
	w->cfg.urgent--;
	w->e[i].urgent = true;
	w->d[i].urg_off = (uint8_t)w->d[i].tx.wr;
	fall_back(w, i);
}

static void do_urgent_put(struct world *w, int i)
{
	w->e[i].urgent = false;
	if (!w->d[i].w_err && !w->e[1 - i].dead)
		world_tcp_put_urgent(w, i);
	/* From now on the kernel counts one more than the stream. */
	w->e[i].tcp_only |= ENV(URGENT_TCP_ONLY);
}

/* The home socket says that it is writable; the writer looks, and there is no room on the ring. */
static void do_false_room(struct world *w, int d)
{
	struct dir *x = &w->d[d];

	x->w_sleep = SLEEP_NO;
	if (++x->idle_wakes > IDLE_WAKES_MAX)
		world_fail(w, FAIL_BUSY);
}

/* close(): with unread input the stream is reset, as TCP does it; else nobody reads any more,
 * so the incoming direction has to fall back, where the kernel answers with an RST. */
static void do_close_all(struct world *w, int i)
{
	struct dir *in = &w->d[1 - i];
	bool unread = w->d[i].offer || in->tcp.rqn ||
		      (in->rx.state == CUT_RX_RING && in->ring.landed > in->rx.rd);

	w->cfg.full_close--;
	w->e[i].closed = true;
	/* another thread's call sleeps in a read: it is woken, and finds that the number is not
	 * its own any more */
	in->r_foreign = in->r_sleep && !ENV(GONE_FD);
	in->r_sleep = SLEEP_NO;
	w->d[i].w_closed = true;
	if (unread) {
		w->reset_ok = true;
		world_reset(w, i);
		return;
	}
	world_tx(w, i, CUT_EV_CLOSE, 0, 0);
	world_rx(w, 1 - i, CUT_EV_FALLBACK, 0, 0);
}

/* close() with SO_LINGER of 0 s: the kernel's RST, and nobody speaks for the stream any more.
 * What has arrived, in TCP or in the ring, stays readable. */
static void do_abort(struct world *w, int i)
{
	struct dir *out = &w->d[i];
	const struct end *reader = &w->e[1 - i];

	w->cfg.abort--;
	w->e[i].aborted = w->e[i].closed = true;
	out->w_closed = true;
	w->d[1 - i].r_err = true;
	out->owed = (uint8_t)(out->tcp.sqn ? out->rx.rd + out->tcp.rqn : out->tx.wr);
	if (reader->exec || reader->tcp_only || reader->dead)
		out->owed = 0;
	world_rst(w, i, true);
}

static void do_land(struct world *w, int d, int n)
{
	struct ring *r = &w->d[d].ring;

	if (r->landed == r->wr && r->has_final)
		r->final_landed = true;
	for (; n > 0 && r->landed < r->wr; n--, r->landed++)
		r->land[r->landed % w->cfg.ring_cap] = r->buf[r->landed % w->cfg.ring_cap];
	world_wake(w, d, true, SLEEP_BELL);
}

/* A WRITE of an older epoch arrives, into memory that may be in use again. */
static void do_land_late(struct world *w, int d)
{
	struct ring *r = &w->d[d].ring;

	r->land[r->late % w->cfg.ring_cap] = world_byte(d, r->late);
	if (++r->late == r->late_end)
		r->late = r->late_end = 0;
}

void world_path_dies(struct world *w)
{
	for (int d = 0; d < 2; d++) {
		w->d[d].ring.dead = true;
		w->d[d].path_told_tx = w->d[d].path_told_rx = false;
		w->d[d].ring.late = w->d[d].ring.late_end = 0;
	}
	pull_path_dies(w);
}

static void do_mid(struct world *w, struct step s)
{
	struct dir *x = &w->d[s.who];

	if (s.kind == S_WRITE_END) {
		x->tx.wr += x->w_mid;
		x->w_mid = 0;
		return;
	}
	x->rx.rd += x->r_mid;
	x->r_mid = 0;
	if (x->rx.state == CUT_RX_RING) {
		x->ring.rd = (uint8_t)x->rx.rd;
		world_wake(w, s.who, false, SLEEP_BELL);
	}
}

void world_do(struct world *w, struct step s)
{
	int i = s.who;
	struct dir *x = &w->d[i];

	switch ((enum step_kind)s.kind) {
	case S_WRITE: app_write(w, i, s.n); break;
	case S_READ: app_read(w, i, s.n); break;
	case S_WRITE_END:
	case S_READ_END: do_mid(w, s); break;
	case S_CLOSE: x->w_closed = true; world_tx(w, i, CUT_EV_CLOSE, 0, 0); break;
	case S_DELIVER: do_deliver(w, i, s.n); break;
	case S_MESSAGE: do_message(w, i); break;
	case S_NO_WAITERS: world_rx(w, i, CUT_EV_NO_WAITERS, 0, 0); break;
	case S_WITHDRAW: x->offer = OFFER_NONE, x->stuck = false; break;
	case S_TAKE_END: app_take_end(w, i, s.n); break;
	case S_TAKEN: app_settle(w, i, false); break;
	case S_STUCK: x->stuck = true; break;
	case S_OFFER: app_offer(w, i, s.n); break;
	case S_PULL_WITHDRAW: pull_withdraw(w, i); break;
	case S_PULL_FENCE: pull_fence(w, i); break;
	case S_PULL_HEAR: pull_hear(w, i); break;
	case S_PULL_TAKEN: pull_taken(w, i); break;
	case S_PULL_FETCH: pull_fetch(w, i); break;
	case S_PULL_END: pull_end(w, i, true); break;
	case S_PULL_FAIL: pull_end(w, i, false); break;
	case S_PULL_STOP: pull_stop(w, i); break;
	case S_URGENT: do_urgent(w, i); break;
	case S_URGENT_PUT: do_urgent_put(w, i); break;
	case S_CREDIT: world_tx(w, i, CUT_EV_CREDIT, 0, x->ring.rd); break;
	case S_RESEND: do_resend(w, i, s.n); break;
	case S_OVERFLOW: world_tx(w, i, CUT_EV_FALLBACK, 0, 0); break;
	case S_LAND: do_land(w, i, s.n); break;
	case S_LAND_LATE: do_land_late(w, i); break;
	case S_MEASURE: do_measure(w, i); break;
	case S_FALSE_ROOM: do_false_room(w, i); break;
	case S_BYPASS: do_bypass(w, i); break;
	case S_CLAIM: w->cfg.claim--; x->stolen = true; break;
	case S_CTL_NOTICE: do_ctl_lost(w, i); break;
	case S_PATH_TX: x->path_told_tx = true; world_tx(w, i, CUT_EV_PATH_DEAD, 0, 0); break;
	case S_PATH_RX: x->path_told_rx = true; world_rx(w, i, CUT_EV_PATH_DEAD, 0, 0); break;
	case S_RST_SEEN:
	case S_KERNEL_EOF: world_rx(w, i, CUT_EV_KERNEL_EOF, x->ring.epoch, x->ring.s); break;
	case S_PEER_DEAD: x->w_err = true; world_wake(w, i, false, SLEEP_BELL); break;
	case S_EXEC_DONE: do_exec_done(w, i); break;
	case S_FORK_DONE: w->e[i].shared = false; break;
	case S_CONT: w->e[i].stopped = false; break;
	case S_EARN: w->cfg.earn--; do_measure(w, i); break;
	case S_FALLBACK_TX: w->cfg.fallback--; world_tx(w, i, CUT_EV_FALLBACK, 0, 0); break;
	case S_FALLBACK_RX: w->cfg.fallback--; world_rx(w, i, CUT_EV_FALLBACK, 0, 0); break;
	case S_KILL: w->cfg.kill--; world_kill(w, i); break;
	case S_CTL_BREAK: do_ctl_break(w); break;
	case S_EXEC: do_exec(w, i, false); break;
	case S_PASS: do_exec(w, i, true); break;
	case S_FORK: w->cfg.fork--; w->e[i].shared = true; fall_back(w, i); break;
	case S_STOP: w->cfg.stop--; w->e[i].stopped = true; break;
	case S_PATH_DIE: w->cfg.path_death--; world_path_dies(w); break;
	case S_CLOSE_ALL: do_close_all(w, i); break;
	case S_ABORT: do_abort(w, i); break;
	case STEP_KINDS: break;
	}
}

void world_print(const struct world *w, struct step s)
{
	static const char *const ctl[] = { "up", "down", "none" };

	printf("%-10s %d x%d ", step_name[s.kind], s.who, s.n);
	if (s.kind == S_MESSAGE) {
		const struct ctl_msg *m = &w->e[s.who].q[0];

		printf("[%d %s e%d %d] ", m->dir, cut_msg_name(m->msg), m->epoch, m->off);
	}
	for (int d = 0; d < 2; d++) {
		const struct dir *x = &w->d[d];

		printf("| %s%u wr %d %s%u rd %d tcp %d+%d%s%s%s ring %d-%d s%d%d%s%s ",
		       cut_tx_state_name(x->tx.state), x->tx.epoch, (int)x->tx.wr,
		       cut_rx_state_name(x->rx.state), x->rx.epoch, (int)x->rx.rd, x->tcp.sqn,
		       x->tcp.rqn, x->tcp.fin ? "f" : "", x->tcp.fin_arr ? "F" : "",
		       x->tcp.rst ? "R" : "", x->ring.rd, x->ring.wr, x->w_sleep, x->r_sleep,
		       x->w_err ? " werr" : x->w_closed ? " wclosed" : "",
		       x->r_err ? " rerr" : x->r_eof ? " reof" : "");
	}
	printf("| ctl %s/%s%s%s\n", ctl[w->e[0].ctl], ctl[w->e[1].ctl],
	       w->e[0].dead ? " dead0" : "", w->e[1].dead ? " dead1" : "");
}
