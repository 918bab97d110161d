/*
 * own_thread.h - a thread of the library's own in somebody else's process.
 *
 * A child made without libc's fork() (a raw clone(), _Fork()) has libc's state as it was at that
 * moment: the list of threads, from which setuid() and its kin wait for one that has just begun,
 * and every lock that a thread of ours had in malloc() or at its end. A program with one thread
 * need not care, and does not. So own_threads_hold() waits until ours are where they have nothing
 * of libc's.
 */
#ifndef RDMASHIM_OWN_THREAD_H
#define RDMASHIM_OWN_THREAD_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts run(arg): detached, with all signals blocked, on `cpus`, or NULL: where its maker may
 * be. 0 or an errno value; errno itself may change. run() begins with own_thread_begins() and
 * ends with own_thread_ends(). Not under a lock: what stands before libc's pthread_create() is
 * not ours. */
int own_thread(void *(*run)(void *arg), void *arg, const cpu_set_t *cpus);
void own_thread_begins(void);
/* Those that begin from now on have no supplementary groups, which the program's then need not be
 * compared with; all that are there must end. */
void own_threads_without_groups(void);
bool own_threads_have_groups(void);	/* not so, or one could not give them up */
void own_thread_ends(void);

/* From now on none of ours begins or ends. Waits for those that do, until `end_us` at most. */
void own_threads_hold(uint64_t end_us);
void own_threads_go_on(void);

/* How many there are. While one ends it may count as two. */
uint32_t own_threads(void);
uint32_t own_threads_made(void);		/* so far; grows before there is one more */
/* All have been told to end: waits for that, until `end_us` at most. */
void own_threads_await_end(uint64_t end_us);
void own_threads_after_fork(void);	/* in a child: there are none */

#endif
