/*
 * log.c - see log.h. Owns the level, the identity of stderr and the path of the log file; all
 * but the first are written by log_init() alone, before other threads log. No locks but what
 * fd_hold() takes.
 *
 * The log file is opened anew for each line: a descriptor kept open could be closed and reused by
 * the program, and logging is rare.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "hold.h"
#include "trust.h"
#include "words.h"

_Atomic int log_level_now;

static _Atomic int ready;
static char log_path[PATH_MAX];
/* of log_path: as it was named, since its directory was not there; as it was found, without links;
 * not to be used */
static enum { AS_NAMED, FOUND, REFUSED } log_state;
static uid_t started_as;
static _Atomic bool fixed;		/* the level is $RDMASHIM_LOG's */
static struct {
	bool usable;
	dev_t dev;
	ino_t ino;
} err_id;

static _Atomic uint64_t window;		/* second << 32 | lines in it */
static _Atomic uint32_t dropped;

static void remember_stderr(void)
{
	struct stat st;
	int domain = 0;
	socklen_t len = sizeof(domain);

	if (syscall(SYS_fstat, 2, &st) < 0)
		return;
	/* a TCP connection as fd 2 (inetd) is the program's stream: not one byte of ours may go
	 * there */
	if (S_ISSOCK(st.st_mode) &&
	    (syscall(SYS_getsockopt, 2, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 ||
	     domain != AF_UNIX))
		return;
	err_id.dev = st.st_dev;
	err_id.ino = st.st_ino;
	err_id.usable = true;
}

static bool stderr_unchanged(void)
{
	struct stat st;

	return err_id.usable && syscall(SYS_fstat, 2, &st) == 0 && st.st_dev == err_id.dev &&
	       st.st_ino == err_id.ino;
}

static const char *const level_names[] = { "silent", "error", "warn", "path", "debug" };

/* The level that s[0..len) names, by number or word; -1: none. */
static int level_of(const char *s, size_t len)
{
	for (int i = 0; i <= LOG_LEVEL_DEBUG; i++)
		if (word_is(s, len, level_names[i]) || (len == 1 && s[0] == '0' + i))
			return i;
	return -1;
}

static void set_path(const char *path)
{
	if (path && strlen(path) < sizeof(log_path))
		memcpy(log_path, path, strlen(path) + 1);
}

/* Once, at start: later lines cost no more than an open, and signal handlers no stack. */
static void find_file(struct trust *t)
{
	int rc = trust_walk(log_path, TRUST_OUTPUT, t);

	started_as = t->us;
	if (!rc)
		fmt_string(log_path, sizeof(log_path), "%s", t->path);
	log_state = !rc ? FOUND : rc == TRUST_REFUSED ? REFUSED : AS_NAMED;
}

/* LEVEL[:FILE]. False if it is set, but not like that. */
static bool read_environment(void)
{
	const char *env = secure_getenv("RDMASHIM_LOG"), *colon;
	int level;

	set_path(secure_getenv("RDMASHIM_LOG_FILE"));
	if (!env || !*env)
		return true;
	colon = strchrnul(env, ':');
	level = level_of(env, (size_t)(colon - env));
	if (level < 0)
		return false;
	if (*colon && colon[1])
		set_path(colon + 1);
	atomic_store_explicit(&log_level_now, level, memory_order_relaxed);
	atomic_store_explicit(&fixed, true, memory_order_relaxed);
	return true;
}

void log_init(int level)
{
	struct trust t = { 0 };
	int saved = errno;
	bool good = true;

	if (!atomic_exchange(&ready, 1)) {
		remember_stderr();
		good = read_environment();
		if (log_path[0])
			find_file(&t);
	}
	log_set_level(level);
	if (t.why[0])
		log_line(LOG_LEVEL_ERROR, "%s is not written: %s", log_path, t.why);
	if (!good)
		log_line(LOG_LEVEL_ERROR, "RDMASHIM_LOG is not LEVEL[:FILE] with a level from 0 to "
					  "4, or silent, error, warn, path, debug");
	errno = saved;
}

void log_set_level(int level)
{
	if (!atomic_load_explicit(&fixed, memory_order_relaxed))
		atomic_store_explicit(&log_level_now, level, memory_order_relaxed);
}

/* True if one more line may go out in this second. */
static bool admit(void)
{
	struct timespec now;
	uint64_t old = atomic_load_explicit(&window, memory_order_relaxed), next;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	do {
		if (old >> 32 != (uint32_t)now.tv_sec)
			next = (uint64_t)(uint32_t)now.tv_sec << 32 | 1;
		else if ((uint32_t)old < LOG_PER_SECOND)
			next = old + 1;
		else
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&window, &old, next, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

/* A full or broken pipe as stderr: the line is lost, rather than the program waiting or getting
 * SIGPIPE. */
static bool stderr_ready(void)
{
	struct pollfd pfd = { .fd = 2, .events = POLLOUT };
	struct timespec zero = { 0, 0 };

	return stderr_unchanged() && syscall(SYS_ppoll, &pfd, 1, &zero, NULL, 0) == 1 &&
	       pfd.revents == POLLOUT;
}

static bool has_room(int fd)
{
	struct stat st;

	return syscall(SYS_fstat, fd, &st) == 0 &&
	       (!S_ISREG(st.st_mode) || st.st_size < (off_t)LOG_FILE_MAX);
}

/* What trust_walk() said of it, once more: the program may be another user by now, as which it has
 * made the file. */
static bool may_append(int fd)
{
	struct stat st;

	if (syscall(SYS_fstat, fd, &st) < 0)
		return false;
	if (S_ISCHR(st.st_mode))
		return true;
	return (S_ISFIFO(st.st_mode) || (S_ISREG(st.st_mode) && st.st_nlink == 1)) &&
	       (!st.st_uid || st.st_uid == started_as || st.st_uid == (uid_t)syscall(SYS_geteuid));
}

int log_open(const char *path)
{
	const int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK |
			  O_NOCTTY;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);

	if (fd < 0 || may_append(fd))
		return fd;
	syscall(SYS_close, fd);
	return -1;
}

/* False: it cannot be opened. */
static bool append(const char *path, const char *buf, size_t len)
{
	int fd;

	fd_hold(true);
	fd = log_open(path);
	if (fd >= 0) {
		if (has_room(fd))
			(void)!syscall(SYS_write, fd, buf, len);
		syscall(SYS_close, fd);
	}
	fd_hold(false);
	return fd >= 0;
}

/* Its directory was not there at start. Not inlined: it takes 4 KiB of stack. */
static bool __attribute__((noinline)) to_named(const char *buf, size_t len)
{
	struct trust t;

	return !trust_walk(log_path, TRUST_OUTPUT, &t) && append(t.path, buf, len);
}

static bool to_file(const char *buf, size_t len)
{
	if (log_state == FOUND)
		return append(log_path, buf, len);
	return log_state == AS_NAMED && to_named(buf, len);
}

/* An error that nobody reads is worse than one in another place. */
static void emit(int level, const char *buf, size_t len)
{
	if (log_path[0] && (to_file(buf, len) || level > LOG_LEVEL_ERROR))
		return;
	if (stderr_ready())
		(void)!syscall(SYS_write, 2, buf, len);
}

/* Two digits, or six. */
static char *put_digits(char *p, uint64_t v, int n)
{
	for (int i = n; i--; v /= 10)
		p[i] = (char)('0' + v % 10);
	return p + n;
}

/* "2026-05-01T12:31:07.123456Z " into buf of 32. The calendar is Howard Hinnant's
 * days_from_civil turned round: years begin in March, so that the odd day is the last. */
static size_t put_time(char *buf)
{
	struct timespec now = { 0 };
	uint64_t days, sec, era, day, year, mp;
	char *p = buf;

	syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
	days = (uint64_t)now.tv_sec / 86400 + 719468;
	sec = (uint64_t)now.tv_sec % 86400;
	era = days / 146097;
	day = days % 146097;
	year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	day -= 365 * year + year / 4 - year / 100;
	mp = (5 * day + 2) / 153;
	p = put_digits(p, year + 400 * era + (mp >= 10), 4);
	*p++ = '-';
	p = put_digits(p, mp < 10 ? mp + 3 : mp - 9, 2);
	*p++ = '-';
	p = put_digits(p, day - (153 * mp + 2) / 5 + 1, 2);
	*p++ = 'T';
	p = put_digits(p, sec / 3600, 2);
	*p++ = ':';
	p = put_digits(p, sec / 60 % 60, 2);
	*p++ = ':';
	p = put_digits(p, sec % 60, 2);
	*p++ = '.';
	p = put_digits(p, (uint64_t)now.tv_nsec / 1000, 6);
	*p++ = 'Z';
	*p++ = ' ';
	return (size_t)(p - buf);
}

void log_line(int level, const char *fmt, ...)
{
	char buf[LOG_LINE_MAX];
	int saved = errno;
	uint32_t lost;
	size_t n;
	va_list ap;

	if (!log_on(level))
		return;
	if (level < LOG_LEVEL_DEBUG && !admit()) {
		atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
		return;
	}
	n = 0;
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		log_init(atomic_load_explicit(&log_level_now, memory_order_relaxed));
	if (log_path[0])
		n = put_time(buf);
	n += fmt_string(buf + n, sizeof(buf) - 1 - n,
			log_path[0] ? "%s rdmashim[%ld]: " : "%srdmashim[%ld]: ",
			log_path[0] ? level_names[level] : "", syscall(SYS_getpid));
	lost = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);
	if (lost)
		n += fmt_string(buf + n, sizeof(buf) - 1 - n, "(%u lines left out) ", lost);
	va_start(ap, fmt);
	n += fmt_vstring(buf + n, sizeof(buf) - 1 - n, fmt, ap);
	va_end(ap);
	make_printable(buf, n, '?', KEEP_UTF8);
	buf[n++] = '\n';
	emit(level, buf, n);
	errno = saved;
}
