/*
 * stat_histories.h - a part of test_stat.c: histories, places, links.
 */
static size_t past_of(uint32_t fd, struct stat_past *past)
{
	struct stat_list l;

	memset(past, 0, sizeof(*past));
	ck_assert_int_eq(statfile_list(false, getpid(), NULL, &l), 0);
	ck_assert_uint_eq(l.n, 1);
	for (size_t i = 0; i < l.proc[0].nconns; i++)
		if (l.proc[0].conns[i].fd == fd)
			ck_assert_int_eq(statfile_history(&l.proc[0], &l.proc[0].conns[i], past),
					 0);
	stat_list_clear(&l);
	return past->n;
}

START_TEST(test_history)
{
	struct timespec now;
	struct stat_past past;
	struct stat_list l;
	struct stat_row *r = stat_row_alloc();
	pid_t pid;
	int st;

	stat_row_event(r, EVENT_EARNED, 0);	/* the dummy: no place for it */
	ck_assert_int_eq(stat_open("p", "/etc/p.conf"), 0);
	r = live_row(7);
	live_row(8);
	ck_assert_uint_eq(past_of(7, &past), 0);
	stat_row_reason(r, REASON_NOT_EARNED);
	stat_row_reason(r, REASON_NOT_EARNED);
	stat_row_rule(r, 12);
	stat_row_rule(r, 12);
	stat_row_rule(r, 0);
	ck_assert_uint_eq(r->rule_at, 0);
	stat_row_rule(r, 9);
	stat_row_reason(r, REASON_POLICY);
	ck_assert_uint_eq(past_of(8, &past), 0);
	ck_assert_uint_eq(past_of(7, &past), 5);
	ck_assert(past.at[0].kind == EVENT_REASON && past.at[0].reason == REASON_NOT_EARNED);
	ck_assert(past.at[1].kind == EVENT_RULE && past.at[1].arg == 12 && past.at[2].arg == 0);
	ck_assert(past.at[4].kind == EVENT_REASON && past.at[4].reason == REASON_POLICY &&
		  past.at[4].arg == 9);
	clock_gettime(CLOCK_REALTIME, &now);
	ck_assert_uint_le(past.at[0].when, past.at[4].when);
	ck_assert_uint_le((uint64_t)now.tv_sec - 60, past.at[0].when / 1000000);
	ck_assert_uint_le(past.at[0].when / 1000000, (uint64_t)now.tv_sec);
	/* the first six stay, and the last ten */
	for (uint64_t i = 5; i < 1000; i++)
		stat_row_event(r, EVENT_CUT_TX, i);
	ck_assert_uint_eq(past_of(7, &past), STAT_EVENTS);
	ck_assert_uint_eq(past.left_out, 1000 - STAT_EVENTS);
	ck_assert_uint_eq(past.at[5].arg, 5);
	for (int i = 6; i < STAT_EVENTS; i++)
		ck_assert_uint_eq(past.at[i].arg, 1000 - STAT_EVENTS + (uint64_t)i);
	/* a child adds nothing to its parent's rows, not even to its copy of them */
	pid = fork();
	if (!pid) {
		stat_after_fork();
		stat_row_event(r, EVENT_LINKED, 1);
		_exit(stat_open("child", "") != 0 || past_of(7, &past) != 0);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	ck_assert_uint_eq(past_of(7, &past), STAT_EVENTS);
	ck_assert_uint_eq(past.at[STAT_EVENTS - 1].kind, EVENT_CUT_TX);
	/* the next connection in the row starts anew, and the old one's is gone */
	ck_assert_int_eq(statfile_list(false, getpid(), NULL, &l), 0);
	stat_row_free(r);
	r = live_row(9);
	ck_assert_int_eq(statfile_history(&l.proc[0], &l.proc[0].conns[0], &past), -ENOENT);
	stat_list_clear(&l);
	ck_assert_uint_eq(past_of(9, &past), 0);
	stat_row_event(r, EVENT_SEARCH, 1);
	ck_assert_uint_eq(past_of(9, &past), 1);
	ck_assert(past.at[0].kind == EVENT_SEARCH && past.at[0].arg == 1);
	ck_assert_uint_eq(past.left_out, 0);
	ck_assert_str_eq(event_name(EVENT_CUT_RX), "cut-rx");
	ck_assert_str_eq(event_name(EVENT_COUNT), "?");
	ck_assert_str_eq(event_text(~0u), "?");
}
END_TEST

/* Each thread's events have its number and kind in both halves: whatever is read, they belong
 * together. */
static struct stat_row *busy_row;
static _Atomic int busy_stop;

static void *add_events(void *arg)
{
	uint64_t me = (uintptr_t)arg;

	for (uint64_t i = 0; !busy_stop; i++)
		stat_row_event(busy_row, (enum stat_event_kind)(EVENT_CUT_TX + me), i << 8 | me);
	return NULL;
}

START_TEST(test_history_threads)
{
	struct stat_past past;
	struct stat_list l;
	pthread_t t[2];
	size_t seen = 0;

	ck_assert_int_eq(stat_open("p", ""), 0);
	busy_row = live_row(7);
	ck_assert_int_eq(statfile_list(false, getpid(), NULL, &l), 0);
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, add_events, (void *)i), 0);
	for (int k = 0; k < 2000 || !seen; k++) {
		if (k % 100) {
			memset(&past, 0, sizeof(past));
			ck_assert_int_eq(statfile_history(&l.proc[0], &l.proc[0].conns[0], &past),
					 0);
		} else {
			past_of(7, &past);
		}
		for (size_t i = 0; i < past.n; i++)
			ck_assert_uint_eq(past.at[i].kind, EVENT_CUT_TX + (past.at[i].arg & 0xff));
		seen += past.n;
	}
	busy_stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_ge(past_of(7, &past), STAT_EVENTS_FIRST);
	stat_list_clear(&l);
}
END_TEST

