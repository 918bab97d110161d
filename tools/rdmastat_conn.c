/*
 * rdmastat_conn.c - `rdmastat conn`: connections, filtered and sorted; `rdmastat link`: pairs of processes; which two rows
 * are the ends of one connection.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../policy/words.h"
#include "rdmastat_filter.h"
#include "rdmastat_json.h"
#include "rdmastat_table.h"

enum {
	COL_PID, COL_PROGRAM, COL_FD, COL_LOCAL, COL_PEER, COL_ROLE, COL_TX, COL_RX, COL_TCP, COL_SHM, COL_RDMA, COL_CUTS, COL_REWINDS,
	COL_REASON, COL_UID, COL_SENT, COL_RECEIVED, COL_BYTES, COL_HIT, COL_RULE, COL_REMEDY, COLS
};
static const struct column cols[COLS] = {
	[COL_PID]      = { "pid", "PID", false, 0, 8, false, "process" },
	[COL_PROGRAM]  = { "program", "PROGRAM", true, 5, 16, false, "its name" },
	[COL_FD]       = { "fd", "FD", false, 0, 5, false, "descriptor in it" },
	[COL_LOCAL]    = { "local", "LOCAL", true, 6, 22, false, "this end" },
	[COL_PEER]     = { "peer", "PEER", true, 3, 22, false, "the other end" },
	[COL_ROLE]     = { "role", "ROLE", true, 12, 7, false, "client: it connected; server: it accepted" },
	[COL_TX]       = { "tx", "TX", true, 1, 4, false, "path of what it sends, now" },
	[COL_RX]       = { "rx", "RX", true, 1, 4, false, "path of what it receives, now" },
	[COL_TCP]      = { "tcp", "TCP", false, 8, 7, false, "bytes by kernel TCP, both directions" },
	[COL_SHM]      = { "shm", "SHM", false, 7, 7, false, "bytes by shared memory" },
	[COL_RDMA]     = { "rdma", "RDMA", false, 11, 7, false, "bytes by RDMA" },
	[COL_CUTS]     = { "cuts", "CUTS", false, 10, 6, false, "times that a direction was cut over" },
	[COL_REWINDS]  = { "rewinds", "REWINDS", false, 10, 7, false, "times that a direction went back to TCP" },
	[COL_REASON]   = { "reason", "REASON", true, 2, 6, false, "why it is on TCP; - if it is not" },
	[COL_UID]      = { "uid", "UID", false, 12, 0, true, "user" },
	[COL_SENT]     = { "sent", "SENT", false, 12, 0, true, "bytes sent, all paths" },
	[COL_RECEIVED] = { "received", "RECEIVED", false, 12, 0, true, "bytes received, all paths" },
	[COL_BYTES]    = { "bytes", "BYTES", false, 12, 0, true, "bytes in both directions, all paths" },
	[COL_HIT]      = { "hit", "HIT", false, 12, 0, true, "share of the bytes that left TCP" },
	[COL_RULE]     = { "rule", "RULE", true, 12, 0, true, "line of the policy file that decided; N:LINE in the Nth that it includes; built-in if none" },
	[COL_REMEDY]   = { "remedy", "REMEDY", true, 12, 0, true, "what to do about the reason" },
};

/* ---- cells ---- */

static uint64_t sum(const uint64_t *b)
{
	uint64_t s = 0;
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		s = sat_add(s, b[i]);
	return s;
}

static void both(const struct stat_conn *c, uint64_t *out)
{
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		out[i] = sat_add(c->tx_bytes[i], c->rx_bytes[i]);
}

static uint64_t value_of(const struct conn_ref *ref, int col)
{
	const struct stat_conn *c = ref->c;
	uint64_t b[PATH_KINDS];

	both(c, b);
	switch (col) {
	case COL_PID:	   return ref->p->pid;
	case COL_FD:	   return c->fd;
	case COL_ROLE:	   return c->role;
	case COL_TX:	   return c->tx_path;
	case COL_RX:	   return c->rx_path;
	case COL_TCP:	   return b[PATH_TCP];
	case COL_SHM:	   return b[PATH_SHM];
	case COL_RDMA:	   return b[PATH_RDMA];
	case COL_CUTS:	   return c->cuts;
	case COL_REWINDS:  return c->rewinds;
	case COL_UID:	   return ref->p->uid;
	case COL_SENT:	   return sum(c->tx_bytes);
	case COL_RECEIVED: return sum(c->rx_bytes);
	case COL_BYTES:	   return sum(b);
	case COL_HIT:	   return (uint64_t)((hit_of(b) + 1) * 1e6);
	case COL_RULE:	   return c->rule_at;
	default:	   return 0;
	}
}

