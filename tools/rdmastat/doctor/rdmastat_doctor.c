/*
 * rdmastat_doctor.c - `rdmastat doctor [PEER]`: runs the checks, shows each with the fact that
 * was read and what mends it; the exit code is the worst. The checks themselves:
 * rdmastat_machine.c, rdmastat_services.c, rdmastat_devices.c, rdmastat_peer.c, rdmastat_loop.c,
 * rdmastat_cuda.c.
 */
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/findlib.h"
#include "policy/renamed.h"
#include "policy/words.h"
#include "doctor/rdmastat_doctor.h"
#include "ground/rdmastat_json.h"

enum { D_JSON, D_LIB, D_NO_TRANSFER, D_ROOT, D_HELP, D_OPTIONS };
static const struct opt options[D_OPTIONS] = {
	[D_JSON]	= { 'j', "json", NULL, "print JSON" },
	[D_LIB]		= { 'l', "lib", "FILE",
			    "this librdmashim.so instead of the installed one" },
	[D_NO_TRANSFER] = { 0, "no-transfer", NULL, "only look, move no bytes" },
	[D_ROOT]	= { 0, "root", "DIR",
			    "read /sys, /proc and /dev below DIR, such as a copy from another "
				    "machine" },
	[D_HELP]	= { 'h', "help", NULL, "print this text" },
};

void verdict(struct doctor *d, enum verdict v, const char *name, const char *mend, const char *fmt,
	     ...)
{
	struct check *c;
	va_list ap;

	if (d->n == sizeof(d->check) / sizeof(d->check[0]))
		return;
	c = &d->check[d->n++];
	c->verdict = v;
	snprintf(c->name, sizeof(c->name), "%s", name);
	snprintf(c->mend, sizeof(c->mend), "%s", mend);
	va_start(ap, fmt);
	vsnprintf(c->fact, sizeof(c->fact), fmt, ap);
	va_end(ap);
	/* facts are read from files that anybody may have written */
	make_printable(c->name, strlen(c->name), '?', KEEP_UTF8);
	make_printable(c->mend, strlen(c->mend), '?', KEEP_UTF8);
	make_printable(c->fact, strlen(c->fact), '?', KEEP_UTF8);
}

bool fact(const struct doctor *d, char *buf, size_t len, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	size_t n;
	FILE *f;
	bool ok;

	n = (size_t)snprintf(path, sizeof(path), "%s", d->root);
	va_start(ap, fmt);
	vsnprintf(path + n, sizeof(path) - n, fmt, ap);
	va_end(ap);
	f = fopen(path, "re");
	ok = f && fgets(buf, (int)len, f);
	if (f)
		fclose(f);
	if (!ok)
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	make_printable(buf, strlen(buf), '?', ASCII_ONLY);
	return ok;
}

