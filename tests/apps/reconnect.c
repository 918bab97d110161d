/*
 * reconnect.c - what a connection, or an attempt at one, leaves on its socket for the next. Knows
 * nothing of the library.
 *
 * 	reconnect server PORT		echoes, until its input is told to end
 * 	reconnect client PORT LETTERS LENGTH ROUNDS
 * 					every order of the steps named by LETTERS (steps[]) up
 * 					to that
 * 					length, each on a socket of its own, then a dialogue
 * 					of so many
 * 					rounds; says what each step gave
 *
 * Nothing depends on time: after each step its outcome is awaited, as the kernel tells it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS	16
#define SIZE	64
#define LONG	192
#define PATIENCE_MS 20000	/* for what certainly comes */

static struct sockaddr_in good, refusing, deaf;
static int rounds;	/* of the dialogue at the end */

static void *echo(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char buf[4096];
	ssize_t r;

	while ((r = recv(fd, buf, sizeof buf, 0)) > 0)
		if (send(fd, buf, (size_t)r, MSG_NOSIGNAL) != r)
			break;
	close(fd);
	return NULL;
}

static int listener(struct sockaddr_in *a, int backlog)
{
	socklen_t len = sizeof *a;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, (void *)a, sizeof *a) || (backlog >= 0 && listen(fd, backlog)) ||
	    getsockname(fd, (void *)a, &len)) {
		perror("reconnect: listener");
		exit(2);
	}
	return fd;
}

static void serve(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int l = listener(&a, 1024);
	pthread_attr_t small;
	pthread_t t;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 * 1024);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd >= 0 && pthread_create(&t, &small, echo, (void *)(intptr_t)fd))
			close(fd);
	}
}

/* ---- the steps; each gives 0 or an errno ---- */

static int state(int fd)
{
	struct tcp_info ti;
	socklen_t len = sizeof ti;

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) ? -1 : ti.tcpi_state;
}

/* Until the socket has left all of these states: a bit each. */
static void left(int fd, unsigned states)
{
	for (int i = 0; i < PATIENCE_MS && states >> state(fd) & 1; i++)
		usleep(i < 100 ? 100 : 1000);
}

/* The connection is made, or has failed. With its SYN received it has left SYN_SENT. */
static void settled(int fd) { left(fd, 1u << TCP_SYN_SENT | 1u << TCP_SYN_RECV); }

static int try(int fd, const struct sockaddr_in *to)
{
	return connect(fd, (const void *)to, sizeof *to) ? errno : 0;
}

/* How many bytes are here once it is `n`, or what came meanwhile; < 0: -errno. A poll does not tell
 * after SHUT_RD. */
static int arrived(int fd, int n)
{
	int here = 0;

	for (int i = 0; here < n && i < PATIENCE_MS; i++) {
		if (ioctl(fd, FIONREAD, &here))
			return -errno;
		if (here < n)
			usleep(i < 100 ? 20 : 1000);
	}
	return here;
}

/* It has an end of its own where bytes are expected: 0, an errno, or -1 for wrong bytes. */
static int round_trip(int fd, int seed)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	char out[SIZE], in[SIZE];
	ssize_t r;
	int n;

	memset(out, seed, sizeof out);
	if (poll(&p, 1, PATIENCE_MS) != 1 || send(fd, out, sizeof out, MSG_NOSIGNAL) != SIZE)
		return p.revents & POLLOUT ? errno : ETIME;
	n = arrived(fd, SIZE);
	if (n < 0)
		return -n;
	p.events = POLLIN | POLLOUT | POLLRDHUP;
	if (n != SIZE || poll(&p, 1, 0) != 1)
		return ETIME;
	r = recv(fd, in, sizeof in, MSG_DONTWAIT);
	return r != SIZE ? (r ? errno : ENODATA) : memcmp(in, out, SIZE) ? -1 : p.revents << 16;
}

static int do_unspec(int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	return connect(fd, &none, sizeof none) ? errno : 0;
}

static int do_refused(int fd)
{
	int r = try(fd, &refusing);

	if (r != EINPROGRESS)
		return r;
	settled(fd);
	return try(fd, &refusing);	/* as if it had been told at once */
}

static int do_nowhere(int fd)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = 1,
				 .sin_addr.s_addr = htonl(0xffffffff) };

	return try(fd, &a);
}

static int do_pending(int fd) { return try(fd, &deaf); }

static int do_timeout(int fd)
{
	int r;

	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){ 1 }, sizeof(int));
	r = try(fd, &deaf);
	settled(fd);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){ 0 }, sizeof(int));
	return r;
}

static int do_good(int fd)
{
	int r = try(fd, &good);

	if (r && r != EINPROGRESS)
		return r;
	settled(fd);
	for (int i = 0; i < 4; i++) {
		int e = round_trip(fd, i);

		if (e & 0xffff)
			return e;
	}
	return 0;
}

