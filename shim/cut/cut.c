/*
 * cut.c - the cut/rewind machine of cut.h. Owns the meaning of every state, event and message;
 * the transitions themselves are the rows of cut.def, each with a handler here.
 *
 * Called by whoever holds the lock of the direction (or, for tests, by one thread). Takes no
 * lock, calls nothing. Because the lock is held, no thread is inside a kernel send, a ring
 * write or the copy of a recv on this direction while a handler runs; several rules of the
 * protocol lean on that (S = wr is exact, C = rd is exact).
 *
 * Values that come from the peer are compared with what is possible before anything changes:
 * a breach sets out.bad and leaves the machine as it was.
 */
#include "cut/cut.h"

#include <stddef.h>

#ifdef CUT_SIM
/* Which rule the simulator has switched off; 0 = none. */
extern int cut_mutant;
enum {
	CUT_RULE_NONE,
#define CUT_RULE(id, doc) CUT_RULE_##id,
#include "cut/cut.def"
};
#define RULE(id) (cut_mutant != CUT_RULE_##id)
#else
#define RULE(id) true
#endif

/* The last epoch is never used, so that e + 1 cannot wrap. */
#define EPOCH_LAST UINT32_MAX

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void act(struct cut_out *out, enum cut_act kind, uint32_t epoch, uint64_t off)
{
	if (out->n < CUT_ACT_MAX)
		out->act[out->n++] = (struct cut_action){ .kind = kind, .epoch = epoch, .off = off };
}

static void say(struct cut_out *out, enum cut_msg msg, uint32_t epoch, uint64_t off)
{
	if (out->n < CUT_ACT_MAX)
		out->act[out->n++] = (struct cut_action){
			.kind = CUT_ACT_SEND, .msg = msg, .epoch = epoch, .off = off };
}

/* ---- sender half ---------------------------------------------------------------------- */

/* Every road back to T ends here: the epoch is over, what was remembered is settled. */
static void tx_to_tcp(struct cut_tx *m, struct cut_out *out)
{
	m->state = CUT_TX_T;
	m->epoch++;
	m->home = false;
	m->path_dead = false;
	m->final_put = false;
	if (m->closing && !m->fin_sent) {
		m->fin_sent = true;
		act(out, CUT_ACT_FIN, m->epoch, m->wr);
	}
}

/* BACK is said after all bytes below E = wr are in TCP or consumed, and before FIN. */
static void tx_say_back(struct cut_tx *m, struct cut_out *out)
{
	m->have_back = true;
	m->last_back_epoch = m->epoch;
	m->last_back_off = m->wr;
	say(out, CUT_MSG_BACK, m->epoch, m->wr);
}

static void tx_again(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)m, (void)epoch, (void)off;
	out->ignored = true;
}

