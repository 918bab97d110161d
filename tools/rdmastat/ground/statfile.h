/*
 * statfile.h - reads the counter files that policy/stat.c writes. A file may be truncated, of
 * another version, written by a liar, or vanish at any moment: every field is checked before it
 * is used, and the file is read with pread, never mapped.
 */
#ifndef RDMASHIM_STATFILE_H
#define RDMASHIM_STATFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "policy/stat.h"

/* Sums of what a liar wrote must not wrap round to something plausible. */
static inline uint64_t sat_add(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

struct stat_conn {
	uint32_t fd;
	uint16_t family;		/* AF_INET or AF_INET6; AF_UNSPEC: the ends are not known
					 * yet */
	uint16_t lport, pport;
	uint8_t laddr[16], paddr[16];
	enum stream_role role : 8;	/* small: there may be very many of these */
	enum reason reason : 8;
	enum path_kind tx_path : 8, rx_path : 8;
	uint8_t tx_state, rx_state;
	uint32_t rule_at, cuts, rewinds;	/* rule_at: POLICY_AT */
	uint32_t fulls, overflows, ring, link;	/* as in struct stat_row */
	uint64_t tx_bytes[PATH_KINDS], rx_bytes[PATH_KINDS];
	uint64_t tx_base, rx_base;	/* as in struct stat_row */
	uint32_t row, gen;		/* where it was read */
	/* what rdmastat_now.c finds out; UINT64_MAX: not known */
	uint64_t rtt;			/* ns */
	uint64_t unread, to_read;	/* bytes sent that the other end has not read, and of
					 * its, that we have not */
};

/* A place that copies between host and device memory. */
struct stat_copies {
	bool rx;
	uint8_t gpu_path;	/* as in struct stat_call_site */
	uint64_t lo, hi, copies, bytes, taken, why[REASON_COUNT];
	char where[STAT_CALL_SITE_NAME];	/* printable */
};

/* A queue pair, checked. */
struct stat_qp {
	enum stat_link_phase phase;
	enum stat_link_kind kind;
	unsigned port;
	int family;			/* of the addresses; AF_UNSPEC: not known yet */
	uint16_t lport, pport;
	uint32_t number;		/* stat_conn.link of those that are on it */
	uint32_t qpn, peer_qpn, mtu, streams, rtt;	/* as in struct stat_link; 0: not known */
	uint8_t laddr[16], paddr[16], lgid[16], pgid[16];
	char device[STAT_DEVICE];	/* printable; empty: not known yet */
};

struct stat_proc {
	uint32_t pid, uid;
	uint64_t start_time, pid_ns;
	bool dead;			/* (pid, start time) is gone */
	bool left;			/* dead, and its file is still there */
	bool away;			/* found in a /dev/shm that is not ours */
	uint64_t folded;		/* so many that have ended, together: pid 0; else 0 */
	enum stat_mode mode;
	uint32_t version;		/* of the file */
	char build[40];			/* printable; "" before version 7 */
	char *file;			/* where it was read; malloc */
	char program[64], policy_file[192];	/* printable, terminated */
	char go[STAT_GO];		/* the same; "": no Go program, or nobody asked */
	uint64_t counter[STAT_COUNTERS];
	uint64_t reasons[REASON_COUNT];
	uint64_t *link_errors;		/* malloc, by reason; NULL: not asked for */
	uint64_t tx_bytes[PATH_KINDS], rx_bytes[PATH_KINDS];	/* closed and live connections */
	uint64_t rings_held, ring_bytes, ring_budget;	/* as in the file; dead: none */
	char (*call)[STAT_CALL_NAME];	/* STAT_CALLS; empty: no such call. NULL: not asked for */
	uint64_t (*calls)[2];		/* on TCP, on a fast path */
	struct stat_copies *sites;	/* malloc */
	size_t ncall_sites;
	struct stat_qp *qps;		/* malloc */
	size_t nqps;
	struct stat_conn *conns;	/* live ones; malloc */
	size_t nconns;
	size_t more_conns;		/* live ones that are only in the sums */
	size_t more_others;		/* queue pairs and places that copy, left out */
};

/*
 * Reads <dir>/<name>; the file must be regular, owned by `owner`, closed to others, and named
 * after its pid. Returns 0 and *ret (stat_proc_clear() it), or
 * 	-ENOENT		vanished
 * 	-EPERM		of another owner, or open to others
 * 	-EPROTO		another version or layout; *ret has pid, uid, program, version and, if
 * 			it is known, build
 * 	-EBADMSG	not a counter file, cut short, garbled, or of several names
 * and other errors of open and pread.
 */
int statfile_read(int dir, const char *name, uid_t owner, struct stat_proc *ret);

/* Why there are no counters of that process, in words; and what is wrong with a directory in
 * which there should be some, NULL: nothing that can be seen. */
const char *no_counters_why(pid_t pid);
const char *counters_bad(const char *dir);

/* What of a file is seldom asked for, and more than all the rest: how often each call was made,
 * places that copy, queue pairs, why links came to nothing. */
enum { STATFILE_CALLS = 1, STATFILE_SITES = 2, STATFILE_QPS = 4, STATFILE_ERRORS = 8,
       STATFILE_ALL = 15 };
void stat_proc_clear(struct stat_proc *p);

struct stat_list {
	struct stat_proc *proc;		/* by pid */
	size_t n, cap;
	size_t bad;			/* files left out, each told to on_bad */
	/* of other users, beyond what one may have */
	size_t more_procs, more_conns, more_others;
};

typedef void (*statfile_bad)(const char *path, int error, const struct stat_proc *p);

/*
 * All counter files that this user may see: those of $RDMASHIM_STAT_DIR, else his own directory,
 * for root every /dev/shm/rdmashim.<uid>. Files of dead processes are removed; they are in the
 * list only with `dead`. pid: only that one if not 0. Of one other user root keeps so many
 * processes, connections and so on (USER_* in statfile_list.c), and only counts the rest. on_bad
 * (may be NULL) is told the path and -errno of each file or directory left out, and by what
 * process it is, if that can be read of another version. Returns 0 or -ENOMEM.
 */
int statfile_list(bool dead, pid_t pid, statfile_bad on_bad, struct stat_list *ret);
int statfile_list_parts(bool dead, pid_t pid, unsigned parts, statfile_bad on_bad,
			struct stat_list *ret);
void stat_list_clear(struct stat_list *l);

struct stat_moment {
	uint64_t when;			/* microseconds since 1970, 0 = unknown */
	enum stat_event_kind kind;
	enum reason reason;		/* of EVENT_REASON */
	uint64_t arg;
};

struct stat_past {
	struct stat_moment at[STAT_EVENTS];	/* oldest first */
	size_t n;
	uint64_t left_out;		/* between the first STAT_EVENTS_FIRST and the rest */
};

/* The history of a connection. Returns 0, -ENOENT if process or connection ended meanwhile, and
 * the errors of statfile_read(). */
int statfile_history(const struct stat_proc *p, const struct stat_conn *c, struct stat_past *ret);

/* May /proc/PID be asked for more about it: alive, of this pid namespace, and a process of the user
 * whose file names it? */
bool stat_proc_here(const struct stat_proc *p);

/*
 * For root: until own_rights(), files are opened with this user's rights, those of no group among
 * them. False: that cannot be done, and nothing has changed. Nothing happens for anybody else, for
 * root's own files, and within another user_rights().
 */
bool user_rights(uid_t uid);
void own_rights(void);

/* Is the process that wrote the file gone? False if that cannot be told from here (another pid
 * namespace). */
bool stat_proc_gone(const struct stat_proc *p);

#endif
