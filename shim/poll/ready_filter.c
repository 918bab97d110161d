/*
 * ready_filter.c - what epoll_wait reports: the ready list, and the kernel's events. While a stream
 * is cut these are passed on, dropped, or mean something else.
 *
 * Locks: epoll.lock, inside link_read; none while a stream is told something.
 */
#include "conn/stream_learn.h"
#include "link/link.h"
#include "poll/ready_wait.h"

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
	/* What is out of the list for a moment is not gone: batch_own() looks at the count
	 * without the lock. */
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

void batch_own(struct epoll *e, struct batch *b, int cap)
{
	link_read_enter();
	links_drain(NULL);
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
 * An ambiguous event stands for one of those that it may be of that has something to say, and is
 * not in the batch yet if there is one. `edges`: it must be what the event says.
 */
static void give_to_one(struct epitem *first, struct batch *b, const struct epoll_event *in,
			bool edges)
{
	struct epitem *again = NULL;
	uint32_t bits;

	for (struct epitem *it = first; it; it = it->data_next) {
		if (it->data != first->data || it->disabled || (!edges && it->call_id == b->id))
			continue;
		bits = bits_now(it) & (edges ? in->events : it->events | EV_ALWAYS);
		if (!bits)
			continue;
		if (it->call_id != b->id) {
			emit(it, b, edges ? in->events : bits);
			return;
		}
		again = it;
	}
	if (again)
		emit(again, b, in->events);
}

/* The kernel has disabled one of them with its event, and nobody knows which. If one was told it is
 * disabled here, too; the others are not. */
static void fire_again(struct epitem *first)
{
	for (struct epitem *it = first; it; it = it->data_next)
		if (it->data == first->data && it->kern_events & EPOLLONESHOT && !it->orphan &&
		    !it->disabled)
			item_tell_kernel(it, it->kern_events);
}

/* False: there are edges among them, and it is told as it is. Not where instances are: what the
 * kernel says of those has been proved just now, for all of them, and may be what one said that
 * has nothing. */
static bool one_of_many(struct epitem *first, struct batch *b, const struct epoll_event *in)
{
	bool edges = false, inner = false;

	for (struct epitem *it = first; it; it = it->data_next)
		if (it->data == first->data) {
			edges |= (it->events & (EPOLLET | EPOLLONESHOT)) != 0;
			inner |= it->inner != NULL;
		}
	if (edges && !inner)
		return false;
	give_to_one(first, b, in, edges);
	fire_again(first);
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
	if (has_inner(e) && ready_inner_quiet(e, b->gen, in.data.u64))
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
			if (!tell && in.events && !one_of_many(it, b, &in))
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

void batch_filter(struct epoll *e, struct batch *b, int k, bool parked)
{
	const struct epoll_event *from = b->ev + b->n;

	if (__builtin_expect(atomic_load_explicit(&stream_learned_any, memory_order_relaxed), 0))
		k = batch_true_errors(e, b, k);
	if (!parked && !atomic_load_explicit(&e->filter, memory_order_acquire)) {
		if (atomic_load(&e->gen) == b->gen)	/* else the closed one had a bell,
							 * perhaps, and this is its event */
			b->n += k;
		return;
	}
	for (int i = 0; i < k; i++)
		filter_one(e, b, from[i]);
}

void batch_remember(struct batch *b)
{
	for (int i = b->n, n = 0; i < b->max && n < BELLS_MOST; i++, n++)
		b->was[n] = b->ev[i];
}

void batch_restore(struct batch *b, int at, long k)
{
	for (int i = b->n; i < at + k && i < at + BELLS_MOST; i++)
		b->ev[i] = b->was[i - at];
}
