/*
 * epollmodes.c - every way to wait with epoll, poll and select for connections whose bytes are
 * checked: level, edge, one-shot, exclusive, several instances and threads, nested, together
 * with timers, pipes and eventfds. The stepwise scenarios get connections that have seen traffic
 * and time; the bulk ones register fresh connections and echo while the peer verifies. Knows
 * nothing of the library.
 *
 * 	epollmodes accept|connect [-l] [SCENARIO...]
 * 	epollmodes list
 * -l: an edge without new data is no mistake (a connection that changes its path gives one): it
 * is not printed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/timerfd.h>

#include "pair.h"

static const char *scene;
static _Atomic uint64_t scene_began;
static bool loose;

#define say(...) (printf("%s: ", scene), printf(__VA_ARGS__), putchar('\n'))

static const char *bits(uint32_t b)
{
	static _Thread_local char s[64];

	snprintf(s, sizeof(s), "%s%s%s%s%s%s", b & EPOLLIN ? " IN" : "", b & EPOLLOUT ? " OUT" : "",
		 b & EPOLLRDHUP ? " RDHUP" : "", b & EPOLLERR ? " ERR" : "",
		 b & EPOLLHUP ? " HUP" : "", b ? "" : " nothing");
	return s;
}

static int ep_new(void) { return epoll_create1(EPOLL_CLOEXEC); }

static int ctl(int ep, int op, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = (uint64_t)fd | 0xabcd00000000ull };

	return epoll_ctl(ep, op, fd, &e) ? -errno : 0;
}

/* The events of one fd within the time; dies on another fd's. */
static uint32_t wait_one(int ep, int fd, int ms)
{
	struct epoll_event e = { 0 };
	int n = epoll_wait(ep, &e, 1, ms);

	if (n < 0)
		die("%s: epoll_wait: %s", scene, strerror(errno));
	if (n && e.data.u64 != ((uint64_t)fd | 0xabcd00000000ull))
		die("%s: data %llx of fd %d", scene, (unsigned long long)e.data.u64, fd);
	return n ? e.events : 0;
}

static void quiet_edge(const char *what, int ep, int fd)
{
	uint32_t b = wait_one(ep, fd, 20);

	if (!loose)
		say("%s:%s", what, bits(b));
}

static ssize_t take(struct conn *c, size_t n)
{
	static char b[1 << 20];
	ssize_t r = recv(c->fd, b, n, MSG_DONTWAIT);

	came(c, b, r, scene);
	return r;
}

/* All n bytes that are known to have been sent. */
static void gather(struct conn *c, size_t n)
{
	for (int i = 0; n && i < 5000; i++) {
		ssize_t r = take(c, n);

		if (r > 0)
			n -= r;
		else
			nap(1);
	}
	if (n)
		die("%s: %zu bytes missing", scene, n);
}

/* ---- stepwise ---- */

static void level(struct conn *c)
{
	int ep = ep_new();
	uint32_t b;

	say("add %d", ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN));
	say("add again %d", ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN));
	say("idle:%s", bits(wait_one(ep, c->fd, 20)));
	ask(P_SEND, c, 100);
	say("data:%s", bits(wait_one(ep, c->fd, 2000)));
	gather(c, 40);
	say("60 left:%s", bits(wait_one(ep, c->fd, 2000)));
	say("and still:%s", bits(wait_one(ep, c->fd, 2000)));
	gather(c, 60);
	say("read:%s", bits(wait_one(ep, c->fd, 20)));
	say("mod %d", ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLOUT));
	say("writable:%s", bits(wait_one(ep, c->fd, 2000)));
	say("still:%s", bits(wait_one(ep, c->fd, 2000)));
	ask(P_SEND, c, 10);
	b = wait_one(ep, c->fd, 2000);
	/* what is there may be under way to the other path */
	for (int i = 0; loose && b == EPOLLOUT && i < 2000; i++) {
		poll(NULL, 0, 1);
		b = wait_one(ep, c->fd, 2000);
	}
	say("both:%s", bits(b));
	ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLOUT);
	say("only OUT:%s", bits(wait_one(ep, c->fd, 2000)));
	ctl(ep, EPOLL_CTL_MOD, c->fd, 0);
	say("no interest:%s", bits(wait_one(ep, c->fd, 20)));
	say("del %d", ctl(ep, EPOLL_CTL_DEL, c->fd, 0));
	say("mod when gone %d", ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN));
	say("gone:%s", bits(wait_one(ep, c->fd, 20)));
	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	say("added with data:%s", bits(wait_one(ep, c->fd, 2000)));
	gather(c, 10);
	close(ep);
}

