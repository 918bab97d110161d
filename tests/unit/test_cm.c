/*
 * test_cm.c - how a link's queue pair is made, on a fake librdmacm: the test says which event
 * comes next. The order of steps on both sides, the policy's options, whom the listener lets in
 * (the token: right, garbled, short, missing, a second caller), what fails at each step, and
 * that nothing is left open.
 *
 * LINK: rdma/verbs/rc_wait.c rdma/verbs/rc_stuck.c rdma/verbs/rc_pull.c rdma/verbs/rc_cost.c
 * LINK: rdma/shm/segment.c rdma/verbs/rc.c rdma/verbs/rc_mem.c rdma/verbs/cm.c
 * LINK: rdma/verbs/child.c shim/base/procfs.c
 * TIMEOUT: 60
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../rdma/verbs/cm.h"
#include "fake_rdmacm.h"

struct verbs verbs;
int verbs_load(void) { return 0; }

#define TOKEN ((const uint8_t *)"sixteen bytes 16")

static int rejects, accepts, connects, options[4], fail_option;
static struct ibv_path_data given;
static int routes, asked_routes;
static struct rdma_conn_param conn;
static uint8_t conn_data[64];

static int destroy_id(struct rdma_cm_id *id)
{
	fake_free_id(id);
	return 0;
}

/* A port that TCP has, as an iWARP device finds it: so often, with this errno. */
static int taken, taken_errno;

static int draw_port(void)
{
	errno = taken_errno;
	return taken-- > 0 ? -1 : 0;
}

static int listen_id(struct rdma_cm_id *id, int n) { (void)id, (void)n; return draw_port(); }
static struct ibv_sa_path_rec told_route = { .sl = 5, .traffic_class = 106 };

static int resolve_route(struct rdma_cm_id *id, int ms)
{
	(void)ms;
	asked_routes++;
	id->route.path_rec = &told_route;
	id->route.num_paths = 1;
	return 0;
}

static uint16_t drawn_from;	/* the port asked for */

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms)
{
	(void)ms;
	memcpy(&id->route.addr.dst_storage, to, sizeof(struct sockaddr_in));
	drawn_from = from ? ((struct sockaddr_in *)from)->sin_port : 0;
	id->route.addr.src_sin.sin_port = htobe16(40000);
	id->verbs = &fake[0].ctx;
	return 0;
}

static int set_option(struct rdma_cm_id *id, int level, int name, void *v, size_t n)
{
	if (level == RDMA_OPTION_IB) {
		ck_assert_int_eq(name, RDMA_OPTION_IB_PATH);
		ck_assert_uint_eq(n, sizeof given);
		memcpy(&given, v, n);
		routes++;
		return fail_option;
	}
	(void)id;
	ck_assert_int_eq(level, RDMA_OPTION_ID);
	ck_assert_uint_eq(n, 1);
	options[name] = *(uint8_t *)v;
	errno = ENOSYS;
	return fail_option;
}

static void keep(const struct rdma_conn_param *p)
{
	conn = *p;
	memcpy(conn_data, p->private_data, p->private_data_len);
}

static int connect_id(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)id;
	keep(p);
	connects++;
	return draw_port();
}
static int accept_id(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)id;
	keep(p);
	accepts++;
	return 0;
}
static int reject_id(struct rdma_cm_id *id, const void *d, uint8_t n)
{
	(void)id, (void)d, (void)n;
	rejects++;
	return 0;
}
static int disconnect_id(struct rdma_cm_id *id) { (void)id; return 0; }

static struct segment segment;
static struct rc *rc;
static struct cm cm;
static int changes;

static void changed(struct cm *c) { ck_assert_ptr_eq(c, &cm); changes++; }

static void happens(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
		    const void *data, unsigned n)
{
	queue_event(id, type, status, data, n);
	cm_events(changed);
	ck_assert_uint_eq(queue_head, queue_tail);
	ck_assert_int_eq(unacked, 0);
}

static void ring(void *arg, uint64_t bells) { (void)arg, (void)bells; }
static void nothing(void *arg) { (void)arg; }

static const struct sockaddr_in here = { .sin_family = AF_INET };

