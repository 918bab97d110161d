/*
 * conf.c - text of a policy file to struct policy: words, keys, statements, limits. docs/policy.md
 * describes the language; conf_value.c has the values of tunables, conf_error.c the errors with
 * their places, include.c the files that it includes, source.c reads them.
 *
 * No locks; see policy.h for who may call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parser.h"
#include "renamed.h"
#include "rule.h"
#include "stat.h"
#include "users.h"
#include "words.h"

/* ---- places ---- */

static uint32_t here(const struct parser *p)
{
	return POLICY_AT(p->file, p->line);
}

/* The same thing a second time. */
static int fail_again(struct parser *p, const char *what, uint32_t at)
{
	if (policy_at_file(at) == p->file)
		return conf_fail(p, p->w[0].col,
				 "%s was set in line %d already; remove one of the two", what,
				 policy_at_line(at));
	return conf_fail(p, p->w[0].col, "%s was set in %s:%d already; remove one of the two", what,
			 policy_at_path(p->pol, at), policy_at_line(at));
}

/* ---- tunables ---- */

/* What holds for the whole process must not look as if it belonged to a section. */
static int check_global(struct parser *p)
{
	char q[200], prog[200];

	if (!p->in_section)
		return 0;
	return conf_fail(p, p->w[0].col,
			 "%s applies to all programs but stands in the section of program %s; "
			 "move it up, or write program * before it",
			 quote_word(p->w[0].s, p->w[0].len, q, sizeof(q)),
			 quote_word(p->program.s, p->program.len, prog, sizeof(prog)));
}

static int parse_tunable(struct parser *p, enum conf_key key)
{
	const struct conf_row *row = &conf_rows[key];
	char form[64], dflt[32];
	uint64_t v;
	int rc;

	fmt_string(form, sizeof(form), "%s %s", row->name,
		   conf_value_text(row->type, row->dflt, dflt, sizeof(dflt)));
	rc = check_global(p);
	if (!rc && p->nw < 2)
		rc = conf_missing(p, "the value", form);
	if (!rc)
		rc = conf_words(p, 2, form);
	if (!rc && p->pol->set_at[key])
		rc = fail_again(p, row->name, p->pol->set_at[key]);
	if (!rc)
		rc = conf_parse_value(p, row, &p->w[1], &v);
	if (rc)
		return rc;
	memcpy((char *)&p->pol->tun + row->offset, &v, sizeof(v));
	p->pol->set_at[key] = here(p);
	return 0;
}

/* ---- statements ---- */

static int parse_mode(struct parser *p)
{
	static const char *const words[] = { "on", "off" };
	const struct word *w = &p->w[1];
	int rc = check_global(p);

	if (!rc && p->nw < 2)
		rc = conf_missing(p, "on or off", "mode on or mode off");
	if (!rc)
		rc = conf_words(p, 2, "mode on or mode off");
	if (!rc && p->pol->mode_at)
		rc = fail_again(p, "mode", p->pol->mode_at);
	if (rc)
		return rc;
	if (!word_is(w->s, w->len, "on") && !word_is(w->s, w->len, "off"))
		return conf_fail_word(p, w, "is not a mode", "write mode on or mode off", words, 2);
	p->pol->mode_on = word_is(w->s, w->len, "on");
	p->pol->mode_at = here(p);
	return 0;
}

static int parse_program(struct parser *p)
{
	const struct word *w = &p->w[1];
	char q[200];
	int rc = 0;

	if (p->nw < 2)
		rc = conf_missing(p, "the program's name", "program redis-* or program *");
	if (!rc)
		rc = conf_words(p, 2, "one name or pattern per program line");
	if (rc)
		return rc;
	if (memchr(w->s, '/', w->len))
		return conf_fail(p, w->col,
				 "%s has a directory in it; write the last component only",
				 quote_word(w->s, w->len, q, sizeof(q)));
	if (w->len > 255)
		return conf_fail(p, w->col,
				 "%s is longer than any file name; write at most 255 bytes",
				 quote_word(w->s, w->len, q, sizeof(q)));
	p->program = *w;
	p->in_section = !word_is(w->s, w->len, "*");
	return 0;
}

static int add_rule(struct parser *p, const struct rule *r)
{
	struct policy *pol = p->pol;
	struct rule *more;
	size_t cap;

	if (pol->nrules == pol->rules_cap) {
		cap = pol->rules_cap ? 2 * pol->rules_cap : 16;
		more = realloc(pol->rules, cap * sizeof(*more));
		if (!more) {
			conf_fail(p, 1,
				  "no memory for the rules; free some and read the file again");
			return -ENOMEM;
		}
		pol->rules = more;
		pol->rules_cap = cap;
	}
	pol->rules[pol->nrules++] = *r;
	return 0;
}

