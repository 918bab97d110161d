/*
 * stream_send.c - the one send core that every libc variant ends in, and sendfile. See stream_io.h.
 *
 * Locks: snd.lock.
 */
#include <signal.h>
#include <sys/stat.h>

#include "base/copy.h"
#include "base/loop.h"
#include "base/signals.h"
#include "base/sys.h"
#include "conn/stream_int.h"
#include "conn/stream_io.h"
#include "conn/stream_wait.h"
#include "gpu/cuda.h"
#include "base/loop.h"
#include "link/patience.h"

/* a receiver that copies out of our memory, and perhaps was stopped there, is waited for so long
 * ... */
#define STUCK_NS     1000000000
/* (so long also if others were waited for in vain: patience.h) ... */
#define STUCK_LEAST_NS 50000000
/* ... and, as an older library does not ring when it has the block, looked at so often */
#define STUCK_LOOK_NS 1000000
#define THEIRS_NS    1000000000	/* another thread waits for its block no longer */

/* What is left begins within a chunk. All that the kernel takes, as by one call: who waits for
 * an edge takes a short count for no room. */
static __attribute__((noinline)) long kernel_send_rest(struct stream *s, int fd, struct cursor c,
						       int flags)
{
	struct iovec v[KERNEL_IOVS];
	struct msghdr h = { .msg_iov = v };
	long done = 0, r, whole;

	do {
		h.msg_iovlen = (size_t)cursor_iov(&c, v, KERNEL_IOVS, SIZE_MAX);
		whole = (long)iov_sum(v, h.msg_iovlen);
		r = sys(SYS_sendmsg, fd, &h, done ? flags | MSG_NOSIGNAL : flags);
		if (r < 0) {
			if (done)
				stream_untold(s, r);
			return done ? done : r;
		}
		done += r;
		cursor_step(&c, (size_t)r);
	} while (r == whole && c.left);
	return done;
}

static long kernel_sendv(struct stream *s, int fd, const struct cursor *c, int flags)
{
	struct msghdr h = { .msg_iov = (struct iovec *)c->iov, .msg_iovlen = (size_t)c->n };

	return c->skip ? kernel_send_rest(s, fd, *c, flags) : sys(SYS_sendmsg, fd, &h, flags);
}

static long kernel_send(struct stream *s, int fd, const struct cursor *c, int flags)
{
	fdtab_kernel_call();
	if (c->n == 1)
		return sys(SYS_sendto, fd, (char *)c->iov->iov_base + c->skip, c->left, flags, NULL,
			   0);
	return kernel_sendv(s, fd, c, flags);
}

void stream_untold(struct stream *s, long r)
{
	uint8_t plain = MODE_NEW;

	if (r != -ECONNRESET && r != -ETIMEDOUT && r != -EHOSTUNREACH && r != -ENETUNREACH)
		return;
	atomic_store(&s->err, (int)-r);
	atomic_compare_exchange_strong(&s->mode, &plain, MODE_ATTACHED);
}

static void sigpipe(int flags)
{
	long pid = sys(SYS_getpid), tid = sys(SYS_gettid);

	if (!(flags & MSG_NOSIGNAL))
		sys(SYS_tgkill, pid, tid, SIGPIPE);
}

/* No error holds, whatever the path. snd.lock held. */
static inline bool tx_sound(struct stream *s)
{
	return !atomic_load(&s->shut.wr) && !s->snd.lost && !atomic_load(&s->err) &&
	       !s->lost.reset_ours && (!atomic_load(&s->peer_gone) || cut_tx_on_tcp(&s->snd.cut));
}

/* 0, or -errno, which is told once. snd.lock held. */
static int tx_trouble(struct stream *s)
{
	int e;

	if (tx_sound(s))
		return 0;
	e = atomic_exchange(&s->err, 0);
	return e ? -e : -EPIPE;
}

/* The peer's process has ended, without a reset yet: the kernel takes what comes now, and hears by
 * that of the reset. */
static bool goes_nowhere(const struct stream *s)
{
	return atomic_load(&s->peer_gone) == 1 && !atomic_load(&s->shut.wr) && !s->snd.lost &&
	       !s->lost.reset_ours;
}

