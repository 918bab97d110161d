/*
 * peer.h - the library's control protocol (shim/link/link.h) spoken by hand: what a peer does
 * that is genuine up to the moment at which it begins to lie. For peer.c only; single-threaded;
 * anything that goes wrong here ends the process with status 1.
 */
#ifndef PEER_H
#define PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../shim/cut/cut.h"
#include "../../shim/link/link.h"

#define MAX_FDS 16

struct peer {
	bool server;			/* the victim called us */
	int tcp, name, ctl;
	struct segment a;
	struct ctl_tuple tuple;		/* as we see it */
	uint32_t slot;
	int bell[BELL_MAX];		/* the victim's */
	int my_bell;
	int got_fd;			/* beside the last record, or -1 */
	uint64_t sent, got;		/* on TCP */
	struct ring_tx tx;
	struct ring_rx rx;
	bool tx_on, rx_on;
	uint32_t tx_epoch, rx_epoch;
};

static const char *scenario = "?";

static void __attribute__((noreturn, format(printf, 1, 2))) broken(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "peer: %s: ", scenario);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

/* The victim did what it should, and did it late: a machine whose processors were taken from it
 * for a while does so once, but not in try after try. */
#define EXIT_LATE 78
static void __attribute__((noreturn)) late(const char *what, int ms)
{
	fprintf(stderr, "peer: %s: %s (%d ms)\n", scenario, what, ms);
	exit(EXIT_LATE);
}

/* The scenario needs what this machine, or this chroot, does not have. */
#define NOT_HERE 77
static void __attribute__((noreturn)) not_here(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", scenario, what);
	exit(NOT_HERE);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void nap(int ms) { poll(NULL, 0, ms); }

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) > 0;
}

/* ---- TCP and the name ---- */

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void tuple_of(int fd, struct ctl_tuple *t)
{
	struct sockaddr_in l = { 0 }, p = { 0 };
	socklen_t n = sizeof l;

	getsockname(fd, (void *)&l, &n);
	n = sizeof p;
	getpeername(fd, (void *)&p, &n);
	memset(t, 0, sizeof *t);
	t->family = AF_INET;
	t->lport = ntohs(l.sin_port);
	t->pport = ntohs(p.sin_port);
	memcpy(t->laddr, &l.sin_addr, 4);
	memcpy(t->paddr, &p.sin_addr, 4);
}

static socklen_t name_of(const struct peer *h, struct sockaddr_un *un)
{
	const struct ctl_tuple *t = &h->tuple;
	uint16_t c = h->server ? t->pport : t->lport, s = h->server ? t->lport : t->pport;
	const uint8_t *ca = h->server ? t->paddr : t->laddr, *sa = h->server ? t->laddr : t->paddr;
	char text[sizeof un->sun_path];
	int n = snprintf(text, sizeof text, "rdmashim1.%04x%04x", c, s);

	for (int i = 0; i < 32; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, "%02x",
			      i < 16 ? ca[i] : sa[i - 16]);
	memset(un, 0, sizeof *un);
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path + 1, text, (size_t)n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Reads all that TCP has now, up to `max`. */
static void tcp_drain(struct peer *h, uint64_t max)
{
	char buf[65536];
	ssize_t n;

	while (max &&
	       (n = recv(h->tcp, buf, max < sizeof buf ? max : sizeof buf, MSG_DONTWAIT)) > 0) {
		h->got += (uint64_t)n;
		max -= (uint64_t)n;
	}
}

/* As a socket that the library knows (socket_mark()): whoever does not look like that is
 * searched for for 50 ms only. */
static inline void claim(int fd)
{
	int off = 0;

	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off);
}

/* A connection with the victim that has carried a byte each way, so that it may earn. */
static void peer_call(struct peer *h, int port)
{
	struct sockaddr_in a = loopback(port);

	*h = (struct peer){ .tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .name = -1,
			    .ctl = -1, .got_fd = -1 };
	memset(h->bell, -1, sizeof h->bell);
	claim(h->tcp);
	if (connect(h->tcp, (void *)&a, sizeof a) || send(h->tcp, "x", 1, 0) != 1 ||
	    !readable(h->tcp, 3000))
		broken("no TCP service at port %d", port);
	h->sent = 1;
	tcp_drain(h, UINT64_MAX);
	tuple_of(h->tcp, &h->tuple);
}

static void peer_take(struct peer *h, int listener)
{
	*h = (struct peer){ .server = true, .name = -1, .ctl = -1, .got_fd = -1 };
	memset(h->bell, -1, sizeof h->bell);
	if (!readable(listener, 5000))
		broken("the victim does not call");
	h->tcp = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (h->tcp < 0 || !readable(h->tcp, 3000))
		broken("the victim says nothing");
	tuple_of(h->tcp, &h->tuple);
}

