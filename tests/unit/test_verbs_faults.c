/*
 * test_verbs_faults.c - every call of libibverbs and librdmacm that the library makes fails: its
 * first use, the second and so on until a run has fewer, and all from each of these on. Two ends
 * in one process make a link (cm.c, rc.c) on fake devices and a fake librdmacm, talk, sleep and
 * wake, and hang up. Afterwards every byte was right, and either all have come or one end knows
 * that the queue pair is dead, and then the senders still hold what was not consumed; and
 * nothing is left open: ids, events, queues, registered memory, descriptors, mappings.
 *
 * LINK: rdma/verbs/rc_wait.c rdma/verbs/rc_stuck.c rdma/verbs/rc_pull.c rdma/verbs/rc_cost.c
 * LINK: rdma/shm/segment.c rdma/verbs/rc.c rdma/verbs/rc_mem.c rdma/verbs/cm.c
 * LINK: rdma/verbs/child.c shim/base/procfs.c
 * TIMEOUT: 60
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "../../rdma/verbs/cm.h"
#include "fake_rdmacm.h"

struct verbs verbs;
int verbs_load(void) { return 0; }

#define TOKEN ((const uint8_t *)"sixteen bytes 16")
#define SLOTS 4
#define SIZE  8192

/* ---- a librdmacm whose events come by themselves */

static struct rdma_cm_id *listener, *caller, *callee;
static uint8_t private_data[64];

static void happens(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status)
{
	if (id)
		queue_event(id, type, status, private_data, sizeof private_data);
}

static int destroy_id(struct rdma_cm_id *id)
{
	listener = listener == id ? NULL : listener;
	caller = caller == id ? NULL : caller;
	callee = callee == id ? NULL : callee;
	fake_free_id(id);
	return 0;
}

