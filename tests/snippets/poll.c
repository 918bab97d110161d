/*
 * poll.c - waiting by poll and select.
 * Calls: poll __poll __poll_chk ppoll __ppoll_chk select __select pselect
 * LIBS: -ldl
 */
#include <limits.h>
#include <sys/resource.h>

#include "snip.h"

int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

static char t[256];

static void say_fds(const char *what, const struct pollfd *p, int n)
{
	char line[256] = "";

	for (int i = 0; i < n; i++) {
		strcat(line, i ? " | " : "");
		strcat(line, poll_bits(p[i].revents));
	}
	tell("%s: %s", what, line);
}

SNIPPET(poll_plain, "poll")
{
	struct pollfd p[2];

	pair();
	p[0] = (struct pollfd){ .fd = a, .events = POLLIN | POLLOUT };
	p[1] = (struct pollfd){ .fd = b, .events = POLLIN };
	SAY("writable", poll(p, 2, 0));
	say_fds("bits", p, 2);
	put(a, b, "x");
	SAY("both", poll(p, 2, -1));
	say_fds("bits", p, 2);
	p[1].events = 0;
	SAY("no interest", poll(p, 2, 0));
	say_fds("bits", p, 2);
	recv(b, t, 1, 0);
	p[1].events = POLLIN;
	SAY("read", poll(p + 1, 1, 0));
	say_fds("bits", p + 1, 1);
}

SNIPPET(poll_all_bits, "poll")
{
	pair();
	say_poll("idle", a);
	put(b, a, "x");
	say_poll("readable", a);
	send(b, "!", 1, MSG_OOB);
	until(a, POLLPRI);
	say_poll("urgent", a);
	recv(a, t, 1, MSG_OOB);
	say_poll("urgent taken", a);
	say_poll("a new socket", socket(AF_INET, SOCK_STREAM, 0));
	tell("unknown bits asked: %s", poll_bits(bits_now(b, 0x7fff & ~ALL_BITS)));
}

static void sends(void) { send(a, "x", 1, 0); }
SNIPPET(poll_wakes, "poll ppoll __poll")
{
	struct pollfd p = { .events = POLLIN };
	struct timespec ts = { 5, 0 };

	pair();
	p.fd = b;
	when_blocked(sends);
	SAY("poll", poll(&p, 1, -1));
	helper_done();
	recv(b, t, 1, 0);
	when_blocked(sends);
	SAY("__poll", SYM(__poll, poll)(&p, 1, 5000));
	helper_done();
	recv(b, t, 1, 0);
	when_blocked(sends);
	SAY("ppoll", ppoll(&p, 1, &ts, NULL));
	helper_done();
	tell("the time stays: %d", ts.tv_sec == 5 && !ts.tv_nsec);
	recv(b, t, 1, 0);
	when_blocked(sends);
	SAY("ppoll for ever", ppoll(&p, 1, NULL, NULL));
	helper_done();
}

SNIPPET(poll_times, "poll ppoll select pselect")
{
	struct pollfd p = { .events = POLLIN };
	struct timespec ts = { 0, 50000000 }, short_ts = { 0, 1000 };
	struct timeval tv = { 0, 50000 };
	fd_set r;
	uint64_t t0 = now_ms();

	pair();
	p.fd = b;
	t0 = now_ms();
	SAY("poll", poll(&p, 1, 50));
	say_time("poll", t0, 50);
	t0 = now_ms();
	SAY("ppoll", ppoll(&p, 1, &ts, NULL));
	say_time("ppoll", t0, 50);
	SAY("ppoll, a microsecond", ppoll(&p, 1, &short_ts, NULL));
	FD_ZERO(&r);
	FD_SET(b, &r);
	t0 = now_ms();
	SAY("select", select(b + 1, &r, NULL, NULL, &tv));
	say_time("select", t0, 50);
	tell("set cleared %d, time left %ld.%ld", !FD_ISSET(b, &r), (long)tv.tv_sec,
	     (long)tv.tv_usec);
	FD_SET(b, &r);
	t0 = now_ms();
	SAY("pselect", pselect(b + 1, &r, NULL, NULL, &ts, NULL));
	say_time("pselect", t0, 50);
	tell("time kept: %d", ts.tv_nsec == 50000000);
}

