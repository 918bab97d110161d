/*
 * stream_io.c - the one send core and the one receive core that every libc variant ends in.
 *
 * Pattern of each call: take the lock of the half, see that the fd is still this stream, do what
 * can be done without sleeping on whatever carries the direction now, release the lock; only then
 * wait (stream_wait.h), and look again from the start. So a cut, a rewind, a close or a pin may happen during any
 * sleep, and a caller never holds anything while it sleeps.
 *
 * Locks: tx_lock to send, rx_lock to receive, and tx_lock under that where a reader finds the peer dead.
 */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "bg.h"
#include "copy.h"
#include "cuda.h"
#include "libc.h"
#include "ready.h"
#include "signals.h"
#include "stream_int.h"
#include "stream_wait.h"
#include "sys.h"

/* One publication at least every so often, so that the reader copies while we copy. */
#define PUBLISH_CHUNK 32768
/* A message that goes in a straight line, and so in one publication. */
#define SHORT_MAX 16384
#define STUCK_NS     1000000000	/* a receiver that copies out of our memory, and perhaps was stopped there, is waited for so long ... */
#define STUCK_NAP_NS 1000000	/* ... and looked at so often, ... */
#define LATE_NAP_NS  50000	/* ... one that has not begun so often */

/* ---- a position in an iovec ---- */
struct cursor {
	const struct iovec *iov;
	int n;
	size_t skip;		/* into iov[0] */
	size_t left;		/* in all */
};

static inline int cursor_init(struct cursor *c, const struct iovec *iov, int n)
{
	*c = (struct cursor){ .iov = iov, .n = n };
	for (int i = 0; i < n; i++) {
		if ((intptr_t)iov[i].iov_base < 0 && iov[i].iov_len)	/* the kernel's half: it says so before it waits */
			return -EFAULT;
		if (iov[i].iov_len > (size_t)SSIZE_MAX - c->left)
			return -EINVAL;
		c->left += iov[i].iov_len;
	}
	return 0;
}

static void cursor_step(struct cursor *c, size_t n)
{
	c->left -= n;
	while (n) {
		size_t here = c->iov->iov_len - c->skip;

		if (n < here) {
			c->skip += n;
			return;
		}
		n -= here;
		c->skip = 0;
		c->iov++;
		c->n--;
	}
}

/* The rest as an array for the kernel, at most `max` bytes in at most `cap` pieces. */
static int cursor_iov(const struct cursor *c, struct iovec *out, int cap, size_t max)
{
	int n = 0;
	size_t skip = c->skip;

	for (int i = 0; i < c->n && n < cap && max; i++) {
		size_t len = c->iov[i].iov_len - skip;

		if (len > max)
			len = max;
		if (len) {
			out[n].iov_base = (char *)c->iov[i].iov_base + skip;
			out[n++].iov_len = len;
		}
		max -= len;
		skip = 0;
	}
	return n;
}

#define KERNEL_IOVS 1024	/* UIO_MAXIOV: the wrappers let no more through */

/* Not inlined: 16 KiB of stack only for those who come with many pieces. */
static __attribute__((noinline)) long kernel_sendv(int fd, const struct cursor *c, int flags)
{
	struct iovec v[KERNEL_IOVS];
	struct msghdr h = { .msg_iov = v };

	h.msg_iovlen = (size_t)cursor_iov(c, v, KERNEL_IOVS, SIZE_MAX);
	return sys(SYS_sendmsg, fd, &h, flags);
}

static __attribute__((noinline)) long kernel_recvv(int fd, const struct cursor *c, size_t max, int flags)
{
	struct iovec v[KERNEL_IOVS];
	struct msghdr h = { .msg_iov = v };

	h.msg_iovlen = (size_t)cursor_iov(c, v, KERNEL_IOVS, max);
	return sys(SYS_recvmsg, fd, &h, flags);
}

static long kernel_send(int fd, const struct cursor *c, int flags)
{
	fdtab_kernel_call();
	if (c->n == 1)
		return sys(SYS_sendto, fd, (char *)c->iov->iov_base + c->skip, c->left, flags, NULL, 0);
	return kernel_sendv(fd, c, flags);
}

static long kernel_recv(int fd, const struct cursor *c, size_t max, int flags)
{
	fdtab_kernel_call();
	if (c->n == 1) {
		size_t len = c->left < max ? c->left : max;

		return sys(SYS_recvfrom, fd, (char *)c->iov->iov_base + c->skip, len, flags, NULL, NULL);
	}
	return kernel_recvv(fd, c, max, flags);
}

static inline void count(_Atomic uint64_t *c, size_t n)
{
	/* One writer at a time (the lock of the half): no need for a locked add. Of a load and a store the compiler would make three instructions.
	 * The count is taken as the type it has: a copy of it only for this would be two more. */
	__asm__("addq %1, %0" : "+m"(*(uint64_t *)c) : "er"(n));
}

