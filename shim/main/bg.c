/*
 * bg.c - see bg.h.
 *
 * Locks: `start_lock`, outermost, for starting and leaving; `at_work`, which the thread has
 * whenever it does not sleep, outside of all others.
 *
 * A stream is worked on when somebody asked for it, or when the time has come that its last piece of work named: `queue` is
 * a lock-free stack that any thread pushes to (bg_look), `dues` a heap by time. Only a stream that is being closed, or resends,
 * is on the list `watch` and worked on at every event: the last credit of its ring comes without a name on it. Queue, heap and list
 * are met in rounds; between them the thread sleeps until the earliest due time, a control message, a ring of our bell, or a
 * change of the policy file. Heap and list are the thread's own.
 *
 * The rule: whoever changes what stream_work() looks at calls bg_look() after it. They are: a step of the cut machine (carry_out()), the
 * bind and the end of a link (rendezvous_ctl.c, link.c), the last plain call that leaves, the first wait, blocking again, close, shutdown,
 * a full ring, pinning, a new policy, and a holder less (fork_cell.c).
 */
#include "main/bg.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "base/closer.h"
#include "base/copy.h"
#include "base/fdtab.h"
#include "base/own_thread.h"
#include "base/sys.h"
#include "conn/stream_int.h"
#include "discovery/rendezvous_net.h"
#include "main/init.h"
#include "main/stream_work.h"
#include "main/watch.h"

static _Atomic(struct stream *) queue;
static struct stream *watch;
static struct due_heap dues;
static struct lock start_lock, at_work;
static _Atomic int running;
static int ep = -1;
static _Atomic(struct bell *) bell;
static __thread bool me;

_Atomic bool bg_left;
static _Atomic uint32_t farewells;	/* calls of bg_farewell() since then */
static _Atomic bool alone;	/* the process had one thread before us */

bool bg_is_me(void) { return me; }
bool bg_running(void) { return atomic_load(&running) > 0; }
struct bell *bg_bell(void) { return atomic_load(&bell); }

void bg_kick(void)
{
	struct bell *b = atomic_load(&bell);

	if (b)
		bell_ring(1ull << b->idx);
}

void bg_look(struct stream *s)
{
	struct stream *head;

	if (atomic_exchange(&s->queued, 1))
		return;
	head = atomic_load(&queue);
	do
		s->queue_next = head;
	while (!atomic_compare_exchange_weak(&queue, &head, s));
	if (!me)
		bg_kick();
}

int bg_watch_fd(int fd, uint32_t events, uint64_t tag)
{
	struct epoll_event e = { .events = events, .data.u64 = tag };

	return (int)sys(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, &e);
}

void bg_unwatch_fd(int fd)
{
	sys(SYS_epoll_ctl, ep, EPOLL_CTL_DEL, fd, NULL);
}

void bg_rewatch_fd(int fd, uint32_t events, uint64_t tag)
{
	struct epoll_event e = { .events = events, .data.u64 = tag };

	sys(SYS_epoll_ctl, ep, EPOLL_CTL_MOD, fd, &e);
}

/* ---- policy ---- */

static void policy_changed(void)
{
	uint32_t n = streams_top();

	if (!shim_reload_policy())
		return;
	if (watch_deps() && shim_reload_policy())
		watch_deps();
	links_look_at_users();
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) != MODE_FREE && atomic_load(&s->upgrade))
			rv_policy(s);
	}
}

static uint64_t look_at_policy(uint64_t now)
{
	bool changed;
	uint64_t due = watch_look(now, &changed);

	if (changed)
		policy_changed();
	return due;
}

/* ---- rounds ---- */

static void watch_add(struct stream *s)
{
	due_take(&dues, &s->due);
	if (s->on_watch)
		return;
	s->on_watch = 1;
	s->rv_next = watch;
	watch = s;
}

/* Thousands of streams may search, or be new, at the same time: the messages of those that are found do not wait until all have had
 * their turn. */
#define AT_ONCE 16

/* Those whom somebody has asked to look at, longest ago first. */
static struct stream *asked_for, **asked_end = &asked_for;

static void take_queue(void)
{
	struct stream *s = atomic_exchange(&queue, NULL), *next, *first = NULL, *last = s;

	for (; s; s = next) {
		next = s->queue_next;
		s->queue_next = first;
		first = s;
	}
	if (!first)
		return;
	*asked_end = first;
	asked_end = &last->queue_next;
}

static struct stream *next_asked_for(void)
{
	struct stream *s = asked_for;

	if (!s)
		return NULL;
	asked_for = s->queue_next;
	if (!asked_for)
		asked_end = &asked_for;
	atomic_store(&s->queued, 0);
	return s;
}

