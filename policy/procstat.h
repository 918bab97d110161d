/*
 * procstat.h - the text of /proc/PID/stat: proc_pid_stat(5).
 */
#ifndef RDMASHIM_PROCSTAT_H
#define RDMASHIM_PROCSTAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc_stat {
	char state;		/* field 3 */
	uint64_t flags;		/* field 9: PF_* of linux/sched.h */
	uint64_t start;		/* field 22: clock ticks after the machine's start */
};

/* Any thread, no locks, no malloc. False: that is no such text. */
bool proc_stat_parse(const char *text, size_t len, struct proc_stat *ret);

#endif
