/*
 * test_ring.c - the shared rings and the segment that they lie in: wrap, cursors that lie,
 * segments that are none, and two threads on two mappings with sleeps, of which no wake-up may
 * be lost.
 *
 * LINK: rdma/shm/segment.c
 * TIMEOUT: 60
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "../../rdma/shm/segment.h"

#define SIZE 4096
#define LARGE (4 * SIZE)
#define SLOTS 8

static struct segment a0, a1;
static int memfd;

/* As soon as the addresses are free another thread may fork, and the child releases what it
 * finds in its segments. */
static const struct segment *watched;
static bool named;
int munmap(void *p, size_t n)
{
	if (watched && watched->base == p)
		named = true;
	return (int)syscall(SYS_munmap, p, n);
}

static void two_maps(void)
{
	ck_assert_int_eq(segment_create(&a0, SLOTS, SIZE, LARGE, &memfd), 0);
	ck_assert_int_eq(segment_attach(&a1, memfd), 0);
	ck_assert_ptr_ne(a0.base, a1.base);
}

static void unmap_both(void)
{
	segment_unmap(&a0);
	segment_unmap(&a1);
	close(memfd);
}

static uint8_t byte_at(uint64_t off)
{
	return (uint8_t)(off * 2654435761u >> 13 ^ off);
}

/* ---- rings ---- */

static void open_at(uint64_t cut, struct ring_tx *tx, struct ring_rx *rx)
{
	segment_slot_reset(&a0, 3);
	segment_ring_tx(&a0, 3, tx);
	segment_ring_rx(&a1, 3, rx);
	ring_tx_open(tx, 1, cut);
	ring_rx_open(rx, cut);
}

/* Chunks of all lengths around the size, so that every position is once a wrap. */
START_TEST(wraps)
{
	uint8_t in[SIZE], out[SIZE];
	struct ring_tx tx;
	struct ring_rx rx;
	uint64_t at = 0xfffffffe;	/* across 2^32 too */

	open_at(at, &tx, &rx);
	for (unsigned n = 1; n <= SIZE; n += n < 8 || n > SIZE - 8 ? 1 : 61) {
		for (unsigned i = 0; i < n; i++)
			in[i] = byte_at(at + i);
		ck_assert_int_eq(ring_tx_refresh(&tx), 0);
		ck_assert_uint_eq(ring_tx_room(&tx), SIZE);
		ring_tx_copy(&tx, 0, in, n / 2);
		ring_tx_copy(&tx, n / 2, in + n / 2, n - n / 2);
		ck_assert_int_eq(ring_rx_refresh(&rx), 0);
		ck_assert_uint_eq(ring_rx_avail(&rx), 0);	/* not yet published */
		ring_tx_publish(&tx, n);
		ck_assert_uint_eq(ring_tx_room(&tx), SIZE - n);
		ck_assert_int_eq(ring_rx_refresh(&rx), 0);
		ck_assert_uint_eq(ring_rx_avail(&rx), n);
		memset(out, 0, sizeof out);
		ring_rx_copy(&rx, n / 3, out + n / 3, n - n / 3);
		ring_rx_copy(&rx, 0, out, n / 3);
		ck_assert_mem_eq(in, out, n);
		ring_rx_consume(&rx, n);
		at += n;
	}
	ck_assert_uint_eq(rx.rd, at);
}
END_TEST

static void put_bytes(struct ring_tx *tx, size_t n)
{
	uint8_t in[LARGE];

	for (size_t i = 0; i < n; i++)
		in[i] = byte_at(tx->wr + i);
	ring_tx_copy(tx, 0, in, n);
	ring_tx_publish(tx, n);
}

static void take_bytes(struct ring_rx *rx, size_t n)
{
	uint8_t out[LARGE];

	ck_assert_int_eq(ring_rx_refresh(rx), 0);
	ck_assert_uint_ge(ring_rx_avail(rx), n);
	ring_rx_copy(rx, 0, out, n);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(out[i], byte_at(rx->rd + i));
	ring_rx_consume(rx, n);
}