static void edge(struct conn *c)
{
	int ep = ep_new();

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLOUT | EPOLLET);
	say("added:%s", bits(wait_one(ep, c->fd, 2000)));
	quiet_edge("no second edge", ep, c->fd);
	ask(P_SEND, c, 100);
	for (int i = 0; i < 100 && !(wait_one(ep, c->fd, 100) & EPOLLIN); i++)
		;
	say("data came");
	gather(c, 40);
	quiet_edge("60 left", ep, c->fd);
	ask(P_SEND, c, 10);
	for (int i = 0; i < 100 && !(wait_one(ep, c->fd, 100) & EPOLLIN); i++)
		;
	say("new data is a new edge");
	gather(c, 70);
	quiet_edge("read", ep, c->fd);
	ask(P_SEND, c, 20);
	nap(20);
	ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLET);
	say("MOD is an edge:%s", bits(wait_one(ep, c->fd, 2000)));
	gather(c, 20);
	close(ep);
}

/* Each of many messages is announced by an edge, also while the path changes. */
static void edges(struct conn *c)
{
	int ep = ep_new();

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLET);
	for (int i = 0; i < 300; i++) {
		size_t n = 1 + i % 7 * 100;

		later(1, P_SEND, c, n);
		while (n) {
			ssize_t r = take(c, n);

			if (r > 0) {
				n -= r;
				continue;
			}
			if (!wait_one(ep, c->fd, 5000))
				die("%s: message %d: no edge in 5 s", scene, i);
		}
		outcome();
	}
	say("300 messages");
	close(ep);
}

/* Bytes that come while older ones are unread, by whatever path, are an edge. */
static void arrivals(struct conn *c)
{
	int ep = ep_new();

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLET);
	for (int i = 0; i < 40; i++) {
		ask(P_SEND, c, 100);
		if (!(wait_one(ep, c->fd, 3000) & EPOLLIN))
			die("%s: no edge for 100 bytes, round %d", scene, i);
		nap(i % 8);
		while (wait_one(ep, c->fd, 1))
			;
		ask(P_SEND, c, 50);
		if (!(wait_one(ep, c->fd, 3000) & EPOLLIN))
			die("%s: no edge for 50 more bytes, round %d", scene, i);
		gather(c, 150);
	}
	say("each arrival gave an edge");
	close(ep);
}

static void oneshot(struct conn *c)
{
	int ep = ep_new();

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLONESHOT);
	ask(P_SEND, c, 10);
	say("data:%s", bits(wait_one(ep, c->fd, 2000)));
	say("silent:%s", bits(wait_one(ep, c->fd, 50)));
	ask(P_SEND, c, 10);
	say("silent with more:%s", bits(wait_one(ep, c->fd, 50)));
	ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLONESHOT);
	say("armed again:%s", bits(wait_one(ep, c->fd, 2000)));
	gather(c, 20);
	ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLONESHOT);
	say("nothing there:%s", bits(wait_one(ep, c->fd, 50)));
	later(50, P_SEND, c, 10);
	say("data while waiting:%s", bits(wait_one(ep, c->fd, 2000)));
	outcome();
	gather(c, 10);
	ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT);
	say("OUT:%s", bits(wait_one(ep, c->fd, 2000)));
	say("silent:%s", bits(wait_one(ep, c->fd, 50)));
	ask(P_SHUT, c, SHUT_WR);
	nap(20);
	say("silent at the end:%s", bits(wait_one(ep, c->fd, 50)));
	ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT);
	say("end:%s", bits(wait_one(ep, c->fd, 2000)));
	close(ep);
}

