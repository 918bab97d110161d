/*
 * child_holds.pml - Promela twin of a stream that is held by children that run no handlers and
 * take no lock (shim/process/fork.c: fork_child_holds(), ask_parent(), fork_check_requests();
 * shim/conn/holders.c: fork_may_cut(); shim/conn/stream_arm.c: stream_try_cut()).
 * fork.pml has those that do.
 *
 * Children come one after the other, as those of vfork do; each asks and uses the socket, twice
 * if it likes. The background thread cuts the stream when nobody shares it, a step at a time.
 *
 * Wanted: a child uses the socket only while the stream is on TCP, and waits for that never for
 * ever.
 *
 * Broken on purpose, each must be found: BREAK_LOOK (no second look at who shares it),
 * BREAK_AGAIN (what a child asked for meanwhile is not asked for again), BREAK_ENTER (a child
 * asks before it is in the holders).
 */
#define TCP 0
#define PATH 1

byte path = TCP, cuts;
bool in, want, on_tcp;		/* struct holders; one child at a time */
byte left = 2;			/* children */

inline child_holds() {
	if
	:: in && on_tcp
	:: else ->
#ifndef BREAK_ENTER
		in = true;
#endif
		on_tcp = false;
		want = true;
#ifdef BREAK_ENTER
		in = true
#endif
	fi;
	on_tcp;
	assert(path == TCP)
}

proctype Children() {
	do
	:: left > 0 ->
		child_holds();
		if
		:: child_holds()
		:: true
		fi;
		in = false;		/* it ends */
		left--
	:: else -> break
	od
}

proctype Background() {
end:	do
	:: path == TCP && cuts < 3 && !in ->	/* and all else that a cut takes: prepare() */
		want = false;			/* fork_may_cut() */
		on_tcp = false;
		if
#ifndef BREAK_LOOK
		:: in ->
#ifndef BREAK_AGAIN
			want = true
#endif
#endif
		:: !in -> cuts++; path = PATH
#ifdef BREAK_LOOK
		:: in -> cuts++; path = PATH
#endif
		fi
	:: want && !on_tcp ->			/* fork_check_requests() */
		path = TCP;
		on_tcp = true
	od
}

init {
	atomic { run Background(); run Children() }
	left == 0
}
