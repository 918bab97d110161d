/*
 * victim.c - an ordinary program that knows nothing of the library, for the hostile peer to bother.
 *
 * 	victim echo PORT			one thread, one epoll instance, echoes
 * 						whatever comes; for ever SIGUSR1: it closes
 * 						all numbers that it does not use, as daemons
 * 						do, and opens files; when it comes again, they
 * 						must still be there, and are closed. SIGUSR2:
 * 						it makes a child, which must get on within 2
 * 						s; then it has /dev/zero open. SIGHUP: it
 * 						gives up what new programs may gain
 * 						(no_new_privs)
 * 	victim ask PORT PROGRESS		an innocent client: bursts on a lasting and on
 * 						fresh connections, every byte verified; counts
 * 						bytes in the file PROGRESS (8 bytes, mapped);
 * 						until SIGTERM
 * 	victim lag PORT PROGRESS		sends more than it reads, so that bytes of
 * 						both always are on the way; until SIGTERM
 * 	victim once PORT BURSTS [MS]		an innocent client that ends by itself:
 * 						faults.sh breaks the library's calls under it;
 * 						MS: it pauses as long after each burst
 * 						(otherwise 10 ms), and when it has closed all,
 * 						it waits for SIGTERM, to be looked at
 * 	victim client LIAR PORT PROGRESS	as ask, and talks to port LIAR at the same
 * 						time without believing anything
 * 	victim lend PORT			echoes large blocks by calls that wait, one
 * 						connection after the other; a child does so
 * 						for a while
 * 	victim blocks PORT CONNECTIONS MS	its client, which ends as once with MS does;
 * 						in the middle of the last connection it asks
 * 						for a splice
 * 	victim threads PORT PROGRESS		echoes by a thread for each connection, and
 * 						forks, once told: PROGRESS counts that
 * 	victim slow PORT			sends to an echo, by calls that wait, blocks
 * 						in memory whose first touch waits for it, as a
 * 						file's does for a slow disk (userfaultfd); the
 * 						echo must serve it on another connection
 * VICTIM_VECTORS=1: echo and once move their bytes by readv() and writev().
 * VICTIM_SPAWNS=1: echo starts a program for each connection, which inherits all of them.
 * VICTIM_AGAIN=1: it makes a TCP socket, and is then executed again.
 *
 * Exits 0 after SIGTERM, 1 after a wrong byte or a stall of 8 s on an honest connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BURST 60000
#define STALL_MS 8000

static volatile sig_atomic_t stop;
static volatile uint64_t *progress;
static uint64_t total;

static volatile sig_atomic_t tidies, forks, gives_up;

static void on_term(int sig) { stop = sig; }
static void on_usr(int sig) { *(sig == SIGUSR1 ? &tidies : &forks) = 1; }
static void on_hup(int sig) { gives_up = sig; }

static void die(const char *what)
{
	fprintf(stderr, "victim: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr_in at(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int64_t ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- moving ---- */

static bool vectors;

static ssize_t put(int fd, uint8_t *p, size_t n)
{
	struct iovec v[2] = { { p, n / 2 }, { p + n / 2, n - n / 2 } };

	return vectors ? writev(fd, v, 2) : send(fd, p, n, MSG_NOSIGNAL);
}

static ssize_t take(int fd, uint8_t *p, size_t n)
{
	struct iovec v[2] = { { p, n / 2 }, { p + n / 2, n - n / 2 } };

	return vectors ? readv(fd, v, 2) : recv(fd, p, n, 0);
}

/* ---- echo ---- */

#define CONNS 4096
#define FIONREAD_MOST (256 << 20)
/* Large enough for a block that is read out of the peer's memory. */
static struct conn { uint8_t buf[160 * 1024]; size_t from, to; bool out; } *conn[CONNS];

static void gone(int ep, int fd)
{
	epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL);
	free(conn[fd]);
	conn[fd] = NULL;
	close(fd);
}

static void want(int ep, int fd, bool out)
{
	struct epoll_event e = { .events = out ? EPOLLOUT : EPOLLIN, .data.fd = fd };

	if (conn[fd]->out != out && epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e))
		die("epoll_ctl");
	conn[fd]->out = out;
}

static void serve(int ep, int fd)
{
	struct conn *c = conn[fd];
	ssize_t n;

	if (c->from == c->to) {
		int q = 0;

		n = vectors ? take(fd, c->buf, sizeof c->buf) : read(fd, c->buf, sizeof c->buf);
		/* what a program takes memory for: the kernel never has so much. Behind the read,
		 * since a block that was counted goes by the ring. */
		if (!ioctl(fd, FIONREAD, &q) && q > FIONREAD_MOST)
			die("FIONREAD");
		if (n <= 0) {
			if (n == 0 || errno != EAGAIN)
				gone(ep, fd);
			return;
		}
		c->from = 0;
		c->to = (size_t)n;
	}
	n = put(fd, c->buf + c->from, c->to - c->from);
	if (n < 0 && errno != EAGAIN) {
		gone(ep, fd);
		return;
	}
	if (n > 0)
		c->from += (size_t)n;
	want(ep, fd, c->from != c->to);
}

