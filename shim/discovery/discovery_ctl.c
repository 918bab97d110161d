/*
 * discovery_ctl.c - the records on the control socket of a link (link.h): how a stream gets a slot
 * and gives it back. Every record is checked here and passed to the code that it concerns.
 * bind_proof.c has the proofs that must come before a slot.
 * Owns which slots of a link are in use (slot_used) and who asked for one. search.c decides when
 *   and where to ask, and is told of each answer.
 * Background thread only. Locks: a stream's rcv.lock, its snd.lock or both, each for one step;
 * below rcv.lock a link's out_lock.
 */
#include "discovery/discovery_ctl.h"

#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "conn/stream_cut.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "discovery/across.h"
#include "discovery/identity.h"
#include "link/other_version.h"
#include "link/rights.h"
#include "policy/log.h"

void search_say(struct link *l, unsigned type, uint32_t slot, uint32_t index)
{
	struct ctl_msg m = { .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot,
			     .index = index };

	link_send(l, &m);
}
/* ---- asking for a slot ---- */

/* Who asked last for a slot: index + 1. Saves a walk over all streams; a guess, checked. */
#define ASKED_PLACES 16384
#define ASKED_PLACE(link, slot) (((link) * 4099u + (slot)) % ASKED_PLACES)
static uint32_t asked_last[ASKED_PLACES];

int search_ask(struct stream *s, struct link *l, const struct identity *end)
{
	int slot, r;

	if (!search_fits(l, s) ||
	    (!l->path->far && !l->across && !search_owned_by(s, end, l->peer_uid)))
		return -EAGAIN;
	slot = link_slot_alloc(l);
	if (slot < 0)
		return slot == -ENOMEM ? slot : -EAGAIN;
	r = search_send_bind(l, s, atomic_load(&s->gen), CTL_BIND, (uint32_t)slot,
			 l->wire ? ++l->life : 0);
	if (r) {
		link_slot_free(l, (uint32_t)slot);
		return r == -EBADF ? -EAGAIN : r;
	}
	s->search.state = SEARCH_ASKED;
	s->search.link = l->index;
	s->search.slot = (uint32_t)slot;
	asked_last[ASKED_PLACE(l->index, (uint32_t)slot)] = s->index + 1;
	l->slot_used[slot] = 1;
	atomic_store(&l->streams[slot], NULL);
	s->search.due_us = UINT64_MAX;
	return 0;
}

/* ---- what comes ---- */

/* Is it still the connection of its names? One that was reset, and is not closed yet, leaves them
 * to another, whose other end somebody can prove. The fd is its own, or the answer is a guess.
 * Where the kernel does not say, it tells no counts either, and nothing is cut over. */
static bool has_its_names(const struct stream *s)
{
	int state = stream_tcp_state(atomic_load(&s->fd));

	return state < 0 || state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT ||
	       state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2;
}

/* Has the server's stream the ends `mine`? */
static bool has_ends(struct stream *s, const struct ctl_tuple *mine)
{
	struct sockaddr_storage p = s->addr.peer;
	struct ctl_tuple x;

	if (atomic_load(&s->mode) == MODE_FREE || atomic_load(&s->dead) || !search_awaits(s))
		return false;
	sockaddr_normal(&p);	/* known since accept(): a cheap first look */
	tuple_from(&x, (void *)&p, (void *)&p);
	if (x.pport != mine->pport || memcmp(x.paddr, mine->paddr, 16) ||
	    (!s->addr.known && search_read_names(s)))
		return false;
	tuple_from(&x, (void *)&s->addr.local, (void *)&s->addr.peer);
	return tuple_equal(&x, mine) && has_its_names(s);
}

/* It may be bound now: REASON_NONE, or why not. rcv.lock held. */
static enum reason bindable(struct stream *s, enum path_kind path)
{
	if (atomic_load(&s->fd) < 0 || atomic_load(&s->dead) || !s->addr.known)
		return REASON_SHARED;	/* closed since it was found; ask again, for what that is
					 * worth */
	if (stream_tcp_only(s) || atomic_load(&s->fallback.going) || atomic_load(&s->fork_cut))
		return REASON_PEER_REFUSED;
	if (fork_shared(s))
		return REASON_SHARED;
	if (atomic_load(&s->link) || s->search.state == SEARCH_ASKED)
		return REASON_SHARED;	/* still leaving another link, or asking itself: ask
					 * again later */
	return search_allowed(s, path) ? REASON_NONE : REASON_PEER_REFUSED;
}

