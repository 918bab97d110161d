/*
 * stream_pull.c - blocks between hosts that the receiver's device reads: how a sender offers them,
 * and a receiver reads them. See pull.h.
 *
 * A sender offers its block, releases its lock, and sleeps until the block was read or nobody took
 * it in time. A receiver that finds an offer in place of bytes has its device read the block into
 * the program's buffer. A sleeper is woken by its bell or by the device.
 */
#include <errno.h>
#include <poll.h>

#include "base/loop.h"
#include "base/shim.h"
#include "base/signals.h"
#include "base/sys.h"
#include "conn/pull.h"
#include "conn/stream_io.h"
#include "conn/stream_wake.h"
#include "conn/turn.h"
#include "gpu/gpu.h"

#define PULL_MOST (16ull << 20)	/* bytes of one offer: what is registered at a time */
#define PIECE     (128u << 10)	/* bytes of one READ */
#define AHEAD     8		/* READs under way for one block; the last of a half is heard of */
/* a reader that is not in its call yet comes within that, or it does something else; for one whose
 * block is larger than the ring its sender would have to wait in any case */
#define TAKE_WITHIN_NS 1000000
#define LATE_WITHIN_NS 20000000
#define SILENT_NS 1000000000	/* a peer that says nothing: the fence */
#define ALIVE_NS  200000000	/* a receiver that reads for long says so as often */
#define LOOK_NS   1000000	/* whoever rings, a sleeper looks again */
#define SKIP_TOLD DIRECT_SKIP_TOLD

static struct link *link_of(const struct stream *s)
{
	return atomic_load_explicit(&s->link, memory_order_relaxed);
}

static const struct path_pull *pull_of(const struct link *l)
{
	return l && l->wire ? l->path->pull : NULL;
}

static void refused(struct stream *s, int err)
{
	stat_add(STAT_pulls_refused, 1);
	stat_row_event(s->row, EVENT_NOT_PULLED, (uint64_t)-err);
}

/* ---- who sleeps ---- */

/* Before the last look: what comes from now on ends the sleep. A descriptor for it, or -1. */
static int sleep_begins(struct stream *s, struct bell *b)
{
	int fd;

	if (!b)
		return -1;
	fd = stream_sleep_on(s, b, 0);
	bell_arm(b);
	return fd;
}

static void sleep_over(struct bell *b)
{
	if (b)
		bell_disarm(b);
}

/* Until something comes for the stream, or so many ns. No lock is held. */
static void sleep_for(struct stream *s, struct bell *b, int wire, uint64_t ns)
{
	struct pollfd p[2] = { { .fd = b ? b->fd : -1, .events = POLLIN },
			       { .fd = wire, .events = POLLIN } };
	struct timespec t = { 0, (long)(b ? ns : ns / 10) };

	/* A nap, where the process may not have two descriptors: nobody can ring it then. */
	if (sys(SYS_ppoll, p, 2, &t, NULL, 0) == -EINVAL)
		sys(SYS_nanosleep, &t, NULL);
	sleep_over(b);
	if (p[0].revents)
		bell_drain(b);
	if (p[1].revents)
		wire_woken(&s->link, wire);
}

/* ---- sender ---- */

ssize_t pull_send(struct stream *s, const void *p, size_t n)
{
	struct link *l = link_of(s);
	const struct path_pull *by = pull_of(l);
	struct pull_offer o = { .addr = (uint64_t)(uintptr_t)p, .epoch = s->snd.cut.epoch };
	struct pull u = { .open = true };
	int r;

	if (!by || n < by->least(l) || !by->can(l) || s->snd.cut.state != CUT_TX_RING ||
	    atomic_load_explicit(&gpu_live, memory_order_relaxed))
		return 0;
	if (direct_skips(&s->direct.backoff[0]))
		return 0;
	n = n < PULL_MOST ? n : PULL_MOST;
	if (usermem_ok(&s->snd.mem, p, n, false) < n)
		return 0;
	r = by->reg(l, o.addr, n, false, &u.mem);
	if (r) {
		refused(s, r);
		direct_tried(&s->direct.backoff[0], false);
		return 0;
	}
	o.len = n;
	o.key = u.mem.rkey;
	if (!by->offer(l, s->slot, &o)) {
		by->dereg(l, &u.mem);
		return 0;
	}
	stat_add(STAT_pulls_offered, 1);
	u.at = o.at;
	u.len = n;
	s->pull = u;
	s->direct.stuck = 1;
	return -EBUSY;
}

