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
#include <sched.h>
#include <stdatomic.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "snip_fork.h"

extern char **environ;
static char t[256];

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
