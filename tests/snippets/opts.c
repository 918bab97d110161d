/*
 * opts.c - socket options, and counts that calls tell of a connection.
 * Calls: setsockopt getsockopt ioctl fcntl __fcntl fcntl64
 * LIBS: -ldl
 */
#include <limits.h>
#include <time.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

#include "snip.h"

static char t[256];

static int get(int fd, int level, int name)
{
	int v = -4711;
	socklen_t l = sizeof(v);

	return getsockopt(fd, level, name, &v, &l) ? -errno : v;
}
static long set(int fd, int level, int name, int v)
{
	return setsockopt(fd, level, name, &v, sizeof(v));
}
static void set_time(int fd, int name, int ms)
{
	struct timeval v = { ms / 1000, ms % 1000 * 1000 };

	setsockopt(fd, SOL_SOCKET, name, &v, sizeof(v));
}

#define OPT(level, name, v) do { SAY(#name, set(a, level, name, v)); \
	tell("now %d", get(a, level, name)); } while (0)

SNIPPET(opt_socket, "setsockopt getsockopt")
{
	pair();
	OPT(SOL_SOCKET, SO_KEEPALIVE, 1);
	OPT(SOL_SOCKET, SO_REUSEADDR, 1);
	OPT(SOL_SOCKET, SO_REUSEPORT, 1);
	OPT(SOL_SOCKET, SO_SNDBUF, 100000);
	OPT(SOL_SOCKET, SO_RCVBUF, 100000);
	OPT(SOL_SOCKET, SO_DONTROUTE, 1);
	OPT(SOL_SOCKET, SO_OOBINLINE, 1);
	OPT(SOL_SOCKET, SO_PRIORITY, 3);
	OPT(SOL_SOCKET, SO_DEBUG, 0);
	OPT(SOL_SOCKET, SO_MARK, 7);
	OPT(SOL_SOCKET, SO_BUSY_POLL, 10);
	OPT(SOL_SOCKET, SO_TIMESTAMP, 1);
	OPT(SOL_SOCKET, SO_BROADCAST, 1);
	tell("SO_TYPE %d", get(a, SOL_SOCKET, SO_TYPE));
	tell("SO_PROTOCOL %d", get(a, SOL_SOCKET, SO_PROTOCOL));
	tell("SO_DOMAIN %d", get(a, SOL_SOCKET, SO_DOMAIN));
	tell("SO_ACCEPTCONN %d", get(a, SOL_SOCKET, SO_ACCEPTCONN));
	tell("SO_SNDLOWAT %d", get(a, SOL_SOCKET, SO_SNDLOWAT));
	SAY("SO_SNDLOWAT", set(a, SOL_SOCKET, SO_SNDLOWAT, 5));
	SAY("SO_TYPE", set(a, SOL_SOCKET, SO_TYPE, 5));
	SAY("unknown", set(a, SOL_SOCKET, 9999, 5));
	alive("after all", a, b);
}

