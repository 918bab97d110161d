/*
 * shim.h - process-wide state of the library: on/off, policy, time. main/init.c sets it.
 */
#ifndef RDMASHIM_SHIM_H
#define RDMASHIM_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/sys.h"
#include "policy/policy.h"
#include "policy/stat.h"

/* False: RDMASHIM=off, or start-up failed: every wrapper is a tail call. Set once, at the start. */
extern bool shim_on;
extern _Atomic(const struct policy *) shim_policy;	/* the newest: the background thread's,
							 * which frees it when there is a newer
							 * one */
/* of it; any thread's: they are never freed */
extern _Atomic(const struct policy_tunables *) shim_tun;
extern _Atomic uint32_t shim_mode;			/* of it, enum stat_mode */
extern char shim_policy_file[256];			/* as at start: programs overwrite their
							 * environment */
extern char shim_program[64];				/* basename of the executable */
extern char shim_go[STAT_GO];				/* of a Go program: its version, and what
							 * became of its stubs (golang/); "": it is
							 * none, or nobody asked */
extern _Atomic int shim_pid;				/* getpid() of this image; a vforked
							 * child differs */
extern _Atomic bool shim_active;			/* a stream has earned: the background
							 * thread runs */

#define FALLBACK_PATIENCE_US 30000000	/* a stopped peer delays exec and fd passing so long */

/* False: the environment says so, or the program runs with somebody else's rights. Also before
 * the library has begun. */
bool shim_wanted(void);

static inline const struct policy_tunables *shim_tunables(void)
{
	return atomic_load_explicit(&shim_tun, memory_order_acquire);
}

/* True in a child of vfork, _Fork or clone: it shares or copied our state without our handlers
 * having run, so it must leave that alone. */
static inline bool foreign_image(void)
{
	return sys(SYS_getpid) != atomic_load_explicit(&shim_pid, memory_order_relaxed);
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
