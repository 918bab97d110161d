/*
 * rdmastat_prom.c - `rdmastat prometheus`: the text exposition format, to stdout, to a file for
 * node_exporter's textfile collector, or to whoever asks over HTTP (rdmastat_http.c). What others
 * can read shows one's own processes only, unless the user wants it otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/rdmastat.h"
#include "commands/rdmastat_http.h"

static const char *const counter_docs[STAT_COUNTERS] = {
#define STAT(name, doc) doc,
#include "policy/stat.def"
#undef STAT
};

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP rdmashim_%s %s.\n# TYPE rdmashim_%s %s\n", name, help, name, type);
}

/* Names are printable ASCII by now; a quote and a backslash still need one. */
static void quoted(FILE *f, const char *s)
{
	for (; *s; s++)
		fprintf(f, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
}

static void labels(FILE *f, const struct stat_proc *p)
{
	fprintf(f, "{pid=\"%u\",uid=\"%u\",program=\"", p->pid, p->uid);
	quoted(f, p->program);
	putc('"', f);
}

static void bytes(FILE *f, const struct stat_list *l)
{
	size_t i;
	int k;

	head(f, "bytes_total", "counter", "Bytes of application data by direction and path");
	for (i = 0; i < l->n; i++)
		for (k = 0; k < 2 * PATH_KINDS; k++) {
			const struct stat_proc *p = &l->proc[i];

			fputs("rdmashim_bytes_total", f);
			labels(f, p);
			fprintf(f, ",direction=\"%s\",path=\"%s\"} %llu\n",
				k < PATH_KINDS ? "tx" : "rx",
				path_name((enum path_kind)(k % PATH_KINDS)),
				(unsigned long long)(k < PATH_KINDS ? p->tx_bytes[k]
								    : p->rx_bytes[k - PATH_KINDS]));
		}
}

static void gauge(FILE *f, const struct stat_list *l, const char *name, const char *help,
		  uint64_t (*get)(const struct stat_proc *p))
{
	size_t i;

	head(f, name, "gauge", help);
	for (i = 0; i < l->n; i++) {
		fprintf(f, "rdmashim_%s", name);
		labels(f, &l->proc[i]);
		fprintf(f, "} %llu\n", (unsigned long long)get(&l->proc[i]));
	}
}

static uint64_t get_live(const struct stat_proc *p)
{
	return p->nconns + p->more_conns;
}

static uint64_t get_fast(const struct stat_proc *p)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < p->nconns; i++)
		n += p->conns[i].tx_path != PATH_TCP || p->conns[i].rx_path != PATH_TCP;
	return n;
}

static uint64_t get_mode(const struct stat_proc *p)
{
	return p->mode == STAT_MODE_ON;
}

static uint64_t get_rings(const struct stat_proc *p) { return p->rings_held; }
static uint64_t get_ring_bytes(const struct stat_proc *p) { return p->ring_bytes; }
static uint64_t get_ring_budget(const struct stat_proc *p) { return p->ring_budget; }

static void reasons(FILE *f, const struct stat_list *l)
{
	size_t i;
	unsigned k;

	head(f, "tcp_connections", "gauge",
	     "Connections that are or ended on TCP, by their last reason");
	for (i = 0; i < l->n; i++)
		for (k = REASON_NONE + 1; k < REASON_COUNT; k++)
			if (l->proc[i].reasons[k]) {
				fputs("rdmashim_tcp_connections", f);
				labels(f, &l->proc[i]);
				fprintf(f, ",reason=\"%s\"} %llu\n", reason_name(k),
					(unsigned long long)l->proc[i].reasons[k]);
			}
}

/* One sample per queue pair that is up. */
static void queue_pairs(FILE *f, const struct stat_list *l, const char *name, const char *help,
			bool rtt)
{
	head(f, name, "gauge", help);
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < l->proc[i].nqps; k++) {
			const struct stat_qp *q = &l->proc[i].qps[k];

			if (q->phase != STAT_LINK_UP || (rtt && !q->rtt))
				continue;
			fprintf(f, "rdmashim_%s", name);
			labels(f, &l->proc[i]);
			fputs(",device=\"", f);
			quoted(f, q->device);
			fprintf(f, "\",port=\"%u\",qpn=\"%u\",peer_qpn=\"%u\"} ", q->port, q->qpn,
				q->peer_qpn);
			if (rtt)
				fprintf(f, "%.9f\n", q->rtt / 1e9);
			else
				fprintf(f, "%u\n", q->streams);
		}
}

