/*
 * wrap_fd.c - wrappers of the calls that close, copy and configure fd numbers.
 *
 * The library's own fds look closed: close() and dup() of one is EBADF, and whoever wants its
 * number (dup2) gets it after ours has moved. In a child of vfork or clone only the kernel's fd
 * table is its own, so there nothing but the real call is made; but a stream that it copies
 * falls back first, for the new program that will read it, and the fd by which that is asked for
 * stays open until exec. What the library has under a low number for a moment nobody takes:
 * fd_number_lock(), see fdtab.h. No other lock.
 */
#include "wrap/wrap.h"
#include "base/loop.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name)
#define ALIAS_send(alias, name)
#define ALIAS_recv(alias, name)
#define ALIAS_fd(alias, name) WRAP_ALIAS(alias, name)
#define ALIAS_stdio(alias, name)
#define ALIAS_wait(alias, name)
#define ALIAS_clone(alias, name)
#define ALIAS_signal(alias, name)

void fd_fresh(int fd)
{
	uintptr_t e = fdtab_get(fd);

	if (!e || foreign_image())
		return;
	switch (fdtab_kind(e)) {
	case FD_STREAM:
		stream_fd_stale(fdtab_stream_of(e), fd);
		break;
	case FD_EPOLL:
		ready_epoll_forget_fd(fdtab_epoll_of(e), fd, false);
		break;
	default:
		fdtab_set(fd, FD_NONE, NULL, NULL);
	}
}

/* Is what has the number of the kind that has one for long while it is closed: a socket of TCP,
 * or, as an epoll instance, without a type? */
static bool may_be_closing(int fd)
{
	struct stat st;

	return fd_is_tcp(fd) || (sys(SYS_fstat, fd, &st) >= 0 && !(st.st_mode & S_IFMT));
}

#define CLOSING_NS 100000000
#define FREED_NS   1000000

/* The number that this thread is closing. A handler that comes within that waits in vain for it,
 * but may have got it for another file: the kernel has freed it. Stale after one that jumped
 * out: then a close() of it elsewhere counts as done a little early. */
static __thread int closing_here __attribute__((tls_model("initial-exec"))) = -1;

/* What the library knows of fd. Another thread's close() of it is over in a moment, and the
 * number perhaps somebody else's. The kernel frees a number before it closes the file behind it,
 * which may take as long as SO_LINGER says; by then the number may be another file's. (One that
 * is accepted, or a copy made by us, has an entry of its own.) Otherwise the close counts as
 * done: EBADF, as for a number of ours. */
static uintptr_t entry_of(int fd)
{
	uintptr_t e = shim_on ? fdtab_get(fd) : 0;
	uint64_t now, end = 0;

	while (e == FDTAB_CLOSING && !foreign_image()) {
		uint32_t seen = event_look(&fdtab_closes);

		now = now_ns();
		end = end ? end : now + CLOSING_NS;
		if (!may_be_closing(fd))
			fdtab_closed(fd);
		else if (fd == closing_here || now >= end)
			break;
		else if (fdtab_get(fd) == e)
			/* In naps: that the number was freed before, and is another file's,
			 * nobody tells. */
			event_wait(&fdtab_closes, seen,
				   now + FREED_NS < end ? now + FREED_NS : end);
		e = fdtab_get(fd);
	}
	return e;
}

bool fdtab_closing_over(int fd) { return entry_of(fd) != FDTAB_CLOSING; }
struct stream *live_stream_again(int fd) { return live_stream(fd); }

/* A thread of ours may have a number of its own for a moment: a program that closes numbers
 * which it does not have must not close that. The lock is only waited for: the program's own may
 * take long to close. True: look again. */
static bool others_settled(void)
{
	if (!fd_number_held() || foreign_image())
		return false;
	fd_number_lock();
	fd_number_unlock();
	return true;
}

/* ---- close ---- */

static int close_one(int fd, uintptr_t e)
{
	int err, r;

	fdtab_kernel_call();
	if (!e && others_settled())
		e = entry_of(fd);
	if (!e)
		return REAL(close)(fd);
	if (foreign_image())
		return fdtab_kind(e) == FD_INTERNAL && fork_keeps_fd(fd) ? (int)outside(-EBADF)
									 : REAL(close)(fd);
	switch (fdtab_kind(e)) {
	case FD_INTERNAL:
		return (int)outside(-EBADF);
	case FD_STREAM:
		count_call(ID_close, fdtab_stream_of(e));
		return (int)outside(stream_close(fdtab_stream_of(e), fd));
	default:
		err = errno;
		if (!ready_epoll_forget_fd(fdtab_epoll_of(e), fd, true))
			return (int)outside(-EBADF);
		r = (int)sys(SYS_close, fd);
		fdtab_closed(fd);
		errno = err;
		return (int)outside(r);
	}
}

