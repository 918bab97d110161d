/*
 * ready_nested.c - an instance that is waited for through its descriptor: by another instance, by
 * poll or select.
 *
 * Such an instance is *watched*. Its bell is always armed, even while nobody sleeps in the
 * instance, or it has rung and is in the kernel's ready list of the instance. So the kernel tells
 * the outer wait, at any depth, as for any descriptor: an edge for each ring, a level until
 * somebody asks. Two rules keep that true:
 *
 * - A thread that takes the bell's event out of that list, by a wait in the instance or by
 *   silencing the bell, arms the bell, looks, and rings it itself if there is something
 *   (ready_settle()).
 * - A thread that queues what the paths have to report rings an armed bell (ready_attention()).
 *
 * A bell rings for more than the application asked for, and what it rang for may have been taken
 * since. So an outer wait of ours proves the kernel's word before it passes it on (ready_proved()):
 * it finds nothing on the paths, silences and arms the bell, and finds nothing still; then the
 * kernel's word shows whether it was true. A wait in the instance itself only pays for the
 * settling, once for each ring that it hears of. tests/sim/nested.pml is the model.
 *
 * An instance that is waited for in other ways (io_uring) is *foreign*: its streams stay on TCP.
 *
 * Locks: stream.reg.lock, epoll.lock of one instance at a time.
 */
#include "base/shim.h"
#include "link/link.h"
#include "link/wire.h"
#include "poll/ready_int.h"

#include <poll.h>

/* ---- by waits of ours ---- */

struct seen {
	/* there is something; something has come since outer waits were told last */
	bool found, news;
};

/*
 * Is there something to say by the paths? Nothing is taken: what has something to say stays
 * queued, and before that one nothing has. Who has taken what is dirty holds e->taking until it is
 * queued, and does not ring for it: so he is waited for, who may be off his processor.
 */
static struct seen peek(struct epoll *e, uint32_t gen)
{
	struct seen seen = { 0 };

	link_read_enter();
	ready_looks_at = e;
	links_drain(&e->taking);
	ready_looks_at = NULL;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&e->taking.v)) {
		lock_take(&e->taking);
		lock_give(&e->taking);
	}
	lock_take(&e->lock);
	while (atomic_load(&e->gen) == gen && e->head && !seen.found) {
		struct epitem *it = e->head;
		struct stream_view v = stream_view(it->s);
		uint32_t bits;

		item_set_cut(it, v.cut);
		bits = item_own_bits(it, &v) | item_arrival_behind(it, &v);
		seen.found = bits && (v.behind || !item_said(it, &v, bits));
		if (!seen.found)
			item_unqueue(it);
		item_resync(it, &v);
		item_maybe_disarm(it, &v);
	}
	seen.news = e->news != e->news_told;
	lock_give(&e->lock);
	link_read_leave();
	return seen;
}

/* A bell shows that it has rung until it is silenced: so often that began, and so often it is done.
 * Who reads the second first, and the first last, and finds them equal, has seen all rings. */
static _Atomic uint32_t silencing, silenced;

static void silence_bell(struct bell *b)
{
	struct pollfd p = { .fd = b->fd, .events = POLLIN };
	struct timespec zero = { 0, 0 };

	if (!sys(SYS_ppoll, &p, 1, &zero, NULL, 8))
		return;
	atomic_fetch_add(&silencing, 1);
	bell_drain(b);
	atomic_fetch_add(&silenced, 1);
}

/* False: it has no bell, so no path has anything to say. */
static bool armed(struct epoll *e, uint32_t gen, bool silence)
{
	bool ok;

	lock_take(&e->lock);
	ok = atomic_load(&e->gen) == gen && e->bell;
	if (ok && silence)
		silence_bell(e->bell);
	if (ok)
		bell_arm(e->bell);
	lock_give(&e->lock);
	return ok;
}

static void ring(struct epoll *e, uint32_t gen)
{
	uint64_t bit;

	lock_take(&e->lock);
	bit = atomic_load(&e->gen) == gen && e->bell ? bell_bit(e->bell) : 0;
	lock_give(&e->lock);
	bell_ring(bit);
}

/* `always`: the kernel is to tell of what there is, also if nothing came since it was told last. */
static bool settle(struct epoll *e, uint32_t gen, bool silence, bool always)
{
	struct seen seen = { 0 };

	if (armed(e, gen, silence))
		seen = peek(e, gen);
	if (seen.found && (always || seen.news))
		ring(e, gen);
	return seen.found;
}

void ready_settle(struct epoll *e, uint32_t gen)
{
	(void)settle(e, gen, false, atomic_load(&e->level));
}

