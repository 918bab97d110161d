/*
 * test_include.c - policy files that include others: what is read in which order, what counts
 * where, the places of rules and of errors, the limits, and the list of files whose change is a
 * change of the policy. Works in a directory of its own.
 *
 * TIMEOUT: 60
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../policy/conf.h"
#include "../../policy/rule.h"

static char dir[] = "/tmp/rdmashim-include-XXXXXX";
static struct policy_error err;
static struct policy_deps deps;

static void enter(void)
{
	strcpy(dir + sizeof(dir) - 7, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chdir(dir), 0);
}

static void leave(void)
{
	char cmd[100];

	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	ck_assert_int_eq(chdir("/"), 0);
	ck_assert_int_eq(system(cmd), 0);
}

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static struct policy *good(const char *name)
{
	struct policy *p = NULL;
	int rc = policy_load_watched(name, &deps, &p, &err);

	ck_assert_msg(!rc, "%s:%d:%d: %s", rc ? err.file : "", rc ? err.line : 0, rc ? err.col : 0,
		      rc ? err.msg : "");
	return p;
}

/* Refused in this file, at this place, with this in the message. */
static void bad(const char *name, const char *file, int line, int col, const char *msg)
{
	struct policy *p = NULL;

	ck_assert_int_eq(policy_load_watched(name, &deps, &p, &err), -EINVAL);
	ck_assert_ptr_null(p);
	ck_assert_msg(!strcmp(err.file, file) && err.line == line && err.col == col &&
			      strstr(err.msg, msg),
		      "%s:%d:%d: %s", err.file, err.line, err.col, err.msg);
}

static struct policy_decision ask(const struct policy *p, const char *program, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(0x0a000001) };
	struct policy_decision d;

	policy_decide(p, program, ROLE_CLIENT, NULL, (struct sockaddr *)&a, &d);
	return d;
}

static void decides(const struct policy *p, const char *program, uint16_t port, const char *file,
		    int line)
{
	struct policy_decision d = ask(p, program, port);

	ck_assert_msg(!strcmp(d.file, file) && d.line == line, "%s port %u: %s:%d, not %s:%d",
		      program, port, d.file, d.line, file, line);
	ck_assert_int_eq(policy_at_line(d.at), line);
}

/* The text stands in the place of the line; names are relative to the file that has it. */
START_TEST(test_order)
{
	struct policy *p;
	char path[100];

	ck_assert_int_eq(mkdir("sub", 0755), 0);
	write_file("a.conf",
		   "use tcp both *:1\ninclude sub/b.conf\nuse tcp both *:1-5\nspin 7us\n");
	write_file("sub/b.conf", "use tcp both *:2\n# not here\ninclude c.conf # this "
				 "directory's\nring_size 8K\n");
	write_file("sub/c.conf", "\nuse tcp both *:3\nuse tcp both *:1-5\n");
	snprintf(path, sizeof(path), "%s/a.conf", dir);
	for (int i = 0; i < 2; i++) {
		p = good(i ? path : "a.conf");
		decides(p, "x", 1, "a.conf", 1);
		decides(p, "x", 2, "b.conf", 1);
		decides(p, "x", 3, "c.conf", 2);
		decides(p, "x", 4, "c.conf", 3);
		decides(p, "x", 9, "", 0);
		ck_assert_uint_eq(policy_tunables(p)->spin, 7);
		ck_assert_uint_eq(policy_tunables(p)->ring_size, 8192);
		ck_assert_uint_eq(p->nfiles, 3);
		ck_assert_str_eq(policy_at_path(p, ask(p, "x", 3).at) + (i ? strlen(dir) + 1 : 0),
				 "sub/c.conf");
		ck_assert_uint_eq(ask(p, "x", 1).at, 1);
		policy_free(p);
	}
}
END_TEST

/* A file begins in the section of the line that includes it, and ends its own. */
START_TEST(test_sections)
{
	struct policy *p;

	write_file("a.conf", "program one\ninclude b.conf\nuse tcp both *:2\nprogram *\ninclude "
			     "c.conf\nspin 9us\nuse tcp both *:4\n");
	write_file("b.conf", "use tcp both *:1\nprogram two\nuse tcp both *:*\n");
	write_file("c.conf", "program three\nuse tcp both *:3\n");
	p = good("a.conf");
	decides(p, "one", 1, "b.conf", 1);
	decides(p, "two", 1, "b.conf", 3);
	decides(p, "x", 1, "", 0);
	decides(p, "one", 2, "a.conf", 3);
	decides(p, "x", 2, "", 0);
	decides(p, "three", 3, "c.conf", 2);
	decides(p, "x", 3, "", 0);
	decides(p, "x", 4, "a.conf", 7);
	ck_assert_uint_eq(policy_tunables(p)->spin, 9);
	policy_free(p);
	write_file("b.conf", "mode off\n");
	bad("a.conf", "b.conf", 1, 1, "stands in the section of program 'one'");
}
END_TEST

