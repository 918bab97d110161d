/*
 * othershut.c - a connection that another process shuts down, which got the socket in one of
 * several ways. Knows nothing of the library.
 *
 * 	othershut server PORT		echoes until its input ends; after a 'b' it says "bye" then
 * 	othershut client PORT WAY HOW	talks, has the other process shut it down (HOW as of
 * 					shutdown()), and says what it sees then
 * 	othershut shut FD HOW		the other process, where it is another program
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE	64
#define ROUNDS	600	/* the connection is upgraded by then */
#define PATIENCE_MS 20000

extern char **environ;

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char b[SIZE] = "";
	ssize_t n;

	while ((n = recv(fd, b, sizeof b, 0)) > 0)
		if (send(fd, b, (size_t)n, MSG_NOSIGNAL) != n)
			break;
	if (b[0] == 'b')
		send(fd, "bye", 3, MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

/* 0 or an errno, or -1: not what was sent. After SHUT_RD a poll does not tell of bytes. */
static int round_trip(int fd, int seed)
{
	char out[SIZE], in[SIZE];
	int n = 0;

	memset(out, seed, sizeof out);
	if (send(fd, out, sizeof out, MSG_NOSIGNAL) != SIZE)
		return errno;
	for (int i = 0; n < SIZE && i < PATIENCE_MS; i++) {
		if (ioctl(fd, FIONREAD, &n))
			return errno;
		if (n < SIZE)
			usleep(i < 200 ? 10 : 1000);
	}
	return recv(fd, in, sizeof in, MSG_DONTWAIT) == SIZE && !memcmp(in, out, SIZE) ? 0 : -1;
}

static void shut(int fd, int how)
{
	_exit(shutdown(fd, how) ? errno : 0);
}

/* ---- ways; each gives the other process ---- */

static pid_t by_fork(int fd, int how)
{
	pid_t p = fork();

	if (!p)
		shut(fd, how);
	return p;
}

static pid_t by_other(int fd, int how, int spawned)
{
	char n[16], h[16], *argv[] = { "othershut", "shut", n, h, NULL };
	pid_t p;

	snprintf(n, sizeof n, "%d", fd);
	snprintf(h, sizeof h, "%d", how);
	if (spawned)
		return posix_spawn(&p, "/proc/self/exe", NULL, NULL, argv, environ) ? -1 : p;
	p = fork();
	if (!p) {
		execv("/proc/self/exe", argv);
		_exit(126);
	}
	return p;
}

static pid_t by_exec(int fd, int how) { return by_other(fd, how, 0); }
static pid_t by_spawn(int fd, int how) { return by_other(fd, how, 1); }

static int pair[2];	/* to a child that was there before the connection */
static pid_t child;

static void take_and_shut(int how)
{
	char c, room[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room,
			    .msg_controllen = sizeof room };
	int fd;

	if (recvmsg(pair[1], &m, 0) != 1 || !CMSG_FIRSTHDR(&m))
		_exit(126);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	shut(fd, how);
}

static pid_t by_pass(int fd, int how)
{
	char c = 0, room[CMSG_SPACE(sizeof(int))] = "";
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room,
			    .msg_controllen = sizeof room };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	(void)how;
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	return sendmsg(pair[0], &m, 0) == 1 ? child : -1;
}

static const struct { const char *name; pid_t (*give)(int fd, int how); } ways[] = {
	{ "fork", by_fork }, { "exec", by_exec }, { "spawn", by_spawn }, { "pass", by_pass },
};

/* ---- what is seen of it ---- */

static void look(int fd, const char *when)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP };

	poll(&p, 1, 0);
	printf("%s %x, ", when, p.revents);
}

static void see(int fd, int how)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char b[SIZE];
	ssize_t r;

	if (how == SHUT_RD) {
		look(fd, "shown");
		printf("read %zd, ", recv(fd, b, sizeof b, MSG_DONTWAIT));
		printf("round %d, ", round_trip(fd, 1));
		printf("read %zd, ", recv(fd, b, sizeof b, MSG_DONTWAIT));
		shutdown(fd, SHUT_WR);
	} else {
		r = send(fd, "x", 1, MSG_NOSIGNAL);
		printf("send %zd %d, ", r, r < 0 ? errno : 0);
	}
	for (;;) {
		if (poll(&p, 1, PATIENCE_MS) != 1) {
			printf("no end\n");
			return;
		}
		r = recv(fd, b, sizeof b, MSG_DONTWAIT);
		if (r <= 0)
			break;
		printf("%.*s, ", (int)r, b);
	}
	printf("end %zd %d\n", r, r < 0 ? errno : 0);
}

static int client(struct sockaddr_in *a, const char *way, int how)
{
	pid_t p = -1;
	int fd, status;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 2;
	child = fork();
	if (!child) {
		close(pair[0]);
		take_and_shut(how);
	}
	close(pair[1]);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (void *)a, sizeof *a))
		return 2;
	for (int i = 0; i < ROUNDS; i++)
		if (round_trip(fd, i % 50))
			return 3;
	/* With the other hows that would be answered by a reset, before what is looked at or
	 * after. */
	if (how == SHUT_WR && round_trip(fd, 'b'))
		return 3;
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (!strcmp(way, ways[i].name))
			p = ways[i].give(fd, how);
	if (p <= 0 || waitpid(p, &status, 0) != p)
		return 4;
	printf("%s %d: %d, ", way, how, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	see(fd, how);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	pthread_t t;
	int l;

	if (argc == 4 && !strcmp(argv[1], "shut"))
		shut(atoi(argv[2]), atoi(argv[3]));
	if (argc < 3)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[2]));
	if (!strcmp(argv[1], "client") && argc == 5)
		return client(&a, argv[3], atoi(argv[4]));
	l = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(l, (void *)&a, sizeof a) || listen(l, 64))
		return 2;
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd >= 0 && !pthread_create(&t, NULL, serve, (void *)(intptr_t)fd))
			pthread_detach(t);
	}
}
