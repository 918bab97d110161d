/*
 * test_rc.c - a link's segments over a queue pair, on two fake devices (fake_verbs.h): random
 * traffic of many streams with cuts, rewinds and growing rings in between, byte-checked;
 * credits; collecting; buffers that run out; lives of a slot; peers that lie; round-trip times;
 * a queue pair that dies, or is stuck; a device that refuses any one of what a link needs.
 *
 * LINK: rdma/verbs/rc_wait.c rdma/verbs/rc_stuck.c rdma/verbs/rc_pull.c rdma/verbs/rc_cost.c
 * LINK: rdma/shm/segment.c rdma/verbs/rc.c rdma/verbs/rc_mem.c rdma/verbs/verbs.c
 * TIMEOUT: 60
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../rdma/verbs/rc.h"
#include "fake_verbs.h"

#define SLOTS 8
#define SIZE  8192
#define LARGE 65536
#define LARGE_MOST 5	/* fewer than directions */

struct end {
	struct segment a;
	struct rc *rc;
	uint64_t rung;
	int died;
	bool watched;		/* by the background thread */
	int busy;
	_Atomic uint32_t rtt;
};

struct dir {		/* one direction of one stream: sent by side s */
	struct ring_tx tx;
	struct ring_rx rx;
	uint64_t epoch, seq;
	uint32_t runs;
};

/* "Device memory": snapshots to send from, where what is under way stays until it is consumed,
 * and the ring where it lands. */
#define DEV 16384
static uint8_t snapshots[2][SLOTS][2 * DEV], landings[SLOTS][2][DEV];
static uint32_t snapshot_key[2];

static struct end end[2];
static struct dir dir[SLOTS][2];

static void ring(void *arg, uint64_t bells) { ((struct end *)arg)->rung |= bells; }
static void died(void *arg) { ((struct end *)arg)->died++; }
static void busy(void *arg) { ((struct end *)arg)->busy++; }
static void watch(void *arg) { ((struct end *)arg)->watched = true; }

static uint8_t pattern(uint32_t slot, unsigned s, uint64_t off)
{
	return (uint8_t)(off * 31 + (off >> 8) + slot * 7 + s);
}

static void bind_slot(uint32_t slot, uint16_t life)
{
	uint64_t addr[2];
	uint32_t key[2];

	for (int s = 0; s < 2; s++) {
		segment_slot_reset(&end[s].a, slot);
		ck_assert_int_eq(rc_slot_bind(end[s].rc, slot, life, &addr[s], &key[s]), 0);
	}
	for (int s = 0; s < 2; s++)
		rc_slot_peer(end[s].rc, slot, addr[!s], key[!s]);
}

static void open_dir(uint32_t slot, unsigned s, uint64_t cut)
{
	struct dir *d = &dir[slot][s];

	segment_ring_tx(&end[s].a, slot, &d->tx);
	segment_ring_rx(&end[!s].a, slot, &d->rx);
	ring_tx_open(&d->tx, ++d->epoch, cut);
	ring_rx_open(&d->rx, cut);
}

/* Asks for a larger ring, or changes over to it. True: it has. */
static bool grow(uint32_t slot, unsigned s)
{
	struct dir *d = &dir[slot][s];
	uint64_t addr;
	uint32_t key;

	if (!d->tx.large_size) {
		d->rx.large_size = rc_large_land(end[!s].rc, slot, &d->rx.large, &addr, &key);
		if (d->rx.large_size)
			d->tx.large_size = (uint64_t)rc_large_peer(
				end[s].rc, slot, d->rx.large_size, addr, key, &d->tx.large);
	} else if (d->tx.size == SIZE && rc_enlarge(end[s].rc, slot, LARGE >> slot % 2)) {
		ring_tx_enlarge(&d->tx, LARGE >> slot % 2);
		return true;
	}
	return false;
}

/* The peer is told of buffers that the device has got. */
static void believed(struct fake_end *e, const void *record)
{
	ck_assert_uint_le(((const struct rc_rec *)record)->acked, e->given - RC_RECVS);
}

