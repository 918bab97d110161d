/*
 * snip.h - what the groups of snippets share: a snippet makes its own connections, does one
 * thing, and prints what it saw: results, errno names, bytes, bits; no times, addresses or fd
 * numbers. The same snippet run on the kernel alone says what is right.
 *
 * 	PROGRAM list			NAME: calls that it covers
 * 	PROGRAM [-n TIMES] [NAME...]	runs these, or all; each in a process of its own
 *
 * Environment: SNIP_WAIT_CUT   wait until a new connection is off TCP in all its directions, as
 *                              the counter file says
 *              SNIP_CUT_MS     milliseconds that this may take (3000)
 *              SNIP_ADDR       the IPv4 address of this host that the connections go to (127.0.0.1)
 *              SNIP_BACK       a policy file, with SNIP_WAIT_CUT: then make that file send it
 *                              back to TCP, and wait for that
 *              SNIP_JITTER     microseconds: rest for up to that long between steps, so that
 *                              they meet cuts in all phases
 *              SNIP_TIMEOUT    seconds that one snippet may take (20)
 *              SNIP_WARM       the process has had a connection before: the time taken is
 *                              without what a process pays once
 *              SNIP_IN         where it runs: thread (a second one), signal (the handler of one
 *                              that came while the thread waited on another connection), fork
 *                              (the child of a process that has a connection); else plainly
 * Only cut_wait() and what it calls know that there is such a thing as the library. Locks: none.
 */
#ifndef TESTS_SNIP_H
#define TESTS_SNIP_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/sockios.h>

#if !__GLIBC_PREREQ(2, 32)
#define strerrorname_np strerror
#define sigabbrev_np strsignal
#endif

/* Newer machines have only the later forms: there it is a number that no call has. */
#ifndef SYS_poll
#define SYS_poll (-1)
#define SYS_select (-1)
#define SYS_epoll_wait (-1)
#endif

#include "../../policy/stat.h"
#include "../../shim/cut/cut.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-result"
/* Wrong arguments are what much of this is about. */
#pragma GCC diagnostic ignored "-Wnonnull"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#if __GNUC__ != 10	/* does not know it */
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif

struct snip {
	const char *name, *calls;
	void (*run)(void);
};
static struct snip snips[256];
static int nsnips;

/* CALLS: rows of shim/libc/calls.def that the snippet covers, separated by blanks. */
#define SNIPPET(name, calls) \
	static void snip_##name(void); \
	__attribute__((constructor)) static void add_##name(void) { snips[nsnips++] = \
		(struct snip){ #name, calls, snip_##name }; } \
	static void snip_##name(void)

/* A libc symbol that no header offers, with the type of one that a header does. */
#define SYM(name, like) ((__typeof__(&like))symbol(#name))

static const char *snippet;		/* the one that runs */
static int (*child_program)(int argc, char **argv);	/* what "PROGRAM child ..." does */
static int a = -1, b = -1;		/* the ends of its connection: a connected, b accepted */
static char buf[4 << 20];
static char page[4096] __attribute__((aligned(4096)));
static int jitter;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	va_list ap;

	printf("%s: BROKEN: ", snippet);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	puts("");
	fflush(stdout);
	_exit(1);
}

static void *symbol(const char *name)
{
	/* or only for old programs */
	void *p = dlsym(RTLD_DEFAULT, name) ?: dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5");

	if (!p)
		die("no %s in libc", name);
	return p;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void nap_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* ---- saying what was seen ---- */

__attribute__((format(printf, 1, 2))) static void tell(const char *fmt, ...)
{
	int e = errno;
	va_list ap;

	printf("%s: ", snippet);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	if (jitter)
		nap_us(random() % jitter);
	errno = e;
}

#define UNTOUCHED 4711
static long said(const char *what, long v)
{
	if (v == -1)
		tell("%s = %s", what, strerrorname_np(errno) ?: "-1, no errno");
	else
		tell("%s = %ld%s", what, v, errno == UNTOUCHED ? "" : ", errno touched");
	return v;
}
/* Evaluates a call and prints its result or errno; a call that succeeds leaves errno alone. */
#define SAY(what, call) (errno = UNTOUCHED, said(what, (long)(call)))
/* For those that may leave anything in errno when they succeed. */
#define SAYV(what, value) do { long v_ = (long)(value); if (v_ != -1) errno = UNTOUCHED; \
	said(what, v_); } while (0)

