/*
 * life.c - how a connection comes to be, and what it says of itself. Calls: socket connect
 * __connect listen accept accept4 shutdown bind getpeername getsockname bindresvport socketpair
 * isfdtype
 * LIBS: -ldl
 */
#include <limits.h>

#include "snip.h"

SNIPPET(socket_kinds, "socket")
{
	SAYV("TCP", socket(AF_INET, SOCK_STREAM, 0) >= 0);
	SAYV("TCP by number", socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) >= 0);
	SAYV("TCP6", socket(AF_INET6, SOCK_STREAM, 0) >= 0);
	SAYV("flags",
	     fcntl(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), F_GETFL) &
		     O_NONBLOCK);
	SAY("unknown family", socket(9999, SOCK_STREAM, 0));
	SAY("negative family", socket(-1, SOCK_STREAM, 0));
	SAY("unknown type", socket(AF_INET, 15, 0));
	SAY("wrong protocol", socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	SAY("unknown flag", socket(AF_INET, SOCK_STREAM | 0x10000000, 0));
}

/* connect() on what was accepted tells nothing new of it. Its own count of bytes has no SYN in
 * it, as long as it lives. */
SNIPPET(connect_accepted, "connect accept")
{
	struct sockaddr_in at;
	socklen_t l = sizeof(at);
	int s = listener_at(&at), c = connect_to(&at), d;

	d = accept(s, NULL, NULL);
	getpeername(d, (void *)&at, &l);
	SAY("connect", connect(d, (void *)&at, sizeof(at)));
	cut_wait(c);
	cut_wait(d);
	for (int i = 0; i < 10; i++) {
		SAY("connect, later", connect(d, (void *)&at, sizeof(at)));
		alive("then", c, d);
		usleep(2000);
	}
}

SNIPPET(connect_blocking, "socket connect accept bind listen getsockname getpeername")
{
	struct sockaddr_in at, x, y;
	socklen_t l = sizeof(x);
	int s = listener_at(&at), c = socket(AF_INET, SOCK_STREAM, 0), d;

	SAY("connect", connect(c, (void *)&at, sizeof(at)));
	SAY("again", connect(c, (void *)&at, sizeof(at)));
	memset(&x, 0, sizeof(x));
	d = accept(s, (void *)&x, &l);
	tell("accepted %d, length %u, family %d", d >= 0, l, x.sin_family);
	SAY("getsockname", getsockname(c, (void *)&y, &l));
	tell("the peer's name is the connector's: %d", !memcmp(&x, &y, sizeof(x)));
	SAY("getpeername", getpeername(c, (void *)&y, &l));
	tell("the listener's: %d", !memcmp(&at, &y, sizeof(x)));
	cut_wait(c);
	cut_wait(d);
	l = sizeof(y);
	SAY("getpeername, later", getpeername(d, (void *)&y, &l));
	tell("the same: %d", !memcmp(&x, &y, sizeof(x)));
	SAY("connect, later", connect(c, (void *)&at, sizeof(at)));
	SAY("bind, later", bind(c, (void *)&at, sizeof(at)));
	SAY("listen, later", listen(c, 5));
	alive("after all", c, d);
}

SNIPPET(connect_alias, "__connect")
{
	struct sockaddr_in at;
	int s = listener_at(&at), c = socket(AF_INET, SOCK_STREAM, 0), d;

	SAY("__connect", SYM(__connect, connect)(c, (void *)&at, sizeof(at)));
	d = accept(s, NULL, NULL);
	alive("it", c, d);
	SAY("bad fd", SYM(__connect, connect)(-1, (void *)&at, sizeof(at)));
}

SNIPPET(connect_refused, "connect getsockopt")
{
	struct sockaddr_in at;
	int c = socket(AF_INET, SOCK_STREAM, 0);

	close(listener_at(&at));
	SAY("nobody there", connect(c, (void *)&at, sizeof(at)));
	say_so_error("then", c);
	SAY("send", send(c, "x", 1, MSG_NOSIGNAL));
	SAY("recv", recv(c, buf, 1, 0));
	SAY("shutdown", shutdown(c, SHUT_WR));
	say_poll("bits", c);
	SAY("again", connect(c, (void *)&at, sizeof(at)));
}

