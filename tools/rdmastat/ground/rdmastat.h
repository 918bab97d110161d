/*
 * rdmastat.h - what the files of rdmastat share. One process, one thread, no locks.
 */
#ifndef RDMASHIM_RDMASTAT_H
#define RDMASHIM_RDMASTAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "policy/version.h"
#include "ground/statfile.h"

/* Documented in rdmastat(1); the last two are the doctor's. */
enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_WARN, EXIT_FAIL };

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
 * Takes the next option off the front of a. Returns its index in opts, -1 at the first word that
 * is not an option (or after --), -2 after telling the user what is wrong. *value is set if it
 * takes one.
 */
int opt_next(struct args *a, const struct opt *opts, size_t n, const char **value);
void opt_print(const struct opt *opts, size_t n);

/* A whole number from min to max, or a complaint about `what` and false. */
bool opt_number(const char *s, uint64_t min, uint64_t max, const char *what, uint64_t *ret);
/* Complains and returns false if there is no such directory. */
bool opt_directory(const char *dir, const char *what);

/* What may hold names of strangers: one line, of which nothing steers the terminal. */
void print_foreign(FILE *f, const char *fmt, va_list ap);
void say_line(FILE *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "rdmastat: ..." on stderr. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Complains and returns false if something else than a file has that name: a new file is not to
 * take a device's place. */
bool replaceable(const char *path);

struct request;
/* Width and colour of the screen, from the terminal, COLUMNS and NO_COLOR. */
void find_terminal(struct request *r);

/* What the user asked for. */
struct request {
	bool json, all, absolute, addresses;
	unsigned parts;			/* STATFILE_CALLS and so on: what to read besides */
	unsigned watch, count;		/* seconds, 0 = once; times, 0 = for ever */
	pid_t pid;			/* 0: all */
	const char *program;		/* glob or NULL */
	const char *sort, *columns, *output, *listen, *hosts, *show, *svg, *root;
	bool color;
	int width;			/* columns of the terminal, 0 = no limit */
	struct args words;		/* behind the command */
};

/*
 * The processes that the request asks for, less what was there at the last reset. Returns 0, or
 * an exit code after a complaint. quiet: say nothing about files that were left out.
 */
int get_list(const struct request *r, bool quiet, struct stat_list *ret);
/* The same for every process, whatever -p and --program say. */
int get_all(const struct request *r, bool quiet, struct stat_list *ret);

/* Flushes stdout; an error there is told and turns rc into EXIT_FAILED. */
int finish(int rc);

/* ---- colours: "" unless the request has them ---- */

enum tint { TINT_OFF, TINT_HEAD, TINT_GOOD, TINT_WARN, TINT_BAD, TINT_DIM };
const char *tint(const struct request *r, enum tint t);
enum tint tint_of_share(double share);	/* good, middling, bad; off if below 0 */

/* ---- text ---- */

const char *role_name(enum stream_role r);
/* for people; some reasons need none */
const char *remedy_text(enum reason r);
/* "1.2.3.4:80" or "[::1]:80", "-" for AF_UNSPEC; buf of 64. */
const char *end_text(int family, const uint8_t *addr, uint16_t port, char *buf, size_t len);
/* A rate that a file only claims may be beyond all numbers. */
static inline uint64_t whole(double v) { return v < 1 ? 0 : v < 0x1p64 ? (uint64_t)v : UINT64_MAX; }
const char *human(uint64_t v, char *buf, size_t len);		/* at most 6 characters: "1.1K" */
static inline const char *plural(uint64_t n) { return n == 1 ? "" : "s"; }
const char *percent(double share, char *buf, size_t len);	/* "-" below 0 */
struct sockaddr_storage;
/* an address of this host, in this network namespace? (rdmastat_peer.c) */
bool address_here(const struct sockaddr_storage *a);
/* "FILE:LINE" of a place in a policy, POLICY_AT. `first`: the policy file itself; p may be NULL:
 * what it includes is not known. */
const char *place_text(const struct policy *p, const char *first, uint32_t at, char *buf,
		       size_t len);
/* That line, as one line of printable text; "" if there is none. */
const char *place_line(const struct policy *p, uint32_t at, char *buf, size_t len);
/* One word of a command to copy, quoted for a shell if need be; "FILE" if it does not fit. */
const char *shell_word(const char *s, char *buf, size_t len);
/* Prints `first`, which is our own, then text, of which nothing steers the terminal, broken at
 * blanks so that no line is longer than width (0: not broken), further lines indented. */
void print_wrapped(FILE *f, const char *first, int indent, const char *text, int width);

/* ---- sums ---- */

struct sums {
	size_t live;
	uint64_t conns, conns_fast;
	uint64_t bytes[PATH_KINDS];	/* both directions */
	uint64_t counter[STAT_COUNTERS], reasons[REASON_COUNT];
	uint64_t live_bytes[REASON_COUNT];	/* by TCP, of open connections, by their reason */
	uint64_t rings_held, ring_bytes;	/* of those that are alive */
};
void sums_add(struct sums *s, const struct stat_proc *p);

/* Share of the bytes or connections that were on a fast path, 0 to 1; -1 if there were none. */
double hit_bytes(const struct sums *s);
double hit_conns(const struct sums *s);
double hit_of(const uint64_t bytes[PATH_KINDS]);

/* Share of the waits that got what they waited for without a sleep; -1 if there were none. */
double waits_polled(const struct sums *s);

/* Why bytes went by TCP: reasons of some connections, by the bytes of those that are open, then by
 * how many they are, highest first. A reader that was too slow is one, though its connection left
 * TCP again. out has REASON_COUNT places; returns how many there are. */
size_t top_reasons(const struct sums *s, enum reason *out);
/* What happened, with how often if that is known. */
const char *cause_text(const struct sums *s, enum reason r, char *buf, size_t len);
extern const char *const counter_names[STAT_COUNTERS];

/* ---- connections ---- */

struct conn_ref {
	const struct stat_proc *p;
	const struct stat_conn *c;
};

/* The live connections that the filter (words behind the command) leaves, sorted as asked.
 * malloc; NULL after a complaint, with *rc. */
struct conn_ref *conn_select(const struct request *r, const struct stat_list *l, size_t *n,
			     int *rc);

/* The other end of a connection among the processes in the list, or false. pairs_make() once per
 * list, pairs_free() after. */
struct pairs;
struct pairs *pairs_make(const struct stat_list *l);
bool pairs_find(const struct pairs *ps, const struct stat_conn *c, struct conn_ref *ret);
void pairs_free(struct pairs *ps);

/* One pair of processes and what runs between them. */
struct link_row {
	const struct stat_proc *a, *b;	/* b NULL: other ends that are in no process of the list */
	uint64_t conns, fast;		/* fast: not on TCP in at least one direction */
	uint64_t bytes[PATH_KINDS];	/* as a counts them */
};
/* malloc, NULL if out of memory */
struct link_row *links_make(const struct stat_list *l, size_t *n);

/* ---- views: print the list once, return an exit code ---- */

int show_overview(const struct request *r, const struct stat_list *l);
int show_connections(const struct request *r, const struct stat_list *l);
int show_listeners(const struct request *r, const struct stat_list *l);
int show_links(const struct request *r, const struct stat_list *l);
int show_devices(const struct request *r, const struct stat_list *l);
int show_qps(const struct request *r, const struct stat_list *l);
int show_memory(const struct request *r, const struct stat_list *l);
int show_calls(const struct request *r, const struct stat_list *l);
int show_staging(const struct request *r, const struct stat_list *l);
int show_why(const struct request *r, const struct stat_list *l);
int show_stacks(const struct request *r, const struct stat_list *l);
int show_prometheus(const struct request *r, const struct stat_list *l);

/* ---- commands of their own kind ---- */

int cmd_top(const struct request *r);
int cmd_prometheus(const struct request *r);
int cmd_record(const struct request *r);
int cmd_report(const struct request *r);
int cmd_reset(const struct request *r);
int cmd_bundle(const struct request *r);

/* argv[0] is the subcommand's own name */
int cmd_policy(int argc, char **argv);
int cmd_reasons(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_loop(int argc, char **argv);	/* the doctor's other selves */
int cmd_cuda(int argc, char **argv);
int policy_set(int argc, char **argv);
int policy_unset(int argc, char **argv);
int policy_import(int argc, char **argv);

/* Takes the counts of the last reset off the list. */
void baseline_apply(struct stat_list *l);

#endif
