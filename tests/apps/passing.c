/*
 * passing.c - polls numbers that are closed while the library, if there is one, makes descriptors
 * of its own: it reads the policy anew, which a second thread changes all the time.
 *
 * 	passing POLICY		prints how many looks saw an open descriptor, and of how many
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHANGES 500

static _Atomic bool over;

/* It makes no descriptor for that. */
static void *changes(void *policy)
{
	struct timespec ms = { 0, 1000000 };

	for (int i = 0; i < CHANGES; i++) {
		if (write(*(int *)policy, "\n", 1) != 1 || futimens(*(int *)policy, NULL))
			perror("the policy");
		nanosleep(&ms, NULL);
	}
	atomic_store(&over, true);
	return NULL;
}

static bool select_says(int fd)
{
	struct timeval none = { 0, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &none) >= 0 || errno != EBADF;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;
	int l = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0), b, fd, policy;
	unsigned long looks = 0, open_ones = 0;
	pthread_t th;
	char c;

	if (argc != 2 || bind(l, (void *)&at, len) || listen(l, 1) ||
	    getsockname(l, (void *)&at, &len) || connect(a, (void *)&at, len) ||
	    (b = accept(l, NULL, NULL)) < 0 || send(a, "x", 1, 0) != 1 || recv(b, &c, 1, 0) != 1 ||
	    send(b, "x", 1, 0) != 1 || recv(a, &c, 1, 0) != 1) {
		perror("passing");
		return 1;
	}
	sleep(1);	/* it is upgraded, and the policy is watched */
	policy = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
	fd = dup(policy);	/* the lowest free number */
	close(fd);
	pthread_create(&th, NULL, changes, &policy);
	while (!atomic_load(&over)) {
		struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };

		open_ones += poll(&p, 1, 0) != 1 || p.revents != POLLNVAL;
		open_ones += select_says(fd);
		looks += 2;
	}
	pthread_join(th, NULL);
	printf("open %lu of %lu\n", open_ones, looks);
	return 0;
}
