/*
 * stream.c - the life of a stream: how it is made with its socket, shared by descriptors that dup()
 * makes, and falls back; and its socket options and ioctls. stream_close.c closes it, stream_view.c
 * says what a poll may report of it.
 *
 * Locks: the two direction locks as in stream.h.
 */
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#include "base/loop.h"
#include "base/sock.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_end.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "conn/stream_wait.h"
#include "conn/stream_wake.h"
#include "policy/log.h"

/* Everything but what survives reuse: the background thread may still have it on its lists, a
 * late caller may still take a lock, and an epoll_ctl() that came too late takes its item out by
 * itself. */
static void blank(struct stream *s)
{
	char *base = (char *)s;
	size_t life = offsetof(struct stream, life), earn = offsetof(struct stream, earn);
	size_t moves = offsetof(struct stream, moves), after_moves = moves + sizeof s->moves;
	size_t tx = offsetof(struct stream, snd), after_tx = tx + sizeof s->snd.lock;
	size_t rx = offsetof(struct stream, rcv), after_rx = rx + sizeof s->rcv.lock;
	size_t reg = offsetof(struct stream, reg), after_reg = reg + sizeof s->reg;

	stream_lock(s);
	memset(base, 0, life);
	memset(base + earn, 0, moves - earn);
	memset(base + after_moves, 0, tx - after_moves);
	memset(base + after_tx, 0, rx - after_tx);
	memset(base + after_rx, 0, reg - after_rx);
	memset(base + after_reg, 0, offsetof(struct stream, index) - after_reg);
	stream_unlock(s);
	s->search.fd = -1;
	s->rcv.end_at = RING_NO_FINAL;
	cut_tx_init(&s->snd.cut);
	cut_rx_init(&s->rcv.cut);
}

/* A socket counts when it is connected: a listener, or one that never was, is no connection. */
static void count_connection(struct stream *s)
{
	stat_row_reason(s->row, !stream_tcp_only(s)	   ? REASON_NOT_EARNED
				: atomic_load(&s->fd) <= 2 ? REASON_STDIO
							   : REASON_FOREIGN_WAIT);
	stat_row_publish(s->row);
	stat_add(STAT_conns, 1);
}

/* Peer's port -> index + 1 of the stream that was accepted from it last, and whether others with
 * that port lived then: saves a walk over all of them, also to whoever asks for one that is not
 * here. */
static _Atomic uint32_t accepted_from[65536];
static _Atomic uint64_t port_shared[65536 / 64];

static uint16_t peer_port(const struct stream *s)	/* sin_port and sin6_port are in the same
							 * place */
{
	return ntohs(((const struct sockaddr_in *)&s->addr.peer)->sin_port);
}

void stream_enter_port(struct stream *s)
{
	uint16_t port = peer_port(s);
	uint32_t was = atomic_exchange(&accepted_from[port], s->index + 1);
	struct stream *o = was && was != s->index + 1 ? stream_at(was - 1) : NULL;

	if (o && atomic_load(&o->fd) >= 0 && peer_port(o) == port)
		atomic_fetch_or(&port_shared[port / 64], 1ull << port % 64);
}

static void set_peer(struct stream *s, const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		memcpy(&s->addr.peer, sa, sizeof(struct sockaddr_in));
	else if (sa->sa_family == AF_INET6)
		memcpy(&s->addr.peer, sa, sizeof(struct sockaddr_in6));
	else
		return;
	stream_enter_port(s);
}

_Atomic bool stream_past_us;

struct stream *stream_new(int fd, enum stream_role role, bool nonblock, const struct sockaddr *peer)
{
	bool ok, connected = peer;
	struct stream *s;

