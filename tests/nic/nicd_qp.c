/*
 * nicd_qp.c - queue pairs' states, what is flushed, completion queues and their events. By the
 * engine of the queue pair's node, or with the world stopped.
 */
#include "nicd.h"

#include <errno.h>
#include <unistd.h>

struct qp *qps[QPS];

struct qp *qp_find(uint32_t qpn)
{
	struct qp *q = qps[qpn % QPS];

	return q && q->qpn == qpn ? q : NULL;
}

/* ---- completions ---- */

void async_event(struct ctx *ctx, uint32_t type, const struct qp *q, const struct cq *cq)
{
	struct nic_async a = {
		.type = type, .qp_index = q ? q->index : 0, .cq = cq ? cq->o.handle : 0, .port = 1
	};

	if (ctx && write(ctx->async.out, &a, sizeof a) != sizeof a)
		fprintf(stderr, "nicd: an asynchronous event is lost: %u\n", type);
}

static void cq_overrun(struct cq *cq)
{
	cq->dead = true;
	atomic_store(&cq->mem->overrun, 1);
	async_event(cq->ctx, IBV_EVENT_CQ_ERR, NULL, cq);
	for (unsigned i = 0; i < NIC_QPS; i++) {
		struct qp *q = cq->o.client->qp[i];

		if (q && (q->scq == cq || q->rcq == cq) && q->state != IBV_QPS_ERR &&
		    q->state != IBV_QPS_RESET) {
			async_event(q->ctx, IBV_EVENT_QP_FATAL, q, NULL);
			qp_error(q);
		}
	}
}

void cq_add(struct cq *cq, const struct nic_cqe *e, bool solicited)
{
	struct nic_cq_mem *m = cq->mem;
	uint32_t at = atomic_load_explicit(&m->produced, memory_order_relaxed), armed;
	struct node *n = cq->o.client->node;

	if (cq->dead)
		return;
	if (at - atomic_load_explicit(&m->consumed, memory_order_acquire) >= m->cqe) {
		cq_overrun(cq);
		return;
	}
	m->e[at & (m->size - 1)] = *e;
	atomic_store_explicit(&m->produced, at + 1, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	armed = atomic_load_explicit(&m->armed, memory_order_relaxed);
	if (armed == NIC_UNARMED || !cq->channel ||
	    (armed == NIC_ARMED_SOLICITED && !solicited && !e->status))
		return;
	atomic_store(&m->armed, NIC_UNARMED);
	if (cq->event_at == NEVER) {
		cq->event_at = now_ns() + (uint64_t)K.event_ns;
		cq->next_event = n->events;
		n->events = cq;
	}
}

void cq_events(struct node *n, uint64_t now)
{
	for (struct cq **at = &n->events; *at;) {
		struct cq *cq = *at;
		uint64_t cookie = cq->o.handle;

		if (cq->event_at > now ||
		    (write(cq->channel->fd.out, &cookie, sizeof cookie) < 0 && errno == EAGAIN)) {
			at = &cq->next_event;
			continue;
		}
		cq->event_at = NEVER;
		*at = cq->next_event;
	}
}

uint64_t cq_events_next(const struct node *n)
{
	uint64_t at = NEVER;

	for (const struct cq *cq = n->events; cq; cq = cq->next_event)
		at = cq->event_at < at ? cq->event_at : at;
	return at;
}

/* ---- lists of the node ---- */

void qp_ready(struct qp *q)
{
	if (q->is_ready)
		return;
	q->is_ready = true;
	q->next_ready = NULL;
	*q->node->ready_end = q;
	q->node->ready_end = &q->next_ready;
}

void qp_timed(struct qp *q, uint64_t at)
{
	q->timer = at;
	if (at < q->node->timers_at)
		q->node->timers_at = at;
	if (q->is_timed)
		return;
	q->is_timed = true;
	q->next_timed = q->node->timed;
	q->node->timed = q;
}

void qp_answers_drop(struct qp *q)
{
	for (struct answer *a; (a = q->answers);) {
		q->answers = a->next;
		free(a);
	}
	q->answers_end = &q->answers;
	q->read_jobs = 0;
}

/* ---- states ---- */

static void set_state(struct qp *q, uint32_t state)
{
	q->state = state;
	atomic_store(&q->mem->state, state);
}

/* All that is posted and not completed. */
void qp_flush(struct qp *q)
{
	if (q->state != IBV_QPS_ERR)
		return;
	while (q->sq_done != sq_head(q))
		req_complete(q, IBV_WC_WR_FLUSH_ERR, true);
	if (q->have_recv)
		resp_complete(q, IBV_WC_WR_FLUSH_ERR, 0, 0, NULL);
	while (!q->srq && resp_take(q))
		resp_complete(q, IBV_WC_WR_FLUSH_ERR, 0, 0, NULL);
}

void qp_error(struct qp *q)
{
	if (q->state == IBV_QPS_ERR || q->state == IBV_QPS_RESET)
		return;
	set_state(q, IBV_QPS_ERR);
	q->timer = NEVER;
	qp_answers_drop(q);
	qp_flush(q);
	if (q->srq)
		async_event(q->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, q, NULL);
}

static void reset(struct qp *q)
{
	set_state(q, IBV_QPS_RESET);
	qp_answers_drop(q);
	q->timer = NEVER;
	q->have_recv = q->in_message = q->nak_sent = q->failed = false;
	q->rq_next = atomic_load(&q->mem->rq.head);
	q->sq_done = q->tx = sq_head(q);
	q->tx_seg = q->reads = 0;
}

#define INIT_MASK (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                         \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define RTS_OPT                                                                            \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | \
	 IBV_QP_PATH_MIG_STATE)
#define ANY       (~0)

/* What each step must say, and may. */
static const struct step { uint8_t from, to; int must, may;
} steps[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_MASK, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_MASK },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK,
	  IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK, RTS_OPT },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_OPT },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_CUR_STATE },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, ANY },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0, ANY },
};

static const struct step *step_of(uint32_t from, uint32_t to)
{
	for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
		if (steps[i].from == from && steps[i].to == to)
			return &steps[i];
	return NULL;
}

static int check(const struct qp *q, const struct ibv_qp_attr *a, int mask, uint32_t to)
{
	const struct step *s;

	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET)
		return 0;
	s = step_of(q->state, to);
	mask &= ~IBV_QP_STATE;
	if (!s || (mask & s->must) != s->must || (mask & ~(s->must | s->may | IBV_QP_CUR_STATE)))
		return EINVAL;
	if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > K.max_rd_atom) ||
	    ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > K.max_rd_atom) ||
	    ((mask & IBV_QP_TIMEOUT) && a->timeout > 31) ||
	    ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7) ||
	    ((mask & IBV_QP_PORT) && a->port_num != 1) ||
	    ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096)))
		return EINVAL;
	return 0;
}

int qp_modify(struct qp *q, const struct ibv_qp_attr *a, int mask)
{
	uint32_t to = mask & IBV_QP_STATE ? a->qp_state : q->state;
	int r = check(q, a, mask, to);

	if (r)
		return r;
	if (to == IBV_QPS_RESET) {
		reset(q);
		return 0;
	}
#define TAKE(bit, field) if (mask & (bit)) q->attr.field = a->field
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
#undef TAKE
	if (to == IBV_QPS_ERR) {
		qp_error(q);
		return 0;
	}
	if (mask & IBV_QP_RQ_PSN)
		q->epsn = a->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		req_reset(q, a->sq_psn & 0xffffff);
	set_state(q, to);
	if (to == IBV_QPS_RTS)
		qp_ready(q);
	return 0;
}