/* From small to large at every position of both, and what a rewind would send again from there. */
START_TEST(enlarges)
{
	struct ring_tx tx;
	struct ring_rx rx;

	for (uint64_t cut = 7; cut < 3 * LARGE; cut += 509) {
		const uint8_t *p;
		size_t n;

		open_at(cut, &tx, &rx);
		put_bytes(&tx, 1000);
		take_bytes(&rx, 1000);
		ck_assert_int_eq(ring_tx_refresh(&tx), 0);
		ring_tx_enlarge(&tx, LARGE / 2);
		ck_assert_uint_eq(ring_tx_room(&tx), LARGE / 2);
		put_bytes(&tx, LARGE / 2);
		take_bytes(&rx, LARGE / 2);
		ck_assert_int_eq(ring_tx_refresh(&tx), 0);
		ring_tx_enlarge(&tx, LARGE);
		ck_assert_uint_eq(ring_tx_room(&tx), LARGE);
		put_bytes(&tx, LARGE);
		p = ring_tx_held(&tx, tx.rd, &n);
		ck_assert(p >= tx.buf && p + n <= tx.buf + LARGE && p[0] == byte_at(tx.rd) &&
			  p[n - 1] == byte_at(tx.rd + n - 1));
		take_bytes(&rx, LARGE - 10);
		ck_assert_int_eq(ring_tx_refresh(&tx), 0);
		put_bytes(&tx, 100);
		take_bytes(&rx, 110);
		ck_assert_uint_eq(rx.rd, tx.wr);
	}
}
END_TEST

/* The same while the small one holds unread bytes: those stay there, for the reader and for a
 * rewind, and the large one is all room. */
START_TEST(enlarges_unread)
{
	for (uint64_t cut = 7; cut < 3 * LARGE; cut += 4999) {
		uint8_t peeked[2 * LARGE];
		struct ring_tx tx;
		struct ring_rx rx;
		uint64_t unread = (cut * 7) % SIZE + 1, at;
		size_t n;

		open_at(cut, &tx, &rx);
		put_bytes(&tx, 1000);
		take_bytes(&rx, 1000);
		ck_assert_int_eq(ring_tx_refresh(&tx), 0);
		put_bytes(&tx, unread);
		if (cut & 1)
			ck_assert_int_eq(ring_rx_refresh(&rx), 0);
		ring_tx_enlarge(&tx, LARGE);
		ck_assert_uint_eq(ring_tx_room(&tx), LARGE);
		put_bytes(&tx, LARGE);
		ck_assert_uint_eq(ring_tx_room(&tx), 0);
		ck_assert_int_eq(ring_rx_refresh(&rx), 0);
		ck_assert_uint_eq(ring_rx_avail(&rx), unread + LARGE);
		ring_rx_copy(&rx, 0, peeked, unread + LARGE);
		for (n = 0; n < unread + LARGE; n++)
			ck_assert_uint_eq(peeked[n], byte_at(rx.rd + n));
		for (at = tx.rd; at < tx.wr; at += n) {
			const uint8_t *p = ring_tx_held(&tx, at, &n);

			ck_assert_uint_gt(n, 0);
			for (size_t i = 0; i < n; i++)
				ck_assert_uint_eq(p[i], byte_at(at + i));
		}
		ck_assert_uint_eq(at, tx.wr);
		take_bytes(&rx, unread);
		ck_assert_int_eq(ring_tx_refresh(&tx), 0);
		ck_assert_uint_eq(ring_tx_room(&tx), 0);	/* those were not the large one's */
		take_bytes(&rx, LARGE - 10);
		ck_assert_int_eq(ring_tx_refresh(&tx), 0);
		put_bytes(&tx, 100);
		take_bytes(&rx, 110);
		ck_assert_uint_eq(rx.rd, tx.wr);
	}
}
END_TEST

/* The receiver's side of it: from where it has not been told of bytes yet, once, and nothing
 * beyond the end. */
