/*
 * lies_bells.h - a part of lies_link.h: bells.
 */
static void regular_bell(void)
{
	char path[] = "/tmp/rdmashim-bell.XXXXXX";
	struct peer h;
	int fd = mkstemp(path);

	unlink(path);
	get_linked(&h);
	say(&h, record(CTL_BELL, 0, 0, 0, 0), fd);
	must_close(&h, "a file for a bell");
	if (lseek(fd, 0, SEEK_END))
		broken("the victim wrote to the file");
}

/* A descriptor that would block whoever rings it. */
static void refused_bell(int fd, const char *what)
{
	struct peer h;

	get_path(&h);
	say(&h, record(CTL_BELL, 0, 5, 0, 0), fd);
	must_close(&h, what);
}

static void full_pipe_bell(void)
{
	int p[2];
	char buf[4096] = { 0 };

	if (pipe(p))
		broken("pipe");
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	while (write(p[1], buf, sizeof buf) > 0)
		;
	while (write(p[1], buf, 1) > 0)
		;
	fcntl(p[1], F_SETFL, 0);
	refused_bell(p[1], "a pipe for a bell");
}

static void full_eventfd_bell(void)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	uint64_t most = UINT64_MAX - 1;

	if (write(fd, &most, sizeof most) != sizeof most)
		broken("eventfd");
	refused_bell(fd, "an eventfd for a bell");
}

static void socket_bell(void)
{
	int s[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, s))
		broken("socketpair");
	refused_bell(s[0], "a socket for a bell");
}

/* All that another holder of a timer can do to it. */
static void turn(int fd)
{
	static const struct itimerspec never, storm = { { 0, 1 }, { 0, 1 } };
	uint64_t n, most = UINT64_MAX;

	switch (rnd() % 4) {
	case 0: timerfd_settime(fd, 0, &storm, NULL); break;
	case 1:
		timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &storm, NULL);
		break;
	case 2: sys(SYS_ioctl, fd, BELL_SET_TICKS, &most); break;
	default: bell_ring_fd(fd);
	}
	for (uint64_t i = rnd() % 1000; i; i--)	/* the victim wakes */
		arch_pause();
	timerfd_settime(fd, 0, &never, NULL);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (read(fd, &n, sizeof n) > 0)
		;
	fcntl(fd, F_SETFL, 0);		/* who reads it now sleeps */
}

/* In spite of what this scenario does the victim's honest connection gets on. */
static void must_go_on(uint64_t bursts)
{
	uint64_t was = progress ? *progress : 0, seen = was;

	for (int64_t end = now_ms() + 5000; progress && seen < was + bursts * 120000;
	     seen = *progress) {
		if (now_ms() > end)
			broken("the victim's honest connection got on by %llu bytes only",
			       (unsigned long long)(seen - was));
		nap(2);
	}
}

/* The last reference to a socket whose close waits: unsent data, SO_LINGER, and a receiver that
 * never reads. */
static int lingering(int *keep)
{
	struct sockaddr_in a = loopback(0);
	struct linger wait = { 1, 60 };
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char junk[65536];

	if (bind(l, (void *)&a, len) || listen(l, 4) || getsockname(l, (void *)&a, &len) ||
	    connect(fd, (void *)&a, len) || (*keep = accept4(l, NULL, NULL, SOCK_CLOEXEC)) < 0)
		broken("lingering: %s", strerror(errno));
	close(l);
	while (send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof wait))
		broken("SO_LINGER");
	return fd;
}

static void *closes(void *fd)
{
	close((int)(intptr_t)fd);
	return NULL;
}

/* If the victim was faster we have the last descriptor, and it is we who would wait. */
static void close_apart(int fd)
{
	pthread_t t;

	if (pthread_create(&t, NULL, closes, (void *)(intptr_t)fd))
		broken("pthread_create");
	pthread_detach(t);
}

/* Sockets whose close takes long, as proofs that prove nothing: nobody of the victim's waits for
 * that. */
