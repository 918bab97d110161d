/*
 * rc_pulls.h - a part of test_rc.c: blocks that are read out of the sender's memory (rc_pull.c),
 * and what a peer may not say of them.
 */
static uint8_t block[40000], into[40000];

static void may_pull(void)
{
	rc_pull_reads(end[0].rc, 16);
	rc_pull_reads(end[1].rc, 16);
}

static struct ring_shared *sent_by(unsigned s, uint32_t slot) { return dir[slot][s].tx.sh; }
static struct ring_shared *at_reader(unsigned s, uint32_t slot) { return dir[slot][s].rx.sh; }

/* Side s offers n bytes of the block. */
static struct pull_mem offer(uint32_t slot, unsigned s, uint64_t n, uint32_t epoch)
{
	struct pull_offer o = { .addr = (uintptr_t)block, .len = n, .epoch = epoch };
	struct pull_mem m;

	for (uint64_t i = 0; i < n; i++)
		block[i] = pattern(slot, s, dir[slot][s].tx.wr + i);
	errno = 7;
	ck_assert_int_eq(rc_pull_reg(end[s].rc, o.addr, n, false, &m), 0);
	o.key = m.rkey;
	ck_assert(rc_pull_offer(end[s].rc, slot, &o));
	ck_assert_int_eq(errno, 7);
	ck_assert_uint_eq(o.at, dir[slot][s].tx.wr);
	settle();
	return m;
}

/* The sender counts what was taken: TAKEN must have come. */
static uint64_t settled(uint32_t slot, unsigned s, struct pull_mem *m)
{
	struct ring_tx *r = &dir[slot][s].tx;
	uint32_t st = atomic_load(&r->sh->offer);
	uint64_t n = st == RING_TAKEN ? atomic_load(&r->sh->offer_read_n) : 0;

	ck_assert(st == RING_TAKEN || st == RING_DECLINED);
	r->wr += n;
	if (n)
		r->rd = r->wr;
	atomic_store(&r->sh->wr, r->wr);
	atomic_store(&r->sh->offer, RING_OFFER_NONE);
	rc_pull_settled(end[s].rc, slot, r->wr);
	rc_pull_dereg(end[s].rc, m);
	return n;
}

/* The reader's device brings n bytes, which are checked. */
static void bring(uint32_t slot, unsigned s, struct pull_offer *o, uint64_t n, bool stop)
{
	struct ring_rx *r = &dir[slot][s].rx;
	struct rc *rc = end[!s].rc;
	struct pull_mem m;
	struct pull_piece x;
	uint64_t seq;

	ck_assert_int_eq(rc_pull_reg(rc, (uintptr_t)into, n, true, &m), 0);
	x = (struct pull_piece){ o->addr + o->got, (uintptr_t)into, (uint32_t)n, m.lkey, o->key,
				 true };
	ck_assert_int_eq(rc_pull_read(rc, slot, &x, &seq), 0);
	ck_assert_int_eq(rc_pull_done(rc, seq), 0);
	end[!s].rung = 0;
	settle();
	ck_assert_int_eq(rc_pull_done(rc, seq), 1);
	for (uint64_t i = 0; i < n; i++)
		ck_assert_uint_eq(into[i], pattern(slot, s, r->rd + i));
	rc_pull_dereg(rc, &m);
	r->rd += n;
	r->wr = r->rd;
	rc_pull_end(rc, slot, o->serial, n, stop);
	settle();
}

/* In its place, in two calls; and the ring goes on behind it. */
START_TEST(pulled)
{
	struct pull_offer o;
	struct pull_mem m;

	may_pull();
	for (unsigned s = 0; s < 2; s++) {
		put(0, s, 100);
		m = offer(0, s, 40000, 1);
		ck_assert_uint_eq(atomic_load(&at_reader(s, 0)->offer), RING_OFFERED);
		ck_assert(!rc_pull_begin(end[!s].rc, 0, 1, dir[0][s].rx.rd, &o));
		while (get(0, s, 100))
			;
		ck_assert(rc_pull_begin(end[!s].rc, 0, 1, dir[0][s].rx.rd, &o));
		ck_assert_uint_eq(o.len, 40000);
		ck_assert(!rc_pull_begin(end[!s].rc, 0, 1, dir[0][s].rx.rd, &o));
		bring(0, s, &o, 15000, false);
		ck_assert_uint_eq(atomic_load(&sent_by(s, 0)->offer), RING_OFFERED);
		ck_assert(rc_pull_begin(end[!s].rc, 0, 1, dir[0][s].rx.rd, &o));
		ck_assert_uint_eq(o.got, 15000);
		bring(0, s, &o, 25000, false);
		ck_assert_uint_eq(settled(0, s, &m), 40000);
		ck_assert(!rc_pull_begin(end[!s].rc, 0, 1, dir[0][s].rx.rd, &o));
		for (int k = 0; k < 20; k++) {
			put(0, s, SIZE);
			settle();
			while (get(0, s, SIZE))
				;
			settle();
		}
	}
	ck_assert_int_eq(end[0].died + end[1].died, 0);
}
END_TEST

