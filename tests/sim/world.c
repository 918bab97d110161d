/*
 * world.c - kernel TCP, control socket and the carrying out of the machine's actions, as the
 * library has to do it. Every event goes through world_tx() or world_rx().
 */
#include "sim.h"

#include <string.h>

int cut_mutant;
uint16_t seen_tx[CUT_TX_STATES][CUT_EV_MAX], seen_rx[CUT_RX_STATES][CUT_EV_MAX];

const char *const fail_name[FAILURES] = {
	[FAIL_NONE] = "clean", [FAIL_BYTE] = "wrong byte", [FAIL_EOF] = "false EOF",
	[FAIL_RESET] = "false reset", [FAIL_BAD] = "honest peer called bad",
	[FAIL_STUCK] = "stuck", [FAIL_ENDLESS] = "endless", [FAIL_AFTER_FIN] = "bytes after FIN",
	[FAIL_RANGE] = "value out of range", [FAIL_ACTIONS] = "too many actions",
	[FAIL_DELTA] = "stream and TCP offsets apart", [FAIL_BUSY] = "woken for nothing, for ever",
	[FAIL_FOREIGN] = "bytes of a foreign file", [FAIL_STRANGER] = "a stranger got the bytes",
	[FAIL_PEEK] = "a peek shows other bytes than a read",
		[FAIL_URGENT] = "the urgent byte is in another place",
	[FAIL_STRAY] = "a transition that is not in the table",
};

uint8_t world_byte(int d, unsigned off)
{
	return (uint8_t)((off * 0x9d + 0x3b) ^ (d ? 0x55 : 0));
}

void world_fail(struct world *w, enum failure why)
{
	if (!w->fail)
		w->fail = why;
}

void world_init(struct world *w, const struct config *cfg)
{
	memset(w, 0, sizeof(*w));
	w->cfg = *cfg;
	for (int d = 0; d < 2; d++) {
		cut_tx_init(&w->d[d].tx);
		cut_rx_init(&w->d[d].rx);
	}
	if (cfg->one_way) {	/* direction 1 is over before it starts */
		world_tx(w, 1, CUT_EV_CLOSE, 0, 0);
		w->d[1].w_closed = w->d[1].tcp.fin_arr = w->d[1].r_eof = true;
	}
}

void world_wake(struct world *w, int d, bool reader, int how)
{
	uint8_t *s = reader ? &w->d[d].r_sleep : &w->d[d].w_sleep;

	if (*s & how)
		*s = SLEEP_NO;
}

/* Does nobody hold the direction's lock, so that an event may be fed to that half? */
bool world_tx_free(const struct world *w, int d)
{
	return !w->d[d].offer || w->d[d].stuck;
}

bool world_rx_free(const struct world *w, int d)
{
	return !w->d[d].taking || !ENV(OFFER_FREEZE);
}

int world_tcp_room(const struct world *w, int d)
{
	const struct tcp *t = &w->d[d].tcp;

	return w->cfg.tcp_cap - t->sqn - t->rqn;
}

void world_tcp_put(struct world *w, int d, uint8_t byte)
{
	struct tcp *t = &w->d[d].tcp;

	if (t->fin)
		world_fail(w, FAIL_AFTER_FIN);
	else if (t->sqn < TCP_MAX)
		t->sq[t->sqn++] = byte, t->put++;
}

void world_tcp_put_urgent(struct world *w, int d)
{
	struct tcp *t = &w->d[d].tcp;

	t->urg = t->rqn + t->sqn + 1;
	t->urg_put++;
	world_tcp_put(w, d, 0);
}

