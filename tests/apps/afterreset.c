/*
 * afterreset.c - what calls say once a reset was told. Knows nothing of the library.
 *
 * 	afterreset server PORT		one connection: echoes, until a block begins with how
 * 					it is to end: l close with SO_LINGER, u close with
 * 					input unread, k killed with it
 * 	afterreset client PORT END TOLD	so it ends, TOLD by e SO_ERROR, r recv(), s send(), n
 * 					none of them
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIZE	64
#define ROUNDS	400	/* it is upgraded by then */
#define PATIENCE_MS 20000

static void end(int fd, char how)
{
	int n = 0;

	while (how != 'l' && n < SIZE)	/* what is to be unread is here */
		if (ioctl(fd, FIONREAD, &n))
			exit(2);
	if (how == 'k')
		raise(SIGKILL);
	if (how == 'l')
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 },
			   sizeof(struct linger));
	close(fd);
	exit(0);
}

static void serve(int fd)
{
	char b[SIZE];

	while (recv(fd, b, sizeof b, MSG_WAITALL) == SIZE) {
		if (b[0] != 'x')
			end(fd, b[0]);
		if (send(fd, b, sizeof b, MSG_NOSIGNAL) != SIZE)
			break;
	}
	exit(3);
}

static void say(const char *what, ssize_t r)
{
	if (r < 0)
		printf("%s: %s, ", what, strerror(errno));
	else
		printf("%s %zd, ", what, r);
}

static int client(int fd, char how, char told)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDHUP };
	socklen_t len = sizeof(int);
	char b[SIZE] = "x";
	int e = 0;

	for (int i = 0; i < ROUNDS; i++)
		if (send(fd, b, SIZE, 0) != SIZE || recv(fd, b, SIZE, MSG_WAITALL) != SIZE)
			return 3;
	b[0] = how;
	send(fd, b, SIZE, MSG_NOSIGNAL);
	if (how != 'l')
		send(fd, b, SIZE, MSG_NOSIGNAL);
	p.events = 0;	/* the reset, whole */
	if (poll(&p, 1, PATIENCE_MS) != 1)
		return 4;
	if (told == 'e' && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len))
		printf("error %d, ", e);
	if (told == 'r')
		say("recv", recv(fd, b, SIZE, MSG_DONTWAIT));
	if (told == 's')
		say("send", send(fd, b, SIZE, MSG_NOSIGNAL));
	say("send", send(fd, b, SIZE, MSG_NOSIGNAL));
	say("send", send(fd, b, SIZE, MSG_NOSIGNAL));
	say("recv", recv(fd, b, SIZE, MSG_DONTWAIT));
	say("shutdown", shutdown(fd, SHUT_WR));
	p.events = POLLIN | POLLOUT | POLLRDHUP;
	poll(&p, 1, 0);
	printf("shown %x\n", p.revents);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc < 3)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[2]));
	if (!strcmp(argv[1], "client") && argc == 5)
		return connect(fd, (void *)&a, sizeof a) ? 2 : client(fd, *argv[3], *argv[4]);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, (void *)&a, sizeof a) || listen(fd, 1))
		return 2;
	serve(accept(fd, NULL, NULL));
}
