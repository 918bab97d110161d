/*
 * lies_promised.h - what a peer may promise and never bring: a call of the victim's that must not
 * block waits for it, and with it all that this thread serves. For peer.c only.
 */
#ifndef LIES_PROMISED_H
#define LIES_PROMISED_H

/* How long an honest connection waits for its echo, in ms. */
static int echo_takes(void)
{
	struct sockaddr_in a = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct since start = since_now(PROGRAM);
	char c;

	if (connect(fd, (void *)&a, sizeof a) || send(fd, "x", 1, 0) != 1 || !readable(fd, 30000) ||
	    recv(fd, &c, 1, 0) != 1)
		broken("no echo within 30 s");
	close(fd);
	return took_ms(&start);
}

/* So many links of one peer, on each a rewind that does not end and a byte that was promised. An
 * honest connection waits for one second of that, and no longer, or not for that if we are
 * another user. */
static void promised_by(int most)
{
	static struct peer h[8];
	int n = 8, worst = 0, ms, sum = 0;

	for (int i = 0; i < n; i++)
		get_path(&h[i]);
	for (int i = 0; i < n; i++) {
		put(&h[i], "a", 1);
		nap(2);
		say_cut(&h[i], CUT_MSG_REWIND, h[i].tx_epoch, 0);
	}
	nap(30);
	for (int i = 0; i < n; i++) {
		atomic_store(&h[i].tx.sh->wr, atomic_load(&h[i].tx.sh->wr) + 1000);
		ring_all(&h[i]);
	}
	for (int i = 0; i < 20; i++) {
		ms = echo_takes();
		worst = ms > worst ? ms : worst;
		sum += ms;
		nap(5);
	}
	if (worst > most || sum > most + 20 * AT_ONCE / 4)
		late("another connection's echo", worst > most ? worst : sum);
}

static void promised_many(void) { promised_by(1000 + 2 * AT_ONCE); }

static void promised_other(void)
{
	become_other();
	promised_by(2 * AT_ONCE);
}

/* The victim starts a program that inherits our connection, which we never let fall back: one after
 * the other. */
static void promised_fallback(void)
{
	static struct peer h[4];
	int ms, sum = 0;

	become_other();
	for (int i = 0; i < 4; i++) {
		get_path(&h[i]);
		ms = echo_takes();
		sum += ms;
		if (ms > 100 + AT_ONCE * (i + 1))
			late("the start of a program", ms);
	}
	if (sum > 100 + 8 * AT_ONCE)
		late("the start of 4 programs", sum);
}

#endif
