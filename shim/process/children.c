/*
 * children.c - see children.h. Owns the children whose end is watched for. Locks: none.
 */
#include "process/children.h"

#include <poll.h>
#include <sys/epoll.h>

#include "base/fdtab.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/holders.h"
#include "conn/stream_slab.h"
#include "process/fork.h"

#define WATCHED   32		/* more: their streams wait for another occasion */

static struct watched {
	_Atomic int pid;
	int fd;			/* pidfd, background thread only; 0 before it saw the entry */
} watched[WATCHED];
static _Atomic uint32_t nwatched;

void child_watch(int pid)
{
	if (pid <= 0 || !loop_running())
		return;
	for (int i = 0; i < WATCHED; i++)
		if (atomic_load(&watched[i].pid) == pid)
			return;
	for (int i = 0; i < WATCHED; i++) {
		int zero = 0;

		if (atomic_compare_exchange_strong(&watched[i].pid, &zero, pid)) {
			atomic_fetch_add(&nwatched, 1);
			return;
		}
	}
}

void fork_watch(int pid)
{
	child_watch(pid);
	loop_kick();
}

bool fork_watches(void) { return atomic_load(&nwatched) != 0; }

static void unwatch(struct watched *w)
{
	if (w->fd > 0)
		fd_internal_close(w->fd);
	w->fd = 0;
	atomic_store(&w->pid, 0);
	atomic_fetch_sub(&nwatched, 1);
}

static void watch_begin(struct watched *w)
{
	int fd = fd_internal_sys(SYS_pidfd_open, atomic_load(&w->pid), 0);

	if (fd > 0) {
		w->fd = fd;
		loop_watch_fd(w->fd, EPOLLIN | EPOLLET, LOOP_WAKE, 0);
	}
}

static bool ended(const struct watched *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	struct timespec zero = { 0, 0 };

	return w->fd > 0 ? sys(SYS_ppoll, &p, 1, &zero, NULL, 0) != 0
			 : !process_lives(atomic_load(&w->pid));
}

/* The kernel may still show the pid for a moment, while somebody reaps it. */
static void child_ended(int pid)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct holders *c = atomic_load(&s->others.holders);

		if (!c || atomic_load(&s->mode) == MODE_FREE)
			continue;
		holders_swap(c, pid, 0);
		fork_less_shared(s);
	}
}

void children_look(void)
{
	if (!atomic_load(&nwatched))
		return;
	for (int i = 0; i < WATCHED; i++) {
		struct watched *w = &watched[i];

		if (!atomic_load(&w->pid))
			continue;
		if (!w->fd)
			watch_begin(w);
		if (ended(w)) {
			child_ended(atomic_load(&w->pid));
			unwatch(w);
		}
	}
}

void children_after_fork(void)
{
	for (int i = 0; i < WATCHED; i++)
		if (atomic_load(&watched[i].pid))
			unwatch(&watched[i]);
}
