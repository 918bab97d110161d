/*
 * signals.h - the application's signal handlers: who runs them, when, and what waits must know
 * of it.
 *
 * The kernel gets one entry of ours for every handler that the application installs, with the
 * same mask and flags (and SA_SIGINFO); what the application asks back is its own. The entry
 * calls the application's handler at once, with the kernel's siginfo and context, unless it
 * interrupted a critical section (lock.h): then the signal goes back to the kernel, blocked, and
 * comes again when the section is left, with the same siginfo.
 *
 * Faults (SIGSEGV and the like that the thread raised itself) are never put off.
 */
#ifndef RDMASHIM_SIGNALS_H
#define RDMASHIM_SIGNALS_H

#include <stdint.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "base/lock.h"
#include "base/sys.h"

/* As sigaction(2); 0 or -errno. Async-signal-safe. */
int signals_action(int sig, const struct sigaction *act, struct sigaction *old);
void signals_after_fork(void);		/* in the child, after the locks were made free */

/* ---- for waits that stand for a system call ---- */

/* Where this thread is now, for signals_since(). */
static inline uint32_t signals_mark(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	return thread_signals.seen;
}

/* Handlers that have run in this thread since: 0 none, 1 all had SA_RESTART, 2 one at least had
 * not. */
static inline int signals_since(uint32_t mark)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (thread_signals.seen == mark)
		return 0;
	return (int32_t)(thread_signals.broke - mark) > 0 ? 2 : 1;
}

/* A system call was interrupted, but signals_since() says 0: a handler has run that is not by
 * our entry, as libc's own when another thread calls setuid() or its like. True: all there are
 * have SA_RESTART. 64 system calls. */
bool signals_unseen_restart(void);

/*
 * A handler that runs between a wait's last look at signals_since() and its system call would go
 * unnoticed. So: signals_wake(fd) before that look, signals_wake(-1) after the call; a handler
 * that runs in between ends by ringing that bell, on which the call waits too. A wait in a
 * handler leaves its interrupted one's fd as it was.
 */
static inline void signals_wake(int fd)
{
	thread_signals.wake = (uint32_t)(fd + 1);
	atomic_signal_fence(memory_order_seq_cst);
}

/*
 * A wait that stands for one call with a mask sleeps several times: what the mask blocks must
 * not be let in between two sleeps. Returns what it blocked, for signals_unblock(). The C
 * library's own two signals stay free.
 */
static inline uint64_t signals_block(const sigset_t *mask)
{
	uint64_t was = 0, want;

	if (sys(SYS_rt_sigprocmask, SIG_BLOCK, mask, &was, sizeof was) < 0)
		return 0;	/* the call itself will say EFAULT */
	memcpy(&want, mask, sizeof want);
	want &= ~was;
	if (want & 3ull << 31) {
		uint64_t own = want & 3ull << 31;

		sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &own, NULL, sizeof own);
		want &= ~own;
	}
	return want;
}

static inline void signals_unblock(uint64_t blocked)
{
	if (blocked)
		sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &blocked, NULL, sizeof blocked);
}

#endif
