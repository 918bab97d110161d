/*
 * fds.c - copies of descriptors, closing many, passing them on. Calls: dup dup2 __dup2 dup3
 * fcntl close close_range closefrom sendmsg recvmsg pidfd_open pidfd_getfd pidfd_send_signal
 * LIBS: -ldl
 */
#include <limits.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>

#include "arch/arch.h"
#include "snip.h"

static char t[256];

SNIPPET(dup_plain, "dup")
{
	int d;

	pair();
	d = dup(a);
	put(d, b, "by the copy");
	SAY("recv", recv(b, t, 100, 0));
	put(a, b, "by the first");
	SAY("recv", recv(b, t, 100, 0));
	close(a);
	put(d, b, "first is closed");
	SAY("recv", recv(b, t, 100, 0));
	put(b, d, "back");
	SAY("recv", recv(d, t, 100, 0));
	SAY("bad fd", dup(-1));
	SAY("closed fd", dup(a));
}

SNIPPET(dup_shares_flags, "dup fcntl")
{
	int d;

	pair();
	d = dup(b);
	nonblocking(d);
	SAY("the first does not wait either", recv(b, t, 1, 0));
	tell("FD_CLOEXEC %d", fcntl(d, F_GETFD));
	fcntl(d, F_SETFD, FD_CLOEXEC);
	tell("FD_CLOEXEC of the first %d", fcntl(b, F_GETFD));
}

SNIPPET(dup2_forms, "dup2 __dup2 dup3")
{
	int f = open("/dev/null", O_RDWR), g = open("/dev/null", O_RDWR);

	pair();
	tell("dup2 over a file: %d", dup2(a, f) == f);
	put(f, b, "through it");
	SAY("recv", recv(b, t, 100, 0));
	tell("onto itself: %d", dup2(f, f) == f);
	SAY("dup3 onto itself", dup3(f, f, 0));
	tell("dup3: %d, FD_CLOEXEC %d", dup3(a, g, O_CLOEXEC) == g, fcntl(g, F_GETFD));
	put(g, b, "three");
	SAY("recv", recv(b, t, 100, 0));
	tell("__dup2: %d", SYM(__dup2, dup2)(b, f) == f);
	put(a, f, "other end");
	SAY("recv", recv(f, t, 100, 0));
	SAY("bad flags", dup3(a, g, 0x1234));
	SAY("bad source", dup2(-1, f));
	SAY("closed source", dup2(999, f));
	SAY("negative target", dup2(a, -1));
	SAY("enormous target", dup2(a, INT_MAX));
	put(a, f, "still");
	SAY("a bad dup2 leaves the target", recv(f, t, 100, 0));
}

SNIPPET(dup2_beyond_limit, "dup2 dup3")
{
	struct rlimit lim;
	int n, e = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN };

	pair();
	n = b < e ? b : e;
	epoll_ctl(e, EPOLL_CTL_ADD, b, &ev);
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = (rlim_t)n;
	SAY("setrlimit", setrlimit(RLIMIT_NOFILE, &lim));
	SAY("dup2 onto the stream", dup2(0, b));
	SAY("dup3 onto it", dup3(a, b, O_CLOEXEC));
	SAY("dup2 onto the epoll instance", dup2(0, e));
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	put(a, b, "x");
	SAY("epoll", epoll_wait(e, &ev, 1, 5000));
	SAY("recv", recv(b, t, 10, 0));
	alive("after", a, b);
}
SNIPPET(dup2_replaces_stream, "dup2")
{
	int c, d;

	pair();
	pair_of(&c, &d);
	put(a, b, "queued");
	tell("a stream over another: %d", dup2(d, b) == b);
	SAY("the replaced one's peer", ({ until(a, POLLHUP | POLLRDHUP); recv(a, t, 10, 0); }));
	put(c, b, "hello");
	SAY("the number is the other now", recv(b, t, 10, 0));
	tell("/dev/null over a stream: %d", dup2(open("/dev/null", O_RDWR), b) == b);
	SAY("read", read(b, t, 10));
	put(c, d, "alive");
	SAY("the other descriptor", recv(d, t, 10, 0));
	tell("/dev/null over the last: %d", dup2(b, d) == d);
	SAY("its peer", recv(c, t, 10, 0));
}

SNIPPET(dup_high, "fcntl dup2")
{
	int d;

	pair();
	d = fcntl(a, F_DUPFD, 200);
	tell("F_DUPFD: %d", d >= 200);
	put(d, b, "high");
	SAY("recv", recv(b, t, 10, 0));
	d = fcntl(b, F_DUPFD_CLOEXEC, 300);
	tell("F_DUPFD_CLOEXEC: %d, %d", d >= 300, fcntl(d, F_GETFD));
	put(a, d, "high");
	SAY("recv", recv(d, t, 10, 0));
	SAY("negative", fcntl(a, F_DUPFD, -1));
	SAY("enormous", fcntl(a, F_DUPFD, INT_MAX));
	SAY("bad fd", fcntl(-1, F_DUPFD, 0));
}

SNIPPET(close_range_streams, "close_range")
{
	int c, d, keep, lo, hi;

	pair();
	pair_of(&c, &d);
	keep = fcntl(d, F_DUPFD, 500);
	put(a, b, "queued");
	lo = b < d ? b : d;
	hi = b < d ? d : b;
	SAY("backwards", close_range((unsigned)hi, (unsigned)lo, 0));
	SAY("unknown flag", close_range((unsigned)lo, (unsigned)hi, 1 << 10));
	close(c);
	close(d);
	SAY("close_range", close_range((unsigned)b, (unsigned)b, 0));
	SAY("recv on it", recv(b, t, 10, 0));
	until(a, POLLHUP | POLLRDHUP);
	SAY("unread: the peer", recv(a, t, 10, 0));
	SAY("the dup elsewhere reads the end", recv(keep, t, 10, 0));
	SAY("far away", close_range(100000, UINT_MAX, 0));
}

