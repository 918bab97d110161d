/*
 * stat.h - the counters that a preloaded process shares with rdmastat.
 *
 * One file per process, <dir>/<pid>, <dir> as stat_dir_nth() has it (made 0700, refused unless
 * owned by us and closed to others); file mode 0600. The writer maps it once and adds with
 * relaxed stores; the reader (rdmastat) maps or preads it and trusts nothing in it. A process
 * that dies leaves its file; rdmastat removes those whose (pid, start time) is gone.
 *
 * Layout: struct stat_header, then struct stat_row[rows], struct stat_calls, struct
 * stat_call_site[STAT_SITES], struct stat_history[rows], struct stat_move_calls, struct
 * stat_moves[rows], struct stat_links. All fixed-width, versioned.
 */
#ifndef RDMASHIM_STAT_H
#define RDMASHIM_STAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arch/arch.h"
#include "policy.h"

enum reason {
#define REASON(id, name, what, remedy) REASON_##id,
#include "reason.def"
#undef REASON
	REASON_COUNT
};
#define STAT_REASONS 96	/* places for them in the counter file */
const char *reason_name(unsigned r);	/* "?" out of range */
const char *reason_text(unsigned r);
const char *reason_remedy(unsigned r);

#define STAT_MAGIC   0x5453444d48535331ull
#define STAT_VERSION 10
#define STAT_BUILD_SINCE 7	/* versions that have stat_header.build */
#define STAT_ROWS    16384	/* sparse: only touched pages take memory */

/* Process-wide counters: STAT(name, "documentation"), policy/stat.def. */
enum stat_counter {
#define STAT(name, doc) STAT_##name,
#include "stat.def"
#undef STAT
	STAT_COUNTERS
};

/* One connection. state: 0 free, 1 being written, 2 valid, 3 closed (kept until reused). */
struct stat_row {
	_Atomic uint32_t state;
	_Atomic uint32_t fd;
	uint16_t family;		/* AF_INET or AF_INET6; 0: the ends are not known yet */
	uint16_t lport, pport;		/* host order */
	_Atomic uint8_t role;		/* enum stream_role */
	_Atomic uint8_t reason;		/* enum reason, now */
	uint8_t laddr[16], paddr[16];	/* IPv4 in the first 4 bytes */
	_Atomic uint8_t tx_path, rx_path;	/* enum path_kind, now */
	_Atomic uint8_t tx_state, rx_state;	/* enum cut_tx_state / cut_rx_state */
	_Atomic uint32_t rule_at;	/* POLICY_AT, 0: the built-in default */
	_Atomic uint32_t cuts, rewinds;
	_Atomic uint64_t tx_bytes[PATH_KINDS], rx_bytes[PATH_KINDS];
	_Atomic uint32_t gen;		/* another at each stat_row_alloc(): a reader that sees
					 * the same gen and state 2 before and after its copy has
					 * read one connection */
	_Atomic uint32_t rule_asked;	/* rule_at that was noted last, plus 1; 0: none yet */
	_Atomic uint32_t fulls;		/* times that a sender found too little room in the ring */
	_Atomic uint32_t overflows;	/* times that it went back to TCP since the reader was
					 * too slow */
	_Atomic uint32_t ring;		/* bytes of the ring that it sends by; 0: it has none */
	_Atomic uint32_t link;		/* stat_links.link[link - 1]; 0: not by a queue pair */
	/* While a direction is on a fast path: the connection's byte after the last that
	 * tx_bytes, or rx_bytes, of that path has counted is number *_base + that count, at both
	 * ends alike. */
	_Atomic uint64_t tx_base, rx_base;
};

#define STAT_GO 96

/* What the policy lets a process do. REFUSED: its policy file is missing or cannot be used. */
enum stat_mode { STAT_MODE_OFF, STAT_MODE_ON, STAT_MODE_REFUSED, STAT_MODES };

