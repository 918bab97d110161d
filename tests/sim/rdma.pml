/*
 * rdma.pml - Promela twin of the flow on one queue pair (rdma/verbs/rc.c): rc_publish(),
 * rc_credit(), post_slot(), post_chunk(), chunk(), held(), signalled(), flush(), acknowledge(),
 * acknowledge_if_due(), got_record(), got_slot(). Both ends write and read one stream; a rewind
 * and a new cut of the direction 0 -> 1 happen between any two steps. Who wakes whom is
 * rdma-wait.pml's.
 *
 * One step is what the code does under `post`. An end takes completions only if it has a reason:
 * its reader or its writer waits, or something could not be posted (leave()); beside that at
 * most BUSY times, as a spinning thread would. So an end that relies on a poll which nobody
 * makes is found as a state without a way on.
 *
 * A byte's value is its offset. A WRITE lands as soon as it is posted, payload when its record
 * is taken up: later, for a WRITE, changes nothing that anybody may look at. What waits to be
 * taken up is the queue `rcq`. Wanted: every byte in order, both writers through, both know at
 * last that all was consumed.
 *
 * Smaller than the code: RECVS buffers for 256, a record is one request or two, a unit of the
 * ring is what one record may carry. Numbers of records are kept relative to what the peer has
 * acknowledged. A rewind is one step here; recovery.pml has its messages.
 *
 * Broken on purpose, each must be found: BREAK_FENCE (a WRITE of a new epoch beside older
 * payload), BREAK_SIGNAL (only every so many sends are signalled), BREAK_ASKS (who collects does
 * not ask for the answer that it waits for), BREAK_OWES (asked, and no answer), BREAK_RESERVE
 * (no buffer is kept for acknowledgements), BREAK_ACK (acknowledged only if asked), BREAK_FLUSH
 * (a completion brings nothing on its way), BREAK_FINAL (consumption after FINAL is told as
 * before it), BREAK_SEEN (FINAL does not tell what was consumed before).
 */
#ifndef BYTES0
#define BYTES0 3		/* from end 0 to end 1 */
#endif
#ifndef BYTES1
#define BYTES1 3
#endif
#ifndef CUTS
#define CUTS 1			/* rewinds of 0 -> 1, each with a new cut */
#endif
#ifndef BUSY
#define BUSY 0
#endif
#ifndef RING
#define RING 2
#endif
#ifndef RECVS
#define RECVS 3			/* receive buffers, so the window */
#endif
#ifndef SENDS
#define SENDS 4			/* places of the send queue */
#endif
#ifndef ACK_EACH
#define ACK_EACH 2		/* RC_RECVS / 4: acknowledged without being asked */
#endif
#ifndef COLLECT
#define COLLECT 2
#endif
#define FLOW 1
#ifndef CREDIT_EACH
#define CREDIT_EACH 2		/* ring_size / 4 */
#endif
#define COLLECT_BELOW 3
#define SIGNAL_EACH 3
#define SMALL 1			/* bytes that a record carries */
#define ROOM 2			/* requests that one record may need */
#ifdef BREAK_RESERVE
#define RESERVE 0
#else
#define RESERVE 1
#endif

#define BYTES(e) ((e) -> BYTES1 : BYTES0)
#define OTHER(e) (1 - (e))

/* about the slot?, payload?, value, wr, rd, final, records newly taken up, asks */
chan rcq[2] = [RECVS] of { bool, bool, byte, byte, byte, bool, byte, bool };

byte ring[2 * RING], land[2 * RING];		/* [e * RING + position]; the landing ring has
						 * the bytes that e wrote */
byte wr[2], rdk[2];		/* sender: bytes in its ring, and consumed, as it knows */
byte inwr[2], rd[2];		/* receiver: bytes that were told, and consumed */
bool fin[2], infin[2];
byte cut[2], epoch[2], cuts;

/* struct rc, struct rc_slot */
byte outst[2], unsig[2], scq[2];	/* requests that are not known to be done; the newest
					 * that are not signalled; done and not taken */
byte under_way[2], untold[2];		/* records: sent, not acknowledged; taken up, not told */
byte last[2], small[2], fence[2];	/* beyond what is acknowledged; 0: taken up */
bool owes[2], pending[2], credit[2], asked[2], fin_told[2], flow[2];
byte want[2], told[2], told_rd[2], slepoch[2];
byte busy[2];
bool batch[2];

