/*
 * rdmastat.c - command line of rdmastat: options, commands, refresh, exit codes. One file per
 * command beside it; the format of the counter files is in statfile.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "policy/words.h"
#include "ground/rdmastat.h"
#include "ground/rdmastat_ends.h"
#include "ground/rdmastat_now.h"

enum {
	OPT_CONNS, OPT_JSON, OPT_WATCH, OPT_COUNT, OPT_PID, OPT_PROGRAM, OPT_ALL, OPT_ABSOLUTE,
		OPT_SORT, OPT_COLUMNS, OPT_OUTPUT,
	OPT_LISTEN, OPT_HOST, OPT_SHOW, OPT_SVG, OPT_ROOT, OPT_ADDRESSES, OPT_COLOR, OPT_HELP,
		OPT_VERSION, OPTIONS
};
static const struct opt options[OPTIONS] = {
	[OPT_CONNS]    = { 'c', "connections", NULL, "the same as the command conn" },
	[OPT_JSON]     = { 'j', "json", NULL, "print JSON" },
	[OPT_WATCH]    = { 'w', "watch", "SECS", "print again every SECS seconds" },
	[OPT_COUNT]    = { 'n', "count", "N", "with -w: stop after N times" },
	[OPT_PID]      = { 'p', "pid", "PID", "only this process" },
	[OPT_PROGRAM]  = { 'P', "program", "NAME",
			   "only programs of this name; * and ? are patterns" },
	[OPT_ALL]      = { 'a', "all", NULL,
			   "show dead processes a last time, then remove their files" },
	[OPT_ABSOLUTE] = { 0, "absolute", NULL,
			   "counts since each process began, not since the last reset" },
	[OPT_SORT]     = { 's', "sort", "COLUMN",
			   "sort by a column, largest first; COLUMN:r is the other way round" },
	[OPT_COLUMNS]  = { 'o', "columns", "LIST",
			   "columns to show, with commas; all; help lists them" },
	[OPT_OUTPUT]   = { 'O', "output", "FILE", "write to FILE, which is replaced in one step" },
	[OPT_LISTEN]   = { 0, "listen", "[ADDR:]PORT",
			   "answer HTTP requests there; without ADDR only from this host" },
	[OPT_HOST]     = { 0, "host", "NAMES",
			   "names by which it may be asked besides addresses and localhost; with "
				   "commas, * and ?" },
	[OPT_SHOW]     = { 0, "show", "WHOSE",
			   "own or all processes; own with -O and --listen, which others can read, "
				   "else all" },
	[OPT_SVG]      = { 0, "svg", "FILE", "draw a chart too" },
	[OPT_ROOT]     = { 0, "root", "DIR", "read /sys and /proc below DIR" },
	[OPT_ADDRESSES] = { 0, "addresses", NULL, "addresses as they are, not as numbers" },
	[OPT_COLOR]    = { 0, "color", "WHEN",
			   "auto, always or never; auto: on a terminal, if NO_COLOR is not set" },
	[OPT_HELP]     = { 'h', "help", NULL, "print this text" },
	[OPT_VERSION]  = { 'V', "version", NULL, "print the version" },
};

#define BIT(o) (1u << OPT_##o)
#define VIEW (BIT(JSON) | BIT(WATCH) | BIT(COUNT) | BIT(PID) | BIT(PROGRAM) | BIT(ALL) | \
	BIT(ABSOLUTE))

enum words { WORDS_NONE, WORDS_SOME };

struct command {
	const char *name, *args, *help;
	unsigned accepts;		/* options */
	enum words words;
	/* one of the three */
	int (*view)(const struct request *r, const struct stat_list *l);
	int (*run)(const struct request *r);
	int (*own)(int argc, char **argv);	/* reads its own options */
	unsigned parts;			/* STATFILE_*, what it shows of the files besides
					 * connections and counters */
	bool ends, whole;		/* wants the ends of all connections; the processes that
					 * -p and -P leave out too */
	bool now;			/* wants what is under way, if more than its own columns
					 * is asked for */
};

