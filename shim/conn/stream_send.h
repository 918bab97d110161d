/*
 * stream_send.h - what the files of the sending half share: how much may be in flight
 * (stream_room.c), the memory of rings (stream_idle.c), a full ring (stream_full.c), what TCP takes
 * until the cut (stream_hold.c). Not for wrappers. send_half.h has the half itself.
 */
#ifndef RDMASHIM_STREAM_SEND_H
#define RDMASHIM_STREAM_SEND_H

#include "conn/stream.h"

/* ---- stream_room.c: TCP's own counts ---- */
/*
 * TCP's own count of bytes sent or consumed. TCP_INFO is read around the queue length until it
 * stood still, else the two belong to different moments. -EAGAIN: it would not stand still.
 * Only ESTABLISHED: a FIN counts as a byte.
 */
int stream_tcp_state(int fd);	/* TCP_ESTABLISHED and so on, or -errno */
int64_t stream_kernel_offset(int fd, bool sent, bool client);
int64_t stream_kernel_received(int fd);		/* read or not, perhaps with the FIN */
/* Does TCP have more than the stream's bytes below `at`: another process's bytes, or its end?
 * snd.lock held */
bool stream_overtaken(const struct stream *s, uint64_t at);

/* ---- stream_room.c: how much may be under way ---- */
/* No more of the ring is used than TCP could take back without a reader, since the reader may be
 * waiting for just that (fall_back). While the direction is on the path, only a reader of the
 * kernel's socket changes what TCP has room for. snd.lock held. */
void stream_fit_tcp(struct stream *s);		/* at the cut */
/* With a wire: something was published, and a ring that is full again and again is to be a larger
 * one, which the peer has to give. snd.lock held */
void stream_filled(struct stream *s);
/* With a common segment: a call found too little room. One that does again and again gets a larger
 * ring. snd.lock held */
void stream_waits_for_room(struct stream *s);
/* With a common segment: the sender's ring, if it is empty and may be; for calls of so many bytes.
 * snd.lock held */
void stream_enlarge(struct stream *s, size_t want);
/* After stream_fit_tcp() left less than the whole ring, and that is full: asks the kernel again, as
 * TCP's unread bytes only become fewer. True: more of the ring may be used now. snd.lock held */
bool stream_more_room(struct stream *s);
uint64_t stream_tcp_takes(const struct stream *s);	/* how many bytes TCP would take back
							 * now, at least; UINT64_MAX: not known.
							 * snd.lock held */
void stream_give_large(struct stream *s);	/* the slot is given back: so is its ring. Both
						 * locks held */
void stream_count_ring(struct stream *s);	/* its ring or its link is another one. snd.lock
						 * held */
void stream_rings_after_fork(void);

/* ---- stream_view.c ---- */
bool stream_roomy(const struct stream *s);	/* the ring is writable to those who poll.
						 * Lock-free, inside link_read_enter() or with
						 * snd.lock */
bool stream_tx_coming(struct stream *s);

/* ---- stream_idle.c: the memory of rings, of both halves ---- */
bool ring_memory_take(struct stream *s, uint64_t size);	/* it counts as memory from now on.
							 * False: there is not so much. snd.lock
							 * held */
/* As ring_memory_take(), but also beyond `ring_budget`: for a sender that cannot fall back, or
 * not yet, and so writes to its ring. snd.lock held */
void ring_memory_force(struct stream *s, uint64_t size);
/* stream_again.c: about to be written to after a rest. False: it falls back. snd.lock held */
bool ring_memory_again(struct stream *s);
static inline bool ring_memory_ready(struct stream *s) { return __builtin_expect(s->snd.held, 1) ||
						  ring_memory_again(s); }
void ring_memory_received(struct stream *s);	/* the peer may write to his. rcv.lock held */
void ring_memory_unused(struct stream *s);	/* it is on TCP again. rcv.lock held */
void ring_memory_free(struct stream *s);	/* it leaves its slot. snd.lock held */
uint64_t rings_rest(uint64_t now);	/* gives back what is not used; when to come again.
					 * Background thread */
void rings_after_fork(void);

/* ---- stream_full.c: the watch over a full ring. snd.lock held ---- */
/* The direction is on the path, confirmed, and has no room. When to look again; 0: it falls
 * back. */
uint64_t full_look(struct stream *s, struct full_watch *w, uint64_t now);
/* there is room, or something else carries it */
void full_pause_over(struct stream *s, struct full_watch *w);

/* ---- stream_hold.c: TCP takes little until the cut. Those that end it do nothing,
 * without a lock, where it is not held ---- */
void hold_begin(struct stream *s);	/* a sender of much has earned. Takes both locks; errno
					 * may be lost */
void hold_again(struct stream *s);	/* it was found, or is armed again. snd.lock held */
void hold_end(struct stream *s);	/* snd.lock held, or nobody else has it */
void hold_over(struct stream *s);	/* takes snd.lock */
uint64_t hold_watch(struct stream *s, uint64_t now);	/* ends it if its time is up: else when
							 * that is. Takes snd.lock */

#endif
