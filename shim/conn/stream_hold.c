/*
 * stream_hold.c - keeps small how much TCP takes of a connection while the other end is searched
 * for, and until the cut. In these two milliseconds TCP carries megabytes, which the reader must
 * take first: half of a page of 20 MB was through by then.
 *
 * The kernel bounds it by two options of the sender's socket. With TCP_NOTSENT_LOWAT a blocking
 * send, a non-blocking send and a poll all find no room beyond that amount, and are told when there
 * is room. If the reader takes everything at once, nothing is left unsent and this option bounds
 * nothing, so SO_MAX_PACING_RATE is set, too. Both are put back at the cut, and when the search is
 * given up. The background thread puts them back after `overflow` in any case, since the reader may
 * be waiting for bytes that TCP would have taken. A thread in our own wait for room puts them back,
 * too.
 *
 * The options are the program's. They are put back before the program reads or sets one of them
 * (and the stream is never held again), and before another process gets the socket.
 *
 * Locks: hold_begin() takes both, hold_over() takes snd.lock; callers of the others hold them. A
 * socket that may be another one by then is not touched: the descriptor is read from the stream
 * under its locks.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#include "base/shim.h"
#include "base/sock.h"
#include "base/sys.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "conn/stream_wait.h"

#define PATIENT_US 1000000	/* a send with a shorter timeout is not held up */
#define PACE_US    500		/* TCP sends `earn_hold` bytes in so much time, */
#define PACE_LEAST 64000000	/* or so many in a second */
#define NO_PACE    (~0ul)	/* the kernel's: as fast as it can */

static bool may_hold(const struct stream *s)
{
	return shim_tunables()->earn_hold && !s->snd.hold.on && !s->snd.hold.never &&
		!s->earn.searched && cut_tx_on_tcp(&s->snd.cut) &&
	       atomic_load(&s->upgrade) && atomic_load(&s->fd) >= 0 && !atomic_load(&s->dead) &&
		       !atomic_load(&s->shut.wr) &&
	       (!s->opt.snd_timeo_us || s->opt.snd_timeo_us >= PATIENT_US);
}

/* The other end waits for us to read, it may be. */
static bool unread(const struct stream *s)
{
	int n = 0;

	return sys(SYS_ioctl, atomic_load(&s->fd), FIONREAD, &n) < 0 || n > 0;
}

/* A socket that was writable is so still: a poll may have told so (sk_stream_is_writeable()). */
static bool stays_writable(int fd, uint32_t *most)
{
	int unsent = 0;

	if (sys(SYS_ioctl, fd, SIOCOUTQNSD, &unsent) < 0 || unsent < 0)
		return false;
	if (*most < 2 * (uint32_t)unsent + 1)
		*most = 2 * (uint32_t)unsent + 1;
	return true;
}

static int rate(int fd, unsigned long *ret)
{
	uint32_t len = sizeof *ret;

	return (int)sys(SYS_getsockopt, fd, SOL_SOCKET, SO_MAX_PACING_RATE, ret, &len);
}

/* Both ends have one address of this host: it goes by the loopback device. */
static bool at_home(int fd)
{
	struct sockaddr_storage own, peer;
	uint32_t own_len = sizeof own, peer_len = sizeof peer;

	if (sys(SYS_getsockname, fd, &own, &own_len) < 0 ||
	    sys(SYS_getpeername, fd, &peer, &peer_len) < 0)
		return false;
	sockaddr_normal(&own);
	sockaddr_normal(&peer);
	sockaddr_no_port(&own);
	sockaddr_no_port(&peer);
	return sockaddr_loopback((void *)&peer) || sockaddr_same((void *)&own, (void *)&peer);
}

/* What the reader takes at once TCP sends at once, and nothing waits to be sent: so it is paced,
 * too. Whoever reads before he can be cut over has something to read. Within the host only: a
 * socket that was paced once the kernel paces to its end, by its round trip, which is nothing
 * here and much elsewhere. */
