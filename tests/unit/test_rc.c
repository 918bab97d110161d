/*
 * test_rc.c - a link's segments over a queue pair, on two fake devices (fake_verbs.h): random
 * traffic of many streams with cuts, rewinds and growing rings in between, byte-checked;
 * credits; collecting; buffers that run out; lives of a slot; peers that lie; round-trip times;
 * a queue pair that dies, or is stuck; a device that refuses any one of what a link needs.
 *
 * LINK: rdma/verbs/rc_wait.c rdma/verbs/rc_stuck.c
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

/* A full ring is always told of room, with nobody but reader and background thread at work. */
START_TEST(credits)
{
	uint64_t sent = 0;

	for (int k = 0; k < 200; k++) {
		sent += put(0, 0, SIZE);
		settle();
		while (get(0, 0, 100 + (uint64_t)k))
			;
		settle();
		ck_assert_int_eq(ring_tx_refresh(&dir[0][0].tx), 0);
		ck_assert_uint_ge(ring_tx_room(&dir[0][0].tx), SIZE * 3 / 4);
	}
	ck_assert_uint_gt(sent, 200 * SIZE / 2);
}
END_TEST

/* The same of a ring that grew while it was full; it is told of room less often. */
START_TEST(grown)
{
	struct dir *d = &dir[0][0];

	ck_assert_uint_eq(put(0, 0, SIZE), SIZE);
	ck_assert(!grow(0, 0));		/* gets one */
	ck_assert(grow(0, 0));
	ck_assert(!rc_enlarge(end[0].rc, 0, LARGE));
	for (int i = 0; i < LARGE / SIZE; i++)
		ck_assert_uint_eq(put(0, 0, SIZE), SIZE);
	ck_assert_uint_eq(put(0, 0, 1), 0);
	settle();
	ck_assert_int_eq(ring_rx_refresh(&d->rx), 0);
	ck_assert_uint_eq(ring_rx_avail(&d->rx), SIZE + LARGE);
	for (int k = 0; k < 200; k++) {
		while (get(0, 0, 100 + (uint64_t)k))
			;
		settle();
		ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
		ck_assert_uint_ge(ring_tx_room(&d->tx), LARGE - rc_credit_step(LARGE, SIZE));
		while (put(0, 0, SIZE))
			;
		settle();
	}
}
END_TEST

/* A reader of a large ring that is slow: its sender sees all the same that somebody reads, as
 * often as it has read a quarter of a small one, but not for each. */
START_TEST(slow_reader)
{
	struct dir *d = &dir[0][0];
	unsigned before, told = 0;
	uint64_t last;

	grow(0, 0);
	ck_assert(grow(0, 0));
	while (put(0, 0, SIZE))
		settle();
	clock_ns = 1000000000;
	last = d->tx.rd;
	before = fake[1].sends;
	for (int i = 0; i < 100; i++) {
		clock_ns += 1000000;
		ck_assert_uint_eq(get(0, 0, 70), 70);
		settle();
		ring_tx_refresh(&d->tx);
		if (d->tx.rd == last)
			continue;
		told++;
		ck_assert_uint_ge(d->tx.rd - last, SIZE / 4);
		last = d->tx.rd;
	}
	ck_assert_uint_eq(told, 2);	/* 30 calls to a quarter, 20 ms more */
	ck_assert_uint_eq(fake[1].sends - before, told);
	clock_ns = 0;
}
END_TEST

/* What the peer has not been told of yet lies where it was: no change before that. */
START_TEST(grows_when_told)
{
	ck_assert(!grow(0, 0));
	for (int i = 0; i < 20; i++)
		put(0, 0, 64);		/* the later ones are collected */
	ck_assert(rc_waits(end[0].rc));
	ck_assert(!grow(0, 0));
	settle();
	ck_assert(grow(0, 0));
	put(0, 0, 64);
	settle();
	ck_assert_uint_eq(get(0, 0, SIZE), 21 * 64);
}
END_TEST

/* There are so many, and one serves another slot when both ends have left it; not to a ring that
 * is no larger. */
