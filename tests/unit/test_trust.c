/*
 * test_trust.c - whose files are believed (policy/trust.c): owner, mode, kind of a file and of the
 * directories that lead to it; links, also chains as Kubernetes makes them; read-only mounts; user
 * namespaces. As root: strangers' files need a second user.
 *
 * TIMEOUT: 60
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../policy/trust.h"
#include "suite.h"

#define STRANGER 1001

static char dir[] = "/tmp/test-trust.XXXXXX";
static struct trust t;

static void enter(void)
{
	umask(022);
	strcpy(dir, "/tmp/test-trust.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_int_eq(chdir(dir), 0);
}

static void leave(void)
{
	char cmd[100];

	ck_assert_int_eq(chdir("/"), 0);
	snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

static void file(const char *name, mode_t mode, uid_t owner)
{
	int fd = open(name, O_WRONLY | O_CREAT, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "mode off\n", 9), 9);
	ck_assert_int_eq(fchown(fd, owner, owner), 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void folder(const char *name, mode_t mode, uid_t owner)
{
	mkdir(name, 0755);
	ck_assert_int_eq(chown(name, owner, owner), 0);
	ck_assert_int_eq(chmod(name, mode), 0);
}

/* By its relative and by its absolute name, and when it is open. */
static int walk(const char *name, enum trust_kind kind)
{
	char path[200];
	int rc, fd;

	rc = trust_walk(name, kind, &t);
	if (name[0] != '/') {
		snprintf(path, sizeof path, "%s/%s", dir, name);
		ck_assert_int_eq(trust_walk(path, kind, &t), rc);
	}
	ck_assert((rc == TRUST_REFUSED) == (t.why[0] != '\0') || rc == -ENOENT);
	if (!rc && kind != TRUST_OUTPUT) {
		fd = open(t.path, TRUST_READ);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(trust_opened(fd, kind, &t), 0);
		close(fd);
	}
	return rc;
}

static void good(const char *name, enum trust_kind kind)
{
	ck_assert_msg(walk(name, kind) == 0, "%s: %s", name, t.why);
}

static void bad(const char *name, enum trust_kind kind, const char *why)
{
	int rc = walk(name, kind);

	ck_assert_msg(rc == TRUST_REFUSED && strstr(t.why, why), "%s: %d %s", name, rc, t.why);
}

START_TEST(files)
{
	static const struct { mode_t mode; uid_t owner; const char *policy, *key; } rows[] = {
		{ 0644, 0, NULL, "mode 0644: others may read it" },
		{ 0600, 0, NULL, NULL }, { 0640, 0, NULL, NULL },
			{ 0444, 0, NULL, "others may read it" },
		{ 0664, 0, "mode 0664: its group may write to it; take that away (chmod g-w)",
		  "group may write" },
		{ 0646, 0, "mode 0646: others may write to it; take that away (chmod go-w)",
		  "others may write" },
		{ 0602, 0, "others may write", "others may write" },
		{ 0644, STRANGER, "belongs to user 1001 and has mode 0644: its owner can",
		  "its owner can" },
		{ 0600, STRANGER, "its owner can", "its owner can" },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		file("f", rows[i].mode, rows[i].owner);
		rows[i].policy ? bad("f", TRUST_POLICY, rows[i].policy) : good("f", TRUST_POLICY);
		rows[i].key ? bad("f", TRUST_KEY, rows[i].key) : good("f", TRUST_KEY);
		ck_assert_int_eq(unlink("f"), 0);
	}
	ck_assert_int_eq(walk("f", TRUST_POLICY), -ENOENT);
	ck_assert_int_eq(walk(".", TRUST_POLICY), -EISDIR);
	ck_assert_int_eq(walk("/", TRUST_POLICY), -EISDIR);
	good("/", TRUST_DIR);
	good("/dev/null", TRUST_POLICY);
	ck_assert_int_eq(walk("/dev/null", TRUST_KEY), -EINVAL);
	ck_assert_int_eq(walk("/dev/zero", TRUST_POLICY), -EINVAL);
	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	ck_assert_int_eq(walk("fifo", TRUST_POLICY), -EINVAL);
}
END_TEST

