/*
 * process.c - connections across fork, exec and their relatives.
 * Calls: __register_atfork fork __fork
 *        vfork __vfork _Fork clone __clone execve execv execvp execvpe execl execlp execle
 *        fexecve execveat
 *        posix_spawn posix_spawnp posix_spawn_file_actions_init posix_spawn_file_actions_destroy
 *        posix_spawn_file_actions_adddup2 system popen _IO_popen pclose daemon prctl syscall
 *        arch_prctl unshare setns capset
 * LIBS: -ldl
 */
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/filter.h>
#include <sched.h>
#include <stdatomic.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "snip.h"

extern char **environ;
static char t[256];

static pid_t start(void)
{
	fflush(stdout);
	return fork();
}
static void end(void)
{
	fflush(stdout);
	_exit(0);
}

SNIPPET(fork_child_uses, "fork")
{
	pid_t p;

	pair();
	put(a, b, "early");
	p = start();
	if (!p) {
		SAY("child recv", recv(b, t, 100, 0));
		send(b, "from the child", 14, 0);
		end();
	}
	close(b);
	SAY("parent recv", recv(a, t, 14, MSG_WAITALL));
	say_end("child", p);
	SAY("the end", recv(a, t, 100, 0));
}

SNIPPET(fork_parent_uses, "fork")
{
	pid_t p;

	pair();
	p = start();
	if (!p) {
		close(a);
		close(b);
		end();
	}
	alive("while the child may live", a, b);
	say_end("child", p);
	alive("after the child", a, b);
	close(a);
	SAY("the end", recv(b, t, 10, 0));
}

SNIPPET(fork_both_use, "fork")
{
	int sv[2];
	pid_t p;

	pair();
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	gate = sv[0];
	p = start();
	if (!p) {
		gate = sv[1];
		for (int i = 0; i < 10; i++) {
			wait_go();
			send(a, "child ", 6, 0);
			go();
		}
		end();
	}
	for (int i = 0; i < 10; i++) {
		send(a, "parent", 6, 0);
		go();
		wait_go();
		SAY("12 bytes", recv(b, t, 12, MSG_WAITALL));
		say_bytes("they are", t, 12);
	}
	say_end("child", p);
	alive("after", a, b);
}

/* What b shows, by each call that may say so, and whether a read finds it. */
static void shows(const char *what)
{
	struct timeval none = { 0, 0 };
	struct pollfd p = { .fd = b, .events = POLLIN };
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0), q = -1;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(b, &set);
	epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev);
	tell("%s: poll %d, epoll %d, select %d", what, poll(&p, 1, 0), epoll_wait(ep, &ev, 1, 0),
	     select(b + 1, &set, NULL, NULL, &none));
	ioctl(b, FIONREAD, &q);
	tell("%s: FIONREAD %d", what, q);
	close(ep);
}

static void child_takes_all(bool lent)
{
	pid_t p;

	pair();
	for (int i = 0; i < 3; i++) {
		put(a, b, "for the child");
		shows("before");
		fflush(stdout);
		if (lent) {
			char *argv[] = { "sh", "-c", "exec head -c 13 >/dev/null", NULL };
			posix_spawn_file_actions_t acts;

			posix_spawn_file_actions_init(&acts);
			posix_spawn_file_actions_adddup2(&acts, b, 0);
			posix_spawn(&p, "/bin/sh", &acts, NULL, argv, environ);
			posix_spawn_file_actions_destroy(&acts);
		} else {
			p = fork();
			if (!p)
				_exit(recv(b, t, 13, MSG_WAITALL) != 13);
		}
		say_end("child", p);
		shows("after");
		alive("after", a, b);
	}
}

SNIPPET(fork_child_takes_all, "fork poll select epoll_wait ioctl") { child_takes_all(false); }
SNIPPET(spawn_child_takes_all, "posix_spawn poll select epoll_wait ioctl")
{
	child_takes_all(true);
}

/* The peer forks, its child goes on with the connection: what was read is gone, and who asks for
 * more need not sleep to hear so. */
static void hands_on(void)
{
	send(a, "xyz", 3, 0);
	if (!start()) {
		wait_go();
		send(a, "k", 1, 0);
		end();
	}
	close(a);
	go();
	wait_go();
}