static void setup(void)
{
	fake_init();
	fake_sent = believed;
	memset(dir, 0, sizeof dir);
	memset(snapshot_key, 0, sizeof snapshot_key);
	for (int s = 0; s < 2; s++) {
		struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
				     .arg = &end[s], .rtt = &end[s].rtt, .large_size = LARGE,
					     .large_most = LARGE_MOST };
		int fd;

		end[s] = (struct end){ 0 };
		ck_assert_int_eq(segment_create(&end[s].a, SLOTS, SIZE, 0, &fd), 0);
		close(fd);
		end[s].a.me = (uint8_t)s;
		end[s].a.permanent = true;
		end[s].rc = rc_new(&end[s].a, &c);
		ck_assert_ptr_nonnull(end[s].rc);
		ck_assert_int_eq(rc_open(end[s].rc, &fake[s].id), 0);
	}
	for (uint32_t i = 0; i < SLOTS; i++) {
		bind_slot(i, 1);
		open_dir(i, 0, 1000 * i);
		open_dir(i, 1, 77 * i);
	}
}

static void teardown(void)
{
	for (int s = 0; s < 2; s++) {
		rc_close(end[s].rc);
		segment_unmap(&end[s].a);
	}
	for (int k = 0; k < 2; k++)
		for (unsigned i = 0; i < fake[k].mrs; i++)
			ck_assert(!fake[k].mr[i].live);
	ck_assert_int_eq(fake_made, 0);
}

/* The clock is this one; it stands still unless it is moved. */
static uint64_t clock_ns;

int clock_gettime(clockid_t which, struct timespec *t)
{
	if (!clock_ns)
		return (int)syscall(SYS_clock_gettime, which, t);
	*t = (struct timespec){ .tv_sec = (time_t)(clock_ns / 1000000000),
				.tv_nsec = (long)(clock_ns % 1000000000) };
	return 0;
}

static uint64_t put(uint32_t slot, unsigned s, uint64_t n)
{
	struct dir *d = &dir[slot][s];
	uint8_t buf[SIZE];

	ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
	if (n > ring_tx_room(&d->tx))
		n = ring_tx_room(&d->tx);
	for (uint64_t i = 0; i < n; i++)
		buf[i] = pattern(slot, s, d->tx.wr + i);
	ring_tx_copy(&d->tx, 0, buf, n);
	ring_tx_publish(&d->tx, n);
	errno = 7;
	rc_publish(end[s].rc, slot);
	ck_assert_int_eq(errno, 7);	/* the program's, in whose call we are */
	return n;
}

static void give_landing(uint32_t slot, unsigned s)
{
	uint8_t *land = landings[slot][s];
	uint32_t key;

	ck_assert_int_eq(rc_device_reg(end[!s].rc, (uintptr_t)land, DEV, -1, true, &key), 0);
	rc_device_land(end[!s].rc, slot, DEV);
	dir[slot][s].rx.dev_size = DEV;
	ck_assert_int_eq(rc_device_peer(end[s].rc, slot, DEV, (uintptr_t)land, key), 0);
	if (!snapshot_key[s])
		ck_assert_int_eq(rc_device_reg(end[s].rc, (uintptr_t)snapshots[s],
					       sizeof snapshots[s], -1, false, &snapshot_key[s]),
				 0);
}

/* From a snapshot, if that may be now. */
static uint64_t put_device(uint32_t slot, unsigned s, uint64_t n)
{
	struct dir *d = &dir[slot][s];
	uint64_t at = d->tx.wr & (2 * DEV - 1);
	uint8_t *from = &snapshots[s][slot][at];

	ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
	if (n > DEV - (d->tx.wr - d->tx.rd))
		n = DEV - (d->tx.wr - d->tx.rd);
	if (n > 2 * DEV - at)
		n = 2 * DEV - at;
	if (!n || d->tx.wr - d->tx.rd > DEV)
		return 0;
	for (uint64_t i = 0; i < n; i++)
		from[i] = pattern(slot, s, d->tx.wr + i);
	if (!rc_device_publish(end[s].rc, slot, (uintptr_t)from, snapshot_key[s], n, &d->seq))
		return 0;
	ck_assert(!rc_device_done(end[s].rc, d->seq));
	if (d->tx.dev_hi != d->tx.wr)
		d->tx.dev_lo = d->tx.wr;
	d->tx.dev_hi = d->tx.wr + n;
	d->runs++;
	ring_tx_publish(&d->tx, n);
	rc_publish(end[s].rc, slot);
	return n;
}