START_TEST(test_sites)
{
	struct stat_call_site *a;
	struct stat_proc p;

	/* no file yet: goes nowhere */
	ck_assert_ptr_nonnull(stat_call_site_add(false, "nowhere"));
	ck_assert_int_eq(stat_open("p", ""), 0);
	a = stat_call_site_add(true, "f+0x1 < g\033");
	a->bytes = 1000;
	a->taken = 600;
	a->why[REASON_DEVICE_WRITTEN] = 400;
	a->copies = UINT64_MAX;		/* no writer writes that */
	read_self(&p);
	ck_assert_uint_eq(p.ncall_sites, 1);
	ck_assert(p.sites[0].rx);
	ck_assert_str_eq(p.sites[0].where, "f+0x1 < g?");
	ck_assert_uint_eq(p.sites[0].bytes, 1000);
	ck_assert_uint_eq(p.sites[0].taken, 600);
	ck_assert_uint_eq(p.sites[0].copies, 0);
	ck_assert_uint_eq(p.sites[0].why[REASON_DEVICE_WRITTEN], 400);
	ck_assert_uint_eq(p.sites[0].why[REASON_DEVICE_UNSENT], 0);
	stat_proc_clear(&p);
	for (int i = 1; i < STAT_SITES; i++)
		ck_assert_ptr_eq(stat_call_site_add(false, "another"), a + i);
	a = stat_call_site_add(false, "one too many");
	a->bytes = 7;
	read_self(&p);
	ck_assert_uint_eq(p.ncall_sites, STAT_SITES);
	for (int i = 0; i < STAT_SITES; i++)
		ck_assert_uint_ne(p.sites[i].bytes, 7);
	stat_proc_clear(&p);
}
END_TEST

