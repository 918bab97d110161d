/*
 * shim.h - process-wide state of the shim: start order, on/off, time.
 */
#ifndef RDMASHIM_SHIM_H
#define RDMASHIM_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#include "policy/policy.h"

/* False: RDMASHIM=off, or start-up failed: every wrapper is a tail call. Set once by shim_init. */
extern bool shim_on;
extern _Atomic(const struct policy *) shim_policy;	/* the newest: the background thread's, which frees it when there is a newer one */
extern _Atomic(const struct policy_tunables *) shim_tun;	/* of it; any thread's: they are never freed */
extern char shim_policy_file[256];			/* as at start: programs overwrite their environment */
extern struct policy_deps shim_policy_deps;		/* what it and the newest policy are made of; background thread */
extern char shim_program[64];				/* basename of the executable */
extern _Atomic int shim_pid;				/* getpid() of this image; a vforked child differs */
extern _Atomic bool shim_active;			/* a stream has earned: the background thread runs */

/* The library's constructor: environment, policy, real symbols. init.c */
void shim_init(void);
/* Reads the policy file again; true if the policy is another one now. Background thread only. */
bool shim_reload_policy(void);
/* A line in the log, once: which library this is, and what is not by default. Background thread. */
void shim_log_start(void);
/* False: the environment says so, or the program runs with somebody else's rights. Also before
 * shim_init() has run. */
bool shim_wanted(void);
/* What runs at a fork() of libc's, in fork.c. Ours are registered before anybody else's, or with
 * whoever is the first: so our prepare handler is the last one to run, our parent and child
 * handlers are the first, and no code but libc's fork() runs while we hold locks. Before
 * shim_init(), too. */
bool fork_handlers_first(void);		/* false: they are not there. wrap_clone.c */
void fork_handlers_start(void);	/* before there are streams; until then they do nothing */
void shim_fork_prepare(void);
void shim_fork_parent(void);
void shim_fork_child(void);
/* exec: every cut stream whose fd survives goes home first; see fork.c. Returns a token for
 * shim_exec_failed(). */
void shim_before_exec(void);
void shim_exec_failed(void);
/* An fd is about to be passed over AF_UNIX (SCM_RIGHTS), or handed to stdio. */
void shim_before_pass(const struct msghdr *msg);

static inline const struct policy_tunables *shim_tunables(void)
{
	return atomic_load_explicit(&shim_tun, memory_order_acquire);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

extern char __libc_single_threaded __attribute__((weak));	/* since glibc 2.32 */

static inline uint64_t now_us(void) { return now_ns() / 1000; }

#endif
