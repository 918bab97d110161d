/*
 * epollmodes-others.h - a part of epollmodes.c: a busy connection beside others, and
 * EPOLLEXCLUSIVE.
 */
/* Reads on until the peer, which may be blocked with what it could not send, has said how much
 * it was. */
static bool poured(struct conn *c, long *bytes)
{
	struct pair_cmd m = { .op = P_LAST };
	struct pollfd p[2] = { { .fd = c->fd, .events = POLLIN }, { .fd = pair_ctl,
		.events = POLLIN } };
	struct pair_ans a;
	ssize_t r;

	if (write(pair_ctl, &m, sizeof(m)) != (ssize_t)sizeof(m))
		die("the peer is gone");
	while (!p[1].revents && poll(p, 2, 10000) > 0)
		if (p[0].revents && (r = take(c, 65536)) > 0)
			*bytes += r;
	if (!p[1].revents || read(pair_ctl, &a, sizeof(a)) != (ssize_t)sizeof(a))
		die("%s: the peer does not finish", scene);
	while (*bytes < a.ret && poll(p, 1, 5000) > 0)
		if ((r = take(c, 65536)) > 0)
			*bytes += r;
	return *bytes == a.ret;
}

static void fair(struct conn *c)
{
	int ep = ep_new(), tf = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
	    ev = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), p[2];
	struct itimerspec its = { { 0, 5000000 }, { 0, 5000000 } };

	if (pipe2(p, O_NONBLOCK | O_CLOEXEC))
		die("pipe");
	timerfd_settime(tf, 0, &its, NULL);
	ctl(ep, EPOLL_CTL_ADD, tf, EPOLLIN);
	ctl(ep, EPOLL_CTL_ADD, ev, EPOLLIN | EPOLLET);
	ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN);
	ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN);
	for (int max = 1; max <= 16; max *= 4) {
		struct epoll_event e[16];
		uint64_t end = now_ms() + 400, x, late = 0, wrote = 0;
		int ticks = 0, pipes = 0, events = 0;
		long bytes = 0;

		later(-1, P_POUR, c, 400);
		while (now_ms() < end) {
			int n = epoll_wait(ep, e, max, 1000);

			for (int i = 0; i < n; i++) {
				int fd = (int)(uint32_t)e[i].data.u64;

				if (fd == tf) {
					if (read(tf, &x, 8) == 8)
						ticks++;
					if (!wrote) {
						wrote = now_ms();
						if (write(p[1], "x", 1) != 1)
							die("pipe");
						eventfd_write(ev, 1);
					}
				} else if (fd == p[0]) {
					if (read(fd, &x, 1) == 1)
						pipes++;
					/* not one that the round before left */
					if (wrote)
						late = now_ms() - wrote > late ? now_ms() - wrote
									       : late;
					wrote = 0;
				} else if (fd == ev) {
					eventfd_read(ev, &x);
					events++;
				} else {
					ssize_t r = take(c, 8192);

					bytes += r > 0 ? r : 0;
				}
			}
		}
		if (!poured(c, &bytes))
			say("bytes are missing");
		say("%d a call: traffic %d, timer %d, pipe %d, eventfd %d, none late %d", max,
		    bytes > 1000000, ticks > 4, pipes > 3, events > 3, late < 2000);
		if (!(ticks > 4 && pipes > 3 && events > 3 && late < 2000))
			fprintf(stderr,
				"%s: %ld bytes, ticks %d, pipe %d, eventfd %d, latest %llu ms\n",
				scene, bytes, ticks, pipes, events, (unsigned long long)late);
	}
	close(tf);
	close(ev);
	close(p[0]);
	close(p[1]);
	close(ep);
}

#include "epollmodes-bulk.h"
#include "epollmodes-nested.h"

/* ---- EPOLLEXCLUSIVE ---- */

#define EXCL 20
struct taker { int ep, l, stop; int fds[EXCL]; _Atomic int n; };

