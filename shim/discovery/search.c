/*
 * search.c - how the two processes that hold the ends of one TCP connection find each other on one
 * host: the search of each stream, from its start until it has a slot on a link or stays on TCP.
 * search_result.c handles its results, discovery_ctl.c what is said over a link, discovery_net.c
 * hosts that meet, and discovery_callers.c lets in those who connect.
 *
 * Owns when a search has its turn, and, with search_result.c, the fields `search` of a stream.
 *
 * The accepting side opens a discovery socket (discovery_sock.h) named after the 4-tuple, for as
 * long as the search takes. The connecting side first asks over existing links, then connects
 * there.
 *
 *   client                                   server
 *   earns -> SEARCH_TRY                          earns -> SEARCH_LISTEN (name open)
 *   BIND on each link: NOT_MINE ...          (answers BIND for any stream of its own)
 *   connect(name), HELLO          -------->  accept; whose is it? (SO_PEERCRED)
 *                                 <--------  WELCOME + segment; link made
 *   BIND(slot, tuple) + its proof ------->  identity_check; attach
 *   identity_check; attach        <--------  BOUND + its proof
 *
 * Both ends then let their sending halves earn (stream_try_cut).
 *
 * Background thread only. Locks: a stream's rcv.lock, for its addresses.
 */
#include "discovery/discovery_ctl.h"

#include <string.h>
#include <sys/socket.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/proof.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "discovery/across_name.h"
#include "discovery/discovery_net.h"
#include "discovery/discovery_sock.h"
#include "discovery/identity.h"
#include "discovery/search.h"
#include "link/link.h"
#include "link/other_version.h"
#include "link/path.h"
#include "link/rights.h"
#include "policy/log.h"

#define NAMES_MAX     256
#define NAME_US       100000	/* so long a name stays open while others wait for one */

static uint64_t names_turn;	/* when the last one of those that wait for a name has its turn */

/* ---- start ---- */

/* The first of the paths that gets there; TCP: none of them does. */
static enum path_kind first_of(uint32_t allowed, bool here)
{
	for (int i = PATH_TCP + 1; i < PATH_KINDS; i++)
		if (allowed & 1u << i && (here || paths[i]->far))
			return (enum path_kind)i;
	return PATH_TCP;
}

static bool on_this_host(struct stream *s, struct identity *end)
{
	*end = (struct identity){ .marked = false };
	return !identity_query((void *)&s->addr.peer, (void *)&s->addr.local, end) ||
	       sockaddr_loopback((void *)&s->addr.peer);
}

/* The sockets are of one host, and their names fit, but what the client sends leaves the network
 * namespace: it may end there, and what comes back be another connection. The client asks for
 * slots, so its look is enough. */
static bool proxied(struct stream *s)
{
	int r;

	if (s->role != ROLE_CLIENT)
		return false;
	lock_take(&s->rcv.lock);		/* the fd stays this socket; one that is closed
						 * has no way at all */
	r = atomic_load(&s->fd) < 0 ? 0
				    : identity_straight(atomic_load(&s->fd), (void *)&s->addr.local,
							(void *)&s->addr.peer);
	lock_give(&s->rcv.lock);
	if (r)
		log_line(2, "fd %d: no straight way to the other end: error %d",
			 atomic_load(&s->fd), -r);
	return r != 0;
}

/* The other end's socket does not say that the library is there: it hardly is, and this search
 * makes the calls of a program with one thread dearer (see nothing_to_do() in loop.c). A later
 * search is one look: by then the library would have said so. */
#define UNMARKED_US 50000
#define SERVER_MORE_US 500000	/* to outlast the client's search */

static uint64_t search_us(const struct stream *s)
{
	uint64_t us = shim_tunables()->discovery;

	if (s->search.unmarked && s->earn.searched)
		return 0;
	us = s->search.unmarked && us > UNMARKED_US ? UNMARKED_US : us;
	return us + (!search_awaits(s) ? 0 : s->search.unmarked ? UNMARKED_US : SERVER_MORE_US);
}

