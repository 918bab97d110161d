/*
 * rdmastat_kernel.c - what the kernel knows of connections (sock_diag). What it counted on those
 * that stay on TCP for good, whose calls the library does not look at any more, stands in their
 * rows where it is larger; on request, also the round trip and what waits in the queues of all.
 */
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arch/newer.h"
#include "ground/rdmastat_ends.h"

/* states of include/net/tcp_states.h: from these on the peer's FIN is in bytes_received */
#define CLOSE_WAIT 8
#define LAST_ACK   9
#define CLOSING    11
#define CONNECTED  (1u << 1 | 1u << 4 | 1u << 5 | 1u << CLOSE_WAIT | 1u << LAST_ACK | 1u << CLOSING)

/* Not those that somebody else may be using, too: his bytes are in the kernel's count. */
static bool for_good(const struct stat_conn *c)
{
	switch (c->reason) {
	case REASON_NONE:
	case REASON_NOT_EARNED:
	case REASON_SEARCHING:
	case REASON_SHORT_LIVED:
	case REASON_POLICY:
	case REASON_MODE_OFF:
	case REASON_BAD_POLICY:
	case REASON_SHARED: case REASON_PASSED: case REASON_EXEC:
		return false;
	default:
		return c->tx_path == PATH_TCP && c->rx_path == PATH_TCP && c->family && c->lport &&
		       c->pport;
	}
}

static bool any(const struct stat_conn *c) { return c->family && c->lport && c->pport; }

#define LOCK_PATIENCE_US 100000	/* half of it for the turn, where another one asks */

struct row {
	struct stat_proc *p;
	struct stat_conn *c;
};

static int by_ends(const void *a, const void *b)
{
	const struct stat_conn *x = ((const struct row *)a)->c, *y = ((const struct row *)b)->c;
	int d = x->lport != y->lport ? (x->lport < y->lport ? -1 : 1)
				     : (x->pport > y->pport) - (x->pport < y->pport);

	d = d ? d : memcmp(x->laddr, y->laddr, 16);
	return d ? d : memcmp(x->paddr, y->paddr, 16);
}

/* IPv4 in IPv6 clothes is IPv4 in the library's rows. */
static void put_address(uint8_t *to, int family, const __be32 *from)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

	memset(to, 0, 16);
	if (family == AF_INET6 && memcmp(from, mapped, 12))
		memcpy(to, from, 16);
	else
		memcpy(to, family == AF_INET ? from : from + 3, 4);
}

/* A process's sums have its live connections in them. */
static void at_least(uint64_t *conn, uint64_t *sum, uint64_t n)
{
	if (n <= *conn)
		return;
	*sum = sat_add(*sum, n - *conn);
	*conn = n;
}

static void take(const struct inet_diag_msg *m, size_t len, struct row *row, size_t n)
{
	struct stat_conn key = { .lport = ntohs(m->id.idiag_sport),
				 .pport = ntohs(m->id.idiag_dport) };
	struct row *found, of_key = { .c = &key };
	const struct rtattr *a = (const struct rtattr *)(m + 1);
	struct tcp_info ti;

	put_address(key.laddr, m->idiag_family, m->id.idiag_src);
	put_address(key.paddr, m->idiag_family, m->id.idiag_dst);
	found = bsearch(&of_key, row, n, sizeof(*row), by_ends);
	if (!found || len < sizeof(*m))
		return;
	if (found->c->tx_path == PATH_TCP)
		found->c->unread = m->idiag_wqueue;
	if (found->c->rx_path == PATH_TCP)
		found->c->to_read = m->idiag_rqueue;
	for (len -= sizeof(*m); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
		bool fin = m->idiag_state == CLOSE_WAIT || m->idiag_state == LAST_ACK ||
			   m->idiag_state == CLOSING;

		if (a->rta_type != INET_DIAG_INFO ||
		    RTA_PAYLOAD(a) < offsetof(struct tcp_info, tcpi_bytes_retrans) +
					     sizeof(ti.tcpi_bytes_retrans))
			continue;
		memset(&ti, 0, sizeof(ti));
		memcpy(&ti, RTA_DATA(a), RTA_PAYLOAD(a) < sizeof(ti) ? RTA_PAYLOAD(a) : sizeof(ti));
		if (ti.tcpi_rtt)
			found->c->rtt = ti.tcpi_rtt * 1000ull;
		if (!for_good(found->c))
			continue;
		at_least(&found->c->tx_bytes[PATH_TCP], &found->p->tx_bytes[PATH_TCP],
			 ti.tcpi_bytes_sent - ti.tcpi_bytes_retrans + ti.tcpi_notsent_bytes);
		at_least(&found->c->rx_bytes[PATH_TCP], &found->p->rx_bytes[PATH_TCP],
			 ti.tcpi_bytes_received - (fin && ti.tcpi_bytes_received));
	}
}

