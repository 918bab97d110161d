/* learn.c - see learn.h. No locks. */
#include "netns/learn.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/sock.h"
#include "base/sys.h"

/* ---- the header ---- */

#define ETHER_LEN   14
#define ETHER_VLAN  4
#define HEADER_MOST 192

static uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static uint32_t be32(const uint8_t *p) { return be16(p) << 16 | be16(p + 2); }

/* TCP's header in n bytes that begin with one of IP, and how long the segment is. 0: it is none. */
static size_t in_ip(const uint8_t *p, size_t n, size_t *ret_len)
{
	size_t at, all;

	if (n < 40)
		return 0;
	if (p[0] >> 4 == 4 && p[9] == IPPROTO_TCP) {
		at = (p[0] & 15u) * 4;
		all = be16(p + 2);
	} else if (p[0] >> 4 == 6 && p[6] == IPPROTO_TCP) {
		at = 40;
		all = be16(p + 4) + 40;
	} else {
		return 0;
	}
	if (at < 20 || at + 20 > n || all < at + 20)
		return 0;
	*ret_len = all - at;
	return at;
}

/* Where the packet begins, and what it acknowledges; it has at least so many bytes. Before IP's
 * header it has what the device needs: nothing, Ethernet's, or that of a VLAN. */
static bool read_header(const uint8_t *p, size_t n, size_t least, uint32_t *seq, uint32_t *ack)
{
	static const uint8_t before[] = { ETHER_LEN, 0, ETHER_LEN + ETHER_VLAN };
	size_t at = 0, len = 0, head;

	for (size_t i = 0; i < sizeof(before) && !at; i++) {
		at = n > before[i] ? in_ip(p + before[i], n - before[i], &len) : 0;
		at = at ? at + before[i] : 0;
	}
	if (!at)
		return false;
	head = (p[at + 12] >> 4) * 4u;
	if (head < 20 || head + least > len)
		return false;
	*seq = be32(p + at + 4);
	*ack = be32(p + at + 8);
	return true;
}

/* A stamp's, and not an ICMP error's: those are not asked for. */
static bool is_stamp(struct msghdr *h)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		const struct sock_extended_err *e = (const void *)CMSG_DATA(c);

		if (((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
		     (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR)) &&
		    c->cmsg_len >= CMSG_LEN(sizeof(*e)))
			return e->ee_origin == SO_EE_ORIGIN_TIMESTAMPING;
	}
	return false;
}

/* Empties the error queue. The first header is kept. */
static void drain(struct learn *l, int fd)
{
	uint8_t packet[HEADER_MOST];
	_Alignas(struct cmsghdr) char ctl[256];
	uint32_t seq, ack;

	for (;;) {
		struct iovec iov = { packet, sizeof(packet) };
		struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl,
				    .msg_controllen = sizeof(ctl) };
		uint8_t none = 0;
		long n = sys(SYS_recvmsg, fd, &h, MSG_ERRQUEUE | MSG_DONTWAIT);

		if (n < 0)
			return;
		if (!is_stamp(&h) || !read_header(packet, (size_t)n, l->sent, &seq, &ack) ||
		    (l->own_known && seq != l->own + 1 + l->before) ||	/* of an earlier try */
		    !atomic_compare_exchange_strong(&l->taken, &none, 1))
			continue;
		l->seq = seq;
		l->ack = ack;
		atomic_store(&l->taken, 2);
	}
}

/* ---- learning ---- */

enum { ESTABLISHED = 1, CLOSE = 7 };	/* include/net/tcp_states.h */

static bool option_on(int fd, int level, int name)
{
	int v = 0;
	uint32_t len = sizeof(v);

	return sys(SYS_getsockopt, fd, level, name, &v, &len) >= 0 && v;
}

bool learn_disturbs(int fd)
{
	return option_on(fd, SOL_SOCKET, SO_TIMESTAMPING) ||
	       option_on(fd, SOL_SOCKET, SO_ZEROCOPY) || option_on(fd, SOL_IP, IP_RECVERR) ||
	       option_on(fd, SOL_IPV6, IPV6_RECVERR);
}

