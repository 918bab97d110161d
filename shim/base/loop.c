/*
 * loop.c - see loop.h.
 *
 * Locks: `start_lock`, outermost, for starting and leaving; `at_work`, which the thread has
 * whenever it does not sleep, outside of all others.
 *
 * Work is done when somebody asked for it, or when the time has come that its last turn named:
 * `queue` is a lock-free stack that any thread pushes to (loop_post), `dues` a heap by time.
 * Only what is restless (a stream that is being closed, or resends) is on the list `watch` and
 * done at every event: the last credit of its ring comes without a name on it. Queue, heap and
 * list are met in rounds; between them the thread sleeps until the earliest due time, an event
 * of a descriptor, or a ring of our bell. Heap and list are the thread's own.
 */
#include "base/loop.h"

#include <fcntl.h>
#include <stddef.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/bell.h"
#include "base/closer.h"
#include "base/copy.h"
#include "base/event.h"
#include "base/fdtab.h"
#include "base/lock.h"
#include "base/own_thread.h"
#include "base/procfs.h"
#include "base/shim.h"
#include "base/sys.h"

static const struct loop_duties *duties;
static _Atomic(struct work *) queue;
static struct work *watch;
static struct due_heap dues;
static struct lock start_lock, at_work;
static _Atomic int running;
static int ep = -1;
static _Atomic(struct bell *) bell;
static __thread bool me;

_Atomic bool loop_left;
static _Atomic uint32_t threads_left;	/* calls of loop_thread_left() since then */
static _Atomic bool alone;	/* the process had one thread before us */

void loop_serve(const struct loop_duties *d) { duties = d; }

bool loop_is_me(void) { return me; }
bool loop_running(void) { return atomic_load(&running) > 0; }
struct bell *loop_bell(void) { return atomic_load(&bell); }

/* By another thread, since the turn that may have looked too early: the bell is silent until it is
 * armed. */
static _Atomic bool kicked;

void loop_kick(void)
{
	struct bell *b = atomic_load(&bell);

	if (!me)
		atomic_store(&kicked, true);
	if (b)
		bell_ring(1ull << b->idx);
}

void loop_post(struct work *w)
{
	struct work *head;

	if (atomic_exchange(&w->queued, 1))
		return;
	head = atomic_load(&queue);
	do
		w->queue_next = head;
	while (!atomic_compare_exchange_weak(&queue, &head, w));
	if (!me)
		loop_kick();
}

static struct epoll_event event_of(uint32_t events, enum loop_kind kind, uint32_t n)
{
	return (struct epoll_event){ .events = events, .data.u64 = (uint64_t)kind << 56 | n };
}

int loop_watch_fd(int fd, uint32_t events, enum loop_kind kind, uint32_t n)
{
	struct epoll_event e = event_of(events, kind, n);

	return (int)sys(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, &e);
}

void loop_unwatch_fd(int fd)
{
	sys(SYS_epoll_ctl, ep, EPOLL_CTL_DEL, fd, NULL);
}

void loop_rewatch_fd(int fd, uint32_t events, enum loop_kind kind, uint32_t n)
{
	struct epoll_event e = event_of(events, kind, n);

	sys(SYS_epoll_ctl, ep, EPOLL_CTL_MOD, fd, &e);
}

/* ---- rounds ---- */

static void watch_add(struct work *w)
{
	due_take(&dues, &w->due);
	if (w->on_watch)
		return;
	w->on_watch = 1;
	w->watch_next = watch;
	watch = w;
}

/* Thousands of streams may search, or be new, at the same time: the messages of those that are
 * found do not wait until all have had their turn. */
#define AT_ONCE 16

/* Those whom somebody has asked to look at, longest ago first. */
static struct work *asked_for, **asked_end = &asked_for;

static void take_queue(void)
{
	struct work *w = atomic_exchange(&queue, NULL), *next, *first = NULL, *last = w;

	for (; w; w = next) {
		next = w->queue_next;
		w->queue_next = first;
		first = w;
	}
	if (!first)
		return;
	*asked_end = first;
	asked_end = &last->queue_next;
}

