/* suite.h - what main() of a unit test ends with. */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

/* Runs it; the exit status. */
static int run_suite(Suite *s)
{
	SRunner *r = srunner_create(s);
	int failed;

	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}

#endif
