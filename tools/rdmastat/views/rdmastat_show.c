/*
 * rdmastat_show.c - the overview: processes, totals, reasons with their remedies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/rdmastat.h"
#include "ground/rdmastat_json.h"
#include "ground/rdmastat_table.h"
#include "ground/rdmastat_what.h"

#define TOP_REASONS 5

/* ---- the overview ---- */

struct line {
	const struct stat_proc *p;	/* NULL: the total; of several that have ended: one of
					 * them */
	struct sums s;
	uint64_t ended;			/* so many processes of a program; 0: one, alive or not */
	const char *what;		/* NULL: not asked for */
};

#define ROW const struct line *ln = row

NUMBER(pid_number, ln->p->pid)
NUMBER(uid_number, ln->p->uid)
NUMBER(mode_number, ln->p->dead ? 0 : ln->p->mode == STAT_MODE_ON ? 2 : 1)
NUMBER(conns, ln->s.conns)
NUMBER(live, ln->s.live)
#define PATH(NAME, name, far, unasked, doc) NUMBER(name, ln->s.bytes[PATH_##NAME])
#include "policy/path.def"
#undef PATH
NUMBER(cuts, ln->s.counter[STAT_cuts])
NUMBER(rewinds, ln->s.counter[STAT_rewinds])
TEXT(program, ln->p ? ln->p->program : "")
TEXT(what, ln->what ? ln->what : "")
TEXT(go, ln->p ? ln->p->go : "")
TEXT(policy, ln->p ? ln->p->policy_file : "")
TEXT(mode, !ln->p ? "" : ln->p->dead ? "dead" : stat_mode_name(ln->p->mode))

static const char *pid(const void *row, char *buf, size_t len)
{
	ROW;

	if (!ln->p)
		return "total";
	if (ln->ended)
		snprintf(buf, len, "%llu ended", (unsigned long long)ln->ended);
	else
		snprintf(buf, len, "%u", ln->p->pid);
	return buf;
}

static const char *uid(const void *row, char *buf, size_t len)
{
	ROW;
	snprintf(buf, len, "%u", ln->p ? ln->p->uid : 0);
	return ln->p ? buf : "";
}

static const char *reason(const void *row, char *buf, size_t len)
{
	enum reason top[REASON_COUNT];
	ROW;

	(void)buf;
	(void)len;
	return top_reasons(&ln->s, top) ? reason_name(top[0]) : "-";
}

SHARE(share_of_bytes, hit_bytes(&ln->s))
SHARE(polled, waits_polled(&ln->s))
NUMBER(fulls, ln->s.counter[STAT_ring_full])
NUMBER(enlarged, ln->s.counter[STAT_rings_enlarged])
NUMBER(rings, ln->s.rings_held)
NUMBER(ring_bytes, ln->s.ring_bytes)
NUMBER(rested, ln->s.counter[STAT_rings_rested])
NUMBER(reused, ln->s.counter[STAT_rings_reused])
SHARE(share_of_conns, hit_conns(&ln->s))
TINT(bytes_tint, tint_of_share(hit_bytes(&ln->s)))
TINT(mode_tint, ln->p && (ln->p->dead || ln->p->mode != STAT_MODE_ON) ? TINT_WARN : TINT_OFF)

enum { COL_WHAT = 2 };
static const struct column cols[] = {
	{ "pid", "PID", false, 0, 8, false, "process", .text = pid, .count = pid_number },
	{ "program", "PROGRAM", true, 1, 16, false, "its name", .text = program },
	[COL_WHAT] = { "what", "WHAT", true, 1, 8, true,
	  "the port that it serves, else its arguments; on a terminal, where several have one name",
	  .text = what, .by_name = true },
	{ "mode", "MODE", true, 7, 5, false,
	  "on, off (the policy file says so), bad (it is missing or cannot be used) or dead",
	  .text = mode, .count = mode_number, .tint = mode_tint },
	{ "conns", "CONNS", false, 6, 8, false, "TCP connections so far", .count = conns },
	{ "live", "LIVE", false, 5, 6, false, "those open now", .count = live },
#define PATH(NAME, name, far, unasked, doc) \
	{ #name, #NAME, false, PATH_##NAME == PATH_TCP ? 4 : (far) ? 8 : 3, 7, false, \
	  "bytes by " doc ", both directions", .bytes = name },
#include "policy/path.def"
#undef PATH
	{ "hit-bytes", "HIT-BYTES", false, 0, 9, false, "share of the bytes that left TCP",
	  .share = share_of_bytes, .tint = bytes_tint },
	{ "hit-conns", "HIT-CONNS", false, 2, 9, false,
	  "share of the connections that were on a fast path at least once",
	  .share = share_of_conns },
	{ "uid", "UID", false, 9, 0, true, "user", .text = uid, .count = uid_number },
	{ "cuts", "CUTS", false, 9, 0, true, "directions cut over to a fast path", .count = cuts },
	{ "rewinds", "REWINDS", false, 9, 0, true, "directions that went back to TCP",
	  .count = rewinds },
	{ "polled", "POLLED", false, 9, 0, true,
	  "share of the waits that got what they waited for by polling, without a sleep",
	  .share = polled },
	{ "full", "FULL", false, 9, 0, true, "times that a send found too little room in its ring",
	  .count = fulls },
	{ "enlarged", "ENLARGED", false, 9, 0, true, "rings that were made larger",
	  .count = enlarged },
	{ "reused", "REUSED", false, 9, 0, true, "connections that got the ring of one before them",
	  .count = reused },
	{ "rings", "RINGS", false, 9, 0, true, "rings that it sends by and that have memory now",
	  .count = rings },
	{ "ring-bytes", "RING-BYTES", false, 9, 0, true, "how much that is", .bytes = ring_bytes },
	{ "rested", "RESTED", false, 9, 0, true,
	  "rings whose memory was given back while they were not used", .count = rested },
	{ "go", "GO", true, 9, 0, true,
	  "of a Go program, where the policy asks: its version, and what became of its stubs",
	  .text = go },
	{ "policy", "POLICY", true, 9, 0, true, "its policy file", .text = policy },
	{ "reason", "REASON", true, 9, 0, true,
	  "why most of its open connections' bytes by TCP are there, or most connections were",
	  .text = reason },
};
#define COLS (sizeof(cols) / sizeof(cols[0]))

