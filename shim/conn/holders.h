/*
 * holders.h - who holds the socket of a stream beside this process: a struct holders, in memory
 * that all descendants share, has their pids. It is for fork.c; others ask fork_shared()
 * (stream_life.h).
 *
 * No locks: the child of a vfork, which runs in its parent's memory, enters itself.
 */
#ifndef RDMASHIM_HOLDERS_H
#define RDMASHIM_HOLDERS_H

#include "base/shim.h"
#include "conn/stream.h"

#define HOLDERS_PIDS 11

struct holders {
	_Atomic uint32_t forking, want_fallback, on_tcp;
	_Atomic uint32_t crowded;	/* more holders than pids: shared for ever */
	_Atomic int32_t pids[HOLDERS_PIDS];	/* negative: that thread is about to have a child */
	_Atomic int32_t owner;		/* who may have it on a path */
};
_Static_assert(sizeof(struct holders) == 64, "one cache line per holders");

/* The bells of those who may have a stream of ours on a path, the nearest first; -1: none. */
#define FORK_ANCESTORS 4
extern int fork_parent_bells[FORK_ANCESTORS];
bool fork_is_bell(int fd);	/* the number is still a timerfd as the library makes them */
bool fork_ring_fd(int fd);	/* false: the program has closed it by a call that we don't see */

/* Zombies hold no fds; of our own children we know. A thread's id stands for itself, negative. */
bool process_lives(int pid);

/* The stream's struct holders, made with this process in it if necessary. NULL: no struct is left.
 */
struct holders *holders_of(struct stream *s);
void holders_close(void);		/* a child comes: the next holders lie where it does not
					 * see them */
void holders_enter(struct holders *c, int pid);
bool holders_has(struct holders *c, int pid);
void holders_swap(struct holders *c, int32_t from, int to);
void holders_leave(struct holders *c);		/* this process, which holds it no more */
/* Asks the process that has the stream on a path to take it back to TCP; it looks when its bell
 * rings. */
void holders_want_fallback(struct holders *c);
void holders_say_on_tcp(struct holders *c);		/* says so to all who wait for it */
/* Waits until that is reported, or for a moment only: the process that would report it may have
 * ended, or a child that was taken over may have silenced the bell unnoticed. False: `end_us` has
 * come. */
bool holders_await_on_tcp(struct holders *c, uint64_t end_us);
uint32_t holders_requests(void);			/* counts the calls of that, of all
							 * processes */

/* A holder is gone, or will not be: the stream may be searched for and cut again. */
void fork_less_shared(struct stream *s);

#endif
