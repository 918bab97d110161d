/*
 * rdmastat_filter.c - see rdmastat_filter.h. Parsed by recursive descent into postfix, so that
 * matching needs no recursion and a long expression no deep stack: nesting is limited when it is
 * parsed.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "policy/rule.h"
#include "policy/renamed.h"
#include "policy/words.h"
#include "ground/rdmastat_filter.h"

#define DEPTH_MAX 64
#define STACK_MAX 256

enum op { OP_EQ, OP_NE, OP_LT, OP_GT, OP_LE, OP_GE };
enum kind {
	K_AND, K_OR, K_NOT,
	K_DPORT, K_SPORT, K_PID, K_FD, K_UID, K_BYTES, K_CUTS, K_REWINDS,	/* numbers */
	K_DST, K_SRC,								/* addresses */
	K_PATH, K_TX, K_RX, K_PROGRAM, K_REASON, K_ROLE, K_STATE			/* words */
};

struct step {
	enum kind kind;
	enum op op;
	uint64_t num;
	struct addr_pat pat;
	const char *word;	/* into text */
	size_t len;
};

struct filter {
	char *text;
	struct step *step;
	size_t n, cap;
};

static const struct {
	const char *name;
	enum kind kind;
} keys[] = {
	{ "dport", K_DPORT }, { "sport", K_SPORT }, { "pid", K_PID }, { "fd", K_FD },
		{ "uid", K_UID }, { "bytes", K_BYTES },
	{ "cuts", K_CUTS }, { "rewinds", K_REWINDS }, { "dst", K_DST }, { "src", K_SRC },
		{ "path", K_PATH }, { "tx", K_TX },
	{ "rx", K_RX }, { "program", K_PROGRAM }, { "reason", K_REASON }, { "role", K_ROLE },
	{ "state", K_STATE },
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* ---- words ---- */

struct reader {
	struct filter *f;
	const char *s;			/* what follows */
	const char *word;		/* the word in hand */
	size_t len;			/* 0: the end */
	int depth;
	bool failed;
};

static void next(struct reader *p)
{
	p->s += strspn(p->s, " \t");
	p->word = p->s;
	if (!*p->s)
		p->len = 0;
	else if (strchr("()", *p->s))
		p->len = 1;
	else if (strchr("=!<>&|", *p->s))
		p->len = strspn(p->s, "=!<>&|") > 1 && p->s[1] != '!' ? 2 : 1;
	else
		p->len = strcspn(p->s, " \t()=!<>&|");
	p->s += p->len;
}

static bool is(const struct reader *p, const char *lit)
{
	return p->len && word_is(p->word, p->len, lit);
}

static bool fail(struct reader *p, const char *what, const char *guess)
{
	int at = (int)(p->word - p->f->text);

	if (!p->failed) {
		complain("filter: %s%s%s%s", what, guess ? "; did you mean " : "",
			 guess ? guess : "", guess ? "?" : "");
		fprintf(stderr, "    %s\n    %*s^\n", p->f->text, at, "");
	}
	p->failed = true;
	return false;
}

static struct step *add(struct reader *p, enum kind kind)
{
	struct filter *f = p->f;

	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 16;
		struct step *more = realloc(f->step, cap * sizeof(*more));

		if (!more) {
			fail(p, "out of memory", NULL);
			return NULL;
		}
		f->step = more;
		f->cap = cap;
	}
	f->step[f->n] = (struct step){ .kind = kind };
	return &f->step[f->n++];
}

/* ---- predicates ---- */

static bool read_op(struct reader *p, enum op *ret)
{
	static const struct {
		const char *text;
		enum op op;
	} ops[] = {
		{ "=", OP_EQ }, { "==", OP_EQ }, { "eq", OP_EQ }, { "!=", OP_NE }, { "ne", OP_NE },
			{ "<", OP_LT }, { "lt", OP_LT },
		{ ">", OP_GT }, { "gt", OP_GT }, { "<=", OP_LE }, { "le", OP_LE }, { ">=", OP_GE },
			{ "ge", OP_GE },
	};
	size_t i;

	*ret = OP_EQ;
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (is(p, ops[i].text)) {
			*ret = ops[i].op;
			next(p);
			return true;
		}
	return true;	/* none: = */
}

static bool read_number(struct reader *p, struct step *st)
{
	static const char units[] = "KMGT";
	const char *w = p->word, *u;
	size_t len = p->len, n;
	bool over;

	if (len && *w == ':' && (st->kind == K_DPORT || st->kind == K_SPORT)) {	/* as ss has it */
		w++;
		len--;
	}
	n = parse_digits(w, len, &st->num, &over);
	if (!n || over)
		return fail(p, p->len ? "this is not a number" : "a number is missing at the end",
			    NULL);
	u = len == n + 1 && w[n] ? strchr(units, w[n]) : NULL;
	if (u)
		over = __builtin_mul_overflow(st->num, 1ull << (10 * (u - units + 1)), &st->num);
	if (over || (len != n && !u))
		return fail(p, "this is not a number; K, M and G may follow one", NULL);
	next(p);
	return true;
}

