/*
 * ends.c - how a direction, a connection, a process ends, and what the other end sees.
 * Calls: shutdown close __close closefrom send recv poll
 * LIBS: -ldl
 */
#include "snip.h"

static char t[256];

#define GOT(what, call) do { long n_ = SAY(what, call); if (n_ > 0) say_bytes("  bytes", t, n_); \
	} while (0)

SNIPPET(half_close, "shutdown send recv")
{
	pair();
	put(a, b, "last");
	SAY("shutdown", shutdown(a, SHUT_WR));
	SAY("again", shutdown(a, SHUT_WR));
	SAY("send", send(a, "x", 1, MSG_NOSIGNAL));
	until(b, POLLRDHUP);
	say_poll("bits", b);
	GOT("recv", recv(b, t, 100, 0));
	SAY("end", recv(b, t, 100, 0));
	SAY("end again", recv(b, t, 100, MSG_DONTWAIT));
	say_poll("bits at the end", b);
	put(b, a, "answer");
	GOT("the other direction lives", recv(a, t, 100, 0));
	say_poll("bits of the closer", a);
	SAY("the other way", shutdown(b, SHUT_WR));
	until(a, POLLHUP);
	say_poll("bits after both", a);
	SAY("end", recv(a, t, 100, 0));
	say_poll("and there", b);
}

SNIPPET(half_close_before_any, "shutdown recv send")
{
	pair();
	SAY("shutdown", shutdown(b, SHUT_WR));
	SAY("end", recv(a, t, 10, 0));
	SAY("still sends", send(a, "data", 4, 0));
	arrive(b, 4);
	GOT("and it comes", recv(b, t, 10, 0));
	SAY("close", close(a));
	SAY("end", recv(b, t, 10, 0));
}

static void many_bytes(int fd, size_t n)
{
	fill(buf, n, 0);
	for (size_t at = 0; at < n; ) {
		ssize_t r = send(fd, buf + at, n - at, MSG_NOSIGNAL);

		if (r <= 0)
			die("send: %s", strerror(errno));
		at += (size_t)r;
	}
}
static void to_the_end(int fd)
{
	size_t at = 0;
	ssize_t r;

	while ((r = recv(fd, page, sizeof(page), 0)) > 0) {
		if (strcmp(right(page, r, at), "right"))
			die("wrong byte at %zu", at);
		at += (size_t)r;
	}
	tell("%zu bytes, then %s", at, r ? strerrorname_np(errno) : "the end");
}

SNIPPET(half_close_much_queued, "shutdown")
{
	pair();
	many_bytes(a, 200000);
	SAY("shutdown", shutdown(a, SHUT_WR));
	to_the_end(b);
	SAY("answer", send(b, "ok", 2, 0));
	GOT("got", recv(a, t, 10, 0));
}

SNIPPET(close_much_queued, "close")
{
	pair();
	many_bytes(a, 200000);
	SAY("close", close(a));
	to_the_end(b);
}

static void closes_end(void) { shutdown(a, SHUT_WR); }
SNIPPET(half_close_wakes, "shutdown recv poll")
{
	struct pollfd p = { .events = POLLIN };

	pair();
	when_blocked(closes_end);
	SAY("recv", recv(b, t, 10, 0));
	helper_done();
	pair();
	p.fd = b;
	when_blocked(closes_end);
	SAY("poll", poll(&p, 1, 5000));
	helper_done();
	tell("bits: %s", poll_bits(p.revents));
}

SNIPPET(shut_rd, "shutdown recv")
{
	pair();
	put(a, b, "queued");
	SAY("SHUT_RD", shutdown(b, SHUT_RD));
	say_poll("bits", b);
	GOT("what was there", recv(b, t, 10, 0));
	SAY("end", recv(b, t, 10, 0));
	send(a, "later", 5, 0);
	until(b, POLLIN);
	arrive(b, 5);
	GOT("what came later", recv(b, t, 10, 0));
	SAY("end", recv(b, t, 10, 0));
	put(b, a, "back");
	GOT("other direction", recv(a, t, 10, 0));
}