SNIPPET(connect_async, "connect getsockopt poll")
{
	struct sockaddr_in at;
	int s = listener_at(&at), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), d;

	SAY("connect", connect(c, (void *)&at, sizeof(at)));
	until(c, POLLOUT);
	say_so_error("then", c);
	SAY("connect again", connect(c, (void *)&at, sizeof(at)));
	SAY("and again", connect(c, (void *)&at, sizeof(at)));
	say_poll("bits", c);
	d = accept(s, NULL, NULL);
	put(d, c, "hello");
	SAY("recv", recv(c, buf, 10, 0));
	put(c, d, "hello");
	SAY("recv", recv(d, buf, 10, 0));
	blocking(c);
	alive("after all", c, d);
}

SNIPPET(connect_async_refused, "connect getsockopt poll recv send")
{
	struct sockaddr_in at;
	int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0),
	    e = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	close(listener_at(&at));
	SAY("connect", connect(c, (void *)&at, sizeof(at)));
	until(c, POLLERR);
	say_poll("bits", c);
	say_so_error("first", c);
	say_so_error("second", c);
	say_poll("bits", c);
	SAY("send", send(c, "x", 1, MSG_NOSIGNAL));
	SAY("recv", recv(c, buf, 1, 0));
	SAY("connect", connect(e, (void *)&at, sizeof(at)));
	until(e, POLLERR);
	SAY("recv tells it", recv(e, buf, 1, 0));
	SAY("recv, then", recv(e, buf, 1, 0));
}

SNIPPET(connect_refused_input, "connect")
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int c = socket(AF_INET, SOCK_STREAM, 0);

	SAY("NULL", connect(c, NULL, sizeof(at)));
	SAY("short", connect(c, (void *)&at, 3));
	SAY("zero", connect(c, (void *)&at, 0));
	SAY("negative", connect(c, (void *)&at, (socklen_t)-1));
	at.sin_family = 77;
	SAY("unknown family", connect(c, (void *)&at, sizeof(at)));
	SAY("bad fd", connect(-1, (void *)&at, sizeof(at)));
	SAY("a file", connect(open("/dev/null", O_RDONLY), (void *)&at, sizeof(at)));
	at = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_BROADCAST),
					   .sin_port = htons(1) };
	SAY("broadcast", connect(c, (void *)&at, sizeof(at)));
}

SNIPPET(connect_unspec, "connect")
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct sockaddr_in at, x;
	socklen_t l = sizeof(x);
	int s, d;

	pair();
	put(a, b, "unread");
	SAY("AF_UNSPEC", connect(a, &none, sizeof(none)));
	SAY("getpeername", getpeername(a, (void *)&x, &l));
	SAY("send", send(a, "x", 1, MSG_NOSIGNAL));
	until(b, POLLIN | POLLHUP);
	SAY("the other end reads", recv(b, buf, 10, 0));
	SAY("and then", recv(b, buf, 10, 0));
	s = listener_at(&at);
	SAY("connect anew", connect(a, (void *)&at, sizeof(at)));
	d = accept(s, NULL, NULL);
	alive("the new one", a, d);
}

SNIPPET(connect_itself, "connect")
{
	struct sockaddr_in at = here();
	socklen_t l = sizeof(at);
	int c = socket(AF_INET, SOCK_STREAM, 0);

	bind(c, (void *)&at, l);
	getsockname(c, (void *)&at, &l);
	SAY("connect to itself", connect(c, (void *)&at, l));
	put(c, c, "echo");
	SAY("recv", recv(c, buf, 10, 0));
	nap_us(jitter ? 5000 : 0);
	put(c, c, "echo");
	SAY("recv", recv(c, buf, 10, 0));
	SAY("shutdown", shutdown(c, SHUT_WR));
	until(c, POLLIN);
	SAY("end", recv(c, buf, 10, 0));
}

