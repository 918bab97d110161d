/*
 * sockbench.c - what plain blocking sockets give between two processes: round trips, streams,
 * connections. Knows nothing of the library; each figure is measured after a warm-up on the same
 * connection, which is long enough for anything that happens to a busy connection to have
 * happened.
 *
 * 	sockbench -s PORT [-n CLIENTS] [-b ADDR]	one client after the other; PORT may
 * 							be /PATH: an AF_UNIX socket
 * 	sockbench -c HOST PORT [-q] [-u] [-v] [-i] [-t SECS] [-f FIGURE]
 *
 * -i measures each figure once more for each line on the standard input, up to an empty one: for
 * whoever has several take turns. -v verifies every byte at both ends (and is slower), -u also
 * shows the CPU time of both ends together, -q takes less time per figure, -f only that figure.
 * Output: "rtt_64 12.3 us" (round trip), "stream_64 456.7 MB/s", "connections 23456 /s", and
 * with -v at last "bad_blocks 0 blocks".
 *
 * Protocol: the client sends a command; the server obeys and the client times it. A round trip
 * is a block there and back. A stream is COUNT blocks of SIZE bytes, then the server answers
 * with the number of bad ones, so that the time includes that the last byte was read.
 * Connections are COUNT new ones, one after the other, for a block there and back each. How many
 * blocks: as many as the warm-up says fit in the time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum op { OP_ECHO = 0x45, OP_SINK = 0x53, OP_CONN = 0x43, OP_BYE = 0x42 };

struct command {
	uint32_t op;
	uint32_t verify;
	uint32_t size;
	uint32_t seed;
	uint64_t count;
};

/* The server's answer when a command is done. */
struct result {
	uint64_t bad;
	uint64_t cpu_ns;	/* that it took */
};

#define BLOCK_MAX (4u << 20)

static const struct figure {
	const char *name;
	enum op op;
	uint32_t size;
} figures[] = {
	{ "rtt_8", OP_ECHO, 8 },
	{ "rtt_64", OP_ECHO, 64 },
	{ "rtt_1024", OP_ECHO, 1024 },
	{ "rtt_16384", OP_ECHO, 16384 },
	{ "stream_64", OP_SINK, 64 },
	{ "stream_1024", OP_SINK, 1024 },
	{ "stream_16384", OP_SINK, 16384 },
	{ "stream_65536", OP_SINK, 65536 },
	{ "stream_1048576", OP_SINK, 1u << 20 },
	{ "stream_4194304", OP_SINK, 4u << 20 },
	{ "connections", OP_CONN, 64 },
};

static char *block, *expect;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double seconds(void) { return nanoseconds(CLOCK_MONOTONIC) / 1e9; }
static uint64_t cpu_ns(void) { return nanoseconds(CLOCK_PROCESS_CPUTIME_ID); }

/* Returns false if the peer closed before the first byte. */
static bool get(int fd, void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = recv(fd, (char *)buf + done, n - done, 0);

		if (r == 0 && done == 0)
			return false;
		if (r == 0) {
			fprintf(stderr, "peer closed in the middle of a block\n");
			exit(1);
		}
		if (r < 0 && errno != EINTR)
			die("recv");
		if (r > 0)
			done += r;
	}
	return true;
}

static void put(int fd, const void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = send(fd, (const char *)buf + done, n - done, MSG_NOSIGNAL);

		if (r < 0 && errno != EINTR)
			die("send");
		if (r > 0)
			done += r;
	}
}

/* The bytes of block number i: different in each block and at each place. */
static void paint(char *buf, size_t n, uint32_t seed, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull ^ seed, k;

	for (k = 0; k < n; k += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + k, &x, n - k < 8 ? n - k : 8);
	}
}

static bool is_painted(const char *buf, size_t n, uint32_t seed, uint64_t i)
{
	paint(expect, n, seed, i);
	return memcmp(buf, expect, n) == 0;
}

