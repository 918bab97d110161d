/*
 * conf.h - the rows of conf.def as data, for the parser, rdmastat and the tests.
 */
#ifndef RDMASHIM_CONF_H
#define RDMASHIM_CONF_H

#include <stddef.h>
#include <stdint.h>

#include "policy.h"
#include "trust.h"

#ifndef RDMASHIM_CONF_PATH
#define RDMASHIM_CONF_PATH "/etc/rdmashim.conf"
#endif

enum conf_type { CONF_T_bool, CONF_T_size, CONF_T_pow2, CONF_T_time, CONF_T_count, CONF_T_gpu,
		 CONF_T_alias, CONF_T_helpers };

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

/* ---- texts: source.c ---- */

#define POLICY_NAME 256		/* bytes of a name in a directory, with its NUL */

/* Where the text of policy files comes from. */
struct policy_source {
	/* At most `max` bytes of the file, malloc'ed with room for one more, and which file that is
	 * (device, inode). Their number, -errno, or TRUST_REFUSED and why in *t. */
	long (*read)(const struct policy_source *src, const char *path, size_t max, char **ret,
		     uint64_t id[2], struct trust *t);
	/* The names in `dir` that match, sorted; `dir` ends in a slash or is ".". Their number,
	 * -E2BIG: more than `max`, -errno, or TRUST_REFUSED. What strangers put there is left out;
	 * one of them in `skipped` (else ""). */
	int (*list)(const struct policy_source *src, const char *dir, const char *pattern,
		    char (*name)[POLICY_NAME], size_t max, char skipped[POLICY_NAME],
		    struct trust *t);
	void *arg;
};
extern const struct policy_source policy_disk;
/* What to do about an error of these; `why`: of struct trust. */
const char *source_remedy(long error, const char *why);

/* As policy_load(). `deps` may be NULL. */
int policy_parse_from(const struct policy_source *src, const char *path, struct policy_deps *deps,
		      struct policy **ret, struct policy_error *err);
/* The policy of the file `main`, with the text in the place of what is in `path`: that file, or
 * one that it includes. */
int policy_parse_instead(const char *main, const char *path, const char *text, size_t len,
			 struct policy **ret, struct policy_error *err);

#endif
