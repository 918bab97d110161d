/*
 * pattern.c - sends and verifies streams over TCP in every way that programs wait and call;
 * knows nothing of the library.
 *
 * 	pattern listen  [OPTIONS] PORT		serves -k connections, a thread each
 * 	pattern connect [OPTIONS] HOST PORT	makes -k connections at once, a thread each
 * 	pattern both    [OPTIONS] HOST PORT	both ends in this process
 * 	-n BYTES  per direction (0: until the peer goes away)    -d up|down|both  who sends
 * 		  (up: the client)
 * 	-w block|poll|select|epoll|oneshot|edge|short  how to wait (short: edge-triggered, and
 * 						       a short read or write
 * 	means that the kernel has no more)     -s MAX  largest single call
 * 	-p FILE  keep there the number of bytes that send() accepted, and of those that were
 * 		 received and right (8 bytes each),
 * 	to be read while it runs or after a kill
 * 	-k N  connections     -a ADDR  where to listen           -R  SO_REUSEPORT     -r N
 * 	      retries after a failed connection
 * 	-z MS  a pause before each call that sends
 *
 * Prints one line per connection and exits 0 if all ended well, 1 after a wrong, missing or
 * superfluous byte, 3 if the connection was lost but every byte that came was right.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pattern.h"

#define SEED_UP 0x7570ull
#define SEED_DOWN 0x646f776eull

enum how { BLOCK, POLL, SELECT, EPOLL, ONESHOT, EDGE, SHORT, HOWS };
static const char *const how_name[HOWS] = { "block", "poll", "select", "epoll", "oneshot", "edge",
					    "short" };

static struct {
	uint64_t bytes;
	bool up, down, reuseport;
	enum how how;
	size_t max;
	int conns, retries, pause;
	const char *listen_at;
	volatile uint64_t *progress;
} opt = { .bytes = 16 << 20, .up = true, .down = true, .max = 100000, .conns = 1 };

/* One connection as one end sees it. In block mode two threads work on it: each has its own
 * half. */
struct conn {
	int fd, ep;
	bool server;
	bool sends, receives, sent_all, got_all;
	uint64_t sent, got;
	bool wrong, lost, hup;
	char what[96];			/* of the first failure */
	unsigned rnd_tx, rnd_rx;
	char *out, *in;
};

static void *xmalloc(size_t n)
{
	void *p = malloc(n);

	if (!p) {
		perror("malloc");
		exit(2);
	}
	return p;
}

static unsigned rnd(unsigned *s)
{
	*s = *s * 1664525u + 1013904223u;
	return *s >> 8;
}

static uint64_t seed_of(bool up)
{
	return up ? SEED_UP : SEED_DOWN;
}

static void lose(struct conn *c, const char *where)
{
	if (!c->lost && !c->wrong)
		snprintf(c->what, sizeof(c->what), "%s: %s", where, strerror(errno));
	c->lost = true;
}

/* ---- the calls, each variant in turn ---- */

