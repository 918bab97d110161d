/*
 * recv.c - every way to receive: results, flags, vectors, refused input. Calls: recv __recv_chk
 * recvfrom __recvfrom_chk recvmsg recvmmsg read __read __read_chk readv preadv2 preadv64v2
 * LIBS: -ldl
 */
#include <limits.h>

#include "snip.h"

ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
ssize_t __read_chk(int, void *, size_t, size_t);

static char t[256];

/* The result of a call that reads into t, and the bytes. */
#define GOT(what, call) do { long n_ = SAY(what, call); if (n_ > 0) say_bytes("  bytes", t, \
	n_ < 200 ? n_ : 200); } while (0)

SNIPPET(recv_plain, "recv")
{
	pair();
	put(a, b, "hello world");
	GOT("5", recv(b, t, 5, 0));
	GOT("the rest", recv(b, t, 100, 0));
	GOT("no more", recv(b, t, 100, MSG_DONTWAIT));
	put(b, a, "back");
	GOT("other way", recv(a, t, 100, 0));
}

SNIPPET(recv_nothing, "recv read recvmsg readv")
{
	struct iovec v = { t, 0 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	pair();
	SAY("recv of nothing, none there", recv(b, t, 0, MSG_DONTWAIT));
	SAY("read of nothing, none there", read(b, t, 0));
	SAY("readv of nothing, none there", readv(b, &v, 1));
	SAY("recvmsg of nothing, none there", recvmsg(b, &m, MSG_DONTWAIT));
	put(a, b, "x");
	SAY("recv of nothing", recv(b, t, 0, 0));
	SAY("recv of nothing at NULL", recv(b, NULL, 0, 0));
	SAY("read of nothing", read(b, t, 0));
	SAY("recvmsg of nothing", recvmsg(b, &m, 0));
	GOT("the byte is still there", recv(b, t, 5, 0));
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	SAY("recv of nothing at the end", recv(b, t, 0, 0));
}

SNIPPET(recv_flags, "recv")
{
	static const int flags[] = { MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE, MSG_EOR, MSG_CONFIRM,
				     MSG_DONTROUTE, MSG_PROXY, MSG_WAITALL,
				     MSG_SYN, MSG_FIN, MSG_RST, MSG_BATCH, MSG_CMSG_CLOEXEC,
					     MSG_WAITFORONE, MSG_FASTOPEN };
	char what[32];

	pair();
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		put(a, b, "abc");
		snprintf(what, sizeof(what), "flag %#x", (unsigned)flags[i]);
		GOT(what, recv(b, t, 3, flags[i]));
	}
}

SNIPPET(recv_flags_everywhere, "recvfrom recvmsg recvmmsg")
{
	static const int flags[] = { MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE, MSG_EOR, MSG_CONFIRM,
				     MSG_DONTROUTE, MSG_PROXY, MSG_WAITALL, MSG_SYN, MSG_FIN,
				     MSG_RST, MSG_BATCH, MSG_CMSG_CLOEXEC, MSG_WAITFORONE,
					     MSG_FASTOPEN, MSG_PEEK, MSG_TRUNC, 0x100000, 1 << 30 };
	struct iovec v[2] = { { t, 1 }, { t + 1, 2 } };
	struct mmsghdr m[2] = { { .msg_hdr = { .msg_iov = v, .msg_iovlen = 2 } },
				{ .msg_hdr = { .msg_iov = v, .msg_iovlen = 2 } } };
	char what[32];

	pair();
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		put(a, b, "abcdefghijkl");
		snprintf(what, sizeof(what), "flag %#x", (unsigned)flags[i]);
		memset(t, '.', 4);
		GOT(what, recvfrom(b, t, 3, flags[i], NULL, NULL));
		memset(t, '.', 4);
		GOT(what, recvmsg(b, &m[0].msg_hdr, flags[i]));
		tell("flags %#x", (unsigned)m[0].msg_hdr.msg_flags);
		memset(t, '.', 4);
		SAY(what, recvmmsg(b, m, 2, flags[i], NULL));
		tell("lengths %u %u, '%.3s'", m[0].msg_len, m[1].msg_len, t);
		GOT("left", recv(b, t, sizeof(t), MSG_DONTWAIT));
	}
}

