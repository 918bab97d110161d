/*
 * atfork.pml - Promela twin of what runs at a fork(): our handlers (shim/process/fork.c:
 * shim_fork_prepare(), shim_fork_parent(), shim_fork_child()) among those of other libraries
 * (shim/wrap/wrap_clone.c: fork_handlers_first()), and who takes whose lock meanwhile.
 *
 * libc runs the prepare handlers from the last that was registered to the first, then the others
 * from the first to the last. A foreign prepare handler uses a connection, joins a thread that is
 * in a call of ours, and takes the lock of its library, which its other handlers give back (so do
 * allocators and socket_wrapper). A second thread has that lock while it calls us; a third is in
 * a call of ours that goes on to that library.
 *
 * Wanted: fork() ends in the parent and in the child, and so do all handlers and calls.
 *
 * Broken on purpose, each must be found: BREAK_ORDER (ours is registered last), BREAK_UNDER
 * (another library is called under our lock).
 */
bool ours, theirs, stdio;	/* locks; stdio: of libc's list of streams, taken by its fork(),
				 * too */
bool joined;			/* the worker has ended */
byte done;
bool child_done;

#define TAKE(l) atomic { !l -> l = true }
#define GIVE(l) l = false

inline a_call() { TAKE(ours); GIVE(ours) }

inline foreign_prepare() {
	a_call();
	joined;
	TAKE(theirs)
}

inline foreign_after(a, b) {		/* the lock of the copy, or of the original */
	b = false;
	atomic { !a -> a = true };
	a = false
}

proctype Child(bool our_copy; bool their_copy) {
#ifdef BREAK_ORDER
	foreign_after(our_copy, their_copy);
	our_copy = false;
#else
	our_copy = false;
	foreign_after(our_copy, their_copy);
#endif
	child_done = true
}

proctype Forker() {
#ifdef BREAK_ORDER
	TAKE(stdio);
	TAKE(ours);
	foreign_prepare();
#else
	foreign_prepare();
#ifndef BREAK_STDIO
	TAKE(stdio);
#endif
	TAKE(ours);
#ifdef BREAK_STDIO
	TAKE(stdio);
#endif
#endif
	run Child(ours, theirs);
#ifdef BREAK_ORDER
	foreign_after(ours, theirs);
	GIVE(ours);
#else
	GIVE(ours);
	GIVE(stdio);
	foreign_after(ours, theirs);
#endif
	done++
}

proctype Worker() { a_call(); joined = true; done++ }

/* The other library, in the middle of something, calls us. */
proctype Theirs() { TAKE(theirs); a_call(); GIVE(theirs); done++ }

/* A stream of the program's own is flushed, with all others, and calls us. */
proctype Flushes() { TAKE(stdio); a_call(); GIVE(stdio); done++ }

/* A call of ours ends in the other library: dup2(), malloc(). */
proctype Passes() {
	TAKE(ours);
#ifdef BREAK_UNDER
	TAKE(theirs);
	GIVE(theirs);
	GIVE(ours);
#else
	GIVE(ours);
	TAKE(theirs);
	GIVE(theirs);
#endif
	done++
}

init {
	atomic { run Forker(); run Worker(); run Theirs(); run Passes(); run Flushes() }
	done == 5 && child_done
}
