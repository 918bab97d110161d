/*
 * recovery.pml - Promela twin of the loss of a queue pair and of what comes after
 * (shim/link/link_net.c: path_died(); path_rdma.c: dead(), work(); shim/conn/stream_cut.c:
 * stream_path_dead(), may_earn(), stream_attach(); shim/discovery/discovery_ctl.c: got_cut(),
 * got_unbind(), search_unbind(); shim/main/stream_work.c: stream_work(); rdma/verbs/rc.c:
 * got_slot(); the rows PATH_DEAD of shim/cut/cut.def). One direction of a stream; the machine of
 * cut.pml without close and death.
 *
 * The queue pair dies at any moment; each end notices by itself, or is told by DEAD. The stream
 * falls back, gives its slot back, and is bound again: to the same slot with the next life if
 * the path lives, else to a new link. Offsets are counted anew from TCP's at each binding, so
 * what a late record says is a number that another life may believe. The control connection
 * takes messages when it likes (outq), and throws away what it holds if it is closed while
 * something is unread (RST).
 *
 * Wanted: every byte in order; nobody is in a cut when the control connection ends, which would
 * reset the stream; no state without a way on.
 *
 * Broken on purpose: BREAK_KILL (the link is closed when the own streams have left it) is found.
 * So is BREAK_RESEND (the resend begins at S), with BYTES=2. So is BREAK_LIFE (records of any
 * life are believed), with BYTES=2. BREAK_NOTE (PATH_DEAD before CUT_OK is forgotten) is not:
 * the freeze of the receiver makes up for it.
 */
#ifndef BYTES
#define BYTES 3
#endif
#ifndef RING
#define RING 2
#endif
#ifndef CAP
#define CAP 2
#endif
#ifndef LIVES
#define LIVES 2
#endif
#ifndef CUTS
#define CUTS 1			/* of each life */
#endif
#define TX 0
#define RX 1

mtype = { TX_TCP, TX_ARMING, TX_CUT_SENT, TX_RING, TX_REWINDING, TX_RESENDING };
mtype = { RX_TCP, RX_ARMED, RX_RING, RX_FROZEN };
mtype = { ARM, ARMED, CUT, CUT_OK, REWIND, FROZEN, BACK, DEAD, UNBIND };

chan tcp = [CAP] of { byte };
chan qp = [RING] of { byte, byte, byte };		/* life, offset after it, the byte */
chan to[2] = [4] of { mtype, byte, byte };		/* the control connection, to each end */
chan outq[2] = [4] of { mtype, byte, byte };		/* not taken by it yet */

mtype tx = TX_TCP, rx = RX_TCP;
byte wr, cut_at, rs, te = 1, tdelta, rdk;	/* the sender's */
byte rd, s_at, re = 1, rdelta, inwr;		/* the receiver's */
bool tdead, arm_pending, fallback;
byte ring[RING], land[RING], life, cuts, wishes;
bool bound[2] = true, used[2] = true, said[2], got[2], up[2] = true, told[2], unbind[2];
bool qp_dead, fresh = true, deaths;
byte base[2];					/* stream offset - offset in this life: what went
						 * over rings before */

#define say(e, m, ep, off) \
	if \
	:: !up[e] \
	:: up[e] && empty(outq[1 - e]) && nfull(to[1 - e]) -> to[1 - e]!m, ep, off \
	:: up[e] -> outq[1 - e]!m, ep, off \
	fi

#define TX_BACK() say(TX, BACK, te, wr); tx = TX_TCP; te++; fallback = false; tdead = false
#define REWIND_NOW() say(TX, REWIND, te, 0); tx = TX_REWINDING

#define COUNT(delta, c, s) delta = delta + (c > s -> c - s : 0)

#define FREEZE() \
	if :: rx == RX_RING -> COUNT(rdelta, rd, s_at) :: else fi; \
	rx = RX_FROZEN; say(RX, FROZEN, re, rd); re++

/* stream_path_dead() of both halves' ends; dead() says DEAD first. */
inline tx_dead() {
	told[TX] = true;
	say(TX, DEAD, 0, 0);
	if
	:: bound[TX] && tx == TX_ARMING -> TX_BACK()
#ifndef BREAK_NOTE
	:: bound[TX] && tx == TX_CUT_SENT -> tdead = true
#endif
	:: bound[TX] && tx == TX_RING -> REWIND_NOW()
	:: else
	fi
}

inline rx_dead() {
	told[RX] = true;
	say(RX, DEAD, 0, 0);
	if
	:: bound[RX] && (rx == RX_ARMED || rx == RX_RING) -> FREEZE()
	:: else
	fi
}

/* Once they are on TCP: search_unbind(), and the slot is free when both have said so. */
#define LEAVE(e) bound[e] = false; said[e] = true; say(e, UNBIND, 0, 0); \
if :: got[e] -> used[e] = false :: else fi

