/*
 * stat_list.h - a part of test_stat.c: the list of files, and calls.
 */
static int bad_files;

static void count_bad(const char *path, int error, const struct stat_proc *p)
{
	(void)p;
	(void)path;
	(void)error;
	bad_files++;
}

/* A child that leaves a counter file with one connection and 50 bytes, killed without any
 * clean-up. */
static pid_t dead_child(void)
{
	pid_t pid = fork();

	if (!pid) {
		if (stat_open("dead", ""))
			_exit(1);
		live_row(1)->tx_bytes[PATH_SHM] = 50;
		kill(getpid(), SIGKILL);
	}
	return pid;
}

START_TEST(test_list)
{
	struct stat_list l;
	char path[128];
	struct stat st;
	pid_t pid = dead_child();
	int fd;

	waitpid(pid, NULL, 0);
	ck_assert_int_eq(stat_open("alive", ""), 0);
	snprintf(path, sizeof(path), "%s/123", dir);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_eq(write(fd, "garbage", 7), 7);
	close(fd);
	snprintf(path, sizeof(path), "%s/%d", dir, (int)pid);

	/* only one pid: the others, dead ones too, are left alone */
	ck_assert_int_eq(statfile_list(false, getpid(), count_bad, &l), 0);
	ck_assert_uint_eq(l.n, 1);
	ck_assert_str_eq(l.proc[0].program, "alive");
	stat_list_clear(&l);
	ck_assert_int_eq(bad_files, 0);
	ck_assert_int_eq(stat(path, &st), 0);

	/* the dead one is shown once, then removed */
	ck_assert_int_eq(statfile_list(true, 0, count_bad, &l), 0);
	ck_assert_int_eq(bad_files, 1);
	ck_assert_uint_eq(l.bad, 1);
	ck_assert_uint_eq(l.n, 2);
	ck_assert_int_eq(l.proc[0].dead + l.proc[1].dead, 1);
	ck_assert_uint_eq(l.proc[l.proc[0].dead ? 0 : 1].tx_bytes[PATH_SHM], 50);
	stat_list_clear(&l);
	ck_assert_int_eq(statfile_list(true, 0, NULL, &l), 0);
	ck_assert_uint_eq(l.n, 1);
	stat_list_clear(&l);
	ck_assert_int_lt(stat(path, &st), 0);
	ck_assert_int_eq(stat(file, &st), 0);

	/* a directory that others can write is not believed */
	ck_assert_int_eq(chmod(dir, 0770), 0);
	ck_assert_int_eq(statfile_list(true, 0, count_bad, &l), 0);
	ck_assert_uint_eq(l.n, 0);
	ck_assert_int_eq(bad_files, 2);
	chmod(dir, 0700);
}
END_TEST

/* A dead process's pid that was given to another process, and a pid of another namespace. */
START_TEST(test_gone)
{
	struct stat_header *h;
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	h = map_own();
	ck_assert_uint_ne(h->start_time, 0);
	ck_assert_uint_ne(h->pid_ns, 0);
	h->start_time++;
	read_self(&p);
	ck_assert(stat_proc_gone(&p));
	p.pid_ns++;
	ck_assert(!stat_proc_gone(&p));
	stat_proc_clear(&p);
	h->start_time--;
	read_self(&p);
	ck_assert(!stat_proc_gone(&p));
	stat_proc_clear(&p);
}
END_TEST

/* A listing while processes come and die must never fail, whatever it happens to see. */
START_TEST(test_churn)
{
	struct stat_list l;
	pid_t pid[16] = { 0 };
	int i, round, st;

	for (round = 0; round < 40; round++) {
		for (i = 0; i < 16; i++)
			pid[i] = dead_child();
		bad_files = 0;
		ck_assert_int_eq(statfile_list(true, 0, NULL, &l), 0);
		stat_list_clear(&l);
		for (i = 0; i < 16; i++)
			waitpid(pid[i], &st, 0);
	}
	ck_assert_int_eq(statfile_list(false, 0, count_bad, &l), 0);
	ck_assert_uint_eq(l.n, 0);
	stat_list_clear(&l);
}
END_TEST

/* ---- calls ---- */

static const char *name_of(unsigned call) { return call ? "second" : "first"; }

enum { CALLERS = 40, CALLS_EACH = 1000 };
static pthread_barrier_t all_here;

