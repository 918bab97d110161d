/*
 * becomes.c PORT HOW FILE: talks to a server that echoes, becomes another process in one of the
 * ways in which programs become daemons, and talks on; writes to FILE how that went. Knows
 * nothing of the library.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int turns(int fd)
{
	char out[100], in[100];

	for (int i = 0; i < 1000; i++) {
		memset(out, i, sizeof out);
		if (send(fd, out, sizeof out, MSG_NOSIGNAL) != sizeof out ||
		    recv(fd, in, sizeof in, MSG_WAITALL) != sizeof in || memcmp(in, out, sizeof in))
			return i + 1;
		if (i % 100 == 0)
			usleep(1000);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), r;
	FILE *f;

	if (argc < 4)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[1]));
	if (fd < 0 || connect(fd, (void *)&a, sizeof a) || turns(fd))
		return 3;
	alarm(20);
	if (!strcmp(argv[2], "daemon") && daemon(1, 1))
		return 4;
	if (!strcmp(argv[2], "twice") && (fork() || (setsid(), fork())))
		_exit(0);
	if (!strcmp(argv[2], "exit") && fork())
		exit(0);
	if (!strcmp(argv[2], "later") && fork()) {
		usleep(300000);
		_exit(0);
	}
	alarm(20);
	usleep(500000);		/* the parent has ended */
	r = turns(fd);
	f = fopen(argv[3], "w");
	if (!f)
		return 5;
	fprintf(f, r ? "%s: turn %d failed\n" : "%s: right\n", argv[2], r);
	return fclose(f);
}