	shim_stat_first(fd);
	if (atomic_load_explicit(&loop_left, memory_order_relaxed))
		loop_thread_left();
	s = stream_slab_take();
	if (!s)
		return NULL;
	blank(s);
	stream_slab_begin(s);
	s->role = (uint8_t)role;
	s->marked = role == ROLE_SERVER;	/* inherited */
	/* nobody can look before it has a mode and is in the table */
	atomic_store_explicit(&s->nonblock, nonblock, memory_order_relaxed);
	atomic_store_explicit(&s->connected, connected, memory_order_relaxed);
	atomic_store_explicit(&s->fd, fd, memory_order_relaxed);
	atomic_store_explicit(&s->nfds, 1, memory_order_relaxed);
	s->row = stat_row_alloc();
	stream_count_here(s);
	atomic_store_explicit(&s->row->fd, (uint32_t)fd, memory_order_relaxed);
	atomic_store_explicit(&s->row->role, (uint8_t)role, memory_order_relaxed);
	if (peer)
		set_peer(s, peer);
	atomic_store_explicit(&s->mode,
			      fd <= 2 || atomic_load_explicit(&stream_past_us, memory_order_relaxed)
				      ? MODE_TCP_ONLY
				      : MODE_NEW,
			      memory_order_release);
	if (connected)
		count_connection(s);
	fdtab_set(fd, FD_STREAM, s, &ok);
	if (!ok) {
		stream_free(s);
		return NULL;
	}
	if (connected && (!shim_tunables()->earn_bytes || earn_early(s)))
		stream_earned(s);
	return s;
}

struct stream *stream_accepted_from(uint16_t port, bool *ret_others)
{
	uint32_t i = atomic_load(&accepted_from[port]);

	*ret_others = atomic_load(&port_shared[port / 64]) >> port % 64 & 1;
	return i ? stream_at(i - 1) : NULL;
}

/* The other end may earn, and look, before this one has moved what marks others. */
static bool may_earn_early(void)
{
	const struct policy_tunables *t = shim_tunables();

	return t->earn_bytes < MARK_BYTES || t->earn_rounds * 2 < MARK_TURNS;
}

static void mark_before_connect(struct stream *s)
{
	if (!s->search.connect_us)
		s->search.connect_us = now_us();
	if (may_earn_early())
		stream_mark(s);
}

/* As a socket that never had a connection; what the program has set stays. False: the background
 * thread knows the old one. Both locks held. */
static bool begin_again(struct stream *s)
{
	if (atomic_load(&s->link) || atomic_load(&s->upgrade) || atomic_load(&s->mode) != MODE_NEW)
		return false;
	atomic_store(&s->connected, 0);
	atomic_store(&s->shut.rd, 0);
	atomic_store(&s->shut.wr, 0);
	atomic_store(&s->shut.rd_owed, 0);
	atomic_store(&s->err, 0);
	atomic_store(&s->one_way, 0);
	atomic_store(&s->fallback.rdhup, 0);
	s->snd.fin_out = s->rcv.fin_held = s->rcv.eof = s->rcv.end_peeked = 0;
	atomic_store(&s->rcv.fin_known, 0);
	s->lost.reset_seen = s->lost.reset_ours = 0;
	atomic_store(&s->fallback.was_fast, 0);
	atomic_store(&s->fallback.crowded, 0);
	s->rcv.end_at = RING_NO_FINAL;
	s->earn.bytes = s->earn.rounds = s->earn.place = 0;
	s->last_turn = s->earn.judged = s->earn.searched = s->earn.firm = s->earn.looked_up = 0;
	s->search.connect_us = s->search.syn_by_us = 0;
	s->search.waits = 0;
	s->learn = (struct learn){ .tries = 0 };
	stream_learn_over(s);
	s->search.syn_known = s->addr.known = 0;
	stream_owes_nothing(s);
	cut_tx_init(&s->snd.cut);
	cut_rx_init(&s->rcv.cut);
	return true;
}

bool stream_before_connect(struct stream *s, uint32_t gen, int fd)
{
	bool ok = true;

	/* The kernel's word: of an earlier connection, or an attempt at one, nothing is left. */
	if ((atomic_load(&s->connected) || s->search.connect_us || s->shut.before) &&
	    stream_tcp_state(fd) == TCP_CLOSE) {
		stream_lock(s);
		if (stream_still_named(s, gen, &fd))
			ok = !s->shut.before && begin_again(s);
		stream_unlock(s);
	}
	if (ok)
		mark_before_connect(s);
	return ok;
}

