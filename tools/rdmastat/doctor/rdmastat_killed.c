/*
 * rdmastat_killed.c - see rdmastat_killed.h.
 *
 * The kernel does not say for which call a seccomp filter has ended a process. So each of those
 * that the library makes (shim/base/syscalls.def) is tried here, with arguments that none of
 * them takes, in a child of its own: a filter comes before the call looks at them.
 */
#include "doctor/rdmastat_killed.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arch/newer.h"

#ifndef SYS_epoll_wait		/* newer machines have only epoll_pwait */
#define SYS_epoll_wait (-1)
#endif

static const struct { const char *name; int nr; } calls[] = {
#define SYSCALL(name, what) { #name, SYS_##name },
#include "shim/base/syscalls.def"
#undef SYSCALL
};

bool call_forbidden(int nr)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		prctl(PR_SET_DUMPABLE, 0);	/* no core */
		alarm(1);
		syscall(nr, -1l, -1l, -1l, -1l, -1l, -1l);
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGSYS;
}

static void name_forbidden(char *why, size_t size)
{
	const char *sep = ": a filter forbids ";
	size_t i, used = strlen(why), n = 0;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (calls[i].nr < 0 || !call_forbidden(calls[i].nr))
			continue;
		n++;
		if (used + strlen(sep) + strlen(calls[i].name) + 5 >= size) {
			snprintf(why + used, size - used, " ...");
			return;
		}
		used += (size_t)snprintf(why + used, size - used, "%s%s", sep, calls[i].name);
		sep = ", ";
	}
	if (!n)
		snprintf(why + used, size - used, ": a filter forbids a call with the arguments "
						  "that it had");
}

bool killed(const char *who, pid_t pid, char *why, size_t size, bool *ret_filter)
{
	struct timespec nap = { 0, 20000000 };
	siginfo_t si = { .si_pid = 0 };

	for (int i = 0; i < 50 && pid > 0 && !si.si_pid; i++) {
		if (i)
			nanosleep(&nap, NULL);
		if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT))
			return false;
	}
	if (!si.si_pid || si.si_code == CLD_EXITED)
		return false;
	snprintf(why, size, "the %s was ended by signal %d (%s)", who, si.si_status,
		 strsignal(si.si_status));
	*ret_filter = si.si_status == SIGSYS;
	if (*ret_filter)
		name_forbidden(why, size);
	return true;
}
