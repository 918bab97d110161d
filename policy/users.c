/*
 * users.c - the users whose processes may pass descriptors to ours (peer_users): numbers, or
 * names that /etc/passwd of this machine knows. Names of LDAP and the like are not looked up:
 * that would load libraries into somebody else's process.
 *
 * The file is read with syscall(2): in a preloaded process open() is the library's own. No locks.
 */
#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hold.h"

#define PASSWD "/etc/passwd"
#define ID_MAX 4294967294ull	/* -1 is nobody at all: chown(2) */

static bool number(const char *s, size_t len, uid_t *ret)
{
	uint64_t n = 0;

	if (!len || len > 10)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(s[i] - '0');
	}
	*ret = (uid_t)n;
	return n <= ID_MAX;
}

/* One line, "name:password:number:...", without its end. */
static bool line_is(const char *s, size_t len, const char *name, size_t name_len, uid_t *ret)
{
	const char *id, *end;

	if (len <= name_len || memcmp(s, name, name_len) || s[name_len] != ':')
		return false;
	id = memchr(s + name_len + 1, ':', len - name_len - 1);
	if (!id)
		return false;
	id++;
	end = memchr(id, ':', len - (size_t)(id - s));
	return end && number(id, (size_t)(end - id), ret);
}

/* Line by line; one that is longer than the buffer is nobody's. */
static bool find(int fd, const char *name, size_t name_len, uid_t *ret)
{
	char buf[1024];
	size_t have = 0;
	bool skip = false;
	long n;

	for (;;) {
		char *eol;

		n = syscall(SYS_read, fd, buf + have, sizeof(buf) - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return have && !skip && line_is(buf, have, name, name_len, ret);
		have += (size_t)n;
		while ((eol = memchr(buf, '\n', have))) {
			size_t len = (size_t)(eol - buf);

			if (!skip && line_is(buf, len, name, name_len, ret))
				return true;
			skip = false;
			have -= len + 1;
			memmove(buf, eol + 1, have);
		}
		if (have == sizeof(buf)) {
			have = 0;
			skip = true;
		}
	}
}

bool user_parse(const char *s, size_t len, uid_t *ret)
{
	bool found = false;
	int fd;

	if (number(s, len, ret))
		return true;
	if (!len || memchr(s, ':', len))
		return false;
	fd_hold(true);
	fd = (int)syscall(SYS_openat, AT_FDCWD, PASSWD,
			  O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	if (fd >= 0) {
		found = find(fd, s, len, ret);
		syscall(SYS_close, fd);
	}
	fd_hold(false);
	return found;
}
