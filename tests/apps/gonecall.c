/*
 * gonecall.c - a thread that ends inside a blocking call on a young connection; then the
 * connection is used as if nothing had been.
 *
 * 	gonecall recv|send|exit
 * recv, send: the thread is cancelled in that call; exit: it calls pthread_exit() in a signal
 * handler, inside recv(). Both ends of the connection are in this process. Prints the port, then
 * plays ball until there is something to read on fd 0; "done" at the end. Knows nothing of the
 * library.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "both.h"

static char block[1 << 20];

static void *receives(void *p)
{
	recv(b, block, sizeof block, 0);
	return p;
}

static void *sends(void *p)
{
	for (;;)
		if (write(a, block, 1000) < 0)
			die("write");
	return p;
}

static void leaves(int sig)
{
	(void)sig;
	pthread_exit(NULL);
}

static void play_ball(void)
{
	struct pollfd p = { .fd = 0, .events = POLLIN };
	char c[512];

	for (unsigned i = 0; !poll(&p, 1, 0); i++) {
		memset(c, (int)(i & 0xff), sizeof c);
		if (send(a, c, sizeof c, 0) != sizeof c ||
		    recv(b, c, sizeof c, MSG_WAITALL) != sizeof c || c[99] != (char)(i & 0xff) ||
		    send(b, c, sizeof c, 0) != sizeof c ||
		    recv(a, c, sizeof c, MSG_WAITALL) != sizeof c || c[99] != (char)(i & 0xff))
			die("ball");
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "recv";
	pthread_t th;

	signal(SIGUSR1, leaves);
	connect_both();
	if (pthread_create(&th, NULL, strcmp(what, "send") ? receives : sends, NULL))
		die("thread");
	usleep(200000);
	if (strcmp(what, "exit") ? pthread_cancel(th) : pthread_kill(th, SIGUSR1))
		die("cancel");
	pthread_join(th, NULL);
	while (recv(b, block, sizeof block, MSG_DONTWAIT) > 0)
		usleep(1000);
	play_ball();
	read(0, block, sizeof block);
	printf("done\n");
	return 0;
}
