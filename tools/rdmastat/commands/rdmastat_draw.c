/*
 * rdmastat_draw.c - the screen of `rdmastat top`. Every line is cut at the screen's width; with
 * few lines the table goes first.
 */
#include <curses.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "commands/rdmastat_top.h"

#define NARROW 60		/* columns: below, only what, how fast, who */
#define PROCESS_WIDTH 64	/* of a process without its reason */

enum { PAIR_GOOD = 1, PAIR_WARN, PAIR_BAD };

const char *const top_sorts[SORTS] = { "rate", "bytes", "pid", "program", "live" };

void top_start_colors(const struct screen *s)
{
	if (!s->color)
		return;
	start_color();
	use_default_colors();
	init_pair(PAIR_GOOD, COLOR_GREEN, -1);
	init_pair(PAIR_WARN, COLOR_YELLOW, -1);
	init_pair(PAIR_BAD, COLOR_RED, -1);
}

static attr_t look_of(const struct screen *s, double hit)
{
	if (!s->color || hit < 0)
		return A_NORMAL;
	return (attr_t)COLOR_PAIR(hit >= 0.9 ? PAIR_GOOD : hit >= 0.5 ? PAIR_WARN : PAIR_BAD);
}

/* ---- lines ---- */

static int line_at;		/* the next free line */

static void __attribute__((format(printf, 2, 3))) line(attr_t look, const char *fmt, ...)
{
	char buf[1024];
	va_list ap;

	if (line_at >= LINES)
		return;
	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	attrset(look);
	mvaddnstr(line_at++, 0, buf, COLS);
	attrset(A_NORMAL);
}

static const char *rate_text(double v, char *buf, size_t len)
{
	return human(v < 1.8e19 ? (uint64_t)v : UINT64_MAX, buf, len);
}

static double all(const double *rate)
{
	double v = 0;
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		v += rate[i];
	return v;
}

/* The hit rate of the last samples, newest at the right. */
static void sparkline(const struct screen *s)
{
	static const char *const bars[] = { "▁", "▂", "▃", "▄",
					      "▅", "▆", "▇", "█" };
	static const char plain[] = "_.-:=+*#";
	const char *title = COLS < NARROW ? "hit " : "hit rate  ";
	int room = COLS - (int)strlen(title), i;

	if (line_at >= LINES)
		return;
	mvaddnstr(line_at, 0, title, COLS);
	for (i = 0; i < room; i++) {
		int at = HITS - room + i, level;
		double h = at >= 0 ? s->hits[at] : -1;

		if (h < 0) {
			addch(' ');
			continue;
		}
		level = (int)(h * 7.999);
		attrset(look_of(s, h));
		if (s->utf8)
			addstr(bars[level]);
		else
			addch((chtype)plain[level]);
		attrset(A_NORMAL);
	}
	line_at++;
}

/* How much there is of a reason: bytes of open connections, connections, or how often. */
static const char *why(const struct sums *s, enum reason r, char *buf, size_t len)
{
	unsigned long long n = s->reasons[r], times = s->counter[STAT_overflows];
	char h[16];

	if (r == REASON_OVERFLOW && times)
		snprintf(buf, len, "reader too slow %llu time%s", times, plural(times));
	else if (s->live_bytes[r])
		snprintf(buf, len, "%s in %llu", human(s->live_bytes[r], h, sizeof(h)), n);
	else
		snprintf(buf, len, "%llu", n);
	return buf;
}

static const char *by_path(const struct screen *s, char *buf, size_t len)
{
	size_t n = 0;
	char b[16];

	for (int i = 0; i < PATH_KINDS && n < len; i++)
		n += (size_t)snprintf(buf + n, len - n, "%s %s/s  ", path_name((enum path_kind)i),
				      rate_text(s->rate[i], b, sizeof(b)));
	return buf;
}

static void head(const struct screen *s)
{
	char rates[256], h[64], pause[16] = "";
	enum reason top[REASON_COUNT];
	double hit = hit_bytes(&s->total);

	if (COLS < NARROW) {
		line(A_BOLD, "%s%zu proc %zu conn", s->paused ? "PAUSED " : "", s->procs,
		     s->total.live);
		line(look_of(s, hit), "%s/s, hit %s", rate_text(all(s->rate), rates, sizeof(rates)),
		     percent(hit, h, sizeof(h)));
		sparkline(s);
		if (top_reasons(&s->total, top))
			line(A_NORMAL, "tcp: %s", reason_name(top[0]));
		return;
	}
	if (s->paused)
		snprintf(pause, sizeof(pause), "  PAUSED");
	line(A_BOLD, "rdmashim: %zu process%s, %zu connection%s, every %u s%s", s->procs,
	     s->procs == 1 ? "" : "es", s->total.live, plural(s->total.live), s->every, pause);
	line(look_of(s, hit), "%sleft TCP so far: %s", by_path(s, rates, sizeof(rates)),
	     percent(hit, h, sizeof(h)));
	sparkline(s);
	if (top_reasons(&s->total, top))
		line(A_NORMAL, "on TCP: %s (%s) -> %s", reason_name(top[0]),
		     why(&s->total, top[0], h, sizeof(h)), remedy_text(top[0]));
	else
		line(A_NORMAL, "on TCP: nothing");
}

