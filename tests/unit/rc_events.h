/*
 * rc_events.h - a part of test_rc.c: who is woken, and events that are late or for two.
 */
START_TEST(wakes)
{
	struct segment_slot_side *mine = &end[1].a.slot[3].side[1];

	atomic_store(&mine->bells, 6);
	atomic_store(&mine->epolls, 1);
	atomic_store(&end[1].a.side[1].armed, 4);
	rc_arm(end[1].rc);
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	ck_assert(background(1));
	ck_assert_uint_eq(end[1].rung, 4);
	ck_assert_uint_eq(atomic_load(&end[1].a.side[1].dirty[0]), 8);
	ck_assert_uint_eq(atomic_load(&end[1].a.side[0].dirty[0]), 0);
}
END_TEST

/* Who sleeps is not woken when his own records have gone, nor by the peer's word that it has
 * taken them up; unless something waits for that. An error wakes. */
START_TEST(wakes_who_waits)
{
	rc_arm_own(end[0].rc);
	for (uint32_t i = 0; i < 32; i++)
		put(i % SLOTS, 0, 64);
	settle();
	rc_arm_own(end[0].rc);
	rc_try(end[1].rc);		/* a record that only acknowledges */
	fake_run();
	ck_assert_uint_gt(fake[0].wc_tail - fake[0].wc_head, 0);
	ck_assert_uint_eq(fake[0].events, 0);
	put(2, 1, 1);
	fake_run();
	ck_assert_uint_eq(fake[0].events, 1);
	rc_event(end[0].rc);
	rc_poll(end[0].rc);
	rc_arm_own(end[0].rc);
	for (int i = 0; i < 300; i++)	/* more than can be posted */
		put((uint32_t)i % SLOTS, 0, 1);
	ck_assert(rc_waits(end[0].rc));
	fake_step(&fake[0]);
	for (int i = 0; i < 20; i++)
		fake_step(&fake[0]);
	ck_assert_uint_eq(fake[0].events, 1);
	settle();
	rc_arm_own(end[0].rc);
	fake[0].events = 0;
	fake_break(&fake[0]);
	ck_assert_uint_eq(fake[0].events, 1);
}
END_TEST

/* A device of iWARP's may bring no event for what is solicited alone. */
START_TEST(wakes_all)
{
	rc_release(end[0].rc);
	fake[0].dev.transport_type = IBV_TRANSPORT_IWARP;
	ck_assert_int_eq(rc_open(end[0].rc, &fake[0].id), 0);
	rc_arm_own(end[0].rc);
	ck_assert_uint_eq(fake[0].armed, FAKE_ARMED);
}
END_TEST

/* A record that is late for an earlier stream of the slot changes nothing. */
START_TEST(lives)
{
	put(4, 0, 100);
	bind_slot(4, 2);	/* while it is in the queue */
	settle();
	ck_assert_uint_eq(atomic_load(&end[1].a.slot[4].dir[0].wr), 0);
	open_dir(4, 0, 0);
	put(4, 0, 50);
	settle();
	ck_assert_uint_eq(get(4, 0, SIZE), 50);
	rc_slot_unbind(end[1].rc, 4);
	put(4, 0, 50);
	settle();
	ck_assert_uint_eq(get(4, 0, SIZE), 0);
	ck_assert_int_eq(end[1].died, 0);
}
END_TEST

/* An event that nobody had taken up yet when the next publication had to wait: what waits goes
 * all the same. */
START_TEST(event_is_late)
{
	for (int i = 0; i < 8; i++)
		put(6, 0, 64);		/* the later ones wait, armed */
	fake_run();			/* the event is there */
	ck_assert_uint_ge(fake[0].events, 1);
	rc_poll(end[0].rc);		/* somebody else takes the completions */
	for (int i = 0; i < 8; i++)
		put(6, 0, 64);
	background(0);			/* only now the event; nothing to take */
	for (int i = 0; i < 4; i++) {	/* from here only what events bring */
		fake_run();
		background(0);
		rc_poll(end[1].rc);
	}
	ck_assert_uint_eq(get(6, 0, SIZE), 16 * 64);
}
END_TEST

/* An event that a sleeper asked for, for himself, who then left: what has to wait afterwards
 * asks for the background thread. */
START_TEST(event_was_anothers)
{
	rc_arm_own(end[0].rc);
	ck_assert(!end[0].watched);
	for (int i = 0; i < 16; i++)
		put(6, 0, 64);
	ck_assert(end[0].watched);
	for (int i = 0; i < 4; i++) {
		fake_run();
		background(0);
		rc_poll(end[1].rc);
	}
	ck_assert_uint_eq(get(6, 0, SIZE), 16 * 64);
}
END_TEST

/* Of two who come for one event the second changes nothing: the first may have armed again by
 * then. */
START_TEST(event_for_two)
{
	rc_arm_own(end[1].rc);
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	rc_event(end[1].rc);
	rc_poll(end[1].rc);
	rc_arm_own(end[1].rc);
	rc_event(end[1].rc);		/* late */
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	rc_event(end[1].rc);
	rc_poll(end[1].rc);
	ck_assert_uint_eq(get(3, 0, SIZE), 10);
	rc_arm_own(end[1].rc);		/* and who is late did not make it look unarmed: one
					 * event for each arming */
	rc_event(end[1].rc);
	ck_assert_uint_eq(fake[1].armed, 1);
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 3);
}
END_TEST

/* Another thread that goes to sleep here while the request of the first is under way: it must
 * not take it for made. */
static void second_sleeper(void)
{
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].armed, 1);
}

START_TEST(event_for_two_at_once)
{
	on_notify = second_sleeper;
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 2);
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 2);
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	rc_event(end[1].rc);
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 3);
}
END_TEST
