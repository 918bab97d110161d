/*
 * Children of which fork()'s handlers do not know: made by _Fork() or by the system call, so that they have a copy of this memory as another thread left it.
 *	copychild loop | exec | dup
 * loop: the child runs an event loop of its own: what it has removed says nothing more, and can be added again.
 * exec, dup: while another thread adds to an epoll instance and removes from it, 100 children end: none waits for a lock of that thread's.
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
	if (epoll_ctl(own, EPOLL_CTL_ADD, fd, &ev) || epoll_wait(own, got, 4, 0) != 1 || got[0].data.u64 != 2)
		return 3;
	return 0;
}

static int loops(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), peer, status, bad = 0;
	socklen_t n = sizeof to;

	if (bind(l, (struct sockaddr *)&to, n) || listen(l, 1) || getsockname(l, (struct sockaddr *)&to, &n) || connect(fd, (struct sockaddr *)&to, n))
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

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "loop"))
		return loops();
	return beside(!strcmp(what, "exec"));
}
