/*
 * ready_removed.h - a part of test_ready.c: registrations that the application removes, and that
 * the kernel keeps for a while.
 */
static int del(int fd) { return ctl(EPOLL_CTL_DEL, fd, 0, 0); }

static bool in_the_set(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev)) {
		ck_assert_int_eq(errno, EEXIST);
		return true;
	}
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL), 0);
	return false;
}

/* redis-benchmark removes its descriptor and adds it again with every message. */
START_TEST(removed_and_added_is_free)
{
	int fd;

	make();
	fd = cut_fd(0, EPOLLIN, 1);
	NOTHING();
	shows(0, EPOLLOUT);
	forbid(epoll_calls, sizeof epoll_calls / sizeof *epoll_calls);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(del(fd), 0);
		ck_assert_int_eq(add(fd, EPOLLOUT, 1), 0);
		ck_assert_int_eq(del(fd), 0);
		ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	}
	ck_assert_int_eq(forbidden_calls, 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), -ENOSYS);	/* the trap works */
}
END_TEST

START_TEST(removed_says_nothing)
{
	int fd;

	make();
	fd = cut_fd(0, EPOLLIN | EPOLLRDHUP, 1);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	shows(0, EPOLLIN);
	NOTHING();
	ck_assert_int_eq(shutdown(peer, SHUT_WR), 0);
	usleep(100);		/* a look into the kernel is due */
	NOTHING();
	ck_assert_int_eq(fakes[0].told, 1);
	ck_assert_int_eq(mod(fd, EPOLLIN, 1), -ENOENT);
	ck_assert(!in_the_set(fd));
	ck_assert_int_eq(del(fd), -ENOENT);
	ck_assert_int_eq(add(fd, EPOLLIN, 2), 0);
	EXPECT(EPOLLIN, 2);
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(del(fd), -ENOENT);
	ck_assert_int_eq(add(fd, EPOLLIN, 2), 0);
	EXPECT(EPOLLIN, 2);
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 3), 0);	/* other data */
	EXPECT(EPOLLIN, 3);
	EXPECT(EPOLLIN, 3);
	/* Each time it is new: an edge, a shot. */
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(del(fd), 0);
		ck_assert_int_eq(add(fd, EPOLLIN | (i == 1 ? EPOLLONESHOT : (uint32_t)EPOLLET), 3),
				 0);
		ck_assert_int_eq(add(fd, EPOLLIN, 3), -EEXIST);
		EXPECT(EPOLLIN, 3);
		NOTHING();
		usleep(100);
		NOTHING();
	}
}
END_TEST

/* What another thread does at the moment at which the kernel has answered and its events have
 * not been looked through: the time is asked for then. */
static void (*meanwhile)(void);

int clock_gettime(clockid_t which, struct timespec *t)
{
	void (*f)(void) = meanwhile;

	if (f && got[0].data.u64 == 1) {
		meanwhile = NULL;
		f();
	}
	return (int)syscall(SYS_clock_gettime, which, t);
}

static int meanwhile_fd;
static void closed_meanwhile(void) { ready_stream_forget(&streams[0], meanwhile_fd, true); }
static void tcp_only_meanwhile(void) { closed_meanwhile(); atomic_store(&e->filter, 0); }
static void added_meanwhile(void) { ck_assert_int_eq(add(meanwhile_fd, EPOLLIN, 1), 0); }

/* Apache's listener removes a connection and looks for others while a worker closes it. */
START_TEST(removed_and_closed_at_a_look)
{
	void (*const does[])(void) = { closed_meanwhile, tcp_only_meanwhile, added_meanwhile };

	make();
	meanwhile_fd = cut_fd(0, EPOLLIN, 1);
	NOTHING();
	ck_assert_int_eq(del(meanwhile_fd), 0);
	ck_assert(in_the_set(meanwhile_fd));
	ck_assert_int_eq(shutdown(peer, SHUT_WR), 0);
	usleep(100);
	memset(got, 0, sizeof got);
	meanwhile = does[_i];
	NOTHING();
	ck_assert_ptr_null(meanwhile);
	if (_i == 2) {
		ck_assert_int_eq(fakes[0].told, 1);
		shows(0, EPOLLIN);
		EXPECT(EPOLLIN, 1);
	}
}
END_TEST