/* Of a block that nobody began with nothing counts, and not what comes before it either. */
START_TEST(withdrawn)
{
	struct pull_offer o;
	struct pull_mem m;

	may_pull();
	put(0, 0, 700);
	m = offer(0, 0, 9000, 1);
	rc_pull_withdraw(end[0].rc, 0);
	settle();
	ck_assert_uint_eq(settled(0, 0, &m), 0);
	ck_assert_uint_eq(atomic_load(&at_reader(0, 0)->offer), RING_OFFER_NONE);
	ck_assert_int_eq(ring_tx_refresh(&dir[0][0].tx), 0);
	ck_assert_uint_lt(dir[0][0].tx.rd, dir[0][0].tx.wr);
	ck_assert_uint_eq(get(0, 0, 700), 700);

	/* while it is read: the answer comes with the end of that */
	m = offer(0, 0, 9000, 1);
	ck_assert(rc_pull_begin(end[1].rc, 0, 1, dir[0][0].rx.rd, &o));
	rc_pull_withdraw(end[0].rc, 0);
	settle();
	ck_assert_uint_eq(atomic_load(&sent_by(0, 0)->offer), RING_OFFERED);
	bring(0, 0, &o, 4000, false);
	ck_assert_uint_eq(settled(0, 0, &m), 4000);
	/* its reader has no room: it stops */
	m = offer(0, 0, 9000, 1);
	ck_assert(rc_pull_begin(end[1].rc, 0, 1, dir[0][0].rx.rd, &o));
	rc_pull_end(end[1].rc, 0, o.serial, 0, true);
	settle();
	ck_assert_uint_eq(settled(0, 0, &m), 0);
	put(0, 0, 100);
	settle();
	ck_assert_uint_eq(get(0, 0, 100), 100);
	ck_assert_int_eq(end[0].died + end[1].died, 0);
}
END_TEST

/* A reader that has frozen takes nothing more of that cut, also not of an offer that comes later;
 * the sender hears how much it has by another way, and perhaps of TAKEN after it. */
START_TEST(frozen)
{
	struct pull_offer o;
	struct pull_mem m;

	may_pull();
	m = offer(0, 0, 9000, 1);
	ck_assert(rc_pull_begin(end[1].rc, 0, 1, dir[0][0].rx.rd, &o));
	rc_pull_frozen(end[1].rc, 0, 1);
	rc_pull_end(end[1].rc, 0, o.serial, 4000, false);
	settle();
	ck_assert_uint_eq(atomic_load(&sent_by(0, 0)->offer), RING_OFFERED);
	rc_pull_settled(end[0].rc, 0, dir[0][0].tx.wr);
	rc_pull_dereg(end[0].rc, &m);
	m = offer(0, 0, 9000, 1);	/* it has not heard of it yet */
	ck_assert_uint_eq(atomic_load(&at_reader(0, 0)->offer), RING_OFFER_NONE);
	ck_assert(!rc_pull_begin(end[1].rc, 0, 1, dir[0][0].rx.rd, &o));
	rc_pull_withdraw(end[0].rc, 0);
	settle();
	rc_pull_settled(end[0].rc, 0, dir[0][0].tx.wr);
	rc_pull_dereg(end[0].rc, &m);
	/* answered, but FROZEN was faster */
	m = offer(0, 0, 9000, 2);
	ck_assert(rc_pull_begin(end[1].rc, 0, 2, dir[0][0].rx.rd, &o));
	rc_pull_settled(end[0].rc, 0, dir[0][0].tx.wr);
	rc_pull_end(end[1].rc, 0, o.serial, 0, true);
	settle();
	rc_pull_dereg(end[0].rc, &m);
	m = offer(0, 0, 9000, 3);
	ck_assert(rc_pull_begin(end[1].rc, 0, 3, dir[0][0].rx.rd, &o));
	bring(0, 0, &o, 9000, false);
	ck_assert_uint_eq(settled(0, 0, &m), 9000);
	ck_assert_int_eq(end[0].died + end[1].died, 0);
}
END_TEST

