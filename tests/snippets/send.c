/*
 * send.c - every way to send: results, flags, vectors, refused input. Calls: send __send sendto
 * sendmsg sendmmsg write __write writev pwritev2 pwritev64v2 sendfile sendfile64
 * LIBS: -ldl
 */
#include <limits.h>
#include <sys/sendfile.h>

#include "snip.h"

static void say_got(const char *what, int fd, int n)
{
	char t[256];
	ssize_t r;

	arrive(fd, n);
	r = recv(fd, t, sizeof(t), MSG_DONTWAIT);
	say_bytes(what, t, r);
}

SNIPPET(send_plain, "send")
{
	pair();
	SAY("5", send(a, "hello", 5, 0));
	say_got("got", b, 5);
	SAY("back", send(b, "world!", 6, 0));
	say_got("got", a, 6);
	SAY("nothing", send(a, "", 0, 0));
	SAY("nothing at NULL", send(a, NULL, 0, 0));
}

SNIPPET(send_alias, "__send")
{
	pair();
	SAY("__send", SYM(__send, send)(a, "under", 5, 0));
	say_got("got", b, 5);
	SAY("a bad fd", SYM(__send, send)(-1, "x", 1, 0));
}

SNIPPET(send_flags, "send")
{
	static const int flags[] = { MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE, MSG_EOR, MSG_CONFIRM,
				     MSG_DONTROUTE, MSG_PROXY, MSG_WAITALL,
				     MSG_PEEK, MSG_TRUNC, MSG_ERRQUEUE, MSG_SYN, MSG_FIN, MSG_RST,
					     MSG_BATCH, MSG_CMSG_CLOEXEC };
	char t[64], what[32];

	pair();
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		snprintf(what, sizeof(what), "flag %#x", (unsigned)flags[i]);
		SAY(what, send(a, "x", 1, flags[i] | MSG_NOSIGNAL));
	}
	SAY("the last one", send(a, "y", 1, 0));	/* pushes what MSG_MORE held */
	arrive(b, 17);
	SAY("all", recv(b, t, sizeof(t), 0));
	say_bytes("they are", t, 17);
}

SNIPPET(send_flags_everywhere, "sendto sendmsg sendmmsg")
{
	static const int flags[] = { MSG_DONTWAIT, MSG_MORE, MSG_EOR, MSG_CONFIRM, MSG_DONTROUTE,
				     MSG_PROXY, MSG_WAITALL, MSG_PEEK, MSG_TRUNC,
				     MSG_ERRQUEUE, MSG_SYN, MSG_FIN, MSG_RST, MSG_BATCH,
					     MSG_CMSG_CLOEXEC, MSG_WAITFORONE, 0x100000, 1 << 30 };
	struct iovec v[2] = { { "m", 1 }, { "sg", 2 } };
	struct mmsghdr m[2] = { { .msg_hdr = { .msg_iov = v, .msg_iovlen = 2 } },
				{ .msg_hdr = { .msg_iov = v, .msg_iovlen = 2 } } };
	char t[256], what[32];
	int n = 0;

	pair();
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		snprintf(what, sizeof(what), "flag %#x", (unsigned)flags[i]);
		SAY(what, sendto(a, "to", 2, flags[i] | MSG_NOSIGNAL, NULL, 0));
		SAY(what, sendmsg(a, &m[0].msg_hdr, flags[i] | MSG_NOSIGNAL));
		SAY(what, sendmmsg(a, m, 2, flags[i] | MSG_NOSIGNAL));
		tell("lengths %u %u", m[0].msg_len, m[1].msg_len);
		n += 11;
	}
	SAY("the last one", send(a, "y", 1, 0));
	arrive(b, n + 1);
	SAY("all", recv(b, t, sizeof(t), 0));
	say_bytes("they are", t, n + 1);
}

