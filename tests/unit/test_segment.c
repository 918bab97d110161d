/*
 * test_segment.c - a preallocated segment where not all of its pages can be had: what is refused
 * is given back. The kernel of strict overcommit is a fake, which makes pages up to a limit; the
 * real one is tests/vm/strict.sh's.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define sys6 kernels
#include "../../shim/base/sys.h"
#undef sys6

static int memfd;
static long limit_kb;
static bool old;		/* a kernel before 5.14 */
static size_t page_size = 4096;

static long held_kb(void)
{
	struct stat st;

	return fstat(memfd, &st) ? -1 : (long)st.st_blocks / 2;
}

static long make(long page)
{
	unsigned char there = 0;

	if (!mincore((void *)page, 4096, &there) && !(there & 1)) {
		if (held_kb() + 4 > limit_kb)
			return -EFAULT;
		*(volatile char *)page = 0;
	}
	return 0;
}

static long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	const struct iovec *there = (const struct iovec *)d;
	long r = 0;

	if (n == SYS_process_vm_readv && old)
		return make((long)there->iov_base) ? -EFAULT : 1;
	/* which begins at a page of that kernel's */
	if (n == SYS_mmap && page_size > 4096) {
		r = kernels(n, 0, b + (long)page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
			    MAP_NORESERVE, -1, 0);
		r = (r + (long)page_size - 1) & -(long)page_size;
		return kernels(n, r, b, c, d | MAP_FIXED, e, f);
	}
	if (n != SYS_madvise || c != 23)
		return kernels(n, a, b, c, d, e, f);
	if (old)
		return -EINVAL;
	for (long page = a; page < a + b && !r; page += 4096)
		r = make(page);
	return r;
}

#define arch_page() page_size
#include "../../rdma/shm/segment.c"

#define RING  65536
#define LARGE (1 << 20)

static struct segment a;

static void begin(void)
{
	limit_kb = 100000;
	ck_assert_int_eq(segment_create(&a, 16, RING, LARGE, &memfd), 0);
	a.preallocated = true;
	limit_kb = 600;
}

static void end(void)
{
	segment_unmap(&a);
	close(memfd);
}

static bool taken(uint32_t slot)
{
	return !segment_slot_reset(&a, slot) && segment_slot_have(&a, slot);
}

/* _i: on an old kernel */
START_TEST(what_is_refused_is_given_back)
{
	long before = 0;
	uint32_t n = 0;

	old = _i;
	begin();
	for (; taken(n); n++)
		before = held_kb();
	ck_assert_int_eq(n, (600 - 20) / (2 * RING / 1024));
	ck_assert_int_ge(before, n * 2 * RING / 1024);
	ck_assert_int_le(held_kb(), before + 4);	/* the slot's own page may be new */
	before = held_kb();
	for (uint32_t k = n; k < 16; k++)
		ck_assert(!taken(k));
	ck_assert_int_le(held_kb(), before + 8);
	for (uint32_t k = 0; k < n; k++)
		segment_slot_left(&a, k);
	ck_assert_int_le(held_kb(), 20);
	ck_assert(taken(n));
	end();
}
END_TEST

/* Who is left gives all back but what the first slots of each side keep; _i & 2: pages of
 * 64 KiB. */
START_TEST(what_is_kept)
{
	uint64_t ring = _i & 1 ? 16 << 20 : 1 << 18;
	long most = _i & 1 ? 0 : 2 * 2048;

	page_size = _i & 2 ? 65536 : 4096;
	limit_kb = 1 << 30;
	ck_assert_int_eq(segment_create(&a, 64, ring, 0, &memfd), 0);
	for (int round = 0; round < 2; round++) {
		for (uint32_t slot = 0; slot < 64; slot++) {
			ck_assert(taken(slot));
			memset(rings(&a, slot), 1, 2 << 18);
		}
		ck_assert_int_ge(held_kb(), 64 * 512);
		for (uint32_t slot = 0; slot < 64; slot++)
			segment_slot_left(&a, slot);
		ck_assert_int_ge(held_kb(), most);
		/* with each slot's own page */
		ck_assert_int_le(held_kb(), most + 64 * 4 + 64);
	}
	end();
}
END_TEST

/* Of the large ones only those of each side's first slot, until it cools, or the next stream
 * rests. */
