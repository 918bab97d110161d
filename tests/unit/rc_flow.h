/*
 * rc_flow.h - a part of test_rc.c: many small messages, and how long they take.
 */
/* Small messages that find the queue busy travel together. */
START_TEST(collects)
{
	unsigned before = fake[0].sends;

	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(put(2, 0, 64), 64);
	settle();
	ck_assert_uint_eq(get(2, 0, SIZE), 6400);
	ck_assert_uint_lt(fake[0].sends - before, 20);
}
END_TEST

/* Each link's events come by another interrupt, as far as there are. */
START_TEST(vectors)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0] };
	struct rdma_cm_id id = fake[0].id;

	fake_vectors = 0;
	fake[0].ctx.num_comp_vectors = 5;
	for (int i = 0; i < 5; i++) {
		struct rc *rc = rc_new(&end[0].a, &c);

		ck_assert_int_eq(rc_open(rc, &id), 0);
		rc_close(rc);
	}
	ck_assert_uint_eq(fake_vectors, 31);
}
END_TEST

/* An interrupt that takes no more: another one does, whichever that is; when all are full there is
 * no link, and nothing is left. */
START_TEST(full_vectors)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0] };
	struct rdma_cm_id id = fake[0].id;

	fake[0].ctx.num_comp_vectors = 5;
	for (int i = 0; i <= 5; i++) {
		struct rc *rc = rc_new(&end[0].a, &c);

		fake_bad_vectors = 31 & ~(1u << i);
		fake_vectors = 0;
		errno = 0;
		ck_assert_int_eq(rc_open(rc, &id), i < 5 ? 0 : -ENOSPC);
		ck_assert_uint_eq(fake_vectors & ~fake_bad_vectors, i < 5 ? 1u << i : 0);
		rc_close(rc);
	}
	fake_bad_vectors = 0;
}
END_TEST

/* One call for the buffers of all records that one look finds. */
START_TEST(batches)
{
	unsigned posts = fake[1].recv_posts;

	for (uint32_t i = 0; i < 4 * SLOTS; i++)
		ck_assert_uint_eq(put(i % SLOTS, 0, 64), 64);
	fake_run();
	rc_poll(end[1].rc);
	ck_assert_uint_eq(fake[1].recv_posts - posts, 4 * SLOTS / 16);
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(get(i, 0, SIZE), 4 * 64);
}
END_TEST

/* All large rings that the link gets, of each slot one to land in and one to send from. */
static unsigned grows(struct rc *rc)
{
	const uint8_t *land;
	uint64_t addr;
	unsigned n = 0;
	uint8_t *mine;
	uint32_t key;
	int64_t r;

	for (uint32_t i = 0; i < SLOTS; i++) {
		ck_assert_int_eq(rc_slot_bind(rc, i, 1, &addr, &key), 0);
		r = rc_large_land(rc, i, &land, &addr, &key);
		ck_assert(r == LARGE || r == -ENOMEM);
		n += r == LARGE;
		r = rc_large_peer(rc, i, LARGE, addr, key, &mine);
		ck_assert(r == LARGE || r == -ENOMEM);
		n += r == LARGE;
	}
	return n;
}

/* Large rings leave half of the budget to others, and a link as many to the next as it has. */
START_TEST(fair_budget)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0], .large_size = LARGE, .large_most = SLOTS,
			     .budget = 2 * (rc_pinned() + 3 * (RC_SENDS + RC_RECVS) * RC_REC_MAX +
					    6 * SLOTS * SIZE) };
	uint64_t before = rc_pinned(), addr, half = c.budget / 2;
	struct rdma_cm_id id[3] = { fake[0].id, fake[0].id, fake[0].id };
	struct rc *rc[3];
	unsigned n[2];
	uint32_t key;

	for (int i = 0; i < 3; i++) {
		rc[i] = rc_new(&end[0].a, &c);
		ck_assert_int_eq(rc_open(rc[i], &id[i]), 0);
		if (i < 2)
			n[i] = grows(rc[i]);
	}
	ck_assert_uint_eq(n[0], half / 2 / LARGE);
	ck_assert_uint_eq(n[1], (half - n[0] * LARGE) / 2 / LARGE);
	ck_assert_uint_gt(n[1], 1);
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_int_eq(rc_slot_bind(rc[2], i, 1, &addr, &key), 0);
	ck_assert_uint_le(rc_pinned(), c.budget);
	for (int i = 0; i < 3; i++)
		rc_close(rc[i]);
	ck_assert_uint_eq(rc_pinned(), before);
	/* and what they had may be had again */
	rc[0] = rc_new(&end[0].a, &c);
	ck_assert_int_eq(rc_open(rc[0], &id[0]), 0);
	ck_assert_uint_eq(grows(rc[0]), n[0]);
	rc_close(rc[0]);
}
END_TEST

