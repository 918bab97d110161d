/*
 * nicd.h - inside the process that is the simulated RDMA devices, their network and the kernel's
 * part of them.
 *
 * Threads: the main one has the control sockets, makes and destroys objects, and is the connection
 * manager (nicd_cm.c). Engines are the cards; each has some of the nodes, and what belongs to a
 * node's queue pairs is its engine's. While the main thread changes anything it stops the engines
 * between two rounds (world_stop()); so objects need no locks. What crosses from engine to engine
 * are packets, in the receiving node's queue, under that queue's lock; and completion queues are a
 * node's own.
 */
#ifndef NICD_H
#define NICD_H

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "wire.h"

#define NODES   256
#define QPS     65536
#define MRS     65536
#define NEVER   UINT64_MAX

extern struct nic_page *page;
#define K (page->knobs)

static inline uint64_t now_ns(void) { return nic_clock(page->tsc_mult); }
static inline bool after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
} /* sequence numbers */

struct node;
struct qp;

/* ---- objects: nicd_obj.c ---- */

enum kind { K_FREE, K_CTX, K_PD, K_CHANNEL, K_CQ, K_QP, K_SRQ, K_MR, K_CM_CHANNEL, K_ID };

struct obj {
	enum kind kind;
	uint32_t handle;
	uint32_t refs;			/* of other objects */
	struct client *client;
	struct obj *next;		/* of the client's */
};

struct client {
	int fd, pidfd;
	pid_t pid;
	struct node *node;		/* NULL before HELLO */
	struct obj *objs;
	struct nic_db *db;
	struct qp *qp[NIC_QPS];		/* by index */
	struct client *next;		/* of all */
	struct client *next_of_node;
};
extern struct client *clients;

/* Events on their way to a program. */
struct pipe { int in, out; };

struct ctx { struct obj o; struct pipe async; uint32_t device; bool removed; };
struct pd { struct obj o; struct ctx *ctx; };
struct channel { struct obj o; struct pipe fd; };

struct cq {
	struct obj o;
	struct ctx *ctx;
	struct channel *channel;
	struct nic_cq_mem *mem;
	size_t bytes;
	bool dead;
	uint64_t event_at;		/* NEVER, or when to tell the channel */
	struct cq *next_event;
};

struct mr {
	struct obj o;
	struct pd *pd;
	uint64_t addr, len, iova;
	int access;
	uint32_t key;
	uint8_t *map;			/* the same memory here, or NULL */
	uint8_t *map_base;
	size_t map_bytes;
	struct pin *pin;		/* or its pages, pinned (pin.h), or NULL */
};

struct srq {
	struct obj o;
	struct pd *pd;
	struct ctx *ctx;
	struct nic_queue *q;		/* the head of the shared memory */
	size_t bytes;
	uint32_t next, limit;
};

/* ---- packets: nicd_net.c ---- */

enum pkt_type { P_REQ, P_READ_REQ, P_ATOMIC_REQ, P_ACK, P_NAK, P_READ_RESP, P_ATOMIC_RESP, P_CNP };
enum nak { NAK_SEQ, NAK_INVALID, NAK_ACCESS, NAK_OP, NAK_RNR };

struct pkt {
	struct pkt *next;
	uint64_t due;
	uint32_t dst_qpn, src_qpn, psn;
	uint8_t type, opcode, nak, first, last, solicited, marked;
	uint32_t imm, rkey, len, total, offset, rnr_ns;
	uint64_t raddr, compare_add, swap;
	bool big;			/* from the pool of large ones */
	uint8_t data[];
};
#define PKT_SMALL 512

struct pkt *pkt_new(uint32_t payload);
void pkt_free(struct pkt *p);
/* Into the net: takes the packet. From src's port to dst's. */
void net_send(struct node *src, struct node *dst, struct pkt *p);
/* May src put a packet for dst on its wire now? */
bool net_room(struct node *src, struct node *dst, uint64_t now);
struct pkt *net_receive(struct node *n, uint64_t now);	/* NULL: none is due */
uint64_t net_next(struct node *n);			/* when one will be, or NEVER */
/* "drop KIND [SKIP [COUNT]]" and the like; 0 or an errno */
int net_fault(const char *kind, long skip, long count);

