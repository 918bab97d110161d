/*
 * post.c - work requests into the queues, completions out of them: what a provider does in a
 * program. Each call takes as long as its knob says, at least.
 */
#include "lib.h"

#include <string.h>

#define SYNC_NS 100000		/* sync_post waits no longer */

struct nic_qp *nic_qps[NIC_QPS];

static const struct nic_knobs *knobs(void) { return &nic_page()->knobs; }

static void take(_Atomic uint32_t *l)
{
	while (atomic_exchange_explicit(l, 1, memory_order_acquire))
		nic_pause();
}

static void give(_Atomic uint32_t *l) { atomic_store_explicit(l, 0, memory_order_release); }

/* When the call may return. */
static uint64_t until(int64_t cost) { return cost ? nic_now() + (uint64_t)cost : 0; }

static void spend(uint64_t end)
{
	if (end)
		nic_spin_until(end);
}

/* ---- sending ---- */

static int wrong(const struct nic_qp *q, const struct ibv_send_wr *wr)
{
	bool imm = wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->cap.max_send_sge)
		return EINVAL;
	if (wr->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD || (knobs()->iwarp && (imm || atomic)))
		return EINVAL;
	if (knobs()->iwarp && wr->opcode == IBV_WR_RDMA_READ && wr->num_sge > 1)
		return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) && (atomic || wr->opcode == IBV_WR_RDMA_READ))
		return EINVAL;
	return 0;
}

static int put_inline(const struct nic_qp *q, struct nic_wqe *w, const struct ibv_sge *sge, int n)
{
	uint8_t *to = (uint8_t *)(w + 1);

	w->is_inline = 1;
	for (int i = 0; i < n; i++) {
		if (sge[i].length > q->cap.max_inline_data - w->len)
			return EINVAL;
		memcpy(to + w->len, (void *)(uintptr_t)sge[i].addr, sge[i].length);
		w->len += sge[i].length;
	}
	return 0;
}

static int put_sges(struct nic_wqe *w, const struct ibv_sge *sge, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += sge[i].length;
	memcpy(w + 1, sge, (size_t)n * sizeof *sge);
	w->nsge = (uint16_t)n;
	w->len = (uint32_t)sum;
	return sum > 1u << 31 ? EINVAL : 0;
}

static int put(struct nic_qp *q, struct nic_wqe *w, const struct ibv_send_wr *wr)
{
	int r = wrong(q, wr);

	if (r)
		return r;
	*w = (struct nic_wqe){ .wr_id = wr->wr_id,
			       .flags = wr->send_flags,
			       .opcode = (uint16_t)wr->opcode,
			       .imm = wr->imm_data,
			       .raddr = wr->wr.rdma.remote_addr,
			       .rkey = wr->wr.rdma.rkey };
	if (wr->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		return put_inline(q, w, wr->sg_list, wr->num_sge);
	return put_sges(w, wr->sg_list, wr->num_sge);
}

static int may_send(const struct nic_qp *q)
{
	uint32_t s = atomic_load_explicit(&q->mem->state, memory_order_relaxed);

	return s == IBV_QPS_RESET || s == IBV_QPS_INIT || s == IBV_QPS_RTR ? EINVAL : 0;
}

static void wait_done(struct nic_qp *q, uint32_t head)
{
	uint64_t end = nic_now() + SYNC_NS;

	while ((int32_t)(atomic_load_explicit(&q->mem->completed, memory_order_acquire) - head) <
		       0 &&
	       nic_now() < end)
		nic_pause();
}

static void ring(struct nic_qp *q, uint32_t head)
{
	atomic_store_explicit(&q->mem->sq.head, head, memory_order_release);
	nic_doorbell(q->index);
	if (knobs()->sync_post)
		wait_done(q, head);
}

static bool sq_full(const struct nic_qp *q, uint32_t head)
{
	return head - atomic_load_explicit(&q->sq_tail, memory_order_acquire) >= q->mem->sq.most;
}

int nic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct nic_qp *q = (struct nic_qp *)qp;
	uint64_t end = until(knobs()->post_ns);
	uint32_t head, first;
	int r = may_send(q);

	take(&q->sq_lock);
	head = first = atomic_load_explicit(&q->mem->sq.head, memory_order_relaxed);
	for (; wr && !r; wr = r ? wr : wr->next) {
		r = sq_full(q, head) ? ENOMEM : put(q, nic_wqe(q->mem, &q->mem->sq, head), wr);
		head += !r;
	}
	if (r)
		*bad = wr;
	if (head != first)
		ring(q, head);
	give(&q->sq_lock);
	spend(end);
	return r;
}

