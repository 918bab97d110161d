/*
 * rdmastat_link.c - `rdmastat link`: pairs of processes and what runs between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../policy/words.h"
#include "rdmastat_json.h"
#include "rdmastat_table.h"

#define ROW const struct link_row *w = row

NUMBER(pid, w->a->pid)
NUMBER(peer_pid, w->b ? w->b->pid : 0)
NUMBER(conns, w->conns)
NUMBER(fast, w->fast)
NUMBER(tcp, w->bytes[PATH_TCP])
NUMBER(shm, w->bytes[PATH_SHM])
NUMBER(rdma, w->bytes[PATH_RDMA])
TEXT(program, w->a->program)
TEXT(peer_program, w->b ? w->b->program : "-")

SHARE(hit, hit_of(w->bytes))
TINT(hit_tint, tint_of_share(hit_of(w->bytes)))

static const char *peer(const void *row, char *buf, size_t len)
{
	snprintf(buf, len, "%llu", (unsigned long long)peer_pid(row));
	return peer_pid(row) ? buf : "-";
}

static const struct column cols[] = {
	{ "pid", "PID", false, 0, 0, false, "process; of a pair the lower number", .count = pid },
	{ "program", "PROGRAM", true, 2, 0, false, "its name", .text = program },
	{ "peer", "PEER", true, 0, 0, false, "process at the other end; - if it is not in the list",
	  .text = peer, .count = peer_pid },
	{ "peer-program", "PROGRAM", true, 2, 0, false, "its name", .text = peer_program },
	{ "conns", "CONNS", false, 1, 0, false, "live connections between the two",
	  .count = conns },
	{ "fast", "FAST", false, 3, 0, false,
	  "of these, on a fast path now, in one direction at least", .count = fast },
	{ "tcp", "TCP", false, 4, 7, false,
	  "bytes by kernel TCP, both directions, of the live connections", .bytes = tcp },
	{ "shm", "SHM", false, 4, 7, false, "bytes by shared memory", .bytes = shm },
	{ "rdma", "RDMA", false, 5, 7, false, "bytes by RDMA", .bytes = rdma },
	{ "hit", "HIT", false, 0, 6, false, "share of the bytes that left TCP",
	  .share = hit, .tint = hit_tint },
};
#define COLS (sizeof(cols) / sizeof(cols[0]))

static int by_pair(const void *a, const void *b)
{
	const struct link_row *x = a, *y = b;

	if (x->a != y->a)
		return x->a < y->a ? -1 : 1;
	return (x->b > y->b) - (x->b < y->b);
}

static void add_row(struct link_row *to, const struct link_row *from)
{
	int i;

	to->conns += from->conns;
	to->fast += from->fast;
	for (i = 0; i < PATH_KINDS; i++)
		to->bytes[i] = sat_add(to->bytes[i], from->bytes[i]);
}

/* One row per connection that this end stands for: of two ends in the list the first counts. */
static bool row_of(const struct pairs *ps, const struct conn_ref *me, struct link_row *ret)
{
	struct conn_ref other = { 0 };

	memset(ret, 0, sizeof(*ret));
	if (pairs_find(ps, me->c, &other)) {
		if (me->p > other.p || (me->p == other.p && me->c > other.c))
			return false;
		ret->b = other.p;
	}
	ret->a = me->p;
	ret->conns = 1;
	ret->fast = me->c->tx_path != PATH_TCP || me->c->rx_path != PATH_TCP;
	for (int i = 0; i < PATH_KINDS; i++)
		ret->bytes[i] = sat_add(me->c->tx_bytes[i], me->c->rx_bytes[i]);
	return true;
}

struct link_row *links_make(const struct stat_list *l, size_t *n)
{
	struct pairs *ps = pairs_make(l);
	struct link_row *row = NULL;
	size_t i, k, all = 0, to;

	*n = 0;
	for (i = 0; i < l->n; i++)
		all += l->proc[i].nconns;
	if (ps)
		row = malloc((all + 1) * sizeof(*row));
	for (i = 0, all = 0; row && i < l->n; i++)
		for (k = 0; !l->proc[i].dead && k < l->proc[i].nconns; k++) {
			struct conn_ref me = { &l->proc[i], &l->proc[i].conns[k] };

			all += row_of(ps, &me, &row[all]);
		}
	pairs_free(ps);
	if (!row || !all)
		return row;
	qsort(row, all, sizeof(*row), by_pair);
	for (i = 1, to = 0; i < all; i++) {
		if (by_pair(&row[to], &row[i]) == 0)
			add_row(&row[to], &row[i]);
		else
			row[++to] = row[i];
	}
	*n = to + 1;
	return row;
}

/* -p and -P name either end. */
static bool wanted(const struct request *r, const struct stat_proc *p)
{
	return p && (!r->pid || p->pid == (uint32_t)r->pid) &&
	       (!r->program || glob_match(r->program, strlen(r->program), p->program));
}

/* For a person: what a pair of processes does not show. */
static void tell_of_queue_pairs(const struct request *r, const struct stat_list *l)
{
	unsigned long long n = 0;
	char text[96];

	for (size_t i = 0; i < l->n; i++)
		n += wanted(r, &l->proc[i]) && !l->proc[i].dead ? l->proc[i].nqps : 0;
	snprintf(text, sizeof(text), "%llu queue pair%s by RDMA: rdmastat qp shows %s.", n, plural(n),
		 n == 1 ? "it" : "them");
	if (n && r->width)
		print_wrapped(stdout, "", 0, text, r->width);
}

int show_links(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .cols = cols, .tie = by_pair };
	uint8_t chosen[TABLE_COLUMNS];
	struct link_row *row;
	struct table *t;
	size_t n, ncols, i, k;
	int rc;

	ncols = columns_choose(r, cols, COLS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, cols, COLS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	row = links_make(l, &n);
	if (!row) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	for (i = 0, k = 0; i < n; i++)
		if (wanted(r, row[i].a) || wanted(r, row[i].b))
			row[k++] = row[i];
	n = k;
	rows_sort(row, n, sizeof(*row), &order);
	if (r->json) {
		json_links(r, row, n);
	} else {
		t = table_new(cols, chosen, ncols);
		for (i = 0; i < n; i++)
			table_row(t, &row[i]);
		table_print(r, t, stdout);
		tell_of_queue_pairs(r, l);
		table_free(t);
	}
	free(row);
	return EXIT_OK;
}
