/*
 * test_late.c - how long a full ring is waited for, by what became of those before it.
 *
 * LINK: shim/conn/late.c
 */
#include <check.h>
#include <stdlib.h>

#include "../../shim/conn/late.h"

#define MS 1000u

static const struct late_bounds usual = { 10 * MS, 400 * MS };

/* What became of a program whose reader paused so long each time the ring was full: how often it
 * fell back, and how long all were waited for. */
struct course { unsigned fallbacks, pauses; uint64_t waited, last; };

/* As those who watch: they look each `step`, and know of a pause that it was over some time
 * after their last look. */
static void pause_of(struct late *p, struct late_bounds b, struct course *c, uint64_t us, bool both,
		     uint64_t step)
{
	enum late_verdict v;
	uint64_t seen = 0, t;

	c->pauses++;
	for (t = step; t < us; t += step) {
		v = late_judge(p, b, t, both);
		if (v != LATE_WAIT) {
			ck_assert_int_eq(v == LATE_BOTH, both);
			c->fallbacks++;
			c->waited += t;
			c->last = t;
			late_fallback(p, b, v);
			return;
		}
		seen = t;
	}
	c->waited += us;
	late_back(p, b, seen);
}

/* A reader that never comes before we have fallen back. */
#define NEVER UINT64_MAX

START_TEST(nothing_known)
{
	struct late p = { 0 };

	ck_assert_uint_eq(late_limit(&p, usual), usual.least);
	ck_assert_int_eq(late_judge(&p, usual, usual.least - 1, true), LATE_WAIT);
	ck_assert_int_eq(late_judge(&p, usual, usual.least, false), LATE_NOBODY);
	ck_assert_int_eq(late_judge(&p, usual, usual.least, true), LATE_BOTH);
}
END_TEST

/* A reader without a processor is waited for, up to the most; one that has one again, and does not
 * read, no longer than `least`. */
START_TEST(no_processor)
{
	const uint64_t full = 7 * MS;

	ck_assert(late_spared(usual, full + usual.least, full, full + usual.least));
	ck_assert(late_spared(usual, full + usual.most - 1, full, full + usual.most - 1));
	ck_assert(!late_spared(usual, full + usual.most, full, full + usual.most));
	ck_assert(late_spared(usual, full + 59 * MS, full, full + 50 * MS));
	ck_assert(!late_spared(usual, full + 60 * MS, full, full + 50 * MS));
	/* as ever, where it has not been seen without */
	ck_assert(!late_spared(usual, full + usual.least, full, full));
}
END_TEST

/* Pauses of 15 to 50 ms, again and again: the stream falls back once. */
START_TEST(late_reader)
{
	static const uint64_t ms[] = { 15, 50, 22, 41, 18, 37, 49, 15, 28, 33 };

	for (uint64_t step = 1 * MS; step <= 10 * MS; step *= 10) {
		struct late p = { 0 };
		struct course c = { 0 };

		for (int i = 0; i < 1000; i++)
			pause_of(&p, usual, &c, ms[i % 10] * MS, false, step);
		ck_assert_uint_eq(c.fallbacks, 1);
		ck_assert_uint_eq(c.last, usual.least);
		ck_assert_uint_le(late_limit(&p, usual), usual.most);
	}
}
END_TEST

/* One that reads at once, mostly, gives no reason to fall back or to learn. */
START_TEST(prompt_reader)
{
	struct late p = { 0 };
	struct course c = { 0 };

	for (int i = 0; i < 1000; i++)
		pause_of(&p, usual, &c, (uint64_t)(i % 9) * MS, false, MS);
	ck_assert_uint_eq(c.fallbacks, 0);
	ck_assert_uint_eq(late_limit(&p, usual), usual.least);
}
END_TEST

/* Longer and longer pauses, each within what was learned: none but the first is not waited for. */
START_TEST(longer_pauses)
{
	static const uint64_t ms[] = { 60, 90, 150, 300, 390 };
	struct late p = { 0 };
	struct course c = { 0 };

	for (int i = 0; i < 5; i++)
		pause_of(&p, usual, &c, ms[i] * MS, false, MS);
	ck_assert_uint_eq(c.fallbacks, 1);
	ck_assert_uint_eq(late_limit(&p, usual), usual.most);
}
END_TEST