/* It is over, with n bytes written and consumed. snd.lock held. */
static void settle(struct stream *s, uint64_t n)
{
	struct link *l = link_of(s);
	const struct path_pull *by = pull_of(l);
	struct ring_tx *r = &s->snd.ring;
	uint32_t put_off = s->pull.put_off;

	if (n) {
		__atomic_store_n(&r->rd, r->wr + n, __ATOMIC_RELEASE);
		__atomic_store_n(&r->wr, r->wr + n, __ATOMIC_RELEASE);
		s->snd.cut.wr += n;
		s->direct.done += n;
		atomic_store_explicit(&r->sh->wr, r->wr, memory_order_release);
		atomic_fetch_add_explicit(&s->row->tx_bytes[s->path], n, memory_order_relaxed);
		stat_add(STAT_pulled, n);
	}
	atomic_store_explicit(&r->sh->offer, RING_OFFER_NONE, memory_order_release);
	if (by) {
		by->settled(l, s->slot, r->wr);
		by->dereg(l, &s->pull.mem);
	}
	direct_tried(&s->direct.backoff[0], n);
	if (s->direct.backoff[0].pause == SKIP_TOLD)
		stat_row_event(s->row, EVENT_NOT_TAKEN, SKIP_TOLD);
	s->pull = (struct pull){ .put_off = put_off };
	s->direct.stuck = 0;
	stream_wake(s);
}

/* TAKEN has come. */
static bool answered(struct stream *s)
{
	struct ring_shared *sh = s->snd.ring.sh;
	uint32_t st = atomic_load_explicit(&sh->offer, memory_order_acquire);

	if (st == RING_OFFERED)
		return false;
	settle(s, st == RING_TAKEN ? atomic_load_explicit(&sh->offer_read_n, memory_order_relaxed)
				   : 0);
	return true;
}

/* From here on nobody reads the block. */
static void fence(struct stream *s)
{
	struct link *l = link_of(s);
	const struct path_pull *by = pull_of(l);

	if (s->pull.fenced || !by)
		return;
	s->pull.fenced = true;
	l->wire->kill(l);
	by->dereg(l, &s->pull.mem);
}

bool pull_puts_off(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off)
{
	struct pull *u = &s->pull;

	if (!u->fenced && answered(s))
		return false;
	switch (ev) {
	case CUT_EV_CLOSE:
	case CUT_EV_FALLBACK:
		u->put_off |= 1u << ev;
		u->hurry = true;
		stream_wake(s);
		return true;
	case CUT_EV_CREDIT:
		return true;
	case CUT_EV_PATH_DEAD:
		fence(s);
		return false;
	case CUT_EV_FROZEN:
		/* The reader has so much of it, and will not have more. */
		if (epoch == s->snd.cut.epoch)
			settle(s, off > u->at && off - u->at <= u->len ? off - u->at : 0);
		return false;
	default:
		return false;
	}
}

void pull_over(struct stream *s)
{
	settle(s, 0);
	s->pull.put_off = 0;
}

/* What a sender who waits has seen. */
struct watch {
	uint64_t since, heard_ns, within;
	uint32_t heard;
};

/* True: it is settled. snd.lock held. */
static bool look(struct stream *s, struct watch *w)
{
	struct link *l = link_of(s);
	const struct path_pull *by = pull_of(l);
	struct pull *u = &s->pull;
	uint64_t now = now_ns();
	uint32_t heard;

	if (!u->open)
		return true;
	if (!by || atomic_load(&s->peer_gone)) {
		settle(s, 0);
		return true;
	}
	if (u->fenced)
		return false;
	if (answered(s))
		return true;
	if (!by->can(l)) {
		fence(s);
		return false;
	}
	heard = by->heard(l, s->slot);
	if (heard != w->heard || !w->heard_ns) {
		w->heard = heard;
		w->heard_ns = now;
	}
	if (!u->asked && (now - w->since > w->within || u->hurry || thread_signals.put_off)) {
		u->asked = true;
		by->withdraw(l, s->slot);
	}
	if (now - w->heard_ns > SILENT_NS)
		fence(s);
	return false;
}

size_t pull_await(struct stream *s, uint32_t gen)
{
	struct watch w = { .since = now_ns(), .within = s->pull.len > s->snd.ring.size
								? LATE_WITHIN_NS
								: TAKE_WITHIN_NS };
	struct link *l = link_of(s);
	struct bell *b;
	size_t n;

	if (l && l->stat)
		w.within += 2ull * atomic_load(&l->stat->rtt);
	lock_leave(&s->snd.lock);
	b = bell_thread();
	lock_back(&s->snd.lock);
	while (atomic_load_explicit(&s->gen, memory_order_relaxed) == gen) {
		int fd;

		if (b)
			stream_bell_add(s, b, false);
		fd = sleep_begins(s, b);
		stream_look_at_wire(s);
		if (look(s, &w)) {
			sleep_over(b);
			break;
		}
		lock_leave(&s->snd.lock);
		sleep_for(s, b, fd, LOOK_NS);
		lock_back(&s->snd.lock);
	}
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) != gen)
		return 0;
	n = s->direct.done;
	s->direct.done = 0;
	return n;
}

/* ---- receiver ---- */

/* A block on its way. */
struct bringing {
	struct stream *s;
	struct link *l;
	const struct path_pull *by;
	uint32_t slot;
	struct pull_offer o;
	struct pull_mem mem;
	uint64_t to, n;		/* where it goes, how much of it */
	uint64_t posted;	/* bytes */
	uint64_t half[2];	/* READs that end a half of those under way: numbers, 0: none */
	uint64_t alive_ns;
};