/* The connection's error that a call met after it had moved bytes is the next call's. It may have given its slot back meanwhile; but a
 * plain call would ask the kernel, which has told it. Lock of either half held. */
static void untold(struct stream *s, long r)
{
	uint8_t plain = MODE_NEW;

	if (r != -ECONNRESET && r != -ETIMEDOUT && r != -EHOSTUNREACH && r != -ENETUNREACH)
		return;
	atomic_store(&s->err, (int)-r);
	atomic_compare_exchange_strong(&s->mode, &plain, MODE_CAND);
}

/* ---- send ---- */

static void sigpipe(int flags)
{
	long pid = sys(SYS_getpid), tid = sys(SYS_gettid);

	if (!(flags & MSG_NOSIGNAL))
		sys(SYS_tgkill, pid, tid, SIGPIPE);
}

/* No error holds, whatever the path. tx_lock held. */
static inline bool tx_sound(struct stream *s)
{
	return !atomic_load(&s->shut_wr) && !s->tx_lost && !atomic_load(&s->err) &&
	       (!atomic_load(&s->peer_gone) || cut_tx_on_tcp(&s->tx));
}

/* 0, or -errno, which is told once. tx_lock held. */
static int tx_trouble(struct stream *s)
{
	int e;

	if (tx_sound(s))
		return 0;
	e = atomic_exchange(&s->err, 0);
	return e ? -e : -EPIPE;
}

/* The peer's process has ended, without a reset yet: the kernel takes what comes now, and hears by that of the reset. */
static bool goes_nowhere(const struct stream *s)
{
	return atomic_load(&s->peer_gone) == 1 && !atomic_load(&s->shut_wr) && !s->tx_lost;
}

/* The block at the cursor, if the ring is empty; one with a snapshot waits a little for that. Who does not want to wait has other
 * work: to stand by while the receiver copies costs such a thread more than its own copy does, which goes on beside the receiver's. */
static ssize_t offer(struct stream *s, struct cursor *c, bool nonblock, bool *plain)
{
	size_t n = c->iov->iov_len - c->skip;
	struct cuda_ref ref;
	ssize_t r;

	if (n < DIRECT_MIN)
		return 0;
	if (!*plain && atomic_load_explicit(&cuda_sends, memory_order_relaxed)) {
		if (cuda_find((const char *)c->iov->iov_base + c->skip, n, &ref)) {
			const void *at = (const char *)c->iov->iov_base + c->skip;

			r = s->path == PATH_RDMA ? (ssize_t)device_send(s, at, &ref) : direct_send_device(s, at, &ref, !nonblock);
			if (r > 0)
				cursor_step(c, (size_t)r);
			*plain = !r;	/* nobody takes it now */
			return r;
		}
		*plain = ref.len == n;
		n = ref.len;
		if (n < DIRECT_MIN)
			return 0;
	}
	if (nonblock || s->path == PATH_RDMA)
		return 0;
	if (s->rtx.rd != s->rtx.wr && ring_tx_refresh(&s->rtx))
		return -EPROTO;
	if (s->rtx.rd != s->rtx.wr)
		return 0;
	r = direct_send(s, (const char *)c->iov->iov_base + c->skip, n);
	if (r > 0)
		cursor_step(c, (size_t)r);
	return r;
}

/* Bytes before the next large block, which may have a snapshot. */
static size_t before_block(const struct cursor *c)
{
	size_t n = c->iov->iov_len - c->skip;

	for (int i = 1; i < c->n && c->iov[i].iov_len < DIRECT_MIN; i++)
		n += c->iov[i].iov_len;
	return n;
}

/* n bytes have been copied behind wr: the receiver may have them. tx_lock held. */
static inline void put_in_ring(struct stream *s, size_t n)
{
	ring_tx_ahead(&s->rtx, n);
	ring_tx_publish(&s->rtx, n);
	s->tx.wr += n;
	if (stream_notify_peer(s))
		stream_filled(s);
}

/* What most calls are, in a straight line: one small piece, and room for it in the ring. False, and nothing is done, where
 * anything is out of the ordinary: ring_send() knows all of it. tx_lock held, nothing of the call is sent yet. */
static inline bool short_send(struct stream *s, const struct iovec *iov, int n)
{
	size_t len = iov->iov_len;

	if (n != 1 || len > SHORT_MAX || !cut_tx_on_ring(&s->tx) || !tx_sound(s) || s->direct_stuck || s->direct_done)
		return false;
	if (ring_tx_room(&s->rtx) < len || usermem_ok(&s->tx_mem, iov->iov_base, len, false) < len)
		return false;
	ring_tx_copy(&s->rtx, 0, iov->iov_base, len);
	count(&s->fast_bytes[0], len);
	put_in_ring(s, len);
	return true;
}

