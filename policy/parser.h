/*
 * parser.h - a policy file on its way to struct policy, for conf.c with conf_error.c and
 * conf_value.c, and for include.c.
 */
#ifndef RDMASHIM_PARSER_H
#define RDMASHIM_PARSER_H

#include <stdbool.h>

#include "conf.h"

/* More than any line may have, so that the first superfluous one is seen. */
#define WORDS_MAX 8

struct word {
	const char *s;
	size_t len;
	int col;
};

struct parser {
	const struct policy_source *src;
	struct policy_deps *deps;	/* NULL: nobody wants to know */
	struct policy *pol;
	struct policy_error *err;
	unsigned file;			/* the one that is being read, of pol->file */
	unsigned depth;
	size_t total;			/* bytes so far */
	int line;
	struct word w[WORDS_MAX];
	int nw;
	struct word program;		/* of the running section */
	char *why;			/* what was read last was refused */
	bool stranger;			/* ... as a stranger's, where others may write */
	bool in_section;		/* inside `program` other than * */
};

/* ---- conf_error.c ---- */

/* Fills err, if it is there. */
void conf_set_error(struct policy_error *err, const char *name, int line, int col, const char *msg);
/* -EINVAL, and the error is that, here. */
int conf_fail(struct parser *p, int col, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Names the wrong word, what would be right, and the likely one. */
int conf_fail_word(struct parser *p, const struct word *w, const char *what, const char *remedy,
		   const char *const *list, size_t n);
/* The place just behind the last word, where one is missing. */
int conf_missing(struct parser *p, const char *what, const char *form);
int conf_words(struct parser *p, int max, const char *form);	/* not more than these */

/* ---- conf_value.c: a value ---- */

/* What the word says, in the row's unit and range; else an error, as above. */
int conf_parse_value(struct parser *p, const struct conf_row *row, const struct word *w,
		     uint64_t *ret);

/* ---- conf.c: a text ---- */

int conf_text(struct parser *p, const char *s, size_t len);	/* all its lines */

/* ---- include.c: its files ---- */

void include_depends(struct parser *p, const char *path);	/* a change of that one matters */
/* Reads `path` behind the files that the policy has. Its length, or -errno. */
long include_read(struct parser *p, const char *path);
int include_parse(struct parser *p);		/* the statement */

#endif
