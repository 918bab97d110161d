/*
 * cut_rx.c - the receiver half of the cut/rewind machine: a handler for each row of cut.def. See
 * cut.c for what holds in both halves.
 */
#include "cut/cut_int.h"

#include <stddef.h>

static void rx_to_tcp(struct cut_rx *m, uint32_t epoch, struct cut_out *out)
{
	if (m->state == CUT_RX_RING || m->state == CUT_RX_FROZEN)
		act(out, CUT_ACT_DROP_RING, m->epoch, 0);
	m->state = CUT_RX_TCP;
	m->epoch = epoch;
	m->fallback = false;
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
	m->state = CUT_RX_ARMED;
	say(out, CUT_MSG_ARMED, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
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
	m->fallback = true;
	/* The sender is through with this epoch, dead, or has reset the connection: nobody would
	 * answer FROZEN, and what is left in the ring stays readable here. */
	if (m->back_pending || (m->state == CUT_RX_RING && m->eof &&
				(RULE(EOF_STAYS) || m->ctl_lost))) {
		out->ignored = true;
		return;
	}
	if (m->ctl_lost) {
		/* Armed: all is on TCP, there is nothing to go back from. */
		if (m->state == CUT_RX_ARMED)
			rx_to_tcp(m, m->epoch + 1, out);
		else
			act(out, CUT_ACT_RESET, m->epoch, 0);
		return;
	}
	m->was_cut = m->state == CUT_RX_RING;
	if (m->was_cut)
		m->delta += max64(m->rd, m->cut_at) - m->cut_at;
	m->state = CUT_RX_FROZEN;
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
	__atomic_store_n(&m->state, CUT_RX_RING, __ATOMIC_RELEASE);
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
	else
		rx_say_frozen(m, out);
}

static void rx_back_frozen(struct cut_rx *m, uint32_t epoch, uint64_t e, struct cut_out *out)
{
	/* Frozen while armed, C may be beyond E: the sender had disarmed and gone on in TCP, and
	 * its BACK was still on its way. */
	if (m->was_cut && epoch == m->epoch - 1 && e < max64(m->frozen_at, m->cut_at))
		out->bad = true;
	else
		rx_to_tcp(m, epoch + 1, out);
}

static void rx_note_fallback(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out)
{
	(void)epoch, (void)off, (void)out;
	m->fallback = true;
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
		/* The sender fell back by itself (FIN) or never cut: all is on TCP, so an exec
		 * need not wait for a BACK that cannot come. With a tail the ring is still
		 * needed. */
		if (!m->tail)
			rx_to_tcp(m, m->epoch, out);
		return;
	}
	act(out, CUT_ACT_RESET, m->epoch, 0);
	act(out, CUT_ACT_WAKE, m->epoch, 0);
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

typedef void rx_handler(struct cut_rx *m, uint32_t epoch, uint64_t off, struct cut_out *out);

static const struct rx_row { rx_handler *handler; unsigned to;
			     } rx_table[CUT_RX_STATES][CUT_EV_MAX] = {
#define RX(state) (1u << CUT_RX_##state)	/* of `to` */
#define CUT_RX(state, event, handler, to, doc) \
	[CUT_RX_##state][CUT_EV_##event] = { handler, to },
#include "cut/cut.def"
};

static const char *const rx_names[CUT_RX_STATES] = {
#define CUT_RX_STATE(name, doc) [CUT_RX_##name] = #name,
#include "cut/cut.def"
};

void cut_rx_init(struct cut_rx *m)
{
	*m = (struct cut_rx){ .state = CUT_RX_TCP, .epoch = 1 };
}

void cut_rx_step(struct cut_rx *m, enum cut_ev ev, uint32_t epoch, uint64_t off,
		 struct cut_out *out)
{
	const struct rx_row *row = NULL;
	uint8_t from = m->state;

	out->n = 0;
	out->ignored = out->bad = out->stray = false;
	if (cut_is_message(ev)) {
		uint32_t oldest = m->state == CUT_RX_FROZEN ? m->epoch - 1 : m->epoch;

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
		cut_no_row(ev, out);
		return;
	}
	row->handler(m, epoch, off, out);
	if (m->state != from && !(row->to >> m->state & 1)) {
		m->state = from;
		cut_stray(out);
	}
}

const char *cut_rx_state_name(unsigned s)
{
	return s < CUT_RX_STATES ? rx_names[s] : "?";
}
