/*
 * trust.c - see trust.h. By syscall(2): raw.h.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "raw.h"
#include "trust.h"
#include "words.h"

#define NOBODY 65534u		/* /proc/sys/kernel/overflowuid, which nobody changes */
#define LINKS_MAX 40		/* as the kernel */
#define MAP_MAX 4096
/* Nothing is asked of a remote file system, or of a daemon behind one, that the kernel knows. */
#define LOOK (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC)
#ifndef ST_RDONLY
#define ST_RDONLY 1
#endif
#ifndef AT_EACCESS
#define AT_EACCESS 0x200
#endif

struct thing {			/* at the end of t->path */
	uid_t uid;
	unsigned mode, links;
	uint64_t size, dev;
	uint64_t id[3];		/* by look() alone: device, inode, mount (0: not told) */
	bool mounted;
};

struct walk {
	struct trust *t;
	enum trust_kind kind;
	char rest[TRUST_PATH];	/* what is to be gone from t->path */
	size_t len;		/* of t->path; 0 is / */
	bool shared;		/* others may make names in the directory t->path */
	unsigned links;
};

static const char *path_of(const struct trust *t)
{
	return t->path[0] ? t->path : "/";
}

/* ---- refusals ---- */

/* Names come from anywhere: nothing in them may steer a terminal. */
static size_t put_name(char *buf, size_t len, const char *name)
{
	size_t n = 0;

	for (; name[n] && n + 1 < len; n++)
		buf[n] = name[n];
	make_printable(buf, n, '?', KEEP_UTF8);
	buf[n] = '\0';
	return n;
}

/* Is t->path what was asked for, by another name at most where that was relative? */
static bool is_named(const struct trust *t)
{
	size_t n = strlen(t->named), len = strlen(t->path);

	if (t->named[0] == '/')
		return !strcmp(t->path, t->named);
	return len > n && !strcmp(t->path + len - n, t->named) && t->path[len - n - 1] == '/';
}

/* "NAME belongs to user 7 and has mode 0777: WHAT", or "it belongs ...". Always TRUST_REFUSED. */
static int refuse(struct trust *t, const struct thing *x, const char *what)
{
	char mode[5] = { 0 };
	const char *name = !S_ISDIR(x->mode) && is_named(t) ? "it" : path_of(t);
	size_t n = put_name(t->why, TRUST_WHY - 200, name);

	if (t->only_roots && x->uid && x->uid == t->us)
		what = "the root directory is another one than at the start, so only root's files "
		       "count";
	for (unsigned i = 0; i < 4; i++)
		mode[i] = (char)('0' + (x->mode >> (9 - 3 * i) & 7));
	fmt_string(t->why + n, TRUST_WHY - n, "%s belongs to user %u and has mode %s: %s",
		   S_ISDIR(x->mode) ? " (directory)" : "", x->uid, mode, what);
	return TRUST_REFUSED;
}

/* ---- who ---- */

/* Has the root of the host no number in this user namespace? Each line of the map: first number
 * here, first outside, how many. */
static bool host_root_unmapped(void)
{
	char buf[MAP_MAX + 1];
	int n = trust_proc() ? raw_read_file("/proc/self/uid_map", buf, MAP_MAX) : -EPERM;

	if (n < 0 || n == MAP_MAX)	/* not known: as if it had one */
		return false;
	buf[n] = '\0';
	for (const char *s = buf; *s; s = *strchrnul(s, '\n') ? strchrnul(s, '\n') + 1 : "") {
		uint64_t v;
		bool over;

		s += strspn(s, " ");
		s += parse_digits(s, strlen(s), &v, &over);
		s += strspn(s, " ");
		if (!parse_digits(s, strlen(s), &v, &over) || !v)
			return false;
	}
	return true;
}

#ifndef SYS_faccessat2	/* glibc before 2.33 */
#define SYS_faccessat2 439
#endif

/* What nobody but its owner may write, and we may, is not the host's root's. */
static bool may_write(const struct trust *t)
{
	const int how = AT_EACCESS | AT_SYMLINK_NOFOLLOW;

	return raw(syscall(SYS_faccessat2, AT_FDCWD, path_of(t), W_OK, how)) == 0;
}

