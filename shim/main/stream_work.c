/*
 * stream_work.c - see stream_work.h.
 *
 * What changes without a word (a child that closes its copy, a kernel's count that did not stand
 * still, bytes that come by TCP before an end) is asked for again by the time that stream_work()
 * returns.
 */
#include "main/stream_work.h"

#include "base/fdtab.h"
#include "base/procs.h"
#include "base/seen.h"
#include "base/shim.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "conn/stream_wake.h"
#include "discovery/across.h"
#include "discovery/discovery_net.h"
#include "discovery/search.h"
#include "link/link.h"

/* A full ring that a non-blocking sender left: see overflow_check() for the blocking one. */
static uint64_t watch_full(struct stream *s, uint64_t now)
{
	uint64_t due = UINT64_MAX;
	bool more = false;

	lock_take(&s->snd.lock);
	if (cut_tx_on_ring(&s->snd.cut))
		more = stream_more_room(s);
	if (!cut_tx_on_ring(&s->snd.cut)) {
		atomic_store(&s->snd.ring_full, 0);
		s->snd.full.since = 0;
	} else if (ring_tx_refresh(&s->snd.ring) || stream_roomy(s)) {
		atomic_store(&s->snd.ring_full, 0);
		full_pause_over(s, &s->snd.full);
	/* nothing to go back to */
	} else if (s->snd.cut.state != CUT_TX_RING || s->snd.tcp_full) {
		s->snd.full.since = 0;
		due = now + 1000;
	} else {
		due = full_look(s, &s->snd.full, now);
	}
	if (!due) {
		atomic_store(&s->snd.ring_full, 0);
		due = UINT64_MAX;
	}
	lock_give(&s->snd.lock);
	if (more)
		stream_wake(s);
	return due;
}

/* The sender is closing: FIN may go when all is consumed; or the application's shutdown is done. */
static void watch_close(struct stream *s)
{
	lock_take(&s->snd.lock);
	/* The last call has left. One that never does, because its thread was cancelled in it,
	 * delays the FIN until both directions are back on TCP. */
	if (atomic_load(&s->dead) && !s->snd.cut.closing && atomic_load(&s->fd) >= 0 &&
	    !atomic_load(&s->plain.tx))
		stream_tx_event(s, CUT_EV_CLOSE, 0, 0);
	if (s->snd.cut.closing && cut_tx_on_ring(&s->snd.cut)) {
		segment_want_room(&s->snd.ring);
		ring_tx_refresh(&s->snd.ring);
		stream_tx_event(s, CUT_EV_CREDIT, 0, s->snd.ring.rd);
	}
	lock_give(&s->snd.lock);
}

#define LAST_WORDS_US 200000
#define LAST_BREATH_US 5000000

/* The peer's process is gone, or it gave the slot up. */
static uint64_t link_gone(struct stream *s, struct link *l, uint64_t now)
{
	uint64_t again = now + 1000;
	bool settled, late;

	if (!s->lost.us)	/* another thread found the link dead just now */
		s->lost.us = now;
	event_ring(&stream_steps);	/* who leaves at the end of the process no longer waits
					 * for it */
	late = now > s->lost.us + LAST_WORDS_US &&
	       (now > s->lost.us + LAST_BREATH_US || atomic_load(&l->state) != LINK_DEAD ||
		!link_peer_ending(l));
	/* Its FIN is on its way, behind bytes that nobody reads. */
	if (late && across_peer_closing(s)) {
		late = false;
		again = now + LAST_WORDS_US / 10;
	}
	if (atomic_load(&l->state) == LINK_DEAD)
		return stream_link_lost(s, late) ? UINT64_MAX : again;
	/* UNBIND while we are not on TCP is a reset by its close(), or the reader has not read
	 * to the end. */
	stream_lock(s);
	if (s->snd.cut.state == CUT_TX_ARMING)	/* our ARM crossed its UNBIND: nobody will answer */
		stream_tx_event(s, CUT_EV_FALLBACK, 0, 0);
	settled = stream_both_on_tcp(s) ||
		  (s->snd.cut.state == CUT_TX_TCP && s->rcv.cut.back_pending);
	if (!settled) {
		stream_peer_dead(s);
		settled = atomic_load(&s->peer_gone) || stream_both_on_tcp(s);
		if (!settled && late)
			stream_reset(s);
	}
	stream_unlock(s);
	return settled ? UINT64_MAX : again;
}

/* Looks at a half without its lock: what is done because of it is decided again under the lock,
 * and if it comes too late to be seen here, whoever changed it calls bg_look() after.
 * tests/tsan.supp knows these by name. */
