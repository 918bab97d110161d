/*
 * bell.pml - who publishes and who goes to sleep (shim/base/bell.c, segment_notify() in
 * rdma/shm/segment.h, drain_one() in shim/link/link.c), under total store order: a store may be
 * seen by others later than what its thread reads after it. Each process has a store buffer of
 * one place for the plain store that matters (publisher: the cursor; sleeper: none is needed,
 * its bit is set by an atomic OR; with -DPLAIN_ARM it is a store, and the fence must make up for
 * it).
 *
 * Two sleepers: 0 sleeps in a blocking call and looks at the cursor, 1 is an epoll instance,
 * which looks only at the slots that are marked dirty. Wanted: both see all N publications, so
 * nobody sleeps for ever (no invalid end state); and a busy reader is not rung (no bell without
 * its bit).
 *
 * Broken on purpose, each must be found: NO_FENCE_TX (the publisher's fence), NO_FENCE_RX (with
 * PLAIN_ARM: the sleeper's), LOOK_FIRST (looks, then arms), SUMMARY_FIRST (the summary word
 * before the slot's bit), READ_CLEAR (the set of bells is read and cleared in two steps, not
 * taken), SKIP_MARKED (no ring when the slot was marked already).
 */
#ifndef N
#define N 3
#endif

byte wr;			/* the cursor in shared memory */
byte buffered;			/* newest cursor, perhaps not seen yet */
bool pending;			/* it is still in the store buffer */
bool armed[2], arming[2];	/* the bit, and with PLAIN_ARM its store in the buffer */
bool bell[2];			/* the descriptor is readable */
bool dirty, summary;
byte rd[2];

inline fence_tx() { d_step { if :: pending -> wr = buffered; pending = false :: else fi } }
inline fence_rx(k) { d_step { if :: arming[k] -> armed[k] = true; arming[k] = false :: else fi } }

/* The memory system empties the buffers when it likes. */
active proctype drain_stores()
{
end:	do
	:: d_step { pending -> wr = buffered; pending = false }
	:: d_step { arming[0] -> armed[0] = true; arming[0] = false }
	:: d_step { arming[1] -> armed[1] = true; arming[1] = false }
	od
}

active proctype publisher()
{
	byte i, k;
	bool marked, hit[2];

	do
	:: i == N -> break
	:: else ->
		i++;
		fence_tx();		/* one place: an older store leaves first */
		d_step { buffered = i; pending = true }
#ifndef NO_FENCE_TX
		fence_tx();
#endif
		marked = dirty;
		if
		:: !marked ->
#ifdef SUMMARY_FIRST
			d_step { fence_tx(); summary = true }
			dirty = true
#else
			/* an atomic OR empties the buffer, too */
			d_step { fence_tx(); dirty = true }
			summary = true
#endif
		:: else
		fi;
#ifdef SKIP_MARKED
		if :: marked -> goto next :: else fi;
#endif
		for (k : 0 .. 1) {
#ifdef READ_CLEAR
			hit[k] = armed[k];
			armed[k] = false;
#else
			d_step { hit[k] = armed[k]; armed[k] = false }
#endif
			if :: hit[k] -> bell[k] = true :: else fi
		}
next:		skip
	od
}

inline arm(k)
{
#ifdef PLAIN_ARM
	d_step { arming[k] = true };
#ifndef NO_FENCE_RX
	fence_rx(k);
#endif
#else
	armed[k] = true;
#endif
}

active proctype blocked_call()
{
	byte seen;

	do
	:: rd[0] == N -> break
	:: else ->
#ifdef LOOK_FIRST
		seen = wr;
		arm(0);
#else
		arm(0);
		seen = wr;
#endif
		if
		:: seen != rd[0] -> rd[0] = seen
		:: else -> d_step { bell[0] -> bell[0] = false }	/* poll() on the bell */
		fi
	od
}

active proctype epoll_instance()
{
	bool some;

	do
	:: rd[1] == N -> break
	:: else ->
		arm(1);
		d_step { some = summary; summary = false }
		if
		:: some ->
			d_step { some = dirty; dirty = false }
			if :: some -> rd[1] = wr :: else fi
		:: else -> d_step { bell[1] -> bell[1] = false }
		fi
	od
}