static bool is_nobody(struct trust *t, const struct thing *x)
{
	if (t->only_roots)		/* whoever made this /proc */
		return false;
	if (x->uid == NOBODY && t->foreign < 0)
		t->foreign = host_root_unmapped();
	return x->uid == NOBODY && t->foreign == 1;
}

static bool good_owner(struct trust *t, const struct thing *x, bool shared)
{
	if (!x->uid)
		return true;
	if (!is_nobody(t, x))
		return x->uid == t->us && !t->only_roots;
	return !shared && ((x->mode & 022 && S_ISDIR(x->mode)) || !may_write(t));
}

/* ---- what ---- */

static uint64_t device_of(const struct statx *s)
{
	return makedev(s->stx_dev_major, s->stx_dev_minor);
}

static uint64_t mount_of(const struct statx *s)
{
	return s->stx_mask & (STATX_MNT_ID | STATX_MNT_ID_UNIQUE) ? s->stx_mnt_id : 0;
}

static int look(const struct walk *w, struct thing *x)
{
	struct statx s;
	int rc = raw(syscall(SYS_statx, AT_FDCWD, path_of(w->t), LOOK,
			     STATX_BASIC_STATS | TRUST_PLACE, &s));

	if (rc)
		return rc;
	*x = (struct thing){
		s.stx_uid,
		s.stx_mode,
		s.stx_nlink,
		s.stx_size,
		makedev(s.stx_rdev_major, s.stx_rdev_minor),
		{ device_of(&s), s.stx_ino, mount_of(&s) },
		s.stx_attributes & STATX_ATTR_MOUNT_ROOT,
	};
	return 0;
}

/* Found in a directory in which others may make names. */
static int check_shared(struct walk *w, const struct thing *x)
{
	if (good_owner(w->t, x, true) && !x->mounted)
		return 0;
	w->t->stranger = true;
	if (x->mounted)
		return refuse(w->t, x,
			      "mounted in a directory where others may write; use one of your own");
	return refuse(w->t, x,
		      "a stranger's, in a directory where others may write; use one of your own");
}

/* ---- another root ---- */

static _Atomic uint64_t first_root[3];	/* as a thing's id; inode 0: not seen yet */
static _Atomic uint64_t first_proc;	/* device of /proc, where mounts have no numbers, or 0 */
static _Atomic bool moved;

bool trust_root_moved(void) { return atomic_load(&moved); }

static bool root_is_first(uint64_t dev, uint64_t inode)
{
	uint64_t first = atomic_load(&first_root[1]);

	return !first || (inode == first && dev == atomic_load(&first_root[0]));
}

#define PROC_ROOT 1	/* its inode, linux/proc_fs.h */

int trust_proc_is_first(const struct statx *root, const struct statx *proc)
{
	uint64_t mount = mount_of(root), none = 0, dev;

	if (!root_is_first(device_of(root), root->stx_ino))
		return 0;
	if (!atomic_load(&first_root[1]))
		return 1;
	if (mount)
		return mount == atomic_load(&first_root[2]);
	if (!proc)
		return -1;
	dev = device_of(proc);
	return proc->stx_ino == PROC_ROOT &&
	       (atomic_compare_exchange_strong(&first_proc, &none, dev) || none == dev);
}

static int ask_place(const char *path, struct statx *ret)
{
	return raw(syscall(SYS_statx, AT_FDCWD, path, LOOK, TRUST_PLACE, ret));
}

bool trust_proc(void)
{
	struct statx root, proc;
	int same = ask_place("/", &root) ? 0 : trust_proc_is_first(&root, NULL);

	if (same < 0)
		same = !ask_place("/proc", &proc) && trust_proc_is_first(&root, &proc);
	return same;
}

/* x is /. What lies below another one than at first is a user's who was locked up there: a server's
 * process does what he asks, and is his by now, but his files come from him alone. */
static void note_root(struct walk *w, const struct thing *x)
{
	if (!atomic_load(&first_root[1])) {
		atomic_store(&first_root[0], x->id[0]);
		atomic_store(&first_root[2], x->id[2]);
		atomic_store(&first_root[1], x->id[1]);
	}
	atomic_store(&moved, !root_is_first(x->id[0], x->id[1]));
	if (atomic_load(&moved) && w->kind != TRUST_OUTPUT)
		w->t->only_roots = true;
}

