/*
 * semantics.c - what a program sees of a TCP connection in the corners of the socket calls:
 * ends, errors, flags, timeouts, signals, options. Each scenario gets connections that have seen
 * traffic and time, and prints what it found; a run on the kernel alone says what is right.
 * Knows nothing of the library.
 *
 * 	semantics accept|connect [SCENARIO...]	the tester accepts the connections, or makes them
 * 	semantics list				the scenarios
 */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <linux/sockios.h>

#include "pair.h"

#define BATCH 6

static const char *scene;
static volatile sig_atomic_t signals;

/* "scenario: what = value", with the errno's name if the value is -1. */
static void say(const char *what, long v)
{
	if (v == -1)
		printf("%s: %s = %s\n", scene, what, strerrorname_np(errno));
	else
		printf("%s: %s = %ld\n", scene, what, v);
}

static ssize_t take(struct conn *c, size_t n, int flags)
{
	static char b[4 << 20];
	ssize_t r = recv(c->fd, b, n, flags);

	if (r > 0)
		verify(b, r, true, c->rx, scene);
	if (r > 0 && !(flags & MSG_PEEK))
		c->rx += r;
	return r;
}

static ssize_t put(struct conn *c, size_t n, int flags)
{
	static char b[4 << 20];
	ssize_t r;

	fill(b, n, false, c->tx);
	r = send(c->fd, b, n, flags | MSG_NOSIGNAL);
	if (r > 0)
		c->tx += r;
	return r;
}

/* All of the next n bytes from the peer, however they come. */
static void gather(struct conn *c, size_t n)
{
	while (n) {
		ssize_t r = take(c, n, 0);

		if (r <= 0)
			die("%s: %zu bytes missing: %s", scene, n,
			    r ? strerror(errno) : "end of file");
		n -= r;
	}
}

static int so_error(int fd)
{
	int e = -1;
	socklen_t l = sizeof(e);

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &l);
	return e;
}

static const char *bits(int b)
{
	static char s[64];

	snprintf(s, sizeof(s), "%s%s%s%s%s", b & POLLIN ? " IN" : "", b & POLLOUT ? " OUT" : "",
		 b & POLLRDHUP ? " RDHUP" : "", b & POLLERR ? " ERR" : "",
		 b & POLLHUP ? " HUP" : "");
	return s;
}

static void say_poll(const char *what, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP };

	poll(&p, 1, 0);
	printf("%s: %s:%s\n", scene, what, bits(p.revents));
}

/* Coarse: this is about what happened, not about the clock. */
static void say_time(const char *what, uint64_t since, int about)
{
	int ms = (int)(now_ms() - since);

	if (ms >= about - 10 && ms < about + 1500)
		printf("%s: %s after its time\n", scene, what);
	else
		printf("%s: %s after %d ms, not %d\n", scene, what, ms, about);
}

/* What has been sent to us is all there: the first call that shows it may have to wait a moment
 * for the path. */
static void await(struct conn *c, int n)
{
	int have = 0;

	for (int i = 0; i < 2000 && have < n; i++) {
		ioctl(c->fd, FIONREAD, &have);
		if (have < n)
			nap(1);
	}
	if (have != n)
		printf("%s: FIONREAD says %d of %d\n", scene, have, n);
}

static void on_signal(int s)
{
	(void)s;
	signals++;
}

static void handle(int sig, bool restart)
{
	struct sigaction a = { .sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0 };

	signals = 0;
	sigaction(sig, &a, NULL);
}

static void alarm_in(int ms)
{
	struct itimerval t = { .it_value = { ms / 1000, ms % 1000 * 1000 } };

	setitimer(ITIMER_REAL, &t, NULL);
}

#include "semantics-ends.h"

/* ---- timeouts, flags, counts ---- */

static void set_timeo(int fd, int what, int ms)
{
	struct timeval t = { ms / 1000, ms % 1000 * 1000 };

	setsockopt(fd, SOL_SOCKET, what, &t, sizeof(t));
}

