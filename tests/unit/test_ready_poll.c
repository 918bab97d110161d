/*
 * test_ready_poll.c - poll and select over fake streams, and the kernel as the oracle for
 * everything else.
 *
 * LINK: shim/poll/ready.c shim/poll/ready_instance.c shim/poll/ready_ctl.c
 * LINK: shim/poll/ready_epoll.c shim/poll/ready_filter.c shim/poll/ready_learned.c
 * LINK: shim/poll/ready_pset.c shim/poll/ready_select.c
 * LINK: shim/poll/ready_poll.c shim/base/lock.c shim/base/fdtab.c
 * LINK: shim/base/event.c shim/poll/ready_bits.c shim/poll/ready_nested.c
 */
#include "ready_fake.h"
#include <stdio.h>

static int peer;

static int cut_fd(int i)
{
	int fd = stream_fd(i, MODE_ATTACHED, &peer);

	cut(i);
	return fd;
}

static int poll1(int fd, short events, uint64_t deadline, short *rev)
{
	struct pollfd p = { fd, events, 0x7fff };
	int r = ready_poll(&p, 1, deadline, NULL);

	*rev = p.revents;
	return r;
}

#define EXPECT(fd, ev, want) do { \
	short rev_; \
	int r_ = poll1(fd, (short)(ev), in_ms(2000), &rev_); \
	ck_assert_int_eq(r_, 1); \
	ck_assert_int_eq(rev_, (want)); \
} while (0)
#define NOTHING(fd, ev) do { \
	short rev_; \
	ck_assert_int_eq(poll1(fd, (short)(ev), in_ms(20), &rev_), 0); \
	ck_assert_int_eq(rev_, 0); \
	ck_assert_int_eq(poll1(fd, (short)(ev), 0, &rev_), 0); \
} while (0)

START_TEST(views)
{
	int fd = cut_fd(0);

	ck_assert_int_eq(write(peer, "x", 1), 1);	/* fallback is readable and writable:
							 * masked */
	NOTHING(fd, POLLIN | POLLOUT);
	shows(0, EPOLLIN | EPOLLRDHUP);
	EXPECT(fd, POLLIN, POLLIN);
	EXPECT(fd, POLLIN | POLLRDNORM | POLLRDHUP | POLLOUT, POLLIN | POLLRDNORM | POLLRDHUP);
	NOTHING(fd, POLLOUT);
	shows(0, EPOLLHUP | EPOLLOUT);
	EXPECT(fd, 0, POLLHUP);
	EXPECT(fd, POLLWRNORM, POLLHUP | POLLWRNORM);
	/* TCP bytes are left below the cut. */
	shows(0, 0);
	fakes[0].kern = EPOLLIN;
	EXPECT(fd, POLLIN | POLLOUT, POLLIN);
	/* Not cut any more. */
	fakes[0].cut = false;
	fakes[0].kern = EPOLLIN | EPOLLOUT;
	EXPECT(fd, POLLIN | POLLOUT, POLLIN | POLLOUT);
	ck_assert_int_eq(streams[0].waits_seen, 1);
}
END_TEST

START_TEST(room)
{
	int fd = cut_fd(0);

	NOTHING(fd, POLLIN);
	ck_assert_int_eq(fakes[0].wants, 0);
	NOTHING(fd, POLLOUT);
	ck_assert_int_gt(fakes[0].wants, 0);
	fakes[0].room_soon = true;
	EXPECT(fd, POLLOUT, POLLOUT);
}
END_TEST

static void hup_shows(int i) { shows(i, EPOLLIN | EPOLLHUP); }

/* HUP stays up on TCP while the path still has bytes: told, but no busy loop. */
START_TEST(home_hup)
{
	int fd = cut_fd(0);
	short rev;

	close(peer);
	naps = 0;
	ck_assert_int_eq(poll1(fd, POLLIN, in_ms(200), &rev), 0);
	ck_assert_int_le(naps, 5);
	ck_assert_int_eq(fakes[0].told, 1);
	ck_assert(fakes[0].told_events & EPOLLHUP);
	fakes[0].on_told = hup_shows;
	EXPECT(fd, POLLIN, POLLIN | POLLHUP);
}
END_TEST

