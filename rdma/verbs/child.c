/*
 * child.c - see child.h.
 */
#include "rdma/verbs/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/procfs.h"
#include "base/sys.h"

static const char device_path[] = "/dev/infiniband/", event_link[] = "anon_inode:[infinibandevent]";

static bool starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static int open_proc(const char *path, int flags)
{
	if (!proc_is_ours())
		return -EPERM;
	return (int)sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | flags, 0);
}

static void fds(int dir, int empty)
{
	char buf[2048] __attribute__((aligned(8)));
	long n;

	while ((n = sys(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long i = 0; i < n; i += ((struct dirent64 *)(buf + i))->d_reclen) {
			const char *name = ((struct dirent64 *)(buf + i))->d_name;
			char is[sizeof event_link] = "";

			if (sys(SYS_readlinkat, dir, name, is, sizeof is - 1) > 0 &&
			    (starts(is, device_path) || !strcmp(is, event_link)))
				sys(SYS_dup3, empty, atoi(name), O_CLOEXEC);
		}
}

/* A line of proc(5)'s maps: from-to perms offset dev inode path */
static void mapping(char *line)
{
	char *p, *path = strchr(line, '/');
	uintptr_t from = strtoul(line, &p, 16), to = *p == '-' ? strtoul(p + 1, &p, 16) : 0;

	if (path && starts(path, device_path) && to > from)
		mmap((void *)from, to - from, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void mappings(int maps)
{
	char buf[4096], *line, *end;
	size_t have = 0;
	bool skip = false;	/* the rest of a line that was longer */
	long n;

	while ((n = sys(SYS_read, maps, buf + have, sizeof buf - 1 - have)) > 0) {
		have += (size_t)n;
		buf[have] = 0;
		for (line = buf; (end = strchr(line, '\n')); line = end + 1) {
			*end = 0;
			if (!skip)
				mapping(line);
			skip = false;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof buf - 1) {
			have = 0;
			skip = true;
		}
	}
}

void rdma_child_lets_go(void)
{
	int dir = open_proc("/proc/self/fd", O_DIRECTORY), maps = open_proc("/proc/self/maps", 0);
	int empty = (int)sys(SYS_memfd_create, "closed", MFD_CLOEXEC);

	if (dir >= 0 && empty >= 0)
		fds(dir, empty);
	if (maps >= 0)
		mappings(maps);
	if (dir >= 0)
		sys(SYS_close, dir);
	if (maps >= 0)
		sys(SYS_close, maps);
	if (empty >= 0)
		sys(SYS_close, empty);
}
