/*
 * spawn.c - gives a connection to a child that is made without fork: vfork, posix_spawn, system,
 * popen.
 *
 * 	spawn echo listen PORT | connect HOST PORT	the other end: sends back what comes
 * 	spawn child IN OUT SENT GOT BYTES		the child: sends BYTES from offset
 * 							SENT, reads all that is due from GOT
 * 	spawn SCENARIO listen PORT | connect HOST PORT
 * 	spawn list
 * Small messages to and fro first, so that the connection may be upgraded; then some bytes are
 * left on their way back, which the child has to read; then the child talks to the peer, and
 * after it the parent again. Every byte is verified. Prints "SCENARIO ok". With GATE in the
 * environment, the name of a file, the parent makes that file before the child and after it, and
 * talks until somebody has removed it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pattern.h"

#define SEED  0x7370
#define CHUNK 4096

extern char **environ;
static unsigned long long sent, got;
static const char *self = "/proc/self/exe";

static void die(const char *what)
{
	fprintf(stderr, "spawn: %s: %s (sent %llu, got %llu)\n", what,
		errno ? strerror(errno) : "?", sent, got);
	_exit(1);
}

static void put(int fd, size_t n)
{
	char b[CHUNK];

	while (n) {
		size_t k = n < CHUNK ? n : CHUNK;
		ssize_t r;

		pattern_fill(b, k, SEED, sent);
		r = write(fd, b, k);
		if (r <= 0)
			die("send");
		sent += r;
		n -= r;
	}
}

static void take(int fd, unsigned long long upto)
{
	char b[CHUNK];

	while (got < upto) {
		ssize_t r = read(fd, b, upto - got < CHUNK ? upto - got : CHUNK);

		if (r <= 0)
			die(r ? "receive" : "end of file");
		if (pattern_check(b, r, SEED, got) != (size_t)r)
			die("wrong byte");
		got += r;
	}
}

static void rounds(int fd, int n)
{
	for (int i = 0; i < n; i++) {
		put(fd, 100);
		take(fd, sent);
		usleep(i % 4 ? 0 : 1000);
	}
}

static void talk(int fd)
{
	const char *gate = getenv("GATE");

	if (gate) {
		close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		while (!access(gate, F_OK))
			rounds(fd, 4);
	}
	rounds(fd, 100);
}

static int child(char **a)
{
	int in = atoi(a[0]), out = atoi(a[1]);
	unsigned long long left = strtoull(a[4], NULL, 0);

	sent = strtoull(a[2], NULL, 0);
	got = strtoull(a[3], NULL, 0);
	alarm(8);
	take(in, sent);
	for (; left; left -= left < 1000 ? left : 1000) {
		put(out, left < 1000 ? left : 1000);
		take(in, sent);
	}
	return 7;
}

static int echo(int fd)
{
	char b[CHUNK];
	ssize_t r;

	while ((r = read(fd, b, sizeof(b))) > 0)
		for (ssize_t at = 0, w; at < r; at += w)
			if ((w = write(fd, b + at, r - at)) <= 0)
				die("echo");
	return r != 0;
}

/* ---- the scenarios ---- */

static char words[7][24];
static char *args[8];

static void child_args(int in, int out, int bytes)
{
	snprintf(words[1], 24, "%d", in);
	snprintf(words[2], 24, "%d", out);
	snprintf(words[3], 24, "%llu", sent);
	snprintf(words[4], 24, "%llu", got);
	snprintf(words[5], 24, "%d", bytes);
	strcpy(words[0], "child");
	args[0] = (char *)"spawn";
	for (int i = 0; i < 6; i++)
		args[i + 1] = words[i];
}

static void told(int bytes) { sent += bytes; got = sent; }

static void reap(pid_t pid, int want)
{
	int st;

	if (waitpid(pid, &st, 0) != pid || !WIFEXITED(st) || WEXITSTATUS(st) != want)
		die("the child failed");
}

#define BYTES 200000

static void by_vfork(int fd)
{
	pid_t p;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	child_args(0, 1, BYTES);
	p = vfork();
	if (p == 0) {
		dup2(fd, 0);
		dup2(fd, 1);
		execve(self, args, environ);
		_exit(1);
	}
	reap(p, 7);
	told(BYTES);
}

static void by_vfork_dup(int fd)	/* the copy is made by number, and only the copy survives */
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	pid_t p;

	close(fd);
	if (dup2(high, fd) != fd || fcntl(fd, F_SETFD, FD_CLOEXEC))
		die("dup2");
	close(high);
	child_args(100, 100, BYTES);
	p = vfork();
	if (p == 0) {
		if (fcntl(fd, F_DUPFD, 100) == 100 && close(fd) == 0)
			execve(self, args, environ);
		_exit(1);
	}
	reap(p, 7);
	told(BYTES);
}

static void by_vfork_leak(int fd)	/* it just survives; all above it is closed, the
					 * library's own fds too */
{
	pid_t p;

	child_args(fd, fd, BYTES);
	p = vfork();
	if (p == 0) {
		closefrom(fd + 1);
		execv(self, args);
		_exit(1);
	}
	reap(p, 7);
	told(BYTES);
}

static void exec_fails(int fd)
{
	pid_t p = vfork();

	if (p == 0) {
		dup2(fd, 0);
		execve("/nonexistent", args, environ);
		_exit(errno == ENOENT ? 3 : 1);
	}
	reap(p, 3);
	take(fd, sent);
}

