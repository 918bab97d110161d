/*
 * fork.c - fork, vfork, posix_spawn: falling back before a child, who knows nothing of the path,
 * gets a socket. exec, fd passing and seccomp: leave.c.
 *
 * A stream that existed at a fork gets a holders, which says who holds the socket (holders.h).
 * While another process does the stream is not newly cut. The child's copy of a stream that the
 * parent has on a fast path is marked fork_cut; the child's first use asks the parent (through
 * the holders and the parent's bell) to rewind, then both use TCP.
 *
 * Order of locks at fork: none is held across it but the slab's and the ready lists' own; direction
 * locks are passed through once each, so that no step of the cut machine is half done in the
 * child's copy, and `forking` keeps a new one from starting.
 *
 * A child that runs none of our handlers (vfork, posix_spawn, system, popen) holds the socket:
 * the stream falls back first and the child's pid is in the holders, so that it stays there as
 * long as the child lives. While the pid is not known yet, minus the thread id of the parent's
 * thread stands for it. What the child's own children inherit after its exec is not seen. So it
 * is with a child of _Fork or clone (wrap_clone.c). One made past all wrappers has a copy of our
 * memory: it can ask only through a holders that was there before it.
 *
 * A child of vfork runs in the parent's memory, with the parent's thread-local storage and
 * errno, but with an fd table of its own, in which our fds may be closed by now: it takes no
 * lock and lets the background thread do the work.
 */
#include "process/fork.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/own_memory.h"
#include "base/signals.h"
#include "base/sys.h"
#include "conn/holders.h"
#include "conn/stream_cut.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "discovery/search.h"
#include "gpu/gpu.h"
#include "policy/log.h"
#include "poll/ready.h"
#include "poll/ready_int.h"
#include "process/children.h"

static uint32_t requests_seen;
static bool requests_open;

/* Rung by our children, who have no other bell of ours. One of them may silence it: see fork_due().
 * -1: none. */
static _Atomic int asked = -1;
static uint64_t looked_us;

/* This thread's place in a holders until its child's pid is known. */
static int my_token(void) { return -(int)sys(SYS_gettid); }

/* ---- a child wants a stream of ours on TCP ---- */

/* An ARM may wait for its answer: while the stream is shared it gets none. Both locks held. */
static bool on_tcp(const struct stream *s)
{
	return s->snd.cut.state == CUT_TX_TCP && s->rcv.cut.state == CUT_RX_TCP;
}

/* As stream_ask_fallback(), but that ARM is left alone: the peer would only send the next one. */
void fork_ask_fallback(struct stream *s)
{
	bool any;

	stream_lock(s);
	any = atomic_load(&s->link) && !on_tcp(s);
	if (any) {
		if (s->snd.cut.state != CUT_TX_TCP)
			stream_tx_event(s, CUT_EV_FALLBACK, 0, 0);
		if (s->rcv.cut.state == CUT_RX_RING || s->rcv.cut.state == CUT_RX_ARMED)
			stream_rx_event(s, CUT_EV_FALLBACK, 0, 0);
	}
	stream_unlock(s);
	if (any)
		bg_look(s);
}

/* The other holder's bytes are counted by TCP alone: start anew from TCP's. Both locks held. */
static void recount(struct stream *s)
{
	if (on_tcp(s))
		s->snd.synced = s->rcv.synced = 0;
}

static bool on_tcp_now(struct stream *s)
{
	bool fallback;

	stream_lock(s);
	fallback = !atomic_load(&s->link) || (on_tcp(s) && !stream_arriving(s)) ||
	       atomic_load(&s->peer_gone);
	recount(s);
	stream_unlock(s);
	return fallback;
}

