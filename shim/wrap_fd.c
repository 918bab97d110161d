/*
 * wrap_fd.c - wrappers of the calls that close, copy and configure fd numbers, or hand one to stdio or aio.
 *
 * The shim's own fds look closed: close() and dup() of one is EBADF, and whoever wants its number
 * (dup2) gets it after ours has moved. In a child of vfork or clone only the kernel's fd table
 * is its own, so there nothing but the real call is made; but a stream that it copies goes home first, for
 * the new program that will read it, and the fd by which that is asked for stays open until exec.
 * Holds no lock.
 */
#include "bg.h"
#include "libc.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name)
#define ALIAS_send(alias, name)
#define ALIAS_recv(alias, name)
#define ALIAS_fd(alias, name) WRAP_ALIAS(alias, name)
#define ALIAS_wait(alias, name)
#define ALIAS_signal(alias, name)

void fd_fresh(int fd)
{
	uintptr_t e = fdtab_get(fd);

	if (!e || foreign_image())
		return;
	switch (fdtab_kind(e)) {
	case FD_STREAM:
		stream_fd_stale(fdtab_stream(fd), fd);
		break;
	case FD_EPOLL:
		ready_epoll_forget_fd(fdtab_epoll(fd), fd);
		break;
	default:
		fdtab_set(fd, FD_NONE, NULL, NULL);
	}
}

/* ---- close ---- */

int wrap_close(int fd)
{
	uintptr_t e = shim_on ? fdtab_get(fd) : 0;
	int err;

	if (!e)
		return REAL(close)(fd);
	if (foreign_image())
		return fdtab_kind(e) == FD_INTERNAL && fork_keeps_fd(fd) ? (int)outside(-EBADF) : REAL(close)(fd);
	switch (fdtab_kind(e)) {
	case FD_INTERNAL:
		return (int)outside(-EBADF);
	case FD_STREAM:
		count_call(ID_close);
		return (int)outside(stream_close(fdtab_stream(fd), fd));
	default:
		err = errno;
		ready_epoll_forget_fd(fdtab_epoll(fd), fd);
		errno = err;
		return REAL(close)(fd);
	}
}

/* [first, last] holds nothing of ours. A kernel without close_range: one by one, as libc does. */
static void close_span(unsigned int first, unsigned int last, bool have_call)
{
	struct rlimit lim;

	if (have_call) {
		REAL(close_range)(first, last, 0);
		return;
	}
	if (sys(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) == 0 && last >= lim.rlim_cur)
		last = (unsigned int)lim.rlim_cur - 1;
	for (; first <= last; first++)
		sys(SYS_close, first);
}

/* Ours stay, what the shim knows is closed as by close(), the stretches between by the kernel. */
static void close_pieces(unsigned int first, unsigned int last, bool have_call)
{
	unsigned int top = (unsigned int)fdtab_top();
	unsigned int from = first;

	for (unsigned int fd = first; fd < top && fd <= last; fd++) {
		if (!fdtab_get((int)fd))
			continue;
		if (from < fd)
			close_span(from, fd - 1, have_call);
		from = fd + 1;
		if (!fdtab_internal((int)fd))
			wrap_close((int)fd);
	}
	if (from <= last)
		close_span(from, last, have_call);
}

/* In another's memory: the kernel's table alone, but for what asking for the streams takes. */
static void close_theirs(unsigned int first, unsigned int last, bool have_call)
{
	unsigned int top = (unsigned int)fdtab_top(), from = first;

	for (unsigned int fd = first; fd < top && fd <= last; fd++) {
		if (!fdtab_internal((int)fd) || !fork_keeps_fd((int)fd))
			continue;
		if (from < fd)
			close_span(from, fd - 1, have_call);
		from = fd + 1;
	}
	if (from <= last)
		close_span(from, last, have_call);
}

int wrap_close_range(unsigned int first, unsigned int last, int flags)
{
	int e = errno;

	if (!shim_on || first > last || (flags & ~CLOSE_RANGE_UNSHARE))
		return REAL(close_range)(first, last, flags);
	/* With none but our own thread to part from: it must see the same descriptors as the program. */
	if (!foreign_image() && bg_only_other_thread())
		flags = 0;
	/* Empty at the far end: shows an old kernel, and unshares. Another thread's table keeps the fds
	 * that we now forget; they stay on TCP there. */
	if (REAL(close_range)(UINT_MAX, UINT_MAX, flags) != 0)
		return -1;
	if (foreign_image())
		close_theirs(first, last, true);
	else
		close_pieces(first, last, true);
	errno = e;
	return 0;
}

