/*
 * hold.h - around what makes a descriptor, uses it and closes it: in a process of somebody
 * else's another thread may mean the number that it gets. Who loads this code there says what
 * keeps the others off. Nothing between the two may wait for another thread, allocate or log.
 */
#ifndef RDMASHIM_HOLD_H
#define RDMASHIM_HOLD_H

#include <stdbool.h>

extern void (*fd_hold)(bool hold);	/* does nothing unless set; keeps errno */

#endif
