/*
 * source.c - where the text of policy files comes from: the file system (policy_disk), or a text
 * that stands for one of the files there (policy_parse). conf.c makes the policy of it.
 *
 * Files are read with syscall(2) and not with open(), read() and close(): in a preloaded process
 * those names are the library's own wrappers. No locks, no state.
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
#include "raw.h"
#include "words.h"

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

/* -errno, or a descriptor of what trust_walk() has found. */
static int open_policy(struct trust *t)
{
	int fd = raw(syscall(SYS_openat, AT_FDCWD, t->path, TRUST_READ, 0)), rc;

	if (fd < 0)
		return fd;
	rc = trust_opened(fd, TRUST_POLICY, t);
	if (rc)
		syscall(SYS_close, fd);
	return rc ? rc : fd;
}

static long disk_read_room(struct trust *t, size_t room, char **ret, uint64_t id[2])
{
	char *buf = malloc(room + 1);
	int fd, n;

	if (!buf)
		return -ENOMEM;
	fd_hold(true);
	n = fd = open_policy(t);
	if (fd >= 0) {
		n = read_fd(fd, buf, (int)room);
		syscall(SYS_close, fd);
	}
	fd_hold(false);
	if (n < 0) {
		free(buf);
		return n;
	}
	memcpy(id, t->id, sizeof(t->id));
	*ret = buf;
	return n;
}

/* Room for more than it seems to hold, and `max` where that is not enough: few programs have a
 * policy at all, and this is the start of each. */
static long disk_read(const struct policy_source *src, const char *path, size_t max, char **ret,
		      uint64_t id[2], struct trust *t)
{
	long n = trust_walk(path, TRUST_POLICY, t);
	size_t room;
	char *less;

	(void)src;
	if (n)
		return n;
	room = t->size < max ? t->size + 1 : max;
	n = disk_read_room(t, room, ret, id);
	if (n == (long)room && room < max) {	/* it has grown */
		free(*ret);
		n = disk_read_room(t, max, ret, id);
	}
	if (n < 0)
		return n;
	less = realloc(*ret, (size_t)n + 1);	/* policies are kept, and most are short */
	if (less)
		*ret = less;
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

#define LIST_MAX 1024		/* buffers: 100,000 names and more, some 50 ms */

struct names {
	char (*name)[POLICY_NAME];
	size_t n, max;
	int dir;
	const struct trust *t;
	char *skipped;			/* the last one */
};

/* 0, or -E2BIG: one more than `max`. What a stranger put there is no error, or else he could end
 * the policy. */
static int add_name(struct names *l, const char *name)
{
	if (l->t->shared && !trust_name(l->dir, name, l->t)) {
		fmt_string(l->skipped, POLICY_NAME, "%s", name);
		return 0;
	}
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
		if ((e->name[0] != '.' || pat[0] == '.') && strcmp(e->name, ".") &&
		    strcmp(e->name, "..") && glob_match(pat, strlen(pat), e->name)) {
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

static int disk_list(const struct policy_source *src, const char *dir, const char *pat,
		     char (*name)[POLICY_NAME], size_t max, char skipped[POLICY_NAME],
		     struct trust *t)
{
	struct names l = { name, 0, max, -1, t, skipped };
	_Alignas(8) char buf[4096];
	int n, rc = trust_walk(dir, TRUST_DIR, t), left = LIST_MAX;

	(void)src;
	skipped[0] = '\0';
	if (rc)
		return rc;
	fd_hold(true);
	l.dir = raw(syscall(SYS_openat, AT_FDCWD, t->path, TRUST_READ | O_DIRECTORY, 0));
	rc = l.dir < 0 ? l.dir : 0;
	while (!rc && (n = raw(syscall(SYS_getdents64, l.dir, buf, sizeof(buf)))) != 0)
		rc = n < 0 ? n : left-- ? add_entries(&l, buf, n, pat) : -EDQUOT;
	if (l.dir >= 0)
		syscall(SYS_close, l.dir);
	fd_hold(false);
	if (rc)
		return rc;
	qsort(l.name, l.n, POLICY_NAME, by_name);
	return (int)l.n;
}

const struct policy_source policy_disk = { disk_read, disk_list, NULL };

const char *source_remedy(long error, const char *why)
{
	switch (error) {
	case TRUST_REFUSED: return why;
	case -ENOENT: return "there is no such file; create it, or name another";
	case -EACCES:
	case -EPERM:
		return "it may not be read; give this user read permission on it and its "
		       "directories";
	case -EISDIR: return "it is a directory; name a file";
	case -EINVAL: return "it is not a regular file; name one";
	case -ENOMEM: return "no memory to read it; free some";
	case -EMFILE:
	case -ENFILE: return "no file descriptor is left; raise RLIMIT_NOFILE";
	case -ELOOP:  return "too many symbolic links; name the file itself";
	case -ENOTDIR: return "a part of its path is no directory; name another";
	case -EDQUOT: return "there are too many names in the directory; use one of your own";
	default:      return "reading it failed; check the file system";
	}
}

const char *policy_error_text(const struct policy_error *err, char *buf, size_t len)
{
	if (err->line)
		fmt_string(buf, len, "%s:%d:%d: %s", err->file, err->line, err->col, err->msg);
	else
		fmt_string(buf, len, "%s: %s", err->file, err->msg);
	return buf;
}

int policy_load(const char *path, struct policy **ret, struct policy_error *err)
{
	return policy_parse_from(&policy_disk, path, NULL, ret, err);
}

int policy_load_watched(const char *path, struct policy_deps *deps, struct policy **ret,
			struct policy_error *err)
{
	return policy_parse_from(&policy_disk, path, deps, ret, err);
}

/* ---- a text in the place of one file ---- */

struct instead {
	const char *path, *text;
	size_t len;
};

static long instead_read(const struct policy_source *src, const char *path, size_t max, char **ret,
			 uint64_t id[2], struct trust *t)
{
	const struct instead *in = src->arg;
	size_t n = in->len < max ? in->len : max;
	struct stat st = { 0 };

	if (strcmp(path, in->path))
		return disk_read(src, path, max, ret, id, t);
	*ret = malloc(n + 1);
	if (!*ret)
		return -ENOMEM;
	memcpy(*ret, in->text, n);
	/* perhaps there is none: all zero */
	syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0);
	id[0] = st.st_dev;
	id[1] = st.st_ino;
	return (long)n;
}

int policy_parse_instead(const char *main, const char *path, const char *text, size_t len,
			 struct policy **ret, struct policy_error *err)
{
	struct instead in = { path, text, len };
	struct policy_source src = { instead_read, disk_list, &in };

	return policy_parse_from(&src, main, NULL, ret, err);
}

int policy_parse(const char *text, size_t len, const char *name, struct policy **ret,
		 struct policy_error *err)
{
	return policy_parse_instead(name, name, text, len, ret, err);
}

static const char *named(bool secure)
{
	const char *env = secure ? NULL : secure_getenv("RDMASHIM_CONF");

	return env && *env ? env : NULL;
}

bool policy_path_given(bool secure) { return named(secure) != NULL; }

const char *policy_path(bool secure)
{
	return policy_path_given(secure) ? named(secure) : RDMASHIM_CONF_PATH;
}

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
