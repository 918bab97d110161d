/*
 * soak.c - checked streams of random shape over TCP for as long as it takes; knows nothing of
 * the library.
 *
 * 	soak server PORT STATE		serves whoever comes, for ever
 * 	soak client PORT STATE [may-die] [ADDR...]	keeps its threads busy with
 * 							connections, for ever; to these
 * 							addresses (127.0.0.1 ::1) in turn
 *
 * A connection is all in the number that opens it: how much goes each way, in calls of which
 * size, at which pace, how each end waits, whether the server's end is served by a forked child,
 * whether the client leaves it in the middle, and whether the client may be killed (may-die):
 * only then may the server see it lost. STATE is a file that is mapped (struct state). SIGUSR1:
 * finish what is under way and rest; SIGUSR2: go on. SIGTERM: finish and end. Exit 1: a wrong
 * byte, a lost connection, or a connection on which nothing moved for PATIENCE seconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../apps/pattern.h"

#define THREADS  4
#define BUF      (512 * 1024)
#define PATIENCE 120

/* busy: connections under way */
struct state { _Atomic uint64_t conns, bytes, forks, left, lost, busy; };

static struct state *state;
static volatile sig_atomic_t rest, stop;
static bool may_die, serving;
static int port, listener, ntargets;
static struct sockaddr_in6 target[4];	/* IPv4 as mapped */
/* Half seconds in which this process ran: a machine that stands still for minutes is no hang. */
static _Atomic int64_t ticks = 1;

struct shape { uint64_t number, up, down; size_t max; int how, pace; bool forked, leaves, dies; };

static struct worker {
	pthread_t t;
	_Atomic int64_t moved;		/* `ticks` when a byte moved last; 0: idle */
	_Atomic uint64_t number, sent, got;
	char out[BUF], in[BUF];
} *workers;

static int64_t ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);	/* as the library's log */
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* Mostly small, sometimes megabytes. */
static uint64_t length(uint64_t r)
{
	switch (r & 15) {
	case 0: return 0;
	case 1: case 2: return (r >> 8) % (4 << 20);
	case 3: case 4: case 5: return (r >> 8) % (512 << 10);
	default: return (r >> 8) % 100000;
	}
}

static struct shape shape_of(uint64_t number)
{
	uint64_t r = mix(number);
	struct shape s = { .number = number, .up = length(mix(r + 1)), .down = length(mix(r + 2)),
			   .max = (size_t)1 << (8 + r % 12),
			   .how = (int)(r >> 8 & 3), .pace = (int)(r >> 32 & 3),
				   .forked = (r >> 16 & 127) == 0, .leaves = (r >> 24 & 31) == 0,
					   .dies = number >> 63 };

	if (s.max > BUF)
		s.max = BUF;
	return s;
}

static __attribute__((noreturn, format(printf, 2, 3))) void wrong(const struct worker *w,
								  const char *fmt, ...)
{
	char text[300];
	va_list ap;
	int n = snprintf(text, sizeof text,
			 "%lld ms: %s: connection %llx, sent %llu, got %llu: ", (long long)ms(),
			 serving ? "server" : "client", (unsigned long long)w->number,
			 (unsigned long long)w->sent, (unsigned long long)w->got);

	va_start(ap, fmt);
	n += vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
	va_end(ap);
	text[n++] = '\n';
	if (write(2, text, (size_t)n) < 0)
		_exit(2);
	_exit(1);
}

/* ---- one connection. 0 well, 1 lost */

