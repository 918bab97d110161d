/*
 * turn.pml - calls that touch the program's memory, which may never be there, while nobody has the
 * lock of their half (shim/conn/stream_turn.c; stream_send.c: copy_in(); stream_recv.c: copy_out();
 * stream_recv_tcp.c). One direction: two threads send and one receives, a byte at a time, by a ring
 * of two bytes or by TCP; the machine cuts, freezes, sends again and closes at any moment at which
 * it gets the locks; the ring's pages are given back, and at last the slot is another stream's. A
 * fork passes through both locks.
 *
 * What a lock is held over is one atomic step. A thread that touches the program's memory may stop
 * there for good; whoever waits for its turn then waits, too.
 *
 * Wanted: every byte that send() has counted comes once, in its order, as it was; whatever stops,
 * the machine and the fork go on.
 *
 * Broken on purpose, each must be found: BREAK_LOCK_TX, BREAK_LOCK_RX (the lock is held over the
 * copy), BREAK_TURN (two calls copy to one
 * place), BREAK_LOOK_TX, BREAK_LOOK_RX (what
 * was copied counts without a look at what the machine has done), BREAK_EPOCH (the look is only
 * whether the ring is in use), BREAK_CLOSE (it counts behind the end), BREAK_IDLE (pages are given
 * back under a copy), BREAK_SLOT (the slot goes while a call is in its turn), BREAK_EARLY (the
 * reader says that it has read before it has copied).
 */
#define RING 2
#define EACH 2			/* bytes of each sender */
#ifndef STEPS
#define STEPS 4
#endif

byte ring[RING], truth[2 * EACH];
chan tcp = [2 * EACH] of { byte };
byte wr, rd, s_at, c_at, epoch;
bool on, rx_on, frozen;		/* sender and receiver on the ring; the rest is to be sent again */
bool turn_tx, turn_rx, lock_tx, lock_rx;
bool closed, gone, stuck_rx, stepped;

#ifdef BREAK_TURN
#define TURN_TX true
#else
#define TURN_TX !turn_tx
#endif
#ifdef BREAK_LOOK_TX
#define SAME_TX true
#else
#ifdef BREAK_EPOCH
#define SAME_TX (on && wr == at)
#else
#define SAME_TX (on && epoch == ep && wr == at)
#endif
#endif
#ifdef BREAK_LOOK_RX
#define SAME_RX true
#else
#define SAME_RX (rx_on && epoch == ep && rd == at)
#endif
#ifdef BREAK_CLOSE
#define OPEN true
#else
#define OPEN !closed
#endif
#ifdef BREAK_IDLE
#define IDLE true
#else
#define IDLE !turn_tx
#endif
#ifdef BREAK_SLOT
#define NO_TURN true
#else
#define NO_TURN (!turn_tx && !turn_rx)
#endif

inline clear() { ring[0] = 0; ring[1] = 0; }

proctype sender(byte me)
{
	byte at, ep, n = 0, v;
	bool mine;

next:	if
	:: n == EACH -> goto over
	:: else -> v = 1 + me * EACH + n
	fi;
again:
end_turn:
	atomic {
		!lock_tx && TURN_TX && (closed || (!frozen && (!on || wr - rd < RING)));
		if
		:: closed -> goto over
		:: else
		fi;
		turn_tx = true;
		at = wr; ep = epoch; mine = on;
#ifdef BREAK_LOCK_TX
		lock_tx = true
#endif
	};
	/* the program's memory */
	if
	:: true
	:: true ->
end_stuck:	false
	fi;
	if
	:: mine -> ring[at % RING] = v
	:: else		/* to memory of ours */
	fi;
	atomic {
#ifdef BREAK_LOCK_TX
		lock_tx = false;
#endif
		!lock_tx;
		turn_tx = false;
		if
		:: mine && SAME_TX && OPEN -> truth[wr] = v; wr++; n++
		:: !mine && !on && !frozen && OPEN -> tcp!v; truth[wr] = v; wr++; n++
		:: else -> goto again
		fi;
		assert(!closed)		/* nothing comes behind the end */
	};
	goto next;
over:	skip
}

proctype receiver()
{
	byte at, ep, v;
	bool mine;

again:
end_turn:
	atomic {
		!lock_rx && !turn_rx && ((rx_on && rd >= s_at && rd < wr) ||
					((!rx_on || rd < s_at) && nempty(tcp)));
		turn_rx = true;
		at = rd; ep = epoch; mine = rx_on && rd >= s_at;
		if
		:: !mine ->
			tcp?v; assert(v == truth[rd]); rd++
		:: else
		fi;
#ifdef BREAK_EARLY
		if
		:: mine -> rd++
		:: else
		fi;
#endif
#ifdef BREAK_LOCK_RX
		lock_rx = true
#endif
	};
	/* the program's memory */
	if
	:: true
	:: true -> stuck_rx = true;
end_stuck:	false
	fi;
	if
	:: mine -> v = ring[at % RING]
	:: else
	fi;
	atomic {
#ifdef BREAK_LOCK_RX
		lock_rx = false;
#endif
		!lock_rx;
		turn_rx = false;
		if
#ifdef BREAK_EARLY
		:: mine -> assert(v == truth[at])
#else
		:: mine && SAME_RX -> assert(v == truth[at] && rd == at); rd++
#endif
		:: else
		fi
	};
	goto again
}

/* Any step of the machine, for which both locks are to be had. */
proctype machine()
{
	byte n = 0, i;

	do
	:: n < STEPS ->
		n++;
		atomic {
			!lock_tx && !lock_rx;
			if
			:: !on && !frozen && !gone && !closed ->	/* a cut */
				s_at = wr; on = true; rx_on = true; epoch++
			:: on ->					/* the receiver freezes */
				c_at = rd; rx_on = false; on = false; frozen = true
			:: frozen ->					/* and back */
				i = (c_at > s_at -> c_at : s_at);
				do
				:: i < wr -> tcp!ring[i % RING]; i++
				:: else -> break
				od;
				frozen = false;
				clear()		/* the receiver gives the pages back */
			:: on && rd == wr && rd >= s_at && IDLE -> clear()
			:: !closed -> closed = true
			:: closed && !on && !frozen && !gone && NO_TURN && rd == wr ->
				gone = true; ring[0] = 99; ring[1] = 99
			:: true
			fi;
			i = 0
		}
	:: n == STEPS && frozen ->
		atomic {
			!lock_tx && !lock_rx;
			i = (c_at > s_at -> c_at : s_at);
			do
			:: i < wr -> tcp!ring[i % RING]; i++
			:: else -> break
			od;
			frozen = false;
			clear()
		}
	:: n == STEPS && !frozen -> break
	od;
	atomic { !lock_tx && !lock_rx; stepped = true }	/* as a fork */
}

init {
	atomic {
		run sender(0); run sender(1); run receiver(); run machine()
	};
	timeout;
	assert(stepped);
	assert(rd == wr || stuck_rx);
	assert(!gone || (ring[0] == 99 && ring[1] == 99))
}
