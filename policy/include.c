/*
 * include.c - the files of a policy: the first, and those that it includes by name or by pattern,
 * with their limits. No locks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parser.h"
#include "rule.h"
#include "words.h"

#define POLICY_MAX (1u << 20)	/* bytes in all files together */
#define FILES_MAX 64		/* the first and all that it includes */
#define DEPTH_MAX 8		/* of files that include files */

void include_depends(struct parser *p, const char *path)
{
	struct policy_deps *d = p->deps;

	if (d && d->n < POLICY_DEPS)
		fmt_string(d->path[d->n++], POLICY_PATH, "%s", path);
}

/* What the reader says of a refusal. */
static void note_trust(struct parser *p, const struct trust *t)
{
	fmt_string(p->why, TRUST_WHY, "%s", t->why);
	p->stranger = t->stranger;
}

/* What a stranger has put where a pattern looks must not end the policy: it is left out. */
static void skip_file(struct parser *p, const char *dir, const char *name)
{
	p->pol->skipped++;
	fmt_string(p->pol->skipped_one, sizeof(p->pol->skipped_one), "%s%s", dir, name);
}

long include_read(struct parser *p, const char *path)
{
	struct policy_text *t = realloc(p->pol->file, (p->pol->nfiles + 1) * sizeof(*t));
	struct trust trust = { 0 };
	long n;

	if (!t)
		return -ENOMEM;
	p->pol->file = t;
	t += p->pol->nfiles;
	memset(t, 0, sizeof(*t));
	fmt_string(t->path, sizeof(t->path), "%s", path);
	t->parent = p->file;
	n = p->src->read(p->src, path, POLICY_MAX - p->total + 1, &t->text, t->id, &trust);
	note_trust(p, &trust);
	if (n < 0)
		return n;
	t->text[n] = '\0';
	p->total += (size_t)n;
	p->pol->nfiles++;
	return p->total > POLICY_MAX ? -EFBIG : n;
}

/* Is the file that was added last one of those that led to it? */
static bool includes_itself(const struct parser *p)
{
	const struct policy_text *f = p->pol->file, *last = &f[p->pol->nfiles - 1];
	unsigned i = last->parent;

	for (;; i = f[i].parent) {
		if ((last->id[0] | last->id[1]) && last->id[0] == f[i].id[0] &&
		    last->id[1] == f[i].id[1])
			return true;
		if (!i)
			return false;
	}
}

/* The file in the place of the line that includes it; a section that it opens ends with it. */
static int include_file(struct parser *p, const char *path, int col, bool by_pattern)
{
	struct parser was = *p;
	char q[200];
	long n;
	int rc;

	quote_word(path, strlen(path), q, sizeof(q));
	if (p->pol->nfiles == FILES_MAX)
		return conf_fail(p, col, "%s is one file too many; include at most %d", q,
				 FILES_MAX - 1);
	n = include_read(p, path);
	if (n == -ENOENT && by_pattern)		/* taken away since it was listed */
		return 0;
	if (n == TRUST_REFUSED && p->stranger && by_pattern) {
		skip_file(p, path, "");
		return 0;
	}
	if (n == -ENOENT)
		return conf_fail(p, col,
				 "%s: there is no such file; create it, or take this line out", q);
	if (n == -EFBIG)
		return conf_fail(p, col, "%s makes it more than 1 MiB in all; shorten it", q);
	if (n < 0)
		return conf_fail(p, col, "%s: %s", q, source_remedy(n, p->why));
	if (includes_itself(p))
		return conf_fail(p, col, "%s includes itself; take this line out", q);
	p->file = p->pol->nfiles - 1;
	p->depth++;
	rc = conf_text(p, p->pol->file[p->file].text, (size_t)n);
	p->file = was.file;
	p->depth = was.depth;
	p->line = was.line;
	p->program = was.program;
	p->in_section = was.in_section;
	return rc;
}

