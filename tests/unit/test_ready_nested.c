/*
 * test_ready_nested.c - epoll instances over fake streams, waited for through their descriptors:
 * in other instances, poll, select.
 *
 * LINK: shim/poll/ready.c shim/poll/ready_instance.c shim/poll/ready_ctl.c shim/poll/ready_bits.c
 * LINK: shim/poll/ready_pset.c shim/poll/ready_select.c
 * LINK: shim/poll/ready_nested.c shim/poll/ready_epoll.c
 * LINK: shim/poll/ready_filter.c shim/poll/ready_learned.c shim/poll/ready_poll.c
 * LINK: shim/base/lock.c shim/base/fdtab.c shim/base/event.c
 */
#include "ready_fake.h"

#include <limits.h>
#include <stdio.h>

/* Instances, from the one that has the stream outwards. */
#define DEEP 3
static int ep[DEEP + 1], peer;

static struct epoll *of(int fd) { return fdtab_epoll(fd); }

static int ctl(int in, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	return ready_epoll_ctl(of(in), in, op, fd, &ev);
}

static int make(void)
{
	int fd = epoll_create1(0);

	ck_assert_ptr_nonnull(ready_epoll_new(fd));
	return fd;
}

/* A stream that is cut and registered there. */
static int cut_fd(int in, int i, uint32_t events)
{
	int fd = stream_fd(i, MODE_ATTACHED, &peer);

	ck_assert_int_eq(ctl(in, EPOLL_CTL_ADD, fd, events, 100 + (uint64_t)i), 0);
	ck_assert_int_eq(ready_arm(&streams[i]), 0);
	cut(i);
	return fd;
}

static struct epoll_event got[8];

static int look(int in, uint64_t deadline)
{
	return ready_epoll_wait(of(in), in, got, 8, deadline, NULL);
}

#define EXPECT(in, data_) do { \
	ck_assert_int_eq(look(in, in_ms(5000)), 1); \
	ck_assert_uint_eq(got[0].events, EPOLLIN); \
	ck_assert_uint_eq(got[0].data.u64, (data_)); \
} while (0)
#define NOTHING(in) do { \
	ck_assert_int_eq(look(in, 0), 0); \
	ck_assert_int_eq(look(in, in_ms(3)), 0); \
} while (0)

/* ep[0] in ep[1] in ep[2] ..., and a cut stream 0 in ep[0]. */
static void chain(uint32_t inner, uint32_t outer)
{
	for (int i = 0; i <= DEEP; i++)
		ep[i] = make();
	for (int i = 0; i < DEEP; i++)
		ck_assert_int_eq(ctl(ep[i + 1], EPOLL_CTL_ADD, ep[i], outer, (uint64_t)i), 0);
	cut_fd(ep[0], 0, inner);
	ck_assert_int_eq(fakes[0].fell_back, 0);
}

static int poll_in(int fd, uint64_t deadline)
{
	struct pollfd p = { fd, POLLIN, 0 };
	int r = ready_poll(&p, 1, deadline, NULL);

	ck_assert_int_eq(p.revents, r == 1 ? POLLIN : 0);
	return r;
}

static int select_in(int fd, uint64_t deadline)
{
	fd_set r;
	int n;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	n = ready_select(fd + 1, &r, NULL, NULL, deadline, NULL);
	ck_assert_int_eq(FD_ISSET(fd, &r), n == 1);
	return n;
}

/* A level, for every kind of outer wait at every depth: up, still up, also after a wait inside
 * has told of it, and down. */
START_TEST(level)
{
	chain(EPOLLIN, EPOLLIN);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < DEEP; i++) {
			NOTHING(ep[i + 1]);
			ck_assert_int_eq(poll_in(ep[i], 0), 0);
			ck_assert_int_eq(select_in(ep[i], in_ms(3)), 0);
		}
		shows(0, EPOLLIN);
		for (int twice = 0; twice < 2; twice++) {
			for (int i = DEEP; i > 0; i--) {
				EXPECT(ep[i], (uint64_t)i - 1);
				EXPECT(ep[i], (uint64_t)i - 1);
			}
			for (int i = 0; i <= DEEP; i++) {
				ck_assert_int_eq(poll_in(ep[i], in_ms(5000)), 1);
				ck_assert_int_eq(poll_in(ep[i], 0), 1);
				ck_assert_int_eq(select_in(ep[i], 0), 1);
			}
			EXPECT(ep[0], 100);
		}
		fakes[0].synth = 0;
	}
}
END_TEST

