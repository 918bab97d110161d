/*
 * ready_epoll.c - epoll_wait over streams.
 *
 * An instance without armed streams waits in the kernel and only pays for a counter. An instance
 * with armed streams runs the active loop: drain the links' dirty bits, walk the ready list, look
 * into the kernel now and then, spin a little, sleep in the kernel with the instance's bell armed.
 *
 * Sleepers share one bell, which wakes one of them. A thread that leaves while others sleep arms it
 * again, and rings it if there is more to report, as the kernel does for a level-triggered ready
 * list.
 *
 * Locks: stream.reg.lock, epoll.lock; no lock while sleeping or while a stream is told something.
 */
#include "libc/libc.h"
#include "link/link.h"
#include "poll/ready_wait.h"
#include "base/signals.h"

#include <pthread.h>

#define AGAIN (-0x10000)	/* nothing yet, time left: no errno */

/*
 * Which registrations are parked is to be known for the moment at which the kernel answers: when
 * their events are looked through another thread may have closed the descriptor, and an event
 * that nobody is known to have asked for would be told. *ret_parked: some are of parked ones.
 */
static long look(struct epoll *e, int epfd, struct epoll_event *ev, int max, bool *ret_parked)
{
	long r;

	*ret_parked = false;
	if (!atomic_load_explicit(&e->parked, memory_order_relaxed))
		return sys(SYS_epoll_pwait, epfd, ev, max, 0, NULL, 8);
	lock_take(&e->lock);
	r = sys(SYS_epoll_pwait, epfd, ev, max, 0, NULL, 8);
	for (long i = 0; i < r; i++) {
		bool many;
		struct epitem *it = item_by_data(e, ev[i].data.u64, &many);

		if (!it || !it->parked || many)
			continue;
		ev[i].events |= OF_PARKED;
		*ret_parked = true;
	}
	lock_give(&e->lock);
	return r;
}

static bool look_due(struct epoll *e, uint64_t now)
{
	return now - atomic_load_explicit(&e->looked_ns, memory_order_relaxed) >= READY_LOOK_NS;
}

/*
 * What the kernel must be asked about though it was asked just now: what it had to tell then may
 * still hold, and what this thread has done or seen since, by calls of the kernel alone, may be
 * an event by now.
 */
static __thread struct {
	const struct epoll *e;
	uint32_t calls;
	bool told;
} last_look __attribute__((tls_model("initial-exec")));

static bool knows_more(const struct epoll *e)
{
	return last_look.e != e || last_look.calls != fdtab_kernel_calls || last_look.told;
}

/* The kernel has been asked, and answered with r events; the bell is none. */
static void looked(struct epoll *e, uint64_t now, const struct epoll_event *ev, long r)
{
	atomic_store_explicit(&e->looked_ns, now, memory_order_relaxed);
	last_look.e = e;
	last_look.calls = fdtab_kernel_calls;
	last_look.told = r > 1 || (r == 1 && ev->data.u64 != epoll_tag(e) &&
				   ev->data.u64 != epoll_channel_tag(e));
}

/* A look into the kernel that does not wait. The bell and the channel are events, too, and may
 * have taken the only place: once each. */
static int kernel_now(struct epoll *e, int epfd, struct batch *b)
{
	int before = b->n, room = b->max - b->n, tries = 0;
	bool parked;
	long r;

	batch_remember(b);
	do {
		r = look(e, epfd, b->ev + b->n, room, &parked);
		looked(e, now_ns(), b->ev + b->n, r);
		if (r > 0)
			batch_filter(e, b, (int)r, parked);
		batch_restore(b, before, r);
	} while (r == room && room <= 2 && b->n == before && ++tries < 3);
	return r < 0 ? (int)r : 0;
}

