/*
 * ready.c - which fds the application's epoll instances have, and which of them must be looked at.
 *
 * Owns the registry of each instance (by fd, and by data so that a kernel event finds its item),
 *   the ready lists, the parked items, and the entry points that streams call: ready_attention,
 *   ready_arm, ready_stream_forget. ready_int.h has the lock order; this file takes stream.reg.lock
 *   and epoll.lock.
 */
#include "base/shim.h"
#include "conn/stream_life.h"
#include "poll/ready_int.h"

#include <sys/mman.h>

/* ---- registry ---- */

static size_t fd_slot(const struct epoll *e, int fd) { return (uint32_t)fd & (e->nbuckets - 1); }

static size_t data_slot(const struct epoll *e, uint64_t data)
{
	return (data * 0x9e3779b97f4a7c15ull >> 32) & (e->nbuckets - 1);
}

static void index_item(struct epitem *it)
{
	struct epoll *e = it->e;
	struct epitem **f = &e->by_fd[fd_slot(e, it->fd)],
		      **d = &e->by_data[data_slot(e, it->data)];

	if (!it->orphan) {
		it->fd_next = *f;
		*f = it;
	}
	it->data_next = *d;
	*d = it;
}

static void unindex_data(struct epitem *it)
{
	struct epitem **p = &it->e->by_data[data_slot(it->e, it->data)];

	while (*p && *p != it)
		p = &(*p)->data_next;
	if (*p)
		*p = it->data_next;
}

void item_unindex_fd(struct epitem *it)
{
	struct epitem **p = &it->e->by_fd[fd_slot(it->e, it->fd)];

	if (it->orphan)
		return;
	it->orphan = true;
	while (*p && *p != it)
		p = &(*p)->fd_next;
	if (*p)
		*p = it->fd_next;
}

void ready_free_buckets(struct epoll *e)
{
	if (e->by_fd && e->by_fd != e->small)
		sys(SYS_munmap, e->by_fd, 2 * e->nbuckets * sizeof(void *));
	e->by_fd = NULL;
}

