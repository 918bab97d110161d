/*
 * holders.c - a program whose forked worker has given up its rights and was taken over: what it
 * can write to in the memory that it shares with its parent it fills with lies, for as long as
 * it lives. The parent goes on connecting and forking.
 *
 * 	holders ATTACK PORT	PORT: where `victim echo` listens
 * Prints the medians of what the parent's calls took, in microseconds.
 * Exits 0; 1 after a wrong byte or a stall of 8 s on a connection that the worker never had.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOBODY  1001
#define ROUNDS  15
#define HELD    4
#define BURSTS  100
#define BURST   60000
#define STALL_MS 8000
#define ZOMBIES 9

static void die(const char *what)
{
	fprintf(stderr, "holders: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static int64_t us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- the worker that was taken over ---- */

static uint32_t dead[ZOMBIES];
static uint32_t noise = 1;

static uint32_t next_noise(void) { return noise = noise * 1664525 + 1013904223; }

/* One word of 16: of a table with holders of a cache line each. */
static uint32_t taken_word(unsigned i)
{
	return i == 0 ? 1 : i < 5 ? 0 : i - 5 < ZOMBIES ? dead[i - 5] : (uint32_t)getppid();
}

static uint32_t pid_word(unsigned i) { return i == 15 ? 1 : dead[i % ZOMBIES]; }

static uint32_t fallback_word(unsigned i)
{
	return i == 0 || i == 2 || i == 3 ? 1 : i > 4 ? (uint32_t)getppid() : 0;
}

static uint32_t wild_word(unsigned i)
{
	static const uint32_t ends[] = { 0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff };
	uint32_t r = next_noise() >> 8;

	(void)i;
	return r % 4 ? ends[r % 6] : r;
}

static void fill(uint32_t (*word)(unsigned))
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	if (!maps)
		die("/proc/self/maps");
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;

		if (!strstr(line, "rw-s") || !strstr(line, "/dev/zero") ||
		    sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		for (uint32_t *p = (void *)from; p < (uint32_t *)to; p++)
			*(volatile uint32_t *)p = word((unsigned)(((uintptr_t)p & 63) / 4));
	}
	fclose(maps);
}

/* Every timer that this process has a descriptor of: those with which its parent is woken. */
static void silence(void)
{
	static const struct itimerspec never;

	for (int n = 0; n < 1000; n++)
		for (int fd = 3; fd < 64; fd++)
			syscall(SYS_timerfd_settime, fd, 0, &never, NULL);
}

static const struct { const char *name; uint32_t (*word)(unsigned); } attacks[] = {
	{ "taken", taken_word }, { "pids", pid_word }, { "fallback", fallback_word },
		{ "wild", wild_word },
	{ "silence", NULL }, { "none", NULL },
};

#define ATTACKS (sizeof attacks / sizeof attacks[0])

static void worker(unsigned what, int ready)
{
	char c = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!geteuid() && (syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) ||
			   syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY)))
		die("setresuid");
	for (int i = 0; i < ZOMBIES; i++) {
		dead[i] = (uint32_t)fork();
		if (!dead[i])
			_exit(0);
	}
	for (;;) {
		if (attacks[what].word)
			fill(attacks[what].word);
		else if (!strcmp(attacks[what].name, "silence"))
			silence();
		else
			pause();
		if (ready >= 0 && write(ready, &c, 1) == 1)
			ready = -1;
	}
}

/* ---- the parent ---- */

static int call(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

	if (fd < 0 || connect(fd, (void *)&a, sizeof a))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

/* Sends a burst and verifies its echo. */
static void burst(int fd)
{
	static uint8_t out[BURST], in[BURST];
	size_t sent = 0, got = 0;

	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (uint8_t)(next_noise() >> 24);
	while (got < sizeof in) {
		struct pollfd p = { .fd = fd,
				    .events = (short)(POLLIN | (sent < sizeof out ? POLLOUT : 0)) };
		ssize_t n;

		if (!poll(&p, 1, STALL_MS)) {
			errno = ETIMEDOUT;
			die("a connection stands still");
		}
		if (p.revents & POLLOUT) {
			n = send(fd, out + sent, sizeof out - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
			if (n < 0 && errno != EAGAIN)
				die("send");
			sent += n > 0 ? (size_t)n : 0;
		}
		if (p.revents & (POLLIN | POLLHUP | POLLERR)) {
			n = recv(fd, in + got, sizeof in - got, MSG_DONTWAIT);
			if (!n || (n < 0 && errno != EAGAIN))
				die("recv");
			got += n > 0 ? (size_t)n : 0;
		}
	}
	if (memcmp(in, out, sizeof in))
		die("a wrong byte");
}

static int by_time(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t median(int64_t *t)
{
	qsort(t, ROUNDS, sizeof *t, by_time);
	return t[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	int64_t forked[ROUNDS], spoke[ROUNDS], closed[ROUNDS];
	int held[HELD], ready[2], status, port;
	unsigned what = 0;
	pid_t bad, pid;
	char c;

	while (argc == 3 && what < ATTACKS && strcmp(attacks[what].name, argv[1]))
		what++;
	if (argc != 3 || what == ATTACKS) {
		fputs("usage: holders taken|pids|fallback|wild|silence|none PORT\n", stderr);
		return 2;
	}
	port = atoi(argv[2]);
	for (int i = 0; i < HELD; i++) {
		held[i] = call(port);
		burst(held[i]);
		burst(held[i]);
	}
	if (pipe(ready))
		die("pipe");
	bad = fork();
	if (!bad)
		worker(what, strcmp(argv[1], "none") ? ready[1] : -1);
	close(ready[1]);
	if (strcmp(argv[1], "none") && read(ready[0], &c, 1) != 1)
		die("the worker did not begin");
	for (int i = 0; i < ROUNDS; i++) {
		int fd = call(port);
		int64_t at = us();

		for (int n = 0; n < BURSTS; n++)
			burst(fd);
		spoke[i] = (us() - at) / BURSTS;
		at = us();
		pid = fork();
		if (!pid) {	/* an honest child, which goes on where its parent was */
			burst(fd);
			_exit(0);
		}
		forked[i] = us() - at;
		if (waitpid(pid, &status, 0) != pid || status)
			die("the other child");
		burst(fd);
		at = us();
		close(fd);
		closed[i] = us() - at;
	}
	kill(bad, SIGKILL);
	waitpid(bad, &status, 0);
	printf("fork %lld close %lld speak %lld\n", (long long)median(forked),
	       (long long)median(closed), (long long)median(spoke));
	return 0;
}
