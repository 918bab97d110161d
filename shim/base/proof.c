/* proof.c - see proof.h. */
#include "base/proof.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "policy/words.h"

#define OWN_FD "/proc/thread-self/fd/%d"

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
	return S_ISSOCK(y.stx_mode) && x.stx_ino == y.stx_ino &&
	       x.stx_dev_major == y.stx_dev_major && x.stx_dev_minor == y.stx_dev_minor;
}

/* After chroot() /proc may be a directory of somebody's who is locked up there: what it leads to,
 * any file of ours, must not go to a peer. */
int proof_of(int fd)
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

/* What /proc says may be what a user has written there, as above. */
static bool is_socket(int fd, int64_t inode)
{
	struct statx x;

	return !look(fd, &x) || (S_ISSOCK(x.stx_mode) && x.stx_ino == (uint64_t)inode);
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
	if (n < from || memcmp(name, kind, from))
		return n < 0 ? n : 0;
	for (i = from; i < n && name[i] >= '0' && name[i] <= '9' && inode <= UINT32_MAX; i++)
		inode = inode * 10 + name[i] - '0';
	return i == n - 1 && name[i] == ']' && is_socket(fd, inode) ? inode : 0;
}