/* What the kernel still has of it goes before anybody could see it. */
START_TEST(removed_is_gone)
{
	int fd, p[2];

	make();
	fd = cut_fd(0, EPOLLIN, 1);
	NOTHING();
	/* The thread sleeps. */
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 64, in_ms(2), NULL), 0);
	ck_assert(!in_the_set(fd));
	ck_assert_ptr_null(streams[0].reg.items);
	ck_assert_uint_eq(streams[0].bells, 0);
	/* Another sleeps. */
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	NOTHING();
	atomic_store(&e->sleepers, 1);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	atomic_store(&e->sleepers, 0);
	/* The kernel answers for a direction. */
	fakes[0].kern = EPOLLIN;
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	fakes[0].kern = 0;
	/* A fork. */
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ready_unpark_all(true);
	ck_assert(!in_the_set(fd));
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	ready_park_again();
	/* The data is another's now. */
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 7), 0);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	ck_assert_int_eq(add(p[0], EPOLLIN, 7), 0);
	ck_assert(!in_the_set(fd));
	close(peer);
	usleep(100);
	NOTHING();
	/* And was another's before. */
	fd = cut_fd(1, EPOLLIN, 8);
	NOTHING();
	ck_assert_int_eq(mod(p[0], EPOLLIN, 8), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	ck_assert_int_eq(del(p[0]), 0);
}
END_TEST

START_TEST(removed_is_gone_with_its_number)
{
	int fd, other;

	make();
	fd = cut_fd(1, EPOLLIN, 8);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	/* The number goes, the file lives on. */
	ck_assert_int_eq(add(fd, EPOLLIN, 8), 0);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	other = dup(fd);
	ready_stream_forget(&streams[1], fd, false);
	ck_assert_ptr_null(streams[1].reg.items);
	ck_assert(!in_the_set(fd));
	close(other);
	/* The stream falls back: the kernel answers for what is added again. */
	fd = cut_fd(2, EPOLLIN, 9);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	fakes[2].cut = false;
	fakes[2].kern = EPOLLIN | EPOLLOUT;
	atomic_store(&streams[2].mode, MODE_TCP_ONLY);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	usleep(100);
	NOTHING();
	ck_assert_int_eq(add(fd, EPOLLIN, 9), 0);
	EXPECT(EPOLLIN, 9);
	EXPECT(EPOLLIN, 9);
	/* The instance is looked at from outside, or goes. */
	fd = cut_fd(3, EPOLLIN, 10);
	ck_assert_int_eq(look(64), 1);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	ready_watch(e, true);
	ck_assert(!in_the_set(fd));
	make();
	fd = cut_fd(4, EPOLLIN, 11);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert_ptr_nonnull(streams[4].reg.items);
	ready_epoll_forget_fd(e, ep, false);
	ck_assert_ptr_null(streams[4].reg.items);
}
END_TEST

static const int on_tcp_modes[] = { MODE_NEW, MODE_TCP_FOR_NOW, MODE_TCP_ONLY };

/* Of a stream on TCP, that may be cut some day or never: the registration that is parked would
 * speak. Bytes are waiting all the time. */
