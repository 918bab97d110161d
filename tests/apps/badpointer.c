/*
 * badpointer.c - bad pointers in calls that move bytes: what they answer, and that no byte is
 * lost by it. Both ends of one connection, in one process. Plays ball until there is something
 * to read on fd 0, then prints a line per call: these must be the same on the kernel alone and
 * on a fast path.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "both.h"

static void play_ball(void)
{
	char c[64] = "ball";
	struct pollfd p = { .fd = 0, .events = POLLIN };

	while (!poll(&p, 1, 1))
		if (send(a, c, sizeof c, 0) != sizeof c ||
		    recv(b, c, sizeof c, MSG_WAITALL) != sizeof c ||
		    send(b, c, sizeof c, 0) != sizeof c ||
		    recv(a, c, sizeof c, MSG_WAITALL) != sizeof c)
			die("ball");
}

static const char *name(ssize_t r)
{
	static char text[32];

	if (r >= 0)
		snprintf(text, sizeof text, "%zd", r);
	return r >= 0 ? text : strerror(errno);
}

static char *pages(int n, int bad_from, int prot)	/* prot of those from bad_from on; -1:
							 * not there */
{
	/* Far from where the kernel puts things by itself, so that nothing comes to where
	 * nothing is. */
	static char *at = (char *)0x600000000000;
	char *p = mmap(at, (size_t)n * 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	at += 0x1000000;
	memset(p, 'x', (size_t)bad_from * 4096);
	if (prot < 0 ? munmap(p + bad_from * 4096, (size_t)(n - bad_from) * 4096) :
		       mprotect(p + bad_from * 4096, (size_t)(n - bad_from) * 4096, prot))
		die("mprotect");
	return p;
}

/* What the connection carries is still in order: `expect` bytes are under way, then ours. */
static void in_order(const char *what, ssize_t expect)
{
	char out[200], in[4096] = { 0 };
	ssize_t n = 0, r;

	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (char)(i * 7 + 1);
	if (expect < 0)
		expect = 0;
	if (send(a, out, sizeof out, 0) != sizeof out)
		die("send");
	while (n < expect) {
		r = recv(b, in, (size_t)(expect - n) < sizeof in ? (size_t)(expect - n) : sizeof in,
			 0);
		if (r <= 0)
			die("recv");
		n += r;
	}
	if (recv(b, in, sizeof out, MSG_WAITALL) != sizeof out || memcmp(in, out, sizeof out))
		printf("%s: out of order\n", what);
}

static void sends(const char *what, char *p, size_t n)
{
	struct iovec one = { p, n }, two[2] = { { "good", 4 }, { p, n } };
	struct msghdr m = { .msg_iov = two, .msg_iovlen = 2 };
	ssize_t r;

#define TRY(call) do { r = call; printf("%s, %s: %s\n", what, #call, name(r)); in_order(what, r); \
	} while (0)
	TRY(send(a, p, n, 0));
	TRY(write(a, p, n));
	TRY(sendto(a, p, n, MSG_DONTWAIT, NULL, 0));
	TRY(writev(a, &one, 1));
	TRY(writev(a, two, 2));
	TRY(sendmsg(a, &m, 0));
}