/* Connects to the victim's name. -1 if it does not appear. */
static int try_call_victim(struct peer *h, int ms)
{
	struct sockaddr_un un;
	socklen_t len = name_of(h, &un);
	int64_t end = now_ms() + ms;

	do {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		if (!connect(fd, (void *)&un, len))
			return fd;
		close(fd);
		nap(2);
	} while (now_ms() < end);
	return -1;
}

static int call_victim(struct peer *h)
{
	int fd = try_call_victim(h, 3000);

	if (fd < 0)
		broken("the victim opens no discovery socket");
	return fd;
}

static void open_name(struct peer *h)
{
	struct sockaddr_un un;
	socklen_t len = name_of(h, &un);

	h->name = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(h->name, (void *)&un, len) || listen(h->name, 64))
		broken("bind: %s", strerror(errno));
}

/* ---- records ---- */

static int say_raw(int sock, const void *rec, size_t len, const int *fds, int n)
{
	struct iovec iov = { (void *)rec, len };
	union { char buf[CMSG_SPACE(MAX_FDS * sizeof(int))]; struct cmsghdr align; } c = { 0 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		struct cmsghdr *cm;

		m.msg_control = c.buf;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, (size_t)n * sizeof(int));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static struct ctl_msg record(unsigned type, uint32_t slot, uint32_t index, uint32_t epoch,
			     uint64_t off)
{
	return (struct ctl_msg){ .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot,
				 .index = index, .epoch = epoch, .off = off };
}

static int say(struct peer *h, struct ctl_msg m, int fd)
{
	return say_raw(h->ctl, &m, sizeof m, &fd, fd >= 0);
}

static int say_cut(struct peer *h, unsigned msg, uint32_t epoch, uint64_t off)
{
	return say(h, record(CTL_CUT, h->slot, msg, epoch, off), -1);
}

static int hear_raw(struct peer *h, struct ctl_msg *m)
{
	struct iovec iov = { m, sizeof *m };
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } c;
	struct msghdr g = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf,
			    .msg_controllen = sizeof c.buf };
	ssize_t n = recvmsg(h->ctl, &g, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *cm;

	h->got_fd = -1;
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return -1;
	if (n != sizeof *m || m->version != CTL_VERSION)
		broken("the victim said %zd bytes, version %u", n, m->version);
	cm = CMSG_FIRSTHDR(&g);
	if (cm && cm->cmsg_type == SCM_RIGHTS)
		memcpy(&h->got_fd, CMSG_DATA(cm), sizeof(int));
	return 1;
}

/* 1 record, 0 nothing within ms, -1 the victim closed. Keeps the fd beside it in got_fd; knows
 * BELL itself. */
static int hear(struct peer *h, struct ctl_msg *m, int ms)
{
	int64_t end = now_ms() + ms;

	for (;;) {
		int left = (int)(end - now_ms()), r;

		if (!readable(h->ctl, left > 0 ? left : 0))
			return 0;
		if (h->got_fd >= 0)
			close(h->got_fd);
		r = hear_raw(h, m);
		if (r < 0)
			return -1;
		if (r != 1)
			continue;
		if (m->type != CTL_BELL)
			return 1;
		if (m->index < BELL_MAX) {
			if (h->bell[m->index] >= 0)
				close(h->bell[m->index]);
			h->bell[m->index] = h->got_fd;
			h->got_fd = -1;
		}
	}
}

static bool hear_type(struct peer *h, unsigned type, struct ctl_msg *m, int ms)
{
	int64_t end = now_ms() + ms;
	int r;

	while ((r = hear(h, m, (int)(end - now_ms()))) == 1)
		if (m->type == type)
			return true;
	return false;
}

/* Wakes the victim, whatever it waits for. */
static void ring_all(struct peer *h)
{
	segment_notify(&h->a, h->slot);
	for (int i = 0; i < BELL_MAX; i++)
		if (h->bell[i] >= 0)
			bell_ring_fd(h->bell[i]);
}

/* ---- the genuine way ---- */

/* HELLO on h->ctl, and what the victim makes for the link. */
static bool ask_in(struct peer *h, int ms)
{
	struct ctl_msg m;

	return !say(h, record(CTL_HELLO, 0, 0, 0, 0), -1) && hear_type(h, CTL_WELCOME, &m, ms) &&
	       h->got_fd >= 0 && !segment_attach(&h->a, h->got_fd);
}

/* The first slot that is ours to ask for. */
static uint32_t first_slot(const struct peer *h) { return h->a.me ? h->a.slots / 2 : 0; }

