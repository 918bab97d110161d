/*
 * stream_pause.c - a direction that goes home again soon after each cut, mostly for a child that
 * inherits the socket, stays there for a while: what a cut and a rewind cost is not won back by it.
 *
 * It does not matter who wanted it home: each end sees its own sending half come back, and lets it
 * wait. Overflow has a pause of its own (stream_overflow()).
 *
 * Locks: as each function says.
 */
#include "conn/stream_int.h"

#define BRIEF_US   20000	/* a time on the path that is too short */
#define BRIEF_MOST 8

/* The second time it pauses for 20 ms, then for twice as long each time, up to 2.6 s. That is
 * forgotten when it was away for as long as its next pause would be. snd.lock held. */
void stream_came_home(struct stream *s)
{
	uint64_t now = now_us(), away = now - s->snd.left_us;
	uint8_t brief = atomic_load(&s->snd.brief);
	uint64_t pause = (uint64_t)BRIEF_US << brief >> 1;

	if (!s->snd.left_us || shim_tunables()->force_cut_every)
		return;
	if (away >= BRIEF_US) {
		if (away >= pause)
			atomic_store(&s->snd.brief, 0);
		return;
	}
	if (brief && s->earn.next_us < now + pause)
		s->earn.next_us = now + pause;
	if (brief < BRIEF_MOST)
		atomic_store(&s->snd.brief, brief + 1);
}

bool stream_pauses(struct stream *s)
{
	if (now_us() >= s->earn.next_us)
		return false;
	if (stream_often_home(s) && atomic_load(&s->row->reason) != REASON_OVERFLOW)
		stat_row_reason(s->row, REASON_REWOUND);
	return true;
}
