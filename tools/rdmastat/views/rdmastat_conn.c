/*
 * rdmastat_conn.c - `rdmastat conn`: connections, filtered and sorted; which two rows are the ends
 * of one connection.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/rdmastat_filter.h"
#include "ground/rdmastat_json.h"
#include "ground/rdmastat_now.h"
#include "ground/rdmastat_table.h"

/* ---- columns ---- */

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

static uint64_t by_path(const struct conn_ref *ref, enum path_kind p)
{
	return sat_add(ref->c->tx_bytes[p], ref->c->rx_bytes[p]);
}

#define ROW const struct conn_ref *ref = row

NUMBER(pid, ref->p->pid)
NUMBER(uid, ref->p->uid)
NUMBER(fd, ref->c->fd)
#define PATH(NAME, name, far, unasked, doc) NUMBER(name, by_path(ref, PATH_##NAME))
#include "policy/path.def"
#undef PATH
NUMBER(cuts, ref->c->cuts)
NUMBER(rewinds, ref->c->rewinds)
NUMBER(sent, sum(ref->c->tx_bytes))
NUMBER(received, sum(ref->c->rx_bytes))
NUMBER(bytes, sat_add(sum(ref->c->tx_bytes), sum(ref->c->rx_bytes)))
NUMBER(rule_at, ref->c->rule_at)
NUMBER(role_number, ref->c->role)
NUMBER(tx_number, ref->c->tx_path)
NUMBER(rx_number, ref->c->rx_path)
TEXT(program, ref->p->program)
TEXT(local, end_text(ref->c->family, ref->c->laddr, ref->c->lport, buf, len))
TEXT(peer, end_text(ref->c->family, ref->c->paddr, ref->c->pport, buf, len))
TEXT(role, role_name(ref->c->role))
TEXT(tx, path_name(ref->c->tx_path))
TEXT(rx, path_name(ref->c->rx_path))
TEXT(reason, reason_name(ref->c->reason))
TEXT(remedy, reason_remedy(ref->c->reason))
TEXT(unread, bytes_known(ref->c->unread, buf, len))
TEXT(to_read, bytes_known(ref->c->to_read, buf, len))
TEXT(rtt, time_known(ref->c->rtt, buf, len))
NUMBER(unread_number, ref->c->unread + 1)	/* not known: last */
NUMBER(to_read_number, ref->c->to_read + 1)
NUMBER(rtt_number, ref->c->rtt + 1)
NUMBER(ring, ref->c->ring)
NUMBER(fulls, ref->c->fulls)
NUMBER(overflows, ref->c->overflows)
SHARE(fill, ring_fill(ref->c))

static double hit(const void *row)
{
	uint64_t b[PATH_KINDS];

	both(((const struct conn_ref *)row)->c, b);
	return hit_of(b);
}

static const char *rule(const void *row, char *buf, size_t len)
{
	uint32_t at = ((const struct conn_ref *)row)->c->rule_at;

	if (!at)
		return "built-in";
	if (policy_at_file(at))
		snprintf(buf, len, "%u:%d", policy_at_file(at), policy_at_line(at));
	else
		snprintf(buf, len, "%u", at);
	return buf;
}

static enum tint of_path(enum path_kind p) { return p == PATH_TCP ? TINT_WARN : TINT_GOOD; }
TINT(tx_tint, of_path(ref->c->tx_path))
TINT(rx_tint, of_path(ref->c->rx_path))

