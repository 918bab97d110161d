/*
 * app.c - the applications and the data path under them: what a send or a recv does in each
 * state of the machine, when it sleeps and on what, and the oracle that looks at the outcome.
 */
#include "sim.h"

#include <string.h>

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

/* A process that runs and is not in the middle of exec. */
static bool runs(const struct end *e)
{
	return !e->dead && !e->exec && !e->stopped && !e->aborted;
}

bool app_can_write(const struct world *w, int d)
{
	const struct dir *x = &w->d[d];

	if (w->e[d].urgent || (x->offer && (ENV(OFFER_ALONE) || !x->stuck)))
		return false;
	return runs(&w->e[d]) && !x->w_sleep && !x->w_closed && !x->w_err && !x->w_mid &&
	       !x->measuring && x->tx.wr < w->cfg.n[d];
}

bool app_can_read(const struct world *w, int d)
{
	const struct dir *x = &w->d[d], *own = &w->d[1 - d];
	const struct end *r = &w->e[1 - d];

	if (!runs(r) || r->closed || x->r_sleep || x->r_eof || x->r_err || x->r_mid || x->taking)
		return false;
	if (own->tx.wr < w->cfg.gate[1 - d] && !own->w_err && !own->w_closed)
		return false;
	return !(w->cfg.exec_gate && w->e[d].exec && !w->e[d].dead);
}

static int ring_free(const struct world *w, int d)
{
	const struct dir *x = &w->d[d];

	return w->cfg.ring_cap - (int)(x->tx.wr - x->ring.rd);
}

bool app_ring_full(const struct world *w, int d)
{
	return ring_free(w, d) <= 0;
}

/* How much may go into the ring so that TCP could take all of it back without a reader. */
static int room_rule(const struct world *w, int d)
{
	const struct dir *x = &w->d[d];

	if (!ENV(ROOM))
		return RING_MAX;
	return world_tcp_room(w, d) - (int)(x->tx.wr - x->ring.rd);
}

static void write_tcp(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];

	if (w->e[1 - d].dead) {		/* the kernel answers with an RST */
		x->w_err = true;
		world_rst(w, 1 - d, true);
		return;
	}
	n = min_int(n, world_tcp_room(w, d));
	if (n <= 0) {
		x->w_sleep = SLEEP_SOCK | SLEEP_BELL;
		return;
	}
	for (int i = 0; i < n; i++)
		world_tcp_put(w, d, world_byte(d, (unsigned)x->tx.wr + i));
	if (ENV(SEND_COPY))
		x->tx.wr += n;
	else
		x->w_mid = n;
}

static void write_ring(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];
	int room = room_rule(w, d), space = ring_free(w, d);

	if (space <= 0 && !ENV(OVERFLOW_TCP) && world_tcp_room(w, d) > 0) {
		world_tcp_put(w, d, world_byte(d, (unsigned)x->tx.wr));
		x->tx.wr++;
		return;
	}
	n = min_int(n, min_int(room, space));
	if (n <= 0) {
		/* room comes back through TCP too, and the reader rings no bell for that */
		x->w_sleep = space > 0 && ENV(ROOM_WAKE) ? SLEEP_SOCK | SLEEP_BELL : SLEEP_BELL;
		return;
	}
	for (int i = 0; i < n; i++)
		x->ring.buf[(x->tx.wr + i) % w->cfg.ring_cap] =
			world_byte(d, (unsigned)x->tx.wr + i);
	if (x->stolen)
		world_fail(w, FAIL_STRANGER);
	x->idle_wakes = 0;
	x->tx.wr += n;
	x->ring.wr = (uint8_t)x->tx.wr;
	if (!w->cfg.rdma)
		x->ring.landed = x->ring.wr;
	world_wake(w, d, true, SLEEP_BELL);
}

void app_write(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];

	n = min_int(n, w->cfg.n[d] - (int)x->tx.wr);
	if (cut_tx_on_tcp(&x->tx))
		write_tcp(w, d, n);
	else if (cut_tx_on_ring(&x->tx))
		write_ring(w, d, n);
	else
		x->w_sleep = SLEEP_BELL;
}

/* send() of a block that is not copied: the reader may take it out of the writer's memory while
 * the call lasts. */
void app_offer(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];

	w->cfg.offer--;
	if (x->stolen)
		world_fail(w, FAIL_STRANGER);
	if (w->cfg.rdma) {
		pull_offer(w, d, min_int(n + 1, w->cfg.n[d] - (int)x->tx.wr));
		return;
	}
	x->offer = OFFER_OFFERED;
	x->offer_at = (uint8_t)x->tx.wr;
	x->offer_n = (uint8_t)min_int(n + 1, w->cfg.n[d] - (int)x->tx.wr);
	world_wake(w, d, true, SLEEP_BELL);
}

/* The sender counts what was taken; from a peer that died nothing is heard any more. Now: it
 * cannot wait, and withdraws what is not. True if there is nothing left to wait for. */
