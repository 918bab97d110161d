/*
 * test_ready.c - epoll over fake streams: levels, edges, one shots, kernel interest, sleepers.
 *
 * LINK: shim/poll/ready.c shim/poll/ready_instance.c shim/poll/ready_ctl.c
 * LINK: shim/poll/ready_epoll.c shim/poll/ready_filter.c
 * LINK: shim/base/lock.c shim/base/fdtab.c shim/base/event.c
 * LINK: shim/poll/ready_bits.c shim/poll/ready_nested.c
 */
#include "ready_fake.h"

#include <stdio.h>

static int ep, peer;
static struct epoll *e;

static void make(void)
{
	ep = epoll_create1(0);
	e = ready_epoll_new(ep);
	ck_assert_ptr_nonnull(e);
	ck_assert_ptr_eq(fdtab_epoll(ep), e);
}

static int ctl(int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	return ready_epoll_ctl(e, ep, op, fd, &ev);
}

static int add(int fd, uint32_t events, uint64_t data)
{
	return ctl(EPOLL_CTL_ADD, fd, events, data);
}
static int mod(int fd, uint32_t events, uint64_t data)
{
	return ctl(EPOLL_CTL_MOD, fd, events, data);
}

/* A stream that is cut and registered. */
static int cut_fd(int i, uint32_t events, uint64_t data)
{
	int fd = stream_fd(i, MODE_ATTACHED, &peer);

	ck_assert_int_eq(add(fd, events, data), 0);
	ck_assert_int_eq(ready_arm(&streams[i]), 0);
	cut(i);
	return fd;
}

static struct epoll_event got[64];

static int look(int max) { return ready_epoll_wait(e, ep, got, max, 0, NULL); }

#define EXPECT(events_, data_) do { \
	ck_assert_int_eq(look(64), 1); \
	ck_assert_uint_eq(got[0].events, (uint32_t)(events_)); \
	ck_assert_uint_eq(got[0].data.u64, (data_)); \
} while (0)
#define NOTHING() ck_assert_int_eq(look(64), 0)

START_TEST(level)
{
	make();
	cut_fd(0, EPOLLIN, 77);
	NOTHING();
	shows(0, EPOLLIN | EPOLLOUT);
	for (int i = 0; i < 5; i++)
		EXPECT(EPOLLIN, 77);
	shows(0, EPOLLOUT);
	NOTHING();
	shows(0, EPOLLHUP | EPOLLERR | EPOLLRDHUP);	/* HUP and ERR unasked, RDHUP not */
	EXPECT(EPOLLHUP | EPOLLERR, 77);
}
END_TEST

START_TEST(synonyms)
{
	make();
	cut_fd(0, EPOLLRDNORM | EPOLLWRNORM | EPOLLIN, 1);
	shows(0, EPOLLIN | EPOLLOUT);
	EXPECT(EPOLLIN | EPOLLRDNORM | EPOLLWRNORM, 1);
}
END_TEST

START_TEST(edge)
{
	make();
	cut_fd(0, EPOLLIN | EPOLLOUT | EPOLLET, 5);
	shows(0, EPOLLIN);
	EXPECT(EPOLLIN, 5);
	NOTHING();
	notify(0);		/* more data: another edge though it was readable before */
	EXPECT(EPOLLIN, 5);
	NOTHING();
	shows(0, EPOLLIN | EPOLLOUT);
	EXPECT(EPOLLIN | EPOLLOUT, 5);
	NOTHING();
}
END_TEST

START_TEST(oneshot)
{
	int fd;

	make();
	fd = cut_fd(0, EPOLLIN | EPOLLONESHOT, 5);
	shows(0, EPOLLIN);
	EXPECT(EPOLLIN, 5);
	NOTHING();
	notify(0);
	NOTHING();
	shows(0, EPOLLIN | EPOLLHUP);
	NOTHING();
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLONESHOT, 6), 0);
	EXPECT(EPOLLIN | EPOLLHUP, 6);
	NOTHING();
}
END_TEST