static void lingers(void)
{
	struct ctl_tuple t;
	struct ctl_msg m;
	struct peer h;
	int keep[2];

	get_linked(&h);
	for (int i = 0; i < 2; i++) {
		int fd = lingering(&keep[i]);

		m = record(CTL_BIND, first_slot(&h) + (uint32_t)i, 0, 0, 0);
		t = h.tuple, t.pport++;
		m.tuple = t;
		say(&h, m, fd);
		close_apart(fd);
		if (!hear_type(&h, CTL_NOT_MINE, &m, 500))
			broken("no answer beside a socket that lingers");
	}
	m = record(CTL_BIND, first_slot(&h) + 2, 0, 0, 0);
	m.tuple = t;
	say(&h, m, h.tcp);
	if (!hear_type(&h, CTL_NOT_MINE, &m, 500))
		broken("no answer after two sockets that linger");
}

/* Bells of ours and of the victim's: a call on one that looks at the flags of the open file, or
 * at what is in it, blocks. Goes on until it is killed. */
static void turned_bell(void)
{
	int clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME_ALARM };
	struct ctl_msg m;
	struct peer h;

	get_path(&h);
	for (uint32_t i = 1; i < BELL_MAX; i++) {
		int fd = timerfd_create(clocks[i % 3], TFD_NONBLOCK | TFD_CLOEXEC);

		if (fd < 0)		/* no capability for alarms */
			fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
		say(&h, record(CTL_BELL, 0, i, 0, 0), fd);
		fcntl(fd, F_SETFL, 0);
		timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET,
				&(struct itimerspec){ { 0, 1 }, { 0, 1 } }, NULL);
	}
	if (fork()) {
		nap(300);
		must_go_on(20);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		atomic_store(&h.a.side[h.a.me].armed, UINT64_MAX);
		atomic_store(&h.a.slot[h.slot].side[h.a.me].bells, UINT64_MAX);
		put(&h, "hello", 5);
		for (int64_t end = now_ms() + 5; now_ms() < end;)
			for (int b = 0; b < BELL_MAX; b++)
				if (h.bell[b] >= 0)
					turn(h.bell[b]);
		if (hear(&h, &m, 0) < 0)
			_exit(1);
	}
}

/* All bells of many links: the victim's own descriptors must not run out for others. */
static void many_bells(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct peer h;

	get_tcp(&h);
	for (int l = 0; l < 60; l++) {
		h.ctl = try_call_victim(&h, 500);
		if (h.ctl < 0 || !ask_in(&h, 500))
			break;		/* it has enough */
		segment_unmap(&h.a);
		for (uint32_t i = 0; i < BELL_MAX; i++)
			say(&h, record(CTL_BELL, 0, i, 0, 0), timer);
	}
}

/* Links that nobody proves to be worth one are given up, though their maker lives, and does not
 * read. */
static void unproven(void)
{
	struct pollfd p[20];
	struct peer h;
	int left = 20;

	get_tcp(&h);
	for (int i = 0; i < left; i++) {
		p[i] = (struct pollfd){ .fd = h.ctl = call_victim(&h) };
		if (say(&h, record(CTL_HELLO, 0, 0, 0, 0), -1))
			broken("HELLO");
	}
	for (int64_t end = now_ms() + 8000; left && now_ms() < end; nap(20)) {
		left = 0;
		poll(p, 20, 0);
		for (int i = 0; i < 20; i++)
			left += !(p[i].revents & POLLHUP);
	}
	if (left)
		broken("%d links of 20 without a connection are kept", left);
}

/* As many links as the victim gives, each with a connection of its own, and nothing moves on any
 * of them. The table looks what they cost; those who come after them are served. */
static void many_links(void)
{
	struct ctl_msg m;
	struct peer h;
	uint32_t slot;
	int n = 0;

	for (; n < 250; n++) {
		peer_call(&h, port);
		h.ctl = try_call_victim(&h, 300);
		if (h.ctl < 0 || !ask_in(&h, 500))
			break;
		slot = first_slot(&h);
		segment_unmap(&h.a);
		say_bind(&h, slot, h.tcp);
		if (!hear_type(&h, CTL_BOUND, &m, 500))
			break;
	}
	if (n < 16)
		broken("only %d links", n);
}