static char buf[65536] __attribute__((aligned(8)));

static bool ask(int fd, int family, uint8_t ext)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} q = {
		.h = { sizeof(q), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 },
		.r = { .sdiag_family = (uint8_t)family, .sdiag_protocol = IPPROTO_TCP,
		       .idiag_ext = ext, .idiag_states = CONNECTED },
	};

	return send(fd, &q, sizeof(q), 0) == sizeof(q);
}

static int diag_socket(void)
{
	struct timeval soon = { 1, 0 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	return fd;
}

/* The answers to one question. False: not all came. */
static bool take_all(int fd, struct row *row, size_t n)
{
	ssize_t got;

	while ((got = recv(fd, buf, sizeof(buf), 0)) > 0) {
		size_t left = (size_t)got;

		for (struct nlmsghdr *h = (struct nlmsghdr *)buf; NLMSG_OK(h, left);
		     h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
				return true;
			if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
				take(NLMSG_DATA(h), h->nlmsg_len - NLMSG_LENGTH(0), row, n);
		}
	}
	return false;
}

/* ---- what the kernel takes each socket's lock for ---- Who sends from memory that never comes
 * (FUSE, userfaultfd) holds that of his socket for as long as he likes, and no signal ends who
 * waits for it. So a child asks, which holds nothing of ours. */

/* One of them at a time for each user who asks: those of programs that have ended may wait
 * still. */
static bool has_turn(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct timespec nap = { 0, 1000000 };
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "rdmastat.%u", geteuid());
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	for (int us = 0; us < LOCK_PATIENCE_US / 2; us += 1000) {
		if (!bind(fd, (struct sockaddr *)&un, len))
			return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

static _Noreturn void ask_and_pass_on(int to)
{
	static const int families[] = { AF_INET, AF_INET6 };
	ssize_t got;
	int fd;

	if (dup2(to, 0) || syscall(SYS_close_range, 1, ~0u, 0) || !has_turn() ||
	    (fd = diag_socket()) < 0)
		_exit(1);
	for (int i = 0; i < 2; i++) {
		bool done = !ask(fd, families[i], 1 << (INET_DIAG_INFO - 1));

		while (!done && (got = recv(fd, buf, sizeof(buf), 0)) > 0) {
			const struct nlmsghdr *h = (const struct nlmsghdr *)buf;

			done = h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR;
			if (send(0, buf, (size_t)got, MSG_NOSIGNAL) != got)
				_exit(1);
		}
	}
	_exit(0);
}

/* One that waits still is not given company. */
static void ask_apart(struct row *row, size_t n)
{
	static pid_t waits;
	struct timeval soon = { 0, LOCK_PATIENCE_US };
	int pair[2];

	if ((waits && !waitpid(waits, NULL, WNOHANG)) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return;
	waits = fork();
	if (!waits)
		ask_and_pass_on(pair[1]);
	close(pair[1]);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	if (waits > 0 && take_all(pair[0], row, n) && take_all(pair[0], row, n)) {
		waitpid(waits, NULL, 0);
		waits = 0;
	}
	close(pair[0]);
	if (waits < 0)
		waits = 0;
	if (waits)
		kill(waits, SIGKILL);
}

/* The kernel answers for our own network namespace: is the process in it? */
static bool in_our_network(const struct stat_proc *p)
{
	struct stat ours, its;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/ns/net", p->pid);
	return stat_proc_here(p) && !stat("/proc/self/ns/net", &ours) && !stat(path, &its) &&
	       ours.st_ino == its.st_ino && ours.st_dev == its.st_dev;
}

static void ask_about(struct stat_list *l, bool (*wanted)(const struct stat_conn *c))
{
	struct row *row = NULL;
	size_t n = 0, cap = 0, i, k;
	int fd;

	for (i = 0; i < l->n; i++) {
		struct stat_proc *p = &l->proc[i];
		bool asked = false;

		for (k = 0; !p->dead && k < p->nconns; k++) {
			if (!wanted(&p->conns[k]))
				continue;
			if (!asked && !in_our_network(p))
				break;
			asked = true;
			if (n == cap) {
				struct row *more =
					realloc(row, (cap = cap ? 2 * cap : 256) * sizeof(*row));

				if (!more)
					goto out;
				row = more;
			}
			row[n++] = (struct row){ p, &p->conns[k] };
		}
	}
	if (!n)
		goto out;
	qsort(row, n, sizeof(*row), by_ends);
	fd = diag_socket();
	if (fd >= 0) {
		if (ask(fd, AF_INET, 0) && take_all(fd, row, n) && ask(fd, AF_INET6, 0))
			take_all(fd, row, n);
		close(fd);
	}
	ask_apart(row, n);
out:
	free(row);
}

void kernel_bytes(struct stat_list *l) { ask_about(l, for_good); }
void kernel_now(struct stat_list *l) { ask_about(l, any); }
