/*
 * pair.h - for programs that look at TCP connections between two processes, step by step: the
 * tester, and its peer, the same program started again, which does what the tester tells it over
 * an AF_UNIX socket (so that no order depends on luck).
 *
 * Every byte of a connection is known by its direction and offset; a wrong one ends the run.
 * Knows nothing of the library. Locks: none; only the tester's main thread talks to the peer.
 */
#ifndef TESTS_PAIR_H
#define TESTS_PAIR_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIR_CONNS 64
#define PAIR_CHUNK 65536

enum pair_op {
	P_NEW,		/* a: the port to connect to, 0: accept one */
	P_SEND,		/* a bytes */
	P_RECV,		/* a bytes exactly, or what came before the end; the count */
	P_TAKE,		/* up to a bytes, without waiting; the count */
	P_DRAIN,	/* until the end of file; the count */
	P_SHUT,		/* a: how */
	P_CLOSE,
	P_LINGER,	/* on, 0 seconds */
	P_WARM,		/* a: connections from this one on, b: rounds of 32 bytes, received and
			 * returned */
	P_BULK,		/* a: connections from this one on, b: bytes sent on each and wanted back */
	P_POUR,		/* for a milliseconds: as much as it takes; the count */
	P_LAST,		/* what the delayed command before gave */
	P_EXIT,
};

struct pair_cmd {
	int op, conn, delay_ms;	/* delay: the answer comes at once, the deed that much later; -1:
				 * at once, but don't wait */
	long a, b;
};
struct pair_ans {
	long ret;
	int err;
};

struct conn {
	int fd, id;		/* id: its number at the peer */
	uint64_t tx, rx;	/* offsets of this end */
};

static struct conn pair_peer[PAIR_CONNS];	/* in the peer */
static int pair_ctl = -1, pair_listener = -1, pair_ids;
static uint16_t pair_port, pair_peer_port;
static bool pair_connects;			/* the tester makes the connections, not the peer */
static bool pair_is_peer;

__attribute__((format(printf, 1, 2), noreturn)) static inline void die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s: ", pair_is_peer ? "peer" : "tester");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

static inline uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline void nap(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* The byte at an offset; what the tester sends and what it gets differ. */
static inline char byte_at(bool from_peer, uint64_t off)
{
	return (char)((off * 2654435761u >> 13) + off + (from_peer ? 77 : 0));
}

static inline void fill(char *b, size_t n, bool from_peer, uint64_t off)
{
	for (size_t i = 0; i < n; i++)
		b[i] = byte_at(from_peer, off + i);
}

static inline void verify(const char *b, size_t n, bool from_peer, uint64_t off, const char *where)
{
	for (size_t i = 0; i < n; i++)
		if (b[i] != byte_at(from_peer, off + i))
			die("%s: wrong byte at offset %llu", where, (unsigned long long)(off + i));
}

static inline int tcp_listener(uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(*port) };
	socklen_t l = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (void *)&a, l) || listen(fd, 128) || getsockname(fd, (void *)&a, &l))
		die("listener: %s", strerror(errno));
	*port = ntohs(a.sin_port);
	return fd;
}

