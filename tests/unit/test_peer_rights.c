/*
 * test_peer_rights.c - what /proc says of a process's rights (shim/link/peer_rights.c): texts of
 * kernels, old and new, and real processes that give something up.
 *
 * LINK: shim/link/peer_rights.c policy/words.c shim/base/procfs.c
 */
#include <check.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../shim/base/fdtab.h"
#include "../../shim/link/peer_rights.h"
#include "../../shim/base/shim.h"
#include "suite.h"
#include "tests/older.h"

_Atomic int shim_pid;
static int brief;
void fd_number_lock(void) { brief++; }
void fd_number_unlock(void) { brief--; }
bool fd_may_make(void) { return brief == 1; }

static struct peer_rights said(const char *text, bool *ret_plain)
{
	struct peer_rights r = { .plain = true };
	struct peer_status st = { .to = &r };

	for (const char *s = text, *end; (end = strchr(s, '\n')); s = end + 1)
		peer_status_line(&st, s, (size_t)(end - s));
	*ret_plain = r.plain;
	return r;
}

START_TEST(lines)
{
	bool plain;
	struct peer_rights r = said("Name:\tUid: 5\nUid:\t7\t7\t7\t9\nGid:\t8\t8\t8\t8\n"
				    "CapPrm:\t000001fffeffffff\nNoNewPrivs:\t1\nSeccomp:\t2\n"
				    "Seccomp_filters:\t3\n", &plain);

	ck_assert(plain);
	ck_assert_uint_eq(r.uid, 7);
	ck_assert_uint_eq(r.gid, 8);
	ck_assert_uint_eq(r.caps, 0x1fffeffffff);
	ck_assert(r.no_new_privs);
	ck_assert_uint_eq(r.filters, 3);
	ck_assert_uint_eq(said("Seccomp:\t2\n", &plain).filters, 1);
	ck_assert_uint_eq(said("Seccomp:\t1\nSeccomp_filters:\t0\n", &plain).filters, 1);
	ck_assert_uint_eq(said("Seccomp:\t0\nSeccomp_filters:\t0\n", &plain).filters, 0);
}
END_TEST

/* Each of the three counts, of users and of groups. */
START_TEST(mixed)
{
	static const char *const texts[] = { "Uid:\t1\t0\t0\t0\n", "Uid:\t0\t1\t0\t0\n",
					     "Uid:\t0\t0\t1\t0\n",
		"Gid:\t1\t0\t0\t0\n", "Gid:\t0\t1\t0\t0\n", "Gid:\t0\t0\t1\t0\n" };
	bool plain;

	for (int i = 0; i < 6; i++) {
		said(texts[i], &plain);
		ck_assert(!plain);
	}
}
END_TEST

/* A child's rights, when it has done that. */
static bool of_child(int (*gives_up)(void), struct peer_rights *ret)
{
	int done[2], end[2], st;
	char c = 0;
	bool ok;
	pid_t p;

	ck_assert(!pipe(done) && !pipe(end));
	p = fork();
	if (!p) {
		c = gives_up && gives_up() ? 1 : 0;
		close(end[1]);
		if (write(done[1], &c, 1) != 1 || read(end[0], &c, 1))
			_exit(1);
		_exit(0);
	}
	close(done[1]);
	ck_assert_int_eq(read(done[0], &c, 1), 1);
	ok = !c && peer_rights_look(p, ret);
	close(end[1]);
	waitpid(p, &st, 0);
	close(done[0]);
	close(end[0]);
	return ok;
}

static int no_new(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }

