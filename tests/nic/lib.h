/*
 * lib.h - inside libibverbs.so.1 of the simulated device, and what librdmacm.so.1 uses of it
 * (symbols SIMNIC_PRIVATE).
 */
#ifndef NIC_LIB_H
#define NIC_LIB_H

#include "raw.h"
#include "wire.h"

#include <infiniband/verbs.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

#define NIC_EXPORT __attribute__((visibility("default")))

struct nic_fds {
	int in[NIC_FDS], nin;		/* to send along */
	int out[NIC_FDS], nout;		/* that came */
};

/* A call to the device's process. 0 or an errno. */
NIC_EXPORT int nic_call(struct nic_req *req, struct nic_rep *rep, struct nic_fds *fds);
NIC_EXPORT int nic_connected(void);		/* an errno; then what follows is there */
const struct nic_page *nic_page(void);
/* What to say when nothing will come through a pipe any more. */
NIC_EXPORT int nic_ended(int fd);
void nic_doorbell(uint32_t index);
NIC_EXPORT struct ibv_context *nic_open(uint32_t device, uint32_t *ret_gen);
void nic_spin_until(uint64_t ns);
static inline uint64_t nic_now(void) { return nic_clock(nic_page()->tsc_mult); }
void *nic_map(int fd, size_t bytes);	/* closes it */

struct nic_context {
	struct verbs_context v;
	uint32_t handle, device, gen;
};

struct nic_qp {
	struct ibv_qp_ex ex;		/* qp_base is what the program sees */
	struct nic_qp_mem *mem;
	size_t bytes;
	uint32_t index;
	bool sig_all;
	struct ibv_qp_cap cap;
	struct ibv_qp_init_attr init;
	_Atomic uint32_t sq_lock, rq_lock, sq_tail, rq_tail;
	/* a batch of the calls of struct ibv_qp_ex */
	uint32_t batch_head;
	int batch_error;
	struct nic_wqe *at;
};

struct nic_cq {
	struct ibv_cq cq;
	struct nic_cq_mem *mem;
	size_t bytes;
	_Atomic uint32_t lock;
	uint32_t events;		/* that were got */
	struct nic_cq *next;		/* of all */
};

struct nic_srq {
	struct ibv_srq srq;
	struct nic_queue *q;
	size_t bytes;
	_Atomic uint32_t lock, tail;
	uint32_t max_sge;
	struct nic_srq *next;
};

struct nic_mr {
	struct ibv_mr mr;
	size_t pinned;
};

extern struct nic_qp *nic_qps[NIC_QPS];

/* post.c */
int nic_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int nic_arm_cq(struct ibv_cq *cq, int solicited);
int nic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int nic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int nic_post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void nic_qp_ops(struct nic_qp *q);

/* mem.c */
struct ibv_mr *nic_reg(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access,
		       int dmabuf, uint64_t offset);
bool nic_registered(void);	/* something was, ever */
bool nic_fork_wanted(void);	/* registered memory is not a child's */

#endif