SNIPPET(fork_peer_hands_on, "fork close ioctl")
{
	struct rusage before, after;
	int q = -1;
	pid_t p = with_peer(hands_on);

	arrive(b, 3);
	wait_go();
	nap_us(5000);		/* until the peer's library, if it has one, has released it */
	SAY("recv", recv(b, t, 10, 0));
	getrusage(RUSAGE_THREAD, &before);
	SAY("FIONREAD", ioctl(b, FIONREAD, &q));
	getrusage(RUSAGE_THREAD, &after);
	tell("bytes %d, slept: %d", q, after.ru_nvcsw - before.ru_nvcsw > 20);
	go();
	go();
	SAY("the child's", recv(b, t, 10, 0));
	say_end("peer", p);
}

/* The peer's child goes on when the peer has closed and ended, and nobody has taken note of its
 * end. */
static void leaves_child(void)
{
	pid_t me = getpid();

	if (!start()) {
		while (getppid() == me)
			nap_us(1000);
		send(a, "kid", 3, 0);
		end();
	}
	close(a);
}
SNIPPET(fork_zombie_parent, "fork close")
{
	pid_t p = with_peer(leaves_child);

	SAY("the child's", recv(b, t, 3, MSG_WAITALL));
	say_end("peer", p);
	SAY("the end", recv(b, t, 10, 0));
}

SNIPPET(fork_close_in_parent, "fork close")
{
	pid_t p;

	/* the connection ends when the last holder closes it */
	pair();
	p = start();
	if (!p) {
		close(a);
		if (recv(b, t, 4, MSG_WAITALL) != 4)
			_exit(9);
		send(b, "done", 4, 0);
		end();
	}
	close(b);
	SAY("send", send(a, "work", 4, 0));
	SAY("answer", recv(a, t, 4, MSG_WAITALL));
	say_end("child", p);
	SAY("the end", recv(a, t, 10, 0));
}

SNIPPET(fork_much_queued, "fork")
{
	pid_t p;

	pair();
	fill(buf, 200000, 0);
	for (int at = 0; at < 200000; at += 1000)
		send(a, buf + at, 1000, 0);
	p = start();
	if (!p) {
		gather("child reads all", b, 200000, 0);
		end();
	}
	say_end("child", p);
	send(a, "more", 4, 0);
	SAY("the parent what comes then", recv(b, t, 10, 0));
}

static void serves(int fd)
{
	ssize_t n = recv(fd, t, sizeof(t), 0);

	send(fd, t, (size_t)n, 0);
}
SNIPPET(fork_per_connection, "fork accept")
{
	struct sockaddr_in at;
	int l = listener_at(&at), n = 0;
	pid_t server = start();

	if (!server) {
		for (int i = 0; i < 8; i++) {
			int d = accept(l, NULL, NULL);

			if (!fork()) {
				serves(d);
				_exit(0);
			}
			close(d);
		}
		while (wait(NULL) > 0)
			;
		_exit(0);
	}
	close(l);
	for (int i = 0; i < 8; i++) {
		int c = connect_to(&at);

		nap_us(random() % 3000);
		send(c, "echo", 4, 0);
		n += recv(c, t, 4, MSG_WAITALL) == 4;
		if (recv(c, t, 4, 0) != 0)
			tell("%d: no end", i);
		close(c);
	}
	tell("%d of 8", n);
	say_end("server", server);
}

SNIPPET(fork_grandchild, "fork")
{
	pid_t p;

	pair();
	p = start();
	if (!p) {
		p = fork();
		if (!p) {
			SAY("grandchild send", send(a, "far", 3, 0));
			end();
		}
		say_end("grandchild", p);
		SAY("child send", send(a, "near", 4, 0));
		end();
	}
	say_end("child", p);
	SAY("parent recv", recv(b, t, 7, MSG_WAITALL));
	say_bytes("it is", t, 7);
	alive("after", a, b);
}

SNIPPET(fork_names, "__fork _Fork")
{
	pid_t p;

	pair();
	fflush(stdout);
	p = SYM(__fork, fork)();
	if (!p) {
		SAY("child send", send(a, "x", 1, 0));
		end();
	}
	say_end("__fork", p);
	SAY("recv", recv(b, t, 1, 0));
	fflush(stdout);
	p = SYM(_Fork, fork)();
	if (!p)
		_exit(7);
	say_end("_Fork", p);
	alive("after", a, b);
}