static struct work *next_asked_for(void)
{
	struct work *w = asked_for;

	if (!w)
		return NULL;
	asked_for = w->queue_next;
	if (!asked_for)
		asked_end = &asked_for;
	atomic_store(&w->queued, 0);
	return w;
}

static uint64_t round_of_work(void)
{
	struct work *w, **at;
	uint64_t now = now_us(), due = UINT64_MAX, d;
	struct due *p;

	take_queue();
	for (int i = 0; i < AT_ONCE && (w = next_asked_for()); i++)
		watch_add(w);
	for (int i = 0; i < AT_ONCE && (p = due_pop(&dues, now)); i++)
		watch_add((struct work *)((char *)p - offsetof(struct work, due)));
	for (at = &watch; *at;) {
		w = *at;
		d = duties->work(w, now);
		if (d &&
		    (duties->restless(w) || (d != UINT64_MAX && !due_put(&dues, &w->due, d)))) {
			due = earlier(due, d);
			at = &w->watch_next;
			continue;
		}
		*at = w->watch_next;
		w->on_watch = 0;
	}
	return asked_for ? 0 : earlier(due, due_next(&dues));
}

static bool anything_came(void)
{
	bool any = false;

	duties->armed();
	for (struct work *w = watch; w; w = w->watch_next)
		any |= duties->came(w);
	return any;
}

/* ---- the thread ---- */

static void one_event(uint64_t tag)
{
	uint64_t kind = tag >> 56;

	if (kind < LOOP_KINDS && duties->event[kind])
		duties->event[kind]((uint32_t)tag);
}

#define LEAVE_US 50000		/* with nothing to do; another start costs 0.1 ms */

/* A thread of ours makes each system call and each lock of a program with one thread dearer: the
 * kernel counts references to files, and libc must expect cancellation. So it leaves when nobody
 * needs it. */
static bool nothing_to_do(void)
{
	return !watch && !dues.n && !asked_for && !atomic_load(&queue) && duties->nothing();
}

static _Atomic bool away;	/* it has to leave, see loop_pause() */

/* Whoever asks for us puts the stream on the queue first and then looks whether we run; we do it
 * the other way round. */
static bool may_leave(void)
{
	bool gone;

	lock_take(&start_lock);
	atomic_store(&running, 0);
	gone = atomic_load(&away) || nothing_to_do();
	if (!gone)
		atomic_store(&running, 1);
	else
		duties->leave();
	lock_give(&start_lock);
	return gone;
}

/* Of the process; 0: not known. */
static unsigned long all_threads(void)
{
	struct stat st;

	if (!proc_is_ours() || sys(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &st, 0) < 0)
		return 0;
	return st.st_nlink - 2;
}

/* Those that are not ours. One of ours that has ended meanwhile makes it too few. */
static unsigned long programs_threads(void)
{
	unsigned long ours, n;
	uint32_t before;

	do {
		before = own_threads_made();
		ours = own_threads();
		n = all_threads();
	} while (own_threads_made() != before);
	return n && n <= ours ? 1 : n ? n - ours : 0;
}

bool loop_only_other_thread(void) { return loop_running() && programs_threads() == 1; }

/* The kernel refuses that to a process with several threads, and for one it changes nothing. A
 * filter could end us for the question. */
static bool one_thread(void)
{
	return sys(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) != 0 ||
	       sys(SYS_unshare, CLONE_SIGHAND) != -EINVAL;
}

bool loop_alone(void)
{
	unsigned long n = programs_threads();
	bool alone = n == 1;

	if (!own_threads() || n > 1)
		return false;
	/* Without room for a thread ours stay, and who asks takes it for the worst. */
	if (!alone && !loop_can_begin())
		return true;
	if (!alone) {
		loop_pause();
		alone = one_thread();
		loop_resume();
	}
	return alone;
}

