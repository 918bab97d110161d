/*
 * nicd_obj.c - what programs make: contexts, protection domains, registrations, completion queues,
 * queue pairs. Main thread, the world stopped. A handle is an index and, above it, how often that
 * has been used.
 */
#include "nicd.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define OBJS (1u << 18)

static struct obj *objs[OBJS];
static uint16_t uses[OBJS];
static uint32_t next_obj;
static struct mr *mrs[MRS];
static uint8_t mr_uses[MRS];
static uint32_t next_mr, next_qpn = 17;

void *obj_new(struct client *c, enum kind kind, size_t bytes)
{
	struct obj *o = calloc(1, bytes);

	for (uint32_t i = 0; o && i < OBJS; i++) {
		uint32_t at = next_obj++ % OBJS;

		if (objs[at])
			continue;
		uses[at] = (uint16_t)(uses[at] % 8191 + 1);
		o->handle = at | (uint32_t)uses[at] << 18;
		o->kind = kind;
		o->client = c;
		o->next = c->objs;
		c->objs = o;
		objs[at] = o;
		return o;
	}
	free(o);
	return NULL;
}

void *obj_get(struct client *c, uint32_t handle, enum kind kind)
{
	struct obj *o = objs[handle % OBJS];

	return o && o->handle == handle && o->kind == kind && o->client == c ? o : NULL;
}

void obj_free(struct obj *o)
{
	for (struct obj **at = &o->client->objs; *at; at = &(*at)->next)
		if (*at == o) {
			*at = o->next;
			break;
		}
	objs[o->handle % OBJS] = NULL;
	free(o);
}

struct mr *mr_find(uint32_t key)
{
	struct mr *mr = mrs[key >> 8 & (MRS - 1)];

	return mr && mr->key == key ? mr : NULL;
}

/* Its end to read goes to the program; another one, which never waits, stays here. */
int pipe_make(struct call *call, struct pipe *ret)
{
	char path[32];
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		return errno;
	fcntl(fd[1], F_SETFL, O_NONBLOCK);
	fcntl(fd[1], F_SETPIPE_SZ, 1 << 18);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd[0]);
	ret->out = fd[1];
	ret->in = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	call->out[call->nout++] = fd[0];
	return 0;
}

void pipe_end(struct pipe *p)
{
	close(p->in);
	close(p->out);
}

void pipe_purge(struct pipe *p, size_t size, bool (*gone)(const void *event, uint32_t handle),
		uint32_t handle)
{
	char *all = malloc(1 << 18);
	ssize_t n = all ? read(p->in, all, 1 << 18) : 0;

	for (ssize_t i = 0; i + (ssize_t)size <= n; i += (ssize_t)size)
		if (!gone(all + i, handle) && write(p->out, all + i, size) < 0)
			fprintf(stderr, "nicd: an event is lost\n");
	free(all);
}

static bool cq_gone_from(const void *event, uint32_t handle)
{
	return *(const uint64_t *)event == handle;
}

/* Shared memory that the program will map. */
static void *share(struct call *call, size_t bytes)
{
	int fd = memfd_create("nic", MFD_CLOEXEC);
	void *p;

	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return NULL;
	}
	call->out[call->nout++] = fd;
	return p;
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

/* ---- contexts, domains ---- */

static int op_open(struct call *call)
{
	struct ctx *ctx;
	int r;

	if (call->c->node->removed || call->req->a >= (uint64_t)K.devices)
		return ENODEV;
	ctx = obj_new(call->c, K_CTX, sizeof *ctx);
	if (!ctx)
		return ENOMEM;
	ctx->device = (uint32_t)call->req->a;
	r = pipe_make(call, &ctx->async);
	if (r) {
		obj_free(&ctx->o);
		return r;
	}
	call->rep->h = ctx->o.handle;
	call->rep->h2 = call->c->node->gen;
	return 0;
}

static int op_query_port(struct call *call)
{
	const struct node *n = call->c->node;

	call->rep->h = !n->port_down && !n->removed;
	call->rep->h2 = n->index;
	return 0;
}