static const struct command commands[] = {
	{ "overview", "", "processes, totals, why the rest is on TCP (the default)",
	  VIEW | BIT(SORT) | BIT(COLUMNS) | BIT(CONNS), WORDS_NONE, .view = show_overview },
	{ "conn", "[FILTER]", "one line per live connection; a filter like: dport = 6379 and path "
	  "tcp",
	  VIEW | BIT(SORT) | BIT(COLUMNS) | BIT(CONNS), WORDS_SOME, .view = show_connections,
		  .parts = STATFILE_QPS, .ends = true, .now = true },
	{ "link", "", "pairs of processes and what runs between them",
	  VIEW | BIT(SORT) | BIT(COLUMNS), WORDS_NONE, .view = show_links,
		  .parts = STATFILE_QPS | STATFILE_ERRORS, .ends = true, .whole = true },
	{ "listen", "", "where processes listen, connections not accepted yet, and those that came "
	  "in there",
	  VIEW | BIT(SORT) | BIT(COLUMNS), WORDS_NONE, .view = show_listeners, .ends = true },
	{ "calls", "", "how often each libc call was made on a connection, on TCP and on a fast "
	  "path", VIEW | BIT(SORT) | BIT(COLUMNS), WORDS_NONE, .view = show_calls,
		  .parts = STATFILE_CALLS },
	{ "dev", "", "RDMA devices, and what the library moved by RDMA",
	  VIEW | BIT(SORT) | BIT(COLUMNS) | BIT(ROOT), WORDS_NONE, .view = show_devices,
		  .parts = STATFILE_QPS },
	{ "qp", "", "queue pairs: device, numbers, GIDs, MTU, RTT and connections of each link by "
	  "RDMA", VIEW | BIT(SORT) | BIT(COLUMNS), WORDS_NONE, .view = show_qps,
		  .parts = STATFILE_QPS },
	{ "mr", "", "memory that processes have registered with RDMA devices",
	  VIEW | BIT(SORT) | BIT(COLUMNS) | BIT(ROOT), WORDS_NONE, .view = show_memory },
	{ "staging", "", "copies between host and device memory by call site: bytes, share by "
	  "device memory, why not the rest",
	  VIEW, WORDS_NONE, .view = show_staging, .parts = STATFILE_SITES },
	{ "why", "PID[:FD]", "what decided for a process or a connection (also: ADDRESS:PORT), and "
	  "what would change it",
	  BIT(JSON) | BIT(WATCH) | BIT(COUNT), WORDS_SOME, .view = show_why, .parts = STATFILE_QPS,
		  .ends = true, .whole = true, .now = true },
	{ "stacks", "PID", "where each thread of a process stands, and what the library waits for",
	  BIT(JSON), WORDS_SOME, .view = show_stacks, .ends = true, .whole = true },
	{ "top", "[FILTER]", "full screen, live", BIT(WATCH) | BIT(COUNT) | BIT(PID) |
	  BIT(PROGRAM) | BIT(SORT) | BIT(COLOR), WORDS_SOME, .run = cmd_top },
	{ "watch", "[SECS] [COMMAND]", "the same as -w SECS (2) with that command", 0, WORDS_SOME,
	  .view = NULL },
	{ "prometheus", "", "Prometheus text format: to stdout, to a file (-O), or over HTTP "
	  "(--listen)",
	  BIT(OUTPUT) | BIT(LISTEN) | BIT(HOST) | BIT(SHOW) | BIT(WATCH) | BIT(COUNT) | BIT(PID) |
		  BIT(PROGRAM) | BIT(JSON), WORDS_NONE, .run = cmd_prometheus,
			  .parts = STATFILE_QPS },
	{ "record", "FILE", "add the counters to FILE every SECS (1) seconds, as lines of JSON",
	  BIT(WATCH) | BIT(COUNT) | BIT(PID) | BIT(PROGRAM), WORDS_SOME, .run = cmd_record },
	{ "report", "FILE", "what a record shows, as a table and as a chart (--svg)",
	  BIT(JSON) | BIT(SVG) | BIT(PROGRAM), WORDS_SOME, .run = cmd_report },
	{ "reset", "", "count from now on; --absolute still shows all", BIT(JSON) | BIT(ABSOLUTE),
	  WORDS_NONE, .run = cmd_reset, .parts = STATFILE_CALLS | STATFILE_ERRORS },
	{ "doctor", "[PEER]", "check this machine, then move bytes over each path", 0, WORDS_SOME,
	  .own = cmd_doctor },
	{ "bundle", "", "all of this for a report of a fault, as one text: no payload, no keys, no "
	  "addresses",
	  BIT(OUTPUT) | BIT(ADDRESSES), WORDS_NONE, .run = cmd_bundle },
	{ "policy", "COMMAND", "check, explain, show, keys, set, unset, import; rdmastat policy "
	  "--help", 0, WORDS_SOME, .own = cmd_policy },
	{ "reasons", "", "list why connections stay on TCP, with remedies", 0, WORDS_NONE,
	  .own = cmd_reasons },
	{ "doctor-loop", NULL, NULL, 0, WORDS_SOME, .own = cmd_loop },
	{ "doctor-cuda", NULL, NULL, 0, WORDS_SOME, .own = cmd_cuda },
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* ---- options ---- */

static void usage(void)
{
	char buf[64];
	size_t i;

	puts("usage: rdmastat [COMMAND] [OPTIONS]\n\n"
	     "What the library does with TCP connections, and why.\n\n"
	     "Commands:");
	for (i = 0; i < COMMANDS; i++) {
		if (!commands[i].help)
			continue;
		snprintf(buf, sizeof(buf), "%s %s", commands[i].name, commands[i].args);
		printf("  %-24s %s\n", buf, commands[i].help);
	}
	puts("\nOptions:");
	opt_print(options, OPTIONS);
	puts("\nrdmastat COMMAND --help says which of them a command takes.");
}

static void usage_of(const struct command *c)
{
	unsigned takes = c->accepts | (c->view ? BIT(COLOR) : 0) | BIT(HELP);
	int i;

	printf("usage: rdmastat %s %s%s[OPTIONS]\n\n%s.\n\nOptions:\n", c->name, c->args,
	       *c->args ? " " : "", c->help);
	for (i = 0; i < OPTIONS; i++)
		if (takes & (1u << i))
			opt_print(&options[i], 1);
}

static bool read_color(const char *v, struct request *r)
{
	if (!strcmp(v, "always"))
		r->color = true;
	else if (!strcmp(v, "never"))
		r->color = false;
	else if (strcmp(v, "auto")) {
		complain("--color: %s is none of auto, always and never", v);
		return false;
	}
	return true;
}

/* Takes one option into the request. Returns false after a complaint. */
static bool take_option(int o, const char *v, struct request *r)
{
	uint64_t n;

	switch (o) {
	case OPT_JSON:	   r->json = true; break;
	case OPT_ALL:	   r->all = true; break;
	case OPT_ABSOLUTE: r->absolute = true; break;
	case OPT_PROGRAM:  r->program = v; break;
	case OPT_SORT:	   r->sort = v; break;
	case OPT_COLUMNS:  r->columns = v; break;
	case OPT_OUTPUT:   r->output = v; break;
	case OPT_LISTEN:   r->listen = v; break;
	case OPT_HOST:	   r->hosts = v; break;
	case OPT_SHOW:	   r->show = v; break;
	case OPT_SVG:	   r->svg = v; break;
	case OPT_ROOT:	   r->root = v; break;
	case OPT_ADDRESSES: r->addresses = true; break;
	case OPT_COLOR:	   return read_color(v, r);
	case OPT_WATCH:
		if (!opt_number(v, 1, 86400, "--watch", &n))
			return false;
		r->watch = (unsigned)n;
		break;
	case OPT_COUNT:
		if (!opt_number(v, 1, UINT_MAX, "--count", &n))
			return false;
		r->count = (unsigned)n;
		break;
	case OPT_PID:
		if (!opt_number(v, 1, INT_MAX, "--pid", &n))
			return false;
		r->pid = (pid_t)n;
		break;
	}
	return true;
}

static const struct command *find_command(const char *word)
{
	const char *names[COMMANDS], *guess;
	size_t i, n = 0;

	for (i = 0; i < COMMANDS; i++) {
		if (!strcmp(word, commands[i].name))
			return &commands[i];
		if (commands[i].help)
			names[n++] = commands[i].name;
	}
	guess = suggest_word(word, strlen(word), names, n);
	if (guess)
		complain("unknown command %s; did you mean %s?", word, guess);
	else
		complain("unknown command %s; rdmastat --help lists them", word);
	return NULL;
}

/* watch [SECS]: turns into -w. A following word is the command. */
static bool take_watch(struct args *a, struct request *r)
{
	uint64_t n = 2;

	if (a->argc && a->argv[0][0] >= '0' && a->argv[0][0] <= '9') {
		if (!opt_number(a->argv[0], 1, 86400, "watch", &n))
			return false;
		a->argc--;
		a->argv++;
	}
	if (!r->watch)
		r->watch = (unsigned)n;
	return true;
}

struct line {
	const struct command *cmd;	/* NULL: none named */
	unsigned used;			/* options given */
	bool help, conns;
	char **words;			/* as many places as argv */
	int nwords;
};

/* A command that reads its own options gets those too that stand before its name, from `first`
 * on. */
static int run_own(const struct command *c, struct args *a, char **first)
{
	char *name = a->argv[0];
	size_t before = (size_t)(a->argv - first);

	memmove(first + 1, first, before * sizeof(*first));
	first[0] = name;
	return c->own(a->argc + (int)before, first);
}

/* Reads options, the command and its words, in any order. Returns -1 to go on, else the exit
 * code. */
static int read_line(struct args *a, struct request *r, struct line *ln)
{
	char **first = a->argv;
	const char *v = NULL;
	bool only_words = false;
	int o;

	while (a->argc) {
		if (!only_words && a->argv[0][0] == '-' && a->argv[0][1]) {
			only_words = !strcmp(a->argv[0], "--");
			o = opt_next(a, options, OPTIONS, &v);
			if (o == -2 || (o >= 0 && !take_option(o, v, r)))
				return EXIT_USAGE;
			if (o >= 0)
				ln->used |= 1u << o;
			continue;
		}
		if (!ln->cmd) {
			const struct command *c = find_command(a->argv[0]);

			if (!c)
				return EXIT_USAGE;
			if (c->own)
				return run_own(c, a, first);
			a->argc--;
			a->argv++;
			if (c->view || c->run)
				ln->cmd = c;
			else if (!take_watch(a, r))
				return EXIT_USAGE;
			continue;
		}
		ln->words[ln->nwords++] = a->argv[0];
		a->argc--;
		a->argv++;
	}
	return -1;
}

/* ---- printing ---- */

int finish(int rc)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return rc;
	complain("cannot write the output: %s", strerror(errno));
	return EXIT_FAILED;
}

