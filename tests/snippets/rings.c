/*
 * rings.c - io_uring instances over connections. Calls: syscall
 */
#include <linux/io_uring.h>
#include <stdatomic.h>

#include "snip.h"

static char t[256];

/* An io_uring of one entry at a time: the kernel moves the bytes without a call that could be
 * seen. */
struct uring {
	int fd;
	struct io_uring_params p;
	char *ring;
	struct io_uring_sqe *sqe;
	uint64_t off;
	uint8_t flags;
};

static void uring_open(struct uring *u)
{
	memset(u, 0, sizeof(*u));
	u->fd = (int)syscall(SYS_io_uring_setup, 2, &u->p);
	tell("io_uring: %s", u->fd >= 0 ? "there" : strerrorname_np(errno));
	if (u->fd < 0)
		return;
	u->ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_SQ_RING);
	u->sqe = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd, IORING_OFF_SQES);
	if (u->ring == MAP_FAILED || u->sqe == MAP_FAILED ||
	    !(u->p.features & IORING_FEAT_SINGLE_MMAP))
		die("io_uring");
}

static int uring_do(struct uring *u, int op, int fd, void *p, unsigned n)
{
	_Atomic unsigned *sq = (void *)(u->ring + u->p.sq_off.tail),
			 *cq = (void *)(u->ring + u->p.cq_off.head);
	unsigned at = atomic_load(sq) & *(unsigned *)(u->ring + u->p.sq_off.ring_mask);
	struct io_uring_cqe *e = (void *)(u->ring + u->p.cq_off.cqes);
	int r;

	memset(&u->sqe[at], 0, sizeof(*u->sqe));
	u->sqe[at].opcode = (uint8_t)op;
	u->sqe[at].fd = fd;
	u->sqe[at].addr = (uintptr_t)p;
	u->sqe[at].len = n;
	u->sqe[at].off = u->off;
	u->sqe[at].flags = u->flags;
	((unsigned *)(u->ring + u->p.sq_off.array))[at] = at;
	atomic_fetch_add(sq, 1);
	if (syscall(SYS_io_uring_enter, u->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		die("io_uring_enter");
	r = e[atomic_load(cq) & *(unsigned *)(u->ring + u->p.cq_off.ring_mask)].res;
	atomic_fetch_add(cq, 1);
	return r;
}

SNIPPET(io_uring, "syscall")
{
	char in[20] = "";
	struct uring u;

	pair();
	alive("before", a, b);
	put(a, b, "sent before");
	uring_open(&u);
	if (u.fd < 0)
		return;
	tell("recv: %d", uring_do(&u, IORING_OP_RECV, b, in, sizeof(in)));
	say_bytes("what was sent before", in, 11);
	tell("send: %d", uring_do(&u, IORING_OP_SEND, a, "by the ring", 11));
	tell("recv: %d", uring_do(&u, IORING_OP_RECV, b, in, sizeof(in)));
	say_bytes("by the ring", in, 11);
	alive("after", a, b);
	tell("send: %d", uring_do(&u, IORING_OP_SEND, a, "once more", 9));
	SAY("recv", recv(b, t, 9, MSG_WAITALL));
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		for (int i = 0; i < 50; i++) {		/* time enough for a cut */
			nap_us(1000);
			send(x, "x", 1, 0);
			recv(y, t, 1, 0);
		}
		alive("new ones", x, y);
		tell("send: %d", uring_do(&u, IORING_OP_SEND, x, "and there", 9));
		SAY("recv", recv(y, t, 9, MSG_WAITALL));
	}
}

/* `a` is in the ring's table of files, at 0; its last bytes have not been read. */
static void uring_by_table(struct uring *u)
{
	u->flags = IOSQE_FIXED_FILE;
	tell("send: %d", uring_do(u, IORING_OP_SEND, 0, "by the table", 12));
	u->flags = 0;
	SAY("recv", recv(b, t, 22, MSG_WAITALL));
	say_bytes("in order", t, 22);
	alive("after", a, b);
}

SNIPPET(io_uring_files_update, "syscall")
{
	int none = -1;
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	SAY("register", syscall(SYS_io_uring_register, u.fd, IORING_REGISTER_FILES, &none, 1));
	pair();
	alive("cut", a, b);
	put(a, b, "by send(2)");
	tell("update: %d", uring_do(&u, IORING_OP_FILES_UPDATE, -1, &a, 1));
	uring_by_table(&u);
}

SNIPPET(io_uring_registered_ring, "syscall")
{
	struct io_uring_rsrc_update self = { .offset = -1u };
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	self.data = (uint64_t)u.fd;
	SAY("register the ring",
	    syscall(SYS_io_uring_register, u.fd, 20 /* IORING_REGISTER_RING_FDS */, &self, 1));
	pair();
	alive("cut", a, b);
	put(a, b, "by send(2)");
	SAY("register by it",
	    syscall(SYS_io_uring_register, self.offset, IORING_REGISTER_FILES | 1u << 31, &a, 1));
	uring_by_table(&u);
}

static void uring_epoll(struct uring *u, int ep, int op, int fd, struct epoll_event *e)
{
	int r;

	u->off = (uint64_t)fd;
	r = uring_do(u, IORING_OP_EPOLL_CTL, ep, e, (unsigned)op);
	tell("%s: %s",
	     op == EPOLL_CTL_ADD   ? "add"
	     : op == EPOLL_CTL_MOD ? "mod"
				   : "del",
	     r ? strerrorname_np(-r) : "ok");
	u->off = 0;
}

static void tell_ready(const char *what, int ep)
{
	struct epoll_event e = { 0 };
	int n = epoll_wait(ep, &e, 1, 2000);

	tell("%s: %d, %lx, %s%s", what, n, (unsigned long)e.data.u64,
	     e.events & EPOLLIN ? "in " : "", e.events & EPOLLOUT ? "out" : "");
}

/* As libuv does it: what changes in an epoll instance goes by a ring. The connection is cut over
 * all the same, see apps/uring. */
SNIPPET(io_uring_epoll, "syscall")
{
	int ep = epoll_create1(EPOLL_CLOEXEC), fds[2];
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 0xabc };
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	pair();
	alive("cut", a, b);
	uring_epoll(&u, ep, EPOLL_CTL_ADD, b, &e);
	uring_epoll(&u, ep, EPOLL_CTL_ADD, b, &e);
	put(a, b, "to be waited for");
	tell_ready("readable", ep);
	recv(b, t, sizeof(t), 0);
	e.events = EPOLLIN | EPOLLOUT;
	e.data.u64 = 0xdef;
	uring_epoll(&u, ep, EPOLL_CTL_MOD, b, &e);
	tell_ready("writable", ep);
	uring_epoll(&u, ep, EPOLL_CTL_DEL, b, NULL);
	uring_epoll(&u, ep, EPOLL_CTL_DEL, b, NULL);
	put(a, b, "nobody waits");
	tell("after: %d", epoll_wait(ep, &e, 1, 20));
	recv(b, t, 12, MSG_WAITALL);
	alive("after", a, b);
	if (pipe(fds))
		die("pipe");
	e.events = EPOLLIN;
	uring_epoll(&u, ep, EPOLL_CTL_ADD, fds[0], &e);
	write(fds[1], "x", 1);
	tell_ready("a pipe", ep);
	tell("close: %d", uring_do(&u, IORING_OP_CLOSE, b, NULL, 0));
	SAY("peer", recv(a, t, 1, 0));
	SAY("closed", fcntl(b, F_GETFD));
}

