/*
 * short.c - many short TCP connections, closed in every way at every moment; knows nothing of
 * the library.
 *
 * 	short self   [OPTIONS] PORT	both ends in this process
 * 	short server [OPTIONS] PORT	serves -n connections and ends
 * 	short client [OPTIONS] PORT
 * 	-n N  connections     -t N  threads at each end     -T SECS  a step that takes longer
 * 	      is a hang: says so and stays
 * 	-s SEED  other sizes, delays and orders             -q  no line per way of ending
 *
 * A connection is all in its number: how it ends (enum how), how much goes each way, how long
 * its ends dally before they close, whether they block or poll. The number is its first 8 bytes,
 * all others follow from it and are checked; so is that EOF comes where it must, and a reset
 * nowhere else. Prints what came of the connections, the same in every good run; exits 1 at the
 * first thing that is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "pattern.h"

enum how {
	PUT,		/* client sends and closes; server reads to the end */
	PUT_SHUT,	/* client sends, shuts down, waits for the server's close */
	ASK,		/* server answers and closes at once, client reads to the end */
	ASK_SHUT,	/* client shuts down after the question, reads the answer to the end */
	HALF,		/* client promises twice what it sends before it closes */
	ECHO,		/* some rounds; then both close */
	RESET,		/* client's close is a reset: an error at the server, never EOF */
	UNREAD,		/* client does not wait for the answer */
	HOWS
};
static const char *const how_name[HOWS] = { "put", "put-shut", "ask", "ask-shut", "half", "echo",
					    "reset", "unread" };

static struct { long n; int threads, patience; uint64_t seed; bool quiet; uint16_t port; } opt =
	{ .n = 1000, .threads = 4, .patience = 20, .seed = 1 };
static _Atomic long next_conn, accepted;
static _Atomic uint64_t ended[2][HOWS], bytes[2];	/* at the server, at the client */
static _Atomic bool over;

struct plan { uint64_t id; enum how how; size_t up, down; int rounds, dally; bool poll; };

/* What a thread does now, for the watch. */
struct worker {
	pthread_t thread;
	bool server;
	_Atomic uint64_t since;
	_Atomic uint64_t id;
	const char *_Atomic step;
	_Atomic uint64_t sent, got;
	int listener;
	char *buf;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void step(struct worker *w, const char *what)
{
	w->step = what;
	w->since = what ? now_us() : 0;
}

static void wrong(struct worker *w, const char *what, long r, int err)
{
	fprintf(stderr, "%s, connection %llu (%s): %s: %s: %ld (%s), sent %llu, got %llu\n",
		w->server ? "server" : "client", (unsigned long long)w->id,
		how_name[pattern_word(opt.seed, w->id) % HOWS], w->step ? w->step : "", what, r,
		r < 0 ? strerror(err) : "", (unsigned long long)w->sent,
		(unsigned long long)w->got);
	exit(1);
}

#define BUF 65536

static struct plan plan_of(uint64_t id)
{
	uint64_t r = pattern_word(opt.seed, id), q = pattern_word(opt.seed + 1, id);
	struct plan p = { .id = id, .how = (enum how)(r % HOWS), .poll = r >> 60 & 1 };