/* No more READs than both ends can have under way, and none on a path that is dead. */
START_TEST(reads_bounded)
{
	struct pull_mem m, from;
	struct pull_piece x;
	uint64_t seq[4];

	rc_pull_reads(end[0].rc, 3);
	rc_pull_reads(end[1].rc, 16);
	ck_assert_int_eq(rc_pull_reg(end[0].rc, (uintptr_t)into, 4000, true, &m), 0);
	ck_assert_int_eq(rc_pull_reg(end[1].rc, (uintptr_t)block, 4000, false, &from), 0);
	x = (struct pull_piece){ (uintptr_t)block, (uintptr_t)into, 1000, m.lkey, from.rkey,
				 false };
	for (int k = 0; k < 3; k++)
		ck_assert_int_eq(rc_pull_read(end[0].rc, 0, &x, &seq[k]), 0);
	ck_assert_int_eq(rc_pull_read(end[0].rc, 0, &x, &seq[3]), -EAGAIN);
	settle();		/* the last that could be posted is heard of */
	ck_assert_int_eq(rc_pull_done(end[0].rc, seq[2]), 1);
	ck_assert_int_eq(rc_pull_read(end[0].rc, 0, &x, &seq[3]), 0);
	rc_kill(end[0].rc);
	ck_assert_int_eq(rc_pull_done(end[0].rc, seq[3]), -ENETDOWN);
	ck_assert_int_eq(rc_pull_read(end[0].rc, 0, &x, &seq[3]), -ENETDOWN);
	ck_assert_int_ne(rc_pull_reg(end[0].rc, (uintptr_t)into, 4000, true, &from), 0);
	rc_pull_dereg(end[0].rc, &m);
	rc_pull_dereg(end[1].rc, &from);
}
END_TEST

struct said { uint64_t addr, len; uint32_t key, epoch, serial, pad; };

#define SAYS(flags_, wr_, len_, ...) \
	{ { .slot = 0, .life = 1, .flags = flags_, .len = len_, .wr = wr_ }, { __VA_ARGS__, 0 } }
static const struct { struct rc_rec rec; struct said said; } false_words[] = {
	/* of slot 0, which has 700 bytes in the ring; 2: it has offered 9000 itself */
	SAYS(RC_OFFER, 700, 32, 4096, 0, 1, 1, 1),		/* of nothing */
	SAYS(RC_OFFER, 700, 32, 4096, RC_PULL_MOST + 1, 1, 1, 1),
	SAYS(RC_OFFER, 700, 32, UINT64_MAX - 10, 100, 1, 1, 1),	/* beyond all memory */
	SAYS(RC_OFFER, 699, 32, 4096, 100, 1, 1, 1),		/* not at the end */
	SAYS(RC_OFFER, UINT64_MAX - 10, 32, 4096, 100, 1, 1, 1),
	SAYS(RC_OFFER, 700, 32, 4096, 100, 1, 1, 2),		/* not the next */
	SAYS(RC_OFFER, 700, 32, 4096, 100, 1, 1, 0),
	SAYS(RC_OFFER, 700, 31, 4096, 100, 1, 1, 1),
	SAYS(RC_OFFER, 700, 33, 4096, 100, 1, 1, 1),
	SAYS(RC_OFFER | RC_TAKEN, 700, 32, 4096, 100, 1, 1, 1),
	SAYS(RC_WITHDRAW, 700, 32, 0, 0, 0, 1, 1),		/* what never was */
	SAYS(RC_TAKEN, 700, 32, 0, 9001, 0, 1, 1),		/* more than was offered */
	SAYS(RC_TAKEN, 700, 32, 0, UINT64_MAX, 0, 1, 1),
	SAYS(RC_TAKEN, 700, 32, 0, 10, 0, 1, 2),		/* of another offer */
	SAYS(RC_TAKEN, 700, 32, 0, 10, 0, 1, 0),
	SAYS(RC_OFFER | RC_SHORT, 700, 32, 4096, 100, 1, 1, 1),
};