/* Our stream whose ends are `t` reversed, or NULL. */
static struct stream *with_ends(const struct ctl_tuple *t)
{
	struct ctl_tuple mine;
	struct stream *s;
	bool others;
	uint32_t n;

	tuple_reverse(&mine, t);
	s = stream_accepted_from(mine.pport, &others);
	if (s && has_ends(s, &mine))
		return s;
	n = others ? streams_top() : 0;
	for (uint32_t i = 0; i < n; i++)
		if (has_ends(stream_at(i), &mine))
			return stream_at(i);
	return NULL;
}

/* Our stream that BIND means, and its generation; or NULL. */
static struct stream *find_stream(const struct link *l, const struct ctl_msg *m, uint32_t *gen,
				  enum reason *why)
{
	struct stream *s;

	*why = REASON_NO_PEER_SHIM;
	s = l->across ? across_find(m, why) : with_ends(&m->tuple);
	if (!s)
		return NULL;
	lock_take(&s->rcv.lock);
	*gen = atomic_load(&s->gen);
	*why = bindable(s, l->path->kind);
	lock_give(&s->rcv.lock);
	return *why == REASON_NONE ? s : NULL;
}

/* The proof came before: who has its names since then proved nothing. */
static bool attach(struct stream *s, uint32_t gen, struct link *l, uint32_t slot)
{
	bool ok;

	stream_lock(s);
	ok = atomic_load(&s->gen) == gen && atomic_load(&s->mode) != MODE_FREE &&
	     !atomic_load(&s->dead) && !atomic_load(&s->fallback.going) && !stream_tcp_only(s) &&
	     atomic_load(&s->fd) >= 0 && has_its_names(s);
	if (ok) {
		atomic_store(&s->upgrade, 1);
		stream_attach(s, l, slot);
	}
	stream_unlock(s);
	if (!ok)
		return false;
	search_found(s);
	link_proven(l);
	stat_row_event(s->row, EVENT_LINKED, (uint64_t)l->peer_pid);
	stat_row_reason(s->row, REASON_NONE);
	log_line(3, "fd %d: bound to slot %u of link %u (pid %d)", atomic_load(&s->fd), slot,
		 l->index, l->peer_pid);
	bg_look(s);
	stream_wake(s);
	return true;
}

static void give_back_slot(struct link *l, uint32_t slot);

/* Why the peer's stream gets no slot. r: what search_send_bind() said. */
static enum reason not_bound(const struct link *l, int r)
{
	if (l->path->far)
		return REASON_PEER_REFUSED;
	if (r == -EAGAIN || r == -EBADF)
		return REASON_SHARED;
	return r == -EMFILE || r == -ENFILE ? REASON_NO_FDS : REASON_NO_DISCOVERY;
}

