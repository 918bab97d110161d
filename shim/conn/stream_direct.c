/*
 * stream_direct.c - large blocks between two processes in one copy: the receiver reads them out of
 * the sender's memory (peer_memory.h).
 *
 * The sender makes an offer (ring.h) inside its send call, and keeps its lock and its CPU for the
 * short time that the copy takes. If nobody takes the offer in time, it is withdrawn and the bytes
 * go through the ring. If the copy lasts longer, the sender releases the lock (direct.stuck) and
 * looks again later. A block that is being copied can be withdrawn, too. Both ends leave TAKING by
 * compare-and-swap, so a receiver that comes too late finds that its copy, whatever it is by then,
 * does not count. The sender withdraws such a block after a second, and before the machine steps,
 * which needs exact S and wr.
 *
 * A block that came from a device and is unchanged since (gpu.h) is offered with the place of its
 * snapshot. Then the receiver may take it from there, on its device. It need not, since the block
 * itself has the same bytes.
 *
 * Lock: snd.lock for the sender's half, rcv.lock for the receiver's.
 */
#include "base/loop.h"
#include "base/own_memory.h"
#include "base/seen.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_wake.h"
#include "conn/turn.h"
#include "gpu/gpu.h"
#include "link/peer_memory.h"

#define TAKE_WITHIN_NS  200000		/* a waiter needs a wake-up at most */
#define VEIL_WITHIN_NS  2000000		/* a block that is not in its buffer yet: that costs more */
/* bytes. To wait as long as the ring would take is no loss ... */
#define RING_PER_NS     2
/* ... and the reader may be busy with the block before for as long as we were with this one: but
 * not longer than that */
#define LATE_WITHIN_NS  20000000
/* both ends offer: time for a thread that only reads to take one */
#define BOTH_WITHIN_NS  40000
/* before a block with a snapshot: what is in the ring is read first */
#define EMPTY_WITHIN_NS 500000
#define STUCK_AFTER_NS  20000000
/* blocks of a link that its peer may begin to read and not finish: it may have been stopped,
 * once */
#define LATE_MOST       1
/* what was left out in so short a pause says nothing against the buffer */
#define PAUSE_SHORT     16

bool direct_offered(const struct ring_rx *r)
{
	return atomic_load_explicit(&r->sh->offer, memory_order_acquire) == RING_OFFERED;
}

static bool was_taken(uint32_t st) { return st == RING_TAKEN || st == RING_READING; }

/* The offer was taken: n bytes are written and consumed at once. */
static ssize_t taken(struct stream *s)
{
	struct ring_shared *sh = s->snd.ring.sh;
	uint64_t n = atomic_load_explicit(&sh->offer_read_n, memory_order_relaxed);

	if (!n || n > s->direct.len)
		return -EPROTO;
	atomic_store_explicit(&sh->offer, RING_OFFER_NONE, memory_order_relaxed);
	s->snd.ring.wr += n;
	s->snd.ring.rd = s->snd.ring.wr;
	s->snd.cut.wr += n;
	atomic_store_explicit(&sh->wr, s->snd.ring.wr, memory_order_release);
	stat_add(STAT_copy_direct, n);
	return (ssize_t)n;
}

enum { PLAIN_BLOCK, SNAPSHOT };

/* What became of an offer: bytes, or nobody took it. */
static void note_hit(struct stream *s, unsigned kind, ssize_t r)
{
	struct direct_backoff *backoff = &s->direct.backoff[kind];

	direct_tried(backoff, r);
	SEEN("direct", backoff, "tried", r != 0, 0, backoff->pause);
	if (backoff->pause == DIRECT_SKIP_TOLD)
		stat_row_event(s->row, EVENT_NOT_TAKEN, backoff->pause);
}

static bool skips(struct direct_backoff *backoff)
{
	bool skip = direct_skips(backoff);

	SEEN("direct", backoff, "block", 0, 0, skip);
	return skip;
}