static bool any_link(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_UP)
			return true;
	return false;
}

/* Whoever has the other end may not pass us what a link needs. Then the search is over. */
static bool stranger(struct stream *s, const struct identity *end)
{
	uid_t own;

	if (!end->inode)	/* not accepted yet: nobody's */
		return false;
	own = (uid_t)sys(SYS_geteuid);
	s->search.foreign = end->uid != own;
	if (own == OVERFLOW_UID && !end->unmarked)	/* whom the other end does not believe */
		search_failed(s, REASON_NOBODY, false);
	else if (rights_taken_from(end->uid))
		return false;
	else
		search_failed(s, end->uid == OVERFLOW_UID ? REASON_NOBODY : REASON_OTHER_USER,
			      false);
	return true;
}

/* Nobody has answered. Where the library is there, but of another user, who may not take
 * descriptors of ours, another policy lets him; else the calls of the stream cost one look-up
 * from now on. */
static void not_answered(struct stream *s)
{
	enum reason why = s->search.other			  ? REASON_VERSION
			  : s->search.foreign && s->search.marked ? REASON_OTHER_USER
								  : REASON_NO_PEER_SHIM;

	search_failed(s, why, why != REASON_OTHER_USER);
}

#define WORD_EACH_US 1000000	/* the kernel is asked so often, for a word on the screen */

/* Why it stays on TCP, where `across` is why it is not looked for in other namespaces. */
static enum reason elsewhere(struct stream *s, enum reason across)
{
	static _Atomic uint64_t next;
	uint64_t now = now_us();
	bool leaves;

	if (across != REASON_REMOTE || s->search.across_done || now < atomic_load(&next))
		return across;
	atomic_store(&next, now + WORD_EACH_US);
	lock_take(&s->rcv.lock);		/* the fd stays this socket */
	leaves = atomic_load(&s->fd) >= 0 &&
		 identity_leaves_host(atomic_load(&s->fd), (void *)&s->addr.local,
				      (void *)&s->addr.peer) == -EXDEV;
	lock_give(&s->rcv.lock);
	return leaves ? REASON_OTHER_NAMESPACE : REASON_REMOTE;
}

/* Its addresses are known. False: it is not connected yet, or is none of those that we look for. */
static bool has_names(struct stream *s, uint64_t now)
{
	int r;

	r = search_read_names(s);
	if (r == -ENOTCONN && now < s->search.end_us) {	/* connect() still under way */
		s->search.due_us = now + 2000;
		return false;
	}
	if (r == -EXDEV)
		log_line(2, "fd %d: it is of another network namespace than the library's thread",
			 atomic_load(&s->fd));
	if (r) {
		search_failed(s,
			  r == -EPROTOTYPE   ? REASON_NOT_TCP
			  : r == -EOPNOTSUPP ? REASON_SOCKOPT
					     : REASON_NO_DISCOVERY,
			  r == -EPROTOTYPE || r == -EOPNOTSUPP || r == -EXDEV);
		return false;
	}
	/* one socket connected to itself */
	if (sockaddr_same((void *)&s->addr.local, (void *)&s->addr.peer)) {
		search_failed(s, REASON_NO_DISCOVERY, true);
		return false;
	}
	return true;
}