static void rcvtimeo(struct conn *c)
{
	uint64_t t = now_ms();

	set_timeo(c->fd, SO_RCVTIMEO, 200);
	say("recv", take(c, 10, 0));
	say_time("recv", t, 200);
	ask(P_SEND, c, 30);
	say("with 30 bytes, MSG_WAITALL", take(c, 50, MSG_WAITALL));
	say_time("both", t, 400);
	later(100, P_SEND, c, 10);
	say("data in time", take(c, 50, 0));
	outcome();
	set_timeo(c->fd, SO_RCVTIMEO, 0);
	later(300, P_SEND, c, 10);
	say("no timeout any more", take(c, 50, 0));
	outcome();
}

static void sndtimeo(struct conn *c)
{
	uint64_t sent = c->tx, t;
	ssize_t r = 1;

	set_timeo(c->fd, SO_SNDTIMEO, 200);
	while (r > 0)
		r = put(c, 1 << 20, 0);
	say("send that nobody reads", r);
	t = now_ms();
	say("and again", put(c, 1 << 20, 0));
	say_time("send", t, 200);
	shutdown(c->fd, SHUT_WR);
	printf("%s: peer got all: %d\n", scene, ask(P_DRAIN, c, 0) == (long)(c->tx - sent));
}

static void peek(struct conn *c)
{
	ask(P_SEND, c, 100);
	await(c, 100);
	say("peek", take(c, 10, MSG_PEEK));
	say("peek more", take(c, 60, MSG_PEEK));
	say("peek all, waiting", take(c, 100, MSG_PEEK | MSG_WAITALL));
	say("recv", take(c, 40, 0));
	say("peek the rest", take(c, 1000, MSG_PEEK | MSG_DONTWAIT));
	say("recv the rest", take(c, 1000, 0));
	say("peek nothing", take(c, 10, MSG_PEEK | MSG_DONTWAIT));
	ask(P_SEND, c, 40000);
	say("peek a lot, waiting", take(c, 40000, MSG_PEEK | MSG_WAITALL));
	gather(c, 40000);
	ask(P_SHUT, c, SHUT_WR);
	say("peek at the end", take(c, 10, MSG_PEEK));
}

static void waitall(struct conn *c)
{
	ask(P_SEND, c, 100);
	later(100, P_SEND, c, 200);
	say("in two parts", take(c, 300, MSG_WAITALL));
	outcome();
	ask(P_SEND, c, 40);
	await(c, 40);
	say("with MSG_DONTWAIT", take(c, 300, MSG_WAITALL | MSG_DONTWAIT));
	later(50, P_SEND, c, 3 << 20);
	say("large", take(c, 3 << 20, MSG_WAITALL));
	outcome();
	ask(P_SEND, c, 50);
	later(100, P_SHUT, c, SHUT_WR);
	say("cut short by the end", take(c, 300, MSG_WAITALL));
	outcome();
	say("then", take(c, 300, MSG_WAITALL));
}

static void dontwait(struct conn *c)
{
	say("recv", take(c, 10, MSG_DONTWAIT));
	say("send", put(c, 10, MSG_DONTWAIT));
	ask(P_RECV, c, 10);
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
	say("O_NONBLOCK recv", take(c, 10, 0));
	say("O_NONBLOCK read", read(c->fd, (char[1]){ 0 }, 1));
	ask(P_SEND, c, 20);
	await(c, 20);
	say("recv of more than there is", take(c, 100, 0));
	fcntl(c->fd, F_SETFL, 0);
	later(50, P_SEND, c, 20);
	say("blocking again", take(c, 100, 0));
	outcome();
}

