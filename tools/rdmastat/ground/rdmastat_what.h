/*
 * rdmastat_what.h - what tells processes of one name apart: the port that they serve, else their
 * arguments.
 */
#ifndef RDMASHIM_RDMASTAT_WHAT_H
#define RDMASHIM_RDMASTAT_WHAT_H

#include "ground/rdmastat.h"

#define WHAT_LEN 48
typedef char what_text[WHAT_LEN];

/* One for each process in the list: of those that share their name with another one, or of all; ""
 * of the others. malloc; NULL: out of memory. *ret_any: one is not empty. */
what_text *whats_make(const struct stat_list *l, bool all, bool *ret_any);

#endif
