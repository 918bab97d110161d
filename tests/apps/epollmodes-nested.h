/*
 * epollmodes-nested.h - instances that are waited for through their descriptors: by poll, select,
 * or another instance (level, edge, one-shot), at two and at three depths, with connections in the
 * innermost by level, edge or one-shot. Included by epollmodes.c once, after epollmodes-bulk.h.
 */
#ifndef TESTS_EPOLLMODES_NESTED_H
#define TESTS_EPOLLMODES_NESTED_H

enum outer { O_POLL, O_SELECT, O_LEVEL, O_EDGE, O_ONESHOT, OUTERS };
static const char *const outers[] = { "poll", "select", "level", "edge", "oneshot" };
static const uint32_t inner_modes[] = { 0, EPOLLET, EPOLLONESHOT };
static const char *const inners[] = { "level", "edge", "oneshot" };

/* ep[0] has the connections, ep[top] is what is waited for or in; each between is in the next. */
struct nest { int ep[3], top; enum outer outer; };

static uint32_t outer_mode(const struct nest *n)
{
	return EPOLLIN | (n->outer == O_EDGE ? (uint32_t)EPOLLET : 0) |
	       (n->outer == O_ONESHOT ? (uint32_t)EPOLLONESHOT : 0);
}

/* `depth` waits: the outer one counts, and so does that in ep[0]. */
static struct nest nest_new(enum outer outer, int depth)
{
	struct nest n = { .top = outer <= O_SELECT ? depth - 2 : depth - 1, .outer = outer };

	for (int i = 0; i <= n.top; i++)
		n.ep[i] = ep_new();
	for (int i = 0; i < n.top; i++)
		ctl(n.ep[i + 1], EPOLL_CTL_ADD, n.ep[i],
		    i == n.top - 1 ? outer_mode(&n) : EPOLLIN | (outer_mode(&n) & EPOLLET));
	return n;
}

static void nest_close(struct nest *n)
{
	for (int i = 0; i <= n->top; i++)
		close(n->ep[i]);
}

/* A one-shot registration outside is good again. */
static void outer_again(struct nest *n)
{
	if (n->outer == O_ONESHOT)
		ctl(n->ep[n->top], EPOLL_CTL_MOD, n->ep[n->top - 1], outer_mode(n));
}

static int outer_wait(struct nest *n, int ms)
{
	struct pollfd p = { .fd = n->ep[n->top], .events = POLLIN };
	struct timeval t = { ms / 1000, ms % 1000 * 1000 };
	struct epoll_event e;
	fd_set r;

	switch (n->outer) {
	case O_POLL:
		return poll(&p, 1, ms);
	case O_SELECT:
		FD_ZERO(&r);
		FD_SET(p.fd, &r);
		return select(p.fd + 1, &r, NULL, NULL, &t);
	default:
		return epoll_wait(p.fd, &e, 1, ms);
	}
}

/* ---- step by step ---- */

static void nest_step(struct conn *c, enum outer outer, int mode, int depth)
{
	struct nest n = nest_new(outer, depth);
	uint32_t in = EPOLLIN | inner_modes[mode];
	char what[64];

	snprintf(what, sizeof what, "%s, %s in %d", outers[outer], inners[mode], depth);
	ctl(n.ep[0], EPOLL_CTL_ADD, c->fd, in);
	say("%s: idle %d", what, outer_wait(&n, 5));
	for (int i = 0; i < 2; i++) {
		outer_again(&n);
		later(5, P_SEND, c, 10);
		say("%s: told %d", what, outer_wait(&n, 5000));
		outcome();
		if (outer < O_EDGE)
			say("%s: still %d", what, outer_wait(&n, 0));
		else if (!loose)
			say("%s: once %d", what, outer_wait(&n, 5));
		say("%s: inside%s", what, bits(wait_one(n.ep[0], c->fd, 2000)));
		if (mode == 0 && outer < O_EDGE)
			say("%s: left %d", what, outer_wait(&n, 0));
		else if (!loose)
			say("%s: taken %d", what, outer_wait(&n, 5));
		gather(c, 10);
		if (mode == 2)
			ctl(n.ep[0], EPOLL_CTL_MOD, c->fd, in);
		outer_again(&n);
		if (mode == 0 || !loose)
			say("%s: read %d", what, outer_wait(&n, 5));
	}
	nest_close(&n);
}

static void nest_steps(struct conn *c)
{
	for (int depth = 2; depth <= 3; depth++)
		for (int outer = 0; outer < OUTERS; outer++)
			for (int mode = 0; mode < 3; mode++)
				nest_step(c, (enum outer)outer, mode, depth);
}

