/*
 * stream_int.h - what the files of the stream share among themselves and with the background
 * thread; not for wrappers.
 */
#ifndef RDMASHIM_STREAM_INT_H
#define RDMASHIM_STREAM_INT_H

#include "base/event.h"
#include "base/shim.h"
#include "conn/stream.h"
#include "link/link.h"
#include "link/path.h"
#include "link/patience.h"

/* All made streams, for walks: index 0 .. streams_top-1; NULL beyond. Free ones have MODE_FREE. */
struct stream *stream_at(uint32_t index);
uint32_t streams_top(void);
struct stream *stream_slab_take(void);	/* one that is free, as it was left, or zero; NULL: the
					 * table is full */
void stream_slab_begin(struct stream *s);	/* its next life: who still counts in the last one
						 * counts no more */
void stream_slab_after_fork(void);
/* Is it the end that is asked for a slot? The one that accepted; of two that connected to each
 * other one of them. */
static inline bool search_awaits(const struct stream *s)
{
	return s->role == ROLE_SERVER || s->search.waits;
}

/* A guess that the caller checks: the stream accepted last from a peer's port (host order), or
 * NULL. *ret_others: there may be more. */
struct stream *stream_accepted_from(uint16_t port, bool *ret_others);
void stream_enter_port(struct stream *s);	/* it is to be found so, though it was not
						 * accepted */
void stream_free(struct stream *s);		/* back to the slab; nobody may look any more */
bool stream_try_free(struct stream *s, uint32_t gen);	/* unless a thread is still inside a
							 * plain call: then it will */
bool stream_unread_input(struct stream *s);
void stream_abort(struct stream *s);		/* of a closed stream: RST, our fd of it closed */

/* Takes a number from the stream, and names another if it was the stream's own. False: somebody
 * else has done so. Both locks held, as by stream_dup(): so a stream always has a number as long
 * as a number has the stream. */
bool stream_drop_number(struct stream *s, int fd, bool closing, bool *ret_last);

/* What is more than one request and its answer. To mark each connection would cost those 3 % of
 * their time. */
#define MARK_TURNS 3
#define MARK_BYTES 4096

/* ---- stream_room.c: how much may be under way ---- */
/*
 * TCP's own count of bytes sent or consumed. TCP_INFO is read around the queue length until it
 * stood still, else the two belong to different moments. -EAGAIN: it would not stand still.
 * Only ESTABLISHED: a FIN counts as a byte.
 */
int stream_tcp_state(int fd);	/* TCP_ESTABLISHED and so on, or -errno */
int64_t stream_kernel_offset(int fd, bool sent, bool client);
/* Has TCP more than the stream's bytes below `at`: somebody else's, or his end? snd.lock held */
bool stream_overtaken(const struct stream *s, uint64_t at);
int64_t stream_kernel_received(int fd);		/* read or not, perhaps with the FIN */
/* No more of the ring is used than TCP could take back without a reader, who perhaps waits for
 * just that (fall_back). While the direction is on the path, nobody but the kernel's reader
 * changes what TCP has room for. snd.lock held. */
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

/* ---- stream_idle.c: the memory of rings ---- */
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

/* ---- stream_wake.c: who is told; stream.h has those who wait here ---- */
/* Tell the peer that something is to be seen in the slot. Either lock held. True: by a wire. */
bool stream_notify_peer(struct stream *s);
void stream_consumed(struct stream *s);		/* rd has moved: tell the sender if he waits.
						 * rcv.lock held */
bool stream_look_at_wire(struct stream *s);	/* take in what a wire has. True: look again. Any
						 * lock */
/* Rung after each step of a stream's machine, when one has lost its peer or its link, or left
 * it, and by stream_wake(). */
extern struct event stream_steps;
static inline void stream_set_gone(struct stream *s, uint8_t how)
{
	atomic_store(&s->peer_gone, how);
	event_ring(&stream_steps);
}
/* Until `fallback` says so, or `end_us`: -ETIMEDOUT. `ask` asks for it, and answers what keeps
 * it away; it was called before, and is after each look. No lock is held. stream.c */