#define CALL_US 1000000	/* of a sendto() that connects: it has begun by so long ago */

void stream_connect_result(struct stream *s, uint32_t gen, int err)
{
	bool ours;

	if (err && err != EINPROGRESS && err != EISCONN)
		return;
	stream_lock(s);		/* without it the struct may become another stream's now */
	ours = atomic_load(&s->gen) == gen && !atomic_load(&s->dead);
	/* else it is another call, of a client or not */
	if (ours && !atomic_load(&s->connected)) {
		s->role = ROLE_CLIENT;
		atomic_store(&s->connected, 1);
		s->search.syn_by_us = now_us();
		if (!s->search.connect_us)
			s->search.connect_us = s->search.syn_by_us - CALL_US;
		count_connection(s);
	}
	stream_unlock(s);
	if (!ours)
		return;
	mark_before_connect(s);	/* of a sendto() that connects */
	if (!err && (!shim_tunables()->earn_bytes || earn_early(s)))
		stream_earned(s);
}

static int any_fd_of(struct stream *s)
{
	int n = fdtab_top();

	for (int i = fdtab_next(0); i < n; i = fdtab_next(i + 1))
		if (fdtab_stream(i) == s)
			return i;
	return -1;
}

bool stream_drop_number(struct stream *s, int fd, bool closing, bool *ret_last)
{
	if (fdtab_stream(fd) != s)
		return false;
	fdtab_set(fd, closing ? FD_INTERNAL : FD_NONE, &fdtab_closing, NULL);
	*ret_last = atomic_fetch_sub(&s->nfds, 1) == 1;
	if (!*ret_last && atomic_load(&s->fd) == fd)
		atomic_store(&s->fd, any_fd_of(s));
	return true;
}

bool stream_dup(struct stream *s, uint32_t gen, int fd, int newfd)
{
	bool there, ok = false;

	stream_lock(s);
	there = fdtab_stream(fd) == s && atomic_load(&s->gen) == gen;
	if (there)
		fdtab_set(newfd, FD_STREAM, s, &ok);
	if (ok)
		atomic_fetch_add(&s->nfds, 1);
	stream_unlock(s);
	if (there && !ok)	/* a number that we cannot follow: all calls through it would
				 * bypass us */
		stream_fall_back(s, REASON_BYPASS);
	else if (there && newfd <= 2)
		stream_fall_back(s, REASON_STDIO);
	return there;
}

/* ---- falling back ---- */

/* Bytes of a dead peer that only the ring still has: no way leads to TCP for them. */
static bool last_bytes(struct stream *s)
{
	if (s->rcv.cut.state == CUT_RX_RING) {
		ring_rx_refresh(&s->rcv.ring);
		return ring_rx_avail(&s->rcv.ring) > 0;
	}
	return s->rcv.cut.state == CUT_RX_FROZEN && s->rcv.cut.tail;
}

static bool is_on_tcp(struct stream *s)
{
	bool h;

	stream_lock(s);
	if (atomic_load(&s->link) && atomic_load(&s->peer_gone) == 1 && last_bytes(s))
		stream_reset(s);	/* an error, not an EOF in their place */
	h = !atomic_load(&s->link) || (stream_both_on_tcp(s) && !stream_arriving(s)) ||
	    atomic_load(&s->peer_gone);
	stream_unlock(s);
	return h;
}

static void make_tcp_only_locked(struct stream *s, enum reason r)
{
	if (atomic_load(&s->mode) == MODE_FREE)
		return;
	hold_end(s);
	stat_row_reason(s->row, r);
	atomic_store(&s->mode, MODE_TCP_ONLY);
	if (!stream_learned(s))
		fdtab_stays(atomic_load(&s->fd), s);
}

void stream_stays(struct stream *s, enum reason r)
{
	stream_lock(s);
	make_tcp_only_locked(s, r);
	stream_unlock(s);
}

/* Whoever calls has seen it unconnected; since then it may have connected and been cut, or be
 * another stream. */