SNIPPET(poll_refused, "poll ppoll")
{
	struct pollfd p[3];
	struct timespec bad = { 0, 2000000000 }, neg = { -1, 0 };
	struct rlimit lim;

	pair();
	p[0] = (struct pollfd){ .fd = b, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = -1, .events = POLLIN, .revents = 99 };
	p[2] = (struct pollfd){ .fd = 999, .events = 0 };
	SAY("a negative and a closed one", poll(p, 3, 0));
	say_fds("bits", p, 3);
	SAY("NULL", poll(NULL, 1, 0));
	SAY("none", poll(NULL, 0, 0));
	SAY("bad nanoseconds", ppoll(p, 1, &bad, NULL));
	SAY("negative time", ppoll(p, 1, &neg, NULL));
	getrlimit(RLIMIT_NOFILE, &lim);
	SAY("too many", poll(p, lim.rlim_cur + 1, 0));
	SAY("absurdly many", poll(p, (nfds_t)-1, 0));
}

SNIPPET(poll_chk, "__poll_chk __ppoll_chk")
{
	struct pollfd p = { .events = POLLOUT };
	struct timespec ts = { 1, 0 };
	pid_t c;

	pair();
	p.fd = a;
	SAY("__poll_chk", __poll_chk(&p, 1, 100, sizeof(p)));
	SAY("__ppoll_chk", __ppoll_chk(&p, 1, &ts, NULL, sizeof(p)));
	fflush(stdout);
	c = fork();
	if (!c) {
		close(2);
		__poll_chk(&p, 2, 0, sizeof(p));
		_exit(0);
	}
	say_end("too large for __poll_chk", c);
	c = fork();
	if (!c) {
		close(2);
		__ppoll_chk(&p, 2, &ts, NULL, sizeof(p));
		_exit(0);
	}
	say_end("too large for __ppoll_chk", c);
}

SNIPPET(poll_twice_listed, "poll")
{
	struct pollfd p[3];

	pair();
	for (int i = 0; i < 3; i++)
		p[i] = (struct pollfd){ .fd = i < 2 ? b : a, .events = i == 1 ? POLLOUT : POLLIN };
	put(a, b, "x");
	SAY("poll", poll(p, 3, 0));
	say_fds("bits", p, 3);
}

SNIPPET(poll_mixed, "poll")
{
	int pp[2], c, d;
	struct pollfd p[6];

	pair();
	pair_of(&c, &d);
	if (pipe(pp))
		die("pipe");
	p[0] = (struct pollfd){ .fd = pp[0], .events = POLLIN };
	p[1] = (struct pollfd){ .fd = b, .events = POLLIN };
	p[2] = (struct pollfd){ .fd = pp[1], .events = POLLOUT };
	p[3] = (struct pollfd){ .fd = d, .events = POLLIN };
	p[4] = (struct pollfd){ .fd = epoll_create1(0), .events = POLLIN };
	p[5] = (struct pollfd){ .fd = open("/dev/null", O_RDONLY), .events = POLLIN };
	put(c, d, "x");
	SAY("poll", poll(p, 6, 1000));
	say_fds("bits", p, 6);
	write(pp[1], "x", 1);
	put(a, b, "x");
	SAY("poll", poll(p, 5, 1000));
	say_fds("bits", p, 5);
}

static void writes_pipe(void) { write(gate, "x", 1); }
SNIPPET(poll_other_wakes, "poll select")
{
	int pp[2];
	struct pollfd p[2];
	fd_set r;

	pair();
	if (pipe(pp))
		die("pipe");
	gate = pp[1];
	p[0] = (struct pollfd){ .fd = b, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = pp[0], .events = POLLIN };
	when_blocked(writes_pipe);
	SAY("poll", poll(p, 2, 5000));
	helper_done();
	say_fds("bits", p, 2);
	read(pp[0], t, 1);
	FD_ZERO(&r);
	FD_SET(b, &r);
	FD_SET(pp[0], &r);
	when_blocked(writes_pipe);
	SAY("select", select((b > pp[0] ? b : pp[0]) + 1, &r, NULL, NULL, NULL));
	helper_done();
	tell("stream %d pipe %d", FD_ISSET(b, &r), FD_ISSET(pp[0], &r));
}