SNIPPET(accept_forms, "accept accept4")
{
	struct sockaddr_in at, x;
	struct sockaddr_storage big;
	socklen_t l = sizeof(x);
	int s = listener_at(&at), d;

	connect_to(&at);
	d = accept4(s, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	tell("accept4: %d, O_NONBLOCK %d, FD_CLOEXEC %d", d >= 0,
	     !!(fcntl(d, F_GETFL) & O_NONBLOCK), fcntl(d, F_GETFD));
	SAY("and it does not wait", recv(d, buf, 1, 0));
	connect_to(&at);
	d = accept(s, NULL, NULL);
	tell("accept: %d, O_NONBLOCK %d, FD_CLOEXEC %d", d >= 0, !!(fcntl(d, F_GETFL) & O_NONBLOCK),
	     fcntl(d, F_GETFD));
	connect_to(&at);
	l = 4;
	memset(&big, 0, sizeof(big));
	tell("short address: %d", accept(s, (void *)&big, &l) >= 0);
	tell("length %u, family %d", l, big.ss_family);
	SAY("bad flags", accept4(s, NULL, NULL, 0x1234));
	nonblocking(s);
	SAY("nobody", accept(s, NULL, NULL));
	connect_to(&at);
	until(s, POLLIN);
	l = (socklen_t)-1;
	SAY("negative length", accept(s, (void *)&big, &l));
	SAY("nobody", accept4(s, NULL, NULL, 0));
	connect_to(&at);
	until(s, POLLIN);
	SAY("NULL length", accept(s, (void *)&big, NULL));
	SAY("not a listener", accept(d, NULL, NULL));
	SAY("bad fd", accept(-1, NULL, NULL));
	SAY("a file", accept(open("/dev/null", O_RDONLY), NULL, NULL));
}

SNIPPET(accept_inherits, "accept setsockopt getsockopt")
{
	struct timeval tv = { 0, 200000 };
	struct sockaddr_in at;
	int s = listener_at(&at), one = 1, d, c, v = 0;
	socklen_t l = sizeof(v);
	uint64_t t0;

	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	c = connect_to(&at);
	d = accept(s, NULL, NULL);
	cut_wait(d);
	getsockopt(d, IPPROTO_TCP, TCP_NODELAY, &v, &l);
	tell("TCP_NODELAY %d", v);
	getsockopt(d, SOL_SOCKET, SO_KEEPALIVE, &v, &l);
	tell("SO_KEEPALIVE %d", v);
	t0 = now_ms();
	SAY("recv with the listener's SO_RCVTIMEO", recv(d, buf, 1, 0));
	say_time("recv", t0, 200);
	close(c);
}

static struct sockaddr_in late_at;
static void connects(void) { a = connect_to(&late_at); }
SNIPPET(accept_blocks, "accept")
{
	int s = listener_at(&late_at);

	when_blocked(connects);
	b = accept(s, NULL, NULL);
	helper_done();
	tell("accepted: %d", b >= 0);
	alive("it", a, b);
}

SNIPPET(accept_reset_before, "accept")
{
	struct linger lg = { 1, 0 };
	struct sockaddr_in at;
	int s = listener_at(&at), c = connect_to(&at), d;

	send(c, "last words", 10, 0);
	setsockopt(c, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
	close(c);
	d = accept(s, NULL, NULL);
	tell("accepted: %d", d >= 0);
	until(d, POLLHUP);
	say_poll("bits", d);
	SAY("recv", recv(d, buf, 20, 0));
	SAY("recv", recv(d, buf, 20, 0));
}

SNIPPET(accept_data_before, "accept recv")
{
	struct sockaddr_in at;
	int s = listener_at(&at), c = connect_to(&at), d;

	SAY("sent before accept", send(c, "early", 5, 0));
	shutdown(c, SHUT_WR);
	d = accept(s, NULL, NULL);
	until(d, POLLRDHUP);
	SAY("recv", recv(d, buf, 20, 0));
	SAY("end", recv(d, buf, 20, 0));
	SAY("answer", send(d, "late", 4, 0));
	until(c, POLLIN);
	SAY("got", recv(c, buf, 20, 0));
}

SNIPPET(listen_states, "listen")
{
	int s = socket(AF_INET, SOCK_STREAM, 0);

	SAY("listen unbound", listen(s, 5));
	SAY("again", listen(s, 50));
	SAY("negative backlog", listen(s, -1));
	SAY("shutdown", shutdown(s, SHUT_RD));
	SAY("accept", accept(s, NULL, NULL));
	SAY("bad fd", listen(-1, 1));
	SAY("a file", listen(open("/dev/null", O_RDONLY), 1));
	pair();
	SAY("a connection", listen(a, 5));
	alive("after", a, b);
}

SNIPPET(ipv6_pair, "socket connect accept")
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t l = sizeof(at);
	int s = socket(AF_INET6, SOCK_STREAM, 0), c = socket(AF_INET6, SOCK_STREAM, 0), d;

	if (bind(s, (void *)&at, l) || listen(s, 5) || getsockname(s, (void *)&at, &l)) {
		tell("no IPv6 here");
		return;
	}
	SAY("connect", connect(c, (void *)&at, l));
	d = accept(s, NULL, NULL);
	cut_wait(c);
	alive("::1", c, d);
}

SNIPPET(ipv4_mapped_pair, "socket connect accept")
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6 };
	struct sockaddr_in to = here();
	socklen_t l = sizeof(at);
	int s = socket(AF_INET6, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), d;

	if (bind(s, (void *)&at, l) || listen(s, 5) || getsockname(s, (void *)&at, &l)) {
		tell("no IPv6 here");
		return;
	}
	to.sin_port = at.sin6_port;
	SAY("connect", connect(c, (void *)&to, sizeof(to)));
	d = accept(s, (void *)&at, &l);
	tell("length %u, family %d, mapped %d", l, at.sin6_family,
	     IN6_IS_ADDR_V4MAPPED(&at.sin6_addr));
	cut_wait(c);
	alive("mapped", c, d);
}

