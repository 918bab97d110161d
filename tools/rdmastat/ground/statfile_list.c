/*
 * statfile_list.c - see statfile.h: all counter files of a user, or of all; whose process has gone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "policy/places.h"
#include "policy/procstat.h"
#include "ground/statfile_dir.h"
#include "ground/statfile_in.h"

#define SHM_DIR "/dev/shm"
#define DIR_PREFIX "rdmashim."
#define RUN_PREFIX "run."		/* subdirectories of rdmarun --stat, by its pid */

/* So much of one user's is kept by root, who is not he; with all that is made of it for a view,
 * 4 MiB. How often each call was made is the most of a process. */
#define USER_PROCS	 512
#define USER_PROCS_CALLS 256
#define USER_CONNS	 3840
#define USER_QPS	 2048
#define USER_SITES	 512

/* ---- is it alive ---- */

/* Start time out of /proc/<pid>/stat; -ESRCH if there is none or only a zombie. */
static int start_time_of(uint32_t pid, uint64_t *ret)
{
	char path[32], buf[1024];
	struct proc_stat st;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, buf, sizeof(buf));
	close(fd);
	if (n <= 0)
		return -ESRCH;
	if (!proc_stat_parse(buf, (size_t)n, &st))
		return -EBADMSG;
	if (st.state == 'Z' || st.state == 'X')
		return -ESRCH;
	*ret = st.start;
	return 0;
}

bool stat_proc_here(const struct stat_proc *p)
{
	struct stat st, ns;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%u", p->pid);
	/* root's file: of a program that has become another user meanwhile, perhaps */
	return !p->dead && !stat(path, &st) && (st.st_uid == p->uid || !p->uid) &&
	       (!p->pid_ns || (!stat("/proc/self/ns/pid", &ns) && ns.st_ino == p->pid_ns));
}

bool stat_proc_gone(const struct stat_proc *p)
{
	struct stat st;
	uint64_t start = 0;
	int rc;

	/* a process of another pid namespace has another number here */
	if (p->pid_ns && (stat("/proc/self/ns/pid", &st) < 0 || st.st_ino != p->pid_ns))
		return false;
	if (access("/proc/self/stat", R_OK))
		return false;		/* no /proc, no verdict */
	rc = start_time_of(p->pid, &start);
	return rc == -ESRCH || (!rc && p->start_time && start != p->start_time);
}

/* ---- directories ---- */

#define ELSEWHERE 256		/* mount namespaces that are looked into; */
#define OTHERS	  128		/* not root's, all together, */
#define OF_ONE	  16		/* and of one user */

struct seen { size_t n; uint64_t what[ELSEWHERE]; uid_t by[ELSEWHERE]; };

struct scan {
	struct stat_list *list;
	bool dead;
	pid_t pid;
	unsigned parts;
	struct stat_room *room;		/* of the user whose files are read */
	struct user_dir *dir;		/* where they are */
	statfile_bad on_bad;
	bool keep;			/* files of dead processes stay: somebody still wants to
					 * count them */
	bool nested;			/* in a subdirectory: no deeper */
	bool away;			/* in another /dev/shm: not found again by its path */
	struct seen dev;		/* file systems that have been looked into */
};

/* Also of what there is no room for. */
static bool seen_before(struct seen *s, uint64_t what, uid_t by)
{
	size_t others = 0, his = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (s->what[i] == what)
			return true;
		others += s->by[i] != 0;
		his += s->by[i] == by;
	}
	if (s->n == ELSEWHERE || (by && !geteuid() && (others >= OTHERS || his >= OF_ONE)))
		return true;
	s->by[s->n] = by;
	s->what[s->n++] = what;
	return false;
}

static void report(struct scan *s, const char *dir, const char *name, int error,
		   const struct stat_proc *p)
{
	char path[PATH_MAX + 256];

	s->list->bad++;
	if (!s->on_bad)
		return;
	snprintf(path, sizeof(path), "%s%s%s", dir, name ? "/" : "", name ? name : "");
	s->on_bad(path, error, p);
}

static bool all_digits(const char *s, size_t max)
{
	size_t n = strspn(s, "0123456789");

	return n && n <= max && !s[n];
}

