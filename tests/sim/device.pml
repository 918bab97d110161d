/*
 * device.pml - Promela twin of the eager GPU path: a snapshot from the copy to its end, its
 * offer beside the block, the receiver's copy (shim/gpu/send.c: begin(), snapshot(),
 * gpu_d2h_end(), gpu_find(), gpu_unref(), reclaim(); shim/gpu/take.c: gpu_take_begin();
 * shim/conn/stream_direct.c; shim/conn/stream_send.c: offer(), ring_send(), await_take();
 * shim/conn/stream_recv.c: ring_recv(); shim/conn/stream_cut.c: stream_tx_event()). The cut
 * machine is here as much of cut.pml as a rewind, a close and a new cut need: one direction, one
 * host.
 *
 * The program sends one host buffer BLOCKS times: a copy from the device, which gets the one
 * snapshot slot if that is not in use; with TRUTH perhaps a write to the buffer, by a CPU or by
 * a kernel that was launched before the copy or after; the send; then the buffer is used for
 * something else. With ASYNC the copy may be under way still. A byte is the version of the
 * buffer and its place in the block, so each is told from all others. Another thread makes
 * copies of another buffer, which want the slot; with CLOSES it shuts the direction down or
 * resets the connection at any moment. The receiver takes an offer byte by byte, from the slot
 * or from the buffer, all or a part; or it says that it reads the slot (READING), goes on, and
 * its device copies from there some time later, and then it says that, too. With STOPS it may
 * stop for ever in a take, with KILLS either end may die. A sender whose offer nobody takes may
 * withdraw it, or released its lock and wait. txlock and rxlock are the locks of the halves;
 * what is atomic is one step under them.
 *
 * Wanted: a byte that the receiving program gets is the next of the stream, and the one that was
 * in the buffer when its send began; at the end none is missing. The slot is not used again
 * while a copy from it may still count. Nobody who keeps the rules is found to have broken them
 * (the asserts on offsets). No send waits for a receiver that stopped in the middle of a take,
 * and who sleeps is woken (no invalid end state).
 *
 * Broken on purpose, each must be found. A snapshot is offered ... BREAK_WRITTEN: although a CPU
 * wrote to the buffer since; BREAK_LAUNCHED: although a kernel was launched since; BREAK_BUSY:
 * although one was running when the copy was made; BREAK_EARLY: although its copy is not
 * complete (ASYNC); BREAK_DROP: although a later copy, which got none, wrote the buffer.
 * BREAK_TWICE: the buffer is filled from the source, not from the snapshot. BREAK_PIN: the slot
 * is released together with the lock when a take lasts. BREAK_WITHDRAW: an offer is withdrawn by
 * a plain store. BREAK_COMMIT: a take ends by a plain store. The machine steps ... BREAK_SETTLE:
 * before a block that was taken is counted; BREAK_CLOSE: while a block is being taken.
 * BREAK_DONE: the send call does not step over what was counted for it. BREAK_FREEZE: the
 * receiver freezes in the middle of a take. BREAK_PATIENCE: a take is waited for, however long
 * it lasts. BREAK_READING: the slot is released although it is still read. BREAK_TOLD: the
 * receiver says that it has read before it has. BREAK_LATE: an offer that stands while the lock
 * is free is forgotten when the machine steps.
 */
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef FALLBACKS
#define FALLBACKS 1			/* rewinds, by either end */
#endif
#ifndef CUTS
#define CUTS 1			/* new cuts after them */
#endif
#define LEN 2			/* bytes of a block */
#define RING 2
#define BYTE(version, k) (2 * (version) + (k))
#define JUNK 31			/* versions that nobody sends */
#define OTHER 30
#define NO_FINAL 255

#define NONE 0			/* enum ring_offer */
#define OFFERED 1
#define TAKING 2
#define TAKEN 3
#define REFUSED 4
#define DECLINED 5
#define READING 6

mtype = { TX_TCP, TX_RING, TX_REWINDING, TX_RESENDING };
mtype = { RX_TCP, RX_RING, RX_FROZEN };
mtype = { CUT, REWIND, FROZEN, BACK };

chan tcp = [LEN * BLOCKS] of { byte };
chan to_rx = [3] of { mtype, byte };
chan to_tx = [2] of { mtype, byte };