static inline int tcp_connect(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || connect(fd, (void *)&a, sizeof(a)))
		die("connect: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static inline int tcp_accept(int l)
{
	int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC), one = 1;

	if (fd < 0)
		die("accept: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* ---- the peer ---- */

static inline long peer_send(struct conn *c, long n, int flags)
{
	static char b[PAIR_CHUNK];
	long done = 0;

	while (done < n) {
		size_t k = (size_t)(n - done) < sizeof(b) ? (size_t)(n - done) : sizeof(b);
		ssize_t r;

		fill(b, k, true, c->tx);
		r = send(c->fd, b, k, MSG_NOSIGNAL | flags);
		if (r < 0)
			return done ? done : -errno;
		c->tx += r;
		done += r;
	}
	return done;
}

/* n < 0: to the end of file */
static inline long peer_recv(struct conn *c, long n, int flags)
{
	static char b[PAIR_CHUNK];
	long done = 0;

	while (n < 0 || done < n) {
		size_t k = n < 0 || n - done > (long)sizeof(b) ? sizeof(b) : (size_t)(n - done);
		ssize_t r = recv(c->fd, b, k, flags);

		if (r < 0)
			return done && (flags & MSG_DONTWAIT) ? done : -errno;
		if (r == 0)
			break;
		verify(b, r, false, c->rx, "peer");
		c->rx += r;
		done += r;
	}
	return done;
}

static inline long peer_warm(struct conn *c, long n, long rounds)
{
	for (long r = 0; r < rounds; r++)
		for (long i = 0; i < n; i++)
			if (peer_recv(&c[i], 32, 0) != 32 || peer_send(&c[i], 32, 0) != 32)
				die("warm-up of connection %d", c[i].id);
	return 0;
}

/* Sends in odd sizes, with pauses now and then, and takes back what the tester echoes: the
 * peer's own bytes. */
static inline long peer_bulk(struct conn *c, long n, long bytes)
{
	static char b[PAIR_CHUNK];
	uint64_t tx0[PAIR_CONNS], rx[PAIR_CONNS] = { 0 };
	struct pollfd p[PAIR_CONNS];
	unsigned rnd = 12345;
	long left = n;

	for (long i = 0; i < n; i++)
		tx0[i] = c[i].tx;
	while (left) {
		int r;

		for (long i = 0; i < n; i++) {
			bool more = c[i].tx - tx0[i] < (uint64_t)bytes &&
				    c[i].tx - tx0[i] - rx[i] < 300000;

			p[i] = (struct pollfd){ .fd = rx[i] == (uint64_t)bytes ? -1 : c[i].fd,
						.events = POLLIN | (more ? POLLOUT : 0) };
		}
		r = poll(p, n, 20000);
		if (r <= 0)
			die("bulk: %s; connection 0 has sent %llu and got back %llu",
			    r ? strerror(errno) : "nothing for 20 s",
			    (unsigned long long)(c[0].tx - tx0[0]), (unsigned long long)rx[0]);
		for (long i = 0; i < n; i++) {
			rnd = rnd * 1664525 + 1013904223;
			if (p[i].revents & (POLLIN | POLLHUP | POLLERR)) {
				ssize_t k =
					recv(c[i].fd, b, 1 + (rnd >> 8) % sizeof(b), MSG_DONTWAIT);

				if (k == 0 || (k < 0 && errno != EAGAIN))
					die("bulk: lost connection %ld: %s", i,
					    k ? strerror(errno) : "end of file");
				if (k > 0) {
					verify(b, k, true, tx0[i] + rx[i], "bulk");
					rx[i] += k;
					if (rx[i] == (uint64_t)bytes)
						left--;
				}
			}
			if (p[i].revents & POLLOUT) {
				uint64_t want = (uint64_t)bytes - (c[i].tx - tx0[i]);
				size_t k = 1 + (rnd >> 4) % (rnd % 5 ? 3000 : sizeof(b));
				ssize_t s;

				k = k < want ? k : want;
				fill(b, k, true, c[i].tx);
				s = send(c[i].fd, b, k, MSG_DONTWAIT | MSG_NOSIGNAL);
				if (s > 0)
					c[i].tx += s;
				else if (errno != EAGAIN)
					die("bulk: send: %s", strerror(errno));
			}
		}
		if ((rnd >> 16) % 32 == 0)
			nap(1);
	}
	return 0;
}

static inline long peer_pour(struct conn *c, long ms)
{
	uint64_t end = now_ms() + ms;
	long done = 0;

	while (now_ms() < end) {
		long r = peer_send(c, 16384, 0);

		if (r < 0)
			return r;
		done += r;
	}
	return done;
}

static inline long peer_do(const struct pair_cmd *m)
{
	struct conn *c = &pair_peer[m->conn];
	struct linger lg = { 1, 0 };
	long r = 0;

	switch ((enum pair_op)m->op) {
	case P_NEW:
		*c = (struct conn){ .id = m->conn,
				    .fd = m->a ? tcp_connect((uint16_t)m->a)
					    : tcp_accept(pair_listener) };
		return 0;
	case P_SEND: return peer_send(c, m->a, 0);
	case P_RECV: return peer_recv(c, m->a, 0);
	case P_TAKE: return peer_recv(c, m->a, MSG_DONTWAIT);
	case P_DRAIN: return peer_recv(c, -1, 0);
	case P_SHUT: return shutdown(c->fd, (int)m->a) ? -errno : 0;
	case P_CLOSE:
		r = close(c->fd) ? -errno : 0;
		c->fd = -1;
		return r;
	case P_LINGER:
		return setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)) ? -errno : 0;
	case P_WARM: return peer_warm(c, m->a, m->b);
	case P_BULK: return peer_bulk(c, m->a, m->b);
	case P_POUR: return peer_pour(c, m->a);
	case P_LAST:
	case P_EXIT:
		break;
	}
	return 0;
}