	p.up = 8 + (q % 16 ? q >> 8 & 511 : q >> 8 & (BUF - 1));
	p.down = q >> 40 & 1023;
	p.rounds = 1 + (int)(r >> 32 & 3);
	/* A close at once; one while something that a connection begins with may be under way;
	 * one later. */
	p.dally = r >> 40 & 1 ? 0 : (int)(r >> 41 & (r >> 56 & 3 ? 255 : 2047));
	return p;
}

/* Its processor is not given away while the time is short: that is when the close meets what
 * others do. */
static void dally(int us)
{
	uint64_t end = now_us() + (uint64_t)us;
	struct timespec t = { 0, us * 1000L };

	if (us & 1)
		nanosleep(&t, NULL);
	else
		while (us && now_us() < end)
			;
}

static void wait_for(struct worker *w, int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	int r;

	while ((r = poll(&p, 1, -1)) < 0 && errno == EINTR)
		;
	if (r != 1)
		wrong(w, "poll", r, errno);
}

/* 0, or an errno that `may` allows: a reset. */
static int put(struct worker *w, int fd, const struct plan *p, bool up, uint64_t from, size_t n,
	       bool may)
{
	size_t done = 0;

	pattern_fill(w->buf, n, p->id * 2 + up, from);
	if (up && !from)
		memcpy(w->buf, &p->id, 8);
	while (done < n) {
		ssize_t r = send(fd, w->buf + done, n - done,
				 MSG_NOSIGNAL | (p->poll ? MSG_DONTWAIT : 0));

		if (r < 0 && errno == EAGAIN && p->poll) {
			wait_for(w, fd, POLLOUT);
			continue;
		}
		if (r < 0 && may && (errno == ECONNRESET || errno == EPIPE))
			return errno;
		if (r <= 0)
			wrong(w, "send", r, errno);
		done += (size_t)r;
		w->sent += (uint64_t)r;
	}
	return 0;
}

/* Bytes, 0 at EOF, -1 at a reset. */
static ssize_t get(struct worker *w, int fd, bool poll_first, void *b, size_t n, bool may)
{
	for (;;) {
		ssize_t r;

		if (poll_first)
			wait_for(w, fd, POLLIN);
		r = recv(fd, b, n, poll_first ? MSG_DONTWAIT : 0);
		if (r < 0 && (errno == EINTR || (poll_first && errno == EAGAIN)))
			continue;
		if (r < 0 && may && errno == ECONNRESET)
			return -1;
		if (r < 0)
			wrong(w, "recv", r, errno);
		return r;
	}
}

/* Reads [from, to) or to the end that must come at `to`. True: the end; errno-less false: reset
 * (only if it may). */
static bool take(struct worker *w, int fd, const struct plan *p, bool up, uint64_t from,
		 uint64_t to, bool to_end, bool may)
{
	while (from < to || to_end) {
		size_t n = to_end || to - from > BUF ? BUF : (size_t)(to - from);
		ssize_t r = get(w, fd, p->poll, w->buf, n, may);

		if (r < 0)
			return false;
		if (!r) {
			if (from != to)
				wrong(w, "EOF too early, at", (long)from, 0);
			return true;
		}
		if (from + (uint64_t)r > to)
			wrong(w, "bytes beyond the end", r, 0);
		if (pattern_check(w->buf, (size_t)r, p->id * 2 + up, from) != (size_t)r)
			wrong(w, "wrong bytes at", (long)from, 0);
		from += (uint64_t)r;
		w->got += (uint64_t)r;
	}
	return true;
}

static void done(struct worker *w, int fd, const struct plan *p, uint64_t moved)
{
	step(w, "close");
	if (close(fd))
		wrong(w, "close", -1, errno);
	ended[!w->server][p->how]++;
	bytes[!w->server] += moved;
	step(w, NULL);
}

/* ---- the client's end ---- */

static void reset_at_close(struct worker *w, int fd)
{
	struct linger l = { 1, 0 };

	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l))
		wrong(w, "SO_LINGER", -1, errno);
}

static void one_client(struct worker *w, uint64_t id)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(opt.port) };
	struct plan p = plan_of(id);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t moved = p.up;

	w->id = id;
	w->sent = w->got = 0;
	step(w, "connect");
	if (fd < 0 || connect(fd, (void *)&a, sizeof a))
		wrong(w, "connect", -1, errno);
	step(w, "send");
	put(w, fd, &p, true, 0, p.up, false);
	switch (p.how) {
	case PUT: case HALF: case HOWS:
		break;
	case PUT_SHUT:
		dally(p.dally);
		step(w, "shutdown");
		if (shutdown(fd, SHUT_WR))
			wrong(w, "shutdown", -1, errno);
		step(w, "EOF after shutdown");
		take(w, fd, &p, false, 0, 0, true, false);
		break;
	case ASK_SHUT:
		dally(p.dally);
		if (shutdown(fd, SHUT_WR))
			wrong(w, "shutdown", -1, errno);
		/* fall through */
	case ASK:
		step(w, "answer and EOF");
		take(w, fd, &p, false, 0, p.down, true, false);
		moved += p.down;
		break;
	case ECHO:
		for (int i = 0; i < p.rounds; i++) {
			step(w, "echo");
			take(w, fd, &p, false, (uint64_t)i * p.down, (uint64_t)(i + 1) * p.down,
			     false, false);
			put(w, fd, &p, true, p.up + (uint64_t)i * 64, 64, false);
			moved += p.down + 64;
		}
		break;
	case RESET:
		moved = 0;	/* what of it came is luck */
		reset_at_close(w, fd);
		break;
	case UNREAD:
		break;
	}
	dally(p.dally);
	done(w, fd, &p, moved);
}

static void *clients(void *arg)
{
	struct worker *w = arg;
	long i;

	while ((i = next_conn++) < opt.n)
		one_client(w, (uint64_t)i);
	return NULL;
}

/* ---- the server's end ---- */

/* The number, which says all else. False: a reset came before it. */
static bool read_id(struct worker *w, int fd, bool poll_first, struct plan *p)
{
	uint64_t id = 0;

	for (size_t n = 0; n < 8;) {
		ssize_t r = get(w, fd, poll_first, (char *)&id + n, 8 - n, true);

		if (r < 0)
			return false;
		if (!r)
			wrong(w, "EOF in the number, at", (long)n, 0);
		n += (size_t)r;
	}
	if (id >= (uint64_t)opt.n)
		wrong(w, "wrong number", (long)id, 0);
	*p = plan_of(id);
	w->id = id;
	w->got = 8;
	return true;
}