/* Fired by the kernel while not cut: stays fired when the stream is cut, until the MOD. */
START_TEST(oneshot_across_cut)
{
	int fd;

	make();
	fd = stream_fd(0, MODE_NEW, &peer);
	ck_assert_int_eq(add(fd, EPOLLIN | EPOLLONESHOT, 9), 0);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	EXPECT(EPOLLIN, 9);
	atomic_store(&streams[0].mode, MODE_ATTACHED);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	cut(0);
	shows(0, EPOLLIN);
	NOTHING();
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLONESHOT, 9), 0);
	EXPECT(EPOLLIN, 9);
	NOTHING();
	/* On TCP again with the shot fired: the kernel has data but must not report it. */
	fakes[0].cut = false;
	fakes[0].kern = EPOLLIN | EPOLLOUT;
	notify(0);
	NOTHING();
	ck_assert_int_eq(shutdown(peer, SHUT_WR), 0);	/* an event that nobody asked for */
	NOTHING();
	NOTHING();
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLONESHOT, 9), 0);
	EXPECT(EPOLLIN, 9);
	NOTHING();
}
END_TEST

/* Another thread reports it from the path, before this one has looked at the kernel's event that
 * it holds. */
static void cut_and_taken(void)
{
	fakes[0].cut = true;
	shows(0, EPOLLIN);
	EXPECT(EPOLLIN, 9);
	shows(0, 0);
	fakes[0].cut = false;
	fakes[0].kern = EPOLLIN | EPOLLOUT;
	notify(0);
}

START_TEST(oneshot_for_one)
{
	struct epoll_event ev[4];
	int fd;

	make();
	fd = stream_fd(0, MODE_ATTACHED, &peer);
	ck_assert_int_eq(add(fd, EPOLLIN | EPOLLONESHOT, 9), 0);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	NOTHING();
	ck_assert_int_eq(write(peer, "x", 1), 1);
	on_woken = cut_and_taken;
	ck_assert_int_eq(ready_epoll_wait(e, ep, ev, 4, in_ms(20), NULL), 0);
	ck_assert_ptr_null(on_woken);
	NOTHING();
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLONESHOT, 9), 0);
	EXPECT(EPOLLIN, 9);
	NOTHING();
}
END_TEST

static int oneshot_fd;

static void taken_and_asked_again(void)
{
	char c;

	EXPECT(EPOLLIN, 9);
	ck_assert_int_eq(read(oneshot_fd, &c, 1), 1);
	ck_assert_int_eq(mod(oneshot_fd, EPOLLIN | EPOLLONESHOT, 9), 0);
}

/* While a stream is cut the kernel has no ONESHOT, and tells two threads. */
START_TEST(oneshot_asked_again)
{
	struct epoll_event ev[4];

	for (int cut_now = 0; cut_now < 2; cut_now++) {
		make();
		oneshot_fd = cut_fd(0, EPOLLIN | EPOLLONESHOT, 9);
		fakes[0].kern = EPOLLIN;	/* only the other direction is on the path */
		shows(0, 0);
		NOTHING();
		fakes[0].cut = cut_now;
		ck_assert_int_eq(write(peer, "x", 1), 1);
		on_woken = taken_and_asked_again;
		ck_assert_int_eq(ready_epoll_wait(e, ep, ev, 4, in_ms(20), NULL), 0);
		ck_assert_ptr_null(on_woken);
		ck_assert_int_eq(write(peer, "y", 1), 1);
		EXPECT(EPOLLIN, 9);
		NOTHING();
	}
}
END_TEST

/* A level that will be back when a rewind has ended is told with what the kernel shows, also
 * where there is room for one event. */