void fork_check_requests(void)
{
	uint32_t n = streams_top(), now;

	memory_mark();
	children_look();
	now = holders_requests();
	if (now == requests_seen && !requests_open && now_us() < fork_due())
		return;
	looked_us = now_us();
	requests_seen = now;
	requests_open = false;
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct holders *c = atomic_load(&s->others.holders);

		if (!c || !atomic_load(&c->want_fallback) || atomic_load(&c->on_tcp) ||
		    atomic_load(&s->fork_cut))
			continue;
		fork_ask_fallback(s);
		if (on_tcp_now(s))
			holders_say_on_tcp(c);
		else
			requests_open = true;
	}
}

#define LOOK_US 100000

/* A child may spoil what it shares with another that asks, so we look by ourselves while there
 * is one. */
uint64_t fork_due(void)
{
	return atomic_load(&asked) >= 0 && fork_watches() ? looked_us + LOOK_US : UINT64_MAX;
}

/* Without it we only look by ourselves. */
static void make_asked(void)
{
	int none = -1, fd;

	fd = fd_internal_sys(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (fd < 0)
		return;
	if (loop_watch_fd(fd, EPOLLIN | EPOLLET, LOOP_WAKE, 0) < 0 ||
	    !atomic_compare_exchange_strong(&asked, &none, fd))
		fd_internal_close(fd);
}

bool fork_requests_open(void) { return requests_open; }

bool fork_keeps_fd(int fd)
{
	struct bell *b = loop_bell();

	for (int i = 0; i < FORK_ANCESTORS; i++)
		if (fd >= 0 && fd == fork_parent_bells[i])
			return fork_is_bell(fd);
	return fd >= 0 && b && fd == b->fd && fork_is_bell(fd);
}

/* the background thread cannot be woken: perhaps it comes by */
#define DEAF_PATIENCE_US 1000000

/* ---- held by a child: that runs no handlers ---- */

static void shared_now(struct stream *s)
{
	if (atomic_load(&s->connected) && atomic_load(&stream_row(s)->reason) != REASON_REWOUND)
		stat_row_reason(stream_row(s), REASON_SHARED);
}

/* We are the child, so nobody but the parent's background thread may move the stream. */
static int ask_parent(struct holders *c, uint64_t end)
{
	uint64_t deaf = now_us() + DEAF_PATIENCE_US;
	struct bell *b = loop_bell();

	atomic_store(&c->on_tcp, 0);
	holders_want_fallback(c);
	while (!atomic_load(&c->on_tcp)) {
		if (!b || !process_lives(atomic_load(&shim_pid)))
			return -ETIMEDOUT;
		if (!fork_ring_fd(b->fd) && now_us() > deaf)
			return -ETIMEDOUT;
		if (!holders_await_on_tcp(c, end))
			return -ETIMEDOUT;
	}
	return 0;
}

/* Whose peer has not answered for so long is not waited for by each child anew, nor for each
 * directory in which it looks for its program, until he is on the path again. */
static uint64_t start_by(struct stream *s, uint64_t since)
{
	return atomic_load(&s->fallback.late) ? 0 : stream_fallback_by(s, PATIENCE_START, since);
}

static void started(struct stream *s, uint64_t since, uint64_t end, bool late)
{
	if (!late || end)
		atomic_store(&s->fallback.late, late ? FALLBACK_LATE_AT_START : FALLBACK_IN_TIME);
	if (late && end)
		stream_not_on_tcp(s, PATIENCE_START, since);
}

static int child_holds(struct stream *s, uint64_t since)
{
	int pid = (int)sys(SYS_getpid), r = 0;
	struct holders *c;
	uint64_t end;

	if (atomic_load(&s->fork_cut))
		/* our parent's parent has it on a path; makes it TCP-only */
		r = fork_child_touch_until(s, since + FALLBACK_PATIENCE_US);
	if (stream_tcp_only(s))
		return r;
	if (memory_is_ours())
		hold_over(s);
	else			/* nobody else has this copy, nor its locks */
		hold_end(s);
	c = memory_is_ours() ? holders_of(s) : atomic_load(&s->others.holders);
	if (!c) {
		atomic_store(&s->earn.stopped, REASON_SHARED);
		return -ENOMEM;
	}
	if (holders_has(c, pid) && atomic_load(&c->on_tcp))
		return 0;	/* and stays so while we live */
	holders_enter(c, pid);
	if (memory_is_ours())
		hold_over(s);	/* since then */
	child_watch(pid);
	shared_now(s);
	/* Who looks after the pid is there sees a shared stream; who looked before, has a link. */
	if (!atomic_load(&s->link))
		return 0;
	end = start_by(s, since);
	r = ask_parent(c, end);
	started(s, since, end, r);
	return r;
}

int fork_child_holds(struct stream *s) { return child_holds(s, now_us()); }

bool fork_survives_exec(int fd)
{
	long f = sys(SYS_fcntl, fd, F_GETFD);

	return f >= 0 && !(f & FD_CLOEXEC);
}

/* All are asked for before one is waited for: however many the peers keep, it is one patience. */
void fork_hold_survivors(void)
{
	uint64_t since = now_us();
	int top = fdtab_top();

	for (int fd = fdtab_next(0); fd < top; fd = fdtab_next(fd + 1)) {
		struct stream *s = fdtab_stream(fd);
		struct holders *c = s ? atomic_load(&s->others.holders) : NULL;

		if (c && !stream_tcp_only(s) && fork_survives_exec(fd) && !atomic_load(&c->on_tcp))
			holders_want_fallback(c);
	}
	for (int fd = fdtab_next(0); fd < top; fd = fdtab_next(fd + 1)) {
		struct stream *s = fdtab_stream(fd);
		struct epoll *e = fdtab_epoll(fd);

		if (e && fork_survives_exec(fd))
			ready_mark_shared(e);
		if (s && !stream_tcp_only(s) && fork_survives_exec(fd) && child_holds(s, since))
			log_line(1, "fd %d: exec with bytes still on the fast path", fd);
	}
}

int fork_wait_fallback(struct stream *s, uint64_t end)
{
	return stream_await_fallback(s, end, on_tcp_now, fork_ask_fallback);
}

/* False: there are too many, or this thread has interrupted a call of its own that has let a
 * child hold it. */
static bool enters(struct holders *c, int token)
{
	if (holders_has(c, token))
		return false;
	holders_enter(c, token);
	return holders_has(c, token);
}

void fork_before_spawn(bool (*named)(const void *what, int fd), const void *what)
{
	uint64_t since = now_us(), end;
	uint32_t n = streams_top();
	int top = fdtab_top(), token = my_token();
	bool any = false, late;

	ready_unpark_all(false);
	for (int fd = fdtab_next(0); fd < top; fd = fdtab_next(fd + 1)) {
		struct epoll *e = fdtab_epoll(fd);
		struct stream *s = fdtab_stream(fd);
		struct holders *c;

		if (e && (fork_survives_exec(fd) || (named && named(what, fd))))
			ready_shared(e);
		if (!s || stream_tcp_only(s) ||
		    !(fork_survives_exec(fd) || (named && named(what, fd))))
			continue;
		if (atomic_load(&s->fork_cut)) {
			fork_child_touch_until(s, since + FALLBACK_PATIENCE_US);
			continue;
		}
		c = holders_of(s);
		if (!c)
			atomic_store(&s->earn.stopped, REASON_SHARED);
		else if (!enters(c, token))
			(void)stream_fall_back_since(s, REASON_SHARED, since);
		hold_over(s);
		shared_now(s);
		if (c && !stream_tcp_only(s) && atomic_load(&s->link)) {
			fork_ask_fallback(s);
			any = true;
		}
	}
	for (uint32_t i = 0; any && i < n; i++) {
		struct stream *s = stream_at(i);
		struct holders *c = atomic_load(&s->others.holders);

		if (!c || !holders_has(c, token))
			continue;
		end = start_by(s, since);
		late = fork_wait_fallback(s, end);
		started(s, since, end, late);
		if (late)
			log_line(1, "fd %d: a child starts with bytes still on the fast path",
				 atomic_load(&s->fd));
	}
}

void fork_after_spawn(int pid)
{
	uint32_t n = streams_top();
	int token = my_token();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct holders *c = atomic_load(&s->others.holders);

		if (!c || !holders_has(c, token))
			continue;
		if (pid < 0)
			atomic_store(&c->crowded, 1);
		holders_swap(c, token, pid > 0 ? pid : 0);
		if (pid > 0)
			fork_watch(pid);
		fork_less_shared(s);
	}
}

