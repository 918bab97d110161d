/*
 * birth.pml - Promela twin of a child that libc's fork() does not make, beside threads of ours
 * (shim/wrap/wrap_clone.c: before_birth(), after_birth(); shim/base/own_thread.c;
 * shim/base/loop.c: run(), loop_hold()).
 *
 * A thread of the program starts ours, twice: it begins, works, in which it may take a lock of
 * libc's (malloc's), sleeps, works, and ends within libc, which takes such locks, too. Another
 * thread makes two children. In each the locks of libc, and its list of threads, are as they were
 * at that moment.
 *
 * Wanted: no child finds a lock of libc's that a thread of ours has, or a thread of ours that has
 * not begun to run; and nobody waits for ever.
 *
 * Broken on purpose, each must be found: BREAK_WORK (it is not asked whether ours works),
 * BREAK_BEGIN (nor whether one begins), BREAK_END (nor whether one ends), BREAK_LOOK (one that
 * begins has looked before it says so), BREAK_ENDS (the same of one that ends).
 */
bool libc;			/* a lock of libc's is held by a thread of ours */
bool at_work;
byte held, beginning;
bool leaving, gone = true;	/* one thread at a time: the next starts when the last is gone */
bool listed;			/* libc knows the thread, which has not run yet */
byte starts, births;

inline begin() {
#ifdef BREAK_LOOK
	held == 0;
	beginning++
#else
	do
	:: beginning++;
		if
		:: held == 0 -> break
		:: else -> beginning--; held == 0
		fi
	od
#endif
}

inline end() {
#ifdef BREAK_ENDS
	held == 0;
	leaving = true
#else
	do
	:: held == 0 ->
		leaving = true;
		if
		:: held == 0 -> break
		:: else -> leaving = false
		fi
	od
#endif
}

inline work() {
	atomic { !at_work -> at_work = true };
	libc = true;
	libc = false;
	at_work = false
}

proctype Ours() {
	listed = false;
	beginning--;
	work();
	work();
	end();
	libc = true;
	libc = false;
	gone = true
}

proctype Starter() {
	do
	:: starts < 2 ->
		gone;
		gone = false;
		leaving = false;
		begin();
		libc = true;		/* pthread_create() */
		libc = false;
		listed = true;
		run Ours();
		starts++
	:: else -> break
	od
}

proctype Parent() {
	do
	:: births < 2 ->
#ifndef BREAK_WORK
		atomic { !at_work -> at_work = true };
#endif
		held++;
#ifndef BREAK_BEGIN
		beginning == 0;
#endif
#ifndef BREAK_END
		!leaving || gone;
#endif
		assert(!libc && !listed);	/* the child */
		held--;
#ifndef BREAK_WORK
		at_work = false;
#endif
		births++
	:: else -> break
	od
}

init {
	atomic { run Starter(); run Parent() }
	starts == 2 && births == 2 && gone
}
