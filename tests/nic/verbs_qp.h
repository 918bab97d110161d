/*
 * verbs_qp.h - a part of verbs.c: queue pairs.
 */
static struct nic_qp *qp_make(const struct ibv_qp_init_attr *a, struct ibv_pd *pd)
{
	struct nic_req req = { .op = OP_CREATE_QP };
	struct nic_qp_caps c = { .pd = pd->handle,
				 .send_cq = a->send_cq->handle,
				 .recv_cq = a->recv_cq->handle,
				 .srq = a->srq ? a->srq->handle : 0,
				 .sig_all = (uint32_t)a->sq_sig_all,
				 .cap = a->cap,
				 .type = (uint8_t)a->qp_type };
	struct nic_rep rep;
	struct nic_qp *q = calloc(1, sizeof *q);
	void *mem;
	int r;

	memcpy(req.data, &c, sizeof c);
	r = q ? make_queue(&req, &rep, &mem) : ENOMEM;
	if (r) {
		free(q);
		return failed(r);
	}
	q->mem = mem;
	q->bytes = rep.a;
	q->index = rep.h3;
	q->cap = a->cap;
	q->sig_all = a->sq_sig_all;
	q->init = *a;
	q->ex.qp_base = (struct ibv_qp){ .context = pd->context,
					 .qp_context = a->qp_context,
					 .pd = pd,
					 .send_cq = a->send_cq,
					 .recv_cq = a->recv_cq,
					 .srq = a->srq,
					 .handle = rep.h,
					 .qp_num = rep.h2,
					 .state = IBV_QPS_RESET,
					 .qp_type = a->qp_type };
	pthread_mutex_init(&q->ex.qp_base.mutex, NULL);
	pthread_cond_init(&q->ex.qp_base.cond, NULL);
	nic_qp_ops(q);
	nic_qps[q->index] = q;
	return q;
}

NIC_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct nic_qp *q = a->send_cq && a->recv_cq ? qp_make(a, pd) : failed(EINVAL);

	return q ? &q->ex.qp_base : NULL;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp_init_attr plain = { a->qp_context, a->send_cq, a->recv_cq,   a->srq,
					  a->cap,	 a->qp_type, a->sq_sig_all };

	(void)c;
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) ||
	    (a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)))
		return failed(EOPNOTSUPP);
	return ibv_create_qp(a->pd, &plain);
}

NIC_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) { return (struct ibv_qp_ex *)qp; }

NIC_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct nic_req req = { .op = OP_MODIFY_QP, .h = qp->handle };
	struct nic_modify m = { mask, *a };
	struct nic_rep rep;
	int r;

	memcpy(req.data, &m, sizeof m);
	r = nic_call(&req, &rep, NULL);
	if (!r)
		qp->state = rep.h;
	if (!r && rep.h == IBV_QPS_RESET) {
		struct nic_qp *q = (struct nic_qp *)qp;

		atomic_store(&q->sq_tail, atomic_load(&q->mem->sq.head));
		atomic_store(&q->rq_tail, atomic_load(&q->mem->rq.head));
	}
	return r;
}

NIC_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask,
			    struct ibv_qp_init_attr *init)
{
	struct nic_req req = { .op = OP_QUERY_QP, .h = qp->handle };
	struct nic_rep rep;
	int r = nic_call(&req, &rep, NULL);

	(void)mask;
	if (r)
		return r;
	memcpy(a, rep.data, sizeof *a);
	*init = ((struct nic_qp *)qp)->init;
	return 0;
}

NIC_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct nic_qp *q = (struct nic_qp *)qp;
	int r = call(OP_DESTROY_QP, qp->handle);

	if (r == EBUSY)
		return r;
	nic_qps[q->index] = NULL;
	raw(SYS_munmap, q->mem, q->bytes);
	free(q);
	return 0;
}

NIC_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}
