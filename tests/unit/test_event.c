/*
 * test_event.c - waits that others end (shim/base/event.c): no ring is lost, none costs a system
 * call where nobody waits, a wait ends at its time, and one whose system call is not to be had does
 * not spin.
 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../../shim/base/sys.h"

static int fails;			/* what a futex's wait returns */
static _Atomic int waits, rings, naps;

static long sys_of_test(long n, long a, long b, long c, long d)
{
	if (n == SYS_nanosleep)
		atomic_fetch_add(&naps, 1);
	if (n == SYS_futex)
		atomic_fetch_add(b & 1 ? &rings : &waits, 1);
	if (n == SYS_futex && !(b & 1) && fails)
		return fails;
	return sys6(n, a, b, c, d, 0, 0);
}

#undef sys
#define ARGS_(n, a, b, c, d, ...) sys_of_test((n), (long)(a), (long)(b), (long)(c), (long)(d))
#define sys(n, ...) ARGS_(n, ##__VA_ARGS__, 0, 0, 0, 0, 0)
#include "../../shim/base/event.c"
#include "suite.h"

#define ROUNDS 20000
#define LONG_NS 20000000000ull		/* who waits so long was not rung */

static struct event to, fro;
static _Atomic int asked, answered;

/* False: the time was up before. */
static bool await(struct event *e, const _Atomic int *n, int least)
{
	uint64_t end = now_ns() + LONG_NS;

	for (;;) {
		uint32_t seen = event_look(e);

		if (atomic_load(n) >= least)
			return true;
		if (now_ns() >= end)
			return false;
		event_wait(e, seen, end);
	}
}

static void *answers(void *late)
{
	for (int i = 1; i <= ROUNDS; i++) {
		if (!await(&to, &asked, i))
			break;
		atomic_store(&answered, i);
		event_ring(&fro);
	}
	return late;
}

START_TEST(no_ring_is_lost)
{
	pthread_t t;

	ck_assert(!pthread_create(&t, NULL, answers, NULL));
	for (int i = 1; i <= ROUNDS; i++) {
		atomic_store(&asked, i);
		event_ring(&to);
		ck_assert_msg(await(&fro, &answered, i), "not rung in round %d", i);
	}
	pthread_join(t, NULL);
	ck_assert(!naps);
}
END_TEST

/* All that wait are woken by one ring. */
static _Atomic int here, told;

static void *one_of_many(void *arg)
{
	atomic_fetch_add(&here, 1);
	return await(&to, &told, 1) ? arg : NULL;
}

START_TEST(all_are_woken)
{
	pthread_t t[8];
	void *got;

	for (int i = 0; i < 8; i++)
		ck_assert(!pthread_create(&t[i], NULL, one_of_many, &here));
	while (here < 8 || waits < 8)
		sched_yield();
	atomic_store(&told, 1);
	event_ring(&to);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], &got);
		ck_assert(got == &here);
	}
}
END_TEST

START_TEST(a_ring_for_nobody_is_free)
{
	struct event e = { 0 };

	for (int i = 0; i < 100; i++)
		event_ring(&e);
	ck_assert_int_eq(rings, 0);
	event_look(&e);		/* of one that did not wait after all: once */
	for (int i = 0; i < 100; i++)
		event_ring(&e);
	ck_assert_int_eq(rings, 1);
}
END_TEST

START_TEST(a_ring_before_the_wait_ends_it)
{
	struct event e = { 0 };
	uint32_t seen = event_look(&e);
	uint64_t start = now_ns();

	event_ring(&e);
	event_wait(&e, seen, start + LONG_NS);
	ck_assert(now_ns() - start < LONG_NS);
	ck_assert_int_eq(waits, 1);
}
END_TEST

START_TEST(its_time_is_up)
{
	struct event e = { 0 };
	uint64_t end = now_ns() + 2000000;

	while (now_ns() < end)
		event_wait(&e, event_look(&e), end);
	event_wait(&e, event_look(&e), end);	/* at once, and without a system call */
	ck_assert_int_ge(waits, 1);
	ck_assert_int_le(waits, 20);
}
END_TEST

/* A filter of system calls refuses it: as many looks as there are milliseconds, at most. */
START_TEST(without_the_call_it_naps)
{
	struct event e = { 0 };
	uint64_t end = now_ns() + 20000000;

	fails = -EPERM;
	while (now_ns() < end)
		event_wait(&e, event_look(&e), end);
	ck_assert_int_ge(naps, 1);
	ck_assert_int_le(waits, 40);
}
END_TEST

static bool sleeps(pid_t pid)
{
	char path[32], state = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	f = fopen(path, "r");
	ck_assert(f && fscanf(f, "%*d %*s %c", &state) == 1);
	fclose(f);
	return state == 'S' || state == 'Z';
}

START_TEST(another_process_rings)
{
	_Atomic uint32_t *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				   -1, 0);
	uint64_t end = now_ns() + LONG_NS;
	int status;
	pid_t pid;

	ck_assert(w != MAP_FAILED);
	pid = fork();
	if (!pid) {
		while (!atomic_load(w) && now_ns() < end)
			word_wait(w, 0, end);
		_exit(now_ns() < end ? 0 : 1);
	}
	while (!sleeps(pid))
		sched_yield();
	atomic_store(w, 1);
	word_ring(w);
	ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("event");
	TCase *t = tcase_create("event");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, no_ring_is_lost);
	tcase_add_test(t, all_are_woken);
	tcase_add_test(t, a_ring_for_nobody_is_free);
	tcase_add_test(t, a_ring_before_the_wait_ends_it);
	tcase_add_test(t, its_time_is_up);
	tcase_add_test(t, without_the_call_it_naps);
	tcase_add_test(t, another_process_rings);
	suite_add_tcase(s, t);
	return run_suite(s);
}
