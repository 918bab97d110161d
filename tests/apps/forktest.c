/*
 * forktest.c - hands a connection from one process to another in the middle of a stream, in
 * every way that programs do.
 *
 * 	forktest SCENARIO [-n BYTES] listen PORT | connect HOST PORT
 * The other end is `pattern -d both -n BYTES`. The first half of the stream is transferred, then
 * the scenario happens, then the rest; every byte is verified at both ends. Prints "SCENARIO ok"
 * at the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/arch.h"
#include "pattern.h"

#define CHUNK 20000

/* What has been transferred; shared between all processes of the test. */
struct progress {
	uint64_t sent, got;
	uint64_t bytes;
	bool server, raw, stdio;
};
static struct progress *at;
static FILE *in_file, *out_file;
static const char *self;

static void die(const char *what)
{
	fprintf(stderr, "forktest: %s: %s (sent %llu, got %llu)\n", what,
		errno ? strerror(errno) : "?", (unsigned long long)at->sent,
		(unsigned long long)at->got);
	_exit(1);
}

static ssize_t put(int fd, const void *b, size_t n)
{
	if (at->stdio)
		return fwrite(b, 1, n, out_file) == n && !fflush(out_file) ? (ssize_t)n : -1;
	return at->raw ? syscall(SYS_write, fd, b, n) : send(fd, b, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t take(int fd, void *b, size_t n)
{
	if (at->stdio)
		return fread(b, 1, n, in_file);
	return at->raw ? syscall(SYS_read, fd, b, n) : read(fd, b, n);
}

/* Sends up to `limit` and receives up to it, both at once. */
static void transfer(int fd, uint64_t limit)
{
	char b[CHUNK];

	while (at->sent < limit || at->got < limit) {
		struct pollfd p = { .fd = fd,
				    .events = (at->sent < limit ? POLLOUT : 0) |
					    (at->got < limit ? POLLIN : 0) };
		size_t n;
		ssize_t r;

		if (poll(&p, 1, -1) < 0)
			die("poll");
		if (p.revents & POLLOUT) {
			n = limit - at->sent < CHUNK ? limit - at->sent : CHUNK;
			if ((at->raw || at->stdio) && n > 500)	/* they would block */
				n = 500;
			pattern_fill(b, n, at->server ? 0x646f776e : 0x7570, at->sent);
			r = put(fd, b, n);
			if (r < 0 && errno != EAGAIN)
				die("send");
			if (r > 0)
				at->sent += r;
		}
		if (p.revents & (POLLIN | POLLHUP | POLLERR)) {
			n = limit - at->got < CHUNK ? limit - at->got : CHUNK;
			if (at->stdio && n > 500)
				n = 500;
			errno = 0;
			r = take(fd, b, n);
			if (r <= 0)
				die(r ? "receive" : "end of file");
			if (pattern_check(b, r, at->server ? 0x7570 : 0x646f776e, at->got) !=
			    (size_t)r)
				die("wrong byte");
			at->got += r;
		}
	}
}

static void finish(int fd)
{
	char c;
	ssize_t r;

	transfer(fd, at->bytes);
	if (shutdown(fd, SHUT_WR))
		die("shutdown");
	r = at->stdio ? fgetc(in_file) != EOF : read(fd, &c, 1);
	if (r != 0)
		die("no end of file");
	close(fd);
}

static void reap(pid_t pid)
{
	int st;

	if (waitpid(pid, &st, 0) != pid || st != 0)
		die("child failed");
}

/* ---- the scenarios: fd is in the middle of the stream ---- */

static void by_child(int fd)		/* as a server that forks per connection */
{
	pid_t p = fork();

	if (p == 0) {
		finish(fd);
		_exit(0);
	}
	close(fd);
	reap(p);
}

static void by_parent(int fd)		/* the child knows nothing of it and ends */
{
	pid_t p = fork();

	if (p == 0)
		_exit(0);
	reap(p);
	finish(fd);
}

static void child_lingers(int fd)	/* the child closes late, the parent goes on meanwhile */
{
	pid_t p = fork();

	if (p == 0) {
		usleep(300000);
		close(fd);
		usleep(100000);
		_exit(0);
	}
	transfer(fd, at->bytes * 3 / 4);
	reap(p);
	finish(fd);
}

static void by_turns(int fd)
{
	int a[2], b[2], i;
	uint64_t base = at->sent, step = (at->bytes - base) / 20;
	char c = 0;
	pid_t p;

	if (pipe(a) || pipe(b))
		die("pipe");
	p = fork();
	for (i = 0; i < 10; i++) {
		if (p == 0 && read(a[0], &c, 1) != 1)
			die("turn");
		transfer(fd, base + step * (2 * i + (p == 0 ? 2 : 1)));
		if (write(p == 0 ? b[1] : a[1], &c, 1) != 1 || (p && read(b[0], &c, 1) != 1))
			die("turn");
	}
	if (p == 0)
		_exit(0);
	reap(p);
	finish(fd);
}

/* Becomes the program that goes on from there; if `wait` >= 0, when a byte comes from it. */
static void resume_by_exec(int fd, uint64_t sent, uint64_t got, int wait)
{
	char word[128];

	/* MAP_SHARED memory does not survive exec: pass the numbers. */
	snprintf(word, sizeof(word), "%d %llu %llu %llu %d %d", fd, (unsigned long long)sent,
		 (unsigned long long)got, (unsigned long long)at->bytes, at->server, wait);
	execl("/proc/self/exe", self, "resume", word, NULL);
	die("exec");
}

static void by_exec(int fd)
{
	resume_by_exec(fd, at->sent, at->got, -1);
}

static void by_spawned(int fd)		/* the stream is inherited by another program, this one
					 * closes it */
{
	pid_t p = fork();

	if (p == 0)
		by_exec(fd);
	close(fd);
	reap(p);
}

/* A child has it under a second number and as another program, where the first was closed; it
 * goes on when this one has had its share. */
static void by_twin(int fd)
{
	uint64_t share = at->bytes * 3 / 4, now = at->sent;
	int go[2], gone[2];
	char c = 0;
	pid_t p;

	if (pipe(go) || pipe2(gone, O_CLOEXEC))
		die("pipe");
	p = fork();
	if (p == 0) {
		if (fcntl(fd, F_SETFD, FD_CLOEXEC))
			die("fcntl");
		close(go[1]);
		resume_by_exec(dup(fd), share, share, go[0]);
	}
	close(gone[1]);
	if (read(gone[0], &c, 1) != 0)
		die("exec");
	/* time in which a library of ours that knows of one holder only would leave TCP */
	for (int i = 1; i <= 20; i++) {
		transfer(fd, now + (share - now) * i / 20);
		usleep(2000);
	}
	if (write(go[1], &c, 1) != 1)
		die("go");
	reap(p);
	close(fd);
}

static void close_unseen(int fd) { sys6(SYS_close, fd, 0, 0, 0, 0, 0); }

/* The same, after timers were closed by calls of the kernel that no library sees: all but the
 * first, as there are in this process only if the library has made some. */
static void by_twin_closed(int fd)
{
	char path[64], what[64] = "";
	bool first = true;

	for (int n = 3; n < 65536; n++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", n);
		memset(what, 0, sizeof(what));
		if (readlink(path, what, sizeof(what) - 1) < 0 || !strstr(what, "timerfd"))
			continue;
		if (!first)
			close_unseen(n);
		first = false;
	}
	by_twin(fd);
}

static void spawn_true(int fd)		/* vfork and exec of something else, with the descriptor
					 * open in it */
{
	char *argv[] = { "true", NULL }, *env[] = { NULL };
	int i;
	pid_t p;

	for (i = 0; i < 5; i++) {
		if (posix_spawn(&p, "/bin/true", NULL, NULL, argv, env))
			die("posix_spawn");
		transfer(fd, at->sent + (at->bytes - at->sent) / 10);
		reap(p);
	}
	finish(fd);
}

static int helper = -1;
static pid_t helper_pid;

static void start_helper(void)		/* before the connection exists */
{
	int sv[2], fd;
	char c, control[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("socketpair");
	helper_pid = fork();
	if (helper_pid == 0) {
		close(sv[0]);
		if (recvmsg(sv[1], &m, 0) != 1 || !CMSG_FIRSTHDR(&m))
			die("no descriptor came");
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
		finish(fd);
		_exit(0);
	}
	close(sv[1]);
	helper = sv[0];
}

static void by_receiver(int fd)		/* passed over a unix socket to another process */
{
	char c = 'x', control[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	memset(control, 0, sizeof(control));
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	if (sendmsg(helper, &m, 0) != 1)
		die("sendmsg");
	close(fd);
	reap(helper_pid);
}

static void by_dup(int fd)
{
	int d = dup(fd);

	close(fd);
	transfer(d, at->sent + (at->bytes - at->sent) / 2);
	fd = open("/dev/null", 0);
	if (dup2(d, fd) != fd)
		die("dup2");
	close(d);
	finish(fd);
}

static void *finish_thread(void *arg)
{
	finish(*(int *)arg);
	return NULL;
}

static void by_thread(int fd)
{
	pthread_t t;

	if (pthread_create(&t, NULL, finish_thread, &fd))
		die("pthread_create");
	pthread_join(t, NULL);
}

static void by_stdio(int fd)
{
	in_file = fdopen(fd, "r");
	out_file = fdopen(dup(fd), "w");
	setvbuf(in_file, NULL, _IONBF, 0);
	at->stdio = true;
	finish(fd);
}

static void by_raw_calls(int fd)	/* from the first byte on */
{
	finish(fd);
}

static void by_daemon(int fd)		/* two forks, the middle process ends first */
{
	int done[2], c = 1;
	pid_t p;

	if (pipe(done))
		die("pipe");
	p = fork();
	if (p == 0) {
		if (fork())
			_exit(0);
		finish(fd);
		c = 0;
		if (write(done[1], &c, sizeof(c)) != sizeof(c))
			_exit(1);
		_exit(0);
	}
	close(done[1]);
	close(fd);
	reap(p);
	if (read(done[0], &c, sizeof(c)) != sizeof(c) || c != 0)
		die("grandchild failed");
}

/* Two children; one goes on with it when the parent has closed its own, the other only keeps it
 * open. */
static void by_sibling(int fd)
{
	int closed[2], over[2];
	pid_t p, other;
	char c;

	if (pipe(closed) || pipe(over))
		die("pipe");
	p = fork();
	if (p == 0) {
		alarm(20);		/* one that waits for an answer that nobody gives waits
					 * for longer */
		close(over[0]);
		close(closed[1]);
		if (read(closed[0], &c, 1) != 0)
			die("pipe");
		finish(fd);
		_exit(0);
	}
	other = fork();
	if (other == 0) {
		close(over[1]);
		close(closed[1]);
		_exit(read(over[0], &c, 1) != 0);
	}
	close(over[1]);
	close(fd);
	close(closed[1]);
	reap(p);
	reap(other);
}

static const struct scenario {
	const char *name;
	void (*run)(int fd);
	bool early;		/* from the first byte */
} scenarios[] = {
	{ "by-child", by_child, false },
	{ "by-child-early", by_child, true },
	{ "by-parent", by_parent, false },
	{ "child-lingers", child_lingers, false },
	{ "by-turns", by_turns, false },
	{ "by-exec", by_exec, false },
	{ "by-exec-early", by_exec, true },
	{ "by-spawned", by_spawned, false },
	{ "by-twin", by_twin, false },
	{ "by-twin-early", by_twin, true },
	{ "by-twin-closed", by_twin_closed, false },
	{ "spawn-true", spawn_true, false },
	{ "by-receiver", by_receiver, false },
	{ "by-receiver-early", by_receiver, true },
	{ "by-dup", by_dup, false },
	{ "by-thread", by_thread, false },
	{ "by-stdio", by_stdio, false },
	{ "by-stdio-early", by_stdio, true },
	{ "by-raw-calls", by_raw_calls, true },
	{ "by-daemon", by_daemon, false },
	{ "by-sibling", by_sibling, false },
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

static int get_socket(const char *mode, char **args)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	bool server = !strcmp(mode, "listen");
	int fd = socket(AF_INET, SOCK_STREAM, 0), l, one = 1;

	a.sin_port = htons(atoi(args[!server]));
	if (inet_pton(AF_INET, server ? "127.0.0.1" : args[0], &a.sin_addr) != 1)
		die("address");
	if (!server) {
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)))
			die("connect");
		return fd;
	}
	l = fd;
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (struct sockaddr *)&a, sizeof(a)) || listen(l, 4))
		die("listen");
	fd = accept(l, NULL, NULL);
	if (fd < 0)
		die("accept");
	close(l);
	return fd;
}

