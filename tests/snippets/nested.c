/*
 * nested.c - an epoll instance in another, over a fork and with shared data words. More of that is
 * in epoll.c.
 * Calls: epoll_ctl epoll_wait fork
 * LIBS: -ldl
 */
#include "snip.h"

static char t[256];

static int in = -1, in2 = -1, out = -1;

static long add_to(int e, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = 7 };

	return epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev);
}

static void instances(void)
{
	in = epoll_create1(0);
	in2 = epoll_create1(0);
	out = epoll_create1(0);
}

static void look(const char *what, int e, int timeout)
{
	struct epoll_event ev[16];
	int n = epoll_wait(e, ev, 16, timeout);

	if (n <= 0)
		tell("%s: %s", what, n ? strerrorname_np(errno) : "nothing");
	for (int i = 0; i < n; i++)
		tell("%s: %d:%s", what, (int)ev[i].data.u64, poll_bits((int)ev[i].events & 0xffff));
}

/*
 * A child waits in the outer one and never in the one inside, which has the connection: all that
 * its parent has of both is closed, and nobody but the kernel tells the child of what comes.
 */
SNIPPET(nested_forked, "epoll_ctl epoll_wait fork")
{
	int closed[2], st = -1;
	pid_t pid;

	pair();
	instances();
	add_to(in, b, EPOLLIN);
	add_to(out, in, EPOLLIN);
	look("before", out, 0);
	if (pipe(closed))
		die("no pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct epoll_event ev;

		close(a);
		read(closed[0], t, 1);
		_exit(epoll_wait(out, &ev, 1, 5000) == 1 && epoll_wait(in, &ev, 1, 5000) == 1 &&
		      recv(b, t, 10, 0) == 1 ? 0 : 1);
	}
	close(in);
	close(out);
	close(b);
	write(closed[1], "c", 1);
	send(a, "x", 1, 0);
	waitpid(pid, &st, 0);
	tell("child %#x", (unsigned)st);
}

/* Two instances with one data word: the one with the connection, and one in which nothing is. */
static void shared_data(uint32_t events, bool listed)
{
	int c, d;

	pair();
	pair_of(&c, &d);
	instances();
	add_to(in, b, EPOLLIN);
	add_to(in2, d, EPOLLIN);
	add_to(out, in, events);
	add_to(out, in2, events);
	look("idle", out, 0);
	put(a, b, "x");
	if (listed)
		look("one", out, 2000);
	recv(b, t, 10, 0);
	look("taken", out, 0);
	put(c, d, "y");
	look("the other", out, 2000);
	recv(d, t, 10, 0);
	look("none", out, 0);
	put(a, b, "z");
	look("the first", out, 2000);
}

SNIPPET(nested_data, "epoll_ctl epoll_wait") { shared_data(EPOLLIN, true); }
SNIPPET(nested_data_unseen, "epoll_ctl epoll_wait") { shared_data(EPOLLIN, false); }
SNIPPET(nested_data_edge, "epoll_ctl epoll_wait") { shared_data(EPOLLIN | EPOLLET, true); }
SNIPPET(nested_data_edge_unseen, "epoll_ctl epoll_wait") { shared_data(EPOLLIN | EPOLLET, false); }

/* And a pipe with the same. */
static void shared_mixed(uint32_t events)
{
	int p[2];

	pair();
	instances();
	if (pipe(p))
		die("no pipe");
	add_to(in, b, EPOLLIN);
	add_to(out, in, events);
	add_to(out, p[0], events);
	put(a, b, "x");
	look("one", out, 2000);
	recv(b, t, 10, 0);
	look("taken", out, 0);
	write(p[1], "y", 1);
	look("the other", out, 2000);
	read(p[0], t, 1);
	put(a, b, "z");
	look("the first", out, 2000);
	recv(b, t, 10, 0);
	look("none", out, 0);
}

SNIPPET(nested_data_mixed, "epoll_ctl epoll_wait") { shared_mixed(EPOLLIN); }
SNIPPET(nested_data_mixed_edge, "epoll_ctl epoll_wait") { shared_mixed(EPOLLIN | EPOLLET); }
