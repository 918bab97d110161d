/*
 * rdmastat_qp.c - `rdmastat qp`: the queue pairs by which connections of processes under the
 * library go by RDMA.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "ground/rdmastat_json.h"
#include "ground/rdmastat_table.h"

struct qp_ref {
	const struct stat_proc *p;
	const struct stat_qp *q;
};

static const char *const phase_names[STAT_LINK_PHASES] = { "connecting", "up", "lost" };
static const char *const kind_names[STAT_LINK_KINDS] = { "-", "infiniband", "roce", "iwarp" };

/* NULL: there is none. buf of INET6_ADDRSTRLEN. */
static const char *gid_text(const uint8_t *gid, char *buf)
{
	static const uint8_t none[16];

	return memcmp(gid, none, 16) ? inet_ntop(AF_INET6, gid, buf, INET6_ADDRSTRLEN) : NULL;
}

/* What names an end: its GID, else its address. */
static const char *end_name(const struct stat_qp *q, const uint8_t *gid, const uint8_t *addr,
			    char *buf)
{
	const char *s = gid_text(gid, buf);

	if (!s && q->family)
		s = inet_ntop(q->family, addr, buf, INET6_ADDRSTRLEN);
	return s ? s : "-";
}

#define ROW const struct qp_ref *ref = row; const struct stat_qp *q = ref->q; (void)q
/* A number that is not known (yet) is 0. */
#define KNOWN(name, what) NUMBER(name##_number, what) TEXT(name, known(what, buf, len))

static const char *known(uint64_t v, char *buf, size_t len)
{
	snprintf(buf, len, "%llu", (unsigned long long)v);
	return v ? buf : "-";
}

NUMBER(pid, ref->p->pid)
NUMBER(streams, q->streams)
NUMBER(rtt_number, q->rtt)
KNOWN(port, q->port)
KNOWN(qpn, q->qpn)
KNOWN(peer_qpn, q->peer_qpn)
KNOWN(mtu, q->mtu)
TEXT(program, ref->p->program)
TEXT(device, q->device[0] ? q->device : "-")
TEXT(gid, end_name(q, q->lgid, q->laddr, buf))
TEXT(peer_gid, end_name(q, q->pgid, q->paddr, buf))
TEXT(state, phase_names[q->phase])
TEXT(kind, kind_names[q->kind])
TEXT(address, end_text(q->family, q->laddr, q->lport, buf, len))
TEXT(peer_address, end_text(q->family, q->paddr, q->pport, buf, len))

static const char *rtt(const void *row, char *buf, size_t len)
{
	ROW;
	snprintf(buf, len, "%.1fus", q->rtt / 1000.0);
	return q->rtt ? buf : "-";
}

TINT(state_tint, q->phase == STAT_LINK_UP ? TINT_GOOD :
		 q->phase == STAT_LINK_LOST ? TINT_BAD : TINT_WARN)

static const struct column qp_cols[] = {
	{ "pid", "PID", false, 0, 0, false, "process", .count = pid },
	{ "program", "PROGRAM", true, 3, 0, false, "its name", .text = program },
	{ "device", "DEVICE", true, 0, 0, false, "RDMA device", .text = device },
	{ "port", "PORT", false, 4, 0, false, "its port", .text = port, .count = port_number },
	{ "qpn", "QPN", false, 0, 0, false, "number of the queue pair here",
	  .text = qpn, .count = qpn_number },
	{ "peer-qpn", "PEER-QPN", false, 0, 0, false,
	  "number at the other end; - with iWARP, which does not tell",
	  .text = peer_qpn, .count = peer_qpn_number },
	{ "gid", "GID", true, 5, 0, false, "GID here; with iWARP, which has none, the address",
	  .text = gid },
	{ "peer-gid", "PEER-GID", true, 5, 0, false, "GID at the other end, in the same way",
	  .text = peer_gid },
	{ "mtu", "MTU", false, 2, 0, false, "most bytes in a packet (path MTU)",
	  .text = mtu, .count = mtu_number },
	{ "rtt", "RTT", false, 1, 0, false,
	  "shortest of the last times from posting a small record "
	  "to its completion's being seen; - if none was taken yet",
	  .text = rtt, .count = rtt_number },
	{ "streams", "STREAMS", false, 0, 0, false, "connections that are on it now",
	  .count = streams },
	{ "state", "STATE", true, 0, 0, false,
	  "connecting, up, or lost: it died, and its connections go back to TCP",
	  .text = state, .tint = state_tint },
	{ "kind", "KIND", true, 0, 0, true, "infiniband, roce or iwarp", .text = kind },
	{ "address", "ADDRESS", true, 0, 0, true, "address and port of librdmacm's connection here",
	  .text = address },
	{ "peer-address", "PEER-ADDRESS", true, 0, 0, true, "at the other end",
	  .text = peer_address },
};
#define QPS (sizeof(qp_cols) / sizeof(qp_cols[0]))

