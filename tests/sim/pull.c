/*
 * pull.c - a block that its reader reads by RDMA out of the sender's memory (docs/zerocopy.md): the
 * ends share no word, so that records say what the offer is, and a fence and the rewind what they
 * cannot. `offer` is the sender's word, and OFFER_OFFERED until it is settled; he holds his lock so
 * long.
 */
#include "sim.h"

#include <string.h>

enum { SAYS_OFFER = 1, SAYS_WITHDRAW };

static void say(struct world *w, int d, uint8_t what)
{
	struct pull *p = &w->d[d].pull;

	if (w->d[d].ring.dead)
		return;
	if (p->n_said == PULL_SAID) {
		world_fail(w, FAIL_RANGE);
		return;
	}
	p->said[p->n_said++] = what;
}

/* send() of a block, with an empty ring. */
void pull_offer(struct world *w, int d, int n)
{
	struct dir *x = &w->d[d];

	x->offer = OFFER_OFFERED;
	x->pull.at = (uint8_t)x->tx.wr;
	x->pull.n = (uint8_t)n;
	x->pull.asked = false;
	say(w, d, SAYS_OFFER);
}

static void settled(struct dir *x, uint64_t wr)
{
	x->offer = OFFER_NONE;
	x->tx.wr = wr;
	x->ring.wr = (uint8_t)wr;
}

/* Nobody takes it in time. */
void pull_withdraw(struct world *w, int d)
{
	w->d[d].pull.asked = true;
	say(w, d, SAYS_WITHDRAW);
	if (!ENV(PULL_WAIT))
		settled(&w->d[d], w->d[d].tx.wr);
}

/* What was on its way is lost; of a READ that is under way nobody knows yet. */
void pull_path_dies(struct world *w)
{
	for (int d = 0; d < 2; d++) {
		struct pull *p = &w->d[d].pull;

		memset(p->said, 0, sizeof(p->said));
		p->n_said = 0;
		p->answered = false;
		p->answer = 0;
		if (!w->d[d].taking)
			p->known = false;
	}
}

/* The peer is silent, or the path is dead: from here on nobody reads the block. send() lets go of
 * its lock, and stays, until FROZEN says how far the reader came. */
void pull_fence(struct world *w, int d)
{
	struct dir *x = &w->d[d];

	if (!ENV(PULL_FENCE) && !x->ring.dead) {
		settled(x, x->tx.wr);
		return;
	}
	if (!x->ring.dead)
		world_path_dies(w);
	x->pull.fenced = x->stuck = true;
}

/* Before the machine hears FROZEN(c): so much of the block was written. */
void pull_frozen(struct world *w, int d, uint64_t c)
{
	struct dir *x = &w->d[d];

	if (!x->pull.fenced)
		return;
	x->pull.fenced = x->stuck = false;
	settled(x, c > x->tx.wr && c <= (uint64_t)x->pull.at + x->pull.n && ENV(PULL_FROZEN)
			   ? c
			   : x->tx.wr);
}

static void answer(struct world *w, int d)
{
	struct pull *p = &w->d[d].pull;

	p->known = p->withdrawn = false;
	if (w->d[d].ring.dead)
		return;
	p->answered = true;
	p->answer = p->got;
}

/* The reader's end hears the next record. */
void pull_hear(struct world *w, int d)
{
	struct pull *p = &w->d[d].pull;
	uint8_t what = p->said[0];

	memmove(p->said, p->said + 1, sizeof(p->said) - 1);
	p->said[--p->n_said] = 0;
	if (what == SAYS_OFFER) {
		p->known = true;
		p->got = 0;
		world_wake(w, d, true, SLEEP_BELL);
	} else if (p->known) {
		p->withdrawn = true;
		if (!w->d[d].taking || !ENV(PULL_ANSWER))
			answer(w, d);
	}
}

/* TAKEN comes. */
void pull_taken(struct world *w, int d)
{
	struct dir *x = &w->d[d];

	x->pull.answered = false;
	if (!x->offer)
		return;
	if (x->pull.answer > x->pull.n)
		world_fail(w, FAIL_BAD);
	settled(x, (uint64_t)x->pull.at + x->pull.answer);
	x->ring.landed = x->ring.rd = x->ring.wr;
	x->pull.answer = 0;
}

/* recv(): a READ is posted. */
void pull_take(struct world *w, int d)
{
	w->d[d].taking = true;
	w->d[d].pull.fetched = false;
}

/* The sender's device answers it: with what lies there. */
void pull_fetch(struct world *w, int d)
{
	struct pull *p = &w->d[d].pull;

	p->fetched = true;
	p->stale = !w->d[d].offer;
}

/* The READ is complete, well or not. */
void pull_end(struct world *w, int d, bool well)
{
	struct dir *x = &w->d[d];
	struct pull *p = &x->pull;

	x->taking = p->fetched = false;
	if (well || !ENV(PULL_COUNT)) {
		if (well)
			app_see(w, d, (uint8_t)(world_byte(d, p->at + p->got) ^ p->stale));
		x->rx.rd++;
		p->got++;
		if (w->e[d].dead && x->tx.wr < x->rx.rd)	/* so much was written */
			x->tx.wr = x->rx.rd;
	}
	p->stale = false;
	if (!well || x->ring.dead)
		p->known = p->withdrawn = false;
	else if (p->known && (p->withdrawn || p->got == p->n))
		answer(w, d);
}

/* Its buffer is too small for the rest. */
void pull_stop(struct world *w, int d) { answer(w, d); }