struct node {
	char name[32];
	uint32_t index;
	struct engine *engine;
	struct client *clients;
	struct cq *events;
	bool port_down, removed;
	uint32_t gen;			/* of its devices: counts removals */
	uint32_t nqp, nmr;
	uint64_t registered;		/* bytes */
	struct qp *ready, **ready_end;	/* with something to send */
	struct qp *responding;		/* with something to answer */
	struct qp *timed;		/* with a timer */
	uint64_t timers_at, stalled_until;
	/* the port */
	_Atomic uint32_t lock;		/* of what follows */
	uint64_t tx_free, rx_free, last_due;
	struct pkt *in, **in_end;
	uint64_t tx_bytes, rx_bytes, packets, chunks, lost, marked, paused, slowed, spaced;
	uint64_t queued, queued_n, late, late_max;
};
extern struct node *nodes[NODES];
extern unsigned nodes_n;

static inline void spin_lock(_Atomic uint32_t *l)
{
	while (atomic_exchange_explicit(l, 1, memory_order_acquire))
		nic_pause();
}

static inline void spin_unlock(_Atomic uint32_t *l)
{
	atomic_store_explicit(l, 0, memory_order_release);
}

/* ---- queue pairs: nicd_qp.c (states, flush), nicd_req.c, nicd_resp.c ---- */

/* What is known of a work request that is being sent. */
struct track {
	uint32_t psn, segments, got;
	uint8_t sent, status, answered;	/* status: an error that it will complete with */
};

struct answer {
	struct answer *next;
	uint8_t type, nak;		/* P_ACK, P_NAK, P_READ_RESP, P_ATOMIC_RESP */
	uint32_t psn, rkey, segment, segments, total;
	uint64_t raddr, value;
	uint32_t rnr_ns;
};

struct qp {
	struct obj o;
	struct node *node;
	struct pd *pd;
	struct ctx *ctx;
	struct cq *scq, *rcq;
	struct srq *srq;
	struct nic_qp_mem *mem;
	size_t bytes;
	uint32_t qpn, index;
	bool sig_all;
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	uint32_t state;
	/* requester */
	struct track *track;
	uint32_t sq_done;		/* the oldest that is not completed */
	uint32_t tx, tx_seg;		/* the next to send */
	uint32_t psn, acked;		/* the next new one; all before that are acknowledged */
	uint32_t reads;			/* under way */
	uint32_t retries, rnr_tries;
	uint64_t timer, rnr_until, rate_gap, rate_next;
	bool is_ready, is_timed, is_responding, failed;
	struct qp *next_ready, *next_timed, *next_responding;
	/* responder */
	uint32_t epsn, rq_next;
	bool nak_sent, in_message, have_recv, dying;	/* dying: ERR when the answer is sent */
	uint64_t cnp_at;
	struct nic_wqe recv;		/* the work request that the message goes to */
	struct ibv_sge recv_sge[32];
	uint32_t recv_done, write_done, read_jobs;
	struct answer *answers, **answers_end;
	struct { uint32_t psn; uint64_t value; bool valid; } atomics[16];
	uint32_t atomic_next;
};
extern struct qp *qps[QPS];

static inline uint32_t sq_head(const struct qp *q)
{
	return atomic_load_explicit(&q->mem->sq.head, memory_order_acquire);
}
static inline struct nic_wqe *sq_at(const struct qp *q, uint32_t i)
{
	return nic_wqe(q->mem, &q->mem->sq, i);
}
static inline struct track *track_at(const struct qp *q, uint32_t i)
{
	return &q->track[i & (q->mem->sq.size - 1)];
}

struct qp *qp_find(uint32_t qpn);
int qp_modify(struct qp *q, const struct ibv_qp_attr *a, int mask);	/* 0 or an errno */
void qp_error(struct qp *q);			/* to ERR, everything flushed */
void qp_flush(struct qp *q);			/* what was posted since */
void qp_ready(struct qp *q);
void qp_timed(struct qp *q, uint64_t at);
void qp_answers_drop(struct qp *q);

