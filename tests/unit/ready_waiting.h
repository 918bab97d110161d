/*
 * ready_waiting.h - a part of test_ready.c: threads that wait.
 */
START_TEST(timeouts)
{
	static const uint64_t ns[] = { 300000, 5000000, 40000000 };

	make();
	if (_i & 1)
		cut_fd(0, EPOLLIN, 1);
	spin_ns = _i & 2 ? 1000000 : 0;
	for (int i = 0; i < 3; i++) {
		uint64_t t0 = now_ns(), took;

		ck_assert_int_eq(ready_epoll_wait(e, ep, got, 8, t0 + ns[i], NULL), 0);
		took = now_ns() - t0;
		ck_assert_uint_ge(took, ns[i]);
		ck_assert_uint_lt(took, ns[i] + 500000000);
	}
}
END_TEST

START_TEST(interrupted)
{
	sigset_t none, block;

	make();
	if (_i & 1)
		cut_fd(0, EPOLLIN, 1);
	sigemptyset(&none);
	if (_i & 2) {		/* blocked but for the wait */
		sigemptyset(&block);
		sigaddset(&block, SIGALRM);
		sigprocmask(SIG_BLOCK, &block, NULL);
	}
	alarm_in_ms(20);
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 8, in_ms(5000), _i & 2 ? &none : NULL),
			 -EINTR);
	ck_assert_uint_eq(e->sleepers, 0);
	ck_assert_uint_eq(bells[0].sleeping, 0);
}
END_TEST

struct waiter { pthread_t t; uint64_t deadline; struct epoll_event ev[8]; int r; };

static void *wait_thread(void *arg)
{
	struct waiter *w = arg;

	w->r = ready_epoll_wait(e, ep, w->ev, 8, w->deadline, NULL);
	return NULL;
}

static void until_asleep(uint32_t n)
{
	while (atomic_load(&e->sleepers) != n)
		sched_yield();
	usleep(5000);
}

/* The thread is in the kernel before the stream is armed, cut and readable. */
START_TEST(armed_while_asleep)
{
	struct waiter w = { .deadline = in_ms(5000) };
	int fd;

	make();
	fd = stream_fd(0, MODE_NEW, &peer);
	ck_assert_int_eq(add(fd, EPOLLIN, 11), 0);
	pthread_create(&w.t, NULL, wait_thread, &w);
	until_asleep(1);
	atomic_store(&streams[0].mode, MODE_ATTACHED);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	usleep(5000);
	cut(0);
	usleep(5000);
	shows(0, EPOLLIN);
	pthread_join(w.t, NULL);
	ck_assert_int_eq(w.r, 1);
	ck_assert_uint_eq(w.ev[0].data.u64, 11);
	ck_assert_uint_eq(e->sleepers, 0);
}
END_TEST

static _Atomic int turns;

static void *pong(void *arg)
{
	int rounds = *(int *)arg;

	for (int i = 0; i < rounds; i++) {
		struct epoll_event ev;
		int n = ready_epoll_wait(e, ep, &ev, 1, in_ms(5000), NULL);

		if (n != 1 || ev.data.u64 != 1)
			return (void *)"lost";
		atomic_store(&fakes[0].synth, 0);	/* read */
		atomic_fetch_add(&turns, 1);
	}
	return NULL;
}

/* Wake-ups are not lost, with the spinner's or the sleeper's look in every place. */
START_TEST(ping_pong)
{
	int rounds = 3000;
	pthread_t t;
	void *r;

	make();
	spin_ns = _i ? 20000 : 0;
	cut_fd(0, _i & 1 ? EPOLLIN : EPOLLIN | EPOLLET, 1);
	pthread_create(&t, NULL, pong, &rounds);
	for (int i = 0; i < rounds; i++) {
		uint64_t end = in_ms(5000);

		shows(0, EPOLLIN);
		while (atomic_load(&turns) <= i && now_ns() < end)
			sched_yield();
	}
	pthread_join(t, &r);
	ck_assert_msg(!r, "%s", (char *)r);
}
END_TEST

static void comes_late(void)
{
	on_spin = NULL;
	shows(0, EPOLLIN);
}

/* It becomes readable after the last look of the spinner, before the bell is armed. */
START_TEST(look_after_arm)
{
	make();
	cut_fd(0, EPOLLIN, 1);
	on_spin = comes_late;
	NOTHING();
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 8, in_ms(2000), NULL), 1);
	ck_assert_ptr_null(on_spin);
}
END_TEST

