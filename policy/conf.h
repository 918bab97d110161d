/*
 * conf.h - the rows of conf.def as data, for the parser, rdmastat and the tests.
 */
#ifndef RDMASHIM_CONF_H
#define RDMASHIM_CONF_H

#include <stddef.h>
#include <stdint.h>

#include "policy.h"

enum conf_type { CONF_T_bool, CONF_T_size, CONF_T_pow2, CONF_T_time, CONF_T_count, CONF_T_lane, CONF_T_alias };

enum conf_key {
#define CONF(name, type, dflt, min, max, unit, doc) CONF_##name,
#include "conf.def"
#undef CONF
	CONF_KEYS
};

struct conf_row {
	const char *name;
	enum conf_type type;
	uint64_t dflt, min, max;	/* bytes, microseconds or a plain number */
	const char *unit, *doc;
	size_t offset;			/* in struct policy_tunables */
};
extern const struct conf_row conf_rows[CONF_KEYS];

static inline uint64_t conf_get(const struct policy_tunables *t, enum conf_key key)
{
	return *(const uint64_t *)((const char *)t + conf_rows[key].offset);
}

/* The value as it would stand in a file, with its shortest exact unit: "256K", "50us". */
const char *conf_value_text(enum conf_type type, uint64_t value, char *buf, size_t len);

#endif
