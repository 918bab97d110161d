/*
 * renamed.h - the rows of renamed.def as data, for the parser, rdmastat and the tests.
 */
#ifndef RDMASHIM_RENAMED_H
#define RDMASHIM_RENAMED_H

#include <stddef.h>

struct old_name {
	const char *of;		/* key, device, check or reason */
	const char *old, *now;
};

enum {
#define OLD(of, old, now) + 1
	OLD_NAMES = 0
#include "renamed.def"
#undef OLD
};
extern const struct old_name old_names[OLD_NAMES];

/* The row of the old name s[0..len). NULL: it is none. */
const struct old_name *old_name(const char *of, const char *s, size_t len);
/* What `now` was called; itself if it never had another name. */
const char *former_name(const char *of, const char *now);

#endif
