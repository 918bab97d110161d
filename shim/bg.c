/*
 * bg.c - see bg.h.
 *
 * Locks: `start_lock`, outermost, for starting and leaving.
 *
 * A stream is worked on when somebody asked for it, or when the time has come that its last piece of work named: `queue` is
 * a lock-free stack that any thread pushes to (bg_look), `dues` a heap by time. Only a stream that is being closed, or resends,
 * is on the list `watch` and worked on at every event: the last credit of its ring comes without a name on it. Queue, heap and list
 * are met in rounds; between them the thread sleeps until the earliest due time, a control message, a ring of our bell, or a
 * change of the policy file. Heap and list are the thread's own.
 *
 * The rule: whoever changes what work() looks at calls bg_look() after it. They are: a step of the cut machine (carry_out()), the
 * bind and the end of a link (rendezvous_ctl.c, link.c), the last plain call that leaves, the first wait, blocking again, close, shutdown,
 * a full ring, pinning, a new policy, and a holder less (fork_cell.c). What changes without a word (a child that closes its copy, a
 * kernel's count that did not stand still, bytes that come by TCP before an end) work() asks for again, by the time that it returns.
 */
#include "bg.h"
#include "identity.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "copy.h"
#include "fdtab.h"
#include "../policy/log.h"
#include "ready.h"
#include "../rdma/rc.h"
#include "rendezvous_net.h"
#include "stream_int.h"
#include "sys.h"
#include "watch.h"

static _Atomic(struct stream *) queue;
static struct stream *watch;
static struct due_heap dues;
static struct lock start_lock;
static _Atomic int running;
static int ep = -1;
static _Atomic(struct bell *) bell;
static pthread_t thread;
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

/* ---- one stream ---- */

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* A full ring that a non-blocking sender left: see overflow_check() for the blocking one. */
static uint64_t watch_full(struct stream *s, uint64_t now)
{
	uint64_t limit = s->rv_net ? shim_tunables()->rdma_overflow : shim_tunables()->overflow, due = UINT64_MAX;
	bool more = false;

	lock_take(&s->tx_lock);
	if (cut_tx_on_ring(&s->tx))
		more = stream_more_room(s);
	if (!cut_tx_on_ring(&s->tx) || ring_tx_refresh(&s->rtx) || stream_roomy(s)) {
		atomic_store(&s->ring_full, 0);
		s->full_since_us = 0;
	} else if (s->tx.state != CUT_TX_P || s->tcp_full) {	/* nothing to go back to */
		s->full_since_us = 0;
		due = now + 1000;
	} else if (!s->full_since_us || s->full_rd != s->rtx.rd) {
		s->full_since_us = now;
		s->full_rd = s->rtx.rd;
		due = now + limit;
	} else if (now - s->full_since_us >= limit) {
		atomic_store(&s->ring_full, 0);
		s->full_since_us = 0;
		stream_overflow(s);
	} else {
		due = s->full_since_us + limit;
	}
	lock_give(&s->tx_lock);
	if (more)
		stream_wake(s);
	return due;
}

/* The sender is closing: FIN may go when all is consumed; or the application's shutdown is done. */
static void watch_close(struct stream *s)
{
	lock_take(&s->tx_lock);
	/* The last call has left. One that never does, because its thread was cancelled in it, delays the FIN until both directions are back on TCP. */
	if (atomic_load(&s->dead) && !s->tx.closing && atomic_load(&s->fd) >= 0 && !atomic_load(&s->plain_tx))
		stream_tx_event(s, CUT_EV_CLOSE, 0, 0);
	if (s->tx.closing && cut_tx_on_ring(&s->tx)) {
		arena_want_room(&s->rtx);
		ring_tx_refresh(&s->rtx);
		stream_tx_event(s, CUT_EV_CREDIT, 0, s->rtx.rd);
	}
	lock_give(&s->tx_lock);
}

#define LAST_WORDS_US 200000
#define LAST_BREATH_US 5000000

/* The peer's process is gone, or it gave the slot up. */
static uint64_t link_gone(struct stream *s, struct link *l, uint64_t now)
{
	uint64_t again = now + 1000;
	bool settled, late;

	if (!s->lost_us)	/* another thread found the link dead just now */
		s->lost_us = now;
	late = now > s->lost_us + LAST_WORDS_US &&
	       (now > s->lost_us + LAST_BREATH_US || atomic_load(&l->state) != LINK_DEAD || !process_ending(l->peer_pid));
	/* Its FIN is on its way, behind bytes that nobody reads. */
	if (late && identity_peer_closing(atomic_load(&s->fd))) {
		late = false;
		again = now + LAST_WORDS_US / 10;
	}
	if (atomic_load(&l->state) == LINK_DEAD)
		return stream_link_lost(s, late) ? UINT64_MAX : again;
	/* UNBIND while we are not at home is a reset by its close(), or the reader has not read to the end. */
	stream_lock(s);
	if (s->tx.state == CUT_TX_A)	/* our ARM crossed its UNBIND: nobody will answer */
		stream_tx_event(s, CUT_EV_HOME, 0, 0);
	settled = stream_home_both(s) || (s->tx.state == CUT_TX_T && s->rx.back_pending);
	if (!settled) {
		stream_peer_dead(s);
		settled = atomic_load(&s->peer_gone) || stream_home_both(s);
		if (!settled && late)
			stream_reset(s);
	}
	stream_unlock(s);
	return settled ? UINT64_MAX : again;
}