START_TEST(coming_told_whole)
{
	make();
	cut_fd(0, EPOLLIN | EPOLLOUT, 3);
	fakes[0].coming = EPOLLIN;
	fakes[0].kern = EPOLLIN | EPOLLOUT;
	fakes[0].cut = false;
	notify(0);
	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(look(i % 2 ? 1 : 64), 1);
		ck_assert_uint_eq(got[0].events, EPOLLIN | EPOLLOUT);
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(look(1), 1);
		ck_assert_uint_eq(got[0].events, EPOLLIN | EPOLLOUT);
	}
	fakes[0].coming = 0;
	EXPECT(EPOLLOUT, 3);
	EXPECT(EPOLLOUT, 3);
	ck_assert_uint_eq(e->nready, 0);
}
END_TEST

static const int epoll_calls[] = {
	SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,
#endif
};

/* redis asks for OUT and takes it back for every reply: no system call, and none to wait. */
START_TEST(toggling_is_free)
{
	uint64_t t0;
	int fd, before;

	make();
	fd = cut_fd(0, EPOLLIN, 1);
	NOTHING();
	shows(0, EPOLLOUT);
	forbid(epoll_calls, sizeof epoll_calls / sizeof *epoll_calls);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLOUT, 1), 0);
		ck_assert_int_eq(mod(fd, EPOLLIN, 1), 0);
	}
	ck_assert_int_eq(forbidden_calls, 0);
	/* other data: the kernel must know; and the trap works */
	ck_assert_int_eq(mod(fd, EPOLLIN, 2), -ENOSYS);
	ck_assert_int_eq(forbidden_calls, 1);
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLOUT, 1), 0);
	before = forbidden_calls;
	t0 = now_ns();
	for (int i = 0; i < 20000; i++) {
		ck_assert_int_eq(ready_epoll_wait(e, ep, got, 64, UINT64_MAX, NULL), 1);
		ck_assert_uint_eq(got[0].events, EPOLLOUT);
	}
	/* Only the look every 20 us, but that one. */
	ck_assert_int_gt(forbidden_calls, before);
	ck_assert_uint_le((unsigned)(forbidden_calls - before),
			  (now_ns() - t0) / READY_LOOK_NS + 1);
}
END_TEST

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
	int fd, other, p[2];

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

/* Of a stream on TCP, that may be cut some day or never: the registration that is parked would
 * speak. Bytes are waiting all the time. */
START_TEST(removed_on_tcp)
{
	static const int modes[] = { MODE_NEW, MODE_TCP_FOR_NOW, MODE_TCP_ONLY };
	int fd, i = _i, p[2], other;

	make();
	fd = stream_fd(i, modes[_i], &peer);
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

START_TEST(room)
{
	int fd;

	make();
	fd = cut_fd(0, EPOLLIN, 1);
	NOTHING();
	ck_assert_int_eq(fakes[0].wants, 0);
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLOUT, 1), 0);
	NOTHING();
	ck_assert_int_gt(fakes[0].wants, 0);
	shows(0, EPOLLOUT);
	EXPECT(EPOLLOUT, 1);
	/* Full, and room comes between the look and the request. */
	fakes[0].synth = 0;
	fakes[0].room_soon = true;
	EXPECT(EPOLLOUT, 1);
}
END_TEST

static void hup_shows(int i) { fakes[i].synth |= EPOLLIN | EPOLLRDHUP | EPOLLHUP; }

START_TEST(home_socket_is_masked)
{
	int fd, p;

	make();
	fd = cut_fd(0, EPOLLIN | EPOLLOUT, 3);
	p = peer;
	NOTHING();
	ck_assert_int_eq(write(p, "stray", 5), 5);	/* fallback is readable and writable: not
							 * reported */
	NOTHING();
	/* TCP bytes below the cut are left: IN is the kernel's, as a level. */
	fakes[0].kern = EPOLLIN;
	notify(0);
	EXPECT(EPOLLIN, 3);
	EXPECT(EPOLLIN, 3);
	/* And no longer: found out when the kernel reports it. */
	fakes[0].kern = 0;
	NOTHING();
	NOTHING();
	/* HUP: the stream is told once; what the path says is reported. */
	ck_assert_int_eq(shutdown(p, SHUT_WR), 0);
	NOTHING();
	ck_assert_int_eq(fakes[0].told, 1);
	ck_assert_uint_eq(fakes[0].told_events, EPOLLRDHUP);
	NOTHING();
	ck_assert_int_eq(fakes[0].told, 1);
	fakes[0].on_told = hup_shows;
	close(p);
	EXPECT(EPOLLIN | EPOLLHUP, 3);
	ck_assert_int_eq(fakes[0].told, 2);
	EXPECT(EPOLLIN | EPOLLHUP, 3);
	(void)fd;
}
END_TEST

