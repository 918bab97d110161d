/*
 * semantics-calls.h - the scenarios about vectors, messages, sendfile and signals.
 * Included by semantics.c once, after its helpers.
 */
#ifndef TESTS_SEMANTICS_CALLS_H
#define TESTS_SEMANTICS_CALLS_H

/* ---- vectors and messages ---- */

static void vectors(struct conn *c)
{
	static char b[70000];
	struct iovec v[1025];
	ssize_t r;

	fill(b, 3000, false, c->tx);
	for (int i = 0; i < 1025; i++)
		v[i] = (struct iovec){ b + (i / 2) * 5, i % 2 ? 0 : 5 };
	r = writev(c->fd, v, 1024);
	say("writev of 1024, every other empty", r);
	c->tx += r;
	say("peer got", ask(P_RECV, c, r));
	say("writev of 1025", writev(c->fd, v, 1025));
	say("writev of 0", writev(c->fd, v, 0));
	say("writev of empty ones", writev(c->fd, (struct iovec[]){ { b, 0 }, { b, 0 } }, 2));
	say("readv of empty ones", readv(c->fd, (struct iovec[]){ { b, 0 }, { b, 0 } }, 2));
	ask(P_SEND, c, 1000);
	await(c, 1000);
	memset(b, 0, sizeof(b));
	for (int i = 0; i < 1024; i++)
		v[i] = (struct iovec){ b + i, i % 3 ? 1 : 0 };
	for (int i = 0, at = 0; i < 1024; i++) {
		v[i].iov_base = b + at;
		at += v[i].iov_len;
	}
	r = readv(c->fd, v, 1024);
	say("readv of 1024, a third empty", r);
	came(c, b, r, scene);
	v[0] = (struct iovec){ b, 0 };
	v[1] = (struct iovec){ b, 100 };
	v[2] = (struct iovec){ b + 100, 60000 };
	r = readv(c->fd, v, 3);
	say("readv of the rest", r);
	came(c, b, r, scene);
	say("readv of 1025", readv(c->fd, v, 1025));
	fill(b, 60000, false, c->tx);
	v[0] = (struct iovec){ b, 59999 };
	v[1] = (struct iovec){ b + 59999, 1 };
	r = writev(c->fd, v, 2);
	say("a large writev", r);
	c->tx += r;
	say("peer got", ask(P_RECV, c, r));
}

static void messages(struct conn *c)
{
	char b[200], ctl[100];
	struct sockaddr_in a;
	struct iovec v[2] = { { b, 50 }, { b + 50, 150 } };
	struct msghdr m = { .msg_name = &a, .msg_namelen = sizeof(a), .msg_iov = v, .msg_iovlen = 2,
			    .msg_control = ctl,
			    .msg_controllen = sizeof(ctl), .msg_flags = 0x5555 };
	socklen_t l = sizeof(a);
	ssize_t r;

	ask(P_SEND, c, 120);
	await(c, 120);
	r = recvmsg(c->fd, &m, 0);
	say("recvmsg", r);
	came(c, b, r, scene);
	say("msg_namelen", m.msg_namelen);
	say("msg_controllen", m.msg_controllen);
	say("msg_flags", m.msg_flags);
	ask(P_SEND, c, 20);
	await(c, 20);
	r = recvfrom(c->fd, b, 200, 0, (void *)&a, &l);
	say("recvfrom", r);
	came(c, b, r, scene);
	say("its address length", l);
	m.msg_iovlen = 2;
	m.msg_flags = 0;
	say("recvmsg, nothing there", recvmsg(c->fd, &m, MSG_DONTWAIT));
	say("the error queue", recvmsg(c->fd, &m, MSG_ERRQUEUE));
	say("urgent data", recv(c->fd, b, 1, MSG_OOB | MSG_DONTWAIT));
	/* An address in send() to a connected TCP socket is ignored. */
	memset(&a, 0, sizeof(a));
	a.sin_family = AF_INET;
	fill(b, 10, false, c->tx);
	r = sendto(c->fd, b, 10, 0, (void *)&a, sizeof(a));
	say("sendto with an address", r);
	c->tx += r > 0 ? r : 0;
	say("peer got", ask(P_RECV, c, 10));
	ask(P_SEND, c, 60);
	await(c, 60);
	say("MSG_TRUNC throws away", recv(c->fd, NULL, 40, MSG_TRUNC));
	c->rx += 40;
	gather(c, 20);
}