/* A cancellation point: nothing is closed then. */
int wrap_close(int fd)
{
	uintptr_t e = entry_of(fd);
	int before = closing_here, r;

	if (!e)
		return close_one(fd, e);
	pthread_testcancel();
	closing_here = fd;
	r = close_one(fd, e);
	closing_here = before;
	return r;
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

/* Another library stands before the kernel, with locks of its own: it is called without ours, for
 * one number after the other. */
static void close_each(unsigned int first, unsigned int last)
{
	struct rlimit lim;

	if (sys(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) == 0 && last >= lim.rlim_cur)
		last = (unsigned int)lim.rlim_cur - 1;
	for (; first <= last; first++)
		if (!fdtab_internal((int)first) && sys(SYS_fcntl, first, F_GETFD) >= 0)
			close_one((int)first, entry_of((int)first));
}

/* Ours stay, what the library knows is closed as by close(), the stretches between by the
 * kernel: while it does that, none is made. */
static void close_chunks(unsigned int first, unsigned int last, bool have_call)
{
	unsigned int from = first, top, fd;

	if (libc_behind_others) {
		close_each(first, last);
		return;
	}
	for (;; from = fd + 1) {
		fd_number_lock();
		top = (unsigned int)fdtab_top();
		for (fd = from; fd < top && fd <= last && !fdtab_get((int)fd);)
			fd++;
		if (fd >= top || fd > last) {
			close_span(from, last, have_call);
			fd_number_unlock();
			return;
		}
		if (from < fd)
			close_span(from, fd - 1, have_call);
		fd_number_unlock();
		if (!fdtab_internal((int)fd))
			close_one((int)fd, entry_of((int)fd));
		if (fd == last)
			return;
	}
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
	/* With none but our own thread to part from: it must see the same descriptors as the
	 * program. */
	if (flags && !foreign_image() && program_alone())
		flags = 0;
	/* Empty at the far end: shows an old kernel, and unshares. Another thread's table keeps
	 * the fds that we now forget; they stay on TCP there. */
	if (REAL(close_range)(UINT_MAX, UINT_MAX, flags) != 0)
		return -1;
	if (foreign_image())
		close_theirs(first, last, true);
	else
		close_chunks(first, last, true);
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
		close_chunks(from, UINT_MAX, have_call);
	errno = e;
}

/* ---- dup ---- */

/* What the library knew of a number before the kernel copied it. */
struct known {
	uintptr_t e;
	uint32_t gen;		/* of the object */
};

static struct known known(int fd)
{
	struct known k = { .e = entry_of(fd) };

	fdtab_kernel_call();
	if (fdtab_kind(k.e) == FD_STREAM)
		k.gen = atomic_load(&fdtab_stream_of(k.e)->gen);
	else if (fdtab_kind(k.e) == FD_EPOLL)
		k.gen = ready_epoll_gen(fdtab_epoll_of(k.e));
	return k;
}

/* The kernel has made `to` another number for `fd`. If that was closed meanwhile nobody can say
 * what `to` is a copy of: then the close came first. `to`, or -1 and EBADF. */
static int copied(enum call_id id, const struct known *k, int fd, int to)
{
	int err = errno;
	bool there = true;

	if (fdtab_kind(k->e) == FD_STREAM) {
		count_call(id, fdtab_stream_of(k->e));
		there = stream_dup(fdtab_stream_of(k->e), k->gen, fd, to);
	} else if (fdtab_kind(k->e) == FD_EPOLL) {
		there = ready_epoll_dup(fdtab_epoll_of(k->e), k->gen, fd, to);
	}
	if (!there) {
		sys(SYS_close, to);
		return (int)outside(-EBADF);
	}
	errno = err;
	return to;
}

/* In another's memory: the copy is for a program that knows nothing of us. */
static void child_holds(uintptr_t e)
{
	int err = errno;

	if (fdtab_kind(e) == FD_STREAM)
		(void)fork_child_holds(fdtab_stream_of(e));
	else if (fdtab_kind(e) == FD_EPOLL)
		ready_mark_shared(fdtab_epoll_of(e));
	errno = err;
}

int wrap_dup(int fd)
{
	struct known k = known(fd);
	bool theirs = k.e && foreign_image();
	int r;

	if (k.e && !theirs && fdtab_kind(k.e) == FD_INTERNAL)
		return (int)outside(-EBADF);
	if (theirs)
		child_holds(k.e);
	r = REAL(dup)(fd);
	if (r < 0 || !shim_on || theirs)
		return r;
	fd_fresh(r);
	return copied(ID_dup, &k, fd, r);
}

/* Makes the number `to` free of anything that the library knows. Of a stream or an epoll
 * instance: until the kernel has put another file there it is marked as being closed, and
 * fdtab_closed() must follow. 0 or -errno. */
static int vacate(int to)
{
	uintptr_t t = entry_of(to);
	int r;

	switch (fdtab_kind(t)) {
	case FD_INTERNAL:
		r = fd_internal_move(to);
		return r < 0 ? r : 0;
	case FD_STREAM:
		stream_vacate_fd(fdtab_stream_of(t), to);
		return 0;
	case FD_EPOLL:
		ready_epoll_forget_fd(fdtab_epoll_of(t), to, true);
		return 0;
	default:
		return 0;
	}
}

/* The kernel's dup2() leaves such a number as it is, though it be open (ksys_dup3() in
 * fs/file.c). */
static bool beyond_limit(int to)
{
	struct rlimit lim;

	return entry_of(to) && sys(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) == 0 &&
	       (rlim_t)to >= lim.rlim_cur;
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
	if (beyond_limit(to))
		return -EBADF;
	/* stdio uses 0, 1 and 2 from inside libc, where it cannot be seen */
	s = to <= 2 ? live_stream(fd) : NULL;
	if (s)
		(void)fall_back_now(s, REASON_STDIO);
	return vacate(to);
}

/* With another library before the kernel, which may have locks of its own, ours is given back
 * first: then the number is taken for the moment by a copy of a descriptor of ours. (Not of fd:
 * the program may have locks on its file, which end with any close of it.) */
static bool take_number(int to)
{
	struct bell *b = loop_bell();
	long n = b ? sys(SYS_fcntl, b->fd, F_DUPFD_CLOEXEC, to) : -EBADF;

	if (n >= 0 && n != to)
		sys(SYS_close, n);
	return n == to;
}

/* A free number may be one that a thread of ours is about to get, or has: not while we hold the
 * lock. A number that is open then is the program's, and its close may take long. */
static int real_dup_onto(int fd, int to, int flags, bool three)
{
	bool lock = shim_on && fd != to && to >= 0 && !foreign_image(), taken = false;
	int r;

	if (lock) {
		fd_number_lock();
		if (fdtab_internal(to)) {	/* since we looked */
			fd_number_unlock();
			return (int)outside(-EBUSY);
		}
		if (sys(SYS_fcntl, to, F_GETFD) >= 0) {
			fd_number_unlock();
			lock = false;
		}
	}
	if (lock && libc_behind_others) {
		taken = take_number(to);
		fd_number_unlock();
		lock = false;
	}
	r = three ? REAL(dup3)(fd, to, flags) : REAL(dup2)(fd, to);
	if (lock)
		fd_number_unlock();
	if (taken && r < 0)
		sys(SYS_close, to);
	return r;
}

/* A number of the stream that no other thread closes, beyond `to`, and where ours are: a dup2()
 * that finds its source closed leaves its target open. `fd` where none is to be had; -1: it was
 * closed. */
static int held(const struct known *k, int fd, int to)
{
	int high = fd_high(), n;
	bool ok;

	if (!fd_may_make())
		return fd;
	fd_number_lock();
	n = to < INT_MAX ? (int)sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, to < high ? high : to + 1)
			 : -EBADF;
	if (n == -EMFILE)
		n = (int)sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, to + 1);
	ok = n >= 0 && fd_number(n, fdtab_stream_of(k->e));
	fd_number_unlock();
	if (n >= 0 && !ok)
		sys(SYS_close, n);
	if (!ok)
		return fd;
	fd_fresh(n);
	if (stream_dup(fdtab_stream_of(k->e), k->gen, fd, n))
		return n;
	fd_number_close(n);
	return -1;
}

