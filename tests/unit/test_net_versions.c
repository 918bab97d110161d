/*
 * test_net_versions.c - libraries of two versions on one host: whoever holds the discovery port
 * passes a call of another version on to whom it is for, with what it has read of it, and does not
 * take it for an answer that nobody is there yet; who gets one says which version he has. The
 * real discovery_net.c and net_proof.c, on sockets of this host.
 *
 * LINK: shim/discovery/identity.c shim/base/sock.c shim/base/procs.c shim/base/fdtab.c
 * LINK: shim/base/lock.c shim/link/rights.c shim/base/closer.c shim/base/own_thread.c
 * LINK: shim/discovery/net_refused.c shim/base/proof.c shim/base/procfs.c shim/base/event.c
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <sys/timerfd.h>

#include "../../shim/base/sys.h"
#include "../../shim/discovery/net_proof.c"
#include "../../shim/discovery/discovery_port.c"
#include "../../shim/discovery/discovery_net.c"
#include "net_world.h"

#define OTHER   (NET_VERSION + 1)
#define OTHER_BYTES 230		/* of its CALL: longer than ours */

/* A call for the stream, or for another one of this host, as its client sees it. */
static struct net_msg call_of(int version, bool ours)
{
	struct net_msg m = { .order = NET_ORDER, .version = (uint16_t)version, .type = NET_CALL };
	struct ctl_tuple mine;

	memcpy(m.magic, NET_MAGIC, sizeof m.magic);
	tuple_from(&mine, (void *)&stream.addr.local, (void *)&stream.addr.peer);
	tuple_reverse(&m.tuple, &mine);
	m.tuple.lport = ours ? m.tuple.lport : (uint16_t)getpid();
	return m;
}

/* The name where a process of whatever version waits for the call. */
static int name_of(const struct net_msg *m)
{
	struct sockaddr_un un;
	socklen_t len = net_name(&m->tuple, &un);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), on = 1;

	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
	ck_assert_int_eq(bind(fd, (void *)&un, len), 0);
	return fd;
}

/* One that calls the port, in pieces. */
static int caller(const void *m, size_t n, size_t piece)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(net_listen(&stream), 0);
	ck_assert_int_eq(connect(fd, (void *)&port, sizeof port), 0);
	net_port_ready();
	for (size_t at = 0; at < n; at += piece) {
		size_t part = n - at < piece ? n - at : piece;

		ck_assert_int_eq(send(fd, (const char *)m + at, part, 0), part);
		net_call_ready(0);
	}
	return fd;
}

/* What is handed over: its bytes, and the connection. */
static long taken(int name, void *m, size_t room, int *ret)
{
	struct iovec iov = { m, room };
	int flags;

	return rights_recv(name, &iov, &flags, ret);
}

/* The rest lies in the connection: nobody but the other version knows how long it is. */
START_TEST(passes_on_another_version)
{
	struct { struct net_msg m; char rest[OTHER_BYTES - sizeof(struct net_msg)]; } call, got;
	int name, fd, end;
	long n;

	begin(false);
	memset(&call, 0x5a, sizeof call);
	call.m = call_of(OTHER, false);
	memset(call.m.nonce, 0x77, sizeof call.m.nonce);
	name = name_of(&call.m);
	fd = caller(&call, sizeof call, 50);
	n = taken(name, &got, sizeof got, &end);
	ck_assert_int_ge(n, NET_ROUTE);
	ck_assert_int_ge(end, 0);
	ck_assert_int_eq(recv(end, (char *)&got + n, sizeof got - (size_t)n, MSG_WAITALL),
			 (long)sizeof got - n);
	ck_assert(!memcmp(&call, &got, sizeof call));
	ck_assert_int_eq(calls[0].state, C_FREE);
	ck_assert_int_eq(recv(fd, &got, 1, MSG_DONTWAIT), -1);	/* nothing was said to it */
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(fd_internal_keep(end) >= 0, 1);
	close(fd);
	net_after_fork();
}
END_TEST

/* All of it, to who has our version: those of before take nothing less. */
START_TEST(passes_on_ours)
{
	struct net_msg call, got;
	int name, fd, end;

	begin(false);
	call = call_of(NET_VERSION, false);
	name = name_of(&call);
	fd = caller(&call, sizeof call, 50);
	ck_assert_int_eq(taken(name, &got, sizeof got, &end), sizeof got);
	ck_assert(!memcmp(&call, &got, sizeof call));
	close(fd);
	net_after_fork();
}
END_TEST

/* What a caller of another version is told: no, and why. */
static struct net_msg refusal(bool here)
{
	struct net_msg m;
	int fd;