static void expose(FILE *f, const struct stat_list *l)
{
	char name[64];
	size_t i;
	int k;

	head(f, "processes", "gauge", "Processes under the library that are shown here");
	fprintf(f, "rdmashim_processes %zu\n", l->n);
	if (!l->n)
		return;
	gauge(f, l, "mode_on", "1 if the policy of the process says mode on", get_mode);
	gauge(f, l, "connections_live", "TCP connections that are open now", get_live);
	gauge(f, l, "connections_live_fast", "Of these, on a fast path in one direction at least",
	      get_fast);
	gauge(f, l, "rings_held", "Rings that the process sends by and that have memory",
	      get_rings);
	gauge(f, l, "ring_bytes", "How much memory that is", get_ring_bytes);
	gauge(f, l, "ring_budget_bytes", "How much it may be; 0: not known yet", get_ring_budget);
	bytes(f, l);
	for (k = 0; k < STAT_COUNTERS; k++) {
		snprintf(name, sizeof(name), "%s_total", counter_names[k]);
		head(f, name, "counter", counter_docs[k]);
		for (i = 0; i < l->n; i++) {
			fprintf(f, "rdmashim_%s", name);
			labels(f, &l->proc[i]);
			fprintf(f, "} %llu\n", (unsigned long long)l->proc[i].counter[k]);
		}
	}
	reasons(f, l);
	queue_pairs(f, l, "rdma_link_streams", "Connections that are on a queue pair now", false);
	queue_pairs(f, l, "rdma_link_rtt_seconds",
		    "Shortest of the last times from posting a small record to seeing its "
		    "completion",
		    true);
}

/* Of each other user: a page is in memory, more than once while slow clients read an older one, and
 * a process may take 13 KiB of it. */
#define USER_PROCS_HTTP 32

/* Takes the processes of other users off the list, but `max` of each, and so many queue pairs.
 * Returns how many processes. */
static size_t keep_own(struct stat_list *l, size_t max)
{
	size_t i, k, n = 0, all = l->n, same, qps;

	for (i = 0; i < all; i++) {
		struct stat_proc *p = &l->proc[i];
		bool ours = p->uid == geteuid();

		for (k = 0, same = 0, qps = 0; !ours && k < n && same < max; k++)
			if (l->proc[k].uid == p->uid) {
				same++;
				qps += l->proc[k].nqps;
			}
		if (!ours && p->nqps > max - qps)
			p->nqps = max - qps;
		if (ours || same < max)
			l->proc[n++] = *p;
		else
			stat_proc_clear(&l->proc[i]);
	}
	l->n = n;
	return all - n;
}

/* What stdout shows only the caller sees; all can read the file, and ask over HTTP. */
static bool own_only(const struct request *r)
{
	return r->show ? !strcmp(r->show, "own") : r->listen || r->output;
}

static int expose_now(const struct request *r, bool quiet, FILE *f)
{
	struct request all = *r;
	struct stat_list l = { 0 };
	int rc;

	all.absolute = true;		/* a scraper finds resets by itself, and its own counters
					 * must not fall */
	rc = get_list(&all, quiet, &l);
	if (!rc) {
		size_t others = l.more_procs;

		if (own_only(r) || r->listen)
			others += keep_own(&l, own_only(r) ? 0 : USER_PROCS_HTTP);
		head(f, "processes_not_shown", "gauge",
		     "Processes of other users that --show own or the limit for one user left out");
		fprintf(f, "rdmashim_processes_not_shown %zu\n", others);
		expose(f, &l);
	}
	stat_list_clear(&l);
	return rc;
}

/* ---- a file ---- */

static int to_file(const struct request *r, bool quiet)
{
	char tmp[PATH_MAX];
	FILE *f = NULL;
	int fd = -1, rc = EXIT_FAILED;

	if (!replaceable(r->output))
		return EXIT_FAILED;
	/* the collector reads *.prom: the name of the unfinished file must not end so */
	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.XXXXXX", r->output) < sizeof(tmp))
		fd = mkostemp(tmp, O_CLOEXEC);
	if (fd >= 0)
		f = fdopen(fd, "w");
	if (f) {
		rc = expose_now(r, quiet, f);
		if (!rc && (fchmod(fd, 0644) || fflush(f) || ferror(f) || rename(tmp, r->output)))
			rc = EXIT_FAILED;
		else if (!rc) {
			fclose(f);
			return EXIT_OK;
		}
	}
	complain("cannot write %s: %s", r->output, strerror(errno));
	if (fd >= 0)
		unlink(tmp);
	if (f)
		fclose(f);
	return rc;
}

/* ---- HTTP ---- */

static int page(const void *arg, FILE *f)
{
	return expose_now(arg, true, f);
}

int cmd_prometheus(const struct request *r)
{
	unsigned i;
	int rc;

	if (r->json) {
		complain("prometheus has a format of its own; rdmastat --json prints the same "
			 "numbers");
		return EXIT_USAGE;
	}
	if (r->listen && (r->output || r->watch)) {
		complain("--listen answers when asked; leave out -O and -w");
		return EXIT_USAGE;
	}
	if (r->hosts && !r->listen) {
		complain("--host goes with --listen");
		return EXIT_USAGE;
	}
	if (r->show && strcmp(r->show, "own") && strcmp(r->show, "all")) {
		complain("--show: %s is neither own nor all", r->show);
		return EXIT_USAGE;
	}
	if (r->listen)
		return http_serve(&(struct http){ r->listen, r->hosts, r->count, page, r });
	for (i = 0; ; i++) {
		rc = r->output ? to_file(r, i > 0) : expose_now(r, i > 0, stdout);
		if (rc || !r->watch || (r->count && i + 1 >= r->count))
			return rc;
		rc = finish(rc);
		if (rc)
			return rc;
		sleep(r->watch);
	}
}