static int filter(void)
{
	struct sock_filter f = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog p = { 1, &f };

	return no_new() || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

static int user_ns(void) { return unshare(CLONE_NEWUSER); }
static int groups_too(void) { return setgid(31337); }
static int user(void) { return setuid(31337) || prctl(PR_SET_DUMPABLE, 1); }
static int effective(void) { return seteuid(31337) || prctl(PR_SET_DUMPABLE, 1); }

static int one_capability(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		return -1;
	d[0].permitted &= ~(1u << CAP_SYS_PTRACE);
	d[0].effective &= d[0].permitted;
	return (int)syscall(SYS_capset, &h, d) || prctl(PR_SET_DUMPABLE, 1);
}

static const struct { const char *what; int (*gives_up)(void); bool root; } ways[] = {
	{ "no_new_privs", no_new, false }, { "a filter", filter, false },
		{ "a user namespace", user_ns, false },
	{ "a group", groups_too, true }, { "a user", user, true }, { "an effective user", effective,
		true },
	{ "a capability", one_capability, true },
};

START_TEST(real)
{
	struct peer_rights own, child;
	int seen = 0;
	long before;

	atomic_store(&shim_pid, getpid());
	ck_assert(peer_rights_look(0, &own));
	ck_assert(own.plain);
	ck_assert_uint_eq(own.uid, getuid());
	ck_assert(of_child(NULL, &child));
	ck_assert(peer_rights_cover(&child, &own));
	ck_assert(peer_rights_cover(&own, &child));
	before = dup(0);
	close((int)before);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		if (ways[i].root && geteuid())
			continue;
		/* not permitted here; or nobody may say what it has */
		if (!of_child(ways[i].gives_up, &child))
			continue;
		ck_assert_msg(!peer_rights_cover(&child, &own), "%s is not noticed", ways[i].what);
		seen++;
	}
	ck_assert_int_ge(seen, geteuid() ? 2 : 6);	/* all but the user namespace can be had */
	ck_assert_int_eq(dup(0), before);	/* nothing is left open */
	ck_assert_int_eq(brief, 0);
}
END_TEST

/* One line is longer than any buffer. */
START_TEST(many_groups)
{
	static gid_t list[4000];
	struct peer_rights own, child;
	int st;
	pid_t p;

	if (geteuid())
		return;
	for (int i = 0; i < 4000; i++)
		list[i] = 100000u + (gid_t)i;
	atomic_store(&shim_pid, getpid());
	ck_assert(peer_rights_look(0, &own));
	p = fork();
	if (!p) {
		atomic_store(&shim_pid, getpid());
		_exit(syscall(SYS_setgroups, 4000, list) || !peer_rights_look(0, &child) ||
		      !peer_rights_cover(&child, &own));
	}
	waitpid(p, &st, 0);
	ck_assert_int_eq(st, 0);
}
END_TEST

/* A number of nobody's, and a /proc in which we have another. */
START_TEST(not_to_be_had)
{
	struct peer_rights r;

	ck_assert(!peer_rights_look(0x3fffffff, &r));
	atomic_store(&shim_pid, getpid() + 1);
	ck_assert(!peer_rights_look(0, &r));
}
END_TEST

/* ---- a domain of Landlock, which /proc does not show: why it need not be seen ---- */

static uint64_t secret = 0x5ec7e7;

static int enter_domain(void)
{
	struct landlock_ruleset_attr a = { .handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_SYM };
	int fd = (int)syscall(SYS_landlock_create_ruleset, &a, sizeof a.handled_access_fs, 0);

	return fd < 0 ? -1 : (int)syscall(SYS_landlock_restrict_self, fd, 0);
}

/* 0: the kernel refuses to show what lies there in that process. */
static int is_refused(pid_t pid, void *at)
{
	uint64_t word;
	struct iovec to = { &word, sizeof word }, from = { at, sizeof word };

	return syscall(SYS_process_vm_readv, pid, &to, 1, &from, 1, 0) != -1 || errno != EPERM;
}

/* Our reading for it gives it nothing: it reads none but those of its domain, and no exec leads
 * out of that, nor to more rights, for without no_new_privs, which is seen, nobody gets in but
 * who has CAP_SYS_ADMIN. An address of ours is one that it cannot use. */
START_TEST(a_domain)
{
	char pid[16], at[32];
	int status;
	pid_t p = fork();

	if (!p) {
		snprintf(pid, sizeof pid, "%d", getppid());
		snprintf(at, sizeof at, "%p", (void *)&secret);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || enter_domain())
			_exit(77);
		if (is_refused(getppid(), &secret))
			_exit(1);
		execl("/proc/self/exe", "reads", pid, at, NULL);
		_exit(2);
	}
	waitpid(p, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		puts("no Landlock");
		return;
	}
	ck_assert_int_eq(status, 0);
	p = fork();
	if (!p) {
		if (!geteuid() && setuid(31337))
			_exit(1);
		_exit(enter_domain() ? errno != EPERM : 2);
	}
	waitpid(p, &status, 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("peer_rights");
	TCase *tc = tcase_create("peer_rights");

	if (argc == 3)		/* a_domain, after exec */
		return is_refused(atoi(argv[1]), (void *)(uintptr_t)strtoull(argv[2], NULL, 16));
	tcase_add_test(tc, lines);
	tcase_add_test(tc, mixed);
	tcase_add_test(tc, real);
	tcase_add_test(tc, many_groups);
	tcase_add_test(tc, not_to_be_had);
	tcase_add_test(tc, a_domain);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