static void drain_second(void)
{
	char b[65536];

	if (naps == 2)
		while (recv(peer, b, sizeof(b), MSG_DONTWAIT) > 0)
			;
}

/* FIN is up on TCP and the path may not tell yet; what is sent goes by TCP again, and has room
 * only later. */
START_TEST(home_rdhup)
{
	static char b[65536];
	int fd = cut_fd(0);
	short rev;

	while (send(fd, b, sizeof(b), MSG_DONTWAIT) > 0)
		;
	ck_assert_int_eq(shutdown(peer, SHUT_WR), 0);
	fakes[0].kern = EPOLLOUT;
	naps = 0;
	on_nap = drain_second;
	ck_assert_int_eq(poll1(fd, POLLOUT | POLLRDHUP, in_ms(5000), &rev), 1);
	on_nap = NULL;
	ck_assert_int_eq(rev, POLLOUT);
	ck_assert_int_le(naps, 5);
	ck_assert(fakes[0].told_events & EPOLLRDHUP);
}
END_TEST

/* No system call while the path is ready, if the kernel has nothing to say in the set. */
START_TEST(ready_is_free)
{
	static const int calls[] = { SYS_ppoll };
	int fd = cut_fd(0);
	short rev;

	shows(0, EPOLLIN);
	forbid(calls, 1);
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(poll1(fd, POLLIN, UINT64_MAX, &rev), 1);
	ck_assert_int_eq(forbidden_calls, 0);
	fakes[0].synth = 0;
	ck_assert_int_eq(poll1(fd, POLLIN, 0, &rev), -ENOSYS);
	ck_assert_int_eq(forbidden_calls, 1);
}
END_TEST

START_TEST(kernel_fds_are_merged)
{
	int fd = cut_fd(0), p[2], both = 0;

	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	shows(0, EPOLLIN);
	for (int i = 0; i < 10; i++) {
		struct pollfd f[3] = { { fd, POLLIN, 0 }, { -1, POLLIN, 7 }, { p[0], POLLIN, 0 } };
		int n = ready_poll(f, 3, UINT64_MAX, NULL);

		ck_assert_int_ge(n, 1);
		ck_assert_int_eq(n, !!f[0].revents + !!f[2].revents);
		ck_assert_int_eq(f[0].revents, POLLIN);
		ck_assert_int_eq(f[1].revents, 0);
		both += n == 2;
		usleep(50);
	}
	ck_assert_int_ge(both, 5);
	/* A poll that does not wait sees all there is. */
	for (int i = 0; i < 10; i++) {
		struct pollfd f[2] = { { fd, POLLIN, 0 }, { p[0], POLLIN, 0 } };

		ck_assert_int_eq(ready_poll(f, 2, 0, NULL), 2);
	}
}
END_TEST

START_TEST(plain_is_counted)
{
	int fd = stream_fd(0, MODE_NEW, &peer);
	short rev;

	NOTHING(fd, POLLIN);
	ck_assert_uint_eq(streams[0].plain.rx, 0);
	alarm_in_ms(20);
	ck_assert_int_eq(poll1(fd, POLLIN, in_ms(3000), &rev), -EINTR);
	ck_assert_uint_eq(streams[0].plain.rx, 0);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	EXPECT(fd, POLLIN, POLLIN);
	ck_assert_uint_eq(streams[0].plain.rx, 0);
	ck_assert_int_eq(bells_made, 0);
	atomic_store(&streams[0].mode, MODE_TCP_ONLY);
	EXPECT(fd, POLLIN, POLLIN);
}
END_TEST

static _Atomic bool in_poll;

static void *poll_thread(void *arg)
{
	struct pollfd *p = arg;

	in_poll = true;
	return (void *)(intptr_t)ready_poll(p, 2, in_ms(5000), NULL);
}

static void until_asleep(void)
{
	while (!in_poll)
		sched_yield();
	usleep(20000);
}