static bool read_only(const char *path)
{
	struct statfs fs;

	return raw(syscall(SYS_statfs, path, &fs)) == 0 && fs.f_flags & ST_RDONLY;
}

/* From now on names are taken out of it. */
static int enter(struct walk *w, const struct thing *x)
{
	if (!good_owner(w->t, x, false))
		return refuse(w->t, x, "its owner can put anything there; "
			      "use a path whose directories are all root's or your own");
	w->shared = x->mode & 022 && x->mode & S_ISVTX;
	if (x->mode & 022 && !w->shared && !read_only(path_of(w->t)))
		return refuse(w->t, x, "others may write to it, and so put anything there; "
			      "take that away (chmod go-w)");
	return 0;
}

static int check_type(const struct thing *x, enum trust_kind kind)
{
	if (S_ISDIR(x->mode))
		return kind == TRUST_DIR ? 0 : -EISDIR;
	if (kind == TRUST_DIR)
		return -ENOTDIR;
	if (S_ISREG(x->mode) || (kind == TRUST_OUTPUT && (S_ISCHR(x->mode) || S_ISFIFO(x->mode))))
		return 0;
	return kind == TRUST_POLICY && S_ISCHR(x->mode) && x->dev == makedev(1, 3) ? 0 : -EINVAL;
}

static int check_file(struct trust *t, const struct thing *x, enum trust_kind kind, bool shared)
{
	int rc = check_type(x, kind);
	bool roots = !x->uid || is_nobody(t, x);

	t->size = S_ISREG(x->mode) ? x->size : 0;
	/* /dev/null is empty, whoever may write to it; a stranger cannot make devices */
	if (rc || kind == TRUST_DIR || S_ISCHR(x->mode))
		return rc;
	if (!good_owner(t, x, shared))
		return refuse(t, x,
			      "its owner can write anything to it; chown it to root or the "
			      "program's user");
	if (kind == TRUST_OUTPUT && S_ISREG(x->mode) && x->links > 1)
		return refuse(t, x, "it has a second name, and so may be another file; remove it");
	if (kind == TRUST_OUTPUT)
		return 0;
	if (x->mode & 002)
		return refuse(t, x, "others may write to it; take that away (chmod go-w)");
	if (x->mode & 020)
		return refuse(t, x, "its group may write to it; take that away (chmod g-w)");
	if (kind == TRUST_KEY && x->mode & 007)
		return refuse(t, x,
			      "others may read it, so it proves nothing; make a new one (chmod "
			      "600)");
	if (kind == TRUST_KEY && x->mode & 070 && !roots)
		return refuse(t, x,
			      "its group may read it, which is for root's keys only; chmod 600");
	return 0;
}

/* ---- the way ---- */

static void up(struct walk *w)
{
	while (w->len && w->t->path[w->len - 1] != '/')
		w->len--;
	if (w->len)
		w->len--;
	w->t->path[w->len] = '\0';
}

/* Into / or the directory above, which was looked at when we came: it tells again who may make
 * names there. */
static int reenter(struct walk *w)
{
	struct thing x;
	int rc = look(w, &x);

	if (!rc && !w->len)
		note_root(w, &x);
	return rc ? rc : enter(w, &x);
}

/* The link's text in the place of its name. */
static int follow(struct walk *w)
{
	char text[TRUST_PATH];
	size_t rest = strlen(w->rest) + 1;
	int n;

	if (++w->links > LINKS_MAX)
		return -ELOOP;
	n = raw(syscall(SYS_readlinkat, AT_FDCWD, w->t->path, text, sizeof(text)));
	if (n < 0)
		return n;
	if ((size_t)n + 1 + rest > sizeof(w->rest))
		return -ENAMETOOLONG;
	memmove(w->rest + n + 1, w->rest, rest);
	memcpy(w->rest, text, (size_t)n);
	w->rest[n] = '/';
	if (rest == 1)
		w->rest[n] = '\0';
	if (text[0] != '/') {
		up(w);		/* and w->shared is this directory's still */
		return 0;
	}
	w->len = 0;
	w->t->path[0] = '\0';
	return reenter(w);
}

