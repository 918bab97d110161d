/*
 * rc_fails.h - a part of test_rc.c: peers that lie, devices that fail.
 */
static void lie(const void *rec, uint32_t len)
{
	static uint8_t mem[1024];
	struct ibv_sge sge = { (uintptr_t)mem, len, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	memcpy(mem, rec, len < 512 ? len : 512);
	ck_assert_int_eq(fake_post_send(&fake[0].qp, &wr, &bad), 0);
	fake_run();
	rc_poll(end[1].rc);
}

static const struct { struct rc_rec rec; uint32_t len; } lies[] = {
	{ { .slot = SLOTS, .life = 1 }, 40 },			/* no such slot */
	{ { .slot = 0xfffe, .life = 1 }, 40 },
	{ { .slot = 0, .life = 1, .len = 1 }, 40 },		/* more payload than came */
	{ { .slot = 0, .life = 1, .len = 0 }, 41 },		/* less */
	{ { .slot = 0, .life = 1, .len = 0xffff }, 512 },
	{ { .slot = 0, .life = 1 }, 39 },			/* cut short */
	{ { .slot = 0, .life = 1 }, 0 },
	{ { .slot = 0, .life = 1, .flags = RC_SHORT }, 23 },
	{ { .slot = 0, .life = 1, .flags = RC_SHORT }, 40 },
	{ { .slot = 0, .life = 1, .flags = RC_SHORT, .len = 16 }, 24 },
	{ { .slot = 3, .life = 1, .wr = 100, .flags = RC_SHORT | RC_DEVICE }, 24 },
	{ { .slot = 0, .life = 1, .acked = 1 }, 40 },		/* more than we ever sent */
	{ { .slot = RC_NO_SLOT, .acked = 0x80000000u }, 40 },
	/* a large ring that it was not given */
	{ { .slot = 0, .life = 1, .large = LARGE }, 40 },
	{ { .slot = 1, .life = 1, .large = 1 }, 40 },		/* slot 1 was, but not like that */
	{ { .slot = 1, .life = 1, .large = SIZE }, 40 },
	{ { .slot = 1, .life = 1, .large = LARGE - 1 }, 40 },
	{ { .slot = 1, .life = 1, .large = 2 * LARGE }, 40 },
	{ { .slot = 2, .life = 1, .large = LARGE / 2 }, 40 },	/* slot 2 uses more already */
	{ { .slot = 2, .life = 1, .large = 0 }, 40 },
	/* device memory that it was not given */
	{ { .slot = 3, .life = 1, .wr = 100, .flags = RC_DEVICE }, 40 },
	/* slot 4 was, but not for this */
	{ { .slot = 4, .life = 1, .wr = 100, .flags = RC_DEVICE, .len = 8 }, 48 },
};

START_TEST(liars)
{
	uint8_t buf[512] = { 0 };

	fake_sent = NULL;
	grow(1, 0);
	grow(2, 0);
	ck_assert(grow(2, 0));
	put(2, 0, 64);
	give_landing(4, 0);
	settle();
	ck_assert_int_eq(end[1].died, 0);
	memcpy(buf, &lies[_i].rec, sizeof lies[_i].rec);
	lie(buf, lies[_i].len);
	ck_assert_int_eq(end[1].died, 1);
	ck_assert(rc_dead(end[1].rc));
}
END_TEST

/* A peer that gives credit for what it was not told of yet: it loses the path, and nothing is
 * written where it does not belong. */
START_TEST(credit_before_told)
{
	struct dir *d = &dir[0][1];
	struct rc_rec r = { .slot = 0, .life = 1 };
	struct rc_counts c;

	/* nothing is acknowledged: soon nothing can be told */
	for (unsigned n = 0; n < 300 && !end[1].died; n++) {
		put(0, 1, SIZE);
		fake_run();
		rc_poll(end[1].rc);
		r.rd = d->tx.wr;
		lie(&r, sizeof r);
	}
	rc_counts(end[1].rc, &c);
	r.acked = (uint32_t)c.records;
	if (!end[1].died)
		lie(&r, sizeof r);
	ck_assert_int_eq(end[1].died, 1);
}
END_TEST

/* The sender uses as little of a large ring as it may, its program asks first whether it is
 * writable (a quarter is free, stream_view.c), and the reader reads all. */
START_TEST(little_use)
{
	struct dir *d = &dir[0][0];
	uint64_t limit = 2 * rc_credit_step(LARGE, SIZE), used;

	ck_assert(!grow(0, 0));
	ck_assert(grow(0, 0));
	d->tx.unused = LARGE - limit;
	for (int i = 0; i < 500; i++) {
		ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
		used = d->tx.wr - d->tx.rd;
		ck_assert_uint_ge(limit - used, limit / 4);
		ck_assert_uint_eq(put(0, 0, 300), 300);
		settle();
		while (get(0, 0, SIZE))
			;
		settle();
	}
}
END_TEST

/* Cursors that cannot be are not this layer's to judge, but may do no harm, and the ring refuses
 * them. */
START_TEST(wild_cursors)
{
	static const uint64_t wild[] = { UINT64_MAX, UINT64_MAX - 3, 1ull << 63, SIZE * 2 + 1 };

	for (unsigned i = 0; i < 4; i++) {
		uint8_t buf[512] = { 0 };
		struct rc_rec r = { .slot = 0, .life = 1, .len = 472, .wr = wild[i], .rd = wild[i],
				    .final = RING_NO_FINAL };

		memcpy(buf, &r, sizeof r);
		lie(buf, 512);
	}
	ck_assert_int_eq(end[1].died, 0);
	ck_assert_int_eq(ring_rx_refresh(&dir[0][0].rx), -EPROTO);
	ck_assert_int_eq(ring_tx_refresh(&dir[0][1].tx), -EPROTO);
}
END_TEST

/* The peer reaches landing rings of bound slots and nothing else of ours. */
START_TEST(reach)
{
	struct segment *a = &end[1].a;

	grow(0, 0);
	grow(0, 1);
	for (unsigned i = 0; i < fake[1].mrs; i++) {
		uint8_t *p = fake[1].mr[i].mr.addr;
		bool landing = false;

		for (uint32_t k = 0; k < SLOTS; k++)
			landing |= p == a->ring + 2ull * k * SIZE &&
				   fake[1].mr[i].mr.length == SIZE;
		landing |= p == dir[0][0].rx.large;
		ck_assert_int_eq(!!(fake[1].mr[i].access & IBV_ACCESS_REMOTE_WRITE), landing);
		ck_assert(!(fake[1].mr[i].access &
			    (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)));
	}
	ck_assert_uint_le(rc_registered(end[1].rc), SLOTS * 2 * SIZE + 2 * LARGE + 512 * 1024);
}
END_TEST

START_TEST(dies)
{
	put(5, 0, 3000);
	fake_break(&fake[0]);
	rc_poll(end[0].rc);
	ck_assert_int_eq(end[0].died, 1);
	ck_assert(rc_dead(end[0].rc));
	ck_assert_uint_eq(put(5, 0, 100), 100);		/* no crash, the bytes stay held */
	ck_assert_uint_eq(dir[5][0].tx.wr - dir[5][0].tx.rd, 3100);
	rc_credit(end[0].rc, 5);
	rc_arm(end[0].rc);
	ck_assert(!rc_poll(end[0].rc));
	rc_kill(end[1].rc);
	ck_assert_int_eq(end[1].died, 1);
	rc_kill(end[1].rc);
	ck_assert_int_eq(end[1].died, 1);	/* told once */
}
END_TEST

/* The device may go while somebody still waits for the peer: all that is the device's is given
 * back, and what is left can be called. */
START_TEST(lets_go)
{
	const uint8_t *ring;
	uint8_t *mine;
	uint64_t addr = 0;
	uint32_t key = 0;

	put(5, 0, 3000);
	settle();
	grow(5, 0);
	ck_assert(grow(5, 0));
	put(5, 0, 3000);
	for (int s = 0; s < 2; s++) {
		struct rc *rc = end[s].rc;

		rc_kill(rc);
		rc_release(rc);
		ck_assert_int_eq(end[s].died, 1);
		for (unsigned i = 0; i < fake[s].mrs; i++)
			ck_assert(!fake[s].mr[i].live);
		ck_assert_ptr_null(fake[s].id.qp);
		ck_assert_int_eq(rc_fd(rc), -1);
		ck_assert_uint_eq(rc_registered(rc), 0);
		ck_assert_str_eq(rc_device(rc), "");
		ck_assert_uint_eq(rc_mtu(rc), 0);
		ck_assert(!rc_poll(rc));
		rc_arm(rc);
		rc_arm_own(rc);
		rc_event(rc);
		rc_credit(rc, 5);
		rc_kill(rc);
		ck_assert(!rc_waits(rc));
		ck_assert_int_eq(rc_slot_bind(rc, 6, 2, &addr, &key), -ENETDOWN);
		rc_slot_peer(rc, 6, 0, 0);
		ck_assert_uint_eq(rc_large_land(rc, 3, &ring, &addr, &key), 0);
		ck_assert_int_eq(rc_large_peer(rc, 3, LARGE, addr, key, &mine), 0);
		rc_slot_unbind(rc, 5);
		rc_slot_left(rc, 5);
	}
	ck_assert_int_eq(fake_made, 0);
	/* what is not consumed is held still */
	for (uint64_t at = dir[5][0].tx.rd; at < dir[5][0].tx.wr; at++) {
		size_t n;

		ck_assert_uint_eq(*ring_tx_held(&dir[5][0].tx, at, &n), pattern(5, 0, at));
	}
	ck_assert_uint_eq(put(4, 0, 100), 100);
}
END_TEST

/* A dead queue pair is noticed by posting alone too. */
START_TEST(dies_posting)
{
	fake[0].broken = true;
	put(5, 0, 3000);
	ck_assert_int_eq(end[0].died, 1);
}
END_TEST

static void looks(enum rc_looks want, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(rc_look(end[0].rc), want);
}

/* A device that is given something, completes nothing and reports nothing, is found out; only
 * looks that find nothing new in a row count. */
START_TEST(stuck)
{
	put(5, 0, 3000);
	ck_assert_int_eq(end[0].busy, 1);
	put(6, 0, 3000);
	ck_assert_int_eq(end[0].busy, 1);
	looks(RC_BUSY, RC_LOOKS - 1);
	fake_run();
	looks(RC_IDLE, 1);	/* after that it is told of anew */
	ck_assert(!rc_busy(end[0].rc));
	put(5, 0, 3000);
	ck_assert_int_eq(end[0].busy, 2);
	looks(RC_BUSY, RC_LOOKS - 1);
	looks(RC_STUCK, 1);
	ck_assert_int_eq(end[0].died, 0);	/* the caller's part */
}
END_TEST

/* What bears no completion of its own does not make a queue pair that is well look stuck:
 * something that bears one follows, once. */
START_TEST(unsignalled)
{
	unsigned sends;

	settle();
	for (int i = 0; i < 40; i++) {
		put(5, 0, 300);
		settle();
		get(5, 0, SIZE);
		settle();
	}
	for (int i = 0; rc_look(end[0].rc) != RC_IDLE && i < 3; i++)
		fake_run();
	put(5, 0, 3000);
	fake_run();
	sends = fake[0].sends;
	ck_assert_int_eq(rc_look(end[0].rc), RC_BUSY);	/* or the test tests nothing */
	ck_assert_uint_eq(fake[0].sends, sends + 1);
	fake_run();
	looks(RC_IDLE, 3);
	ck_assert_uint_eq(fake[0].sends, sends + 1);
}
END_TEST

/* A peer that is stopped takes nothing up; its device completes all the same, so that the queue
 * pair does not look stuck. */
START_TEST(peer_stopped)
{
	for (int i = 0; i < 3 * RC_RECVS; i++) {
		put(5, 0, 16);
		fake_run();
		rc_poll(end[0].rc);
		dir[5][0].tx.rd = dir[5][0].tx.wr;	/* as if it were read: a ring's room is
							 * not the matter */
		looks(rc_look(end[0].rc), 1);
	}
	for (int i = 0; i < 2 * RC_LOOKS; i++) {
		ck_assert_int_ne(rc_look(end[0].rc), RC_STUCK);
		fake_run();
	}
}
END_TEST

/* Whatever the device refuses, be it for a limit on locked memory or of its own: an error, and
 * nothing is left behind. */
START_TEST(refused)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0] };
	struct rdma_cm_id id = { .verbs = &fake[0].ctx };
	uint64_t addr;
	uint32_t key;
	int made = fake_made, r = -1;
	unsigned n;

	for (n = 1; r; n++) {
		struct rc *rc = rc_new(&end[0].a, &c);

		ck_assert_ptr_nonnull(rc);
		errno = 0;
		fake_fail = n;
		r = rc_open(rc, &id);
		ck_assert(r == 0 || r == -ENOMEM);
		for (unsigned k = 1; !r && k <= 3; k++) {	/* two regions */
			fake_fail = k;
			errno = 0;
			ck_assert_int_eq(rc_slot_bind(rc, 3, 1, &addr, &key), k <= 2 ? -ENOMEM : 0);
		}
		rc_close(rc);
		ck_assert_ptr_null(id.qp);
		ck_assert_int_eq(fake_made, made);
	}
	ck_assert_uint_eq(n, 7);	/* for all of the five: domain, memory, channel, queue,
					 * queue pair */
}
END_TEST