static int parse_end(struct parser *p, const struct word *w, struct addr_pat *ret)
{
	char msg[224];
	size_t at;
	int rc = addr_pat_parse(w->s, w->len, ret, &at, msg, sizeof(msg));

	return rc ? conf_fail(p, w->col + (int)at, "%s", msg) : 0;
}

/* The paths, and the word for all of them. */
static const char *const path_words[PATH_KINDS + 1] = {
#define PATH(NAME, name, far, unasked, doc) #name,
#include "path.def"
#undef PATH
	"any"
};
/* ... for the form of a rule, and for who wrote none of them */
#define PATH(NAME, name, far, unasked, doc) #name "|"
static const char use_form[] = "use <"
#include "path.def"
	"any> <client|server|both> <address>:<port> [<address>:<port>]";
#undef PATH
#define PATH(NAME, name, far, unasked, doc) " " #name ","
static const char use_one[] = "write"
#include "path.def"
	" or any";
#undef PATH

const char *path_name(enum path_kind p)
{
	return (unsigned)p < PATH_KINDS ? path_words[p] : "?";
}

static int parse_use_path(struct parser *p, struct rule *r)
{
	const struct word *w = &p->w[1];
	unsigned i;

	for (i = 0; i <= PATH_KINDS; i++)
		if (word_is(w->s, w->len, path_words[i])) {
			r->paths = i == PATH_KINDS ? (1u << PATH_KINDS) - 1 :
						     1u << PATH_TCP | 1u << i;
			return 0;
		}
	return conf_fail_word(p, w, "is not a path", use_one, path_words, PATH_KINDS + 1);
}

static int parse_use_role(struct parser *p, struct rule *r)
{
	static const char *const words[] = { "client", "server", "both" };
	const struct word *w = &p->w[2];
	bool both = word_is(w->s, w->len, "both");

	r->client = both || word_is(w->s, w->len, "client");
	r->server = both || word_is(w->s, w->len, "server");
	if (r->client || r->server)
		return 0;
	return conf_fail_word(p, w, "is not a role", "write client, server or both", words, 3);
}

static int parse_use(struct parser *p)
{
	struct rule r = {
		.program = p->program.s, .program_len = p->program.len, .at = here(p),
		.cli = { .port_hi = 65535 },
	};
	int rc;

	if (p->nw < 2)
		return conf_missing(p, "the path", use_form);
	rc = parse_use_path(p, &r);
	if (!rc && p->nw < 3)
		rc = conf_missing(p, "the role", use_form);
	if (!rc)
		rc = parse_use_role(p, &r);
	if (!rc && p->nw < 4)
		rc = conf_missing(p, "the address", use_form);
	if (!rc)
		rc = parse_end(p, &p->w[3], &r.srv);
	if (!rc && p->nw > 4)
		rc = parse_end(p, &p->w[4], &r.cli);
	if (!rc)
		rc = conf_words(p, 5, use_form);
	return rc ? rc : add_rule(p, &r);
}

/* The one word of a line that names an absolute path, into buf. */
static int parse_path(struct parser *p, const char *form, uint32_t *at, char *buf, size_t len)
{
	const struct word *w = &p->w[1];
	char q[200];
	int rc = check_global(p);

	if (!rc && p->nw < 2)
		rc = conf_missing(p, "the name", form);
	if (!rc)
		rc = conf_words(p, 2, form);
	if (!rc && *at) {
		fmt_string(q, sizeof(q), "%s", form);
		*strchr(q, ' ') = '\0';
		rc = fail_again(p, q, *at);
	}
	if (rc)
		return rc;
	if (w->s[0] != '/' || w->len >= len)
		return conf_fail(p, w->col,
				 "%s is not an absolute path of less than %zu bytes; write %s",
				 quote_word(w->s, w->len, q, sizeof(q)), len, form);
	memcpy(buf, w->s, w->len);
	buf[w->len] = '\0';
	*at = here(p);
	return 0;
}

static int parse_key_file(struct parser *p)
{
	return parse_path(p, "key_file /etc/rdmashim.key", &p->pol->key_at, p->pol->key_file,
			  sizeof(p->pol->key_file));
}

static int parse_discovery_dir(struct parser *p)
{
	return parse_path(p, "discovery_dir /run/rdmashim", &p->pol->dir_at, p->pol->dir,
			  sizeof(p->pol->dir));
}

static int parse_cross_ns_dir(struct parser *p)
{
	return parse_path(p, "cross_ns_dir /run/rdmashim-across", &p->pol->across_at,
			  p->pol->across_dir, sizeof(p->pol->across_dir));
}

/* One network in a word, behind the *n that `list` has; the rules' parser wants a port behind
 * it. */
