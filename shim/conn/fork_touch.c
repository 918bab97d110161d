/*
 * fork_touch.c - the first use, in a forked child, of a stream that an ancestor has on a fast path:
 * the child asks the ancestor to take it back to TCP, and from then on both use TCP.
 *
 * Locks: none, as in holders.c.
 */
#include <fcntl.h>

#include "base/bell.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/holders.h"
#include "conn/stream_life.h"

int fork_parent_bells[FORK_ANCESTORS] = { -1, -1, -1, -1 };

/* Is the number, in this process's fd table, still a timerfd as the library makes them? */
bool fork_is_bell(int fd)
{
	uint64_t it[4];

	return fd >= 0 && sys(SYS_fcntl, fd, F_GETFD) == FD_CLOEXEC &&
	       sys(SYS_timerfd_gettime, fd, it) >= 0;
}

/* False: the program has closed the bell's fd by a call that we don't see. */
bool fork_ring_fd(int fd)
{
	return fork_is_bell(fd) && !bell_ring_fd(fd);
}

/* Does he who may have it on a path have it still? If not, he took it back to TCP before he let
 * go, or it died with him. */
static bool owned(struct holders *c)
{
	int owner = atomic_load(&c->owner);

	return owner && holders_has(c, owner) && process_lives(owner);
}

int fork_child_touch(struct stream *s)
{
	return fork_child_touch_until(s, now_us() + FALLBACK_PATIENCE_US);
}

int fork_child_touch_until(struct stream *s, uint64_t end)
{
	struct holders *c = atomic_load(&s->others.holders);

	if (!atomic_load(&s->fork_cut))
		return 0;
	stat_row_reason(s->row, REASON_SHARED);
	if (c && !atomic_load(&c->on_tcp)) {
		holders_want_fallback(c);
		while (!atomic_load(&c->on_tcp) && now_us() < end) {
			for (int i = 0; i < FORK_ANCESTORS; i++)
				fork_ring_fd(fork_parent_bells[i]);
			if (!owned(c))
				break;
			holders_await_on_tcp(c, end);
		}
	}
	atomic_store(&s->mode, MODE_TCP_ONLY);
	atomic_store(&s->fork_cut, 0);
	return c && atomic_load(&c->on_tcp) ? 0 : -ETIMEDOUT;
}