/* Copies what fits into the ring. Count, -EPROTO, or -EFAULT if not even the first byte can be read. tx_lock held. */
static ssize_t ring_send(struct stream *s, struct cursor *c, bool nonblock, bool *stuck)
{
	size_t done = 0, chunk = PUBLISH_CHUNK * copy_threads_for(c->left);
	bool plain = false;

	if (s->direct_stuck || s->direct_done)	/* another thread's block comes first */
		return 0;
	if (s->device_out)
		device_settle(s);
	if (ring_tx_room(&s->rtx) < c->left) {
		if (ring_tx_refresh(&s->rtx))
			return -EPROTO;
		if (ring_tx_room(&s->rtx) < c->left) {
			if (nonblock)
				stream_enlarge(s, c->left);
			stream_waits_for_room(s);
		}
	}
	if (s->path == PATH_RDMA && (s->rtx.size - s->rtx.unused) / 4 > chunk)	/* each one is a record, and perhaps wakes the reader */
		chunk = (s->rtx.size - s->rtx.unused) / 4;
	while (c->left) {
		if (c->left >= DIRECT_MIN) {
			ssize_t r = offer(s, c, nonblock, &plain);

			if (r == -EBUSY) {
				*stuck = true;
				break;
			}
			if (r < 0)
				return r;
			done += (size_t)r;
			if (r)
				continue;
		}
		if (!c->left)
			break;
		uint64_t room = ring_tx_room(&s->rtx);
		size_t n = c->left < room ? c->left : room, at = 0;
		struct cursor before;
		bool bad = false;

		if (!n) {
			if (ring_tx_refresh(&s->rtx))
				return -EPROTO;
			if (!ring_tx_room(&s->rtx) && !stream_more_room(s) && !stream_look_at_wire(s))
				break;
			continue;
		}
		if (n > chunk)
			n = chunk;
		if (n < c->left && before_block(c) && before_block(c) < n &&
		    atomic_load_explicit(&cuda_sends, memory_order_relaxed))
			n = before_block(c);
		before = *c;
		while (at < n) {
			size_t piece = c->iov->iov_len - c->skip;

			if (piece > n - at)
				piece = n - at;
			if (piece) {
				char *p = (char *)c->iov->iov_base + c->skip;
				size_t good = usermem_ok(&s->tx_mem, p, piece, false);

				bad = good < piece;
				piece = good;
				if (piece >= COPY_SHARE_MIN)
					ring_tx_copy_by(&s->rtx, at, p, piece, copy_shared);
				else if (piece)
					ring_tx_copy(&s->rtx, at, p, piece);
			}
			at += piece;
			cursor_step(c, piece);
			if (bad) {	/* the kernel drops its whole piece, too */
				n = 0;
				break;
			}
			while (at < n && c->n && c->skip == c->iov->iov_len) {	/* empty pieces */
				c->iov++;
				c->n--;
				c->skip = 0;
			}
		}
		if (bad) {
			*c = before;	/* what was good of the piece was not taken */
			if (done)
				break;
			return -EFAULT;
		}
		put_in_ring(s, n);
		done += n;
	}
	count(&s->fast_bytes[0], done);
	return (ssize_t)done;
}

/* A non-blocking caller will be told of room by an event; and if nobody ever reads, TCP takes over. */
static bool ring_still_full(struct stream *s)
{
	arena_want_room(&s->rtx);
	ring_tx_refresh(&s->rtx);
	if (ring_tx_room(&s->rtx) || (stream_more_room(s) && ring_tx_room(&s->rtx)))
		return false;
	if (!atomic_exchange(&s->ring_full, 1))
		bg_look(s);
	return true;
}

/* The block is the receiver's until it has finished, but not for ever. Bytes that it took. tx_lock held, and given for a while;
 * the program's handlers wait, for one that jumps out would leave the block to nobody. */
static size_t await_take(struct stream *s, uint32_t gen)
{
	struct timespec nap = { 0, STUCK_NAP_NS };
	uint64_t start = now_ns(), now = start, n;

	for (; s->direct_stuck && !direct_settle(s, now - start > STUCK_NS || atomic_load(&s->peer_gone)); now = now_ns()) {
		nap.tv_nsec = now < s->direct_until ? LATE_NAP_NS : STUCK_NAP_NS;
		critical_enter();
		lock_give(&s->tx_lock);
		sys(SYS_nanosleep, &nap, NULL);
		lock_take(&s->tx_lock);
		critical_leave();
		if (atomic_load_explicit(&s->gen, memory_order_relaxed) != gen)	/* closed: then it was settled */
			return 0;
	}
	n = s->direct_done;
	s->direct_done = 0;
	return (size_t)n;
}