static void two_instances(struct conn *c)
{
	int a = ep_new(), b = ep_new();

	ctl(a, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	ctl(b, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLET);
	for (int i = 0; i < 20; i++) {
		ask(P_SEND, c, 10);
		if (!(wait_one(a, c->fd, 2000) & EPOLLIN) || !(wait_one(b, c->fd, 2000) & EPOLLIN))
			die("%s: round %d: one of them was not told", scene, i);
		gather(c, 10);
	}
	say("20 messages seen by both");
	say("the level-triggered one:%s", bits(wait_one(a, c->fd, 20)));
	quiet_edge("the edge-triggered one", b, c->fd);
	close(b);
	ask(P_SEND, c, 10);
	say("one closed, the other:%s", bits(wait_one(a, c->fd, 2000)));
	gather(c, 10);
	close(a);
}

static void nested(struct conn *c)
{
	int in = ep_new(), mid = ep_new(), out = ep_new();
	struct pollfd p = { .fd = out, .events = POLLIN };
	fd_set r;

	ctl(in, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	ctl(mid, EPOLL_CTL_ADD, in, EPOLLIN);
	ctl(out, EPOLL_CTL_ADD, mid, EPOLLIN);
	say("idle:%s", bits(wait_one(out, mid, 20)));
	for (int i = 0; i < 5; i++) {
		later(20, P_SEND, c, 10);
		say("outer:%s", bits(wait_one(out, mid, 2000)));
		outcome();
		say("middle:%s", bits(wait_one(mid, in, 2000)));
		say("inner:%s", bits(wait_one(in, c->fd, 2000)));
		say("poll of the outer %d", poll(&p, 1, 2000));
		gather(c, 10);
		say("inner, read:%s", bits(wait_one(in, c->fd, 20)));
		say("outer, read:%s", bits(wait_one(out, mid, 20)));
	}
	p.fd = in;
	say("poll of the inner, idle %d", poll(&p, 1, 20));
	later(20, P_SEND, c, 10);
	say("poll of the inner %d", poll(&p, 1, 2000));
	outcome();
	gather(c, 10);
	later(20, P_SEND, c, 10);
	FD_ZERO(&r);
	FD_SET(in, &r);
	say("select of the inner %d", select(in + 1, &r, NULL, NULL, &(struct timeval){ 2, 0 }));
	outcome();
	gather(c, 10);
	close(in);
	close(mid);
	close(out);
}

static void many_fds(struct conn *c)
{
	int pipes[400][2], high, big, n;
	struct pollfd p[402];
	static fd_set r[2];		/* twice as wide as fd_set says: the kernel takes it */

	for (int i = 0; i < 400; i++)
		if (pipe2(pipes[i], O_CLOEXEC))
			die("pipe");
	high = fcntl(c->fd, F_DUPFD_CLOEXEC, 1000);
	big = fcntl(c->fd, F_DUPFD_CLOEXEC, 1500);
	say("high %d, beyond FD_SETSIZE %d", high >= 1000 && high < 1024, big >= 1500);
	for (int round = 0; round < 10; round++) {
		later(10, P_SEND, c, 10);
		memset(r, 0, sizeof(r));
		for (int i = 0; i < 400; i++)
			FD_SET(pipes[i][0], r);
		FD_SET(high, r);
		n = select(high + 1, r, NULL, NULL, &(struct timeval){ 2, 0 });
		outcome();
		if (n != 1 || !FD_ISSET(high, r))
			die("%s: select gave %d, high fd set %d", scene, n, !!FD_ISSET(high, r));
		gather(c, 10);
		later(10, P_SEND, c, 10);
		for (int i = 0; i < 400; i++)
			p[i] = (struct pollfd){ .fd = pipes[i][0], .events = POLLIN };
		p[400] = (struct pollfd){ .fd = -7, .events = POLLIN };
		p[401] = (struct pollfd){ .fd = big, .events = POLLIN };
		n = poll(p, 402, 2000);
		outcome();
		if (n != 1 || p[401].revents != POLLIN || p[400].revents)
			die("%s: poll gave %d, %x", scene, n, p[401].revents);
		gather(c, 10);
		later(10, P_SEND, c, 10);
		memset(r, 0, sizeof(r));
		((unsigned long *)r)[big / 64] |= 1ul << big % 64;
		n = select(big + 1, r, NULL, NULL, &(struct timeval){ 2, 0 });
		outcome();
		if (n != 1 || !(((unsigned long *)r)[big / 64] & 1ul << big % 64))
			die("%s: wide select gave %d", scene, n);
		gather(c, 10);
	}
	say("10 rounds of select, poll and a wide select");
	FD_ZERO(r);
	FD_SET(high, r);
	n = select(high + 1, NULL, r, NULL, NULL);
	say("writable %d", n);
	p[401] = (struct pollfd){ .fd = 5555, .events = POLLIN };
	n = poll(&p[401], 1, 0);
	say("a closed fd in poll %d %d", n, p[401].revents == POLLNVAL);
	for (int i = 0; i < 400; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	close(high);
	close(big);
}

static void toggling(struct conn *c)
{
	int ep = ep_new();

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	for (int i = 0; i < 240; i++) {
		switch (i % 6) {
		case 0:
			ctl(ep, EPOLL_CTL_DEL, c->fd, 0);
			ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
			break;
		case 1:
			ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLOUT);
			if (wait_one(ep, c->fd, 2000) != EPOLLOUT)
				die("%s: round %d: not writable", scene, i);
			ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN);
			break;
		case 2:
			ctl(ep, EPOLL_CTL_MOD, c->fd, 0);
			ask(P_SEND, c, 3);
			if (wait_one(ep, c->fd, 2))
				die("%s: round %d: an event without interest", scene, i);
			ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN);
			gather(c, 3);
			break;
		case 3:
			ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLET);
			break;
		case 4:
			ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLONESHOT);
			break;
		case 5:
			close(ep);
			ep = ep_new();
			ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
			break;
		}
		later(i % 3 ? 1 : -1, P_SEND, c, 10);
		for (int t = 0; t < 100; t++) {
			uint32_t b = wait_one(ep, c->fd, 2000);
			ssize_t r;

			if (!b)
				die("%s: round %d (%d): no event in 2 s", scene, i, i % 6);
			r = take(c, 10);
			if (r == 10)
				break;
			if (r > 0 || errno != EAGAIN)
				die("%s: round %d: %zd of 10 bytes", scene, i, r);
			if (i % 6 == 4)	/* fired for nothing, which one-shot must not */
				ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLONESHOT);
		}
		outcome();
	}
	say("240 rounds");
	close(ep);
}

