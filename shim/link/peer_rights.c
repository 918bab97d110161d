/*
 * peer_rights.c - see peer_rights.h.
 */
#include "link/peer_rights.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "policy/words.h"

enum { TGID = 1, UID = 2, GID = 4, CAPS = 8, NO_NEW = 16, MODE = 32, FILTERS = 64 };
/* a kernel without seccomp has no lines for it */
#define NEEDED (TGID | UID | GID | CAPS | NO_NEW)

static const struct { const char *name; unsigned what; } lines[] = {
	{ "Tgid:", TGID }, { "Uid:", UID }, { "Gid:", GID }, { "CapPrm:", CAPS },
	{ "NoNewPrivs:", NO_NEW }, { "Seccomp:", MODE }, { "Seccomp_filters:", FILTERS },
};

/* Up to three numbers; how many. */
static int numbers(const char *s, const char *end, uint64_t *to)
{
	bool over;
	int n = 0;

	while (n < 3) {
		size_t digits;

		while (s < end && (*s == ' ' || *s == '\t'))
			s++;
		digits = parse_digits(s, (size_t)(end - s), &to[n], &over);
		if (!digits || over)
			break;
		s += digits;
		n++;
	}
	return n;
}

static bool hex(const char *s, const char *end, uint64_t *to)
{
	static const char digits[] = "0123456789abcdef";
	const char *d;
	int n = 0;

	for (*to = 0; s < end; s++) {
		if (*s == ' ' || *s == '\t')
			continue;
		d = memchr(digits, *s, 16);
		if (!d || ++n > 16)
			return false;
		*to = *to << 4 | (uint64_t)(d - digits);
	}
	return n > 0;
}

void peer_status_line(struct peer_status *st, const char *line, size_t len)
{
	const char *end = line + len, *at;
	struct peer_rights *r = st->to;
	uint64_t v[3] = { 0, 0, 0 };
	unsigned what = 0;
	bool one;
	int n;

	for (size_t i = 0; i < sizeof lines / sizeof lines[0] && !what; i++)
		if (len > strlen(lines[i].name) &&
		    !memcmp(line, lines[i].name, strlen(lines[i].name)))
			what = lines[i].what, at = line + strlen(lines[i].name);
	if (!what)
		return;
	n = what == CAPS ? hex(at, end, v) : numbers(at, end, v);
	one = n == 3 && v[0] == v[1] && v[0] == v[2];
	if (n < (what & (UID | GID) ? 3 : 1))
		return;
	switch (what) {
	case TGID: st->tgid = v[0]; break;
	case UID: r->uid = (uid_t)v[0]; r->plain &= one; break;
	case GID: r->gid = (gid_t)v[0]; r->plain &= one; break;
	case CAPS: r->caps = v[0]; break;
	case NO_NEW: r->no_new_privs = v[0]; break;
	case MODE:		/* before 5.9 they are not counted */
		r->filters = r->filters ? r->filters : v[0] != 0;
		break;
	case FILTERS: r->filters = v[0] ? v[0] : r->filters; break;
	}
	st->seen |= what;
}

/* Used and closed under fd_number_lock(): so no number of ours is seen, nor does a child get it. */
static int open_proc(const char *who, const char *file)
{
	char path[64];

	fmt_string(path, sizeof path, "/proc/%s/%s", who, file);
	return fd_may_make() ? (int)sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -EMFILE;
}

/* A line may be longer than any buffer ("Groups:"): such an one is none of ours. */
static bool status(const char *who, struct peer_status *st)
{
	int fd = open_proc(who, "status");
	char buf[1024], *line, *end;
	size_t have = 0;
	bool rest = false;
	long n;

	if (fd < 0)
		return false;
	while ((n = sys(SYS_read, fd, buf + have, sizeof buf - have)) > 0) {
		have += (size_t)n;
		for (line = buf; (end = memchr(line, '\n', have - (size_t)(line - buf)));
		     line = end + 1) {
			if (!rest)
				peer_status_line(st, line, (size_t)(end - line));
			rest = false;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof buf) {
			rest = true;
			have = 0;
		}
	}
	sys(SYS_close, fd);
	return !n && (st->seen & NEEDED) == NEEDED;
}

static bool namespace(const char *who, const char *which, uint64_t *ret)
{
	char path[64];
	struct stat st;

	fmt_string(path, sizeof path, "/proc/%s/ns/%s", who, which);
	if (sys(SYS_newfstatat, AT_FDCWD, path, &st, 0) < 0)
		return false;
	*ret = st.st_ino;	/* all are in one file system */
	return true;
}

/* Without a security module the kernel has no file, or gives EINVAL. */
static bool label(const char *who, uint64_t *ret)
{
	uint64_t h = 0xcbf29ce484222325;
	int fd = open_proc(who, "attr/current");
	char buf[512];
	long n;

	*ret = 0;
	if (fd == -ENOENT)
		return true;
	if (fd < 0)
		return false;
	n = sys(SYS_read, fd, buf, sizeof buf);
	sys(SYS_close, fd);
	for (long i = 0; i < n; i++)
		h = (h ^ (unsigned char)buf[i]) * 0x100000001b3;
	if (n > 0)
		*ret = h;
	return n >= 0 || n == -EINVAL;
}

bool peer_rights_look(pid_t pid, struct peer_rights *ret)
{
	struct peer_status st = { .to = ret };
	char who[16] = "thread-self";
	bool well;

	*ret = (struct peer_rights){ .plain = true };
	if (!proc_is_ours())
		return false;
	if (pid)
		fmt_string(who, sizeof who, "%d", pid);
	fd_number_lock();
	/* This /proc must be of our own numbers. */
	well = status(who, &st) && st.tgid == (uint64_t)(pid ? pid : atomic_load(&shim_pid)) &&
	       namespace(who, "user", &ret->user_ns) && namespace(who, "pid", &ret->pid_ns) &&
	       label(who, &ret->label);
	fd_number_unlock();
	return well;
}
