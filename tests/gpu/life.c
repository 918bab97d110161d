/*
 * life.c - contexts that end, graphs, memory that is not there, devices that are hidden: under
 * the staged pipe, on the stand-in driver and on real GPUs. Every block is compared where it
 * arrives, in the buffer and on the device.
 *
 * 	life SCENE
 * 		reset, release, destroy	first the sender's context ends, between a copy and
 * 					its send, and a new one is made; then the receiver's,
 * 					between a receive and its copy
 * 		capture			copies in a graph; while one is being captured, in the
 * 					mode that forbids most, blocks go on
 * 		memory			no device memory is left when the first snapshot would
 * 					be taken
 * 		plain			nothing of all this. FAR_VISIBLE=N: the receiver's
 * 					CUDA_VISIBLE_DEVICES; FAR_PIDNS=1: it is in a PID
 * 					namespace of its own
 *
 * The last line is the number of blocks. Status 1: one was wrong.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <spawn.h>
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
#define N (1 << 20)
static const char *scene;
static bool far;
static int device, fd, blocks;
static char *pageable, *pinned, *back;
static CUcontext ctx;
static CUdeviceptr dev, dev2;
static CUstream st;

static bool is(const char *s) { return !strcmp(scene, s); }

/* Block i is sent from, and received into, one or the other kind of memory. */
static char *buffer(int i) { return i % 3 == 2 ? pinned : pageable; }
static unsigned char value(int i) { return (unsigned char)(i * 7 + 1); }

static void new_context(void)
{
	if (is("destroy")) {
		CK(d.cuCtxCreate(&ctx, 0, device));
	} else {
		CK(d.cuDevicePrimaryCtxRetain(&ctx, device));
		CK(d.cuCtxSetCurrent(ctx));
	}
	CK(d.cuMemAlloc(&dev, N));
	CK(d.cuMemAlloc(&dev2, N));
	CK(d.cuMemHostAlloc((void **)&pinned, N, 0));
	CK(d.cuStreamCreate(&st, 1));
}

static void end_context(void)
{
	if (is("destroy"))
		CK(d.cuCtxDestroy(ctx));
	else if (is("release"))
		CK(d.cuDevicePrimaryCtxRelease(device));
	else
		CK(d.cuDevicePrimaryCtxReset(device));
}

static void move(char *p, bool out)
{
	for (size_t at = 0; at < N;) {
		ssize_t r = out ? send(fd, p + at, N - at, 0) : recv(fd, p + at, N - at, 0);

		if (r <= 0) {
			perror(out ? "send" : "recv");
			exit(4);
		}
		at += (size_t)r;
	}
}

static void answer(bool out)
{
	char c = 0;

	if ((out ? write(fd, &c, 1) : read(fd, &c, 1)) != 1)
		exit(4);
}

static void expect(const char *what, int i, const char *p)
{
	for (size_t k = 0; k < N; k++)
		if (p[k] != (char)(value(i) + k / 4096)) {
			fprintf(stderr, "block %d is wrong at %zu %s: %d, not %d\n", i, k, what,
				p[k], (char)(value(i) + k / 4096));
			exit(1);
		}
}

static void fill(int i)
{
	for (size_t k = 0; k < N; k += 4096)
		CK(d.cuMemsetD8Async(dev + k, (unsigned char)(value(i) + k / 4096), 4096, st));
}

static void copy_out(int i)
{
	fill(i);
	CK(d.cuMemcpyDtoHAsync(buffer(i), dev, N, st));
	CK(d.cuStreamSynchronize(st));
}

/* The pinned buffer ends with its context. */
static void end_in_the_middle(int i)
{
	if (buffer(i) != pageable) {
		fprintf(stderr, "a test that uses memory that is gone\n");
		exit(2);
	}
	end_context();
	new_context();
}

static void block(int i, bool end)
{
	if (far) {
		move(buffer(i), false);
		expect("in the buffer", i, buffer(i));
		if (end)
			end_in_the_middle(i);
		CK(d.cuMemcpyHtoDAsync(dev2, buffer(i), N, st));
		CK(d.cuMemcpyDtoHAsync(back, dev2, N, st));
		CK(d.cuStreamSynchronize(st));
		expect("on the device", i, back);
	} else {
		copy_out(i);
		if (end)
			end_in_the_middle(i);
		move(buffer(i), true);
	}
	answer(far);
	blocks++;
}

