/*
 * test_identity.c - who holds the other end of a connection: real sockets, the real kernel,
 * every near miss.
 *
 * LINK: shim/discovery/identity.c shim/base/sock.c shim/base/procs.c shim/base/fdtab.c
 * LINK: shim/base/lock.c shim/base/proof.c shim/base/procfs.c shim/base/event.c
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../shim/base/proof.h"
#include "../../shim/discovery/identity.h"
#include "../../shim/base/shim.h"

/* One connection: what the client and the server hold, with names as the library reads them. */
struct pair { int client, server; struct sockaddr_storage c, s; };

static void name(int fd, struct sockaddr_storage *sa)
{
	socklen_t len = sizeof *sa;

	memset(sa, 0, sizeof *sa);
	ck_assert_int_eq(getsockname(fd, (void *)sa, &len), 0);
	sockaddr_normal(sa);
}

static bool mark_listener, keep_syn;

/* listen_on, connect_to: numeric addresses; a name without a colon is IPv4. */
static bool make(struct pair *p, const char *listen_on, const char *connect_to)
{
	bool six = strchr(listen_on, ':') != NULL, csix = strchr(connect_to, ':') != NULL;
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in a4 = { .sin_family = AF_INET };
	struct sockaddr_storage at;
	socklen_t len;
	int l = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, 0), zero = 0;

	if (l < 0)
		return false;
	inet_pton(AF_INET6, listen_on, &a6.sin6_addr);
	inet_pton(AF_INET, listen_on, &a4.sin_addr);
	setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	if (bind(l, six ? (void *)&a6 : (void *)&a4, six ? sizeof a6 : sizeof a4)) {
		close(l);
		return false;
	}
	if (mark_listener)
		socket_mark(l);
	if (keep_syn)
		identity_save_syn(l);
	ck_assert_int_eq(listen(l, 4), 0);
	len = sizeof at;
	getsockname(l, (void *)&at, &len);
	a4.sin_port = a6.sin6_port = six ? ((struct sockaddr_in6 *)&at)->sin6_port
					 : ((struct sockaddr_in *)&at)->sin_port;
	inet_pton(AF_INET6, connect_to, &a6.sin6_addr);
	inet_pton(AF_INET, connect_to, &a4.sin_addr);
	p->client = socket(csix ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(
		connect(p->client, csix ? (void *)&a6 : (void *)&a4, csix ? sizeof a6 : sizeof a4),
		0);
	p->server = accept(l, NULL, NULL);
	ck_assert_int_ge(p->server, 0);
	close(l);
	name(p->client, &p->c);
	name(p->server, &p->s);
	return true;
}

static void drop(struct pair *p)
{
	close(p->client);
	close(p->server);
}

#define SA(x) ((struct sockaddr *)&(x))

/* Does the server take `fd` of `uid` for the client's end? */
static int ask(struct pair *p, int fd, uid_t uid)
{
	return identity_check(fd, SA(p->s), SA(p->c), uid);
}

START_TEST(the_truth)
{
	static const char *const row[][2] = {
		{ "127.0.0.1", "127.0.0.1" }, { "127.0.0.7", "127.0.0.7" },
			{ "0.0.0.0", "127.0.0.1" }, { "::1", "::1" },
		{ "::", "127.0.0.1" }, { "::", "::ffff:127.0.0.1" },
			{ "127.0.0.1", "::ffff:127.0.0.1" },
	};
	struct pair p;

	if (!make(&p, row[_i][0], row[_i][1]))
		return;		/* no IPv6 here */
	ck_assert_int_eq(ask(&p, p.client, getuid()), 0);
	/* and the other way round */
	ck_assert_int_eq(identity_check(p.server, SA(p.c), SA(p.s), getuid()), 0);
	/* our own end is not the other one */
	ck_assert_int_ne(ask(&p, p.server, getuid()), 0);
	ck_assert_int_eq(ask(&p, p.client, getuid() + 1), -EPERM);
	ck_assert_int_eq(ask(&p, p.client, 65534), -EPERM);
	drop(&p);
}
END_TEST