/* Each arrival is an edge, also where nobody has read what came before; and nothing else is one. */
START_TEST(edge)
{
	chain(EPOLLIN, EPOLLIN | EPOLLET);
	NOTHING(ep[DEEP]);
	for (int i = 0; i < 4; i++) {
		shows(0, EPOLLIN);
		for (int k = DEEP; k > 0; k--) {
			EXPECT(ep[k], (uint64_t)k - 1);
			NOTHING(ep[k]);
		}
		if (i == 2) {
			EXPECT(ep[0], 100);
			for (int k = DEEP; k > 0; k--)
				NOTHING(ep[k]);
		}
	}
	fakes[0].synth = 0;
	notify(0);	/* a ring without news */
	for (int k = DEEP; k > 0; k--)
		NOTHING(ep[k]);
	shows(0, EPOLLIN);
	EXPECT(ep[DEEP], DEEP - 1);
}
END_TEST

/* A ring for nothing does not use it up. */
START_TEST(oneshot)
{
	chain(EPOLLIN, EPOLLIN | EPOLLONESHOT);
	for (int i = 0; i < 3; i++) {
		notify(0);
		NOTHING(ep[1]);
		shows(0, EPOLLIN);
		EXPECT(ep[1], 0);
		NOTHING(ep[1]);
		shows(0, EPOLLIN);
		NOTHING(ep[1]);
		ck_assert_int_eq(ctl(ep[1], EPOLL_CTL_MOD, ep[0], EPOLLIN | EPOLLONESHOT, 0), 0);
		EXPECT(ep[1], 0);
		fakes[0].synth = 0;
		ck_assert_int_eq(ctl(ep[1], EPOLL_CTL_MOD, ep[0], EPOLLIN | EPOLLONESHOT, 0), 0);
		NOTHING(ep[1]);
	}
}
END_TEST

/* What is told once inside is not there for outer waits any more. */
START_TEST(inner_modes)
{
	static const uint32_t modes[] = { EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT };
	int fd;

	for (int i = 0; i <= DEEP; i++)
		ep[i] = make();
	for (int i = 0; i < DEEP; i++)
		ck_assert_int_eq(ctl(ep[i + 1], EPOLL_CTL_ADD, ep[i], EPOLLIN, (uint64_t)i), 0);
	fd = cut_fd(ep[0], 0, modes[_i]);
	for (int i = 0; i < 3; i++) {
		NOTHING(ep[2]);
		shows(0, EPOLLIN);
		EXPECT(ep[2], 1);
		ck_assert_int_eq(poll_in(ep[1], 0), 1);
		EXPECT(ep[1], 0);
		EXPECT(ep[0], 100);
		NOTHING(ep[2]);
		ck_assert_int_eq(poll_in(ep[0], 0), 0);
		if (_i == 1) {
			ck_assert_int_eq(ctl(ep[0], EPOLL_CTL_MOD, fd, modes[_i], 100), 0);
			EXPECT(ep[2], 1);
			fakes[0].synth = 0;
		}
	}
}
END_TEST

