/*
 * test_spare.c - the look for a spare name (shim/discovery/discovery_sock.c) among the host's
 * sockets, by the real kernel: it finds one of the user's that listens, and none else, and no
 * system call of it goes past all that others have.
 *
 * LINK: shim/discovery/identity.c shim/base/sock.c shim/base/procs.c shim/base/fdtab.c
 * LINK: shim/base/lock.c shim/base/proof.c shim/base/procfs.c shim/base/event.c
 */
#include <arpa/inet.h>
#include <check.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../shim/base/shim.h"
#include "../../shim/discovery/identity.h"

/* The time that is left is over after so many looks at the clock. */
static int looks = INT32_MAX;
static uint64_t test_us(void) { return looks-- > 0 ? 1 : UINT64_MAX / 2; }

/* Answers that were asked for; sockets in all of them, and in one at most. */
static int answers, told, most_told;
static long test_answer(int nl, void *buf, size_t size, int flags);

#define now_us() test_us()
#define kernel_answer test_answer
#include "../../shim/discovery/discovery_sock.c"
#undef now_us
#undef kernel_answer
#include "suite.h"

_Atomic(const struct policy *) shim_policy;
bool rights_allow(int fd, bool on) { (void)fd; return on; }
void rights_close(int fd) { close(fd); }

static struct sockaddr_in client = { .sin_family = AF_INET }, server = { .sin_family = AF_INET };

/* A socket with a spare name of the connection's. */
static int spare(bool listens)
{
	struct sockaddr_un un;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	socklen_t len = abstract_name(&un, (void *)&client, (void *)&server);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (void *)&un, spare_name(&un, len)), 0);
	if (listens)
		ck_assert_int_eq(listen(fd, 1), 0);
	return fd;
}

static int look(uid_t uid, struct sockaddr_un *un)
{
	socklen_t len = abstract_name(un, (void *)&client, (void *)&server);

	return look_for_spare(un, &len, uid, 2);
}

static void ends(uint16_t port)
{
	client.sin_addr.s_addr = server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	client.sin_port = htons(port);
	server.sin_port = htons((uint16_t)getpid());
	looks = INT32_MAX;
}

START_TEST(a_listener_of_the_users)
{
	struct sockaddr_un un;
	int deaf, fd;

	ends(1);
	ck_assert_int_eq(look(getuid(), &un), -ECONNREFUSED);
	deaf = spare(false);
	ck_assert_int_eq(look(getuid(), &un), -ECONNREFUSED);
	fd = spare(true);
	ck_assert_int_eq(look(getuid() + 1, &un), -ECONNREFUSED);
	ck_assert_int_eq(look(getuid(), &un), 0);
	close(fd);
	ck_assert_int_eq(look(getuid(), &un), -ECONNREFUSED);
	close(deaf);
}
END_TEST

static long test_answer(int nl, void *buf, size_t size, int flags)
{
	long n = kernel_answer(nl, buf, size, flags), left = n;
	int here = 0;

	for (const struct nlmsghdr *h = buf; left > 0 && NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
		here += h->nlmsg_type == SOCK_DIAG_BY_FAMILY;
	answers++;
	told += here;
	most_told = here > most_told ? here : most_told;
	return n;
}

/* Each system call of a look goes past the sockets that its answer tells of, and so past some
 * hundred, if the kernel leaves none out in silence; and a look whose time is over makes no more
 * than its first one. What is counted are sockets: with 597,000 of another user's that left out all
 * but those that listen the first call took 170 ms. */
START_TEST(not_past_all_at_once)
{
	struct rlimit r;
	struct sockaddr_un un;
	int made = 0, most, p[2];

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	most = r.rlim_cur < 16000 + 1000 ? (int)r.rlim_cur - 1000 : 16000;
	while (made < most && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p))
		made += 2;
	if (made < 4000)
		return;		/* too few to tell anything by */
	ends(2);
	answers = told = most_told = 0;
	ck_assert_int_eq(look(getuid(), &un), -ECONNREFUSED);
	/* (the kernel may miss one that stands behind others which are closed meanwhile) */
	ck_assert_msg(told * 2 > made, "of %d sockets %d were told of", made, told);
	ck_assert_msg(most_told * 4 < made, "one call goes past %d of %d sockets", most_told, made);
	looks = answers = 0;
	ck_assert_int_eq(look(getuid(), &un), -ECONNREFUSED);
	ck_assert_int_eq(answers, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spare");
	TCase *t = tcase_create("spare");

	tcase_set_timeout(t, 30);
	suite_add_tcase(s, t);
	tcase_add_test(t, a_listener_of_the_users);
	tcase_add_test(t, not_past_all_at_once);
	return run_suite(s);
}
