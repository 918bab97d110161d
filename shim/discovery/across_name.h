/*
 * across_name.h - the files of the policy's cross_ns_dir: what across_name.c and across_left.c
 * share. Background thread only.
 */
#ifndef RDMASHIM_ACROSS_NAME_H
#define RDMASHIM_ACROSS_NAME_H

#include "discovery/across.h"

#define ACROSS_TAKEN ".x"	/* beside a name that two have wanted */
#define ACROSS_LEAF  (8 + 2 * ACROSS_NAME + sizeof(ACROSS_TAKEN))

/* The name of a connection's file, with what is behind it. */
void across_leaf_of(const uint8_t name[ACROSS_NAME], const char *end, char leaf[ACROSS_LEAF]);
/* Another file's, of this key and any boot; false: there is no key. */
bool across_leaf(const char *begin, const char *label, const uint32_t said[2],
		 char leaf[ACROSS_LEAF]);

/* ---- across_left.c: a name is there; it is gone; a child has none ---- */
void across_left_add(int dir, const uint8_t name[ACROSS_NAME]);
void across_left_remove(int dir, const uint8_t name[ACROSS_NAME]);
void across_left_after_fork(void);

#endif
