/* conform_fault.c - what happens to a device from outside: only where there is a way to do it, the
 * simulated one (NICD, SIMNIC_DIR). */
#include "conform.h"

#include <linux/capability.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* A command to the device's process. */
static void tell(const char *fmt, ...)
{
	char cmd[512];
	int n = snprintf(cmd, sizeof cmd, "LD_PRELOAD= %s %s ctl ", getenv("NICD"),
			 getenv("SIMNIC_DIR"));
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd + n, sizeof cmd - (size_t)n, fmt, ap);
	va_end(ap);
	if (system(cmd))
		FAIL("%s", cmd);
}

static void expect_async(struct end *e, enum ibv_event_type type)
{
	struct pollfd p = { e->id->verbs->async_fd, POLLIN, 0 };
	struct ibv_async_event ev;

	CHECK(poll(&p, 1, 5000) == 1);
	CHECK(!ibv_get_async_event(e->id->verbs, &ev));
	if (ev.event_type != type)
		FAIL("%s instead of %s", ibv_event_type_str(ev.event_type),
		     ibv_event_type_str(type));
	ibv_ack_async_event(&ev);
}

/* Streams of all kinds; every byte right, all in order. */
static void traffic(struct end *a, struct end *b, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		uint32_t len = 1 + i * 7919 % 200000;

		fill(a, 0, len, i);
		CHECK(!post_recv(b, 1, 300000, 200000));
		CHECK(!post(a, IBV_WR_RDMA_WRITE, 2, 0, len, b, 0, IBV_SEND_SIGNALED));
		CHECK(!post(a, IBV_WR_SEND, 3, 0, len, NULL, 0, IBV_SEND_SIGNALED));
		CHECK(!post(a, IBV_WR_RDMA_READ, 4, 600000, len, b, 0, IBV_SEND_SIGNALED));
		expect(b, 1, IBV_WC_SUCCESS);
		for (uint64_t k = 2; k < 5; k++)
			expect(a, k, IBV_WC_SUCCESS);
		CHECK(filled(b, 0, len, i) && filled(b, 300000, len, i) &&
		      filled(a, 600000, len, i));
	}
}

static void pair_quick(struct end *a, struct end *b)
{
	struct want w = PLAIN;

	w.ack_timeout = 12;
	connect_pair(a, b, &w);
}

static void drop_each(void)
{
	static const char *const kinds[] = { "req", "read", "ack", "read-response", "any" };
	struct end a, b;

	pair_quick(&a, &b);
	for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++)
		for (unsigned skip = 0; skip < 4; skip++) {
			tell("drop %s %u 1", kinds[k], skip);
			traffic(&a, &b, 4);
		}
	tell("drop any 0 0");
	close_pair(&a, &b);
}

static void loss(void)
{
	struct end a, b;

	pair_quick(&a, &b);
	tell("set loss_ppm=20000");
	traffic(&a, &b, 40);
	tell("set loss_ppm=0");
	close_pair(&a, &b);
}

/* What is behind a READ is acknowledged, but some of its answer was lost. */
static void read_lost(void)
{
	struct end a, b;

	pair_quick(&a, &b);
	fill(&b, 0, 200000, 1);
	CHECK(!post_recv(&b, 1, 300000, 64));
	tell("drop read-response 1 2");
	CHECK(!post(&a, IBV_WR_RDMA_READ, 2, 0, 200000, &b, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_SEND, 3, 300000, 64, NULL, 0, IBV_SEND_SIGNALED));
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&a, 3, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(filled(&a, 0, 200000, 1));
	close_pair(&a, &b);
}

