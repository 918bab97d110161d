/*
 * fork.c - fork, exec, fd passing, seccomp: who holds a socket, and going home before somebody who
 * knows nothing of the path gets it.
 *
 * A stream that existed at a fork gets a fork_cell in memory that all descendants share: the pids of
 * the processes that hold the socket. While another one lives the stream is not newly cut. The
 * child's copy of a stream that the parent has on a fast path is marked fork_cut; the child's first
 * use asks the parent (through the cell and the parent's bell) to rewind, then both use TCP.
 *
 * Order of locks at fork: none is held across it but the slab's and the ready lists' own; direction
 * locks are passed through once each, so that no step of the cut machine is half done in the
 * child's copy, and `forking` keeps a new one from starting.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "bg.h"
#include "fdtab.h"
#include "../policy/log.h"
#include "ready.h"
#include "ready_int.h"
#include "stream_int.h"
#include "sys.h"

#define CELL_PIDS 10
#define CELLS     65536

struct fork_cell {
	_Atomic uint32_t used, forking, want_home, at_home;
	_Atomic uint32_t crowded;	/* more holders than pids: shared for ever */
	_Atomic int32_t pids[CELL_PIDS];
	uint32_t pad;
};
_Static_assert(sizeof(struct fork_cell) == 64, "one cache line per cell");

static struct fork_cells {
	_Atomic uint32_t requests;	/* a child set want_home somewhere */
	_Atomic uint32_t hint;
	uint32_t pad[14];
	struct fork_cell cell[CELLS];
} *cells;
static uint32_t requests_seen;
static bool requests_open;
static int parent_bell = -1;

static int my_pid(void) { return atomic_load(&shim_pid); }

static bool alive(int pid)
{
	return sys(SYS_kill, pid, 0) != -ESRCH;
}

static bool cell_empty(struct fork_cell *c)
{
	if (atomic_load(&c->forking) || atomic_load(&c->crowded))
		return false;
	for (int i = 0; i < CELL_PIDS; i++) {
		int p = atomic_load(&c->pids[i]);

		if (p && alive(p))
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

static struct fork_cell *cell_take(void)
{
	if (!cells) {
		void *p = mmap(NULL, sizeof *cells, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return NULL;
		cells = p;
	}
	for (uint32_t i = 0; i < CELLS; i++) {
		struct fork_cell *c = &cells->cell[atomic_fetch_add(&cells->hint, 1) % CELLS];
		uint32_t zero = 0;

		/* A used cell whose holders all died without a word is free too. */
		if (atomic_load(&c->used) == 1 && i >= 64 && cell_empty(c)) {
			cell_clear(c);
			return c;
		}
		if (atomic_compare_exchange_strong(&c->used, &zero, 1)) {
			cell_clear(c);
			return c;
		}
	}
	return NULL;
}

static void cell_enter(struct fork_cell *c)
{
	for (int i = 0; i < CELL_PIDS; i++) {
		int32_t p = atomic_load(&c->pids[i]);

		if (p == my_pid())
			return;
		if ((!p || !alive(p)) && atomic_compare_exchange_strong(&c->pids[i], &p, my_pid()))
			return;
	}
	atomic_store(&c->crowded, 1);
}

static void cell_leave(struct fork_cell *c)
{
	for (int i = 0; i < CELL_PIDS; i++) {
		int32_t p = my_pid();

		atomic_compare_exchange_strong(&c->pids[i], &p, 0);
	}
	if (cell_empty(c))
		atomic_store(&c->used, 0);
}

bool fork_shared(struct stream *s)
{
	struct fork_cell *c = s->cell;

	if (!c)
		return false;
	if (atomic_load(&c->forking) || atomic_load(&c->crowded))
		return true;
	for (int i = 0; i < CELL_PIDS; i++) {
		int p = atomic_load(&c->pids[i]);

		if (p && p != my_pid() && alive(p))
			return true;
	}
	return false;
}

void fork_drop(struct stream *s)
{
	if (s->cell)
		cell_leave(s->cell);
	s->cell = NULL;
}

/* ---- a child wants a stream of ours at home ---- */

void fork_check_requests(void)
{
	uint32_t n = streams_top(), now;

	if (!cells)
		return;
	now = atomic_load(&cells->requests);
	if (now == requests_seen && !requests_open)
		return;
	requests_seen = now;
	requests_open = false;
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);
		struct fork_cell *c = s->cell;
		bool home;

		if (!c || !atomic_load(&c->want_home) || atomic_load(&c->at_home) || atomic_load(&s->fork_cut))
			continue;
		stream_ask_home(s);
		stream_lock(s);
		home = !atomic_load(&s->link) || stream_home_both(s) || atomic_load(&s->peer_gone);
		stream_unlock(s);
		if (home)
			atomic_store(&c->at_home, 1);
		else
			requests_open = true;
	}
}

bool fork_requests_open(void) { return requests_open; }

int fork_child_touch(struct stream *s)
{
	struct fork_cell *c = s->cell;
	uint64_t end = now_us() + 30000000, one = 1;
	struct timespec nap = { 0, 200000 };

	if (!atomic_load(&s->fork_cut))
		return 0;
	stat_row_reason(s->row, REASON_SHARED);
	if (c && !atomic_load(&c->at_home)) {
		atomic_store(&c->want_home, 1);
		atomic_fetch_add(&cells->requests, 1);
		while (!atomic_load(&c->at_home) && now_us() < end) {
			if (parent_bell >= 0)
				sys(SYS_write, parent_bell, &one, sizeof one);
			if (!fork_shared(s))	/* the parent is gone, and with it what was on the path */
				break;
			sys(SYS_nanosleep, &nap, NULL);
		}
	}
	atomic_store(&s->mode, MODE_PINNED);
	atomic_store(&s->fork_cut, 0);
	return c && atomic_load(&c->at_home) ? 0 : -ETIMEDOUT;
}

/* ---- atfork ---- */

void shim_fork_prepare(void)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) == MODE_FREE || atomic_load(&s->dead))
			continue;
		if (!s->cell) {
			s->cell = cell_take();
			if (s->cell)
				cell_enter(s->cell);
		}
		if (s->cell)
			atomic_fetch_add(&s->cell->forking, 1);
		else
			atomic_store(&s->stopped, REASON_SHARED);
		stream_lock(s);
		stream_unlock(s);
	}
	ready_fork_prepare();
	stream_fork_lock();
}

