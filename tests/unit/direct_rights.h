/*
 * direct_rights.h - a part of test_direct.c: whose memory it is, and who may read it.
 */
static struct ring_shared elsewhere_sh;

/* An offer by a sender who says that he has our memory there. */
static void refused_with(uint64_t offer_sh)
{
	offered(0);
	atomic_store(&sh.offer_sh, offer_sh);
	ck_assert_int_eq(take(&iov, 1), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_REFUSED);
}

/* The process has become another one: what it has at the address of our memory is not what we
 * wrote there. */
START_TEST(of_another_process)
{
	begin();
	refused_with((uintptr_t)&elsewhere_sh);
	ck_assert_uint_eq(rx.rcv.cut.rd, 0);
	/* Never again, whatever it says next. */
	refused_with((uintptr_t)&sh);
}
END_TEST

/* There is nothing at that address: then not a byte of the block is read, either. */
START_TEST(of_a_program_without_us)
{
	begin();
	refused_with(4096);
	ck_assert_int_eq(buffer[0], 0);
	ck_assert(atomic_load(&peer_of_rx.no_read));
}
END_TEST

/* A bad address in the very process is the caller's own fault. */
START_TEST(a_bad_address)
{
	begin();
	offered(0);
	atomic_store(&sh.offer_addr, 4096);
	ck_assert_int_eq(take(&iov, 1), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_DECLINED);
	ck_assert(!atomic_load(&peer_of_rx.no_read));
}
END_TEST

START_TEST(of_another_user)
{
	begin();
	atomic_store(&peer_of_tx.no_direct, true);
	atomic_store(&peer_of_rx.no_read, true);
	ck_assert_int_eq(direct_send(&tx, block, N), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer_addr), 0);
	offered(0);
	ck_assert_int_eq(take(&iov, 1), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_REFUSED);
}
END_TEST

static void is_refused(void)
{
	ck_assert_int_eq(direct_send(&tx, block, N), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer_addr), 0);
	ck_assert(atomic_load(&peer_of_tx.no_direct));
	offered(0);
	ck_assert_int_eq(take(&iov, 1), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_REFUSED);
	ck_assert_int_eq(buffer[0], 0);
	ck_assert(atomic_load(&peer_of_rx.no_read));
	ck_assert_uint_eq(atomic_load(&rx.rcv.lock.v), 0);
	ck_assert_uint_eq(thread_signals.critical, 0);
}

/* The peer must have what we have, and be in no sandbox that we are not in. The other way round
 * is fine. */
static const struct peer_rights lesser[] = {
	{ .plain = false, .uid = 1, .gid = 1, .caps = 6 }, { .plain = true, .uid = 2, .gid = 1,
							     .caps = 6 },
	{ .plain = true, .uid = 1, .gid = 2, .caps = 6 }, { .plain = true, .uid = 1, .gid = 1,
							    .caps = 5 },
	{ .plain = true, .uid = 1, .gid = 1, .caps = 6, .filters = 1 },
	{ .plain = true, .uid = 1, .gid = 1, .caps = 6, .no_new_privs = true },
	{ .plain = true, .uid = 1, .gid = 1, .caps = 6, .user_ns = 1 },
	{ .plain = true, .uid = 1, .gid = 1, .caps = 6, .pid_ns = 1 },
	{ .plain = true, .uid = 1, .gid = 1, .caps = 6, .label = 1 },
};
static const struct peer_rights whole = { .plain = true, .uid = 1, .gid = 1, .caps = 6 };

START_TEST(of_lesser_rights)
{
	begin();
	ours = whole;
	theirs = lesser[_i];
	is_refused();
}
END_TEST

/* What the kernel hides from all others: only if we are root, as whom every program of the
 * peer's has it. */
