/*
 * test_proof.c - what shows that a process has a socket (shim/base/proof.c), and what else asks
 * /proc, below a root directory whose /proc is a user's: it lies, is not there, or never answers.
 *
 * LINK: shim/base/proof.c shim/base/procfs.c shim/base/procs.c shim/base/fdtab.c
 * LINK: shim/base/event.c shim/base/lock.c
 * LINK: shim/base/cgroup.c shim/link/peer_rights.c
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fuse.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../policy/trust.h"
#include "../../shim/base/cgroup.h"
#include "../../shim/base/procfs.h"
#include "../../shim/base/procs.h"
#include "../../shim/base/proof.h"
#include "../../shim/base/shim.h"
#include "../../shim/link/peer_rights.h"
#include "suite.h"

#define CANNOT 77	/* it cannot be tried here */

_Atomic int shim_pid;

/* A child's end: 0, or the number of the step at which it failed. */
static void ended_well(pid_t pid)
{
	int st;

	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_msg(st == 0 || st == CANNOT << 8, "status %#x", st);
}

static int pidfd_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static void answer(int dev, const struct fuse_in_header *in, const void *p, size_t n)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof(h) + n), .unique = in->unique };
	struct iovec v[2] = { { &h, sizeof(h) }, { (void *)p, n } };

	ck_assert_int_eq(writev(dev, v, 2), h.len);
}

/* The daemon: it answers nothing but the mount itself, until the child has ended. False: that
 * did not come, so somebody asked. What waits is released when `dev` is closed. */
static bool ended_unanswered(int dev, pid_t pid)
{
	struct fuse_init_out o = { .major = FUSE_KERNEL_VERSION, .max_write = 4096,
				   .minor = FUSE_KERNEL_MINOR_VERSION };
	struct pollfd p[2] = { { .fd = pidfd_of(pid), .events = POLLIN }, { dev, POLLIN, 0 } };
	_Alignas(8) char buf[1 << 14];
	const struct fuse_in_header *in = (void *)buf;

	while (poll(p, 2, 20000) > 0 && !p[0].revents)
		if (read(dev, buf, sizeof(buf)) <= 0)
			p[1].fd = -1;		/* not mounted */
		else if (in->opcode == FUSE_INIT)
			answer(dev, in, &o, sizeof(o));
		else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_DESTROY)
			break;
	close(p[0].fd);
	return p[0].revents;
}

/* Runs `steps` in a child, with a new directory that it may make its root, and a socket. */
static void below_another_root(int (*steps)(const char *, int, int), int arg)
{
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	char root[] = "/tmp/rdmashim-root.XXXXXX", rm[64];
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	bool ended;
	pid_t pid;

	ck_assert_ptr_nonnull(mkdtemp(root));
	ck_assert_int_eq(chmod(root, 0755), 0);
	pid = fork();
	if (!pid)
		_exit(steps(root, sock, arg < 0 ? dev : arg));
	ended = ended_unanswered(dev, pid);
	close(dev);
	if (!ended)
		kill(pid, SIGKILL);
	snprintf(rm, sizeof(rm), "rm -rf %s", root);
	ck_assert_int_eq(system(rm), 0);
	ck_assert_msg(ended, "it asks what is mounted there");
	ended_well(pid);
	close(sock);
}

static bool filtered(void)
{
	struct sock_filter allow = { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
	struct sock_fprog allow_all = { 1, &allow };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &allow_all);
}

/* /proc says so of a name of a socket in a file system, whose number he can choose. Its
 * descriptor of O_PATH, before chroot(), or -1. */
static int named_socket(void)
{
	char link[64], number[32];
	struct stat st;
	int fd;

	if (mknod("named", S_IFSOCK | 0666, 0) || stat("named", &st))
		return -1;
	fd = open("named", O_PATH);
	snprintf(link, sizeof(link), "proc/thread-self/fd/%d", fd);
	snprintf(number, sizeof(number), "socket:[%lld]", (long long)st.st_ino);
	return symlink(number, link) ? -1 : fd;
}

/* A root directory whose /proc a user has made: it leads to what he may not reach, and says that a
 * file is the socket. 3: he got at the one; 4, 5: the other is believed. */
static int with_his_proc(const char *root, int sock, int filter)
{
	int64_t inode = proof_inode(sock);
	int file = open("/dev/null", O_PATH), named;
	char link[64], socket_name[32];
	struct stat st;

	snprintf(link, sizeof(link), "proc/thread-self/fd/%d", sock);
	if (chdir(root) || system("mkdir -p -m 755 proc/thread-self/fd locked/in && "
				  "chmod 700 locked && echo secret > locked/in/note && "
				  "chmod -R go+rX locked/in") ||
	    symlink("/locked/in", link))
		return CANNOT;
	snprintf(link, sizeof(link), "proc/thread-self/fd/%d", file);
	snprintf(socket_name, sizeof(socket_name), "socket:[%lld]", (long long)inode);
	named = named_socket();
	if (named < 0 || symlink(socket_name, link) || chroot(".") || chdir("/"))
		return CANNOT;
	if (proof_inode(file) > 0)
		return 4;
	if (proof_inode(named) > 0)
		return 5;
	if (filter && !filtered())
		return CANNOT;
	sock = proof_of(sock);
	if (sock < 0)
		return 0;
	if (setgid(31337) || setuid(31337) || openat(AT_FDCWD, "/locked/in/note", O_RDONLY) >= 0)
		return 1;
	if (openat(sock, "note", O_RDONLY) >= 0)
		return 3;
	return fstat(sock, &st) || !S_ISSOCK(st.st_mode) ? 2 : 0;
}