struct stat_header {
	/* Up to `program` the same in all versions, up to `build` from 7 on: by these rdmastat
	 * knows the files of the dead, and names a process whose library is of another version. */
	uint64_t magic;
	uint32_t version, header_size, row_size, rows;
	uint32_t pid, uid;
	uint64_t start_time;		/* field 22 of /proc/pid/stat, clock ticks */
	uint64_t pid_ns;		/* inode of the pid namespace that pid belongs to, 0 =
					 * unknown */
	char program[64];
	char build[40];			/* rdmashim_version */
	char policy_file[192];
	_Atomic uint32_t mode;		/* enum stat_mode */
	_Atomic uint32_t rows_used;	/* high-water mark of rows */
	_Atomic uint64_t counter[64];	/* enum stat_counter */
	/* connections that ended or are on TCP, by last reason: see stat_row_reason */
	_Atomic uint64_t reasons[STAT_REASONS];
	/* of closed connections; live ones are in their rows */
	_Atomic uint64_t bytes_tx[PATH_KINDS], bytes_rx[PATH_KINDS];
	/* By reason: searches for the other end, or links for it, that came to nothing. */
	_Atomic uint64_t link_errors[STAT_REASONS];
	/* Now: the rings that the process sends by and that have memory, and how much; and how
	 * much they may have, 0: not known. */
	_Atomic uint64_t rings_held, ring_bytes, ring_budget;
	/* Of a Go program whose policy says `go on`: its version, and how many of its system
	 * calls come to the library, or why none does (docs/go.md). "": of any other. */
	char go[STAT_GO];
};

#define STAT_CALLS       128	/* places for kinds of calls */
#define STAT_CALL_NAME   48
#define STAT_CALL_BLOCKS 64

/* How often each kind of call was made on a stream: [0] on TCP, [1] while its direction was on a
 * fast path. */
struct stat_call_block { uint64_t n[STAT_CALLS][2]; };

/* One thread adds to a block, so that counting takes no atomic operation; whoever comes after it
 * goes on with its block. The last is shared by all threads for which there is none, and may
 * miss some. */
struct stat_calls {
	char name[STAT_CALLS][STAT_CALL_NAME];	/* in the order of n; empty: none */
	struct stat_call_block block[STAT_CALL_BLOCKS];
};

#define STAT_MOVES 16	/* places for kinds of calls that move bytes */

/* Which calls they are: their number in stat_calls plus 1; 0: none. */
struct stat_move_calls { uint8_t call[STAT_MOVES]; };

/* How often each of them was made on the connection in the row of the same number, beside what
 * stat_calls says of calls: [0] on TCP, [1] while its direction was on a fast path. So counting
 * one is an addition at a known place. Two threads that use one connection at once may lose a
 * count. */
struct stat_moves { uint64_t n[2][STAT_MOVES]; };

#define STAT_LINKS  1024
#define STAT_DEVICE 64

/* LOST: the queue pair died, its streams fall back */
enum stat_link_phase { STAT_LINK_CONNECTING, STAT_LINK_UP, STAT_LINK_LOST, STAT_LINK_PHASES };
enum stat_link_kind { STAT_LINK_UNKNOWN, STAT_LINK_INFINIBAND, STAT_LINK_ROCE, STAT_LINK_IWARP,
		      STAT_LINK_KINDS };

/* One queue pair with a process of another host, or of this one where the policy has it so. What
 * a device does not tell is 0. */
struct stat_link {
	_Atomic uint32_t state;		/* 0 free, 1 being written, 2 valid */
	_Atomic uint32_t gen;		/* as in struct stat_row: goes up at each
					 * stat_link_begin() */
	_Atomic uint8_t phase;		/* enum stat_link_phase */
	uint8_t kind;			/* enum stat_link_kind */
	uint8_t port;			/* of the device */
	uint8_t family;			/* of the addresses: AF_INET, AF_INET6; 0: not known yet */
	uint16_t lport, pport;		/* librdmacm's, host order */
	uint32_t qpn, peer_qpn;		/* numbers of the queue pair's two ends */
	uint32_t mtu;			/* bytes of a packet */
	_Atomic uint32_t streams;	/* on it now */
	_Atomic uint32_t rtt;		/* ns, rdma/verbs/rc.h; 0: none was measured yet */
	uint8_t laddr[16], paddr[16];	/* IPv4 in the first 4 bytes */
	uint8_t lgid[16], pgid[16];	/* all 0: none, as with iWARP */
	char device[STAT_DEVICE];
};