SNIPPET(close_range_all, "close_range closefrom")
{
	struct sockaddr_in at;

	pair();
	put(a, b, "x");
	SAY("all from 3", close_range(3, UINT_MAX, 0));
	SAY("a", recv(a, t, 1, 0));
	SAY("b", recv(b, t, 1, 0));
	pair();
	put(a, b, "y");
	SAY("new ones work", recv(b, t, 1, 0));
	closefrom(3);
	SAY("closefrom: a", send(a, t, 1, 0));
	SAY("closefrom: b", close(b));
	pair();
	alive("and new ones", a, b);
}

SNIPPET(close_range_cloexec, "close_range")
{
	pid_t p;

	pair();
	SAY("CLOEXEC", close_range((unsigned)a, (unsigned)b, CLOSE_RANGE_CLOEXEC));
	tell("FD_CLOEXEC %d %d", fcntl(a, F_GETFD), fcntl(b, F_GETFD));
	alive("open", a, b);
	fflush(stdout);
	p = fork();		/* of one thread: of several, the others keep the descriptor */
	if (!p) {
		SAY("UNSHARE", close_range((unsigned)a, (unsigned)a, CLOSE_RANGE_UNSHARE));
		SAY("closed", fcntl(a, F_GETFD));
		pair();
		alive("another pair", a, b);
		SAY("UNSHARE", close_range((unsigned)a, (unsigned)a, CLOSE_RANGE_UNSHARE));
		SAY("end", recv(b, t, 1, 0));
		fflush(stdout);
		_exit(0);
	}
	say_end("child", p);
	alive("still", a, b);
}

SNIPPET(close_all_loop, "close")
{
	int bad = 0;

	pair();
	for (int fd = 3; fd < 300; fd++)
		if (fd != a && fd != b && close(fd) && errno != EBADF)
			bad++;
	tell("bad %d", bad);
	alive("ours live", a, b);
	for (int fd = 300; fd < 20000; fd++)
		if (close(fd) && errno != EBADF)
			bad++;
	tell("bad %d", bad);
	alive("ours live", a, b);
	pair();
	alive("new ones live", a, b);
}

SNIPPET(fd_reuse, "close socket pipe dup2")
{
	/* no foreign byte in any file */
	int f, pp[2];

	pair();
	f = a;
	close(a);
	if (pipe(pp))
		die("pipe");
	tell("the number is taken: %d", pp[0] == f || pp[1] == f);
	write(pp[1], "pipe", 4);
	SAY("recv", recv(b, t, 10, 0));
	SAY("read of the pipe", read(pp[0], t, 10));
	say_bytes("is", t, 4);
	SAY("send on a pipe", send(pp[1], "x", 1, 0));
	SAY("shutdown of a pipe", shutdown(pp[0], SHUT_RD));
	SAY("setsockopt of a pipe", setsockopt(pp[0], SOL_SOCKET, SO_KEEPALIVE, &f, sizeof(f)));
}

SNIPPET(scm_rights_self, "sendmsg recvmsg sendmmsg")
{
	int sv[2], d;

	pair();
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	put(a, b, "before");
	pass(sv[0], b);
	d = take(sv[1]);
	SAY("what was there", recv(d, t, 100, 0));
	put(a, d, "more");
	SAY("by the first number", recv(b, t, 100, 0));
	close(b);
	put(a, d, "closed");
	SAY("by the passed one", recv(d, t, 100, 0));
	alive("it", d, a);
}

SNIPPET(scm_rights_child, "sendmsg recvmsg")
{
	int sv[2];
	pid_t p;

	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	fflush(stdout);
	p = fork();
	if (!p) {
		int d = take(sv[1]);

		SAY("the child reads", recv(d, t, 6, MSG_WAITALL));
		say_bytes("it is", t, 6);
		send(d, "answer", 6, 0);
		fflush(stdout);
		_exit(0);
	}
	pair();
	put(a, b, "for");
	pass(sv[0], b);
	close(b);
	send(a, "you", 3, 0);
	SAY("the answer", recv(a, t, 100, 0));
	say_end("child", p);
	SAY("the end", recv(a, t, 100, 0));
}

SNIPPET(pidfd_plain, "pidfd_open pidfd_getfd pidfd_send_signal")
{
	int pf, d;

	pair();
	put(a, b, "before");
	pf = (int)syscall(SYS_pidfd_open, getpid(), 0);
	SAYV("pidfd_open", pidfd_open(getpid(), 0) >= 0);
	SAY("pidfd_send_signal", pidfd_send_signal(pf, 0, NULL, 0));
	SAY("pidfd_getfd, bad", pidfd_getfd(pf, 999, 0));
	d = pidfd_getfd(pf, open("/dev/null", O_RDONLY), 0);
	tell("pidfd_getfd: %d", d >= 0);
	SAY("recv", recv(b, t, 10, 0));
}

SNIPPET(nofile_small, "setrlimit socket dup")
{
	struct rlimit lim = { 64, 64 };
	int n = 0, d;

	setrlimit(RLIMIT_NOFILE, &lim);
	pair();
	alive("with 64 descriptors", a, b);
	while ((d = dup(a)) >= 0)
		n++;
	tell("dup fails with %s", strerrorname_np(errno));
	tell("after some 40 or more: %d", n >= 40);
	put(a, b, "still");
	SAY("recv", recv(b, t, 10, 0));
}
