/*
 * bind_proof.c - BIND and BOUND, and what they prove: that the process at the other end of a link
 * has the other end of the stream's connection, and between hosts that it is one connection.
 * discovery_ctl.c and search.c call this file, which calls neither.
 *
 * Background thread only. Locks: a stream's rcv.lock, and below it a link's out_lock.
 */
#include "discovery/discovery_ctl.h"

#include <netinet/tcp.h>
#include <string.h>

#include "base/fdtab.h"
#include "base/proof.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_send.h"
#include "discovery/across.h"
#include "discovery/identity.h"
#include "link/link.h"
#include "link/path.h"
#include "link/rights.h"
#include "policy/log.h"

/* ---- sending ---- */

/* With the proof that we have the socket; the peer must not get that itself. 0, -errno: -EAGAIN,
 * -EBADF, or why there is no proof. */
static int pass_proof(struct link *l, const struct ctl_msg *m, int sock)
{
	int fd, r;

	fd_number_lock();
	fd = proof_of(sock);
	r = fd < 0 ? fd : ctl_send_fd(l->ctl, m, fd);
	if (fd >= 0)
		sys(SYS_close, fd);
	fd_number_unlock();
	return fd < 0 ? fd : r ? -EAGAIN : 0;
}

/* `gen`: of the stream that is meant; its struct may be another's by now. */
static int send_with_proof(struct link *l, struct stream *s, uint32_t gen, struct ctl_msg *m)
{
	int r;

	lock_take(&s->rcv.lock);		/* holds off close(): the fd stays this socket */
	tuple_from(&m->tuple, (void *)&s->addr.local, (void *)&s->addr.peer);
	if (atomic_load(&s->fd) < 0 || atomic_load(&s->gen) != gen) {
		r = -EBADF;
	} else if (l->across && across_tell(s, m)) {
		r = -EAGAIN;
	} else {
		lock_take(&l->out_lock);
		r = l->out_head != l->out_tail ? -EAGAIN : pass_proof(l, m, atomic_load(&s->fd));
		lock_give(&l->out_lock);
	}
	lock_give(&s->rcv.lock);
	return r;
}

/* Asked before anything of ours goes to whoever opened the name, or has a link because of another
 * connection, or was one of the policy's users once. */
bool search_owned_by(struct stream *s, const struct identity *end, uid_t uid)
{
	if (end->uid == uid && rights_taken_from(uid))
		return true;
	s->want = end->uid == uid && uid != OVERFLOW_UID ? REASON_OTHER_USER : REASON_IDENTITY;
	return false;
}

/* Is `fd`, which came over the link, the other end of s? 0 or -errno. */
int search_proves(const struct link *l, struct stream *s, int fd)
{
	return identity_check(fd, (void *)&s->addr.local, (void *)&s->addr.peer, l->peer_uid);
}

/* The proof fails, too, where either end was closed, or taken for another connection, meanwhile:
 * then nobody has lied. r: what search_proves() said. */
static bool ended_meanwhile(const struct stream *s, int r)
{
	int fd = atomic_load(&s->fd);

	return r == -ENOTCONN || r == -ENOENT || fd < 0 || stream_tcp_state(fd) != TCP_ESTABLISHED;
}

/* Why a stream whose proof is no good is not bound. r: what search_proves() said. */
enum reason search_not_proved(const struct stream *s, int r)
{
	if (r == -EOPNOTSUPP)		/* no /proc here: we cannot look */
		return REASON_NO_DISCOVERY;
	if (ended_meanwhile(s, r))
		return REASON_SHARED;
	stat_add(STAT_refused, 1);
	return REASON_IDENTITY;
}

enum reason search_unproved(const struct link *l, struct stream *s, const struct ctl_msg *m, int fd)
{
	int r;

	if (fd == CTL_FD_LOST)
		return REASON_NO_FDS;
	if (l->across)
		return across_is_one(l, s, m, fd);
	r = search_proves(l, s, fd);
	return r ? search_not_proved(s, r) : REASON_NONE;
}

