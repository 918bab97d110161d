/*
 * libc.h - the border to libc: its own entries, behind our wrappers.
 *
 * Include it first: it switches _FORTIFY_SOURCE off, whose inline functions would collide with the
 * wrappers. Everything is generated from calls.def.
 *
 * Locks: none. Everything here is async-signal-safe once libc_bind_all() has run.
 */
#ifndef RDMASHIM_LIBC_H
#define RDMASHIM_LIBC_H

#undef _FORTIFY_SOURCE

#include <aio.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/* Numbers of the rows that have a real entry; also the places of their counters. */
enum call_id {
#define CALL(ret, name, params, args, where, doc) ID_##name,
#define CALLV(name, params, args, where, doc) ID_##name,
#define VCALL(ret, name, params, last, args, where, doc) ID_##name,
#include "libc/calls.def"
	CALL_IDS
};

/* real_NAME: libc's (or the next preloaded library's) entry. Never NULL: before binding a stub
 * that binds and calls on; if nobody has the symbol, a function that fails with ENOSYS. */
#define CALL(ret, name, params, args, where, doc) extern ret (*real_##name) params;
#define CALLV(name, params, args, where, doc) extern void (*real_##name) params;
#define VCALL(ret, name, params, last, args, where, doc) extern ret (*real_##name) params;
#include "libc/calls.def"

#define REAL(name) real_##name

/* Binds all rows now: for the constructor, so that no signal handler ever runs dlsym. */
void libc_bind_all(void);
void *libc_next(const char *name);	/* as dlsym(RTLD_NEXT); allocates nothing */
const char *libc_call_name(unsigned id);	/* enum call_id */
/* One of the calls that are made under a lock if they are libc's, and no more than a system call,
 * is another library's. */
extern bool libc_behind_others;
extern bool libc_sigaction_is_libcs;


#endif