static void got_bind(struct link *l, const struct ctl_msg *m, int fd)
{
	enum reason why;
	struct stream *s;
	uint32_t gen = 0;
	int r;

	if (link_slot_ours(l, m->slot) || l->slot_used[m->slot]) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	s = find_stream(l, m, &gen, &why);
	if (s && l->path->far && !search_same_host(l, s)) {
		stat_add(STAT_refused, 1);
		log_line(2, "fd %d: another host than that of its peer asks for it",
			 atomic_load(&s->fd));
		s = NULL;
		why = REASON_IDENTITY;
	}
	if (s && fd == CTL_FD_LOST) {
		log_line(2, "fd %d: no descriptor is left for its upgrade", atomic_load(&s->fd));
		s = NULL;
		why = REASON_NO_FDS;
	}
	if (s && atomic_load(&l->distrusted)) {
		s = NULL;
		why = REASON_OTHER_USER;
	}
	if (s && l->across && (why = across_is_one(l, s, m, fd)))
		s = NULL;
	if (s && !l->path->far && !l->across && (r = search_proves(l, s, fd))) {
		why = search_not_proved(s, r);
		if (why == REASON_IDENTITY)
			log_line(2, "fd %d: pid %d could not prove that it holds the other end",
				 atomic_load(&s->fd), l->peer_pid);
		s = NULL;
	}
	if (!s) {
		search_say(l, CTL_NOT_MINE, m->slot, why);
		return;
	}
	/* The connector has reset a common one. */
	if (l->wire ? segment_slot_reset(&l->segment, m->slot) != 0 :
		      !segment_slot_have(&l->segment, m->slot)) {
		search_say(l, CTL_NOT_MINE, m->slot, REASON_NO_MEMORY);
		return;
	}
	/* The client attaches when it has BOUND, and the socket keeps order: we may go first. */
	r = search_send_bind(l, s, gen, CTL_BOUND, m->slot, m->epoch);
	if (r) {
		search_say(l, CTL_NOT_MINE, m->slot, not_bound(l, r));
		return;
	}
	if (l->wire)
		l->wire->peer(l, m->slot, m->off, m->index);
	l->slot_used[m->slot] = 1;
	if (s->search.path != l->path->kind) {
		search_name_close(s);	/* where the other kind of link looks */
		s->search.path = l->path->kind;
	}
	if (!attach(s, gen, l, m->slot))
		give_back_slot(l, m->slot);
}

static bool has_asked(struct stream *s, const struct link *l, uint32_t slot)
{
	return atomic_load(&s->mode) != MODE_FREE && s->search.state == SEARCH_ASKED &&
	       s->search.link == l->index && s->search.slot == slot;
}

/* The stream that asked for the slot, or NULL. */
static struct stream *asked(struct link *l, uint32_t slot)
{
	uint32_t n = streams_top(), guess = asked_last[ASKED_PLACE(l->index, slot)];

	if (guess && guess <= n && has_asked(stream_at(guess - 1), l, slot))
		return stream_at(guess - 1);
	for (uint32_t i = 0; i < n; i++)
		if (has_asked(stream_at(i), l, slot))
			return stream_at(i);
	return NULL;
}

/* slot_used: 1 in use, 2 we said UNBIND, 4 the peer did; 7: free again. What its rings took is
 * given back by the side that may take it again. */
static void slot_left(struct link *l, uint32_t slot, uint8_t bit)
{
	l->slot_used[slot] |= bit;
	if (l->slot_used[slot] != 7)
		return;
	if (l->wire)
		l->wire->left(l, slot);
	if (link_slot_ours(l, slot))
		link_slot_left(l, slot);
	l->slot_used[slot] = 0;
}

static void give_back_slot(struct link *l, uint32_t slot)
{
	if (l->wire)
		l->wire->unbind(l, slot);
	search_say(l, CTL_UNBIND, slot, 0);
	slot_left(l, slot, 2);
}

static void got_bound(struct link *l, const struct ctl_msg *m, int fd)
{
	struct stream *s = asked(l, m->slot);
	enum reason why;

	if (!s) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	if (atomic_load(&s->dead) || stream_tcp_only(s) || atomic_load(&s->fallback.going)) {
		s->search.state = SEARCH_FAILED;
		give_back_slot(l, m->slot);
		bg_look(s);
		return;
	}
	if (l->path->far && !search_one_connection(s, &m->tuple)) {
		give_back_slot(l, m->slot);
		stat_add(STAT_refused, 1);
		search_failed(s, REASON_PROXIED, true);
		bg_look(s);
		return;
	}
	if (!l->path->far && (why = search_unproved(l, s, m, fd))) {
		give_back_slot(l, m->slot);
		search_failed(s, atomic_load(&l->distrusted) ? REASON_OTHER_USER : why, false);
		bg_look(s);
		return;
	}
	if (l->wire) {
		l->wire->peer(l, m->slot, m->off, m->index);
	} else if (!segment_slot_have(&l->segment, m->slot)) {
		give_back_slot(l, m->slot);
		search_failed(s, REASON_NO_MEMORY, false);
		bg_look(s);
		return;
	}
	if (!attach(s, atomic_load(&s->gen), l, m->slot)) {	/* it has ended meanwhile */
		give_back_slot(l, m->slot);
		search_failed(s, REASON_SHARED, false);
		bg_look(s);
	}
}