/* ---- atfork ---- */

static _Atomic bool handlers_on;
/* Between this thread's prepare handler and the other two. A copy of our memory that we were not
 * asked about has our locks as other threads held them: it forks without us. */
static __thread bool prepared __attribute__((tls_model("initial-exec")));

/* libc's fork() takes the lock of its list of streams after our prepare handler. Who has it may
 * be in a program's own stream (fopencookie()), which calls us: so it is taken before ours. It
 * counts. */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));
#define STDIO(what) do { if (_IO_list_##what) _IO_list_##what(); } while (0)

void shim_fork_prepare(void)
{
	uint32_t n = streams_top();

	prepared = atomic_load(&handlers_on) && (int)sys(SYS_getpid) == atomic_load(&shim_pid);
	if (!prepared)
		return;
	ready_unpark_all(true);
	if (atomic_load(&asked) < 0 && atomic_load(&links_top))
		make_asked();
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct holders *c;

		if (atomic_load(&s->mode) == MODE_FREE || atomic_load(&s->dead))
			continue;
		c = holders_of(s);
		if (c) {
			if (atomic_load(&s->link))
				atomic_store(&c->owner, atomic_load(&shim_pid));
			atomic_fetch_add(&c->forking, 1);
		} else {
			atomic_store(&s->earn.stopped, REASON_SHARED);
		}
		stream_lock(s);
		hold_end(s);
		recount(s);
		stream_unlock(s);
	}
	holders_close();
	STDIO(lock);
	ready_fork_prepare();
	stream_fork_lock();
	gpu_before_fork();
	fd_number_lock();
}

