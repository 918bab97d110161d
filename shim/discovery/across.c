/*
 * across.c - the search across network namespaces of one host (docs/namespaces.md). Streams first
 * learn their ISNs. Then the client asks over links and connects to the name, as in one namespace.
 * All additional messages are in this file. search.c, discovery_callers.c and discovery_ctl.c call
 * it at the right places.
 *
 * Owns the fields of a stream's search that begin with `across`, and what a link has of the other
 *   namespace.
 *
 * Background thread only. Locks: a stream's rcv.lock or snd.lock, each for one step.
 */
#include "discovery/across.h"

#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/proof.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_learn.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "discovery/discovery_ctl.h"
#include "discovery/identity.h"
#include "discovery/search.h"
#include "link/other_version.h"
#include "link/rights.h"
#include "policy/log.h"

#define HALF_US 50000	/* an end that sends nothing for so long is one that only reads */
#define CHECK_US 5000	/* looked at so often */
#define ACROSS_MORE_US 500000	/* the accepting end, to outlast the other's search */

/* ---- a stream's search ---- */

static void both_isns(const struct stream *s, uint32_t isn[2])
{
	bool server = s->role == ROLE_SERVER;

	isn[0] = server ? s->learn.peer : s->learn.own;
	isn[1] = server ? s->learn.own : s->learn.peer;
}

void across_isns(const struct stream *s, uint32_t isn[2])
{
	both_isns(s, isn);
	if (s->search.across_half) {
		isn[0] = s->search.syn_isn;
		isn[1] = 0;
	}
}

enum reason across_why_not(struct stream *s, uint32_t paths)
{
	int r = across_possible();

	if (r == -ENOENT || !(paths & 1u << PATH_SHM) || s->search.across_done)
		return REASON_REMOTE;
	return r ? REASON_NO_TRUST : REASON_NONE;
}

/* Of the SYN that made it, which the kernel tells once. */
static int know_syn(struct stream *s)
{
	int r;

	if (s->search.syn_known)
		return 0;
	lock_take(&s->rcv.lock);		/* the fd stays this socket */
	r = atomic_load(&s->fd) < 0 ? -EBADF
				    : identity_whole_syn(atomic_load(&s->fd), &s->search.syn,
							 &s->search.syn_isn);
	lock_give(&s->rcv.lock);
	s->search.syn_known = !r;
	return r;
}

void across_start(struct stream *s)
{
	uint64_t now = now_us();

	s->search.across = 1;
	s->search.path = PATH_SHM;
	s->search.unmarked = s->search.marked = 0;
	hold_over(s);
	if (s->role == ROLE_SERVER && know_syn(s)) {
		log_line(2, "fd %d: its SYN is not known", atomic_load(&s->fd));
		across_failed(s, REASON_NO_HEADER);
		return;
	}
	s->search.end_us = now + shim_tunables()->discovery +
			   (s->role == ROLE_SERVER ? ACROSS_MORE_US : 0);
	s->search.tries = s->search.hung_up = s->search.other = s->search.waits = 0;
	s->search.across_wrong = s->search.across_ready = 0;
	s->search.across_half = s->search.across_claimed = 0;
	s->search.across_half_us = s->role == ROLE_SERVER ? now + HALF_US : UINT64_MAX;
	search_from_the_first_link(s);
	stat_row_event(s->row, EVENT_SEARCH, 0);
	stat_row_reason(s->row, REASON_SEARCHING);
	s->search.state = s->role == ROLE_SERVER ? SEARCH_LISTEN : SEARCH_TRY;
	s->search.due_us = now;
	if (!learn_known(&s->learn))
		stream_learn_want(s);
}

#define LATE_US 2000	/* a header that is late is looked for so often */

