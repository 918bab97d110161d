/*
 * rdma-wait.pml - Promela twin of who hears the completions of one queue pair (rdma/verbs/rc.c:
 * rc_poll(), poll_once(), leave(); rc_wait.c: rc_arm(), rc_arm_own(), rc_event(), rc_unwatched();
 * shim/link/path_rdma.c: woken(), others(); wire.c: wire_ready(); link_net.c: watch(); link.c:
 * links_set_armed(), links_clear_armed(); shim/conn/stream_wait.c: stream_wait()), at one end,
 * step by step.
 *
 * SLEEPERS threads sleep in blocking calls on the completion channel, beside their bells. With
 * -DPASSER another arms this link, as all others, when it goes to sleep, but for a stream of
 * another link, so that it never polls here; with -DPOSTER one posts what has to wait for
 * completions, and leaves. The background thread hears the channel if it was asked to, once for
 * each time. N completions come. Wanted: both sleepers see all, what waited is posted.
 *
 * The device: of a completion that comes after a request an event tells, once. One that was
 * there before the request makes none.
 *
 * Broken on purpose, each must be found: BREAK_REQUEST (the word says "requested" before it is),
 * BREAK_LOOK (looks, then arms), BREAK_AGAIN (who finds the queue being polled leaves no note),
 * BREAK_WATCH (what waits relies on a sleeper's own request), BREAK_REARM (who takes the event
 * does not look who sleeps), BREAK_NOTIFY (a poll rings nobody).
 */
#ifndef N
#define N 2
#endif
#ifndef SLEEPERS
#define SLEEPERS 1
#endif
#ifndef PASSES
#define PASSES 1		/* how often the third goes to sleep */
#endif
#define THIRD 2

/* The device. */
byte cq;			/* completions that nobody has taken */
bool requested;			/* the next makes an event */
byte channel;			/* events in it: its descriptor is readable */

/* struct rc */
byte armed, events;		/* armed == events + 1: an event will come, or came and was not
				 * taken */
bool watched, again, polling;
byte waits;			/* completions until all can be posted */
bool watching;			/* conf.watch(): the background thread hears the channel, once */

/* struct link, segment, bells */
bool bell_armed[3], sleeping[3], bell[3], direct[3];
byte changed, left = N;

inline notify(k) {
	for (k : 0 .. 2) {
		if
		:: bell_armed[k] -> bell_armed[k] = false;
			if :: sleeping[k] -> sleeping[k] = false; bell[k] = true :: else fi
		:: else
		fi
	}
	k = 0
}

inline arm_own() {
#ifdef BREAK_REQUEST
	atomic { was = armed; armed = 1 };
	if :: !was -> requested = true :: else fi;
#else
	at = events;
	if
	:: armed == at + 1
	:: else -> requested = true; armed = at + 1
	fi;
#endif
	was = 0; at = 0
}

inline arm_watched() {
	arm_own();
	if
	:: watched
	:: else -> atomic { was = watched; watched = true }
		if :: !was -> watching = true :: else fi; was = 0
	fi
}

#ifdef BREAK_REQUEST
#define is_armed armed
#else
#define is_armed (armed == events + 1)
#endif

#ifdef BREAK_WATCH
#define arm_more() arm_own()
#else
#define arm_more() arm_watched()
#endif

/* Two places here may come back to the start: arming within the poll makes it look again. */
inline poll() {
	do
	:: atomic { polling ->
#ifdef BREAK_AGAIN
		break
#else
		again = true
#endif
		}
		if
		:: atomic { !polling -> polling = true; again = false }
		:: atomic { polling -> break }
		fi;
		take_all()
	:: atomic { !polling -> polling = true; again = false }
		take_all()
	od
}

inline take_all() {
	if
	:: atomic { cq -> n = cq; changed = changed + cq; cq = 0 }
#ifndef BREAK_NOTIFY
		atomic { notify(k) };
#endif
		atomic { waits = (waits > n -> waits - n : 0); n = 0 }
		if
		:: atomic { waits && !(is_armed && watched) } -> arm_more(); again = true
		:: else
		fi
	:: atomic { !cq }
	fi;
	polling = false;
	if :: atomic { again } :: atomic { !again -> break } fi
}

/* path_rdma.c */
inline completions() {
	atomic { got = channel > 0; if :: got -> channel-- :: else fi };
#ifdef BREAK_REQUEST
	if :: got -> armed = 0 :: else fi;
#else
	if :: got -> events++ :: else fi;
#endif
	got = false;
	poll();
#ifndef BREAK_REARM
	if
	:: atomic { (bell_armed[0] && !direct[0]) || (bell_armed[1] && !direct[1]) ||
		    (bell_armed[2] && !direct[2]) || waits } ->
		arm_watched(); poll()
	:: atomic { else } ->
		if
		:: (bell_armed[0] && direct[0]) || (bell_armed[1] && direct[1]) -> arm_own(); poll()
		:: else
		fi
	fi
#endif
}

#define OWN byte k, n, at; bool was, got

/* One that has heard enough goes away. */
#define ENOUGH(me) ((me) == 0 && SLEEPERS == 2 -> 1 : N)

#if SLEEPERS
active [SLEEPERS] proctype Sleeper() {
	OWN;
	byte seen, me = _pid;

	do
	:: seen = changed;		/* a call looks before it waits */
		if :: seen >= ENOUGH(me) -> break :: else fi;
		direct[me] = true;
#ifdef BREAK_LOOK
		poll(); seen = changed;
#endif
		atomic { sleeping[me] = true; bell_armed[me] = true };
		arm_own();
#ifndef BREAK_LOOK
		poll();
		atomic { if :: changed != seen -> seen = changed; bell_armed[me] = false;
			 direct[me] = false; sleeping[me] = false; goto next :: else fi };
#endif
		bell[me] || channel;
		atomic { sleeping[me] = false; bell_armed[me] = false; direct[me] = false;
			 bell[me] = false };
		if
		:: channel -> completions()
		:: else
		fi;
next:		skip
	od
}

#endif

#ifdef PASSER
active proctype Third() {
	OWN;
	byte passes;

	do
	:: passes == PASSES -> break
	:: else -> passes++;
		atomic { sleeping[THIRD] = true; bell_armed[THIRD] = true };
		arm_watched();
		atomic { sleeping[THIRD] = false; bell_armed[THIRD] = false; bell[THIRD] = false }
	od
}

#endif

#ifdef POSTER
/* rc_publish(): leave() */
active proctype Poster() {
	OWN;

	/* what it waits for is still to come */
	atomic { if :: left -> waits = left :: else -> waits = 0 fi };
	poll();
	if
	:: waits ->
		arm_more(); poll()
	:: else
	fi;
	!waits
}

#endif

active proctype Background() {
	OWN;

end:	do
	:: atomic { watching && channel -> watching = false; watched = false }
		completions()
	od
}

active proctype Device() {
	do
	:: atomic { left -> left--; cq++; if :: requested -> requested = false;
		    channel++ :: else fi }
	:: atomic { !left -> break }
	od
}
