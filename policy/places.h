/*
 * places.h - what is known of the places that a user's processes on this host connect to and accept at, in a file that they share: PLACES words,
 * <dir>/PLACES_FILE, mode 0600, <dir> as stat_dir_nth() has it. What a word says is its reader's (shim/earn.c).
 *
 * Any process of the user may write anything there at any time: who reads a word believes only what is harmless if it is wrong. A word is
 * written in one piece.
 */
#ifndef RDMASHIM_PLACES_H
#define RDMASHIM_PLACES_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define PLACES 1024
#define PLACES_FILE "places.1"	/* another number when words mean something else */

/* Maps the file, which is made if it is not there; the directory is not. NULL: it cannot be, or is not what it should be. By syscall(2), no malloc. */
_Atomic uint64_t *places_open(uid_t uid);

extern _Atomic(_Atomic uint64_t *) places_shared;	/* that, or NULL */
void places_share(uid_t uid);	/* once: a child has its parent's. One thread at a time */

#endif