static void got_not_mine(struct link *l, const struct ctl_msg *m)
{
	struct stream *s = asked(l, m->slot);

	if (!s) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	link_slot_free(l, m->slot);
	search_refused(s, l, m->index);
}

static void got_unbind(struct link *l, const struct ctl_msg *m)
{
	struct stream *s = atomic_load(&l->streams[m->slot]);

	if (!l->slot_used[m->slot] || l->slot_used[m->slot] & 4) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	slot_left(l, m->slot, 4);
	if (s) {
		s->fallback.unbind_got = 1;
		bg_look(s);
	}
}

static void got_bell(struct link *l, const struct ctl_msg *m, int *fd)
{
	int old, n;

	if (m->index >= BELL_MAX || (*fd >= 0 && !bell_plausible(*fd))) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	if (*fd == CTL_FD_LOST) {
		search_say(l, CTL_BELL, 0, m->index);
		return;
	}
	if (*fd < 0) {		/* the peer had no fd left for that bell of ours */
		atomic_store(&bells[m->index].deaf, 1);
		atomic_store(&bells_deaf, true);
		if (bell_made_mask() >> m->index & 1)
			bell_ring_fd(bells[m->index].fd);
		return;
	}
	if (atomic_load(&l->peer_bell[m->index]) < 0 && !link_user_has_room(l->peer_uid)) {
		search_say(l, CTL_BELL, 0, m->index);	/* as if there were none left; the caller
							 * closes it */
		return;
	}
	n = fd_internal_keep(*fd);
	*fd = -1;
	if (n < 0) {
		search_say(l, CTL_BELL, 0, m->index);
		return;
	}
	old = atomic_exchange(&l->peer_bell[m->index], n);
	if (old >= 0)
		fd_internal_close(old);
	else
		l->peer_bells++;
	bell_ring_fd(n);	/* whoever rang before we knew */
}

/* What a sender hears of it. snd.lock held. */
static void got_cut_tx(struct stream *s, enum cut_ev ev, const struct ctl_msg *m)
{
	if (ev == CUT_EV_CUT_OK) {
		s->snd.declined = 0;
	} else if (ev == CUT_EV_FROZEN &&
		   (s->snd.cut.state == CUT_TX_ARMING || s->snd.cut.state == CUT_TX_CUT_SENT)) {
		/* It would rather stay on TCP, and mostly our CUT has crossed that word: do not
		 * pester it. */
		s->earn.next_us = now_us() + (20000ull << s->snd.declined);
		if (s->snd.declined < 6)
			s->snd.declined++;
	}
	if (ev == CUT_EV_ARMED && s->snd.cut.state == CUT_TX_ARMING)
		stream_fit_tcp(s);
	stream_tx_event(s, ev, m->epoch, m->off);
	/* Who waits for room may not try again before we say so. */
	if (cut_tx_on_ring(&s->snd.cut) && !stream_roomy(s))
		atomic_store(&s->snd.ring_full, 1);
}

static void got_cut(struct link *l, const struct ctl_msg *m)
{
	static const uint8_t evs[] = {
		[CUT_MSG_ARM] = CUT_EV_ARM, [CUT_MSG_ARMED] = CUT_EV_ARMED,
			[CUT_MSG_CUT] = CUT_EV_CUT,
		[CUT_MSG_CUT_OK] = CUT_EV_CUT_OK, [CUT_MSG_REWIND] = CUT_EV_REWIND,
		[CUT_MSG_FROZEN] = CUT_EV_FROZEN, [CUT_MSG_BACK] = CUT_EV_BACK,
	};
	struct stream *s = atomic_load(&l->streams[m->slot]);
	enum cut_ev ev;

	if (!m->index || m->index >= sizeof evs) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	if (!s)
		return;		/* left already */
	ev = evs[m->index];
	log_line(4, "fd %d: got %s e=%u off=%lu", atomic_load(&s->fd), cut_msg_name(m->index),
		 m->epoch, m->off);
	switch (ev) {
	case CUT_EV_ARMED:
	case CUT_EV_CUT:	/* a direction may be cut over, of a connection that was reset
				 * meanwhile */
		stream_lock(s);
		if (ev == CUT_EV_ARMED)
			got_cut_tx(s, ev, m);
		else
			stream_rx_event(s, ev, m->epoch, m->off);
		stream_look_for_reset(s);
		stream_unlock(s);
		break;
	case CUT_EV_CUT_OK:
	case CUT_EV_FROZEN:
		lock_take(&s->snd.lock);
		got_cut_tx(s, ev, m);
		lock_give(&s->snd.lock);
		break;
	default:
		lock_take(&s->rcv.lock);
		stream_rx_event(s, ev, m->epoch, m->off);
		lock_give(&s->rcv.lock);
	}
	bg_look(s);
}