static const char *text_of(const struct conn_ref *ref, int col, char *buf, size_t len)
{
	const struct stat_conn *c = ref->c;
	uint64_t b[PATH_KINDS];

	switch (col) {
	case COL_PROGRAM: return ref->p->program;
	case COL_LOCAL:	  return end_text(c->family, c->laddr, c->lport, buf, len);
	case COL_PEER:	  return end_text(c->family, c->paddr, c->pport, buf, len);
	case COL_ROLE:	  return role_name(c->role);
	case COL_TX:	  return path_name(c->tx_path);
	case COL_RX:	  return path_name(c->rx_path);
	case COL_REASON:  return reason_name(c->reason);
	case COL_REMEDY:  return reason_remedy(c->reason);
	case COL_TCP:
	case COL_SHM:
	case COL_RDMA:
	case COL_SENT:
	case COL_RECEIVED:
	case COL_BYTES:	  return human(value_of(ref, col), buf, len);
	case COL_HIT:
		both(c, b);
		return percent(hit_of(b), buf, len);
	case COL_RULE:
		if (!c->rule_at)
			return "built-in";
		if (policy_at_file(c->rule_at)) {
			snprintf(buf, len, "%u:%d", policy_at_file(c->rule_at), policy_at_line(c->rule_at));
			return buf;
		}
	}
	snprintf(buf, len, "%llu", (unsigned long long)value_of(ref, col));
	return buf;
}

static enum tint tint_of(const struct conn_ref *ref, int col)
{
	enum path_kind p = col == COL_TX ? ref->c->tx_path : ref->c->rx_path;

	if (col == COL_TX || col == COL_RX)
		return p == PATH_TCP ? TINT_WARN : TINT_GOOD;
	return TINT_OFF;
}

/* ---- selection ---- */

static int compare_conns(const void *a, const void *b, int col)
{
	const struct conn_ref *x = a, *y = b;
	char s[64], t[64];

	switch (col) {
	case COL_PROGRAM:
	case COL_LOCAL:
	case COL_PEER:
	case COL_REASON:
	case COL_REMEDY:
		return strcmp(text_of(x, col, s, sizeof(s)), text_of(y, col, t, sizeof(t)));
	default:
		return larger_first(value_of(x, col), value_of(y, col));
	}
}

static int conns_in_list(const void *a, const void *b)
{
	const struct conn_ref *x = a, *y = b;

	if (x->p != y->p)
		return x->p < y->p ? -1 : 1;
	if (x->c->fd != y->c->fd)	/* the file has them in the order in which their places became free */
		return x->c->fd < y->c->fd ? -1 : 1;
	return (x->c > y->c) - (x->c < y->c);
}

struct conn_ref *conn_select(const struct request *r, const struct stat_list *l, size_t *n, int *rc)
{
	struct filter *f = filter_parse(&r->words);
	struct row_order order = { .compare = compare_conns, .tie = conns_in_list };
	struct conn_ref *ref = NULL;
	size_t i, k, all = 0;

	*n = 0;
	*rc = EXIT_USAGE;
	if (!f)
		return NULL;
	order.col = columns_sort(r, cols, COLS, &order.reverse);
	if (order.col == -2)
		goto out;
	for (i = 0; i < l->n; i++)
		all += l->proc[i].dead ? 0 : l->proc[i].nconns;
	ref = malloc((all + 1) * sizeof(*ref));
	*rc = ref ? EXIT_OK : EXIT_FAILED;
	if (!ref) {
		complain("out of memory");
		goto out;
	}
	for (i = 0; i < l->n; i++)
		for (k = 0; !l->proc[i].dead && k < l->proc[i].nconns; k++) {
			ref[*n] = (struct conn_ref){ &l->proc[i], &l->proc[i].conns[k] };
			if (filter_match(f, &ref[*n]))
				++*n;
		}
	if (order.col >= 0)
		rows_sort(ref, *n, sizeof(*ref), &order);
	else if (*n)
		qsort(ref, *n, sizeof(*ref), conns_in_list);
out:
	filter_free(f);
	return ref;
}