/* Both ends send first: never longer than without learning, whatever was learned before. */
START_TEST(both_send_first)
{
	struct late p = { 0 };
	struct course c = { 0 };

	for (int i = 0; i < 100; i++)
		pause_of(&p, usual, &c, 40 * MS, false, MS);
	ck_assert_uint_gt(late_limit(&p, usual), usual.least);
	c = (struct course){ 0 };
	for (int i = 0; i < 1000; i++)
		pause_of(&p, usual, &c, NEVER, true, MS);
	ck_assert_uint_eq(c.fallbacks, 1000);
	ck_assert_uint_eq(c.waited, 1000 * usual.least);
}
END_TEST

/* The circle of three, in which no end that waits for room can be seen. The first is not later
 * than without learning, and all of them are little later: 100 rounds by half, 10,000 by a
 * twentieth. */
START_TEST(three_in_a_circle)
{
	for (int from = 0; from < 2; from++) {
		struct late p = { 0 };
		struct course c = { 0 };
		int i;

		if (from)	/* a late reader before */
			for (i = 0; i < 100; i++)
				pause_of(&p, usual, &c, 40 * MS, false, MS);
		c = (struct course){ 0 };
		pause_of(&p, usual, &c, NEVER, false, MS);
		ck_assert_uint_eq(c.waited, from ? usual.most : usual.least);
		for (i = 1; i < 100; i++)
			pause_of(&p, usual, &c, NEVER, false, MS);
		ck_assert_uint_le(c.waited, 100 * usual.least + (from ? 1500 * MS : 550 * MS));
		for (; i < 10000; i++)
			pause_of(&p, usual, &c, NEVER, false, MS);
		ck_assert_uint_le(c.waited, 10000 * usual.least / 20 * 21);
		ck_assert_uint_eq(c.fallbacks, 10000);
	}
}
END_TEST

/* It was not for nothing: who was in a circle once may be a late reader later. */
START_TEST(another_habit)
{
	struct late p = { 0 };
	struct course c = { 0 };

	for (int i = 0; i < 10000; i++)
		pause_of(&p, usual, &c, NEVER, false, MS);
	c = (struct course){ 0 };
	for (int i = 0; i < 10000; i++)
		pause_of(&p, usual, &c, 30 * MS, false, MS);
	ck_assert_uint_le(c.fallbacks, 1u << LATE_RARE);
}
END_TEST

START_TEST(bounds)
{
	static const struct late_bounds off = { 10 * MS, 0 }, low = { 10 * MS, 30 * MS },
		huge = { 60000 * MS, 400 * MS };
	struct late p = { 0 };
	struct course c = { 0 };

	for (int i = 0; i < 1000; i++)
		pause_of(&p, off, &c, i % 3 ? NEVER : 12 * MS, false, MS);
	ck_assert_uint_eq(c.fallbacks, 1000);
	ck_assert_uint_eq(c.waited, 1000 * off.least);
	for (int i = 0; i < 1000; i++)
		pause_of(&p, low, &c, (uint64_t)(rand() % 50) * MS, false, MS);
	ck_assert_uint_le(late_limit(&p, low), low.most);
	for (int i = 0; i < 100; i++)
		pause_of(&p, usual, &c, 40 * MS, false, MS);
	/* a policy that changes holds at once */
	ck_assert_uint_eq(late_limit(&p, off), off.least);
	ck_assert_uint_eq(late_limit(&p, huge), huge.least);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("late");
	TCase *t = tcase_create("late");
	SRunner *r;
	int failed;

	tcase_add_test(t, nothing_known);
	tcase_add_test(t, no_processor);
	tcase_add_test(t, late_reader);
	tcase_add_test(t, prompt_reader);
	tcase_add_test(t, longer_pauses);
	tcase_add_test(t, both_send_first);
	tcase_add_test(t, three_in_a_circle);
	tcase_add_test(t, another_habit);
	tcase_add_test(t, bounds);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