/* The stream of a slot that the peer has not left; NULL: we have, or it breaks the rules, as it
 * does if the path cannot do it. */
static struct stream *on_slot(struct link *l, uint32_t slot, bool can)
{
	if (!can || !l->slot_used[slot] || l->slot_used[slot] & 4) {
		link_kill(l, REASON_PROTOCOL);
		return NULL;
	}
	return atomic_load(&l->streams[slot]);
}

/* Its ring stays as it is, and who looks at it shall see why. */
static void no_room(struct stream *s)
{
	stat_add(STAT_rings_kept_small, 1);
	stat_row_event(s->row, EVENT_RING_KEPT, 0);
	log_line(3, "fd %d: its ring stays small: rdma_memory is used up", atomic_load(&s->fd));
}

static void got_more(struct link *l, const struct ctl_msg *m)
{
	struct ctl_msg ring = { .type = CTL_RING, .version = CTL_VERSION, .slot = m->slot };
	struct stream *s = on_slot(l, m->slot, l->wire);
	const uint8_t *mem;
	int64_t size = 0;

	if (s)
		size = l->wire->large_land(l, m->slot, &mem, &ring.off, &ring.index);
	if (size == -ENOMEM)
		no_room(s);
	if (size <= 0)
		return;		/* it goes on with the one that it has */
	lock_take(&s->rcv.lock);
	s->rcv.ring.large = mem;
	s->rcv.ring.large_size = (uint64_t)size;
	lock_give(&s->rcv.lock);
	ring.epoch = (uint32_t)size;
	link_send(l, &ring);
}

static void got_ring(struct link *l, const struct ctl_msg *m)
{
	struct stream *s = on_slot(l, m->slot, l->wire);
	uint8_t *mem;
	int64_t size = 0;

	if (s)
		size = l->wire->large_peer(l, m->slot, m->epoch, m->off, m->index, &mem);

	if (size == -ENOMEM)
		no_room(s);
	else if (size < 0)
		link_kill(l, REASON_PROTOCOL);
	if (size <= 0)
		return;
	lock_take(&s->snd.lock);
	s->snd.ring.large = mem;
	s->snd.ring.large_size = (uint64_t)size;
	lock_give(&s->snd.lock);
}

static void settle(struct link *l)
{
	search_orphaned(l);
	search_hello_settled(l);
	if (l->path->far)
		net_link_settled(l, l->why ? l->why : REASON_NO_PEER_SHIM);
}

/* He does not keep to the protocol: all of his end at once. */
static void end_links_of(uid_t uid)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++) {
		struct link *l = &links[i];
		int st = atomic_load(&l->state);

		if ((st == LINK_UP || st == LINK_HELLO) && !l->path->far && l->peer_uid == uid) {
			link_kill(l, REASON_PROTOCOL);
			settle(l);
		}
	}
}

/* A record that may come now, on a slot that there is. *fd: what came with it, CTL_FD_LOST or -1;
 * -1 afterwards if it was kept. */