/* Of several who pause it the first sends it away, and the last lets it come back. start_lock. */
static unsigned pausers;
static bool ran;	/* before it was sent away */

void loop_pause(void)
{
	lock_take(&start_lock);
	if (!pausers++) {
		ran = loop_running();
		atomic_store(&away, true);
		copy_quit();
		closer_quit();
	}
	lock_give(&start_lock);
	loop_kick();
	own_threads_await_end(now_us() + 1000000);
}

/* It was sent away, and cannot be made any more: somebody else of the user's processes has taken
 * its place meanwhile. Then who waits for its work does it: loop_step_here(). */
static _Atomic bool lost;

bool loop_lost(void) { return atomic_load(&lost); }

void loop_resume(void)
{
	bool last;

	lock_take(&start_lock);
	last = !--pausers;
	if (last) {
		atomic_store(&away, false);
		copy_resume();
		closer_resume();
	}
	lock_give(&start_lock);
	if (!last)
		return;
	closer_start();		/* threads are made without a lock */
	if (ran && loop_start())
		atomic_store(&lost, true);
}

static void *ends_at_once(void *arg)
{
	own_thread_begins();
	own_thread_ends();
	return arg;
}

bool loop_can_begin(void) { return !own_thread(ends_at_once, NULL, NULL); }

/* libc does not notice by itself that the process has one thread again. */
void loop_thread_left(void)
{
	uint32_t n = atomic_fetch_add(&threads_left, 1);

	/* the kernel needs a moment to see it off */
	if (n & (n - 1) || !atomic_exchange(&loop_left, false))
		return;
	if (!&__libc_single_threaded || !atomic_load(&alone) || loop_running())
		return;
	if (all_threads() == 1)
		__libc_single_threaded = 1;
	else if (n < 1u << 16)
		atomic_store(&loop_left, true);
}

/* All who wait are woken: one may not go on, because a signal handler has jumped out of its wait
 * (loop_hold()), and would take the wake-up with it. */
static void rest(void)
{
	if (atomic_exchange_explicit(&at_work.v, 0, memory_order_release) == 2)
		word_ring(&at_work.v);
	critical_leave();
}

/* One round, and a sleep until `end_us` at most. at_work. False: it has to leave, or may. */
static bool one_round(uint64_t end_us)
{
	struct epoll_event ev[64];
	struct bell *b = atomic_load(&bell);
	uint64_t due = round_of_work(), now;
	struct timespec t, *tp = NULL;
	bool idle;
	long n;

	atomic_store(&kicked, false);
	due = earlier(due, duties->turn());
	if (bell_slice(b) != UINT64_MAX)
		due = earlier(due, now_us() + bell_slice(b) / 1000);
	bell_arm(b);
	now = now_us();
	idle = due == UINT64_MAX && nothing_to_do();
	due = idle ? now + LEAVE_US : earlier(due, duties->idle(now));
	/* `idle` may have put something there */
	if (atomic_load(&queue) || atomic_load(&away) || atomic_load(&kicked) || anything_came()) {
		due = 0;
		idle = false;
	}
	due = earlier(due, end_us);
	if (due != UINT64_MAX) {
		uint64_t d = due > now ? due - now : 0;

		t = (struct timespec){ (time_t)(d / 1000000), (long)(d % 1000000 * 1000) };
		tp = &t;
	}
	rest();
	n = sys(SYS_epoll_pwait2, ep, ev, 64, tp, NULL, 0);
	if (n < 0 && n != -EINTR)	/* before Linux 5.11, or somebody does not permit what he
					 * does not know */
		n = sys(SYS_epoll_pwait, ep, ev, 64,
			tp ? (int)(t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1) : -1, NULL, 0);
	lock_take(&at_work);
	bell_disarm(b);
	for (long i = 0; i < n; i++)
		one_event(ev[i].data.u64);
	return !atomic_load(&away) && (n || !idle);
}

