/*
 * rdmastat_apart.h - work on what a stranger wrote, by code that is not ours: done by a child
 * from which nothing can be had. It has no terminal and no descriptor of ours; what it prints
 * goes through make_printable() in the parent.
 */
#ifndef RDMASHIM_RDMASTAT_APART_H
#define RDMASHIM_RDMASTAT_APART_H

#include <sys/types.h>

/* The child does that with stdout and stderr as ever; what it returns is its exit status. Returns
 * that, or -signal; after `seconds` and one more it is killed. -1000: no child could be had. */
int apart(int (*work)(void *), void *arg, int seconds);
#define APART_NONE (-1000)

/* Kills a child that may wait where no signal ends it, and takes its status; one that does not end
 * soon is left behind: SIGKILL. */
int apart_end(pid_t pid);

/* In the child, if it is root: from here on no rights but that user's, and none can be got. */
int apart_become(uid_t uid, gid_t gid);		/* 0 or -errno */

#endif
