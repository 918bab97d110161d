/*
 * filter.c - runs a program under a seccomp filter that was there before it.
 *
 * 	filter errno|kill CALL[,CALL...] PROGRAM [ARGUMENT...]
 *
 * errno: each of these calls says EPERM, as under the filters of container engines; kill: it
 * ends the process, as under those of service managers. Calls by name, of a few (below), or by
 * number.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) { #name, SYS_##name }
static const struct { const char *name; int nr; } calls[] = {
	CALL(add_key), CALL(bpf), CALL(clock_settime), CALL(delete_module), CALL(eventfd2),
		CALL(init_module), CALL(inotify_init1), CALL(io_uring_setup),
	CALL(kexec_load), CALL(keyctl), CALL(memfd_create), CALL(mount), CALL(open_by_handle_at),
		CALL(perf_event_open), CALL(process_vm_readv),
	CALL(process_vm_writev), CALL(ptrace), CALL(request_key), CALL(setns), CALL(swapon),
		CALL(timerfd_create), CALL(umount2), CALL(unshare),
	CALL(userfaultfd),
};

static int number(const char *name)
{
	if (*name >= '0' && *name <= '9')
		return atoi(name);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].nr;
	fprintf(stderr, "filter: no call %s\n", name);
	_exit(2);
}

int main(int argc, char **argv)
{
	struct sock_filter f[2 * 600];
	struct sock_fprog p = { .filter = f };
	unsigned verdict, n = 0;

	if (argc < 4)
		return 2;
	verdict = strcmp(argv[1], "kill") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;
	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					      offsetof(struct seccomp_data, nr));
	for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						      (unsigned)number(name), 0, 1);
		f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	p.len = (unsigned short)n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) {
		perror("filter");
		return 2;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 127;
}