static void say_bytes(const char *what, const void *p, long n)
{
	if (n < 0)
		tell("%s: none", what);
	else
		tell("%s: '%.*s'", what, (int)n, (const char *)p);
}

static const char *poll_bits(int e)
{
	static const struct { int bit; const char *name; } t[] = {
		{ POLLIN, "IN" }, { POLLPRI, "PRI" }, { POLLOUT, "OUT" }, { POLLERR, "ERR" },
			{ POLLHUP, "HUP" }, { POLLNVAL, "NVAL" },
		{ POLLRDNORM, "RDNORM" }, { POLLRDBAND, "RDBAND" }, { POLLWRNORM, "WRNORM" },
			{ POLLWRBAND, "WRBAND" },
		{ POLLMSG, "MSG" }, { POLLRDHUP, "RDHUP" },
	};
	static char s[2][128];
	static int turn;
	char *to = s[turn = !turn];

	*to = 0;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		if (e & t[i].bit)
			strcat(strcat(to, *to ? " " : ""), t[i].name);
	return *to ? to : "-";
}

#define ALL_BITS (POLLIN | POLLPRI | POLLOUT | POLLRDHUP | POLLRDNORM | POLLRDBAND | POLLWRNORM | \
	POLLWRBAND)

static int bits_now(int fd, int events)
{
	struct pollfd p = { .fd = fd, .events = (short)events };

	poll(&p, 1, 0);
	return p.revents & 0xffff;
}

static void say_poll(const char *what, int fd)
{
	tell("%s: %s", what, poll_bits(bits_now(fd, ALL_BITS)));
}

/* Until poll shows one of these bits, as what another has done is not here in the same instant. */
static void until(int fd, int events)
{
	struct pollfd p = { .fd = fd, .events = (short)events };
	int r = poll(&p, 1, 5000);

	if (r != 1 || !(p.revents & events))
		tell("waited 5 s for %s: poll = %d, %s", poll_bits(events), r,
		     poll_bits(p.revents));
}

/* Until n bytes are there to be read. */
static void arrive(int fd, int n)
{
	uint64_t end = now_ms() + 5000;
	int have = -1;

	while (ioctl(fd, FIONREAD, &have) == 0 && have < n && now_ms() < end)
		nap_us(200);
	if (have < n)
		tell("only %d of %d bytes arrive", have, n);
}

/* Coarse: this is about what happened, not about the clock. */
static void say_time(const char *what, uint64_t since, int about)
{
	int ms = (int)(now_ms() - since);

	if (ms >= about - 15 && ms < about + 3000)
		tell("%s after its time", what);
	else
		tell("%s after %d ms, not %d", what, ms, about);
}

static int so_error(int fd)
{
	int e = -1;
	socklen_t l = sizeof(e);

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &l);
	return e;
}
static void say_so_error(const char *what, int fd)
{
	int e = so_error(fd);

	tell("%s: SO_ERROR %s", what, e ? strerrorname_np(e) : "0");
}

#include "snip_bytes.h"

/* ---- connections ---- */

/* What the counter file of this process says of a connection: both directions are there, by the
 * states of the cut machine. */
