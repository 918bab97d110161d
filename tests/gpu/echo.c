/*
 * echo.c - a server whose bytes pass a device: what it receives is copied there, back into another
 * buffer, and sent. A thread for each connection. It knows nothing of the library; a hostile peer
 * bothers it (tests/hostile/lies_device.h).
 *
 * 	echo PORT SECRET	its device also has 256 KiB of the letter SECRET, which nobody sends
 *
 * Exits 0 after SIGTERM.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drv.h"

#define SIZE (256 * 1024)

static CUcontext ctx;

static int put(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t r = send(fd, p, n, MSG_NOSIGNAL);

		if (r <= 0)
			return 0;
		p += r;
		n -= (size_t)r;
	}
	return 1;
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char *in, *out = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
	CUdeviceptr dev;
	ssize_t n;

	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemHostAlloc((void **)&in, SIZE, 0));
	CK(d.cuMemAlloc(&dev, SIZE));
	while (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, -1) == 1 &&
	       (n = recv(fd, in, SIZE, 0)) > 0) {
		CK(d.cuMemcpyHtoD(dev, in, (size_t)n));
		CK(d.cuMemcpyDtoH(out, dev, (size_t)n));
		if (!put(fd, out, (size_t)n))
			break;
	}
	close(fd);
	CK(d.cuMemFree(dev));
	CK(d.cuMemFreeHost(in));
	munmap(out, SIZE);
	return NULL;
}

static void on_term(int sig) { _exit(sig != SIGTERM); }

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, fd;
	CUdeviceptr secret;
	pthread_t t;

	if (argc != 3)
		return 2;
	signal(SIGTERM, on_term);
	drv_open("linked");
	CK(d.cuDevicePrimaryCtxRetain(&ctx, 0));
	CK(d.cuCtxSetCurrent(ctx));
	CK(d.cuMemAlloc(&secret, SIZE));
	CK(d.cuMemsetD8(secret, (unsigned char)argv[2][0], SIZE));
	a.sin_port = htons((unsigned short)atoi(argv[1]));
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 64)) {
		perror("listen");
		return 1;
	}
	while ((fd = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (pthread_create(&t, NULL, serve, (void *)(intptr_t)fd))
			close(fd);
		else
			pthread_detach(t);
	}
	return 1;
}
