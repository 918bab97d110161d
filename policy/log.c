/*
 * log.c - see log.h. Owns the level, the identity of stderr and the path of the log file; the
 * latter two are written by log_init() alone, before other threads log. No locks.
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
#include "words.h"

_Atomic int log_level_now;

static _Atomic int ready;
static char log_path[PATH_MAX];
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
	/* a TCP connection as fd 2 (inetd) is the program's stream: not one byte of ours may go there */
	if (S_ISSOCK(st.st_mode) &&
	    (syscall(SYS_getsockopt, 2, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX))
		return;
	err_id.dev = st.st_dev;
	err_id.ino = st.st_ino;
	err_id.usable = true;
}

static bool stderr_unchanged(void)
{
	struct stat st;

	return err_id.usable && syscall(SYS_fstat, 2, &st) == 0 && st.st_dev == err_id.dev && st.st_ino == err_id.ino;
}

void log_init(int level)
{
	const char *env = secure_getenv("RDMASHIM_LOG_FILE");
	int saved = errno;

	if (!atomic_exchange(&ready, 1)) {
		if (env && strlen(env) < sizeof(log_path))
			memcpy(log_path, env, strlen(env) + 1);
		remember_stderr();
	}
	log_set_level(level);
	errno = saved;
}

void log_set_level(int level)
{
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
	} while (!atomic_compare_exchange_weak_explicit(&window, &old, next, memory_order_relaxed, memory_order_relaxed));
	return true;
}

/* A full or broken pipe as stderr: the line is lost, rather than the program waiting or getting SIGPIPE. */
static bool stderr_ready(void)
{
	struct pollfd pfd = { .fd = 2, .events = POLLOUT };
	struct timespec zero = { 0, 0 };

	return stderr_unchanged() && syscall(SYS_ppoll, &pfd, 1, &zero, NULL, 0) == 1 && pfd.revents == POLLOUT;
}

static void emit(const char *buf, size_t len)
{
	long fd = 2;

	if (log_path[0])
		fd = syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
			     0600);
	else if (!stderr_ready())
		return;
	if (fd < 0)
		return;
	(void)!syscall(SYS_write, fd, buf, len);
	if (log_path[0])
		syscall(SYS_close, fd);
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
	n = fmt_string(buf, sizeof(buf) - 1, "rdmashim[%ld]: ", syscall(SYS_getpid));
	lost = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);
	if (lost)
		n += fmt_string(buf + n, sizeof(buf) - 1 - n, "(%u lines left out) ", lost);
	va_start(ap, fmt);
	n += fmt_vstring(buf + n, sizeof(buf) - 1 - n, fmt, ap);
	va_end(ap);
	buf[n++] = '\n';
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		log_init(atomic_load_explicit(&log_level_now, memory_order_relaxed));
	emit(buf, n);
	errno = saved;
}