/* Of two READs the first's answer has a hole: what is posted behind them, later, is all done. */
static void reads_lost(void)
{
	struct end a, b;

	pair_quick(&a, &b);
	for (unsigned skip = 0; skip < 4; skip++) {
		fill(&b, 0, 262144, skip);
		fill(&a, 600000, 32768, skip + 10);
		CHECK(!post_recv(&b, 1, 500000, 64));
		tell("drop read-response %u 1", skip);
		CHECK(!post(&a, IBV_WR_RDMA_READ, 2, 0, 131072, &b, 0, IBV_SEND_SIGNALED));
		CHECK(!post(&a, IBV_WR_RDMA_READ, 3, 131072, 131072, &b, 131072,
			    IBV_SEND_SIGNALED));
		usleep(5000);
		CHECK(!post(&a, IBV_WR_RDMA_WRITE, 4, 600000, 32768, &b, 600000,
			    IBV_SEND_SIGNALED));
		CHECK(!post(&a, IBV_WR_SEND, 5, 600000, 64, NULL, 0, IBV_SEND_SIGNALED));
		for (uint64_t k = 2; k < 6; k++)
			expect(&a, k, IBV_WC_SUCCESS);
		expect(&b, 1, IBV_WC_SUCCESS);
		CHECK(filled(&a, 0, 262144, skip) && filled(&b, 600000, 32768, skip + 10) &&
		      filled(&b, 500000, 64, skip + 10));
	}
	close_pair(&a, &b);
}

/* An atomic whose answer is lost is not done twice. */
static void atomic_once(void)
{
	struct ibv_sge s;
	struct ibv_send_wr wr, *bad;
	struct end a, b;

	if (conform_iwarp)
		conform_skip("iWARP has no atomics");
	pair_quick(&a, &b);
	*(uint64_t *)b.buf = 5;
	wr = wr_of(&a, &s, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, NULL, 0, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	tell("drop atomic-response 0 2");
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	expect(&a, 1, IBV_WC_SUCCESS);
	CHECK(*(uint64_t *)a.buf == 5 && *(uint64_t *)b.buf == 6);
	close_pair(&a, &b);
}

static void port_down(void)
{
	struct want w = PLAIN;
	struct ibv_port_attr p;
	struct end a, b;

	w.ack_timeout = 10;
	w.retry = 1;
	connect_pair(&a, &b, &w);
	tell("down a");
	expect_async(&a, IBV_EVENT_PORT_ERR);
	CHECK(!ibv_query_port(a.id->verbs, 1, &p) && p.state == IBV_PORT_DOWN);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &b, 0, IBV_SEND_SIGNALED));
	if (!conform_iwarp)
		expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	tell("up a");
	expect_async(&a, IBV_EVENT_PORT_ACTIVE);
	close_pair(&a, &b);
}

/* Down and up again within the retries: nothing is lost. */
static void port_blinks(void)
{
	struct want w = PLAIN;
	struct end a, b;

	if (conform_iwarp)
		conform_skip("its stream ends");
	w.ack_timeout = 17;
	connect_pair(&a, &b, &w);
	tell("down a");
	fill(&a, 0, 50000, 1);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 1, 0, 50000, &b, 0, IBV_SEND_SIGNALED));
	CHECK(quiet(&a, 50));
	tell("up a");
	expect(&a, 1, IBV_WC_SUCCESS);
	CHECK(filled(&b, 0, 50000, 1));
	close_pair(&a, &b);
}

static void removal(void)
{
	struct want w = PLAIN;
	struct rdma_cm_id *id;
	struct end a, b;

	connect_pair(&a, &b, &w);
	CHECK(!post_recv(&a, 1, 0, 64));
	tell("remove a");
	expect_async(&a, IBV_EVENT_DEVICE_FATAL);
	for (int left = 2; left; left--)
		cm_expect(conform_channel, RDMA_CM_EVENT_DEVICE_REMOVAL, &id, NULL, 5000);
	expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_reg_mr(a.pd, a.buf, 4096, 0));
	CHECK(!rdma_create_id(conform_channel, &id, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&conform_addr) && errno == ENODEV);
	CHECK(!rdma_destroy_id(id));
	close_pair(&a, &b);
	tell("add a");
	connect_pair(&a, &b, &w);	/* another context, which works */
	traffic(&a, &b, 2);
	close_pair(&a, &b);
}

