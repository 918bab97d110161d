/*
 * source.c - where the text of policy files comes from: the file system (policy_disk), or a text that stands for one of the
 * files there (policy_parse). conf.c makes the policy of it.
 *
 * Files are read with syscall(2) and not with open(), read() and close(): in a preloaded process those names are the shim's own
 * wrappers. No locks, no state.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conf.h"
#include "hold.h"
#include "words.h"

static void hold_nothing(bool hold) { (void)hold; }
void (*fd_hold)(bool hold) = hold_nothing;

static int raw(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

/* ---- files ---- */

/* Reads at most max bytes. Returns their number or -errno. */
static int read_fd(int fd, char *buf, int max)
{
	int used = 0, n;

	while (used < max) {
		n = raw(syscall(SYS_read, fd, buf + used, (size_t)(max - used)));
		if (n == -EINTR)
			continue;
		if (n < 0)
			return n;
		if (!n)
			break;
		used += n;
	}
	return used;
}

static int open_policy(const char *path, struct stat *st)
{
	/* O_NONBLOCK: a FIFO or a terminal must not stop the program */
	int fd = raw(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0));

	if (fd < 0)
		return fd;
	if (syscall(SYS_fstat, fd, st) < 0 || !(S_ISREG(st->st_mode) || S_ISCHR(st->st_mode))) {
		syscall(SYS_close, fd);
		return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
	}
	/* What anybody may write nobody believes. /dev/null is such, and empty. */
	if (S_ISREG(st->st_mode) && st->st_mode & S_IWOTH) {
		syscall(SYS_close, fd);
		return POLICY_WRITABLE;
	}
	return fd;
}

/* More than it seems to hold, and `max` where that cannot be known: few programs have a policy at all, and this is the start of each. */
static long room_for(const char *path, size_t max)
{
	struct stat st = { 0 };

	if (raw(syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0)) == -ENOENT)
		return -ENOENT;
	return S_ISREG(st.st_mode) && st.st_size > 0 && (size_t)st.st_size < max ? st.st_size + 1 : (long)max;
}

static long disk_read_room(const char *path, size_t room, char **ret, uint64_t id[2])
{
	char *buf = malloc(room + 1);
	struct stat st = { 0 };
	int fd, n;

	if (!buf)
		return -ENOMEM;
	fd_hold(true);
	n = fd = open_policy(path, &st);
	if (fd >= 0) {
		n = read_fd(fd, buf, (int)room);
		syscall(SYS_close, fd);
	}
	fd_hold(false);
	if (n < 0) {
		free(buf);
		return n;
	}
	id[0] = st.st_dev;
	id[1] = st.st_ino;
	*ret = buf;
	return n;
}

static long disk_read(const struct policy_source *src, const char *path, size_t max, char **ret, uint64_t id[2])
{
	long room = room_for(path, max), n;
	char *less;

	(void)src;
	if (room < 0)
		return room;
	n = disk_read_room(path, (size_t)room, ret, id);
	if (n == room && (size_t)room < max) {	/* it has grown */
		free(*ret);
		n = disk_read_room(path, max, ret, id);
	}
	if (n < 0)
		return n;
	less = realloc(*ret, (size_t)n + 1);	/* policies are kept, and most are short */
	*ret = less ? less : *ret;
	return n;
}

/* ---- directories ---- */

struct entry {	/* getdents64(2) */
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

struct names {
	char (*name)[POLICY_NAME];
	size_t n, max;
};

/* 0, or -E2BIG: one more than `max`. */
static int add_name(struct names *l, const char *name)
{
	if (l->n == l->max)
		return -E2BIG;
	fmt_string(l->name[l->n++], POLICY_NAME, "%s", name);
	return 0;
}

static int add_entries(struct names *l, const char *buf, int n, const char *pat)
{
	for (int at = 0, rc; at < n;) {
		const struct entry *e = (const struct entry *)(const void *)(buf + at);

		/* as a shell: a name that begins with a dot is meant only by a pattern that does */
		if ((e->name[0] != '.' || pat[0] == '.') && strcmp(e->name, ".") && strcmp(e->name, "..") &&
		    glob_match(pat, strlen(pat), e->name)) {
			rc = add_name(l, e->name);
			if (rc)
				return rc;
		}
		at += e->len;
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int disk_list(const struct policy_source *src, const char *dir, const char *pat, char (*name)[POLICY_NAME], size_t max)
{
	struct names l = { name, 0, max };
	_Alignas(8) char buf[4096];
	int fd, n, rc;

	(void)src;
	fd_hold(true);
	fd = raw(syscall(SYS_openat, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
	rc = fd < 0 ? fd : 0;
	while (!rc && (n = raw(syscall(SYS_getdents64, fd, buf, sizeof(buf)))) != 0)
		rc = n < 0 ? n : add_entries(&l, buf, n, pat);
	if (fd >= 0)
		syscall(SYS_close, fd);
	fd_hold(false);
	if (rc)
		return rc;
	qsort(l.name, l.n, POLICY_NAME, by_name);
	return (int)l.n;
}

const struct policy_source policy_disk = { disk_read, disk_list, NULL };

int policy_load(const char *path, struct policy **ret, struct policy_error *err)
{
	return policy_parse_from(&policy_disk, path, NULL, ret, err);
}

int policy_load_watched(const char *path, struct policy_deps *deps, struct policy **ret, struct policy_error *err)
{
	return policy_parse_from(&policy_disk, path, deps, ret, err);
}

/* ---- a text in the place of one file ---- */

struct instead {
	const char *path, *text;
	size_t len;
};

static long instead_read(const struct policy_source *src, const char *path, size_t max, char **ret, uint64_t id[2])
{
	const struct instead *in = src->arg;
	size_t n = in->len < max ? in->len : max;
	struct stat st = { 0 };

	if (strcmp(path, in->path))
		return disk_read(src, path, max, ret, id);
	*ret = malloc(n + 1);
	if (!*ret)
		return -ENOMEM;
	memcpy(*ret, in->text, n);
	syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0);	/* perhaps there is none: all zero */
	id[0] = st.st_dev;
	id[1] = st.st_ino;
	return (long)n;
}

int policy_parse_instead(const char *main, const char *path, const char *text, size_t len, struct policy **ret, struct policy_error *err)
{
	struct instead in = { path, text, len };
	struct policy_source src = { instead_read, disk_list, &in };

	return policy_parse_from(&src, main, NULL, ret, err);
}

int policy_parse(const char *text, size_t len, const char *name, struct policy **ret, struct policy_error *err)
{
	return policy_parse_instead(name, name, text, len, ret, err);
}

static const char *named(bool secure)
{
	const char *env = secure ? NULL : secure_getenv("RDMASHIM_CONF");

	return env && *env ? env : NULL;
}

bool policy_path_given(bool secure) { return named(secure) != NULL; }

const char *policy_path(bool secure) { return policy_path_given(secure) ? named(secure) : RDMASHIM_CONF_PATH; }

bool policy_switched_off(void)
{
	static const char *const words[] = { "off", "no", "false", "0" };
	const char *env = getenv("RDMASHIM");
	char low[8] = "";

	for (size_t i = 0; env && env[i]; i++) {
		if (i == sizeof low - 1)
			return false;
		low[i] = (char)(env[i] >= 'A' && env[i] <= 'Z' ? env[i] + ('a' - 'A') : env[i]);
	}
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcmp(low, words[i]))
			return true;
	return false;
}