static int receive(struct worker *w, int fd, const struct shape *s, uint64_t want, bool *eof)
{
	uint64_t seed = mix(s->number) + !serving;
	size_t n = s->max;
	ssize_t r = recv(fd, w->in, n, s->how ? MSG_DONTWAIT : 0);

	if (r < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : 1;
	if (!r) {
		*eof = true;
		return w->got == want || s->leaves ? 0 : 1;
	}
	if (pattern_check(w->in, (size_t)r, seed, w->got) != (size_t)r)
		wrong(w, "WRONG BYTE in the next %zd", r);
	w->got += (uint64_t)r;
	if (w->got > want)
		wrong(w, "more than the %llu that were sent", (unsigned long long)want);
	atomic_fetch_add(&state->bytes, (uint64_t)r);
	w->moved = ticks;
	return 0;
}

static int transmit(struct worker *w, int fd, const struct shape *s, uint64_t size)
{
	uint64_t seed = mix(s->number) + serving;
	size_t n = size - w->sent < s->max ? (size_t)(size - w->sent) : s->max;
	ssize_t r;

	pattern_fill(w->out, n, seed, w->sent);
	r = send(fd, w->out, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (r < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : 1;
	if (s->pace && (w->sent + (uint64_t)r) >> 14 != w->sent >> 14)
		poll(NULL, 0, s->pace);
	w->sent += (uint64_t)r;
	w->moved = ticks;
	return 0;
}

/* Sleeps until it can go on. how: 0 blocks in recv when there is nothing to send, 1 and 2 poll,
 * 3 epoll */
static void wait_for(int fd, int ep, bool out)
{
	struct pollfd p = { .fd = fd, .events = (short)(POLLIN | (out ? POLLOUT : 0)) };
	struct epoll_event e = { .events = EPOLLIN | (out ? EPOLLOUT : 0u) };

	if (ep >= 0) {
		epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e);
		epoll_wait(ep, &e, 1, 1000);
	} else {
		poll(&p, 1, 1000);
	}
}

static int talk(struct worker *w, int fd, const struct shape *s)
{
	uint64_t size = serving ? s->down : s->up, want = serving ? s->up : s->down;
	uint64_t leave_at = !serving && s->leaves ? want / 2 : UINT64_MAX;
	bool eof = false, done = false;
	struct epoll_event e = { 0 };
	int ep = s->how == 3 ? epoll_create1(EPOLL_CLOEXEC) : -1, r = 0;

	if (ep >= 0)
		epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	while (!r && !(eof && done)) {
		uint64_t before = w->sent + w->got;

		if (!done && w->sent == size) {
			r = shutdown(fd, SHUT_WR) && errno != ENOTCONN;
			done = true;
			before = 0;
		}
		if (!done)
			r = transmit(w, fd, s, size);
		if (!r && !eof && (done || s->how))
			r = receive(w, fd, s, want, &eof);
		else if (!r && !eof) {
			struct shape now = *s;

			now.how = 1;
			r = receive(w, fd, &now, want, &eof);
		}
		if (w->got >= leave_at || stop > 1)
			break;
		if (!r && !eof && w->sent + w->got == before)
			wait_for(fd, ep, !done);
		if (eof && !done && s->leaves)
			break;
	}
	if (ep >= 0)
		close(ep);
	return r;
}

static void served_by_child(struct worker *w, int fd, const struct shape *s,
			    int (*run)(struct worker *, int, const struct shape *))
{
	int st = 0;
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);	/* the port must be free when the server
							 * is started again */
		close(listener);
		alarm(2 * PATIENCE);
		_exit(run(w, fd, s) && !s->dies && !s->leaves ? 3 : 0);
	}
	if (pid < 0)
		wrong(w, "fork: %s", strerror(errno));
	atomic_fetch_add(&state->forks, 1);
	close(fd);
	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	if (st && WIFSIGNALED(st))
		wrong(w, "its child died of signal %d", WTERMSIG(st));
	if (st)
		wrong(w, "its child lost it, or worse: %d", WEXITSTATUS(st));
}