bool stream_make_tcp_only(struct stream *s, enum reason r)
{
	bool linked;

	stream_lock(s);
	linked = atomic_load(&s->link) != NULL;
	if (!linked)
		make_tcp_only_locked(s, r);
	stream_unlock(s);
	if (linked)
		return false;
	stream_wake(s);
	return true;
}

void stream_ask_fallback(struct stream *s)
{
	stream_lock(s);
	if (atomic_load(&s->link)) {
		stream_decline(s);
		if (s->snd.cut.state != CUT_TX_TCP)
			stream_tx_event(s, CUT_EV_FALLBACK, 0, 0);
		if (s->rcv.cut.state == CUT_RX_RING)
			stream_rx_event(s, CUT_EV_FALLBACK, 0, 0);
	}
	stream_unlock(s);
	bg_look(s);
}

void stream_leave_path(struct stream *s, enum reason r)
{
	atomic_store(&s->earn.stopped, (uint8_t)r);
	stat_row_reason(stream_row(s), r);
	stream_ask_fallback(s);
}

uint64_t stream_fallback_by(struct stream *s, enum patience for_, uint64_t since)
{
	if (atomic_load(&s->fork_cut))		/* our parent's: no peer is waited for */
		return since + FALLBACK_PATIENCE_US;
	return since + stream_patience(s, for_, FALLBACK_PATIENCE_US * 1000ull) / 1000;
}

void stream_not_on_tcp(struct stream *s, enum patience for_, uint64_t since)
{
	stream_in_vain(s, for_, (now_us() - since) * 1000);
}

static int fall_back(struct stream *s, enum reason r, enum patience for_, uint64_t since)
{
	int ret = stream_fall_back_until(s, r, stream_fallback_by(s, for_, since));

	if (ret)
		stream_not_on_tcp(s, for_, since);
	return ret;
}

int stream_fall_back(struct stream *s, enum reason r)
{
	return fall_back(s, r, PATIENCE_FALLBACK, now_us());
}

int stream_fall_back_since(struct stream *s, enum reason r, uint64_t since)
{
	return fall_back(s, r, PATIENCE_START, since);
}

#define ARRIVING_US 1000

static void step_wait(struct stream *s, uint32_t seen, uint64_t end_us)
{
	uint64_t soon = now_us() + ARRIVING_US;

	/* A nap: bytes that TCP has still under way ring nobody when they are here. */
	lock_take(&s->rcv.lock);
	if (soon < end_us && stream_arriving(s))
		end_us = soon;
	lock_give(&s->rcv.lock);
	if (!loop_step_here(end_us))
		event_wait(&stream_steps, seen, end_us * 1000);
}

/* It is asked after the look, too, not only before: an ARM that came between the two has rung when
 * nobody waited yet, and who waits is the one who has to answer it. */
int stream_await_fallback(struct stream *s, uint64_t end_us, bool (*fallback)(struct stream *s),
		      void (*ask)(struct stream *s))
{
	for (;;) {
		uint32_t seen = event_look(&stream_steps);

		if (fallback(s))
			return 0;
		if (loop_is_me() || now_us() > end_us)
			return -ETIMEDOUT;
		ask(s);
		step_wait(s, seen, end_us);
	}
}

int stream_fall_back_until(struct stream *s, enum reason r, uint64_t end)
{
	if (stream_tcp_only(s))
		return 0;
	if (atomic_load(&s->fork_cut))
		return fork_child_touch_until(s, end);
	hold_over(s);
	atomic_store(&s->fallback.going, 1);
	if (atomic_load(&s->link)) {
		stream_ask_fallback(s);
		if (stream_await_fallback(s, end, is_on_tcp, stream_ask_fallback)) {
			log_line(1, "fd %d: the peer does not answer, cannot go back to TCP",
				 atomic_load(&s->fd));
			return -ETIMEDOUT;
		}
	}
	stream_stays(s, r);
	stream_wake(s);
	bg_look(s);
	return 0;
}

/* ---- options ---- */

