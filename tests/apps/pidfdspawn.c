/*
 * pidfdspawn.c serve PORT | call PORT ROUNDS: the peer's child writes to the connection by
 * pidfd_spawn() and pidfd_spawnp() of glibc 2.39. The serving end prints what it reads: A;
 * child; B; in that order, each round.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int spawn_fn(int *, const char *, const posix_spawn_file_actions_t *,
		     const posix_spawnattr_t *, char *const *, char *const *);
extern char **environ;

static void die(const char *what)
{
	fprintf(stderr, "pidfdspawn: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr_in at(const char *port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int serve(const char *port)
{
	struct sockaddr_in a = at(port);
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd;
	char buf[4096];
	ssize_t n;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(l, (void *)&a, sizeof a) || listen(l, 4) || (fd = accept(l, NULL, NULL)) < 0)
		die("accept");
	while ((n = recv(fd, buf, sizeof buf, 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			if (buf[i] != 'x')
				putchar(buf[i]);
		/* a turn, so that it earns its upgrade */
		if (memchr(buf, 'x', (size_t)n) && send(fd, "y", 1, 0) != 1)
			die("send");
	}
	return n ? 1 : 0;
}

static void spawn(const char *name, int fd)
{
	spawn_fn *f = (spawn_fn *)dlsym(RTLD_DEFAULT, name);
	char command[64];
	char *argv[] = { "sh", "-c", command, NULL };
	siginfo_t si;
	int pidfd, r;

	if (!f)
		die("no pidfd_spawn in this libc");
	snprintf(command, sizeof command, "printf 'child;' >&%d", fd);
	r = f(&pidfd, name[strlen(name) - 1] == 'p' ? "sh" : "/bin/sh", NULL, NULL, argv, environ);
	errno = r;
	if (r)
		die(name);
	if (waitid(P_PIDFD, (id_t)pidfd, &si, WEXITED) || si.si_status)
		die("the child");
	close(pidfd);
}

static int call(const char *port, int rounds)
{
	struct sockaddr_in a = at(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char c;

	if (connect(fd, (void *)&a, sizeof a))
		die("connect");
	for (int i = 0; i < 400 * rounds; i++) {
		if (send(fd, "x", 1, 0) != 1 || recv(fd, &c, 1, 0) != 1)
			die("a turn");
		if (i % 400 != 399)
			continue;
		if (send(fd, "A;", 2, 0) != 2)
			die("send");
		spawn(i / 400 % 2 ? "pidfd_spawnp" : "pidfd_spawn", fd);
		if (send(fd, "B;", 2, 0) != 2)
			die("send");
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	return argc == 4 ? call(argv[2], atoi(argv[3])) : 2;
}
