/*
 * test_spin.c - how long a waiter polls before it sleeps (shim/base/spin_rule.h), on recorded waits
 * (tests/traces): each decision is as it was then, and within its bounds. And what the rule is for.
 */
#include <check.h>

#include "../../shim/base/spin_rule.h"
#include "../traces/trace.h"
#include "suite.h"

#define LIMIT 50

static void within_bounds(uint32_t w)
{
	ck_assert_uint_le(SPIN_HIT_RATE(w), SPIN_HIT_RATE_MOST);
	ck_assert(!SPIN_HIT_RATE(w) || SPIN_HIT_RATE(w) >= SPIN_HIT_RATE_LEAST - 2);
	ck_assert_uint_le(SPIN_CROWD(w), SPIN_CROWD_MOST);
	ck_assert_uint_le(SPIN_LEAVE(w), SPIN_LEAVE_MOST);
}

/* Returns how many waits there were; *ret_spun: microseconds of all. */
static unsigned replay(const char *name, uint64_t *ret_spun)
{
	struct trace t = trace_open(name);
	unsigned waits = 0;
	uint32_t w = 0;

	*ret_spun = 0;
	while (trace_next(&t)) {
		uint64_t now = 0;

		if (trace_is(&t, "wait")) {
			ck_assert_msg(w == t.b, "%s:%u: another word", t.path, t.line);
			now = spin_rule_wait(&w, t.a);
			ck_assert_uint_le(now, t.a);
			*ret_spun += now;
			waits++;
		} else if (trace_is(&t, "crowded")) {
			ck_assert_uint_eq(t.a, SPIN_LEAVE_FIRST);
			now = w = spin_rule_crowded(w, (uint32_t)t.a, t.b);
		} else if (trace_is(&t, "learned")) {
			now = w = spin_rule_learned(w, t.a);
		} else {
			ck_assert(trace_is(&t, "slept"));
			now = spin_rule_short(t.a, t.b);
		}
		trace_same(&t, now);
		within_bounds(w);
	}
	ck_assert_uint_gt(waits, 50);
	return waits;
}

/* Whose peer answers at once spins more than who has to share its processor, or waits for a peer
 * that answers late. */
START_TEST(recorded)
{
	uint64_t spare, one, slow;
	unsigned n_spare = replay("spin-spare", &spare), n_one = replay("spin-one", &one);
	unsigned n_slow = replay("spin-slow", &slow);

	ck_assert_uint_gt(spare / n_spare, one / n_one);
	ck_assert_uint_gt(spare / n_spare, slow / n_slow);
}
END_TEST

START_TEST(switched_off)
{
	for (uint32_t hit_rate = 0; hit_rate <= SPIN_HIT_RATE_MOST; hit_rate++) {
		uint32_t w = SPIN_WORD(hit_rate, 0, 0);

		ck_assert_uint_eq(spin_rule_wait(&w, 0), 0);
		ck_assert_uint_eq(w, SPIN_WORD(hit_rate, 0, 0));
	}
}
END_TEST

START_TEST(nobody_answers)
{
	uint32_t w = 0;

	for (int i = 0; i < 100; i++)
		w = spin_rule_learned(w, false);
	ck_assert_uint_le(spin_rule_wait(&w, LIMIT), LIMIT / 16 + 1);
	for (int i = 0; i < 8; i++)
		w = spin_rule_learned(w, true);
	ck_assert_uint_eq(spin_rule_wait(&w, LIMIT), LIMIT);
}
END_TEST

static unsigned sleeps(uint32_t *w)
{
	unsigned n = 0;

	while (!spin_rule_wait(w, LIMIT))
		n++;
	return n;
}

/* Twice as many each time, up to a bound; one that is answered meanwhile takes one time back. */
START_TEST(others_need_the_processor)
{
	unsigned last = 0, n = 0;
	uint32_t w = 0;

	for (int i = 0; i < 12; i++, last = n) {
		w = spin_rule_crowded(w, SPIN_LEAVE_FIRST, 5);
		n = sleeps(&w);
		ck_assert_uint_eq(n, !i ? SPIN_LEAVE_FIRST : i > 8 ? last : 2 * last);
	}
	w = spin_rule_learned(w, true);
	w = spin_rule_crowded(w, SPIN_LEAVE_FIRST, 5);
	ck_assert_uint_eq(sleeps(&w), last / 2);
}
END_TEST

START_TEST(one_that_computes)
{
	uint32_t w = spin_rule_crowded(0, SPIN_LEAVE_FIRST, 4000);

	ck_assert_uint_eq(sleeps(&w), 4000 * SPIN_SLEEPS_PER_US);
	w = spin_rule_crowded(0, SPIN_LEAVE_FIRST, UINT64_MAX);
	within_bounds(w);
	ck_assert_uint_gt(SPIN_LEAVE(w), SPIN_LEAVE_MOST - 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spin");
	TCase *t = tcase_create("spin");

	tcase_add_test(t, recorded);
	tcase_add_test(t, switched_off);
	tcase_add_test(t, nobody_answers);
	tcase_add_test(t, others_need_the_processor);
	tcase_add_test(t, one_that_computes);
	suite_add_tcase(s, t);
	return run_suite(s);
}
