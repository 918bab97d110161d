/* conform_error.c - what is refused, by whom, and what becomes of the rest. */
#include "conform.h"

#include <poll.h>
#include <time.h>

/* All that is left of an end in error is flushed. */
static void all_flushed(struct end *e, uint64_t from, uint64_t to)
{
	for (; from < to; from++)
		expect(e, from, IBV_WC_WR_FLUSH_ERR);
}

static void to_error(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE));
}

static void queue_full(void)
{
	struct want w = PLAIN;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end a, b;
	unsigned n = 0;
	int r = 0;

	w.sig_all = false;
	connect_pair(&a, &b, &w);
	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init));
	/* As many as there are completions for: software devices give a place back without being
	 * asked. */
	while (n < (unsigned)w.cqe &&
	       !(r = post(&a, IBV_WR_RDMA_WRITE, n, 0, 1, &b, 0, IBV_SEND_SIGNALED)))
		n++;
	CHECK(n >= DEPTH && (r || conform_software));
	for (unsigned i = 0; i < n; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 1, 0, 1, &b, 0, IBV_SEND_SIGNALED));
	expect(&a, 1, IBV_WC_SUCCESS);
	for (n = 0; n < 10000 && !post_recv(&a, n, 0, 1); n++)
		;
	CHECK(n >= DEPTH && n < 10000);
	close_pair(&a, &b);
}

static void flush(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	for (unsigned i = 0; i < 5; i++)
		CHECK(!post_recv(&a, i, 0, 64));
	CHECK(quiet(&a, 10));
	to_error(&a);
	all_flushed(&a, 0, 5);
	if (!conform_software) { /* Soft-RoCE does not hear of receives by itself */
		CHECK(!post_recv(&a, 5, 0, 64));
		all_flushed(&a, 5, 6);
	}
	CHECK(!post(&a, IBV_WR_SEND, 6, 0, 1, NULL, 0, 0));	/* told of though nobody asked */
	all_flushed(&a, 6, 7);
	close_pair(&a, &b);
}

static void recv_too_small(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_wc wc;

	connect_pair(&a, &b, &w);
	CHECK(!post_recv(&b, 1, 0, 10));
	CHECK(!post_recv(&b, 2, 0, 10));
	b.buf[10] = 0x77;
	CHECK(!post(&a, IBV_WR_SEND, 3, 0, 11, NULL, 0, IBV_SEND_SIGNALED));
	wc = wait_wc(&b);
	CHECK(wc.wr_id == 1 && wc.status != IBV_WC_SUCCESS);
	if (!conform_iwarp) {
		if (!conform_software && wc.status != IBV_WC_LOC_LEN_ERR)
			FAIL("%s", ibv_wc_status_str(wc.status));
		if (conform_software)
			CHECK(wait_wc(&a).status != IBV_WC_SUCCESS);
		else
			expect(&a, 3, IBV_WC_REM_INV_REQ_ERR);
	}
	all_flushed(&b, 2, 3);
	CHECK(b.buf[10] == 0x77);
	close_pair(&a, &b);
}

/* One request that must fail, and the next is flushed. */
static void refused(struct end *a, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->wr_id = 1;
	CHECK(!ibv_post_send(a->qp, wr, &bad));
	wr->wr_id = 2;
	wr->num_sge = 0;
	wr->opcode = IBV_WR_SEND;
	ibv_post_send(a->qp, wr, &bad);
	wc = wait_wc(a);
	if (wc.wr_id != 1 || wc.status == IBV_WC_SUCCESS)
		FAIL("request %llu: %s", (unsigned long long)wc.wr_id,
		     ibv_wc_status_str(wc.status));
	if (!conform_iwarp && wc.status != status)
		FAIL("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
	expect(a, 2, IBV_WC_WR_FLUSH_ERR);
}

enum how { BAD_KEY, BEYOND, BEFORE, WRAPS, OTHER_PD, DEREGISTERED };

static void remote(enum ibv_wr_opcode op, enum how how)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;

	connect_pair(&a, &b, &w);
	wr = wr_of(&a, &s, op, 0, 0, 64, &b, 0, IBV_SEND_SIGNALED);
	switch (how) {
	case BAD_KEY: wr.wr.rdma.rkey ^= 0x5a00; break;
	case BEYOND: wr.wr.rdma.remote_addr += BUF - 63; break;
	case BEFORE: wr.wr.rdma.remote_addr -= 1; break;
	case WRAPS: wr.wr.rdma.remote_addr = UINT64_MAX - 31; break;
	case OTHER_PD:
		CHECK(pd = ibv_alloc_pd(b.id->verbs));
		CHECK(mr = ibv_reg_mr(pd, b.buf, BUF, 7));
		wr.wr.rdma.rkey = mr->rkey;
		break;
	case DEREGISTERED:
		CHECK(!ibv_dereg_mr(b.mr));
		b.mr = NULL;
		break;
	}
	memset(a.buf, 0x11, 64);
	memset(b.buf, 0x22, 4096);
	refused(&a, &wr, IBV_WC_REM_ACCESS_ERR);
	CHECK(a.buf[0] == 0x11 && b.buf[0] == 0x22 && b.buf[BUF - 1] == 0);
	if (mr)
		CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	close_pair(&a, &b);
}