START_TEST(removed_on_tcp)
{
	int fd, i = _i, p[2];

	make();
	fd = stream_fd(i, on_tcp_modes[_i], &peer);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	EXPECT(EPOLLIN, 1);
	/* Removed and added: the kernel has it all the time, and says what is asked now. */
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	ck_assert_int_eq(add(fd, EPOLLOUT | EPOLLET, 1), 0);
	ck_assert_int_eq(add(fd, EPOLLOUT | EPOLLET, 1), -EEXIST);
	EXPECT(EPOLLOUT, 1);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(add(fd, EPOLLIN | EPOLLET, 1), 0);
	EXPECT(EPOLLIN, 1);		/* an edge anew */
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(add(fd, EPOLLIN | EPOLLONESHOT, 1), 0);
	EXPECT(EPOLLIN, 1);
	NOTHING();
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(add(fd, EPOLLIN | EPOLLONESHOT, 2), 0);	/* other data */
	EXPECT(EPOLLIN, 2);
	NOTHING();
	ck_assert_int_eq(mod(fd, EPOLLIN, 2), 0);
	EXPECT(EPOLLIN, 2);
	/* Removed: a look says nothing of it, and the kernel has it no more. */
	ck_assert_int_eq(del(fd), 0);
	ck_assert_uint_eq(atomic_load(&e->aloud), 1);
	NOTHING();
	ck_assert(!in_the_set(fd));
	ck_assert_uint_eq(
		atomic_load(&e->aloud) + atomic_load(&e->filter) + atomic_load(&e->noneshot), 0);
	ck_assert_ptr_null(streams[i].reg.items);
	ck_assert_int_eq(del(fd), -ENOENT);
	ck_assert_int_eq(mod(fd, EPOLLIN, 2), -ENOENT);
	ck_assert_int_eq(add(fd, EPOLLIN, 2), 0);
	EXPECT(EPOLLIN, 2);
	/* A wait that sleeps, too, and one that comes while another thread is in the kernel. */
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 64, in_ms(2), NULL), 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 2), 0);
	atomic_store(&e->sleepers, 1);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	atomic_store(&e->sleepers, 0);
	/* Another with its data. */
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 3), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(add(p[0], EPOLLIN, 3), 0);
	ck_assert(!in_the_set(fd));
	NOTHING();
	ck_assert_int_eq(add(fd, EPOLLIN, 3), 0);
	ck_assert_int_eq(del(fd), 0);	/* whose event is it? Not kept. */
	ck_assert(!in_the_set(fd));
	ck_assert_int_eq(del(p[0]), 0);
}
END_TEST

