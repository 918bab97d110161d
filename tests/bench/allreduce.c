/*
 * allreduce.c - the ring allreduce of a collectives library (Gloo's), two ranks over lo, without
 * a GPU. What is hard about it: blocks go both ways at once, each with a header in the same
 * sendmsg(); non-blocking sockets; one epoll thread per process for reading and for what is left
 * to send; and a lock per connection, held over the send call, that the epoll thread only tries.
 * So neither end may wait inside a send for the other to read.
 *
 * 	allreduce MIB COUNT [SEGMENT]	prints GB/s of the whole vector; the sums of the first
 * 					two rounds are checked
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
#define SEGS 1024
#define WARM 3

enum { READY = 1, DATA };	/* the segment may come; here it is */
struct head { uint32_t type, seg; uint64_t len; char fill[48]; };
struct out { struct head h; const char *p; size_t sent; };

static int fd, ep, rank;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static struct out queue[4 * SEGS];
static unsigned first, last;
static struct { const char *send; char *recv; size_t len; int ready, sent, got; } seg[2 * SEGS];
static char *vec, *tmp;
static size_t size, part;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
	perror(what);
	exit(4);
}

/* ---- sending; lock held ---- */

/* 1: all of it is gone. */
static int push(struct out *o)
{
	size_t hs = sizeof o->h, all = hs + (o->h.type == DATA ? o->h.len : 0);

	while (o->sent < all) {
		size_t at = o->sent > hs ? o->sent - hs : 0;
		struct iovec v[2] = { { (char *)&o->h + o->sent, o->sent < hs ? hs - o->sent : 0 },
				      { (char *)(uintptr_t)o->p + at, all - hs - at } };
		struct msghdr m = { .msg_iov = v[0].iov_len ? v : v + 1,
				    .msg_iovlen = v[0].iov_len && v[1].iov_len ? 2 : 1 };
		ssize_t r = sendmsg(fd, &m, MSG_NOSIGNAL);

		if (r < 0 && errno == EAGAIN)
			return 0;
		if (r < 0)
			die("sendmsg");
		o->sent += (size_t)r;
	}
	if (o->h.type == DATA) {
		seg[o->h.seg].sent = 1;
		pthread_cond_broadcast(&cond);
	}
	return 1;
}

static void watch(uint32_t events)
{
	struct epoll_event e = { .events = events };

	if (epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e))
		die("epoll_ctl");
}

static void put(uint32_t type, uint32_t s, const char *p, size_t len)
{
	struct out *o = &queue[last % (4 * SEGS)];

	*o = (struct out){ .h = { .type = type, .seg = s, .len = len }, .p = p };
	if (first == last && push(o))
		return;
	if (first == last++)
		watch(EPOLLIN | EPOLLOUT);
}

/* ---- the epoll thread ---- */

/* One message at most. 0: nothing more is there now; -1: never. */
static int take(void)
{
	static struct head h;
	static size_t have;

	for (;;) {
		size_t hs = sizeof h;
		ssize_t r =
			have < hs ? recv(fd, (char *)&h + have, hs - have, 0)
				  : recv(fd, seg[h.seg].recv + (have - hs), h.len - (have - hs), 0);

		if (!r)
			return -1;
		if (r < 0 && errno == EAGAIN)
			return 0;
		if (r < 0)
			die("recv");
		have += (size_t)r;
		if (have < hs || (h.type == DATA && have < hs + h.len))
			continue;
		have = 0;
		if (h.type == DATA) {
			seg[h.seg].got = 1;
			pthread_cond_broadcast(&cond);
		} else {
			seg[h.seg].ready = 1;
			if (seg[h.seg].send)
				put(DATA, h.seg, seg[h.seg].send, seg[h.seg].len);
		}
		return 1;
	}
}

