/*
 * rdmastat_calls.c - rdmastat calls: how often each libc call was made on a connection, summed over processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdmastat.h"
#include "rdmastat_json.h"

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

static int most_calls(const void *a, const void *b)
{
	const struct call_sum *x = a, *y = b;
	uint64_t m = sat_add(x->tcp, x->fast), n = sat_add(y->tcp, y->fast);

	return m != n ? (m < n) - (m > n) : strcmp(x->name, y->name);
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
	struct call_sum sum[STAT_CALLS];
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		for (size_t c = 0; c < STAT_CALLS; c++)
			if (l->proc[i].call[c][0] && (l->proc[i].calls[c][0] || l->proc[i].calls[c][1]))
				add_call(sum, &n, l->proc[i].call[c], l->proc[i].calls[c]);
	qsort(sum, n, sizeof(*sum), most_calls);
	if (r->json)
		return json_calls(r, sum, n);
	printf("%-20s %20s %20s\n", "CALL", "ON-TCP", "ON-FAST-PATH");
	for (size_t i = 0; i < n; i++)
		printf("%-20s %20llu %20llu\n", sum[i].name, (unsigned long long)sum[i].tcp, (unsigned long long)sum[i].fast);
	return EXIT_OK;
}
