/*
 * older.h - what tests call and headers of older systems lack (Debian 11's), beside the names of
 * shim/arch/newer.h. To be included behind all others.
 */
#ifndef TESTS_OLDER_H
#define TESTS_OLDER_H

#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "arch/newer.h"

#if !__GLIBC_PREREQ(2, 35)
struct epoll_event;
static inline int epoll_pwait2(int ep, struct epoll_event *ev, int n, const struct timespec *t,
			       const sigset_t *mask)
{
	return (int)syscall(SYS_epoll_pwait2, ep, ev, n, t, mask, 8);
}
#endif

#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#else
#define SYS_landlock_create_ruleset 444
#define LANDLOCK_ACCESS_FS_MAKE_SYM (1ULL << 12)
struct landlock_ruleset_attr {
	uint64_t handled_access_fs;
};
#endif

#endif