/* Cut while the thread sleeps on it, and then readable. */
START_TEST(cut_while_asleep)
{
	int fd = stream_fd(0, MODE_ATTACHED, &peer), p[2];
	pthread_t t;
	void *r;

	ck_assert_int_eq(pipe(p), 0);
	struct pollfd f[2] = { { fd, POLLIN, 0 }, { p[0], POLLIN, 0 } };

	pthread_create(&t, NULL, poll_thread, f);
	until_asleep();
	fakes[0].kern = 0;
	fakes[0].cut = true;
	notify(0);		/* stream_wake() */
	usleep(10000);
	ck_assert_int_eq(write(peer, "x", 1), 1);	/* on TCP: not for this reader */
	usleep(10000);
	shows(0, EPOLLIN);
	pthread_join(t, &r);
	ck_assert_int_eq((int)(intptr_t)r, 1);
	ck_assert_int_eq(f[0].revents, POLLIN);
	ck_assert_uint_eq(bells[0].sleeping, 0);
}
END_TEST

static void cut_now(void)
{
	on_nap = NULL;
	fakes[0].kern = 0;
	fakes[0].cut = true;
	ck_assert_int_eq(write(peer, "x", 1), 1);
}

/* The kernel was asked for IN, but when it answers the home socket's IN means nothing any more. */
START_TEST(cut_behind_the_kernel)
{
	int fd = stream_fd(0, MODE_ATTACHED, &peer);
	short rev;

	on_nap = cut_now;
	ck_assert_int_eq(poll1(fd, POLLIN, in_ms(50), &rev), 0);
	ck_assert(fakes[0].cut);
}
END_TEST

START_TEST(cancelled)
{
	int fd = _i ? cut_fd(0) : stream_fd(0, MODE_NEW, &peer);
	struct pollfd f[2] = { { fd, POLLIN, 0 }, { -1, 0, 0 } };
	pthread_t t;

	pthread_create(&t, NULL, poll_thread, f);
	until_asleep();
	ck_assert_uint_eq(streams[0].plain.rx, !_i);
	pthread_cancel(t);
	pthread_join(t, NULL);
	ck_assert_uint_eq(streams[0].plain.rx, 0);
	ck_assert_uint_eq(bells[0].sleeping, 0);
}
END_TEST

static _Atomic int turns;

static void *pong(void *arg)
{
	int *a = arg;

	for (int i = 0; i < a[1]; i++) {
		struct pollfd f = { a[0], POLLIN, 0 };

		if (ready_poll(&f, 1, in_ms(5000), NULL) != 1)
			return (void *)"lost";
		atomic_store(&fakes[0].synth, 0);
		atomic_fetch_add(&turns, 1);
	}
	return NULL;
}

START_TEST(ping_pong)
{
	int a[2] = { cut_fd(0), 3000 };
	pthread_t t;
	void *r;

	spin_ns = _i ? 20000 : 0;
	pthread_create(&t, NULL, pong, a);
	for (int i = 0; i < a[1]; i++) {
		uint64_t end = in_ms(5000);

		shows(0, EPOLLIN);
		while (atomic_load(&turns) <= i && now_ns() < end)
			sched_yield();
	}
	pthread_join(t, &r);
	ck_assert_msg(!r, "%s", (char *)r);
	ck_assert_int_eq(spin_rounds != 0, _i != 0);
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
	int fd = cut_fd(0);

	on_spin = comes_late;
	EXPECT(fd, POLLIN, POLLIN);
}
END_TEST

static void false_alarm(void)
{
	if (naps == 1)
		notify(0);
}

START_TEST(bell_is_emptied)
{
	int fd = cut_fd(0);
	short rev;

	on_nap = false_alarm;
	ck_assert_int_eq(poll1(fd, POLLIN, in_ms(50), &rev), 0);
	ck_assert_int_ge(naps, 2);
	ck_assert_int_le(naps, 5);
}
END_TEST

START_TEST(no_bell)
{
	int a[2] = { cut_fd(0), 20 };
	pthread_t t;
	void *r;

	bells_left = 0;
	pthread_create(&t, NULL, pong, a);
	for (int i = 0; i < a[1]; i++) {
		shows(0, EPOLLIN);
		while (atomic_load(&turns) <= i)
			usleep(100);
	}
	pthread_join(t, &r);
	ck_assert_msg(!r, "%s", (char *)r);
}
END_TEST

