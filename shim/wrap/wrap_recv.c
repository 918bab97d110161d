/*
 * wrap_recv.c - wrappers of the calls that receive. They funnel into stream_recv().
 *
 * What TCP tells besides the bytes is told here: no address (length 0), no ancillary data, no
 * flags. Holds no lock.
 */
#include "wrap/wrap.h"
#include "conn/stream_learn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name)
#define ALIAS_send(alias, name)
#define ALIAS_recv(alias, name) WRAP_ALIAS(alias, name)
#define ALIAS_fd(alias, name)
#define ALIAS_stdio(alias, name)
#define ALIAS_wait(alias, name)
#define ALIAS_clone(alias, name)
#define ALIAS_signal(alias, name)

/* Waits for a byte and leaves it where it is: 1, or what recv() says instead. */
static ssize_t await_byte(struct stream *s, int fd, int flags)
{
	char c;
	struct iovec one = { &c, 1 };

	return stream_recv(s, fd, &one, 1, (flags & ~(MSG_WAITALL | MSG_TRUNC)) | MSG_PEEK);
}

/* A peek that is to wait until all of it is there, and has seen `got` bytes, fewer than wanted:
 * that is the kernel's, on TCP. What recvmsg() says instead, or -errno. */
static __attribute__((noinline)) ssize_t peek_on(struct stream *s, int fd, const struct iovec *iov,
						 size_t n, int flags, ssize_t got)
{
	struct msghdr m = { .msg_iov = (struct iovec *)iov, .msg_iovlen = n };
	ssize_t r;

	if (flags & MSG_DONTWAIT || atomic_load(&s->nonblock) || !fall_back_now(s, REASON_SOCKOPT))
		return got;
	r = stream_kernel_read(s, REAL(recvmsg)(fd, &m, flags));
	return r < 0 ? -errno : r;
}

/* On the fast path, or about to be. */
static ssize_t fast(struct stream *s, int fd, const struct iovec *iov, size_t n, int flags)
{
	size_t want = iov_bytes(iov, n);
	ssize_t r;

	pthread_testcancel();		/* as libc's own, also if there is nothing to wait for */
	if (!want) {
		r = await_byte(s, fd, flags);
		return r > 0 ? 0 : r;
	}
	r = stream_recv(s, fd, iov, (int)n, flags);
	if (__builtin_expect((flags & (MSG_PEEK | MSG_WAITALL)) == (MSG_PEEK | MSG_WAITALL), 0) &&
	    r > 0 && (size_t)r < want)
		return peek_on(s, fd, iov, n, flags, r);
	return r;
}

static __attribute__((noinline)) ssize_t fast_buf(struct stream *s, int fd, void *buf, size_t n,
						  int flags)
{
	struct iovec iov = { buf, n };

	return outside(fast(s, fd, &iov, 1, flags));
}

/* True: the real call, now. Urgent data is the kernel's, and so is its error queue, which never
 * waits and holds no bytes of the stream. */
static __attribute__((noinline)) void urgent(struct stream *s, int fd)
{
	char c;

	/* None there, none to come: whoever sends some falls back before. The real call says
	 * EINVAL. */
	if (sys(SYS_recvfrom, fd, &c, 1ul, MSG_OOB | MSG_PEEK | MSG_DONTWAIT, NULL, NULL) ==
	    -EINVAL)
		return;
	(void)fall_back_now(s, REASON_URGENT);	/* if it fails the kernel has no urgent data:
						 * EINVAL */
}

static bool kernels(struct stream *s, int fd, int flags)
{
	if (flags & MSG_OOB)
		urgent(s, fd);
	if (flags & MSG_ERRQUEUE)
		stream_learn_leave(s, atomic_load(&s->gen));
	return flags & (MSG_OOB | MSG_ERRQUEUE);
}

static ssize_t left(struct stream *s, ssize_t n, int flags)
{
	if (!(flags & MSG_PEEK) || n < 0)
		return left_rx(s, n);
	left_rx(s, 0);
	return n;
}

static __attribute__((noinline)) ssize_t recv_stream(int fd, void *buf, size_t n, int flags,
						     uintptr_t e)
{
	struct stream *s = live_stream_of(fd, e);

	n = most_of(n);
	if (!s || kernels(s, fd, flags))
		return REAL(recv)(fd, buf, n, flags);
	count_move(s->moves.rx, MOVE_recv);
	if (stream_plain_rx(s, flags & MSG_WAITALL ? n : 0))
		return left(s, REAL(recv)(fd, buf, n, flags), flags);
	return fast_buf(s, fd, buf, n, flags);
}

ssize_t wrap_recv(int fd, void *buf, size_t n, int flags)
{
	uintptr_t e = fdtab_get(fd);

	return plainly_kernels(e) ? REAL(recv)(fd, buf, n, flags)
				  : recv_stream(fd, buf, n, flags, e);
}

ssize_t wrap___recv_chk(int fd, void *buf, size_t n, size_t size, int flags)
{
	if (n > size)
		return REAL(__recv_chk)(fd, buf, n, size, flags);	/* does not return */
	return wrap_recv(fd, buf, n, flags);
}