/* ADDRESS[/BITS][:PORT]: what is left out is any. */
static bool read_address(struct reader *p, struct step *st)
{
	char buf[128], msg[256];
	const char *close, *tail;
	size_t at;

	if (!p->len || p->len > 100)
		return fail(p, "an address is missing here", NULL);
	close = memchr(p->word, ']', p->len);
	tail = close ? close : p->word;
	snprintf(buf, sizeof(buf), "%.*s%s", (int)p->len, p->word,
		 memchr(tail, ':', p->len - (size_t)(tail - p->word)) ? "" : ":*");
	if (addr_pat_parse(buf, strlen(buf), &st->pat, &at, msg, sizeof(msg)))
		return fail(p, msg, NULL);
	next(p);
	return true;
}

/* No key is written so. */
static bool is_address(const struct reader *p)
{
	return p->len && (memchr(p->word, '.', p->len) || memchr(p->word, ':', p->len) ||
			  memchr(p->word, '[', p->len));
}

/* An address alone: of either end. */
static bool read_either_end(struct reader *p)
{
	struct step *st = add(p, K_SRC), src;

	if (!st || !read_address(p, st))
		return false;
	src = *st;
	st = add(p, K_DST);
	if (!st)
		return false;
	*st = src;
	st->kind = K_DST;
	return add(p, K_OR);
}

#define PATH(NAME, name, far, unasked, doc) " " #name
static const char paths_hint[] = "write one of"
#include "policy/path.def"
	;
#undef PATH

static bool read_word(struct reader *p, struct step *st)
{
	static const char *const roles[] = { "client", "server", "unknown" };
	static const char *const states[] = { "established", "connected", "synchronized", "all" };
	const char *reasons[REASON_COUNT], *paths[PATH_KINDS], *const *list = NULL;
	size_t n = 0, i;

	if (!p->len)
		return fail(p, "a word is missing at the end", NULL);
	if (st->kind == K_REASON) {
		for (n = 0; n < REASON_COUNT; n++)
			reasons[n] = reason_name((unsigned)n);
		list = reasons;
	} else if (st->kind == K_ROLE) {
		list = roles;
		n = 3;
	} else if (st->kind == K_STATE) {
		list = states;
		n = 4;
	} else if (st->kind != K_PROGRAM) {
		for (n = 0; n < PATH_KINDS; n++)
			paths[n] = path_name((enum path_kind)n);
		list = paths;
	}
	for (i = 0; i < n; i++)
		if (word_is(p->word, p->len, list[i]) ||
		    (st->kind == K_REASON &&
		     word_is(p->word, p->len, former_name("reason", list[i]))))
			break;
	if (list && i == n)
		return fail(p,
			    st->kind == K_REASON
				    ? "no reason has this name; rdmastat reasons lists them"
			    : st->kind == K_ROLE  ? "write client, server or unknown"
			    : st->kind == K_STATE ? "only established connections are listed here; "
						    "ss shows others"
						  : paths_hint,
			    suggest_word(p->word, p->len, list, n));
	st->num = i;
	st->word = p->word;
	st->len = p->len;
	next(p);
	return true;
}

static bool read_predicate(struct reader *p)
{
	const char *names[KEYS];
	struct step *st;
	size_t i;

	for (i = 0; i < KEYS; i++) {
		names[i] = keys[i].name;
		if (is(p, keys[i].name))
			break;
	}
	if (i == KEYS && is_address(p))
		return read_either_end(p);
	if (i == KEYS)
		return fail(p,
			    p->len ? "this is not something to filter by; there are an address, "
				     "dport, sport, dst, src, path, tx, rx, pid, fd, uid, "
				     "program, role, reason, bytes, cuts, rewinds and state"
				   : "something is missing at the end",
			    p->len ? suggest_word(p->word, p->len, names, KEYS) : NULL);
	st = add(p, keys[i].kind);
	if (!st)
		return false;
	next(p);
	if (!read_op(p, &st->op))
		return false;
	if (st->kind >= K_DST && st->op > OP_NE)
		return fail(p, "only = and != go here", NULL);
	if (st->kind <= K_REWINDS)
		return read_number(p, st);
	return st->kind <= K_SRC ? read_address(p, st) : read_word(p, st);
}

/* ---- expressions ---- */

static bool read_or(struct reader *p);

static bool read_unary(struct reader *p)
{
	bool ok;

	if (++p->depth > DEPTH_MAX)
		return fail(p, "too many brackets", NULL);
	if (is(p, "not") || is(p, "!")) {
		next(p);
		ok = read_unary(p) && add(p, K_NOT);
	} else if (is(p, "(")) {
		next(p);
		ok = read_or(p);
		if (ok && !is(p, ")"))
			ok = fail(p, "a ) is missing here", NULL);
		if (ok)
			next(p);
	} else {
		ok = read_predicate(p);
	}
	p->depth--;
	return ok;
}