START_TEST(wrong_fds)
{
	struct pair p, q;
	int un[2], udp = socket(AF_INET, SOCK_DGRAM, 0), raw = socket(AF_INET, SOCK_STREAM, 0),
		   mptcp;

	make(&p, "127.0.0.1", "127.0.0.1");
	make(&q, "127.0.0.1", "127.0.0.1");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, un), 0);
	ck_assert_int_eq(ask(&p, p.client, getuid()), 0);
	ck_assert_int_eq(ask(&p, -1, getuid()), -EPERM);
	ck_assert_int_ne(ask(&p, 0, getuid()), 0);
	ck_assert_int_ne(ask(&p, q.client, getuid()), 0);
	ck_assert_int_ne(ask(&p, q.server, getuid()), 0);
	ck_assert_int_ne(ask(&p, un[0], getuid()), 0);
	ck_assert_int_ne(ask(&p, udp, getuid()), 0);
	ck_assert_int_ne(ask(&p, raw, getuid()), 0);		/* not connected */
	ck_assert(!socket_is_plain_tcp(udp));
	ck_assert(!socket_is_plain_tcp(un[0]));
	ck_assert(!socket_is_plain_tcp(0));
	ck_assert(socket_is_plain_tcp(raw));
	/* The right names on a socket that is not the one: a UDP socket may have any. */
	ck_assert_int_eq(connect(udp, SA(p.s), sizeof(struct sockaddr_in)), 0);
	ck_assert_int_ne(ask(&p, udp, getuid()), 0);
	mptcp = socket(AF_INET, SOCK_STREAM, 262);
	if (mptcp >= 0)
		ck_assert(!socket_is_plain_tcp(mptcp));
	/* After the client has gone its tuple is nobody's. */
	close(p.client);
	ck_assert_int_ne(ask(&p, q.client, getuid()), 0);
	close(p.server);
	drop(&q);
}
END_TEST

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif

/* The client's socket is bound to a device. The kernel lets anybody make one with the same names
 * beside it that is bound to none, and finds that. Its SYN is answered, but it hears nothing. */
START_TEST(same_names_without_device)
{
	int x = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), far = 255, n = 0;
	struct sockaddr_storage at;
	struct identity id;
	struct pair p;
	uint32_t port;

	make(&p, "127.0.0.1", "127.0.0.1");
	ck_assert_int_eq(setsockopt(p.client, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3), 0);
	port = sockaddr_port(SA(p.c));
	port |= port << 16;
	ck_assert_int_eq(setsockopt(x, IPPROTO_IP, IP_MINTTL, &far, sizeof far), 0);
	if (setsockopt(x, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &port, sizeof port)) {
		drop(&p);	/* before Linux 6.3 */
		close(x);
		return;
	}
	connect(x, SA(p.s), sizeof(struct sockaddr_in));
	ck_assert_int_eq(errno, EINPROGRESS);
	name(x, &at);
	ck_assert(sockaddr_same(SA(at), SA(p.c)));
	ck_assert_int_eq(ask(&p, x, getuid()), -ENOENT);
	ck_assert_int_eq(identity_query(SA(p.c), SA(p.s), &id), -ENOENT);
	ck_assert_int_eq(getsockopt(p.server, SOL_SOCKET, SO_ERROR, &n, &(socklen_t){ sizeof n }),
			 0);
	ck_assert_int_eq(n, 0);
	close(x);
	drop(&p);
}
END_TEST

/* What is passed as a proof says which socket it is of, is good for nothing else, and keeps
 * nothing open. */
