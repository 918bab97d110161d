/*
 * test_poller.c - which programs wait by asking again and again (shim/conn/poller.h), on the reads
 * of a real one (tests/traces): each decision is as it was then. And what the rule is for.
 */
#include <check.h>

#include "../../shim/conn/poller.h"
#include "../traces/trace.h"
#include "suite.h"

START_TEST(recorded)
{
	struct trace t = trace_open("poller");
	unsigned begun = 0, stopped = 0;
	struct poller p = { 0 };
	uint64_t due;

	while (trace_next(&t)) {
		uint64_t now = 0;

		if (trace_is(&t, "read")) {
			now = poller_read(&p, t.a, t.b);
		} else if (trace_is(&t, "dry")) {
			now = poller_dry(&p, t.a);
			ck_assert(!p.polls);
		} else if (trace_is(&t, "begins")) {
			ck_assert(!p.polls);
			poller_begins(&p);
			begun++;
		} else if (trace_is(&t, "look")) {
			now = poller_goes_on(&p, (uint32_t)t.a, t.b, &due);
			ck_assert(p.polls);
			ck_assert_uint_gt(due, t.b);
			ck_assert_uint_le(due, t.b + POLLER_US);
		} else {
			ck_assert(trace_is(&t, "stops"));
			poller_stops(&p);
			p.due_us = 0;
			now = p.stopped;
			stopped++;
		}
		trace_same(&t, now);
	}
	ck_assert_uint_eq(begun, 2);
	ck_assert_uint_eq(stopped, 2);
}
END_TEST

/* How many empty reads it takes, each time with a CPU to spare. */
static unsigned reads_until_poller(struct poller *p)
{
	for (unsigned n = 1; n < 1u << 28; n++) {
		if (poller_read(p, true, false) && poller_dry(p, true)) {
			poller_begins(p);
			return n;
		}
	}
	return 0;
}

/* Twice as many after each time that it stopped, up to a bound. */
START_TEST(stops_again_and_again)
{
	struct poller p = { 0 };
	unsigned n = EMPTY_READS_MOST * IDLE_ROUNDS_MOST;

	for (int i = 0; i < 12; i++, n *= 2) {
		ck_assert_uint_eq(reads_until_poller(&p), n);
		poller_stops(&p);
	}
	for (int i = 0; i < 100; i++)
		poller_stops(&p);
	ck_assert_uint_eq(p.stopped, STOPPED_MOST);
}
END_TEST

/* One that finds something now and then is none, nor one whose CPU others need, nor one whose waits
 * we see. */
START_TEST(others)
{
	struct poller p = { 0 };

	for (int i = 0; i < 10000; i++)
		ck_assert(!poller_read(&p, i % EMPTY_READS_MOST, false));
	for (int i = 0; i < 10000; i++)
		ck_assert(!poller_read(&p, true, true));
	p = (struct poller){ 0 };
	for (int i = 0; i < 10000; i++)
		if (poller_read(&p, true, false))
			ck_assert(!poller_dry(&p, p.idle_rounds < IDLE_ROUNDS_MOST - 1));
}
END_TEST

/* It is looked at each POLLER_US, and has stopped if it has asked for nothing since. */
START_TEST(no_longer_asks)
{
	struct poller p = { .polls = 1 };
	uint64_t due, now = 5;

	for (uint32_t asked = 1; asked < 100; asked++, now = due) {
		ck_assert(poller_goes_on(&p, asked, now, &due));
		ck_assert(poller_goes_on(&p, asked, due - 1, &due));
		ck_assert_uint_eq(due, now + POLLER_US);
	}
	ck_assert(poller_goes_on(&p, 100, now, &due));
	ck_assert(!poller_goes_on(&p, 100, due, &due));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("poller");
	TCase *t = tcase_create("poller");

	tcase_add_test(t, recorded);
	tcase_add_test(t, stops_again_and_again);
	tcase_add_test(t, others);
	tcase_add_test(t, no_longer_asks);
	suite_add_tcase(s, t);
	return run_suite(s);
}
