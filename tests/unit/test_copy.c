/*
 * test_copy.c - copies that several threads share: every byte, nothing beside them, and what
 * becomes of the threads.
 *
 * LINK: shim/base/copy.c shim/base/own_thread.c shim/base/event.c
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../shim/base/loop.h"
#include "../../shim/base/copy.h"
#include "../../shim/base/copy_rule.h"
#include "../../shim/base/shim.h"

#define SIZE   (3u << 20)
#define EDGE   64
#define COPIES 300

static struct policy_tunables conf;
_Atomic(const struct policy_tunables *) shim_tun = &conf;
static _Atomic int kicks;
static __thread bool caller;
static _Atomic long by_caller, by_helper;	/* chunks */

void loop_kick(void) { kicks++; }
unsigned tasks_runnable(void) { return 1; }
bool cpu_limited(void) { return false; }

/* ThreadSanitizer, if it is there: the child of a process with several threads makes threads
 * here, too. */
const char *__tsan_default_options(void) __attribute__((visibility("default")));
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

/* The library's copies, counted by who makes them. */
void *memcpy(void *to, const void *from, size_t n)
{
	unsigned char *d = to;
	const unsigned char *s = from;

	if (n >= 4096)
		atomic_fetch_add(caller ? &by_caller : &by_helper, 1);
	for (size_t i = 0; i < n; i++) {
		d[i] = s[i];
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

static void nap(void) { nanosleep(&(struct timespec){ 0, 1000000 }, NULL); }

static bool soon(bool (*is)(void))
{
	for (int i = 0; i < 10000 && !is(); i++)
		nap();
	return is();
}

static bool none(void) { return !copy_running(); }
static bool helped(void)
{
	static char a[1 << 20], b[1 << 20];

	copy_threads_for(sizeof a);
	copy_start();		/* those of before may have left */
	copy_shared(b, a, sizeof a);
	return by_helper > 0;
}

static void start(unsigned n)
{
	caller = true;
	conf.copy_threads = n;
	ck_assert_uint_eq(copy_threads_for(COPY_CALL_MIN), 1);
	copy_start();
	ck_assert_uint_ge(copy_running(), 1);
	ck_assert_uint_eq(copy_threads_for(COPY_CALL_MIN), 1 + copy_running());
}

/* Copies of random sizes between random places, each checked as a whole. */
static void *copies(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	unsigned char *from = malloc(SIZE + 2 * EDGE), *to = malloc(SIZE + 2 * EDGE);

	caller = true;
	ck_assert(from && to);
	for (int c = 0; c < COPIES; c++) {
		size_t n = (size_t)rand_r(&seed) % (c % 3 ? SIZE : 4 * COPY_SHARE_MIN),
		       at = (size_t)rand_r(&seed) % EDGE;
		unsigned char *src = from + at, *dst = to + EDGE;
		unsigned x = (unsigned)c * 2654435761u;

		for (size_t i = 0; i < n; i++)
			src[i] = (unsigned char)((x += 0x9e3779b9u) >> 24);
		for (size_t i = 0; i < n + 2 * EDGE; i++)
			to[i] = 0x5a;
		copy_threads_for(n);
		ck_assert_ptr_eq(copy_shared(dst, src, n), dst);
		x = (unsigned)c * 2654435761u;
		for (size_t i = 0; i < n; i++)
			if (dst[i] != (unsigned char)((x += 0x9e3779b9u) >> 24))
				ck_abort_msg("copy %d of %zu bytes: byte %zu is wrong", c, n, i);
		for (size_t i = 0; i < EDGE; i++)
			ck_assert(to[i] == 0x5a && dst[n + i] == 0x5a);
	}
	free(from);
	free(to);
	return NULL;
}

START_TEST(nobody_asked)
{
	conf.copy_threads = 0;
	ck_assert_uint_eq(copy_threads_for(SIZE), 1);
	copy_start();
	ck_assert_int_eq(kicks, 0);
	ck_assert_uint_eq(copy_running(), 0);
	copies((void *)1);
	ck_assert_int_eq(by_helper, 0);
	conf.copy_threads = 2;
	/* a small call asks for nobody */
	ck_assert_uint_eq(copy_threads_for(COPY_CALL_MIN - 1), 1);
	ck_assert_int_eq(kicks, 0);
}
END_TEST

#define MB (1u << 20)
/* A flow of calls of `n` bytes, one every `ns`, for a second. Is it worth helpers? */
static bool worth(struct copy_rule *r, uint64_t n, uint64_t ns)
{
	static uint64_t now = 5000000000;
	bool is = false;

	for (uint64_t end = now + 1000000000; now < end; now += ns)
		is |= copy_rule_moved(r, n, now);
	return is;
}

START_TEST(worth_helpers)
{
	struct copy_rule r = { 0 };
	uint64_t now;

	ck_assert(!worth(&r, MB, 2500000));		/* 420 MB/s */
	ck_assert(!worth(&r, 32 * MB, 200000000));	/* a burst now and then */
	ck_assert(worth(&r, MB, 1000000));
	ck_assert(worth(&r, 32 * MB, 20000000));
	now = now_ns();
	for (uint64_t away = 1; away < 200; away *= 2) {
		uint64_t least = (away < 64 ? away : 64) * 1000000000;

		copy_rule_crowded(&r, now);
		ck_assert(!copy_rule_moved(&r, 1000 * MB, now));
		ck_assert(!copy_rule_moved(&r, 1000 * MB, now));
		ck_assert(!copy_rule_moved(&r, 1000 * MB, now + least - 1));
		ck_assert(!copy_rule_moved(&r, 1000 * MB, now + least - 1));
		ck_assert(copy_rule_moved(&r, 1000 * MB, now + least));
		now += least;
	}
}
END_TEST

START_TEST(how_many)
{
	static const struct { unsigned cpus, running, n; bool limited; } t[] = {
		{ 1, 1, 0, false }, { 2, 1, 0, false }, { 7, 1, 0, false }, { 8, 1, 1, false },
		{ 16, 2, 2, false }, { 32, 5, 4, false }, { 256, 9, 4, false },
		{ 32, 31, 1, false }, { 32, 30, 2, false }, { 32, 32, 0, false },
		{ 32, 500, 0, false }, { 32, UINT32_MAX, 0, false }, { 256, 1, 0, true },
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(*t); i++)
		ck_assert_uint_eq(copy_rule_helpers(t[i].cpus, t[i].running, t[i].limited), t[i].n);
}
END_TEST

/* By itself it looks for helpers after much was copied, not for a call that may bring much. */
START_TEST(by_itself)
{
	conf.copy_threads = COPY_THREADS_AUTO;
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_eq(copy_threads_for(SIZE), 1);
		copy_done(COPY_SHARE_MIN - 1);
	}
	ck_assert_int_eq(kicks, 0);
	for (int i = 0; i < 1000 && !kicks; i++)
		copy_done(SIZE);
	ck_assert_int_eq(kicks, 1);
	copy_start();
	ck_assert_uint_le(copy_running(), COPY_RULE_MOST);
}
END_TEST

START_TEST(all_bytes)
{
	pthread_t t[3];

	start(8);
	ck_assert_int_eq(kicks, 1);
	for (uintptr_t i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, copies, (void *)(i + 7)), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_gt(by_caller, 0);
	ck_assert(soon(helped));
}
END_TEST

START_TEST(they_leave)
{
	start(2);
	ck_assert(soon(helped));
	ck_assert(soon(none));		/* nothing to do */
	start(2);
	copy_quit();
	ck_assert(soon(none));
	ck_assert_uint_eq(copy_threads_for(SIZE), 1);
	copy_start();
	ck_assert_uint_eq(copy_running(), 0);
	copies((void *)5);
	copy_resume();
	start(2);
}
END_TEST

START_TEST(forked)
{
	int status;
	pid_t pid;

	start(2);
	pid = fork();
	if (!pid) {
		copy_after_fork();
		copies((void *)3);
		by_helper = 0;
		start(2);
		_exit(soon(helped) ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(soon(helped));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("copy");
	TCase *c = tcase_create("copy");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 100);
	tcase_add_test(c, nobody_asked);
	tcase_add_test(c, worth_helpers);
	tcase_add_test(c, how_many);
	tcase_add_test(c, by_itself);
	tcase_add_test(c, all_bytes);
	tcase_add_test(c, they_leave);
	tcase_add_test(c, forked);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
