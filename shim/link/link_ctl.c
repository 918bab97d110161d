/*
 * link_ctl.c - records over the control socket of a link (link.h): how they are sent, queued while
 * the socket is full, and received. It calls nothing of link.c, which makes and ends links.
 *
 * Any thread sends. The background thread receives and flushes. Locks: the link's out_lock, over
 * the calls that send.
 */
#include "link/link_int.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/loop.h"
#include "base/sys.h"
#include "link/path.h"
#include "link/rights.h"
#include "policy/log.h"

int ctl_send_fd(int sock, const struct ctl_msg *m, int fd)
{
	struct iovec iov = { (void *)m, sizeof *m };
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } c = { 0 };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	long r;

	if (fd >= 0) {
		struct cmsghdr *cm;

		h.msg_control = c.buf;
		h.msg_controllen = sizeof c.buf;
		cm = CMSG_FIRSTHDR(&h);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof fd);
	}
	r = sys(SYS_sendmsg, sock, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
	return r < 0 ? (int)r : 0;
}

/* Records of its type do, on one host. */
static bool carries_fd(const struct ctl_msg *m)
{
	return m->type == CTL_WELCOME || m->type == CTL_BELL || m->type == CTL_BIND ||
	       m->type == CTL_BOUND || m->type == CTL_DIAG;
}

static int judge(const struct ctl_msg *m, long len)
{
	if (len < (long)sizeof *m)
		return -EPROTO;
	if (m->version != CTL_VERSION)
		return m->type == CTL_HELLO ? CTL_OTHER : -EPROTO;
	return m->type && m->type < CTL_TYPES ? 1 : -EPROTO;
}

int ctl_recv(int sock, bool takes_fd, struct ctl_msg *m, int *ret_fd)
{
	struct iovec iov = { m, sizeof *m };
	int flags;
	long r = rights_recv(sock, &iov, &flags, ret_fd);
	bool beside = false;

	/* It ended with records of ours unread: the kernel says so before it gives its last ones,
	 * once (__skb_try_recv_datagram() in net/core/datagram.c). */
	if (r == -ECONNRESET)
		r = rights_recv(sock, &iov, &flags, ret_fd);
	if (r == -EAGAIN || r == -EINTR)
		return 0;
	if (r < 0)
		return (int)r;
	if (*ret_fd >= 0 && !takes_fd && carries_fd(m)) {
		rights_done(*ret_fd);
		*ret_fd = -1;
		flags |= MSG_CTRUNC;
	}
	/* The kernel could not install it (scm_detach_fds() in net/core/scm.c), or we do not
	 * take it: that is nobody's lie. */
	if (flags & MSG_CTRUNC && *ret_fd < 0 && carries_fd(m))
		*ret_fd = CTL_FD_LOST;
	else if (flags & MSG_CTRUNC || (*ret_fd >= 0 && !carries_fd(m)))
		beside = true;
	if (r && judge(m, r) == CTL_OTHER)	/* longer, with a descriptor: that is theirs to
						 * know */
		r = CTL_OTHER;
	else if (beside || flags & MSG_TRUNC)
		r = -EPROTO;
	else
		r = r ? judge(m, r) : -EPIPE;	/* an empty record may have had one, so only now */
	if (r != 1) {
		rights_done(*ret_fd);
		*ret_fd = -1;
	}
	return (int)r;
}