int stream_await_fallback(struct stream *s, uint64_t end_us, bool (*fallback)(struct stream *s),
		      void (*ask)(struct stream *s));

/* ---- stream_cut.c: feed an event to a half, carry the actions out. Lock of that half held.
 * ---- */
void stream_tx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off);
void stream_tx_put_off(struct stream *s);	/* those that a block which is read has put off */
void stream_rx_event(struct stream *s, enum cut_ev ev, uint32_t epoch, uint64_t off);
/* Both locks in their order. */
void stream_lock(struct stream *s);
bool stream_try_lock(struct stream *s);
/* For those who must not wait for a copy to or from the program's memory. False: there is one. */
bool stream_lock_by(struct stream *s, uint64_t end_ns);
bool stream_lock_soon(struct stream *s);
bool stream_lock_or_later(struct stream *s, uint8_t what);	/* ... and LATER_* is for bg */
/* Until stream_open() no such copy begins, and none is under way: whatever lock of it is taken,
 * nobody is waited for. False: there is one. Background thread, no lock held */
bool stream_shut(struct stream *s);
void stream_open(struct stream *s);
void stream_count_tcp_only(struct stream *s);	/* stream_count.c; the locks are held */
void stream_mark(struct stream *s);	/* socket_mark(), once; takes the locks */
/* to TCP, when that can be, until the policy changes; takes the locks, does not wait */
void stream_leave_path(struct stream *s, enum reason r);
void stream_stays(struct stream *s, enum reason r);	/* on TCP for good; takes the locks */
void stream_unlock(struct stream *s);
/* Is it the stream still that this call was made for? Its number may have been closed meanwhile:
 * a call of the kernel's would keep the file, so ours goes on by another number of it, if there
 * is one. One of the locks held. */
static inline bool stream_still_named(struct stream *s, uint32_t gen, int *fd)
{
	if (__builtin_expect(atomic_load_explicit(&s->gen, memory_order_relaxed) != gen, 0))
		return false;
	if (__builtin_expect(fdtab_stream(*fd) == s, 1))
		return true;
	*fd = atomic_load(&s->fd);
	return fdtab_stream(*fd) == s;
}
/* A poll that shows RDHUP says that all is here, up to that offset. Once: a peer that lies about
 * its end delays one call. */
void stream_show_end(struct stream *s, uint64_t at);
/* The stream rides `slot` of `l` from now on; machines start anew at TCP's own offsets. Both
 * locks held. */
void stream_attach(struct stream *s, struct link *l, uint32_t slot);
void stream_detach(struct stream *s);
bool stream_both_on_tcp(const struct stream *s);	/* both halves on TCP, nothing under way */
bool stream_poller_gone(struct stream *s);	/* it has stopped asking. True: there is no more
						 * to watch. Takes rcv.lock */
bool stream_roomy(const struct stream *s);	/* the ring is writable to those who poll.
						 * Lock-free, inside link_read_enter() or with
						 * snd.lock */
/* ---- stream_arm.c ---- */
/* Tries to start or finish an arming; tx: EARNED, rx: NO_WAITERS. Takes the locks. True: the
 * kernel's counts did not stand still, try again. */
bool stream_try_cut(struct stream *s);
/* Pushes resend bytes into the kernel until it is full. snd.lock held. True: more to do later. */
bool stream_resend(struct stream *s);
void stream_protocol_error(struct stream *s);	/* the peer has lied: a reset. Either lock held */
/* The stream is lost: RST to the peer, ECONNRESET here. Either lock held. */
void stream_decline(struct stream *s);	/* ends an arming that is under way. Both locks held */
void stream_reset(struct stream *s);
/* Dead peer: looks at the home socket, settles what reads and writes give. Both locks held. */
void stream_peer_dead(struct stream *s);
void stream_reset_late(struct stream *s, uint32_t events);
/* The control socket is gone. True: settled. Takes the locks. */
bool stream_link_lost(struct stream *s, bool last_chance);
/* its link has. Background thread */
void stream_link_ended(struct stream *s, enum reason r);
void stream_path_dead(struct stream *s);	/* the link's queue pair is no more: both halves
						 * fall back. Takes the locks */
