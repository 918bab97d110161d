/*
 * rdmastat_go.c - the doctor's look at programs of Go, where the policy says `go on`: which of them
 * make their calls by the library, and why others do not.
 */
#include <stdio.h>
#include <string.h>

#include "doctor/rdmastat_doctor.h"
#include "ground/statfile.h"

#define NAMED 4			/* the others are only counted */

/* As the library writes it: ", untouched: WHY" behind the version, or without one. */
static bool untouched(const char *go) { return strstr(go, "untouched: ") != NULL; }

void check_go(struct doctor *d)
{
	char text[700] = "";
	size_t taken = 0, left = 0, at = 0;
	struct stat_list l;

	if (statfile_list(false, 0, NULL, &l))
		return;
	for (size_t i = 0; i < l.n; i++) {
		const struct stat_proc *p = &l.proc[i];

		if (!p->pid || p->dead || !p->go[0])
			continue;
		if (!untouched(p->go)) {
			taken++;
			continue;
		}
		if (left++ < NAMED)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%u %.20s (%s)",
					       at ? ", " : "", p->pid, p->program, p->go);
	}
	stat_list_clear(&l);
	if (left)
		verdict(d, V_WARN, "go", "docs/go.md says what each means",
			"%zu program%s of Go past the library: %s%s", left, left == 1 ? "" : "s",
			text, left > NAMED ? " ..." : "");
	else if (taken)
		verdict(d, V_OK, "go", "", "the calls of %zu program%s of Go come to the library",
			taken, taken == 1 ? "" : "s");
}