static inline int peer_main(int ctl)
{
	struct pair_cmd m;
	long last = 0;

	pair_is_peer = true;
	pair_listener = tcp_listener(&pair_port);
	if (write(ctl, &pair_port, sizeof(pair_port)) != sizeof(pair_port))
		return 1;
	while (read(ctl, &m, sizeof(m)) == (ssize_t)sizeof(m)) {
		long r = 0;
		struct pair_ans a;

		if (m.op == P_LAST) {
			r = last;
		} else if (m.delay_ms) {
			a = (struct pair_ans){ 0, 0 };
			if (write(ctl, &a, sizeof(a)) != (ssize_t)sizeof(a))
				return 1;
			if (m.delay_ms > 0)
				nap(m.delay_ms);
			if (m.op == P_EXIT)
				_exit(0);
			last = peer_do(&m);
			continue;
		} else if (m.op != P_EXIT) {
			r = peer_do(&m);
		}
		a = (struct pair_ans){ r < 0 ? -1 : r, r < 0 ? (int)-r : 0 };
		if (write(ctl, &a, sizeof(a)) != (ssize_t)sizeof(a))
			return 1;
		if (m.op == P_EXIT)
			_exit(0);
	}
	return 0;
}

/* ---- the tester ---- */

/* Does it at the peer and returns what it gave, -1 with errno. */
static inline long ask_later(int delay_ms, enum pair_op op, int id, long a, long b)
{
	struct pair_cmd m = { (int)op, id, delay_ms, a, b };
	struct pollfd p = { .fd = pair_ctl, .events = POLLIN };
	struct pair_ans r;

	if (write(pair_ctl, &m, sizeof(m)) != (ssize_t)sizeof(m))
		die("the peer is gone");
	while (poll(&p, 1, 30000) < 0 && errno == EINTR)
		;
	if (!p.revents)
		die("the peer does not finish command %d on connection %d (%ld, %ld)", op, id, a,
		    b);
	if (read(pair_ctl, &r, sizeof(r)) != (ssize_t)sizeof(r))
		die("the peer is gone");
	errno = r.err;
	return r.ret;
}
static inline long ask(enum pair_op op, const struct conn *c, long a) { return ask_later(0, op,
	c->id, a, 0); }
static inline void later(int ms, enum pair_op op, const struct conn *c,
			 long a) { ask_later(ms, op, c->id, a, 0); }
static inline long outcome(void) { return ask_later(0, P_LAST, 0, 0, 0); }

static inline struct conn conn_new(void)
{
	struct conn c = { .id = pair_ids++ % PAIR_CONNS };

	if (pair_connects) {
		c.fd = tcp_connect(pair_peer_port);
		ask(P_NEW, &c, 0);
	} else {
		ask(P_NEW, &c, pair_port);
		c.fd = tcp_accept(pair_listener);
	}
	return c;
}

static inline void must_send(struct conn *c, size_t n)
{
	char *b = malloc(n);
	ssize_t r;

	fill(b, n, false, c->tx);
	r = send(c->fd, b, n, MSG_NOSIGNAL);
	if (r != (ssize_t)n)
		die("send of %zu gave %zd: %s", n, r, r < 0 ? strerror(errno) : "");
	c->tx += n;
	free(b);
}

/* What is at b came from the peer just now. */
static inline void came(struct conn *c, const char *b, ssize_t n, const char *where)
{
	if (n > 0) {
		verify(b, n, true, c->rx, where);
		c->rx += n;
	}
}

static inline void must_recv(struct conn *c, size_t n)
{
	char *b = malloc(n);
	size_t at = 0;

	while (at < n) {
		ssize_t r = recv(c->fd, b + at, n - at, 0);

		if (r <= 0)
			die("recv of %zu ended after %zu: %s", n, at,
			    r ? strerror(errno) : "end of file");
		at += r;
	}
	came(c, b, (ssize_t)n, "recv");
	free(b);
}

/* Time and turns for the connections (consecutive ones) to become what they may. */
static inline void warm(struct conn *c, int n, int rounds)
{
	ask_later(-1, P_WARM, c[0].id, n, rounds);
	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < n; i++) {
			must_send(&c[i], 32);
			must_recv(&c[i], 32);
		}
		nap(1);
	}
	outcome();
}

static inline int pair_start(int argc, char **argv)
{
	extern char **environ;
	char num[16], *av[] = { argv[0], (char *)"peer", num, NULL };
	int sv[2];
	pid_t pid;

	if (argc == 3 && !strcmp(argv[1], "peer"))
		exit(peer_main(atoi(argv[2])));
	pair_connects = argc > 1 && !strcmp(argv[1], "connect");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv))
		die("socketpair");
	fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	snprintf(num, sizeof(num), "%d", sv[1]);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, av, environ))
		die("cannot start the peer");
	close(sv[1]);
	pair_ctl = sv[0];
	if (read(pair_ctl, &pair_peer_port, sizeof(pair_peer_port)) != sizeof(pair_peer_port))
		die("no peer");
	pair_listener = tcp_listener(&pair_port);
	return (int)pid;
}

/* The peer ends by itself when the control channel closes. */
static inline int pair_end(int pid)
{
	int st = -1;

	fflush(stdout);
	close(pair_ctl);
	waitpid(pid, &st, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 2;
}

#endif