static ssize_t put(int fd, const char *b, size_t n, unsigned kind)
{
	struct iovec v[2] = { { (char *)b, n / 3 }, { (char *)b + n / 3, n - n / 3 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	switch (kind % 4) {
	case 0:  return send(fd, b, n, MSG_NOSIGNAL);
	case 1:  return write(fd, b, n);
	case 2:  return writev(fd, v, 2);
	default: return sendmsg(fd, &m, MSG_NOSIGNAL);
	}
}

static ssize_t take(int fd, char *b, size_t n, unsigned kind)
{
	struct iovec v[2] = { { b, n / 3 }, { b + n / 3, n - n / 3 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	switch (kind % 5) {
	case 0:  return recv(fd, b, n, 0);
	case 1:  return read(fd, b, n);
	case 2:  return readv(fd, v, 2);
	case 3:  return recvmsg(fd, &m, 0);
	default: return recvfrom(fd, b, n, 0, NULL, NULL);
	}
}

/* One send. Returns false when nothing more can be done now. */
static bool send_some(struct conn *c)
{
	size_t n = 1 + rnd(&c->rnd_tx) % opt.max;
	ssize_t r;

	if (opt.bytes && n > opt.bytes - c->sent)
		n = opt.bytes - c->sent;
	if (n == 0) {
		if (shutdown(c->fd, SHUT_WR))
			lose(c, "shutdown");
		c->sent_all = true;
		return false;
	}
	if (opt.pause)
		poll(NULL, 0, opt.pause);
	pattern_fill(c->out, n, seed_of(!c->server), c->sent);
	r = put(c->fd, c->out, n, rnd(&c->rnd_tx));
	if (r < 0) {
		if (errno == EINTR)
			return true;
		if (errno != EAGAIN)
			lose(c, "send");
		return false;
	}
	c->sent += r;
	if (opt.progress)
		__atomic_fetch_add(&opt.progress[0], (uint64_t)r, __ATOMIC_RELAXED);
	return opt.how != SHORT || (size_t)r == n;
}

static void wrong(struct conn *c, const char *what)
{
	if (!c->wrong)
		snprintf(c->what, sizeof(c->what), "%s at offset %llu", what,
			 (unsigned long long)c->got);
	c->wrong = true;
}

static bool receive_some(struct conn *c)
{
	size_t n = 1 + rnd(&c->rnd_rx) % opt.max, good;
	ssize_t r;

	if (rnd(&c->rnd_rx) % 16 == 0) {	/* a peek must show what the next call gives */
		r = recv(c->fd, c->in, n, MSG_PEEK | MSG_DONTWAIT);
		if (r > 0 && pattern_check(c->in, r, seed_of(c->server), c->got) != (size_t)r)
			wrong(c, "wrong byte peeked");
	}
	r = take(c->fd, c->in, n, rnd(&c->rnd_rx));
	if (r < 0) {
		if (errno == EINTR)
			return true;
		if (errno != EAGAIN)
			lose(c, "receive");
		return false;
	}
	if (r == 0) {
		c->got_all = true;
		if (opt.bytes && c->got != opt.bytes) {
			snprintf(c->what, sizeof(c->what), "end of file after %llu bytes",
				 (unsigned long long)c->got);
			c->lost = true;
		}
		return false;
	}
	good = pattern_check(c->in, r, seed_of(c->server), c->got);
	c->got += good;
	if (opt.progress)
		__atomic_fetch_add(&opt.progress[1], (uint64_t)good, __ATOMIC_RELAXED);
	if (good != (size_t)r) {
		wrong(c, "wrong byte");
		return false;
	}
	if (opt.bytes && c->got > opt.bytes)
		wrong(c, "superfluous byte");
	/* As nginx does: short means drained, unless an end of file may be behind it. */
	return opt.how != SHORT || (size_t)r == n || c->hup;
}

/* ---- waiting ---- */

static bool over(const struct conn *c)
{
	return c->wrong || c->lost || ((!c->sends || c->sent_all) && (!c->receives || c->got_all));
}

/* Waits until the connection may be ready; what is asked for is what is left to do. */
static void wait_ready(struct conn *c, bool *in, bool *out)
{
	bool want_in = c->receives && !c->got_all, want_out = c->sends && !c->sent_all;
	struct epoll_event e = { .events = (want_in ? EPOLLIN : 0) | (want_out ? EPOLLOUT : 0) };
	struct pollfd p = { .fd = c->fd,
			    .events = (want_in ? POLLIN : 0) | (want_out ? POLLOUT : 0) };
	fd_set r, w;
	int n = 0;

	*in = *out = true;
	switch (opt.how) {
	case POLL:
		n = poll(&p, 1, -1);
		*in = p.revents & (POLLIN | POLLHUP | POLLERR);
		*out = p.revents & (POLLOUT | POLLHUP | POLLERR);
		break;
	case SELECT:
		FD_ZERO(&r);
		FD_ZERO(&w);
		if (want_in)
			FD_SET(c->fd, &r);
		if (want_out)
			FD_SET(c->fd, &w);
		n = select(c->fd + 1, &r, &w, NULL, NULL);
		*in = FD_ISSET(c->fd, &r);
		*out = FD_ISSET(c->fd, &w);
		break;
	case EDGE:		/* registered once, both ways; the caller works until EAGAIN */
	case SHORT:
		n = epoll_wait(c->ep, &e, 1, -1);
		c->hup |= n == 1 && (e.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
		break;
	case EPOLL:
	case ONESHOT:
		if (opt.how == ONESHOT)
			e.events |= EPOLLONESHOT;
		if (epoll_ctl(c->ep, EPOLL_CTL_MOD, c->fd, &e)) {
			lose(c, "epoll_ctl");
			return;
		}
		n = epoll_wait(c->ep, &e, 1, -1);
		*in = e.events & (EPOLLIN | EPOLLHUP | EPOLLERR);
		*out = e.events & (EPOLLOUT | EPOLLHUP | EPOLLERR);
		break;
	case BLOCK:
	case HOWS:
		break;
	}
	if (n < 0 && errno != EINTR)
		lose(c, "wait");
	if (n <= 0)
		*in = *out = false;
}

static void run_events(struct conn *c)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
	bool in = true, out = true;

	fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
	if (opt.how >= EPOLL) {
		if (opt.how < EDGE)
			e.events = 0;
		c->ep = epoll_create1(EPOLL_CLOEXEC);
		if (c->ep < 0 || epoll_ctl(c->ep, EPOLL_CTL_ADD, c->fd, &e))
			lose(c, "epoll");
	}
	while (!over(c)) {
		bool more_in = in, more_out = out;

		do {
			if (more_out)
				more_out = c->sends && !c->sent_all && !over(c) && send_some(c);
			if (more_in)
				more_in = c->receives && !c->got_all && !over(c) && receive_some(c);
		} while (opt.how >= EDGE && (more_in || more_out));
		if (!over(c))
			wait_ready(c, &in, &out);
	}
	if (opt.how >= EPOLL)
		close(c->ep);
}

static void *sender(void *arg)
{
	struct conn *c = arg;

	while (!c->sent_all && !c->lost && !c->wrong)
		send_some(c);
	return NULL;
}

static void run_blocking(struct conn *c)
{
	struct conn tx = *c;
	pthread_t t;

	if (c->sends && pthread_create(&t, NULL, sender, &tx))
		exit(2);
	while (c->receives && !c->got_all && !c->lost && !c->wrong)
		receive_some(c);
	if (!c->receives && c->sends) {	/* wait for the peer's end of file: it has everything
					 * then */
		pthread_join(t, NULL);
		if (!tx.lost && recv(c->fd, c->in, 1, 0) != 0)
			lose(c, "wait for end of file");
	} else if (c->sends) {
		if (c->lost || c->wrong)
			shutdown(c->fd, SHUT_RDWR);	/* let the sender out */
		pthread_join(t, NULL);
	}
	c->sent = tx.sent;
	if (tx.lost && !c->lost && !c->wrong)
		memcpy(c->what, tx.what, sizeof(c->what));
	c->lost |= tx.lost;
}

static pthread_mutex_t result_lock = PTHREAD_MUTEX_INITIALIZER;
static int worst;

/* Returns 0 well, 3 lost, 1 wrong. */
static int serve(int fd, bool server, unsigned number)
{
	struct conn c = {
		.fd = fd, .ep = -1, .server = server, .rnd_tx = number * 2 + server,
			.rnd_rx = number * 77 + 13,
		.sends = server ? opt.down : opt.up, .receives = server ? opt.up : opt.down,
		.out = xmalloc(opt.max), .in = xmalloc(opt.max),
	};
	int one = 1, rc;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (opt.how == BLOCK)
		run_blocking(&c);
	else
		run_events(&c);
	rc = c.wrong ? 1 : c.lost ? 3 : 0;
	pthread_mutex_lock(&result_lock);
	printf("%s sent %llu received %llu %s%s\n", server ? "server" : "client",
	       (unsigned long long)c.sent, (unsigned long long)c.got,
	       rc == 1	 ? "WRONG "
	       : rc == 3 ? "lost "
			 : "ok",
	       c.what);
	fflush(stdout);
	if (rc == 1 || worst == 0)
		worst = rc;
	pthread_mutex_unlock(&result_lock);
	close(fd);
	free(c.out);
	free(c.in);
	return rc;
}

/* ---- set-up ---- */

struct job {
	int fd;
	bool server;
	unsigned number;
	const char *host, *port;
};

static int tcp_socket(const char *host, const char *port, bool listening)
{
	struct addrinfo hint = { .ai_socktype = SOCK_STREAM,
				 .ai_flags = listening ? AI_PASSIVE : 0 }, *a;
	int fd, one = 1, r = getaddrinfo(host, port, &hint, &a);

	if (r) {
		fprintf(stderr, "%s: %s\n", host, gai_strerror(r));
		exit(2);
	}
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listening && opt.reuseport)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (listening)
		r = bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 512);
	else
		r = connect(fd, a->ai_addr, a->ai_addrlen);
	freeaddrinfo(a);
	if (r) {
		r = errno;
		close(fd);
		errno = r;
		return -1;
	}
	return fd;
}

static void *run_job(void *arg)
{
	struct job *j = arg;
	int left = opt.retries, rc = 3;

	if (j->server) {
		serve(j->fd, true, j->number);
		return NULL;
	}
	for (;;) {
		j->fd = tcp_socket(j->host, j->port, false);
		if (j->fd >= 0)
			rc = serve(j->fd, false, j->number);
		else
			perror("connect");
		if (rc != 3 || left-- == 0)
			break;
		usleep(100000);
		pthread_mutex_lock(&result_lock);
		if (worst == 3)
			worst = 0;	/* forgiven if a later try works */
		pthread_mutex_unlock(&result_lock);
	}
	if (rc == 3) {
		pthread_mutex_lock(&result_lock);
		if (worst == 0)
			worst = 3;
		pthread_mutex_unlock(&result_lock);
	}
	return NULL;
}

static void *accept_all(void *arg)
{
	int l = *(int *)arg, i, n = 0;
	pthread_t *t = xmalloc(sizeof(*t) * opt.conns);
	struct job *j = xmalloc(sizeof(*j) * opt.conns);

	for (i = 0; i < opt.conns; i++) {
		int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			perror("accept");
			exit(2);
		}
		j[n] = (struct job){ .fd = fd, .server = true, .number = i };
		if (pthread_create(&t[n], NULL, run_job, &j[n]))
			exit(2);
		n++;
	}
	while (n)
		pthread_join(t[--n], NULL);
	free(t);
	free(j);
	return NULL;
}

static void connect_all(const char *host, const char *port)
{
	pthread_t *t = xmalloc(sizeof(*t) * opt.conns);
	struct job *j = xmalloc(sizeof(*j) * opt.conns);
	int i;

	for (i = 0; i < opt.conns; i++) {
		j[i] = (struct job){ .number = i, .host = host, .port = port };
		if (pthread_create(&t[i], NULL, run_job, &j[i]))
			exit(2);
	}
	while (i)
		pthread_join(t[--i], NULL);
	free(t);
	free(j);
}

static int usage(void)
{
	fprintf(stderr, "usage: pattern listen|connect|both [-n BYTES] [-d up|down|both] [-w HOW] "
			"[-s MAX] [-k N] "
			"[-a ADDR] [-R] [-r N] [HOST] PORT\n");
	return 2;
}

static volatile uint64_t *map_progress(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0644);
	void *p = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, 2 * sizeof(uint64_t)))
		p = mmap(NULL, 2 * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		perror(path);
		exit(2);
	}
	close(fd);
	return p;
}

