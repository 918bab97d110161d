/*
 * limits.c - what this machine could do at most for two processes, for the figures of sockbench
 * that have such a limit:
 * 	rtt_64		two processes that do nothing but spin hand 64 bytes and a number to
 * 			each other
 * 	stream_16384, stream_65536	memcpy() between two blocks of that size by one
 * 					process: what a path of one copy is worth
 * 	stream_1048576, stream_4194304	process_vm_readv(2) of a block of another process,
 * 					again and again
 *
 * 	limits [SECS a figure]		prints "FIGURE VALUE UNIT"
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_MAX (4u << 20)

/* One direction of the ping-pong: a line that says how many, and one with the bytes. */
struct way { _Alignas(128) _Atomic uint64_t n; _Alignas(128) char bytes[64]; };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(struct way *w, uint64_t n, const char *bytes)
{
	memcpy(w->bytes, bytes, sizeof(w->bytes));
	atomic_store_explicit(&w->n, n, memory_order_release);
}

static void hear(struct way *w, uint64_t n, char *bytes)
{
	while (atomic_load_explicit(&w->n, memory_order_acquire) != n)
		;
	memcpy(bytes, w->bytes, sizeof(w->bytes));
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void round_trips(double time)
{
	struct way *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char bytes[64] = "";
	uint64_t n = 0, from = 0;
	double start = seconds(), now;
	pid_t pid;

	if (w == MAP_FAILED)
		die("mmap");
	pid = child();
	while (!pid) {
		hear(&w[0], ++n, bytes);
		say(&w[1], n, bytes);
	}
	do {	/* the first half is for the scheduler, to give each its processor */
		for (int i = 0; i < 1000; i++) {
			say(&w[0], ++n, bytes);
			hear(&w[1], n, bytes);
		}
		now = seconds();
		if (!from && now - start > time / 2) {
			start = now;
			from = n;
		}
	} while (!from || now - start < time);
	printf("rtt_64 %.3f us\n", (now - start) / (double)(n - from) * 1e6);
	kill(pid, SIGKILL);
}

static void copies(size_t size, double time, pid_t of, char *theirs, char *mine)
{
	struct iovec from = { theirs, size }, to = { mine, size };
	double start = seconds(), now;
	uint64_t n = 0;

	do {
		for (int i = 0; i < 16; i++, n++) {
			if (!of)
				memcpy(mine, theirs, size);
			else if (process_vm_readv(of, &to, 1, &from, 1, 0) != (ssize_t)size)
				die("process_vm_readv");
			__asm__ volatile("" : : "r"(mine) : "memory");
		}
		now = seconds();
	} while (now - start < time);
	printf("stream_%zu %.2f MB/s\n", size, (double)n * (double)size / (now - start) / 1e6);
}

int main(int argc, char **argv)
{
	double time = argc > 1 ? atof(argv[1]) : 0.4;
	char *theirs = malloc(BLOCK_MAX), *mine = malloc(BLOCK_MAX);
	pid_t pid;

	if (time <= 0 || !theirs || !mine) {
		fprintf(stderr, "usage: limits [SECS]\n");
		return 2;
	}
	memset(theirs, 1, BLOCK_MAX);
	memset(mine, 2, BLOCK_MAX);
	setbuf(stdout, NULL);
	round_trips(time);
	copies(16384, time, 0, theirs, mine);
	copies(65536, time, 0, theirs, mine);
	pid = child();
	if (!pid) {
		memset(theirs, 3, BLOCK_MAX);	/* pages of its own */
		for (;;)
			pause();
	}
	usleep(20000);
	copies(1 << 20, time, pid, theirs, mine);
	copies(4 << 20, time, pid, theirs, mine);
	kill(pid, SIGKILL);
	return 0;
}