SNIPPET(opt_tcp, "setsockopt getsockopt")
{
	pair();
	OPT(IPPROTO_TCP, TCP_NODELAY, 0);
	OPT(IPPROTO_TCP, TCP_NODELAY, 1);
	OPT(IPPROTO_TCP, TCP_KEEPIDLE, 77);
	OPT(IPPROTO_TCP, TCP_KEEPINTVL, 33);
	OPT(IPPROTO_TCP, TCP_KEEPCNT, 5);
	OPT(IPPROTO_TCP, TCP_SYNCNT, 3);
	OPT(IPPROTO_TCP, TCP_LINGER2, 9);
	OPT(IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
	OPT(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
	OPT(IPPROTO_TCP, TCP_QUICKACK, 1);
	OPT(IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);
	SAY("TCP_MAXSEG", set(a, IPPROTO_TCP, TCP_MAXSEG, 1000));
	SAY("unknown", set(a, IPPROTO_TCP, 9999, 5));
	SAY("TCP_KEEPCNT out of range", set(a, IPPROTO_TCP, TCP_KEEPCNT, 100000));
	SAY("IP_TOS", set(a, IPPROTO_IP, IP_TOS, 16));
	tell("now %d", get(a, IPPROTO_IP, IP_TOS));
	SAY("IPv6 option on IPv4", set(a, IPPROTO_IPV6, IPV6_V6ONLY, 1));
	SAY("unknown level", set(a, 9999, 1, 1));
	alive("after all", a, b);
}

SNIPPET(opt_refused, "setsockopt getsockopt")
{
	socklen_t l = sizeof(int), neg = (socklen_t)-1, zero = 0;
	int v = 1;

	pair();
	SAY("set: NULL", setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, NULL, 4));
	SAY("set: short", setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, &v, 1));
	SAY("set: negative length", setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, &v, (socklen_t)-1));
	SAY("set: bad fd", setsockopt(-1, SOL_SOCKET, SO_KEEPALIVE, &v, sizeof(v)));
	SAY("get: NULL", getsockopt(a, SOL_SOCKET, SO_ERROR, NULL, &l));
	SAY("get: NULL length", getsockopt(a, SOL_SOCKET, SO_ERROR, &v, NULL));
	SAY("get: negative length", getsockopt(a, SOL_SOCKET, SO_ERROR, &v, &neg));
	SAY("get: zero length", getsockopt(a, SOL_SOCKET, SO_ERROR, &v, &zero));
	SAY("get: bad fd", getsockopt(-1, SOL_SOCKET, SO_ERROR, &v, &l));
	SAY("get: unknown", getsockopt(a, SOL_SOCKET, 9999, &v, &l));
	SAY("get: a file", getsockopt(open("/dev/null", O_RDONLY), SOL_SOCKET, SO_ERROR, &v, &l));
	SAY("RCVTIMEO short", setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &v, sizeof(v)));
	SAY("RCVTIMEO bad",
	    ({ struct timeval tv = { 0, 2000000 }; setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &tv,
							      sizeof(tv)); }));
	SAY("LINGER short", setsockopt(a, SOL_SOCKET, SO_LINGER, &v, sizeof(v)));
	alive("after all", a, b);
}

SNIPPET(rcvtimeo, "setsockopt recv read recvmsg")
{
	struct iovec v = { t, 10 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct timeval tv;
	socklen_t l = sizeof(tv);
	uint64_t t0 = now_ms();

	pair();
	set_time(b, SO_RCVTIMEO, 100);
	getsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &tv, &l);
	tell("as set: %ld %ld", (long)tv.tv_sec, (long)tv.tv_usec);
	t0 = now_ms();
	SAY("recv", recv(b, t, 10, 0));
	say_time("recv", t0, 100);
	SAY("read", read(b, t, 10));
	SAY("recvmsg", recvmsg(b, &m, 0));
	say_time("all", t0, 300);
	put(a, b, "part");
	SAY("MSG_WAITALL", recv(b, t, 10, MSG_WAITALL));
	say_time("and that", t0, 400);
	put(a, b, "soon");
	SAY("what is there", recv(b, t, 10, 0));
	SAY("peek", recv(b, t, 10, MSG_PEEK));
	nonblocking(b);
	t0 = now_ms();
	SAY("nonblocking", recv(b, t, 10, 0));
	tell("at once: %d", now_ms() - t0 < 90);
}