/* Both ends are in a send call, perhaps with a lock that their readers need: one must give way,
 * or both wait for nothing. Of a plain block it is no miss: the next one may be offered. */
static bool gives_way(const struct stream *s, uint64_t waited)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);

	return waited > BOTH_WITHIN_NS && l->segment.me && direct_offered(&s->rcv.ring);
}

/* The same before an offer: what has come is not read. */
static bool unread(const struct stream *s)
{
	struct ring_shared *in = s->rcv.ring.sh;

	return direct_offered(&s->rcv.ring) ||
	       atomic_load_explicit(&in->wr, memory_order_relaxed) !=
		       atomic_load_explicit(&in->rd, memory_order_relaxed);
}

/* Bytes taken, 0, or as direct_send(). *ret_gave: nobody took it, because this end gave way. */
static ssize_t offer(struct stream *s, const void *p, size_t n, const struct gpu_ref *ref,
		     uint64_t within, bool *ret_gave)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	struct ring_shared *sh = s->snd.ring.sh;
	uint64_t start, now, yielded;

	*ret_gave = false;
	s->direct.len = n;
	atomic_store_explicit(&sh->offer_dev, ref ? ref->desc : 0, memory_order_relaxed);
	if (ref) {
		atomic_store_explicit(&sh->offer_ring, ref->ring, memory_order_relaxed);
		atomic_store_explicit(&sh->offer_at, ref->at, memory_order_relaxed);
	}
	atomic_store_explicit(&sh->offer_sh, (uint64_t)(uintptr_t)sh, memory_order_relaxed);
	atomic_store_explicit(&sh->offer_addr, (uint64_t)(uintptr_t)p, memory_order_relaxed);
	atomic_store_explicit(&sh->offer_len, n, memory_order_relaxed);
	atomic_store_explicit(&sh->offer, RING_OFFERED, memory_order_release);
	stream_notify_peer(s);
	for (start = yielded = now_ns();;) {
		uint32_t st = atomic_load_explicit(&sh->offer, memory_order_acquire);

		if (was_taken(st)) {
			s->direct.held.read = st == RING_READING;
			return taken(s);
		}
		if (st == RING_REFUSED) {
			atomic_store(&sh->offer, RING_OFFER_NONE);
			atomic_store(&l->no_direct, true);
			return 0;
		}
		if (st == RING_DECLINED) {
			atomic_store(&sh->offer, RING_OFFER_NONE);
			return 0;
		}
		now = now_ns();
		if (st == RING_OFFERED && now - start > within) {
			if (now < s->direct.until && !unread(s)) {
				s->direct.stuck = 1;
				return -EBUSY;
			}
			if (atomic_compare_exchange_strong(&sh->offer, &st, RING_OFFER_NONE))
				return 0;
			continue;
		}
		if (st == RING_OFFERED && gives_way(s, now - start)) {
			*ret_gave = atomic_compare_exchange_strong(&sh->offer, &st,
				RING_OFFER_NONE);
			if (*ret_gave)
				return 0;
			continue;
		}
		if (now - start > STUCK_AFTER_NS) {
			if (st != RING_TAKING)
				return -EPROTO;
			s->direct.stuck = 1;
			return -EBUSY;
		}
		if (now - yielded > 5000) {	/* perhaps it is this CPU that the receiver needs */
			sys(SYS_sched_yield);
			yielded = now_ns();
		}
		arch_pause();
	}
}

/* Are our addresses what the peer may see, still? He reads by the number of the process that made
 * the link: a copy of it, of which no handler knows, would give him what its parent has there. */
static bool shows(struct link *l)
{
	int r;

	if (!memory_is_ours())
		return false;
	r = peer_memory_may(l);
	if (r == -EPERM)
		atomic_store(&l->no_direct, true);
	return !r;
}

#define LEAST_PAGE 4096

/* What is not there yet, as of a file on a slow disk, our call waits for, and not whoever reads
 * it, who may have others to serve. */
