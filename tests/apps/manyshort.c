/*
 * manyshort.c - a server that makes a process for each connection has many: N processes, a few
 * at a time, each with one TCP connection over which 100 bytes go there and back. Every seventh
 * is killed with the connection open. Knows nothing of the library.
 *
 * 	manyshort N
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 100
#define AT_ONCE 4

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void move(int fd, char *buf, ssize_t (*how)(int, void *, size_t))
{
	for (size_t n = 0; n < BLOCK;) {
		ssize_t k = how(fd, buf + n, BLOCK - n);

		if (k <= 0)
			die("a connection ends too soon");
		n += (size_t)k;
	}
}

static ssize_t put(int fd, void *p, size_t n) { return send(fd, p, n, MSG_NOSIGNAL); }
static ssize_t take(int fd, void *p, size_t n) { return recv(fd, p, n, 0); }

static void serve(struct sockaddr_in *shared)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof a;
	char buf[BLOCK];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (l < 0 || bind(l, (void *)&a, sizeof a) || listen(l, 64) ||
	    getsockname(l, (void *)&a, &len))
		die("listen");
	__atomic_store_n(&shared->sin_port, a.sin_port, __ATOMIC_RELEASE);
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd < 0)
			die("accept");
		move(fd, buf, take);
		move(fd, buf, put);
		close(fd);
	}
}

static void one(const struct sockaddr_in *a, int i)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char buf[BLOCK];

	memset(buf, i, sizeof buf);
	if (fd < 0 || connect(fd, (const void *)a, sizeof *a))
		die("connect");
	move(fd, buf, put);
	move(fd, buf, take);
	for (int k = 0; k < BLOCK; k++)
		if (buf[k] != (char)i)
			die("wrong bytes");
	if (i % 7 == 0)
		raise(SIGKILL);
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in *a =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int n = argc > 1 ? atoi(argv[1]) : 100, running = 0, st;
	pid_t server;

	*a = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	server = fork();
	if (!server)
		serve(a);
	while (!__atomic_load_n(&a->sin_port, __ATOMIC_ACQUIRE))
		usleep(1000);
	for (int i = 1; i <= n; i++, running++) {
		for (; running >= AT_ONCE; running--)
			if (wait(&st) < 0 || (WIFEXITED(st) && WEXITSTATUS(st)))
				return 1;
		if (!fork())
			one(a, i);
	}
	for (; running; running--)
		if (wait(&st) < 0 || (WIFEXITED(st) && WEXITSTATUS(st)))
			return 1;
	kill(server, SIGTERM);
	wait(&st);
	return 0;
}