static int resume(const char *word)
{
	unsigned long long sent, got, bytes;
	int fd, server, wait;
	char c;

	if (sscanf(word, "%d %llu %llu %llu %d %d", &fd, &sent, &got, &bytes, &server, &wait) != 6)
		return 2;
	*at = (struct progress){ .sent = sent, .got = got, .bytes = bytes, .server = server };
	if (wait >= 0 && read(wait, &c, 1) != 1)
		die("wait");
	finish(fd);
	printf("resumed ok\n");
	return 0;
}

int main(int argc, char **argv)
{
	const struct scenario *s = scenarios;
	uint64_t bytes = 8 << 20;
	int i = 2, fd;

	self = argv[0];
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	alarm(60);
	if (argc == 3 && !strcmp(argv[1], "resume"))
		return resume(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (; s < scenarios + SCENARIOS; s++)
			puts(s->name);
		return 0;
	}
	if (argc > 4 && !strcmp(argv[2], "-n")) {
		bytes = strtoull(argv[3], NULL, 0);
		i = 4;
	}
	while (argc > 1 && s < scenarios + SCENARIOS && strcmp(argv[1], s->name))
		s++;
	if (argc < i + 2 || s == scenarios + SCENARIOS ||
	    (strcmp(argv[i], "listen") && argc < i + 3)) {
		fprintf(stderr, "usage: forktest list | SCENARIO [-n BYTES] listen PORT | connect "
				"HOST PORT\n");
		return 2;
	}
	*at = (struct progress){ .bytes = bytes, .server = !strcmp(argv[i], "listen"),
				 .raw = s->run == by_raw_calls };
	if (s->run == by_receiver)
		start_helper();
	fd = get_socket(argv[i], argv + i + 1);
	if (!s->early)
		transfer(fd, bytes / 2);
	s->run(fd);
	printf("%s ok\n", s->name);
	return 0;
}
