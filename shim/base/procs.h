/*
 * procs.h - whether another process is there, and which one has a number. Any thread; errno is kept.
 */
#ifndef RDMASHIM_PROCS_H
#define RDMASHIM_PROCS_H

#include <stdbool.h>
#include <stdint.h>

#define OVERFLOW_UID 65534u	/* all whom a user namespace has no number for */

int process_ended(int pid);		/* 1: all its threads are, though it may be there still as a zombie; 0; -errno, -ESRCH if it is gone */
int process_of_pidfd(int pidfd);	/* its number, -1: not known */
uint64_t process_start(int pid);	/* when it began, in ticks of proc(5); 0: nobody says. With the number it names one process */
bool process_ending(int pid, uint64_t start);	/* that one is on its way through exit; false once it is gone */

#endif