/* Looks at a half without its lock: what is done because of it is decided again under the lock, and if it comes too late to be
 * seen here, whoever changed it calls bg_look() after. tests/tsan.supp knows these by name. */
static uint8_t glance_tx(const struct stream *s) { return s->tx.state; }
static bool glance_closing(const struct stream *s) { return s->tx.closing; }

static uint64_t force(struct stream *s, uint64_t now, uint64_t every)
{
	bool cut;

	if (!s->next_force_us)
		s->next_force_us = now + every;
	if (now < s->next_force_us)
		return s->next_force_us;
	s->next_force_us = now + every;
	stream_lock(s);
	cut = !stream_home_both(s);
	stream_unlock(s);
	if (cut && !glance_closing(s)) {
		stat_row_reason(s->row, REASON_FORCED);
		stream_ask_home(s);
	}
	return s->next_force_us;
}

#define POLLER_US 100000

/* Who waits by reading again and again is watched as long as he does; it keeps a CPU busy anyway. */
static uint64_t watch_poller(struct stream *s, uint64_t now)
{
	uint32_t asked;
	bool polls;

	lock_take(&s->rx_lock);
	asked = s->asked;
	polls = s->polls && !atomic_load(&s->waits_seen);
	lock_give(&s->rx_lock);
	if (!polls)
		return UINT64_MAX;
	if (asked != s->asked_seen || !s->asked_due_us) {
		s->asked_seen = asked;
		s->asked_due_us = now + POLLER_US;
	} else if (now >= s->asked_due_us) {
		if (stream_poller_gone(s)) {
			s->asked_due_us = 0;
			return UINT64_MAX;
		}
		s->asked_due_us = now + POLLER_US;
	}
	return s->asked_due_us;
}

#define END_US 5000		/* twice that, then four times, to 0.6 s: perhaps nobody makes room for them */

/* Whoever waits for the end alone hears nothing of the bytes of TCP's that come before it. */
static uint64_t await_end(struct stream *s, uint64_t now)
{
	uint8_t looks;
	bool waits;

	lock_take(&s->rx_lock);
	waits = s->rx.state == CUT_RX_K && !stream_final_seen(s) && !atomic_load(&s->peer_gone);
	looks = atomic_load(&s->end_awaited);
	atomic_store(&s->end_awaited, !waits ? 0 : looks < 7 ? looks + 1 : looks);
	lock_give(&s->rx_lock);
	if (waits)
		return now + (END_US << looks);
	stream_wake(s);
	return UINT64_MAX;
}

/* A thread that is still inside a plain call on it will bring it back here. */
static void finish(struct stream *s)
{
	int fd = atomic_exchange(&s->fd, -1);

	rv_stop(s);
	if (fd >= 0 && fdtab_internal(fd))
		fd_internal_close(fd);
	stream_try_free(s, atomic_load(&s->gen));
}

/* The peer sends to a stream that the application has closed, and no call is left in the kernel that sends. */
static void late_input(struct stream *s)
{
	stream_lock(s);
	if (atomic_load(&s->fd) >= 0 && s->tx.closing && !atomic_load(&s->peer_gone) && stream_unread_input(s))
		stream_abort(s);
	stream_unlock(s);
}

/* Stays on TCP for good: whoever closes it frees it, without us. */
static void let_go(struct stream *s)
{
	stream_lock(s);
	if (stream_pinned(s) && !atomic_load(&s->link) && !atomic_load(&s->dead) && s->rv_state != RV_ASKED) {
		rv_stop(s);
		atomic_store(&s->upgrade, 0);
	}
	stream_unlock(s);
}