struct stat_links {
	_Atomic uint32_t used;		/* high-water mark of link[] */
	uint32_t spare;
	struct stat_link link[STAT_LINKS];
};

#define STAT_SITES     64
#define STAT_CALL_SITE_NAME 208

/* A place in the program from which it copies between host and device memory. */
struct stat_call_site {
	_Atomic uint32_t state;		/* 0 free, 2 valid */
	uint8_t rx;			/* copies to the device, of what was received; else
					 * copies to the host, to be sent */
	_Atomic uint8_t gpu_path;		/* of its last copy: 0 host: not expected to be
						 * sent, or its buffer to be received into; 1
						 * eager, 2 deferred */
	uint8_t spare[2];
	_Atomic uint64_t lo, hi;	/* host memory of its last copy */
	_Atomic uint64_t copies, bytes, taken;	/* taken: went by device memory */
	_Atomic uint64_t why[STAT_REASONS];	/* bytes of the others, by reason */
	char where[STAT_CALL_SITE_NAME];	/* the innermost function first */
};

/* What happened to a connection: EVENT(id, "name", "text"), policy/event.def. */
enum stat_event_kind {
#define EVENT(id, name, text) EVENT_##id,
#include "event.def"
#undef EVENT
	EVENT_COUNT
};
const char *stat_mode_name(unsigned m);	/* "on", "off", "bad"; "?" out of range */
const char *event_name(unsigned e);	/* "?" out of range */
const char *event_text(unsigned e);

/* Of EVENT_FULL: it was waited for so many us; did the other end wait for room, too? */
#define EVENT_FULL_ARG(us, both) ((uint64_t)(us) << 1 | !!(both))

#define STAT_EVENTS       16	/* kept per connection: */
#define STAT_EVENTS_FIRST 6	/* the first of its life, and the last ones in a ring */

struct stat_event {
	_Atomic uint64_t when;		/* microseconds since 1970; 0: the clock was not to be
					 * had */
	_Atomic uint64_t what;		/* see STAT_EVENT_WHAT; 0 while it is being written */
	_Atomic uint64_t arg;		/* by kind: a byte offset, a place in the policy
					 * (POLICY_AT), a process */
};
/* The tag ties an event to its place and its connection, so that a reader knows one that was
 * overwritten. */
#define STAT_EVENT_WHAT(gen, n, reason, kind) \
	((uint64_t)((gen) & 0xffff) << 48 | (uint64_t)((n) & 0xffff) << 32 | \
		(uint64_t)(reason) << 8 | (kind))

/* The history of the connection in the row of the same number. */
struct stat_history {
	_Atomic uint32_t next;		/* events so far, kept or not */
	uint32_t spare;
	struct stat_event event[STAT_EVENTS];
};
/* Where the event with number n is kept. */
static inline unsigned stat_event_place(uint32_t n)
{
	return n < STAT_EVENTS ? n
			       : STAT_EVENTS_FIRST + (n - STAT_EVENTS_FIRST) %
							     (STAT_EVENTS - STAT_EVENTS_FIRST);
}

/* Writer side. stat_open() creates the file lazily; on any failure the counters live in
 * anonymous memory and nobody can read them (returns -errno, never fatal). */
int stat_open(const char *program, const char *policy_file);
void stat_after_fork(void);		/* in the child: forget the parent's file; rows pointers
					 * stay readable but are private from now on; next
					 * stat_open() makes our own */