#define due(e) (want[e] - told[e])
#define held(e) (asked[e] && due(e) < COLLECT_BELOW && last[e] && !credit[e] && \
	fin[e] == fin_told[e])
#define less(x, n) x = (x > n -> x - n : 0)

/* post_record(): n requests. What it says lies in the caller's variables. */
inline post(e, n) {
	outst[e] = outst[e] + n; unsig[e] = unsig[e] + n;
	if
#ifdef BREAK_SIGNAL
	:: unsig[e] >= SIGNAL_EACH ->
#else
	:: unsig[e] >= SIGNAL_EACH || outst[e] >= COLLECT ->
#endif
		scq[e] = scq[e] + unsig[e]; unsig[e] = 0
	:: else
	fi;
	assert(nfull(rcq[OTHER(e)]));
	rcq[OTHER(e)]!about, payload, val, upto, (about -> rd[e] : 0), (about && fin_told[e]),
		untold[e], asks;
	owes[e] = false; untold[e] = 0;
	under_way[e]++
}

#define OWN byte pn, upto, val, k; bool asks, about, payload	/* of whoever posts */

inline post_slot(e, collect) {
	do
	:: due(e) == 0 && !credit[e] && fin[e] == fin_told[e] -> pending[e] = false; break
	:: else ->
		if
		:: SENDS - outst[e] < ROOM || under_way[e] >= RECVS - RESERVE || held(e) ||
		   (collect && due(e) < COLLECT_BELOW && outst[e] >= COLLECT) ->
			pending[e] = true; break
		:: else ->
			pn = due(e);
#ifndef BREAK_FENCE
			if :: fence[e] && pn > SMALL -> pn = SMALL :: else fi;
#endif
			payload = pn > 0 && pn <= SMALL;
			told[e] = told[e] + pn;
			upto = told[e];
			if
			:: payload -> val = ring[e * RING + (upto - 1) % RING]
			:: else ->
				for (k : 1 .. pn) { land[e * RING + (upto - k) % RING] =
						    ring[e * RING + (upto - k) % RING] }
				k = 0
			fi;
			asks = flow[e] && pn > 0 && pn < COLLECT_BELOW;
			if :: told[e] == want[e] -> fin_told[e] = fin[e] :: else fi;
			credit[e] = false; told_rd[e] = rd[e];
			if :: pn > 0 -> asked[e] = asks; last[e] = under_way[e] + 1 :: else fi;
			if :: payload -> small[e] = under_way[e] + 1 :: else fi;
#ifdef BREAK_ASKS
			asks = false;
#endif
			about = true;
			post(e, (pn > SMALL -> 2 : 1));
			pn = 0; upto = 0; val = 0; asks = false; payload = false; about = false
		fi
	od
}

inline publish(e) {
	if
	:: slepoch[e] != epoch[e] -> slepoch[e] = epoch[e]; told[e] = cut[e]; fin_told[e] = false;
	fence[e] = small[e]
	:: else
	fi;
	want[e] = wr[e];
	flow[e] = last[e] || pending[e];
	post_slot(e, true)
}

/* rc_credit(): rd is read before `post` is taken, but it only grows. */
inline tell_credit(e) {
	if
#ifdef BREAK_FINAL
	:: rd[e] > told_rd[e] && rd[e] - told_rd[e] >= CREDIT_EACH -> credit[e] = true;
	post_slot(e, false)
#else
	:: rd[e] > told_rd[e] && (rd[e] - told_rd[e] >= CREDIT_EACH || infin[e]) ->
		credit[e] = true; post_slot(e, false)
#endif
	:: else
	fi
}

active [2] proctype Writer() {
	byte n; OWN;
	byte e = _pid % 2;

	do
#ifdef ANSWER	/* closes when it was answered, so by then it must have been understood */
	:: atomic { wr[e] == BYTES(e) && rd[OTHER(e)] == BYTES(e) -> fin[e] = true; publish(e);
		    break }
#else
	:: atomic { wr[e] == BYTES(e) -> fin[e] = true; publish(e); break }
#endif
	:: atomic { wr[e] < BYTES(e) && wr[e] - rdk[e] < RING ->
		n = 1;
		if :: wr[e] + 1 < BYTES(e) && wr[e] + 1 - rdk[e] < RING -> n = 2 :: true fi;
		do
		:: n > 0 -> ring[e * RING + wr[e] % RING] = wr[e]; wr[e]++; n--
		:: else -> break
		od;
		publish(e) }
	od;
	rdk[e] == wr[e]		/* then FIN */
}