START_TEST(enlarge_lies)
{
	struct ring_tx tx;
	struct ring_rx rx;

	static const uint64_t from[] = { 0, 7000, 7098, 7099, 7099 + SIZE + 1, 7100 + LARGE };
	static const uint32_t no[] = { 1, SIZE / 2, SIZE, SIZE + 4, LARGE - 1, LARGE + 1, 2 * LARGE,
				       UINT32_MAX, 1u << 31 };

	open_at(7000, &tx, &rx);
	put_bytes(&tx, 100);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	ring_rx_consume(&rx, 99);
	atomic_store(&tx.sh->large, LARGE);
	for (unsigned i = 0; i < sizeof from / sizeof from[0]; i++) {
		atomic_store(&tx.sh->large_from, from[i]);
		atomic_store(&tx.sh->wr, 7100 + LARGE);
		ck_assert_int_eq(ring_rx_refresh(&rx), -EPROTO);
		ck_assert_uint_eq(ring_rx_avail(&rx), 1);
	}
	atomic_store(&tx.sh->large_from, 7102);		/* not reached yet: so far it is the
							 * small one */
	atomic_store(&tx.sh->wr, 7101);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	ck_assert_uint_eq(ring_rx_avail(&rx), 2);
	ck_assert_uint_eq(rx.size, SIZE);
	atomic_store(&tx.sh->wr, 7103);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	ck_assert_uint_eq(rx.size, LARGE);

	open_at(7000, &tx, &rx);		/* more of the large one only while it is empty */
	atomic_store(&tx.sh->large, LARGE / 2);
	atomic_store(&tx.sh->large_from, 7000);
	atomic_store(&tx.sh->wr, 7010);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	atomic_store(&tx.sh->large, LARGE);
	atomic_store(&tx.sh->large_from, 7010);
	atomic_store(&tx.sh->wr, 7011);
	ck_assert_int_eq(ring_rx_refresh(&rx), -EPROTO);

	for (unsigned i = 0; i < sizeof no / sizeof no[0]; i++) {
		open_at(7000, &tx, &rx);
		atomic_store(&tx.sh->large, no[i]);
		atomic_store(&tx.sh->large_from, 7000);
		atomic_store(&tx.sh->wr, 7001);
		ck_assert_int_eq(ring_rx_refresh(&rx), -EPROTO);
		ck_assert_uint_eq(ring_rx_avail(&rx), 0);
	}

	open_at(7000, &tx, &rx);
	atomic_store(&tx.sh->large, LARGE);
	atomic_store(&tx.sh->large_from, 7000);
	atomic_store(&tx.sh->wr, 7000 + LARGE);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	ck_assert_uint_eq(ring_rx_avail(&rx), LARGE);
	ring_rx_consume(&rx, LARGE);
	atomic_store(&tx.sh->wr, 7001 + 2 * LARGE);
	ck_assert_int_eq(ring_rx_refresh(&rx), -EPROTO);
	atomic_store(&tx.sh->large, LARGE / 2);		/* never back */
	atomic_store(&tx.sh->wr, 7001 + LARGE);
	ck_assert_int_eq(ring_rx_refresh(&rx), -EPROTO);
	atomic_store(&tx.sh->large, 0);
	ck_assert_int_eq(ring_rx_refresh(&rx), -EPROTO);

	open_at(7000, &tx, &rx);
	rx.large_size = 0;		/* a link without them */
	atomic_store(&tx.sh->large, LARGE);
	atomic_store(&tx.sh->large_from, 7000);
	atomic_store(&tx.sh->wr, 7001);
	ck_assert_int_eq(ring_rx_refresh(&rx), -EPROTO);
}
END_TEST

/* What a rewind resends: all of [off, wr), in at most two chunks. */
START_TEST(held)
{
	uint8_t in[SIZE];
	struct ring_tx tx;
	struct ring_rx rx;
	uint64_t off = 5 * SIZE - 100;
	const uint8_t *p;
	size_t n;

	open_at(off, &tx, &rx);
	for (unsigned i = 0; i < SIZE; i++)
		in[i] = byte_at(off + i);
	ring_tx_copy(&tx, 0, in, SIZE);
	ring_tx_publish(&tx, SIZE);
	p = ring_tx_held(&tx, off, &n);
	ck_assert_uint_eq(n, 100);
	ck_assert_mem_eq(p, in, 100);
	p = ring_tx_held(&tx, off + 100, &n);
	ck_assert_uint_eq(n, SIZE - 100);
	ck_assert_mem_eq(p, in + 100, SIZE - 100);
	p = ring_tx_held(&tx, off + SIZE - 1, &n);
	ck_assert_uint_eq(n, 1);
}
END_TEST

