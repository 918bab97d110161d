/*
 * stream_idle.c - the memory of rings: how much all rings of a process may have, and how it is
 * given back when they are not used.
 *
 * Who may give back a direction's pages? In a cut direction it is the sender, once all that it sent
 *   is consumed: it owns everything that is not held, and the receiver copies before it reports
 *   consumption. On TCP it is the receiver: it has had what was held, and the sender writes to the
 *   ring only after ARMED, which takes rcv.lock. A frozen receiver still looks at what the sender
 *   holds, so the sender keeps the pages then.
 *
 * The background thread looks. A ring in use costs it two loads and a lock a few times in
 * `ring_idle`. While no ring has memory it does not look. Memory counts as the sender's, because
 * the sender touches a page first, so its control group pays.
 *
 * Locks: as each function says.
 */
#include "base/cgroup.h"
#include "base/loop.h"
#include "base/shim.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "link/link.h"
#include "link/path.h"
#include "policy/log.h"

#define LOOKS      4		/* in `ring_idle` */
#define LOOK_US    1000		/* but not more often */
#define LITTLE     16		/* less than that part of the ring in `ring_idle`: nothing */
#define AT_ONCE    32		/* rings given back, until others have their turn */
#define SMALL      (4ul << 20)	/* so much is had without asking how much there is */
#define SHARE      4
#define RESERVE    8		/* that part of all there is stays for others, at most ... */
#define RESERVE_MOST (1ull << 30)	/* ... this, as huge pages are not left, either */
#define AT_A_TIME  4		/* that part of what is left is had until we look again: other
				 * processes see the same */
#define LIMIT_US   1000000	/* it is asked for again when more is had, or it does not suffice */
#define REFUSED_US   1000000	/* it asks again after so long, then twice as long, ... */
#define REFUSED_MOST 6

static _Atomic uint64_t held_bytes, held_rings, limit;
static _Atomic bool looking;	/* rings_rest() has something to look at */
static _Atomic bool limit_wanted;
static uint64_t limit_us, next_us;
static uint32_t at;		/* of a round of looks that is under way, 0: none is */
static uint64_t round_us;

static bool counts(const struct stream *s) { return !stream_path(s)->registered; }

static void look_soon(void)
{
	if (!atomic_load(&looking) && !atomic_exchange(&looking, true) && !loop_is_me())
		loop_kick();
}

static void show(void)
{
	struct stat_header *h = stat_self();

	atomic_store_explicit(&h->rings_held, atomic_load(&held_rings), memory_order_relaxed);
	atomic_store_explicit(&h->ring_bytes, atomic_load(&held_bytes), memory_order_relaxed);
}

/* The first ones are let in before it is known what the machine has: the background thread reads
 * that without a lock. */
static bool fits(uint64_t sum)
{
	uint64_t budget = shim_tunables()->ring_budget;
	uint64_t most = budget ? budget : atomic_load(&limit);

	if (!budget && sum > SMALL)
		atomic_store(&limit_wanted, true);
	return sum <= most || (!budget && (!most || sum <= SMALL));
}

/* Several threads may ask for the last of it. */
static bool reserve(uint64_t more)
{
	uint64_t sum = atomic_load(&held_bytes);

	do
		if (!fits(sum + more))
			return false;
	while (!atomic_compare_exchange_weak(&held_bytes, &sum, sum + more));
	return true;
}

/* A share of what there is, and of what nobody has yet. 0: not known. */
static uint64_t share(void)
{
	uint64_t all = memory_limit(), left = memory_left(), spare, others;

	if (left == UINT64_MAX || !all)
		return all / SHARE;
	others = all / RESERVE < RESERVE_MOST ? all / RESERVE : RESERVE_MOST;
	spare = left > others ? left - others : 0;
	spare = atomic_load(&held_bytes) + spare / AT_A_TIME;
	spare = spare > SMALL ? spare : SMALL;
	return spare < all / SHARE ? spare : all / SHARE;
}

/* Background thread, no lock held. */
static void learn_limit(uint64_t now)
{
	uint64_t budget = shim_tunables()->ring_budget;

	if (!budget && atomic_load(&limit_wanted) && (!limit_us || now - limit_us >= LIMIT_US)) {
		atomic_store(&limit_wanted, false);
		limit_us = now;
		atomic_store(&limit, share());
		log_line(3, "rings may have %lu bytes", (unsigned long)atomic_load(&limit));
	}
	atomic_store_explicit(&stat_self()->ring_budget, budget ? budget : atomic_load(&limit),
			      memory_order_relaxed);
}

/* What is counted already is its own. */
static void holds(struct stream *s, uint64_t size)
{
	if (counts(s)) {
		atomic_fetch_add(&held_rings, !s->snd.held);
		show();
	}
	s->snd.held = (uint32_t)size;
	s->snd.refused = 0;
	s->snd.idle_us = 0;
	look_soon();
}

void ring_memory_force(struct stream *s, uint64_t size)
{
	if (counts(s))
		atomic_fetch_add(&held_bytes, size - s->snd.held);
	holds(s, size);
}

static void refused(struct stream *s)
{
	s->earn.next_us = now_us() + (REFUSED_US << s->snd.refused);
	s->snd.refused += s->snd.refused < REFUSED_MOST;
	stat_add(STAT_rings_refused, 1);
	stat_row_reason(s->row, REASON_NO_MEMORY);
}

