/*
 * fault.c - runs a program under a seccomp filter that hands the calls of one kind to this
 * process, which lets them fail.
 *
 * 	fault CALL FROM TO ERRNO COMMAND...	of the calls of that kind number FROM to TO
 * 						(from 1; TO 0: all further ones) fail
 * 	fault CALL FROM TO short COMMAND...	they do not fail, but move a third of the
 * 						bytes, if they move bytes on a TCP socket
 * 	fault CALL FROM TO late COMMAND...	they do not fail, but are made 60 ms later:
 * 						acknowledgements that were held back have come
 * 						by then
 * 	fault list				the kinds
 * CALL is one of the list, whoever makes it; or a number, of a system call that the library
 * itself makes: its instruction lies in librdmashim.so, so the program's own calls of that
 * number go through; or +number: or it lies in a function of libc that the library has called.
 * Those of a program go through that way, too, if the library does not stand before them.
 *
 * Calls count from the moment at which the program has made its first TCP socket: what the
 * loader and libc need to get it going is not touched, and the programs that fault.sh runs
 * (victim.c) make no calls of these kinds themselves after that. At its end it prints "CALL: N
 * seen, M failed" to stderr and exits with the program's status (128 + signal), 77 if the kernel
 * has no user notification.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_short.h"

#define NEAR 8		/* words of the stack */
#define SHORT 0x10000	/* in place of an errno */
#define LATE  0x10001
#define LATE_MS 60

/* arg < 0: any; else the argument `arg` must be `value`. min: the argument must be at least
 * that. */
static const struct kind {
	const char *name;
	int nr, arg;
	uint64_t value;
	bool min, ours;
} kinds[] = {
	{ "memfd_create", SYS_memfd_create, -1, 0, false, false },
	{ "ftruncate", SYS_ftruncate, -1, 0, false, false },
	{ "seal", SYS_fcntl, 1, F_ADD_SEALS, false, false },
	{ "dupfd", SYS_fcntl, 1, F_DUPFD_CLOEXEC, false, false },
	{ "mmap", SYS_mmap, -1, 0, false, false },
	{ "madvise", SYS_madvise, -1, 0, false, false },
	{ "timerfd", SYS_timerfd_create, -1, 0, false, false },
	{ "unix-socket", SYS_socket, 0, AF_UNIX, false, false },
	{ "netlink", SYS_socket, 0, AF_NETLINK, false, false },
	{ "bind-name", SYS_bind, 2, 20, true, false }, /* a TCP address is shorter */
	{ "connect-name", SYS_connect, 2, 20, true, false },
	/* the victim's own has another backlog */
	{ "listen", SYS_listen, 1, 8, false, false },
	{ "clone", SYS_clone, -1, 0, false, false },
	{ "clone3", SYS_clone3, -1, 0, false, false },
	{ "epoll_create", SYS_epoll_create1, -1, 0, false, false },
	{ "epoll_pwait2", SYS_epoll_pwait2, -1, 0, false, false },
	{ "inotify_init", SYS_inotify_init1, -1, 0, false, false },
	{ "inotify_add", SYS_inotify_add_watch, -1, 0, false, false },
	{ "sendmsg", SYS_sendmsg, -1, 0, false, false },
	{ "recvmsg", SYS_recvmsg, -1, 0, false, false },
	{ "getsockname", SYS_getsockname, -1, 0, false, false },
	{ "tcp-info", SYS_getsockopt, 2, 11 /* TCP_INFO */, false, false },
	{ "peercred", SYS_getsockopt, 2, SO_PEERCRED, false, false },
	{ "outq", SYS_ioctl, 1, 0x5411 /* SIOCOUTQ */, false, false },
	{ "openat", SYS_openat, -1, 0, false, false },
	{ "prctl", SYS_prctl, -1, 0, false, false },
	{ "sendto-short", SYS_sendto, -1, 0, false, true },
	{ "recvfrom-short", SYS_recvfrom, -1, 0, false, true },
	{ "process_vm_readv", SYS_process_vm_readv, -1, 0, false, false },
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* The calls of that number and socket() go to the listener, all others through. */
static int install(int nr)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog p = { sizeof f / sizeof f[0], f };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &p);
}

static bool is(const struct kind *k, const struct seccomp_data *d)
{
	/* a wake never fails: the sleeper would sleep for ever */
	if (d->nr != k->nr || (d->nr == SYS_futex && (d->args[1] & FUTEX_CMD_MASK) != FUTEX_WAIT))
		return false;
	if (k->arg < 0)
		return true;
	return k->min ? d->args[k->arg] >= k->value
		      : (uint32_t)d->args[k->arg] == (uint32_t)k->value;
}

/* Where the library is: looked up once for each image of the program, which begins with no TCP
 * socket. */
static struct { uint64_t lo, hi; } at;

static bool in_library(pid_t pid, uint64_t ip)
{
	char path[64], line[512];
	FILE *f;

	if (ip >= at.lo && ip < at.hi)
		return true;
	if (at.hi)
		return false;
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f)) {
		unsigned long lo, hi;
		char mode[8];

		if (strstr(line, "librdmashim") &&
		    sscanf(line, "%lx-%lx %7s", &lo, &hi, mode) == 3 && mode[2] == 'x') {
			at.lo = lo;
			at.hi = hi;
		}
	}
	if (f)
		fclose(f);
	return ip >= at.lo && ip < at.hi;
}

