/* conform_data.c - what is carried, in which order, and what is told of it. */
#include "conform.h"

#include <arpa/inet.h>

static void device(void)
{
	struct ibv_device_attr d;
	struct ibv_port_attr p;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_device **list;
	struct want w = PLAIN;
	struct end a, b;
	int n;

	CHECK((list = ibv_get_device_list(&n)) && n > 0 && list[0]);
	ibv_free_device_list(list);
	connect_pair(&a, &b, &w);
	CHECK(!ibv_query_device(a.id->verbs, &d) && d.max_qp > 0 && d.max_cqe > 0 && d.max_sge > 0);
	CHECK(!ibv_query_port(a.id->verbs, a.id->port_num, &p) && p.state == IBV_PORT_ACTIVE);
	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init));
	/* siw does not say. */
	CHECK(attr.qp_state == IBV_QPS_RTS || (conform_iwarp && conform_software));
	close_pair(&a, &b);
}

static void send_recv(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_wc wc;

	connect_pair(&a, &b, &w);
	fill(&a, 0, 1000, 1);
	CHECK(!post_recv(&b, 7, 0, 4096));
	CHECK(!post(&a, IBV_WR_SEND, 8, 0, 1000, NULL, 0, IBV_SEND_SIGNALED));
	wc = expect(&b, 7, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 1000 && !(wc.wc_flags & IBV_WC_WITH_IMM));
	CHECK(filled(&b, 0, 1000, 1));
	wc = expect(&a, 8, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_SEND);
	/* nothing at all is a message too */
	CHECK(!post_recv(&a, 9, 0, 0));
	CHECK(!post(&b, IBV_WR_SEND, 10, 0, 0, NULL, 0, IBV_SEND_SIGNALED));
	wc = expect(&a, 9, IBV_WC_SUCCESS);
	CHECK(!wc.byte_len);
	expect(&b, 10, IBV_WC_SUCCESS);
	close_pair(&a, &b);
}

static void immediate(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_wc wc;

	if (conform_iwarp)
		conform_skip("iWARP has no immediate data");
	connect_pair(&a, &b, &w);
	CHECK(!post_recv(&b, 1, 0, 64));
	CHECK(!post_recv(&b, 2, 0, 0));
	fill(&a, 100, 50, 3);
	CHECK(!post(&a, IBV_WR_SEND_WITH_IMM, 3, 100, 50, NULL, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 4, 100, 50, &b, 200, IBV_SEND_SIGNALED));
	wc = expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV && (wc.wc_flags & IBV_WC_WITH_IMM) &&
	      ntohl(wc.imm_data) == 0x12345678 && filled(&b, 0, 50, 3));
	wc = expect(&b, 2, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && (wc.wc_flags & IBV_WC_WITH_IMM) &&
	      wc.byte_len == 50 && filled(&b, 200, 50, 3));
	expect(&a, 3, IBV_WC_SUCCESS);
	CHECK(expect(&a, 4, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE);
	close_pair(&a, &b);
}

/* The buffer may be used again when post_send has returned. */
static void inline_data(void)
{
	struct want w = PLAIN;
	struct end a, b;

	w.max_inline = 32;
	connect_pair(&a, &b, &w);
	for (unsigned i = 0; i < 8; i++)
		CHECK(!post_recv(&b, i, i * 64, 64));
	for (unsigned i = 0; i < 8; i++) {
		fill(&a, 0, 32, i);
		CHECK(!post(&a, IBV_WR_SEND, i, 0, 32, NULL, 0,
			    IBV_SEND_SIGNALED | IBV_SEND_INLINE));
		memset(a.buf, 0xee, 32);
	}
	for (unsigned i = 0; i < 8; i++) {
		expect(&b, i, IBV_WC_SUCCESS);
		CHECK(filled(&b, i * 64, 32, i));
		expect(&a, i, IBV_WC_SUCCESS);
	}
	close_pair(&a, &b);
}