int across_ready(struct stream *s, uint64_t now)
{
	uint8_t state;
	int r;

	if (s->search.across_claimed) {
		r = stream_learn_check(s, s->search.syn_isn, s->search.across_claim, now);
		s->search.across_claimed = !r;
		if (r == -1) {
			across_failed(s, REASON_NOT_ONE);
			return -1;
		}
		s->search.due_us = r ? now : now + CHECK_US;
		if (!r)
			return 0;
	}
	if (s->search.across_ready)
		return 1;
	if (now >= s->search.across_half_us && stream_learn_silent(s)) {
		log_line(4, "fd %d: only reads, is named by the client's ISN",
			 atomic_load(&s->fd));
		s->search.across_half = s->search.across_ready = 1;
		s->search.due_us = now;
		return 1;
	}
	if (atomic_load(&s->learn.state) == LEARN_SENT)
		stream_learn_settle(s);
	state = atomic_load(&s->learn.state);
	if (state == LEARN_KNOWN && s->role == ROLE_SERVER && s->learn.peer != s->search.syn_isn) {
		across_failed(s, REASON_NOT_ONE);
		return -1;
	}
	if (state == LEARN_KNOWN) {
		log_line(4, "fd %d: its ISNs are known", atomic_load(&s->fd));
		s->search.across_ready = 1;
		s->search.due_us = now;
		return 1;
	}
	if (state == LEARN_FAILED || now >= s->search.end_us) {
		across_failed(s, state == LEARN_FAILED || state == LEARN_SENT
					 ? REASON_NO_HEADER
					 : REASON_NO_PEER_SHIM);
		return -1;
	}
	s->search.due_us = state == LEARN_SENT && now + LATE_US < s->search.end_us
				   ? now + LATE_US
				   : s->search.end_us;
	if (now < s->search.across_half_us && s->search.across_half_us < s->search.due_us)
		s->search.due_us = s->search.across_half_us;
	return 0;
}

/* The other end may be on another host, after all. */
static bool may_be_far(struct stream *s)
{
	return shim_tunables()->discovery_port && !s->search.across_done &&
	       search_paths_allowed(s) & 1u << path_between_hosts()->kind;
}

void across_failed(struct stream *s, enum reason why)
{
	stream_learn_over(s);
	s->search.across_claimed = 0;
	lock_take(&s->snd.lock);
	stream_learn_may_send(s);
	lock_give(&s->snd.lock);
	search_name_close(s);
	if (why != REASON_NO_PEER_SHIM && why != REASON_NO_HEADER)
		stat_add(STAT_refused, 1);
	else if (may_be_far(s)) {
		s->search.across = 0;
		s->search.across_done = 1;
		search_anew(s);
		bg_look(s);
		return;
	}
	search_failed(s, why, true);
}

/* ---- meeting ---- */

static bool linked_to(uint64_t process)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) == LINK_UP && links[i].across &&
		    links[i].process == process && link_has_room(&links[i]))
			return true;
	return false;
}

/* May whoever has the name be linked to? 0 and what the kernel says of him, or -errno. */
static int who_has_it(struct stream *s, int fd, struct ucred *cred, uint64_t *process, int *pidfd)
{
	uint32_t len = sizeof(*cred);
	long r = sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, cred, &len);

	if (r < 0)
		return (int)r;
	if (!rights_socket_from(cred->uid)) {
		s->want = cred->uid == OVERFLOW_UID ? REASON_NOBODY : REASON_OTHER_USER;
		return -EAGAIN;
	}
	if (!fd_may_keep() || proof_possible() < 0)
		return -EMFILE;
	*pidfd = across_process(fd, process);
	if (*pidfd < 0)
		return *pidfd;
	if (!*process || linked_to(*process)) {
		fd_internal_close(*pidfd);
		return *process ? -EAGAIN : -EPERM;
	}
	return 0;
}

static int make_link(struct stream *s, int fd, const struct ucred *cred, uint64_t process,
		     int pidfd, const uint32_t isn[2])
{
	struct link *l = link_new(paths[PATH_SHM], fd, cred->uid, cred->pid);
	int r;

	if (!l) {
		fd_internal_close(pidfd);
		rights_end(fd);
		return -EMLINK;
	}
	l->across = true;
	l->process = process;
	l->pidfd = pidfd;
	memcpy(l->isn, isn, sizeof(l->isn));
	l->host = s->addr.peer;
	l->caller = s->index + 1;
	r = loop_watch_fd(fd, EPOLLIN, LOOP_LINK, l->index);
	if (r < 0) {
		link_kill(l, search_reason_of(r));
		return r;
	}
	s->search.hello = l->index + 1;
	search_from_the_first_link(s);
	s->search.due_us = UINT64_MAX;
	return 1;
}

