/*
 * epoll_threads.c - waiting by epoll while other threads or processes act. Calls: epoll_create1
 * epoll_ctl epoll_wait
 * LIBS: -ldl
 */
#include <limits.h>

#include "snip_epoll.h"

static volatile int woken;
static void *waiter(void *arg)
{
	struct epoll_event ev;

	(void)arg;
	if (epoll_wait(ep, &ev, 1, 5000) == 1)
		__atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
	return NULL;
}
SNIPPET(epoll_threads, "epoll_wait")
{
	pthread_t th[8];

	start();
	add(b, EPOLLIN, 1);
	for (int i = 0; i < 8; i++)
		pthread_create(&th[i], NULL, waiter, NULL);
	nap_us(3000);
	send(a, "x", 1, 0);
	for (int i = 0; i < 8; i++)
		pthread_join(th[i], NULL);
	tell("level wakes all in the end: %d", woken);
}

static void adds_late(void) { add(b, EPOLLIN, 3); }
SNIPPET(epoll_add_while_waiting, "epoll_ctl epoll_wait")
{
	start();
	put(a, b, "x");
	when_blocked(adds_late);
	look("added by another thread", ep, 5000);
	helper_done();
}

static void closes_peer(void) { close(a); }
SNIPPET(epoll_close_while_waiting, "epoll_wait close")
{
	start();
	add(b, EPOLLIN | EPOLLRDHUP, 3);
	when_blocked(closes_peer);
	tell("woken: %d", ({ struct epoll_event ev; epoll_wait(ep, &ev, 1, 5000); }));
	helper_done();
	until(b, POLLRDHUP);
	look("bits", ep, 1000);
}

SNIPPET(epoll_listener, "epoll_ctl epoll_wait accept")
{
	struct sockaddr_in at;
	int l = listener_at(&at), c, d;

	ep = epoll_create1(0);
	SAY("add", add(l, EPOLLIN, 1));
	look("idle", ep, 0);
	c = connect_to(&at);
	look("somebody", ep, 1000);
	d = accept(l, NULL, NULL);
	look("accepted", ep, 0);
	SAY("add", add(d, EPOLLIN, 2));
	put(c, d, "x");
	look("data", ep, 1000);
	connect_to(&at);
	until(l, POLLIN);
	look("both", ep, 1000);
}

SNIPPET(epoll_unconnected, "epoll_ctl epoll_wait connect")
{
	struct sockaddr_in at;
	int l = listener_at(&at), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), d;

	ep = epoll_create1(0);
	SAY("add before connect", add(c, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1));
	look("unconnected", ep, 0);
	SAY("connect", connect(c, (void *)&at, sizeof(at)));
	look("connected", ep, 1000);
	d = accept(l, NULL, NULL);
	put(d, c, "x");
	look("data", ep, 1000);
}

SNIPPET(epoll_pipe_beside, "epoll_ctl epoll_wait")
{
	int pp[2];

	start();
	if (pipe(pp))
		die("pipe");
	add(pp[0], EPOLLIN, 1);
	add(b, EPOLLIN, 2);
	write(pp[1], "x", 1);
	look("pipe", ep, 1000);
	put(a, b, "x");
	look("both", ep, 1000);
	read(pp[0], t, 1);
	look("stream", ep, 1000);
}

SNIPPET(epoll_dup_instance, "dup epoll_ctl epoll_wait close")
{
	int e2;

	start();
	add(b, EPOLLIN, 1);
	e2 = dup(ep);
	put(a, b, "x");
	look("through the dup", e2, 1000);
	close(ep);
	look("after close of the first", e2, 1000);
	recv(b, t, 10, 0);
	put(a, b, "y");
	ep = e2;
	SAY("mod through it", mod(b, EPOLLIN, 2));
	look("again", e2, 1000);
}

SNIPPET(epoll_forked, "fork epoll_wait")
{
	pid_t p;

	start();
	add(b, EPOLLIN, 1);
	fflush(stdout);
	p = fork();
	if (!p) {
		look("in the child", ep, 5000);
		SAY("recv", recv(b, t, 10, 0));
		fflush(stdout);
		_exit(0);
	}
	close(b);
	send(a, "x", 1, 0);
	say_end("child", p);
	SAY("the parent, when the child is gone", recv(a, t, 10, 0));
}

/* As levels_hold in poll.c, with room for one event and for many. */
SNIPPET(epoll_levels_hold, "epoll_wait")
{
	long missed[2] = { 0 }, out[2] = { 0 };
	uint64_t end = now_ms() + 200;
	struct epoll_event ev[64];
	int eo;

	start();
	add(b, EPOLLIN, 1);
	eo = epoll_create1(0);
	add_to(eo, a, EPOLLOUT, 1);
	while (now_ms() < end) {
		send(a, "xyz", 3, 0);
		epoll_wait(ep, ev, 1, -1);
		for (int i = 0; i < 40; i++) {
			missed[i % 2] += epoll_wait(ep, ev, i % 2 ? 64 : 1, 0) != 1;
			out[i % 2] += epoll_wait(eo, ev, i % 2 ? 64 : 1, 0) != 1;
		}
		recv(b, t, 3, MSG_WAITALL);
	}
	tell("missed: %ld and %ld, OUT %ld and %ld", missed[0], missed[1], out[0], out[1]);
}

/* A team: whoever is told of something alone is, and finds it. */
static _Atomic long events, in_vain;
static _Atomic bool over;

static void *team(void *acks)
{
	struct epoll_event ev;
	char m[3];

	while (!over) {
		long r;

		if (epoll_wait(ep, &ev, 1, 20) != 1)
			continue;
		events++;
		r = recv(b, m, sizeof(m), MSG_DONTWAIT);
		in_vain += r < 0;
		mod(b, EPOLLIN | EPOLLONESHOT, 1);
		if (r > 0)
			write(*(int *)acks, m, (size_t)r);
	}
	return NULL;
}

SNIPPET(epoll_oneshot_team, "epoll_ctl epoll_wait")
{
	uint64_t end = now_ms() + 200;
	pthread_t th[3];
	long sent = 0;
	int p[2];

	start();
	pipe(p);
	add(b, EPOLLIN | EPOLLONESHOT, 1);
	for (int i = 0; i < 3; i++)
		pthread_create(th + i, NULL, team, p + 1);
	while (now_ms() < end) {
		sent += send(a, "xyz", 3, 0) == 3;
		for (int have = 0; have < 3; have += (int)read(p[0], t, 3))
			until(p[0], POLLIN);
		nap_us(random() % 300);
	}
	over = true;
	for (int i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
	tell("events without a message: %ld, in vain: %ld", events - sent, in_vain);
}

static long cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Wherever the bytes go there is no room for more, and who waits for it sleeps. */
SNIPPET(epoll_full_sleeps, "epoll_wait")
{
	static char much[65536];
	struct epoll_event ev;
	uint64_t end;
	long used;

	start();
	end = now_ms() + 300;
	used = cpu_ms();
	add(a, EPOLLIN | EPOLLOUT, 1);
	while (now_ms() < end)
		if (epoll_wait(ep, &ev, 1, 50) == 1 && ev.events & EPOLLOUT)
			while (send(a, much, sizeof(much), MSG_DONTWAIT) > 0)
				;
	tell("%s", cpu_ms() - used < 200 ? "asleep" : "awake");
}