static void make_present(const void *p, size_t n)
{
	const volatile uint8_t *at = p;

	for (size_t i = 0; i < n; i += LEAST_PAGE)
		(void)at[i];
	(void)at[n - 1];
}

ssize_t direct_send(struct stream *s, const void *p, size_t n)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	struct direct_backoff *backoff = &s->direct.backoff[PLAIN_BLOCK];
	bool gave;
	ssize_t r;

	if (atomic_load_explicit(&l->no_direct, memory_order_relaxed))
		return 0;
	if (skips(backoff) || !shows(l))
		return 0;
	if (usermem_ok(&s->snd.mem, p, n, false) < n)
		return 0;
	make_present(p, n);
	s->direct.until = 0;
	r = offer(s, p, n, NULL, TAKE_WITHIN_NS, &gave);
	if (!gave && r != -EBUSY)	/* that is known when it is settled */
		note_hit(s, PLAIN_BLOCK, r);
	return r;
}

/* What is in the ring goes first; its reader is told and is probably at work. */
static bool ring_empties(struct stream *s)
{
	uint64_t start = now_ns(), now, yielded = start;

	stream_notify_peer(s);
	while (!ring_tx_refresh(&s->snd.ring)) {
		if (s->snd.ring.rd == s->snd.ring.wr)
			return true;
		now = now_ns();
		if (now - start > EMPTY_WITHIN_NS || (now - start > BOTH_WITHIN_NS && unread(s)))
			return false;
		if (now - yielded > 5000) {
			sys(SYS_sched_yield);
			yielded = now_ns();
		}
		arch_pause();
	}
	return false;
}

/* n bytes of the block whose snapshot is held were taken, and are counted. */
static void had(struct stream *s, size_t n)
{
	struct gpu_ref ref = { .rec = s->direct.held.rec, .len = n };
	bool used = n && atomic_load_explicit(&s->snd.ring.sh->offer_dev, memory_order_relaxed);

	if (used && s->direct.held.read)
		device_read(s, &ref, s->snd.ring.wr);
	else
		gpu_unref(&ref, used);
	if (s->device.out)
		device_settle(s);
}

/* What became of an offer with a snapshot: r as of direct_send(). */
static void offer_over(struct stream *s, ssize_t r)
{
	if (r > 0)
		s->direct.in_vain = 0;
	else
		gpu_ref_why(&(struct gpu_ref){ .rec = s->direct.held.rec },
			     REASON_DEVICE_NOT_TAKEN, false);
	note_hit(s, SNAPSHOT, r);
	had(s, r > 0 ? (size_t)r : 0);
}

/* How long a sender who would wait for room in any case waits for a reader. One that offers its
 * block every time, not again if that was in vain. */
static uint64_t worth(const struct stream *s, const struct gpu_ref *ref)
{
	uint64_t ns = TAKE_WITHIN_NS + ref->len / RING_PER_NS,
		 ours = s->direct.last_ns ? now_ns() - s->direct.last_ns : 0;

	if (ref->veiled && s->direct.in_vain)
		return 0;
	ns = ours > ns ? ours : ns;
	if (s->opt.snd_timeo_us && s->opt.snd_timeo_us * 1000 < ns)
		ns = s->opt.snd_timeo_us * 1000;
	return ns < LATE_WITHIN_NS ? ns : LATE_WITHIN_NS;
}

