/*
 * ready_int.h - what the files of poll/ share.
 *
 * A struct epoll mirrors one epoll instance of the application: which fds are registered, for what,
 * with which data. The kernel's registrations keep the application's own data, so that an instance
 * without armed streams needs no translation. An item is *armed* when its stream may be cut. Then
 * the instance has a bell in the kernel's set, and its waits go through the active loop.
 *
 * Locks: epoll.taking -> stream.reg.lock -> epoll.lock -> slab locks and bell.c's (leaves). An item
 * is put into or taken out of a stream's list only with stream.reg.lock and epoll.lock held;
 * everything else of an item and of an instance is under epoll.lock. Under epoll.lock the kernel is
 * only asked for things that don't block (epoll_ctl), and e->epfd is open, because
 * ready_epoll_forget_fd() takes the lock before the kernel's close. Freed instances are reused,
 * never unmapped. The memory of items is given back, so an item is looked at only under the lock of
 * its instance or of its stream.
 */
#ifndef RDMASHIM_READY_INT_H
#define RDMASHIM_READY_INT_H

#include "base/shim.h"
#include "conn/stream.h"
#include "poll/ready.h"

#define EV_IN    ((uint32_t)(EPOLLIN | EPOLLRDNORM))	/* TCP: always both or neither */
#define EV_OUT   ((uint32_t)(EPOLLOUT | EPOLLWRNORM))
#define EV_INOUT (EV_IN | EV_OUT)
#define EV_BANDS ((uint32_t)(EPOLLRDBAND | EPOLLWRBAND))	/* TCP: never */
#define EV_HOME  ((uint32_t)(EPOLLRDHUP | EPOLLHUP | EPOLLERR))
#define EV_ALWAYS ((uint32_t)(EPOLLHUP | EPOLLERR))	/* reported though not asked for */

#define KERN_UNKNOWN UINT32_MAX	/* kern_events that no registration has */

/* A busy waiter looks into the kernel at most this often. */
#define READY_LOOK_NS 20000u

struct epitem {
	struct epoll *e;
	struct stream *s;		/* NULL: not a stream, or none that could be kept in view
					 * when it was added */
	int fd;
	uint32_t inner_gen;		/* inner's, when it was added */
	struct epoll *inner;		/* it is another instance, or was: it may have another
					 * life by now */
	uint32_t events;		/* as the application asked */
	uint32_t kern_events;		/* what the kernel has now */
	uint64_t data;
	bool disabled;			/* EPOLLONESHOT fired, the next MOD enables */
	bool armed;			/* the stream may be cut; counted in e->narmed */
	bool cut;			/* it was when we last looked; counted in e->ncut */
	bool on_ready;
	bool orphan;			/* fd was closed, the open file lives on: not in by_fd */
	bool parked;			/* the application has removed it, the kernel has it
					 * still: see ready_ctl.c */
	bool aloud;			/* ... and would tell of it; counted in e->aloud */
	uint32_t home_seen;		/* of EV_HOME: what the kernel has shown while cut */
	uint32_t told;			/* what an edge at the end of the stream has said: not
					 * said twice */
	uint64_t call_id;		/* ready_epoll_wait() call that reported it last ... */
	int call_idx;			/* ... and at which place */
	struct epitem *fd_next, *data_next;	/* hash chains */
	struct epitem *r_next, *r_prev;		/* ready list */
	struct epitem *p_next, *p_prev;		/* parked ones of the instance, or e->inners */
	struct epitem *s_next;			/* stream.items */
};

#define EPOLL_SMALL 16		/* buckets that need no memory */

struct epoll {
	struct lock lock;
	bool used;
	bool foreign;			/* others wait for it, in ways that are not seen: its
					 * streams stay on TCP */
	_Atomic bool watched;		/* it is waited for through its descriptor: see
					 * ready_nested.c. Written under lock */
	_Atomic uint32_t gen;		/* counts reuses */
	int epfd;			/* one of the application's fds, -1: none left */
	int nfds;
	struct bell *bell;
	struct stream *_Atomic direct;	/* one that goes by RDMA: its link's completion channel
					 * wakes us, too. NULL: none is known */
	uint64_t channel;		/* number of the link whose channel is in the kernel's
					 * set; 0: none */
	_Atomic uint32_t filter;	/* kernel events must be looked through: a bell is or was
					 * in the set, or ONESHOT items or instances exist */
	_Atomic uint32_t narmed, ncut, noneshot, nstreams;
	_Atomic bool level;		/* more than one watch it, or one not for edges */
	uint32_t news, news_told;	/* what came, and what outer waits were told of */
	struct lock taking;		/* of a thread in peek(): see links_drain() */
	_Atomic uint32_t ninner;	/* items that are instances themselves */
	struct epitem *inners;
	_Atomic uint32_t sleepers;	/* threads inside the kernel's wait; written under lock */
	_Atomic uint32_t nready;
	struct epitem *head, *tail;	/* ready list */
	struct epitem *_Atomic parked;	/* written under lock */
	_Atomic uint32_t aloud;		/* of those, of which the kernel would still tell: they
					 * go before it is asked */
	_Atomic bool shared;		/* other processes may have the instance, and ask the
					 * kernel at any time */
	_Atomic uint64_t calls;
	_Atomic uint64_t looked_ns;	/* last look into the kernel */
	_Atomic uint32_t hit_rate;		/* of spinning */
	_Atomic bool inherited;		/* made before our fork, and not waited in since */
	uint32_t nitems, nbuckets;
	struct epitem **by_fd, **by_data;
	struct epitem *small[2 * EPOLL_SMALL];
	struct epoll *free_next;
};

