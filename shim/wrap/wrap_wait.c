/*
 * wrap_wait.c - wrappers of poll, select and epoll: arguments and time; ready.c does the waiting.
 *
 * What the kernel refuses (a bad timeout, a null array, no room) is left to the real call.
 * Holds no lock.
 */
#include "wrap/wrap.h"

#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name)
#define ALIAS_send(alias, name)
#define ALIAS_recv(alias, name)
#define ALIAS_fd(alias, name)
#define ALIAS_stdio(alias, name)
#define ALIAS_wait(alias, name) WRAP_ALIAS(alias, name)
#define ALIAS_clone(alias, name)
#define ALIAS_signal(alias, name)

#define FOREVER UINT64_MAX
#define NS 1000000000u

static uint64_t deadline(uint64_t sec, uint64_t nsec)
{
	if (sec > 4000000000u)		/* beyond 64 bits of nanoseconds, or nearly */
		return FOREVER;
	if (!sec && !nsec)
		return 0;
	return now_ns() + sec * NS + nsec;
}

static uint64_t deadline_ms(int ms)
{
	if (ms < 0)
		return FOREVER;
	return deadline((unsigned int)ms / 1000, (uint64_t)((unsigned int)ms % 1000) * 1000000u);
}

static bool ts_bad(const struct timespec *t)
{
	return t && (usermem_bad(t, sizeof(*t), false) || t->tv_sec < 0 ||
		     (unsigned long)t->tv_nsec >= NS);
}

static bool mask_bad(const sigset_t *mask)
{
	return mask && usermem_bad(mask, 8, false);	/* the kernel's sigset_t */
}

static uint64_t deadline_ts(const struct timespec *t)
{
	return t ? deadline((uint64_t)t->tv_sec, (uint64_t)t->tv_nsec) : FOREVER;
}

/* ---- poll ---- */

/* The kernel refuses more than RLIMIT_NOFILE without a look at the array, which may be shorter. */
static bool too_many(nfds_t n)
{
	struct rlimit lim;

	return n > 64 && (n > FDTAB_MAX || sys(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) ||
			  n > lim.rlim_cur);
}

/* A call that waits begins, here and not in the kernel. As libc's own, it ends a thread that is
 * to be cancelled also if there is nothing to wait for. */
static void count_wait(enum call_id id, bool fast)
{
	pthread_testcancel();
	count_call_on(id, fast);
}

/*
 * A descriptor of ours may have the number of one that the program has closed, until it is moved:
 * the kernel would find it open. So that is waited for, but not for long, since a file that is
 * read meanwhile may be slow.
 */
#define PASSING_NS 1000000
static __attribute__((noinline)) void wait_passing(void)
{
	uint64_t end = now_ns() + PASSING_NS;
	int e = errno;

	while (fd_number_held() && now_ns() < end)
		sys(SYS_sched_yield);
	errno = e;
}

/* Nothing of the library's is in it. */
static inline int not_ours(void)
{
	if (__builtin_expect(fd_number_held(), 0) && !foreign_image())
		wait_passing();
	return READY_NOT;
}

/* enum ready_need. -EFAULT: it can be read but not written, as the kernel finds at the end. */
static int poll_ours(const struct pollfd *fds, nfds_t n)
{
	enum ready_need need;

	if (!shim_on || too_many(n) || usermem_bad(fds, n * sizeof(*fds), false))
		return READY_NOT;
	need = ready_poll_needed(fds, n);
	if (!need)
		return not_ours();
	return usermem_bad(fds, n * sizeof(*fds), true) ? -EFAULT : (int)need;
}

int wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	int ours = poll_ours(fds, n);

	if (!ours)
		return REAL(poll)(fds, n, timeout);
	count_wait(ID_poll, ours == READY_FAST);
	return (int)outside(ours < 0 ? ours : ready_poll(fds, n, deadline_ms(timeout), NULL));
}

