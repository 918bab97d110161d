/*
 * counted.c - what poll() calls readable FIONREAD counts, and TCP_INQ, too. Knows nothing of the
 * library.
 *
 *	counted server PORT		sends blocks of all sizes on each connection, and closes
 *	counted client PORT COUNT	that many connections, 6 at a time: says how often poll()
 *					showed bytes that were not counted
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCKS	400
#define THREADS	6
#define RATE	20000000	/* bytes a second: what TCP sends is under way for a while ... */
#define QUEUE	100000		/* ... but much less than the 50 ms for which that is waited for */

static int port, left;
static int uncounted, bad, ended;

static void *send_all(void *arg)
{
	static const char text[9000];
	int fd = (int)(intptr_t)arg;

	for (int i = 0; i < BLOCKS; i++) {
		size_t n = 1 + (size_t)(i * 7919) % sizeof text;

		if (send(fd, text, n, MSG_NOSIGNAL) != (ssize_t)n)
			break;
		if (i % 3 == 0)
			usleep(200);	/* so that the reader finds nothing, now and then */
	}
	close(fd);
	return NULL;
}

/* Bytes, or -1: no answer. */
static int inq(struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	int n = -1;

	if (c && c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ)
		memcpy(&n, CMSG_DATA(c), sizeof n);
	return n;
}

static ssize_t take(int fd)
{
	static __thread char buf[1500];
	char control[64];
	struct iovec v = { buf, sizeof buf };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1,
			    .msg_control = control, .msg_controllen = sizeof control };
	ssize_t r = recvmsg(fd, &m, MSG_DONTWAIT);
	int told = inq(&m), n = 0;

	/* What was told of is there until it is taken; TCP_INQ counts the FIN, too. */
	if (r > 0 && (told < 0 || ioctl(fd, FIONREAD, &n) || n < told - 1))
		__atomic_fetch_add(&uncounted, 1, __ATOMIC_RELAXED);
	return r;
}

static void read_all(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char c;

	for (;;) {
		int n = -1;
		ssize_t r;

		if (poll(&p, 1, 20000) != 1)
			break;
		if (ioctl(fd, FIONREAD, &n))
			break;
		if (n == 0) {	/* the end, and nothing else */
			r = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
			if (r == 0) {
				__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
				return;
			}
			if (r > 0)
				__atomic_fetch_add(&uncounted, 1, __ATOMIC_RELAXED);
		}
		r = take(fd);
		if (r < 0 && errno != EAGAIN)	/* whether what a poll shows stays is another
						 * question */
			break;
	}
	__atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED);
}

static void *work(void *arg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	while (__atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED) > 0) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (connect(fd, (void *)&a, sizeof a) ||
		    setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){ 1 }, sizeof(int)))
			exit(2);
		read_all(fd);
		close(fd);
	}
	return arg;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	pthread_t t[THREADS];
	int l;

	if (argc < 3)
		return 2;
	port = atoi(argv[2]);
	if (!strcmp(argv[1], "client") && argc > 3) {
		left = atoi(argv[3]);
		for (int i = 0; i < THREADS; i++)
			pthread_create(&t[i], NULL, work, NULL);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		printf("%d ended, %d did not; %d times bytes were not counted\n", ended, bad,
		       uncounted);
		return 0;
	}
	a.sin_port = htons((uint16_t)port);
	l = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	setsockopt(l, SOL_SOCKET, SO_MAX_PACING_RATE, &(unsigned){ RATE }, sizeof(unsigned));
	/* both are inherited */
	setsockopt(l, SOL_SOCKET, SO_SNDBUF, &(int){ QUEUE }, sizeof(int));
	if (bind(l, (void *)&a, sizeof a) || listen(l, 64))
		return 2;
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd >= 0 && !pthread_create(&t[0], NULL, send_all, (void *)(intptr_t)fd))
			pthread_detach(t[0]);
	}
}
