/*
 * stream_full.c - the watch over a full ring: its reader may be late, or nobody may read before we
 * have sent as much as TCP would take. late.c gets what is seen here, and says how long to wait.
 * Its decision is carried out here: fallback, with a back-off.
 *
 * A blocking sender watches while it waits. For a sender that does not block the background thread
 * watches.
 *
 * Locks: snd.lock, unless a function says otherwise.
 */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "base/procs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_send.h"
#include "link/link.h"
#include "link/path.h"

/* A send that has a timeout is to have gone by TCP before that is over. */
static struct late_bounds bounds(const struct stream *s)
{
	const struct policy_tunables *t = shim_tunables();
	uint64_t half = s->opt.snd_timeo_us / 2;

	return (struct late_bounds){ stream_sought(s)->far ? t->rdma_overflow : t->overflow,
				     half && half < t->overflow_max ? half : t->overflow_max };
}

/* Looks at a half without its lock: what comes of it is a time. */
static uint8_t glance_rx(const struct stream *s)
{
	return __atomic_load_n(&s->rcv.cut.state, __ATOMIC_ACQUIRE);
}

/*
 * May the other end be waiting for room, too? He is if he says so and we have not read all that
 * he sent; on TCP he cannot say so. Words of his are believed here, for they only decide how
 * long we wait.
 */
static bool peer_waits(struct stream *s)
{
	const struct ring_shared *in = s->rcv.ring.sh;
	uint64_t wr = atomic_load_explicit(&in->wr, memory_order_relaxed),
		rd = atomic_load_explicit(&in->rd, memory_order_relaxed);
	uint64_t cut = atomic_load_explicit(&in->cut, memory_order_relaxed);
	int q = 0;

	if (glance_rx(s) == CUT_RX_RING) {
		/* what came before the cut takes nothing of his ring */
		rd = rd > cut ? rd : cut;
		return wr > rd &&
			(s->wired || atomic_load_explicit(&in->tx_want,
				memory_order_relaxed));
	}
	return sys(SYS_ioctl, atomic_load(&s->fd), FIONREAD, &q) >= 0 && q > 0;
}

static uint64_t readers_cpu(const struct stream *s)
{
	const struct link *l = atomic_load(&s->link);

	return l && !l->path->far ? process_cpu_ns(l->peer_pid) : 0;
}

/* Its process would run, and had a processor for less than half of that time: one that computes
 * is late, one that only waits for its turn is not. Of several threads the first is asked. */
static bool no_cpu(const struct stream *s, const struct full_watch *w, uint64_t now)
{
	const struct link *l = atomic_load(&s->link);
	uint64_t had = readers_cpu(s);

	return w->cpu_ns && had >= w->cpu_ns && had - w->cpu_ns < (now - w->since) * 500 &&
	       process_runnable(l->peer_pid, l->peer_start);
}

/* When that was so last, or the watch began. */
static uint64_t starved(const struct stream *s, struct full_watch *w, uint64_t now)
{
	if (no_cpu(s, w, now))
		w->starved = now;
	return w->starved;
}

static void learned(struct stream *s, bool changed)
{
	if (changed)
		stat_row_event(s->row, EVENT_PATIENCE, late_limit(&s->snd.late, bounds(s)));
}

/* Back-off for a reader that does not read; one that is only slow now and then starts anew. */
static void overflow(struct stream *s, uint64_t waited, enum late_verdict v)
{
	uint64_t delay;

	if (s->snd.ring.wr - s->snd.overflow_wr > 16 * s->snd.ring.size)
		s->snd.overflows = 0;
	s->snd.overflow_wr = s->snd.ring.wr;
	delay = 20000ull << s->snd.overflows;
	if (s->snd.overflows < 8)
		s->snd.overflows++;
	s->earn.next_us = now_us() + delay;
	s->snd.left_us = 0;			/* that is its pause, see stream_fell_back() */
	stat_add(STAT_overflows, 1);
	atomic_fetch_add_explicit(&s->row->overflows, 1, memory_order_relaxed);
	stat_row_event(s->row, EVENT_FULL, EVENT_FULL_ARG(waited, v == LATE_BOTH));
	stat_row_reason(s->row, REASON_OVERFLOW);
	learned(s, late_fallback(&s->snd.late, bounds(s), v));
	stream_tx_event(s, CUT_EV_FALLBACK, 0, 0);
	bg_look(s);
}

void full_pause_over(struct stream *s, struct full_watch *w)
{
	if (w->since && ring_tx_progress(&s->snd.ring) != w->progress)
		learned(s, late_back(&s->snd.late, bounds(s), w->seen - w->since));
	w->since = 0;
}

uint64_t full_look(struct stream *s, struct full_watch *w, uint64_t now)
{
	struct late_bounds b = bounds(s);
	enum late_verdict v;

	if (w->since && ring_tx_progress(&s->snd.ring) != w->progress)
		full_pause_over(s, w);
	if (!w->since) {
		*w = (struct full_watch){ now, now, ring_tx_progress(&s->snd.ring), now,
					  readers_cpu(s) };
		return now + b.least;
	}
	w->seen = now;
	v = late_judge(&s->snd.late, b, now - w->since, now - w->since >= b.least && peer_waits(s));
	if (v == LATE_NOBODY && late_spared(b, now, w->since, starved(s, w, now)))
		v = LATE_WAIT;
	if (v == LATE_WAIT)		/* the other end may begin to wait at any time */
		return now - w->since < b.least ? w->since + b.least : now + b.least;
	overflow(s, now - w->since, v);
	w->since = 0;
	return 0;
}