static void setup(void)
{
	struct rc_conf c = { .ring = ring, .died = nothing, .busy = nothing, .watch = nothing };
	int fd;

	fake_cm_init();
	ck_assert_int_ge(cm_start(), 0);
	ck_assert_int_eq(segment_create(&segment, 4, 4096, 0, &fd), 0);
	close(fd);
	rc = rc_new(&segment, &c);
	cm = (struct cm){ .opt = { .retries = 7 } };
	taken = 0;
	taken_errno = EADDRINUSE;
}

static void teardown(void)
{
	cm_hangup(&cm);
	rc_close(rc);
	cm_close(&cm);
	segment_unmap(&segment);
	ck_assert_int_eq(fake_made, 0);
	if (ids) {	/* it watches the device */
		fake_bound->async_fd = fake_bound->cmd_fd = dup(0);
		happens(fake_last_id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	}
	ck_assert_int_eq(ids, 0);
	ck_assert_ptr_null(cm.id);
	ck_assert_ptr_null(cm.listen);
}

static struct rdma_cm_id *connecting(void)
{
	fake_bound = &fake[0].ctx;
	ck_assert_int_eq(cm_connect(&cm, rc, NULL, (struct sockaddr *)&here, TOKEN), 0);
	ck_assert_int_eq(cm.state, CM_ADDR);
	return cm.id;
}

START_TEST(connects_in_steps)
{
	struct rdma_cm_id *id;

	cm.opt = (struct cm_options){ 3, 17, 104, 0 };
	id = connecting();
	happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_ROUTE);
	happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_CONNECT);
	ck_assert_ptr_nonnull(id->qp);
	ck_assert_int_eq(connects, 1);
	ck_assert_uint_eq(conn.private_data_len, CM_TOKEN);
	ck_assert_mem_eq(conn_data, TOKEN, CM_TOKEN);
	ck_assert_uint_eq(conn.retry_count, 3);
	ck_assert_uint_eq(conn.rnr_retry_count, 7);
	ck_assert_int_eq(options[RDMA_OPTION_ID_TOS], 104);
	ck_assert_int_eq(options[RDMA_OPTION_ID_ACK_TIMEOUT], 17);
	happens(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_UP);
	ck_assert_int_eq(changes, 3);
	happens(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_DOWN);
	ck_assert_int_eq(cm.error, 0);		/* it had been up */
}
END_TEST

/* What rdmastat shows: the peer's number once the two are connected, and GIDs only where there
 * are any. */