static void one(struct worker *w, int fd, const struct shape *s)
{
	int one = 1;

	atomic_store(&w->number, s->number);
	atomic_fetch_add(&state->conns, 1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (s->forked && serving) {
		w->moved = 0;	/* the child has an alarm of its own */
		served_by_child(w, fd, s, talk);
		return;
	}
	if (talk(w, fd, s)) {
		atomic_fetch_add(&state->lost, 1);
		if (!s->dies && !s->leaves && !may_die)
			wrong(w, "lost: %s", strerror(errno));
	}
	close(fd);
}

static void start_on(struct worker *w)
{
	w->sent = w->got = w->number = 0;
	w->moved = ticks;
	atomic_fetch_add(&state->busy, 1);
}

static void end_of(struct worker *w)
{
	w->moved = 0;
	atomic_fetch_sub(&state->busy, 1);
}

/* ---- both ends */

static void *serve(void *arg)
{
	struct worker *w = arg;

	while (!stop) {
		struct pollfd p = { .fd = listener, .events = POLLIN };
		uint64_t number = 0;
		struct shape s;
		int fd;

		if (poll(&p, 1, 200) < 1)
			continue;
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		start_on(w);
		if (recv(fd, &number, sizeof number, MSG_WAITALL) == sizeof number) {
			s = shape_of(number);
			one(w, fd, &s);
		} else {
			close(fd);	/* killed, or it left */
		}
		end_of(w);
	}
	return NULL;
}

/* An IPv4 address is called by an IPv4 socket. */
static int call(unsigned k)
{
	const struct sockaddr_in6 *b = &target[k % (unsigned)ntargets];
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = b->sin6_port };
	bool old = IN6_IS_ADDR_V4MAPPED(&b->sin6_addr);
	int fd = socket(old ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(&a.sin_addr, b->sin6_addr.s6_addr + 12, 4);
	if (connect(fd, old ? (const void *)&a : (const void *)b, old ? sizeof a : sizeof *b)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void add_target(const char *text)
{
	char mapped[80];
	struct sockaddr_in6 *a = &target[ntargets];

	snprintf(mapped, sizeof mapped, "%s%s", strchr(text, ':') ? "" : "::ffff:", text);
	a->sin6_family = AF_INET6;
	a->sin6_port = htons((uint16_t)port);
	if (ntargets < 4 && inet_pton(AF_INET6, mapped, &a->sin6_addr) == 1)
		ntargets++;
}

static void *ask(void *arg)
{
	struct worker *w = arg;
	uint64_t r = mix((uint64_t)ms() ^ (uint64_t)(uintptr_t)w ^ (uint64_t)getpid() << 32);

	while (!stop) {
		struct shape s;
		int fd;

		if (rest) {
			poll(NULL, 0, 20);
			continue;
		}
		r = mix(r + 1);
		s = shape_of((r & ~(1ull << 63)) | (uint64_t)may_die << 63);
		start_on(w);
		fd = call((unsigned)r);
		if (fd < 0 && !may_die)
			wrong(w, "connect: %s", strerror(errno));
		if (fd < 0)
			poll(NULL, 0, 20);	/* the server is being started again */
		else if (send(fd, &s.number, sizeof s.number, MSG_NOSIGNAL) == sizeof s.number)
			one(w, fd, &s);
		else
			close(fd);
		end_of(w);
		poll(NULL, 0, (int)(r >> 40 & 15));
	}
	return NULL;
}

static void on_signal(int sig)
{
	if (sig == SIGTERM)
		stop = 1;
	else
		rest = sig == SIGUSR1;
}

static void *map_state(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p;

	if (fd < 0 || ftruncate(fd, 4096))
		return NULL;
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static void watch(void)
{
	for (int i = 0; i < THREADS; i++) {
		int64_t t = workers[i].moved;

		if (t && ticks - t > PATIENCE * 2) {
			fprintf(stderr,
				"hang: connection %llx: nothing moved for %d s: sent %llu, got "
				"%llu\n",
				(unsigned long long)workers[i].number, PATIENCE,
				(unsigned long long)workers[i].sent,
				(unsigned long long)workers[i].got);
			pause();	/* to be looked at */
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	int one = 1, zero = 0;

	if (argc < 4 || !(state = map_state(argv[3]))) {
		fprintf(stderr, "usage: soak server|client PORT STATE [may-die] [ADDR...]\n");
		return 2;
	}
	serving = !strcmp(argv[1], "server");
	port = atoi(argv[2]);
	may_die = argc > 4 && !strcmp(argv[4], "may-die");
	for (int i = 4 + may_die; i < argc; i++)
		add_target(argv[i]);
	if (!ntargets) {
		add_target("::1");
		add_target("127.0.0.1");
	}
	atomic_store(&state->busy, 0);
	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal);
	signal(SIGPIPE, SIG_IGN);
	workers = mmap(NULL, THREADS * sizeof *workers, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (serving) {
		a.sin6_port = htons((uint16_t)port);
		listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		for (int i = 0; i < 1000 && (one = bind(listener, (void *)&a, sizeof a)) &&
				errno == EADDRINUSE;
		     i++)
			poll(NULL, 0, 10);	/* a child of one that was killed has not heard
						 * of it */
		if (one || listen(listener, 256)) {
			perror("listen");
			return 2;
		}
		fcntl(listener, F_SETFL, O_NONBLOCK);
	}
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&workers[i].t, NULL, serving ? serve : ask, &workers[i]))
			return 2;
	while (!stop) {
		poll(NULL, 0, 500);
		ticks++;
		watch();
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i].t, NULL);
	return 0;
}
