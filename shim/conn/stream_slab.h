/*
 * stream_slab.h - all streams of the process: a table that only grows (stream_slab.c), and how a
 * stream is found there. For the files of the stream and the background thread, not for wrappers.
 */
#ifndef RDMASHIM_STREAM_SLAB_H
#define RDMASHIM_STREAM_SLAB_H

#include "conn/stream.h"

/* All made streams, for walks: index 0 .. streams_top-1; NULL beyond. Free ones have MODE_FREE. */
struct stream *stream_at(uint32_t index);
uint32_t streams_top(void);
struct stream *stream_slab_take(void);	/* one that is free, as it was left, or zero; NULL: the
					 * table is full */
void stream_slab_begin(struct stream *s);	/* its next life: who still counts in the last one
						 * counts no more */
void stream_free(struct stream *s);		/* back to the slab; nobody may look any more */
bool stream_try_free(struct stream *s, uint32_t gen);	/* unless a thread is still inside a
							 * plain call: then it will */

/* ---- its lock, across fork ---- */
void stream_fork_lock(void);	/* the slab, across fork */
void stream_fork_unlock(void);
void stream_slab_after_fork(void);

/* ---- stream.c: by the peer's port ---- */
/* A guess that the caller checks: the stream accepted last from a peer's port (host order), or
 * NULL. *ret_others: there may be more. */
struct stream *stream_accepted_from(uint16_t port, bool *ret_others);
void stream_enter_port(struct stream *s);	/* it is to be found so, though it was not
						 * accepted */

#endif
