/*
 * rendezvous.c - how the two processes that hold the ends of one TCP connection find each other on
 * one host, and how a stream gets its slot on their link. Background thread only.
 *
 * The accepting side opens a meeting point (meeting.h) whose name is the 4-tuple,
 * for as long as it takes; the connecting side first asks over links that exist, then knocks there.
 *
 *   client                                   server
 *   earns -> RV_TRY                          earns -> RV_LISTEN (name open)
 *   BIND on each link: NOT_MINE ...          (answers BIND for any stream of its own)
 *   connect(name), HELLO + arena  -------->  accept, link made
 *   BIND(slot, tuple) + its TCP fd ------->  identity_check; attach
 *   identity_check; attach        <--------  BOUND + its TCP fd
 *
 * Both ends then let their sending halves earn (stream_try_cut).
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "bg.h"
#include "fdtab.h"
#include "identity.h"
#include "../policy/log.h"
#include "meeting.h"
#include "ready.h"
#include "../rdma/rc.h"
#include "rendezvous_net.h"
#include "stream_int.h"
#include "sys.h"

#define PENDING_MAX   64
#define PENDING_US    2000000
#define NAMES_MAX     256
#define NAME_US       100000	/* so long a name stays open while others wait for one */

/* Somebody has connected to one of our names and has not said HELLO yet. */
static struct pending { int fd; uint64_t end_us; } pending[PENDING_MAX];
static bool pending_init;
static unsigned names_open;
static uint64_t names_turn;	/* when the last one of those that wait for a name has its turn */

/* ---- names ---- */

static void name_close(struct stream *s)
{
	if (s->rv_fd < 0)
		return;
	bg_unwatch_fd(s->rv_fd);
	fd_internal_close(s->rv_fd);
	s->rv_fd = -1;
	if (s->rv_net)
		return;
	meeting_close((void *)&s->peer, (void *)&s->local);
	names_open--;
}

static int name_open(struct stream *s)
{
	long fd, r;
	bool named;

	fd = sys(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return (int)fd;
	fd = fd_internal((int)fd);
	if (fd < 0)
		return (int)fd;
	r = meeting_open((int)fd, (void *)&s->peer, (void *)&s->local);
	named = r >= 0;
	if (r >= 0)
		r = sys(SYS_listen, fd, 8);
	if (r >= 0)
		r = bg_watch_fd((int)fd, EPOLLIN, (uint64_t)BG_TAG_NAME << 56 | s->index);
	if (r < 0) {
		if (named)
			meeting_close((void *)&s->peer, (void *)&s->local);
		fd_internal_close((int)fd);
		return (int)r;
	}
	s->rv_fd = (int)fd;
	names_open++;
	return 0;
}

/* ---- ends of a search ---- */

static uint64_t retry_us(struct stream *s)
{
	s->rv_lost += s->rv_lost < 6;
	return shim_tunables()->rdma_retry << (s->rv_lost - 1);
}

static void fail(struct stream *s, enum reason why, bool for_good)
{
	log_line(3, "fd %d: stays on TCP: %s", atomic_load(&s->fd), reason_name(why));
	name_close(s);
	s->rv_state = RV_FAILED;
	stat_row_reason(s->row, why);
	if (s->rv_lost && why != atomic_load(&s->stopped)) {	/* it was on RDMA, which may come back */
		for_good = false;
		s->rv_state = RV_NONE;
		s->rv_end_us = 0;
		s->rv_due_us = now_us() + retry_us(s);
	}
	if (for_good)
		stream_stays(s);	/* bg.c lets go of it */
	else if (atomic_load(&s->mode) == MODE_NEW)
		atomic_store(&s->mode, MODE_SOFT);
	stream_wake(s);
}

void rv_stop(struct stream *s)
{
	name_close(s);		/* a BIND under way is answered first: got_bound() sees that the stream is dead */
}

/* ---- start ---- */

/* An accepted socket has its listener's options, set before we knew it. */
static int read_options(struct stream *s, int fd)
{
	struct timeval tv;
	uint32_t len = sizeof tv;
	int v = 0;
	long fl;

	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len) >= 0)
		s->rcv_timeo_us = (uint64_t)tv.tv_sec * 1000000u + (uint64_t)tv.tv_usec;
	len = sizeof tv;
	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &tv, &len) >= 0)
		s->snd_timeo_us = (uint64_t)tv.tv_sec * 1000000u + (uint64_t)tv.tv_usec;
	len = sizeof v;
	if (sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_CORK, &v, &len) >= 0)
		s->corked = v != 0;
	len = sizeof v;
	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVLOWAT, &v, &len) >= 0 && v > 1)
		return -EOPNOTSUPP;
	fl = sys(SYS_fcntl, fd, F_GETFL);
	if (fl >= 0) {
		atomic_store(&s->nonblock, !!(fl & O_NONBLOCK));
		if (fl & O_ASYNC)
			return -EOPNOTSUPP;
	}
	return 0;
}

static void show_names(struct stream *s)
{
	struct ctl_tuple t;

	s->row->family = s->local.ss_family;
	tuple_from(&t, (void *)&s->local, (void *)&s->peer);
	s->row->lport = t.lport;
	s->row->pport = t.pport;
	memcpy(s->row->laddr, t.laddr, 16);
	memcpy(s->row->paddr, t.paddr, 16);
	stat_row_publish(s->row);
}