static int dup_onto(int fd, int to, int flags, bool three)
{
	struct known k = known(fd);
	bool any = k.e || (shim_on && fdtab_get(to));
	bool theirs = any && foreign_image();
	int r, from = fd, err = errno;

	if (theirs && fd != to)
		child_holds(k.e);
	if (!any || fd == to || to < 0 || (flags & ~O_CLOEXEC) || theirs)
		return real_dup_onto(fd, to, flags, three);
	if (fdtab_kind(k.e) == FD_STREAM)
		from = held(&k, fd, to);
	r = before_dup_onto(k.e, from, to);
	if (!r) {
		errno = err;
		r = real_dup_onto(from, to, flags, three);
		if (r >= 0)
			r = copied(three ? ID_dup3 : ID_dup2, &k, from, to);
	} else {
		r = (int)outside(r);
	}
	/* a stream's copy has its own entry by now */
	if ((r < 0 || !k.e) && fdtab_get(to) == FDTAB_CLOSING)
		fdtab_closed(to);
	if (from != fd && from >= 0) {
		err = errno;
		stream_close(fdtab_stream_of(k.e), from);
		fd_number_over(from);
		errno = err;
	}
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
	struct known k = known(fd);
	bool theirs = k.e && foreign_image();
	int r;

	if (k.e && !theirs && fdtab_kind(k.e) == FD_INTERNAL)
		return (int)outside(-EBADF);
	if (theirs)
		child_holds(k.e);
	r = REAL(fcntl)(fd, cmd, arg);
	if (r < 0 || theirs)
		return r;
	fd_fresh(r);
	return copied(ID_fcntl, &k, fd, r);
}

