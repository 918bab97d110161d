/*
 * test_learn.c - ISNs that are learned while other threads wait for the socket in every way that
 * there is: none is ever told of an error that is none, and each of one that is. The library is in
 * here but for its wrappers, whose place the calls take that they end in; real sockets, the real
 * kernel.
 *
 * LINK: SHIM
 * LIBS: -Wl,--wrap=clock_gettime
 * TIMEOUT: 180
 */
#include "../fuzz/world.h"

#include <arpa/inet.h>
#include <check.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <pthread.h>

#include "../../shim/conn/stream_learn.h"
#include "suite.h"

#define LEARNS 100000

static struct stream *s;
static int ours, theirs;
static _Atomic bool stop, reset;
static _Atomic long wrong, seen[8], waits[8];

static void connected(const char *ip)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	struct sockaddr_in four = { .sin_family = AF_INET };
	bool is_six = strchr(ip, ':');
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	int l = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM, 0), one = 1;

	inet_pton(AF_INET, ip, &four.sin_addr);
	inet_pton(AF_INET6, ip, &six.sin6_addr);
	setsockopt(l, IPPROTO_TCP, TCP_SAVE_SYN, &one, sizeof(one));
	ck_assert_int_eq(bind(l, is_six ? (void *)&six : (void *)&four,
			      is_six ? sizeof(six) : sizeof(four)), 0);
	ck_assert_int_eq(listen(l, 1), 0);
	getsockname(l, (void *)&at, &len);
	ours = socket(at.ss_family, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(ours, (void *)&at, len), 0);
	theirs = accept(l, NULL, NULL);
	close(l);
	setsockopt(ours, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	s = stream_new(ours, ROLE_CLIENT, false, NULL);
	ck_assert_ptr_nonnull(s);
	stream_connect_result(s, atomic_load(&s->gen), 0);
}

/* The client's ISN, out of the SYN that the listener kept. */
static uint32_t kept_isn(void)
{
	uint8_t syn[512];
	socklen_t len = sizeof(syn);
	const uint8_t *tcp;
	uint32_t v;

	ck_assert_int_eq(getsockopt(theirs, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len), 0);
	tcp = syn + (syn[0] >> 4 == 4 ? (syn[0] & 15) * 4 : 40);
	memcpy(&v, tcp + 4, sizeof(v));
	return ntohl(v);
}

/* As a program's send. */
static ssize_t say(const void *p, size_t n)
{
	struct iovec iov = { (void *)p, n };
	ssize_t r;

	if (stream_plain_tx(s, n)) {
		r = send(ours, p, n, MSG_NOSIGNAL);
		stream_plain_tx_leave(s, r);
		return r;
	}
	return stream_send(s, ours, &iov, 1, MSG_NOSIGNAL);
}

static void learn_anew(void)
{
	lock_take(&s->snd.lock);
	s->learn = (struct learn){ .tries = 0 };
	lock_give(&s->snd.lock);
	stream_learn_want(s);
}

static void hear(size_t n)
{
	static char buf[1 << 16];

	while (n) {
		ssize_t r = recv(theirs, buf, n < sizeof(buf) ? n : sizeof(buf), 0);

		ck_assert_int_gt(r, 0);
		n -= (size_t)r;
	}
}

/* ---- those who wait ---- */

enum waiter { POLL, POLL_NONE, SELECT, LEVEL, EDGE, ONESHOT, EDGE_OUT, WAITERS };

static void told(enum waiter w, bool error)
{
	atomic_fetch_add(&waits[w], 1);
	if (!error)
		return;
	if (atomic_load(&reset))
		atomic_fetch_add(&seen[w], 1);
	else
		atomic_fetch_add(&wrong, 1);
}

static void *polls(void *arg)
{
	enum waiter w = (enum waiter)(uintptr_t)arg;

	while (!atomic_load(&stop)) {
		struct pollfd p = { .fd = ours, .events = w == POLL ? POLLIN : 0 };
		int r = ready_poll_needed(&p, 1) == READY_NOT
				? poll(&p, 1, 5)
				: ready_poll(&p, 1, now_ns() + 5000000, NULL);

		ck_assert_int_ge(r, 0);
		told(w, r && p.revents & POLLERR);
		if (r && p.revents & POLLERR)
			break;
	}
	return NULL;
}