#define FILES 64

static void close_unused(int ep, int l)
{
	for (int fd = 3; fd < 256; fd++)
		if (fd != ep && fd != l && !conn[fd]) {
			if (fd % 2)
				close(fd);
			else
				close_range((unsigned)fd, (unsigned)fd, 0);
		}
}

static void tidy(int ep, int l)
{
	static int files[FILES];
	static dev_t dev;
	struct stat st;

	if (!dev)
		close_unused(ep, l);
	for (int i = 0; i < FILES; i++) {
		if (!dev && (files[i] = open("/dev/full", O_RDONLY | O_CLOEXEC)) < 0)
			die("/dev/full");
		if (dev && (fstat(files[i], &st) || st.st_rdev != dev || close(files[i])))
			die("a file of the program's was closed");
	}
	if (!dev && fstat(files[0], &st))
		die("fstat");
	dev = dev ? 0 : st.st_rdev;
}

static void make_child(void)
{
	static int mark = -1;
	struct pollfd p = { .events = POLLIN };
	int end[2];
	pid_t pid;
	char c = 0;

	if (mark >= 0)
		close(mark);
	signal(SIGCHLD, SIG_IGN);
	if (pipe(end))
		die("pipe");
	pid = fork();
	if (!pid)
		_exit(write(end[1], "c", 1) != 1);
	close(end[1]);
	p.fd = end[0];
	if (pid < 0 || poll(&p, 1, 2000) != 1 || read(end[0], &c, 1) != 1)
		die("a child that was made does not get on");
	close(end[0]);
	mark = open("/dev/zero", O_RDONLY | O_CLOEXEC);
}

static void start_program(int inherits)
{
	extern char **environ;
	char *args[] = { "true", NULL };
	pid_t pid;

	fcntl(inherits, F_SETFD, 0);
	if (posix_spawnp(&pid, args[0], NULL, NULL, args, environ) || waitpid(pid, NULL, 0) != pid)
		die("posix_spawnp");
}

static int echo(int port)
{
	bool spawns = getenv("VICTIM_SPAWNS");
	struct sockaddr_in a = at(port);
	struct epoll_event e = { .events = EPOLLIN }, ev[64];
	/* From the first TCP socket on every call of the rarer kinds is the library's own: see
	 * fault.c. */
	int ep = epoll_create1(EPOLL_CLOEXEC),
	    l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	signal(SIGUSR1, on_usr);
	signal(SIGUSR2, on_usr);
	signal(SIGHUP, on_hup);
	mallopt(M_MMAP_THRESHOLD, 65536);	/* large buffers take the pages that they use */
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	e.data.fd = l;
	if (l < 0 || bind(l, (void *)&a, sizeof a) || listen(l, 256) || ep < 0 ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, l, &e))
		die("listen");
	while (!stop) {
		int n = epoll_wait(ep, ev, 64, -1);

		if (tidies)
			tidies = 0, tidy(ep, l);
		if (forks)
			forks = 0, make_child();
		if (gives_up)
			gives_up = 0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		for (int i = 0; i < n; i++) {
			int fd = ev[i].data.fd;

			if (fd != l) {
				if (conn[fd])
					serve(ep, fd);
				continue;
			}
			fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
			if (fd < 0)
				continue;
			if (fd >= CONNS || !(conn[fd] = calloc(1, sizeof *conn[fd]))) {
				close(fd);
				continue;
			}
			e.data.fd = fd;
			if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e))
				die("epoll_ctl");
			if (spawns)
				start_program(fd);
		}
	}
	return 0;
}

/* ---- ask ---- */

static int call(int port, bool may_fail)
{
	struct sockaddr_in a = at(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (void *)&a, sizeof a)) {
		close(fd);
		fd = -1;
	}
	if (fd < 0 && !may_fail)
		die("connect");
	if (fd >= 0)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* Sends a burst and verifies its echo. */
