/*
 * discovery_callers.c - processes that have connected to a name of ours (search.c) and have not
 * sent HELLO yet. Anybody on this host may connect. A process is let in only if the kernel says
 * that it may be the one that we wait for.
 *
 * Owns their sockets. Background thread only.
 */
#include "discovery/discovery_ctl.h"

#include <sys/socket.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_slab.h"
#include "discovery/across.h"
#include "discovery/discovery_net.h"
#include "discovery/identity.h"
#include "discovery/search.h"
#include "link/link.h"
#include "link/other_version.h"
#include "link/path.h"
#include "link/rights.h"

#define PENDING_MAX   64
#define PENDING_US    2000000
#define CALLERS_AT_ONCE 16	/* other work has its turn between */

static struct pending {
	int fd;
	uint64_t end_us;
	uint32_t stream, gen;		/* at whose name it connected */
	bool across, proven;		/* from another network namespace; it has the key */
	const struct path *path;	/* by which that one would go */
} pending[PENDING_MAX];
static bool pending_init;

/* Who callers cannot be let in, and would be announced again and again. The name is opened anew
 * in a while, or not, and that says why. */
static void no_room(struct stream *s)
{
	search_name_close(s);
	s->search.due_us = now_us() + 50000;
	bg_look(s);
}

/* May the process at the other end of `sock` be let in? It must be of the user who has the other
 * end of the stream, as the kernel says of both, and one who may pass us descriptors. Nothing
 * that it sent was looked at. */
