/*
 * test_idle.c - whose memory is given back, and when (shim/conn/stream_idle.c), over a real
 * segment; and who gets some where it is short. The clock is the test's.
 */
#include <check.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../../shim/base/sys.h"
#include "../../shim/base/shim.h"
#include "../../shim/conn/stream_cut.h"
#include "../../shim/conn/stream_send.h"
#include "../../shim/conn/stream_slab.h"
#include "../../shim/link/path.h"

static uint64_t clock_us;
#define now_us() (clock_us)
#include "../../shim/conn/stream_idle.c"
#include "../../shim/conn/stream_again.c"
#include "../../shim/link/link_rest.c"
#include "../../rdma/shm/segment.c"
#include "suite.h"

#define IDLE 1000000
#define RING 65536
#define KB   1024
#define STREAMS 8

_Thread_local struct thread_signals thread_signals;
void critical_done(void) { }
void lock_slow(struct lock *l) { (void)l; ck_abort_msg("nobody else has a lock"); }

static struct policy_tunables tunables;
static struct stream streams[STREAMS], *s = streams;
struct link links[LINK_MAX];
_Atomic uint32_t links_top = 1;
#define the_link links[0]
const struct path path_tcp = { .kind = PATH_TCP };
const struct path path_shm = { .kind = PATH_SHM };
const struct path path_rdma = { .kind = PATH_RDMA, .far = true, .registered = true };
const struct path *const paths[PATH_KINDS] = { [PATH_TCP] = &path_tcp, &path_shm, &path_rdma };
static struct stat_row row;
static uint64_t has;		/* memory of the machine */
static uint64_t left = UINT64_MAX;	/* ... that nobody has */
static int memfd, kicks, fallbacks;
static bool goes;		/* ... to TCP, when it is told to */

_Atomic(const struct policy_tunables *) shim_tun = &tunables;
struct stream *stream_at(uint32_t i) { return &streams[i]; }
uint32_t streams_top(void) { return STREAMS; }
void loop_kick(void) { kicks++; }
bool loop_is_me(void) { return false; }
struct work *stream_work_of(const struct stream *s) { (void)s; return NULL; }
void loop_post(struct work *w) { (void)w; }
uint64_t memory_limit(void) { return has; }
uint64_t memory_left(void) { return left; }

void stream_tx_event(struct stream *st, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	(void)epoch, (void)off;
	ck_assert_int_eq(ev, CUT_EV_FALLBACK);
	fallbacks++;
	if (goes)
		st->snd.cut.state = CUT_TX_REWINDING;
}

static long held_kb(void)
{
	struct stat st;

	return fstat(memfd, &st) ? -1 : (long)st.st_blocks / 2;
}

/* A stream that is cut over both ways, and whose rings are all in memory. */
static void setup(void)
{
	struct segment *a = &the_link.segment;

	tunables.ring_idle = IDLE;
	the_link.path = &path_shm;
	tunables.ring_budget = 1 << 30;
	ck_assert_int_eq(segment_create(a, 16, RING, 4 * RING, &memfd), 0);
	atomic_store(&the_link.state, LINK_UP);
	ck_assert_int_eq(segment_slot_reset(a, 0), 0);
	segment_ring_tx(a, 0, &s->snd.ring);
	segment_ring_rx(a, 0, &s->rcv.ring);
	s->path = PATH_SHM;
	s->row = &row;
	atomic_store(&s->link, &the_link);
	ck_assert(ring_memory_take(s, RING));
	ring_memory_received(s);
	memset(a->ring, 1, 2 * RING);
	s->snd.cut.state = CUT_TX_RING;
	s->rcv.cut.state = CUT_RX_RING;
	clock_us = 5000000;
	ck_assert_int_ge(held_kb(), 2 * RING / KB);
}

static void teardown(void)
{
	segment_unmap(&the_link.segment);
	close(memfd);
}

static int given(void) { return (int)stat_self()->counter[STAT_rings_rested]; }

/* Time goes by, as the background thread lets it. */
static void pass(uint64_t us)
{
	for (uint64_t end = clock_us + us; clock_us < end; clock_us += IDLE / 20)
		rings_rest(clock_us);
}

static void wrote(uint64_t n)
{
	memset(s->snd.ring.buf, 1, s->snd.ring.size);
	ring_tx_publish(&s->snd.ring, n);
	s->snd.cut.wr += n;
}

static void was_read(uint64_t n) { atomic_fetch_add(&s->snd.ring.sh->rd, n); }

START_TEST(what_is_sent)
{
	long before_kb = held_kb();

	pass(IDLE * 8 / 10);
	ck_assert_int_eq(given(), 0);
	pass(IDLE);
	ck_assert_int_eq(given(), 1);
	ck_assert_int_eq(held_kb(), before_kb - RING / KB);
	ck_assert_uint_eq(s->snd.held, 0);
	ck_assert_uint_eq(held_bytes, 0);
	/* nothing is left to look at, and when it is used again, somebody says so */
	ck_assert_uint_eq(rings_rest(clock_us), UINT64_MAX);
	kicks = 0;
	ck_assert(ring_memory_ready(s));
	ck_assert_int_eq(kicks, 1);
	wrote(RING);
	was_read(RING);
	pass(2 * IDLE);
	ck_assert_int_eq(given(), 2);
}
END_TEST