SNIPPET(recv_unmapped, "recv recvfrom recvmsg recvmmsg read readv")
{
	char *none = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec v = { none, 4 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	pair();
	put(a, b, "hello world");
	SAY("recv", recv(b, none, 100, 0));
	SAY("read", read(b, none, 1));
	SAY("recvfrom", recvfrom(b, none, 5000, 0, NULL, NULL));
	SAY("peek", recv(b, none, 3, MSG_PEEK));
	SAY("readv", readv(b, &v, 1));
	SAY("recvmsg", recvmsg(b, &m, 0));
	SAY("a message that is not there", recvmsg(b, (void *)none, 0));
	SAY("messages that are not there", recvmmsg(b, (void *)none, 2, MSG_DONTWAIT, NULL));
	SAY("chunks that are not there", readv(b, (void *)none, 2));
	m.msg_iov = (void *)none;
	SAY("a message's chunks", recvmsg(b, &m, 0));
	SAY("read only memory", recv(b, (void *)"constant", 3, 0));
	SAY("the kernel's memory", recv(b, (void *)0xffff800000000000, 10, 0));
	GOT("all is there", recv(b, t, 100, 0));
}

SNIPPET(recv_peek, "recv")
{
	pair();
	put(a, b, "hello world");
	GOT("peek 5", recv(b, t, 5, MSG_PEEK));
	GOT("peek 5 again", recv(b, t, 5, MSG_PEEK));
	GOT("peek all", recv(b, t, 100, MSG_PEEK | MSG_DONTWAIT));
	GOT("peek all, waiting", recv(b, t, 11, MSG_PEEK | MSG_WAITALL));
	GOT("take 6", recv(b, t, 6, 0));
	GOT("peek", recv(b, t, 100, MSG_PEEK));
	GOT("take", recv(b, t, 100, 0));
	GOT("peek nothing", recv(b, t, 100, MSG_PEEK | MSG_DONTWAIT));
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	GOT("peek at the end", recv(b, t, 100, MSG_PEEK));
}

static void second_part(void) { send(a, "second", 6, 0); }
static void third_and_end(void) { send(a, "third", 5, 0); shutdown(a, SHUT_WR); }
SNIPPET(recv_peek_waitall, "recv recvmsg")
{
	struct iovec v[2] = { { t, 6 }, { t + 6, 6 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	pair();
	put(a, b, "first ");
	GOT("what is there, not waiting", recv(b, t, 12, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
	when_blocked(second_part);
	GOT("both parts", recv(b, t, 12, MSG_PEEK | MSG_WAITALL));
	helper_done();
	GOT("they are there still", recv(b, t, 12, MSG_WAITALL));
	pair();
	put(a, b, "first ");
	when_blocked(second_part);
	SAY("by recvmsg", recvmsg(b, &m, MSG_PEEK | MSG_WAITALL));
	helper_done();
	say_bytes("  bytes", t, 12);
	GOT("they are there still", recv(b, t, 12, MSG_WAITALL));
	when_blocked(third_and_end);
	GOT("up to the end", recv(b, t, 12, MSG_PEEK | MSG_WAITALL));
	helper_done();
	GOT("it is there still", recv(b, t, 12, MSG_WAITALL));
}

/* Peeks again and again, with more and more there, which may lie on both sides of a switch of
 * paths. */
SNIPPET(recv_peek_grows, "recv")
{
	size_t n = 0;

	pair();
	fill(buf, 40000, 0);
	while (n < 20000) {
		send(a, buf + n, 400, 0);
		n += 400;
		arrive(b, (int)n);
		if (recv(b, buf + 100000, 50000, MSG_PEEK) != (ssize_t)n ||
		    strcmp(right(buf + 100000, (long)n, 0), "right"))
			tell("wrong at %zu", n);
		if (n % 4000 == 0)
			nap_us(random() % 1500);
	}
	gather("in the end", b, n, 0);
}

SNIPPET(recv_trunc, "recv recvmsg")
{
	struct iovec v = { t, 4 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	pair();
	put(a, b, "hello world and more");
	memset(t, '.', 10);
	GOT("MSG_TRUNC drops", recv(b, t, 6, MSG_TRUNC));
	GOT("what follows", recv(b, t, 5, 0));
	GOT("MSG_TRUNC | MSG_PEEK", recv(b, t, 4, MSG_TRUNC | MSG_PEEK));
	GOT("still there", recv(b, t, 4, 0));
	SAY("MSG_TRUNC at NULL", recv(b, NULL, 3, MSG_TRUNC));
	SAY("recvmsg", recvmsg(b, &m, MSG_TRUNC));
	tell("msg_flags %#x", (unsigned)m.msg_flags);
	SAY("left", recv(b, t, 100, MSG_DONTWAIT));
}

static void send_two_parts(void) { send(a, "second", 6, 0); }
static void close_the_end(void) { shutdown(a, SHUT_WR); }
SNIPPET(recv_waitall, "recv")
{
	pair();
	put(a, b, "first ");
	when_blocked(send_two_parts);
	GOT("two parts", recv(b, t, 12, MSG_WAITALL));
	helper_done();
	put(a, b, "abc");
	GOT("with MSG_DONTWAIT", recv(b, t, 10, MSG_WAITALL | MSG_DONTWAIT));
	put(a, b, "cut short");
	when_blocked(close_the_end);
	GOT("by the end", recv(b, t, 100, MSG_WAITALL));
	helper_done();
	GOT("and then", recv(b, t, 100, MSG_WAITALL));
}

static void send_lots(void)
{
	static char own[3 << 20];

	fill(own, sizeof(own), 0);
	for (size_t at = 0; at < sizeof(own); ) {
		ssize_t r = send(a, own + at, sizeof(own) - at, 0);

		if (r <= 0)
			break;
		at += (size_t)r;
	}
}
SNIPPET(recv_waitall_large, "recv")
{
	pair();
	when_blocked(send_lots);
	SAY("3 MiB", recv(b, buf, 3 << 20, MSG_WAITALL));
	tell("bytes: %s", right(buf, 3 << 20, 0));
	helper_done();
}

static void two_signals(void)
{
	syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1);
	until_sleeps(main_tid);
	send(a, "more..", 6, 0);
}
static void one_signal(void) { syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1); }
SNIPPET(recv_waitall_signal, "recv")
{
	pair();
	handle(SIGUSR1, SA_RESTART);
	when_blocked(two_signals);
	GOT("nothing yet, SA_RESTART", recv(b, t, 6, MSG_WAITALL));
	helper_done();
	tell("signals %d", signals);
	put(a, b, "part");
	when_blocked(one_signal);
	GOT("a part, SA_RESTART", recv(b, t, 100, MSG_WAITALL));
	helper_done();
	tell("signals %d", signals);
	handle(SIGUSR1, 0);
	when_blocked(one_signal);
	GOT("nothing yet", recv(b, t, 100, MSG_WAITALL));
	helper_done();
	put(a, b, "part");
	when_blocked(one_signal);
	GOT("a part", recv(b, t, 100, MSG_WAITALL));
	helper_done();
}

SNIPPET(recv_refused, "recv recvfrom")
{
	pair();
	put(a, b, "abc");
	SAY("NULL", recv(b, NULL, 10, 0));
	SAY("bad fd", recv(-1, t, 1, 0));
	SAY("enormous fd", recv(INT_MAX, t, 1, 0));
	SAY("closed fd", recv(999, t, 1, 0));
	SAY("a file", recv(open("/dev/null", O_RDWR), t, 1, 0));
	SAY("MSG_OOB without any", recv(b, t, 1, MSG_OOB));
	SAY("MSG_ERRQUEUE, empty", recv(b, t, 1, MSG_ERRQUEUE));
	GOT("enormous length", recv(b, t, (size_t)-1, 0));
	GOT("nothing lost", recv(b, t, 10, MSG_DONTWAIT));
}

SNIPPET(recv_null_empty, "recv read")
{
	/* the kernel looks for bytes first and for a place to put them then */
	pair();
	nonblocking(b);
	SAY("recv", recv(b, NULL, 5, 0));
	SAY("read", read(b, NULL, 5));
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	SAY("recv at the end", recv(b, NULL, 5, 0));
}

SNIPPET(recv_listener, "recv read")
{
	struct sockaddr_in at;
	int l = listener_at(&at);

	SAY("recv", recv(l, t, 1, 0));
	SAY("read", read(l, t, 1));
	SAY("send", send(l, t, 1, MSG_NOSIGNAL));
	say_poll("bits", l);
}

SNIPPET(recv_chk, "__recv_chk __recvfrom_chk __read_chk")
{
	pair();
	put(a, b, "hello world, again");
	GOT("__recv_chk", __recv_chk(b, t, 5, sizeof(t), 0));
	GOT("__recvfrom_chk", __recvfrom_chk(b, t, 5, sizeof(t), 0, NULL, NULL));
	GOT("__read_chk", __read_chk(b, t, 100, sizeof(t)));
	SAY("bad fd", __recv_chk(-1, t, 5, sizeof(t), 0));
}

static void overflows(ssize_t (*fn)(void), const char *what)
{
	pid_t p;

	fflush(stdout);
	p = fork();
	if (!p) {
		close(2);	/* libc's complaint */
		fn();
		_exit(0);
	}
	say_end(what, p);
}
static ssize_t too_much_recv(void) { return __recv_chk(b, t, sizeof(t) + 1, sizeof(t), 0); }
static ssize_t too_much_recvfrom(void)
{
	return __recvfrom_chk(b, t, sizeof(t) + 1, sizeof(t), 0, NULL, NULL);
}
static ssize_t too_much_read(void) { return __read_chk(b, t, sizeof(t) + 1, sizeof(t)); }
SNIPPET(recv_chk_overflow, "__recv_chk __recvfrom_chk __read_chk")
{
	pair();
	put(a, b, "hello");
	overflows(too_much_recv, "__recv_chk");
	overflows(too_much_recvfrom, "__recvfrom_chk");
	overflows(too_much_read, "__read_chk");
}

SNIPPET(recvfrom_address, "recvfrom")
{
	struct sockaddr_storage sa;
	socklen_t l = sizeof(sa);

	pair();
	put(a, b, "abcdefgh");
	GOT("no address wanted", recvfrom(b, t, 1, 0, NULL, NULL));
	memset(&sa, 0x55, sizeof(sa));
	GOT("address wanted", recvfrom(b, t, 1, 0, (void *)&sa, &l));
	tell("length %u, family %#x", l, sa.ss_family);
	GOT("a length without place", recvfrom(b, t, 1, 0, NULL, &l));
	tell("length %u", l);
	l = (socklen_t)-1;
	GOT("negative length", recvfrom(b, t, 1, 0, (void *)&sa, &l));
	GOT("no length", recvfrom(b, t, 1, 0, (void *)&sa, NULL));
	l = 0;
	GOT("zero length", recvfrom(b, t, 1, 0, (void *)&sa, &l));
	GOT("left", recvfrom(b, t, 10, 0, NULL, NULL));
}

SNIPPET(recvmsg_vectors, "recvmsg")
{
	char t1[4], t2[8], ctl[64];
	struct sockaddr_storage sa;
	struct iovec v[] = { { t1, 4 }, { NULL, 0 }, { t2, 8 } };
	struct msghdr m = { &sa, sizeof(sa), v, 3, ctl, sizeof(ctl), -1 };

	pair();
	put(a, b, "hello world");
	SAY("three chunks", recvmsg(b, &m, 0));
	say_bytes("first", t1, 4);
	say_bytes("last", t2, 7);
	tell("namelen %u controllen %zu flags %#x", m.msg_namelen, m.msg_controllen,
	     (unsigned)m.msg_flags);
	put(a, b, "abc");
	m = (struct msghdr){ .msg_iov = v, .msg_iovlen = 3 };
	SAY("MSG_PEEK", recvmsg(b, &m, MSG_PEEK));
	SAY("MSG_CMSG_CLOEXEC", recvmsg(b, &m, MSG_CMSG_CLOEXEC));
	tell("flags %#x", (unsigned)m.msg_flags);
	SAY("MSG_DONTWAIT, empty", recvmsg(b, &m, MSG_DONTWAIT));
	SAY("NULL", recvmsg(b, NULL, 0));
	m.msg_iovlen = 1025;
	SAY("too many chunks", recvmsg(b, &m, 0));
	m.msg_iovlen = 3;
	v[2].iov_len = (size_t)-1;
	SAY("negative chunk", recvmsg(b, &m, 0));
	m.msg_namelen = (socklen_t)-1;
	v[2].iov_len = 8;
	m.msg_name = &sa;
	SAY("negative name", recvmsg(b, &m, MSG_DONTWAIT));
	m.msg_name = NULL;
	m.msg_iovlen = 0;
	put(a, b, "x");
	SAY("no chunks", recvmsg(b, &m, MSG_DONTWAIT));
	SAY("bad fd", recvmsg(-1, &m, 0));
}

SNIPPET(recvmmsg_many, "recvmmsg")
{
	char p[4][8];
	struct iovec v[4];
	struct mmsghdr m[4] = { 0 };
	struct timespec zero = { 0, 0 }, bad = { 0, 2000000000 }, minus = { -1, 0 };

	pair();
	for (int i = 0; i < 4; i++) {
		v[i] = (struct iovec){ p[i], 3 };
		m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1 };
	}
	put(a, b, "onetwothr");
	SAY("what is there", recvmmsg(b, m, 4, MSG_DONTWAIT, NULL));
	tell("lengths %u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
	say_bytes("second", p[1], 3);
	put(a, b, "onetwo");
	SAY("MSG_WAITFORONE", recvmmsg(b, m, 4, MSG_WAITFORONE, NULL));
	SAY("empty", recvmmsg(b, m, 4, MSG_DONTWAIT, NULL));
	put(a, b, "onetwo");
	SAY("no time", recvmmsg(b, m, 4, 0, &zero));
	SAY("bad time", recvmmsg(b, m, 4, 0, &bad));
	SAY("negative time", recvmmsg(b, m, 4, 0, &minus));
	SAY("none", recvmmsg(b, m, 0, 0, NULL));
	SAY("NULL", recvmmsg(b, NULL, 2, MSG_DONTWAIT, NULL));
	SAY("bad fd", recvmmsg(-1, m, 2, 0, NULL));
	GOT("left", recv(b, t, 100, MSG_DONTWAIT));
	put(a, b, "ab");
	m[1].msg_hdr.msg_iovlen = 5000;
	SAY("the second is bad", recvmmsg(b, m, 4, 0, NULL));
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	m[1].msg_hdr.msg_iovlen = 1;
	SAY("at the end", recvmmsg(b, m, 4, 0, NULL));
	tell("lengths %u %u", m[0].msg_len, m[3].msg_len);
}

SNIPPET(read_plain, "read __read")
{
	pair();
	put(a, b, "hello world");
	GOT("read", read(b, t, 6));
	GOT("__read", SYM(__read, read)(b, t, 6));
	put(a, b, "x");
	SAY("NULL", read(b, NULL, 5));
	SAY("negative length", read(b, t, (size_t)-1));
	SAY("bad fd", read(-1, t, 1));
	SAY("write only end of a pipe", ({
		    int p[2];
		    if (pipe(p))
			    die("pipe");
		    errno = UNTOUCHED;
		    read(p[1], t, 1);
	    }));
}

SNIPPET(readv_vectors, "readv")
{
	char t1[3], t2[10];
	struct iovec v[] = { { t1, 3 }, { NULL, 0 }, { t2, 10 } };

	pair();
	put(a, b, "hello world");
	SAY("three", readv(b, v, 3));
	say_bytes("first", t1, 3);
	say_bytes("last", t2, 8);
	nonblocking(b);
	SAY("empty", readv(b, v, 3));
	SAY("none", readv(b, v, 0));
	SAY("none at NULL", readv(b, NULL, 0));
	SAY("NULL", readv(b, NULL, 2));
	SAY("negative", readv(b, v, -1));
	SAY("too many", readv(b, v, IOV_MAX + 1));
	v[2].iov_len = (size_t)-1;
	SAY("negative chunk", readv(b, v, 3));
	SAY("bad fd", readv(-1, v, 1));
}

SNIPPET(preadv2_stream, "preadv2 preadv64v2")
{
	struct iovec v = { t, 5 };

	pair();
	put(a, b, "hello world and more");
	GOT("offset -1", preadv2(b, &v, 1, -1, 0));
	GOT("preadv64v2", preadv64v2(b, &v, 1, -1, 0));
	GOT("RWF_NOWAIT", preadv2(b, &v, 1, -1, RWF_NOWAIT));
	GOT("offset 0", preadv2(b, &v, 1, 0, 0));
	GOT("offset -2", preadv2(b, &v, 1, -2, 0));
	GOT("unknown flag", preadv2(b, &v, 1, -1, 1 << 20));
	GOT("none", preadv2(b, &v, 0, -1, 0));
	GOT("the rest", preadv2(b, &v, 1, -1, 0));
	SAY("bad fd", preadv2(-1, &v, 1, -1, 0));
}

SNIPPET(recv_no_short_read, "read recv")
{
	/* what is there is given in one go, wherever it lies */
	pair();
	for (int i = 0; i < 30; i++) {
		size_t n = 1000 + (size_t)i * 777;

		fill(buf, n, 0);
		send(a, buf, n / 3, 0);
		nap_us(random() % 1000);
		send(a, buf + n / 3, n - n / 3, 0);
		arrive(b, (int)n);
		memset(buf, 0, n);
		if (read(b, buf, sizeof(buf)) != (ssize_t)n ||
		    strcmp(right(buf, (long)n, 0), "right"))
			tell("round %d is short or wrong", i);
	}
	tell("done");
}

SNIPPET(recv_oob, "send recv sendto sendmsg recvmsg")
{
	struct iovec v = { "!", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	pair();
	put(a, b, "before");
	SAY("MSG_OOB", send(a, "!", 1, MSG_OOB));
	until(b, POLLPRI);
	say_poll("bits", b);
	SAY("in band, up to the mark", recv(b, t, 100, 0));
	GOT("out of band", recv(b, t, 10, MSG_OOB));
	SAY("again", recv(b, t, 10, MSG_OOB));
	send(a, "after", 5, 0);
	until(b, POLLIN);
	GOT("after", recv(b, t, 100, 0));
	SAY("sendmsg MSG_OOB", sendmsg(a, &m, MSG_OOB));
	until(b, POLLPRI);
	v.iov_base = t;
	GOT("recvmsg MSG_OOB", recvmsg(b, &m, MSG_OOB));
	tell("flags %#x", (unsigned)m.msg_flags);
	SAY("sendto MSG_OOB", sendto(a, "?", 1, MSG_OOB, NULL, 0));
	until(b, POLLPRI);
	GOT("recvfrom MSG_OOB", recvfrom(b, t, 10, MSG_OOB | MSG_PEEK, NULL, NULL));
	GOT("recvfrom MSG_OOB", recvfrom(b, t, 10, MSG_OOB, NULL, NULL));
	alive("after all", a, b);
}

SNIPPET(recv_oob_inline, "setsockopt recv sockatmark")
{
	int one = 1;

	pair();
	SAY("SO_OOBINLINE", setsockopt(b, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one)));
	put(a, b, "abc");
	SAY("not at the mark", ({ extern int sockatmark(int); sockatmark(b); }));
	SAY("MSG_OOB", send(a, "!", 1, MSG_OOB));
	put(a, b, "defg");
	GOT("up to it", recv(b, t, 100, 0));
	SAY("at the mark", sockatmark(b));
	GOT("it", recv(b, t, 100, 0));
}

SNIPPET(recv_oob_waitall, "setsockopt recv sockatmark")
{
	int one = 1;

	pair();
	setsockopt(b, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	SAY("MSG_OOB", send(a, "!", 1, MSG_OOB));	/* on TCP from here on */
	GOT("it", recv(b, t, 1, MSG_WAITALL));
	put(a, b, "abc");
	SAY("MSG_OOB", send(a, "?", 1, MSG_OOB));
	put(a, b, "defg");
	GOT("up to it, MSG_WAITALL", recv(b, t, 8, MSG_WAITALL));
	SAY("at the mark", sockatmark(b));
	GOT("the rest", recv(b, t, 5, MSG_WAITALL));
}

static void sends_oob(void) { send(b, "!", 1, MSG_OOB); }
SNIPPET(recv_sigurg, "fcntl recv")
{
	pair();
	handle(SIGURG, 0);
	SAY("F_SETOWN", fcntl(a, F_SETOWN, getpid()));
	sends_oob();
	until(a, POLLPRI);
	tell("SIGURG %d", signals);
	GOT("it", recv(a, t, 10, MSG_OOB));
}

/* What recvmsg tells beside the bytes, into `room` bytes of control. */
static void inq(const char *what, size_t n, size_t room)
{
	char control[64] = { 0 };
	struct iovec v = { t, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room ? control : NULL,
			    .msg_controllen = room };
	struct cmsghdr *c;
	int left = -1;

	SAY(what, recvmsg(b, &m, MSG_DONTWAIT));
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_len == CMSG_LEN(sizeof(left)))
		memcpy(&left, CMSG_DATA(c), sizeof(left));
	tell("control %zu: %s, %d left, flags %#x", m.msg_controllen,
	     c ? c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ ? "TCP_CM_INQ"
									    : "another"
	       : "none",
	     left, (unsigned)m.msg_flags);
}

SNIPPET(recv_inq, "setsockopt getsockopt recvmsg")
{
	int one = 1, two = 2, on = -1;
	socklen_t len = sizeof(on);

	pair();
	put(a, b, "0123456789");
	inq("before", 2, 64);
	SAY("TCP_INQ 2", setsockopt(b, IPPROTO_TCP, TCP_INQ, &two, sizeof(two)));
	SAY("TCP_INQ", setsockopt(b, IPPROTO_TCP, TCP_INQ, &one, sizeof(one)));
	SAY("is it on", getsockopt(b, IPPROTO_TCP, TCP_INQ, &on, &len));
	tell("%d", on);
	inq("some", 2, 64);
	inq("no room", 1, 0);
	inq("little room", 1, 18);
	inq("no more than needed", 1, CMSG_LEN(sizeof(int)));
	inq("the rest", 10, 64);
	inq("nothing there", 10, 64);
	cut_wait(b);
	send(a, "abcdef", 6, 0);
	arrive(b, 6);
	inq("some on the path", 4, 64);
	shutdown(a, SHUT_WR);
	until(b, POLLRDHUP);
	inq("all but the end", 10, 64);
	inq("the end", 10, 64);
	inq("the end again", 10, 64);
}