SNIPPET(vfork_exec, "vfork __vfork execl")
{
	pid_t p;

	pair();
	fflush(stdout);
	p = vfork();
	if (!p) {
		execl("/bin/sh", "sh", "-c", "exit 3", NULL);
		_exit(1);
	}
	say_end("vfork", p);
	alive("after", a, b);
	p = vfork();
	if (!p) {
		dup2(b, 0);
		dup2(b, 1);
		execl("/bin/sh", "sh", "-c", "read x; echo got $x", NULL);
		_exit(1);
	}
	send(a, "line\n", 5, 0);
	SAY("answer of the shell", recv(a, t, 9, MSG_WAITALL));
	say_bytes("it is", t, 8);
	say_end("shell", p);
	alive("after", a, b);
	tell("__vfork exists: %d", dlsym(RTLD_DEFAULT, "__vfork") != NULL);
}

static int cloned(void *arg)
{
	(void)arg;
	return 5;
}
SNIPPET(clone_plain, "clone __clone")
{
	static char stack[65536] __attribute__((aligned(16)));
	pid_t p;

	pair();
	fflush(stdout);
	p = clone(cloned, stack + sizeof(stack), SIGCHLD, NULL);
	say_end("clone", p);
	p = ((int (*)(int (*)(void *), void *, int, void *, ...))symbol("__clone"))(
		cloned, stack + sizeof(stack), SIGCHLD, NULL);
	say_end("__clone", p);
	alive("after", a, b);
}

static int child_sends(void *arg)
{
	(void)arg;
	return send(a, "by the child", 12, 0) == 12 && recv(a, t, 1, 0) == 1 ? 6 : 7;
}

/* Children that run no handler use what they have. */
SNIPPET(clone_child_uses, "clone _Fork syscall")
{
	static char stack[65536] __attribute__((aligned(16)));

	pair();
	for (int how = 0; how < 3; how++) {
		pid_t p;

		fflush(stdout);
		switch (how) {
		case 0: p = clone(child_sends, stack + sizeof(stack), SIGCHLD, NULL); break;
		case 1: p = SYM(_Fork, fork)(); break;
		default: p = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
		}
		if (!p)
			_exit(child_sends(NULL));
		SAY("recv", recv(b, t, 12, MSG_WAITALL));
		say_bytes("it is", t, 12);
		SAY("send", send(b, "x", 1, 0));
		say_end("child", p);
		SAY("nothing is left", recv(a, t, 1, MSG_DONTWAIT));
		alive("after", a, b);
	}
}

static void handler_sends(void) { send(a, "h", 1, 0); }

SNIPPET(fork_handlers, "__register_atfork fork")
{
	typedef void handler(void);
	int (*reg)(handler *, handler *, handler *, void *) =
		(int (*)(handler *, handler *, handler *, void *))symbol("__register_atfork");
	pid_t p;

	pair();
	SAY("__register_atfork", reg(handler_sends, handler_sends, handler_sends, NULL));
	fflush(stdout);
	p = fork();
	if (!p)
		_exit(3);
	say_end("child", p);
	SAY("recv", recv(b, t, 3, MSG_WAITALL));
	say_bytes("it is", t, 3);
	alive("after", a, b);
}

/* A shell takes the place of the child, with the connection as input and output. */
static char *sh[] = { "sh", "-c", "read x; echo got $x; read y; echo and $y", NULL };
static void exec_by(const char *what, int how)
{
	pid_t p;
	int f;

	pair();
	put(a, b, "one\n");
	p = start();
	if (!p) {
		dup2(b, 0);
		dup2(b, 1);
		close(a);
		close(b);
		switch (how) {
		case 0: execve("/bin/sh", sh, environ); break;
		case 1: execv("/bin/sh", sh); break;
		case 2: execvp("sh", sh); break;
		case 3: execvpe("sh", sh, environ); break;
		case 4: execl("/bin/sh", "sh", "-c", sh[2], NULL); break;
		case 5: execlp("sh", "sh", "-c", sh[2], NULL); break;
		case 6: execle("/bin/sh", "sh", "-c", sh[2], NULL, environ); break;
		case 7: f = open("/bin/sh", O_RDONLY | O_CLOEXEC); fexecve(f, sh, environ); break;
		case 8:
			f = open("/bin", O_RDONLY | O_CLOEXEC);
			execveat(f, "sh", sh, environ, 0);
			break;
		}
		_exit(99);
	}
	close(b);
	SAY(what, recv(a, t, 8, MSG_WAITALL));
	say_bytes("it is", t, 7);
	send(a, "two\n", 4, 0);
	SAY("then", recv(a, t, 8, MSG_WAITALL));
	say_bytes("it is", t, 7);
	say_end("shell", p);
	SAY("end", recv(a, t, 8, 0));
	close(a);
}
SNIPPET(exec_execve, "execve") { exec_by("execve", 0); }
SNIPPET(exec_execv, "execv") { exec_by("execv", 1); }
SNIPPET(exec_execvp, "execvp") { exec_by("execvp", 2); }
SNIPPET(exec_execvpe, "execvpe") { exec_by("execvpe", 3); }
SNIPPET(exec_execl, "execl") { exec_by("execl", 4); }
SNIPPET(exec_execlp, "execlp") { exec_by("execlp", 5); }
SNIPPET(exec_execle, "execle") { exec_by("execle", 6); }
SNIPPET(exec_fexecve, "fexecve") { exec_by("fexecve", 7); }
SNIPPET(exec_execveat, "execveat") { exec_by("execveat", 8); }

