/*
 * far_end.h - the far end of scenes.c and veils.c: a thread that receives into `into` when told.
 */
static int out_fd, in_fd;
static char *into;
static size_t into_n;
static _Atomic int go, done_;

static void *receiver(void *arg)
{
	(void)arg;
	for (;;) {
		while (!atomic_exchange(&go, 0))
			usleep(50);
		for (size_t at = 0; at < into_n;) {
			ssize_t r = recv(in_fd, into + at, into_n - at, 0);

			if (r <= 0)
				exit(4);
			at += (size_t)r;
		}
		atomic_store(&done_, 1);
	}
	return NULL;
}

static void begin_recv(char *p, size_t n)
{
	into = p;
	into_n = n;
	atomic_store(&go, 1);
	usleep(300);	/* most often it waits in recv() by then, so that an offer is taken;
			 * nothing depends on it */
}

static void end_recv(void)
{
	while (!atomic_exchange(&done_, 0))
		usleep(20);
}

static void send_all(const char *p, size_t n)
{
	while (n) {
		ssize_t r = send(out_fd, p, n, 0);

		if (r <= 0)
			exit(4);
		p += r;
		n -= (size_t)r;
	}
}

static void transfer(char *to, const char *from, size_t n)
{
	begin_recv(to, n);
	send_all(from, n);
	end_recv();
}
