/*
 * wire.h - what the libraries of the simulated RDMA device (verbs.c, cm.c) and its process
 * (nicd*.c) share: the control socket's messages, and the queues in shared memory.
 *
 *   program: libibverbs.so.1, librdmacm.so.1                 nicd
 *        struct nic_req, SOCK_SEQPACKET ------------------->   "kernel": objects, connections
 *        <------------------ struct nic_rep, descriptors
 *        nic_qp_mem: work requests, nic_db: doorbells ----->   "card": engine threads
 *        <------------------------- nic_cq_mem: completions
 *        <--- pipes: completion events, asynchronous events, events of the connection manager
 */
#ifndef NIC_WIRE_H
#define NIC_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#include <infiniband/verbs.h>

struct nic_knobs {
#define KNOB(name, value, unit, doc) int64_t name;
#include "knobs.def"
#undef KNOB
};

/* ---- control socket ---- */

enum nic_op {
	OP_HELLO,
	OP_OPEN,
	OP_CLOSE,
	OP_QUERY_PORT,
	OP_ALLOC_PD,
	OP_DEALLOC_PD,
	OP_REG_MR,
	OP_DEREG_MR,
	OP_CREATE_CHANNEL,
	OP_DESTROY_CHANNEL,
	OP_CREATE_CQ,
	OP_DESTROY_CQ,
	OP_CREATE_QP,
	OP_MODIFY_QP,
	OP_QUERY_QP,
	OP_DESTROY_QP,
	OP_CREATE_SRQ,
	OP_DESTROY_SRQ,
	OP_MODIFY_SRQ,
	OP_CM_CHANNEL,
	OP_CM_CHANNEL_DESTROY,
	OP_CM_ID,
	OP_CM_ID_DESTROY,
	OP_CM_BIND,
	OP_CM_LISTEN,
	OP_CM_ADDR,
	OP_CM_ROUTE,
	OP_CM_CONNECT,
	OP_CM_ACCEPT,
	OP_CM_REJECT,
	OP_CM_DISCONNECT,
	OP_CM_ESTABLISH,
	OP_CM_OPTION,
	OP_CM_MIGRATE,
	OP_CM_ATTR,
	OP_CTL,
	OPS
};

#define NIC_DATA 512
#define NIC_FDS  4

struct nic_req {
	uint32_t op, h, h2, h3;
	uint64_t a, b, c, d;
	uint8_t data[NIC_DATA];
};

struct nic_rep {
	int32_t err;			/* an errno */
	uint32_t h, h2, h3;
	uint64_t a, b, c, d;
	uint8_t data[NIC_DATA];
};

struct nic_qp_caps {
	uint32_t pd, send_cq, recv_cq, srq, sig_all, index;
	struct ibv_qp_cap cap;
	uint8_t type;
};

struct nic_modify {
	int32_t mask;
	struct ibv_qp_attr attr;
};

/* ---- connection manager ---- */

#define NIC_PRIVATE 256

struct nic_conn {
	uint32_t qpn;
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count,
		srq, private_len;
	uint8_t private_data[NIC_PRIVATE];
};

struct nic_addrs {
	struct sockaddr_storage src, dst;
};

/* What an event channel's pipe carries; less than PIPE_BUF, so one write. */
struct nic_cm_event {
	uint32_t id, listen; /* handles; of a connect request the new id's, and the listener's */
	int32_t event, status;
	uint32_t device, device_gen;
	struct nic_addrs addrs;
	struct nic_conn conn;
};

/* ---- queues ---- */

struct nic_cqe {
	uint64_t wr_id;
	uint32_t status, opcode, byte_len, imm, qpn, src_qp, flags;
	uint32_t index;			/* of the queue pair in its process */
	uint32_t freed; /* work requests of that queue that are free again, with all before */
	uint32_t recv, vendor, pad[3];
};
_Static_assert(sizeof(struct nic_cqe) == 64, "a completion is a cache line");

enum { NIC_UNARMED, NIC_ARMED_SOLICITED, NIC_ARMED };

struct nic_cq_mem {
	uint32_t size, cqe;		/* entries: a power of two, and what was asked for */
	_Alignas(64) _Atomic uint32_t produced;
	_Alignas(64) _Atomic uint32_t consumed;
	_Atomic uint32_t armed, overrun;
	_Alignas(64) struct nic_cqe e[];
};

struct nic_wqe {
	uint64_t wr_id, raddr, compare_add, swap;
	uint32_t rkey, imm, len, flags;
	uint16_t opcode, nsge, is_inline, pad;
	uint64_t pad2;
};				/* and then struct ibv_sge[], or the inline bytes */
_Static_assert(sizeof(struct nic_wqe) == 64, "a work request's head is a cache line");

struct nic_queue {
	uint32_t size, stride, at, most; /* work requests: a power of two; bytes; where; as many as
					    may be used */
	_Alignas(64) _Atomic uint32_t head;	/* posted */
};

struct nic_qp_mem {
	struct nic_queue sq, rq;
	_Alignas(64) _Atomic uint32_t state;	/* enum ibv_qp_state */
	_Atomic uint32_t completed;		/* of the send queue */
};

static inline struct nic_wqe *nic_wqe(void *mem, const struct nic_queue *q, uint32_t i)
{
	return (struct nic_wqe *)((uint8_t *)mem + q->at + (size_t)(i & (q->size - 1)) * q->stride);
}

/* ---- of a process: which queue pairs have new work ---- */
#define NIC_QPS 4096

struct nic_db {
	_Alignas(64) _Atomic uint64_t summary;
	_Alignas(64) _Atomic uint64_t bits[NIC_QPS / 64];
};

/* ---- of the device, for all ---- */
#define NIC_ENGINES 16

struct nic_page {
	struct nic_knobs knobs;
	uint64_t tsc_mult; /* nanoseconds << 32 of one count of the processor's counter; 0: none
			      that serves */
	struct { _Alignas(64) _Atomic uint32_t asleep; } engine[NIC_ENGINES];	/* a futex */
};

static inline uint64_t nic_clock(uint64_t tsc_mult)
{
	struct timespec t;

#ifdef __x86_64__
	if (tsc_mult)
		return (uint64_t)((unsigned __int128)__builtin_ia32_rdtsc() * tsc_mult >> 32);
#endif
	(void)tsc_mult;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void nic_pause(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* Asynchronous events, as they come through the pipe of a context. */
struct nic_async {
	uint32_t type, qp_index, cq, port;
};

#endif
