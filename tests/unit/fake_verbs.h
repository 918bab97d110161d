/*
 * fake_verbs.h - two devices in this process, joined by a wire that the test controls: work
 * requests wait in a queue until fake_run() carries them out in order. Memory is reached by
 * registered keys only, receive buffers run out, completions come when the test lets them.
 * fake_break() ends a queue pair as a lost cable does. The call that makes something and that
 * fake_fail counts down to fails, and so do all after it, as on a device that has no more.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../rdma/verbs/verbs.h"

#define FAKE_WR   1024
#define FAKE_MR   512
#define FAKE_DATA 40960
enum { FAKE_SOLICITED = 1, FAKE_ARMED };

struct fake_wr {
	uint64_t id;
	int op;
	bool signalled, solicited;
	uint64_t raddr;
	uint32_t rkey, len;
	uint8_t *src;
	uint8_t inl[512];
};

struct fake_end {
	struct ibv_context ctx;
	struct ibv_device dev;
	struct rdma_cm_id id;
	struct ibv_qp qp;
	struct ibv_cq cq;
	struct ibv_comp_channel channel;
	struct ibv_pd pd;
	struct fake_end *peer;
	struct fake_wr sq[FAKE_WR];
	unsigned sq_head, sq_tail;
	struct ibv_recv_wr rq[FAKE_WR];
	struct ibv_sge rq_sge[FAKE_WR];
	unsigned rq_head, rq_tail;
	struct ibv_wc wc[2 * FAKE_WR];
	unsigned wc_head, wc_tail;
	struct { struct ibv_mr mr; int access; bool live; } mr[FAKE_MR];
	/* given: receive buffers */
	unsigned mrs, posts, sends, armed, notifies, events, rnr, inlined, recv_posts, given;
	bool broken;
};

static struct fake_end fake[2];
static unsigned fake_fail;
static unsigned fake_vectors;	/* that were used, as bits */
static unsigned fake_bad_vectors;	/* of these none is to be had */
static uint32_t fake_inline;	/* most bytes of that */
static uint8_t fake_layer;	/* of its ports */
static int fake_rd_atom, fake_init_rd_atom;	/* READs that it answers, and has under way */
static int fake_made;	/* protection domains, memory regions, channels, queues, queue pairs that
			 * are not destroyed */

static bool fake_fails(void)
{
	if (fake_fail == 1) {
		errno = ENOMEM;
		return true;
	}
	fake_fail -= fake_fail > 0;
	fake_made++;
	return false;
}

static struct fake_end *fake_of_ctx(struct ibv_context *c)
{
	return c == &fake[0].ctx ? &fake[0] : &fake[1];
}
static struct fake_end *fake_of_pd(struct ibv_pd *p)
{
	return p == &fake[0].pd ? &fake[0] : &fake[1];
}
static struct fake_end *fake_of_cq(struct ibv_cq *p)
{
	return p == &fake[0].cq ? &fake[0] : &fake[1];
}
static struct fake_end *fake_of_qp(struct ibv_qp *p)
{
	return p == &fake[0].qp ? &fake[0] : &fake[1];
}

static void fake_wc_of(struct fake_end *e, uint64_t id, enum ibv_wc_status st, uint32_t len,
		       bool solicited)
{
	assert(e->wc_tail - e->wc_head < 2 * FAKE_WR);
	e->wc[e->wc_tail++ % (2 * FAKE_WR)] = (struct ibv_wc){ .wr_id = id, .status = st,
							       .byte_len = len };
	if (e->armed == FAKE_ARMED || (e->armed && (solicited || st))) {
		e->armed = 0;
		e->events++;
	}
}

static void fake_wc(struct fake_end *e, uint64_t id, enum ibv_wc_status st,
		    uint32_t len) { fake_wc_of(e, id, st, len, false); }

static bool fake_reach(struct fake_end *e, uint64_t addr, uint32_t len, uint32_t key, int access)
{
	for (unsigned i = 0; i < e->mrs; i++) {
		struct ibv_mr *m = &e->mr[i].mr;

		if (e->mr[i].live && m->rkey == key && addr >= (uintptr_t)m->addr &&
		    addr + len <= (uintptr_t)m->addr + m->length &&
		    (e->mr[i].access & access) == access)
			return true;
	}
	return false;
}

