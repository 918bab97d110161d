/*
 * statfile_dir.h - a directory of counters, and what is asked of it.
 *
 * Whoever can write to a file or a directory can keep the kernel's lock of it for as long as he
 * likes, by a write() from memory that never comes (FUSE, userfaultfd), and no signal ends who
 * waits for that. So what is another user's is asked by a child: it passes descriptors of the
 * files, and reading these takes no such lock. Who is late is left alone, and the child with him.
 *
 * One thread, no locks.
 */
#ifndef RDMASHIM_STATFILE_DIR_H
#define RDMASHIM_STATFILE_DIR_H

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

struct user_dir {
	DIR *d;			/* one of our own */
	int child;		/* of another user's: a socket to who asks; -1: it was late */
	pid_t pid;
	bool apart;
};

#define STAT_DIR_FLAGS	(O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define STAT_FILE_FLAGS (O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* Opens it. apart: it may be another user's, and we are root. 0; -errno; -ETIMEDOUT, as for all
 * that follows: its lock is held. *ret: as fstat(2). */
int user_dir_open(struct user_dir *d, int at, const char *name, bool apart, struct stat *ret);
void user_dir_close(struct user_dir *d);
/* From here on with that user's rights, and no process adds its files up. False: they cannot be
 * had. */
bool user_dir_become(struct user_dir *d, uid_t uid);
/* The next name in it; -ENOENT: there is none left. */
int user_dir_next(struct user_dir *d, char name[NAME_MAX + 1]);
int user_dir_file(struct user_dir *d, const char *name, int flags);	/* open_in(), or -errno */
/* unlinkat(2), or -errno */
int user_dir_remove(struct user_dir *d, const char *name, int flags);
bool user_dir_has(struct user_dir *d, const char *name);

/* The descriptor that make() gives, by a child as well: what it opens may be of a file system that
 * never answers. Or its -errno, or -ETIMEDOUT. */
int opened_apart(int (*make)(pid_t), pid_t arg);

#endif
