/*
 * trace.h - reading a trace of this folder in a unit test: what happened, one after the other.
 */
#ifndef TESTS_TRACE_H
#define TESTS_TRACE_H

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct trace {
	FILE *f;
	char path[128], what[16];
	unsigned line, left;		/* so often still, what is in it now */
	uint64_t a, b, decided;
};

static struct trace trace_open(const char *name)
{
	struct trace t = { .line = 0 };

	snprintf(t.path, sizeof t.path, "tests/traces/%s.txt", name);
	t.f = fopen(t.path, "r");
	ck_assert_msg(t.f != NULL, "%s: it is not there", t.path);
	return t;
}

/* False: that was all. */
static bool trace_next(struct trace *t)
{
	char line[128];

	if (t->left > 1) {
		t->left--;
		return true;
	}
	do {
		if (!fgets(line, sizeof line, t->f)) {
			fclose(t->f);
			return false;
		}
		t->line++;
	} while (*line == '#');
	ck_assert_msg(sscanf(line, "%u %15s %" SCNu64 " %" SCNu64 " %" SCNu64, &t->left, t->what,
			     &t->a, &t->b, &t->decided) == 5, "%s:%u: %s", t->path, t->line, line);
	return true;
}

static bool trace_is(const struct trace *t, const char *what) { return !strcmp(t->what, what); }

static void trace_same(const struct trace *t, uint64_t now)
{
	ck_assert_msg(now == t->decided, "%s:%u: %s: %" PRIu64 ", then it was %" PRIu64, t->path,
		      t->line, t->what, now, t->decided);
}

#endif