/* One that is added or changed when there is something already. */
START_TEST(added_late)
{
	int fd, more;

	for (int i = 0; i <= DEEP; i++)
		ep[i] = make();
	fd = cut_fd(ep[0], 0, EPOLLIN);
	shows(0, EPOLLIN);
	ck_assert_int_eq(look(ep[0], 0), 1);
	ck_assert_int_eq(ctl(ep[1], EPOLL_CTL_ADD, ep[0], EPOLLIN | EPOLLET, 7), 0);
	EXPECT(ep[1], 7);
	NOTHING(ep[1]);
	ck_assert_int_eq(look(ep[0], 0), 1);
	ck_assert_int_eq(ctl(ep[1], EPOLL_CTL_MOD, ep[0], EPOLLIN | EPOLLET, 8), 0);
	EXPECT(ep[1], 8);
	NOTHING(ep[1]);
	ck_assert_int_eq(ctl(ep[2], EPOLL_CTL_ADD, ep[1], EPOLLIN, 9), 0);
	NOTHING(ep[2]);
	ck_assert_int_eq(ctl(ep[3], EPOLL_CTL_ADD, ep[0], EPOLLIN, 10), 0);
	EXPECT(ep[3], 10);
	EXPECT(ep[3], 10);
	/* And what is gone says nothing. */
	ck_assert_int_eq(ctl(ep[3], EPOLL_CTL_DEL, ep[0], 0, 0), 0);
	NOTHING(ep[3]);
	ck_assert_int_eq(ctl(ep[0], EPOLL_CTL_DEL, fd, 0, 0), 0);
	ck_assert_int_eq(poll_in(ep[0], 0), 0);
	ck_assert_int_eq(ctl(ep[2], EPOLL_CTL_MOD, ep[1], EPOLLIN, 9), 0);
	NOTHING(ep[2]);
	/* The number is another's. */
	more = ep[1];
	ready_epoll_forget_fd(of(more), more, false);
	close(more);
	ck_assert_int_eq(make(), more);
	ck_assert_int_eq(ctl(ep[2], EPOLL_CTL_ADD, more, EPOLLIN, 11), 0);
	NOTHING(ep[2]);
	cut_fd(more, 1, EPOLLIN);
	shows(1, EPOLLIN);
	EXPECT(ep[2], 11);
}
END_TEST

/* The kernel's own members, beside a stream that is cut; and the stream falls back. */
START_TEST(kernel_members)
{
	int p[2];
	char c;

	chain(EPOLLIN, EPOLLIN);
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(ctl(ep[0], EPOLL_CTL_ADD, p[0], EPOLLIN, 5), 0);
	NOTHING(ep[DEEP]);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	EXPECT(ep[DEEP], DEEP - 1);
	EXPECT(ep[1], 0);
	ck_assert_int_eq(poll_in(ep[0], 0), 1);
	EXPECT(ep[0], 5);
	ck_assert_int_eq(read(p[0], &c, 1), 1);
	NOTHING(ep[DEEP]);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	NOTHING(ep[DEEP]);
	fakes[0].cut = false;
	fakes[0].kern = EPOLLIN | EPOLLOUT;
	notify(0);
	EXPECT(ep[DEEP], DEEP - 1);
	EXPECT(ep[0], 100);
	cut(0);
	NOTHING(ep[DEEP]);
}
END_TEST

/* The kernel still has what was asked of a stream before its path changed, and nobody was told
 * of that. */
START_TEST(stale_interest)
{
	chain(EPOLLIN, EPOLLIN);
	fakes[0].kern = EPOLLIN;
	ck_assert_int_eq(write(peer, "x", 1), 1);
	notify(0);
	EXPECT(ep[DEEP], DEEP - 1);
	fakes[0].kern = 0;
	NOTHING(ep[DEEP]);
	ck_assert_int_eq(poll_in(ep[0], 0), 0);
}
END_TEST

static int shared_pipe[2][2];

static void takes_it(void)
{
	ck_assert_int_eq(read(shared_pipe[0][0], &(char){ 0 }, 1), 1);
}

/* Registrations for one event each share their data with an instance: each is told once, also if
 * what the kernel told of was taken before it was looked at. */
START_TEST(oneshot_shares_data)
{
	struct epoll_event two[2];
	int n = 0;

	chain(EPOLLIN, EPOLLIN);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pipe(shared_pipe[i]), 0);
		ck_assert_int_eq(ctl(ep[1], EPOLL_CTL_ADD, shared_pipe[i][0],
				     EPOLLIN | EPOLLONESHOT, 0), 0);
	}
	on_woken = takes_it;
	ck_assert_int_eq(write(shared_pipe[0][1], "x", 1), 1);
	NOTHING(ep[1]);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(write(shared_pipe[i][1], "x", 1), 1);
	for (int i = 0; i < 4; i++)
		n += ready_epoll_wait(of(ep[1]), ep[1], two, _i ? 2 : 1, 0, NULL);
	ck_assert_int_eq(n, 2);
	NOTHING(ep[1]);
}
END_TEST

static int rings;