active proctype Writer() {
end:	do
	:: atomic { wr < BYTES && (!bound[TX] || tx == TX_TCP || tx == TX_ARMING) &&
		    nfull(tcp) -> tcp!wr;
		    wr++; fresh = true }
	:: atomic { wr < BYTES && bound[TX] && (tx == TX_CUT_SENT || tx == TX_RING) &&
		    wr - rdk < RING &&
		    wr - rdk + len(tcp) < CAP && nfull(qp) ->
		ring[wr % RING] = wr; wr++;
		if
		:: !qp_dead && !told[TX] -> qp!life, wr - base[TX], wr - 1
		:: else
		fi }
	od
}

active proctype Sender() {
	mtype m; byte e, off;
end:	do
	:: atomic { bound[TX] && tx == TX_TCP && fresh && cuts < CUTS && !told[TX] && !unbind[TX] &&
		    empty(outq[RX]) ->
		fresh = false; cuts++; say(TX, ARM, te, 0); tx = TX_ARMING }
	:: atomic { qp_dead && up[TX] && !told[TX] -> tx_dead() }
	:: atomic { up[TX] && nempty(to[TX]) -> to[TX]?m, e, off;
		if
		:: m == DEAD && !told[TX] -> tx_dead()
		:: m == UNBIND -> got[TX] = true; unbind[TX] = bound[TX];
		if :: said[TX] -> used[TX] = false :: else fi
		:: bound[TX] && e == te && m == ARMED && tx == TX_ARMING ->
			assert(tdelta == rdelta);
			cut_at = wr; rdk = wr; tx = TX_CUT_SENT; say(TX, CUT, te, wr)
		:: bound[TX] && e == te && m == CUT_OK && tx == TX_CUT_SENT ->
			if :: tdead || fallback -> REWIND_NOW() :: else -> tx = TX_RING fi
		:: bound[TX] && e == te && m == FROZEN && tx == TX_ARMING -> TX_BACK()
		:: bound[TX] && e == te && m == FROZEN &&
			(tx == TX_CUT_SENT || tx == TX_RING || tx == TX_REWINDING) ->
#ifdef BREAK_RESEND
			rs = cut_at;
#else
			rs = (off > cut_at -> off : cut_at);
#endif
			COUNT(tdelta, off, cut_at);
			if :: rs == wr -> TX_BACK() :: else -> tx = TX_RESENDING fi
		:: else
		fi;
		m = 0; e = 0; off = 0 }
	:: atomic { bound[TX] && tx == TX_RESENDING && nfull(tcp) -> assert(ring[rs % RING] == rs);
		    tcp!rs;
		    rs++;
		if :: rs == wr -> rs = 0; TX_BACK() :: else fi }
	:: atomic { bound[TX] && (tx == TX_CUT_SENT || tx == TX_RING || tx == TX_REWINDING) &&
		    !told[TX] &&
		    !told[RX] && rd > rdk -> rdk = rd }
	:: atomic { bound[TX] && tx == TX_TCP && (told[TX] || unbind[TX]) -> LEAVE(TX) }
	/* TCP-only, a holder more */
	:: atomic { wishes == 0 && bound[TX] && !told[TX] && life + 1 < LIVES &&
		    (tx == TX_RING || tx == TX_CUT_SENT) -> wishes++;
		unbind[TX] = true;
		if :: tx == TX_RING -> REWIND_NOW() :: else -> fallback = true fi }
	od
}

active proctype Receiver() {
	mtype m; byte e, off;
end:	do
	:: atomic { bound[RX] && rx == RX_TCP && arm_pending && !unbind[RX] -> arm_pending = false;
		    rx = RX_ARMED; say(RX, ARMED, re, 0) }
	:: atomic { bound[RX] && rx == RX_TCP && arm_pending && unbind[RX] -> arm_pending = false;
		    rx = RX_ARMED; say(RX, ARMED, re, 0); FREEZE() }
	:: atomic { qp_dead && up[RX] && !told[RX] -> rx_dead() }
	:: atomic { up[RX] && nempty(to[RX]) -> to[RX]?m, e, off;
		if
		:: m == DEAD && !told[RX] -> rx_dead()
		:: m == UNBIND -> got[RX] = true; unbind[RX] = bound[RX];
		if :: said[RX] -> used[RX] = false :: else fi
		:: bound[RX] && m == ARM && (rx == RX_TCP || rx == RX_FROZEN) &&
			e >= re -> rx = RX_TCP;
		re = e; arm_pending = true
		:: bound[RX] && m == CUT && rx == RX_ARMED && e == re -> assert(off >= rd);
			rx = RX_RING; s_at = off; say(RX, CUT_OK, re, 0)
		:: bound[RX] && m == REWIND && rx == RX_RING && e == re -> FREEZE()
		:: bound[RX] && rx == RX_FROZEN && e + 1 == re &&
			(m == ARM || m == CUT || m == REWIND) -> e = re - 1; say(RX, FROZEN, e, rd)
		:: bound[RX] && m == BACK && (rx == RX_TCP || rx == RX_ARMED || rx == RX_FROZEN) &&
			e + 1 >= re -> rx = RX_TCP; re = e + 1; arm_pending = false
		:: else
		fi;
		m = 0; e = 0; off = 0 }
	:: atomic { bound[RX] && rx == RX_TCP && !arm_pending && (told[RX] || unbind[RX]) ->
		    LEAVE(RX) }
	od
}