START_TEST(the_way)
{
	static const struct {
		uint8_t layer;
		enum ibv_transport_type transport;
		bool iwarp, ethernet;
	} kinds[] = {
		{ IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, false, true },
		{ IBV_LINK_LAYER_INFINIBAND, IBV_TRANSPORT_IB, false, false },
		{ IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IWARP, true, true },
	};
	static const struct cm_way none;
	struct rdma_cm_id *id;
	struct cm_way w;

	cm_way(&cm, &w);
	ck_assert_mem_eq(&w, &none, sizeof w);
	fake_layer = kinds[_i].layer;
	fake[0].dev.transport_type = kinds[_i].transport;
	id = connecting();
	id->port_num = 2;
	id->route.addr.src_sin = (struct sockaddr_in){ .sin_family = AF_INET,
						       .sin_port = htobe16(1000),
							       .sin_addr.s_addr = 1 };
	id->route.addr.dst_sin = (struct sockaddr_in){ .sin_family = AF_INET,
						       .sin_port = htobe16(2000),
							       .sin_addr.s_addr = 2 };
	id->route.addr.addr.ibaddr.sgid.raw[15] = 3;
	id->route.addr.addr.ibaddr.dgid.raw[15] = 4;
	happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	cm_way(&cm, &w);
	ck_assert_uint_eq(w.qpn, 0);
	happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	cm_way(&cm, &w);
	ck_assert_uint_eq(w.qpn, 0x111111);
	ck_assert_uint_eq(w.peer_qpn, 0);
	happens(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	cm_way(&cm, &w);
	ck_assert_int_eq(w.iwarp, kinds[_i].iwarp);
	ck_assert_int_eq(w.ethernet, kinds[_i].ethernet);
	ck_assert_uint_eq(w.port, 2);
	ck_assert_uint_eq(w.peer_qpn, w.iwarp ? 0 : 0x222222);
	ck_assert_uint_eq(w.sgid.raw[15], w.iwarp ? 0 : 3);
	ck_assert_uint_eq(w.dgid.raw[15], w.iwarp ? 0 : 4);
	ck_assert_uint_eq(((struct sockaddr_in *)&w.from)->sin_addr.s_addr, 1);
	ck_assert_uint_eq(((struct sockaddr_in *)&w.to)->sin_port, htobe16(2000));
}
END_TEST

/* What is not set is not asked for, and a device without the options is as good as any. */
START_TEST(without_options)
{
	options[RDMA_OPTION_ID_TOS] = options[RDMA_OPTION_ID_ACK_TIMEOUT] = -1;
	fail_option = -1;
	connecting();
	ck_assert_int_eq(options[RDMA_OPTION_ID_TOS], -1);
	ck_assert_int_eq(options[RDMA_OPTION_ID_ACK_TIMEOUT], -1);
	rc_close(rc);
	cm_close(&cm);
	rc = rc_new(&segment, &(struct rc_conf){ .ring = ring, .died = nothing, .busy = nothing,
						 .watch = nothing });
	cm.opt = (struct cm_options){ 7, 1, 1, 0 };
	connecting();
	ck_assert_int_eq(options[RDMA_OPTION_ID_TOS], 1);
}
END_TEST

/* A smaller path MTU than the port's comes with a route that is given; else, or where that
 * cannot be, the route is asked for. */
static const struct {
	uint16_t mtu;
	uint8_t layer;
	enum ibv_transport_type transport;
	int fail, want;
} mtus[] = {
	{ 0, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, 0, 0 },
	{ 128, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, 0, IBV_MTU_256 },
	{ 256, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, 0, IBV_MTU_256 },
	{ 512, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, 0, IBV_MTU_512 },
	{ 1024, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, 0, 0 },
	{ 4096, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, 0, 0 },
	{ 65535, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, 0, 0 },
	{ 512, IBV_LINK_LAYER_INFINIBAND, IBV_TRANSPORT_IB, 0, 0 },
	{ 512, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IWARP, 0, 0 },
	{ 512, IBV_LINK_LAYER_ETHERNET, IBV_TRANSPORT_IB, -1, IBV_MTU_512 },
};

START_TEST(path_mtu)
{
	bool tried = mtus[_i].want, gave = tried && !mtus[_i].fail;
	struct rdma_cm_id *id;

	fake_layer = mtus[_i].layer;
	fake[0].dev.transport_type = mtus[_i].transport;
	fail_option = mtus[_i].fail;
	cm.opt = (struct cm_options){ .ack_timeout = 12, .tos = 104, .mtu = mtus[_i].mtu };
	id = connecting();
	if (tried) {	/* a first one is told what the host gives to such traffic */
		happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
		ck_assert_int_eq(routes, 0);
		ck_assert_int_eq(asked_routes, 1);
		happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
		ck_assert_int_eq(cm.state, CM_ADDR);
		ck_assert_int_eq(connects, 0);
		ck_assert_ptr_ne(cm.id, id);
		id = cm.id;
	}
	for (unsigned i = 0; i < 16; i++) {
		id->route.addr.addr.ibaddr.sgid.raw[i] = (uint8_t)i;
		id->route.addr.addr.ibaddr.dgid.raw[i] = (uint8_t)(16 + i);
	}
	happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_ROUTE);
	ck_assert_int_eq(routes, tried);
	ck_assert_int_eq(asked_routes, tried + !gave);
	if (gave) {
		ck_assert_uint_eq(given.path.mtu, 0x80 | mtus[_i].want);
		ck_assert_uint_eq(given.path.tclass, 106);
		ck_assert_uint_eq(be16toh(given.path.qosclass_sl), 5);
		ck_assert_uint_eq(given.path.packetlifetime, 0x80 | 11);
		ck_assert_uint_eq(given.path.sgid.raw[15], 15);
		ck_assert_uint_eq(given.path.dgid.raw[15], 31);
	}
	happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_CONNECT);
}
END_TEST

/* At each step: the event that says no. */
static const struct { int steps; enum rdma_cm_event_type type; int status, want; } refusals[] = {
	{ 0, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, -EHOSTUNREACH },
	{ 1, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT, -ETIMEDOUT },
	{ 2, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, -ETIMEDOUT },
	/* a reason of the protocol's, no errno */
	{ 2, RDMA_CM_EVENT_REJECTED, 28, -ECONNREFUSED },
	{ 2, RDMA_CM_EVENT_CONNECT_ERROR, 0, -ECONNREFUSED },
	{ 0, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, -ECONNREFUSED },
	{ 2, RDMA_CM_EVENT_ADDR_CHANGE, 0, -ECONNREFUSED },
};