#define REMOTE(name, how)                                             \
	static void write_##name(void)                                \
	{                                                             \
		if (conform_iwarp)                                    \
			conform_skip("iWARP completes what is sent"); \
		remote(IBV_WR_RDMA_WRITE, how);                       \
	}                                                             \
	static void read_##name(void) { remote(IBV_WR_RDMA_READ, how); }
REMOTE(bad_key, BAD_KEY)
REMOTE(beyond, BEYOND)
REMOTE(before, BEFORE)
REMOTE(wraps, WRAPS)
REMOTE(other_pd, OTHER_PD)
REMOTE(deregistered, DEREGISTERED)

static void not_permitted(enum ibv_wr_opcode op, int access)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	struct ibv_mr *mr;

	connect_pair(&a, &b, &w);
	CHECK(mr = ibv_reg_mr(b.pd, b.buf, BUF, access));
	wr = wr_of(&a, &s, op, 0, 0, 64, &b, 0, IBV_SEND_SIGNALED);
	wr.wr.rdma.rkey = mr->rkey;
	refused(&a, &wr, IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(mr));
	close_pair(&a, &b);
}

static void write_not_permitted(void)
{
	if (conform_iwarp)
		conform_skip("iWARP completes what is sent");
	not_permitted(IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

static void read_not_permitted(void)
{
	not_permitted(IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void local_key(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_sge s;
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;

	connect_pair(&a, &b, &w);
	wr = wr_of(&a, &s, IBV_WR_RDMA_WRITE, 1, 0, 64, &b, 0, IBV_SEND_SIGNALED);
	s.lkey ^= 0x5a00;
	if (!ibv_post_send(a.qp, &wr, &bad)) {	/* software devices look at once */
		wc = wait_wc(&a);
		if (wc.status == IBV_WC_SUCCESS ||
		    (!conform_iwarp && !conform_software && wc.status != IBV_WC_LOC_PROT_ERR))
			FAIL("%s", ibv_wc_status_str(wc.status));
	}
	close_pair(&a, &b);
}

/* What is posted before a request that fails here is completed as if nothing were. */
static void local_after_good(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_sge s[2];
	struct ibv_send_wr wr[2], *bad;

	if (conform_iwarp)
		conform_skip("order of local errors is InfiniBand's");
	connect_pair(&a, &b, &w);
	fill(&a, 0, 100000, 1);
	wr[0] = wr_of(&a, &s[0], IBV_WR_RDMA_WRITE, 1, 0, 100000, &b, 0, IBV_SEND_SIGNALED);
	wr[1] = wr_of(&a, &s[1], IBV_WR_RDMA_WRITE, 2, 0, 64, &b, 0, IBV_SEND_SIGNALED);
	s[1].addr += BUF;
	wr[0].next = &wr[1];
	if (ibv_post_send(a.qp, wr, &bad))
		conform_skip("this device looks at keys in post_send");
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_LOC_PROT_ERR);
	CHECK(filled(&b, 0, 100000, 1));
	close_pair(&a, &b);
}

static void registration(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	CHECK(!ibv_reg_mr(a.pd, a.buf, BUF, IBV_ACCESS_REMOTE_WRITE));	/* without LOCAL_WRITE */
	CHECK(!ibv_reg_mr(a.pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(ibv_dealloc_pd(a.pd));		/* in use */
	CHECK(ibv_destroy_cq(a.cq));
	close_pair(&a, &b);
}

static void rnr_waits(void)
{
	struct want w = PLAIN;
	struct end a, b;

	if (conform_iwarp)
		conform_skip("iWARP has no RNR");
	connect_pair(&a, &b, &w);
	CHECK(!post(&a, IBV_WR_SEND, 1, 0, 8, NULL, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_SEND, 2, 0, 8, NULL, 0, IBV_SEND_SIGNALED));
	CHECK(quiet(&a, 100));
	CHECK(!post_recv(&b, 3, 0, 64) && !post_recv(&b, 4, 0, 64));
	expect(&b, 3, IBV_WC_SUCCESS);
	expect(&b, 4, IBV_WC_SUCCESS);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_SUCCESS);
	close_pair(&a, &b);
}

static void rnr_ends(void)
{
	struct want w = PLAIN;
	struct end a, b;

	if (conform_iwarp)
		conform_skip("iWARP has no RNR");
	w.rnr_retry = 0;
	connect_pair(&a, &b, &w);
	CHECK(!post(&a, IBV_WR_SEND, 1, 0, 8, NULL, 0, IBV_SEND_SIGNALED));
	expect(&a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	close_pair(&a, &b);
}

/* The other end does not answer any more: retries, and then it is said. */
static void retries_end(void)
{
	struct want w = PLAIN;
	struct end a, b;

	if (conform_iwarp)
		conform_skip("iWARP's other end closes the stream");
	w.retry = 1;
	w.ack_timeout = 10;	/* 4.2 ms */
	connect_pair(&a, &b, &w);
	to_error(&b);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &b, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 2, 0, 8, &b, 0, IBV_SEND_SIGNALED));
	expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
	close_pair(&a, &b);
}

static void read_without_depth(void)
{
	struct want w = PLAIN;
	struct end a, b;
	int r;

	w.ord = w.ird = 0;
	connect_pair(&a, &b, &w);
	r = post(&a, IBV_WR_RDMA_READ, 1, 0, 8, &b, 0, IBV_SEND_SIGNALED);
	if (!r && conform_software)
		CHECK(quiet(&a, 100)); /* for ever */
	else if (!r && !conform_iwarp)
		CHECK(wait_wc(&a).status != IBV_WC_SUCCESS);
	close_pair(&a, &b);
}

/* Memory that a READ lands in must be writable here. */
static void read_into_readonly(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_sge s;
	struct ibv_send_wr wr, *bad;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	connect_pair(&a, &b, &w);
	CHECK(mr = ibv_reg_mr(a.pd, a.buf, BUF, 0));
	wr = wr_of(&a, &s, IBV_WR_RDMA_READ, 1, 0, 8, &b, 0, IBV_SEND_SIGNALED);
	s.lkey = mr->lkey;
	a.buf[0] = 0x33;
	if (!ibv_post_send(a.qp, &wr, &bad)) {
		wc = wait_wc(&a);
		CHECK(wc.status != IBV_WC_SUCCESS);
	}
	CHECK(a.buf[0] == 0x33);
	CHECK(!ibv_dereg_mr(mr));
	close_pair(&a, &b);
}

const struct test error_tests[] = {
	{ "queue_full", queue_full },
	{ "flush", flush },
	{ "recv_too_small", recv_too_small },
	{ "write_bad_key", write_bad_key },
	{ "read_bad_key", read_bad_key },
	{ "write_beyond", write_beyond },
	{ "read_beyond", read_beyond },
	{ "write_before", write_before },
	{ "read_before", read_before },
	{ "write_wraps", write_wraps },
	{ "read_wraps", read_wraps },
	{ "write_other_pd", write_other_pd },
	{ "read_other_pd", read_other_pd },
	{ "write_deregistered", write_deregistered },
	{ "read_deregistered", read_deregistered },
	{ "write_not_permitted", write_not_permitted },
	{ "read_not_permitted", read_not_permitted },
	{ "local_key", local_key },
	{ "local_after_good", local_after_good },
	{ "registration", registration },
	{ "rnr_waits", rnr_waits },
	{ "rnr_ends", rnr_ends },
	{ "retries_end", retries_end },
	{ "read_without_depth", read_without_depth },
	{ "read_into_readonly", read_into_readonly },
	{ NULL, NULL },
};