/* All under the lock: a stream that never asked for an upgrade is freed, and used again, by whoever closes it. */
static int read_names(struct stream *s)
{
	uint32_t len = sizeof s->local;
	int fd, r;

	lock_take(&s->rx_lock);
	fd = atomic_load(&s->fd);
	r = fd < 0 ? -EBADF : (int)sys(SYS_getsockname, fd, &s->local, &len);
	len = sizeof s->peer;
	if (r >= 0)
		r = (int)sys(SYS_getpeername, fd, &s->peer, &len);
	if (r >= 0 && !socket_is_plain_tcp(fd))
		r = -EPROTOTYPE;
	if (r >= 0)
		r = read_options(s, fd);
	if (r >= 0) {
		sockaddr_normal(&s->local);
		sockaddr_normal(&s->peer);
		s->tuple_known = 1;
		show_names(s);
		r = 0;
	}
	lock_give(&s->rx_lock);
	return r;
}

/* The paths by which the policy lets the stream leave TCP, bit per enum path_kind. */
static uint32_t allowed(struct stream *s)
{
	struct policy_decision d;

	policy_decide(atomic_load(&shim_policy), shim_program, s->role, (void *)&s->local, (void *)&s->peer, &d);
	stat_row_rule(s->row, d.at);
	d.paths &= 1u << PATH_SHM | 1u << PATH_RDMA;
	atomic_store(&s->stopped, (uint8_t)(d.paths ? 0 : d.reason ? d.reason : REASON_POLICY));
	return d.paths;
}

static bool allowed_by(struct stream *s, bool net)
{
	return allowed(s) & 1u << (net ? PATH_RDMA : PATH_SHM);
}

static bool on_this_host(struct stream *s, struct identity *id)
{
	*id = (struct identity){ .marked = false };
	return !identity_query((void *)&s->peer, (void *)&s->local, id) || sockaddr_loopback((void *)&s->peer);
}

/* The other end's socket does not say that the library is there: it hardly is, and this search makes the calls of a program with one
 * thread dearer (see nothing_to_do() in bg.c). */
#define UNMARKED_US 50000
#define SERVER_MORE_US 500000	/* to outlast the client's search */

static uint64_t search_us(const struct stream *s)
{
	uint64_t us = shim_tunables()->rendezvous;

	return s->rv_unmarked && us > UNMARKED_US ? UNMARKED_US : us;
}

/* More than that in a second: a crowd. */
#define MANY 64
static uint64_t found_at[MANY];
static unsigned found;

static bool many_found(uint64_t now)
{
	return found >= MANY && now < found_at[found % MANY] + 1000000;
}

static bool any_link(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_UP)
			return true;
	return false;
}

void rv_start(struct stream *s)
{
	uint64_t now = now_us();
	struct identity end = { .marked = false };
	uint32_t paths;
	int r;

	if (stream_pinned(s) || atomic_load(&s->dead) || atomic_load(&s->going_home))
		return;
	r = read_names(s);
	if (r == -ENOTCONN && now < s->rv_end_us) {	/* connect() still under way */
		s->rv_due_us = now + 2000;
		return;
	}
	if (r) {
		fail(s, r == -EPROTOTYPE ? REASON_NOT_TCP : r == -EOPNOTSUPP ? REASON_SOCKOPT : REASON_NO_RENDEZVOUS,
		     r == -EPROTOTYPE || r == -EOPNOTSUPP);
		return;
	}
	if (sockaddr_same((void *)&s->local, (void *)&s->peer)) {	/* one socket connected to itself */
		fail(s, REASON_NO_RENDEZVOUS, true);
		return;
	}
	paths = allowed(s);
	if (!paths) {
		fail(s, atomic_load(&s->stopped), false);
		return;
	}
	s->rv_net = !(paths & 1u << PATH_SHM) || !on_this_host(s, &end);
	s->rv_unmarked = end.unmarked && !s->rv_net;
	s->rv_marked = end.marked && !s->rv_net;
	if (s->rv_net) {
		r = paths & 1u << PATH_RDMA ? net_possible(s) : REASON_REMOTE;
		if (r) {
			fail(s, (enum reason)r, r == REASON_REMOTE);
			return;
		}
		now = now_us();		/* loading libraries may have taken long */
	}
	s->rv_end_us = now + search_us(s);
	s->rv_tries = 0;
	s->rv_link = s->rv_else = 0;
	stat_row_event(s->row, EVENT_SEARCH, s->rv_net);
	if (s->role == ROLE_CLIENT) {
		s->rv_state = RV_TRY;
		s->rv_due_us = now;
	} else {
		s->rv_state = RV_LISTEN;
		s->rv_end_us += s->rv_unmarked ? UNMARKED_US : SERVER_MORE_US;
		s->rv_due_us = any_link() && !s->rv_net ? now + (many_found(now) ? 50000 : 5000) : now;
	}
}

/* ---- BIND ---- */

/* `gen`: of the stream that is meant; its struct may be another's by now. */
static int send_with_socket(struct link *l, struct stream *s, uint32_t gen, unsigned type, uint32_t slot)
{
	struct ctl_msg m = { .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot };
	int r;

	lock_take(&s->rx_lock);		/* holds off close(): the fd stays this socket */
	tuple_from(&m.tuple, (void *)&s->local, (void *)&s->peer);
	if (atomic_load(&s->fd) < 0 || atomic_load(&s->gen) != gen) {
		r = -EBADF;
	} else {
		lock_take(&l->out_lock);
		r = l->out_head != l->out_tail ? -EAGAIN : ctl_send_fd(l->ctl, &m, atomic_load(&s->fd));
		lock_give(&l->out_lock);
	}
	lock_give(&s->rx_lock);
	return r;
}