/* The next name of w->rest behind t->path. False: there is none. */
static bool next_name(struct walk *w, int *rc)
{
	char *s = w->rest + strspn(w->rest, "/");
	size_t n = strcspn(s, "/");

	*rc = 0;
	if (!n)
		return false;
	if (n == 2 && s[0] == '.' && s[1] == '.') {
		up(w);
		*rc = reenter(w);
	} else if (n != 1 || s[0] != '.') {
		if (w->len + 1 + n >= TRUST_PATH)
			*rc = -ENAMETOOLONG;
		else {
			w->t->path[w->len++] = '/';
			memcpy(w->t->path + w->len, s, n);
			w->len += n;
			w->t->path[w->len] = '\0';
			*rc = 1;
		}
	}
	memmove(w->rest, s + n, strlen(s + n) + 1);
	return true;
}

static bool is_last(const struct walk *w)
{
	return !w->rest[strspn(w->rest, "/")];
}

/* What is behind the new name of t->path. */
static int arrive(struct walk *w)
{
	struct thing x;
	int rc = look(w, &x);

	if (rc)
		return rc == -ENOENT && w->kind == TRUST_OUTPUT && is_last(w) ? 0 : rc;
	if (w->shared)
		rc = check_shared(w, &x);
	if (rc)
		return rc;
	if (S_ISLNK(x.mode))
		return follow(w);
	if (is_last(w)) {
		rc = check_file(w->t, &x, w->kind, w->shared);
		return rc || w->kind != TRUST_DIR ? rc : enter(w, &x);
	}
	return S_ISDIR(x.mode) ? enter(w, &x) : -ENOTDIR;
}

static int start(struct walk *w, const char *path)
{
	size_t n = 0;
	int rc = 0;

	if (path[0] != '/') {
		rc = raw(syscall(SYS_getcwd, w->rest, sizeof(w->rest)));
		if (rc < 0)
			return rc == -ERANGE ? -ENAMETOOLONG : rc;
		if (w->rest[0] != '/')		/* "(unreachable)" */
			return -ENOENT;
		n = strlen(w->rest);
		w->rest[n < sizeof(w->rest) - 1 ? n++ : n] = '/';
	}
	if (n + strlen(path) >= sizeof(w->rest))
		return -ENAMETOOLONG;
	memcpy(w->rest + n, path, strlen(path) + 1);
	return reenter(w);
}

int trust_walk(const char *path, enum trust_kind kind, struct trust *t)
{
	struct walk w = { .t = t, .kind = kind };
	struct stat st;
	int rc, step;

	t->path[0] = t->why[0] = '\0';
	t->size = 0;
	t->shared = t->stranger = t->only_roots = false;
	t->foreign = -1;
	t->named = path;
	t->us = (uid_t)syscall(SYS_geteuid);
	rc = start(&w, path);
	while (!rc && next_name(&w, &step)) {
		rc = step > 0 ? arrive(&w) : step;
		if (!rc && step <= 0 && kind != TRUST_DIR && is_last(&w))
			rc = -EISDIR;
	}
	if (!rc && !w.len)
		rc = kind == TRUST_DIR ? 0 : -EISDIR;
	if (!w.len)
		memcpy(t->path, "/", 2);
	t->shared = w.shared;
	/* What is not there is the same for everybody. Nothing is asked of a stranger's file
	 * system. */
	if (rc != TRUST_REFUSED || kind == TRUST_OUTPUT || t->stranger)
		return rc;
	return raw(syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0)) == -ENOENT ? -ENOENT : rc;
}

int trust_opened(int fd, enum trust_kind kind, struct trust *t)
{
	struct thing x;
	struct stat st;
	int rc = raw(syscall(SYS_fstat, fd, &st));

	if (rc)
		return rc;
	if (t->foreign < 0)		/* it was not 65534's when we came; and nothing may be
					 * opened now */
		t->foreign = 0;
	t->id[0] = st.st_dev;
	t->id[1] = st.st_ino;
	x = (struct thing){
		st.st_uid, st.st_mode, (unsigned)st.st_nlink, (uint64_t)st.st_size, st.st_rdev,
		{ 0, 0 }, false,
	};
	return check_file(t, &x, kind, t->shared);
}

bool trust_name(int dir, const char *name, const struct trust *t)
{
	struct statx s;

	if (raw(syscall(SYS_statx, dir, name, LOOK, STATX_UID, &s)))
		return true;		/* who opens it will be told */
	if (s.stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return false;
	return !s.stx_uid || (s.stx_uid == t->us && s.stx_uid != NOBODY);
}
