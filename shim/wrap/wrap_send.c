/*
 * wrap_send.c - wrappers of the calls that send. They funnel into stream_send(), which also
 * raises SIGPIPE when it answers -EPIPE without MSG_NOSIGNAL.
 *
 * A byte must never go to the kernel's socket while earlier ones are on the fast path: where a
 * stream cannot be brought back to TCP in time, the call fails with ETIMEDOUT, as TCP's may.
 * Holds no lock.
 */
#include "wrap/wrap.h"
#include "conn/stream_learn.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name)
#define ALIAS_send(alias, name) WRAP_ALIAS(alias, name)
#define ALIAS_recv(alias, name)
#define ALIAS_fd(alias, name)
#define ALIAS_stdio(alias, name)
#define ALIAS_wait(alias, name)
#define ALIAS_clone(alias, name)
#define ALIAS_signal(alias, name)

/* On the fast path, or about to be. */
static ssize_t fast(struct stream *s, int fd, const struct iovec *iov, size_t n, int flags)
{
	pthread_testcancel();		/* as libc's own, also if there is nothing to wait for */
	return outside(stream_send(s, fd, iov, (int)n, flags));
}

/* Not inlined, here and below: on the plain way there is nothing to save and to restore. */
static __attribute__((noinline)) ssize_t fast_buf(struct stream *s, int fd, const void *buf,
						  size_t n, int flags)
{
	struct iovec iov = { (void *)buf, n };

	return fast(s, fd, &iov, 1, flags);
}

/* Urgent data; and MSG_ZEROCOPY where SO_ZEROCOPY is on, which is answered in the kernel's error
 * queue. */
#define KERNEL_FLAGS (MSG_OOB | MSG_ZEROCOPY)

static enum reason for_kernel(int flags)
{
	return flags & MSG_OOB ? REASON_URGENT : REASON_SOCKOPT;
}

/* 1: the real call, now, the stream is on TCP, and kernel_sent() follows; 0: nothing for the
 * kernel; -1: cannot get back to TCP, errno says so. */
static __attribute__((noinline)) int kernels(struct stream *s, int fd, int flags, uint32_t *ret_gen)
{
	int on = flags & MSG_OOB;
	socklen_t len = sizeof(on);

	if (!on && (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_ZEROCOPY, &on, &len) < 0 || !on))
		return 0;
	*ret_gen = atomic_load(&s->gen);
	return fallback_to_move(s, for_kernel(flags), false, flags & MSG_DONTWAIT) ? 1 : -1;
}

static ssize_t kernel_sent(struct stream *s, uint32_t gen, int flags, ssize_t r)
{
	stream_fallback_over(s, gen, r < 0, for_kernel(flags));
	return r;
}

static __attribute__((noinline)) ssize_t send_stream(int fd, const void *buf, size_t n, int flags,
						     uintptr_t e)
{
	struct stream *s = live_stream_of(fd, e);
	uint32_t gen;
	int k;

	n = most_of(n);
	if (!s)
		return REAL(send)(fd, buf, n, flags);
	count_move(s->moves.tx, MOVE_send);
	if (flags & KERNEL_FLAGS && (k = kernels(s, fd, flags, &gen)))
		return k > 0 ? kernel_sent(s, gen, flags, REAL(send)(fd, buf, n, flags)) : -1;
	if (stream_plain_tx(s, n))
		return left_tx(s, REAL(send)(fd, buf, n, flags));
	return fast_buf(s, fd, buf, n, flags);
}

ssize_t wrap_send(int fd, const void *buf, size_t n, int flags)
{
	uintptr_t e = fdtab_get(fd);

	return plainly_kernels(e) ? REAL(send)(fd, buf, n, flags)
				  : send_stream(fd, buf, n, flags, e);
}

/* With MSG_FASTOPEN a send may connect the socket; the kernel knows whether, for an earlier attempt
 * may have failed. While the call is counted the stream is no other one's. */
static ssize_t plainly_sent(struct stream *s, ssize_t r, int flags)
{
	int e = errno;

	if (flags & MSG_FASTOPEN) {
		stream_connect_result(s, atomic_load(&s->gen), r < 0 ? e : 0);
		errno = e;
	}
	return left_tx(s, r);
}