/* Level-triggered OUT is the kernel's while RDHUP stays up: no busy loop. */
START_TEST(rdhup_does_not_spin)
{
	char buf[65536];
	int fd, before;

	make();
	fd = cut_fd(0, EPOLLOUT, 3);
	memset(buf, 0, sizeof buf);
	while (write(fd, buf, sizeof buf) > 0)
		;
	fakes[0].kern = EPOLLOUT;
	notify(0);
	shutdown(peer, SHUT_WR);
	before = naps;
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 64, in_ms(200), NULL), 0);
	ck_assert_int_eq(fakes[0].told, 1);
	ck_assert_int_le(naps - before, 5);
}
END_TEST

START_TEST(falls_back)
{
	int fd;

	make();
	fd = cut_fd(0, EPOLLIN | EPOLLET, 3);
	NOTHING();
	ck_assert_int_eq(write(peer, "resent", 6), 6);
	NOTHING();
	fakes[0].cut = false;
	fakes[0].kern = EPOLLIN | EPOLLOUT;
	ready_attention(&streams[0]);
	EXPECT(EPOLLIN, 3);	/* the switch gives the edge */
	NOTHING();
	/* For good: the instance is a plain one again. */
	ck_assert_uint_eq(e->narmed, 1);
	atomic_store(&streams[0].mode, MODE_TCP_ONLY);
	ready_attention(&streams[0]);
	NOTHING();
	ck_assert_uint_eq(e->narmed, 0);
	ck_assert_uint_eq(e->ncut, 0);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	EXPECT(EPOLLIN, 3);
	ck_assert_int_eq(ctl(EPOLL_CTL_DEL, fd, 0, 0), 0);
}
END_TEST

/* What the kernel has of fd: the events in the instance's fdinfo. */
static uint32_t kernel_has(int fd)
{
	unsigned events = 0;
	char name[64], line[256];
	int tfd;
	FILE *f;

	snprintf(name, sizeof name, "/proc/self/fdinfo/%d", ep);
	f = fopen(name, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "tfd: %d events: %x", &tfd, &events) == 2 && tfd == fd)
			break;
	fclose(f);
	return events;
}

/* The kernel has EPOLLEXCLUSIVE while the stream is on TCP, not while it is cut; MOD is refused
 * all the time. */
START_TEST(exclusive)
{
	int fd;

	make();
	fd = stream_fd(0, MODE_ATTACHED, &peer);
	ck_assert_int_eq(add(fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 3), -EINVAL);
	ck_assert_int_eq(add(fd, EPOLLIN | EPOLLEXCLUSIVE, 3), 0);
	ck_assert_uint_eq(kernel_has(fd) & EPOLLEXCLUSIVE, EPOLLEXCLUSIVE);
	ck_assert_int_eq(mod(fd, EPOLLIN, 3), -EINVAL);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	cut(0);
	NOTHING();
	ck_assert_uint_eq(kernel_has(fd) & (EPOLLEXCLUSIVE | EPOLLIN), 0);
	ck_assert_int_eq(mod(fd, EPOLLIN, 3), -EINVAL);
	ck_assert_int_eq(mod(fd, EPOLLIN | EPOLLEXCLUSIVE, 3), -EINVAL);
	shows(0, EPOLLIN);
	EXPECT(EPOLLIN, 3);
	ck_assert_int_eq(write(peer, "resent", 6), 6);
	fakes[0].cut = false;
	shows(0, 0);
	fakes[0].kern = EPOLLIN | EPOLLOUT;
	ready_attention(&streams[0]);
	EXPECT(EPOLLIN, 3);
	ck_assert_uint_eq(kernel_has(fd) & (EPOLLEXCLUSIVE | EPOLLIN), EPOLLEXCLUSIVE | EPOLLIN);
	ck_assert_int_eq(mod(fd, EPOLLIN, 3), -EINVAL);
	ck_assert_int_eq(ctl(EPOLL_CTL_DEL, fd, 0, 0), 0);
}
END_TEST

