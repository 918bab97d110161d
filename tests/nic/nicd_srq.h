/*
 * nicd_srq.h - a part of nicd_obj.c: shared receive queues.
 */
static void lay_out(struct nic_queue *q, uint32_t n, uint32_t payload, uint32_t at)
{
	q->size = power_of_two(n ? n : 1);
	q->most = n;
	q->stride = (uint32_t)(sizeof(struct nic_wqe) + payload + 63) & ~63u;
	q->at = at;
}

static size_t queue_bytes(const struct nic_queue *q) { return (size_t)q->size * q->stride; }

static int op_create_srq(struct call *call)
{
	struct pd *pd = obj_get(call->c, call->req->h, K_PD);
	struct nic_queue q = { 0 };
	struct srq *s;

	if (!pd || call->req->a > (uint64_t)K.max_wr || call->req->b > (uint64_t)K.max_sge ||
	    call->req->b > 32)
		return EINVAL;
	lay_out(&q, (uint32_t)call->req->a, (uint32_t)call->req->b * 16, sizeof q);
	s = obj_new(call->c, K_SRQ, sizeof *s);
	if (!s)
		return ENOMEM;
	s->bytes = sizeof q + queue_bytes(&q);
	s->q = share(call, s->bytes);
	if (!s->q) {
		obj_free(&s->o);
		return ENOMEM;
	}
	memcpy(s->q, &q, sizeof q);
	s->pd = pd;
	s->ctx = pd->ctx;
	s->limit = (uint32_t)call->req->c;
	pd->o.refs++;
	call->rep->h = s->o.handle;
	call->rep->a = s->bytes;
	return 0;
}

static int op_modify_srq(struct call *call)
{
	struct srq *s = obj_get(call->c, call->req->h, K_SRQ);

	if (!s)
		return EINVAL;
	s->limit = (uint32_t)call->req->a;
	return 0;
}

static void srq_gone(struct srq *s)
{
	s->pd->o.refs--;
	munmap(s->q, s->bytes);
	obj_free(&s->o);
}

static int op_destroy_srq(struct call *call)
{
	struct srq *s = obj_get(call->c, call->req->h, K_SRQ);

	if (!s || s->o.refs)
		return s ? EBUSY : EINVAL;
	srq_gone(s);
	return 0;
}
