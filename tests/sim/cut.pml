/*
 * cut.pml - Promela twin of the cut/rewind machine (shim/cut/cut.def), one direction on one host:
 * sender, receiver, kernel TCP, ring, control FIFOs, overflow, close, death of the sender.
 * The states carry the same names as in the code (check-model.sh compares).
 *
 * Two forms. Bounded (-DBYTES=n -DCUTS=k): the larger buffers, for safety. Unbounded: the writer
 * never runs out of bytes, so cycles are real; offsets count modulo M, epochs modulo EM, and
 * nothing may be on the way long enough to be mistaken (far(), aliased()). Safety: every byte in
 * order, no false EOF, no state in which somebody waits for ever. Liveness under weak fairness:
 * bytes keep arriving while the writer writes (progress label), and every wish to fall back is
 * fulfilled (ltl fallback_ends).
 *
 * With -DTRACE the verifier prints each transition of the two halves when it takes it for the
 * first time, with the code's name of the event and its own numbers of the states;
 * check-model.sh compares them with shim/cut/cut.def. Therefore every change of tx and rx is
 * made by TX_TO and RX_TO.
 *
 * The machine's own steps are atomic, as under the direction's lock. What the sender knows of
 * consumption slides S upwards: max(C,S) stays the same, and distances stay small.
 */
#ifndef CAP
#define CAP 2			/* bytes that TCP holds */
#endif
#ifndef RING
#define RING 1			/* bytes that the ring holds */
#endif
#ifdef BYTES			/* bounded: so many bytes, CUTS epochs; nothing wraps */
#define M 16
#define EM 8
#define more_bytes (wr < BYTES)
#define more_cuts (te <= CUTS)
#else
#ifndef M
#define M 8
#endif
#define EM 4
#define more_bytes (!far())
#define more_cuts (len(to_rx) <= 1 && !aliased())
#endif

#define dist(a, b)	(((a) + M - (b)) % M)		/* a - b */
#define ahead(a, b)	(dist(a, b) < M / 2)		/* a >= b */
#define age(a, b)	(((a) + EM - (b)) % EM)		/* epochs: a - b */
#define same_or_newer(a, b) (age(a, b) < EM / 2)

/* Real epochs do not wrap: nothing is earned while an answer two epochs old is still on the way. */
#define aliased() (to_tx??[FROZEN, eval((te + 2) % EM), _] || to_tx??[ARMED, eval((te + 2) % EM), \
	_] || \
		   to_tx??[CUT_OK, eval((te + 2) % EM), _])

/* Real offsets do not wrap: no byte is written that would put a C on the way half a turn behind. */
#define far() (to_tx??[FROZEN, _, eval((wr + M - M / 2 + 1) % M)] || \
	       (rx == RX_FROZEN && dist(wr, c) == M / 2 - 1))

mtype = { TX_TCP, TX_ARMING, TX_CUT_SENT, TX_RING, TX_REWINDING, TX_RESENDING };
mtype = { RX_TCP, RX_ARMED, RX_RING, RX_FROZEN };
mtype = { ARM, ARMED, CUT, CUT_OK, REWIND, FROZEN, BACK };

chan tcp = [CAP] of { byte };
chan to_rx = [6] of { mtype, byte, byte };
chan to_tx = [6] of { mtype, byte, byte };

