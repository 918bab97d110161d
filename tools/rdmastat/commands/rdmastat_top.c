/*
 * rdmastat_top.c - `rdmastat top`: processes or connections with their rates, on the whole
 * screen, refreshed. What is shown is kept in struct screen; the terminal is given back by
 * endwin() on every way out.
 */
#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ground/rdmastat_ends.h"
#include "ground/rdmastat_filter.h"
#include "commands/rdmastat_top.h"

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- rates: this sample less the one before ---- */

static int by_key(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->fd != y->fd)
		return x->fd < y->fd ? -1 : 1;
	return (x->ports > y->ports) - (x->ports < y->ports);
}

static void add_rates(struct screen *s, double secs)
{
	struct top_row *old;
	size_t i;
	int k;

	for (i = 0; i < s->n; i++) {
		struct top_row *r = &s->row[i];

		old = s->old_n ? bsearch(r, s->old, s->old_n, sizeof(*r), by_key) : NULL;
		for (k = 0; (old || r->ended) && k < PATH_KINDS; k++) {
			uint64_t before = sat_add(old ? old->bytes[k] : 0,
						  r->ended ? r->ended->moved[k] : 0);

			r->rate[k] = r->bytes[k] > before ? (double)(r->bytes[k] - before) / secs
							  : 0;
		}
	}
}

static void add_conns(struct screen *s, const struct request *r, const struct stat_list *l)
{
	struct conn_ref *ref;
	size_t n, i;
	int rc, k;

	ref = conn_select(r, l, &n, &rc);
	s->row = ref ? calloc(n + 1, sizeof(*s->row)) : NULL;
	for (i = 0; s->row && i < n; i++) {
		struct top_row *w = &s->row[s->n++];
		const struct stat_conn *c = ref[i].c;

		w->pid = ref[i].p->pid;
		w->start = ref[i].p->start_time;
		w->fd = c->fd;
		w->ports = (uint32_t)c->lport << 16 | c->pport;
		w->tx = c->tx_path;
		w->rx = c->rx_path;
		w->reason = c->reason;
		snprintf(w->name, sizeof(w->name), "%s", ref[i].p->program);
		end_text(c->family, c->paddr, c->pport, w->peer, sizeof(w->peer));
		for (k = 0; k < PATH_KINDS; k++)
			w->bytes[k] = sat_add(c->tx_bytes[k], c->rx_bytes[k]);
	}
	free(ref);
}

/* The line of its program; the last one is that of all for which there is none. */
static struct ended *ended_of(struct screen *s, const char *program)
{
	struct ended *e;
	size_t i;

	for (i = 0; i < s->nended; i++)
		if (!strcmp(s->ended[i].name, program))
			return &s->ended[i];
	if (s->nended == ENDED_MOST)
		return &s->ended[ENDED_MOST - 1];
	e = &s->ended[s->nended++];
	snprintf(e->name, sizeof(e->name), "%s", s->nended == ENDED_MOST ? "(several)" : program);
	return e;
}

/* What has ended leaves the list; its counts stay. s->old: the rows of the sample before,
 * sorted. */
static void keep_ended(struct screen *s, struct stat_list *l)
{
	size_t i, n = 0;
	int k;

	for (i = 0; i < s->nended; i++) {
		s->ended[i].n_left = 0;
		memset(&s->ended[i].left, 0, sizeof(s->ended[i].left));
		memset(s->ended[i].moved, 0, sizeof(s->ended[i].moved));
	}
	for (i = 0; i < l->n; i++) {
		struct stat_proc *p = &l->proc[i];
		struct top_row key = { .pid = p->pid, .start = p->start_time }, *old;
		struct ended *e = p->dead ? ended_of(s, p->program) : NULL;

		if (!e) {
			l->proc[n++] = *p;
			continue;
		}
		sums_add(p->left ? &e->left : &e->s, p);
		*(p->left ? &e->n_left : &e->n) += p->folded ? p->folded : 1;
		old = s->old_n ? bsearch(&key, s->old, s->old_n, sizeof(key), by_key) : NULL;
		for (k = 0; old && k < PATH_KINDS; k++)
			e->moved[k] = sat_add(e->moved[k], old->bytes[k]);
		stat_proc_clear(p);
	}
	l->n = n;
}

static void sums_plus(struct sums *to, const struct sums *s)
{
	struct stat_proc p = { .dead = true };

	memcpy(p.tx_bytes, s->bytes, sizeof(p.tx_bytes));
	memcpy(p.counter, s->counter, sizeof(p.counter));
	memcpy(p.reasons, s->reasons, sizeof(p.reasons));
	sums_add(to, &p);
}

