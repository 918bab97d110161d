/*
 * conform.h - what a device must do that carries reliable connections, as a program of plain verbs:
 * it runs on the simulated device, on Soft-RoCE, on siw, on a card. Both ends are in one process,
 * but in the tests that say otherwise.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define BUF   (1u << 20)
#define DEPTH 16

/* One end of a connection; the other one is its peer. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *events;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t *buf;
};

struct want {
	int depth, cqe, max_inline, ord, ird, rnr_retry, retry, ack_timeout, access;
	bool sig_all, ex, srq;	/* the calls of struct ibv_qp_ex; a shared receive queue */
};
#define PLAIN                                                                                     \
	{                                                                                         \
		.depth = DEPTH, .cqe = 4 * DEPTH, .ord = 4, .ird = 4, .rnr_retry = 7, .retry = 7, \
		.access = 0xf, .sig_all = true                                                    \
	}

extern struct sockaddr_storage conform_addr;
extern bool conform_iwarp;
extern bool conform_software; /* Soft-RoCE or siw: what they are known not to do is not asked for */
extern const char *conform_name;
extern struct rdma_event_channel *conform_channel;

#define FAIL(...) conform_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(x) do { if (!(x)) FAIL("%s", #x); } while (0)
__attribute__((noreturn, format(printf, 3, 4))) void conform_fail(const char *file, int line,
								  const char *fmt, ...);
__attribute__((noreturn)) void conform_skip(const char *why);

/* conform_pair.c */
struct rdma_cm_event *cm_event(struct rdma_event_channel *ch, int ms);	/* NULL: none came */
/* The next event, which must be this one. Its status and private data. */
int cm_expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type, struct rdma_cm_id **id,
	      uint8_t *data, int ms);
struct rdma_cm_id *listen_at(struct rdma_event_channel *ch, uint16_t *ret_port);
struct rdma_cm_id *resolve(struct rdma_event_channel *ch, uint16_t port);
void end_make(struct end *e, struct rdma_cm_id *id, const struct want *w);
void end_free(struct end *e);
void connect_pair(struct end *a, struct end *b, const struct want *w);
void close_pair(struct end *a, struct end *b);
struct rdma_conn_param params_of(const struct want *w);

int post_recv(struct end *e, uint64_t id, uint32_t at, uint32_t len);
/* From at in e's buffer to at `to` in the other's, where that matters. 0 or an errno. */
int post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t at, uint32_t len,
	 const struct end *to, uint32_t there, unsigned flags);
struct ibv_send_wr wr_of(struct end *e, struct ibv_sge *sge, enum ibv_wr_opcode op, uint64_t id,
			 uint32_t at, uint32_t len, const struct end *to, uint32_t there,
			 unsigned flags);
/* The next completion; it must come, and be of this kind. */
struct ibv_wc wait_wc(struct end *e);
struct ibv_wc expect(struct end *e, uint64_t id, enum ibv_wc_status status);
bool quiet(struct end *e, int ms);		/* none comes meanwhile */
bool event_within(struct end *e, int ms); /* a completion event, which is taken and acknowledged */
void fill(struct end *e, uint32_t at, uint32_t len, unsigned seed);
bool filled(struct end *e, uint32_t at, uint32_t len, unsigned seed);

struct test { const char *name; void (*run)(void); };
extern const struct test data_tests[], error_tests[], cm_tests[], fault_tests[], cast_tests[];

#endif