START_TEST(large_rings)
{
	const uint8_t *ring;
	uint8_t *mine;
	uint64_t addr, was = rc_registered(end[1].rc);
	uint32_t key;
	unsigned n;

	for (n = 0; rc_large_land(end[1].rc, n, &ring, &addr, &key); n++)
		ck_assert_uint_lt(n, LARGE_MOST);
	ck_assert_uint_eq(n, LARGE_MOST);
	ck_assert_uint_eq(rc_registered(end[1].rc) - was, LARGE_MOST * LARGE);
	rc_slot_unbind(end[1].rc, 2);
	ck_assert_uint_eq(rc_large_land(end[1].rc, n, &ring, &addr, &key), 0);
	rc_slot_left(end[1].rc, 2);
	ck_assert_uint_eq(rc_large_land(end[1].rc, 2, &ring, &addr, &key), 0);	/* nobody's */
	ck_assert_uint_eq(rc_large_land(end[1].rc, n, &ring, &addr, &key), LARGE);
	ck_assert_uint_eq(rc_large_land(end[1].rc, n, &ring, &addr, &key), 0);	/* once */
	ck_assert_uint_eq(rc_registered(end[1].rc) - was, LARGE_MOST * LARGE);

	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, SIZE, addr, key, &mine), -EPROTO);
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, 3 * SIZE, addr, key, &mine), -EPROTO);
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, 1ull << 63, addr, key, &mine), -EPROTO);
	/* no more than we have */
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, 8 * LARGE, addr, key, &mine), LARGE);
	/* once */
	ck_assert_int_eq(rc_large_peer(end[0].rc, 0, LARGE, addr, key, &mine), -EPROTO);
	ck_assert_int_eq(rc_large_peer(end[0].rc, 1, 2 * SIZE, addr, key, &mine), 2 * SIZE);
	fake_fail = 1;
	ck_assert_int_eq(rc_large_peer(end[0].rc, 2, LARGE, addr, key, &mine), -ENOMEM);
	fake_fail = 0;
	ck_assert_int_eq(rc_large_peer(end[0].rc, 2, LARGE, addr, key, &mine), LARGE);
}
END_TEST

/* The end of a stream: every byte is credited, whichever comes first, FINAL or the reading. */
START_TEST(final)
{
	struct dir *d = &dir[1][0];

	put(1, 0, 10);
	settle();
	if (_i)
		ck_assert_uint_eq(get(1, 0, 10), 10);
	atomic_store(&d->tx.sh->final, d->tx.wr);
	rc_publish(end[0].rc, 1);
	settle();
	ck_assert_uint_eq(atomic_load(&d->rx.sh->final), d->tx.wr);
	if (!_i) {
		ck_assert_uint_eq(get(1, 0, 3), 3);
		ck_assert_uint_eq(get(1, 0, 10), 7);
	}
	settle();
	ring_tx_refresh(&d->tx);
	ck_assert_uint_eq(d->tx.rd, d->tx.wr);
}
END_TEST

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

/* Small messages that find the queue busy travel together. */
START_TEST(collects)
{
	unsigned before = fake[0].sends;

	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(put(2, 0, 64), 64);
	settle();
	ck_assert_uint_eq(get(2, 0, SIZE), 6400);
	ck_assert_uint_lt(fake[0].sends - before, 20);
}
END_TEST

/* Each link's events come by another interrupt, as far as there are. */
START_TEST(vectors)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0] };
	struct rdma_cm_id id = fake[0].id;

	fake_vectors = 0;
	fake[0].ctx.num_comp_vectors = 5;
	for (int i = 0; i < 5; i++) {
		struct rc *rc = rc_new(&end[0].a, &c);

		ck_assert_int_eq(rc_open(rc, &id), 0);
		rc_close(rc);
	}
	ck_assert_uint_eq(fake_vectors, 31);
}
END_TEST

/* An interrupt that takes no more: another one does, whichever that is; when all are full there is
 * no link, and nothing is left. */
START_TEST(full_vectors)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0] };
	struct rdma_cm_id id = fake[0].id;

	fake[0].ctx.num_comp_vectors = 5;
	for (int i = 0; i <= 5; i++) {
		struct rc *rc = rc_new(&end[0].a, &c);

		fake_bad_vectors = 31 & ~(1u << i);
		fake_vectors = 0;
		errno = 0;
		ck_assert_int_eq(rc_open(rc, &id), i < 5 ? 0 : -ENOSPC);
		ck_assert_uint_eq(fake_vectors & ~fake_bad_vectors, i < 5 ? 1u << i : 0);
		rc_close(rc);
	}
	fake_bad_vectors = 0;
}
END_TEST

/* One call for the buffers of all records that one look finds. */
START_TEST(batches)
{
	unsigned posts = fake[1].recv_posts;

	for (uint32_t i = 0; i < 4 * SLOTS; i++)
		ck_assert_uint_eq(put(i % SLOTS, 0, 64), 64);
	fake_run();
	rc_poll(end[1].rc);
	ck_assert_uint_eq(fake[1].recv_posts - posts, 4 * SLOTS / 16);
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(get(i, 0, SIZE), 4 * 64);
}
END_TEST

/* All large rings that the link gets, of each slot one to land in and one to send from. */
static unsigned grows(struct rc *rc)
{
	const uint8_t *land;
	uint64_t addr;
	unsigned n = 0;
	uint8_t *mine;
	uint32_t key;
	int64_t r;

	for (uint32_t i = 0; i < SLOTS; i++) {
		ck_assert_int_eq(rc_slot_bind(rc, i, 1, &addr, &key), 0);
		r = rc_large_land(rc, i, &land, &addr, &key);
		ck_assert(r == LARGE || r == -ENOMEM);
		n += r == LARGE;
		r = rc_large_peer(rc, i, LARGE, addr, key, &mine);
		ck_assert(r == LARGE || r == -ENOMEM);
		n += r == LARGE;
	}
	return n;
}

