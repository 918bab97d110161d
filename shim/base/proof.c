/* proof.c - see proof.h. */
#include "base/proof.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/sys.h"
#include "policy/words.h"

#ifndef SYS_open_tree
#define SYS_open_tree 428	/* one number on all machines since Linux 5.2 */
#endif

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

/* The /proc that is there must not lead a peer to another file of ours. */
static int by_proc(int fd)
{
	char path[40];
	struct statx x, y;
	int proof;

	if (!proc_is_ours())
		return -EPERM;
	fmt_string(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	proof = (int)sys(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
	if (proof < 0)
		return proof;
	if (look(fd, &x) && look(proof, &y) && S_ISSOCK(y.stx_mode) &&
	    x.stx_ino == y.stx_ino && device(&x) == device(&y))
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

static uint64_t device_of_sockets(void)
{
	uint64_t known = atomic_load_explicit(&sockets_device, memory_order_relaxed);
	struct statx x;
	int fd;

	if (known)
		return known;
	fd = fd_moment_sys(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	if (look(fd, &x) && S_ISSOCK(x.stx_mode))
		known = device(&x);
	fd_internal_close(fd);
	atomic_store_explicit(&sockets_device, known, memory_order_relaxed);
	return known;
}

/* A name of a socket in a file system is no socket: its device is another. /proc would say what
 * it is, too; but not to all, and after chroot() not the truth. */
int64_t proof_inode(int fd)
{
	uint64_t sockets = device_of_sockets();
	struct statx x;

	if (!sockets || !look(fd, &x))
		return -ENOENT;
	return S_ISSOCK(x.stx_mode) && device(&x) == sockets ? (int64_t)x.stx_ino : 0;
}

int proof_possible(void) { return device_of_sockets() ? 0 : -ENOENT; }