ssize_t stream_send(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct call call = { .mark = signals_mark() };
	struct cursor c;
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);	/* the struct may be another stream's after a sleep */
	size_t done = 0;
	bool nonblock, ours, hiccup, stuck, theirs;
	uint32_t epoch;
	long r;

	r = cursor_init(&c, iov, n);
	if (r)
		return r;
	if (!c.left)
		return sys(SYS_sendto, fd, NULL, 0, flags, NULL, 0);
	for (;;) {
		lock_take(&s->tx_lock);
		stuck = theirs = false;
		if (!c.left || !stream_still_named(s, gen, &fd)) {
			lock_give(&s->tx_lock);
			return done ? (ssize_t)done : -EBADF;
		}
		atomic_store_explicit(&s->one_way, 0, memory_order_relaxed);
		if (!done && short_send(s, iov, n)) {
			lock_give(&s->tx_lock);
			return (ssize_t)iov->iov_len;
		}
		nonblock = atomic_load_explicit(&s->nonblock, memory_order_relaxed) || flags & MSG_DONTWAIT;
		r = tx_trouble(s);
		ours = r < 0;		/* the kernel raises SIGPIPE itself for its own */
		if (r == -EPIPE && goes_nowhere(s)) {
			ours = false;
			r = kernel_send(fd, &c, flags | MSG_DONTWAIT);
			if (r > 0) {
				done += (size_t)r;
				cursor_step(&c, (size_t)r);
				r = -EAGAIN;
			}
		} else if (!r && cut_tx_on_ring(&s->tx)) {
			do
				r = ring_send(s, &c, nonblock, &stuck);
			while (r >= 0 && c.left && nonblock && !stuck && !ring_still_full(s) && (done += (size_t)r, true));
			if (r == -EPROTO) {
				stat_add(STAT_bad_peer, 1);
				stat_row_reason(s->row, REASON_PROTOCOL);
				stream_reset(s);
				r = -ECONNRESET;
			}
			if (r >= 0) {
				done += (size_t)r;
				r = -EAGAIN;
			}
			theirs = !stuck && s->direct_stuck;
			if (stuck) {
				size_t took = await_take(s, gen);

				done += took;
				cursor_step(&c, took);
			}
		} else if (!r && cut_tx_on_tcp(&s->tx)) {
			r = kernel_send(fd, &c, flags | MSG_DONTWAIT);
			/* Its FIN waits until we have read all, so the kernel does not know that this comes after it. */
			if (r == -ECONNRESET && stream_final_seen(s)) {
				r = -EPIPE;
				ours = true;
			}
			if (r > 0) {
				s->tx.wr += (uint64_t)r;
				atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], (uint64_t)r, memory_order_relaxed);
				done += (size_t)r;
				cursor_step(&c, (size_t)r);
				r = -EAGAIN;
			}
		} else if (!r) {
			r = -EAGAIN;	/* W, R: a rewind is under way */
		}
		hiccup = r == -EAGAIN && !stuck && nonblock && c.left && !done && !call.ridden && stream_tx_coming(s);
		epoch = s->tx.epoch;
		if (done)
			untold(s, r);
		lock_give(&s->tx_lock);
		if (hiccup) {
			stream_ride_out(s, fd, EPOLLOUT, epoch, &call);
			continue;
		}
		if (stuck)
			continue;
		if (!c.left)
			return (ssize_t)done;
		if (theirs && !nonblock) {	/* another thread's block: the ring has room, so nothing else would wait for it */
			struct timespec nap = { 0, LATE_NAP_NS };

			sys(SYS_nanosleep, &nap, NULL);
			continue;
		}
		if (r != -EAGAIN) {
			if (done)
				return (ssize_t)done;
			if (r == -EPIPE && ours)
				sigpipe(flags);
			return r;
		}
		if (nonblock)
			return done ? (ssize_t)done : -EAGAIN;
		if (!call.deadline)
			call.deadline = deadline_of(s->snd_timeo_us);
		call.done = done;
		r = stream_wait(s, fd, EPOLLOUT, &call);
		if (r)
			return done ? (ssize_t)done : r;
	}
}

/* ---- receive ---- */

/* What a read gives when the ring (and TCP before it) is empty for good. 0 = EOF. */
static long at_the_end(struct stream *s)
{
	return -atomic_exchange(&s->err, 0);
}

/* The peer is dead and all is read. rx_lock held. */
static bool ring_ended(struct stream *s)
{
	if (!atomic_load(&s->peer_gone))
		return false;
	ring_rx_refresh(&s->rrx);	/* its last bytes came before its end */
	return !ring_rx_avail(&s->rrx);
}

/* A read that must not block has been made. True: by one who seems to wait by that. rx_lock held. */
static bool asks_again(struct stream *s, long r)
{
	s->asked++;
	if (r != -EAGAIN) {
		s->dry = 0;
		return false;
	}
	return !s->polls && !atomic_load_explicit(&s->waits_seen, memory_order_relaxed) && ++s->dry >= DRY_POLLS;
}

/* n bytes of the ring have been copied out: the sender may have their place. rx_lock held. */
static inline void took_from_ring(struct stream *s, size_t n)
{
	ring_rx_consume(&s->rrx, n);
	s->rx.rd += n;
	stream_consumed(s);
}