static void send_plain(struct link *l, unsigned type, uint32_t slot, uint32_t index)
{
	struct ctl_msg m = { .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot, .index = index };

	link_send(l, &m);
}

/* Who has the other end. False: nobody, it was not accepted yet. */
static bool accepted(struct stream *s, struct identity *ret)
{
	return !identity_query((void *)&s->peer, (void *)&s->local, ret) && ret->inode;
}

/* Does a process of `uid` hold the other end? Asked before our socket goes there: the proof that we give by
 * passing it must not hand it to whoever opened the name, or has a link because of another connection. */
static bool owned_by(struct stream *s, const struct identity *end, uid_t uid)
{
	if (end->uid == uid && uid != OVERFLOW_UID)
		return true;
	s->want = REASON_IDENTITY;
	return false;
}

/* Is `fd`, which came over the link, the other end of s? 0 or -errno. */
static int proves(const struct link *l, struct stream *s, int fd)
{
	int r = identity_check(fd, (void *)&s->local, (void *)&s->peer, l->peer_uid);

	return !r && !meeting_same_network(fd) ? -EPERM : r;
}

static bool same_host(const struct link *l, const struct stream *s)
{
	struct sockaddr_storage p = s->peer;

	sockaddr_no_port(&p);
	return sockaddr_same((void *)&l->host, (void *)&p);
}

/* Is the link one that the stream may ride? */
static bool fits(const struct link *l, const struct stream *s)
{
	return l->net == s->rv_net && (!l->net || (!l->path_told && same_host(l, s)));
}

/* Between hosts: what the peer must know to write into our landing ring of the slot. */
static bool send_ring(struct link *l, struct stream *s, unsigned type, uint32_t slot, uint32_t life)
{
	struct ctl_msg m = { .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot, .epoch = life };

	tuple_from(&m.tuple, (void *)&s->local, (void *)&s->peer);
	if (rc_slot_bind(l->rc, slot, (uint16_t)life, &m.off, &m.index)) {
		s->want = REASON_NO_MEMORY;
		return false;
	}
	return link_send(l, &m);
}

/* Who asked last for a slot: index + 1. Saves a walk over all streams; a guess, checked. */
#define ASKED_PLACES 16384
#define ASKED_PLACE(link, slot) (((link) * 4099u + (slot)) % ASKED_PLACES)
static uint32_t asked_last[ASKED_PLACES];

/* `end`: who has the other end, of a connection on this host. */
static bool ask(struct stream *s, struct link *l, const struct identity *end)
{
	int slot;

	if (!l->net && !owned_by(s, end, l->peer_uid))
		return false;
	slot = link_slot_alloc(l);
	if (slot < 0)
		return false;
	if (l->net ? !send_ring(l, s, CTL_BIND, (uint32_t)slot, ++l->life) : send_with_socket(l, s, atomic_load(&s->gen), CTL_BIND, (uint32_t)slot)) {
		link_slot_free(l, (uint32_t)slot);
		return false;
	}
	s->rv_state = RV_ASKED;
	s->rv_link = l->index;
	s->rv_slot = (uint32_t)slot;
	asked_last[ASKED_PLACE(l->index, (uint32_t)slot)] = s->index + 1;
	l->slot_used[slot] = 1;
	atomic_store(&l->streams[slot], NULL);
	s->rv_due_us = UINT64_MAX;
	return true;
}

/* Was the link made for a connection to the same address and port? Then the other end is likely to be there, too. */
static bool same_place(const struct link *l, const struct stream *s)
{
	return l->net || sockaddr_same((void *)&l->host, (void *)&s->peer);
}

/* That link may be the one: wait for it rather than make another. */
static struct link *hello_under_way(const struct stream *s)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_HELLO && !links[i].net && same_place(&links[i], s))
			return &links[i];
	return NULL;
}

/* The link is up, or will not be: those who waited for it look again. Until then they are left alone, who may be thousands. */
static void hello_settled(const struct link *l)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) == MODE_FREE || s->rv_state != RV_TRY || s->rv_hello != l->index + 1)
			continue;
		s->rv_hello = 0;
		s->rv_due_us = now_us();
		bg_look(s);
	}
}

/* Whoever opened the name is linked to us already, with room for the stream: it was asked there just before its end had been
 * accepted. Another link, which nobody would take down, is not needed; the stream asks again. */
static bool linked_to(const struct ucred *c)
{
	for (uint32_t i = 0; c->pid > 0 && i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_UP && !links[i].net && links[i].peer_pid == c->pid &&
		    links[i].peer_uid == c->uid && link_has_room(&links[i]))
			return true;
	return false;
}

