/*
 * rdmastat_policy.h - what the files of `rdmastat policy` share: a policy file, loaded, and its
 * errors.
 */
#ifndef RDMASHIM_RDMASTAT_POLICY_H
#define RDMASHIM_RDMASTAT_POLICY_H

#include "ground/rdmastat_json.h"

static const struct request plain = { 0 };	/* for json_print */

/* ---- rdmastat_policy.c ---- */

/* That line of a file on stderr, with a mark below the column; nothing if it cannot be read. */
void print_source(const char *path, int line, int col);
void print_error(const struct policy_error *err);	/* with the line that it is in */
/* Loads `path`, or the file that a program would use. A missing default file is no error:
 * *builtin. */
int load(const char *path, struct policy **ret, bool *builtin, struct policy_error *err);

/* ---- rdmastat_policy_check.c, rdmastat_policy_explain.c: argv[0] is the subcommand's name ---- */

int check(int argc, char **argv);
int explain(int argc, char **argv);

enum { EX_PROGRAM, EX_ROLE, EX_LOCAL, EX_PEER, EX_FILE, EX_JSON, EX_OPTIONS };
extern const struct opt explain_options[EX_OPTIONS];

#endif