/* Large rings leave half of the budget to others, and a link as many to the next as it has. */
START_TEST(fair_budget)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0], .large_size = LARGE, .large_most = SLOTS,
			     .budget = 2 * (rc_pinned() + 3 * (RC_SENDS + RC_RECVS) * RC_REC_MAX +
					    6 * SLOTS * SIZE) };
	uint64_t before = rc_pinned(), addr, half = c.budget / 2;
	struct rdma_cm_id id[3] = { fake[0].id, fake[0].id, fake[0].id };
	struct rc *rc[3];
	unsigned n[2];
	uint32_t key;

	for (int i = 0; i < 3; i++) {
		rc[i] = rc_new(&end[0].a, &c);
		ck_assert_int_eq(rc_open(rc[i], &id[i]), 0);
		if (i < 2)
			n[i] = grows(rc[i]);
	}
	ck_assert_uint_eq(n[0], half / 2 / LARGE);
	ck_assert_uint_eq(n[1], (half - n[0] * LARGE) / 2 / LARGE);
	ck_assert_uint_gt(n[1], 1);
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_int_eq(rc_slot_bind(rc[2], i, 1, &addr, &key), 0);
	ck_assert_uint_le(rc_pinned(), c.budget);
	for (int i = 0; i < 3; i++)
		rc_close(rc[i]);
	ck_assert_uint_eq(rc_pinned(), before);
	/* and what they had may be had again */
	rc[0] = rc_new(&end[0].a, &c);
	ck_assert_int_eq(rc_open(rc[0], &id[0]), 0);
	ck_assert_uint_eq(grows(rc[0]), n[0]);
	rc_close(rc[0]);
}
END_TEST

static unsigned sent_bytes;

static void measure(struct fake_end *e, const void *record)
{
	(void)record;
	sent_bytes += e->sq[e->sq_tail % FAKE_WR].len;
}

/* 64 bytes fit the work request of a device that takes 96 there. What a short header leaves out
 * comes whole when it must: credits more than its half away, the size of a ring, the end. */
