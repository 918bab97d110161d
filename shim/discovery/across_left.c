/*
 * across_left.c - names that a killed process left in the policy's cross_ns_dir. That directory may
 * not be listable. So each process that has names there writes them into a file, which it keeps
 * locked (flock). If that lock is free, its process is dead. The next process of the same user and
 * key removes the names in the file, and the file.
 *
 * The file's name is a mac, as the names are. Its contents are believed only so far: the names must
 * be sockets of our user, and at most a certain number.
 *
 * Background thread only. Locks: none.
 */
#include "discovery/across_name.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fdtab.h"
#include "base/shim.h"
#include "base/sys.h"
#include "policy/log.h"
#include "policy/words.h"

#define FILES 16	/* processes of one user that have names at one time; others write none */
#define NAMES 256	/* of one */

static int file = -1;
static dev_t file_dev;
static ino_t file_ino;
static bool none_to_be_had;	/* asked for once */
static uint32_t in_file;	/* which one */
static uint32_t count;
static uint8_t names[NAMES][ACROSS_NAME];
static bool used[NAMES], swept;

static uint32_t user(void) { return (uint32_t)sys(SYS_geteuid); }

/* Of all boots: what is left is of an earlier one, too. */
static bool name_of(uint32_t i, char name[ACROSS_LEAF])
{
	const uint32_t said[2] = { user(), i };

	return across_leaf("shim1j.", "across left", said, name);
}

/* Opened and locked. -ENOENT: there is none, or it has just gone; -EWOULDBLOCK: it is in use. */
static int open_one(int dir, uint32_t i, int make)
{
	char name[ACROSS_LEAF];
	struct stat st;
	int fd, r;

	if (!name_of(i, name))
		return -EACCES;
	fd = fd_moment_sys(SYS_openat, dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC |
			   make, 0600);
	if (fd < 0)
		return fd;
	r = (int)sys(SYS_fstat, fd, &st);
	if (!r && (!S_ISREG(st.st_mode) || st.st_uid != user() || st.st_mode & 077))
		r = -EACCES;
	if (!r)
		r = (int)sys(SYS_flock, fd, LOCK_EX | LOCK_NB);
	if (!r && (sys(SYS_fstat, fd, &st) < 0 || st.st_nlink != 1))
		r = -ENOENT;	/* whoever had it has taken it away */
	if (!r)
		return fd;
	fd_internal_close(fd);
	return r;
}

static void take_away(int dir, uint32_t i)
{
	char name[ACROSS_LEAF];

	if (name_of(i, name))
		sys(SYS_unlinkat, dir, name, 0);
}

/* A dead one's. */
static void sweep(int dir, int fd)
{
	uint8_t said[ACROSS_NAME], none[ACROSS_NAME] = { 0 };
	char name[ACROSS_LEAF];
	int n = 0;

	for (long i = 0; i < NAMES; i++) {
		struct stat st;

		if (sys(SYS_pread64, fd, said, sizeof(said), i * ACROSS_NAME) != ACROSS_NAME)
			break;
		if (!memcmp(said, none, sizeof(none)))
			continue;
		across_leaf_of(said, "", name);
		if (sys(SYS_newfstatat, dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISSOCK(st.st_mode) || st.st_uid != user())
			continue;
		n += !sys(SYS_unlinkat, dir, name, 0);
		across_leaf_of(said, ACROSS_TAKEN, name);
		sys(SYS_unlinkat, dir, name, AT_REMOVEDIR);
	}
	log_line(3, "%d names of a process that was killed are taken away", n);
}

static void sweep_all(int dir)
{
	for (uint32_t i = 0; i < FILES; i++) {
		int fd = open_one(dir, i, 0);

		if (fd < 0)
			continue;
		sweep(dir, fd);
		take_away(dir, i);
		fd_internal_close(fd);
	}
}

/* One for this process; false: it goes without. */
static bool take_file(int dir)
{
	if (!swept)
		sweep_all(dir);
	swept = true;
	for (uint32_t i = 0; i < FILES && file < 0; i++) {
		int fd = open_one(dir, i, O_CREAT);
		struct stat st;

		if (fd >= 0)
			sweep(dir, fd);
		if (fd >= 0 && !sys(SYS_ftruncate, fd, 0l) && !sys(SYS_fstat, fd, &st)) {
			file_dev = st.st_dev;
			file_ino = st.st_ino;
			file = fd_internal_keep(fd);
		} else if (fd >= 0) {
			fd_internal_close(fd);
		}
		in_file = i;
	}
	none_to_be_had = file < 0;
	return file >= 0;
}

/* False: the program has closed the number without us, and it may be a file of its own. */
static bool still_ours(void)
{
	struct stat st;

	return file >= 0 && !sys(SYS_fstat, file, &st) && st.st_dev == file_dev &&
	       st.st_ino == file_ino;
}

static void forget(void)
{
	if (still_ours())
		fd_internal_close(file);
	file = -1;
	count = 0;
	memset(used, 0, sizeof(used));
}

static void write_down(uint32_t i, const uint8_t name[ACROSS_NAME])
{
	memcpy(names[i], name, ACROSS_NAME);
	if (still_ours())
		sys(SYS_pwrite64, file, names[i], (long)ACROSS_NAME, (long)i * ACROSS_NAME);
	else
		forget();
}

void across_left_add(int dir, const uint8_t name[ACROSS_NAME])
{
	const bool *place = memchr(used, 0, sizeof(used));
	uint32_t i;

	if (!place || none_to_be_had || (file < 0 && !take_file(dir)))
		return;
	i = (uint32_t)(place - used);
	used[i] = true;
	count++;
	write_down(i, name);
}

void across_left_remove(int dir, const uint8_t name[ACROSS_NAME])
{
	static const uint8_t none[ACROSS_NAME];

	for (uint32_t i = 0; i < NAMES && count; i++) {
		if (!used[i] || memcmp(names[i], name, ACROSS_NAME) != 0)
			continue;
		write_down(i, none);
		used[i] = false;
		if (!count || --count)
			return;
		take_away(dir, in_file);	/* first: who gets the lock finds it gone */
		forget();
		return;
	}
}

void across_left_after_fork(void)
{
	forget();
	none_to_be_had = false;
}
