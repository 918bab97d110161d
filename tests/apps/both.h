/* both.h - a connection with both ends in one process: a connected, b accepted. Prints its port.
 * Knows nothing of the library. */
#ifndef TESTS_BOTH_H
#define TESTS_BOTH_H

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int a, b;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void connect_both(void)
{
	struct sockaddr_in s = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof s;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(l, (void *)&s, sizeof s) || listen(l, 1) || getsockname(l, (void *)&s, &len))
		die("listen");
	a = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(a, (void *)&s, sizeof s) || (b = accept(l, NULL, NULL)) < 0)
		die("connect");
	close(l);
	printf("port %d\n", ntohs(s.sin_port));
	fflush(stdout);
}

#endif
