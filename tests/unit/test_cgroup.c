/*
 * test_cgroup.c - what is left of a group's memory, by files of both versions that are made up.
 */
#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../shim/base/fdtab.h"
#include "../../shim/base/procfs.h"

static int open_one(const char *path);
#undef fd_moment_sys
#define fd_moment_sys(n, dir, path, flags) open_one(path)
#include "../../shim/base/cgroup.c"
#include "suite.h"

static const char *files[32][2];
static int nfiles;

static void is(const char *path, const char *text)
{
	files[nfiles][0] = path;
	files[nfiles++][1] = text;
}

static int open_one(const char *path)
{
	for (int i = nfiles; i--;) {
		int fd;

		if (strcmp(files[i][0], path))
			continue;
		fd = memfd_create("one", 0);
		ck_assert(write(fd, files[i][1], strlen(files[i][1])) >= 0);
		lseek(fd, 0, SEEK_SET);
		return fd;
	}
	return -2;
}

bool proc_is_ours(void) { return true; }
void fd_internal_close(int fd) { close(fd); }

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/memory"

static void begin(void)
{
	nfiles = 0;
	is("/proc/meminfo", "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:  5000 kB\n");
	is("/proc/self/cgroup", "0::/a/b\n");
}

START_TEST(of_the_machine)
{
	is(V2 "/a/b/memory.max", "max\n");
	is(V2 "/a/b/memory.current", "4096000\n");
	ck_assert_uint_eq(memory_left(), 5000u << 10);
	ck_assert_uint_eq(memory_limit(), 8000u << 10);
	is("/proc/meminfo", "MemTotal:  8000 kB\n");
	ck_assert_uint_eq(memory_left(), UINT64_MAX);
}
END_TEST

/* The least of all groups; pages of files are given back when somebody needs them. */
START_TEST(of_groups)
{
	is(V2 "/a/b/memory.max", "3000000\n");
	is(V2 "/a/b/memory.current", "1000000\n");
	ck_assert_uint_eq(memory_left(), 2000000);
	is(V2 "/a/b/memory.stat", "anon 5\ninactive_anon 7\ninactive_file 300000\n"
				  "active_file 100000\n");
	ck_assert_uint_eq(memory_left(), 2400000);
	is(V2 "/a/memory.max", "2000000\n");
	is(V2 "/a/memory.current", "1900000\n");
	ck_assert_uint_eq(memory_left(), 100000);
	is(V2 "/a/memory.current", "2100000\n");
	ck_assert_uint_eq(memory_left(), 0);
	ck_assert_uint_eq(memory_limit(), 2000000);
}
END_TEST

START_TEST(of_version_1)
{
	is("/proc/self/cgroup", "5:cpu:/\n4:memory:/c\n");
	is(V1 "/c/memory.limit_in_bytes", "3000000\n");
	is(V1 "/c/memory.usage_in_bytes", "2900000\n");
	is(V1 "/c/memory.stat", "cache 1\ninactive_file 1\nactive_file 1\n"
				"total_inactive_file 500000\ntotal_active_file 100000\n");
	ck_assert_uint_eq(memory_left(), 700000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cgroup");
	TCase *t = tcase_create("cgroup");

	tcase_add_checked_fixture(t, begin, NULL);
	tcase_add_test(t, of_the_machine);
	tcase_add_test(t, of_groups);
	tcase_add_test(t, of_version_1);
	suite_add_tcase(s, t);
	return run_suite(s);
}
