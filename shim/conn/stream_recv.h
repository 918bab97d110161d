/*
 * stream_recv.h - what the files of the receiving half share: bytes that are on their way, and
 * bytes that were shown and not taken (stream_view.c, stream_peeked.c). Not for wrappers.
 * recv_half.h has the half itself.
 */
#ifndef RDMASHIM_STREAM_RECV_H
#define RDMASHIM_STREAM_RECV_H

#include "conn/stream.h"
#include "link/patience.h"

/* ---- what is on its way: stream_view.c ---- */
/* The offset up to which the ring has bytes that come when a rewind ends, or when the receiver
 * learns of a cut that so far only the sender has made. 0: neither is in progress. Lock of that
 * half held. */
static inline uint64_t stream_rx_coming_to(struct stream *s)
{
	uint8_t state = s->rcv.cut.state;
	struct ring_shared *sh;
	uint64_t wr, cut, most;

	if ((state != CUT_RX_FROZEN && state != CUT_RX_ARMED) || !atomic_load(&s->link))
		return 0;
	sh = s->rcv.ring.sh;
	if (state == CUT_RX_FROZEN && s->rcv.cut.was_cut)
		return atomic_load_explicit(&sh->wr, memory_order_acquire);
	/* The sender's header is there before its CUT, which may come when the receiver has
	 * frozen. */
	if (atomic_load_explicit(&sh->epoch, memory_order_acquire) !=
	    s->rcv.cut.epoch - (state == CUT_RX_FROZEN))
		return 0;
	wr = atomic_load_explicit(&sh->wr, memory_order_acquire);
	cut = atomic_load_explicit(&sh->cut, memory_order_relaxed);
	most = s->rcv.ring.large_size > s->rcv.ring.size ? s->rcv.ring.large_size
							  : s->rcv.ring.size;
	return wr > cut && wr - cut <= most ? wr : 0;
}

static inline bool stream_rx_coming(struct stream *s)
{
	return stream_rx_coming_to(s) > s->rcv.cut.rd;
}

/* A rewind has sent bytes again, and the kernel does not have all of them yet. */
bool stream_rx_resent(struct stream *s);
/* Whether bytes may be on their way when reads find nothing. A poll reports them, so a read,
 * FIONREAD or TCP_INQ that finds nothing now waits for them. All of these ask this function and
 * nothing else. Lock-free for polls. */
bool stream_rx_promised(struct stream *s);
/* As stream_rx_resent(), but not for ever, for callers that want the stream on TCP. From then on
 * its calls are the kernel's, which must have the bytes that were promised. */
bool stream_arriving(struct stream *s);
/* The program was told of the end, or of a count of bytes, that the kernel does not show yet: bytes
 * before it are in flight, and the kernel's own answers would cover only a part of them. 0: no;
 * else microseconds after which to look again. Takes rcv.lock. */
uint64_t stream_told_under_way(struct stream *s);

/* ---- stream_peeked.c: what the reader was shown and has not taken. rcv.lock held
 * unless said otherwise ---- */
/* How long a call that must not block waits for bytes that a rewind moves. That takes some 100 us,
 * and longer with many connections. If a process was once waited for in vain (it is stopped, or
 * worse), calls wait less for it from then on, and not again for the same rewind. All processes of
 * one user together get no more than patience.h says. */
#define STREAM_PATIENCE_NS	1000000000
#define STREAM_LESS_NS		50000000
uint64_t stream_patience(struct stream *s, enum patience for_, uint64_t most);
void stream_in_vain(struct stream *s, enum patience for_, uint64_t ns);	/* so long was waited */
void stream_show(struct stream *s, uint64_t n);	/* it is told of n bytes */
void stream_show_unread(struct stream *s, int fd);	/* of all that is there */

/* Of n bytes that are there now, or fewer than a call wants: is that less than was shown? `resent`:
 * stream_rx_resent(), asked before the bytes were counted. Where the kernel had all that was sent
 * again and shows less, another process took the rest. */
static inline bool stream_owes(struct stream *s, uint64_t n, bool resent)
{
	return s->rcv.peeked > s->rcv.cut.rd + n && !atomic_load(&s->peer_gone) && !s->rcv.eof &&
	       (s->rcv.cut.state >= CUT_RX_RING || resent || stream_rx_coming(s));
}

/* Of none that are there now. */
static inline bool stream_owes_any(struct stream *s, bool resent)
{
	return stream_owes(s, 0, resent) ||
	       ((resent || stream_rx_promised(s)) && !atomic_load(&s->peer_gone) && !s->rcv.eof);
}

/* A read has taken all that there is, and more was sent before, which it would have found on
 * TCP. */
bool stream_owes_more(struct stream *s, bool resent);
/* The same of a peek that has found n. In a rewind it sees the ring, too; but not before its CUT is
 * here, or where the receiver had frozen when that came. */
bool stream_owes_peek(struct stream *s, uint64_t n, bool resent);

static inline void stream_owes_nothing(struct stream *s)	/* from now on */
{
	s->rcv.peeked = s->rcv.resent_to = 0;
	atomic_store(&s->rcv.resent_end, 0);
}

/* Waits a little for the rest. False: for long enough (*wait: set by the first, 0 before). some:
 * for a peek, which has found some, and makes no room for more. Takes the lock. */
struct stream_peeked { uint64_t since, until; };
bool stream_await_peeked(struct stream *s, uint32_t gen, int fd, bool some,
			struct stream_peeked *wait);
/* While frozen: bytes from that offset on that the ring holds and TCP will bring; a copy of
 * them. */
uint64_t stream_held(struct stream *s, uint64_t from);
size_t stream_peek_held(struct stream *s, uint64_t from, const struct iovec *iov, int n);
/* FIONREAD; -ENOENT: ask the kernel. Takes the lock, may sleep */
int stream_unread_count(struct stream *s, uint32_t gen, int fd);

#endif
