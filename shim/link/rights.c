/*
 * rights.c - see rights.h.
 */
#include "link/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bell.h"
#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/procs.h"
#include "base/proof.h"
#include "base/shim.h"
#include "base/sys.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83	/* linux/socket.h, since 6.16 */
#endif

static _Atomic bool cannot_refuse;

bool rights_socket_from(uid_t uid)
{
	return uid != OVERFLOW_UID && (!uid || uid == (uid_t)sys(SYS_geteuid));
}

/* Users whose processes have passed several at once; 0: none. */
#define CRAMMERS 16
static _Atomic uid_t crammers[CRAMMERS];
static _Atomic unsigned crammers_next;

static bool crams(uid_t uid)
{
	for (int i = 0; i < CRAMMERS; i++)
		if (atomic_load_explicit(&crammers[i], memory_order_relaxed) == uid)
			return true;
	return false;
}

/* OVERFLOW_UID: anybody, users of a namespace that maps nobody. */
bool rights_taken_from(uid_t uid)
{
	return rights_socket_from(uid) || (uid != OVERFLOW_UID && !crams(uid) &&
					   policy_takes_from(atomic_load(&shim_policy), uid));
}

static void has_crammed(int sock)
{
	struct ucred c;
	socklen_t len = sizeof c;

	if (sys(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0 ||
	    c.uid == (uid_t)-1 || rights_socket_from(c.uid) || crams(c.uid))
		return;
	atomic_store(&crammers[atomic_fetch_add(&crammers_next, 1) % CRAMMERS], c.uid);
}

bool rights_allow(int sock, bool allow)
{
	int on = allow;

	if (sys(SYS_setsockopt, sock, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof on) >= 0)
		return true;
	atomic_store_explicit(&cannot_refuse, true, memory_order_relaxed);
	return false;
}

void rights_close(int sock)
{
	if (atomic_load_explicit(&cannot_refuse, memory_order_relaxed))
		closer_take(sock);
	else
		fd_internal_close(sock);
}

/* Nobody can put anything more into that queue: is something in it? A record without a byte looks
 * like the end of all, but that has no sender. */
static bool anything_left(int sock)
{
	union { char buf[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr align; } ctl;
	struct msghdr h = { 0 };
	int on = 1;

	if (sys(SYS_recvmsg, sock, &h, MSG_DONTWAIT | MSG_PEEK) < 0)
		return false;
	if (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return true;
	h = (struct msghdr){ .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf };
	if (sys(SYS_setsockopt, sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
		return true;
	return sys(SYS_recvmsg, sock, &h, MSG_DONTWAIT | MSG_PEEK) >= 0 && h.msg_controllen;
}

/* What is left is not received: a file that waits for its daemon waits for nobody when it goes
 * with the queue. */
void rights_end(int sock)
{
	sys(SYS_shutdown, sock, SHUT_RDWR);
	if (anything_left(sock))
		closer_take(sock);
	else
		fd_internal_close(sock);
}

long rights_sender(int sock, struct ucred *ret, bool *ret_passes)
{
	char byte;
	struct iovec iov = { &byte, 1 };
	union { char buf[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr align; } ctl;
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = ctl.buf, .msg_controllen = CMSG_LEN(sizeof *ret) };
	struct cmsghdr *cm;
	long r = sys(SYS_recvmsg, sock, &h, MSG_DONTWAIT | MSG_PEEK);

	*ret = (struct ucred){ 0, OVERFLOW_UID, OVERFLOW_UID };
	*ret_passes = r >= 0 && h.msg_flags & MSG_CTRUNC;
	cm = r < 0 ? NULL : CMSG_FIRSTHDR(&h);
	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_CREDENTIALS)
		memcpy(ret, CMSG_DATA(cm), sizeof *ret);
	return r;
}

/* A file in memory that it takes long to free, if this is its last descriptor. */
#define LARGE_BLOCKS (4 << 20 >> 9)

static bool is_large(int fd)
{
	struct stat st;

	return sys(SYS_fcntl, fd, F_GET_SEALS) >= 0 && sys(SYS_fstat, fd, &st) >= 0 &&
	       st.st_blocks > LARGE_BLOCKS;
}

/* Closed at once: what is no socket, and not large, and a connection of TCP that does not
 * linger. One that lingers waits for its other end when its last descriptor is closed; a socket
 * of another family may have such an one in its queue, or wait by itself. */
static bool waits_for_nobody(int fd)
{
	struct linger lg = { 0, 0 };
	socklen_t len = sizeof lg;
	int domain = 0, protocol = 0;

	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_LINGER, &lg, &len) < 0)
		return !is_large(fd);
	len = sizeof domain;
	if ((lg.l_onoff && lg.l_linger) ||
	    sys(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return false;
	len = sizeof protocol;
	return (domain == AF_INET || domain == AF_INET6) &&
	       sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) >= 0 &&
	       protocol == IPPROTO_TCP;
}

bool rights_done(int fd)
{
	bool room = true;

	if (fd < 0)
		return true;
	if (!waits_for_nobody(fd)) {
		room = !closer_stuck();
		closer_take(fd);
	} else {
		fd_internal_close(fd);
	}
	return room;
}

/* One of O_PATH, but nobody here can tell what of: who sent it has not lied. */
static bool cannot_look(int fd)
{
	long flags = sys(SYS_fcntl, fd, F_GETFL);

	return flags >= 0 && flags & O_PATH && proof_inode(fd) == -ENOENT;
}

/* The one that a record may have: ours at a high number, or closed apart. The lock is held. */
static int keep(int low, bool *ret_known)
{
	bool known = closer_knows(low);
	int fd = -1;

	*ret_known = known || cannot_look(low);
	if (known)
		fd = fd_internal_place(low);
	if (fd >= 0)
		sys(SYS_close, low);
	else
		closer_put(low);
	return fd < 0 ? -1 : fd;
}

/* A number of ours that is given up for a descriptor for which there is no other: else taking the
 * record would be the end of what it passes, perhaps a connection that lingers. */
static _Atomic int spare = -1;
static _Atomic bool spare_given;

#define FEW 16

/* Not of a share that has hardly enough for links. The lock is held. */
static void have_spare(void)
{
	struct bell *b = loop_bell();
	int fd;

	if (atomic_load(&spare) >= 0)
		return;
	atomic_store(&spare_given, true);	/* the next record looks again */
	if (!b || fd_share_left() < FEW)
		return;
	fd = fd_internal_place(b->fd);
	atomic_store(&spare_given, fd < 0);
	atomic_store(&spare, fd < 0 ? -1 : fd);
}

void rights_ready(void)
{
	fd_number_lock();
	have_spare();
	fd_number_unlock();
}

void rights_after_fork(void)
{
	int fd = atomic_exchange(&spare, -1);

	if (fd >= 0)
		fd_internal_close(fd);
}

static const struct cmsghdr *passed(struct msghdr *h)
{
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(h); cm; cm = CMSG_NXTHDR(h, cm))
		if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS)
			return cm;
	return NULL;
}

/* A look at the next record. Without a number left the kernel says that there is something, and
 * not what. */
static long look(int sock, struct msghdr *h)
{
	const size_t room = h->msg_controllen;
	const int flags = MSG_DONTWAIT | MSG_PEEK | MSG_CMSG_CLOEXEC;
	long r = sys(SYS_recvmsg, sock, h, flags);
	int fd;

	if (r < 0 || passed(h) || !(h->msg_flags & MSG_CTRUNC))
		return r;
	fd = atomic_exchange(&spare, -1);
	if (fd < 0)
		return r;
	atomic_store(&spare_given, true);
	fd_internal_close(fd);
	h->msg_controllen = room;
	return sys(SYS_recvmsg, sock, h, flags);
}

/* The descriptor is got by a look, which leaves the record in the queue: of who passes many we have
 * what there is room for, and the others wait there, as under way of the sender's user, until the
 * socket is closed apart. What goes with a record that is taken then is never the last one. */
long rights_recv(int sock, struct iovec *iov, int *ret_flags, int *ret_fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct msghdr h = { .msg_iov = iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			    .msg_controllen = sizeof ctl.buf };
	struct msghdr plain = { .msg_iov = iov, .msg_iovlen = 1 };
	const struct cmsghdr *cm;
	int fds[sizeof ctl / sizeof(int)];
	unsigned n = 0;
	bool known = true, many, unseen;
	long r;

	*ret_fd = -1;
	fd_number_lock();
	if (atomic_load_explicit(&spare_given, memory_order_relaxed))
		have_spare();
	r = look(sock, &h);
	*ret_flags = r < 0 ? 0 : h.msg_flags;
	cm = r < 0 ? NULL : passed(&h);
	if (cm) {
		n = (unsigned)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(cm), n * sizeof(int));
	}
	if (n)
		*ret_fd = keep(fds[0], &known);
	for (unsigned i = 1; i < n; i++)
		closer_put(fds[i]);
	many = n > 1 || (n && *ret_flags & MSG_CTRUNC);
	unseen = !n && *ret_flags & MSG_CTRUNC;
	if (r >= 0 && !many && !unseen)
		r = sys(SYS_recvmsg, sock, &plain, MSG_DONTWAIT);
	fd_number_unlock();
	if (unseen)	/* the spare number is used, too: at least nobody waits for the lock */
		r = sys(SYS_recvmsg, sock, &plain, MSG_DONTWAIT);
	if (!n)
		return r;
	if (r < 0 && !many) {	/* it is in the queue still, and so is what it passes */
		rights_done(*ret_fd);
		*ret_fd = -1;
		return r;
	}
	if (many)
		has_crammed(sock);
	if (many || !known) {
		rights_done(*ret_fd);
		*ret_fd = -1;
		r = -EPROTO;
	}
	if (*ret_fd < 0) {
		*ret_flags |= MSG_CTRUNC;
		closer_start();
	}
	return r;
}