static int append(struct stat_list *l, const struct stat_proc *p)
{
	struct stat_proc *more;
	size_t cap;

	if (l->n == l->cap) {
		cap = l->cap ? 2 * l->cap : 16;
		more = realloc(l->proc, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->proc = more;
		l->cap = cap;
	}
	l->proc[l->n++] = *p;
	return 0;
}

/* Removes the file of a dead process, unless a new process has put its own there meanwhile. */
static void remove_dead(struct user_dir *dir, const char *name, uid_t owner,
			const struct stat_proc *p)
{
	struct stat_room none = { 0 };
	struct stat_proc now;
	int fd = user_dir_file(dir, name, STAT_FILE_FLAGS);

	if (statfile_read_room(fd, name, owner, 0, &none, &now))
		return;
	if (now.start_time == p->start_time)
		user_dir_remove(dir, name, 0);
	stat_proc_clear(&now);
}

/* A file that cannot be read, of another version for example, but was left by a process that is
 * gone: out of the way. True: it was. */
static bool remove_foreign(struct user_dir *dir, const char *name, uid_t owner)
{
	struct stat_proc p = { 0 };
	struct stat_header h;
	off_t size = 0;
	char pid[16];
	int fd = user_dir_file(dir, name, STAT_FILE_FLAGS);
	bool ours = fd >= 0 && !check_file(fd, owner, &size) &&
		    !pread_all(fd, &h, offsetof(struct stat_header, program), 0) &&
		    h.magic == STAT_MAGIC;

	if (fd >= 0)
		close(fd);
	if (!ours)
		return false;
	snprintf(pid, sizeof(pid), "%u", h.pid);
	p.pid = h.pid;
	p.start_time = h.start_time;
	p.pid_ns = h.pid_ns;
	return !strcmp(pid, name) && stat_proc_gone(&p) && !user_dir_remove(dir, name, 0);
}

/* Its process is just making it: nothing is in it yet. That takes a moment; a file that stays so
 * is damaged. */
static bool being_made(struct user_dir *dir, const char *name)
{
	int fd = user_dir_file(dir, name, STAT_FILE_FLAGS);
	struct timespec now;
	struct stat st;
	uint64_t magic = 0;
	bool empty;

	clock_gettime(CLOCK_REALTIME, &now);
	empty = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && now.tv_sec - st.st_mtime < 5 &&
		(!st.st_size || !pread_all(fd, &magic, sizeof(magic), 0)) && !magic;
	if (fd >= 0)
		close(fd);
	return empty;
}

static int scan_file(struct scan *s, const char *path, const char *name, uid_t owner)
{
	struct user_dir *dir = s->dir;
	bool ended = statfile_ended(name);
	struct stat_proc p;
	int rc;

	if ((!ended && !all_digits(name, 10)) ||
	    (s->pid && (ended || (unsigned long)s->pid != strtoul(name, NULL, 10))))
		return 0;
	rc = statfile_read_room(user_dir_file(dir, name, STAT_FILE_FLAGS), name, owner, s->parts,
				s->room, &p);
	if (rc == -ENOMEM)
		return rc;
	if (rc) {
		if (ended && rc == -EPROTO && !s->keep)
			user_dir_remove(dir, name, 0);
		else if (rc != -ENOENT && !(rc == -EBADMSG && being_made(dir, name)) &&
			 (s->keep || !remove_foreign(dir, name, owner)))
			report(s, path, name, rc, &p);
		return 0;
	}
	p.dead = ended || stat_proc_gone(&p);
	if (ended && !s->keep)
		user_dir_remove(dir, name, 0);
	else if (p.dead && !s->keep)
		remove_dead(dir, name, owner, &p);
	if (p.dead && !s->dead) {
		stat_proc_clear(&p);
		return 0;
	}
	p.left = p.dead && user_dir_has(dir, name);
	s->list->more_conns += p.more_conns;
	s->list->more_others += p.more_others;
	if (!s->room->procs) {
		s->list->more_procs++;
		stat_proc_clear(&p);
		return 0;
	}
	s->room->procs--;
	s->room->conns -= p.nconns;
	s->room->qps -= p.nqps;
	s->room->sites -= p.ncall_sites;
	p.away = s->away;
	if (s->away || asprintf(&p.file, "%s/%s", path, name) < 0)
		p.file = NULL;		/* only its histories are lost */
	rc = append(s->list, &p);
	if (rc)
		stat_proc_clear(&p);
	return rc;
}

static int scan_at(struct scan *s, int at, const char *name, const char *path, uid_t owner,
		   bool apart);

/* A subdirectory of rdmarun --stat. While that runs, it wants to count its dead; afterwards the
 * directory goes with the last of them. */
static int scan_run(struct scan *s, const char *path, const char *name, uid_t owner)
{
	char sub[PATH_MAX + 256];
	struct scan inner = *s;
	pid_t pid;
	int rc, fd;

	if (s->nested || !all_digits(name + strlen(RUN_PREFIX), 10))
		return 0;
	pid = (pid_t)strtoul(name + strlen(RUN_PREFIX), NULL, 10);
	inner.nested = true;
	inner.keep = pid > 0 && (!kill(pid, 0) || errno == EPERM);
	snprintf(sub, sizeof(sub), "%s/%s", path, name);
	fd = user_dir_file(s->dir, name, STAT_DIR_FLAGS);
	if (fd < 0) {
		if (fd != -ENOENT)
			report(s, sub, NULL, fd, NULL);
		return 0;
	}
	rc = scan_at(&inner, fd, ".", sub, owner, s->dir->apart);
	if (!inner.keep && !s->dir->apart)
		unlinkat(fd, PLACES_FILE, 0);
	close(fd);
	if (!inner.keep)
		user_dir_remove(s->dir, name, AT_REMOVEDIR);
	return rc;
}

static int scan_names(struct scan *s, const char *path, uid_t owner)
{
	char name[NAME_MAX + 1];
	int rc = 0, end;

	while (!rc && !(end = user_dir_next(s->dir, name)))
		rc = strncmp(name, RUN_PREFIX, strlen(RUN_PREFIX)) ? scan_file(s, path, name, owner)
								   : scan_run(s, path, name, owner);
	if (!rc && end != -ENOENT)
		report(s, path, NULL, end, NULL);
	return rc;
}

static void use(size_t *room, size_t n) { *room -= n < *room ? n : *room; }

/* What a user may still make root keep: he may have two directories. Root of a container is a user
 * like others. */
static struct stat_room room_of(const struct scan *s, uid_t owner)
{
	struct stat_room room = STAT_ROOM_ANY;

	if (getuid() || (!owner && !s->away))
		return room;
	room = (struct stat_room){ USER_PROCS, USER_CONNS, USER_QPS, USER_SITES };
	if (s->parts & STATFILE_CALLS)
		room.procs = USER_PROCS_CALLS;
	for (size_t i = 0; i < s->list->n; i++) {
		const struct stat_proc *p = &s->list->proc[i];

		if (p->uid != owner || (!owner && !p->away))
			continue;
		use(&room.procs, 1);
		use(&room.conns, p->nconns);
		use(&room.qps, p->nqps);
		use(&room.sites, p->ncall_sites);
	}
	return room;
}

static int read_dir(struct scan *s, const char *path, uid_t owner, const struct stat *st)
{
	int rc = 0;

	if (owner == (uid_t)-1)
		owner = geteuid() == 0 ? st->st_uid : geteuid();
	if (st->st_uid != owner || (st->st_mode & 077))
		rc = -EPERM;
	else if (!user_dir_become(s->dir, owner))
		rc = -EACCES;
	if (rc) {
		report(s, path, NULL, rc, NULL);
		return 0;
	}
	if (!s->nested)
		*s->room = room_of(s, owner);
	if (!s->away)
		seen_before(&s->dev, st->st_dev, 0);
	return scan_names(s, path, owner);
}

/* owner -1: whoever the directory belongs to, if that is us or we are root. */
static int scan_at(struct scan *s, int at, const char *name, const char *path, uid_t owner,
		   bool apart)
{
	struct user_dir d, *outer = s->dir;
	struct stat st;
	int rc = user_dir_open(&d, at, name, apart, &st);

	if (rc) {
		if (rc != -ENOENT)	/* no directory: no process yet */
			report(s, path, NULL, rc, NULL);
		return 0;
	}
	s->dir = &d;
	rc = read_dir(s, path, owner, &st);
	s->dir = outer;
	user_dir_close(&d);
	return rc;
}

/* The directory that root's environment names is mostly root's. */
static bool is_roots(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && !st.st_uid;
}

static int scan_dir(struct scan *s, const char *path, uid_t owner)
{
	bool apart = !geteuid() && owner && !(owner == (uid_t)-1 && is_roots(path));

	return scan_at(s, AT_FDCWD, path, path, owner, apart);
}

/* Where users count to whose name in /dev/shm somebody else has made. */
static int scan_second_places(struct scan *s)
{
	DIR *d = opendir("/run/user");
	char path[PATH_MAX];
	struct dirent *e;
	int rc = 0;

	if (stat_dir_nth(1, 0, path, sizeof(path)))
		rc = scan_dir(s, path, 0);
	while (d && !rc && (e = readdir(d))) {
		uid_t uid = (uid_t)strtoul(e->d_name, NULL, 10);

		if (all_digits(e->d_name, 10) && uid && stat_dir_nth(1, uid, path, sizeof(path)))
			rc = scan_dir(s, path, uid);
	}
	if (d)
		closedir(d);
	return rc;
}

#define AWAY_NAMES 1024		/* its owner may have made any number */

static bool has_number(const char *name)
{
	return !strncmp(name, DIR_PREFIX, strlen(DIR_PREFIX)) &&
	       all_digits(name + strlen(DIR_PREFIX), 10);
}

/* A directory of counters in another /dev/shm, where users may have other numbers. Anybody can
 * mount a directory of somebody else there, in a user namespace of his own: such an one is none. */
static int scan_away(struct scan *s, struct user_dir *shm, const char *path, const char *name)
{
	int fd = user_dir_file(shm, name, STAT_DIR_FLAGS), rc = 0;
	struct stat st;

	if (fd < 0)
		return 0;
	if (!fstat(fd, &st) && (!geteuid() || st.st_uid == geteuid()))
		rc = scan_at(s, fd, ".", path, (uid_t)-1, !geteuid());
	close(fd);
	return rc;
}

static int scan_other_shm(struct scan *s, int fd, const char *at)
{
	char path[PATH_MAX], name[NAME_MAX + 1];
	struct user_dir d;
	struct stat st;
	int rc = 0, n = 0;

	if (user_dir_open(&d, fd, ".", !geteuid(), &st))
		return 0;
	while (!rc && n++ < AWAY_NAMES && !user_dir_next(&d, name))
		if (has_number(name)) {
			snprintf(path, sizeof(path), "%s/%s", at, name);
			rc = scan_away(s, &d, path, name);
		}
	user_dir_close(&d);
	return rc;
}

/* Does the process that has the file's number, in our own pid namespace, have that /dev/shm? If
 * none has it, nobody's is taken. Not asked with its user's rights: it may be one that nobody
 * may look at. */
static bool is_its_own(const struct stat_proc *p, dev_t dev)
{
	char path[32];
	struct stat st;
	bool same;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u", p->pid);
	if (p->dead || access(path, F_OK) ||
	    (p->pid_ns && (stat("/proc/self/ns/pid", &st) || st.st_ino != p->pid_ns)))
		return true;
	fd = shm_open_of((pid_t)p->pid);
	same = fd >= 0 && !fstat(fd, &st) && st.st_dev == dev;
	if (fd >= 0)
		close(fd);
	return same;
}

/* What was found there from the first one on. */
static void drop_forged(struct scan *s, const char *at, dev_t dev, size_t first)
{
	struct stat_list *l = s->list;
	size_t n = first;

	for (size_t i = first; i < l->n; i++)
		if (is_its_own(&l->proc[i], dev)) {
			l->proc[n++] = l->proc[i];
		} else {
			report(s, at, NULL, -EPERM, &l->proc[i]);
			stat_proc_clear(&l->proc[i]);
		}
	l->n = n;
}

/* Of a namespace: whoever has made the user namespace that it belongs to. 65534: not known. */
static uid_t owner_of(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), user = fd < 0 ? -1 : ioctl(fd, NS_GET_USERNS);
	uid_t uid = 65534;

	if (user >= 0 && ioctl(user, NS_GET_OWNER_UID, &uid))
		uid = 65534;
	if (user >= 0)
		close(user);
	if (fd >= 0)
		close(fd);
	return uid;
}

