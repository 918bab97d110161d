/*
 * test_due.c - the background thread's heap of what is due, against a plain list.
 *
 * LINK: shim/base/due.c
 */
#include <check.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../shim/base/due.h"
#include "suite.h"

#define N 300

static struct due_heap h;
static struct due item[N];
static bool there[N];
static uint64_t when[N];

/* The heap's memory is given back only when the heap has other: another thread may fork in
 * between. */
static struct due_heap *in_use = &h;
static int given_back;

int munmap(void *p, size_t n)
{
	given_back += in_use->room != 0;
	if (in_use->at == p)
		_exit(3);
	return (int)syscall(SYS_munmap, p, n);
}

static uint64_t earliest(void)
{
	uint64_t t = UINT64_MAX;

	for (int i = 0; i < N; i++)
		if (there[i] && when[i] < t)
			t = when[i];
	return t;
}

static void compare(void)
{
	uint32_t n = 0;

	for (int i = 0; i < N; i++) {
		n += there[i];
		ck_assert_int_eq(item[i].place != 0, there[i]);
		if (there[i])
			ck_assert_ptr_eq(h.at[item[i].place - 1], &item[i]);
	}
	ck_assert_uint_eq(h.n, n);
	ck_assert_uint_eq(due_next(&h), earliest());
}

START_TEST(empty)
{
	struct due d = { 0 };

	ck_assert_ptr_null(due_pop(&h, UINT64_MAX));
	ck_assert_uint_eq(due_next(&h), UINT64_MAX);
	due_take(&h, &d);
	ck_assert_uint_eq(h.n, 0);
}
END_TEST

/* What is put, moved, taken and popped at random comes out in order, and is where it says that
 * it is. */
START_TEST(as_a_list)
{
	srandom(1);
	for (int step = 0; step < 20000; step++) {
		int i = (int)(random() % N);
		uint64_t t = 1 + (uint64_t)random() % 1000;
		struct due *d;

		switch (random() % 5) {
		case 0: case 1: case 2:
			ck_assert(due_put(&h, &item[i], t));
			there[i] = true;
			when[i] = t;
			break;
		case 3:
			due_take(&h, &item[i]);
			there[i] = false;
			break;
		case 4:
			d = due_pop(&h, t);
			if (!d) {
				ck_assert_uint_gt(earliest(), t);
				break;
			}
			ck_assert_uint_le(d->us, t);
			ck_assert_uint_eq(d->us, earliest());
			ck_assert_uint_eq(d->us, when[d - item]);
			there[d - item] = false;
			break;
		}
		if (step % 16 == 0)
			compare();
	}
	for (uint64_t last = 0, t; h.n; last = t) {
		t = due_next(&h);
		ck_assert_uint_ge(t, last);
		ck_assert_ptr_null(due_pop(&h, t - 1));
		ck_assert_ptr_nonnull(due_pop(&h, t));
	}
}
END_TEST

/* More than its first memory holds: all are there, in order. */
START_TEST(grows)
{
	static struct due many[1300];
	static bool out[1300];
	struct due_heap g = { 0 };
	uint64_t last = 0;

	in_use = &g;
	srandom(2);
	for (int i = 0; i < 1300; i++)
		ck_assert(due_put(&g, &many[i], 1 + (uint64_t)random() % 5000));
	for (int n = 0; n < 1300; n++) {
		struct due *d = due_pop(&g, UINT64_MAX);

		ck_assert_ptr_nonnull(d);
		ck_assert(d >= many && d < many + 1300 && !out[d - many]);
		ck_assert_uint_ge(d->us, last);
		out[d - many] = true;
		last = d->us;
	}
	ck_assert_ptr_null(due_pop(&g, UINT64_MAX));
	ck_assert_int_ge(given_back, 1);
	in_use = &h;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("due");
	TCase *t = tcase_create("heap");

	tcase_add_test(t, empty);
	tcase_add_test(t, as_a_list);
	tcase_add_test(t, grows);
	suite_add_tcase(s, t);
	return run_suite(s);
}
