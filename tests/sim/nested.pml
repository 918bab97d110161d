/*
 * nested.pml - an epoll instance that is waited for through its descriptor
 * (shim/poll/ready_nested.c): by another instance, poll or select. Its bell is always armed, or
 * has rung and is in the kernel's ready list of the instance, where an outer wait sees it.
 *
 * publisher: N publications, each marks the slot dirty and rings if the bell is armed (the
 * fences are bell.pml's matter: here all is in order).
 * inner: a thread that waits in the instance itself now and then, with no time: takes dirty
 * bits, and the kernel's ready list. It may also sleep there once, and be the last to leave.
 * outer: sleeps in the kernel until the instance is readable (with -DEDGE: until it was rung
 * anew since it was told last), makes sure that there is something, and then waits inside until
 * there is nothing more, as programs do (with -DREADS: reads, and never waits inside).
 *
 * TWO: two outer waits prove at the same time.
 *
 * DEEP: the outer wait does not watch the instance itself but another one, in which it is: what it
 * finds is told only if the kernel says so, too.
 *
 * Wanted: what is published is taken, so nobody sleeps for ever (no invalid end state), and the
 * outer wait is never told of an instance in which there is nothing while nobody else takes
 * anything (-DALONE). A proof has an end, once nothing more comes (TWO, no cycle without progress).
 *
 * Broken on purpose, each must be found: NO_LOOK (no look after arming), NO_SETTLE (who took the
 * bell's event out of the kernel's list leaves the bell as it is), NO_ATTENTION (who queues what
 * is dirty does not ring for the outer waits), DISARM (the last sleeper inside disarms),
 * SILENCE_LAST (silenced after the last look), EDGE and READS with NO_ARM (a bell that told is
 * not armed at once), DEEP with NO_WAIT (nobody waits for what another thread has in hand), ALONE
 * with NO_PROOF (the kernel's word is passed on), ALONE and READS with BELIEVE (it is passed on
 * after a proof in which a bell rang).
 */
#ifndef N
#define N 3
#endif

byte wr, rd;			/* published, taken */
bool dirty, queued;		/* the slot's mark, and the item in the instance's list */
bool armed;			/* who publishes rings */
bool asleep;			/* struct bell.sleeping: who queues rings */
bool ticks, listed;		/* the timer, and the kernel's list of the instance */
bool taking;			/* a lock: one has taken what is dirty, and not queued it yet */
bool fresh;			/* something came since the outer wait was told */
bool edge;			/* the outer instance has it in its own list */

#define READY (queued && wr != rd)
#ifdef EDGE
#define ALWAYS false		/* an outer wait of edges is not told of the same again */
#else
#define ALWAYS true
#endif

inline ring() { d_step { ticks = true; listed = true; edge = true } }
inline arm() { d_step { armed = true; asleep = true } }
inline bell_ring() { if :: d_step { asleep -> asleep = false }; ring() :: else fi }

/* links_drain() by a thread that tells of what it finds. */
inline drain()
{
	d_step { was = dirty; dirty = false };
	if
	:: was ->
		d_step { queued = true; fresh = true };
#ifndef NO_ATTENTION
		bell_ring()
#endif
	:: else
	fi
}

/* By one who looks whether there is anything, and does not ring for it. Level: what is ready stays
 * in the list. */
inline peek()
{
	if
	:: dirty ->
		d_step { !taking -> taking = true };
		d_step { was = dirty; dirty = false };
		if :: was -> d_step { queued = true; fresh = true } :: else fi;
		taking = false
	:: else
	fi;
#ifndef NO_WAIT
	if :: !taking fi;
#endif
	d_step { found = READY; queued = found; news = fresh }
}

inline settle()
{
	arm();
#ifdef NO_LOOK
	d_step { found = false; news = false };
#else
	peek();
#endif
	if :: found && (news || ALWAYS) -> bell_ring() :: else fi
}

/* epoll_wait(inner, 0) of one event: by the paths, and by the kernel. */
inline wait_inside()
{
	drain();
	d_step { took = READY; if :: took -> rd = wr :: else fi; queued = false };
	d_step { bell = listed && ticks; listed = false };
#ifndef NO_SETTLE
	if :: bell -> settle() :: else fi;
#endif
	bell = false
}

active proctype publisher()
{
	byte i;
	bool hit;

	do
	:: i == N -> break
	:: else ->
		i++;
		wr = i;
		dirty = true;
		d_step { hit = armed; armed = false };
		if :: hit -> ring() :: else fi
	od
}

active proctype inner()
{
	byte rounds;
	bool was, found, news, took, bell;

#if !defined(ALONE) && !defined(TWO)
	do
	:: rounds < 2 -> rounds++; wait_inside()
	:: rounds < 2 ->	/* sleeps there, and has a timeout */
		rounds++;
		arm();
		drain();
#ifdef DISARM
		d_step { armed = false; asleep = false }
#endif
	:: break
	od
#endif
}

#ifdef EDGE
#define WAKES edge
#else
#define WAKES (listed && ticks)
#endif

#ifdef TWO
#define OUTERS 2
#define OVER false	/* who takes something does not end the other's proof by that */
#else
#define OUTERS 1
#define OVER (rd == N)
#endif

active [OUTERS] proctype outer()
{
	bool was, found, news, took, bell, proved;

	settle();	/* the instance is watched from now on */
	do
	:: OVER -> break
	:: else ->
#ifdef TWO
end:
#endif
		if
		:: d_step { WAKES -> edge = false; proved = listed && ticks }
		:: OVER -> break
		fi;
		if :: !proved -> goto again :: else fi;	/* an edge that no longer holds */
#ifndef NO_PROOF
prove:
#ifndef NO_ARM
		arm();
#endif
		peek();
		if
#ifdef DEEP
		:: found -> proved = listed && ticks
#else
		:: found
#endif
		:: else ->
#ifdef SILENCE_LAST
			settle();
			d_step { ticks = false; listed = false };
#else
			d_step { ticks = false; listed = false };
			settle();
#endif
			if
			:: found
			:: else ->	/* rung meanwhile, perhaps for what was taken long ago */
#ifdef BELIEVE
				proved = listed && ticks
#else
				if :: listed && ticks -> goto prove :: else -> proved = false fi
#endif
			fi
		fi;
#endif
		if
		:: proved ->
			fresh = false;
#ifdef ALONE
			assert(wr != rd);
#endif
#ifdef READS
			rd = wr
#else
			do
			:: wait_inside(); if :: took :: else -> break fi
			od
#endif
		:: else
		fi;
again:
progress:	skip
	od
}