static void stall(void)
{
	struct want w = PLAIN;
	struct end a, b;

	w.ack_timeout = 17;
	connect_pair(&a, &b, &w);
	tell("stall a 300");
	fill(&a, 0, 1000, 1);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 1, 0, 1000, &b, 0, IBV_SEND_SIGNALED));
	CHECK(quiet(&a, 100));
	expect(&a, 1, IBV_WC_SUCCESS);
	close_pair(&a, &b);
}

static void qp_fatal(void)
{
	struct want w = PLAIN;
	struct end a, b;

	connect_pair(&a, &b, &w);
	CHECK(!post_recv(&a, 1, 0, 64));
	tell("fail a");
	expect_async(&a, IBV_EVENT_QP_FATAL);
	expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
	close_pair(&a, &b);
}

/* A queue pair that asks for this is not to be had. */
static void no_qp(const struct end *a, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = a->cq, .recv_cq = a->cq, .cap = cap
	};
	struct ibv_qp *qp = ibv_create_qp(a->pd, &init);

	if (qp)
		FAIL("a queue pair beyond the device's limits");
	CHECK(errno == EINVAL);
}

/* A card has its pages: what the program puts in their place it never sees, nor touches. */
static void pinned_as(int kind)
{
	struct want w = PLAIN;
	struct end a, b;
	uint8_t *mem = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
	struct end there;
	struct ibv_mr *mr;

	connect_pair(&a, &b, &w);
	there = b;
	there.buf = mem;
	fill(&there, 0, 1 << 16, 1);
	CHECK(mr = ibv_reg_mr(b.pd, mem, 1 << 16, 7));
	there.mr = mr;
	CHECK(!munmap(mem, 1 << 16));
	CHECK(mmap(mem, 1 << 16, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mem);
	fill(&there, 0, 1 << 16, 2);
	CHECK(!post(&a, IBV_WR_RDMA_READ, 1, 0, 1 << 16, &there, 0, IBV_SEND_SIGNALED));
	expect(&a, 1, IBV_WC_SUCCESS);
	CHECK(filled(&a, 0, 1 << 16, 1));
	fill(&a, 0, 1 << 16, 3);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, 2, 0, 1 << 16, &there, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_RDMA_READ, 3, 1 << 17, 1 << 16, &there, 0, IBV_SEND_SIGNALED));
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&a, 3, IBV_WC_SUCCESS);
	CHECK(filled(&a, 1 << 17, 1 << 16, 3) && filled(&there, 0, 1 << 16, 2));
	CHECK(!ibv_dereg_mr(mr));
	close_pair(&a, &b);
}

static bool no_uring(void)
{
	struct io_uring_params p = { 0 };
	long fd = syscall(SYS_io_uring_setup, 1, &p);

	if (fd >= 0)
		close((int)fd);
	return fd < 0;
}

static void pinned_private(void)
{
	if (no_uring())
		conform_skip("no io_uring here to pin memory with");
	pinned_as(MAP_PRIVATE);
}

static void pinned_shared(void)
{
	if (geteuid())
		conform_skip("only root can map what others share");
	pinned_as(MAP_SHARED);
}

static void lock_limit(struct end *a)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 } };
	struct rlimit l = { 2 * BUF, 2 * BUF };
	struct ibv_mr *mr;

	CHECK(!setrlimit(RLIMIT_MEMLOCK, &l) && !syscall(SYS_capset, &h, none));
	CHECK(!ibv_reg_mr(a->pd, a->buf, BUF, 0) && errno == ENOMEM); /* the two ends have theirs */
	CHECK(!ibv_dereg_mr(a->mr));
	a->mr = NULL;
	CHECK(mr = ibv_reg_mr(a->pd, a->buf, BUF, 0));
	CHECK(!ibv_dereg_mr(mr));
}