static bool is_at(int fd, unsigned tx, unsigned rx)
{
	static struct stat_header *h;
	static pid_t of;
	struct stat_row *row;
	char path[512];

	if (!h || of != getpid()) {
		int f;

		snprintf(path, sizeof(path), "%s/%d", getenv("RDMASHIM_STAT_DIR") ?: "", getpid());
		f = open(path, O_RDONLY | O_CLOEXEC);
		if (f < 0)
			return false;
		h = mmap(NULL, sizeof(*h) + STAT_ROWS * sizeof(*row), PROT_READ, MAP_SHARED, f, 0);
		close(f);
		if (h == MAP_FAILED)
			die("cannot map %s", path);
		of = getpid();
	}
	row = (struct stat_row *)(h + 1);
	for (uint32_t i = 0; i < h->rows_used && i < STAT_ROWS; i++)
		/* one that the program has closed, and whose end is still to be told, had the
		 * number before */
		if (row[i].state == 2 && row[i].fd == (uint32_t)fd && row[i].tx_state == tx &&
		    row[i].rx_state == rx)
			return true;
	return false;
}
/* On a fast path, and nothing of the switch is still to come, which might give an edge. */
static bool is_cut(int fd) { return is_at(fd, CUT_TX_RING, CUT_RX_RING); }

static uint64_t cut_waited_us;

/* The file of policies that SNIP_BACK names says so from now on. */
static void policy_of_back(bool cut)
{
	const char *all = cut ? "earn_bytes 0\nearn_rounds 0\nuse any both *:*\n"
			      : "earn_bytes 0\nearn_rounds 0\nuse tcp both *:*\n";
	int f = open(getenv("SNIP_BACK"), O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (f < 0 || write(f, all, strlen(all)) < 0)
		fprintf(stderr, "%s: not on a fast path (%s)\n", snippet, strerror(errno));
	close(f);
}

#define BACK_MOST 12		/* ends of a snippet that are sent back: it takes some 20 ms each */
static int sent_back;

static void cut_wait(int fd)
{
	uint64_t end = now_ms() + (uint64_t)atoi(getenv("SNIP_CUT_MS") ?: "3000"), since = now_us();
	int e = errno;

	if (!getenv("SNIP_WAIT_CUT") || (getenv("SNIP_BACK") && ++sent_back > BACK_MOST))
		return;
	if (getenv("SNIP_BACK"))
		policy_of_back(true);
	while (!is_cut(fd) && now_ms() < end)
		nap_us(100);
	if (!is_cut(fd))	/* a forced rewind may be under way; the driver counts these
				 * lines */
		fprintf(stderr, "%s: not on a fast path\n", snippet);
	if (getenv("SNIP_BACK")) {
		policy_of_back(false);
		while (!is_at(fd, CUT_TX_TCP, CUT_RX_TCP) && now_ms() < end)
			nap_us(100);
		if (!is_at(fd, CUT_TX_TCP, CUT_RX_TCP))
			fprintf(stderr, "%s: not on a fast path and back\n", snippet);
	}
	cut_waited_us += now_us() - since;
	errno = e;
}

/* Port 0 of the address that connections go to. */
static struct sockaddr_in here(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, getenv("SNIP_ADDR") ?: "127.0.0.1", &at.sin_addr) != 1)
		die("SNIP_ADDR is no address");
	return at;
}

static int listener_at(struct sockaddr_in *at)
{
	socklen_t l = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*at = here();
	if (fd < 0 || bind(fd, (void *)at, l) || listen(fd, 128) || getsockname(fd, (void *)at, &l))
		die("no listener: %s", strerror(errno));
	return fd;
}