START_TEST(test_pattern)
{
	struct policy *p;

	ck_assert_int_eq(mkdir("d", 0755), 0);
	write_file("a.conf", "include d/*.conf\ninclude none/*\n");
	p = good("a.conf");
	ck_assert_uint_eq(p->nfiles, 1);
	policy_free(p);
	write_file("d/20.conf", "use tcp both *:1-9\n");
	write_file("d/10.conf", "use tcp both *:1\n");
	write_file("d/.5.conf", "nonsense\n");
	write_file("d/5.conf.new", "nonsense\n");
	p = good("a.conf");
	decides(p, "x", 1, "10.conf", 1);
	decides(p, "x", 2, "20.conf", 1);
	ck_assert_uint_eq(p->nfiles, 3);
	policy_free(p);
	ck_assert_int_eq(mkdir("d/30.conf", 0755), 0);
	bad("a.conf", "a.conf", 1, 9, "'d/30.conf': it is a directory");
	write_file("a.conf", "include */x\n");
	bad("a.conf", "a.conf", 1, 9, "in the last component only");
	write_file("a.conf", "  include ?0.con?\n");
	write_file("10.conf", "  spin 1x\n");
	bad("a.conf", "10.conf", 1, 9, "not a unit");
}
END_TEST

START_TEST(test_errors)
{
	struct policy *p = NULL;
	char line[400];

	write_file("a.conf", "mode on\n\tinclude b.conf\n");
	bad("a.conf", "a.conf", 2, 10,
	    "'b.conf': there is no such file; create it, or take this line out");
	write_file("b.conf", "spin 1us\n\nuse tpc both *:*\n");
	bad("a.conf", "b.conf", 3, 5, "did you mean 'tcp'?");
	write_file("b.conf", "mode off\n");
	bad("a.conf", "b.conf", 1, 1, "mode was set in a.conf:1 already");
	write_file("a.conf", "include b.conf\nmode on\n");
	bad("a.conf", "a.conf", 2, 1, "mode was set in b.conf:1 already");
	write_file("a.conf", "spin 1us\ninclude b.conf\n");
	write_file("b.conf", "spin 1us\n");
	bad("a.conf", "b.conf", 1, 1, "spin was set in a.conf:1 already");
	write_file("b.conf", "key_file /x\nkey_file /y\n");
	bad("a.conf", "b.conf", 2, 1, "key_file was set in line 1 already");
	write_file("a.conf", "include .\n");
	bad("a.conf", "a.conf", 1, 9, "it is a directory");
	write_file("a.conf", "include\n");
	bad("a.conf", "a.conf", 1, 8, "the file's name is missing");
	write_file("a.conf", "include b.conf c.conf\n");
	bad("a.conf", "a.conf", 1, 16, "one word too many");
	write_file("a.conf", "inlcude b.conf\n");
	bad("a.conf", "a.conf", 1, 1, "did you mean 'include'?");
	ck_assert_int_eq(mkfifo("f", 0600), 0);		/* and nobody waits for a writer */
	write_file("a.conf", "include f\n");
	bad("a.conf", "a.conf", 1, 9, "not a regular file");
	write_file("a.conf", "include b.conf\n");
	write_file("b.conf", "spin 1us\n");
	ck_assert_int_eq(chmod("b.conf", 0646), 0);
	bad("a.conf", "a.conf", 1, 9, "'b.conf': it belongs to user");
	ck_assert_ptr_nonnull(strstr(err.msg, "has mode 0646: others may write to it; take that "
					      "away"));
	ck_assert_int_eq(chmod("b.conf", 0664), 0);
	bad("a.conf", "a.conf", 1, 9,
	    "mode 0664: its group may write to it; take that away (chmod g-w)");
	ck_assert_int_eq(chmod("b.conf", 0644), 0);
	ck_assert_int_eq(chmod("a.conf", 0666), 0);
	ck_assert_int_eq(policy_load("a.conf", &p, &err), -EKEYREJECTED);
	ck_assert_ptr_nonnull(strstr(err.msg, "others may write to it"));
	ck_assert_int_eq(chmod("a.conf", 0644), 0);
	snprintf(line, sizeof(line), "include %0300d\n", 7);
	write_file("a.conf", line);
	bad("a.conf", "a.conf", 1, 9, "longer than 255 bytes");
	/* the main file itself: its own words, as before */
	ck_assert_int_eq(policy_load("none", &(struct policy *){ NULL }, &err), -ENOENT);
	ck_assert_str_eq(err.file, "none");
	ck_assert_int_eq(err.line, 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "there is no such file; create it, or name another"));
}
END_TEST