/* What the kernel says of the instance: EPOLLIN, and EPOLLPRI if it may say so because of the
 * bell. */
static uint32_t kernel_says(struct epoll *e, uint32_t gen)
{
	struct pollfd p[2] = { { .fd = -1, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	struct timespec zero = { 0, 0 };

	lock_take(&e->lock);
	if (atomic_load(&e->gen) == gen) {
		p[0].fd = e->epfd;
		p[1].fd = e->bell ? e->bell->fd : -1;
	}
	lock_give(&e->lock);
	if (sys(SYS_ppoll, p, 2, &zero, NULL, 8) < 0)
		return 0;
	return (p[0].revents & POLLIN ? EPOLLIN : 0) | (p[1].revents & POLLIN ? EPOLLPRI : 0);
}

/*
 * What the kernel has been asked for may be from before a stream changed its path, and the event
 * that would put that right in a wait inside is not taken here. True: something has changed, ask
 * again.
 */
static bool resynced(struct epoll *e, uint32_t gen)
{
	bool changed = false;

	link_read_enter();
	lock_take(&e->lock);
	for (uint32_t i = 0; atomic_load(&e->gen) == gen && i < e->nbuckets; i++)
		for (struct epitem *it = e->by_data[i]; it; it = it->data_next) {
			uint32_t was = it->kern_events;
			struct stream_view v;

			if (!it->armed)
				continue;
			v = stream_view(it->s);
			item_set_cut(it, v.cut);
			item_resync(it, &v);
			changed |= it->kern_events != was;
		}
	lock_give(&e->lock);
	link_read_leave();
	return changed;
}

#define DEPTH_MOST 5		/* the kernel's EP_MAX_NESTS, and one */
#define PROOFS_MOST 1000
#define PROOFS_ROUND 20		/* after so many without an end each descriptor is asked */

struct inner { struct epoll *e; uint32_t gen; };

/* The nth instance that is registered in it. */
static bool nth_inner(struct epoll *e, uint32_t gen, unsigned nth, struct inner *ret)
{
	struct epitem *it;

	lock_take(&e->lock);
	it = atomic_load(&e->gen) == gen ? e->inners : NULL;
	while (it && nth--)
		it = it->p_next;
	if (it)
		*ret = (struct inner){ it->inner, it->inner_gen };
	lock_give(&e->lock);
	return it != NULL;
}

/* Those inside first: a stream in one of them is waited for by that wait, too. */
static void inherited(struct epoll *e, uint32_t gen, int depth)
{
	struct inner in;

	for (unsigned i = 0; depth && nth_inner(e, gen, i, &in); i++)
		inherited(in.e, in.gen, depth - 1);
	if (atomic_load(&e->inherited))
		ready_inherited(e);
}

void ready_inherited_all(struct epoll *e) { inherited(e, atomic_load(&e->gen), DEPTH_MOST); }

static bool proved(struct epoll *e, uint32_t gen, int depth);

/* Is there something in one that is registered in it? Whether it is told there the kernel knows. */
static bool inner_proved(struct epoll *e, uint32_t gen, int depth)
{
	struct inner in;
	bool any = false;

	for (unsigned i = 0; depth && nth_inner(e, gen, i, &in); i++)
		any |= proved(in.e, in.gen, depth - 1);
	return any;
}

/* Has a bell rung, here or inside, since it was silenced? */
static bool rung(struct epoll *e, uint32_t gen, int depth)
{
	struct inner in;

	for (unsigned i = 0; depth && nth_inner(e, gen, i, &in); i++)
		if (rung(in.e, in.gen, depth - 1))
			return true;
	return kernel_says(e, gen) & EPOLLPRI;
}

/* Could the item be what makes the instance readable? Whether its edge was told already only the
 * kernel knows. e->lock held. */
static bool may_be_ready(const struct epitem *it)
{
	struct pollfd p = { .fd = it->fd, .events = (short)it->kern_events };
	struct timespec zero = { 0, 0 };

	return it->orphan || (it->s && fdtab_stream(it->fd) != it->s) ||
	       sys(SYS_ppoll, &p, 1, &zero, NULL, 8);
}

/* No descriptor is ready that was registered, here or inside: the bells alone are what the kernel
 * means. */
static bool bells_alone(struct epoll *e, uint32_t gen, int depth)
{
	struct inner in;
	bool alone;

	for (unsigned i = 0; nth_inner(e, gen, i, &in); i++)
		if (!depth || !bells_alone(in.e, in.gen, depth - 1))
			return false;
	lock_take(&e->lock);
	alone = !atomic_load(&e->shared) && !e->channel;
	for (uint32_t i = 0; alone && atomic_load(&e->gen) == gen && i < e->nbuckets; i++)
		for (struct epitem *it = e->by_data[i]; it && alone; it = it->data_next)
			alone = it->inner || !may_be_ready(it);
	lock_give(&e->lock);
	return alone;
}

/*
 * The kernel's word is believed if no bell can be what it is about: its own, or one inside, may
 * ring after it was silenced and before the kernel is asked, again and again. A bell of those in
 * which there is something does ring.
 *
 * Where bells ring all the time each descriptor is asked. After PROOFS_MOST the word is believed
 * though one that has told its edge is still ready, or others may have registered some.
 */
static bool proved(struct epoll *e, uint32_t gen, int depth)
{
	if (armed(e, gen, false) && peek(e, gen).found) {
		(void)inner_proved(e, gen, depth);
		return true;
	}
	for (int i = 0; i < PROOFS_MOST; i++) {
		bool any = inner_proved(e, gen, depth);
		uint32_t k, n;

		if (settle(e, gen, true, true))
			return true;
		n = atomic_load(&silenced);
		k = kernel_says(e, gen);
		if (!(k & EPOLLIN))
			return false;
		if (!(any ? k & EPOLLPRI : rung(e, gen, depth)) && n == atomic_load(&silencing) &&
		    !resynced(e, gen))
			return true;
		if (!any && i % PROOFS_ROUND == PROOFS_ROUND - 1 && bells_alone(e, gen, depth))
			return false;
	}
	return true;
}

/* Whoever waits is told of all that came up to now. */
static void told(struct epoll *e, uint32_t gen, int depth)
{
	struct inner in;

	for (unsigned i = 0; depth && nth_inner(e, gen, i, &in); i++)
		told(in.e, in.gen, depth - 1);
	lock_take(&e->lock);
	if (atomic_load(&e->gen) == gen)
		e->news_told = e->news;
	lock_give(&e->lock);
}

bool ready_proved(struct epoll *e, uint32_t gen)
{
	bool plain, yes;

	lock_take(&e->lock);
	plain = atomic_load(&e->gen) != gen || (!e->bell && !e->inners);
	lock_give(&e->lock);
	if (plain)
		return true;
	yes = proved(e, gen, DEPTH_MOST);
	if (yes)
		told(e, gen, DEPTH_MOST);
	return yes;
}

/* The nth instance that is registered with that data. False: there are no more, *ret_others says
 * whether anything else is. */
static bool nth_of_data(struct epoll *e, uint32_t gen, uint64_t data, int nth, struct epitem *ret,
			bool *ret_others)
{
	struct epitem *it;
	bool many;

	*ret_others = false;
	lock_take(&e->lock);
	it = atomic_load(&e->gen) == gen ? item_by_data(e, data, &many) : NULL;
	for (; it && (it->data != data || !it->inner || nth--); it = it->data_next)
		*ret_others |= it->data == data && !it->inner;
	if (it)
		*ret = *it;
	lock_give(&e->lock);
	return it != NULL;
}

/* There is nothing in the instance: if it was its event the kernel takes it for fired. */
static void not_fired(struct epoll *e, uint32_t gen, const struct epitem *was)
{
	struct epitem *it;

	lock_take(&e->lock);
	it = atomic_load(&e->gen) == gen ? item_by_fd(e, was->fd) : NULL;
	if (it && it->inner == was->inner && it->data == was->data &&
	    it->events & EPOLLONESHOT && !it->disabled)
		item_tell_kernel(it, it->events);
	lock_give(&e->lock);
}

bool ready_inner_quiet(struct epoll *e, uint32_t gen, uint64_t data)
{
	bool quiet = true, others;
	struct epitem it;
	int n = 0;

	for (; nth_of_data(e, gen, data, n, &it, &others); n++)
		if (ready_proved(it.inner, it.inner_gen))
			quiet = false;
		else
			not_fired(e, gen, &it);
	return n && quiet && !others;
}

bool ready_may_be_false(struct epoll *e)
{
	if (e->foreign)
		return false;
	return !atomic_load_explicit(&e->watched, memory_order_relaxed) ||
	       atomic_load_explicit(&e->nstreams, memory_order_relaxed) ||
		       atomic_load_explicit(&e->ninner, memory_order_relaxed);
}

uint64_t ready_slice(void)
{
	if (atomic_load_explicit(&bells_deaf, memory_order_relaxed))
		return 1000000;
	return atomic_load_explicit(&bells_mixed, memory_order_relaxed) ||
	       atomic_load_explicit(&ready_watch_shared, memory_order_relaxed) ? 100000000
		       : UINT64_MAX;
}

static void refresh(struct epoll *e, uint32_t gen, int depth)
{
	struct inner in;

	for (unsigned i = 0; depth && nth_inner(e, gen, i, &in); i++)
		refresh(in.e, in.gen, depth - 1);
	(void)settle(e, gen, false, true);
}

void ready_refresh(struct epoll *e)
{
	if (ready_slice() != UINT64_MAX)
		refresh(e, atomic_load(&e->gen), DEPTH_MOST);
}

/* What comes for a stream by RDMA would make it readable, whosever it is. e->lock held. */
static void drop_channel(struct epoll *e)
{
	if (e->channel && e->epfd >= 0)
		sys(SYS_epoll_ctl, e->epfd, EPOLL_CTL_DEL, wire_channel_of(e->channel), NULL);
	e->channel = 0;
}

void ready_watch(struct epoll *e, bool level)
{
	uint32_t gen = atomic_load(&e->gen);
	bool was;

	if (atomic_load(&e->level) && !atomic_load(&e->inherited))
		return;		/* what there is the kernel knows already */
	if (atomic_load(&e->inherited))
		ready_inherited_all(e);
	lock_take(&e->lock);
	if (atomic_load(&e->gen) != gen || e->foreign) {
		lock_give(&e->lock);
		return;
	}
	was = atomic_exchange(&e->watched, true);
	if (level)
		atomic_store(&e->level, true);
	if (atomic_load(&e->shared))
		atomic_store(&ready_watch_shared, true);
	drop_channel(e);
	lock_give(&e->lock);
	if (!was)
		ready_unpark_surely(e);
	(void)settle(e, gen, false, true);
}

/* ---- by a wait that is not ours ---- */

/* Where in the instance somebody is, who holds no lock of it meanwhile. */
struct place { uint32_t bucket, nth; };

/* The next stream that is not on TCP for good yet. */
static struct stream *next_not_tcp_only(struct epoll *e, struct place *at)
{
	struct stream *found = NULL;

	lock_take(&e->lock);
	for (; at->bucket < e->nbuckets && !found; at->bucket++, at->nth = 0) {
		struct epitem *it = e->by_data[at->bucket];

		for (uint32_t k = 0; it && k < at->nth; k++)
			it = it->data_next;
		for (; it && !found; it = it->data_next, at->nth++)
			if (it->armed && !stream_tcp_only(it->s))
				found = it->s;
		if (found)
			break;		/* the chain may hold more */
	}
	lock_give(&e->lock);
	return found;
}

/* All are asked before one is waited for; who cannot get back to TCP in time is passed over. */
static void all_fall_back(struct epoll *e)
{
	uint64_t since = now_us();
	struct place at = { 0, 0 };
	struct stream *s;

	while ((s = next_not_tcp_only(e, &at)))
		if (atomic_load(&s->link) && !atomic_load(&s->fork_cut)) {
			atomic_store(&s->fallback.going, 1);
			stream_ask_fallback(s);
		}
	for (at = (struct place){ 0, 0 }; (s = next_not_tcp_only(e, &at));)
		stream_fall_back_since(s, REASON_FOREIGN_WAIT, since);
}

void ready_foreign(struct epoll *e)
{
	struct bell *gone = NULL;

	if (atomic_load(&e->inherited))
		ready_inherited_all(e);
	lock_take(&e->lock);
	if (e->foreign) {
		lock_give(&e->lock);
		return;
	}
	e->foreign = true;
	lock_give(&e->lock);
	ready_unpark(e);
	all_fall_back(e);
	/* From now on the kernel alone must know when it is ready: the program may never wait in
	 * it before. */
	lock_take(&e->lock);
	for (uint32_t i = 0; i < e->nbuckets; i++)
		for (struct epitem *it = e->by_data[i]; it; it = it->data_next) {
			if (!it->s || !stream_tcp_only(it->s))
				continue;
			item_give_back(it);
			if (it->armed && e->bell)
				stream_bell_del(it->s, e->bell);
			item_disarm(it);
		}
	drop_channel(e);
	/* A ring that nobody waits for makes the instance readable to the outer one, and peers
	 * ring a bell that they hear of. */
	if (e->bell && e->epfd >= 0 && !atomic_load(&e->narmed)) {
		sys(SYS_epoll_ctl, e->epfd, EPOLL_CTL_DEL, e->bell->fd, NULL);
		gone = e->bell;
		e->bell = NULL;		/* e->filter stays: another thread may have its event */
	}
	lock_give(&e->lock);
	if (gone)
		bell_free(gone);
	else if (e->bell)
		bell_drain(e->bell);
}