/* The reading end of direction d gets an RST: nothing more arrives, what arrived is readable. */
void world_rst(struct world *w, int d, bool ok)
{
	struct tcp *t = &w->d[d].tcp;

	memset(t->sq, 0, sizeof(t->sq));
	t->sqn = 0;
	if (t->urg > t->rqn)
		t->urg = 0;
	t->rst = true;
	t->rst_ok |= ok;
	w->d[0].w_err = w->d[1].w_err = true;	/* the connection is gone for both */
	world_wake(w, d, true, SLEEP_SOCK | SLEEP_BELL);
	world_wake(w, 1 - d, false, SLEEP_SOCK | SLEEP_BELL);
}

/* The library at `end` gives the stream up. */
void world_reset(struct world *w, int end)
{
	bool over = (w->d[0].tcp.rst_ok || w->d[1].tcp.rst_ok) && !w->e[1 - end].dead;

	if (!w->reset_ok && !over) {
		world_fail(w, FAIL_RESET);
		return;
	}
	w->d[end].w_err = true;
	if (!w->d[1 - end].r_eof)
		w->d[1 - end].r_err = true;
	world_rst(w, end, true);
}

void world_kill(struct world *w, int i)
{
	struct tcp *out = &w->d[i].tcp, *in = &w->d[1 - i].tcp;
	uint8_t st = w->d[i].tx.state;

	w->e[i].dead = true;
	if (w->d[i].offer == OFFER_READ)	/* written, though nobody has counted it */
		w->d[i].tx.wr += w->d[i].offer_n;
	if (in->rqn || (ENV(LINGER) && w->cfg.rdma && st >= CUT_TX_CUT_SENT))
		world_rst(w, i, true);
	else
		out->fin = true;
	if (w->cfg.rdma || w->e[i].exec || w->e[1 - i].exec)
		w->reset_ok = true;
	memset(in->rq, 0, sizeof(in->rq));
	in->urg = in->urg > in->rqn ? in->urg - in->rqn : 0;
	in->rqn = 0;
	memset(w->e[i].q, 0, sizeof(w->e[i].q));
	w->e[i].qn = 0;
	w->e[1 - i].ctl_closed = true;
	world_wake(w, 1 - i, false, SLEEP_SOCK);
}

static void ctl_send(struct world *w, int d, int from, const struct cut_action *a)
{
	struct end *to = &w->e[1 - from];

	if (w->e[from].ctl != CTL_UP || to->dead || to->aborted || to->ctl == CTL_NONE ||
	    to->ctl == CTL_DOWN)
		return;
	if (to->qn == CTL_MAX) {
		world_fail(w, FAIL_RANGE);
		return;
	}
	to->q[to->qn++] = (struct ctl_msg){ d, a->msg, (uint8_t)a->epoch, (uint8_t)a->off };
}

/* The memory of the older epoch is used again. With rdma some of its WRITEs may still be on
 * their way. */
static void open_ring(const struct world *w, struct ring *r, const struct cut_action *a)
{
	struct ring old = *r;

	memset(r, 0, sizeof(*r));
	r->epoch = (uint8_t)a->epoch;
	r->s = r->wr = r->rd = r->landed = (uint8_t)a->off;
	if (!w->cfg.rdma || old.dead)	/* a queue pair that is gone carries nothing any more */
		return;
	memcpy(r->land, old.land, sizeof(r->land));
	if (old.landed < old.wr || old.late < old.late_end) {
		r->late = old.late < old.late_end ? old.late : old.landed;
		r->late_end = old.landed < old.wr ? old.wr : old.late_end;
	}
}

static void tx_action(struct world *w, int d, const struct cut_action *a)
{
	struct dir *dir = &w->d[d];

	switch (a->kind) {
	case CUT_ACT_SEND:
		ctl_send(w, d, d, a);
		break;
	case CUT_ACT_OPEN_RING:
		open_ring(w, &dir->ring, a);
		break;
	case CUT_ACT_FINAL:
		dir->ring.has_final = true;
		dir->ring.final = (uint8_t)a->off;
		if (!w->cfg.rdma)
			dir->ring.final_landed = true;
		world_wake(w, d, true, SLEEP_BELL);
		break;
	case CUT_ACT_FIN:
		dir->tcp.fin = true;
		break;
	case CUT_ACT_RESET:
		/* A dead peer cannot be reset; what it left behind stays readable. */
		dir->w_err = true;
		if (!w->e[1 - d].dead || !ENV(ONE_WAY))
			world_reset(w, d);
		break;
	case CUT_ACT_WAKE:
		world_wake(w, d, false, SLEEP_BELL);
		break;
	}
}