START_TEST(short_records)
{
	uint64_t far = 5ull << 32;

	rc_close(end[0].rc);
	fake_inline = 96;
	end[0].rc = rc_new(&end[0].a, &(struct rc_conf){ .ring = ring, .died = died, .busy = busy,
							 .watch = watch, .arg = &end[0] });
	ck_assert_int_eq(rc_open(end[0].rc, &fake[0].id), 0);
	rc_release(end[1].rc);
	ck_assert_int_eq(rc_open(end[1].rc, &fake[1].id), 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		bind_slot(i, 2);
	open_dir(1, 0, far);
	open_dir(1, 1, far);
	fake[0].inlined = 0;
	fake_sent = measure;
	sent_bytes = 0;
	put(1, 0, 64);			/* the first tells how far the other direction is */
	ck_assert_uint_eq(sent_bytes, 40 + 64);
	for (int i = 0; i < 3; i++) {
		settle();
		ck_assert_uint_eq(get(1, 0, SIZE), 64);
		sent_bytes = 0;
		put(1, 0, 64);
		ck_assert_uint_eq(sent_bytes, 24 + 64);
	}
	ck_assert_uint_eq(fake[0].inlined, 3);
	settle();
	ck_assert_uint_eq(get(1, 0, SIZE), 64);
	for (int i = 0; i < 3; i++) {	/* credits */
		put(1, 1, SIZE);
		settle();
		ck_assert_uint_eq(get(1, 1, SIZE), SIZE);
		settle();
		ck_assert_int_eq(ring_tx_refresh(&dir[1][1].tx), 0);
		ck_assert_uint_eq(dir[1][1].tx.rd, far + (uint64_t)(i + 1) * SIZE);
	}
	ring_rx_open(&dir[1][1].rx, far + (3ull << 30));	/* as by TCP */
	ring_tx_open(&dir[1][1].tx, ++dir[1][1].epoch, far + (3ull << 30));
	put(1, 0, 1);
	settle();
	ck_assert_int_eq(ring_tx_refresh(&dir[1][1].tx), 0);
	ck_assert_uint_eq(atomic_load(&dir[1][1].tx.sh->rd), far + (3ull << 30));
	atomic_store(&dir[1][0].tx.sh->final, dir[1][0].tx.wr);
	rc_publish(end[0].rc, 1);
	settle();
	ck_assert_uint_eq(atomic_load(&dir[1][0].rx.sh->final), dir[1][0].tx.wr);
	ck_assert_int_eq(end[0].died + end[1].died, 0);
}
END_TEST

/* Streams that have one message each, and a device that needs a round trip: nobody waits for it,
 * nor wants to hear of it. */
START_TEST(many_streams)
{
	unsigned sends = fake[0].sends, notifies = fake[0].notifies;

	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(put(i, 0, 64), 64);
	ck_assert_uint_eq(fake[0].sends - sends, SLOTS);
	ck_assert_uint_eq(fake[0].notifies, notifies);
	settle();
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(get(i, 0, SIZE), 64);
}
END_TEST

/* Where the device is done at once, what bounds a stream of small messages is how fast the peer
 * takes them up: those that come meanwhile travel together, and nothing is left when it has. */
START_TEST(flow)
{
	unsigned before = fake[0].sends;

	for (int i = 0; i < 60; i++) {
		ck_assert_uint_eq(put(2, 0, 64), 64);
		fake_run();
		rc_poll(end[0].rc);
	}
	ck_assert_uint_le(fake[0].sends - before, 5);
	rc_poll(end[1].rc);		/* takes up, and says so */
	for (int i = 0; i < 3; i++) {	/* what waits goes by events alone */
		fake_run();
		background(0);
	}
	ck_assert_uint_le(fake[0].sends - before, 7);
	rc_poll(end[1].rc);
	ck_assert_uint_eq(get(2, 0, SIZE), 60 * 64);
	/* The end of a stream, a credit and other streams do not wait. */
	settle();
	for (int i = 0; i < 20; i++) {
		put(2, 0, 64);
		fake_run();
		rc_poll(end[0].rc);
	}
	put(3, 0, 100);
	atomic_store(&end[0].a.slot[2].dir[0].final, dir[2][0].tx.wr);
	rc_publish(end[0].rc, 2);
	fake_run();
	rc_poll(end[1].rc);
	ck_assert_uint_eq(get(3, 0, SIZE), 100);
	ck_assert_uint_eq(get(2, 0, SIZE), 20 * 64);
}
END_TEST

/* Who waits for an answer each time, or writes a few before he does, sends at once. */
START_TEST(no_flow)
{
	unsigned before;

	for (int i = 0; i < 50; i++)
		for (unsigned s = 0; s < 2; s++) {
			before = fake[s].sends;
			for (int k = 0; k < 3; k++) {
				put(2, s, 64);
				fake_run();
				rc_poll(end[s].rc);
			}
			rc_poll(end[!s].rc);
			ck_assert_uint_eq(get(2, s, SIZE), 3 * 64);
			ck_assert_uint_eq(fake[s].sends - before, 3);
			rc_poll(end[s].rc);
		}
}
END_TEST

/* A reader that never polls: the peer's window closes, nothing is lost, RNR never happens. */
START_TEST(window)
{
	for (int k = 0; k < 3000; k++) {
		put((uint32_t)k % SLOTS, 0, 20);	/* alone: not collected */
		fake_step(&fake[0]), fake_step(&fake[0]), fake_step(&fake[0]);
		rc_poll(end[0].rc);
	}
	ck_assert_uint_eq(fake[0].rnr, 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		for (int k = 0; k < 20; k++) {
			settle();
			get(i, 0, SIZE);
		}
	for (uint32_t i = 0; i < SLOTS; i++)
		ck_assert_uint_eq(dir[i][0].rx.rd, dir[i][0].tx.wr);
}
END_TEST

/* n bytes from end 0, whose completion is seen after `ns`, and an answer, which acknowledges the
 * record. */
static void round_trip_of(uint64_t n, uint64_t ns)
{
	ck_assert_uint_eq(put(0, 0, n), n);
	fake_run();
	clock_ns += ns;
	rc_poll(end[0].rc);
	settle();
	ck_assert_uint_eq(get(0, 0, n), n);
	ck_assert_uint_eq(put(0, 1, 1), 1);
	settle();
	ck_assert_uint_eq(get(0, 1, 1), 1);
	settle();
}

/* Each trip takes so long, until one has been timed. */
static void until_timed(uint64_t ns, unsigned tries)
{
	end[0].rtt = 0;
	while (!end[0].rtt) {
		ck_assert_uint_gt(tries--, 0);
		round_trip_of(10, ns);
	}
}

START_TEST(round_trip)
{
	static const struct { uint32_t ns, shown; } first[] = { { 900, 900 }, { 700, 700 },
								{ 800, 700 }, { 5000000, 700 },
									{ 750, 700 }, { 710, 700 },
										{ 720, 700 }, { 730,
											700 } };

	clock_ns = 1000000000;
	round_trip_of(1000, 3);		/* a WRITE before the record */
	ck_assert_uint_eq(end[0].rtt, 0);
	ck_assert_uint_eq(put(1, 0, 1000), 1000);	/* and something before it */
	round_trip_of(10, 3);
	ck_assert_uint_eq(end[0].rtt, 0);
	ck_assert_uint_eq(get(1, 0, 1000), 1000);
	for (unsigned taken = 0; taken < 8; taken++) {
		until_timed(first[taken].ns, 20);
		ck_assert_uint_eq(end[0].rtt, first[taken].shown);
	}
	for (int i = 0; i < 900; i++) {		/* from now on seldom */
		round_trip_of(10, 1);
		ck_assert_uint_eq(end[0].rtt, 700);
	}
	for (int k = 0; k < 8; k++)
		until_timed(990 + k, 1100);
	ck_assert_uint_eq(end[0].rtt, 700);	/* of those before */
	until_timed(5ull << 32, 1100);
	ck_assert_uint_eq(end[0].rtt, 990);
	for (int k = 0; k < 8; k++)
		until_timed(5ull << 32, 1100);
	ck_assert_uint_eq(end[0].rtt, UINT32_MAX);
	clock_ns = 0;
}
END_TEST

START_TEST(wakes)
{
	struct segment_slot_side *mine = &end[1].a.slot[3].side[1];

	atomic_store(&mine->bells, 6);
	atomic_store(&mine->epolls, 1);
	atomic_store(&end[1].a.side[1].armed, 4);
	rc_arm(end[1].rc);
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	ck_assert(background(1));
	ck_assert_uint_eq(end[1].rung, 4);
	ck_assert_uint_eq(atomic_load(&end[1].a.side[1].dirty[0]), 8);
	ck_assert_uint_eq(atomic_load(&end[1].a.side[0].dirty[0]), 0);
}
END_TEST

/* Who sleeps is not woken when his own records have gone, nor by the peer's word that it has
 * taken them up; unless something waits for that. An error wakes. */
START_TEST(wakes_who_waits)
{
	rc_arm_own(end[0].rc);
	for (uint32_t i = 0; i < 32; i++)
		put(i % SLOTS, 0, 64);
	settle();
	rc_arm_own(end[0].rc);
	rc_try(end[1].rc);		/* a record that only acknowledges */
	fake_run();
	ck_assert_uint_gt(fake[0].wc_tail - fake[0].wc_head, 0);
	ck_assert_uint_eq(fake[0].events, 0);
	put(2, 1, 1);
	fake_run();
	ck_assert_uint_eq(fake[0].events, 1);
	rc_event(end[0].rc);
	rc_poll(end[0].rc);
	rc_arm_own(end[0].rc);
	for (int i = 0; i < 300; i++)	/* more than can be posted */
		put((uint32_t)i % SLOTS, 0, 1);
	ck_assert(rc_waits(end[0].rc));
	fake_step(&fake[0]);
	for (int i = 0; i < 20; i++)
		fake_step(&fake[0]);
	ck_assert_uint_eq(fake[0].events, 1);
	settle();
	rc_arm_own(end[0].rc);
	fake[0].events = 0;
	fake_break(&fake[0]);
	ck_assert_uint_eq(fake[0].events, 1);
}
END_TEST

/* A device of iWARP's may bring no event for what is solicited alone. */
START_TEST(wakes_all)
{
	rc_release(end[0].rc);
	fake[0].dev.transport_type = IBV_TRANSPORT_IWARP;
	ck_assert_int_eq(rc_open(end[0].rc, &fake[0].id), 0);
	rc_arm_own(end[0].rc);
	ck_assert_uint_eq(fake[0].armed, FAKE_ARMED);
}
END_TEST

/* A record that is late for an earlier stream of the slot changes nothing. */
START_TEST(lives)
{
	put(4, 0, 100);
	bind_slot(4, 2);	/* while it is in the queue */
	settle();
	ck_assert_uint_eq(atomic_load(&end[1].a.slot[4].dir[0].wr), 0);
	open_dir(4, 0, 0);
	put(4, 0, 50);
	settle();
	ck_assert_uint_eq(get(4, 0, SIZE), 50);
	rc_slot_unbind(end[1].rc, 4);
	put(4, 0, 50);
	settle();
	ck_assert_uint_eq(get(4, 0, SIZE), 0);
	ck_assert_int_eq(end[1].died, 0);
}
END_TEST

/* An event that nobody had taken up yet when the next publication had to wait: what waits goes
 * all the same. */
START_TEST(event_is_late)
{
	for (int i = 0; i < 8; i++)
		put(6, 0, 64);		/* the later ones wait, armed */
	fake_run();			/* the event is there */
	ck_assert_uint_ge(fake[0].events, 1);
	rc_poll(end[0].rc);		/* somebody else takes the completions */
	for (int i = 0; i < 8; i++)
		put(6, 0, 64);
	background(0);			/* only now the event; nothing to take */
	for (int i = 0; i < 4; i++) {	/* from here only what events bring */
		fake_run();
		background(0);
		rc_poll(end[1].rc);
	}
	ck_assert_uint_eq(get(6, 0, SIZE), 16 * 64);
}
END_TEST

/* An event that a sleeper asked for, for himself, who then left: what has to wait afterwards
 * asks for the background thread. */
START_TEST(event_was_anothers)
{
	rc_arm_own(end[0].rc);
	ck_assert(!end[0].watched);
	for (int i = 0; i < 16; i++)
		put(6, 0, 64);
	ck_assert(end[0].watched);
	for (int i = 0; i < 4; i++) {
		fake_run();
		background(0);
		rc_poll(end[1].rc);
	}
	ck_assert_uint_eq(get(6, 0, SIZE), 16 * 64);
}
END_TEST

/* Of two who come for one event the second changes nothing: the first may have armed again by
 * then. */
START_TEST(event_for_two)
{
	rc_arm_own(end[1].rc);
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	rc_event(end[1].rc);
	rc_poll(end[1].rc);
	rc_arm_own(end[1].rc);
	rc_event(end[1].rc);		/* late */
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	rc_event(end[1].rc);
	rc_poll(end[1].rc);
	ck_assert_uint_eq(get(3, 0, SIZE), 10);
	rc_arm_own(end[1].rc);		/* and who is late did not make it look unarmed: one
					 * event for each arming */
	rc_event(end[1].rc);
	ck_assert_uint_eq(fake[1].armed, 1);
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 3);
}
END_TEST

/* Another thread that goes to sleep here while the request of the first is under way: it must
 * not take it for made. */
static void second_sleeper(void)
{
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].armed, 1);
}