static int add_network(struct parser *p, const struct word *w, struct addr_pat *list, size_t *n)
{
	char text[128], msg[224], q[200];
	size_t at;

	if (*n == NETWORKS_MAX)
		return conf_fail(p, w->col, "more than %d networks; write larger ones",
				 NETWORKS_MAX);
	if (w->len + 3 > sizeof(text) || word_is(w->s, w->len, "*"))
		return conf_fail(p, w->col,
				 "%s is not a network; write one such as 10.0.0.0/8 or "
				 "[2001:db8::/32]",
				 quote_word(w->s, w->len, q, sizeof(q)));
	memcpy(text, w->s, w->len);
	memcpy(text + w->len, ":*", 3);
	if (addr_pat_parse(text, w->len + 2, &list[*n], &at, msg, sizeof(msg)))
		return conf_fail(p, w->col + (int)(at < w->len ? at : 0), "%s", msg);
	++*n;
	return 0;
}

/* *at: where the first ones stand; *apart: others do in another file. */
static int add_networks(struct parser *p, const char *form, struct addr_pat *list, size_t *n,
			uint32_t *at, bool *apart)
{
	int rc = check_global(p);

	if (!*at)
		*at = here(p);
	if (policy_at_file(*at) != p->file)
		*apart = true;

	if (!rc && p->nw < 2)
		rc = conf_missing(p, "the network", form);
	if (!rc)
		rc = conf_words(p, WORDS_MAX - 1, "the other networks in a line of their own");
	for (int i = 1; !rc && i < p->nw; i++)
		rc = add_network(p, &p->w[i], list, n);
	return rc;
}

static int parse_networks(struct parser *p)
{
	struct policy *pol = p->pol;

	return add_networks(p, "rdma_networks 10.0.0.0/8", pol->net, &pol->nnets, &pol->nets_at,
			    &pol->nets_apart);
}

static int parse_via(struct parser *p)
{
	struct policy *pol = p->pol;

	return add_networks(p, "rdma_via 10.1.0.0/16", pol->via, &pol->nvia, &pol->via_at,
			    &pol->via_apart);
}

static int add_user(struct parser *p, const struct word *w)
{
	struct policy *pol = p->pol;
	char q[200];

	if (word_is(w->s, w->len, "any")) {
		pol->any_user = true;
		return 0;
	}
	if (pol->nusers == USERS_MAX)
		return conf_fail(p, w->col,
				 "more than %d users; write any, or run the programs as one user",
				 USERS_MAX);
	if (!user_parse(w->s, w->len, &pol->user[pol->nusers]))
		return conf_fail(p, w->col,
				 "%s is no user in /etc/passwd; write its number, or any",
				 quote_word(w->s, w->len, q, sizeof(q)));
	pol->nusers++;
	return 0;
}

static int parse_users(struct parser *p)
{
	struct policy *pol = p->pol;
	int rc = check_global(p);

	if (!pol->users_at)
		pol->users_at = here(p);
	if (policy_at_file(pol->users_at) != p->file)
		pol->users_apart = true;
	if (!rc && p->nw < 2)
		rc = conf_missing(p, "the user", "peer_users postgres www-data, or peer_users any");
	if (!rc)
		rc = conf_words(p, WORDS_MAX - 1, "the other users in a line of their own");
	for (int i = 1; !rc && i < p->nw; i++)
		rc = add_user(p, &p->w[i]);
	return rc;
}

/* Of the programs of the section. */
static int parse_go(struct parser *p)
{
	static const char *const words[] = { "on", "off" };
	const struct word *w = &p->w[1];
	struct policy *pol = p->pol;
	int rc = 0;

	if (p->nw < 2)
		rc = conf_missing(p, "on or off", "go on or go off");
	if (!rc)
		rc = conf_words(p, 2, "go on or go off");
	if (!rc && pol->ngo == GO_MAX)
		rc = conf_fail(p, w->col, "more than %d go lines; write patterns", GO_MAX);
	if (rc)
		return rc;
	if (!word_is(w->s, w->len, "on") && !word_is(w->s, w->len, "off"))
		return conf_fail_word(p, w, "is neither on nor off", "write go on or go off",
				      words, 2);
	pol->go[pol->ngo++] = (struct go_rule){
		.program = p->program.s, .program_len = p->program.len,
		.on = word_is(w->s, w->len, "on"), .at = here(p),
	};
	return 0;
}

static const struct {
	const char *name;
	int (*parse)(struct parser *p);
} statements[] = {
	{ "mode", parse_mode }, { "program", parse_program }, { "use", parse_use },
	{ "key_file", parse_key_file }, { "rdma_networks", parse_networks },
	{ "rdma_via", parse_via }, { "include", include_parse },
	{ "discovery_dir", parse_discovery_dir }, { "cross_ns_dir", parse_cross_ns_dir },
	{ "peer_users", parse_users }, { "go", parse_go },
};
#define STATEMENTS (sizeof(statements) / sizeof(statements[0]))