static int qps_in_list(const void *a, const void *b)
{
	const struct qp_ref *x = a, *y = b;

	if (x->p != y->p)
		return x->p < y->p ? -1 : 1;
	return (x->q > y->q) - (x->q < y->q);
}

static struct qp_ref *all_qps(const struct stat_list *l, size_t *n)
{
	struct qp_ref *ref;
	size_t all = 0;

	*n = 0;
	for (size_t i = 0; i < l->n; i++)
		all += l->proc[i].nqps;
	ref = malloc((all + 1) * sizeof(*ref));
	for (size_t i = 0; ref && i < l->n; i++)
		for (size_t k = 0; !l->proc[i].dead && k < l->proc[i].nqps; k++)
			ref[(*n)++] = (struct qp_ref){ &l->proc[i], &l->proc[i].qps[k] };
	return ref;
}

static json_object *num_or_null(uint64_t v) { return v ? json_num(v) : NULL; }
static json_object *str_or_null(const char *s)
{
	return s && *s && strcmp(s, "-") ? json_str(s) : NULL;
}

static json_object *json_qp(const struct qp_ref *ref)
{
	json_object *o = json_object_new_object();
	const struct stat_qp *q = ref->q;
	char buf[64];

	json_add(o, "pid", json_num(ref->p->pid));
	json_add(o, "program", json_str(ref->p->program));
	json_add(o, "state", json_str(phase_names[q->phase]));
	json_add(o, "device", str_or_null(q->device));
	json_add(o, "port", num_or_null(q->port));
	json_add(o, "kind", str_or_null(kind_names[q->kind]));
	json_add(o, "qpn", num_or_null(q->qpn));
	json_add(o, "peer_qpn", num_or_null(q->peer_qpn));
	json_add(o, "gid", str_or_null(gid_text(q->lgid, buf)));
	json_add(o, "peer_gid", str_or_null(gid_text(q->pgid, buf)));
	json_add(o, "address",
		 str_or_null(end_text(q->family, q->laddr, q->lport, buf, sizeof(buf))));
	json_add(o, "peer_address",
		 str_or_null(end_text(q->family, q->paddr, q->pport, buf, sizeof(buf))));
	json_add(o, "mtu", num_or_null(q->mtu));
	json_add(o, "rtt_ns", num_or_null(q->rtt));
	json_add(o, "streams", json_num(q->streams));
	return o;
}

static void json_qps(const struct request *r, const struct qp_ref *ref, size_t n)
{
	struct json_rows w = { stdout, r->watch, false, false };

	json_rows_begin(&w, "queue_pairs");
	for (size_t i = 0; i < n; i++)
		json_rows_add(&w, json_qp(&ref[i]));
	json_rows_end(&w);
	json_rows_done(&w);
}

int show_qps(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .cols = qp_cols, .tie = qps_in_list };
	uint8_t chosen[TABLE_COLUMNS];
	struct qp_ref *ref;
	struct table *t;
	size_t n, ncols;
	int rc;

	ncols = columns_choose(r, qp_cols, QPS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, qp_cols, QPS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	ref = all_qps(l, &n);
	if (!ref) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	rows_sort(ref, n, sizeof(*ref), &order);
	if (r->json) {
		json_qps(r, ref, n);
	} else {
		t = table_new(qp_cols, chosen, ncols);
		for (size_t i = 0; i < n; i++)
			table_row(t, &ref[i]);
		table_print(r, t, stdout);
		if (!n && r->width)	/* for a person; a program has its header line */
			print_wrapped(stdout, "", 0,
				      "No connection goes by RDMA. rdmastat dev shows the devices.",
				      r->width);
		table_free(t);
	}
	free(ref);
	return EXIT_OK;
}
