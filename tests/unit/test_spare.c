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
#include <sys/syscall.h>
#include <unistd.h>

#include "../../shim/base/shim.h"

/* The time that is left is over after so many looks at the clock. */
static int looks = INT32_MAX;
static uint64_t test_us(void) { return looks-- > 0 ? 1 : UINT64_MAX / 2; }
#define now_us() test_us()
#include "../../shim/discovery/discovery_sock.c"
#undef now_us
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

#define TRIES 5

static uint64_t processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* What one system call costs that goes past all sockets, for want of one like that. */
static uint64_t past_all(void)
{
	struct { struct nlmsghdr h; struct unix_diag_req r; } req = {
		.h = { .nlmsg_len = sizeof req, .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.r = { .sdiag_family = AF_UNIX, .udiag_states = 1u << TCP_CLOSING },
	};
	int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	uint64_t from = processor_ns();

	ck_assert_int_eq(send(nl, &req, sizeof req, 0), sizeof req);
	from = processor_ns() - from;
	close(nl);
	return from;
}

/* Whose time is over after the first answer has made no more than its first system call: with
 * 597,000 sockets of another user's that was 170 ms. */
START_TEST(not_past_all_at_once)
{
	struct rlimit r;
	uint64_t all = UINT64_MAX, one = UINT64_MAX, t;
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
	for (int i = 0; i < TRIES; i++) {
		t = past_all();
		all = t < all ? t : all;
		looks = 0;
		t = processor_ns();
		ck_assert_int_eq(look(getuid(), &un), -ECONNREFUSED);
		t = processor_ns() - t;
		one = t < one ? t : one;
	}
	ck_assert_msg(one * 4 < all, "one call: %lu ns; past all %d sockets: %lu ns", one, made,
		      all);
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