/* Nothing comes for it to read: only an error makes it readable. */
static void *selects(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		struct timeval tv = { 0, 5000 };
		fd_set in;
		int r;

		FD_ZERO(&in);
		FD_SET(ours, &in);
		r = ready_select_needed(ours + 1, &in, NULL, NULL) == READY_NOT
			    ? select(ours + 1, &in, NULL, NULL, &tv)
			    : ready_select(ours + 1, &in, NULL, NULL, now_ns() + 5000000, NULL);
		ck_assert_int_ge(r, 0);
		told(SELECT, r != 0);
		if (r)
			break;
	}
	return NULL;
}

static void *epolls(void *arg)
{
	static const uint32_t what[] = { [LEVEL] = EPOLLIN, [EDGE] = EPOLLIN | EPOLLET,
					 [ONESHOT] = EPOLLIN | EPOLLONESHOT,
					 [EDGE_OUT] = EPOLLIN | EPOLLOUT | EPOLLET };
	enum waiter w = (enum waiter)(uintptr_t)arg;
	int fd = epoll_create1(0);
	struct epoll *e = ready_epoll_new(fd);
	struct epoll_event ev = { .events = what[w], .data.u64 = 7 };

	ck_assert_ptr_nonnull(e);
	ck_assert_int_eq(ready_epoll_ctl(e, fd, EPOLL_CTL_ADD, ours, &ev), 0);
	while (!atomic_load(&stop)) {
		int r = ready_epoll_wait(e, fd, &ev, 1, now_ns() + 5000000, NULL);

		ck_assert_int_ge(r, 0);
		told(w, r && ev.events & EPOLLERR);
		if (r && ev.events & EPOLLERR)
			break;
		ck_assert_int_eq(r && !(ev.events & EPOLLOUT), 0);	/* nothing to read */
	}
	return NULL;
}

static void *(*const how[WAITERS])(void *) = { polls, polls, selects, epolls, epolls, epolls,
					       epolls };

static void all_wait(pthread_t t[WAITERS])
{
	for (uintptr_t w = 0; w < WAITERS; w++)
		ck_assert_int_eq(pthread_create(&t[w], NULL, how[w], (void *)w), 0);
	for (uintptr_t w = 0; w < WAITERS; w++)
		while (!atomic_load(&waits[w]))
			sched_yield();
}

static void all_end(pthread_t t[WAITERS])
{
	for (int w = 0; w < WAITERS; w++)
		pthread_join(t[w], NULL);
}

static void setup(void) { world_make(""); }

/* ---- cases ---- */

static void both_isns(const char *ip)
{
	uint32_t isn;

	connected(ip);
	isn = kept_isn();
	ck_assert_int_eq(send(theirs, "abc", 3, 0), 3);
	ck_assert_int_eq(say("first", 5), 5);	/* none of the library's */
	hear(5);
	learn_anew();
	ck_assert_int_eq(say("second", 6), 6);
	ck_assert(learn_known(&s->learn));
	ck_assert_uint_eq(s->learn.own, isn);
	ck_assert_uint_ne(s->learn.peer, 0);
	ck_assert(!(atomic_load(&s->learns) & LEARNS_WANT));
	hear(6);
}

START_TEST(isns_of_ipv4) { both_isns("127.0.0.1"); }
END_TEST
START_TEST(isns_of_ipv6) { both_isns("::1"); }
END_TEST

