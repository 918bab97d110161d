/*
 * rdmastat_table.c - see rdmastat_table.h.
 */
#include <stdlib.h>
#include <string.h>

#include "../policy/words.h"
#include "rdmastat_table.h"

struct cell {
	size_t at;			/* of its text in the pool */
	uint16_t len;
	uint8_t color;
};

struct table {
	const struct column *col[TABLE_COLUMNS];
	size_t n;
	struct cell *cell;
	size_t cells, cells_cap;
	char *pool;
	size_t used, cap;
	bool failed;			/* out of memory: what is there is printed, and that it is not all */
};

/* ---- which columns ---- */

static int find_column(const char *s, size_t len, const struct column *cols, size_t ncols)
{
	size_t i;

	for (i = 0; i < ncols; i++)
		if (word_is(s, len, cols[i].key))
			return (int)i;
	return -1;
}

static int unknown_column(const char *option, const char *s, size_t len, const struct column *cols, size_t ncols)
{
	const char *names[TABLE_COLUMNS], *guess;
	char q[200];
	size_t i;

	for (i = 0; i < ncols && i < TABLE_COLUMNS; i++)
		names[i] = cols[i].key;
	guess = suggest_word(s, len, names, i);
	quote_word(s, len, q, sizeof(q));
	if (guess)
		complain("--%s: %s is not a column; did you mean %s?", option, q, guess);
	else
		complain("--%s: %s is not a column; -o help lists them", option, q);
	return -2;
}

static void list_columns(const struct column *cols, size_t ncols)
{
	size_t i;

	for (i = 0; i < ncols; i++)
		printf("%-12s %s%s\n", cols[i].key, cols[i].help ? cols[i].help : "", cols[i].extra ? " (only if asked for)" : "");
}

size_t columns_choose(const struct request *r, const struct column *cols, size_t ncols, uint8_t *out, int *rc)
{
	const char *s = r->columns;
	size_t n = 0, i, len;
	int c;

	*rc = EXIT_OK;
	if (s && !strcmp(s, "help")) {
		list_columns(cols, ncols);
		return 0;
	}
	if (!s || !strcmp(s, "all")) {
		for (i = 0; i < ncols; i++)
			if (s || !cols[i].extra)
				out[n++] = (uint8_t)i;
		return n;
	}
	for (; ; s += len + 1) {
		len = strcspn(s, ",");
		c = find_column(s, len, cols, ncols);
		if (c < 0 || n == TABLE_COLUMNS) {
			*rc = EXIT_USAGE;
			if (c < 0)
				unknown_column("columns", s, len, cols, ncols);
			else
				complain("--columns: at most %d", TABLE_COLUMNS);
			return 0;
		}
		out[n++] = (uint8_t)c;
		if (!s[len])
			return n;
	}
}

int columns_sort(const struct request *r, const struct column *cols, size_t ncols, bool *reverse)
{
	size_t len;
	int c;

	*reverse = false;
	if (!r->sort)
		return -1;
	len = strcspn(r->sort, ":");
	c = find_column(r->sort, len, cols, ncols);
	if (c < 0)
		return unknown_column("sort", r->sort, len, cols, ncols);
	if (r->sort[len] && strcmp(r->sort + len, ":r")) {
		complain("--sort: write %.*s or %.*s:r", (int)len, r->sort, (int)len, r->sort);
		return -2;
	}
	*reverse = r->sort[len] != '\0';
	return c;
}

static int by_row_order(const void *a, const void *b, void *order)
{
	const struct row_order *o = order;
	int d = o->col >= 0 ? o->compare(a, b, o->col) : 0;

	if (d)
		return o->reverse ? -d : d;
	return o->tie(a, b);
}

void rows_sort(void *rows, size_t n, size_t size, const struct row_order *o)
{
	if (n)
		qsort_r(rows, n, size, by_row_order, (void *)o);
}

/* ---- cells ---- */

struct table *table_new(const struct column *cols, const uint8_t *chosen, size_t n)
{
	struct table *t = calloc(1, sizeof(*t));
	size_t i;

	if (!t)
		return NULL;
	t->n = n;
	for (i = 0; i < n; i++)
		t->col[i] = &cols[chosen[i]];
	return t;
}

static bool grow(void **p, size_t *cap, size_t need, size_t size)
{
	size_t to = *cap ? *cap : 1024;
	void *more;

	if (need <= *cap)
		return true;
	while (to < need)
		to *= 2;
	more = realloc(*p, to * size);
	if (!more)
		return false;
	*p = more;
	*cap = to;
	return true;
}

