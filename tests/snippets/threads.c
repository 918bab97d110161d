/*
 * threads.c - threads that are cancelled or leave in a call, and numbers that change hands under
 * blocked calls. Calls: recv recvfrom recvmsg recvmmsg read readv send sendto sendmsg sendmmsg
 * write writev poll select epoll_wait accept close dup2 socket
 * LIBS: -ldl
 */
#include <sched.h>
#include <stdatomic.h>

#include "snip.h"

static char t[256];
static int ep, lis;

/* ---- a close that takes its time ---- */

/* The number is free as soon as the close has begun: another thread gets it for something else. */
static void takes_the_number(void)
{
	int f, p[2], d;
	uint64_t since = now_ms();

	do
		f = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	while (f >= 0 && f < a);
	if (pipe(p))
		die("pipe");
	tell("%s", f == a ? "the number of the one that is being closed" : "another number");
	SAY("read from it", read(f, t, 3));
	tell("a copy of it: %s", (d = dup(f)) >= 0 ? "made" : strerrorname_np(errno));
	close(d);
	tell("dup2 from it: %s", (d = dup2(f, p[1])) == p[1] ? "made" : strerrorname_np(errno));
	tell("dup2 onto it: %s", dup2(p[0], f) == f ? "made" : strerrorname_np(errno));
	SAY("the pipe's end", read(f, t, 3));
	SAY("close", close(f));
	SAY("close, again", close(f));
	tell("%s", now_ms() - since < 500 ? "at once" : "late");
	close(p[0]);
	close(p[1]);
}

SNIPPET(number_of_a_lingering_close, "close dup dup2")
{
	struct linger lg = { 2, 2 };
	int on = 2;
	static char z[1 << 16];

	pair();
	/* on TCP, where close() lingers */
	setsockopt(a, SOL_SOCKET, SO_RCVLOWAT, &on, sizeof(on));
	setsockopt(a, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
	while (send(a, z, sizeof(z), MSG_DONTWAIT) > 0)
		;
	when_blocked(takes_the_number);
	SAY("the close that waits", close(a));
	helper_done();
}

/* ---- leaving in a call ---- */

enum in_call { RECV, READ, RECVMSG, POLL, SELECT, EPOLL, ACCEPT, SEND };
static const char *const names[] = { "recv", "read", "recvmsg", "poll", "select", "epoll_wait",
				     "accept", "send" };
static _Atomic pid_t there;

static void blocks(enum in_call how)
{
	static char own[1 << 16];
	struct iovec v = { own, 10 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct pollfd p = { .fd = b, .events = POLLIN };
	struct epoll_event ev;
	fd_set r;

	switch (how) {
	case RECV: recv(b, own, 10, 0); break;
	case READ: read(b, own, 10); break;
	case RECVMSG: recvmsg(b, &m, 0); break;
	case POLL: poll(&p, 1, -1); break;
	case SELECT: FD_ZERO(&r); FD_SET(b, &r); select(b + 1, &r, NULL, NULL, NULL); break;
	case EPOLL: epoll_wait(ep, &ev, 1, -1); break;
	case ACCEPT: accept(lis, NULL, NULL); break;
	case SEND: while (send(a, own, sizeof(own), 0) > 0); break;
	}
}
static void *sits(void *how)
{
	there = (pid_t)syscall(SYS_gettid);
	blocks((enum in_call)(intptr_t)how);
	return how;
}
static void leaves(int s) { (void)s; pthread_exit("left"); }

static pthread_t sitting(enum in_call how)
{
	pthread_t th;

	there = 0;
	helper_late = false;
	if (pthread_create(&th, NULL, sits, (void *)(intptr_t)how))
		die("no thread");
	while (!there)
		sched_yield();
	until_sleeps(there);
	return th;
}

static void looks(enum in_call how)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct sockaddr_in at;

	pair();
	ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev);
	lis = listener_at(&at);
	(void)how;
}
static void looks_after(enum in_call how)
{
	if (how == SEND) {	/* as much as was taken */
		shutdown(a, SHUT_WR);
		while (recv(b, buf, sizeof(buf), 0) > 0)
			;
		tell("and then %zd", recv(b, buf, 1, 0));
	} else {
		alive(names[how], a, b);
		put(a, b, "x");
		SAY("nothing was taken", recv(b, t, 10, 0));
	}
	close(a);
	close(b);
	close(ep);
	close(lis);
}

