/*
 * test_procs.c - which process is on its way through exit (shim/base/procs.c): not one whose first
 * thread alone has left.
 *
 * LINK: shim/base/procs.c shim/base/procfs.c shim/base/fdtab.c shim/base/event.c shim/base/lock.c
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../shim/base/procs.h"
#include "suite.h"

#define LARGE (64ul << 20)	/* so that its end takes a while */

static int pid, pidfd;
static uint64_t start;

static void *waits(void *p) { pause(); return p; }

static void first_thread_leaves(void)
{
	pthread_t t;

	pthread_create(&t, NULL, waits, NULL);
	pthread_exit(NULL);
}

static void ends(void)
{
	void *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED)
		memset(p, 1, LARGE);
	_exit(0);
}

static void begin(void (*what)(void))
{
	pid = fork();
	if (!pid) {
		what();
		_exit(1);
	}
	ck_assert_int_gt(pid, 0);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	ck_assert_int_ge(pidfd, 0);
	start = process_start(pid);
	ck_assert_uint_ne(start, 0);
}

static void end(void)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(pidfd);
}

static void sleeps(void) { pause(); }

static char state(void)
{
	char name[32], line[512], *p;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	f = fopen(name, "r");
	ck_assert_ptr_nonnull(f);
	p = fgets(line, sizeof(line), f);
	fclose(f);
	ck_assert_ptr_nonnull(p);
	return strrchr(p, ')')[2];
}

START_TEST(lives)
{
	begin(sleeps);
	ck_assert(!process_ending(pid, start));
	ck_assert(!process_ending_of(pidfd));
	end();
}
END_TEST

START_TEST(first_thread_left)
{
	begin(first_thread_leaves);
	while (state() != 'Z')
		usleep(1000);
	ck_assert(!process_ending(pid, start));
	ck_assert(!process_ending_of(pidfd));
	ck_assert_int_eq(process_ended(pid), 0);
	end();
}
END_TEST

/* It may be through before we look. */
START_TEST(on_its_way)
{
	int seen = 0;

	for (int i = 0; i < 100 && seen != 3; i++) {
		begin(ends);
		while (!process_ended(pid))
			seen |= process_ending(pid, start) | process_ending_of(pidfd) << 1;
		ck_assert(!process_ending(pid, start));
		ck_assert(!process_ending_of(pidfd));
		end();
	}
	ck_assert_int_eq(seen, 3);
}
END_TEST

START_TEST(another_by_now)
{
	begin(ends);
	while (!process_ended(pid))
		ck_assert(!process_ending(pid, start + 1));
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("procs");
	TCase *t = tcase_create("procs");

	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	tcase_add_test(t, lives);
	tcase_add_test(t, first_thread_left);
	tcase_add_test(t, on_its_way);
	tcase_add_test(t, another_by_now);
	return run_suite(s);
}