static void many_messages(struct conn *c)
{
	static char b[4][100];
	struct iovec v[4];
	struct mmsghdr m[4];
	struct timespec t = { 0, 100000000 };
	int r;

	memset(m, 0, sizeof(m));
	for (int i = 0; i < 4; i++) {
		v[i] = (struct iovec){ b[i], 100 };
		m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1 };
		fill(b[i], 100, false, c->tx + 100 * i);
	}
	say("sendmmsg", sendmmsg(c->fd, m, 4, 0));
	for (int i = 0; i < 4; i++)
		say("its length", m[i].msg_len);
	c->tx += 400;
	say("peer got", ask(P_RECV, c, 400));
	ask(P_SEND, c, 250);
	await(c, 250);
	r = recvmmsg(c->fd, m, 4, MSG_DONTWAIT, NULL);
	say("recvmmsg", r);
	for (int i = 0; i < r; i++) {
		say("its length", m[i].msg_len);
		came(c, b[i], m[i].msg_len, scene);
	}
	say("recvmmsg, nothing there", recvmmsg(c->fd, m, 4, MSG_DONTWAIT, NULL));
	ask(P_SEND, c, 150);
	await(c, 150);
	r = recvmmsg(c->fd, m, 4, MSG_WAITFORONE, NULL);
	say("MSG_WAITFORONE", r);
	for (int i = 0; i < r; i++)
		came(c, b[i], m[i].msg_len, scene);
	ask(P_SEND, c, 100);
	later(150, P_SEND, c, 100);
	r = recvmmsg(c->fd, m, 4, 0, &t);
	outcome();
	say("with a timeout, looked at after each message", r);
	for (int i = 0; i < r; i++)
		came(c, b[i], m[i].msg_len, scene);
}

static void send_file(struct conn *c)
{
	int f = memfd_create("data", MFD_CLOEXEC), p[2];
	size_t n = 300000;
	char *b = malloc(n);
	off_t off = 1000;
	ssize_t r;

	fill(b, n, false, c->tx - 1000);	/* so that offset 1000 is what the peer expects */
	if (write(f, b, n) != (ssize_t)n)
		die("memfd");
	r = sendfile(c->fd, f, &off, 5000);
	say("from offset 1000", r);
	c->tx += r;
	say("the offset", off);
	say("the file's position", lseek(f, 0, SEEK_CUR));
	lseek(f, 6000, SEEK_SET);
	r = sendfile(c->fd, f, NULL, 10000);
	say("from its position", r);
	c->tx += r;
	say("the file's position", lseek(f, 0, SEEK_CUR));
	say("peer got", ask(P_RECV, c, 15000));
	off = 299000;
	b[0] = 0;
	fill(b, 1000, false, c->tx);
	if (pwrite(f, b, 1000, 299000) != 1000)
		die("memfd");
	r = sendfile(c->fd, f, &off, 100000);
	say("across the end", r);
	c->tx += r;
	say("the offset", off);
	say("past the end", sendfile(c->fd, f, &off, 10));
	off = 500000;
	say("far past it", sendfile(c->fd, f, &off, 10));
	say("of nothing", sendfile(c->fd, f, NULL, 0));
	off = -5;
	say("a negative offset", sendfile(c->fd, f, &off, 10));
	say("from a bad fd", sendfile(c->fd, 987, NULL, 10));
	if (pipe(p))
		die("pipe");
	say("from a pipe", sendfile(c->fd, p[0], NULL, 10));
	say("peer got", ask(P_RECV, c, 1000));
	fill(b, n, false, c->tx);
	if (pwrite(f, b, n, 0) != (ssize_t)n)
		die("memfd");
	off = 0;
	r = sendfile(c->fd, f, &off, n);
	say("all of it", r);
	c->tx += r;
	say("peer got", ask(P_RECV, c, (long)n));
	shutdown(c->fd, SHUT_WR);
	handle(SIGPIPE, true);
	off = 0;
	say("after shutdown", sendfile(c->fd, f, &off, 10));
	say("SIGPIPE", signals);
	signal(SIGPIPE, SIG_IGN);
	close(f);
	close(p[0]);
	close(p[1]);
	free(b);
}