static int unknown_statement(struct parser *p)
{
	const char *all[STATEMENTS + CONF_KEYS];
	struct word w = p->w[0];
	const char *eq = memchr(w.s, '=', w.len);
	size_t i;

	for (i = 0; i < STATEMENTS; i++)
		all[i] = statements[i].name;
	for (i = 0; i < CONF_KEYS; i++)
		all[STATEMENTS + i] = conf_rows[i].name;
	if (eq && eq > w.s)
		return conf_fail(p, w.col + (int)(eq - w.s),
				 "'=' does not belong here; write the key, a blank and the value");
	return conf_fail_word(p, &w, "is not a key",
			      "known are mode, program, use, include, key_file, rdma_networks, "
			      "rdma_via, discovery_dir, cross_ns_dir, peer_users, go and the "
			      "tunables of rdmashim.conf(5)",
			      all, STATEMENTS + CONF_KEYS);
}

/* An old name becomes the new one. Where it stood is kept, for who tells of it. */
static void renew(struct parser *p, const char *of, struct word *w)
{
	const struct old_name *n = old_name(of, w->s, w->len);

	if (!n)
		return;
	w->s = n->now;
	w->len = strlen(n->now);
	if (p->pol->nold == OLD_NAMES)
		return;
	p->pol->old[p->pol->nold] = n;
	p->pol->old_at[p->pol->nold++] = here(p);
}

static int parse_line(struct parser *p)
{
	size_t i;

	if (!p->nw)
		return 0;
	renew(p, "key", &p->w[0]);
	if (p->nw > 1 && word_is(p->w[0].s, p->w[0].len, "device"))
		renew(p, "device", &p->w[1]);
	for (i = 0; i < STATEMENTS; i++)
		if (word_is(p->w[0].s, p->w[0].len, statements[i].name))
			return statements[i].parse(p);
	for (i = 0; i < CONF_KEYS; i++)
		if (word_is(p->w[0].s, p->w[0].len, conf_rows[i].name))
			return parse_tunable(p, (enum conf_key)i);
	return unknown_statement(p);
}

/* ---- lines and words ---- */

/* Splits s[0..len), one line, at blanks; a # ends it. Columns are bytes from 1. */
static void split_line(struct parser *p, const char *s, size_t len)
{
	size_t i = 0, from;

	for (p->nw = 0; p->nw < WORDS_MAX; p->nw++) {
		while (i < len && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r'))
			i++;
		for (from = i; i < len && !strchr(" \t\r#", s[i]); i++)
			;
		if (i == from)
			break;
		p->w[p->nw] = (struct word){ s + from, i - from, (int)from + 1 };
	}
}

int conf_text(struct parser *p, const char *s, size_t len)
{
	const char *end = s + len, *eol, *nul;
	int rc = 0;

	if (len >= 3 && !memcmp(s, "\xef\xbb\xbf", 3))	/* a byte order mark says nothing in
							 * UTF-8 */
		s += 3;
	for (p->line = 1; s < end && !rc; s = eol + 1, p->line++) {
		eol = memchr(s, '\n', (size_t)(end - s));
		if (!eol)
			eol = end;
		nul = memchr(s, '\0', (size_t)(eol - s));
		if (nul)
			return conf_fail(p, (int)(nul - s) + 1,
					 "a NUL byte; this is not a text file, write it anew");
		split_line(p, s, (size_t)(eol - s));
		rc = parse_line(p);
	}
	return rc;
}

/* ---- the whole ---- */

int policy_parse_from(const struct policy_source *src, const char *path, struct policy_deps *deps,
		      struct policy **ret, struct policy_error *err)
{
	char why[TRUST_WHY] = "";
	struct parser p = { .src = src, .deps = deps, .err = err, .program = { "*", 1, 0 },
			    .why = why };
	int saved = errno, rc = -ENOMEM;
	long n;

	if (deps)
		deps->n = 0;
	include_depends(&p, path);
	p.pol = calloc(1, sizeof(*p.pol));
	if (!p.pol) {
		conf_set_error(err, path, 0, 0,
			       "no memory for the policy; free some and read the file again");
		goto out;
	}
	p.pol->mode_on = true;
	p.pol->tun = *policy_tunables(policy_builtin());
	n = include_read(&p, path);
	if (n >= 0) {
		rc = conf_text(&p, p.pol->file[0].text, (size_t)n);
		goto out;
	}
	rc = n == -EFBIG ? -EINVAL : (int)n;
	conf_set_error(err, path, 0, 0,
		       n == -EFBIG ? "the file is longer than 1 MiB; shorten it"
				   : source_remedy(n, p.why));
out:
	if (rc)
		policy_free(p.pol);
	else
		*ret = p.pol;
	errno = saved;
	return rc;
}
