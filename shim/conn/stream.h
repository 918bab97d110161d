/*
 * stream.h - one TCP connection of the application.
 *
 * A stream is made by socket() or accept() of a TCP socket. It lives until the last fd that refers
 * to it is closed and both directions are on TCP. The struct is type-stable. Any part of a free one
 * may become zero at any moment (stream_slab.c).
 *
 * Modes
 *
 *   NEW          young: calls go straight to the kernel, counted in plain.tx and plain.rx while
 *                they are inside
 *   ATTACHED     may be cut: every call takes the direction's lock, is non-blocking in the kernel,
 *                and sleeps in poll() on the socket and a bell
 *   TCP_FOR_NOW  stays on TCP for now (policy, refused, a pause between two cuts): as NEW, but does
 *                not earn
 *   TCP_ONLY     stays on TCP for good (also when the last search found nobody): one look-up and a
 *                tail call
 *
 * Locks: those of the two halves (snd.lock, rcv.lock). Both together guard which fds belong to the
 * stream. Order: rcv.lock before snd.lock before link, bell and epoll locks. No thread sleeps while
 * it holds one.
 */
#ifndef RDMASHIM_STREAM_H
#define RDMASHIM_STREAM_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/bell.h"
#include "base/fdtab.h"
#include "base/lock.h"
#include "base/loop.h"
#include "base/spin.h"
#include "conn/device.h"
#include "conn/direct.h"
#include "conn/earn.h"
#include "conn/fallback.h"
#include "conn/pull.h"
#include "conn/recv_half.h"
#include "conn/search.h"
#include "conn/send_half.h"
#include "link/patience.h"
#include "link/wire.h"
#include "netns/learn.h"
#include "policy/stat.h"
#include "rdma/shm/segment.h"

struct epitem;

/* The calls that move bytes, by their rows in calls.def: the places of their counters. */
#define STREAM_MOVES(X) X(send) X(sendto) X(sendmsg) X(sendmmsg) X(write) X(writev) X(pwritev2) \
	X(sendfile) \
	X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(read) X(readv) X(preadv2)
#define STREAM_MOVE(name) MOVE_##name,
enum stream_move { STREAM_MOVES(STREAM_MOVE) STREAM_MOVE_KINDS };
#undef STREAM_MOVE
_Static_assert(STREAM_MOVE_KINDS <= STAT_MOVES,
	       "more kinds than places: raise STAT_MOVES, and STAT_VERSION");

enum stream_mode { MODE_FREE, MODE_NEW, MODE_ATTACHED, MODE_TCP_FOR_NOW, MODE_TCP_ONLY };

/* shutdown(). Written with both locks held, read without. */
struct shut {
	_Atomic uint8_t rd, wr;
	_Atomic uint8_t rd_owed;	/* ... and the kernel does not know: see shut_reads() */
	uint8_t before;			/* it said ENOTCONN, which a next connection will feel */
};

/* Threads in plain kernel calls or plain waits; atomic, no lock. */
struct plain { _Atomic uint16_t tx, rx; };
#define PLAIN_TX 0	/* where they count in `life` */
#define PLAIN_RX 16
#define LIFE_GEN 32
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "`life` has tx in its lowest bits");
static inline bool gen_lives(uint32_t gen) { return gen && !(gen & 1); }

/* Where its calls are counted, by direction and by what carries that now, and its bytes on the fast
 * path: tx, behind it rx. Across reuse, as a late caller may still count; NULL of a free one. */
struct moves {
	uint64_t *_Atomic tx, *_Atomic rx;
	_Atomic uint64_t *fast_bytes;
};

struct sock_opt {
	uint64_t rcv_timeo_us, snd_timeo_us;	/* SO_*TIMEO; 0: none, see timeo_us() */
	uint8_t inq;		/* TCP_INQ, or the listener's: 0 not asked yet, 1 off, 2 on */
};

/* Its registrations in epoll instances, poll/ready.c. They survive reuse: empty then. */
struct stream_reg {
	struct lock lock;		/* of items and n */
	struct epitem *items;
	_Atomic uint32_t n;
};

struct stream_addr {
	uint8_t known;
	struct sockaddr_storage local, peer;
};

/* Who else may have the socket. */
struct others {
	struct holders *_Atomic holders;	/* who holds it; NULL: nobody ever could */
	_Atomic uint8_t passed;		/* to another process: only the kernel knows when it ends */
};