/* An edge for each arrival, though nobody waits inside: the bytes are read at once. */
static void nest_edges(struct conn *c)
{
	for (int depth = 2; depth <= 3; depth++) {
		struct nest n = nest_new(O_EDGE, depth);

		ctl(n.ep[0], EPOLL_CTL_ADD, c->fd, EPOLLIN);
		for (int i = 0; i < 20; i++) {
			later(1, P_SEND, c, 10);
			say("edge %d in %d: %d", i, depth, outer_wait(&n, 5000));
			outcome();
			if (i % 2)
				gather(c, 20);
			if (!loose)
				say("no more: %d", outer_wait(&n, 2));
		}
		nest_close(&n);
	}
}

/* ---- much data, one thread or a team: a wake-up that is missed ends the run ---- */

#define NEST_TEAM 3

struct nest_run { struct nest n; int mode; bool team; int done[2]; };

/* One event inside. */
static void nest_echo(struct nest_run *r, struct echo *x)
{
	uint32_t want;

	pthread_mutex_lock(&x->lock);
	want = r->mode == 1 ? pump(x) : step(x);
	if (r->mode != 1)
		reg(r->n.ep[0], EPOLL_CTL_MOD, index_of(x), want | inner_modes[r->mode]);
	pthread_mutex_unlock(&x->lock);
}

static void *nest_member(void *p)
{
	struct nest_run *r = p;
	struct epoll_event e[2];
	int k;

	while (bulk_left) {
		if (outer_wait(&r->n, 15000) != 1)
			die("%s: told of nothing for 15 s; %d are left", scene, bulk_left);
		while (bulk_left && (k = epoll_wait(r->n.ep[0], e, 2, 0)) > 0)
			for (int i = 0; i < k; i++)
				if (e[i].data.ptr)
					nest_echo(r, e[i].data.ptr);
		outer_again(&r->n);
	}
	if (write(r->done[1], "x", 1) != 1)	/* the next of the team comes out, too */
		die("%s: pipe: %s", scene, strerror(errno));
	return NULL;
}

static void nest_bulk(struct conn *c, enum outer outer, int mode, int depth, bool team)
{
	struct nest_run r = { nest_new(outer, depth), mode, team, { -1, -1 } };
	struct epoll_event e = { .events = EPOLLIN };
	pthread_t t[NEST_TEAM];

	bulk_begin(c);
	if (pipe(r.done) || epoll_ctl(r.n.ep[0], EPOLL_CTL_ADD, r.done[0], &e))
		die("%s: pipe: %s", scene, strerror(errno));
	for (int i = 0; i < BULK_CONNS; i++)
		reg(r.n.ep[0], EPOLL_CTL_ADD, i,
		    EPOLLIN | (mode == 1 ? (uint32_t)EPOLLOUT : 0) | inner_modes[mode]);
	for (int i = 0; team && i < NEST_TEAM; i++)
		pthread_create(&t[i], NULL, nest_member, &r);
	if (!team)
		nest_member(&r);
	for (int i = 0; team && i < NEST_TEAM; i++)
		pthread_join(t[i], NULL);
	bulk_end();
	close(r.done[0]);
	close(r.done[1]);
	nest_close(&r.n);
}

#define NESTS(X) \
	X(poll_level, O_POLL, 0, 2, false) X(poll_edge, O_POLL, 1, 3, false) \
	X(select_oneshot, O_SELECT, 2, 2, false) X(level_edge, O_LEVEL, 1, 3, false) \
	X(edge_level, O_EDGE, 0, 2, false) X(edge_edge, O_EDGE, 1, 3, false) \
	X(edge_oneshot, O_EDGE, 2, 2, false) X(oneshot_level, O_ONESHOT, 0, 3, false) \
	X(team_poll_level, O_POLL, 0, 3, true) X(team_select_edge, O_SELECT, 1, 2, true) \
	X(team_level_oneshot, O_LEVEL, 2, 2, true) X(team_level_level, O_LEVEL, 0, 3, true) \
	X(team_edge_level, O_EDGE, 0, 2, true) X(team_edge_edge, O_EDGE, 1, 3, true) \
	X(team_oneshot_oneshot, O_ONESHOT, 2, 3, true)
#define NEST(name, outer, mode, depth, team) \
	static void nest_##name(struct conn *c) { nest_bulk(c, outer, mode, depth, team); }
NESTS(NEST)
#undef NEST

#endif
