/*
 * test_ctl_last.c - the last records of a process that ends with some of ours unread: the kernel
 * tells of that first, once, and they are received all the same (shim/link/link_ctl.c).
 *
 * LINK: shim/link/link_ctl.c shim/base/lock.c
 */
#include <check.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../shim/base/bell.h"
#include "../../shim/base/loop.h"
#include "../../shim/link/link.h"
#include "../../shim/link/rights.h"
#include "suite.h"

/* What receives without a descriptor beside a record is the kernel. */
long rights_recv(int sock, struct iovec *iov, int *ret_flags, int *ret_fd)
{
	struct msghdr h = { .msg_iov = iov, .msg_iovlen = 1 };
	long r = recvmsg(sock, &h, MSG_DONTWAIT);

	*ret_fd = -1;
	*ret_flags = 0;
	return r < 0 ? -errno : r;
}
bool rights_done(int fd) { return fd < 0; }
bool link_trusts(struct link *l) { return l != NULL; }
uint64_t bell_made_mask(void) { return 0; }
void loop_kick(void) { }
struct bell bells[BELL_MAX];

static int ours, theirs;

static void pair(void)
{
	int sv[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	ours = sv[0];
	theirs = sv[1];
}

static void say(int sock, unsigned msg)
{
	struct ctl_msg m = { .type = CTL_CUT, .version = CTL_VERSION, .index = msg };

	ck_assert_int_eq(ctl_send_fd(sock, &m, -1), 0);
}

static void hears(unsigned msg)
{
	struct ctl_msg m;
	int fd;

	ck_assert_int_eq(ctl_recv(ours, true, &m, &fd), 1);
	ck_assert_uint_eq(m.index, msg);
	ck_assert_int_eq(fd, -1);
}

static void hears_the_end(void)
{
	struct ctl_msg m;
	int fd;

	ck_assert_int_eq(ctl_recv(ours, true, &m, &fd), -EPIPE);
	close(ours);
}

START_TEST(all_read)
{
	pair();
	say(theirs, 3);
	say(theirs, 7);
	close(theirs);
	hears(3);
	hears(7);
	hears_the_end();
}
END_TEST

START_TEST(ours_unread)
{
	pair();
	say(theirs, 3);
	say(theirs, 7);
	say(ours, 2);
	close(theirs);
	hears(3);
	hears(7);
	hears_the_end();
}
END_TEST

START_TEST(ours_unread_and_nothing_said)
{
	pair();
	say(ours, 2);
	close(theirs);
	hears_the_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl_last");
	TCase *tc = tcase_create("all");

	tcase_add_test(tc, all_read);
	tcase_add_test(tc, ours_unread);
	tcase_add_test(tc, ours_unread_and_nothing_said);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
