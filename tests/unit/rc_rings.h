/*
 * rc_rings.h - a part of test_rc.c: rings that are full, and that grow.
 */
/* A full ring is always told of room, with nobody but reader and background thread at work. */
START_TEST(credits)
{
	uint64_t sent = 0;

	for (int k = 0; k < 200; k++) {
		sent += put(0, 0, SIZE);
		settle();
		while (get(0, 0, 100 + (uint64_t)k))
			;
		settle();
		ck_assert_int_eq(ring_tx_refresh(&dir[0][0].tx), 0);
		ck_assert_uint_ge(ring_tx_room(&dir[0][0].tx), SIZE * 3 / 4);
	}
	ck_assert_uint_gt(sent, 200 * SIZE / 2);
}
END_TEST

/* The same of a ring that grew while it was full; it is told of room less often. */
START_TEST(grown)
{
	struct dir *d = &dir[0][0];

	ck_assert_uint_eq(put(0, 0, SIZE), SIZE);
	ck_assert(!grow(0, 0));		/* gets one */
	ck_assert(grow(0, 0));
	ck_assert(!rc_enlarge(end[0].rc, 0, LARGE));
	for (int i = 0; i < LARGE / SIZE; i++)
		ck_assert_uint_eq(put(0, 0, SIZE), SIZE);
	ck_assert_uint_eq(put(0, 0, 1), 0);
	settle();
	ck_assert_int_eq(ring_rx_refresh(&d->rx), 0);
	ck_assert_uint_eq(ring_rx_avail(&d->rx), SIZE + LARGE);
	for (int k = 0; k < 200; k++) {
		while (get(0, 0, 100 + (uint64_t)k))
			;
		settle();
		ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
		ck_assert_uint_ge(ring_tx_room(&d->tx), LARGE - rc_credit_step(LARGE, SIZE));
		while (put(0, 0, SIZE))
			;
		settle();
	}
}
END_TEST

/* A reader of a large ring that is slow: its sender sees all the same that somebody reads, as
 * often as it has read a quarter of a small one, but not for each. */
START_TEST(slow_reader)
{
	struct dir *d = &dir[0][0];
	unsigned before, told = 0;
	uint64_t last;

	grow(0, 0);
	ck_assert(grow(0, 0));
	while (put(0, 0, SIZE))
		settle();
	clock_ns = 1000000000;
	last = d->tx.rd;
	before = fake[1].sends;
	for (int i = 0; i < 100; i++) {
		clock_ns += 1000000;
		ck_assert_uint_eq(get(0, 0, 70), 70);
		settle();
		ring_tx_refresh(&d->tx);
		if (d->tx.rd == last)
			continue;
		told++;
		ck_assert_uint_ge(d->tx.rd - last, SIZE / 4);
		last = d->tx.rd;
	}
	ck_assert_uint_eq(told, 2);	/* 30 calls to a quarter, 20 ms more */
	ck_assert_uint_eq(fake[1].sends - before, told);
	clock_ns = 0;
}
END_TEST

/* What the peer has not been told of yet lies where it was: no change before that. */
START_TEST(grows_when_told)
{
	ck_assert(!grow(0, 0));
	for (int i = 0; i < 20; i++)
		put(0, 0, 64);		/* the later ones are collected */
	ck_assert(rc_waits(end[0].rc));
	ck_assert(!grow(0, 0));
	settle();
	ck_assert(grow(0, 0));
	put(0, 0, 64);
	settle();
	ck_assert_uint_eq(get(0, 0, SIZE), 21 * 64);
}
END_TEST

/* There are so many, and one serves another slot when both ends have left it; not to a ring that
 * is no larger. */
START_TEST(large_rings)
{
	const uint8_t *ring;
	uint8_t *mine;
	uint64_t addr, was = rc_registered(end[1].rc);
	uint32_t key;
	unsigned n;

	for (n = 0; rc_large_land(end[1].rc, n, &ring, &addr, &key); n++)
		ck_assert_uint_lt(n, LARGE_MOST);
	ck_assert_uint_eq(n, LARGE_MOST);
	ck_assert_uint_eq(rc_registered(end[1].rc) - was, LARGE_MOST * LARGE);
	rc_slot_unbind(end[1].rc, 2);
	ck_assert_uint_eq(rc_large_land(end[1].rc, n, &ring, &addr, &key), 0);
	rc_slot_left(end[1].rc, 2);
	ck_assert_uint_eq(rc_large_land(end[1].rc, 2, &ring, &addr, &key), 0);	/* nobody's */
	ck_assert_uint_eq(rc_large_land(end[1].rc, n, &ring, &addr, &key), LARGE);
	ck_assert_uint_eq(rc_large_land(end[1].rc, n, &ring, &addr, &key), 0);	/* once */
	ck_assert_uint_eq(rc_registered(end[1].rc) - was, LARGE_MOST * LARGE);

	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, SIZE, addr, key, &mine), -EPROTO);
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, 3 * SIZE, addr, key, &mine), -EPROTO);
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, 1ull << 63, addr, key, &mine), -EPROTO);
	/* no more than we have */
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, 8 * LARGE, addr, key, &mine), LARGE);
	/* once */
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, LARGE, addr, key, &mine), -EPROTO);
	ck_assert_int_eq(rc_large_peer(end[0].rc, 1, 2 * SIZE, addr, key, &mine), 2 * SIZE);
	fake_fail = 1;
	ck_assert_int_eq(rc_large_peer(end[0].rc, 2, LARGE, addr, key, &mine), -ENOMEM);
	fake_fail = 0;
	ck_assert_int_eq(rc_large_peer(end[0].rc, 2, LARGE, addr, key, &mine), LARGE);
}
END_TEST

/* The end of a stream: every byte is credited, whichever comes first, FINAL or the reading. */
START_TEST(final)
{
	struct dir *d = &dir[1][0];

	put(1, 0, 10);
	settle();
	if (_i)
		ck_assert_uint_eq(get(1, 0, 10), 10);
	atomic_store(&d->tx.sh->final, d->tx.wr);
	rc_publish(end[0].rc, 1);
	settle();
	ck_assert_uint_eq(atomic_load(&d->rx.sh->final), d->tx.wr);
	if (!_i) {
		ck_assert_uint_eq(get(1, 0, 3), 3);
		ck_assert_uint_eq(get(1, 0, 10), 7);
	}
	settle();
	ring_tx_refresh(&d->tx);
	ck_assert_uint_eq(d->tx.rd, d->tx.wr);
}
END_TEST
