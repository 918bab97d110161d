/*
 * cgroup.c - see cgroup.h.
 *
 * A container sees its own group at the top of /sys/fs/cgroup, whatever /proc/self/cgroup calls
 * it (cgroups(7)), so all groups from the named one upwards are asked, and those that are not
 * there say nothing. Locks: none.
 */
#include "base/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/sys.h"

#define UNLIMITED UINT64_MAX

/* The beginning of a file, as a string. */
static bool beginning(const char *path, char *buf, size_t size)
{
	int fd = fd_moment_sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long r;

	if (fd < 0)
		return false;
	r = sys(SYS_read, fd, buf, size - 1);
	fd_internal_close(fd);
	buf[r > 0 ? r : 0] = '\0';
	return r > 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t limit_in(const char *dir, const char *file)
{
	char path[1100], text[64];
	char *end;
	unsigned long long v;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path) ||
	    !beginning(path, text, sizeof(text)))
		return UNLIMITED;
	v = strtoull(text, &end, 10);	/* "max" */
	return end == text ? UNLIMITED : v;
}

/* A line of a group's memory.stat; of version 1 that of all below it. */
static uint64_t stat_of(const char *text, const char *name)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\ntotal_%s ", name);
	at = strstr(text, key);
	if (!at) {
		snprintf(key, sizeof(key), "\n%s ", name);
		at = strstr(text, key);
	}
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* What is left of the limit. */
static uint64_t left_in(const char *dir, const char *file, const char *used_file)
{
	uint64_t limit = limit_in(dir, file), used, files = 0;
	char path[1100], text[8192];

	if (limit == UNLIMITED)
		return UNLIMITED;
	used = limit_in(dir, used_file);
	if (used == UNLIMITED)
		return UNLIMITED;
	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) < (int)sizeof(path) &&
	    beginning(path, text, sizeof(text)))
		files = stat_of(text, "inactive_file") + stat_of(text, "active_file");
	used -= least(used, files);
	return limit > used ? limit - used : 0;
}

/* The group that is called `name`, and those above it. */
static uint64_t limit_of(const char *mount, const char *name, const char *file, const char *used)
{
	char dir[1024];
	size_t top = strlen(mount);
	uint64_t limit = UNLIMITED;
	char *up;

	if (snprintf(dir, sizeof(dir), "%s%s", mount, name) >= (int)sizeof(dir))
		return limit;
	for (;;) {
		limit = least(limit, used ? left_in(dir, file, used) : limit_in(dir, file));
		up = strrchr(dir + top, '/');
		if (!up)
			return limit;
		*up = '\0';
	}
}

/* What is limited, as version 1 calls its controller and file, and version 2 its file. A value that
 * is not a number, or is -1, is no limit. And how much of it is used, where somebody asks. */
struct limited {
	const char *controller, *mount, *file, *file_v2, *used, *used_v2;
};
static const struct limited memory = { "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
				       "memory.max", "memory.usage_in_bytes", "memory.current" };
static const struct limited cpu = { "cpu", "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "cpu.max",
				    NULL, NULL };

/* A line of /proc/self/cgroup: number, controllers and name of the group, of version 2 no
 * controllers. `left`: what is left of the limit. */
static uint64_t limit_by(char *line, const struct limited *what, bool left)
{
	char *kinds = strchr(line, ':'), *name = kinds ? strchr(kinds + 1, ':') : NULL;

	if (!name || name[1] != '/' || strstr(name, "/.."))
		return UNLIMITED;
	*kinds++ = *name++ = '\0';
	if (!*kinds)
		return limit_of("/sys/fs/cgroup", name, what->file_v2,
				left ? what->used_v2 : NULL);
	for (char *at = kinds, *one; (one = strsep(&at, ","));)
		if (!strcmp(one, what->controller))
			return limit_of(what->mount, name, what->file,
					left ? what->used : NULL);
	return UNLIMITED;
}

static uint64_t limit_by_groups(const struct limited *what, bool left)
{
	char text[4096], *at = text, *line;
	uint64_t limit = UNLIMITED;

	if (beginning("/proc/self/cgroup", text, sizeof(text)))
		while ((line = strsep(&at, "\n")))
			limit = least(limit, limit_by(line, what, left));
	return limit;
}

uint64_t memory_limit(void)
{
	char text[4096];
	uint64_t limit = UNLIMITED;
	unsigned long long kb;

	if (!proc_is_ours())
		return 0;
	if (beginning("/proc/meminfo", text, sizeof(text)) && sscanf(text, "MemTotal: %llu kB",
		&kb) == 1)
		limit = kb << 10;
	limit = least(limit, limit_by_groups(&memory, false));
	return limit == UNLIMITED ? 0 : limit;
}

uint64_t memory_left(void)
{
	char text[4096], *at;
	uint64_t left = UNLIMITED;
	unsigned long long kb;

	if (!proc_is_ours())
		return UNLIMITED;
	if (beginning("/proc/meminfo", text, sizeof(text)) &&
	    (at = strstr(text, "\nMemAvailable:")) &&
	    sscanf(at, " MemAvailable: %llu kB", &kb) == 1)
		left = kb << 10;
	return least(left, limit_by_groups(&memory, true));
}

bool cpu_limited(void)
{
	return !proc_is_ours() || limit_by_groups(&cpu, false) != UNLIMITED;
}

unsigned tasks_runnable(void)
{
	char text[128];
	unsigned n;

	if (!proc_is_ours() || !beginning("/proc/loadavg", text, sizeof(text)) ||
	    sscanf(text, "%*s %*s %*s %u/", &n) != 1)
		return UINT_MAX;
	return n;
}
