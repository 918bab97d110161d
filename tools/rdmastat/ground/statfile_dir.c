/*
 * statfile_dir.c - see statfile_dir.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arch/newer.h"
#include "ground/statfile_dir.h"
#include "ground/statfile_in.h"

#define PATIENCE_US 500000	/* for one of them; */
#define LATE_MOST   8		/* so many are late, then no more are asked, */
#define LATER_US    50000	/* and from the first one on hardly any is waited for */

enum what { OPEN, BECOME, NEXT, FILE_OF, REMOVE, HAS };

struct question { enum what what; int flags; uid_t uid; char name[NAME_MAX + 1]; };
struct answer { int rc; struct stat st; char name[NAME_MAX + 1]; };

/* children that still wait: for a directory, for a mount namespace */
static pid_t late[2][LATE_MOST];
enum { DIRS, MOUNTS };

/* ---- what is done, by the child or by ourselves ---- */

/* Meanwhile no process adds files of ended ones up, so that each is counted once. One who keeps
 * the lock for good is not waited for. */
static void hold_sums(int dir)
{
	struct timespec nap = { 0, 1000000 };

	for (int i = 0; i < 50 && flock(dir, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK; i++)
		nanosleep(&nap, NULL);
}

static int opened(struct user_dir *d, int at, const char *name, struct stat *ret)
{
	int fd, rc;

	fd = at == AT_FDCWD ? open(name, STAT_DIR_FLAGS) : open_in(at, name, STAT_DIR_FLAGS);
	if (fd < 0)
		return -errno;
	d->d = fdopendir(fd);
	if (d->d && !fstat(fd, ret))
		return 0;
	rc = -errno;
	if (d->d)
		closedir(d->d);
	else
		close(fd);
	d->d = NULL;
	return rc;
}

static int next_name(DIR *d, char *name)
{
	struct dirent *e;

	errno = 0;
	e = readdir(d);
	if (!e)
		return errno ? -errno : -ENOENT;
	snprintf(name, NAME_MAX + 1, "%s", e->d_name);
	return 0;
}

/* 0 or more, or -errno. */
static int done(DIR *d, const struct question *q, struct answer *a)
{
	int rc;

	switch (q->what) {
	case BECOME:
		if (!user_rights(q->uid))
			return -EACCES;
		hold_sums(dirfd(d));
		return 0;
	case NEXT:
		return next_name(d, a->name);
	case FILE_OF:
		rc = open_in(dirfd(d), q->name, q->flags);
		break;
	case REMOVE:
		rc = unlinkat(dirfd(d), q->name, q->flags);
		break;
	case HAS:
		rc = faccessat(dirfd(d), q->name, F_OK, AT_SYMLINK_NOFOLLOW);
		break;
	default:
		return -EINVAL;
	}
	return rc < 0 ? -errno : rc;
}

/* ---- the child ---- */

static bool say(int sock, const struct answer *a, int fd)
{
	struct iovec v = { (void *)a, sizeof(*a) };
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } ctl = { 0 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct cmsghdr *cm;

	if (fd >= 0) {
		m.msg_control = ctl.buf;
		m.msg_controllen = sizeof(ctl.buf);
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_len = CMSG_LEN(sizeof(fd));
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL) == sizeof(*a);
}

/* It has nothing of ours, so that nobody waits for a pipe that it keeps. */
static _Noreturn void serve(int sock, int at, const char *name)
{
	struct user_dir d = { .d = NULL };
	struct answer a = { .rc = 0 };
	struct question q;
	bool goes_on;
	int fd;

	if (dup2(sock, 0) || (at != AT_FDCWD && dup2(at, 1) != 1) ||
	    syscall(SYS_close_range, at == AT_FDCWD ? 1 : 2, ~0u, 0))
		_exit(1);
	a.rc = opened(&d, at == AT_FDCWD ? at : 1, name, &a.st);
	goes_on = say(0, &a, -1) && !a.rc;
	while (goes_on && recv(0, &q, sizeof(q), 0) == sizeof(q)) {
		a.rc = done(d.d, &q, &a);
		fd = q.what == FILE_OF ? a.rc : -1;
		goes_on = say(0, &a, fd);
		if (fd >= 0)
			close(fd);
	}
	_exit(0);
}

/* ---- we ---- */

/* How long another one may be waited for; 0: not at all. */
static long patience(pid_t *waiting)
{
	long us = PATIENCE_US;

	for (int i = 0; i < LATE_MOST; i++) {
		if (waiting[i] && waitpid(waiting[i], NULL, WNOHANG))
			waiting[i] = 0;
		if (waiting[i])
			us = LATER_US;
	}
	for (int i = 0; i < LATE_MOST; i++)
		if (!waiting[i])
			return us;
	return 0;
}

static void leave(struct user_dir *d)
{
	pid_t *waiting = late[d->apart ? DIRS : MOUNTS];

	kill(d->pid, SIGKILL);
	close(d->child);
	d->child = -1;
	for (int i = 0; i < LATE_MOST; i++)
		if (!waiting[i]) {
			waiting[i] = d->pid;
			break;
		}
}

/* -ETIMEDOUT, or what it says; *ret_fd: what came beside it, or -1. */
static int hear(struct user_dir *d, struct answer *a, int *ret_fd)
{
	struct iovec v = { a, sizeof(*a) };
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } ctl = { 0 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1,
			    .msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf) };
	ssize_t n;

	*ret_fd = -1;
	do
		n = recvmsg(d->child, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(*a)) {
		leave(d);
		return -ETIMEDOUT;
	}
	if (CMSG_FIRSTHDR(&m))
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(*ret_fd));
	a->name[sizeof(a->name) - 1] = '\0';
	return a->rc;
}

