/*
 * signals.c - signal handlers and TCP connections: handlers that use the connection that they
 * interrupted or jump out of its calls, what SA_RESTART does to each wait, and what sigaction()
 * and its elder brothers say. Prints facts that do not depend on luck; a run on the kernel alone
 * says which are right. Knows nothing of the library.
 *
 * 	signals [SCENE...]	each with a connection to a forked peer that has seen some traffic
 * 	signals list
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *scene;
static int fd = -1, listener, pid, verdict;	/* the connection, the peer, the pipe on which
						 * the peer says what it saw */
static uint16_t port;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s: ", scene);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

static void say(const char *what, long v)
{
	if (v == -1)
		printf("%s: %s = %s\n", scene, what, strerrorname_np(errno));
	else
		printf("%s: %s = %ld\n", scene, what, v);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void nap(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void tick(int first_us, int every_us)
{
	struct itimerval t = { { 0, every_us }, { 0, first_us } };

	setitimer(ITIMER_REAL, &t, NULL);
}

static void on(int sig, void (*h)(int), int flags)
{
	struct sigaction a = { .sa_handler = h, .sa_flags = flags };

	if (sigaction(sig, &a, NULL))
		die("sigaction: %s", strerror(errno));
}

/* ---- the connection ---- */

static int dial(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(port) };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (s < 0 || connect(s, (void *)&a, sizeof(a)))
		die("connect: %s", strerror(errno));
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return s;
}

static void warm(int s, bool first)
{
	char b[64] = { 0 };

	for (int i = 0; i < 60; i++) {
		if (first)
			send(s, b, sizeof(b), MSG_NOSIGNAL);
		if (recv(s, b, sizeof(b), MSG_WAITALL) != sizeof(b))
			die("warm-up");
		if (!first)
			send(s, b, sizeof(b), MSG_NOSIGNAL);
		nap(1);
	}
}

/* A peer that runs `f` with its end, and then writes what it returns into `verdict`. */
static void peer(long (*f)(int))
{
	int p[2], one = 1;

	if (pipe(p))
		die("pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		long r;
		int s;

		close(p[0]);
		close(listener);
		signal(SIGPIPE, SIG_IGN);
		alarm(60);
		s = dial();
		warm(s, true);
		r = f(s);
		if (write(p[1], &r, sizeof(r)) != sizeof(r))
			_exit(1);
		_exit(0);
	}
	close(p[1]);
	verdict = p[0];
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	warm(fd, false);
}

/* Ends the connection, and says what the peer saw. */
static long over(void)
{
	long r = -2;

	close(fd);
	if (read(verdict, &r, sizeof(r)) != sizeof(r))
		die("the peer failed");
	close(verdict);
	waitpid(pid, NULL, 0);
	return r;
}

/* ---- peers ---- */

static long idle(int s)
{
	char c;

	while (recv(s, &c, 1, 0) > 0)
		;
	return 0;
}

static long late_byte(int s)		/* a byte 150 ms after each one it gets */
{
	char c;

	while (recv(s, &c, 1, 0) > 0) {
		nap(150);
		send(s, &c, 1, 0);
	}
	return 0;
}

static long closes(int s)
{
	close(s);
	return 0;
}

static unsigned char low_at(uint64_t off)
{
	return (unsigned char)((off * 2654435761u >> 13) & 127);
}

/* Two senders share the stream: bytes below 128 are one's, the others the other's. Both must be
 * whole. */
static long demux(int s)
{
	static unsigned char b[65536];
	uint64_t n[2] = { 0, 0 };
	ssize_t r;

	while ((r = recv(s, b, sizeof(b), 0)) > 0)
		for (ssize_t i = 0; i < r; i++) {
			int who = b[i] >> 7;

			if ((b[i] & 127) != low_at(n[who]++))
				return -3 - who;
		}
	return r < 0 ? -5 : (long)(n[0] * 1000003 + n[1]);
}

/* Where a handler's bytes begin, by how many others came before; where the calls that they may
 * lie between end. Both processes have it. */
#define PLACES 20000
static struct places {
	uint64_t begin[PLACES], end[PLACES];
	int nbegin, nend;
} *places;

static long between(int s)
{
	static unsigned char b[65536];
	uint64_t n = 0;
	bool in = false;
	ssize_t r;

	while ((r = recv(s, b, sizeof(b), 0)) > 0)
		for (ssize_t i = 0; i < r; i++) {
			if (b[i] >> 7 && !in && places->nbegin < PLACES)
				places->begin[places->nbegin++] = n;
			in = b[i] >> 7;
			n += !in;
		}
	return r < 0 ? -5 : (long)n;
}

/* Each message is `CALL` times its number; some are cut short, none may come twice, or after a
 * later one. */
#define CALL 3000
static long numbered(int s)
{
	static unsigned char b[65536];
	unsigned last = 0;
	long run = 0;
	ssize_t r;

	while ((r = recv(s, b, sizeof(b), 0)) > 0)
		for (ssize_t i = 0; i < r; i++) {
			if (b[i] == last && run < CALL) {
				run++;
				continue;
			}
			if ((unsigned char)(b[i] - last) > 128)
				return -3;
			last = b[i];
			run = 1;
		}
	return r < 0 ? -5 : 0;
}

#define WORDS 4000000
/* A number that is known wherever it is found. */
static uint64_t word_at(uint64_t i) { return i | 0xa55aull << 24 | (~i & 0xffffff) << 40; }

static long words(int s)
{
	static uint64_t b[1000];

	for (uint64_t i = 0; i < WORDS; i += 1000) {
		for (int k = 0; k < 1000; k++)
			b[k] = word_at(i + (uint64_t)k);
		if (send(s, b, sizeof(b), MSG_NOSIGNAL) != sizeof(b))
			return -3;
		if (i % 100000 == 0)
			nap(1);
	}
	return idle(s);
}

static long queues(int s)		/* sends values by sigqueue(), 0 to 1999, while it takes
					 * what comes */
{
	static char b[65536];
	union sigval v = { 0 };
	int n = 0;

	fcntl(s, F_SETFL, O_NONBLOCK);
	for (;;) {
		ssize_t r = recv(s, b, sizeof(b), 0);

		if (!r)
			return n;
		if (n < 2000) {
			struct timespec t = { 0, 50000 };

			v.sival_int = n;
			n += sigqueue(getppid(), SIGRTMIN, v) == 0;
			nanosleep(&t, NULL);
		} else {
			fcntl(s, F_SETFL, 0);
		}
	}
}

/* ---- handlers that use the connection ---- */

static volatile uint64_t tx[2];
static volatile long handled;
static int handler_flags;

static uint64_t put(int who, size_t n, int flags)
{
	unsigned char b[3000];
	ssize_t r;

	for (size_t i = 0; i < n; i++)
		b[i] = (unsigned char)(low_at(tx[who] + i) | who << 7);
	r = send(fd, b, n, flags | MSG_NOSIGNAL);
	if (r < 0 && errno != EAGAIN && errno != EINTR)
		die("send: %s", strerror(errno));
	if (r > 0)
		tx[who] += (uint64_t)r;
	return r > 0 ? (uint64_t)r : 0;
}

static void sends(int sig)
{
	static volatile int inside;	/* with SA_NODEFER */
	int e = errno;

	(void)sig;
	if (inside)
		return;
	inside = 1;
	put(1, 1 + (size_t)handled % 1500, handler_flags);
	handled++;
	inside = 0;
	errno = e;
}

/* Until `end`; on a machine that has no time for us until enough handlers have run. */
static bool go_on(double end, int enough)
{
	return now() < end || (handled <= enough && now() < end + 15);
}

static void send_in_handler_flags(int flags, int sa)
{
	double end;

	peer(demux);
	tx[0] = tx[1] = 0;
	handled = 0;
	handler_flags = flags;
	on(SIGALRM, sends, sa);
	tick(1000, 1000);
	for (end = now() + 1.5; go_on(end, 300);)
		put(0, 1 + tx[0] % 2999, 0);
	tick(0, 0);
	say("handlers ran", handled > 300);
	shutdown(fd, SHUT_WR);
	say("peer has all", over() == (long)(tx[0] * 1000003 + tx[1]));
}

static void send_in_handler(void)
{
	send_in_handler_flags(MSG_DONTWAIT, SA_RESTART);
	send_in_handler_flags(0, SA_RESTART);
	send_in_handler_flags(MSG_DONTWAIT, SA_NODEFER);
	send_in_handler_flags(0, 0);
}

/* As in the kernel, a handler's bytes come before or behind what the call that it interrupts says
 * it has sent, never in the middle of that. */
static void long_sends(int file)
{
	static unsigned char b[400000];
	double end;
	int at = 0, inside = 0;

	places = mmap(NULL, sizeof(*places), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (places == MAP_FAILED)
		die("mmap");
	peer(between);
	tx[0] = tx[1] = 0;
	handled = 0;
	handler_flags = MSG_DONTWAIT;
	on(SIGALRM, sends, SA_RESTART);
	tick(1000, 1000);
	for (end = now() + 1.5; go_on(end, 300) && places->nend < PLACES;) {
		size_t n = 1 + tx[0] % sizeof(b);
		ssize_t r = file < 0 ? send(fd, b, n, MSG_NOSIGNAL) :
				       sendfile(fd, file, &(off_t){ 0 }, n);

		if (r < 0 && errno != EINTR)
			die("send: %s", strerror(errno));
		tx[0] += r > 0 ? (uint64_t)r : 0;
		places->end[places->nend++] = tx[0];
	}
	tick(0, 0);
	say("handlers ran", handled > 300);
	shutdown(fd, SHUT_WR);
	say("peer has all", over() == (long)tx[0]);
	for (int i = 0; i < places->nbegin; i++) {
		while (at < places->nend && places->end[at] < places->begin[i])
			at++;
		inside += places->begin[i] && (at == places->nend ||
					       places->end[at] != places->begin[i]);
	}
	say("between calls", inside == 0 && places->nbegin > 10);
	if (inside)
		fprintf(stderr, "%d of %d inside a call\n", inside, places->nbegin);
	munmap(places, sizeof(*places));
}

static void long_send_in_handler(void) { long_sends(-1); }

static void sendfile_in_handler(void)
{
	int file = memfd_create("zeros", MFD_CLOEXEC);

	if (file < 0 || ftruncate(file, 400000))
		die("memfd");
	long_sends(file);
	close(file);
}

/* Chunks of the stream as they were read, by whomever. */
static struct chunk { uint64_t off, n; } chunks[200000];
static volatile int npieces;
static volatile uint64_t got, small;

static void chunk(const unsigned char *b, uint64_t n)
{
	uint64_t off = 0, w;

	got += n;
	if (n < 15) {
		small += n;
		return;
	}
	for (off = 0; off < 8; off++) {
		memcpy(&w, b + off, 8);
		if (w == word_at(w & 0xffffff))
			break;
	}
	if (off == 8)
		die("what is this");
	off = (w & 0xffffff) * 8 - off;
	for (uint64_t i = 0; i < n; i++)
		if (b[i] != (unsigned char)(word_at((off + i) / 8) >> (off + i) % 8 * 8))
			die("a chunk from %llu on is wrong at %llu of %llu",
			    (unsigned long long)off, (unsigned long long)i, (unsigned long long)n);
	if (npieces < 200000)
		chunks[npieces++] = (struct chunk){ off, n };
}

/* Else it could take the last bytes, while recv() waits for them, or before. */
static void ease(void)
{
	if (got < WORDS * 8ull && WORDS * 8ull - got < 200000)
		tick(0, 0);
}

static void reads(int sig)
{
	static unsigned char b[40000];
	int e = errno;
	ssize_t r = recv(fd, b, sizeof(b), MSG_DONTWAIT);

	(void)sig;
	if (r > 0)
		chunk(b, (uint64_t)r);
	ease();
	handled++;
	errno = e;
}

static int by_offset(const void *a, const void *b)
{
	const struct chunk *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static void recv_in_handler(void)
{
	static unsigned char b[50000];
	uint64_t at = 0, gaps = 0;
	sigset_t alrm, old;

	peer(words);
	got = small = 0;
	handled = npieces = 0;
	on(SIGALRM, reads, SA_RESTART);
	tick(1000, 1000);
	sigemptyset(&alrm);
	sigaddset(&alrm, SIGALRM);
	while (got < WORDS * 8ull) {
		ssize_t r = recv(fd, b, 1 + got % sizeof(b), handled % 2 ? MSG_DONTWAIT : 0);

		if (r == 0 || (r < 0 && errno != EAGAIN))
			die("recv: %s", r ? strerror(errno) : "end");
		sigprocmask(SIG_BLOCK, &alrm, &old);
		if (r > 0)
			chunk(b, (uint64_t)r);
		ease();
		sigprocmask(SIG_SETMASK, &old, NULL);
	}
	tick(0, 0);
	qsort(chunks, (size_t)npieces, sizeof(chunks[0]), by_offset);
	for (int i = 0; i < npieces; i++) {
		if (chunks[i].off < at)
			die("bytes at %llu came twice", (unsigned long long)chunks[i].off);
		gaps += chunks[i].off - at;
		at = chunks[i].off + chunks[i].n;
	}
	gaps += WORDS * 8ull - at;
	say("handlers ran", handled > 5);
	say("every byte once", gaps == small && got == WORDS * 8ull);
	over();
}

static sigjmp_buf back;
static void jumps(int sig) { (void)sig; handled++; siglongjmp(back, 1); }

static void jump_out_of_recv(void)
{
	static volatile int i;
	char c = 'x';

	peer(late_byte);
	handled = 0;
	on(SIGALRM, jumps, 0);
	for (i = 0; i < 200; i++)
		if (!sigsetjmp(back, 1)) {
			tick(20 + i * 37 % 1500, 3000);
			say("recv came back", recv(fd, &c, 1, 0));
		}
	tick(0, 0);
	say("jumps", handled >= 200);	/* the timer goes on until it is stopped */
	send(fd, &c, 1, 0);
	say("recv", recv(fd, &c, 1, 0));
	over();
}

static void jump_out_of_send(void)
{
	static volatile unsigned char call;
	static unsigned char b[CALL];
	static volatile double end;

	peer(numbered);
	handled = 0;
	on(SIGALRM, jumps, 0);
	end = now() + 2;
	while (go_on(end, 20)) {
		/* After a jump one call without any: else, on a machine without time for the
		 * reader, calls that could send nothing let the number go round. */
		if (sigsetjmp(back, 1))
			tick(0, 0);
		for (int k = 0; k < 1000 && go_on(end, 20); k++) {
			if (k == 1)
				tick(500, 500);
			memset(b, ++call, CALL);
			if (send(fd, b, CALL, MSG_NOSIGNAL) < 0 && errno != EINTR)
				die("send: %s", strerror(errno));
		}
	}
	signal(SIGALRM, SIG_IGN);
	tick(0, 0);
	say("jumps", handled > 20);
	shutdown(fd, SHUT_WR);
	say("in order", over());
}

static volatile long next_value, bad_info;
static void queued(int sig, siginfo_t *i, void *uc)
{
	(void)sig;
	if (i->si_code != SI_QUEUE || i->si_value.sival_int != next_value++ || i->si_pid != pid ||
	    !uc)
		bad_info++;
}

/* None is lost, and none changes on its way. */
static void queue_storm(void)
{
	struct sigaction a = { .sa_sigaction = queued, .sa_flags = SA_SIGINFO | SA_RESTART };
	double end = now() + 10;

	sigaction(SIGRTMIN, &a, NULL);
	next_value = bad_info = 0;
	peer(queues);
	tx[0] = 0;
	while (next_value < 2000 && now() < end)
		put(0, 500, MSG_DONTWAIT);
	say("values", next_value);
	say("bad", bad_info);
	shutdown(fd, SHUT_WR);
	over();
}

static void again(int sig)
{
	handled++;
	on(sig, again, (int)SA_RESETHAND);
	tick(1000, 0);		/* not before: a second signal could find the kernel's default */
}

static void reset_storm(void)
{
	double end = now() + 1.5;

	peer(demux);
	tx[0] = tx[1] = 0;
	handled = 0;
	on(SIGALRM, again, (int)SA_RESETHAND);
	tick(1000, 0);
	while (go_on(end, 300))
		put(0, 777, MSG_DONTWAIT);
	signal(SIGALRM, SIG_IGN);
	tick(0, 0);
	say("handlers ran", handled > 300);
	shutdown(fd, SHUT_WR);
	say("peer has all", over() == (long)(tx[0] * 1000003));
}

static void fork_storm(void)
{
	peer(demux);
	tx[0] = tx[1] = 0;
	handled = 0;
	handler_flags = MSG_DONTWAIT;
	on(SIGALRM, sends, SA_RESTART);
	tick(700, 700);
	for (int i = 0; i < 40; i++) {
		int p, st = -1;

		for (int k = 0; k < 50; k++)
			put(0, 100, 0);
		p = fork();
		if (!p) {
			close(fd);
			raise(SIGUSR2);
			_exit(7);
		}
		while (waitpid(p, &st, 0) < 0 && errno == EINTR)
			;
		if (!WIFEXITED(st) || WEXITSTATUS(st) != 7)
			die("the child: %x", st);
	}
	tick(0, 0);
	say("handlers ran", handled > 10);
	shutdown(fd, SHUT_WR);
	say("peer has all", over() == (long)(tx[0] * 1000003 + tx[1]));
}

#include "signals-waits.h"

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t l = sizeof(a);

	scene = "start";
	setvbuf(stdout, NULL, _IOLBF, 0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (void *)&a, l) || listen(listener, 16) ||
	    getsockname(listener, (void *)&a, &l))
		die("listener: %s", strerror(errno));
	port = ntohs(a.sin_port);
	on(SIGUSR2, h1, 0);
	for (int i = 0; i < SCENES; i++) {
		bool wanted = argc == 1;

		for (int k = 1; k < argc; k++) {
			wanted |= !strcmp(argv[k], scenes[i].name);
			if (!strcmp(argv[k], "list"))
				puts(scenes[i].name);
		}
		if (!wanted)
			continue;
		scene = scenes[i].name;
		printf("- %s\n", scene);
		scenes[i].run();
	}
	return 0;
}