/* Processes of containers may have a /dev/shm of their own: those that we may look at, once
 * each. */
static int scan_elsewhere(struct scan *s)
{
	struct seen ns = { 0 };
	DIR *d = opendir("/proc");
	struct dirent *e;
	char path[64];
	struct stat st;
	int rc = 0, fd;
	size_t first;

	if (!stat("/proc/self/ns/mnt", &st))
		seen_before(&ns, st.st_ino, 0);
	if (!stat(SHM_DIR, &st))
		seen_before(&s->dev, st.st_dev, 0);
	s->away = true;
	while (d && !rc && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%.10s/ns/mnt", e->d_name);
		if (!all_digits(e->d_name, 10) || stat(path, &st) ||
		    seen_before(&ns, st.st_ino, owner_of(path)))
			continue;
		fd = shm_open_of((pid_t)strtoul(e->d_name, NULL, 10));
		snprintf(path, sizeof(path), "/proc/%.10s/root" SHM_DIR, e->d_name);
		if (fd == -ETIMEDOUT)
			report(s, path, NULL, fd, NULL);
		if (fd >= 0 && !fstat(fd, &st) && !seen_before(&s->dev, st.st_dev, 0)) {
			first = s->list->n;
			rc = scan_other_shm(s, fd, path);
			if (!rc)
				drop_forged(s, path, st.st_dev, first);
		}
		if (fd >= 0)
			close(fd);
	}
	if (d)
		closedir(d);
	s->away = false;
	return rc;
}