void shim_fork_parent(void)
{
	if (!prepared)
		return;
	fd_number_unlock();
	holders_close();
	gpu_after_fork(false);
	stream_fork_unlock();
	ready_fork_parent();
	STDIO(unlock);
	ready_park_again();
}

static void forked(struct holders *c)
{
	uint32_t n = atomic_load(&c->forking);

	for (int i = 0; n && i < 1000; i++)	/* others write there, too, perhaps without end */
		if (atomic_compare_exchange_weak(&c->forking, &n, n - 1))
			return;
}

/* fork() ran the handlers, but there is no child that would have counted itself. */
void fork_failed(void)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct holders *c = atomic_load(&s->others.holders);

		if (c && atomic_load(&s->mode) != MODE_FREE && !atomic_load(&s->dead)) {
			forked(c);
			fork_less_shared(s);
		}
	}
}

static void child_stream(struct stream *s)
{
	bool cut = atomic_load(&s->link) &&
		   !(s->snd.cut.state == CUT_TX_TCP && s->rcv.cut.state == CUT_RX_TCP);
	struct holders *c = atomic_load(&s->others.holders);
	int fd = atomic_load(&s->fd);

	atomic_store(&s->rcv.lock.v, 0);
	atomic_store(&s->snd.lock.v, 0);
	atomic_store(&s->reg.lock.v, 0);
	atomic_store(&s->link, NULL);
	if (s->search.fd >= 0)
		fd_internal_close(s->search.fd);
	s->search.fd = -1;
	search_anew(s);
	atomic_store(&s->upgrade, 0);
	atomic_store(&s->bells, 0);
	atomic_store(&s->snd.ring_full, 0);
	s->direct.stuck = s->direct.held.held = 0;	/* of a thread that is not here */
	s->direct.done = 0;
	s->pull = (struct pull){ .open = false };
	s->direct.reading = (struct direct_reading){ .to = 0 };
	atomic_store(&s->direct.watched, 0);
	earn_anew(s);
	cut_tx_init(&s->snd.cut);
	cut_rx_init(&s->rcv.cut);
	stream_owes_nothing(s);
	s->row = stat_row_alloc();
	stream_count_here(s);
	atomic_store(&s->row->fd, (uint32_t)fd);
	atomic_store(&s->row->role, s->role);
	if (atomic_load(&s->dead)) {
		if (fd >= 0 && fdtab_internal(fd))
			fd_internal_close(fd);
		stream_free(s);
		return;
	}
	if (c) {
		holders_enter(c, atomic_load(&shim_pid));
		forked(c);
	}
	if (cut)
		atomic_store(&s->fork_cut, 1);
	if (!stream_tcp_only(s))
		atomic_store(&s->mode, MODE_NEW);
	if (atomic_load(&s->connected)) {
		stat_row_publish(s->row);
		stat_row_reason(stream_row(s), REASON_SHARED);
	}
}