/* Blocks with a snapshot go by themselves: from device to device, or as an offer in a common
 * segment. */
static bool takes_snapshots(const struct stream *s)
{
	return stream_path(s)->device || !s->wired;
}

/* The block at the cursor, if the ring is empty; one with a snapshot waits a little for that.
 * Who does not want to wait has other work: to stand by while the receiver copies costs such a
 * thread more than its own copy does, which goes on beside the receiver's. */
static ssize_t offer(struct stream *s, struct cursor *c, bool nonblock, bool *plain)
{
	size_t n = c->iov->iov_len - c->skip;
	struct cuda_ref ref;
	ssize_t r;

	if (n < DIRECT_MIN)
		return 0;
	if (!*plain && atomic_load_explicit(&cuda_sends, memory_order_relaxed) &&
	    takes_snapshots(s)) {
		if (cuda_find((const char *)c->iov->iov_base + c->skip, n, &ref)) {
			const void *at = (const char *)c->iov->iov_base + c->skip;

			r = stream_path(s)->device ? (ssize_t)device_send(s, at, &ref) :
						     direct_send_device(s, at, &ref, !nonblock);
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
	if (nonblock || s->wired)
		return 0;
	if (s->snd.ring.rd != s->snd.ring.wr && ring_tx_refresh(&s->snd.ring))
		return -EPROTO;
	if (s->snd.ring.rd != s->snd.ring.wr)
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

/* n bytes have been copied behind wr: the receiver may have them. snd.lock held. */
static inline void put_in_ring(struct stream *s, size_t n)
{
	ring_tx_ahead(&s->snd.ring, n);
	ring_tx_publish(&s->snd.ring, n);
	s->snd.cut.wr += n;
	if (stream_notify_peer(s))
		stream_filled(s);
}

/* What most calls are, in a straight line: one small chunk, and room for it in the ring. False,
 * and nothing is done, where anything is out of the ordinary: ring_send() knows all of it.
 * snd.lock held, nothing of the call is sent yet. */
static inline bool short_send(struct stream *s, const struct iovec *iov, int n)
{
	size_t len = iov->iov_len;

	if (n != 1 || len > SHORT_MAX || !cut_tx_on_ring(&s->snd.cut) || !tx_sound(s) ||
	    s->direct.stuck || s->direct.done || !s->snd.held)
		return false;
	if (ring_tx_room(&s->snd.ring) < len ||
	    usermem_ok(&s->snd.mem, iov->iov_base, len, false) < len)
		return false;
	ring_tx_copy(&s->snd.ring, 0, iov->iov_base, len);
	count(&s->moves.fast_bytes[0], len);
	put_in_ring(s, len);
	return true;
}

/* Copies what fits into the ring. Count, -EPROTO, or -EFAULT if not even the first byte can be
 * read. snd.lock held. */
static ssize_t ring_send(struct stream *s, struct cursor *c, bool nonblock, bool *stuck)
{
	size_t done = 0, chunk = PUBLISH_CHUNK * copy_threads_for(c->left);
	bool plain = false;

	if (s->direct.stuck || s->direct.done)	/* another thread's block comes first */
		return 0;
	if (s->device.out)
		device_settle(s);
	if (ring_tx_room(&s->snd.ring) < c->left) {
		if (ring_tx_refresh(&s->snd.ring))
			return -EPROTO;
		if (ring_tx_room(&s->snd.ring) < c->left) {
			if (nonblock)
				stream_enlarge(s, c->left);
			stream_waits_for_room(s);
		}
	}
	/* each one is a record, and perhaps wakes the reader */
	if (s->wired && (s->snd.ring.size - s->snd.ring.unused) / 4 > chunk)
		chunk = (s->snd.ring.size - s->snd.ring.unused) / 4;
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
		uint64_t room = ring_tx_room(&s->snd.ring);
		size_t n = c->left < room ? c->left : room, at = 0;
		struct cursor before;
		bool bad = false;

		if (!n) {
			if (ring_tx_refresh(&s->snd.ring))
				return -EPROTO;
			if (!ring_tx_room(&s->snd.ring) && !stream_more_room(s) &&
			    !stream_look_at_wire(s))
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
			size_t chunk = c->iov->iov_len - c->skip;

			if (chunk > n - at)
				chunk = n - at;
			if (chunk) {
				char *p = (char *)c->iov->iov_base + c->skip;
				size_t good = usermem_ok(&s->snd.mem, p, chunk, false);

				bad = good < chunk;
				chunk = good;
				if (chunk >= COPY_SHARE_MIN)
					ring_tx_copy_by(&s->snd.ring, at, p, chunk, copy_shared);
				else if (chunk)
					ring_tx_copy(&s->snd.ring, at, p, chunk);
			}
			at += chunk;
			cursor_step(c, chunk);
			if (bad) {	/* the kernel drops its whole chunk, too */
				n = 0;
				break;
			}
			while (at < n && c->n && c->skip == c->iov->iov_len) {	/* empty chunks */
				c->iov++;
				c->n--;
				c->skip = 0;
			}
		}
		if (bad) {
			*c = before;	/* what was good of the chunk was not taken */
			if (done)
				break;
			return -EFAULT;
		}
		put_in_ring(s, n);
		done += n;
	}
	count(&s->moves.fast_bytes[0], done);
	return (ssize_t)done;
}

/* A non-blocking caller will be told of room by an event; and if nobody ever reads, TCP takes
 * over. */
static bool ring_still_full(struct stream *s)
{
	segment_want_room(&s->snd.ring);
	ring_tx_refresh(&s->snd.ring);
	if (ring_tx_room(&s->snd.ring) || (stream_more_room(s) && ring_tx_room(&s->snd.ring)))
		return false;
	if (!atomic_exchange(&s->snd.ring_full, 1))
		bg_look(s);
	return true;
}

/* The block is the receiver's until it has finished, but not for ever. Bytes that it took.
 * snd.lock held, and given for a while; the program's handlers wait, for one that jumps out
 * would leave the block to nobody. */
static size_t await_take(struct stream *s, uint32_t gen)
{
	struct bell *b;
	uint64_t until, most = patience_ns(PATIENCE_CALL, atomic_load(&s->link), STUCK_NS);
	uint64_t start = now_ns(), now = start, n;

	most = most > STUCK_LEAST_NS ? most : STUCK_LEAST_NS;
	critical_enter();
	lock_give(&s->snd.lock);
	b = bell_thread();
	lock_take(&s->snd.lock);
	critical_leave();
	/* Closed: then it was settled. */
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) != gen)
		return 0;
	if (b)
		stream_bell_add(s, b, false);
	for (; s->direct.stuck; now = now_ns()) {
		if (now - start > most && direct_late(s))
			patience_spent(PATIENCE_CALL, atomic_load(&s->link), now - start);
		if (b)
			bell_arm(b);
		segment_want_room(&s->snd.ring);	/* who has the block rings */
		if (direct_settle(s, now - start > most || atomic_load(&s->peer_gone))) {
			if (b)
				bell_disarm(b);
			break;
		}
		until = now + STUCK_LOOK_NS;
		if (s->direct.until > now && s->direct.until < until)
			until = s->direct.until;
		critical_enter();
		lock_give(&s->snd.lock);
		stream_doze(b, until);
		lock_take(&s->snd.lock);
		critical_leave();
		if (atomic_load_explicit(&s->gen, memory_order_relaxed) != gen)
			return 0;
	}
	n = s->direct.done;
	s->direct.done = 0;
	return (size_t)n;
}

