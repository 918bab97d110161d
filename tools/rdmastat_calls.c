/*
 * rdmastat_calls.c - rdmastat calls: how often each libc call was made on a connection, summed over processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdmastat.h"
#include "rdmastat_json.h"
#include "rdmastat_table.h"

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

enum { COL_CALL, COL_TCP, COL_FAST, COL_ALL, COLS };
static const struct column cols[COLS] = {
	[COL_CALL] = { "call", "CALL", true, 0, 20, false, "libc's entry" },
	[COL_TCP]  = { "tcp", "ON-TCP", false, 1, 12, false, "calls while the connection's direction was on TCP" },
	[COL_FAST] = { "fast", "ON-FAST-PATH", false, 1, 12, false, "calls while it was on a fast path" },
	[COL_ALL]  = { "all", "ALL", false, 2, 12, true, "both" },
};

static uint64_t value_of(const struct call_sum *c, int col)
{
	return col == COL_TCP ? c->tcp : col == COL_FAST ? c->fast : sat_add(c->tcp, c->fast);
}

static int compare_calls(const void *a, const void *b, int col)
{
	const struct call_sum *x = a, *y = b;

	if (col == COL_CALL)
		return strcmp(x->name, y->name);
	return larger_first(value_of(x, col), value_of(y, col));
}

static int calls_by_name(const void *a, const void *b)
{
	return compare_calls(a, b, COL_CALL);
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
	struct row_order order = { .compare = compare_calls, .tie = calls_by_name };
	struct call_sum sum[STAT_CALLS];
	uint8_t chosen[TABLE_COLUMNS];
	size_t n = 0, ncols;
	struct table *t;
	char buf[32];
	int rc;

	ncols = columns_choose(r, cols, COLS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, cols, COLS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	for (size_t i = 0; i < l->n; i++)
		for (size_t c = 0; c < STAT_CALLS; c++)
			if (l->proc[i].call[c][0] && (l->proc[i].calls[c][0] || l->proc[i].calls[c][1]))
				add_call(sum, &n, l->proc[i].call[c], l->proc[i].calls[c]);
	if (order.col < 0)
		order.col = COL_ALL;
	rows_sort(sum, n, sizeof(*sum), &order);
	if (r->json)
		return json_calls(r, sum, n);
	t = table_new(cols, chosen, ncols);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < ncols; k++) {
			snprintf(buf, sizeof(buf), "%llu", (unsigned long long)value_of(&sum[i], chosen[k]));
			table_cell(t, TINT_OFF, chosen[k] == COL_CALL ? sum[i].name : buf);
		}
	table_print(r, t, stdout);
	table_free(t);
	return EXIT_OK;
}