/* 100 bytes are there; each call that takes none of them leaves them. */
static void receives(const char *what, char *p, size_t n)
{
	char full[100], in[100];
	struct iovec one = { p, n }, two[2] = { { in, 4 }, { p, n } };
	struct msghdr m = { .msg_iov = two, .msg_iovlen = 2 };
	ssize_t r;

	for (size_t i = 0; i < sizeof full; i++)
		full[i] = (char)(i + 33);
#define TAKE(call) do { \
		if (send(a, full, sizeof full, 0) != sizeof full) \
			die("send"); \
		poll(&(struct pollfd){ .fd = b, .events = POLLIN }, 1, -1); \
		r = call; \
		printf("%s, %s: %s\n", what, #call, name(r)); \
		if (r < 0 && (recv(b, in, sizeof in, MSG_WAITALL) != sizeof in || \
			memcmp(in, full, sizeof in))) \
			printf("%s: bytes are lost\n", what); \
		in_order(what, r < 0 ? 0 : (ssize_t)sizeof full - r); \
	} while (0)
	r = recv(b, p, n, MSG_DONTWAIT);
	if ((intptr_t)p < 1l << 47)	/* above, kernels differ */
		printf("%s, nothing there: %s\n", what, name(r));
	TAKE(recv(b, p, n, 0));
	TAKE(recv(b, p, n, MSG_WAITALL));
	TAKE(read(b, p, n));
	TAKE(recvfrom(b, p, n, MSG_DONTWAIT, NULL, NULL));
	TAKE(readv(b, &one, 1));
	TAKE(readv(b, two, 2));
	TAKE(recvmsg(b, &m, 0));
	r = recv(b, p, n, MSG_DONTWAIT | MSG_PEEK);
	if ((intptr_t)p < 1l << 47)
		printf("%s, peek at nothing: %s\n", what, name(r));
}

/* A long buffer that ends too early: how much of it goes is a matter of taste, but it is what
 * was good, in order. */
static void long_one(char *p, size_t good, size_t n)
{
	ssize_t r = send(a, p, n, 0);

	if (r < 0 ? errno != EFAULT : (size_t)r > good)
		printf("long: %s of %zu\n", name(r), good);
	in_order("long", r);
}

static void structs(const char *what, void *p)
{
	ssize_t r;

	TRY(sendmsg(a, p, 0));
	TRY(writev(a, p, 2));
	r = recvmsg(b, p, MSG_DONTWAIT);
	printf("%s, recvmsg: %s\n", what, name(r));
	r = readv(b, p, 2);
	printf("%s, readv: %s\n", what, name(r));
}

static void only(fd_set *set, int fd)
{
	FD_ZERO(set);
	FD_SET(fd, set);
}

#define SAY(call) printf("%s, %s: %s\n", what, #call, name(call))
/* The waiting calls, with and without something to tell. `p`: nothing can be read or written
 * there. (A timeout there crashes in the C library.) */
static void waits(const char *what, void *p)
{
	struct pollfd pf = { .fd = b, .events = POLLIN };
	struct epoll_event ev = { .events = EPOLLIN };
	struct timespec none = { 0, 0 };
	fd_set set;
	char in[200];
	int ep = epoll_create1(0);

	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev))
		die("epoll");
	for (int full = 0; full < 2; full++) {
		if (full && (send(a, "xyz", 3, 0) != 3 || poll(&pf, 1, -1) != 1))
			die("send");
		printf("%s\n", full ? "something to tell" : "nothing to tell");
		SAY(poll(p, 1, 0));
		SAY(ppoll(p, 1, &none, NULL));
		SAY(ppoll(&pf, 1, &none, p));
		SAY(select(b + 1, p, NULL, NULL, &(struct timeval){ 0, 0 }));
		SAY(select(b + 1, NULL, p, NULL, &(struct timeval){ 0, 0 }));
		only(&set, b);
		SAY(pselect(b + 1, &set, NULL, NULL, &none, p));
		SAY(epoll_wait(ep, p, 1, 0));
		SAY(epoll_wait(ep, p, 100, 0));
		SAY(epoll_pwait(ep, p, 1, 0, NULL));
		SAY(epoll_pwait(ep, &ev, 1, 0, p));
		SAY(epoll_pwait2(ep, &ev, 1, p, NULL));
		SAY(epoll_ctl(ep, EPOLL_CTL_MOD, b, p));
	}
	if (recv(b, in, 3, MSG_WAITALL) != 3)
		die("recv");
	close(ep);
}

