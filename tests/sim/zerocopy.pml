/*
 * zerocopy.pml - a block that its receiver reads by RDMA out of the sender's memory: the offer, its
 * take, its withdrawal, the fence, and the rewind of an offer (docs/zerocopy.md). One direction of
 * a stream; the cut that opened the path, and all after BACK, are those of cut.pml and
 * recovery.pml.
 *
 * Each send() has a block of LEN pieces, which go as records (through a ring) or are offered. The
 * program writes over the block as soon as send() has returned, and over the memory of a recv() as
 * soon as that has. A READ brings one piece: the sender's device answers it if the registration
 * stands and the queue pair lives, and the receiver's writes it later. The queue pair dies for each
 * end at any moment, after which it hears no more; records that are under way then may be heard by
 * the other end. The peer may be silent for as long as it likes: it is stopped.
 *
 * Wanted: every byte once and in order, none that was read after send() had returned, none written
 * after recv() has, and no state without a way on.
 *
 * Broken on purpose, each must be found: BREAK_FENCE (the offer to a silent peer is given up as it
 * is), BREAK_WAIT (a withdrawal is not answered for), BREAK_ANSWER (it is answered while
 * a READ is under way), BREAK_COUNT (a piece counts when its READ is posted), BREAK_FREEZE (the
 * receiver freezes while one is), BREAK_RETURN (recv() returns while one is), BREAK_BEHIND (a
 * record is sent behind an open offer), BREAK_ORDER (an offer is taken before what lies in the
 * ring), BREAK_OPEN (a rewind in which an open offer counts for nothing), BREAK_WHOLE (one in which
 * all of it does), BREAK_RESEND (the resend begins at S).
 */
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef LEN
#define LEN 2
#endif
#define BYTES (BLOCKS * LEN)
#define NOBODY 255

mtype = { OFFER, WITHDRAW, RECORD, TAKEN, REWIND, FROZEN, DEAD };
mtype = { IDLE, POSTED, FETCHED, DONE, FAILED };

chan records = [LEN + 2] of { mtype, byte };	/* of the sender's */
chan answers = [3] of { mtype, byte };
chan ctl_r = [1] of { mtype };
chan ctl_s = [3] of { mtype, byte };
chan tcp = [1] of { byte };

/* ---- the sender's */
byte sending = NOBODY;		/* whose block send() has in hand: its bytes are the stream's */
byte block, wr;			/* bytes that count as written */
bool mr;			/* the block is registered */
bool gone;			/* its queue pair is in error, or no more */
bool back;			/* the stream is on TCP again */
byte offers;

/* ---- the receiver's */
byte rd, landed;		/* bytes that count as read; that it was told of, in the ring */
byte got;			/* that its program has, truly */
byte from, taken;		/* of the offer */
bool offered, withdrawn, frozen, lost, told, into;	/* into: recv() has its memory in hand */
mtype io = IDLE;
bool right;			/* the bytes that the READ has brought are the stream's */
byte at;			/* which piece it reads */

#ifdef BREAK_ORDER
#define NEXT true
#else
#define NEXT (rd == from + taken)
#endif
#ifdef BREAK_FREEZE
#define MAY_FREEZE true
#else
#define MAY_FREEZE (io == IDLE)
#endif

/* What the devices do. */
active proctype Devices()
{
end:	do
	:: atomic { io == POSTED ->
		if
		:: mr && !gone && !lost -> right = (sending == at / LEN); io = FETCHED
		:: else -> lost = true; io = FAILED
		fi }
	:: atomic { io == FETCHED && !lost -> assert(into); io = DONE }
	:: atomic { io == FETCHED && lost -> io = FAILED }	/* flushed */
	od
}

inline take_record()
{
	if
	:: records?OFFER(at_r) ->
		assert(at_r == landed && !offered);
		offered = true; from = at_r; taken = 0; withdrawn = false
	:: records?WITHDRAW(at_r) ->
		if
		:: offered && io != IDLE ->
#ifdef BREAK_ANSWER
			answers!TAKEN(taken); offered = false
#else
			withdrawn = true
#endif
		:: offered && io == IDLE -> answers!TAKEN(taken); offered = false
		:: else			/* it was settled meanwhile */
		fi
	:: records?RECORD(at_r) -> assert(at_r == landed); landed++
	fi
}