/* Cancellation point. */
static int sleep_epoll(int epfd, struct epoll_event *ev, int max, uint64_t deadline_ns,
		       const sigset_t *mask)
{
	int saved = errno, timeout = -1, r;

	if (deadline_ns != UINT64_MAX) {
		uint64_t now = deadline_ns ? now_ns() : 0,
			 left = deadline_ns > now ? deadline_ns - now : 0;

		if (left && left < 1000000) {
			struct timespec t = { 0, (long)left };

			r = real_epoll_pwait2(epfd, ev, max, &t, mask);
			if (r >= 0 || (errno != ENOSYS && errno != EPERM))
				goto out;
		}
		left = (left + 999999) / 1000000;
		timeout = left > INT32_MAX ? INT32_MAX : (int)left;
	}
	r = mask ? real_epoll_pwait(epfd, ev, max, timeout, mask)
		 : real_epoll_wait(epfd, ev, max, timeout);
out:
	r = r < 0 ? -errno : r;
	errno = saved;
	return r;
}

/* One thread inside the kernel's wait. */
struct sleeper {
	struct epoll *e;
	uint32_t gen;
	uint64_t blocked;	/* the batch's */
	struct bell *bell;	/* of the instance when we went in: it may be closed meanwhile */
	int wake;		/* for signals_wake(): e's bell. It may wake another sleeper
				 * instead; the next signal wakes again */
};

/* What comes for one of its streams by RDMA wakes who sleeps in the instance: no other thread
 * need be woken for that. Of several links one, for the others the background thread rings.
 * e->lock held, before bell_arm(). */
static void sleep_on_channel(struct epoll *e)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.u64 = epoll_channel_tag(e) };
	uint64_t id = 0;
	int fd = wire_channel(&atomic_load(&e->direct)->link, &id);

	if (fd < 0) {
		atomic_store(&e->direct, NULL);
		return;
	}
	if (id != e->channel) {
		long r = sys(SYS_epoll_ctl, e->epfd, EPOLL_CTL_ADD, fd, &ev);

		if (r < 0 && r != -EEXIST)
			return;
		e->channel = id;
	}
	stream_sleep_on(atomic_load(&e->direct), e->bell, id);
}

/* `active`: the caller runs the active loop; if not and the instance has become active, false.
 * So it is when the instance was closed. */
static bool sleep_enter(struct sleeper *sl, struct epoll *e, uint32_t gen, bool active)
{
	bool ok;

	do {
		ready_unpark(e);
		lock_take(&e->lock);
	} while (atomic_load(&e->parked) && (lock_give(&e->lock), true));
	ok = atomic_load(&e->gen) == gen &&
	     (active || !atomic_load_explicit(&e->narmed, memory_order_relaxed));
	if (ok) {
		sl->e = e;
		sl->gen = gen;
		sl->bell = e->bell;
		sl->wake = e->bell ? e->bell->fd : -1;
		atomic_fetch_add(&e->sleepers, 1);
		if (active && e->bell && atomic_load(&e->direct) && !e->foreign &&
		    !atomic_load(&e->watched)) {
			link_read_enter();	/* the channel's number stays its own */
			sleep_on_channel(e);
			link_read_leave();
		}
		if (active && e->bell)
			bell_sleep(e->bell);
	}
	lock_give(&e->lock);
	return ok;
}

static void sleep_leave(void *p)
{
	struct sleeper *sl = p;
	struct epoll *e = sl->e;

	lock_take(&e->lock);
	if (sl->gen == atomic_load(&e->gen) && atomic_load(&e->sleepers) &&
	    atomic_fetch_sub(&e->sleepers, 1) == 1 && e->bell && !atomic_load(&e->watched))
		bell_disarm(e->bell);
	lock_give(&e->lock);
}

/* The bell has woken one thread, or this thread took what would have: see that the others are
 * not forgotten. */
static void hand_off(struct epoll *e)
{
	uint64_t ring = 0;

	if (!atomic_load(&e->sleepers))
		return;
	lock_take(&e->lock);
	if (atomic_load(&e->sleepers) && e->bell) {
		bell_arm(e->bell);
		ring = bell_bit(e->bell);
	}
	lock_give(&e->lock);
	if (!ring)
		return;
	link_read_enter();
	links_drain(NULL);
	link_read_leave();
	if (atomic_load(&e->nready))
		bell_ring(ring);
}

static void cancelled(void *p)
{
	struct sleeper *sl = p;

	sleep_leave(sl);
	hand_off(sl->e);
	if (atomic_load(&sl->e->watched))
		ready_settle(sl->e, sl->gen);
	signals_unblock(sl->blocked);
}