static uint8_t glance_tx(const struct stream *s) { return s->snd.cut.state; }
static bool glance_closing(const struct stream *s) { return s->snd.cut.closing; }

static uint64_t force(struct stream *s, uint64_t now, uint64_t every)
{
	bool cut;

	if (!s->fallback.next_force_us)
		s->fallback.next_force_us = now + every;
	if (now < s->fallback.next_force_us)
		return s->fallback.next_force_us;
	s->fallback.next_force_us = now + every;
	stream_lock(s);
	cut = !stream_both_on_tcp(s);
	stream_unlock(s);
	if (cut && !glance_closing(s)) {
		stat_row_reason(s->row, REASON_FORCED);
		stream_ask_fallback(s);
	}
	return s->fallback.next_force_us;
}

static uint64_t watch_poller(struct stream *s, uint64_t now)
{
	struct poller *p = &s->rcv.poller;
	uint32_t asked;
	uint64_t due;
	bool polls, goes_on;

	lock_take(&s->rcv.lock);
	asked = s->rcv.poller.asked;
	polls = s->rcv.poller.polls && !atomic_load(&s->waits_seen);
	lock_give(&s->rcv.lock);
	if (!polls)
		return UINT64_MAX;
	goes_on = poller_goes_on(p, asked, now, &due);
	SEEN("poller", s, "look", asked, now, goes_on);
	if (!goes_on && stream_poller_gone(s)) {
		p->due_us = 0;
		return UINT64_MAX;
	}
	return due;
}

/* twice that, then four times, to 0.6 s: perhaps nobody makes room for them */
#define END_US 5000

/* Whoever waits for the end alone hears nothing of the bytes of TCP's that come before it. */
static uint64_t await_end(struct stream *s, uint64_t now)
{
	uint8_t looks;
	bool waits;

	lock_take(&s->rcv.lock);
	waits = s->rcv.cut.state == CUT_RX_RING && !stream_final_seen(s) &&
		!atomic_load(&s->peer_gone);
	looks = atomic_load(&s->rcv.end_awaited);
	atomic_store(&s->rcv.end_awaited, !waits ? 0 : looks < 7 ? looks + 1 : looks);
	lock_give(&s->rcv.lock);
	if (waits)
		return now + (END_US << looks);
	stream_wake(s);
	return UINT64_MAX;
}

/* A thread that is still inside a plain call on it will bring it back here. */
static void finish(struct stream *s)
{
	int fd = atomic_exchange(&s->fd, -1);

	search_stop(s);
	if (fd >= 0 && fdtab_internal(fd))
		fd_internal_close(fd);
	stream_try_free(s, atomic_load(&s->gen));
}

/* The peer sends to a stream that the application has closed, and no call is left in the kernel
 * that sends. */
static void late_input(struct stream *s)
{
	stream_lock(s);
	if (atomic_load(&s->fd) >= 0 && s->snd.cut.closing && !atomic_load(&s->peer_gone) &&
	    stream_unread_input(s))
		stream_abort(s);
	stream_unlock(s);
}

/* Stays on TCP, for good or until it has moved much more: whoever closes it frees it, without
 * us. */
static void release(struct stream *s)
{
	bool later = s->search.state == SEARCH_LATER;

	stream_lock(s);
	if ((stream_tcp_only(s) || later) && !atomic_load(&s->link) && !atomic_load(&s->dead) &&
	    s->search.state != SEARCH_ASKED) {
		hold_end(s);
		search_stop(s);
		if (later) {
			search_anew(s);
			if (!stream_tcp_only(s))
				atomic_store(&s->mode, MODE_NEW);
		}
		atomic_store(&s->upgrade, 0);
	}
	stream_unlock(s);
}

/* The stream is on TCP and gives its place on the link back. Perhaps a forked child of the peer
 * goes on with it, or the path is back in a while: then it is as new. When to come again,
 * UINT64_MAX: when asked. */
static uint64_t leave(struct stream *s, struct link *l, uint64_t now)
{
	bool path_died = l->path_told, strange = atomic_load(&l->distrusted);
	bool again = (s->fallback.unbind_got || path_died || strange) && !stream_tcp_only(s);
	uint64_t due = UINT64_MAX;

	search_unbind(s);
	stream_lock(s);
	/* From here a close frees the stream itself. */
	if (again && !atomic_load(&s->link) && !atomic_load(&s->dead) && !atomic_load(&s->err)) {
		hold_end(s);
		search_anew(s);
		earn_over(s);
		earn_anew(s);
		s->fallback.unbind_got = s->fallback.unbind_sent = 0;
		s->lost.us = 0;
		s->lost.told = 0;
		atomic_store(&s->upgrade, 0);
		atomic_store(&s->mode, MODE_NEW);
		/* Mostly its end is near, as the peer's has come: it did leave TCP, and is none
		 * of those that have not earned that. */
		stat_row_reason(s->row, path_died ? REASON_PATH_DEAD
					: strange ? REASON_OTHER_USER
						  : REASON_NONE);
		if (strange) {		/* the search ends at once, unless the policy has changed
					 * again */
			due = s->search.due_us = now;
			atomic_store(&s->upgrade, 1);
		}
		if (path_died) {	/* it has earned */
			s->search.lost += s->search.lost < 6;
			due = s->search.due_us =
				now + (shim_tunables()->rdma_retry << (s->search.lost - 1));
			atomic_store(&s->upgrade, 1);
		}
	}
	stream_unlock(s);
	earn_tell();
	return due;
}

