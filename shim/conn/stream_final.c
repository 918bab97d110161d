/*
 * stream_final.c - where a direction ends, and with which error, as the ring and the kernel say.
 *
 * Every entry is called with the lock of the half that it touches, unless stream_end.h says
 * otherwise. Nothing here sleeps: kernel calls are non-blocking.
 */
#include <sys/ioctl.h>

#include "base/loop.h"
#include "base/procs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_end.h"
#include "conn/stream_life.h"
#include "link/link.h"

/* Where the direction ends, as the sender says after its last byte was published; anything else
 * is a lie. */
uint64_t stream_final_in_ring(struct stream *s)
{
	uint64_t final = atomic_load_explicit(&s->rcv.ring.sh->final, memory_order_acquire);

	if (final >= RING_RESET ||
	    final != atomic_load_explicit(&s->rcv.ring.sh->wr, memory_order_acquire) ||
	    final < s->rcv.cut.rd)
		return RING_NO_FINAL;
	return final;
}

void stream_show_end(struct stream *s, uint64_t at)
{
	if (s->rcv.end_peeked || at == RING_NO_FINAL || !atomic_load(&s->link) || fork_shared(s))
		return;
	s->rcv.end_peeked = 1;
	if (at > s->rcv.peeked)
		s->rcv.peeked = at;
}

/* Of what comes before the ring: TCP has all of it for us, nothing is under way. */
static bool tcp_part_here(struct stream *s)
{
	int64_t left = (int64_t)(s->rcv.cut.cut_at - s->rcv.cut.rd);
	int q = 0;

	return left <= 0 || (sys(SYS_ioctl, atomic_load(&s->fd), FIONREAD, &q) >= 0 && q >= left);
}

/*
 * As the kernel, which shows FIN when all that was sent before it is here: a reader that is told
 * of the end may take a read that is not full for the last one. While armed or frozen bytes are
 * under way through TCP, so there it is the end only if all was read.
 */
bool stream_final_seen(struct stream *s)
{
	uint64_t final;

	/* On TCP the kernel answers; what was seen before stays. */
	if (atomic_load_explicit(&s->rcv.fin_known, memory_order_acquire))
		return true;
	if (s->rcv.cut.state == CUT_RX_TCP || !atomic_load(&s->link))
		return atomic_load_explicit(&s->rcv.fin_known, memory_order_acquire);
	final = stream_final_in_ring(s);
	if (final == RING_NO_FINAL)
		return false;
	if (s->rcv.cut.state != CUT_RX_RING) {
		if (final != s->rcv.cut.rd)
			return false;
	} else if (!tcp_part_here(s)) {
		uint8_t none = 0;

		/* Nobody rings when it has come; who is dead sends no more. */
		if (!atomic_load(&s->peer_gone) &&
		    atomic_compare_exchange_strong(&s->rcv.end_awaited, &none, 1))
			bg_look(s);
		return false;
	}
	atomic_store_explicit(&s->rcv.end_at, final, memory_order_relaxed);
	atomic_store_explicit(&s->rcv.fin_known, 1, memory_order_release);
	return true;
}

bool stream_at_end(struct stream *s)
{
	return s->rcv.eof ||
	       (stream_final_seen(s) &&
		s->rcv.cut.rd >= atomic_load_explicit(&s->rcv.end_at, memory_order_relaxed));
}

/* A reset after FIN is EPIPE, unless we had closed too: tcp_reset() in net/ipv4/tcp_input.c. A
 * FIN that is on its way through the ring the kernel does not know. */
int stream_reset_errno(struct stream *s, int e)
{
	return e == ECONNRESET && stream_final_seen(s) && !atomic_load(&s->shut.wr) ? EPIPE : e;
}

/* Takes the socket's pending error, so that it is told once, by whoever of us and the kernel
 * comes first. */
int stream_kernel_error(struct stream *s)
{
	int e = 0;
	uint32_t len = sizeof e;

	if (sys(SYS_getsockopt, atomic_load(&s->fd), SOL_SOCKET, SO_ERROR, &e, &len) < 0 || !e)
		e = ECONNRESET;
	return stream_reset_errno(s, e);
}

/* In this order: whoever polls sees both, or none yet. */
void stream_reset_with(struct stream *s, int e)
{
	atomic_store(&s->err, e);
	s->lost.reset_ours = 1;
	__atomic_store_n(&s->lost.reset_seen, 1, __ATOMIC_RELEASE);
}

/*
 * Bytes that the peer has not read were sent again to where its process had ended: TCP would
 * have reset the connection then. The kernel knows of them too late, if FIN came first, and
 * takes it for a clean end. snd.lock held.
 */
void stream_resent_in_vain(struct stream *s)
{
	struct pollfd p = { .fd = atomic_load(&s->fd), .events = POLLRDHUP };
	struct link *l = atomic_load(&s->link);
	struct timespec zero = { 0, 0 };

	if (atomic_load(&s->peer_gone))		/* it is known, and was perhaps told already */
		return;
	if (sys(SYS_ppoll, &p, 1, &zero, NULL, 0) < 1 || !(p.revents & POLLRDHUP) || !l)
		return;
	if (!link_ended(l) && !link_peer_ending(l))
		return;
	if ((p.revents & (POLLHUP | POLLERR)) == POLLHUP)	/* a reset that was told already */
		return;
	if (p.revents & POLLERR)
		stream_kernel_error(s);	/* taken: it is told once */
	/* One that had closed its direction before it ended has said so in the ring. */
	stream_reset_with(s,
		   atomic_load(&s->rcv.ring.sh->final) == RING_NO_FINAL || atomic_load(&s->shut.wr)
			   ? ECONNRESET
			   : EPIPE);
}