START_TEST(of_rights_by_exec)
{
	for (uid_t uid = 0; uid < 2; uid++) {
		begin();
		ours = theirs = whole;
		ours.caps = theirs.caps = 1ull << CAP_SYS_PTRACE;
		ours.uid = theirs.uid = uid;
		takes = true;
		ck_assert_int_eq(direct_send(&tx, block, N), uid ? 0 : N);
	}
	memset(buffer, 0, N);
	is_refused();
}
END_TEST

START_TEST(of_more_rights)
{
	begin();
	theirs = whole;
	theirs.caps = 7;
	ours = whole;
	ours.filters = 2;
	ours.no_new_privs = true;
	offered(0);
	ck_assert_int_eq(take(&iov, 1), N);
	takes = true;
	ck_assert_int_eq(direct_send(&tx, block, N), N);
}
END_TEST

static void later(uint64_t ns)
{
	for (uint64_t end = test_now() + ns; test_now() < end;)
		;
}

static void one_block_goes(void)
{
	takes = true;
	ck_assert_int_eq(direct_send(&tx, block, N), N);
	memset(buffer, 0, N);
	takes = false;
}

/* At the next look at rights. */
static void is_refused_by_now(void)
{
	later(LOOK_NS);
	atomic_store(&sh.offer_addr, 0);
	is_refused();
}

/* It has given rights up since the link was made, and may have been taken over. */
START_TEST(of_lesser_rights_by_now)
{
	begin();
	ours = theirs = whole;
	one_block_goes();
	theirs = lesser[_i];
	is_refused_by_now();
}
END_TEST

/* We are another user by now, in one of the three. */
START_TEST(of_another_user_by_now)
{
	begin();
	one_block_goes();
	if (_i)
		ours.uid++;
	else
		ours.plain = false;
	is_refused_by_now();
}
END_TEST

/* The number that the peer reads by is our parent's: we have but a copy of what it has. */
START_TEST(of_a_copy)
{
	begin();
	takes = true;
	copied = true;
	atomic_store(&sh.offer_addr, 0);
	ck_assert_int_eq(direct_send(&tx, block, N), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer_addr), 0);
	copied = false;
	ck_assert_int_eq(direct_send(&tx, block, N), N);
}
END_TEST

/* Not for each block: it takes 30 us. */
START_TEST(rights_are_looked_at_now_and_then)
{
	begin();
	takes = true;
	looks_at_rights = 0;
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(direct_send(&tx, block, N), N);
	ck_assert_int_eq(looks_at_rights, 3);	/* of us, of the peer by each link */
}
END_TEST

/* We gave some up, and then made a link with one who has no more than that. */
START_TEST(ours_had_been_more)
{
	begin();
	takes = true;
	ours.caps = theirs.caps = 7;
	ck_assert_int_eq(direct_send(&tx, block, N), N);
	ours.caps = theirs.caps = 6;
	peer_of_tx.looked_ns = peer_of_rx.looked_ns = 0;
	ck_assert_int_eq(direct_send(&tx, block, N), N);
}
END_TEST

/* Nobody's fault: another time. */
START_TEST(rights_that_nobody_tells)
{
	begin();
	unknown = true;
	ck_assert_int_eq(direct_send(&tx, block, N), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer_addr), 0);
	offered(0);
	ck_assert_int_eq(take(&iov, 1), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_DECLINED);
	unknown = false;
	later(LOOK_NS);
	offered(0);
	ck_assert_int_eq(take(&iov, 1), N);
	takes = true;
	ck_assert_int_eq(direct_send(&tx, block, N), N);
}
END_TEST

/* The process ends while its memory is read, and its number may be another's. What was read is
 * nothing. */
static void ends(void) { gone = true; }

START_TEST(of_a_process_that_has_ended)
{
	begin();
	offered(0);
	meanwhile = ends;
	ck_assert_int_eq(take(&iov, 1), 0);
	nothing_counts();
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_REFUSED);
	ck_assert(atomic_load(&peer_of_rx.no_read));
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(buffer[i], 0);
}
END_TEST