bool app_settle(struct world *w, int d, bool now)
{
	struct dir *x = &w->d[d];

	if (x->offer == OFFER_READING && !now && !w->e[1 - d].dead)
		return false;
	if (x->offer == OFFER_READ) {
		x->tx.wr += x->offer_n;
		x->ring.wr = x->ring.landed = (uint8_t)x->tx.wr;
	}
	x->offer = x->offer_n = 0;
	x->stuck = false;
	return true;
}

void app_see(struct world *w, int d, uint8_t b)
{
	struct dir *x = &w->d[d];

	if (b != (world_byte(d, x->got) ^ (w->cfg.proxy ? PROXY_XOR : 0)) || x->got >= w->cfg.n[d])
		world_fail(w, FAIL_BYTE);
	x->got++;
}

/* EOF is true if the sender closed or died, and everything it was allowed to write came. */
static void see_eof(struct world *w, int d)
{
	struct dir *x = &w->d[d];

	if (x->got != x->tx.wr || (!x->tx.closing && !w->e[d].dead))
		world_fail(w, FAIL_EOF);
	x->r_eof = true;
}

static void see_error(struct world *w, int d)
{
	struct dir *x = &w->d[d];

	if ((!w->reset_ok && !x->tcp.rst_ok) || x->got < x->owed)
		world_fail(w, FAIL_RESET);
	x->r_err = true;
}

static void consumed(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];

	x->rx.rd += n;
	if (x->rx.state == CUT_RX_RING && x->rx.rd > x->rx.cut_at && !x->ring.dead) {
		x->ring.rd = (uint8_t)x->rx.rd;
		world_wake(w, d, false, SLEEP_BELL);
	}
	if (x->rx.back_pending)
		world_rx(w, d, CUT_EV_CREDIT, 0, x->rx.rd);
}

static void drop_tcp(struct tcp *t, int n)
{
	memmove(t->rq, t->rq + n, TCP_MAX - n);
	memset(t->rq + TCP_MAX - n, 0, n);
	t->rqn -= n;
	t->taken += n;
	if (t->urg)
		t->urg -= n;
}

/* The urgent byte is read over, as tcp_recvmsg() does. */
static void pass_urgent(struct world *w, int d)
{
	struct tcp *t = &w->d[d].tcp;

	if (t->urg != 1 || !t->rqn)
		return;
	if (w->d[d].got != w->d[d].urg_off)
		world_fail(w, FAIL_URGENT);
	t->urg = 0;
	t->urg_taken++;
	drop_tcp(t, 1);
	world_wake(w, d, false, SLEEP_SOCK);
}

static void read_tcp(struct world *w, int d, int n)
{
	struct tcp *t = &w->d[d].tcp;

	n = min_int(n, t->urg && t->urg <= t->rqn ? t->urg - 1 : t->rqn);
	for (int i = 0; i < n; i++)
		app_see(w, d, t->rq[i]);
	drop_tcp(t, n);
	consumed(w, d, n);
	world_wake(w, d, false, SLEEP_SOCK);
}

/* What MSG_PEEK would show now, over the segments, is what later reads give. Asked after every
 * step. */
void app_check_peek(struct world *w, int d)
{
	const struct dir *x = &w->d[d];
	const uint8_t *ring = w->cfg.rdma ? x->ring.land : x->ring.buf;
	uint64_t left = cut_rx_tcp_left(&x->rx), at = x->rx.rd;
	unsigned n = 0;

	if (x->r_mid || x->taking || x->r_err || x->r_eof || w->e[1 - d].dead ||
	    w->e[1 - d].closed || (x->bypassed && x->rx.state != CUT_RX_RING))
		return;
	for (int i = 0; i < x->tcp.rqn && n < left; i++) {
		if (x->tcp.urg == i + 1)
			continue;
		if (x->tcp.rq[i] != (world_byte(d, x->got + n) ^ (w->cfg.proxy ? PROXY_XOR : 0)))
			world_fail(w, FAIL_PEEK);
		n++, at++;
	}
	if (x->rx.state != CUT_RX_RING || n < left)
		return;
	for (; at < x->ring.landed; at++, n++)
		if (ring[at % w->cfg.ring_cap] != world_byte(d, x->got + n))
			world_fail(w, FAIL_PEEK);
}

static void read_ring(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];

	n = min_int(n, x->ring.landed - (int)x->rx.rd);
	for (int i = 0; i < n; i++)
		app_see(w, d,
			 (w->cfg.rdma ? x->ring.land
				      : x->ring.buf)[(x->rx.rd + i) % w->cfg.ring_cap]);
	if (ENV(RECV_COPY) || x->rx.state != CUT_RX_RING)
		consumed(w, d, n);
	else
		x->r_mid = n;
}

