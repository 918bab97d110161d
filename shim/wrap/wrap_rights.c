/*
 * wrap_rights.c - calls that take rights from the calling thread alone: of prctl, capset, unshare
 * and setns, and by syscall(2). Whoever takes over a program that has put itself in a sandbox has
 * its memory, and so each thread in it.
 *
 * The rule: our threads have no more than the program's only thread. They end around such a call,
 * and who has less makes them anew. What the kernel refuses to a process with several threads they
 * end before; else after it, if it took something: a call that fails changes nothing. Between the
 * call and their end nothing of the program runs, for its signal handlers are put off.
 *
 * A program with several threads has to see to each of them; ours stay as they are.
 */
#include "base/usermem.h"
#include "wrap/wrap.h"
#include "base/loop.h"
#include "base/own_thread.h"

#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/nsfs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

/* ---- which calls ---- */

#define ANY (-1)

/* Those that may take something, by their first two arguments. COMPARE: what they took, users,
 * groups and capabilities show; what a thread can take back at once is not given up. */
enum how { TAKES = 1, COMPARE, GROUPS };
static const struct row { int call, first, second; enum how how; } rows[] = {
	{ SYS_capset, ANY, ANY, COMPARE },
	{ SYS_setuid, ANY, ANY, COMPARE },
	{ SYS_setgid, ANY, ANY, COMPARE },
	{ SYS_setreuid, ANY, ANY, COMPARE },
	{ SYS_setregid, ANY, ANY, COMPARE },
	{ SYS_setresuid, ANY, ANY, COMPARE },
	{ SYS_setresgid, ANY, ANY, COMPARE },
	{ SYS_setgroups, ANY, ANY, GROUPS },
	{ SYS_landlock_restrict_self, ANY, ANY, TAKES },
	{ SYS_lsm_set_self_attr, ANY, ANY, TAKES },
	{ SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, ANY, TAKES },
	{ SYS_keyctl, KEYCTL_ASSUME_AUTHORITY, ANY, TAKES },
	{ SYS_prctl, PR_SET_NO_NEW_PRIVS, ANY, TAKES },
	{ SYS_prctl, PR_CAPBSET_DROP, ANY, TAKES },
	{ SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, TAKES },
	{ SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, TAKES },
	{ SYS_prctl, PR_SET_SECUREBITS, ANY, TAKES },
	{ SYS_prctl, PR_SET_KEEPCAPS, 0, TAKES },
	{ SYS_prctl, PR_SET_SPECULATION_CTRL, ANY, TAKES },
	{ SYS_prctl, PR_SET_TSC, ANY, TAKES },
};

static enum how how_of(long call, long first, long second)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].call == call && (rows[i].first == ANY || rows[i].first == (int)first) &&
		    (rows[i].second == ANY || rows[i].second == (int)second))
			return rows[i].how;
	return 0;
}

/* Two flags of namespaces are refused to several threads, and with a root directory or working
 * directory of its own the calling thread alone goes to another. */
#ifndef CLONE_NEWTIME	/* glibc before 2.36 */
#define CLONE_NEWTIME 0x80
#endif
#define UNSHARES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
		  CLONE_NEWCGROUP | CLONE_FS | CLONE_FILES | CLONE_THREAD | CLONE_SIGHAND | \
		  CLONE_VM)
#define ENTERS   (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
		  CLONE_NEWCGROUP | CLONE_NEWTIME)
/* Afterwards no thread can be made in a process whose children will be in another PID or time
 * namespace: then the library switches off. Until it is known, the streams are on TCP. */
#define NO_MORE_THREADS (CLONE_NEWPID | CLONE_NEWTIME)

/* ---- our threads ---- */

/* None could be made though one could a moment before. */
static void off_if_lost(void)
{
	if (!shim_on || !loop_lost())
		return;
	shim_off(REASON_NO_THREAD);
	streams_closed();
}

bool program_alone(void)
{
	bool alone;

	critical_enter();
	alone = loop_alone();
	off_if_lost();
	critical_leave();
	return alone;
}

void own_threads_end(void)
{
	streams_closed();
	critical_enter();
	loop_pause();
	critical_leave();
}

/* If no others can be made the streams go to TCP while ours are still there to see to that. */
static void off_if_the_last(void)
{
	if (loop_can_begin())
		return;
	shim_off(REASON_NO_THREAD);
	streams_closed();
}

void own_threads_resume(void)
{
	loop_resume();
	off_if_lost();
}

static void make_anew(void)
{
	off_if_the_last();
	loop_pause();
	if (shim_on)
		own_threads_resume();
}

/* Servers change groups all the time: from the first time on ours have none. */
static void make_without_groups(void)
{
	own_threads_without_groups();
	make_anew();
	own_threads_hold(now_us() + 1000000);	/* until they have given them up */
	own_threads_go_on();
}

/* ---- after the call ---- */

struct rights { uint32_t uid[3], gid[3]; uint64_t permitted, inheritable; };

/* What a filter does not tell is nothing. */
static struct rights rights_now(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct c[2] = { 0 };
	struct rights r = { 0 };

	sys(SYS_getresuid, &r.uid[0], &r.uid[1], &r.uid[2]);
	sys(SYS_getresgid, &r.gid[0], &r.gid[1], &r.gid[2]);
	sys(SYS_capget, &h, c);
	r.permitted = (uint64_t)c[1].permitted << 32 | c[0].permitted;
	r.inheritable = (uint64_t)c[1].inheritable << 32 | c[0].inheritable;
	return r;
}

