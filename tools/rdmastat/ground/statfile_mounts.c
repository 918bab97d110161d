/*
 * statfile_mounts.c - see statfile_in.h: the /dev/shm of processes that have another one than
 * we, as in a container, and what is wrong with one. What such a process has mounted may be a
 * file system of its own that never answers: its list of mounts, which the kernel alone answers
 * for, is looked at first, and nothing else than tmpfs is entered. No symbolic link is
 * followed. Its root may be one that never answers all the same, so root has a child look.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arch/newer.h"
#include "ground/statfile_dir.h"
#include "ground/statfile_in.h"

#define LEAST (64u << 10)		/* of a counter file, at least */

/* strange: one on the way is not the kernel's own. */
struct mounts { bool shm, tmpfs, ro, strange; };

static bool has_ro(const char *options)
{
	return !strncmp(options, "ro", 2) && (!options[2] || options[2] == ',');
}

/* A line of proc_pid_mountinfo(5); the last mount of a place is the one that is seen. */
static void one_mount(char *line, struct mounts *m)
{
	char at[4096], options[256], type[64], super[256], *sep = strstr(line, " - ");

	if (!sep || sscanf(line, "%*s %*s %*s %*s %4095s %255s", at, options) != 2 ||
	    sscanf(sep + 3, "%63s %*s %255s", type, super) != 2)
		return;
	if (!strcmp(at, "/") || !strcmp(at, "/dev")) {
		m->strange |= !strncmp(type, "fuse", 4) || !strncmp(type, "nfs", 3);
		m->shm = false;		/* hidden, if it was there before */
	}
	if (strcmp(at, "/dev/shm"))
		return;
	m->shm = true;
	m->tmpfs = !strcmp(type, "tmpfs");
	m->ro = has_ro(options) || has_ro(super);
}

/* As fgets(). What is longer is cut, and its rest no line: names in it may be anybody's. */
static bool next_line(FILE *f, char *line, int size)
{
	int c;

	if (!fgets(line, size, f))
		return false;
	if (!strchr(line, '\n'))
		while ((c = getc(f)) != EOF && c != '\n')
			;
	return true;
}

static bool mounts_of(pid_t pid, struct mounts *ret)
{
	char path[40], line[8192];
	FILE *f;

	*ret = (struct mounts){ false };
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	f = fopen(path, "re");
	while (f && next_line(f, line, sizeof(line)))
		one_mount(line, ret);
	if (f)
		fclose(f);
	return f != NULL;
}

/* Which mount fd is of; 0: that is not known. */
static unsigned mount_of(int fd)
{
	char path[40], line[256];
	unsigned id = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	while (f && !id && fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %u", &id) != 1)
			id = 0;
	if (f)
		fclose(f);
	return id;
}

/* Of what was looked at before something else may be seen by now: is this very mount, among
 * those of the process, a tmpfs? */
static bool is_tmpfs(pid_t pid, int fd)
{
	unsigned id = mount_of(fd), one;
	char path[40], line[8192], type[64], *sep;
	bool yes = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	f = id ? fopen(path, "re") : NULL;
	while (f && next_line(f, line, sizeof(line))) {
		sep = strstr(line, " - ");
		if (sep && sscanf(line, "%u", &one) == 1 && one == id)
			yes = sscanf(sep + 3, "%63s", type) == 1 && !strcmp(type, "tmpfs");
	}
	if (f)
		fclose(f);
	return yes;
}

static int open_shm(pid_t pid)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };
	struct mounts m;
	char path[32];
	int root, at, fd;

	if (!mounts_of(pid, &m))
		return -EACCES;
	if (!m.shm || !m.tmpfs || m.strange)
		return -ENODEV;
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	/* opens nothing; but on the way there may be an overlay, whose layers are asked with
	 * the rights of who has mounted it: FUSE, too */
	at = (int)syscall(SYS_openat2, root, "dev/shm", &how, sizeof(how));
	fd = at < 0 ? -errno : -ENODEV;
	if (at >= 0 && is_tmpfs(pid, at)) {
		fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		fd = fd < 0 ? -errno : fd;
	}
	if (at >= 0)
		close(at);
	close(root);
	return fd;
}

int shm_open_of(pid_t pid) { return geteuid() ? open_shm(pid) : opened_apart(open_shm, pid); }

/* Has it the library? -1: nobody tells us. */
static int has_library(pid_t pid)
{
	char path[32], line[8192];
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, "librdmashim") != NULL;
	fclose(f);
	return found;
}

static const char *shm_of_process(pid_t pid)
{
	struct statvfs v;
	struct mounts m;
	int fd;

	if (!mounts_of(pid, &m))
		return NULL;
	if (!m.shm)
		return "it has the library, but no /dev/shm for its counters";
	if (m.ro)
		return "it has the library, but its /dev/shm is read-only";
	fd = shm_open_of(pid);
	if (fd < 0)
		return "it has the library, but its /dev/shm cannot be looked at";
	if (!fstatvfs(fd, &v) && v.f_bavail * v.f_frsize < LEAST) {
		close(fd);
		return "it has the library, but its /dev/shm is full";
	}
	close(fd);
	return NULL;
}

const char *no_counters_why(pid_t pid)
{
	const char *shm;
	char path[32];
	int lib;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (access(path, F_OK))
		return "there is no such process";
	lib = has_library(pid);
	if (lib < 0)
		return "it belongs to another user";
	if (!lib)
		return "it was started without librdmashim.so";
	shm = shm_of_process(pid);
	return shm ? shm
		   : "it has the library, but has made no TCP socket, or its RDMASHIM_STAT_DIR is "
		     "another one than here";
}

const char *counters_bad(const char *dir)
{
	struct statvfs v;

	if (statvfs(dir, &v))
		return errno == ENOENT ? "is not there" : strerror(errno);
	if (v.f_flag & ST_RDONLY)
		return "is read-only";
	return v.f_bavail * v.f_frsize < LEAST ? "is full" : NULL;
}
