/*
 * test_spin.c - how long a waiter polls before it sleeps (shim/base/spin_rule.h), on recorded waits
 * (tests/traces): each decision is as it was then, and within its bounds. And what the rule is for.
 */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../shim/base/spin_rule.h"
#include "suite.h"

#define LIMIT 50

static void within_bounds(uint32_t w)
{
	ck_assert_uint_le(SPIN_LUCK(w), SPIN_LUCK_MOST);
	ck_assert(!SPIN_LUCK(w) || SPIN_LUCK(w) >= SPIN_LUCK_LEAST - 2);
	ck_assert_uint_le(SPIN_CROWD(w), SPIN_CROWD_MOST);
	ck_assert_uint_le(SPIN_LEAVE(w), SPIN_LEAVE_MOST);
}

/* Returns how many waits there were; *ret_spun: microseconds of all. */
static unsigned replay(const char *name, uint64_t *ret_spun)
{
	char path[128], line[128], what[16];
	uint64_t a, b, decided;
	unsigned waits = 0, lines = 0;
	uint32_t w = 0;
	FILE *f;

	snprintf(path, sizeof path, "tests/traces/spin-%s.txt", name);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s: it is not there", path);
	*ret_spun = 0;
	while (fgets(line, sizeof line, f)) {
		uint64_t now = 0;

		lines++;
		if (*line == '#')
			continue;
		ck_assert_msg(sscanf(line, "%15s %" SCNu64 " %" SCNu64 " %" SCNu64, what, &a, &b,
				     &decided) == 4, "%s:%u: %s", path, lines, line);
		if (!strcmp(what, "wait")) {
			ck_assert_msg(w == b, "%s:%u: another word", path, lines);
			now = spin_rule_wait(&w, a);
			ck_assert_uint_le(now, a);
			*ret_spun += now;
			waits++;
		} else if (!strcmp(what, "crowded")) {
			now = w = spin_rule_crowded(w, (uint32_t)a, b);
		} else if (!strcmp(what, "learned")) {
			now = w = spin_rule_learned(w, a);
		} else if (!strcmp(what, "slept")) {
			now = spin_rule_short(a, b);
		} else {
			ck_abort_msg("%s:%u: %s", path, lines, what);
		}
		ck_assert_msg(now == decided, "%s:%u: %" PRIu64 ", then it was %" PRIu64, path,
			      lines, now, decided);
		within_bounds(w);
	}
	fclose(f);
	ck_assert_uint_gt(waits, 50);
	return waits;
}

/* Whose peer answers at once spins more than who has to share its processor, or waits for a peer
 * that answers late. */
START_TEST(recorded)
{
	uint64_t spare, one, slow;
	unsigned n_spare = replay("spare", &spare), n_one = replay("one", &one);
	unsigned n_slow = replay("slow", &slow);

	ck_assert_uint_gt(spare / n_spare, one / n_one);
	ck_assert_uint_gt(spare / n_spare, slow / n_slow);
}
END_TEST

START_TEST(switched_off)
{
	for (uint32_t luck = 0; luck <= SPIN_LUCK_MOST; luck++) {
		uint32_t w = SPIN_WORD(luck, 0, 0);

		ck_assert_uint_eq(spin_rule_wait(&w, 0), 0);
		ck_assert_uint_eq(w, SPIN_WORD(luck, 0, 0));
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
