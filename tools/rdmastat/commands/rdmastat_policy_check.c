/*
 * rdmastat_policy_check.c - `rdmastat policy check`: the first error of a policy file, and what
 * stands in it for nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/rule.h"
#include "policy/words.h"
#include "commands/rdmastat_policy.h"

static bool covers_end(const struct addr_pat *a, const struct addr_pat *b)
{
	unsigned i;

	if (b->port_lo < a->port_lo || b->port_hi > a->port_hi)
		return false;
	if (!a->family)
		return true;
	if (a->family != b->family || a->len > b->len)
		return false;
	for (i = 0; i < a->len; i++)
		if ((a->addr[i / 8] ^ b->addr[i / 8]) & (0x80 >> i % 8))
			return false;
	return true;
}

/* Does rule a match whatever b matches? Programs: only if a's pattern is * or the same. */
static bool covers(const struct rule *a, const struct rule *b)
{
	bool same = a->program_len == b->program_len &&
		    !memcmp(a->program, b->program, a->program_len);

	return (word_is(a->program, a->program_len, "*") || same) && (a->client || !b->client) &&
	       (a->server || !b->server) && covers_end(&a->srv, &b->srv) &&
	       covers_end(&a->cli, &b->cli);
}

/* Rules that never decide. Returns how many; tells each on stderr, or adds it to `list`. */
static size_t idle_rules(const struct policy *p, json_object *list)
{
	size_t i, k, n = 0;

	for (i = 1; i < p->nrules; i++)
		for (k = 0; k < i; k++) {
			uint32_t at = p->rules[i].at, by = p->rules[k].at;
			char msg[400], place[300];

			if (!covers(&p->rules[k], &p->rules[i]))
				continue;
			snprintf(place, sizeof(place), "line %d", policy_at_line(by));
			snprintf(
				msg, sizeof(msg),
				"this rule never decides: %s does, for all that it matches",
				policy_at_file(at) == policy_at_file(by)
					? place
					: place_text(p, p->file[0].path, by, place, sizeof(place)));
			if (list) {
				json_object *o = json_object_new_object();

				json_add(o, "file", json_str(policy_at_path(p, at)));
				json_add(o, "line", json_num((uint64_t)policy_at_line(at)));
				json_add(o, "message", json_str(msg));
				json_object_array_add(list, o);
			} else {
				say_line(stderr, "%s:%d:1: warning: %s", policy_at_path(p, at),
					 policy_at_line(at), msg);
				print_source(policy_at_path(p, at), policy_at_line(at), 1);
			}
			n++;
			break;
		}
	return n;
}

/* What a stranger put where a pattern looks. Tells it on stderr, or adds it to `list`. */
static void strangers_files(const struct policy *p, json_object *list)
{
	const char *one;
	char msg[POLICY_PATH + 100];
	json_object *o;

	if (!policy_skipped(p, &one))
		return;
	snprintf(msg, sizeof(msg),
		 "%s is left out: a stranger's, in a directory where others may write", one);
	if (!list) {
		say_line(stderr, "%s: warning: %s", p->file[0].path, msg);
		return;
	}
	o = json_object_new_object();
	json_add(o, "file", json_str(p->file[0].path));
	json_add(o, "line", json_num(0));
	json_add(o, "message", json_str(msg));
	json_object_array_add(list, o);
}

/* Names that are others now. Tells each on stderr, or adds it to `list`. */
static void old_names_of(const struct policy *p, json_object *list)
{
	char text[POLICY_OLD_TEXT];
	json_object *o;
	uint32_t at;

	for (unsigned i = 0; policy_old_name(p, i, &at, text, sizeof(text)); i++) {
		if (!list) {
			say_line(stderr, "%s:%d:1: warning: %s", policy_at_path(p, at),
				 policy_at_line(at), text);
			continue;
		}
		o = json_object_new_object();
		json_add(o, "file", json_str(policy_at_path(p, at)));
		json_add(o, "line", json_num((uint64_t)policy_at_line(at)));
		json_add(o, "message", json_str(text));
		json_object_array_add(list, o);
	}
}

static int check_json(const char *path, int rc, bool builtin, const struct policy *p,
		      const struct policy_error *err)
{
	json_object *o = json_root(), *errors = json_object_new_array(),
		    *warnings = json_object_new_array(), *includes = json_object_new_array(), *e;
	unsigned i;

	json_add(o, "file", json_str(path));
	json_add(o, "exists",
		 json_object_new_boolean(!builtin && (rc != -ENOENT || strcmp(err->file, path))));
	json_add(o, "good", json_object_new_boolean(!rc));
	if (rc) {
		e = json_object_new_object();
		json_add(e, "file", json_str(err->file));
		json_add(e, "line", err->line ? json_num((uint64_t)err->line) : NULL);
		json_add(e, "column", err->line ? json_num((uint64_t)err->col) : NULL);
		json_add(e, "message", json_str(err->msg));
		json_object_array_add(errors, e);
	} else if (p) {
		idle_rules(p, warnings);
		strangers_files(p, warnings);
		old_names_of(p, warnings);
		for (i = 1; i < p->nfiles; i++)
			json_object_array_add(includes, json_str(p->file[i].path));
	}
	json_add(o, "includes", includes);
	json_add(o, "errors", errors);
	json_add(o, "warnings", warnings);
	json_add(o, "mode", rc ? NULL : json_str(!p || policy_mode_on(p) ? "on" : "off"));
	json_add(o, "rules", json_num(p ? policy_rules(p) : 0));
	json_print(&plain, o);
	return rc ? EXIT_FAILED : EXIT_OK;
}

int check(int argc, char **argv)
{
	static const struct opt opts[] = { { 'j', "json", NULL, "print JSON" } };
	struct args a = { argc - 1, argv + 1 };
	const char *v, *path = NULL;
	char with[64] = "";
	struct policy_error err = { 0 };
	struct policy *p = NULL;
	bool builtin, json = false;
	int rc, o = -1;

	while (a.argc) {
		o = opt_next(&a, opts, 1, &v);
		if (o == -2)
			return EXIT_USAGE;
		if (o == 0) {
			json = true;
			continue;
		}
		if (!a.argc)
			break;
		if (path) {
			complain("one file at a time: rdmastat policy check [FILE]");
			return EXIT_USAGE;
		}
		path = a.argv[0];
		a.argc--;
		a.argv++;
	}
	rc = load(path, &p, &builtin, &err);
	if (!path)
		path = policy_path(false);
	if (json) {
		rc = check_json(path, rc, builtin, rc || builtin ? NULL : p, &err);
		policy_free(p);
		return rc;
	}
	if (rc) {
		print_error(&err);
		return EXIT_FAILED;
	}
	if (builtin) {
		say_line(stdout,
			 "%s: no such file; the built-in default holds (same host: on, RDMA: off)",
			 path);
		return EXIT_OK;
	}
	idle_rules(p, NULL);
	strangers_files(p, NULL);
	old_names_of(p, NULL);
	if (p->nfiles > 1)
		snprintf(with, sizeof(with), ", with %u included file%s", p->nfiles - 1,
			 plural(p->nfiles - 1));
	say_line(stdout, "%s: good, mode %s, %zu rule%s%s", path, policy_mode_on(p) ? "on" : "off",
		 policy_rules(p), plural(policy_rules(p)), with);
	policy_free(p);
	return EXIT_OK;
}