static void write_read(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	fill(&a, 0, 5000, 5);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 1, 0, 5000, &b, 3000, IBV_SEND_SIGNALED));
	CHECK(expect(&a, 1, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE);
	if (conform_iwarp) {	/* completed when it was sent */
		CHECK(!post(&a, IBV_WR_RDMA_READ, 2, 20000, 1, &b, 0, IBV_SEND_SIGNALED));
		expect(&a, 2, IBV_WC_SUCCESS);
	}
	CHECK(filled(&b, 3000, 5000, 5) && !b.buf[2999] && !b.buf[8000]);
	fill(&b, 100000, 7000, 6);
	CHECK(!post(&a, IBV_WR_RDMA_READ, 3, 50000, 7000, &b, 100000, IBV_SEND_SIGNALED));
	CHECK(expect(&a, 3, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_READ);
	CHECK(filled(&a, 50000, 7000, 6));
	CHECK(quiet(&b, 20));
	close_pair(&a, &b);
}

static void large(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	fill(&a, 0, BUF, 7);
	CHECK(!post_recv(&b, 1, 0, BUF));
	CHECK(!post(&a, IBV_WR_SEND, 2, 0, BUF, NULL, 0, IBV_SEND_SIGNALED));
	CHECK(expect(&b, 1, IBV_WC_SUCCESS).byte_len == BUF && filled(&b, 0, BUF, 7));
	expect(&a, 2, IBV_WC_SUCCESS);
	fill(&a, 0, BUF - 3, 8);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 3, 0, BUF - 3, &b, 3, IBV_SEND_SIGNALED));
	expect(&a, 3, IBV_WC_SUCCESS);
	memset(a.buf, 0, BUF);
	CHECK(!post(&a, IBV_WR_RDMA_READ, 4, 0, BUF - 3, &b, 3, IBV_SEND_SIGNALED));
	expect(&a, 4, IBV_WC_SUCCESS);
	CHECK(filled(&a, 0, BUF - 3, 8) && filled(&b, 3, BUF - 3, 8));
	close_pair(&a, &b);
}

static void scatter_gather(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_sge s[2], r[2];
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = s,
				  .num_sge = 2,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_recv_wr rwr = { .wr_id = 2, .sg_list = r, .num_sge = 2 }, *rbad;

	connect_pair(&a, &b, &w);
	fill(&a, 0, 100000, 9);
	s[0] = (struct ibv_sge){ (uintptr_t)a.buf, 30001, a.mr->lkey };
	s[1] = (struct ibv_sge){ (uintptr_t)a.buf + 30001, 69999, a.mr->lkey };
	r[0] = (struct ibv_sge){ (uintptr_t)b.buf + 500000, 1, b.mr->lkey };
	r[1] = (struct ibv_sge){ (uintptr_t)b.buf + 500001, 200000, b.mr->lkey };
	CHECK(!ibv_post_recv(b.qp, &rwr, &rbad));
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	CHECK(expect(&b, 2, IBV_WC_SUCCESS).byte_len == 100000 && filled(&b, 500000, 100000, 9));
	expect(&a, 1, IBV_WC_SUCCESS);
	close_pair(&a, &b);
}

/* A completed receive says that the writes before it are there. */
static void write_before_send(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	for (unsigned i = 0; i < 200; i++) {
		uint32_t len = 1 + i * 997 % 60000;

		CHECK(!post_recv(&b, i, 900000, 64));
		fill(&a, 0, len, i);
		CHECK(!post(&a, IBV_WR_RDMA_WRITE, 2 * i, 0, len, &b, 1000, IBV_SEND_SIGNALED));
		CHECK(!post(&a, IBV_WR_SEND, 2 * i + 1, 0, 1, NULL, 0, IBV_SEND_SIGNALED));
		expect(&b, i, IBV_WC_SUCCESS);
		CHECK(filled(&b, 1000, len, i));
		expect(&a, 2 * i, IBV_WC_SUCCESS);
		expect(&a, 2 * i + 1, IBV_WC_SUCCESS);
	}
	close_pair(&a, &b);
}