int show_connections(const struct request *r, const struct stat_list *l)
{
	uint8_t chosen[TABLE_COLUMNS];
	struct conn_ref *ref;
	struct table *t;
	char buf[64];
	size_t n, i, k, ncols = 0;
	int rc;

	if (!r->json) {
		ncols = columns_choose(r, cols, COLS, chosen, &rc);
		if (!ncols)
			return rc;
	}
	ref = conn_select(r, l, &n, &rc);
	if (!ref)
		return rc;
	if (r->json) {
		json_connections(r, ref, n);
		free(ref);
		return EXIT_OK;
	}
	t = table_new(cols, chosen, ncols);
	for (i = 0; i < n; i++)
		for (k = 0; k < ncols; k++)
			table_cell(t, tint_of(&ref[i], chosen[k]), text_of(&ref[i], chosen[k], buf, sizeof(buf)));
	table_print(r, t, stdout);
	if (!n && r->width)	/* for a person; a program has its header line */
		print_wrapped(stdout, "", 0, r->words.argc ? "No live connection matches the filter." : "No live connection under the shim.", r->width);
	table_free(t);
	free(ref);
	return EXIT_OK;
}

/* ---- both ends of one connection ---- */

struct pairs {
	struct conn_ref *ref;
	size_t n;
};

static int compare_ends(const struct stat_conn *x, const struct stat_conn *y)
{
	int d;

	if (x->family != y->family)
		return x->family < y->family ? -1 : 1;
	if (x->lport != y->lport)
		return x->lport < y->lport ? -1 : 1;
	if (x->pport != y->pport)
		return x->pport < y->pport ? -1 : 1;
	d = memcmp(x->laddr, y->laddr, 16);
	return d ? d : memcmp(x->paddr, y->paddr, 16);
}

static int by_ends(const void *a, const void *b)
{
	return compare_ends(((const struct conn_ref *)a)->c, ((const struct conn_ref *)b)->c);
}

/* An IPv4 address in IPv6 clothes is the other side's IPv4 address. */
static void unmap(struct stat_conn *c)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

	if (c->family != AF_INET6 || memcmp(c->laddr, mapped, 12) || memcmp(c->paddr, mapped, 12))
		return;
	c->family = AF_INET;
	memmove(c->laddr, c->laddr + 12, 4);
	memset(c->laddr + 4, 0, 12);
	memmove(c->paddr, c->paddr + 12, 4);
	memset(c->paddr + 4, 0, 12);
}

struct pairs *pairs_make(const struct stat_list *l)
{
	struct pairs *ps = calloc(1, sizeof(*ps));
	size_t i, k, all = 0;

	for (i = 0; i < l->n; i++)
		all += l->proc[i].nconns;
	if (!ps || !(ps->ref = malloc((all + 1) * sizeof(*ps->ref)))) {
		free(ps);
		return NULL;
	}
	for (i = 0; i < l->n; i++)
		for (k = 0; !l->proc[i].dead && k < l->proc[i].nconns; k++) {
			unmap(&l->proc[i].conns[k]);
			if (l->proc[i].conns[k].family)
				ps->ref[ps->n++] = (struct conn_ref){ &l->proc[i], &l->proc[i].conns[k] };
		}
	qsort(ps->ref, ps->n, sizeof(*ps->ref), by_ends);
	return ps;
}

bool pairs_find(const struct pairs *ps, const struct stat_conn *c, struct conn_ref *ret)
{
	struct stat_conn turned = { .family = c->family, .lport = c->pport, .pport = c->lport };
	struct conn_ref key = { NULL, &turned }, *hit;

	memcpy(turned.laddr, c->paddr, 16);
	memcpy(turned.paddr, c->laddr, 16);
	hit = ps && ps->n && c->family ? bsearch(&key, ps->ref, ps->n, sizeof(key), by_ends) : NULL;
	if (hit)
		*ret = *hit;
	return hit != NULL;
}

void pairs_free(struct pairs *ps)
{
	if (ps)
		free(ps->ref);
	free(ps);
}

/* ---- links ---- */

