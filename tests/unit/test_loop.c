/*
 * test_loop.c - who holds the background thread up (loop_hold()): all who wait for that have their
 * turn, also if a signal handler of the program jumps out of one's wait at any moment. And who
 * sends it away (loop_pause()): it comes back after the last of them, and where it cannot its work
 * is done all the same. A kick that comes while it is awake is not lost.
 *
 * LINK: shim/base/loop.c shim/base/lock.c shim/base/event.c
 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../shim/base/bell.h"
#include "../../shim/base/copy.h"
#include "../../shim/base/fdtab.h"
#include "../../shim/base/loop.h"
#include "../../shim/base/own_thread.h"
#include "../../shim/base/procfs.h"
#include "../../shim/base/shim.h"
#include "suite.h"

/* ---- what the thread itself needs ---- */

struct bell bells[BELL_MAX];
_Atomic bool bells_mixed, bells_deaf, shim_active;

void bell_arm(struct bell *b) { atomic_store(&b->sleeping, 1); }
void bell_disarm(struct bell *b) { atomic_store(&b->sleeping, 0); }
struct bell *bell_new(void) { bells[0].fd = eventfd(0, EFD_NONBLOCK); return &bells[0]; }
void bell_ring(uint64_t mask)
{
	ck_assert_uint_eq(mask, 1);
	if (atomic_exchange(&bells[0].sleeping, 0))
		ck_assert_int_eq(eventfd_write(bells[0].fd, 1), 0);
}
void copy_after_fork(void) {}
void copy_quit(void) {}
void copy_resume(void) {}
unsigned copy_running(void) { return 0; }
struct due *due_pop(struct due_heap *h, uint64_t now) { (void)h, (void)now; return NULL; }
bool due_put(struct due_heap *h, struct due *d, uint64_t at) { (void)h, (void)d, (void)at;
	return false; }
void due_take(struct due_heap *h, struct due *d) { (void)h, (void)d; }
void fd_internal_close(int fd) { (void)fd; }
int fd_internal_made(int fd, bool ok) { (void)ok; return fd; }
void fd_number_lock(void) {}
bool fd_may_make(void) { return true; }

/* Of the library's threads some are, and no other can be made. */
static _Atomic uint32_t threads, made;
static _Atomic bool refused;

int own_thread(void *(*run)(void *arg), void *arg, const cpu_set_t *cpus)
{
	pthread_t t;

	(void)cpus;
	if (atomic_load(&refused))
		return EAGAIN;
	atomic_fetch_add(&threads, 1);
	atomic_fetch_add(&made, 1);
	ck_assert_int_eq(pthread_create(&t, NULL, run, arg), 0);
	pthread_detach(t);
	return 0;
}
void own_thread_begins(void) {}
void own_thread_ends(void) { atomic_fetch_sub(&threads, 1); }
void own_threads_after_fork(void) {}
uint32_t own_threads(void) { return atomic_load(&threads); }
uint32_t own_threads_made(void) { return atomic_load(&made); }
void own_threads_await_end(uint64_t end_us)
{
	while (atomic_load(&threads) && now_us() < end_us)
		sched_yield();
}
void closer_quit(void) {}
void closer_resume(void) {}
void closer_start(void) {}
static bool proc_is_there = true;
bool proc_is_ours(void) { return proc_is_there; }

#define ROUNDS 300
#define END_US 20000000		/* who waits so long was not woken */

static _Atomic int may[2], jumped, held;	/* the round that each may begin */
static _Atomic int tids[2];
static __thread sigjmp_buf out;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

/* Woken by another on its processor it does not take that from it: the signal is there first. */
static void stands_back(int k)
{
	ck_assert_int_eq(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }), 0);
	atomic_store(&tids[k], (int)sys(SYS_gettid));
}

/* One that a signal may make jump out of the wait, and one that is never sent any. */
static void *jumper(void *arg)
{
	stands_back(0);
	for (volatile int i = 1; i <= ROUNDS; i++) {
		while (atomic_load(&may[0]) != i)
			sched_yield();
		if (sigsetjmp(out, 1)) {
			atomic_fetch_add(&jumped, 1);
		} else if (loop_hold(now_us() + END_US)) {
			/* the signal comes in here, perhaps, and is put off */
			loop_go_on();
			for (;;)
				pause();
		}
		atomic_fetch_add(&held, 1);
	}
	return arg;
}

static void *waiter(void *arg)
{
	stands_back(1);
	for (int i = 1; i <= ROUNDS; i++) {
		while (atomic_load(&may[1]) != i)
			sched_yield();
		ck_assert(loop_hold(now_us() + END_US));
		loop_go_on();
		atomic_fetch_add(&held, 1);
	}
	return arg;
}

/* Else it runs, or could. */
static void until_asleep(int tid)
{
	char path[64], says[256], state = 0;

	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	while (state != 'S') {
		FILE *f = fopen(path, "re");

		ck_assert_ptr_nonnull(f);
		if (!fgets(says, sizeof says, f) || sscanf(says, "%*d (%*[^)]) %c", &state) != 1)
			state = 0;
		fclose(f);
		sched_yield();
	}
}

