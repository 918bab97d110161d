/*
 * conf_error.c - the errors in a policy file: each names its place, what is wrong, and what would
 * be right.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "parser.h"
#include "rule.h"
#include "words.h"

void conf_set_error(struct policy_error *err, const char *name, int line, int col, const char *msg)
{
	if (!err)
		return;
	memset(err, 0, sizeof(*err));
	fmt_string(err->file, sizeof(err->file), "%s", name);
	err->line = line;
	err->col = col;
	fmt_string(err->msg, sizeof(err->msg), "%s", msg);
}

int conf_fail(struct parser *p, int col, const char *fmt, ...)
{
	char msg[sizeof(p->err->msg)];
	va_list ap;

	va_start(ap, fmt);
	fmt_vstring(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	conf_set_error(p->err, p->pol->file[p->file].path, p->line, col, msg);
	return -EINVAL;
}

int conf_fail_word(struct parser *p, const struct word *w, const char *what, const char *remedy,
		   const char *const *list, size_t n)
{
	const char *guess = suggest_word(w->s, w->len, list, n);
	char q[200];

	quote_word(w->s, w->len, q, sizeof(q));
	if (guess)
		return conf_fail(p, w->col, "%s %s; did you mean '%s'? (%s)", q, what, guess,
				 remedy);
	return conf_fail(p, w->col, "%s %s; %s", q, what, remedy);
}

int conf_missing(struct parser *p, const char *what, const char *form)
{
	const struct word *w = &p->w[p->nw - 1];

	return conf_fail(p, w->col + (int)w->len, "%s is missing; write %s", what, form);
}

int conf_words(struct parser *p, int max, const char *form)
{
	const struct word *w;
	char q[200];

	if (p->nw <= max)
		return 0;
	w = &p->w[max];
	return conf_fail(p, w->col, "%s is one word too many; write %s",
			 quote_word(w->s, w->len, q, sizeof(q)), form);
}