static void hello(struct peer *h)
{
	h->ctl = call_victim(h);
	if (!ask_in(h, 3000))
		broken("not welcome");
}

static void welcome(struct peer *h)
{
	struct ctl_msg m;
	int fd;

	if (!readable(h->name, 4000))
		broken("the victim does not connect");
	h->ctl = accept4(h->name, NULL, NULL, SOCK_CLOEXEC);
	if (hear(h, &m, 3000) != 1 || m.type != CTL_HELLO || h->got_fd >= 0)
		broken("no HELLO");
	if (segment_create(&h->a, 16, 65536, 1 << 20, &fd) ||
	    say(h, record(CTL_WELCOME, 0, 0, 0, 0), fd))
		broken("WELCOME");
	close(fd);
}

static void tell_bell(struct peer *h)
{
	h->my_bell = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	say(h, record(CTL_BELL, 0, 0, 0, 0), h->my_bell);
}

static int say_bind(struct peer *h, uint32_t slot, int fd)
{
	struct ctl_msg m = record(CTL_BIND, slot, 0, 0, 0);

	m.tuple = h->tuple;
	return say(h, m, fd);
}

static void peer_link(struct peer *h)
{
	if (h->server) {
		if (h->name < 0)
			open_name(h);
		welcome(h);
	} else {
		hello(h);
	}
	tell_bell(h);
}

static void peer_bind(struct peer *h)
{
	struct ctl_msg m;

	if (!h->server) {
		h->slot = first_slot(h);
		segment_slot_reset(&h->a, h->slot);
		if (say_bind(h, h->slot, h->tcp) || !hear_type(h, CTL_BOUND, &m, 3000))
			broken("not bound");
	} else {
		struct ctl_tuple rev = { 0 };

		if (!hear_type(h, CTL_BIND, &m, 3000))
			broken("no BIND");
		rev = m.tuple;
		if (rev.lport != h->tuple.pport || rev.pport != h->tuple.lport)
			broken("BIND for another connection");
		h->slot = m.slot;
		m = record(CTL_BOUND, m.slot, 0, 0, 0);
		m.tuple = h->tuple;
		if (say(h, m, h->tcp))
			broken("BOUND");
	}
	segment_ring_tx(&h->a, h->slot, &h->tx);
	segment_ring_rx(&h->a, h->slot, &h->rx);
}

/* Answers what the victim says about cuts. -1: it closed. */
static int answer(struct peer *h, int ms)
{
	struct ctl_msg m;
	int r = hear(h, &m, ms);

	if (r != 1 || m.type != CTL_CUT)
		return r;
	switch (m.index) {
	case CUT_MSG_ARM:
		h->rx_epoch = m.epoch;
		say_cut(h, CUT_MSG_ARMED, m.epoch, 0);
		break;
	case CUT_MSG_CUT:
		tcp_drain(h, m.off - h->got);
		ring_rx_open(&h->rx, m.off);
		say_cut(h, CUT_MSG_CUT_OK, m.epoch, 0);
		h->rx_on = true;
		break;
	case CUT_MSG_ARMED:
		if (h->tx_on)
			break;
		h->tx_epoch = m.epoch;
		ring_tx_open(&h->tx, m.epoch, h->sent);
		say_cut(h, CUT_MSG_CUT, m.epoch, h->sent);
		break;
	case CUT_MSG_CUT_OK:
		h->tx_on = true;
		break;
	}
	return 1;
}

/* Both directions on the rings. */
static void peer_path(struct peer *h)
{
	int64_t end = now_ms() + 4000;

	say_cut(h, CUT_MSG_ARM, 1, 0);
	while (!h->tx_on || !h->rx_on) {
		tcp_drain(h, h->rx_on ? 0 : UINT64_MAX);
		if (answer(h, 20) < 0 || now_ms() > end)
			broken("no way onto the path (send %d, receive %d)", h->tx_on, h->rx_on);
	}
}

static void put(struct peer *h, const void *p, size_t n)
{
	ring_tx_refresh(&h->tx);
	if (ring_tx_room(&h->tx) < n)
		return;
	ring_tx_copy(&h->tx, 0, p, n);
	ring_tx_publish(&h->tx, n);
	ring_all(h);
}

/* Takes what the victim has put into the ring; returns how much, -1 if that is nonsense. */
static int64_t take(struct peer *h)
{
	uint64_t n;

	if (ring_rx_refresh(&h->rx))
		return -1;
	n = ring_rx_avail(&h->rx);
	ring_rx_consume(&h->rx, n);
	if (segment_room_wanted(&h->rx))
		ring_all(h);
	return (int64_t)n;
}

#endif
