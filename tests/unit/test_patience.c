/*
 * test_patience.c - how long calls wait, all together, for peers that do not end what they
 * have begun (shim/link/patience.c), by a clock of the test's own.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../shim/link/link.h"
#include "../../shim/base/shim.h"
#include "../traces/trace.h"

static uint64_t now;
static uint64_t test_now(void) { return now; }

#define now_ns test_now
#include "../../shim/link/patience.c"

#define SECOND (1000 * MS)

static struct link mine, roots, theirs, other, host;
static const struct path near, far = { .far = true };

static void begin(void)
{
	memset(since_ns, 0, sizeof(since_ns));
	memset(users, 0, sizeof(users));
	now = 1000 * SECOND;
	mine.peer_uid = geteuid();
	theirs.peer_uid = 31337;
	other.peer_uid = 31338;
	mine.since_us = theirs.since_us = other.since_us = now / 1000;
	mine.path = roots.path = theirs.path = other.path = &near;
	host.path = &far;
}

/* One peer never does what it has begun, with as many links as it likes: what a thread waits. */
static uint64_t waits_for(struct link *l, unsigned links, uint64_t most)
{
	uint64_t all = 0, ns;

	for (unsigned i = 0; i < links; i++) {
		ns = patience_ns(PATIENCE_CALL, l, most);
		ck_assert_uint_le(ns, most);
		now += ns;
		all += ns;
		patience_spent(PATIENCE_CALL, l, ns);
	}
	return all;
}

START_TEST(all_links_together)
{
	begin();
	ck_assert_uint_le(waits_for(&mine, 8, SECOND), SECOND + 120 * MS);
	begin();
	ck_assert_uint_le(waits_for(&theirs, 8, SECOND), 100 * MS);
}
END_TEST

START_TEST(for_ever)
{
	uint64_t from, all = 0;

	begin();
	atomic_store(&theirs.vain, true);
	for (from = now; now < from + 60 * SECOND; now += MS)	/* it takes him that for the next */
		all += waits_for(&theirs, 1, 50 * MS);
	ck_assert_uint_le(all, (now - from) / REFILL + 100 * MS);
	ck_assert_uint_ge(all, (now - from) / REFILL / 2);
}
END_TEST

START_TEST(others_keep_theirs)
{
	begin();
	waits_for(&theirs, 100, SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &mine, SECOND), SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &roots, SECOND), SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &host, SECOND), SECOND);
	ck_assert_uint_ge(patience_ns(PATIENCE_CALL, &other, SECOND), 50 * MS);
	/* Of a link that has done nothing. */
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &theirs, SECOND), 2 * MS);
	atomic_store(&theirs.vain, true);
	ck_assert_uint_lt(patience_ns(PATIENCE_CALL, &theirs, SECOND), MS);
	ck_assert_uint_le(patience_ns(PATIENCE_CALL, NULL, SECOND), 100 * MS);
	now += 30 * SECOND;
	ck_assert_uint_ge(patience_ns(PATIENCE_CALL, &theirs, SECOND), 50 * MS);
}
END_TEST

/* Thirty seconds for one that does not fall back, of another user one; then all others of his a
 * moment each. */
START_TEST(fallback)
{
	begin();
	ck_assert_uint_eq(patience_ns(PATIENCE_FALLBACK, &theirs, 30 * SECOND), SECOND);
	patience_spent(PATIENCE_FALLBACK, &theirs, SECOND);
	atomic_store(&theirs.vain, true);
	ck_assert_uint_le(patience_ns(PATIENCE_FALLBACK, &theirs, 30 * SECOND), 50 * MS);
	atomic_store(&theirs.vain, false);
	ck_assert_uint_eq(patience_ns(PATIENCE_FALLBACK, &theirs, 30 * SECOND), 100 * MS);
	ck_assert_uint_eq(patience_ns(PATIENCE_FALLBACK, &mine, 30 * SECOND), 30 * SECOND);
	patience_spent(PATIENCE_FALLBACK, &mine, 30 * SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_FALLBACK, &mine, 30 * SECOND), SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &mine, 30 * SECOND), SECOND);
}
END_TEST

/* The start of a program is held up by another user's peer for a tenth of that, and hardly more by
 * all that he has. */
START_TEST(start)
{
	uint64_t ns, all = 0;

	begin();
	for (int i = 0; i < 4; i++, all += ns) {
		ns = patience_ns(PATIENCE_START, &theirs, 30 * SECOND);
		patience_spent(PATIENCE_START, &theirs, ns);
	}
	ck_assert_uint_eq(all, 160 * MS);
	ck_assert_uint_eq(patience_ns(PATIENCE_FALLBACK, &theirs, 30 * SECOND), SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_START, &mine, 30 * SECOND), 30 * SECOND);
}
END_TEST

/* exec() loses what has not come: our own user's peer is waited for, whatever was before; another
 * user's for a second, and then hardly. */
START_TEST(exec)
{
	begin();
	for (enum patience p = 0; p < PATIENCES; p++)
		for (int i = 0; i < 3; i++)
			patience_spent(p, &mine, 30 * SECOND);
	atomic_store(&mine.vain, true);
	ck_assert_uint_eq(patience_ns(PATIENCE_EXEC, &mine, 30 * SECOND), 30 * SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_EXEC, &theirs, 30 * SECOND), SECOND);
	patience_spent(PATIENCE_EXEC, &theirs, SECOND);
	ck_assert_uint_eq(patience_ns(PATIENCE_EXEC, &theirs, 30 * SECOND), 20 * MS);
	atomic_store(&mine.vain, false);
}
END_TEST