/* Once with the system call that needs no /proc, once as under a filter that may forbid it. */
START_TEST(forged_proc)
{
	below_another_root(with_his_proc, _i);
}
END_TEST

/* In an empty root directory. 0, or at what it fails. */
static int without_proc(const char *root, int sock, int unused)
{
	int other = socket(AF_INET, SOCK_STREAM, 0), fd, name;

	(void)unused;
	if (chdir(root) || mknod("socket", S_IFSOCK | 0600, 0) || chroot(".") || chdir("/"))
		return CANNOT;
	if (setgid(31337) || setuid(31337))
		return CANNOT;
	if (syscall(SYS_open_tree, -1, "", 0) < 0 && errno == ENOSYS)
		return CANNOT;
	fd = proof_of(sock);
	if (fd < 0)
		return 1;
	if (proof_possible())
		return 2;
	if (proof_inode(fd) <= 0 || proof_inode(fd) != proof_inode(sock))
		return 3;
	if (proof_inode(fd) == proof_inode(other))
		return 4;
	name = open("socket", O_PATH);
	return name < 0 || proof_inode(name) || proof_inode(-1) >= 0 ? 5 : 0;
}

START_TEST(no_proc)
{
	below_another_root(without_proc, 0);
}
END_TEST

/* A file system at `at` whose daemon never answers; what asks for anything waits for it. In another
 * mount namespace, with another root directory or the same. */
static int with_silent(const char *root, const char *at, int sock, int dev)
{
	struct peer_rights r;
	struct trust t;
	char opts[80];
	int fd;

	trust_walk("/", TRUST_DIR, &t);		/* as the library does when it begins */
	snprintf(opts, sizeof(opts), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev);
	if (!proc_is_ours() || !trust_proc())
		return 1;
	if (dev < 0 || chdir(root) || mkdir("proc", 0755) || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("silent", at, "fuse", MS_NOSUID | MS_NODEV, opts))
		return CANNOT;
	if (at[0] != '/' && (chroot(".") || chdir("/")))
		return CANNOT;
	if (close(dev) || !filtered())
		return CANNOT;
	if (proc_is_ours() || trust_proc())
		return 2;
	fd = proof_of(sock);
	if (fd >= 0)		/* under a filter /proc alone makes one */
		return 3;
	if (proof_possible() || proof_inode(sock) <= 0)
		return 4;
	if (process_start(getpid()) || process_of_pidfd(pidfd_of(getpid())) > 0)
		return 5;
	if (memory_limit() || peer_rights_look(0, &r))
		return 6;
	return 0;
}

static int with_silent_proc(const char *root, int sock, int dev)
{
	return with_silent(root, "proc", sock, dev);
}

static int with_silent_mount(const char *root, int sock, int dev)
{
	return with_silent(root, "/proc", sock, dev);
}

static int with_silent_directory(const char *root, int sock, int dev)
{
	char self[32];

	snprintf(self, sizeof(self), "/proc/%d", getpid());
	return with_silent(root, self, sock, dev);
}

START_TEST(silent_proc)
{
	below_another_root(with_silent_proc, -1);
}
END_TEST

START_TEST(silent_mount)
{
	below_another_root(_i ? with_silent_directory : with_silent_mount, -1);
}
END_TEST

static struct statx place_of(const char *path)
{
	struct statx s;

	ck_assert_int_eq(statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, TRUST_PLACE, &s), 0);
	return s;
}

/* As before Linux 5.8: /proc is the root of the same file system. */
START_TEST(mounts_without_numbers)
{
	struct statx root = place_of("/"), proc = place_of("/proc"), in = place_of("/proc/self"),
		     other = place_of("/dev"), moved = root;
	struct trust t;

	root.stx_mask = moved.stx_mask = STATX_INO;
	moved.stx_ino++;
	other.stx_ino = proc.stx_ino;
	ck_assert_int_eq(trust_proc_is_first(&moved, NULL), 1);		/* nothing was seen yet */
	trust_walk("/", TRUST_DIR, &t);
	ck_assert_int_eq(trust_proc_is_first(&moved, NULL), 0);
	ck_assert_int_eq(trust_proc_is_first(&root, NULL), -1);
	ck_assert_int_eq(trust_proc_is_first(&root, &in), 0);
	ck_assert_int_eq(trust_proc_is_first(&root, &proc), 1);
	ck_assert_int_eq(trust_proc_is_first(&root, &other), 0);
	ck_assert_int_eq(trust_proc_is_first(&root, &proc), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proof");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, forged_proc, 0, 2);
	tcase_add_test(t, no_proc);
	tcase_add_test(t, silent_proc);
	tcase_add_loop_test(t, silent_mount, 0, 2);
	tcase_add_test(t, mounts_without_numbers);
	suite_add_tcase(s, t);
	return run_suite(s);
}