static void says(void) { on_spin = NULL; channel_says(); }
static void came(void) { on_channel = NULL; shows(0, EPOLLIN); }
static void expect_by_channel(void)
{
	int takes = channel_takes;

	fakes[0].synth = 0;
	NOTHING();
	on_spin = says;
	on_channel = came;
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 8, in_ms(2000), NULL), 1);
	ck_assert_int_eq(channel_takes, takes + 1);
	ck_assert_uint_eq(got[0].data.u64, 1);
}

/* The device wakes the sleeper itself, who takes what came. */
START_TEST(completion_channel)
{
	struct epoll_event ev;
	int old;

	make();
	cut_fd(0, EPOLLIN, 1);
	streams[0].search.path = PATH_RDMA;
	channel_new();
	expect_by_channel();
	expect_by_channel();
	/* An event that a look without a sleep gets. */
	fakes[0].synth = 0;
	channel_says();
	NOTHING();
	ck_assert_int_eq(channel_takes, 3);
	expect_by_channel();
	/* One that is for others is no end of the wait. */
	fakes[0].synth = 0;
	on_spin = says;
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 8, in_ms(20), NULL), 0);
	ck_assert_int_eq(channel_takes, 5);
	/* Another link, whose channel may have the number of the one that is closed. */
	old = channel;
	close(old);
	channel_new();
	ck_assert_int_eq(channel, old);
	expect_by_channel();
	/* For one who looks at the instance from outside it must not be readable. */
	fakes[0].synth = 0;
	ready_watch(e, true);
	channel_says();
	ck_assert_int_eq(epoll_wait(ep, &ev, 1, 0), 0);
}
END_TEST

static void *level_thread(void *arg)
{
	struct epoll_event ev;
	int *missed = arg;

	for (int i = 0; i < 200000; i++)
		*missed += ready_epoll_wait(e, ep, &ev, 1, 0, NULL) != 1;
	return NULL;
}

/* A level that is up is told to each of several threads that look at once. */
START_TEST(level_for_all)
{
	int missed[3] = { 0 };
	pthread_t t[3];

	make();
	cut_fd(0, EPOLLIN, 1);
	shows(0, EPOLLIN);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, level_thread, &missed[i]);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(missed[i], 0);
}
END_TEST

/* A thread that went to sleep before the arming leaves with its timeout: the other's bell stays
 * armed. */
START_TEST(leaver_leaves_bell)
{
	/* both sleep before the first leaves */
	struct waiter w[2] = { { .deadline = in_ms(2000) }, { .deadline = in_ms(20000) } };
	int fd;

	make();
	fd = stream_fd(0, MODE_ATTACHED, &peer);
	atomic_store(&streams[0].mode, MODE_NEW);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	for (int i = 0; i < 2; i++) {
		pthread_create(&w[i].t, NULL, wait_thread, &w[i]);
		until_asleep((uint32_t)i + 1);
	}
	ck_assert_int_eq(ready_arm(&streams[0]), 0);	/* brings the last out, the kernel's
							 * order */
	cut(0);
	pthread_join(w[0].t, NULL);
	ck_assert_int_eq(w[0].r, 0);
	until_asleep(1);
	shows(0, EPOLLIN);
	pthread_join(w[1].t, NULL);
	ck_assert_int_eq(w[1].r, 1);
	ck_assert_uint_lt(now_ns(), w[1].deadline);
}
END_TEST

/* Tokens: stream i has tokens[i] to take. Each ONESHOT or ET report lets one thread take them
 * all. */
static _Atomic int tokens[32], taken;
static _Atomic bool stop;
static int fds[32];
static uint32_t team_events;

static void *team(void *arg)
{
	(void)arg;
	while (!stop) {
		struct epoll_event ev[2];
		int n = ready_epoll_wait(e, ep, ev, 2, in_ms(3000), NULL);

		for (int k = 0; k < n; k++) {
			int i = (int)ev[k].data.u64;

			fakes[i].synth = 0;
			atomic_fetch_add(&taken, atomic_exchange(&tokens[i], 0));
			if (team_events & EPOLLONESHOT)
				mod(fds[i], team_events, (uint64_t)i);
		}
	}
	return NULL;
}

