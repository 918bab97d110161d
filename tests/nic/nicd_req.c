/*
 * nicd_req.c - the requester's half of RC: work requests become packets, answers become
 * completions. Sequence numbers count chunks (knob segment), not packets of the path's MTU. What is
 * lost is sent again from there on, data read from memory again.
 */
#include "nicd.h"

#include <errno.h>

static bool is_read(const struct nic_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_atomic(const struct nic_wqe *w)
{
	return is_read(w) && w->opcode != IBV_WR_RDMA_READ;
}
static bool has_imm(uint32_t op)
{
	return op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static uint32_t segments(uint32_t len)
{
	return len ? (uint32_t)((len + K.segment - 1) / K.segment) : 1;
}

void req_reset(struct qp *q, uint32_t psn)
{
	q->psn = q->acked = psn;
	q->tx_seg = q->reads = 0;
	q->retries = q->attr.retry_cnt;
	q->rnr_tries = q->attr.rnr_retry;
	q->rnr_until = q->rate_gap = q->rate_next = 0;
	q->timer = NEVER;
	q->failed = false;
}

/* ---- completing ---- */

static uint32_t wc_opcode(uint32_t op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
	default: return IBV_WC_SEND;
	}
}

/* The oldest one. Those that fail are told of in any case. */
void req_complete(struct qp *q, uint32_t status, bool flush)
{
	struct nic_wqe *w = sq_at(q, q->sq_done);
	struct nic_cqe e = {
		.wr_id = w->wr_id,
		.status = status,
		.opcode = wc_opcode(w->opcode),
		.byte_len = w->len,
		.qpn = q->qpn,
		.index = q->index,
		.freed = q->sq_done + 1,
		.vendor = flush	   ? 0xf5
			  : status ? 0x80 + status
				   : 0,
	};

	track_at(q, q->sq_done)->sent = 0;
	q->sq_done++;
	if (status || q->sig_all || (w->flags & IBV_SEND_SIGNALED))
		cq_add(q->scq, &e, false);
	atomic_store_explicit(&q->mem->completed, q->sq_done, memory_order_release);
}

/* The oldest one ends the queue pair. */
static void fail(struct qp *q, uint32_t status)
{
	if (q->sq_done != sq_head(q))
		req_complete(q, status, false);
	qp_error(q);
}

static uint64_t rto(const struct qp *q)
{
	uint64_t ns;

	if (K.iwarp) /* its TCP's patience */
		return 10000000000u;
	if (!q->attr.timeout)
		return NEVER;
	ns = (4096ull << q->attr.timeout) * (uint64_t)K.rto_factor;
	return ns < (uint64_t)K.rto_min_ns ? (uint64_t)K.rto_min_ns : ns;
}

static void start_timer(struct qp *q, uint64_t now)
{
	uint64_t ns = rto(q);

	qp_timed(q, q->acked == q->psn || ns == NEVER ? NEVER : now + ns);
}

/* A local error waits until all before it are completed. */
static void complete_local_error(struct qp *q)
{
	if (q->failed && q->sq_done == q->tx)
		fail(q, track_at(q, q->tx)->status);
}

static void complete_all_answered(struct qp *q)
{
	while (q->sq_done != q->tx) {
		struct track *t = track_at(q, q->sq_done);

		if (after(t->psn + t->segments, q->acked))
			break;
		if (is_read(sq_at(q, q->sq_done)) && t->got < t->segments)
			break;
		req_complete(q, IBV_WC_SUCCESS, false);
	}
	complete_local_error(q);
}

/* ---- sending ---- */

static uint32_t data_read(struct qp *q, struct nic_wqe *w, uint32_t at, void *to, uint32_t len)
{
	if (w->is_inline) {
		memcpy(to, (uint8_t *)(w + 1) + at, len);
		return 0;
	}
	return (uint32_t)sge_read(q, (struct ibv_sge *)(w + 1), w->nsge, at, to, len);
}

/* What can be seen to be wrong before anything is sent. */
static uint32_t local_status(const struct qp *q, const struct nic_wqe *w)
{
	int access = is_read(w) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (K.iwarp && w->opcode == IBV_WR_RDMA_READ)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (is_atomic(w) && w->len != 8)
		return IBV_WC_LOC_QP_OP_ERR;
	if (is_read(w) && !q->attr.max_rd_atomic)
		return IBV_WC_LOC_QP_OP_ERR;
	return w->is_inline
		       ? 0
		       : (uint32_t)sge_check(q, (const struct ibv_sge *)(w + 1), w->nsge, access);
}

/* The first time; it keeps its sequence numbers when it is sent again. */
static bool begin(struct qp *q, struct nic_wqe *w, struct track *t)
{
	if (t->sent)
		return true;
	*t = (struct track){ .psn = q->psn, .segments = is_atomic(w) ? 1 : segments(w->len) };
	t->status = (uint8_t)local_status(q, w);
	if (t->status) {
		q->failed = true;
		complete_local_error(q);
		return false;
	}
	t->sent = 1;
	q->psn += t->segments;
	return true;
}

static struct pkt *packet(struct qp *q, const struct nic_wqe *w, uint32_t psn, uint32_t payload)
{
	struct pkt *p = pkt_new(payload);

	p->dst_qpn = q->attr.dest_qp_num;
	p->src_qpn = q->qpn;
	p->psn = psn;
	p->opcode = (uint8_t)w->opcode;
	p->len = payload;
	p->rkey = w->rkey;
	p->raddr = w->raddr;
	p->total = w->len;
	return p;
}

static void send_read(struct qp *q, struct nic_wqe *w, struct track *t, struct node *to)
{
	struct pkt *p = packet(q, w, t->psn + t->got, 0);

	p->type = is_atomic(w) ? P_ATOMIC_REQ : P_READ_REQ;
	p->compare_add = w->compare_add;
	p->swap = w->swap;
	p->first = p->last = 1;
	p->offset = (uint32_t)(t->got * K.segment);
	q->reads++;
	q->tx++;
	net_send(q->node, to, p);
}

static void send_segment(struct qp *q, struct nic_wqe *w, struct track *t, struct node *to,
			 uint64_t now)
{
	uint32_t at = (uint32_t)(q->tx_seg * K.segment), left = w->len - at;
	uint32_t len = left < K.segment ? left : (uint32_t)K.segment, bad;
	struct pkt *p = packet(q, w, t->psn + q->tx_seg, len);

	p->type = P_REQ;
	p->offset = at;
	p->first = !q->tx_seg;
	p->last = at + len == w->len;
	p->imm = has_imm(w->opcode) ? w->imm : 0;
	p->solicited = p->last && (w->flags & IBV_SEND_SOLICITED);
	bad = data_read(q, w, at, p->data, len);
	if (bad) {		/* deregistered meanwhile */
		pkt_free(p);
		t->status = (uint8_t)bad;
		q->failed = true;
		complete_local_error(q);
		return;
	}
	q->tx_seg++;
	if (p->last) {
		q->tx_seg = 0;
		q->tx++;
	}
	if (q->rate_gap) {
		q->node->spaced++;
		q->rate_next = now + q->rate_gap * (len + 64) / 1024;
	}
	net_send(q->node, to, p);
}

/* With iWARP what is in TCP's hands is done: a stream that breaks later says so by itself. */
static void complete_sent(struct qp *q)
{
	while (q->sq_done != q->tx && !is_read(sq_at(q, q->sq_done)))
		req_complete(q, IBV_WC_SUCCESS, false);
}

bool req_send(struct qp *q, uint64_t now)
{
	struct qp *peer = qp_find(q->attr.dest_qp_num);
	struct node *to = peer ? peer->node : q->node;
	struct nic_wqe *w;
	struct track *t;

	if ((q->state != IBV_QPS_RTS && !(q->state == IBV_QPS_SQD && q->tx_seg)) || q->failed ||
	    q->tx == sq_head(q) || q->rnr_until > now)
		return false;
	w = sq_at(q, q->tx);
	t = track_at(q, q->tx);
	if ((w->flags & IBV_SEND_FENCE) && q->reads)
		return false;
	if (is_read(w) && q->reads >= q->attr.max_rd_atomic && q->attr.max_rd_atomic)
		return false;
	if (q->rate_next > now || !net_room(q->node, to, now))
		return true;
	if (!begin(q, w, t))
		return false;
	if (q->timer == NEVER)
		qp_timed(q, rto(q) == NEVER ? NEVER : now + rto(q));
	if (is_read(w) && t->got == t->segments)
		q->tx++;	/* full: to ask for nothing would take the next one's psn */
	else if (is_read(w))
		send_read(q, w, t, to);
	else
		send_segment(q, w, t, to, now);
	if (K.iwarp)
		complete_sent(q);
	return q->tx != sq_head(q);
}

/* ---- answers ---- */

/* Once, at least: what is before tx, and what is behind it if that went back. */
static bool was_sent(const struct qp *q, uint32_t i)
{
	return i != sq_head(q) && track_at(q, i)->sent;
}

/* All from this number on once more. */
static void rewind_to(struct qp *q, uint32_t psn)
{
	uint32_t i = q->sq_done;

	q->reads = 0;
	for (; was_sent(q, i); i++) {
		struct track *t = track_at(q, i);

		if (after(t->psn + t->segments, psn))
			break;
		if (is_read(sq_at(q, i)) && t->got < t->segments)
			q->reads++;
	}
	q->tx = i;
	q->tx_seg = 0;
	if (was_sent(q, i) && !is_read(sq_at(q, i)) && after(psn, track_at(q, i)->psn))
		q->tx_seg = psn - track_at(q, i)->psn;
	qp_ready(q);
}

/* The oldest READ that has not got all of what is acknowledged behind it, if there is one. */
static bool read_lost(struct qp *q, uint32_t *psn)
{
	for (uint32_t i = q->sq_done; was_sent(q, i); i++) {
		struct track *t = track_at(q, i);

		if (!after(q->acked, t->psn))
			return false;
		if (is_read(sq_at(q, i)) && t->got < t->segments &&
		    after(q->acked, t->psn + t->got)) {
			*psn = t->psn + t->got;
			return true;
		}
	}
	return false;
}

/* What was about to be sent again may have been acknowledged after all. */
static void catch_up(struct qp *q)
{
	for (; q->tx != sq_head(q); q->tx++, q->tx_seg = 0) {
		struct track *t = track_at(q, q->tx);

		if (!t->sent || (is_read(sq_at(q, q->tx)) && t->got < t->segments))
			return;
		if (after(t->psn + t->segments, q->acked)) {
			if (after(q->acked, t->psn + q->tx_seg))
				q->tx_seg = q->acked - t->psn;
			return;
		}
	}
}

/* All below psn has been executed. */
static void acknowledged(struct qp *q, uint32_t psn, uint64_t now)
{
	uint32_t lost;

	if (after(psn, q->psn) || !after(psn, q->acked))
		return;
	q->acked = psn;
	q->retries = q->attr.retry_cnt;
	q->rnr_tries = q->attr.rnr_retry;
	if (read_lost(q, &lost)) {
		q->acked = lost;
		rewind_to(q, lost);
	}
	catch_up(q);
	start_timer(q, now);
	complete_all_answered(q);
	if (q->tx != sq_head(q))
		qp_ready(q);
}

static uint32_t index_of(const struct qp *q, uint32_t psn)
{
	uint32_t i;

	for (i = q->sq_done; was_sent(q, i); i++) {
		const struct track *t = track_at(q, i);

		if (!after(t->psn, psn) && after(t->psn + t->segments, psn))
			break;
	}
	return i;
}

/* One before i has not all of its bytes. */
static bool read_wanted(struct qp *q, uint32_t i)
{
	for (uint32_t k = q->sq_done; k != i; k++)
		if (is_read(sq_at(q, k)) && track_at(q, k)->got < track_at(q, k)->segments)
			return true;
	return false;
}

static void got_read(struct qp *q, struct pkt *p, uint64_t now)
{
	uint32_t i = index_of(q, p->psn);
	struct nic_wqe *w = sq_at(q, i);
	struct track *t = track_at(q, i);
	int bad;

	if (!was_sent(q, i) || !is_read(w) || p->psn != t->psn + t->got)
		return; /* an old one, or one before it was lost: that is seen by what comes later
			 */
	/* In order only: a READ that is full before an earlier one would be asked for again. */
	if (read_wanted(q, i)) {
		acknowledged(q, p->psn, now);
		return;
	}
	bad = sge_write(q, (struct ibv_sge *)(w + 1), w->nsge, p->offset, p->data, p->len);
	if (bad) {
		t->status = (uint8_t)bad;
		fail(q, t->status);
		return;
	}
	t->got++;
	if (t->got == t->segments && after(q->tx, i))
		q->reads--;
	if (q->acked == p->psn || after(p->psn, q->acked))
		acknowledged(q, p->psn + 1, now);
}

static const uint8_t nak_status[] = {
	[NAK_INVALID] = IBV_WC_REM_INV_REQ_ERR,
	[NAK_ACCESS] = IBV_WC_REM_ACCESS_ERR,
	[NAK_OP] = IBV_WC_REM_OP_ERR,
};

static void got_rnr(struct qp *q, const struct pkt *p, uint64_t now)
{
	if (q->attr.rnr_retry != 7) {
		if (!q->rnr_tries) {
			fail(q, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		q->rnr_tries--;
	}
	q->rnr_until = now + p->rnr_ns;
	rewind_to(q, p->psn);
	qp_timed(q, q->rnr_until);
}

static void got_nak(struct qp *q, struct pkt *p, uint64_t now)
{
	uint32_t tries = q->rnr_tries;

	if (after(q->acked, p->psn) || !after(q->psn, p->psn))
		return;
	acknowledged(q, p->psn, now);
	if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_SQD)
		return;
	switch (p->nak) {
	case NAK_RNR:
		q->rnr_tries = q->acked == p->psn ? tries : q->rnr_tries;
		got_rnr(q, p, now);
		break;
	case NAK_SEQ:
		if (K.iwarp)	/* nothing is sent twice: its stream is broken */
			fail(q, IBV_WC_RETRY_EXC_ERR);
		else
			rewind_to(q, p->psn);
		break;
	default:
		fail(q, nak_status[p->nak]);
	}
}

/* A marked packet of ours arrived there: slower, and back again with each acknowledgement. */
static void slow_down(struct qp *q)
{
	uint64_t line = K.mbps ? 1024000 / (uint64_t)K.mbps : 1;

	q->node->slowed++;
	q->rate_gap = q->rate_gap ? q->rate_gap * 3 / 2 : line * 3 / 2;
	if (q->rate_gap > line * 64)
		q->rate_gap = line * 64;
}

void req_answered(struct qp *q, struct pkt *p, uint64_t now)
{
	if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_SQD)
		return;
	switch (p->type) {
	case P_ACK: acknowledged(q, p->psn + 1, now); break;
	case P_NAK: got_nak(q, p, now); break;
	case P_READ_RESP:
	case P_ATOMIC_RESP: got_read(q, p, now); break;
	case P_CNP: slow_down(q); break;
	default: break;
	}
	if (q->rate_gap && p->type == P_ACK)
		q->rate_gap -= q->rate_gap / 16 ? q->rate_gap / 16 : 1;
	if (q->tx != sq_head(q))
		qp_ready(q);
}

void req_timer(struct qp *q, uint64_t now)
{
	if (q->rnr_until && q->rnr_until <= now) {
		q->rnr_until = 0;
		start_timer(q, now);
		qp_ready(q);
		return;
	}
	if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_SQD)
		return;
	if (q->acked == q->psn) {
		q->timer = NEVER;
		return;
	}
	if (!q->retries || K.iwarp) {
		fail(q, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	q->retries--;
	rewind_to(q, q->acked);
	start_timer(q, now);
}