START_TEST(proof)
{
	struct linger lg = { 1, 60 };
	struct msghdr none = { 0 };
	char path[64], byte;
	socklen_t len = sizeof(lg);
	struct pair p;
	int fd, again, pipes[2], mine;

	make(&p, "127.0.0.1", "127.0.0.1");
	fd = proof_of(p.client);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	ck_assert(proof_inode(again) == proof_inode(p.client) && proof_inode(again) > 0);
	ck_assert_int_eq(ask(&p, again, getuid()), 0);
	ck_assert_int_eq(ask(&p, again, getuid() + 1), -EPERM);
	ck_assert_int_ne(identity_check(again, SA(p.c), SA(p.s), getuid()), 0);
	ck_assert(sendmsg(fd, &none, 0) < 0 && recv(fd, &byte, 1, MSG_DONTWAIT) < 0 &&
		  write(fd, "x", 1) < 0 && fcntl(fd, F_SETFL, O_NONBLOCK) < 0 &&
		  shutdown(fd, SHUT_RDWR) < 0 && ioctl(fd, FIONBIO, &len) < 0 &&
		  setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)) < 0 &&
		  getsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, &len) < 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ck_assert(open(path, O_RDWR) < 0 && open(path, O_RDONLY) < 0);
	close(p.client);
	ck_assert_int_eq(recv(p.server, &byte, 1, 0), 0);	/* FIN, whoever has a proof */
	ck_assert_int_ne(ask(&p, again, getuid()), 0);
	close(fd);
	close(again);
	ck_assert_int_eq(pipe(pipes), 0);
	mine = open("/dev/null", O_PATH);
	ck_assert(!proof_inode(pipes[0]) && !proof_inode(mine) && proof_inode(-1) < 0);
	ck_assert(!mkdir("socket:[1]", 0700) || errno == EEXIST);
	again = open("socket:[1]", O_PATH);
	ck_assert(again < 0 || !proof_inode(again));
	rmdir("socket:[1]");
	close(again);
	close(mine);
	close(p.server);
}
END_TEST

/* Of a child that ends with the number of the step at which it failed, 77: it cannot be tried
 * here. */
static void ended_well(pid_t pid)
{
	int st;

	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_msg(st == 0 || st == 77 << 8, "step %d", st >> 8);
}

/* A connection whose server waits for the first byte (TCP_DEFER_ACCEPT): the client is
 * connected, and the other end is no socket yet, of number 0, and root's. Nobody proves that he
 * has it, also root himself, neither by the listener nor by what is no socket. */
START_TEST(accept_deferred)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), wait = 30,
	    got;
	socklen_t len = sizeof(at);
	struct sockaddr_storage us, them;
	int pipes[2], null = open("/dev/null", O_PATH);
	struct identity id;
	int none[3];

	ck_assert(!pipe(pipes));
	none[0] = l, none[1] = pipes[0], none[2] = null;
	ck_assert(!setsockopt(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait, sizeof(wait)));
	ck_assert(!bind(l, (void *)&at, len) && !listen(l, 4) &&
		  !getsockname(l, (void *)&at, &len));
	ck_assert(!connect(c, (void *)&at, len));
	name(c, &us);
	memset(&them, 0, sizeof(them));
	memcpy(&them, &at, sizeof(at));
	sockaddr_normal(&them);
	if (!identity_query(SA(them), SA(us), &id))
		ck_assert_uint_eq(id.inode, 0);
	for (int i = 0; i < 3; i++)
		for (uid_t u = 0; u < 2; u++)
			ck_assert_int_ne(
				identity_check(none[i], SA(us), SA(them), u ? getuid() : 0), 0);
	ck_assert_int_eq(send(c, "x", 1, 0), 1);
	got = accept(l, NULL, NULL);
	ck_assert_int_eq(identity_check(l, SA(us), SA(them), getuid()), -EPERM);
	ck_assert_int_eq(identity_check(got, SA(us), SA(them), getuid()), 0);
	for (int i = 0; i < 3; i++)
		close(none[i]);
	close(got);
	close(c);
	close(pipes[1]);
}
END_TEST