START_TEST(merged_into_one)
{
	make();
	cut_fd(0, EPOLLIN | EPOLLOUT, 3);
	NOTHING();
	/* IN from the kernel, OUT from the path: one event. */
	fakes[0].kern = EPOLLIN;
	ck_assert_int_eq(write(peer, "x", 1), 1);
	shows(0, EPOLLOUT);
	for (int i = 0; i < 3; i++) {
		usleep(30);
		ck_assert_int_eq(look(64), 1);
	}
	ck_assert_uint_eq(got[0].events, EPOLLIN | EPOLLOUT);
}
END_TEST

/* A cut stream that is always ready, and a pipe: both get their turns, whatever the room. */
START_TEST(nobody_starves)
{
	int p[2], seen[2] = { 0 }, max = _i ? 8 : 1;

	make();
	ck_assert_int_eq(pipe(p), 0);
	cut_fd(0, EPOLLIN, 0);
	ck_assert_int_eq(add(p[0], EPOLLIN, 1), 0);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	shows(0, EPOLLIN);
	for (int i = 0; i < 20; i++) {
		int n = ready_epoll_wait(e, ep, got, max, UINT64_MAX, NULL);

		ck_assert_int_ge(n, 1);
		ck_assert_int_le(n, max);
		for (int k = 0; k < n; k++)
			seen[got[k].data.u64]++;
		usleep(50);
	}
	ck_assert_int_ge(seen[0], 5);
	ck_assert_int_ge(seen[1], 5);
}
END_TEST

START_TEST(many_streams_take_turns)
{
	bool seen[40] = { false };
	int k = 0;

	make();
	for (int i = 0; i < 40; i++) {
		cut_fd(i, EPOLLIN, (uint64_t)i);
		shows(i, EPOLLIN);
	}
	for (int r = 0; r < 20; r++) {
		int n = look(4);

		ck_assert_int_eq(n, 4);
		for (int i = 0; i < n; i++) {
			k += !seen[got[i].data.u64];
			seen[got[i].data.u64] = true;
		}
	}
	ck_assert_int_eq(k, 40);
}
END_TEST

START_TEST(refusals)
{
	int a, b, p[2], stale[2];

	make();
	a = stream_fd(0, MODE_NEW, &peer);
	b = stream_fd(1, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 7), 0);
	ck_assert_int_eq(add(b, EPOLLIN, 7), 0);
	ck_assert_int_eq(ready_arm(&streams[1]), -EXDEV);
	ck_assert_int_eq(ready_arm(&streams[0]), -EXDEV);
	ck_assert_int_eq(mod(b, EPOLLIN, 8), 0);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	/* An fd with the same data that was closed unseen is no obstacle; one that is open is. */
	ck_assert_int_eq(pipe(stale), 0);
	ck_assert_int_eq(add(stale[0], EPOLLIN, 8), 0);
	ck_assert_int_eq(ready_arm(&streams[1]), -EXDEV);
	close(stale[0]);
	ck_assert_int_eq(ready_arm(&streams[1]), 0);
	a = stream_fd(2, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 9), 0);
	/* Cut already when it is added in such a way: back to TCP first. */
	a = stream_fd(3, MODE_ATTACHED, &peer);
	cut(3);
	ck_assert_int_eq(add(a, EPOLLIN, 8), 0);
	ck_assert_int_eq(fakes[3].fell_back, 1);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	EXPECT(EPOLLIN, 8);
	/* Or changed so. */
	b = cut_fd(4, EPOLLIN, 44);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	ck_assert_int_eq(mod(b, EPOLLIN, 9), 0);
	ck_assert_int_eq(fakes[4].fell_back, 1);
	ck_assert_int_eq(look(64), 2);
	/* No bell left. */
	bells_left = 0;
	make();
	a = stream_fd(5, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 1), 0);
	ck_assert_int_eq(ready_arm(&streams[5]), -ENOSPC);
	bells_left = 10;
	ck_assert_int_eq(ready_arm(&streams[5]), 0);
	cut(5);
	/* Waited for through its own fd, by who knows whom. */
	ck_assert_int_eq(pipe(p), 0);
	ready_foreign(e);
	ck_assert_int_eq(fakes[5].fell_back, 1);
	a = stream_fd(6, MODE_NEW, &peer);
	ck_assert_int_eq(add(a, EPOLLIN, 2), 0);
	ck_assert_int_eq(ready_arm(&streams[6]), -EOPNOTSUPP);
}
END_TEST