static void one_server(struct worker *w, int fd, bool poll_first)
{
	struct plan p;
	uint64_t moved;
	bool reset;

	w->sent = w->got = 0;
	step(w, "number");
	if (!read_id(w, fd, poll_first, &p)) {
		p = (struct plan){ .how = RESET };
		done(w, fd, &p, 0);
		return;
	}
	moved = p.up;
	step(w, "question");
	switch (p.how) {
	case PUT: case HALF: case PUT_SHUT: case HOWS:
		step(w, "EOF");
		take(w, fd, &p, true, 8, p.up, true, false);
		if (p.how == PUT_SHUT)
			dally(p.dally / 2);
		break;
	case ASK_SHUT:
	case ASK:
		take(w, fd, &p, true, 8, p.up, p.how == ASK_SHUT, false);
		put(w, fd, &p, false, 0, p.down, false);
		moved += p.down;
		dally(p.dally / 2);
		break;
	case ECHO:
		take(w, fd, &p, true, 8, p.up, false, false);
		for (int i = 0; i < p.rounds; i++) {
			step(w, "echo");
			put(w, fd, &p, false, (uint64_t)i * p.down, p.down, false);
			take(w, fd, &p, true, p.up + (uint64_t)i * 64,
			     p.up + (uint64_t)(i + 1) * 64, false, false);
			moved += p.down + 64;
		}
		break;
	case RESET:
		step(w, "reset");
		moved = 0;
		if (take(w, fd, &p, true, 8, p.up, true, true))
			wrong(w, "EOF for a reset", 0, 0);
		break;
	case UNREAD:
		reset = !take(w, fd, &p, true, 8, p.up, false, true);
		step(w, "answer that nobody reads");
		if (!reset && !put(w, fd, &p, false, 0, p.down, true)) {
			step(w, "end without answer read");
			take(w, fd, &p, true, p.up, p.up, true, true);
		}
		moved = p.up;
		break;
	}
	done(w, fd, &p, moved);
}

static void *servers(void *arg)
{
	struct worker *w = arg;
	long i;

	while ((i = accepted++) < opt.n) {
		int fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			wrong(w, "accept", -1, errno);
		one_server(w, fd, i & 1);
	}
	return NULL;
}

/* ---- both ---- */

static int listener(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(opt.port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, (void *)&a, sizeof a) || listen(fd, 256)) {
		perror("listener");
		exit(2);
	}
	return fd;
}

static struct worker *workers;
static int nworkers;

/* Says what does not end, and leaves it as it is: whoever runs us looks at it. */
static void *watch(void *arg)
{
	bool told = false;

	(void)arg;
	while (!over) {
		struct timespec t = { 0, 200000000 };

		nanosleep(&t, NULL);
		for (int i = 0; i < nworkers && !told; i++) {
			struct worker *w = &workers[i];
			uint64_t since = w->since;
			const char *what = w->step;

			if (!since || !what || now_us() - since < (uint64_t)opt.patience * 1000000)
				continue;
			told = true;
			fprintf(stderr, "hang: %s, connection %llu (%s): %s, sent %llu, got %llu\n",
				w->server ? "server" : "client", (unsigned long long)w->id,
				how_name[plan_of(w->id).how], what, (unsigned long long)w->sent,
				(unsigned long long)w->got);
		}
	}
	return NULL;
}

static void start(int n, bool server, int fd)
{
	for (int i = 0; i < n; i++) {
		struct worker *w = &workers[nworkers++];

		w->server = server;
		w->listener = fd;
		w->buf = malloc(BUF);
		if (!w->buf || pthread_create(&w->thread, NULL, server ? servers : clients, w)) {
			fprintf(stderr, "no thread\n");
			exit(2);
		}
	}
}

static void report(bool server)
{
	if (!opt.quiet)
		for (int i = 0; i < HOWS; i++)
			printf("%s %s %llu\n", server ? "server" : "client", how_name[i],
			       (unsigned long long)ended[!server][i]);
	printf("%s %llu bytes\n", server ? "server" : "client", (unsigned long long)bytes[!server]);
}

int main(int argc, char **argv)
{
	bool server, client;
	pthread_t watcher;
	int c;

	if (argc < 3)
		return 2;
	server = !strcmp(argv[1], "server") || !strcmp(argv[1], "self");
	client = !strcmp(argv[1], "client") || !strcmp(argv[1], "self");
	argc--, argv++;
	while ((c = getopt(argc, argv, "n:t:T:s:q")) != -1)
		switch (c) {
		case 'n': opt.n = atol(optarg); break;
		case 't': opt.threads = atoi(optarg); break;
		case 'T': opt.patience = atoi(optarg); break;
		case 's': opt.seed = strtoull(optarg, NULL, 0); break;
		case 'q': opt.quiet = true; break;
		default: return 2;
		}
	if (optind >= argc || !(server || client) || opt.threads < 1)
		return 2;
	opt.port = (uint16_t)atoi(argv[optind]);
	workers = calloc((size_t)opt.threads * 2, sizeof *workers);
	if (!workers)
		return 2;
	if (server)
		start(opt.threads, true, listener());
	if (client)
		start(opt.threads, false, -1);
	pthread_create(&watcher, NULL, watch, NULL);
	for (int i = 0; i < nworkers; i++)
		pthread_join(workers[i].thread, NULL);
	over = true;
	pthread_join(watcher, NULL);
	if (server)
		report(true);
	if (client)
		report(false);
	return 0;
}
