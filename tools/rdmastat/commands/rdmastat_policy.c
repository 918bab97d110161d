/*
 * rdmastat_policy.c - `rdmastat policy check|explain|show|keys` and `rdmastat reasons`: what the
 * policy code knows, asked from a shell. `policy set|unset|import` are in rdmastat_edit.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/conf.h"
#include "policy/rule.h"
#include "policy/words.h"
#include "ground/rdmastat_json.h"

static const struct request plain = { 0 };	/* for json_print */

/* ---- loading, and errors with the line that they are in ---- */

static void print_source(const char *path, int line, int col)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t cap = 0;
	ssize_t n = -1;
	int k;

	for (k = 0; f && k < line && (n = getline(&text, &cap, f)) > 0; k++)
		;
	if (f)
		fclose(f);
	if (k == line && n > 0 && n < 400) {
		text[strcspn(text, "\n")] = '\0';
		make_printable(text, strlen(text), ' ', ASCII_ONLY);
		fprintf(stderr, "    %s\n    %*s^\n", text, col > 0 ? col - 1 : 0, "");
	}
	free(text);
}

static void print_error(const struct policy_error *err)
{
	char text[POLICY_ERROR_TEXT];

	say_line(stderr, "%s", policy_error_text(err, text, sizeof(text)));
	if (err->line)
		print_source(err->file, err->line, err->col);
}

/* Loads `path`, or the file that a program would use. A missing default file is no error:
 * *builtin. */
static int load(const char *path, struct policy **ret, bool *builtin, struct policy_error *err)
{
	int rc = policy_load(path ? path : policy_path(false), ret, err);

	*builtin = rc == -ENOENT && !path && !policy_path_given(false);
	return *builtin ? 0 : rc;
}

/* ---- check ---- */

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

static int check(int argc, char **argv)
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

/* ---- explain ---- */

enum { EX_PROGRAM, EX_ROLE, EX_LOCAL, EX_PEER, EX_FILE, EX_JSON, EX_OPTIONS };
static const struct opt explain_options[EX_OPTIONS] = {
	[EX_PROGRAM] = { 0, "program", "NAME", "the program's file name, without directory" },
	[EX_ROLE]    = { 0, "role", "ROLE", "client or server; without it, either" },
	[EX_LOCAL]   = { 0, "local", "ADDRESS:PORT", "this end; without it, unknown" },
	[EX_PEER]    = { 0, "peer", "ADDRESS:PORT", "the other end; without it, unknown" },
	[EX_FILE]    = { 'f', "file", "FILE", "this policy file instead of the one in use" },
	[EX_JSON]    = { 'j', "json", NULL, "print JSON" },
};

struct question {
	const char *program, *file;
	enum stream_role role;
	bool json;
	struct sockaddr_storage local, peer;	/* family 0: not known */
};

/* One address and one port, by the rules' own parser. */
static bool parse_end(const char *text, const char *option, struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
	struct addr_pat pat;
	char msg[256];
	size_t at;

	if (addr_pat_parse(text, strlen(text), &pat, &at, msg, sizeof(msg))) {
		complain("--%s: %s", option, msg);
		return false;
	}
	if (!pat.family || pat.port_lo != pat.port_hi ||
	    pat.len != (pat.family == AF_INET ? 32 : 128)) {
		complain("--%s: %s is not one address and one port; write 127.0.0.1:6379 or "
			 "[::1]:6379",
			 option, text);
		return false;
	}
	memset(ret, 0, sizeof(*ret));
	ret->ss_family = pat.family;
	if (pat.family == AF_INET) {
		in->sin_port = htons(pat.port_lo);
		memcpy(&in->sin_addr, pat.addr, 4);
	} else {
		in6->sin6_port = htons(pat.port_lo);
		memcpy(&in6->sin6_addr, pat.addr, 16);
	}
	return true;
}

static bool read_question(struct args *a, struct question *q)
{
	const char *v = NULL;
	int o;

	while ((o = opt_next(a, explain_options, EX_OPTIONS, &v)) >= 0) {
		switch (o) {
		case EX_PROGRAM: q->program = v; break;
		case EX_FILE:	 q->file = v; break;
		case EX_JSON:	 q->json = true; break;
		case EX_LOCAL:
			if (!parse_end(v, "local", &q->local))
				return false;
			break;
		case EX_PEER:
			if (!parse_end(v, "peer", &q->peer))
				return false;
			break;
		case EX_ROLE:
			if (strcmp(v, "client") && strcmp(v, "server")) {
				complain("--role: %s is neither client nor server", v);
				return false;
			}
			q->role = v[0] == 'c' ? ROLE_CLIENT : ROLE_SERVER;
			break;
		}
	}
	if (o == -1 && a->argc) {
		complain("%s: unexpected word; options start with --", a->argv[0]);
		return false;
	}
	return o == -1;
}

