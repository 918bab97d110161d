/*
 * stream_lock.c - both locks of a stream, in their order; and who serves those that poll it.
 *
 * Who copies with one of them to or from the program's memory may wait for a page without end
 * (lock.h). So may who uses the same stream. All others come by stream_lock_soon() or
 * stream_shut(), and what they had to do and could not the background thread does later.
 */
#include "conn/stream_life.h"

#include "base/shim.h"

void stream_lock(struct stream *s)
{
	lock_take(&s->rcv.lock);
	lock_take(&s->snd.lock);
}

#define SOON_NS 2000000		/* a copy of pages that are there takes no longer, mostly */

bool stream_lock_by(struct stream *s, uint64_t end_ns)
{
	if (!lock_take_soon(&s->rcv.lock, end_ns))
		return false;
	if (lock_take_soon(&s->snd.lock, end_ns))
		return true;
	lock_give(&s->rcv.lock);
	return false;
}

bool stream_lock_soon(struct stream *s)
{
	return stream_try_lock(s) || stream_lock_by(s, now_ns() + SOON_NS);
}

bool stream_lock_or_later(struct stream *s, uint8_t what)
{
	if (stream_lock_soon(s))
		return true;
	atomic_fetch_or(&s->later.what, what);
	bg_look(s);
	return false;
}

bool stream_shut(struct stream *s)
{
	/* who was in vain has not to wait anew each time */
	if (!stream_try_lock(s) && !stream_lock_by(s, s->later.put_off ? 0 : now_ns() + SOON_NS)) {
		s->later.put_off += s->later.put_off < PUT_OFF_MOST;
		return false;
	}
	s->later.put_off = 0;
	lock_give_and_shut(&s->snd.lock);
	lock_give_and_shut(&s->rcv.lock);
	return true;
}

void stream_open(struct stream *s)
{
	lock_open(&s->snd.lock);
	lock_open(&s->rcv.lock);
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