void req_reset(struct qp *q, uint32_t psn);
bool req_send(struct qp *q, uint64_t now); /* one packet. False: there is nothing to send now */
void req_answered(struct qp *q, struct pkt *p, uint64_t now);
void req_timer(struct qp *q, uint64_t now);
void req_complete(struct qp *q, uint32_t status, bool flush);
void resp_packet(struct qp *q, struct pkt *p, uint64_t now);
bool resp_send(struct qp *q, uint64_t now);
/* A completion for the receive at hand. */
void resp_complete(struct qp *q, uint32_t status, uint32_t opcode, uint32_t flags,
		   const struct pkt *p);
bool resp_take(struct qp *q);			/* the next posted receive, into q->recv */

/* ---- memory: nicd_mem.c ---- */

int mem_map(struct mr *mr, pid_t pid, int dmabuf, uint64_t offset);
void mem_unmap(struct mr *mr);
/* nicd_pin.c */
struct nic_pin;
struct pin *pin_take(int pidfd, const struct nic_pin *of);	/* NULL: not to be had */
void pin_end(struct pin *p);
bool pin_copy(struct pin *p, uint64_t addr, void *here, size_t n, bool write);

struct mr *mr_find(uint32_t key);
/* The MR of that key if the access is right: same pd, within its bounds, permitted. */
struct mr *mr_check(uint32_t key, const struct pd *pd, uint64_t addr, uint64_t len, int access);
int mem_read(const struct mr *mr, uint64_t addr, void *to, size_t n);
int mem_write(const struct mr *mr, uint64_t addr, const void *from, size_t n);
/* From or to a list of buffers, at an offset in it. 0, or an enum ibv_wc_status. */
int sge_read(const struct qp *q, const struct ibv_sge *sge, unsigned n, uint32_t at, void *to,
	     uint32_t len);
int sge_write(const struct qp *q, const struct ibv_sge *sge, unsigned n, uint32_t at,
	      const void *from, uint32_t len);
int sge_check(const struct qp *q, const struct ibv_sge *sge, unsigned n, int access);

/* ---- completions and events ---- */

void cq_add(struct cq *cq, const struct nic_cqe *e, bool solicited);
void cq_events(struct node *n, uint64_t now);	/* those that are due */
uint64_t cq_events_next(const struct node *n);
void async_event(struct ctx *ctx, uint32_t type, const struct qp *q, const struct cq *cq);

/* ---- nicd_obj.c, nicd_cm.c, nicd.c ---- */

struct call {
	struct client *c;
	const struct nic_req *req;
	struct nic_rep *rep;
	int fds[NIC_FDS], nfds;		/* that came; who takes one sets it to -1 */
	int out[NIC_FDS], nout;		/* to send along, closed afterwards */
};

void *obj_new(struct client *c, enum kind kind, size_t bytes);
void *obj_get(struct client *c, uint32_t handle, enum kind kind);
void obj_free(struct obj *o);
void client_gone(struct client *c);
int obj_call(struct call *call);	/* an errno */
int cm_call(struct call *call);
uint64_t cm_timers(uint64_t now);	/* sends what is due; when to come again */
void cm_id_gone(struct obj *o);
void cm_channel_gone(struct obj *o);
void cm_removed(struct node *n);
bool cm_listens(uint16_t port);
int pipe_make(struct call *call, struct pipe *ret);	/* an errno */
void pipe_end(struct pipe *p);
/* Takes out the events that nobody can have a use for any more. */
void pipe_purge(struct pipe *p, size_t size, bool (*gone)(const void *event, uint32_t handle),
		uint32_t handle);
void node_remove(struct node *n);
void node_port(struct node *n, bool up);
struct node *node_named(const char *name);

void world_stop(void);
void world_go(void);
void engine_wake(struct engine *e);
int knob_set(const char *words, char *err, size_t n);	/* "name=value ...", "profile=NAME" */

#endif
