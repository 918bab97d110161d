/* procs.c - see procs.h. Locks: none. */
#include "base/procs.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/sys.h"
#include "policy/procstat.h"
#include "arch/newer.h"

static int is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec zero = { 0, 0 };

	return (int)sys(SYS_ppoll, &p, 1, &zero, NULL, 8);
}

int process_ended(int pid)
{
	int r, fd = pid > 0 ? fd_moment_sys(SYS_pidfd_open, pid, 0) : -ESRCH;

	if (fd < 0)
		return fd;
	r = is_readable(fd);
	fd_internal_close(fd);
	return r;
}

/* A file of /proc, of which n bytes are enough. Their number or -errno. */
static long read_proc(const char *path, char *buf, size_t n)
{
	long r;
	int fd;

	if (!proc_is_ours())
		return -EPERM;
	fd = fd_moment_sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fd;
	r = sys(SYS_read, fd, buf, n);
	fd_internal_close(fd);
	return r;
}

static bool stat_of(int pid, struct proc_stat *ret)
{
	char path[32], buf[512];
	long n;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	n = read_proc(path, buf, sizeof buf);
	return n > 0 && proc_stat_parse(buf, (size_t)n, ret);
}

/* By the line "Pid:" of its fdinfo (proc_pid_fdinfo(5)). */
int process_of_pidfd(int pidfd)
{
	char path[40], buf[512], *p;
	int pid = -1;
	long n;

	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", pidfd);
	n = read_proc(path, buf, sizeof(buf) - 1);
	buf[n > 0 ? n : 0] = '\0';
	p = strstr(buf, "\nPid:");
	return p && sscanf(p, "\nPid: %d", &pid) == 1 && pid > 0 ? pid : -1;
}

uint64_t process_start(int pid)
{
	struct proc_stat st;

	return pid > 0 && stat_of(pid, &st) ? st.start : 0;
}

/*
 * The kernel is asked to hurry the end of one that is ending: it says EINVAL of all others,
 * whoever asks and in whichever PID namespace. A process gives up its memory (ESRCH) before its
 * descriptors. 1, 0; -1: the kernel has no such question, or a filter forbids it.
 */
static int asked(int pidfd)
{
	long r = sys(SYS_process_mrelease, pidfd, 0);

	if (!r || r == -ESRCH || r == -EAGAIN || r == -EINTR)
		return 1;
	return r == -EINVAL ? 0 : -1;
}

/* Where nobody can be asked it is taken to live. */
bool process_ending_of(int pidfd)
{
	return !is_readable(pidfd) &&	/* its threads are gone, and the files; or nobody can say */
	       asked(pidfd) > 0;
}

/*
 * Is the process just ending? The kernel closes its descriptors one after the other, and some
 * take long (inotify: a grace period of SRCU), so that its control socket may be gone half a
 * second before its connections.
 */
bool process_ending(int pid, uint64_t start)
{
	struct proc_stat st;
	int fd, r = 0;

	fd = pid > 0 ? fd_moment_sys(SYS_pidfd_open, pid, 0) : -ESRCH;
	if (fd < 0)
		return false;
	/* else its number is another's by now */
	if (!is_readable(fd) && stat_of(pid, &st) && st.start == start)
		r = asked(fd);
	fd_internal_close(fd);
	if (r < 0)	/* of its first thread, without which a process may go on */
		return st.state == 'Z' || st.flags & 4;	/* PF_EXITING in linux/sched.h */
	return r;
}

bool process_runnable(int pid, uint64_t start)
{
	struct proc_stat st;

	return pid > 0 && stat_of(pid, &st) && st.start == start && st.state == 'R';
}

uint64_t process_cpu_ns(int pid)
{
	struct timespec t;
	int clock = (int)(~(unsigned)pid << 3 | 2);	/* clock_getcpuclockid(3), of the
							 * scheduler */

	if (pid <= 0 || sys(SYS_clock_gettime, clock, &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
