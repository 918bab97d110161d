/*
 * log.h - the library's only way to say something: lines to stderr or to a file, never stdout.
 *
 * Async-signal-safe, no malloc, no lock but what fd_hold (hold.h) takes for a file, keeps errno.
 * At most LOG_PER_SECOND lines of levels 1 to 3 per second; how many were dropped is said in the
 * next line that gets through. A file of LOG_FILE_MAX bytes gets no more.
 *
 * Which, and where to: $RDMASHIM_LOG, LEVEL[:FILE], whatever the policy's log_level says; else
 * log_level, and $RDMASHIM_LOG_FILE. Neither is looked at in a set-user-id program. The file by
 * the rule of trust.h (TRUST_OUTPUT).
 */
#ifndef RDMASHIM_LOG_H
#define RDMASHIM_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum log_level {	/* values of the tunable log_level */
	LOG_LEVEL_SILENT, LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_PATH, LOG_LEVEL_DEBUG
};

#define LOG_PER_SECOND 100
#define LOG_LINE_MAX 512
#define LOG_FILE_MAX (256u << 20)

extern _Atomic int log_level_now;	/* 0 until log_init or log_set_level */

/* Once at start: remembers what fd 2 is and which file the environment names, so that lines
 * never end up in whatever takes those places later. */
void log_init(int level);
/* Opens a file to append to, made if need be; `path` as trust_walk() gave it. Its descriptor, or
 * negative: what is there now is a link, a stranger's, or has other names. Within fd_hold(). */
int log_open(const char *path);
/* Does nothing if $RDMASHIM_LOG has set one. */
void log_set_level(int level);

static inline bool log_on(int level)
{
	return level <= atomic_load_explicit(&log_level_now, memory_order_relaxed);
}

/* One write of a line: "rdmashim[PID]: TEXT" on stderr, "TIME LEVEL rdmashim[PID]: TEXT" in a
 * file, where TIME is UTC as in 2026-05-01T12:31:07.123456Z and LEVEL is error, warn, path or
 * debug. Formats as in words.h: %s %c %d %u %x %p, l, ll, z. */
void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
