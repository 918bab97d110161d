/*
 * rdmastat_show.c - the overview: processes, totals, reasons with their remedies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdmastat.h"
#include "rdmastat_json.h"
#include "rdmastat_table.h"

#define TOP_REASONS 5

/* ---- the overview ---- */

enum {
	COL_PID, COL_PROGRAM, COL_MODE, COL_CONNS, COL_LIVE, COL_TCP, COL_SHM, COL_RDMA, COL_HIT_BYTES, COL_HIT_CONNS, COL_UID, COL_CUTS,
	COL_REWINDS, COL_POLICY, COL_REASON, COLS
};
static const struct column cols[COLS] = {
	[COL_PID]	= { "pid", "PID", false, 0, 8, false, "process" },
	[COL_PROGRAM]	= { "program", "PROGRAM", true, 1, 16, false, "its name" },
	[COL_MODE]	= { "mode", "MODE", true, 7, 5, false, "on, off (the policy file says so), bad (it is missing or cannot be used) or dead" },
	[COL_CONNS]	= { "conns", "CONNS", false, 6, 8, false, "TCP connections so far" },
	[COL_LIVE]	= { "live", "LIVE", false, 5, 6, false, "those open now" },
	[COL_TCP]	= { "tcp", "TCP", false, 4, 7, false, "bytes by kernel TCP, both directions" },
	[COL_SHM]	= { "shm", "SHM", false, 3, 7, false, "bytes by shared memory" },
	[COL_RDMA]	= { "rdma", "RDMA", false, 8, 7, false, "bytes by RDMA" },
	[COL_HIT_BYTES]	= { "hit-bytes", "HIT-BYTES", false, 0, 9, false, "share of the bytes that left TCP" },
	[COL_HIT_CONNS]	= { "hit-conns", "HIT-CONNS", false, 2, 9, false, "share of the connections that were on a fast path at least once" },
	[COL_UID]	= { "uid", "UID", false, 9, 0, true, "user" },
	[COL_CUTS]	= { "cuts", "CUTS", false, 9, 0, true, "directions cut over to a fast path" },
	[COL_REWINDS]	= { "rewinds", "REWINDS", false, 9, 0, true, "directions that went back to TCP" },
	[COL_POLICY]	= { "policy", "POLICY", true, 9, 0, true, "its policy file" },
	[COL_REASON]	= { "reason", "REASON", true, 9, 0, true, "most frequent reason for being on TCP" },
};

struct line {
	const struct stat_proc *p;	/* NULL: the total */
	struct sums s;
};

/* The text of one cell, and its value for sorting. */
static uint64_t cell_value(const struct line *ln, int col)
{
	switch (col) {
	case COL_PID:	    return ln->p->pid;
	case COL_UID:	    return ln->p->uid;
	case COL_MODE:	    return ln->p->dead ? 0 : ln->p->mode == STAT_MODE_ON ? 2 : 1;
	case COL_CONNS:	    return ln->s.conns;
	case COL_LIVE:	    return ln->s.live;
	case COL_TCP:	    return ln->s.bytes[PATH_TCP];
	case COL_SHM:	    return ln->s.bytes[PATH_SHM];
	case COL_RDMA:	    return ln->s.bytes[PATH_RDMA];
	case COL_HIT_BYTES: return (uint64_t)((hit_bytes(&ln->s) + 1) * 1e6);
	case COL_HIT_CONNS: return (uint64_t)((hit_conns(&ln->s) + 1) * 1e6);
	case COL_CUTS:	    return ln->s.counter[STAT_cuts];
	case COL_REWINDS:   return ln->s.counter[STAT_rewinds];
	default:	    return 0;
	}
}

static const char *cell_text(const struct line *ln, int col, char *buf, size_t len)
{
	const struct stat_proc *p = ln->p;
	enum reason top[REASON_COUNT];

	switch (col) {
	case COL_PID:
		if (!p)
			return "total";
		if (p->folded) {
			snprintf(buf, len, "%llu ended", (unsigned long long)p->folded);
			return buf;
		}
		break;
	case COL_PROGRAM:   return p ? p->program : "";
	case COL_POLICY:    return p ? p->policy_file : "";
	case COL_MODE:	    return !p ? "" : p->dead ? "dead" : stat_mode_name(p->mode);
	case COL_REASON:    return top_reasons(&ln->s, top) ? reason_name(top[0]) : "-";
	case COL_HIT_BYTES: return percent(hit_bytes(&ln->s), buf, len);
	case COL_HIT_CONNS: return percent(hit_conns(&ln->s), buf, len);
	case COL_TCP:
	case COL_SHM:
	case COL_RDMA:	    return human(cell_value(ln, col), buf, len);
	case COL_UID:
		if (!p)
			return "";
		break;
	}
	snprintf(buf, len, "%llu", (unsigned long long)cell_value(ln, col));
	return buf;
}