static void becomes_shell(void)
{
	dup2(a, 0);
	dup2(a, 1);
	execl("/bin/sh", "sh", "-c", "read x; echo got $x", NULL);
	_exit(99);
}
SNIPPET(exec_own_connection, "execl dup2")
{
	/* not forked in between: the process that has the connection is replaced */
	pid_t p = with_peer(becomes_shell);

	send(b, "line\n", 5, 0);
	SAY("answer", recv(b, t, 9, MSG_WAITALL));
	say_bytes("it is", t, 8);
	say_end("shell", p);
	SAY("end", recv(b, t, 9, 0));
}

static void execs_without(void)
{
	fcntl(a, F_SETFD, FD_CLOEXEC);
	send(a, "last", 4, 0);
	execl("/bin/true", "true", NULL);
	_exit(99);
}
SNIPPET(exec_cloexec, "execl fcntl")
{
	pid_t p = with_peer(execs_without);

	say_end("program", p);
	SAY("last words", recv(b, t, 10, 0));
	SAY("end", recv(b, t, 10, 0));
}

/* What a process sent before it left without exit handlers, and its end. */
static void leaves(void (*leave)(void))
{
	pid_t p = with_peer(leave);

	say_end("process", p);
	SAY("last words", recv(b, t, 20, MSG_WAITALL));
	say_bytes("they are", t, 10);
	SAY("end", recv(b, t, 10, 0));
}

static void leaves_at_once(void)
{
	send(a, "last words", 10, 0);
	_exit(5);
}
SNIPPET(exit_at_once, "_exit") { leaves(leaves_at_once); }

static void leaves_in_c(void)
{
	send(a, "last words", 10, 0);
	_Exit(6);
}
SNIPPET(exit_in_c, "_Exit") { leaves(leaves_in_c); }

SNIPPET(exec_fails, "execve execl execlp fexecve execveat")
{
	char *none[] = { NULL };

	pair();
	put(a, b, "x");
	SAY("execve", execve("/nonexistent", sh, environ));
	SAY("execl", execl("/nonexistent", "x", NULL));
	SAY("execlp", execlp("nonexistent-program", "x", NULL));
	SAY("not executable", execv("/etc/passwd", sh));
	SAY("a directory", execv("/tmp", sh));
	SAY("fexecve", fexecve(-1, sh, environ));
	SAY("execveat", execveat(AT_FDCWD, "nonexistent", sh, environ, 0));
	SAY("recv", recv(b, t, 1, 0));
	alive("after all", a, b);
}

static void spawn_by(const char *what, bool search)
{
	posix_spawn_file_actions_t fa;
	pid_t p = -1;

	pair();
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, b, 0);
	posix_spawn_file_actions_adddup2(&fa, b, 1);
	put(a, b, "one\n");
	fflush(stdout);
	SAY(what, search ? posix_spawnp(&p, "sh", &fa, NULL, sh, environ)
			 : posix_spawn(&p, "/bin/sh", &fa, NULL, sh, environ));
	posix_spawn_file_actions_destroy(&fa);
	SAY("answer", recv(a, t, 8, MSG_WAITALL));
	send(a, "two\n", 4, 0);
	SAY("then", recv(a, t, 8, MSG_WAITALL));
	say_bytes("it is", t, 7);
	say_end("shell", p);
	alive("after", a, b);
}
SNIPPET(spawn_plain, "posix_spawn posix_spawn_file_actions_init posix_spawn_file_actions_destroy "
		     "posix_spawn_file_actions_adddup2")
{
	spawn_by("posix_spawn", false);
}
SNIPPET(spawn_search, "posix_spawnp") { spawn_by("posix_spawnp", true); }
SNIPPET(spawn_fails, "posix_spawn posix_spawnp")
{
	pid_t p;

	pair();
	SAYV("posix_spawn", posix_spawn(&p, "/nonexistent", NULL, NULL, sh, environ));
	SAYV("posix_spawnp", posix_spawnp(&p, "nonexistent-program", NULL, NULL, sh, environ));
	alive("after", a, b);
}