/* Before it: as kernels(). */
static int reopens(struct stream *s, int fd, int flags)
{
	if (!(flags & MSG_FASTOPEN) || stream_before_connect(s, atomic_load(&s->gen), fd))
		return 0;
	if (fall_back_now(s, REASON_SOCKOPT))
		return 1;
	errno = ETIMEDOUT;
	return -1;
}

/* ... and on a fast path: the kernel says EISCONN, but once 0 of a connect() that did not wait. */
static int opened_twice(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage to;

	if (len < sizeof(to.ss_family) || len > sizeof(to))
		return -EINVAL;
	if (usermem_bad(addr, len, false))
		return -EFAULT;
	memcpy(&to, addr, len);
	if (to.ss_family == AF_UNSPEC)
		return -EOPNOTSUPP;
	return (int)sys(SYS_connect, fd, &to, len);
}

/* TCP ignores the address once connected, but the kernel looks at its length first. */
ssize_t wrap_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr,
		    socklen_t len)
{
	struct stream *s = live_stream(fd);
	struct iovec iov = { (void *)buf, most_of(n) };
	uint32_t gen;
	int k;

	if (!s ||
	    (addr &&
	     (len > sizeof(struct sockaddr_storage) || (len && usermem_bad(addr, len, false)))))
		return REAL(sendto)(fd, buf, n, flags, addr, len);
	count_move(s->moves.tx, MOVE_sendto);
	if (flags & KERNEL_FLAGS && (k = kernels(s, fd, flags, &gen)))
		return k > 0 ? kernel_sent(s, gen, flags,
					   REAL(sendto)(fd, buf, n, flags, addr, len))
			     : -1;
	if ((k = reopens(s, fd, flags)))
		return k > 0 ? REAL(sendto)(fd, buf, n, flags, addr, len) : -1;
	if (stream_plain_tx(s, n))
		return plainly_sent(s, REAL(sendto)(fd, buf, n, flags, addr, len), flags);
	if ((flags & MSG_FASTOPEN) && addr && (k = opened_twice(fd, addr, len)))
		return outside(k);
	return fast(s, fd, &iov, 1, flags & ~MSG_FASTOPEN);
}

static bool carries_fds(const struct msghdr *msg)
{
	struct cmsghdr *c;

	if (usermem_bad(msg, sizeof(*msg), false) || msg->msg_controllen < CMSG_LEN(sizeof(int)) ||
	    usermem_bad(msg->msg_control, msg->msg_controllen, false))
		return false;
	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			return true;
	return false;
}

/* Such a message goes by a UNIX socket, with an address or a peer, and takes what is open:
 * unix(7). */
static bool may_pass(int fd, const struct msghdr *msg)
{
	struct pollfd p = { .fd = fd };
	struct timespec zero = { 0, 0 };
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int any, one;

	if (sys(SYS_fcntl, fd, F_GETFD) < 0)
		return false;
	if (!msg->msg_name && sys(SYS_getpeername, fd, &peer, &len) < 0)
		return false;
	/* Both ways ended: there is nobody. */
	if (!msg->msg_name && sys(SYS_ppoll, &p, 1, &zero, NULL, 0) > 0 && p.revents & POLLHUP)
		return false;
	len = sizeof(any);
	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &any, &len) < 0 || any != AF_UNIX)
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)msg, c)) {
		if (c->cmsg_len >
		    msg->msg_controllen - (size_t)((char *)c - (char *)msg->msg_control))
			return false;
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = CMSG_LEN(0); i + sizeof(one) <= c->cmsg_len; i += sizeof(one)) {
			memcpy(&one, (char *)c + i, sizeof(one));
			if (sys(SYS_fcntl, one, F_GETFD) < 0)
				return false;
		}
	}
	return true;
}

bool before_pass(int fd, const struct msghdr *msg)
{
	int e = errno;
	bool any = carries_fds(msg), now = any && may_pass(fd, msg);

	if (now)
		shim_before_pass(msg);
	errno = e;
	return any && !now;
}

void before_pass_any(const struct msghdr *msg)
{
	int e = errno;

	if (carries_fds(msg))
		shim_before_pass(msg);
	errno = e;
}