static void tx_earned(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	if (m->closing || m->home || m->ctl_lost || m->epoch == EPOCH_LAST) {
		out->ignored = true;
		return;
	}
	m->state = CUT_TX_A;
	say(out, CUT_MSG_ARM, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void tx_close_tcp(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->closing = true;
	if (m->fin_sent) {
		out->ignored = true;
		return;
	}
	m->fin_sent = true;
	act(out, CUT_ACT_FIN, m->epoch, m->wr);
}

static void tx_disarm(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	tx_say_back(m, out);
	tx_to_tcp(m, out);
	if (!RULE(NEW_EPOCH))
		m->epoch--;
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void tx_close_armed(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	m->closing = true;
	tx_disarm(m, epoch, off, out);
}

static void tx_arm_lost(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->ctl_lost = true;
	tx_to_tcp(m, out);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void tx_cut(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->state = CUT_TX_K;
	m->cut_at = m->wr;
	act(out, CUT_ACT_OPEN_RING, m->epoch, m->cut_at);	/* the header before the message */
	say(out, CUT_MSG_CUT, m->epoch, m->cut_at);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

/* In P and W: REWIND, unless nobody can hear it. */
static void tx_start_rewind(struct cut_tx *m, struct cut_out *out)
{
	m->state = CUT_TX_W;
	if (m->ctl_lost && RULE(LOST_RESET))
		act(out, CUT_ACT_RESET, m->epoch, 0);
	else
		say(out, CUT_MSG_REWIND, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

/* In P and closing: all consumed, so nothing can be left behind a FIN. */
static void tx_close_if_consumed(struct cut_tx *m, struct cut_out *out)
{
	if (!m->closing || m->state != CUT_TX_P || m->credit != m->wr)
		return;
	m->delta += m->wr - m->cut_at;
	if (RULE(BACK_BEFORE_FIN))
		tx_say_back(m, out);
	act(out, CUT_ACT_DROP_RING, m->epoch, 0);
	tx_to_tcp(m, out);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void tx_put_final(struct cut_tx *m, struct cut_out *out)
{
	if (!m->final_put) {
		m->final_put = true;
		act(out, CUT_ACT_FINAL, m->epoch, m->wr);
	}
	if (!RULE(LATE_FIN) && !m->fin_sent) {
		m->fin_sent = true;
		act(out, CUT_ACT_FIN, m->epoch, m->wr);
	}
	tx_close_if_consumed(m, out);
}

static void tx_confirmed(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->state = CUT_TX_P;
	if (m->home || m->path_dead) {
		tx_start_rewind(m, out);
		return;
	}
	act(out, CUT_ACT_WAKE, m->epoch, 0);
	if (m->closing)
		tx_put_final(m, out);
}

/* All that was not consumed is in TCP again. */
static void tx_rewound(struct cut_tx *m, struct cut_out *out)
{
	tx_say_back(m, out);
	act(out, CUT_ACT_DROP_RING, m->epoch, 0);
	tx_to_tcp(m, out);
	if (RULE(WAKE_SENDER))
		act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void tx_frozen(struct cut_tx *m, uint32_t epoch, uint64_t c, struct cut_out *out)
{
	uint64_t from = RULE(MAX_CS) ? max64(c, m->cut_at) : c;

	(void)epoch;
	/* The ring cursor may have been set to S when the ring was opened, hence max(C,S). */
	if (c > m->wr || max64(c, m->cut_at) < m->credit) {
		out->bad = true;
		return;
	}
	if (!RULE(CROSSING) && m->state == CUT_TX_K) {
		out->ignored = true;
		return;
	}
	m->state = CUT_TX_R;
	m->resend = from;	/* below S the bytes are in TCP already */
	if (RULE(DELTA))
		m->delta += max64(c, m->cut_at) - m->cut_at;
	m->credit = max64(m->credit, c);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
	if (m->resend < m->wr)
		act(out, CUT_ACT_RESEND, m->epoch, m->resend);
	else
		tx_rewound(m, out);
}

static void tx_resent(struct cut_tx *m, uint32_t epoch, uint64_t n, struct cut_out *out)
{
	(void)epoch;
	if (n > m->wr - m->resend) {	/* the caller's error, not the peer's */
		out->ignored = true;
		return;
	}
	m->resend += n;
	if (m->resend == m->wr)
		tx_rewound(m, out);
}

static void tx_credit(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch;
	if (off > m->wr) {
		out->bad = true;
		return;
	}
	if (off <= m->credit)
		out->ignored = true;
	else
		m->credit = off;
	tx_close_if_consumed(m, out);
	if (out->n)
		out->ignored = false;
}

static void tx_close_path(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->closing = true;
	tx_put_final(m, out);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void tx_note_close(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	if (!m->closing)	/* FIN must wait, but the reader may know already where the end is */
		act(out, CUT_ACT_FINAL, m->epoch, m->wr);
	m->closing = m->final_put = true;
	if (!RULE(K_NO_FIN) && m->state == CUT_TX_K && !m->fin_sent) {
		m->fin_sent = true;
		act(out, CUT_ACT_FIN, m->epoch, m->wr);
	}
}

static void tx_note_home(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off, (void)out;
	m->home = RULE(STICKY_HOME);
}

static void tx_note_dead(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off, (void)out;
	m->path_dead = true;
}

static void tx_note_lost(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off, (void)out;
	m->ctl_lost = true;
}

static void tx_home(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->home = true;
	tx_start_rewind(m, out);
}

static void tx_dead(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->path_dead = true;
	tx_start_rewind(m, out);
}

static void tx_reset(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->ctl_lost = true;
	act(out, CUT_ACT_RESET, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

/* What the peer may have missed: the one message that the state waits for an answer to. */
static void tx_replay(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->ctl_lost = false;
	if (!RULE(REPLAY)) {
		out->ignored = true;
		return;
	}
	if (m->state == CUT_TX_A)
		say(out, CUT_MSG_ARM, m->epoch, 0);
	else if (m->state == CUT_TX_K)
		say(out, CUT_MSG_CUT, m->epoch, m->cut_at);
	else if (m->state == CUT_TX_W)
		say(out, CUT_MSG_REWIND, m->epoch, 0);
	else if (m->have_back && RULE(REPLAY_BACK))
		say(out, CUT_MSG_BACK, m->last_back_epoch, m->last_back_off);
}

/* ---- receiver half -------------------------------------------------------------------- */

static void rx_to_tcp(struct cut_rx *m, uint32_t epoch, struct cut_out *out)
{
	if (m->state == CUT_RX_K || m->state == CUT_RX_F)
		act(out, CUT_ACT_DROP_RING, m->epoch, 0);
	m->state = CUT_RX_T;
	m->epoch = epoch;
	m->home = false;
	m->path_dead = false;
	m->arm_pending = false;
	m->back_pending = false;
	m->tail = false;
	if (RULE(WAKE_READER))
		act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void rx_again(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)off;
	if (epoch > m->epoch)
		out->bad = true;
	else
		out->ignored = true;
}

static void rx_arm(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)off;
	m->epoch = epoch;
	m->arm_pending = true;
	act(out, CUT_ACT_WAKE, m->epoch, 0);	/* waits are taken up again in the bell form */
}

static void rx_armed(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	if (!m->arm_pending) {
		out->ignored = true;
		return;
	}
	m->arm_pending = false;
	m->state = CUT_RX_A;
	say(out, CUT_MSG_ARMED, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void rx_arm_again(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	if (epoch == m->epoch) {
		say(out, CUT_MSG_ARMED, m->epoch, 0);
		return;
	}
	rx_to_tcp(m, epoch, out);	/* the older epoch's BACK was lost */
	rx_arm(m, epoch, off, out);
}

/* BACK while nothing was cut. rd may be beyond E: TCP can be faster than the control socket. */
static void rx_back_idle(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)off;
	rx_to_tcp(m, RULE(NEW_EPOCH) ? epoch + 1 : epoch, out);
}

static void rx_say_frozen(struct cut_rx *m, struct cut_out *out)
{
	say(out, CUT_MSG_FROZEN, m->epoch - 1, m->frozen_at);
}

static void rx_freeze(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->home = true;
	/* The sender is through with this epoch, dead, or has reset the connection: nobody would answer
	 * FROZEN, and what is left in the ring stays readable here. */
	if (m->back_pending || (m->state == CUT_RX_K && m->eof && (RULE(EOF_STAYS) || m->ctl_lost))) {
		out->ignored = true;
		return;
	}
	if (m->ctl_lost) {
		/* Armed: all is on TCP, there is nothing to go back from. */
		if (m->state == CUT_RX_A)
			rx_to_tcp(m, m->epoch + 1, out);
		else
			act(out, CUT_ACT_RESET, m->epoch, 0);
		return;
	}
	m->was_cut = m->state == CUT_RX_K;
	if (m->was_cut)
		m->delta += max64(m->rd, m->cut_at) - m->cut_at;
	m->state = CUT_RX_F;
	m->frozen_at = m->rd;
	m->epoch++;
	rx_say_frozen(m, out);
	if (RULE(WAKE_READER))
		act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void rx_rewind(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	if (epoch != m->epoch)
		out->bad = true;
	else
		rx_freeze(m, epoch, off, out);
}

/* Who polls looks at the two without a lock. */
static void rx_to_ring(struct cut_rx *m, uint64_t s)
{
	m->cut_at = s;
	__atomic_store_n(&m->state, CUT_RX_K, __ATOMIC_RELEASE);
}

static void rx_cut(struct cut_rx *m, uint32_t epoch, uint64_t s, struct cut_out *out)
{
	if (epoch != m->epoch || s < m->rd) {
		out->bad = true;
		return;
	}
	rx_to_ring(m, s);
	act(out, CUT_ACT_OPEN_RING, m->epoch, s);
	say(out, CUT_MSG_CUT_OK, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void rx_cut_again(struct cut_rx *m, uint32_t epoch, uint64_t s, struct cut_out *out)
{
	if (epoch != m->epoch || s != m->cut_at)
		out->bad = true;
	else
		say(out, CUT_MSG_CUT_OK, m->epoch, 0);
}

static void rx_leave_path(struct cut_rx *m, struct cut_out *out)
{
	m->delta += m->back_at - m->cut_at;
	rx_to_tcp(m, m->epoch + 1, out);
}

/* BACK without FROZEN: the sender closed and saw all ring bytes consumed. */
static void rx_back_path(struct cut_rx *m, uint32_t epoch, uint64_t e, struct cut_out *out)
{
	if (epoch != m->epoch || e < max64(m->rd, m->cut_at)) {
		out->bad = true;
		return;
	}
	m->back_at = e;
	if (e == m->rd || e == m->cut_at)	/* e == S: the ring was never used */
		rx_leave_path(m, out);
	else
		m->back_pending = true;
}

static void rx_consumed(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	if (!m->back_pending || m->rd < m->back_at)
		out->ignored = true;
	else if (m->rd > m->back_at)
		out->bad = true;	/* the ring held more than the sender says it wrote */
	else
		rx_leave_path(m, out);
}

static void rx_frozen_again(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)off;
	if (epoch >= m->epoch)
		out->bad = true;
	else if (RULE(FROZEN_AGAIN))
		rx_say_frozen(m, out);
	else
		out->ignored = true;
}

static void rx_frozen_arm(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	if (epoch < m->epoch) {
		rx_frozen_again(m, epoch, off, out);
	} else if (RULE(ARM_CLOSES)) {
		rx_to_tcp(m, epoch, out);
		rx_arm(m, epoch, off, out);
	} else {
		out->ignored = true;
	}
}

static void rx_back_frozen(struct cut_rx *m, uint32_t epoch, uint64_t e, struct cut_out *out)
{
	/* Frozen while armed, C may be beyond E: the sender had disarmed, its BACK was lost, it
	 * went on in TCP, and control was re-made. */
	if (m->was_cut && epoch == m->epoch - 1 && e < max64(m->frozen_at, m->cut_at))
		out->bad = true;
	else
		rx_to_tcp(m, epoch + 1, out);
}

static void rx_note_home(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off, (void)out;
	m->home = true;
}

static void rx_note_lost(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off, (void)out;
	m->ctl_lost = true;
	m->arm_pending = false;
}

static void rx_frozen_lost(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->ctl_lost = true;
	if (!RULE(FROZEN_LOST))
		return;
	if (m->eof) {
		/* The sender went home by itself (FIN) or never cut: all is on TCP, so an exec
		 * need not wait for a BACK that cannot come. With a tail the ring is still needed. */
		if (!m->tail)
			rx_to_tcp(m, m->epoch, out);
		return;
	}
	act(out, CUT_ACT_RESET, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void rx_refreeze(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->ctl_lost = false;
	if (RULE(REPLAY) && RULE(FROZEN_AGAIN))
		rx_say_frozen(m, out);
}

static void rx_eof(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->eof = true;
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

static void rx_eof_armed(struct cut_rx *m, uint32_t epoch, uint64_t s, struct cut_out *out)
{
	if (epoch == m->epoch && RULE(HEADER)) {
		if (s < m->rd) {
			out->bad = true;
			return;
		}
		rx_to_ring(m, s);
		act(out, CUT_ACT_OPEN_RING, m->epoch, s);
	}
	rx_eof(m, epoch, s, out);
}

static void rx_eof_frozen(struct cut_rx *m, uint32_t epoch, uint64_t s, struct cut_out *out)
{
	if (epoch == m->epoch - 1 && !m->tail && RULE(TAIL)) {
		m->tail = true;
		m->cut_at = s;
		act(out, CUT_ACT_OPEN_RING, epoch, max64(s, m->frozen_at));
	}
	rx_eof(m, epoch, s, out);
}

/* ---- tables --------------------------------------------------------------------------- */

typedef void tx_handler(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out);
typedef void rx_handler(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out);

static const struct tx_row { tx_handler *handler; const char *to; } tx_table[CUT_TX_STATES][CUT_EV_MAX] = {
#define CUT_TX(state, event, handler, to, doc) [CUT_TX_##state][CUT_EV_##event] = { handler, to },
#include "cut/cut.def"
};

static const struct rx_row { rx_handler *handler; const char *to; } rx_table[CUT_RX_STATES][CUT_EV_MAX] = {
#define CUT_RX(state, event, handler, to, doc) [CUT_RX_##state][CUT_EV_##event] = { handler, to },
#include "cut/cut.def"
};

static const char *const tx_names[CUT_TX_STATES] = {
#define CUT_TX_STATE(name, doc) [CUT_TX_##name] = #name,
#include "cut/cut.def"
};

static const char *const rx_names[CUT_RX_STATES] = {
#define CUT_RX_STATE(name, doc) [CUT_RX_##name] = #name,
#include "cut/cut.def"
};

static const struct {
	const char *name;
	bool is_message;
} events[CUT_EV_MAX] = {
#define CUT_EVENT(name, is_message, doc) [CUT_EV_##name] = { #name, is_message },
#include "cut/cut.def"
};

static const char *const messages[] = {
	[CUT_MSG_ARM] = "ARM", [CUT_MSG_ARMED] = "ARMED", [CUT_MSG_CUT] = "CUT",
	[CUT_MSG_CUT_OK] = "CUT_OK", [CUT_MSG_REWIND] = "REWIND",
	[CUT_MSG_FROZEN] = "FROZEN", [CUT_MSG_BACK] = "BACK",
};

void cut_tx_init(struct cut_tx *m)
{
	*m = (struct cut_tx){ .state = CUT_TX_T, .epoch = 1 };
}

void cut_rx_init(struct cut_rx *m)
{
	*m = (struct cut_rx){ .state = CUT_RX_T, .epoch = 1 };
}

/* An event without a row: a message is a breach, anything else means nothing here. */
static void no_row(enum cut_ev ev, struct cut_out *out)
{
	if ((unsigned)ev >= CUT_EV_MAX || !events[ev].is_message)
		out->ignored = true;
	else
		out->bad = true;
}

/* May the row lead there? The names of states are single letters. */
static bool leads(const char *to, const char *name)
{
	while (*to && *to != *name)
		to++;
	return *to != 0;
}

/* A handler has gone where its row does not lead: this machine is wrong, not the peer. */
static void stray(struct cut_out *out)
{
	out->n = 0;
	out->ignored = false;
	out->bad = out->stray = true;
}

void cut_tx_step(struct cut_tx *m, enum cut_ev ev, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	const struct tx_row *row = NULL;
	uint8_t from = m->state;

	out->n = 0;
	out->ignored = out->bad = out->stray = false;
	if ((unsigned)ev < CUT_EV_MAX && events[ev].is_message && epoch != m->epoch) {
		if (epoch < m->epoch)
			out->ignored = true;
		else
			out->bad = true;
		return;
	}
	if (m->state < CUT_TX_STATES && (unsigned)ev < CUT_EV_MAX)
		row = &tx_table[m->state][ev];
	if (!row || !row->handler) {
		no_row(ev, out);
		return;
	}
	row->handler(m, epoch, off, out);
	if (m->state != from && !leads(row->to, tx_names[m->state])) {
		m->state = from;
		stray(out);
	}
}

void cut_rx_step(struct cut_rx *m, enum cut_ev ev, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	const struct rx_row *row = NULL;
	uint8_t from = m->state;

	out->n = 0;
	out->ignored = out->bad = out->stray = false;
	if ((unsigned)ev < CUT_EV_MAX && events[ev].is_message) {
		uint32_t oldest = m->state == CUT_RX_F ? m->epoch - 1 : m->epoch;

		if (epoch < oldest) {
			out->ignored = true;
			return;
		}
		if (epoch == EPOCH_LAST) {
			out->bad = true;
			return;
		}
	}
	if (m->state < CUT_RX_STATES && (unsigned)ev < CUT_EV_MAX)
		row = &rx_table[m->state][ev];
	if (!row || !row->handler) {
		no_row(ev, out);
		return;
	}
	row->handler(m, epoch, off, out);
	if (m->state != from && !leads(row->to, rx_names[m->state])) {
		m->state = from;
		stray(out);
	}
}

const char *cut_tx_state_name(unsigned s)
{
	return s < CUT_TX_STATES ? tx_names[s] : "?";
}

const char *cut_rx_state_name(unsigned s)
{
	return s < CUT_RX_STATES ? rx_names[s] : "?";
}

const char *cut_ev_name(unsigned e)
{
	return e < CUT_EV_MAX && events[e].name ? events[e].name : "?";
}

const char *cut_msg_name(unsigned m)
{
	return m < sizeof(messages) / sizeof(messages[0]) && messages[m] ? messages[m] : "?";
}
