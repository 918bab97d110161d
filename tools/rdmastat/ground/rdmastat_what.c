/*
 * rdmastat_what.c - see rdmastat_what.h.
 *
 * Ports are those of connections that the process has accepted: its counter file has them.
 * Arguments are read out of the process's memory by the kernel, which may have to wait for
 * whoever made that memory: a child of ours reads them, our own user's first, and is not waited
 * for longer than PATIENCE_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "policy/words.h"
#include "ground/rdmastat_apart.h"
#include "ground/rdmastat_what.h"

#define PATIENCE_MS 300
#define PORTS_MOST 3

/* ---- who shares a name ---- */

static int by_program(const void *a, const void *b)
{
	const struct stat_proc *x = *(const struct stat_proc *const *)a,
			       *y = *(const struct stat_proc *const *)b;
	int d = strcmp(x->program, y->program);

	return d ? d : (x > y) - (x < y);
}

/* wanted[i]: that of process i. */
static bool mark_namesakes(const struct stat_list *l, bool *wanted)
{
	const struct stat_proc **p = malloc((l->n + 1) * sizeof(*p));
	size_t n = 0, i;

	if (!p)
		return false;
	for (i = 0; i < l->n; i++)
		if (!l->proc[i].dead)
			p[n++] = &l->proc[i];
	if (n)
		qsort(p, n, sizeof(*p), by_program);
	for (i = 1; i < n; i++)
		if (!strcmp(p[i - 1]->program, p[i]->program))
			wanted[p[i - 1] - l->proc] = wanted[p[i] - l->proc] = true;
	free(p);
	return true;
}

/* ---- ports ---- */

static void ports_text(const struct stat_proc *p, char *buf, size_t len)
{
	uint16_t port[PORTS_MOST];
	unsigned n = 0, i;

	*buf = '\0';
	for (size_t k = 0; k < p->nconns; k++) {
		const struct stat_conn *c = &p->conns[k];

		if (c->role != ROLE_SERVER || !c->lport)
			continue;
		for (i = 0; i < n && port[i] != c->lport; i++)
			;
		if (i < n)
			continue;
		if (n == PORTS_MOST) {
			snprintf(buf + strlen(buf), len - strlen(buf), " ...");
			return;
		}
		port[n++] = c->lport;
		snprintf(buf + strlen(buf), len - strlen(buf), "%s:%u", n > 1 ? " " : "", c->lport);
	}
}

/* ---- arguments ---- */

struct record { size_t i; what_text text; };

/* All that stands in the command line behind the program's own name; of one that has written
 * something else there, what it has written. */
static void args_text(const struct stat_proc *p, char *buf, size_t len)
{
	char path[64], line[512], *s = line, *name;
	size_t n = 0;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/cmdline", p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while (n < sizeof(line) - 1 && (got = read(fd, line + n, sizeof(line) - 1 - n)) > 0)
		n += (size_t)got;
	close(fd);
	line[n] = '\0';
	name = strrchr(line, '/');
	if (!strncmp(name ? name + 1 : line, p->program, strlen(p->program)) &&
	    strlen(name ? name + 1 : line) == strlen(p->program))
		s = line + strlen(line) + (strlen(line) < n);
	for (char *c = s; c < line + n; c++)
		if (!*c)
			*c = ' ';
	while (n && line + n > s && line[n - 1] == ' ')
		line[--n] = '\0';
	make_printable(s, strlen(s), '?', ASCII_ONLY);
	snprintf(buf, len, "%s", s);
}

static void read_all_args(const struct stat_list *l, const bool *wanted, int to)
{
	for (int others = 0; others < 2; others++)
		for (size_t i = 0; i < l->n; i++) {
			struct record r = { .i = i };

			if (!wanted[i] || (l->proc[i].uid != geteuid()) != others)
				continue;
			args_text(&l->proc[i], r.text, sizeof(r.text));
			if (write(to, &r, sizeof(r)) != sizeof(r))
				_exit(1);
		}
	_exit(0);
}

static int ms_left(const struct timespec *since)
{
	struct timespec now;
	long ms;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
	return ms < PATIENCE_MS ? (int)(PATIENCE_MS - ms) : 0;
}

static void add_args(const struct stat_list *l, const bool *wanted, what_text *what)
{
	struct timespec begun;
	struct pollfd p = { .events = POLLIN };
	struct record r;
	int fd[2];
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC))
		return;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	fflush(stdout);
	pid = fork();
	if (!pid)
		read_all_args(l, wanted, fd[1]);
	close(fd[1]);
	p.fd = fd[0];
	while (pid > 0 && poll(&p, 1, ms_left(&begun)) == 1 &&
	       read(fd[0], &r, sizeof(r)) == sizeof(r))
		if (r.i < l->n) {
			r.text[sizeof(r.text) - 1] = '\0';
			memcpy(what[r.i], r.text, sizeof(r.text));
		}
	close(fd[0]);
	if (pid > 0 && !waitpid(pid, NULL, WNOHANG))
		apart_end(pid);
}

what_text *whats_make(const struct stat_list *l, bool all, bool *ret_any)
{
	what_text *what = calloc(l->n + 1, sizeof(*what));
	bool *wanted = calloc(l->n + 1, sizeof(*wanted)), ask = false;
	size_t i;

	*ret_any = false;
	if (!what || !wanted || (!all && !mark_namesakes(l, wanted))) {
		free(what);
		free(wanted);
		return NULL;
	}
	for (i = 0; i < l->n; i++) {
		wanted[i] = (wanted[i] || all) && !l->proc[i].dead;
		if (wanted[i])
			ports_text(&l->proc[i], what[i], sizeof(what[i]));
		*ret_any = *ret_any || wanted[i];
		wanted[i] = wanted[i] && !what[i][0] && stat_proc_here(&l->proc[i]);
		ask = ask || wanted[i];
	}
	if (ask)
		add_args(l, wanted, what);
	free(wanted);
	return what;
}
