/*
 * fork.pml - Promela twin of how processes share a stream (shim/process/fork.c:
 * shim_fork_prepare(), child_stream(), shim/conn/fork_touch.c: fork_child_touch(),
 * fork_check_requests(), ask_fallback(), on_tcp_now(); shim/conn/holders.c: holders_enter(),
 * holders_leave(), fork_shared(); shim/conn/stream_close.c: lock_for_close();
 * shim/conn/stream_arm.c: may_earn(), stream_try_cut()).
 *
 * Process 0 had the stream when it was alone: it cuts and rewinds it. Two of its threads fork a
 * child each, and the first child forks one of its own. Each child uses the socket, or closes
 * it, or dies; so does process 0, at any moment. The cut machine is one word here: on TCP, on
 * the path, or on its way back to TCP, which ends by itself (cut.pml).
 *
 * Wanted: a child uses TCP only while nobody has the stream on the path, or he who had it died
 * with it (then the peer resets the connection); no child waits for ever, so each wait ends
 * without the 30 s after which the code gives up.
 *
 * Broken on purpose, each must be found: BREAK_OWNER (a child waits as long as anybody else has
 * the socket), BREAK_WAIT (it asks and does not wait), BREAK_FORKING (a child counts from its
 * first step only), BREAK_SHARED (cut although shared), BREAK_CLEAR (what an earlier child
 * wanted stays true), BREAK_CLOSE (closed by process 0 while on the path), BREAK_COPY (the copy
 * of a cut stream looks uncut).
 */
#define P 0			/* C1 1, C2 2, C1's child 3 */
#define TCP 0
#define PATH 1
#define GOING 2
#define NOBODYS 3		/* closed by the last holder while on the path */

byte path = TCP;		/* of process 0 */
byte cuts;
bool alive[4], forked_cut[4];
bool done[4];			/* has used, or closed, or is dead */
bool in[4];			/* struct holders */
byte forking;
bool want, on_tcp, shut;

#define holds(x) (in[x] && alive[x])
#ifdef BREAK_FORKING
#define shared(x) ((x != 0 && holds(0)) || (x != 1 && holds(1)) || (x != 2 && holds(2)) || \
	(x != 3 && holds(3)))
#else
#define shared(x) (forking || (x != 0 && holds(0)) || (x != 1 && holds(1)) || \
	(x != 2 && holds(2)) || (x != 3 && holds(3)))
#endif
#ifdef BREAK_OWNER
#define hopeless(x) (!shared(x))
#else
#define hopeless(x) (!holds(P))
#endif

/* shim_fork_prepare(), fork(). The child's copy shows how it stood then: `forking` keeps a new
 * cut from starting. */
inline fork_one(x, child) {
	forking++;
	atomic {
		if
		:: holds(x) && !(x == P && shut) ->	/* the copy of a closed one is released */
			alive[child] = true;
#ifndef BREAK_COPY
			forked_cut[child] = (x == P && path != TCP) || forked_cut[x];
#endif
			run Child(child)
		/* died before; who counts `forking` is gone, and it stays */
		:: else -> done[child] = true; if :: child == 1 -> done[3] = true :: else fi
		fi }
}

inline touch(x) {
	if
	:: forked_cut[x] ->
		if
		:: !on_tcp ->
			want = true;
#ifndef BREAK_WAIT
			on_tcp || hopeless(x)
#endif
		:: else
		fi;
		forked_cut[x] = false
	:: else
	fi
}

proctype Child(byte x) {
	if
	:: atomic { true -> in[x] = true; forking-- }	/* child_stream() */
	/* before a handler has run: it counts for ever */
	:: atomic { true -> alive[x] = false; if :: x == 1 -> done[3] = true :: else fi; goto out }
	fi;
	if
	:: x == 1 -> fork_one(x, 3)
	:: x == 1 -> done[3] = true
	:: x != 1
	fi;
	if
	:: touch(x);
		/* Now the socket is used. */
		assert(path == TCP || !alive[P])
	:: true
	fi;
	if
	:: in[x] = false		/* closes */
	:: alive[x] = false		/* dies */
	:: true				/* keeps it */
	fi;
out:	done[x] = true
}

#define FORKER(child) \
	if \
	:: atomic { !holds(P) -> done[child] = true; if :: child == 1 -> \
		done[3] = true :: else fi } \
	:: holds(P) -> fork_one(P, child) \
	fi

proctype Fork1() { FORKER(1) }
proctype Fork2() { FORKER(2) }

/* The application of process 0, beside its forks. */
proctype App() {
	if
	:: atomic { alive[P] = false }
	:: true ->			/* lock_for_close(): TCP-only, so no cut comes after */
		atomic { shut = true; if :: shared(P) && path != TCP -> path = GOING :: else ->
			 path = (path == TCP -> TCP : NOBODYS) fi };
#ifndef BREAK_CLOSE
		path == TCP || path == NOBODYS;
#endif
		in[P] = false
	:: true
	fi
}

#ifdef BREAK_SHARED
#define may_cut true
#else
#define may_cut (!shared(P))
#endif

/* Its background thread, and the peer's answers. */
proctype Background() {
end:	do
	:: atomic { holds(P) && !shut && path == TCP && cuts < 2 && may_cut ->
		cuts++; path = PATH;
#ifndef BREAK_CLEAR
		want = false; on_tcp = false	/* fork_may_cut() */
#endif
		}
	:: atomic { alive[P] && path == GOING -> path = TCP }
	:: atomic { holds(P) && want && !on_tcp && path == PATH -> path = GOING }
	:: atomic { holds(P) && want && !on_tcp && path == TCP -> on_tcp = true }
	:: atomic { holds(P) && path == PATH -> path = GOING }	/* overflow, the peer's wish */
	od
}

init {
	atomic { alive[P] = true; in[P] = true; run Background(); run Fork1(); run Fork2();
		 run App() }
	done[1] && done[2] && done[3]
}
