/*
 * many.c - many connections of which few are busy: what one request costs the server. Knows
 * nothing of the library.
 *
 * 	many server PORT
 * 	many client PORT CONNECTIONS SECONDS
 *
 * The client opens the connections, gives each 20 requests to warm up, and then sends requests
 * on one in a hundred at a time, each time others, and waits for those answers. The server is
 * one thread with one level-triggered epoll instance. Output of the client: "many_rate 123456
 * /s" and "many_cpu 7.8 us", CPU time of the server for one request.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE 64
#define WARM 20

/* 'R' a request, whose answer has the same value; 'C' says how much CPU time the server has
 * used. */
struct message {
	char what;
	char pad[7];
	uint64_t value;
	char rest[SIZE - 16];
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0)
		die("socket");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	return fd;
}

static struct sockaddr_in address(const char *port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void more_files(void)
{
	struct rlimit r;

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

/* False: the client has closed. */
static int answer(int fd)
{
	struct message m;
	ssize_t n = recv(fd, &m, sizeof(m), 0);

	if (n == 0)
		return 0;
	if (n != sizeof(m))
		die("recv");
	if (m.what == 'C')
		m.value = cpu_ns();
	if (send(fd, &m, sizeof(m), 0) != sizeof(m))
		die("send");
	return 1;
}

static int serve(const char *port)
{
	struct sockaddr_in a = address(port);
	struct epoll_event ev[512], e = { .events = EPOLLIN };
	int l = tcp(), ep = epoll_create1(0), left = 0;

	e.data.fd = l;
	if (bind(l, (struct sockaddr *)&a, sizeof(a)) || listen(l, 4096) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, l, &e))
		die("listen");
	do {
		int n = epoll_wait(ep, ev, 512, -1);

		for (int i = 0; i < n; i++) {
			if (ev[i].data.fd == l) {
				e.data.fd = accept(l, NULL, NULL);
				if (e.data.fd < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, e.data.fd, &e))
					die("accept");
				left++;
			} else if (!answer(ev[i].data.fd)) {
				close(ev[i].data.fd);
				left--;
			}
		}
	} while (left);
	return 0;
}

static void ask(int fd, char what, uint64_t value)
{
	struct message m = { .what = what, .value = value };

	if (send(fd, &m, sizeof(m), 0) != sizeof(m))
		die("send");
}

static uint64_t answered(int fd)
{
	struct message m;

	if (recv(fd, &m, sizeof(m), MSG_WAITALL) != sizeof(m))
		die("recv");
	return m.value;
}

static uint64_t server_cpu(int fd)
{
	ask(fd, 'C', 0);
	return answered(fd);
}

/* One request each on n / 100 of the connections, beginning with number `from`, every hundredth. */
static int round_of(const int *fd, int n, int from)
{
	static uint64_t number;
	uint64_t first = number;
	int done = 0;

	for (int i = from; i < n; i += 100)
		ask(fd[i], 'R', number++);
	for (int i = from; i < n; i += 100, done++) {
		if (answered(fd[i]) != first + (uint64_t)done) {
			fprintf(stderr, "connection %d: the answer to another request\n", i);
			exit(1);
		}
	}
	return done;
}

static int run_client(const char *port, int n, double secs)
{
	struct sockaddr_in a = address(port);
	int *fd = calloc((size_t)n, sizeof(int)), from = 0;
	uint64_t cpu, requests = 0;
	double start;

	if (!fd)
		die("calloc");
	for (int i = 0; i < n; i++) {
		fd[i] = tcp();
		if (connect(fd[i], (struct sockaddr *)&a, sizeof(a)))
			die("connect");
	}
	for (int k = 0; k < 100 * WARM; k++)
		round_of(fd, n, k % 100);
	sleep(1);		/* whatever happens to a busy connection has happened */
	for (int k = 0; k < 200; k++)
		round_of(fd, n, k % 100);
	cpu = server_cpu(fd[0]);
	start = now();
	while (now() - start < secs) {
		requests += (uint64_t)round_of(fd, n, from);
		from = (from + 37) % 100;
	}
	cpu = server_cpu(fd[0]) - cpu;
	printf("many_rate %.0f /s\nmany_cpu %.3f us\n", requests / (now() - start),
	       cpu / 1e3 / requests);
	return 0;
}

int main(int argc, char **argv)
{
	more_files();
	if (argc == 3 && !strcmp(argv[1], "server"))
		return serve(argv[2]);
	if (argc == 5 && !strcmp(argv[1], "client") && atoi(argv[3]) >= 100)
		return run_client(argv[2], atoi(argv[3]), atof(argv[4]));
	fprintf(stderr, "usage: many server PORT | many client PORT CONNECTIONS SECONDS\n");
	return 2;
}
