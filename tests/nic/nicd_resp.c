/*
 * nicd_resp.c - the responder's half of RC. Requests are executed in order of their sequence
 * numbers, each once; READs and atomics that come a second time are answered again. Answers leave
 * in order too.
 */
#include "nicd.h"

#include <errno.h>
#include <unistd.h>

#define CNP_NS 50000		/* at most one notification in that time */

/* ---- answers ---- */

static struct answer *answer(struct qp *q, uint8_t type, uint32_t psn)
{
	struct answer *a = calloc(1, sizeof *a);

	if (!a)
		abort();
	a->type = type;
	a->psn = psn;
	*q->answers_end = a;
	q->answers_end = &a->next;
	if (!q->is_responding) {
		q->is_responding = true;
		q->next_responding = q->node->responding;
		q->node->responding = q;
	}
	return a;
}

static void acknowledge(struct qp *q, uint32_t psn)
{
	for (struct answer *a = q->answers; a; a = a->next)
		if (!a->next && a->type == P_ACK) {
			a->psn = psn;
			return;
		}
	answer(q, P_ACK, psn);
}

static const uint32_t rnr_us[32] = {
	/* InfiniBand, table 45 */
	655360, 10,    20,    30,    40,    60,	    80,	    120,    160,    240,    320,
	480,	640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
	20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
};

static void refuse(struct qp *q, enum nak nak)
{
	struct answer *a = answer(q, P_NAK, q->epsn);

	a->nak = (uint8_t)nak;
	q->nak_sent = true;	/* what comes behind it is dropped */
	if (nak == NAK_RNR)
		a->rnr_ns = 1000 * rnr_us[q->attr.min_rnr_timer & 31];
	if (nak == NAK_SEQ || nak == NAK_RNR)
		return;
	q->dying = true;
	if (nak == NAK_ACCESS)
		async_event(q->ctx, IBV_EVENT_QP_ACCESS_ERR, q, NULL);
	else if (nak == NAK_INVALID)
		async_event(q->ctx, IBV_EVENT_QP_REQ_ERR, q, NULL);
}

static struct pkt *answer_packet(const struct qp *q, const struct answer *a, uint32_t len)
{
	struct pkt *p = pkt_new(len);

	p->type = a->type;
	p->dst_qpn = q->attr.dest_qp_num;
	p->src_qpn = q->qpn;
	p->psn = a->psn;
	p->nak = a->nak;
	p->rnr_ns = a->rnr_ns;
	p->len = len;
	return p;
}

static void answer_done(struct qp *q)
{
	struct answer *a = q->answers;

	q->answers = a->next;
	if (!q->answers)
		q->answers_end = &q->answers;
	q->read_jobs -= a->type == P_READ_RESP;
	free(a);
}

/* One chunk of a READ. The memory is read now, not when the request came. */
static bool send_chunk(struct qp *q, struct answer *a, struct node *to, uint64_t now)
{
	uint32_t at = (uint32_t)(a->segment * K.segment), left = a->total - at;
	uint32_t len = left < K.segment ? left : (uint32_t)K.segment;
	struct mr *mr = mr_check(a->rkey, q->pd, a->raddr + at, len, IBV_ACCESS_REMOTE_READ);
	struct pkt *p;

	if (!net_room(q->node, to, now))
		return false;
	if (len && !mr) {
		q->epsn = a->psn + a->segment;
		qp_answers_drop(q);
		refuse(q, NAK_ACCESS);
		return true;
	}
	p = answer_packet(q, a, len);
	p->psn += a->segment;
	p->offset = a->segment * (uint32_t)K.segment + (uint32_t)a->value;
	if (len)
		mem_read(mr, a->raddr + at, p->data, len);
	if (++a->segment == a->segments)
		answer_done(q);
	net_send(q->node, to, p);
	return true;
}

bool resp_send(struct qp *q, uint64_t now)
{
	struct qp *peer = qp_find(q->attr.dest_qp_num);
	struct node *to = peer ? peer->node : q->node;
	struct answer *a = q->answers;
	struct pkt *p;

	if (!a)
		return false;
	if (a->type == P_READ_RESP) {
		send_chunk(q, a, to, now);
		return q->answers;
	}
	p = answer_packet(q, a, a->type == P_ATOMIC_RESP ? 8 : 0);
	if (p->len)
		memcpy(p->data, &a->value, 8);
	answer_done(q);
	net_send(q->node, to, p);
	if (!q->answers && q->dying)
		qp_error(q);
	return q->answers;
}

