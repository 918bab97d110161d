/*
 * ready_epoll.c - epoll_wait over streams.
 *
 * An instance without armed streams waits in the kernel and pays for a counter. One with armed
 * streams runs the active loop: drain the links' dirty bits, walk the ready list, look into the
 * kernel now and then, spin a little, sleep in the kernel with the instance's bell armed.
 *
 * Sleepers share one bell, which wakes one of them: whoever leaves while others sleep arms it
 * again and rings if there is more to report, as the kernel does for a level-triggered ready
 * list.
 *
 * Locks: stream.reg.lock, epoll.lock; no lock while sleeping or while a stream is told something.
 */
#include "libc/libc.h"
#include "link/link.h"
#include "poll/ready_int.h"
#include "base/signals.h"

#include <pthread.h>

#define AGAIN (-0x10000)	/* nothing yet, time left: no errno */

/* events of ours in one answer of the kernel: the bell, the channel, one for a stream that says
 * nothing */
#define BELLS_MOST 3

/* One ready_epoll_wait() call. */
struct batch {
	struct epoll_event *ev;
	int n, max;
	uint64_t id;		/* unique in the instance, finds an item's place in ev */
	uint32_t gen;		/* of the instance: if it is another one's now, none of its items
				 * is this call's */
	uint64_t blocked;	/* of signals_block() */
	bool heard;		/* the kernel has told of the bell */
	struct epoll_event was[BELLS_MOST];
};

/* ---- reporting ---- */

/* e->lock held. */
static void emit(struct epitem *it, struct batch *b, uint32_t bits)
{
	if (it->call_id == b->id) {
		b->ev[it->call_idx].events |= bits;	/* never two events of one fd in a batch */
	} else {
		it->call_id = b->id;
		it->call_idx = b->n;
		b->ev[b->n].events = bits;
		b->ev[b->n].data.u64 = it->data;
		b->n++;
	}
	if (it->events & EPOLLONESHOT) {
		it->disabled = true;
		item_unqueue(it);
	} else if (it->cut && !(it->events & EPOLLET)) {
		item_queue(it);		/* level-triggered: looked at again next time */
	}
}

/* Reports from the ready list until the batch holds `cap`; inside link_read. */
static void walk(struct epoll *e, struct batch *b, int cap)
{
	uint32_t left;

	lock_take(&e->lock);
	left = atomic_load(&e->gen) == b->gen
		       ? atomic_load_explicit(&e->nready, memory_order_relaxed)
		       : 0;
	/* What is out of the list for a moment is not gone: own() looks at the count without the
	 * lock. */
	atomic_fetch_add(&e->nready, 1);
	for (; left && b->n < cap; left--) {
		struct epitem *it = e->head;
		struct stream_view v;
		uint32_t bits;

		if (!it)
			break;
		item_unqueue(it);
		v = stream_view(it->s);
		item_set_cut(it, v.cut);
		if (v.cut && stream_sought(it->s)->wire)
			atomic_store_explicit(&e->direct, it->s, memory_order_relaxed);
		bits = item_own_bits(it, &v) | item_arrival_behind(it, &v);
		if (bits && (v.behind || !item_said_before(it, &v, bits))) {
			emit(it, b, bits);
			if (!(it->events & (EPOLLET | EPOLLONESHOT)))
				item_queue(it);		/* a level, also one that is only under
							 * way through the kernel */
		}
		item_resync(it, &v);
		item_maybe_disarm(it, &v);
	}
	atomic_fetch_sub(&e->nready, 1);
	lock_give(&e->lock);
}

/* What the fast paths have to say. */
static void own(struct epoll *e, struct batch *b, int cap)
{
	link_read_enter();
	links_drain();
	if (b->n < cap && atomic_load_explicit(&e->nready, memory_order_acquire))
		walk(e, b, cap);
	link_read_leave();
}

/* Several registrations share the data (another was added to that of a cut stream): nobody can
 * say whose event it is. Returns the cut stream, which may have to be told. */
static struct stream *ambiguous(struct epitem *it, struct epoll_event *in)
{
	uint32_t asked = EV_ALWAYS;
	uint64_t data = in->data.u64;
	struct stream *s = NULL;

	for (; it; it = it->data_next) {
		if (it->data != data)
			continue;
		asked |= it->events;
		if (it->cut)
			s = it->s;
	}
	in->events &= asked;
	return s;
}

