/*
 * rc.c - see rc.h. What is posted on a queue pair and what its completions say.
 */
#include "rdma/verbs/rc_int.h"

#include <time.h>

#define RESERVE     8		/* buffers at the peer that only acknowledgements may take */
/* small publications wait while so many work requests are under way */
#define COLLECT     (RC_SENDS / 2)
#define COLLECT_BELOW 8192
/* so many in a row that come faster than the peer takes them up are a flow */
#define FLOW        4
/* of a large ring: a reader that is slow tells less, but at least so often */
#define CREDIT_NS   20000000
#define TOLD_BYTES  (64 << 10)	/* one that writes so much is told of: progress is seen by it */
#define RTT_EACH    1024	/* records, and one of them is timed */
#define RTT_KEEP    8		/* times of which the shortest is taken */

bool rc_busy(const struct rc *rc) { return atomic_load_explicit(&rc->busy, memory_order_relaxed); }
bool rc_dead(const struct rc *rc) { return is_dead(rc); }

/* ---- posting; `post` held ---- */

/* The newest work request of a batch: its completion frees the batch. */
static int signalled(struct rc *rc, unsigned n)
{
	rc->unsignalled += n;
	/* Whoever collects until the next completion must get one. */
	if (rc->unsignalled < SIGNAL_EACH && rc->posted - rc->done < COLLECT)
		return 0;
	rc->unsignalled = 0;
	return IBV_SEND_SIGNALED;
}

void rc_post(struct rc *rc, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int e = errno;		/* libraries may touch it though nothing is wrong; this is a call
				 * of the program's */

	if (verbs.post_send(rc->id->qp, wr, &bad))
		rc_died(rc);
	errno = e;
	if (!rc_busy(rc)) {
		atomic_store(&rc->busy, true);
		rc->conf.busy(rc->conf.arg);
	}
}

/* ---- round-trip time, see rc.h ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	return clock_gettime(CLOCK_MONOTONIC, &t)
		       ? 0
		       : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The newest work request, a record without writes before it, is about to be posted. */
static int time_it(struct rc *rc)
{
	if (rc->sent < rc->time_next || rc->timed || under_way(rc) || rc->nreads || !rc->conf.rtt)
		return 0;
	rc->timed = rc->posted;
	rc->timed_from = now_ns();
	return IBV_SEND_SIGNALED;
}

static void timed(struct rc *rc)
{
	uint64_t ns = now_ns() - rc->timed_from;
	uint32_t rtt = ns && ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;

	if (rc->rtts % RTT_KEEP == 0) {
		rc->rtt_before = rc->rtts ? rc->rtt_now : UINT32_MAX;
		rc->rtt_now = UINT32_MAX;
	}
	rc->rtts++;
	rc->timed = 0;
	rc->time_next = rc->sent + (rc->rtts < RTT_KEEP ? rc->rtts : RTT_EACH);
	rc->rtt_now = rtt < rc->rtt_now ? rtt : rc->rtt_now;
	atomic_store_explicit(rc->conf.rtt,
			      rc->rtt_now < rc->rtt_before ? rc->rtt_now : rc->rtt_before,
			      memory_order_relaxed);
}

/* ---- records: long, and short where nothing is lost by it ---- */

static uint32_t header(const struct rc_rec *r)
{
	return r->flags & RC_SHORT ? RC_SHORT_BYTES : sizeof *r;
}

/* The peer knows the upper half of rd from what it was told before, or has 0. */
static bool near(uint64_t rd, uint64_t told) { return rd - told + (1u << 30) < 1u << 31; }

static void shorten(struct rc_rec *r)
{
	r->flags |= RC_SHORT;
	r->large = (uint32_t)r->rd;
}

static uint64_t long_rd(uint32_t low, uint64_t known)
{
	return known + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)known);
}

/* Where the bytes [from, to) lie, as a ring here or, `flat`, one after the other; and the peer's
 * ring for them. */
struct span {
	uint64_t from, to, here, there, size;
	uint32_t lkey, rkey;
	bool flat;
};

/* How many writes a span takes: the peer's ring may end in it. */
static unsigned writes(const struct span *sp)
{
	return sp->from == sp->to					      ? 0
	       : (sp->from & (sp->size - 1)) + (sp->to - sp->from) > sp->size ? 2
									      : 1;
}