/* ---- the calls of struct ibv_qp_ex: one request after the other between wr_start and wr_complete
 * ---- */

static struct nic_qp *of(struct ibv_qp_ex *ex) { return (struct nic_qp *)ex; }

static void ex_start(struct ibv_qp_ex *ex)
{
	take(&of(ex)->sq_lock);
	of(ex)->batch_head = atomic_load_explicit(&of(ex)->mem->sq.head, memory_order_relaxed);
	of(ex)->batch_error = may_send(of(ex));
}

static struct nic_wqe *ex_next(struct ibv_qp_ex *ex, uint16_t opcode)
{
	struct nic_qp *q = of(ex);
	static __thread struct { struct nic_wqe w; struct ibv_sge room[64]; } nowhere;

	if (!q->batch_error && sq_full(q, q->batch_head))
		q->batch_error = ENOMEM;
	q->at = q->batch_error ? &nowhere.w : nic_wqe(q->mem, &q->mem->sq, q->batch_head++);
	*q->at = (struct nic_wqe){ .wr_id = ex->wr_id, .flags = ex->wr_flags, .opcode = opcode };
	return q->at;
}

static void ex_rdma(struct ibv_qp_ex *ex, uint16_t opcode, uint32_t rkey, uint64_t raddr)
{
	struct nic_wqe *w = ex_next(ex, opcode);

	w->rkey = rkey;
	w->raddr = raddr;
}

static void ex_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
	ex_rdma(ex, IBV_WR_RDMA_WRITE, rkey, raddr);
}
static void ex_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
	ex_rdma(ex, IBV_WR_RDMA_READ, rkey, raddr);
}
static void ex_send(struct ibv_qp_ex *ex) { ex_next(ex, IBV_WR_SEND); }
static void ex_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	ex_next(ex, IBV_WR_SEND_WITH_IMM)->imm = imm;
}

static void ex_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, __be32 imm)
{
	ex_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, raddr);
	of(ex)->at->imm = imm;
}

static void ex_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t add)
{
	ex_rdma(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, raddr);
	of(ex)->at->compare_add = add;
}

static void ex_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t compare,
		       uint64_t swap)
{
	ex_rdma(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, raddr);
	of(ex)->at->compare_add = compare;
	of(ex)->at->swap = swap;
}

static void ex_sges(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *sge)
{
	int r = n > of(ex)->cap.max_send_sge ? EINVAL : put_sges(of(ex)->at, sge, (int)n);

	of(ex)->batch_error = of(ex)->batch_error ? of(ex)->batch_error : r;
}

static void ex_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t len)
{
	ex_sges(ex, 1, &(struct ibv_sge){ addr, len, lkey });
}

static void ex_inline(struct ibv_qp_ex *ex, void *addr, size_t len)
{
	int r = put_inline(of(ex), of(ex)->at,
			   &(struct ibv_sge){ (uintptr_t)addr, (uint32_t)len, 0 }, 1);

	of(ex)->batch_error = of(ex)->batch_error ? of(ex)->batch_error : r;
}

static void ex_abort(struct ibv_qp_ex *ex) { give(&of(ex)->sq_lock); }

static int ex_complete(struct ibv_qp_ex *ex)
{
	struct nic_qp *q = of(ex);
	uint64_t end = until(knobs()->post_ns);
	int r = q->batch_error;

	if (!r)
		ring(q, q->batch_head);
	give(&q->sq_lock);
	spend(end);
	return r;
}

void nic_qp_ops(struct nic_qp *q)
{
	struct ibv_qp_ex *ex = &q->ex;

	ex->wr_start = ex_start;
	ex->wr_complete = ex_complete;
	ex->wr_abort = ex_abort;
	ex->wr_rdma_write = ex_write;
	ex->wr_rdma_write_imm = ex_write_imm;
	ex->wr_rdma_read = ex_read;
	ex->wr_send = ex_send;
	ex->wr_send_imm = ex_send_imm;
	ex->wr_atomic_fetch_add = ex_fetch_add;
	ex->wr_atomic_cmp_swp = ex_cmp_swp;
	ex->wr_set_sge = ex_sge;
	ex->wr_set_sge_list = ex_sges;
	ex->wr_set_inline_data = ex_inline;
}