static uint64_t get(uint32_t slot, unsigned s, uint64_t n)
{
	bool dev;
	struct dir *d = &dir[slot][s];
	uint8_t buf[SIZE];

	ck_assert_int_eq(ring_rx_refresh(&d->rx), 0);
	if (n > ring_rx_avail(&d->rx))
		n = ring_rx_avail(&d->rx);
	n = ring_rx_alike(&d->rx, d->rx.rd, n < SIZE ? n : SIZE, &dev);
	if (dev)
		for (uint64_t i = 0; i < n; i++)
			buf[i] = landings[slot][s][(d->rx.rd + i) & (DEV - 1)];
	else
		ring_rx_copy(&d->rx, 0, buf, n);
	for (uint64_t i = 0; i < n; i++)
		if (buf[i] != pattern(slot, s, d->rx.rd + i))
			ck_abort_msg("slot %u from side %u: byte %lu is wrong", slot, s,
				     d->rx.rd + i);
	ring_rx_consume(&d->rx, n);
	errno = 7;
	if (n)
		rc_credit(end[!s].rc, slot);
	ck_assert_int_eq(errno, 7);
	return n;
}

/* The background thread: events that came, and armed again while somebody sleeps. */
static bool background(unsigned s)
{
	bool any = false;

	while (fake[s].events && end[s].watched) {
		end[s].watched = false;
		rc_unwatched(end[s].rc);
		rc_event(end[s].rc);
		rc_poll(end[s].rc);
		if (rc_waits(end[s].rc)) {
			rc_arm(end[s].rc);
			rc_poll(end[s].rc);
		}
		any = true;
	}
	return any;
}

static void settle(void)
{
	bool any;

	errno = 7;
	do {
		fake_run();
		any = background(0) | background(1);
		for (unsigned s = 0; s < 2; s++)
			any |= rc_poll(end[s].rc);
	} while (any || fake[0].sq_head != fake[0].sq_tail || fake[1].sq_head != fake[1].sq_tail);
	ck_assert_int_eq(errno, 7);
}

START_TEST(traffic)
{
	uint64_t moved = 0;
	unsigned grown = 0;

	srandom((unsigned)_i);
	for (uint32_t slot = 0; slot < SLOTS / 2; slot++)
		for (unsigned s = 0; s < 2; s++)
			give_landing(slot, s);
	for (int n = 0; n < 60000; n++) {
		uint32_t slot = (uint32_t)random() % SLOTS;
		unsigned s = (unsigned)random() & 1;

		switch (random() % 14) {
		case 0: case 1: case 2: put(slot, s, (uint64_t)random() % 100); break;
		case 3: put(slot, s, (uint64_t)random() % SIZE); break;
		case 4: case 5: moved += get(slot, s, (uint64_t)random() % SIZE); break;
		case 6: case 7: for (long k = random() % 8; k && fake_step(&fake[s]); k--) ; break;
		case 8: case 9: rc_poll(end[s].rc); break;
		case 10: background(s); break;
		case 11:	/* a rewind and a new cut, with the old epoch's bytes still in
				 * the queue */
			if (random() % 20 == 0) {
				uint64_t cut = dir[slot][s].tx.wr + (uint64_t)random() % 50;

				moved += dir[slot][s].tx.wr - dir[slot][s].rx.rd;
				ring_tx_open(&dir[slot][s].tx, ++dir[slot][s].epoch, cut);
				ring_rx_open(&dir[slot][s].rx, cut);
			}
			break;
		case 12:
			grown += random() % 20 == 0 &&
				 dir[slot][s].tx.dev_hi <= dir[slot][s].tx.rd && grow(slot, s);
			break;
		case 13:
			if (slot < SLOTS / 2 && random() % 4 == 0)
				put_device(slot, s, (uint64_t)random() % DEV);
			break;
		}
	}
	/* What is written now arrives without any further call of its sender. */
	for (int k = 0; k < 400; k++)
		for (uint32_t slot = 0; slot < SLOTS; slot++)
			for (unsigned s = 0; s < 2; s++) {
				settle();
				get(slot, s, SIZE);
			}
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		for (unsigned s = 0; s < 2; s++) {
			ck_assert_uint_eq(dir[slot][s].rx.rd, dir[slot][s].tx.wr);
			ck_assert_uint_ge(dir[slot][s].runs, slot < SLOTS / 2 ? 20 : 0);
		}
	ck_assert_uint_gt(moved, 1000000);
	ck_assert_uint_ge(grown, LARGE_MOST);
	ck_assert_int_eq(end[0].died + end[1].died, 0);
	ck_assert_uint_eq(fake[0].rnr + fake[1].rnr, 0);	/* the window holds */
}
END_TEST