static bool resolve(const char *host, const char *port, int flags, struct sockaddr_storage *sa,
		    socklen_t *len)
{
	struct addrinfo hint = { .ai_socktype = SOCK_STREAM, .ai_flags = flags,
				 .ai_family = host ? AF_UNSPEC : AF_INET }, *a;
	struct sockaddr_un *un = (struct sockaddr_un *)sa;

	if (port[0] == '/' && strlen(port) < sizeof(un->sun_path)) {
		un->sun_family = AF_UNIX;
		strcpy(un->sun_path, port);
		*len = sizeof(*un);
		return true;
	}
	if (getaddrinfo(host, port, &hint, &a)) {
		fprintf(stderr, "bad address\n");
		return false;
	}
	memcpy(sa, a->ai_addr, a->ai_addrlen);
	*len = a->ai_addrlen;
	freeaddrinfo(a);
	return true;
}

static void no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* ---- server ---- */

static int listener = -1;

/* One block there and back on each of `count` new connections. */
static uint64_t obey_connections(const struct command *c)
{
	uint64_t i, bad = 0;

	for (i = 0; i < c->count; i++) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			die("accept");
		if (!get(fd, block, c->size))
			die("client closed");
		if (c->verify && !is_painted(block, c->size, c->seed, i))
			bad++;
		put(fd, block, c->size);
		if (get(fd, block, 1))
			bad++;
		close(fd);
	}
	return bad;
}

static void obey(int fd, const struct command *c)
{
	uint64_t i, bad = 0, start = cpu_ns();
	struct result r;

	for (i = 0; c->op != OP_CONN && i < c->count; i++) {
		if (!get(fd, block, c->size)) {
			fprintf(stderr, "client closed between blocks\n");
			exit(1);
		}
		if (c->verify && !is_painted(block, c->size, c->seed, i))
			bad++;
		if (c->op == OP_ECHO)
			put(fd, block, c->size);
	}
	if (c->op == OP_CONN)
		bad = obey_connections(c);
	r = (struct result){ bad, cpu_ns() - start };
	put(fd, &r, sizeof(r));
}

static int serve(const char *addr, const char *port, int clients)
{
	struct sockaddr_storage sa;
	struct command c;
	socklen_t len;
	int l, fd, one = 1;

	if (!resolve(addr, port, AI_PASSIVE, &sa, &len))
		return 2;
	l = socket(sa.ss_family, SOCK_STREAM, 0);
	if (l < 0)
		die("socket");
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (struct sockaddr *)&sa, len) || listen(l, 16))
		die("listen");
	listener = l;
	while (clients-- > 0) {
		fd = accept(l, NULL, NULL);
		if (fd < 0)
			die("accept");
		no_delay(fd);
		while (get(fd, &c, sizeof(c)) && c.op != OP_BYE) {
			if ((c.op != OP_ECHO && c.op != OP_SINK && c.op != OP_CONN) ||
			    c.size > BLOCK_MAX) {
				fprintf(stderr, "bad command\n");
				return 1;
			}
			obey(fd, &c);
		}
		close(fd);
	}
	close(l);
	return 0;
}

/* ---- client ---- */

static uint64_t bad_blocks;
static bool verify, show_cpu, by_line;
static uint64_t last_cpu_ns;	/* of both ends, for the last command */
static struct sockaddr_storage server_addr;
static socklen_t server_len;

/* Each closed connection keeps its port for a while: all addresses of the loopback network take
 * turns. */
static int new_connection(uint64_t i)
{
	struct sockaddr_storage to = server_addr;
	struct sockaddr_in *in = (struct sockaddr_in *)&to;
	int fd = socket(to.ss_family, SOCK_STREAM, 0);

	if (to.ss_family == AF_INET && ntohl(in->sin_addr.s_addr) == INADDR_LOOPBACK)
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK + i % 16);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, server_len))
		die("connect");
	return fd;
}

