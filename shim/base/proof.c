/* proof.c - see proof.h. */
#include "base/proof.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "policy/words.h"

#ifndef SYS_open_tree
#define SYS_open_tree 428	/* one number on all machines since Linux 5.2 */
#endif

#define OWN_FD "/proc/thread-self/fd/%d"

/* The device all sockets are on, + 1; 0: not known yet. */
static _Atomic uint64_t sockets_device;

static uint64_t device(const struct statx *x)
{
	return ((uint64_t)x->stx_dev_major << 32 | x->stx_dev_minor) + 1;
}

/* Asks no daemon, whatever `fd` is of. False also where the kernel does not say. */
static bool look(int fd, struct statx *ret)
{
	const int how = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;

	return sys(SYS_statx, fd, "", how, STATX_TYPE | STATX_INO, ret) >= 0;
}

static bool are_one_socket(int a, int b)
{
	struct statx x, y;

	if (!look(a, &x) || !look(b, &y))
		return true;
	return S_ISSOCK(y.stx_mode) && x.stx_ino == y.stx_ino && device(&x) == device(&y);
}

/* After chroot() /proc may be a directory of somebody's who is locked up there: what it leads to,
 * any file of ours, must not go to a peer. */
static int by_proc(int fd)
{
	char path[40];
	int proof;

	fmt_string(path, sizeof(path), OWN_FD, fd);
	proof = (int)sys(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
	if (proof < 0 || are_one_socket(fd, proof))
		return proof;
	sys(SYS_close, proof);
	return -ENOTSOCK;
}

/* A filter of system calls may kill whoever makes one that mounts use. */
int proof_of(int fd)
{
	int proof = -ENOSYS;

	if (!sys(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0))
		proof = (int)sys(SYS_open_tree, fd, "", AT_EMPTY_PATH | O_CLOEXEC);
	return proof < 0 ? by_proc(fd) : proof;
}

/* A name of a socket in a file system is no socket: its device is another. */
static bool may_be_socket(const struct statx *x)
{
	uint64_t known = atomic_load_explicit(&sockets_device, memory_order_relaxed);

	return S_ISSOCK(x->stx_mode) && (!known || device(x) == known);
}

/* What /proc says may be what a user has written there, as above. */
static bool is_socket(int fd, int64_t inode)
{
	struct statx x;

	return !look(fd, &x) || (may_be_socket(&x) && x.stx_ino == (uint64_t)inode);
}

/* Without /proc. */
static int64_t by_device(int fd, long why)
{
	struct statx x;

	if (!atomic_load_explicit(&sockets_device, memory_order_relaxed) || !look(fd, &x))
		return why;
	return may_be_socket(&x) ? (int64_t)x.stx_ino : 0;
}

/* Only sockets have such a name: that of a file begins with a slash. */
int64_t proof_inode(int fd)
{
	static const char kind[] = "socket:[";
	const long from = sizeof(kind) - 1;
	char path[40], name[40];
	int64_t inode = 0;
	long n, i;

	fmt_string(path, sizeof(path), OWN_FD, fd);
	n = sys(SYS_readlinkat, AT_FDCWD, path, name, sizeof(name));
	if (n < 0)
		return by_device(fd, n);
	if (n < from || memcmp(name, kind, from))
		return 0;
	for (i = from; i < n && name[i] >= '0' && name[i] <= '9' && inode <= UINT32_MAX; i++)
		inode = inode * 10 + name[i] - '0';
	return i == n - 1 && name[i] == ']' && is_socket(fd, inode) ? inode : 0;
}

int proof_possible(int sock)
{
	int64_t inode;
	struct statx x;

	if (!atomic_load_explicit(&sockets_device, memory_order_relaxed) && look(sock, &x) &&
	    S_ISSOCK(x.stx_mode))
		atomic_store_explicit(&sockets_device, device(&x), memory_order_relaxed);
	inode = proof_inode(sock);
	return inode < 0 ? (int)inode : 0;
}