static bool msg_refused(const struct msghdr *msg)
{
	return usermem_bad(msg, sizeof(*msg), false) ||
	       iov_refused(msg->msg_iov, msg->msg_iovlen) ||
	       (msg->msg_name &&
		((int)msg->msg_namelen < 0 ||
		 (msg->msg_namelen &&
		  usermem_bad(msg->msg_name, msg->msg_namelen < 128 ? msg->msg_namelen : 128,
			      false))));
}

static ssize_t send_one(struct stream *s, int fd, const struct msghdr *msg, int flags)
{
	uint32_t gen = atomic_load(&s->gen);
	int k;

	if (flags & CMSG_COMPAT || msg_refused(msg))
		return REAL(sendmsg)(fd, msg, flags);
	if (flags & KERNEL_FLAGS && (k = kernels(s, fd, flags, &gen)))
		return k > 0 ? kernel_sent(s, gen, flags, REAL(sendmsg)(fd, msg, flags)) : -1;
	if ((k = reopens(s, fd, flags)))
		return k > 0 ? REAL(sendmsg)(fd, msg, flags) : -1;
	if (msg->msg_controllen) {	/* it may ask for a stamp */
		stream_learn_leave(s, gen);
		return fallback_to_move(s, REASON_SOCKOPT, false, flags & MSG_DONTWAIT)
			       ? kernel_sent(s, gen, 0, REAL(sendmsg)(fd, msg, flags))
			       : -1;
	}
	if (stream_plain_tx(s, iov_bytes(msg->msg_iov, msg->msg_iovlen)))
		return plainly_sent(s, REAL(sendmsg)(fd, msg, flags), flags);
	if ((flags & MSG_FASTOPEN) && msg->msg_name &&
	    (k = opened_twice(fd, msg->msg_name, msg->msg_namelen)))
		return outside(k);
	return fast(s, fd, msg->msg_iov, msg->msg_iovlen, flags & ~MSG_FASTOPEN);
}

ssize_t wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct stream *s = live_stream(fd);
	bool wrong;
	ssize_t r;

	if (s) {
		count_move(s->moves.tx, MOVE_sendmsg);
		return send_one(s, fd, msg, flags);
	}
	wrong = shim_on && before_pass(fd, msg);
	r = REAL(sendmsg)(fd, msg, flags);
	if (wrong && r >= 0)
		before_pass_any(msg);
	return r;
}

/* On another socket than a stream's. */
static int pass_many(int fd, struct mmsghdr *vec, unsigned int n, int flags)
{
	bool wrong = false;
	int r;

	for (unsigned int i = 0; shim_on && i < n; i++) {
		if (usermem_bad(&vec[i], sizeof(vec[i]), false))
			break;
		wrong |= before_pass(fd, &vec[i].msg_hdr);
	}
	r = REAL(sendmmsg)(fd, vec, n, flags);
	for (int i = 0; wrong && i < r; i++)
		before_pass_any(&vec[i].msg_hdr);
	return r;
}

/* An error counts only if nothing was sent; a message that went in part is the last. */
int wrap_sendmmsg(int fd, struct mmsghdr *vec, unsigned int n, int flags)
{
	struct stream *s = live_stream(fd);
	unsigned int i;
	ssize_t r = 0;
	size_t want;
	int e = errno;

	if (n > IOV_MAX)
		n = IOV_MAX;
	if (!s)
		return pass_many(fd, vec, n, flags);
	count_move(s->moves.tx, MOVE_sendmmsg);
	for (i = 0; i < n; i++) {
		r = usermem_bad(&vec[i], sizeof(vec[i]), false) ?
			    outside(-EFAULT) :
			    wrap_sendmsg(fd, &vec[i].msg_hdr, flags);
		/* as in the kernel: too late */
		if (r >= 0 && usermem_bad(&vec[i].msg_len, sizeof(vec[i].msg_len), true))
			r = outside(-EFAULT);
		if (r < 0)
			break;
		want = iov_bytes(vec[i].msg_hdr.msg_iov, vec[i].msg_hdr.msg_iovlen);
		vec[i].msg_len = (unsigned int)r;
		if ((size_t)r < want) {
			i++;
			break;
		}
	}
	if (i == 0 && r < 0)
		return -1;
	errno = e;
	return (int)i;
}