/* As short_send(): one small buffer, bytes in the ring and nothing before them. Their count, or 0: nothing is done. rx_lock held. */
static inline size_t short_recv(struct stream *s, const struct iovec *iov, int n, int flags)
{
	size_t len = iov->iov_len, avail;

	if (n != 1 || flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL) || s->rx.state != CUT_RX_K || s->rx.rd < s->rx.cut_at ||
	    s->rx.back_pending || s->rrx.dev_hi > s->rrx.rd || atomic_load(&s->peer_gone))
		return 0;
	avail = ring_rx_avail(&s->rrx);
	if (avail < len) {
		if (ring_rx_refresh(&s->rrx))
			return 0;
		avail = ring_rx_avail(&s->rrx);
		if (s->rrx.dev_hi > s->rrx.rd)
			return 0;
		if (avail < len) {
			len = avail;
			if (stream_owes(s, len))
				return 0;
		}
	}
	if (!len || len > SHORT_MAX || usermem_ok(&s->rx_mem, iov->iov_base, len, true) < len)
		return 0;
	ring_rx_copy(&s->rrx, 0, iov->iov_base, len);
	count(&s->fast_bytes[PATH_KINDS], len);
	took_from_ring(s, len);
	if (atomic_load_explicit(&s->nonblock, memory_order_relaxed))
		asks_again(s, (long)len);
	return len;
}

/* Up to n bytes that lie in device memory. Count, or -EAGAIN: the direction goes home. rx_lock held. */
static ssize_t device_piece(struct stream *s, struct cursor *c, size_t n, uint64_t peeked, int flags)
{
	struct iovec v[16];
	ssize_t r = (ssize_t)n;

	if (!(flags & MSG_TRUNC))
		r = device_recv(s, s->rrx.rd + peeked, n, v, cursor_iov(c, v, 16, n), flags & MSG_PEEK);
	if (r < 0)
		return r;
	cursor_step(c, (size_t)r);
	if (!(flags & MSG_PEEK))
		took_from_ring(s, (size_t)r);
	return r;
}

/* Reads the ring into the cursor. Count, -EAGAIN, 0 = EOF, -errno. rx_lock held. */
static long ring_recv(struct stream *s, struct cursor *c, int flags)
{
	size_t done = 0, chunk = PUBLISH_CHUNK * copy_threads_for(c->left);
	uint64_t peeked = 0;

	while (c->left) {
		uint64_t avail = ring_rx_avail(&s->rrx) - peeked;
		struct cursor before;
		size_t n, at = 0;
		bool bad = false, dev;
		ssize_t r;

		if (avail < c->left) {
			if (ring_rx_refresh(&s->rrx))
				return -EPROTO;
			avail = ring_rx_avail(&s->rrx) - peeked;
		}
		n = c->left < avail ? c->left : avail;
		if (!n && stream_look_at_wire(s))
			continue;
		if (!n && direct_offered(&s->rrx)) {
			struct iovec v[16];
			int nv = flags & (MSG_PEEK | MSG_TRUNC) ? 0 : cursor_iov(c, v, 16, SIZE_MAX);
			ssize_t got = direct_take(s, v, nv);

			if (got < 0)
				return got;
			cursor_step(c, (size_t)got);
			done += (size_t)got;
			if (got)
				continue;
			if (!done)
				stream_show(s, 1);
		}
		if (!n) {
			if (s->direct_reading.to)	/* while there is time: the next take is waited for */
				direct_read_over(s, false);
			break;
		}
		n = ring_rx_alike(&s->rrx, s->rrx.rd + peeked, n, &dev);
		if (dev) {
			r = device_piece(s, c, n, peeked, flags);
			if (r == -EIO && !done)
				return r;
			if (r < 0)
				break;
			done += (size_t)r;
			if (flags & MSG_PEEK)
				peeked += (uint64_t)r;
			continue;
		}
		if (n > chunk)
			n = chunk;
		before = *c;
		while (at < n) {
			size_t piece = c->iov->iov_len - c->skip;

			if (piece > n - at)
				piece = n - at;
			if (piece && !(flags & MSG_TRUNC)) {
				char *p = (char *)c->iov->iov_base + c->skip;
				size_t good = usermem_ok(&s->rx_mem, p, piece, true);

				bad = good < piece;
				piece = good;
				if (piece >= COPY_SHARE_MIN)
					ring_rx_copy_by(&s->rrx, peeked + at, p, piece, copy_shared);
				else if (piece)
					ring_rx_copy(&s->rrx, peeked + at, p, piece);
			}
			at += piece;
			cursor_step(c, piece);
			if (bad) {	/* the kernel drops its whole piece, too */
				n = 0;
				break;
			}
			while (at < n && c->n && c->skip == c->iov->iov_len) {
				c->iov++;
				c->n--;
				c->skip = 0;
			}
		}
		done += n;
		if (bad) {
			*c = before;
			if (done)
				break;
			return -EFAULT;
		}
		if (flags & MSG_PEEK) {
			peeked += n;
			continue;
		}
		took_from_ring(s, n);
	}
	if (!done)
		return c->left && ring_ended(s) ? at_the_end(s) : -EAGAIN;
	if (!(flags & MSG_PEEK)) {
		count(&s->fast_bytes[PATH_KINDS], done);
		if (s->rx.back_pending)
			stream_rx_event(s, CUT_EV_CREDIT, 0, s->rx.rd);
	}
	return (long)done;
}