/* ---- stream_full.c: the watch over a full ring. snd.lock held ---- */
/* The direction is on the path, confirmed, and has no room. When to look again; 0: it falls
 * back. */
uint64_t full_look(struct stream *s, struct full_watch *w, uint64_t now);
/* there is room, or something else carries it */
void full_pause_over(struct stream *s, struct full_watch *w);
/* ---- stream_hold.c: TCP takes little until the cut. Those that end it do nothing, without a
 * lock, where it is not held ---- */
void hold_begin(struct stream *s);	/* a sender of much has earned. Takes both locks; errno
					 * may be lost */
void hold_again(struct stream *s);	/* it was found, or is armed again. snd.lock held */
void hold_end(struct stream *s);	/* snd.lock held, or nobody else has it */
void hold_over(struct stream *s);	/* takes snd.lock */
uint64_t hold_watch(struct stream *s, uint64_t now);	/* ends it if its time is up: else when
							 * that is. Takes snd.lock */
/* earn.c. Anywhere, also in a signal handler; errno may be lost. */
/* by a call on TCP that sent (1) or received (2) */
void earn_moved(struct stream *s, uint64_t moved, uint8_t turn);
/* a call that begins may move so many */
void earn_will_move(struct stream *s, uint64_t n, uint8_t turn);
/* What other processes of the user know of places is read, once; from then on they are told. */
void earn_share_begin(void);
void earn_tell(void);		/* ... of what has been learned since. No lock of a stream is
				 * held */
void earn_after_fork(void);			/* in the child, which has one thread */
bool earn_early(struct stream *s);		/* it is to be upgraded at once, by what is known
						 * of its place */
void earn_asked(struct stream *s);		/* the other end has earned, and asks for it */
bool earn_again(struct stream *s);		/* a search was in vain: another when it has
						 * moved much more. False: it was the last */
void earn_over(struct stream *s);		/* the program has closed it, or it leaves the
						 * path: did it live on? */
/* Its counts of bytes and rounds are 0 again, as of a new connection: it must earn once more.
 * Both locks held, or no other thread has it. */
void earn_anew(struct stream *s);
void stream_earned(struct stream *s);	/* asks the background thread for an upgrade, once */
/* It could not be made, -errno: those that have earned stay on TCP. */
void streams_without_thread(int r);
void stream_fork_lock(void);	/* the slab, across fork */
void stream_fork_unlock(void);
void stream_after_fork(void);
/* counters.c: the counter file, with the first stream, of `fd`; again in a forked child. */
void shim_stat_first(int fd);
void shim_stat_reopen(bool now);
/* ---- stream_final.c: where a direction ends, and how. Lock of that half held ---- */
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
/* The end, or a count of bytes, was told, and the kernel does not show it yet: bytes that come
 * before it are under way, and the kernel's own answers would be of a part of them. 0: no; else
 * microseconds after which to look again. Takes rcv.lock. */
uint64_t stream_told_under_way(struct stream *s);
int stream_reset_errno(struct stream *s, int e);	/* what TCP would call the reset */
/* Up to which offset the ring has bytes that come when a rewind ends, or a cut that only the sender
 * has made; 0: neither is under way. Lock of that half held. */
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
/* All that may be on its way when reads find nothing. A poll says so, and so whoever finds nothing
 * now, by a read, FIONREAD or TCP_INQ, waits for it: they all ask this and nothing else. Lock-free
 * for those who poll. */
bool stream_rx_promised(struct stream *s);
/* As stream_rx_resent(), but not for ever, for those who want the stream on TCP: from then on its
 * calls are the kernel's, who must have what they were promised. */
