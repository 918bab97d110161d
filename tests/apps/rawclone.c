/*
 * rawclone.c - children that libc's fork() does not make, as vsftpd, systemd and sandboxes make
 * them, in a program with one thread: what such a child may do there it may do with the library's
 * thread beside it.
 *
 *	rawclone HOW begin: 40 processes talk on a connection for some rounds and make a child after
 *			each, also at the moment at which the library's thread begins: the child
 *			changes its groups and its user, and uses the connection
 *	rawclone HOW busy N: N children, each of which allocates, prints and changes its user, while
 *			somebody has the library's thread allocate, too (MALLOC_ARENA_MAX=1);
 *			the connection goes on after each
 *	rawclone list: the names for HOW
 * A child that has not ended after 10 s is counted and killed. Locks: none.
 */
#include "both.h"

#include <errno.h>
#include <grp.h>
#include <linux/sched.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define STACK 65536

static const char *how;
static int (*job)(void);

static void pass(int from, int to)
{
	char c = 'x', d = 0;

	if (write(from, &c, 1) != 1 || read(to, &d, 1) != 1 || d != 'x')
		die("the connection");
}

static void begin(void)
{
	int one = 1;

	connect_both();
	setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int runs(void *arg) { _exit(((int (*)(void))arg)()); }

/* The child runs the job and ends with what that returns. */
static pid_t child(void)
{
	static _Alignas(16) char stack[STACK];
	struct clone_args args = { .exit_signal = SIGCHLD };
	pid_t p;

	if (!strcmp(how, "clone"))
		return clone(runs, stack + STACK, SIGCHLD, (void *)job);
	if (!strcmp(how, "pid"))	/* as vsftpd isolates its sessions, where it may */
		p = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWIPC | SIGCHLD, NULL);
	else if (!strcmp(how, "clone3"))
		p = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	else if (!strcmp(how, "_Fork"))
		p = _Fork();
	else
		p = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!p)
		_exit(job());
	return p;
}

/* Its exit status; -1: it hung. */
static int end_of(pid_t p)
{
	struct timespec nap = { 0, 1000000 };
	int st;

	for (int ms = 0; ms < 10000; ms++) {
		if (waitpid(p, &st, WNOHANG) == p)
			return WIFEXITED(st) ? WEXITSTATUS(st) : 100;
		nanosleep(&nap, NULL);
	}
	kill(p, SIGKILL);
	waitpid(p, &st, 0);
	return -1;
}

static int change_user(void)
{
	gid_t g = getgid();

	if (setgroups(1, &g) && errno != EPERM)
		return 2;
	return setgid(g) || setuid(getuid()) ? 3 : 0;
}

static int session(void)
{
	int r = change_user();

	if (!r)
		pass(a, b);
	return r;
}

static int work(void)
{
	char *p = malloc(60000);

	memset(p, 1, 60000);
	printf("%p", (void *)p);
	fflush(stdout);
	free(p);
	return change_user();
}

static int begins(void)
{
	int bad = 0;

	job = session;
	for (int k = 0; k < 40 && !bad; k++) {
		pid_t p = fork();
		int r;

		if (!p) {
			begin();
			for (r = 0; r < 10; r++) {
				pass(a, b);
				pass(b, a);
				p = child();
				if (p < 0)
					die(how);
				bad = end_of(p);
				if (bad)
					_exit(1);
			}
			_exit(0);
		}
		r = 0;
		if (waitpid(p, &r, 0) != p || r)
			bad = 1;
	}
	return bad;
}

static int busy(int n)
{
	int r = 0;

	begin();
	job = work;
	for (int i = 0; i < 300; i++) {
		pass(a, b);
		pass(b, a);
	}
	for (int i = 0; i < n && !r; i++) {
		pid_t p = child();

		if (p < 0)
			die(how);
		r = end_of(p);
		pass(a, b);
		pass(b, a);
	}
	return r;
}


static int nothing(void) { return 0; }

static void list(void)
{
	puts("clone\nsyscall\nclone3\n_Fork");
	fflush(stdout);
	how = "pid";
	job = nothing;
	if (end_of(child()) == 0)	/* who may not has no such child */
		puts("pid");
}

int main(int argc, char **argv)
{
	int out = argc > 2 ? dup(1) : -1, r;

	if (argc > 1 && !strcmp(argv[1], "list")) {
		list();
		return 0;
	}
	if (argc < 3)
		return 2;
	how = argv[1];
	/* what children print is of no interest */
	if (!freopen("/dev/null", "w", stdout))
		return 2;
	r = !strcmp(argv[2], "begin") ? begins() : busy(argc > 3 ? atoi(argv[3]) : 1);
	dprintf(out, "%s, %s: %s\n", how, argv[2],
		r < 0 || r == 1 ? "a child hung" : r ? "a child failed" : "all children ended");
	return r != 0;
}
