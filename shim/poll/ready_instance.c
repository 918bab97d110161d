/*
 * ready_instance.c - the life of an epoll instance: how it is made, duplicated, closed, shared with
 * other processes, and kept over a fork.
 *
 * Owns the slabs of struct epoll and struct epitem. ready_int.h has the lock order; this file takes
 *   epoll.lock and the two slab locks.
 */
#include "base/shim.h"
#include "poll/ready_int.h"

#include <string.h>
#include <sys/mman.h>

/* ---- slabs ---- */

#define CHUNK_BYTES (64u << 10)
#define CHUNK_EPOLLS ((CHUNK_BYTES - sizeof(void *)) / sizeof(struct epoll))
#define BLOCK_BYTES (16u << 10)
#define BLOCK_ITEMS ((BLOCK_BYTES - sizeof(struct item_block)) / sizeof(struct item_slot))
#define BLOCKS_SPARE 16u	/* so many that nobody has anything of are kept */

struct item_slot { struct item_block *of; struct epitem it; };

struct item_block {
	struct item_block *next, *prev;	/* of those that have free ones */
	struct epitem *free;		/* chained by s_next */
	uint32_t used;
	struct item_slot slot[];
};

struct epoll_chunk {
	struct epoll_chunk *next;
	struct epoll e[CHUNK_EPOLLS];
};

static struct lock item_lock, epoll_lock;
static struct item_block *item_blocks;	/* those that have free ones */
static uint32_t blocks_spare;
static struct epoll *epoll_pool;	/* chained by free_next */
static struct epoll_chunk *epoll_chunks;

static void link_block(struct item_block *b)
{
	b->prev = NULL;
	b->next = item_blocks;
	if (b->next)
		b->next->prev = b;
	item_blocks = b;
}

static void unlink_block(struct item_block *b)
{
	*(b->prev ? &b->prev->next : &item_blocks) = b->next;
	if (b->next)
		b->next->prev = b->prev;
}

static struct item_block *new_block(void)
{
	struct item_block *b = ready_map(BLOCK_BYTES);

	for (size_t i = 0; b && i < BLOCK_ITEMS; i++) {
		b->slot[i].of = b;
		b->slot[i].it.s_next = b->free;
		b->free = &b->slot[i].it;
	}
	if (b) {
		link_block(b);
		blocks_spare++;
	}
	return b;
}

struct epitem *item_alloc(void)
{
	struct epitem *it = NULL;
	struct item_block *b;

	lock_take(&item_lock);
	b = item_blocks ? item_blocks : new_block();
	if (b) {
		it = b->free;
		b->free = it->s_next;
		if (!b->free)
			unlink_block(b);
		if (!b->used++)
			blocks_spare--;
	}
	lock_give(&item_lock);
	if (it)
		memset(it, 0, sizeof *it);
	return it;
}

/* Else who has thousands of connections registered, and closes them, would leave all that behind.
 * Not under a filter, which may not permit it. */
static void drop_block(struct item_block *b)
{
	unlink_block(b);
	if (shim_on && !sys(SYS_munmap, b, BLOCK_BYTES))
		blocks_spare--;
	else
		link_block(b);
}

void item_free(struct epitem *it)
{
	struct item_block *b =
		((struct item_slot *)((char *)it - offsetof(struct item_slot, it)))->of;

	lock_take(&item_lock);
	if (!b->free)
		link_block(b);
	it->s_next = b->free;
	b->free = it;
	if (!--b->used && ++blocks_spare > BLOCKS_SPARE)
		drop_block(b);
	lock_give(&item_lock);
}

static struct epoll *epoll_alloc(void)
{
	struct epoll *e;

	lock_take(&epoll_lock);
	if (!epoll_pool) {
		struct epoll_chunk *c = ready_map(sizeof *c);

		for (size_t i = 0; c && i < CHUNK_EPOLLS; i++) {
			c->e[i].free_next = epoll_pool;
			epoll_pool = &c->e[i];
		}
		if (c) {
			c->next = epoll_chunks;
			epoll_chunks = c;
		}
	}
	e = epoll_pool;
	if (e)
		epoll_pool = e->free_next;
	lock_give(&epoll_lock);
	return e;
}

static void epoll_free(struct epoll *e)
{
	lock_take(&epoll_lock);
	e->free_next = epoll_pool;
	epoll_pool = e;
	lock_give(&epoll_lock);
}

/* ---- shared with other processes, and what is parked ---- */

_Atomic int ready_no_parking;

_Atomic bool ready_watch_shared;

