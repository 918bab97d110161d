/*
 * own_thread.h - a thread of the library's own in somebody else's process.
 */
#ifndef RDMASHIM_OWN_THREAD_H
#define RDMASHIM_OWN_THREAD_H

#include <sched.h>

/* Starts run(arg): detached, with all signals blocked, on `cpus`, or NULL: where its maker may be. 0 or an errno value; errno itself may change. */
int own_thread(void *(*run)(void *arg), void *arg, const cpu_set_t *cpus);

#endif
