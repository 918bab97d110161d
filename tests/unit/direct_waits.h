/*
 * direct_waits.h - a part of test_direct.c: a sender that waits, and snapshots that are read
 * after the take.
 */
static ssize_t sends(bool snapshot, bool veiled)
{
	return snapshot ? direct_send_device(&tx, block, &(struct gpu_ref){ .desc = 42, .ring = 43,
		.at = 44, .rec = 7, .len = N,
			.veiled = veiled }, false) : direct_send(&tx, block, N);
}

START_TEST(offered_in_vain)
{
	for (int snapshot = 0; snapshot < 2; snapshot++) {
		begin();
		for (int i = 0; i < 20; i++)
			ck_assert_int_eq(sends(snapshot, false), 0);
		ck_assert_int_eq(offers, 3);	/* then 4 are left out, then 8 */
		ck_assert_int_eq(release, snapshot ? 20 : 0);
		/* the other kind has its own backoff */
		ck_assert_int_eq(sends(!snapshot, false), 0);
		ck_assert_int_eq(offers, 4);
		takes = true;
		for (int i = 0; i < 20; i++)
			sends(snapshot, false);
		ck_assert_int_eq(offers, 4 + 9);	/* the 32nd is taken, and so is each
							 * after it */
		ck_assert_int_eq(soon, snapshot ? 28 : 0);	/* 4, 8, 16 */
		ck_assert_int_eq(not_soon, snapshot ? 3 : 1);
	}
}
END_TEST

/* A sender that waits: its offer stands, with the lock free, while it is worth it; after a wait
 * in vain it does not wait again until one is taken. */
START_TEST(waits_for_a_late_reader)
{
	struct gpu_ref ref = { .desc = 42, .ring = 43, .at = 44, .rec = 7, .len = N };

	begin();
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), -EBUSY);
	ck_assert(tx.direct.stuck);
	ck_assert_int_eq(release, 0);
	ck_assert(!direct_settle(&tx, false));
	ck_assert_int_eq(take(&iov, 1), N);
	ck_assert(direct_settle(&tx, false));
	ck_assert_uint_eq(tx.direct.done, N);
	ck_assert_int_eq(release, 1);
	ck_assert_int_eq(release_read, 1);
	tx.direct.done = 0;
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), -EBUSY);
	while (!direct_settle(&tx, false))
		;
	ck_assert_uint_eq(tx.direct.done, 0);
	ck_assert_int_eq(release, 2);
	ck_assert_int_eq(release_read, 1);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_OFFER_NONE);
	ck_assert_int_eq(tx.direct.backoff[SNAPSHOT].pause, DIRECT_SKIP_FIRST);
	for (int i = 0; i < DIRECT_SKIP_FIRST; i++)
		ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), 0);
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), -EBUSY);
	ck_assert(direct_settle(&tx, true));
	ck_assert_int_eq(tx.direct.backoff[SNAPSHOT].pause, 2 * DIRECT_SKIP_FIRST);
	for (int pause = 2 * DIRECT_SKIP_FIRST; pause < DIRECT_SKIP_MOST; pause *= 2) {
		for (int i = 0; i < pause; i++)
			ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), 0);
		ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), -EBUSY);
		ck_assert(direct_settle(&tx, true));
	}
	ck_assert_int_gt(not_soon, 0);
	ref.veiled = true;
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), 0);
	takes = true;
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), N);
	takes = ref.veiled = false;
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), -EBUSY);
	atomic_store(&rx.snd.ring.sh->wr, 1);	/* what the program has to read itself ends the
						 * wait */
	ck_assert(direct_settle(&tx, false));
	ck_assert(!tx.direct.stuck);
}
END_TEST

/* ... but for no longer than its program waits for room. */
START_TEST(waits_for_its_timeout)
{
	struct gpu_ref ref = { .desc = 42, .ring = 43, .at = 44, .rec = 7, .len = N };
	uint64_t start;

	begin();
	start = now_ns();
	tx.opt.snd_timeo_us = 250;
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), -EBUSY);
	ck_assert_uint_ge(tx.direct.until, start);
	/* each look at the clock takes 1 us */
	ck_assert_uint_le(tx.direct.until, start + 250000 + 10000);
	while (!direct_settle(&tx, false))
		;
	tx.opt.snd_timeo_us = 50;	/* shorter than the offer is made for anyhow */
	tx.direct.backoff[SNAPSHOT] = (struct direct_backoff){ 0, 0 };
	ck_assert_int_eq(direct_send_device(&tx, block, &ref, true), 0);
	ck_assert(!tx.direct.stuck);
}
END_TEST

/* The ring would have to wait for what is not in its buffer yet. */
START_TEST(offered_in_vain_but_veiled)
{
	begin();
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(sends(true, true), 0);
	ck_assert_int_eq(offers, 8);
}
END_TEST

/* The receiver still reads the snapshot when the sender's call returns: it is held, and the
 * receiver tells of the end at its next take. */
