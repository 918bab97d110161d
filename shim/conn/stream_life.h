/*
 * stream_life.h - a stream's life, as its own files and the background thread see it: both locks,
 * its descriptors, the upgrade, how it is given up. Not for wrappers, which have stream.h.
 */
#ifndef RDMASHIM_STREAM_LIFE_H
#define RDMASHIM_STREAM_LIFE_H

#include "conn/stream.h"

/* ---- stream_lock.c ---- */
/* Both locks in their order. */
void stream_lock(struct stream *s);
bool stream_try_lock(struct stream *s);
void stream_unlock(struct stream *s);

/* ---- its numbers: stream.c ---- */
/* Takes a number from the stream, and names another if it was the stream's own. False: somebody
 * else has done so. Both locks held, as by stream_dup(): so a stream always has a number as long
 * as a number has the stream. */
bool stream_drop_number(struct stream *s, int fd, bool closing, bool *ret_last);

/* Is it the stream still that this call was made for? Its number may have been closed meanwhile:
 * a call of the kernel's would keep the file, so ours goes on by another number of it, if there
 * is one. One of the locks held. */
static inline bool stream_still_named(struct stream *s, uint32_t gen, int *fd)
{
	if (__builtin_expect(atomic_load_explicit(&s->gen, memory_order_relaxed) != gen, 0))
		return false;
	if (__builtin_expect(fdtab_stream(*fd) == s, 1))
		return true;
	*fd = atomic_load(&s->fd);
	return fdtab_stream(*fd) == s;
}

/* ---- upgrade.c ---- */
/* What is more than one request and its answer. To mark each connection would cost those 3 % of
 * their time. */
#define MARK_TURNS 3
#define MARK_BYTES 4096
void stream_mark(struct stream *s);	/* socket_mark(), once; takes the locks */
void stream_earned(struct stream *s);	/* asks the background thread for an upgrade, once */
/* It could not be made, -errno: those that have earned stay on TCP. */
void streams_without_thread(int r);

/* ---- off its link, or about to be: stream.c ---- */
/* Nobody wants it off its link. */
static inline bool stream_keeps_link(const struct stream *s)
{
	return !atomic_load(&s->dead) && !atomic_load(&s->earn.stopped) &&
	       !atomic_load(&s->fallback.going) && !atomic_load(&s->peer_gone) &&
	       !s->fallback.unbind_sent && !s->fallback.unbind_got;
}

/* to TCP, when that can be, until the policy changes; takes the locks, does not wait */
void stream_leave_path(struct stream *s, enum reason r);
void stream_stays(struct stream *s, enum reason r);	/* on TCP for good; takes the locks */
/* Until `fallback` says so, or `end_us`: -ETIMEDOUT. `ask` asks for it, and answers what keeps
 * it away; it was called before, and is after each look. No lock is held. stream.c */
int stream_await_fallback(struct stream *s, uint64_t end_us, bool (*fallback)(struct stream *s),
		      void (*ask)(struct stream *s));

/* ---- stream_close.c ---- */
bool stream_unread_input(struct stream *s);
void stream_abort(struct stream *s);		/* of a closed stream: RST, our fd of it closed */
void stream_decline(struct stream *s);	/* ends an arming that is under way. Both locks held */

/* ---- its counters: stream_count.c, stream_cut.c, counters.c ---- */
void stream_count_tcp_only(struct stream *s);	/* stream_count.c; the locks are held */
void stream_count_here(struct stream *s);	/* it has another row, or another path. Both
						 * locks held, or nobody else has it */
/* counters.c: the counter file, with the first stream, of `fd`; again in a forked child. */
void shim_stat_first(int fd);
void shim_stat_reopen(bool now);

/* ---- who else holds the socket: holders.c, fork_touch.c ---- */
bool fork_may_cut(struct stream *s);	/* is about to be cut; the lock held under which
						 * fork_shared() said no. False: it must not be
						 * after all */
bool fork_shared(struct stream *s);	/* another live process holds it */
void fork_drop(struct stream *s);	/* this process no longer does */
bool fork_ever(void);			/* this process has forked while it had streams */
int fork_child_touch(struct stream *s);	/* in a child: have the parent rewind, then plain TCP */
int fork_child_touch_until(struct stream *s, uint64_t end_us);

/* ---- stream_plain.c, stream_fork.c ---- */
void stream_plain_start(void);
void stream_plain_after_fork(void);	/* this thread's calls are the parent's */
void stream_after_fork(void);

#endif