/* The instance inside was just found to have nothing, and the kernel is not asked yet. */
static void rings_inside(void)
{
	if (ready_looks_at == of(ep[1]) && rings-- > 0)
		bell_ring(bell_bit(of(ep[0])->bell));
}

/* A bell inside that rings for nothing, each time before the kernel is asked for the whole. */
START_TEST(rings_for_nothing)
{
	int p[2];

	chain(EPOLLIN, EPOLLIN);
	cut_fd(ep[1], 1, EPOLLIN);
	NOTHING(ep[DEEP]);
	on_drain = rings_inside;
	for (int i = 0; i < 20; i++) {
		rings = i;
		notify(0);
		ck_assert_int_eq(_i ? poll_in(ep[1], 0) : look(ep[2], 0), 0);
		ck_assert_int_le(rings, 0);	/* all of them */
	}
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(ctl(ep[1], EPOLL_CTL_ADD, p[0], EPOLLIN, 5), 0);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	for (int i = 0; i < 20; i++) {
		rings = i;
		ck_assert_int_eq(_i ? poll_in(ep[1], 0) : look(ep[2], 0), 1);
	}
}
END_TEST

/* It does so as often as the looks ask: what is true is told all the same. */
START_TEST(rings_without_end)
{
	int p[2], *in = _i ? &ep[1] : &ep[0];

	chain(EPOLLIN, EPOLLIN);
	cut_fd(ep[1], 1, EPOLLIN);
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(ctl(*in, EPOLL_CTL_ADD, p[0], EPOLLIN, 5), 0);
	on_drain = rings_inside;
	rings = INT_MAX;
	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(poll_in(ep[1], 0), 0);
		ck_assert_int_eq(select_in(ep[2], 0), 0);
		ck_assert_int_eq(look(ep[DEEP], in_ms(3)), 0);
		ck_assert_int_eq(write(p[1], "x", 1), 1);
		ck_assert_int_eq(poll_in(ep[1], 0), 1);
		ck_assert_int_eq(select_in(ep[2], 0), 1);
		ck_assert_int_eq(look(ep[DEEP], in_ms(5000)), 1);
		ck_assert_int_eq(read(p[0], &(char){ 0 }, 1), 1);
		shows(0, EPOLLIN);
		ck_assert_int_eq(look(ep[DEEP], in_ms(5000)), 1);
		ck_assert_int_eq(poll_in(ep[1], 0), 1);
		fakes[0].synth = 0;
	}
	ck_assert_int_gt(rings, 0);
}
END_TEST

static __thread bool stays;
static _Atomic bool there, go;

static void stay(void)
{
	if (!stays)
		return;
	atomic_store(&there, true);
	while (!atomic_load(&go))
		sched_yield();
}

static void *looker(void *arg)
{
	stays = true;
	ck_assert_int_eq(poll_in(ep[0], 0), 0);
	return arg;
}

/* Another thread is in the middle of such a look, has taken nothing, and is off its processor. */
START_TEST(look_meanwhile)
{
	pthread_t t;

	chain(EPOLLIN, EPOLLIN);
	on_drain = stay;
	notify(0);
	pthread_create(&t, NULL, looker, NULL);
	while (!atomic_load(&there))
		sched_yield();
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(poll_in(ep[0], 0), 0);
		ck_assert_int_eq(select_in(ep[1], 0), 0);
		ck_assert_int_eq(look(ep[DEEP], 0), 0);
		notify(0);
	}
	shows(0, EPOLLIN);
	ck_assert_int_eq(poll_in(ep[0], 0), 1);
	fakes[0].synth = 0;
	atomic_store(&go, true);
	pthread_join(t, NULL);
}
END_TEST

static _Atomic int seen_by[2];

static void *looks_once(void *arg)
{
	int who = (int)(intptr_t)arg;

	stays = !who;
	atomic_store(&seen_by[who], poll_in(ep[0], 0));
	return NULL;
}

/* Another thread has taken what is dirty, and is off its processor before it has queued it: a look
 * waits for it, and finds what it finds. */