void search_start(struct stream *s)
{
	uint64_t now = now_us();
	struct identity end = { .marked = false };
	enum path_kind path;
	enum reason across;
	uint32_t may;
	bool here, far;
	int r;

	if (stream_tcp_only(s) || atomic_load(&s->dead) || atomic_load(&s->fallback.going))
		return;
	if (!has_names(s, now))
		return;
	may = search_paths_allowed(s);
	if (!may) {
		search_failed(s, atomic_load(&s->earn.stopped), false);
		return;
	}
	here = on_this_host(s, &end);
	s->search.across = 0;
	across = here ? REASON_REMOTE : across_why_not(s, may);
	if (!across) {
		across_start(s);
		return;
	}
	if (here && proxied(s)) {
		search_failed(s, REASON_PROXIED, true);
		return;
	}
	path = first_of(may, here);
	if (path != PATH_TCP)
		s->search.path = path;
	far = path == PATH_TCP || paths[path]->far;
	if (!far && stranger(s, &end))
		return;
	s->search.unmarked = end.unmarked && !far;
	s->search.marked = end.marked && !far;
	if (far || s->search.unmarked)		/* it takes long, or is for nothing */
		hold_over(s);
	if (far) {
		r = path == PATH_TCP ? (int)elsewhere(s, across) : net_possible(s);
		if (r) {
			search_failed(s, (enum reason)r,
				  r == REASON_REMOTE || r == REASON_OTHER_NAMESPACE);
			return;
		}
		now = now_us();		/* loading libraries may have taken long */
	}
	s->search.end_us = now + search_us(s);
	s->search.tries = s->search.hung_up = s->search.other = s->search.waits = 0;
	s->search.link = s->search.elsewhere = 0;
	stat_row_event(s->row, EVENT_SEARCH, far);
	stat_row_reason(s->row, REASON_SEARCHING);
	if (!search_awaits(s)) {
		s->search.state = SEARCH_TRY;
		s->search.due_us = now;
	} else {
		s->search.state = SEARCH_LISTEN;
		s->search.due_us = now;
		if (any_link() && !far)
			s->search.due_us += search_many_found(now) ? 50000 : 5000;
	}
}

/* ---- the connecting end ---- */

/* Was the link made for a connection to the same address and port? Then the other end is likely
 * to be there, too. */
static bool same_place(const struct link *l, const struct stream *s)
{
	return l->path->far || sockaddr_same((void *)&l->host, (void *)&s->addr.peer);
}

/* That link may be the one: wait for it rather than make another. */
static struct link *hello_under_way(const struct stream *s)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_HELLO && !links[i].path->far &&
		    links[i].across == s->search.across && same_place(&links[i], s))
			return &links[i];
	return NULL;
}

/* Whoever opened the name is linked to us already, with room for the stream: it was asked there
 * just before its end had been accepted. Another link, which nobody would take down, is not
 * needed; the stream asks again. */
static bool linked_to(const struct ucred *c)
{
	for (uint32_t i = 0; c->pid > 0 && i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_UP && !links[i].path->far &&
		    !links[i].across && links[i].peer_pid == c->pid &&
		    links[i].peer_uid == c->uid &&
		    links[i].peer_start == process_start(c->pid) && link_has_room(&links[i]))
			return true;
	return false;
}

static void wait_for(struct stream *s, const struct link *l)
{
	s->search.hello = l->index + 1;
	search_from_the_first_link(s);
	s->search.due_us = UINT64_MAX;
}

/* Who leaves without a word is taken for an older library (discovery_callers.c). */
static void leave(int fd, enum reason why)
{
	struct ctl_msg m = { .type = CTL_NOT_MINE, .version = CTL_VERSION, .index = why };

	ctl_send_fd(fd, &m, -1);
}

/* so often nobody was there: perhaps one who has the name and does not listen */
#define SPARE_TRIES 6

/* A socket of ours that is connected to the other end's, by its name or, where a stranger has
 * that, by its spare one. Nothing is taken from whoever opened the name before the kernel has
 * said who that is. Or -errno. */