/* ---- signals ---- */

static void sig_recv(struct conn *c)
{
	handle(SIGALRM, true);
	alarm_in(50);
	later(200, P_SEND, c, 10);
	say("SA_RESTART recv", take(c, 100, 0));
	say("signals", signals);
	outcome();
	handle(SIGALRM, false);
	alarm_in(50);
	say("recv", take(c, 100, 0));
	say("signals", signals);
	ask(P_SEND, c, 20);
	alarm_in(50);
	say("MSG_WAITALL with 20 there", take(c, 100, MSG_WAITALL));
	handle(SIGALRM, true);
	set_timeo(c->fd, SO_RCVTIMEO, 5000);
	alarm_in(50);
	say("SA_RESTART with SO_RCVTIMEO", take(c, 100, 0));
	set_timeo(c->fd, SO_RCVTIMEO, 0);
	ask(P_SEND, c, 30);
	alarm_in(50);
	later(200, P_SEND, c, 100);
	say("SA_RESTART MSG_WAITALL with 30 there", take(c, 100, MSG_WAITALL));
	outcome();
	await(c, 100);
	say("the rest", take(c, 1000, 0));
	signal(SIGALRM, SIG_IGN);
	alarm_in(50);
	later(150, P_SEND, c, 10);
	say("an ignored signal", take(c, 100, 0));
	outcome();
}

static void sig_wait(struct conn *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	struct epoll_event e = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC), restart;
	sigset_t block, old;
	struct timespec t = { 5, 0 };
	fd_set r;

	epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
	for (restart = 0; restart < 2; restart++) {
		handle(SIGALRM, restart);
		alarm_in(50);
		say("poll", poll(&p, 1, 5000));
		alarm_in(50);
		say("epoll_wait", epoll_wait(ep, &e, 1, 5000));
		FD_ZERO(&r);
		FD_SET(c->fd, &r);
		alarm_in(50);
		say("select", select(c->fd + 1, &r, NULL, NULL, NULL));
		say("signals", signals);
	}
	/* Blocked outside, let in by ppoll and epoll_pwait. */
	sigemptyset(&block);
	sigaddset(&block, SIGALRM);
	sigprocmask(SIG_BLOCK, &block, &old);
	handle(SIGALRM, true);
	raise(SIGALRM);
	say("signals while blocked", signals);
	say("ppoll", ppoll(&p, 1, &t, &old));
	say("signals", signals);
	raise(SIGALRM);
	say("epoll_pwait", epoll_pwait(ep, &e, 1, 5000, &old));
	say("signals", signals);
	raise(SIGALRM);
	FD_ZERO(&r);
	FD_SET(c->fd, &r);
	say("pselect", pselect(c->fd + 1, &r, NULL, NULL, &t, &old));
	say("signals", signals);
	ask(P_SEND, c, 10);
	await(c, 10);
	say("ppoll with data", ppoll(&p, 1, &t, &block));
	sigprocmask(SIG_SETMASK, &old, NULL);
	gather(c, 10);
	signal(SIGALRM, SIG_IGN);
	close(ep);
}

static void sig_send(struct conn *c)
{
	uint64_t sent = c->tx;
	ssize_t r;

	handle(SIGALRM, false);
	while ((r = put(c, 1 << 20, MSG_DONTWAIT)) > 0)
		;
	say("full", r);
	do {
		alarm_in(100);
		r = put(c, 1 << 20, 0);
	} while (r > 0);		/* a little room may have come, and the signal have ended
					 * a call that used it */
	printf("%s: blocked send ended by a signal: %s\n", scene, strerrorname_np(errno));
	shutdown(c->fd, SHUT_WR);
	printf("%s: peer got all: %d\n", scene, ask(P_DRAIN, c, 0) == (long)(c->tx - sent));
	signal(SIGALRM, SIG_IGN);
}

#endif