/* ---- rows ---- */

static const struct screen *sorting;

static uint64_t sum(const uint64_t *b)
{
	uint64_t v = 0;
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		v = sat_add(v, b[i]);
	return v;
}

static int by_sort(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;
	double v = 0, w = 0;
	int d;

	switch (sorting->sort) {
	case SORT_RATE:	   v = all(x->rate); w = all(y->rate); break;
	case SORT_BYTES:   v = (double)sum(x->bytes); w = (double)sum(y->bytes); break;
	case SORT_LIVE:	   v = (double)x->live; w = (double)y->live; break;
	case SORT_PROGRAM: d = strcmp(x->name, y->name); v = -d; break;
	case SORT_PID:	   w = x->pid; v = y->pid; break;	/* lowest first */
	}
	d = (v < w) - (v > w);
	if (!d)
		d = x->pid != y->pid ? (x->pid < y->pid ? -1 : 1)
				     : (x->fd > y->fd) - (x->fd < y->fd);
	return sorting->reverse ? -d : d;
}

/*
 * Columns of the connections: as wide as what is in them, so that the reason has room; IPv6
 * peers are cut on narrow screens. No figure is ever cut, as half of one is a wrong one: the
 * bytes are left out where they do not fit, and all but the rate where that does not help.
 */
struct widths {
	int id, name, peer, what;	/* what: with the blank behind it; 0: there is none, or
					 * no room */
	bool bytes, narrow;
};

static void process_row(const struct screen *s, const struct top_row *r, const struct widths *w)
{
	char a[16], rates[8 * PATH_KINDS + 1], h[16], who[32], what[WHAT_LEN + 2] = "";
	double hit = hit_of(r->bytes);

	for (int i = 0; i < PATH_KINDS; i++)
		snprintf(rates + 8 * i, 9, "%7.7s ", rate_text(r->rate[i], a, sizeof(a)));
	if (r->ended)
		snprintf(who, sizeof(who), "%llu ended",
			 (unsigned long long)(r->ended->n + r->ended->n_left));
	else
		snprintf(who, sizeof(who), "%u", r->pid);
	if (w->what)
		snprintf(what, sizeof(what), "%-*.*s ", w->what - 1, w->what - 1, r->what);
	if (w->narrow) {
		line(look_of(s, hit), "%7s %6s %s", who,
		     rate_text(all(r->rate), a, sizeof(a)), r->name);
		return;
	}
	line(look_of(s, hit), "%8s %-16.16s %*s%6zu %s%7s %s", who, r->name, w->what, what, r->live,
	     rates, percent(hit, h, sizeof(h)), reason_name(r->reason));
}

static const char *id_of(const struct top_row *r, char *buf, size_t len)
{
	snprintf(buf, len, "%u:%u", r->pid, r->fd);
	return buf;
}

static int wider(int width, size_t len, int most)
{
	return (int)len <= width ? width : (int)len < most ? (int)len : most;
}

static struct widths measure(const struct screen *s)
{
	struct widths w = { .id = 8, .name = 7, .peer = 9, .narrow = COLS < PROCESS_WIDTH };
	char id[32];
	int need;
	size_t i;

	for (i = 0; !s->conns && s->whats && i < s->n; i++)
		w.what = wider(w.what, strlen(s->row[i].what) + 1, WHAT_LEN);
	if (!s->conns) {
		need = COLS - PROCESS_WIDTH - 16;	/* a reason has to fit, too */
		w.what = w.what <= need ? w.what : need >= 8 ? need : 0;
		return w;
	}
	for (i = 0; i < s->n; i++) {
		w.id = wider(w.id, strlen(id_of(&s->row[i], id, sizeof(id))), 20);
		w.name = wider(w.name, strlen(s->row[i].name), 15);
		w.peer = wider(w.peer, strlen(s->row[i].peer), COLS < 110 ? 21 : 47);
	}
	need = w.id + w.name + w.peer + (int)strlen("   tcp  tcp  1023.9");
	w.bytes = COLS >= need + (int)strlen(" 1023.9");
	w.narrow = COLS < need;
	return w;
}

