/*
 * stream_wake.h - who is told that something has changed on a stream (stream_wake.c). stream.h has
 * the part for waits in this process. Not for wrappers.
 */
#ifndef RDMASHIM_STREAM_WAKE_H
#define RDMASHIM_STREAM_WAKE_H

#include "base/event.h"
#include "conn/stream.h"

/* Tell the peer that something is to be seen in the slot. Either lock held. True: by a wire. */
bool stream_notify_peer(struct stream *s);
void stream_consumed(struct stream *s);		/* rd has moved: tell the sender if he waits.
						 * rcv.lock held */
bool stream_look_at_wire(struct stream *s);	/* take in what a wire has. True: look again. Any
						 * lock */
/* Rung after each step of a stream's machine, when one has lost its peer or its link, or left
 * it, and by stream_wake(). */
extern struct event stream_steps;

#endif