START_TEST(removed_on_tcp_and_gone)
{
	int fd, i = _i, other;

	make();
	fd = stream_fd(i, on_tcp_modes[_i], &peer);
	/* The number goes, the file lives on; and the last number. */
	ck_assert_int_eq(add(fd, EPOLLIN, 4), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	other = dup(fd);
	ready_stream_forget(&streams[i], fd, false);
	ck_assert_ptr_null(streams[i].reg.items);
	ck_assert(!in_the_set(fd));
	ck_assert_int_eq(add(fd, EPOLLIN, 4), 0);
	ck_assert_int_eq(del(fd), 0);
	ready_stream_forget(&streams[i], fd, true);
	ck_assert(!in_the_set(fd));
	close(other);
	/* A fork, after which another process may ask the kernel at any time. */
	ck_assert_int_eq(add(fd, EPOLLIN, 5), 0);
	ck_assert_int_eq(del(fd), 0);
	ready_unpark_all(true);
	ck_assert(!in_the_set(fd));
	ready_fork_prepare();
	ready_fork_parent();
	ready_park_again();
	ck_assert_int_eq(add(fd, EPOLLIN, 5), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	/* The instance is passed on. */
	make();
	ck_assert_int_eq(add(fd, EPOLLIN, 6), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(in_the_set(fd));
	ready_shared(e);
	ck_assert(!in_the_set(fd));
	ck_assert_int_eq(add(fd, EPOLLIN, 6), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
}
END_TEST

/* It is cut while it is parked: taken up as any that is cut; and it says nothing, neither until
 * then nor after. */
START_TEST(cut_while_removed)
{
	int fd;

	make();
	fd = stream_fd(0, MODE_NEW, &peer);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert_uint_eq(atomic_load(&e->aloud), 1);
	atomic_store(&streams[0].mode, MODE_ATTACHED);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	EXPECT(EPOLLIN, 1);
	atomic_store(&streams[0].mode, MODE_NEW);
	ck_assert_int_eq(del(fd), 0);
	NOTHING();
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	atomic_store(&streams[0].mode, MODE_NEW);
	ck_assert_int_eq(del(fd), 0);
	atomic_store(&streams[0].mode, MODE_ATTACHED);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	cut(0);
	shows(0, EPOLLIN);
	NOTHING();
	ck_assert(!in_the_set(fd));
	ck_assert_uint_eq(
		atomic_load(&e->narmed) + atomic_load(&e->aloud) + atomic_load(&e->noneshot), 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	EXPECT(EPOLLIN, 1);
	ck_assert_int_eq(del(fd), 0);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	EXPECT(EPOLLIN, 1);
}
END_TEST

/* Two threads remove the same, or one changes what another removes: one of them comes first. */
static pthread_barrier_t both;
static int pair_fd, pair_r[2];
static bool pair_mod;

static void *other_half(void *unused)
{
	for (int i = 0; i < 20000; i++) {
		pthread_barrier_wait(&both);
		pair_r[1] = pair_mod ? mod(pair_fd, EPOLLIN, 1) : del(pair_fd);
		pthread_barrier_wait(&both);
	}
	return unused;
}

START_TEST(removed_by_two)
{
	static const int modes[] = { MODE_TCP_FOR_NOW, MODE_ATTACHED };
	pthread_t t;

	make();
	pair_mod = _i & 1;
	pair_fd = modes[_i / 2] == MODE_ATTACHED ? cut_fd(0, EPOLLIN, 1)
						 : stream_fd(0, MODE_TCP_FOR_NOW, &peer);
	if (modes[_i / 2] == MODE_TCP_FOR_NOW)
		ck_assert_int_eq(add(pair_fd, EPOLLIN, 1), 0);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&t, NULL, other_half, NULL);
	for (int i = 0; i < 20000; i++) {
		pthread_barrier_wait(&both);
		pair_r[0] = del(pair_fd);
		pthread_barrier_wait(&both);
		if (pair_mod ? pair_r[0] || (pair_r[1] && pair_r[1] != -ENOENT)
			     : pair_r[0] + pair_r[1] != -ENOENT)
			ck_abort_msg("%d and %d", pair_r[0], pair_r[1]);
		if (streams[0].reg.items &&
		    (!streams[0].reg.items->parked || streams[0].reg.items->p_next ||
		     streams[0].reg.items->p_prev))
			ck_abort_msg("not parked, or twice");
		if (i % 3 == 0)
			NOTHING();
		if (atomic_load(&e->aloud) > 1)
			ck_abort_msg("%u are parked", atomic_load(&e->aloud));
		ck_assert_int_eq(add(pair_fd, EPOLLIN, 1), 0);
	}
	pthread_join(t, NULL);
	ck_assert_uint_eq(atomic_load(&e->aloud) + atomic_load(&e->noneshot), 0);
	ck_assert_ptr_null(atomic_load(&e->parked));
}
END_TEST

/* The stream ends at one of its numbers (listen()), and the registration is parked under another
 * one. */
START_TEST(parked_elsewhere)
{
	int fd, other;
	bool ok;

	make();
	fd = stream_fd(0, MODE_TCP_FOR_NOW, &peer);
	other = dup(fd);
	fdtab_set(other, FD_STREAM, &streams[0], &ok);
	ck_assert_int_eq(add(other, EPOLLIN, 1), 0);
	ck_assert_int_eq(del(other), 0);
	ck_assert(in_the_set(other));
	ready_stream_forget(&streams[0], fd, true);
	ck_assert_ptr_null(streams[0].reg.items);
	ck_assert(!in_the_set(other));
}
END_TEST

/* Removed behind our back (io_uring, a raw system call) and added again: the old item is not
 * kept. */
START_TEST(removed_behind)
{
	int fd;

	make();
	fd = stream_fd(0, MODE_TCP_ONLY, &peer);
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
		ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL), 0);
	}
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	ck_assert_uint_eq(streams[0].reg.n, 1);
	ck_assert_uint_eq(e->nitems, 1);
}
END_TEST

/* A child that has copied our memory, and no more, has the same instance in the kernel. */
START_TEST(removed_in_copy)
{
	int fd;

	make();
	fd = stream_fd(0, MODE_TCP_FOR_NOW, &peer);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	ck_assert_int_eq(del(fd), 0);
	shim_pid++;
	ready_unpark(e);
	shim_pid--;
	ck_assert(in_the_set(fd));
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL), 0);
	/* What it removes itself is removed at once. */
	shim_pid++;
	ck_assert_int_eq(add(fd, EPOLLIN, 2), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	/* And a lock that one of its parent's threads held when it was copied is not asked for
	 * before an exec. */
	lock_take(&e->lock);
	ready_mark_shared(e);
	lock_give(&e->lock);
	shim_pid--;
	ck_assert_int_eq(add(fd, EPOLLIN, 3), 0);
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
}
END_TEST

/* From a ring of the kernel's that goes past us nothing is parked. */
START_TEST(removed_past_us)
{
	int fd;

	make();
	fd = stream_fd(0, MODE_TCP_FOR_NOW, &peer);
	ck_assert_int_eq(add(fd, EPOLLIN, 1), 0);
	stream_past_us = true;
	ck_assert_int_eq(del(fd), 0);
	ck_assert(!in_the_set(fd));
	stream_past_us = false;
}
END_TEST
