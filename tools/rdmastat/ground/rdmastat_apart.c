/*
 * rdmastat_apart.c - see rdmastat_apart.h. One thread, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arch/newer.h"
#include "policy/words.h"
#include "ground/rdmastat.h"
#include "ground/rdmastat_apart.h"

#define LINE_MAX_BYTES 8192
#define NAP_MS 10
#define END_MS 200

struct pipe_line {
	int fd;
	FILE *to;
	size_t len;
	char buf[LINE_MAX_BYTES];
};

/* ---- the child ---- */

static int end_with_parent(void)
{
	return prctl(PR_SET_PDEATHSIG, SIGKILL) ? -errno : 0;
}

/* Another session has no terminal, and what is written to a pipe steers none. */
static bool leave_all(int out, int err)
{
	int null = open("/dev/null", O_RDWR);

	if (setsid() < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		return false;
	if (!syscall(SYS_close_range, 3, ~0u, 0))
		return true;
	for (int fd = 3, top = (int)sysconf(_SC_OPEN_MAX); fd < top; fd++)	/* before 5.9 */
		close(fd);
	return true;
}

int apart_become(uid_t uid, gid_t gid)
{
	if (geteuid() || !uid)
		return 0;
	if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0))
		return -errno;
	return end_with_parent();	/* it was forgotten with the old user */
}

/* ---- the parent ---- */

static void print_line(struct pipe_line *l, size_t len)
{
	make_printable(l->buf, len, '?', KEEP_UTF8);
	fwrite(l->buf, 1, len, l->to);
	putc('\n', l->to);
}

/* One read of it, and the lines that are whole by then. */
static void take(struct pipe_line *l)
{
	ssize_t n = read(l->fd, l->buf + l->len, sizeof(l->buf) - l->len);
	char *end;

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		if (l->len)
			print_line(l, l->len);
		close(l->fd);
		l->fd = -1;
		return;
	}
	l->len += (size_t)n;
	while ((end = memchr(l->buf, '\n', l->len))) {
		size_t line = (size_t)(end - l->buf);

		print_line(l, line);
		l->len -= line + 1;
		memmove(l->buf, end + 1, l->len);
	}
	if (l->len == sizeof(l->buf)) {
		print_line(l, l->len);
		l->len = 0;
	}
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int apart_end(pid_t pid)
{
	int status = SIGKILL;

	kill(pid, SIGKILL);
	for (int ms = 0; ms < END_MS && !waitpid(pid, &status, WNOHANG); ms += NAP_MS)
		poll(NULL, 0, NAP_MS);
	return status;
}

/* The child may be stopped, by the user that it has become. */
static int wait_for(pid_t pid, struct pipe_line *line, int64_t end)
{
	int status = 0;

	while (now_ms() < end) {
		struct pollfd p[2] = { { line[0].fd, POLLIN, 0 }, { line[1].fd, POLLIN, 0 } };
		bool silent = line[0].fd < 0 && line[1].fd < 0;

		if (silent && waitpid(pid, &status, WNOHANG) == pid)
			return status;
		if (poll(p, 2, silent ? NAP_MS : 100) <= 0)
			continue;
		for (int i = 0; i < 2; i++)
			if (p[i].revents)
				take(&line[i]);
	}
	return apart_end(pid);
}

int apart(int (*work)(void *), void *arg, int seconds)
{
	static struct pipe_line line[2];
	int out[2], err[2], status;
	pid_t pid, parent = getpid();

	if (pipe2(out, O_CLOEXEC))
		return APART_NONE;
	if (pipe2(err, O_CLOEXEC)) {
		close(out[0]);
		close(out[1]);
		return APART_NONE;
	}
	fflush(stdout);
	fflush(stderr);
	pid = fork();
	if (!pid) {
		signal(SIGALRM, SIG_DFL);
		alarm((unsigned)seconds);	/* ends it, whatever it waits for */
		if (end_with_parent() || getppid() != parent || !leave_all(out[1], err[1]))
			_exit(EXIT_FAILED);
		status = work(arg);
		_exit(finish(status));
	}
	close(out[1]);
	close(err[1]);
	line[0] = (struct pipe_line){ .fd = out[0], .to = stdout };
	line[1] = (struct pipe_line){ .fd = err[0], .to = stderr };
	status = pid < 0 ? 0 : wait_for(pid, line, now_ms() + (seconds + 1) * 1000);
	for (int i = 0; i < 2; i++)
		if (line[i].fd >= 0)
			close(line[i].fd);
	if (pid < 0)
		return APART_NONE;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
