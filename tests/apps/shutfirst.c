/*
 * shutfirst.c - a client that has said all and shut down for writing before anybody else does
 * anything, then reads to the end; knows nothing of the library.
 *
 * 	shutfirst server PORT		reads slowly and answers in small chunks meanwhile,
 * 					and closes; for ever
 * 	shutfirst client PORT COUNT	that many connections, four at a time; each must end
 * 					in EOF, after all bytes
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASKED  100000
#define ANSWER 60000
#define THREADS 4

static int port, count;
static int bad;

static void *serve(void *arg)
{
	static const char text[500];
	int fd = (int)(intptr_t)arg;
	char buf[1000];
	size_t sent = 0;
	ssize_t r;

	/* Its FIN waits behind what is not read yet. */
	for (int i = 0; (r = recv(fd, buf, sizeof buf, 0)) > 0; i++) {
		if (sent < ANSWER - sizeof text && send(fd, text, sizeof text, MSG_NOSIGNAL) > 0)
			sent += sizeof text;
		if (i % 10 == 0)
			poll(NULL, 0, 1);	/* time for cuts and rewinds */
	}
	while (!r && sent < ANSWER) {
		r = send(fd, text, ANSWER - sent < sizeof text ? ANSWER - sent : sizeof text,
			 MSG_NOSIGNAL);
		sent += r > 0 ? (size_t)r : 0;
		r = r < 0;
	}
	close(fd);
	return NULL;
}

static void *ask(void *arg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static const char all[ASKED];
	char buf[512];

	(void)arg;
	while (__atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED) > 0) {
		struct pollfd p = { .fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN };
		size_t got = 0;
		ssize_t r;

		/* all is sent at once, and waits */
		setsockopt(p.fd, SOL_SOCKET, SO_SNDBUF, &(int){ 4 * ASKED }, sizeof(int));
		if (connect(p.fd, (void *)&a, sizeof a) ||
		    send(p.fd, all, ASKED, MSG_NOSIGNAL) != ASKED || shutdown(p.fd, SHUT_WR)) {
			perror("shutfirst: connect, send");
			exit(2);
		}
		do {
			poll(&p, 1, -1);
			r = recv(p.fd, buf, sizeof buf, MSG_DONTWAIT);
			got += r > 0 ? (size_t)r : 0;
		} while (r > 0 || (r < 0 && errno == EAGAIN));
		if (r || got != ANSWER) {
			fprintf(stderr, "shutfirst: after %zu bytes: %s\n", got,
				r ? strerror(errno) : "end");
			__atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED);
		}
		close(p.fd);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	pthread_t t[THREADS];
	int one = 1, l;

	if (argc < 3)
		return 2;
	port = atoi(argv[2]);
	if (!strcmp(argv[1], "client") && argc > 3) {
		count = atoi(argv[3]);
		for (int i = 0; i < THREADS; i++)
			pthread_create(&t[i], NULL, ask, NULL);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		printf("%d of %s connections did not end well\n", bad, argv[3]);
		return bad != 0;
	}
	a.sin_port = htons((uint16_t)port);
	l = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	setsockopt(l, SOL_SOCKET, SO_RCVBUF, &(int){ 8192 }, sizeof(int));
	if (bind(l, (void *)&a, sizeof a) || listen(l, 64))
		return 2;
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd >= 0 && !pthread_create(&t[0], NULL, serve, (void *)(intptr_t)fd))
			pthread_detach(t[0]);
	}
}
