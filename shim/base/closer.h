/*
 * closer.h - closes descriptors whose close may wait for somebody else, in threads of its own, so
 * that nobody of the program's or the library's waits with it.
 *
 * Such are: a socket with something in its queue (it goes with the socket, and the close of a
 * lingering connection among it waits: SO_LINGER, socket(7)); a connection that lingers itself;
 * what a peer passed and is of no known kind (the close of a FUSE file waits for its daemon,
 * perhaps for ever). The latter have a thread apart from the sockets'.
 *
 * What waits is in the table of descriptors (fd_apart()), and nowhere else. A thread is there while
 * there is something to close, with all signals blocked. Where none can be had it is tried again.
 */
#ifndef RDMASHIM_CLOSER_H
#define RDMASHIM_CLOSER_H

#include <stdbool.h>
#include <stdint.h>

/* Closes fd, one of ours, some time soon. Nothing is waited for. Not under a lock. */
void closer_take(int fd);
/* The same in two steps, the first under fd_number_lock(), also for a number that the kernel has
 * just given. */
void closer_put(int fd);
void closer_start(void);

/* Of a kind whose close asks nobody, unless it is the last of a connection that lingers: sockets,
 * files in memory and timers have no flush operation, of which that of a FUSE file waits for its
 * daemon. And what is O_PATH of a socket: it keeps no connection. */
bool closer_knows(int fd);
/* Many wait: let in nobody whose descriptor would have to be closed so. */
bool closer_busy(void);
/* The same, and what is being closed takes long: whoever brings more is no honest peer. Waits for
 * the thread's turn, 50 ms at most. */
bool closer_stuck(void);
/* Background thread: what could not be done is tried again. When to come next. */
uint64_t closer_work(uint64_t now);
/* dup2() onto a number that may be one of these: true if it is free within 100 ms. */
bool closer_vacate(int fd);
void closer_quit(void);		/* its threads end when they can; no more until closer_resume() */
void closer_resume(void);	/* closer_start() is to follow */
void closer_after_fork(void);

#endif
