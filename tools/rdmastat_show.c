/*
 * rdmastat_show.c - sums over processes, and the views as text.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdmastat.h"

#define TOP_REASONS 5

/* ---- sums ---- */

void sums_add(struct sums *s, const struct stat_proc *p)
{
	int i;

	s->live += p->nconns;
	s->conns = sat_add(s->conns, p->counter[STAT_conns]);
	s->conns_fast = sat_add(s->conns_fast, p->counter[STAT_conns_fast]);
	for (i = 0; i < PATH_KINDS; i++)
		s->bytes[i] = sat_add(s->bytes[i], sat_add(p->tx_bytes[i], p->rx_bytes[i]));
	for (i = 0; i < STAT_COUNTERS; i++)
		s->counter[i] = sat_add(s->counter[i], p->counter[i]);
	for (i = 0; i < REASON_COUNT; i++)
		s->reasons[i] = sat_add(s->reasons[i], p->reasons[i]);
}

double hit_bytes(const struct sums *s)
{
	double fast = (double)s->bytes[PATH_SHM] + (double)s->bytes[PATH_RDMA], all = fast + (double)s->bytes[PATH_TCP];

	return all > 0 ? fast / all : -1;
}

double hit_conns(const struct sums *s)
{
	if (!s->conns)
		return -1;
	return s->conns_fast >= s->conns ? 1 : (double)s->conns_fast / (double)s->conns;
}

size_t top_reasons(const struct sums *s, enum reason *out)
{
	size_t n = 0, i;
	unsigned r;

	for (r = REASON_NONE + 1; r < REASON_COUNT; r++) {
		if (!s->reasons[r])
			continue;
		for (i = n++; i && s->reasons[out[i - 1]] < s->reasons[r]; i--)
			out[i] = out[i - 1];
		out[i] = (enum reason)r;
	}
	return n;
}

/* ---- words ---- */

const char *path_name(enum path_kind p)
{
	static const char *const names[PATH_KINDS] = { "tcp", "shm", "rdma" };

	return (unsigned)p < PATH_KINDS ? names[p] : "?";
}

const char *role_name(enum stream_role r)
{
	static const char *const names[] = { "client", "server", "unknown" };

	return (unsigned)r <= ROLE_ANY ? names[r] : "?";
}

const char *end_text(int family, const uint8_t *addr, uint16_t port, char *buf, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (family == AF_UNSPEC) {
		snprintf(buf, len, "-");	/* it is looked up only for a connection that earns its upgrade */
		return buf;
	}
	inet_ntop(family, addr, ip, sizeof(ip));
	snprintf(buf, len, family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, port);
	return buf;
}

/* At most 6 characters. */
static const char *human(uint64_t v, char *buf, size_t len)
{
	static const char units[] = " KMGTPE";
	double d = (double)v;
	int u = 0;

	for (; d >= 1023.95 && units[u + 1]; u++)
		d /= 1024;
	if (!u)
		snprintf(buf, len, "%u", (unsigned)v);
	else
		snprintf(buf, len, d < 100 ? "%.1f%c" : "%.0f%c", d, units[u]);
	return buf;
}

static const char *percent(double share, char *buf, size_t len)
{
	if (share < 0)
		snprintf(buf, len, "-");
	else if (share > 0.999 && share < 1)
		snprintf(buf, len, "99.9%%");	/* 100 % only when it is all */
	else
		snprintf(buf, len, "%.1f%%", 100 * share);
	return buf;
}

/* ---- processes ---- */

static void process_line(const char *pid, const char *program, const char *mode, const struct sums *s)
{
	char b[PATH_KINDS][16], hb[16], hc[16];
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		human(s->bytes[i], b[i], sizeof(b[i]));
	printf("%8s %-16.16s %-5s %8llu %6zu %7s %7s %7s %9s %9s\n", pid, program, mode, (unsigned long long)s->conns, s->live,
	       b[PATH_TCP], b[PATH_SHM], b[PATH_RDMA], percent(hit_bytes(s), hb, sizeof(hb)), percent(hit_conns(s), hc, sizeof(hc)));
}

static void reason_lines(const struct sums *s)
{
	enum reason top[REASON_COUNT];
	size_t n = top_reasons(s, top), i;

	if (!n)
		return;
	printf("\nOn TCP because (connections):\n");
	for (i = 0; i < n && i < TOP_REASONS; i++)
		printf("%8llu %-16s %s\n%26s%s\n", (unsigned long long)s->reasons[top[i]], reason_name(top[i]), reason_text(top[i]),
		       "-> ", reason_remedy(top[i]));
	if (n > TOP_REASONS)
		printf("         and %zu more kinds: rdmastat --json\n", n - TOP_REASONS);
}