static bool parse(int argc, char **argv)
{
	int o, i;

	while ((o = getopt(argc, argv, "n:d:w:s:k:a:r:Rp:z:")) != -1)
		switch (o) {
		case 'n': opt.bytes = strtoull(optarg, NULL, 0); break;
		case 'd': opt.up = *optarg != 'd'; opt.down = *optarg != 'u'; break;
		case 's': opt.max = strtoull(optarg, NULL, 0); break;
		case 'k': opt.conns = atoi(optarg); break;
		case 'a': opt.listen_at = optarg; break;
		case 'r': opt.retries = atoi(optarg); break;
		case 'z': opt.pause = atoi(optarg); break;
		case 'R': opt.reuseport = true; break;
		case 'p': opt.progress = map_progress(optarg); break;
		case 'w':
			for (i = 0; i < HOWS && strcmp(optarg, how_name[i]); i++)
				;
			if (i == HOWS)
				return false;
			opt.how = i;
			break;
		default:
			return false;
		}
	return opt.max > 0 && opt.conns > 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "", *host, *port;
	pthread_t t;
	int l = -1;

	if (argc < 2 || !parse(argc - 1, argv + 1) || optind + 1 >= argc)
		return usage();
	signal(SIGPIPE, SIG_IGN);
	port = argv[argc - 1];
	host = strcmp(mode, "listen") ? argv[optind + 1]
	       : opt.listen_at	      ? opt.listen_at
				      : "127.0.0.1";
	if (strcmp(mode, "connect")) {
		l = tcp_socket(opt.listen_at ? opt.listen_at : host, port, true);
		if (l < 0) {
			perror("listen");
			return 2;
		}
	}
	if (!strcmp(mode, "listen")) {
		accept_all(&l);
	} else if (!strcmp(mode, "connect")) {
		connect_all(host, port);
	} else if (!strcmp(mode, "both")) {
		if (pthread_create(&t, NULL, accept_all, &l))
			return 2;
		connect_all(host, port);
		pthread_join(t, NULL);
	} else {
		return usage();
	}
	return worst;
}