void table_cell(struct table *t, enum tint color, const char *text)
{
	size_t len = strlen(text);

	if (!t || t->failed)
		return;
	if (len > UINT16_MAX)
		len = UINT16_MAX;
	if (!grow((void **)&t->cell, &t->cells_cap, t->cells + 1, sizeof(*t->cell)) || !grow((void **)&t->pool, &t->cap, t->used + len + 1, 1)) {
		t->failed = true;
		return;
	}
	memcpy(t->pool + t->used, text, len);
	t->cell[t->cells++] = (struct cell){ t->used, (uint16_t)len, (uint8_t)color };
	t->used += len;
}

void table_free(struct table *t)
{
	if (!t)
		return;
	free(t->cell);
	free(t->pool);
	free(t);
}

/* ---- printing ---- */

/* The columns' widths: as wide as their cells, and at least their least width, unless that is what keeps them from fitting into room. */
static void measure(const struct table *t, int *width, int room)
{
	int total = -1;
	size_t i;

	for (i = 0; i < t->n; i++)
		width[i] = (int)strlen(t->col[i]->title);
	for (i = 0; i < t->cells; i++)
		if (width[i % t->n] < t->cell[i].len)
			width[i % t->n] = t->cell[i].len;
	for (i = 0; i < t->n; i++)
		total += (width[i] > t->col[i]->min ? width[i] : t->col[i]->min) + 1;
	for (i = 0; i < t->n && (!room || total <= room); i++)
		if (width[i] < t->col[i]->min)
			width[i] = t->col[i]->min;
}

/* Sets the width of columns to 0 until the rest fits into `room` or only those of rank 0 are left. Returns how many went. */
static int leave_out(const struct table *t, int *width, int room)
{
	int total = -1, gone = 0;
	size_t i, worst;

	for (i = 0; i < t->n; i++)
		total += width[i] + 1;
	while (room && total > room) {
		worst = t->n;
		for (i = 0; i < t->n; i++)
			if (width[i] && t->col[i]->rank && (worst == t->n || t->col[i]->rank >= t->col[worst]->rank))
				worst = i;
		if (worst == t->n)
			break;
		total -= width[worst] + 1;
		width[worst] = 0;
		gone++;
	}
	return gone;
}

/* One line, cut at room; blanks at its end are not printed. */
struct pen {
	const struct request *r;
	FILE *f;
	int room, at, blanks;
	bool begun;
};

static void put(struct pen *p, enum tint color, const char *s, int len, int width, bool left)
{
	int pad = width - len;

	if (p->begun)
		p->blanks++;
	p->begun = true;
	if (!left)
		p->blanks += pad;
	if (p->room && p->at + p->blanks + len > p->room)
		len = p->room > p->at + p->blanks ? p->room - p->at - p->blanks : 0;
	if (len > 0) {
		p->at += p->blanks + len;
		for (; p->blanks; p->blanks--)
			putc_unlocked(' ', p->f);
		fputs_unlocked(tint(p->r, color), p->f);
		fwrite_unlocked(s, 1, (size_t)len, p->f);
		if (color)
			fputs_unlocked(tint(p->r, TINT_OFF), p->f);
	}
	if (left)
		p->blanks += pad;
}

void table_print(const struct request *r, const struct table *t, FILE *f)
{
	int width[TABLE_COLUMNS], gone;
	struct pen p;
	size_t i, row;

	if (!t) {
		complain("out of memory");
		return;
	}
	measure(t, width, r->width);
	gone = leave_out(t, width, r->width);
	p = (struct pen){ r, f, r->width, 0, 0, false };
	for (i = 0; i < t->n; i++)
		if (width[i])
			put(&p, TINT_HEAD, t->col[i]->title, (int)strlen(t->col[i]->title), width[i], t->col[i]->left);
	putc('\n', f);
	for (row = 0; (row + 1) * t->n <= t->cells; row++) {
		p = (struct pen){ r, f, r->width, 0, 0, false };
		for (i = 0; i < t->n; i++) {
			const struct cell *c = &t->cell[row * t->n + i];

			if (width[i])
				put(&p, (enum tint)c->color, t->pool + c->at, c->len, width[i], t->col[i]->left);
		}
		putc('\n', f);
	}
	if (t->failed)
		complain("out of memory: not all lines are shown");
	if (gone && r->width >= 60)
		fprintf(f, "%s(%d column%s not fit here; -o names those that you want)%s\n", tint(r, TINT_DIM), gone, gone == 1 ? " does" : "s do", tint(r, TINT_OFF));
}