START_TEST(timeouts)
{
	static const uint64_t ns[] = { 300000, 5000000, 40000000 };
	int fd = _i & 1 ? cut_fd(0) : stream_fd(0, MODE_NEW, &peer);

	spin_ns = _i & 2 ? 1000000 : 0;
	for (int i = 0; i < 6; i++) {
		uint64_t t0 = now_ns(), took;
		fd_set r;
		short rev;

		FD_ZERO(&r);
		FD_SET(fd, &r);
		if (i & 1) {
			ck_assert_int_eq(ready_select(fd + 1, &r, NULL, NULL, t0 + ns[i / 2], NULL),
					 0);
			ck_assert(!FD_ISSET(fd, &r));
		} else {
			ck_assert_int_eq(poll1(fd, POLLIN, t0 + ns[i / 2], &rev), 0);
		}
		took = now_ns() - t0;
		ck_assert_uint_ge(took, ns[i / 2]);
		ck_assert_uint_lt(took, ns[i / 2] + 500000000);
	}
}
END_TEST

START_TEST(interrupted)
{
	int fd = _i & 1 ? cut_fd(0) : stream_fd(0, MODE_ATTACHED, &peer);
	struct pollfd p = { fd, POLLIN, 0 };
	sigset_t none, block;

	sigemptyset(&none);
	if (_i & 2) {
		sigemptyset(&block);
		sigaddset(&block, SIGALRM);
		sigprocmask(SIG_BLOCK, &block, NULL);
		spin_ns = 1000000;	/* must not spin with the signal blocked */
	}
	alarm_in_ms(20);
	ck_assert_int_eq(ready_poll(&p, 1, in_ms(5000), _i & 2 ? &none : NULL), -EINTR);
	ck_assert_uint_eq(spin_rounds, 0);
	ck_assert_uint_eq(bells[0].sleeping, 0);
}
END_TEST

#include "ready_oracle.h"

/* Large sets use memory that goes with the thread. */
START_TEST(scratch)
{
	int fd = cut_fd(0);
	long before = 0, after;

	shows(0, EPOLLIN);
	for (int i = 0; i < 60; i++) {
		pthread_t t;
		void *r;

		pthread_create(&t, NULL, big_poll, &fd);
		pthread_join(t, &r);
		ck_assert_msg(!r, "%s", (char *)r);
		if (i == 9)
			before = mapped_pages();
	}
	after = mapped_pages();
#ifdef __SANITIZE_THREAD__	/* its own memory grows with the threads */
	after = before;
#endif
	ck_assert_int_le(after, before + 500);		/* each took 40 */
}
END_TEST

/* As many entries as RLIMIT_NOFILE admits: there is no place for the bell. */
START_TEST(no_place_for_bell)
{
	int fd = cut_fd(0);
	struct rlimit l = { 100, 4096 };
	struct pollfd f[101];

	for (int i = 0; i < 101; i++)
		f[i] = (struct pollfd){ -1, POLLIN, 0 };
	f[50].fd = fd;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &l), 0);
	ck_assert_int_eq(ready_poll(f, 100, in_ms(30), NULL), 0);
	ck_assert_int_eq(ready_poll(f, 101, in_ms(30), NULL), -EINVAL);
	ck_assert_int_eq(ready_poll(f, 101, 0, NULL), -EINVAL);
}
END_TEST

