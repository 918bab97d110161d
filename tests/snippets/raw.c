/*
 * raw.c - system calls on a stream by libc's syscall(), mixed with the same calls by name: the
 * bytes come in one order. Calls: syscall
 * LIBS: -ldl
 */
#include <sched.h>
#include <sys/sendfile.h>

#include "snip.h"

static char t[256];

#define GOT(what, call) do { long n_ = SAY(what, call); if (n_ > 0) say_bytes("  bytes", t, \
	n_ < 200 ? n_ : 200); } while (0)

/* A word by name before and after one by the number, which must come in between. */
#define BETWEEN(what, call, n) do { \
	send(a, "<", 1, 0); \
	SAY(what, call); \
	send(a, ">", 1, 0); \
	arrive(b, 2 + (n)); \
	GOT("  all", recv(b, t, sizeof(t), 0)); \
} while (0)

static int a_file(const char *text)
{
	int f = open("/tmp", O_TMPFILE | O_RDWR, 0600);

	if (f < 0 || pwrite(f, text, strlen(text), 0) < 0)
		die("no file");
	return f;
}

SNIPPET(raw_send, "syscall")
{
	struct iovec v[2] = { { "vec", 3 }, { "tor", 3 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
	struct mmsghdr mm[2] = { { .msg_hdr = m }, { .msg_hdr = m } };
	int f = a_file("of a file");
	off_t off = 0;

	pair();
	BETWEEN("write", syscall(SYS_write, a, "write", 5), 5);
	BETWEEN("writev", syscall(SYS_writev, a, v, 2), 6);
	BETWEEN("pwritev2", syscall(SYS_pwritev2, a, v, 2, -1L, -1L, 0), 6);
	BETWEEN("sendto", syscall(SYS_sendto, a, "sendto", 6, MSG_NOSIGNAL, NULL, 0), 6);
	BETWEEN("sendmsg", syscall(SYS_sendmsg, a, &m, 0), 6);
	BETWEEN("sendmmsg", syscall(SYS_sendmmsg, a, mm, 2, 0), 12);
	BETWEEN("sendfile", syscall(SYS_sendfile, a, f, &off, 9), 9);
	alive("after all", a, b);
}

SNIPPET(raw_splice, "syscall")
{
	int p[2];

	pair();
	if (pipe(p) || write(p[1], "a pipe's", 8) != 8)
		die("pipe");
	BETWEEN("splice to it", syscall(SYS_splice, p[0], NULL, a, NULL, 8, 0), 8);
	pair();
	put(a, b, "<out>");
	GOT("recv", recv(b, t, 1, 0));
	SAY("splice from it", syscall(SYS_splice, b, NULL, p[1], NULL, 3, 0));
	GOT("the pipe", read(p[0], t, 10));
	GOT("recv", recv(b, t, 10, 0));
	alive("after all", a, b);
}

SNIPPET(raw_recv, "syscall")
{
	char u[8];
	struct iovec v[2] = { { t, 2 }, { u, 2 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
	struct mmsghdr mm[2] = { { .msg_hdr = m }, { .msg_hdr = m } };

	pair();
	put(a, b, "0123456789abcdefghijklmnopqrstuvwxyz");
	GOT("recv", recv(b, t, 2, 0));
	GOT("read", syscall(SYS_read, b, t, 2));
	GOT("recv", recv(b, t, 2, 0));
	SAY("readv", syscall(SYS_readv, b, v, 2));
	say_bytes("  last", u, 2);
	GOT("recv", recv(b, t, 2, 0));
	SAY("preadv2", syscall(SYS_preadv2, b, v, 2, -1L, -1L, 0));
	say_bytes("  last", u, 2);
	GOT("recvfrom", syscall(SYS_recvfrom, b, t, 2, 0, NULL, NULL));
	GOT("recv", recv(b, t, 2, 0));
	SAY("recvmsg", syscall(SYS_recvmsg, b, &m, 0));
	say_bytes("  last", u, 2);
	SAY("recvmmsg", syscall(SYS_recvmmsg, b, mm, 2, MSG_DONTWAIT, NULL));
	say_bytes("  last", u, 2);
	GOT("recv", recv(b, t, 200, 0));
	GOT("nothing left", recv(b, t, 200, MSG_DONTWAIT));
}

SNIPPET(raw_waits, "syscall")
{
	struct pollfd p = { .events = POLLIN };
	struct timespec ts = { 5, 0 };
	struct timeval tv = { 5, 0 };
	fd_set r;

	pair();
	p.fd = b;
	FD_ZERO(&r);
	FD_SET(b, &r);
	put(a, b, "x");
	SAY("poll", syscall(SYS_poll, &p, 1, 5000));
	SAY("ppoll", syscall(SYS_ppoll, &p, 1, &ts, NULL, 0));
	tell("%s", poll_bits(p.revents));
	SAY("select", syscall(SYS_select, b + 1, &r, NULL, NULL, &tv));
	SAY("pselect6", syscall(SYS_pselect6, b + 1, &r, NULL, NULL, &ts, NULL));
	tell("set %d", FD_ISSET(b, &r));
	GOT("recv", recv(b, t, 10, 0));
	SAY("poll, nothing", syscall(SYS_poll, &p, 1, 0));
}

SNIPPET(raw_numbers, "syscall")
{
	int d, n = -1, v = 1;
	socklen_t l = sizeof(v);

	pair();
	put(a, b, "hello world");
	SAY("FIONREAD", syscall(SYS_ioctl, b, FIONREAD, &n));
	tell("%d", n);
	d = (int)syscall(SYS_dup, b);
	GOT("by the copy", recv(d, t, 5, 0));
	close(d);
	d = (int)syscall(SYS_fcntl, b, F_DUPFD, 100);
	tell("F_DUPFD: %d", d >= 100);
	GOT("by the copy", recv(d, t, 3, 0));
	close(b);
	GOT("the rest", recv(b = d, t, 10, 0));
	SAY("O_NONBLOCK", syscall(SYS_fcntl, b, F_SETFL, O_NONBLOCK));
	SAY("nothing there", recv(b, t, 10, 0));
	SAY("O_NONBLOCK off", syscall(SYS_fcntl, b, F_SETFL, 0));
	SAY("SO_KEEPALIVE", syscall(SYS_setsockopt, b, SOL_SOCKET, SO_KEEPALIVE, &v, sizeof(v)));
	SAY("SO_ERROR", syscall(SYS_getsockopt, b, SOL_SOCKET, SO_ERROR, &v, &l));
	put(a, b, "last");
	SAY("shutdown", syscall(SYS_shutdown, a, SHUT_WR));
	GOT("recv", recv(b, t, 10, 0));
	GOT("the end", recv(b, t, 10, 0));
	SAY("close", syscall(SYS_close, b));
	SAY("closed", recv(b, t, 10, 0));
}

/* What a program of its own system calls does: fork past libc, and a connection made by numbers
 * alone. */
SNIPPET(raw_life, "syscall")
{
	struct sockaddr_in at;
	socklen_t l = sizeof(at);
	int s = listener_at(&at), one = 1;

	a = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
	SAY("connect", syscall(SYS_connect, a, &at, sizeof(at)));
	b = (int)syscall(SYS_accept4, s, NULL, NULL, 0);
	alive("by numbers alone", a, b);
	close(a);
	GOT("the end", recv(b, t, 1, 0));
	close(b);
	a = socket(AF_INET, SOCK_STREAM, 0);
	SAY("connect", syscall(SYS_connect, a, &at, sizeof(at)));
	SAY("TCP_NODELAY", setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	b = accept(s, NULL, NULL);
	SAY("getpeername", getpeername(a, (void *)&at, &l));
	for (int i = 0; i < 20; i++)
		nap_us(i < 19 && send(a, "x", 1, 0) == 1 && recv(b, t, 1, 0) == 1 &&
				       send(b, "y", 1, 0) == 1 && recv(a, t, 1, 0) == 1
			       ? 500
			       : 1);
	alive("connected by its number", a, b);
}

/* Of a register the kernel reads as much as the argument's type says. */
#define GARBAGE (0x5a5a5a5aL << 32)
#define BAD ((void *)8)

SNIPPET(raw_garbage, "syscall")
{
	struct iovec v[2] = { { "vec", 3 }, { "tor", 3 } };
	struct pollfd p = { .events = POLLIN };
	int n = -1;

	pair();
	BETWEEN("write", syscall(SYS_write, a | GARBAGE, "write", 5), 5);
	BETWEEN("sendto",
		syscall(SYS_sendto, a | GARBAGE, "sendto", 6, MSG_NOSIGNAL | GARBAGE, NULL, 0), 6);
	BETWEEN("writev", syscall(SYS_writev, a | GARBAGE, v, 2L), 6);
	BETWEEN("writev, two", syscall(SYS_writev, a, v, 2 | GARBAGE), 6);
	SAY("writev of too many", syscall(SYS_writev, a, v, 1025L));
	put(a, b, "0123456789");
	GOT("read", syscall(SYS_read, b | GARBAGE, t, 2));
	GOT("recvfrom", syscall(SYS_recvfrom, b | GARBAGE, t, 2, GARBAGE, NULL, NULL));
	SAY("FIONREAD", syscall(SYS_ioctl, b | GARBAGE, FIONREAD | GARBAGE, &n));
	tell("%d", n);
	p.fd = b;
	SAY("poll", syscall(SYS_poll, &p, 1 | GARBAGE, GARBAGE));
	SAY("ppoll", syscall(SYS_ppoll, &p, 1 | GARBAGE, NULL, NULL, 0));
	SAY("shutdown", syscall(SYS_shutdown, a | GARBAGE, SHUT_WR | GARBAGE));
	GOT("the rest", recv(b, t, 100, 0));
	GOT("the end", recv(b, t, 100, 0));
	SAY("close", syscall(SYS_close, b | GARBAGE));
	SAY("close, again", close(b));
	SAY("recv", recv(a, t, 1, 0));
}

SNIPPET(raw_bad_pointers, "syscall")
{
	struct { void *mask; size_t size; } set = { BAD, 8 }, none = { NULL, 3 }, short_ = { t, 4 };
	struct iovec v = { t, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct mmsghdr mm = { .msg_hdr = m };
	struct pollfd p = { .events = POLLIN };
	static const struct timeval at_once = { 0, 0 };
	struct timespec now = { 0, 0 };
	int ep = epoll_create1(0), f = a_file("of a file");
	struct epoll_event ev = { .events = EPOLLIN };
	fd_set r;

	pair();
	p.fd = b;
	epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev);
	FD_ZERO(&r);
	FD_SET(b, &r);
	memset(t, 0, sizeof(t));
	SAY("ppoll, bad set", syscall(SYS_ppoll, &p, 1, &now, BAD, 8));
	SAY("ppoll, short set", syscall(SYS_ppoll, &p, 1, &now, t, 4));
	SAY("ppoll, no set of any size", syscall(SYS_ppoll, &p, 1, &now, NULL, 4));
	SAY("select, bad time", syscall(SYS_select, b + 1, &r, NULL, NULL, BAD));
	SAY("select, time that cannot be written",
	    syscall(SYS_select, b + 1, &r, NULL, NULL, &at_once));
	SAY("ppoll, bad time", syscall(SYS_ppoll, &p, 1, BAD, NULL, 8));
	SAY("pselect6, bad time", syscall(SYS_pselect6, b + 1, &r, NULL, NULL, BAD, NULL));
	SAY("pselect6, bad set", syscall(SYS_pselect6, b + 1, &r, NULL, NULL, &now, &set));
	SAY("pselect6, short set", syscall(SYS_pselect6, b + 1, &r, NULL, NULL, &now, &short_));
	SAY("pselect6, no set of any size",
	    syscall(SYS_pselect6, b + 1, &r, NULL, NULL, &now, &none));
	SAY("pselect6, bad pointer to one",
	    syscall(SYS_pselect6, b + 1, &r, NULL, NULL, &now, BAD));
	SAY("epoll_pwait, bad set", syscall(SYS_epoll_pwait, ep, &ev, 1, 0, BAD, 8));
	SAY("epoll_pwait, short set", syscall(SYS_epoll_pwait, ep, &ev, 1, 0, t, 4));
	SAY("epoll_pwait, no set of any size", syscall(SYS_epoll_pwait, ep, &ev, 1, 0, NULL, 4));
	SAY("epoll_pwait2, bad set", syscall(SYS_epoll_pwait2, ep, &ev, 1, &now, BAD, 8));
	SAY("epoll_pwait2, short set", syscall(SYS_epoll_pwait2, ep, &ev, 1, &now, t, 4));
	SAY("sendfile, bad offset", syscall(SYS_sendfile, a, f, BAD, 3));
	put(a, b, "there");
	SAY("sendmsg for 32 bits", sendmsg(a, &m, (int)0x80000000));
	SAY("sendmmsg for 32 bits", sendmmsg(a, &mm, 1, (int)0x80000000));
	SAY("recvmsg for 32 bits", recvmsg(b, &m, (int)0x80000000));
	SAY("recvmmsg for 32 bits", recvmmsg(b, &mm, 1, (int)0x80000000, NULL));
	alive("after all", b, a);
	GOT("recv", recv(b, t, 10, 0));
}

/* The kernel writes back how much time is left, which libc hides. */
SNIPPET(raw_time_left, "syscall")
{
	struct timespec ts = { 0, 30000000 }, ten = { 10, 0 };
	struct pollfd p = { .events = POLLIN };
	fd_set r;

	pair();
	p.fd = b;
	FD_ZERO(&r);
	FD_SET(b, &r);
	SAY("ppoll", syscall(SYS_ppoll, &p, 1, &ts, NULL, 8));
	tell("%ld left", ts.tv_sec * 1000000000 + ts.tv_nsec);
	ts = (struct timespec){ 0, 30000000 };
	SAY("pselect6", syscall(SYS_pselect6, b + 1, &r, NULL, NULL, &ts, NULL));
	tell("%ld left", ts.tv_sec * 1000000000 + ts.tv_nsec);
	put(a, b, "x");
	SAY("ppoll", syscall(SYS_ppoll, &p, 1, &ten, NULL, 8));
	tell("%s left", ten.tv_sec < 10 && ten.tv_sec >= 5 ? "less" : "not less");
	p.fd = -1;
	SAY("ppoll of none", syscall(SYS_ppoll, &p, 1, &(struct timespec){ 0, 1000000 }, NULL, 8));
}

/* An instance that is made, filled and waited for by numbers alone. */
SNIPPET(raw_epoll, "syscall")
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 77 }, got = { 0 };
	int ep = (int)syscall(SYS_epoll_create1, 0);

	pair();
	SAY("add", syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, b, &ev));
	SAY("nothing", syscall(SYS_epoll_wait, ep, &got, 1, 0));
	for (int i = 0; i < 3; i++) {
		send(a, "x", 1, 0);
		SAY("wait", syscall(SYS_epoll_wait, ep, &got, 1, 3000));
		tell("%s %d", poll_bits((int)got.events), (int)got.data.u64);
		GOT("recv", recv(b, t, 10, 0));
		nap_us(3000);
	}
	SAY("del", syscall(SYS_epoll_ctl, ep, EPOLL_CTL_DEL, b, NULL));
	alive("after all", a, b);
}

SNIPPET(syscall_data, "syscall")
{
	int d;

	pair();
	SAY("by raw write", syscall(SYS_write, open("/dev/null", O_WRONLY), "x", 1));
	d = (int)syscall(SYS_dup, open("/dev/null", O_RDONLY));
	tell("raw dup: %d", d >= 0);
	SAY("raw close_range", syscall(SYS_close_range, d, d, 0));
	alive("after", a, b);
}