	begin(false);
	m = call_of(OTHER, here);
	fd = caller(&m, sizeof m, sizeof m);
	ck_assert_int_eq(recv(fd, &m, sizeof m, MSG_WAITALL), sizeof m);
	ck_assert_int_eq(m.type, NET_REFUSED);
	close(fd);
	return m;
}

/* Not yet there: to be asked again, which every version can read. */
START_TEST(nobody_there)
{
	ck_assert_int_eq(refusal(false).mode, REASON_NONE);
	ck_assert_int_eq(calls[0].state, C_FREE);
	net_after_fork();
}
END_TEST

START_TEST(refuses_another_version)
{
	struct net_msg m = refusal(true);

	ck_assert_int_eq(m.mode, REASON_VERSION);
	ck_assert_int_eq(m.version, NET_VERSION);
	/* others of the host may have our version */
	ck_assert_int_eq(net_refused_why(&stream.addr.peer), REASON_NONE);
	net_after_fork();
}
END_TEST

/* A holder of another version has handed over the beginning of a call: of one of ours the rest
 * comes, perhaps later; of one of another version, perhaps the holder's own, we say no. */
START_TEST(handed_over_in_part)
{
	struct net_msg m;
	int ends[2], l, name;
	bool other = _i >= 2, late = _i & 1;
	size_t n = other && late ? sizeof m : NET_ROUTE;
	struct sockaddr_un un;
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } ctl = { 0 };
	struct iovec iov = { &m, n };
	struct msghdr h = { .msg_name = &un, .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&h);

	begin(true);
	m = call_of(other ? OTHER : NET_VERSION, true);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(ends[0], (void *)&port, sizeof port), 0);
	l = ends[1] = accept(listener, NULL, NULL);
	ck_assert_int_eq(net_listen(&stream), 0);
	h.msg_namelen = net_name(&m.tuple, &un);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &l, sizeof l);
	name = socket(AF_UNIX, SOCK_DGRAM, 0);
	ck_assert_int_eq(sendmsg(name, &h, 0), (long)n);
	close(ends[1]);
	if (!other && !late)
		ck_assert_int_eq(send(ends[0], (char *)&m + n, sizeof m - n, 0), sizeof m - n);
	net_name_ready(&stream);
	if (!other && late) {
		ck_assert_int_eq(calls[0].state, S_CALL);
		ck_assert_int_eq(send(ends[0], (char *)&m + n, sizeof m - n, 0), sizeof m - n);
	}
	if (!other)
		net_call_ready(0);
	ck_assert_int_ge(stream.search.fd, 0);
	ck_assert_int_eq(recv(ends[0], &m, sizeof m, MSG_WAITALL), sizeof m);
	ck_assert_int_eq(m.type, other ? NET_REFUSED : NET_ANSWER);
	ck_assert_int_eq(m.mode, other ? (int)REASON_VERSION : NET_BY_ADDRESS);
	ck_assert_int_eq(calls[0].state, other ? C_FREE : S_PROOF);
	net_after_fork();
}
END_TEST

/* What a client hears from another version, and what it makes of it. */
static const struct { int type; enum reason said, heard; } answers[] = {
	{ NET_REFUSED, REASON_NONE, REASON_NO_PEER_SHIM },
	{ NET_REFUSED, REASON_VERSION, REASON_VERSION },
	{ NET_REFUSED, REASON_NO_PEER_SHIM, REASON_VERSION },	/* a number of another list */
	{ NET_ANSWER, REASON_NONE, REASON_VERSION },
};

START_TEST(another_version_answers)
{
	struct net_msg m = call_of(OTHER, true);
	int fd;

	begin(true);
	stream.role = ROLE_CLIENT;
	ck_assert_int_eq(net_call(&stream), 1);
	fd = accept(listener, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	net_call_ready(0);
	m.type = (uint16_t)answers[_i].type;
	m.mode = answers[_i].said;
	ck_assert_int_eq(send(fd, &m, sizeof m, 0), sizeof m);
	ended = REASON_COUNT;
	net_call_ready(0);
	ck_assert_int_eq(ended, answers[_i].heard);
	/* others of the host may have our version */
	ck_assert_int_eq(net_refused_why(&stream.addr.peer), REASON_NONE);
	close(fd);
	net_after_fork();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_versions");
	TCase *t = tcase_create("versions");
	SRunner *r;
	int failed;

	tcase_add_test(t, passes_on_another_version);
	tcase_add_test(t, passes_on_ours);
	tcase_add_test(t, nobody_there);
	tcase_add_test(t, refuses_another_version);
	tcase_add_loop_test(t, handed_over_in_part, 0, 4);
	tcase_add_loop_test(t, another_version_answers, 0, sizeof answers / sizeof *answers);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