/* The receiver's cursor as the sender must take it. */
START_TEST(credit_lies)
{
	uint8_t some[1000] = { 0 };
	struct ring_tx tx;
	struct ring_rx rx;

	open_at(7000, &tx, &rx);
	ring_tx_copy(&tx, 0, some, sizeof some);
	ring_tx_publish(&tx, sizeof some);
	atomic_store(&rx.sh->rd, 7500);
	ck_assert_int_eq(ring_tx_refresh(&tx), 0);
	ck_assert_uint_eq(ring_tx_room(&tx), SIZE - 500);
	atomic_store(&rx.sh->rd, 7499);		/* stale: no error, and no room is lost or won */
	ck_assert_int_eq(ring_tx_refresh(&tx), 0);
	ck_assert_uint_eq(ring_tx_room(&tx), SIZE - 500);
	atomic_store(&rx.sh->rd, 0);
	ck_assert_int_eq(ring_tx_refresh(&tx), 0);
	ck_assert_uint_eq(ring_tx_room(&tx), SIZE - 500);
	atomic_store(&rx.sh->rd, 8001);		/* one more than was ever sent */
	ck_assert_int_eq(ring_tx_refresh(&tx), -EPROTO);
	atomic_store(&rx.sh->rd, UINT64_MAX);
	ck_assert_int_eq(ring_tx_refresh(&tx), -EPROTO);
	ck_assert_uint_eq(ring_tx_room(&tx), SIZE - 500);
	atomic_store(&rx.sh->rd, 8000);
	ck_assert_int_eq(ring_tx_refresh(&tx), 0);
	ck_assert_uint_eq(ring_tx_room(&tx), SIZE);
	atomic_store(&tx.sh->wr, 1);		/* the receiver overwrites the sender's line: not
						 * believed */
	ring_tx_publish(&tx, 0);
	ck_assert_uint_eq(atomic_load(&tx.sh->wr), 8000);
}
END_TEST

/* A run that lies in a ring of device memory: [lo, hi) of it, and what the receiver makes of wr,
 * at the sender's word. */
static const struct {
	uint64_t lo, hi, wr;
	int r;
	uint64_t at, n;
	bool dev;
	uint64_t alike;
} runs[] = {
	{ 7100, 7100 + 3 * SIZE, 7100 + 3 * SIZE, 0, 7000, 500, false, 100 },
	{ 7100, 7100 + 3 * SIZE, 7100 + 3 * SIZE, 0, 7100, 500, true, 500 },
	{ 7100, 7100 + 3 * SIZE, 7100 + 3 * SIZE, 0, 7099 + 3 * SIZE, 500, true, 1 },
	/* more beside it than the ring has */
	{ 7100, 7100 + 3 * SIZE, 7100 + 4 * SIZE, -EPROTO, 0, 0, false, 0 },
	{ 7100, 7100 + 3 * SIZE, 7000 + 4 * SIZE, 0, 7100 + 3 * SIZE, 50, false, 50 },
	{ 7000, 7000 + 4 * SIZE, 7000 + 4 * SIZE, 0, 7000, 4 * SIZE, true, 4 * SIZE },
	/* or than that has */
	{ 7000, 7000 + 6 * SIZE, 7000 + 5 * SIZE + 1, -EPROTO, 0, 0, false, 0 },
	{ 0, UINT64_MAX, 7000 + 5 * SIZE + 1, -EPROTO, 0, 0, false, 0 },
	/* a new one is about to be told of */
	{ 7500, 7000, 7000 + SIZE, 0, 7000, SIZE, false, SIZE },
	{ 100, 7000, 7000 + SIZE, 0, 7000, SIZE, false, SIZE }, /* one of before */
};