bool stream_arriving(struct stream *s);
bool stream_tx_coming(struct stream *s);
bool stream_fin_seen(struct stream *s);
void stream_publish_reset(struct stream *s);
void stream_publish_final(struct stream *s);
void stream_publish_state(struct stream *s);	/* paths and states to the counter row */
void stream_count_here(struct stream *s);	/* it has another row, or another path. Both
						 * locks held, or nobody else has it */


/* ---- stream_pause.c: what is rewound again and again stays on TCP for a while ---- */
void stream_fell_back(struct stream *s);	/* this end's direction; s->snd.left_us: when it
						 * was cut. snd.lock held */
bool stream_pauses(struct stream *s);		/* it is not cut yet. snd.lock held */
static inline bool stream_falls_back_often(const struct stream *s)
{
	return atomic_load(&s->snd.back_soon) > 1;
}

/* Nobody wants it off its link. */
static inline bool stream_keeps_link(const struct stream *s)
{
	return !atomic_load(&s->dead) && !atomic_load(&s->earn.stopped) &&
	       !atomic_load(&s->fallback.going) && !atomic_load(&s->peer_gone) &&
	       !s->fallback.unbind_sent && !s->fallback.unbind_got;
}

/* ---- stream_direct.c: large blocks in one copy ---- */
#define DIRECT_MIN  (128 * 1024)	/* smaller blocks are faster through the ring */
#define DIRECT_ROOM (64 * 1024)		/* a receiver with less declines one with a snapshot */
/* Offers the block to the receiver. Bytes taken, 0 = use the ring, -EPROTO, or -EBUSY: the
 * receiver's copy lasts, see direct_settle(). snd.lock held, ring empty. */
ssize_t direct_send(struct stream *s, const void *p, size_t n);
/* The same for a block of which a snapshot on a device is held, which this releases. */
struct gpu_ref;
/* waits: for room, too */
ssize_t direct_send_device(struct stream *s, const void *p, struct gpu_ref *ref, bool waits);
/* Takes an offer into `n` iovecs, or declines it. Bytes, 0 (what is in the iovecs then is
 * nothing), or -EIO: the bytes are lost. rcv.lock held, ring empty. */
ssize_t direct_read(struct stream *s, const struct iovec *iov, int n);
bool direct_offered(const struct ring_rx *r);
/* What is read out of the peer's snapshot: the peer is told if that has ended. False: it has
 * not. rcv.lock held. */
bool direct_read_over(struct stream *s, bool wait);
void direct_forget(struct stream *s);		/* ... and nothing more of it */
void direct_idle(struct stream *s);	/* a receive found nothing: direct_read_over(), if enough
					 * was read. rcv.lock held */
/* direct_idle() by the background thread, for a program that does not receive meanwhile. Returns
 * when to come again, in us; UINT64_MAX: nothing is read. Takes rcv.lock, if it is free */
uint64_t direct_watch(struct stream *s, uint64_t now);
/* While direct.stuck: true once the receiver has finished and the bytes are accounted for, or
 * has not begun in time. Now: it may not go on, what is not finished is withdrawn. snd.lock
 * held. */
bool direct_settle(struct stream *s, bool now);
/* Before it is withdrawn because the receiver has begun and does not finish: no more blocks for
 * one who does so again. */
bool direct_late(struct stream *s);	/* False: it has not begun */

/* ---- stream_device.c: large blocks from device memory to another host's ---- */
/* Sends as much of the block at p as may be, of which a snapshot is held, which this releases
 * when it may. Bytes; 0: none now. snd.lock held. */
size_t device_send(struct stream *s, const void *p, struct gpu_ref *ref);
/* On one host: the receiver has counted the bytes up to `to`, and still reads their snapshot,
 * which is released later. snd.lock held; device_room() has said before the offer that there is
 * a place to remember it. */
void device_read(struct stream *s, const struct gpu_ref *ref, uint64_t to);
bool device_room(struct stream *s);
bool device_still_held(struct stream *s, uint64_t now);	/* the peer may still read one: the
							 * stream should not leave the link yet.
							 * Background thread, takes snd.lock */
