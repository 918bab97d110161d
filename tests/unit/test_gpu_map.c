/*
 * test_gpu_map.c - which device memory the description of a ring leads to: the process that
 * sent it decides, not what it says of itself. The driver is a table of three allocations, of
 * which two can be opened by a handle.
 *
 * LINK: shim/gpu/map.c
 */
#include <check.h>
#include <string.h>

#include "../../shim/gpu/gpu_desc.h"
#include "../../shim/gpu/map.h"

#define SIZE 1048576u
#define CTX  ((gpu_ctx)1)

static const struct { gpu_addr at; char handle; } places[] = { { 0x10000000, 'A' },
							       { 0x20000000, 'B' },
								       { 0x30000000, 0 } };
static int opened, closed;

static gpu_result map(gpu_addr *p, const uint8_t handle[GPU_HANDLE])
{
	for (int i = 0; i < 3; i++)
		if (places[i].handle && places[i].handle == handle[0]) {
			*p = places[i].at;
			opened++;
			return 0;
		}
	return 1;
}

static void unmap(gpu_addr p)
{
	(void)p;
	closed++;
}

static gpu_result range(gpu_addr p, gpu_addr *start, size_t *n)
{
	for (int i = 0; i < 3; i++)
		if (p - places[i].at < SIZE) {
			*start = places[i].at;
			*n = SIZE;
			return 0;
		}
	return 1;
}

static const struct gpu_ops ops = {
	.name = "a table", .map = map, .unmap = unmap, .extent = range,
};
const struct gpu_ops *gpu = &ops;

static void begin(void)
{
	opened = closed = 0;
}

static struct gpu_desc ring(uint64_t id, char handle, gpu_addr place)
{
	return (struct gpu_desc){ .magic = GPU_DESC_MAGIC, .ring_id = id, .ring_size = SIZE,
				   .ring_base = place, .len = 4096,
				   .ipc = { (uint8_t)handle } };
}

#define PEER 77
static gpu_addr base(const struct gpu_desc *d, gpu_ctx ctx, bool own)
{
	struct gpu_map *m = gpu_map_get(d, ctx, own ? 0 : PEER);
	gpu_addr p = m ? m->base : 0;

	if (m)
		m->users--;
	return p;
}

START_TEST(once_per_ring)
{
	struct gpu_desc a = ring(1, 'A', 0), b = ring(2, 'B', 0);

	ck_assert_uint_eq(base(&a, CTX, false), 0x10000000);
	ck_assert_uint_eq(base(&b, CTX, false), 0x20000000);
	ck_assert_uint_eq(base(&a, CTX, false), 0x10000000);
	ck_assert_int_eq(opened, 2);
	ck_assert_uint_eq(base(&a, (gpu_ctx)2, false), 0x10000000);
	ck_assert_int_eq(opened, 3);
}
END_TEST

/* Another process says all that a ring of ours says, but for where it is. */
START_TEST(own_first)
{
	struct gpu_desc mine = ring(1, 'A', 0x30000000), theirs = ring(1, 'A', 0x30000000);

	ck_assert_uint_eq(base(&mine, CTX, true), 0x30000000);
	ck_assert_uint_eq(base(&theirs, CTX, false), 0x10000000);
	ck_assert_uint_eq(base(&mine, CTX, true), 0x30000000);
}
END_TEST

/* ... and before us, with a handle that cannot be opened: our own way stays. */
START_TEST(own_last)
{
	struct gpu_desc mine = ring(1, 'X', 0x30000000), theirs = mine;

	ck_assert_uint_eq(base(&theirs, CTX, false), 0);
	ck_assert_uint_eq(base(&mine, CTX, true), 0x30000000);
	ck_assert_uint_eq(base(&theirs, CTX, false), 0);
}
END_TEST

/* A ring of ours that was made anew, elsewhere. */
START_TEST(own_moved)
{
	struct gpu_desc d = ring(1, 'X', 0x30000000);

	ck_assert_uint_eq(base(&d, CTX, true), 0x30000000);
	d.ring_base = 0x20000000;
	ck_assert_uint_eq(base(&d, CTX, true), 0x20000000);
}
END_TEST

