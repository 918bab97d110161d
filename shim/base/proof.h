/*
 * proof.h - shows that a process has a certain socket: a descriptor of O_PATH of it, which
 * may be passed to others and permits nothing. Any thread, no locks but fd_number_lock().
 */
#ifndef RDMASHIM_PROOF_H
#define RDMASHIM_PROOF_H

#include <stdint.h>

/* A descriptor of O_PATH of the socket `fd`, with the lowest free number, or -errno: under
 * fd_number_lock() until it is closed. Without a filter of system calls it takes no /proc. */
int proof_of(int fd);
/* 0, or -ENOENT: the kernel does not tell what a descriptor is of. */
int proof_possible(void);
/* Which socket `fd` is a descriptor of, also one of O_PATH: its inode. 0: it is none; -ENOENT: as
 * above. Asks nobody but the kernel, whatever it is, and takes no lock of a socket. */
int64_t proof_inode(int fd);

#endif
