/*
 * test_held.c - snapshots that a peer on this host still reads when its receive is counted
 * (shim/conn/stream_device.c, under shim/conn/stream_direct.c): each is released once, when the
 * peer says that it has been read, when its link has ended, or, of who does not say so, later.
 * The peer is this test.
 *
 * LINK: shim/conn/stream_device.c
 */
#include <check.h>
#include <stdarg.h>

#include "../../policy/log.h"
#include "../../rdma/verbs/rc.h"
#include "../../shim/base/loop.h"
#include "../../shim/gpu/gpu.h"
#include "../../shim/link/link.h"
#include "../../shim/base/shim.h"
#include "../../shim/conn/stream_cut.h"
#include "../../shim/conn/stream_send.h"
#include "../../shim/conn/stream_wake.h"
#include "../../shim/base/sys.h"

static uint64_t real_now(void) { return now_ns(); }
/* A clock of its own for the waits of a send: a microsecond for each look. */
static uint64_t test_now(void) { static uint64_t ns; return ns += 1000; }
#define now_ns() test_now()
#include "../../shim/conn/stream_direct.c"

#define N (256 * 1024)

_Thread_local struct thread_signals thread_signals;
_Atomic int gpu_receives, gpu_live, shim_pid;
bool memory_is_ours(void) { return true; }
_Atomic bool tracing;
static struct stream tx;
static struct ring_shared sh, back;
static struct link l;
static struct stat_row row;
static char block[N];
static int release, later;

/* What other files have, and is not come to from here: an illegal instruction. */
#define NEVER(name) __asm__(".globl " #name "\n" #name ": " ARCH_TRAP);
NEVER(lock_slow)
NEVER(stream_work_of)
NEVER(loop_post) NEVER(gpu_overwrite) NEVER(gpu_take_begin) NEVER(gpu_take_end)
	NEVER(gpu_take_drop) NEVER(gpu_read_over) NEVER(gpu_read_next) NEVER(gpu_region_of)
		NEVER(gpu_region_read) NEVER(gpu_region_open) NEVER(gpu_region_close) NEVER(
			gpu_landing_take) NEVER(gpu_landing_give) NEVER(gpu_landing_over)
			NEVER(gpu_landing_small) NEVER(gpu_landing_read) NEVER(link_send)
				NEVER(link_kill) NEVER(link_id) NEVER(stream_rx_event)
					NEVER(stream_tcp_takes) NEVER(usermem_look) NEVER(wire_any)
						NEVER(gpu_take_finds) NEVER(peer_memory_begin)
							NEVER(peer_memory_copy)
								NEVER(peer_memory_end)
									NEVER(peer_memory_wipe)

										const
	struct path path_shm = { .kind = PATH_SHM };
const struct path *const paths[PATH_KINDS] = { [PATH_SHM] = &path_shm };
void critical_done(void) { }
int peer_memory_may(struct link *of) { (void)of; return 0; }
void link_read_enter(void) { }
void link_read_leave(void) { }
bool stream_notify_peer(struct stream *s) { (void)s; return false; }
void stream_consumed(struct stream *s) { (void)s; }
struct event stream_steps;
void stream_wake(struct stream *s) { (void)s; event_ring(&stream_steps); }
void event_ring_slow(struct event *e) { (void)e; }
void gpu_ref_used(const struct gpu_ref *ref) { (void)ref; }
void gpu_ref_why(const struct gpu_ref *ref, int reason, bool soon)
{
	(void)ref, (void)reason, (void)soon;
}
void gpu_unref(const struct gpu_ref *ref, bool taken) { (void)ref, (void)taken; release++; }
void gpu_unref_late(const struct gpu_ref *ref) { (void)ref; later++; }

static void begin(void)
{
	memset(&sh, 0, sizeof sh);
	memset(&tx, 0, sizeof tx);
	tx.snd.ring.sh = &sh;
	tx.rcv.ring.sh = &back;
	tx.snd.ring.size = 1 << 20;
	tx.row = &row;
	tx.path = PATH_SHM;
	atomic_store(&l.state, LINK_UP);
	atomic_store(&tx.link, &l);
	release = later = 0;
}

/* A send of which the peer says READING at once. */
static void sent(void)
{
	ck_assert(device_room(&tx));
	tx.snd.ring.wr += N;
	tx.snd.ring.rd = tx.snd.ring.wr;
	atomic_store(&sh.wr, tx.snd.ring.wr);
	atomic_store(&sh.rd, tx.snd.ring.rd);
	device_read(&tx, &(struct gpu_ref){ .desc = 42, .rec = 3, .len = N }, tx.snd.ring.wr);
}

