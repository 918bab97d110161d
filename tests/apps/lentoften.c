/*
 * lentoften.c - a connection of 64-byte rounds beside a thread that starts children, each of which
 * inherits its socket.
 *
 *	lentoften listen PORT			returns what it gets
 *	lentoften connect PORT <COMMANDS	rounds until stdin ends
 *
 * COMMANDS, a line each: "spawn N" calls system(":") N times, says "spawned N" and how many rounds
 * were made meanwhile, and in how many ms.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE 64

static atomic_long rounds;
static atomic_bool over;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	_exit(1);
}

static bool take(int fd, unsigned char *b)
{
	size_t got = 0;

	while (got < SIZE) {
		ssize_t r = recv(fd, b + got, SIZE - got, 0);

		need(r >= 0, "recv");
		if (!r)
			return false;
		got += (size_t)r;
	}
	return true;
}

static void give(int fd, const unsigned char *b)
{
	need(send(fd, b, SIZE, 0) == SIZE, "send");
}

static void fill(unsigned char *b, long round)
{
	for (int i = 0; i < SIZE; i++)
		b[i] = (unsigned char)(round * 7 + i);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void *spawns(void *unused)
{
	char line[64];
	int n;

	while (fgets(line, sizeof(line), stdin)) {
		long before = atomic_load(&rounds), began = now_ms();

		need(sscanf(line, "spawn %d", &n) == 1, "the command");
		for (int i = 0; i < n; i++)
			need(!system(":"), "system");
		printf("spawned %d %ld %ld\n", n, atomic_load(&rounds) - before, now_ms() - began);
		fflush(stdout);
	}
	atomic_store(&over, true);
	return unused;
}

static int echo(struct sockaddr_in *a)
{
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	unsigned char b[SIZE];

	need(!bind(l, (struct sockaddr *)a, sizeof(*a)) && !listen(l, 1), "listen");
	fd = accept(l, NULL, NULL);
	need(fd >= 0, "accept");
	while (take(fd, b))
		give(fd, b);
	return 0;
}

static int talk(struct sockaddr_in *a)
{
	unsigned char b[SIZE], want[SIZE];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t t;

	need(!connect(fd, (struct sockaddr *)a, sizeof(*a)), "connect");
	need(!pthread_create(&t, NULL, spawns, NULL), "a thread");
	while (!atomic_load(&over)) {
		fill(want, atomic_load(&rounds));
		give(fd, want);
		need(take(fd, b), "the answer");
		if (memcmp(b, want, SIZE)) {
			fputs("wrong bytes\n", stderr);
			return 1;
		}
		atomic_fetch_add(&rounds, 1);
	}
	pthread_join(t, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };

	if (argc != 3) {
		fputs("usage: lentoften listen|connect PORT\n", stderr);
		return 2;
	}
	a.sin_port = htons((uint16_t)atoi(argv[2]));
	return strcmp(argv[1], "listen") ? talk(&a) : echo(&a);
}
