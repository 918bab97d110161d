/*
 * rdmastat_filter.h - which connections to show: an expression in the manner of ss(8).
 *
 * 	EXPR	= TERM { [or] ... }		and binds tighter than or;
 two predicates in a row mean
 * 		and
 * 	PRED	= (dport | sport) [OP] PORT	OP: = != < > <= >= or eq ne lt gt le ge
 * 		| [dst | src] ADDRESS[/BITS][:PORT]	without dst and src: of either end
 * 		| (path | tx | rx) (tcp | shm | rdma)	path: either direction
 * 		| (program | reason | role) [OP] NAME	program: a glob
 * 		| state established		all are; other states are ss's
 * 		| (pid | fd | uid | bytes | cuts | rewinds) [OP] NUMBER	with K, M, G
 * 		| not PRED | ( EXPR )
 */
#ifndef RDMASHIM_RDMASTAT_FILTER_H
#define RDMASHIM_RDMASTAT_FILTER_H

#include "ground/rdmastat.h"

struct filter;

/* From the words of a command line; no words: everything. NULL after a complaint that names the
 * place. */
struct filter *filter_parse(const struct args *words);
bool filter_match(const struct filter *f, const struct conn_ref *c);
void filter_free(struct filter *f);

#endif