SNIPPET(select_plain, "select __select")
{
	fd_set r, w, x;
	struct timeval zero = { 0, 0 };

	pair();
	FD_ZERO(&r); FD_ZERO(&w); FD_ZERO(&x);
	FD_SET(a, &r); FD_SET(b, &r); FD_SET(a, &w); FD_SET(b, &x);
	put(a, b, "x");
	SAY("select", select(b + 1, &r, &w, &x, &zero));
	tell("read %d %d write %d except %d", FD_ISSET(a, &r), FD_ISSET(b, &r), FD_ISSET(a, &w),
	     FD_ISSET(b, &x));
	FD_SET(b, &r);
	SAY("__select", SYM(__select, select)(b + 1, &r, NULL, NULL, NULL));
	SAY("no sets", select(0, NULL, NULL, NULL, &zero));
	FD_ZERO(&r);
	FD_ZERO(&w); FD_ZERO(&x);
	SAY("empty sets", select(b + 1, &r, &w, &x, &zero));
	send(a, "!", 1, MSG_OOB);
	until(b, POLLPRI);
	FD_SET(b, &x);
	SAY("urgent", select(b + 1, NULL, NULL, &x, &zero));
	tell("except %d", FD_ISSET(b, &x));
}

SNIPPET(select_wakes, "select pselect")
{
	fd_set r;
	struct timeval tv = { 8, 0 };
	struct timespec ts = { 8, 0 };

	pair();
	FD_ZERO(&r);
	FD_SET(b, &r);
	when_blocked(sends);
	SAY("select", select(b + 1, &r, NULL, NULL, &tv));
	helper_done();
	tell("set %d, less time left %d", FD_ISSET(b, &r), tv.tv_sec < 8);
	recv(b, t, 1, 0);
	when_blocked(sends);
	SAY("pselect", pselect(b + 1, &r, NULL, NULL, &ts, NULL));
	helper_done();
	tell("time kept %d", ts.tv_sec == 8);
}

SNIPPET(select_refused, "select pselect")
{
	fd_set r;
	struct timeval neg = { -1, 0 }, much = { 0, 1500000 };
	struct timespec bad = { 0, -1 };

	pair();
	FD_ZERO(&r);
	FD_SET(b, &r);
	SAY("negative n", select(-1, &r, NULL, NULL, NULL));
	SAY("negative time", select(b + 1, &r, NULL, NULL, &neg));
	SAY("bad nanoseconds", pselect(b + 1, &r, NULL, NULL, &bad, NULL));
	FD_ZERO(&r);
	FD_SET(a, &r);
	put(b, a, "x");
	SAY("many microseconds", select(a + 1, &r, NULL, NULL, &much));
	FD_SET(50, &r);		/* the kernel does not look beyond the size of its table */
	SAY("a closed one", select(51, &r, NULL, NULL, &much));
	FD_CLR(999, &r);
	close(b);
	FD_ZERO(&r);
	FD_SET(a, &r);
	FD_SET(b, &r);
	SAY("one that was a stream", select(b + 1, &r, NULL, NULL, &much));
}

/* Each send is asked for by a poll first: where that says that there is room the send takes bytes.
 * Not the other way round, for room may appear in between: how late is no matter, since TCP alone
 * takes more after 40 ms and after 200 ms (send_full). */