START_TEST(not_while_it_is_used)
{
	for (int i = 0; i < 40; i++) {
		wrote(RING);
		was_read(RING);
		pass(IDLE / 2);
	}
	ck_assert_int_eq(given(), 0);
	for (int i = 0; i < 10; i++) {	/* a little now and then */
		wrote(100);
		was_read(100);
		pass(IDLE / 2);
	}
	ck_assert_int_eq(given(), 1);
}
END_TEST

START_TEST(not_what_is_unread)
{
	wrote(RING);
	was_read(RING - 1);
	pass(4 * IDLE);
	ck_assert_int_eq(given(), 0);
	ck_assert_int_eq(s->snd.ring.buf[RING - 1], 1);
	was_read(1);
	pass(2 * IDLE);
	ck_assert_int_eq(given(), 1);
}
END_TEST

/* A frozen receiver, which may not have heard of BACK yet, shows what the sender held. */
START_TEST(the_sender_only_in_p)
{
	static const enum cut_tx_state other[] = { CUT_TX_TCP, CUT_TX_ARMING, CUT_TX_CUT_SENT,
						   CUT_TX_REWINDING,
						   CUT_TX_RESENDING };

	s->snd.cut.state = other[_i];
	pass(4 * IDLE);
	ck_assert_int_eq(given(), 0);
	ck_assert_int_eq(s->snd.ring.buf[0], 1);
	/* the other end gives those back */
	ck_assert_uint_eq(s->snd.held, other[_i] == CUT_TX_TCP ? 0 : RING);
}
END_TEST

START_TEST(the_receiver_only_in_t)
{
	static const enum cut_rx_state other[] = { CUT_RX_ARMED, CUT_RX_RING, CUT_RX_FROZEN };
	long before_kb = held_kb();

	s->snd.cut.state = CUT_TX_TCP;
	s->rcv.cut.state = other[_i];
	pass(4 * IDLE);
	ck_assert_int_eq(given(), 0);
	s->rcv.cut.state = CUT_RX_TCP;
	ring_memory_unused(s);
	pass(IDLE * 8 / 10);
	ck_assert_int_eq(given(), 0);
	pass(IDLE);
	ck_assert_int_eq(given(), 1);
	ck_assert_int_eq(held_kb(), before_kb - RING / KB);
	ck_assert_int_eq(s->snd.ring.buf[0], 1);
}
END_TEST

START_TEST(a_large_one_is_given_back_with_the_small)
{
	long before_kb = held_kb();

	ck_assert(ring_memory_take(s, 4 * RING));
	ring_tx_enlarge(&s->snd.ring, 4 * RING);
	wrote(RING);
	was_read(RING);
	ck_assert_int_eq(held_kb(), before_kb + 4 * RING / KB);
	ck_assert_uint_eq(held_bytes, 4 * RING);
	pass(3 * IDLE);
	ck_assert_int_eq(held_kb(), before_kb - RING / KB);
	ck_assert_uint_eq(held_bytes, 0);
}
END_TEST

/* Where a page that is not there could be SIGBUS, or a device has it. */
START_TEST(not_of_a_preallocated_segment)
{
	if (_i)
		the_link.segment.preallocated = true;
	else
		the_link.path = &path_rdma;
	pass(4 * IDLE);
	ck_assert_int_eq(given(), 0);
	ck_assert_uint_eq(s->snd.held, RING);
}
END_TEST

START_TEST(never)
{
	tunables.ring_idle = 0;
	pass(10 * IDLE);
	ck_assert_int_eq(given(), 0);
}
END_TEST

/* What a link keeps for the next connections, it keeps for a while; not what one of them has. */
START_TEST(what_a_link_keeps)
{
	struct segment *a = &the_link.segment;
	static uint8_t used[16] = { [2] = 1 };
	long before_kb;

	atomic_store(&s->link, NULL);
	the_link.slot_used = used;
	for (uint32_t slot = 1; slot < 4; slot++) {
		ck_assert(segment_slot_warm(a, slot));
		memset(rings(a, slot), 1, 2 * RING);
	}
	before_kb = held_kb();
	link_slot_left(&the_link, 1);
	ck_assert_int_eq(held_kb(), before_kb);
	pass(IDLE * 8 / 10);
	link_slot_left(&the_link, 3);
	pass(IDLE * 8 / 10);
	ck_assert_int_eq(held_kb(), before_kb);
	pass(IDLE);
	ck_assert_int_eq(held_kb(), before_kb - 3 * 2 * RING / KB);	/* and slot 0 */
	ck_assert_int_eq(*rings(a, 2), 1);
	ck_assert_uint_eq(rings_rest(clock_us), UINT64_MAX);
}
END_TEST