START_TEST(refused)
{
	static const enum rdma_cm_event_type steps[] = { RDMA_CM_EVENT_ADDR_RESOLVED,
							 RDMA_CM_EVENT_ROUTE_RESOLVED };
	struct rdma_cm_id *id = connecting();

	for (int i = 0; i < refusals[_i].steps; i++)
		happens(id, steps[i], 0, NULL, 0);
	happens(id, refusals[_i].type, refusals[_i].status, NULL, 0);
	ck_assert_int_eq(cm.state, CM_DOWN);
	ck_assert_int_eq(cm.error, refusals[_i].want);
	ck_assert_int_eq(changes, refusals[_i].steps + 1);
}
END_TEST

/* The device has no queue pair for us, on either side. */
START_TEST(no_queue_pair)
{
	struct rdma_cm_id *id = connecting();

	fake_fail = 1;
	happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_DOWN);
	ck_assert_int_eq(cm.error, -ENOMEM);
	ck_assert_int_eq(connects, 0);
}
END_TEST

/* With iWARP the port that was drawn may be one of TCP's: others are tried, some, and for
 * nothing else. */
static const struct { int taken, e, connects, error; } ports[] = {
	{ 1, EADDRINUSE, 2, 0 },
	{ 15, EADDRINUSE, 16, 0 },
	{ 100, EADDRINUSE, 16, -EADDRINUSE },
	{ 1, ECONNREFUSED, 1, -ECONNREFUSED },
};

START_TEST(port_taken)
{
	const struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htobe16(4712) };
	int steps = 0;

	taken = ports[_i].taken;
	taken_errno = ports[_i].e;
	fake_bound = &fake[0].ctx;
	ck_assert_int_eq(cm_connect(&cm, rc, NULL, (struct sockaddr *)&there, TOKEN), 0);
	for (; cm.state != CM_CONNECT && cm.state != CM_DOWN; steps++) {
		ck_assert_int_lt(steps, 100);
		ck_assert_int_eq(cm.state, steps % 2 ? CM_ROUTE : CM_ADDR);
		happens(cm.id,
			steps % 2 ? RDMA_CM_EVENT_ROUTE_RESOLVED : RDMA_CM_EVENT_ADDR_RESOLVED, 0,
			NULL, 0);
		ck_assert_uint_eq(cm.id->route.addr.dst_sin.sin_port, there.sin_port);
		ck_assert_uint_eq(drawn_from, 0);
	}
	ck_assert_int_eq(connects, ports[_i].connects);
	ck_assert_int_eq(cm.error, ports[_i].error);
	ck_assert_int_eq(cm.state, ports[_i].error ? CM_DOWN : CM_CONNECT);
	ck_assert_int_eq(rc_dead(rc), false);
	ck_assert_mem_eq(conn_data, TOKEN, CM_TOKEN);
}
END_TEST

START_TEST(port_taken_to_listen)
{
	struct rdma_cm_id *watch;

	taken = ports[_i].taken;
	taken_errno = ports[_i].e;
	ck_assert_int_eq(cm_probe((struct sockaddr *)&here), 0);
	watch = fake_last_id;
	ck_assert_int_eq(cm_listen(&cm, rc, (struct sockaddr *)&here, TOKEN),
			 ports[_i].error ? ports[_i].error : 4711);
	ck_assert_int_eq(cm.state, ports[_i].error ? CM_NONE : CM_LISTEN);
	fake_last_id = watch;
}
END_TEST

static void listening(void)
{
	ck_assert_int_eq(cm_listen(&cm, rc, (struct sockaddr *)&here, TOKEN), 4711);
	ck_assert_int_eq(cm.state, CM_LISTEN);
}

/* A caller of the listener; what came with it. Ids of refused callers are gone afterwards. */
static struct rdma_cm_id *caller(const void *data, unsigned n)
{
	struct rdma_cm_id *id;

	create_id(&fake_events, &id, cm.listen->context, RDMA_PS_TCP);
	id->verbs = &fake[1].ctx;
	happens(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, data, n);
	return id;
}