ssize_t wrap_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *addr, socklen_t *len)
{
	struct stream *s = live_stream(fd);
	struct iovec iov = { buf, most_of(n) };
	ssize_t r;

	if (!s || kernels(s, fd, flags))
		return REAL(recvfrom)(fd, buf, n, flags, addr, len);
	count_move(s->moves.rx, MOVE_recvfrom);
	if (stream_plain_rx(s, flags & MSG_WAITALL ? n : 0))
		return left(s, REAL(recvfrom)(fd, buf, n, flags, addr, len), flags);
	r = fast(s, fd, &iov, 1, flags);
	if (r >= 0 && addr) {
		/* after the bytes are taken, as in the kernel */
		if (usermem_bad(len, sizeof(*len), true))
			return outside(-EFAULT);
		if ((int)*len < 0)
			return outside(-EINVAL);
		*len = 0;
	}
	return outside(r);
}

ssize_t wrap___recvfrom_chk(int fd, void *buf, size_t n, size_t size, int flags,
			    struct sockaddr *addr, socklen_t *len)
{
	if (n > size)
		/* does not return */
		return REAL(__recvfrom_chk)(fd, buf, n, size, flags, addr, len);
	return wrap_recvfrom(fd, buf, n, flags, addr, len);
}

static bool msg_refused(const struct msghdr *msg)
{
	return usermem_bad(msg, sizeof(*msg), false) ||
	       iov_refused(msg->msg_iov, msg->msg_iovlen) ||
	       (msg->msg_name && (int)msg->msg_namelen < 0);
}

static bool readable(struct stream *s, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec zero = { 0, 0 };
	struct stream_view v;

	link_read_enter();
	v = stream_view(s);
	link_read_leave();
	if (v.synth & (EPOLLIN | EPOLLRDHUP) || v.coming & EPOLLIN)
		return true;
	return v.kern & EPOLLIN && sys(SYS_ppoll, &p, 1, &zero, NULL, 0) > 0;
}

/* The bytes that are left, as tcp_inq_hint() in net/ipv4/tcp.c counts them: never 0 where a read
 * would give the end. */
static int left_to_read(struct stream *s, int fd)
{
	int n = stream_ioctl_count(s, atomic_load(&s->gen), fd, FIONREAD);

	if (n < 0 && sys(SYS_ioctl, fd, FIONREAD, &n) < 0)
		n = 0;
	return n > 0 ? n : readable(s, fd);
}

/* TCP_INQ's control message, as put_cmsg() in net/core/scm.c writes it into `room` bytes. */
static void tell_inq(struct msghdr *msg, size_t room, int n)
{
	struct cmsghdr h = { CMSG_LEN(sizeof(n)), IPPROTO_TCP, TCP_CM_INQ };
	char whole[CMSG_LEN(sizeof(n))];

	if (room < sizeof(h) ||
	    usermem_bad(msg->msg_control, room < sizeof(whole) ? room : sizeof(whole), true)) {
		msg->msg_flags |= MSG_CTRUNC;
		return;
	}
	if (room < h.cmsg_len) {
		msg->msg_flags |= MSG_CTRUNC;
		h.cmsg_len = room;
	}
	memcpy(whole, &h, sizeof(h));
	memcpy(whole + sizeof(h), &n, sizeof(n));
	memcpy(msg->msg_control, whole, h.cmsg_len);
	msg->msg_controllen = room < CMSG_SPACE(sizeof(n)) ? room : CMSG_SPACE(sizeof(n));
}

ssize_t wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct stream *s = live_stream(fd);
	size_t room;
	ssize_t r;

	if (!s || kernels(s, fd, flags) || flags & CMSG_COMPAT || msg_refused(msg))
		return REAL(recvmsg)(fd, msg, flags);
	count_move(s->moves.rx, MOVE_recvmsg);
	if (stream_plain_rx(s, flags & MSG_WAITALL ? iov_bytes(msg->msg_iov, msg->msg_iovlen) : 0))
		return left(s, REAL(recvmsg)(fd, msg, flags), flags);
	r = fast(s, fd, msg->msg_iov, msg->msg_iovlen, flags);
	if (r >= 0 && usermem_bad(msg, sizeof(*msg), true))	/* as in the kernel: too late */
		return outside(-EFAULT);
	if (r >= 0) {
		if (msg->msg_name)
			msg->msg_namelen = 0;
		room = msg->msg_controllen;
		msg->msg_controllen = 0;
		msg->msg_flags = flags & MSG_CMSG_CLOEXEC;
		if (stream_wants_inq(s, fd))
			tell_inq(msg, room, left_to_read(s, fd));
	}
	return outside(r);
}

/* What is left until `end`, written back as the kernel does. False: nothing. */
static bool time_left(uint64_t end, struct timespec *timeout)
{
	uint64_t now = now_ns();
	uint64_t left_ns = end > now ? end - now : 0;

	timeout->tv_sec = (time_t)(left_ns / 1000000000u);
	timeout->tv_nsec = (long)(left_ns % 1000000000u);
	return left_ns != 0;
}