void *ready_map(size_t n)
{
	long p = sys(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

/* Four times the buckets. Without memory the chains just get longer. */
static void grow(struct epoll *e)
{
	uint32_t old = e->nbuckets, n = old * 4;
	struct epitem **was = e->by_data, **b = ready_map(2 * n * sizeof *b);

	if (!b)
		return;
	struct epitem **freed = e->by_fd;

	e->by_fd = b;
	e->by_data = b + n;
	e->nbuckets = n;
	for (uint32_t i = 0; i < old; i++) {
		/* every item, orphans too */
		for (struct epitem *it = was[i], *next; it; it = next) {
			next = it->data_next;
			index_item(it);
		}
	}
	if (freed != e->small)
		sys(SYS_munmap, freed, 2 * old * sizeof(void *));
}

struct epitem *item_by_fd(struct epoll *e, int fd)
{
	struct epitem *it = e->by_fd[fd_slot(e, fd)];

	while (it && it->fd != fd)
		it = it->fd_next;
	return it;
}

struct epitem *item_by_data(struct epoll *e, uint64_t data, bool *ret_many)
{
	struct epitem *it = e->by_data[data_slot(e, data)], *first;

	while (it && it->data != data)
		it = it->data_next;
	first = it;
	*ret_many = false;
	for (it = it ? it->data_next : NULL; it && !*ret_many; it = it->data_next)
		*ret_many = it->data == data;
	return first;
}

static void count_oneshot(struct epitem *it, int by)
{
	if (it->events & EPOLLONESHOT) {
		atomic_fetch_add(&it->e->noneshot, (uint32_t)by);
		atomic_fetch_add(&it->e->filter, (uint32_t)by);
	}
}

/* What the kernel says of it is not told before it is proved. */
static void watch_inner(struct epitem *it)
{
	struct epoll *e = it->e;

	it->p_prev = NULL;
	it->p_next = e->inners;
	if (it->p_next)
		it->p_next->p_prev = it;
	e->inners = it;
	atomic_fetch_add(&e->ninner, 1);
	atomic_fetch_add(&e->filter, 1);
}

static void unwatch_inner(struct epitem *it)
{
	struct epoll *e = it->e;

	if (it->p_next)
		it->p_next->p_prev = it->p_prev;
	if (it->p_prev)
		it->p_prev->p_next = it->p_next;
	else
		e->inners = it->p_next;
	atomic_fetch_sub(&e->ninner, 1);
	atomic_fetch_sub(&e->filter, 1);
}

void item_insert(struct epitem *it)
{
	if (it->e->nitems >= 2 * it->e->nbuckets)
		grow(it->e);
	it->e->nitems++;
	index_item(it);
	count_oneshot(it, 1);
	if (it->inner)
		watch_inner(it);
	if (it->s) {
		atomic_fetch_add(&it->e->nstreams, 1);
		it->s_next = it->s->reg.items;
		__atomic_store_n(&it->s->reg.items, it, __ATOMIC_RELAXED);
		it->s->reg.n++;
	}
}

/* The instance's bell need not care for a stream that has no other item there. */
static void drop_bell(struct epitem *it)
{
	if (!it->e->bell)
		return;
	for (struct epitem *o = it->s->reg.items; o; o = o->s_next)
		if (o != it && o->e == it->e)
			return;
	stream_bell_del(it->s, it->e->bell);
}

void item_remove(struct epitem *it)
{
	item_unqueue(it);
	item_unpark(it);
	item_unindex_fd(it);
	unindex_data(it);
	it->e->nitems--;
	count_oneshot(it, -1);
	item_set_cut(it, false);
	if (it->inner)
		unwatch_inner(it);
	if (it->s) {
		struct epitem **p = &it->s->reg.items;

		atomic_fetch_sub(&it->e->nstreams, 1);
		if (it->armed)
			drop_bell(it);
		while (*p && *p != it)
			p = &(*p)->s_next;
		if (*p) {
			__atomic_store_n(p, it->s_next, __ATOMIC_RELAXED);
			it->s->reg.n--;
		}
	}
	item_disarm(it);
}

void item_set(struct epitem *it, uint32_t events, uint64_t data)
{
	count_oneshot(it, -1);
	it->events = events;
	count_oneshot(it, 1);
	it->disabled = false;
	it->told = 0;
	if (it->data != data) {
		struct epitem **d;

		unindex_data(it);
		it->data = data;
		d = &it->e->by_data[data_slot(it->e, data)];
		it->data_next = *d;
		*d = it;
	}
}

/* ---- ready list ---- */

void item_queue(struct epitem *it)
{
	struct epoll *e = it->e;

	if (it->on_ready)
		return;
	it->on_ready = true;
	it->r_next = NULL;
	it->r_prev = e->tail;
	if (e->tail)
		e->tail->r_next = it;
	else
		e->head = it;
	e->tail = it;
	atomic_fetch_add_explicit(&e->nready, 1, memory_order_relaxed);
}

void item_unqueue(struct epitem *it)
{
	struct epoll *e = it->e;

	if (!it->on_ready)
		return;
	it->on_ready = false;
	if (it->r_prev)
		it->r_prev->r_next = it->r_next;
	else
		e->head = it->r_next;
	if (it->r_next)
		it->r_next->r_prev = it->r_prev;
	else
		e->tail = it->r_prev;
	atomic_fetch_sub_explicit(&e->nready, 1, memory_order_relaxed);
}

void item_set_cut(struct epitem *it, bool cut)
{
	if (it->cut == cut)
		return;
	it->cut = cut;
	if (!cut) {
		if (it->home_seen & it->events)
			it->kern_events = 0;	/* an edge that nobody was told of, perhaps:
						 * resync() has the kernel look again */
		it->home_seen = 0;
	}
	atomic_fetch_add_explicit(&it->e->ncut, cut ? 1 : (uint32_t)-1, memory_order_relaxed);
}

/* ---- parking ---- */

bool item_may_park(const struct epitem *it)
{
	struct epoll *e = it->e;
	bool many;

	item_by_data(e, it->data, &many);
	return !it->parked && !it->orphan && !many && !atomic_load(&e->watched) && !e->foreign &&
	       e->epfd >= 0 && !atomic_load(&e->sleepers) && !atomic_load(&ready_no_parking) &&
	       !atomic_load(&stream_past_us) && (it->armed || !atomic_load(&e->shared)) &&
	       !foreign_image();
}

/* As a ONESHOT that has fired: it says nothing, and the kernel's events are looked through. */
void item_park(struct epitem *it)
{
	struct epoll *e = it->e;

	item_unqueue(it);
	item_set(it, EPOLLONESHOT, it->data);
	it->disabled = true;
	it->parked = true;
	it->aloud = !it->armed;
	if (it->aloud)
		atomic_fetch_add(&e->aloud, 1);
	it->p_prev = NULL;
	it->p_next = atomic_load(&e->parked);
	if (it->p_next)
		it->p_next->p_prev = it;
	atomic_store(&e->parked, it);
}

void item_unpark(struct epitem *it)
{
	if (!it->parked)
		return;
	it->parked = false;
	if (it->aloud)
		atomic_fetch_sub(&it->e->aloud, 1);
	it->aloud = false;
	if (it->p_next)
		it->p_next->p_prev = it->p_prev;
	if (it->p_prev)
		it->p_prev->p_next = it->p_next;
	else
		atomic_store(&it->e->parked, it->p_next);
}

/* Any that is parked, and which stream it is of. `aloud`: only those of e->aloud. */
static struct epitem *one_parked(struct epoll *e, struct stream **s, bool aloud)
{
	struct epitem *it;

	lock_take(&e->lock);
	it = atomic_load(&e->parked);
	while (aloud && it && !it->aloud)
		it = it->p_next;
	*s = it ? it->s : NULL;
	lock_give(&e->lock);
	return it;
}

void ready_unpark(struct epoll *e)
{
	struct epitem *it;
	struct stream *s;

	while (atomic_load_explicit(&e->parked, memory_order_relaxed) &&
	       (it = one_parked(e, &s, false)))
		ready_unpark_one(s, e, it);
}

void ready_unpark_aloud(struct epoll *e)
{
	struct epitem *it;
	struct stream *s;

	while (atomic_load_explicit(&e->aloud, memory_order_relaxed) &&
	       (it = one_parked(e, &s, true)))
		ready_unpark_one(s, e, it);
}

void ready_unpark_surely(struct epoll *e)
{
	struct epitem *it;
	struct stream *s;

	while ((it = one_parked(e, &s, false)))
		ready_unpark_one(s, e, it);
}

/* ---- arming ---- */

/* An fd that was closed without the library's knowledge leaves an item behind that the kernel no
 * longer has. */
static bool is_stale(struct epitem *it)
{
	struct epoll_event ev = { .events = 0, .data.u64 = epoll_tag(it->e) };
	long r;

	if (it->s || it->orphan)
		return false;
	atomic_fetch_add(&it->e->filter, 1);	/* what is wrong with the fd is told whether it
						 * is asked for or not */
	r = sys(SYS_epoll_ctl, it->e->epfd, EPOLL_CTL_ADD, it->fd, &ev);
	if (!r)
		sys(SYS_epoll_ctl, it->e->epfd, EPOLL_CTL_DEL, it->fd, NULL);
	atomic_fetch_sub(&it->e->filter, 1);
	return !r || r == -EBADF;
}

/* Does another live item carry the same data? Then kernel events could not be told apart. */
static bool data_shared(struct epitem *it)
{
	struct epitem *o = it->e->by_data[data_slot(it->e, it->data)], *next;

	for (; o; o = next) {
		next = o->data_next;
		if (o == it || o->data != it->data)
			continue;
		if (!is_stale(o))
			return true;
		item_remove(o);
		item_free(o);
	}
	return false;
}

static int give_bell(struct epoll *e)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.u64 = epoll_tag(e) };
	struct bell *b;
	long r;

	if (e->bell)
		return 0;
	b = bell_new();
	if (!b)
		return -ENOSPC;
	atomic_fetch_add(&e->filter, 1);	/* first: a thread that is in the kernel's wait
						 * may have the event at once */
	r = sys(SYS_epoll_ctl, e->epfd, EPOLL_CTL_ADD, b->fd, &ev);
	if (r < 0) {
		atomic_fetch_sub(&e->filter, 1);
		bell_free(b);
		return (int)r;
	}
	e->bell = b;
	return 0;
}

