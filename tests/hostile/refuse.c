/*
 * refuse.c - an older kernel, as far as a filter can be one: calls that it does not know.
 *
 *	refuse list		the calls of shim/base/syscalls.def that an older kernel lacks
 *	refuse NAMES COMMAND...	COMMAND, and what it starts, gets ENOSYS for them (NAME,NAME or all)
 *
 * Newer are those with numbers from 424 on (Linux 5.1 began to count so on all machines), and older
 * ones that a kernel can be built without.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "arch/newer.h"
#include <unistd.h>

#ifndef SYS_epoll_wait
#define SYS_epoll_wait (-1)
#endif

static const struct { const char *name; int nr; } calls[] = {
#define SYSCALL(name, what) { #name, SYS_##name },
#include "shim/base/syscalls.def"
#undef SYSCALL
};
#define CALLS (sizeof calls / sizeof calls[0])

static int newer(int nr)
{
	static const int options[] = { SYS_userfaultfd, SYS_process_vm_readv };

	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
		if (options[i] == nr)
			return 1;
	return nr >= 424;
}

/* Is it a word of the list? */
static int named(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	struct sock_filter f[2 * CALLS + 2] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
	struct sock_fprog p = { 1, f };

	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (size_t i = 0; i < CALLS; i++)
			if (newer(calls[i].nr))
				puts(calls[i].name);
		return 0;
	}
	if (argc < 3)
		return 2;
	for (size_t i = 0; i < CALLS; i++) {
		if (!newer(calls[i].nr) ||
		    (strcmp(argv[1], "all") && !named(argv[1], calls[i].name)))
			continue;
		f[p.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							  (unsigned)calls[i].nr, 0, 1);
		f[p.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
							  SECCOMP_RET_ERRNO | ENOSYS);
	}
	if (p.len == 1) {
		fprintf(stderr, "refuse: %s: no such call\n", argv[1]);
		return 2;
	}
	f[p.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
							    &p)) {
		perror("refuse: seccomp");
		return 77;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