static void several(int *i, int n)
{
	while (n--)
		block((*i)++, false);
}

static void ends(void)
{
	int i = 0;

	several(&i, 12);
	block(i++, !far);
	several(&i, 5);
	block(i++, far);
	several(&i, 6);
}

/* Waits without a call that a capture forbids. */
static void come(const char *p, int i)
{
	const volatile char *v = p;

	for (size_t k = 0; k < N; k++)
		while (v[k] != (char)(value(i) + k / 4096))
			sched_yield();
}

static void graphs(void)
{
	int i = 0, n;
	CUstream c;
	void *g, *x;
	char *p = NULL;

	several(&i, 3);
	if (far) {
		for (n = 0; n < 5; n++)
			block(i++, false);
		for (n = 0; n < 6; n++)
			block(i++, false);
		return;
	}
	CK(d.cuMemHostAlloc((void **)&p, N, 0));
	CK(d.cuStreamCreate(&c, 1));
	CK(d.cuStreamBeginCapture(c, 0));
	CK(d.cuMemcpyDtoHAsync(p, dev, N, c));
	/* the first snapshot of pinned memory, and the peer's takes, among them */
	for (n = 0; n < 5; n++, i++) {
		fill(i);
		CK(d.cuMemcpyDtoHAsync(pinned, dev, N, st));
		come(pinned, i);
		move(pinned, true);
		answer(false);
		blocks++;
	}
	CK(d.cuStreamEndCapture(c, &g));
	CK(d.cuGraphInstantiateWithFlags(&x, g, 0));
	for (n = 0; n < 6; n++, i++) {
		/* into the same buffer by a copy that is seen; then the graph overwrites it */
		if (n % 2) {
			fill(i + 100);
			CK(d.cuMemcpyDtoHAsync(p, dev, N, st));
		}
		fill(i);
		CK(d.cuStreamSynchronize(st));
		CK(d.cuGraphLaunch(x, c));
		CK(d.cuStreamSynchronize(c));
		move(p, true);
		answer(false);
		blocks++;
	}
	CK(d.cuGraphExecDestroy(x));
	CK(d.cuGraphDestroy(g));
}

static void no_memory(void)
{
	CUdeviceptr p;
	size_t left, all;
	int i = 0;

	CK(d.cuMemGetInfo(&left, &all));
	for (size_t n = left; n >= 65536; )
		if (d.cuMemAlloc(&p, n))
			n /= 2;
	several(&i, 12);
}

static void play(void)
{
	int i = 0;

	drv_open(is("capture") ? "address" : "linked");
	CK(d.cuDeviceGetCount(&device));
	device = far ? device - 1 : 0;
	pageable = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	back = malloc(N);
	new_context();
	if (!far)
		drv_gate();
	if (is("memory"))
		no_memory();
	else if (is("capture"))
		graphs();
	else if (is("plain"))
		several(&i, 30);
	else
		ends();
	if (far)
		_exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int l, one = 1, status;
	char port[16];
	pid_t pid;

	if (argc < 2)
		return 2;
	scene = argv[1];
	if (argc > 2) {
		a.sin_port = htons((uint16_t)atoi(argv[2]));
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof a))
			return 4;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		far = true;
		play();
	}
	l = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len))
		return 4;
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	if (getenv("FAR_VISIBLE")) {
		setenv("NEAR_VISIBLE",
		       getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "0", 1);
		setenv("CUDA_VISIBLE_DEVICES", getenv("FAR_VISIBLE"), 1);
	}
	/* Not fork(): a process that has forked shares its pinned memory, for all that is known. */
	if (getenv("FAR_PIDNS"))	/* as in a container: the driver wants a /proc that knows
					 * it */
		status = posix_spawnp(&pid, "unshare", NULL, NULL,
				      (char *[]){ "unshare", "-p", "-f", "--mount-proc", argv[0],
						  argv[1], port, NULL }, environ);
	else
		status = posix_spawn(&pid, "/proc/self/exe", NULL, NULL,
				     (char *[]){ argv[0], argv[1], port, NULL }, environ);
	if (status)
		return 4;
	if (getenv("NEAR_VISIBLE"))
		setenv("CUDA_VISIBLE_DEVICES", getenv("NEAR_VISIBLE"), 1);
	fd = accept(l, NULL, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	play();
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	printf("%d blocks\n", blocks);
	fflush(stdout);
	_exit(0);
}