void device_settle(struct stream *s);		/* snapshots whose bytes are consumed are free
						 * again. snd.lock held */
void device_settle_all(void);			/* ... of all streams, where the lock is free */
void device_end(void);				/* at exit(): the same, and no more is offered */
void device_save_all(void);			/* no snapshot is needed any more: what is on the
						 * way is kept in host memory */
void device_after_fork(void);			/* in the child, which has none */
extern const struct gpu_user device_user;	/* these, for the GPU path */
void device_detach(struct stream *s);		/* both locks held */
/* In a rewind: bytes from offset `off`, *ret_n of them, valid until the next call. NULL: they
 * are lost. snd.lock held. */
const uint8_t *device_held(struct stream *s, uint64_t off, size_t *ret_n);
struct ctl_msg;
void device_grant(struct stream *s);		/* the peer asks for our ring. Background thread */
void device_granted(struct stream *s, const struct ctl_msg *m);	/* the peer's. Background thread */
/* n bytes from offset `off` of our ring in device memory into the iovecs. Count, or -EAGAIN:
 * they come by TCP. rcv.lock held. */
ssize_t device_recv(struct stream *s, uint64_t off, size_t n, const struct iovec *iov, int niov,
		    bool peek);

/* ---- stream_peeked.c: what the reader was shown and has not taken. rcv.lock held unless said
 * otherwise ---- */
/* How long a call that must not block waits for what a rewind moves, which takes some 100 us,
 * but longer in a crowd. A process that was waited for in vain once (it is stopped, or worse) is
 * waited for less from then on, and for the same rewind not again; all of one user have no more
 * than patience.h says together. */
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

/* ---- stream_plain.c ---- */
void stream_plain_start(void);
void stream_plain_after_fork(void);	/* this thread's calls are the parent's */

/* ---- search.c, search_result.c, discovery_ctl.c: background thread ---- */
static inline void search_anew(struct stream *s)	/* no search is under way, nor was one */
{
	s->search.state = SEARCH_NONE;
	s->search.due_us = s->search.end_us = 0;
}
void search_start(struct stream *s);	/* the stream has earned: look for the other end */
void search_stop(struct stream *s);
uint64_t search_work(struct stream *s, uint64_t now);	/* timer work; when to come again,
							 * UINT64_MAX = never */
void search_name_ready(uint32_t index);	/* somebody connects to the name of stream `index` */
void search_pending_ready(uint32_t i);	/* a caller has spoken */
void search_link_ready(uint32_t i);		/* records on link i */
void search_unbind(struct stream *s);	/* on TCP for good: gives the slot back. Locks not held */
void search_policy(struct stream *s);	/* the policy changed: decide again */
uint64_t search_pending_expire(uint64_t now);	/* silent callers; when to come again */
void search_after_fork(void);
/* The stream stays on TCP because of the other end's version; the same if nobody else comes:
 * whoever says so has proven nothing. */
void search_version(struct stream *s, uint32_t theirs);
void search_version_heard(struct stream *s, uint32_t theirs);
void search_callers_after_fork(void);
/* Records that wait for a stream; when to come again. */
uint64_t search_kept_work(uint64_t now);
void search_kept_after_fork(void);
struct link;
void net_link_settled(struct link *l, enum reason why);	/* a link to another host is up, or will
							 * not be */

/* ---- who else holds the socket: holders.c, fork_touch.c ---- */
bool fork_may_cut(struct stream *s);	/* is about to be cut; the lock held under which
						 * fork_shared() said no. False: it must not be
						 * after all */
bool fork_shared(struct stream *s);	/* another live process holds it */
void fork_drop(struct stream *s);	/* this process no longer does */
bool fork_ever(void);			/* this process has forked while it had streams */
int fork_child_touch(struct stream *s);	/* in a child: have the parent rewind, then plain TCP */
int fork_child_touch_until(struct stream *s, uint64_t end_us);

#endif
