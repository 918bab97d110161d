/*
 * closer.c - see closer.h. All under fd_number_lock(), so that a forked child finds table and
 * descriptors in agreement; the system calls that may wait are made without it.
 */
#include "base/closer.h"

#include <fcntl.h>
#include <stdatomic.h>

#include "base/bell.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/own_thread.h"
#include "base/proof.h"
#include "base/shim.h"
#include "base/sys.h"

#define MANY     128
#define STUCK_US 20000
#define AGAIN_US 100000
#define BUSY_US  50000
#define VACATE_US 100000
#define LOOK_US  1000

static _Atomic bool told_to_end;
static struct event closed;	/* rung when one is closed, or its thread has begun with it */

static struct closing {
	_Atomic bool runs;
	_Atomic int fd;			/* what its thread is at + 1; 0: nothing, of a kind that
					 * is known, or taken away */
	_Atomic uint64_t since;		/* it is at something */
	_Atomic uint64_t again_us;	/* when a thread may be tried again */
} works[FD_APARTS];

bool closer_knows(int fd)
{
	int type;
	socklen_t len = sizeof type;
	uint64_t it[4];
	long flags = sys(SYS_fcntl, fd, F_GETFL);

	if (flags >= 0 && flags & O_PATH)	/* of a file: its last one ends the file, which
						 * its daemon hears of */
		return proof_inode(fd) > 0;
	return sys(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) >= 0 ||
	       sys(SYS_fcntl, fd, F_GET_SEALS) >= 0 || sys(SYS_timerfd_gettime, fd, it) >= 0;
}

/* The kernel frees a number before it closes the file, which may take for ever, and by then the
 * number may be the program's. So a file of ours takes its place first: then only this thread
 * waits, and the number can be closed at once. Beyond a limit that was lowered the kernel gives no
 * number to anybody. */
static void release(int fd, int stand_in)
{
	if (sys(SYS_dup3, stand_in, fd, O_CLOEXEC) < 0)
		sys(SYS_close, fd);
}

/* False: nothing is left. One of a kind that is known has no other file yet when it looks as if it
 * had (give_back()): its number is nobody's before we have closed it. */
static bool close_one(struct closing *w, enum fd_apart kind)
{
	struct bell *b = loop_bell();
	bool lent;
	int fd;

	fd_number_lock();
	fd = b && !atomic_load(&told_to_end) ? fd_apart_next(kind) : -1;
	lent = fd >= 0 && !closer_knows(fd);
	atomic_store(&w->fd, lent ? fd + 1 : 0);
	atomic_store(&w->since, fd < 0 ? 0 : now_us());
	atomic_store(&w->runs, fd >= 0);
	fd_number_unlock();
	event_ring(&closed);
	if (fd < 0)
		return false;
	release(fd, b->fd);
	fd_number_lock();
	if (!lent || atomic_exchange(&w->fd, 0))
		fd_apart_close(fd, kind);
	fd_number_unlock();
	event_ring(&closed);
	return true;
}

static void *run(void *arg)
{
	struct closing *w = arg;

	own_thread_begins();
	while (close_one(w, (enum fd_apart)(w - works)))
		;
	own_thread_ends();
	return NULL;
}

void closer_put(int fd)
{
	int type;
	socklen_t len = sizeof type;
	bool sock = sys(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) >= 0;

	fd_apart(fd, sock ? FD_APART_SOCKET : FD_APART_OTHER);
}

static void start(enum fd_apart kind, uint64_t now)
{
	struct closing *w = &works[kind];

	if (atomic_load(&told_to_end) || now < atomic_load(&w->again_us) ||
	    atomic_exchange(&w->runs, true))
		return;
	if (!own_thread(run, w, NULL))
		return;
	atomic_store(&w->again_us, now_us() + AGAIN_US);
	atomic_store(&w->runs, false);
}

void closer_start(void)
{
	for (int kind = 0; kind < FD_APARTS; kind++)
		if (fd_aparts((enum fd_apart)kind))
			start((enum fd_apart)kind, now_us());
}

void closer_quit(void) { atomic_store(&told_to_end, true); }

void closer_resume(void) { atomic_store(&told_to_end, false); }

void closer_take(int fd)
{
	fd_number_lock();
	closer_put(fd);
	fd_number_unlock();
	closer_start();
}

bool closer_busy(void)
{
	return fd_aparts(FD_APART_SOCKET) + fd_aparts(FD_APART_OTHER) > MANY;
}

bool closer_stuck(void)
{
	uint64_t end = now_us() + BUSY_US, until;

	for (;;) {
		uint32_t seen = event_look(&closed);

		if (!closer_busy())
			return false;
		until = end;
		for (int kind = 0; kind < FD_APARTS; kind++) {
			uint64_t since = atomic_load(&works[kind].since);

			if (since && now_us() - since > STUCK_US)
				return true;
			if (since && since + STUCK_US < until)
				until = since + STUCK_US + 1;
		}
		if (now_us() >= end)
			return true;
		event_wait(&closed, seen, until * 1000);
	}
}

/* The thread waits for a file that has lost its number: that is closed here, and so given back. */
static void give_back(struct closing *w)
{
	bool given;
	int fd;

	fd_number_lock();
	fd = atomic_load(&w->fd) - 1;
	given = fd >= 0 && closer_knows(fd);
	if (given) {
		atomic_store(&w->fd, 0);
		fd_apart_close(fd, FD_APART_OTHER);
	}
	fd_number_unlock();
	if (given)
		event_ring(&closed);
}

uint64_t closer_work(uint64_t now)
{
	struct closing *other = &works[FD_APART_OTHER];
	uint64_t due = UINT64_MAX;

	if (!fd_aparts(FD_APART_SOCKET) && !fd_aparts(FD_APART_OTHER))
		return UINT64_MAX;
	if (atomic_load(&other->fd) && now - atomic_load(&other->since) >= STUCK_US)
		give_back(other);
	if (atomic_load(&other->fd))
		due = now + STUCK_US;
	for (int kind = 0; kind < FD_APARTS; kind++) {
		if (!fd_aparts((enum fd_apart)kind) || atomic_load(&works[kind].runs))
			continue;
		start((enum fd_apart)kind, now);
		due = now + STUCK_US;
	}
	return due;
}

bool closer_vacate(int fd)
{
	uint64_t now, end = now_us() + VACATE_US;

	while ((now = now_us()) < end) {
		uint32_t seen = event_look(&closed);

		/* The background thread may have gone. */
		if (atomic_load(&works[FD_APART_OTHER].fd) == fd + 1)
			give_back(&works[FD_APART_OTHER]);
		if (!fd_is_apart(fd))
			break;
		/* A nap: the kernel tells nobody that it has released the number, and goes on
		 * closing. */
		event_wait(&closed, seen, (now + LOOK_US) * 1000);
	}
	return !fdtab_get(fd);
}

/* The threads are the parent's. What waits there waits here, too: a copy, of which the parent's
 * may be closed by then, so that ours is the last. Not by the thread that forks. */
void closer_after_fork(void)
{
	atomic_store(&told_to_end, false);
	for (int kind = 0; kind < FD_APARTS; kind++) {
		atomic_store(&works[kind].runs, false);
		atomic_store(&works[kind].fd, 0);
		atomic_store(&works[kind].since, 0);
		atomic_store(&works[kind].again_us, 0);
	}
}
