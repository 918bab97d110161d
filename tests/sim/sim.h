/*
 * sim.h - the simulated world around the real machine of shim/cut: two processes ("ends"), two
 * directions, a kernel TCP and a ring for each, one control socket with a FIFO per way, programs.
 *
 * One thread, no locks. A struct world is plain memory without pointers: copying it with
 * memcpy forks the future, which is what the exhaustive search does. It must stay free of
 * garbage (everything unused is zero), because states are compared by a hash of its bytes.
 */
#ifndef SIM_H
#define SIM_H

#include "../../shim/cut/cut.h"

enum {
	CUT_RULE_NONE,
#define CUT_RULE(id, doc) CUT_RULE_##id,
#include "../../shim/cut/cut.def"
	RULE_ENV_BASE,
#define ENV_RULE(id, doc) ENV_RULE_##id,
#include "env.def"
	RULES
};
extern int cut_mutant;
#define ENV(id) (cut_mutant != ENV_RULE_##id)

enum { TCP_MAX = 16, RING_MAX = 16, CTL_MAX = 24, IDLE_WAKES_MAX = 3, PROXY_XOR = 0x80,
       BYPASS_BYTE = 0xee, STEPS_MAX = 96 };

/* What a sleeping application thread can be woken by. */
enum { SLEEP_NO = 0, SLEEP_SOCK = 1, SLEEP_BELL = 2 };

struct config {
	uint8_t n[2];		/* bytes that each direction's application sends            */
	uint8_t tcp_cap, ring_cap;
	uint8_t gate[2];	/* end i reads only after it has written that much           */
	uint8_t coarse;		/* random mode: several bytes in one step                    */
	uint8_t rdma;		/* the ring lands with delay, the path can die               */
	uint8_t one_way;	/* only direction 0 carries anything                         */
	uint8_t exec_gate;	/* the peer of an exec'ing end reads only afterwards          */
	uint8_t edge;		/* both ends read until a short read, then wait for an edge  */
	uint8_t proxy;		/* a proxy that keeps the addresses, and changes the bytes   */
	/* budgets of what may happen */
	uint8_t earn, fallback, kill, breaks, exec, fork, stop, path_death, full_close, abort,
		claim, bypass, offer, urgent;
};

struct tcp {
	uint8_t sq[TCP_MAX], rq[TCP_MAX];	/* on the way, arrived */
	uint8_t sqn, rqn;
	bool fin, fin_arr;	/* FIN queued behind sq; arrived */
	bool rst;		/* at the reading end: sq lost, rq still readable */
	uint8_t put, taken;	/* bytes that went through: what delta must account for */
	bool rst_ok;		/* that RST is what plain TCP would have shown */
	uint8_t urg;		/* 0, or 1 + the place in rq, then sq, of a urgent byte: no byte
				 * of the stream */
	uint8_t urg_put, urg_taken;	/* urgent bytes, which the kernel counts with the others */
};

/* A block in the sender's memory that the reader may take from there (stream_direct.c). */
enum { OFFER_NONE, OFFER_OFFERED, OFFER_READING, OFFER_READ };

/* The same over RDMA (pull.c). */
enum { PULL_SAID = 4 };
struct pull {
	uint8_t at, n;		/* sender: where in the stream the block is */
	bool asked, fenced;	/* ... it was withdrawn; nobody can read it any more */
	uint8_t said[PULL_SAID], n_said;	/* records on their way to the reader */
	bool answered;		/* one on its way back: TAKEN */
	uint8_t answer;
	bool known, withdrawn;	/* reader: what it has heard */
	uint8_t got;		/* ... bytes that it has read */
	bool fetched, stale;	/* the READ under way has its byte; that is not the stream's */
};

/* The ring and its header, in memory that both ends map. */
struct ring {
	uint8_t buf[RING_MAX];
	uint8_t epoch, s, wr, rd, final;
	uint8_t landed;		/* rdma: what the reader sees; else = wr */
	bool has_final, final_landed;
	bool dead;		/* rdma: path gone */
	uint8_t land[RING_MAX];	/* rdma: the reader's copy */
	uint8_t late, late_end;	/* rdma: offsets of WRITEs of an older epoch that are still on
				 * their way */
};

struct dir {
	struct cut_tx tx;
	struct cut_rx rx;
	struct tcp tcp;
	struct ring ring;
	uint8_t got;		/* bytes given to the reading application */
	uint8_t owed;		/* after an abort: what had arrived, and must be read before the
				 * error */
	uint8_t w_sleep, r_sleep;
	uint8_t w_mid, r_mid;	/* bytes of an unfinished copy (only with a rule off) */
	bool w_closed, w_err, r_eof, r_err;
	bool path_told_tx, path_told_rx;
	bool measuring;		/* between the two looks at the kernel's counters */
	uint8_t acked;		/* what the first look saw */
	uint8_t idle_wakes;	/* the writer was told of room, and there was none */
	uint8_t offer, offer_n, offer_at;	/* enum; bytes offered, then taken; where in the
						 * stream */
	struct pull pull;
	bool taking;		/* the reader is in the middle of a take, and has its lock */
	bool stuck;		/* it takes long: the sender has released its own */
	uint8_t urg_off;	/* where in the stream the urgent byte belongs */
	bool r_foreign;		/* a call that sleeps in a read of a number that is another file
				 * now */
	bool bypassed;		/* a system call of the program's own wrote to the home socket
				 * while the ring was in use */
	bool stolen;		/* a stranger was taken for the peer */
};