int item_arm(struct epitem *it)
{
	struct epoll *e = it->e;
	int r;

	if (it->armed) {	/* again: the stream may ride another slot by now */
		stream_bell_add(it->s, e->bell, true);
		return 0;
	}
	if (e->foreign || e->epfd < 0)
		return -EOPNOTSUPP;
	if (data_shared(it))
		return -EXDEV;
	r = give_bell(e);
	if (r)
		return r;
	stream_bell_add(it->s, e->bell, true);
	it->armed = true;
	atomic_fetch_add(&e->narmed, 1);
	item_queue(it);		/* the next walk learns whether it is cut */
	return 0;
}

void item_disarm(struct epitem *it)
{
	if (!it->armed)
		return;
	it->armed = false;
	atomic_fetch_sub(&it->e->narmed, 1);
}

int ready_arm(struct stream *s)
{
	uint64_t ring = 0;
	int r = 0;

	lock_take(&s->reg.lock);
	for (struct epitem *it = s->reg.items; it && !r; it = it->s_next) {
		struct epoll *e = it->e;
		bool was = it->armed;

		lock_take(&e->lock);
		r = item_arm(it);
		/* Threads that are in the kernel's wait already have no bell armed: do it for
		 * them, and let one come out and look. */
		if (!r && !was && (atomic_load(&e->sleepers) || atomic_load(&e->watched))) {
			bell_arm(e->bell);
			ring |= bell_bit(e->bell);
		}
		lock_give(&e->lock);
	}
	lock_give(&s->reg.lock);
	bell_ring(ring);
	return r;
}