/* Another user has his own, whatever his number. */
START_TEST(each_user)
{
	begin();
	for (uid_t uid = 1; uid < 5; uid++) {
		other.peer_uid = theirs.peer_uid + 16 * uid;
		for (enum patience p = 0; p < PATIENCES; p++)
			patience_spent(p, &other, 10 * SECOND);
	}
	for (enum patience p = 0; p < PATIENCES; p++) {
		uint64_t whole = p == PATIENCE_CALL ? 80 * MS : p == PATIENCE_START ? 100 * MS
										    : SECOND;

		ck_assert_uint_eq(patience_ns(p, &theirs, 30 * SECOND), whole);
		ck_assert_uint_le(patience_ns(p, &other, 30 * SECOND), 100 * MS);
	}
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &other, SECOND), 2 * MS);
}
END_TEST

/* Who can have any number of users gets no more by it than some do. Those who never spend keep
 * theirs, and so do all, a while later. */
START_TEST(many_users)
{
	uint64_t all = 0, ns;

	begin();
	patience_spent(PATIENCE_CALL, &theirs, 2 * MS);
	for (uid_t uid = 40000; uid < 45000; uid++) {
		other.peer_uid = uid;
		other.vain = true;
		ns = patience_ns(PATIENCE_CALL, &other, SECOND);
		patience_spent(PATIENCE_CALL, &other, ns);
		all += ns;
	}
	ck_assert_uint_le(all, (USERS + 1) * 80 * MS);
	ck_assert_uint_ge(patience_ns(PATIENCE_CALL, &theirs, SECOND), 75 * MS);
	now += 2 * SECOND;
	other.peer_uid = 50000;
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &other, SECOND), 80 * MS);
	other.vain = false;
}
END_TEST

/* Who has long been there is waited for for longer, at the start of a program: but not more than a
 * twentieth of the time. */
START_TEST(long_there)
{
	uint64_t from, ns, all = 0;

	begin();
	for (unsigned s = 0; s < 30; s++, now += SECOND) {
		uint64_t most = s < 20 ? s * 50 * MS : SECOND;

		ns = patience_ns(PATIENCE_START, &theirs, 30 * SECOND);
		ck_assert_uint_ge(ns, most > 101 * MS ? most - MS : 100 * MS);
		ck_assert_uint_le(ns, most > 100 * MS ? most + MS : 100 * MS + MS);
	}
	for (from = now; now < from + 100 * SECOND; now += 3 * SECOND) {
		ns = patience_ns(PATIENCE_START, &theirs, 30 * SECOND);
		patience_spent(PATIENCE_START, &theirs, ns);
		all += ns;
	}
	ck_assert_uint_ge(all, SECOND + 100 * SECOND / REFILL * 9 / 10);
	ck_assert_uint_le(all, SECOND + 100 * SECOND / REFILL);
}
END_TEST

/* A peer of another user that has a fiftieth of a CPU: each decision is as it was then. It is
 * waited for a second time for a moment only, and is not given up for that. */
START_TEST(recorded)
{
	struct trace t = trace_open("patience");
	uint64_t from = 0, all = 0;
	unsigned answers = 0, in_vain = 0;
	bool asked = false;

	begin();
	while (trace_next(&t)) {
		if (trace_is(&t, "since")) {
			theirs.since_us = t.b;
			continue;
		}
		now = t.b;
		from = from ? from : theirs.since_us * 1000;
		if (trace_is(&t, "may")) {
			answers += asked;
			asked = true;
			trace_same(&t, patience_ns((enum patience)t.a, &theirs, UINT64_MAX));
		} else {
			ck_assert(trace_is(&t, "spent"));
			asked = false;
			in_vain++;
			all += t.decided;
			patience_spent((enum patience)t.a, &theirs, t.decided);
			atomic_store(&theirs.vain, true);
		}
	}
	ck_assert_uint_ge(answers, 5);
	ck_assert_uint_ge(in_vain, 5);
	/* what is beyond the store is the clock's, when a thread is woken late */
	ck_assert_uint_le(all, (now - from) / REFILL + in_vain * 40 * MS);
}
END_TEST

/* A year without a word. */
START_TEST(long_time)
{
	begin();
	patience_spent(PATIENCE_CALL, &theirs, SECOND);
	patience_spent(PATIENCE_START, &theirs, SECOND);
	now += 3600ull * 24 * 365 * SECOND;
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &theirs, SECOND), 80 * MS);
	ck_assert_uint_eq(patience_ns(PATIENCE_START, &theirs, SECOND), SECOND);
}
END_TEST

/* Threads that waited at one time, and for longer than there was. */
START_TEST(no_debts)
{
	begin();
	for (int i = 0; i < 50; i++)
		patience_spent(PATIENCE_CALL, &mine, 100 * SECOND);
	atomic_store(&mine.vain, true);
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &mine, SECOND), 0);
	now += 20 * SECOND;
	ck_assert_uint_eq(patience_ns(PATIENCE_CALL, &mine, 2 * SECOND), SECOND);
	now = 1;		/* just started */
	patience_spent(PATIENCE_CALL, &other, SECOND);
	ck_assert_uint_le(patience_ns(PATIENCE_CALL, &other, SECOND), 100 * MS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("patience");
	TCase *t = tcase_create("patience");
	SRunner *r;
	int failed;

	tcase_add_test(t, all_links_together);
	tcase_add_test(t, for_ever);
	tcase_add_test(t, others_keep_theirs);
	tcase_add_test(t, fallback);
	tcase_add_test(t, start);
	tcase_add_test(t, no_debts);
	tcase_add_test(t, exec);
	tcase_add_test(t, each_user);
	tcase_add_test(t, many_users);
	tcase_add_test(t, long_there);
	tcase_add_test(t, long_time);
	tcase_add_test(t, recorded);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