static bool may(const struct rights *r, int cap) { return r->permitted >> cap & 1; }

/* Real, effective and saved one. Servers change the effective one all the time. */
static bool ids_lost(const uint32_t *had, const uint32_t *has, bool may_set)
{
	return had[0] != has[0] || had[2] != has[2] ||
	       (!may_set && had[1] != has[0] && had[1] != has[1] && had[1] != has[2]);
}

static bool rights_lost(struct rights had, struct rights has)
{
	return ids_lost(had.uid, has.uid, may(&has, CAP_SETUID)) ||
	       ids_lost(had.gid, has.gid, may(&has, CAP_SETGID)) ||
	       had.permitted & ~has.permitted ||
	       had.inheritable & ~(has.inheritable | has.permitted);
}

struct change { enum how how; struct rights had; };

static struct change before(long call, long first, long second)
{
	struct change c = { 0 };
	int e = errno;

	if (shim_on)
		c.how = how_of(call, first, second);
	if ((c.how == GROUPS && !own_threads_have_groups()) ||
	    (c.how && (foreign_image() || !own_threads())))
		c.how = 0;
	if (c.how) {
		critical_enter();
		if (program_alone()) {
			c.had = rights_now();
		} else {
			c.how = 0;
			critical_leave();
		}
	}
	errno = e;
	return c;
}

static void after(struct change c, bool done)
{
	int e = errno;

	if (!c.how)
		return;
	if (done && c.how == GROUPS)
		make_without_groups();
	else if (done && (c.how == TAKES || rights_lost(c.had, rights_now())))
		make_anew();
	critical_leave();
	errno = e;
}

long raw_rights(long n, const long *va)
{
	struct change c = before(n, va[0], va[1]);
	long r = REAL(syscall)(n, va[0], va[1], va[2], va[3], va[4], va[5]);

	after(c, r >= 0);
	return r;
}

int wrap_capset(void *head, const void *data)
{
	struct change c = before(SYS_capset, 0, 0);
	int r = REAL(capset)(head, data);

	after(c, !r);
	return r;
}

bool prctl_is_seen(int option, long second)
{
	return option == PR_SET_SECCOMP || how_of(SYS_prctl, option, second);
}

static int prctl_of_all(int option, const long *va)
{
	struct change c = before(SYS_prctl, option, va[0]);
	int r = REAL(prctl)(option, va[0], va[1], va[2], va[3]);

	after(c, r >= 0);
	return r;
}

int wrap_prctl(int option, ...)
{
	va_list ap;
	long va[4];

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		va[i] = va_arg(ap, long);
	va_end(ap);
	if (!shim_on)
		return REAL(prctl)(option, va[0], va[1], va[2], va[3]);
	return option == PR_SET_SECCOMP ? filter_by_prctl(va) : prctl_of_all(option, va);
}

/* ---- before the call: namespaces ---- */

struct away { bool threads, streams; };

static struct away leave(bool streams)
{
	int e = errno;
	struct away a = { 0 };

	if (shim_on && !foreign_image() && own_threads() && program_alone()) {
		a = (struct away){ .threads = true, .streams = streams };
		if (streams)
			streams_fallback_while(NULL, REASON_SECCOMP);
		critical_enter();
		off_if_the_last();
		loop_pause();
	}
	errno = e;
	return a;
}

static void come_back(struct away a, bool done)
{
	int e = errno;

	if (a.streams && done)
		shim_off(REASON_SECCOMP);
	if (a.threads) {
		if (shim_on)
			own_threads_resume();
		critical_leave();
	}
	if (a.streams)
		streams_fallback_over();
	errno = e;
}

int wrap_unshare(int flags)
{
	struct away a = { false, false };
	int r;

	if (flags & UNSHARES)
		a = leave(flags & NO_MORE_THREADS);
	r = REAL(unshare)(flags);
	come_back(a, !r);
	return r;
}

/* A thread that has a root directory of its own may be refused because one of ours, which it made,
 * shares that. */
static int setns_without_ours(int fd, int type, int had)
{
	int r;

	if (!shim_on || foreign_image() || !own_threads() || !loop_can_begin()) {
		errno = EINVAL;
		return -1;
	}
	critical_enter();
	loop_pause();
	r = REAL(setns)(fd, type);
	if (!r)
		errno = had;
	come_back((struct away){ .threads = true }, !r);
	return r;
}

int wrap_setns(int fd, int type)
{
	/* of a pidfd: no answer, and the type says which */
	long is = sys(SYS_ioctl, fd, NS_GET_NSTYPE);
	int flags = is > 0 ? (int)is : type, r, had = errno;
	struct away a = { false, false };

	if (is != -EBADF && flags & ENTERS)
		a = leave(flags & CLONE_NEWPID);
	r = REAL(setns)(fd, type);
	come_back(a, !r);
	if (r && errno == EINVAL && flags & CLONE_NEWNS && !a.threads)
		r = setns_without_ours(fd, type, had);
	return r;
}
