/*
 * stream_cut.h - the machine of a stream (../cut): events go in, and its actions are carried out
 * (stream_cut.c). Also when a half arms (stream_arm.c), and when it does not for a while
 * (stream_pause.c). Not for wrappers.
 */
#ifndef RDMASHIM_STREAM_CUT_H
#define RDMASHIM_STREAM_CUT_H

#include "conn/stream.h"

/* ---- stream_cut.c: an event for a half. Lock of that half held ---- */
void stream_tx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off);
void stream_tx_put_off(struct stream *s);	/* those that a block which is read has put off */
void stream_rx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off);

/* ---- stream_cut.c: a slot ---- */
/* The stream rides `slot` of `l` from now on; machines start anew at TCP's own offsets. Both
 * locks held. */
void stream_attach(struct stream *s, struct link *l, uint32_t slot);
void stream_detach(struct stream *s);
bool stream_both_on_tcp(const struct stream *s);	/* both halves on TCP, nothing under way */
void stream_publish_state(struct stream *s);	/* paths and states to the counter row */

/* ---- stream_cut.c: a rewind ---- */
/* Pushes resend bytes into the kernel until it is full. snd.lock held. True: more to do later. */
bool stream_resend(struct stream *s);

/* ---- stream_arm.c ---- */
/* Tries to start or finish an arming; tx: EARNED, rx: NO_WAITERS. Takes the locks. True: the
 * kernel's counts did not stand still, try again. */
bool stream_try_cut(struct stream *s);
bool stream_poller_gone(struct stream *s);	/* it has stopped asking. True: there is no more
						 * to watch. Takes rcv.lock */

/* ---- stream_pause.c: what is rewound again and again stays on TCP for a while ---- */
void stream_fell_back(struct stream *s);	/* this end's direction; s->snd.left_us: when it
						 * was cut. snd.lock held */
bool stream_pauses(struct stream *s);		/* it is not cut yet. snd.lock held */

static inline bool stream_falls_back_often(const struct stream *s)
{
	return atomic_load(&s->snd.back_soon) > 1;
}

#endif