static __attribute__((noinline)) ssize_t write_stream(int fd, const void *buf, size_t n,
						      uintptr_t e)
{
	struct stream *s = live_stream_of(fd, e);

	if (!s || (ssize_t)n < 0)
		return REAL(write)(fd, buf, n);
	count_move(s->moves.tx, MOVE_write);
	if (stream_plain_tx(s, n))
		return left_tx(s, REAL(write)(fd, buf, n));
	return fast_buf(s, fd, buf, n, 0);
}

ssize_t wrap_write(int fd, const void *buf, size_t n)
{
	uintptr_t e = fdtab_get(fd);

	return plainly_kernels(e) ? REAL(write)(fd, buf, n) : write_stream(fd, buf, n, e);
}

/* An empty vector does not reach the socket: the real call returns 0 for it, or an error. */
ssize_t wrap_writev(int fd, const struct iovec *iov, int n)
{
	struct stream *s = live_stream(fd);
	size_t bytes;

	if (!s || n < 0 || iov_refused(iov, (size_t)n) || !(bytes = iov_bytes(iov, (size_t)n)))
		return REAL(writev)(fd, iov, n);
	count_move(s->moves.tx, MOVE_writev);
	if (stream_plain_tx(s, bytes))
		return left_tx(s, REAL(writev)(fd, iov, n));
	return fast(s, fd, iov, (size_t)n, 0);
}

ssize_t wrap_pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	ssize_t r;

	if (!s || off != -1)
		return REAL(pwritev2)(fd, iov, n, off, flags);
	count_move(s->moves.tx, MOVE_pwritev2);
	if (flags) {
		if (!fallback_to_move(s, REASON_FOREIGN_WAIT, false, flags & RWF_NOWAIT))
			return -1;
		r = REAL(pwritev2)(fd, iov, n, off, flags);
		stream_fallback_over(s, gen, r < 0, REASON_FOREIGN_WAIT);
		return r;
	}
	return wrap_writev(fd, iov, n);
}

ssize_t wrap_sendfile(int out, int in, off_t *off, size_t n)
{
	struct stream *s = live_stream(out);
	int64_t at = 0;
	ssize_t r;

	if (!s || (ssize_t)n < 0)
		return REAL(sendfile)(out, in, off, n);
	count_move(s->moves.tx, MOVE_sendfile);
	if (stream_plain_tx(s, n))
		return left_tx(s, REAL(sendfile)(out, in, off, n));
	if (off && usermem_bad(off, sizeof(*off), false))
		return outside(-EFAULT);
	if (off)
		at = *off;
	r = stream_sendfile(s, out, in, off ? &at : NULL, n);
	if (off && usermem_bad(off, sizeof(*off), true))	/* as in the kernel: too late */
		return outside(-EFAULT);
	if (off)
		*off = at;
	return outside(r);
}

ssize_t wrap_splice(int in, off64_t *in_off, int out, off64_t *out_off, size_t n,
		    unsigned int flags)
{
	uint32_t from_gen, to_gen;
	struct stream *from = live_stream_gen(in, &from_gen), *to = live_stream_gen(out, &to_gen);
	ssize_t r = -1;
	int late = 0;

	if (from || to)
		count_call_on(ID_splice,
			      (from && stream_on_link(from)) || (to && stream_on_link(to)));
	if (fallback_to_move(from, REASON_SPLICE, true, false) &&
	    fallback_to_move(to, REASON_SPLICE, false, false))
		r = REAL(splice)(in, in_off, out, out_off, n, flags);
	else
		late = errno;
	if (late)
		errno = ETIMEDOUT;	/* EAGAIN would wait for them to get back to TCP once
					 * more */
	if (from)
		stream_fallback_over(from, from_gen, r < 0, REASON_SPLICE);
	if (to)
		stream_fallback_over(to, to_gen, r < 0, REASON_SPLICE);
	if (late)
		errno = late;
	return r;
}

#include "libc/calls.def"