SNIPPET(system_popen, "system popen _IO_popen pclose")
{
	FILE *f;

	pair();
	put(a, b, "stays");
	fflush(stdout);
	SAYV("system", WEXITSTATUS(system("exit 4")));
	SAYV("system(NULL)", system(NULL) != 0);
	f = popen("echo hello", "r");
	tell("popen: %s", f && fgets(t, sizeof(t), f) ? "a line" : "nothing");
	SAYV("pclose", pclose(f));
	f = SYM(_IO_popen, popen)("exit 2", "w");
	SAYV("pclose", WEXITSTATUS(pclose(f)));
	SAY("bad mode", popen("true", "x") ? 0 : -1);
	SAY("recv", recv(b, t, 10, 0));
	alive("after", a, b);
}

SNIPPET(system_uses_connection, "system dup2")
{
	char cmd[64];

	pair();
	snprintf(cmd, sizeof(cmd), "echo from the shell >&%d", a);
	fflush(stdout);
	SAYV("system", system(cmd));
	arrive(b, 15);
	SAY("recv", recv(b, t, 100, 0));
	say_bytes("it is", t, 14);
	alive("after", a, b);
}

SNIPPET(daemonises, "daemon")
{
	pid_t p;

	pair();
	p = start();
	if (!p) {
		close(b);
		send(a, daemon(1, 1) ? "daemon failed.." : "from the daemon", 15, 0);
		_exit(0);
	}
	close(a);
	say_end("its parent", p);
	SAY("recv", recv(b, t, 15, MSG_WAITALL));
	say_bytes("it is", t, 15);
	SAY("end", recv(b, t, 15, 0));
}

SNIPPET(prctl_syscall, "prctl syscall arch_prctl __arch_prctl")
{
	unsigned long fs = 0;

	pair();
	SAY("prctl", prctl(PR_SET_NAME, "snippet"));
	SAY("prctl, unknown", prctl(99999, 0, 0, 0, 0));
	SAY("syscall", syscall(SYS_getpid) == getpid());
	SAY("syscall, unknown", syscall(99999));
	SAY("syscall close, bad", syscall(SYS_close, 999));
	SAYV("arch_prctl", SYM(arch_prctl, syscall)(0x1003 /* ARCH_GET_FS */, &fs));
	SAYV("__arch_prctl", SYM(__arch_prctl, syscall)(0x1003, &fs));
	tell("fs %d", fs != 0);
	put(a, b, "x");
	SAY("syscall close of a stream", syscall(SYS_close, b));
	SAY("closed", recv(b, t, 1, 0));
	until(a, POLLHUP);
	SAY("the peer", recv(a, t, 1, 0));
}

SNIPPET(syscall_data, "syscall")
{
	int d;

	pair();
	SAY("by raw write", syscall(SYS_write, open("/dev/null", O_WRONLY), "x", 1));
	d = (int)syscall(SYS_dup, open("/dev/null", O_RDONLY));
	tell("raw dup: %d", d >= 0);
	SAY("raw close_range", syscall(SYS_close_range, d, d, 0));
	alive("after", a, b);
}

/* An io_uring of one entry at a time: the kernel moves the bytes without a call that could be
 * seen. */
struct uring {
	int fd;
	struct io_uring_params p;
	char *ring;
	struct io_uring_sqe *sqe;
	uint64_t off;
	uint8_t flags;
};

static void uring_open(struct uring *u)
{
	memset(u, 0, sizeof(*u));
	u->fd = (int)syscall(SYS_io_uring_setup, 2, &u->p);
	tell("io_uring: %s", u->fd >= 0 ? "there" : strerrorname_np(errno));
	if (u->fd < 0)
		return;
	u->ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_SQ_RING);
	u->sqe = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_SQES);
	if (u->ring == MAP_FAILED || u->sqe == MAP_FAILED ||
	    !(u->p.features & IORING_FEAT_SINGLE_MMAP))
		die("io_uring");
}