/* Runs one command; returns its time in seconds. */
static double perform(int fd, const struct figure *f, uint64_t count)
{
	static uint32_t seed = 1;
	struct command c = { .op = f->op, .verify = verify, .size = f->size, .seed = seed++,
			     .count = count };
	struct result r;
	uint64_t i, cpu;
	double start;

	put(fd, &c, sizeof(c));
	paint(block, f->size, c.seed, 0);
	cpu = cpu_ns();
	start = seconds();
	for (i = 0; i < count; i++) {
		int to = f->op == OP_CONN ? new_connection(i) : fd;

		if (verify)
			paint(block, f->size, c.seed, i);
		put(to, block, f->size);
		if (f->op == OP_SINK)
			continue;
		if (!get(to, block, f->size))
			die("server closed");
		if (verify && !is_painted(block, f->size, c.seed, i))
			bad_blocks++;
		if (f->op == OP_CONN)
			close(to);
	}
	if (!get(fd, &r, sizeof(r)))
		die("server closed");
	bad_blocks += r.bad;
	last_cpu_ns = cpu_ns() - cpu + r.cpu_ns;
	return seconds() - start;
}

static void show(const struct figure *f, uint64_t count, double t)
{
	if (f->op == OP_ECHO)
		printf("%s %.3f us\n", f->name, t / count * 1e6);
	else if (f->op == OP_CONN)
		printf("%s %.0f /s\n", f->name, count / t);
	else
		printf("%s %.2f MB/s\n", f->name, (double)count * f->size / t / 1e6);
	if (show_cpu && f->op == OP_SINK)
		printf("cpu_%s %.4f s/GB\n", f->name, last_cpu_ns / ((double)count * f->size));
	else if (show_cpu)
		printf("cpu_%s %.3f us\n", f->name, last_cpu_ns / 1e3 / count);
	fflush(stdout);
}

/* Warm-up in growing steps, then as many blocks as fit in `time`. */
static void measure(int fd, const struct figure *f, double time)
{
	char line[16];

	uint64_t count = f->op == OP_SINK ? (256 << 10) / f->size + 2 : 16;
	double warm = seconds() + time / 2, t = perform(fd, f, count);

	while (seconds() < warm) {
		if (t < time / 8)
			count *= 2;
		t = perform(fd, f, count);
	}
	count = count * (time / t) + 1;
	t = perform(fd, f, count);
	show(f, count, t);
	while (by_line && fgets(line, sizeof(line), stdin) && line[0] != '\n') {
		t = perform(fd, f, count);
		show(f, count, t);
	}
}

static int run_client(const char *host, const char *port, double time, const char *only)
{
	struct command bye = { .op = OP_BYE };
	size_t i;
	int fd;

	if (!resolve(host, port, 0, &server_addr, &server_len))
		return 2;
	fd = socket(server_addr.ss_family, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&server_addr, server_len))
		die("connect");
	no_delay(fd);
	for (i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		if (!only || !strcmp(only, figures[i].name))
			measure(fd, &figures[i], time);
	put(fd, &bye, sizeof(bye));
	close(fd);
	if (verify)
		printf("bad_blocks %llu blocks\n", (unsigned long long)bad_blocks);
	return bad_blocks != 0;
}

int main(int argc, char **argv)
{
	const char *addr = NULL, *host = NULL, *port = NULL, *only = NULL;
	bool server = false;
	double time = 1;
	int o, clients = 1;

	while ((o = getopt(argc, argv, "s:n:b:c:quvit:f:")) != -1)
		switch (o) {
		case 's': server = true; port = optarg; break;
		case 'n': clients = atoi(optarg); break;
		case 'b': addr = optarg; break;
		case 'c':
			host = optarg;
			if (optind < argc)
				port = argv[optind++];
			break;
		case 'q': time = 0.2; break;
		case 'u': show_cpu = true; break;
		case 'v': verify = true; break;
		case 'i': by_line = true; break;
		case 't': time = atof(optarg); break;
		case 'f': only = optarg; break;
		default: port = NULL; optind = argc; break;
		}
	if (!port || (!server && !host) || time <= 0) {
		fprintf(stderr, "usage: sockbench -s PORT [-n CLIENTS] [-b ADDR] | -c HOST PORT "
				"[-q] [-u] [-v] [-i] [-t SECS] [-f FIGURE]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	block = calloc(1, BLOCK_MAX);
	expect = calloc(1, BLOCK_MAX);
	if (!block || !expect)
		die("calloc");
	return server ? serve(addr, port, clients) : run_client(host, port, time, only);
}
