/*
 * Children of which fork()'s handlers do not know: made by _Fork() or by the system call, so
 * that they have a copy of this memory as another thread left it.
 * 	copychild loop | exec | dup | block
 * loop: the child runs an event loop of its own: what it has removed says nothing more, and can
 * be added again. block: one made by inline code, which the library cannot see, sends a block of
 * its own at once: the other end never gets its parent's. exec, dup: while another thread adds
 * to an epoll instance and removes from it, 100 children end: none waits for a lock of that
 * thread's.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/arch.h"

static int ep;
static volatile int over;

static void *busy(void *p)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int e = eventfd(0, EFD_CLOEXEC);

	while (!over) {
		epoll_ctl(ep, EPOLL_CTL_ADD, e, &ev);
		epoll_ctl(ep, EPOLL_CTL_DEL, e, NULL);
	}
	return p;
}

/* 1: it has ended; 0: not within 10 s, and it is killed. */
static int ends(pid_t p)
{
	int status;

	for (int ms = 0; ms < 10000; ms++) {
		if (waitpid(p, &status, WNOHANG) == p)
			return !status;
		usleep(1000);
	}
	kill(p, SIGKILL);
	waitpid(p, &status, 0);
	return 0;
}

static int beside(bool exec)
{
	pthread_t t;
	int good = 0, n;

	ep = epoll_create1(0);
	pthread_create(&t, NULL, busy, NULL);
	usleep(10000);
	for (n = 0; n < 100 && good == n; n++) {
		pid_t p = _Fork();

		if (!p) {
			if (exec)
				execl("/bin/true", "true", NULL);
			_exit(exec || dup(ep) < 0);
		}
		good += ends(p);
	}
	over = 1;
	pthread_join(t, NULL);
	printf("%d of %d children ended\n", good, n);
	return good != n;
}

/* Which call went wrong; 0: none. */
static int events(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 1 }, got[4];
	int own = epoll_create1(0);

	if (epoll_ctl(own, EPOLL_CTL_ADD, fd, &ev) || epoll_wait(own, got, 4, 0) != 1)
		return 1;
	if (epoll_ctl(own, EPOLL_CTL_DEL, fd, NULL) || epoll_wait(own, got, 4, 50) != 0)
		return 2;
	ev.data.u64 = 2;
	if (epoll_ctl(own, EPOLL_CTL_ADD, fd, &ev) || epoll_wait(own, got, 4, 0) != 1 ||
	    got[0].data.u64 != 2)
		return 3;
	return 0;
}

static int loops(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), peer, status,
	    bad = 0;
	socklen_t n = sizeof to;

	if (bind(l, (struct sockaddr *)&to, n) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&to, &n) || connect(fd, (struct sockaddr *)&to, n))
		return 2;
	peer = accept(l, NULL, NULL);
	if (write(peer, "x", 1) != 1)
		return 2;
	while (recv(fd, &status, 1, MSG_PEEK) != 1)
		;
	for (int i = 0; i < 2; i++) {
		pid_t p = i ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();

		if (!p)
			_exit(events(fd));
		waitpid(p, &status, 0);
		printf("%s: %d\n", i ? "clone" : "_Fork", status);
		bad |= status;
	}
	return bad != 0;
}

#define BLOCK (1u << 20)
#define BLOCKS 50

static char block[BLOCK];

static pid_t inline_clone(void) { return (pid_t)sys6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0); }

/* What is in the blocks that come: 0: as many of parent and child as were sent. */
static int reads_blocks(int fd)
{
	static const char all[] = "PC";
	size_t len[2] = { BLOCKS * (size_t)BLOCK, BLOCK };
	ssize_t n;

	for (int k = 0; k < 2; k++)
		for (size_t got = 0; got < len[k]; got += (size_t)n) {
			n = recv(fd, block, len[k] - got < BLOCK ? len[k] - got : BLOCK, 0);
			if (n <= 0)
				return 3;	/* he waits for a lock that nobody gives back:
						 * see docs/limits.md */
			for (ssize_t i = 0; i < n; i++)
				if (block[i] != all[k])
					return 2;
		}
	return 0;
}

static int sends_blocks(int l)
{
	struct sockaddr_in to;
	socklen_t len = sizeof to;
	int fd = socket(AF_INET, SOCK_STREAM, 0), status, child;
	pid_t reader = fork(), p;

	if (!reader) {
		alarm(10);
		close(fd);
		_exit(reads_blocks(accept(l, NULL, NULL)));
	}
	if (getsockname(l, (struct sockaddr *)&to, &len) ||
	    connect(fd, (struct sockaddr *)&to, len))
		return 1;
	memset(block, 'P', BLOCK);
	for (int i = 0; i < BLOCKS; i++)
		for (ssize_t n, at = 0; at < (ssize_t)BLOCK; at += n)
			if ((n = send(fd, block + at, BLOCK - (size_t)at, 0)) <= 0)
				return 1;
	p = inline_clone();
	if (!p) {
		alarm(5);
		memset(block, 'C', BLOCK);
		for (ssize_t n, at = 0; at < (ssize_t)BLOCK; at += n)
			if ((n = send(fd, block + at, BLOCK - (size_t)at, 0)) <= 0)
				_exit(1);
		pause();
	}
	waitpid(reader, &status, 0);
	kill(p, SIGKILL);
	waitpid(p, &child, 0);
	close(fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static int blocks(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), whole = 0, r;

	if (listen(l, 8))
		return 1;
	for (int i = 0; i < 10; i++) {
		r = sends_blocks(l);
		if (r == 1 || r == 2)
			return printf("round %d: %s\n", i,
				      r == 2 ? "its parent's bytes" : "an error"),
			       1;
		whole += !r;
	}
	printf("block: %s\n", whole ? "right" : "never whole");
	return !whole;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "loop"))
		return loops();
	if (!strcmp(what, "block"))
		return blocks();
	return beside(!strcmp(what, "exec"));
}