static int reach(struct stream *s, const struct identity *end, struct ucred *cred)
{
	const struct sockaddr *local = (void *)&s->addr.local, *peer = (void *)&s->addr.peer;
	uint32_t clen = sizeof *cred;
	long r = -EAGAIN;

	for (int spare = 0; spare < 2; spare++) {
		int fd;

		fd = fd_moment_sys(SYS_socket, AF_UNIX,
				   SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			return fd;
		rights_allow(fd, false);
		r = spare ? discovery_sock_connect_spare(fd, local, peer, end->uid)
			  : discovery_sock_connect(fd, local, peer);
		if (r >= 0)
			r = sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, cred, &clen);
		if (r >= 0 && search_owned_by(s, end, cred->uid)) {
			r = !fd_may_keep() ? -EMFILE : proof_possible() < 0 ? -ENOENT : 0;
			if (!r)
				return fd;
			leave(fd, search_reason_of((int)r));
		} else if (r >= 0) {
			leave(fd, REASON_IDENTITY);
		}
		rights_close(fd);
		if (r < 0 && r != -ECONNREFUSED && r != -EAGAIN)
			return (int)r;
		if (r < 0 && s->search.tries < SPARE_TRIES)
			break;
	}
	return r < 0 ? (int)r : -EAGAIN;
}

/* Connects to the name. 1: a link is being made and the stream waits for it, 0: not there,
 * -errno. */
static int connect_to(struct stream *s, const struct identity *end)
{
	struct ctl_msg m = { 0 };
	struct ucred cred;
	struct link *l;
	uint32_t theirs;
	int fd;
	long r;

	if (closer_busy())
		return -EAGAIN;
	fd = reach(s, end, &cred);
	if (fd < 0)
		return fd == -ECONNREFUSED || fd == -EAGAIN ? 0 : fd;
	if (linked_to(&cred)) {
		leave(fd, REASON_SHARED);
		fd_internal_close(fd);
		return -EAGAIN;
	}
	rights_allow(fd, true);
	version_hello(&m);
	r = ctl_send_fd(fd, &m, -1);
	if (version_other(cred.pid, &theirs)) {		/* HELLO tells the other end why */
		fd_internal_close(fd);
		search_version(s, theirs);
		return 1;
	}
	l = r < 0 ? NULL : link_new(stream_sought(s), fd, cred.uid, cred.pid);
	if (!l) {
		rights_end(fd);
		return r < 0 ? (int)r : -EMLINK;
	}
	l->host = s->addr.peer;
	l->caller = s->index + 1;
	r = loop_watch_fd(fd, EPOLLIN, LOOP_LINK, l->index);
	if (r < 0) {
		link_kill(l, search_reason_of((int)r));
		return (int)r;
	}
	wait_for(s, l);
	return 1;
}

/* A connecting end has its mark some bytes after it has its connection: it may have come
 * meanwhile. */
static void look_again(struct stream *s)
{
	struct identity end;

	if (!on_this_host(s, &end) || end.unmarked)
		return;
	s->search.unmarked = 0;
	s->search.marked = end.marked;
	s->search.end_us += search_us(s);
}

/*
 * When thousands of connections are made at once, those that come last in the queues, here and
 * at the other end, would be given up before anybody asked for them. So where somebody is to be
 * found he is searched for five times the time.
 */
static bool given_up(struct stream *s, uint64_t now)
{
	if (s->search.unmarked && !s->earn.searched && now >= s->search.end_us)
		look_again(s);
	return now >= s->search.end_us + (s->search.marked ? 4 * shim_tunables()->discovery : 0);
}

/* Over the next link that there is; those to the same place come first. 1: asked; 0: none is
 * left; -ENOMEM. */
static int ask_next(struct stream *s, const struct identity *end)
{
	uint32_t n = atomic_load(&links_top);

	for (; s->search.elsewhere < 2; s->search.elsewhere++, s->search.link = 0)
		for (; s->search.link < n; s->search.link++) {
			struct link *l = &links[s->search.link];
			int r = atomic_load(&l->state) == LINK_UP &&
						same_place(l, s) == !s->search.elsewhere
					? search_ask(s, l, end)
					: -EAGAIN;

			if (r != -EAGAIN)
				return r ? r : 1;
		}
	return 0;
}

static void try_net(struct stream *s, uint64_t now)
{
	int r = ask_next(s, NULL);

	if (r < 0)
		search_failed(s, search_reason_of(r), false);
	if (r)
		return;
	if (net_under_way(&s->addr.peer)) {
		search_from_the_first_link(s);
		s->search.due_us = now + 2000;
		return;
	}
	r = s->want ? s->want : net_call(s);
	if (r != 1)
		search_failed(s, (enum reason)r, false);
}

