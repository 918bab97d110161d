/*
 * rc_pull.c - blocks that the receiver reads by RDMA READ out of the sender's memory: the words by
 * which the ends agree (docs/zerocopy.md), and the READs. What is sent when is up to rc.c, which
 * calls this for a word to say, or one that has come.
 *
 * A word is a record whose payload is not the stream's, but a struct word:
 *
 *   OFFER      sender    where the next bytes lie; they begin at the record's wr
 *   WITHDRAW   sender    nobody begins with it any more
 *   TAKEN      receiver  it is over: so many bytes were read, and rd is behind them
 *
 * Here, `offer` of a ring's header says how far it is, as on one host (ring.h): of a direction that
 * is sent OFFERED until TAKEN has come; of one that is received OFFERED while it may be begun,
 * TAKING while it is read. All else of it is kept in the slot, which the peer cannot write to.
 *
 * Locks: `post`; a word that comes is heard with `poll` held.
 */
#include "rdma/verbs/rc_int.h"

enum { SAY_OFFER = 1, SAY_WITHDRAW = 2, SAY_TAKEN = 4 };

struct word {
	uint64_t addr, len;
	uint32_t key, epoch, serial, pad;
};

static struct ring_shared *tx_of(struct rc *rc, uint32_t slot)
{
	return &rc->a->slot[slot].dir[rc->a->me];
}

static struct ring_shared *rx_of(struct rc *rc, uint32_t slot)
{
	return &rc->a->slot[slot].dir[!rc->a->me];
}

static void post_word(struct rc *rc, uint32_t i, unsigned flag, const struct pull_offer *o,
		      uint64_t len)
{
	struct rc_slot *sl = &rc->slot[i];
	struct rc_rec *rec = record(rc, rc->posted);
	struct word w = { o->addr, len, o->key, o->epoch, o->serial, 0 };

	*rec = (struct rc_rec){ .slot = (uint16_t)i, .life = sl->life, .len = sizeof w,
				.flags = (uint16_t)flag, .acked = acknowledge(rc),
		.wr = sl->told_wr, .large = sl->large, .final = sl->final_told,
		.rd = atomic_load_explicit(&rc->a->slot[i].dir[!rc->a->me].rd,
					   memory_order_acquire) };
	memcpy(rec + 1, &w, sizeof w);
	sl->credit = false;
	sl->owes_from = 0;
	sl->told_rd = rec->rd;
	sl->large_told = sl->large;
	rc_post_bare(rc, rec);
	sl->last = rc->sent;
	sl->asked = false;
}

void rc_pull_say(struct rc *rc, uint32_t slot)
{
	struct rc_pull *p = &rc->slot[slot].pull;
	uint8_t next = p->say & -p->say;

	p->say &= (uint8_t)~next;
	if (next == SAY_OFFER)
		post_word(rc, slot, RC_OFFER, &p->out, p->out.len);
	else if (next == SAY_WITHDRAW)
		post_word(rc, slot, RC_WITHDRAW, &p->out, 0);
	else
		post_word(rc, slot, RC_TAKEN, &p->in, p->in.got);
}

/* ---- the sender's half ---- */

bool rc_pull_offer(struct rc *rc, uint32_t slot, struct pull_offer *o)
{
	struct rc_slot *sl = &rc->slot[slot];
	struct rc_pull *p = &sl->pull;
	uint64_t wr = atomic_load_explicit(&tx_of(rc, slot)->wr, memory_order_relaxed);
	bool ok;

	take(&rc->post);
	if (sl->linked)
		rc_look_at_epoch(sl, tx_of(rc, slot));
	ok = sl->linked && !is_dead(rc) && !p->open && !p->say && !sl->pending &&
	     sl->told_wr == wr && sl->want_wr == wr;
	if (ok) {
		o->at = wr;
		o->got = 0;
		o->serial = p->out.serial + 1;
		p->out = *o;
		p->open = true;
		p->answered = false;
		atomic_store_explicit(&tx_of(rc, slot)->offer, RING_OFFERED, memory_order_release);
		p->say |= SAY_OFFER;
	}
	rc_tell(rc, slot);
	return ok;
}