SNIPPET(cancelled_in_a_call, "recv read recvmsg poll select epoll_wait accept send")
{
	for (enum in_call how = RECV; how <= SEND; how++) {
		pthread_t th;
		void *r;

		looks(how);
		th = sitting(how);
		pthread_cancel(th);
		pthread_join(th, &r);
		tell("%s: cancelled %d", names[how], r == PTHREAD_CANCELED);
		looks_after(how);
	}
}

/* None of these would wait. */
enum at_once { NOW_RECV, NOW_RECVFROM, NOW_RECVMSG, NOW_RECVMMSG, NOW_READ, NOW_READV, NOW_SEND,
	       NOW_SENDTO, NOW_SENDMSG, NOW_SENDMMSG, NOW_WRITE, NOW_WRITEV,
	NOW_POLL, NOW_SELECT, NOW_EPOLL, NOW_RAW_READ, NOW_RAW_WRITE, NOW_RAW_POLL, NOW_ALL };
static const char *const now_names[] = { "recv", "recvfrom", "recvmsg", "recvmmsg", "read", "readv",
					 "send", "sendto", "sendmsg", "sendmmsg", "write", "writev",
	"poll", "select", "epoll_wait", "syscall(SYS_read)", "syscall(SYS_write)",
		"syscall(SYS_poll)" };

static void at_once(enum at_once how)
{
	char one[4] = "abc";
	struct iovec v = { one, 1 };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &v, .msg_iovlen = 1 } };
	struct pollfd p = { .fd = b, .events = POLLIN };
	struct epoll_event ev;
	fd_set r;

	switch (how) {
	case NOW_RECV: recv(b, one, 1, MSG_DONTWAIT); break;
	case NOW_RECVFROM: recvfrom(b, one, 1, MSG_DONTWAIT, NULL, NULL); break;
	case NOW_RECVMSG: recvmsg(b, &m.msg_hdr, 0); break;
	case NOW_RECVMMSG: recvmmsg(b, &m, 1, 0, NULL); break;
	case NOW_READ: read(b, one, 1); break;
	case NOW_READV: readv(b, &v, 1); break;
	case NOW_SEND: send(a, one, 1, 0); break;
	case NOW_SENDTO: sendto(a, one, 1, 0, NULL, 0); break;
	case NOW_SENDMSG: sendmsg(a, &m.msg_hdr, 0); break;
	case NOW_SENDMMSG: sendmmsg(a, &m, 1, 0); break;
	case NOW_WRITE: write(a, one, 1); break;
	case NOW_WRITEV: writev(a, &v, 1); break;
	case NOW_POLL: poll(&p, 1, 0); break;
	case NOW_SELECT:
		FD_ZERO(&r);
		FD_SET(b, &r);
		select(b + 1, &r, NULL, NULL, &(struct timeval){ 0 });
		break;
	case NOW_EPOLL: epoll_wait(ep, &ev, 1, 0); break;
	/* these are none, whatever they are for */
	case NOW_RAW_READ: syscall(SYS_read, b, one, 1); break;
	case NOW_RAW_WRITE: syscall(SYS_write, a, one, 1); break;
	case NOW_RAW_POLL: syscall(SYS_poll, &p, 1, 0); break;
	case NOW_ALL: break;
	}
}

static void *cancelled_at_once(void *how)
{
	pthread_cancel(pthread_self());
	at_once((enum at_once)(intptr_t)how);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return NULL;
}

static void *not_to_be_cancelled(void *how)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	at_once((enum at_once)(intptr_t)how);
	return NULL;
}

/* What is asked for before a call ends the thread before the call does anything, whether it
 * would wait or not. */
