/*
 * snip_epoll.h - an instance, and what it reports.
 */
#include "snip.h"

static char t[256];
static int ep = -1;

/* the same numbers */
static const char *ep_bits(uint32_t e) { return poll_bits((int)(e & 0xffff)); }

static long add_to(int e, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	return epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev);
}
static long add(int fd, uint32_t events, uint64_t data) { return add_to(ep, fd, events, data); }
static long mod(int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	return epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev);
}

static int by_data(const void *x, const void *y)
{
	uint64_t p = ((const struct epoll_event *)x)->data.u64,
		 q = ((const struct epoll_event *)y)->data.u64;

	return p < q ? -1 : p > q;
}

/* What the instance reports, in the order of the data words. */
static int look(const char *what, int e, int timeout)
{
	struct epoll_event ev[16];
	char line[512] = "";
	int n = epoll_wait(e, ev, 16, timeout);

	if (n < 0) {
		SAY(what, n);
		return n;
	}
	qsort(ev, (size_t)n, sizeof(*ev), by_data);
	for (int i = 0; i < n; i++)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%d:%s",
			 i ? " | " : "", (int)ev[i].data.u64, ep_bits(ev[i].events));
	tell("%s: %s", what, n ? line : "nothing");
	return n;
}

static void start(void)
{
	pair();
	ep = epoll_create1(0);
}

/* No edge is due. The kernel gives one for each chunk in which bytes arrive or are acknowledged;
 * where the connection is cut and rewound at random (jitter) a switch of paths may give one,
 * too. Then it must say what is true, and no more than that. */
static void no_edge(const char *what, int e, int fd, int timeout)
{
	struct epoll_event ev[16];
	int n = epoll_wait(e, ev, 16, jitter ? 0 : timeout);

	if (n == 1 && jitter && !(ev[0].events & ~(uint32_t)bits_now(fd, ALL_BITS)))
		n = 0;
	tell("%s: %s", what, n ? ep_bits(ev[0].events) : "nothing");
}
