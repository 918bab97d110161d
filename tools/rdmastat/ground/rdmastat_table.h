/*
 * rdmastat_table.h - a table for people: columns as wide as what is in them, and on a narrow
 * terminal the least important ones left out rather than lines broken.
 */
#ifndef RDMASHIM_RDMASTAT_TABLE_H
#define RDMASHIM_RDMASTAT_TABLE_H

#include "ground/rdmastat.h"

/*
 * All that there is to say of a column. What a row has in it is one of `text`, `count`, `bytes` and
 * `share`; it sorts by that, a text by the other one beside it. Functions get one row of the view.
 */
struct column {
	const char *key, *title;	/* key: what -o and --sort call it */
	bool left;			/* aligned */
	uint8_t rank;			/* 0: never left out for want of room; the highest goes
					 * first */
	uint8_t min;			/* least width */
	bool extra;			/* shown only if asked for, by its name or by all */
	const char *help;
	const char *(*text)(const void *row, char *buf, size_t len);
	uint64_t (*count)(const void *row);
	uint64_t (*bytes)(const void *row);	/* shown as 1.5K */
	double (*share)(const void *row);	/* 0 to 1, below 0: of nothing */
	enum tint (*tint)(const void *row);	/* NULL: none */
	bool by_name;			/* an extra one that `all` leaves out: it may tell what
					 * is nobody's business */
};

/* What a column's function is, where a file names one row of its view: ROW. */
#define NUMBER(name, what) static uint64_t name(const void *row) { ROW; return what; }
#define TEXT(name, what) \
	static const char *name(const void *row, char *buf, size_t len) \
	{ ROW; (void)buf; (void)len; return what; }
#define SHARE(name, what) static double name(const void *row) { ROW; return what; }
#define TINT(name, what) static enum tint name(const void *row) { ROW; return what; }

#define TABLE_COLUMNS 32

/* Which columns to show, and in which order: out[0..n), from -o or the table's own. 0 after a
 * complaint or after listing them (-o help), with *rc. */
size_t columns_choose(const struct request *r, const struct column *cols, size_t ncols,
		      uint8_t *out, int *rc);

/* The column and direction of --sort: -1 none, -2 after a complaint. */
int columns_sort(const struct request *r, const struct column *cols, size_t ncols, bool *reverse);

/* Sorts n rows of `size` bytes by a column (below 0: by tie alone), largest first, or text first to
 * last, unless reverse. tie: what else tells two rows apart, never turned round. */
struct row_order {
	const struct column *cols;
	int col;
	bool reverse;
	int (*tie)(const void *a, const void *b);
};
void rows_sort(void *rows, size_t n, size_t size, const struct row_order *o);
static inline int larger_first(uint64_t v, uint64_t w) { return (v < w) - (v > w); }

struct table;
struct table *table_new(const struct column *cols, const uint8_t *chosen, size_t n);
/* The next cell, in the order of chosen; t may be NULL (out of memory), the text is copied. */
void table_cell(struct table *t, enum tint color, const char *text);
/* All cells of a row; the chosen columns have functions. */
void table_row(struct table *t, const void *row);
void table_print(const struct request *r, const struct table *t, FILE *f);
void table_free(struct table *t);

#endif