static int scan_all_users(struct scan *s)
{
	char path[PATH_MAX], name[NAME_MAX + 1];
	struct user_dir d;
	struct stat st;
	int rc = user_dir_open(&d, AT_FDCWD, SHM_DIR, true, &st), end = 0;

	if (rc) {
		if (rc == -ETIMEDOUT)
			report(s, SHM_DIR, NULL, rc, NULL);
		return scan_second_places(s);
	}
	while (!rc && !(end = user_dir_next(&d, name))) {
		uid_t uid;

		if (!has_number(name))
			continue;
		uid = (uid_t)strtoul(name + strlen(DIR_PREFIX), NULL, 10);
		snprintf(path, sizeof(path), SHM_DIR "/" DIR_PREFIX "%u", uid);
		/* one directory for each user, not those of 007 and 4294967303 too */
		if (uid != (uid_t)-1 && !strcmp(path + strlen(SHM_DIR) + 1, name))
			rc = scan_dir(s, path, uid);
	}
	if (end == -ETIMEDOUT)
		report(s, SHM_DIR, NULL, end, NULL);
	user_dir_close(&d);
	return rc ? rc : scan_second_places(s);
}

static int scan_own(struct scan *s)
{
	char dir[PATH_MAX];
	int rc = 0;

	for (unsigned n = 0; !rc && stat_dir_nth(n, geteuid(), dir, sizeof(dir)); n++)
		rc = scan_dir(s, dir, geteuid());
	return rc;
}