void ready_mark_shared(struct epoll *e)
{
	atomic_store(&e->shared, true);
	if (atomic_load(&e->watched))
		atomic_store(&ready_watch_shared, true);
}

void ready_shared(struct epoll *e)
{
	ready_mark_shared(e);
	ready_unpark_surely(e);
}

void ready_unpark_all(bool stay)
{
	struct epoll_chunk *c;

	if (stay)
		atomic_fetch_add(&ready_no_parking, 1);
	lock_take(&epoll_lock);
	c = epoll_chunks;
	lock_give(&epoll_lock);
	for (; c; c = c->next)
		for (size_t i = 0; i < CHUNK_EPOLLS; i++)
			ready_unpark_surely(&c->e[i]);
}

void ready_park_again(void) { atomic_fetch_sub(&ready_no_parking, 1); }

/* ---- instances ---- */

struct epoll *ready_epoll_new(int epfd)
{
	struct epoll *e = epoll_alloc();
	bool ok = true;

	if (!e)
		return NULL;
	lock_take(&e->lock);
	e->used = true;
	e->foreign = false;
	atomic_store(&e->watched, false);
	atomic_store(&e->level, false);
	e->news = e->news_told = 0;
	e->inners = NULL;
	atomic_store(&e->ninner, 0);
	atomic_store(&e->nstreams, 0);
	atomic_fetch_add(&e->gen, 1);
	e->epfd = epfd;
	e->nfds = 1;
	e->bell = NULL;
	atomic_store(&e->direct, NULL);
	e->channel = 0;
	atomic_store(&e->filter, 0);
	atomic_store(&e->narmed, 0);
	atomic_store(&e->ncut, 0);
	atomic_store(&e->noneshot, 0);
	atomic_store(&e->sleepers, 0);
	atomic_store(&e->nready, 0);
	atomic_store(&e->looked_ns, 0);
	atomic_store(&e->hit_rate, 0);
	atomic_store(&e->inherited, false);
	e->head = e->tail = NULL;
	atomic_store(&e->parked, NULL);
	atomic_store(&e->aloud, 0);
	atomic_store(&e->shared, false);
	e->nitems = 0;
	e->nbuckets = EPOLL_SMALL;
	e->by_fd = e->small;
	e->by_data = e->small + EPOLL_SMALL;
	memset(e->small, 0, sizeof e->small);
	lock_give(&e->lock);
	fdtab_set(epfd, FD_EPOLL, e, &ok);
	if (!ok) {
		e->used = false;
		epoll_free(e);
		return NULL;
	}
	return e;
}

uint32_t ready_epoll_gen(struct epoll *e) { return atomic_load(&e->gen); }

bool ready_epoll_fast(struct epoll *e)
{
	return atomic_load_explicit(&e->ncut, memory_order_relaxed) != 0;
}

int ready_epoll_items(struct epoll *e)
{
	int n;

	lock_take(&e->lock);
	n = (int)e->nitems;
	lock_give(&e->lock);
	return n;
}

bool ready_epoll_dup(struct epoll *e, uint32_t gen, int fd, int newfd)
{
	bool there, ok = false;

	lock_take(&e->lock);
	there = fdtab_epoll(fd) == e && atomic_load(&e->gen) == gen;
	if (there)
		fdtab_set(newfd, FD_EPOLL, e, &ok);
	if (ok)
		e->nfds++;
	lock_give(&e->lock);
	return there;
}

/* Any stream that still has an item here; NULL: only others are left, and those are freed. */
static struct stream *one_stream(struct epoll *e)
{
	struct epitem *it, *next;

	for (uint32_t i = 0; i < e->nbuckets; i++) {
		for (it = e->by_data[i]; it; it = next) {
			next = it->data_next;
			if (it->s)
				return it->s;
			item_remove(it);
			item_free(it);
		}
	}
	return NULL;
}

static void destroy(struct epoll *e)
{
	struct stream *s;
	struct bell *b;

	for (;;) {
		lock_take(&e->lock);
		s = one_stream(e);
		if (!s)
			break;
		lock_give(&e->lock);
		ready_drop(s, e, NULL);
	}
	b = e->bell;
	e->bell = NULL;
	atomic_fetch_add(&e->gen, 1);	/* who still sleeps in it leaves it alone */
	e->used = false;
	ready_free_buckets(e);
	e->nbuckets = EPOLL_SMALL;
	e->by_fd = e->small;
	e->by_data = e->small + EPOLL_SMALL;
	memset(e->small, 0, sizeof e->small);
	lock_give(&e->lock);
	if (b)
		bell_free(b);
	epoll_free(e);
}

