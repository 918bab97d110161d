/*
 * pointers.c - each call that takes a pointer, with each kind of bad one, beside a connection that
 * has nothing to read and one that has: what the call says, and which bytes come afterwards.
 *
 *	pointers [fast]		fast: before each call the connection is on the fast path, and after
 *				each that failed it is again, by the kernel's own count
 *
 * A line for each, the same on the kernel alone and on a fast path. Where libc itself crashes, as
 * where it reads a time, so it must with the library.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#include "received.h"

#define PAGE     4096
#define WAITING  100	/* bytes that may be there to be read */
#define MARK     64	/* after these nothing comes */
#define HANGS    1	/* s; some wait for ever where there is no time */
#define PATIENCE 10	/* s */
#define ENOUGH   5	/* that are on TCP */

static int listener, file, pipe_w, ep, waiting;
static char buf[256], text[] = "abc";
static struct iovec in_v = { buf, 10 }, out_v = { text, 3 };
static struct sockaddr_in nobody = { .sin_family = AF_INET };	/* port 0: nobody listens there */
static struct timespec at_once;
static struct timeval no_time;
static struct pollfd pf;
static struct epoll_event ev = { .events = EPOLLIN };
static char *const args[] = { text, NULL };

/* ---- what the rows are made of ---- */

#define TCP      IPPROTO_TCP
#define BYTES(n) ((struct { char c[n]; }){ { 0 } })
#define OUT(...) message(&(struct msghdr){ __VA_ARGS__ }, &out_v)
#define IN(...)  message(&(struct msghdr){ __VA_ARGS__ }, &in_v)
#define TAKES(how) ({ int by_ = connect_to(); long r_ = accepted(how, by_); clear(); r_; })

struct two_polls { struct pollfd p[2]; };
struct two_args { char *arg[2]; };
struct two_longs { long l[2]; };

static struct msghdr *message(const struct msghdr *with, struct iovec *usual)
{
	static struct msghdr m;

	m = *with;
	if (!m.msg_iovlen)
		m.msg_iov = usual, m.msg_iovlen = 1;
	return &m;
}

static struct mmsghdr *vector(const struct msghdr *of)
{
	static struct mmsghdr mm;

	mm = (struct mmsghdr){ .msg_hdr = *of };
	return &mm;
}

static struct iovec *pair(struct iovec first, void *p)
{
	static struct iovec v[2];

	v[0] = first;
	v[1] = (struct iovec){ p, 10 };
	return v;
}

static socklen_t *length(socklen_t n)
{
	static socklen_t len;

	len = n;
	return &len;
}

static fd_set *both_ends(void)
{
	static fd_set set;

	FD_ZERO(&set);
	FD_SET(b, &set);
	return &set;
}

static struct sock_fprog *program(void *p)
{
	static struct sock_fprog prog = { .len = 1 };

	prog.filter = p;
	return &prog;
}

static long spawned(const char *path)
{
	errno = posix_spawn(&(pid_t){ 0 }, path, NULL, NULL, args, args + 1);
	return errno ? -1 : 0;
}

static int fresh(void)
{
	static int last = -1;

	if (last >= 0)
		close(last);
	return last = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int connect_to(void)
{
	struct sockaddr_in s;
	socklen_t n = sizeof s;
	int fd = fresh();

	if (getsockname(listener, (void *)&s, &n) || connect(fd, (void *)&s, sizeof s))
		die("connect");
	return fd;
}

/* 0: what was accepted works. */
static long accepted(int fd, int by)
{
	char c = 0;
	bool ok;

	if (fd < 0)
		return fd;
	ok = send(by, "k", 1, 0) == 1 && recv(fd, &c, 1, 0) == 1 && c == 'k';
	close(fd);
	return ok ? 0 : 7;
}

/* What was not taken. */
static void clear(void)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };
	int fd, e = errno;

	while (poll(&p, 1, 0) == 1 && (fd = accept(listener, NULL, NULL)) >= 0)
		close(fd);
	errno = e;
}

#define ROW(name, call, ...) \
	static long call_##name(void *p) { return (long)(call); } \
	static size_t good_##name(void *at) \
	{ \
		__auto_type o = __VA_ARGS__; \
		if (at) \
			memcpy(at, &o, sizeof o); \
		return sizeof o; \
	}
#include "pointers.def"

static const struct {
	const char *name;
	long (*call)(void *p);
	size_t (*good)(void *at);
} rows[] = {
#define ROW(name, call, ...) { #name, call_##name, good_##name },
#include "pointers.def"
};

/* ---- the kinds of pointers ---- */

/* (Between 2^47 and the kernel's half kernels differ.) */
enum kind { GOOD, NONE, LOW, GONE, PROTECTED, READONLY, HALF, KERNEL, LAST, KINDS };
static const char *const kind_names[KINDS] = { "good", "null", "low", "unmapped", "protected",
					       "read-only", "half", "kernel", "last" };

static char *map(int prot)
{
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p, PAGE, prot) || mprotect(p + PAGE, PAGE, PROT_NONE))
		die("map");
	return p;
}

