/*
 * crowd.c - a client with many connections to redis and nginx, of which a few are busy at any
 * moment, and which looks at every byte of every answer. Knows nothing of the library; crowd.sh
 * runs many of it and kills some.
 *
 * 	crowd REDIS-PORT NGINX-PORT CONNECTIONS FILES STATE [mortal]
 *
 * Half of the connections talk to redis: SET of a value that follows from its number, then GET
 * of it. The other half ask nginx for the files of the directory FILES. BUSY connections at a
 * time have a request under way, chosen at random. mortal: nginx's workers may be killed; a
 * connection to nginx that ends is then made again, and what came until then must still be
 * right. STATE: requests, bytes, connections that were lost and that are open, the slowest
 * request's ms, 8 bytes each, mapped. Until SIGTERM; exits 1 after a wrong byte, a connection
 * that ends though nobody was killed, or a request that takes longer than two minutes.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUSY 4
#define FILES 16
#define VALUE_MAX 40000
#define STALL_MS 120000

enum { REQUESTS, BYTES, LOST, OPEN, SLOWEST, WORDS };

struct conn {
	int fd;
	bool web, busy, lost;
	uint32_t seq;			/* redis: which value */
	uint8_t file;			/* nginx: which file */
	size_t out_n, out_at;		/* of `out` */
	size_t in_n, in_at;		/* bytes of the answer to come, when known; that came */
	size_t head;			/* nginx: bytes of the header so far */
	char header[512];
	char *out, *want;		/* the answer that redis must give */
	uint64_t since;
};

static struct { char name[256]; char *p; size_t n; } files[FILES];
static int nfiles, redis_port, nginx_port, ep;
static bool mortal;
static volatile uint64_t *state;
static volatile sig_atomic_t stop;
static uint64_t rng_state;

static void on_term(int sig) { stop = sig; }

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t rng(void)
{
	uint64_t z = (rng_state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void wrong(const struct conn *c, const char *what)
{
	fprintf(stderr, "crowd: fd %d to %s: %s after %zu of %zu bytes: %s\n", c->fd,
		c->web ? files[c->file].name : "redis", what, c->in_at, c->in_n, strerror(errno));
	exit(1);
}

static void read_files(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;
	int fd;

	while (d && (e = readdir(d)) && nfiles < FILES) {
		if (e->d_name[0] == '.')
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st))
			continue;
		files[nfiles].n = (size_t)st.st_size;
		files[nfiles].p = malloc(files[nfiles].n + 1);
		if (read(fd, files[nfiles].p, files[nfiles].n) != st.st_size)
			exit(2);
		snprintf(files[nfiles++].name, sizeof files[0].name, "%s", e->d_name);
		close(fd);
	}
	if (!nfiles)
		exit(2);
}

static void call(struct conn *c)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(c->web ? nginx_port : redis_port)),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c };

	for (int i = 0;; i++) {
		c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (c->fd >= 0 && !connect(c->fd, (void *)&a, sizeof a))
			break;
		if (!c->web || !mortal || i == 100)	/* while nginx makes a new worker */
			wrong(c, "connect");
		close(c->fd);
		usleep(50000);
	}
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e))
		wrong(c, "epoll_ctl");
	state[OPEN]++;
}

static void lose(struct conn *c)
{
	close(c->fd);
	state[OPEN]--;
	state[LOST]++;
	c->busy = false;
	call(c);
}

/* ---- requests ---- */

static void value(char *to, size_t n, uint64_t seed)
{
	uint64_t was = rng_state;

	rng_state = seed;
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = rng();

		memcpy(to + i, &v, n - i < 8 ? n - i : 8);
	}
	rng_state = was;
}

