/*
 * procs.h - whether another process is there, and which one has a number.
 * Any thread; errno is kept.
 */
#ifndef RDMASHIM_PROCS_H
#define RDMASHIM_PROCS_H

#include <stdbool.h>
#include <stdint.h>

#define OVERFLOW_UID 65534u	/* all whom a user namespace has no number for */

/* 1: all its threads are, though it may still be a zombie; 0; -errno, -ESRCH if it is gone. */
int process_ended(int pid);
int process_of_pidfd(int pidfd);	/* its number, -1: not known */
/* When it began, in ticks of proc(5); 0: nobody says. With the number it names one process. */
uint64_t process_start(int pid);
/* That one is on its way through exit; false once it is gone. The second has its pidfd, and may be
 * of any PID namespace. */
bool process_ending(int pid, uint64_t start);
bool process_ending_of(int pidfd);
/* Its first thread has work to do, and a processor, or waits for one. */
bool process_runnable(int pid, uint64_t start);
uint64_t process_cpu_ns(int pid);	/* so long all its threads had a processor; 0: not known */

#endif