/* The sender's memory and its device. */
byte host[LEN], slot[LEN], sent[LEN * BLOCKS + LEN];
bool live, dirty, launched, running, copied = true;
byte pins;
#ifdef ASYNC
byte coming[LEN * BLOCKS + LEN];	/* what a copy under way makes of it */
byte queued;			/* what of a copy is still to be done */
bool to_slot;
#endif

/* The ring and its header. */
byte ring[LEN * BLOCKS + LEN], h_wr, h_rd, final = NO_FINAL;
byte offer, o_at, o_n, o_taken;
bool o_dev;

mtype tx = TX_RING, rx = RX_RING;
byte wr, srd, cut_at, rs;	/* the sender's: written, known credit, S, resend */
byte rd, s_at;			/* the receiver's */
bool txlock, rxlock, stuck, held, closing, fin, reset;
byte done, fallbacks, cuts, others;
bool armed, bell;		/* the reader's */
bool sdead, rdead, stopped;
bool from_slot;			/* the receiver copies from there */
chan reads = [2] of { byte, byte, byte };	/* copies that its device makes: place, bytes,
						 * offset in the stream */
byte h_read;			/* offer_read */
byte lent, lent_to;		/* pins for them, and what h_read must be before they go */

inline wake() { if :: armed -> armed = false; bell = true :: else fi }

/* ---- the sender's half of the machine. txlock is the caller's ---- */

#define TX_BACK() to_rx!BACK, wr; tx = TX_TCP; rs = 0; srd = 0; cut_at = 0; \
if :: closing -> fin = true :: else fi

inline close_if_consumed() {
	if
	:: tx == TX_RING && closing && srd == wr -> TX_BACK()
	:: else
	fi
}

inline unpin() { if :: held -> held = false; pins-- :: else fi }

#define was_taken (offer == TAKEN || offer == READING)

#ifdef BREAK_READING
inline lend() { skip }
#else
inline lend() {			/* device_read(), after count() */
	if
	:: offer == READING && held -> held = false; lent++; lent_to = wr
	:: else
	fi
}
#endif

inline returned() {		/* device_settle() */
	if
	:: lent && (h_read >= lent_to || rdead) -> pins = pins - lent; lent = 0; lent_to = 0
	:: else
	fi
}

inline release() { offer = NONE; o_taken = 0; o_n = 0; o_at = 0; o_dev = false; unpin() }

inline count() {		/* taken() */
	assert(o_taken >= 1 && o_taken <= o_n);
	wr = wr + o_taken; srd = wr; h_wr = wr
}

/* direct_settle(): the block of a stuck offer is counted, or withdrawn. */
inline settle(now) {
	if
	:: stuck && ((offer != TAKING && offer != OFFERED) || now) ->
		stuck = false;
		if
		:: was_taken -> count(); done = o_taken; lend()
		:: else
		fi;
		release()
	:: else
	fi
}

#ifdef BREAK_SETTLE
#define tx_event() skip
#else
#ifdef BREAK_CLOSE
#define tx_event() settle(false)
#else
#ifdef BREAK_LATE
inline tx_event() { if :: offer != OFFERED -> settle(true) :: else fi }
#else
#define tx_event() settle(true)
#endif
#endif
#endif

inline credit() {		/* ring_tx_refresh() */
	if
	:: (tx == TX_RING || tx == TX_REWINDING) && h_rd > srd && !stuck -> assert(h_rd <= wr);
	srd = h_rd
	:: else
	fi
}

inline close_tx() {
	tx_event(); credit();
	closing = true; final = wr; wake();
	if
	:: tx == TX_TCP -> fin = true
	:: else -> close_if_consumed()
	fi
}

#define end_of_sender (sdead || reset)