/* The key belongs to the connection and the process: SET and GET of it must agree. */
static void ask_redis(struct conn *c)
{
	static char v[VALUE_MAX + 8];
	size_t n = rng() % 8 ? 1 + rng() % 2000 : rng() % VALUE_MAX;
	char key[64];
	int k = snprintf(key, sizeof key, "crowd:%d:%d", getpid(), c->fd), h;

	value(v, n, (uint64_t)getpid() << 40 ^ (uint64_t)c->fd << 32 ^ ++c->seq);
	free(c->out);
	free(c->want);
	c->out = malloc(n + 300);
	c->want = malloc(n + 100);
	h = sprintf(c->out, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%zu\r\n", k, key, n);
	memcpy(c->out + h, v, n);
	c->out_n = (size_t)h + n;
	c->out_n +=
		(size_t)sprintf(c->out + c->out_n, "\r\n*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", k, key);
	h = sprintf(c->want, "+OK\r\n$%zu\r\n", n);
	memcpy(c->want + h, v, n);
	memcpy(c->want + h + n, "\r\n", 2);
	c->in_n = (size_t)h + n + 2;
}

static void ask_nginx(struct conn *c)
{
	do
		c->file = (uint8_t)(rng() % (unsigned)nfiles);
	while (files[c->file].n > 100000 && rng() % 16);	/* most are small */
	free(c->out);
	c->out = malloc(400);
	c->out_n =
		(size_t)sprintf(c->out, "GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", files[c->file].name);
	c->in_n = files[c->file].n;
	c->head = 0;
}

static void push(struct conn *c)
{
	while (c->out_at < c->out_n) {
		ssize_t n = send(c->fd, c->out + c->out_at, c->out_n - c->out_at, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && c->web && mortal) {
			c->lost = true;
			return;
		}
		if (n < 0)
			wrong(c, "send");
		c->out_at += (size_t)n;
		state[BYTES] += (uint64_t)n;
	}
}

/* ---- answers ---- */

/* Takes the header's bytes; how many of n were part of it. */
static size_t take_header(struct conn *c, const char *p, size_t n)
{
	char length[64];
	size_t i = 0;

	while (i < n && (c->head < 4 || memcmp(c->header + c->head - 4, "\r\n\r\n", 4))) {
		if (c->head == sizeof c->header - 1)
			wrong(c, "no end of the header");
		c->header[c->head++] = p[i++];
	}
	c->header[c->head] = 0;
	if (c->head < 4 || memcmp(c->header + c->head - 4, "\r\n\r\n", 4))
		return i;
	snprintf(length, sizeof length, "Content-Length: %zu\r\n", c->in_n);
	if (strncmp(c->header, "HTTP/1.1 200 OK\r\n", 17) || !strstr(c->header, length))
		wrong(c, "another header");
	return i;
}

static void take(struct conn *c, const char *p, size_t n)
{
	const char *want = c->web ? files[c->file].p : c->want;

	state[BYTES] += n;
	if (!c->busy)
		wrong(c, "bytes that nobody asked for");
	if (c->web && c->in_at == 0) {
		size_t h = take_header(c, p, n);

		p += h;
		n -= h;
	}
	if (n > c->in_n - c->in_at || memcmp(p, want + c->in_at, n))
		wrong(c, "WRONG BYTES");
	c->in_at += n;
	if (c->in_at == c->in_n &&
	    (!c->web || (c->head >= 4 && !memcmp(c->header + c->head - 4, "\r\n\r\n", 4)))) {
		uint64_t ms = now_ms() - c->since;

		c->busy = false;
		state[REQUESTS]++;
		if (ms > state[SLOWEST])
			state[SLOWEST] = ms;
	}
}

static void pull(struct conn *c)
{
	static char buf[65536];
	ssize_t n;

	while ((n = recv(c->fd, buf, 1 + rng() % sizeof buf, 0)) > 0)
		take(c, buf, (size_t)n);
	if (n < 0 && errno == EAGAIN)
		return;
	if (!c->web || !mortal)
		wrong(c, n ? "recv" : "end of file");
	c->lost = true;
}

static void begin(struct conn *c, uint64_t now)
{
	c->busy = true;
	c->since = now;
	c->out_at = c->in_at = 0;
	if (c->web)
		ask_nginx(c);
	else
		ask_redis(c);
	push(c);
}

int main(int argc, char **argv)
{
	int n = argc > 5 ? atoi(argv[3]) : 0, fd;
	struct conn *conn = calloc((size_t)n + 1, sizeof *conn), *busy[BUSY] = { NULL };
	struct epoll_event ev[64];

	if (n < BUSY) {
		fprintf(stderr,
			"usage: crowd REDIS-PORT NGINX-PORT CONNECTIONS FILES STATE [mortal]\n");
		return 2;
	}
	redis_port = atoi(argv[1]);
	nginx_port = atoi(argv[2]);
	mortal = argc > 6;
	rng_state = (uint64_t)getpid() << 20 ^ (uint64_t)time(NULL);
	read_files(argv[4]);
	fd = open(argv[5], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, WORDS * 8) ||
	    (state = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
		    MAP_FAILED)
		return 2;
	signal(SIGTERM, on_term);
	ep = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < n; i++) {
		conn[i].web = i & 1;
		call(&conn[i]);
	}
	while (!stop) {
		uint64_t now = now_ms();
		int k;

		for (int i = 0; i < BUSY; i++) {
			if (busy[i] && busy[i]->busy && now - busy[i]->since > STALL_MS)
				wrong(busy[i], "stands still");
			if (busy[i] && busy[i]->busy)
				continue;
			do
				busy[i] = &conn[rng() % (unsigned)n];
			while (busy[i]->busy);
			begin(busy[i], now);
		}
		k = epoll_wait(ep, ev, 64, 1000);
		for (int i = 0; i < k; i++) {
			struct conn *c = ev[i].data.ptr;

			push(c);
			if (!c->lost)
				pull(c);
		}
		for (int i = 0; i < k; i++) {	/* now nothing in ev names its number any more */
			struct conn *c = ev[i].data.ptr;

			if (c->lost) {
				c->lost = false;
				lose(c);
			}
		}
		for (int i = 0; i < BUSY; i++)
			if (busy[i] && busy[i]->lost) {
				busy[i]->lost = false;
				lose(busy[i]);
			}
	}
	return 0;
}