START_TEST(test_links)
{
	struct stat_link *a, *b, *out;
	struct stat_proc p;

	out = live_link(0, 9);			/* no file yet: goes nowhere */
	ck_assert_int_eq(stat_open("p", ""), 0);
	read_self(&p);
	ck_assert_uint_eq(p.nqps, 0);
	ck_assert_ptr_eq(stat_link_begin(STAT_LINKS), out);
	a = live_link(STAT_LINKS - 1, 7);
	a->kind = STAT_LINK_ROCE;
	a->mtu = 1024;
	a->rtt = 5;
	a->streams = 3;
	a->port = 2;
	a->family = AF_INET6;
	a->lgid[3] = 1;
	a->pgid[4] = 2;
	a->laddr[5] = 3;
	a->paddr[6] = 4;
	a->lport = 10;
	a->pport = 11;
	strcpy(a->device, "rxe\0330");
	b = live_link(0, 20);
	stat_link_begin(1);			/* being written */
	stat_link_free(live_link(2, 30));
	read_self(&p);
	ck_assert_uint_eq(p.nqps, 2);
	ck_assert_uint_eq(p.qps[0].qpn, 20);
	ck_assert_uint_eq(p.qps[0].family, 0);
	ck_assert_uint_eq(p.qps[1].qpn, 7);
	ck_assert_uint_eq(p.qps[1].peer_qpn, 8);
	ck_assert_int_eq(p.qps[1].phase, STAT_LINK_UP);
	ck_assert_int_eq(p.qps[1].kind, STAT_LINK_ROCE);
	ck_assert_uint_eq(p.qps[1].mtu, 1024);
	ck_assert_uint_eq(p.qps[1].rtt, 5);
	ck_assert_uint_eq(p.qps[1].streams, 3);
	ck_assert_uint_eq(p.qps[1].port, 2);
	ck_assert_int_eq(p.qps[1].family, AF_INET6);
	ck_assert(p.qps[1].lgid[3] == 1 && p.qps[1].pgid[4] == 2 && p.qps[1].laddr[5] == 3 &&
		  p.qps[1].paddr[6] == 4);
	ck_assert(p.qps[1].lport == 10 && p.qps[1].pport == 11);
	ck_assert_str_eq(p.qps[1].device, "rxe?0");
	stat_proc_clear(&p);
	/* the same place each time, and nothing is left there */
	ck_assert_ptr_eq(stat_link_begin(STAT_LINKS - 1), a);
	stat_link_publish(a);
	/* what no writer writes */
	b->family = 99;
	read_self(&p);
	ck_assert_uint_eq(p.nqps, 1);
	ck_assert_uint_eq(p.qps[0].qpn + p.qps[0].rtt + p.qps[0].streams + p.qps[0].lgid[3], 0);
	stat_proc_clear(&p);
	b->family = 0;
	for (int i = 0; i < 4; i++) {
		b->phase = i == 0 ? STAT_LINK_PHASES : STAT_LINK_UP;
		b->kind = i == 1 ? STAT_LINK_KINDS : STAT_LINK_IWARP;
		b->mtu = i == 2 ? 4097 : 4096;
		read_self(&p);
		ck_assert_uint_eq(p.nqps, i == 3 ? 2 : 1);
		stat_proc_clear(&p);
	}
	/* times three is two */
	((struct stat_links *)((char *)stat_self() + LINKS_AT))->used = 0x55555556;
	ck_assert_int_eq(statfile_read(dirfd_, own_name(), geteuid(), &p), -EBADMSG);
}
END_TEST

START_TEST(test_torn_link)
{
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	tear_link = live_link(0, 1);
	live_link(1, 3);
	tear_in = _i % 3;
	tear_back = _i / 3;
	read_self(&p);
	ck_assert_int_lt(tear_in, 0);
	ck_assert_uint_ge(p.nqps, 1);
	ck_assert_uint_eq(p.qps[p.nqps - 1].qpn, 3);
	if (p.nqps == 2)
		ck_assert_uint_eq(p.qps[0].qpn + 1, p.qps[0].peer_qpn);
	stat_proc_clear(&p);
}
END_TEST
