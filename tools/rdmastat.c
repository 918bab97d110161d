/*
 * rdmastat.c - command line of rdmastat: options, refresh, exit codes. The views are in rdmastat_show.c and
 * rdmastat_json.c, `policy` and `reasons` in rdmastat_policy.c, the files' format in statfile.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../policy/words.h"
#include "rdmastat.h"

#ifndef RDMASHIM_VERSION
#define RDMASHIM_VERSION "0.1"
#endif

static const struct {
	const char *name, *args, *help;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "policy", "check [FILE]", "parse a policy file and name its first error", cmd_policy },
	{ "policy", "explain [OPTIONS]", "say which rule decides a connection", NULL },
	{ "policy", "keys", "list the tunables with their ranges", NULL },
	{ "calls", "[-j] [-w SECS] [-p PID]", "how often each call was made on a connection", NULL },
	{ "reasons", "", "list why connections stay on TCP, with remedies", cmd_reasons },
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

enum { OPT_CONNS, OPT_JSON, OPT_WATCH, OPT_COUNT, OPT_PID, OPT_ALL, OPT_HELP, OPT_VERSION, OPTIONS };
static const struct opt options[OPTIONS] = {
	[OPT_CONNS]   = { 'c', "connections", NULL, "one line per live connection" },
	[OPT_JSON]    = { 'j', "json", NULL, "print JSON" },
	[OPT_WATCH]   = { 'w', "watch", "SECS", "print again every SECS seconds" },
	[OPT_COUNT]   = { 'n', "count", "N", "with -w: stop after N times" },
	[OPT_PID]     = { 'p', "pid", "PID", "only this process" },
	[OPT_ALL]     = { 'a', "all", NULL, "show dead processes a last time, then remove their files" },
	[OPT_HELP]    = { 'h', "help", NULL, "print this text" },
	[OPT_VERSION] = { 'V', "version", NULL, "print the version" },
};

struct request {
	bool conns, calls, json, all;
	unsigned watch, count;		/* seconds, 0 = once; times, 0 = for ever */
	pid_t pid;
};