/* Half of the READs that may be under way. 0, or -EAGAIN: others have theirs, -ENETDOWN. */
static int post_half(struct bringing *x, uint64_t *ret_seq)
{
	int r = 0;

	*ret_seq = 0;
	for (int i = 0; i < AHEAD / 2 && x->posted < x->n && !r; i++) {
		uint64_t left = x->n - x->posted;
		struct pull_piece p = {
			.from = x->o.addr + x->o.got + x->posted, .to = x->to + x->posted,
			.n = left < PIECE ? (uint32_t)left : PIECE, .lkey = x->mem.lkey,
			.rkey = x->o.key,
		};

		/* one that cannot be posted may leave its forerunner the last */
		p.last = true;
		if (i < AHEAD / 2 - 1 && left > PIECE)
			p.last = false;
		r = x->by->read(x->l, x->slot, &p, ret_seq);
		x->posted += r ? 0 : p.n;
	}
	return r;
}

/* Until that READ is complete. 0 or -ENETDOWN. No lock is held. */
static int wait_for(struct bringing *x, struct bell *b, uint64_t seq)
{
	int r;

	for (;;) {
		int fd = sleep_begins(x->s, b);

		x->l->wire->poll(x->l);
		r = seq ? x->by->done(x->l, seq) : 0;
		if (r)
			break;
		sleep_for(x->s, b, fd, seq ? LOOK_NS : LOOK_NS / 20);
		if (now_ns() - x->alive_ns > ALIVE_NS) {
			x->alive_ns = now_ns();
			x->by->alive(x->l, x->slot);
		}
		if (!seq)
			return 0;
	}
	sleep_over(b);
	return r < 0 ? r : 0;
}

/* All of it. 0 or -errno: what lies there is nothing. No READ is under way behind it. */
static int bring(struct bringing *x)
{
	struct bell *b = bell_thread();
	int r = x->by->reg(x->l, x->to, x->n, true, &x->mem), e;
	uint64_t seq;

	if (r)
		return r;
	if (b)
		stream_bell_add(x->s, b, false);
	x->alive_ns = now_ns();
	do {
		r = post_half(x, &seq);
		if (r == -EAGAIN && !seq && !x->half[0])
			r = wait_for(x, b, 0);
		e = x->half[0] && r != -ENETDOWN ? wait_for(x, b, x->half[0]) : 0;
		x->half[0] = seq;
		if (e)
			r = e;
	} while (r != -ENETDOWN && (x->posted < x->n || x->half[0]));
	if (r == -ENETDOWN)	/* the device reads nothing more into the buffer */
		x->l->wire->kill(x->l);
	x->by->dereg(x->l, &x->mem);
	return r == -ENETDOWN ? r : 0;
}

/* The stream is where it was: the bytes count. rcv.lock held. */
static void took(struct stream *s, uint64_t n)
{
	__atomic_store_n(&s->rcv.ring.rd, s->rcv.ring.rd + n, __ATOMIC_RELEASE);
	s->rcv.ring.wr = s->rcv.ring.rd;
	s->rcv.cut.rd += n;
	atomic_store_explicit(&s->one_way, 0, memory_order_relaxed);
	stat_add(STAT_pulled, n);
}

ssize_t pull_read(struct stream *s, const struct iovec *iov, int n, bool waits)
{
	struct bringing x = { .s = s, .l = link_of(s), .slot = s->slot };
	size_t room = n > 0 ? iov->iov_len : 0;
	struct turn was, is;
	int r;

	x.by = pull_of(x.l);
	if (!x.by || !x.by->begin(x.l, x.slot, s->rcv.cut.epoch, s->rcv.ring.rd, &x.o))
		return 0;
	x.n = x.o.len - x.o.got < room ? x.o.len - x.o.got : room;
	if (!waits || room < DIRECT_ROOM ||
	    atomic_load_explicit(&gpu_live, memory_order_relaxed) ||
	    usermem_ok(&s->rcv.mem, iov->iov_base, x.n, true) < x.n) {
		x.by->end(x.l, x.slot, x.o.serial, 0, true);
		return 0;
	}
	x.to = (uint64_t)(uintptr_t)iov->iov_base;
	s->rcv.takes++;
	was = turn_of(s);
	link_read_enter();
	lock_give(&s->rcv.lock);
	r = bring(&x);
	lock_take(&s->rcv.lock);
	is = turn_of(s);
	if (!same_turn(&was, &is)) {
		/* on the same slot still, it may be another stream's: then the number is not */
		if (was.link == is.link && was.sh == is.sh && was.gen == is.gen)
			x.by->end(x.l, x.slot, x.o.serial, 0, true);
		r = -ESTALE;
	} else if (r) {
		if (r != -ENETDOWN)
			refused(s, r);
		x.by->end(x.l, x.slot, x.o.serial, 0, true);
		r = 0;
	} else {
		took(s, x.n);
		x.by->end(x.l, x.slot, x.o.serial, x.n, false);
		r = (int)x.n;
	}
	link_read_leave();
	return r;
}

void pull_frozen(struct stream *s, uint32_t epoch)
{
	struct link *l = link_of(s);
	const struct path_pull *by = pull_of(l);

	if (by)
		by->frozen(l, s->slot, epoch);
}