int wrap___poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
	if (size / sizeof(*fds) < n)
		return REAL(__poll_chk)(fds, n, timeout, size);	/* does not return */
	return wrap_poll(fds, n, timeout);
}

int wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	int ours = ts_bad(timeout) || mask_bad(mask) ? 0 : poll_ours(fds, n);

	if (!ours)
		return REAL(ppoll)(fds, n, timeout, mask);
	count_wait(ID_ppoll, ours == READY_FAST);
	return (int)outside(ours < 0 ? ours : ready_poll(fds, n, deadline_ts(timeout), mask));
}

int wrap___ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		     const sigset_t *mask, size_t size)
{
	if (size / sizeof(*fds) < n)
		return REAL(__ppoll_chk)(fds, n, timeout, mask, size);	/* does not return */
	return wrap_ppoll(fds, n, timeout, mask);
}

/* ---- select ---- */

static bool set_bad(int n, const fd_set *set, bool write)
{
	return set && usermem_bad(set, ((size_t)n + 63) / 64 * 8, write);
}

/* As poll_ours(). */
static int select_ours(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	enum ready_need need;

	if (!shim_on || n <= 0 || set_bad(n, r, false) || set_bad(n, w, false) ||
	    set_bad(n, x, false))
		return READY_NOT;
	need = ready_select_needed(n, r, w, x);
	if (!need)
		return not_ours();
	return set_bad(n, r, true) || set_bad(n, w, true) || set_bad(n, x, true) ? -EFAULT
										 : (int)need;
}

/* Linux tells how much of the time was left, whatever the result. */
static void time_left(uint64_t end, struct timeval *t)
{
	uint64_t now = now_ns();
	uint64_t us = end > now ? (end - now) / 1000 : 0;

	t->tv_sec = (time_t)(us / 1000000u);
	t->tv_usec = (suseconds_t)(us % 1000000u);
}

int wrap_select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
	uint64_t end = FOREVER;
	int ret, ours;

	if (timeout && (usermem_bad(timeout, sizeof(*timeout), false) || timeout->tv_sec < 0 ||
			timeout->tv_usec < 0))
		return REAL(select)(n, r, w, x, timeout);
	ours = select_ours(n, r, w, x);
	if (!ours)
		return REAL(select)(n, r, w, x, timeout);
	count_wait(ID_select, ours == READY_FAST);
	if (timeout)	/* more than a million microseconds are allowed here */
		end = deadline((uint64_t)timeout->tv_sec + (uint64_t)timeout->tv_usec / 1000000u,
			       (uint64_t)timeout->tv_usec % 1000000u * 1000u);
	ret = ours < 0 ? ours : ready_select(n, r, w, x, end, NULL);
	/* It may lie in memory that is only read: the kernel does not mind. */
	if (timeout && end != FOREVER && !usermem_bad(timeout, sizeof(*timeout), true))
		time_left(end, timeout);
	return (int)outside(ret);
}

int wrap_pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
		 const sigset_t *mask)
{
	int ours = ts_bad(timeout) || mask_bad(mask) ? 0 : select_ours(n, r, w, x);

	if (!ours)
		return REAL(pselect)(n, r, w, x, timeout, mask);
	count_wait(ID_pselect, ours == READY_FAST);
	return (int)outside(ours < 0 ? ours :
				    ready_select(n, r, w, x, deadline_ts(timeout), mask));
}

/* ---- epoll ---- */

static int entered(int ep)
{
	int e = errno;

	if (ep >= 0 && shim_on) {
		fd_fresh(ep);
		(void)ready_epoll_new(ep);	/* NULL: streams that are added to it fall back */
		errno = e;
	}
	return ep;
}

int wrap_epoll_create(int size)
{
	return entered(REAL(epoll_create)(size));
}

int wrap_epoll_create1(int flags)
{
	return entered(REAL(epoll_create1)(flags));
}

/* The number of an instance that another thread is closing is closed: what the kernel still has
 * there we no longer know, and another number of the instance may live on. */