/* What there is to do for the stream; when to come again, UINT64_MAX: when asked; 0 = it may be gone. */
static uint64_t work(struct stream *s, uint64_t now)
{
	uint64_t due = UINT64_MAX, every = shim_tunables()->force_cut_every, later;
	struct link *l;
	bool dead, ours, leaves, lends, stay = false;

	/* A closed stream that never asked for an upgrade is freed by its closer; others by us alone. */
	stream_lock(s);
	dead = atomic_load(&s->dead);
	ours = atomic_load(&s->mode) != MODE_FREE && (!dead || atomic_load(&s->upgrade));
	l = atomic_load(&s->link);
	stream_unlock(s);
	if (!ours)
		return 0;
	if (!l) {
		if (dead && s->rv_state != RV_ASKED) {	/* a call finds nobody when it ends */
			finish(s);
			return 0;
		}
		if (atomic_load(&s->upgrade) && !dead && !stream_pinned(s) && !fork_shared(s)) {
			due = rv_work(s, now);
			stay = due != UINT64_MAX || s->rv_state == RV_ASKED || s->rv_state == RV_CALL;
			l = atomic_load(&s->link);
		} else if (!dead && atomic_load(&s->upgrade) && !stream_pinned(s)) {
			/* A process that shares it may end without a word. */
			stat_row_reason(s->row, REASON_SHARED);
			return now + 100000;
		}
		if (!l) {
			let_go(s);
			return stay ? due : 0;
		}
	}
	/* The peer's process is gone, or it gave the slot up while bytes may be under way: a reset. */
	if (atomic_load(&l->state) == LINK_DEAD || s->unbind_got)
		due = earlier(due, link_gone(s, l, now));
	if (stream_try_cut(s))
		due = earlier(due, now + 1000);
	lock_take(&s->tx_lock);
	if (s->tx.state == CUT_TX_R && stream_resend(s))
		due = earlier(due, now + 500);
	lock_give(&s->tx_lock);
	watch_close(s);
	if (dead)		/* after the FIN that watch_close may have sent */
		late_input(s);
	if (atomic_load(&s->ring_full))
		due = earlier(due, watch_full(s, now));
	if (glance_tx(s) == CUT_TX_T && !dead && atomic_load(&l->out_waiting))
		due = earlier(due, now + 5000);
	if (glance_tx(s) == CUT_TX_T && s->next_earn_us > now)
		due = earlier(due, s->next_earn_us);
	if (!dead && atomic_load(&s->nonblock) && !atomic_load(&s->waits_seen))
		due = earlier(due, watch_poller(s, now));
	if (atomic_load(&s->end_awaited))
		due = earlier(due, await_end(s, now));
	if (atomic_load(&s->direct_watched))
		due = earlier(due, direct_watch(s, now));
	if (every && !dead && atomic_load(&l->state) != LINK_DEAD)
		due = earlier(due, force(s, now, every));
	/* Only from home, also when the link is dead: until close() the application may look at the rings. Never after a
	 * reset, whose error may still be ours to tell. */
	lends = (dead || s->unbind_got || stream_pinned(s) || l->path_told) && device_lends(s, now);
	if (lends)
		due = earlier(due, now + 2000);
	leaves = !lends && !dead && (s->unbind_got || stream_pinned(s) || l->path_told) && stream_home_both(s) && !atomic_load(&s->peer_gone);
	/* A device that is to go is not kept open for it, and what is pinned the kernel alone answers for. */
	if (leaves && !l->path_told && !stream_pinned(s) && (later = stream_end_under_way(s))) {
		leaves = false;
		due = earlier(due, now + later);
	}
	if (leaves) {
		bool again = (s->unbind_got || l->path_told) && !stream_pinned(s), path_died = l->path_told;

		rv_unbind(s);
		stream_lock(s);
		/* Perhaps a forked child of the peer goes on with it. From here a close frees the stream itself. */
		if (again && !atomic_load(&s->link) && !atomic_load(&s->dead) && !atomic_load(&s->err)) {
			s->rv_state = RV_NONE;
			s->rv_due_us = s->rv_end_us = 0;
			s->seen_bytes = s->seen_rounds = 0;
			s->unbind_got = s->unbind_sent = 0;
			s->lost_us = 0;
			s->lost_told = 0;
			atomic_store(&s->upgrade, 0);
			atomic_store(&s->mode, MODE_NEW);
			/* Mostly its end is near, as the peer's has come: it did leave TCP, and is none of those that have not earned that. */
			stat_row_reason(s->row, path_died ? REASON_PATH_DEAD : REASON_NONE);
			if (path_died) {	/* it has earned; the path may be back in a while */
				s->rv_lost += s->rv_lost < 6;
				s->rv_due_us = now + (shim_tunables()->rdma_retry << (s->rv_lost - 1));
				atomic_store(&s->upgrade, 1);
				due = s->rv_due_us;
			}
		}
		stream_unlock(s);
	}
	if (dead || stream_pinned(s) || s->unbind_got) {	/* an ARM that came after */
		stream_lock(s);
		stream_decline(s);
		stream_unlock(s);
	}
	if (dead && !lends && (stream_home_both(s) || atomic_load(&s->peer_gone) || atomic_load(&l->state) == LINK_DEAD)) {
		rv_unbind(s);
		if (!atomic_load(&s->link)) {
			finish(s);
			return 0;
		}
	}
	stay = due != UINT64_MAX || dead || glance_closing(s) || glance_tx(s) == CUT_TX_R;
	if (!stay)
		let_go(s);
	return stay ? due : 0;
}