static void explain_json(const struct question *q, const struct policy *use,
			 const struct policy_decision *d)
{
	json_object *o = json_root(), *paths = json_object_new_array();
	char text[512];
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		if (d->paths & (1u << i))
			json_object_array_add(paths, json_str(path_name((enum path_kind)i)));
	json_add(o, "paths", paths);
	json_add(o, "file", d->line ? json_str(d->file) : NULL);
	json_add(o, "path", d->line ? json_str(policy_at_path(use, d->at)) : NULL);
	json_add(o, "line", json_num((uint64_t)d->line));
	json_add(o, "text", d->line ? json_str(place_line(use, d->at, text, sizeof(text))) : NULL);
	json_add(o, "reason", json_str(reason_name((unsigned)d->reason)));
	json_add(o, "remedy", d->reason ? json_str(reason_remedy((unsigned)d->reason)) : NULL);
	json_add(o, "peer_here",
		 q->peer.ss_family ? json_object_new_boolean(address_here(&q->peer)) : NULL);
	json_print(&plain, o);
}

static int explain(int argc, char **argv)
{
	struct args a = { argc - 1, argv + 1 };
	struct question q = { .program = "", .role = ROLE_ANY };
	struct policy_error err = { 0 };
	struct policy_decision d;
	const struct policy *use;
	struct policy *p = NULL;
	char text[512];
	bool builtin;
	int i;

	if (!read_question(&a, &q))
		return EXIT_USAGE;
	if (load(q.file, &p, &builtin, &err)) {
		print_error(&err);
		d = (struct policy_decision){ .paths = 1u << PATH_TCP,
					      .reason = REASON_BAD_POLICY };
		if (q.json)
			explain_json(&q, policy_builtin(), &d);
		else
			printf("paths: tcp\nwhy:   %s; %s\n", reason_text(REASON_BAD_POLICY),
			       reason_remedy(REASON_BAD_POLICY));
		return EXIT_FAILED;
	}
	use = p ? p : policy_builtin();
	policy_decide(use, q.program, q.role, (struct sockaddr *)&q.local,
		      (struct sockaddr *)&q.peer, &d);
	if (q.json) {
		explain_json(&q, use, &d);
		policy_free(p);
		return EXIT_OK;
	}
	printf("paths:");
	for (i = 0; i < PATH_KINDS; i++)
		if (d.paths & (1u << i))
			printf(" %s", path_name((enum path_kind)i));
	puts("");
	if (d.line) {
		say_line(stdout, "rule:  %s:%d",
			 policy_at_file(d.at) ? policy_at_path(use, d.at) : d.file, d.line);
		say_line(stdout, "text:  %s", place_line(use, d.at, text, sizeof(text)));
	} else {
		puts("rule:  built-in default");
	}
	if (d.reason)
		printf("why:   %s; %s\n", reason_text((unsigned)d.reason),
		       reason_remedy((unsigned)d.reason));
	if (d.paths & 1u << PATH_SHM && q.peer.ss_family && !address_here(&q.peer))
		puts("note:  the peer's address is none of this host's, and shm does not leave a "
		     "host");
	policy_free(p);
	return EXIT_OK;
}

/* ---- show: every setting with its origin ---- */

struct setting {
	char name[32], value[512], origin[300];	/* value "": none */
};

/* Settings that are no tunables, behind mode and the tunables. */
enum { SHOW_MODE, SHOW_TUNABLES, SHOW_KEY_FILE = SHOW_TUNABLES + CONF_KEYS, SHOW_NETWORKS, SHOW_VIA,
       SHOW_DIR, SHOW_USERS, SHOW_ALL };

static void fill_setting(struct setting *s, const char *name, const char *value,
			 const struct policy *p, uint32_t at)
{
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->value, sizeof(s->value), "%s", value);
	if (at)
		place_text(p, p->file[0].path, at, s->origin, sizeof(s->origin));
	else
		snprintf(s->origin, sizeof(s->origin), "default");
}

/* As many as there is room for, in the file's own form. */
static const char *networks_text(const struct addr_pat *net, size_t n, char *buf, size_t len)
{
	char ip[INET6_ADDRSTRLEN];
	size_t at = 0, i;

	buf[0] = '\0';
	for (i = 0; i < n; i++) {
		bool v6 = net[i].family == AF_INET6;

		if (len - at < sizeof(ip) + 16) {
			snprintf(buf + at, len - at, " ...");
			break;
		}
		inet_ntop(net[i].family, net[i].addr, ip, sizeof(ip));
		at += (size_t)snprintf(buf + at, len - at, v6 ? "%s[%s/%u]" : "%s%s/%u",
				       i ? " " : "", ip, net[i].len);
	}
	return buf;
}

