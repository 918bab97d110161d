/*
 * places.h - the file in which a user's processes on this host share what they know of the places
 * that they connect to and accept at: PLACES words, <dir>/PLACES_FILE, mode 0600, <dir> as
 * stat_dir_nth() has it. What a word says is its reader's (shim/conn/earn.c).
 *
 * Any process of the user may write anything there at any time: who reads a word believes only what
 * is harmless if it is wrong. The file is not mapped: a child that has given its user up must not
 * have it, and who cuts it short ends nobody by SIGBUS.
 */
#ifndef RDMASHIM_PLACES_H
#define RDMASHIM_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PLACES 1024
#define PLACES_FILE "places.1"	/* another number when words mean something else */

/* Writes those of `words` (PLACES of them) whose bits are set in `changed`, and reads the others.
 * The file is made if it is not there and something has changed; its directory is not. False: it
 * cannot be, or is not what it should be, and `words` are as they were. `uid`: whose it must be.
 * By syscall(2), no malloc, no locks, any thread; errno is lost. */
bool places_exchange(uid_t uid, const uint64_t changed[PLACES / 64], uint64_t words[PLACES]);

#endif