active proctype Background() {
	byte off;
end:	do
	:: atomic { !end_of_sender && !txlock && to_tx?[FROZEN, off] -> to_tx?FROZEN, off;
		tx_event();
		if
		:: tx == TX_RING || tx == TX_REWINDING ->
			assert(off <= wr);
			rs = (off > cut_at -> off : cut_at);
			if :: rs == wr -> TX_BACK() :: else -> tx = TX_RESENDING fi
		:: else			/* it crossed our BACK */
		fi;
		off = 0 }
	:: atomic { !end_of_sender && !txlock && tx == TX_RESENDING -> tcp!ring[rs]; rs++;
		if :: rs == wr -> TX_BACK() :: else fi }
	:: atomic { !end_of_sender && !txlock && tx == TX_RING && closing && h_rd > srd &&
		    !stuck -> credit(); close_if_consumed() }
	:: atomic { !sdead && !txlock && lent && (h_read >= lent_to || rdead) -> returned() }
	:: atomic { !end_of_sender && !txlock && tx == TX_RING && !closing &&
		    fallbacks < FALLBACKS ->
		    fallbacks++;
		tx_event(); tx = TX_REWINDING; to_rx!REWIND, 0 }
	:: atomic { !end_of_sender && !txlock && tx == TX_TCP && rx == RX_TCP && !closing &&
		    empty(to_rx) && empty(to_tx) && cuts < CUTS ->
		cuts++; tx = TX_RING; cut_at = wr; srd = wr; h_wr = wr; offer = NONE;
		to_rx!CUT, wr }
	od
}

/* ---- the sending program ---- */

#ifdef BREAK_DROP
#define drop()
#else
#define drop() live = false;	/* cuda_drop_range() */
#endif
#ifdef BREAK_BUSY
#define idle true
#else
#define idle (!running)
#endif

/* The source goes to the slot, that to the buffer: two steps of a stream. */
inline copy(version) {
	atomic {
		drop()
		if
		:: !pins && idle -> live = false; filling = true; pins++; dirty = false;
		launched = false
		:: filling = false
		fi;
#ifdef ASYNC
		copied = false; queued = version; to_slot = filling; live = live || filling;
		if :: filling -> filling = false; pins-- :: else fi
	}
#else
		if
		:: filling -> slot[0] = BYTE(version, 0); slot[1] = BYTE(version, 1)
		:: else
		fi };
	atomic {
		host[0] = BYTE(version, 0); host[1] = BYTE(version, 1);
#ifdef BREAK_TWICE
		if
		:: host[1] = BYTE(version + 1, 1)	/* the source was written in between */
		:: true
		fi;
#endif
		if :: filling -> filling = false; live = true; pins-- :: else fi }
#endif
}

/* Bytes that did not come by the copy. */
inline overwrite(version) {
	if
	:: true
	:: atomic { dirty = true; host[1] = BYTE(version, 1) }
	:: atomic { launched = true; running = true };
		atomic { host[1] = BYTE(version, 1); running = false }
	fi
}

/* gpu_find() */
#ifdef BREAK_WRITTEN
#define unwritten true
#else
#define unwritten (!dirty)
#endif
#ifdef BREAK_LAUNCHED
#define unlaunched true
#else
#define unlaunched (!launched)
#endif
#ifdef BREAK_EARLY
#define is_complete true
#else
#define is_complete copied
#endif
#define still_true (live && is_complete && unwritten && unlaunched)

#define my_turn (!sdead && !txlock && !stuck)
#define sends (my_turn && !done && off < LEN && !closing && !reset && !rdead)
#define room (wr - (h_rd > srd -> h_rd : srd) < RING)
/* for ever: as on TCP, this send waits */
#define nobody_reads (stopped && (tx == TX_REWINDING || (tx == TX_RING && !room)))