static void burst(int fd)
{
	static uint8_t out[BURST], in[BURST];
	static uint32_t x = 1;
	size_t sent = 0, got = 0;
	int64_t end = ms() + STALL_MS;

	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
	while (got < sizeof in) {
		struct pollfd p = { .fd = fd,
				    .events = (short)(POLLIN | (sent < sizeof out ? POLLOUT : 0)) };
		ssize_t n;

		if (poll(&p, 1, STALL_MS) < 0 && errno != EINTR)
			die("poll");
		if (sent < sizeof out && (n = put(fd, out + sent, sizeof out - sent)) > 0)
			sent += (size_t)n, end = ms() + STALL_MS;
		else if (sent < sizeof out && errno != EAGAIN)
			die("honest connection, send");
		n = take(fd, in + got, sizeof in - got);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			die("honest connection, recv");
		if (n > 0) {
			if (memcmp(in + got, out + got, (size_t)n)) {
				fprintf(stderr, "victim: WRONG BYTE behind %zu of %d\n", got,
					BURST);
				exit(1);
			}
			got += (size_t)n;
			end = ms() + STALL_MS;
		}
		if (ms() > end) {
			fprintf(stderr, "victim: STALL: sent %zu, got %zu of %d\n", sent, got,
				BURST);
			exit(1);
		}
	}
	total += 2 * BURST;
	*progress = total;
}

/* Whatever the liar does: read all, write something, call again when it hangs up. */
static void bother(int *fd, int port)
{
	static uint8_t buf[8192];
	bool over = false;
	struct pollfd p;
	ssize_t n;

	if (*fd < 0)
		*fd = call(port, true);
	if (*fd < 0)
		return;
	p = (struct pollfd){ .fd = *fd, .events = POLLIN | POLLOUT };
	for (int i = 0; i < 4 && !over; i++) {
		if (poll(&p, 1, 0) < 0)
			return;
		n = recv(*fd, buf, sizeof buf, 0);
		over = n == 0 || (n < 0 && errno != EAGAIN);
		n = send(*fd, buf, 1000, MSG_NOSIGNAL);
		over |= n < 0 && errno != EAGAIN;
	}
	if (over) {
		close(*fd);
		*fd = -1;
	}
}

static int ask(int port, int liar)
{
	int fd = call(port, false), bad = -1;

	for (unsigned i = 0; !stop; i++) {
		burst(fd);
		if (i % 8 == 7) {
			int fresh = call(port, false);

			burst(fresh);
			burst(fresh);
			close(fresh);
		}
		for (int k = 0; k < 10 && !stop; k++) {
			if (liar)
				bother(&bad, liar);
			poll(NULL, 0, 10);
		}
	}
	close(fd);
	printf("%llu bytes\n", (unsigned long long)total);
	return 0;
}

static int lag(int port)
{
	static char buf[BURST];
	int fd = call(port, false);
	ssize_t n;

	while (!stop) {
		n = send(fd, buf, sizeof buf, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			*progress += (uint64_t)n;
		if (recv(fd, buf, sizeof buf / 4, MSG_DONTWAIT) == 0)
			die("end of file");
		poll(NULL, 0, 1);
	}
	return 0;
}

static int once(int port, int bursts, int pause, bool rest)
{
	static uint64_t nowhere;
	int fd = call(port, false), fresh, ends;

	progress = &nowhere;
	for (int i = 0; i < bursts; i++) {
		burst(fd);
		if (i % 8 == 7)
			poll(NULL, 0, 5);
		fresh = call(port, false);	/* what is lost with each of them adds up */
		burst(fresh);
		poll(NULL, 0, pause);
		close(fresh);
	}
	ends = shutdown(fd, SHUT_WR);
	if (ends || poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, STALL_MS) != 1 ||
	    recv(fd, &ends, 1, 0) != 0)
		die("end of file");
	close(fd);
	printf("%llu bytes\n", (unsigned long long)total);
	fflush(stdout);
	while (rest && !stop)
		poll(NULL, 0, 50);
	return 0;
}

#include "victim_blocks.h"

/* ---- threads ---- */

static void *echo_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint8_t *buf = malloc(BLOCK);
	ssize_t n, sent = 0;

	while (buf && sent >= 0) {
		if (poll(&p, 1, 10) < 1)	/* a call that waits on TCP is not cut over */
			continue;
		n = recv(fd, buf, BLOCK, 0);
		if (n <= 0)
			break;
		for (ssize_t at = 0; at < n && sent >= 0; at += sent)
			sent = send(fd, buf + at, (size_t)(n - at), MSG_NOSIGNAL);
	}
	free(buf);
	close(fd);
	return NULL;
}

/* who looks at PROGRESS says when to begin: a connection that is shared with a child is not cut
 * over */
#define GO (1ull << 63)

static void *forks_on(void *arg)
{
	while (!stop) {
		pid_t pid;

		if (!(*progress & GO)) {
			poll(NULL, 0, 5);
			continue;
		}
		pid = fork();
		if (!pid)
			_exit(0);
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			die("fork");
		++*progress;
		poll(NULL, 0, 5);
	}
	return arg;
}

static void begin_thread(void *(*run)(void *), void *arg, pthread_t *ret)
{
	if (pthread_create(ret, NULL, run, arg))
		die("thread");
}