START_TEST(test_loops)
{
	char name[40], text[80];
	struct policy *p;

	write_file("a.conf", "include b.conf\n");
	write_file("b.conf", "\ninclude a.conf\n");
	bad("a.conf", "b.conf", 2, 9, "'a.conf' includes itself");
	ck_assert_int_eq(symlink("a.conf", "l.conf"), 0);	/* by whatever name */
	write_file("b.conf", "include l.conf\n");
	bad("a.conf", "b.conf", 1, 9, "'l.conf' includes itself");
	write_file("a.conf", "include *.conf\n");
	bad("a.conf", "a.conf", 1, 9, "'a.conf' includes itself");
	/* twice the same, one after the other, is no loop */
	write_file("c.conf", "use tcp both *:1\n");
	write_file("a.conf", "include c.conf\ninclude c.conf\n");
	p = good("a.conf");
	ck_assert_uint_eq(policy_rules(p), 2);
	policy_free(p);
	/* eight deep, and no deeper */
	for (int i = 0; i < 9; i++) {
		snprintf(name, sizeof(name), "deep%d", i);
		snprintf(text, sizeof(text), "include deep%d\n", i + 1);
		write_file(name, i < 8 ? text : "spin 5us\n");
	}
	p = good("deep0");
	ck_assert_uint_eq(policy_tunables(p)->spin, 5);
	policy_free(p);
	write_file("deep8", "include deep9\n");
	write_file("deep9", "spin 5us\n");
	bad("deep0", "deep8", 1, 9, "include at most 8 deep");
}
END_TEST

START_TEST(test_sizes)
{
	struct policy *p;
	char name[40], *big;
	FILE *f;

	ck_assert_int_eq(mkdir("d", 0755), 0);
	write_file("a.conf", "include d/*\n");
	for (int i = 0; i < 63; i++) {
		snprintf(name, sizeof(name), "d/%02d", i);
		write_file(name, "use tcp both *:1\n");
	}
	p = good("a.conf");
	ck_assert_uint_eq(policy_rules(p), 63);
	ck_assert_uint_eq(policy_at_file(p->rules[62].at), 63);
	policy_free(p);
	write_file("d/63", "");
	bad("a.conf", "a.conf", 1, 9, "one file too many; include at most 63");
	write_file("d/64", "");
	bad("a.conf", "a.conf", 1, 9, "more than 64 files");
	/* 1 MiB in all: the first file has 12 and 10 bytes of it */
	write_file("a.conf", "include big\ninclude b\n");
	write_file("b", "");
	big = malloc(1 << 20);
	memset(big, '\n', 1 << 20);
	f = fopen("big", "w");
	ck_assert_uint_eq(fwrite(big, 1, (1 << 20) - 22, f), (1 << 20) - 22);
	fclose(f);
	policy_free(good("a.conf"));
	write_file("b", "\n");
	bad("a.conf", "a.conf", 2, 9, "more than 1 MiB in all");
	free(big);
}
END_TEST

static bool depends(const char *path)
{
	for (unsigned i = 0; i < deps.n; i++)
		if (!strcmp(deps.path[i], path))
			return true;
	return false;
}

/* What is to be watched: also of a policy that is refused, or else it could not be mended there. */
START_TEST(test_deps)
{
	ck_assert_int_eq(mkdir("d", 0755), 0);
	write_file("a.conf", "include d/*.conf\ninclude b.conf\n");
	write_file("d/1.conf", "");
	bad("a.conf", "a.conf", 2, 9, "no such file");
	ck_assert(depends("a.conf") && depends("d/*.conf") && depends("d/1.conf") &&
		  depends("b.conf"));
	ck_assert_uint_eq(deps.n, 4);
	write_file("b.conf", "nonsense\n");
	bad("a.conf", "b.conf", 1, 1, "is not a key");
	ck_assert(depends("b.conf"));
	ck_assert_int_eq(unlink("a.conf"), 0);
	ck_assert_int_eq(policy_load_watched("a.conf", &deps, &(struct policy *){ NULL }, &err),
			 -ENOENT);
	ck_assert(depends("a.conf"));
	ck_assert_uint_eq(deps.n, 1);
}
END_TEST

/* A text in the place of an included file, as `rdmastat policy set` tries it. */
START_TEST(test_instead)
{
	struct policy *p = NULL;

	write_file("a.conf", "include b.conf\nmode off\n");
	write_file("b.conf", "spin 5us\n");
	ck_assert_int_eq(policy_parse_instead("a.conf", "b.conf", "spin 6us\n", 9, &p, &err), 0);
	ck_assert_uint_eq(policy_tunables(p)->spin, 6);
	ck_assert(!policy_mode_on(p));
	policy_free(p);
	ck_assert_int_eq(policy_parse_instead("a.conf", "b.conf", "mode on\n", 8, &p, &err),
			 -EINVAL);
	ck_assert_str_eq(err.file, "a.conf");
	ck_assert_int_eq(policy_parse_instead("a.conf", "a.conf", "include b.conf\n", 15, &p, &err),
			 0);
	ck_assert_uint_eq(policy_tunables(p)->spin, 5);
	policy_free(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("include");
	TCase *t = tcase_create("include");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, enter, leave);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_order);
	tcase_add_test(t, test_sections);
	tcase_add_test(t, test_pattern);
	tcase_add_test(t, test_errors);
	tcase_add_test(t, test_loops);
	tcase_add_test(t, test_sizes);
	tcase_add_test(t, test_deps);
	tcase_add_test(t, test_instead);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