active proctype Program() {
	byte b, off, version;
	bool filling;

	do
	:: sdead -> goto over
	:: !sdead && b == BLOCKS -> break
	:: !sdead && b < BLOCKS ->
		version = 1 + 4 * b;
#ifndef TRUTH
		copy(version);
#else
		if
		:: copy(version)
		/* a kernel that is still under way */
		:: atomic { running = true; launched = true };
			copy(version);
			atomic { running = false; host[1] = BYTE(version + 2, 1) }
		fi;
		overwrite(version + 3);
#endif
		atomic { off = 0; sent[LEN * b] = host[0]; sent[LEN * b + 1] = host[1];
#ifdef ASYNC
			coming[LEN * b] = BYTE(version, 0); coming[LEN * b + 1] = BYTE(version, 1);
#endif
			version = 0 };
		do
		:: atomic { !sdead && !txlock && stuck && offer != TAKING && offer != OFFERED ->
			    settle(false) }
		:: atomic { !sdead && !txlock && stuck && offer == OFFERED -> settle(true) }
#ifndef BREAK_PATIENCE
		:: atomic { !sdead && !txlock && stuck && offer == TAKING -> settle(true) }
#endif
		:: atomic { !sdead && !txlock && stuck && rdead -> settle(true) }
		:: atomic { my_turn && done ->
#ifndef BREAK_DONE
			off = off + done;
#endif
			done = 0 }
		:: atomic { my_turn && !done && off == LEN -> break }
		:: atomic { my_turn && !done && off < LEN &&
			    (closing || reset || rdead || nobody_reads) -> goto over }
		:: sdead -> goto over
		:: atomic { sends && tx == TX_TCP -> tcp!host[off]; wr++; off++ }
		:: atomic { sends && tx == TX_RING && room -> credit(); ring[wr] = host[off]; wr++;
			    h_wr = wr; off++; wake() }
		:: atomic { sends && tx == TX_RING && (h_rd == wr || srd == wr) ->
			credit(); txlock = true; o_n = LEN - off; o_at = off; offer = OFFERED;
			if :: still_true -> pins++; held = true; o_dev = true :: else fi;
			wake() };
			do
			:: atomic { !sdead && was_taken -> count(); off = off + o_taken; lend();
				    release(); break }
			:: atomic { !sdead && (offer == REFUSED || offer == DECLINED) -> release();
				    break }
			:: sdead -> goto over
#ifdef BREAK_WITHDRAW
			:: !sdead && offer == OFFERED -> release(); break
#else
			:: atomic { !sdead && offer == OFFERED -> release(); break }
#endif
			:: atomic { !sdead && offer == OFFERED && held -> stuck = true; break }
			:: atomic { !sdead && offer == TAKING -> stuck = true;
#ifdef BREAK_PIN
				unpin();
#endif
				break }
			od;
			txlock = false
		od;
#ifdef ASYNC
		copied || sdead;
#endif
		if					/* the buffer is used for something else,
							 * or copied to at once */
#ifdef TRUTH
		:: true
#endif
		:: atomic { dirty = true; host[0] = BYTE(JUNK, 0); host[1] = BYTE(JUNK, 1) }
		fi;
		b++
	od;
	atomic { !txlock || sdead -> if :: !sdead && !closing && !reset -> close_tx() :: else fi };
over:	skip
}

#ifdef ASYNC
active proctype Stream() {
end:	do
	:: queued && to_slot -> slot[0] = BYTE(queued, 0); slot[1] = BYTE(queued, 1);
	to_slot = false
	:: queued && !to_slot -> host[0] = BYTE(queued, 0); host[1] = BYTE(queued, 1);
	atomic { queued = 0; copied = true }
	od
}
#endif

/* Another thread: cuda_rec_new() of its copies takes what is free; it shuts the direction down,
 * or resets the connection. */
active proctype Other() {
end:	do
	:: atomic { !sdead && !pins && copied && others < 1 -> others++;
		    assert((!from_slot || offer != TAKING) && (rdead || empty(reads)));
		live = false; slot[0] = BYTE(OTHER, 0); slot[1] = BYTE(OTHER, 1) }
#ifdef CLOSES
	:: atomic { !end_of_sender && !txlock && !closing -> close_tx(); break }
	:: atomic { !end_of_sender && !txlock -> settle(true); reset = true; wake(); break }
	:: break
#endif
	od
}

/* ---- the receiver ---- */

#define gone (rdead || stopped)

#define FREEZE() rx = RX_FROZEN; to_tx!FROZEN, rd; wake()

#ifdef BREAK_FREEZE
#define rx_free true
#else
#define rx_free (!rxlock)
#endif

active proctype Receiver() {
	mtype m; byte off;
end:	do
	:: atomic { !gone && rx_free && (len(to_rx) > 0) -> to_rx?m, off;
		if
		:: m == CUT -> assert(rx == RX_TCP && off >= rd); rx = RX_RING; s_at = off;
		h_rd = off;
		wake()
		:: m == REWIND && rx == RX_RING -> FREEZE()
		:: m == BACK && rx == RX_FROZEN -> rx = RX_TCP; wake()
		:: m == BACK && rx == RX_RING ->
			/* all is consumed, or the ring was not used */
			assert(off == rd || off == s_at); rx = RX_TCP; wake()
		:: else
		fi;
		m = 0; off = 0 }
	:: atomic { !gone && rx_free && rx == RX_RING && fallbacks < FALLBACKS -> fallbacks++;
		    FREEZE() }
	od
}