/* Knocks at the name. 1: a link is being made and the stream rides it, 0: not there, -errno. */
static int knock(struct stream *s, const struct identity *end)
{
	const struct policy_tunables *t = shim_tunables();
	struct ctl_msg m = { .type = CTL_HELLO, .version = CTL_VERSION };
	struct ucred cred;
	uint32_t clen = sizeof cred;
	struct arena a;
	struct link *l;
	long fd, r;
	int memfd;

	fd = sys(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return (int)fd;
	r = meeting_knock((int)fd, (void *)&s->local, (void *)&s->peer);
	if (r < 0) {
		sys(SYS_close, fd);
		return r == -ECONNREFUSED || r == -EAGAIN ? 0 : (int)r;
	}
	fd = fd_internal((int)fd);
	if (fd < 0)
		return (int)fd;
	r = sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &cred, &clen);
	if (r >= 0 && (!owned_by(s, end, cred.uid) || linked_to(&cred)))
		r = -EAGAIN;
	if (r >= 0)
		r = arena_create(&a, (uint32_t)t->link_streams, t->ring_size, &memfd);
	if (r < 0)
		goto out_fd;
	r = ctl_send_fd((int)fd, &m, memfd);
	sys(SYS_close, memfd);
	if (r < 0)
		goto out_arena;
	l = link_new((int)fd, &a, cred.uid, cred.pid);
	if (!l) {
		r = links_full() ? -EMLINK : -ENOMEM;
		goto out_arena;
	}
	l->host = s->peer;
	r = bg_watch_fd((int)fd, EPOLLIN, (uint64_t)BG_TAG_LINK << 56 | l->index);
	if (r < 0 || !ask(s, l, end)) {
		link_kill(l, REASON_NO_RENDEZVOUS);
		return r < 0 ? (int)r : -EAGAIN;
	}
	return 1;
out_arena:
	arena_unmap(&a);
out_fd:
	fd_internal_close((int)fd);
	return (int)r;
}

static enum reason reason_of(int err)
{
	if (err == -EMFILE || err == -ENFILE)
		return REASON_NO_FDS;
	if (err == -ENOMEM || err == -EINVAL || err == -EFBIG)
		return REASON_NO_MEMORY;
	return err == -EMLINK ? REASON_LINK_FULL : REASON_NO_RENDEZVOUS;
}

static uint64_t backoff(unsigned tries)
{
	static const uint32_t us[] = { 300, 700, 1500, 3000, 6000, 12000, 25000, 50000, 100000 };

	return us[tries < sizeof us / sizeof us[0] ? tries : sizeof us / sizeof us[0] - 1];
}

/* A connecting end has its mark some bytes after it has its connection: it may have come meanwhile. */
static void look_again(struct stream *s)
{
	struct identity end;

	if (!on_this_host(s, &end) || end.unmarked)
		return;
	s->rv_unmarked = 0;
	s->rv_marked = end.marked;
	s->rv_end_us += search_us(s) + (s->role == ROLE_SERVER ? SERVER_MORE_US : 0);
}

/*
 * When thousands of connections are made at once, those that come last in the queues, here and at the other end, would be
 * given up before anybody asked for them. So where somebody is to be found he is searched for five times the time.
 */
static bool given_up(struct stream *s, uint64_t now)
{
	if (s->rv_unmarked && now >= s->rv_end_us)
		look_again(s);
	return now >= s->rv_end_us + (s->rv_marked ? 4 * shim_tunables()->rendezvous : 0);
}

static void from_the_first_link(struct stream *s)
{
	s->rv_link = s->rv_else = 0;
}

/* The next link that there is; those to the same place come first. */
static bool ask_next(struct stream *s, const struct identity *end)
{
	uint32_t n = atomic_load(&links_top);

	for (; s->rv_else < 2; s->rv_else++, s->rv_link = 0)
		for (; s->rv_link < n; s->rv_link++) {
			struct link *l = &links[s->rv_link];

			if (atomic_load(&l->state) == LINK_UP && fits(l, s) && same_place(l, s) == !s->rv_else && ask(s, l, end))
				return true;
		}
	return false;
}

static void try_net(struct stream *s, uint64_t now)
{
	int r;

	if (ask_next(s, NULL))
		return;
	if (net_under_way(&s->peer)) {
		from_the_first_link(s);
		s->rv_due_us = now + 2000;
		return;
	}
	r = s->want ? s->want : net_call(s);
	if (r != 1)
		fail(s, (enum reason)r, false);
}

static void try_client(struct stream *s, uint64_t now)
{
	struct identity end;
	struct link *hello;
	int r = 0;

	s->rv_hello = 0;
	if (accepted(s, &end)) {
		if (ask_next(s, &end))
			return;
		hello = hello_under_way(s);
		if (hello) {
			s->rv_hello = hello->index + 1;
			from_the_first_link(s);
			s->rv_due_us = UINT64_MAX;
			return;
		}
		r = knock(s, &end);
		if (r > 0)
			return;
	}
	if (given_up(s, now) || (r < 0 && r != -EAGAIN)) {
		fail(s, r < 0 && r != -EAGAIN ? reason_of(r) : s->want ? s->want : REASON_NO_PEER_SHIM,
		     (r >= 0 || r == -EAGAIN) && !s->want);
		return;
	}
	from_the_first_link(s);
	s->rv_due_us = now + backoff(s->rv_tries++);
}

/* All names are in use: when to try again. Thousands who wait take turns. */
static uint64_t without_name(uint64_t now)
{
	names_turn = names_turn + 200 > now + 50000 ? names_turn + 200 : now + 50000;
	return names_turn;
}

/* Its name gives way to those that wait: the other ends of hundreds may be stopped, and nobody else would be met for seconds. */
static void name_due(struct stream *s, uint64_t now)
{
	if (now < names_turn) {
		name_close(s);
		s->rv_due_us = without_name(now);
	} else {
		s->rv_due_us = now + NAME_US;
	}
}