/* All of a large send arrives, and once. */
START_TEST(large_sends)
{
	static char big[1 << 20], got[1 << 20];
	size_t n = 0;

	connected("127.0.0.1");
	fcntl(ours, F_SETFL, O_NONBLOCK);
	atomic_store(&s->nonblock, 1);
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 7 + (i >> 9));
	learn_anew();
	for (size_t out = 0; n < sizeof(big);) {
		ssize_t r = out < sizeof(big) ? say(big + out, sizeof(big) - out) : -1;

		out += r > 0 ? (size_t)r : 0;
		r = recv(theirs, got + n, sizeof(got) - n, MSG_DONTWAIT);
		n += r > 0 ? (size_t)r : 0;
	}
	ck_assert_int_eq(memcmp(big, got, sizeof(big)), 0);
	ck_assert(learn_known(&s->learn));
}
END_TEST

/* Who uses the queue himself is left alone. */
START_TEST(left_alone)
{
	int on = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;

	connected("127.0.0.1");
	ck_assert_int_eq(setsockopt(ours, SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof(on)), 0);
	learn_anew();
	ck_assert_int_eq(say("x", 1), 1);
	ck_assert_int_eq(atomic_load(&s->learn.state), LEARN_FAILED);
	ck_assert(!stream_learned(s));
	hear(1);
}
END_TEST

/* A send that one segment has goes as one. */
START_TEST(not_split)
{
	static char one[1400];
	int off = 0;

	connected("127.0.0.1");
	setsockopt(ours, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off));
	learn_anew();
	ck_assert_int_eq(say(one, sizeof(one)), sizeof(one));
	ck_assert(learn_known(&s->learn));
	ck_assert_uint_eq(s->learn.sent, sizeof(one));
	hear(sizeof(one));
}
END_TEST

