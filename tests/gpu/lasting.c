/*
 * lasting.c - a sender whose receiver is stopped in the middle of a take from its device
 * (STANDIN_STALL): it may not be held for ever, and what its other threads do meanwhile is done.
 * What arrives is what was sent, in order, and ends as TCP would have it.
 *
 * 	lasting wait	the receiver goes on after longer than a take is waited for: all arrives
 * 	lasting shut	another thread shuts the direction down, then the receiver goes on:
 * 			what was sent before, then the end
 *
 * Status 1: something else arrived, or an error in place of the end.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drv.h"

extern char **environ;
#define SIZE (1u << 20)
#define BLOCKS 40
static CUdeviceptr dev;
static char *buf, *check;
static int fd;
static bool shuts;

static void setup(int last)
{
	CUcontext ctx;
	int n;

	drv_open("address");
	CK(d.cuDeviceGetCount(&n));
	CK(d.cuDevicePrimaryCtxRetain(&ctx, last ? n - 1 : 0));
	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemAlloc(&dev, SIZE));
	buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check = malloc(SIZE);
}

/* Whole blocks, then a part of the last, perhaps. */
static int receiver(void)
{
	size_t got;
	ssize_t r = 1;
	int blocks;

	for (blocks = 0; r > 0; blocks++) {
		for (got = 0; got < SIZE && (r = recv(fd, buf + got, SIZE - got, 0)) > 0;
		     got += (size_t)r)
			;
		memset(check, 1 + blocks, got);
		if (memcmp(buf, check, got)) {
			fprintf(stderr, "block %d differs\n", blocks);
			return 1;
		}
		if (r < 0) {
			perror("instead of the end");
			return 1;
		}
		if (got < SIZE)
			break;
		CK(d.cuMemcpyHtoD(dev, buf, SIZE));
	}
	printf("%d blocks, then the end\n", blocks);
	return shuts ? blocks >= BLOCKS : blocks != BLOCKS;
}

/* Until the receiver is in its take; then what is asked for. */
static void *meanwhile(void *file)
{
	while (access(file, F_OK))
		usleep(1000);
	if (shuts) {
		usleep(100000);		/* the sender has released its lock by then, or does
					 * after */
		shutdown(fd, SHUT_WR);
	} else {
		usleep(1500000);
	}
	unlink(file);
	return NULL;
}

static void release_on(void) { unlink(getenv("STANDIN_STALL")); }

static void sender(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		ssize_t r;

		CK(d.cuMemsetD8(dev, (unsigned char)(1 + i), SIZE));
		CK(d.cuMemcpyDtoH(buf, dev, SIZE));
		for (size_t at = 0; at < SIZE; at += (size_t)r) {
			r = send(fd, buf + at, SIZE - at, MSG_NOSIGNAL);
			if (r < 0 && shuts)
				return;
			if (r < 0) {
				perror("send");
				exit(1);
			}
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *file = getenv("STANDIN_STALL");
	socklen_t len = sizeof a;
	char port[16], *args[] = { argv[0], argv[1], port, NULL };
	int l, status;
	pthread_t t;
	pid_t pid;

	if (argc < 2 || !file)
		return 2;
	shuts = !strcmp(argv[1], "shut");
	l = socket(AF_INET, SOCK_STREAM, 0);
	if (argc > 2) {
		a.sin_port = htons((uint16_t)atoi(argv[2]));
		fd = l;
		if (connect(fd, (struct sockaddr *)&a, sizeof a))
			return 4;
		setup(1);
		return receiver();
	}
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len))
		return 4;
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ))
		return 4;
	fd = accept(l, NULL, NULL);
	setup(0);
	drv_gate();
	atexit(release_on);		/* also if it went wrong */
	pthread_create(&t, NULL, meanwhile, (void *)(uintptr_t)file);
	sender();
	if (!shuts)
		shutdown(fd, SHUT_WR);
	if (waitpid(pid, &status, 0) != pid)
		return 4;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}
