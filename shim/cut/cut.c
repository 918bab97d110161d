/*
 * cut.c - the cut/rewind machine of cut.h. Owns the meaning of every state, event and message;
 * the transitions are the rows of cut.def, each with a handler in cut_tx.c or cut_rx.c. Here is
 * what belongs to neither half.
 *
 * Called by whoever holds the lock of the direction (or, for tests, by one thread). Takes no
 * lock, calls nothing. Because the lock is held, no thread is inside a kernel send, a ring
 * write or the copy of a recv on this direction while a handler runs; several rules of the
 * protocol lean on that (S = wr is exact, C = rd is exact).
 *
 * Values that come from the peer are compared with what is possible before anything changes:
 * a breach sets out.bad and leaves the machine as it was.
 */
#include "cut/cut_int.h"

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

bool cut_is_message(enum cut_ev ev)
{
	return (unsigned)ev < CUT_EV_MAX && events[ev].is_message;
}

/* An event without a row: a message is a breach, anything else means nothing here. */
void cut_no_row(enum cut_ev ev, struct cut_out *out)
{
	if (!cut_is_message(ev))
		out->ignored = true;
	else
		out->bad = true;
}

/* A handler has gone where its row does not lead: this machine is wrong, not the peer. */
void cut_stray(struct cut_out *out)
{
	out->n = 0;
	out->ignored = false;
	out->bad = out->stray = true;
}

const char *cut_ev_name(unsigned e)
{
	return e < CUT_EV_MAX && events[e].name ? events[e].name : "?";
}

const char *cut_msg_name(unsigned m)
{
	return m < sizeof(messages) / sizeof(messages[0]) && messages[m] ? messages[m] : "?";
}
