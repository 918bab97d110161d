/*
 * test_renamed.c - policy files with old names of keys and words mean the new ones, and are told.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../../policy/conf.h"
#include "../../policy/renamed.h"
#include "suite.h"

static int parse(const char *text, struct policy **ret, struct policy_error *err)
{
	return policy_parse(text, strlen(text), "t.conf", ret, err);
}

static struct policy *must_parse(const char *text)
{
	struct policy_error err;
	struct policy *p = NULL;

	ck_assert_msg(!parse(text, &p, &err), "<%s>: %s", text, err.msg);
	return p;
}

/* The old name does what the new one does, and nobody is told of the new one. */
static void same(const char *old, const char *now)
{
	struct policy *a = must_parse(old), *b = must_parse(now);
	char text[POLICY_OLD_TEXT];
	uint32_t at = 0;

	ck_assert_mem_eq(policy_tunables(a), policy_tunables(b), sizeof(struct policy_tunables));
	ck_assert_str_eq(policy_discovery_dir(a), policy_discovery_dir(b));
	ck_assert_ptr_nonnull(policy_old_name(a, 0, &at, text, sizeof(text)));
	ck_assert_int_eq(policy_at_line(at), 2);
	ck_assert_ptr_null(policy_old_name(a, 1, &at, text, sizeof(text)));
	ck_assert_ptr_null(policy_old_name(b, 0, &at, text, sizeof(text)));
	policy_free(a);
	policy_free(b);
}

START_TEST(old_means_new)
{
	same("\nrendezvous 3s", "discovery 3s");
	same("\nrendezvous_port 7471", "discovery_port 7471");
	same("\nrendezvous_dir /run/x", "discovery_dir /run/x");
	same("\nearn_learn off", "earn_lifetime off");
	same("\ndevice truthful", "device eager");
	same("\ndevice deferred", "device lazy");
}
END_TEST

START_TEST(sentences)
{
	struct policy *p = must_parse("rendezvous_port 1\ndevice deferred\nspin 1us\n");
	char text[POLICY_OLD_TEXT];
	uint32_t at;

	ck_assert_str_eq(policy_old_name(p, 0, &at, text, sizeof(text)),
		"rendezvous_port is called discovery_port now; the old name is still understood");
	ck_assert_int_eq(policy_at_line(at), 1);
	ck_assert_str_eq(policy_old_name(p, 1, &at, text, sizeof(text)), "device deferred is "
		"called device lazy now; the old name is still understood");
	ck_assert_int_eq(policy_at_line(at), 2);
	ck_assert_ptr_null(policy_old_name(p, 2, &at, text, sizeof(text)));
	policy_free(p);
}
END_TEST

/* One setting, by whichever name. */
START_TEST(twice)
{
	struct policy_error err;
	struct policy *p = NULL;

	ck_assert_int_eq(parse("rendezvous_port 1\ndiscovery_port 2", &p, &err), -EINVAL);
	ck_assert_int_eq(err.line, 2);
	ck_assert_str_eq(err.msg,
		"discovery_port was set in line 1 already; remove one of the two");
	ck_assert_int_eq(parse("discovery 1s\nrendezvous 2s\n", &p, &err), -EINVAL);
	ck_assert_int_eq(err.line, 2);
}
END_TEST

/* An old word of `device` is no word elsewhere, and no key. */
START_TEST(elsewhere)
{
	struct policy_error err;
	struct policy *p = NULL;

	ck_assert_int_eq(parse("alias truthful\n", &p, &err), -EINVAL);
	ck_assert_int_eq(parse("truthful\n", &p, &err), -EINVAL);
	ck_assert_int_eq(parse("device rendezvous\n", &p, &err), -EINVAL);
}
END_TEST

/* A row whose new name is unknown would turn a file that was good into a bad one. */
START_TEST(rows)
{
	for (int i = 0; i < OLD_NAMES; i++) {
		const struct old_name *n = &old_names[i];
		struct policy_error err;
		struct policy *p = NULL;
		char line[80];

		ck_assert_str_eq(former_name(n->of, n->now), n->old);
		ck_assert_ptr_eq(old_name(n->of, n->old, strlen(n->old)), n);
		ck_assert_ptr_null(old_name(n->of, n->now, strlen(n->now)));
		if (!strcmp(n->of, "check") || !strcmp(n->of, "reason"))
			continue;
		snprintf(line, sizeof(line), "%s %s", n->of, n->old);
		if (!strcmp(n->of, "device"))
			ck_assert_msg(!parse(line, &p, &err), "%s: %s", line, err.msg);
		else
			ck_assert_msg(parse(n->old, &p, &err) && strstr(err.msg, "missing"),
				"%s: %s", n->old, err.msg);
		policy_free(p);
	}
	ck_assert_str_eq(former_name("key", "spin"), "spin");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("renamed");
	TCase *t = tcase_create("renamed");

	tcase_add_test(t, old_means_new);
	tcase_add_test(t, sentences);
	tcase_add_test(t, twice);
	tcase_add_test(t, elsewhere);
	tcase_add_test(t, rows);
	suite_add_tcase(s, t);
	return run_suite(s);
}