START_TEST(accepts_the_token)
{
	uint8_t padded[56] = { 0 };	/* a device may deliver more than was given to it */
	struct rdma_cm_id *id;
	int before;

	cm.opt = (struct cm_options){ 2, 9, 0, 0 };
	listening();
	memcpy(padded, TOKEN, CM_TOKEN);
	id = caller(padded, sizeof padded);
	ck_assert_ptr_eq(cm.id, id);
	ck_assert_int_eq(cm.state, CM_ACCEPT);
	ck_assert_int_eq(accepts, 1);
	ck_assert_int_eq(rejects, 0);
	ck_assert_uint_eq(conn.private_data_len, 0);
	ck_assert_uint_eq(conn.retry_count, 2);
	ck_assert_int_eq(options[RDMA_OPTION_ID_ACK_TIMEOUT], 9);
	before = ids;
	caller(TOKEN, CM_TOKEN);		/* once only */
	ck_assert_int_eq(rejects, 1);
	ck_assert_int_eq(ids, before);
	ck_assert_ptr_eq(cm.id, id);
	happens(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_UP);
	caller(TOKEN, CM_TOKEN);
	ck_assert_int_eq(rejects, 2);
	ck_assert_int_eq(cm.state, CM_UP);
}
END_TEST

static const struct { const char *data; unsigned n; } strangers[] = {
	{ NULL, 0 }, { NULL, CM_TOKEN }, { "sixteen bytes 16", 0 }, { "sixteen bytes 16", 15 },
		{ "sixteen bytes 17", 16 },
	{ "Sixteen bytes 16", 16 }, { "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16 },
		{ "ixteen bytes 16ssixteen bytes 16", 32 },
};

START_TEST(refuses_strangers)
{
	int before;

	listening();
	before = ids;
	caller(strangers[_i].data, strangers[_i].n);
	ck_assert_int_eq(rejects, 1);
	ck_assert_int_eq(accepts, 0);
	ck_assert_int_eq(ids, before);
	ck_assert_int_eq(changes, 0);
	ck_assert_int_eq(cm.state, CM_LISTEN);	/* whom it waits for may still come */
	caller(TOKEN, CM_TOKEN);
	ck_assert_int_eq(cm.state, CM_ACCEPT);
}
END_TEST

START_TEST(no_queue_pair_to_accept)
{
	listening();
	fake_fail = 3;
	caller(TOKEN, CM_TOKEN);
	ck_assert_int_eq(cm.state, CM_DOWN);
	ck_assert_int_eq(cm.error, -ENOMEM);
	ck_assert_int_eq(accepts, 0);
	ck_assert_int_eq(changes, 1);
}
END_TEST

/* Events of ids that are not the link's own change nothing. */
START_TEST(others_events)
{
	struct rdma_cm_id *id = connecting(), other = { .context = &cm, .channel = &fake_events };

	happens(&other, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	happens(&other, RDMA_CM_EVENT_REJECTED, 0, NULL, 0);
	other.context = NULL;
	happens(&other, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	happens(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_ADDR);
	ck_assert_int_eq(changes, 0);
}
END_TEST

#include "cm_devices.h"

int main(void)
{
	Suite *s = suite_create("cm");
	TCase *t = tcase_create("cm");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 40);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, connects_in_steps);
	tcase_add_test(t, without_options);
	tcase_add_loop_test(t, the_way, 0, 3);
	tcase_add_loop_test(t, path_mtu, 0, COUNT(mtus));
	tcase_add_loop_test(t, refused, 0, COUNT(refusals));
	tcase_add_test(t, no_queue_pair);
	tcase_add_loop_test(t, port_taken, 0, COUNT(ports));
	tcase_add_loop_test(t, port_taken_to_listen, 0, COUNT(ports));
	tcase_add_test(t, accepts_the_token);
	tcase_add_loop_test(t, refuses_strangers, 0, COUNT(strangers));
	tcase_add_test(t, no_queue_pair_to_accept);
	tcase_add_test(t, others_events);
	tcase_add_test(t, device_goes);
	tcase_add_test(t, device_goes_while_probed);
	tcase_add_test(t, many_devices);
	tcase_add_loop_test(t, reads, 0, COUNT(depths));
	tcase_add_loop_test(t, reads_asked_for, 0, COUNT(depths));
	tcase_add_loop_test(t, device_of_an_event, 0, 2);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
