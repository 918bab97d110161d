/*
 * rdmastat_reset.c - `rdmastat reset`: remembers the counts of now; later views show what came
 * since. The counters themselves belong to the processes that write them and are not touched:
 * other users, and --absolute, see them whole.
 *
 * The file "baseline" in the counter directory, one line per process: pid, start time, then all
 * numbers in the order of this version of the tables, which the first line names.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/rdmastat.h"
#include "ground/rdmastat_json.h"

#define NUMBERS (STAT_COUNTERS + 2 * REASON_COUNT + 2 * PATH_KINDS + 2 * STAT_CALLS)
#define BASELINE_MAX (64u << 20)

/* The numbers of a process in the order of the file; NULL: it was not asked for. */
static uint64_t *number(struct stat_proc *p, int i)
{
	if (i < STAT_COUNTERS)
		return &p->counter[i];
	i -= STAT_COUNTERS;
	if (i < (int)REASON_COUNT)
		return &p->reasons[i];
	i -= REASON_COUNT;
	if (i < (int)REASON_COUNT)
		return p->link_errors ? &p->link_errors[i] : NULL;
	i -= REASON_COUNT;
	if (i < 2 * PATH_KINDS)
		return i < PATH_KINDS ? &p->tx_bytes[i] : &p->rx_bytes[i - PATH_KINDS];
	i -= 2 * PATH_KINDS;
	return p->calls ? &p->calls[i / 2][i % 2] : NULL;
}

static void head_line(char *buf, size_t len)
{
	snprintf(buf, len, "rdmastat baseline 3 %d %d %d %d\n", STAT_COUNTERS, REASON_COUNT,
		 PATH_KINDS, STAT_CALLS);
}

/* ---- reading ---- */

static struct stat_proc *find(struct stat_list *l, uint64_t pid, uint64_t start)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {		/* the list is sorted by pid */
		size_t mid = lo + (hi - lo) / 2;

		if (l->proc[mid].pid < pid)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < l->n && l->proc[lo].pid == pid; lo++)
		if (l->proc[lo].start_time == start)
			return &l->proc[lo];
	return NULL;
}

static void apply_line(char *s, struct stat_list *l)
{
	uint64_t v[NUMBERS + 2];
	struct stat_proc *p;
	char *end;
	int i;

	for (i = 0; i < NUMBERS + 2; i++, s = end) {
		v[i] = strtoull(s, &end, 10);
		if (end == s)
			return;		/* cut short: as if it were not there */
	}
	p = find(l, v[0], v[1]);
	for (i = 0; p && i < NUMBERS; i++) {
		uint64_t *n = number(p, i);

		if (n)
			*n = *n > v[i + 2] ? *n - v[i + 2] : 0;
	}
}

static FILE *open_baseline(void)
{
	char path[PATH_MAX];
	int dir = stat_dir_open(geteuid(), false, path, sizeof(path)), fd;
	struct stat st;
	FILE *f;

	if (dir < 0)
		return NULL;
	fd = openat(dir, "baseline", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	close(dir);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    st.st_size > BASELINE_MAX || !(f = fdopen(fd, "r"))) {
		close(fd);
		return NULL;
	}
	return f;
}

void baseline_apply(struct stat_list *l)
{
	FILE *f = l->n ? open_baseline() : NULL;
	char *line = NULL, head[64];
	size_t cap = 0;

	if (!f)
		return;
	head_line(head, sizeof(head));
	if (getline(&line, &cap, f) > 0 && !strcmp(line, head))
		while (getline(&line, &cap, f) > 0)
			apply_line(line, l);
	free(line);
	fclose(f);
}

/* ---- writing ---- */

static bool write_baseline(FILE *f, struct stat_list *l)
{
	char head[64];
	size_t i;
	int k;

	head_line(head, sizeof(head));
	fputs(head, f);
	for (i = 0; i < l->n; i++) {
		fprintf(f, "%u %llu", l->proc[i].pid, (unsigned long long)l->proc[i].start_time);
		for (k = 0; k < NUMBERS; k++)
			fprintf(f, " %llu", (unsigned long long)*number(&l->proc[i], k));
		putc('\n', f);
	}
	return !fflush(f) && !ferror(f);
}

/* Under another name until it is whole. 0 or -errno. */
static int replace_baseline(int dir, struct stat_list *l)
{
	char tmp[40];
	FILE *f = NULL;
	int fd, rc = 0;

	snprintf(tmp, sizeof(tmp), "baseline.%d", (int)getpid());
	(void)!unlinkat(dir, tmp, 0);		/* of a process of this number that was killed */
	fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		f = fdopen(fd, "w");
	if (!f || !write_baseline(f, l) || renameat(dir, tmp, dir, "baseline"))
		rc = -errno;
	if (rc && fd >= 0)
		unlinkat(dir, tmp, 0);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return rc;
}

int cmd_reset(const struct request *asked)
{
	struct request r = *asked;
	char path[PATH_MAX];
	struct stat_list l = { 0 };
	int dir, error, rc;

	r.absolute = true;
	rc = get_all(&r, false, &l);
	if (rc)
		return rc;
	dir = stat_dir_open(geteuid(), true, path, sizeof(path));
	error = dir < 0 ? dir : replace_baseline(dir, &l);
	if (error) {
		complain("reset: cannot write %s/baseline: %s", path,
			 error == -EPERM ? "the directory is not this user's, or is open to others"
					 : strerror(-error));
		rc = EXIT_FAILED;
	}
	if (dir >= 0)
		close(dir);
	if (!rc && r.json) {
		json_object *o = json_root();

		json_add(o, "reset", json_num(l.n));
		json_print(&r, o);
	} else if (!rc) {
		printf("%zu process%s: counting from now on; --absolute shows all\n", l.n,
		       l.n == 1 ? "" : "es");
	}
	stat_list_clear(&l);
	return rc;
}
