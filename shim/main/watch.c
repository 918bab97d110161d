/*
 * watch.c - notices that the policy has changed: its file, a file that it includes, or a new one
 * that one of its patterns means.
 *
 * The directories are watched by inotify, so that files that are replaced, or are not there yet,
 * are seen too; and where a name is a symbolic link, also the directory of the file behind it,
 * for that may change by itself. Who closes the last descriptor of an inotify instance that
 * watched something waits for the kernel's readers of all watches (fsnotify_destroy_group() in
 * fs/notify/group.c), 2 to 20 ms: a process would pay them at its end. So it begins to watch
 * when it has lived for a while, and looks at the files' times until then.
 * Background thread only; watch_end() also whoever ends it, watch_loading() also the start of
 * the program. No locks.
 */
#include "main/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "base/fdtab.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "main/init.h"
#include "policy/words.h"

#define CHANGES (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE | IN_ATTRIB)
#define LOOK_US 1000000		/* without inotify */
#define EARLY_LOOK_US 100000	/* before it is used */

static int ino = -1;
static bool tried;		/* to watch, since the thread has begun */
static uint64_t begin_due, look_due;
static uint64_t seen;		/* fingerprint() before the policy in use was read */
/* a name, or a pattern, in a directory */
static struct { int wd; char name[POLICY_PATH]; } watched[2 * POLICY_DEPS];
static unsigned nwatched;
static int newest;		/* of the numbers that inotify has given, which only go up */
static bool more;		/* one was new */
static bool refused;		/* one that the user has no watch left for */

static void watch_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[2 * POLICY_PATH];
	long wd;

	snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
		 slash ? path : ".");
	wd = sys(SYS_inotify_add_watch, ino, dir, CHANGES);
	refused |= wd == -ENOSPC || wd == -ENOMEM;
	if (wd < 0 || nwatched == sizeof watched / sizeof *watched)
		return;
	more |= wd > newest;
	newest = wd > newest ? (int)wd : newest;
	watched[nwatched].wd = (int)wd;
	snprintf(watched[nwatched++].name, POLICY_PATH, "%s", slash ? slash + 1 : path);
}

static void watch_link(const char *path)
{
	const char *slash = strrchr(path, '/');
	char to[POLICY_PATH], target[2 * POLICY_PATH];
	long n = sys(SYS_readlinkat, AT_FDCWD, path, to, sizeof to - 1);

	if (n <= 0)
		return;
	to[n] = 0;
	snprintf(target, sizeof target, "%.*s%s",
		 to[0] == '/' || !slash ? 0 : (int)(slash - path) + 1, path, to);
	watch_name(target);
}

bool watch_deps(void)
{
	const struct policy_deps *d = &shim_policy_deps;

	nwatched = 0;
	more = refused = false;
	for (unsigned i = 0; ino >= 0 && i < d->n; i++) {
		watch_name(d->path[i]);
		watch_link(d->path[i]);
	}
	if (refused)		/* then the times of all of them are looked at */
		watch_end();
	return more;
}

static void begin(void)
{
	int fd = fd_internal_sys(SYS_inotify_init1, IN_NONBLOCK | IN_CLOEXEC);

	tried = true;
	if (fd < 0)
		return;
	ino = fd;
	newest = 0;
	watch_deps();
	if (ino >= 0 && loop_watch_fd(ino, EPOLLIN, LOOP_POLICY, 0) < 0)
		watch_end();
}

void watch_end(void)
{
	if (ino >= 0)
		fd_internal_close(ino);
	ino = -1;
}

static bool concerns(const struct inotify_event *e)
{
	if (e->mask & IN_Q_OVERFLOW)
		return true;
	for (unsigned i = 0; i < nwatched && e->len; i++)
		if (watched[i].wd == e->wd &&
		    glob_match(watched[i].name, strlen(watched[i].name), e->name))
			return true;
	return false;
}

bool watch_event(void)
{
	union { struct inotify_event e; char buf[4096]; } u;
	bool ours = false;
	long n;

	while (ino >= 0 && (n = sys(SYS_read, ino, &u, sizeof u)) > 0)
		for (long at = 0; at + (long)sizeof u.e <= n;) {
			struct inotify_event *e = (struct inotify_event *)(u.buf + at);

			ours |= concerns(e);
			at += (long)sizeof *e + e->len;
		}
	return ours;
}

/* ---- before, and without, inotify ---- */

/* What a change of any of the files changes. Of a pattern: its directory, in which files come
 * and go. */
static uint64_t fingerprint(void)
{
	const struct policy_deps *d = &shim_policy_deps;
	uint64_t h = 14695981039346656037ull;

	for (unsigned i = 0; i < d->n; i++) {
		const char *path = d->path[i], *slash = strrchr(path, '/');
		char dir[POLICY_PATH];
		struct stat st = { 0 };

		if (slash && strpbrk(slash, "*?")) {
			snprintf(dir, sizeof dir, "%.*s", (int)(slash - path) + 1, path);
			path = dir;
		}
		sys(SYS_newfstatat, AT_FDCWD, path, &st, 0);	/* none: all zero */
		uint64_t part[] = { st.st_dev, st.st_ino, (uint64_t)st.st_size,
				    (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
				    (uint64_t)st.st_ctim.tv_sec, (uint64_t)st.st_ctim.tv_nsec };

		for (unsigned k = 0; k < sizeof part / sizeof *part; k++)
			h = (h ^ part[k]) * 1099511628211ull;
	}
	return h;
}

/* Of the files that are known so far. With others a look sees a change, and all are read once
 * more. */
void watch_loading(void) { seen = fingerprint(); }

void watch_begin(uint64_t now)
{
	tried = false;
	begin_due = now + shim_tunables()->watch_after;
	look_due = now;
}

uint64_t watch_look(uint64_t now, bool *changed)
{
	*changed = false;
	if (ino >= 0)
		return UINT64_MAX;
	if (now < look_due)
		return look_due;
	if (!tried && now >= begin_due)
		begin();
	*changed = fingerprint() != seen;	/* whatever happened before the watch began; not
						 * told without need, for it has all streams
						 * searched for again */
	look_due = now + (tried ? LOOK_US : EARLY_LOOK_US);
	return ino >= 0 ? UINT64_MAX : look_due;
}