/* Stamps of the program's own in the error queue. */
static int stamps(void)
{
	char data[2048], ctl[256];
	int n = 0;

	for (;;) {
		struct iovec v = { data, sizeof(data) };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl,
				    .msg_controllen = sizeof(ctl) };

		if (recvmsg(ours, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			return n;
		n++;
	}
}

static void stamped_send(void)
{
	int on = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;

	ck_assert_int_eq(setsockopt(ours, SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof(on)), 0);
	ck_assert_int_eq(send(ours, "stamped", 7, 0), 7);
	hear(7);
}

static void known_stream(void)
{
	int on = -1;
	socklen_t len = sizeof(on);

	connected("127.0.0.1");
	learn_anew();
	ck_assert_int_eq(say("first", 5), 5);
	hear(5);
	ck_assert(learn_known(&s->learn));
	ck_assert(stream_learned(s));
	ck_assert_int_eq(getsockopt(ours, SOL_SOCKET, SO_TIMESTAMPING, &on, &len), 0);
	ck_assert_int_eq(on, 0);	/* ours was for one packet */
}

/* Who uses the queue once all is learned finds there what is his own, and is told. */
START_TEST(left_alone_later)
{
	struct pollfd p = { .events = POLLIN };
	int on = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;

	known_stream();
	stream_learn_leave(s, atomic_load(&s->gen));
	ck_assert(!stream_learned(s));
	ck_assert_int_eq(stamps(), 0);
	stamped_send();
	p.fd = ours;
	ck_assert_int_eq(poll(&p, 1, 5000), 1);
	ck_assert(stream_true_error(s, atomic_load(&s->gen)));
	ck_assert_int_eq(stamps(), 1);
	on = 0;
	setsockopt(ours, SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof(on));
	learn_anew();		/* and it is never learned again */
	ck_assert_int_eq(say("x", 1), 1);
	ck_assert_int_eq(atomic_load(&s->learn.state), LEARN_FAILED);
}
END_TEST

/* By a call that the library has not seen. */
START_TEST(left_alone_unseen)
{
	struct pollfd p = { .events = POLLIN };

	known_stream();
	stamped_send();
	p.fd = ours;
	ck_assert_int_eq(poll(&p, 1, 5000), 1);
	ck_assert(stream_learned(s));
	ck_assert(stream_true_error(s, atomic_load(&s->gen)));
	ck_assert_int_eq(stamps(), 1);
}
END_TEST

/* Before the packet is acknowledged: it may be sent again, and bring a header for the program. */
START_TEST(left_when_acknowledged)
{
	uint64_t t = now_us();

	connected("127.0.0.1");
	learn_anew();
	ck_assert_int_eq(say("first", 5), 5);
	s->learn.before += 100;		/* as if it were not */
	stream_learn_leave(s, atomic_load(&s->gen));
	ck_assert_uint_ge(now_us() - t, 200000);
	ck_assert(!stream_learned(s));
}
END_TEST

/* ---- an end that only reads */

/* The other end's bytes come all the time. What stream_learn_check() says in the end. */
static int come;
static int checked(uint32_t claim)
{
	int r = 0;

	come = 0;

	for (int i = 0; i < 1000 && !r; i++) {
		r = stream_learn_check(s, 7, claim, now_us());
		ck_assert_int_eq(send(theirs, "more", 4, 0), 4);
		come++;
		usleep(1000);
	}
	return r;
}

static void reads_only(void)
{
	connected("127.0.0.1");
	stream_learn_want(s);
	ck_assert(stream_learn_silent(s));
}

static int filters(void)
{
	socklen_t n = 0;

	ck_assert_int_eq(getsockopt(ours, SOL_SOCKET, SO_GET_FILTER, NULL, &n), 0);
	return (int)n;
}

static void all_bytes_come(void)
{
	char c[4];

	for (int i = 0; i < come; i++) {
		ck_assert_int_eq(recv(ours, c, 4, MSG_WAITALL), 4);
		ck_assert_int_eq(memcmp(c, "more", 4), 0);
	}
}

START_TEST(told_rightly)
{
	uint32_t isn;

	reads_only();
	isn = kept_isn();
	if (_i) {	/* it has said something before */
		ck_assert_int_eq(send(ours, "hello", 5, 0), 5);
		hear(5);
	}
	ck_assert_int_eq(checked(isn), 1);
	ck_assert(learn_known(&s->learn));
	ck_assert_uint_eq(s->learn.own, isn);
	ck_assert_uint_eq(s->learn.peer, 7);
	ck_assert_int_eq(filters(), 0);
	ck_assert(!(atomic_load(&s->learns) & LEARNS_WANT));
}
END_TEST

/* Not even by one, and then nothing is lost. */
START_TEST(told_wrongly)
{
	int32_t by[] = { -1000, -2, -1, 1, 2, 1000 };

	reads_only();
	ck_assert_int_lt(checked(kept_isn() + (uint32_t)by[_i]), 0);
	ck_assert(!learn_known(&s->learn));
	ck_assert_int_eq(filters(), 0);
	all_bytes_come();
}
END_TEST

/* What is sent meanwhile is acknowledged by packets that come in, as is a FIN, which nobody looks
 * at any more after a close; a child may have the socket. */
START_TEST(no_filter_then)
{
	int same;

	reads_only();
	same = dup(ours);
	ck_assert_int_eq(stream_learn_check(s, 7, kept_isn(), now_us()), 0);
	ck_assert_int_ne(filters(), 0);
	switch (_i) {
	case 0:
		ck_assert_int_eq(say("x", 1), 1);
		hear(1);
		break;
	case 1:
		stream_learn_leave(s, atomic_load(&s->gen));
		break;
	case 2:
		hold_over(s);	/* before a fork, an exec, and for good */
		break;
	case 3:
		ck_assert_int_eq(stream_shutdown(s, atomic_load(&s->gen), ours, SHUT_WR), 0);
		break;
	case 4:
		ck_assert_int_eq(stream_close(s, ours), 0);
		break;
	}
	ours = same;
	ck_assert_int_eq(filters(), 0);
}
END_TEST

/* The program's own stays. */
START_TEST(its_own_filter)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
	struct sock_fprog prog = { 1, &all };

	reads_only();
	ck_assert_int_eq(setsockopt(ours, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)), 0);
	ck_assert_int_lt(checked(kept_isn()), 0);
	ck_assert_int_eq(filters(), 1);
}
END_TEST