/* The same calls on an instance of ours and on a plain one give the same errors. */
START_TEST(errors_as_the_kernel)
{
	int raw = epoll_create1(0), file, s;
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 1 };

	make();
	file = open("/proc/self/exe", O_RDONLY);
	s = stream_fd(0, MODE_ATTACHED, &peer);
	const struct { int op, fd; uint32_t events; bool null; } call[] = {
		{ EPOLL_CTL_ADD, s, EPOLLIN, true },		/* EFAULT */
		{ EPOLL_CTL_MOD, s, EPOLLIN, false },		/* ENOENT */
		{ EPOLL_CTL_DEL, s, 0, false },
		{ EPOLL_CTL_ADD, s, EPOLLIN, false },		/* 0 */
		{ EPOLL_CTL_ADD, s, EPOLLIN, false },		/* EEXIST */
		{ EPOLL_CTL_MOD, s, EPOLLOUT, false },
		{ EPOLL_CTL_MOD, s, EPOLLIN | EPOLLEXCLUSIVE, false },	/* EINVAL */
		{ EPOLL_CTL_MOD, s, EPOLLIN, true },
		{ 17, s, EPOLLIN, false },			/* EINVAL */
		{ EPOLL_CTL_ADD, 999, EPOLLIN, false },		/* EBADF */
		{ EPOLL_CTL_MOD, 999, EPOLLIN, false },
		{ EPOLL_CTL_DEL, 999, EPOLLIN, false },
		{ EPOLL_CTL_ADD, file, EPOLLIN, false },	/* EPERM */
		{ EPOLL_CTL_DEL, s, 0, true },			/* 0 */
		{ EPOLL_CTL_DEL, s, 0, true },			/* ENOENT */
	};
	for (int mode = 0; mode < 2; mode++) {
		for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
			int want, r;

			ev.events = call[i].events;
			want = epoll_ctl(raw, call[i].op, call[i].fd, call[i].null ? NULL : &ev)
				       ? -errno
				       : 0;
			r = ready_epoll_ctl(e, ep, call[i].op, call[i].fd,
					    call[i].null ? NULL : &ev);
			ck_assert_msg(r == want, "call %zu mode %d: %d, kernel %d", i, mode, r,
				      want);
		}
		cut(0);		/* and once more */
	}
	ck_assert_int_eq(add(ep, EPOLLIN, 1), -EINVAL);
	ck_assert_int_eq(ready_epoll_wait(e, ep, got, 0, 0, NULL), -EINVAL);
}
END_TEST

