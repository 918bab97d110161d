/*
 * cut.h - the cut/rewind machine: pure functions (state, event) -> (state, actions).
 *
 * One stream has two directions; each direction has a sender half (struct cut_tx, in the
 * process that writes) and a receiver half (struct cut_rx, in the process that reads).
 * Nothing here does I/O, allocates, sleeps or locks: the caller holds the lock of the
 * direction, feeds one event, and carries out the returned actions in their order before
 * it releases the lock. shim/cut/cut.def holds the transitions as a table; docs/cut.md
 * describes the protocol; tests/sim explores it; tests/sim/cut.pml is its Promela twin.
 *
 * Offsets are stream offsets in bytes, from 0. Between a cut and the end of a rewind the
 * kernel's own TCP byte count lags behind by `delta` (stream offset - TCP offset).
 *
 * Thread-safety: none of its own. Errors: an event that no row of the table admits is
 * either ignored (stale epoch) or a protocol violation, see cut_out.bad.
 */
#ifndef RDMASHIM_CUT_H
#define RDMASHIM_CUT_H

#include <stdbool.h>
#include <stdint.h>

/* Control messages of a direction, on the link's control socket. Values are wire values. */
enum cut_msg {
	CUT_MSG_ARM = 1,	/* sender -> receiver: make every wait see the fast path   */
	CUT_MSG_ARMED,		/* receiver -> sender: done                                 */
	CUT_MSG_CUT,		/* sender -> receiver: off = S, the byte at which TCP ends   */
	CUT_MSG_CUT_OK,		/* receiver -> sender: S recorded                           */
	CUT_MSG_REWIND,		/* sender -> receiver: please freeze                        */
	CUT_MSG_FROZEN,		/* receiver -> sender: off = C, all that was consumed        */
	CUT_MSG_BACK,		/* sender -> receiver: off = E, epoch over, bytes < E on TCP */
};

/* What the caller must do. Carried out in order. */
enum cut_act {
	CUT_ACT_SEND = 1,	/* send control message .msg with .epoch and .off           */
	CUT_ACT_OPEN_RING,	/* tx: write (epoch, S = .off) into the ring header; from now
				 * on bytes go into the ring. rx: read the ring from .off    */
	CUT_ACT_DROP_RING,	/* this epoch's ring is no longer used by this half          */
	CUT_ACT_RESEND,		/* tx: bytes [.off, wr) of the ring must go to TCP again; call
				 * cut_tx_step(CUT_EV_RESENT) with each number of bytes sent  */
	CUT_ACT_FINAL,		/* tx: publish FINAL(.off) in the ring header                 */
	CUT_ACT_FIN,		/* tx: let the kernel send FIN (shutdown or close)            */
	CUT_ACT_RESET,		/* the stream is lost: RST to the peer, ECONNRESET here. From
				 * the tx half while the peer is dead: only sends fail, what the
				 * peer left behind must stay readable                         */
	CUT_ACT_WAKE,		/* wake every waiter of this direction, of both kinds; they
				 * look again                                                */
};

struct cut_action {
	uint8_t kind;		/* enum cut_act */
	uint8_t msg;		/* enum cut_msg, for CUT_ACT_SEND */
	uint32_t epoch;
	uint64_t off;
};

#define CUT_ACT_MAX 8
struct cut_out {
	int n;			/* actions */
	bool ignored;		/* the event was stale or meaningless here; nothing changed */
	bool bad;		/* the peer broke the protocol: caller resets the stream    */
	bool stray;		/* with bad: not the peer, this machine left its table       */
	struct cut_action act[CUT_ACT_MAX];
};

enum cut_tx_state {
	CUT_TX_TCP,	/* on TCP                                         */
	CUT_TX_ARMING,	/* ARM sent; still writes TCP                     */
	CUT_TX_CUT_SENT,	/* CUT sent, not confirmed; writes the ring       */
	CUT_TX_RING,	/* on the path                                    */
	CUT_TX_REWINDING,	/* REWIND sent, waits for FROZEN; nobody writes   */
	CUT_TX_RESENDING,	/* resends what was not consumed; nobody writes   */
	CUT_TX_STATES
};

enum cut_rx_state {
	CUT_RX_TCP,	/* on TCP                                         */
	CUT_RX_ARMED,	/* ARMED sent                                     */
	CUT_RX_RING,	/* reads TCP below S, then the ring               */
	CUT_RX_FROZEN,	/* frozen at C; reads TCP, the resend is coming   */
	CUT_RX_STATES
};

