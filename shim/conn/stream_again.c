/*
 * stream_again.c - a ring that has given its memory back and is about to be used again.
 *
 * Locks: snd.lock is held.
 */
#include "conn/stream_cut.h"
#include "conn/stream_send.h"

bool ring_memory_again(struct stream *s)
{
	if (ring_memory_take(s, s->snd.ring.size))
		return true;
	stream_tx_event(s, CUT_EV_FALLBACK, 0, 0);
	if (cut_tx_on_ring(&s->snd.cut))	/* it cannot, or not yet */
		ring_memory_force(s, s->snd.ring.size);
	bg_look(s);
	return cut_tx_on_ring(&s->snd.cut);
}