void wrap_closefrom(int first)
{
	unsigned int from = first < 0 ? 0 : (unsigned int)first;
	int e = errno;
	bool have_call;

	if (!shim_on) {
		REAL(closefrom)(first);
		return;
	}
	have_call = REAL(close_range)(UINT_MAX, UINT_MAX, 0) == 0;
	if (foreign_image())
		close_theirs(from, UINT_MAX, have_call);
	else
		close_pieces(from, UINT_MAX, have_call);
	errno = e;
}

/* ---- dup ---- */

/* The kernel has made `to` another number for `fd`, whose table entry was `e`. */
static void copied(enum call_id id, uintptr_t e, int fd, int to)
{
	int err = errno;

	if (e && e == fdtab_get(fd)) {
		if (fdtab_kind(e) == FD_STREAM) {
			count_call(id);
			stream_dup(fdtab_stream(fd), to);
		} else if (fdtab_kind(e) == FD_EPOLL) {
			ready_epoll_dup(fdtab_epoll(fd), to);
		}
	}
	errno = err;
}

/* In another's memory: the copy is for a program that knows nothing of us. */
static void lend(uintptr_t e, int fd)
{
	int err = errno;

	if (fdtab_kind(e) == FD_STREAM)
		(void)fork_lend(fdtab_stream(fd));
	errno = err;
}

int wrap_dup(int fd)
{
	uintptr_t e = shim_on ? fdtab_get(fd) : 0;
	bool theirs = e && foreign_image();
	int r;

	if (e && !theirs && fdtab_kind(e) == FD_INTERNAL)
		return (int)outside(-EBADF);
	if (theirs)
		lend(e, fd);
	r = REAL(dup)(fd);
	if (r >= 0 && shim_on && !theirs) {
		fd_fresh(r);
		copied(ID_dup, e, fd, r);
	}
	return r;
}

/* Makes the number `to` free of anything that the shim knows. 0 or -errno. */
static int vacate(int to)
{
	uintptr_t t = fdtab_get(to);
	int r;

	switch (fdtab_kind(t)) {
	case FD_INTERNAL:
		r = fd_internal_move(to);
		return r < 0 ? r : 0;
	case FD_STREAM:
		stream_forget_fd(fdtab_stream(to), to);
		return 0;
	case FD_EPOLL:
		ready_epoll_forget_fd(fdtab_epoll(to), to);
		return 0;
	default:
		return 0;
	}
}

/* What must be done before the kernel's dup2. 0 or -errno. */
static int before_dup_onto(uintptr_t e, int fd, int to)
{
	struct stream *s;
	int r;

	if (fdtab_kind(e) == FD_INTERNAL)
		return -EBADF;
	r = (int)sys(SYS_fcntl, fd, F_GETFD);	/* a bad source must leave the target open */
	if (r < 0)
		return r;
	/* stdio uses 0, 1 and 2 from inside libc, where it cannot be seen */
	s = to <= 2 ? live_stream(fd) : NULL;
	if (s)
		(void)sent_home(s, REASON_STDIO);
	return vacate(to);
}

static int dup_onto(int fd, int to, int flags, bool three)
{
	uintptr_t e = shim_on ? fdtab_get(fd) : 0;
	bool known = e || (shim_on && fdtab_get(to));
	bool theirs = known && foreign_image();
	int r, err = errno;

	if (theirs && fd != to)
		lend(e, fd);
	if (known && fd != to && to >= 0 && !(flags & ~O_CLOEXEC) && !theirs) {
		r = before_dup_onto(e, fd, to);
		if (r < 0)
			return (int)outside(r);
		errno = err;
	} else {
		e = 0;
	}
	r = three ? REAL(dup3)(fd, to, flags) : REAL(dup2)(fd, to);
	if (r >= 0 && e)
		copied(three ? ID_dup3 : ID_dup2, e, fd, to);
	return r;
}

int wrap_dup2(int fd, int to)
{
	return dup_onto(fd, to, 0, false);
}

int wrap_dup3(int fd, int to, int flags)
{
	return dup_onto(fd, to, flags, true);
}

/* ---- fcntl, ioctl ---- */

static int fcntl_dup(int fd, int cmd, long arg)
{
	uintptr_t e = fdtab_get(fd);
	bool theirs = e && foreign_image();
	int r;

	if (e && !theirs && fdtab_kind(e) == FD_INTERNAL)
		return (int)outside(-EBADF);
	if (theirs)
		lend(e, fd);
	r = REAL(fcntl)(fd, cmd, arg);
	if (r >= 0 && !theirs) {
		fd_fresh(r);
		copied(ID_fcntl, e, fd, r);
	}
	return r;
}