static void add_ended(struct screen *s)
{
	enum reason top[REASON_COUNT];

	for (size_t i = 0; s->row && i < s->nended; i++) {
		struct top_row *w = &s->row[s->n];
		const struct ended *e = &s->ended[i];
		struct sums all = e->s;

		if (!(e->n + e->n_left))
			continue;
		sums_plus(&all, &e->left);
		w->ended = e;
		w->ports = (uint32_t)i + 1;
		snprintf(w->name, sizeof(w->name), "%s", e->name);
		w->reason = top_reasons(&all, top) ? top[0] : REASON_NONE;
		memcpy(w->bytes, all.bytes, sizeof(w->bytes));
		s->n++;
	}
}

static void add_procs(struct screen *s, const struct stat_list *l)
{
	enum reason top[REASON_COUNT];
	what_text *what;
	bool any;
	size_t i;

	s->row = calloc(l->n + s->nended + 1, sizeof(*s->row));
	what = whats_make(l, false, &any);
	s->whats = what && any;
	for (i = 0; s->row && i < l->n; i++) {
		struct top_row *w = &s->row[s->n++];
		struct sums sums = { 0 };

		sums_add(&sums, &l->proc[i]);
		w->pid = l->proc[i].pid;
		w->start = l->proc[i].start_time;
		w->live = l->proc[i].nconns + l->proc[i].more_conns;
		snprintf(w->name, sizeof(w->name), "%s", l->proc[i].program);
		w->reason = top_reasons(&sums, top) ? top[0] : REASON_NONE;
		memcpy(w->bytes, sums.bytes, sizeof(w->bytes));
		if (what)
			memcpy(w->what, what[i], sizeof(w->what));
	}
	free(what);
	add_ended(s);
}

/* The filter's words as the user typed them on the screen, split at blanks. */
static void split_filter(const struct screen *s, char *copy, size_t len, struct args *out,
			 char **words, int max)
{
	char *save = NULL, *w;

	snprintf(copy, len, "%s", s->filter);
	out->argc = 0;
	out->argv = words;
	for (w = strtok_r(copy, " ", &save); w && out->argc < max; w = strtok_r(NULL, " ", &save))
		words[out->argc++] = w;
}

static bool take_sample(struct screen *s, const struct request *asked)
{
	struct stat_list l = { 0 };
	struct request r = *asked;
	char copy[sizeof(s->filter)], *words[64];
	uint64_t before[PATH_KINDS];
	double at = now(), secs = s->sampled ? at - s->sampled : 0;
	int k;

	r.sort = NULL;			/* sorted here, by rates too */
	r.all = true;			/* their files go; what they did is kept */
	if (get_list(&r, true, &l))
		return false;
	split_filter(s, copy, sizeof(copy), &r.words, words, 64);
	free(s->old);
	s->old = s->row;
	s->old_n = s->n;
	if (s->old_n)
		qsort(s->old, s->old_n, sizeof(*s->old), by_key);
	s->row = NULL;
	s->n = 0;
	keep_ended(s, &l);
	if (s->conns) {
		ends_fill(&l);
		add_conns(s, &r, &l);
	} else {
		add_procs(s, &l);
	}
	memcpy(before, s->total.bytes, sizeof(before));
	memset(&s->total, 0, sizeof(s->total));
	for (size_t i = 0; i < l.n; i++)
		sums_add(&s->total, &l.proc[i]);
	for (size_t i = 0; i < s->nended; i++) {
		sums_plus(&s->total, &s->ended[i].s);
		sums_plus(&s->total, &s->ended[i].left);
	}
	s->procs = l.n;
	if (secs > 0) {
		uint64_t d[PATH_KINDS];

		add_rates(s, secs);
		for (k = 0; k < PATH_KINDS; k++) {
			d[k] = s->total.bytes[k] > before[k] ? s->total.bytes[k] - before[k] : 0;
			s->rate[k] = (double)d[k] / secs;
		}
		memmove(s->hits, s->hits + 1, sizeof(s->hits) - sizeof(s->hits[0]));
		s->hits[HITS - 1] = hit_of(d);
	}
	s->sampled = at;
	stat_list_clear(&l);
	return true;
}

/* ---- keys ---- */