static void counts_of(const struct tcp_info *i, bool client, struct learn_counts *c)
{
	c->sent = (uint32_t)(i->tcpi_bytes_sent - i->tcpi_bytes_retrans);
	c->received = (uint32_t)i->tcpi_bytes_received;
	c->acked = (uint32_t)i->tcpi_bytes_acked - client;	/* its SYN counts */
}

bool learn_count(int fd, bool client, struct learn_counts *c)
{
	struct tcp_info i = { .tcpi_state = 0 };

	if (!socket_tcp_info(fd, &i) || i.tcpi_state != ESTABLISHED)
		return false;
	counts_of(&i, client, c);
	return true;
}

static bool all_acknowledged(int fd)
{
	int left = 1;

	return sys(SYS_ioctl, fd, SIOCOUTQ, &left) >= 0 && !left;
}

/* Another try may be made; the own ISN stays. */
static void again(struct learn *l)
{
	atomic_store(&l->state, ++l->tries < LEARN_TRIES ? LEARN_AGAIN : LEARN_FAILED);
}

/* The header is there. Where more bytes have come by now than before the packet it is not known
 * which of them it acknowledges. Mostly none: an answer that is as fast as we are. So the same
 * number from another try will do; and a wrong one does no harm, for nobody else has it. */
static void conclude(struct learn *l, const struct learn_counts *now)
{
	uint32_t peer;
	bool sure;

	if (l->spoiled) {
		again(l);
		return;
	}
	l->own = l->seq - l->before - 1;
	l->own_known = true;
	peer = l->ack - l->received - 1;
	sure = now->received == l->received || (l->peer_seen && peer == l->peer);
	l->peer = peer;
	l->peer_seen = true;
	if (sure)
		atomic_store(&l->state, LEARN_KNOWN);
	else
		again(l);
}

ssize_t learn_send(struct learn *l, int fd, const void *p, size_t n, int flags)
{
	const uint32_t what = SOF_TIMESTAMPING_TX_SCHED;
	union { char buf[CMSG_SPACE(sizeof(what))]; struct cmsghdr align; } ctl = { .buf = "" };
	struct iovec iov = { (void *)p, n };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			    .msg_controllen = sizeof(ctl.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	struct learn_counts before, after;
	struct tcp_info i = { .tcpi_state = 0 };
	long r;

	if (flags & MSG_MORE || !all_acknowledged(fd) || !socket_tcp_info(fd, &i) ||
	    i.tcpi_state != ESTABLISHED || !i.tcpi_snd_mss)
		return -ENODATA;
	counts_of(&i, false, &before);
	if (n > i.tcpi_snd_mss)		/* less would make Nagle's algorithm hold back the rest */
		iov.iov_len = i.tcpi_snd_mss;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SO_TIMESTAMPING;
	c->cmsg_len = CMSG_LEN(sizeof(what));
	memcpy(CMSG_DATA(c), &what, sizeof(what));
	l->before = before.sent;
	l->received = before.received;
	l->sent = (uint32_t)iov.iov_len;
	l->spoiled = false;
	atomic_store(&l->taken, 0);
	atomic_store(&l->state, LEARN_SENT);	/* from here on a poll may find the header */
	r = sys(SYS_sendmsg, fd, &h, flags);
	if (r != (long)iov.iov_len || !learn_count(fd, false, &after)) {
		drain(l, fd);
		atomic_store(&l->state, r < 0 ? LEARN_AGAIN : LEARN_FAILED);
		return r;
	}
	/* Another thread has sent, too, and nobody can say whose bytes come first. */
	l->spoiled = after.sent - before.sent > l->sent;
	drain(l, fd);
	if (atomic_load(&l->taken) == 2)
		conclude(l, &after);
	return r;
}

bool learn_settle(struct learn *l, int fd)
{
	struct learn_counts now;

	if (atomic_load(&l->state) != LEARN_SENT)
		return true;
	if (learn_disturbs(fd)) {	/* since then: what lies there now is the program's */
		atomic_store(&l->state, LEARN_FAILED);
		return true;
	}
	drain(l, fd);
	if (atomic_load(&l->taken) != 2)
		return false;
	if (learn_count(fd, false, &now))
		conclude(l, &now);
	else
		atomic_store(&l->state, LEARN_FAILED);
	return true;
}

bool learn_may_come(struct learn *l, int fd, bool client)
{
	struct learn_counts c;

	return atomic_load(&l->state) != LEARN_NOT && learn_count(fd, client, &c) &&
	       (int32_t)(c.acked - (l->before + l->sent)) < 0;
}

void learn_leave(struct learn *l, int fd)
{
	if (!learn_disturbs(fd))
		drain(l, fd);
	if (!learn_known(l))
		atomic_store(&l->state, LEARN_FAILED);
}

/* ---- what the other end says ---- */

#define CHECK_FIRST_US 10000	/* packets that came before the filter are through by then */
#define CHECK_MOST_US  200000
enum { RST = 4, ACK = 16 };	/* in byte 13 of a TCP header */
#define DROPS	       8	/* SK_MEMINFO_DROPS in linux/sock_diag.h */

static uint32_t drops_of(int fd)
{
	uint32_t v[DROPS + 1] = { 0 }, len = sizeof(v);

	sys(SYS_getsockopt, fd, SOL_SOCKET, SO_MEMINFO, v, &len);
	return v[DROPS];
}

/* Nobody's filter may go lost. */
static bool has_filter(int fd)
{
	uint32_t len = 0;

	return sys(SYS_getsockopt, fd, SOL_SOCKET, SO_GET_FILTER, NULL, &len) != 0 || len;
}

bool learn_check_begin(struct learn *l, int fd, uint32_t claim, uint64_t now)
{
	struct learn_counts c;
	struct sock_filter f[] = {
		/* what answers a packet of ours when the other end is gone acknowledges nothing,
		 * and does not come again */
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, RST | ACK),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RST, 9, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8),	/* what it acknowledges */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 7, 0),
		/* and our FIN, if we are killed: but bytes would make of it another ISN */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 7),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12),	/* the header's length */
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x3c),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog prog = { sizeof(f) / sizeof(*f), f };

	if (has_filter(fd) || !all_acknowledged(fd) || !learn_count(fd, false, &c))
		return false;
	f[4].k = claim + 1 + c.sent;
	f[5].k = f[4].k + 1;
	l->claim = claim;
	l->dropped = drops_of(fd);
	l->since_us = now;
	l->heard_known = false;
	return sys(SYS_setsockopt, fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) >= 0;
}