START_TEST(jumps_out)
{
	struct sigaction sa = { .sa_handler = jump };
	pthread_t t[2];
	cpu_set_t one;

		CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&t[0], NULL, jumper, NULL);
	pthread_create(&t[1], NULL, waiter, NULL);
	while (!atomic_load(&tids[0]) || !atomic_load(&tids[1]))
		sched_yield();
	for (int i = 1; i <= ROUNDS; i++) {
		uint64_t end = now_us() + END_US / 2;

		ck_assert(loop_hold(now_us() + END_US));
		for (int k = 0; k < 2; k++) {	/* who sleeps first is woken first */
			atomic_store(&may[k], i);
			until_asleep(atomic_load(&tids[k]));
		}
		loop_go_on();
		sys(SYS_tgkill, getpid(), atomic_load(&tids[0]), SIGUSR1);
		while (atomic_load(&held) != 2 * i) {
			ck_assert_msg(now_us() < end, "round %d: one is not woken", i);
			sched_yield();
		}
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(jumped, ROUNDS);
}
END_TEST

/* ---- sent away ---- */

static _Atomic int done, failed;
static void nop(void) {}
static uint64_t work(struct work *w, uint64_t now)
{
	(void)w, (void)now;
	atomic_fetch_add(&done, 1);
	return 0;
}
static bool restless(const struct work *w) { (void)w; return false; }
static bool came(struct work *w) { (void)w; return false; }

/* Another thread has something for us when the turn has looked for that. */
static _Atomic int turns, comes_late, seen_late;
static void *kicks(void *arg) { loop_kick(); return arg; }
static uint64_t turn(void)
{
	pthread_t t;

	atomic_fetch_add(&turns, 1);
	if (atomic_load(&comes_late) == 2)
		atomic_store(&seen_late, 1);
	if (atomic_load(&comes_late) != 1)
		return UINT64_MAX;
	atomic_store(&comes_late, 2);
	ck_assert_int_eq(pthread_create(&t, NULL, kicks, NULL), 0);
	pthread_join(t, NULL);
	return UINT64_MAX;
}

static uint64_t idle(uint64_t now) { (void)now; return UINT64_MAX; }
static bool nothing(void) { return false; }
static void cannot(int r) { ck_assert_int_eq(r, -EAGAIN); atomic_fetch_add(&failed, 1); }

static const struct loop_duties duties = {
	.begin = nop, .work = work, .restless = restless, .turn = turn, .idle = idle, .armed = nop,
	.came = came, .nothing = nothing, .leave = nop, .failed = cannot, .forked = nop,
};

static void start(void)
{
	loop_serve(&duties);
	ck_assert_int_eq(loop_start(), 0);
	ck_assert_uint_eq(own_threads(), 1);
}

static void works(void)
{
	static struct work w;
	uint64_t end = now_us() + END_US;
	int before = atomic_load(&done);

	loop_post(&w);
	while (atomic_load(&done) == before) {
		ck_assert_msg(now_us() < end, "nobody does the work");
		sched_yield();
	}
}

/* Two at once, as where /proc is missing; the first sees that it ran, the second that it does
 * not. */
START_TEST(two_pause_it)
{
	start();
	loop_pause();
	ck_assert_uint_eq(own_threads(), 0);
	loop_pause();
	loop_resume();
	ck_assert_uint_eq(own_threads(), 0);
	loop_resume();
	ck_assert_uint_eq(own_threads(), 1);
	works();
	loop_pause();
	loop_resume();
	works();
	ck_assert(!loop_lost());
}
END_TEST

/* It is not sent away for a question after which it cannot come back. */
START_TEST(stays_if_it_could_not_come_back)
{
	start();
	proc_is_there = false;
	atomic_store(&refused, true);
	ck_assert(loop_alone());
	ck_assert_uint_eq(own_threads(), 1);
	ck_assert(loop_running());
	works();
	ck_assert_int_eq(atomic_load(&failed), 0);
}
END_TEST

/* One could be made, until it was gone: who waits for its work does it. */
START_TEST(its_work_is_done)
{
	static struct work w;

	start();
	ck_assert(!loop_step_here(now_us() + 1000));
	loop_pause();
	atomic_store(&refused, true);
	loop_resume();
	ck_assert_int_eq(atomic_load(&failed), 1);
	ck_assert(loop_lost());
	loop_post(&w);
	ck_assert(loop_step_here(now_us() + 1000));
	ck_assert_int_eq(atomic_load(&done), 1);
	ck_assert(!loop_is_me());
	ck_assert_uint_eq(thread_signals.critical, 0);
	ck_assert(loop_hold(now_us() + 1000));	/* and nobody is at work */
	loop_go_on();
}
END_TEST

START_TEST(kicked_while_awake)
{
	uint64_t end;

	start();
	works();
	atomic_store(&comes_late, 1);
	works();	/* a round, and so a turn */
	end = now_us() + END_US;
	while (!atomic_load(&seen_late)) {
		ck_assert_msg(now_us() < end, "it sleeps: the kick is lost");
		sched_yield();
	}
}
END_TEST

/* Who is kicked by nobody else does not go round for itself. */
START_TEST(sleeps)
{
	int before;

	start();
	works();
	do {
		before = atomic_load(&turns);
		usleep(200000);
	} while (atomic_load(&turns) > before + 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("loop");
	TCase *c = tcase_create("hold");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, jumps_out);
	tcase_add_test(c, two_pause_it);
	tcase_add_test(c, stays_if_it_could_not_come_back);
	tcase_add_test(c, its_work_is_done);
	tcase_add_test(c, kicked_while_awake);
	tcase_add_test(c, sleeps);
	suite_add_tcase(s, c);
	return run_suite(s);
}