START_TEST(in_hand)
{
	pthread_t t[2];

	chain(EPOLLIN, EPOLLIN);
	seen_by[0] = seen_by[1] = -1;
	on_taken = stay;
	shows(0, _i ? EPOLLIN : 0);
	pthread_create(&t[0], NULL, looks_once, (void *)0);
	while (!atomic_load(&there))
		sched_yield();
	pthread_create(&t[1], NULL, looks_once, (void *)1);
	while (atomic_load(&of(ep[0])->taking.v) != 2 && atomic_load(&seen_by[1]) < 0)
		sched_yield();
	ck_assert_int_eq(seen_by[1], -1);
	atomic_store(&go, true);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(seen_by[0], _i);
	ck_assert_int_eq(seen_by[1], _i);
}
END_TEST

static _Atomic uint32_t looks, wrong;
static _Atomic bool no_more;

static void *crowd_looks(void *arg)
{
	int kind = (int)(intptr_t)arg;
	struct epoll_event ev;

	while (!atomic_load(&no_more)) {
		int r = kind == 0 ? poll_in(ep[0], 0) : kind == 1 ? select_in(ep[0], 0)
			: ready_epoll_wait(of(ep[kind - 1]), ep[kind - 1], &ev, 1, 0, NULL);

		atomic_fetch_add(&looks, 1);
		if (r)
			atomic_fetch_add(&wrong, 1);
	}
	return NULL;
}

/* Many look at all depths at once, bells ring, and there is never anything. */
#define CROWD 8
START_TEST(crowd)
{
	pthread_t t[CROWD];

	chain(EPOLLIN, EPOLLIN);
	for (int i = 0; i < CROWD; i++)
		pthread_create(&t[i], NULL, crowd_looks, (void *)(intptr_t)(_i ? i % 2 : i % 4));
	for (uint32_t n = 0; n < 60000;) {
		notify(0);
		while (atomic_load(&looks) == n)
			sched_yield();
		n = atomic_load(&looks);
	}
	atomic_store(&no_more, true);
	for (int i = 0; i < CROWD; i++)
		pthread_join(t[i], NULL);
	ck_assert_msg(!wrong, "%u of %u looks show what is not there", wrong, looks);
}
END_TEST

struct sleeper { pthread_t t; int in, r; uint64_t deadline; struct epoll_event ev; };

static void *sleep_thread(void *arg)
{
	struct sleeper *s = arg;

	s->r = ready_epoll_wait(of(s->in), s->in, &s->ev, 1, s->deadline, NULL);
	return NULL;
}

static void until_asleep(int in, uint32_t n)
{
	while (atomic_load(&of(in)->sleepers) != n)
		sched_yield();
	usleep(5000);
}

/* Outer waits are asleep before anything is armed; one that slept inside leaves before. */
START_TEST(asleep)
{
	struct sleeper in = { .deadline = in_ms(3000) }, out = { .deadline = in_ms(20000) };
	int fd;

	for (int i = 0; i <= DEEP; i++)
		ep[i] = make();
	for (int i = 0; i < DEEP; i++)
		ck_assert_int_eq(ctl(ep[i + 1], EPOLL_CTL_ADD, ep[i], _i ? EPOLLIN | EPOLLET
				     : EPOLLIN, (uint64_t)i), 0);
	fd = stream_fd(0, MODE_NEW, &peer);
	ck_assert_int_eq(ctl(ep[0], EPOLL_CTL_ADD, fd, EPOLLIN, 100), 0);
	in.in = ep[0];
	out.in = ep[DEEP];
	pthread_create(&out.t, NULL, sleep_thread, &out);
	until_asleep(ep[DEEP], 1);
	pthread_create(&in.t, NULL, sleep_thread, &in);
	until_asleep(ep[0], 1);
	atomic_store(&streams[0].mode, MODE_ATTACHED);
	ck_assert_int_eq(ready_arm(&streams[0]), 0);
	cut(0);
	pthread_join(in.t, NULL);
	ck_assert_int_eq(in.r, 0);
	until_asleep(ep[DEEP], 1);
	shows(0, EPOLLIN);
	pthread_join(out.t, NULL);
	ck_assert_int_eq(out.r, 1);
	ck_assert_uint_eq(out.ev.data.u64, DEEP - 1);
	ck_assert_uint_lt(now_ns(), out.deadline);
}
END_TEST