/* ---- receives ---- */

bool resp_take(struct qp *q)
{
	struct nic_queue *rq = q->srq ? q->srq->q : &q->mem->rq;
	uint32_t *next = q->srq ? &q->srq->next : &q->rq_next;
	void *mem = q->srq ? (void *)q->srq->q : (void *)q->mem;
	struct nic_wqe *w;

	if (q->have_recv)
		return true;
	if (*next == atomic_load_explicit(&rq->head, memory_order_acquire))
		return false;
	w = nic_wqe(mem, rq, *next);
	q->recv = *w;
	if (q->recv.nsge > 32)
		q->recv.nsge = 32;
	memcpy(q->recv_sge, w + 1, q->recv.nsge * sizeof q->recv_sge[0]);
	++*next;
	if (q->srq && q->srq->limit && atomic_load(&rq->head) - *next < q->srq->limit) {
		struct nic_async a = { .type = IBV_EVENT_SRQ_LIMIT_REACHED,
				       .cq = q->srq->o.handle };

		q->srq->limit = 0;
		if (write(q->srq->ctx->async.out, &a, sizeof a) < 0)
			fprintf(stderr, "nicd: an event is lost\n");
	}
	q->have_recv = true;
	q->recv_done = 0;
	return true;
}

void resp_complete(struct qp *q, uint32_t status, uint32_t opcode, uint32_t flags,
		   const struct pkt *p)
{
	struct nic_cqe e = {
		.wr_id = q->recv.wr_id,
		.status = status,
		.opcode = opcode,
		.qpn = q->qpn,
		.src_qp = q->attr.dest_qp_num,
		.flags = flags,
		.index = q->index,
		.freed = q->srq ? q->srq->next : q->rq_next,
		.recv = 1,
		.vendor = status ? 0x80 + status : 0,
	};

	if (p) {
		e.imm = p->imm;
		e.byte_len = opcode == IBV_WC_RECV_RDMA_WITH_IMM ? p->total : q->recv_done;
	}
	q->have_recv = false;
	cq_add(q->rcq, &e, p && p->solicited);
}

