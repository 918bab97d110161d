/*
 * asksagain.c - a program that waits for a non-blocking socket by reading it again and again,
 * and now and then in a way that only the kernel knows of: system calls made without libc.
 * Wherever its bytes come from while it asks, it must be woken when it waits.
 *
 * 	asksagain ROUNDS [fast]
 *
 * fast: it asks until a message has come without the kernel's TCP, by the kernel's own count.
 * Bytes are compared.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arch/arch.h"

extern char **environ;
#define MSG 4096
#define ASKED 400	/* reads that find nothing before each message */
#define PATIENCE 30	/* s */
#define CTL 3

static unsigned char buf[MSG];
static uint64_t at;	/* offset in the stream */

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned char byte_at(uint64_t off)
{
	return (unsigned char)(off * 0x9e3779b97f4a7c15u >> 56);
}

static uint64_t kernel_received(int fd)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof ti;

	if (sys6(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, (long)&ti, (long)&len, 0) < 0)
		die("TCP_INFO");
	return ti.tcpi_bytes_received;
}

/* ---- the sender: a message for each byte on CTL ---- */
static int sender(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char c;

	if (connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connect");
	while (read(CTL, &c, 1) == 1) {
		for (size_t i = 0; i < MSG; i++)
			buf[i] = byte_at(at++);
		if (send(fd, buf, MSG, MSG_NOSIGNAL) != MSG)
			die("send");
	}
	return 0;
}

/* ---- the reader ---- */
static void ask_for_one(void)
{
	if (write(CTL, "m", 1) != 1)
		die("write");
}

/* Reads a message by asking. */
static void take(int fd)
{
	time_t end = time(NULL) + PATIENCE;
	size_t got = 0;

	while (got < MSG) {
		ssize_t r = recv(fd, buf + got, MSG - got, 0);

		if (!r || (r < 0 && errno != EAGAIN))
			die("recv");
		if (r > 0)
			got += (size_t)r;
		else if (time(NULL) > end)
			exit((fprintf(stderr, "nothing came within %d s\n", PATIENCE), 1));
	}
	for (size_t i = 0; i < MSG; i++, at++)
		if (buf[i] != byte_at(at))
			exit((fprintf(stderr, "wrong byte at %lu\n", (unsigned long)at), 1));
}

/* True: it came without TCP. */
static int ask_and_take(int fd)
{
	uint64_t before;

	for (int i = 0; i < ASKED; i++)
		if (recv(fd, buf, MSG, 0) >= 0 || errno != EAGAIN)
			die("recv without a message");
	before = kernel_received(fd);
	ask_for_one();
	take(fd);
	return kernel_received(fd) == before;
}

/* Waits where only the kernel can wake it; an epoll instance that is told of edges, or a poll(). */
static void hidden_wait(int fd, int edge)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	struct timespec t = { PATIENCE, 0 };
	long ep, r;

	if (edge) {
		ep = sys6(SYS_epoll_create1, 0, 0, 0, 0, 0, 0);
		if (ep < 0 || sys6(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, (long)&e, 0, 0))
			die("epoll");
		ask_for_one();
		r = sys6(SYS_epoll_pwait, ep, (long)&e, 1, PATIENCE * 1000, 0, 8);
		sys6(SYS_close, ep, 0, 0, 0, 0, 0);
	} else {
		ask_for_one();
		r = sys6(SYS_ppoll, (long)&p, 1, (long)&t, 0, 8, 0);
	}
	if (r != 1)
		exit((fprintf(stderr, "a wait for a message at %lu ended with %ld\n",
			      (unsigned long)at, r),
		      1));
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	char port[16], *args[] = { argv[0], "0", port, NULL };
	int l, fd, sv[2], status, rounds, fast, seen = 0;
	posix_spawn_file_actions_t fa;
	time_t end;
	pid_t pid;

	if (argc < 2)
		return 2;
	rounds = atoi(argv[1]);
	if (!rounds)
		return sender(atoi(argv[2]));
	fast = argc > 2 && !strcmp(argv[2], "fast");
	l = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len))
		die("listen");
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		die("socketpair");
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, sv[1], CTL);
	if (posix_spawn(&pid, "/proc/self/exe", &fa, NULL, args, environ))
		die("spawn");
	fd = accept(l, NULL, NULL);
	close(l);
	if (sv[0] != CTL)
		dup2(sv[0], CTL);
	close(sv[1]);
	if (fd < 0 || fd == CTL || fcntl(fd, F_SETFL, O_NONBLOCK))
		die("accept");
	for (int i = 0; i < rounds; i++) {
		end = time(NULL) + PATIENCE;
		do
			seen = ask_and_take(fd);
		while (fast && !seen && time(NULL) < end);
		if (fast && !seen)
			exit((fprintf(stderr, "round %d: still on TCP\n", i), 1));
		hidden_wait(fd, i & 1);
		take(fd);
	}
	close(CTL);
	if (sv[0] != CTL)
		close(sv[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	printf("%d waits, each woken\n", rounds);
	return 0;
}
