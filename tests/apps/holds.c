/*
 * holds.c - what a wait has called readable, or writable, is so until it is used. Knows nothing of
 * the library.
 *
 * 	holds server PORT		answers each request of four bytes, a count, with so
 * 					many bytes; 0: it closes
 * 	holds client PORT HOW CONNS ROUNDS BYTES CHILDREN
 * 					so many connections, a thread each, wait by HOW
 * 					(ways[]) and read, for so many rounds at
 * 					least; meanwhile another thread starts so many
 * 					children, one every 20 ms, who inherit
 * 					them all. Says how often what was there gave EAGAIN.
 * 					HOW nested: through an instance in which the epoll
 * 					instance is; inherited: the children are forks, and wait
 * 					in the epoll instances, too
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK	1500	/* of a read: less than there mostly is, so that a level stays up */
#define PATIENCE_MS 30000

static int port, conns, rounds, bytes;
static int refused, bad, ended, children;
static int inner[256];		/* the instances in which the connections are */
static int instances;
static __thread int my_inner;

static unsigned char pattern(size_t at) { return (unsigned char)(at * 7 + (at >> 8)); }

static void count(int *what) { __atomic_fetch_add(what, 1, __ATOMIC_RELAXED); }

static bool send_all(int fd, const void *p, size_t n)
{
	for (size_t done = 0; done < n; ) {
		ssize_t r = send(fd, (const char *)p + done, n - done, MSG_NOSIGNAL);

		if (r <= 0)
			return false;
		done += (size_t)r;
	}
	return true;
}

static void *answer(void *arg)
{
	unsigned char out[8192];
	int fd = (int)(intptr_t)arg;
	uint32_t want;
	size_t at = 0;

	while (recv(fd, &want, sizeof want, MSG_WAITALL) == sizeof want && want) {
		for (uint32_t left = want; left; ) {
			size_t n = left < sizeof out ? left : 1 + (at * 31) % sizeof out;

			for (size_t i = 0; i < n; i++)
				out[i] = pattern(at + i);
			if (!send_all(fd, out, n))
				break;
			at += n;
			left -= (uint32_t)n;
		}
	}
	close(fd);
	return NULL;
}

/* ---- ways to wait until fd is readable; false: it is not for so long ---- */

static bool by_poll(int fd, int ep)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	(void)ep;
	return poll(&p, 1, PATIENCE_MS) == 1;
}

static bool by_ppoll(int fd, int ep)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec t = { PATIENCE_MS / 1000, 0 };

	(void)ep;
	return ppoll(&p, 1, &t, NULL) == 1;
}

static bool by_select(int fd, int ep)
{
	struct timeval t = { PATIENCE_MS / 1000, 0 };
	fd_set r;

	(void)ep;
	FD_ZERO(&r);
	FD_SET(fd, &r);
	return select(fd + 1, &r, NULL, NULL, &t) == 1;
}

static bool by_pselect(int fd, int ep)
{
	struct timespec t = { PATIENCE_MS / 1000, 0 };
	fd_set r;

	(void)ep;
	FD_ZERO(&r);
	FD_SET(fd, &r);
	return pselect(fd + 1, &r, NULL, NULL, &t, NULL) == 1;
}

static bool by_epoll(int fd, int ep)
{
	struct epoll_event e;

	int r;

	(void)fd;
	do
		r = epoll_wait(ep, &e, 1, PATIENCE_MS);
	while (r < 0 && errno == EINTR);	/* the kernel's own, at the end of a child */
	return r == 1;
}

/* What the outer one has told the inner one has, too. */
static bool by_nested(int fd, int ep)
{
	struct epoll_event e;

	while (by_epoll(fd, ep)) {
		if (epoll_wait(my_inner, &e, 1, 0) == 1)
			return true;
		count(&refused);
	}
	return false;
}