/* Pages that were never there: the kernel says EFAULT, and what was good before goes. */
static char *hole(void)
{
	char *p = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p + 4096;
}
SNIPPET(send_unmapped, "send sendto sendmsg sendmmsg write writev")
{
	char *none = hole();
	struct iovec v[2] = { { "good", 4 }, { none, 4 } };
	struct msghdr m = { .msg_iov = v + 1, .msg_iovlen = 1 };

	pair();
	SAY("send", send(a, none, 100, 0));
	SAY("write", write(a, none, 1));
	SAY("sendto", sendto(a, none, 5000, 0, NULL, 0));
	SAY("writev", writev(a, v + 1, 1));
	SAY("sendmsg", sendmsg(a, &m, 0));
	SAY("a message that is not there", sendmsg(a, (void *)none, 0));
	SAY("messages that are not there", sendmmsg(a, (void *)none, 2, 0));
	SAY("chunks that are not there", writev(a, (void *)none, 2));
	m.msg_iov = (void *)none;
	SAY("a message's chunks", sendmsg(a, &m, 0));
	SAY("the kernel's memory", send(a, (void *)0xffff800000000000, 10, 0));
	SAY("still nothing sent", recv(b, buf, 10, MSG_DONTWAIT));
	alive("after all", a, b);
}

SNIPPET(send_more, "send")
{
	pair();
	SAY("MSG_MORE", send(a, "he", 2, MSG_MORE));
	SAY("MSG_MORE", send(a, "ll", 2, MSG_MORE));
	SAY("last", send(a, "o", 1, 0));
	say_got("got", b, 5);
	SAY("MSG_MORE alone", send(a, "x", 1, MSG_MORE));
	say_got("comes after its time", b, 1);
}

SNIPPET(send_full, "send")
{
	size_t n = 0;
	int bits;
	ssize_t r;

	pair();
	nonblocking(a);
	fill(buf, sizeof(buf), 0);
	/* What is taken may depend on the path; that it ends does not. TCP alone takes more
	 * late: once acknowledgements come that were held back for 40 ms, and again with the
	 * first probe of a shut window, 200 ms after that. */
	for (uint64_t last = now_us(); now_us() - last < 500000; ) {
		r = send(a, buf, 65536, 0);
		if (r > 0) {
			n += (size_t)r;
			last = now_us();
		} else {
			nap_us(1000);
		}
	}
	tell("full: %s, %s", strerrorname_np(errno), n > 100000 ? "many bytes" : "few");
	errno = UNTOUCHED;
	r = send(a, "x", 1, MSG_DONTWAIT);
	if (r == 1 && jitter) {	/* the path that it has been switched to had room */
		n++;
		r = -1;
		errno = EAGAIN;
	}
	SAYV("MSG_DONTWAIT", r);
	bits = bits_now(a, POLLOUT);
	/* so it has, and says so rightly */
	if (bits && jitter && send(a, "x", 1, MSG_DONTWAIT) == 1) {
		n++;
		bits = 0;
	}
	tell("writable: %s", poll_bits(bits));
	while (n) {
		r = recv(b, buf, n < sizeof(buf) ? n : sizeof(buf), 0);
		if (r <= 0)
			die("recv: %s, %zu left", r ? strerrorname_np(errno) : "end", n);
		n -= (size_t)r;
	}
	/* A switch of paths between the two calls, and a machine that is too busy for it to end
	 * in time: then it says so again. */
	do {
		until(a, POLLOUT);
		errno = UNTOUCHED;
		r = send(a, "x", 1, 0);
	} while (jitter && r < 0 && errno == EAGAIN);
	SAYV("room again", r);
	SAY("its byte", recv(b, buf, 10, 0));
}

static void reads_all(void) { gather("reader", b, 3 << 20, 0); }
SNIPPET(send_large, "send")
{
	char *own = malloc(3 << 20);
	ssize_t r;

	pair();
	fill(own, 3 << 20, 0);
	when_blocked(reads_all);
	r = send(a, own, 3 << 20, 0);
	helper_done();
	SAY("3 MiB", r);
}

