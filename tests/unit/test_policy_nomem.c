/*
 * test_policy_nomem.c - memory that cannot be had while a policy is read: each single allocation
 * fails, once and from there on, until a run makes fewer. Each time there is a policy that
 * decides as without a failure, or an error that says why; and nothing is left. These are the
 * only places where the library asks malloc for memory; the rest is mmap, a row of
 * hostile/faults.
 *
 * LIBS: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=free
 */
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../policy/conf.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

/* Only while armed: the test's own library asks for memory too. */
static bool armed, for_ever;
static long asked, fail_at, failed, live;

static bool refuse(void)
{
	if (!armed)
		return false;
	asked++;
	if (asked != fail_at && !(for_ever && asked > fail_at))
		return false;
	failed++;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t n)
{
	if (refuse())
		return NULL;
	live += armed;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	if (refuse())
		return NULL;
	live += armed;
	return __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	if (refuse())
		return NULL;
	live += armed && !p;
	return __real_realloc(p, n);
}

void __wrap_free(void *p)
{
	live -= armed && p;
	__real_free(p);
}

static char dir[] = "/tmp/test_policy_nomem.XXXXXX";

static void put(const char *name, const char *text, int times)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	for (int i = 0; i < times; i++)
		fputs(text, f);
	fclose(f);
}

static void make_files(void)
{
	char path[200];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/d", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	/* more than the first rules have room for */
	put("main", "use shm both 10.0.0.0/8:1-100\n", 20);
	put("d/a.conf", "use tcp server *:22\n", 1);
	put("d/b.conf", "use tcp client *:25\n", 20);
	put("more", "use tcp both *:6379\n", 1);
	put("top", "include main\ninclude d/*.conf\ninclude more\nspin 7us\n", 1);
}

static void drop_files(void)
{
	static const char *const names[] = { "d/a.conf", "d/b.conf", "d", "main", "more", "top",
					     "" };
	char path[200];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		remove(path);
	}
}

static void decides(const struct policy *p)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(6379) };
	struct policy_decision d;

	policy_decide(p, "a", ROLE_SERVER, (struct sockaddr *)&a, (struct sockaddr *)&a, &d);
	ck_assert_uint_eq(d.paths, 1u << PATH_TCP);
	ck_assert_uint_eq(d.line, 1);
	ck_assert_ptr_nonnull(strstr(d.file, "more"));
}

static void read_once(const char *path)
{
	struct policy_error err = { .line = 0 };
	struct policy *p = NULL;
	int rc;

	asked = failed = live = 0;
	armed = true;
	rc = policy_load(path, &p, &err);
	armed = false;
	if (rc) {
		ck_assert_msg(failed > 0, "refused without a failure: %s", err.msg);
		ck_assert_msg(strstr(err.msg, "memory") != NULL,
			      "allocation %ld: the error says <%s>", fail_at, err.msg);
	} else {
		decides(p);
		armed = true;
		policy_free(p);
		armed = false;
	}
	ck_assert_msg(live == 0, "allocation %ld: %ld are left", fail_at, live);
}

START_TEST(each_allocation)
{
	char path[200];

	make_files();
	snprintf(path, sizeof path, "%s/top", dir);
	for_ever = _i;
	for (fail_at = 1; fail_at < 1000; fail_at++) {
		read_once(path);
		if (!failed)
			break;
	}
	ck_assert_msg(fail_at > 10, "only %ld allocations: this tried nothing", fail_at - 1);
	ck_assert_int_lt(fail_at, 1000);
	drop_files();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("policy_nomem");
	TCase *c = tcase_create("memory");
	SRunner *r;
	int n;

	tcase_add_loop_test(c, each_allocation, 0, 2);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	n = srunner_ntests_failed(r);
	srunner_free(r);
	return n != 0;
}
