/*
 * search_ends.c - what a search has to know of the two ends of its connection: their addresses,
 * options that were set before we knew the socket, and which end comes first.
 *
 * Background thread only. Locks: a stream's rcv.lock.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/time.h>

#include "base/sys.h"
#include "conn/stream_wait.h"
#include "discovery/identity.h"
#include "discovery/discovery_ctl.h"

static void read_timeo(uint64_t *us, const struct timeval *tv)
{
	if (*us != TIMEO_AT_ONCE || tv->tv_sec || tv->tv_usec)
		*us = timeo_us(tv);
}

/* An accepted socket has its listener's options, set before we knew it. */
static int read_options(struct stream *s, int fd)
{
	struct timeval tv;
	uint32_t len = sizeof tv;
	int v = 0;
	long fl;

	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len) >= 0)
		read_timeo(&s->opt.rcv_timeo_us, &tv);
	len = sizeof tv;
	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &tv, &len) >= 0)
		read_timeo(&s->opt.snd_timeo_us, &tv);
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

	s->row->family = s->addr.local.ss_family;
	tuple_from(&t, (void *)&s->addr.local, (void *)&s->addr.peer);
	s->row->lport = t.lport;
	s->row->pport = t.pport;
	memcpy(s->row->laddr, t.laddr, 16);
	memcpy(s->row->paddr, t.paddr, 16);
	stat_row_publish(s->row);
}

/* All under the lock: a stream that never asked for an upgrade is freed, and used again, by
 * whoever closes it. */
int search_read_names(struct stream *s)
{
	uint32_t len = sizeof s->addr.local;
	int fd, r;

	lock_take(&s->rcv.lock);
	fd = atomic_load(&s->fd);
	r = fd < 0 ? -EBADF : (int)sys(SYS_getsockname, fd, &s->addr.local, &len);
	len = sizeof s->addr.peer;
	if (r >= 0)
		r = (int)sys(SYS_getpeername, fd, &s->addr.peer, &len);
	if (r >= 0 && !socket_is_plain_tcp(fd))
		r = -EPROTOTYPE;
	if (r >= 0)
		r = read_options(s, fd);
	if (r >= 0) {
		sockaddr_normal(&s->addr.local);
		sockaddr_normal(&s->addr.peer);
		r = identity_here(fd, (void *)&s->addr.local, (void *)&s->addr.peer) ? 0 : -EXDEV;
	}
	if (!r) {
		s->addr.known = 1;
		show_names(s);
	}
	lock_give(&s->rcv.lock);
	return r;
}

bool search_comes_first(const struct stream *s)
{
	struct ctl_tuple t, r;

	tuple_from(&t, (const void *)&s->addr.local, (const void *)&s->addr.peer);
	tuple_reverse(&r, &t);
	return memcmp(&t, &r, sizeof(t)) < 0;
}