static void rdhup(struct conn *c)
{
	int lt = ep_new(), et = ep_new(), none = ep_new();

	ctl(lt, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLRDHUP);
	ctl(et, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
	ctl(none, EPOLL_CTL_ADD, c->fd, 0);
	later(50, P_SHUT, c, SHUT_WR);
	for (int i = 0; i < 100 && !(wait_one(et, c->fd, 100) & EPOLLRDHUP); i++)
		;
	outcome();
	say("edge came");
	say("level:%s", bits(wait_one(lt, c->fd, 2000)));
	say("still:%s", bits(wait_one(lt, c->fd, 2000)));
	quiet_edge("no second edge", et, c->fd);
	say("without interest:%s", bits(wait_one(none, c->fd, 20)));
	say("recv %zd", take(c, 10));
	shutdown(c->fd, SHUT_WR);
	ask(P_DRAIN, c, 0);
	nap(20);
	say("both ended, without interest:%s", bits(wait_one(none, c->fd, 2000)));
	say("level:%s", bits(wait_one(lt, c->fd, 2000)));
	close(lt);
	close(et);
	close(none);
}

static void reset(struct conn *c)
{
	int ep = ep_new(), none = ep_new();

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLRDHUP);
	ctl(none, EPOLL_CTL_ADD, c->fd, EPOLLET);
	ask(P_LINGER, c, 0);
	later(50, P_CLOSE, c, 0);
	say("reset, without interest:%s", bits(wait_one(none, c->fd, 5000)));
	outcome();
	nap(30);
	say("level:%s", bits(wait_one(ep, c->fd, 2000)));
	say("recv %s", take(c, 10) < 0 ? strerrorname_np(errno) : "?");
	close(ep);
	close(none);
}

/* ---- threads ---- */

struct waiter {
	int ep, fd, ms;
	uint32_t got;
	_Atomic int tid;
};

/* Until the thread sleeps in its wait, or is through with it. */
static void asleep(struct waiter *w)
{
	for (int i = 0, seen = 0; i < 5000 && seen < 5; i++) {
		char path[64], state = 0;
		FILE *f;

		nap(2);
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", w->tid);
		f = w->tid ? fopen(path, "r") : NULL;
		if (w->tid && !f)
			return;
		if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 0;
		if (f)
			fclose(f);
		seen = state == 'S' ? seen + 1 : 0;
	}
}

static void *wait_thread(void *p)
{
	struct waiter *w = p;

	w->tid = gettid();
	w->got = wait_one(w->ep, w->fd, w->ms);
	return NULL;
}