static ssize_t mmsg_bytes(const struct mmsghdr *vec, int n)
{
	ssize_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += vec[i].msg_len;
	return sum;
}

/* The time is looked at between messages only. An error counts if nothing came; else the socket
 * keeps it for the next call. */
static int recvmmsg_fast(struct stream *s, uint32_t gen, int fd, struct mmsghdr *vec,
			 unsigned int n, int flags, struct timespec *timeout)
{
	uint64_t end = UINT64_MAX;
	ssize_t r = -stream_take_error(s, gen);
	unsigned int i;
	int e = errno;

	if (r)
		return (int)outside(r);
	if (timeout && timeout->tv_sec < 1000000000)
		end = now_ns() + (uint64_t)timeout->tv_sec * 1000000000u +
		      (uint64_t)timeout->tv_nsec;
	for (i = 0; i < n; ) {
		r = usermem_bad(&vec[i], sizeof(vec[i]), false) ?
			    outside(-EFAULT) :
			    wrap_recvmsg(fd, &vec[i].msg_hdr, flags & ~MSG_WAITFORONE);
		if (r >= 0 && usermem_bad(&vec[i].msg_len, sizeof(vec[i].msg_len), true))
			r = outside(-EFAULT);
		if (r < 0)
			break;
		vec[i++].msg_len = (unsigned int)r;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (end != UINT64_MAX && !time_left(end, timeout))
			break;
	}
	if (i == 0 && r < 0)
		return -1;
	if (r < 0 && errno != EAGAIN && errno != EBADF)
		stream_keep_error(s, gen, errno);
	errno = e;
	return (int)i;
}

int wrap_recvmmsg(int fd, struct mmsghdr *vec, unsigned int n, int flags, struct timespec *timeout)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	struct timespec own;
	int r;

	if (!s || usermem_bad(vec, sizeof(*vec), false) ||
	    (timeout && usermem_bad(timeout, sizeof(*timeout), false)) ||
	    (timeout && (timeout->tv_sec < 0 || (unsigned long)timeout->tv_nsec >= 1000000000u)) ||
	    kernels(s, fd, flags))
		return REAL(recvmmsg)(fd, vec, n, flags, timeout);
	count_move(s->moves.rx, MOVE_recvmmsg);
	if (!stream_plain_rx(s, 0)) {
		if (!timeout || !usermem_bad(timeout, sizeof(*timeout), true))
			return recvmmsg_fast(s, gen, fd, vec, n, flags, timeout);
		/* what is left cannot be told: as in the kernel, too late */
		own = *timeout;
		r = recvmmsg_fast(s, gen, fd, vec, n, flags, &own);
		return r > 0 ? (int)outside(-EFAULT) : r;
	}
	r = REAL(recvmmsg)(fd, vec, n, flags, timeout);
	if (r < 0)
		return (int)left(s, r, flags);
	left(s, mmsg_bytes(vec, r), flags);
	return r;
}

/* Reading nothing does not reach the socket, unlike recv(): the real call returns 0 for it. */
static __attribute__((noinline)) ssize_t read_stream(int fd, void *buf, size_t n, uintptr_t e)
{
	struct stream *s = live_stream_of(fd, e);

	if (!s || (ssize_t)n <= 0)
		return REAL(read)(fd, buf, n);
	count_move(s->moves.rx, MOVE_read);
	if (stream_plain_rx(s, 0))
		return left_rx(s, REAL(read)(fd, buf, n));
	return fast_buf(s, fd, buf, n, 0);
}

ssize_t wrap_read(int fd, void *buf, size_t n)
{
	uintptr_t e = fdtab_get(fd);

	return plainly_kernels(e) ? REAL(read)(fd, buf, n) : read_stream(fd, buf, n, e);
}

ssize_t wrap___read_chk(int fd, void *buf, size_t n, size_t size)
{
	if (n > size)
		return REAL(__read_chk)(fd, buf, n, size);	/* does not return */
	return wrap_read(fd, buf, n);
}

ssize_t wrap_readv(int fd, const struct iovec *iov, int n)
{
	struct stream *s = live_stream(fd);

	if (!s || n < 0 || iov_refused(iov, (size_t)n) || !iov_bytes(iov, (size_t)n))
		return REAL(readv)(fd, iov, n);
	count_move(s->moves.rx, MOVE_readv);
	if (stream_plain_rx(s, 0))
		return left_rx(s, REAL(readv)(fd, iov, n));
	return outside(fast(s, fd, iov, (size_t)n, 0));
}

ssize_t wrap_preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	ssize_t r;

	if (!s || off != -1)
		return REAL(preadv2)(fd, iov, n, off, flags);
	count_move(s->moves.rx, MOVE_preadv2);
	if (flags) {
		if (!fallback_to_move(s, REASON_FOREIGN_WAIT, true, flags & RWF_NOWAIT))
			return -1;
		r = stream_kernel_read(s, REAL(preadv2)(fd, iov, n, off, flags));
		stream_fallback_over(s, gen, r < 0, REASON_FOREIGN_WAIT);
		return r;
	}
	return wrap_readv(fd, iov, n);
}

#include "libc/calls.def"
