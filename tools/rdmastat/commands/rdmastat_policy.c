/*
 * rdmastat_policy.c - `rdmastat policy show|keys` and `rdmastat reasons`, and the table of what
 * `rdmastat policy` does: what the policy code knows, asked from a shell. `check` and `explain`
 * are in rdmastat_policy_check.c and rdmastat_policy_explain.c, `set` and `unset` in
 * rdmastat_edit.c, `import` in rdmastat_import.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/conf.h"
#include "policy/rule.h"
#include "policy/words.h"
#include "commands/rdmastat_policy.h"

/* ---- loading, and errors with the line that they are in ---- */

void print_source(const char *path, int line, int col)
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

void print_error(const struct policy_error *err)
{
	char text[POLICY_ERROR_TEXT];

	say_line(stderr, "%s", policy_error_text(err, text, sizeof(text)));
	if (err->line)
		print_source(err->file, err->line, err->col);
}

int load(const char *path, struct policy **ret, bool *builtin, struct policy_error *err)
{
	int rc = policy_load(path ? path : policy_path(false), ret, err);

	*builtin = rc == -ENOENT && !path && !policy_path_given(false);
	return *builtin ? 0 : rc;
}

/* ---- show: every setting with its origin ---- */

struct setting {
	char name[32], value[512], origin[300];	/* value "": none */
};

/* Settings that are no tunables, behind mode and the tunables. */
enum { SHOW_MODE, SHOW_TUNABLES, SHOW_KEY_FILE = SHOW_TUNABLES + CONF_KEYS, SHOW_NETWORKS, SHOW_VIA,
       SHOW_DIR, SHOW_ACROSS, SHOW_USERS, SHOW_ALL };

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
	fill_setting(&set[SHOW_ACROSS], "cross_ns_dir", use->across_dir, p, use->across_at);
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
