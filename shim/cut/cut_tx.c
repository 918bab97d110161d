/*
 * cut_tx.c - the sender half of the cut/rewind machine: a handler for each row of cut.def. See
 * cut.c for what holds in both halves.
 */
#include "cut/cut_int.h"

#include <stddef.h>

/* Every road back to TCP ends here: the epoch is over, what was remembered is settled. */
static void tx_to_tcp(struct cut_tx *m, struct cut_out *out)
{
	m->state = CUT_TX_TCP;
	m->epoch++;
	m->fallback = false;
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
	if (m->closing || m->fallback || m->ctl_lost || m->epoch == EPOCH_LAST) {
		out->ignored = true;
		return;
	}
	m->state = CUT_TX_ARMING;
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
	m->state = CUT_TX_CUT_SENT;
	m->cut_at = m->wr;
	act(out, CUT_ACT_OPEN_RING, m->epoch, m->cut_at);	/* the header before the message */
	say(out, CUT_MSG_CUT, m->epoch, m->cut_at);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

/* In RING and REWINDING: REWIND, unless nobody can hear it. */
static void tx_start_rewind(struct cut_tx *m, struct cut_out *out)
{
	m->state = CUT_TX_REWINDING;
	if (m->ctl_lost && RULE(LOST_RESET))
		act(out, CUT_ACT_RESET, m->epoch, 0);
	else
		say(out, CUT_MSG_REWIND, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
}

/* In RING and closing: all consumed, so nothing can be left behind a FIN. */
static void tx_close_if_consumed(struct cut_tx *m, struct cut_out *out)
{
	if (!m->closing || m->state != CUT_TX_RING || m->credit != m->wr)
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
	m->state = CUT_TX_RING;
	if (m->fallback || m->path_dead) {
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
	if (!RULE(CROSSING) && m->state == CUT_TX_CUT_SENT) {
		out->ignored = true;
		return;
	}
	m->state = CUT_TX_RESENDING;
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
	/* FIN must wait, but the reader may know already where the end is */
	if (!m->closing)
		act(out, CUT_ACT_FINAL, m->epoch, m->wr);
	m->closing = m->final_put = true;
	if (!RULE(K_NO_FIN) && m->state == CUT_TX_CUT_SENT && !m->fin_sent) {
		m->fin_sent = true;
		act(out, CUT_ACT_FIN, m->epoch, m->wr);
	}
}

static void tx_note_fallback(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off, (void)out;
	m->fallback = RULE(STICKY_FALLBACK);
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

static void tx_fallback(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off;
	m->fallback = true;
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

typedef void tx_handler(struct cut_tx *m, uint32_t epoch, uint64_t off, struct cut_out *out);

static const struct tx_row { tx_handler *handler; unsigned to;
			     } tx_table[CUT_TX_STATES][CUT_EV_MAX] = {
#define TX(state) (1u << CUT_TX_##state)	/* of `to` */
#define CUT_TX(state, event, handler, to, doc) \
	[CUT_TX_##state][CUT_EV_##event] = { handler, to },
#include "cut/cut.def"
};

static const char *const tx_names[CUT_TX_STATES] = {
#define CUT_TX_STATE(name, doc) [CUT_TX_##name] = #name,
#include "cut/cut.def"
};

void cut_tx_init(struct cut_tx *m)
{
	*m = (struct cut_tx){ .state = CUT_TX_TCP, .epoch = 1 };
}

void cut_tx_step(struct cut_tx *m, enum cut_ev ev, uint32_t epoch, uint64_t off,
		 struct cut_out *out)
{
	const struct tx_row *row = NULL;
	uint8_t from = m->state;

	out->n = 0;
	out->ignored = out->bad = out->stray = false;
	if (cut_is_message(ev) && epoch != m->epoch) {
		if (epoch < m->epoch)
			out->ignored = true;
		else
			out->bad = true;
		return;
	}
	if (m->state < CUT_TX_STATES && (unsigned)ev < CUT_EV_MAX)
		row = &tx_table[m->state][ev];
	if (!row || !row->handler) {
		cut_no_row(ev, out);
		return;
	}
	row->handler(m, epoch, off, out);
	if (m->state != from && !(row->to >> m->state & 1)) {
		m->state = from;
		cut_stray(out);
	}
}

const char *cut_tx_state_name(unsigned s)
{
	return s < CUT_TX_STATES ? tx_names[s] : "?";
}