static int threads(int port)
{
	struct sockaddr_in a = at(port);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, fd;
	struct pollfd p = { .fd = l, .events = POLLIN };
	pthread_t forker, t;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (l < 0 || bind(l, (void *)&a, sizeof a) || listen(l, 256))
		die("listen");
	begin_thread(forks_on, NULL, &forker);
	while (!stop)
		if (poll(&p, 1, 100) == 1 && (fd = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
			begin_thread(echo_one, (void *)(intptr_t)fd, &t);
			pthread_detach(t);
		}
	pthread_join(forker, NULL);
	return 0;
}

/* ---- slow ---- */

#define SLOW_BLOCK  (256 * 1024)
#define SLOW_BLOCKS 20

static struct { int fd; uint8_t *at; } slow_block;

static void *send_slow(void *unused)
{
	for (size_t n = 0; n < SLOW_BLOCK;) {
		ssize_t r = send(slow_block.fd, slow_block.at + n, SLOW_BLOCK - n, MSG_NOSIGNAL);

		if (r <= 0)
			die("the slow block");
		n += (size_t)r;
	}
	return unused;
}

/* Reads the echo of the block, which comes when the memory does. */
static void slow_echo(int fd)
{
	static uint8_t in[SLOW_BLOCK];
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t r;

	for (size_t n = 0; n < sizeof in; n += r > 0 ? (size_t)r : 0) {
		if (poll(&p, 1, STALL_MS) <= 0)
			die("the echo of the slow block");
		r = recv(fd, in, sizeof in - n, MSG_DONTWAIT);
		if (!r || (r < 0 && errno != EAGAIN))
			die("the echo of the slow block");
		for (ssize_t i = 0; i < r; i++)
			if (in[i])
				die("a wrong byte");
	}
}

static int slow(int port)
{
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC), other = call(port, false);
	struct uffdio_api api = { .api = UFFD_API };
	struct pollfd asked = { .fd = uffd, .events = POLLIN };
	static uint64_t count;
	pthread_t t;

	progress = &count;
	slow_block.fd = call(port, false);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		return 77;
	for (int i = 0; i < SLOW_BLOCKS; i++) {
		void *p = mmap(NULL, SLOW_BLOCK, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct uffdio_register r = { .range = { (uintptr_t)p, SLOW_BLOCK },
					     .mode = UFFDIO_REGISTER_MODE_MISSING };
		struct uffdio_zeropage z = { .range = r.range };

		burst(slow_block.fd);
		burst(other);
		if (p == MAP_FAILED || ioctl(uffd, UFFDIO_REGISTER, &r))
			die("userfaultfd");
		slow_block.at = p;
		fcntl(slow_block.fd, F_SETFL, 0);
		begin_thread(send_slow, NULL, &t);
		if (poll(&asked, 1, STALL_MS) <= 0)
			die("nobody touches the block");
		burst(other);
		if (ioctl(uffd, UFFDIO_ZEROPAGE, &z))
			die("UFFDIO_ZEROPAGE");
		slow_echo(slow_block.fd);
		pthread_join(t, NULL);
		fcntl(slow_block.fd, F_SETFL, O_NONBLOCK);
		munmap(p, SLOW_BLOCK);
	}
	return 0;
}

static void count_in(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0 || ftruncate(fd, 8))
		die(path);
	progress = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
}

int main(int argc, char **argv)
{
	signal(SIGTERM, on_term);
	signal(SIGPIPE, SIG_IGN);
	if (getenv("VICTIM_AGAIN")) {
		close(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
		unsetenv("VICTIM_AGAIN");
		execv(argv[0], argv);	/* whose name faults.sh looks for */
		die("exec");
	}
	vectors = getenv("VICTIM_VECTORS");
	if (argc == 3 && !strcmp(argv[1], "lend"))
		return lend(atoi(argv[2]));
	if (argc == 5 && !strcmp(argv[1], "blocks"))
		return blocks(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	if (argc == 3 && !strcmp(argv[1], "slow"))
		return slow(atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "echo"))
		return echo(atoi(argv[2]));
	if (argc >= 4 && !strcmp(argv[1], "once"))
		return once(atoi(argv[2]), atoi(argv[3]), argc > 4 ? atoi(argv[4]) : 10, argc > 4);
	if (argc == 4 && !strcmp(argv[1], "ask")) {
		count_in(argv[3]);
		return ask(atoi(argv[2]), 0);
	}
	if (argc == 4 && !strcmp(argv[1], "lag")) {
		count_in(argv[3]);
		return lag(atoi(argv[2]));
	}
	if (argc == 4 && !strcmp(argv[1], "threads")) {
		count_in(argv[3]);
		return threads(atoi(argv[2]));
	}
	if (argc == 5 && !strcmp(argv[1], "client")) {
		count_in(argv[4]);
		return ask(atoi(argv[3]), atoi(argv[2]));
	}
	fprintf(stderr, "usage: see the head of victim.c\n");
	return 2;
}