int across_connect(struct stream *s)
{
	struct ucred cred;
	uint64_t process;
	uint32_t isn[2];
	int fd, r, pidfd = -1;

	if (closer_busy())
		return -EAGAIN;
	fd = fd_moment_sys(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	rights_allow(fd, false);
	across_isns(s, isn);
	r = across_name_connect(fd, isn);
	if (r == -ECONNREFUSED) {	/* an end that only reads knows the first alone */
		isn[1] = 0;
		r = across_name_connect(fd, isn);
	}
	if (!r)
		r = who_has_it(s, fd, &cred, &process, &pidfd);
	if (!r)
		return make_link(s, fd, &cred, process, pidfd, isn);
	rights_close(fd);
	return r == -ECONNREFUSED ? 0 : r;
}

/* ---- proofs of the key ---- */

static void put_mac(struct ctl_msg *m, const uint8_t mac[ACROSS_MAC])
{
	*m = (struct ctl_msg){ .type = CTL_PROOF, .version = CTL_VERSION };
	memcpy(m->tuple.laddr, mac, 16);
	memcpy(m->tuple.paddr, mac + 16, 16);
}

static void get_mac(const struct ctl_msg *m, uint8_t mac[ACROSS_MAC])
{
	memcpy(mac, m->tuple.laddr, 16);
	memcpy(mac + 16, m->tuple.paddr, 16);
}

/* The process at the other end of a socket; 0: not known. */
static uint64_t process_at(int sock)
{
	uint64_t process;
	int pidfd = across_process(sock, &process);

	if (pidfd >= 0)
		fd_internal_close(pidfd);
	return process;
}

bool across_greet(struct stream *s, int sock)
{
	uint8_t mac[ACROSS_MAC];
	struct ctl_msg m;
	uint32_t isn[2];

	across_isns(s, isn);
	if (!across_make_mac(isn, true, process_at(sock), across_self(), mac))
		return false;
	put_mac(&m, mac);
	return !ctl_send_fd(sock, &m, -1);
}

bool across_proven(struct stream *s, int sock, const struct ctl_msg *m)
{
	uint8_t mac[ACROSS_MAC];
	uint32_t isn[2];

	across_isns(s, isn);
	get_mac(m, mac);
	return m->type == CTL_PROOF &&
	       across_mac_right(isn, false, process_at(sock), across_self(), mac);
}

bool across_greeted(struct link *l, const struct ctl_msg *m)
{
	struct ctl_msg mine, hello = { 0 };
	uint8_t mac[ACROSS_MAC];

	get_mac(m, mac);
	if (m->type != CTL_PROOF ||
	    !across_mac_right(l->isn, true, across_self(), l->process, mac) ||
	    !across_make_mac(l->isn, false, across_self(), l->process, mac)) {
		log_line(2, "link %u (pid %d): whoever has the name did not prove that he has the "
			    "key", l->index, l->peer_pid);
		stat_add(STAT_refused, 1);
		return false;
	}
	l->greeted = true;
	rights_allow(l->ctl, true);
	put_mac(&mine, mac);
	version_hello(&hello);
	return !ctl_send_fd(l->ctl, &mine, -1) && !ctl_send_fd(l->ctl, &hello, -1);
}

/* ---- a link ---- */

void across_link(struct link *l, int sock)
{
	l->across = l->greeted = true;
	l->pidfd = across_process(sock, &l->process);
}

bool across_pass_diag(struct link *l)
{
	struct ctl_msg m = { .type = CTL_DIAG, .version = CTL_VERSION };
	int nl = identity_diag(), r;

	r = nl < 0 ? nl : ctl_send_fd(l->ctl, &m, nl);
	if (nl >= 0)
		fd_internal_close(nl);
	if (r)
		link_kill(l, search_reason_of(r));
	return !r;
}

bool across_got_diag(struct link *l, int fd)
{
	int nl;

	if (!l->across || l->diag >= 0 || !identity_is_diag(fd))
		return false;
	nl = fd_internal_keep(fd);
	l->diag = nl;
	return nl >= 0;
}

/* ---- one connection ---- */

#define SYN_KNOWN (1ull << 32)	/* in `off` of BOUND, beside the timestamp */

int across_tell(struct stream *s, struct ctl_msg *m)
{
	struct learn_counts c;
	uint32_t isn[2];

	if (!learn_count(atomic_load(&s->fd), s->role == ROLE_CLIENT, &c))
		return -EBADF;
	across_isns(s, isn);
	m->index = c.acked;
	m->epoch = c.received;
	m->off = m->type == CTL_BIND ? (uint64_t)isn[0] << 32 | isn[1] : SYN_KNOWN | s->search.syn;
	return 0;
}

static bool is_meant(const struct stream *s, uint64_t isns)
{
	uint32_t isn[2];

	if (learn_known(&s->learn)) {
		both_isns(s, isn);
		return s->learn.peer == s->search.syn_isn &&
		       isns == ((uint64_t)isn[0] << 32 | isn[1]);
	}
	return s->search.across && s->search.across_half && s->search.state == SEARCH_LISTEN &&
	       s->search.syn_isn == isns >> 32;
}

/* It has yet to see whether it is; 0: it is; or why it is not. */
static enum reason claimed(struct stream *s, uint32_t isn)
{
	if (learn_known(&s->learn))
		return REASON_NONE;
	if (s->search.across_claimed && s->search.across_claim != isn)
		return REASON_AMBIGUOUS;
	s->search.across_claimed = 1;
	s->search.across_claim = isn;
	s->search.due_us = now_us();
	bg_look(s);
	return REASON_SHARED;		/* ask again */
}

/* Two of them: nobody can say which. */
struct stream *across_find(const struct ctl_msg *m, enum reason *why)
{
	uint32_t n = streams_top(), isn[2];
	struct stream *found = NULL;

	*why = REASON_NO_PEER_SHIM;
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) == MODE_FREE || atomic_load(&s->dead) ||
		    s->role != ROLE_SERVER || !s->search.syn_known || !s->addr.known ||
		    !is_meant(s, m->off))
			continue;
		if (found) {
			*why = REASON_AMBIGUOUS;
			return NULL;
		}
		found = s;
	}
	if (!found)
		return NULL;
	across_isns(found, isn);
	if (found->search.fd >= 0 && across_name_taken(isn)) {
		*why = REASON_AMBIGUOUS;
		return NULL;
	}
	*why = claimed(found, (uint32_t)m->off);
	return *why ? NULL : found;
}

