/*
 * test_offers.c - which large blocks are offered to the reader (shim/conn/direct.h), on the offers
 * of a real program (tests/traces): each decision is as it was then. And what the rule is for.
 */
#include <check.h>

#include "../../shim/conn/direct.h"
#include "../traces/trace.h"
#include "suite.h"

START_TEST(recorded)
{
	struct trace t = trace_open("direct");
	struct direct_backoff backoff = { 0, 0 };
	unsigned taken = 0, vain = 0, left_out = 0;

	while (trace_next(&t)) {
		uint64_t now;

		if (trace_is(&t, "block")) {
			now = direct_skips(&backoff);
			left_out += now;
		} else {
			ck_assert(trace_is(&t, "tried"));
			direct_tried(&backoff, t.a);
			now = backoff.pause;
			*(t.a ? &taken : &vain) += 1;
		}
		trace_same(&t, now);
	}
	ck_assert_uint_gt(taken, 100);
	/* To a reader that takes none, hardly one is offered. */
	ck_assert_uint_gt(vain, 3);
	ck_assert_uint_lt(vain, left_out / 16);
}
END_TEST

static unsigned skipped(struct direct_backoff *backoff)
{
	unsigned n = 0;

	while (direct_skips(backoff))
		n++;
	return n;
}

START_TEST(nobody_takes_them)
{
	struct direct_backoff backoff = { 0, 0 };
	unsigned n = DIRECT_SKIP_FIRST;

	ck_assert_uint_eq(skipped(&backoff), 0);
	for (int i = 0; i < 20; i++) {
		direct_tried(&backoff, false);
		ck_assert_uint_eq(skipped(&backoff), n);
		n = 2 * n < DIRECT_SKIP_MOST ? 2 * n : DIRECT_SKIP_MOST;
	}
	direct_tried(&backoff, true);
	ck_assert_uint_eq(skipped(&backoff), 0);
	direct_tried(&backoff, false);
	ck_assert_uint_eq(skipped(&backoff), DIRECT_SKIP_FIRST);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("offers");
	TCase *t = tcase_create("offers");

	tcase_add_test(t, recorded);
	tcase_add_test(t, nobody_takes_them);
	suite_add_tcase(s, t);
	return run_suite(s);
}