static void fake_break(struct fake_end *e)
{
	e->broken = true;
	for (; e->sq_head != e->sq_tail; e->sq_head++)
		fake_wc(e, e->sq[e->sq_head % FAKE_WR].id, IBV_WC_RETRY_EXC_ERR, 0);
	for (; e->rq_head != e->rq_tail; e->rq_head++)
		fake_wc(e, e->rq[e->rq_head % FAKE_WR].wr_id, IBV_WC_WR_FLUSH_ERR, 0);
}

/* Carries out one work request of `e`. False: none, or the peer has no buffer. */
static bool fake_step(struct fake_end *e)
{
	struct fake_wr *w = &e->sq[e->sq_head % FAKE_WR];
	struct fake_end *p = e->peer;

	if (e->sq_head == e->sq_tail || e->broken || p->broken)
		return false;
	if (w->op == IBV_WR_RDMA_WRITE) {
		if (!fake_reach(p, w->raddr, w->len, w->rkey, IBV_ACCESS_REMOTE_WRITE)) {
			fake_break(e);
			fake_break(p);
			return false;
		}
		memcpy((void *)(uintptr_t)w->raddr, w->src, w->len);
	} else if (w->op == IBV_WR_RDMA_READ) {
		if (!fake_reach(p, w->raddr, w->len, w->rkey, IBV_ACCESS_REMOTE_READ)) {
			fake_break(e);
			fake_break(p);
			return false;
		}
		memcpy(w->src, (void *)(uintptr_t)w->raddr, w->len);
	} else {
		struct ibv_recv_wr *r = &p->rq[p->rq_head % FAKE_WR];

		if (p->rq_head == p->rq_tail) {
			e->rnr++;
			return false;
		}
		p->rq_head++;
		assert(w->len <= r->sg_list->length);
		memcpy((void *)(uintptr_t)r->sg_list->addr, w->src ? w->src : w->inl, w->len);
		fake_wc_of(p, r->wr_id, IBV_WC_SUCCESS, w->len, w->solicited);
	}
	e->sq_head++;
	if (w->signalled)
		fake_wc(e, w->id, IBV_WC_SUCCESS, 0);
	return true;
}

__attribute__((unused)) static void fake_run(void)
{
	while (fake_step(&fake[0]) | fake_step(&fake[1]))
		;
}

static struct ibv_pd *fake_alloc_pd(struct ibv_context *c)
{
	return fake_fails() ? NULL : &fake_of_ctx(c)->pd;
}
static int fake_dealloc_pd(struct ibv_pd *p) { (void)p; fake_made--; return 0; }

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *p, size_t n, int access)
{
	struct fake_end *e = fake_of_pd(pd);
	unsigned i;

	if (fake_fails())
		return NULL;
	i = e->mrs++;
	assert(i < FAKE_MR);
	e->mr[i].mr = (struct ibv_mr){ .addr = p, .length = n, .lkey = 1000 + i,
				       .rkey = (e == &fake[0] ? 5000 : 9000) + i };
	e->mr[i].access = access;
	e->mr[i].live = true;
	return &e->mr[i].mr;
}

static int fake_dmabuf = -1;	/* descriptor that is one */

__attribute__((unused)) static struct ibv_mr *fake_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t off,
								 size_t n, uint64_t addr, int fd,
								 int access)
{
	errno = EOPNOTSUPP;
	return fd == fake_dmabuf ? fake_reg_mr(pd, (void *)(uintptr_t)(addr + off), n, access)
				 : NULL;
}

static int fake_dereg_mr(struct ibv_mr *mr)
{
	for (int k = 0; k < 2; k++)
		for (unsigned i = 0; i < fake[k].mrs; i++)
			if (&fake[k].mr[i].mr == mr) {
				assert(fake[k].mr[i].live);
				fake[k].mr[i].live = false;
				fake_made--;
			}
	return 0;
}