mtype tx = TX_TCP, rx = RX_TCP;
#ifdef TRACE
c_code {
	static int left_state;

	static void note(const char *half, const char *event, int from, int to)
	{
		static struct { const char *event; int from, to; } was[64];
		static int n;

		for (int i = 0; i < n; i++)
			if (was[i].from == from && was[i].to == to && !strcmp(was[i].event, event))
				return;
		was[n].event = event; was[n].from = from; was[n++].to = to;
		if (from != to)
			printf("transition %s %d %s %d\n", half, from, event, to);
	}
}
#define TX_TO(event, to) c_code { left_state = now.tx; }; tx = to; \
c_code { note("TX", #event, left_state, now.tx); }
#define RX_TO(event, to) c_code { left_state = now.rx; }; rx = to; \
c_code { note("RX", #event, left_state, now.rx); }
#else
#define TX_TO(event, to) tx = to
#define RX_TO(event, to) rx = to
#endif

byte wr, s, rs, te = 1;		/* sender: written, S (sliding), resend, epoch */
byte rd, left, c, re = 1;	/* receiver: read, TCP bytes below S, C, epoch */
byte ring[RING];
byte h_epoch = EM, h_s, h_rd;	/* ring header: epoch, S, the reader's cursor */
bool final, fin;		/* FINAL in the ring; kernel FIN */
bool closing, fallback, rx_fallback, arm_pending, dead;
bool fresh = true;		/* bytes were written since the last cut: it may be earned again */

/* Macros where an event goes through: inline does not replace names in C. */

/* The epoch is over at the sender: BACK. A real header just stays, epochs do not wrap. */
#define TX_BACK(event) \
	to_rx!BACK, te, wr; \
	TX_TO(event, TX_TCP); te = (te + 1) % EM; fallback = false; final = false; rs = 0; s = 0; \
	h_epoch = EM; h_s = 0; h_rd = 0; \
	if \
	:: closing -> fin = true \
	:: else \
	fi

#ifdef NO_MAX_CS
#define RESEND_FROM(at) rs = at
#else
#define RESEND_FROM(at) \
	if \
	:: ahead(at, s) -> rs = at \
	:: else -> rs = s \
	fi
#endif

/* C <= wr */
#define TX_FROZEN(at) \
	assert(!ahead(at, (wr + 1) % M)); \
	RESEND_FROM(at); \
	if \
	:: rs == wr -> TX_BACK(FROZEN) \
	:: else -> TX_TO(FROZEN, TX_RESENDING) \
	fi

/* On the path and closing: FINAL in the ring; all consumed: through. */
#define PUT_FINAL(event) \
	final = true; \
	if \
	:: tx == TX_RING && s == wr -> TX_BACK(event) \
	:: else \
	fi

active proctype Writer() {
end_idle:
	do
	:: atomic { !dead && !closing && (tx == TX_TCP || tx == TX_ARMING) && nfull(tcp) &&
		    more_bytes ->
		tcp!wr; wr = (wr + 1) % M; fresh = true }
	:: atomic { !dead && !closing && (tx == TX_CUT_SENT || tx == TX_RING) &&
		    dist(wr, s) < RING &&
		dist(wr, s) + len(tcp) < CAP && more_bytes ->	/* the room rule */
		ring[wr % RING] = wr; wr = (wr + 1) % M; fresh = true }
	:: atomic { !dead && !closing && (tx == TX_CUT_SENT || tx == TX_RING) && !fallback &&
		dist(wr, s) == RING ->			/* overflow: a rewind */
		fallback = true;
		if
		:: tx == TX_RING -> to_rx!REWIND, te, 0; TX_TO(FALLBACK, TX_REWINDING)
		:: else
		fi }
#ifdef CLOSES
	:: atomic { !dead && !closing -> closing = true;
		if
		:: tx == TX_TCP -> fin = true
		:: tx == TX_ARMING -> TX_BACK(CLOSE)
		:: else -> PUT_FINAL(CLOSE)
		fi }
#endif
	od
}

/* The sender's half of the machine, messages and resend. */
active proctype Sender() {
	byte e, off;
end_idle:
	do
	:: atomic { !dead && tx == TX_TCP && !closing && fresh && more_cuts -> fresh = false;
		to_rx!ARM, te, 0; TX_TO(EARNED, TX_ARMING) }
	:: atomic { !dead && to_tx?[ARMED, e, off] -> to_tx?ARMED, e, off;
		if
		:: e == te && tx == TX_ARMING -> TX_TO(ARMED, TX_CUT_SENT); s = wr; h_epoch = te;
		h_s = wr;
		h_rd = wr;
			to_rx!CUT, te, wr
		:: else
		fi }
	:: atomic { !dead && to_tx?[CUT_OK, e, off] -> to_tx?CUT_OK, e, off;
		if
		:: e == te && tx == TX_CUT_SENT && fallback -> to_rx!REWIND, te, 0;
		TX_TO(CUT_OK, TX_REWINDING)
		:: e == te && tx == TX_CUT_SENT && !fallback && closing &&
			s == wr -> TX_BACK(CUT_OK)
		:: e == te && tx == TX_CUT_SENT && !fallback && !(closing && s == wr) ->
			TX_TO(CUT_OK, TX_RING);
			if
			:: closing -> final = true
			:: else
			fi
		:: else
		fi }
	:: atomic { !dead && to_tx?[FROZEN, e, off] -> to_tx?FROZEN, e, off;
		if
		:: e == te && tx == TX_ARMING -> TX_BACK(FROZEN)
#ifdef NO_CROSSING
		:: e == te && (tx == TX_RING || tx == TX_REWINDING) -> TX_FROZEN(off)
#else
		:: e == te && (tx == TX_CUT_SENT || tx == TX_RING ||
			       tx == TX_REWINDING) -> TX_FROZEN(off)
#endif
		:: else
		fi }
	:: atomic { !dead && tx == TX_RESENDING && nfull(tcp) ->
		assert(rs != wr && ring[rs % RING] == rs);
		tcp!rs; rs = (rs + 1) % M;
		if
		:: rs == wr -> TX_BACK(RESENT)
		:: else
		fi }
	od
}

/* Consumption, read from the ring. A process of its own: weak fairness is between processes. */
active proctype Credit() {
end_idle:
	do
	:: atomic { !dead && (tx == TX_CUT_SENT || tx == TX_RING || tx == TX_REWINDING) &&
		    s != h_rd -> s = h_rd;
		if
		:: tx == TX_RING && closing && s == wr -> TX_BACK(CREDIT)
		:: else
		fi }
	od
}

#define FREEZE(event) \
	c = rd; RX_TO(event, RX_FROZEN); left = 0; \
	to_tx!FROZEN, re, rd; re = (re + 1) % EM

#define RX_FALLBACK(event, e) RX_TO(event, RX_TCP); re = e; arm_pending = false; \
rx_fallback = false; c = 0

/* The receiver's half of the machine. */
active proctype Receiver() {
	byte e, off;
end_idle:
	do
	:: atomic { rx == RX_TCP && arm_pending && !dead -> arm_pending = false;
		    RX_TO(NO_WAITERS, RX_ARMED);
		to_tx!ARMED, re, 0 }
	:: atomic { to_rx?[ARM, e, off] -> to_rx?ARM, e, off;
		if
		:: (rx == RX_TCP || rx == RX_FROZEN) && same_or_newer(e, re) ->
			RX_FALLBACK(ARM, e); arm_pending = true
		:: rx == RX_FROZEN && age(re, e) == 1 -> to_tx!FROZEN, e, c
		:: else
		fi }
	:: atomic { to_rx?[CUT, e, off] -> to_rx?CUT, e, off;
		if
		:: rx == RX_ARMED && e == re -> assert(ahead(off, rd));
			RX_TO(CUT, RX_RING); left = dist(off, rd); to_tx!CUT_OK, re, 0
		:: rx == RX_FROZEN && age(re, e) == 1 -> to_tx!FROZEN, e, c
		:: else
		fi }
	:: atomic { to_rx?[REWIND, e, off] -> to_rx?REWIND, e, off;
		if
		:: rx == RX_RING && e == re -> FREEZE(REWIND)
		:: rx == RX_FROZEN && age(re, e) == 1 -> to_tx!FROZEN, e, c
		:: else
		fi }
	:: atomic { to_rx?[BACK, e, off] -> to_rx?BACK, e, off;
		if
		:: (rx == RX_TCP || rx == RX_ARMED) && same_or_newer(e, re) ->
			RX_FALLBACK(BACK, (e + 1) % EM)
		:: rx == RX_FROZEN && (same_or_newer(e, re) || age(re, e) == 1) ->
			RX_FALLBACK(BACK, (e + 1) % EM)
		:: rx == RX_RING && e == re ->
			/* all ring bytes were consumed; bytes below S may still be in TCP */
			assert(off == rd || dist(off, rd) == left);
			left = 0; RX_FALLBACK(BACK, (e + 1) % EM)
		:: else
		fi }
	od
}

/* Both ends may want to fall back at any time, or never again. */
active proctype Policy() {
end_idle:
	do
	:: atomic { !dead && !fallback && (tx == TX_ARMING || tx == TX_CUT_SENT || tx == TX_RING) ->
		if
		:: tx == TX_ARMING -> TX_BACK(FALLBACK)
		:: tx == TX_CUT_SENT -> fallback = true
		:: tx == TX_RING -> fallback = true; to_rx!REWIND, te, 0;
		TX_TO(FALLBACK, TX_REWINDING)
		fi }
	:: atomic { !dead && (rx == RX_ARMED || rx == RX_RING) && nfull(to_tx) -> rx_fallback =
		    true;
		    FREEZE(FALLBACK) }
	:: break
	od
}

#ifdef KILL
active proctype Killer() {
end_idle:
	do
	:: atomic { !dead -> dead = true; fin = true; break }
	od
}
#endif

inline got(b) {
	assert(b == rd); rd = (rd + 1) % M
}

active proctype Reader() {
	byte b;
#ifdef CLOSES
wait:
#else
#ifdef KILL
wait:
#else
end_wait:
#endif
#endif
	do
	:: atomic { nempty(tcp) && (rx != RX_RING || left > 0) -> tcp?b; got(b);
		if
		:: rx == RX_RING -> left--
		:: else
		fi };
progress_tcp:	skip
	:: atomic { rx == RX_RING && left == 0 && rd != wr -> got(ring[rd % RING]); h_rd = rd };
progress_ring:	skip
	:: atomic { rx == RX_RING && left == 0 && final && rd == wr -> assert(closing); break }
	:: atomic { rx == RX_TCP && fin && empty(tcp) && !dead && empty(to_rx) ->
		assert(closing && rd == wr); break }
	/* the sender is dead, control is drained, TCP has ended */
	:: atomic { dead && empty(to_rx) && empty(tcp) ->
		if
		:: rx == RX_ARMED && h_epoch == re -> RX_TO(KERNEL_EOF, RX_RING);
		left = dist(h_s, rd)
		:: else
		fi;
		if
		:: rx == RX_RING -> assert(left == 0)
		:: else
		fi;
		do
#ifdef NO_TAIL
		:: rx == RX_RING && rd != wr ->
#else
		:: (rx == RX_RING || (rx == RX_FROZEN && age(re, h_epoch) == 1)) && rd != wr ->
#endif
			got(ring[rd % RING])
		:: else -> break
		od;
		assert(rd == wr);
		break }
	od
}

ltl fallback_ends { [] ((fallback && !dead) -> <> (!fallback || dead)) }
