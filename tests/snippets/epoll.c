/*
 * epoll.c - waiting by epoll.
 * Calls: epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
 * LIBS: -ldl
 */
#include <limits.h>

#include "snip_epoll.h"
#include "tests/older.h"

SNIPPET(epoll_creation, "epoll_create epoll_create1")
{
	SAYV("epoll_create", epoll_create(5) >= 0);
	SAY("size 0", epoll_create(0));
	SAY("size -1", epoll_create(-1));
	SAYV("epoll_create1", fcntl(epoll_create1(EPOLL_CLOEXEC), F_GETFD));
	SAY("unknown flag", epoll_create1(12345));
}

SNIPPET(epoll_level, "epoll_ctl epoll_wait")
{
	start();
	SAY("add", add(b, EPOLLIN, 1));
	look("idle", ep, 0);
	put(a, b, "hello");
	look("readable", ep, 1000);
	look("still", ep, 0);
	recv(b, t, 2, 0);
	look("still some", ep, 0);
	recv(b, t, 10, 0);
	look("none left", ep, 0);
	SAY("mod", mod(b, EPOLLIN | EPOLLOUT, 2));
	look("writable", ep, 0);
	look("writable still", ep, 0);
	put(a, b, "x");
	look("both", ep, 0);
	SAY("no interest", mod(b, 0, 3));
	look("nothing asked", ep, 0);
	SAY("del", epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL));
	look("gone", ep, 0);
}

SNIPPET(epoll_edge, "epoll_ctl epoll_wait")
{
	start();
	SAY("add", add(b, EPOLLIN | EPOLLET, 1));
	put(a, b, "hello");
	look("edge", ep, 1000);
	no_edge("once", ep, b, 20);
	put(a, b, "more");
	look("new data, new edge", ep, 1000);
	recv(b, t, 2, 0);
	recv(b, t, 100, 0);
	put(a, b, "x");
	look("again", ep, 1000);
	recv(b, t, 100, 0);
	shutdown(a, SHUT_WR);
	until(b, POLLIN);
	look("the end", ep, 1000);
	SAY("recv", recv(b, t, 10, 0));
}

/* A switch of paths may give an edge too many, never one too few: programs that read until
 * EAGAIN see no difference. */
SNIPPET(epoll_edge_drain, "epoll_ctl epoll_wait recv send")
{
	struct epoll_event ev;
	int got = 0;

	start();
	nonblocking(b);
	add(b, EPOLLIN | EPOLLET, 1);
	for (int i = 0; i < 300; i++) {
		send(a, "xyz", 3, 0);
		if (i % 10 == 0)
			nap_us(random() % 2000);
		while (got < 3 * (i + 1)) {
			ssize_t r;

			if (epoll_wait(ep, &ev, 1, 5000) != 1) {
				tell("no edge at %d, %d bytes", i, got);
				return;
			}
			while ((r = recv(b, t, sizeof(t), 0)) > 0)
				got += (int)r;
		}
	}
	tell("%d bytes", got);
}

SNIPPET(epoll_edge_out, "epoll_ctl epoll_wait send")
{
	struct epoll_event ev;
	size_t n = 0, m = 0;

	start();
	nonblocking(a);
	SAY("add", add(a, EPOLLOUT | EPOLLET, 1));
	look("at first", ep, 1000);
	no_edge("once", ep, a, 0);
	for (int i = 0; i < 40; i++) {
		ssize_t r;

		while ((r = send(a, buf, 65536, 0)) > 0)
			n += (size_t)r;
		while (m < n) {
			r = recv(b, buf + (2 << 20), n - m < 1 << 20 ? n - m : 1 << 20, 0);
			if (r <= 0)
				die("recv");
			m += (size_t)r;
		}
		if (epoll_wait(ep, &ev, 1, 5000) != 1) {
			tell("no edge in round %d", i);
			break;
		}
	}
	tell("done");
}