/* A thread that waits for another inside the library, and is interrupted there: no trace of that
 * in errno, which is the program's. */
static sem_t inside, go_on;
static _Atomic int asker;

static void stay(void)
{
	sem_post(&inside);
	sem_wait(&go_on);
}

static void *asks(void *rc)
{
	asker = (int)syscall(SYS_gettid);
	errno = 7;
	rc_waits(rc);
	return (void *)(long)errno;
}

static void *publishes(void *arg)
{
	(void)arg;
	put(0, 0, 10);
	return NULL;
}

/* The state letter of /proc/self/task/TID/stat. */
static bool sleeps(int tid)
{
	char path[64], text[64] = "";
	FILE *f;

	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	if (!f || !fgets(text, sizeof text, f))
		text[0] = 0;
	if (f)
		fclose(f);
	return strstr(text, ") S ");
}

static void nothing_done(int sig) { (void)sig; }

START_TEST(errno_kept)
{
	struct sigaction sa = { .sa_handler = nothing_done };
	pthread_t a, b;
	void *e;

	sigaction(SIGUSR1, &sa, NULL);
	sem_init(&inside, 0, 0);
	sem_init(&go_on, 0, 0);
	on_post = stay;
	ck_assert_int_eq(pthread_create(&a, NULL, publishes, NULL), 0);
	sem_wait(&inside);
	ck_assert_int_eq(pthread_create(&b, NULL, asks, end[0].rc), 0);
	while (!asker || !sleeps(asker))
		sched_yield();
	pthread_kill(b, SIGUSR1);
	usleep(20000);
	sem_post(&go_on);
	pthread_join(b, &e);
	pthread_join(a, NULL);
	ck_assert_int_eq((long)e, 7);
}
END_TEST

/* Runs in device memory: they land there and nowhere else, wrapped or not, nothing follows one
 * of them before it is read, and then its sender is told at once. */
START_TEST(device_runs)
{
	struct dir *d = &dir[1][0];

	ck_assert_uint_eq(put_device(1, 0, 100), 0);	/* where to? */
	give_landing(1, 0);
	ck_assert_uint_eq(rc_device_size(end[0].rc, 1), DEV);
	for (int k = 0; k < 100; k++) {
		uint64_t host = (uint64_t)k * 7 % 50, n = 1 + (uint64_t)k * 997 % (DEV - 60),
			 ring = d->tx.rd;

		ck_assert_uint_eq(put(1, 0, host), host);
		settle();
		n = put_device(1, 0, n);
		ck_assert_uint_gt(n, 0);
		ck_assert_uint_eq(put(1, 0, 1), 0);
		settle();
		ck_assert(rc_device_done(end[0].rc, d->seq));
		ck_assert_int_eq(ring_rx_refresh(&d->rx), 0);
		ck_assert_uint_eq(ring_rx_avail(&d->rx), host + n);
		/* not across */
		ck_assert_uint_eq(get(1, 0, SIZE), host ? host : n < SIZE ? n : SIZE);
		while (get(1, 0, SIZE))
			;
		fake_run();
		rc_poll(end[0].rc);
		ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
		ck_assert_uint_eq(d->tx.rd, ring + host + n);
		ck_assert_uint_gt(ring_tx_room(&d->tx), 0);
	}
	ck_assert_int_eq(end[0].died + end[1].died, 0);
}
END_TEST