SNIPPET(cancelled_without_waiting, "recv recvfrom recvmsg recvmmsg read readv send sendto sendmsg "
				   "sendmmsg write writev poll select epoll_wait")
{
	looks(RECV);
	put(a, b, "0123456789abcdef");
	for (enum at_once how = 0; how < NOW_ALL; how++) {
		pthread_t th;
		void *r;

		pthread_create(&th, NULL, cancelled_at_once, (void *)(intptr_t)how);
		pthread_join(th, &r);
		tell("%s: cancelled %d", now_names[how], r == PTHREAD_CANCELED);
	}
	SAY("one was taken and one sent", recv(b, t, sizeof(t), MSG_DONTWAIT));
	put(a, b, "0123456789abcdef");
	for (enum at_once how = 0; how < NOW_ALL; how++) {
		pthread_t th;
		void *r;

		pthread_create(&th, NULL, not_to_be_cancelled, (void *)(intptr_t)how);
		pthread_join(th, &r);
		tell("%s: not cancelled %d", now_names[how], r == NULL);
	}
	SAY("seven were taken, seven sent", recv(b, t, sizeof(t), MSG_DONTWAIT));
	looks_after(RECV);
}

static _Atomic bool ended;
static void *receives_once(void *got)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_UNBLOCK, &all, NULL);
	there = (pid_t)syscall(SYS_gettid);
	*(long *)got = recv(b, t, 10, 0);
	if (*(long *)got < 0)
		*(long *)got = -errno;
	ended = true;
	return NULL;
}

static void nothing_to_do(int s) { (void)s; }
/* libc tells every thread by a signal of its own, which interrupts no call; a handler of the
 * program's without SA_RESTART, by whatever way it was installed, does. */
SNIPPET(setgid_under_a_call, "recv")
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} raw = { 0 };
	struct sigaction act = { .sa_handler = nothing_to_do };
	pthread_t th;
	long got = 0;

	for (int own = 0; own < 2; own++) {
		looks(RECV);
		if (own) {	/* with the restorer that libc gave the kernel */
			sigaction(SIGUSR2, &act, NULL);
			syscall(SYS_rt_sigaction, SIGUSR2, NULL, &raw, 8);
			raw.handler = nothing_to_do;
			raw.flags &= ~(unsigned long)(SA_RESTART | SA_SIGINFO);
			syscall(SYS_rt_sigaction, SIGUSR2, &raw, NULL, 8);
		}
		there = 0;
		ended = false;
		if (pthread_create(&th, NULL, receives_once, &got))
			die("no thread");
		while (!there)
			sched_yield();
		for (int i = 0; i < 3 && !own; i++) {
			until_sleeps(there);
			setgid(getgid());
		}
		until_sleeps(there);
		if (!own)
			send(a, "x", 1, 0);
		for (; own && !ended; usleep(1000))	/* until one finds it asleep: who comes
							 * by in between is not known to the
							 * library */
			pthread_kill(th, SIGUSR2);
		pthread_join(th, NULL);
		tell("recv: %ld", got);
		looks_after(RECV);
	}
}

/* Before it has closed anything. */
static void *closes_cancelled(void *fd)
{
	pthread_cancel(pthread_self());
	close((int)(intptr_t)fd);
	return NULL;
}
SNIPPET(cancelled_in_close, "close")
{
	pthread_t th;
	void *r;

	looks(RECV);
	for (int i = 0; i < 2; i++) {
		pthread_create(&th, NULL, closes_cancelled, (void *)(intptr_t)(i ? ep : a));
		pthread_join(th, &r);
		tell("cancelled %d", r == PTHREAD_CANCELED);
	}
	looks_after(RECV);
}

SNIPPET(exits_in_a_call, "recv read recvmsg poll select epoll_wait accept send")
{
	struct sigaction s = { .sa_handler = leaves };

	sigaction(SIGUSR1, &s, NULL);
	for (enum in_call how = RECV; how <= SEND; how++) {
		pthread_t th;
		void *r;

		looks(how);
		th = sitting(how);
		pthread_kill(th, SIGUSR1);
		pthread_join(th, &r);
		tell("%s: %s", names[how], (char *)r);
		looks_after(how);
	}
}

/* ---- a number is closed while another thread waits on it ---- */

static void closes_b(void) { close(b); }
SNIPPET(epoll_watched_fd_closed, "epoll_wait close")
{
	struct epoll_event ev = { .events = EPOLLIN };

	pair();
	ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev);
	when_blocked(closes_b);
	SAY("the wait goes on", epoll_wait(ep, &ev, 1, 300));
	helper_done();
	SAY("the peer", recv(a, t, 1, 0));
}

