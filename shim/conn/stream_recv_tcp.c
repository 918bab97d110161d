/*
 * stream_recv_tcp.c - what a receive takes from the kernel's socket: by way of memory of ours,
 * since a call that is given the program's may wait for it, and has the socket's lock.
 *
 * Lock: rcv.lock is held, and given while the program's memory is touched.
 */
#include "base/sys.h"
#include "conn/stream_recv.h"

/* n bytes were read from TCP. rcv.lock held. */
static void took_from_tcp(struct stream *s, uint64_t n)
{
	s->rcv.cut.rd += n;
	atomic_fetch_add_explicit(&s->row->rx_bytes[PATH_TCP], n, memory_order_relaxed);
	if (s->rcv.cut.state == CUT_RX_K)
		ring_rx_below(&s->rcv.ring, s->rcv.cut.rd);
	if (s->rcv.cut.back_pending)
		stream_rx_event(s, CUT_EV_CREDIT, 0, s->rcv.cut.rd);
}

/* While frozen TCP has only a part of what the ring still shows. `r`: what a peek found in TCP. */
static long peek_on(struct stream *s, struct receiving *x, struct bounce *b, long r)
{
	size_t done = r > 0 ? (size_t)r : 0, got;
	struct apart a;

	do {
		uint64_t from = s->rcv.cut.rd + done, held = stream_held(s, from);

		got = held < x->c.left ? held : x->c.left;
		if (x->flags & MSG_TRUNC) {
			cursor_moved(&x->c, got);
		} else {
			got = stream_peek_held(s, from, b->p, got < b->size ? got : b->size);
			apart_begins(s, &a);
			got = cursor_put(&x->c, &a.mem, b->p, got);
			if (!apart_ends(s, x, &a))
				return -ESTALE;
		}
		done += got;
	} while (got && x->c.left);
	return done ? (long)done : r;
}

/* There is no place for a single byte, which only matters if there is one. */
static long bad_pointer(const struct receiving *x)
{
	char c;
	long r = sys(SYS_recvfrom, x->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL);

	return r > 0 ? -EFAULT : r;
}

/* At most `max` bytes of TCP's by way of `b`: to be taken there must be a place for them. Count,
 * and x->again: they are the last of the attempt; 0, -errno, -ESTALE. rcv.lock held, and given
 * for a while. */
static long tcp_piece(struct stream *s, struct receiving *x, struct bounce *b, size_t max)
{
	size_t n = max < b->size ? max : b->size;
	int flags = (x->flags & ~MSG_WAITALL) | MSG_DONTWAIT;
	bool peek = flags & MSG_PEEK;
	struct apart a;
	long r;

	if (flags & MSG_TRUNC) {	/* they go nowhere */
		r = sys(SYS_recvfrom, x->fd, NULL, max, flags, NULL, NULL);
		if (r > 0)
			cursor_moved(&x->c, (size_t)r);
		if (r > 0 && !peek)
			took_from_tcp(s, (uint64_t)r);
		return r;
	}
	if (x->c.iov != &x->c.one || !usermem_known(&s->rcv.mem, x->c.here.iov_base, n)) {
		apart_begins(s, &a);
		n = cursor_good(&x->c, &a.mem, n);
		if (!apart_ends(s, x, &a))
			return -ESTALE;
		if (!n)
			return bad_pointer(x);
	}
	r = sys(SYS_recvfrom, x->fd, b->p, n, flags, NULL, NULL);
	if (r <= 0)
		return r;
	if (peek)
		stream_show(s, (uint64_t)r);
	else
		took_from_tcp(s, (uint64_t)r);
	apart_begins(s, &a);
	cursor_put(&x->c, &a.mem, b->p, (size_t)r);
	apart_ends(s, x, &a);
	return r;
}

long tcp_recv(struct stream *s, struct receiving *x, uint64_t max)
{
	size_t done = 0, want = x->c.left < max ? x->c.left : (size_t)max;
	char own[SMALL_MAX];
	struct bounce b;
	long r;

	fdtab_kernel_call();
	bounce_take(&b, want, x->flags & MSG_PEEK, own, sizeof own);
	do {
		r = tcp_piece(s, x, &b, want - done);
		done += r > 0 ? (size_t)r : 0;
		/* Less than was asked for: there is no more, or the end, an error or the urgent
		 * mark is next, which is the next call's. */
	} while (r == (long)b.size && done < want && !x->again && !(x->flags & MSG_PEEK));
	if (r < 0 && done)
		stream_untold(s, r);
	if (done)
		r = (long)done;
	if (x->flags & MSG_PEEK && s->rcv.cut.state == CUT_RX_F && !x->again &&
	    (r > 0 || r == -EAGAIN))
		r = peek_on(s, x, &b, r);
	bounce_give(&b);
	return r;
}
