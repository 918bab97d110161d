/*
 * ready_oracle.h - a part of test_ready_poll.c: the kernel as the oracle.
 */
enum { FDS = 14 };
static int zoo[FDS];

/* fds in all kinds of states; zoo[0] is an uncut stream, so that our code is in use. */
static void open_zoo(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int p[2], l, n = 0;
	char buf[4096] = { 0 };

	zoo[n++] = stream_fd(0, MODE_ATTACHED, &peer);
	zoo[n++] = stream_fd(1, MODE_NEW, &peer);
	ck_assert_int_eq(write(peer, "x", 1), 1);
	zoo[n++] = stream_fd(2, MODE_ATTACHED, &peer);
	close(peer);
	zoo[n++] = stream_fd(3, MODE_TCP_ONLY, &peer);
	shutdown(peer, SHUT_WR);
	ck_assert_int_eq(pipe(p), 0);		/* empty */
	zoo[n++] = p[0];
	zoo[n++] = p[1];
	ck_assert_int_eq(pipe(p), 0);		/* readable, and no writer */
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	close(p[1]);
	zoo[n++] = p[0];
	ck_assert_int_eq(pipe2(p, O_NONBLOCK), 0);	/* full */
	while (write(p[1], buf, sizeof buf) > 0)
		;
	zoo[n++] = p[1];
	ck_assert_int_eq(pipe(p), 0);		/* no reader: ERR */
	close(p[0]);
	zoo[n++] = p[1];
	ck_assert_int_eq(pipe(p), 0);		/* no writer, empty: HUP alone */
	close(p[1]);
	zoo[n++] = p[0];
	l = socket(AF_INET, SOCK_STREAM, 0);	/* listening */
	ck_assert_int_eq(bind(l, (struct sockaddr *)&a, sizeof a), 0);
	ck_assert_int_eq(listen(l, 5), 0);
	ck_assert_int_eq(getsockname(l, (struct sockaddr *)&a, &len), 0);
	zoo[n++] = l;
	l = socket(AF_INET, SOCK_STREAM, 0);	/* urgent data */
	ck_assert_int_eq(connect(l, (struct sockaddr *)&a, sizeof a), 0);
	zoo[n] = accept(zoo[n - 1], NULL, NULL);
	n++;
	ck_assert_int_eq(send(l, "!", 1, MSG_OOB), 1);
	usleep(10000);
	zoo[n++] = socket(AF_INET, SOCK_STREAM, 0);	/* not connected: HUP */
	zoo[n++] = open("/dev/null", O_RDWR);
	ck_assert_int_eq(n, FDS);
}

START_TEST(poll_as_the_kernel)
{
	static const short bits[] = { POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM,
				      POLLRDBAND, POLLWRBAND };
	int max = _i ? 200 : 20;

	open_zoo();
	srand(1);
	for (int round = 0; round < 2000; round++) {
		struct pollfd a[200], b[200];
		int n = 1 + rand() % max, ra, rb;

		for (int i = 0; i < n; i++) {
			int k = rand() % (FDS + 2);

			a[i].fd = k < FDS ? zoo[k] : k == FDS ? -1 : 997;
			a[i].events = 0;
			a[i].revents = 0x55;
			for (size_t j = 0; j < sizeof bits / sizeof *bits; j++)
				if (rand() & 1)
					a[i].events |= bits[j];
		}
		memcpy(b, a, sizeof a);
		ra = ready_poll(a, (nfds_t)n, 0, NULL);
		rb = poll(b, (nfds_t)n, 0);
		ck_assert_int_eq(ra, rb);
		for (int i = 0; i < n; i++)
			ck_assert_msg(a[i].revents == b[i].revents && a[i].fd == b[i].fd &&
					      a[i].events == b[i].events,
				      "fd %d events %x: %x, kernel %x", a[i].fd, a[i].events,
				      a[i].revents, b[i].revents);
	}
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(streams[i].plain.rx, 0);
}
END_TEST

