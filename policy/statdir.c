/*
 * statdir.c - which directory counter files are in. See stat.h. No locks, no state, no malloc; by
 * syscall(2), as stat.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "raw.h"
#include "stat.h"
#include "words.h"

bool stat_dir_nth(unsigned n, uid_t uid, char *buf, size_t len)
{
	const char *env = secure_getenv("RDMASHIM_STAT_DIR");
	size_t used = 0;

	if (env && *env)
		used = n ? 0 : fmt_string(buf, len, "%s", env);
	else if (!n)
		used = fmt_string(buf, len, "/dev/shm/rdmashim.%u", (unsigned)uid);
	else if (n == 1)	/* where only root and the user can make names */
		used = fmt_string(buf, len, uid ? "/run/user/%u/rdmashim.%u" : "/run/rdmashim.%u",
				  (unsigned)uid, (unsigned)uid);
	if (len && (!used || used + 1 >= len))	/* cut, perhaps */
		buf[0] = '\0';
	return used != 0;
}

void stat_dir(uid_t uid, char *buf, size_t len)
{
	stat_dir_nth(0, uid, buf, len);
}

#define HOW (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* -EPERM: others could get at it. */
static int open_one(const char *dir, uid_t uid, bool make)
{
	struct stat st;
	int fd;

	if (!dir[0])
		return -ENAMETOOLONG;
	fd = raw(syscall(SYS_openat, AT_FDCWD, dir, HOW, 0));
	if (fd == -ENOENT && make) {	/* who makes a name waits for who has /dev/shm's lock */
		syscall(SYS_mkdirat, AT_FDCWD, dir, 0700);	/* the open tells what matters */
		fd = raw(syscall(SYS_openat, AT_FDCWD, dir, HOW, 0));
	}
	if (fd < 0)
		return fd;
	if (syscall(SYS_fstat, fd, &st) < 0 || st.st_uid != uid || (st.st_mode & 077)) {
		syscall(SYS_close, fd);
		return -EPERM;
	}
	return fd;
}

int stat_dir_open(uid_t uid, bool make, char *buf, size_t len)
{
	int first = 0, fd;

	for (unsigned n = 0; stat_dir_nth(n, uid, buf, len); n++) {
		fd = open_one(buf, uid, make);
		if (fd >= 0)
			return fd;
		first = n ? first : fd;
	}
	stat_dir(uid, buf, len);
	return first;
}