/* Then the read may wait, but not for long. */
static bool by_timeout(int fd, int ep)
{
	struct timeval t = { 0, 100 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
	return by_poll(fd, ep);
}

static const struct way {
	const char *name;
	bool (*wait)(int fd, int ep);
	bool nonblock;
} ways[] = {
	{ "poll", by_poll, true },	{ "ppoll", by_ppoll, true },
		{ "select", by_select, true },
	{ "pselect", by_pselect, true }, { "epoll", by_epoll, true },
		{ "timeout", by_timeout, false },
	{ "nested", by_nested, true },	{ "inherited", by_epoll, true },
};
static const struct way *way;

/* So many bytes. False: they do not come, or are wrong. */
static bool take(int fd, int ep, size_t *at, size_t n)
{
	unsigned char in[CHUNK];

	while (n) {
		ssize_t r;

		if (!way->wait(fd, ep))
			return false;
		r = recv(fd, in, n < sizeof in ? n : sizeof in, way->nonblock ? MSG_DONTWAIT : 0);
		if (r < 0 && errno == EAGAIN) {
			count(&refused);
			continue;
		}
		if (r <= 0)
			return false;
		for (ssize_t i = 0; i < r; i++)
			if (in[i] != pattern(*at + (size_t)i))
				return false;
		*at += (size_t)r;
		n -= (size_t)r;
	}
	return true;
}

static bool at_end(int fd, int ep)
{
	for (;;) {
		char c;
		ssize_t r;

		if (!way->wait(fd, ep))
			return false;
		r = recv(fd, &c, 1, way->nonblock ? MSG_DONTWAIT : 0);
		if (r >= 0 || errno != EAGAIN)
			return r == 0;
		count(&refused);
	}
}

static bool ask(int fd, uint32_t want)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int flags = MSG_NOSIGNAL | (way->nonblock ? MSG_DONTWAIT : 0);

	while (poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLOUT) {
		if (send(fd, &want, sizeof want, flags) == sizeof want)
			return true;
		if (errno != EAGAIN)
			break;
		count(&refused);
	}
	return false;
}

static bool talk(int fd, int ep)
{
	size_t at = 0;

	for (int i = 0; i < rounds || __atomic_load_n(&children, __ATOMIC_RELAXED); i++)
		if (!ask(fd, (uint32_t)bytes) || !take(fd, ep, &at, (size_t)bytes))
			return false;
	return ask(fd, 0) && at_end(fd, ep);
}

static struct sockaddr_in here(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void *work(void *arg)
{
	struct sockaddr_in a = here();
	struct epoll_event e = { .events = EPOLLIN };
	int fd = socket(AF_INET, SOCK_STREAM, 0), ep = epoll_create1(EPOLL_CLOEXEC);

	if (connect(fd, (void *)&a, sizeof a) || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e))
		exit(2);
	my_inner = inner[(intptr_t)arg] = ep;
	count(&instances);
	if (way->wait == by_nested) {
		ep = epoll_create1(EPOLL_CLOEXEC);
		if (epoll_ctl(ep, EPOLL_CTL_ADD, my_inner, &e))
			exit(2);
	}
	count(talk(fd, ep) ? &ended : &bad);
	close(fd);
	close(ep);
	if (ep != my_inner)
		close(my_inner);
	return arg;
}

/* One that has no connection of its own, and ends soon. */
static bool child(void)
{
	struct epoll_event e;
	int st;
	pid_t pid;

	if (strcmp(way->name, "inherited"))
		return system("exit 3") >> 8 == 3;
	pid = fork();
	if (!pid) {
		for (int i = 0; i < instances; i++)
			epoll_wait(inner[i], &e, 1, 1);
		_exit(3);
	}
	return waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 3;
}

static void client(void)
{
	pthread_t t[256];
	int n;

	for (n = 0; n < conns && n < 256; n++)
		pthread_create(&t[n], NULL, work, (void *)(intptr_t)n);
	while (__atomic_load_n(&instances, __ATOMIC_ACQUIRE) < n)
		usleep(1000);
	for (int left = children; left; __atomic_store_n(&children, --left, __ATOMIC_RELAXED)) {
		if (!child())
			exit(2);
		usleep(20000);	/* a pace, nothing is waited for */
	}
	while (n--)
		pthread_join(t[n], NULL);
	printf("%d ended, %d did not; %d times what was there gave EAGAIN\n", ended, bad, refused);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a;
	pthread_t t;
	int l;

	if (argc < 3)
		return 2;
	port = atoi(argv[2]);
	if (!strcmp(argv[1], "client") && argc > 7) {
		for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
			if (!strcmp(argv[3], ways[i].name))
				way = &ways[i];
		conns = atoi(argv[4]);
		rounds = atoi(argv[5]);
		bytes = atoi(argv[6]);
		if (!way)
			return 2;
		children = atoi(argv[7]);
		client();
		return 0;
	}
	a = here();
	l = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(l, (void *)&a, sizeof a) || listen(l, 512))
		return 2;
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd >= 0 && !pthread_create(&t, NULL, answer, (void *)(intptr_t)fd))
			pthread_detach(t);
	}
}