ssize_t direct_send_device(struct stream *s, const void *p, struct gpu_ref *ref, bool waits)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	struct direct_held *h = &s->direct.held;
	struct direct_backoff *backoff = &s->direct.backoff[SNAPSHOT];
	bool gave, may = !atomic_load_explicit(&l->no_direct, memory_order_relaxed) && shows(l) &&
			 device_room(s);
	uint64_t start = now_ns();
	ssize_t r = 0;

	*h = (struct direct_held){ .rec = ref->rec };
	/* One that is not in its buffer yet is worth every wait. */
	if (!may || (!ref->veiled && skips(backoff))) {
		if (may)
			gpu_ref_why(ref, REASON_DEVICE_NOT_TAKEN, backoff->pause <= PAUSE_SHORT);
		had(s, 0);
	} else {
		s->direct.until = waits ? start + worth(s, ref) : 0;
		if (ring_empties(s))
			r = offer(s, p, ref->len, ref,
				  ref->veiled ? VEIL_WITHIN_NS : TAKE_WITHIN_NS, &gave);
		if (r == -EBUSY)	/* held until direct_settle() */
			h->held = 1;
		else
			offer_over(s, r);
	}
	s->direct.last_ns = now_ns();
	return r;
}

bool direct_late(struct stream *s)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);

	if (atomic_load_explicit(&s->snd.ring.sh->offer, memory_order_relaxed) != RING_TAKING)
		return false;
	if (atomic_fetch_add(&l->withdrawn, 1) >= LATE_MOST)
		atomic_store(&l->no_direct, true);
	return true;
}

bool direct_settle(struct stream *s, bool now)
{
	struct ring_shared *sh = s->snd.ring.sh;
	uint32_t st = atomic_load_explicit(&sh->offer, memory_order_acquire);
	ssize_t n = 0;

	if (!now &&
	    (st == RING_TAKING || (st == RING_OFFERED && now_ns() < s->direct.until && !unread(s))))
		return false;
	if (st == RING_OFFERED)		/* only one with a snapshot stands so long */
		s->direct.in_vain = 1;
	while (st == RING_TAKING || st == RING_OFFERED)	/* withdrawn, or else it has just ended */
		if (atomic_compare_exchange_strong(&sh->offer, &st, RING_OFFER_NONE))
			break;
	s->direct.stuck = 0;
	s->direct.held.read = st == RING_READING;
	if (was_taken(st)) {
		n = taken(s);
		if (n > 0) {	/* of others ring_send() counts them */
			atomic_fetch_add_explicit(&s->row->tx_bytes[s->path], (uint64_t)n,
						  memory_order_relaxed);
			s->direct.done += (uint64_t)n;
		}
	}
	if (s->direct.held.held) {
		s->direct.held.held = 0;
		offer_over(s, n);
	} else {
		note_hit(s, PLAIN_BLOCK, n);
	}
	atomic_store(&sh->offer, RING_OFFER_NONE);
	stream_wake(s);		/* other threads wait until they may send, or for an edge */
	return true;
}

/* A take ends, unless the block was withdrawn meanwhile. */
static bool take_ends(struct ring_shared *sh, enum ring_offer how)
{
	uint32_t st = RING_TAKING;

	return atomic_compare_exchange_strong(&sh->offer, &st, how);
}

/* n bytes were copied, or are, out of their snapshot. False: they do not count. */
static bool account(struct stream *s, size_t n, bool reading)
{
	struct ring_shared *sh = s->rcv.ring.sh;

	atomic_store_explicit(&sh->offer_read_n, n, memory_order_relaxed);
	if (!take_ends(sh, reading ? RING_READING : RING_TAKEN))
		return false;
	s->rcv.ring.rd += n;
	s->rcv.ring.wr = s->rcv.ring.rd;
	s->rcv.cut.rd += n;
	/* its sender stands by: no time to let anything gather */
	atomic_store_explicit(&s->one_way, 0, memory_order_relaxed);
	atomic_store_explicit(&sh->rd, s->rcv.ring.rd, memory_order_relaxed);
	return true;
}

bool direct_read_over(struct stream *s, bool wait)
{
	struct direct_reading *d = &s->direct.reading;

	if (!d->to)
		return true;
	if (d->lost || !gpu_read_over(&d->read, wait))
		return false;
	atomic_store_explicit(&s->rcv.ring.sh->offer_read, d->to, memory_order_release);
	direct_forget(s);
	return true;
}

