/*
 * fullqueue.c - a stream whose queue is full until a function of the program's has returned, and
 * that function waits for a dialogue on a connection: a thread that puts a copy into the stream is
 * held by the driver, and whoever sends and receives must not be held with it (STANDIN_QUEUE).
 *
 *	fullqueue [PORT]	with PORT: the other end, which the program starts itself
 *
 * Status 1: wrong bytes. A hang is one.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <pthread.h>
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
#define BLOCKS 20		/* after which the buffer is mostly known to be sent ... */
#define BLOCKS_MOST 2000	/* ... and at the latest */
/* what the first block of the dialogue holds; others before it hold less */
#define PLAIN  100
static CUdeviceptr dev, other;
static char *buf, *plain, *check;
static CUcontext ctx;
static CUstream st;
static int fd;
static atomic_bool talked;

static char *pages(void)
{
	return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void setup(int last)
{
	int n;

	drv_open("address");
	CK(d.cuDeviceGetCount(&n));
	CK(d.cuDevicePrimaryCtxRetain(&ctx, last ? n - 1 : 0));
	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemAlloc(&dev, SIZE));
	CK(d.cuMemAlloc(&other, SIZE));
	CK(d.cuStreamCreate(&st, 1));
	buf = pages();
	plain = pages();
	check = malloc(SIZE);
}

static void give(const char *p)
{
	ssize_t r;

	for (size_t at = 0; at < SIZE; at += (size_t)r) {
		r = send(fd, p + at, SIZE - at, MSG_NOSIGNAL);
		if (r <= 0) {
			perror("send");
			exit(1);
		}
	}
}

/* A block of one byte again and again, which is returned. */
static int take(char *p)
{
	ssize_t r;

	for (size_t at = 0; at < SIZE; at += (size_t)r) {
		r = recv(fd, p + at, SIZE - at, 0);
		if (r <= 0) {
			perror("recv");
			exit(1);
		}
	}
	memset(check, *p, SIZE);
	if (memcmp(p, check, SIZE)) {
		fprintf(stderr, "block %d differs\n", *p);
		exit(1);
	}
	return *p;
}

static int receiver(void)
{
	while (take(buf) < PLAIN)
		CK(d.cuMemcpyHtoD(dev, buf, SIZE));
	memset(plain, PLAIN + 1, SIZE);
	give(plain);
	return take(buf) != PLAIN + 2;
}

static void until_talked(void *unused)
{
	(void)unused;
	while (!atomic_load(&talked))
		usleep(1000);
}

/* Waits in the driver for room in the stream. */
static void *copies(void *queue)
{
	CK(d.cuCtxSetCurrent(ctx));
	for (int i = 1; i < (int)(intptr_t)queue; i++)
		CK(d.cuMemsetD8Async(other, 1, SIZE, st));
	CK(d.cuMemcpyDtoHAsync(buf, dev, SIZE, st));
	return NULL;
}

static void sender(int queue)
{
	int (*host)(CUstream, void (*)(void *), void *);
	void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	pthread_t t;

	*(void **)&host = dlsym(lib, "cuLaunchHostFunc");
	for (int i = 0; i < BLOCKS || (!standin_d2d() && i < BLOCKS_MOST); i++) {
		CK(d.cuMemsetD8(dev, (unsigned char)(1 + i % 50), SIZE));
		CK(d.cuMemcpyDtoH(buf, dev, SIZE));
		give(buf);
	}
	CK(d.cuMemsetD8(dev, PLAIN + 2, SIZE));
	CK(d.cuCtxSynchronize());
	CK(host(st, until_talked, NULL));
	pthread_create(&t, NULL, copies, (void *)(intptr_t)queue);
	while (!standin_full())
		usleep(1000);
	memset(plain, PLAIN, SIZE);
	give(plain);
	if (take(plain) != PLAIN + 1)
		exit(1);
	atomic_store(&talked, true);
	pthread_join(t, NULL);
	CK(d.cuStreamSynchronize(st));
	give(buf);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *queue = getenv("STANDIN_QUEUE");
	char port[16], *args[] = { argv[0], port, NULL };
	socklen_t len = sizeof(a);
	int l, status;
	pid_t pid;

	if (!queue)
		return 2;
	l = socket(AF_INET, SOCK_STREAM, 0);
	if (argc > 1) {
		a.sin_port = htons((uint16_t)atoi(argv[1]));
		fd = l;
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)))
			return 4;
		setup(1);
		return receiver();
	}
	if (bind(l, (struct sockaddr *)&a, sizeof(a)) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len))
		return 4;
	snprintf(port, sizeof(port), "%d", ntohs(a.sin_port));
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ))
		return 4;
	fd = accept(l, NULL, NULL);
	setup(0);
	drv_gate();
	sender(atoi(queue));
	if (waitpid(pid, &status, 0) != pid)
		return 4;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}