START_TEST(read_beyond_the_take)
{
	begin();
	takes = goes_on = true;
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(release, 0);
	ck_assert_int_eq(held, 1);
	ck_assert_uint_eq(held_to, N);
	ck_assert_uint_eq(rx.rcv.ring.rd, N);
	ck_assert_uint_eq(tx.snd.ring.rd, N);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), 0);
	ck_assert_int_eq(looks, 1);
	read_ends = true;
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(waited, 0);		/* its end is that of the first, too */
	ck_assert_int_eq(held, 2);
	ck_assert_int_eq(release, 0);
	ck_assert(direct_read_over(&rx, false));
	ck_assert_uint_eq(atomic_load(&sh.offer_read), 2 * N);
	ck_assert(!rx.direct.reading.read.ev);
}
END_TEST

/* The copy to the buffer, which comes after it, was waited for. */
START_TEST(read_to_the_end_in_the_take)
{
	begin();
	takes = goes_on = ends_meanwhile = true;
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(held, 1);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), N);
	ck_assert_int_eq(looks, 0);
}
END_TEST

/* So many that the peer must be told of the end of some. */
START_TEST(read_beyond_many_takes)
{
	int first = READ_BLOCKS;	/* less than READ_AHEAD bytes */

	begin();
	takes = goes_on = true;
	for (int i = 0; i < first; i++)
		ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(held, first);
	ck_assert_int_eq(waited, 0);
	ck_assert_int_eq(sends(true, false), N);	/* no end yet: this one ends in the take */
	ck_assert_int_eq(waited, 1);
	ck_assert_int_eq(held, first);
	ck_assert_int_eq(release, 1);
	ck_assert_int_eq(release_read, 1);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), 0);
	ck_assert_int_eq(looks, 1);		/* the background thread knows */
	read_ends = true;
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(waited, 2);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), (uint64_t)first * N);
	ck_assert_int_eq(held, first + 1);
}
END_TEST

/* In another stream, or out of another ring: the one before is waited for. */
START_TEST(read_elsewhere)
{
	begin();
	takes = goes_on = true;
	ck_assert_int_eq(sends(true, false), N);
	elsewhere = read_ends = true;
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(waited, 1);
	ck_assert(rx.direct.reading.read.ev);
	ck_assert_uint_eq(rx.direct.reading.to, 2 * N);
	ck_assert(direct_read_over(&rx, false));
	ck_assert_uint_eq(atomic_load(&sh.offer_read), 2 * N);
	read_ends = false;
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(sends(true, false), N);	/* does not end: this stream tells
							 * nothing more */
	read_ends = true;
	ck_assert(!direct_read_over(&rx, true));
	ck_assert_uint_eq(direct_watch(&rx, now_us() + WATCH_US), UINT64_MAX);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), 2 * N);
}
END_TEST

START_TEST(read_to_the_end_by_the_background_thread)
{
	uint64_t later;

	begin();
	takes = goes_on = true;
	ck_assert_int_eq(sends(true, false), N);
	later = now_us() + WATCH_US;
	ck_assert(direct_watch(&rx, later) > later);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), 0);
	ck_assert_int_eq(atomic_load(&rx.direct.watched), 1);
	read_ends = true;
	lock_take(&rx.rcv.lock);
	ck_assert(direct_watch(&rx, later) > later);
	lock_give(&rx.rcv.lock);
	ck_assert_uint_eq(direct_watch(&rx, later), UINT64_MAX);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), N);
	ck_assert_int_eq(atomic_load(&rx.direct.watched), 0);
	ck_assert_int_eq(waited, 0);
}
END_TEST

/* A receiver that takes one block after the other tells of their ends itself: the background
 * thread is not woken for each, and looks again when nothing has come for as long. */
START_TEST(watched_while_it_receives)
{
	uint64_t due = 0;

	begin();
	takes = goes_on = read_ends = true;
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(sends(true, false), N);
		due = direct_watch(&rx, now_us());
		ck_assert_uint_lt(due, now_us() + WATCH_US);
		ck_assert_uint_gt(due, now_us());
		ck_assert(direct_read_over(&rx, false));
	}
	ck_assert_int_eq(looks, 1);
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_uint_gt(direct_watch(&rx, due), due);
	ck_assert_uint_eq(direct_watch(&rx, now_us() + WATCH_US), UINT64_MAX);
	ck_assert_uint_eq(atomic_load(&sh.offer_read), 21 * N);
	ck_assert_int_eq(sends(true, false), N);
	ck_assert_int_eq(looks, 2);
}
END_TEST

/* The take was stuck, and ended before the sender gave up. */
START_TEST(read_beyond_a_stuck_take)
{
	begin();
	goes_on = true;
	offered(42);
	ck_assert_int_eq(take(&iov, 1), N);
	tx.direct.stuck = 1;
	tx.direct.held = (struct direct_held){ .rec = 7, .held = 1 };
	ck_assert(direct_settle(&tx, true));
	ck_assert_uint_eq(tx.direct.done, N);
	ck_assert_int_eq(release, 0);
	ck_assert_int_eq(held, 1);
	ck_assert_uint_eq(held_to, N);
}
END_TEST
