/*
 * passing.c - connections that programs get which have the library, and programs that have it not.
 * Calls: sendmsg recvmsg execve execle posix_spawn
 * LIBS: -ldl
 */
#include <spawn.h>

#include "snip.h"

static char t[256];

/* The environment, with the library or without. */
static char **with_preload(bool with)
{
	static char *env[512];
	int n = 0;

	for (char **e = environ; *e && n < 510; e++)
		if (with || strncmp(*e, "LD_PRELOAD=", 11))
			env[n++] = *e;
	env[n] = NULL;
	return env;
}

/* This program again, as "PROGRAM child HOW FD": it gets a connection over the socket FD, or FD
 * is one, and answers each line in capitals until the end. */
static int answers(int argc, char **argv)
{
	int fd = argc > 3 ? atoi(argv[3]) : -1;
	ssize_t n;

	if (argc > 2 && !strcmp(argv[2], "takes"))
		fd = take(fd);
	while ((n = recv(fd, t, sizeof(t), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			t[i] = (char)(t[i] >= 'a' && t[i] <= 'z' ? t[i] - 32 : t[i]);
		if (send(fd, t, (size_t)n, MSG_NOSIGNAL) != n)
			return 3;
	}
	return n ? 4 : 5;
}
__attribute__((constructor)) static void is_a_program(void) { child_program = answers; }

static pid_t spawned(bool with, const char *how, int fd)
{
	char number[12];
	char *args[] = { "/proc/self/exe", "child", (char *)how, number, NULL };
	pid_t p = -1;
	int r;

	snprintf(number, sizeof(number), "%d", fd);
	r = posix_spawn(&p, "/proc/self/exe", NULL, NULL, args, with_preload(with));
	if (r)
		die("posix_spawn: %s", strerrorname_np(r));
	return p;
}

static void talk(const char *what)
{
	for (int i = 0; i < 5; i++) {
		send(a, "words", 5, MSG_NOSIGNAL);
		SAY(what, recv(a, t, 5, MSG_WAITALL));
		say_bytes("  it says", t, 5);
	}
}

static void to_the_end(pid_t p)
{
	SAY("to what was there before", recv(a, t, 5, MSG_WAITALL));
	say_bytes("  it says", t, 5);
	talk("later");
	shutdown(a, SHUT_WR);
	SAY("the end", recv(a, t, 5, 0));
	say_end("the other program", p);
}

static void passes_to(bool with)
{
	int sv[2];
	pid_t p;

	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	p = spawned(with, "takes", sv[1]);
	pair();
	fcntl(a, F_SETFD, FD_CLOEXEC);
	put(a, b, "early");
	pass(sv[0], b);
	close(b);
	to_the_end(p);
}
SNIPPET(passed_to_preloaded, "sendmsg recvmsg") { passes_to(true); }
SNIPPET(passed_to_bare, "sendmsg recvmsg") { passes_to(false); }

static void inherits(bool with)
{
	pid_t p;

	pair();
	fcntl(a, F_SETFD, FD_CLOEXEC);
	put(a, b, "early");
	p = spawned(with, "has", b);
	close(b);
	SAY("to what was there before", recv(a, t, 5, MSG_WAITALL));
	say_bytes("  it says", t, 5);
	talk("later");
	close(a);
	say_end("the other program", p);
}
SNIPPET(inherited_by_preloaded, "posix_spawn") { inherits(true); }
SNIPPET(inherited_by_bare, "posix_spawn") { inherits(false); }

/* The process itself becomes another program. */
static void becomes(bool with)
{
	char number[12];
	pid_t p;

	pair();
	fcntl(a, F_SETFD, FD_CLOEXEC);
	put(a, b, "early");
	fflush(stdout);
	p = fork();
	if (!p) {
		snprintf(number, sizeof(number), "%d", b);
		close(a);
		execle("/proc/self/exe", "x", "child", "has", number, NULL, with_preload(with));
		_exit(99);
	}
	close(b);
	to_the_end(p);
}
SNIPPET(exec_with_preload, "execle execve") { becomes(true); }
SNIPPET(exec_without_preload, "execle execve") { becomes(false); }