bool stat_opened(void);			/* by us or, after a fork, by the parent */
struct stat_header *stat_self(void);	/* never NULL (a static dummy before stat_open) */
void stat_add(enum stat_counter c, uint64_t n);
void stat_link_error(enum reason r);
/* Never NULL: a dummy row if the table is full or not open. Lock-free, no allocation. The row
 * comes zeroed in state 1; the caller fills in the ends and then calls stat_row_publish(). */
struct stat_row *stat_row_alloc(void);
/* State 2: from now on rdmastat shows the row. Does nothing to the dummy. */
void stat_row_publish(struct stat_row *row);
/* Folds the row's bytes into the header's totals and frees it for reuse. Nobody may add to the
 * row any more. A row from before a fork is only marked free: its bytes are the parent's. */
void stat_row_free(struct stat_row *row);
/* Gives the memory of free rows back where it is much. Any thread; it may wait for who holds the
 * file's lock (security.md), so without a lock of ours, nor under a filter of system calls. */
void stat_trim(void);
/* Of a connection that is over: what a late caller still counts there is nobody's. */
struct stat_row *stat_row_none(void);
/* Sets row->reason. header->reasons counts each connection once, under its latest reason. */
void stat_row_reason(struct stat_row *row, enum reason r);
/* Adds to the connection's history. Any thread, signal handlers too; nothing for the dummy and
 * for rows from before a fork. */
void stat_row_event(struct stat_row *row, enum stat_event_kind kind, uint64_t arg);
/* The policy decided by the rule at this place. An event only if it is another one than the last
 * time. */
void stat_row_rule(struct stat_row *row, uint32_t at);

/* This thread's block; never NULL: a dummy before stat_calls_attach(). */
extern __thread struct stat_call_block *stat_my_calls
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
extern struct stat_call_block stat_no_calls __attribute__((visibility("hidden")));
static inline void stat_call(unsigned call, unsigned fast) { stat_my_calls->n[call][fast]++; }
/* After stat_open(): what the kinds of calls are called. */
void stat_calls_name(unsigned n, const char *(*name)(unsigned call));
/* Then: which of them those that move bytes are, of which there are n. */
void stat_moves_name(unsigned n, const uint8_t *call);
/* The row's; never NULL: a dummy for the dummy, for rows from before a fork, and if there is no
 * memory. */
struct stat_moves *stat_row_moves(const struct stat_row *row);
static inline void stat_move(uint64_t *n) { arch_inc(n); }
/* Finds this thread a block, if it has none. Async-signal-safe; does nothing without a file. */
void stat_calls_take(void);
static inline void stat_calls_attach(void)
{
	if (stat_my_calls == &stat_no_calls)
		stat_calls_take();
}

/* A place for a new call site, published. Never NULL: a dummy if the table is full or not open.
 * One thread at a time. */
struct stat_call_site *stat_call_site_add(bool rx, const char *where);

/* The place of the queue pair with this number, zeroed, in state 1: the caller fills it in and
 * then calls stat_link_publish(). Never NULL: a dummy that nobody reads without a file or beyond
 * STAT_LINKS. For a number it is the same place each time, until a fork. One thread at a time. */
struct stat_link *stat_link_begin(unsigned n);
void stat_link_publish(struct stat_link *l);	/* state 2 */
void stat_link_free(struct stat_link *l);

/* Directories of the counter files for `uid`: $RDMASHIM_STAT_DIR; else /dev/shm/rdmashim.<uid>,
 * and, since anybody may make a thing of that name, /run/user/<uid>/rdmashim.<uid> or for root
 * /run/rdmashim.0. The n-th, from 0; "" if it does not fit. False: there are no more. */
bool stat_dir_nth(unsigned n, uid_t uid, char *buf, size_t len);
void stat_dir(uid_t uid, char *buf, size_t len);	/* the first */
/* Opens the first of them that is the user's, mode 0700; `make`: made if it is not there. Its
 * descriptor, and its name in buf; or -errno of the first, -EPERM if it is somebody else's or open
 * to others. Within fd_hold(). */
int stat_dir_open(uid_t uid, bool make, char *buf, size_t len);

#endif