static int uring_do(struct uring *u, int op, int fd, void *p, unsigned n)
{
	_Atomic unsigned *sq = (void *)(u->ring + u->p.sq_off.tail),
			 *cq = (void *)(u->ring + u->p.cq_off.head);
	unsigned at = atomic_load(sq) & *(unsigned *)(u->ring + u->p.sq_off.ring_mask);
	struct io_uring_cqe *e = (void *)(u->ring + u->p.cq_off.cqes);
	int r;

	memset(&u->sqe[at], 0, sizeof(*u->sqe));
	u->sqe[at].opcode = (uint8_t)op;
	u->sqe[at].fd = fd;
	u->sqe[at].addr = (uintptr_t)p;
	u->sqe[at].len = n;
	u->sqe[at].off = u->off;
	u->sqe[at].flags = u->flags;
	((unsigned *)(u->ring + u->p.sq_off.array))[at] = at;
	atomic_fetch_add(sq, 1);
	if (syscall(SYS_io_uring_enter, u->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		die("io_uring_enter");
	r = e[atomic_load(cq) & *(unsigned *)(u->ring + u->p.cq_off.ring_mask)].res;
	atomic_fetch_add(cq, 1);
	return r;
}

SNIPPET(io_uring, "syscall")
{
	char in[20] = "";
	struct uring u;

	pair();
	alive("before", a, b);
	put(a, b, "sent before");
	uring_open(&u);
	if (u.fd < 0)
		return;
	tell("recv: %d", uring_do(&u, IORING_OP_RECV, b, in, sizeof(in)));
	say_bytes("what was sent before", in, 11);
	tell("send: %d", uring_do(&u, IORING_OP_SEND, a, "by the ring", 11));
	tell("recv: %d", uring_do(&u, IORING_OP_RECV, b, in, sizeof(in)));
	say_bytes("by the ring", in, 11);
	alive("after", a, b);
	tell("send: %d", uring_do(&u, IORING_OP_SEND, a, "once more", 9));
	SAY("recv", recv(b, t, 9, MSG_WAITALL));
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		for (int i = 0; i < 50; i++) {		/* time enough for a cut */
			nap_us(1000);
			send(x, "x", 1, 0);
			recv(y, t, 1, 0);
		}
		alive("new ones", x, y);
		tell("send: %d", uring_do(&u, IORING_OP_SEND, x, "and there", 9));
		SAY("recv", recv(y, t, 9, MSG_WAITALL));
	}
}

/* `a` is in the ring's table of files, at 0; its last bytes have not been read. */
static void uring_by_table(struct uring *u)
{
	u->flags = IOSQE_FIXED_FILE;
	tell("send: %d", uring_do(u, IORING_OP_SEND, 0, "by the table", 12));
	u->flags = 0;
	SAY("recv", recv(b, t, 22, MSG_WAITALL));
	say_bytes("in order", t, 22);
	alive("after", a, b);
}

SNIPPET(io_uring_files_update, "syscall")
{
	int none = -1;
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	SAY("register", syscall(SYS_io_uring_register, u.fd, IORING_REGISTER_FILES, &none, 1));
	pair();
	alive("cut", a, b);
	put(a, b, "by send(2)");
	tell("update: %d", uring_do(&u, IORING_OP_FILES_UPDATE, -1, &a, 1));
	uring_by_table(&u);
}

SNIPPET(io_uring_registered_ring, "syscall")
{
	struct io_uring_rsrc_update self = { .offset = -1u };
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	self.data = (uint64_t)u.fd;
	SAY("register the ring",
	    syscall(SYS_io_uring_register, u.fd, 20 /* IORING_REGISTER_RING_FDS */, &self, 1));
	pair();
	alive("cut", a, b);
	put(a, b, "by send(2)");
	SAY("register by it",
	    syscall(SYS_io_uring_register, self.offset, IORING_REGISTER_FILES | 1u << 31, &a, 1));
	uring_by_table(&u);
}

static void uring_epoll(struct uring *u, int ep, int op, int fd, struct epoll_event *e)
{
	int r;

	u->off = (uint64_t)fd;
	r = uring_do(u, IORING_OP_EPOLL_CTL, ep, e, (unsigned)op);
	tell("%s: %s",
	     op == EPOLL_CTL_ADD   ? "add"
	     : op == EPOLL_CTL_MOD ? "mod"
				   : "del",
	     r ? strerrorname_np(-r) : "ok");
	u->off = 0;
}

static void tell_ready(const char *what, int ep)
{
	struct epoll_event e = { 0 };
	int n = epoll_wait(ep, &e, 1, 2000);

	tell("%s: %d, %lx, %s%s", what, n, (unsigned long)e.data.u64,
	     e.events & EPOLLIN ? "in " : "", e.events & EPOLLOUT ? "out" : "");
}

/* As libuv does it: what changes in an epoll instance goes by a ring. The connection is cut over
 * all the same, see apps/uring. */
SNIPPET(io_uring_epoll, "syscall")
{
	int ep = epoll_create1(EPOLL_CLOEXEC), fds[2];
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 0xabc };
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	pair();
	alive("cut", a, b);
	uring_epoll(&u, ep, EPOLL_CTL_ADD, b, &e);
	uring_epoll(&u, ep, EPOLL_CTL_ADD, b, &e);
	put(a, b, "to be waited for");
	tell_ready("readable", ep);
	recv(b, t, sizeof(t), 0);
	e.events = EPOLLIN | EPOLLOUT;
	e.data.u64 = 0xdef;
	uring_epoll(&u, ep, EPOLL_CTL_MOD, b, &e);
	tell_ready("writable", ep);
	uring_epoll(&u, ep, EPOLL_CTL_DEL, b, NULL);
	uring_epoll(&u, ep, EPOLL_CTL_DEL, b, NULL);
	put(a, b, "nobody waits");
	tell("after: %d", epoll_wait(ep, &e, 1, 20));
	recv(b, t, 12, MSG_WAITALL);
	alive("after", a, b);
	if (pipe(fds))
		die("pipe");
	e.events = EPOLLIN;
	uring_epoll(&u, ep, EPOLL_CTL_ADD, fds[0], &e);
	write(fds[1], "x", 1);
	tell_ready("a pipe", ep);
	tell("close: %d", uring_do(&u, IORING_OP_CLOSE, b, NULL, 0));
	SAY("peer", recv(a, t, 1, 0));
	SAY("closed", fcntl(b, F_GETFD));
}