START_TEST(event_for_two_at_once)
{
	on_notify = second_sleeper;
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 2);
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 2);
	put(3, 0, 5);
	fake_run();
	ck_assert_uint_eq(fake[1].events, 1);
	rc_event(end[1].rc);
	rc_arm_own(end[1].rc);
	ck_assert_uint_eq(fake[1].notifies, 3);
}
END_TEST

static void lie(const void *rec, uint32_t len)
{
	static uint8_t mem[1024];
	struct ibv_sge sge = { (uintptr_t)mem, len, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	memcpy(mem, rec, len < 512 ? len : 512);
	ck_assert_int_eq(fake_post_send(&fake[0].qp, &wr, &bad), 0);
	fake_run();
	rc_poll(end[1].rc);
}

static const struct { struct rc_rec rec; uint32_t len; } lies[] = {
	{ { .slot = SLOTS, .life = 1 }, 40 },			/* no such slot */
	{ { .slot = 0xfffe, .life = 1 }, 40 },
	{ { .slot = 0, .life = 1, .len = 1 }, 40 },		/* more payload than came */
	{ { .slot = 0, .life = 1, .len = 0 }, 41 },		/* less */
	{ { .slot = 0, .life = 1, .len = 0xffff }, 512 },
	{ { .slot = 0, .life = 1 }, 39 },			/* cut short */
	{ { .slot = 0, .life = 1 }, 0 },
	{ { .slot = 0, .life = 1, .flags = RC_SHORT }, 23 },
	{ { .slot = 0, .life = 1, .flags = RC_SHORT }, 40 },
	{ { .slot = 0, .life = 1, .flags = RC_SHORT, .len = 16 }, 24 },
	{ { .slot = 3, .life = 1, .wr = 100, .flags = RC_SHORT | RC_DEVICE }, 24 },
	{ { .slot = 0, .life = 1, .acked = 1 }, 40 },		/* more than we ever sent */
	{ { .slot = RC_NO_SLOT, .acked = 0x80000000u }, 40 },
	/* a large ring that it was not given */
	{ { .slot = 0, .life = 1, .large = LARGE }, 40 },
	{ { .slot = 1, .life = 1, .large = 1 }, 40 },		/* slot 1 was, but not like that */
	{ { .slot = 1, .life = 1, .large = SIZE }, 40 },
	{ { .slot = 1, .life = 1, .large = LARGE - 1 }, 40 },
	{ { .slot = 1, .life = 1, .large = 2 * LARGE }, 40 },
	{ { .slot = 2, .life = 1, .large = LARGE / 2 }, 40 },	/* slot 2 uses more already */
	{ { .slot = 2, .life = 1, .large = 0 }, 40 },
	/* device memory that it was not given */
	{ { .slot = 3, .life = 1, .wr = 100, .flags = RC_DEVICE }, 40 },
	/* slot 4 was, but not for this */
	{ { .slot = 4, .life = 1, .wr = 100, .flags = RC_DEVICE, .len = 8 }, 48 },
};

START_TEST(liars)
{
	uint8_t buf[512] = { 0 };

	fake_sent = NULL;
	grow(1, 0);
	grow(2, 0);
	ck_assert(grow(2, 0));
	put(2, 0, 64);
	give_landing(4, 0);
	settle();
	ck_assert_int_eq(end[1].died, 0);
	memcpy(buf, &lies[_i].rec, sizeof lies[_i].rec);
	lie(buf, lies[_i].len);
	ck_assert_int_eq(end[1].died, 1);
	ck_assert(rc_dead(end[1].rc));
}
END_TEST

/* A peer that gives credit for what it was not told of yet: it loses the path, and nothing is
 * written where it does not belong. */
START_TEST(credit_before_told)
{
	struct dir *d = &dir[0][1];
	struct rc_rec r = { .slot = 0, .life = 1 };
	struct rc_counts c;

	/* nothing is acknowledged: soon nothing can be told */
	for (unsigned n = 0; n < 300 && !end[1].died; n++) {
		put(0, 1, SIZE);
		fake_run();
		rc_poll(end[1].rc);
		r.rd = d->tx.wr;
		lie(&r, sizeof r);
	}
	rc_counts(end[1].rc, &c);
	r.acked = (uint32_t)c.records;
	if (!end[1].died)
		lie(&r, sizeof r);
	ck_assert_int_eq(end[1].died, 1);
}
END_TEST

/* The sender uses as little of a large ring as it may, its program asks first whether it is
 * writable (a quarter is free, stream_view.c), and the reader reads all. */
START_TEST(little_use)
{
	struct dir *d = &dir[0][0];
	uint64_t limit = 2 * rc_credit_step(LARGE, SIZE), used;

	ck_assert(!grow(0, 0));
	ck_assert(grow(0, 0));
	d->tx.unused = LARGE - limit;
	for (int i = 0; i < 500; i++) {
		ck_assert_int_eq(ring_tx_refresh(&d->tx), 0);
		used = d->tx.wr - d->tx.rd;
		ck_assert_uint_ge(limit - used, limit / 4);
		ck_assert_uint_eq(put(0, 0, 300), 300);
		settle();
		while (get(0, 0, SIZE))
			;
		settle();
	}
}
END_TEST

/* Cursors that cannot be are not this layer's to judge, but may do no harm, and the ring refuses
 * them. */
START_TEST(wild_cursors)
{
	static const uint64_t wild[] = { UINT64_MAX, UINT64_MAX - 3, 1ull << 63, SIZE * 2 + 1 };

	for (unsigned i = 0; i < 4; i++) {
		uint8_t buf[512] = { 0 };
		struct rc_rec r = { .slot = 0, .life = 1, .len = 472, .wr = wild[i], .rd = wild[i],
				    .final = RING_NO_FINAL };

		memcpy(buf, &r, sizeof r);
		lie(buf, 512);
	}
	ck_assert_int_eq(end[1].died, 0);
	ck_assert_int_eq(ring_rx_refresh(&dir[0][0].rx), -EPROTO);
	ck_assert_int_eq(ring_tx_refresh(&dir[0][1].tx), -EPROTO);
}
END_TEST

/* The peer reaches landing rings of bound slots and nothing else of ours. */
START_TEST(reach)
{
	struct segment *a = &end[1].a;

	grow(0, 0);
	grow(0, 1);
	for (unsigned i = 0; i < fake[1].mrs; i++) {
		uint8_t *p = fake[1].mr[i].mr.addr;
		bool landing = false;

		for (uint32_t k = 0; k < SLOTS; k++)
			landing |= p == a->ring + 2ull * k * SIZE &&
				   fake[1].mr[i].mr.length == SIZE;
		landing |= p == dir[0][0].rx.large;
		ck_assert_int_eq(!!(fake[1].mr[i].access & IBV_ACCESS_REMOTE_WRITE), landing);
		ck_assert(!(fake[1].mr[i].access &
			    (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)));
	}
	ck_assert_uint_le(rc_registered(end[1].rc), SLOTS * 2 * SIZE + 2 * LARGE + 512 * 1024);
}
END_TEST

START_TEST(dies)
{
	put(5, 0, 3000);
	fake_break(&fake[0]);
	rc_poll(end[0].rc);
	ck_assert_int_eq(end[0].died, 1);
	ck_assert(rc_dead(end[0].rc));
	ck_assert_uint_eq(put(5, 0, 100), 100);		/* no crash, the bytes stay held */
	ck_assert_uint_eq(dir[5][0].tx.wr - dir[5][0].tx.rd, 3100);
	rc_credit(end[0].rc, 5);
	rc_arm(end[0].rc);
	ck_assert(!rc_poll(end[0].rc));
	rc_kill(end[1].rc);
	ck_assert_int_eq(end[1].died, 1);
	rc_kill(end[1].rc);
	ck_assert_int_eq(end[1].died, 1);	/* told once */
}
END_TEST

/* The device may go while somebody still waits for the peer: all that is the device's is given
 * back, and what is left can be called. */
START_TEST(lets_go)
{
	const uint8_t *ring;
	uint8_t *mine;
	uint64_t addr = 0;
	uint32_t key = 0;

	put(5, 0, 3000);
	settle();
	grow(5, 0);
	ck_assert(grow(5, 0));
	put(5, 0, 3000);
	for (int s = 0; s < 2; s++) {
		struct rc *rc = end[s].rc;

		rc_kill(rc);
		rc_release(rc);
		ck_assert_int_eq(end[s].died, 1);
		for (unsigned i = 0; i < fake[s].mrs; i++)
			ck_assert(!fake[s].mr[i].live);
		ck_assert_ptr_null(fake[s].id.qp);
		ck_assert_int_eq(rc_fd(rc), -1);
		ck_assert_uint_eq(rc_registered(rc), 0);
		ck_assert_str_eq(rc_device(rc), "");
		ck_assert_uint_eq(rc_mtu(rc), 0);
		ck_assert(!rc_poll(rc));
		rc_arm(rc);
		rc_arm_own(rc);
		rc_event(rc);
		rc_credit(rc, 5);
		rc_kill(rc);
		ck_assert(!rc_waits(rc));
		ck_assert_int_eq(rc_slot_bind(rc, 6, 2, &addr, &key), -ENETDOWN);
		rc_slot_peer(rc, 6, 0, 0);
		ck_assert_uint_eq(rc_large_land(rc, 3, &ring, &addr, &key), 0);
		ck_assert_int_eq(rc_large_peer(rc, 3, LARGE, addr, key, &mine), 0);
		rc_slot_unbind(rc, 5);
		rc_slot_left(rc, 5);
	}
	ck_assert_int_eq(fake_made, 0);
	/* what is not consumed is held still */
	for (uint64_t at = dir[5][0].tx.rd; at < dir[5][0].tx.wr; at++) {
		size_t n;

		ck_assert_uint_eq(*ring_tx_held(&dir[5][0].tx, at, &n), pattern(5, 0, at));
	}
	ck_assert_uint_eq(put(4, 0, 100), 100);
}
END_TEST

/* A dead queue pair is noticed by posting alone too. */
START_TEST(dies_posting)
{
	fake[0].broken = true;
	put(5, 0, 3000);
	ck_assert_int_eq(end[0].died, 1);
}
END_TEST

static void looks(enum rc_looks want, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(rc_look(end[0].rc), want);
}

/* A device that is given something, completes nothing and reports nothing, is found out; only
 * looks that find nothing new in a row count. */
START_TEST(stuck)
{
	put(5, 0, 3000);
	ck_assert_int_eq(end[0].busy, 1);
	put(6, 0, 3000);
	ck_assert_int_eq(end[0].busy, 1);
	looks(RC_BUSY, RC_LOOKS - 1);
	fake_run();
	looks(RC_IDLE, 1);	/* after that it is told of anew */
	ck_assert(!rc_busy(end[0].rc));
	put(5, 0, 3000);
	ck_assert_int_eq(end[0].busy, 2);
	looks(RC_BUSY, RC_LOOKS - 1);
	looks(RC_STUCK, 1);
	ck_assert_int_eq(end[0].died, 0);	/* the caller's part */
}
END_TEST

/* What bears no completion of its own does not make a queue pair that is well look stuck:
 * something that bears one follows, once. */
START_TEST(unsignalled)
{
	unsigned sends;

	settle();
	for (int i = 0; i < 40; i++) {
		put(5, 0, 300);
		settle();
		get(5, 0, SIZE);
		settle();
	}
	for (int i = 0; rc_look(end[0].rc) != RC_IDLE && i < 3; i++)
		fake_run();
	put(5, 0, 3000);
	fake_run();
	sends = fake[0].sends;
	ck_assert_int_eq(rc_look(end[0].rc), RC_BUSY);	/* or the test tests nothing */
	ck_assert_uint_eq(fake[0].sends, sends + 1);
	fake_run();
	looks(RC_IDLE, 3);
	ck_assert_uint_eq(fake[0].sends, sends + 1);
}
END_TEST

/* A peer that is stopped takes nothing up; its device completes all the same, so that the queue
 * pair does not look stuck. */
START_TEST(peer_stopped)
{
	for (int i = 0; i < 3 * RC_RECVS; i++) {
		put(5, 0, 16);
		fake_run();
		rc_poll(end[0].rc);
		dir[5][0].tx.rd = dir[5][0].tx.wr;	/* as if it were read: a ring's room is
							 * not the matter */
		looks(rc_look(end[0].rc), 1);
	}
	for (int i = 0; i < 2 * RC_LOOKS; i++) {
		ck_assert_int_ne(rc_look(end[0].rc), RC_STUCK);
		fake_run();
	}
}
END_TEST

/* Whatever the device refuses, be it for a limit on locked memory or of its own: an error, and
 * nothing is left behind. */
START_TEST(refused)
{
	struct rc_conf c = { .ring = ring, .died = died, .busy = busy, .watch = watch,
			     .arg = &end[0] };
	struct rdma_cm_id id = { .verbs = &fake[0].ctx };
	uint64_t addr;
	uint32_t key;
	int made = fake_made, r = -1;
	unsigned n;

	for (n = 1; r; n++) {
		struct rc *rc = rc_new(&end[0].a, &c);

		ck_assert_ptr_nonnull(rc);
		errno = 0;
		fake_fail = n;
		r = rc_open(rc, &id);
		ck_assert(r == 0 || r == -ENOMEM);
		for (unsigned k = 1; !r && k <= 3; k++) {	/* two regions */
			fake_fail = k;
			errno = 0;
			ck_assert_int_eq(rc_slot_bind(rc, 3, 1, &addr, &key), k <= 2 ? -ENOMEM : 0);
		}
		rc_close(rc);
		ck_assert_ptr_null(id.qp);
		ck_assert_int_eq(fake_made, made);
	}
	ck_assert_uint_eq(n, 7);	/* for all of the five: domain, memory, channel, queue,
					 * queue pair */
}
END_TEST

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
