/*
 * procfs.h - whether /proc is to be asked. Below another root directory than the first (chroot(2)),
 * or in another mount namespace (setns(2)), it may be a file system of whoever is locked up there,
 * which says what he likes, or never answers; then what asks it does without. With which root
 * directory a program begins decides whose code it is, so that one is believed: trust.h. Any
 * thread, no locks; errno is kept.
 */
#ifndef RDMASHIM_PROCFS_H
#define RDMASHIM_PROCFS_H

#include <stdbool.h>

/* Asks no file system. */
bool proc_is_ours(void);

#endif