/* What there is to say of an item now, by the kernel and by the fast path. */
static uint32_t bits_now(struct epitem *it)
{
	struct stream_view v;

	if (!it->armed)
		return item_kernel_bits(it, it->events & 0xffff);
	v = stream_view(it->s);
	item_set_cut(it, v.cut);
	if (!v.cut)
		return item_own_bits(it, &v) | item_kernel_bits(it, it->events & 0xffff);
	return item_own_bits(it, &v) |
	       (item_kernel_bits(it, it->events & EV_INOUT & ev_wide(v.kern)) & it->events);
}

/*
 * An ambiguous event, where all that it may be of are level-triggered: it stands for one of them
 * that has something to say and is not in the batch yet. False: there are others among them.
 */
static bool one_of_many(struct epitem *first, struct batch *b)
{
	uint32_t bits;

	for (struct epitem *it = first; it; it = it->data_next)
		if (it->data == first->data && it->events & (EPOLLET | EPOLLONESHOT))
			return false;
	for (struct epitem *it = first; it; it = it->data_next) {
		if (it->data != first->data || it->call_id == b->id ||
		    !(bits = bits_now(it) & (it->events | EV_ALWAYS)))
			continue;
		emit(it, b, bits);
		break;
	}
	return true;
}

/*
 * While a stream is cut the kernel has no ONESHOT, and tells each of several threads of a level;
 * nor does it know what we have fired. So a thread may come with an event that another has had,
 * and has asked for anew, meanwhile: what no longer holds is none. An edge comes once.
 */
static bool told_again(struct epitem *it, uint32_t bits)
{
	if ((it->events & (EPOLLONESHOT | EPOLLET)) != EPOLLONESHOT || it->orphan ||
	    bits & bits_now(it))
		return false;
	if (it->kern_events & EPOLLONESHOT)	/* the kernel takes it for fired */
		item_tell_kernel(it, it->kern_events);
	return true;
}

/* Of an event: its registration was parked when the kernel was asked. No bit of the kernel's. */
#define OF_PARKED (1u << 20)

static void append(struct batch *b, const struct epoll_event *in)
{
	b->ev[b->n++] = *in;
}

/* An event of an armed item; e->lock held, inside link_read. Returns what the stream must be
 * told first, 0 = done. */
static uint32_t filter_armed(struct epitem *it, struct batch *b, const struct epoll_event *in,
			     bool told)
{
	struct stream_view v = stream_view(it->s);
	uint32_t fallback = in->events & EV_HOME, bits;

	item_set_cut(it, v.cut);
	if (v.cut) {
		if (fallback && !told) {
			it->home_seen |= fallback;
			return fallback;
		}
		bits = in->events & it->events & ~EV_HOME & ~(EV_INOUT & ~ev_wide(v.kern));
		/* What a level holds is where the stream has gone since the kernel looked, and
		 * nobody may have been told yet. */
		if (bits || fallback || !(it->events & EPOLLET))
			bits |= item_own_bits(it, &v);
		if (it->disabled)
			bits = 0;
	} else {
		bits = in->events;
		/* Back from the path, and what it asks the kernel is still from there: only a
		 * part of the answer. */
		if (it->events & ~it->kern_events & (EV_INOUT | EPOLLRDHUP))
			bits |= item_kernel_bits(it, it->events & 0xffff);
		if (!(it->events & EPOLLET))
			bits |= item_own_bits(it, &v);
		bits &= it->events | EV_ALWAYS;
		/* Fired by us while it was cut: the kernel does not know, or its event was on
		 * the way to this thread. */
		if (it->disabled)
			bits = 0;
	}
	if (bits && item_said_before(it, &v, bits))
		bits = 0;
	else if (bits && !told_again(it, bits))
		emit(it, b, bits);
	else if (v.cut && fallback)
		item_queue(it);
	item_resync(it, &v);
	return 0;
}

static bool has_inner(const struct epoll *e)
{
	return atomic_load_explicit(&e->ninner, memory_order_relaxed);
}

/* It is an instance's event, in which there is nothing: it has not happened. */
static bool inner_quiet(struct epoll *e, uint32_t gen, uint64_t data)
{
	struct epoll *inner = NULL;
	struct epitem *it;
	uint32_t inner_gen = 0;
	bool many;

	lock_take(&e->lock);
	it = item_by_data(e, data, &many);
	if (it && !many && atomic_load(&e->gen) == gen) {
		inner = it->inner;
		inner_gen = it->inner_gen;
	}
	lock_give(&e->lock);
	if (!inner || ready_proved(inner, inner_gen))
		return false;
	lock_take(&e->lock);
	it = item_by_data(e, data, &many);
	if (it && !many && atomic_load(&e->gen) == gen && it->inner == inner &&
	    it->events & EPOLLONESHOT && !it->disabled)
		item_tell_kernel(it, it->events);	/* the kernel takes it for fired */
	lock_give(&e->lock);
	return true;
}

