/*
 * rdmastat_policy_explain.c - `rdmastat policy explain`: which rule decides a connection that is
 * described by options.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "policy/rule.h"
#include "commands/rdmastat_policy.h"

const struct opt explain_options[EX_OPTIONS] = {
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

int explain(int argc, char **argv)
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
	for (i = 0; q.peer.ss_family && i < PATH_KINDS && !address_here(&q.peer); i++)
		if (d.paths & ~(unsigned)PATHS_FAR & 1u << i)
			printf("note:  the peer's address is none of this host's, and %s does not "
			       "leave a host\n",
			       path_name((enum path_kind)i));
	policy_free(p);
	return EXIT_OK;
}