/* The other end is gone without a word, and our kernel asks for it. What answers says so once. */
START_TEST(a_reset_passes)
{
	struct pollfd p;
	int one = 1, error = 0;
	socklen_t len = sizeof(error);

	reads_only();
	if (setsockopt(theirs, IPPROTO_TCP, TCP_REPAIR, &one, sizeof(one)) < 0)
		return;		/* CAP_NET_ADMIN */
	setsockopt(ours, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
	setsockopt(ours, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
	setsockopt(ours, IPPROTO_TCP, TCP_KEEPCNT, &one, sizeof(one));
	setsockopt(ours, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	ck_assert_int_eq(stream_learn_check(s, 7, kept_isn(), now_us()), 0);
	close(theirs);
	p = (struct pollfd){ .fd = ours };
	ck_assert_int_eq(poll(&p, 1, 10000), 1);
	getsockopt(ours, SOL_SOCKET, SO_ERROR, &error, &len);
	ck_assert_int_eq(error, ECONNRESET);	/* ETIMEDOUT where it went lost */
}
END_TEST

/* While something is unacknowledged nothing is learned, and the send is as ever. */
START_TEST(not_while_under_way)
{
	int small = 1, r;

	connected("127.0.0.1");
	setsockopt(theirs, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	fcntl(ours, F_SETFL, O_NONBLOCK);
	atomic_store(&s->nonblock, 1);
	do {
		static char buf[65536];

		r = (int)say(buf, sizeof(buf));
	} while (r > 0);
	ck_assert_int_eq(r, -EAGAIN == r ? -EAGAIN : -1);
	learn_anew();
	ck_assert_int_lt(say("x", 1), 0);
	ck_assert_int_eq(atomic_load(&s->learn.state), LEARN_NOT);
	ck_assert(atomic_load(&s->learns) & LEARNS_WANT);
}
END_TEST

START_TEST(no_error_is_seen)
{
	pthread_t t[WAITERS];
	long known = 0;

	connected("127.0.0.1");
	all_wait(t);
	for (long i = 0; i < LEARNS; i++) {
		learn_anew();
		ck_assert_int_eq(say("x", 1), 1);
		known += learn_known(&s->learn);
		hear(1);
	}
	ck_assert_int_eq(atomic_load(&wrong), 0);
	/* the rest: another thread had the header in its hand */
	ck_assert_int_gt(known, LEARNS / 2);
	atomic_store(&stop, true);
	all_end(t);
}
END_TEST

/* A reset while it is learned. */
START_TEST(the_reset_is_seen)
{
	struct linger now = { 1, 0 };
	pthread_t t[WAITERS];

	connected("127.0.0.1");
	setsockopt(theirs, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	all_wait(t);
	for (int i = 0; i < 50; i++) {
		learn_anew();
		ck_assert_int_eq(say("x", 1), 1);
	}
	learn_anew();
	atomic_store(&reset, true);
	say("x", 1);
	close(theirs);
	all_end(t);		/* each ends when it is told */
	for (int w = 0; w < WAITERS; w++)
		ck_assert_int_eq(atomic_load(&seen[w]), 1);
	ck_assert_int_eq(atomic_load(&wrong), 0);
}
END_TEST

int main(void)
{
	Suite *all = suite_create("learn");
	TCase *c = tcase_create("learn");

	tcase_set_timeout(c, 150);
	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, isns_of_ipv4);
	tcase_add_test(c, isns_of_ipv6);
	tcase_add_test(c, large_sends);
	tcase_add_test(c, not_split);
	tcase_add_test(c, left_alone);
	tcase_add_test(c, left_alone_later);
	tcase_add_test(c, left_alone_unseen);
	tcase_add_test(c, left_when_acknowledged);
	tcase_add_loop_test(c, told_rightly, 0, 2);
	tcase_add_loop_test(c, told_wrongly, 0, 6);
	tcase_add_loop_test(c, no_filter_then, 0, 5);
	tcase_add_test(c, its_own_filter);
	tcase_add_test(c, a_reset_passes);
	tcase_add_test(c, not_while_under_way);
	tcase_add_test(c, no_error_is_seen);
	tcase_add_loop_test(c, the_reset_is_seen, 0, 50);
	suite_add_tcase(all, c);
	return run_suite(all);
}