static bool joins(int i)
{
	streams[i] = (struct stream){ .path = PATH_SHM, .row = &row };
	streams[i].snd.ring.size = RING;
	return ring_memory_take(&streams[i], RING);
}

START_TEST(beyond_the_budget)
{
	int n = 1;

	tunables.ring_budget = 4 * RING;
	for (; n < STREAMS && joins(n); n++)
		;
	ck_assert_int_eq(n, 4);
	ck_assert_int_eq(row.reason, REASON_NO_MEMORY);
	ck_assert_uint_gt(streams[n].earn.next_us, clock_us);
	ck_assert_uint_eq(held_bytes, 4 * RING);
	ring_memory_free(&streams[1]);
	ck_assert(joins(n));
}
END_TEST

/* One that has rested finds others in its place: it goes to TCP. Where it cannot, it has what it
 * needs. */
START_TEST(back_too_late)
{
	pass(2 * IDLE);
	ck_assert_uint_eq(s->snd.held, 0);
	tunables.ring_budget = 4 * RING;
	for (int n = 1; n < 5; n++)
		ck_assert(joins(n));
	goes = _i;
	ck_assert_int_eq(ring_memory_ready(s), !_i);
	ck_assert_int_eq(fallbacks, 1);
	ck_assert_uint_eq(s->snd.held, _i ? 0 : RING);
}
END_TEST

/* By default a quarter of what there is; that is only asked for when it matters, not under a
 * lock. */
START_TEST(a_share_of_the_machine)
{
	tunables.ring_budget = 0;
	has = 16 * SMALL;
	for (int i = 1; i < STREAMS; i++)
		streams[i] = (struct stream){ .path = PATH_SHM, .row = &row };
	ck_assert(ring_memory_take(&streams[1], 4 * SMALL - 2 * RING));
	ck_assert(atomic_load(&limit_wanted));
	rings_rest(clock_us);
	ck_assert_uint_eq(stat_self()->ring_budget, 4 * SMALL);
	ck_assert(ring_memory_take(&streams[2], RING));
	ck_assert(!ring_memory_take(&streams[3], RING));
	has = 32 * SMALL;		/* it is raised, and seen after a while */
	rings_rest(clock_us);
	ck_assert(!ring_memory_take(&streams[3], RING));
	clock_us += LIMIT_US;
	rings_rest(clock_us);
	ck_assert(ring_memory_take(&streams[3], RING));
}
END_TEST

/* Nor more than a part of what others have left, and none of the last eighth; that is looked at
 * again before more is had, though there was enough. */
START_TEST(what_others_left)
{
	tunables.ring_budget = 0;
	has = 64 * SMALL;
	left = 16 * SMALL;			/* half of it may be used */
	for (int i = 1; i < STREAMS; i++)
		streams[i] = (struct stream){ .path = PATH_SHM, .row = &row };
	ck_assert(ring_memory_take(&streams[1], 2 * SMALL - RING));
	rings_rest(clock_us);
	ck_assert_uint_eq(stat_self()->ring_budget, 4 * SMALL);
	ck_assert(ring_memory_take(&streams[2], RING));
	left = 8 * SMALL;
	clock_us += LIMIT_US;
	rings_rest(clock_us);
	ck_assert_uint_eq(stat_self()->ring_budget, 2 * SMALL + RING);
	ck_assert(!ring_memory_take(&streams[3], RING));
	ck_assert_int_eq(row.reason, REASON_NO_MEMORY);
	ring_memory_free(&streams[1]);		/* so much is always had */
	clock_us += LIMIT_US;
	rings_rest(clock_us);
	ck_assert_uint_eq(stat_self()->ring_budget, SMALL);
	left = 64 * SMALL;
	ck_assert(ring_memory_take(&streams[3], SMALL - held_bytes));
	ck_assert(!ring_memory_take(&streams[4], RING));
	clock_us += LIMIT_US;
	rings_rest(clock_us);
	ck_assert(ring_memory_take(&streams[4], RING));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("idle");
	TCase *t = tcase_create("idle");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_is_sent);
	tcase_add_test(t, not_while_it_is_used);
	tcase_add_test(t, not_what_is_unread);
	tcase_add_loop_test(t, the_sender_only_in_p, 0, 5);
	tcase_add_loop_test(t, the_receiver_only_in_t, 0, 3);
	tcase_add_test(t, a_large_one_is_given_back_with_the_small);
	tcase_add_loop_test(t, not_of_a_preallocated_segment, 0, 2);
	tcase_add_test(t, never);
	tcase_add_test(t, what_a_link_keeps);
	tcase_add_test(t, beyond_the_budget);
	tcase_add_loop_test(t, back_too_late, 0, 2);
	tcase_add_test(t, a_share_of_the_machine);
	tcase_add_test(t, what_others_left);
	suite_add_tcase(suite, t);
	return run_suite(suite);
}