START_TEST(beyond)
{
	struct gpu_desc d = ring(1, 'A', 0);

	d.ring_size = SIZE + 1;
	ck_assert_uint_eq(base(&d, CTX, false), 0);
	ck_assert_int_eq(closed, 1);
	d = ring(2, 'A', 0);
	d.off = SIZE - 4095;
	ck_assert_uint_eq(base(&d, CTX, false), 0);
	d.off = SIZE + 1;
	ck_assert_uint_eq(base(&d, CTX, false), 0);
	d.off = SIZE - 4096;
	ck_assert_uint_eq(base(&d, CTX, false), 0x10000000);
	d.len = UINT64_MAX;
	ck_assert_uint_eq(base(&d, CTX, false), 0);
	d = ring(3, 0, 0x10001000);	/* within one, not its beginning */
	ck_assert_uint_eq(base(&d, CTX, true), 0);
}
END_TEST

/* A peer that names rings without end, of which some can be opened: ours and another's stay. */
START_TEST(many_of_one)
{
	struct gpu_desc honest = ring(1, 'A', 0), d;
	struct gpu_map *m;

	ck_assert_uint_eq(base(&honest, CTX, false), 0x10000000);
	for (uint64_t i = 100; i < 200; i++) {
		d = ring(i, i % 2 ? 'B' : 'X', 0);
		m = gpu_map_get(&d, CTX, PEER + 1);
		ck_assert_int_eq(m != NULL, i % 2);
		if (m)
			m->users--;
	}
	ck_assert_int_eq(opened, 51);
	ck_assert_uint_eq(base(&honest, CTX, false), 0x10000000);
	ck_assert_int_eq(opened, 51);
}
END_TEST

/* The place of a ring that is in use is not taken. */
START_TEST(in_use)
{
	struct gpu_desc d = ring(1000, 'A', 0), other;
	struct gpu_map *m = gpu_map_get(&d, CTX, PEER);

	for (unsigned i = 0; i < 100; i++) {
		other = ring(i, 'B', 0);
		ck_assert_uint_eq(base(&other, CTX, false), 0x20000000);
	}
	ck_assert_int_eq(opened, 101);
	ck_assert_int_ge(closed, 60);
	ck_assert_ptr_eq(gpu_map_get(&d, CTX, PEER), m);
	ck_assert_int_eq(opened, 101);
	ck_assert_uint_eq(m->base, 0x10000000);
}
END_TEST

/* A peer's offer names a ring of which he was asked before; not another's, nor ours, nor in
 * another context. */
START_TEST(known)
{
	struct gpu_desc a = ring(1, 'A', 0), mine = ring(2, 'X', 0x30000000), got = { 0 };

	ck_assert(!gpu_map_known(PEER, 1, CTX, 0, &got));
	a.off = 8192;
	base(&a, CTX, false);
	base(&mine, CTX, true);
	ck_assert(gpu_map_known(PEER, 1, CTX, 0, &got));
	ck_assert_mem_eq(&got, &a, sizeof got);
	ck_assert(!gpu_map_known(PEER, 1, CTX, 1, &got));	/* read too long ago */
	got.off = SIZE - 4096;
	ck_assert_uint_eq(base(&got, CTX, false), 0x10000000);
	ck_assert_int_eq(opened, 1);
	got.off = SIZE - 4095;
	ck_assert_uint_eq(base(&got, CTX, false), 0);
	ck_assert(!gpu_map_known(PEER, 3, CTX, 0, &got));
	ck_assert(!gpu_map_known(PEER + 1, 1, CTX, 0, &got));
	ck_assert(!gpu_map_known(PEER, 1, (gpu_ctx)2, 0, &got));
	ck_assert(!gpu_map_known(PEER, 2, CTX, 0, &got));
	ck_assert(!gpu_map_known(0, 2, CTX, 0, &got));
	ck_assert(!gpu_map_known(0, 0, NULL, 0, &got));	/* what no place has yet */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gpu_map");
	TCase *t = tcase_create("gpu_map");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, begin, NULL);
	tcase_add_test(t, once_per_ring);
	tcase_add_test(t, known);
	tcase_add_test(t, own_first);
	tcase_add_test(t, own_last);
	tcase_add_test(t, own_moved);
	tcase_add_test(t, beyond);
	tcase_add_test(t, many_of_one);
	tcase_add_test(t, in_use);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