static void say(const struct rc_rec *r, const struct said *w)
{
	uint8_t buf[512] = { 0 };

	memcpy(buf, r, sizeof *r);
	memcpy(buf + (r->flags & RC_SHORT ? RC_SHORT_BYTES : sizeof *r), w, sizeof *w);
	lie(buf, (r->flags & RC_SHORT ? RC_SHORT_BYTES : sizeof *r) + r->len);
}

/* A block stands behind 700 bytes that were read. */
static struct pull_mem offered(void)
{
	may_pull();
	fake_sent = NULL;
	put(0, 0, 700);
	settle();
	return offer(0, 1, 9000, 1);
}

START_TEST(false_word)
{
	struct pull_mem m = offered();

	ck_assert_int_eq(end[1].died, 0);
	say(&false_words[_i].rec, &false_words[_i].said);
	ck_assert_int_eq(end[1].died, 1);
	rc_pull_dereg(end[1].rc, &m);
}
END_TEST

/* The same once more: right, and wrong the second time; or where nobody agreed on it. */
START_TEST(word_twice)
{
	static const struct { struct rc_rec rec; struct said said; } words[] = {
		SAYS(RC_OFFER, 700, 32, 4096, 100, 1, 1, 1),
		SAYS(RC_OFFER, 700, 32, 4096, 100, 1, 1, 2),	/* while one is open */
		SAYS(RC_TAKEN, 700, 32, 0, 10, 0, 1, 1),
		SAYS(RC_TAKEN, 700, 32, 0, 10, 0, 1, 1),
	};
	struct pull_mem m = offered();

	if (_i == 2)
		rc_pull_reads(end[1].rc, 0);
	say(&words[2 * (_i % 2)].rec, &words[2 * (_i % 2)].said);
	ck_assert_int_eq(end[1].died, _i == 2);
	if (_i < 2)
		say(&words[2 * _i + 1].rec, &words[2 * _i + 1].said);
	ck_assert_int_eq(end[1].died, 1);
	rc_pull_dereg(end[1].rc, &m);
}
END_TEST

/* From which size on it is worth it: as the numbers of a card that UCX reckons with, of one that
 * registers for little, of memory that costs more to register than to copy, and if it cannot be. */
START_TEST(costs)
{
	ck_assert_uint_eq(rc_cost_least(28000, 150000, 87000), 2 << 20);
	ck_assert_uint_eq(rc_cost_least(2000, 4000, 87000), 512 << 10);
	ck_assert_uint_eq(rc_cost_least(500, 500, 870000), PULL_LEAST);
	ck_assert_uint_eq(rc_cost_least(10000, 400000, 87000), PULL_NEVER);
	ck_assert_uint_eq(rc_cost_least(UINT64_MAX, 150000, 87000), PULL_NEVER);
	ck_assert_uint_eq(rc_cost_least(28000, UINT64_MAX, 87000), PULL_NEVER);
	ck_assert_uint_ge(rc_pull_least(end[0].rc), PULL_LEAST);
}
END_TEST

/* What comes and goes has no more than a quarter. */
START_TEST(pull_budget)
{
	static uint8_t much[1 << 20];
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0], .budget = 4 << 20 };
	struct rdma_cm_id id = fake[0].id;
	struct rc *rc = rc_new(&end[0].a, &c);
	struct pull_mem m[2];
	uint64_t before;

	ck_assert_int_eq(rc_open(rc, &id), 0);
	before = rc_pinned();
	ck_assert_int_eq(rc_pull_reg(rc, (uintptr_t)much, 600000, true, &m[0]), 0);
	ck_assert_int_eq(rc_pull_reg(rc, (uintptr_t)much, 600000, true, &m[1]), -ENOMEM);
	rc_pull_dereg(rc, &m[0]);
	rc_pull_dereg(rc, &m[0]);
	ck_assert_uint_eq(rc_pinned(), before);
	ck_assert_int_eq(rc_pull_reg(rc, (uintptr_t)much, 1 << 20, true, &m[1]), 0);
	rc_pull_dereg(rc, &m[1]);
	rc_close(rc);
}
END_TEST
