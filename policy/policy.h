/*
 * policy.h - configuration, rules, decisions. Pure: no sockets, no verbs, no threads.
 *
 * The text of a policy file becomes an immutable struct policy. The process in which the
 * library lives keeps the newest one (shim/ decides when to read the file again); an old one
 * stays valid until policy_free().
 *
 * Thread-safety: a struct policy is read-only after policy_parse(). Errors are returned,
 * never printed. malloc is used only by policy_parse/policy_load/policy_free, which are
 * called from the background thread or before the first stream, never from a signal handler.
 */
#ifndef RDMASHIM_POLICY_H
#define RDMASHIM_POLICY_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PATH(NAME, name, far, unasked, doc) PATH_##NAME,
enum path_kind {
#include "path.def"
	PATH_KINDS
};
#undef PATH
/* A bit of each: those between two hosts; those that no rule need permit. */
enum {
#define PATH(NAME, name, far, unasked, doc) | (far) << PATH_##NAME
	PATHS_FAR = 0
#include "path.def"
	,
#undef PATH
#define PATH(NAME, name, far, unasked, doc) | (unasked) << PATH_##NAME
	PATHS_UNASKED = 0
#include "path.def"
#undef PATH
};
const char *path_name(enum path_kind p);	/* as policy files and rdmastat write it, else
						 * "?" */

/* Times earn_bytes and earn_rounds that a connection has to move where most of those before it
 * ended soon (earn_lifetime). */
#define EARN_MUCH 16
/* So many slots, or link_streams if that is less, has the first link to a process: address space
 * frightens who looks at it, and most peers have few connections. Further ones have twice as
 * many. */
#define LINK_FIRST_SLOTS 64

/* Which side of the TCP connection this process is. */
enum stream_role { ROLE_CLIENT, ROLE_SERVER, ROLE_ANY };

/*
 * Tunables, one row each in policy/conf.def:
 *   CONF(name, type, default, min, max, unit, "one line of documentation")
 * type is one of bool, size (bytes; suffixes K M G), time (microseconds; suffixes us ms s), pow2
 * (a size that is a power of two), count, helpers (a count, or auto). struct policy_tunables,
 * parser, defaults and documentation come from the table.
 */
#define COPY_THREADS_AUTO 9	/* `copy_threads auto`: above all numbers */

struct policy_tunables {
#define CONF(name, type, dflt, min, max, unit, doc) uint64_t name;
#include "conf.def"
#undef CONF
};

struct policy;			/* opaque, see rule.c */

/* A place in a policy: the number of a file, 0 the first, and a line, from 1. The file itself,
 * where nothing is included, is the plain number of the line. 0: nowhere, the built-in default. */
#define POLICY_AT(file, line) ((uint32_t)(file) << 20 | (uint32_t)(line))
static inline unsigned policy_at_file(uint32_t at) { return at >> 20; }
static inline int policy_at_line(uint32_t at) { return (int)(at & 0xfffff); }

#define POLICY_PATH 256		/* bytes of the name of a file, with its NUL */
#define POLICY_DEPS 128

/* The files that a policy is made of, and the patterns by which it includes others: a change in
 * one of them is a change of the policy. Also of a policy that is refused. */
struct policy_deps {
	unsigned n;
	char path[POLICY_DEPS][POLICY_PATH];
};

struct policy_error {
	char file[256];
	int line, col;		/* from 1; 0 if the file could not be read */
	char msg[512];		/* names the value and the remedy */
};

/* "FILE:LINE:COLUMN: MESSAGE", without line and column if there is none. Returns buf. */
const char *policy_error_text(const struct policy_error *err, char *buf, size_t len);
#define POLICY_ERROR_TEXT 800	/* room for any */

/* The answer for one stream. */
struct policy_decision {
	uint32_t paths;		/* bit per enum path_kind that may be used; PATH_TCP always */
	int line;		/* of the rule that decided, 0 = built-in default          */
	char file[64];		/* its file's last component, "" = built-in                */
	uint32_t at;		/* both: POLICY_AT                                         */
	int reason;		/* enum reason if only TCP is left, else 0 */
};

/* Built-in defaults: mode on, same-host path on, rdma off. Never fails; static storage. */
const struct policy *policy_builtin(void);
/* A policy under which everything is TCP with reason `reason` (enum reason); static storage. */
const struct policy *policy_all_tcp(int reason);

/* Parses `text`. Returns 0 and *ret, or -EINVAL and *err. `name` is used in messages, and says
 * from where it includes others. */
int policy_parse(const char *text, size_t len, const char *name, struct policy **ret,
		 struct policy_error *err);
/* Reads `path` and what it includes (at most 1 MiB). -errno on read errors, *err filled in that
 * case too. */
int policy_load(const char *path, struct policy **ret, struct policy_error *err);
int policy_load_watched(const char *path, struct policy_deps *deps, struct policy **ret,
			struct policy_error *err);
void policy_free(struct policy *p);

/* Files of strangers that a pattern of an include would have meant and that were left out (one for
 * each directory at least), and one of them. */
unsigned policy_skipped(const struct policy *p, const char **one);
/* The i-th old name of a key or word that the policy has, as a sentence in buf, and its place;
 * NULL: there are no more. */
const char *policy_old_name(const struct policy *p, unsigned i, uint32_t *at, char *buf,
			    size_t len);
#define POLICY_OLD_TEXT 128	/* room for any */
/* The file of a place, "" if there is none. */
const char *policy_at_path(const struct policy *p, uint32_t at);

bool policy_mode_on(const struct policy *p);
size_t policy_rules(const struct policy *p);	/* number of `use` lines */
const struct policy_tunables *policy_tunables(const struct policy *p);

/* `program` is the basename of the executable. Addresses are sockaddr_in or sockaddr_in6; a
 * v4-mapped IPv6 address matches IPv4 rules. */
void policy_decide(const struct policy *p, const char *program, enum stream_role role,
		   const struct sockaddr *local, const struct sockaddr *peer,
		   struct policy_decision *ret);

/* Where the ends of connections within this host meet: a directory, "" = abstract names. */
const char *policy_discovery_dir(const struct policy *p);
const char *policy_cross_ns_dir(const struct policy *p);

/* May processes of that user pass descriptors to ours? Besides our own user and root
 * (peer_users). */
bool policy_takes_from(const struct policy *p, uid_t uid);

/* May the system call stubs of this program be replaced, if it is Go's (docs/go.md)? Not unless the
 * policy says so. */
bool policy_go(const struct policy *p, const char *program);

/* How another host's library proves itself: the file with the key that both have ("" = none), or
 * its address. */
const char *policy_key_file(const struct policy *p);
bool policy_trusts(const struct policy *p, const struct sockaddr *host);

/* The addresses of this host that RDMA goes by, if the policy names any: the rank of `own`, 0
 * the best, -1: not by that one. */
bool policy_has_via(const struct policy *p);
int policy_via(const struct policy *p, const struct sockaddr *own);

/* Where the policy file is: $RDMASHIM_CONF, else /etc/rdmashim.conf (unless `secure`, then the
 * environment is ignored). Returns a pointer into the environment or a constant. An empty
 * variable is none. */
const char *policy_path(bool secure);
bool policy_path_given(bool secure);	/* by the environment: then a file that is not there is
					 * an error */
/* $RDMASHIM switches the library off: off, no, false or 0, in letters of any case. */
bool policy_switched_off(void);

#endif
