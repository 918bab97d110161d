/*
 * peer_rights.h - what a process may read of others, as far as the kernel's own check goes
 * (ptrace(2), "Ptrace access mode checking"), and what sandbox it is in. It reads /proc.
 *
 * Async-signal-safe, no locks but fd_number_lock(); takes about 30 us.
 */
#ifndef RDMASHIM_PEER_RIGHTS_H
#define RDMASHIM_PEER_RIGHTS_H

#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer_rights {
	bool plain;		/* real, effective and saved user are one, and so are the groups */
	uid_t uid;
	gid_t gid;
	uint64_t caps;		/* permitted: no process gets more than it has, but by exec */
	uint64_t filters;	/* of seccomp(2) */
	bool no_new_privs;
	uint64_t user_ns, pid_ns;
	uint64_t label;		/* of the kernel's security module, a hash; 0: there is none */
};

/* pid 0: this thread. False: that cannot be said now. */
bool peer_rights_look(pid_t pid, struct peer_rights *ret);
/* Whatever `ours` lets a process read, `theirs` does; and they are in no sandbox that we lack. */
static inline bool peer_rights_cover(const struct peer_rights *theirs,
				     const struct peer_rights *ours)
{
	/* A program may get more rights by exec than its process had. The kernel shows such a
	 * program only to processes with this capability. What root executes gets no more than any
	 * program of root's own. */
	if (ours->uid && ours->caps >> CAP_SYS_PTRACE & 1)
		return false;
	return theirs->plain && ours->plain && theirs->uid == ours->uid &&
	       theirs->gid == ours->gid && !(ours->caps & ~theirs->caps) &&
	       theirs->user_ns == ours->user_ns && theirs->pid_ns == ours->pid_ns &&
	       theirs->label == ours->label && theirs->filters <= ours->filters &&
	       theirs->no_new_privs <= ours->no_new_privs;
}

/* The text of /proc/PID/status, a line at a time. */
struct peer_status { struct peer_rights *to; unsigned seen; uint64_t tgid; };
void peer_status_line(struct peer_status *st, const char *line, size_t len);

#endif
