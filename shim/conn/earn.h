/*
 * earn.h - whether a stream is worth an upgrade, and whether others like it were (earn.c).
 *
 * Observes: bytes and rounds of plain calls, approximately; how long upgraded streams went on.
 * Decides: when the other end is searched for, and when the search is repeated after nobody was
 *   found.
 * Switched off by earn_bytes 0: then streams are upgraded at once. Nothing is counted once a stream
 *   has earned.
 * Lock: none while the stream is young (a lost count does no harm), then those of both halves.
 */
#ifndef RDMASHIM_EARN_H
#define RDMASHIM_EARN_H

#include <stdbool.h>
#include <stdint.h>

struct stream;

struct earn {
	uint64_t bytes;
	uint32_t rounds;
	uint32_t place;		/* where it has earned by the policy's own figures; 0: not yet */
	/* a plain call touches nothing beyond this line */
	uint64_t with;		/* bytes that it had moved then */
	uint8_t firm;		/* `with` is what it, or one like it, had when it earned */
	uint8_t looked_up;	/* its place was */
	uint8_t judged;		/* it is known whether it lived on */
	uint8_t searched;	/* nobody was found, so often: again when it has moved much more */
	_Atomic uint8_t stopped;	/* policy says tcp: do not earn */
	uint64_t next_us;	/* not before */
};

/* ---- earn.c: not for wrappers. Anywhere, also in a signal handler; errno may be lost ---- */
/* by a call on TCP that sent (1) or received (2) */
void earn_moved(struct stream *s, uint64_t moved, uint8_t turn);
/* a call that begins may move so many */
void earn_will_move(struct stream *s, uint64_t n, uint8_t turn);
/* What other processes of the user know of places is read, once; from then on they are told. */
void earn_share_begin(void);
void earn_tell(void);		/* ... of what has been learned since. No lock of a stream is
				 * held */
void earn_after_fork(void);			/* in the child, which has one thread */
bool earn_early(struct stream *s);		/* it is to be upgraded at once, by what is known
						 * of its place */
void earn_asked(struct stream *s);		/* the other end has earned, and asks for it */
bool earn_again(struct stream *s);		/* a search was in vain: another when it has
						 * moved much more. False: it was the last */
void earn_over(struct stream *s);		/* the program has closed it, or it leaves the
						 * path: did it live on? */
/* Its counts of bytes and rounds are 0 again, as of a new connection: it must earn once more.
 * Both locks held, or no other thread has it. */
void earn_anew(struct stream *s);

#endif
