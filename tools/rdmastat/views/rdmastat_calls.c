/*
 * rdmastat_calls.c - rdmastat calls: how often each libc call was made on a connection, summed
 * over processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/rdmastat.h"
#include "ground/rdmastat_json.h"
#include "ground/rdmastat_table.h"

struct call_sum {
	const char *name;
	uint64_t tcp, fast;
};

static void add_call(struct call_sum *sum, size_t *n, const char *name, const uint64_t *calls)
{
	size_t i;

	for (i = 0; i < *n && strcmp(sum[i].name, name); i++)
		;
	if (i == STAT_CALLS)
		return;
	if (i == *n)
		sum[(*n)++] = (struct call_sum){ .name = name };
	sum[i].tcp = sat_add(sum[i].tcp, calls[0]);
	sum[i].fast = sat_add(sum[i].fast, calls[1]);
}

#define ROW const struct call_sum *c = row
TEXT(name, c->name)
NUMBER(tcp, c->tcp)
NUMBER(fast, c->fast)
NUMBER(all, sat_add(c->tcp, c->fast))

enum { COL_ALL = 3 };
static const struct column cols[] = {
	{ "call", "CALL", true, 0, 20, false, "libc's entry", .text = name },
	{ "tcp", "ON-TCP", false, 1, 12, false, "calls while the connection's direction was on TCP",
	  .count = tcp },
	{ "fast", "ON-FAST-PATH", false, 1, 12, false, "calls while it was on a fast path",
	  .count = fast },
	[COL_ALL] = { "all", "ALL", false, 2, 12, true, "both", .count = all },
};
#define COLS (sizeof(cols) / sizeof(cols[0]))

static int calls_by_name(const void *a, const void *b)
{
	const struct call_sum *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int json_calls(const struct request *r, const struct call_sum *sum, size_t n)
{
	json_object *root = json_root(), *list = json_object_new_array();

	for (size_t i = 0; i < n; i++) {
		json_object *o = json_object_new_object();

		json_add(o, "call", json_str(sum[i].name));
		json_add(o, "tcp", json_num(sum[i].tcp));
		json_add(o, "fast", json_num(sum[i].fast));
		json_object_array_add(list, o);
	}
	json_add(root, "calls", list);
	json_print(r, root);
	return EXIT_OK;
}

int show_calls(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .cols = cols, .tie = calls_by_name };
	struct call_sum sum[STAT_CALLS];
	uint8_t chosen[TABLE_COLUMNS];
	size_t n = 0, ncols;
	struct table *t;
	int rc;

	ncols = columns_choose(r, cols, COLS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, cols, COLS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	for (size_t i = 0; i < l->n; i++)
		for (size_t c = 0; c < STAT_CALLS; c++)
			if (l->proc[i].call[c][0] &&
			    (l->proc[i].calls[c][0] || l->proc[i].calls[c][1]))
				add_call(sum, &n, l->proc[i].call[c], l->proc[i].calls[c]);
	if (order.col < 0)
		order.col = COL_ALL;
	rows_sort(sum, n, sizeof(*sum), &order);
	if (r->json)
		return json_calls(r, sum, n);
	t = table_new(cols, chosen, ncols);
	for (size_t i = 0; i < n; i++)
		table_row(t, &sum[i]);
	table_print(r, t, stdout);
	table_free(t);
	return EXIT_OK;
}