static int fcntl_setfl(int fd, long arg)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	int r, e;

	if (s)
		count_call(ID_fcntl, s);
	if (s && (arg & O_ASYNC))
		(void)fallback_while(s, REASON_SOCKOPT);
	r = REAL(fcntl)(fd, F_SETFL, arg);
	if (s && (arg & O_ASYNC))
		stream_fallback_over(s, gen, r < 0, REASON_SOCKOPT);
	if (s && r == 0 && !stream_tcp_only(s)) {
		e = errno;
		stream_set_nonblock(s, gen, arg & O_NONBLOCK);
		errno = e;
	}
	return r;
}

int wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg, e;
	int r;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (shim_on && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
		return fcntl_dup(fd, cmd, arg);
	if (cmd == F_SETFL)
		return fcntl_setfl(fd, arg);
	r = REAL(fcntl)(fd, cmd, arg);
	/* Is it open? What a thread of ours has there for a moment, always with this flag, the
	 * program has not. */
	if (cmd == F_GETFD && r == FD_CLOEXEC && shim_on && !fdtab_get(fd) && !foreign_image()) {
		fd_number_lock();
		e = sys(SYS_fcntl, fd, cmd, arg);	/* under the lock: not another library's */
		fd_number_unlock();
		r = e < 0 ? (int)outside(e) : r;
	}
	return r;
}

int wrap_ioctl(int fd, unsigned long req, ...)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	va_list ap;
	long arg;
	int r, e;

	va_start(ap, req);
	arg = va_arg(ap, long);
	va_end(ap);
	if (!s || !arg)
		return REAL(ioctl)(fd, req, arg);
	count_call(ID_ioctl, s);
	switch ((unsigned int)req) {
	case FIONREAD:
	case SIOCOUTQ:
	case SIOCOUTQNSD:
		r = usermem_bad((void *)arg, sizeof(int), true)
			    ? -EFAULT
			    : stream_ioctl_count(s, gen, fd, (unsigned int)req);
		if (r >= 0) {
			*(int *)arg = r;
			return 0;
		}
		fdtab_kernel_call();
		return REAL(ioctl)(fd, req, arg);
	case FIONBIO:
		r = REAL(ioctl)(fd, req, arg);
		if (r == 0) {
			e = errno;
			stream_set_nonblock(s, gen, *(int *)arg != 0);
			errno = e;
		}
		return r;
	case FIOASYNC:
		if (usermem_bad((void *)arg, sizeof(int), false) || !*(int *)arg)
			return REAL(ioctl)(fd, req, arg);
		(void)fallback_while(s, REASON_SOCKOPT);
		r = REAL(ioctl)(fd, req, arg);
		stream_fallback_over(s, gen, r < 0, REASON_SOCKOPT);
		return r;
	default:
		return REAL(ioctl)(fd, req, arg);
	}
}

#include "libc/calls.def"