/* By the numbers that 32-bit programs with 64-bit time use, and all may. */
SNIPPET(timeo_new, "setsockopt getsockopt recv send")
{
	struct timeval tv;
	socklen_t l = sizeof(tv);
	uint64_t t0;

	pair();
	set_time(b, SO_RCVTIMEO_NEW, 100);
	getsockopt(b, SOL_SOCKET, SO_RCVTIMEO_OLD, &tv, &l);
	tell("the old one: %ld %ld", (long)tv.tv_sec, (long)tv.tv_usec);
	alarm(10);	/* who does not know of it waits for ever */
	t0 = now_ms();
	SAY("recv", recv(b, t, 10, 0));
	say_time("recv", t0, 100);
	set_time(a, SO_SNDTIMEO_NEW, 100);
	while (send(a, buf, 1 << 20, 0) > 0)
		;
	tell("send: %s", strerrorname_np(errno));
	set_time(a, SO_SNDTIMEO_OLD, 0);
	getsockopt(a, SOL_SOCKET, SO_SNDTIMEO_NEW, &tv, &l);
	tell("taken back: %ld %ld", (long)tv.tv_sec, (long)tv.tv_usec);
}

/* Times of arrival are the kernel's alone, by either number. It needs a moment until it takes
 * them. */
SNIPPET(timestamps_new, "setsockopt recvmsg")
{
	static const int names[] = { SO_TIMESTAMP_OLD, SO_TIMESTAMP_NEW,
				     SO_TIMESTAMPNS_OLD, SO_TIMESTAMPNS_NEW };

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		union { char c[CMSG_SPACE(2 * sizeof(int64_t))]; struct cmsghdr h; } u = { 0 };
		struct iovec v = { t, 10 };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u };
		int one = 1;

		pair();
		SAY("set", setsockopt(b, SOL_SOCKET, names[i], &one, sizeof(one)));
		for (uint64_t end = now_ms() + 5000; !m.msg_controllen && now_ms() < end;
		     nap_us(500)) {
			send(a, "when", 4, 0);
			m.msg_controllen = sizeof(u);
			if (recvmsg(b, &m, 0) != 4)
				die("recvmsg");
		}
		tell("type as set: %d", m.msg_controllen > 0 && u.h.cmsg_type == names[i]);
		close(a);
		close(b);
	}
}

static void sends_late(void) { send(a, "late", 4, 0); }
SNIPPET(rcvtimeo_in_time, "setsockopt recv")
{
	pair();
	set_time(b, SO_RCVTIMEO, 8000);
	when_blocked(sends_late);
	SAY("in time", recv(b, t, 10, 0));
	helper_done();
	set_time(b, SO_RCVTIMEO, 0);
	when_blocked(sends_late);
	SAY("no time set", recv(b, t, 10, 0));
	helper_done();
}