SNIPPET(epoll_oneshot, "epoll_ctl epoll_wait")
{
	start();
	SAY("add", add(b, EPOLLIN | EPOLLONESHOT, 1));
	put(a, b, "x");
	look("one", ep, 1000);
	put(a, b, "y");
	look("no more", ep, jitter ? 0 : 20);
	SAY("mod", mod(b, EPOLLIN | EPOLLONESHOT, 2));
	look("armed again", ep, 1000);
	recv(b, t, 10, 0);
	SAY("mod", mod(b, EPOLLIN | EPOLLONESHOT | EPOLLET, 3));
	look("nothing", ep, 0);
	put(a, b, "z");
	look("edge and one-shot", ep, 1000);
	shutdown(a, SHUT_WR);
	look("the end does not show", ep, jitter ? 0 : 20);
	until(b, POLLRDHUP);
	SAY("mod", mod(b, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, 4));
	look("now it does", ep, 1000);
}

SNIPPET(epoll_rdhup, "epoll_ctl epoll_wait shutdown")
{
	start();
	add(b, EPOLLIN | EPOLLRDHUP, 1);
	put(a, b, "x");
	look("data", ep, 1000);
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	look("data and end", ep, 1000);
	recv(b, t, 10, 0);
	look("the end", ep, 1000);
	mod(b, EPOLLRDHUP, 2);
	look("RDHUP alone", ep, 1000);
	mod(b, EPOLLIN, 3);
	look("IN alone", ep, 1000);
	mod(b, 0, 4);
	look("nothing asked", ep, 0);
	shutdown(b, SHUT_WR);
	until(b, POLLHUP);
	look("HUP comes unasked", ep, 1000);
}

SNIPPET(epoll_rdhup_only_edge, "epoll_ctl epoll_wait shutdown")
{
	start();
	add(b, EPOLLRDHUP | EPOLLET, 1);
	look("idle", ep, 0);
	put(a, b, "x");
	look("data is not asked for", ep, 0);
	close(a);
	look("closed", ep, 2000);
	SAY("recv", recv(b, t, 10, 0));
	SAY("end", recv(b, t, 10, 0));
}

SNIPPET(epoll_hup_err, "epoll_ctl epoll_wait close")
{
	start();
	add(b, 0, 1);
	put(b, a, "unread");
	close(a);
	until(b, POLLHUP);
	look("reset", ep, 1000);
	mod(b, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 2);
	look("all bits", ep, 1000);
	look("edge only once", ep, 0);
	SAY("recv", recv(b, t, 10, 0));
	mod(b, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 3);
	look("the error is taken", ep, 1000);
}

SNIPPET(epoll_pri, "epoll_ctl epoll_wait send")
{
	start();
	add(b, EPOLLPRI, 1);
	put(a, b, "x");
	look("not urgent", ep, 0);
	send(a, "!", 1, MSG_OOB);
	look("urgent", ep, 2000);
	recv(b, t, 10, MSG_OOB);
	look("taken", ep, 0);
	add(a, EPOLLPRI | EPOLLOUT | EPOLLET, 2);
	look("other end", ep, 0);
}

static void sends(void) { send(a, "x", 1, 0); }
SNIPPET(epoll_wakes, "epoll_wait epoll_pwait epoll_pwait2")
{
	struct epoll_event ev;
	struct timespec ts = { 8, 0 };

	start();
	add(b, EPOLLIN, 7);
	when_blocked(sends);
	SAY("epoll_wait", epoll_wait(ep, &ev, 1, -1));
	helper_done();
	recv(b, t, 1, 0);
	when_blocked(sends);
	SAY("epoll_pwait", epoll_pwait(ep, &ev, 1, 8000, NULL));
	helper_done();
	recv(b, t, 1, 0);
	when_blocked(sends);
	SAY("epoll_pwait2", epoll_pwait2(ep, &ev, 1, &ts, NULL));
	helper_done();
	recv(b, t, 1, 0);
	when_blocked(sends);
	SAY("epoll_pwait2 for ever", epoll_pwait2(ep, &ev, 1, NULL, NULL));
	helper_done();
	tell("data %d", (int)ev.data.u64);
}

