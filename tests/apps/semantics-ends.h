/*
 * semantics-ends.h - the scenarios about ends of connections: half-close, close, reset, SIGPIPE.
 * Included by semantics.c once, after its helpers.
 */
#ifndef TESTS_SEMANTICS_ENDS_H
#define TESTS_SEMANTICS_ENDS_H

/* ---- ends ---- */

static void half_close_peer(struct conn *c)
{
	ask(P_SEND, c, 1000);
	ask(P_SHUT, c, SHUT_WR);
	gather(c, 1000);
	say("recv at the end", take(c, 10, 0));
	say("and again", take(c, 10, 0));
	say_poll("poll", c->fd);
	say("send after it", put(c, 5000, 0));
	say("peer gets", ask(P_RECV, c, 5000));
	shutdown(c->fd, SHUT_WR);
	say("peer at the end", ask(P_DRAIN, c, 0));
	say_poll("both ended", c->fd);
}

static void half_close_own(struct conn *c)
{
	put(c, 700, 0);
	say("shutdown", shutdown(c->fd, SHUT_WR));
	say("send after it", put(c, 10, 0));
	say("shutdown again", shutdown(c->fd, SHUT_WR));
	say("peer drains", ask(P_DRAIN, c, 0));
	say_poll("poll", c->fd);
	ask(P_SEND, c, 3000);
	gather(c, 3000);
	say("peer closes", ask(P_CLOSE, c, 0));
	say("recv", take(c, 10, 0));
	say_poll("poll", c->fd);
	say("send", put(c, 10, 0));
	say("SO_ERROR", so_error(c->fd));
}

static void shut_rd(struct conn *c)
{
	ask(P_SEND, c, 50);
	await(c, 50);
	say("shutdown", shutdown(c->fd, SHUT_RD));
	say_poll("poll", c->fd);
	gather(c, 50);
	say("recv at the end", take(c, 10, 0));
	say("send", put(c, 100, 0));
	say("peer gets", ask(P_RECV, c, 100));
	say_poll("poll", c->fd);
}

static void shut_rdwr(struct conn *c)
{
	put(c, 333, 0);
	say("shutdown", shutdown(c->fd, SHUT_RDWR));
	say("recv", take(c, 10, 0));
	say("send", put(c, 10, 0));
	say("peer drains", ask(P_DRAIN, c, 0));
	say("a bad how", shutdown(c->fd, 7));
	say_poll("poll", c->fd);
}

static void shut_rdwr_by_peer(struct conn *c)
{
	ask(P_SEND, c, 4444);
	ask(P_SHUT, c, SHUT_RDWR);
	gather(c, 4444);
	say("recv", take(c, 10, 0));
	nap(20);
	say_poll("poll", c->fd);
}

static void close_with_data_queued(struct conn *c)
{
	ask(P_SEND, c, 50000);
	ask(P_CLOSE, c, 0);
	nap(50);
	say_poll("poll", c->fd);
	gather(c, 50000);
	say("recv at the end", take(c, 10, 0));
	say("first send", put(c, 10, 0));
	nap(50);
	say("second send", put(c, 10, 0));
	say("recv", take(c, 10, 0));
	say_poll("poll", c->fd);
}

static void close_with_unread(struct conn *c)
{
	put(c, 1000, 0);
	nap(20);
	ask(P_CLOSE, c, 0);
	nap(50);
	say_poll("poll", c->fd);
	say("recv", take(c, 10, 0));
	say("recv again", take(c, 10, 0));
	say("send", put(c, 10, 0));
	say("SO_ERROR", so_error(c->fd));
}

static void close_with_unread_and_data(struct conn *c)
{
	ask(P_SEND, c, 500);
	put(c, 1000, 0);
	nap(20);
	ask(P_CLOSE, c, 0);
	nap(50);
	say("recv", take(c, 500, 0));
	say("recv at the end", take(c, 10, 0));
	say("recv again", take(c, 10, 0));
}

static void own_close_with_unread(struct conn *c)
{
	ask(P_SEND, c, 1000);
	await(c, 1000);
	say("close", close(c->fd));
	c->fd = -1;
	nap(50);
	say("peer's recv", ask(P_RECV, c, 10));
}

static void own_close_keeps_what_was_sent(struct conn *c)
{
	put(c, 100000, 0);
	say("close", close(c->fd));
	c->fd = -1;
	say("peer drains", ask(P_DRAIN, c, 0));
	say("a closed fd", recv(987, NULL, 0, 0));
}

static void linger_peer(struct conn *c)
{
	ask(P_SEND, c, 100);
	await(c, 100);
	ask(P_LINGER, c, 0);
	ask(P_CLOSE, c, 0);
	nap(50);
	say_poll("poll", c->fd);
	say("recv", take(c, 100, 0));
	say("recv at the end", take(c, 10, 0));
	say("recv again", take(c, 10, 0));
}

static void linger_own(struct conn *c)
{
	struct linger l = { 1, 0 };

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(c->fd);
	c->fd = -1;
	nap(50);
	say("peer's recv", ask(P_RECV, c, 10));
}

static void linger_timed(struct conn *c)
{
	struct linger l = { 1, 5 };

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	put(c, 5000, 0);
	later(50, P_DRAIN, c, 0);
	say("close", close(c->fd));
	c->fd = -1;
	say("peer drained", outcome());
}

static void epipe(struct conn *c)
{
	struct iovec v = { (char *)"x", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	ask(P_CLOSE, c, 0);
	nap(20);
	put(c, 1, 0);
	/* until the reset is there: POLLERR, POLLHUP */
	for (int i = 0; i < 200 && !(poll(&(struct pollfd){ .fd = c->fd }, 1, 10) > 0); i++)
		;
	handle(SIGPIPE, true);
	say("write", write(c->fd, "x", 1));
	say("SIGPIPE", signals);
	say("send", send(c->fd, "x", 1, 0));
	say("SIGPIPE", signals);
	say("writev", writev(c->fd, &v, 1));
	say("SIGPIPE", signals);
	say("sendmsg", sendmsg(c->fd, &m, 0));
	say("SIGPIPE", signals);
	say("MSG_NOSIGNAL", send(c->fd, "x", 1, MSG_NOSIGNAL));
	say("SIGPIPE", signals);
	signal(SIGPIPE, SIG_IGN);
}

static void shutdown_wakes_recv(struct conn *c)
{
	struct conn *d = c + 1;

	later(100, P_SHUT, c, SHUT_WR);
	say("blocked recv when the peer shuts down", take(c, 10, 0));
	outcome();
	later(100, P_CLOSE, d, 0);
	say("blocked recv when the peer closes", take(d, 10, 0));
	outcome();
}

static void reset_wakes_recv(struct conn *c)
{
	ask(P_LINGER, c, 0);
	later(100, P_CLOSE, c, 0);
	say("blocked recv when the peer resets", take(c, 10, 0));
	outcome();
	say("and then", take(c, 10, 0));
}

static void *shut_later(void *p)
{
	nap(100);
	shutdown(*(int *)p, SHUT_RDWR);
	return NULL;
}

static void shutdown_by_thread(struct conn *c)
{
	pthread_t t;

	pthread_create(&t, NULL, shut_later, &c->fd);
	say("blocked recv when another thread shuts down", take(c, 10, 0));
	pthread_join(t, NULL);
}

#endif