SNIPPET(tcp_fastopen_connect, "sendto sendmsg connect")
{
	struct sockaddr_in at;
	int s = listener_at(&at), c = socket(AF_INET, SOCK_STREAM, 0), d;

	SAY("sendto MSG_FASTOPEN", sendto(c, "hello", 5, MSG_FASTOPEN, (void *)&at, sizeof(at)));
	d = accept(s, NULL, NULL);
	arrive(d, 5);
	SAY("recv", recv(d, buf, 10, 0));
	cut_wait(c);
	alive("after", c, d);
}

SNIPPET(names_of_kinds, "socketpair isfdtype getsockname getpeername")
{
	int sv[2];
	socklen_t l = 4;
	struct sockaddr_in x;

	pair();
	SAY("socketpair of TCP", socketpair(AF_INET, SOCK_STREAM, 0, sv));
	SAY("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	SAY("isfdtype", isfdtype(a, S_IFSOCK));
	SAY("isfdtype, not", isfdtype(a, S_IFREG));
	SAY("isfdtype, bad", isfdtype(-1, S_IFSOCK));
	SAY("getsockname, short", getsockname(a, (void *)&x, &l));
	tell("length %u", l);
	l = (socklen_t)-1;
	SAY("getsockname, negative", getsockname(a, (void *)&x, &l));
	SAY("getsockname, bad fd", getsockname(-1, (void *)&x, &l));
	SAY("getpeername, unconnected",
	    (l = sizeof(x), getpeername(socket(AF_INET, SOCK_STREAM, 0), (void *)&x, &l)));
}

SNIPPET(bindresvport_plain, "bindresvport bind")
{
	int s = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in x = { .sin_family = AF_INET };

	SAYV("bindresvport", bindresvport(s, &x));
	tell("reserved: %d", ntohs(x.sin_port) < 1024);
	SAY("bind again", bind(s, (void *)&x, sizeof(x)));
	pair();
	SAYV("on a connection", bindresvport(a, NULL));
	alive("after", a, b);
}

SNIPPET(many_connections, "socket connect accept close")
{
	int n = 0;

	for (int i = 0; i < 60; i++) {
		int x, y;
		struct sockaddr_in at;
		int l = listener_at(&at);

		x = connect_to(&at);
		y = accept(l, NULL, NULL);
		close(l);
		if (send(x, "hello", 5, 0) == 5 && recv(y, buf, 5, MSG_WAITALL) == 5 &&
		    send(y, "you", 3, 0) == 3)
			n += recv(x, buf, 3, MSG_WAITALL) == 3;
		close(i & 1 ? x : y);
		if (recv(i & 1 ? y : x, buf, 5, 0) != 0)
			tell("%d: no end: %s", i, strerrorname_np(errno));
		close(i & 1 ? y : x);
	}
	tell("%d of 60", n);
}