void direct_forget(struct stream *s)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);

	if (l)
		atomic_fetch_sub_explicit(&l->reading, s->direct.reading.count,
					  memory_order_relaxed);
	s->direct.reading = (struct direct_reading){ .last_us = s->direct.reading.last_us };
}

#define WATCH_US 10000

/* The peer may need the room, or end its context, and our program may not receive again. While
 * it does, the watch goes on: to begin it anew costs a wake-up. */
uint64_t direct_watch(struct stream *s, uint64_t now)
{
	uint64_t due = now + WATCH_US, since;

	if (!lock_try(&s->rcv.lock))
		return due;
	since = s->direct.reading.last_us + WATCH_US;
	if (since > now) {
		due = since;
	} else if (direct_read_over(s, false) || s->direct.reading.lost) {
		atomic_store(&s->direct.watched, 0);
		due = UINT64_MAX;
	}
	lock_give(&s->rcv.lock);
	return due;
}

/* A copy may be put behind one that is under way, but no more than that is kept from the peer. */
#define READ_AHEAD (4ull << 20)
#define READ_BLOCKS 8		/* of the sender's 16 */
static bool may_read_on(struct stream *s)
{
	const struct direct_reading *d = &s->direct.reading;

	return !d->to ||
	       (!d->lost && s->rcv.ring.rd - d->from < READ_AHEAD && d->count < READ_BLOCKS) ||
	       direct_read_over(s, true);
}

/* The next take would have to wait for it soon. Not after each block: to ask the driver takes a
 * tenth of the time of a small one. */
void direct_idle(struct stream *s)
{
	const struct direct_reading *d = &s->direct.reading;
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);

	if (d->to && (d->count >= READ_BLOCKS / 2 || s->rcv.ring.rd - d->from >= READ_AHEAD ||
		      atomic_load_explicit(&l->reading, memory_order_relaxed) >= READ_BLOCKS))
		direct_read_over(s, false);
}

/* A take from the peer's device. */
static ssize_t take_device(struct stream *s, struct gpu_take *t, size_t n, const struct iovec *iov,
			   int niov)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	struct direct_reading *d = &s->direct.reading;
	bool reading = t->early;
	int e;

	if (!account(s, n, reading)) {
		gpu_take_drop(t);
		return 0;
	}
	stat_add(STAT_copy_device, n);
	e = gpu_take_end(t, iov, niov);
	if (reading) {
		if (!d->to)
			d->from = s->rcv.ring.rd - n;
		/* elsewhere; if that hangs, the peer is told nothing more of this stream */
		if (!gpu_read_next(&d->read, &t->read)) {
			d->lost = !gpu_read_over(&d->read, true);
			gpu_read_next(&d->read, &t->read);
		}
		d->to = s->rcv.ring.rd;
		d->last_us = now_us();
		d->count++;
		atomic_fetch_add_explicit(&l->reading, 1, memory_order_relaxed);
		if (!d->read.ev)
			direct_read_over(s, false);
		else if (!atomic_exchange(&s->direct.watched, 1))
			bg_look(s);
	}
	return e ? -EIO : (ssize_t)n;
}

/*
 * Reads the peer's memory, in a copy that may never end: so our lock is free meanwhile, and neither
 * the background thread nor a fork nor who closes waits for it. The program's signal handlers in
 * this thread do. -ESTALE: the stream went on without us, and nothing of it may be looked at before
 * it has been found again.
 */
static ssize_t read_apart(struct stream *s, const struct iovec *iov, int n, uint64_t from,
			  size_t len)
{
	struct turn was, is;
	struct peer_read p;
	int r;

	s->rcv.takes++;		/* a later take of another thread ends ours */
	was = turn_of(s);
	r = peer_memory_begin(was.link, was.sh, iov, n, from, len, &p);
	if (r)
		return r;
	lock_leave(&s->rcv.lock);
	peer_memory_copy(&p);
	lock_back(&s->rcv.lock);
	is = turn_of(s);
	if (same_turn(&was, &is))
		return peer_memory_end(was.link, &p);
	peer_memory_wipe(&p);
	if (was.link == is.link && was.sh == is.sh && was.gen == is.gen && was.takes == is.takes)
		take_ends(was.sh, RING_DECLINED);
	return -ESTALE;
}

