/*
 * stream_lock.c - both locks of a stream, in their order, and the hooks of shim/poll.
 */
#include "conn/stream_life.h"

void stream_lock(struct stream *s)
{
	lock_take(&s->rcv.lock);
	lock_take(&s->snd.lock);
}

bool stream_try_lock(struct stream *s)
{
	if (!lock_try(&s->rcv.lock))
		return false;
	if (lock_try(&s->snd.lock))
		return true;
	lock_give(&s->rcv.lock);
	return false;
}

void stream_unlock(struct stream *s)
{
	lock_give(&s->snd.lock);
	lock_give(&s->rcv.lock);
}

const struct stream_pollers *stream_pollers;

void stream_serve(const struct stream_pollers *p) { stream_pollers = p; }