static void counts(struct conn *c)
{
	int n = -1;

	ioctl(c->fd, FIONREAD, &n);
	say("FIONREAD", n);
	ask(P_SEND, c, 777);
	await(c, 777);
	gather(c, 77);
	for (int i = 0; i < 50; i++) {	/* what is there does not go away */
		ioctl(c->fd, FIONREAD, &n);
		if (n != 700)
			break;
		nap(1);
	}
	say("FIONREAD after 77", n);
	say("SIOCINQ", (ioctl(c->fd, SIOCINQ, &n), n));
	gather(c, 700);
	ioctl(c->fd, FIONREAD, &n);
	say("FIONREAD at last", n);
	put(c, 1000, 0);
	ask(P_RECV, c, 1000);
	for (int i = 0; i < 1000 && (ioctl(c->fd, SIOCOUTQ, &n), n); i++)
		nap(1);
	say("SIOCOUTQ when all is read", n);
}

static void lowat(struct conn *c)
{
	int n = 100;
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	say("set", setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
	ask(P_SEND, c, 50);
	await(c, 50);
	say("poll with 50 of 100", poll(&p, 1, 100));
	later(50, P_SEND, c, 100);
	say("poll with 150", poll(&p, 1, 5000));
	outcome();
	say("recv", take(c, 1000, 0));
	ask(P_SEND, c, 30);
	later(80, P_SEND, c, 190);
	say("blocking recv", take(c, 1000, 0));
	outcome();
	n = 1;
	setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n));
}

static void zero_length(struct conn *c)
{
	char b[4] = "";

	say("send of nothing", send(c->fd, b, 0, 0));
	say("write of nothing", write(c->fd, b, 0));
	say("read of nothing", read(c->fd, b, 0));
	say("recv of nothing, nothing there", recv(c->fd, b, 0, MSG_DONTWAIT));
	ask(P_SEND, c, 10);
	await(c, 10);
	say("recv of nothing, 10 there", recv(c->fd, b, 0, MSG_DONTWAIT));
	gather(c, 10);
	put(c, 5, 0);
	say("peer got", ask(P_RECV, c, 5));
	ask(P_SHUT, c, SHUT_WR);
	say("recv of nothing at the end", recv(c->fd, b, 0, 0));
}

#include "semantics-calls.h"

/* ---- connecting, names, options, descriptors ---- */

static void refused(struct conn *c)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t l = sizeof(a);
	int hole = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	struct pollfd p = { .events = POLLOUT };

	(void)c;
	/* bound, nobody listens */
	if (bind(hole, (void *)&a, l) || getsockname(hole, (void *)&a, &l))
		die("bind");
	say("connect", connect(fd, (void *)&a, sizeof(a)));
	say("SO_ERROR", so_error(fd));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	say("recv before connect", recv(fd, &a, 1, 0));
	say("send before connect", send(fd, &a, 1, MSG_NOSIGNAL));
	say_poll("poll before connect", fd);
	say("non-blocking connect", connect(fd, (void *)&a, sizeof(a)));
	p.fd = fd;
	say("poll", poll(&p, 1, 5000));
	say_poll("poll", fd);
	say("SO_ERROR", so_error(fd));
	say("SO_ERROR again", so_error(fd));
	say_poll("poll", fd);
	say("recv", recv(fd, &a, 1, 0));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect(fd, (void *)&a, sizeof(a));
	poll(&p, 1, 5000);
	say("send that finds the error", send(fd, &a, 1, MSG_NOSIGNAL));
	close(fd);
	close(hole);
}

static void nonblocking_connect(struct conn *c)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(pair_peer_port) };
	struct conn d = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .id = c->id };
	struct pollfd p = { .fd = d.fd, .events = POLLOUT };

	say("connect", connect(d.fd, (void *)&a, sizeof(a)));
	say("poll", poll(&p, 1, 5000));
	say("SO_ERROR", so_error(d.fd));
	say("connect once more", connect(d.fd, (void *)&a, sizeof(a)));
	say("and again", connect(d.fd, (void *)&a, sizeof(a)));
	close(c->fd);
	ask(P_CLOSE, c, 0);
	ask(P_NEW, &d, 0);
	fcntl(d.fd, F_SETFL, 0);
	warm(&d, 1, 60);
	say("connect after traffic", connect(d.fd, (void *)&a, sizeof(a)));
	ask(P_SEND, &d, 1000);
	gather(&d, 1000);
	say("listen on it", listen(d.fd, 5));
	put(&d, 100, 0);
	say("peer got", ask(P_RECV, &d, 100));
	c->fd = d.fd;
}