/* By dma-buf if there is one and the device takes it, else by address; the same memory once;
 * refused: an error, and later perhaps not. */
START_TEST(device_registered)
{
	unsigned before = fake[0].mrs;
	uint32_t key, again;

	verbs.ibv_reg_dmabuf_mr = fake_reg_dmabuf_mr;
	fake_dmabuf = 77;
	ck_assert(!rc_device_known(end[0].rc, (uintptr_t)snapshots, DEV, &key));
	ck_assert_int_eq(rc_device_reg(end[0].rc, (uintptr_t)snapshots, DEV, 77, false, &key), 0);
	ck_assert_int_eq(rc_device_reg(end[0].rc, (uintptr_t)snapshots, DEV, 77, false, &again), 0);
	ck_assert_uint_eq(key, again);
	ck_assert(rc_device_known(end[0].rc, (uintptr_t)snapshots, DEV, &again));
	ck_assert_uint_eq(key, again);
	ck_assert_uint_eq(fake[0].mrs, before + 1);
	ck_assert_int_eq(fake[0].mr[before].access, 0);		/* nobody else reads or writes it */
	/* by address */
	ck_assert_int_eq(rc_device_reg(end[0].rc, (uintptr_t)landings, DEV, 78, true, &key), 0);
	ck_assert_uint_eq(fake[0].mrs, before + 2);
	ck_assert_int_eq(fake[0].mr[before + 1].access,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ck_assert(!rc_device_known(end[0].rc, (uintptr_t)landings, DEV, &key));
	verbs.ibv_reg_dmabuf_mr = NULL;
	fake_fail = 1;
	ck_assert_int_lt(rc_device_reg(end[0].rc, (uintptr_t)landings + DEV, DEV, 77, true, &key),
			 0);
	fake_fail = 0;
	ck_assert_int_eq(rc_device_reg(end[0].rc, (uintptr_t)landings + DEV, DEV, 77, true, &key),
			 0);
	/* withdrawn, and was never given */
	ck_assert_int_eq(rc_device_peer(end[0].rc, 1, 0, 0, 0), -EPROTO);
	ck_assert_int_eq(rc_device_peer(end[0].rc, 1, 3 * DEV, 1, 1), -EPROTO);
	ck_assert_int_eq(rc_device_peer(end[0].rc, 1, 1ull << 40, 1, 1), -EPROTO);
	ck_assert_int_eq(rc_device_peer(end[0].rc, 1, DEV, 1, 1), 0);
	ck_assert_int_eq(rc_device_peer(end[0].rc, 1, DEV, 1, 1), -EPROTO);
	ck_assert_int_eq(rc_device_peer(end[0].rc, 1, 0, 0, 0), 0);
	ck_assert_uint_eq(rc_device_size(end[0].rc, 1), 0);
	rc_kill(end[0].rc);
	ck_assert_int_eq(
		rc_device_reg(end[0].rc, (uintptr_t)landings + 2 * DEV, DEV, -1, true, &key),
		-ENETDOWN);
}
END_TEST

#include "rc_rings.h"

static void sends_meanwhile(void) { put(3, 1, 10); }

/* One sleeps, and the other tries the idle queue pair again and again: what only acknowledges must
 * not use up all receives of one who is not woken by it. */
START_TEST(tried_asleep)
{
	rc_arm_own(end[1].rc);
	for (int i = 0; i < 300; i++) {
		rc_try(end[0].rc);
		fake_run();
		rc_poll(end[0].rc);
		if (fake[1].events) {
			background(1);
			rc_arm_own(end[1].rc);
		}
	}
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	settle();
	ck_assert_uint_eq(get(3, 0, SIZE), 5);
}
END_TEST

/* While a record is taken up another thread sends one of its own. */
START_TEST(counted_when_posted)
{
	put(2, 0, 10);
	fake_run();
	on_recv = sends_meanwhile;
	rc_poll(end[1].rc);
	ck_assert_ptr_null(on_recv);
	settle();
	ck_assert_uint_eq(get(3, 1, SIZE), 10);
}
END_TEST

/* What all links may have registered: one that gets nothing keeps nothing, and what is given back
 * may be had again. */
START_TEST(budget)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0],
			     .large_size = LARGE, .large_most = 2,
			     .budget = rc_pinned() + (RC_SENDS + RC_RECVS) * RC_REC_MAX +
				     4 * SIZE };
	uint64_t before = rc_pinned(), addr;
	struct rdma_cm_id id = fake[0].id;
	const uint8_t *large;
	uint32_t key;
	struct rc *rc;

	for (int k = 0; k < 2; k++) {
		rc = rc_new(&end[0].a, &c);
		ck_assert_ptr_nonnull(rc);
		ck_assert_int_eq(rc_open(rc, &id), 0);
		for (uint32_t i = 0; i < 4; i++) {
			errno = 0;
			ck_assert_int_eq(rc_slot_bind(rc, i, 1, &addr, &key), i < 2 ? 0 : -ENOMEM);
		}
		ck_assert_int_eq(rc_slot_bind(rc, 1, 2, &addr, &key), 0);	/* has its own */
		ck_assert_int_eq(rc_large_land(rc, 1, &large, &addr, &key), -ENOMEM);
		ck_assert_uint_eq(rc_pinned(), c.budget);
		rc_close(rc);
		ck_assert_uint_eq(rc_pinned(), before);
	}
	c.budget = before + 100;
	rc = rc_new(&end[0].a, &c);
	errno = 0;
	ck_assert_int_eq(rc_open(rc, &id), -ENOMEM);
	rc_close(rc);
	ck_assert_uint_eq(rc_pinned(), before);
}
END_TEST

