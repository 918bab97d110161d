/*
 * stream_peeked.c - bytes that the reader was shown before it took them, by MSG_PEEK, FIONREAD or a
 * poll.
 *
 * TCP never takes back what it has shown. A rewind sends the ring's bytes once more, by TCP, and
 * meanwhile TCP has only some of them. So while the direction is frozen, bytes that TCP does not
 * have yet are looked at in the ring, where the sender holds them until its BACK is answered. A
 * call that then finds less than was shown waits for the rest, which is on its way through the
 * kernel. If a poll has shown that there is something, a call that finds nothing also waits until
 * the resent bytes are here. The same holds if a waiter was told of a large block that its sender
 * offers, and the next call has no room for it: then the block comes through the ring.
 *
 * And TCP gives all that it has. So a read that wants more than it finds waits for bytes that a cut
 * or a rewind moves at that moment: it would have found these, too, had they gone by TCP.
 *
 * Lock: rcv.lock, taken where a function says so. No thread sleeps while it holds it.
 */
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_end.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_wake.h"
#include "link/link.h"
#include "link/patience.h"
#include "policy/log.h"

/* all that it may wait for takes some 10 us, and nobody rings when it has come; ... */
#define YIELD_NS	50000
#define NAP_NS		50000		/* ... or longer, where others need the processors */
/* TCP tells when it has something; the rest may come otherwise */
#define EMPTY_NS	1000000

void stream_show(struct stream *s, uint64_t n)
{
	if ((s->rcv.cut.state >= CUT_RX_RING || atomic_load(&s->rcv.resent_end) ||
	     stream_rx_coming(s)) &&
	    s->rcv.cut.rd + n > s->rcv.peeked)
		s->rcv.peeked = s->rcv.cut.rd + n;
}

uint64_t stream_patience(struct stream *s, enum patience for_, uint64_t most)
{
	struct link *l;
	uint64_t ns;

	link_read_enter();
	l = atomic_load(&s->link);
	if (for_ == PATIENCE_CALL && l && atomic_load(&l->vain) && most > STREAM_LESS_NS)
		most = STREAM_LESS_NS;
	ns = patience_ns(for_, l, most);
	link_read_leave();
	return ns;
}

void stream_in_vain(struct stream *s, enum patience for_, uint64_t ns)
{
	struct link *l;

	log_line(2, "fd %d: the peer does not end a rewind", atomic_load(&s->fd));
	link_read_enter();
	l = atomic_load(&s->link);
	patience_spent(for_, l, ns);
	if (l)
		atomic_store(&l->vain, true);
	link_read_leave();
}

/* A nap where TCP has bytes already: the kernel tells nobody of more. */
static void nap(int fd, bool some)
{
	struct timespec t = { 0, some ? NAP_NS : EMPTY_NS };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	long r = some ? 1 : sys(SYS_ppoll, &p, 1, &t, NULL, 0);

	t.tv_nsec = NAP_NS;
	if (some || (r && !(p.revents & POLLIN)))	/* an end, or no call to be had */
		sys(SYS_nanosleep, &t, NULL);
}

bool stream_await_peeked(struct stream *s, uint32_t gen, int fd, bool some,
			struct stream_peeked *wait)
{
	uint64_t now = now_ns();

	if (!wait->until) {
		wait->since = now;
		wait->until = now + stream_patience(s, PATIENCE_CALL,
						    some ? STREAM_LESS_NS : STREAM_PATIENCE_NS);
	}
	if (now < wait->until) {
		if (now < wait->since + YIELD_NS)
			sys(SYS_sched_yield);
		else
			nap(fd, some);
		return true;
	}
	if (some) {
		stream_in_vain(s, PATIENCE_CALL, now - wait->since);
		return false;
	}
	lock_take(&s->rcv.lock);
	if (atomic_load(&s->gen) == gen) {	/* once is enough */
		stream_owes_nothing(s);
		atomic_store(&s->rcv.late_epoch, s->rcv.cut.epoch);
	}
	lock_give(&s->rcv.lock);
	stream_in_vain(s, PATIENCE_CALL, now - wait->since);
	return false;
}

uint64_t stream_held(struct stream *s, uint64_t from)
{
	struct ring_rx *r = &s->rcv.ring;

	if (s->rcv.cut.state != CUT_RX_FROZEN || !s->rcv.cut.was_cut || from < r->rd)
		return 0;
	if (from >= r->wr && ring_rx_refresh(r))
		return 0;
	return from < r->wr ? r->wr - from : 0;
}