/* What stands around the bytes. */
static void around(const char *what, void *p)
{
	char in[200];
	struct iovec one = { in, 3 }, ours = { "abc", 3 };
	struct msghdr m = { .msg_iov = &ours, .msg_iovlen = 1 };
	struct mmsghdr mm[2] = { { .msg_hdr = m }, { .msg_hdr = { .msg_iov = p,
		.msg_iovlen = 1 } } };
	socklen_t len = sizeof in;
	ssize_t r;

	m.msg_name = p, m.msg_namelen = 16;
	TRY(sendmsg(a, &m, 0));
	m.msg_name = NULL, m.msg_control = p, m.msg_controllen = 64;
	TRY(sendmsg(a, &m, 0));
	TRY(sendto(a, "abc", 3, 0, p, 16));
	TRY(sendmmsg(a, p, 1, 0));
	TRY(sendmmsg(a, mm, 2, 0) * 3);
	m = (struct msghdr){ .msg_iov = p, .msg_iovlen = 1 };
	TRY(sendmsg(a, &m, 0));
	m.msg_iovlen = 5000;
	TRY(sendmsg(a, &m, 0));
	TRY(writev(a, p, 1));
	TRY(sendfile(a, 0, p, 10));
	SAY(getsockopt(b, SOL_SOCKET, SO_ERROR, p, &len));
	SAY(getsockopt(b, SOL_SOCKET, SO_ERROR, in, p));
	SAY(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, p, 16));
	SAY(getsockname(b, p, &len));
	SAY(getpeername(b, (void *)in, p));
	SAY(ioctl(b, FIONREAD, p));
	SAY(accept(b, p, p));
	if (send(a, "abc", 3, 0) != 3)
		die("send");
	poll(&(struct pollfd){ .fd = b, .events = POLLIN }, 1, -1);
	SAY(recvmmsg(b, p, 1, MSG_DONTWAIT, NULL));
	m = (struct msghdr){ .msg_iov = p, .msg_iovlen = 1 };
	SAY(recvmsg(b, &m, MSG_DONTWAIT));
	SAY(readv(b, p, 1));
	m = (struct msghdr){ .msg_iov = &one, .msg_iovlen = 1, .msg_control = p,
			     .msg_controllen = 64 };
	SAY(recvmsg(b, &m, MSG_PEEK));
	SAY(recvfrom(b, in, 3, 0, p, NULL));
	in_order(what, 0);
}

int main(void)
{
	char *gone, *none, *half, *readonly, *good;

	setvbuf(stdout, NULL, _IOLBF, 0);
	connect_both();
	play_ball();
	gone = pages(2, 0, -1);
	none = pages(1, 0, PROT_NONE);
	half = pages(2, 1, -1) + 4096 - 50;
	readonly = pages(1, 1, 0);
	if (mprotect(readonly, 4096, PROT_READ))
		die("mprotect");
	sends("null", NULL, 100);
	sends("low", (char *)0x1000, 100);
	sends("kernel", (char *)0xffff888000001000, 100);
	sends("no address", (char *)0x0000900000000000, 100);
	sends("wraps round", (char *)-50, 100);
	sends("unmapped", gone, 100);
	sends("protected", none, 100);
	sends("half", half, 100);
	sends("read-only", readonly, 100);
	receives("null", NULL, 100);
	receives("kernel", (char *)0xffff888000001000, 100);
	receives("no address", (char *)0x0000900000000000, 100);
	receives("unmapped", gone, 100);
	receives("protected", none, 100);
	receives("half", half, 100);
	receives("read-only", readonly, 100);
	good = pages(64, 25, -1);
	long_one(good, 25 * 4096, 64 * 4096);
	good = pages(100, 90, PROT_NONE);
	long_one(good + 77, 90 * 4096 - 77, 99 * 4096);
	structs("null", NULL);
	structs("kernel", (void *)0xffff888000001000);
	structs("unmapped", gone);
	waits("unmapped", gone);
	waits("protected", none);
	waits("kernel", (void *)0xffff888000001000);
	around("unmapped", gone);
	around("protected", none);
	around("kernel", (void *)0xffff888000001000);
	printf("done\n");
	return 0;
}
