/*
 * discovery_net.c - the discovery port: how the libraries at the two ends of a TCP connection meet
 * from host to host, and how they prove to each other who they are.
 *
 *   client's process              holder of the port                     server's process
 *   CALL(tuple, nonce) ---------> has it the stream? if not, it passes --> name of the tuple, an
 *                                 connection and CALL by SCM_RIGHTS        AF_UNIX datagram
 *   ANSWER(nonce, mac) <------------------------------------------------'
 *   PROOF(mac), then the link's HELLO ----------------------------------> link_net_welcome()
 *
 * Any process that needs the port tries to bind it while it waits. So the port has a new holder
 * soon after the old one died. The holder is trusted with nothing. It sees a CALL and passes on a
 * descriptor, also for calls of other versions.
 *
 * Both macs cover the tuple, both nonces, both hosts' boot ids and process ids, and the role. So
 * neither mac can be used twice, or for the other role. If the policy trusts the other host by its
 * address instead, the address of the control connection counts. In both cases that must be the
 * address of the stream's own peer. net_proof.c makes the macs, discovery_port.c has the port.
 *
 * Background thread only, no locks.
 */
#include "discovery/discovery_ctl.h"
#include "discovery/discovery_net.h"
#include "link/rights.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_slab.h"
#include "discovery/identity.h"
#include "discovery/net_call.h"
#include "discovery/search.h"
#include "link/link.h"
#include "link/other_version.h"
#include "link/path.h"
#include "link/patience.h"
#include "policy/log.h"

#define CALLS       64
#define CALL_US     3000000	/* for a whole handshake */
#define LINK_US 10000000	/* for the link behind it, and the BIND over that */

static struct call calls[CALLS];
static _Atomic unsigned calls_top;	/* of these some have been used */

/* ---- small things ---- */

static void set_port(struct sockaddr_storage *sa, uint16_t port)
{
	if (sa->ss_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)sa)->sin_port = htons(port);
}

/* ---- calls: the table ---- */

static void call_failed(struct call *c, enum reason why);

/* Crowded by callers who have proven nothing: the one goes that is least far, or was silent
 * longest. They keep out neither those who call after them nor our own calls. */
static void make_room(void)
{
	struct call *worst = NULL;

	for (unsigned i = 0; i < CALLS; i++) {
		struct call *c = &calls[i];

		if (c->state == C_FREE)
			return;
		if ((c->state == S_CALL || c->state == S_PROOF) &&
		    (!worst || c->state < worst->state ||
		     (c->state == worst->state && c->end_us < worst->end_us)))
			worst = c;
	}
	if (worst)
		call_failed(worst, REASON_NO_PEER_SHIM);
}

static struct call *call_new(int fd, uint8_t state)
{
	make_room();
	for (unsigned i = 0; i < CALLS; i++) {
		struct call *c = &calls[i];

		if (c->state != C_FREE)
			continue;
		if (i >= calls_top)
			atomic_store(&calls_top, i + 1);
		/* before the call: a fork may come between */
		atomic_signal_fence(memory_order_seq_cst);
		*c = (struct call){ .state = state, .fd = fd, .end_us = now_us() + CALL_US };
		if (loop_watch_fd(fd, state == C_CONNECT ? EPOLLOUT : EPOLLIN, LOOP_CALL, i) < 0) {
			c->state = C_FREE;
			return NULL;
		}
		return c;
	}
	return NULL;
}

static struct stream *stream_of(const struct call *c)
{
	struct stream *s = stream_at(c->stream);

	return s && atomic_load(&s->gen) == c->gen && atomic_load(&s->mode) != MODE_FREE &&
			       !atomic_load(&s->dead)
		       ? s
		       : NULL;
}

/* `keep`: the descriptor lives on as a link's. */
static void call_free(struct call *c, bool keep)
{
	loop_unwatch_fd(c->fd);
	if (!keep)
		rights_done(c->fd);	/* whoever handed it over may make it linger */
	c->state = C_FREE;
	c->fd = -1;
}