/* Reports one kernel event, or drops it, or reports what it means. */
static void filter_one(struct epoll *e, struct batch *b, struct epoll_event in)
{
	bool told = false, parked = in.events & OF_PARKED;
	uint32_t tell = 0;

	in.events &= ~OF_PARKED;
	if (in.data.u64 == epoll_tag(e)) {
		b->heard = true;	/* the bell */
		return;
	}
	if (in.data.u64 == epoll_channel_tag(e)) {
		wires_woken();	/* an edge, which nobody else sees */
		return;
	}
	if (!parked && !atomic_load_explicit(&e->narmed, memory_order_relaxed) &&
	    !atomic_load_explicit(&e->noneshot, memory_order_relaxed) && !has_inner(e)) {
		append(b, &in);
		return;
	}
	if (has_inner(e) && inner_quiet(e, b->gen, in.data.u64))
		return;
	do {
		struct stream *s = NULL;
		struct epitem *it;
		bool many;

		if (tell)
			told = true;
		tell = 0;
		link_read_enter();
		lock_take(&e->lock);
		it = item_by_data(e, in.data.u64, &many);
		if (atomic_load(&e->gen) != b->gen) {
			it = NULL;	/* closed: nobody waits for it */
		} else if (parked && (many || !it || !it->armed)) {
			;		/* gone since: nobody's. Or added again: the kernel has
					 * been asked anew then */
		} else if (many) {
			if (!told)
				tell = in.events & EV_HOME;
			s = ambiguous(it, &in);
			if (!s)
				tell = 0;
			if (!tell && in.events && !one_of_many(it, b))
				append(b, &in);
		} else if (it && it->armed) {
			s = it->s;
			tell = filter_armed(it, b, &in, told);
		} else if (!it || !it->parked) {
			if (it && (it->events & EPOLLONESHOT))
				it->disabled = true;
			append(b, &in);
		}
		lock_give(&e->lock);
		link_read_leave();
		if (tell)
			stream_home_event(s, tell);
	} while (tell);
}

/* k events that the kernel wrote at b->ev[b->n]. Reports take their places: never more than
 * there were. `parked`: some are of such registrations. */
static void filter(struct epoll *e, struct batch *b, int k, bool parked)
{
	const struct epoll_event *from = b->ev + b->n;

	if (!parked && !atomic_load_explicit(&e->filter, memory_order_acquire)) {
		if (atomic_load(&e->gen) == b->gen)	/* else the closed one had a bell,
							 * perhaps, and this is its event */
			b->n += k;
		return;
	}
	for (int i = 0; i < k; i++)
		filter_one(e, b, from[i]);
}

/* Where fewer events are told than the kernel wrote the array keeps what it had, as the kernel
 * leaves it. */
static void remember(struct batch *b)
{
	for (int i = b->n, n = 0; i < b->max && n < BELLS_MOST; i++, n++)
		b->was[n] = b->ev[i];
}

/* k events came, at `at`, and were filtered. */
static void restore(struct batch *b, int at, long k)
{
	for (int i = b->n; i < at + k && i < at + BELLS_MOST; i++)
		b->ev[i] = b->was[i - at];
}

/* ---- waiting ---- */

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

	remember(b);
	do {
		r = look(e, epfd, b->ev + b->n, room, &parked);
		looked(e, now_ns(), b->ev + b->n, r);
		if (r > 0)
			filter(e, b, (int)r, parked);
		restore(b, before, r);
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
	links_drain();
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

	remember(b);
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
		filter(e, b, r, false);
		restore(b, 0, r);
		hand_off(e);
		r = b->n ? b->n : AGAIN;
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

		own(e, b, b->max);
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

	own(e, b, share);
	passed_over = !share && atomic_load_explicit(&e->nready, memory_order_relaxed);
	if (b->n ? due && b->n < b->max : !deadline_ns || (due && b->max == 1)) {
		r = kernel_now(e, epfd, b);
		own(e, b, b->max);
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
	own(e, b, b->max);
	if (!b->n) {
		remember(b);
		r = signals_since(mark) ? -EINTR : sleep_timed(&sl, epfd, b, deadline_ns, mask);
	}
	signals_wake(-1);
	sleep_leave(&sl);
	if (r > 0) {
		filter(e, b, r, false);
		restore(b, 0, r);
		own(e, b, b->max);
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