static int op_alloc_pd(struct call *call)
{
	struct ctx *ctx = obj_get(call->c, call->req->h, K_CTX);
	struct pd *pd = ctx ? obj_new(call->c, K_PD, sizeof *pd) : NULL;

	if (!pd)
		return ctx ? ENOMEM : EINVAL;
	if (ctx->removed)
		return EIO;
	pd->ctx = ctx;
	ctx->o.refs++;
	call->rep->h = pd->o.handle;
	return 0;
}

static int op_dealloc_pd(struct call *call)
{
	struct pd *pd = obj_get(call->c, call->req->h, K_PD);

	if (!pd || pd->o.refs)
		return pd ? EBUSY : EINVAL;
	pd->ctx->o.refs--;
	obj_free(&pd->o);
	return 0;
}

/* ---- registrations ---- */

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static int reg_wrong(const struct call *call, const struct pd *pd)
{
	int access = (int)call->req->h2;

	if (!pd)
		return EINVAL;
	if (pd->ctx->removed)
		return EIO;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (call->req->b > (uint64_t)K.max_mr_size || call->c->node->nmr >= (uint64_t)K.max_mr)
		return ENOMEM;
	return 0;
}

static int op_reg_mr(struct call *call)
{
	struct pd *pd = obj_get(call->c, call->req->h, K_PD);
	int r = reg_wrong(call, pd);
	struct mr *mr;
	uint32_t i;

	if (r)
		return r;
	for (i = 0; i < MRS && mrs[(next_mr + i) % MRS]; i++)
		;
	mr = i < MRS ? obj_new(call->c, K_MR, sizeof *mr) : NULL;
	if (!mr)
		return ENOMEM;
	i = (next_mr + i) % MRS;
	next_mr = i + 1;
	mr->pd = pd;
	mr->addr = call->req->a;
	mr->len = call->req->b;
	mr->iova = call->req->c;
	mr->access = (int)call->req->h2;
	mr->key = i << 8 | ++mr_uses[i];
	r = mem_map(mr, call->c->pid, call->nfds ? call->fds[0] : -1, call->req->d);
	if (r) {
		obj_free(&mr->o);
		return r;
	}
	if (!mr->map)
		mr->pin = pin_take(call->c->pidfd, (const void *)call->req->data);
	mrs[i] = mr;
	pd->o.refs++;
	call->c->node->nmr++;
	call->c->node->registered += mr->len;
	call->rep->h = mr->o.handle;
	call->rep->h2 = mr->key;
	return 0;
}

static void mr_gone(struct mr *mr)
{
	mrs[mr->key >> 8 & (MRS - 1)] = NULL;
	mem_unmap(mr);
	mr->pd->o.refs--;
	mr->o.client->node->nmr--;
	mr->o.client->node->registered -= mr->len;
	obj_free(&mr->o);
}

static int op_dereg_mr(struct call *call)
{
	struct mr *mr = obj_get(call->c, call->req->h, K_MR);

	if (!mr)
		return EINVAL;
	mr_gone(mr);
	return 0;
}

/* ---- completion queues ---- */

static int op_create_channel(struct call *call)
{
	struct channel *ch = obj_new(call->c, K_CHANNEL, sizeof *ch);
	int r = ch ? pipe_make(call, &ch->fd) : ENOMEM;

	if (r && ch)
		obj_free(&ch->o);
	if (!r)
		call->rep->h = ch->o.handle;
	return r;
}

static int op_destroy_channel(struct call *call)
{
	struct channel *ch = obj_get(call->c, call->req->h, K_CHANNEL);

	if (!ch || ch->o.refs)
		return ch ? EBUSY : EINVAL;
	pipe_end(&ch->fd);
	obj_free(&ch->o);
	return 0;
}

