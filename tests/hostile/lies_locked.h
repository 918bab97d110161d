/*
 * lies_locked.h - sockets that cannot be asked: a thread of the peer's is inside send() with
 * memory that never comes, and so has the kernel's lock of the socket, for which nobody can be
 * woken (lock_sock()). And a socket of AF_UNIX with a connection that lingers in its queue. For
 * peer.c only.
 */
#ifndef LIES_LOCKED_H
#define LIES_LOCKED_H

static int locked_socket;
static void *locked_memory;

static void *sends_for_ever(void *arg)
{
	(void)arg;
	send(locked_socket, locked_memory, 4096, MSG_NOSIGNAL);
	return NULL;
}

static void memory_that_never_comes(void) { locked_memory = never_there(4096); }

/* From now on the socket is locked, as long as we live. */
static void lock_up(int sock)
{
	pthread_t t;

	locked_socket = sock;
	if (pthread_create(&t, NULL, sends_for_ever, NULL))
		broken("pthread_create");
	nap(100);
}

/* The other end of the connection, as a proof. */
static void locked_bind_by(bool other)
{
	struct peer h;

	memory_that_never_comes();
	if (other)
		become_other();
	get_linked(&h);
	lock_up(h.tcp);
	say_bind(&h, first_slot(&h), h.tcp);
	thread_works("a socket that is locked, as a proof");
}

static void locked_bind(void) { locked_bind_by(false); }
static void locked_bind_other(void) { locked_bind_by(true); }

/* The victim's own socket, or what it has passed to us for that; we are bound. */
static int victims_own(struct peer *h)
{
	int64_t end = now_ms() + 3000;
	struct ctl_msg m = { 0 };
	int own;

	get_linked(h);
	h->slot = first_slot(h);
	do {	/* NOT_MINE as long as the victim forks */
		if (!h->server) {
			segment_slot_reset(&h->a, h->slot);
			say_bind(h, h->slot, h->tcp);
		}
		if (hear(h, &m, 1000) < 0)
			broken("the victim has left");
	} while (m.type != (h->server ? CTL_BIND : CTL_BOUND) && now_ms() < end);
	if (h->got_fd < 0)
		broken("not bound: record %u, %u", m.type, m.index);
	own = fcntl(h->got_fd, F_DUPFD_CLOEXEC, 3);
	if (h->server) {
		h->slot = m.slot;
		m = record(CTL_BOUND, m.slot, 0, 0, 0);
		m.tuple = h->tuple;
		say(h, m, h->tcp);
	}
	return own;
}

/* What proves that the victim has the socket lets us do nothing with it, whatever we try. */
static void takes_own(void)
{
	static const struct linger wait = { 1, 60 };
	char path[64], byte;
	struct peer h;
	int own;

	become_other();
	own = victims_own(&h);
	snprintf(path, sizeof path, "/proc/self/fd/%d", own);
	if (send(own, "y", 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
	    recv(own, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EBADF ||
	    !fcntl(own, F_SETFL, O_RDWR) || !shutdown(own, SHUT_RD) || open(path, O_RDWR) >= 0 ||
	    !setsockopt(own, SOL_SOCKET, SO_LINGER, &wait, sizeof wait))
		broken("the victim's own socket is ours to use");
}

/* The victim's own, which it has passed to us. */
static void locked_own(void)
{
	struct peer h;

	memory_that_never_comes();
	become_other();
	lock_up(victims_own(&h));
	say_cut(&h, CUT_MSG_ARM, 1, 0);
	thread_works("a socket of the victim's that we have locked");
}

/* It is made one that blocks, behind the back of the program, which waits for all its
 * connections in one thread. */
static void turned_own(void)
{
	static char junk[65536];
	struct peer h;
	int own;

	become_other();
	own = victims_own(&h);
	fcntl(own, F_SETFL, O_RDWR);
	say(&h, record(CTL_UNBIND, h.slot, 0, 0, 0), -1);
	nap(300);
	for (int idle = 0; idle < 30; nap(10))
		if (send(h.tcp, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			idle++;
	thread_works("the victim's own socket, which we have made one that blocks");
}

/* It is made one that lingers, which the program closes. */
static void lingers_own(void)
{
	struct linger wait = { 1, 60 };
	static char junk[1024];
	int own, small = 4096;
	struct peer h;

	become_other();
	own = victims_own(&h);
	setsockopt(h.tcp, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	setsockopt(own, SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
	close(own);
	close(h.got_fd);
	close(h.ctl);
	nap(300);
	for (int i = 0; i < 400; i++) {
		send(h.tcp, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL);
		nap(1);
	}
	shutdown(h.tcp, SHUT_WR);
	nap(100);
	thread_works("the victim's own socket, which we have made linger");
}

static bool victim_waits_for_lock(void)
{
	char path[300], where[64] = "";
	bool waits = false;
	struct dirent *e;
	DIR *d;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/task", victim);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "/proc/%d/task/%s/wchan", victim, e->d_name);
		f = fopen(path, "r");
		if (f && fgets(where, sizeof where, f))
			waits |= !strcmp(where, "__lock_sock");
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return waits;
}

/* Whether we, who accepted, connected as well: the kernel knows, by figures that need the lock. */
static void locked_asked(void)
{
	struct peer h;

	memory_that_never_comes();
	for (int i = 0; i < 12; i++) {		/* who comes last in order is not asked about */
		peer_take(&h, listener);
		if ((h.tuple.pport & 255) < (h.tuple.lport & 255))
			break;
		close(h.tcp);
	}
	lock_up(h.tcp);
	nap(1000);
	if (victim_waits_for_lock())
		broken("the victim waits for the lock of a socket of ours");
}

/* In the queue of a socket that is passed alone. */
static void lingers_inside(void)
{
	struct ctl_msg m;
	struct peer h;
	int keep, pair[2], fd;

	get_linked(&h);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		broken("socketpair");
	fd = lingering(&keep);
	if (say_raw(pair[0], "x", 1, &fd, 1))
		broken("pass: %s", strerror(errno));
	close(fd);		/* not the last: one is in the queue */
	close(pair[0]);
	m = record(CTL_BIND, first_slot(&h), 0, 0, 0);
	m.tuple = h.tuple, m.tuple.pport++;
	stop_victim();
	say(&h, m, pair[1]);
	close(pair[1]);
	kill(victim, SIGCONT);
	thread_works("a socket with another in its queue, which lingers");
}

/* On each of many links as many as can be passed: they would all wait in queues of the victim's
 * user, who may have so many only, in all processes. The first is the last. */
static void crams(void)
{
	struct peer h[4], more;
	struct ctl_msg m;
	int fds[MAX_FDS];

	become_other();
	for (int i = 0; i < 4; i++)
		get_bound(&h[i]);
	for (int i = 0; i < MAX_FDS; i++)
		fds[i] = h[0].tcp;
	m = record(CTL_BIND, first_slot(&h[0]) + 1, 0, 0, 0);
	m.tuple = h[0].tuple;
	say_raw(h[0].ctl, &m, sizeof m, fds, MAX_FDS);
	for (int i = 0; i < 4; i++)
		must_close(&h[i], "16 sockets on one of a user's links");
	get_tcp(&more);
	if ((more.ctl = try_call_victim(&more, 1000)) >= 0 && ask_in(&more, 1000))
		broken("who has passed 16 sockets at once is let in again");
}

#endif