void rc_pull_withdraw(struct rc *rc, uint32_t slot)
{
	take(&rc->post);
	if (rc->slot[slot].pull.open)
		rc->slot[slot].pull.say |= SAY_WITHDRAW;
	rc_tell(rc, slot);
}

void rc_pull_settled(struct rc *rc, uint32_t slot, uint64_t wr)
{
	struct rc_slot *sl = &rc->slot[slot];

	take(&rc->post);
	if (sl->pull.open && !sl->pull.answered)
		sl->pull.late = sl->pull.out.serial;
	sl->pull.open = false;
	sl->pull.say &= SAY_TAKEN;
	if (sl->linked)
		sl->told_wr = sl->want_wr = wr;
	give(&rc->post);
}

uint32_t rc_pull_heard(const struct rc *rc, uint32_t slot)
{
	return __atomic_load_n(&rc->slot[slot].pull.heard, __ATOMIC_RELAXED);
}

/* ---- the receiver's half ---- */

/* The block is over. `post` held */
static void answer(struct rc *rc, uint32_t slot)
{
	struct rc_pull *p = &rc->slot[slot].pull;
	struct ring_shared *in = rx_of(rc, slot);
	uint64_t to = p->in.at + p->in.got;

	p->known = p->taking = p->withdrawn = false;
	/* Of one that nobody began with what comes before it may not be consumed. */
	if (p->in.got) {
		atomic_store_explicit(&in->wr, to, memory_order_release);
		atomic_store_explicit(&in->rd, to, memory_order_release);
	}
	atomic_store_explicit(&in->offer, RING_OFFER_NONE, memory_order_release);
	p->say |= SAY_TAKEN;
}

bool rc_pull_begin(struct rc *rc, uint32_t slot, uint32_t epoch, uint64_t rd,
		   struct pull_offer *ret)
{
	struct rc_pull *p = &rc->slot[slot].pull;
	bool ok;

	take(&rc->post);
	if (p->known && p->in.epoch != epoch && !p->taking) {	/* of a cut that is over */
		p->known = false;
		atomic_store(&rx_of(rc, slot)->offer, RING_OFFER_NONE);
	}
	ok = p->known && !p->taking && p->in.epoch == epoch && p->in.at + p->in.got == rd;
	if (ok) {
		p->taking = true;
		*ret = p->in;
		atomic_store(&rx_of(rc, slot)->offer, RING_TAKING);
	}
	give(&rc->post);
	return ok;
}

void rc_pull_end(struct rc *rc, uint32_t slot, uint32_t serial, uint64_t n, bool stop)
{
	struct rc_pull *p = &rc->slot[slot].pull;

	take(&rc->post);
	if (p->known && p->taking && p->in.serial == serial) {
		p->taking = false;
		p->in.got += n;
		if (stop || p->withdrawn || p->in.got == p->in.len)
			answer(rc, slot);
		else
			atomic_store(&rx_of(rc, slot)->offer, RING_OFFERED);
	}
	rc_tell(rc, slot);
}

void rc_pull_frozen(struct rc *rc, uint32_t slot, uint32_t epoch)
{
	struct rc_pull *p = &rc->slot[slot].pull;

	take(&rc->post);
	p->known = p->taking = p->withdrawn = false;
	p->say &= (uint8_t)~SAY_TAKEN;
	p->floor = epoch + 1;
	atomic_store(&rx_of(rc, slot)->offer, RING_OFFER_NONE);
	give(&rc->post);
}

void rc_pull_alive(struct rc *rc, uint32_t slot)
{
	take(&rc->post);
	rc->slot[slot].credit = true;
	rc_tell(rc, slot);
}

/* ---- READs ---- */

void rc_pull_reads(struct rc *rc, uint8_t most)
{
	rc->reads_most = rc->iwarp ? 0 : most < RC_READS ? most : RC_READS;
}

bool rc_pull_can(const struct rc *rc) { return rc->reads_most > 0 && !is_dead(rc); }