/* The writes of a span and the record that tells of them, in one call. */
static void post_record(struct rc *rc, struct rc_rec *rec, const struct span *sp)
{
	struct ibv_send_wr wr[3];
	struct ibv_sge sge[3];
	uint32_t len = header(rec) + rec->len;
	unsigned n = 0;

	for (uint64_t from = sp->from, to = sp->to, left; from < to; from += left, n++) {
		uint64_t pos = from & (sp->size - 1);

		left = sp->size - pos;
		if (left > to - from)
			left = to - from;
		sge[n] = (struct ibv_sge){ sp->here + (sp->flat ? from - sp->from : pos),
					   (uint32_t)left, sp->lkey };
		wr[n] = (struct ibv_send_wr){ .wr_id = rc->posted++, .sg_list = &sge[n],
					      .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
		wr[n].wr.rdma.remote_addr = sp->there + pos;
		wr[n].wr.rdma.rkey = sp->rkey;
	}
	sge[n] = (struct ibv_sge){ (uintptr_t)rec, len, rc->mr->lkey };
	wr[n] = (struct ibv_send_wr){ .wr_id = rc->posted++, .sg_list = &sge[n], .num_sge = 1,
				      .opcode = IBV_WR_SEND };
	if (sp->to - sp->from >= TOLD_BYTES)
		rc->unsignalled = SIGNAL_EACH;
	wr[n].send_flags = (unsigned)signalled(rc, n + 1) |
			   (len <= rc->max_inline ? IBV_SEND_INLINE : 0);
	/* Of those that only acknowledge many are never acknowledged by one who sleeps. */
	if (rec->slot != RC_NO_SLOT || under_way(rc) >= RC_RECVS / 4)
		wr[n].send_flags |= IBV_SEND_SOLICITED;
	if (!n)
		wr[n].send_flags |= (unsigned)time_it(rc);
	for (unsigned i = 0; i < n; i++)
		wr[i].next = &wr[i + 1];
	rc->sent++;
	rc_post(rc, wr);
}

static void set_pending(struct rc *rc, struct rc_slot *sl, bool on)
{
	if (sl->pending != on)
		rc->npending += on ? 1 : (uint32_t)-1;
	sl->pending = on;
}

/* How many of the n bytes that are due the next record tells of. *write: they go by WRITE, else
 * within it. */
static uint64_t chunk(const struct rc *rc, const struct rc_slot *sl, uint64_t n, bool *write)
{
	/* Payload of an earlier epoch is put into the landing ring when the peer takes its
	 * record up: perhaps after a WRITE of this epoch, at the same place. Until those are
	 * known to be taken up, records are used here too. */
	bool fenced = rc->peer_acked < sl->fence;

	*write = n > RC_SMALL && !fenced;
	return *write || n <= RC_SMALL ? n : RC_SMALL;
}

static void payload(struct rc_rec *rec, const struct rc_ring *r, uint64_t from, uint64_t n)
{
	uint64_t pos = from & (r->size - 1), first = n < r->size - pos ? n : r->size - pos;

	rec->len = (uint16_t)n;
	memcpy((uint8_t *)rec + header(rec), r->buf + pos, first);
	memcpy((uint8_t *)rec + header(rec) + first, r->buf, n - first);
}

/* One record about the slot. */
static void post_chunk(struct rc *rc, uint32_t i)
{
	struct rc_slot *sl = &rc->slot[i];
	bool write;
	uint64_t n = chunk(rc, sl, sl->want_wr - sl->told_wr, &write), to = sl->told_wr + n;
	struct span sp = { write ? sl->told_wr : to, to, (uintptr_t)sl->tx.buf, sl->raddr,
			   sl->tx.size, sl->tx.mr->lkey, sl->rkey, false };
	struct rc_rec *rec = record(rc, rc->posted + writes(&sp));
	bool last = to == sl->want_wr;
	uint64_t told;

	*rec = (struct rc_rec){
		.slot = (uint16_t)i, .life = sl->life,
			.flags = sl->flow >= FLOW && n && n < COLLECT_BELOW ? RC_ASKS : 0,
				.acked = acknowledge(rc), .wr = to,
		.large = sl->large, .final = last ? sl->final : sl->final_told,
		.rd = atomic_load_explicit(&rc->a->slot[i].dir[!rc->a->me].rd,
					   memory_order_acquire),
	};
	sl->final_told = rec->final;
	told = sl->told_rd;
	sl->told_rd = rec->rd;
	if (rec->final == RING_NO_FINAL && sl->large == sl->large_told && near(rec->rd, told))
		shorten(rec);
	sl->large_told = sl->large;
	if (n && !write)
		payload(rec, &sl->tx, sl->told_wr, n);
	sl->credit = false;
	sl->owes_from = 0;
	post_record(rc, rec, &sp);
	if (n) {
		sl->last = rc->sent;
		sl->asked = rec->flags & RC_ASKS;
	}
	if (n && !write)
		sl->small = rc->sent;
	sl->told_wr = to;
}

static bool taken_up(const struct rc *rc, const struct rc_slot *sl)
{
	return rc->peer_acked >= sl->last;
}

/* The peer will say when it has taken up what there was before these n bytes. */
static bool held(const struct rc *rc, const struct rc_slot *sl, uint64_t n)
{
	return sl->asked && n < COLLECT_BELOW && !taken_up(rc, sl) && !sl->credit &&
	       !sl->pull.say && sl->final == sl->final_told;
}

/* Tells the peer all that it does not know of the slot; what cannot go now stays pending. */
static void post_slot(struct rc *rc, uint32_t i, bool collect)
{
	struct rc_slot *sl = &rc->slot[i];
	uint64_t n;

	/* the peer says that it has read what it was not told of */
	if (sl->linked && sl->want_wr - sl->told_wr > sl->tx.size) {
		rc_died(rc);
		return;
	}
	while (sl->linked && !rc_dead(rc) &&
	       ((n = sl->want_wr - sl->told_wr) || sl->credit || sl->final != sl->final_told ||
		sl->pull.say)) {
		if (room(rc) < 4 || under_way(rc) >= RC_RECVS - RESERVE || held(rc, sl, n) ||
		    (collect && n < COLLECT_BELOW && rc->posted - rc->done >= COLLECT)) {
			set_pending(rc, sl, true);
			return;
		}
		if (sl->pull.say)
			rc_pull_say(rc, i);
		else
			post_chunk(rc, i);
	}
	set_pending(rc, sl, false);
}

/* Leaves `post`. Completions bring on its way what is pending: ours to take, or, if we do
 * something else now, the background thread's, who gets the event. */
static void leave(struct rc *rc)
{
	bool waits = rc->npending > 0;

	give(&rc->post);
	if (!waits)
		return;
	/* What it waits for is mostly there already: then there need be no event, which costs
	 * two threads a system call each. */
	rc_poll(rc);
	if (rc_waits(rc)) {
		rc_arm(rc);
		rc_poll(rc);
	}
}

void rc_tell(struct rc *rc, uint32_t slot)
{
	post_slot(rc, slot, false);
	leave(rc);
}

static void flush(struct rc *rc)
{
	uint32_t n = rc->npending;

	for (uint32_t k = 0; n && k < rc->a->slots; k++) {
		uint32_t i = rc->next_pending;

		if (rc->slot[i].pending) {
			post_slot(rc, i, false);
			if (rc->slot[i].pending &&
			    !held(rc, &rc->slot[i], rc->slot[i].want_wr - rc->slot[i].told_wr))
				return;
			n--;
		}
		rc->next_pending = (i + 1) % rc->a->slots;
	}
}

void rc_post_bare(struct rc *rc, struct rc_rec *rec)
{
	post_record(rc, rec, &(struct span){ 0 });
}

/* Only `acked`. */
void rc_post_acked(struct rc *rc)
{
	struct rc_rec *rec = record(rc, rc->posted);

	*rec = (struct rc_rec){ .slot = RC_NO_SLOT, .flags = RC_SHORT, .acked = acknowledge(rc) };
	rc_post_bare(rc, rec);
}

/* The peer runs out of our buffers while we have nothing to say, or waits for just that. */
static void acknowledge_if_due(struct rc *rc)
{
	uint32_t untold = atomic_load_explicit(&rc->taken, memory_order_relaxed) - rc->told_acked;

	if (!untold || (untold < RC_RECVS / 4 && !atomic_load(&rc->owes)) || room(rc) < 1 ||
	    under_way(rc) >= RC_RECVS || rc_dead(rc))
		return;
	rc_post_acked(rc);
}

/* What an earlier epoch left untold went by TCP. */
void rc_look_at_epoch(struct rc_slot *sl, struct ring_shared *sh)
{
	uint64_t epoch = atomic_load_explicit(&sh->epoch, memory_order_relaxed);

	if (epoch == sl->epoch)
		return;
	sl->epoch = epoch;
	sl->told_wr = sl->want_wr = atomic_load_explicit(&sh->cut, memory_order_relaxed);
	sl->final_told = RING_NO_FINAL;
	sl->fence = sl->small;
}

bool rc_device_publish(struct rc *rc, uint32_t slot, uint64_t addr, uint32_t key, uint64_t n,
		       uint64_t *ret_seq)
{
	struct ring_shared *sh = &rc->a->slot[slot].dir[rc->a->me];
	uint64_t wr = atomic_load_explicit(&sh->wr, memory_order_relaxed);
	struct rc_slot *sl = &rc->slot[slot];
	struct span sp;
	struct rc_rec *rec;
	bool ok;

	take(&rc->post);
	if (sl->linked)
		rc_look_at_epoch(sl, sh);
	/* All that comes before was told, so that the record's bytes begin where they should. */
	ok = sl->linked && sl->dev_tx && n <= sl->dev_tx && !rc_dead(rc) && !sl->pending &&
	     sl->told_wr == wr && sl->want_wr == wr && room(rc) >= 4 &&
	     under_way(rc) < RC_RECVS - RESERVE;
	if (ok) {
		sp = (struct span){ wr, wr + n, addr, sl->dev_raddr, sl->dev_tx, key, sl->dev_rkey,
				    true };
		rec = record(rc, rc->posted + writes(&sp));
		*rec = (struct rc_rec){ .slot = (uint16_t)slot, .life = sl->life,
					.flags = RC_DEVICE, .acked = acknowledge(rc), .wr = wr + n,
			.large = sl->large, .final = sl->final_told,
			.rd = atomic_load_explicit(&rc->a->slot[slot].dir[!rc->a->me].rd,
						   memory_order_acquire) };
		sl->credit = false;
		sl->owes_from = 0;
		sl->told_rd = rec->rd;
		sl->large_told = sl->large;
		rc->unsignalled = SIGNAL_EACH;
		post_record(rc, rec, &sp);
		*ret_seq = rc->posted;
		sl->last = rc->sent;
		sl->asked = false;
		sl->want_wr = sl->told_wr = wr + n;
	}
	leave(rc);
	return ok;
}

void rc_publish(struct rc *rc, uint32_t slot)
{
	struct ring_shared *sh = &rc->a->slot[slot].dir[rc->a->me];
	struct rc_slot *sl = &rc->slot[slot];
	uint64_t final = atomic_load_explicit(&sh->final, memory_order_relaxed);

	take(&rc->post);
	rc_look_at_epoch(sl, sh);
	sl->want_wr = atomic_load_explicit(&sh->wr, memory_order_relaxed);
	sl->final = final;
	if (taken_up(rc, sl) && !sl->pending)
		sl->flow = 0;
	else
		sl->flow += sl->flow < FLOW;
	post_slot(rc, slot, true);
	leave(rc);
}

/* n bytes are consumed and not told, less than what is told of at once. Somebody who finds his
 * ring full looks at whether that moves. */
static bool owes_long(const struct rc *rc, struct rc_slot *sl, uint64_t n)
{
	uint64_t now;

	if (n < rc->a->ring_size / 4)
		return false;
	now = now_ns();
	if (!sl->owes_from)
		sl->owes_from = now;
	return now - sl->owes_from >= CREDIT_NS;
}

void rc_credit(struct rc *rc, uint32_t slot)
{
	struct ring_shared *sh = &rc->a->slot[slot].dir[!rc->a->me];
	struct rc_slot *sl = &rc->slot[slot];
	uint64_t rd, dev;

	atomic_thread_fence(memory_order_seq_cst);	/* rd before final; got_record() has it
							 * the other way round */
	rd = atomic_load_explicit(&sh->rd, memory_order_relaxed);
	dev = atomic_load_explicit(&sh->dev_hi, memory_order_relaxed);
	take(&rc->post);
	if (rd > sl->told_rd &&
	    (rd - sl->told_rd >= rc_credit_step(sl->rx.size, rc->a->ring_size) ||
	     owes_long(rc, sl, rd - sl->told_rd) || (dev > sl->told_rd && dev <= rd) ||
	     atomic_load_explicit(&sh->final, memory_order_relaxed) != RING_NO_FINAL)) {
		sl->credit = true;
		post_slot(rc, slot, false);
	}
	leave(rc);
}

/* ---- completions; `poll` held ---- */

/* Something of the slot changed here: what segment_notify() does on one host, for the other end. */
static uint64_t changed(struct rc *rc, uint32_t slot)
{
	struct segment view = *rc->a;

	view.me = !rc->a->me;
	return segment_notify(&view, slot);
}

/* The payload into the landing ring; where is up to the peer, that it is in the ring is up to
 * us. */
static void land(const struct rc_ring *to, const struct rc_rec *r)
{
	uint64_t pos = (r->wr - r->len) & (to->size - 1),
		 first = r->len < to->size - pos ? r->len : to->size - pos;

	memcpy(to->buf + pos, (const uint8_t *)r + header(r), first);
	memcpy(to->buf, (const uint8_t *)r + header(r) + first, r->len - first);
}

/* What comes from here on lies in the large landing ring; all that was told of before in the
 * small one. */
static bool got_large(struct rc *rc, struct rc_slot *sl, struct ring_shared *in, uint32_t size)
{
	if (sl->large_got || size <= rc->a->ring_size || size & (size - 1) ||
	    size > sl->large_rx.size)
		return false;
	sl->large_got = size;
	take(&rc->post);		/* who gives credit looks at the size */
	sl->rx = (struct rc_ring){ sl->large_rx.buf, size, sl->large_rx.mr };
	give(&rc->post);
	atomic_store_explicit(&in->large_from, atomic_load_explicit(&in->wr, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&in->large, size, memory_order_release);
	return true;
}

/* What was not told of before lies in the ring of device memory. A run that is not the last
 * one's continuation is a new one: then that one is consumed, or went by TCP. */
static bool got_device(const struct rc_slot *sl, struct ring_shared *in, const struct rc_rec *r)
{
	uint64_t from = atomic_load_explicit(&in->wr, memory_order_relaxed);

	if (!sl->dev_rx || r->len)
		return false;
	if (r->wr <= from)
		return true;
	if (atomic_load_explicit(&in->dev_hi, memory_order_relaxed) != from)
		atomic_store_explicit(&in->dev_lo, from, memory_order_relaxed);
	atomic_store_explicit(&in->dev_hi, r->wr, memory_order_release);
	return true;
}

/* False: the peer does not keep to the rules. */
static bool got_slot(struct rc *rc, const struct rc_rec *r)
{
	struct segment_slot *as = &rc->a->slot[r->slot];
	struct ring_shared *in = &as->dir[!rc->a->me], *out = &as->dir[rc->a->me];
	struct rc_slot *sl = &rc->slot[r->slot];
	bool whole = !(r->flags & RC_SHORT);
	uint64_t bells, known = atomic_load_explicit(&out->rd, memory_order_relaxed);
	uint64_t rd = whole ? r->rd : long_rd(r->large, known),
		 final = whole ? r->final : RING_NO_FINAL;

	if (!sl->bound || sl->life != r->life)
		return true;		/* late: for an earlier stream of the slot */
	if (whole && r->large != sl->large_got && !got_large(rc, sl, in, r->large))
		return false;
	if (r->flags & RC_DEVICE && !got_device(sl, in, r))
		return false;
	sl->pull.heard++;
	if (r->flags & RC_WORDS) {
		if (!whole || !rc_pull_word(rc, r, r + 1))
			return false;
	} else if (r->len) {
		land(&sl->rx, r);
	}
	if (r->wr > atomic_load_explicit(&in->wr, memory_order_relaxed))
		atomic_store_explicit(&in->wr, r->wr, memory_order_release);
	if (rd > known)
		atomic_store_explicit(&out->rd, rd, memory_order_release);
	if (final != RING_NO_FINAL &&
	    final != atomic_load_explicit(&in->final, memory_order_relaxed)) {
		atomic_store_explicit(&in->final, final, memory_order_release);
		rc_credit(rc, r->slot);		/* from now on the sender waits for every byte */
	}
	bells = changed(rc, r->slot);
	if (bells)
		rc->conf.ring(rc->conf.arg, bells);
	return true;
}

static bool got_record(struct rc *rc, const struct rc_rec *r, uint32_t len)
{
	uint32_t more;
	bool ok;

	if (len < RC_SHORT_BYTES || len != header(r) + r->len || len > RC_REC_MAX ||
	    (r->slot != RC_NO_SLOT && r->slot >= rc->a->slots))
		return false;
	take(&rc->post);
	more = r->acked - (uint32_t)rc->peer_acked;
	ok = more <= under_way(rc);
	rc->peer_acked += ok ? more : 0;
	give(&rc->post);
	return ok && (r->slot == RC_NO_SLOT || got_slot(rc, r));
}

/* Receives of one look at the queue. */
struct batch {
	uint32_t buffer[RC_BATCH];
	unsigned n;
	bool asked;
};

static bool received(struct rc *rc, uint32_t i, uint32_t len, struct batch *b)
{
	struct rc_rec copy[RC_REC_MAX / sizeof(struct rc_rec) + 1];

	/* A copy: nothing that was checked may change afterwards, should the device be told to. */
	memcpy(copy, rc->mem + (size_t)(RC_SENDS + i) * RC_REC_MAX,
	       len <= RC_REC_MAX ? len : RC_REC_MAX);
	if (!got_record(rc, copy, len))
		return false;
	b->buffer[b->n++] = i;
	b->asked |= copy->flags & RC_ASKS;
	return true;
}

/* Any thread tells the peer what is counted. So records are counted when their buffers are the
 * device's again, else the peer's next may find none (RNR, and on iWARP the end), and when their
 * payload lies in the rings, else a WRITE of the peer's next epoch may come before it. */
static bool give_back(struct rc *rc, const struct batch *b)
{
	if (b->n && rc_post_recvs(rc, b->buffer, b->n))
		return false;
	atomic_fetch_add(&rc->taken, b->n);
	if (b->asked)
		atomic_store(&rc->owes, true);
	return true;
}

static bool completion(struct rc *rc, const struct ibv_wc *wc, struct batch *b)
{
	uint32_t slots[RC_READS], n;
	uint64_t bells;

	if (wc->status != IBV_WC_SUCCESS)
		return false;
	if (wc->wr_id & RECV_ID)
		return received(rc, (uint32_t)wc->wr_id, wc->byte_len, b);
	take(&rc->post);
	if (wc->wr_id + 1 > rc->done)
		__atomic_store_n(&rc->done, wc->wr_id + 1, __ATOMIC_RELEASE);
	if (rc->timed && rc->done >= rc->timed)
		timed(rc);
	n = rc->nreads ? rc_pull_completed(rc, slots) : 0;
	give(&rc->post);
	for (uint32_t i = 0; i < n; i++) {
		bells = changed(rc, slots[i]);
		if (bells)
			rc->conf.ring(rc->conf.arg, bells);
	}
	return true;
}

static bool completions(struct rc *rc, const struct ibv_wc *wc, int n)
{
	struct batch b = { .n = 0 };

	for (int i = 0; i < n; i++)
		if (!completion(rc, &wc[i], &b))
			return false;
	return give_back(rc, &b);
}

/* For every completion. */
static bool requested(const struct rc *rc)
{
	return atomic_load(&rc->armed_all) == atomic_load(&rc->events) + 1;
}

static bool poll_once(struct rc *rc)
{
	struct ibv_wc wc[RC_BATCH];
	bool any = false, waits;
	int n, e = errno;	/* as in post() */

	do {
		n = verbs.poll_cq(rc->cq, RC_BATCH, wc);
		rc->polls++;
		rc->completions += n > 0 ? (uint64_t)n : 0;
		if (!completions(rc, wc, n)) {
			rc_died(rc);
			errno = e;
			return any;
		}
		any |= n > 0;
	} while (n == RC_BATCH);
	errno = e;
	if (n < 0)
		rc_died(rc);
	if (any) {
		take(&rc->post);
		if (rc->npending)
			flush(rc);
		acknowledge_if_due(rc);
		waits = rc->npending > 0;
		give(&rc->post);
		/* An event that only a sleeper of his own would hear is not enough: he may
		 * leave. */
		if (waits && (!requested(rc) || !atomic_load(&rc->watched))) {
			rc_arm(rc);
			atomic_store(&rc->again, 1);
		}
	}
	return any;
}

bool rc_poll(struct rc *rc)
{
	bool any = false;

	if (rc_dead(rc))
		return false;
	do {
		if (!try(&rc->poll)) {
			atomic_store(&rc->again, 1);	/* he looks again after us, so that
							 * nothing is left between */
			if (!try(&rc->poll))
				return any;
		}
		atomic_store(&rc->again, 0);
		any |= poll_once(rc);
		give(&rc->poll);
	} while (atomic_load(&rc->again) && !rc_dead(rc));
	return any;
}
