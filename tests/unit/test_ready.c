/*
 * test_ready.c - epoll over fake streams: levels, edges, one shots, kernel interest, sleepers.
 *
 * LINK: shim/poll/ready.c shim/poll/ready_instance.c shim/poll/ready_ctl.c
 * LINK: shim/poll/ready_epoll.c shim/poll/ready_filter.c shim/poll/ready_learned.c
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

#include "ready_removed.h"

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

#include "ready_registry.h"
#include "ready_waiting.h"

int main(void)
{
	TCase *c = tcase_create("epoll");

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
	tcase_add_test(c, removed_is_gone_with_its_number);
	tcase_add_loop_test(c, removed_on_tcp, 0, 3);
	tcase_add_loop_test(c, removed_on_tcp_and_gone, 0, 3);
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
	return run_case("ready", c);
}
