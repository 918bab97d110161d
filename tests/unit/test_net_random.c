/*
 * test_net_random.c - getrandom(2) fails, or gives less than asked for, where two hosts'
 * libraries prove themselves to each other: no call is made, and a call that comes is refused,
 * since whoever knew the nonce could prove anything. With what it gives otherwise both go on.
 * And calls that are handed over, by anybody, with sockets whose close waits: nobody waits for
 * them. The real discovery_net.c and net_proof.c, on sockets of this host; neither end has a
 * device, nor needs one before the proof.
 *
 * LINK: shim/discovery/identity.c shim/base/sock.c shim/base/procs.c shim/base/fdtab.c
 * LINK: shim/base/lock.c shim/link/rights.c shim/base/closer.c shim/base/own_thread.c
 * LINK: shim/discovery/net_refused.c shim/base/proof.c shim/base/procfs.c shim/base/event.c
 */
#include <arpa/inet.h>
#include <check.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "../../shim/base/sys.h"

static long gives;	/* in place of the kernel's answer; 0: that one */
static int asked;

static long random_says(void)
{
	asked++;
	return gives;
}

#undef sys
#define sys(n, ...) ((n) == SYS_getrandom && random_says() ? gives : SYS_ARGS_(n, ##__VA_ARGS__, \
	0, 0, 0, 0, 0, 0))
#include "../../shim/discovery/net_proof.c"
#include "../../shim/discovery/discovery_port.c"
#include "../../shim/discovery/discovery_net.c"

#include "net_world.h"

static bool random_enough(const struct net_msg *m)
{
	int zeros = 0;

	for (int i = 0; i < NET_NONCE; i++)
		zeros += !m->nonce[i];
	return zeros < 8;
}

static const long answers[] = { -ENOSYS, -EAGAIN, NET_NONCE / 2 };

START_TEST(makes_a_call)
{
	struct net_msg m;
	int fd;

	begin(true);
	gives = 0;
	ck_assert_int_eq(net_call(&stream), 1);
	ck_assert_int_eq(stream.search.state, SEARCH_CALL);
	fd = accept(listener, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	net_call_ready(0);
	ck_assert_int_eq(recv(fd, &m, sizeof m, MSG_WAITALL), sizeof m);
	ck_assert_int_eq(m.type, NET_CALL);
	ck_assert(random_enough(&m));
	close(fd);
	net_after_fork();
}
END_TEST

START_TEST(does_not_call)
{
	begin(true);
	gives = answers[_i];
	ck_assert_int_eq(net_call(&stream), REASON_NO_TRUST);
	ck_assert_int_eq(asked, 1);
	ck_assert_int_eq(watched, 0);
	ck_assert_int_eq(calls[0].state, C_FREE);
	ck_assert_int_eq(stream.search.state, SEARCH_LISTEN);
	ck_assert_int_eq(accept(listener, NULL, NULL), -1);
}
END_TEST

/* What is said to one who calls. */
static struct net_msg say_to_caller(int *ret)
{
	struct net_msg m = { .order = NET_ORDER, .version = NET_VERSION, .type = NET_CALL };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct ctl_tuple mine;

	memcpy(m.magic, "rdmashim", 8);
	tuple_from(&mine, (void *)&stream.addr.local, (void *)&stream.addr.peer);
	tuple_reverse(&m.tuple, &mine);
	ck_assert_int_eq(net_listen(&stream), 0);
	ck_assert_int_eq(connect(fd, (void *)&port, sizeof port), 0);
	ck_assert_int_eq(send(fd, &m, sizeof m, 0), sizeof m);
	net_port_ready();
	net_call_ready(0);
	ck_assert_int_eq(recv(fd, &m, sizeof m, MSG_WAITALL), sizeof m);
	*ret = fd;
	return m;
}

START_TEST(answers_a_call)
{
	struct net_msg m;
	int fd;

	begin(false);
	gives = 0;
	m = say_to_caller(&fd);
	ck_assert_int_eq(m.type, NET_ANSWER);
	ck_assert(random_enough(&m));
	ck_assert_int_eq(calls[0].state, S_PROOF);
	close(fd);
	net_after_fork();
}
END_TEST

START_TEST(refuses_a_call)
{
	struct net_msg m;
	int fd;

	begin(false);
	gives = answers[_i];
	m = say_to_caller(&fd);
	ck_assert_int_eq(m.type, NET_REFUSED);
	ck_assert_int_eq(m.mode, REASON_NO_TRUST);
	ck_assert_int_ge(asked, 1);
	ck_assert_int_eq(calls[0].state, C_FREE);
	ck_assert_int_eq(recv(fd, &m, 1, 0), 0);
	close(fd);
	net_after_fork();
}
END_TEST

/* With unsent data, for a receiver that never reads. */
static void linger(int fd)
{
	struct linger wait = { 1, 600 };
	static char junk[65536];
	int least = 1;

	while (send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	/* some of it may be on its way still, and would leave room for the answer */
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
}

/* The last reference to such a connection. */
static int lingering(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(l, (void *)&a, len) || listen(l, 1), 0);
	ck_assert_int_eq(getsockname(l, (void *)&a, &len), 0);
	ck_assert_int_eq(connect(fd, (void *)&a, len), 0);
	ck_assert_int_ge(accept(l, NULL, NULL), 0);
	linger(fd);
	close(l);
	return fd;
}

static void hand_over(const struct net_msg *m, int n, const int *fds)
{
	struct iovec iov = { (void *)m, sizeof *m };
	union { char buf[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr align; } ctl = { 0 };
	struct sockaddr_un un;
	struct msghdr h = { .msg_name = &un, .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = ctl.buf,
			    .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int)) };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&h);

	h.msg_namelen = net_name(&m->tuple, &un);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	memcpy(CMSG_DATA(cm), fds, (size_t)n * sizeof(int));
	_exit(sendmsg(socket(AF_UNIX, SOCK_DGRAM, 0), &h, 0) != (ssize_t)sizeof *m);
}

