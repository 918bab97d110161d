/*
 * upgrade.c - a stream that has earned: its socket is marked, and the background thread is told.
 *
 * Locks: both of the stream, while it is marked; none around loop_start().
 */
#include "base/loop.h"
#include "base/sock.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "link/link.h"

void stream_mark(struct stream *s)
{
	if (s->marked)
		return;
	stream_lock(s);
	if (atomic_load(&s->fd) >= 0)
		socket_mark(atomic_load(&s->fd));
	s->marked = 1;
	stream_unlock(s);
}

static void no_thread(struct stream *s, int r)
{
	stat_row_reason(stream_row(s), r == -EMFILE ? REASON_NO_FDS : REASON_NO_THREAD);
	atomic_store(&s->mode, MODE_TCP_FOR_NOW);
	atomic_store(&s->upgrade, 0);	/* nobody knows it: whoever closes it frees it */
}

/* Those that earned while the thread was being made. Those that have a path keep it: a direction
 * that is cut over cannot be on TCP by our word alone. */
void streams_without_thread(int r)
{
	for (uint32_t i = 0, n = streams_top(); i < n; i++) {
		struct stream *s = stream_at(i);
		uint32_t gen;
		bool dead;

		stream_lock(s);
		gen = atomic_load(&s->gen);
		dead = atomic_load(&s->dead);
		if (atomic_load(&s->mode) != MODE_FREE && atomic_load(&s->upgrade) &&
		    !atomic_load(&s->link)) {
			no_thread(s, r);
			hold_end(s);
		} else {
			dead = false;
		}
		stream_unlock(s);
		if (dead)
			stream_try_free(s, gen);
	}
}

void stream_earned(struct stream *s)
{
	int r;

	if (atomic_exchange(&s->upgrade, 1))
		return;
	stream_mark(s);
	stat_row_event(stream_row(s), EVENT_EARNED, 0);
	r = loop_start();
	if (r) {
		no_thread(s, r);
		hold_over(s);
		return;
	}
	bg_look(s);
}