SNIPPET(poll_writable_again, "poll send")
{
	struct pollfd p = { .events = POLLOUT };
	int lies = 0;
	size_t n = 0;
	ssize_t r;

	pair();
	nonblocking(a);
	p.fd = a;
	for (int full = 0; full < 2000; ) {
		int told = poll(&p, 1, 0);

		r = send(a, buf, 65536, 0);
		lies += told && r <= 0;
		full = r <= 0 ? full + 1 : 0;
		if (r > 0)
			n += (size_t)r;
		else if (full % 20 == 0)
			nap_us(1000);
	}
	tell("room that was told, and was not there: %d times", lies);
	while (n) {
		r = recv(b, buf, n < 100000 ? n : 100000, 0);
		if (r <= 0)
			die("recv");
		n -= (size_t)r;
	}
	SAY("emptied", poll(&p, 1, 5000));
	say_fds("bits", &p, 1);
}

static void drains(void)
{
	int n = 0;

	/* until the sender says that it is through */
	while (recv(b, page, sizeof(page), 0) > 0)
		n++;
}
SNIPPET(poll_wakes_writer, "poll send")
{
	struct pollfd p = { .events = POLLOUT };
	int rounds = 0;

	pair();
	nonblocking(a);
	p.fd = a;
	while (send(a, buf, 65536, 0) > 0)
		;
	when_blocked(drains);
	for (; rounds < 200; rounds++) {
		if (poll(&p, 1, 5000) != 1 || p.revents != POLLOUT) {
			tell("round %d: %s", rounds, poll_bits(p.revents));
			break;
		}
		while (send(a, buf, 65536, 0) > 0)
			;
	}
	tell("rounds %d", rounds);
	shutdown(a, SHUT_WR);
	helper_done();
}

static void signals_main(void) { syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1); }
SNIPPET(poll_signal, "poll ppoll select pselect")
{
	struct pollfd p = { .events = POLLIN };
	struct timeval tv = { 8, 0 };
	fd_set r;

	pair();
	handle(SIGUSR1, SA_RESTART);
	p.fd = b;
	when_blocked(signals_main);
	SAY("poll", poll(&p, 1, -1));
	helper_done();
	when_blocked(signals_main);
	SAY("ppoll", ppoll(&p, 1, NULL, NULL));
	helper_done();
	FD_ZERO(&r);
	FD_SET(b, &r);
	when_blocked(signals_main);
	SAY("select", select(b + 1, &r, NULL, NULL, &tv));
	helper_done();
	tell("set untouched %d", FD_ISSET(b, &r));
	when_blocked(signals_main);
	SAY("pselect", pselect(b + 1, &r, NULL, NULL, NULL, NULL));
	helper_done();
	tell("signals %d", signals);
}

SNIPPET(ppoll_mask, "ppoll pselect")
{
	struct pollfd p = { .events = POLLIN };
	struct timespec ts = { 0, 50000000 };
	sigset_t none, usr1, old;
	fd_set r;

	pair();
	handle(SIGUSR1, 0);
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	p.fd = b;
	sigprocmask(SIG_BLOCK, &usr1, &old);
	raise(SIGUSR1);
	tell("pending, signals %d", signals);
	SAY("ppoll lets it in", ppoll(&p, 1, NULL, &none));
	tell("signals %d", signals);
	raise(SIGUSR1);
	SAY("ppoll keeps it out", ppoll(&p, 1, &ts, &usr1));
	tell("signals %d", signals);
	FD_ZERO(&r);
	FD_SET(b, &r);
	SAY("pselect lets it in", pselect(b + 1, &r, NULL, NULL, NULL, &none));
	tell("signals %d", signals);
	sigprocmask(SIG_SETMASK, NULL, &old);
	tell("mask restored %d", sigismember(&old, SIGUSR1));
	raise(SIGUSR1);
	put(a, b, "x");
	SAY("data and a signal", ppoll(&p, 1, NULL, &none));
}

static void closes_it(void) { close(b); }
SNIPPET(poll_closed_by_another, "poll close")
{
	struct pollfd p = { .events = POLLIN };

	/* on Linux the poll goes on; that it ends, and that the peer gets its end, is what
	 * counts */
	pair();
	p.fd = b;
	when_blocked(closes_it);
	SAY("poll", poll(&p, 1, 300) >= 0);
	helper_done();
	SAY("the peer reads", recv(a, t, 1, 0));
}

