/*
 * rdmastat_link.c - `rdmastat link`: pairs of processes and what runs between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/words.h"
#include "ground/rdmastat_json.h"
#include "ground/rdmastat_table.h"

#define ROW const struct link_row *w = row

NUMBER(pid, w->a->pid)
NUMBER(peer_pid, w->b ? w->b->pid : 0)
NUMBER(conns, w->conns)
NUMBER(fast, w->fast)
#define PATH(NAME, name, far, unasked, doc) NUMBER(name, w->bytes[PATH_##NAME])
#include "policy/path.def"
#undef PATH
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
#define PATH(NAME, name, far, unasked, doc) \
	{ #name, #NAME, false, PATH_##NAME != PATH_TCP && (far) ? 5 : 4, 7, false, \
	  "bytes by " doc ", of the live connections", .bytes = name },
#include "policy/path.def"
#undef PATH
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
	snprintf(text, sizeof(text), "%llu queue pair%s by RDMA: rdmastat qp shows %s.", n,
		 plural(n), n == 1 ? "it" : "them");
	if (n && r->width)
		print_wrapped(stdout, "", 0, text, r->width);
}

struct made { uint64_t links, lost, paths_lost, refused, bad_peer, errors[REASON_COUNT]; };

static void count_made(const struct request *r, const struct stat_list *l, struct made *m)
{
	memset(m, 0, sizeof(*m));
	for (size_t i = 0; i < l->n; i++) {
		const struct stat_proc *p = &l->proc[i];

		if (!wanted(r, p))
			continue;
		m->links = sat_add(m->links, p->counter[STAT_links]);
		m->lost = sat_add(m->lost, p->counter[STAT_links_lost]);
		m->paths_lost = sat_add(m->paths_lost, p->counter[STAT_paths_lost]);
		m->refused = sat_add(m->refused, p->counter[STAT_refused]);
		m->bad_peer = sat_add(m->bad_peer, p->counter[STAT_bad_peer]);
		for (unsigned k = 0; k < REASON_COUNT && p->link_errors; k++)
			m->errors[k] = sat_add(m->errors[k], p->link_errors[k]);
	}
}

/* What came to nothing, a line for each kind. */
static void tell_of_errors(const struct request *r, const struct made *m)
{
	char head[128], text[160];
	bool begun = false;

	snprintf(text, sizeof(text), "%llu link%s made, %llu ended, %llu by RDMA died; "
		 "%llu request%s of others refused, %llu dropped for breaking the protocol.",
		 (unsigned long long)m->links,
		 plural(m->links), (unsigned long long)m->lost, (unsigned long long)m->paths_lost,
		 (unsigned long long)m->refused, plural(m->refused),
		 (unsigned long long)m->bad_peer);
	if (r->width)
		print_wrapped(stdout, "", 0, text, r->width);
	for (unsigned k = 0; k < REASON_COUNT; k++) {
		if (!m->errors[k])
			continue;
		if (!begun)
			print_wrapped(stdout, "", 0, "Not made, or not found to be of use (times):",
				      r->width);
		begun = true;
		snprintf(head, sizeof(head), "%8llu %s: ", (unsigned long long)m->errors[k],
			 reason_name(k));
		print_wrapped(stdout, head, 9, reason_text(k), r->width);
		print_wrapped(stdout, "      -> ", 9, remedy_text(k), r->width);
	}
}

static void json_made(struct json_rows *w, const struct made *m)
{
	json_rows_value(w, "links_made", json_num(m->links));
	json_rows_value(w, "links_ended", json_num(m->lost));
	json_rows_value(w, "paths_lost", json_num(m->paths_lost));
	json_rows_value(w, "refused", json_num(m->refused));
	json_rows_value(w, "bad_peer", json_num(m->bad_peer));
	json_rows_begin(w, "errors");
	for (unsigned k = 0; k < REASON_COUNT; k++) {
		json_object *o;

		if (!m->errors[k])
			continue;
		o = json_object_new_object();
		json_add(o, "reason", json_str(reason_name(k)));
		json_add(o, "times", json_num(m->errors[k]));
		json_add(o, "text", json_str(reason_text(k)));
		json_add(o, "remedy", json_str(reason_remedy(k)));
		json_rows_add(w, o);
	}
	json_rows_end(w);
}

static void json_all(const struct request *r, const struct link_row *row, size_t n,
		     const struct made *m)
{
	struct json_rows w = { stdout, r->watch, false, false };

	json_links(&w, row, n);
	json_made(&w, m);
	json_rows_done(&w);
}

int show_links(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .cols = cols, .tie = by_pair };
	uint8_t chosen[TABLE_COLUMNS];
	struct link_row *row;
	struct made made;
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
	count_made(r, l, &made);
	if (r->json) {
		json_all(r, row, n, &made);
	} else {
		t = table_new(cols, chosen, ncols);
		for (i = 0; i < n; i++)
			table_row(t, &row[i]);
		table_print(r, t, stdout);
		tell_of_queue_pairs(r, l);
		tell_of_errors(r, &made);
		table_free(t);
	}
	free(row);
	return EXIT_OK;
}
