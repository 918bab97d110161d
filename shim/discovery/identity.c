/*
 * identity.c - see identity.h. No locks; background thread (process_ended, process_ending: any
 * thread); never blocks for long (netlink answers at once).
 */
#include "discovery/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/fdtab.h"
#include "base/proof.h"
#include "base/shim.h"
#include "base/sys.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71	/* asm-generic/socket.h, since 5.14 */
#endif
#define TCPI_OPT_USEC_TS_ 64	/* linux/tcp.h, since 6.7: the clock counts microseconds */


/* The attributes after the fixed part of an answer. */
static void read_attributes(const struct nlmsghdr *h, struct identity *ret)
{
	const struct rtattr *a = (const void *)((const char *)NLMSG_DATA(h) +
						NLMSG_ALIGN(sizeof(struct inet_diag_msg)));
	long left = (long)h->nlmsg_len -
		    (long)NLMSG_LENGTH(NLMSG_ALIGN(sizeof(struct inet_diag_msg)));

	ret->marked = ret->unmarked = false;
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == INET_DIAG_SOCKOPT &&
		    RTA_PAYLOAD(a) >= sizeof(struct inet_diag_sockopt)) {
			ret->unmarked = ((const struct inet_diag_sockopt *)RTA_DATA(a))->mc_loop;
			ret->marked = !ret->unmarked;
		}
}

#define FORGED_MOST 64

long kernel_answer(int nl, void *buf, size_t size, int flags)
{
	struct sockaddr_nl from;
	uint32_t len;
	long n;

	for (int i = 0; i < FORGED_MOST; i++) {
		from = (struct sockaddr_nl){ .nl_pid = 1 };
		len = sizeof from;
		n = sys(SYS_recvfrom, nl, buf, size, flags, &from, &len);
		if (n < 0 || (len == sizeof from && !from.nl_pid))
			return n;
	}
	return -EPERM;
}

/* One family's view; a v4 connection of a dual-stack socket is found under AF_INET6 as mapped
 * addresses or under AF_INET: the kernel's exact look-up accepts AF_INET for both. Nothing is
 * asked besides for which the kernel takes the lock of that socket, such as INET_DIAG_INFO:
 * whoever has it may have a thread in a call with it that never ends, and then neither does the
 * answer. */
static int query(int nl, int flags, const struct sockaddr *src, const struct sockaddr *dst,
		 struct identity *ret)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} req = { .h = { .nlmsg_len = sizeof req, .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST } };
	union { struct nlmsghdr h; char buf[4096]; } ans;
	int r = -ENOENT;
	long n;

	req.r.sdiag_family = (uint8_t)src->sa_family;
	req.r.sdiag_protocol = IPPROTO_TCP;
	req.r.idiag_states = ~0u;
	req.r.id.idiag_sport = htons(sockaddr_port(src));
	req.r.id.idiag_dport = htons(sockaddr_port(dst));
	sockaddr_addr(src, (uint8_t *)req.r.id.idiag_src);
	sockaddr_addr(dst, (uint8_t *)req.r.id.idiag_dst);
	req.r.id.idiag_cookie[0] = req.r.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	n = sys(SYS_sendto, nl, &req, sizeof req, flags, NULL, 0);
	if (n >= 0)
		n = kernel_answer(nl, &ans, sizeof ans, flags);
	if (n < 0)
		return (int)n;
	if (n < (long)sizeof(struct nlmsghdr))
		return -EPROTO;
	if (ans.h.nlmsg_type == NLMSG_ERROR && n >= (long)NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
		r = ((struct nlmsgerr *)NLMSG_DATA(&ans.h))->error;
		return r ? r : -ENOENT;
	}
	if (ans.h.nlmsg_type == SOCK_DIAG_BY_FAMILY && ans.h.nlmsg_len <= n &&
	    n >= (long)NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
		struct inet_diag_msg *m = NLMSG_DATA(&ans.h);

		/* The look-up falls back to a listener: insist on the connection itself. */
		if (m->id.idiag_dport != req.r.id.idiag_dport ||
		    m->id.idiag_sport != req.r.id.idiag_sport)
			return -ENOENT;
		/* Beside a socket that is bound to a device anybody may make one with the same
		 * names that is bound to none, and that is found. It gets no further than this. */
		if (m->idiag_state == TCP_SYN_SENT)
			return -ENOENT;
		ret->uid = m->idiag_uid;
		ret->inode = m->idiag_inode;
		ret->state = m->idiag_state;
		read_attributes(&ans.h, ret);
		ret->cookie = (uint64_t)m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0];
		r = 0;
	}
	return r;
}

