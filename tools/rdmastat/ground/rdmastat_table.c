/*
 * rdmastat_table.c - see rdmastat_table.h.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/words.h"
#include "ground/rdmastat_table.h"

/* Before its text in the pool: there may be ten thousands of lines. */
struct cell {
	uint16_t len;
	uint8_t color;
} __attribute__((packed));

struct table {
	const struct column *col[TABLE_COLUMNS];
	size_t n;
	size_t cells;
	char *pool;
	size_t used, cap;
	bool failed;			/* out of memory: what is there is printed, and that it
					 * is not all */
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

static int unknown_column(const char *option, const char *s, size_t len, const struct column *cols,
			  size_t ncols)
{
	const char *names[TABLE_COLUMNS], *guess;
	char q[200];
	size_t i;

	for (i = 0; i < ncols && i < TABLE_COLUMNS; i++)
		names[i] = cols[i].key;
	/* cppcheck-suppress uninitvar; i of them are set */
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
		printf("%-12s %s%s\n", cols[i].key, cols[i].help ? cols[i].help : "",
		       cols[i].extra ? " (only if asked for)" : "");
}

size_t columns_choose(const struct request *r, const struct column *cols, size_t ncols,
		      uint8_t *out, int *rc)
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
			if (s ? !cols[i].by_name : !cols[i].extra)
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

static const char *cell_text(const struct column *c, const void *row, char *buf, size_t len)
{
	if (c->text)
		return c->text(row, buf, len);
	if (c->bytes)
		return human(c->bytes(row), buf, len);
	if (c->share)
		return percent(c->share(row), buf, len);
	snprintf(buf, len, "%llu", (unsigned long long)c->count(row));
	return buf;
}

static int compare(const struct column *c, const void *a, const void *b)
{
	char s[64], t[64];
	double v, w;

	if (c->count)
		return larger_first(c->count(a), c->count(b));
	if (c->bytes)
		return larger_first(c->bytes(a), c->bytes(b));
	if (!c->share)
		return strcmp(c->text(a, s, sizeof(s)), c->text(b, t, sizeof(t)));
	v = c->share(a);
	w = c->share(b);
	return (v < w) - (v > w);
}

static int by_row_order(const void *a, const void *b, void *order)
{
	const struct row_order *o = order;
	int d = o->col >= 0 ? compare(&o->cols[o->col], a, b) : 0;

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

static bool grow(struct table *t, size_t need)
{
	size_t to = t->cap + t->cap / 2 + 4096 + need;
	char *more;

	if (t->used + need <= t->cap)
		return true;
	more = realloc(t->pool, to);
	if (!more)
		return false;
	t->pool = more;
	t->cap = to;
	return true;
}

void table_cell(struct table *t, enum tint color, const char *text)
{
	size_t len = strlen(text);
	struct cell c = { .color = (uint8_t)color };

	if (!t || t->failed)
		return;
	if (len > UINT16_MAX)
		len = UINT16_MAX;
	if (!grow(t, sizeof(c) + len)) {
		t->failed = true;
		return;
	}
	c.len = (uint16_t)len;
	memcpy(t->pool + t->used, &c, sizeof(c));
	memcpy(t->pool + t->used + sizeof(c), text, len);
	t->used += sizeof(c) + len;
	t->cells++;
}

void table_row(struct table *t, const void *row)
{
	char buf[64];

	for (size_t i = 0; t && i < t->n; i++) {
		const struct column *c = t->col[i];

		table_cell(t, c->tint ? c->tint(row) : TINT_OFF,
			   cell_text(c, row, buf, sizeof(buf)));
	}
}

void table_free(struct table *t)
{
	if (!t)
		return;
	free(t->pool);
	free(t);
}

/* ---- printing ---- */

/* The cell at *at, of which the text is returned; *at becomes the next one's place. */
static const char *next_cell(const struct table *t, size_t *at, struct cell *c)
{
	const char *s = t->pool + *at;

	memcpy(c, s, sizeof(*c));
	*at += sizeof(*c) + c->len;
	return s + sizeof(*c);
}

/* The columns' widths: as wide as their cells, and at least their least width, unless that is
 * what keeps them from fitting into room. */
static void measure(const struct table *t, int *width, int room)
{
	int total = -1;
	size_t i, at = 0;
	struct cell c;

	for (i = 0; i < t->n; i++)
		width[i] = (int)strlen(t->col[i]->title);
	for (i = 0; i < t->cells; i++) {
		next_cell(t, &at, &c);
		if (width[i % t->n] < c.len)
			width[i % t->n] = c.len;
	}
	for (i = 0; i < t->n; i++)
		total += (width[i] > t->col[i]->min ? width[i] : t->col[i]->min) + 1;
	for (i = 0; i < t->n && (!room || total <= room); i++)
		if (width[i] < t->col[i]->min)
			width[i] = t->col[i]->min;
}

/* Sets the width of columns to 0 until the rest fits into `room` or only those of rank 0 are
 * left. Returns how many went. */
static int leave_out(const struct table *t, int *width, int room)
{
	int total = -1, gone = 0;
	size_t i, worst;

	for (i = 0; i < t->n; i++)
		total += width[i] + 1;
	while (room && total > room) {
		worst = t->n;
		for (i = 0; i < t->n; i++)
			if (width[i] && t->col[i]->rank &&
			    (worst == t->n || t->col[i]->rank >= t->col[worst]->rank))
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
	size_t i, row, at = 0;

	if (!t) {
		complain("out of memory");
		return;
	}
	measure(t, width, r->width);
	gone = leave_out(t, width, r->width);
	p = (struct pen){ r, f, r->width, 0, 0, false };
	for (i = 0; i < t->n; i++)
		if (width[i])
			put(&p, TINT_HEAD, t->col[i]->title, (int)strlen(t->col[i]->title),
			    width[i], t->col[i]->left);
	putc('\n', f);
	for (row = 0; (row + 1) * t->n <= t->cells; row++) {
		p = (struct pen){ r, f, r->width, 0, 0, false };
		for (i = 0; i < t->n; i++) {
			struct cell c;
			const char *s = next_cell(t, &at, &c);

			if (width[i])
				put(&p, (enum tint)c.color, s, c.len, width[i], t->col[i]->left);
		}
		putc('\n', f);
	}
	if (t->failed)
		complain("out of memory: not all lines are shown");
	if (gone && r->width >= 60)
		fprintf(f, "%s(%d column%s not fit here; -o names those that you want)%s\n",
			tint(r, TINT_DIM), gone, gone == 1 ? " does" : "s do", tint(r, TINT_OFF));
}