static __attribute__((noinline)) int sleep_in(struct sleeper *sl, int epfd, struct batch *b,
					      uint64_t deadline_ns, const sigset_t *mask)
{
	int r;

	sl->blocked = b->blocked;
	pthread_cleanup_push(cancelled, sl);
	r = sleep_epoll(epfd, b->ev + b->n, b->max - b->n, deadline_ns, mask);
	pthread_cleanup_pop(0);
	return r;
}

/* The end of a sleep in an instance that others are in. */
static uint64_t outer_until(struct epoll *e, uint64_t deadline_ns)
{
	uint64_t slice = has_inner(e) ? ready_slice() : UINT64_MAX;
	uint64_t end = slice < UINT64_MAX ? now_ns() + slice : UINT64_MAX;

	return end < deadline_ns ? end : deadline_ns;
}

/* As sleep_in, and tells the spinner how long it took. */
static int sleep_timed(struct sleeper *sl, int epfd, struct batch *b, uint64_t deadline_ns,
		       const sigset_t *mask)
{
	uint64_t t0 = now_ns(), t1;
	int r;

	if (sl->bell)
		deadline_ns = bell_until(sl->bell, t0, deadline_ns);
	deadline_ns = outer_until(sl->e, deadline_ns);
	r = sleep_in(sl, epfd, b, deadline_ns, mask);
	t1 = now_ns();
	looked(sl->e, t1, b->ev + b->n, r);
	if (!mask && atomic_load_explicit(&sl->e->ncut, memory_order_relaxed))
		spin_slept(&sl->e->hit_rate, t1 - t0,
			   atomic_load_explicit(&sl->e->direct, memory_order_relaxed) != NULL);
	return r;
}

static bool expired(uint64_t deadline_ns)
{
	return deadline_ns != UINT64_MAX && (!deadline_ns || now_ns() >= deadline_ns);
}

/* No stream of the instance may be cut: the kernel answers. */
static int wait_plain(struct epoll *e, int epfd, struct batch *b, uint64_t deadline_ns,
		      const sigset_t *mask, uint32_t mark)
{
	struct sleeper sl;
	int r;

	batch_remember(b);
	if (!deadline_ns) {
		r = sleep_epoll(epfd, b->ev, b->max, 0, mask);
	} else {
		if (!sleep_enter(&sl, e, b->gen, false))
			return AGAIN;
		r = signals_since(mark) ? -EINTR :
					  sleep_in(&sl, epfd, b, outer_until(e, deadline_ns), mask);
		sleep_leave(&sl);
	}
	if (r > 0) {
		batch_filter(e, b, r, false);
		batch_restore(b, 0, r);
		hand_off(e);
		b->dropped += (uint32_t)r;
		if (b->n)
			return b->n;
		/* There may have been no place for others, which come next. */
		if (r == b->max && b->dropped <= __atomic_load_n(&e->nitems, __ATOMIC_RELAXED))
			return AGAIN;
		r = 0;
	}
	return r ? r : expired(deadline_ns) ? 0 : AGAIN;
}

static void spin(struct epoll *e, int epfd, struct batch *b, uint64_t deadline_ns)
{
	struct spin sp;

	if (!atomic_load_explicit(&e->ncut, memory_order_relaxed) ||
	    !spin_begin(&sp, &e->hit_rate,
			atomic_load_explicit(&e->direct, memory_order_relaxed) != NULL))
		return;
	do {
		uint64_t now;

		batch_own(e, b, b->max);
		if (b->n)
			break;
		now = now_ns();
		if (now >= deadline_ns)
			break;
		if (look_due(e, now) && kernel_now(e, epfd, b))
			break;
	} while (!b->n && spin_again(&sp));
	spin_end(&e->hit_rate, b->n > 0);
}

/* How much of the batch the fast paths may fill before the kernel had its turn. */
static int own_share(struct epoll *e, const struct batch *b, bool due)
{
	if (!due)
		return b->max;
	if (b->max == 1)	/* take turns */
		return atomic_load_explicit(&e->calls, memory_order_relaxed) & 1;
	return b->max / 2;
}

