/*
 * upload.pml - how a server that only reads is told its own ISN, and sees whether that is so
 * (docs/namespaces.md, learn_check_begin() in shim/netns/learn.c). It has a name of the client's
 * ISN alone, so both clients of twins come there: client 0, whose other end it is, and client 1,
 * whose server's ISN is another one, perhaps the next. Each says the ISN that it has learned; the
 * server takes for a moment no packet but such as acknowledge that. Names and macs: meet.pml.
 *
 * What goes wrong of itself: the program sends, forks, shuts its half or is killed at any moment;
 * packets wait in the kernel that have passed already. Acknowledgements are counted from 0: an ISN
 * of OWN and n bytes are OWN + n.
 *
 * Wanted: who is bound is client 0; no filter is left; of a process that is killed meanwhile the
 * FIN is acknowledged.
 *
 * Broken on purpose, each must be found: BREAK_CHECK (what a client says is believed), BREAK_DATA
 * (a packet with bytes passes that acknowledges one more, as if that were our FIN), BREAK_KILLED
 * (none passes that acknowledges our FIN), BREAK_FIRST (bytes count that had passed before),
 * BREAK_ACKED (it begins while something is unacknowledged), BREAK_SEND (the filter stays when the
 * program sends), BREAK_SHARED (or when it forks), BREAK_CLAIM (the second claim replaces the first
 * one, which is looked at), BREAK_BOUND (once it is known nobody compares), BREAK_OVER (the filter
 * stays when the search ends).
 */
#define OWN 1

#ifdef BREAK_KILLED
#define FIN_PASSES(k) false
#else
#ifdef BREAK_DATA
#define FIN_PASSES(k) true
#else
#define FIN_PASSES(k) (k == ACK)
#endif
#endif

#ifdef BREAK_SHARED
#define UNFIT (fin)
#else
#define UNFIT (fin || shared)
#endif

#ifdef BREAK_ACKED
#define UNACKNOWLEDGED false
#else
#define UNACKNOWLEDGED (una != sent)
#endif

mtype = { DATA, ACK };

chan wire = [2] of { mtype, byte };	/* from client 0's kernel to the server's */
byte sent, fin, una;			/* by the server; acknowledged of both together */
byte has;				/* ... of them, what client 0 has got */
byte lost;				/* packets with bytes that were dropped: they come again */
byte backlog;				/* packets that have passed and are not counted yet */
bool filter, got, drops;		/* since it was begun: bytes counted, one dropped */
byte expects;
bool shared, child, dead, over;

bool claimed, checks, heard, known;
byte claim, looked, own;

/* ---- the kernels ---- */

proctype kernel()
{
	byte a;
	mtype k;

end:	do
	:: atomic { wire?k, a ->
		if
		:: filter && a != expects && !(a == expects + 1 && FIN_PASSES(k)) ->
			assert(!(dead && looked == OWN && k == ACK));
			drops = true;
			if
			:: k == DATA -> lost++
			:: else
			fi
		:: else ->
			if
			:: a - OWN > una -> una = a - OWN
			:: else
			fi;
			if
			:: k == DATA -> backlog++
			:: else
			fi
		fi;
		k = 0; a = 0 }
	:: atomic { backlog > 0 -> backlog--; got = true }
	od
}

/* What client 0 sends, and sends again. */
proctype sender()
{
	byte left = 2;

	do
	:: atomic { left > 0 && nfull(wire) -> left--; wire!DATA, OWN + has }
	:: atomic { has < sent + fin && nfull(wire) -> has++; wire!ACK, OWN + has }
	:: atomic { lost > 0 && !filter && nfull(wire) -> lost--; wire!DATA, OWN + has }
	:: atomic { lost > 0 && dead -> lost = 0 }	/* and nobody waits for it any more */
	:: atomic { left == 0 && over && lost == 0 && has == sent + fin -> break }
	od
}

/* ---- the server's program ---- */

inline filter_off() { checks = false; filter = false }

proctype program()
{
	do
	:: atomic { !dead && !fin && sent == 0 ->
#ifndef BREAK_SEND
		filter_off();
#endif
		sent++;
		if			/* by a header of that packet */
		:: known = true; own = OWN
		:: true
		fi }
	:: atomic { !dead && !shared && !fin ->
#ifndef BREAK_SHARED
		filter_off();
#endif
		shared = true }
	:: atomic { shared && !child && !fin -> child = true; sent++ }	/* no wrapper of ours */
	:: atomic { !dead && !fin -> filter_off(); fin = 1 }
	:: atomic { !dead && !fin && !shared -> dead = true; fin = 1; break }
	:: break
	od
}

/* ---- the library at the server ---- */

/* BIND: so says a client. What is not bound, refused, or ended by that asks again. */
inline answer(says)
{
	if
	:: known ->
#ifndef BREAK_BOUND
		if
		:: own == says ->
#endif
			assert(says == OWN);
			over = true
#ifndef BREAK_BOUND
		:: else		/* refused */
		fi
#endif
#ifndef BREAK_CLAIM
	:: !known && claimed && claim != says	/* the same */
#endif
	:: else -> claimed = true; claim = says
	fi
}

inline begin()
{
	if
	:: UNFIT || UNACKNOWLEDGED -> claimed = false
	:: else ->
		checks = true;
		looked = claim;
		expects = claim + sent;
		drops = false; got = false; heard = false;
#ifdef BREAK_FIRST
		heard = true;
#endif
		filter = true
	fi
}

inline look()
{
	if
	:: UNFIT -> claimed = false; filter_off()
	:: else ->
		if
		:: !heard && backlog == 0 -> heard = true; got = false
		:: heard && got && !drops ->
			known = true; own = claim; claimed = false; filter_off()
		:: heard && drops && !got -> over = true	/* not one */
		:: claimed = false; filter_off()		/* nothing came in time */
		fi
	fi
}

proctype library()
{
	do
	:: atomic { !dead -> answer(OWN) }
	:: atomic { !dead -> answer(OWN - 1) }
	:: atomic { !dead -> answer(OWN + 1) }
#ifdef BREAK_CHECK
	:: atomic { !dead && claimed -> known = true; own = claim; claimed = false }
#else
	:: atomic { !dead && claimed && !checks -> begin() }
	:: atomic { !dead && claimed && checks -> look() }
#endif
	:: over -> break
	:: dead -> break
	:: break		/* its time is over */
	od;
	atomic {
		over = true;
		if
		:: !dead ->
#ifndef BREAK_OVER
			filter_off();
#endif
			assert(!filter)
		:: else
		fi
	}
}

init
{
	atomic { run kernel(); run sender(); run program(); run library() }
}