/* From a link that ends because of its peer's user. He may ask for the path again and again. */
static void send_to_tcp(struct stream *s)
{
	if (atomic_load(&s->earn.stopped) != REASON_OTHER_USER)
		search_policy(s);
	stream_lock(s);
	stream_decline(s);
	stream_unlock(s);
}

/* For one reason or the other. snd.lock held. */
static bool waits(struct stream *s)
{
	if (stream_pauses(s))
		return true;
	if (!fork_shared(s))
		return false;
	stat_row_reason(s->row, REASON_SHARED);
	return true;
}

/* Nothing is left that the kernel would not say by itself. Both locks held. */
static bool all_is_tcp(struct stream *s)
{
	return stream_both_on_tcp(s) && stream_keeps_link(s) && !s->snd.cut.closing &&
	       !s->snd.lost && !atomic_load(&s->err) && !atomic_load(&s->shut.rd_owed) &&
	       !s->rcv.eof && !atomic_load(&s->rcv.fin_known) && !s->rcv.end_peeked &&
	       !atomic_load(&s->fallback.rdhup) && !s->rcv.fin_held && !stream_rx_promised(s) &&
	       !stream_arriving(s);
}

/* Who pauses does without what it does not need: its calls are the kernel's, as before it had a
 * link. When the pause is over, or the peer wants to cut, it is a candidate again. */
static void rest(struct stream *s)
{
	uint8_t mode = atomic_load(&s->mode), to = MODE_ATTACHED;

	if (mode != MODE_TCP_FOR_NOW && (mode != MODE_ATTACHED || !stream_falls_back_often(s)))
		return;
	stream_lock(s);
	if (stream_falls_back_often(s) && all_is_tcp(s) && waits(s))
		to = MODE_TCP_FOR_NOW;
	mode = to == MODE_TCP_FOR_NOW ? MODE_ATTACHED : MODE_TCP_FOR_NOW;
	if (atomic_load(&s->link) && atomic_compare_exchange_strong(&s->mode, &mode, to)) {
		s->snd.synced = s->rcv.synced = 0;	/* nobody counts meanwhile */
		stream_owes_nothing(s);
	}
	stream_unlock(s);
}

bool stream_restless(const struct stream *s)
{
	return atomic_load(&s->dead) || glance_closing(s) || glance_tx(s) == CUT_TX_RESENDING;
}
/* It is on no link (yet): looks for the other end. True: that is all, come again at *due, 0:
 * never. */
static bool work_without_link(struct stream *s, uint64_t now, bool dead, uint64_t *due)
{
	bool asks = atomic_load(&s->upgrade) && !dead && !stream_tcp_only(s), stay = false;

	/* a call finds nobody when it ends */
	if (dead && s->search.state != SEARCH_ASKED) {
		finish(s);
		*due = 0;
		return true;
	}
	if (asks && fork_shared(s)) {
		/* A process that shares it may end without a word. */
		stat_row_reason(s->row, REASON_SHARED);
		*due = earlier(hold_watch(s, now), now + 100000);
		return true;
	}
	if (asks) {
		*due = search_work(s, now);
		stay = *due != UINT64_MAX || s->search.state == SEARCH_ASKED ||
		       s->search.state == SEARCH_CALL;
		if (atomic_load(&s->link))
			return false;
	}
	*due = earlier(*due, hold_watch(s, now));
	if (!stay && *due == UINT64_MAX)
		*due = 0;
	release(s);
	return true;
}