static void *take_thread(void *p)
{
	struct taker *t = p;

	for (;;) {
		struct epoll_event e;

		if (epoll_wait(t->ep, &e, 1, 10000) != 1)
			die("%s: nobody connects", scene);
		if ((int)(uint32_t)e.data.u64 == t->stop)
			return NULL;
		int fd = accept4(t->l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			t->fds[t->n++] = fd;
		else if (errno != EAGAIN)
			die("%s: accept: %s", scene, strerror(errno));
	}
}

static void exclusive(struct conn *c)
{
	(void)c;
	uint16_t port = 0;
	int l = tcp_listener(&port), stop = eventfd(0, EFD_CLOEXEC), ep = ep_new(), sum = 0,
	    fds[EXCL];
	struct taker t[2];
	pthread_t th[2];
	char b[16];

	fcntl(l, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 2; i++) {
		t[i] = (struct taker){ .ep = ep_new(), .l = l, .stop = stop };
		if (ctl(t[i].ep, EPOLL_CTL_ADD, l, EPOLLIN | EPOLLEXCLUSIVE) ||
		    ctl(t[i].ep, EPOLL_CTL_ADD, stop, EPOLLIN))
			die("%s: add", scene);
		pthread_create(&th[i], NULL, take_thread, &t[i]);
	}
	for (int i = 0; i < EXCL; i++) {
		fds[i] = tcp_connect(port);
		if (i % 4 == 0)
			nap(2);
	}
	for (int i = 0; i < 1000 && t[0].n + t[1].n < EXCL; i++)
		nap(10);
	nap(50);	/* time for one too many */
	eventfd_write(stop, 1);
	for (int i = 0; i < 2; i++) {
		pthread_join(th[i], NULL);
		sum += t[i].n;
		for (int k = 0; k < t[i].n; k++)
			close(t[i].fds[k]);
		close(t[i].ep);
	}
	say("%d of %d accepted once", sum, EXCL);
	for (int i = 0; i < EXCL; i++) {
		if (recv(fds[i], b, sizeof(b), 0) != 0)
			die("%s: no end of file", scene);
		close(fds[i]);
	}
	close(l);
	close(stop);
	close(ep);
}

/* On a connection; it may not be modified, nor be one-shot. */
static void exclusive_conn(struct conn *c)
{
	int ep = ep_new(), other = ep_new();

	say("a connection %d", ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET));
	say("mod %d", ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN));
	ask(P_SEND, c, 10);
	for (int i = 0; i < 100 && !(wait_one(ep, c->fd, 100) & EPOLLIN); i++)
		;
	say("data");
	gather(c, 10);
	/* in two instances: level-triggered, both have it until it is read */
	say("in another %d", ctl(other, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLEXCLUSIVE));
	for (int i = 0; i < 20; i++) {
		ask(P_SEND, c, 10);
		for (int k = 0; k < 100 && !(wait_one(i % 2 ? ep : other, c->fd, 100) & EPOLLIN);
		     k++)
			;
		gather(c, 10);
	}
	say("read twenty times");
	ctl(ep, EPOLL_CTL_DEL, c->fd, 0);
	ctl(other, EPOLL_CTL_DEL, c->fd, 0);
	say("with ONESHOT %d",
	    ctl(ep, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT));
	say("by MOD %d", ctl(ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLEXCLUSIVE));
	close(other);
	close(ep);
}

static const char *wait_error(int ep, int max)
{
	struct epoll_event e;

	return epoll_wait(ep, &e, max, 0) < 0 ? strerrorname_np(errno) : "none";
}

static void bad_calls(struct conn *c)
{
	int ep = ep_new();

	say("no such fd %d", ctl(ep, EPOLL_CTL_ADD, 5555, EPOLLIN));
	say("itself %d", ctl(ep, EPOLL_CTL_ADD, ep, EPOLLIN));
	say("no instance %d", ctl(c->fd, EPOLL_CTL_ADD, ep, EPOLLIN));
	say("a closed instance %d", ctl(5555, EPOLL_CTL_ADD, c->fd, EPOLLIN));
	say("a bad op %d", ctl(ep, 77, c->fd, EPOLLIN));
	say("no event %d", epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, NULL) ? errno : 0);
	say("del of what is not there %d", ctl(ep, EPOLL_CTL_DEL, c->fd, 0));
	say("wait for 0 %s", wait_error(ep, 0));
	say("wait at a connection %s", wait_error(c->fd, 1));
	say("wait at a closed one %s", wait_error(5555, 1));
	close(ep);
}

static const struct {
	const char *name;
	void (*run)(struct conn *c);
	int conns;
	bool fresh;
} scenes[] = {
#define S(f, n) { #f, f, n, false }
#define F(f, n) { #f, f, n, true }
	S(level, 1), S(edge, 1), S(edges, 1), S(arrivals, 1), S(oneshot, 1), S(two_instances, 1),
		S(nested, 1), S(many_fds, 1), S(toggling, 1), S(rdhup, 1),
	S(reset, 1), S(close_while_waiting, 2), S(epoll_closed_while_waiting, 1),
		S(add_while_waiting, 1), S(fair, 1), S(exclusive, 1), S(exclusive_conn, 1),
	S(bad_calls, 1),
	F(bulk_level, BULK_CONNS), F(bulk_edge, BULK_CONNS), F(bulk_oneshot, BULK_CONNS),
		F(bulk_edge_oneshot, BULK_CONNS),
	F(bulk_split, BULK_CONNS), F(team_edge_oneshot, BULK_CONNS), F(team_oneshot, BULK_CONNS),
		F(team_edge, BULK_CONNS),
	F(team_level, BULK_CONNS),
	F(edges, 1), F(arrivals, 1), F(toggling, 1), F(fair, 1),
	S(nest_steps, 1), S(nest_edges, 1),
#define NEST(name, ...) F(nest_##name, BULK_CONNS),
	NESTS(NEST)
#undef NEST
#undef S
#undef F
};
#define SCENES (int)(sizeof(scenes) / sizeof(scenes[0]))

static void *watchdog(void *p)
{
	(void)p;
	for (;;) {
		nap(500);
		if (now_ms() - scene_began > 20000)
			die("%s: hangs", scene);
	}
}

static bool asked_for(const char *name, bool fresh, int argc, char **argv)
{
	char full[64];
	int named = 0;

	snprintf(full, sizeof(full), "%s%s", name, fresh ? ".fresh" : "");
	for (int k = 2; k < argc; k++) {
		if (argv[k][0] == '-')
			continue;
		named++;
		if (!strcmp(argv[k], full))
			return true;
	}
	return !named;
}
