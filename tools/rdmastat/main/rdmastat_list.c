/*
 * rdmastat_list.c - the processes that a request asks for, and what is said of counter files that
 * were left out.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "policy/words.h"
#include "ground/rdmastat.h"
#include "ground/rdmastat_ends.h"

#define BAD_TOLD 5u
static unsigned bad_told;

static const char *bad_why(int error)
{
	switch (error) {
	case -EPROTO:
		return "written by another version of the library";
	case -EBADMSG:
		return "not a counter file, or damaged";
	case -EPERM:
		return "not owned by its user, or open to others";
	case -ETIMEDOUT:
		return "its user keeps it locked, or the machine is very busy";
	default:
		return strerror(-error);
	}
}

static void on_bad(const char *path, int error, const struct stat_proc *p)
{
	const char *what = bad_why(error);

	if (bad_told++ >= BAD_TOLD)
		return;
	if (error == -EPROTO && p && p->pid && p->version < STAT_VERSION)
		complain("%u %s: an older library%s%s, restart it to see it", p->pid, p->program,
			 p->build[0] ? ", " : "", p->build);
	else if (error == -EPROTO && p && p->pid && p->version > STAT_VERSION)
		complain("%u %s: a newer library%s%s, see it with the rdmastat of that", p->pid,
			 p->program, p->build[0] ? ", " : "", p->build);
	else
		complain("left out %s: %s", path, what);
}

static void keep_program(struct stat_list *l, const char *glob)
{
	size_t i, n = 0;

	for (i = 0; i < l->n; i++) {
		if (glob_match(glob, strlen(glob), l->proc[i].program))
			l->proc[n++] = l->proc[i];
		else
			stat_proc_clear(&l->proc[i]);
	}
	l->n = n;
}

/* Nobody is there: perhaps because nobody can be. */
static void say_bad_place(void)
{
	char dir[PATH_MAX];
	const char *bad;

	stat_dir(geteuid(), dir, sizeof(dir));
	bad = counters_bad(dir);
	if (bad && strrchr(dir, '/') > dir && access(dir, F_OK)) {
		*strrchr(dir, '/') = '\0';
		bad = counters_bad(dir);
	}
	if (bad)
		complain("%s %s: programs cannot count there; rdmastat doctor says what to do", dir,
			 bad);
}

static int read_files(const struct request *r, pid_t pid, bool quiet, struct stat_list *ret)
{
	bad_told = 0;
	if (statfile_list_parts(r->all, pid, r->parts, quiet ? NULL : on_bad, ret)) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	if (!ret->n && !pid && !quiet)
		say_bad_place();
	if (bad_told > BAD_TOLD)
		complain("left out %u more files in the same way", bad_told - BAD_TOLD);
	if (!quiet && ret->more_procs + ret->more_conns + ret->more_others)
		complain("not shown, since other users have too many: %zu processes, "
			 "%zu connections (in the sums of their processes), %zu other rows; "
			 "-p PID reads one process alone",
			 ret->more_procs, ret->more_conns, ret->more_others);
	kernel_bytes(ret);
	if (!r->absolute)
		baseline_apply(ret);
	return EXIT_OK;
}

int get_all(const struct request *r, bool quiet, struct stat_list *ret)
{
	return read_files(r, 0, quiet, ret);
}

int get_list(const struct request *r, bool quiet, struct stat_list *ret)
{
	int rc = read_files(r, r->pid, quiet, ret);

	if (rc)
		return rc;
	if (r->program)
		keep_program(ret, r->program);
	if (r->pid && !ret->n) {
		complain("no counters of process %d: %s", (int)r->pid, no_counters_why(r->pid));
		return EXIT_FAILED;
	}
	return EXIT_OK;
}