static int lines_by_pid(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return (x->p->pid > y->p->pid) - (x->p->pid < y->p->pid);
}

/* Those that have ended last, by program. */
static int ended_by_program(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	int d = x->p->dead - y->p->dead;

	if (d || !x->p->dead)
		return d ? d : lines_by_pid(a, b);
	if (x->p->uid != y->p->uid)
		return x->p->uid < y->p->uid ? -1 : 1;
	d = strcmp(x->p->program, y->p->program);
	return d ? d : lines_by_pid(a, b);
}

static bool same_program(const struct line *x, const struct line *y)
{
	return x->p->dead && y->p->dead && x->p->uid == y->p->uid &&
	       !strcmp(x->p->program, y->p->program);
}

/* A server that makes a process for each connection leaves thousands: one line for its program.
 * Returns how many lines are left. */
static size_t fold_ended(struct line *line, size_t n)
{
	size_t i, to = 0;

	for (i = 0; i < n; i++)
		line[i].ended = line[i].p->folded;
	if (n)
		qsort(line, n, sizeof(*line), ended_by_program);
	for (i = 1; i < n; i++) {
		if (!same_program(&line[to], &line[i])) {
			line[++to] = line[i];
			continue;
		}
		if (!line[to].ended)
			line[to].ended = 1;
		line[to].ended += line[i].ended ? line[i].ended : 1;
		sums_add(&line[to].s, line[i].p);
	}
	return n ? to + 1 : 0;
}

static void reason_lines(const struct request *r, const struct sums *s)
{
	enum reason top[REASON_COUNT];
	size_t n = top_reasons(s, top), i;
	char head[128], cause[200], h[16];

	if (!n)
		return;
	printf("\n%s", tint(r, TINT_HEAD));
	print_wrapped(stdout, "", 0,
		      "On TCP because (bytes of open connections, connections):", r->width);
	fputs(tint(r, TINT_OFF), stdout);
	for (i = 0; i < n && i < TOP_REASONS; i++) {
		const char *text = cause_text(s, top[i], cause, sizeof(cause));
		uint64_t now = s->live_bytes[top[i]];

		if (r->width && r->width < 60) {
			snprintf(head, sizeof(head),
				 "%llu %s: ", (unsigned long long)s->reasons[top[i]],
				 reason_name(top[i]));
			print_wrapped(stdout, head, 2, text, r->width);
			print_wrapped(stdout, "-> ", 3, remedy_text(top[i]), r->width);
			continue;
		}
		snprintf(head, sizeof(head), "%6s %6llu %-16s ",
			 now ? human(now, h, sizeof(h)) : "-",
			 (unsigned long long)s->reasons[top[i]], reason_name(top[i]));
		print_wrapped(stdout, head, 31, text, r->width);
		fputs(tint(r, TINT_GOOD), stdout);
		print_wrapped(stdout, "                            -> ", 31, remedy_text(top[i]),
			      r->width);
		fputs(tint(r, TINT_OFF), stdout);
	}
	if (n > TOP_REASONS)
		printf("         and %zu more kinds: rdmastat --json\n", n - TOP_REASONS);
}

/* Is it among the n chosen columns? For a person it comes by itself, where names do not tell. */
static what_text *choose_what(const struct request *r, const struct stat_list *l, uint8_t *chosen,
			      size_t *n)
{
	bool named = memchr(chosen, COL_WHAT, *n) != NULL, any;
	what_text *what;

	if (!named && (r->columns || !r->width))
		return NULL;
	what = whats_make(l, named, &any);
	if (what && any && !named) {
		memmove(chosen + COL_WHAT + 1, chosen + COL_WHAT, *n - COL_WHAT);
		chosen[COL_WHAT] = COL_WHAT;
		++*n;
	}
	return what;
}

int show_overview(const struct request *r, const struct stat_list *l)
{
	uint8_t chosen[TABLE_COLUMNS];
	struct row_order order = { .cols = cols, .tie = lines_by_pid };
	struct line total = { 0 }, *line;
	what_text *what;
	struct table *t;
	size_t n, i, lines;
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
		print_wrapped(stdout, "", 0,
			      "No process under the library. Start one with: rdmarun PROGRAM, or "
			      "LD_PRELOAD=librdmashim.so PROGRAM.",
			      r->width);
		return EXIT_OK;
	}
	what = choose_what(r, l, chosen, &n);
	line = calloc(l->n, sizeof(*line));
	t = table_new(cols, chosen, n);
	for (i = 0; line && i < l->n; i++) {
		line[i].p = &l->proc[i];
		line[i].what = what ? what[i] : NULL;
		sums_add(&line[i].s, &l->proc[i]);
		sums_add(&total.s, &l->proc[i]);
	}
	lines = line ? fold_ended(line, l->n) : 0;
	rows_sort(line, lines, sizeof(*line), &order);
	for (i = 0; i < lines; i++)
		table_row(t, &line[i]);
	table_row(t, &total);
	table_print(r, t, stdout);
	reason_lines(r, &total.s);
	table_free(t);
	free(line);
	free(what);
	return EXIT_OK;
}