static void *call_often(void *together)
{
	stat_calls_attach();
	if (together)
		pthread_barrier_wait(&all_here);
	for (int i = 0; i < CALLS_EACH; i++)
		stat_call(1, i & 1);
	return NULL;
}

static uint64_t calls_now(unsigned call, int fast)
{
	struct stat_proc p;
	uint64_t n;

	read_self(&p);
	n = p.calls[call][fast];
	ck_assert_str_eq(p.call[0], "first");
	ck_assert_str_eq(p.call[1], "second");
	ck_assert_str_eq(p.call[2], "");
	stat_proc_clear(&p);
	return n;
}

/* Exact for as many threads as there are blocks at a time, however many in all; a child counts
 * in its own file. */
START_TEST(test_calls)
{
	pthread_t t[CALLERS];
	int st;

	stat_call(0, 0);		/* no file yet: goes nowhere */
	stat_calls_attach();
	ck_assert_ptr_eq(stat_my_calls, &stat_no_calls);
	ck_assert_int_eq(stat_open("p", ""), 0);
	stat_calls_name(2, name_of);
	stat_calls_attach();
	stat_call(0, 1);
	ck_assert_uint_eq(calls_now(0, 1), 1);
	ck_assert_uint_eq(calls_now(0, 0), 0);
	pthread_barrier_init(&all_here, NULL, CALLERS);
	for (int i = 0; i < CALLERS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, call_often, t), 0);
	for (int i = 0; i < CALLERS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 3 * STAT_CALL_BLOCKS; i++) {
		ck_assert_int_eq(pthread_create(&t[0], NULL, call_often, NULL), 0);
		pthread_join(t[0], NULL);
	}
	ck_assert_uint_eq(calls_now(1, 0), (CALLERS + 3 * STAT_CALL_BLOCKS) * CALLS_EACH / 2);
	ck_assert_uint_eq(calls_now(1, 1), (CALLERS + 3 * STAT_CALL_BLOCKS) * CALLS_EACH / 2);
	if (!fork()) {
		stat_after_fork();
		stat_calls_attach();
		stat_call(0, 1);
		_exit(stat_my_calls != &stat_no_calls);
	}
	ck_assert_int_gt(wait(&st), 0);
	ck_assert_int_eq(st, 0);
	ck_assert_uint_eq(calls_now(0, 1), 1);
}
END_TEST

/* Calls that are counted by connection: seen while it lives, kept when it is closed, counted
 * once when its row is used again. */
START_TEST(test_moves)
{
	static const uint8_t call[] = { 1, 0 };		/* the first kind is called "second" */
	struct stat_row *row = stat_row_alloc();
	struct stat_moves *m = stat_row_moves(row), *other;

	stat_move(&m->n[0][0]);		/* no file yet: a dummy's */
	ck_assert_int_eq(stat_open("p", ""), 0);
	stat_calls_name(2, name_of);
	stat_moves_name(2, call);
	stat_calls_attach();
	stat_call(1, 1);
	for (int round = 1; round <= 3; round++) {
		row = stat_row_alloc();
		m = stat_row_moves(row);
		ck_assert_uint_eq(m->n[0][0] | m->n[1][0] | m->n[1][1], 0);
		for (int i = 0; i < 5; i++)
			stat_move(&m->n[1][0]);
		stat_move(&m->n[0][1]);
		ck_assert_uint_eq(calls_now(1, 1), 1 + (uint64_t)round * 5);
		ck_assert_uint_eq(calls_now(0, 0), (uint64_t)round);
		if (round == 2) {	/* two at once */
			other = stat_row_moves(stat_row_alloc());
			ck_assert_ptr_ne(other, m);
			stat_move(&other->n[1][1]);
			ck_assert_uint_eq(calls_now(0, 1), 1);
		}
		stat_row_free(row);
		ck_assert_uint_eq(calls_now(1, 1), 1 + (uint64_t)round * 5);
		ck_assert_uint_eq(calls_now(0, 0), (uint64_t)round);
	}
	/* in a child the parent's rows count for nobody, and harm nobody */
	row = stat_row_alloc();
	m = stat_row_moves(row);
	if (!fork()) {
		stat_after_fork();
		stat_move(&m->n[1][0]);
		stat_row_free(row);
		_exit(stat_open("p", "") != 0);
	}
	{
		int st;

		ck_assert_int_gt(wait(&st), 0);
		ck_assert_int_eq(st, 0);
	}
	ck_assert_uint_eq(calls_now(1, 1), 16);
}
END_TEST