static bool with_imm(const struct pkt *p)
{
	return p->opcode == IBV_WR_SEND_WITH_IMM || p->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static bool is_send(const struct pkt *p)
{
	return p->opcode == IBV_WR_SEND || p->opcode == IBV_WR_SEND_WITH_IMM ||
	       p->opcode == IBV_WR_SEND_WITH_INV;
}

/* No receive is posted. */
static void not_ready(struct qp *q) { refuse(q, K.iwarp ? NAK_OP : NAK_RNR); }

/* ---- requests. False: it was refused, or must come again ---- */

static bool do_send(struct qp *q, struct pkt *p)
{
	int bad;

	if (!resp_take(q)) {
		not_ready(q);
		return false;
	}
	if (p->first)
		q->recv_done = 0;
	bad = p->len > q->recv.len - q->recv_done
		      ? IBV_WC_LOC_LEN_ERR
		      : sge_write(q, q->recv_sge, q->recv.nsge, q->recv_done, p->data, p->len);
	if (bad) {
		resp_complete(q, (uint32_t)bad, 0, 0, NULL);
		refuse(q, bad == IBV_WC_LOC_LEN_ERR ? NAK_INVALID : NAK_OP);
		return false;
	}
	q->recv_done += p->len;
	if (p->last)
		resp_complete(q, IBV_WC_SUCCESS, IBV_WC_RECV, with_imm(p) ? IBV_WC_WITH_IMM : 0, p);
	return true;
}

static bool do_write(struct qp *q, struct pkt *p)
{
	struct mr *mr = mr_check(p->rkey, q->pd, p->raddr, p->total, IBV_ACCESS_REMOTE_WRITE);

	if (!(q->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) || (p->total && !mr)) {
		refuse(q, NAK_ACCESS);
		return false;
	}
	if (p->last && with_imm(p) && !resp_take(q)) {
		not_ready(q);
		return false;
	}
	if (p->len)
		mem_write(mr, p->raddr + p->offset, p->data, p->len);
	if (p->last && with_imm(p))
		resp_complete(q, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM, p);
	return true;
}

static bool do_read(struct qp *q, struct pkt *p)
{
	uint32_t left = p->total - p->offset;
	struct answer *a;

	if (q->read_jobs >= (q->attr.max_dest_rd_atomic ? q->attr.max_dest_rd_atomic : 0)) {
		refuse(q, NAK_INVALID);
		return false;
	}
	if (p->total && p->offset >= p->total) {
		refuse(q, NAK_INVALID);
		return false;
	}
	if (!(q->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
	    (p->total && !mr_check(p->rkey, q->pd, p->raddr, p->total, IBV_ACCESS_REMOTE_READ))) {
		refuse(q, NAK_ACCESS);
		return false;
	}
	a = answer(q, P_READ_RESP, p->psn);
	a->raddr = p->raddr + p->offset;
	a->rkey = p->rkey;
	a->total = left;
	a->value = p->offset;
	a->segments = left ? (uint32_t)((left + K.segment - 1) / K.segment) : 1;
	q->read_jobs++;
	return true;
}

static uint64_t atomic_step(uint32_t op, uint64_t was, const struct pkt *p)
{
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return was + p->compare_add;
	return was == p->compare_add ? p->swap : was;
}

static bool do_atomic(struct qp *q, struct pkt *p)
{
	struct mr *mr = mr_check(p->rkey, q->pd, p->raddr, 8, IBV_ACCESS_REMOTE_ATOMIC);
	uint64_t was = 0, next;

	if (p->raddr & 7 || !q->attr.max_dest_rd_atomic) {
		refuse(q, NAK_INVALID);
		return false;
	}
	if (!(q->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || !mr) {
		refuse(q, NAK_ACCESS);
		return false;
	}
	mem_read(mr, p->raddr, &was, 8);
	next = atomic_step(p->opcode, was, p);
	mem_write(mr, p->raddr, &next, 8);
	q->atomics[q->atomic_next % 16].psn = p->psn;
	q->atomics[q->atomic_next % 16].value = was;
	q->atomics[q->atomic_next++ % 16].valid = true;
	answer(q, P_ATOMIC_RESP, p->psn)->value = was;
	return true;
}

static void again(struct qp *q, struct pkt *p)
{
	if (p->type == P_READ_REQ) {
		do_read(q, p);
		return;
	}
	for (unsigned i = 0; p->type == P_ATOMIC_REQ && i < 16; i++)
		if (q->atomics[i].valid && q->atomics[i].psn == p->psn) {
			answer(q, P_ATOMIC_RESP, p->psn)->value = q->atomics[i].value;
			return;
		}
	acknowledge(q, q->epsn - 1);
}

static void execute(struct qp *q, struct pkt *p)
{
	uint32_t step = 1;

	switch (p->type) {
	case P_REQ:
		if (!(is_send(p) ? do_send(q, p) : do_write(q, p)))
			return;
		break;
	case P_READ_REQ:
		if (!do_read(q, p))
			return;
		step = q->answers ? (uint32_t)((p->total - p->offset + K.segment - 1) / K.segment)
				  : 1;
		step = step ? step : 1;
		break;
	default:
		if (!do_atomic(q, p))
			return;
	}
	q->epsn += step;
	if (p->type == P_REQ && p->last)
		acknowledge(q, p->psn);
}

static void notify_congestion(struct qp *q, uint64_t now)
{
	struct qp *peer = qp_find(q->attr.dest_qp_num);
	struct answer a = { .type = P_CNP };

	if (now < q->cnp_at || !peer)
		return;
	q->cnp_at = now + CNP_NS;
	net_send(q->node, peer->node, answer_packet(q, &a, 0));
}

void resp_packet(struct qp *q, struct pkt *p, uint64_t now)
{
	if ((q->state != IBV_QPS_RTR && q->state != IBV_QPS_RTS && q->state != IBV_QPS_SQD) ||
	    q->dying)
		return;
	if (p->marked)
		notify_congestion(q, now);
	if (after(p->psn, q->epsn)) {
		if (!q->nak_sent)
			refuse(q, NAK_SEQ);
		return;
	}
	if (p->psn != q->epsn) {
		again(q, p);
		return;
	}
	q->nak_sent = false;
	execute(q, p);
}
