/*
 * lies_linger.h - connections that linger, passed by a peer who is let in: each close of the last
 * descriptor of one takes a minute, whoever makes it, by close(), by reading a record without room
 * for it, or by closing a socket with it in the queue. For peer.c only.
 */
#ifndef LIES_LINGER_H
#define LIES_LINGER_H

/* The library's thread does what a new connection needs. */
static void thread_works(const char *what)
{
	struct peer h;
	struct since start = since_now(LIBRARY);

	get_linked(&h);
	if (took_ms(&start) > 1000)
		late(what, took_ms(&start));
	close(h.ctl);
	close(h.tcp);
}

static bool victim_stands(void)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", victim);
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d %*s %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return state == 'T';
}

static void stop_victim(void)
{
	kill(victim, SIGSTOP);
	for (int64_t end = now_ms() + 1000; !victim_stands() && now_ms() < end;)
		nap(1);
}

/* Says a record with a socket that lingers beside it, behind `n` others, and again, while the
 * victim stands: the last references are his, and the second one is left in the queue. By a child,
 * if it is not. */
static void say_lingering(struct peer *h, const struct ctl_msg *m, size_t len, const int *first,
			  int n)
{
	int said[2], fds[MAX_FDS], second, keep;
	char c = 0;

	if (pipe2(said, O_CLOEXEC))
		broken("pipe");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memcpy(fds, first, (size_t)n * sizeof *fds);
		fds[n] = lingering(&keep);
		second = lingering(&keep);
		for (stop_victim(); say_raw(h->ctl, m, len, fds, n + 1) == -EPERM; stop_victim()) {
			kill(victim, SIGCONT);	/* it has not opened yet */
			nap(1);
		}
		if (say_raw(h->ctl, m, len, &second, 1) || close(fds[n]) || close(second) ||
		    write(said[1], "s", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(said[1]);
	if (!readable(said[0], 3000) || read(said[0], &c, 1) != 1)
		c = 0;
	kill(victim, SIGCONT);
	if (c != 's')
		broken("no socket that lingers can be passed");
	close(said[0]);
}

/* Behind the one that is right, and as one of many. */
static void lingers_second(void)
{
	int fds[MAX_FDS - 1];
	struct peer h;
	struct ctl_msg m;

	for (int n = 1; n < MAX_FDS; n += MAX_FDS - 2) {
		get_linked(&h);
		for (int i = 0; i < n; i++)
			fds[i] = h.tcp;
		m = record(CTL_BIND, first_slot(&h), 0, 0, 0);
		m.tuple = h.tuple;
		say_lingering(&h, &m, sizeof m, fds, n);
		must_close(&h, "more sockets than belong there");
		thread_works("a second socket, which lingers");
	}
}

/* Beside a record that has none. */
static void lingers_wrong(void)
{
	struct peer h;
	struct ctl_msg m;

	for (int bound = 0; bound < 2; bound++) {
		if (bound)
			get_bound(&h);
		else
			get_linked(&h);
		m = record(CTL_CUT, first_slot(&h) + 1, 7, 0, 0);
		say_lingering(&h, &m, sizeof m, NULL, 0);
		thread_works("a socket that lingers, where nothing belongs");
	}
}

/* In the queue of a link that ends, also beside a record that looks like the end. */
static void lingers_left(void)
{
	struct ctl_msg m = { 0 };
	struct peer h;

	for (int len = sizeof m; len >= 0; len -= (int)sizeof m) {
		get_linked(&h);
		say_lingering(&h, &m, (size_t)len, NULL, 0);
		thread_works("a socket that lingers, left in the queue");
	}
}

/* Instead of HELLO. */
static void lingers_at_the_door(void)
{
	struct ctl_msg m = { 0 };
	struct peer h;

	get_tcp(&h);
	h.ctl = call_victim(&h);
	say_lingering(&h, &m, sizeof m, NULL, 0);
	thread_works("a socket that lingers, in place of HELLO");
}

/* More than may wait: he who brings them loses his link, and nobody else waits. */
static void lingers_many(void)
{
	struct peer other, h;
	struct ctl_msg m;
	int keep, r = 0;

	get_bound(&other);
	get_bound(&h);
	for (int batch = 0; batch < 5 && !r; batch++) {
		int fds[150], said = 0;

		for (int i = 0; i < 150; i++)
			fds[i] = lingering(&keep);
		m = record(CTL_BIND, first_slot(&h) + 1, 0, 0, 0);
		m.tuple = h.tuple, m.tuple.pport++;
		stop_victim();	/* so that the last reference is his */
		while (said < 150 && !(r = say(&h, m, fds[said])))
			close(fds[said++]);
		kill(victim, SIGCONT);
		for (int i = said; i < 150; i++) {
			struct linger reset = { 1, 0 };

			setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
			close(fds[i]);
		}
	}
	if (!r)
		must_close(&h, "too many sockets that linger");
	m = record(CTL_BIND, first_slot(&other) + 1, 0, 0, 0);
	m.tuple = other.tuple, m.tuple.pport++;
	if (say(&other, m, other.tcp) || !hear_type(&other, CTL_NOT_MINE, &m, 1000))
		broken("the victim's thread waits for many sockets that linger");
}

/* Threads of the victim that may still gain what it gave up. */
static int threads_that_kept(void)
{
	char path[300], text[200];
	struct dirent *e;
	int n = 0;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/task", victim);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		FILE *f;

		snprintf(path, sizeof path, "/proc/%d/task/%s/status", victim, e->d_name);
		f = fopen(path, "r");
		while (f && fgets(text, sizeof text, f))
			n += !strcmp(text, "NoNewPrivs:\t0\n");
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

/* The victim gives up a right while a thread of its library closes what we make linger. */
static void closes_meanwhile(void)
{
	struct peer h;
	struct ctl_msg m;
	int keep, fd, r;
	int64_t end;

	get_linked(&h);
	fd = lingering(&keep);
	m = record(CTL_CUT, first_slot(&h) + 1, 7, 0, 0);
	stop_victim();
	r = say(&h, m, fd);
	close(fd);
	kill(victim, SIGCONT);
	for (end = now_ms() + 3000; victim_status("Threads:") < 3 && now_ms() < end;)
		nap(1);
	if (r || victim_status("Threads:") < 3)
		broken("nothing that lingers is being closed");
	kill(victim, SIGHUP);
	for (end = now_ms() + 3000; !victim_status("NoNewPrivs:") && now_ms() < end;)
		nap(1);
	close(keep);
	for (end = now_ms() + 3000; threads_that_kept() && now_ms() < end;)
		nap(10);
	if (!victim_status("NoNewPrivs:") || threads_that_kept())
		broken("%d threads of the victim have kept what it gave up", threads_that_kept());
	close(h.ctl);
	close(h.tcp);
}

#endif
