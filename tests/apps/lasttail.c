/*
 * lasttail.c server PORT | client PORT CONNECTIONS: the client closes after its last answer,
 * while the server sends a tail and then reads: it must find the end of the connection, or a
 * reset; EPIPE is for those who send. Knows nothing of the library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 20
#define ROUNDS  20
#define LINE    64
#define TAIL    66000

static struct sockaddr_in at;
static _Atomic long left;

static void die(const char *what)
{
	fprintf(stderr, "lasttail: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static int all(int fd, char *line)
{
	return recv(fd, line, LINE, MSG_WAITALL) == LINE;
}

static void *serve(void *arg)
{
	static const char tail[TAIL];
	int fd = (int)(long)arg;
	char line[LINE];
	ssize_t n;

	for (int i = 0; i < ROUNDS; i++)
		if (!all(fd, line) || send(fd, line, LINE, MSG_NOSIGNAL) != LINE)
			die("a round");
	if (send(fd, tail, TAIL, MSG_NOSIGNAL) == TAIL) {
		n = recv(fd, line, LINE, 0);
		if (n > 0 || (n < 0 && errno != ECONNRESET))
			die(n > 0 ? "bytes that nobody sent" : "recv");
	}
	close(fd);
	return NULL;
}

static void *ask(void *arg)
{
	char line[LINE] = "";

	while (atomic_fetch_sub(&left, 1) > 0) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd < 0 || connect(fd, (void *)&at, sizeof at))
			die("connect");
		for (int i = 0; i < ROUNDS; i++)
			if (send(fd, line, LINE, MSG_NOSIGNAL) != LINE || !all(fd, line))
				die("a round");
		close(fd);
	}
	return arg;
}

static void server(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	pthread_attr_t a;
	pthread_t t;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (l < 0 || bind(l, (void *)&at, sizeof at) || listen(l, 100))
		die("listen");
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd < 0 || pthread_create(&t, &a, serve, (void *)(long)fd))
			die("accept");
	}
}

int main(int argc, char **argv)
{
	pthread_t t[THREADS];

	if (argc < 3)
		return 2;
	at = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_port = htons((uint16_t)atoi(argv[2])),
					   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (!strcmp(argv[1], "server"))
		server();
	left = atol(argv[3]);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(t + i, NULL, ask, NULL))
			die("thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	return 0;
}
