/*
 * room.pml - programs that send before they read, and those who decide how much of that is
 * taken: the watch over a full ring (shim/conn/late.c, shim/conn/stream_full.c), and the bound
 * on what TCP takes from a connection that is about to be cut over (shim/conn/stream_hold.c).
 *
 * Each direction is on TCP, which takes BIG bytes, or LOW while it is held; or on a ring, which
 * takes RING. All programs end on TCP alone. TWO: both ends send SIZE bytes and then read. Else
 * three: A sends SIZE bytes to B and then one to C; C waits for that and then writes to B; B
 * waits for C before it reads what A sent. Wanted: everybody ends (no invalid end state),
 * wherever each direction began, and whenever it was cut over.
 *
 * Time is a step that may always be taken. Broken on purpose, each must be found: BREAK_LIMIT (a
 * full ring falls back only if the other end waits for room, too, and never by time alone: it is
 * the three that hang), BREAK_RELEASE (held until it is cut over).
 */
#ifndef SIZE
#define SIZE 3
#endif
#define BIG  (SIZE + 1)
#define LOW  1
#define RING 1

#define AB 0
#define BA 1
#define AC 2
#define CB 3

mtype = { HELD, FREE, PATH };

mtype at[4];
byte tcp[4], ring[4];
bool waits[4];			/* its sender waits for room */

inline fall_back(d) { at[d] = FREE; tcp[d] = tcp[d] + ring[d]; ring[d] = 0 }

inline put(d, back)
{
	waits[d] = false;
	do
	:: d_step { at[d] == PATH && ring[d] < RING -> ring[d]++ } break
	:: d_step { at[d] == HELD && tcp[d] < LOW -> tcp[d]++ } break
	:: d_step { at[d] == FREE && tcp[d] < BIG -> tcp[d]++ } break
	:: d_step { at[d] == PATH && ring[d] == RING && !waits[d] -> waits[d] = true }
	:: d_step { at[d] == HELD && tcp[d] >= LOW && !waits[d] -> waits[d] = true }
	/* The other end waits for room, too. */
	:: d_step { at[d] == PATH && ring[d] == RING && waits[d] && waits[back] -> fall_back(d) }
#ifndef BREAK_LIMIT
	/* So long was waited. */
	:: d_step { at[d] == PATH && ring[d] == RING && waits[d] -> fall_back(d) }
#endif
	od;
	waits[d] = false
}

inline get(d)
{
	do
	:: d_step { tcp[d] > 0 -> tcp[d]-- } break
	:: d_step { tcp[d] == 0 && ring[d] > 0 -> ring[d]-- } break
	od
}

/* The background thread: cuts over, and releases what it has not. What TCP still has comes
 * first, and the ring takes no more than TCP could take back. */
proctype background(byte d)
{
end:	do
	:: d_step { at[d] == HELD -> at[d] = PATH }
#ifndef BREAK_RELEASE
	:: d_step { at[d] == HELD -> at[d] = FREE }
#else
	:: at[d] == HELD -> break	/* nobody is found */
#endif
	:: d_step { at[d] == FREE && tcp[d] + RING <= BIG -> at[d] = PATH }
	:: at[d] == FREE -> break
	od
}

proctype both(byte out, in)
{
	byte i;

	for (i : 1 .. SIZE) { put(out, in) }
	for (i : 1 .. SIZE) { get(in) }
}

proctype a()
{
	byte i;

	for (i : 1 .. SIZE) { put(AB, BA) }
	put(AC, BA)
}

proctype b()
{
	byte i;

	get(CB);
	for (i : 1 .. SIZE) { get(AB) }
}

proctype c()
{
	get(AC);
	put(CB, BA)
}

init
{
	byte d;

	for (d : 0 .. 3) {
		if :: at[d] = HELD :: at[d] = FREE :: at[d] = PATH fi;
	}
	atomic {
		for (d : 0 .. 3) { run background(d) }
#ifdef TWO
		run both(AB, BA);
		run both(BA, AB)
#else
		run a();
		run b();
		run c()
#endif
	}
}