__thread const struct epoll *ready_looks_at __attribute__((tls_model("initial-exec")));

static bool waited_for(const struct epoll *e)
{
	return atomic_load(&e->sleepers) || (atomic_load(&e->watched) && ready_looks_at != e);
}

void ready_attention(struct stream *s)
{
	uint64_t ring = 0;

	if (!__atomic_load_n(&s->reg.items, __ATOMIC_RELAXED))
		return;
	lock_take(&s->reg.lock);
	for (struct epitem *it = s->reg.items; it; it = it->s_next) {
		struct epoll *e = it->e;

		lock_take(&e->lock);
		if (it->armed && !it->disabled) {
			item_queue(it);
			e->news++;
			if (e->bell && waited_for(e))
				ring |= bell_bit(e->bell);
		}
		lock_give(&e->lock);
	}
	lock_give(&s->reg.lock);
	bell_ring(ring);
}

/* ---- going away ---- */

/* Changes what the kernel has of an item. EPOLLEXCLUSIVE can be given only anew, and not be
 * changed: while the stream is cut the kernel has it without, and an event wakes all instances
 * that wait for it ("one or more", says epoll_ctl(2)). e->lock held. */
void item_tell_kernel(struct epitem *it, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = it->data };
	bool anew = it->events & EPOLLEXCLUSIVE;

	if (anew)
		sys(SYS_epoll_ctl, it->e->epfd, EPOLL_CTL_DEL, it->fd, NULL);
	if (!sys(SYS_epoll_ctl, it->e->epfd, anew ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, it->fd, &ev))
		it->kern_events = events;
}

void item_give_back(struct epitem *it)
{
	if (it->s && !it->disabled && !it->orphan && it->kern_events != it->events)
		item_tell_kernel(it, it->events);
}

/* The kernel is told of one that it still has though the application has removed it. Not by a
 * child that has a copy of our memory and knows nothing of what was registered since: the
 * instance is its parent's, too. s->reg.lock and e->lock held. */