static void call_failed(struct call *c, enum reason why)
{
	bool client = c->state == C_CONNECT || c->state == C_ANSWER;
	struct stream *s = stream_of(c);

	if (!client)
		stat_add(STAT_refused, 1);
	/* not for another version, which is a process's, and not the host's */
	if (why == REASON_WRONG_KEY || why == REASON_UNREACHABLE)
		net_refused(&c->host, why);
	call_free(c, false);
	if (client && s && s->search.state == SEARCH_CALL)
		search_call_ended(s, why);
}

static void prepare(int fd)
{
	int one = 1, idle = 10, every = 5, tries = 3;

	sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	sys(SYS_setsockopt, fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
	sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

/* ---- the client's half ---- */

bool net_under_way(const struct sockaddr_storage *host)
{
	for (unsigned i = 0; i < CALLS; i++)
		if ((calls[i].state == C_CONNECT || calls[i].state == C_ANSWER) &&
		    net_host_same(&calls[i].host, host))
			return true;
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_HELLO && links[i].path->far &&
		    net_host_same(&links[i].host, host))
			return true;
	return false;
}

int net_call(struct stream *s)
{
	struct sockaddr_storage to = s->addr.peer;
	enum reason why = REASON_NO_TRUST;
	int mode = net_trust(&s->addr.peer, &why);
	struct net_msg mine;
	struct call *c;
	long r;
	int fd;

	if (mode < 0)
		return (int)why;
	if (!net_fill(&mine, NET_CALL))
		return REASON_NO_TRUST;
	set_port(&to, (uint16_t)shim_tunables()->discovery_port);
	fd = fd_internal_sys(SYS_socket, to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			     0);
	if (fd < 0)
		return REASON_NO_FDS;
	prepare(fd);
	r = sys(SYS_connect, fd, &to,
		to.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					 : sizeof(struct sockaddr_in));
	c = r == 0 || r == -EINPROGRESS ? call_new(fd, C_CONNECT) : NULL;
	if (!c) {
		fd_internal_close(fd);
		return REASON_UNREACHABLE;
	}
	c->stream = s->index;
	c->gen = atomic_load(&s->gen);
	c->host = s->addr.peer;
	sockaddr_no_port(&c->host);
	c->mine = mine;
	c->mine.mode = (uint32_t)mode;
	tuple_from(&c->mine.tuple, (void *)&s->addr.local, (void *)&s->addr.peer);
	s->search.state = SEARCH_CALL;
	s->search.link = LINK_MAX;
	return 1;
}

static void connected(struct call *c)
{
	int e = 0;
	uint32_t len = sizeof e;

	sys(SYS_getsockopt, c->fd, SOL_SOCKET, SO_ERROR, &e, &len);
	if (e) {	/* refused: nobody there has earned yet, or reset: who had the port has
			 * left it; ask again. Anything else: nobody will */
		call_failed(c, e == ECONNREFUSED || e == ECONNRESET ? REASON_NO_PEER_SHIM
								    : REASON_UNREACHABLE);
		return;
	}
	if (!net_say(c->fd, &c->mine, sizeof c->mine)) {
		call_failed(c, REASON_NO_PEER_SHIM);
		return;
	}
	loop_unwatch_fd(c->fd);
	if (loop_watch_fd(c->fd, EPOLLIN, LOOP_CALL, (uint32_t)(c - calls)) < 0) {
		call_failed(c, REASON_NO_FDS);
		return;
	}
	c->state = C_ANSWER;
}

static void answered(struct call *c)
{
	struct stream *s = stream_of(c);
	struct net_msg m = c->mine;
	uint32_t index;
	int fd = c->fd;

	c->theirs = c->in;
	if (c->in.type == NET_REFUSED) {
		call_failed(c, c->in.mode && c->in.mode < REASON_COUNT ? (enum reason)c->in.mode
								       : REASON_PEER_REFUSED);
		return;
	}
	if (c->in.type != NET_ANSWER || !net_mac_right(c, true, c->in.mac)) {
		log_line(2, "the other host's library did not prove that it has the key");
		call_failed(c, REASON_WRONG_KEY);
		return;
	}
	m.type = NET_PROOF;
	net_make_mac(c, false, m.mac);
	if (!s || s->search.state != SEARCH_CALL || !net_say(fd, &m, sizeof m)) {
		call_failed(c, REASON_NO_PEER_SHIM);
		return;
	}
	call_free(c, true);
	if (stream_sought(s)->hello(fd, &c->host, &index)) {
		fd_internal_close(fd);
		search_call_ended(s, REASON_NO_MEMORY);
		return;
	}
	s->search.link = index;
	if (atomic_load(&links[index].state) != LINK_HELLO)
		search_call_ended(s, REASON_NO_DISCOVERY);
}

/* ---- the server's half ---- */

void net_port_ready(void)
{
	int fd;

	for (int n = 0; n < 64 && (fd = net_accept()) >= 0; n++) {
		prepare(fd);
		if (!call_new(fd, S_CALL))
			fd_internal_close(fd);
	}
}

/* Hands the connection and the n bytes that it said to the process that has opened the name. */
static bool pass_on(int fd, const struct net_msg *m, size_t n)
{
	struct sockaddr_un un;
	struct iovec iov = { (void *)m, n };
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } ctl = { 0 };
	struct msghdr h = { .msg_name = &un, .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
	int sock = fd_moment_sys(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	long r;

	if (sock < 0)
		return false;
	h.msg_namelen = net_name(&m->tuple, &un);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof fd);
	r = sys(SYS_sendmsg, sock, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
	fd_internal_close(sock);
	return r == (long)n;
}

static struct stream *own_stream(const struct ctl_tuple *client_view)
{
	uint32_t n = streams_top();
	struct ctl_tuple mine, x;

	tuple_reverse(&mine, client_view);
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		/* One that lost its path listens in longer and longer intervals, or will soon. */
		if (atomic_load(&s->mode) == MODE_FREE || atomic_load(&s->dead) || !s->addr.known ||
		    !stream_sought(s)->far || s->role != ROLE_SERVER ||
		    (s->search.state != SEARCH_LISTEN && !s->search.lost) || atomic_load(&s->link))
			continue;
		tuple_from(&x, (void *)&s->addr.local, (void *)&s->addr.peer);
		if (tuple_equal(&x, &mine))
			return s;
	}
	return NULL;
}

/* The stream listens on while its link is being made. */
static void patience(struct call *c, uint64_t us)
{
	struct stream *s = stream_of(c);
	uint64_t end = now_us() + us;

	if (s && s->search.state == SEARCH_LISTEN && s->search.end_us < end)
		s->search.end_us = end;
}

static void answer(struct call *c, struct stream *s)
{
	enum reason why = REASON_NO_TRUST;
	uint32_t len = sizeof c->host;
	int mode;

	c->theirs = c->in;
	c->stream = s->index;
	c->gen = atomic_load(&s->gen);
	if (sys(SYS_getpeername, c->fd, &c->host, &len) < 0) {
		call_failed(c, REASON_NO_PEER_SHIM);
		return;
	}
	sockaddr_normal(&c->host);
	sockaddr_no_port(&c->host);
	mode = net_trust(&c->host, &why);
	if (!net_host_same(&c->host, &s->addr.peer)) {
		why = REASON_IDENTITY;
		mode = -EPERM;
	}
	if (mode < 0 || (uint32_t)mode != c->theirs.mode || !net_fill(&c->mine, NET_ANSWER)) {
		log_line(2, "fd %d: a call from another host is refused: %s", atomic_load(&s->fd),
			 reason_name(why));
		net_refuse(c->fd, why == REASON_IDENTITY ? why : REASON_NO_TRUST);
		call_failed(c, why);
		return;
	}
	c->mine.mode = (uint32_t)mode;
	c->mine.tuple = c->theirs.tuple;
	net_make_mac(c, true, c->mine.mac);
	if (!net_say(c->fd, &c->mine, sizeof c->mine)) {
		call_failed(c, REASON_NO_PEER_SHIM);
		return;
	}
	c->state = S_PROOF;
	patience(c, CALL_US);
}

static void called(struct call *c)
{
	struct stream *s;

	if (c->in.type != NET_CALL) {
		call_failed(c, REASON_PROTOCOL);
		return;
	}
	s = own_stream(&c->in.tuple);
	if (s) {
		answer(c, s);
	} else {
		if (!pass_on(c->fd, &c->in, sizeof c->in))
			/* not yet earned there, or no library */
			net_refuse(c->fd, REASON_NO_PEER_SHIM);
		call_free(c, false);
	}
}

/* A message of another version: as much as is fixed is there. A call that is not for us goes on its
 * way, to whoever understands the rest. */
static void other_versions(struct call *c)
{
	if (c->state == S_CALL && c->in.type == NET_CALL && !own_stream(&c->in.tuple)) {
		if (!pass_on(c->fd, &c->in, c->in_len))
			net_refuse(c->fd, REASON_NONE);
		call_free(c, false);
		return;
	}
	if (c->state == C_ANSWER && c->in.type == NET_REFUSED && !c->in.mode) {
		call_failed(c, REASON_NO_PEER_SHIM);
		return;
	}
	if (c->state != C_ANSWER)
		net_refuse(c->fd, REASON_VERSION);
	log_line(1, "another host's library has version %u of the discovery between hosts, ours %u",
		 c->in.version, NET_VERSION);
	call_failed(c, REASON_VERSION);
}

/* What was handed over with a CALL, or by a holder of another version with the beginning of one,
 * whose rest lies in the connection. False: the name is to be closed. */
static bool handed_over(struct stream *s, const struct net_msg *m, long len, int fd)
{
	bool other = len >= NET_ROUTE && net_other_version(m);
	struct call *c;

	if (len < NET_ROUTE || len > (long)sizeof *m || (!other && !net_well_formed(m)) ||
	    m->type != NET_CALL || !socket_is_plain_tcp(fd) ||
	    own_stream(&m->tuple) != s || !fd_may_keep())
		return rights_done(fd);
	sys(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK);
	c = call_new(fd, S_CALL);
	if (!c)
		return rights_done(fd);
	memcpy(&c->in, m, (size_t)len);
	c->in_len = (uint32_t)len;
	if (other) {
		other_versions(c);
	} else if (len == (long)sizeof *m) {
		c->in_len = 0;
		answer(c, s);
	}
	return true;
}

/* Anybody here can claim to be a holder of the port: nothing is believed, and only who may pass us
 * sockets is listened to. What others pass goes with the name; soon there is another. */
void net_name_ready(struct stream *s)
{
	struct net_msg m;
	struct iovec iov = { &m, sizeof m };
	struct ucred who;
	bool passes;

	for (int n = 16;
	     n-- && s->search.fd >= 0 && rights_sender(s->search.fd, &who, &passes) >= 0;) {
		int fd = -1, flags;
		long r;

		if (!rights_socket_from(who.uid)) {
			stat_add(STAT_refused, 1);
			if (passes)
				search_name_close(s);
			else
				sys(SYS_recvfrom, s->search.fd, &m, sizeof m, MSG_DONTWAIT, NULL,
				    NULL);
			continue;
		}
		r = rights_recv(s->search.fd, &iov, &flags, &fd);
		if (r == -EPROTO || (fd >= 0 && !handed_over(s, &m, r, fd)))
			search_name_close(s);
		else if (r < 0)
			return;
	}
}

static void proven(struct call *c)
{
	if (c->in.type != NET_PROOF || !net_mac_right(c, false, c->in.mac)) {
		log_line(2, "a caller from another host did not prove that it has the key");
		net_refuse(c->fd, REASON_WRONG_KEY);
		call_failed(c, REASON_WRONG_KEY);
		return;
	}
	c->state = S_HELLO;
	c->end_us = now_us() + CALL_US;		/* it has proven itself: what was slow may stay
						 * so */
	patience(c, LINK_US);
}

/* The caller's library does not fit ours: it is told, and so is the stream that it called for. */
static void other_version(struct call *c, const struct ctl_msg *theirs)
{
	struct stream *s = stream_of(c);
	struct ctl_msg m = { 0 };

	version_hello(&m);
	net_say(c->fd, &m, sizeof m);
	version_heard(theirs, 0);
	call_failed(c, REASON_VERSION);
	if (s && s->search.state == SEARCH_LISTEN && stream_sought(s)->far)
		search_version(s, theirs->version);
}

static void hello(struct call *c)
{
	struct ctl_msg m;
	int fd = c->fd;

	memcpy(&m, &c->in, sizeof m);
	if (m.type == CTL_HELLO && m.version != CTL_VERSION) {
		other_version(c, &m);
		return;
	}
	if (m.type != CTL_HELLO) {
		call_failed(c, REASON_PROTOCOL);
		return;
	}
	call_free(c, true);
	if (path_between_hosts()->welcome(fd, &c->host, &m))
		rights_done(fd);
}

/* ---- events ---- */

/* What is passed on to another version lies in the connection, but for its fixed part. */
static uint32_t wanted(const struct call *c)
{
	return c->state == S_HELLO ? sizeof(struct ctl_msg) :
	       c->state == S_CALL && c->in_len < NET_ROUTE ? NET_ROUTE : sizeof(struct net_msg);
}

/* True: the message that this state waits for is there. */
static bool message(struct call *c)
{
	uint32_t fixed = c->state == S_CALL ? NET_ROUTE : c->state == C_ANSWER ? NET_WHY : NET_HEAD;
	long r;

	do {
		r = sys(SYS_recvfrom, c->fd, (char *)&c->in + c->in_len, wanted(c) - c->in_len,
			MSG_DONTWAIT, NULL, NULL);
		if (r == -EAGAIN || r == -EINTR)
			return false;
		if (r <= 0) {
			call_failed(c, REASON_NO_PEER_SHIM);
			return false;
		}
		c->in_len += (uint32_t)r;
		if (c->state != S_HELLO && c->in_len >= fixed && net_other_version(&c->in)) {
			other_versions(c);
			return false;
		}
	} while (c->in_len < wanted(c));
	c->in_len = 0;
	if (c->state != S_HELLO && !net_well_formed(&c->in)) {
		call_failed(c, REASON_PROTOCOL);
		return false;
	}
	return true;
}

void net_call_ready(uint32_t i)
{
	struct call *c = &calls[i];

	if (i >= CALLS || c->state == C_FREE)
		return;
	if (c->state == C_CONNECT) {
		connected(c);
		return;
	}
	while (c->state != C_FREE && message(c)) {
		switch (c->state) {
		case C_ANSWER: answered(c); return;
		case S_CALL: called(c); break;
		case S_PROOF: proven(c); break;
		case S_HELLO: hello(c); return;
		}
	}
}

uint64_t net_expire(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < CALLS; i++) {
		if (calls[i].state == C_FREE)
			continue;
		if (now >= calls[i].end_us)
			call_failed(&calls[i], calls[i].state == C_CONNECT ? REASON_UNREACHABLE
									   : REASON_NO_PEER_SHIM);
		else if (calls[i].end_us < next)
			next = calls[i].end_us;
	}
	return next;
}

void net_after_fork(void)
{
	for (unsigned i = 0; i < calls_top; i++)	/* a page that is not touched is not
							 * copied */
		if (calls[i].state != C_FREE) {
			fd_internal_close(calls[i].fd);
			calls[i].state = C_FREE;
		}
	net_port_after_fork();
}
