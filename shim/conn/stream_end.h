/*
 * stream_end.h - how a stream ends: where a direction ends (stream_final.c), a dead peer or a lost
 * link (stream_end.c, stream_close.c), a reset (stream_cut.c). Not for wrappers.
 */
#ifndef RDMASHIM_STREAM_END_H
#define RDMASHIM_STREAM_END_H

#include "conn/stream.h"
#include "conn/stream_wake.h"

/* ---- stream_final.c. Lock of that half held ---- */
/* The socket's pending error, which is taken: it is told once, by us or the kernel. */
int stream_kernel_error(struct stream *s);
/* In this order: whoever polls sees both the error and the reset, or none yet. */
void stream_reset_with(struct stream *s, int e);
/* Where the peer's direction ends, RING_NO_FINAL: not known, or a lie. */
uint64_t stream_final_in_ring(struct stream *s);
/* Bytes that were sent again came to where nobody reads: a reset. snd.lock held. */
void stream_resent_in_vain(struct stream *s);
bool stream_final_seen(struct stream *s);	/* the peer has closed its direction, read to the
						 * end or not */
int stream_reset_errno(struct stream *s, int e);	/* what TCP would call the reset */
/* A poll that shows RDHUP says that all is here, up to that offset. Once: a peer that lies about
 * its end delays one call. */
void stream_show_end(struct stream *s, uint64_t at);

/* ---- stream_cut.c ---- */
void stream_protocol_error(struct stream *s);	/* the peer has lied: a reset. Either lock held */
/* The stream is lost: RST to the peer, ECONNRESET here. Either lock held. */
void stream_reset(struct stream *s);
void stream_publish_reset(struct stream *s);
void stream_publish_final(struct stream *s);
void stream_path_dead(struct stream *s);	/* the link's queue pair is no more: both halves
						 * fall back. Takes the locks */

/* ---- stream_end.c, stream_close.c ---- */
static inline void stream_set_gone(struct stream *s, uint8_t how)
{
	atomic_store(&s->peer_gone, how);
	event_ring(&stream_steps);
}

/* Dead peer: looks at the home socket, settles what reads and writes give. Both locks held. */
void stream_peer_dead(struct stream *s);
bool stream_fin_seen(struct stream *s);
void stream_reset_late(struct stream *s, uint32_t events);
/* The control socket is gone. True: settled. Takes the locks. */
bool stream_link_lost(struct stream *s, bool last_chance);
/* its link has. Background thread */
void stream_link_ended(struct stream *s, enum reason r);

#endif