static void rx_action(struct world *w, int d, const struct cut_action *a)
{
	if (a->kind == CUT_ACT_SEND)
		ctl_send(w, d, 1 - d, a);
	else if (a->kind == CUT_ACT_RESET)
		world_reset(w, 1 - d);
	else if (a->kind == CUT_ACT_WAKE)
		world_wake(w, d, true, SLEEP_BELL);
}

static void check_out(struct world *w, const struct cut_out *out)
{
	if (out->bad)
		world_fail(w, out->stray ? FAIL_STRAY : FAIL_BAD);
	if (out->n >= CUT_ACT_MAX)
		world_fail(w, FAIL_ACTIONS);
}

void world_tx(struct world *w, int d, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	uint8_t from = w->d[d].tx.state;
	struct cut_out out;

	if (w->cfg.rdma && ev == CUT_EV_FROZEN)
		pull_frozen(w, d, off);
	if (w->d[d].stuck && !w->cfg.rdma && ENV(OFFER_SETTLE))
		app_settle(w, d, true);
	cut_tx_step(&w->d[d].tx, ev, epoch, off, &out);
	check_out(w, &out);
	seen_tx[from][ev] |= (uint16_t)(1 << w->d[d].tx.state);
	for (int i = 0; i < out.n; i++)
		tx_action(w, d, &out.act[i]);
}

void world_rx(struct world *w, int d, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	uint8_t from = w->d[d].rx.state;
	struct cut_out out;

	cut_rx_step(&w->d[d].rx, ev, epoch, off, &out);
	check_out(w, &out);
	seen_rx[from][ev] |= (uint16_t)(1 << w->d[d].rx.state);
	for (int i = 0; i < out.n; i++)
		rx_action(w, d, &out.act[i]);
}

/* On TCP, stream offset - delta is what the kernel has counted, at both ends. */
void world_check_delta(struct world *w)
{
	for (int d = 0; d < 2; d++) {
		const struct dir *x = &w->d[d];

		if (x->tx.state == CUT_TX_TCP && !x->w_err && !x->w_mid &&
		    x->tx.wr - x->tx.delta != (uint64_t)(x->tcp.put - x->tcp.urg_put))
			world_fail(w, FAIL_DELTA);
		if (x->rx.state == CUT_RX_TCP && !x->r_err && !x->tcp.rst &&
		    x->rx.rd - x->rx.delta != (uint64_t)(x->tcp.taken - x->tcp.urg_taken))
			world_fail(w, FAIL_DELTA);
	}
}

/* Everybody got what he waited for. */
bool world_done(const struct world *w)
{
	/* Of a program that writes past the library only wrong bytes are looked for. */
	if (w->d[0].bypassed || w->d[1].bypassed)
		return true;
	for (int d = 0; d < 2; d++) {
		const struct dir *x = &w->d[d];
		const struct end *s = &w->e[d], *r = &w->e[1 - d];
		bool live = !s->dead && !r->dead && !w->ctl_gone && !x->w_err && !x->tcp.rst;

		if (!x->w_closed && !x->w_err && !s->dead)
			return false;
		if (!x->r_eof && !x->r_err && !r->dead && !r->closed)
			return false;
		if (((s->exec || s->urgent || x->offer) && !s->dead && !x->w_err) ||
		    (s->shared && !s->dead))
			return false;
		/* a wish to fall back is always fulfilled */
		if (live && !s->tcp_only && !r->tcp_only && x->tx.fallback)
			return false;
	}
	return true;
}