SNIPPET(send_refused, "send")
{
	pair();
	SAY("NULL", send(a, NULL, 10, 0));
	SAY("bad fd", send(-1, "x", 1, 0));
	SAY("enormous fd", send(INT_MAX, "x", 1, 0));
	SAY("closed fd", send(999, "x", 1, 0));
	SAY("a pipe", ({ int p[2]; if (pipe(p)) die("pipe"); send(p[1], "x", 1, 0); }));
	SAY("a file", send(open("/dev/null", O_RDWR), "x", 1, 0));
}

SNIPPET(send_unconnected, "send sendto write")
{
	int s = socket(AF_INET, SOCK_STREAM, 0);

	SAY("send", send(s, "x", 1, MSG_NOSIGNAL));
	SAY("write after SIGPIPE is ignored",
	    (signal(SIGPIPE, SIG_IGN), errno = UNTOUCHED, write(s, "x", 1)));
	SAY("sendto", sendto(s, "x", 1, MSG_NOSIGNAL, NULL, 0));
	SAY("recv", recv(s, buf, 1, 0));
	say_so_error("after", s);
	say_poll("bits", s);
}

SNIPPET(sendto_address, "sendto")
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(9),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char junk[300] = "";

	pair();
	SAY("no address", sendto(a, "a", 1, 0, NULL, 0));
	SAY("another's address", sendto(a, "b", 1, 0, (void *)&sa, sizeof(sa)));
	SAY("short address", sendto(a, "c", 1, 0, (void *)&sa, 1));
	SAY("zero length", sendto(a, "d", 1, 0, (void *)&sa, 0));
	SAY("length without address", sendto(a, "e", 1, 0, NULL, 16));
	SAY("too long", sendto(a, "f", 1, 0, (void *)junk, 300));
	SAY("negative", sendto(a, "g", 1, 0, (void *)&sa, (socklen_t)-1));
	SAY("fast open", sendto(a, "h", 1, MSG_FASTOPEN, (void *)&sa, sizeof(sa)));
	say_got("got", b, 5);
}

SNIPPET(sendmsg_vectors, "sendmsg")
{
	struct iovec v[] = { { "one ", 4 }, { NULL, 0 }, { "two ", 4 }, { "", 0 }, { "three", 5 } };
	struct sockaddr_in sa = { .sin_family = AF_INET };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 5 };

	pair();
	SAY("five chunks", sendmsg(a, &m, 0));
	say_got("got", b, 13);
	m.msg_iovlen = 0;
	SAY("no chunks", sendmsg(a, &m, 0));
	m = (struct msghdr){ 0 };
	SAY("nothing at all", sendmsg(a, &m, 0));
	m.msg_iov = v;
	m.msg_iovlen = 1;
	m.msg_name = &sa;
	m.msg_namelen = sizeof(sa);
	SAY("with a name", sendmsg(a, &m, 0));
	m.msg_namelen = (socklen_t)-5;
	SAY("negative name", sendmsg(a, &m, 0));
	m.msg_namelen = 5000;
	SAY("enormous name", sendmsg(a, &m, 0));
	m.msg_name = NULL;
	m.msg_flags = -1;
	SAY("junk in msg_flags", sendmsg(a, &m, 0));
	m.msg_iovlen = 1025;
	SAY("too many chunks", sendmsg(a, &m, 0));
	m.msg_iovlen = (size_t)-1;
	SAY("absurdly many", sendmsg(a, &m, 0));
	m.msg_iovlen = 1;
	v[0].iov_len = (size_t)-1;
	SAY("negative chunk", sendmsg(a, &m, 0));
	SAY("NULL", sendmsg(a, NULL, 0));
	say_got("in the end", b, 12);
}

SNIPPET(sendmsg_1024, "sendmsg recvmsg")
{
	static struct iovec v[1024], w[1024];
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 1024 }, r = { .msg_iov = w,
		.msg_iovlen = 1024 };
	static char to[8192];

	pair();
	fill(buf, 8192, 0);
	for (int i = 0, at = 0; i < 1024; at += i % 16, i++) {
		v[i] = (struct iovec){ buf + at, (size_t)(i % 16) };
		w[i] = (struct iovec){ to + at, (size_t)(i % 16) };
	}
	SAY("1024 chunks", sendmsg(a, &m, 0));
	arrive(b, 7680);
	SAY("into 1024 chunks", recvmsg(b, &r, 0));
	tell("bytes: %s", right(to, 7680, 0));
}