static int ask(struct user_dir *d, const struct question *q, struct answer *a)
{
	int fd, rc;

	if (!d->apart)
		return done(d->d, q, a);
	if (d->child < 0 || send(d->child, q, sizeof(*q), MSG_NOSIGNAL) != sizeof(*q))
		return -ETIMEDOUT;
	rc = hear(d, a, &fd);
	return fd >= 0 ? fd : rc;
}

static int name_asked(struct user_dir *d, enum what what, const char *name, int flags)
{
	struct question q = { .what = what, .flags = flags };
	struct answer a;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	strcpy(q.name, name);
	return ask(d, &q, &a);
}

/* A child, and a socket to it. 0: we are the parent, 1: the child, with *ret_sock; -errno. */
static int begin(struct user_dir *d, int *ret_sock)
{
	struct timeval soon = { 0, patience(late[d->apart ? DIRS : MOUNTS]) };
	int pair[2], rc;

	if (!soon.tv_usec)
		return -ETIMEDOUT;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	d->pid = fork();
	*ret_sock = pair[1];
	if (!d->pid)
		return 1;
	rc = -errno;
	close(pair[1]);
	d->child = pair[0];
	if (d->pid < 0) {
		close(d->child);
		d->child = -1;
		return rc;
	}
	setsockopt(d->child, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	return 0;
}

int opened_apart(int (*make)(pid_t), pid_t arg)
{
	struct user_dir d = { .child = -1 };
	struct answer a = { .rc = 0 };
	int sock, fd, rc = begin(&d, &sock);

	if (rc == 1) {
		if (dup2(sock, 0) || syscall(SYS_close_range, 1, ~0u, 0))
			_exit(1);
		fd = make(arg);
		a.rc = fd < 0 ? fd : 0;
		_exit(!say(0, &a, fd));
	}
	if (rc)
		return rc;
	rc = hear(&d, &a, &fd);
	if (d.child >= 0) {	/* it has nothing more to do */
		close(d.child);
		waitpid(d.pid, NULL, 0);
	}
	return rc ? rc : fd < 0 ? -EBADF : fd;
}

int user_dir_open(struct user_dir *d, int at, const char *name, bool apart, struct stat *ret)
{
	struct answer a = { .rc = 0 };
	int sock, fd, rc;

	*d = (struct user_dir){ .child = -1, .apart = apart };
	if (!apart)
		return opened(d, at, name, ret);
	rc = begin(d, &sock);
	if (rc == 1)
		serve(sock, at, name);
	if (rc)
		return rc;
	rc = hear(d, &a, &fd);
	*ret = a.st;
	if (rc)
		user_dir_close(d);
	return rc;
}

/* A child that was asked for nothing more is not waiting for anything. */
void user_dir_close(struct user_dir *d)
{
	if (!d->apart) {
		if (d->d)
			closedir(d->d);
	} else if (d->child >= 0) {
		close(d->child);
		kill(d->pid, SIGKILL);
		waitpid(d->pid, NULL, 0);
	}
	*d = (struct user_dir){ .child = -1 };
}

bool user_dir_become(struct user_dir *d, uid_t uid)
{
	struct question q = { .what = BECOME, .uid = uid };
	struct answer a;

	return !ask(d, &q, &a);
}

int user_dir_next(struct user_dir *d, char name[NAME_MAX + 1])
{
	struct question q = { .what = NEXT };
	struct answer a;
	int rc = ask(d, &q, &a);

	if (!rc)
		strcpy(name, a.name);
	return rc;
}

int user_dir_file(struct user_dir *d, const char *name, int flags)
{
	return name_asked(d, FILE_OF, name, flags);
}

int user_dir_remove(struct user_dir *d, const char *name, int flags)
{
	return name_asked(d, REMOVE, name, flags);
}

bool user_dir_has(struct user_dir *d, const char *name) { return !name_asked(d, HAS, name, 0); }
