/*
 * conf.c - text of a policy file to struct policy: words, keys, tunables, limits, and the errors
 * with their places. docs/policy.md describes the language.
 *
 * Files are read with syscall(2) and not with open(), read() and close(): in a preloaded process those
 * names are the shim's own wrappers. No locks; see policy.h for who may call.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conf.h"
#include "rule.h"
#include "stat.h"
#include "words.h"

#define POLICY_MAX (1u << 20)	/* bytes in a file */
#define WORDS_MAX 8		/* more than any line may have, so that the first superfluous one is seen */

#ifndef RDMASHIM_CONF_PATH
#define RDMASHIM_CONF_PATH "/etc/rdmashim.conf"
#endif

#define CONF(name, type, dflt, min, max, unit, doc) \
	[CONF_##name] = { #name, CONF_T_##type, dflt, min, max, unit, doc, offsetof(struct policy_tunables, name) },
const struct conf_row conf_rows[CONF_KEYS] = {
#include "conf.def"
};
#undef CONF

struct word {
	const char *s;
	size_t len;
	int col;
};

struct parser {
	struct policy *pol;
	struct policy_error *err;
	const char *name;		/* of the file, for messages */
	int line;
	struct word w[WORDS_MAX];
	int nw;
	struct word program;		/* of the running section */
	bool in_section;		/* inside `program` other than * */
	int set_line[CONF_KEYS];	/* where a tunable was set, 0 = not yet */
};

/* ---- errors ---- */

static void set_error(struct policy_error *err, const char *name, int line, int col, const char *msg)
{
	if (!err)
		return;
	memset(err, 0, sizeof(*err));
	fmt_string(err->file, sizeof(err->file), "%s", name);
	err->line = line;
	err->col = col;
	fmt_string(err->msg, sizeof(err->msg), "%s", msg);
}

static int __attribute__((format(printf, 3, 4))) fail(struct parser *p, int col, const char *fmt, ...)
{
	char msg[256];
	va_list ap;

	va_start(ap, fmt);
	fmt_vstring(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	set_error(p->err, p->name, p->line, col, msg);
	return -EINVAL;
}

/* Names the wrong word, what would be right, and the likely one. */
static int fail_word(struct parser *p, const struct word *w, const char *what, const char *remedy,
		     const char *const *list, size_t n)
{
	const char *guess = suggest_word(w->s, w->len, list, n);
	char q[200];

	quote_word(w->s, w->len, q, sizeof(q));
	if (guess)
		return fail(p, w->col, "%s %s; did you mean '%s'? (%s)", q, what, guess, remedy);
	return fail(p, w->col, "%s %s; %s", q, what, remedy);
}

/* The place just behind the last word, where one is missing. */
static int fail_missing(struct parser *p, const char *what, const char *form)
{
	const struct word *w = &p->w[p->nw - 1];

	return fail(p, w->col + (int)w->len, "%s is missing; write %s", what, form);
}

static int check_words(struct parser *p, int max, const char *form)
{
	const struct word *w;
	char q[200];

	if (p->nw <= max)
		return 0;
	w = &p->w[max];
	return fail(p, w->col, "%s is one word too many; write %s", quote_word(w->s, w->len, q, sizeof(q)), form);
}

/* ---- tunables ---- */

static const struct unit {
	enum conf_type type;
	const char *suffix;
	uint64_t factor;
} units[] = {	/* the largest of each type last, see conf_value_text */
	{ CONF_T_size, "", 1 }, { CONF_T_size, "K", 1024 }, { CONF_T_size, "M", 1 << 20 }, { CONF_T_size, "G", 1 << 30 },
	{ CONF_T_time, "", 1 }, { CONF_T_time, "us", 1 }, { CONF_T_time, "ms", 1000 }, { CONF_T_time, "s", 1000000 },
	{ CONF_T_count, "", 1 },
};
#define UNITS (sizeof(units) / sizeof(units[0]))

static enum conf_type unit_type(enum conf_type type)
{
	return type == CONF_T_pow2 ? CONF_T_size : type;
}

static const char *const lanes[] = { "off", "truthful", "deferred" };
static const char *const aliases[] = { "any", "none" };

const char *conf_value_text(enum conf_type type, uint64_t value, char *buf, size_t len)
{
	const struct unit *best = NULL;
	size_t i;

	if (type == CONF_T_bool) {
		fmt_string(buf, len, "%s", value ? "on" : "off");
		return buf;
	}
	if (type == CONF_T_lane || type == CONF_T_alias) {
		fmt_string(buf, len, "%s", type == CONF_T_lane ? lanes[value < 3 ? value : 0] : aliases[value < 2 ? value : 0]);
		return buf;
	}
	for (i = 0; i < UNITS; i++)
		if (units[i].type == unit_type(type) && (!best || (value && value % units[i].factor == 0)))
			best = &units[i];
	fmt_string(buf, len, "%lu%s", value / best->factor, value ? best->suffix : "");
	return buf;
}

static const char *unit_help(enum conf_type type)
{
	switch (unit_type(type)) {
	case CONF_T_size: return "write bytes as a whole number, or with K, M or G, such as 64K";
	case CONF_T_time: return "write a whole number with us, ms or s, such as 50us";
	default:	  return "write a whole number without a unit";
	}
}

static bool one_of(const struct word *w, const char *const *words, unsigned n, uint64_t *ret)
{
	for (*ret = 0; *ret < n; ++*ret)
		if (word_is(w->s, w->len, words[*ret]))
			return true;
	return false;
}

static int parse_value(struct parser *p, const struct conf_row *row, const struct word *w, uint64_t *ret)
{
	const char *suffix;
	char q[200], a[32], b[32];
	size_t n, i, rest;
	bool over;

	quote_word(w->s, w->len, q, sizeof(q));
	if (row->type == CONF_T_bool) {
		*ret = word_is(w->s, w->len, "on");
		return *ret || word_is(w->s, w->len, "off") ? 0
			: fail(p, w->col, "%s: %s is neither on nor off; write %s on or %s off", row->name, q, row->name, row->name);
	}
	if (row->type == CONF_T_lane)
		return one_of(w, lanes, 3, ret) ? 0
			: fail_word(p, w, "is not a lane", "write device off, device truthful or device deferred", lanes, 3);
	if (row->type == CONF_T_alias)
		return one_of(w, aliases, 2, ret) ? 0
			: fail_word(p, w, "is neither any nor none", "write alias any or alias none", aliases, 2);
	n = parse_digits(w->s, w->len, ret, &over);
	if (!n)
		return fail(p, w->col, "%s: %s is not a number; %s", row->name, q, unit_help(row->type));
	suffix = w->s + n;
	rest = w->len - n;
	for (i = 0; i < UNITS; i++)
		if (units[i].type == unit_type(row->type) && word_is(suffix, rest, units[i].suffix))
			break;
	if (i == UNITS)
		return fail(p, w->col + (int)n, "%s: %s is not a unit here; %s", row->name,
			    quote_word(suffix, rest, q, sizeof(q)), unit_help(row->type));
	if (over || __builtin_mul_overflow(*ret, units[i].factor, ret) || *ret < row->min || *ret > row->max)
		return fail(p, w->col, "%s: %s is out of range; write %s to %s", row->name, q,
			    conf_value_text(row->type, row->min, a, sizeof(a)),
			    conf_value_text(row->type, row->max, b, sizeof(b)));
	if (row->type == CONF_T_pow2 && (*ret & (*ret - 1)))
		return fail(p, w->col, "%s: %s is not a power of two; write one such as 128K or 256K", row->name, q);
	return 0;
}

/* What holds for the whole process must not look as if it belonged to a section. */
static int check_global(struct parser *p)
{
	char q[200], prog[200];

	if (!p->in_section)
		return 0;
	return fail(p, p->w[0].col, "%s applies to all programs but stands in the section of program %s; "
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

	fmt_string(form, sizeof(form), "%s %s", row->name, conf_value_text(row->type, row->dflt, dflt, sizeof(dflt)));
	rc = check_global(p);
	if (!rc && p->nw < 2)
		rc = fail_missing(p, "the value", form);
	if (!rc)
		rc = check_words(p, 2, form);
	if (!rc && p->set_line[key])
		rc = fail(p, p->w[0].col, "%s was set in line %d already; remove one of the two", row->name, p->set_line[key]);
	if (!rc)
		rc = parse_value(p, row, &p->w[1], &v);
	if (rc)
		return rc;
	memcpy((char *)&p->pol->tun + row->offset, &v, sizeof(v));
	p->set_line[key] = p->line;
	return 0;
}

/* ---- statements ---- */

static int parse_mode(struct parser *p)
{
	static const char *const words[] = { "on", "off" };
	const struct word *w = &p->w[1];
	int rc = check_global(p);

	if (!rc && p->nw < 2)
		rc = fail_missing(p, "on or off", "mode on or mode off");
	if (!rc)
		rc = check_words(p, 2, "mode on or mode off");
	if (!rc && p->pol->mode_line)
		rc = fail(p, p->w[0].col, "mode was set in line %d already; remove one of the two", p->pol->mode_line);
	if (rc)
		return rc;
	if (!word_is(w->s, w->len, "on") && !word_is(w->s, w->len, "off"))
		return fail_word(p, w, "is not a mode", "write mode on or mode off", words, 2);
	p->pol->mode_on = word_is(w->s, w->len, "on");
	p->pol->mode_line = p->line;
	return 0;
}

static int parse_program(struct parser *p)
{
	const struct word *w = &p->w[1];
	char q[200];
	int rc = 0;

	if (p->nw < 2)
		rc = fail_missing(p, "the program's name", "program redis-* or program *");
	if (!rc)
		rc = check_words(p, 2, "one name or pattern per program line");
	if (rc)
		return rc;
	if (memchr(w->s, '/', w->len))
		return fail(p, w->col, "%s has a directory in it; write the last component only",
			    quote_word(w->s, w->len, q, sizeof(q)));
	if (w->len > 255)
		return fail(p, w->col, "%s is longer than any file name; write at most 255 bytes",
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
			fail(p, 1, "no memory for the rules; free some and read the file again");
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

	return rc ? fail(p, w->col + (int)at, "%s", msg) : 0;
}

static int parse_use_path(struct parser *p, struct rule *r)
{
	static const char *const words[] = { "tcp", "shm", "rdma", "any" };
	static const uint32_t bits[] = {
		1u << PATH_TCP,
		1u << PATH_TCP | 1u << PATH_SHM,
		1u << PATH_TCP | 1u << PATH_RDMA,
		1u << PATH_TCP | 1u << PATH_SHM | 1u << PATH_RDMA,
	};
	const struct word *w = &p->w[1];
	size_t i;

	for (i = 0; i < 4; i++)
		if (word_is(w->s, w->len, words[i])) {
			r->paths = bits[i];
			return 0;
		}
	return fail_word(p, w, "is not a path", "write tcp, shm, rdma or any", words, 4);
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
	return fail_word(p, w, "is not a role", "write client, server or both", words, 3);
}

static int parse_use(struct parser *p)
{
	static const char form[] = "use <tcp|shm|rdma|any> <client|server|both> <address>:<port> [<address>:<port>]";
	struct rule r = {
		.program = p->program.s, .program_len = p->program.len, .line = p->line,
		.cli = { .port_hi = 65535 },
	};
	int rc;

	if (p->nw < 2)
		return fail_missing(p, "the path", form);
	rc = parse_use_path(p, &r);
	if (!rc && p->nw < 3)
		rc = fail_missing(p, "the role", form);
	if (!rc)
		rc = parse_use_role(p, &r);
	if (!rc && p->nw < 4)
		rc = fail_missing(p, "the address", form);
	if (!rc)
		rc = parse_end(p, &p->w[3], &r.srv);
	if (!rc && p->nw > 4)
		rc = parse_end(p, &p->w[4], &r.cli);
	if (!rc)
		rc = check_words(p, 5, form);
	return rc ? rc : add_rule(p, &r);
}

static int parse_key_file(struct parser *p)
{
	const struct word *w = &p->w[1];
	char q[200];
	int rc = check_global(p);

	if (!rc && p->nw < 2)
		rc = fail_missing(p, "the file's name", "key_file /etc/rdmashim.key");
	if (!rc)
		rc = check_words(p, 2, "key_file /etc/rdmashim.key");
	if (!rc && p->pol->key_line)
		rc = fail(p, p->w[0].col, "key_file was set in line %d already; remove one of the two", p->pol->key_line);
	if (rc)
		return rc;
	if (w->s[0] != '/' || w->len >= sizeof(p->pol->key_file))
		return fail(p, w->col, "%s is not an absolute path of less than 256 bytes; write one such as /etc/rdmashim.key",
			    quote_word(w->s, w->len, q, sizeof(q)));
	memcpy(p->pol->key_file, w->s, w->len);
	p->pol->key_file[w->len] = '\0';
	p->pol->key_line = p->line;
	return 0;
}

/* One network in a word, behind the *n that `list` has; the rules' parser wants a port behind it. */
static int add_network(struct parser *p, const struct word *w, struct addr_pat *list, size_t *n)
{
	char text[128], msg[224], q[200];
	size_t at;

	if (*n == NETWORKS_MAX)
		return fail(p, w->col, "more than %d networks; write larger ones", NETWORKS_MAX);
	if (w->len + 3 > sizeof(text) || word_is(w->s, w->len, "*"))
		return fail(p, w->col, "%s is not a network; write one such as 10.0.0.0/8 or [2001:db8::/32]",
			    quote_word(w->s, w->len, q, sizeof(q)));
	memcpy(text, w->s, w->len);
	memcpy(text + w->len, ":*", 3);
	if (addr_pat_parse(text, w->len + 2, &list[*n], &at, msg, sizeof(msg)))
		return fail(p, w->col + (int)(at < w->len ? at : 0), "%s", msg);
	++*n;
	return 0;
}

static int add_networks(struct parser *p, const char *form, struct addr_pat *list, size_t *n)
{
	int rc = check_global(p);

	if (!rc && p->nw < 2)
		rc = fail_missing(p, "the network", form);
	if (!rc)
		rc = check_words(p, WORDS_MAX - 1, "the other networks in a line of their own");
	for (int i = 1; !rc && i < p->nw; i++)
		rc = add_network(p, &p->w[i], list, n);
	return rc;
}

static int parse_networks(struct parser *p) { return add_networks(p, "rdma_networks 10.0.0.0/8", p->pol->net, &p->pol->nnets); }
static int parse_via(struct parser *p) { return add_networks(p, "rdma_via 10.1.0.0/16", p->pol->via, &p->pol->nvia); }

static const struct {
	const char *name;
	int (*parse)(struct parser *p);
} statements[] = {
	{ "mode", parse_mode }, { "program", parse_program }, { "use", parse_use },
	{ "key_file", parse_key_file }, { "rdma_networks", parse_networks },
	{ "rdma_via", parse_via },
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
		return fail(p, w.col + (int)(eq - w.s), "'=' does not belong here; write the key, a blank and the value");
	return fail_word(p, &w, "is not a key", "known are mode, program, use, key_file, rdma_networks, rdma_via and the tunables of rdmashim.conf(5)",
			 all, STATEMENTS + CONF_KEYS);
}

static int parse_line(struct parser *p)
{
	size_t i;

	if (!p->nw)
		return 0;
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

static int parse_text(struct parser *p, size_t len)
{
	const char *s = p->pol->text, *end = s + len, *eol, *nul;
	int rc = 0;

	if (len >= 3 && !memcmp(s, "\xef\xbb\xbf", 3))	/* a byte order mark says nothing in UTF-8 */
		s += 3;
	for (p->line = 1; s < end && !rc; s = eol + 1, p->line++) {
		eol = memchr(s, '\n', (size_t)(end - s));
		if (!eol)
			eol = end;
		nul = memchr(s, '\0', (size_t)(eol - s));
		if (nul)
			return fail(p, (int)(nul - s) + 1, "a NUL byte; this is not a text file, write it anew");
		split_line(p, s, (size_t)(eol - s));
		rc = parse_line(p);
	}
	return rc;
}

static void set_file(struct policy *pol, const char *name)
{
	const char *slash = strrchr(name, '/');

	fmt_string(pol->file, sizeof(pol->file), "%s", slash ? slash + 1 : name);
}

int policy_parse(const char *text, size_t len, const char *name, struct policy **ret, struct policy_error *err)
{
	struct parser p = { .err = err, .name = name, .program = { "*", 1, 0 } };
	int rc = -ENOMEM;

	if (len > POLICY_MAX) {
		set_error(err, name, 0, 0, "the file is longer than 1 MiB; shorten it");
		return -EINVAL;
	}
	p.pol = calloc(1, sizeof(*p.pol));
	if (p.pol)
		p.pol->text = malloc(len + 1);
	if (!p.pol || !p.pol->text) {
		set_error(err, name, 0, 0, "no memory for the policy; free some and read the file again");
		goto out;
	}
	memcpy(p.pol->text, text, len);
	p.pol->text[len] = '\0';
	p.pol->mode_on = true;
	p.pol->tun = *policy_tunables(policy_builtin());
	set_file(p.pol, name);
	rc = parse_text(&p, len);
out:
	if (rc) {
		policy_free(p.pol);
		return rc;
	}
	*ret = p.pol;
	return 0;
}

void policy_free(struct policy *p)
{
	if (!p || p->fixed)
		return;
	free(p->rules);
	free(p->text);
	free(p);
}

/* ---- files ---- */

static int raw(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

/* Reads at most max bytes. Returns their number or -errno. */
static int read_fd(int fd, char *buf, int max)
{
	int used = 0, n;

	while (used < max) {
		n = raw(syscall(SYS_read, fd, buf + used, (size_t)(max - used)));
		if (n == -EINTR)
			continue;
		if (n < 0)
			return n;
		if (!n)
			break;
		used += n;
	}
	return used;
}

static int open_policy(const char *path)
{
	/* O_NONBLOCK: a FIFO or a terminal must not stop the program */
	int fd = raw(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0));
	struct stat st;

	if (fd < 0)
		return fd;
	if (syscall(SYS_fstat, fd, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode))) {
		syscall(SYS_close, fd);
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	}
	return fd;
}

static const char *read_remedy(int error)
{
	switch (error) {
	case -ENOENT: return "there is no such file; create it, or unset RDMASHIM_CONF";
	case -EACCES:
	case -EPERM:  return "it may not be read; give this user read permission on it and its directories";
	case -EISDIR: return "it is a directory; name a file";
	case -EINVAL: return "it is not a regular file; name one";
	case -ENOMEM: return "no memory to read it; free some";
	case -EMFILE:
	case -ENFILE: return "no file descriptor is left; raise RLIMIT_NOFILE";
	case -ELOOP:  return "too many symbolic links; name the file itself";
	default:      return "reading it failed; check the file system";
	}
}

int policy_load(const char *path, struct policy **ret, struct policy_error *err)
{
	int saved = errno, fd = open_policy(path), n = fd;
	char *buf = NULL;

	if (fd >= 0) {
		buf = malloc(POLICY_MAX + 1);
		n = buf ? read_fd(fd, buf, POLICY_MAX + 1) : -ENOMEM;
		syscall(SYS_close, fd);
	}
	if (n < 0)
		set_error(err, path, 0, 0, read_remedy(n));
	else
		n = policy_parse(buf, (size_t)n, path, ret, err);
	free(buf);
	errno = saved;
	return n;
}

const char *policy_path(bool secure)
{
	const char *env = secure ? NULL : secure_getenv("RDMASHIM_CONF");

	return env && *env ? env : RDMASHIM_CONF_PATH;
}