/* What is watched while it is on a link: when to look again. */
static uint64_t work_watches(struct stream *s, struct link *l, uint64_t now, bool dead)
{
	uint64_t due = hold_watch(s, now), every = shim_tunables()->force_cut_every;

	if (atomic_load(&s->snd.ring_full))
		due = earlier(due, watch_full(s, now));
	if (glance_tx(s) == CUT_TX_TCP && !dead && atomic_load(&l->out_waiting))
		due = earlier(due, now + 5000);
	if (glance_tx(s) == CUT_TX_TCP && s->earn.next_us > now)
		due = earlier(due, s->earn.next_us);
	if (!dead && atomic_load(&s->nonblock) && !atomic_load(&s->waits_seen))
		due = earlier(due, watch_poller(s, now));
	if (atomic_load(&s->rcv.end_awaited))
		due = earlier(due, await_end(s, now));
	if (atomic_load(&s->direct.watched))
		due = earlier(due, direct_watch(s, now));
	if (every && !dead && atomic_load(&l->state) != LINK_DEAD)
		due = earlier(due, force(s, now, every));
	return due;
}

/* May it leave the link? Only from TCP, also when the link is dead: until close() the application
 * may look at the rings. Never after a reset, whose error may still be ours to tell. *due: when to
 * look again if not. */
static bool may_leave(struct stream *s, const struct link *l, uint64_t now, uint64_t *due)
{
	uint64_t later;

	if (!stream_both_on_tcp(s) || atomic_load(&s->peer_gone))
		return false;
	/* A device that is to go is not kept open for it, and what is TCP-only the kernel alone
	 * answers for. */
	if (!l->path_told && !stream_tcp_only(s) && (later = stream_told_under_way(s))) {
		*due = earlier(*due, now + later);
		return false;
	}
	if (stream_arriving(s)) {
		*due = earlier(*due, now + 500);
		return false;
	}
	return true;
}

uint64_t stream_work(struct stream *s, uint64_t now)
{
	uint64_t due = UINT64_MAX;
	struct link *l;
	bool dead, ours, parts, held, stay;

	/* A closed stream that never asked for an upgrade is freed by its closer; others by us
	 * alone. */
	stream_lock(s);
	dead = atomic_load(&s->dead);
	ours = atomic_load(&s->mode) != MODE_FREE && (!dead || atomic_load(&s->upgrade));
	l = atomic_load(&s->link);
	stream_unlock(s);
	if (!ours)
		return 0;
	if (!l) {
		if (work_without_link(s, now, dead, &due))
			return due;
		l = atomic_load(&s->link);
	}
	/* The peer's process is gone, or it gave the slot up while bytes may be under way: a
	 * reset. */
	if (atomic_load(&l->state) == LINK_DEAD || s->fallback.unbind_got)
		due = earlier(due, link_gone(s, l, now));
	if (atomic_load(&l->distrusted))
		send_to_tcp(s);
	rest(s);
	if (stream_try_cut(s))
		due = earlier(due, now + 1000);
	lock_take(&s->snd.lock);
	if (s->snd.cut.state == CUT_TX_RESENDING && stream_resend(s))
		due = earlier(due, now + 500);
	lock_give(&s->snd.lock);
	watch_close(s);
	if (dead)		/* after the FIN that watch_close may have sent */
		late_input(s);
	due = earlier(due, work_watches(s, l, now, dead));
	parts = s->fallback.unbind_got || stream_tcp_only(s) || l->path_told ||
		atomic_load(&l->distrusted);
	held = (dead || parts) && device_still_held(s, now);
	if (held)
		due = earlier(due, now + 2000);
	if (!held && !dead && parts && may_leave(s, l, now, &due))
		due = earlier(due, leave(s, l, now));
	if (dead || stream_tcp_only(s) || s->fallback.unbind_got) {	/* an ARM that came after */
		stream_lock(s);
		stream_decline(s);
		stream_unlock(s);
	}
	if (dead && !held &&
	    (stream_both_on_tcp(s) || atomic_load(&s->peer_gone) ||
	     atomic_load(&l->state) == LINK_DEAD)) {
		search_unbind(s);
		if (!atomic_load(&s->link)) {
			finish(s);
			return 0;
		}
	}
	stay = due != UINT64_MAX || stream_restless(s);
	if (!stay)
		release(s);
	return stay ? due : 0;
}

bool stream_credit_came(struct stream *s)
{
	bool came = false;

	if (!glance_closing(s) || atomic_load(&s->mode) == MODE_FREE)
		return false;
	lock_take(&s->snd.lock);
	if (s->snd.cut.closing && cut_tx_on_ring(&s->snd.cut)) {
		struct link *l = atomic_load(&s->link);

		if (l->wire) {	/* our bell alone does not arm it */
			atomic_store(&l->bg_waits, true);
			l->wire->arm(l, false);
			l->wire->poll(l);
		}
		ring_tx_refresh(&s->snd.ring);
		came = s->snd.ring.rd == s->snd.ring.wr;
	}
	lock_give(&s->snd.lock);
	return came;
}