static enum tint cell_tint(const struct line *ln, int col)
{
	if (col == COL_HIT_BYTES)
		return tint_of_share(hit_bytes(&ln->s));
	if (col == COL_MODE && ln->p && (ln->p->dead || ln->p->mode != STAT_MODE_ON))
		return TINT_WARN;
	return TINT_OFF;
}

static int compare_lines(const void *a, const void *b, int col)
{
	const struct line *x = a, *y = b;
	char s[64], t[64];

	if (cols[col].left && col != COL_MODE)
		return strcmp(cell_text(x, col, s, sizeof(s)), cell_text(y, col, t, sizeof(t)));
	return larger_first(cell_value(x, col), cell_value(y, col));
}

static int lines_by_pid(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return (x->p->pid > y->p->pid) - (x->p->pid < y->p->pid);
}

static void reason_lines(const struct request *r, const struct sums *s)
{
	enum reason top[REASON_COUNT];
	size_t n = top_reasons(s, top), i;
	char head[128];

	if (!n)
		return;
	printf("\n%s", tint(r, TINT_HEAD));
	print_wrapped(stdout, "", 0, "On TCP because (connections):", r->width);
	fputs(tint(r, TINT_OFF), stdout);
	for (i = 0; i < n && i < TOP_REASONS; i++) {
		if (r->width && r->width < 60) {
			snprintf(head, sizeof(head), "%llu %s: ", (unsigned long long)s->reasons[top[i]], reason_name(top[i]));
			print_wrapped(stdout, head, 2, reason_text(top[i]), r->width);
			print_wrapped(stdout, "-> ", 3, remedy_text(top[i]), r->width);
			continue;
		}
		snprintf(head, sizeof(head), "%8llu %-16s ", (unsigned long long)s->reasons[top[i]], reason_name(top[i]));
		print_wrapped(stdout, head, 26, reason_text(top[i]), r->width);
		fputs(tint(r, TINT_GOOD), stdout);
		print_wrapped(stdout, "                       -> ", 26, remedy_text(top[i]), r->width);
		fputs(tint(r, TINT_OFF), stdout);
	}
	if (n > TOP_REASONS)
		printf("         and %zu more kinds: rdmastat --json\n", n - TOP_REASONS);
}

static void overview_line(struct table *t, const struct line *ln, const uint8_t *chosen, size_t n)
{
	char buf[64];
	size_t i;

	for (i = 0; i < n; i++)
		table_cell(t, cell_tint(ln, chosen[i]), cell_text(ln, chosen[i], buf, sizeof(buf)));
}

int show_overview(const struct request *r, const struct stat_list *l)
{
	uint8_t chosen[TABLE_COLUMNS];
	struct row_order order = { .compare = compare_lines, .tie = lines_by_pid };
	struct line total = { 0 }, *line;
	struct table *t;
	size_t n, i;
	int rc;

	if (r->json)
		return json_processes(r, l);
	n = columns_choose(r, cols, COLS, chosen, &rc);
	if (!n)
		return rc;
	order.col = columns_sort(r, cols, COLS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	if (!l->n) {
		print_wrapped(stdout, "", 0, "No process under the shim. Start one with: rdmarun PROGRAM, or LD_PRELOAD=librdmashim.so PROGRAM.", r->width);
		return EXIT_OK;
	}
	line = calloc(l->n, sizeof(*line));
	t = table_new(cols, chosen, n);
	for (i = 0; line && i < l->n; i++) {
		line[i].p = &l->proc[i];
		sums_add(&line[i].s, &l->proc[i]);
		sums_add(&total.s, &l->proc[i]);
	}
	if (line)
		rows_sort(line, l->n, sizeof(*line), &order);
	for (i = 0; line && i < l->n; i++)
		overview_line(t, &line[i], chosen, n);
	overview_line(t, &total, chosen, n);
	table_print(r, t, stdout);
	reason_lines(r, &total.s);
	table_free(t);
	free(line);
	return EXIT_OK;
}