/* The kernel socket has ended and TCP is empty. */
static void tcp_ended(struct world *w, int d)
{
	struct dir *x = &w->d[d];
	bool final = x->rx.state == CUT_RX_TCP || w->cfg.rdma || x->rx.eof;

	if (w->e[d].aborted && !final)
		x->r_sleep = SLEEP_BELL;	/* the machine must hear of the RST first */
	else if (x->rx.tail && !w->cfg.rdma) {
		if (x->rx.rd < x->rx.cut_at)
			see_error(w, d);
		else if (x->ring.landed > x->rx.rd)
			read_ring(w, d, 1);
		else if (x->tcp.rst)
			see_error(w, d);
		else
			see_eof(w, d);
	} else if (final || !ENV(EOF_WAIT) || (x->tcp.rst && !w->e[d].dead)) {
		if (x->tcp.rst)
			see_error(w, d);
		else
			see_eof(w, d);
	} else {
		x->r_sleep = SLEEP_BELL;	/* BACK or the end of control will tell */
	}
}

static int sleep_kind(const struct cut_rx *rx)
{
	if (rx->state == CUT_RX_TCP && !rx->arm_pending)
		return SLEEP_SOCK;
	if (rx->state == CUT_RX_RING && cut_rx_tcp_left(rx) == 0)
		return SLEEP_BELL;
	return SLEEP_SOCK | SLEEP_BELL;
}

static void read_path(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];
	bool peer_over = x->rx.eof || (w->cfg.rdma && x->tcp.fin_arr);

	if (x->ring.landed > x->rx.rd) {
		read_ring(w, d, n);
	} else if (x->pull.known && !x->ring.dead && x->rx.state == CUT_RX_RING) {
		pull_take(w, d);
	} else if (!w->cfg.rdma && x->offer == OFFER_OFFERED) {
		x->offer = OFFER_READING;
		x->taking = true;
	} else if (!ENV(OVERFLOW_TCP) && x->tcp.rqn) {
		read_tcp(w, d, n);
	} else if (x->ring.final_landed && x->rx.rd == x->ring.final) {
		see_eof(w, d);
	} else if (x->tcp.rst) {
		if (w->cfg.rdma || x->rx.eof || !w->e[d].dead)
			see_error(w, d);
		else
			x->r_sleep = SLEEP_BELL;
	} else if (peer_over && (w->cfg.rdma || w->e[1 - d].ctl == CTL_NONE)) {
		see_eof(w, d);
	} else {
		x->r_sleep = SLEEP_BELL;
	}
}

static void read_once(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];
	uint64_t left = cut_rx_tcp_left(&x->rx);

	if (left)
		pass_urgent(w, d);
	if (!w->cfg.rdma && x->rx.state != CUT_RX_TCP && x->ring.has_final &&
	    x->rx.rd == x->ring.final)
		see_eof(w, d);		/* whatever carries the direction now, and wherever BACK
					 * is */
	else if (left == 0)
		read_path(w, d, n);
	else if (x->tcp.rqn)
		read_tcp(w, d, ENV(CAP_AT_S) && left < (uint64_t)n ? (int)left : n);
	else if (x->rx.state == CUT_RX_RING && x->rx.eof && (x->tcp.rst || x->tcp.fin_arr))
		see_error(w, d);	/* bytes below S are missing */
	else if (x->tcp.rst || x->tcp.fin_arr)
		tcp_ended(w, d);
	else
		x->r_sleep = sleep_kind(&x->rx);
}

/* recv(n). Who waits for edges reads n + 1 at once and takes less for "there is no more": so the
 * library goes on over every boundary until the reader has what it asked for, or there really is
 * no more. */
void app_read(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];
	int want = n + 1, had = x->got, before;

	if (x->r_foreign) {
		world_fail(w, FAIL_FOREIGN);
		return;
	}
	if (x->bypassed && x->rx.state != CUT_RX_RING) {
		world_reset(w, 1 - d);
		return;
	}
	if (!w->cfg.edge) {
		read_once(w, d, n);
		return;
	}
	do {
		before = x->got;
		read_once(w, d, want - (before - had));
	} while (ENV(NO_SHORT_READ) && x->got > before && x->got - had < want && !x->r_mid);
	if (x->got - had < want && !x->r_eof && !x->r_err && !x->r_mid && !x->taking)
		x->r_sleep = SLEEP_SOCK | SLEEP_BELL;
}

/* The reader's copy ends: all of the block, less (its buffer is smaller), or nothing (the sender
 * is gone). */
void app_take_end(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];

	x->taking = false;
	if (w->e[d].dead) {
		x->offer = OFFER_NONE;
		return;
	}
	if (x->offer != OFFER_READING && ENV(OFFER_COMMIT))
		return;
	n = min_int(n, x->offer_n);
	for (int i = 0; i < n; i++)
		app_see(w, d, world_byte(d, x->offer_at + (unsigned)i));
	x->rx.rd += n;
	x->ring.rd = (uint8_t)x->rx.rd;
	x->offer_n = (uint8_t)n;
	x->offer = OFFER_READ;
}
