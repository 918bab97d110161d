/*
 * renamed.c - what keys and words were once called (renamed.def). No state.
 */
#include "renamed.h"

#include <string.h>

#include "words.h"

const struct old_name old_names[OLD_NAMES] = {
#define OLD(of, old, now) { #of, old, now },
#include "renamed.def"
#undef OLD
};

const struct old_name *old_name(const char *of, const char *s, size_t len)
{
	for (size_t i = 0; i < OLD_NAMES; i++)
		if (!strcmp(old_names[i].of, of) && word_is(s, len, old_names[i].old))
			return &old_names[i];
	return NULL;
}

const char *former_name(const char *of, const char *now)
{
	for (size_t i = 0; i < OLD_NAMES; i++)
		if (!strcmp(old_names[i].of, of) && !strcmp(old_names[i].now, now))
			return old_names[i].old;
	return now;
}