ssize_t stream_send(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct call call = { .mark = signals_mark() };
	struct cursor c;
	/* the struct may be another stream's after a sleep */
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	size_t done = 0;
	bool nonblock, ours, hiccup, stuck, theirs, late = false;
	uint32_t epoch, seen = 0;
	long r;

	r = cursor_init(&c, iov, n);
	if (r)
		return r;
	if (!c.left)
		return sys(SYS_sendto, fd, NULL, 0, flags, NULL, 0);
	for (;;) {
		lock_take(&s->snd.lock);
		stuck = theirs = false;
		if (!c.left || !stream_still_named(s, gen, &fd)) {
			lock_give(&s->snd.lock);
			return done ? (ssize_t)done : -EBADF;
		}
		atomic_store_explicit(&s->one_way, 0, memory_order_relaxed);
		if (!done && short_send(s, iov, n)) {
			lock_give(&s->snd.lock);
			return (ssize_t)iov->iov_len;
		}
		nonblock = late || flags & MSG_DONTWAIT ||
			   atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		r = tx_trouble(s);
		ours = r < 0;		/* the kernel raises SIGPIPE itself for its own */
		if (r == -EPIPE && goes_nowhere(s)) {
			ours = false;
			r = kernel_send(s, fd, &c, flags | MSG_DONTWAIT);
			if (r > 0) {
				done += (size_t)r;
				cursor_step(&c, (size_t)r);
				r = -EAGAIN;
			}
		} else if (!r && cut_tx_on_ring(&s->snd.cut) && ring_ready(s)) {
			do
				r = ring_send(s, &c, nonblock, &stuck);
			while (r >= 0 && c.left && nonblock && !stuck && !ring_still_full(s) &&
			       (done += (size_t)r, true));
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
			theirs = !stuck && s->direct.stuck;
			if (theirs)
				seen = event_look(&stream_steps);
			if (stuck) {
				size_t took = await_take(s, gen);

				done += took;
				cursor_step(&c, took);
			}
		} else if (!r && cut_tx_on_tcp(&s->snd.cut)) {
			r = kernel_send(s, fd, &c, flags | MSG_DONTWAIT);
			/* Its FIN waits until we have read all, so the kernel does not know that
			 * this comes after it. */
			if (r == -ECONNRESET && stream_final_seen(s)) {
				r = -EPIPE;
				ours = true;
			}
			if (r > 0) {
				s->snd.cut.wr += (uint64_t)r;
				atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], (uint64_t)r,
							  memory_order_relaxed);
				done += (size_t)r;
				cursor_step(&c, (size_t)r);
				r = -EAGAIN;
			}
		} else if (!r) {
			r = -EAGAIN;	/* W, R: a rewind is under way */
		}
		hiccup = r == -EAGAIN && !stuck && nonblock && c.left && !done &&
			 !call.switched_path && stream_tx_coming(s);
		epoch = s->snd.cut.epoch;
		if (done)
			stream_untold(s, r);
		lock_give(&s->snd.lock);
		if (hiccup) {
			stream_ride_out(s, fd, EPOLLOUT, epoch, &call);
			continue;
		}
		if (stuck)
			continue;
		if (!c.left)
			return (ssize_t)done;
		/* another thread's block: the ring has room, so nothing else would wait for it */
		if (theirs && !nonblock) {
			event_wait(&stream_steps, seen, now_ns() + THEIRS_NS);
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
			call.deadline = deadline_of(s->opt.snd_timeo_us);
		call.done = done;
		r = stream_wait(s, fd, EPOLLOUT, &call);
		late = r == -EAGAIN && !done;	/* its time is up; what was promised it gets all
						 * the same */
		if (r && !late)
			return done ? (ssize_t)done : r;
		if (late)
			call.deadline = 0;
	}
}