struct stream {
	_Alignas(64) _Atomic uint8_t mode;	/* enum stream_mode */
	uint8_t role;			/* enum stream_role */
	_Atomic uint8_t nonblock;	/* O_NONBLOCK of the open file description */
	_Atomic uint8_t connected;	/* connect() succeeded or accepted */
	_Atomic uint8_t dead;		/* all fds closed by the application */
	_Atomic uint8_t waits_seen;	/* the program waits through us (poll, select, epoll) */
	_Atomic uint8_t want;		/* what the background thread should do: WANT_* */
	_Atomic uint8_t peer_gone;	/* the peer's process is dead, home socket says so */
	struct shut shut;
	_Atomic uint8_t one_way;	/* waits for input, no send between: a flow, no dialogue */
	uint8_t last_turn;		/* 1 sent last, 2 received last: counts rounds */
	uint8_t marked;			/* its socket says that the library is here */
	_Atomic uint8_t upgrade;	/* 1: earned; the background thread knows it */
	_Atomic uint8_t fork_cut;	/* in a forked child: the parent has it on a fast path */
	_Atomic uint8_t learns;		/* its ISNs: stream_learn.h */
	_Atomic int fd;			/* one of the application's, or our own after close; -1 */
	_Atomic int nfds;		/* fds of the application in this process */
	/* survive reuse, as a late caller may be about to touch them: */
	union {
		_Atomic uint64_t life;		/* both: who counts sees whose life it is */
		struct {
			struct plain plain;
			_Atomic uint32_t gen;	/* of each life another; odd, or 0: it is free */
		};
	};
	struct stat_row *_Atomic row;	/* nobody's, or NULL, when it is free: stream_row() */
	/* to here */
	struct earn earn;		/* its first half ends the line of plain calls ... */
	struct moves moves;		/* ... which read this, too; survives reuse */
	_Atomic uint64_t bells;		/* local bells that care about this stream */
	struct sock_opt opt;

	struct send_half snd;
	struct recv_half rcv;

	_Alignas(64) struct link *_Atomic link;	/* set and cleared under both locks */
	uint32_t slot;			/* on the link */
	uint8_t path;			/* enum path_kind of the link */
	uint8_t wired;			/* it has a wire: the ends have no common segment */
	struct stream_reg reg;		/* survives reuse */
	struct stream_addr addr;
	struct search search;
	struct learn learn;
	struct direct direct;
	struct pull pull;
	struct device_side device;
	struct fallback fallback;
	struct lost lost;
	_Atomic int err;		/* as sk_err: for the next send, read at the end,
					 * SO_ERROR */
	struct others others;
	/* from here on: survives reuse of the struct */
	uint32_t index;
};
/* A plain call writes to one line, and reads the next one for the place where it is counted. */
_Static_assert(offsetof(struct stream, earn.with) <= 64, "plain calls: one line");
_Static_assert(offsetof(struct stream, moves.fast_bytes) <= 128,
	       "plain calls: where they are counted");

/* The background thread's, stream_work(). They are there as long as the process, whatever becomes
 * of the stream's own memory. */
struct work *stream_work_of(const struct stream *s);
struct stream *stream_of_work(const struct work *w);
/* Asks the background thread to look at the stream; async-signal-safe, no lock. */
static inline void bg_look(struct stream *s) { loop_post(stream_work_of(s)); }

/* For whoever may come too late. */
static inline struct stat_row *stream_row(const struct stream *s)
{
	struct stat_row *row = s->row;

	return row ? row : stat_row_none();
}

/* Its link's, also of a moment ago; of one that never had a link TCP. What a path can: path.h. */
static inline const struct path *stream_path(const struct stream *s) { return paths[s->path]; }

/* By which it would go, or does. Any thread; TCP's where that is not known yet. */
static inline const struct path *stream_sought(const struct stream *s)
{
	return paths[s->search.path];
}

/* wire_sleep_on() of its link. */
static inline int stream_sleep_on(struct stream *s, const struct bell *b, uint64_t id)
{
	return stream_sought(s)->wire ? wire_sleep_on(&s->link, b, id) : -1;
}

/* Those who wait for streams in epoll instances: poll/ready.c. Once, before the first stream. */
struct stream_pollers {
	/* Something changed on the stream (data, room, EOF, path): queue it in each epoll
	 * instance that has it registered, wake those that sleep. Never blocks on anything but
	 * leaf locks. */
	void (*attention)(struct stream *s);
	/* Before ARMED is answered: every epoll instance that has the stream gets its bell into the
	 * kernel's set. 0, or -errno: then the stream cannot be cut. Idempotent. */
	int (*arm)(struct stream *s);
	/* fd is about to be closed while others of the stream remain: if it is registered
	 * somewhere, the stream falls back for good. May sleep. */
	void (*part)(struct stream *s, int fd);
	/* fd of the stream is being closed; `last`: the open file description goes away here. */
	void (*forget)(struct stream *s, int fd, bool last);
	/* Is somebody told of its errors by the kernel alone? */
	bool (*blind)(struct stream *s);
};
extern const struct stream_pollers *stream_pollers;
void stream_serve(const struct stream_pollers *p);

