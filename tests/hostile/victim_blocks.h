/*
 * victim_blocks.h - a part of victim.c: lends its connection, and sends blocks.
 */
#define BLOCK (256 * 1024)
/* blocks that the server echoes, then its child, then the server again */
#define EACH  3

static bool whole(int fd, uint8_t *p, bool out)
{
	for (size_t done = 0; done < BLOCK;) {
		ssize_t n = out ? send(fd, p + done, BLOCK - done, MSG_NOSIGNAL)
				: recv(fd, p + done, BLOCK - done, MSG_WAITALL);

		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		if (n > 0)
			done += (size_t)n;
	}
	return true;
}

static bool echo_blocks(int fd)
{
	static uint8_t buf[BLOCK];

	for (int i = 0; i < EACH; i++)
		if (!whole(fd, buf, false) || !whole(fd, buf, true))
			return false;
	return true;
}

static void lend_one(int fd)
{
	int status;
	pid_t pid;

	if (!echo_blocks(fd))
		die("blocks");
	pid = fork();
	if (!pid)
		_exit(!echo_blocks(fd));
	while (pid > 0 && waitpid(pid, &status, 0) != pid)
		if (errno != EINTR)
			die("waitpid");
	if (pid < 0 || status || !echo_blocks(fd) || recv(fd, &status, 1, 0) != 0)
		die("blocks of the child or after it");
	close(fd);
}

static int lend(int port)
{
	struct sockaddr_in a = at(port);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, fd;
	struct pollfd p = { .fd = l, .events = POLLIN };

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (l < 0 || bind(l, (void *)&a, sizeof a) || listen(l, 256))
		die("listen");
	while (!stop)
		if (poll(&p, 1, -1) == 1 && (fd = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0)
			lend_one(fd);
	return 0;
}

static int blocks(int port, int conns, int pause)
{
	static uint8_t out[BLOCK], in[BLOCK];
	uint32_t x = 1;
	int fd, p[2];

	if (pipe(p))
		die("pipe");
	for (int c = 0; c < conns; c++) {
		fd = call(port, false);
		fcntl(fd, F_SETFL, 0);
		for (int b = 0; b < 3 * EACH; b++) {
			for (size_t i = 0; i < BLOCK; i++)
				out[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
			if (!whole(fd, out, true) || !whole(fd, in, false))
				die("honest connection, block");
			if (memcmp(in, out, BLOCK)) {
				fprintf(stderr, "victim: WRONG BYTE in block %d of connection %d\n",
					b, c);
				exit(1);
			}
			total += 2 * BLOCK;
			poll(NULL, 0, pause);
			if (c < conns - 1 || b != 1)
				continue;
			fcntl(fd, F_SETFL, O_NONBLOCK);
			if (splice(fd, NULL, p[1], NULL, 1, SPLICE_F_NONBLOCK) >= 0 ||
			    errno != EAGAIN)
				die("splice");
			fcntl(fd, F_SETFL, 0);
		}
		if (shutdown(fd, SHUT_WR) || recv(fd, in, 1, 0) != 0)
			die("end of file");
		close(fd);
	}
	close(p[0]);
	close(p[1]);
	printf("%llu bytes\n", (unsigned long long)total);
	fflush(stdout);
	while (!stop)
		poll(NULL, 0, 50);
	return 0;
}