static struct ibv_comp_channel *fake_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *ch = &fake_of_ctx(c)->channel;

	if (fake_fails())
		return NULL;
	ch->fd = dup(0);
	return ch;
}

static int fake_channel_end(struct ibv_comp_channel *c) { fake_made--; return close(c->fd); }

static struct ibv_cq *fake_create_cq(struct ibv_context *c, int n, void *x,
				     struct ibv_comp_channel *ch, int v)
{
	struct fake_end *e = fake_of_ctx(c);

	(void)n, (void)x, (void)ch;
	assert(v >= 0 && v < (c->num_comp_vectors ? c->num_comp_vectors : 1));
	fake_vectors |= 1u << v;
	if (fake_bad_vectors >> v & 1) {
		errno = ENOSPC;
		return NULL;
	}
	if (fake_fails())
		return NULL;
	e->wc_head = e->wc_tail;	/* what another one had is not in this one */
	return &e->cq;
}

static int fake_destroy_cq(struct ibv_cq *cq) { (void)cq; fake_made--; return 0; }

static int fake_get_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **x)
{
	struct fake_end *e = ch == &fake[0].channel ? &fake[0] : &fake[1];

	errno = EDOM;	/* as a library may */
	(void)x;
	if (!e->events)
		return -1;
	e->events--;
	*cq = &e->cq;
	return 0;
}

static void fake_ack(struct ibv_cq *cq, unsigned n) { (void)cq, (void)n; }

static int fake_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	(void)mask;
	if (a->qp_state == IBV_QPS_ERR)
		fake_break(fake_of_qp(qp));
	errno = EDOM;	/* as a library may */
	return 0;
}

static int fake_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask,
			 struct ibv_qp_init_attr *init)
{
	(void)qp, (void)mask, (void)init;
	a->path_mtu = IBV_MTU_1024;
	a->dest_qp_num = 0x222222;
	return 0;
}

static int fake_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	*a = (struct ibv_device_attr){ .max_qp_rd_atom = fake_rd_atom,
				       .max_qp_init_rd_atom = fake_init_rd_atom };
	return 0;
}

static int fake_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	(void)c, (void)port;
	*a = (struct ibv_port_attr){ .link_layer = fake_layer, .active_mtu = IBV_MTU_1024 };
	return 0;
}

static const char *fake_name(struct ibv_device *d) { (void)d; return "fake0"; }

static int fake_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *qa)
{
	struct fake_end *e = fake_of_pd(pd);

	/* as a device that has little room for it */
	if (qa->cap.max_inline_data > fake_inline) {
		errno = EINVAL;
		return -1;
	}
	if (fake_fails())
		return -1;
	id->qp = &e->qp;
	e->qp.qp_num = 0x111111;
	e->rq_head = e->rq_tail;
	e->given = 0;
	return 0;
}

static void fake_destroy_qp(struct rdma_cm_id *id)
{
	struct fake_end *e = fake_of_qp(id->qp);

	/* its queues go with it, and nothing of them is touched any more */
	e->sq_head = e->sq_tail;
	e->rq_head = e->rq_tail;
	id->qp = NULL;
	fake_made--;
}

static int fake_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct fake_end *e = fake_of_cq(cq);
	int i;

	errno = EDOM;	/* as a library may */
	for (i = 0; i < n && e->wc_head != e->wc_tail; i++)
		wc[i] = e->wc[e->wc_head++ % (2 * FAKE_WR)];
	return i;
}

static void (*on_notify)(void);		/* called once, before a request is made */

static int fake_notify(struct ibv_cq *cq, int solicited)
{
	void (*f)(void) = on_notify;

	errno = EDOM;	/* as a library may */
	on_notify = NULL;
	if (f)
		f();
	fake_of_cq(cq)->notifies++;
	if (!solicited || !fake_of_cq(cq)->armed)
		fake_of_cq(cq)->armed = solicited ? FAKE_SOLICITED : FAKE_ARMED;
	return 0;
}