static void *run(void *arg)
{
	(void)arg;
	own_thread_begins();
	me = true;
	lock_take(&at_work);
	duties->begin();
	sys(SYS_prctl, 15 /* PR_SET_NAME */, "rdmashim", 0, 0, 0);
	while (one_round(UINT64_MAX) || !may_leave())
		;
	atomic_store(&threads_left, 0);
	rest();
	own_thread_ends();
	atomic_store(&loop_left, true);
	return NULL;
}

#define STEP_US 10000

bool loop_step_here(uint64_t end_us)
{
	if (!atomic_load(&lost) || me)
		return false;
	critical_enter();	/* no handler of the program's runs as if it were the thread */
	lock_take(&at_work);
	me = true;
	(void)one_round(earlier(end_us, now_us() + STEP_US));
	me = false;
	rest();
	critical_leave();
	return true;
}

bool loop_hold(uint64_t end_us)
{
	if (me)
		return false;
	if (lock_try(&at_work))
		return true;
	for (;;) {
		/* As lock_slow(), but the program's signal handlers run meanwhile, and it has an
		 * end. */
		critical_enter();
		if (!atomic_exchange_explicit(&at_work.v, 2, memory_order_acquire))
			return true;
		critical_leave();
		if (now_us() >= end_us)
			return false;
		word_wait(&at_work.v, 2, end_us * 1000);
	}
}

void loop_go_on(void) { rest(); }

/* What is kept when the thread leaves: the instance and the bell. */
static int make_epoll(void)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET, .data.u64 = ~0ull };
	struct bell *b;
	int fd;

	if (ep >= 0)
		return 0;
	fd = fd_internal_sys(SYS_epoll_create1, EPOLL_CLOEXEC);
	if (fd < 0)
		return fd;
	ep = fd;
	b = bell_new();
	if (!b) {
		fd_internal_close(ep);
		ep = -1;
		return -EMFILE;
	}
	atomic_store(&bell, b);
	sys(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, b->fd, &e);
	return 0;
}

/* What goes before its start. True: the caller is to make it. */
static bool claim(int *ret)
{
	bool mine;

	lock_take(&start_lock);
	*ret = atomic_load(&running);
	mine = !*ret && !(*ret = make_epoll());
	if (mine) {
		atomic_store(&loop_left, false);
		if (&__libc_single_threaded && __libc_single_threaded)
			atomic_store(&alone, true);
	}
	/* A limit of descriptors may be raised: then the next stream tries again. */
	if (mine || (*ret < 0 && *ret != -EMFILE))
		atomic_store(&running, mine ? 1 : *ret);
	lock_give(&start_lock);
	return mine;
}

/* It counts as running while it is made: that is done without a lock, for malloc(), or whoever
 * stands before pthread_create(), may call us. */
int loop_start(void)
{
	int r = atomic_load(&running), saved = errno;

	if (!r && claim(&r)) {
		r = -own_thread(run, NULL, NULL);
		if (r)
			atomic_store(&running, r);
		else
			atomic_store(&shim_active, true);
		if (r)
			duties->failed(r);
	}
	errno = saved;
	return r < 0 ? r : 0;
}

void loop_forget(struct work *w)
{
	w->on_watch = 0;
	w->due = (struct due){ 0 };
	atomic_store(&w->queued, 0);
}

void loop_after_fork(void)
{
	copy_after_fork();
	atomic_store(&away, false);
	atomic_store(&lost, false);
	pausers = 0;
	atomic_store(&start_lock.v, 0);
	atomic_store(&at_work.v, 0);
	own_threads_after_fork();
	atomic_store(&running, 0);
	atomic_store(&queue, NULL);
	asked_for = NULL;
	asked_end = &asked_for;
	atomic_store(&bell, NULL);
	watch = NULL;
	dues.n = 0;
	duties->forked();
	me = false;
	if (ep >= 0)
		fd_internal_close(ep);
	ep = -1;
	atomic_store(&loop_left, false);
}