/* Bytes that are on their way from the peer's device; 0: none, -ESTALE. */
static ssize_t begin_device(struct stream *s, struct gpu_offer *o, size_t len,
			    const struct iovec *iov, int n, struct gpu_take *t)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	struct gpu_found found;
	ssize_t r;

	if (!gpu_take_finds(l->peer_pid, o, len, &found)) {
		struct iovec to = { &found.d, sizeof found.d };

		if (!found.wanted)
			return 0;
		r = read_apart(s, &to, 1, o->desc, sizeof found.d);
		if (r == -ESTALE)
			return r;
		if (r != sizeof found.d)
			return 0;
	}
	return (ssize_t)gpu_take_begin(l->peer_pid, o, &found, len, iov, n, may_read_on(s), t);
}

/* Who takes a block in parts takes as many offers as parts: what is smaller than DIRECT_MIN is
 * faster through the ring. */
static size_t least_room(struct ring_shared *sh)
{
	return atomic_load_explicit(&sh->offer_dev, memory_order_relaxed) ? DIRECT_ROOM
		: DIRECT_MIN;
}

static ssize_t take_offer(struct stream *s, const struct iovec *iov, int n)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	struct ring_shared *sh = s->rcv.ring.sh;
	uint32_t st = RING_OFFERED;
	size_t room = 0, len;
	struct gpu_offer o;
	bool few;
	ssize_t r;

	if (n > PEER_CHUNKS)
		n = PEER_CHUNKS;
	for (int i = 0; i < n; i++)
		room += iov[i].iov_len;
	few = room < least_room(sh);
	if (!atomic_compare_exchange_strong(&sh->offer, &st, few ? RING_DECLINED : RING_TAKING) ||
	    few)
		return 0;
	if (atomic_load_explicit(&l->no_read, memory_order_relaxed)) {
		take_ends(sh, RING_REFUSED);
		return 0;
	}
	o.addr = atomic_load_explicit(&sh->offer_addr, memory_order_relaxed);
	len = atomic_load_explicit(&sh->offer_len, memory_order_relaxed);
	if (len > room)
		len = room;
	o.desc = atomic_load_explicit(&sh->offer_dev, memory_order_relaxed);
	if (o.desc && atomic_load_explicit(&gpu_receives, memory_order_relaxed)) {
		struct gpu_take t;

		o.ring = atomic_load_explicit(&sh->offer_ring, memory_order_relaxed);
		o.at = atomic_load_explicit(&sh->offer_at, memory_order_relaxed);
		r = begin_device(s, &o, len, iov, n, &t);
		if (r > 0)
			return take_device(s, &t, (size_t)r, iov, n);
		if (r)
			return r;
	}
	atomic_store_explicit(&sh->offer_dev, 0, memory_order_relaxed);
	if (atomic_load_explicit(&gpu_live, memory_order_relaxed))
		gpu_overwrite(iov, n);
	r = read_apart(s, iov, n, o.addr, len);
	if (r == -ESTALE)
		return r;
	if (r <= 0) {
		/* A bad address at either end is the call's fault, not the system's: the ring
		 * finds out whose. */
		take_ends(sh, r == -EPERM ? RING_REFUSED : RING_DECLINED);
		return 0;
	}
	return account(s, (size_t)r, false) ? r : 0;
}

ssize_t direct_read(struct stream *s, const struct iovec *iov, int n)
{
	ssize_t r = take_offer(s, iov, n);

	if (r != -ESTALE)	/* a sender that has released its lock waits for it */
		stream_consumed(s);
	return r;
}