static void limits(void)
{
	struct ibv_device **list;
	struct want w = PLAIN;
	struct ibv_device_attr d;
	struct end a, b;
	int n;

	connect_pair(&a, &b, &w);
	tell("set max_inline=16 max_wr=100 max_sge=3 max_mr=2 max_rd_atom=5 devices=20");
	no_qp(&a, (struct ibv_qp_cap){ 100, 100, 3, 3, 17 });
	no_qp(&a, (struct ibv_qp_cap){ 101, 100, 3, 3, 16 });
	no_qp(&a, (struct ibv_qp_cap){ 100, 100, 3, 4, 16 });
	CHECK(!ibv_reg_mr(a.pd, a.buf, 4096, 0) && errno == ENOMEM);
	CHECK(!ibv_query_device(a.id->verbs, &d) && d.max_qp_wr == 100 && d.max_sge == 3);
	CHECK(d.max_mr == 2 && d.max_qp_rd_atom == 5);
	CHECK((list = ibv_get_device_list(&n)) && n == 20);
	ibv_free_device_list(list);
	tell("set max_inline=128 max_wr=16384 max_sge=30 max_mr=65536 max_rd_atom=16 devices=1");
	lock_limit(&a);
	close_pair(&a, &b);
}

static void script(void)
{
	struct want w = PLAIN;
	struct end a, b;
	char path[256];
	FILE *f;

	connect_pair(&a, &b, &w);
	snprintf(path, sizeof path, "%s/script", getenv("SIMNIC_DIR"));
	CHECK(f = fopen(path, "w"));
	fputs("# milliseconds from now, and what\n20 down a\n60.5 up a\n", f);
	CHECK(!fclose(f));
	tell("script %s", path);
	expect_async(&a, IBV_EVENT_PORT_ERR);
	expect_async(&a, IBV_EVENT_PORT_ACTIVE);
	close_pair(&a, &b);
}

static void cq_overrun(void)
{
	struct want w = PLAIN;
	struct ibv_wc wc;
	struct end a, b;
	int r = 0;

	w.cqe = 4;
	connect_pair(&a, &b, &w);
	for (unsigned i = 0; i < 5 && !r; i++)
		r = post(&a, IBV_WR_RDMA_WRITE, i, 0, 1, &b, 0, IBV_SEND_SIGNALED);
	expect_async(&a, IBV_EVENT_CQ_ERR);
	for (r = 0; r < 4 && ibv_poll_cq(a.cq, 1, &wc) == 1; r++)
		CHECK(wc.wr_id == (uint64_t)r);
	CHECK(r == 4 && ibv_poll_cq(a.cq, 1, &wc) < 0);
	close_pair(&a, &b);
}

static void slow_net(void)
{
	struct end a, b;

	pair_quick(&a, &b);
	tell("set mbps=100 buffer=65536 pause=1");
	traffic(&a, &b, 3);
	tell("set buffer=65536 pause=0");
	traffic(&a, &b, 3);
	tell("set buffer=0 pause=1 mbps=12500 jitter_ns=20000 late_ack_ns=100000");
	traffic(&a, &b, 3);
	tell("set jitter_ns=0 late_ack_ns=0");
	close_pair(&a, &b);
}

const struct test fault_tests[] = {
	{ "drop_each", drop_each },
	{ "loss", loss },
	{ "read_lost", read_lost },
	{ "reads_lost", reads_lost },
	{ "atomic_once", atomic_once },
	{ "port_down", port_down },
	{ "port_blinks", port_blinks },
	{ "removal", removal },
	{ "stall", stall },
	{ "qp_fatal", qp_fatal },
	{ "pinned_private", pinned_private },
	{ "pinned_shared", pinned_shared },
	{ "limits", limits },
	{ "script", script },
	{ "cq_overrun", cq_overrun },
	{ "slow_net", slow_net },
	{ NULL, NULL },
};
