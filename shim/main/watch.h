/*
 * watch.h - notices changes of the policy file and of those that it includes; see watch.c. For
 * the background thread.
 */
#ifndef RDMASHIM_WATCH_H
#define RDMASHIM_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* The policy is about to be read: what changes meanwhile is seen by the next look. */
void watch_loading(void);
/* The thread starts: watching begins `watch_after` later. */
void watch_begin(uint64_t now);
/* The policy was read again: perhaps it includes others now. True: of these nobody knows what
 * happened to them since. */
bool watch_deps(void);
void watch_end(void);
bool watch_event(void);		/* something came, with the tag 0: does it concern the policy? */
/* Begins to watch when it is time to; without inotify, of which a user may have 128 instances
 * and so many watches in all his processes, the files are looked at once in a second. Returns
 * when to come again; never, if they are watched. */
uint64_t watch_look(uint64_t now, bool *changed);

#endif