static void by_spawn(int fd)
{
	posix_spawn_file_actions_t fa;
	pid_t p;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	child_args(0, 1, BYTES);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, fd, 0);
	posix_spawn_file_actions_adddup2(&fa, fd, 1);
	if (posix_spawn(&p, self, &fa, NULL, args, environ))
		die("posix_spawn");
	reap(p, 7);
	told(BYTES);
	/* Once more with the same actions. */
	child_args(0, 1, BYTES);
	if (posix_spawnp(&p, self, &fa, NULL, args, environ))
		die("posix_spawnp");
	reap(p, 7);
	told(BYTES);
	posix_spawn_file_actions_destroy(&fa);
}

static void by_spawn_leak(int fd)
{
	pid_t p;

	child_args(fd, fd, BYTES);
	if (posix_spawn(&p, self, NULL, NULL, args, environ))
		die("posix_spawn");
	reap(p, 7);
	told(BYTES);
}

static void spawn_fails(int fd)
{
	pid_t p = -5;

	for (int i = 0; i < 20; i++)
		if (posix_spawn(&p, "/nonexistent", NULL, NULL, args, environ) != ENOENT || p != -5)
			die("posix_spawn");
	take(fd, sent);
}

static void command(char *s, size_t n, int fd)
{
	char exe[512];
	ssize_t r = readlink(self, exe, sizeof(exe) - 1);

	exe[r < 0 ? 0 : r] = 0;
	snprintf(s, n, "%s child 0 3 %llu %llu %d <&%d 3>&%d", exe, sent, got, BYTES, fd, fd);
}

static void by_system(int fd)
{
	char s[700];
	int st;

	command(s, sizeof(s), fd);
	st = system(s);
	if (!WIFEXITED(st) || WEXITSTATUS(st) != 7)
		die("system");
	told(BYTES);
}

static void by_popen(int fd)
{
	char s[700];
	FILE *f;
	int st;

	command(s, sizeof(s), fd);
	f = popen(s, "r");
	if (!f || fgetc(f) != EOF)
		die("popen");
	st = pclose(f);
	if (!WIFEXITED(st) || WEXITSTATUS(st) != 7)
		die("popen");
	told(BYTES);
}

/* The parent talks, too, while a child lives that could, and the child does in the end. */
static void while_it_lives(int fd)
{
	char s[760], c[700], *av[] = { (char *)"sh", (char *)"-c", s, NULL };
	int go[2];
	pid_t p;

	if (pipe(go))
		die("pipe");
	fcntl(go[1], F_SETFD, FD_CLOEXEC);
	take(fd, sent);
	/* offsets are known in advance: 300 rounds of 100 bytes */
	sent = got += 30000;
	command(c, sizeof(c), fd);
	sent = got -= 30000;
	snprintf(s, sizeof(s), "read x <&%d; %s; exit $?", go[0], c);
	if (posix_spawn(&p, "/bin/sh", NULL, NULL, av, environ))
		die("posix_spawn");
	rounds(fd, 300);
	close(go[1]);
	reap(p, 7);
	told(BYTES);
}

/* A pid namespace whose first process is gone makes no other. That one comes of a raw call: no
 * handler runs. */
static void fork_fails(int fd)
{
	if (unshare(CLONE_NEWPID) == 0) {
		pid_t p = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (p == 0)
			_exit(0);
		reap(p, 0);
		if (fork() != -1)
			die("fork succeeds");
		/* Back to TCP and again: were the failed fork still counted, it would stay
		 * there. */
		if (posix_spawn(&p, self, NULL, NULL, args, environ) == 0)
			die("posix_spawn succeeds");
	}
	take(fd, sent);
}

static const struct scenario {
	const char *name;
	void (*run)(int fd);
} scenarios[] = {
	{ "vfork", by_vfork },
	{ "vfork-dup", by_vfork_dup },
	{ "vfork-leak", by_vfork_leak },
	{ "exec-fails", exec_fails },
	{ "spawn", by_spawn },
	{ "spawn-leak", by_spawn_leak },
	{ "spawn-fails", spawn_fails },
	{ "system", by_system },
	{ "popen", by_popen },
	{ "while-it-lives", while_it_lives },
	{ "fork-fails", fork_fails },
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

static int get_socket(const char *mode, char **a)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	bool server = !strcmp(mode, "listen");
	int fd = socket(AF_INET, SOCK_STREAM, 0), l = fd, one = 1;

	sa.sin_port = htons(atoi(a[!server]));
	if (inet_pton(AF_INET, server ? "127.0.0.1" : a[0], &sa.sin_addr) != 1)
		die("address");
	if (!server) {
		if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
			die("connect");
		return fd;
	}
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (struct sockaddr *)&sa, sizeof(sa)) || listen(l, 4))
		die("listen");
	fd = accept(l, NULL, NULL);
	if (fd < 0)
		die("accept");
	close(l);
	return fd;
}

int main(int argc, char **argv)
{
	const struct scenario *s = scenarios;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	alarm(30);
	if (argc == 7 && !strcmp(argv[1], "child"))
		return child(argv + 2);
	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (; s < scenarios + SCENARIOS; s++)
			puts(s->name);
		return 0;
	}
	if (argc >= 4 && !strcmp(argv[1], "echo"))
		return echo(get_socket(argv[2], argv + 3));
	while (argc > 1 && s < scenarios + SCENARIOS && strcmp(argv[1], s->name))
		s++;
	if (argc < 4 || s == scenarios + SCENARIOS || (strcmp(argv[2], "listen") && argc < 5)) {
		fprintf(stderr,
			"usage: spawn list | echo | SCENARIO   listen PORT | connect HOST PORT\n");
		return 2;
	}
	fd = get_socket(argv[2], argv + 3);
	talk(fd);
	put(fd, 3000);		/* comes back while nobody reads */
	usleep(20000);
	s->run(fd);
	talk(fd);
	printf("%s ok\n", s->name);
	return 0;
}