static int if_open(int ep)
{
	return shim_on && fdtab_get(ep) == FDTAB_CLOSING && !foreign_image() ? -1 : ep;
}

int wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	struct epoll *e = shim_on ? fdtab_epoll(ep) : NULL;
	struct stream *s;
	uint32_t gen;
	int r;

	s = live_stream(fd);
	if (s)
		count_call(ID_epoll_ctl, s);
	if (e && (op == EPOLL_CTL_DEL || !usermem_bad(ev, sizeof(*ev), false)))
		return (int)outside(ready_epoll_ctl(e, ep, op, fd, ev));
	ep = if_open(ep);
	s = op == EPOLL_CTL_DEL || ep < 0 || e ? NULL : live_stream_gen(fd, &gen);
	(void)fallback_while(s, REASON_FOREIGN_WAIT);
	r = REAL(epoll_ctl)(ep, op, fd, ev);
	if (s)
		stream_fallback_over(s, gen, r < 0, REASON_FOREIGN_WAIT);
	e = op == EPOLL_CTL_DEL || r < 0 || !shim_on ? NULL : fdtab_epoll(fd);
	if (e)		/* its waits are not seen */
		ready_foreign(e);
	return r;
}

/* An array in the kernel's half of the addresses is refused whether or not there is something to
 * tell. */
static struct epoll *epoll_ours(int ep, const struct epoll_event *ev, int max)
{
	if (!shim_on || max <= 0 || (uintptr_t)ev >> 56 ||
	    (size_t)max > INT_MAX / sizeof(struct epoll_event))
		return NULL;
	return fdtab_epoll(ep);
}

/* of a larger array only what may be filled is looked at: that many, or an event for each
 * registration */
#define EVENTS_MANY 4096

/* Where nothing can be written, that matters only if there is something to tell. */
static int epoll_any(struct epoll *e, int ep, struct epoll_event *ev, int max, uint64_t deadline_ns,
		     const sigset_t *mask)
{
	struct epoll_event one;
	int r;

	if (max > EVENTS_MANY && max > (r = ready_epoll_items(e)))
		max = r > EVENTS_MANY ? r : EVENTS_MANY;
	if (!usermem_bad(ev, (size_t)max * sizeof(*ev), true))
		return ready_epoll_wait(e, ep, ev, max, deadline_ns, mask);
	if (!usermem_bad(ev, sizeof(*ev), true))
		return ready_epoll_wait(e, ep, ev, 1, deadline_ns, mask);
	r = ready_epoll_wait(e, ep, &one, 1, deadline_ns, mask);
	return r > 0 ? -EFAULT : r;
}

int wrap_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout)
{
	struct epoll *e = epoll_ours(ep, ev, max);

	if (!e)
		return REAL(epoll_wait)(if_open(ep), ev, max, timeout);
	count_wait(ID_epoll_wait, ready_epoll_fast(e));
	return (int)outside(epoll_any(e, ep, ev, max, deadline_ms(timeout), NULL));
}

int wrap_epoll_pwait(int ep, struct epoll_event *ev, int max, int timeout, const sigset_t *mask)
{
	struct epoll *e = mask_bad(mask) ? NULL : epoll_ours(ep, ev, max);

	if (!e)
		return REAL(epoll_pwait)(if_open(ep), ev, max, timeout, mask);
	count_wait(ID_epoll_pwait, ready_epoll_fast(e));
	return (int)outside(epoll_any(e, ep, ev, max, deadline_ms(timeout), mask));
}

int wrap_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *timeout,
		      const sigset_t *mask)
{
	struct epoll *e = ts_bad(timeout) || mask_bad(mask) ? NULL : epoll_ours(ep, ev, max);

	if (!e)
		return REAL(epoll_pwait2)(if_open(ep), ev, max, timeout, mask);
	count_wait(ID_epoll_pwait2, ready_epoll_fast(e));
	return (int)outside(epoll_any(e, ep, ev, max, deadline_ts(timeout), mask));
}

#include "libc/calls.def"
