/*
 * stream_pause.c - a direction that falls back soon after each cut, mostly for a child that
 * inherits the socket, stays on TCP for a while. Otherwise it would not win back what a cut and a
 * rewind cost.
 *
 * It does not matter which end wanted it on TCP: each end sees its own sending half come back, and
 * makes it wait. Overflow has a pause of its own (stream_overflow()).
 *
 * Locks: as each function says.
 */
#include "base/shim.h"
#include "conn/stream_cut.h"

#define BACK_SOON_US   20000	/* a time on the path that is too short */
#define BACK_SOON_MOST 8

/* The second time it pauses for 20 ms, then for twice as long each time, up to 2.6 s. That is
 * forgotten when it was away for as long as its next pause would be. snd.lock held. */
void stream_fell_back(struct stream *s)
{
	uint64_t now = now_us(), away = now - s->snd.left_us;
	uint8_t back_soon = atomic_load(&s->snd.back_soon);
	uint64_t pause = (uint64_t)BACK_SOON_US << back_soon >> 1;

	if (!s->snd.left_us || shim_tunables()->force_cut_every)
		return;
	if (away >= BACK_SOON_US) {
		if (away >= pause)
			atomic_store(&s->snd.back_soon, 0);
		return;
	}
	if (back_soon && s->earn.next_us < now + pause)
		s->earn.next_us = now + pause;
	if (back_soon < BACK_SOON_MOST)
		atomic_store(&s->snd.back_soon, back_soon + 1);
}

bool stream_pauses(struct stream *s)
{
	if (now_us() >= s->earn.next_us)
		return false;
	if (stream_falls_back_often(s) && atomic_load(&s->row->reason) != REASON_OVERFLOW)
		stat_row_reason(s->row, REASON_REWOUND);
	return true;
}