static int option(int fd, int level, int name)
{
	int v = -1;
	socklen_t l = sizeof(v);

	return getsockopt(fd, level, name, &v, &l) ? -1 : v;
}

static void names(struct conn *c)
{
	struct sockaddr_in a, b;
	socklen_t l = sizeof(a);
	struct tcp_info ti;

	say("getsockname", getsockname(c->fd, (void *)&a, &l));
	say("its length", l);
	l = sizeof(b);
	say("getpeername", getpeername(c->fd, (void *)&b, &l));
	printf("%s: loopback %d %d, the known port %d\n", scene,
	       a.sin_addr.s_addr == htonl(INADDR_LOOPBACK),
	       b.sin_addr.s_addr == htonl(INADDR_LOOPBACK),
	       ntohs(pair_connects ? b.sin_port : a.sin_port) ==
		       (pair_connects ? pair_peer_port : pair_port));
	say("SO_TYPE", option(c->fd, SOL_SOCKET, SO_TYPE));
	say("SO_DOMAIN", option(c->fd, SOL_SOCKET, SO_DOMAIN));
	say("SO_PROTOCOL", option(c->fd, SOL_SOCKET, SO_PROTOCOL));
	say("SO_ACCEPTCONN", option(c->fd, SOL_SOCKET, SO_ACCEPTCONN));
	say("SO_ERROR", option(c->fd, SOL_SOCKET, SO_ERROR));
	say("SO_KEEPALIVE", option(c->fd, SOL_SOCKET, SO_KEEPALIVE));
	say("TCP_NODELAY", option(c->fd, IPPROTO_TCP, TCP_NODELAY));
	say("TCP_KEEPIDLE", option(c->fd, IPPROTO_TCP, TCP_KEEPIDLE));
	say("SO_RCVLOWAT", option(c->fd, SOL_SOCKET, SO_RCVLOWAT));
	say("TCP_CORK", option(c->fd, IPPROTO_TCP, TCP_CORK));
	say("an unknown option", option(c->fd, IPPROTO_TCP, 9999));
	l = sizeof(ti);
	getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &ti, &l);
	say("tcpi_state", ti.tcpi_state);
	say("F_GETFL", fcntl(c->fd, F_GETFL));
	say("F_GETFD", fcntl(c->fd, F_GETFD));
	say("lseek", lseek(c->fd, 0, SEEK_SET));
	say("pread", pread(c->fd, &a, 1, 0));
	say("pwrite", pwrite(c->fd, &a, 1, 0));
	say("accept", accept(c->fd, NULL, NULL));
	say("isatty", isatty(c->fd));
	say("fsync", fsync(c->fd));
	say("bind", bind(c->fd, (void *)&b, sizeof(b)));
	say("setsockopt TCP_NODELAY off",
	    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 0 }, sizeof(int)));
	say("TCP_NODELAY", option(c->fd, IPPROTO_TCP, TCP_NODELAY));
	say("setsockopt SO_KEEPALIVE on",
	    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int)));
	say("SO_KEEPALIVE", option(c->fd, SOL_SOCKET, SO_KEEPALIVE));
	put(c, 100, 0);
	say("peer got", ask(P_RECV, c, 100));
}