static int fcntl_setfl(int fd, long arg)
{
	struct stream *s = live_stream(fd);
	int r, e;

	if (s)
		count_call(ID_fcntl);
	if (s && (arg & O_ASYNC))
		(void)pinned_now(s, REASON_SOCKOPT);
	r = REAL(fcntl)(fd, F_SETFL, arg);
	if (s && r == 0 && !stream_pinned(s)) {
		e = errno;
		stream_set_nonblock(s, arg & O_NONBLOCK);
		errno = e;
	}
	return r;
}

int wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (shim_on && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
		return fcntl_dup(fd, cmd, arg);
	if (cmd == F_SETFL)
		return fcntl_setfl(fd, arg);
	return REAL(fcntl)(fd, cmd, arg);
}

int wrap_ioctl(int fd, unsigned long req, ...)
{
	struct stream *s = live_stream(fd);
	va_list ap;
	long arg;
	int r, e;

	va_start(ap, req);
	arg = va_arg(ap, long);
	va_end(ap);
	if (!s || !arg)
		return REAL(ioctl)(fd, req, arg);
	count_call(ID_ioctl);
	switch ((unsigned int)req) {
	case FIONREAD:
	case SIOCOUTQ:
	case SIOCOUTQNSD:
		r = stream_ioctl_count(s, fd, req);
		if (r >= 0) {
			*(int *)arg = r;
			return 0;
		}
		return REAL(ioctl)(fd, req, arg);
	case FIONBIO:
		r = REAL(ioctl)(fd, req, arg);
		if (r == 0) {
			e = errno;
			stream_set_nonblock(s, *(int *)arg != 0);
			errno = e;
		}
		return r;
	case FIOASYNC:
		if (*(int *)arg)
			(void)pinned_now(s, REASON_SOCKOPT);
		return REAL(ioctl)(fd, req, arg);
	default:
		return REAL(ioctl)(fd, req, arg);
	}
}

/* ---- stdio and aio: libc moves the bytes from inside ---- */

/* False: errno is ETIMEDOUT. */
static bool to_stdio(int fd, enum reason why)
{
	struct stream *s = live_stream(fd);

	if (!s || pinned_now(s, why))
		return true;
	errno = ETIMEDOUT;
	return false;
}

FILE *wrap_fdopen(int fd, const char *mode)
{
	return to_stdio(fd, REASON_STDIO) ? REAL(fdopen)(fd, mode) : NULL;
}

/* libc is about to close the file's fd from inside. */
static void before_fclose(FILE *f)
{
	struct stream *s;
	int fd, e = errno;

	if (!shim_on || !f)
		return;
	fd = fileno(f);
	s = fd >= 0 ? fdtab_stream(fd) : NULL;
	if (s && !foreign_image()) {
		if (!stream_pinned(s))
			(void)sent_home(s, REASON_STDIO);
		stream_forget_fd(s, fd);
	}
	errno = e;
}

int wrap_fclose(FILE *f)
{
	before_fclose(f);
	return REAL(fclose)(f);
}

FILE *wrap_freopen(const char *path, const char *mode, FILE *f)
{
	before_fclose(f);
	return REAL(freopen)(path, mode, f);
}

FILE *wrap_freopen64(const char *path, const char *mode, FILE *f)
{
	before_fclose(f);
	return REAL(freopen64)(path, mode, f);
}

int wrap_vdprintf(int fd, const char *fmt, va_list ap)
{
	return to_stdio(fd, REASON_STDIO) ? REAL(vdprintf)(fd, fmt, ap) : -1;
}

int wrap___vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	return to_stdio(fd, REASON_STDIO) ? REAL(__vdprintf_chk)(fd, flag, fmt, ap) : -1;
}

int wrap_dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = wrap_vdprintf(fd, fmt, ap);
	va_end(ap);
	return r;
}

int wrap___dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = wrap___vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return r;
}

int wrap_aio_read(struct aiocb *cb)
{
	return !cb || to_stdio(cb->aio_fildes, REASON_FOREIGN_WAIT) ? REAL(aio_read)(cb) : -1;
}

int wrap_aio_write(struct aiocb *cb)
{
	return !cb || to_stdio(cb->aio_fildes, REASON_FOREIGN_WAIT) ? REAL(aio_write)(cb) : -1;
}

int wrap_lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *sig)
{
	for (int i = 0; shim_on && list && i < n; i++)
		if (list[i] && !to_stdio(list[i]->aio_fildes, REASON_FOREIGN_WAIT))
			return -1;
	return REAL(lio_listio)(mode, list, n, sig);
}

#include "calls.def"
