/*
 * rdmastat_children.c - the doctor's look at programs that clean the environment of what they
 * start: such a child runs without the library though its parent was started with it.
 *
 * What /proc tells of a process may have to wait for that process: a child of ours looks, and is
 * not waited for longer than LOOK_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/words.h"
#include "doctor/rdmastat_doctor.h"

#define LOOK_MS 2000
#define TOLD_MOST 3
#define PROCESSES_MAX 100000

struct process {
	int pid, parent;
	bool asked;		/* its first environment names the library */
	char name[32];
};

/* Does a file of /proc/PID hold the word? */
static bool holds(int pid, const char *file, const char *word)
{
	char path[64], buf[8192 + 64];
	size_t keep = 0, len = strlen(word);
	bool found = false;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (!found && (n = read(fd, buf + keep, 8192)) > 0) {
		size_t all = keep + (size_t)n;

		found = memmem(buf, all, word, len) != NULL;
		keep = all < len ? all : len - 1;	/* the word may lie across two reads */
		memmove(buf, buf + all - keep, keep);
	}
	close(fd);
	return found;
}

/* Does its first environment preload the library? Other variables may name it, too. */
static bool preloads(int pid)
{
	static char buf[256 * 1024];
	size_t len = 0, at;
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (len < sizeof(buf) - 1 && (n = read(fd, buf + len, sizeof(buf) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	buf[len] = '\0';
	for (at = 0; at < len; at += strlen(buf + at) + 1)
		if (!strncmp(buf + at, "LD_PRELOAD=", 11))
			return strstr(buf + at, "librdmashim") != NULL;
	return false;
}

static bool read_process(const struct doctor *d, const char *name, struct process *p)
{
	char line[512], *s;

	p->pid = atoi(name);
	if (p->pid <= 0 || !fact(d, line, sizeof(line), "/proc/%d/stat", p->pid))
		return false;
	s = strrchr(line, ')');
	if (!s || sscanf(s, ") %*c %d", &p->parent) != 1 || !strchr(line, '('))
		return false;
	*s = '\0';
	snprintf(p->name, sizeof(p->name), "%s", strchr(line, '(') + 1);
	p->asked = preloads(p->pid);
	return true;
}

static int by_pid(const void *a, const void *b)
{
	const struct process *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* One of them that runs without it, and how many there are. */
static const struct process *child_without(const struct process *p, size_t n, int parent,
					   size_t *count)
{
	const struct process *one = NULL;

	*count = 0;
	for (size_t i = 0; i < n; i++)
		if (p[i].parent == parent && !p[i].asked &&
		    !holds(p[i].pid, "maps", "librdmashim") &&
		    /* it is there, we may look, and it could have it */
		    holds(p[i].pid, "maps", "libc")) {
			one = &p[i];
			++*count;
		}
	return one;
}

/* The child: a line for each parent. */
static void look(const struct doctor *d, FILE *to)
{
	struct process *p = calloc(PROCESSES_MAX, sizeof(*p));
	char **names = names_in(d, "/proc");
	size_t n = 0, i, count, told = 0;

	if (!p)
		_exit(0);
	for (i = 0; names && names[i] && n < PROCESSES_MAX; i++)
		n += read_process(d, names[i], &p[n]);
	qsort(p, n, sizeof(*p), by_pid);
	for (i = 0; i < n && told < TOLD_MOST; i++) {
		const struct process *one = p[i].asked ? child_without(p, n, p[i].pid, &count)
						       : NULL;

		if (!one)
			continue;
		fprintf(to, "%zu %s of %d (%s), such as %d (%s)\n", count,
			count == 1 ? "child" : "children", p[i].pid, p[i].name, one->pid,
			one->name);
		told++;
	}
	fflush(to);
	_exit(0);
}

/* All that comes until the end or the deadline. */
static void read_lines(int fd, char *buf, size_t len)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t at = 0;
	ssize_t n;

	while (at + 1 < len && poll(&p, 1, LOOK_MS) == 1 &&
	       (n = read(fd, buf + at, len - 1 - at)) > 0)
		at += (size_t)n;
	buf[at] = '\0';
}

void check_children(struct doctor *d)
{
	char text[1024], *line, *save = NULL;
	int fd[2];
	pid_t pid;

	if (d->root[0] || pipe2(fd, O_CLOEXEC))
		return;
	fflush(stdout);
	pid = fork();
	if (!pid)
		look(d, fdopen(fd[1], "w"));
	close(fd[1]);
	read_lines(fd[0], text, pid < 0 ? 1 : sizeof(text));
	close(fd[0]);
	if (pid > 0 && !waitpid(pid, NULL, WNOHANG))
		kill(pid, SIGKILL);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		verdict(d, V_NONE, "children",
			"some programs hand on only the variables that their "
			"settings name (import_environment of Dovecot and Postfix: conf/dovecot, "
			"conf/postfix), sudo and ssh none",
			"%s: run without the library, though "
			"it was started with it",
			line);
}