/* The last of a link whose first fails is not done. */
SNIPPET(io_uring_epoll_linked, "syscall")
{
	int ep = epoll_create1(EPOLL_CLOEXEC), none[2];
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 0xabc };
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	pair();
	alive("cut", a, b);
	for (int fails = 0; fails < 2; fails++) {
		_Atomic unsigned *sq = (void *)(u.ring + u.p.sq_off.tail),
				 *cq = (void *)(u.ring + u.p.cq_off.head);
		unsigned at = atomic_load(sq), mask = *(unsigned *)(u.ring + u.p.sq_off.ring_mask),
			 *array = (void *)(u.ring + u.p.sq_off.array);
		struct io_uring_cqe *c = (void *)(u.ring + u.p.cq_off.cqes);

		if (pipe(none))
			die("pipe");
		u.sqe[at & mask] = (struct io_uring_sqe){ .opcode = IORING_OP_WRITE,
							  .fd = fails ? -1 : none[1],
								  .addr = (uintptr_t)t, .len = 1,
									  .flags = IOSQE_IO_LINK };
		u.sqe[(at + 1) & mask] = (struct io_uring_sqe){ .opcode = IORING_OP_EPOLL_CTL,
								.fd = ep, .addr = (uintptr_t)&e,
									.len = fails ? EPOLL_CTL_MOD
										: EPOLL_CTL_ADD,
			.off = (uint64_t)b };
		array[at & mask] = at & mask;
		array[(at + 1) & mask] = (at + 1) & mask;
		atomic_fetch_add(sq, 2);
		SAY("both",
		    syscall(SYS_io_uring_enter, u.fd, 2, 2, IORING_ENTER_GETEVENTS, NULL, 0));
		for (int i = 0; i < 2; i++, atomic_fetch_add(cq, 1)) {
			int r = c[atomic_load(cq) & *(unsigned *)(u.ring + u.p.cq_off.ring_mask)]
					.res;

			tell("%s", r < 0 ? strerrorname_np(-r) : "done");
		}
		e.events = EPOLLOUT;		/* which would be ready at once */
		e.data.u64 = 0xdef;
	}
	put(a, b, "to be waited for");
	tell_ready("as was added", ep);
	recv(b, t, sizeof(t), 0);
	alive("after", a, b);
}