static uint64_t round_of_work(void)
{
	struct stream *s, **at;
	uint64_t now = now_us(), due = UINT64_MAX, d;
	struct due *p;

	take_queue();
	for (int i = 0; i < AT_ONCE && (s = next_asked_for()); i++)
		watch_add(s);
	for (int i = 0; i < AT_ONCE && (p = due_pop(&dues, now)); i++)
		watch_add((struct stream *)((char *)p - offsetof(struct stream, due)));
	for (at = &watch; *at;) {
		s = *at;
		d = stream_work(s, now);
		if (d && (stream_restless(s) || (d != UINT64_MAX && !due_put(&dues, &s->due, d)))) {
			due = earlier(due, d);
			at = &s->rv_next;
			continue;
		}
		*at = s->rv_next;
		s->on_watch = 0;
	}
	return asked_for ? 0 : earlier(due, due_next(&dues));
}

/* After our bell is armed: a last credit that came just before rang nobody. */
static bool credit_came(void)
{
	uint32_t n = atomic_load(&links_top);
	bool any = false;

	for (uint32_t i = 0; i < n; i++)
		atomic_store(&links[i].bg_waits, false);
	for (struct stream *s = watch; s; s = s->rv_next)
		any |= stream_credit_came(s);
	return any;
}

/* ---- the thread ---- */

static void one_event(uint64_t tag)
{
	uint32_t n = (uint32_t)tag;

	switch (tag >> 56) {
	case BG_TAG_LINK:
		rv_link_ready(n);
		break;
	case BG_TAG_HOME:
		if (stream_at(n))
			bg_look(stream_at(n));
		break;
	case BG_TAG_NAME:
		rv_name_ready(n);
		break;
	case BG_TAG_PEND:
		rv_pending_ready(n);
		break;
	case BG_TAG_CM:
		link_net_events();
		break;
	case BG_TAG_RC:
		link_net_completion(n);
		break;
	case BG_TAG_PORT:
		net_port_ready();
		break;
	case BG_TAG_CALL:
		net_call_ready(n);
		break;
	case 0:
		if (watch_event())
			policy_changed();
		break;
	}
}

static uint64_t flush_links(void)
{
	uint32_t n = atomic_load(&links_top);
	uint64_t due = UINT64_MAX;

	for (uint32_t i = 0; i < n; i++) {
		bool lived = atomic_load(&links[i].state) == LINK_UP ||
			     (atomic_load(&links[i].state) == LINK_HELLO && !links[i].net);

		due = earlier(due, link_net_look(&links[i]));
		due = earlier(due, link_distrust_work(&links[i]));
		link_net_work(&links[i]);
		if (atomic_load(&links[i].state) == LINK_UP && atomic_load(&links[i].out_waiting)) {
			link_flush(&links[i]);
			due = earlier(due, now_us() + 1000);
		} else if (atomic_load(&links[i].state) == LINK_HELLO) {
			uint64_t end = links[i].since_us + (links[i].net ? 6000000 : 2000000);

			due = earlier(due, end);
			if (now_us() >= end) {	/* a meeting point where nobody answers */
				link_kill(&links[i], REASON_NO_PEER_SHIM);
				lived = true;
			}
		} else if (atomic_load(&links[i].state) == LINK_UP && !atomic_load(&links[i].proven)) {
			/* Whoever knocked has shown no end of a connection of ours. */
			if (now_us() - links[i].since_us > 3000000)
				link_kill(&links[i], REASON_IDENTITY);
			else
				due = earlier(due, links[i].since_us + 3100000);
		}
		if (lived && atomic_load(&links[i].state) == LINK_DEAD)
			rv_link_ready(i);	/* who had asked for a slot there must ask elsewhere */
	}
	/* A queue pair that is never closed keeps its device from being removed. */
	return link_reap() ? earlier(due, now_us() + 1000) : due;
}

#define LEAVE_US 50000		/* with nothing to do; another start costs 0.1 ms */

/* A thread of ours makes each system call and each lock of a program with one thread dearer: the kernel counts references
 * to files, and libc must expect cancellation. So it leaves when no stream needs it. */
static bool nothing_to_do(void)
{
	uint32_t n = atomic_load(&links_top);

	if (watch || dues.n || asked_for || atomic_load(&queue) || fork_requests_open() || fork_watches())
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (atomic_load(&links[i].state) != LINK_FREE)
			return false;
	n = streams_top();
	for (uint32_t i = 0; i < n; i++)	/* those that the policy keeps on TCP wait for another policy */
		if (atomic_load(&stream_at(i)->upgrade) && atomic_load(&stream_at(i)->mode) != MODE_FREE)
			return false;
	return true;
}

static _Atomic bool away;	/* it has to leave, see bg_pause() */

/* Whoever asks for us puts the stream on the queue first and then looks whether we run; we do it the other way round. */
static bool may_leave(void)
{
	bool gone;

	lock_take(&start_lock);
	atomic_store(&running, 0);
	gone = atomic_load(&away) || nothing_to_do();
	if (!gone) {
		atomic_store(&running, 1);
	} else {
		watch_end();
		net_leave_port();
	}
	lock_give(&start_lock);
	return gone;
}