#include "rc_flow.h"
#include "rc_events.h"
#include "rc_fails.h"
#include "rc_pulls.h"

int main(void)
{
	Suite *s = suite_create("rc");
	TCase *t = tcase_create("rc");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 40);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, traffic, 1, 21);
	tcase_add_test(t, credits);
	tcase_add_test(t, errno_kept);
	tcase_add_test(t, device_runs);
	tcase_add_test(t, device_registered);
	tcase_add_test(t, grown);
	tcase_add_test(t, grows_when_told);
	tcase_add_test(t, slow_reader);
	tcase_add_test(t, little_use);
	tcase_add_test(t, credit_before_told);
	tcase_add_test(t, large_rings);
	tcase_add_loop_test(t, final, 0, 2);
	tcase_add_test(t, tried_asleep);
	tcase_add_test(t, counted_when_posted);
	tcase_add_test(t, budget);
	tcase_add_test(t, fair_budget);
	tcase_add_test(t, collects);
	tcase_add_test(t, vectors);
	tcase_add_test(t, full_vectors);
	tcase_add_test(t, batches);
	tcase_add_test(t, short_records);
	tcase_add_test(t, many_streams);
	tcase_add_test(t, flow);
	tcase_add_test(t, no_flow);
	tcase_add_test(t, window);
	tcase_add_test(t, round_trip);
	tcase_add_test(t, wakes);
	tcase_add_test(t, wakes_who_waits);
	tcase_add_test(t, wakes_all);
	tcase_add_test(t, lives);
	tcase_add_test(t, event_is_late);
	tcase_add_test(t, event_was_anothers);
	tcase_add_test(t, event_for_two);
	tcase_add_test(t, event_for_two_at_once);
	tcase_add_loop_test(t, liars, 0, (int)(sizeof lies / sizeof lies[0]));
	tcase_add_test(t, pulled);
	tcase_add_test(t, withdrawn);
	tcase_add_test(t, frozen);
	tcase_add_test(t, reads_bounded);
	tcase_add_test(t, pull_budget);
	tcase_add_test(t, costs);
	tcase_add_loop_test(t, false_word, 0,
			    (int)(sizeof false_words / sizeof false_words[0]));
	tcase_add_loop_test(t, word_twice, 0, 3);
	tcase_add_test(t, wild_cursors);
	tcase_add_test(t, reach);
	tcase_add_test(t, dies);
	tcase_add_test(t, lets_go);
	tcase_add_test(t, dies_posting);
	tcase_add_test(t, stuck);
	tcase_add_test(t, unsignalled);
	tcase_add_test(t, peer_stopped);
	tcase_add_test(t, refused);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
