/*
 * learn.pml - the error queue of a socket while its ISNs are learned (shim/netns/learn.c), and the
 * program's threads that wait for edges of the socket meanwhile.
 *
 * The sender's header comes into the queue when it sends, or later, and once more if the packet is
 * sent again; not after a reset, which may come at any time. Each of them wakes each waiter once.
 * A waiter that was woken is told ERR by the kernel as long as the queue is not empty or there is
 * a reset. Wanted: no waiter passes on an ERR without a reset (assert), each hears of the reset if
 * there is one (else it waits for ever, an invalid end), and the header is not lost, whoever took
 * it out of the queue (the background's assert).
 *
 * Whoever has emptied the queue cannot tell by another poll: the next copy may have come. What
 * can be told is the state: with a reset it is CLOSE, and then nothing comes any more.
 *
 * Broken on purpose, each must be found: BREAK_FILTER (who finds ERR passes it on), BREAK_EMPTY
 * (it is dropped, and nothing asked), BREAK_STATE (ERR is believed that comes after the queue was
 * empty), BREAK_LATE (waiters do not empty the queue, which they take for the sender's), BREAK_KEEP
 * (a waiter that takes the header throws it away), BREAK_LEARNED (when the header is known the
 * socket is not looked after any more).
 */
#ifndef WAITERS
#define WAITERS 2
#endif
#ifndef COPIES
#define COPIES 2
#endif

byte queue;		/* headers in the error queue */
byte left = COPIES;	/* packets that may still bring one */
bool sent, closed, can_reset = true;
bool known;		/* the header is */
bool after;		/* waits look at what ERR means */
bool wake[WAITERS];
byte gone;		/* waiters that have ended */

#define ERR (queue > 0 || closed)
#define OVER (!can_reset && !closed && sent && left == 0)

inline wake_all()
{
	byte w;

	w = 0;
	do
	:: w < WAITERS -> wake[w] = true; w++
	:: else -> break
	od;
	w = 0
}

inline header_comes() { d_step { left--; queue++; wake_all() } }

inline drain(keep)
{
	do
	:: atomic { queue > 0 -> queue--; if :: keep -> known = true :: else fi }
	:: atomic { queue == 0 -> break }
	od
}

active proctype sender()
{
	after = true;		/* before it sends */
	atomic {
		sent = true;
		if
		:: left > 0 && !closed -> header_comes()	/* at once */
		:: true						/* or late */
		fi
	}
	drain(true);
#ifdef BREAK_LEARNED
	if
	:: known -> after = false
	:: else
	fi
#endif
}

/* What the network does. */
active proctype network()
{
	do
	:: atomic { sent && left > 0 && !closed -> header_comes() }
	:: atomic { can_reset && left < COPIES ->
		can_reset = false; closed = true; left = 0; wake_all() }
	:: atomic { can_reset -> can_reset = false }
	:: atomic { !can_reset && sent && left == 0 -> break }
	od
}

/* The background thread's last look: a header that came when nobody waited is known. */
active proctype background()
{
	sent && left == 0 && gone == WAITERS;
	drain(true);
	assert(known)
}

/* What ERR of that socket means. */
inline truly(err)
{
	skip;
#ifndef BREAK_FILTER
	if
	:: after ->
#ifdef BREAK_KEEP
		drain(false);
#else
#ifndef BREAK_LATE
		drain(true);
#endif
#endif
#ifdef BREAK_EMPTY
		err = false
#else
#ifdef BREAK_STATE
		err = ERR
#else
#ifdef BREAK_LATE
		err = ERR
#else
		err = closed;
		if
		:: err -> drain(true); err = ERR
		:: else
		fi
#endif
#endif
#endif
	:: else
	fi
#endif
}

active [WAITERS] proctype waiter()
{
	byte me = _pid - 3;
	bool err;

	do
	:: atomic { wake[me] -> wake[me] = false; err = ERR }
		if
		:: err -> truly(err)
		:: else
		fi;
		if
		:: err -> assert(closed); break
		:: else
		fi
	:: atomic { OVER && queue == 0 && !wake[me] -> break }
	od;
	gone++
}