size_t stream_peek_held(struct stream *s, uint64_t from, const struct iovec *iov, int n)
{
	bool dev;
	uint64_t held = ring_rx_alike(&s->rcv.ring, from, stream_held(s, from), &dev);
	size_t done = 0;

	if (dev)	/* in device memory: TCP brings it */
		return 0;

	for (int i = 0; i < n && done < held; i++) {
		size_t chunk = iov[i].iov_len < held - done ? iov[i].iov_len : held - done;
		size_t good = usermem_ok(&s->rcv.mem, iov[i].iov_base, chunk, true);

		if (good)
			ring_rx_copy(&s->rcv.ring, from + done - s->rcv.ring.rd, iov[i].iov_base,
				     good);
		done += good;
		if (good < chunk)
			break;
	}
	return done;
}

/* Of bytes that come by the ring now, or in a rewind, those up to which offset are known to be the
 * reader's? They are on their way, and TCP may have no room for all of them before it reads. */
static uint64_t sent_to(struct stream *s, bool resent)
{
	uint64_t cut = cut_rx_tcp_left(&s->rcv.cut);

	if (s->rcv.cut.state == CUT_RX_FROZEN && s->rcv.cut.was_cut &&
	    !ring_rx_refresh(&s->rcv.ring))
		return s->rcv.ring.wr;
	if (stream_rx_coming(s))
		return stream_rx_coming_to(s);
	if (!resent)
		return 0;
	return cut == UINT64_MAX || s->rcv.resent_to < s->rcv.cut.rd + cut ? s->rcv.resent_to
									   : s->rcv.cut.rd + cut;
}

bool stream_owes_more(struct stream *s, bool resent)
{
	if (stream_owes(s, 0, resent))
		return true;
	if (atomic_load(&s->peer_gone) || s->rcv.eof ||
	    atomic_load_explicit(&s->rcv.late_epoch, memory_order_relaxed) == s->rcv.cut.epoch)
		return false;
	return stream_rx_coming(s) || (resent && sent_to(s, true) > s->rcv.cut.rd);
}

bool stream_owes_peek(struct stream *s, uint64_t n, bool resent)
{
	if (stream_owes(s, n, resent))
		return true;
	if (s->rcv.cut.state == CUT_RX_FROZEN && s->rcv.cut.was_cut)
		return false;
	return stream_owes_more(s, false) && stream_rx_coming_to(s) > s->rcv.cut.rd + n;
}

/* What a peer says is under way: no more than its rings take beside q bytes that the kernel has. */
static int64_t credible(const struct ring_rx *r, uint64_t n, int q)
{
	uint64_t most = (uint64_t)q + r->dev_size;

	most += r->large_size > r->size ? r->large_size : r->size;
	return (int64_t)(n < most ? n : most);
}

/* Bytes that reads would find one after the other, or -ENOENT: as many as the kernel says. `resent`
 * as for stream_owes(). rcv.lock held. */
static int64_t unread(struct stream *s, int fd, bool resent)
{
	bool ring = atomic_load(&s->link) && s->rcv.cut.state >= CUT_RX_RING;
	uint64_t n, to;
	int q = 0;

	if (stream_final_seen(s))
		stream_show_end(s, s->rcv.end_at);
	if (!ring && s->rcv.peeked <= s->rcv.cut.rd && !resent && !stream_rx_coming(s))
		return -ENOENT;
	if (cut_rx_tcp_left(&s->rcv.cut))
		sys(SYS_ioctl, fd, SIOCINQ, &q);
	n = (uint64_t)q;
	if (s->rcv.cut.state == CUT_RX_RING && n >= cut_rx_tcp_left(&s->rcv.cut)) {
		stream_look_at_wire(s);
		ring_rx_refresh(&s->rcv.ring);
		if (!n && !ring_rx_avail(&s->rcv.ring) && direct_offered(&s->rcv.ring)) {
			direct_read(s, NULL, 0);
			stream_show(s, 1);
		}
		return (int64_t)(n + ring_rx_avail(&s->rcv.ring));
	}
	to = sent_to(s, resent);
	if (to > s->rcv.cut.rd + n)
		n = to - s->rcv.cut.rd;
	if (stream_owes(s, n, resent))
		n = s->rcv.peeked - s->rcv.cut.rd;
	return credible(&s->rcv.ring, n, q);
}

void stream_show_unread(struct stream *s, int fd)
{
	int64_t n = unread(s, fd, stream_rx_resent(s));

	if (n > 0)
		stream_show(s, (uint64_t)n);
}

int stream_unread_count(struct stream *s, uint32_t gen, int fd)
{
	struct stream_peeked wait = { 0, 0 };
	bool owed, resent;
	int64_t n;

	do {
		lock_take(&s->rcv.lock);
		if (!stream_still_named(s, gen, &fd)) {
			lock_give(&s->rcv.lock);
			return -ENOENT;
		}
		resent = stream_rx_resent(s);
		n = unread(s, fd, resent);
		owed = !n && stream_owes_any(s, resent);
		if (n > 0)
			stream_show(s, (uint64_t)n);
		lock_give(&s->rcv.lock);
	} while (owed && stream_await_peeked(s, gen, fd, false, &wait));
	return n > INT32_MAX ? INT32_MAX : (int)n;
}