/* Else nothing is shown of it. */
static bool asks_for_now(const struct command *c, const struct request *r)
{
	return c->now && (r->json || r->columns || r->sort || c->whole);
}

static void look_now(const struct request *r, struct stat_list *l)
{
	struct stat_list all = { 0 };
	struct pairs *ps;

	if ((r->pid || r->program) && !get_all(r, true, &all))	/* the other ends */
		ends_fill(&all);
	ps = pairs_make(all.n ? &all : l);
	conns_now(l, ps);
	pairs_free(ps);
	stat_list_clear(&all);
	for (size_t i = 0; i < l->n; i++) {	/* only their round trips were wanted */
		free(l->proc[i].qps);
		l->proc[i].qps = NULL;
		l->proc[i].nqps = 0;
	}
}

static int print_all(const struct command *c, const struct request *r)
{
	bool clear = r->watch && !r->json && isatty(STDOUT_FILENO);
	struct stat_list l = { 0 };
	unsigned i;
	int rc;

	for (i = 0; ; i++) {
		if (clear)
			fputs("\033[H\033[2J", stdout);
		else if (i && !r->json)
			putchar('\n');
		/* what is wrong with a file is said once, not at every refresh */
		rc = c->whole ? get_all(r, i > 0, &l) : get_list(r, i > 0, &l);
		if (!rc && c->ends)
			ends_fill(&l);
		if (!rc && asks_for_now(c, r))
			look_now(r, &l);
		if (!rc)
			rc = c->view(r, &l);
		stat_list_clear(&l);
		if (rc || !r->watch || (r->count && i + 1 >= r->count))
			return rc;
		rc = finish(rc);	/* nobody listens any more: stop */
		if (rc)
			return rc;
		sleep(r->watch);
	}
}

