/*
 * closer.h - closes descriptors whose close may wait for somebody else, in a thread of its own, so that
 * nobody of the program's or the library's waits with it.
 *
 * Such are: a socket into whose queue a stranger may have put something (it goes with the socket, and
 * the close of a lingering connection among it waits: SO_LINGER, socket(7)); a connection that lingers
 * itself; what a peer passed and is of no known kind (the close of a FUSE file waits for its daemon).
 *
 * The thread is there while there is something to close, with all signals blocked.
 */
#ifndef RDMASHIM_CLOSER_H
#define RDMASHIM_CLOSER_H

#include <stdbool.h>

/* Closes fd, one of ours or a plain number, some time soon. Any thread; no lock of the caller's is waited
 * for. Where no thread can be had it is closed here. */
void closer_take(int fd);
/* Few places are left: let in nobody whose descriptor would have to be closed so. */
bool closer_busy(void);
void closer_after_fork(void);

#endif
