/*
 * signals.c - see signals.h.
 *
 * How a signal is put off: block everything, send the signal to this thread again (the kernel
 * lets a thread give itself any siginfo), and make the blocked mask the one that the interrupted
 * code continues with. The rest of the critical section then runs undisturbed; critical_done()
 * (lock.c) sets the old mask, and the kernel delivers. Nothing is queued here, and the handler
 * gets a true context and the mask and stack that it was promised.
 *
 * The kernel is the truth about what is installed: the table only says what our entry stands
 * for. So exec, SA_RESETHAND, raw system calls and handlers from before our time need no care.
 *
 * Lock: `writer`, with all signals blocked, for changes; a leaf. The entry reads without. Not
 * held where somebody else's sigaction() is behind us: it may have a lock of its own, or ask for
 * a handler itself. Of two threads that change one signal at one moment either may have been the
 * last then, as the kernel's flags and the handler say each for itself.
 */
#include "base/signals.h"

#include <ucontext.h>

#include "base/bell.h"
#include "base/shim.h"
#include "libc/libc.h"

#define SIGNALS 64
#define BIT(sig) (1ull << ((sig) - 1))
/* What a thread does to itself; and libc's own two (cancellation, setuid), which never call the
 * application. */
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGSYS))
#define LIBCS  (BIT(32) | BIT(33))

/* One word per signal, so that it is never seen half changed: the handler's address, flags in
 * the bits above it. */
#define W_INFO    (1ull << 63)
#define W_RESTART (1ull << 62)
#define W_ONCE    (1ull << 61)
#define W_ADDRESS (W_ONCE - 1)

static _Atomic uint64_t table[SIGNALS + 1];
static struct sigaction once[SIGNALS + 1];	/* SA_RESETHAND: what to give the kernel again */
static struct lock writer;

static void entry(int sig, siginfo_t *info, void *uc);

static uint64_t word_of(const struct sigaction *act)
{
	return (uint64_t)(uintptr_t)act->sa_handler | (act->sa_flags & SA_SIGINFO ? W_INFO : 0) |
	       (act->sa_flags & SA_RESTART ? W_RESTART : 0) |
	       (act->sa_flags & SA_RESETHAND ? W_ONCE : 0);
}

static bool ours(const struct sigaction *act) { return act->sa_sigaction == entry; }

/* What the kernel has, as the application gave it. */
static void translate(struct sigaction *act, uint64_t word)
{
	bool spent = act->sa_handler == SIG_DFL && act->sa_flags & (int)SA_RESETHAND &&
		     word & W_ONCE;

	if (ours(act))
		act->sa_handler = (__sighandler_t)(uintptr_t)(word & W_ADDRESS);
	else if (!spent)	/* the kernel leaves the flags */
		return;
	if (!(word & W_INFO))
		act->sa_flags &= ~SA_SIGINFO;
}

/* ---- a signal comes ---- */

/* Back to the kernel, until critical_done(). */
static void put_off(int sig, siginfo_t *info, ucontext_t *uc, uint64_t word)
{
	/* the kernel's has 64 bits */
	uint64_t all = ~(FAULTS | LIBCS) | BIT(sig), *mask = (uint64_t *)&uc->uc_sigmask;
	long pid = sys(SYS_getpid), tid = sys(SYS_gettid);
	struct sigaction now;

	sys(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all);
	/* One nested in the other's entry, or the second of one section: what both would go back
	 * to. */
	thread_signals.mask = thread_signals.put_off ? thread_signals.mask & *mask : *mask;
	thread_signals.put_off = 1;
	*mask |= all;
	if (word & W_ONCE && !REAL(sigaction)(sig, NULL, &now) && now.sa_handler == SIG_DFL)
		REAL(sigaction)(sig, &once[sig], NULL);
	if (sys(SYS_rt_tgsigqueueinfo, pid, tid, sig, info) < 0) {
		info->si_code = SI_USER;	/* the queue is full, which only refuses what is
						 * not from kill(2) */
		sys(SYS_rt_tgsigqueueinfo, pid, tid, sig, info);
	}
}