void complain(const char *fmt, ...)
{
	va_list ap;

	fputs("rdmastat: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* ---- options ---- */

static int unknown_option(const char *word, const struct opt *opts, size_t n)
{
	const char *names[16], *guess;
	size_t i, len = strcspn(word, "=");

	for (i = 0; i < n && i < 16; i++)
		names[i] = opts[i].name;
	guess = len > 2 ? suggest_word(word + 2, len - 2, names, i) : NULL;
	if (guess)
		complain("unknown option %s; did you mean --%s?", word, guess);
	else
		complain("unknown option %s; rdmastat --help lists them", word);
	return -2;
}

static int find_option(const char *word, const struct opt *opts, size_t n)
{
	size_t i, len = strcspn(word, "=");

	for (i = 0; i < n; i++) {
		if (word[1] != '-' && opts[i].letter && opts[i].letter == word[1])
			return (int)i;
		if (word[1] == '-' && strlen(opts[i].name) == len - 2 && !strncmp(opts[i].name, word + 2, len - 2))
			return (int)i;
	}
	return -1;
}

int opt_next(struct args *a, const struct opt *opts, size_t n, const char **value)
{
	const char *word = a->argc ? a->argv[0] : "", *inside;
	int i;

	if (word[0] != '-' || !word[1])
		return -1;
	a->argc--;
	a->argv++;
	if (!strcmp(word, "--"))
		return -1;
	i = find_option(word, opts, n);
	if (i < 0)
		return unknown_option(word, opts, n);
	/* the value in the same word: --name=value or -wVALUE */
	inside = word[1] == '-' ? strchr(word, '=') : word[2] ? word + 1 : NULL;
	if (!opts[i].arg) {
		if (!inside)
			return i;
		complain("%s: --%s takes no value; give options one by one", word, opts[i].name);
		return -2;
	}
	if (inside) {
		*value = inside + 1;
		return i;
	}
	if (!a->argc) {
		complain("%s needs a value: --%s %s", word, opts[i].name, opts[i].arg);
		return -2;
	}
	*value = a->argv[0];
	a->argc--;
	a->argv++;
	return i;
}

void opt_print(const struct opt *opts, size_t n)
{
	char buf[64];
	size_t i;

	for (i = 0; i < n; i++) {
		snprintf(buf, sizeof(buf), "--%s%s%s", opts[i].name, opts[i].arg ? " " : "", opts[i].arg ? opts[i].arg : "");
		if (opts[i].letter)
			printf("  -%c, %-22s %s\n", opts[i].letter, buf, opts[i].help);
		else
			printf("      %-22s %s\n", buf, opts[i].help);
	}
}

static void usage(void)
{
	char buf[64];
	size_t i;

	puts("usage: rdmastat [OPTIONS]          processes under the shim, totals, reasons for TCP\n"
	     "       rdmastat COMMAND\n\n"
	     "Options:");
	opt_print(options, OPTIONS);
	puts("\nCommands:");
	for (i = 0; i < COMMANDS; i++) {
		snprintf(buf, sizeof(buf), "%s %s", commands[i].name, commands[i].args);
		printf("  %-26s %s\n", buf, commands[i].help);
	}
}

static bool number(const char *s, uint64_t min, uint64_t max, const char *what, uint64_t *ret)
{
	bool over;
	size_t n = parse_digits(s, strlen(s), ret, &over);

	if (n && !s[n] && !over && *ret >= min && *ret <= max)
		return true;
	complain("%s: %s is not a whole number from %llu to %llu", what, s, (unsigned long long)min, (unsigned long long)max);
	return false;
}

/* Returns -1 to go on, else the exit code. */
static int read_options(struct args *a, struct request *r)
{
	const char *v = NULL;
	uint64_t n;
	int o;

	while ((o = opt_next(a, options, OPTIONS, &v)) >= 0) {
		switch (o) {
		case OPT_CONNS: r->conns = true; break;
		case OPT_JSON:	r->json = true; break;
		case OPT_ALL:	r->all = true; break;
		case OPT_HELP:
			usage();
			return EXIT_OK;
		case OPT_VERSION:
			puts("rdmastat " RDMASHIM_VERSION);
			return EXIT_OK;
		case OPT_WATCH:
			if (!number(v, 1, 86400, "--watch", &n))
				return EXIT_USAGE;
			r->watch = (unsigned)n;
			break;
		case OPT_COUNT:
			if (!number(v, 1, UINT_MAX, "--count", &n))
				return EXIT_USAGE;
			r->count = (unsigned)n;
			break;
		case OPT_PID:
			if (!number(v, 1, INT_MAX, "--pid", &n))
				return EXIT_USAGE;
			r->pid = (pid_t)n;
			break;
		}
	}
	return o == -2 ? EXIT_USAGE : -1;
}

static int run_command(struct args *a)
{
	const char *names[COMMANDS], *guess;
	size_t i;

	for (i = 0; i < COMMANDS; i++) {
		names[i] = commands[i].name;
		if (commands[i].run && !strcmp(a->argv[0], commands[i].name))
			return commands[i].run(a->argc, a->argv);
	}
	guess = suggest_word(a->argv[0], strlen(a->argv[0]), names, COMMANDS);
	if (guess)
		complain("unknown command %s; did you mean %s?", a->argv[0], guess);
	else
		complain("unknown command %s; rdmastat --help lists them", a->argv[0]);
	return EXIT_USAGE;
}

/* ---- printing ---- */

static void on_bad(const char *path, int error)
{
	const char *what = error == -EPROTO ? "written by another version of the shim" :
			   error == -EBADMSG ? "not a counter file, or damaged" :
			   error == -EPERM ? "not owned by its user, or open to others" : strerror(-error);

	complain("left out %s: %s", path, what);
}

static int print_once(const struct request *r, bool first)
{
	struct stat_list l = { 0 };

	/* what is wrong with a file is said once, not at every refresh */
	if (statfile_list(r->all, r->pid, first ? on_bad : NULL, &l)) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	if (r->pid && !l.n) {
		complain("no counters of process %d: it is gone, belongs to another user, or was started without librdmashim.so",
			 (int)r->pid);
		return EXIT_FAILED;
	}
	if (r->calls && r->json)
		json_calls(&l, r->watch);
	else if (r->calls)
		show_calls(&l);
	else if (r->json && r->conns)
		json_connections(&l, r->watch);
	else if (r->json)
		json_processes(&l, r->watch);
	else if (r->conns)
		show_connections(&l);
	else
		show_processes(&l);
	stat_list_clear(&l);
	return EXIT_OK;
}

static int finish(int rc)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return rc;
	complain("cannot write the output: %s", strerror(errno));
	return EXIT_FAILED;
}

static int print_all(const struct request *r)
{
	bool clear = r->watch && !r->json && isatty(STDOUT_FILENO);
	unsigned i;
	int rc;

	for (i = 0; ; i++) {
		if (clear)
			fputs("\033[H\033[2J", stdout);
		else if (i && !r->json)
			putchar('\n');
		rc = print_once(r, !i);
		if (rc || !r->watch || (r->count && i + 1 >= r->count))
			return rc;
		rc = finish(rc);	/* nobody listens any more: stop */
		if (rc)
			return rc;
		sleep(r->watch);
	}
}

int main(int argc, char **argv)
{
	struct args a = { argc ? argc - 1 : 0, argv + (argc ? 1 : 0) };
	struct request r = { 0 };
	int rc;

	/* a closed fd 1 would become the first file opened, and be written to */
	if (fcntl(STDOUT_FILENO, F_GETFD) < 0)
		return EXIT_FAILED;
	rc = read_options(&a, &r);
	if (rc < 0 && a.argc && !strcmp(a.argv[0], "calls")) {	/* a view, with the same options */
		r.calls = true;
		a.argc--;
		a.argv++;
		rc = read_options(&a, &r);
		if (rc < 0 && a.argc) {
			complain("calls: %s is not an option", a.argv[0]);
			rc = EXIT_USAGE;
		}
	}
	if (rc < 0)
		rc = a.argc ? run_command(&a) : print_all(&r);
	return finish(rc);
}