static void (*on_post)(void);		/* once, in the next post */
static void (*fake_sent)(struct fake_end *e, const void *record);	/* by SEND */
static void (*on_recv)(void);		/* once, before a buffer is given */

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_end *e = fake_of_qp(qp);
	void (*f)(void) = on_post;

	on_post = NULL;
	if (f)
		f();
	errno = EDOM;	/* as a library may */
	e->posts++;
	for (; wr; wr = wr->next) {
		struct fake_wr *w = &e->sq[e->sq_tail % FAKE_WR];

		*bad = wr;
		if (e->broken)
			return EINVAL;
		assert(e->sq_tail - e->sq_head < 256);	/* what rc.c asked for */
		assert(wr->num_sge == 1);
		*w = (struct fake_wr){ .id = wr->wr_id, .op = wr->opcode,
				       .signalled = wr->send_flags & IBV_SEND_SIGNALED,
					       .solicited = wr->send_flags & IBV_SEND_SOLICITED,
				       .raddr = wr->wr.rdma.remote_addr, .rkey = wr->wr.rdma.rkey,
					       .len = wr->sg_list->length };
		if (wr->send_flags & IBV_SEND_INLINE) {
			assert(w->len <= fake_inline);
			memcpy(w->inl, (void *)(uintptr_t)wr->sg_list->addr, w->len);
		} else {
			w->src = (uint8_t *)(uintptr_t)wr->sg_list->addr;
		}
		if (wr->opcode == IBV_WR_SEND && fake_sent)
			fake_sent(e, w->src ? w->src : w->inl);
		e->inlined += !w->src;
		e->sends += wr->opcode == IBV_WR_SEND;
		e->sq_tail++;
	}
	return 0;
}

static void fake_give_buffer(struct fake_end *e, const struct ibv_recv_wr *wr)
{
	unsigned i = e->rq_tail % FAKE_WR;

	if (e->broken) {
		fake_wc(e, wr->wr_id, IBV_WC_WR_FLUSH_ERR, 0);
		return;
	}
	assert(e->rq_tail - e->rq_head < 256);
	e->rq_sge[i] = *wr->sg_list;
	e->rq[i] = *wr;
	e->rq[i].sg_list = &e->rq_sge[i];
	e->rq_tail++;
	e->given++;
}

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_end *e = fake_of_qp(qp);
	void (*f)(void) = on_recv;

	on_recv = NULL;
	if (f)
		f();
	errno = EDOM;	/* as a library may */
	e->recv_posts++;
	for (; wr; wr = wr->next) {
		*bad = wr;
		fake_give_buffer(e, wr);
	}
	return 0;
}

static void fake_init(void)
{
	memset(fake, 0, sizeof fake);
	fake_fail = 0;
	fake_inline = 64;
	fake_layer = IBV_LINK_LAYER_ETHERNET;
	fake_rd_atom = 4;
	fake_init_rd_atom = 126;
	fake_made = 0;
	for (int i = 0; i < 2; i++) {
		fake[i].peer = &fake[!i];
		fake[i].id.verbs = &fake[i].ctx;
		fake[i].ctx.device = &fake[i].dev;
	}
	verbs = (struct verbs){
		.ibv_alloc_pd = fake_alloc_pd, .ibv_dealloc_pd = fake_dealloc_pd,
			.ibv_reg_mr = fake_reg_mr,
		.ibv_dereg_mr = fake_dereg_mr, .ibv_create_comp_channel = fake_channel,
		.ibv_destroy_comp_channel = fake_channel_end, .ibv_create_cq = fake_create_cq,
			.ibv_destroy_cq = fake_destroy_cq,
		.ibv_get_cq_event = fake_get_event, .ibv_ack_cq_events = fake_ack,
			.ibv_modify_qp = fake_modify_qp,
		.ibv_query_qp = fake_query_qp, .ibv_query_device = fake_query_device,
			.ibv_query_port = fake_query_port, .ibv_get_device_name = fake_name,
				.rdma_create_qp = fake_create_qp,
					.rdma_destroy_qp = fake_destroy_qp,
		.poll_cq = fake_poll, .req_notify_cq = fake_notify, .post_send = fake_post_send,
			.post_recv = fake_post_recv,
	};
}

#endif