SNIPPET(sendmsg_control, "sendmsg")
{
	union { char c[CMSG_SPACE(sizeof(int))]; struct cmsghdr h; } u = { 0 };
	struct iovec v = { "x", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u,
			    .msg_controllen = sizeof(u) };

	pair();
	u.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS };
	SAY("SCM_RIGHTS on TCP", sendmsg(a, &m, 0));
	u.h.cmsg_type = 9999;
	SAY("unknown type", sendmsg(a, &m, 0));
	u.h.cmsg_level = IPPROTO_IP;
	SAY("another level", sendmsg(a, &m, 0));
	u.h.cmsg_len = 3;
	SAY("too short", sendmsg(a, &m, 0));
	m.msg_controllen = 5;
	SAY("no whole header", sendmsg(a, &m, 0));
	m.msg_control = NULL;
	SAY("a length without control", sendmsg(a, &m, 0));
	say_got("got", b, 1);
	alive("after all", a, b);
}

SNIPPET(sendmmsg_many, "sendmmsg")
{
	struct iovec v[4] = { { "one", 3 }, { "two", 3 }, { "", 0 }, { "four", 4 } };
	struct mmsghdr m[4] = { 0 };

	pair();
	for (int i = 0; i < 4; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1 };
	SAY("four", sendmmsg(a, m, 4, 0));
	tell("lengths %u %u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len);
	say_got("got", b, 10);
	SAY("none", sendmmsg(a, m, 0, 0));
	m[1].msg_hdr.msg_iovlen = 2000;
	SAY("the second is bad", sendmmsg(a, m, 4, 0));
	m[0].msg_hdr.msg_iovlen = 2000;
	SAY("the first is bad", sendmmsg(a, m, 4, 0));
	SAY("NULL", sendmmsg(a, NULL, 2, 0));
	SAY("NULL, none", sendmmsg(a, NULL, 0, 0));
	SAY("bad fd", sendmmsg(-1, m, 1, 0));
	say_got("got", b, 3);
}

SNIPPET(sendmmsg_lots, "sendmmsg recvmmsg")
{
	static struct iovec v[2000];
	static struct mmsghdr m[2000];

	pair();
	for (int i = 0; i < 2000; i++) {
		v[i] = (struct iovec){ "z", 1 };
		m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1 };
	}
	SAY("2000", sendmmsg(a, m, 2000, 0));
	tell("msg_len %u %u %u", m[0].msg_len, m[1023].msg_len, m[1024].msg_len);
	arrive(b, 1024);
	SAY("recv", recv(b, buf, 4000, 0));
}

SNIPPET(write_plain, "write __write")
{
	pair();
	SAY("write", write(a, "hello", 5));
	say_got("got", b, 5);
	SAY("__write", SYM(__write, write)(a, "again", 5));
	say_got("got", b, 5);
	SAY("nothing", write(a, "", 0));
	SAY("nothing at NULL", write(a, NULL, 0));
	SAY("NULL", write(a, NULL, 5));
	SAY("negative", write(a, "x", (size_t)-1));
	SAY("bad fd", write(-1, "x", 1));
}

SNIPPET(writev_vectors, "writev")
{
	struct iovec v[] = { { "one ", 4 }, { NULL, 0 }, { "two", 3 } };

	pair();
	SAY("three", writev(a, v, 3));
	say_got("got", b, 7);
	SAY("none", writev(a, v, 0));
	SAY("none at NULL", writev(a, NULL, 0));
	SAY("NULL", writev(a, NULL, 2));
	SAY("negative", writev(a, v, -1));
	SAY("too many", writev(a, v, IOV_MAX + 1));
	SAY("one empty", writev(a, v + 1, 1));
	v[1] = (struct iovec){ "x", (size_t)-1 };
	SAY("negative chunk", writev(a, v, 3));
	v[1] = (struct iovec){ NULL, 5 };
	SAY("a NULL chunk after a good one", writev(a, v, 2));
	SAY("bad fd", writev(-1, v, 1));
}