/* A completion of its READ. */
inline complete()
{
	if
	:: io == DONE ->
#ifndef BREAK_COUNT
		rd++;
#endif
		assert(right && at == got);
		got++;
		taken++;
		landed = (landed < rd -> rd : landed);
		if
		:: !offered
		:: offered && !withdrawn && taken < LEN - from % LEN
		:: offered -> answers!TAKEN(taken); offered = false
		fi
	:: io == FAILED -> offered = false
	fi;
	io = IDLE; into = false
}

active proctype Receiver()
{
	byte at_r;

	do
	:: d_step { !lost && !frozen && len(records) > 0 && nfull(answers) -> take_record() }
	/* recv(): from the ring; the next piece of an offer, in order; or it has no room. */
	:: d_step { !frozen && rd < landed && io == IDLE -> assert(rd == got); rd++; got++ }
	:: d_step { offered && NEXT && !lost && !frozen && io == IDLE ->
		into = true; at = from + taken; io = POSTED;
#ifdef BREAK_COUNT
		rd++
#endif
		}
	:: d_step { offered && !lost && !frozen && io == IDLE && nfull(answers) ->
		answers!TAKEN(taken); offered = false }
	:: d_step { (io == DONE || io == FAILED) && nfull(answers) -> complete() }
#ifdef BREAK_RETURN
	:: into && io != IDLE -> into = false		/* a signal */
#endif
	:: d_step { !lost -> lost = true }
	:: d_step { lost && !told && nfull(ctl_s) -> told = true; ctl_s!DEAD(0) }
	:: d_step { !frozen && nempty(ctl_r) && nfull(ctl_s) && MAY_FREEZE ->
		ctl_r?REWIND; frozen = true; offered = false; ctl_s!FROZEN(rd) }
	:: d_step { nempty(tcp) && frozen && io == IDLE ->
		tcp?at_r; assert(at_r == got); rd++; got++ }
	:: rd == BYTES && back -> assert(got == BYTES); break
	od
}

/* Of a block that is fenced so much counts as the receiver says. [c, wr) goes by TCP: it lies in
 * the ring still. */
inline rewind()
{
	do
	:: ctl_s?DEAD(c)
	:: ctl_s?FROZEN(c) -> break
	od;
	if
#ifndef BREAK_OPEN
	:: fenced && c > wr -> assert(c - wr <= left); left = left - (c - wr); wr = c
#endif
	:: else
	fi;
	fenced = false;
	assert(c <= wr);
#ifdef BREAK_RESEND
	c = 0;
#endif
	do
	:: c < wr -> assert(c < ring_to); tcp!c; c++
	:: else -> break
	od;
	back = true
}

active proctype Sender()
{
	byte left, c, was, ring_to;	/* bytes below it went through the ring, which has them */
	bool asked, fenced;

	do
	:: block == BLOCKS -> break
	:: else ->
		sending = block;
		left = LEN;
		do
		:: left == 0 -> break
		:: left > 0 && back -> tcp!wr; wr++; left--
		:: left > 0 && !back && !gone && nfull(records) ->	/* by the ring */
			d_step { records!RECORD(wr); wr++; ring_to = wr; left-- }
		:: left > 0 && !back && !gone && nfull(records) && offers < BLOCKS + 1 ->
			d_step { mr = true; asked = false; was = wr; offers++; records!OFFER(wr) }
			do
			:: d_step { !gone && nempty(answers) ->
				answers?TAKEN(c); assert(c <= left);
				mr = false; wr = wr + c; left = left - c; c = 0 }
				break
			:: d_step { !gone && !asked && nfull(records) ->
				asked = true; records!WITHDRAW(was) }
#ifdef BREAK_WAIT
				mr = false;
				break
#endif
#ifdef BREAK_BEHIND
			:: d_step { !gone && !asked && nfull(records) && left > 0 ->
				records!RECORD(wr); wr++; ring_to = wr; left-- }
#endif
			/* The fence: the peer is silent, or the path is dead, as somebody says. */
#ifdef BREAK_FENCE
			:: true -> break
#endif
			:: d_step { true ->
				gone = true; mr = false;
#ifdef BREAK_WHOLE
				wr = wr + left; left = 0;
#endif
				fenced = true }
				ctl_r!REWIND;
				rewind();
				break
			od
		/* Or the path dies, or the stream goes home for another reason. */
		:: left > 0 && !back ->
			gone = true;
			ctl_r!REWIND;
			rewind()
		od;
		atomic { sending = NOBODY; block++ }
	od;
	if
	:: !back -> gone = true; ctl_r!REWIND; rewind()
	:: else
	fi
}
