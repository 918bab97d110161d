/*
 * countfork.c - a socket, then a fork; the child makes a connection to itself, and says its number.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int connection(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	char b = 'b';

	if (bind(l, (struct sockaddr *)&a, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len) || connect(c, (struct sockaddr *)&a, len))
		return 1;
	s = accept(l, NULL, NULL);
	return send(c, &b, 1, 0) != 1 || recv(s, &b, 1, 0) != 1;
}

int main(void)
{
	int status, fd = socket(AF_INET, SOCK_STREAM, 0);
	pid_t pid;

	if (fd < 0)
		return 1;
	pid = fork();
	if (!pid)
		return connection();
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 1;
	printf("%d\n", pid);
	return 0;
}