START_TEST(needed)
{
	int fd = stream_fd(0, MODE_NEW, &peer), ep = epoll_create1(0), s;
	struct pollfd f[2] = { { -1, POLLIN, 0 }, { fd, POLLIN, 0 } };
	struct epoll_event ev = { .events = EPOLLIN };
	struct epoll *e;
	short rev;
	fd_set r;

	ck_assert(ready_poll_needed(f, 2));
	ck_assert(!ready_poll_needed(f, 1));
	atomic_store(&streams[0].mode, MODE_TCP_ONLY);
	ck_assert(!ready_poll_needed(f, 2));
	/* An epoll fd in poll: its streams may be cut, and the kernel tells of them. */
	e = ready_epoll_new(ep);
	s = stream_fd(1, MODE_ATTACHED, &peer);
	ck_assert_int_eq(ready_epoll_ctl(e, ep, EPOLL_CTL_ADD, s, &ev), 0);
	ck_assert_int_eq(ready_arm(&streams[1]), 0);
	cut(1);
	f[1].fd = ep;
	ck_assert(ready_poll_needed(f, 2));
	ck_assert_int_eq(poll1(ep, POLLIN, in_ms(1), &rev), 0);
	ck_assert_int_eq(fakes[1].fell_back, 0);
	ck_assert(ready_poll_needed(f, 2));
	shows(1, EPOLLIN);
	EXPECT(ep, POLLIN, POLLIN);
	EXPECT(ep, POLLIN, POLLIN);
	fakes[1].synth = 0;
	ck_assert_int_eq(poll1(ep, POLLIN, in_ms(1), &rev), 0);
	/* Others wait for it in ways that are not seen: its streams cannot be cut, and one that is
	 * falls back. */
	ready_foreign(e);
	ck_assert_int_eq(fakes[1].fell_back, 1);
	ck_assert(!ready_poll_needed(f, 2));
	ck_assert_int_eq(write(peer, "x", 1), 1);
	EXPECT(ep, POLLIN, POLLIN);
	/* And in select. */
	ep = epoll_create1(0);
	e = ready_epoll_new(ep);
	FD_ZERO(&r);
	FD_SET(ep, &r);
	ck_assert(ready_select_needed(ep + 1, &r, NULL, NULL));
	ck_assert_int_eq(ready_select(ep + 1, &r, NULL, NULL, 0, NULL), 0);
	ck_assert(atomic_load(&e->watched));
}
END_TEST

static void came(void) { on_channel = NULL; shows(0, EPOLLIN); }
static void says(void) { on_nap = NULL; channel_says(); }

/* The device wakes the sleeper itself, who takes what came. */
START_TEST(completion_channel)
{
	int fd = cut_fd(0), fallback = stream_fd(1, MODE_ATTACHED, &peer);
	struct pollfd p[2] = { { fallback, POLLIN, 0 }, { fd, POLLIN, 0 } };

	streams[0].search.path = streams[1].search.path = PATH_RDMA;
	channel_new();
	NOTHING(fd, POLLIN);
	on_nap = says;
	on_channel = came;
	EXPECT(fd, POLLIN, POLLIN);
	ck_assert_int_eq(channel_takes, 1);
	/* An event that is for others. */
	fakes[0].synth = 0;
	on_nap = says;
	NOTHING(fd, POLLIN);
	ck_assert_int_eq(channel_takes, 2);
	/* Beside one that is not cut. */
	on_nap = says;
	on_channel = came;
	ck_assert_int_eq(ready_poll(p, 2, in_ms(2000), NULL), 1);
	ck_assert_int_eq(p[1].revents, POLLIN);
	ck_assert_int_eq(p[0].revents, 0);
	/* Nobody sleeps on it for a stream that goes by another path. */
	fakes[0].synth = 0;
	streams[0].search.path = PATH_SHM;
	on_nap = says;
	NOTHING(fd, POLLIN);
	ck_assert_int_eq(channel_takes, 3);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("poll");

	tcase_set_timeout(c, 30);
	tcase_add_test(c, views);
	tcase_add_test(c, room);
	tcase_add_test(c, home_hup);
	tcase_add_test(c, home_rdhup);
	tcase_add_test(c, ready_is_free);
	tcase_add_test(c, kernel_fds_are_merged);
	tcase_add_test(c, plain_is_counted);
	tcase_add_test(c, cut_while_asleep);
	tcase_add_test(c, cut_behind_the_kernel);
	tcase_add_loop_test(c, cancelled, 0, 2);
	tcase_add_loop_test(c, ping_pong, 0, 2);
	tcase_add_test(c, look_after_arm);
	tcase_add_test(c, bell_is_emptied);
	tcase_add_test(c, no_bell);
	tcase_add_loop_test(c, timeouts, 0, 4);
	tcase_add_loop_test(c, interrupted, 0, 4);
	tcase_add_loop_test(c, poll_as_the_kernel, 0, 2);
	tcase_add_test(c, select_as_the_kernel);
	tcase_add_test(c, select_ignores_hup);
	tcase_add_test(c, select_sees_the_path);
	tcase_add_test(c, scratch);
	tcase_add_test(c, no_place_for_bell);
	tcase_add_test(c, needed);
	tcase_add_test(c, completion_channel);
	return run_case("ready_poll", c);
}