/* The last of a link whose first fails is not done. */
SNIPPET(io_uring_epoll_linked, "syscall")
{
	int ep = epoll_create1(EPOLL_CLOEXEC), none[2];
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 0xabc };
	struct uring u;

	uring_open(&u);
	if (u.fd < 0)
		return;
	pair();
	alive("cut", a, b);
	for (int fails = 0; fails < 2; fails++) {
		_Atomic unsigned *sq = (void *)(u.ring + u.p.sq_off.tail),
				 *cq = (void *)(u.ring + u.p.cq_off.head);
		unsigned at = atomic_load(sq), mask = *(unsigned *)(u.ring + u.p.sq_off.ring_mask),
			 *array = (void *)(u.ring + u.p.sq_off.array);
		struct io_uring_cqe *c = (void *)(u.ring + u.p.cq_off.cqes);

		if (pipe(none))
			die("pipe");
		u.sqe[at & mask] = (struct io_uring_sqe){ .opcode = IORING_OP_WRITE,
							  .fd = fails ? -1 : none[1],
								  .addr = (uintptr_t)t, .len = 1,
									  .flags = IOSQE_IO_LINK };
		u.sqe[(at + 1) & mask] = (struct io_uring_sqe){ .opcode = IORING_OP_EPOLL_CTL,
								.fd = ep, .addr = (uintptr_t)&e,
									.len = fails ? EPOLL_CTL_MOD
										: EPOLL_CTL_ADD,
			.off = (uint64_t)b };
		array[at & mask] = at & mask;
		array[(at + 1) & mask] = (at + 1) & mask;
		atomic_fetch_add(sq, 2);
		SAY("both",
		    syscall(SYS_io_uring_enter, u.fd, 2, 2, IORING_ENTER_GETEVENTS, NULL, 0));
		for (int i = 0; i < 2; i++, atomic_fetch_add(cq, 1)) {
			int r = c[atomic_load(cq) & *(unsigned *)(u.ring + u.p.cq_off.ring_mask)]
					.res;

			tell("%s", r < 0 ? strerrorname_np(-r) : "done");
		}
		e.events = EPOLLOUT;		/* which would be ready at once */
		e.data.u64 = 0xdef;
	}
	put(a, b, "to be waited for");
	tell_ready("as was added", ep);
	recv(b, t, sizeof(t), 0);
	alive("after", a, b);
}
