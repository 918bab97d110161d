/* proof.c - see proof.h. */
#include "base/proof.h"

#include <fcntl.h>
#include <string.h>

#include "base/sys.h"
#include "policy/words.h"

#define OWN_FD "/proc/thread-self/fd/%d"

int proof_of(int fd)
{
	char path[40];

	fmt_string(path, sizeof(path), OWN_FD, fd);
	return (int)sys(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
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
	return i == n - 1 && name[i] == ']' ? inode : 0;
}