uint64_t rv_work(struct stream *s, uint64_t now)
{
	int r;

	if (s->rv_state == RV_NONE) {
		if (now < s->rv_due_us)
			return s->rv_due_us;
		if (!s->rv_end_us)
			s->rv_end_us = now + shim_tunables()->rendezvous;
		rv_start(s);
		return s->rv_state == RV_FAILED ? UINT64_MAX : s->rv_due_us;
	}
	if (s->rv_state == RV_LISTEN) {
		if (now >= s->rv_end_us && s->rv_lost) {	/* as long as it takes, but not all the time */
			net_listen(s);
			s->rv_end_us = now + retry_us(s);
			return s->rv_end_us;
		}
		if (given_up(s, now)) {
			fail(s, REASON_NO_PEER_SHIM, true);	/* from now on its calls cost one look-up */
			return UINT64_MAX;
		}
		if (s->rv_net) {
			r = net_listen(s);
			if (r < 0 && r != -EADDRINUSE) {
				fail(s, reason_of(r), false);
				return s->rv_state == RV_NONE ? s->rv_due_us : UINT64_MAX;
			}
			return now + 20000;	/* whoever has the port may die */
		}
		if (s->rv_fd < 0 && now >= s->rv_due_us) {
			r = names_open < NAMES_MAX ? name_open(s) : -EAGAIN;
			if (r == -EAGAIN || r == -EADDRINUSE) {
				s->rv_due_us = names_open < NAMES_MAX ? now + 5000 : without_name(now);
				return s->rv_due_us;
			}
			if (r < 0) {
				fail(s, reason_of(r), false);
				return UINT64_MAX;
			}
			s->rv_due_us = now + NAME_US;
		} else if (now >= s->rv_due_us) {
			name_due(s, now);
		}
		return now < s->rv_end_us && s->rv_end_us < s->rv_due_us ? s->rv_end_us : s->rv_due_us;
	}
	if (s->rv_state == RV_TRY) {
		if (now >= s->rv_due_us)
			(s->rv_net ? try_net : try_client)(s, now);
		return s->rv_state == RV_TRY || s->rv_state == RV_NONE ? s->rv_due_us : UINT64_MAX;
	}
	return UINT64_MAX;
}

/* ---- knockers ---- */