static int connect_to(const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || connect(fd, (void *)at, sizeof(*at)))
		die("connect: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* A connection with both ends here, blocking, without delay. */
static void pair_of(int *x, int *y)
{
	struct sockaddr_in at;
	int one = 1, l = listener_at(&at);

	*x = connect_to(&at);
	*y = accept(l, NULL, NULL);
	if (*y < 0)
		die("accept: %s", strerror(errno));
	setsockopt(*y, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(l);
	cut_wait(*x);
	cut_wait(*y);
}
static void pair(void) { pair_of(&a, &b); }

/* Four bytes each way. */
static bool both_ways(int x, int y)
{
	char v[8] = "";

	return send(x, "ping", 4, MSG_NOSIGNAL) == 4 && recv(y, v, 4, MSG_WAITALL) == 4 &&
	       send(y, "pong", 4, MSG_NOSIGNAL) == 4 && recv(x, v + 4, 4, MSG_WAITALL) == 4 &&
	       !memcmp(v, "pingpong", 8);
}

/* Over a unix socket. */
static void pass(int over, int fd)
{
	union { char c[CMSG_SPACE(sizeof(int))]; struct cmsghdr h; } u = { 0 };
	struct iovec v = { "f", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u,
			    .msg_controllen = sizeof(u) };

	u.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&u.h), &fd, sizeof(fd));
	if (sendmsg(over, &m, 0) != 1)
		tell("pass: %s", strerrorname_np(errno));
}
static int take(int over)
{
	union { char c[CMSG_SPACE(sizeof(int))]; struct cmsghdr h; } u = { 0 };
	char t[1];
	struct iovec v = { t, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u,
			    .msg_controllen = sizeof(u) };
	int fd = -1;

	if (recvmsg(over, &m, 0) != 1 || m.msg_controllen < CMSG_LEN(sizeof(int)))
		tell("take: %s", strerrorname_np(errno));
	else
		memcpy(&fd, CMSG_DATA(&u.h), sizeof(fd));
	return fd;
}

static void nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }
static void blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

/* Puts text on the connection and sees it arrive at the other end. */
static void put(int from, int to, const char *text)
{
	if (send(from, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
		tell("cannot send '%s': %s", text, strerrorname_np(errno));
	arrive(to, (int)strlen(text));
}

/* Does the connection carry bytes both ways? */
static void alive(const char *what, int x, int y)
{
	char t[8] = "";
	ssize_t r1, r2;

	send(x, "ping", 4, MSG_NOSIGNAL);
	r1 = recv(y, t, 4, MSG_WAITALL);
	if (r1 == 4)
		send(y, "pong", 4, MSG_NOSIGNAL);
	r2 = r1 == 4 ? recv(x, t + 4, 4, MSG_WAITALL) : 0;
	tell("%s: %s", what, r1 == 4 && r2 == 4 && !memcmp(t, "pingpong", 8) ? "alive" : "DEAD");
}

#include "snip_others.h"

/* ---- the runner ---- */

static volatile pid_t running;
static volatile sig_atomic_t late;
static void on_late(int s)
{
	(void)s;
	late = 1;
	kill(-running, SIGKILL);
}

/* ---- where a snippet runs ---- */

static const struct snip *the_one;
static int other_a = -1, other_b = -1;	/* a connection that is there besides */
static ino_t other_ino[2];

static ino_t ino_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}
static void other_pair(void)
{
	pair_of(&other_a, &other_b);
	other_ino[0] = ino_of(other_a);
	other_ino[1] = ino_of(other_b);
}
/* Some snippets close all descriptors. */
static bool other_left(void)
{
	return ino_of(other_a) == other_ino[0] && ino_of(other_b) == other_ino[1];
}

static void *in_thread(void *arg)
{
	pthread_sigmask(SIG_SETMASK, arg, NULL);
	the_one->run();
	return NULL;
}
static void run_in_thread(void)
{
	pthread_t th;
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);	/* signals are for the one that is looked
							 * at, from its first moment */
	if (pthread_create(&th, NULL, in_thread, &old))
		die("no thread");
	pthread_join(th, NULL);
}

static volatile pid_t caller;		/* who sends the signal */
static _Atomic int *waits;		/* shared with the caller: the thread is about to wait */

/* Another process signals ours as soon as it sleeps in the call that it has come to: in the same
 * one at three looks in a row. */
static void calls(pid_t pid)
{
	char path[64], was[32] = "", t[32];

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	for (int n = 0; n < 3; nap_us(1000)) {
		FILE *f = fopen(path, "r");
		bool asleep = f && fscanf(f, "%31s", t) == 1 && *waits && strcmp(t, "running");

		if (!f)
			_exit(1);
		fclose(f);
		n = asleep && !strcmp(t, was) ? n + 1 : 0;
		strcpy(was, t);
	}
	kill(pid, SIGUSR2);
	_exit(0);
}