START_TEST(large_ones_that_are_kept)
{
	long large = (1 << 20) / 1024, small;

	limit_kb = 1 << 30;
	ck_assert_int_eq(segment_create(&a, 64, 1 << 18, 1 << 20, &memfd), 0);
	for (uint32_t slot = 0; slot < 64; slot++) {
		ck_assert(taken(slot));
		for (int from = 0; from < 2; from++) {
			memset(segment_large(&a, slot, from), 1, 1 << 20);
			a.slot[slot].dir[from].large = 1 << 20;
		}
		segment_slot_left(&a, slot);
	}
	small = held_kb() - 4 * large;
	ck_assert_int_le(small, 2 * 2048 + 64 * 4 + 64);
	ck_assert_int_eq(segment_large(&a, 32, 1)[0], 1);
	ck_assert(taken(0));		/* the next one finds it */
	ck_assert_int_eq(segment_large(&a, 0, 0)[0], 1);
	ck_assert(segment_ring_rest(&a, 0, 0, 0));
	ck_assert_int_eq(segment_large(&a, 0, 0)[0], 0);
	segment_slot_cools(&a, 32);
	ck_assert_int_eq(segment_large(&a, 32, 0)[0], 0);
	ck_assert_int_eq(segment_large(&a, 32, 1)[0], 0);
	end();
}
END_TEST

/* A ring of less than a page is not given back with its neighbour's; _i: pages of 64 KiB. */
START_TEST(no_whole_page)
{
	page_size = _i ? 65536 : 4096;
	limit_kb = 1 << 30;
	ck_assert_int_eq(segment_create(&a, 64, 16384, 65536, &memfd), 0);
	for (uint32_t slot = 0; slot < 64; slot++) {
		memset(rings(&a, slot), 1 + (int)slot, 2 * 16384);
		memset(segment_large(&a, slot, 0), 1 + (int)slot, 2 * 65536);
	}
	ck_assert_int_eq(segment_ring_rest(&a, 9, 0, 65536), !_i);
	ck_assert_int_eq(rings(&a, 9)[0], _i ? 10 : 0);
	ck_assert_int_eq(rings(&a, 9)[16384], 10);
	segment_give(&a, segment_large(&a, 9, 1), 65536);
	ck_assert_int_eq(segment_large(&a, 9, 1)[0], 0);
	ck_assert_int_eq(segment_large(&a, 9, 0)[0], _i ? 10 : 0);
	ck_assert_int_eq(rings(&a, 8)[2 * 16384 - 1], 9);
	ck_assert_int_eq(rings(&a, 10)[0], 11);
	ck_assert_int_eq(segment_large(&a, 10, 0)[0], 11);
	end();
}
END_TEST

/* Of one that is kept nothing is given back, and so only the first slots send by a large ring. */
START_TEST(all_is_kept)
{
	struct ring_tx tx;
	int large = 0;

	limit_kb = 1 << 30;
	ck_assert_int_eq(segment_create(&a, 64, 1 << 18, 2 << 20, &memfd), 0);
	a.kept = true;
	for (uint32_t slot = 0; slot < 64; slot++) {
		ck_assert(taken(slot));
		memset(rings(&a, slot), 1, 2 << 18);
		segment_ring_tx(&a, slot, &tx);
		large += tx.large_size != 0;
	}
	for (uint32_t slot = 0; slot < 64; slot++)
		segment_slot_left(&a, slot);
	ck_assert_int_ge(held_kb(), 64 * 512);
	ck_assert_int_eq(large, 2 * SEGMENT_KEPT_LARGE / (2 << 20));
	end();
}
END_TEST

START_TEST(a_large_ring_that_cannot_be_had)
{
	uint8_t *large;
	long before;

	old = _i;
	begin();
	ck_assert(taken(0));
	large = segment_large(&a, 0, 0);
	before = held_kb();
	ck_assert(!segment_have(&a, large, 0, LARGE));
	ck_assert_int_eq(held_kb(), before);
	ck_assert(segment_have(&a, large, 0, LARGE / 4));
	large[100] = 7;
	ck_assert(!segment_have(&a, large, LARGE / 4, LARGE));
	ck_assert_int_eq(held_kb(), before + LARGE / 4 / 1024);
	ck_assert_int_eq(large[100], 7);
	end();
}
END_TEST

START_TEST(not_even_the_first_page)
{
	int fd;

	old = _i;
	memfd = -1;
	limit_kb = -2;
	ck_assert_int_eq(segment_create(&a, 16, RING, LARGE, &fd), -ENOMEM);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("segment");
	TCase *t = tcase_create("whole");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, what_is_refused_is_given_back, 0, 2);
	tcase_add_loop_test(t, a_large_ring_that_cannot_be_had, 0, 2);
	tcase_add_loop_test(t, not_even_the_first_page, 0, 2);
	tcase_add_loop_test(t, what_is_kept, 0, 4);
	tcase_add_test(t, large_ones_that_are_kept);
	tcase_add_loop_test(t, no_whole_page, 0, 2);
	tcase_add_test(t, all_is_kept);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
