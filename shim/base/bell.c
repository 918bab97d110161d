/*
 * bell.c - see bell.h. `bell_lock` (a leaf) guards allocation. Freed bells keep their timerfd and
 * their number, so that peers, who hold duplicates, need not be told.
 */
#include "base/bell.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/fdtab.h"
#include "base/lock.h"
#include "base/sys.h"
#include "policy/stat.h"

struct bell bells[BELL_MAX];
_Atomic bool bells_mixed, bells_deaf;

static void nobody_made(struct bell *b) { (void)b; }
static void nobody_armed(uint64_t mask) { (void)mask; }
static const struct bell_events nobody = { nobody_made, nobody_armed, nobody_armed };
static const struct bell_events *events = &nobody;

static struct lock bell_lock;
static uint64_t in_use;			/* allocated */
static uint64_t made;			/* has a timerfd */
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t generation = 1;	/* a forked child starts a new one */
static __thread struct bell *mine;
static __thread uint32_t mine_gen;

void bell_tell(const struct bell_events *n) { events = n; }

struct bell *bell_new(void)
{
	struct bell *b = NULL;
	uint64_t free_made;
	bool fresh = false;
	int i;

	lock_take(&bell_lock);
	free_made = made & ~in_use;
	if (free_made) {
		i = __builtin_ctzll(free_made);
		in_use |= 1ull << i;
		b = &bells[i];
	} else if (made != (1ull << BELL_MAX) - 1) {
		int fd = fd_internal_sys(SYS_timerfd_create, CLOCK_MONOTONIC,
					 TFD_NONBLOCK | TFD_CLOEXEC);

		if (fd >= 0) {
			i = __builtin_ctzll(~made);
			b = &bells[i];
			b->fd = fd;
			b->idx = (uint8_t)i;
			atomic_store(&b->sleeping, 0);
			atomic_store(&b->deaf, 0);
			b->depth = 0;
			made |= 1ull << i;
			in_use |= 1ull << i;
			fresh = true;
		}
	}
	lock_give(&bell_lock);
	if (fresh)
		events->made(b);
	return b;
}

void bell_free(struct bell *b)
{
	b->threads = false;
	b->depth = 0;
	bell_disarm(b);
	lock_take(&bell_lock);
	in_use &= ~(1ull << b->idx);
	lock_give(&bell_lock);
}

uint64_t bell_made_mask(void)
{
	uint64_t m;

	lock_take(&bell_lock);
	m = made;
	lock_give(&bell_lock);
	return m;
}

static void thread_gone(void *p)
{
	if (mine_gen == atomic_load(&generation))
		bell_free(p);
	mine = NULL;
}

static void make_key(void)
{
	pthread_key_create(&key, thread_gone);
}

struct bell *bell_thread(void)
{
	if (mine && mine_gen == atomic_load_explicit(&generation, memory_order_relaxed))
		return mine;
	pthread_once(&key_once, make_key);
	mine = bell_new();
	mine_gen = atomic_load(&generation);
	if (mine) {
		mine->threads = true;
		pthread_setspecific(key, mine);
	}
	return mine;
}

void bell_arm(struct bell *b)
{
	if (b->threads)
		b->depth++;
	atomic_store(&b->sleeping, 1);
	events->armed(1ull << b->idx);
	atomic_thread_fence(memory_order_seq_cst);
}

void bell_sleep(struct bell *b)
{
	bell_arm(b);
	stat_add(STAT_sleeps, 1);
}

void bell_disarm(struct bell *b)
{
	if (b->threads && b->depth && --b->depth) {
		/* A handler waited inside our wait and may have taken our ring: look again. */
		bell_ring_fd(b->fd);
		return;
	}
	atomic_store(&b->sleeping, 0);
	events->disarmed(1ull << b->idx);
}

void bell_ring(uint64_t mask)
{
	mask &= (1ull << BELL_MAX) - 1;
	while (mask) {
		struct bell *b = &bells[__builtin_ctzll(mask)];

		mask &= mask - 1;
		if (atomic_load(&b->sleeping) && atomic_exchange(&b->sleeping, 0))
			bell_ring_fd(b->fd);
	}
}

void bell_drain(struct bell *b)
{
	static const uint64_t never[4];

	/* Not by reading it, which another holder could make block: this sets the ticks to 0,
	 * too. */
	sys(SYS_timerfd_settime, b->fd, 0, never, NULL);
}

/* The inherited timerfds are the parent's too: drop them, start anew. */
void bell_after_fork(void)
{
	atomic_store(&bell_lock.v, 0);
	for (int i = 0; i < BELL_MAX; i++)
		if (made >> i & 1)
			fd_internal_close(bells[i].fd);
	made = in_use = 0;
	atomic_fetch_add(&generation, 1);
}
