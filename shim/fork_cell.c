/*
 * fork_cell.c - see fork_cell.h. Owns the table of cells and the children whose end is watched for.
 *
 * A cell belongs to one stream, of one process and of those that got its socket by fork. What one of them writes the others read
 * at any time, so each field is an atomic of its own; a pid of a process that died without a word counts for nothing.
 */
#include "fork_cell.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "bg.h"
#include "fdtab.h"
#include "identity.h"
#include "sys.h"

#define CELLS     65536

struct fork_cells {
	_Atomic uint32_t requests;	/* a child set want_home somewhere */
	_Atomic uint32_t hint;
	uint32_t pad[14];
	struct fork_cell cell[CELLS];
};
static _Atomic(struct fork_cells *) cells;

static int my_pid(void) { return atomic_load(&shim_pid); }

/* Of one that is not our child. It has no memory any more: then only its parent has still to take note of that, or its first thread alone has
 * ended, and the others live. */
static bool waits_for_its_parent(int pid)
{
	char c;
	struct iovec here = { &c, 1 }, there = { NULL, 1 };
	int r;

	if (sys(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0) != -ESRCH)
		return false;
	r = process_ended(pid);
	return r > 0 || r == -ESRCH;
}

bool process_lives(int pid)
{
	siginfo_t si = { .si_pid = 0 };

	if (sys(SYS_kill, pid < 0 ? -pid : pid, 0) == -ESRCH)
		return false;
	if (pid < 0)
		return true;
	if (!sys(SYS_waitid, P_PID, pid, &si, WEXITED | WNOHANG | WNOWAIT, NULL))
		return !si.si_pid;
	return pid == my_pid() || !waits_for_its_parent(pid);
}

static bool cell_empty(struct fork_cell *c)
{
	if (atomic_load(&c->forking) || atomic_load(&c->crowded))
		return false;
	for (int i = 0; i < CELL_PIDS; i++) {
		int p = atomic_load(&c->pids[i]);

		if (p && process_lives(p))
			return false;
	}
	return true;
}

static void cell_clear(struct fork_cell *c)
{
	for (int i = 0; i < CELL_PIDS; i++)
		atomic_store(&c->pids[i], 0);
	atomic_store(&c->want_home, 0);
	atomic_store(&c->at_home, 0);
}

void cell_enter(struct fork_cell *c, int pid)
{
	for (int i = 0; i < CELL_PIDS; i++)
		if (atomic_load(&c->pids[i]) == pid)
			return;
	for (int i = 0; i < CELL_PIDS; i++) {
		int32_t p = atomic_load(&c->pids[i]);

		if ((!p || !process_lives(p)) && atomic_compare_exchange_strong(&c->pids[i], &p, pid))
			return;
	}
	atomic_store(&c->crowded, 1);
}

bool cell_has(struct fork_cell *c, int pid)
{
	for (int i = 0; i < CELL_PIDS; i++)
		if (atomic_load(&c->pids[i]) == pid)
			return true;
	return false;
}

void cell_swap(struct fork_cell *c, int32_t from, int to)
{
	for (int i = 0; i < CELL_PIDS; i++) {
		int32_t p = from;

		atomic_compare_exchange_strong(&c->pids[i], &p, to);
	}
}

void cell_leave(struct fork_cell *c)
{
	cell_swap(c, my_pid(), 0);
	if (cell_empty(c))
		atomic_store(&c->used, 0);
}

static struct fork_cells *cells_made(void)
{
	struct fork_cells *t = atomic_load(&cells), *none = NULL;
	void *p;

	if (t)
		return t;
	p = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (atomic_compare_exchange_strong(&cells, &none, (struct fork_cells *)p))
		return p;
	munmap(p, sizeof *t);
	return none;
}

/* A cell with this process in it. */
static struct fork_cell *cell_take(void)
{
	struct fork_cells *t = cells_made();

	for (uint32_t i = 0; t && i < CELLS; i++) {
		struct fork_cell *c = &t->cell[atomic_fetch_add(&t->hint, 1) % CELLS];
		uint32_t was = atomic_load(&c->used);

		/* A used cell whose holders all died without a word is free too. */
		if (was == 2 || (was == 1 && (i < 64 || !cell_empty(c))))
			continue;
		if (!atomic_compare_exchange_strong(&c->used, &was, 2))
			continue;
		cell_clear(c);
		cell_enter(c, my_pid());
		atomic_store(&c->used, 1);
		return c;
	}
	return NULL;
}

struct fork_cell *cell_of(struct stream *s)
{
	struct fork_cell *c = atomic_load(&s->cell), *none = NULL;

	if (c)
		return c;
	c = cell_take();
	if (c && !atomic_compare_exchange_strong(&s->cell, &none, c)) {
		cell_clear(c);
		atomic_store(&c->used, 0);
		return none;
	}
	return c;
}

void cell_want_home(struct fork_cell *c)
{
	atomic_store(&c->want_home, 1);
	atomic_fetch_add(&atomic_load(&cells)->requests, 1);
}

uint32_t cells_requests(void)
{
	struct fork_cells *t = atomic_load(&cells);

	return t ? atomic_load(&t->requests) : 0;
}

bool fork_shared(struct stream *s)
{
	struct fork_cell *c = atomic_load(&s->cell);

	if (!c)
		return false;
	if (atomic_load(&c->forking) || atomic_load(&c->crowded))
		return true;
	for (int i = 0; i < CELL_PIDS; i++) {
		int p = atomic_load(&c->pids[i]);

		if (p && p != my_pid() && process_lives(p))
			return true;
	}
	return false;
}

/* Nobody shared it when the caller looked, so whoever wanted it at home is gone; whoever forks next finds it cut, and not said to be at home. A child
 * that takes no lock may have come since, and it is perhaps its wish that is lost here: hence the second look. */
bool fork_leaves_home(struct stream *s)
{
	struct fork_cell *c = atomic_load(&s->cell);

	if (!c)
		return true;
	atomic_store(&c->want_home, 0);
	atomic_store(&c->at_home, 0);
	if (!fork_shared(s))
		return true;
	cell_want_home(c);
	return false;
}

void fork_less_shared(struct stream *s)
{
	if (atomic_load(&s->upgrade))	/* else the background thread does not know it */
		bg_look(s);
}

void fork_drop(struct stream *s)
{
	struct fork_cell *c = atomic_exchange(&s->cell, NULL);

	if (c)
		cell_leave(c);
}

/* ---- children that share streams: a look at those streams when one ends ---- */

#define WATCHED   32		/* more: their streams wait for another occasion */

static struct watched {
	_Atomic int pid;
	int fd;			/* pidfd, background thread only; 0 before it saw the entry */
} watched[WATCHED];
static _Atomic uint32_t nwatched;

void child_watch(int pid)
{
	if (pid <= 0 || !bg_running())
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
	bg_kick();
}

bool fork_ever(void) { return atomic_load(&cells) != NULL; }
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
		bg_watch_fd(w->fd, EPOLLIN | EPOLLET, (uint64_t)BG_TAG_CHILD << 56);
	}
}

static bool ended(const struct watched *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	struct timespec zero = { 0, 0 };

	return w->fd > 0 ? sys(SYS_ppoll, &p, 1, &zero, NULL, 0) != 0 : !process_lives(atomic_load(&w->pid));
}

/* The kernel may still show the pid for a moment, while somebody reaps it. */
static void child_ended(int pid)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct fork_cell *c = atomic_load(&s->cell);

		if (!c || atomic_load(&s->mode) == MODE_FREE)
			continue;
		cell_swap(c, pid, 0);
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