START_TEST(registry_grows)
{
	enum { N = 900 };
	int p[2], fd[N];

	make();
	ck_assert_int_eq(pipe(p), 0);
	for (int i = 0; i < N; i++) {
		fd[i] = dup(p[0]);
		ck_assert_int_ge(fd[i], 0);
		ck_assert_int_eq(add(fd[i], EPOLLIN, (uint64_t)i << 32), 0);
	}
	for (int i = 0; i < N; i++) {
		struct epitem *it = item_by_fd(e, fd[i]);
		bool many;

		ck_assert_ptr_nonnull(it);
		ck_assert_uint_eq(it->data, (uint64_t)i << 32);
		ck_assert_ptr_eq(item_by_data(e, (uint64_t)i << 32, &many), it);
		ck_assert(!many);
	}
	for (int i = 0; i < N; i += 2)
		ck_assert_int_eq(ctl(EPOLL_CTL_DEL, fd[i], 0, 0), 0);
	for (int i = 0; i < N; i++)
		ck_assert(!item_by_fd(e, fd[i]) == !(i & 1));
	ck_assert_uint_eq(e->nitems, N / 2);
}
END_TEST

static int late;

/* Another thread closes the number, and the struct becomes another connection's. */
static void struct_used_again(void)
{
	bool ok;

	close(late);
	atomic_fetch_add(&streams[0].gen, 2);
	fdtab_set(late, FD_NONE, NULL, &ok);
	late = eventfd(0, EFD_NONBLOCK);
	fdtab_set(late, FD_NONE, NULL, &ok);
}

/* The same, and the number is taken away just before the kernel's close. */
static void struct_used_before_close(void)
{
	bool ok;

	atomic_fetch_add(&streams[0].gen, 2);
	fdtab_set(late, FD_NONE, NULL, &ok);
}

/* An ADD beside the close of its number leaves nothing: not on the connection that has the
 * struct by then, and not in the kernel. */
START_TEST(added_beside_close)
{
	int other;

	make();
	other = stream_fd(1, MODE_ATTACHED, &peer);
	ck_assert_int_eq(add(other, EPOLLIN, 1), 0);
	late = stream_fd(0, MODE_ATTACHED, &peer);
	on_view = _i ? struct_used_again : struct_used_before_close;
	ck_assert_int_eq(add(late, EPOLLIN, 77), 0);
	ck_assert_ptr_null(streams[0].reg.items);
	ck_assert_uint_eq(streams[0].reg.n, 0);
	ck_assert_int_eq(streams[0].waits_seen, 0);
	ck_assert_uint_eq(streams[0].bells, 0);
	cut(0);
	shows(0, EPOLLIN);
	NOTHING();
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_DEL, late, NULL), -1);
	ck_assert_int_eq(errno, ENOENT);
	cut(1);
	shows(1, EPOLLIN);
	EXPECT(EPOLLIN, 1);
}
END_TEST

START_TEST(closing)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int a, b, other, pa;
	struct epoll *old;

	make();
	a = cut_fd(0, EPOLLIN, 1);
	pa = peer;
	b = cut_fd(1, EPOLLIN, 2);
	shows(0, EPOLLIN);
	shows(1, EPOLLIN);
	ck_assert_int_eq(look(64), 2);
	/* The file lives on under another number: the registration must go all the same. */
	other = dup(a);
	ready_stream_forget(&streams[0], a, true);
	close(a);
	EXPECT(EPOLLIN, 2);
	ck_assert_ptr_null(streams[0].reg.items);
	ck_assert_uint_eq(streams[0].reg.n, 0);
	ck_assert_uint_eq(streams[0].bells, 0);
	close(pa);		/* HUP */
	usleep(100);		/* a look into the kernel is due */
	EXPECT(EPOLLIN, 2);
	/* One of two fds: the registration stays, the number is free. */
	other = dup(b);
	ready_stream_forget(&streams[1], b, false);
	ck_assert_ptr_null(item_by_fd(e, b));
	EXPECT(EPOLLIN, 2);
	/* The instance goes; its other number keeps it alive first. */
	other = dup(ep);
	ck_assert(ready_epoll_dup(e, ready_epoll_gen(e), ep, other));
	ready_epoll_forget_fd(e, ep, false);
	ready_epoll_forget_fd(e, ep, false);	/* closed by two threads: once */
	/* A copy that was made beside that close is nobody's. */
	ck_assert(!ready_epoll_dup(e, ready_epoll_gen(e), ep, other + 1));
	ck_assert_ptr_null(fdtab_epoll(other + 1));
	ck_assert(!ready_epoll_dup(e, ready_epoll_gen(e) - 1, other, other + 1));
	close(ep);
	ep = other;
	ck_assert_int_eq(e->epfd, other);
	EXPECT(EPOLLIN, 2);
	/* The last: a child may have the kernel's instance still, our bell is not in it. */
	old = e;
	ready_epoll_forget_fd(e, ep, true);
	ck_assert_ptr_null(fdtab_epoll(ep));
	/* nobody uses the kernel's instance by that number meanwhile */
	ck_assert_uint_eq(fdtab_get(ep), FDTAB_CLOSING);
	fdtab_closed(ep);
	ck_assert_uint_eq(fdtab_get(ep), 0);
	ck_assert_ptr_null(streams[1].reg.items);
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_ADD, bells[0].fd, &ev), 0);
	make();
	ck_assert_ptr_eq(e, old);
	NOTHING();
}
END_TEST