static void dups(struct conn *c)
{
	struct conn *d = c + 1;
	int a = dup(c->fd), b, old = c->fd;

	say("close of the first", close(c->fd));
	c->fd = a;
	put(c, 100, 0);
	say("peer got", ask(P_RECV, c, 100));
	ask(P_SEND, c, 100);
	gather(c, 100);
	b = fcntl(c->fd, F_DUPFD_CLOEXEC, 500);
	say("F_DUPFD is at least 500", b >= 500);
	fcntl(b, F_SETFL, O_NONBLOCK);
	say("O_NONBLOCK is shared", take(c, 10, 0));
	fcntl(b, F_SETFL, 0);
	/* dup2 over another connection closes that */
	say("dup2 onto the other", dup2(c->fd, d->fd) == d->fd);
	say("the other's peer", ask(P_DRAIN, d, 0));
	ask(P_SEND, c, 300);
	a = c->fd;
	gather(c, 100);
	c->fd = d->fd;
	gather(c, 100);
	c->fd = b;
	gather(c, 100);
	say("dup2 onto itself", dup2(b, b) == b);
	say("dup2 of a closed one", dup2(old == a ? 987 : old, b));
	close(a);
	close(d->fd);
	put(c, 50, 0);
	say("peer got", ask(P_RECV, c, 50));
	later(50, P_TAKE, c, 1);
	say("peer sees no end yet", (nap(100), outcome()));
	close(b);
	say("the last one closed, peer", ask(P_DRAIN, c, 0));
	c->fd = d->fd = -1;
}

