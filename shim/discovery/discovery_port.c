/*
 * discovery_port.c - who has the discovery port, and the names of accepting ends, to which its
 * holder passes their calls. Background thread only, no locks.
 */
#include "discovery/discovery_ctl.h"
#include "discovery/discovery_net.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "discovery/net_call.h"
#include "link/link.h"
#include "policy/log.h"

static int port_fd = -1;
static uint64_t port_next_us;		/* when to try to bind it again */

socklen_t net_name(const struct ctl_tuple *client_view, struct sockaddr_un *un)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *raw = (const uint8_t *)client_view;
	char *p = un->sun_path + 1;

	memset(un, 0, sizeof *un);
	un->sun_family = AF_UNIX;
	memcpy(p, "rdmashimN.", 10);
	p += 10;
	for (unsigned i = 0; i < sizeof *client_view; i++) {
		*p++ = hex[raw[i] >> 4];
		*p++ = hex[raw[i] & 15];
	}
	return (socklen_t)(p - (char *)un);
}
_Static_assert(1 + 10 + 2 * sizeof(struct ctl_tuple) <= sizeof((struct sockaddr_un *)0)->sun_path,
	       "the name must fit");

/* Opens the port unless another process has it: then that one passes on what is ours. */
static void open_port(uint64_t now)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6,
				  .sin6_port = htons((uint16_t)shim_tunables()->discovery_port) };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = a.sin6_port };
	int one = 1, zero = 0;
	long r;
	int fd;

	if (port_fd >= 0 || now < port_next_us)
		return;
	port_next_us = now + 20000;
	fd = fd_internal_sys(SYS_socket, AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		sys(SYS_setsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
		sys(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		r = sys(SYS_bind, fd, &a, sizeof a);
	} else {
		fd = fd_internal_sys(SYS_socket, AF_INET,
				     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			return;
		sys(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		r = sys(SYS_bind, fd, &a4, sizeof a4);
	}
	if (r >= 0)
		r = sys(SYS_listen, fd, 64);
	if (r < 0 || loop_watch_fd(fd, EPOLLIN, LOOP_PORT, 0) < 0) {
		fd_internal_close(fd);
		return;
	}
	port_fd = fd;
	log_line(3, "holds the discovery port %d", (int)shim_tunables()->discovery_port);
}

int net_listen(struct stream *s)
{
	struct sockaddr_un un;
	struct ctl_tuple t;
	socklen_t len;
	long r;
	int fd, on = 1;

	open_port(now_us());
	if (s->search.fd >= 0 || closer_busy())
		return 0;
	tuple_from(&t, (void *)&s->addr.peer, (void *)&s->addr.local);
	len = net_name(&t, &un);
	fd = fd_internal_sys(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	sys(SYS_setsockopt, fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	r = sys(SYS_bind, fd, &un, len);
	if (r >= 0)
		r = loop_watch_fd(fd, EPOLLIN, LOOP_NAME, s->index);
	if (r < 0) {
		fd_internal_close(fd);
		return (int)r;
	}
	s->search.fd = fd;
	return 0;
}

/* Whoever waits in it is hung up on, and calls again. */
void net_leave_port(void)
{
	if (port_fd < 0)
		return;
	loop_unwatch_fd(port_fd);
	fd_internal_close(port_fd);
	port_fd = -1;
}

/* There is no descriptor for those who call, who would be announced again and again, and found
 * by nobody: another process may have the port, or we again when there is room. */
static void no_room(void)
{
	net_leave_port();
	port_next_us = now_us() + 1000000;
	log_line(2,
		 "no descriptor for a call from another host: leaves the discovery port to others");
}

int net_accept(void)
{
	int fd;

	if (port_fd < 0)
		return -EAGAIN;
	fd = fd_internal_sys(SYS_accept4, port_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM)
		no_room();
	return fd;
}

void net_port_after_fork(void)
{
	if (port_fd >= 0)
		fd_internal_close(port_fd);
	port_fd = -1;
}
