/*
 * epollmodes-bulk.h - the scenarios that echo much data on several connections, by one thread or
 * a team. Included by epollmodes.c once, after its helpers.
 */
#ifndef TESTS_EPOLLMODES_BULK_H
#define TESTS_EPOLLMODES_BULK_H

/* ---- bulk: echo in one of many ways ---- */

#define BULK_CONNS 4
#define BULK_BYTES 3000000

struct echo {
	struct conn *c;
	char buf[40000];
	size_t at, len;		/* what waits to be sent back */
	uint64_t echoed;
	pthread_mutex_t lock;
};
static struct echo echoes[BULK_CONNS];
static _Atomic int bulk_left;

/* Works until nothing can be done, as with edges one must. Returns the interest that is left. */
static uint32_t pump(struct echo *e)
{
	for (;;) {
		ssize_t r;

		while (e->at < e->len) {
			r = send(e->c->fd, e->buf + e->at, e->len - e->at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
			if (r < 0 && errno == EAGAIN)
				return EPOLLOUT;
			if (r < 0)
				die("%s: send: %s", scene, strerror(errno));
			e->at += r;
			e->echoed += r;
			if (e->echoed == BULK_BYTES)
				bulk_left--;
		}
		r = recv(e->c->fd, e->buf, sizeof(e->buf), MSG_DONTWAIT);
		if (r < 0 && errno == EAGAIN)
			return EPOLLIN;
		if (r <= 0)
			die("%s: recv: %s", scene, r ? strerror(errno) : "end of file");
		came(e->c, e->buf, r, scene);
		e->at = 0;
		e->len = r;
	}
}

/* The same for level-triggered waiting: one chunk a time. */
static uint32_t step(struct echo *e)
{
	ssize_t r;

	if (e->at == e->len) {
		r = recv(e->c->fd, e->buf, sizeof(e->buf), MSG_DONTWAIT);
		if (r < 0 && errno == EAGAIN)
			return EPOLLIN;
		if (r <= 0)
			die("%s: recv: %s", scene, r ? strerror(errno) : "end of file");
		came(e->c, e->buf, r, scene);
		e->at = 0;
		e->len = r;
	}
	r = send(e->c->fd, e->buf + e->at, e->len - e->at, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (r < 0 && errno != EAGAIN)
		die("%s: send: %s", scene, strerror(errno));
	e->at += r > 0 ? r : 0;
	e->echoed += r > 0 ? r : 0;
	if (r > 0 && e->echoed == BULK_BYTES)
		bulk_left--;
	return e->at < e->len ? EPOLLOUT : EPOLLIN;
}

static void bulk_begin(struct conn *c)
{
	bulk_left = BULK_CONNS;
	for (int i = 0; i < BULK_CONNS; i++) {
		echoes[i].c = &c[i];
		echoes[i].at = echoes[i].len = echoes[i].echoed = 0;
		pthread_mutex_init(&echoes[i].lock, NULL);
	}
	ask_later(-1, P_BULK, c[0].id, BULK_CONNS, BULK_BYTES);
}

static void bulk_end(void)
{
	outcome();
	say("%d connections echoed %d bytes each", BULK_CONNS, BULK_BYTES);
}

static void reg(int ep, int op, int i, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = &echoes[i] };

	if (epoll_ctl(ep, op, echoes[i].c->fd, &e))
		die("%s: epoll_ctl: %s", scene, strerror(errno));
}
static int index_of(struct echo *e) { return (int)(e - echoes); }

/* mode: 0 level, EPOLLET, EPOLLONESHOT or both */
static void bulk_one_thread(struct conn *c, uint32_t mode)
{
	struct epoll_event e[3];
	int ep = ep_new();

	bulk_begin(c);
	for (int i = 0; i < BULK_CONNS; i++)
		reg(ep, EPOLL_CTL_ADD, i, (mode & EPOLLET ? EPOLLIN | EPOLLOUT : EPOLLIN) | mode);
	while (bulk_left) {
		int n = epoll_wait(ep, e, 3, 5000);

		if (n <= 0)
			die("%s: %s; echoed %llu %llu %llu %llu", scene,
			    n ? strerror(errno) : "nothing for 5 s",
			    (unsigned long long)echoes[0].echoed,
			    (unsigned long long)echoes[1].echoed,
			    (unsigned long long)echoes[2].echoed,
			    (unsigned long long)echoes[3].echoed);
		for (int i = 0; i < n; i++) {
			struct echo *x = e[i].data.ptr;
			uint32_t want = mode & EPOLLET ? pump(x) : step(x);

			if (mode != EPOLLET)
				reg(ep, EPOLL_CTL_MOD, index_of(x), want | mode);
		}
	}
	bulk_end();
	close(ep);
}
static void bulk_level(struct conn *c) { bulk_one_thread(c, 0); }
static void bulk_edge(struct conn *c) { bulk_one_thread(c, EPOLLET); }
static void bulk_oneshot(struct conn *c) { bulk_one_thread(c, EPOLLONESHOT); }
static void bulk_edge_oneshot(struct conn *c) { bulk_one_thread(c, EPOLLET | EPOLLONESHOT); }

struct team { int ep; uint32_t mode; int stop; };

static void *team_member(void *p)
{
	struct team *t = p;
	uint64_t last = now_ms();

	while (bulk_left) {
		struct epoll_event e;
		struct echo *x;
		int n = epoll_wait(t->ep, &e, 1, 1000);

		if (n < 0)
			die("%s: epoll_wait: %s", scene, strerror(errno));
		if (!n) {
			if (now_ms() - last > 8000 && bulk_left == BULK_CONNS)
				die("%s: nothing for 8 s", scene);
			continue;
		}
		last = now_ms();
		if (e.data.u64 == 0) {		/* all is done */
			break;
		}
		x = e.data.ptr;
		if (t->mode & EPOLLONESHOT) {
			if (pthread_mutex_trylock(&x->lock))
				die("%s: two threads got an one-shot event", scene);
			uint32_t want = pump(x);

			pthread_mutex_unlock(&x->lock);
			reg(t->ep, EPOLL_CTL_MOD, index_of(x), want | t->mode);
		} else {
			pthread_mutex_lock(&x->lock);
			if (t->mode & EPOLLET)
				pump(x);
			else
				reg(t->ep, EPOLL_CTL_MOD, index_of(x), step(x));
			pthread_mutex_unlock(&x->lock);
		}
	}
	return NULL;
}

static void bulk_team(struct conn *c, uint32_t mode)
{
	struct team t = { ep_new(), mode, eventfd(0, EFD_CLOEXEC) };
	struct epoll_event e = { .events = EPOLLIN };
	pthread_t th[4];

	bulk_begin(c);
	epoll_ctl(t.ep, EPOLL_CTL_ADD, t.stop, &e);
	for (int i = 0; i < BULK_CONNS; i++)
		reg(t.ep, EPOLL_CTL_ADD, i, EPOLLIN | (mode == EPOLLET ? EPOLLOUT : 0) | mode);
	for (int i = 0; i < 4; i++)
		pthread_create(&th[i], NULL, team_member, &t);
	while (bulk_left)
		nap(5);
	eventfd_write(t.stop, 1);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	bulk_end();
	close(t.stop);
	close(t.ep);
}
static void team_edge_oneshot(struct conn *c) { bulk_team(c, EPOLLET | EPOLLONESHOT); }
static void team_oneshot(struct conn *c) { bulk_team(c, EPOLLONESHOT); }
static void team_edge(struct conn *c) { bulk_team(c, EPOLLET); }
static void team_level(struct conn *c) { bulk_team(c, 0); }

/* Two instances hold each connection: reading is announced in one, writing in the other. */
static void bulk_split(struct conn *c)
{
	int in = ep_new(), out = ep_new();
	struct pollfd p[2] = { { .fd = in, .events = POLLIN }, { .fd = out, .events = POLLIN } };

	bulk_begin(c);
	for (int i = 0; i < BULK_CONNS; i++) {
		reg(in, EPOLL_CTL_ADD, i, EPOLLIN | EPOLLET);
		reg(out, EPOLL_CTL_ADD, i, EPOLLOUT | EPOLLET);
	}
	while (bulk_left) {
		if (poll(p, 2, 5000) <= 0)
			die("%s: nothing for 5 s", scene);
		for (int k = 0; k < 2; k++) {
			struct epoll_event e[8];
			int n = p[k].revents ? epoll_wait(p[k].fd, e, 8, 0) : 0;

			for (int i = 0; i < n; i++)
				pump(e[i].data.ptr);
		}
	}
	bulk_end();
	close(in);
	close(out);
}

#endif