static void act_on(struct link *l, const struct ctl_msg *m, int *fd)
{
	struct stream *s;

	switch (m->type) {
	case CTL_WELCOME:
		l->path->welcomed(l, m, *fd);
		if (atomic_load(&l->state) == LINK_UP && (!l->across || across_pass_diag(l)))
			search_hello_settled(l);
		break;
	case CTL_PROOF:		/* that was before the link was up */
	case CTL_DIAG:
		if (m->type == CTL_DIAG && across_got_diag(l, *fd))
			*fd = -1;
		else
			link_kill(l, REASON_PROTOCOL);
		break;
	case CTL_BELL:
		if (l->path->far)
			link_kill(l, REASON_PROTOCOL);
		else
			got_bell(l, m, fd);
		break;
	case CTL_DEAD:
		if (l->wire)
			l->wire->peer_says_dead(l);
		else
			link_kill(l, REASON_PROTOCOL);
		break;
	case CTL_BIND:
		got_bind(l, m, *fd);
		break;
	case CTL_BOUND:
		got_bound(l, m, *fd);
		break;
	case CTL_NOT_MINE:
		got_not_mine(l, m);
		break;
	case CTL_UNBIND:
		got_unbind(l, m);
		break;
	case CTL_CUT:
		got_cut(l, m);
		break;
	case CTL_MORE:
		got_more(l, m);
		break;
	case CTL_RING:
		got_ring(l, m);
		break;
	case CTL_DEVICE:
		s = on_slot(l, m->slot, l->path->device);
		if (s)
			device_grant(s);
		break;
	case CTL_DEVICE_RING:
		s = on_slot(l, m->slot, l->path->device);
		if (s)
			device_granted(s, m);
		break;
	}
}

/* One record. False: the link is gone. */
static bool one_record(struct link *l)
{
	struct ctl_msg m;
	int fd, r = link_recv(l, &m, &fd);
	bool welcome;

	if (!r)
		return false;
	welcome = atomic_load(&l->state) == LINK_HELLO;
	if (r == CTL_OTHER && welcome) {
		l->other = m.version;
		version_heard(&m, l->path->far ? 0 : l->peer_pid);
		link_kill(l, REASON_VERSION);
		return false;
	}
	if (r < 0) {
		l->hung_up = welcome && r == -EPIPE;
		if (r == -EPROTO && !l->path->far && !atomic_load(&l->distrusted) &&
		    !rights_taken_from(l->peer_uid))
			end_links_of(l->peer_uid);
		link_kill(l, r == -EPROTO || r == CTL_OTHER ? REASON_PROTOCOL : REASON_PEER_GONE);
		return false;
	}
	if (welcome && l->across && !l->greeted) {
		rights_done(fd);
		if (!across_greeted(l, &m))
			link_kill(l, REASON_IDENTITY);
		return l->ctl >= 0;
	}
	if (welcome && !l->path->far && m.type == CTL_NOT_MINE) {	/* it has no room */
		link_kill(l, REASON_PEER_REFUSED);
		return false;
	}
	if (welcome != (m.type == CTL_WELCOME) || (!welcome && m.slot >= l->segment.slots) ||
	    m.type == CTL_HELLO) {
		rights_done(fd);
		link_kill(l, REASON_PROTOCOL);
		return false;
	}
	act_on(l, &m, &fd);
	if (!rights_done(fd))
		link_kill(l, REASON_PROTOCOL);
	return l->ctl >= 0;
}

void search_link_ready(uint32_t i)
{
	struct link *l = &links[i];
	int st;

	if (i >= LINK_MAX)
		return;
	for (int n = 0; n < 256; n++) {		/* fair to other links */
		st = atomic_load(&l->state);
		if (st != LINK_UP && st != LINK_HELLO)
			break;
		if (!one_record(l))
			break;
	}
	if (atomic_load(&l->state) == LINK_DEAD)
		settle(l);
}

void search_unbind(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	if (!l)
		return;
	stream_lock(s);
	/* An error that the application has not heard of yet is told by us. */
	if ((stream_both_on_tcp(s) && (atomic_load(&s->dead) || !atomic_load(&s->err))) ||
	    (atomic_load(&s->dead) &&
	     (atomic_load(&l->state) != LINK_UP || atomic_load(&s->peer_gone)))) {
		uint32_t slot = s->slot;
		bool live = atomic_load(&l->state) == LINK_UP;

		stream_detach(s);
		s->fallback.unbind_sent = 1;
		stream_publish_state(s);
		if (live)
			give_back_slot(l, slot);
	}
	stream_unlock(s);
}