void find_terminal(struct request *r)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM"), *columns = getenv("COLUMNS");
	struct winsize w;
	uint64_t v;
	bool over;

	if (isatty(STDOUT_FILENO)) {
		r->color = !(no && *no) && term && *term && strcmp(term, "dumb");
		r->width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
	} else if (columns && parse_digits(columns, strlen(columns), &v, &over) && v >= 1 &&
		   v <= 10000) {
		r->width = (int)v;	/* asked for, as a shell's own COLUMNS is not exported */
	}
}

static int check_line(const struct line *ln, const struct command *c)
{
	unsigned alien = ln->used & ~(c->accepts | BIT(HELP) | BIT(VERSION) | BIT(COLOR));
	int i;

	for (i = 0; i < OPTIONS; i++)
		if (alien & (1u << i)) {
			complain("--%s does not go with %s; rdmastat %s --help lists what does",
				 options[i].name, c->name, c->name);
			return EXIT_USAGE;
		}
	if (ln->nwords && c->words == WORDS_NONE) {
		complain("%s: unexpected word; %s takes none", ln->words[0], c->name);
		return EXIT_USAGE;
	}
	return EXIT_OK;
}

static int run(struct args *a, struct line *ln)
{
	struct request r = { 0 };
	const struct command *c;
	int rc;

	find_terminal(&r);
	rc = read_line(a, &r, ln);
	if (rc >= 0)
		return rc;
	if (ln->used & BIT(VERSION)) {
		printf("rdmastat %s\n", rdmashim_version);
		return EXIT_OK;
	}
	if (ln->used & BIT(HELP)) {
		if (ln->cmd)
			usage_of(ln->cmd);
		else
			usage();
		return EXIT_OK;
	}
	c = ln->cmd ? ln->cmd : &commands[ln->used & BIT(CONNS) ? 1 : 0];
	rc = check_line(ln, c);
	if (rc || (r.root && !opt_directory(r.root, "--root")))
		return rc ? rc : EXIT_USAGE;
	r.words = (struct args){ ln->nwords, ln->words };
	r.parts = c->now && !asks_for_now(c, &r) ? 0 : c->parts;
	return c->run ? c->run(&r) : print_all(c, &r);
}

int main(int argc, char **argv)
{
	struct args a = { argc ? argc - 1 : 0, argv + (argc ? 1 : 0) };
	struct line ln = { 0 };
	int rc;

	/* a closed fd 1 would become the first file opened, and be written to */
	if (fcntl(STDOUT_FILENO, F_GETFD) < 0)
		return EXIT_FAILED;
	signal(SIGPIPE, SIG_IGN);	/* a reader that went away is an error to be told, not a
					 * death */
	ln.words = calloc((size_t)argc + 1, sizeof(*ln.words));
	if (!ln.words) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	rc = finish(run(&a, &ln));
	free(ln.words);
	return rc;
}