void rv_name_ready(uint32_t index)
{
	struct stream *s = stream_at(index);

	if (s && s->rv_net) {
		net_name_ready(s);
		return;
	}
	if (!pending_init) {
		for (int i = 0; i < PENDING_MAX; i++)
			pending[i].fd = -1;
		pending_init = true;
	}
	while (s && s->rv_fd >= 0) {
		long fd = sys(SYS_accept4, s->rv_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		int i, oldest = 0;

		if (fd < 0)
			return;
		for (i = 0; i < PENDING_MAX && pending[i].fd >= 0; i++)
			if (pending[i].end_us < pending[oldest].end_us)
				oldest = i;
		if (i == PENDING_MAX) {		/* crowded: the one that was silent longest goes */
			i = oldest;
			bg_unwatch_fd(pending[i].fd);
			fd_internal_close(pending[i].fd);
			pending[i].fd = -1;
		}
		fd = fd_internal((int)fd);
		if (fd < 0)
			return;
		pending[i].fd = (int)fd;
		pending[i].end_us = now_us() + PENDING_US;
		if (bg_watch_fd((int)fd, EPOLLIN, (uint64_t)BG_TAG_PEND << 56 | (unsigned)i) < 0) {
			fd_internal_close((int)fd);
			pending[i].fd = -1;
		}
	}
}

void rv_pending_ready(uint32_t i)
{
	struct ctl_msg m;
	struct ucred cred;
	uint32_t clen = sizeof cred;
	struct arena a;
	struct link *l;
	int fd, r, sock;

	if (i >= PENDING_MAX || pending[i].fd < 0)
		return;
	sock = pending[i].fd;
	r = ctl_recv(sock, &m, &fd);
	if (!r)
		return;
	pending[i].fd = -1;
	bg_unwatch_fd(sock);
	if (r == 1 && m.type == CTL_HELLO && fd >= 0 &&
	    sys(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &cred, &clen) >= 0 && !arena_attach(&a, fd)) {
		l = link_new(sock, &a, cred.uid, cred.pid);
		if (l && bg_watch_fd(sock, EPOLLIN, (uint64_t)BG_TAG_LINK << 56 | l->index) >= 0) {
			sys(SYS_close, fd);
			link_up(l);
			send_plain(l, CTL_WELCOME, 0, 0);
			return;
		}
		if (!l)
			arena_unmap(&a);
		else
			link_kill(l, REASON_NO_RENDEZVOUS);
	} else if (r != -EPIPE) {	/* one who leaves without a word has seen that we are linked already */
		stat_add(STAT_refused, 1);
	}
	if (fd >= 0)
		sys(SYS_close, fd);
	fd_internal_close(sock);
}

/* ---- records on a link ---- */

/* Has the server's stream the ends `mine`? */
static bool has_ends(struct stream *s, const struct ctl_tuple *mine)
{
	struct sockaddr_storage p = s->peer;
	struct ctl_tuple x;

	if (atomic_load(&s->mode) == MODE_FREE || atomic_load(&s->dead) || s->role != ROLE_SERVER)
		return false;
	sockaddr_normal(&p);	/* known since accept(): a cheap first look */
	tuple_from(&x, (void *)&p, (void *)&p);
	if (x.pport != mine->pport || memcmp(x.paddr, mine->paddr, 16) || (!s->tuple_known && read_names(s)))
		return false;
	tuple_from(&x, (void *)&s->local, (void *)&s->peer);
	return tuple_equal(&x, mine);
}

/* It may be bound now: REASON_NONE, or why not. rx_lock held. */
static enum reason bindable(struct stream *s, bool net)
{
	if (atomic_load(&s->fd) < 0 || atomic_load(&s->dead) || !s->tuple_known)
		return REASON_SHARED;	/* closed since it was found; ask again, for what that is worth */
	if (stream_pinned(s) || atomic_load(&s->going_home) || atomic_load(&s->fork_cut))
		return REASON_PEER_REFUSED;
	if (fork_shared(s))
		return REASON_SHARED;
	if (atomic_load(&s->link))
		return REASON_SHARED;	/* still leaving another link: ask again later */
	return allowed_by(s, net) ? REASON_NONE : REASON_PEER_REFUSED;
}

/* Our stream whose ends are `t` reversed, and its generation; or NULL. */
static struct stream *find_stream(const struct ctl_tuple *t, bool net, uint32_t *gen, enum reason *why)
{
	struct ctl_tuple mine;
	struct stream *s;
	bool others;

	tuple_reverse(&mine, t);
	*why = REASON_NO_PEER_SHIM;
	s = stream_accepted_from(mine.pport, &others);
	if (!s || !has_ends(s, &mine)) {
		uint32_t n = others ? streams_top() : 0, i;

		for (i = 0; i < n && !has_ends(stream_at(i), &mine); i++)
			;
		if (i == n)
			return NULL;
		s = stream_at(i);
	}
	lock_take(&s->rx_lock);
	*gen = atomic_load(&s->gen);
	*why = bindable(s, net);
	lock_give(&s->rx_lock);
	return *why == REASON_NONE ? s : NULL;
}

static bool attach(struct stream *s, uint32_t gen, struct link *l, uint32_t slot)
{
	bool ok;

	stream_lock(s);
	ok = atomic_load(&s->gen) == gen && atomic_load(&s->mode) != MODE_FREE && !atomic_load(&s->dead) &&
	     !atomic_load(&s->going_home) && !stream_pinned(s) && atomic_load(&s->fd) >= 0;
	if (ok) {
		atomic_store(&s->upgrade, 1);
		stream_attach(s, l, slot);
	}
	stream_unlock(s);
	if (!ok)
		return false;
	name_close(s);
	s->rv_state = RV_DONE;
	s->rv_lost = 0;
	found_at[found++ % MANY] = now_us();
	link_proven(l);
	stat_row_event(s->row, EVENT_LINKED, (uint64_t)l->peer_pid);
	stat_row_reason(s->row, REASON_NONE);
	stat_add(STAT_conns_fast, 1);
	log_line(3, "fd %d: bound to slot %u of link %u (pid %d)", atomic_load(&s->fd), slot, l->index, l->peer_pid);
	bg_look(s);
	stream_wake(s);
	return true;
}

static void give_back_slot(struct link *l, uint32_t slot);

static void got_bind(struct link *l, const struct ctl_msg *m, int fd)
{
	uint32_t half = l->arena.slots / 2;
	bool theirs = l->arena.me ? m->slot < half : m->slot >= half;
	enum reason why;
	struct stream *s;
	uint32_t gen = 0;

	if (!theirs || l->slot_used[m->slot]) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	s = find_stream(&m->tuple, l->net, &gen, &why);
	if (s && l->net && !same_host(l, s)) {
		stat_add(STAT_refused, 1);
		log_line(2, "fd %d: another host than that of its peer asks for it", atomic_load(&s->fd));
		s = NULL;
		why = REASON_IDENTITY;
	}
	if (s && !l->net && proves(l, s, fd)) {
		stat_add(STAT_refused, 1);
		log_line(2, "fd %d: pid %d could not prove that it holds the other end", atomic_load(&s->fd), l->peer_pid);
		s = NULL;
		why = REASON_IDENTITY;
	}
	if (!s) {
		send_plain(l, CTL_NOT_MINE, m->slot, why);
		return;
	}
	if (l->net) {
		name_close(s);
		s->rv_net = 1;
		arena_slot_reset(&l->arena, m->slot);
		if (!send_ring(l, s, CTL_BOUND, m->slot, m->epoch)) {
			send_plain(l, CTL_NOT_MINE, m->slot, REASON_PEER_REFUSED);
			return;
		}
		rc_slot_peer(l->rc, m->slot, m->off, m->index);
	}
	/* The client attaches when it has BOUND, and the socket keeps order: we may go first. */
	else if (send_with_socket(l, s, gen, CTL_BOUND, m->slot)) {
		send_plain(l, CTL_NOT_MINE, m->slot, REASON_SHARED);
		return;
	}
	l->slot_used[m->slot] = 1;
	if (!attach(s, gen, l, m->slot))
		give_back_slot(l, m->slot);
}

static bool has_asked(struct stream *s, const struct link *l, uint32_t slot)
{
	return atomic_load(&s->mode) != MODE_FREE && s->rv_state == RV_ASKED && s->rv_link == l->index && s->rv_slot == slot;
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

/* slot_used: 1 in use, 2 we said UNBIND, 4 the peer did; 7: free again */
static void slot_left(struct link *l, uint32_t slot, uint8_t bit)
{
	l->slot_used[slot] |= bit;
	if (l->slot_used[slot] == 7)
		l->slot_used[slot] = 0;
}

static void give_back_slot(struct link *l, uint32_t slot)
{
	if (l->net)
		rc_slot_unbind(l->rc, slot);
	send_plain(l, CTL_UNBIND, slot, 0);
	slot_left(l, slot, 2);
}

static void got_bound(struct link *l, const struct ctl_msg *m, int fd)
{
	struct stream *s = asked(l, m->slot);

	if (!s) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	if (atomic_load(&s->dead) || stream_pinned(s) || atomic_load(&s->going_home)) {
		s->rv_state = RV_FAILED;
		give_back_slot(l, m->slot);
		bg_look(s);
		return;
	}
	if (l->net) {
		rc_slot_peer(l->rc, m->slot, m->off, m->index);
	} else if (proves(l, s, fd)) {
		give_back_slot(l, m->slot);
		stat_add(STAT_refused, 1);
		fail(s, REASON_IDENTITY, false);
		bg_look(s);
		return;
	}
	if (!attach(s, atomic_load(&s->gen), l, m->slot)) {
		give_back_slot(l, m->slot);
		bg_look(s);
	}
}

static void got_not_mine(struct link *l, const struct ctl_msg *m)
{
	struct stream *s = asked(l, m->slot);
	uint64_t now = now_us();

	if (!s) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	link_slot_free(l, m->slot);
	s->rv_state = RV_TRY;
	if (m->index == REASON_NO_PEER_SHIM) {
		s->rv_link = l->index + 1;	/* the next link, or the name */
		s->rv_due_us = now;
	} else if (m->index == REASON_SHARED && now < s->rv_end_us) {
		s->want = REASON_SHARED;
		from_the_first_link(s);
		s->rv_due_us = now + backoff(s->rv_tries++);
	} else {
		fail(s, m->index == REASON_IDENTITY ? REASON_IDENTITY :
			m->index == REASON_SHARED ? REASON_SHARED : REASON_PEER_REFUSED, false);
	}
	bg_look(s);
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
		s->unbind_got = 1;
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
	if (*fd < 0) {		/* the peer had no fd left for that bell of ours */
		atomic_store(&bells[m->index].deaf, 1);
		if (bell_made_mask() >> m->index & 1)
			bell_ring_fd(bells[m->index].fd);
		return;
	}
	n = fd_internal(*fd);
	*fd = -1;
	if (n < 0) {
		send_plain(l, CTL_BELL, 0, m->index);
		return;
	}
	old = atomic_exchange(&l->peer_bell[m->index], n);
	if (old >= 0)
		fd_internal_close(old);
	bell_ring_fd(n);	/* whoever rang before we knew */
}

static void got_cut(struct link *l, const struct ctl_msg *m)
{
	static const uint8_t ev[] = {
		[CUT_MSG_ARM] = CUT_EV_ARM, [CUT_MSG_ARMED] = CUT_EV_ARMED, [CUT_MSG_CUT] = CUT_EV_CUT,
		[CUT_MSG_CUT_OK] = CUT_EV_CUT_OK, [CUT_MSG_REWIND] = CUT_EV_REWIND,
		[CUT_MSG_FROZEN] = CUT_EV_FROZEN, [CUT_MSG_BACK] = CUT_EV_BACK,
	};
	struct stream *s = atomic_load(&l->streams[m->slot]);
	bool for_sender = m->index == CUT_MSG_ARMED || m->index == CUT_MSG_CUT_OK || m->index == CUT_MSG_FROZEN;

	if (!m->index || m->index >= sizeof ev) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	if (!s)
		return;		/* left already */
	log_line(4, "fd %d: got %s e=%u off=%lu", atomic_load(&s->fd), cut_msg_name(m->index), m->epoch, m->off);
	if (for_sender) {
		lock_take(&s->tx_lock);
		if (m->index == CUT_MSG_CUT_OK) {
			s->declined = 0;
		} else if (m->index == CUT_MSG_FROZEN && s->tx.state == CUT_TX_A) {
			/* It would rather stay on TCP: do not pester it. */
			s->next_earn_us = now_us() + (20000ull << s->declined);
			if (s->declined < 6)
				s->declined++;
		}
		if (m->index == CUT_MSG_ARMED && s->tx.state == CUT_TX_A)
			stream_fit_tcp(s);
		stream_tx_event(s, ev[m->index], m->epoch, m->off);
		if (cut_tx_on_ring(&s->tx) && !ring_tx_room(&s->rtx))	/* who waits for room may not try again before we say so */
			atomic_store(&s->ring_full, 1);
		lock_give(&s->tx_lock);
	} else {
		lock_take(&s->rx_lock);
		stream_rx_event(s, ev[m->index], m->epoch, m->off);
		lock_give(&s->rx_lock);
	}
	bg_look(s);
}

/* One record. False: the link is gone. */
static bool one_record(struct link *l)
{
	struct ctl_msg m;
	int fd, r = link_recv(l, &m, &fd);
	bool welcome;

	if (!r)
		return false;
	if (r < 0) {
		link_kill(l, r == -EPROTO ? REASON_PROTOCOL : REASON_PEER_GONE);
		return false;
	}
	welcome = atomic_load(&l->state) == LINK_HELLO;
	if (m.slot >= l->arena.slots || welcome != (m.type == CTL_WELCOME) || m.type == CTL_HELLO) {
		/* A BELL may overtake WELCOME? No: the acceptor says WELCOME after its bells. */
		if (!(welcome && m.type == CTL_BELL && m.slot < l->arena.slots)) {
			if (fd >= 0)
				sys(SYS_close, fd);
			link_kill(l, REASON_PROTOCOL);
			return false;
		}
	}
	switch (m.type) {
	case CTL_WELCOME:
		if (l->net) {
			link_net_welcomed(l, &m);
		} else {
			link_up(l);
			hello_settled(l);
		}
		break;
	case CTL_BELL:
		if (l->net)
			link_kill(l, REASON_PROTOCOL);
		else
			got_bell(l, &m, &fd);
		break;
	case CTL_DEAD:
		if (l->net)
			link_net_dead(l);
		else
			link_kill(l, REASON_PROTOCOL);
		break;
	case CTL_BIND:
		got_bind(l, &m, fd);
		break;
	case CTL_BOUND:
		got_bound(l, &m, fd);
		break;
	case CTL_NOT_MINE:
		got_not_mine(l, &m);
		break;
	case CTL_UNBIND:
		got_unbind(l, &m);
		break;
	case CTL_CUT:
		got_cut(l, &m);
		break;
	}
	if (fd >= 0)
		sys(SYS_close, fd);
	return l->ctl >= 0;
}

/* Streams whose BIND was on the way when the link went: back to searching. */
static void orphaned(struct link *l)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) != MODE_FREE && s->rv_state == RV_ASKED && s->rv_link == l->index) {
			s->rv_state = RV_TRY;
			from_the_first_link(s);
			s->rv_due_us = now_us() + backoff(s->rv_tries++);
			bg_look(s);
		}
	}
}

