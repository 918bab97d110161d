/*
 * places.c - see places.h.
 */
#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hold.h"
#include "raw.h"
#include "stat.h"

#define SIZE (PLACES * sizeof(uint64_t))
#define DIR_MOST 512	/* whose name is longer shares nothing: a handler's stack may be small */
#define HOW  (O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

/* *ret_new: to be filled with nothing. So is what somebody began, where there was no room. */
static bool good(int fd, uid_t uid, bool *ret_new)
{
	struct stat st;

	if (syscall(SYS_fstat, fd, &st) < 0)
		return false;
	*ret_new = st.st_size < (off_t)SIZE;
	return S_ISREG(st.st_mode) && st.st_uid == uid && !(st.st_mode & 077) &&
	       st.st_nlink == 1 && st.st_size <= (off_t)SIZE;
}

static bool put(int fd, const uint64_t *words, size_t at, size_t n)
{
	return syscall(SYS_pwrite64, fd, words + at, n * sizeof(*words), at * sizeof(*words)) ==
	       (long)(n * sizeof(*words));
}

/* Beyond RLIMIT_FSIZE it would be SIGXFSZ, also where the file is that long already. */
static bool may_write(void)
{
	struct rlimit lim;

	return !getrlimit(RLIMIT_FSIZE, &lim) && lim.rlim_cur >= SIZE;
}

static bool create(int fd)
{
	static const uint64_t nothing[PLACES];

	return may_write() && put(fd, nothing, 0, PLACES);
}

static bool exchange(int fd, const uint64_t *changed, uint64_t *words)
{
	bool may = may_write();

	for (size_t i = 0; i < PLACES; i++)
		if (changed[i / 64] >> i % 64 & 1 && (!may || !put(fd, words, i, 1)))
			return false;
	return syscall(SYS_pread64, fd, words, SIZE, 0L) == (long)SIZE;
}

static bool any(const uint64_t *changed)
{
	for (size_t i = 0; i < PLACES / 64; i++)
		if (changed[i])
			return true;
	return false;
}

bool places_exchange(uid_t uid, const uint64_t changed[PLACES / 64], uint64_t words[PLACES])
{
	bool done = false, is_new = false, make = any(changed);
	char path[DIR_MOST];
	int dir, fd = -1;

	fd_hold(true);
	dir = stat_dir_open(uid, false, path, sizeof path);
	if (dir >= 0) {
		fd = raw(syscall(SYS_openat, dir, PLACES_FILE, HOW | (make ? O_CREAT : 0), 0600));
		done = fd == -ENOENT && !make;
		syscall(SYS_close, dir);
	}
	if (fd >= 0) {
		done = good(fd, uid, &is_new) && (!is_new || create(fd)) &&
		       exchange(fd, changed, words);
		syscall(SYS_close, fd);
	}
	fd_hold(false);
	return done;
}