/* ---- receiving ---- */

static int put_recv(void *mem, struct nic_queue *q, uint32_t tail, uint32_t max_sge,
		    const struct ibv_recv_wr *wr)
{
	uint32_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
	struct nic_wqe *w = nic_wqe(mem, q, head);
	int r;

	if (head - tail >= q->most)
		return ENOMEM;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
		return EINVAL;
	*w = (struct nic_wqe){ .wr_id = wr->wr_id };
	r = put_sges(w, wr->sg_list, wr->num_sge);
	if (!r)
		atomic_store_explicit(&q->head, head + 1, memory_order_release);
	return r;
}

int nic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct nic_qp *q = (struct nic_qp *)qp;
	uint64_t end = until(knobs()->post_ns);
	int r = qp->srq || atomic_load(&q->mem->state) == IBV_QPS_RESET ? EINVAL : 0;

	take(&q->rq_lock);
	for (; wr && !r; wr = r ? wr : wr->next)
		r = put_recv(q->mem, &q->mem->rq,
			     atomic_load_explicit(&q->rq_tail, memory_order_acquire),
			     q->cap.max_recv_sge, wr);
	if (r)
		*bad = wr;
	give(&q->rq_lock);
	if (atomic_load(&q->mem->state) == IBV_QPS_ERR)	/* to be flushed */
		nic_doorbell(q->index);
	spend(end);
	return r;
}

int nic_post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct nic_srq *s = (struct nic_srq *)srq;
	uint64_t end = until(knobs()->post_ns);
	int r = 0;

	take(&s->lock);
	for (; wr && !r; wr = r ? wr : wr->next)
		r = put_recv(s->q, s->q, atomic_load_explicit(&s->tail, memory_order_acquire),
			     s->max_sge, wr);
	if (r)
		*bad = wr;
	give(&s->lock);
	spend(end);
	return r;
}

/* ---- completions ---- */

static void freed(struct nic_qp *q, const struct nic_cqe *e)
{
	if (!e->recv)
		atomic_store_explicit(&q->sq_tail, e->freed, memory_order_release);
	else if (q->ex.qp_base.srq)
		atomic_store_explicit(&((struct nic_srq *)q->ex.qp_base.srq)->tail, e->freed,
				      memory_order_release);
	else
		atomic_store_explicit(&q->rq_tail, e->freed, memory_order_release);
}

static void tell(const struct nic_cqe *e, struct ibv_wc *wc)
{
	struct nic_qp *q = nic_qps[e->index];

	*wc = (struct ibv_wc){ .wr_id = e->wr_id,
			       .status = e->status,
			       .opcode = e->opcode,
			       .vendor_err = e->vendor,
			       .byte_len = e->byte_len,
			       .imm_data = e->imm,
			       .qp_num = e->qpn,
			       .src_qp = e->src_qp,
			       .wc_flags = e->flags };
	if (q && q->ex.qp_base.qp_num == e->qpn)
		freed(q, e);
}

int nic_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct nic_cq *c = (struct nic_cq *)cq;
	struct nic_cq_mem *m = c->mem;
	uint32_t at = atomic_load_explicit(&m->consumed, memory_order_relaxed);
	uint64_t end;
	int k;

	if (at == atomic_load_explicit(&m->produced, memory_order_acquire))
		return atomic_load_explicit(&m->overrun, memory_order_relaxed) ? -1 : 0;
	end = until(knobs()->poll_ns);
	take(&c->lock);
	at = atomic_load_explicit(&m->consumed, memory_order_relaxed);
	for (k = 0; k < n && at != atomic_load_explicit(&m->produced, memory_order_acquire);
	     k++, at++)
		tell(&m->e[at & (m->size - 1)], &wc[k]);
	atomic_store_explicit(&m->consumed, at, memory_order_release);
	give(&c->lock);
	if (end && k)
		nic_spin_until(end + (uint64_t)(k - 1) * (uint64_t)knobs()->poll_ns);
	return k;
}

int nic_arm_cq(struct ibv_cq *cq, int solicited)
{
	struct nic_cq *c = (struct nic_cq *)cq;
	uint64_t end = until(knobs()->arm_ns);

	if (!solicited || atomic_load(&c->mem->armed) == NIC_UNARMED)
		atomic_store(&c->mem->armed, solicited ? NIC_ARMED_SOLICITED : NIC_ARMED);
	spend(end);
	return 0;
}
