/*
 * rdmastat_policy.c - `rdmastat policy check|explain|keys` and `rdmastat reasons`: what the policy code knows,
 * asked from a shell.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../policy/conf.h"
#include "../policy/rule.h"
#include "../policy/words.h"
#include "rdmastat.h"

/* Loads `path`, or the file that a program would use. A missing default file is no error: *builtin. Tells errors. */
static int load(const char *path, struct policy **ret, bool *builtin)
{
	const char *file = path ? path : policy_path(false);
	struct policy_error err;
	int rc = policy_load(file, ret, &err);

	*builtin = false;
	if (!rc)
		return 0;
	if (rc == -ENOENT && !path && !getenv("RDMASHIM_CONF")) {
		*builtin = true;
		return 0;
	}
	if (err.line)
		fprintf(stderr, "%s:%d:%d: %s\n", err.file, err.line, err.col, err.msg);
	else
		fprintf(stderr, "%s: %s\n", err.file, err.msg);
	return rc;
}

static int check(int argc, char **argv)
{
	struct policy *p;
	bool builtin;

	if (argc > 2) {
		complain("one file at a time: rdmastat policy check [FILE]");
		return EXIT_USAGE;
	}
	if (load(argc == 2 ? argv[1] : NULL, &p, &builtin))
		return EXIT_FAILED;
	if (builtin) {
		printf("%s: no such file; the built-in default holds (same host: on, RDMA: off)\n", policy_path(false));
		return EXIT_OK;
	}
	printf("%s: good, mode %s, %zu rules\n", argc == 2 ? argv[1] : policy_path(false), policy_mode_on(p) ? "on" : "off",
	       policy_rules(p));
	policy_free(p);
	return EXIT_OK;
}

/* ---- explain ---- */

enum { EX_PROGRAM, EX_ROLE, EX_LOCAL, EX_PEER, EX_FILE, EX_OPTIONS };
static const struct opt explain_options[EX_OPTIONS] = {
	[EX_PROGRAM] = { 0, "program", "NAME", "the program's file name, without directory" },
	[EX_ROLE]    = { 0, "role", "ROLE", "client or server; without it, either" },
	[EX_LOCAL]   = { 0, "local", "ADDRESS:PORT", "this end; without it, unknown" },
	[EX_PEER]    = { 0, "peer", "ADDRESS:PORT", "the other end; without it, unknown" },
	[EX_FILE]    = { 'f', "file", "FILE", "this policy file instead of the one in use" },
};

struct question {
	const char *program, *file;
	enum stream_role role;
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
	if (!pat.family || pat.port_lo != pat.port_hi || pat.len != (pat.family == AF_INET ? 32 : 128)) {
		complain("--%s: %s is not one address and one port; write 127.0.0.1:6379 or [::1]:6379", option, text);
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

static void print_line_of(const struct policy *p, int line)
{
	const char *s = p->text, *end;

	while (s && --line > 0) {
		s = strchr(s, '\n');
		s = s ? s + 1 : NULL;
	}
	if (!s)
		return;
	end = strchrnul(s, '\n');
	printf("text:  ");
	for (; s < end; s++)
		putchar((unsigned char)*s < 0x20 || *s == 0x7f ? ' ' : *s);
	putchar('\n');
}

static int explain(int argc, char **argv)
{
	struct args a = { argc - 1, argv + 1 };
	struct question q = { .program = "", .role = ROLE_ANY };
	struct policy_decision d;
	const struct policy *use;
	struct policy *p = NULL;
	bool builtin;
	int i;

	if (!read_question(&a, &q))
		return EXIT_USAGE;
	if (load(q.file, &p, &builtin)) {
		printf("paths: tcp\nwhy:   %s; %s\n", reason_text(REASON_BAD_POLICY), reason_remedy(REASON_BAD_POLICY));
		return EXIT_FAILED;
	}
	use = p ? p : policy_builtin();
	policy_decide(use, q.program, q.role, (struct sockaddr *)&q.local, (struct sockaddr *)&q.peer, &d);
	printf("paths:");
	for (i = 0; i < PATH_KINDS; i++)
		if (d.paths & (1u << i))
			printf(" %s", path_name((enum path_kind)i));
	if (d.line) {
		printf("\nrule:  %s:%d\n", d.file, d.line);
		print_line_of(use, d.line);
	} else {
		printf("\nrule:  built-in default\n");
	}
	if (d.reason)
		printf("why:   %s; %s\n", reason_text((unsigned)d.reason), reason_remedy((unsigned)d.reason));
	policy_free(p);
	return EXIT_OK;
}

/* ---- tables ---- */

static int keys(int argc, char **argv)
{
	char d[32], lo[32], hi[32];
	int i;

	(void)argv;
	if (argc > 1) {
		complain("policy keys takes no more words");
		return EXIT_USAGE;
	}
	printf("%-18s %8s %8s %8s  %s\n", "KEY", "DEFAULT", "LEAST", "MOST", "MEANING");
	for (i = 0; i < CONF_KEYS; i++) {
		const struct conf_row *r = &conf_rows[i];

		printf("%-18s %8s %8s %8s  %s\n", r->name, conf_value_text(r->type, r->dflt, d, sizeof(d)),
		       conf_value_text(r->type, r->min, lo, sizeof(lo)), conf_value_text(r->type, r->max, hi, sizeof(hi)), r->doc);
	}
	return EXIT_OK;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} subcommands[] = {
	{ "check", check }, { "explain", explain }, { "keys", keys },
};
#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

int cmd_policy(int argc, char **argv)
{
	const char *names[SUBCOMMANDS], *guess = NULL;
	size_t i;

	for (i = 0; i < SUBCOMMANDS; i++) {
		names[i] = subcommands[i].name;
		if (argc > 1 && !strcmp(argv[1], names[i]))
			return subcommands[i].run(argc - 1, argv + 1);
	}
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("usage: rdmastat policy check [FILE]\n       rdmastat policy keys\n       rdmastat policy explain [OPTIONS]\n");
		opt_print(explain_options, EX_OPTIONS);
		return EXIT_OK;
	}
	if (argc > 1)
		guess = suggest_word(argv[1], strlen(argv[1]), names, SUBCOMMANDS);
	if (guess)
		complain("policy %s: did you mean policy %s?", argv[1], guess);
	else
		complain("policy: write policy check, policy explain or policy keys");
	return EXIT_USAGE;
}

int cmd_reasons(int argc, char **argv)
{
	unsigned r;

	if (argc > 1) {
		complain("reasons %s: reasons takes no more words", argv[1]);
		return EXIT_USAGE;
	}
	for (r = REASON_NONE + 1; r < REASON_COUNT; r++)
		printf("%-16s %s\n%17s-> %s\n", reason_name(r), reason_text(r), "", reason_remedy(r));
	return EXIT_OK;
}