/* The kernel shows FIN. While armed, cut or frozen that alone says nothing: the sender may have died with bytes in the
 * ring. But a sender that closes says so before its FIN, and one that never cut left no header. rx_lock held. */
static bool true_fin(struct stream *s)
{
	int e = atomic_load(&s->err);

	/* or it was an RST, whose error was taken before: see kernel_error() */
	if (s->rx.state == CUT_RX_T || (s->rx.state == CUT_RX_A && atomic_load(&s->rrx.sh->epoch) < s->rx.epoch))
		return !e || e == EPIPE || stream_at_end(s);
	return stream_at_end(s);
}

/* While frozen TCP has only a part of what the ring still shows. `r`: what a peek found in TCP. */
static long peek_on(struct stream *s, const struct cursor *c, long r, int flags)
{
	struct cursor at = *c;
	size_t done = r > 0 ? (size_t)r : 0, got;

	cursor_step(&at, done);
	do {
		uint64_t held = stream_held(s, s->rx.rd + done);
		struct iovec v[16];
		int n = cursor_iov(&at, v, 16, SIZE_MAX);

		if (flags & MSG_TRUNC)
			got = held < at.left ? held : at.left;
		else
			got = stream_peek_held(s, s->rx.rd + done, v, n);
		cursor_step(&at, got);
		done += got;
	} while (got && at.left);
	return done ? (long)done : r;
}

/* One attempt without sleeping, across segments. Count, 0 = EOF, -EAGAIN, -errno. rx_lock held. */
static long try_recv(struct stream *s, int fd, struct cursor *c, int flags)
{
	uint64_t tcp = cut_rx_tcp_left(&s->rx);
	size_t done = 0;
	long r;

	if (atomic_load(&s->peer_gone) == 2)
		return at_the_end(s);
	/* With bytes known to be in the ring this is not the end, and to look would fetch the line that the sender writes
	 * with each message. */
	if (!(s->rx.state == CUT_RX_K && ring_rx_avail(&s->rrx)) && stream_at_end(s)) {	/* an error, if there is one, is for those who send: SOCK_DONE in tcp_recvmsg() */
		s->rx_eof = 1;
		return 0;
	}
	if (tcp) {
		r = kernel_recv(fd, c, tcp, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);
		if (flags & MSG_PEEK && s->rx.state == CUT_RX_F && (r > 0 || r == -EAGAIN))
			r = peek_on(s, c, r, flags);
		/* A reset: what the ring still has comes before the error. */
		if (r < 0 && r != -EAGAIN && s->rx.state != CUT_RX_T && !atomic_load(&s->peer_gone) && atomic_load(&s->link)) {
			atomic_store(&s->err, stream_reset_errno(s, (int)-r));
			lock_take(&s->tx_lock);
			stream_peer_dead(s);
			lock_give(&s->tx_lock);
			return atomic_load(&s->peer_gone) ? try_recv(s, fd, c, flags) : r;
		}
		if (r == 0 && atomic_load(&s->shut_rd))
			return 0;	/* no FIN: what comes later can be read */
		if (r == 0 && !atomic_load(&s->peer_gone) && atomic_load(&s->link)) {	/* its process may have ended, and left input unread */
			bool later;

			lock_take(&s->tx_lock);
			later = stream_fin_seen(s);
			lock_give(&s->tx_lock);
			if (later)
				return -EAGAIN;
			if (atomic_load(&s->peer_gone))
				return try_recv(s, fd, c, flags);
		}
		if (r == 0 && true_fin(s)) {
			s->rx_eof = 1;
			return 0;
		}
		/* BACK, or the end of the control socket, settles it in a moment. */
		if (r == 0 && s->rx.state != CUT_RX_T && !atomic_load(&s->peer_gone) && atomic_load(&s->link)) {
			s->fin_held = 1;
			return -EAGAIN;
		}
		if (r == 0 && s->rx.state == CUT_RX_K)
			r = -ECONNRESET;	/* bytes below S are missing: never a clean EOF */
		if (r <= 0 && r != -EAGAIN && cut_rx_ring_after_tcp(&s->rx)) {
			if (r < 0)
				atomic_store(&s->err, (int)-r);	/* after what the ring still has */
			/* The sender died in the middle of a rewind; what it held is still there. */
			if (s->rx.rd < s->rx.cut_at)
				return -ECONNRESET;
			s->rrx.rd = s->rx.rd;
			s->rrx.wr = s->rx.rd;
			return ring_recv(s, c, flags);
		}
		if (r <= 0)
			return r ? r : at_the_end(s);
		if (!(flags & MSG_PEEK)) {
			s->rx.rd += (uint64_t)r;
			atomic_fetch_add_explicit(&s->row->rx_bytes[PATH_TCP], (uint64_t)r, memory_order_relaxed);
			if (s->rx.back_pending)
				stream_rx_event(s, CUT_EV_CREDIT, 0, s->rx.rd);
		}
		done = (size_t)r;
		cursor_step(c, done);
		if (s->rx.state != CUT_RX_K || (uint64_t)r < tcp)
			return (long)done;
		/* Exactly at S. What came into the ring before was nobody's event while TCP's bytes were in front of
		 * it; an edge-triggered waiter that does not read on (FIONREAD told it less) needs one now. */
		stream_wake(s);
		if (!c->left)
			return (long)done;
		/* go on without a short read */
	}
	r = ring_recv(s, c, flags);
	if (r == -EPROTO || r == -EIO) {
		if (r == -EPROTO) {
			stat_add(STAT_bad_peer, 1);
			stat_row_reason(s->row, REASON_PROTOCOL);
		}
		stream_reset(s);
		r = -ECONNRESET;
	}
	if (done)
		untold(s, r);
	if (done)
		return r > 0 ? (long)done + r : (long)done;
	return r;
}

