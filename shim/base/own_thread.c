/*
 * own_thread.c - see own_thread.h.
 */
#include "base/own_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/event.h"
#include "base/shim.h"
#include "base/sys.h"

/* Nobody touches most of it. libc takes the static TLS of the program and its libraries out of
 * it, which may be some hundred KiB. */
#define STACK (1024 * 1024)

/* Who begins or ends says so and then looks whether that is held up; who holds it up does it the
 * other way round. */
static _Atomic uint32_t held, beginning;
static _Atomic uint32_t made, at_work;	/* all so far; those that have not come to their end */
#define LEAVING 16
static _Atomic int leaving[LEAVING];	/* threads that have gone back into libc, to their end */

/* Rung when one has begun, and when they may go on. */
static struct event passed;

#define LONG_NS 1000000000u	/* nobody holds them up for ever; then look again */

/* A nap, for the kernel tells nobody when it no longer knows a thread, some microseconds later. */
static void nap(void)
{
	struct timespec t = { 0, 20000 };

	sys(SYS_nanosleep, &t, NULL);
}

static void one_less(_Atomic uint32_t *n)
{
	atomic_fetch_sub(n, 1);
	event_ring(&passed);
}

static void await_going_on(void)
{
	uint32_t seen = event_look(&passed);

	if (atomic_load(&held))
		event_wait(&passed, seen, now_ns() + LONG_NS);
}

static void begin(void)
{
	for (;;) {
		atomic_fetch_add(&beginning, 1);
		if (!atomic_load(&held)) {
			atomic_fetch_add(&at_work, 1);
			atomic_fetch_add(&made, 1);
			return;
		}
		one_less(&beginning);
		await_going_on();
	}
}

/* Neither by who has no right to it, nor under a filter. */
static _Atomic bool without_groups, one_has_groups;

void own_threads_without_groups(void)
{
	atomic_store(&one_has_groups, false);
	atomic_store(&without_groups, true);
}

bool own_threads_have_groups(void)
{
	return !atomic_load(&without_groups) || atomic_load(&one_has_groups);
}

void own_thread_begins(void)
{
	if (atomic_load(&without_groups) && sys(SYS_setgroups, 0, NULL) < 0)
		atomic_store(&one_has_groups, true);
	one_less(&beginning);
}

/* The kernel no longer knows a thread that has released libc: that comes later. */
static bool is_gone(_Atomic int *slot)
{
	int tid = atomic_load(slot);

	long pid = sys(SYS_getpid);

	if (tid && sys(SYS_tgkill, pid, tid, 0) == -ESRCH)
		atomic_compare_exchange_strong(slot, &tid, 0);
	return !atomic_load(slot);
}

void own_thread_ends(void)
{
	int tid = (int)sys(SYS_gettid), none, i;

	for (i = 0;; i = (i + 1) % LEAVING) {
		none = 0;
		if (is_gone(&leaving[i]) && !atomic_load(&held) &&
		    atomic_compare_exchange_strong(&leaving[i], &none, tid)) {
			if (!atomic_load(&held)) {
				one_less(&at_work);
				return;
			}
			atomic_store(&leaving[i], 0);
		}
		if (atomic_load(&held))
			await_going_on();
		else if (i == LEAVING - 1)
			nap();
	}
}

void own_threads_hold(uint64_t end_us)
{
	atomic_fetch_add(&held, 1);
	while (now_us() < end_us) {
		uint32_t seen = event_look(&passed);

		if (!atomic_load(&beginning))
			break;
		event_wait(&passed, seen, end_us * 1000);
	}
	for (int i = 0; i < LEAVING; i++) {
		while (!is_gone(&leaving[i]) && now_us() < end_us)
			nap();
		atomic_store(&leaving[i], 0);	/* or its number is another thread's by now */
	}
}

void own_threads_go_on(void) { one_less(&held); }

uint32_t own_threads_made(void) { return atomic_load(&made); }

uint32_t own_threads(void)
{
	uint32_t n = atomic_load(&at_work);

	for (int i = 0; i < LEAVING; i++)
		n += !is_gone(&leaving[i]);
	return n;
}

void own_threads_await_end(uint64_t end_us)
{
	uint32_t seen;

	while (seen = event_look(&passed), atomic_load(&at_work) && now_us() < end_us)
		event_wait(&passed, seen, end_us * 1000);
	while (own_threads() && now_us() < end_us)
		nap();
}

void own_threads_after_fork(void)
{
	atomic_store(&held, 0);
	atomic_store(&beginning, 0);
	atomic_store(&at_work, 0);
	for (int i = 0; i < LEAVING; i++)
		atomic_store(&leaving[i], 0);
}

/* A filter may forbid to set what is so already: it is set for those who need it only. */
static bool real_time(void)
{
	/* without SCHED_RESET_ON_FORK */
	long policy = sys(SYS_sched_getscheduler, 0) & ~0x40000000l;

	return policy == SCHED_FIFO || policy == SCHED_RR;
}

/* Not as who makes it: behind a real-time thread that polls on the same processor another of its
 * kind never has a turn, one of the usual kind has. */
static void usual_schedule(pthread_attr_t *attr)
{
	/* explicitly: else libc takes its maker's */
	pthread_attr_setschedpolicy(attr, SCHED_OTHER);
	pthread_attr_setschedparam(attr, &(struct sched_param){ 0 });
	pthread_attr_setinheritsched(attr, PTHREAD_EXPLICIT_SCHED);
}

/* Its maker's would do. */
static bool same_cpus(const cpu_set_t *cpus)
{
	cpu_set_t now;

	CPU_ZERO(&now);
	return sys(SYS_sched_getaffinity, 0, sizeof now, &now) > 0 && CPU_EQUAL(&now, cpus);
}

int own_thread(void *(*run)(void *arg), void *arg, const cpu_set_t *cpus)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (real_time())
		usual_schedule(&attr);
	r = cpus && !same_cpus(cpus) ? pthread_attr_setaffinity_np(&attr, sizeof *cpus, cpus) : 0;
	if (!r) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		begin();
		r = pthread_create(&thread, &attr, run, arg);
		if (r == EPERM) {
			pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED);
			r = pthread_create(&thread, &attr, run, arg);
		}
		if (r) {
			one_less(&beginning);
			one_less(&at_work);
		}
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	pthread_attr_destroy(&attr);
	return r;
}