/* Whoever administers the network can answer in the kernel's place. */
START_TEST(forged_answer)
{
	struct { struct nlmsghdr h; struct inet_diag_msg m; } lie = {
		.h = { .nlmsg_len = sizeof(lie), .nlmsg_type = SOCK_DIAG_BY_FAMILY },
	};
	int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int liar = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct sockaddr_nl at = { .nl_family = AF_NETLINK };
	socklen_t len = sizeof(at);
	char buf[256];

	ck_assert_int_ge(nl, 0);
	ck_assert_int_ge(liar, 0);
	ck_assert_int_eq(bind(nl, (void *)&at, sizeof(at)), 0);
	ck_assert_int_eq(getsockname(nl, (void *)&at, &len), 0);
	if (sendto(liar, &lie, sizeof(lie), 0, (void *)&at, sizeof(at)) == sizeof(lie)) {
		ck_assert_int_eq(recv(nl, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT), sizeof(lie));
		ck_assert_int_eq(kernel_answer(nl, buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
		for (int i = 0; i < 100; i++)
			ck_assert_int_eq(
				sendto(liar, &lie, sizeof(lie), 0, (void *)&at, sizeof(at)),
				sizeof(lie));
		ck_assert_int_eq(kernel_answer(nl, buf, sizeof(buf), 0), -EPERM);
	}
	close(liar);
	close(nl);
}
END_TEST

/* The same addresses and ports in another network: only the inode tells them apart. */
START_TEST(same_names_elsewhere)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, c;
	struct pair p;
	int un[2], st, one = 1, fd;
	char ok = 0;
	pid_t pid;

	make(&p, "127.0.0.1", "127.0.0.1");
	at = *(struct sockaddr_in *)&p.s;
	c = *(struct sockaddr_in *)&p.c;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, un), 0);
	pid = fork();
	if (!pid) {
		union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } m = { 0 };
		struct iovec iov = { &ok, 1 };
		struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = m.buf,
				    .msg_controllen = sizeof m.buf };
		struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
		int l;

		if (unshare(CLONE_NEWNET) || system("ip link set lo up 2>/dev/null"))
			_exit(77);
		l = socket(AF_INET, SOCK_STREAM, 0);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(l, (void *)&at, sizeof at) || listen(l, 1) ||
		    bind(fd, (void *)&c, sizeof c) || connect(fd, (void *)&at, sizeof at))
			_exit(1);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof fd);
		sendmsg(un[1], &h, 0);
		pause();	/* the connection lives as long as its namespace's listener */
	}
	close(un[1]);
	{
		union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } m;
		struct iovec iov = { &ok, 1 };
		struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = m.buf,
				    .msg_controllen = sizeof m.buf };
		struct sockaddr_storage n;

		if (recvmsg(un[0], &h, 0) != 1) {
			waitpid(pid, &st, 0);
			ck_assert_int_eq(st, 77 << 8);	/* not permitted to make one */
			return;
		}
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof fd);
		name(fd, &n);
		/* it looks exactly like the other end */
		ck_assert(sockaddr_same(SA(n), SA(p.c)));
		ck_assert_int_eq(ask(&p, fd, getuid()), -EPERM);
		ck_assert_int_eq(ask(&p, p.client, getuid()), 0);
		close(fd);
		kill(pid, SIGKILL);
		waitpid(pid, &st, 0);
	}
	drop(&p);
}
END_TEST

/* A thread moves to another network, and looks at what it made before. */
static int moved_away(void)
{
	struct pair p, q;

	if (!make(&p, "127.0.0.1", "127.0.0.1") || !identity_finds(p.client, SA(p.c), SA(p.s)) ||
	    identity_finds(p.server, SA(p.c), SA(p.s)))
		return 1;
	if (unshare(CLONE_NEWNET) || system("ip link set lo up 2>/dev/null"))
		return 77;
	if (identity_here(p.client, SA(p.c), SA(p.s)) || identity_finds(p.client, SA(p.c), SA(p.s)))
		return 2;
	if (!make(&q, "127.0.0.1", "127.0.0.1"))
		return 3;
	/* Names that are taken here are another's, too. */
	if (identity_here(p.client, SA(q.c), SA(q.s)) || identity_finds(p.client, SA(q.c), SA(q.s)))
		return 4;
	if (!identity_here(q.client, SA(q.c), SA(q.s)) ||
	    !identity_here(q.server, SA(q.s), SA(q.c)))
		return 5;
	return 0;
}

START_TEST(own_end_elsewhere)
{
	pid_t pid = fork();

	if (!pid)
		_exit(moved_away());
	ended_well(pid);
}
END_TEST