SNIPPET(epoll_times, "epoll_wait epoll_pwait epoll_pwait2")
{
	struct epoll_event ev;
	struct timespec ts = { 0, 50000000 }, us = { 0, 200000 }, bad = { 0, 1000000000 },
		neg = { -1, 0 }, zero = { 0, 0 };
	uint64_t t0;

	start();
	add(b, EPOLLIN, 1);
	t0 = now_ms();
	SAY("50 ms", epoll_wait(ep, &ev, 1, 50));
	SAY("50 ms", epoll_pwait(ep, &ev, 1, 50, NULL));
	SAY("50 ms", epoll_pwait2(ep, &ev, 1, &ts, NULL));
	say_time("all", t0, 150);
	SAY("200 us", epoll_pwait2(ep, &ev, 1, &us, NULL));
	SAY("no time", epoll_pwait2(ep, &ev, 1, &zero, NULL));
	SAY("bad nanoseconds", epoll_pwait2(ep, &ev, 1, &bad, NULL));
	SAY("negative", epoll_pwait2(ep, &ev, 1, &neg, NULL));
}

static void signals_main(void) { syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1); }
SNIPPET(epoll_signal, "epoll_wait epoll_pwait epoll_pwait2")
{
	struct epoll_event ev;
	struct timespec ts = { 0, 50000000 };
	sigset_t none, usr1;

	start();
	add(b, EPOLLIN, 1);
	handle(SIGUSR1, SA_RESTART);
	when_blocked(signals_main);
	SAY("never restarts", epoll_wait(ep, &ev, 1, -1));
	helper_done();
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	raise(SIGUSR1);
	SAY("kept out", epoll_pwait(ep, &ev, 1, 30, NULL));
	tell("signals %d", signals);
	SAY("let in", epoll_pwait(ep, &ev, 1, -1, &none));
	tell("signals %d", signals);
	raise(SIGUSR1);
	SAY("let in", epoll_pwait2(ep, &ev, 1, NULL, &none));
	tell("signals %d", signals);
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	when_blocked(signals_main);
	SAY("kept out", epoll_pwait2(ep, &ev, 1, &ts, &usr1));
	helper_done();
	tell("signals %d", signals);
}