int learn_check_look(struct learn *l, int fd, uint64_t now)
{
	struct learn_counts c;

	if (!learn_count(fd, false, &c))
		return -ETIMEDOUT;
	if (!l->heard_known) {
		l->heard_known = now >= l->since_us + CHECK_FIRST_US;
		l->heard = c.received;
		return 0;
	}
	if (drops_of(fd) == l->dropped) {
		if (c.received != l->heard)
			return 1;
		return now < l->since_us + CHECK_MOST_US ? 0 : -ETIMEDOUT;
	}
	/* by the filter, or for a reason of TCP's: then it is tried anew */
	return c.received != l->heard ? -ETIMEDOUT : now < l->since_us + CHECK_MOST_US ? 0 : -1;
}

void learn_check_end(int fd)
{
	int none = 0;

	sys(SYS_setsockopt, fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none));
}

/* ---- errors ---- */

static short asked_again(int fd)
{
	struct pollfd p = { .fd = fd };
	struct timespec zero = { 0, 0 };

	return sys(SYS_ppoll, &p, 1, &zero, NULL, 8) > 0 ? p.revents : 0;
}

/*
 * A true error closes the connection, and the error is there before the state is; HUP comes with
 * the state, and is looked at without a lock. Who comes between the two is woken again. With HUP
 * alone both ends have said FIN, perhaps. In CLOSE no copy of a packet comes any more: what the
 * kernel says then, when the queue is empty, is true.
 */
bool learn_true_error(struct learn *l, int fd)
{
	struct tcp_info i = { .tcpi_state = ESTABLISHED };

	if (learn_disturbs(fd))		/* by a call that we have not seen */
		return true;
	drain(l, fd);
	if (!(asked_again(fd) & POLLHUP) || !socket_tcp_info(fd, &i) || i.tcpi_state != CLOSE)
		return false;
	drain(l, fd);
	return asked_again(fd) & POLLERR;
}