/* A TCP socket may take a part: then the record is queued, and the rest of it goes first. */
static int ctl_send(struct link *l, const struct ctl_msg *m)
{
	long r;

	if (!l->path->far)
		return ctl_send_fd(l->ctl, m, -1);
	r = sys(SYS_sendto, l->ctl, (const char *)m + l->out_sent, sizeof *m - l->out_sent,
		MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	if (r < 0)
		return (int)r;
	l->out_sent += (uint32_t)r;
	if (l->out_sent < sizeof *m)
		return -EAGAIN;
	l->out_sent = 0;
	return 0;
}

int link_recv(struct link *l, struct ctl_msg *m, int *fd)
{
	long r;

	if (!l->path->far)
		return ctl_recv(l->ctl, link_trusts(l) && (!l->across || l->greeted), m, fd);
	*fd = -1;
	r = sys(SYS_recvfrom, l->ctl, (char *)&l->in + l->in_len, sizeof l->in - l->in_len,
		MSG_DONTWAIT, NULL, NULL);
	if (r == -EAGAIN || r == -EINTR)
		return 0;
	if (r <= 0)
		return r ? (int)r : -EPIPE;
	l->in_len += (uint32_t)r;
	if (l->in_len < sizeof l->in)
		return 0;
	l->in_len = 0;
	*m = l->in;
	return judge(m, sizeof *m);
}

/* Every cut message but BACK and FROZEN waits for an answer, so a stream has at most a handful
 * under way: a peer that leaves more than this unread is broken, not slow. */
uint32_t link_outq_size(const struct link *l)
{
	return l->segment.slots * 8 + 1024;
}

static bool queue(struct link *l, const struct ctl_msg *m)
{
	if (!l->outq) {
		void *p = mmap(NULL, link_outq_size(l) * sizeof *m, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return false;
		l->outq = p;
	}
	if (l->out_tail - l->out_head == link_outq_size(l))
		return false;
	l->outq[l->out_tail++ % link_outq_size(l)] = *m;
	atomic_store(&l->out_waiting, true);
	return true;
}

bool link_send(struct link *l, const struct ctl_msg *m)
{
	bool ok = true, kick = false;

	lock_take(&l->out_lock);
	if (!link_is_up(l) && atomic_load(&l->state) != LINK_HELLO) {
		ok = false;
	} else if (l->out_head == l->out_tail) {
		int r = ctl_send(l, m);

		if (r == -EAGAIN) {
			ok = queue(l, m);
			kick = true;
		} else if (r) {
			ok = false;
		}
	} else {
		ok = queue(l, m);
	}
	if (!ok && link_is_up(l))
		log_line(2, "link %u: cannot send (%u queued)", l->index,
			 l->out_tail - l->out_head);
	if (!ok && link_is_up(l))
		sys(SYS_shutdown, l->ctl, SHUT_RDWR);	/* the background thread sees the end and
							 * cleans up */
	lock_give(&l->out_lock);
	if (kick)
		loop_kick();
	return ok;
}

/* The socket is full, memory is short, or the user has too many descriptors under way (unix(7)). */
static bool passes_later(int r)
{
	return r == -EAGAIN || r == -ENOMEM || r == -ENOBUFS || r == -ETOOMANYREFS;
}

/* A bell that could not be told: tell all again, the peer replaces what it has. out_lock held. */
static bool bells_again(struct link *l)
{
	for (uint64_t m = atomic_load(&l->distrusted) ? 0 : bell_made_mask(); m; m &= m - 1) {
		int idx = __builtin_ctzll(m);
		struct ctl_msg msg = { .type = CTL_BELL, .version = CTL_VERSION,
				       .index = (uint32_t)idx };

		if (passes_later(ctl_send_fd(l->ctl, &msg, bells[idx].fd)))
			return false;
	}
	l->bells_untold = false;
	return true;
}

void link_flush(struct link *l)
{
	lock_take(&l->out_lock);
	while (l->out_head != l->out_tail) {
		if (ctl_send(l, &l->outq[l->out_head % link_outq_size(l)]))
			break;
		l->out_head++;
	}
	if (l->out_head == l->out_tail) {
		l->out_head = l->out_tail = 0;
		if (!l->bells_untold || bells_again(l))
			atomic_store(&l->out_waiting, false);
	}
	lock_give(&l->out_lock);
}

void link_send_cut(struct link *l, uint32_t slot, unsigned msg, uint32_t epoch, uint64_t off)
{
	struct ctl_msg m = { .type = CTL_CUT, .version = CTL_VERSION, .slot = slot,
			     .index = msg, .epoch = epoch, .off = off };

	link_send(l, &m);
}

void link_send_bell(struct link *l, int idx)
{
	struct ctl_msg m = { .type = CTL_BELL, .version = CTL_VERSION, .index = (uint32_t)idx };
	bool kick = false;

	if (l->path->far || atomic_load(&l->distrusted))
		return;		/* between hosts what comes rings our own bells, see path_rdma.c */
	lock_take(&l->out_lock);
	/* Order against queued records does not matter for BELL. If the socket is full, the
	 * background thread sends all bells again once it has drained. One that has ended has
	 * closed the socket. */
	if (link_is_up(l) && passes_later(ctl_send_fd(l->ctl, &m, bells[idx].fd))) {
		l->bells_untold = kick = true;
		atomic_store(&l->out_waiting, true);
	}
	lock_give(&l->out_lock);
	if (kick)	/* it may sleep: without that bell the peer wakes nobody here */
		loop_kick();
}