static void cork(struct conn *c)
{
	int on = 1, off = 0;

	say("set", setsockopt(c->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
	for (int i = 0; i < 10; i++)
		put(c, 10, 0);
	say("get", option(c->fd, IPPROTO_TCP, TCP_CORK));
	setsockopt(c->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
	say("peer got", ask(P_RECV, c, 100));
	put(c, 10, MSG_MORE);
	put(c, 10, MSG_MORE);
	put(c, 10, 0);
	say("MSG_MORE, peer got", ask(P_RECV, c, 30));
	put(c, 10, MSG_MORE);
	nap(300);
	say("MSG_MORE for long, peer got", ask(P_RECV, c, 10));
	setsockopt(c->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
	put(c, 10, 0);
	shutdown(c->fd, SHUT_WR);
	say("corked and shut down, peer got", ask(P_DRAIN, c, 0));
}

static void fill_up(struct conn *c)
{
	uint64_t sent = c->tx;
	struct pollfd p = { .fd = c->fd, .events = POLLOUT };
	ssize_t r;

	fcntl(c->fd, F_SETFL, O_NONBLOCK);
	for (int quiet = 0; quiet < 20;) {	/* what is on its way makes room for a while */
		r = put(c, 100000, 0);
		quiet = r < 0 ? quiet + 1 : 0;
		if (r < 0)
			nap(5);
	}
	say("full", r);
	say("poll", poll(&p, 1, 0));
	printf("%s: at least 1 MB went: %d\n", scene, c->tx - sent > 1000000);
	later(50, P_RECV, c, (long)(c->tx - sent));
	say("poll while the peer reads", poll(&p, 1, 5000));
	printf("%s: peer got all: %d\n", scene, outcome() == (long)(c->tx - sent));
	fcntl(c->fd, F_SETFL, 0);
	say("a large send, read late", (later(100, P_RECV, c, 3 << 20), put(c, 3 << 20, 0)));
	say("peer got", outcome());
}

/* Both send a lot before they read. */
static void both_first(struct conn *c)
{
	later(-1, P_SEND, c, 1000000);
	say("send", put(c, 1000000, 0));
	say("peer's send", outcome());
	gather(c, 1000000);
	say("peer got", ask(P_RECV, c, 1000000));
}

static void poll_bits(struct conn *c)
{
	say_poll("nothing there", c->fd);
	ask(P_SEND, c, 10);
	await(c, 10);
	say_poll("data", c->fd);
	gather(c, 10);
	say_poll("read", c->fd);
	put(c, 10, 0);
	say_poll("sent", c->fd);
	ask(P_RECV, c, 10);
	ask(P_SEND, c, 10);
	ask(P_SHUT, c, SHUT_WR);
	nap(20);
	say_poll("data and end", c->fd);
	gather(c, 10);
	say_poll("end", c->fd);
}

static void peer_exits(struct conn *c)
{
	ask(P_SEND, c, 100);
	put(c + 1, 10, 0);
	nap(20);
	ask_later(1, P_EXIT, 0, 0, 0);
	nap(100);
	gather(c, 100);
	say("recv", take(c, 10, 0));
	say("recv where it had something unread", take(c + 1, 10, 0));
	say("and then", take(c + 1, 10, 0));
	say("idle one", take(c + 2, 10, 0));
}

static const struct {
	const char *name;
	void (*run)(struct conn *c);
	int conns;
} scenes[] = {
#define S(f, n) { #f, f, n }
	S(half_close_peer, 1), S(half_close_own, 1), S(shut_rd, 1), S(shut_rdwr, 1),
		S(shut_rdwr_by_peer, 1),
	S(close_with_data_queued, 1), S(close_with_unread, 1), S(close_with_unread_and_data, 1),
		S(own_close_with_unread, 1),
	S(own_close_keeps_what_was_sent, 1), S(linger_peer, 1), S(linger_own, 1),
		S(linger_timed, 1), S(epipe, 1),
	S(shutdown_wakes_recv, 2), S(reset_wakes_recv, 1), S(shutdown_by_thread, 1),
	S(rcvtimeo, 1), S(sndtimeo, 1), S(peek, 1), S(waitall, 1), S(dontwait, 1), S(counts, 1),
		S(lowat, 1), S(zero_length, 1),
	S(vectors, 1), S(messages, 1), S(many_messages, 1), S(send_file, 1),
	S(sig_recv, 1), S(sig_wait, 1), S(sig_send, 1),
	S(refused, 1), S(nonblocking_connect, 1), S(names, 1), S(dups, 2), S(cork, 1),
		S(fill_up, 1), S(both_first, 1), S(poll_bits, 1),
	S(peer_exits, 3),
#undef S
};
#define SCENES (int)(sizeof(scenes) / sizeof(scenes[0]))

static bool asked_for(int i, int argc, char **argv)
{
	for (int k = 2; k < argc; k++)
		if (!strcmp(argv[k], scenes[i].name))
			return true;
	return argc <= 2;
}

static _Atomic uint64_t scene_began;

/* A call that should have come back, and did not. */
static void *watchdog(void *p)
{
	(void)p;
	for (;;) {
		nap(500);
		if (now_ms() - scene_began > 12000)
			die("%s: hangs", scene);
	}
}

int main(int argc, char **argv)
{
	int pid, i = 0;
	pthread_t t;
	sigset_t all, old;

	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (i = 0; i < SCENES; i++)
			puts(scenes[i].name);
		return 0;
	}
	pid = pair_start(argc, argv);
	scene = "start";
	scene_began = now_ms();
	sigfillset(&all);	/* signals are for the main thread */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_create(&t, NULL, watchdog, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);

	signal(SIGPIPE, SIG_IGN);
	alarm(0);
	while (i < SCENES) {
		struct conn c[BATCH + 3];
		int first = i, n = 0;

		/* A batch shares its warm-up. */
		for (; i < SCENES && n + scenes[i].conns <= BATCH; i++)
			if (asked_for(i, argc, argv))
				for (int k = 0; k < scenes[i].conns; k++) {
					if (pair_ids % PAIR_CONNS == 0 || n == 0)
						pair_ids = 0;
					c[n++] = conn_new();
				}
		if (!n)
			continue;
		scene = "warm-up";
		scene_began = now_ms();
		warm(c, n, 100);
		for (int s = first, at = 0; s < i; s++) {
			if (!asked_for(s, argc, argv))
				continue;
			scene = scenes[s].name;
			scene_began = now_ms();
			printf("- %s\n", scene);
			scenes[s].run(&c[at]);
			for (int k = 0; k < scenes[s].conns; k++, at++) {
				if (c[at].fd >= 0)
					close(c[at].fd);
				if (scenes[s].run != peer_exits)
					ask(P_CLOSE, &c[at], 0);
			}
		}
	}
	return pair_end(pid);
}