static void *loop(void *arg)
{
	struct epoll_event e;
	int more = 0;

	(void)arg;
	while (more >= 0) {
		if (epoll_wait(ep, &e, 1, -1) < 1 || pthread_mutex_trylock(&lock))
			continue;
		if (e.events & EPOLLOUT) {
			while (first != last && push(&queue[first % (4 * SEGS)]))
				first++;
			if (first == last)
				watch(EPOLLIN);
		}
		if (e.events & EPOLLIN)
			while ((more = take()) > 0)
				;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

/* ---- the other thread ---- */

static void post(uint32_t s, char *to, const char *from)
{
	pthread_mutex_lock(&lock);
	seg[s].recv = to;
	put(READY, s, NULL, part);
	pthread_mutex_unlock(&lock);
	pthread_mutex_lock(&lock);
	seg[s].len = part;
	if (seg[s].ready)
		put(DATA, s, from, part);
	else
		seg[s].send = from;
	pthread_mutex_unlock(&lock);
}

static void await(int *flag)
{
	pthread_mutex_lock(&lock);
	while (!*flag)
		pthread_cond_wait(&cond, &lock);
	*flag = 0;
	pthread_mutex_unlock(&lock);
}

/* 0: the half that is ours is summed up; 1: the halves go round. Two segments are under way. */
static void phase(int ph)
{
	size_t half = size / 2, n = half / part;
	char *ours = vec + (size_t)rank * half, *theirs = vec + (size_t)(1 - rank) * half;

	for (size_t i = 0; i < n + 2; i++) {
		if (i >= 2) {
			uint32_t s = (uint32_t)((size_t)ph * SEGS + i - 2);
			float *sum = (float *)(ours + (i - 2) * part),
			      *x = (float *)(tmp + i % 2 * part);

			await(&seg[s].got);
			for (size_t k = 0; !ph && k < part / sizeof *x; k++)
				sum[k] += x[k];
			await(&seg[s].sent);
			pthread_mutex_lock(&lock);
			seg[s].ready = 0;
			seg[s].send = NULL;
			pthread_mutex_unlock(&lock);
		}
		if (i < n)
			post((uint32_t)((size_t)ph * SEGS + i),
			     ph ? theirs + i * part : tmp + i % 2 * part,
			     ph ? ours + i * part : theirs + i * part);
	}
}

static void rounds(int count)
{
	double t = 0;

	for (int k = 0; k < count + WARM; k++) {
		if (k == WARM)
			t = now();
		for (size_t i = 0; k < 2 && i < size / sizeof(float); i++)
			((float *)vec)[i] = (float)((i + (size_t)k) % 1000 * (size_t)(rank + 1));
		phase(0);
		phase(1);
		for (size_t i = 0; k < 2 && i < size / sizeof(float); i++)
			if (((float *)vec)[i] != (float)((i + (size_t)k) % 1000 * 3)) {
				fprintf(stderr, "rank %d, round %d: wrong at %zu\n", rank, k, i);
				exit(1);
			}
	}
	if (!rank)
		printf("%.2f GB/s\n", (double)size * count / (now() - t) * 1e-9);
}

static int meet(char **argv, struct sockaddr_in *a, pid_t *pid)
{
	char *args[] = { argv[0], argv[1], argv[2], argv[3] ? argv[3] : "1048576", NULL, NULL },
		port[16];
	socklen_t len = sizeof *a;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(l, (struct sockaddr *)a, sizeof *a) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)a, &len))
		die("listen");
	snprintf(port, sizeof port, "%d", ntohs(a->sin_port));
	args[4] = port;
	if (posix_spawn(pid, "/proc/self/exe", NULL, NULL, args, environ))
		die("spawn");
	return accept4(l, NULL, NULL, SOCK_NONBLOCK);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event e = { .events = EPOLLIN };
	int one = 1, status = 0;
	pid_t pid = 0;
	pthread_t t;

	if (argc < 3)
		return 2;
	size = strtoull(argv[1], NULL, 0) << 20;
	part = argc > 3 ? strtoull(argv[3], NULL, 0) : 1 << 20;
	if (!part || size / 2 % part || size / 2 / part > SEGS)
		return 2;
	if (argc > 4) {
		rank = 1;
		a.sin_port = htons((uint16_t)atoi(argv[4]));
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof a) || fcntl(fd, F_SETFL, O_NONBLOCK))
			die("connect");
	} else {
		fd = meet(argv, &a, &pid);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	vec = aligned_alloc(4096, size);
	tmp = aligned_alloc(4096, 2 * part);
	ep = epoll_create1(0);
	if (!vec || !tmp || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) ||
	    pthread_create(&t, NULL, loop, NULL))
		die("start");
	rounds(atoi(argv[2]));
	fflush(stdout);
	/* The last bytes of the other are still to come, in the thread. */
	if (!rank && (waitpid(pid, &status, 0) != pid || status))
		_exit(1);
	_exit(0);
}