static int copy;
SNIPPET(recv_closed_fd, "recv close")
{
	/* a copy keeps the connection: the call that waits gets what comes */
	pair();
	copy = dup(b);
	when_blocked(closes_b);
	helper_late = false;
	{
		pid_t p;

		fflush(stdout);
		p = fork();
		if (!p) {	/* writes when the number is long closed */
			close(b);
			nap_us(300000);
			send(a, "late", 4, 0);
			_exit(0);
		}
		SAY("recv", recv(b, t, 10, 0));
		say_end("writer", p);
	}
	helper_done();
	alive("the copy", a, copy);
}

/* ---- storms against blocked calls ---- */

static _Atomic int stop, foreign;
static int number;		/* of the connection's end, and soon of files */

/* Takes the number for a file again and again: what was meant for the connection must not land
 * there. */
static void *replaces(void *arg)
{
	char v[64];

	(void)arg;
	do {
		/* not the number itself */
		int low = open("/tmp", O_TMPFILE | O_RDWR, 0600), f = fcntl(low, F_DUPFD, 400);

		close(low);
		if (f < 0)
			continue;
		write(f, "file", 4);
		dup2(f, number);
		nap_us(random() % 300);
		close(number);
		if (pread(f, v, sizeof(v), 0) != 4 || memcmp(v, "file", 4))
			foreign++;
		close(f);
	} while (!stop);	/* at least once: the connection is closed by it */
	return NULL;
}
/* Blocked in recv on the number when it is taken away; anything may come of that but a file's
 * bytes in the stream's place. */
static void *receives(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char v[64];
	ssize_t n;

	while ((n = recv(fd, v, sizeof(v), 0)) > 0)
		for (ssize_t i = 0; i < n; i++)
			if (v[i] != 's')
				foreign++;
	return NULL;
}
static void *polls_and_receives(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char v[64];
	ssize_t n;

	do {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		poll(&p, 1, -1);
		n = recv(fd, v, sizeof(v), 0);
	} while (n > 0 || (n < 0 && errno == EAGAIN));
	return NULL;
}
static void *sends_on(void *arg)
{
	int fd = (int)(intptr_t)arg;

	while (send(fd, "ssssssss", 8, MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

/* Both ends are shut while one reads: whenever that comes, in a rewind as well, it finds the
 * end. */
SNIPPET(shut_beside_reader, "recv send shutdown")
{
	for (int i = 0; i < 60; i++) {
		pthread_t in, out;

		pair();
		if (i & 1)
			fcntl(b, F_SETFL, O_NONBLOCK);
		pthread_create(&in, NULL, i & 1 ? polls_and_receives : receives,
			       (void *)(intptr_t)b);
		pthread_create(&out, NULL, sends_on, (void *)(intptr_t)a);
		nap_us(1000 + random() % 4000);
		shutdown(a, SHUT_RDWR);
		nap_us(random() % 300);
		shutdown(b, SHUT_RDWR);
		pthread_join(out, NULL);
		pthread_join(in, NULL);
		close(a);
		close(b);
	}
	tell("foreign bytes: %d", foreign);
}

SNIPPET(storm_against_blocked, "recv send close dup2")
{
	for (int i = 0; i < 40; i++) {
		pthread_t in, out, storm;
		int feeds, c, d;

		pair();
		feeds = dup(i & 1 ? a : b);
		pair_of(&c, &d);
		stop = 0;
		number = i & 1 ? a : b;
		pthread_create(&in, NULL, receives, (void *)(intptr_t)b);
		pthread_create(&out, NULL, sends_on, (void *)(intptr_t)a);
		nap_us(random() % 2000);
		pthread_create(&storm, NULL, replaces, NULL);
		nap_us(2000 + random() % 3000);
		stop = 1;
		pthread_join(storm, NULL);
		shutdown(feeds, SHUT_RDWR);	/* who is still in a call leaves it, or when the
						 * last number is closed */
		close(feeds);
		pthread_join(i & 1 ? out : in, NULL);
		shutdown(i & 1 ? b : a, SHUT_RDWR);
		pthread_join(i & 1 ? in : out, NULL);
		close(i & 1 ? b : a);
		if (!both_ways(c, d))
			tell("%d: the neighbour is dead", i);
		close(c);
		close(d);
	}
	tell("foreign bytes: %d", foreign);
}
