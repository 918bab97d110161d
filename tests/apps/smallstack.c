/*
 * smallstack.c PORT BYTES: asks a server that echoes, in a thread whose stack of so many bytes,
 * with a guard page and other data of the program below it, is of the program's own: messages in
 * two chunks. Knows nothing of the library.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define DATA  65536
#define GUARD 4096

static int port;

static void *ask(void *arg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char out[64], in[64];

	if (fd < 0 || connect(fd, (void *)&a, sizeof a))
		exit(3);
	for (int i = 0; i < 3000; i++) {
		struct iovec v[2] = { { out, 20 }, { out + 20, 44 } },
			w[2] = { { in, 30 }, { in + 30, 34 } };
		ssize_t n;

		memset(out, i, sizeof out);
		if (writev(fd, v, 2) != 64)
			exit(4);
		n = readv(fd, w, 2);
		if (n > 0 && n < 64)
			n += recv(fd, in + n, sizeof in - (size_t)n, MSG_WAITALL);
		if (n != 64 || memcmp(in, out, 64))
			exit(5);
		if (i % 500 == 0)
			usleep(2000);
	}
	close(fd);
	return arg;
}

int main(int argc, char **argv)
{
	size_t size = argc > 2 ? (size_t)atoi(argv[2]) : 0, bad = 0;
	unsigned char *area = mmap(NULL, DATA + GUARD + size, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t t;

	if (!size || area == MAP_FAILED)
		return 2;
	port = atoi(argv[1]);
	memset(area, 0x5a, DATA);
	mprotect(area + DATA, GUARD, PROT_NONE);
	pthread_attr_init(&attr);
	if (pthread_attr_setstack(&attr, area + DATA + GUARD, size) ||
	    pthread_create(&t, &attr, ask, NULL) || pthread_join(t, NULL))
		return 2;
	for (size_t i = 0; i < DATA; i++)
		bad += area[i] != 0x5a;
	printf("%zu bytes of other data were overwritten\n", bad);
	return bad != 0;
}
