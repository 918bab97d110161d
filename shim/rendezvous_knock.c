/*
 * rendezvous_knock.c - those who knock at a name of ours (rendezvous.c) and have not said HELLO yet: anybody on this host may be one.
 *
 * Owns their sockets. Background thread only.
 */
#include "rendezvous_ctl.h"

#include <sys/socket.h>

#include "bg.h"
#include "fdtab.h"
#include "rendezvous_net.h"
#include "sys.h"

#define PENDING_MAX   64
#define PENDING_US    2000000

static struct pending { int fd; uint64_t end_us; } pending[PENDING_MAX];
static bool pending_init;

/* Who knocks cannot be let in, and would be announced again and again. The name is opened anew in a while, or not, and that says why. */
static void no_room(struct stream *s)
{
	rv_name_close(s);
	s->rv_due_us = now_us() + 50000;
	bg_look(s);
}

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
		int fd = fd_moment_sys(SYS_accept4, s->rv_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		int i, oldest = 0;

		if (fd < 0) {
			if (fd != -EAGAIN && fd != -EINTR && fd != -ECONNABORTED)
				no_room(s);
			return;
		}
		for (i = 0; i < PENDING_MAX && pending[i].fd >= 0; i++)
			if (pending[i].end_us < pending[oldest].end_us)
				oldest = i;
		if (i == PENDING_MAX) {		/* crowded: the one that was silent longest goes */
			i = oldest;
			bg_unwatch_fd(pending[i].fd);
			fd_internal_close(pending[i].fd);
			pending[i].fd = -1;
		}
		fd = fd_internal_keep(fd);
		if (fd < 0)
			return;
		pending[i].fd = fd;
		pending[i].end_us = now_us() + PENDING_US;
		if (bg_watch_fd(fd, EPOLLIN, (uint64_t)BG_TAG_PEND << 56 | (unsigned)i) < 0) {
			fd_internal_close(fd);
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
		l = link_fits(&a) ? link_new(sock, &a, cred.uid, cred.pid) : NULL;
		if (l && bg_watch_fd(sock, EPOLLIN, (uint64_t)BG_TAG_LINK << 56 | l->index) >= 0) {
			fd_internal_close(fd);
			link_up(l);
			rv_say(l, CTL_WELCOME, 0, 0);
			return;
		}
		if (l) {
			link_kill(l, REASON_NO_RENDEZVOUS);	/* closes the socket, too */
			sock = -1;
		} else {
			arena_unmap(&a);
		}
	} else if (r != -EPIPE) {	/* one who leaves without a word has seen that we are linked already */
		stat_add(STAT_refused, 1);
	}
	if (fd >= 0)
		fd_internal_close(fd);
	if (sock >= 0)
		fd_internal_close(sock);
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

void rv_knocks_after_fork(void)
{
	if (pending_init)
		for (int i = 0; i < PENDING_MAX; i++)
			if (pending[i].fd >= 0)
				fd_internal_close(pending[i].fd);
	pending_init = false;
}