static void child_closes(struct stream *s, int fd) { stream_close(s, fd); }

/* `bell` is what our parent's children ring. What the parent has asked nobody for yet, an
 * ancestor of his may have on a path. */
static void ancestors_after_fork(int bell)
{
	bool asks = false;
	int keep;

	for (uint32_t i = 0; i < streams_top() && !asks; i++)
		asks = atomic_load(&stream_at(i)->mode) != MODE_FREE &&
		       atomic_load(&stream_at(i)->fork_cut);
	if (bell < 0)
		return;
	keep = asks ? FORK_ANCESTORS - 1 : 0;
	for (int i = keep; i < FORK_ANCESTORS; i++) {
		if (fork_parent_bells[i] >= 0)
			fd_internal_close(fork_parent_bells[i]);
		fork_parent_bells[i] = -1;
	}
	memmove(fork_parent_bells + 1, fork_parent_bells,
		sizeof(*fork_parent_bells) * (FORK_ANCESTORS - 1));
	fork_parent_bells[0] = bell;
}

/* The kernel copies the table of descriptors before the memory, so numbers that the background
 * thread got in between are in our memory and are none here; a number may also have been closed
 * by a call that we don't see. What is closed because of the memory must therefore not be a new
 * descriptor of ours: none is made, and kept, before all that is done. */
void shim_fork_child(void)
{
	uint32_t n = streams_top();

	if (!prepared)
		return;
	STDIO(resetlock);
	gpu_after_fork(true);
	holders_close();
	stream_after_fork();
	atomic_store(&shim_pid, (int)sys(SYS_getpid));
	atomic_store(&shim_active, false);
	fdtab_after_fork();
	ancestors_after_fork(atomic_exchange(&asked, -1));
	if (n || stat_opened())		/* the file comes before the first stream, which may not
					 * have come */
		stat_after_fork();
	shim_stat_reopen(n != 0);
	memory_marked_anew();
	requests_open = false;
	children_after_fork();
	search_after_fork();
	search_callers_after_fork();
	paths_after_fork();
	links_after_fork();
	closer_after_fork();
	loop_after_fork();
	bell_after_fork();
	ready_after_fork();
	for (uint32_t i = 0; i < n; i++)
		if (atomic_load(&stream_at(i)->mode) != MODE_FREE)
			child_stream(stream_at(i));
	fdtab_after_fork_last(child_closes);
	signals_after_fork();
}

void fork_not_seen(void)
{
	atomic_store(&shim_pid, 0);	/* in a PID namespace it may have its parent's */
	shim_on = false;
	atomic_store(&handlers_on, false);
}

void fork_handlers_start(void) { atomic_store(&handlers_on, true); }