static int listen_id(struct rdma_cm_id *id, int n) { (void)n; listener = id; return 0; }
static int set_option(struct rdma_cm_id *id, int level, int name, void *v, size_t n)
{
	(void)name, (void)v, (void)n;
	if (level == RDMA_OPTION_IB)
		happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms)
{
	(void)from, (void)to, (void)ms;
	id->verbs = &fake[0].ctx;
	happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, int ms)
{
	static struct ibv_sa_path_rec path;

	(void)ms;
	id->route.path_rec = &path;
	id->route.num_paths = 1;
	happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

static int connect_id(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	caller = id;
	memcpy(private_data, p->private_data, p->private_data_len);
	if (!listener) {
		happens(id, RDMA_CM_EVENT_UNREACHABLE, -EHOSTUNREACH);
		return 0;
	}
	create_id(&fake_events, &callee, listener->context, RDMA_PS_TCP);
	callee->verbs = &fake[1].ctx;
	happens(callee, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	return 0;
}

static int accept_id(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)p;
	happens(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	happens(caller, RDMA_CM_EVENT_ESTABLISHED, 0);
	return 0;
}

static int reject_id(struct rdma_cm_id *id, const void *d, uint8_t n)
{
	(void)id, (void)d, (void)n;
	happens(caller, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
	return 0;
}
static int disconnect_id(struct rdma_cm_id *id)
{
	happens(id == caller ? callee : caller, RDMA_CM_EVENT_DISCONNECTED, 0);
	return 0;
}

/* ---- the table again, with calls that fail. What ends something ends it all the same. */

enum how { GIVES_NULL, GIVES_MINUS_1, GIVES_ERRNO, ENDS, CANNOT_FAIL };

#define ROWS(ROW) \
	ROW(ibv_alloc_pd, GIVES_NULL) ROW(ibv_dealloc_pd, ENDS) ROW(ibv_reg_mr, GIVES_NULL) \
		ROW(ibv_dereg_mr, ENDS) \
	ROW(ibv_create_comp_channel, GIVES_NULL) ROW(ibv_destroy_comp_channel, ENDS) \
		ROW(ibv_create_cq, GIVES_NULL) \
	ROW(ibv_destroy_cq, ENDS) ROW(ibv_get_cq_event, GIVES_MINUS_1) ROW(ibv_modify_qp, \
		GIVES_ERRNO) \
	ROW(rdma_create_id, GIVES_MINUS_1) ROW(rdma_destroy_id, ENDS) ROW(rdma_bind_addr, \
		GIVES_MINUS_1) \
	ROW(rdma_set_option, GIVES_MINUS_1) ROW(rdma_listen, GIVES_MINUS_1) ROW(rdma_resolve_addr, \
		GIVES_MINUS_1) \
	ROW(rdma_resolve_route, GIVES_MINUS_1) ROW(rdma_create_qp, GIVES_MINUS_1) \
		ROW(rdma_connect, GIVES_MINUS_1) \
	ROW(rdma_accept, GIVES_MINUS_1) ROW(rdma_reject, GIVES_MINUS_1) ROW(rdma_disconnect, \
		GIVES_MINUS_1) \
	ROW(rdma_get_cm_event, GIVES_MINUS_1) ROW(rdma_ack_cm_event, ENDS) ROW(ibv_query_port, \
		GIVES_ERRNO) \
	ROW(ibv_query_device, GIVES_ERRNO) ROW(poll_cq, GIVES_MINUS_1) ROW(req_notify_cq, \
		GIVES_ERRNO) ROW(post_send, GIVES_ERRNO) ROW(post_recv, GIVES_ERRNO)
/* Not in the scenario: */
#define OTHERS(ROW) \
	ROW(rdma_create_event_channel, GIVES_NULL) /* once in a process: the test of its own */ \
	ROW(rdma_destroy_event_channel, CANNOT_FAIL) ROW(rdma_destroy_qp, CANNOT_FAIL) \
		ROW(ibv_ack_cq_events, CANNOT_FAIL) \
	ROW(ibv_get_device_name, CANNOT_FAIL) ROW(rdma_get_src_port, CANNOT_FAIL) \
		ROW(rdma_event_str, CANNOT_FAIL) \
	ROW(ibv_reg_dmabuf_mr, GIVES_NULL) /* of device memory only; \
	then it is ibv_reg_mr() */ ROW(ibv_query_qp, CANNOT_FAIL) /* for the log */

#define ROW(name, how) F_##name,
enum { ROWS(ROW) CALLS, FIRST_OTHER = CALLS - 1, OTHERS(ROW) ALL_CALLS };
#undef ROW
/* Each call of the table has a row. */
_Static_assert(ALL_CALLS == sizeof(struct verbs) / sizeof(void *),
	       "a row for each call in rdma/verbs/verbs.h");

#define ROW(name, how) #name,
static const char *const names[] = { ROWS(ROW) };
#undef ROW

static struct verbs right;
static int fault;
static unsigned from, to, seen;

/* Parameters are integers and pointers, in at most six registers. */
typedef uintptr_t any_call(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static bool fails(int call) { return call == fault && ++seen >= from && (!to || seen <= to); }

static uintptr_t given(enum how how)
{
	errno = EIO;
	return how == GIVES_NULL ? 0 : how == GIVES_MINUS_1 ? (uintptr_t)-1 : EIO;
}

#define ROW(name, how) \
	static uintptr_t faulty_##name(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, \
		uintptr_t e, uintptr_t f) \
	{ \
		bool bad = fails(F_##name); \
		uintptr_t r; \
		\
		if (bad && how != ENDS) \
			return given(how); \
		r = ((any_call *)(void *)right.name)(a, b, c, d, e, f); \
		return bad ? given(how) : r; \
	}
ROWS(ROW)
#undef ROW

static void table(int call, unsigned first, unsigned last)
{
	fake_cm_init();
	right = verbs;
#define ROW(name, how) verbs.name = (void *)faulty_##name;
	ROWS(ROW)
#undef ROW
	fault = call;
	from = first;
	to = last;
	seen = 0;
}

/* ---- two ends */

static struct end { struct segment a; struct rc *rc; struct cm cm; bool watched; int died; } end[2];
/* [1]: by end s */
static struct dir { struct ring_tx tx; struct ring_rx rx; bool on; } dir[SLOTS][2];

static void ring(void *arg, uint64_t bells) { (void)arg, (void)bells; }
static void died(void *arg) { ((struct end *)arg)->died++; }
static void busy(void *arg) { (void)arg; }
static void watch(void *arg) { ((struct end *)arg)->watched = true; }
static void changed(struct cm *c) { (void)c; }

static bool dead(void) { return rc_dead(end[0].rc) || rc_dead(end[1].rc); }
static uint8_t pattern(uint32_t slot, unsigned s, uint64_t off)
{
	return (uint8_t)(off * 31 + (off >> 8) + slot * 7 + s);
}

static bool connected(void)
{
	static const struct sockaddr_in here = { .sin_family = AF_INET };

	if (cm_listen(&end[1].cm, end[1].rc, (struct sockaddr *)&here, TOKEN) < 0 ||
	    cm_connect(&end[0].cm, end[0].rc, NULL, (struct sockaddr *)&here, TOKEN))
		return false;
	for (int i = 0; i < 20; i++)	/* the channel stays readable until all is taken */
		cm_events(changed);
	return end[0].cm.state == CM_UP && end[1].cm.state == CM_UP;
}

static void bind_slot(uint32_t i)
{
	uint64_t addr[2];
	uint32_t key[2];
	int bad = 0;

	for (int s = 0; s < 2; s++) {
		segment_slot_reset(&end[s].a, i);
		bad |= rc_slot_bind(end[s].rc, i, 1, &addr[s], &key[s]);
	}
	if (bad)
		return;		/* the stream stays on TCP */
	for (int s = 0; s < 2; s++)
		rc_slot_peer(end[s].rc, i, addr[!s], key[!s]);
	for (int s = 0; s < 2; s++) {
		segment_ring_tx(&end[s].a, i, &dir[i][s].tx);
		segment_ring_rx(&end[!s].a, i, &dir[i][s].rx);
		ring_tx_open(&dir[i][s].tx, 1, 100 * i);
		ring_rx_open(&dir[i][s].rx, 100 * i);
		dir[i][s].on = true;
	}
}

static void put(uint32_t slot, unsigned s, uint64_t n)
{
	struct dir *d = &dir[slot][s];
	uint8_t buf[SIZE];

	if (!d->on)
		return;
	ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
	if (n > ring_tx_room(&d->tx))
		n = ring_tx_room(&d->tx);
	for (uint64_t i = 0; i < n; i++)
		buf[i] = pattern(slot, s, d->tx.wr + i);
	ring_tx_copy(&d->tx, 0, buf, n);
	ring_tx_publish(&d->tx, n);
	rc_publish(end[s].rc, slot);
}

static void get(uint32_t slot, unsigned s)
{
	struct dir *d = &dir[slot][s];
	uint8_t buf[SIZE];
	uint64_t n;

	if (!d->on)
		return;
	ck_assert_int_eq(ring_rx_refresh(&d->rx), 0);
	n = ring_rx_avail(&d->rx);
	ring_rx_copy(&d->rx, 0, buf, n);
	for (uint64_t i = 0; i < n; i++)
		if (buf[i] != pattern(slot, s, d->rx.rd + i))
			ck_abort_msg("%s %u..%u: slot %u from end %u: byte %lu is wrong",
				     names[fault], from, to, slot, s, d->rx.rd + i);
	ring_rx_consume(&d->rx, n);
	if (n)
		rc_credit(end[!s].rc, slot);
}

/* What a background thread does that sleeps until the channel is readable, which it is as long
 * as there are events. */
static void background(unsigned s)
{
	for (int i = 0; i < 50 && fake[s].events && end[s].watched; i++) {
		end[s].watched = false;
		rc_unwatched(end[s].rc);
		rc_event(end[s].rc);
		rc_poll(end[s].rc);
		rc_arm(end[s].rc);
		rc_poll(end[s].rc);
	}
}

static void wires(void)
{
	for (int i = 0; i < 8; i++) {
		fake_run();
		background(0);
		background(1);
	}
}

/* An id that came with an event which nobody took is librdmacm's still. */
static void forget_events(void)
{
	for (; queue_head != queue_tail; queue_head++) {
		struct rdma_cm_event *e = &queue[queue_head % EVENTS];

		if (e->id && e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			destroy_id(e->id);
	}
}

/* Bytes that have not come though everybody has looked. */
static uint64_t missing(void)
{
	uint64_t n = 0;

	for (int k = 0; k < 12; k++) {
		wires();
		for (unsigned s = 0; s < 2; s++)
			rc_poll(end[s].rc);
		for (uint32_t i = 0; i < SLOTS; i++)
			for (unsigned s = 0; s < 2; s++)
				get(i, s);
	}
	for (uint32_t i = 0; i < SLOTS; i++)
		for (unsigned s = 0; s < 2; s++)
			n += dir[i][s].tx.wr - dir[i][s].rx.rd;
	return n;
}

static void talk(void)
{
	uint64_t x = 88172645463325252ull;

	for (int k = 0; k < 120 && !dead(); k++) {
		uint32_t slot;
		unsigned s;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		slot = (uint32_t)(x >> 8) % SLOTS;
		s = x & 1;
		if (k % 8 == 0) {	/* the reader sleeps: what comes now must wake it */
			missing();
			rc_arm(end[!s].rc);
			rc_poll(end[!s].rc);
			put(slot, s, 40);
			wires();
			get(slot, s);
			if (!dead() && dir[slot][s].tx.wr != dir[slot][s].rx.rd)
				ck_abort_msg("%s %u..%u: the sleeper was not woken", names[fault],
					     from, to);
			continue;
		}
		put(slot, s, x >> 20 & 1 ? (x >> 24) % SIZE : (x >> 24) % 200);
		if (k % 3 == 0)
			fake_run();
		if (k % 5 == 0)
			get(slot, !s);
	}
}

/* With a dead queue pair the rest goes by TCP, out of the sender's ring. */
static void held(void)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		for (unsigned s = 0; s < 2; s++) {
			struct dir *d = &dir[i][s];
			const uint8_t *p;
			size_t n;

			for (uint64_t at = d->rx.rd; at < d->tx.wr; at += n) {
				p = ring_tx_held(&d->tx, at, &n);
				ck_assert_uint_gt(n, 0);
				for (uint64_t b = 0; b < n; b++)
					ck_assert_uint_eq(p[b], pattern(i, s, at + b));
			}
		}
}

static int count(const char *dirname)
{
	DIR *d = opendir(dirname);
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int mappings(void)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[256];
	int kb = 0, k;

	while (fgets(line, sizeof line, f))
		kb += !strstr(line, "[heap]") && sscanf(line, "Size: %d kB", &k) == 1 ? k : 0;
	fclose(f);
	return kb;
}

enum outcome { ALL_CAME, PATH_DEAD, NO_LINK };

static enum outcome run(int call, unsigned first, unsigned last)
{
	enum outcome o = NO_LINK;
	uint64_t lost;

	table(call, first, last);
	memset(dir, 0, sizeof dir);
	cm_probe((struct sockaddr *)&(struct sockaddr_in){ .sin_family = AF_INET });
	for (int s = 0; s < 2; s++) {
		struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
				     .arg = &end[s] };
		int fd;

		/* A route is given, or asked for. */
		end[s] = (struct end){ .cm = { .opt = { 7, 9, 1, call == F_rdma_resolve_route ? 0
							: 512 } } };
		ck_assert_int_eq(segment_create(&end[s].a, SLOTS, SIZE, 0, &fd), 0);
		close(fd);
		end[s].a.me = (uint8_t)s;
		end[s].a.permanent = true;
		end[s].rc = rc_new(&end[s].a, &c);
		ck_assert_ptr_nonnull(end[s].rc);
	}
	if (connected()) {
		for (uint32_t i = 0; i < SLOTS; i++)
			bind_slot(i);
		talk();
		lost = missing();
		if (lost && !dead())
			ck_abort_msg("%s %u..%u: %lu bytes have not come, and nobody knows",
				     names[call], first, last, lost);
		o = dead() ? PATH_DEAD : ALL_CAME;
		for (int s = 0; s < 2; s++) {
			ck_assert_int_eq(end[s].died, rc_dead(end[s].rc));
			rc_kill(end[s].rc);	/* one end tells the other */
		}
		held();
	}
	for (int s = 0; s < 2; s++) {
		cm_hangup(&end[s].cm);
		rc_close(end[s].rc);
		cm_close(&end[s].cm);
		segment_unmap(&end[s].a);
	}
	forget_events();
	return o;
}

static void counted_run(int call, unsigned first, unsigned last, unsigned tally[3])
{
	int had_ids = ids, fds = count("/proc/self/fd"), kb = mappings();

	tally[run(call, first, last)]++;
	if (ids != had_ids || unacked || fake_made || count("/proc/self/fd") != fds ||
	    mappings() != kb)
		ck_abort_msg("%s %u..%u leaves %d ids, %d events, %d of the device's things, %d "
			     "descriptors, %d kB",
			     names[call], first, last, ids - had_ids, unacked, fake_made,
			     count("/proc/self/fd") - fds, mappings() - kb);
	for (int s = 0; s < 2; s++)
		for (unsigned i = 0; i < fake[s].mrs; i++)
			ck_assert(!fake[s].mr[i].live);
}

static void start(void)
{
	verbs.rdma_create_event_channel = create_channel;
	ck_assert_int_ge(cm_start(), 0);
	unsigned tally[3] = { 0 };

	tally[run(-1, 0, 0)]++;		/* the watch on the device stays */
	counted_run(-1, 0, 0, tally);
	ck_assert_uint_eq(tally[ALL_CAME], 2);
}

START_TEST(each)
{
	unsigned tally[3] = { 0 }, n = 0, uses = 0;

	start();
	do {			/* until the fault is not reached any more */
		uses = n;
		n = n < 40 ? n + 1 : n * 9 / 8;
		counted_run(_i, n, 0, tally);
		counted_run(_i, n, n, tally);
	} while (seen >= n);
	if (getenv("VERBOSE"))
		fprintf(stderr, "%s: %u uses; all came %u, path dead %u, no link %u\n", names[_i],
			uses, tally[0], tally[1], tally[2]);
	if (_i != F_rdma_reject)	/* nobody is sent away here */
		ck_assert_uint_gt(uses, 0);
}
END_TEST

static struct rdma_event_channel *no_channel(void) { errno = EMFILE; return NULL; }

START_TEST(channel)
{
	verbs.rdma_create_event_channel = no_channel;
	ck_assert_int_eq(cm_start(), -ENODEV);
	verbs.rdma_create_event_channel = create_channel;
	ck_assert_int_ge(cm_start(), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_faults");
	TCase *t = tcase_create("verbs_faults");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, each, 0, CALLS);
	tcase_add_test(t, channel);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
