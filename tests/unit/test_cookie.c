/*
 * test_cookie.c - a kernel that counts the cookies of sockets for each network namespace: one that
 * was passed has the right cookie and is another connection's all the same (shim/identity.c).
 *
 * LINK: shim/base/sock.c shim/base/procs.c shim/base/fdtab.c shim/base/lock.c
 */
#include <arpa/inet.h>
#include <check.h>
#include <sys/socket.h>

#include "../../shim/base/sys.h"

static long test_sys(long n, long a, long b, long c, long d, long e, long f);
#undef SYS_ARGS_
#define SYS_ARGS_(n, a, b, c, d, e, f, ...) test_sys((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#include "../../shim/discovery/identity.c"
#include "suite.h"

static int all_as = -1;		/* whose cookie they all have */

static long test_sys(long n, long a, long b, long c, long d, long e, long f)
{
	if (n == SYS_getsockopt && b == SOL_SOCKET && c == SO_COOKIE && all_as >= 0)
		a = all_as;
	return sys6(n, a, b, c, d, e, f);
}

static void name_of(int fd, struct sockaddr_storage *sa)
{
	socklen_t len = sizeof *sa;

	memset(sa, 0, sizeof *sa);
	ck_assert_int_eq(getsockname(fd, (void *)sa, &len), 0);
}

START_TEST(another_namespace)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof to;
	int l = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int other = socket(AF_INET, SOCK_STREAM, 0), server;
	struct sockaddr_storage c, s;

	ck_assert(!bind(l, (void *)&to, len) && !listen(l, 4) && !getsockname(l, (void *)&to, &len));
	ck_assert(!connect(client, (void *)&to, len) && !connect(other, (void *)&to, len));
	server = accept(l, NULL, NULL);
	name_of(client, &c);
	name_of(server, &s);
	ck_assert_int_eq(identity_check(client, (void *)&s, (void *)&c, getuid()), 0);
	ck_assert_int_eq(identity_check(other, (void *)&s, (void *)&c, getuid()), -EPERM);
	all_as = client;
	ck_assert_int_eq(identity_check(client, (void *)&s, (void *)&c, getuid()), 0);
	ck_assert_int_eq(identity_check(other, (void *)&s, (void *)&c, getuid()), -EPERM);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cookie");
	TCase *c = tcase_create("cookie");

	tcase_add_test(c, another_namespace);
	suite_add_tcase(s, c);
	return run_suite(s);
}