START_TEST(in_device_memory)
{
	struct ring_tx tx;
	struct ring_rx rx, none;	/* who has no such ring does not look */
	const uint8_t *p;
	size_t n;
	bool dev;

	open_at(7000, &tx, &rx);
	none = rx;
	rx.dev_size = 4 * SIZE;
	atomic_store(&tx.sh->dev_lo, runs[_i].lo);
	atomic_store(&tx.sh->dev_hi, runs[_i].hi);
	atomic_store(&tx.sh->wr, runs[_i].wr);
	ck_assert_int_eq(ring_rx_refresh(&rx), runs[_i].r);
	if (!runs[_i].r) {
		ck_assert_uint_eq(ring_rx_alike(&rx, runs[_i].at, runs[_i].n, &dev),
				  runs[_i].alike);
		ck_assert_int_eq(dev, runs[_i].dev);
	}
	if (runs[_i].r) {
		ck_assert_uint_eq(rx.wr, 7000);
		ck_assert_uint_eq(rx.dev_hi, 0);
	}
	ck_assert_int_eq(ring_rx_refresh(&none), runs[_i].wr > 7000 + SIZE ? -EPROTO : 0);

	/* The sender: nothing beside it until it is read, and a rewind goes round it. */
	tx.wr = 7300;
	tx.dev_lo = 7100;
	tx.dev_hi = 7300;
	ck_assert_uint_eq(ring_tx_room(&tx), 0);
	ck_assert_ptr_nonnull(ring_tx_held(&tx, 7000, &n));
	ck_assert_uint_eq(n, 100);
	p = ring_tx_held(&tx, 7150, &n);
	ck_assert_ptr_null(p);
	ck_assert_uint_eq(n, 150);
	atomic_store(&tx.sh->rd, 7300);
	ck_assert_int_eq(ring_tx_refresh(&tx), 0);
	ck_assert_uint_eq(ring_tx_room(&tx), SIZE);
}
END_TEST

/* The sender's cursor as the receiver must take it. */
START_TEST(publication_lies)
{
	struct ring_tx tx;
	struct ring_rx rx;
	static const struct { uint64_t wr; int r; } row[] = {
		{ 7000 + SIZE, 0 }, { 7000 + SIZE + 1, -EPROTO }, { 7000 + (1ull << 40), -EPROTO },
		/* less than it said before: stale, nothing is lost or won */
		{ 7000 + SIZE - 1, 0 }, { 6999, 0 }, { 0, 0 },
		 { UINT64_MAX, -EPROTO }, { 7000 + SIZE, 0 },
	};

	open_at(7000, &tx, &rx);
	for (unsigned i = 0; i < sizeof row / sizeof row[0]; i++) {
		atomic_store(&rx.sh->wr, row[i].wr);
		ck_assert_int_eq(ring_rx_refresh(&rx), row[i].r);
		ck_assert_uint_eq(ring_rx_avail(&rx), SIZE);	/* the last credible value stays */
	}
	ring_rx_consume(&rx, 10);
	atomic_store(&rx.sh->rd, 1);		/* the sender overwrites the receiver's line: not
						 * believed */
	atomic_store(&rx.sh->wr, 7010 + SIZE);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	ck_assert_uint_eq(rx.rd, 7010);
	/* Close to the end of the numbers. */
	open_at(UINT64_MAX - 50, &tx, &rx);
	atomic_store(&rx.sh->wr, 20);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	ck_assert_uint_eq(ring_rx_avail(&rx), 0);
	atomic_store(&rx.sh->wr, UINT64_MAX - 1);
	ck_assert_int_eq(ring_rx_refresh(&rx), 0);
	ck_assert_uint_eq(ring_rx_avail(&rx), 49);
}
END_TEST

/* An emulator of user programs says yes to MADV_REMOVE and does nothing. */
static bool gives_back(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	size_t n = (size_t)sysconf(_SC_PAGESIZE);
	char *p = ftruncate(fd, (off_t)n) ? MAP_FAILED :
		  mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bool gone;

	ck_assert_ptr_ne(p, MAP_FAILED);
	*p = 1;
	gone = !madvise(p, n, MADV_REMOVE) && !*p;
	munmap(p, n);
	close(fd);
	return gone;
}