SNIPPET(pwritev2_stream, "pwritev2 pwritev64v2")
{
	struct iovec v[] = { { "one ", 4 }, { "two", 3 } };

	pair();
	SAY("offset -1", pwritev2(a, v, 2, -1, 0));
	say_got("got", b, 7);
	SAY("offset 0", pwritev2(a, v, 2, 0, 0));
	SAY("offset -2", pwritev2(a, v, 2, -2, 0));
	SAY("pwritev64v2", pwritev64v2(a, v, 1, -1, 0));
	SAY("RWF_NOWAIT", pwritev2(a, v, 1, -1, RWF_NOWAIT));
	SAY("RWF_HIPRI", pwritev2(a, v, 1, -1, RWF_HIPRI));
	SAY("RWF_APPEND", pwritev2(a, v, 1, -1, RWF_APPEND));
	SAY("unknown flag", pwritev2(a, v, 1, -1, 1 << 20));
	SAY("none", pwritev2(a, v, 0, -1, 0));
	SAY("bad fd", pwritev2(-1, v, 1, -1, 0));
	tell("in the end: %d", ({ nap_us(20000); int n = 0; ioctl(b, FIONREAD, &n); n; }));
}

static int a_file(size_t n)
{
	char name[] = "/tmp/snippet.XXXXXX";
	int f = mkstemp(name);

	unlink(name);
	fill(buf, n, 0);
	if (f < 0 || pwrite(f, buf, n, 0) != (ssize_t)n)
		die("no file");
	return f;
}

SNIPPET(sendfile_file, "sendfile")
{
	int f = a_file(50000);
	off_t off = 100;

	pair();
	SAY("from an offset", sendfile(a, f, &off, 1000));
	tell("offset %ld, file at %ld", (long)off, (long)lseek(f, 0, SEEK_CUR));
	gather("got", b, 1000, 100);
	SAY("from the file's place", sendfile(a, f, NULL, 500));
	tell("file at %ld", (long)lseek(f, 0, SEEK_CUR));
	gather("got", b, 500, 0);
	SAY("more than there is", sendfile(a, f, NULL, 1 << 20));
	tell("file at %ld", (long)lseek(f, 0, SEEK_CUR));
	gather("got", b, 49500, 500);
	SAY("at the end", sendfile(a, f, NULL, 10));
	off = 60000;
	SAY("beyond the end", sendfile(a, f, &off, 10));
	off = 0;
	SAY("nothing", sendfile(a, f, &off, 0));
	off = 1ll << 60;
	SAY("beyond any file", sendfile(a, f, &off, 10));
	off = INT64_MAX - 5;
	SAY("beyond any offset", sendfile(a, f, &off, 10));
	off = INT64_MAX - 5;
	SAY("beyond any offset, and nothing", sendfile(a, f, &off, 0));
	alive("after", a, b);
}

SNIPPET(sendfile_refused, "sendfile")
{
	int f = a_file(5000), w = open("/dev/null", O_WRONLY);
	off_t off = -1;

	pair();
	SAY("negative offset", sendfile(a, f, &off, 10));
	off = 0;
	SAY("negative count", sendfile(a, f, &off, (size_t)-1));
	SAY("bad input", sendfile(a, -1, NULL, 10));
	SAY("closed input", sendfile(a, 999, NULL, 10));
	SAY("bad output", sendfile(-1, f, NULL, 10));
	SAY("input not readable", sendfile(a, w, NULL, 10));
	SAY("directory", sendfile(a, open("/tmp", O_RDONLY), NULL, 10));
	SAY("still nothing sent", recv(b, buf, 10, MSG_DONTWAIT));
	alive("after", a, b);
}

