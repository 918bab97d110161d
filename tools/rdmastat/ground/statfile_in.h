/*
 * statfile_in.h - what statfile.c, which reads one file, and statfile_list.c share.
 */
#ifndef RDMASHIM_STATFILE_IN_H
#define RDMASHIM_STATFILE_IN_H

#include "ground/statfile.h"

/* What may still be kept. */
struct stat_room { size_t procs, conns, qps, sites; };
#define STAT_ROOM_ANY { SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX }

/* Reads exactly len bytes at off. */
int pread_all(int fd, void *buf, size_t len, off_t off);
/* A name in a directory of counters, which may be in another mount namespace: what is mounted there
 * may be a file system that never answers, and is not entered. A descriptor, or -1 with errno. */
int open_in(int dir, const char *name, int flags);
/* Is it a file that `owner` may count in? 0 and its size, or as statfile_read(). */
int check_file(int fd, uid_t owner, off_t *size);
/* The name of a file of sums, of processes that have ended (policy/stat_int.h). */
bool statfile_ended(const char *name);
/* As statfile_read(), of that file, or -errno of its opening; it is closed. What there is no
 * room for is only counted; without room for a process nothing but its header is read. */
int statfile_read_room(int fd, const char *name, uid_t owner, unsigned parts,
		       struct stat_room *room, struct stat_proc *ret);

/* ---- statfile_mounts.c */
/* The /dev/shm of a process that has another one: a descriptor, -ENODEV if it may not be
 * entered, -ETIMEDOUT if that takes too long, -errno. */
int shm_open_of(pid_t pid);

#endif