/* Longer than microseconds, nanoseconds or jiffies can tell, and shorter than nothing. */
SNIPPET(timeo_extremes, "setsockopt recv send")
{
	static const long secs[] = { LONG_MAX, LONG_MAX / 1000, LONG_MAX / 1000000,
				     LONG_MAX / 1000000000 + 1, 20000000000, 4000000000,
					     2147483648 };
	struct timeval tv = { 0 };

	for (unsigned i = 0; i < sizeof secs / sizeof *secs; i++) {
		pair();
		tv.tv_sec = secs[i];
		SAY("set", setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
		SAY("set", setsockopt(b, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
		when_blocked(sends_late);
		SAY("recv", recv(b, t, 10, 0));
		helper_done();
		SAY("send", send(b, t, 10, 0));
		close(a);
		close(b);
	}
	pair();
	tv.tv_sec = -1;
	SAY("set", setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	SAY("recv", recv(b, t, 10, 0));
	set_time(b, SO_RCVTIMEO, 0);
	when_blocked(sends_late);
	SAY("recv", recv(b, t, 10, 0));
	helper_done();
}

static void interrupts(void) { syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1); }
SNIPPET(rcvtimeo_signal, "setsockopt recv sigaction")
{
	pair();
	handle(SIGUSR1, SA_RESTART);
	set_time(b, SO_RCVTIMEO, 8000);
	when_blocked(interrupts);
	SAY("SA_RESTART counts for nothing", recv(b, t, 10, 0));
	helper_done();
}

SNIPPET(sndtimeo, "setsockopt send")
{
	uint64_t t0;
	ssize_t r;
	size_t n = 0;

	pair();
	set_time(a, SO_SNDTIMEO, 100);
	while ((r = send(a, buf, 1 << 20, 0)) > 0)
		n += (size_t)r;
	tell("at last %s", strerrorname_np(errno));
	t0 = now_ms();
	while ((r = send(a, buf, 1 << 20, 0)) > 0) {	/* a switch of paths may have made room */
		n += (size_t)r;
		t0 = now_ms();
	}
	tell("again %s", strerrorname_np(errno));
	say_time("send", t0, 100);
	while (n) {
		r = recv(b, buf, sizeof(buf), 0);
		if (r <= 0 || (size_t)r > n)
			die("recv: %zd, %zu left", r, n);
		n -= (size_t)r;
	}
	SAY("nothing more", recv(b, t, 10, MSG_DONTWAIT));
	SAY("and now", send(a, "x", 1, 0));
}

/* less would not wake a reader that has taken some */
static void sends_more(void) { send(a, "6789012345", 10, 0); }
SNIPPET(rcvlowat, "setsockopt recv poll")
{
	pair();
	SAY("SO_RCVLOWAT", set(b, SOL_SOCKET, SO_RCVLOWAT, 10));
	tell("now %d", get(b, SOL_SOCKET, SO_RCVLOWAT));
	put(a, b, "12345");
	say_poll("5 bytes of 10", b);
	SAY("MSG_DONTWAIT", recv(b, t, 3, MSG_DONTWAIT));
	when_blocked(sends_more);
	SAY("recv", recv(b, t, 10, 0));
	helper_done();
	SAY("0 is 1", set(b, SOL_SOCKET, SO_RCVLOWAT, 0));
	tell("now %d", get(b, SOL_SOCKET, SO_RCVLOWAT));
	SAY("negative", set(b, SOL_SOCKET, SO_RCVLOWAT, -1));
	tell("now %d", get(b, SOL_SOCKET, SO_RCVLOWAT) > 10000);
}

SNIPPET(linger_values, "setsockopt getsockopt close")
{
	struct linger lg = { 1, 5 };
	socklen_t l = sizeof(lg);

	pair();
	SAY("set", setsockopt(a, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)));
	lg = (struct linger){ 0, 0 };
	SAY("get", getsockopt(a, SOL_SOCKET, SO_LINGER, &lg, &l));
	tell("onoff %d linger %d", lg.l_onoff, lg.l_linger);
	put(a, b, "kept");
	SAY("close", close(a));
	SAY("recv", recv(b, t, 10, 0));
	SAY("end", recv(b, t, 10, 0));
}

SNIPPET(cork, "setsockopt send writev sendfile")
{
	pair();
	SAY("TCP_CORK", set(a, IPPROTO_TCP, TCP_CORK, 1));
	tell("now %d", get(a, IPPROTO_TCP, TCP_CORK));
	send(a, "one ", 4, 0);
	send(a, "two ", 4, 0);
	send(a, "three", 5, 0);
	SAY("uncorked", set(a, IPPROTO_TCP, TCP_CORK, 0));
	arrive(b, 13);
	SAY("in one", recv(b, t, 100, 0));
	set(a, IPPROTO_TCP, TCP_CORK, 1);
	send(a, "late", 4, 0);
	until(b, POLLIN);
	SAY("corked comes after its time", recv(b, t, 100, 0));
	send(a, "end", 3, 0);
	shutdown(a, SHUT_WR);
	SAY("shutdown pushes", recv(b, t, 100, 0));
	SAY("end", recv(b, t, 100, 0));
}

SNIPPET(nagle, "setsockopt send recv")
{
	pair();
	set(a, IPPROTO_TCP, TCP_NODELAY, 0);
	for (int i = 0; i < 20; i++)
		if (send(a, "tick", 4, 0) != 4)
			tell("send: %s", strerrorname_np(errno));
	SAY("all of it", recv(b, t, 80, MSG_WAITALL));
}

static long tcp_state(int fd)
{
	struct tcp_info i;
	socklen_t l = sizeof(i);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &l) ? -1 : i.tcpi_state;
}
SNIPPET(tcp_info, "getsockopt shutdown")
{
	struct tcp_info i;
	socklen_t l = 8, neg = (socklen_t)-1;

	pair();
	SAY("state", tcp_state(a));
	SAY("a short one", getsockopt(a, IPPROTO_TCP, TCP_INFO, &i, &l));
	tell("length %u state %u", l, i.tcpi_state);
	SAY("negative", getsockopt(a, IPPROTO_TCP, TCP_INFO, &i, &neg));
	put(a, b, "x");
	recv(b, t, 1, 0);
	SAY("after data", tcp_state(b));
	tell("TCP_MAXSEG sane: %d", get(a, IPPROTO_TCP, TCP_MAXSEG) > 500);
	tell("congestion: %d", ({
		     char c[32];
		     l = sizeof(c);
		     getsockopt(a, IPPROTO_TCP, TCP_CONGESTION, c, &l) == 0;
	     }));
	SAY("unconnected", tcp_state(socket(AF_INET, SOCK_STREAM, 0)));
}

static long count(int fd, unsigned long req)
{
	int n = -4711;

	return ioctl(fd, req, &n) ? -1 : n;
}
SNIPPET(fionread, "ioctl recv")
{
	pair();
	SAY("nothing", count(b, FIONREAD));
	put(a, b, "hello");
	SAY("5", count(b, FIONREAD));
	SAY("SIOCINQ", count(b, SIOCINQ));
	recv(b, t, 2, 0);
	SAY("3", count(b, FIONREAD));
	recv(b, t, 1, MSG_PEEK);
	SAY("3 after a peek", count(b, FIONREAD));
	put(a, b, " world");
	SAY("9", count(b, FIONREAD));
	recv(b, t, 9, 0);
	SAY("0", count(b, FIONREAD));
	send(a, "ab", 2, 0);
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	SAY("2 and the end", count(b, FIONREAD));
	recv(b, t, 2, 0);
	SAY("the end", count(b, FIONREAD));
}

SNIPPET(siocoutq, "ioctl send")
{
	pair();
	SAY("nothing", count(a, SIOCOUTQ));
	SAY("not sent", count(a, SIOCOUTQNSD));
	put(a, b, "hello");
	/* the kernel's acknowledgement */
	for (int i = 0; i < 2000 && jitter && count(a, SIOCOUTQ); i++)
		nap_us(1000);
	recv(b, t, 10, 0);
	for (int i = 0; i < 2000 && count(a, SIOCOUTQ); i++)
		nap_us(1000);
	SAY("read", count(a, SIOCOUTQ));
	SAY("not sent", count(a, SIOCOUTQNSD));
}

SNIPPET(siocatmark, "ioctl")
{
	pair();
	SAY("SIOCATMARK", count(b, SIOCATMARK));
	SAY("on a listener: FIONREAD", ({
		    struct sockaddr_in at;
		    count(listener_at(&at), FIONREAD);
	    }));
	SAY("unconnected: FIONREAD", count(socket(AF_INET, SOCK_STREAM, 0), FIONREAD));
	SAY("unconnected: SIOCOUTQ", count(socket(AF_INET, SOCK_STREAM, 0), SIOCOUTQ));
	SAY("bad fd", count(-1, FIONREAD));
	SAY("unknown request", ioctl(a, 0x1234567, t));
	SAY("NULL", ioctl(a, FIONREAD, NULL));
	SAY("a terminal's", ioctl(a, 0x5401 /* TCGETS */, t));
}

SNIPPET(fionbio, "ioctl fcntl recv")
{
	int on = 1, off = 0;

	pair();
	SAY("FIONBIO", ioctl(b, FIONBIO, &on));
	tell("O_NONBLOCK %d", !!(fcntl(b, F_GETFL) & O_NONBLOCK));
	SAY("recv", recv(b, t, 1, 0));
	SAY("FIONBIO off", ioctl(b, FIONBIO, &off));
	tell("O_NONBLOCK %d", !!(fcntl(b, F_GETFL) & O_NONBLOCK));
	set_time(b, SO_RCVTIMEO, 50);
	SAY("recv", recv(b, t, 1, 0));
	SAY("FIOCLEX", ioctl(b, FIOCLEX));
	tell("FD_CLOEXEC %d", fcntl(b, F_GETFD));
	alive("after", a, b);
}

SNIPPET(fcntl_flags, "fcntl __fcntl fcntl64")
{
	pair();
	SAY("F_GETFL", fcntl(b, F_GETFL));
	SAY("F_SETFL O_NONBLOCK", fcntl(b, F_SETFL, O_NONBLOCK));
	SAY("recv", recv(b, t, 1, 0));
	SAY("F_SETFL 0", SYM(__fcntl, fcntl)(b, F_SETFL, 0));
	set_time(b, SO_RCVTIMEO, 50);
	SAY("recv", recv(b, t, 1, 0));
	SAY("O_APPEND and junk", SYM(fcntl64, fcntl)(b, F_SETFL, O_APPEND | O_DIRECTORY));
	SAY("F_GETFL", fcntl(b, F_GETFL));
	SAY("O_DIRECT", fcntl(b, F_SETFL, O_DIRECT));
	SAY("F_GETFD", fcntl(b, F_GETFD));
	SAY("F_SETFD", fcntl(b, F_SETFD, FD_CLOEXEC));
	SAY("F_GETOWN", fcntl(b, F_GETOWN));
	SAY("F_GETSIG", fcntl(b, F_GETSIG));
	SAY("F_GETPIPE_SZ", fcntl(b, F_GETPIPE_SZ));
	SAY("F_GETLK", ({ struct flock k = { .l_type = F_RDLCK }; fcntl(b, F_GETLK, &k); }));
	SAY("F_ADD_SEALS", fcntl(b, F_ADD_SEALS, 0));
	SAY("unknown", fcntl(b, 9999, 0));
	SAY("bad fd", fcntl(-1, F_GETFL));
	SAY("bad fd", fcntl(999, F_SETFL, 0));
	alive("after", a, b);
}

SNIPPET(o_async, "fcntl ioctl")
{
	int on = 1;

	pair();
	handle(SIGIO, 0);
	SAY("F_SETOWN", fcntl(b, F_SETOWN, getpid()));
	SAY("O_ASYNC", fcntl(b, F_SETFL, O_ASYNC));
	send(a, "x", 1, 0);
	for (int i = 0; i < 2000 && !signals; i++)
		nap_us(1000);
	tell("SIGIO: %d", signals > 0);
	SAY("recv", recv(b, t, 10, 0));
	handle(SIGIO, 0);
	SAY("FIOASYNC", ioctl(a, FIOASYNC, &on));
	fcntl(a, F_SETOWN, getpid());
	send(b, "x", 1, 0);
	for (int i = 0; i < 2000 && !signals; i++)
		nap_us(1000);
	tell("SIGIO: %d", signals > 0);
	SAY("recv", recv(a, t, 10, 0));
	alive("after", b, a);
}

SNIPPET(zerocopy, "setsockopt send recvmsg")
{
	union { char c[256]; struct cmsghdr h; } u;
	struct msghdr m = { .msg_control = &u, .msg_controllen = sizeof(u) };
	struct sock_extended_err *e;

	pair();
	SAY("MSG_ZEROCOPY, not asked for", send(a, "x", 1, MSG_ZEROCOPY));
	SAY("SO_ZEROCOPY", set(a, SOL_SOCKET, SO_ZEROCOPY, 1));
	tell("now %d", get(a, SOL_SOCKET, SO_ZEROCOPY));
	fill(buf, 50000, 0);
	SAY("MSG_ZEROCOPY", send(a, buf, 50000, MSG_ZEROCOPY));
	SAY("first", recv(b, t, 1, 0));
	SAY("the rest", recv(b, buf + 100000, 50000, MSG_WAITALL));
	tell("bytes: %s", right(buf + 100000, 50000, 0));
	until(a, POLLERR);
	say_poll("bits", a);
	SAY("error queue", recvmsg(a, &m, MSG_ERRQUEUE));
	tell("flags %#x", (unsigned)m.msg_flags);
	e = (void *)CMSG_DATA(CMSG_FIRSTHDR(&m));
	tell("level %d type %d origin %d info %u data %u", u.h.cmsg_level, u.h.cmsg_type,
	     e->ee_origin, e->ee_info, e->ee_data);
	m.msg_controllen = sizeof(u);
	SAY("empty", recvmsg(a, &m, MSG_ERRQUEUE));
	alive("after", a, b);
}

SNIPPET(timestamps, "setsockopt recvmsg")
{
	union { char c[256]; struct cmsghdr h; } u;
	struct iovec v = { t, 5 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u,
			    .msg_controllen = sizeof(u) };

	pair();
	SAY("SO_TIMESTAMPNS", set(b, SOL_SOCKET, SO_TIMESTAMPNS, 1));
	/* the kernel begins to stamp when it gets round to it */
	for (int i = 0; i < 500; i++) {
		put(a, b, "stamp");
		m.msg_controllen = sizeof(u);
		if (recvmsg(b, &m, 0) != 5 || m.msg_controllen)
			break;
		nap_us(1000);
	}
	tell("flags %#x, control %d", (unsigned)m.msg_flags, m.msg_controllen > 0);
	SAY("TCP_INQ", set(b, IPPROTO_TCP, TCP_INQ, 1));
	put(a, b, "stamped");
	m.msg_controllen = sizeof(u);
	SAY("recvmsg", recvmsg(b, &m, 0));
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		if (h->cmsg_level == IPPROTO_TCP)
			tell("TCP_CM_INQ %d", *(int *)CMSG_DATA(h));
	SAY("the rest", recv(b, t, 10, 0));
	alive("after", b, a);
}

SNIPPET(peek_off, "setsockopt recv")
{
	pair();
	SAY("SO_PEEK_OFF", set(b, SOL_SOCKET, SO_PEEK_OFF, 2));
	tell("now %d", get(b, SOL_SOCKET, SO_PEEK_OFF));
	put(a, b, "abcdef");
	SAY("peek", recv(b, t, 2, MSG_PEEK));
	say_bytes("is", t, 2);
	SAY("recv", recv(b, t, 10, 0));
}

SNIPPET(tcp_repair, "setsockopt")
{
	pair();
	SAY("TCP_REPAIR on", set(a, IPPROTO_TCP, TCP_REPAIR, 1));
	SAY("TCP_REPAIR off, no probe", set(a, IPPROTO_TCP, TCP_REPAIR, -1));
	alive("after", a, b);
}

SNIPPET(tcp_ulp, "setsockopt")
{
	pair();
	SAY("no such", setsockopt(a, IPPROTO_TCP, TCP_ULP, "nosuch", 6));
	SAY("a filter that lets all pass",
	    ({ struct { uint16_t c; uint8_t jt, jf; uint32_t k; } f = { 6, 0, 0, 0xffffffff };
		struct { unsigned short n; void *p; } g = { 1, &f };
		setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &g, sizeof(g)); }));
	SAY("detach", set(a, SOL_SOCKET, SO_DETACH_FILTER, 0));
	SAY("TCP_ZEROCOPY_RECEIVE", ({
		    char z[64] = "";
		    socklen_t l = 40;
		    getsockopt(a, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, z, &l);
	    }));
	alive("after", a, b);
}