static void edit_filter(struct screen *s, int key)
{
	size_t len = strlen(s->typed);

	if (key == 27) {
		s->editing = false;
	} else if (key == '\n' || key == KEY_ENTER || key == '\r') {
		char copy[sizeof(s->typed)], *words[64];
		struct args a;
		struct filter *f;
		struct screen t = { 0 };

		snprintf(t.filter, sizeof(t.filter), "%s", s->typed);
		split_filter(&t, copy, sizeof(copy), &a, words, 64);
		f = filter_parse(&a);
		snprintf(s->note, sizeof(s->note), "%s",
			 f ? "" : "not a filter; like: dport = 6379 and path tcp");
		if (f) {
			memcpy(s->filter, s->typed, sizeof(s->filter));
			s->conns = s->conns || s->typed[0];
			s->stale = true;
		}
		filter_free(f);
		s->editing = false;
	} else if (key == KEY_BACKSPACE || key == 127 || key == 8) {
		if (len)
			s->typed[len - 1] = '\0';
	} else if (key >= 0x20 && key < 0x7f && len + 1 < sizeof(s->typed)) {
		s->typed[len] = (char)key;
		s->typed[len + 1] = '\0';
	}
}

static void take_key(struct screen *s, int key)
{
	if (s->editing) {
		edit_filter(s, key);
		return;
	}
	s->note[0] = '\0';
	switch (key) {
	case 'q': stop = 1; break;
	case 'p': s->conns = false; s->stale = true; break;
	case 'c': s->conns = true; s->stale = true; break;
	case 's': s->sort = (s->sort + 1) % SORTS; break;
	case 'S': s->sort = (s->sort + SORTS - 1) % SORTS; break;
	case 'r': s->reverse = !s->reverse; break;
	case ' ': s->paused = !s->paused; break;
	case '+': s->every = s->every < 60 ? s->every + 1 : 60; break;
	case '-': s->every = s->every > 1 ? s->every - 1 : 1; break;
	case 'h':
	case '?': s->help = !s->help; break;
	case '/':
		s->editing = true;
		memcpy(s->typed, s->filter, sizeof(s->typed));
		break;
	case KEY_DOWN: s->from++; break;
	case KEY_UP: s->from -= s->from > 0; break;
	case KEY_NPAGE: s->from += LINES > 8 ? (size_t)LINES - 8 : 1; break;
	case KEY_PPAGE: s->from -= s->from > 10 ? 10 : s->from; break;
	case KEY_HOME: s->from = 0; break;
	}
}

/* ---- the loop ---- */

static void loop(struct screen *s, const struct request *r)
{
	double next = 0;
	unsigned drawn = 0;

	while (!stop) {
		double at = now();

		if (s->stale || (!s->paused && at >= next)) {
			/* rows of another kind, or other ones: no rates from these */
			if (s->stale) {
				s->n = 0;
				s->from = 0;
			}
			take_sample(s, r);
			s->stale = false;
			next = at + s->every;
			drawn++;
		}
		top_draw(s);
		if (r->count && drawn >= r->count)
			return;
		timeout((int)(s->paused ? 1000 : next > now() ? (next - now()) * 1000 + 1 : 0));
		int key = getch();

		if (key == ERR && !isatty(STDIN_FILENO))
			return;
		if (key != ERR && key != KEY_RESIZE)	/* curses has the new size; the next
							 * round draws */
			take_key(s, key);
	}
}

static bool read_sort(struct screen *s, const char *word)
{
	int i;

	for (i = 0; word && i < SORTS; i++)
		if (!strcmp(word, top_sorts[i])) {
			s->sort = i;
			return true;
		}
	if (word)
		complain("--sort: write rate, bytes, pid, program or live");
	return !word;
}

int cmd_top(const struct request *r)
{
	struct screen s = { .every = r->watch ? r->watch : 2 };
	struct sigaction sa = { .sa_handler = on_signal };
	struct filter *f = filter_parse(&r->words);
	int i;

	if (!f || !read_sort(&s, r->sort)) {
		filter_free(f);
		return EXIT_USAGE;
	}
	filter_free(f);
	for (i = 0; i < r->words.argc; i++)
		snprintf(s.filter + strlen(s.filter), sizeof(s.filter) - strlen(s.filter), "%s%s",
			 i ? " " : "", r->words.argv[i]);
	s.conns = s.filter[0] != '\0';
	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
		complain("top needs a terminal; rdmastat -w 1 prints to anything");
		return EXIT_FAILED;
	}
	for (i = 0; i < HITS; i++)
		s.hits[i] = -1;
	setlocale(LC_CTYPE, "");
	s.utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	setenv("ESCDELAY", "50", 0);
	s.ended = calloc(ENDED_MOST, sizeof(*s.ended));
	if (!s.ended) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	if (!newterm(NULL, stdout, stdin)) {
		free(s.ended);
		complain("top: the terminal %s is not known; set TERM",
			 getenv("TERM") ? getenv("TERM") : "");
		return EXIT_FAILED;
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	s.color = r->color && has_colors();
	top_start_colors(&s);
	loop(&s, r);
	endwin();
	free(s.row);
	free(s.old);
	free(s.ended);
	return EXIT_OK;
}
