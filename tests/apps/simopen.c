/*
 * simopen.c - two sockets that connect to each other: a simultaneous open, without privileges
 * and by no luck. The first one's SYN meets a listener whose queue is full, and is dropped;
 * before it is sent again the listener is gone, and a socket on its port connects to the first
 * one.
 *
 * 	simopen server PORT OTHER	the second; says "ready" when the queue is full; echoes
 * 	simopen client PORT OTHER ROUNDS	the first; so many messages and their answers,
 * 						compared
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MSG 1000

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in at(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int bound(int port)
{
	struct sockaddr_in a = at(port);
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)))
		die("bind");
	return fd;
}

/* Has the kernel a socket in SYN_SENT with these ports? */
static int under_way(int port, int other)
{
	char line[256], want[64];
	int found = 0;
	FILE *f = fopen("/proc/net/tcp", "r");

	snprintf(want, sizeof(want), " 0100007F:%04X 0100007F:%04X 02 ", (unsigned)port,
		 (unsigned)other);
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, want) != NULL;
	if (f)
		fclose(f);
	return found;
}

static int second(int port, int other)
{
	struct sockaddr_in a = at(port), to = at(other);
	int l = bound(port), filler, fd;

	if (listen(l, 0))
		die("listen");
	filler = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(filler, (struct sockaddr *)&a, sizeof(a)))
		die("the first in the queue");
	puts("ready");
	fflush(stdout);
	while (!under_way(other, port))
		usleep(1000);
	close(l);
	close(filler);
	fd = bound(port);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die("connect to the one that connects");
	return fd;
}

static int first(int port, int other)
{
	struct sockaddr_in to = at(other);
	int fd = bound(port);

	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die("connect");
	return fd;
}

static int echo(int fd)
{
	char buf[MSG];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		if (send(fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
			die("send");
	if (n < 0)
		die("recv");
	close(fd);
	return 0;
}

static int dialogue(int fd, int rounds)
{
	unsigned char out[MSG], in[MSG];

	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < MSG; k++)
			out[k] = (unsigned char)((i * MSG + k) * 2654435761u >> 24);
		if (send(fd, out, MSG, MSG_NOSIGNAL) != MSG ||
		    recv(fd, in, MSG, MSG_WAITALL) != MSG)
			die("dialogue");
		if (memcmp(out, in, MSG)) {
			fprintf(stderr, "wrong bytes in round %d\n", i);
			return 1;
		}
		if (i < rounds / 2)
			usleep(1000);	/* something may become of the connection */
	}
	if (shutdown(fd, SHUT_WR) || recv(fd, in, MSG, 0))
		die("the end");
	printf("%d rounds\n", rounds);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "server"))
		return echo(second(atoi(argv[2]), atoi(argv[3])));
	if (argc == 5 && !strcmp(argv[1], "client"))
		return dialogue(first(atoi(argv[2]), atoi(argv[3])), atoi(argv[4]));
	return 2;
}