SNIPPET(poll_many, "poll")
{
	static struct pollfd p[400];
	static int x[200];
	int n = 0;

	for (int i = 0; i < 200; i++) {
		struct sockaddr_in at;
		int l = listener_at(&at);

		x[i] = connect_to(&at);
		p[i] = (struct pollfd){ .fd = accept(l, NULL, NULL), .events = POLLIN };
		close(l);
	}
	SAY("idle", poll(p, 200, 0));
	for (int i = 0; i < 200; i += 7)
		put(x[i], p[i].fd, "x");
	SAY("29 of them", poll(p, 200, 1000));
	for (int i = 0; i < 200; i++)
		n += (p[i].revents == POLLIN) == (i % 7 == 0);
	tell("right %d", n);
}

/* What can be read, or written, still can however often one looks, and by whichever call. */
SNIPPET(levels_hold, "poll select ioctl recv")
{
	struct timeval none = { 0, 0 };
	struct { long poll, select, count, peek, out, select_out; } missed = { 0 };
	uint64_t end = now_ms() + 200;
	fd_set set;

	pair();
	while (now_ms() < end) {
		struct pollfd in = { .fd = b, .events = POLLIN }, out = { .fd = a,
			.events = POLLOUT };
		int q;

		send(a, "xyz", 3, 0);
		poll(&in, 1, -1);
		for (int i = 0; i < 20; i++) {
			missed.poll += poll(&in, 1, 0) != 1;
			FD_ZERO(&set);
			FD_SET(b, &set);
			missed.select += select(b + 1, &set, NULL, NULL, &none) != 1;
			q = 0;
			ioctl(b, FIONREAD, &q);
			missed.count += q < 1;
			missed.out += poll(&out, 1, 0) != 1;
			FD_ZERO(&set);
			FD_SET(a, &set);
			missed.select_out += select(a + 1, NULL, &set, NULL, &none) != 1;
			missed.peek += recv(b, t, 3, MSG_DONTWAIT | MSG_PEEK) < 1;
		}
		recv(b, t, 3, MSG_WAITALL);
	}
	tell("missed: poll %ld, select %ld, FIONREAD %ld, peek %ld; OUT: poll %ld, select %ld",
	     missed.poll, missed.select, missed.count, missed.peek, missed.out, missed.select_out);
}

/* Whoever asks before each send, and so never sees EAGAIN: nobody reads, and TCP's buffers take
 * more than a ring. 0: not writable for so long. */
static int writable_by(int how, int ep, int ms)
{
	struct pollfd p = { .fd = a, .events = POLLOUT };
	struct timeval tv = { ms / 1000, ms % 1000 * 1000 };
	struct epoll_event e;
	fd_set set;

	switch (how) {
	case 0: return poll(&p, 1, ms);
	case 1: FD_ZERO(&set); FD_SET(a, &set); return select(a + 1, NULL, &set, NULL, &tv);
	default: return epoll_wait(ep, &e, 1, ms);
	}
}

SNIPPET(writable_to_the_end, "poll select epoll_wait send")
{
	static const char *const names[] = { "poll", "select", "epoll" };
	static char block[4000];

	for (int how = 0; how < 6; how++) {	/* waiting, then asking again and again */
		int ep = epoll_create1(EPOLL_CLOEXEC), ms = how < 3 ? 3000 : 0, tries = 0;
		struct epoll_event e = { .events = EPOLLOUT };
		long n = 0;

		pair();
		epoll_ctl(ep, EPOLL_CTL_ADD, a, &e);
		while (n < 2000000 && tries < 3000) {
			if (writable_by(how % 3, ep, ms) > 0) {
				n += send(a, block, sizeof(block), 0);
				continue;
			}
			tries += ms ? 3000 : 1;
			if (!ms)
				usleep(1000);
		}
		tell("%s%s: %s", names[how % 3], ms ? "" : " without waiting",
		     n >= 2000000 ? "two megabytes" : "less");
		while (n > 0)
			n -= recv(b, t, n < (long)sizeof(t) ? (size_t)n : sizeof(t), 0);
		close(a);
		close(b);
		close(ep);
	}
}
