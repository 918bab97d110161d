/* sock.c - see sock.h. Locks: none. */
#include "base/sock.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include "base/sys.h"

void sockaddr_normal(struct sockaddr_storage *sa)
{
	struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)sa;
	struct sockaddr_in a4 = { .sin_family = AF_INET };

	if (sa->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr))
		return;
	a4.sin_port = a6->sin6_port;
	memcpy(&a4.sin_addr, &a6->sin6_addr.s6_addr[12], 4);
	memset(sa, 0, sizeof *sa);
	memcpy(sa, &a4, sizeof a4);
}

void sockaddr_no_port(struct sockaddr_storage *sa)
{
	if (sa->ss_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_port = 0;
	else
		((struct sockaddr_in *)sa)->sin_port = 0;
}

uint16_t sockaddr_port(const struct sockaddr *a)
{
	return ntohs(a->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
					      : ((const struct sockaddr_in *)a)->sin_port);
}

void sockaddr_addr(const struct sockaddr *a, uint8_t out[16])
{
	memset(out, 0, 16);
	if (a->sa_family == AF_INET6)
		memcpy(out, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
	else
		memcpy(out, &((const struct sockaddr_in *)a)->sin_addr, 4);
}

bool sockaddr_same(const struct sockaddr *a, const struct sockaddr *b)
{
	uint8_t x[16], y[16];

	sockaddr_addr(a, x);
	sockaddr_addr(b, y);
	return a->sa_family == b->sa_family && sockaddr_port(a) == sockaddr_port(b) &&
	       !memcmp(x, y, 16);
}

bool sockaddr_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
	return (ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24) == 127;
}

void tuple_from(struct ctl_tuple *t, const struct sockaddr *local, const struct sockaddr *peer)
{
	memset(t, 0, sizeof *t);
	t->family = local->sa_family;
	t->lport = sockaddr_port(local);
	t->pport = sockaddr_port(peer);
	sockaddr_addr(local, t->laddr);
	sockaddr_addr(peer, t->paddr);
}

bool tuple_equal(const struct ctl_tuple *a, const struct ctl_tuple *b)
{
	return a->family == b->family && a->lport == b->lport && a->pport == b->pport &&
	       !memcmp(a->laddr, b->laddr, 16) && !memcmp(a->paddr, b->paddr, 16);
}

void tuple_reverse(struct ctl_tuple *to, const struct ctl_tuple *from)
{
	*to = *from;
	to->lport = from->pport;
	to->pport = from->lport;
	memcpy(to->laddr, from->paddr, 16);
	memcpy(to->paddr, from->laddr, 16);
}

static void end_of(struct sockaddr_storage *sa, const struct ctl_tuple *t, const uint8_t *addr,
		   uint16_t port)
{
	*sa = (struct sockaddr_storage){ .ss_family = t->family };
	if (t->family == AF_INET6) {
		((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
		memcpy(&((struct sockaddr_in6 *)sa)->sin6_addr, addr, 16);
	} else {
		((struct sockaddr_in *)sa)->sin_port = htons(port);
		memcpy(&((struct sockaddr_in *)sa)->sin_addr, addr, 4);
	}
}

void tuple_ends(const struct ctl_tuple *t, struct sockaddr_storage *local,
		struct sockaddr_storage *peer)
{
	end_of(local, t, t->laddr, t->lport);
	end_of(peer, t, t->paddr, t->pport);
}

bool socket_tcp_info(int fd, struct tcp_info *ret)
{
	uint32_t len = sizeof *ret;

	return sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, ret, &len) >= 0 &&
	       len >= offsetof(struct tcp_info, tcpi_bytes_retrans) +
			       sizeof ret->tcpi_bytes_retrans;
}

bool socket_is_plain_tcp(int fd)
{
	int v = 0;
	uint32_t len = sizeof v;
	char ulp[16] = "";

	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &v, &len) < 0 || v != IPPROTO_TCP)
		return false;
	len = sizeof v;
	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &v, &len) < 0 || v != SOCK_STREAM)
		return false;
	len = sizeof ulp;
	return sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_ULP, ulp, &len) < 0 || !len || !ulp[0];
}

void socket_mark(int fd)
{
	int off = 0;

	sys(SYS_setsockopt, fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off);
}