static void remove_parked(struct epitem *it)
{
	if (it->parked && it->e->epfd >= 0 && !foreign_image())
		sys(SYS_epoll_ctl, it->e->epfd, EPOLL_CTL_DEL, it->fd, NULL);
	item_remove(it);
}

static void drop(struct stream *s, struct epoll *e, struct epitem *only, bool parked)
{
	struct epitem *next, *gone = NULL;

	lock_take(&s->reg.lock);
	lock_take(&e->lock);
	for (struct epitem *it = s->reg.items; it; it = next) {
		next = it->s_next;
		if (it->e != e || (only && it != only) || (parked && !it->parked))
			continue;
		remove_parked(it);
		it->data_next = gone;
		gone = it;
	}
	lock_give(&e->lock);
	lock_give(&s->reg.lock);
	for (; gone; gone = next) {
		next = gone->data_next;
		item_free(gone);
	}
}

void ready_drop(struct stream *s, struct epoll *e, struct epitem *only) { drop(s, e, only, false); }

void ready_unpark_one(struct stream *s, struct epoll *e, struct epitem *it)
{
	drop(s, e, it, true);
}

static bool registered(struct stream *s, int fd)
{
	bool found = false;

	lock_take(&s->reg.lock);
	for (struct epitem *it = s->reg.items; it && !found; it = it->s_next)
		found = it->fd == fd && !it->orphan && !it->parked;
	lock_give(&s->reg.lock);
	return found;
}

/* The registration lives on with the other fd's file, but nobody can name it any more to change
 * it: let it be right now. */
void ready_stream_part(struct stream *s, int fd)
{
	if (!__atomic_load_n(&s->reg.items, __ATOMIC_RELAXED) || !registered(s, fd))
		return;
	stream_fall_back(s, REASON_FOREIGN_WAIT);
	lock_take(&s->reg.lock);
	for (struct epitem *it = s->reg.items; it; it = it->s_next) {
		struct epoll *e = it->e;

		lock_take(&e->lock);
		if (it->fd == fd && e->epfd >= 0)
			item_give_back(it);
		lock_give(&e->lock);
	}
	lock_give(&s->reg.lock);
}

/* The kernel's side of an item that ends with the stream's number fd. Both locks held. */
static void tell_gone(struct epitem *it, int fd)
{
	struct epoll *e = it->e;

	if (it->orphan || e->epfd < 0)
		return;
	if (it->parked ? it->fd != fd && fdtab_stream(it->fd) != it->s : !it->armed || it->fd != fd)
		return;
	if (fork_shared(it->s) && !it->parked)
		item_give_back(it);
	else
		sys(SYS_epoll_ctl, e->epfd, EPOLL_CTL_DEL, it->fd, NULL);
}

/* Before the kernel's close of fd. The kernel forgets a registration when the open file goes; a
 * cut stream's file may live on under a number of ours, so there it is told. If another process
 * has the file, the registration stays, and the stream is on TCP. */
void ready_stream_forget(struct stream *s, int fd, bool last)
{
	struct epitem *next, *gone = NULL;

	if (!__atomic_load_n(&s->reg.items, __ATOMIC_RELAXED))
		return;
	lock_take(&s->reg.lock);
	for (struct epitem *it = s->reg.items; it; it = next) {
		struct epoll *e = it->e;

		next = it->s_next;
		lock_take(&e->lock);
		if (last || (it->parked && it->fd == fd)) {
			tell_gone(it, fd);
			item_remove(it);
			it->data_next = gone;
			gone = it;
		} else if (it->fd == fd) {
			item_unindex_fd(it);
		}
		lock_give(&e->lock);
	}
	lock_give(&s->reg.lock);
	for (; gone; gone = next) {
		next = gone->data_next;
		item_free(gone);
	}
}

const struct stream_pollers ready_pollers = { ready_attention, ready_arm, ready_stream_part,
					      ready_stream_forget, ready_blind };