SNIPPET(epoll_refused, "epoll_ctl epoll_wait")
{
	struct epoll_event ev = { .events = EPOLLIN }, out[4];

	start();
	SAY("add", add(b, EPOLLIN, 1));
	SAY("add again", add(b, EPOLLIN, 1));
	SAY("mod what is not there", mod(a, EPOLLIN, 1));
	SAY("del what is not there", epoll_ctl(ep, EPOLL_CTL_DEL, a, NULL));
	SAY("itself", epoll_ctl(ep, EPOLL_CTL_ADD, ep, &ev));
	SAY("unknown op", epoll_ctl(ep, 77, a, &ev));
	SAY("op 0", epoll_ctl(ep, 0, a, &ev));
	SAY("bad fd", epoll_ctl(ep, EPOLL_CTL_ADD, -1, &ev));
	SAY("enormous fd", epoll_ctl(ep, EPOLL_CTL_ADD, INT_MAX, &ev));
	SAY("closed fd", epoll_ctl(ep, EPOLL_CTL_ADD, 999, &ev));
	SAY("a file", epoll_ctl(ep, EPOLL_CTL_ADD, open("/etc/passwd", O_RDONLY), &ev));
	SAY("bad epoll", epoll_ctl(-1, EPOLL_CTL_ADD, a, &ev));
	SAY("not an epoll", epoll_ctl(a, EPOLL_CTL_ADD, b, &ev));
	SAY("NULL event", epoll_ctl(ep, EPOLL_CTL_ADD, a, NULL));
	SAY("NULL event, mod", epoll_ctl(ep, EPOLL_CTL_MOD, b, NULL));
	SAY("exclusive and one-shot", add(a, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
	SAY("exclusive by mod", mod(b, EPOLLIN | EPOLLEXCLUSIVE, 1));
	SAY("no room", epoll_wait(ep, out, 0, 0));
	SAY("negative room", epoll_wait(ep, out, -1, 0));
	SAY("enormous room", epoll_wait(ep, out, INT_MAX, 0));
	SAY("bad epoll", epoll_wait(-1, out, 1, 0));
	SAY("not an epoll", epoll_wait(a, out, 1, 0));
	SAY("a file", epoll_wait(open("/dev/null", O_RDONLY), out, 1, 0));
	SAY("NULL events, nothing to tell", epoll_wait(ep, NULL, 1, 0));
	put(a, b, "x");
	SAY("NULL events", epoll_wait(ep, NULL, 1, 0));
	look("after all", ep, 1000);
}

SNIPPET(epoll_data_kept, "epoll_ctl epoll_wait")
{
	struct epoll_event ev;

	start();
	add(b, EPOLLIN, 0x123456789abcdef0);
	put(a, b, "x");
	SAY("one", epoll_wait(ep, &ev, 1, 1000));
	tell("data %llx", (unsigned long long)ev.data.u64);
	mod(b, EPOLLIN | EPOLLOUT, 0xffffffffffffffff);
	SAY("one", epoll_wait(ep, &ev, 1, 1000));
	tell("data %llx", (unsigned long long)ev.data.u64);
}

SNIPPET(epoll_two_instances, "epoll_ctl epoll_wait")
{
	int e2 = epoll_create1(0);

	start();
	SAY("first", add(b, EPOLLIN, 1));
	SAY("second", add_to(e2, b, EPOLLIN | EPOLLET, 2));
	put(a, b, "x");
	look("first", ep, 1000);
	look("second", e2, 1000);
	no_edge("second, edge", e2, b, 0);
	recv(b, t, 10, 0);
	look("first", ep, 0);
	put(a, b, "y");
	look("second", e2, 1000);
	close(e2);
	look("first", ep, 1000);
}

SNIPPET(epoll_two_streams_limit, "epoll_wait")
{
	struct epoll_event ev[4];
	uint64_t end;
	int seen = 0;
	int x[4], y[4];

	ep = epoll_create1(0);
	for (int i = 0; i < 4; i++) {
		pair_of(&x[i], &y[i]);
		add(y[i], EPOLLIN, (uint64_t)i);
		put(x[i], y[i], "x");
	}
	end = now_ms() + 1000;
	while (seen != 0xf && now_ms() < end) {		/* one at a time: everybody has his turn */
		if (epoll_wait(ep, ev, 1, 1000) != 1)
			tell("none, seen %#x", (unsigned)seen);
		seen |= 1 << ev[0].data.u64;
	}
	tell("seen %#x", (unsigned)seen);
	look("all", ep, 0);
}

SNIPPET(epoll_nested, "epoll_ctl epoll_wait poll select")
{
	int outer = epoll_create1(0);
	struct pollfd p;
	struct timeval zero = { 0, 0 };
	fd_set r;

	start();
	add(b, EPOLLIN, 1);
	SAY("an instance in an instance", add_to(outer, ep, EPOLLIN, 9));
	SAY("a loop", add_to(ep, outer, EPOLLIN, 9));
	look("outer, idle", outer, 0);
	put(a, b, "x");
	look("outer", outer, 1000);
	look("inner", ep, 1000);
	p = (struct pollfd){ .fd = ep, .events = POLLIN };
	SAY("poll of an instance", poll(&p, 1, 1000));
	FD_ZERO(&r);
	FD_SET(ep, &r);
	SAY("select of an instance", select(ep + 1, &r, NULL, NULL, &zero));
	recv(b, t, 10, 0);
	look("outer", outer, 0);
	SAY("poll", poll(&p, 1, 0));
	when_blocked(sends);
	look("outer waits", outer, 5000);
	helper_done();
	recv(b, t, 10, 0);
	when_blocked(sends);
	SAY("poll waits", poll(&p, 1, 5000));
	helper_done();
}

SNIPPET(epoll_nested_late, "epoll_ctl epoll_wait")
{
	/* the connection is added to an instance that is already waited for */
	int outer = epoll_create1(0);

	start();
	add_to(outer, ep, EPOLLIN | EPOLLET, 9);
	SAY("add", add(b, EPOLLIN, 1));
	put(a, b, "x");
	look("outer", outer, 2000);
	look("inner", ep, 0);
	recv(b, t, 10, 0);
	when_blocked(sends);
	look("outer waits", outer, 5000);
	helper_done();
}

SNIPPET(epoll_exclusive, "epoll_ctl epoll_wait")
{
	int n, e2 = epoll_create1(0);
	struct epoll_event ev;

	start();
	SAY("first", add(b, EPOLLIN | EPOLLEXCLUSIVE, 1));
	SAY("second", add_to(e2, b, EPOLLIN | EPOLLEXCLUSIVE, 2));
	SAY("mod is refused", mod(b, EPOLLIN, 1));
	when_blocked(sends);
	look("one of them", ep, 5000);
	helper_done();
	n = epoll_wait(e2, &ev, 1, 0);		/* "one or more" of them, says epoll_ctl(2) */
	tell("the other, if at all: %s", n ? ep_bits(ev.events) : "IN");
	recv(b, t, 10, 0);
	put(a, b, "y");
	look("again", ep, 1000);
	SAY("del", epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL));
	look("the other", e2, 1000);
}

SNIPPET(epoll_closed_fd, "epoll_wait close dup")
{
	int d;

	start();
	add(b, EPOLLIN, 1);
	put(a, b, "x");
	SAY("close", close(b));
	look("gone with the fd", ep, 0);
	pair();
	add(b, EPOLLIN, 2);
	d = dup(b);
	put(a, b, "y");
	SAY("close, but a dup lives", close(b));
	look("still reported", ep, 1000);
	SAY("cannot be named any more", epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL));
	recv(d, t, 10, 0);
	look("idle", ep, 0);
	put(a, d, "z");
	look("reported again", ep, 1000);
	close(d);
	look("now gone", ep, 0);
}

