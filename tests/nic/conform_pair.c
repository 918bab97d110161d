/* conform_pair.c - two connected ends, and what is done with them. */
#include "conform.h"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#define PATIENCE_MS 15000

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

/* ---- connection manager ---- */

struct rdma_cm_event *cm_event(struct rdma_event_channel *ch, int ms)
{
	struct rdma_cm_event *e = NULL;
	struct pollfd p = { ch->fd, POLLIN, 0 };

	if (poll(&p, 1, ms) == 1 && rdma_get_cm_event(ch, &e))
		FAIL("rdma_get_cm_event: %s", strerror(errno));
	return e;
}

int cm_expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type, struct rdma_cm_id **id,
	      uint8_t *data, int ms)
{
	struct rdma_cm_event *e;
	int status;

	do {
		e = cm_event(ch, ms);
		if (!e)
			FAIL("no %s within %d ms", rdma_event_str(type), ms);
		if (e->event != RDMA_CM_EVENT_TIMEWAIT_EXIT || type == RDMA_CM_EVENT_TIMEWAIT_EXIT)
			break;
		rdma_ack_cm_event(e);
	} while (1);
	if (e->event != type)
		FAIL("%s (status %d) instead of %s", rdma_event_str(e->event), e->status,
		     rdma_event_str(type));
	if (id)
		*id = e->id;
	if (data && e->param.conn.private_data)
		memcpy(data, e->param.conn.private_data, e->param.conn.private_data_len);
	status = e->status;
	rdma_ack_cm_event(e);
	return status;
}

struct rdma_cm_id *listen_at(struct rdma_event_channel *ch, uint16_t *ret_port)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&conform_addr));
	CHECK(!rdma_listen(id, 8));
	*ret_port = ntohs(rdma_get_src_port(id));
	CHECK(*ret_port);
	return id;
}

struct rdma_cm_id *resolve(struct rdma_event_channel *ch, uint16_t port)
{
	struct sockaddr_storage to = conform_addr;
	struct rdma_cm_id *id;

	((struct sockaddr_in *)&to)->sin_port = htons(port);
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
	cm_expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL, PATIENCE_MS);
	CHECK(!rdma_resolve_route(id, 2000));
	cm_expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL, PATIENCE_MS);
	CHECK(id->verbs && id->port_num);
	return id;
}

struct rdma_conn_param params_of(const struct want *w)
{
	return (struct rdma_conn_param){ .responder_resources = (uint8_t)w->ird,
					 .initiator_depth = (uint8_t)w->ord,
					 .retry_count = (uint8_t)w->retry,
					 .rnr_retry_count = (uint8_t)w->rnr_retry };
}

static int make_ex(struct end *e, const struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = { .send_cq = a->send_cq,
					 .recv_cq = a->recv_cq,
					 .srq = a->srq,
					 .cap = a->cap,
					 .qp_type = a->qp_type,
					 .sq_sig_all = a->sq_sig_all,
					 .pd = e->pd,
					 .comp_mask = IBV_QP_INIT_ATTR_PD |
						      IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = IBV_QP_EX_WITH_SEND |
							   IBV_QP_EX_WITH_RDMA_WRITE |
							   IBV_QP_EX_WITH_RDMA_READ };

	return rdma_create_qp_ex(e->id, &x);
}

void end_make(struct end *e, struct rdma_cm_id *id, const struct want *w)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
				      .sq_sig_all = w->sig_all,
				      .cap = { .max_send_wr = (uint32_t)w->depth,
					       .max_recv_wr = (uint32_t)w->depth,
					       .max_send_sge = 2,
					       .max_recv_sge = 2,
					       .max_inline_data = (uint32_t)w->max_inline } };

	*e = (struct end){ .id = id };
	if (conform_iwarp)
		a.cap.max_send_sge = a.cap.max_recv_sge = 2;
	CHECK(e->pd = ibv_alloc_pd(id->verbs));
	CHECK(e->events = ibv_create_comp_channel(id->verbs));
	CHECK(e->cq = ibv_create_cq(id->verbs, w->cqe, e, e->events, 0));
	e->buf = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(e->buf != MAP_FAILED);
	CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, BUF,
				 conform_iwarp ? w->access & ~IBV_ACCESS_REMOTE_ATOMIC
					       : w->access));
	a.send_cq = a.recv_cq = e->cq;
	if (w->srq) {
		struct ibv_srq_init_attr sa = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };

		CHECK(e->srq = a.srq = ibv_create_srq(e->pd, &sa));
	}
	if (w->ex ? make_ex(e, &a) : rdma_create_qp(id, e->pd, &a)) {
		if (w->ex && errno == EOPNOTSUPP)
			conform_skip("this device has no such calls");
		FAIL("rdma_create_qp: %s", strerror(errno));
	}
	e->qp = id->qp;
}