void rv_link_ready(uint32_t i)
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
	if (atomic_load(&l->state) == LINK_DEAD) {
		orphaned(l);
		hello_settled(l);
		if (l->net)
			net_link_settled(l, l->why ? l->why : REASON_NO_PEER_SHIM);
	}
}

/* ---- between hosts: what comes of a call ---- */

/* As after a knock: nobody there yet is asked again; what will not change soon leaves the stream on TCP. */
void rv_call_ended(struct stream *s, enum reason why)
{
	uint64_t now = now_us();

	if (why == REASON_NO_PEER_SHIM && now < s->rv_end_us) {
		s->rv_state = RV_TRY;
		from_the_first_link(s);
		s->rv_due_us = now + backoff(s->rv_tries++);
	} else {
		fail(s, why, why == REASON_NO_PEER_SHIM);
	}
	bg_look(s);
}

void net_link_settled(struct link *l, enum reason why)
{
	uint32_t n = streams_top();

	if (why == REASON_PEER_GONE)	/* hung up before the link was there, perhaps because we took too long: the connection lives, so somebody has it */
		why = REASON_NO_PEER_SHIM;
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) == MODE_FREE || s->rv_state != RV_CALL || s->rv_link != l->index)
			continue;
		s->rv_state = RV_TRY;
		from_the_first_link(s);
		s->rv_due_us = now_us();
		if (why)
			rv_call_ended(s, why);
		bg_look(s);
	}
}