static void shuts_own(void) { shutdown(b, SHUT_RD); }
SNIPPET(shut_rd_wakes, "shutdown recv")
{
	pair();
	when_blocked(shuts_own);
	SAY("recv", recv(b, t, 10, 0));
	helper_done();
	put(b, a, "back");
	GOT("other direction", recv(a, t, 10, 0));
}

SNIPPET(shut_rdwr, "shutdown")
{
	pair();
	put(a, b, "queued");
	SAY("SHUT_RDWR", shutdown(b, SHUT_RDWR));
	say_poll("bits", b);
	GOT("recv", recv(b, t, 10, 0));
	SAY("end", recv(b, t, 10, 0));
	SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
	SAY("the peer reads the end", recv(a, t, 10, 0));
	say_poll("bits there", a);
}

SNIPPET(shutdown_refused, "shutdown")
{
	struct sockaddr_in at;

	pair();
	SAY("unknown how", shutdown(a, 7));
	SAY("negative how", shutdown(a, -1));
	SAY("bad fd", shutdown(-1, SHUT_WR));
	SAY("a file", shutdown(open("/dev/null", O_RDWR), SHUT_WR));
	SAY("unconnected", shutdown(socket(AF_INET, SOCK_STREAM, 0), SHUT_WR));
	SAY("a listener", shutdown(listener_at(&at), SHUT_RDWR));
	alive("after", a, b);
}

SNIPPET(close_forms, "close __close")
{
	pair();
	SAY("close", close(a));
	SAY("again", close(a));
	SAY("send on it", send(a, "x", 1, MSG_NOSIGNAL));
	SAY("recv on it", recv(a, t, 1, 0));
	say_poll("poll", a);
	SAY("the other end", recv(b, t, 10, 0));
	say_poll("bits", b);
	SAY("__close", SYM(__close, close)(b));
	SAY("__close again", SYM(__close, close)(b));
	SAY("negative", close(-1));
	SAY("enormous", close(0x7fffffff));
}

SNIPPET(close_peer_sends, "close send recv")
{
	pair();
	SAY("close", close(a));
	until(b, POLLRDHUP);
	say_poll("bits", b);
	SAY("first send", send(b, "x", 1, MSG_NOSIGNAL));
	until(b, POLLHUP);
	say_poll("bits", b);
	SAY("second send", send(b, "x", 1, MSG_NOSIGNAL));
	SAY("recv", recv(b, t, 10, 0));
	say_so_error("then", b);
	SAY("third send", send(b, "x", 1, MSG_NOSIGNAL));
}

SNIPPET(close_unread, "close recv send")
{
	pair();
	put(b, a, "never read");
	SAY("close", close(a));
	until(b, POLLHUP);
	say_poll("bits", b);
	SAY("recv", recv(b, t, 10, 0));
	SAY("recv again", recv(b, t, 10, 0));
	SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
	say_poll("bits", b);
}

SNIPPET(close_unread_send_first, "close recv send getsockopt")
{
	pair();
	put(b, a, "never read");
	SAY("close", close(a));
	until(b, POLLHUP);
	SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
	SAY("send again", send(b, "x", 1, MSG_NOSIGNAL));
	SAY("recv", recv(b, t, 10, 0));
	pair();
	put(b, a, "never read");
	close(a);
	until(b, POLLHUP);
	say_so_error("SO_ERROR first", b);
	say_so_error("and then", b);
	SAY("recv", recv(b, t, 10, 0));
}