static void pace(struct stream *s, int fd)
{
	unsigned long own = 0, most = shim_tunables()->earn_hold * (1000000 / PACE_US);

	most = most > PACE_LEAST ? most : PACE_LEAST;
	s->snd.hold.pace = 0;
	if (at_home(fd) && rate(fd, &own) >= 0 && own == NO_PACE &&
	    sys(SYS_setsockopt, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &most, sizeof most) >= 0)
		s->snd.hold.pace = most;
}

static void hold(struct stream *s)
{
	uint32_t own = 0, most = (uint32_t)shim_tunables()->earn_hold, len = sizeof own;
	int fd = atomic_load(&s->fd);

	if (!stays_writable(fd, &most) ||
	    sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &own, &len) < 0 ||
	    (own && own <= most) ||
	    sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most) < 0) {
		s->snd.hold.never = 1;
		return;
	}
	pace(s, fd);
	s->snd.hold.own_lowat = own;
	s->snd.hold.ours = most;
	s->snd.hold.due_us = now_us() + shim_tunables()->overflow;
	atomic_store(&s->snd.hold.on, 1);
}

/* An accepted socket has its listener's, and a send that is held waits by us. */
static void know_timeout(struct stream *s)
{
	struct timeval tv;
	uint32_t len = sizeof tv;

	if (!s->opt.snd_timeo_us &&
	    sys(SYS_getsockopt, atomic_load(&s->fd), SOL_SOCKET, SO_SNDTIMEO, &tv, &len) >= 0)
		s->opt.snd_timeo_us = timeo_us(&tv);
}

void hold_begin(struct stream *s)
{
	bool held;

	stream_lock(s);
	/* nobody else could ever have it */
	if (may_hold(s) && atomic_load(&s->mode) == MODE_NEW && !atomic_load(&s->others.holders)) {
		know_timeout(s);
		if (may_hold(s))
			hold(s);
		s->snd.hold.bulk = 1;
	}
	held = atomic_load(&s->snd.hold.on);
	stream_unlock(s);
	if (held)		/* it comes when the time is up */
		bg_look(s);
}

void hold_again(struct stream *s)
{
	if (atomic_load(&s->snd.hold.on))
		s->snd.hold.due_us = now_us() + shim_tunables()->overflow;
	else if (s->snd.hold.bulk && may_hold(s) && !unread(s))
		hold(s);
}

/* What somebody has set by a system call of its own, or another process has, stays. */
static bool is_ours(const struct stream *s, int fd)
{
	uint32_t now = 0, len = sizeof now;

	return sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &now, &len) >= 0 &&
	       now == s->snd.hold.ours;
}

static void pace_end(struct stream *s, int fd)
{
	unsigned long now = 0;

	if (s->snd.hold.pace && rate(fd, &now) >= 0 && now == s->snd.hold.pace)
		sys(SYS_setsockopt, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &(unsigned long){ NO_PACE },
		    sizeof now);
}

void hold_end(struct stream *s)
{
	int fd = atomic_load(&s->fd);

	stream_learn_may_send(s);
	if (!atomic_load_explicit(&s->snd.hold.on, memory_order_relaxed))
		return;
	atomic_store(&s->snd.hold.on, 0);
	if (fd < 0)
		return;
	pace_end(s, fd);
	if (is_ours(s, fd))	/* who waits for room is woken by the kernel */
		sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT,
		    &s->snd.hold.own_lowat, sizeof s->snd.hold.own_lowat);
}

void hold_over(struct stream *s)
{
	if (!atomic_load_explicit(&s->snd.hold.on, memory_order_relaxed) &&
	    !(atomic_load_explicit(&s->learns, memory_order_relaxed) & LEARNS_CHECKS))
		return;
	lock_take(&s->snd.lock);
	hold_end(s);
	lock_give(&s->snd.lock);
}

uint64_t hold_watch(struct stream *s, uint64_t now)
{
	uint64_t due = UINT64_MAX;

	if (!atomic_load_explicit(&s->snd.hold.on, memory_order_relaxed))
		return due;
	lock_take(&s->snd.lock);
	if (atomic_load(&s->snd.hold.on) && now < s->snd.hold.due_us)
		due = s->snd.hold.due_us;
	else
		hold_end(s);
	lock_give(&s->snd.lock);
	return due;
}