static int by_pid(const void *a, const void *b)
{
	const struct stat_proc *p = a, *q = b;

	return p->pid != q->pid ? (p->pid < q->pid ? -1 : 1)
				: (p->uid > q->uid) - (p->uid < q->uid);
}

int statfile_list_parts(bool dead, pid_t pid, unsigned parts, statfile_bad on_bad,
			struct stat_list *ret)
{
	struct stat_room room = STAT_ROOM_ANY;
	struct scan s = { .list = ret, .dead = dead, .pid = pid, .parts = parts, .room = &room,
			  .on_bad = on_bad };
	const char *env = secure_getenv("RDMASHIM_STAT_DIR");
	char dir[PATH_MAX];
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	stat_dir(geteuid(), dir, sizeof(dir));
	if (env && *env)
		rc = scan_dir(&s, dir, (uid_t)-1);
	else if (geteuid() == 0)
		rc = scan_all_users(&s);
	else
		rc = scan_own(&s);
	if (!rc && !(env && *env))
		rc = scan_elsewhere(&s);
	if (rc)
		stat_list_clear(ret);
	else if (ret->n)
		qsort(ret->proc, ret->n, sizeof(*ret->proc), by_pid);
	return rc;
}

int statfile_list(bool dead, pid_t pid, statfile_bad on_bad, struct stat_list *ret)
{
	return statfile_list_parts(dead, pid, STATFILE_ALL, on_bad, ret);
}

void stat_list_clear(struct stat_list *l)
{
	size_t i;

	for (i = 0; i < l->n; i++)
		stat_proc_clear(&l->proc[i]);
	free(l->proc);
	memset(l, 0, sizeof(*l));
}