/* A reset behind the end: reads find the end, and leave the error to others. */
SNIPPET(reset_behind_the_end, "shutdown close recv send getsockopt")
{
	for (int asks = 0; asks < 2; asks++) {
		pair();
		put(a, b, "last");
		put(b, a, "unread");
		SAY("shutdown", shutdown(a, SHUT_WR));
		until(b, POLLRDHUP);
		SAY("close", close(a));
		until(b, POLLHUP);
		GOT("recv", recv(b, t, 100, 0));
		SAY("end", recv(b, t, 100, 0));
		SAY("end again", recv(b, t, 100, MSG_DONTWAIT));
		if (asks)
			say_so_error("SO_ERROR", b);
		SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
		SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
		SAY("end", recv(b, t, 100, 0));
		close(b);
	}
}

SNIPPET(sent_behind_the_end, "close send recv")
{
	for (int last = 0; last < 2; last++) {
		pair();
		if (last)
			put(a, b, "last");
		SAY("close", close(a));
		until(b, POLLRDHUP);
		SAY("send", send(b, buf, 20000, MSG_NOSIGNAL));
		until(b, POLLHUP);
		if (last)
			GOT("recv", recv(b, t, 100, 0));
		SAY("end", recv(b, t, 100, 0));
		SAY("end again", recv(b, t, 100, MSG_DONTWAIT));
		SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
		close(b);
	}
}

SNIPPET(close_unread_with_data, "close recv")
{
	pair();
	put(b, a, "never read");
	put(a, b, "last words");
	SAY("close", close(a));
	until(b, POLLHUP);
	GOT("recv", recv(b, t, 100, 0));
	SAY("recv again", recv(b, t, 100, 0));
	SAY("and again", recv(b, t, 100, 0));
}