static int op_create_cq(struct call *call)
{
	struct ctx *ctx = obj_get(call->c, call->req->h, K_CTX);
	struct channel *ch = call->req->h2 ? obj_get(call->c, call->req->h2, K_CHANNEL) : NULL;
	uint32_t n = power_of_two((uint32_t)call->req->a);
	struct cq *cq;

	if (!ctx || (call->req->h2 && !ch) || !call->req->a || call->req->a > (uint64_t)K.max_cqe ||
	    call->req->b >= (uint64_t)K.vectors)
		return EINVAL;
	if (ctx->removed)
		return EIO;
	if (call->req->b < 63 && (uint64_t)K.vectors_full >> call->req->b & 1)
		return ENOSPC;
	cq = obj_new(call->c, K_CQ, sizeof *cq);
	if (!cq)
		return ENOMEM;
	cq->bytes = sizeof *cq->mem + n * sizeof cq->mem->e[0];
	cq->mem = share(call, cq->bytes);
	if (!cq->mem) {
		obj_free(&cq->o);
		return ENOMEM;
	}
	cq->mem->size = n;
	cq->mem->cqe = (uint32_t)call->req->a;
	cq->ctx = ctx;
	cq->channel = ch;
	cq->event_at = NEVER;
	ctx->o.refs++;
	if (ch)
		ch->o.refs++;
	call->rep->h = cq->o.handle;
	call->rep->a = cq->bytes;
	return 0;
}

static void cq_gone(struct cq *cq)
{
	for (struct cq **at = &cq->o.client->node->events; *at; at = &(*at)->next_event)
		if (*at == cq) {
			*at = cq->next_event;
			break;
		}
	if (cq->channel) {
		pipe_purge(&cq->channel->fd, sizeof(uint64_t), cq_gone_from, cq->o.handle);
		cq->channel->o.refs--;
	}
	cq->ctx->o.refs--;
	munmap(cq->mem, cq->bytes);
	obj_free(&cq->o);
}

static int op_destroy_cq(struct call *call)
{
	struct cq *cq = obj_get(call->c, call->req->h, K_CQ);

	if (!cq || cq->o.refs)
		return cq ? EBUSY : EINVAL;
	cq_gone(cq);
	return 0;
}

#include "nicd_srq.h"

/* ---- queue pairs ---- */