SNIPPET(seccomp_filter, "prctl")
{
	struct sock_filter f[] = {
		{ BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr) },
		{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_eventfd2 },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW },
	};
	struct sock_fprog g = { 4, f };

	pair();
	put(a, b, "before");
	SAY("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	SAY("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &g));
	SAY("recv", recv(b, t, 10, 0));
	alive("old ones", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

SNIPPET(setuid_after, "setuid setgid")
{
	pair();
	alive("as root", a, b);
	SAY("setgid", setgid(65534));
	SAY("setuid", setuid(65534));
	alive("as nobody", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

SNIPPET(chroot_after, "chroot")
{
	pair();
	SAY("chroot", chroot("/proc"));
	alive("old ones", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

extern int capset(void *head, const void *data);

/* What only the calling thread gives up. */
SNIPPET(rights_after, "capset prctl syscall")
{
	struct { uint32_t version, pid; } head = { 0x20080522, 0 };
	struct { uint32_t effective, permitted, inheritable; } data[2];

	pair();
	alive("before", a, b);
	SAY("what there is", (int)syscall(SYS_capget, &head, data));
	SAY("the same", capset(&head, data));
	data[0].effective = data[0].permitted &= ~(1u << 25);
	SAY("without a clock", capset(&head, data));
	SAY("by syscall", (int)syscall(SYS_capset, &head, data));
	alive("with fewer", a, b);
	SAY("no head", capset(NULL, data));
	SAY("no data", capset(&head, (void *)8));
	head.version = 7;
	SAY("another version", capset(&head, data));
	SAY("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	SAY("without", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
	SAY("no such capability", prctl(PR_CAPBSET_DROP, 77, 0, 0, 0));
	SAY("bits", prctl(PR_SET_SECUREBITS, 1 << 30, 0, 0, 0));
	SAY("no rules", (int)syscall(446 /* landlock_restrict_self */, -1, 0));
	alive("after", a, b);
}

/* The kernel refuses a user namespace to a process with several threads, and a mount namespace
 * to one that shares its directory. */
SNIPPET(unshare_after, "unshare setns")
{
	int mnt = open("/proc/self/ns/mnt", O_RDONLY), net = open("/proc/self/ns/net", O_RDONLY);

	pair();
	alive("before", a, b);
	SAY("files", unshare(CLONE_FILES));
	alive("with descriptors of its own", a, b);
	SAY("nothing", unshare(0));
	SAY("unknown", unshare(1));
	SAY("mount", unshare(CLONE_NEWNS));
	SAY("back", setns(mnt, CLONE_NEWNS));
	SAY("back, any type", setns(mnt, 0));
	SAY("back, wrong type", setns(mnt, CLONE_NEWUSER));
	SAY("net", unshare(CLONE_NEWNET));
	alive("in another network", a, b);
	SAY("back", setns(net, 0));
	SAY("bad", setns(-1, 0));
	SAY("user", unshare(CLONE_NEWUSER));
	alive("as nobody known", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

static void *nothing(void *arg) { return arg; }

/* From then on no thread can be made: the kernel's threads are all of one PID namespace. */
SNIPPET(unshare_pid, "unshare fork")
{
	pthread_t th;
	pid_t p;

	pair();
	alive("before", a, b);
	SAY("user and pid", unshare(CLONE_NEWUSER | CLONE_NEWPID));
	alive("old ones", a, b);
	tell("a thread: %s", strerrorname_np(pthread_create(&th, NULL, nothing, NULL)));
	p = fork();
	if (!p)
		_exit(getpid() == 1);
	alive("old ones", a, b);
	say_end("the first there", p);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

static void peer_echo(void)
{
	ssize_t n;

	while ((n = recv(a, page, sizeof(page), 0)) > 0)
		send(a, page, (size_t)n, 0);
}
SNIPPET(peer_process, "fork recv send")
{
	pid_t p = with_peer(peer_echo);

	for (int i = 0; i < 100; i++) {
		fill(buf, 3000, (size_t)i * 3000);
		if (send(b, buf, 3000, 0) != 3000 || recv(b, buf, 3000, MSG_WAITALL) != 3000 ||
		    strcmp(right(buf, 3000, (size_t)i * 3000), "right"))
			tell("round %d", i);
	}
	shutdown(b, SHUT_WR);
	SAY("end", recv(b, t, 1, 0));
	say_end("peer", p);
}

static void *thread_exits(void *arg)
{
	(void)arg;
	recv(b, t, 10, 0);
	return NULL;
}
SNIPPET(thread_cancelled, "recv read poll")
{
	pthread_t th;
	void *r;

	pair();
	pthread_create(&th, NULL, thread_exits, NULL);
	nap_us(3000);
	pthread_cancel(th);
	pthread_join(th, &r);
	tell("cancelled %d", r == PTHREAD_CANCELED);
	alive("after", a, b);
	put(a, b, "x");
	SAY("nothing was taken", recv(b, t, 10, 0));
}