START_TEST(select_as_the_kernel)
{
	int closed, refused = 0;

	open_zoo();
	srand(2);
	bell_thread();		/* takes its number now */
	closed = dup(zoo[4]);	/* within the kernel's table: bits beyond that it does not even
				 * look at */
	ck_assert_int_ge(closed, 0);
	close(closed);
	for (int round = 0; round < 3000; round++) {
		fd_set a[3], b[3];
		int ra, rb, bad = rand() % 50 == 0, wait = rand() % 20 == 0;
		struct timeval t = { 0, wait ? 2000 : 0 };

		for (int k = 0; k < 3; k++) {
			FD_ZERO(&a[k]);
			for (int i = 0; i < FDS; i++)
				if (rand() % 3 == 0)
					FD_SET(zoo[i], &a[k]);
		}
		if (bad)
			FD_SET(closed, &a[round % 3]);
		memcpy(b, a, sizeof a);
		ra = ready_select(256, &a[0], &a[1], round & 1 ? &a[2] : NULL, wait ? in_ms(2) : 0,
				  NULL);
		rb = select(256, &b[0], &b[1], round & 1 ? &b[2] : NULL, &t);
		ck_assert_int_eq(ra, rb < 0 ? -errno : rb);
		refused += rb < 0;
		for (int fd = 0; fd < 256; fd++)
			for (int k = 0; k < 3; k++)
				ck_assert_msg(!FD_ISSET(fd, &a[k]) == !FD_ISSET(fd, &b[k]),
					      "fd %d set %d", fd, k);
	}
	ck_assert_msg(refused > 0, "EBADF was not tried, fd %d", closed);
	ck_assert_int_eq(ready_select(-1, NULL, NULL, NULL, 0, NULL), -EINVAL);
}
END_TEST

/* select for writing, or for exceptions, does not see HUP: no return, no busy loop. */
START_TEST(select_ignores_hup)
{
	int s = stream_fd(0, MODE_ATTACHED, &peer), p[2], top;
	uint64_t t0;
	fd_set x, w;

	ck_assert_int_eq(pipe(p), 0);
	close(p[1]);
	top = (s > p[0] ? s : p[0]) + 1;
	for (int ours = 0; ours < 2; ours++) {
		struct timeval t = { 0, 50000 };

		FD_ZERO(&x);
		FD_ZERO(&w);
		FD_SET(s, &x);
		FD_SET(p[0], &x);
		FD_SET(p[0], &w);
		naps = 0;
		t0 = now_ns();
		if (ours)
			ck_assert_int_eq(ready_select(top, NULL, &w, &x, t0 + 50000000, NULL), 0);
		else
			ck_assert_int_eq(select(top, NULL, &w, &x, &t), 0);
		ck_assert_uint_ge(now_ns() - t0, 50000000);
		ck_assert_int_le(naps, 5);
	}
}
END_TEST

START_TEST(select_sees_the_path)
{
	int fd = cut_fd(0);
	fd_set r, w, x;

	for (int i = 0; i < 4; i++) {
		int n;

		FD_ZERO(&r);
		FD_ZERO(&w);
		FD_ZERO(&x);
		FD_SET(fd, &r);
		FD_SET(fd, &w);
		FD_SET(fd, &x);
		shows(0, (i & 1 ? EPOLLIN : 0) | (i & 2 ? EPOLLOUT : 0));
		n = ready_select(fd + 1, &r, &w, &x, in_ms(10), NULL);
		ck_assert_int_eq(n, (i & 1) + (i >> 1));
		ck_assert_int_eq(!!FD_ISSET(fd, &r), i & 1);
		ck_assert_int_eq(!!FD_ISSET(fd, &w), i >> 1);
		ck_assert(!FD_ISSET(fd, &x));
	}
	ck_assert(ready_select_needed(fd + 1, &r, NULL, NULL));
	ck_assert(!ready_select_needed(fd, &r, &w, &x));
	ck_assert(!ready_select_needed(fd + 1, NULL, NULL, &x));
}
END_TEST

static long mapped_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long n = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%ld", &n), 1);
	fclose(f);
	return n;
}

static void *big_poll(void *arg)
{
	static __thread struct pollfd f[5000];
	int fd = *(int *)arg;

	for (int i = 0; i < 5000; i++)
		f[i] = (struct pollfd){ -1, POLLIN, 1 };
	f[4999].fd = fd;
	for (int i = 0; i < 3; i++) {
		if (ready_poll(f, 5000, in_ms(100), NULL) != 1 || f[4999].revents != POLLIN ||
		    f[0].revents)
			return (void *)"wrong";
	}
	return NULL;
}
