/*
 * search.h - a stream's search for the library at its other end, and what the search has found.
 *
 * Owns: the state of the search, its descriptor, whom it asks next, and what the other end's socket
 *   showed.
 * Who: the background thread alone (shim/discovery), with two exceptions. `waits` and `path` are
 *   written before the stream has a link, and read by any thread after that. `connect_us` and
 *   `syn_by_us` are written by connect(), before the background thread knows the stream.
 * Lock: none.
 */
#ifndef RDMASHIM_SEARCH_H
#define RDMASHIM_SEARCH_H

#include <stdint.h>

#include "base/sock.h"

enum search_state { SEARCH_NONE, SEARCH_LISTEN, SEARCH_TRY, SEARCH_ASKED, SEARCH_DONE,
		    SEARCH_FAILED, SEARCH_CALL, SEARCH_LATER };

struct search {
	uint8_t state;			/* enum search_state */
	uint8_t tries;
	uint8_t other;			/* one with another version of the library connected */
	uint8_t hung_up;		/* so often at our HELLO */
	int fd;				/* listening on the tuple's name, or -1 */
	uint8_t foreign;		/* the other end is another user's */
	uint8_t marked, unmarked;	/* its socket says: one of us, or nobody */
	/* takes the part of the end that accepted: search_awaits() */
	uint8_t waits;
	uint8_t path;			/* enum path_kind by which it goes, or would go */
	uint8_t lost;			/* paths that died under it: back-off */
	uint64_t due_us, end_us;
	uint32_t link;			/* next link to ask, or the one that was asked */
	uint8_t elsewhere;		/* links to other places, after those to the same */
	uint32_t hello;			/* waits for that link to come up: index + 1 */
	uint32_t slot;
	uint64_t connect_us;		/* when connect() was called, before the SYN went; ... */
	uint64_t syn_by_us;		/* ... by when it had gone, if once was enough */
	uint8_t syn_known;		/* between hosts: a server has it, or a client sent it */
	uint32_t syn, syn_isn;		/* the SYN's timestamp, its ISN; the kernel tells it once */
	/* across network namespaces, discovery/across.c */
	uint8_t across;			/* it is looked for there */
	uint8_t across_ready;		/* both ISNs are known, and go together */
	uint8_t across_done;		/* it was not there: perhaps on another host */
	uint8_t across_wrong;		/* so many who called had not the key */
	uint8_t across_half;		/* its name is of the client's ISN alone */
	uint8_t across_claimed;		/* its own is said to be that, and looked at: */
	uint32_t across_claim;
	uint64_t across_half_us;	/* when to do without its own */
	struct ctl_tuple across_its;	/* its names for the connection */
};

#endif