void shim_fork_parent(void)
{
	stream_fork_unlock();
	ready_fork_parent();
}

static void child_stream(struct stream *s)
{
	bool cut = atomic_load(&s->link) && !(s->tx.state == CUT_TX_T && s->rx.state == CUT_RX_T);
	int fd = atomic_load(&s->fd);

	atomic_store(&s->rx_lock.v, 0);
	atomic_store(&s->tx_lock.v, 0);
	atomic_store(&s->items_lock.v, 0);
	atomic_store(&s->link, NULL);
	if (s->rv_fd >= 0)
		fd_internal_close(s->rv_fd);
	s->rv_fd = -1;
	s->rv_state = RV_NONE;
	s->rv_due_us = s->rv_end_us = 0;
	s->on_watch = 0;
	s->queue_next = s->rv_next = NULL;
	atomic_store(&s->queued, 0);
	atomic_store(&s->upgrade, 0);
	atomic_store(&s->bells, 0);
	atomic_store(&s->plain_tx, 0);
	atomic_store(&s->plain_rx, 0);
	atomic_store(&s->ring_full, 0);
	s->seen_bytes = s->seen_rounds = 0;
	cut_tx_init(&s->tx);
	cut_rx_init(&s->rx);
	s->row = stat_row_alloc();
	atomic_store(&s->row->fd, (uint32_t)fd);
	atomic_store(&s->row->role, s->role);
	if (atomic_load(&s->dead)) {
		if (fd >= 0 && fdtab_internal(fd))
			fd_internal_close(fd);
		stream_free(s);
		return;
	}
	if (s->cell) {
		cell_enter(s->cell);
		atomic_fetch_sub(&s->cell->forking, 1);
	}
	if (cut)
		atomic_store(&s->fork_cut, 1);
	if (!stream_pinned(s))
		atomic_store(&s->mode, MODE_NEW);
	if (atomic_load(&s->connected)) {
		stat_row_publish(s->row);
		stat_row_reason(s->row, REASON_SHARED);
	}
}

void shim_fork_child(void)
{
	struct bell *b = bg_bell();
	uint32_t n = streams_top();

	stream_after_fork();
	atomic_store(&shim_pid, (int)sys(SYS_getpid));
	atomic_store(&shim_active, false);
	fdtab_after_fork();
	if (b) {
		if (parent_bell >= 0)
			fd_internal_close(parent_bell);
		parent_bell = fd_internal_dup(b->fd);
	}
	if (n)
		stat_after_fork();
	shim_stat_reopen(n != 0);
	requests_open = false;
	rv_after_fork();
	links_after_fork();
	bg_after_fork();
	bell_after_fork();
	ready_after_fork();
	for (uint32_t i = 0; i < n; i++)
		if (atomic_load(&stream_at(i)->mode) != MODE_FREE)
			child_stream(stream_at(i));
}

/* ---- exec ---- */

static bool survives_exec(int fd)
{
	long f = sys(SYS_fcntl, fd, F_GETFD);

	return f >= 0 && !(f & FD_CLOEXEC);
}

void shim_before_exec(void)
{
	int top = fdtab_top();

	if (!shim_on)
		return;
	for (int fd = 0; fd < top; fd++) {
		struct stream *s = fdtab_stream(fd);

		if (!s)
			continue;
		if (survives_exec(fd)) {
			if (stream_go_home(s, REASON_EXEC))
				log_line(1, "fd %d: exec with bytes still on the fast path", fd);
		} else if (s->cell) {
			cell_leave(s->cell);
		}
	}
}

void shim_exec_failed(void)
{
	int top = fdtab_top();

	if (!shim_on)
		return;
	for (int fd = 0; fd < top; fd++) {
		struct stream *s = fdtab_stream(fd);

		if (s && s->cell) {
			atomic_store(&s->cell->used, 1);
			cell_enter(s->cell);
		}
	}
}

/* ---- fd passing ---- */

void shim_before_pass(const struct msghdr *msg)
{
	if (!shim_on)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			struct stream *s;
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			s = fdtab_stream(fd);
			if (s)
				stream_go_home(s, REASON_PASSED);
		}
	}
}

/* ---- off for good ---- */

static void everybody_home(enum reason r)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) != MODE_FREE && !atomic_load(&s->dead))
			stream_go_home(s, r);
	}
}

void shim_before_seccomp(void)
{
	if (!shim_on)
		return;
	everybody_home(REASON_SECCOMP);
	shim_on = false;
}

void shim_before_io_uring(void)
{
	if (shim_on)
		everybody_home(REASON_FOREIGN_WAIT);
}

/* Moving a number that other threads may be about to write to could put their bytes into the
 * application's file; dup2() may fail with EBUSY, so it does. */
int fd_internal_move(int fd)
{
	(void)fd;
	return -EBUSY;
}
