/*
 * wire.h - which threads sleep on the wire of a link (path.h), and what the wire reports. A stream
 * without a link, or whose ends share a segment, has no wire: then nothing is done.
 */
#ifndef RDMASHIM_WIRE_H
#define RDMASHIM_WIRE_H

#include "link/link.h"
#include "link/path.h"

/* ---- any thread ---- */
/* The channel of the stream's link, and a number that no other link has ever; -1: none. */
int wire_channel(struct link *_Atomic *at, uint64_t *ret_id);
/* The channel of the link of that number, -1: it is not there any more. */
int wire_channel_of(uint64_t id);
/* A descriptor beside the bell that one may sleep on for changes of the stream's link (of number
 * `id`, 0: whichever it is): from here on nobody else is woken for `b` on that link. Gives the
 * descriptor, or -1. Before bell_arm(); ends with bell_disarm(). After the sleep, disarmed,
 * wire_woken() if it was readable: the link may be another by then. */
int wire_sleep_on(struct link *_Atomic *at, const struct bell *b, uint64_t id);
void wire_woken(struct link *_Atomic *at, int fd);
/* The same for one who knows only that one of the channels was readable. */
void wires_woken(void);
/* There is a wire, so memory of ours that a device may have pinned. */
bool wire_any(void);
void wires_log(void);			/* what went over them, into the log */

/* ---- background thread ---- */
void wire_ready(uint32_t index);	/* loop_duties.event[LOOP_CHANNEL] */

#endif