static unsigned sent_bytes;

static void measure(struct fake_end *e, const void *record)
{
	(void)record;
	sent_bytes += e->sq[e->sq_tail % FAKE_WR].len;
}

/* 64 bytes fit the work request of a device that takes 96 there. What a short header leaves out
 * comes whole when it must: credits more than its half away, the size of a ring, the end. */
START_TEST(short_records)
{
	uint64_t far = 5ull << 32;

	rc_close(end[0].rc);
	fake_inline = 96;
	end[0].rc = rc_new(&end[0].a, &(struct rc_conf){ .ring = ring, .died = died, .busy = busy,
							 .watch = watch, .arg = &end[0] });
	ck_assert_int_eq(rc_open(end[0].rc, &fake[0].id), 0);
	rc_release(end[1].rc);
	ck_assert_int_eq(rc_open(end[1].rc, &fake[1].id), 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		bind_slot(i, 2);
	open_dir(1, 0, far);
	open_dir(1, 1, far);
	fake[0].inlined = 0;
	fake_sent = measure;
	sent_bytes = 0;
	put(1, 0, 64);			/* the first tells how far the other direction is */
	ck_assert_uint_eq(sent_bytes, 40 + 64);
	for (int i = 0; i < 3; i++) {
		settle();
		ck_assert_uint_eq(get(1, 0, SIZE), 64);
		sent_bytes = 0;
		put(1, 0, 64);
		ck_assert_uint_eq(sent_bytes, 24 + 64);
	}
	ck_assert_uint_eq(fake[0].inlined, 3);
	settle();
	ck_assert_uint_eq(get(1, 0, SIZE), 64);
	for (int i = 0; i < 3; i++) {	/* credits */
		put(1, 1, SIZE);
		settle();
		ck_assert_uint_eq(get(1, 1, SIZE), SIZE);
		settle();
		ck_assert_int_eq(ring_tx_refresh(&dir[1][1].tx), 0);
		ck_assert_uint_eq(dir[1][1].tx.rd, far + (uint64_t)(i + 1) * SIZE);
	}
	ring_rx_open(&dir[1][1].rx, far + (3ull << 30));	/* as by TCP */
	ring_tx_open(&dir[1][1].tx, ++dir[1][1].epoch, far + (3ull << 30));
	put(1, 0, 1);
	settle();
	ck_assert_int_eq(ring_tx_refresh(&dir[1][1].tx), 0);
	ck_assert_uint_eq(atomic_load(&dir[1][1].tx.sh->rd), far + (3ull << 30));
	atomic_store(&dir[1][0].tx.sh->final, dir[1][0].tx.wr);
	rc_publish(end[0].rc, 1);
	settle();
	ck_assert_uint_eq(atomic_load(&dir[1][0].rx.sh->final), dir[1][0].tx.wr);
	ck_assert_int_eq(end[0].died + end[1].died, 0);
}
END_TEST

/* Streams that have one message each, and a device that needs a round trip: nobody waits for it,
 * nor wants to hear of it. */
START_TEST(many_streams)
{
	unsigned sends = fake[0].sends, notifies = fake[0].notifies;

	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(put(i, 0, 64), 64);
	ck_assert_uint_eq(fake[0].sends - sends, SLOTS);
	ck_assert_uint_eq(fake[0].notifies, notifies);
	settle();
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(get(i, 0, SIZE), 64);
}
END_TEST

/* Where the device is done at once, what bounds a stream of small messages is how fast the peer
 * takes them up: those that come meanwhile travel together, and nothing is left when it has. */
START_TEST(flow)
{
	unsigned before = fake[0].sends;

	for (int i = 0; i < 60; i++) {
		ck_assert_uint_eq(put(2, 0, 64), 64);
		fake_run();
		rc_poll(end[0].rc);
	}
	ck_assert_uint_le(fake[0].sends - before, 5);
	rc_poll(end[1].rc);		/* takes up, and says so */
	for (int i = 0; i < 3; i++) {	/* what waits goes by events alone */
		fake_run();
		background(0);
	}
	ck_assert_uint_le(fake[0].sends - before, 7);
	rc_poll(end[1].rc);
	ck_assert_uint_eq(get(2, 0, SIZE), 60 * 64);
	/* The end of a stream, a credit and other streams do not wait. */
	settle();
	for (int i = 0; i < 20; i++) {
		put(2, 0, 64);
		fake_run();
		rc_poll(end[0].rc);
	}
	put(3, 0, 100);
	atomic_store(&end[0].a.slot[2].dir[0].final, dir[2][0].tx.wr);
	rc_publish(end[0].rc, 2);
	fake_run();
	rc_poll(end[1].rc);
	ck_assert_uint_eq(get(3, 0, SIZE), 100);
	ck_assert_uint_eq(get(2, 0, SIZE), 20 * 64);
}
END_TEST

/* Who waits for an answer each time, or writes a few before he does, sends at once. */
START_TEST(no_flow)
{
	unsigned before;

	for (int i = 0; i < 50; i++)
		for (unsigned s = 0; s < 2; s++) {
			before = fake[s].sends;
			for (int k = 0; k < 3; k++) {
				put(2, s, 64);
				fake_run();
				rc_poll(end[s].rc);
			}
			rc_poll(end[!s].rc);
			ck_assert_uint_eq(get(2, s, SIZE), 3 * 64);
			ck_assert_uint_eq(fake[s].sends - before, 3);
			rc_poll(end[s].rc);
		}
}
END_TEST

/* A reader that never polls: the peer's window closes, nothing is lost, RNR never happens. */
START_TEST(window)
{
	for (int k = 0; k < 3000; k++) {
		put((uint32_t)k % SLOTS, 0, 20);	/* alone: not collected */
		fake_step(&fake[0]), fake_step(&fake[0]), fake_step(&fake[0]);
		rc_poll(end[0].rc);
	}
	ck_assert_uint_eq(fake[0].rnr, 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		for (int k = 0; k < 20; k++) {
			settle();
			get(i, 0, SIZE);
		}
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(dir[i][0].rx.rd, dir[i][0].tx.wr);
}
END_TEST

/* n bytes from end 0, whose completion is seen after `ns`, and an answer, which acknowledges the
 * record. */
static void round_trip_of(uint64_t n, uint64_t ns)
{
	ck_assert_uint_eq(put(0, 0, n), n);
	fake_run();
	clock_ns += ns;
	rc_poll(end[0].rc);
	settle();
	ck_assert_uint_eq(get(0, 0, n), n);
	ck_assert_uint_eq(put(0, 1, 1), 1);
	settle();
	ck_assert_uint_eq(get(0, 1, 1), 1);
	settle();
}

/* Each trip takes so long, until one has been timed. */
static void until_timed(uint64_t ns, unsigned tries)
{
	end[0].rtt = 0;
	while (!end[0].rtt) {
		ck_assert_uint_gt(tries--, 0);
		round_trip_of(10, ns);
	}
}

START_TEST(round_trip)
{
	static const struct { uint32_t ns, shown; } first[] = { { 900, 900 }, { 700, 700 },
								{ 800, 700 }, { 5000000, 700 },
									{ 750, 700 }, { 710, 700 },
										{ 720, 700 }, { 730,
											700 } };

	clock_ns = 1000000000;
	round_trip_of(1000, 3);		/* a WRITE before the record */
	ck_assert_uint_eq(end[0].rtt, 0);
	ck_assert_uint_eq(put(1, 0, 1000), 1000);	/* and something before it */
	round_trip_of(10, 3);
	ck_assert_uint_eq(end[0].rtt, 0);
	ck_assert_uint_eq(get(1, 0, 1000), 1000);
	for (unsigned taken = 0; taken < 8; taken++) {
		until_timed(first[taken].ns, 20);
		ck_assert_uint_eq(end[0].rtt, first[taken].shown);
	}
	for (int i = 0; i < 900; i++) {		/* from now on seldom */
		round_trip_of(10, 1);
		ck_assert_uint_eq(end[0].rtt, 700);
	}
	for (int k = 0; k < 8; k++)
		until_timed(990 + k, 1100);
	ck_assert_uint_eq(end[0].rtt, 700);	/* of those before */
	until_timed(5ull << 32, 1100);
	ck_assert_uint_eq(end[0].rtt, 990);
	for (int k = 0; k < 8; k++)
		until_timed(5ull << 32, 1100);
	ck_assert_uint_eq(end[0].rtt, UINT32_MAX);
	clock_ns = 0;
}
END_TEST