/* ... and it may go on with it, if it has its CPU for itself: a peer that needs that CPU does better with TCP's long queues. */
static void found_poller(struct stream *s, int fd, uint32_t gen)
{
	bool spare = shim_tunables()->force_cut_every || spin_cpu_spare();	/* the test hook cuts what it can */

	lock_take(&s->rx_lock);
	s->dry = 0;
	s->calm = spare ? s->calm + 1 : 0;
	if (s->calm >> s->stopped_asking >= CALM_POLLS && fdtab_stream(fd) == s &&
	    atomic_load_explicit(&s->gen, memory_order_relaxed) == gen) {
		s->calm = 0;
		s->polls = 1;
		bg_look(s);
	}
	lock_give(&s->rx_lock);
}

/* TCP's urgent mark is next: no read goes across it (tcp_recvmsg_locked() in net/ipv4/tcp.c). */
static bool at_mark(int fd)
{
	int mark = 0;

	return sys(SYS_ioctl, fd, SIOCATMARK, &mark) >= 0 && mark;
}

ssize_t stream_recv(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	struct call call = { .mark = signals_mark() };
	bool peek = flags & MSG_PEEK;
	struct cursor c, before;
	uint64_t waited = 0;
	size_t done = 0;
	long r;

	r = cursor_init(&c, iov, n);
	if (r)
		return r;
	if (!c.left)
		return 0;
	for (;;) {
		bool nonblock, hiccup, owed, ended, poller, shut, tcp;
		uint32_t epoch;

		lock_take(&s->rx_lock);
		if (!stream_still_named(s, gen, &fd)) {
			lock_give(&s->rx_lock);
			return done ? (ssize_t)done : -EBADF;
		}
		if (!done && (r = (long)short_recv(s, iov, n, flags))) {
			lock_give(&s->rx_lock);
			return r;
		}
		nonblock = atomic_load_explicit(&s->nonblock, memory_order_relaxed) || flags & MSG_DONTWAIT;
		before = c;
		tcp = cut_rx_tcp_left(&s->rx) != 0;
		r = try_recv(s, fd, &c, flags);
		shut = (r == 0 || r == -EAGAIN) && atomic_load(&s->shut_rd);
		if (shut)	/* the end, behind what was there before it */
			r = stream_owes_any(s) ? -EAGAIN : 0;
		if (peek && r > 0)
			stream_show(s, (uint64_t)r);
		owed = false;
		if (r > 0)
			owed = c.left && !call.ridden && stream_owes(s, peek ? (uint64_t)r : 0);
		else if (r == -EAGAIN && (nonblock || done || shut))
			owed = c.left && !call.ridden && (done ? stream_owes(s, 0) : stream_owes_any(s));
		ended = !peek && s->end_shown;	/* reads make room for the rest, peeks don't */
		poller = atomic_load_explicit(&s->nonblock, memory_order_relaxed) && asks_again(s, r);
		hiccup = r == -EAGAIN && nonblock && !done && !call.ridden &&
			 (stream_rx_coming(s) || s->fin_held || (stream_final_seen(s) && !stream_at_end(s)));
		epoch = s->rx.epoch;
		if (done)
			untold(s, r);
		lock_give(&s->rx_lock);
		if (poller)
			found_poller(s, fd, gen);
		if (hiccup) {
			stream_ride_out(s, fd, EPOLLIN, epoch, &call);
			continue;
		}
		if (r > 0 && tcp && c.left && !peek && (owed || flags & MSG_WAITALL) && at_mark(fd))
			return (ssize_t)done + r;
		if (owed && stream_await_shown(s, gen, ended ? STREAM_END_PATIENCE_NS : STREAM_PATIENCE_NS, &waited)) {
			if (peek)
				c = before;
			else if (r > 0)
				done += (size_t)r;
			continue;
		}
		if (r > 0) {
			done += (size_t)r;
			if (!(flags & MSG_WAITALL) || !c.left || nonblock || peek)
				return (ssize_t)done;
			continue;
		}
		if (r != -EAGAIN || nonblock || (done && !(flags & MSG_WAITALL)))
			return done ? (ssize_t)done : r;
		if (!call.deadline)
			call.deadline = deadline_of(s->rcv_timeo_us);
		call.done = done;
		r = stream_wait(s, fd, EPOLLIN, &call);
		if (r)
			return done ? (ssize_t)done : r;
	}
}

