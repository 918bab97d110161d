/*
 * rights.c - see rights.h.
 */
#include "rights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>

#include "closer.h"
#include "fdtab.h"
#include "identity.h"
#include "shim.h"
#include "sys.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83	/* linux/socket.h, since 6.16 */
#endif

static _Atomic bool cannot_refuse;

bool rights_taken_from(uid_t uid)
{
	if (uid == OVERFLOW_UID)	/* anybody: users of a namespace that maps nobody */
		return false;
	return !uid || uid == (uid_t)sys(SYS_geteuid) || policy_takes_from(atomic_load(&shim_policy), uid);
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

long rights_sender(int sock, struct ucred *ret)
{
	char byte;
	struct iovec iov = { &byte, 1 };
	union { char buf[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr align; } ctl;
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = ctl.buf, .msg_controllen = CMSG_LEN(sizeof *ret) };
	struct cmsghdr *cm;
	long r = sys(SYS_recvmsg, sock, &h, MSG_DONTWAIT | MSG_PEEK);

	*ret = (struct ucred){ 0, OVERFLOW_UID, OVERFLOW_UID };
	cm = r < 0 ? NULL : CMSG_FIRSTHDR(&h);
	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_CREDENTIALS)
		memcpy(ret, CMSG_DATA(cm), sizeof *ret);
	return r;
}

/* A connection that lingers waits for its other end when its last descriptor is closed. */
void rights_done(int fd)
{
	struct linger lg = { 0, 0 };
	socklen_t len = sizeof lg;

	if (fd < 0)
		return;
	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_LINGER, &lg, &len) >= 0 && lg.l_onoff && lg.l_linger)
		closer_take(fd);
	else
		fd_internal_close(fd);
}

/* A kind of which a duplicate can be closed without asking anybody: sockets, files in memory and timers have no flush operation,
 * of which that of a FUSE file waits for its daemon. None of these calls asks the file's owner anything. */
static bool harmless(int fd)
{
	int type;
	socklen_t len = sizeof type;
	uint64_t it[4];

	return sys(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) >= 0 || sys(SYS_fcntl, fd, F_GET_SEALS) >= 0 ||
	       sys(SYS_timerfd_gettime, fd, it) >= 0;
}

/* A socket that somebody sent may linger, and other things wait for worse: what is not put at a high number is closed apart, without the lock. */
long rights_recv(int sock, struct msghdr *h, int *ret_fd)
{
	int low = -1;
	struct cmsghdr *cm;
	bool known = true;
	long r;

	*ret_fd = -1;
	fd_brief_lock();
	r = sys(SYS_recvmsg, sock, h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	for (cm = r < 0 ? NULL : CMSG_FIRSTHDR(h); cm; cm = CMSG_NXTHDR(h, cm))
		if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS)
			memcpy(&low, CMSG_DATA(cm), sizeof low);
	if (low >= 0)
		known = harmless(low);
	if (low >= 0 && known)
		*ret_fd = fd_internal_place(low);
	if (*ret_fd >= 0) {
		sys(SYS_close, low);
		low = -1;
	}
	fd_brief_unlock();
	if (*ret_fd < 0)
		*ret_fd = -1;
	if (low >= 0) {
		h->msg_flags |= MSG_CTRUNC;
		closer_take(low);
	}
	return known ? r : -EPROTO;
}