static int do_fastopen(int fd)
{
	ssize_t r = sendto(fd, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&deaf, sizeof deaf);
	int e = r < 0 ? errno : 0;
	char c = 0;

	/* It was connected already: the answer comes. */
	if (!e && (arrived(fd, 1) != 1 || (recv(fd, &c, 1, MSG_DONTWAIT) > 0 && c != 'x')))
		e = -1;
	return e;
}

/* The other end closes when it has read our end. */
static int shut(int fd, int how)
{
	int r = shutdown(fd, how) ? errno : 0;

	if (!r && how != SHUT_RD)
		left(fd, 1u << TCP_ESTABLISHED | 1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2 |
				 1u << TCP_CLOSING | 1u << TCP_CLOSE_WAIT | 1u << TCP_LAST_ACK);
	return r;
}

static int do_shut_rd(int fd) { return shut(fd, SHUT_RD); }
static int do_shut_wr(int fd) { return shut(fd, SHUT_WR); }
static int do_shut_both(int fd) { return shut(fd, SHUT_RDWR); }
static int do_listen(int fd) { return listen(fd, 1) ? errno : 0; }

static const struct { char letter; int (*step)(int fd); } steps[] = {
	{ 'u', do_unspec },	{ 'r', do_refused },	{ 'n', do_nowhere },	{ 'p', do_pending },
	{ 't', do_timeout },	{ 'c', do_good },	{ 'f', do_fastopen },	{ 'R', do_shut_rd },
	{ 'W', do_shut_wr },	{ 'B', do_shut_both },	{ 'l', do_listen },
};
#define STEPS (sizeof steps / sizeof *steps)

/* ---- one order of them ---- */

static int shown(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP };

	poll(&p, 1, 0);
	return p.revents;
}

static int step(int fd, char letter)
{
	for (size_t i = 0; i < STEPS; i++)
		if (steps[i].letter == letter)
			return steps[i].step(fd);
	exit(2);
}

/* The socket as the steps have left it is connected, if that can be, and talks; then its end. */
static void dialogue(int fd, char *say, char *end)
{
	int r = 0, n, mask = 0;
	char c;

	for (int i = 0; i < 3; i++) {	/* the first may tell of an earlier one */
		r = try(fd, &good);
		if (r == EINPROGRESS)
			settled(fd);
		say += snprintf(say, (size_t)(end - say), " %d", r);
		if (!r || r == EINPROGRESS || r == EISCONN)
			break;
	}
	if (state(fd) != TCP_ESTABLISHED) {
		snprintf(say, (size_t)(end - say), " state %d", state(fd));
		return;
	}
	for (n = 0, r = 0; n < rounds && !(r & 0xffff); n++)
		mask |= r = round_trip(fd, n);
	say += snprintf(say, (size_t)(end - say), " rounds %d:%d mask %x", n, r & 0xffff,
			mask >> 16);
	r = shut(fd, SHUT_WR);
	say += snprintf(say, (size_t)(end - say), " shut %d", r);
	if (r == 0) {
		n = (int)recv(fd, &c, 1, MSG_DONTWAIT);
		snprintf(say, (size_t)(end - say), " end %d shown %x", n < 0 ? -errno : n,
			 shown(fd));
	}
}

static void one(const char *order, char *say, size_t room)
{
	char *end = say + room;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), r;

	say += snprintf(say, room, "%s:", order);
	for (; *order; order++) {
		r = step(fd, *order);
		say += snprintf(say, (size_t)(end - say), " %c%d/%x", *order, r, shown(fd));
	}
	dialogue(fd, say, end);
	close(fd);
}

/* ---- all of them ---- */

static const char *letters;
static int length, orders, next;
static char (*said)[LONG];

/* The number's digits to the base of the number of letters, from 1: so each length has its own. */
static void order_of(int i, char *ret)
{
	int base = (int)strlen(letters), n = 0;

	for (i++; i; i = (i - 1) / base)
		ret[n++] = letters[(i - 1) % base];
	ret[n] = 0;
}

static void *work(void *arg)
{
	char order[32];
	int i;

	while ((i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < orders) {
		order_of(i, order);
		one(order, said[i], LONG);
	}
	return arg;
}

int main(int argc, char **argv)
{
	struct pollfd full = { .events = POLLIN };
	pthread_t t[THREADS];
	int base = 1;

	if (argc < 3)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(argv[1], "server"))
		serve(atoi(argv[2]));
	if (argc < 6)
		return 2;
	letters = argv[3];
	length = atoi(argv[4]);
	rounds = atoi(argv[5]);
	good.sin_family = AF_INET;
	good.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	refusing = deaf = good;
	listener(&refusing, -1);
	full.fd = listener(&deaf, 0);
	if (try(socket(AF_INET, SOCK_STREAM, 0), &deaf) || poll(&full, 1, PATIENCE_MS) != 1)
		return 2;	/* its queue is full from now on */
	good.sin_port = htons((uint16_t)atoi(argv[2]));
	for (int i = 0; i < length; i++)
		orders += base *= (int)strlen(letters);
	said = calloc((size_t)orders, LONG);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < orders; i++)
		puts(said[i]);
	return 0;
}