/* Adds the synonyms. */
static inline uint32_t ev_wide(uint32_t v)
{
	return v | (v & EPOLLIN ? EV_IN : 0) | (v & EPOLLOUT ? EV_OUT : 0);
}

/* The data of our own registrations: the bell's, and a completion channel's. */
static inline uint64_t epoll_tag(const struct epoll *e) { return (uint64_t)(uintptr_t)e; }
static inline uint64_t epoll_channel_tag(const struct epoll *e) { return epoll_tag(e) + 1; }

static inline uint64_t bell_bit(const struct bell *b) { return 1ull << b->idx; }

/* ---- ready.c; all with e->lock held unless said otherwise ---- */
void item_insert(struct epitem *it);			/* it->e, s, fd, data, events set;
							 * s->reg.lock too if s */
void item_remove(struct epitem *it);			/* s->reg.lock too if s; does not free */
void item_set(struct epitem *it, uint32_t events, uint64_t data);
struct epitem *item_by_fd(struct epoll *e, int fd);
/* The first with that data; *ret_many if there are others. */
struct epitem *item_by_data(struct epoll *e, uint64_t data, bool *ret_many);
void item_unindex_fd(struct epitem *it);		/* makes it an orphan */
int item_arm(struct epitem *it);
void item_tell_kernel(struct epitem *it, uint32_t events);
void item_park(struct epitem *it);
void item_unpark(struct epitem *it);
bool item_may_park(const struct epitem *it);		/* as far as the instance is concerned */
void item_disarm(struct epitem *it);
void item_queue(struct epitem *it);
void item_unqueue(struct epitem *it);
void item_set_cut(struct epitem *it, bool cut);
/* Removes and frees every item that the stream has in the instance (of this fd, or any if fd <
 * 0). Takes both locks. */
void ready_drop(struct stream *s, struct epoll *e, struct epitem *only);
void ready_unpark_aloud(struct epoll *e);		/* those of e->aloud. Takes both locks */
/* Nothing is parked in the instance from now on until somebody removes a registration again: the
 * kernel has no more than what the application has registered. Takes both locks. */
void ready_unpark(struct epoll *e);
/* if it is parked there (still) */
void ready_unpark_one(struct stream *s, struct epoll *e, struct epitem *it);
/* The kernel gets the application's own interest back; the stream is on TCP. */
void item_give_back(struct epitem *it);
void ready_free_buckets(struct epoll *e);
void *ready_map(size_t n);				/* no lock; zeroed, NULL: no memory */
/* As ready_unpark(), but looks under the lock: its holder may be about to park an item, or may have
 * one in hand. */
void ready_unpark_surely(struct epoll *e);

/* What this thread looks through itself: who queues need not ring for it. No lock. */
extern __thread const struct epoll *ready_looks_at __attribute__((tls_model("initial-exec")));

/* ---- ready_instance.c ---- */
/* Other processes have a watched instance, too, and may take its bell's event. */
extern _Atomic bool ready_watch_shared;
struct epitem *item_alloc(void);			/* no lock; NULL: no memory */
void item_free(struct epitem *it);			/* no lock; not (or no longer) in any
							 * list */
extern _Atomic int ready_no_parking;			/* how many want that nothing is parked:
							 * ready_unpark_all() */
/* Before the first wait in an instance that a fork brought: its streams fall back, and the
 * kernel is asked again for what the application wants. Takes locks, may sleep. */
void ready_inherited(struct epoll *e);
void ready_inherited_all(struct epoll *e);	/* and of those in it. No lock held */
/* The fork handlers' other two parts: prepare takes every instance's lock. */
void ready_fork_prepare(void);
void ready_fork_parent(void);

/* ---- ready_nested.c; no lock ---- */
/* The bell's event was taken out of the kernel's set of a watched instance: see the head of
 * ready_nested.c. */
void ready_settle(struct epoll *e, uint32_t gen);
/* The kernel says that the instance, of this `gen`, is readable: is there anything in it that
 * its waits would tell? */
bool ready_proved(struct epoll *e, uint32_t gen);
/* Of an event with that data: it is an instance's, in which there is nothing, so it has not
 * happened. Where several have the data each instance among them is proved, and then the kernel
 * says of each what is true. */
bool ready_inner_quiet(struct epoll *e, uint32_t gen, uint64_t data);
bool ready_may_be_false(struct epoll *e);	/* or it is not watched yet */
/* How long an outer wait may sleep, in nanoseconds, and what it does then: a bell may have been
 * missed. */
uint64_t ready_slice(void);
void ready_refresh(struct epoll *e);

/* ---- ready_bits.c; e->lock held ---- */
/* What the kernel shall have of the item, as the stream is now. */
uint32_t item_wanted(const struct epitem *it, const struct stream_view *v);
/* What the fast path says, as far as the application asked. Asks for a wake-up if it waits for
 * room. */
uint32_t item_own_bits(struct epitem *it, struct stream_view *v);
uint32_t item_kernel_bits(const struct epitem *it, uint32_t bits);
uint32_t item_arrival_behind(struct epitem *it, const struct stream_view *v);
bool item_said(const struct epitem *it, const struct stream_view *v, uint32_t bits);
bool item_said_before(struct epitem *it, const struct stream_view *v, uint32_t bits);
void item_resync(struct epitem *it, const struct stream_view *v);
void item_maybe_disarm(struct epitem *it, const struct stream_view *v);

#endif
