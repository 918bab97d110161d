/*
 * wrap_signal.c - wrappers of the calls that install signal handlers. All are sigaction(2), as
 * in libc, so that signals.c sees every handler; signal() and siginterrupt() share a set of
 * signals in libc too.
 *
 * Holds no lock.
 */
#include "base/signals.h"
#include "wrap/wrap.h"

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name)
#define ALIAS_send(alias, name)
#define ALIAS_recv(alias, name)
#define ALIAS_fd(alias, name)
#define ALIAS_stdio(alias, name)
#define ALIAS_wait(alias, name)
#define ALIAS_clone(alias, name)
#define ALIAS_signal(alias, name) WRAP_ALIAS(alias, name)

#ifndef SA_INTERRUPT
#define SA_INTERRUPT 0x20000000		/* means nothing, but libc sets it */
#endif

static _Atomic uint64_t interrupting;	/* siginterrupt(): signal() leaves SA_RESTART out */

static uint64_t bit(int sig) { return 1ull << (sig - 1); }

int wrap_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return (int)outside(signals_action(sig, act, old));
}

static __sighandler_t install(int sig, __sighandler_t handler, int flags, bool mask_itself)
{
	struct sigaction act = { .sa_flags = flags }, old;

	if (handler == SIG_ERR || sig < 1 || sig >= NSIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	act.sa_handler = handler;
	if (mask_itself)
		sigaddset(&act.sa_mask, sig);
	return wrap_sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

__sighandler_t wrap_signal(int sig, __sighandler_t handler)
{
	bool breaks = sig > 0 && sig < NSIG && atomic_load(&interrupting) & bit(sig);

	return install(sig, handler, breaks ? 0 : SA_RESTART, true);
}

__sighandler_t wrap_sysv_signal(int sig, __sighandler_t handler)
{
	return install(sig, handler, (int)(SA_RESETHAND | SA_NODEFER | SA_INTERRUPT), false);
}

int wrap_siginterrupt(int sig, int on)
{
	struct sigaction act;

	if (wrap_sigaction(sig, NULL, &act))
		return -1;
	if (on) {
		atomic_fetch_or(&interrupting, bit(sig));
		act.sa_flags &= ~SA_RESTART;
	} else {
		atomic_fetch_and(&interrupting, ~bit(sig));
		act.sa_flags |= SA_RESTART;
	}
	return wrap_sigaction(sig, &act, NULL);
}

__sighandler_t wrap_sigset(int sig, __sighandler_t handler)
{
	struct sigaction act = { .sa_flags = 0 }, old;
	uint64_t mask, one;

	if (handler == SIG_ERR || sig < 1 || sig >= NSIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	one = bit(sig);
	act.sa_handler = handler;
	if (wrap_sigaction(sig, handler == SIG_HOLD ? NULL : &act, &old))
		return SIG_ERR;
	sys(SYS_rt_sigprocmask, handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &mask,
	    sizeof mask);
	return mask & one ? SIG_HOLD : old.sa_handler;
}

#include "libc/calls.def"