void stream_setsockopt(struct stream *s, uint32_t gen, int level, int name, const void *val,
		       socklen_t len)
{
	/* each has two numbers, which mean one thing where long has 64 bits */
	bool rcv = name == SO_RCVTIMEO_OLD || name == SO_RCVTIMEO_NEW;
	bool snd = name == SO_SNDTIMEO_OLD || name == SO_SNDTIMEO_NEW;
	struct timeval tv;

	if (level == SOL_SOCKET && (rcv || snd) && len >= sizeof tv) {
		memcpy(&tv, val, sizeof tv);
		lock_take(&s->rcv.lock);
		if (atomic_load(&s->gen) == gen)
			*(rcv ? &s->opt.rcv_timeo_us : &s->opt.snd_timeo_us) = timeo_us(&tv);
		lock_give(&s->rcv.lock);
		if (snd)
			hold_over(s);	/* it may be too short for that */
	} else if (level == IPPROTO_TCP && name == TCP_INQ) {
		s->opt.inq = 0;	/* of whomever: it is asked for again */
	}
}

/* The answer to an ARM may have waited for this, see waits_known(). */
static void waits_changed(struct stream *s)
{
	if (atomic_load(&s->link))
		bg_look(s);
}

void stream_set_nonblock(struct stream *s, uint32_t gen, bool on)
{
	bool blocks;

	lock_take(&s->rcv.lock);
	blocks = atomic_load(&s->gen) == gen && atomic_exchange(&s->nonblock, on) && !on;
	lock_give(&s->rcv.lock);
	if (blocks)
		waits_changed(s);
}

/* The number is the stream's as long as the lock is held, in whatever life of the struct. */
void stream_waits_seen(struct stream *s, int fd)
{
	bool ours;

	if (atomic_load_explicit(&s->waits_seen, memory_order_relaxed))
		return;
	lock_take(&s->rcv.lock);
	ours = fdtab_stream(fd) == s;
	if (ours)
		atomic_store(&s->waits_seen, 1);
	lock_give(&s->rcv.lock);
	if (ours)
		waits_changed(s);
}

int stream_take_error(struct stream *s, uint32_t gen)
{
	int err = 0;

	if (!atomic_load(&s->err) && (!atomic_load(&s->link) || stream_both_on_tcp(s)))
		return 0;
	stream_lock(s);
	if (atomic_load(&s->gen) == gen) {
		stream_look_for_reset(s);	/* its error would be told, and nobody know that
						 * there was a reset */
		err = atomic_exchange(&s->err, 0);
	}
	stream_unlock(s);
	return err;
}

void stream_keep_error(struct stream *s, uint32_t gen, int err)
{
	lock_take(&s->rcv.lock);
	if (atomic_load(&s->gen) == gen)
		atomic_store(&s->err, err);
	lock_give(&s->rcv.lock);
}

bool stream_wants_inq(struct stream *s, int fd)
{
	uint32_t gen = atomic_load(&s->gen);
	socklen_t len = sizeof(int);
	uint8_t inq = s->opt.inq;
	int on = 0;

	if (inq)
		return inq == 2;
	inq = sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INQ, &on, &len) >= 0 && on ? 2 : 1;
	lock_take(&s->rcv.lock);
	if (atomic_load(&s->gen) == gen && fdtab_stream(fd) == s)
		s->opt.inq = inq;
	lock_give(&s->rcv.lock);
	return inq == 2;
}

int stream_ioctl_count(struct stream *s, uint32_t gen, int fd, unsigned long req)
{
	int n = -ENOENT;

	if (atomic_load(&s->fork_cut))	/* what our parent has in the ring counts */
		fork_child_touch(s);
	if (req == FIONREAD)
		return stream_unread_count(s, gen, fd);
	lock_take(&s->snd.lock);
	if (stream_still_named(s, gen, &fd) && (req == SIOCOUTQ || req == SIOCOUTQNSD) &&
	    atomic_load(&s->link) && s->snd.cut.state >= CUT_TX_CUT_SENT) {
		stream_look_at_wire(s);
		ring_tx_refresh(&s->snd.ring);
		n = (int)(s->snd.ring.wr - s->snd.ring.rd);
	}
	lock_give(&s->snd.lock);
	return n;
}