static void close_while_waiting(struct conn *c)
{
	struct conn *d = c + 1;
	int ep = ep_new();
	struct waiter w = { ep, c->fd, 400, 99, 0 };
	pthread_t t;

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	pthread_create(&t, NULL, wait_thread, &w);
	asleep(&w);
	close(c->fd);
	say("the peer of the closed one sees its end: %ld", ask(P_DRAIN, c, 0));
	pthread_join(t, NULL);
	say("the waiter:%s", bits(w.got));
	/* Another one in the same instance, while one is closed. */
	c->fd = d->fd;
	ctl(ep, EPOLL_CTL_ADD, d->fd, EPOLLIN);
	w = (struct waiter){ ep, d->fd, 5000, 99, 0 };
	pthread_create(&t, NULL, wait_thread, &w);
	asleep(&w);
	ask(P_SEND, d, 10);
	pthread_join(t, NULL);
	say("another in the same instance:%s", bits(w.got));
	gather(d, 10);
	/* The number is used again while a thread waits in the instance. */
	w = (struct waiter){ ep, d->fd, 300, 99, 0 };
	pthread_create(&t, NULL, wait_thread, &w);
	asleep(&w);
	close(d->fd);
	d->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	pthread_join(t, NULL);
	say("closed and its number used again:%s", bits(w.got));
	close(d->fd);
	close(ep);
	c->fd = d->fd = -1;
}

static void epoll_closed_while_waiting(struct conn *c)
{
	int ep = ep_new();
	struct waiter w = { ep, c->fd, 300, 99, 0 };
	pthread_t t;

	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	pthread_create(&t, NULL, wait_thread, &w);
	asleep(&w);
	close(ep);
	pthread_join(t, NULL);
	say("the waiter:%s", bits(w.got));
	ep = ep_new();
	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	ask(P_SEND, c, 10);
	say("a new instance:%s", bits(wait_one(ep, c->fd, 2000)));
	gather(c, 10);
	close(ep);
}

/* A thread adds while another waits. */
static void add_while_waiting(struct conn *c)
{
	int ep = ep_new();
	struct waiter w = { ep, c->fd, 5000, 99, 0 };
	pthread_t t;

	pthread_create(&t, NULL, wait_thread, &w);
	asleep(&w);
	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	nap(20);
	ask(P_SEND, c, 10);
	pthread_join(t, NULL);
	say("added and sent:%s", bits(w.got));
	ctl(ep, EPOLL_CTL_MOD, c->fd, 0);
	w.got = 99;
	w.tid = 0;
	pthread_create(&t, NULL, wait_thread, &w);
	asleep(&w);
	ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN);
	pthread_join(t, NULL);
	say("interest added by MOD:%s", bits(w.got));
	gather(c, 10);
	w.ep = ep_new();
	w.got = 99;
	w.tid = 0;
	pthread_create(&t, NULL, wait_thread, &w);
	asleep(&w);
	ctl(w.ep, EPOLL_CTL_ADD, c->fd, EPOLLOUT);
	pthread_join(t, NULL);
	say("added writable:%s", bits(w.got));
	close(w.ep);
	close(ep);
}

#include "epollmodes-others.h"

int main(int argc, char **argv)
{
	pthread_t t;
	int pid;

	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (int i = 0; i < SCENES; i++)
			printf("%s%s\n", scenes[i].name, scenes[i].fresh ? ".fresh" : "");
		return 0;
	}
	loose = argc > 2 && !strcmp(argv[2], "-l");
	pid = pair_start(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	scene = "start";
	scene_began = now_ms();
	pthread_create(&t, NULL, watchdog, NULL);
	for (int i = 0; i < SCENES; i++) {
		struct conn c[BULK_CONNS];

		if (!asked_for(scenes[i].name, scenes[i].fresh, argc, argv))
			continue;
		printf("- %s%s\n", scenes[i].name, scenes[i].fresh ? ".fresh" : "");
		scene = scenes[i].name;
		scene_began = now_ms();
		pair_ids = 0;
		for (int k = 0; k < scenes[i].conns; k++)
			c[k] = conn_new();
		if (!scenes[i].fresh)
			warm(c, scenes[i].conns, 60);
		scene_began = now_ms();
		scenes[i].run(c);
		for (int k = 0; k < scenes[i].conns; k++) {
			if (c[k].fd >= 0)
				close(c[k].fd);
			ask(P_CLOSE, &c[k], 0);
		}
	}
	return pair_end(pid);
}