int rc_pull_read(struct rc *rc, uint32_t slot, const struct pull_piece *x, uint64_t *ret_seq)
{
	struct ibv_sge sge = { x->to, x->n, x->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ };
	int r = -EAGAIN;
	bool last;

	wr.wr.rdma.remote_addr = x->from;
	wr.wr.rdma.rkey = x->rkey;
	take(&rc->post);
	if (is_dead(rc)) {
		r = -ENETDOWN;
	} else if (rc->nreads < rc->reads_most && room(rc) > RC_READS) {
		/* perhaps the next one cannot be posted */
		last = x->last || rc->nreads + 1u == rc->reads_most || room(rc) == RC_READS + 1;
		wr.send_flags = last ? IBV_SEND_SIGNALED : 0;
		wr.wr_id = rc->posted++;
		rc->unsignalled = last ? 0 : rc->unsignalled + 1;
		rc->read[rc->nreads] = (struct rc_read){ rc->posted, slot, last };
		__atomic_store_n(&rc->nreads, rc->nreads + 1, __ATOMIC_RELAXED);
		*ret_seq = rc->posted;
		rc_post(rc, &wr);
		r = 0;
	}
	give(&rc->post);
	return r;
}

int rc_pull_done(const struct rc *rc, uint64_t seq)
{
	if (__atomic_load_n(&rc->done, __ATOMIC_ACQUIRE) >= seq)
		return 1;
	return is_dead(rc) ? -ENETDOWN : 0;
}

uint32_t rc_pull_completed(struct rc *rc, uint32_t *slots)
{
	uint32_t left = 0, n = 0;

	for (uint32_t i = 0; i < rc->nreads; i++) {
		if (rc->read[i].seq > rc->done)
			rc->read[left++] = rc->read[i];
		else if (rc->read[i].last)
			slots[n++] = rc->read[i].slot;
	}
	__atomic_store_n(&rc->nreads, left, __ATOMIC_RELAXED);
	return n;
}

/* ---- what comes ---- */

static bool got_offer(struct rc *rc, const struct rc_rec *r, const struct word *w)
{
	struct rc_pull *p = &rc->slot[r->slot].pull;
	struct ring_shared *in = rx_of(rc, r->slot);

	if (w->serial != p->in.serial + 1 || (p->known && p->in.epoch == w->epoch) || !w->len ||
	    w->len > RC_PULL_MOST || w->addr + w->len < w->addr || r->wr + w->len < r->wr ||
	    r->wr < atomic_load_explicit(&in->wr, memory_order_relaxed))
		return false;
	p->in = (struct pull_offer){ r->wr, w->addr, w->len, 0, w->key, w->epoch, w->serial };
	p->known = w->epoch >= p->floor;
	p->taking = p->withdrawn = false;
	if (p->known)
		atomic_store_explicit(&in->offer, RING_OFFERED, memory_order_release);
	return true;
}

static bool got_withdraw(struct rc *rc, const struct rc_rec *r, const struct word *w)
{
	struct rc_pull *p = &rc->slot[r->slot].pull;

	if (w->serial != p->in.serial)
		return false;
	if (p->known && p->taking)
		p->withdrawn = true;
	else if (p->known)
		answer(rc, r->slot);
	return true;
}

static bool got_taken(struct rc *rc, const struct rc_rec *r, const struct word *w)
{
	struct rc_pull *p = &rc->slot[r->slot].pull;
	struct ring_shared *out = tx_of(rc, r->slot);

	if (w->serial && w->serial == p->late) {	/* FROZEN has settled it */
		p->late = 0;
		return true;
	}
	if (!p->open || w->serial != p->out.serial || p->answered || w->len > p->out.len)
		return false;
	p->answered = true;
	atomic_store_explicit(&out->offer_read_n, w->len, memory_order_relaxed);
	atomic_store_explicit(&out->offer, w->len ? RING_TAKEN : RING_DECLINED,
			      memory_order_release);
	return true;
}

bool rc_pull_word(struct rc *rc, const struct rc_rec *r, const void *payload)
{
	struct word w;
	bool ok;

	if (r->len != sizeof w || !rc->reads_most)
		return false;
	memcpy(&w, payload, sizeof w);
	take(&rc->post);
	switch (r->flags & RC_WORDS) {
	case RC_OFFER: ok = got_offer(rc, r, &w); break;
	case RC_WITHDRAW: ok = got_withdraw(rc, r, &w); break;
	case RC_TAKEN: ok = got_taken(rc, r, &w); break;
	default: ok = false;
	}
	rc_tell(rc, r->slot);
	return ok;
}