static void in_handler(int sig)
{
	sigset_t pending;

	(void)sig;
	while (waitpid(caller, NULL, 0) < 0 && errno == EINTR)
		;
	the_one->run();
	fflush(stdout);
	sigpending(&pending);
	if (!other_left() || !sigisemptyset(&pending))	/* what comes at the return from here
							 * does not end a call in the kernel, but
							 * with the library */
		_exit(0);
	send(other_a, "!", 1, MSG_NOSIGNAL);
}
static void run_in_handler(void)
{
	struct sigaction s = { .sa_handler = in_handler, .sa_flags = SA_RESTART };
	pid_t me = getpid();
	char c = 0;
	ssize_t r;

	waits = mmap(NULL, sizeof(*waits), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	sigaction(SIGUSR2, &s, NULL);
	caller = fork();
	if (!caller)
		calls(me);
	other_pair();
	*waits = 1;
	r = recv(other_b, &c, 1, 0);
	if (r != 1 || c != '!')
		tell("the call that was interrupted = %zd, %s", r,
		     r < 0 ? strerrorname_np(errno) : "");
}

static void run_in_child(void)
{
	pid_t p;

	other_pair();
	fflush(stdout);
	p = fork();
	if (p < 0)
		die("fork");
	if (!p) {
		the_one->run();
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(p, NULL, 0) < 0 && errno == EINTR)
		;
	alive("the parent's own", other_a, other_b);
}

static void run_it(const struct snip *s)
{
	const char *in = getenv("SNIP_IN") ?: "";
	uint64_t since;

	if (getenv("SNIP_WARM")) {
		pair();
		both_ways(a, b);
		close(a);
		close(b);
		cut_waited_us = 0;
	}
	since = now_us();
	the_one = s;
	if (!strcmp(in, "thread"))
		run_in_thread();
	else if (!strcmp(in, "signal"))
		run_in_handler();
	else if (!strcmp(in, "fork"))
		run_in_child();
	else
		s->run();
	/* for slow.py */
	fprintf(stderr, "%s: took %llu us\n", s->name,
		(unsigned long long)(now_us() - since - cut_waited_us));
}

static void run_one(const struct snip *s)
{
	int st;

	printf("== %s\n", s->name);
	fflush(stdout);
	late = 0;
	running = fork();
	if (running < 0)
		exit(2);
	if (!running) {
		setpgid(0, 0);
		signal(SIGALRM, SIG_DFL);
		snippet = s->name;
		srandom((unsigned)getpid());
		run_it(s);
		fflush(stdout);
		_exit(0);	/* open ends are left to the kernel, as when a program is killed */
	}
	setpgid(running, running);
	alarm((unsigned)atoi(getenv("SNIP_TIMEOUT") ?: "20"));
	while (waitpid(running, &st, 0) < 0 && errno == EINTR)
		;
	alarm(0);
	kill(-running, SIGKILL);	/* children that it left */
	if (late)
		printf("%s: HANGS\n", s->name);
	else if (WIFSIGNALED(st))
		printf("%s: KILLED by %s\n", s->name, sigabbrev_np(WTERMSIG(st)));
}

int main(int argc, char **argv)
{
	int times = 1, i = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "list")) {
		for (int k = 0; k < nsnips; k++)
			printf("%s: %s\n", snips[k].name, snips[k].calls);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "child"))
		return child_program ? child_program(argc, argv) : 2;
	if (argc > 2 && !strcmp(argv[1], "-n")) {
		times = atoi(argv[2]);
		i = 3;
	}
	jitter = atoi(getenv("SNIP_JITTER") ?: "0");
	signal(SIGALRM, on_late);
	for (int k = 0; k < nsnips; k++) {
		bool named = i == argc;

		for (int j = i; j < argc; j++)
			named |= !strcmp(argv[j], snips[k].name);
		for (int n = 0; named && n < times; n++)
			run_one(&snips[k]);
	}
	return 0;
}

#endif