/* A handler that ran since `mark` ends it. */
static int wait_active(struct epoll *e, int epfd, struct batch *b, uint64_t deadline_ns,
		       const sigset_t *mask, uint32_t mark)
{
	bool due = knows_more(e) || look_due(e, now_ns()), passed_over;
	struct sleeper sl;
	int r = 0, share = own_share(e, b, due);

	batch_own(e, b, share);
	passed_over = !share && atomic_load_explicit(&e->nready, memory_order_relaxed);
	if (b->n ? due && b->n < b->max : !deadline_ns || (due && b->max == 1)) {
		r = kernel_now(e, epfd, b);
		batch_own(e, b, b->max);
		/* A rewind takes bytes from the fast path to the kernel, so who looks there last
		 * misses none. */
		if (passed_over && !b->n && !r)
			r = kernel_now(e, epfd, b);
	}
	if (b->n || r < 0 || !deadline_ns)
		return b->n ? b->n : r;
	if (!mask) {
		spin(e, epfd, b, deadline_ns);
		if (b->n)
			return b->n;
	}
	if (!sleep_enter(&sl, e, b->gen, true))
		return AGAIN;
	signals_wake(sl.wake);
	batch_own(e, b, b->max);
	if (!b->n) {
		batch_remember(b);
		r = signals_since(mark) ? -EINTR : sleep_timed(&sl, epfd, b, deadline_ns, mask);
	}
	signals_wake(-1);
	sleep_leave(&sl);
	if (r > 0) {
		batch_filter(e, b, r, false);
		batch_restore(b, 0, r);
		batch_own(e, b, b->max);
	}
	if (b->n || r < 0)
		return b->n ? b->n : r;
	return expired(deadline_ns) ? 0 : AGAIN;
}

/* The instance was closed while we slept in it: in the kernel it lives on, without its sockets,
 * until we leave. */
static int wait_closed(uint64_t deadline_ns, const sigset_t *mask)
{
	uint64_t now = now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
	struct timespec t = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
	int saved = errno, r = real_ppoll(NULL, 0, deadline_ns == UINT64_MAX ? NULL : &t, mask);

	r = r < 0 ? -errno : r;
	errno = saved;
	return r;
}

/* What waits for the instance is told again, and what this call waits for may have been missed. */
static void after_wait(struct epoll *e, struct batch *b, int r)
{
	if (b->heard && atomic_load_explicit(&e->watched, memory_order_relaxed))
		ready_settle(e, b->gen);
	b->heard = false;
	if (r == AGAIN && has_inner(e))
		ready_refresh(e);
}

int ready_epoll_wait(struct epoll *e, int epfd, struct epoll_event *ev, int max,
		     uint64_t deadline_ns, const sigset_t *mask)
{
	struct batch b = { .ev = ev, .max = max };
	uint32_t mark, gen = b.gen = atomic_load(&e->gen);
	int r;

	if (max <= 0 || !ev)
		/* the kernel knows which error this is */
		return sleep_epoll(epfd, ev, max, deadline_ns, mask);
	if (fdtab_epoll(epfd) != e)	/* it was closed before `gen` was looked at */
		return -EBADF;
	if (atomic_load_explicit(&e->inherited, memory_order_relaxed))
		ready_inherited_all(e);
	b.id = atomic_fetch_add(&e->calls, 1) + 1;
	b.blocked = mask && deadline_ns ? signals_block(mask) : 0;
	mark = signals_mark();
	do {
		ready_unpark_aloud(e);
		if (atomic_load_explicit(&e->narmed, memory_order_acquire)) {
			r = wait_active(e, epfd, &b, deadline_ns, mask, mark);
			hand_off(e);
		} else {
			r = wait_plain(e, epfd, &b, deadline_ns, mask, mark);
		}
		after_wait(e, &b, r);
	} while (r == AGAIN && gen == atomic_load(&e->gen));
	signals_unblock(b.blocked);
	if (r == AGAIN || (r == -EBADF && gen != atomic_load(&e->gen)))
		return wait_closed(deadline_ns, mask);
	return r;
}