/* Slots and directions must not overlap. */
START_TEST(slots_apart)
{
	bool back = gives_back();

	for (unsigned s = 0; s < SLOTS; s++) {
		struct ring_tx t0, t1;
		struct ring_rx r0, r1;

		segment_ring_tx(&a0, s, &t0);
		segment_ring_tx(&a1, s, &t1);
		segment_ring_rx(&a0, s, &r0);
		segment_ring_rx(&a1, s, &r1);
		memset(t0.buf, (int)(2 * s + 1), t0.size);
		memset(t1.buf, (int)(2 * s + 2), t1.size);
		memset(t0.large, (int)(2 * s + 1), LARGE);
		memset(t1.large, (int)(2 * s + 2), LARGE);
		atomic_store(&t0.sh->large, LARGE);
		atomic_store(&t1.sh->large, LARGE);
		atomic_store(&t0.sh->epoch, 100 + 2 * s);
		atomic_store(&t1.sh->epoch, 101 + 2 * s);
		ck_assert_int_eq(r1.buf - a1.base, t0.buf - a0.base);
		ck_assert_int_eq(r1.large - a1.base, t0.large - a0.base);
		ck_assert(t0.large + LARGE <= a0.base + a0.total &&
			  t1.large + LARGE <= a1.base + a1.total);
	}
	for (unsigned s = 0; s < SLOTS; s++) {
		struct ring_rx r0, r1;

		segment_ring_rx(&a0, s, &r0);
		segment_ring_rx(&a1, s, &r1);
		ck_assert_uint_eq(atomic_load(&r1.sh->epoch), 100 + 2 * s);
		ck_assert_uint_eq(atomic_load(&r0.sh->epoch), 101 + 2 * s);
		for (unsigned i = 0; i < SIZE; i++) {
			ck_assert_uint_eq(r1.buf[i], 2 * s + 1);
			ck_assert_uint_eq(r0.buf[i], 2 * s + 2);
		}
		for (unsigned i = 0; i < LARGE; i++) {
			ck_assert_uint_eq(r1.large[i], 2 * s + 1);
			ck_assert_uint_eq(r0.large[i], 2 * s + 2);
		}
	}
	segment_slot_reset(&a0, 3);
	for (unsigned s = 2; s < 5; s++) {
		struct ring_rx r1;

		segment_ring_rx(&a1, s, &r1);
		/* what is in a ring that begins is of no meaning */
		ck_assert_uint_eq(r1.buf[17], 2 * s + 1);
		ck_assert_uint_eq(r1.large[4200], s == 3 && back ? 0 : 2 * s + 1);
		ck_assert_uint_eq(atomic_load(&r1.sh->epoch), s == 3 ? 0 : 100 + 2 * s);
		ck_assert(s != 3 || atomic_load(&r1.sh->final) == RING_NO_FINAL);
	}
}
END_TEST

#include "ring_segments.h"
#include "ring_threads.h"

int main(void)
{
	Suite *s = suite_create("ring");
	TCase *t = tcase_create("ring"), *h = tcase_create("huge");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 40);
	tcase_add_checked_fixture(t, two_maps, unmap_both);
	tcase_add_test(t, wraps);
	tcase_add_test(t, held);
	tcase_add_test(t, enlarges);
	tcase_add_test(t, enlarges_unread);
	tcase_add_test(t, enlarge_lies);
	tcase_add_test(t, credit_lies);
	tcase_add_loop_test(t, in_device_memory, 0, (int)(sizeof runs / sizeof runs[0]));
	tcase_add_test(t, publication_lies);
	tcase_add_test(t, slots_apart);
	tcase_add_test(t, notify);
	tcase_add_test(t, not_an_segment);
	tcase_add_test(t, sealed);
	tcase_add_test(t, forgotten_before_it_goes);
	tcase_add_loop_test(t, two_threads, 0, 3);
	tcase_add_test(h, huge_pages);
	suite_add_tcase(s, t);
	suite_add_tcase(s, h);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