/* By their numbers, as the library takes them. */
static const char *users_text(const struct policy *p, char *buf, size_t len)
{
	size_t at = 0;

	snprintf(buf, len, "%s", p->any_user ? "any" : "");
	for (size_t i = 0; !p->any_user && i < p->nusers && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%u", i ? " " : "", p->user[i]);
	return buf;
}

static void fill_settings(struct setting set[SHOW_ALL], const struct policy *p)
{
	const struct policy *use = p ? p : policy_builtin();
	char buf[512];
	int i;

	fill_setting(&set[SHOW_MODE], "mode", policy_mode_on(use) ? "on" : "off", p, use->mode_at);
	for (i = 0; i < CONF_KEYS; i++)
		fill_setting(&set[SHOW_TUNABLES + i], conf_rows[i].name,
			     conf_value_text(conf_rows[i].type,
					     conf_get(policy_tunables(use), (enum conf_key)i), buf,
					     sizeof(buf)),
			     p, use->set_at[i]);
	fill_setting(&set[SHOW_KEY_FILE], "key_file", use->key_file, p, use->key_at);
	fill_setting(&set[SHOW_NETWORKS], "rdma_networks",
		     networks_text(use->net, use->nnets, buf, sizeof(buf)), p, use->nets_at);
	fill_setting(&set[SHOW_VIA], "rdma_via",
		     networks_text(use->via, use->nvia, buf, sizeof(buf)), p, use->via_at);
	fill_setting(&set[SHOW_DIR], "discovery_dir", use->dir, p, use->dir_at);
	fill_setting(&set[SHOW_USERS], "peer_users", users_text(use, buf, sizeof(buf)), p,
		     use->users_at);
}

static int show(int argc, char **argv)
{
	static const struct opt opts[] =
		{ { 'f', "file", "FILE", "this policy file instead of the one in use" },
		  { 'j', "json", NULL, "print JSON" } };
	struct args a = { argc - 1, argv + 1 };
	struct setting set[SHOW_ALL];
	const char *path = NULL, *v = NULL;
	struct policy_error err = { 0 };
	struct policy *p = NULL;
	bool builtin, json = false;
	int o, i;

	while ((o = opt_next(&a, opts, 2, &v)) >= 0) {
		if (o == 0)
			path = v;
		else
			json = true;
	}
	if (o == -2 || a.argc) {
		if (a.argc)
			complain("policy show: %s: unexpected word; write -f FILE", a.argv[0]);
		return EXIT_USAGE;
	}
	if (load(path, &p, &builtin, &err)) {
		print_error(&err);
		return EXIT_FAILED;
	}
	if (!path)
		path = policy_path(false);
	fill_settings(set, p);
	if (json) {
		json_object *root = json_root(), *list = json_object_new_array();

		for (i = 0; i < SHOW_ALL; i++) {
			json_object *one = json_object_new_object();

			json_add(one, "key", json_str(set[i].name));
			json_add(one, "value", set[i].value[0] ? json_str(set[i].value) : NULL);
			json_add(one, "origin", json_str(set[i].origin));
			json_object_array_add(list, one);
		}
		json_add(root, "settings", list);
		json_print(&plain, root);
	}
	for (i = 0; !json && i < SHOW_ALL; i++)
		say_line(stdout, "%-18s %-8s %s", set[i].name,
			 set[i].value[0] ? set[i].value : "-", set[i].origin);
	if (!json)
		say_line(stdout, "%-18s %-8zu %s", "rules", p ? policy_rules(p) : 0,
			 builtin ? "default" : path);
	policy_free(p);
	return EXIT_OK;
}

/* ---- tables ---- */

static bool asks_help(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return true;
	return false;
}

static bool only_json(int argc, char **argv, bool *json)
{
	*json = argc == 2 && (!strcmp(argv[1], "--json") || !strcmp(argv[1], "-j"));
	return argc == 1 || *json;
}

static int keys(int argc, char **argv)
{
	char d[32], lo[32], hi[32], head[128];
	json_object *list = NULL;
	struct request screen = { 0 };
	bool json;
	int i;

	if (!only_json(argc, argv, &json)) {
		complain("policy keys takes no more words than --json");
		return EXIT_USAGE;
	}
	find_terminal(&screen);
	if (json)
		list = json_object_new_array();
	else if (!screen.width || screen.width >= 60)
		printf("%-18s %8s %8s %8s  %s\n", "KEY", "DEFAULT", "LEAST", "MOST", "MEANING");
	for (i = 0; i < CONF_KEYS; i++) {
		const struct conf_row *r = &conf_rows[i];

		conf_value_text(r->type, r->dflt, d, sizeof(d));
		conf_value_text(r->type, r->min, lo, sizeof(lo));
		conf_value_text(r->type, r->max, hi, sizeof(hi));
		if (json) {
			json_object *o = json_object_new_object();

			json_add(o, "key", json_str(r->name));
			json_add(o, "default", json_str(d));
			json_add(o, "least", json_str(lo));
			json_add(o, "most", json_str(hi));
			json_add(o, "text", json_str(r->doc));
			json_object_array_add(list, o);
		} else {
			bool narrow = screen.width && screen.width < 60;

			snprintf(head, sizeof(head),
				 narrow ? "%s %s (%s to %s) " : "%-18s %8s %8s %8s  ", r->name, d,
				 lo, hi);
			if (narrow)
				print_wrapped(stdout, "", 2, head, screen.width);
			print_wrapped(stdout, narrow ? "  " : head, narrow ? 2 : 47, r->doc,
				      screen.width);
		}
	}
	if (json) {
		json_object *root = json_root();

		json_add(root, "keys", list);
		json_print(&plain, root);
	}
	return EXIT_OK;
}

int cmd_reasons(int argc, char **argv)
{
	json_object *list, *root;
	struct request screen = { 0 };
	bool json;
	unsigned r;
	char head[64];

	if (asks_help(argc, argv)) {
		puts("usage: rdmastat reasons [--json]\n\nWhy connections stay on TCP, each with "
		     "its remedy.");
		return EXIT_OK;
	}
	find_terminal(&screen);
	list = json_object_new_array();
	if (!only_json(argc, argv, &json)) {
		complain("reasons %s: reasons takes no more words than --json", argv[1]);
		json_object_put(list);
		return EXIT_USAGE;
	}
	for (r = REASON_NONE + 1; r < REASON_COUNT; r++) {
		json_object *o = json_object_new_object();

		json_add(o, "reason", json_str(reason_name(r)));
		json_add(o, "text", json_str(reason_text(r)));
		json_add(o, "remedy", json_str(reason_remedy(r)));
		json_object_array_add(list, o);
		if (json)
			continue;
		if (screen.width && screen.width < 60) {
			print_wrapped(stdout, reason_name(r), 2, "", screen.width);
			print_wrapped(stdout, "  ", 2, reason_text(r), screen.width);
			print_wrapped(stdout, "  -> ", 5, reason_remedy(r), screen.width);
			continue;
		}
		snprintf(head, sizeof(head), "%-16s ", reason_name(r));
		print_wrapped(stdout, head, 17, reason_text(r), screen.width);
		print_wrapped(stdout, "                 -> ", 20, reason_remedy(r), screen.width);
	}
	root = json_root();
	json_add(root, "reasons", list);
	if (json)
		json_print(&plain, root);
	else
		json_object_put(root);
	return EXIT_OK;
}

/* ---- the command ---- */

static const struct {
	const char *name, *args, *help;
	int (*run)(int argc, char **argv);
} subcommands[] = {
	{ "check", "[FILE]", "name the first error of a policy file, and rules that never decide",
	  check },
	{ "explain", "[OPTIONS]", "say which rule decides a connection", explain },
	{ "show", "[-f FILE]", "every setting with its value and where that is from", show },
	{ "keys", "", "list the tunables with their ranges", keys },
	{ "set", "[-f FILE] KEY VALUE", "change a setting in the file, in one step", policy_set },
	{ "unset", "[-f FILE] KEY", "take a setting out of the file, so that its default holds",
	  policy_unset },
	{ "import", "[FILE]", "print the rules of a libvma.conf as a policy", policy_import },
};
#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

static void usage(void)
{
	char buf[64];
	size_t i;

	puts("usage: rdmastat policy COMMAND\n\nCommands:");
	for (i = 0; i < SUBCOMMANDS; i++) {
		snprintf(buf, sizeof(buf), "%s %s", subcommands[i].name, subcommands[i].args);
		printf("  %-26s %s\n", buf, subcommands[i].help);
	}
	puts("\nOptions of explain:");
	opt_print(explain_options, EX_OPTIONS);
	puts("\ncheck, explain, show, keys and reasons take --json too.");
}

int cmd_policy(int argc, char **argv)
{
	const char *names[SUBCOMMANDS], *guess = NULL;
	size_t i;

	if (asks_help(argc, argv)) {
		usage();
		return EXIT_OK;
	}
	for (i = 0; i < SUBCOMMANDS; i++) {
		names[i] = subcommands[i].name;
		if (argc > 1 && !strcmp(argv[1], names[i]))
			return subcommands[i].run(argc - 1, argv + 1);
	}
	if (argc > 1)
		guess = suggest_word(argv[1], strlen(argv[1]), names, SUBCOMMANDS);
	if (guess)
		complain("policy %s: did you mean policy %s?", argv[1], guess);
	else
		complain("policy: write policy check, explain, show, keys, set, unset or import");
	return EXIT_USAGE;
}
