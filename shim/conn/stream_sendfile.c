/*
 * stream_sendfile.c - sendfile(): the file is read straight into the ring, or goes by TCP. See
 * stream_io.h.
 *
 * Locks: snd.lock, never while the file is waited for.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/signals.h"
#include "base/sys.h"
#include "conn/stream_end.h"
#include "conn/stream_io.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_recv.h"
#include "conn/stream_send.h"
#include "conn/stream_wait.h"
#include "conn/stream_wake.h"
#include "link/patience.h"

#define FILE_PART 8192

/* A call of sendfile(). Under the lock only what is in memory is read, for a file may be one whose
 * bytes never come; the others are fetched without it. */
struct file {
	int fd;
	bool own_place;		/* the file's own, which is moved by what was sent */
	bool absent;		/* the next bytes are to be fetched */
	enum {
		IF_THERE,	/* RWF_NOWAIT says whether its bytes are in memory */
		UNKNOWN,	/* it knows no RWF_NOWAIT */
		FETCHED,	/* ... and is no file of memory: what comes next is fetched */
		OF_MEMORY,	/* ... and is one: nobody has to bring its bytes, but from swap */
	} way;
	int64_t at, told;	/* the next one's place; where the file's own is */
	size_t n, done;
	uint32_t from, held;	/* fetched: of part[] */
	_Alignas(512) char part[FILE_PART];	/* as a file that is read past the cache needs */
};

/* Its file system may have to ask somebody. */
static bool is_of_memory(int fd)
{
	struct statfs fs;

	return sys(SYS_fstatfs, fd, &fs) >= 0 &&
	       ((uint32_t)fs.f_type == TMPFS_MAGIC || (uint32_t)fs.f_type == RAMFS_MAGIC);
}

/* Without the lock. Count, 0 = end of file, -errno. */
static long file_fetch(struct file *f)
{
	size_t left = f->n - f->done;
	long r = sys(SYS_pread64, f->fd, f->part, left < FILE_PART ? left : FILE_PART, f->at);

	if (f->way == UNKNOWN)
		f->way = is_of_memory(f->fd) ? OF_MEMORY : FETCHED;
	f->absent = false;
	f->from = 0;
	f->held = r > 0 ? (uint32_t)r : 0;
	return r;
}

static void file_moved(struct file *f, size_t n)
{
	f->at += (int64_t)n;
	f->done += n;
}

/* Without the lock: another reader of the file's own place may have its lock. */
static void file_tell_place(struct file *f)
{
	if (f->own_place && f->told != f->at)
		sys(SYS_lseek, f->fd, f->at, SEEK_SET);
	f->told = f->at;
}

/* What is in memory. */
static long file_read(struct file *f, char *to, size_t n)
{
	struct iovec v = { to, n };
	long r;

	if (f->way == OF_MEMORY)
		return sys(SYS_pread64, f->fd, to, n, f->at);
	if (f->way != IF_THERE)
		return -EAGAIN;
	r = sys(SYS_preadv2, f->fd, &v, 1, f->at, 0, RWF_NOWAIT);
	if (r == -EOPNOTSUPP)
		f->way = UNKNOWN;
	return r;
}

/* Up to n bytes to `to`. Count, or -EAGAIN: they are absent, or there are none. */
static long file_get(struct file *f, char *to, size_t n)
{
	long r;

	if (f->held) {
		n = n < f->held ? n : f->held;
		memcpy(to, f->part + f->from, n);
		f->from += (uint32_t)n;
		f->held -= (uint32_t)n;
		return (long)n;
	}
	r = file_read(f, to, n);
	f->absent = r <= 0;
	return r > 0 ? r : -EAGAIN;
}

/* How much is published at once: the reader copies while the next is read from the file. With a
 * wire each one is a record, and perhaps wakes the reader. */
static size_t file_piece(const struct stream *s)
{
	size_t quarter = s->wired ? (s->snd.ring.size - s->snd.ring.unused) / 4 : 0;

	return quarter > PUBLISH_CHUNK ? quarter : PUBLISH_CHUNK;
}