#define tcp_turn (rx != RX_RING || rd < s_at)
#define ring_turn (rx == RX_RING && rd >= s_at)
#define at_end ((rx != RX_TCP && final == h_wr && rd == final) || \
	(rx == RX_TCP && fin && len(tcp) == 0))
#define readable (((len(tcp) > 0) && tcp_turn) || \
	(ring_turn && (h_wr > rd || offer == OFFERED)) || at_end)

inline same(b, o) {
#ifdef ASYNC
	assert(b == sent[o] || b == coming[o]);
#else
	assert(b == sent[o]);
#endif
}

inline get(b) { same(b, rd); rd++ }

/* Its device: the bytes are those that were sent. */
active proctype Copies() {
	byte at, n, off;
end:	do
	:: atomic { !rdead && reads?[at, n, off] -> reads?<at, n, off> };
		do
		:: n == 0 || rdead -> break
		:: atomic { n && !rdead -> same(slot[at], off); at++; off++; n-- }
		od;
		atomic { if :: !rdead && len(reads) == 1 -> h_read = off :: else fi;
			if :: !rdead -> reads?at, n, off :: else fi; at = 0; n = 0; off = 0 }
	od
}

active proctype Reader() {
	byte b, at, n, k, got[LEN];

next:	do
	:: rdead -> goto over
	:: atomic { !rdead && (len(tcp) > 0) && tcp_turn -> tcp?b; get(b); b = 0 }
	:: atomic { !rdead && ring_turn && h_wr > rd -> get(ring[rd]); h_rd = rd }
	:: atomic { !rdead && at_end -> assert(rd == wr); goto over }
	:: atomic { !rdead && ring_turn && h_wr <= rd && offer == OFFERED -> offer = DECLINED }
	:: atomic { !rdead && ring_turn && h_wr <= rd && offer == OFFERED -> offer = TAKING;
		    rxlock = true };
		atomic { at = o_at;
			if :: n = o_n :: n = 1 fi;
			if :: o_dev -> from_slot = true :: o_dev = false fi };
		if
		/* its device copies from there, some time */
		:: atomic { !rdead && from_slot && nfull(reads) && offer == TAKING ->
			o_taken = n; offer = READING; reads!at, n, rd; rd = rd + n; h_rd = rd;
#ifdef BREAK_TOLD
			h_read = rd;
#endif
			from_slot = false; at = 0; n = 0; rxlock = false; goto next }
		:: true
		fi;
		do
		:: rdead -> goto over
		:: !rdead && k == n -> break
		:: atomic { !rdead && k < n && from_slot -> got[k] = slot[at + k]; k++ }
		:: atomic { !rdead && k < n && !from_slot && !sdead -> got[k] = host[at + k]; k++ }
		/* process_vm_readv() fails */
		:: atomic { !rdead && k < n && !from_slot && sdead -> n = 0; k = 0 }
#ifdef STOPS
		:: atomic { !rdead && !sdead && k == 1 -> stopped = true; goto over }
#endif
		od;
		atomic {
#ifdef BREAK_COMMIT
			if
			:: n -> o_taken = n; offer = TAKEN
			:: else -> offer = REFUSED
			fi;
#else
			if
			:: n && offer == TAKING -> o_taken = n; offer = TAKEN
			:: !n && offer == TAKING -> offer = REFUSED
			:: else -> n = 0
			fi;
#endif
			at = 0; k = 0; from_slot = false;
			do
			:: k < n -> get(got[k]); got[k] = 0; k++
			:: else -> break
			od;
			if :: n == 0 -> got[0] = 0; got[1] = 0 :: n == 1 -> got[1] = 0 :: else fi;
			k = 0; b = n; n = 0 };
		atomic { if :: b -> b = 0; h_rd = rd :: else fi; rxlock = false }
	:: !rdead && !readable -> armed = true;
		if
		:: readable
		:: else -> bell || ((len(tcp) > 0) && tcp_turn) || (rx == RX_TCP && fin) ||
			end_of_sender || rdead
		fi;
		atomic { bell = false; armed = false;
			if :: end_of_sender && !readable -> goto over :: else fi }
	od;
over:	skip
}

#ifdef KILLS
active proctype World() {
	if
	:: sdead = true
	:: rdead = true
	fi
}
#endif
