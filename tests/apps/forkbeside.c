/*
 * forkbeside.c - children that are forked while other threads of their parent make, bind, copy
 * and close connections: each connection still has its end when all that know of it have closed
 * it.
 *
 * 	forkbeside proofs N	N rounds; connections come, and are bound, while the main
 * 				thread forks
 * 	forkbeside copies N	N rounds; a thread puts copies of a connection in each other's
 * 				place by dup2(), while the main thread forks
 *
 * The children do nothing and live until their round is over. Prints how many connections were
 * without their end. Locks: none.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNS 60
#define KIDS  100

static struct sockaddr_in at;
static int lis, gate[2], conn[CONNS];
static pid_t kid[KIDS];
static int nkids;
static atomic_int done, stop;

static void nap_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static void one_byte(int fd, int out)
{
	char c = 'x';

	if ((out ? write(fd, &c, 1) : read(fd, &c, 1)) != 1)
		err(2, out ? "write" : "read");
}

/* True: the child, which is to live for a while. */
static void bear(void (*in_child)(void))
{
	pid_t p = nkids < KIDS ? fork() : -1;

	if (!p) {
		in_child();
		for (;;)
			pause();
	}
	if (p > 0)
		kid[nkids++] = p;
}

static void bury(void)
{
	while (nkids) {
		kill(kid[--nkids], SIGKILL);
		waitpid(kid[nkids], NULL, 0);
	}
}

static int has_no_end(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char c;

	return poll(&p, 1, 3000) != 1 || read(fd, &c, 1) != 0;
}

static void nothing(void) { }

/* ---- proofs ---- */

/* The other process: its ends are its own, and only it closes them. */
static void caller(void)
{
	int fd[CONNS];
	char c;

	while (read(gate[1], &c, 1) == 1) {
		for (int i = 0; i < CONNS; i++) {
			fd[i] = socket(AF_INET, SOCK_STREAM, 0);
			if (connect(fd[i], (void *)&at, sizeof(at)))
				err(2, "connect");
			one_byte(fd[i], 1);
			one_byte(fd[i], 0);
		}
		one_byte(gate[1], 0);
		for (int i = 0; i < CONNS; i++)
			close(fd[i]);
		one_byte(gate[1], 1);
	}
	_exit(0);
}

static void *accepts(void *arg)
{
	for (int i = 0; i < CONNS; i++) {
		conn[i] = accept(lis, NULL, NULL);
		one_byte(conn[i], 0);
		one_byte(conn[i], 1);
	}
	atomic_store(&done, 1);
	return arg;
}

static int proofs(void)
{
	int bad = 0;
	pthread_t th;

	atomic_store(&done, 0);
	pthread_create(&th, NULL, accepts, NULL);
	one_byte(gate[0], 1);
	while (!atomic_load(&done)) {
		bear(nothing);
		nap_us(100);
	}
	pthread_join(th, NULL);
	nap_us(10000);
	one_byte(gate[0], 1);
	one_byte(gate[0], 0);
	for (int i = 0; i < CONNS; i++) {
		bad += has_no_end(conn[i]);
		close(conn[i]);
	}
	bury();
	return bad;
}

/* ---- copies ---- */

static int a, b, c1, c2;

static void *copies(void *arg)
{
	while (!atomic_load(&stop)) {
		dup2(b, c1);
		dup2(c1, c2);
	}
	return arg;
}

static void closes_all(void)
{
	close(a);
	close(b);
	close(c1);
	close(c2);
}

static int copied(void)
{
	pthread_t th;
	int bad;

	a = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(a, (void *)&at, sizeof(at)))
		err(2, "connect");
	b = accept(lis, NULL, NULL);
	one_byte(a, 1);
	one_byte(b, 0);
	c1 = dup(b);
	c2 = dup(b);
	atomic_store(&stop, 0);
	pthread_create(&th, NULL, copies, NULL);
	for (int i = 0; i < 20; i++) {
		bear(closes_all);
		nap_us(500);
	}
	atomic_store(&stop, 1);
	pthread_join(th, NULL);
	close(b);
	close(c1);
	close(c2);
	bad = has_no_end(a);
	close(a);
	bury();
	return bad;
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0, bad = 0,
	    of_proofs = argc > 1 && !strcmp(argv[1], "proofs");
	socklen_t len = sizeof(at);
	pid_t other = 0;

	at = (struct sockaddr_in){ .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	lis = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(lis, (void *)&at, len) || listen(lis, 128) ||
	    getsockname(lis, (void *)&at, &len) || socketpair(AF_UNIX, SOCK_STREAM, 0, gate))
		err(2, "sockets");
	if (of_proofs) {
		other = fork();
		if (!other) {
			close(lis);
			close(gate[0]);
			caller();
		}
		close(gate[1]);
	}
	while (n-- > 0 && bad < 3)
		bad += of_proofs ? proofs() : copied();
	printf("%d without their end\n", bad);
	if (other > 0) {
		close(gate[0]);
		waitpid(other, NULL, 0);
	}
	return 0;
}