/* The uid is that of the socket's maker, which a process cannot change by changing its own. */
START_TEST(another_user)
{
	struct identity id;
	struct pair p;
	int st;
	pid_t pid;

	if (geteuid())
		return;
	pid = fork();
	if (!pid) {
		if (setuid(31337) || !make(&p, "127.0.0.1", "127.0.0.1"))
			_exit(1);
		if (identity_query(SA(p.c), SA(p.s), &id) || id.uid != 31337 || !id.inode ||
		    !id.cookie)
			_exit(2);
		if (ask(&p, p.client, 31337) || ask(&p, p.client, 0) != -EPERM)
			_exit(3);
		_exit(0);
	}
	waitpid(pid, &st, 0);
	ck_assert_int_eq(st, 0);
	make(&p, "127.0.0.1", "127.0.0.1");	/* root makes it, another claims it */
	ck_assert_int_eq(ask(&p, p.client, 31337), -EPERM);
	drop(&p);
	pid = fork();
	if (!pid)	/* behind 65534 anybody may hide */
		_exit(setuid(65534) || !make(&p, "127.0.0.1", "127.0.0.1") ||
		      ask(&p, p.client, 65534) != -EPERM);
	waitpid(pid, &st, 0);
	ck_assert_int_eq(st, 0);
}
END_TEST

START_TEST(queries)
{
	struct sockaddr_in at;
	struct identity id;
	struct pair p;
	uint64_t cookie;
	socklen_t len = sizeof cookie;
	struct stat st;

	make(&p, "127.0.0.1", "127.0.0.1");
	ck_assert_int_eq(getsockopt(p.client, SOL_SOCKET, SO_COOKIE, &cookie, &len), 0);
	ck_assert_int_eq(fstat(p.client, &st), 0);
	ck_assert_int_eq(identity_query(SA(p.c), SA(p.s), &id), 0);
	ck_assert_uint_eq(id.cookie, cookie);
	ck_assert_uint_eq(id.inode, (uint32_t)st.st_ino);
	ck_assert_uint_eq(id.uid, getuid());
	/* A listener at the port is no connection. */
	at = *(struct sockaddr_in *)&p.c;
	at.sin_port ^= htons(1);
	ck_assert_int_eq(identity_query(SA(at), SA(p.s), &id), -ENOENT);
	drop(&p);
}
END_TEST

/* FIN behind more bytes than the reader has room for: it does not arrive, and yet it is known. */
START_TEST(closing)
{
	static char block[65536];
	struct pollfd f;
	struct pair p;

	ck_assert(make(&p, "127.0.0.1", "127.0.0.1"));
	ck_assert(!identity_peer_closing(p.server));
	while (send(p.client, block, sizeof block, MSG_DONTWAIT) > 0)
		;
	ck_assert(!identity_peer_closing(p.server));
	close(p.client);
	f = (struct pollfd){ .fd = p.server, .events = POLLRDHUP };
	ck_assert_int_eq(poll(&f, 1, 50), 0);
	ck_assert(identity_peer_closing(p.server));
	while (recv(p.server, block, sizeof block, 0) > 0)
		;
	ck_assert_int_eq(poll(&f, 1, 10000), 1);
	close(p.server);
	ck_assert(!identity_peer_closing(-1));
}
END_TEST

/* A mark is told of the socket that bears it, and of those that a marked listener accepts, in
 * both families. */
START_TEST(marks)
{
	static const char *const on[] = { "127.0.0.1", "::1", "::" },
		*const to[] = { "127.0.0.1", "::1", "127.0.0.1" };
	struct identity id;
	struct pair p;

	if (!make(&p, on[_i], to[_i]))
		return;
	ck_assert_int_eq(identity_query(SA(p.c), SA(p.s), &id), 0);
	ck_assert(id.unmarked && !id.marked);
	ck_assert_int_eq(identity_query(SA(p.s), SA(p.c), &id), 0);
	ck_assert(id.unmarked && !id.marked);
	socket_mark(p.client);
	ck_assert_int_eq(identity_query(SA(p.c), SA(p.s), &id), 0);
	ck_assert(id.marked && !id.unmarked);
	ck_assert_int_eq(identity_query(SA(p.s), SA(p.c), &id), 0);
	ck_assert(id.unmarked && !id.marked);
	drop(&p);
	mark_listener = true;
	ck_assert(make(&p, on[_i], to[_i]));
	mark_listener = false;
	ck_assert_int_eq(identity_query(SA(p.s), SA(p.c), &id), 0);
	ck_assert(id.marked && !id.unmarked);
	ck_assert_int_eq(identity_query(SA(p.c), SA(p.s), &id), 0);
	ck_assert(id.unmarked && !id.marked);
	drop(&p);
}
END_TEST