START_TEST(team_loses_nothing)
{
	static const uint32_t kind[] = { EPOLLIN | EPOLLET, EPOLLIN | EPOLLET | EPOLLONESHOT,
					 EPOLLIN | EPOLLONESHOT, EPOLLIN };
	enum { THREADS = 4, N = 6000 };
	pthread_t t[THREADS];
	uint64_t end;

	make();
	team_events = kind[_i];
	for (int i = 0; i < 32; i++)
		fds[i] = cut_fd(i, team_events, (uint64_t)i);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, team, NULL);
	for (int i = 0; i < N; i++) {
		int k = (i * 7) % 32;

		atomic_fetch_add(&tokens[k], 1);
		shows(k, EPOLLIN);
		if (i % 64 == 63) {	/* all must be found before more comes: nobody else would
					 * wake them */
			end = in_ms(2000);
			while (atomic_load(&taken) <= i && now_ns() < end)
				sched_yield();
			ck_assert_int_eq(taken, i + 1);
			if (i % 512 == 511)
				usleep(2000);	/* let them all sleep */
		}
	}
	stop = true;
	for (int i = 0; i < THREADS; i++) {	/* the last report goes from thread to thread */
		atomic_fetch_add(&tokens[i], 1);
		shows(i, EPOLLIN);
		usleep(1000);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}
END_TEST

/* One level-triggered report wakes the second sleeper too, if the first does not read. */
START_TEST(level_is_handed_on)
{
	struct waiter w[3];

	make();
	cut_fd(0, EPOLLIN, 4);
	for (int i = 0; i < 3; i++) {
		w[i].deadline = in_ms(5000);
		pthread_create(&w[i].t, NULL, wait_thread, &w[i]);
	}
	until_asleep(3);
	shows(0, EPOLLIN);
	for (int i = 0; i < 3; i++) {
		pthread_join(w[i].t, NULL);
		ck_assert_int_eq(w[i].r, 1);
	}
	ck_assert_uint_lt(now_ns(), w[0].deadline);
	ck_assert_uint_eq(e->sleepers, 0);
	ck_assert_uint_eq(e->bell->sleeping, 0);
}
END_TEST

START_TEST(mod_wakes_sleeper)
{
	struct waiter w = { .deadline = in_ms(5000) };
	int fd;

	make();
	fd = cut_fd(0, EPOLLIN, 4);
	shows(0, EPOLLOUT);
	pthread_create(&w.t, NULL, wait_thread, &w);
	until_asleep(1);
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLOUT, 4), 0);
	pthread_join(w.t, NULL);
	ck_assert_int_eq(w.r, 1);
	ck_assert_uint_eq(w.ev[0].events, EPOLLOUT);
}
END_TEST

/* Another instance's thread took the dirty bit: what it finds must wake this one's. */
START_TEST(attention_wakes_sleeper)
{
	struct waiter w = { .deadline = in_ms(5000) };

	make();
	cut_fd(0, EPOLLIN, 4);
	pthread_create(&w.t, NULL, wait_thread, &w);
	until_asleep(1);
	fakes[0].synth = EPOLLIN;
	ready_attention(&streams[0]);
	pthread_join(w.t, NULL);
	ck_assert_int_eq(w.r, 1);
	ck_assert_uint_lt(now_ns(), w.deadline);
}
END_TEST

START_TEST(cancelled_sleeper)
{
	struct waiter w = { .deadline = UINT64_MAX };

	make();
	cut_fd(0, EPOLLIN, 4);
	pthread_create(&w.t, NULL, wait_thread, &w);
	until_asleep(1);
	pthread_cancel(w.t);
	pthread_join(w.t, NULL);
	ck_assert_uint_eq(e->sleepers, 0);
	ck_assert_uint_eq(e->bell->sleeping, 0);
	shows(0, EPOLLIN);
	EXPECT(EPOLLIN, 4);
}
END_TEST

START_TEST(child_is_plain)
{
	int p[2], status;
	pid_t pid;

	make();
	cut_fd(0, EPOLLIN, 4);
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(add(p[0], EPOLLIN, 5), 0);
	shows(0, EPOLLIN);
	ready_fork_prepare();
	pid = fork();
	if (!pid) {
		uint64_t one = 1;

		ready_after_fork();
		fakes[0].cut = false;
		fakes[0].kern = EPOLLIN | EPOLLOUT;
		/* The parent's bell is in the set: not to be seen here. */
		if (write(bells[0].fd, &one, sizeof one) < 0 ||
		    ready_epoll_wait(e, ep, got, 8, in_ms(20), NULL) != 0)
			_exit(1);
		if (write(p[1], "x", 1) < 0 ||
		    ready_epoll_wait(e, ep, got, 8, in_ms(1000), NULL) != 1)
			_exit(2);
		if (got[0].data.u64 != 5 || e->narmed || e->ncut || e->nready)
			_exit(3);
		_exit(0);
	}
	ready_fork_parent();
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	ck_assert_int_ge(look(64), 1);
}
END_TEST