void rv_unbind(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	if (!l)
		return;
	stream_lock(s);
	/* An error that the application has not heard of yet is told by us. */
	if ((stream_home_both(s) && (atomic_load(&s->dead) || !atomic_load(&s->err))) ||
	    (atomic_load(&s->dead) && (atomic_load(&l->state) != LINK_UP || atomic_load(&s->peer_gone)))) {
		uint32_t slot = s->slot;
		bool live = atomic_load(&l->state) == LINK_UP;

		stream_detach(s);
		s->unbind_sent = 1;
		stream_publish_state(s);
		if (live)
			give_back_slot(l, slot);
	}
	stream_unlock(s);
}

void rv_policy(struct stream *s)
{
	if (stream_pinned(s) || !s->tuple_known)
		return;
	if (atomic_load(&s->link) ? allowed_by(s, s->rv_net) : allowed(s)) {
		stat_row_reason(s->row, atomic_load(&s->link) ? REASON_NONE : REASON_NOT_EARNED);
		if (!atomic_load(&s->link) && s->rv_state == RV_FAILED) {
			s->rv_state = RV_NONE;
			s->rv_due_us = s->rv_end_us = 0;
			s->want = 0;
		}
	} else {
		stat_row_reason(s->row, atomic_load(&s->stopped));
		if (atomic_load(&s->link))
			stream_ask_home(s);
		else if (s->rv_state == RV_TRY || s->rv_state == RV_LISTEN || s->rv_state == RV_CALL)
			fail(s, atomic_load(&s->stopped), false);
	}
	bg_look(s);
}

uint64_t rv_pending_expire(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (int i = 0; pending_init && i < PENDING_MAX; i++) {
		if (pending[i].fd < 0)
			continue;
		if (now >= pending[i].end_us) {
			bg_unwatch_fd(pending[i].fd);
			fd_internal_close(pending[i].fd);
			pending[i].fd = -1;
		} else if (pending[i].end_us < next) {
			next = pending[i].end_us;
		}
	}
	return next;
}

void rv_after_fork(void)
{
	net_after_fork();
	if (pending_init)
		for (int i = 0; i < PENDING_MAX; i++)
			if (pending[i].fd >= 0)
				fd_internal_close(pending[i].fd);
	pending_init = false;
	names_open = 0;
}
