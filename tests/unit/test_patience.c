/*
 * test_patience.c - how long calls wait, all together, for peers that do not end what they
 * have begun (shim/link/patience.c), by a clock of the test's own.
 */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../shim/link/link.h"
#include "../../shim/base/shim.h"

static uint64_t now;
static uint64_t test_now(void) { return now; }

#define now_ns test_now
#include "../../shim/link/patience.c"

#define SECOND (1000 * MS)

static struct link mine, roots, theirs, other, host;
static const struct path near, far = { .far = true };

static void begin(void)
{
	now = 1000 * SECOND;
	mine.peer_uid = geteuid();
	theirs.peer_uid = 31337;
	other.peer_uid = 31338;
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
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