/* Events. Those that carry (epoch, off) say so; else both are 0. */
enum cut_ev {
	/* of the sender half */
	CUT_EV_EARNED = 1,	/* the stream should be cut over (caller: control is up,
				 * kernel offsets agree with wr)                             */
	CUT_EV_CLOSE,		/* the application closed or shut down this direction         */
	CUT_EV_CREDIT,		/* off = consumed, as read from the ring (checked <= wr)      */
	CUT_EV_RESENT,		/* off = number of bytes that the kernel took                 */
	CUT_EV_ARMED,		/* message (epoch)                                          */
	CUT_EV_CUT_OK,		/* message (epoch)                                          */
	CUT_EV_FROZEN,		/* message (epoch, off = C)                                   */
	/* of the receiver half */
	CUT_EV_NO_WAITERS,	/* no thread is left in a wait that does not see the bell; not
				 * fed while exec is pending, the stream is shared or TCP-only  */
	CUT_EV_ARM,		/* message (epoch)                                          */
	CUT_EV_CUT,		/* message (epoch, off = S)                                   */
	CUT_EV_REWIND,		/* message (epoch)                                          */
	CUT_EV_BACK,		/* message (epoch, off = E)                                   */
	/* shm only: control has ended for good and was drained, and the peer process is dead or
	 * FIN or RST was seen on the home socket (also when that is seen later). Before
	 * CUT_EV_CTL_LOST. A dead peer's FIN may be stuck behind unread bytes: do not wait for
	 * it, CTL_LOST alone in FROZEN is a reset. epoch, off = (e, S) of the ring header: in
	 * ARMED, a lost CUT is found there. Until this event (or TCP) a kernel EOF in ARMED or
	 * FROZEN is not the stream's */
	CUT_EV_KERNEL_EOF,
	/* of both */
	CUT_EV_FALLBACK,		/* go back to TCP (policy, fork, exec, fd passing,
					 * overflow); sticky until the direction is on TCP */
	CUT_EV_PATH_DEAD,	/* rdma: the queue pair is gone; shm never                    */
	CUT_EV_CTL_LOST,	/* control socket gone for good                              */
	CUT_EV_MAX
};

/* Sender half. The caller adds to wr after each write (TCP in TCP and ARMING, the ring in
 * CUT_SENT and RING). */
struct cut_tx {
	uint8_t state;		/* enum cut_tx_state */
	bool closing;		/* CUT_EV_CLOSE came */
	bool fin_sent;		/* CUT_ACT_FIN was given out */
	bool final_put;		/* CUT_ACT_FINAL was given out in this epoch */
	bool fallback;		/* CUT_EV_FALLBACK came, not yet on TCP */
	bool path_dead;
	uint32_t epoch;		/* of the running or next cut */
	uint64_t wr;		/* bytes written by the application */
	uint64_t cut_at;	/* S of the running epoch */
	uint64_t resend;	/* rs: next byte to resend in RESENDING */
	uint64_t delta;		/* stream offset - TCP offset */
	uint64_t credit;	/* consumed, as last told */
	bool ctl_lost;		/* CUT_EV_CTL_LOST came: a rewind would be a reset */
};

/* Receiver half. The caller adds to rd after each read. */
struct cut_rx {
	uint8_t state;		/* enum cut_rx_state */
	bool arm_pending;	/* ARM came, a waiter has no bell yet */
	bool fallback;
	bool path_dead;
	bool eof;		/* FIN seen on the home socket */
	uint32_t epoch;
	uint64_t rd;		/* bytes consumed by the application */
	uint64_t cut_at;	/* S of the running epoch */
	uint64_t frozen_at;	/* C of the epoch before this, while FROZEN */
	uint64_t back_at;	/* E of a BACK that came in RING before all was consumed */
	bool back_pending;
	bool ctl_lost;		/* CUT_EV_CTL_LOST came: a rewind would be a reset */
	bool was_cut;		/* in FROZEN: out of RING, so BACK must cover C        */
	bool tail;		/* in FROZEN, sender dead: see cut_rx_ring_after_tcp() */
	uint64_t delta;		/* stream offset - TCP offset */
};

void cut_tx_init(struct cut_tx *m);
void cut_rx_init(struct cut_rx *m);

/* Feeds one event. Always fills *out. */
void cut_tx_step(struct cut_tx *m, enum cut_ev ev, uint32_t epoch, uint64_t off,
		 struct cut_out *out);
void cut_rx_step(struct cut_rx *m, enum cut_ev ev, uint32_t epoch, uint64_t off,
		 struct cut_out *out);

/* What the data path asks. */
static inline bool cut_tx_on_tcp(const struct cut_tx *m)  { return m->state <= CUT_TX_ARMING; }
static inline bool cut_tx_on_ring(const struct cut_tx *m)
{
	return m->state == CUT_TX_CUT_SENT || m->state == CUT_TX_RING;
}
static inline bool cut_tx_blocked(const struct cut_tx *m) { return m->state >= CUT_TX_REWINDING; }
/* rx: bytes that must still come from TCP before the ring may be read (K), UINT64_MAX if no
 * ring. */
static inline uint64_t cut_rx_tcp_left(const struct cut_rx *m)
{
	if (m->state != CUT_RX_RING)
		return UINT64_MAX;
	return m->rd < m->cut_at ? m->cut_at - m->rd : 0;
}

/* rx, sender dead (CUT_EV_KERNEL_EOF came) and TCP read to its end: must the ring [rd, header.wr)
 * still be read before EOF? If rd < cut_at then bytes are missing: ECONNRESET, never EOF. */
static inline bool cut_rx_ring_after_tcp(const struct cut_rx *m)
{
	return m->state == CUT_RX_RING || (m->state == CUT_RX_FROZEN && m->tail);
}

const char *cut_tx_state_name(unsigned s);
const char *cut_rx_state_name(unsigned s);
const char *cut_ev_name(unsigned e);
const char *cut_msg_name(unsigned m);

#endif
