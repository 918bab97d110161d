/*
 * closer.c - see closer.h. Lock: its own, a leaf; the system calls that may wait are made without it.
 */
#include "closer.h"

#include "fdtab.h"
#include "lock.h"
#include "own_thread.h"
#include "sys.h"

#define PLACES 512	/* more than the library opens of what may have to be closed so: names and knockers */

static struct lock lock;
static int queue[PLACES];
static unsigned head, count;
static bool running;

static void close_now(int fd)
{
	if (fdtab_internal(fd))
		fd_internal_close(fd);
	else
		sys(SYS_close, fd);
}

static void close_all(void)
{
	for (;;) {
		int fd = -1;

		lock_take(&lock);
		if (count) {
			fd = queue[head];
			head = (head + 1) % PLACES;
			count--;
		} else {
			running = false;
		}
		lock_give(&lock);
		if (fd < 0)
			return;
		close_now(fd);
	}
}

static void *run(void *arg)
{
	(void)arg;
	own_thread_begins();
	close_all();
	own_thread_ends();
	return NULL;
}

void closer_take(int fd)
{
	bool start = false, full;

	lock_take(&lock);
	full = count == PLACES;
	if (!full) {
		queue[(head + count++) % PLACES] = fd;
		start = !running;
		running = true;
	}
	lock_give(&lock);
	if (full)
		close_now(fd);
	else if (start && own_thread(run, NULL, NULL))
		close_all();
}

bool closer_busy(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED) > PLACES / 4;
}

/* The thread is the parent's. What waits there is the parent's, too; here it is a copy. */
void closer_after_fork(void)
{
	atomic_store(&lock.v, 0);
	running = false;
	for (; count; count--, head = (head + 1) % PLACES)
		close_now(queue[head]);
}