static void *pointer(enum kind k, size_t (*good)(void *at))
{
	static char *gone, *open_page, *closed, *readonly, whole[PAGE];
	size_t n = good(NULL), half = n - n / 2;

	if (!gone) {
		gone = map(PROT_NONE);
		open_page = map(PROT_READ | PROT_WRITE);
		closed = map(PROT_NONE);
		readonly = map(PROT_READ);
		if (munmap(gone, PAGE))
			die("munmap");
	}
	switch (k) {
	case GOOD:
		good(open_page);
		return open_page;
	case HALF:
		good(whole);
		memcpy(open_page + PAGE - half, whole, half);
		return open_page + PAGE - half;
	case READONLY:
		if (mprotect(readonly, PAGE, PROT_READ | PROT_WRITE) || !good(readonly) ||
		    mprotect(readonly, PAGE, PROT_READ))
			die("mprotect");
		return readonly;
	case LOW: return (void *)8;
	case GONE: return gone;
	case PROTECTED: return closed;
	case KERNEL: return (void *)0xffff888000001000;
	case LAST: return (void *)-4;
	default: return NULL;
	}
}

/* ---- the connection ---- */

/* One way and back. True: without TCP. */
static bool turn(void)
{
	uint64_t before = kernel_received(a) + kernel_received(b);
	char c[MARK] = "ball";

	if (send(a, c, sizeof c, 0) != sizeof c || recv(b, c, sizeof c, MSG_WAITALL) != sizeof c ||
	    send(b, c, sizeof c, 0) != sizeof c || recv(a, c, sizeof c, MSG_WAITALL) != sizeof c)
		die("a turn");
	return kernel_received(a) + kernel_received(b) == before;
}

static bool fast_again(int patience)
{
	time_t end = time(NULL) + patience;

	while (!turn())
		if (time(NULL) > end)
			return false;
	return true;
}

static void connected(bool fast)
{
	if (a)
		close(a), close(b), close(ep);
	connect_both();
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev))
		die("epoll");
	pf = (struct pollfd){ .fd = b, .events = POLLIN };
	if (fast && !fast_again(PATIENCE))
		exit((fprintf(stderr, "never on the fast path\n"), 1));
}

/* What is left to be read, with its sum; then both ends are empty. */
static void drain(size_t *ret_n, unsigned *ret_sum)
{
	unsigned char c;
	size_t marks = 0;

	*ret_n = 0;
	*ret_sum = 0;
	for (int i = 0; i < MARK; i++)
		if (send(a, "M", 1, 0) != 1)
			die("send");
	while (marks < MARK) {
		if (recv(b, &c, 1, 0) != 1)
			die("recv");
		marks = c == 'M' ? marks + 1 : 0;
		++*ret_n;
		*ret_sum = *ret_sum * 31 + c;
	}
	*ret_n -= MARK;
}

/* ---- one try ---- */

static sigjmp_buf out;
static void crashed(int sig) { siglongjmp(out, sig); }
static void hangs(int sig) { (void)sig; }

static void timer(int seconds)
{
	/* and again: it may miss the wait */
	struct itimerval t = { { 1, 0 }, { seconds, 0 } };

	if (!seconds)
		t.it_interval.tv_sec = 0;
	setitimer(ITIMER_REAL, &t, NULL);
}

/* True: the call failed, and so must have changed nothing. (One that waited was meant.) */
static bool try(size_t i, enum kind k)
{
	char full[WAITING];
	void *p = pointer(k, rows[i].good);
	volatile long r = -1;
	volatile int e = 0;
	int sig;
	unsigned sum;
	size_t n;

	for (int at = 0; at < WAITING; at++)
		full[at] = (char)(at % 50 + 'a' + (int)i % 5);
	memset(buf, 0, sizeof buf);
	at_once = (struct timespec){ 0, 0 };
	no_time = (struct timeval){ 0, 0 };
	if (waiting && (send(a, full, WAITING, 0) != WAITING || poll(&pf, 1, -1) != 1))
		die("send");
	timer(HANGS);
	sig = sigsetjmp(out, 1);
	if (!sig) {
		errno = 0;
		r = rows[i].call(p);
		e = errno;
	}
	timer(0);
	printf("%s %s %s: ", rows[i].name, kind_names[k], waiting ? "waiting" : "empty");
	if (sig)
		printf("crashed");
	else
		printf("%ld %s", r, r < 0 ? strerrorname_np(e) : "-");
	drain(&n, &sum);
	printf(", then %zu bytes %x\n", n, sum);
	return !sig && r < 0 && e != EINTR && e != EAGAIN;
}

static int tries(bool fast, const char *only)
{
	int bad = 0;
	bool failed;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int k = 0; k < KINDS; k++)
			for (waiting = 0; waiting < 2; waiting++) {
				if (only && strcmp(only, rows[i].name))
					continue;
				failed = try(i, (enum kind)k);
				if (!fast || turn())
					continue;
				if (!fast_again(failed ? PATIENCE : 0) && failed) {
					fprintf(stderr, "%s %s: on TCP\n", rows[i].name,
						kind_names[k]);
					if (++bad == ENOUGH)
						return bad;
				}
				/* What goes back to TCP again and again stays there for a while. */
				connected(fast);
			}
	return bad;
}

int main(int argc, char **argv)
{
	bool fast = argc > 1 && !strcmp(argv[1], "fast");
	struct sigaction crash = { .sa_handler = crashed, .sa_flags = SA_NODEFER },
			 late = { .sa_handler = hangs };
	int p[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (listener < 0 || listen(listener, 5) || file < 0 || pipe2(p, O_CLOEXEC))
		die("descriptors");
	pipe_w = p[1];
	sigaction(SIGSEGV, &crash, NULL);
	sigaction(SIGBUS, &crash, NULL);
	sigaction(SIGALRM, &late, NULL);
	connected(fast);
	return tries(fast, argc > 2 ? argv[2] : NULL) != 0;
}
