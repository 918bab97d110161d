/*
 * leave.c - exec, fd passing, seccomp, io_uring: streams fall back before a socket goes where the
 * library cannot follow. Forks are fork.c's, which this file calls, and which does not call it.
 *
 * Any thread. No lock of its own; all streams are asked before one is waited for.
 */
#include "process/fork.h"

#include <string.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/shim.h"
#include "conn/holders.h"
#include "conn/stream_slab.h"
#include "poll/ready.h"

/* ---- exec ---- */

/* Does the new program have the stream's socket, under this number or another? */
static bool goes_along(struct stream *s, int fd)
{
	if (fork_survives_exec(fd))
		return true;
	for (int i = 0, top = atomic_load(&s->nfds) > 1 ? fdtab_top() : 0; i < top; i++)
		if (fdtab_stream(i) == s && fork_survives_exec(i))
			return true;
	return false;
}

void shim_before_exec(void)
{
	int top = fdtab_top();

	if (!shim_on)
		return;
	ready_unpark_all(true);
	streams_fallback_while(goes_along, REASON_EXEC);
	for (int fd = fdtab_next(0); fd < top; fd = fdtab_next(fd + 1)) {
		struct stream *s = fdtab_stream(fd);
		struct holders *c = s ? atomic_load(&s->others.holders) : NULL;

		if (!c)
			continue;
		if (!goes_along(s, fd))
			holders_leave(c);
		else if (!stream_tcp_only(s))
			stat_row_reason(stream_row(s), REASON_EXEC);
	}
}

void shim_exec_failed(void)
{
	int top = fdtab_top();

	if (!shim_on)
		return;
	ready_park_again();
	streams_fallback_over();
	for (int fd = fdtab_next(0); fd < top; fd = fdtab_next(fd + 1)) {
		struct stream *s = fdtab_stream(fd);
		struct holders *c = s ? atomic_load(&s->others.holders) : NULL;

		if (c)
			holders_enter(c, atomic_load(&shim_pid));
	}
}

/* ---- fd passing ---- */

static void falls_back_first(int fd, bool waits, uint64_t since)
{
	struct stream *s = fdtab_stream(fd);
	struct epoll *e = fdtab_epoll(fd);

	if (s && !waits) {
		atomic_store(&s->others.passed, 1);
		if (!stream_tcp_only(s) && !atomic_load(&s->fork_cut) && atomic_load(&s->link)) {
			atomic_store(&s->fallback.going, 1);
			stream_ask_fallback(s);
		}
	} else if (s) {
		stream_fall_back_since(s, REASON_PASSED, since);
	} else if (e && waits) {
		ready_shared(e);
	}
}

/* All are asked before one is waited for: however many the peers keep, it is one patience. */
void shim_before_pass(const struct msghdr *msg)
{
	uint64_t since = now_us();

	if (!shim_on)
		return;
	for (int waits = 0; waits < 2; waits++)
		for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
		     c = CMSG_NXTHDR((struct msghdr *)msg, c)) {
			size_t n;

			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
			    c->cmsg_len < CMSG_LEN(0))
				continue;
			n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			for (size_t i = 0; i < n; i++) {
				int fd;

				memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
				falls_back_first(fd, waits, since);
			}
		}
}

/* ---- off for good ---- */

static bool lives(const struct stream *s)
{
	return atomic_load(&s->mode) != MODE_FREE && !atomic_load(&s->dead);
}

/* All are asked before one is waited for: however many the peers keep, it is one patience. */
void streams_to_tcp(enum reason r)
{
	uint64_t since = now_us();
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (lives(s) && !stream_tcp_only(s) && atomic_load(&s->link)) {
			atomic_store(&s->fallback.going, 1);
			stream_ask_fallback(s);
		}
	}
	for (uint32_t i = 0; i < n; i++)
		if (lives(stream_at(i)))
			stream_fall_back_since(stream_at(i), r, since);
}

void shim_off(enum reason r)
{
	if (!shim_on)
		return;
	streams_to_tcp(r);
	ready_unpark_all(true);
	shim_on = false;
}

static void past_us(enum reason r)
{
	atomic_store(&stream_past_us, true);
	if (!shim_on)
		return;
	streams_to_tcp(r);
	ready_unpark_all(false);
}

void shim_before_io_uring(void) { past_us(REASON_FOREIGN_WAIT); }
void shim_before_deepbind(void) { past_us(REASON_BYPASS); }

/* Moving a number that other threads may be about to write to could put their bytes into the
 * application's file; dup2() may fail with EBUSY, so it does. */
int fd_internal_move(int fd)
{
	return closer_vacate(fd) ? 0 : -EBUSY;
}