static const struct column cols[] = {
	{ "pid", "PID", false, 0, 8, false, "process", .count = pid },
	{ "program", "PROGRAM", true, 5, 16, false, "its name", .text = program },
	{ "fd", "FD", false, 0, 5, false, "descriptor in it", .count = fd },
	{ "local", "LOCAL", true, 6, 22, false, "this end", .text = local },
	{ "peer", "PEER", true, 3, 22, false, "the other end", .text = peer },
	{ "role", "ROLE", true, 12, 7, false, "client: it connected; server: it accepted",
	  .text = role, .count = role_number },
	{ "tx", "TX", true, 1, 4, false, "path of what it sends, now",
	  .text = tx, .count = tx_number, .tint = tx_tint },
	{ "rx", "RX", true, 1, 4, false, "path of what it receives, now",
	  .text = rx, .count = rx_number, .tint = rx_tint },
#define PATH(NAME, name, far, unasked, doc) \
	{ #name, #NAME, false, PATH_##NAME == PATH_TCP ? 8 : (far) ? 11 : 7, 7, false, \
	  "bytes by " doc ", both directions", .bytes = name },
#include "policy/path.def"
#undef PATH
	{ "cuts", "CUTS", false, 10, 6, false, "times that a direction was cut over",
	  .count = cuts },
	{ "rewinds", "REWINDS", false, 10, 7, false, "times that a direction went back to TCP",
	  .count = rewinds },
	{ "reason", "REASON", true, 2, 6, false, "why it is on TCP; - if it is not",
	  .text = reason },
	{ "uid", "UID", false, 12, 0, true, "user", .count = uid },
	{ "sent", "SENT", false, 12, 0, true, "bytes sent, all paths", .bytes = sent },
	{ "received", "RECEIVED", false, 12, 0, true, "bytes received, all paths",
	  .bytes = received },
	{ "bytes", "BYTES", false, 12, 0, true, "bytes in both directions, all paths",
	  .bytes = bytes },
	{ "hit", "HIT", false, 12, 0, true, "share of the bytes that left TCP", .share = hit },
	{ "rule", "RULE", true, 12, 0, true, "line of the policy file that decided; "
	  "N:LINE in the Nth that it includes; built-in if none", .text = rule, .count = rule_at },
	{ "remedy", "REMEDY", true, 12, 0, true, "what to do about the reason", .text = remedy },
	{ "sendq", "SENDQ", false, 12, 0, true, "bytes that it has sent and the other end has not "
	  "read; on TCP, the kernel's", .text = unread, .count = unread_number },
	{ "recvq", "RECVQ", false, 12, 0, true, "bytes of the other end that it has not read",
	  .text = to_read, .count = to_read_number },
	{ "ring", "RING", false, 12, 0, true, "bytes of the ring that it sends by", .bytes = ring },
	{ "fill", "FILL", false, 12, 0, true, "how full that is", .share = fill },
	{ "full", "FULL", false, 12, 0, true, "times that a send found too little room in it",
	  .count = fulls },
	{ "slow", "SLOW", false, 12, 0, true,
	  "times that it went back to TCP since the reader was too slow", .count = overflows },
	{ "rtt", "RTT", false, 12, 0, true,
	  "round trip: of the queue pair, else the kernel's by TCP",
	  .text = rtt, .count = rtt_number },
};
#define COLS (sizeof(cols) / sizeof(cols[0]))

/* ---- selection ---- */

static int conns_in_list(const void *a, const void *b)
{
	const struct conn_ref *x = a, *y = b;

	if (x->p != y->p)
		return x->p < y->p ? -1 : 1;
	if (x->c->fd != y->c->fd)	/* the file has them in the order in which their places
					 * became free */
		return x->c->fd < y->c->fd ? -1 : 1;
	return (x->c > y->c) - (x->c < y->c);
}

struct conn_ref *conn_select(const struct request *r, const struct stat_list *l, size_t *n, int *rc)
{
	struct filter *f = filter_parse(&r->words);
	struct row_order order = { .cols = cols, .tie = conns_in_list };
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
	size_t n, i, ncols = 0;
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
		table_row(t, &ref[i]);
	table_print(r, t, stdout);
	if (!n && r->width)	/* for a person; a program has its header line */
		print_wrapped(stdout, "", 0,
			      r->words.argc ? "No live connection matches the filter."
					    : "No live connection under the library.",
			      r->width);
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
				ps->ref[ps->n++] = (struct conn_ref){ &l->proc[i],
					&l->proc[i].conns[k] };
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
