/*
 * cut_int.h - what the two halves of the cut/rewind machine share: cut_tx.c and cut_rx.c alone
 * include it. The caller holds the lock of the direction, as for cut.h.
 */
#ifndef RDMASHIM_CUT_INT_H
#define RDMASHIM_CUT_INT_H

#include "cut/cut.h"

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

static inline uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline void act(struct cut_out *out, enum cut_act kind, uint32_t epoch, uint64_t off)
{
	if (out->n < CUT_ACT_MAX)
		out->act[out->n++] = (struct cut_action){ .kind = kind, .epoch = epoch,
							  .off = off };
}

static inline void say(struct cut_out *out, enum cut_msg msg, uint32_t epoch, uint64_t off)
{
	if (out->n < CUT_ACT_MAX)
		out->act[out->n++] = (struct cut_action){
			.kind = CUT_ACT_SEND, .msg = msg, .epoch = epoch, .off = off };
}

/* ---- cut.c ---- */
bool cut_is_message(enum cut_ev ev);	/* it comes from the peer, with an epoch */
/* An event without a row: a message is a breach, anything else means nothing here. */
void cut_no_row(enum cut_ev ev, struct cut_out *out);
/* May the row lead there? The names of states are single letters. */
/* A handler has gone where its row does not lead: this machine is wrong, not the peer. */
void cut_stray(struct cut_out *out);

#endif
