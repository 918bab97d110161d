/* raw.c - see raw.h and hold.h. Locks: none but what fd_hold() takes. */
#include "raw.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hold.h"

static void hold_nothing(bool hold) { (void)hold; }
void (*fd_hold)(bool hold) = hold_nothing;

int raw_read_file(const char *path, char *buf, int max)
{
	int fd, n;

	fd_hold(true);
	n = fd = raw(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0));
	if (fd >= 0) {
		n = raw(syscall(SYS_read, fd, buf, (size_t)max));
		syscall(SYS_close, fd);
	}
	fd_hold(false);
	return n;
}