static bool may_come_in(struct stream *s, int sock)
{
	struct ucred cred;
	uint32_t len = sizeof cred;
	struct identity end;

	if (sys(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
	    !rights_taken_from(cred.uid))
		return false;
	if (s->search.across)
		return rights_socket_from(cred.uid);
	/* Where the kernel does not say who has the other end, the proof will fail, and says
	 * why. */
	return identity_query((void *)&s->addr.peer, (void *)&s->addr.local, &end) ||
	       end.uid == cred.uid;
}

static void let_in(int fd, struct stream *s)
{
	int i, oldest = 0;

	for (i = 0; i < PENDING_MAX && pending[i].fd >= 0; i++)
		if (pending[i].end_us < pending[oldest].end_us)
			oldest = i;
	if (i == PENDING_MAX) {		/* crowded: the one that was silent longest goes */
		i = oldest;
		loop_unwatch_fd(pending[i].fd);
		rights_end(pending[i].fd);
		pending[i].fd = -1;
	}
	fd = fd_internal_keep(fd);
	if (fd < 0)
		return;
	rights_allow(fd, !s->search.across);
	pending[i].fd = fd;
	pending[i].across = s->search.across;
	pending[i].proven = false;
	pending[i].end_us = now_us() + PENDING_US;
	pending[i].stream = s->index;
	pending[i].path = stream_sought(s);
	pending[i].gen = atomic_load(&s->gen);
	if (loop_watch_fd(fd, EPOLLIN, LOOP_PENDING, (uint32_t)i) < 0) {
		rights_end(fd);
		pending[i].fd = -1;
	} else if (s->search.across && !across_greet(s, fd)) {
		loop_unwatch_fd(fd);
		rights_end(fd);
		pending[i].fd = -1;
	}
}

void search_name_ready(uint32_t index)
{
	struct stream *s = stream_at(index);

	if (s && stream_sought(s)->far) {
		net_name_ready(s);
		return;
	}
	if (!pending_init) {
		for (int i = 0; i < PENDING_MAX; i++)
			pending[i].fd = -1;
		pending_init = true;
	}
	for (int n = 0; s && s->search.fd >= 0 && n < CALLERS_AT_ONCE; n++) {
		int fd = closer_busy() ? -EMFILE
				       : fd_moment_sys(SYS_accept4, s->search.fd, NULL, NULL,
						       SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (fd != -EAGAIN && fd != -EINTR && fd != -ECONNABORTED)
				no_room(s);
			return;
		}
		if (may_come_in(s, fd)) {
			let_in(fd, s);
			continue;
		}
		stat_add(STAT_refused, 1);
		rights_close(fd);
	}
}

/* Without that word we were taken for an older library, which hangs up at a HELLO like ours. */
static void send_away(int sock, enum reason why)
{
	struct ctl_msg m = { .type = CTL_NOT_MINE, .version = CTL_VERSION, .index = why };

	ctl_send_fd(sock, &m, -1);
}

/* HELLO, and nothing besides: what the link needs is made here. False: not welcome. */
static bool welcome(int sock, const struct path *path, bool across)
{
	struct ctl_msg m = { .type = CTL_WELCOME, .version = CTL_VERSION };
	struct ucred cred;
	uint32_t clen = sizeof cred;
	enum reason why;
	struct link *l;
	int fd;

	if (sys(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &cred, &clen) < 0)
		return false;
	if (!rights_taken_from(cred.uid)) {	/* the policy has changed since he was let in */
		send_away(sock, REASON_OTHER_USER);
		return false;
	}
	l = path->open(sock, cred.uid, cred.pid, &fd, &why);
	if (!l) {
		send_away(sock, why);
		return false;
	}
	if (across)
		across_link(l, sock);
	if (loop_watch_fd(sock, EPOLLIN, LOOP_LINK, l->index) < 0 || ctl_send_fd(sock, &m, fd))
		link_kill(l, REASON_NO_DISCOVERY);	/* closes the socket, too */
	else
		link_up(l);
	if (across && atomic_load(&l->state) == LINK_UP)
		across_pass_diag(l);
	fd_internal_close(fd);
	return true;
}

/*
 * Whoever connected has another version, and hears ours. theirs NULL: he left without a word, as
 * those before version 5 do, for their HELLO comes with a descriptor, which the kernel (6.16 and
 * later) does not let them send to us.
 */
static void other_version(const struct pending *p, int sock, const struct ctl_msg *theirs)
{
	struct stream *s = stream_at(p->stream);
	struct ctl_msg m = { 0 };
	struct ucred cred;
	uint32_t clen = sizeof cred;

	if (sys(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &cred, &clen) < 0)
		return;
	if (theirs) {
		version_hello(&m);
		ctl_send_fd(sock, &m, -1);
		version_heard(theirs, cred.pid);
	} else if (cred.pid > 0 && process_start(cred.pid)) {
		version_silent(cred.pid);
	} else {
		return;			/* it has ended */
	}
	if (s && atomic_load(&s->gen) == p->gen && s->search.state == SEARCH_LISTEN &&
	    !stream_sought(s)->far)
		search_version_heard(s, theirs ? theirs->version : 0);
}

/* May he still pass us descriptors, who was let in? What he has said has room for some. */
static bool still_known(int sock)
{
	struct ucred cred;
	uint32_t len = sizeof cred;

	return sys(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) >= 0 &&
	       rights_taken_from(cred.uid);
}

#define WRONG_MOST 3

/* Has he the key, who called from another namespace? Who comes after three that have not is not
 * let in. */
static bool proves(struct pending *p, const struct ctl_msg *m)
{
	struct stream *s = stream_at(p->stream);

	if (!s || atomic_load(&s->gen) != p->gen || !s->search.across)
		return false;
	p->proven = across_proven(s, p->fd, m);
	if (p->proven)
		return rights_allow(p->fd, true), true;
	if (++s->search.across_wrong == WRONG_MOST && s->search.state == SEARCH_LISTEN) {
		across_failed(s, REASON_IDENTITY);
		bg_look(s);
	}
	return false;
}

void search_pending_ready(uint32_t i)
{
	struct ctl_msg m;
	int fd, r, sock;

	if (i >= PENDING_MAX || pending[i].fd < 0)
		return;
	sock = pending[i].fd;
	r = still_known(sock) ? ctl_recv(sock, false, &m, &fd) : -EACCES;
	if (!r || (r == 1 && pending[i].across && !pending[i].proven && proves(&pending[i], &m)))
		return;
	pending[i].fd = -1;
	loop_unwatch_fd(sock);
	if (r == 1 && m.type == CTL_HELLO && pending[i].proven == pending[i].across &&
	    welcome(sock, pending[i].path, pending[i].across))
		return;
	if (r == CTL_OTHER || (r == -EPIPE && !pending[i].across))
		other_version(&pending[i], sock, r == CTL_OTHER ? &m : NULL);
	/* He has seen that we are linked already, or are not whom he looks for. */
	if (r != -EPIPE && !(r == 1 && m.type == CTL_NOT_MINE))
		stat_add(STAT_refused, 1);
	rights_end(sock);
}

uint64_t search_pending_expire(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (int i = 0; pending_init && i < PENDING_MAX; i++) {
		if (pending[i].fd < 0)
			continue;
		if (now >= pending[i].end_us) {
			loop_unwatch_fd(pending[i].fd);
			rights_end(pending[i].fd);
			pending[i].fd = -1;
		} else if (pending[i].end_us < next) {
			next = pending[i].end_us;
		}
	}
	return next;
}

void search_callers_after_fork(void)
{
	if (pending_init)
		for (int i = 0; i < PENDING_MAX; i++)
			if (pending[i].fd >= 0)
				fd_internal_close(pending[i].fd);
	pending_init = false;
}