active [2] proctype Reader() {
	OWN;
	byte e = _pid % 2;

	do
	:: atomic { inwr[e] > rd[e] -> assert(land[OTHER(e) * RING + rd[e] % RING] == rd[e]);
		    rd[e]++;
#ifdef SPLIT
		}
		atomic {
#endif
		tell_credit(e) }
	:: atomic { rd[e] == BYTES(OTHER(e)) && infin[e] -> break }
	od
}

#define wants(e) (pending[e] || (wr[e] < BYTES(e) && wr[e] - rdk[e] == RING) || \
	(fin[e] && rdk[e] < wr[e]) || \
		  (inwr[e] <= rd[e] && !(rd[e] == BYTES(OTHER(e)) && infin[e])))

inline completion(e) {
	if
	:: nempty(rcq[e]) ->
		rcq[e]?about, payload, val, w, r, f, ack, ask;
		assert(ack <= under_way[e]);
		under_way[e] = under_way[e] - ack;
		less(last[e], ack); less(small[e], ack); less(fence[e], ack);
		untold[e]++;
#ifndef BREAK_OWES
		owes[e] = owes[e] || ask;
#endif
		if :: payload -> land[OTHER(e) * RING + (w - 1) % RING] = val :: else fi;
		if :: w > inwr[e] -> inwr[e] = w :: else fi;
		if :: r > rdk[e] -> rdk[e] = r :: else fi;
		about = false; payload = false; val = 0; w = 0; r = 0; ack = 0; ask = false;
		if
		:: f && !infin[e] -> f = false; infin[e] = true;
#ifndef BREAK_SEEN
			tell_credit(e)
#endif
		:: else -> f = false
		fi
	:: scq[e] -> outst[e] = outst[e] - scq[e]; scq[e] = 0
	fi
}

/* flush(), acknowledge_if_due() */
inline after_batch(e) {
#ifndef BREAK_FLUSH
	if :: pending[e] -> post_slot(e, false) :: else fi;
#endif
	if
#ifdef BREAK_ACK
	:: untold[e] && owes[e] && outst[e] < SENDS && under_way[e] < RECVS ->
#else
	:: untold[e] && (untold[e] >= ACK_EACH || owes[e]) && outst[e] < SENDS &&
		under_way[e] < RECVS ->
#endif
		post(e, 1)
	:: else
	fi
}

/* Whoever polls at this end: takes some of what has come. With -DSPLIT others post between two
 * completions. */
active [2] proctype Poller() {
	byte w, r, ack; bool f, ask; OWN;
	byte e = _pid % 2;

end:	do
#ifdef SPLIT
	:: atomic { (nempty(rcq[e]) || scq[e]) && !batch[e] && wants(e) -> batch[e] = true }
	:: atomic { (nempty(rcq[e]) || scq[e]) && !batch[e] && !wants(e) && busy[e] < BUSY ->
		    busy[e]++; batch[e] = true }
	:: atomic { batch[e] && (nempty(rcq[e]) || scq[e]) -> completion(e) }
	:: atomic { batch[e] -> batch[e] = false; after_batch(e) }
#else
	:: atomic { (nempty(rcq[e]) || scq[e]) && (wants(e) || busy[e] < BUSY) ->
		if :: wants(e) :: else -> busy[e]++ fi;
		do
		:: completion(e);
			if :: nempty(rcq[e]) || scq[e] :: break fi
		od;
		after_batch(e) }
#endif
	od
}

/* Rewind and new cut: what was not consumed went by TCP, and the ring is opened at S. Nothing on
 * the wire hears of it. */
active proctype Rewind() {
end:	do
	:: atomic { cuts < CUTS && !fin[0] && wr[0] > cut[0] ->
		cuts++;
		cut[0] = wr[0]; rdk[0] = wr[0]; epoch[0]++;
		rd[1] = wr[0] }
	od
}