static void connection_row(const struct screen *s, const struct top_row *r, const struct widths *w)
{
	char v[16], t[16], bytes[24] = "", id[32];
	double hit = hit_of(r->bytes);

	id_of(r, id, sizeof(id));
	if (w->bytes)
		snprintf(bytes, sizeof(bytes), " %6s", human(sum(r->bytes), t, sizeof(t)));
	if (w->narrow) {
		line(look_of(s, hit), "%10s %6s %s", id, rate_text(all(r->rate), v, sizeof(v)),
		     r->name);
		return;
	}
	line(look_of(s, hit), "%*s %-*.*s %-*.*s %-4s %-4s %6s%s %s", w->id, id, w->name, w->name,
	     r->name, w->peer, w->peer, r->peer, path_name(r->tx), path_name(r->rx),
	     rate_text(all(r->rate), v, sizeof(v)), bytes, reason_name(r->reason));
}

/* Over the rates of process_row(). */
static const char *rate_heads(char buf[static 8 * PATH_KINDS + 1])
{
	static const char *const head[] = {
#define PATH(NAME, name, far, unasked, doc) #NAME "/s",
#include "policy/path.def"
#undef PATH
	};

	for (int i = 0; i < PATH_KINDS; i++)
		snprintf(buf + 8 * i, 9, "%7.7s ", head[i]);
	return buf;
}

static void rows(struct screen *s)
{
	char heads[8 * PATH_KINDS + 1];
	struct widths w = measure(s);
	size_t i, room;

	if (w.narrow)
		line(A_REVERSE, "%*s %6s %-*s", s->conns ? 10 : 7, s->conns ? "PID:FD" : "PID",
		     "RATE/s", COLS, "PROGRAM");
	else if (s->conns)
		line(A_REVERSE, "%*s %-*s %-*s %-4s %-4s %6s%s %-*s", w.id, "PID:FD", w.name,
		     "PROGRAM", w.peer, "PEER", "TX", "RX", "RATE/s", w.bytes ? "  BYTES" : "",
		     COLS, "REASON");
	else
		line(A_REVERSE, "%8s %-16s %-*s%6s %s%7s %-*s", "PID", "PROGRAM", w.what,
		     w.what ? "WHAT" : "", "LIVE", rate_heads(heads), "HIT", COLS, "TOP REASON");
	sorting = s;
	if (s->n)
		qsort(s->row, s->n, sizeof(*s->row), by_sort);
	room = LINES > line_at + 1 ? (size_t)(LINES - line_at - 1) : 0;
	if (s->from + room > s->n)
		s->from = s->n > room ? s->n - room : 0;
	for (i = s->from; i < s->n && i < s->from + room; i++) {
		if (s->conns)
			connection_row(s, &s->row[i], &w);
		else
			process_row(s, &s->row[i], &w);
	}
	if (!s->n)
		line(A_NORMAL, s->filter[0] && s->conns ? "no connection matches the filter"
			       : s->procs		? "no connections"
							: "nothing under the library");
}

static void help(void)
{
	static const char *const narrow[] = { "p processes", "c connections", "/ filter them",
					      "s S sort by next", "r turn round", "space pause",
						      "+ - interval",
					      "arrows scroll", "h this help", "q quit" };
	size_t i;

	for (i = 0; COLS < NARROW && i < sizeof(narrow) / sizeof(narrow[0]); i++)
		line(A_NORMAL, "%s", narrow[i]);
	if (COLS < NARROW)
		return;
	line(A_NORMAL, " ");
	line(A_NORMAL, "p processes        c connections      / filter connections");
	line(A_NORMAL, "s S sort by next   r turn round       space pause");
	line(A_NORMAL, "+ - interval       arrows, page keys scroll");
	line(A_NORMAL, "h this help        q quit");
	line(A_NORMAL, " ");
	line(A_NORMAL,
	     "A filter: dport = 6379, path tcp, pid = 12, program redis-*, not role client,");
	line(A_NORMAL, "with and, or, ( and ).");
}

static void foot(const struct screen *s)
{
	char buf[512];

	if (LINES < 3)
		return;
	if (s->editing)
		snprintf(buf, sizeof(buf), "filter: %s_", s->typed);
	else if (s->note[0])
		snprintf(buf, sizeof(buf), "%s", s->note);
	else
		snprintf(buf, sizeof(buf), "q quit  %s  s sort: %s  / filter%s%s  h help",
			 s->conns ? "p processes" : "c connections", top_sorts[s->sort],
			 s->filter[0] ? ": " : "", s->filter);
	attrset(A_DIM);
	mvaddnstr(LINES - 1, 0, buf, COLS);
	attrset(A_NORMAL);
}

void top_draw(struct screen *s)
{
	erase();
	line_at = 0;
	head(s);
	if (s->help)
		help();
	else
		rows(s);
	foot(s);
	refresh();
}