static bool threads_are(unsigned n)
{
	struct stat st;

	return sys(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &st, 0) >= 0 && st.st_nlink == n + 2;
}

bool bg_only_other_thread(void) { return bg_running() && threads_are(2 + copy_running()); }

void bg_pause(void)
{
	struct timespec nap = { 0, 20000 };
	uint64_t end = now_us() + 1000000;

	atomic_store(&away, true);
	copy_quit();
	bg_kick();
	while (!threads_are(1) && now_us() < end)
		sys(SYS_nanosleep, &nap, NULL);
}

void bg_resume(void)
{
	atomic_store(&away, false);
	copy_resume();
	bg_start();
}

/* libc does not notice by itself that the process has one thread again. */
void bg_farewell(void)
{
	uint32_t n = atomic_fetch_add(&farewells, 1);

	if (n & (n - 1) || !atomic_exchange(&bg_left, false))	/* the kernel needs a moment to see it off */
		return;
	if (!&__libc_single_threaded || !atomic_load(&alone) || bg_running())
		return;
	if (threads_are(1))
		__libc_single_threaded = 1;
	else if (n < 1u << 16)
		atomic_store(&bg_left, true);
}

static void *run(void *arg)
{
	struct epoll_event ev[64];
	struct bell *b = atomic_load(&bell);
	bool idle;

	(void)arg;
	own_thread_begins();
	me = true;
	lock_take(&at_work);
	watch_begin(now_us());
	look_at_policy(now_us());
	shim_log_start();
	sys(SYS_prctl, 15 /* PR_SET_NAME */, "rdmashim", 0, 0, 0);
	for (;;) {
		uint64_t due = round_of_work(), now;
		struct timespec t, *tp = NULL;
		long n;

		due = earlier(due, flush_links());
		due = earlier(due, rv_pending_expire(now_us()));
		due = earlier(due, net_expire(now_us()));
		due = earlier(due, closer_work(now_us()));
		fork_check_requests();
		copy_start();
		if (fork_requests_open())
			due = earlier(due, now_us() + 500);
		due = earlier(due, fork_due());
		if (bell_slice(b) != UINT64_MAX)
			due = earlier(due, now_us() + bell_slice(b) / 1000);
		bell_arm(b);
		now = now_us();
		idle = due == UINT64_MAX && nothing_to_do();
		due = idle ? now + LEAVE_US : earlier(due, look_at_policy(now));
		if (atomic_load(&queue) || atomic_load(&away) || credit_came()) {	/* the policy's change may have put something there */
			due = 0;
			idle = false;
		}
		if (due != UINT64_MAX) {
			uint64_t d = due > now ? due - now : 0;

			t = (struct timespec){ (time_t)(d / 1000000), (long)(d % 1000000 * 1000) };
			tp = &t;
		}
		lock_give(&at_work);
		n = sys(SYS_epoll_pwait2, ep, ev, 64, tp, NULL, 0);
		if (n < 0 && n != -EINTR)	/* before Linux 5.11, or somebody does not permit what he does not know */
			n = sys(SYS_epoll_pwait, ep, ev, 64, tp ? (int)(t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1) : -1, NULL, 0);
		lock_take(&at_work);
		bell_disarm(b);
		for (long i = 0; i < n; i++)
			one_event(ev[i].data.u64);
		if ((atomic_load(&away) || (!n && idle)) && may_leave())
			break;
	}
	atomic_store(&farewells, 0);
	lock_give(&at_work);
	own_thread_ends();
	atomic_store(&bg_left, true);
	return NULL;
}

bool bg_hold(uint64_t end_us)
{
	struct timespec nap = { 0, 20000 };

	if (me)
		return false;
	while (!lock_try(&at_work)) {
		if (now_us() >= end_us)
			return false;
		sys(SYS_nanosleep, &nap, NULL);
	}
	return true;
}

void bg_go_on(void) { lock_give(&at_work); }

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
		atomic_store(&bg_left, false);
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
int bg_start(void)
{
	int r = atomic_load(&running), saved = errno;

	if (!r && claim(&r)) {
		r = -own_thread(run, NULL, NULL);
		if (r)
			atomic_store(&running, r);
		else
			atomic_store(&shim_active, true);
		if (r)
			streams_without_thread(r);
	}
	errno = saved;
	return r < 0 ? r : 0;
}

void bg_after_fork(void)
{
	copy_after_fork();
	atomic_store(&away, false);
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
	for (uint32_t i = 0; i < streams_top(); i++) {	/* free ones too: they are used again */
		stream_at(i)->on_watch = 0;
		stream_at(i)->due = (struct due){ 0 };
		atomic_store(&stream_at(i)->queued, 0);
	}
	me = false;
	if (ep >= 0)
		fd_internal_close(ep);
	watch_end();
	ep = -1;
	atomic_store(&bg_left, false);
}