bool ready_epoll_forget_fd(struct epoll *e, int epfd, bool closing)
{
	bool last;

	if (atomic_load(&e->shared))
		ready_unpark_surely(e);	/* other processes have the kernel's instance for longer */
	lock_take(&e->lock);
	if (fdtab_epoll(epfd) != e) {	/* another thread closes it too, and was first */
		lock_give(&e->lock);
		return false;
	}
	fdtab_set(epfd, closing ? FD_INTERNAL : FD_NONE, &fdtab_closing, NULL);
	last = --e->nfds <= 0;
	if (e->epfd == epfd) {
		int top = last ? 0 : fdtab_top();

		e->epfd = -1;
		for (int fd = 0; fd < top && e->epfd < 0; fd++)
			if (fdtab_epoll(fd) == e)
				e->epfd = fd;
	}
	/* The timerfd is pooled and outlives the instance; so does the kernel's instance, if a
	 * child has it. */
	if (last && e->bell)
		sys(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, e->bell->fd, NULL);
	lock_give(&e->lock);
	if (last)
		destroy(e);
	return true;
}

/* ---- fork ---- */

void ready_fork_prepare(void)
{
	lock_take(&epoll_lock);
	for (struct epoll_chunk *c = epoll_chunks; c; c = c->next) {
		for (size_t i = 0; i < CHUNK_EPOLLS; i++) {
			lock_take(&c->e[i].lock);
			ready_mark_shared(&c->e[i]);
		}
	}
	lock_take(&item_lock);
}

void ready_fork_parent(void)
{
	lock_give(&item_lock);
	for (struct epoll_chunk *c = epoll_chunks; c; c = c->next)
		for (size_t i = 0; i < CHUNK_EPOLLS; i++)
			lock_give(&c->e[i].lock);
	lock_give(&epoll_lock);
}

/* The kernel's instances are shared with the parent, whose bells stay registered there:
 * e->filter keeps its count, so that their events are dropped here. No stream of the child is
 * cut, so nothing is armed. What the kernel was asked for while a stream was cut stands until
 * the first wait: see ready_inherited(). */
static void plain_again(struct epoll *e)
{
	e->bell = NULL;
	atomic_store(&e->direct, NULL);
	e->channel = 0;
	atomic_store(&e->taking.v, 0);
	atomic_store(&e->inherited, true);
	atomic_store(&e->sleepers, 0);
	while (e->head)
		item_unqueue(e->head);
	for (uint32_t i = 0; i < e->nbuckets; i++) {
		for (struct epitem *it = e->by_data[i]; it; it = it->data_next) {
			item_set_cut(it, false);
			if (it->s && atomic_load(&it->s->link))
				it->kern_events = KERN_UNKNOWN;	/* the parent may still change it */
			item_disarm(it);
		}
	}
}

static struct stream *one_fork_cut(struct epoll *e)
{
	struct stream *found = NULL;

	lock_take(&e->lock);
	for (uint32_t i = 0; i < e->nbuckets && !found; i++)
		for (struct epitem *it = e->by_data[i]; it && !found; it = it->data_next)
			if (it->s && atomic_load(&it->s->fork_cut))
				found = it->s;
	lock_give(&e->lock);
	return found;
}

/* All that are waited for have one patience together, here and below. */
void ready_inherited(struct epoll *e)
{
	uint64_t since = now_us();
	struct stream *s;

	while ((s = one_fork_cut(e)))
		/* clears fork_cut, also when it fails */
		stream_fall_back_since(s, REASON_SHARED, since);
	lock_take(&e->lock);
	if (atomic_load(&e->inherited)) {
		atomic_store(&e->inherited, false);
		for (uint32_t i = 0; i < e->nbuckets; i++)
			for (struct epitem *it = e->by_data[i]; it; it = it->data_next)
				if (it->kern_events == KERN_UNKNOWN)
					item_give_back(it);
	}
	lock_give(&e->lock);
}

void ready_after_fork(void)
{
	atomic_store(&item_lock.v, 0);
	atomic_store(&epoll_lock.v, 0);
	atomic_store(&ready_no_parking, 0);
	for (struct epoll_chunk *c = epoll_chunks; c; c = c->next) {
		for (size_t i = 0; i < CHUNK_EPOLLS; i++) {
			atomic_store(&c->e[i].lock.v, 0);
			if (c->e[i].used)
				plain_again(&c->e[i]);
		}
	}
}