/* Both directions at once; one completion for so many sends; all in order. */
static void in_order(void)
{
	struct want w = PLAIN;
	struct end a, b, *e[2] = { &a, &b };
	unsigned sent[2] = { 0 }, got[2] = { 0 }, done[2] = { 0 }, posted[2] = { 0 };

	w.sig_all = false;
	connect_pair(&a, &b, &w);
	while (got[0] < 2000 || got[1] < 2000 || done[0] < 2000 || done[1] < 2000)
		for (int k = 0; k < 2; k++) {
			struct ibv_wc wc;

			for (; posted[k] < 2000 && posted[k] - got[k] < DEPTH; posted[k]++)
				CHECK(!post_recv(e[k], posted[k], 1000 + posted[k] % DEPTH * 8, 8));
			while (sent[k] < 2000 && sent[k] - done[k] < DEPTH &&
			       sent[k] - got[!k] < DEPTH && sent[k] < posted[!k]) {
				*(uint64_t *)(e[k]->buf + sent[k] % DEPTH * 8) = sent[k];
				CHECK(!post(e[k], IBV_WR_SEND, sent[k] | 1u << 30,
					    sent[k] % DEPTH * 8, 8, NULL, 0,
					    sent[k] % 8 == 7 ? IBV_SEND_SIGNALED : 0));
				sent[k]++;
			}
			if (!ibv_poll_cq(e[k]->cq, 1, &wc))
				continue;
			CHECK(!wc.status);
			if (wc.wr_id & 1u << 30) {
				CHECK((wc.wr_id & ~(1u << 30)) == done[k] + 7);
				done[k] += 8;
			} else {
				CHECK(wc.wr_id == got[k] &&
				      *(uint64_t *)(e[k]->buf + 1000 + got[k] % DEPTH * 8) ==
					      got[k]);
				got[k]++;
			}
		}
	close_pair(&a, &b);
}