bool search_same_host(const struct link *l, const struct stream *s)
{
	struct sockaddr_storage p = s->addr.peer;

	sockaddr_no_port(&p);
	return sockaddr_same((void *)&l->host, (void *)&p);
}

/* Is the link one that the stream may ride? */
bool search_fits(const struct link *l, const struct stream *s)
{
	return l->path->kind == s->search.path && l->across == s->search.across &&
	       !atomic_load(&l->distrusted) && !l->path_told &&
	       (!l->path->far || search_same_host(l, s));
}

/* ---- between hosts: is it one connection? ---- */

/*
 * Behind a proxy that keeps the addresses both ends have the names of one connection, and the
 * key, and the bytes of two. What one end's kernel knows and the other end's can tell is the
 * timestamp in the SYN: only the client's own host counts from there. BOUND tells it to the
 * client in place of the tuple, which it knows by the slot: pport 1 and the timestamp in paddr,
 * or pport 0.
 */
static void tell_syn(struct stream *s, struct ctl_tuple *t)
{
	int r = 0;

	if (!s->search.syn_known) {
		lock_take(&s->rcv.lock);		/* the fd stays this socket */
		r = atomic_load(&s->fd) < 0 ? -EBADF
					    : identity_syn(atomic_load(&s->fd), &s->search.syn);
		lock_give(&s->rcv.lock);
		s->search.syn_known = !r;
	}
	if (r)
		log_line(2, "fd %d: its SYN is not known: error %d", atomic_load(&s->fd), -r);
	memset(t, 0, sizeof *t);
	t->pport = s->search.syn_known;
	memcpy(t->paddr, &s->search.syn, sizeof s->search.syn);
}

/* NULL: it is one. Or what speaks against it. rcv.lock held. */
static const char *two_connections(struct stream *s, const struct ctl_tuple *t)
{
	int fd = atomic_load(&s->fd);
	uint32_t stamp;

	memcpy(&stamp, t->paddr, sizeof stamp);
	if (fd < 0)
		return "it was closed";
	if (t->pport != 1)
		return "whether a proxy keeps our address is not known: the other end's kernel has "
		       "kept no timestamp of our SYN";
	if (!identity_our_syn(fd, stamp, s->search.connect_us, s->search.syn_by_us))
		return "the other end got another SYN than ours: a proxy keeps our address";
	/* A proxy in another namespace of this host has the same clock. */
	if (identity_leaves_host(fd, (void *)&s->addr.local, (void *)&s->addr.peer))
		return "its packets go by another network namespace of this host, where a proxy "
		       "may keep our address";
	return NULL;
}

/* The client's look. Once is enough: a path that is lost and found again is not another
 * connection. */
bool search_one_connection(struct stream *s, const struct ctl_tuple *t)
{
	const char *why;

	if (s->search.syn_known)
		return true;
	lock_take(&s->rcv.lock);		/* the fd stays this socket */
	why = two_connections(s, t);
	lock_give(&s->rcv.lock);
	s->search.syn_known = !why;
	if (why)
		log_line(2, "fd %d: %s", atomic_load(&s->fd), why);
	return !why;
}

/* BIND or BOUND, with what the peer must know: what the wire's other end does, if it has one, and
 * that the connection is ours. 0 or -errno, of those that may pass soon -EAGAIN. */
int search_send_bind(struct link *l, struct stream *s, uint32_t gen, unsigned type, uint32_t slot,
		     uint32_t life)
{
	struct ctl_msg m = { .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot,
			     .epoch = life };

	if (l->wire && l->wire->bind(l, slot, (uint16_t)life, &m.off, &m.index)) {
		s->want = REASON_NO_MEMORY;
		return -EAGAIN;
	}
	if (!l->path->far)
		return send_with_proof(l, s, gen, &m);
	tuple_from(&m.tuple, (void *)&s->addr.local, (void *)&s->addr.peer);
	if (type == CTL_BOUND)
		tell_syn(s, &m.tuple);
	return link_send(l, &m) ? 0 : -EAGAIN;
}