static void watch_add(struct stream *s)
{
	due_take(&dues, &s->due);
	if (s->on_watch)
		return;
	s->on_watch = 1;
	s->rv_next = watch;
	watch = s;
}

/* What comes for it next may come without a bg_look(). */
static bool restless(struct stream *s)
{
	return atomic_load(&s->dead) || glance_closing(s) || glance_tx(s) == CUT_TX_R;
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
		d = work(s, now);
		if (d && (restless(s) || (d != UINT64_MAX && !due_put(&dues, &s->due, d)))) {
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
	for (struct stream *s = watch; s; s = s->rv_next) {
		if (!glance_closing(s) || atomic_load(&s->mode) == MODE_FREE)
			continue;
		lock_take(&s->tx_lock);
		if (s->tx.closing && cut_tx_on_ring(&s->tx)) {
			struct link *l = atomic_load(&s->link);

			if (l->rc) {	/* our bell alone does not arm it */
				atomic_store(&l->bg_waits, true);
				rc_arm(l->rc);
				rc_poll(l->rc);
			}
			ring_tx_refresh(&s->rtx);
			any |= s->rtx.rd == s->rtx.wr;
		}
		lock_give(&s->tx_lock);
	}
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
		bool was_up = atomic_load(&links[i].state) == LINK_UP;

		due = earlier(due, link_net_look(&links[i]));
		link_net_work(&links[i]);
		if (atomic_load(&links[i].state) == LINK_UP && atomic_load(&links[i].out_waiting)) {
			link_flush(&links[i]);
			due = earlier(due, now_us() + 1000);
		} else if (atomic_load(&links[i].state) == LINK_HELLO) {
			uint64_t end = links[i].since_us + (links[i].net ? 6000000 : 2000000);

			due = earlier(due, end);
			if (now_us() >= end) {	/* a meeting point where nobody answers */
				link_kill(&links[i], REASON_NO_PEER_SHIM);
				rv_link_ready(i);
			}
		} else if (atomic_load(&links[i].state) == LINK_UP && !atomic_load(&links[i].proven)) {
			/* Whoever knocked has shown no end of a connection of ours. */
			if (now_us() - links[i].since_us > 3000000)
				link_kill(&links[i], REASON_IDENTITY);
			else
				due = earlier(due, links[i].since_us + 3100000);
		}
		if (was_up && atomic_load(&links[i].state) == LINK_DEAD)
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
	me = true;
	watch_begin(now_us());
	look_at_policy(now_us());
	sys(SYS_prctl, 15 /* PR_SET_NAME */, "rdmashim", 0, 0, 0);
	for (;;) {
		uint64_t due = round_of_work(), now;
		struct timespec t, *tp = NULL;
		long n;

		due = earlier(due, flush_links());
		due = earlier(due, rv_pending_expire(now_us()));
		due = earlier(due, net_expire(now_us()));
		fork_check_requests();
		copy_start();
		if (fork_requests_open())
			due = earlier(due, now_us() + 500);
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
		n = sys(SYS_epoll_pwait2, ep, ev, 64, tp, NULL, 0);
		if (n == -ENOSYS)
			n = sys(SYS_epoll_pwait, ep, ev, 64, tp ? (int)(t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1) : -1, NULL, 0);
		bell_disarm(b);
		for (long i = 0; i < n; i++)
			one_event(ev[i].data.u64);
		if ((atomic_load(&away) || (!n && idle)) && may_leave())
			break;
	}
	atomic_store(&farewells, 0);
	atomic_store(&bg_left, true);
	return NULL;
}

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

static int start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int r = make_epoll();

	if (r)
		return r;
	atomic_store(&bg_left, false);
	if (&__libc_single_threaded && __libc_single_threaded)
		atomic_store(&alone, true);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attr, run, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

int bg_start(void)
{
	int r = atomic_load(&running);

	if (r)
		return r > 0 ? 0 : r;
	lock_take(&start_lock);
	r = atomic_load(&running);
	if (!r) {
		int saved = errno;

		r = start();
		errno = saved;
		atomic_store(&running, !r ? 1 : r == -EMFILE ? 0 : r);	/* the limit may be raised: the next stream tries again */
		if (!r)
			atomic_store(&shim_active, true);
	}
	lock_give(&start_lock);
	return r < 0 ? r : 0;
}

void bg_after_fork(void)
{
	copy_after_fork();
	atomic_store(&away, false);
	atomic_store(&start_lock.v, 0);
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
