/*
 * late.c - see late.h.
 */
#include "conn/late.h"

static uint64_t most(struct late_bounds b) { return b.most > b.least ? b.most : b.least; }

static uint64_t within(struct late_bounds b, uint64_t us)
{
	if (us < b.least)
		return b.least;
	return us < most(b) ? us : most(b);
}

uint64_t late_limit(const struct late *p, struct late_bounds b) { return within(b, p->limit); }

enum late_verdict late_judge(const struct late *p, struct late_bounds b, uint64_t waited,
			     bool peer_waits)
{
	if (waited < b.least)
		return LATE_WAIT;
	if (peer_waits)
		return LATE_BOTH;
	return waited >= late_limit(p, b) ? LATE_NOBODY : LATE_WAIT;
}

bool late_spared(struct late_bounds b, uint64_t now, uint64_t since, uint64_t starved)
{
	return now - since < most(b) && now - starved < b.least;
}

bool late_back(struct late *p, struct late_bounds b, uint64_t waited)
{
	uint64_t before = late_limit(p, b);

	if (waited < b.least || before == b.least)
		return false;
	p->limit = within(b, 2 * before);
	p->proven = true;
	p->rare = 0;
	return p->limit != before;
}

bool late_fallback(struct late *p, struct late_bounds b, enum late_verdict v)
{
	uint64_t before = late_limit(p, b);

	if (v != LATE_NOBODY)	/* it says nothing of the reader */
		return false;
	if (before > b.least && p->proven) {
		p->limit = within(b, before / 2);
	} else if (before > b.least) {
		p->limit = b.least;
		p->rare += p->rare < LATE_RARE;
		p->lost = 0;
	} else if (++p->lost >= 1u << p->rare) {
		p->limit = within(b, LATE_TRIAL * b.least);
		p->lost = 0;
	}
	p->proven = false;
	return late_limit(p, b) != before;
}