int identity_diag(void)
{
	return fd_moment_sys(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

int identity_query(const struct sockaddr *src, const struct sockaddr *dst, struct identity *ret)
{
	int fd = identity_diag(), r;

	if (fd < 0)
		return fd;
	r = query(fd, 0, src, dst, ret);
	fd_internal_close(fd);
	return r;
}

/* ---- whose network ---- */

/* The number of its network namespace; 0: the kernel does not say. */
static uint64_t network_of(int fd)
{
	uint64_t cookie = 0;
	uint32_t len = sizeof(cookie);

	return sys(SYS_getsockopt, fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

/* That of this thread, which stays in it. */
static uint64_t own_network(void)
{
	static __thread uint64_t own __attribute__((tls_model("initial-exec")));
	int fd;

	if (own)
		return own;
	fd = fd_moment_sys(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	own = network_of(fd);
	fd_internal_close(fd);
	return own;
}

bool identity_finds(int fd, const struct sockaddr *local, const struct sockaddr *peer)
{
	int64_t inode = proof_inode(fd);
	struct identity id;
	int r = identity_query(local, peer, &id);

	return r != -ENOENT && (r || inode <= 0 || id.inode == (uint64_t)inode);
}

bool identity_here(int fd, const struct sockaddr *local, const struct sockaddr *peer)
{
	uint64_t its = network_of(fd), own = its ? own_network() : 0;

	return own ? its == own : identity_finds(fd, local, peer);
}

/* ---- one connection, or two with a proxy between them ---- */

static void put_attribute(struct nlmsghdr *h, unsigned short type, const void *p, size_t n)
{
	struct rtattr *a = (void *)((char *)h + NLMSG_ALIGN(h->nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(n);
	memcpy(RTA_DATA(a), p, n);
	h->nlmsg_len = NLMSG_ALIGN(h->nlmsg_len) + (uint32_t)RTA_SPACE(n);
}

static int option_of(int fd, int name)
{
	int v = 0;
	uint32_t len = sizeof v;

	return sys(SYS_getsockopt, fd, SOL_SOCKET, name, &v, &len) < 0 ? 0 : v;
}

union route_answer { struct nlmsghdr h; char buf[16384]; };

/* Asks the kernel about routes or devices. The answer's size or -errno. */
static long ask(const struct nlmsghdr *req, union route_answer *ans)
{
	int nl = fd_moment_sys(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	long n;

	if (nl < 0)
		return nl;
	n = sys(SYS_sendto, nl, req, req->nlmsg_len, 0, NULL, 0);
	if (n >= 0)
		n = kernel_answer(nl, ans, sizeof(*ans), 0);
	fd_internal_close(nl);
	return n;
}

/* By which way the packets of the connection go. The answer's size or -errno. */
static long route(int fd, const struct sockaddr *local, const struct sockaddr *peer,
		  union route_answer *ans)
{
	struct {
		struct nlmsghdr h;
		struct rtmsg r;
		char attributes[128];
	} req = { .h = { .nlmsg_len = NLMSG_LENGTH(sizeof req.r), .nlmsg_type = RTM_GETROUTE,
			 .nlmsg_flags = NLM_F_REQUEST } };
	uint16_t sport = htons(sockaddr_port(local)), dport = htons(sockaddr_port(peer));
	uint8_t src[16], dst[16], bytes = peer->sa_family == AF_INET6 ? 16 : 4, tcp = IPPROTO_TCP;
	uint32_t scope = peer->sa_family == AF_INET6
				 ? ((const struct sockaddr_in6 *)peer)->sin6_scope_id
				 : 0;
	int mark = option_of(fd, SO_MARK), device = option_of(fd, SO_BINDTOIFINDEX);
	long n;

	sockaddr_addr(local, src);
	sockaddr_addr(peer, dst);
	req.r.rtm_family = (uint8_t)peer->sa_family;
	req.r.rtm_src_len = req.r.rtm_dst_len = (uint8_t)(bytes * 8);
	put_attribute(&req.h, RTA_DST, dst, bytes);
	put_attribute(&req.h, RTA_SRC, src, bytes);
	put_attribute(&req.h, RTA_IP_PROTO, &tcp, sizeof tcp);
	put_attribute(&req.h, RTA_SPORT, &sport, sizeof sport);
	put_attribute(&req.h, RTA_DPORT, &dport, sizeof dport);
	if (mark)
		put_attribute(&req.h, RTA_MARK, &mark, sizeof mark);
	if (!device)
		device = (int)scope;
	if (device)
		put_attribute(&req.h, RTA_OIF, &device, sizeof device);
	n = ask(&req.h, ans);
	if (n < 0)
		return n;
	return n < (long)NLMSG_LENGTH(sizeof(struct rtmsg)) || ans->h.nlmsg_type != RTM_NEWROUTE
		       ? -EXDEV
		       : n;
}

/*
 * One's own address is reached by the loopback device, whatever happens, unless rules of the
 * administrator's send the connection out of the network namespace, to where it may end, and
 * another with the same addresses begin. Not asked where both addresses are loopback ones, which
 * no packet takes along to another device.
 */
int identity_straight(int fd, const struct sockaddr *local, const struct sockaddr *peer)
{
	union route_answer ans;
	long n;

	if (sockaddr_loopback(local) && sockaddr_loopback(peer))
		return 0;
	n = route(fd, local, peer, &ans);
	if (n < 0)
		return (int)n;
	return ((struct rtmsg *)NLMSG_DATA(&ans.h))->rtm_type == RTN_LOCAL ? 0 : -EXDEV;
}

/* The attribute of that type among those behind the fixed part of an answer, or in another
 * attribute; or NULL. */
static const struct rtattr *attribute(const void *first, long left, unsigned short type)
{
	for (const struct rtattr *a = first; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if ((a->rta_type & NLA_TYPE_MASK) == type)
			return a;
	return NULL;
}

static int number(const struct rtattr *a)
{
	int v = 0;

	if (a && RTA_PAYLOAD(a) >= sizeof(v))
		memcpy(&v, RTA_DATA(a), sizeof(v));
	return v;
}

static bool is_kind(const struct rtattr *info, const char *kind)
{
	const struct rtattr *a =
		info ? attribute(RTA_DATA(info), (long)RTA_PAYLOAD(info), IFLA_INFO_KIND) : NULL;

	return a && RTA_PAYLOAD(a) >= strlen(kind) + 1 &&
	       !memcmp(RTA_DATA(a), kind, strlen(kind) + 1);
}

/* Whose other end is another namespace's network, or a process. */
static bool is_inner(const struct rtattr *info)
{
	return is_kind(info, "veth") || is_kind(info, "netkit") || is_kind(info, "tun");
}

/* Where the packets go next: its MAC. False: it is not known, or has none. */
static bool hop_of(int device, int family, const void *addr, size_t len, uint8_t mac[6])
{
	struct {
		struct nlmsghdr h;
		struct ndmsg n;
		char attributes[32];
	} req = { .h = { .nlmsg_len = NLMSG_LENGTH(sizeof req.n), .nlmsg_type = RTM_GETNEIGH,
			 .nlmsg_flags = NLM_F_REQUEST },
		  .n = { .ndm_family = (uint8_t)family, .ndm_ifindex = device } };
	struct nlmsghdr *h = (void *)&req;	/* with what follows it */
	union route_answer ans;
	const struct rtattr *a;
	long n;

	put_attribute(h, NDA_DST, addr, len);
	n = ask(h, &ans);
	if (n < (long)NLMSG_LENGTH(sizeof req.n) || ans.h.nlmsg_type != RTM_NEWNEIGH)
		return false;
	a = attribute((const char *)NLMSG_DATA(&ans.h) + NLMSG_ALIGN(sizeof(struct ndmsg)),
		      n - (long)NLMSG_LENGTH(sizeof(struct ndmsg)), NDA_LLADDR);
	if (!a || RTA_PAYLOAD(a) != 6)
		return false;
	memcpy(mac, RTA_DATA(a), 6);
	return true;
}

#define NOT_ONE (-1)

/* An entry of a bridge's table. *port: of all with that MAC, or NOT_ONE: they differ, or it is a
 * MAC of the bridge's own, or of a port's, behind which there is nobody. */
static void note_entry(const struct nlmsghdr *h, int bridge, const uint8_t mac[6], int *port)
{
	const struct ndmsg *e = NLMSG_DATA(h);
	const char *first = (const char *)e + NLMSG_ALIGN(sizeof(*e));
	long left = (long)h->nlmsg_len - (long)NLMSG_LENGTH(sizeof(*e));
	const struct rtattr *a = attribute(first, left, NDA_LLADDR);

	if (h->nlmsg_type != RTM_NEWNEIGH || left < 0 || !a || RTA_PAYLOAD(a) != 6 ||
	    memcmp(RTA_DATA(a), mac, 6) ||
	    (number(attribute(first, left, NDA_MASTER)) != bridge && e->ndm_ifindex != bridge))
		return;
	if (e->ndm_state & NUD_PERMANENT || e->ndm_ifindex == bridge ||
	    (*port && *port != e->ndm_ifindex))
		*port = NOT_ONE;
	else
		*port = e->ndm_ifindex;
}

#define FDB_MESSAGES 256	/* of some 16 KiB: some 50,000 entries */

/* Its whole table: a MAC has an entry in each VLAN, and which of these the packets take is not told
 * by one question. The last message ends it; without that it is not known. */
static bool ask_table(int nl, int bridge, const uint8_t mac[6], int *port)
{
	union route_answer ans;
	const struct nlmsghdr *h;
	long n;

	for (int i = 0; i < FDB_MESSAGES; i++) {
		n = kernel_answer(nl, &ans, sizeof(ans), 0);
		for (h = &ans.h; n > 0 && NLMSG_OK(h, (unsigned long)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_ERROR || h->nlmsg_flags & NLM_F_DUMP_INTR)
				return false;
			if (h->nlmsg_type == NLMSG_DONE)
				return true;
			note_entry(h, bridge, mac, port);
		}
		if (n < 0)
			return false;
	}
	return false;
}

/* The port of a bridge behind which that one is, in whatever VLAN; 0: not known. */
static int port_to(int bridge, const uint8_t mac[6])
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg i;
		char attributes[16];
	} req = { .h = { .nlmsg_len = NLMSG_LENGTH(sizeof req.i), .nlmsg_type = RTM_GETNEIGH,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		  .i = { .ifi_family = AF_BRIDGE } };
	struct nlmsghdr *h = (void *)&req;
	int nl = fd_moment_sys(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int port = 0;

	if (nl < 0)
		return 0;
	put_attribute(h, IFLA_MASTER, &bridge, sizeof bridge);
	if (sys(SYS_sendto, nl, h, h->nlmsg_len, 0, NULL, 0) < 0 ||
	    !ask_table(nl, bridge, mac, &port) || port == NOT_ONE)
		port = 0;
	fd_internal_close(nl);
	return port;
}

#define DEVICES 5	/* one upon the other: VLANs, macvlan, a bridge and its port */

/*
 * `mac`: of the next hop, or NULL. What can be told is what this namespace has. A bridge that does
 * not know one port for the next hop, or too many devices: no. Behind a device that is the last one
 * here nothing can be told: other virtual functions of that card, and other devices upon the same
 * one as our macvlan or ipvlan, are reached without leaving the host.
 */
static int way_out(int device, const uint8_t *mac)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg i;
		char attributes[16];
	} req;
	const uint32_t no_counters = RTEXT_FILTER_SKIP_STATS;
	union route_answer ans;
	const struct rtattr *info;
	const char *first;
	long n, left;

	for (int i = 0; i < DEVICES && device > 0; i++) {
		memset(&req, 0, sizeof(req));
		req.h.nlmsg_len = NLMSG_LENGTH(sizeof(req.i));
		req.h.nlmsg_type = RTM_GETLINK;
		req.h.nlmsg_flags = NLM_F_REQUEST;
		req.i.ifi_index = device;
		put_attribute(&req.h, IFLA_EXT_MASK, &no_counters, sizeof(no_counters));
		n = ask(&req.h, &ans);
		if (n < (long)NLMSG_LENGTH(sizeof(req.i)) || ans.h.nlmsg_type != RTM_NEWLINK)
			return n < 0 ? (int)n : -ENODEV;
		first = (const char *)NLMSG_DATA(&ans.h) + NLMSG_ALIGN(sizeof(req.i));
		left = n - (long)NLMSG_LENGTH(sizeof(req.i));
		info = attribute(first, left, IFLA_LINKINFO);
		if (is_inner(info))
			return -EXDEV;
		if (is_kind(info, "bridge")) {
			device = mac ? port_to(device, mac) : 0;
			if (!device)
				return -EXDEV;
		} else {
			device = attribute(first, left, IFLA_LINK_NETNSID)
					 ? 0
					 : number(attribute(first, left, IFLA_LINK));
		}
	}
	return device > 0 ? -EXDEV : 0;
}

int identity_leaves_host(int fd, const struct sockaddr *local, const struct sockaddr *peer)
{
	size_t bytes = peer->sa_family == AF_INET6 ? 16 : 4;
	union route_answer ans;
	long n = route(fd, local, peer, &ans), left = n - (long)NLMSG_LENGTH(sizeof(struct rtmsg));
	const struct rtattr *first, *gateway;
	uint8_t hop[16], mac[6];
	int device;

	if (n < 0)
		return (int)n;
	first = RTM_RTA((struct rtmsg *)NLMSG_DATA(&ans.h));
	gateway = attribute(first, left, RTA_GATEWAY);
	device = number(attribute(first, left, RTA_OIF));
	sockaddr_addr(peer, hop);
	if (gateway && RTA_PAYLOAD(gateway) == bytes)
		memcpy(hop, RTA_DATA(gateway), bytes);
	return way_out(device, hop_of(device, peer->sa_family, hop, bytes, mac) ? mac : NULL);
}

static _Atomic bool program_has_syn;

void identity_save_syn(int fd)
{
	int on = 1;

	if (!atomic_load(&program_has_syn))
		sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_SAVE_SYN, &on, sizeof on);
}

void identity_leave_syn(void) { atomic_store(&program_has_syn, true); }

/* Behind the headers of IP. NULL: not TCP's. */
static const uint8_t *tcp_header(const uint8_t *p, size_t n, size_t *ret_n)
{
	size_t ip = n && p[0] >> 4 == 4 ? (size_t)(p[0] & 15) * 4 : 40;

	if (n < ip + 20 || (p[0] >> 4 == 4 ? p[9] : p[6]) != IPPROTO_TCP)
		return NULL;
	*ret_n = n - ip;
	return p + ip;
}

static int stamp_of(const uint8_t *tcp, size_t n, uint32_t *ret)
{
	size_t end = (size_t)(tcp[12] >> 4) * 4, at = 20;

	if (end > n)
		return -EPROTO;
	while (at < end && tcp[at] != TCPOPT_EOL) {
		if (tcp[at] == TCPOPT_NOP) {
			at++;
			continue;
		}
		if (at + 1 >= end || tcp[at + 1] < 2 || at + tcp[at + 1] > end)
			return -EPROTO;
		if (tcp[at] == TCPOPT_TIMESTAMP && tcp[at + 1] == TCPOLEN_TIMESTAMP) {
			*ret = (uint32_t)tcp[at + 2] << 24 | (uint32_t)tcp[at + 3] << 16 |
				(uint32_t)tcp[at + 4] << 8 | tcp[at + 5];
			return 0;
		}
		at += tcp[at + 1];
	}
	return -ENODATA;
}

int identity_syn(int fd, uint32_t *ret)
{
	uint32_t isn;

	return identity_whole_syn(fd, ret, &isn);
}

int identity_whole_syn(int fd, uint32_t *ret, uint32_t *ret_isn)
{
	uint8_t syn[512];
	uint32_t len = sizeof syn;
	const uint8_t *tcp;
	size_t n;
	long r;

	if (atomic_load(&program_has_syn))
		return -EBUSY;
	r = sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len);
	if (r < 0)
		return (int)r;
	tcp = tcp_header(syn, len, &n);
	if (!tcp)
		return -ENODATA;
	*ret_isn = (uint32_t)tcp[4] << 24 | (uint32_t)tcp[5] << 16 | (uint32_t)tcp[6] << 8 | tcp[7];
	return stamp_of(tcp, n, ret);
}

static uint32_t ticks(uint64_t us, uint64_t unit)
{
	us /= unit;
	return us < UINT32_MAX / 2 ? (uint32_t)us : UINT32_MAX / 2;
}

/* The SYN may have gone, or gone again, after connect(). */
static bool syn_may_be_late(int fd, const struct tcp_info *ti)
{
	int fast_open = 0;
	uint32_t len = sizeof(fast_open);

	if (sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &fast_open, &len) < 0)
		fast_open = 0;
	return ti->tcpi_total_retrans || fast_open;
}

bool identity_our_syn(int fd, uint32_t stamp, uint64_t since_us, uint64_t until_us)
{
	uint64_t unit = 1000, before = now_us();
	struct tcp_info ti;
	uint32_t now = 0, len = sizeof now, info = sizeof ti, age;

	if (sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_TIMESTAMP, &now, &len) < 0 ||
	    sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &ti, &info) < 0)
		return false;
	if (ti.tcpi_options & TCPI_OPT_USEC_TS_)
		unit = 1;
	if (!until_us || until_us > before || syn_may_be_late(fd, &ti))
		until_us = before;
	age = now + 1 - stamp;	/* 1: the lowest bit tells the unit in newer kernels */
	/* The times were read before and after `now`, however long we stood still. */
	return age <= ticks(now_us() - since_us, unit) + 2 &&
	       age + 2 >= ticks(before - until_us, unit);
}

static int names_of(int fd, struct sockaddr_storage *local, struct sockaddr_storage *peer)
{
	uint32_t len = sizeof *local;
	long r = sys(SYS_getsockname, fd, local, &len);

	if (r < 0)
		return (int)r;
	len = sizeof *peer;
	r = sys(SYS_getpeername, fd, peer, &len);
	if (r < 0)
		return (int)r;
	sockaddr_normal(local);
	sockaddr_normal(peer);
	return 0;
}

static bool closing(const struct identity *id)
{
	return id->state == TCP_FIN_WAIT1 || id->state == TCP_FIN_WAIT2 ||
	       id->state == TCP_CLOSING || id->state == TCP_LAST_ACK;
}

bool identity_peer_closing(int fd)
{
	struct sockaddr_storage l, p;
	struct identity id;

	if (fd < 0 || names_of(fd, &l, &p) || identity_query((void *)&p, (void *)&l, &id))
		return false;
	return closing(&id);
}

/* It is not asked itself: who passed a real descriptor may have a thread inside a call with it,
 * with memory that never comes, and so the kernel's lock of the socket, for which getsockname()
 * waits without end. */
int identity_check(int fd, const struct sockaddr *local, const struct sockaddr *peer, uid_t uid)
{
	int64_t inode = fd < 0 ? 0 : proof_inode(fd);
	struct identity id;
	int r;

	if (inode <= 0)
		return inode ? -EOPNOTSUPP : -EPERM;
	r = identity_query(peer, local, &id);
	if (r)
		return r;
	if (id.inode != (uint64_t)inode || id.uid != uid || uid == OVERFLOW_UID)
		return -EPERM;
	return 0;
}

/* ---- of another network namespace ---- */

/* Whoever passed it can read from it, too, and send there: so an answer that is not there is not
 * waited for, and what is left of others is read away first. */
static int query_there(int nl, const struct ctl_tuple *its, struct identity *ret)
{
	struct sockaddr_storage local, peer;
	uint8_t old[64];

	if ((its->family != AF_INET && its->family != AF_INET6) || nl < 0)
		return -EPERM;
	for (int i = 0; i < FORGED_MOST; i++)
		if (sys(SYS_recvfrom, nl, old, sizeof(old), MSG_DONTWAIT, NULL, NULL) < 0)
			break;
	tuple_ends(its, &local, &peer);
	return query(nl, MSG_DONTWAIT, (void *)&local, (void *)&peer, ret);
}

bool identity_is_diag(int fd)
{
	int domain = 0, protocol = -1;
	uint32_t len = sizeof(domain);

	return fd >= 0 && sys(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) >= 0 &&
	       sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) >= 0 &&
	       domain == AF_NETLINK && protocol == NETLINK_SOCK_DIAG;
}

int identity_check_there(int nl, int fd, const struct ctl_tuple *its, uid_t uid)
{
	int64_t inode = fd < 0 ? 0 : proof_inode(fd);
	struct identity id;
	int r;

	if (inode <= 0)
		return inode ? -EOPNOTSUPP : -EPERM;
	r = query_there(nl, its, &id);
	if (r)
		return r;
	return uid != OVERFLOW_UID && id.uid == uid && id.inode == (uint64_t)inode &&
			       id.state == TCP_ESTABLISHED
		       ? 0
		       : -EPERM;
}

bool identity_closing_there(int nl, const struct ctl_tuple *its)
{
	struct identity id;

	return !query_there(nl, its, &id) && closing(&id);
}