static bool is_or(const struct reader *p)
{
	return is(p, "or") || is(p, "|") || is(p, "||");
}

static bool read_and(struct reader *p)
{
	if (!read_unary(p))
		return false;
	while (p->len && !is(p, ")") && !is_or(p)) {
		if (is(p, "and") || is(p, "&") || is(p, "&&"))
			next(p);
		if (!read_unary(p) || !add(p, K_AND))
			return false;
	}
	return true;
}

static bool read_or(struct reader *p)
{
	if (!read_and(p))
		return false;
	while (is_or(p)) {
		next(p);
		if (!read_and(p) || !add(p, K_OR))
			return false;
	}
	return true;
}

static char *join(const struct args *a)
{
	size_t len = 1;
	char *s;
	int i;

	for (i = 0; i < a->argc; i++)
		len += strlen(a->argv[i]) + 1;
	s = malloc(len);
	if (!s)
		return NULL;
	s[0] = '\0';
	for (i = 0; i < a->argc; i++) {
		if (i)
			strcat(s, " ");
		strcat(s, a->argv[i]);
	}
	/* it is printed with a mark below: one column a byte */
	make_printable(s, strlen(s), '?', ASCII_ONLY);
	return s;
}

struct filter *filter_parse(const struct args *words)
{
	struct filter *f = calloc(1, sizeof(*f));
	struct reader p = { .f = f };

	if (f)
		f->text = join(words);
	if (!f || !f->text) {
		complain("out of memory");
		filter_free(f);
		return NULL;
	}
	p.s = f->text;
	next(&p);
	if (!p.len)
		return f;
	if (read_or(&p) && p.len)
		fail(&p, is(&p, ")") ? "this ) closes nothing" : "this does not belong here", NULL);
	if (!p.failed && f->n > STACK_MAX)
		fail(&p, "the filter is too long", NULL);
	if (!p.failed)
		return f;
	filter_free(f);
	return NULL;
}

void filter_free(struct filter *f)
{
	if (!f)
		return;
	free(f->text);
	free(f->step);
	free(f);
}

/* ---- matching ---- */

static bool compare(uint64_t a, enum op op, uint64_t b)
{
	switch (op) {
	case OP_EQ: return a == b;
	case OP_NE: return a != b;
	case OP_LT: return a < b;
	case OP_GT: return a > b;
	case OP_LE: return a <= b;
	default:    return a >= b;
	}
}

static uint64_t all_bytes(const struct stat_conn *c)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		sum = sat_add(sum, sat_add(c->tx_bytes[i], c->rx_bytes[i]));
	return sum;
}

static bool match_one(const struct step *st, const struct conn_ref *ref)
{
	const struct stat_conn *c = ref->c;
	const struct stat_proc *p = ref->p;
	bool yes;

	switch (st->kind) {
	/* a port that is not known is neither equal nor unequal to one */
	case K_DPORT:	return c->family && compare(c->pport, st->op, st->num);
	case K_SPORT:	return c->family && compare(c->lport, st->op, st->num);
	case K_PID:	return compare(p->pid, st->op, st->num);
	case K_FD:	return compare(c->fd, st->op, st->num);
	case K_UID:	return compare(p->uid, st->op, st->num);
	case K_BYTES:	return compare(all_bytes(c), st->op, st->num);
	case K_CUTS:	return compare(c->cuts, st->op, st->num);
	case K_REWINDS: return compare(c->rewinds, st->op, st->num);
	case K_DST:	yes = addr_pat_match(&st->pat, c->family, c->paddr, c->pport); break;
	case K_SRC:	yes = addr_pat_match(&st->pat, c->family, c->laddr, c->lport); break;
	case K_PATH:	yes = c->tx_path == st->num || c->rx_path == st->num; break;
	case K_TX:	yes = c->tx_path == st->num; break;
	case K_RX:	yes = c->rx_path == st->num; break;
	case K_PROGRAM: yes = glob_match(st->word, st->len, p->program); break;
	case K_REASON:	yes = c->reason == st->num; break;
	case K_STATE:	yes = true; break;	/* all are */
	default:	yes = c->role == st->num; break;
	}
	return yes == (st->op == OP_EQ);
}

bool filter_match(const struct filter *f, const struct conn_ref *c)
{
	bool stack[STACK_MAX + 1];
	size_t top = 0, i;

	for (i = 0; i < f->n; i++) {
		switch (f->step[i].kind) {
		case K_AND:
			top--;
			stack[top - 1] = stack[top - 1] && stack[top];
			break;
		case K_OR:
			top--;
			stack[top - 1] = stack[top - 1] || stack[top];
			break;
		case K_NOT:
			stack[top - 1] = !stack[top - 1];
			break;
		default:
			stack[top++] = match_one(&f->step[i], c);
		}
	}
	return !top || stack[0];
}