SNIPPET(linger_zero, "setsockopt close recv")
{
	struct linger lg = { 1, 0 };

	pair();
	put(a, b, "before");
	setsockopt(a, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
	SAY("close", close(a));
	until(b, POLLHUP);
	say_poll("bits", b);
	GOT("recv", recv(b, t, 100, 0));
	SAY("recv again", recv(b, t, 100, 0));
	SAY("and again", recv(b, t, 100, 0));
	SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
}

static void resets(void)
{
	struct linger lg = { 1, 0 };

	setsockopt(a, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
	close(a);
}
SNIPPET(reset_wakes, "recv poll select")
{
	struct pollfd p = { .events = POLLIN };

	pair();
	when_blocked(resets);
	SAY("recv", recv(b, t, 10, 0));
	helper_done();
	SAY("then", recv(b, t, 10, 0));
	pair();
	p.fd = b;
	when_blocked(resets);
	SAY("poll", poll(&p, 1, 5000));
	helper_done();
	until(b, POLLHUP);
	say_poll("bits", b);
	say_so_error("it is", b);
}

static void fills(void)
{
	while (send(b, buf, 65536, MSG_NOSIGNAL) > 0)
		;
	tell("the sender: %s", strerrorname_np(errno));
}
static void resets_late(void)
{
	until_sleeps(main_tid);
	nap_us(50000);
	until_sleeps(main_tid);
	resets();
}
SNIPPET(reset_wakes_sender, "send")
{
	pair();
	when_blocked(resets_late);
	fills();
	helper_done();
	SAY("then", send(b, "x", 1, MSG_NOSIGNAL));
	SAY("recv", recv(b, t, 10, 0));
}

SNIPPET(close_wakes_nobody_else, "close recv")
{
	/* another descriptor of the connection keeps it */
	int d;

	pair();
	d = dup(a);
	SAY("close", close(a));
	put(d, b, "lives");
	GOT("recv", recv(b, t, 10, 0));
	SAY("MSG_DONTWAIT", recv(b, t, 10, MSG_DONTWAIT));
	SAY("close the other", close(d));
	SAY("end", recv(b, t, 10, 0));
}

static void ends_silently(void) { send(a, "bye", 3, 0); }
static void ends_unread(void) { wait_go(); send(a, "bye", 3, 0); }
static void killed(void) { send(a, "bye", 3, 0); go(); kill(getpid(), SIGKILL); }
SNIPPET(peer_exits, "recv")
{
	pid_t p = with_peer(ends_silently);

	say_end("peer", p);
	GOT("last words", recv(b, t, 10, MSG_WAITALL & 0));
	SAY("end", recv(b, t, 10, 0));
	SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
	until(b, POLLHUP);
	SAY("send again", send(b, "x", 1, MSG_NOSIGNAL));
}

SNIPPET(peer_killed, "recv")
{
	pid_t p = with_peer(killed);

	wait_go();
	say_end("peer", p);
	GOT("last words", recv(b, t, 10, 0));
	SAY("end", recv(b, t, 10, 0));
}

SNIPPET(peer_exits_unread, "recv send")
{
	pid_t p = with_peer(ends_unread);

	send(b, "never read", 10, 0);
	nap_us(1000);
	go();
	say_end("peer", p);
	until(b, POLLHUP);
	GOT("last words", recv(b, t, 10, 0));
	SAY("then", recv(b, t, 10, 0));
	SAY("then", recv(b, t, 10, 0));
}

static void peer_big(void) { many_bytes(a, 150000); }
SNIPPET(peer_exits_much_queued, "recv")
{
	pid_t p = with_peer(peer_big);

	say_end("peer", p);
	to_the_end(b);
}

SNIPPET(fin_each_phase, "shutdown close recv send")
{
	/* the end at any moment of a young connection's life */
	for (int i = 0; i < 30; i++) {
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);
		ssize_t r;

		close(l);
		nap_us(random() % 4000);
		if (send(x, "abc", 3, 0) != 3)
			tell("%d: send: %s", i, strerrorname_np(errno));
		if (i % 3)
			nap_us(random() % 2000);
		if (i & 1)
			shutdown(x, SHUT_WR);
		else
			close(x);
		r = recv(y, t, 10, MSG_WAITALL);
		if (r != 3)
			tell("%d: recv %zd %s", i, r, r < 0 ? strerrorname_np(errno) : "");
		r = recv(y, t, 10, 0);
		if (r)
			tell("%d: end %zd %s", i, r, r < 0 ? strerrorname_np(errno) : "");
		if (i & 1) {
			send(y, "de", 2, 0);
			r = recv(x, t, 2, MSG_WAITALL);
			if (r != 2)
				tell("%d: answer %zd %s", i, r,
				     r < 0 ? strerrorname_np(errno) : "");
			close(x);
		}
		close(y);
	}
	tell("done");
}

#define LITTLE_ROOM 65536	/* for a receiver: what is sent by TCP is under way for some time */

/* As many of some 200 KB as there is room for: how many. */
static long send_much(void)
{
	int large = 1 << 20;
	long sent = 0, r;

	setsockopt(a, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
	while (sent < 200000 && (r = send(a, buf, 20000, MSG_DONTWAIT)) > 0)
		sent += r;
	return sent;
}

/* In a new connection whose receiver has little room in TCP. */
static long much_with_little_room(void)
{
	int small = LITTLE_ROOM;

	pair();
	setsockopt(b, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	return send_much();
}

static void end_of_a(void)
{
	if (random() % 2)
		close(a), a = -1;
	else
		shutdown(a, SHUT_WR);
}

/*
 * Who is told of the end finds all that comes before it: a read that gives less than it asked
 * for is the last one. libuv takes a hang-up after such a read for the end of the file
 * (uv__stream_io() in src/unix/stream.c).
 */
SNIPPET(end_is_told_when_all_is_here, "poll shutdown recv send")
{
	uint64_t end = now_ms() + 400;
	long behind = 0, none = 0;
	static char to[65536];

	do {
		long sent = much_with_little_room(), got = 0, r;
		bool last = false;

		end_of_a();
		do {
			bool told;

			until(b, POLLIN);
			nap_us(random() % 500);
			told = bits_now(b, POLLRDHUP) & POLLRDHUP;
			nap_us(random() % 500);
			r = recv(b, to, sizeof(to), MSG_DONTWAIT);
			got += r > 0 ? r : 0;
			behind += last && r > 0;
			none += told && r < 0;
			last |= told && r < (long)sizeof(to);
		} while (r);
		if (got != sent)
			tell("%ld of %ld bytes", got, sent);
		close(a);
		close(b);
	} while (now_ms() < end);
	tell("reads behind a short one: %ld, in vain: %ld", behind, none);
}

/* An edge for RDHUP alone, whatever the path does when FIN comes. */
SNIPPET(end_alone_is_an_edge, "epoll_ctl epoll_wait shutdown close")
{
	struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET }, out;
	uint64_t end = now_ms() + 400;
	int lost = 0;

	do {
		int ep = epoll_create1(0);

		pair();
		epoll_ctl(ep, EPOLL_CTL_ADD, b, &e);
		nap_us(random() % 3000);
		send(a, buf, 1 + random() % 20000, 0);
		end_of_a();
		if (epoll_wait(ep, &out, 1, 2000) != 1) {
			lost++;
			break;
		}
		close(ep);
		close(a);
		close(b);
	} while (now_ms() < end);
	tell("lost: %d", lost);
}

/* A level stays, and holds what it says, also when the other end has gone while the last bytes
 * are under way through TCP. */
SNIPPET(end_stays_told, "poll close recv")
{
	uint64_t end = now_ms() + 400;
	long taken_back = 0, behind = 0;
	static char to[65536];

	do {
		long sent = much_with_little_room(), got = 0, r;
		bool last = false;

		close(a);
		until(b, POLLIN);
		nap_us(random() % 500);
		if (bits_now(b, POLLRDHUP) & POLLRDHUP) {
			nap_us(random() % 10000);
			taken_back += bits_now(b, POLLRDHUP | POLLIN) != (POLLRDHUP | POLLIN);
			do {
				r = recv(b, to, sizeof(to), MSG_DONTWAIT);
				got += r > 0 ? r : 0;
				behind += last && r > 0;
				last |= r < (long)sizeof(to);
			} while (r > 0);
			if (got != sent || r)
				tell("%ld of %ld bytes, then %s", got, sent,
				     r ? strerrorname_np(errno) : "the end");
		}
		close(b);
	} while (now_ms() < end);
	tell("taken back: %ld, reads behind a short one: %ld", taken_back, behind);
}

static volatile int told_of_end;
static void *awaits_end(void *arg)
{
	struct epoll_event e = { .events = EPOLLRDHUP };
	int ep = epoll_create1(0);

	epoll_ctl(ep, EPOLL_CTL_ADD, b, &e);
	told_of_end = epoll_wait(ep, &e, 1, 3000);
	close(ep);
	return arg;
}
/* Bytes that TCP has no room for yet when the end is known: another thread reads them, but not
 * all. */
SNIPPET(end_comes_behind_tcp, "epoll_wait shutdown recv")
{
	int small = LITTLE_ROOM, l;
	struct sockaddr_in at;
	long sent, got = 0, r;
	pthread_t th;

	l = listener_at(&at);
	setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	a = connect_to(&at);
	b = accept(l, NULL, NULL);
	sent = send_much();
	cut_wait(b);
	sent += send(a, buf, 300, 0);
	shutdown(a, SHUT_WR);
	pthread_create(&th, NULL, awaits_end, NULL);
	nap_us(20000);
	while (got < sent - 5000 && (until(b, POLLIN), r = recv(b, buf, 4096, MSG_DONTWAIT)) > 0) {
		got += r;
		nap_us(500);
	}
	pthread_join(th, NULL);
	tell("told: %d, %s", told_of_end, poll_bits(bits_now(b, POLLRDHUP | POLLIN)));
}