/* ---- waiting ---- */

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

int main(void)
{
	Suite *s = suite_create("ready");
	TCase *c = tcase_create("epoll");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 30);
	tcase_add_test(c, level);
	tcase_add_test(c, synonyms);
	tcase_add_test(c, edge);
	tcase_add_test(c, oneshot);
	tcase_add_test(c, oneshot_across_cut);
	tcase_add_test(c, oneshot_for_one);
	tcase_add_test(c, toggling_is_free);
	tcase_add_test(c, removed_and_added_is_free);
	tcase_add_test(c, removed_says_nothing);
	tcase_add_loop_test(c, removed_and_closed_at_a_look, 0, 3);
	tcase_add_test(c, removed_is_gone);
	tcase_add_loop_test(c, removed_on_tcp, 0, 3);
	tcase_add_test(c, cut_while_removed);
	tcase_add_loop_test(c, removed_by_two, 0, 4);
	tcase_add_test(c, parked_elsewhere);
	tcase_add_test(c, removed_behind);
	tcase_add_test(c, removed_in_copy);
	tcase_add_test(c, removed_past_us);
	tcase_add_test(c, room);
	tcase_add_test(c, home_socket_is_masked);
	tcase_add_test(c, rdhup_does_not_spin);
	tcase_add_test(c, falls_back);
	tcase_add_test(c, coming_told_whole);
	tcase_add_test(c, oneshot_asked_again);
	tcase_add_test(c, exclusive);
	tcase_add_test(c, merged_into_one);
	tcase_add_loop_test(c, nobody_starves, 0, 2);
	tcase_add_test(c, many_streams_take_turns);
	tcase_add_test(c, refusals);
	tcase_add_test(c, errors_as_the_kernel);
	tcase_add_test(c, registry_grows);
	tcase_add_loop_test(c, added_beside_close, 0, 2);
	tcase_add_test(c, closing);
	tcase_add_test(c, level_for_all);
	tcase_add_loop_test(c, timeouts, 0, 4);
	tcase_add_loop_test(c, interrupted, 0, 4);
	tcase_add_test(c, armed_while_asleep);
	tcase_add_loop_test(c, ping_pong, 0, 3);
	tcase_add_test(c, look_after_arm);
	tcase_add_test(c, completion_channel);
	tcase_add_test(c, leaver_leaves_bell);
	tcase_add_loop_test(c, team_loses_nothing, 0, 4);
	tcase_add_test(c, level_is_handed_on);
	tcase_add_test(c, mod_wakes_sleeper);
	tcase_add_test(c, attention_wakes_sleeper);
	tcase_add_test(c, cancelled_sleeper);
	tcase_add_test(c, child_is_plain);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