/* One chunk into the ring. Count, -EAGAIN = no room or absent, -errno. snd.lock held. */
static long file_chunk(struct stream *s, struct file *f)
{
	size_t n, want = f->n - f->done, piece = file_piece(s);
	uint64_t pos, room;
	long r;

	if (stream_block_in_way(s))
		return -EAGAIN;
	want = want < piece ? want : piece;
	if (ring_tx_room(&s->snd.ring) < want && ring_tx_refresh(&s->snd.ring))
		return -EPROTO;
	room = ring_tx_room(&s->snd.ring);
	if (!room)
		return -EAGAIN;
	pos = s->snd.ring.wr & (s->snd.ring.size - 1);
	n = want < room ? want : room;
	if (n > s->snd.ring.size - pos)
		n = s->snd.ring.size - pos;
	r = file_get(f, (char *)s->snd.ring.buf + pos, n);
	if (r < 0)
		return r;
	file_moved(f, (size_t)r);
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

/* A larger ring is asked for if it needs one. 0 or -EPROTO. snd.lock held. */
static long room_for(struct stream *s, size_t left, bool nonblock)
{
	if (ring_tx_room(&s->snd.ring) >= left)
		return 0;
	if (ring_tx_refresh(&s->snd.ring))
		return -EPROTO;
	if (ring_tx_room(&s->snd.ring) < left && !stream_block_in_way(s))
		stream_short_of_room(s, left, nonblock);
	return 0;
}

/* What is left of it into the ring. As file_chunk(). snd.lock held. */
static long file_by_ring(struct stream *s, struct file *f, bool nonblock)
{
	long r = room_for(s, f->n - f->done, nonblock);

	if (!r) {
		do
			r = file_chunk(s, f);
		while (f->done < f->n && (r > 0 || (r == -EAGAIN && nonblock && !f->absent &&
						    !stream_block_in_way(s) &&
						    !stream_ring_still_full(s))));
	}
	if (r == -EPROTO) {
		stream_protocol_error(s);
		return -ECONNRESET;
	}
	return r;
}

/* The fetched part by TCP: the kernel's sendfile would wait for the file under the lock. As
 * file_chunk(). */
static long file_by_tcp(struct stream *s, int fd, struct file *f)
{
	long r;

	f->absent = !f->held;
	if (f->absent)
		return -EAGAIN;
	r = sys(SYS_sendto, fd, f->part + f->from, f->held, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	if (r == -ECONNRESET && stream_final_seen(s))	/* as send_by_tcp() */
		return -EPIPE;
	if (r <= 0)
		return r;
	f->from += (uint32_t)r;
	f->held -= (uint32_t)r;
	file_moved(f, (size_t)r);
	s->snd.cut.wr += (uint64_t)r;
	atomic_fetch_add_explicit(&s->row->tx_bytes[PATH_TCP], (uint64_t)r, memory_order_relaxed);
	return r;
}

/* Of a file that is no plain one. */
static ssize_t send_other_file(struct stream *s, int fd, int in_fd, int64_t *off, size_t n)
{
	long r = sys(SYS_sendfile, fd, in_fd, off, 0);	/* may it be read so at all? */

	if (!r)
		r = falls_back(s);
	return r ? r : sys(SYS_sendfile, fd, in_fd, off, n);
}

/* One attempt. As file_chunk(). snd.lock held. */
static long send_some_file(struct stream *s, int fd, struct file *f, bool nonblock)
{
	long r = stream_tx_trouble(s);

	if (r)
		return r;
	if (cut_tx_on_ring(&s->snd.cut) && ring_memory_ready(s))
		return file_by_ring(s, f, nonblock);
	if (cut_tx_on_tcp(&s->snd.cut)) {
		stream_learn_may_send(s);
		return file_by_tcp(s, fd, f);
	}
	return -EAGAIN;
}

static ssize_t send_file(struct stream *s, int fd, struct file *f)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	struct call call = { .mark = signals_mark() };

	for (;;) {
		bool nonblock, theirs;
		uint32_t seen;
		long r;

		lock_take(&s->snd.lock);
		if (!stream_still_named(s, gen, &fd)) {
			lock_give(&s->snd.lock);
			return f->done ? (ssize_t)f->done : -EBADF;
		}
		/* what a handler has sent meanwhile would lie in the middle */
		if (f->done && signals_since(call.mark)) {
			lock_give(&s->snd.lock);
			return (ssize_t)f->done;
		}
		nonblock = atomic_load_explicit(&s->nonblock, memory_order_relaxed);
		r = send_some_file(s, fd, f, nonblock);
		if (f->done)
			stream_untold(s, r);
		theirs = r == -EAGAIN && s->direct.stuck;
		seen = event_look(&stream_steps);
		lock_give(&s->snd.lock);
		file_tell_place(f);
		if (f->done == f->n)
			return (ssize_t)f->done;
		if (f->absent) {
			r = file_fetch(f);
			/* the end of the file, or a place that no file there can have */
			if (!r && !f->done)
				r = sys(SYS_sendfile, fd, f->fd, &(int64_t){ f->at }, 0);
			if (r <= 0)
				return f->done ? (ssize_t)f->done : r;
			continue;
		}
		if (r > 0)
			continue;
		if (r != -EAGAIN || nonblock) {
			if (r == -EPIPE && !f->done)
				stream_sigpipe(0);
			return f->done ? (ssize_t)f->done : r;
		}
		if (theirs) {
			event_wait(&stream_steps, seen, now_ns() + THEIRS_NS);
			continue;
		}
		if (!call.deadline)
			call.deadline = deadline_of(s->opt.snd_timeo_us);
		call.done = f->done;
		r = stream_wait(s, fd, EPOLLOUT, &call);
		if (r)
			return f->done ? (ssize_t)f->done : r;
	}
}

ssize_t stream_sendfile(struct stream *s, int fd, int in_fd, int64_t *off, size_t n)
{
	struct file f;
	ssize_t r;

	if (!plain_file(in_fd))
		return send_other_file(s, fd, in_fd, off, n);
	f.at = off ? *off : sys(SYS_lseek, in_fd, 0, SEEK_CUR);
	if (!off && f.at < 0)	/* it has no place */
		return send_other_file(s, fd, in_fd, off, n);
	if (!n || f.at < 0)	/* nothing moves: the kernel says why */
		return sys(SYS_sendfile, fd, in_fd, off, 0);
	f.fd = in_fd;
	f.own_place = !off;
	f.absent = false;
	f.way = IF_THERE;
	f.told = f.at;
	f.n = n < 0x7ffff000 ? n : 0x7ffff000;
	f.done = f.from = f.held = 0;
	r = send_file(s, fd, &f);
	if (off)
		*off = f.at;
	return r;
}