/* libc's thin functions have next to nothing on the stack above their return address. */
static bool called_by_library(pid_t tid)
{
	char path[64], line[256];
	unsigned long sp, word[NEAR];
	struct iovec here = { word, sizeof word }, there;
	const char *at = NULL;
	ssize_t n;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/syscall", tid);
	f = fopen(path, "r");
	if (f && fgets(line, sizeof line, f))
		at = strrchr(line, ' ');
	if (f)
		fclose(f);
	if (!at)
		return false;
	while (at > line && at[-1] != ' ')	/* the last but one: the stack's pointer; the
						 * last: the instruction's */
		at--;
	if (sscanf(at, "%lx", &sp) != 1)
		return false;
	there = (struct iovec){ (void *)sp, sizeof word };
	n = process_vm_readv(tid, &here, 1, &there, 1, 0);
	for (ssize_t i = 0; i < n / (ssize_t)sizeof *word; i++)
		if (in_library(tid, word[i]))
			return true;
	return false;
}

static long seen, failed;
static bool counting, deep;

static int verdict(const struct kind *k, const struct seccomp_notif *n, long from, long to, int err)
{
	const struct seccomp_data *d = &n->data;

	if (d->nr == SYS_socket && (d->args[0] == AF_INET || d->args[0] == AF_INET6))
		counting = true, at.hi = 0;
	if (!counting || !is(k, d) ||
	    (k->ours && !in_library((pid_t)n->pid, d->instruction_pointer) &&
	     !(deep && called_by_library((pid_t)n->pid))))
		return 0;
	seen++;
	if (seen < from || (to && seen > to))
		return 0;
	failed += err != SHORT;
	return -err;
}

static pid_t child;
static int pidfd;

/* The answer to a call: it goes on, it has failed, or it has been made here. */
static void answer(const struct seccomp_notif *n, int verdict, struct seccomp_notif_resp *r)
{
	long moved = 0;

	*r = (struct seccomp_notif_resp){ .id = n->id };
	if (verdict == -SHORT && short_call(pidfd, child, &n->data, &moved)) {
		failed++;
		r->error = moved < 0 ? (int)moved : 0;
		r->val = moved < 0 ? 0 : moved;
		return;
	}
	if (verdict == -LATE)
		poll(NULL, 0, LATE_MS);
	r->error = verdict == -SHORT || verdict == -LATE ? 0 : verdict;
	if (!r->error)
		r->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
}

static void supervise(int fd, pid_t pid, const struct kind *k, long from, long to, int err, int *st)
{
	struct seccomp_notif n;
	struct seccomp_notif_resp r;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		if (waitpid(pid, st, WNOHANG) == pid)
			return;
		if (poll(&p, 1, 20) < 1 || !(p.revents & POLLIN))
			continue;
		memset(&n, 0, sizeof n);
		if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &n))
			continue;
		answer(&n, verdict(k, &n, from, to, err), &r);
		ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &r);
	}
}

static void on_term(int sig)
{
	kill(child, sig);	/* the program ends, then we do */
}

int main(int argc, char **argv)
{
	const struct kind *k = NULL;
	struct kind any;
	int tell[2], go[2], fd, st = 0;
	char ok = 0;

	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (size_t i = 0; i < KINDS; i++)
			puts(kinds[i].name);
		return 0;
	}
	for (size_t i = 0; argc > 5 && i < KINDS; i++)
		if (!strcmp(kinds[i].name, argv[1]))
			k = &kinds[i];
	if (argc > 5 && strspn(argv[1] + (argv[1][0] == '+'), "0123456789")) {
		any = (struct kind){ .name = argv[1], .nr = atoi(argv[1]), .arg = -1,
				     .ours = true };
		deep = argv[1][0] == '+';
		k = &any;
	}
	if (!k) {
		fprintf(stderr, "usage: fault CALL FROM TO ERRNO COMMAND... | fault list\n");
		return 2;
	}
	if (pipe2(tell, O_CLOEXEC) || pipe2(go, O_CLOEXEC))
		return 2;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = install(k->nr);
		if (write(tell[1], &fd, sizeof fd) != sizeof fd || read(go[0], &ok, 1) != 1)
			_exit(2);
		execvp(argv[5], argv + 5);
		_exit(127);
	}
	close(tell[1]);
	if (read(tell[0], &fd, sizeof fd) != sizeof fd || fd < 0) {
		fprintf(stderr, "no seccomp user notification\n");
		return 77;
	}
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	if (fd < 0) {
		perror("pidfd_getfd");
		kill(child, SIGKILL);
		return 77;
	}
	signal(SIGTERM, on_term);
	if (write(go[1], "g", 1) != 1)
		return 2;
	supervise(fd, child, k, atol(argv[2]), atol(argv[3]),
		  !strcmp(argv[4], "short")  ? SHORT
		  : !strcmp(argv[4], "late") ? LATE
					     : atoi(argv[4]),
		  &st);
	fprintf(stderr, "%s: %ld seen, %ld failed\n", k->name, seen, failed);
	return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
}