/* The library takes a connection off its fast path when an fd of it is passed. */
SNIPPET(epoll_closed_fd_passed, "epoll_wait close dup sendmsg")
{
	char space[CMSG_SPACE(sizeof(int))] = "";
	struct iovec v = { "p", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = space,
			    .msg_controllen = sizeof space };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int d, u[2];

	start();
	add(b, EPOLLIN, 1);
	d = dup(b);
	SAY("close, but a dup lives", close(b));
	look("idle", ep, 0);
	SAY("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, u));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &d, sizeof d);
	SAY("pass the dup", sendmsg(u[0], &m, 0));
	put(a, d, "z");
	look("still reported", ep, 1000);
	recv(d, t, 10, 0);
	close(u[0]);
	close(u[1]);
	close(d);
}

SNIPPET(epoll_dup_added, "epoll_ctl epoll_wait dup")
{
	int d;

	start();
	d = dup(b);
	SAY("one", add(b, EPOLLIN, 1));
	SAY("its dup", add(d, EPOLLIN | EPOLLOUT, 2));
	put(a, b, "x");
	look("both", ep, 1000);
	recv(d, t, 10, 0);
	look("out", ep, 0);
	SAY("del", epoll_ctl(ep, EPOLL_CTL_DEL, d, NULL));
	put(a, b, "y");
	look("the first", ep, 1000);
}

SNIPPET(epoll_same_data, "epoll_ctl epoll_wait")
{
	int c, d;

	start();
	pair_of(&c, &d);
	SAY("one", add(b, EPOLLIN, 5));
	SAY("other with the same data", add(d, EPOLLIN, 5));
	put(a, b, "x");
	look("one", ep, 1000);
	put(c, d, "y");
	look("both", ep, 1000);
	recv(b, t, 10, 0);
	look("the other", ep, 1000);
}

SNIPPET(epoll_readd, "epoll_ctl epoll_wait")
{
	start();
	for (int i = 0; i < 50; i++) {
		if (add(b, EPOLLIN | (i & 1 ? EPOLLET : 0), (uint64_t)i))
			tell("add %d: %s", i, strerrorname_np(errno));
		put(a, b, "x");
		if (i % 10 == 0)
			look("readable", ep, 1000);
		recv(b, t, 10, 0);
		if (epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL))
			tell("del %d: %s", i, strerrorname_np(errno));
		if (i % 7 == 0)
			nap_us(random() % 2000);
	}
	look("in the end", ep, 0);
}