void show_processes(const struct stat_list *l)
{
	struct sums total = { 0 };
	char pid[16];
	size_t i;

	if (!l->n) {
		puts("No process under the shim. Start one with LD_PRELOAD=librdmashim.so PROGRAM.");
		return;
	}
	printf("%8s %-16s %-5s %8s %6s %7s %7s %7s %9s %9s\n", "PID", "PROGRAM", "MODE", "CONNS", "LIVE", "TCP", "SHM", "RDMA",
	       "HIT-BYTES", "HIT-CONNS");
	for (i = 0; i < l->n; i++) {
		const struct stat_proc *p = &l->proc[i];
		struct sums one = { 0 };

		sums_add(&one, p);
		sums_add(&total, p);
		snprintf(pid, sizeof(pid), "%u", p->pid);
		process_line(pid, p->program, p->dead ? "dead" : p->mode_on ? "on" : "off", &one);
	}
	process_line("total", "", "", &total);
	reason_lines(&total);
}

/* ---- connections ---- */

static void connection_line(const struct stat_proc *p, const struct stat_conn *c)
{
	char l[64], r[64], b[PATH_KINDS][16];
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		human(sat_add(c->tx_bytes[i], c->rx_bytes[i]), b[i], sizeof(b[i]));
	printf("%8u %-16.16s %5u %-22s %-22s %-7s %-4s %-4s %7s %7s %7s %6u %7u %s\n", p->pid, p->program, c->fd,
	       end_text(c->family, c->laddr, c->lport, l, sizeof(l)), end_text(c->family, c->paddr, c->pport, r, sizeof(r)),
	       role_name(c->role), path_name(c->tx_path), path_name(c->rx_path), b[PATH_TCP], b[PATH_SHM], b[PATH_RDMA],
	       c->cuts, c->rewinds, reason_name(c->reason));
}

void show_connections(const struct stat_list *l)
{
	size_t i, k;

	printf("%8s %-16s %5s %-22s %-22s %-7s %-4s %-4s %7s %7s %7s %6s %7s %s\n", "PID", "PROGRAM", "FD", "LOCAL", "PEER", "ROLE",
	       "TX", "RX", "TCP", "SHM", "RDMA", "CUTS", "REWINDS", "REASON");
	for (i = 0; i < l->n; i++)
		for (k = 0; !l->proc[i].dead && k < l->proc[i].nconns; k++)
			connection_line(&l->proc[i], &l->proc[i].conns[k]);
}

/* ---- calls ---- */

static void add_call(struct call_sum *out, size_t *n, size_t places, const char *name, const uint64_t *calls)
{
	size_t i;

	for (i = 0; i < *n && strcmp(out[i].name, name); i++)
		;
	if (i == places)
		return;
	if (i == *n) {
		out[i] = (struct call_sum){ 0 };
		strcpy(out[i].name, name);
		++*n;
	}
	out[i].tcp = sat_add(out[i].tcp, calls[0]);
	out[i].fast = sat_add(out[i].fast, calls[1]);
}

static int more_calls(const void *a, const void *b)
{
	const struct call_sum *x = a, *y = b;
	uint64_t m = sat_add(x->tcp, x->fast), n = sat_add(y->tcp, y->fast);

	return m != n ? (m < n) - (m > n) : strcmp(x->name, y->name);
}

size_t call_sums(const struct stat_list *l, struct call_sum *out, size_t places)
{
	size_t n = 0, i, c;

	for (i = 0; i < l->n; i++)
		for (c = 0; c < STAT_CALLS; c++)
			if (l->proc[i].call[c][0] && (l->proc[i].calls[c][0] || l->proc[i].calls[c][1]))
				add_call(out, &n, places, l->proc[i].call[c], l->proc[i].calls[c]);
	qsort(out, n, sizeof(*out), more_calls);
	return n;
}

void show_calls(const struct stat_list *l)
{
	struct call_sum calls[STAT_CALLS];
	size_t n = call_sums(l, calls, STAT_CALLS), i;

	printf("%-20s %20s %20s\n", "CALL", "ON-TCP", "ON-FAST-PATH");
	for (i = 0; i < n; i++)
		printf("%-20s %20llu %20llu\n", calls[i].name, (unsigned long long)calls[i].tcp, (unsigned long long)calls[i].fast);
}