enum { LINK_PID, LINK_PROGRAM, LINK_PEER, LINK_PEER_PROGRAM, LINK_CONNS, LINK_FAST, LINK_TCP, LINK_SHM, LINK_RDMA, LINK_HIT, LINKS };
static const struct column link_cols[LINKS] = {
	[LINK_PID]	    = { "pid", "PID", false, 0, 0, false, "process; of a pair the lower number" },
	[LINK_PROGRAM]	    = { "program", "PROGRAM", true, 2, 0, false, "its name" },
	[LINK_PEER]	    = { "peer", "PEER", true, 0, 0, false, "process at the other end; - if it is not in the list" },
	[LINK_PEER_PROGRAM] = { "peer-program", "PROGRAM", true, 2, 0, false, "its name" },
	[LINK_CONNS]	    = { "conns", "CONNS", false, 1, 0, false, "live connections between the two" },
	[LINK_FAST]	    = { "fast", "FAST", false, 3, 0, false, "of these, on a fast path now, in one direction at least" },
	[LINK_TCP]	    = { "tcp", "TCP", false, 4, 7, false, "bytes by kernel TCP, both directions, of the live connections" },
	[LINK_SHM]	    = { "shm", "SHM", false, 4, 7, false, "bytes by shared memory" },
	[LINK_RDMA]	    = { "rdma", "RDMA", false, 5, 7, false, "bytes by RDMA" },
	[LINK_HIT]	    = { "hit", "HIT", false, 0, 6, false, "share of the bytes that left TCP" },
};

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

/* One row per connection that this end stands for: of two ends in the list only the first counts. */
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
	both(me->c, ret->bytes);
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

static void link_line(struct table *t, const struct link_row *w, const uint8_t *chosen, size_t n)
{
	char buf[64];
	size_t i;

	for (i = 0; i < n; i++) {
		const char *s = buf;

		switch (chosen[i]) {
		case LINK_PID:		snprintf(buf, sizeof(buf), "%u", w->a->pid); break;
		case LINK_PROGRAM:	s = w->a->program; break;
		case LINK_PEER:		snprintf(buf, sizeof(buf), w->b ? "%u" : "-", w->b ? w->b->pid : 0); break;
		case LINK_PEER_PROGRAM: s = w->b ? w->b->program : "-"; break;
		case LINK_CONNS:	snprintf(buf, sizeof(buf), "%llu", (unsigned long long)w->conns); break;
		case LINK_FAST:		snprintf(buf, sizeof(buf), "%llu", (unsigned long long)w->fast); break;
		case LINK_HIT:		s = percent(hit_of(w->bytes), buf, sizeof(buf)); break;
		default:		s = human(w->bytes[chosen[i] - LINK_TCP], buf, sizeof(buf));
		}
		table_cell(t, chosen[i] == LINK_HIT ? tint_of_share(hit_of(w->bytes)) : TINT_OFF, s);
	}
}

/* -p and -P name either end. */
static bool wanted(const struct request *r, const struct stat_proc *p)
{
	return p && (!r->pid || p->pid == (uint32_t)r->pid) && (!r->program || glob_match(r->program, strlen(r->program), p->program));
}

static uint64_t link_value(const struct link_row *w, int col)
{
	switch (col) {
	case LINK_PID:	 return w->a->pid;
	case LINK_PEER:	 return w->b ? w->b->pid : 0;
	case LINK_CONNS: return w->conns;
	case LINK_FAST:	 return w->fast;
	case LINK_HIT:	 return (uint64_t)((hit_of(w->bytes) + 1) * 1e6);
	default:	 return w->bytes[col - LINK_TCP];
	}
}

static int compare_links(const void *a, const void *b, int col)
{
	const struct link_row *x = a, *y = b;

	if (col == LINK_PROGRAM)
		return strcmp(x->a->program, y->a->program);
	if (col == LINK_PEER_PROGRAM)
		return strcmp(x->b ? x->b->program : "-", y->b ? y->b->program : "-");
	return larger_first(link_value(x, col), link_value(y, col));
}

/* For a person: what a pair of processes does not show. */
static void tell_of_queue_pairs(const struct request *r, const struct stat_list *l)
{
	unsigned long long n = 0;
	char text[96];

	for (size_t i = 0; i < l->n; i++)
		n += wanted(r, &l->proc[i]) && !l->proc[i].dead ? l->proc[i].nqps : 0;
	snprintf(text, sizeof(text), "%llu queue pair%s by RDMA: rdmastat qp shows %s.", n, plural(n), n == 1 ? "it" : "them");
	if (n && r->width)
		print_wrapped(stdout, "", 0, text, r->width);
}

int show_links(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .compare = compare_links, .tie = by_pair };
	uint8_t chosen[TABLE_COLUMNS];
	struct link_row *row;
	struct table *t;
	size_t n, ncols, i, k;
	int rc;

	ncols = columns_choose(r, link_cols, LINKS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, link_cols, LINKS, &order.reverse);
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
		t = table_new(link_cols, chosen, ncols);
		for (i = 0; i < n; i++)
			link_line(t, &row[i], chosen, ncols);
		table_print(r, t, stdout);
		tell_of_queue_pairs(r, l);
		table_free(t);
	}
	free(row);
	return EXIT_OK;
}