bool ring_memory_take(struct stream *s, uint64_t size)
{
	if (s->snd.held >= size)
		return true;
	if (!counts(s) || reserve(size - s->snd.held)) {
		holds(s, size);
		return true;
	}
	if (!s->snd.held)
		refused(s);
	return false;
}

void ring_memory_received(struct stream *s)
{
	s->rcv.used = 1;
	s->rcv.idle_us = 0;
	look_soon();
}

void ring_memory_unused(struct stream *s)
{
	if (s->rcv.used)
		look_soon();
}

void ring_memory_free(struct stream *s)
{
	if (s->snd.held && counts(s)) {
		atomic_fetch_sub(&held_bytes, s->snd.held);
		atomic_fetch_sub(&held_rings, 1);
		show();
	}
	s->snd.held = 0;
}

/* ---- the looks: background thread ---- */

static uint64_t large_of(const uint8_t *buf, const uint8_t *large, uint64_t size)
{
	return buf == large ? size : 0;
}

static bool rest(struct stream *s, int from, uint64_t large)
{
	struct link *l = atomic_load(&s->link);

	if (!segment_ring_rest(&l->segment, s->slot, from, large))
		return false;
	stat_add(STAT_rings_rested, 1);
	return true;
}

/* On TCP it does not use it. */
static bool is_idle(struct stream *s, uint64_t now, uint64_t idle)
{
	uint64_t wr = cut_tx_on_ring(&s->snd.cut) ? s->snd.cut.wr : 0;

	if (!s->snd.idle_us || wr - s->snd.idle_at > s->snd.ring.size / LITTLE) {
		s->snd.idle_us = now;
		s->snd.idle_at = wr;
		return false;
	}
	return now - s->snd.idle_us >= idle;
}

/* True: its pages were given back. *ret_left: it is to be looked at again. snd.lock held. */
static bool rest_sent(struct stream *s, uint64_t now, uint64_t idle, bool *ret_left)
{
	struct ring_tx *r = &s->snd.ring;
	bool given = false;

	if (!s->snd.held)
		return false;
	*ret_left = true;
	if (!is_idle(s, now, idle) || s->direct.stuck)
		return false;
	if (s->snd.cut.state == CUT_TX_RING) {
		if (ring_tx_refresh(r) || r->rd != r->wr)
			return false;
		given = rest(s, atomic_load(&s->link)->segment.me,
			     large_of(r->buf, r->large, r->size));
		if (!given)		/* the program has locked it */
			s->snd.idle_us = 0;
	} else if (s->snd.cut.state != CUT_TX_TCP) {
		return false;
	}
	if (given || s->snd.cut.state == CUT_TX_TCP) {
		ring_memory_free(s);
		*ret_left = false;
	}
	return given;
}

/* The same of what it receives by. rcv.lock held. */
static bool rest_received(struct stream *s, uint64_t now, uint64_t idle, bool *ret_left)
{
	struct ring_rx *r = &s->rcv.ring;

	if (!s->rcv.used || s->rcv.cut.state != CUT_RX_TCP) {
		s->rcv.idle_us = 0;
		return false;		/* when it is on TCP, ring_memory_unused() */
	}
	*ret_left = true;
	if (!s->rcv.idle_us)
		s->rcv.idle_us = now;
	if (now - s->rcv.idle_us < idle)
		return false;
	*ret_left = false;
	s->rcv.used = 0;
	return rest(s, !atomic_load(&s->link)->segment.me, large_of(r->buf, r->large, r->size));
}

/* Rings that were given back: 0 to 2. Who has a lock is at work. */
static int look(struct stream *s, uint64_t now, uint64_t idle)
{
	struct link *l = atomic_load(&s->link);
	bool left = false;
	int n = 0;

	if (!l || l->path->registered || l->segment.preallocated ||
	    atomic_load(&l->state) != LINK_UP)
		return 0;
	if (lock_try(&s->rcv.lock)) {
		n += rest_received(s, now, idle, &left);
		lock_give(&s->rcv.lock);
	} else {
		left = true;
	}
	if (lock_try(&s->snd.lock)) {
		n += rest_sent(s, now, idle, &left);
		lock_give(&s->snd.lock);
	} else {
		left = true;
	}
	if (left)
		atomic_store(&looking, true);
	return n;
}

static uint64_t step(uint64_t idle) { return idle / LOOKS > LOOK_US ? idle / LOOKS : LOOK_US; }

uint64_t rings_rest(uint64_t now)
{
	uint64_t idle = shim_tunables()->ring_idle;
	int n = 0;

	learn_limit(now);
	if (!idle || (!at && !atomic_load(&looking) && !links_rest(now, idle)))
		return UINT64_MAX;
	if (!at) {
		if (!next_us)
			next_us = now + step(idle);
		if (now < next_us)
			return next_us;
		round_us = now;
		/* first: who has something meanwhile says so again */
		atomic_store(&looking, false);
	}
	for (; at < streams_top(); at++) {
		if (n >= AT_ONCE)
			return now;
		n += look(stream_at(at), round_us, idle);
	}
	at = 0;
	if (links_rest(now, idle))
		atomic_store(&looking, true);
	next_us = atomic_load(&looking) ? now + step(idle) : 0;
	return next_us ? next_us : UINT64_MAX;
}

void rings_after_fork(void)
{
	atomic_store(&held_bytes, 0);
	atomic_store(&held_rings, 0);
	atomic_store(&looking, false);
	at = 0;
	next_us = 0;
	for (uint32_t i = 0; i < streams_top(); i++)
		if (stream_at(i)->snd.held)
			stream_at(i)->snd.held = 0;
}