/* ---- life ---- */
/* The process has an io_uring, by which its bytes may go unseen: new streams stay on TCP. */
extern _Atomic bool stream_past_us;
/* NULL if the table is full: then the socket is simply not known to the library. `peer`: of an
 * accepted socket, else NULL. */
struct stream *stream_new(int fd, enum stream_role role, bool nonblock,
			  const struct sockaddr *peer);
/* The kernel has made newfd a copy of fd, which was the stream's when it had this `gen`. False:
 * fd was closed meanwhile, and nobody knows newfd. */
bool stream_dup(struct stream *s, uint32_t gen, int fd, int newfd);
/* The whole of close(fd) for a stream: table entry, protocol, kernel. 0 or -errno as close(). */
int stream_close(struct stream *s, int fd);
/* The number is somebody else's, or about to be: as close, but without the kernel close. */
void stream_forget_fd(struct stream *s, int fd);
/* fd no longer names the stream's socket: somebody closed it behind our back and the kernel gave
 * the number to something else. As stream_forget_fd(), but fd must not be used for anything. */
void stream_fd_stale(struct stream *s, int fd);
void stream_vacate_fd(struct stream *s, int fd);	/* the same, and the number is
							 * FDTAB_CLOSING until fdtab_closed() */
/* Before each connect(): what the socket's last connection has left is forgotten. False: it cannot
 * be, the stream must stay on TCP. Takes both locks. */
bool stream_before_connect(struct stream *s, uint32_t gen, int fd);
/* After real connect(): 0, EINPROGRESS, ... `gen`: of before, for the number may have been
 * closed meanwhile. */
void stream_connect_result(struct stream *s, uint32_t gen, int err);

/* ---- data; all return a count or -errno; `fd` is the number the caller used ---- */
/* True if the caller should simply make the kernel call (NEW, TCP_FOR_NOW): then it must call
 * stream_plain_tx_leave() or _rx_leave() after it, unless its thread ends inside. False: use the
 * functions below. TCP_ONLY never gets here. n: bytes that the call will not return without, as
 * far as is known before it. */
bool stream_plain_tx(struct stream *s, size_t n);
bool stream_plain_rx(struct stream *s, size_t n);
/* n: bytes moved, <= 0 none. errno stays */
void stream_plain_tx_leave(struct stream *s, ssize_t n);
ssize_t stream_plain_rx_leave(struct stream *s, ssize_t n);	/* what the call is to return */
/* What a read by a call of the kernel's gave, as TCP would have given it: -1 and errno. */
ssize_t stream_kernel_read(struct stream *s, ssize_t n);
/* The same for a poll, which asks the kernel about many at once, and leaves them itself when its
 * thread is cancelled. */
bool stream_plain_wait(struct stream *s);
void stream_plain_wait_leave(struct stream *s);

ssize_t stream_send(struct stream *s, int fd, const struct iovec *iov, int n, int flags);
ssize_t stream_recv(struct stream *s, int fd, const struct iovec *iov, int n, int flags);
ssize_t stream_sendfile(struct stream *s, int fd, int in_fd, int64_t *off, size_t count);
int stream_shutdown(struct stream *s, uint32_t gen, int fd, int how);

/* ---- readiness, lock-free, may be stale (callers loop) ---- */
struct stream_view {
	uint32_t kern;		/* of EPOLLIN|EPOLLOUT: those that the kernel may answer for */
	uint32_t synth;		/* events that hold now on the fast path (EPOLLIN, EPOLLOUT,
				 * EPOLLRDHUP, EPOLLHUP, EPOLLERR) */
	bool look;		/* the peer says that the kernel has a reset to show */
	uint32_t coming;	/* EPOLLIN, EPOLLOUT held on the path, and will again when a
				 * rewind that is under way ends */
	bool cut;		/* any direction off TCP: EPOLLIN/OUT not in .kern must be masked */
	bool behind;		/* the ring has bytes, but TCP's come first */
};
/* Only inside link_read_enter()/link_read_leave(). */
struct stream_view stream_view(struct stream *s);
/* The caller is about to report "not writable": makes the peer tell when room appears, so
 * look again after it. Call before sleeping with interest in EPOLLOUT. */