SNIPPET(sendfile_itself, "sendfile")
{
	int f = a_file(10);

	pair();
	put(a, b, "x");
	SAY("from a stream to a file", sendfile(f, b, NULL, 1));
	SAY("what it left", recv(b, buf, 10, 0));
	SAY("from a stream to itself", sendfile(a, a, NULL, 10));
	alive("after", a, b);
}

SNIPPET(sendfile_large, "sendfile sendfile64")
{
	int f = a_file(3 << 20);
	ssize_t r;

	pair();
	when_blocked(reads_all);
	r = sendfile64(a, f, NULL, 3 << 20);
	helper_done();
	SAY("3 MiB", r);
}

SNIPPET(sendfile_nonblocking, "sendfile")
{
	int f = a_file(4 << 20);
	off_t off = 0;

	pair();
	nonblocking(a);
	tell("some of it: %d", sendfile(a, f, &off, 4 << 20) > 0);
	for (int idle = 0; idle < 50; ) {
		idle = off < 4 << 20 && sendfile(a, f, &off, 4 << 20) < 0 ? idle + 1
		       : off == 4 << 20					  ? 50
									  : 0;
		nap_us(1000);
	}
	shutdown(a, SHUT_WR);
	for (size_t at = 0; ; ) {
		ssize_t r = read(b, page, sizeof(page));

		if (r <= 0) {
			tell("end: %zd, as much as said: %d", r, at == (size_t)off);
			break;
		}
		if (strcmp(right(page, r, at), "right"))
			die("wrong byte at %zu", at);
		at += (size_t)r;
	}
}

SNIPPET(send_epipe, "send write sendto sendmsg writev sendfile")
{
	struct iovec v = { "x", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	int f = a_file(10);

	pair();
	shutdown(a, SHUT_WR);
	handle(SIGPIPE, 0);
	SAY("send", send(a, "x", 1, 0));
	tell("signals %d", signals);
	SAY("MSG_NOSIGNAL", send(a, "x", 1, MSG_NOSIGNAL));
	tell("signals %d", signals);
	SAY("write", write(a, "x", 1));
	SAY("writev", writev(a, &v, 1));
	SAY("sendmsg", sendmsg(a, &m, 0));
	SAY("sendto", sendto(a, "x", 1, 0, NULL, 0));
	tell("signals %d", signals);
	SAY("sendfile", sendfile(a, f, NULL, 10));
	tell("signals %d", signals);
	SAY("nothing", send(a, "", 0, 0));
	tell("signals %d", signals);
}

static void sigpipe_kills(void) { shutdown(a, SHUT_WR); send(a, "x", 1, 0); tell("not reached"); }
SNIPPET(send_sigpipe_kills, "send")
{
	pid_t p = with_peer(sigpipe_kills);

	say_end("the sender", p);
}

#include <linux/errqueue.h>

SNIPPET(send_zerocopy, "setsockopt send sendto sendmsg recvmsg")
{
	int one = 1;
	char control[128];
	struct iovec v = { buf, 50000 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 }, e = { .msg_control = control,
		.msg_controllen = sizeof(control) };
	struct sock_extended_err ee;
	struct cmsghdr *c;

	pair();
	fill(buf, 200000, 0);
	SAY("not asked for", send(a, buf, 50000, MSG_ZEROCOPY));
	SAY("SO_ZEROCOPY", setsockopt(a, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)));
	SAY("without", send(a, buf + 50000, 50000, 0));
	v.iov_base = buf + 100000;
	SAY("sendmsg", sendmsg(a, &m, MSG_ZEROCOPY));
	SAY("sendto", sendto(a, buf + 150000, 50000, MSG_ZEROCOPY, NULL, 0));
	gather("all", b, 200000, 0);
	until(a, POLLERR);
	SAY("what was told", recvmsg(a, &e, MSG_ERRQUEUE));
	c = CMSG_FIRSTHDR(&e);
	if (c) {
		memcpy(&ee, CMSG_DATA(c), sizeof(ee));
		tell("origin %u, from number %u", ee.ee_origin, ee.ee_info);
	}
	alive("after all", a, b);
}