/* A user's own, beside root's. */
START_TEST(own)
{
	folder("home", 0755, STRANGER);
	file("home/f", 0600, STRANGER);
	file("home/of-root", 0644, 0);
	file("home/group", 0640, STRANGER);
	folder("closed", 0700, 0);
	ck_assert_int_eq(seteuid(STRANGER), 0);
	good("home/f", TRUST_POLICY);
	good("home/f", TRUST_KEY);
	good("home/of-root", TRUST_POLICY);
	bad("home/group", TRUST_KEY, "its group may read it");
	ck_assert_int_eq(walk("closed/f", TRUST_POLICY), -EACCES);
	good("home/../home/./f", TRUST_POLICY);
	good("home//f", TRUST_POLICY);
	ck_assert_int_eq(seteuid(0), 0);
	bad("home/f", TRUST_POLICY,
	    "/home (directory) belongs to user 1001 and has mode 0755: its owner");
	bad("home/of-root", TRUST_POLICY, "/home (directory) belongs to user 1001");
	bad("home/new", TRUST_OUTPUT, "/home (directory)");
	ck_assert_int_eq(walk("home/none", TRUST_POLICY), -ENOENT);
}
END_TEST

START_TEST(directories)
{
	folder("a", 0755, 0);
	folder("a/b", 0755, 0);
	file("a/b/f", 0644, 0);
	good("a/b/f", TRUST_POLICY);
	folder("a", 0777, 0);
	bad("a/b/f", TRUST_POLICY,
	    "/a (directory) belongs to user 0 and has mode 0777: others may write to it");
	bad("a/b", TRUST_DIR, "/a (directory)");
	ck_assert(!t.stranger);
	folder("a", 0775, 0);
	bad("a/b/f", TRUST_KEY, "/a (directory) belongs to user 0 and has mode 0775");
	folder("a", 0755, STRANGER);
	bad("a/b/f", TRUST_POLICY, "/a (directory) belongs to user 1001");
	folder("a", 0755, 0);
	folder("a/b", 0777, 0);
	bad("a/b", TRUST_DIR, "/a/b (directory)");
	bad("a/b/../../a/b/f", TRUST_POLICY, "/a/b (directory)");
}
END_TEST

START_TEST(sticky)
{
	int d;

	folder("s", 01777, 0);
	file("s/ours", 0644, 0);
	file("s/theirs", 0644, STRANGER);
	folder("s/their.d", 0755, STRANGER);
	file("s/their.d/f", 0644, 0);
	good("s/ours", TRUST_POLICY);
	ck_assert(t.shared);
	bad("s/theirs", TRUST_POLICY, "belongs to user 1001 and has mode 0644: a stranger's");
	ck_assert(t.stranger);
	bad("s/their.d/f", TRUST_POLICY, "/s/their.d (directory) belongs to user 1001");
	ck_assert(t.stranger);
	ck_assert_int_eq(symlink("ours", "s/link"), 0);
	ck_assert_int_eq(lchown("s/link", STRANGER, STRANGER), 0);
	bad("s/link", TRUST_POLICY, "belongs to user 1001");
	ck_assert(t.stranger);
	good("s", TRUST_DIR);
	ck_assert(t.shared);
	d = open("s", O_RDONLY | O_DIRECTORY);
	ck_assert(trust_name(d, "ours", &t) && !trust_name(d, "theirs", &t) &&
		  !trust_name(d, "link", &t));
	close(d);
	folder("s", 01777, STRANGER);	/* whose it is may take away what he likes */
	bad("s/ours", TRUST_POLICY, "/s (directory) belongs to user 1001");
}
END_TEST

/* /etc/rdmashim.conf may be a link; volumes of Kubernetes are chains of them, in a directory of
 * mode 0777 on a read-only mount. */