/* the kernel says nothing: so often it may be a moment's want of something */
#define SILENT_TRIES 3

/* Who has the other end. 1; 0: nobody, it was not accepted yet; -errno: the kernel does not say. */
static int accepted(struct stream *s, struct identity *ret)
{
	int r = identity_query((void *)&s->addr.peer, (void *)&s->addr.local, ret);

	if (r)
		return r == -ENOENT || s->search.tries < SILENT_TRIES ? 0 : r;
	return ret->inode != 0;
}

#define BOTH_TRIES 4	/* one that accepted is mostly found by then */
#define BOTH_NAMES 8	/* it is rare: others need the names */

/*
 * Perhaps the two sockets connected to each other: nobody accepted, and both ask. The kernel
 * knows, but to ask it is to wait for whoever uses the other end. So the end that comes first in
 * order can be asked, too, while it goes on asking.
 */
static void be_asked_too(struct stream *s)
{
	if (s->search.tries < BOTH_TRIES || !s->search.marked || !search_comes_first(s))
		return;
	if (!s->search.waits)
		stream_enter_port(s);
	s->search.waits = 1;
	if (s->search.fd < 0 && search_client_names < BOTH_NAMES && search_names_open < NAMES_MAX)
		search_client_names += !search_name_open(s);
}

/* By a link that there is, or when one is there that is being made. 1: done; 0: there is none; or
 * -errno. end: as of ask_next(). */
static int ask_or_wait(struct stream *s, const struct identity *end)
{
	struct link *hello;
	int r = ask_next(s, end);

	hello = r ? NULL : hello_under_way(s);
	if (!hello)
		return r;
	wait_for(s, hello);
	return 1;
}

/* Who answers nothing over links, and has no name (yet): again. */
static void try_across(struct stream *s, uint64_t now)
{
	int r;

	s->search.hello = 0;
	r = ask_or_wait(s, NULL);
	if (!r)
		r = across_connect(s);
	if (r > 0)
		return;
	if (r < 0 && r != -EAGAIN) {
		across_failed(s, search_reason_of(r));
	} else if (now >= s->search.end_us) {
		across_failed(s, s->want ? s->want : REASON_NO_PEER_SHIM);
	} else {
		search_from_the_first_link(s);
		s->search.due_us = now + search_backoff(s->search.tries++);
	}
}

static void try_client(struct stream *s, uint64_t now)
{
	struct identity end;
	int r;

	s->search.hello = 0;
	r = accepted(s, &end);
	if (r > 0) {
		if (stranger(s, &end))
			return;
		r = ask_or_wait(s, &end);
		if (!r)
			r = connect_to(s, &end);
		if (r > 0)
			return;
		if (!r)
			be_asked_too(s);
	}
	if (given_up(s, now) || (r < 0 && r != -EAGAIN)) {
		if (r < 0 && r != -EAGAIN)
			search_failed(s, search_reason_of(r), false);
		else if (s->want)
			search_failed(s, s->want, false);
		else
			not_answered(s);
		return;
	}
	search_from_the_first_link(s);
	s->search.due_us = now + search_backoff(s->search.tries++);
}

/* All names are in use: when to try again. Thousands who wait take turns. */
static uint64_t without_name(uint64_t now)
{
	names_turn = names_turn + 200 > now + 50000 ? names_turn + 200 : now + 50000;
	return names_turn;
}

/* Its name gives way to those that wait: the other ends of hundreds may be stopped, and nobody
 * else would be met for seconds. */
static void name_due(struct stream *s, uint64_t now)
{
	if (now < names_turn) {
		search_name_close(s);
		s->search.due_us = without_name(now);
	} else {
		s->search.due_us = now + NAME_US;
	}
}