/* The names that the pattern means in `dir`, which is its directory, or "." where it has none. */
static int list_files(struct parser *p, const char *dir, const char *pattern,
		      char (*name)[POLICY_NAME])
{
	char skipped[POLICY_NAME];
	struct trust trust = { 0 };
	int n = p->src->list(p->src, dir, pattern, name, FILES_MAX, skipped, &trust);

	note_trust(p, &trust);
	if (n == -ENOENT)	/* a directory that is not there has no files, too */
		return 0;
	if (n == TRUST_REFUSED && p->stranger) {
		skip_file(p, dir, pattern);
		return 0;
	}
	if (n >= 0 && skipped[0])
		skip_file(p, dir, skipped);
	return n;
}

static int include_pattern(struct parser *p, const char *path, int col)
{
	const char *slash = strrchr(path, '/');
	char dir[POLICY_PATH], one[POLICY_PATH + POLICY_NAME], q[200], (*name)[POLICY_NAME];
	int n, i, rc = 0;

	fmt_string(dir, sizeof(dir), "%s", slash ? path : ".");
	if (slash)
		dir[slash - path + 1] = '\0';
	name = malloc(FILES_MAX * sizeof(*name));
	n = name ? list_files(p, dir, slash ? slash + 1 : path, name) : -ENOMEM;
	if (n == -E2BIG)
		rc = conf_fail(p, col, "%s is more than %d files; write fewer",
			       quote_word(path, strlen(path), q, sizeof(q)), FILES_MAX);
	else if (n < 0)
		rc = conf_fail(p, col, "%s: %s", quote_word(path, strlen(path), q, sizeof(q)),
			       source_remedy(n, p->why));
	for (i = 0; i < n && !rc; i++) {
		if (fmt_string(one, sizeof(one), "%s%s", slash ? dir : "", name[i]) >=
		    POLICY_PATH) {
			rc = conf_fail(p, col, "%s: its path is longer than %d bytes",
				       quote_word(name[i], strlen(name[i]), q, sizeof(q)),
				       POLICY_PATH - 1);
			break;
		}
		include_depends(p, one);
		rc = include_file(p, one, col, true);
	}
	free(name);
	return rc;
}

int include_parse(struct parser *p)
{
	static const char form[] = "include FILE or include DIRECTORY/*.conf";
	const char *base = p->pol->file[p->file].path, *slash = strrchr(base, '/');
	struct word w = p->w[1];
	char path[POLICY_PATH], q[200];
	size_t n = 0;
	int rc = 0;

	if (p->nw < 2)
		rc = conf_missing(p, "the file's name", form);
	if (!rc)
		rc = conf_words(p, 2, form);
	if (rc)
		return rc;
	quote_word(w.s, w.len, q, sizeof(q));
	if (w.s[0] != '/' && slash)
		n = (size_t)(slash - base) + 1;
	if (n + w.len >= sizeof(path))
		return conf_fail(p, w.col, "%s: the path is longer than %d bytes", q,
				 POLICY_PATH - 1);
	if (p->depth == DEPTH_MAX)
		return conf_fail(p, w.col,
				 "%s would be the %dth file that is included by another; "
				 "include at most %d deep", q, DEPTH_MAX + 1, DEPTH_MAX);
	memcpy(path, base, n);
	memcpy(path + n, w.s, w.len);
	path[n + w.len] = '\0';
	include_depends(p, path);
	slash = memrchr(w.s, '/', w.len);
	if (slash && (memchr(w.s, '*', (size_t)(slash - w.s)) ||
		      memchr(w.s, '?', (size_t)(slash - w.s))))
		return conf_fail(p, w.col, "%s has a pattern in a directory's name; "
				 "write one in the last component only", q);
	if (memchr(w.s, '*', w.len) || memchr(w.s, '?', w.len))
		return include_pattern(p, path, w.col);
	return include_file(p, path, w.col, false);
}