/* rc_poll() of the receiver, got_slot(). What is still on the wire when the pair dies may come
 * or not. */
active proctype Landing() {
	byte l, w, b;
end:	do
	:: atomic { nempty(qp) && !told[RX] -> qp?l, w, b;
		if
#ifdef BREAK_LIFE
		:: true ->
#else
		:: bound[RX] && l == life ->
#endif
			land[b % RING] = b;
			if :: w > inwr -> inwr = w :: else fi
		:: else
		fi;
		l = 0; w = 0; b = 0 }
	:: atomic { nempty(qp) && (qp_dead || told[RX]) -> do :: nempty(qp) -> qp?l, w,
		    b :: empty(qp) -> break od; l = 0; w = 0; b = 0 }
	od
}

active proctype Reader() {
	byte b;
	do
	:: rd == BYTES -> break
	:: atomic { nempty(tcp) && (!bound[RX] || rx != RX_RING || rd < s_at) -> tcp?b;
		    assert(b == rd); rd++; b = 0 }
	:: atomic { bound[RX] && rx == RX_RING && rd >= s_at && inwr + base[RX] > rd ->
		    assert(land[rd % RING] == rd); rd++ }
	od
}

#ifdef BREAK_KILL
#define may_close(x) up[x] && told[x] && !bound[x]
#else
#define may_close(x) up[x] && told[x] && !bound[x] && !used[x] && empty(outq[1 - x])
#endif

/* work(), link_kill(): the queue is gone; with something unread also what the connection still
 * holds. */
inline closes(x) {
	up[x] = false;
	do :: nempty(outq[1 - x]) -> outq[1 - x]?m, e, off :: empty(outq[1 - x]) -> break od;
	unread = nempty(to[x]) || nempty(outq[x]);
	if
	:: unread ->
		if
		:: do :: nempty(to[1 - x]) -> to[1 - x]?m, e, off :: empty(to[1 - x]) -> break od
		:: true
		fi;
		do :: nempty(to[x]) -> to[x]?m, e, off :: empty(to[x]) -> break od;
		do :: nempty(outq[x]) -> outq[x]?m, e, off :: empty(outq[x]) -> break od
	:: else
	fi;
	m = 0; e = 0; off = 0; unread = false
}

/* The control connections, the death of the path, the end of a link, a new binding. */
active proctype World() {
	mtype m; byte e, off, i; bool unread;
end:	do
	:: atomic { nempty(outq[TX]) && nfull(to[TX]) -> outq[TX]?m, e, off; to[TX]!m, e, off;
		    m = 0; e = 0; off = 0 }
	:: atomic { nempty(outq[RX]) && nfull(to[RX]) -> outq[RX]?m, e, off; to[RX]!m, e, off;
		    m = 0; e = 0; off = 0 }
	:: atomic { !deaths && !qp_dead && up[TX] && up[RX] && life + 1 < LIVES -> deaths = true;
		    qp_dead = true }
	:: atomic { may_close(TX) -> closes(TX) }
	:: atomic { may_close(RX) -> closes(RX) }
	:: atomic { !up[TX] && up[RX] && empty(to[RX]) && empty(outq[RX]) -> up[RX] = false;
		    assert(!bound[RX] || rx == RX_TCP) }
	:: atomic { !up[RX] && up[TX] && empty(to[TX]) && empty(outq[TX]) -> up[TX] = false;
		    assert(!bound[TX] || tx == TX_TCP) }
	/* Bound again: BIND, BOUND. */
	:: atomic { !bound[TX] && !bound[RX] && life + 1 < LIVES &&
		    ((up[TX] && up[RX] && !told[TX] && !told[RX] && !used[TX] && !used[RX]) ||
		     (!up[TX] && !up[RX])) ->
		if
		:: !up[TX] -> qp_dead = false; told[TX] = false; told[RX] = false;
			do :: nempty(qp) -> qp?off, e, i :: empty(qp) -> break od;
			off = 0; e = 0; i = 0
		:: else
		fi;
		up[TX] = true; up[RX] = true; bound[TX] = true; bound[RX] = true; used[TX] = true;
		used[RX] = true;
		said[TX] = false; said[RX] = false; got[TX] = false; got[RX] = false;
		unbind[TX] = false; unbind[RX] = false;
		life++; cuts = 0; fresh = true; te = 1; re = 1; arm_pending = false; inwr = 0;
		base[TX] = tdelta; base[RX] = rdelta }
	od
}