/* The accepting end has the timestamp of the SYN, by which the connecting end knows its own, and
 * no other's. */
START_TEST(syn)
{
	static const char *const on[] = { "127.0.0.1", "::1", "::", "127.0.0.7" },
		*const to[] = { "127.0.0.1", "::1", "127.0.0.1", "127.0.0.7" };
	struct pair p, q, bare;
	uint32_t stamp, other, again;
	uint64_t t, until;

	keep_syn = false;
	if (!make(&bare, on[_i], to[_i]))
		return;
	/* nobody asked the kernel for it */
	ck_assert_int_eq(identity_syn(bare.server, &stamp), -ENODATA);
	keep_syn = true;
	t = now_us();
	ck_assert(make(&p, on[_i], to[_i]));
	ck_assert_int_eq(identity_syn(p.client, &stamp), -ENODATA);
	ck_assert_int_eq(identity_syn(p.server, &stamp), 0);
	until = now_us();
	ck_assert(identity_our_syn(p.client, stamp, t, until));
	/* the kernel tells it once */
	ck_assert_int_eq(identity_syn(p.server, &again), -ENODATA);
	ck_assert(!identity_our_syn(p.client, stamp + 5000, t, until));
	/* of an earlier connection */
	ck_assert(!identity_our_syn(p.client, stamp - 5000, t, until));
	ck_assert(identity_our_syn(p.client, stamp - 5000, t - 6000000, until));
	/* A SYN that went out after the call, as a proxy's. */
	usleep(20000);
	ck_assert(!identity_our_syn(p.client, stamp + 10, t, until));
	ck_assert(identity_our_syn(p.client, stamp + 10, t, until + 10000));
	ck_assert(identity_our_syn(p.client, stamp, t, until));
	/* Other addresses: another beginning of the clock, as on another host. */
	ck_assert(
		make(&q, _i == 3 ? "127.0.0.1" : "127.0.0.9", _i == 3 ? "127.0.0.1" : "127.0.0.9"));
	ck_assert_int_eq(identity_syn(q.server, &other), 0);
	until = now_us();
	ck_assert(identity_our_syn(q.client, other, t, until));
	ck_assert(!identity_our_syn(p.client, other, t, until));
	ck_assert(!identity_our_syn(q.client, stamp, t, until));
	ck_assert(!identity_our_syn(-1, stamp, t, until));
	keep_syn = false;
	drop(&bare);
	drop(&p);
	drop(&q);
}
END_TEST

/* A program that reads the SYN itself finds it. */
START_TEST(syn_of_the_program)
{
	struct pair p;
	uint32_t stamp;
	uint8_t raw[512];
	socklen_t len = sizeof raw;

	keep_syn = true;
	ck_assert(make(&p, "127.0.0.1", "127.0.0.1"));
	identity_leave_syn();
	ck_assert_int_eq(identity_syn(p.server, &stamp), -EBUSY);
	ck_assert_int_eq(getsockopt(p.server, IPPROTO_TCP, TCP_SAVED_SYN, raw, &len), 0);
	ck_assert_uint_ge(len, 40);
	keep_syn = false;
	drop(&p);
}
END_TEST

#include "identity_network.h"

int main(void)
{
	Suite *s = suite_create("identity");
	TCase *t = tcase_create("identity");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, the_truth, 0, 7);
	tcase_add_test(t, wrong_fds);
	tcase_add_test(t, proof);
	tcase_add_test(t, accept_deferred);
	tcase_add_test(t, forged_answer);
	tcase_add_test(t, same_names_elsewhere);
	tcase_add_test(t, own_end_elsewhere);
	tcase_add_test(t, another_user);
	tcase_add_test(t, queries);
	tcase_add_test(t, closing);
	tcase_add_loop_test(t, marks, 0, 3);
	tcase_add_loop_test(t, syn, 0, 4);
	tcase_add_test(t, leaves_host);
	tcase_add_test(t, leaves_host_by_a_vlan);
	tcase_add_test(t, syn_of_the_program);
	tcase_add_test(t, own_network);
	tcase_add_test(t, same_names_without_device);
	tcase_add_test(t, listener_is_none);
	tcase_add_test(t, tuples);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