static void many_reads(void)
{
	struct want w = PLAIN;
	struct end a, b;

	w.ord = w.ird = 2;
	connect_pair(&a, &b, &w);
	fill(&b, 0, DEPTH * 30000, 11);
	for (unsigned i = 0; i < DEPTH; i++)
		CHECK(!post(&a, IBV_WR_RDMA_READ, i, i * 30000, 30000, &b, i * 30000,
			    IBV_SEND_SIGNALED));
	for (unsigned i = 0; i < DEPTH; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	CHECK(filled(&a, 0, DEPTH * 30000, 11));
	close_pair(&a, &b);
}

/* Completions come in order of the posts, also where a READ takes longer than what is behind it. */
static void read_then_send(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	fill(&b, 0, 500000, 12);
	CHECK(!post_recv(&b, 1, 900000, 64));
	CHECK(!post_recv(&b, 2, 900000, 64));
	CHECK(!post(&a, IBV_WR_RDMA_READ, 3, 0, 500000, &b, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_SEND, 4, 600000, 8, NULL, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_RDMA_READ, 5, 500000, 8, &b, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_SEND, 6, 600000, 8, NULL, 0, IBV_SEND_SIGNALED | IBV_SEND_FENCE));
	for (uint64_t i = 3; i < 7; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	CHECK(filled(&a, 0, 500000, 12));
	expect(&b, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	close_pair(&a, &b);
}

static void atomics(void)
{
	struct want w = PLAIN;
	struct end a, b;
	struct ibv_sge s;
	struct ibv_send_wr wr, *bad;

	if (conform_iwarp)
		conform_skip("iWARP has no atomics");
	connect_pair(&a, &b, &w);
	*(uint64_t *)b.buf = 40;
	wr = wr_of(&a, &s, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, NULL, 0, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.wr.atomic.compare_add = 2;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	CHECK(expect(&a, 1, IBV_WC_SUCCESS).opcode == IBV_WC_FETCH_ADD);
	CHECK(*(uint64_t *)a.buf == 40 && *(uint64_t *)b.buf == 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	for (uint64_t i = 2; i < 4; i++) {	/* the second time it is not 42 any more */
		wr.wr_id = i;
		wr.wr.atomic.compare_add = 42;
		wr.wr.atomic.swap = 7;
		CHECK(!ibv_post_send(a.qp, &wr, &bad));
		expect(&a, i, IBV_WC_SUCCESS);
		CHECK(*(uint64_t *)a.buf == (i == 2 ? 42 : 7) && *(uint64_t *)b.buf == 7);
	}
	close_pair(&a, &b);
}

static void events(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	for (unsigned i = 0; i < 4; i++)
		CHECK(!post_recv(&b, i, 0, 64));
	CHECK(!post(&a, IBV_WR_SEND, 10, 0, 8, NULL, 0, IBV_SEND_SIGNALED));
	expect(&b, 0, IBV_WC_SUCCESS);
	CHECK(!event_within(&b, 20));		/* nobody asked */
	CHECK(!ibv_req_notify_cq(b.cq, 0));
	CHECK(!event_within(&b, 20));
	CHECK(!post(&a, IBV_WR_SEND, 11, 0, 8, NULL, 0, IBV_SEND_SIGNALED));
	CHECK(event_within(&b, 5000));
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(!ibv_req_notify_cq(b.cq, 1));
	CHECK(!post(&a, IBV_WR_SEND, 12, 0, 8, NULL, 0, IBV_SEND_SIGNALED));
	expect(&b, 2, IBV_WC_SUCCESS);
	CHECK(!event_within(&b, 50));
	CHECK(!post(&a, IBV_WR_SEND, 13, 0, 8, NULL, 0, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
	CHECK(event_within(&b, 5000));
	expect(&b, 3, IBV_WC_SUCCESS);
	CHECK(!event_within(&b, 20));
	for (uint64_t i = 10; i < 14; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	close_pair(&a, &b);
}

/* The calls of struct ibv_qp_ex: three requests in one batch. */
static void batch(void)
{
	struct want w = PLAIN;
	struct ibv_qp_ex *x;
	struct end a, b;

	w.ex = true;
	w.max_inline = 32;
	connect_pair(&a, &b, &w);
	CHECK(x = ibv_qp_to_qp_ex(a.qp));
	CHECK(!post_recv(&b, 1, 100000, 64));
	fill(&a, 0, 50000, 1);
	fill(&a, 400000, 32, 1);
	ibv_wr_start(x);
	x->wr_id = 2;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, b.mr->rkey, (uintptr_t)b.buf);
	ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 50000);
	x->wr_id = 3;
	ibv_wr_rdma_read(x, b.mr->rkey, (uintptr_t)b.buf);
	ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf + 200000, 50000);
	x->wr_id = 4;
	ibv_wr_send(x);
	if (conform_software) /* Soft-RoCE refuses it inline */
		ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf + 400000, 32);
	else
		ibv_wr_set_inline_data(x, a.buf + 400000, 32);
	CHECK(!ibv_wr_complete(x));
	if (!conform_software)
		memset(a.buf + 400000, 0, 32);
	for (uint64_t i = 2; i < 5; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(filled(&b, 0, 50000, 1) && filled(&a, 200000, 50000, 1) && filled(&b, 100000, 32, 1));
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	CHECK(quiet(&a, 20) && quiet(&b, 20));
	close_pair(&a, &b);
}

static void shared_receives(void)
{
	struct want w = PLAIN;
	struct end a, b;

	w.srq = true;
	connect_pair(&a, &b, &w);
	for (unsigned i = 0; i < 8; i++)
		CHECK(!post_recv(&b, i, i * 64, 64));
	for (unsigned i = 0; i < 8; i++) {
		fill(&a, i * 64, 64, i);
		CHECK(!post(&a, IBV_WR_SEND, i, i * 64, 64, NULL, 0, IBV_SEND_SIGNALED));
		expect(&a, i, IBV_WC_SUCCESS);
		expect(&b, i, IBV_WC_SUCCESS);
		CHECK(filled(&b, i * 64, 64, i));
	}
	close_pair(&a, &b);
}

const struct test data_tests[] = {
	{ "device", device },
	{ "send_recv", send_recv },
	{ "immediate", immediate },
	{ "inline", inline_data },
	{ "write_read", write_read },
	{ "large", large },
	{ "scatter_gather", scatter_gather },
	{ "write_before_send", write_before_send },
	{ "in_order", in_order },
	{ "many_reads", many_reads },
	{ "read_then_send", read_then_send },
	{ "atomics", atomics },
	{ "events", events },
	{ "batch", batch },
	{ "shared_receives", shared_receives },
	{ NULL, NULL },
};