void stream_want_room(struct stream *s);
/* The caller reports "not writable" to a program that polls, which will then not try to send. So
 * the background thread checks whether it has to go on by TCP, whose buffers are larger. */
void stream_told_full(struct stream *s);
/* Everything that the peer ever sent has been read. Lock-free. */
bool stream_at_end(struct stream *s);
/* Registers interest of a bell; idempotent, cheap when already there. `epoll`: also mark dirty
 * bits. */
void stream_bell_add(struct stream *s, struct bell *b, bool epoll);
void stream_bell_del(struct stream *s, struct bell *b);
/* Wakes every local waiter of both kinds, who then look again. Full fence first. */
void stream_wake(struct stream *s);
/* The kernel showed RDHUP, HUP or ERR on the home socket of a cut stream. */
void stream_home_event(struct stream *s, uint32_t events);
/* A reset that the kernel tells, and we have not heard of: heard of now, before the caller tells
 * it, or lets anybody use a direction that has just been cut over. False: there is none. Both
 * locks held. */
bool stream_look_for_reset(struct stream *s);

/* ---- falling back ---- */
/* Rewinds both directions, waits until they are on TCP, makes it TCP-only with the reason. 0 or
 * -ETIMEDOUT. */
int stream_fall_back(struct stream *s, enum reason r);
int stream_fall_back_until(struct stream *s, enum reason r, uint64_t end_us);
/* The same for one of many streams, all of which were asked at that time. They share one allowance,
 * which is smaller if the peer is of another user or has been waited for in vain (link/patience.h).
 */
int stream_fall_back_since(struct stream *s, enum reason r, uint64_t since_us);
/* The time, in us, until which a call waits for the stream to be on TCP, where all were asked at
 * since_us (patience_ns()); and a report that it passed in vain. */
uint64_t stream_fallback_by(struct stream *s, enum patience for_, uint64_t since_us);
void stream_not_on_tcp(struct stream *s, enum patience for_, uint64_t since_us);
/* the same without waiting, and not for good */
void stream_ask_fallback(struct stream *s);
void streams_count_tcp_only(void);	/* at the end of the process: what the kernel counted on
					 * those */
/* no wait; false: it has a link, nothing is done */
bool stream_make_tcp_only(struct stream *s, enum reason r);

/* The stream is on TCP from now on. False: it could not get there in time, and a kernel call that
 * moves bytes would put them out of order. */
static inline bool fall_back_now(struct stream *s, enum reason r)
{
	int e = errno;
	bool ok = stream_fall_back(s, r) == 0;

	errno = e;
	return ok;
}

/* As fall_back_now(), for a stream that may not even be connected yet: then nothing needs to
 * wait. */
static inline bool tcp_only_now(struct stream *s, enum reason r)
{
	return (!atomic_load_explicit(&s->connected, memory_order_relaxed) &&
		stream_make_tcp_only(s, r)) ||
	       fall_back_now(s, r);
}

/* ---- calls about the socket ---- `gen` is of when the stream was looked up. If its number was
 * closed since, the struct may be another stream's: nothing is done to that. */
/* Called after the real setsockopt succeeded. */
void stream_setsockopt(struct stream *s, uint32_t gen, int level, int name, const void *val,
		       socklen_t len);
void stream_set_nonblock(struct stream *s, uint32_t gen, bool on);
void stream_waits_seen(struct stream *s, int fd);	/* the program waits for it through us
							 * (poll, select, epoll). Takes rcv.lock,
							 * once */
/* SO_ERROR of a cut stream: an errno, taken, or 0: ask the kernel. */
int stream_take_error(struct stream *s, uint32_t gen);
void stream_keep_error(struct stream *s, uint32_t gen, int err);	/* for the next call */
bool stream_wants_inq(struct stream *s, int fd);	/* TCP_INQ is set */
/* FIONREAD, SIOCINQ, SIOCOUTQ, SIOCOUTQNSD of a cut stream: bytes >= 0, or -ENOENT: ask the
 * kernel. */
int stream_ioctl_count(struct stream *s, uint32_t gen, int fd, unsigned long req);

/* It has left TCP, or may at any moment. */
static inline bool stream_on_link(struct stream *s)
{
	return atomic_load_explicit(&s->mode, memory_order_relaxed) == MODE_ATTACHED;
}

static inline bool stream_tcp_only(struct stream *s)
{
	return atomic_load_explicit(&s->mode, memory_order_relaxed) == MODE_TCP_ONLY;
}

#endif