/* A descriptor that is removed and added again for each direction and message, as redis' event
 * loop and libevent's do it. */
SNIPPET(epoll_remove_add, "epoll_ctl epoll_wait")
{
	struct epoll_event ev[4];
	int other, n = 0, p[2];
	char c[2];

	start();
	for (int i = 0; i < 300; i++) {
		add(b, EPOLLOUT, 4);
		n += epoll_wait(ep, ev, 4, -1) == 1 && ev[0].events == EPOLLOUT;
		n += epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL) == 0;
		n += send(b, "q", 1, 0) == 1;
		n += add(b, EPOLLIN, 4) == 0;
		n += recv(a, c, 1, 0) == 1 && send(a, "a", 1, 0) == 1;
		n += epoll_wait(ep, ev, 4, -1) == 1 && ev[0].events == EPOLLIN;
		n += recv(b, c, 2, 0) == 1;
		n += epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL) == 0;
	}
	tell("300 times: %d", n);
	SAY("removed: removed again", epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL));
	SAY("changed", mod(b, EPOLLIN, 4));
	add(b, EPOLLIN, 4);
	epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL);
	send(a, "x", 1, 0);
	nap_us(10000);
	look("something came for what is removed", ep, 30);
	add(b, EPOLLIN | EPOLLET, 5);
	look("added, with other data", ep, 1000);
	epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL);
	add(b, EPOLLIN | EPOLLET, 5);
	look("again: an edge again", ep, 1000);
	epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL);
	add(b, EPOLLIN | EPOLLONESHOT, 5);
	look("one shot", ep, 1000);
	look("fired", ep, 30);
	epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL);
	SAY("a pipe with its data", pipe(p) ? -1 : add(p[0], EPOLLIN, 5));
	close(a);
	nap_us(10000);
	look("the peer closes", ep, 30);
	add(b, EPOLLIN | EPOLLRDHUP, 6);
	look("added", ep, 1000);
	epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL);
	other = dup(b);
	close(b);
	b = other;
	look("its number is closed", ep, 30);
	add(b, EPOLLIN, 7);
	look("by another number", ep, 1000);
}

SNIPPET(epoll_mod_rearms_edge, "epoll_ctl epoll_wait")
{
	start();
	add(b, EPOLLIN | EPOLLET, 1);
	put(a, b, "x");
	look("edge", ep, 1000);
	no_edge("once", ep, b, 0);
	SAY("mod", mod(b, EPOLLIN | EPOLLET, 2));
	look("again", ep, 1000);
	SAY("mod to out", mod(b, EPOLLOUT | EPOLLET, 3));
	look("writable", ep, 1000);
	SAY("mod to in", mod(b, EPOLLIN | EPOLLET, 4));
	look("readable", ep, 1000);
}
