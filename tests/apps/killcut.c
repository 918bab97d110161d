/*
 * killcut.c server PORT | client PORT PEERS: peers that talk over several connections each are
 * killed at any moment, some when they have closed a direction. Who reads at the other end finds
 * bytes, the end or an error of reading, in whatever way he reads; EPIPE is for those who send.
 * Knows nothing of the library. The policy rewinds the connections all the time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNS 4
#define CHUNK 3000
#define AT_ONCE 4

static struct sockaddr_in at;

static void die(const char *what)
{
	fprintf(stderr, "killcut: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static uint32_t noise(uint32_t *x)
{
	*x = *x * 1664525 + 1013904223;
	return *x >> 8;
}

static void nap_us(long us)
{
	struct timespec t = { 0, us * 1000 };

	nanosleep(&t, NULL);
}

/* ---- the end that lives ---- */

struct conn { int fd; uint32_t seed; };

static ssize_t some(int fd, uint32_t r)
{
	char buf[CHUNK * 2];
	struct iovec v[2] = { { buf, CHUNK / 2 }, { buf + CHUNK, CHUNK } };
	struct msghdr h = { .msg_iov = v, .msg_iovlen = 2 };

	switch (r % 7) {
	case 0: return read(fd, buf, sizeof buf);
	case 1: return readv(fd, v, 2);
	case 2: return recvmsg(fd, &h, 0);
	case 3: return recv(fd, buf, CHUNK, MSG_PEEK);
	case 4: return recv(fd, buf, sizeof buf, MSG_DONTWAIT);
	case 5: return recv(fd, buf, CHUNK, MSG_WAITALL);
	default: return recv(fd, buf, 1 + r % CHUNK, 0);
	}
}

/* Until the end, and some calls more: an error is told once, and then the end. */
static void *reads(void *arg)
{
	struct conn *c = arg;
	uint32_t x = c->seed;
	int ended = 0;

	while (ended < 3) {
		ssize_t n = some(c->fd, noise(&x));

		if (n < 0 && errno != ECONNRESET && errno != EAGAIN)
			die("an error that no read gives");
		ended += n == 0 || (n < 0 && errno != EAGAIN);
		if (noise(&x) % 16 == 0)
			nap_us(noise(&x) % 1000);
	}
	return NULL;
}

static void *writes(void *arg)
{
	static const char buf[CHUNK * 4];
	struct conn *c = arg;
	uint32_t x = c->seed + 1;

	for (;;) {
		ssize_t n = send(c->fd, buf, 1 + noise(&x) % sizeof buf, MSG_NOSIGNAL);

		if (n < 0)
			break;
		if (noise(&x) % 4096 == 0) {
			shutdown(c->fd, SHUT_WR);
			break;
		}
		if (noise(&x) % 16 == 0)
			nap_us(noise(&x) % 1000);
	}
	return NULL;
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	pthread_t t;

	if (pthread_create(&t, NULL, writes, c))
		die("a thread");
	reads(c);
	shutdown(c->fd, SHUT_RDWR);
	pthread_join(t, NULL);
	close(c->fd);
	free(c);
	return NULL;
}

static _Noreturn void server(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	uint32_t n = 0;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (l < 0 || bind(l, (void *)&at, sizeof at) || listen(l, 64))
		die("listen");
	for (;;) {
		struct conn *c = malloc(sizeof *c);
		pthread_t t;

		*c = (struct conn){ accept(l, NULL, NULL), ++n * 7919 };
		if (c->fd < 0 || pthread_create(&t, NULL, serve, c))
			die("accept");
		pthread_detach(t);
	}
}

/* ---- the end that is killed ---- */

static void talk(uint32_t x)
{
	static char buf[CHUNK * 4];
	struct pollfd p[CONNS];

	for (int i = 0; i < CONNS; i++) {
		p[i] = (struct pollfd){ .fd = socket(AF_INET, SOCK_STREAM, 0),
					.events = POLLIN | POLLOUT };
		if (connect(p[i].fd, (void *)&at, sizeof at))
			die("connect");
	}
	for (;;) {
		poll(p, CONNS, 5);
		for (int i = 0; i < CONNS; i++) {
			if (p[i].revents & POLLOUT && noise(&x) % 2 &&
			    send(p[i].fd, buf, 1 + noise(&x) % sizeof buf,
				 MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
			    errno != EAGAIN)
				p[i].events = POLLIN;
			if (p[i].revents & POLLIN && noise(&x) % 2 &&
			    recv(p[i].fd, buf, 1 + noise(&x) % sizeof buf, MSG_DONTWAIT) == 0 &&
			    !p[i].events)
				p[i].fd = -1;
			if (p[i].events & POLLOUT && noise(&x) % 512 == 0) {
				shutdown(p[i].fd, SHUT_WR);
				p[i].events = POLLIN;
			}
		}
	}
}

static int client(int peers)
{
	uint32_t x = 1;
	pid_t pid[AT_ONCE] = { 0 };

	for (int n = 0; n < peers + AT_ONCE; n++) {
		int i = n % AT_ONCE, status;

		if (pid[i]) {
			nap_us(noise(&x) % 20000);
			kill(pid[i], SIGKILL);
			if (waitpid(pid[i], &status, 0) != pid[i] || !WIFSIGNALED(status))
				die("a peer");
		}
		pid[i] = n < peers ? fork() : 0;
		if (n < peers && !pid[i])
			talk(noise(&x));
	}
	return 0;
}

int main(int argc, char **argv)
{
	at = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	at.sin_port = htons((uint16_t)(argc > 2 ? atoi(argv[2]) : 0));
	if (argc == 3 && !strcmp(argv[1], "server"))
		server();
	return argc == 4 && !strcmp(argv[1], "client") ? client(atoi(argv[3])) : 2;
}