static int not_dots(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

char **names_in(const struct doctor *d, const char *dir)
{
	char path[PATH_MAX];
	struct dirent **e;
	char **names;
	int n, i;

	snprintf(path, sizeof(path), "%s%s", d->root, dir);
	n = scandir(path, &e, not_dots, alphasort);
	if (n < 0)
		return NULL;
	names = calloc((size_t)n + 1, sizeof(*names));
	for (i = 0; i < n; i++) {
		if (names)
			names[i] = strdup(e[i]->d_name);
		free(e[i]);
	}
	free(e);
	if (names && n && !names[0]) {
		free(names);
		return NULL;
	}
	return names;
}

void names_free(char **names)
{
	char **n;

	for (n = names; n && *n; n++)
		free(*n);
	free(names);
}

/* ---- showing ---- */

static const struct {
	const char *word;
	enum tint tint;
} verdicts[] = {
	[V_OK] = { "ok", TINT_GOOD }, [V_NONE] = { "none", TINT_DIM },
		[V_WARN] = { "warn", TINT_WARN }, [V_FAIL] = { "FAIL", TINT_BAD },
};

static void show_check(const struct doctor *d, const struct check *c)
{
	bool narrow = d->r.width && d->r.width < 60;
	char head[128];
	int at = narrow ? 2 : 24;

	snprintf(head, sizeof(head), narrow ? "%s%s%s %s: " : "%s%-4s%s %-18s ",
		 tint(&d->r, verdicts[c->verdict].tint), verdicts[c->verdict].word,
		 tint(&d->r, TINT_OFF), c->name);
	print_wrapped(stdout, head, at, c->fact, d->r.width);
	if (c->mend[0]) {
		snprintf(head, sizeof(head), "%*s-> ", narrow ? 0 : 21, "");
		print_wrapped(stdout, head, at + (narrow ? 1 : 0), c->mend, d->r.width);
	}
}

static enum verdict show(const struct doctor *d)
{
	size_t count[4] = { 0 }, i;
	enum verdict worst = V_OK;
	char sum[128];

	for (i = 0; i < d->n; i++) {
		show_check(d, &d->check[i]);
		count[d->check[i].verdict]++;
		if (d->check[i].verdict > worst)
			worst = d->check[i].verdict;
	}
	snprintf(sum, sizeof(sum), "%zu ok, %zu warning%s, %zu failure%s", count[V_OK],
		 count[V_WARN], plural(count[V_WARN]), count[V_FAIL], plural(count[V_FAIL]));
	print_wrapped(stdout, "", 0, sum, d->r.width);
	return worst;
}

static enum verdict show_json(const struct doctor *d)
{
	json_object *root = json_root(), *a = json_object_new_array();
	enum verdict worst = V_OK;
	size_t i;

	for (i = 0; i < d->n; i++) {
		const struct check *c = &d->check[i];
		json_object *o = json_object_new_object();

		json_add(o, "name", json_str(c->name));
		json_add(o, "old_name", json_str(former_name("check", c->name)));
		json_add(o, "verdict",
			 json_str(c->verdict == V_FAIL ? "fail" : verdicts[c->verdict].word));
		json_add(o, "fact", json_str(c->fact));
		json_add(o, "remedy", c->mend[0] ? json_str(c->mend) : NULL);
		json_object_array_add(a, o);
		if (c->verdict > worst)
			worst = c->verdict;
	}
	json_add(root, "checks", a);
	json_add(root, "worst",
		 json_str(worst == V_FAIL   ? "fail"
			  : worst == V_WARN ? "warn"
					    : "ok"));
	json_print(&d->r, root);
	return worst;
}

/* ---- the command ---- */

static void usage(void)
{
	puts("usage: rdmastat doctor [OPTIONS] [PEER]\n\n"
	     "Checks this machine, and the way to PEER (HOST or HOST:PORT) if one is named.\n"
	     "Exit status: 0 all is well, 3 warnings, 4 failures.\n\nOptions:");
	opt_print(options, D_OPTIONS);
}

int cmd_doctor(int argc, char **argv)
{
	struct args a = { argc - 1, argv + 1 };
	const char *v = NULL, *lib = NULL, *peer = NULL;
	struct doctor *d = calloc(1, sizeof(*d));
	enum verdict worst;
	int o = -1;

	if (!d) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	d->root = "";
	d->transfer = true;
	while (a.argc && o != -2) {
		o = opt_next(&a, options, D_OPTIONS, &v);
		switch (o) {
		case D_JSON:	    d->r.json = true; break;
		case D_LIB:	    lib = v; break;
		case D_ROOT:
			d->root = v;
			d->transfer = false;
			if (!opt_directory(v, "--root"))
				o = -2;
			break;
		case D_NO_TRANSFER: d->transfer = false; break;
		case D_HELP:
			usage();
			free(d);
			return EXIT_OK;
		case -1:
			if (!a.argc)
				break;
			if (peer) {
				complain("doctor: one peer at a time");
				o = -2;
			}
			peer = a.argv[0];
			a.argc--;
			a.argv++;
		}
	}
	if (o == -2) {
		free(d);
		return EXIT_USAGE;
	}
	if (lib)
		setenv("RDMASHIM_LIB", lib, 1);
	if (!find_library(d->lib, sizeof(d->lib)))
		d->lib[0] = '\0';
	find_terminal(&d->r);
	check_machine(d);
	check_versions(d);
	check_go(d);
	check_children(d);
	check_devices(d);
	if (peer)
		check_peer(d, peer);
	if (d->transfer)
		check_transfers(d);
	if (d->transfer && d->lib[0])
		check_cuda(d);
	worst = d->r.json ? show_json(d) : show(d);
	free(d);
	return worst == V_FAIL ? EXIT_FAIL : worst == V_WARN ? EXIT_WARN : EXIT_OK;
}