START_TEST(links)
{
	char path[100];

	folder("etc", 0755, 0);
	folder("opt", 0755, 0);
	file("opt/f", 0644, 0);
	snprintf(path, sizeof path, "%s/opt/f", dir);
	ck_assert_int_eq(symlink(path, "etc/f"), 0);
	ck_assert_int_eq(symlink("../opt/../etc/./f", "etc/g"), 0);
	good("etc/f", TRUST_POLICY);
	ck_assert_str_eq(t.path, path);
	good("etc/g", TRUST_POLICY);
	ck_assert_str_eq(t.path, path);
	folder("opt", 0777, 0);
	bad("etc/g", TRUST_POLICY, "/opt (directory)");
	folder("opt", 0755, 0);
	ck_assert_int_eq(symlink("loop", "loop"), 0);
	ck_assert_int_eq(walk("loop", TRUST_POLICY), -ELOOP);
	folder("vol", 0755, 0);
	folder("vol/..2026", 0755, 0);
	file("vol/..2026/f", 0644, 0);
	ck_assert_int_eq(symlink("..2026", "vol/..data"), 0);
	ck_assert_int_eq(symlink("..data/f", "vol/f"), 0);
	good("vol/f", TRUST_POLICY);
	folder("vol", 0777, 0);
	bad("vol/f", TRUST_POLICY, "/vol (directory) belongs to user 0 and has mode 0777");
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		puts("no mount namespace: read-only mounts were not tried");
		return;
	}
	snprintf(path, sizeof path, "%s/vol", dir);
	ck_assert_int_eq(mount(path, path, NULL, MS_BIND, NULL), 0);
	ck_assert_int_eq(mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
	ck_assert_int_eq(chdir(dir), 0);
	good("vol/f", TRUST_POLICY);
	umount2(path, MNT_DETACH);
	/* a file system may say whatever its maker likes, and here anybody may make a place for
	 * it */
	folder("s", 01777, 0);
	folder("s/m", 0755, 0);
	snprintf(path, sizeof path, "%s/s/m", dir);
	ck_assert_int_eq(mount("none", path, "tmpfs", 0, "mode=755"), 0);
	file("s/m/f", 0644, 0);
	bad("s/m/f", TRUST_POLICY, "/s/m (directory) belongs to user 0 and has mode 0755: mounted");
	umount2(path, MNT_DETACH);
}
END_TEST

START_TEST(outputs)
{
	good("new.log", TRUST_OUTPUT);
	file("log", 0666, 0);
	good("log", TRUST_OUTPUT);
	ck_assert_int_eq(link("log", "second"), 0);
	bad("log", TRUST_OUTPUT, "it has a second name");
	folder("s", 01777, 0);
	good("s/new.log", TRUST_OUTPUT);
	file("s/log", 0666, STRANGER);
	bad("s/log", TRUST_OUTPUT, "belongs to user 1001");
	ck_assert_int_eq(symlink("/etc/passwd", "s/trap"), 0);
	ck_assert_int_eq(lchown("s/trap", STRANGER, STRANGER), 0);
	bad("s/trap", TRUST_OUTPUT, "belongs to user 1001");
	good("/dev/null", TRUST_OUTPUT);
	ck_assert_int_eq(walk(".", TRUST_OUTPUT), -EISDIR);
	ck_assert_int_eq(walk("nowhere/log", TRUST_OUTPUT), -ENOENT);
}
END_TEST

/* What changes between the look and the opening is seen when it is open. */
START_TEST(replaced)
{
	int fd;

	folder("s", 01777, 0);
	file("s/f", 0644, 0);
	ck_assert_int_eq(trust_walk("s/f", TRUST_POLICY, &t), 0);
	ck_assert_int_eq(unlink("s/f"), 0);
	file("s/f", 0644, STRANGER);
	fd = open(t.path, TRUST_READ);
	ck_assert_int_eq(trust_opened(fd, TRUST_POLICY, &t), TRUST_REFUSED);
	close(fd);
	ck_assert_int_eq(unlink("s/f"), 0);
	ck_assert_int_eq(symlink("/etc/passwd", "s/f"), 0);
	ck_assert_int_lt(open(t.path, TRUST_READ), 0);
}
END_TEST

static void say(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(99);
	close(fd);
}

/* In the child: a user namespace by user `who`, which maps what `map` says. */
static void in_namespace(uid_t who, const char *map)
{
	if (setresgid(who, who, who) || setresuid(who, who, who) || prctl(PR_SET_DUMPABLE, 1) ||
	    unshare(CLONE_NEWUSER))
		_exit(77);
	if (map)
		say("/proc/self/uid_map", map);
	t.foreign = -1;
}

