/*
 * rdmastat_versions.c - the doctor's look at versions: the library is of the build of this program,
 * and so is what runs. A process keeps the library that it began with until it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/version.h"
#include "doctor/rdmastat_doctor.h"
#include "ground/statfile.h"

#define NAMED 4			/* the others are only counted */
#define LIBRARY_MOST (64u << 20)

static struct { size_t n; char text[300]; } strange;

static void note(const struct stat_proc *p)
{
	size_t at = strlen(strange.text);

	if (strange.n++ < NAMED)
		snprintf(strange.text + at, sizeof(strange.text) - at, "%s%u %.20s (%s)",
			 at ? ", " : "", p->pid, p->program, p->build[0] ? p->build : "older");
	else if (strange.n == NAMED + 1)
		snprintf(strange.text + at, sizeof(strange.text) - at, " ...");
}

static void on_bad(const char *path, int error, const struct stat_proc *p)
{
	(void)path;
	if (error == -EPROTO && p && p->pid)
		note(p);
}

static void check_processes(struct doctor *d)
{
	struct stat_list l;
	size_t same = 0;

	memset(&strange, 0, sizeof(strange));
	if (statfile_list(false, 0, on_bad, &l))
		return;
	for (size_t i = 0; i < l.n; i++) {
		const struct stat_proc *p = &l.proc[i];

		if (!p->pid || p->dead)
			continue;
		if (strcmp(p->build, rdmashim_version))
			note(p);
		else
			same++;
	}
	stat_list_clear(&l);
	if (strange.n)
		verdict(d, V_WARN, "versions", "restart them",
			"this is %s; with a library of another build %s: %s", rdmashim_version,
			strange.n == 1 ? "runs" : "run", strange.text);
	else
		verdict(d, V_OK, "versions", "", "%s, and so %s %zu process%s that run%s",
			rdmashim_version, same == 1 ? "is" : "are", same, same == 1 ? "" : "es",
			same == 1 ? "s" : "");
}

/* Does the library name the version of this program? It is the same object in both. */
static bool of_this_build(const char *lib)
{
	static char buf[65536 + VERSION_LEN];
	size_t keep = 0, len = strlen(rdmashim_version) + 1, all = 0;
	bool found = false;
	struct stat st;
	ssize_t n = 0;
	int fd;

	fd = open(lib, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return true;		/* that is another check's */
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		found = true;
	while (!found && all < LIBRARY_MOST && (n = read(fd, buf + keep, 65536)) > 0) {
		all += (size_t)n;
		keep += (size_t)n;
		found = memmem(buf, keep, rdmashim_version, len) != NULL;
		if (keep >= len) {	/* it may lie across two reads */
			memmove(buf, buf + keep - (len - 1), len - 1);
			keep = len - 1;
		}
	}
	close(fd);
	return found;
}

void check_versions(struct doctor *d)
{
	if (d->root[0])
		return;
	if (d->lib[0] && !of_this_build(d->lib))
		verdict(d, V_WARN, "library build", "install both of one build: make install",
			"%s is not of the build of this rdmastat, %s", d->lib, rdmashim_version);
	check_processes(d);
}