/* ---- sendfile: the file is read straight into the ring ---- */

/* One piece into the ring. Count, 0 = end of file, -EAGAIN = no room, -errno. tx_lock held. */
static long file_piece(struct stream *s, int in_fd, int64_t *off, size_t want, bool nonblock)
{
	uint64_t pos, room;
	size_t n;
	long r;

	if (s->direct_stuck || s->direct_done)
		return -EAGAIN;
	if (ring_tx_refresh(&s->rtx))
		return -EPROTO;
	if (ring_tx_room(&s->rtx) < want) {
		if (nonblock)
			stream_enlarge(s, want);
		stream_waits_for_room(s);
	}
	room = ring_tx_room(&s->rtx);
	if (!room)
		return -EAGAIN;
	pos = s->rtx.wr & (s->rtx.size - 1);
	n = want < room ? want : room;
	if (n > s->rtx.size - pos)
		n = s->rtx.size - pos;
	if (off)
		r = sys(SYS_pread64, in_fd, s->rtx.buf + pos, n, *off);
	else
		r = sys(SYS_read, in_fd, s->rtx.buf + pos, n);
	if (r <= 0)
		return r;
	if (off)
		*off += r;
	ring_tx_publish(&s->rtx, (uint64_t)r);
	s->tx.wr += (uint64_t)r;
	count(&s->fast_bytes[0], (size_t)r);
	if (stream_notify_peer(s))
		stream_filled(s);
	return r;
}

/* read() into the ring must not block, and must mean what the kernel's sendfile means. */
static bool plain_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
}

ssize_t stream_sendfile(struct stream *s, int fd, int in_fd, int64_t *off, size_t count_)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	struct call call = { .mark = signals_mark() };
	size_t done = 0;
	long r;

	if (!plain_file(in_fd)) {
		r = stream_go_home(s, REASON_SPLICE);
		return r ? r : sys(SYS_sendfile, fd, in_fd, off, count_);
	}
	if (count_ > 0x7ffff000)
		count_ = 0x7ffff000;
	for (;;) {
		bool nonblock;

		lock_take(&s->tx_lock);
		if (!stream_still_named(s, gen, &fd)) {
			lock_give(&s->tx_lock);
			return done ? (ssize_t)done : -EBADF;
		}
		nonblock = atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		r = tx_trouble(s);
		if (!r && cut_tx_on_ring(&s->tx)) {
			do {
				r = file_piece(s, in_fd, off, count_ - done, nonblock);
				if (r > 0)
					done += (size_t)r;
			} while (done < count_ && (r > 0 || (r == -EAGAIN && nonblock && !ring_still_full(s))));
			if (r == 0 || done == count_) {
				lock_give(&s->tx_lock);
				/* The end of the file, or an offset that no file there can have: a call that moves nothing says which. */
				return done ? (ssize_t)done : sys(SYS_sendfile, fd, in_fd, off, 0);
			}
		} else if (!r && cut_tx_on_tcp(&s->tx)) {
			/* The kernel's sendfile would block under the lock: it has no flag for that. The
			 * socket's own flag decides, so a blocking one gets a bounded piece when it is writable. */
			struct pollfd p = { .fd = fd, .events = POLLOUT };
			struct timespec zero = { 0, 0 };
			size_t n = count_ - done;

			r = -EAGAIN;
			if (nonblock || sys(SYS_ppoll, &p, 1, &zero, NULL, 0) > 0) {
				if (!nonblock && n > 4096)
					n = 4096;
				r = sys(SYS_sendfile, fd, in_fd, off, n);
				if (r > 0) {
					s->tx.wr += (uint64_t)r;
					atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], (uint64_t)r, memory_order_relaxed);
					done += (size_t)r;
				}
				if (r >= 0 && (!r || done == count_)) {
					lock_give(&s->tx_lock);
					return (ssize_t)done;
				}
				if (r > 0 && !nonblock) {
					lock_give(&s->tx_lock);
					continue;
				}
				if (r > 0)
					r = -EAGAIN;
			}
		} else if (!r) {
			r = -EAGAIN;
		}
		lock_give(&s->tx_lock);
		if (r != -EAGAIN || nonblock) {
			if (r == -EPIPE && !done)
				sigpipe(0);
			return done ? (ssize_t)done : r;
		}
		if (!call.deadline)
			call.deadline = deadline_of(s->snd_timeo_us);
		call.done = done;
		r = stream_wait(s, fd, EPOLLOUT, &call);
		if (r)
			return done ? (ssize_t)done : r;
	}
}