enum { CTL_UP, CTL_DOWN, CTL_NONE };

struct ctl_msg {
	uint8_t dir, msg, epoch, off;
};

struct end {
	struct ctl_msg q[CTL_MAX];	/* control messages on the way to this end */
	uint8_t qn;
	uint8_t ctl;		/* this end's view of the control socket */
	bool ctl_closed;	/* the other end is gone: drain, then the end of file */
	bool dead, tcp_only, shared;
	bool exec;		/* waits to exec or to pass the fd */
	bool exec_keeps_ctl;	/* fd passing */
	bool urgent;		/* waits to send a urgent byte */
	bool stopped;		/* SIGSTOP */
	bool closed;		/* close(): nobody reads here any more */
	bool aborted;		/* closed by RST: its halves are gone, the process and its
				 * control socket are not */
};

struct world {
	struct config cfg;	/* budgets count down in here */
	struct dir d[2];	/* d[i]: end i sends, end 1 - i reads */
	struct end e[2];
	bool ctl_gone;		/* control lost for good while both live */
	bool reset_ok;		/* a reset may be seen from now on */
	uint8_t fail;		/* enum failure */
};

enum failure {
	FAIL_NONE, FAIL_BYTE, FAIL_EOF, FAIL_RESET, FAIL_BAD, FAIL_STUCK, FAIL_ENDLESS,
	FAIL_AFTER_FIN, FAIL_RANGE, FAIL_ACTIONS, FAIL_DELTA, FAIL_BUSY, FAIL_FOREIGN,
		FAIL_STRANGER, FAIL_PEEK, FAIL_URGENT, FAIL_STRAY, FAILURES
};
extern const char *const fail_name[FAILURES];

/* One thing that can happen. `who` is a direction or an end. */
enum step_kind {
#define STEP(name, optional) S_##name,
#include "step.def"
	STEP_KINDS
};
struct step {
	uint8_t kind, who, n;
};
extern const char *const step_name[STEP_KINDS];
extern const bool step_optional[STEP_KINDS];

/* Which transitions of the machine have happened so far, as bits of the states that they led to;
 * 1 << state of the row: it stayed. */
extern uint16_t seen_tx[CUT_TX_STATES][CUT_EV_MAX], seen_rx[CUT_RX_STATES][CUT_EV_MAX];

/* world.c */
void world_init(struct world *w, const struct config *cfg);
void world_tx(struct world *w, int d, enum cut_ev ev, uint32_t epoch, uint64_t off);
void world_rx(struct world *w, int d, enum cut_ev ev, uint32_t epoch, uint64_t off);
uint8_t world_byte(int d, unsigned off);
void world_fail(struct world *w, enum failure why);
void world_check_delta(struct world *w);
bool world_done(const struct world *w);
bool world_tx_free(const struct world *w, int d);
bool world_rx_free(const struct world *w, int d);
void world_tcp_put_urgent(struct world *w, int d);
int world_tcp_room(const struct world *w, int d);
void world_tcp_put(struct world *w, int d, uint8_t byte);
void world_rst(struct world *w, int d, bool ok);
void world_reset(struct world *w, int end);
void world_kill(struct world *w, int i);
void world_wake(struct world *w, int d, bool reader, int how);
void world_path_dies(struct world *w);

/* step.c: all enabled steps; doing one. `verbose` prints it. */
int world_steps(const struct world *w, struct step *out);
void world_do(struct world *w, struct step s);
void world_print(const struct world *w, struct step s);

/* app.c: what the applications do */
bool app_can_write(const struct world *w, int d);
bool app_can_read(const struct world *w, int d);
void app_write(struct world *w, int d, int n);
void app_read(struct world *w, int d, int n);
void app_check_peek(struct world *w, int d);
bool app_ring_full(const struct world *w, int d);
void app_offer(struct world *w, int d, int n);
void app_take_end(struct world *w, int d, int n);
bool app_settle(struct world *w, int d, bool now);
void app_see(struct world *w, int d, uint8_t b);

/* pull.c */
void pull_offer(struct world *w, int d, int n);
void pull_withdraw(struct world *w, int d);
void pull_fence(struct world *w, int d);
void pull_hear(struct world *w, int d);
void pull_taken(struct world *w, int d);
void pull_take(struct world *w, int d);
void pull_fetch(struct world *w, int d);
void pull_end(struct world *w, int d, bool well);
void pull_stop(struct world *w, int d);
void pull_path_dies(struct world *w);
void pull_frozen(struct world *w, int d, uint64_t c);

/* main.c: the number of transitions of cut.def that have not happened, and prints them. */
int table_unseen(void);

/* search.c. Return 0 if clean. */
int run_random(uint64_t seed, bool verbose, uint8_t *ret_fail);
int search_random(uint64_t first, uint64_t count, bool quiet, uint64_t *ret_seed,
		  uint8_t *ret_fail);
int search_exhaustive(bool quiet, const char **ret_name, uint8_t *ret_fail);
int search_hostile(uint64_t seed, uint64_t count);

#endif