uint64_t search_work(struct stream *s, uint64_t now)
{
	int r;

	if (s->search.state == SEARCH_NONE) {
		if (now < s->search.due_us)
			return s->search.due_us;
		if (!s->search.end_us)
			s->search.end_us = now + shim_tunables()->discovery;
		search_start(s);
		return s->search.state == SEARCH_FAILED ? UINT64_MAX : s->search.due_us;
	}
	if (s->search.across && (s->search.state == SEARCH_LISTEN ||
				 s->search.state == SEARCH_TRY)) {
		r = across_ready(s, now);
		if (r <= 0)
			return !r || s->search.state == SEARCH_NONE ? s->search.due_us : UINT64_MAX;
	}
	if (s->search.state == SEARCH_LISTEN) {
		/* as long as it takes, but not all the time */
		if (now >= s->search.end_us && s->search.lost) {
			net_listen(s);
			s->search.end_us = now + search_retry_us(s);
			return s->search.end_us;
		}
		if (given_up(s, now)) {
			if (s->search.across)
				across_failed(s, REASON_NO_PEER_SHIM);
			else
				not_answered(s);
			return s->search.state == SEARCH_NONE ? s->search.due_us : UINT64_MAX;
		}
		if (stream_sought(s)->far) {
			r = net_listen(s);
			if (r < 0 && r != -EADDRINUSE) {
				search_failed(s, search_reason_of(r), false);
				return s->search.state == SEARCH_NONE ? s->search.due_us
					: UINT64_MAX;
			}
			return now + 20000;	/* whoever has the port may die */
		}
		if (s->search.fd < 0 && now >= s->search.due_us) {
			r = search_names_open < NAMES_MAX ? search_name_open(s) : -EAGAIN;
			if (s->search.across && r == -EADDRINUSE) {
				across_failed(s, REASON_AMBIGUOUS);
				return UINT64_MAX;
			}
			if (r == -EAGAIN || r == -EADDRINUSE) {
				s->search.due_us = search_names_open < NAMES_MAX
							   ? now + search_backoff(s->search.tries++)
							   : without_name(now);
				return s->search.due_us;
			}
			if (r < 0) {
				search_failed(s, search_reason_of(r), false);
				return UINT64_MAX;
			}
			s->search.due_us = now + NAME_US;
		} else if (now >= s->search.due_us) {
			name_due(s, now);
		}
		return now < s->search.end_us && s->search.end_us < s->search.due_us
			       ? s->search.end_us
			       : s->search.due_us;
	}
	if (s->search.state == SEARCH_TRY) {
		if (now >= s->search.due_us)
			(stream_sought(s)->far ? try_net : s->search.across ? try_across :
							   try_client)(s, now);
		return s->search.state == SEARCH_TRY || s->search.state == SEARCH_NONE ||
				       s->search.state == SEARCH_LISTEN
			       ? s->search.due_us
			       : UINT64_MAX;
	}
	return UINT64_MAX;
}

void search_policy(struct stream *s)
{
	if (stream_tcp_only(s) || !s->addr.known)
		return;
	if (atomic_load(&s->link) ? search_allowed(s, s->search.path) : search_paths_allowed(s)) {
		stat_row_reason(s->row, atomic_load(&s->link) ? REASON_NONE
					: s->search.state == SEARCH_NONE ||
						s->search.state == SEARCH_FAILED
						? REASON_NOT_EARNED
						: REASON_SEARCHING);
		if (!atomic_load(&s->link) && s->search.state == SEARCH_FAILED) {
			search_anew(s);
			s->want = 0;
		}
	} else {
		stat_row_reason(s->row, atomic_load(&s->earn.stopped));
		if (atomic_load(&s->link))
			stream_ask_fallback(s);
		else if (s->search.state == SEARCH_TRY || s->search.state == SEARCH_LISTEN ||
			 s->search.state == SEARCH_CALL)
			search_failed(s, atomic_load(&s->earn.stopped), false);
	}
	bg_look(s);
}

void search_after_fork(void)
{
	net_after_fork();
	across_left_after_fork();
	search_names_open = search_client_names = 0;
}
