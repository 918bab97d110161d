/*
 * mem.pml - Promela twin of a lock whose owner may be in the program's memory, of which a page
 * never comes (shim/base/lock.h, lock.c), of the background thread, and of who forks
 * (shim/conn/stream_lock.c, shim/main/stream_work.c: stream_work(); shim/process/fork.c).
 *
 * Two calls of the program copy with the lock, one of which gives it for a while and takes it
 * back, and a page may not come until the background thread and who forks are through with all
 * that they want. (SHORT: one call, and a thread that takes the lock for a short stretch.) The
 * background thread comes, and again for what a fork left: it shuts the lock to calls that copy,
 * takes it, and opens it; or puts the stream off. Who forks passes through, or leaves word that it
 * has to be done.
 *
 * Wanted: one owner at a time; the background thread, once it has shut the lock, waits for
 * nobody who copies; what a fork left is done; and nobody waits for ever.
 *
 * Broken on purpose, each must be found: BREAK_SHUT (it is not shut), BREAK_GIVE (whoever gives it
 * opens it), BREAK_KIND (who goes to sleep forgets what the owner is), BREAK_BACK (one who takes
 * it back does not say that he copies), BREAK_OPEN (opening wakes nobody), BREAK_WORD (the word of
 * a fork is taken before the lock is shut), BREAK_LEAVE (who was woken and leaves does not see to
 * it that another is).
 */
#define HELD 1
#define SLEEPS 2
#define MEM 4
#define SHUT 8
#define COPIES (HELD | MEM)

#ifndef ROUNDS
#define ROUNDS 1
#endif

byte v;				/* the word */
byte owners;
bool asleep[5];
bool bg_done, fork_done;
bool owed, passed;		/* what a fork left; it has been done, by whomever */

#define is_free(x, as) (!((x) & HELD) && !(((x) & SHUT) && ((as) & MEM)))

inline wake_one() {
	if
	:: asleep[0] -> asleep[0] = false
	:: asleep[1] -> asleep[1] = false
	:: asleep[2] -> asleep[2] = false
	:: asleep[3] -> asleep[3] = false
	:: asleep[4] -> asleep[4] = false
	:: else
	fi
}

inline wake_all() {
	asleep[0] = false; asleep[1] = false; asleep[2] = false; asleep[3] = false;
	asleep[4] = false
}

inline owns() { owners++; assert(owners == 1) }

/* futex: nobody sleeps if the word is another one now */
inline sleep_on(me, x) {
#ifdef BREAK_KIND
	atomic { v == x -> v = (x & SHUT) | HELD | SLEEPS; asleep[me] = true };
#else
	atomic {
		if
		:: v == x -> v = x | SLEEPS; asleep[me] = true
		:: else
		fi
	}
#endif
}

inline take(me, as, x) {
	slept = false;
	do
	:: atomic {
		x = v;
		if
		:: x == 0 && !slept -> v = as; owns(); break
		:: (x || slept) && is_free(x, as) -> v = x | as | SLEEPS; owns(); break
		:: else
		fi
	   };
	   sleep_on(me, x);
	   slept = true;
	   !asleep[me]
	od
}

/* As take(HELD) but that it may end where the owner copies. */
inline soon(me, x, got) {
	do
	:: atomic {
		x = v;
		if
		:: is_free(x, HELD) -> v = x | HELD | SLEEPS; owns(); got = true; break
		:: else
		fi
	   };
	   if
#ifdef BREAK_LEAVE
	   :: x & MEM -> got = false; break
#else
	   :: x & MEM -> atomic {
		if
		:: v == x -> v = x | SLEEPS; got = false; break
		:: else
		fi
	      }
#endif
	   :: !(x & MEM) ->
		sleep_on(me, x);
		if
		:: !asleep[me]
		:: v & MEM -> asleep[me] = false	/* its time is up */
		fi
	   fi
	od
}

inline give(x) {
	atomic {
		owners--;
		x = v;
#ifdef BREAK_GIVE
		v = 0;
#else
		v = x & SHUT;
#endif
		if
		:: x & SLEEPS && x & SHUT -> wake_all()
		:: x & SLEEPS && !(x & SHUT) -> wake_one()
		:: else
		fi
	}
}

inline give_and_shut(x) {
	atomic {
		owners--;
		x = v;
#ifdef BREAK_SHUT
		v = 0;
#else
		v = SHUT;
#endif
		if
		:: x & SLEEPS -> wake_all()
		:: else
		fi
	}
}

inline open(x) {
	atomic {
		x = v;
		v = x & ~SHUT;
#ifndef BREAK_OPEN
		if
		:: x & SLEEPS -> wake_one()
		:: else
		fi
#endif
	}
}

inline copy() {
	if
	:: true
	:: true -> bg_done && fork_done		/* the page comes at last */
	fi
}

proctype Call(byte me) {
	byte x;
	bool slept;	/* whoever has does not know who else does */

	take(me, COPIES, x);
	copy();
	if
	:: me == 0 ->
		give(x);
#ifdef BREAK_BACK
		take(me, HELD, x);
#else
		take(me, COPIES, x);
#endif
		copy()
	:: else
	fi;
	give(x);
	x = 0
}

proctype Short() {
	byte x;
	bool slept;

	take(2, HELD, x);
	give(x)
}

proctype Background() {
	byte x, i;
	bool got, word, slept;

	do
	:: i < ROUNDS || (fork_done && !passed) ->
		if
		:: i < ROUNDS -> i++
		:: else
		fi;
#ifdef BREAK_WORD
		atomic { word = owed; owed = false };
#endif
		soon(3, x, got);
		if
		:: got ->
			give_and_shut(x);
#ifndef BREAK_WORD
			atomic { word = owed; owed = false };
#endif
			/* lock_take(), which must not wait for who copies */
			do
			:: atomic {
				x = v;
				assert(!(x & MEM));
				if
				:: is_free(x, HELD) ->
					v = (slept -> x | HELD | SLEEPS : x | HELD);
					owns();
					break
				:: else
				fi
			   };
			   sleep_on(3, x);
			   slept = true;
			   !asleep[3]
			od;
			slept = false;
			passed = passed || word;
			give(x);
			open(x)
		:: !got && i == ROUNDS && !bg_done -> bg_done = true
		:: !got && (i < ROUNDS || bg_done)
		fi;
		assert(!fork_done || owed || passed);
		x = 0
	:: i == ROUNDS && !bg_done -> bg_done = true
	:: i == ROUNDS && bg_done && fork_done && passed -> break
	od
}

proctype Forks() {
	byte x;
	bool got;

	soon(4, x, got);
	if
	:: got -> passed = true; give(x)
	:: else -> owed = true
	fi;
	fork_done = true
}

init {
	atomic {
		run Call(0);
#ifdef SHORT
		run Short();
#else
		run Call(1);
#endif
		run Background();
		run Forks()
	}
}