void end_free(struct end *e)
{
	if (e->id && e->id->qp)
		rdma_destroy_qp(e->id);
	if (e->id)
		CHECK(!rdma_destroy_id(e->id));
	if (e->srq)
		CHECK(!ibv_destroy_srq(e->srq));
	CHECK(!ibv_destroy_cq(e->cq));
	CHECK(!ibv_destroy_comp_channel(e->events));
	if (e->mr)
		CHECK(!ibv_dereg_mr(e->mr));
	CHECK(!ibv_dealloc_pd(e->pd));
	munmap(e->buf, BUF);
}

static void set_timeout(struct rdma_cm_id *id, const struct want *w)
{
	uint8_t t = (uint8_t)w->ack_timeout;

	if (t)
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &t, sizeof t);
}

void connect_pair(struct end *a, struct end *b, const struct want *w)
{
	struct rdma_conn_param p = params_of(w);
	struct rdma_cm_id *l, *c, *s;
	uint16_t port;
	int left = 2;

	l = listen_at(conform_channel, &port);
	c = resolve(conform_channel, port);
	set_timeout(c, w);
	end_make(a, c, w);
	CHECK(!rdma_connect(c, &p));
	cm_expect(conform_channel, RDMA_CM_EVENT_CONNECT_REQUEST, &s, NULL, PATIENCE_MS);
	set_timeout(s, w);
	end_make(b, s, w);
	CHECK(!rdma_accept(s, &p));
	for (; left; left--)
		cm_expect(conform_channel, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL, PATIENCE_MS);
	CHECK(!rdma_destroy_id(l));
}

void close_pair(struct end *a, struct end *b)
{
	struct rdma_cm_event *e;

	end_free(a);
	end_free(b);
	while ((e = cm_event(conform_channel, 0))) /* of identifiers that are gone there are none */
		FAIL("%s of an identifier that is destroyed", rdma_event_str(e->event));
}

/* ---- work ---- */

int post_recv(struct end *e, uint64_t id, uint32_t at, uint32_t len)
{
	struct ibv_sge s = { (uintptr_t)e->buf + at, len, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *bad = NULL;

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
}

struct ibv_send_wr wr_of(struct end *e, struct ibv_sge *sge, enum ibv_wr_opcode op, uint64_t id,
			 uint32_t at, uint32_t len, const struct end *to, uint32_t there,
			 unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = sge,
				  .num_sge = 1,
				  .opcode = op,
				  .send_flags = flags,
				  .imm_data = htonl(0x12345678) };

	*sge = (struct ibv_sge){ (uintptr_t)e->buf + at, len, e->mr ? e->mr->lkey : 0 };
	if (to) {
		wr.wr.rdma.remote_addr = (uintptr_t)to->buf + there;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	return wr;
}

int post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t at, uint32_t len,
	 const struct end *to, uint32_t there, unsigned flags)
{
	struct ibv_sge s;
	struct ibv_send_wr wr = wr_of(e, &s, op, id, at, len, to, there, flags), *bad = NULL;
	int r = ibv_post_send(e->qp, &wr, &bad);

	if (r && bad != &wr && !conform_software)
		FAIL("post_send failed and named another request");
	return r;
}

struct ibv_wc wait_wc(struct end *e)
{
	long long end = now_ms() + PATIENCE_MS;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(e->cq, 1, &wc))) {
		if (now_ms() > end)
			FAIL("no completion within %d ms", PATIENCE_MS);
		sched_yield();
	}
	if (n < 0)
		FAIL("poll_cq: %d", n);
	return wc;
}

struct ibv_wc expect(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(e);

	if (wc.wr_id != id || wc.status != status)
		FAIL("completion of %llu, %s, instead of %llu, %s", (unsigned long long)wc.wr_id,
		     ibv_wc_status_str(wc.status), (unsigned long long)id,
		     ibv_wc_status_str(status));
	CHECK(wc.qp_num == e->qp->qp_num);
	return wc;
}

bool quiet(struct end *e, int ms)
{
	long long end = now_ms() + ms;
	struct ibv_wc wc;

	while (now_ms() < end) {
		if (ibv_poll_cq(e->cq, 1, &wc))
			return false;
		usleep(500);
	}
	return true;
}

bool event_within(struct end *e, int ms)
{
	struct pollfd p = { e->events->fd, POLLIN, 0 };
	struct ibv_cq *cq;
	void *ctx;

	if (poll(&p, 1, ms) != 1)
		return false;
	CHECK(!ibv_get_cq_event(e->events, &cq, &ctx));
	CHECK(cq == e->cq && ctx == e);
	ibv_ack_cq_events(cq, 1);
	return true;
}

void fill(struct end *e, uint32_t at, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		e->buf[at + i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

bool filled(struct end *e, uint32_t at, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		if (e->buf[at + i] != (uint8_t)((i * 2654435761u + seed) >> 13))
			return false;
	return true;
}
