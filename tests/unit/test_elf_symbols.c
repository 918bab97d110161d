/*
 * test_elf_symbols.c - functions are found without dlsym() as dlsym(RTLD_NEXT) finds them: all that
 * the library interposes, one that has an older version too, one that is chosen when it is asked
 * for, and one that nobody has.
 * LINK: shim/libc/elf_symbols.c
 */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../shim/libc/elf_symbols.h"

static const char *const names[] = {
#define CALL(ret, name, params, args, where, doc) #name,
#define CALLV(name, params, args, where, doc) #name,
#define VCALL(ret, name, params, last, args, where, doc) #name,
#include "../../shim/libc/calls.def"
	"posix_spawn", "memcpy", "fclose", "dlopen", "no_such_function_anywhere",
};
#define N (sizeof names / sizeof *names)

START_TEST(as_dlsym)
{
	void *found[N] = { NULL };
	unsigned there = 0;

	ck_assert(elf_find_next(names, found, N));
	for (unsigned i = 0; i < N; i++) {
		/* this program has none of them; RTLD_NEXT finds old versions before glibc 2.36 */
		ck_assert_msg(found[i] == dlsym(RTLD_DEFAULT, names[i]), "%s", names[i]);
		there += found[i] != NULL;
	}
	ck_assert_ptr_null(found[N - 1]);
	ck_assert_uint_gt(there, 70);
}
END_TEST

START_TEST(what_is_known_stays)
{
	int mine;
	void *found = &mine;

	ck_assert(elf_find_next(&(const char *){ "read" }, &found, 1));
	ck_assert_ptr_eq(found, &mine);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("elf_symbols");
	TCase *t = tcase_create("elf_symbols");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, as_dlsym);
	tcase_add_test(t, what_is_known_stays);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