static int caps_wrong(const struct nic_qp_caps *q)
{
	const struct ibv_qp_cap *c = &q->cap;

	if (q->type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (c->max_send_wr > K.max_wr || c->max_recv_wr > K.max_wr || c->max_send_sge > K.max_sge ||
	    c->max_recv_sge > K.max_sge || c->max_recv_sge > 32 ||
	    c->max_inline_data > K.max_inline)
		return EINVAL;
	return 0;
}

static int free_index(const struct client *c)
{
	for (int i = 0; i < NIC_QPS; i++)
		if (!c->qp[i])
			return i;
	return -1;
}

static uint32_t new_qpn(void)
{
	for (uint32_t i = 0; i < QPS; i++) {
		uint32_t n = next_qpn++ & 0xffffff;

		if (n > 1 && !qps[n % QPS])
			return n;
	}
	return 0;
}

static struct qp *qp_make(struct call *call, const struct nic_qp_caps *caps)
{
	uint32_t most = caps->cap.max_send_sge * 16 > caps->cap.max_inline_data
				? caps->cap.max_send_sge * 16
				: caps->cap.max_inline_data;
	struct qp *q = obj_new(call->c, K_QP, sizeof *q);
	struct nic_qp_mem m = { 0 };

	if (!q)
		return NULL;
	lay_out(&m.sq, caps->cap.max_send_wr, most, sizeof m);
	lay_out(&m.rq, caps->cap.max_recv_wr, caps->cap.max_recv_sge * 16,
		(uint32_t)(sizeof m + queue_bytes(&m.sq)));
	q->bytes = m.rq.at + queue_bytes(&m.rq);
	q->track = calloc(m.sq.size, sizeof *q->track);
	q->mem = q->track ? share(call, q->bytes) : NULL;
	if (!q->mem) {
		free(q->track);
		obj_free(&q->o);
		return NULL;
	}
	memcpy(q->mem, &m, sizeof m);
	return q;
}

static void qp_join(struct qp *q, const struct nic_qp_caps *caps, uint32_t qpn, int index)
{
	struct client *c = q->o.client;

	q->pd = obj_get(c, caps->pd, K_PD);
	q->scq = obj_get(c, caps->send_cq, K_CQ);
	q->rcq = obj_get(c, caps->recv_cq, K_CQ);
	q->srq = caps->srq ? obj_get(c, caps->srq, K_SRQ) : NULL;
	q->pd->o.refs++;
	q->scq->o.refs++;
	q->rcq->o.refs++;
	if (q->srq)
		q->srq->o.refs++;
	q->ctx = q->pd->ctx;
	q->node = c->node;
	q->qpn = qpn;
	q->index = (uint32_t)index;
	q->sig_all = caps->sig_all;
	q->cap = caps->cap;
	q->timer = NEVER;
	q->answers_end = &q->answers;
	qps[qpn % QPS] = q;
	c->qp[index] = q;
	c->node->nqp++;
}

static int op_create_qp(struct call *call)
{
	const struct nic_qp_caps *caps = (const void *)call->req->data;
	int r = caps_wrong(caps), index = free_index(call->c);
	uint32_t qpn = new_qpn();
	struct pd *pd = obj_get(call->c, caps->pd, K_PD);
	struct qp *q;

	if (!pd || !obj_get(call->c, caps->send_cq, K_CQ) ||
	    !obj_get(call->c, caps->recv_cq, K_CQ) ||
	    (caps->srq && !obj_get(call->c, caps->srq, K_SRQ)))
		return EINVAL;
	if (r)
		return r;
	if (pd->ctx->removed)
		return EIO;
	if (index < 0 || !qpn || call->c->node->nqp >= (uint64_t)K.max_qp)
		return ENOMEM;
	q = qp_make(call, caps);
	if (!q)
		return ENOMEM;
	qp_join(q, caps, qpn, index);
	call->rep->h = q->o.handle;
	call->rep->h2 = qpn;
	call->rep->h3 = (uint32_t)index;
	call->rep->a = q->bytes;
	return 0;
}

static int op_modify_qp(struct call *call)
{
	const struct nic_modify *m = (const void *)call->req->data;
	struct qp *q = obj_get(call->c, call->req->h, K_QP);
	int r = q ? qp_modify(q, &m->attr, m->mask) : EINVAL;

	if (q && !r)
		call->rep->h = q->state;
	return r;
}

static int op_query_qp(struct call *call)
{
	struct qp *q = obj_get(call->c, call->req->h, K_QP);

	if (!q)
		return EINVAL;
	q->attr.qp_state = q->attr.cur_qp_state = q->state;
	q->attr.cap = q->cap;
	memcpy(call->rep->data, &q->attr, sizeof q->attr);
	return 0;
}

#define UNLINK(list, next) \
	for (struct qp **at = &(list); *at; at = &(*at)->next) \
		if (*at == q) { \
			*at = q->next; \
			break; \
		}

static void qp_gone(struct qp *q)
{
	struct node *n = q->node;

	UNLINK(n->ready, next_ready)
	for (n->ready_end = &n->ready; *n->ready_end; n->ready_end = &(*n->ready_end)->next_ready)
		;
	UNLINK(n->timed, next_timed)
	UNLINK(n->responding, next_responding)
	qp_answers_drop(q);
	q->pd->o.refs--;
	q->scq->o.refs--;
	q->rcq->o.refs--;
	if (q->srq)
		q->srq->o.refs--;
	qps[q->qpn % QPS] = NULL;
	q->o.client->qp[q->index] = NULL;
	n->nqp--;
	munmap(q->mem, q->bytes);
	free(q->track);
	obj_free(&q->o);
}

static int op_destroy_qp(struct call *call)
{
	struct qp *q = obj_get(call->c, call->req->h, K_QP);

	if (!q)
		return EINVAL;
	qp_gone(q);
	return 0;
}

static int op_close(struct call *call)
{
	struct ctx *ctx = obj_get(call->c, call->req->h, K_CTX);

	if (!ctx || ctx->o.refs)
		return ctx ? EBUSY : EINVAL;
	pipe_end(&ctx->async);
	obj_free(&ctx->o);
	return 0;
}

static int (*const ops[OPS])(struct call *) = {
	[OP_OPEN] = op_open,
	[OP_CLOSE] = op_close,
	[OP_QUERY_PORT] = op_query_port,
	[OP_ALLOC_PD] = op_alloc_pd,
	[OP_DEALLOC_PD] = op_dealloc_pd,
	[OP_REG_MR] = op_reg_mr,
	[OP_DEREG_MR] = op_dereg_mr,
	[OP_CREATE_CHANNEL] = op_create_channel,
	[OP_DESTROY_CHANNEL] = op_destroy_channel,
	[OP_CREATE_CQ] = op_create_cq,
	[OP_DESTROY_CQ] = op_destroy_cq,
	[OP_CREATE_QP] = op_create_qp,
	[OP_MODIFY_QP] = op_modify_qp,
	[OP_QUERY_QP] = op_query_qp,
	[OP_DESTROY_QP] = op_destroy_qp,
	[OP_CREATE_SRQ] = op_create_srq,
	[OP_MODIFY_SRQ] = op_modify_srq,
	[OP_DESTROY_SRQ] = op_destroy_srq,
};

int obj_call(struct call *call)
{
	uint32_t op = call->req->op;

	if (!call->c->node)
		return ENODEV;
	return op < OPS && ops[op] ? ops[op](call) : cm_call(call);
}

/* ---- the end of a process, of a device ---- */

static void end_all(struct client *c, enum kind kind)
{
	for (struct obj *o = c->objs, *next; o; o = next) {
		next = o->next;
		if (o->kind != kind)
			continue;
		switch (kind) {
		case K_QP: qp_gone((struct qp *)o); break;
		case K_SRQ: srq_gone((struct srq *)o); break;
		case K_MR: mr_gone((struct mr *)o); break;
		case K_CQ: cq_gone((struct cq *)o); break;
		case K_CHANNEL: pipe_end(&((struct channel *)o)->fd); obj_free(o); break;
		case K_CTX: pipe_end(&((struct ctx *)o)->async); obj_free(o); break;
		case K_ID: cm_id_gone(o); break;
		case K_CM_CHANNEL: cm_channel_gone(o); break;
		default: obj_free(o);
		}
	}
}

void client_gone(struct client *c)
{
	static const enum kind order[] = { K_ID, K_CM_CHANNEL, K_QP, K_SRQ, K_MR,
					   K_CQ, K_CHANNEL,    K_PD, K_CTX };

	for (unsigned i = 0; i < sizeof order / sizeof *order; i++)
		end_all(c, order[i]);
	if (c->db)
		munmap(c->db, sizeof *c->db);
}

void node_remove(struct node *n)
{
	n->removed = true;
	n->gen++;
	for (struct client *c = n->clients; c; c = c->next_of_node) {
		for (unsigned i = 0; i < NIC_QPS; i++)
			if (c->qp[i])
				qp_error(c->qp[i]);
		for (struct obj *o = c->objs; o; o = o->next)
			if (o->kind == K_CTX && !((struct ctx *)o)->removed) {
				((struct ctx *)o)->removed = true;
				async_event((struct ctx *)o, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
			}
	}
	cm_removed(n);
}

void node_port(struct node *n, bool up)
{
	if (n->port_down == !up)
		return;
	n->port_down = !up;
	for (struct client *c = n->clients; c; c = c->next_of_node)
		for (struct obj *o = c->objs; o; o = o->next)
			if (o->kind == K_CTX)
				async_event((struct ctx *)o,
					    up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, NULL,
					    NULL);
}
