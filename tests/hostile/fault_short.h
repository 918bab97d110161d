/*
 * fault_short.h - for fault.c: a call on a TCP socket that moves a third of what was asked for,
 * as the kernel may let it. The supervisor makes the call itself, on a copy of the descriptor,
 * with the program's memory at the other end.
 */
#ifndef FAULT_SHORT_H
#define FAULT_SHORT_H

#include <sys/uio.h>

#define SHORT_IOV 64
#define SHORT_MAX (64 * 1024)

struct moving {
	int fd, flags, n;
	bool out;
	uint64_t msg;		/* where the struct msghdr is; 0: there is none */
	struct iovec iov[SHORT_IOV];
};

static bool peek(pid_t pid, uint64_t at, void *to, size_t n)
{
	struct iovec l = { to, n }, r = { (void *)(uintptr_t)at, n };

	return process_vm_readv(pid, &l, 1, &r, 1, 0) == (ssize_t)n;
}

static bool peek_iov(pid_t pid, uint64_t at, uint64_t n, struct moving *m)
{
	if (n > SHORT_IOV)
		return false;
	m->n = (int)n;
	return peek(pid, at, m->iov, n * sizeof *m->iov);
}

/* What the call would move. False: not a call of this kind. */
static bool understand(pid_t pid, const struct seccomp_data *d, struct moving *m)
{
	struct msghdr h;

	*m = (struct moving){ .fd = (int)d->args[0] };
	switch (d->nr) {
	case SYS_sendto: case SYS_recvfrom:
		m->out = d->nr == SYS_sendto;
		m->flags = (int)d->args[3];
		m->iov[0] = (struct iovec){ (void *)(uintptr_t)d->args[1], d->args[2] };
		m->n = 1;
		return !d->args[4];
	case SYS_read:
		m->iov[0] = (struct iovec){ (void *)(uintptr_t)d->args[1], d->args[2] };
		m->n = 1;
		return true;
	case SYS_readv: case SYS_writev:
		m->out = d->nr == SYS_writev;
		return peek_iov(pid, d->args[1], d->args[2], m);
	case SYS_sendmsg: case SYS_recvmsg:
		m->out = d->nr == SYS_sendmsg;
		m->flags = (int)d->args[2];
		m->msg = d->args[1];
		return peek(pid, m->msg, &h, sizeof h) && !h.msg_name && !h.msg_controllen &&
		       peek_iov(pid, (uintptr_t)h.msg_iov, h.msg_iovlen, m);
	default: return false;
	}
}

/* Keeps the first `want` bytes of the list. */
static void cut_iov(struct moving *m, size_t want)
{
	for (int i = 0; i < m->n; i++) {
		if (m->iov[i].iov_len > want)
			m->iov[i].iov_len = want;
		want -= m->iov[i].iov_len;
	}
}

/* A stream socket of TCP that does not block, or is asked not to. */
static bool fits(int fd, const struct moving *m)
{
	int type = 0, domain = 0;
	socklen_t len = sizeof type;

	if (m->flags & (MSG_WAITALL | MSG_TRUNC | MSG_OOB | MSG_ERRQUEUE) ||
	    (!(m->flags & MSG_DONTWAIT) && !(fcntl(fd, F_GETFL) & O_NONBLOCK)))
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_STREAM)
		return false;
	len = sizeof domain;
	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) &&
	       (domain == AF_INET || domain == AF_INET6);
}

static ssize_t move_some(pid_t pid, int fd, struct moving *m, size_t want)
{
	static char buf[SHORT_MAX];
	struct iovec l = { buf, want };
	int none = 0;
	ssize_t n;

	cut_iov(m, want);
	if (m->out)
		return process_vm_readv(pid, &l, 1, m->iov, (unsigned long)m->n, 0) == (ssize_t)want
			       ? send(fd, buf, want, m->flags | MSG_NOSIGNAL | MSG_DONTWAIT)
			       : -1;
	n = recv(fd, buf, want, m->flags | MSG_DONTWAIT);
	l.iov_len = n > 0 ? (size_t)n : 0;
	if (n > 0 && process_vm_writev(pid, &l, 1, m->iov, (unsigned long)m->n, 0) != n)
		return -1;
	if (m->msg) {
		struct iovec from = { &none, sizeof none },
			at = { (void *)(uintptr_t)(m->msg + offsetof(struct msghdr, msg_flags)),
			       sizeof none };

		process_vm_writev(pid, &from, 1, &at, 1, 0);
	}
	return n;
}

/* True: the call was made, *ret is what it gave. */
static bool short_call(int pidfd, pid_t pid, const struct seccomp_data *d, long *ret)
{
	struct moving m;
	size_t total = 0;
	bool made = false;
	int fd;

	if (!understand(pid, d, &m))
		return false;
	for (int i = 0; i < m.n; i++)
		total += m.iov[i].iov_len;
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, m.fd, 0);
	if (fd >= 0 && total > 1 && fits(fd, &m)) {
		size_t want = total / 3 ? total / 3 : 1;
		ssize_t n = move_some(pid, fd, &m, want < SHORT_MAX ? want : SHORT_MAX);

		*ret = n < 0 ? -errno : n;
		made = true;
	}
	if (fd >= 0)
		close(fd);
	return made;
}

#endif