/* By a stranger; a second one; one where none belongs. Whoever waits for it is ended by Check. */
START_TEST(handed_over_and_lingers)
{
	struct net_msg m = { .order = NET_ORDER, .version = NET_VERSION,
			     .type = _i == 2 ? NET_PROOF : NET_CALL };
	struct ctl_tuple mine;
	int fds[2], st, n, r;
	pid_t pid;

	if (!_i && geteuid())
		return;		/* no other user can be had */
	begin(false);
	gives = 0;
	memcpy(m.magic, "rdmashim", 8);
	tuple_from(&mine, (void *)&stream.addr.local, (void *)&stream.addr.peer);
	tuple_reverse(&m.tuple, &mine);
	ck_assert_int_eq(net_listen(&stream), 0);
	n = _i == 1 ? 2 : 1;
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	fds[n - 1] = lingering();
	pid = fork();
	if (!pid) {
		if (!_i && setuid(31337))
			_exit(2);
		hand_over(&m, n, fds);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	close(fds[n - 1]);
	net_name_ready(&stream);
	ck_assert_int_eq(calls[0].state, C_FREE);
	while ((r = net_listen(&stream)) == -EADDRINUSE)	/* the one that is closed */
		sched_yield();
	ck_assert_int_eq(r, 0);
	ck_assert_int_ge(stream.search.fd, 0);
	net_after_fork();
}
END_TEST

/* By the holder of the port, as it should be: answered over the connection that came. Or nobody
 * reads there, and it lingers. Or the holder is of another user, of whom we take proofs, and who
 * may keep the socket locked: nothing is asked of that. */
START_TEST(handed_over_rightly)
{
	struct net_msg m = { .order = NET_ORDER, .version = NET_VERSION, .type = NET_CALL };
	int fds[2] = { socket(AF_INET, SOCK_STREAM, 0), -1 }, st;
	struct ctl_tuple mine;
	pid_t pid;

	if (_i == 2 && geteuid())
		return;		/* no other user can be had */
	begin(true);
	gives = 0;
	memcpy(m.magic, "rdmashim", 8);
	tuple_from(&mine, (void *)&stream.addr.local, (void *)&stream.addr.peer);
	tuple_reverse(&m.tuple, &mine);
	ck_assert_int_eq(connect(fds[0], (void *)&port, sizeof port), 0);
	fds[1] = accept(listener, NULL, NULL);
	if (_i == 1)
		linger(fds[1]);
	ck_assert_int_eq(net_listen(&stream), 0);
	pid = fork();
	if (!pid) {
		if (_i == 2 && setuid(31337))
			_exit(2);
		hand_over(&m, 1, &fds[1]);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	close(fds[1]);
	net_name_ready(&stream);
	if (_i) {
		ck_assert_int_eq(calls[0].state, C_FREE);
		return;
	}
	ck_assert_int_eq(calls[0].state, S_PROOF);
	ck_assert_int_ge(stream.search.fd, 0);
	ck_assert_int_eq(recv(fds[0], &m, sizeof m, MSG_WAITALL), sizeof m);
	ck_assert_int_eq(m.type, NET_ANSWER);
	net_after_fork();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_random");
	TCase *t = tcase_create("getrandom");
	SRunner *r;
	int failed;

	tcase_add_test(t, makes_a_call);
	tcase_add_loop_test(t, does_not_call, 0, sizeof answers / sizeof *answers);
	tcase_add_test(t, answers_a_call);
	tcase_add_loop_test(t, refuses_a_call, 0, sizeof answers / sizeof *answers);
	tcase_add_loop_test(t, handed_over_rightly, 0, 3);
	tcase_add_loop_test(t, handed_over_and_lingers, 0, 3);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
