/*
 * conf_value.c - values of tunables in a policy file: their units and ranges, from words and as
 * text. conf.def is the table.
 */
#include <stddef.h>

#include "parser.h"
#include "words.h"

#define CONF(name, type, dflt, min, max, unit, doc) \
	[CONF_##name] = { #name, CONF_T_##type, dflt, min, max, unit, doc, \
		offsetof(struct policy_tunables, name) },
const struct conf_row conf_rows[CONF_KEYS] = {
#include "conf.def"
};
#undef CONF

static const struct unit {
	enum conf_type type;
	const char *suffix;
	uint64_t factor;
} units[] = {	/* the largest of each type last, see conf_value_text */
	{ CONF_T_size, "", 1 }, { CONF_T_size, "K", 1024 }, { CONF_T_size, "M", 1 << 20 },
		{ CONF_T_size, "G", 1 << 30 },
	{ CONF_T_time, "", 1 }, { CONF_T_time, "us", 1 }, { CONF_T_time, "ms", 1000 },
		{ CONF_T_time, "s", 1000000 },
	{ CONF_T_count, "", 1 }, { CONF_T_helpers, "", 1 },
};
#define UNITS (sizeof(units) / sizeof(units[0]))

static enum conf_type unit_type(enum conf_type type)
{
	return type == CONF_T_pow2 ? CONF_T_size : type;
}

static const char *const gpu_paths[] = { "off", "eager", "lazy" };
static const char *const aliases[] = { "any", "none" };

const char *conf_value_text(enum conf_type type, uint64_t value, char *buf, size_t len)
{
	const struct unit *best = NULL;
	size_t i;

	if (type == CONF_T_bool) {
		fmt_string(buf, len, "%s", value ? "on" : "off");
		return buf;
	}
	if (type == CONF_T_gpu || type == CONF_T_alias) {
		fmt_string(buf, len, "%s",
			   type == CONF_T_gpu ? gpu_paths[value < 3 ? value : 0]
					      : aliases[value < 2 ? value : 0]);
		return buf;
	}
	if (type == CONF_T_helpers && value == COPY_THREADS_AUTO) {
		fmt_string(buf, len, "auto");
		return buf;
	}
	for (i = 0; i < UNITS; i++)
		if (units[i].type == unit_type(type) &&
		    (!best || (value && value % units[i].factor == 0)))
			best = &units[i];
	fmt_string(buf, len, "%lu%s", value / best->factor, value ? best->suffix : "");
	return buf;
}

static const char *unit_help(enum conf_type type)
{
	switch (unit_type(type)) {
	case CONF_T_size: return "write bytes as a whole number, or with K, M or G, such as 64K";
	case CONF_T_time: return "write a whole number with us, ms or s, such as 50us";
	case CONF_T_helpers: return "write a whole number, or auto";
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

/* The next ones to either side that are in range. */
static int not_a_power(struct parser *p, const struct conf_row *row, const struct word *w,
		       uint64_t value)
{
	uint64_t below = row->max, above;
	char q[200], a[32], b[32];

	while (below > value)
		below /= 2;
	above = below * 2;
	if (above > row->max)
		above = below;
	return conf_fail(
		p, w->col, "%s: %s is not a power of two; write one such as %s or %s", row->name,
		quote_word(w->s, w->len, q, sizeof(q)),
		conf_value_text(row->type, below >= row->min ? below : above, a, sizeof(a)),
		conf_value_text(row->type, above, b, sizeof(b)));
}

#define RDMA_MTU_LEAST 256	/* enum ibv_mtu, <infiniband/verbs.h> */

int conf_parse_value(struct parser *p, const struct conf_row *row, const struct word *w,
		     uint64_t *ret)
{
	const char *suffix;
	char q[200], a[32], b[32];
	size_t n, i, rest;
	bool over;

	quote_word(w->s, w->len, q, sizeof(q));
	if (row->type == CONF_T_bool) {
		*ret = word_is(w->s, w->len, "on");
		return *ret || word_is(w->s, w->len, "off")
			       ? 0
			       : conf_fail(p, w->col,
					   "%s: %s is neither on nor off; write %s on or %s off",
					   row->name, q, row->name, row->name);
	}
	if (row->type == CONF_T_gpu)
		return one_of(w, gpu_paths, 3, ret)
			       ? 0
			       : conf_fail_word(p, w, "is not a GPU path",
						"write device off, device eager or device lazy",
						gpu_paths, 3);
	if (row->type == CONF_T_alias)
		return one_of(w, aliases, 2, ret)
			       ? 0
			       : conf_fail_word(p, w, "is neither any nor none",
						"write alias any or alias none", aliases, 2);
	if (row->type == CONF_T_helpers && word_is(w->s, w->len, "auto")) {
		*ret = COPY_THREADS_AUTO;
		return 0;
	}
	n = parse_digits(w->s, w->len, ret, &over);
	if (!n)
		return conf_fail(p, w->col, "%s: %s is not a number; %s", row->name, q,
				 unit_help(row->type));
	suffix = w->s + n;
	rest = w->len - n;
	for (i = 0; i < UNITS; i++)
		if (units[i].type == unit_type(row->type) && word_is(suffix, rest, units[i].suffix))
			break;
	if (i == UNITS)
		return conf_fail(p, w->col + (int)n, "%s: %s is not a unit here; %s", row->name,
			    quote_word(suffix, rest, q, sizeof(q)), unit_help(row->type));
	if (over || __builtin_mul_overflow(*ret, units[i].factor, ret) || *ret < row->min ||
	    *ret > row->max)
		return conf_fail(p, w->col, "%s: %s is out of range; write %s to %s", row->name, q,
			    conf_value_text(row->type, row->min, a, sizeof(a)),
			    conf_value_text(row->type, row->max, b, sizeof(b)));
	if (row == &conf_rows[CONF_rdma_mtu] && *ret && *ret < RDMA_MTU_LEAST)
		return conf_fail(p, w->col, "%s: %s is out of range; write 0, or 256 to 4K",
				 row->name, q);
	if (row->type == CONF_T_pow2 && (*ret & (*ret - 1)))
		return not_a_power(p, row, w, *ret);
	return 0;
}