/* The host's root is 65534 there, and so is everybody else. */
START_TEST(namespaces)
{
	int status;
	pid_t pid;

	/* in /tmp, where root's may be anybody's */
	ck_assert_int_eq(chown(dir, STRANGER, STRANGER), 0);
	folder("etc", 0755, 0);
	file("etc/f", 0644, 0);
	folder("s", 01777, 0);
	file("s/root", 0644, 0);
	file("s/own", 0644, STRANGER);
	file("s/theirs", 0644, 31337);
	pid = fork();
	if (!pid) {
		in_namespace(STRANGER, "0 1001 1\n");
		if (trust_walk("etc/f", TRUST_POLICY, &t) ||
		    trust_walk("/etc/passwd", TRUST_POLICY, &t))
			_exit(1);
		if (trust_walk("s/own", TRUST_POLICY, &t))
			_exit(2);
		if (trust_walk("s/root", TRUST_POLICY, &t) != TRUST_REFUSED || !t.stranger)
			_exit(3);
		if (trust_walk("s/theirs", TRUST_POLICY, &t) != TRUST_REFUSED || !t.stranger)
			_exit(4);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		puts("no user namespace");
		return;
	}
	ck_assert_msg(!status, "mapped user: %x", status);
	pid = fork();
	if (!pid) {	/* nobody is mapped: its own files are 65534's, too */
		in_namespace(STRANGER, NULL);
		if (geteuid() != 65534 || trust_walk("/etc/passwd", TRUST_POLICY, &t))
			_exit(1);
		_exit(trust_walk("s/own", TRUST_POLICY, &t) == TRUST_REFUSED ? 0 : 2);
	}
	waitpid(pid, &status, 0);
	ck_assert_msg(!status, "nobody mapped: %x", status);
	/* outside of namespaces nobody is a user like any other */
	ck_assert_int_eq(chown(dir, 0, 0), 0);
	file("etc/nobody", 0644, 65534);
	bad("etc/nobody", TRUST_POLICY, "belongs to user 65534");
	ck_assert_int_eq(seteuid(65534), 0);
	good("etc/nobody", TRUST_POLICY);
	ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

/* A server locks a user up in his home, and becomes him: what he has uploaded is not believed; what
 * root put there is, and outputs may be his. Of a user who was there from the start his own is. */
START_TEST(another_root)
{
	static const enum trust_kind kinds[] = { TRUST_POLICY, TRUST_KEY };
	pid_t pid;
	int status;

	folder("home", 0755, 0);
	folder("home/etc", 0755, 0);
	folder("home/mine", 0755, STRANGER);
	file("home/etc/roots", 0600, 0);
	file("home/etc/f", 0600, STRANGER);
	file("home/mine/f", 0600, STRANGER);
	ck_assert_int_eq(symlink("/mine/f", "home/etc/link"), 0);
	for (int seen = 0; seen < 2; seen++) {
		pid = fork();
		if (!pid) {
			int want = seen ? TRUST_REFUSED : 0;

			if (seen && trust_walk("/", TRUST_DIR, &t))
				_exit(1);
			if (chroot("home") || chdir("/") || setresuid(STRANGER, STRANGER, STRANGER))
				_exit(2);
			if (seen &&
			    (trust_walk("/etc/roots", TRUST_POLICY, &t) || !trust_root_moved()))
				_exit(3);
			for (int i = 0; i < 2; i++)
				if (trust_walk("/etc/f", kinds[i], &t) != want ||
				    trust_walk("/etc/link", kinds[i], &t) != want ||
				    trust_walk("mine/f", kinds[i], &t) != want)
					_exit(4);
			if (trust_walk("/mine", TRUST_DIR, &t) != want)
				_exit(5);
			_exit(trust_walk("/mine/f", TRUST_OUTPUT, &t) ? 6 : 0);
		}
		waitpid(pid, &status, 0);
		ck_assert_msg(!status, "%s: %x", seen ? "moved" : "there from the start", status);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trust");
	TCase *c = tcase_create("trust");

	if (geteuid()) {
		puts("only root can make files of two users");
		return 77;
	}
	tcase_add_checked_fixture(c, enter, leave);
	tcase_set_timeout(c, 30);
	tcase_add_test(c, files);
	tcase_add_test(c, own);
	tcase_add_test(c, directories);
	tcase_add_test(c, sticky);
	tcase_add_test(c, links);
	tcase_add_test(c, outputs);
	tcase_add_test(c, replaced);
	tcase_add_test(c, namespaces);
	tcase_add_test(c, another_root);
	suite_add_tcase(s, c);
	return run_suite(s);
}
