/*
 * rdmastat.h - what the files of rdmastat share.
 */
#ifndef RDMASHIM_RDMASTAT_H
#define RDMASHIM_RDMASTAT_H

#include <stdbool.h>
#include <stddef.h>

#include "statfile.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE };	/* documented in rdmastat(1) */

/* ---- options: one table per command, which is its usage text too ---- */

struct opt {
	char letter;			/* 0: none */
	const char *name, *arg;		/* arg: name of its value, NULL = none */
	const char *help;
};

struct args {
	int argc;			/* of what is left */
	char **argv;
};

/*
 * Takes the next option off the front of a. Returns its index in opts, -1 at the first word that is not an
 * option (or after --), -2 after telling the user what is wrong. *value is set if it takes one.
 */
int opt_next(struct args *a, const struct opt *opts, size_t n, const char **value);
void opt_print(const struct opt *opts, size_t n);

/* "rdmastat: ..." on stderr. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- views ---- */

struct sums {
	size_t live;
	uint64_t conns, conns_fast;
	uint64_t bytes[PATH_KINDS];	/* both directions */
	uint64_t counter[STAT_COUNTERS], reasons[REASON_COUNT];
};
void sums_add(struct sums *s, const struct stat_proc *p);

/* Share of the bytes or connections that were on a fast path, 0 to 1; -1 if there were none. */
double hit_bytes(const struct sums *s);
double hit_conns(const struct sums *s);

/* Reasons by number of connections, highest first; out has REASON_COUNT places. Returns how many are not 0. */
size_t top_reasons(const struct sums *s, enum reason *out);

const char *path_name(enum path_kind p);
const char *role_name(enum stream_role r);
/* "1.2.3.4:80" or "[::1]:80", "-" for AF_UNSPEC; buf of 64. */
const char *end_text(int family, const uint8_t *addr, uint16_t port, char *buf, size_t len);

/* The calls of all processes, most frequent first. */
struct call_sum { char name[STAT_CALL_NAME]; uint64_t tcp, fast; };
size_t call_sums(const struct stat_list *l, struct call_sum *out, size_t places);

void show_calls(const struct stat_list *l);
void json_calls(const struct stat_list *l, bool one_line);
void show_processes(const struct stat_list *l);
void show_connections(const struct stat_list *l);
void json_processes(const struct stat_list *l, bool one_line);
void json_connections(const struct stat_list *l, bool one_line);

/* ---- subcommands: argv[0] is the subcommand's own name ---- */

int cmd_policy(int argc, char **argv);
int cmd_reasons(int argc, char **argv);

#endif