/* ---- sendfile: the file is read straight into the ring ---- */

/* One chunk into the ring. Count, 0 = end of file, -EAGAIN = no room, -errno. snd.lock held. */
static long file_chunk(struct stream *s, int in_fd, int64_t *off, size_t want, bool nonblock)
{
	uint64_t pos, room;
	size_t n;
	long r;

	if (s->direct.stuck || s->direct.done)
		return -EAGAIN;
	if (ring_tx_refresh(&s->snd.ring))
		return -EPROTO;
	if (ring_tx_room(&s->snd.ring) < want) {
		if (nonblock)
			stream_enlarge(s, want);
		stream_waits_for_room(s);
	}
	room = ring_tx_room(&s->snd.ring);
	if (!room)
		return -EAGAIN;
	pos = s->snd.ring.wr & (s->snd.ring.size - 1);
	n = want < room ? want : room;
	if (n > s->snd.ring.size - pos)
		n = s->snd.ring.size - pos;
	if (off)
		r = sys(SYS_pread64, in_fd, s->snd.ring.buf + pos, n, *off);
	else
		r = sys(SYS_read, in_fd, s->snd.ring.buf + pos, n);
	if (r <= 0)
		return r;
	if (off)
		*off += r;
	ring_tx_publish(&s->snd.ring, (uint64_t)r);
	s->snd.cut.wr += (uint64_t)r;
	count(&s->moves.fast_bytes[0], (size_t)r);
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

/* 0, -ETIMEDOUT, or of one that must not block -EAGAIN. */
static int falls_back(struct stream *s)
{
	uint64_t start = now_us();
	int r;

	if (!atomic_load_explicit(&s->nonblock, memory_order_relaxed))
		return stream_fall_back(s, REASON_SPLICE);
	r = stream_fall_back_until(s, REASON_SPLICE,
				   start + stream_patience(s, PATIENCE_CALL, STREAM_PATIENCE_NS) /
						   1000);
	if (!r)
		return 0;
	stream_in_vain(s, PATIENCE_CALL, (now_us() - start) * 1000);
	return -EAGAIN;
}

ssize_t stream_sendfile(struct stream *s, int fd, int in_fd, int64_t *off, size_t count_)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	struct call call = { .mark = signals_mark() };
	size_t done = 0;
	long r;

	if (!plain_file(in_fd)) {
		r = sys(SYS_sendfile, fd, in_fd, off, 0);	/* may it be read so at all? */
		if (r < 0)
			return r;
		r = falls_back(s);
		return r ? r : sys(SYS_sendfile, fd, in_fd, off, count_);
	}
	if (count_ > 0x7ffff000)
		count_ = 0x7ffff000;
	for (;;) {
		bool nonblock;

		lock_take(&s->snd.lock);
		if (!stream_still_named(s, gen, &fd)) {
			lock_give(&s->snd.lock);
			return done ? (ssize_t)done : -EBADF;
		}
		nonblock = atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		r = tx_trouble(s);
		if (!r && cut_tx_on_ring(&s->snd.cut) && ring_ready(s)) {
			do {
				r = file_chunk(s, in_fd, off, count_ - done, nonblock);
				if (r > 0)
					done += (size_t)r;
			} while (done < count_ &&
				 (r > 0 || (r == -EAGAIN && nonblock && !ring_still_full(s))));
			if (r == 0 || done == count_) {
				lock_give(&s->snd.lock);
				/* The end of the file, or an offset that no file there can have:
				 * a call that moves nothing says which. */
				return done ? (ssize_t)done : sys(SYS_sendfile, fd, in_fd, off, 0);
			}
		} else if (!r && cut_tx_on_tcp(&s->snd.cut)) {
			/* The kernel's sendfile would block under the lock: it has no flag for
			 * that. The socket's own flag decides, so a blocking one gets a bounded
			 * chunk when it is writable. */
			struct pollfd p = { .fd = fd, .events = POLLOUT };
			struct timespec zero = { 0, 0 };
			size_t n = count_ - done;

			r = -EAGAIN;
			if (nonblock || sys(SYS_ppoll, &p, 1, &zero, NULL, 0) > 0) {
				if (!nonblock && n > 4096)
					n = 4096;
				r = sys(SYS_sendfile, fd, in_fd, off, n);
				if (r > 0) {
					s->snd.cut.wr += (uint64_t)r;
					atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP],
								  (uint64_t)r,
								  memory_order_relaxed);
					done += (size_t)r;
				}
				if (r >= 0 && (!r || done == count_)) {
					lock_give(&s->snd.lock);
					return (ssize_t)done;
				}
				if (r > 0 && !nonblock) {
					lock_give(&s->snd.lock);
					continue;
				}
				if (r > 0)
					r = -EAGAIN;
			}
		} else if (!r) {
			r = -EAGAIN;
		}
		lock_give(&s->snd.lock);
		if (r != -EAGAIN || nonblock) {
			if (r == -EPIPE && !done)
				sigpipe(0);
			return done ? (ssize_t)done : r;
		}
		if (!call.deadline)
			call.deadline = deadline_of(s->opt.snd_timeo_us);
		call.done = done;
		r = stream_wait(s, fd, EPOLLOUT, &call);
		if (r)
			return done ? (ssize_t)done : r;
	}
}