/* Nobody has received more than was sent, nor less than was acknowledged. Modulo 2^32: what is
 * under way is less than half of that. */
static bool counts_fit(struct stream *s, const struct ctl_msg *m)
{
	struct learn_counts c;
	bool ok;

	lock_take(&s->rcv.lock);		/* the fd stays this socket */
	ok = atomic_load(&s->fd) >= 0 &&
	     learn_count(atomic_load(&s->fd), s->role == ROLE_CLIENT, &c) &&
	     (int32_t)(c.sent - m->epoch) >= 0 && (int32_t)(c.received - m->index) >= 0;
	lock_give(&s->rcv.lock);
	return ok;
}

/* Of a client, whom BOUND tells the time of its SYN. */
static bool syn_fits(struct stream *s, const struct ctl_msg *m)
{
	bool ok;

	if (s->role != ROLE_CLIENT)
		return true;
	lock_take(&s->rcv.lock);
	ok = atomic_load(&s->fd) >= 0 && m->off & SYN_KNOWN &&
	     identity_our_syn(atomic_load(&s->fd), (uint32_t)m->off, s->search.connect_us,
			      s->search.syn_by_us);
	lock_give(&s->rcv.lock);
	return ok;
}

enum reason across_is_one(const struct link *l, struct stream *s, const struct ctl_msg *m, int fd)
{
	int r = identity_check_there(l->diag, fd, &m->tuple, l->peer_uid);

	if (r)
		return search_not_proved(s, r);
	if (!syn_fits(s, m) || !counts_fit(s, m)) {
		if (stream_tcp_state(atomic_load(&s->fd)) != TCP_ESTABLISHED)
			return REASON_SHARED;
		log_line(2, "fd %d: it is not one connection with that of pid %d",
			 atomic_load(&s->fd), l->peer_pid);
		stat_add(STAT_refused, 1);
		return REASON_NOT_ONE;
	}
	s->search.across_its = m->tuple;
	stat_row_event(s->row, EVENT_ACROSS, 0);
	return REASON_NONE;
}

bool across_peer_closing(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	return l && l->across ? identity_closing_there(l->diag, &s->search.across_its)
			      : identity_peer_closing(atomic_load(&s->fd));
}
