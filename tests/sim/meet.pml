/*
 * meet.pml - how the two ends of a connection meet in a directory (docs/namespaces.md): server i
 * opens a name, client j knocks, each proves the key, and the server compares what names the
 * connection. Two pairs; the connections have names of their own, or, with SAME, one (twins whose
 * ISNs are the same). A client may have a link to the other pair's server, and asks there first. A
 * squatter, who has no key, may take a name or knock at it. Each process may die at each step.
 *
 * Wanted: whoever is bound is bound to its own other end, or the names are the same; nobody is
 * bound by a name from the moment that a second server has found it taken; nothing is passed to
 * who has not proven the key; and everybody ends.
 *
 * Broken on purpose, each must be found: BREAK_MAC (the client does not look at the server's),
 * BREAK_HELLO (nor the server at the client's), BREAK_TAKEN (a name that is taken says nothing to
 * its holder), BREAK_COMPARE (who asks over a link is believed), BREAK_END (who waits for one that
 * died waits on).
 */
#define NONE 9
#define SQUATTER 8

#ifdef SAME
#define T(i) 0
#else
#define T(i) i
#endif

byte holder[2] = NONE;		/* of a name: server, SQUATTER, NONE */
bool taken[2];			/* a second server has found it taken: told to the holder */
bool second[2];			/* ... whether it was told or not */
bool over[4];			/* dead, or its search has ended: 0, 1 servers; 2, 3 clients */
byte caller[2] = NONE;		/* who is at the server's name */
bool hello[2];			/* he has said HELLO; with the right mac, but for the squatter */
bool passed[2];			/* WELCOME */
byte asks[2] = NONE;		/* at the server: BIND of that client */
bool bound[2], refused[2];	/* the client's answer */

inline may_die() { if :: goto end :: true fi }

/* BIND of client c at server i */
inline answer(i, n, c)
{
#ifndef BREAK_TAKEN
	if
	:: taken[n] -> refused[c] = true
	:: else ->
#endif
		if
#ifndef BREAK_COMPARE
		:: T(c) != n -> refused[c] = true
		:: else ->
#else
		:: true ->
#endif
			assert(T(c) == n && !second[n]);
			bound[c] = true
		fi
#ifndef BREAK_TAKEN
	fi
#endif
}

proctype server(byte i)
{
	byte n = T(i), c;

	may_die();
	atomic {
		if
		:: holder[n] == NONE -> holder[n] = i
		:: holder[n] == SQUATTER -> goto end
		:: else -> taken[n] = true; second[n] = true; goto end
		fi
	}
	do
	:: atomic { hello[i] && !passed[i] ->
		if
#ifndef BREAK_HELLO
		:: caller[i] == SQUATTER -> caller[i] = NONE; hello[i] = false	/* wrong */
		:: else ->
#else
		:: true ->
#endif
			assert(caller[i] != SQUATTER);
			passed[i] = true
		fi }
		may_die()
	:: atomic { asks[i] != NONE ->
		c = asks[i]; asks[i] = NONE; answer(i, n, c) }
		may_die()
	:: break	/* its time is over */
	od;
end:
	atomic {
		over[i] = true;
		if
		:: holder[n] == i -> holder[n] = NONE
		:: else
		fi
	}
}

inline ask(at)
{
	asks[at] = j;
	if
	:: bound[j] -> goto end
	:: refused[j] -> refused[j] = false
#ifndef BREAK_END
	:: over[at]
#endif
	fi
}

proctype client(byte j)
{
	byte n = T(j), at = NONE;

	may_die();
	if
	:: atomic { asks[1 - j] == NONE && !over[1 - j] -> ask(1 - j) }	/* a link that is up */
	:: true
	fi;
	if
	:: atomic { holder[n] == SQUATTER } ->
#ifdef BREAK_MAC
		assert(false);			/* HELLO, and a descriptor, to him */
#endif
		goto end			/* its mac is wrong */
	:: atomic { holder[n] < 2 && caller[holder[n]] == NONE ->
		at = holder[n]; caller[at] = j }
	:: goto end				/* its time is over */
	fi;
	may_die();
	hello[at] = true;
	if
	:: passed[at]
#ifndef BREAK_END
	:: over[at] -> goto end
#endif
	fi;
	may_die();
	if
	:: atomic { asks[at] == NONE -> ask(at) }
#ifndef BREAK_END
	:: over[at]
#endif
	fi;
end:
	over[j + 2] = true
}

/* He sees names in the directory, takes the place of one, or knocks. */
proctype squatter()
{
	byte n;

	if :: n = 0 :: n = 1 fi;
	if
	:: holder[n] = SQUATTER
	:: atomic { holder[n] < 2 && caller[holder[n]] == NONE ->
		caller[holder[n]] = SQUATTER; hello[holder[n]] = true }
	:: true
	fi
}

init
{
	atomic { run server(0); run server(1); run client(0); run client(1); run squatter() }
}