START_TEST(release_when_read)
{
	begin();
	sent();
	sent();
	device_settle(&tx);
	ck_assert_int_eq(release, 0);
	atomic_store(&sh.offer_read, N);
	device_settle_all();		/* as another thread's copy does */
	ck_assert_int_eq(release, 1);
	ck_assert_ptr_nonnull(tx.device.out);
	atomic_store(&sh.offer_read, 2 * N);
	device_settle(&tx);
	ck_assert_int_eq(release, 2);
	ck_assert_ptr_null(tx.device.out);	/* another stream may have the place */
}
END_TEST

/* A connection may be reset, and the process that had the other end reads on. */
START_TEST(held_beyond_a_reset)
{
	begin();
	sent();
	for (int gone = 1; gone <= 2; gone++) {
		atomic_store(&tx.peer_gone, (uint8_t)gone);
		device_settle(&tx);
		ck_assert_int_eq(release, 0);
	}
	atomic_store(&l.state, LINK_DEAD);
	device_settle(&tx);
	ck_assert_int_eq(release, 1);
}
END_TEST

START_TEST(left_before_it_is_read)
{
	begin();
	sent();
	sent();
	ck_assert(device_still_held(&tx, 1000));
	ck_assert(device_still_held(&tx, 90000));
	ck_assert(!device_still_held(&tx, 200000));	/* for long enough */
	atomic_store(&sh.offer_read, N);
	device_detach(&tx);
	ck_assert_int_eq(release, 1);
	ck_assert_int_eq(later, 1);
	ck_assert_ptr_null(tx.device.out);
	begin();
	ck_assert(!device_still_held(&tx, 1000));
}
END_TEST

static uint64_t end_with(int blocks)
{
	uint64_t start;

	begin();
	for (int i = 0; i < blocks; i++)
		sent();
	start = real_now();
	device_save_all();
	start = real_now() - start;
	ck_assert_int_eq(later, blocks);
	device_detach(&tx);
	return start;
}

/* All blocks together, not each of them. */
START_TEST(kept_by_a_peer_at_the_end)
{
	uint64_t one = end_with(1), ten = end_with(10);

	ck_assert(one >= 50000000);
	ck_assert(ten < 5 * one);
}
END_TEST

/* It never says that it has read: then nothing more is offered. */
START_TEST(never_read)
{
	int n = 0;

	begin();
	while (device_room(&tx)) {
		sent();
		n++;
	}
	ck_assert_int_eq(n, 16);
	/* of what was not offered */
	device_read(&tx, &(struct gpu_ref){ .rec = 3, .len = N }, tx.snd.ring.wr + N);
	ck_assert_int_eq(later, 1);
	device_detach(&tx);
	ck_assert_int_eq(later, 17);
}
END_TEST

/* While an offer waits for a reader with the lock free, another thread finds that the block
 * before has been read. */
START_TEST(read_while_another_is_offered)
{
	begin();
	sent();
	ck_assert_int_eq(direct_send_device(&tx, block, &(struct gpu_ref){ .desc = 42, .rec = 4,
		.len = N }, true), -EBUSY);
	atomic_store(&sh.offer_read, N);
	device_settle_all();
	ck_assert_int_eq(release, 1);
	atomic_store(&sh.offer_read_n, N);
	atomic_store(&sh.offer, RING_READING);
	ck_assert(direct_settle(&tx, false));
	ck_assert_int_eq(release, 1);
	atomic_store(&sh.offer_read, 2 * N);
	device_settle(&tx);
	ck_assert_int_eq(release, 2);
}
END_TEST

/* Many connections whose offers nobody takes: none of them keeps a place. */
START_TEST(places)
{
	for (int i = 0; i < 200; i++) {
		begin();
		ck_assert_int_eq(direct_send_device(&tx, block, &(struct gpu_ref){ .desc = 42,
			.rec = 4, .len = N }, false), 0);
		ck_assert_ptr_null(tx.device.out);
		ck_assert(device_room(&tx));
		device_settle(&tx);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lent");
	TCase *tc = tcase_create("lent");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_add_test(tc, release_when_read);
	tcase_add_test(tc, held_beyond_a_reset);
	tcase_add_test(tc, left_before_it_is_read);
	tcase_add_test(tc, kept_by_a_peer_at_the_end);
	tcase_add_test(tc, never_read);
	tcase_add_test(tc, read_while_another_is_offered);
	tcase_add_test(tc, places);
	suite_add_tcase(suite, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