/* Nobody rings for a bell that is deaf, or a ring is silenced: outer waits look by themselves. */
START_TEST(unheard)
{
	chain(EPOLLIN, EPOLLIN);
	NOTHING(ep[DEEP]);
	atomic_store(_i ? &bells_mixed : &bells_deaf, true);
	fakes[0].synth = EPOLLIN;
	fakes[0].dirty = true;
	any_dirty = 1;
	EXPECT(ep[DEEP], DEEP - 1);
	fakes[0].synth = 0;
	NOTHING(ep[DEEP]);
	fakes[0].synth = EPOLLIN;
	fakes[0].dirty = true;
	any_dirty = 1;
	ck_assert_int_eq(poll_in(ep[1], in_ms(5000)), 1);
}
END_TEST

/*
 * A publisher, and several threads that wait at all depths, by all kinds of waits, and inside,
 * and take what there is. What is published is taken, though the publisher waits for that each
 * time: so a wake-up that is lost ends the test.
 */
#define ROUNDS 3000
/* published, taken, and what the stream shows */
static pthread_mutex_t bytes = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int published, taken, gone;
static _Atomic bool stop;

static void take_all(void)
{
	pthread_mutex_lock(&bytes);
	fakes[0].synth = 0;
	atomic_store(&taken, atomic_load(&published));
	pthread_mutex_unlock(&bytes);
}

static void publish(int i)
{
	pthread_mutex_lock(&bytes);
	atomic_store(&published, i);
	fakes[0].synth = EPOLLIN;
	pthread_mutex_unlock(&bytes);
	notify(0);
}

static void *taker(void *arg)
{
	int kind = (int)(intptr_t)arg;
	struct epoll_event ev;

	while (!atomic_load(&stop)) {
		uint64_t end = now_ns() + 300000000000u;
		int r = 1;

		switch (kind) {
		case 0: r = ready_epoll_wait(of(ep[DEEP]), ep[DEEP], &ev, 1, end, NULL); break;
		case 1: r = ready_epoll_wait(of(ep[1]), ep[1], &ev, 1, end, NULL); break;
		case 2: r = poll_in(ep[0], end); break;
		case 3: r = select_in(ep[1], end); break;
		/* never takes, disturbs */
		case 4: r = ready_epoll_wait(of(ep[0]), ep[0], &ev, 1, 0, NULL); sched_yield();
		break;
		}
		if (kind == 4 || r != 1 || atomic_load(&stop))
			continue;
		while (ready_epoll_wait(of(ep[0]), ep[0], &ev, 1, 0, NULL) == 1)
			take_all();
	}
	atomic_fetch_add(&gone, 1);
	return NULL;
}

START_TEST(teams)
{
	static const int teams[][3] = { { 0, 0, 4 }, { 1, 2, 4 }, { 3, 0, 4 }, { 2, 2, 4 },
					{ 0, 4, 4 } };
	pthread_t t[3];

	chain(EPOLLIN, _i % 2 ? EPOLLIN | EPOLLET : EPOLLIN);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, taker, (void *)(intptr_t)teams[_i / 2][i]);
	for (int i = 1; i <= ROUNDS; i++) {
		uint64_t end = in_ms(20000);

		publish(i);
		while (atomic_load(&taken) != i) {
			ck_assert_msg(now_ns() < end, "round %d is lost", i);
			sched_yield();
		}
	}
	atomic_store(&stop, true);
	while (atomic_load(&gone) != 3) {	/* those that sleep */
		publish(ROUNDS);
		usleep(1000);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("nested");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, level);
	tcase_add_test(c, edge);
	tcase_add_test(c, oneshot);
	tcase_add_loop_test(c, inner_modes, 0, 2);
	tcase_add_test(c, added_late);
	tcase_add_test(c, kernel_members);
	tcase_add_test(c, stale_interest);
	tcase_add_loop_test(c, oneshot_shares_data, 0, 2);
	tcase_add_loop_test(c, rings_for_nothing, 0, 2);
	tcase_add_loop_test(c, rings_without_end, 0, 2);
	tcase_add_test(c, look_meanwhile);
	tcase_add_loop_test(c, in_hand, 0, 2);
	tcase_add_loop_test(c, crowd, 0, 2);
	tcase_add_loop_test(c, asleep, 0, 2);
	tcase_add_loop_test(c, unheard, 0, 2);
	tcase_add_loop_test(c, teams, 0, 10);
	return run_case("ready_nested", c);
}