static void entry(int sig, siginfo_t *info, void *uc)
{
	struct thread_signals *me = &thread_signals;
	uint64_t word = atomic_load(&table[sig]);
	void (*handler)(int, siginfo_t *, void *) =
		(void (*)(int, siginfo_t *, void *))(uintptr_t)(word & W_ADDRESS);
	bool fault = FAULTS & BIT(sig) && info->si_code > 0;
	uint32_t depth = me->critical, wake = me->wake, broke;

	if (depth && !fault) {
		put_off(sig, info, uc, word);
		return;
	}
	me->seen++;
	if (!(word & W_RESTART))
		me->broke = me->seen;
	broke = me->broke;
	/* The handler of a fault in a critical section may jump out of it: then the section is
	 * over for this thread. */
	me->critical = 0;
	me->handlers++;
	atomic_signal_fence(memory_order_seq_cst);
	handler(sig, info, uc);
	atomic_signal_fence(memory_order_seq_cst);
	me->handlers--;
	me->critical = depth;
	me->broke = broke;	/* what interrupted the handler is no business of the call that
				 * the handler interrupted */
	if (wake) {
		me->wake = wake;
		bell_ring_fd((int)wake - 1);
	}
}

/* ---- a handler has run that we do not know ---- */

bool signals_unseen_restart(void)
{
	/* the kernel's, also for libc's own two */
	struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } is;

	for (long sig = 1; sig <= SIGNALS; sig++)
		if (!sys(SYS_rt_sigaction, sig, NULL, &is, sizeof is.mask) &&
		    is.handler != (void *)SIG_DFL && is.handler != (void *)SIG_IGN &&
		    is.handler != (void *)entry && !(is.flags & SA_RESTART))
			return false;
	return true;
}

/* ---- a handler is installed ---- */

static int real_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	int e = errno, r = REAL(sigaction)(sig, act, old) ? -errno : 0;

	errno = e;
	return r;
}

/* SIG_DFL, SIG_IGN and what is no address at all go to the kernel as they are. */
static bool is_handler(const struct sigaction *act)
{
	uint64_t p = (uint64_t)(uintptr_t)act->sa_handler;

	return p > 4096 && !(p & ~W_ADDRESS) && !ours(act);
}

static int replace(int sig, const struct sigaction *act, struct sigaction *was)
{
	uint64_t before = atomic_load(&table[sig]);
	struct sigaction mine;
	int r;

	mine = *act;
	if (ours(act))		/* it asked by a way that we don't see, and gives it back */
		mine.sa_flags |= SA_SIGINFO;
	if (!is_handler(act)) {
		r = real_action(sig, &mine, was);
	} else {
		mine.sa_sigaction = entry;
		mine.sa_flags |= SA_SIGINFO;
		once[sig] = mine;
		/* first: the entry must know it when it is called */
		atomic_store(&table[sig], word_of(act));
		r = real_action(sig, &mine, was);
		if (r)
			atomic_store(&table[sig], before);
	}
	if (!r)
		translate(was, before);
	return r;
}

int signals_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	uint64_t all = ~0ull, mask;
	struct sigaction new, was;
	bool alone;
	int r;

	if (sig < 1 || sig > SIGNALS)
		return real_action(sig, act, old);
	/* a vforked child shares the table, but not the kernel's */
	if (!act || !shim_on || foreign_image()) {
		r = real_action(sig, act, old);
		if (!r && old)
			translate(old, atomic_load(&table[sig]));
		return r;
	}
	new = *act;	/* while a fault may still be handled */
	sys(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask);
	alone = libc_sigaction_is_libcs;
	if (alone)
		lock_take(&writer);
	r = replace(sig, &new, &was);
	if (alone)
		lock_give(&writer);
	sys(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
	if (!r && old)
		*old = was;
	return r;
}

/* What was put off waits in the parent's kernel queue; here only the mask is left of it. */
void signals_after_fork(void)
{
	atomic_store(&writer.v, 0);
	thread_signals.wake = 0;
	thread_signals.critical = 1;
	critical_leave();
}
