/*
 * libc.h - the border to libc: real entries, prototypes of the wrappers, what all wrappers share.
 *
 * Include it first: it switches _FORTIFY_SOURCE off, whose inline functions would collide with the
 * wrappers. Everything is generated from calls.def. A wrapper is the C function wrap_NAME with the
 * assembler name NAME, so that no header's attributes (nonnull, transparent unions) get in its way;
 * tests/unit/test_calls.sh compares the prototypes with the headers'.
 *
 * Locks: none. Everything here is async-signal-safe once libc_bind_all() has run.
 */
#ifndef RDMASHIM_LIBC_H
#define RDMASHIM_LIBC_H

#undef _FORTIFY_SOURCE

#include <aio.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream.h"
#include "main/bg.h"
#include "poll/ready.h"

#define CMSG_COMPAT ((int)0x80000000)	/* MSG_CMSG_COMPAT in linux/socket.h: the kernel's own, EINVAL from outside */

/* Numbers of the rows that have a real entry; also the places of their counters. */
enum call_id {
#define CALL(ret, name, params, args, where, doc) ID_##name,
#define CALLV(name, params, args, where, doc) ID_##name,
#define VCALL(ret, name, params, last, args, where, doc) ID_##name,
#include "libc/calls.def"
	CALL_IDS
};
_Static_assert(CALL_IDS <= STAT_CALLS, "more calls than there are counters: raise STAT_CALLS");

/* real_NAME: libc's (or the next preloaded library's) entry. Never NULL: before binding a stub
 * that binds and calls on; if nobody has the symbol, a function that fails with ENOSYS. */
#define CALL(ret, name, params, args, where, doc) extern ret (*real_##name) params;
#define CALLV(name, params, args, where, doc) extern void (*real_##name) params;
#define VCALL(ret, name, params, last, args, where, doc) extern ret (*real_##name) params;
#include "libc/calls.def"

#define REAL(name) real_##name

/* The wrappers themselves. */
#define WRAP_EXPORT(ret, name, params) ret wrap_##name params __asm__(#name) __attribute__((visibility("default")));
#define CALL(ret, name, params, args, where, doc) WRAP_EXPORT(ret, name, params)
#define CALLV(name, params, args, where, doc) WRAP_EXPORT(void, name, params)
#define VCALL(ret, name, params, last, args, where, doc) WRAP_EXPORT(ret, name, params)
#define OWN(ret, name, params, where, doc) WRAP_EXPORT(ret, name, params)
#include "libc/calls.def"

/* An ALIAS row, in the file that defines its wrapper. */
#define WRAP_ALIAS(alias_, name) \
	extern __typeof__(wrap_##name) wrap_alias_##alias_ __asm__(#alias_) \
		__attribute__((alias(#name), visibility("default")));

/* Binds all rows now: for the constructor, so that no signal handler ever runs dlsym. */
void libc_bind_all(void);
void *libc_next(const char *name);	/* as dlsym(RTLD_NEXT); allocates nothing */
const char *libc_call_name(unsigned id);	/* enum call_id */
/* One of the calls that are made under a lock if they are libc's, and no more than a system call,
 * is another library's. */
extern bool libc_behind_others;
extern bool libc_sigaction_is_libcs;

/* ---- what the wrappers share ---- */

/* Another thread's close() of the number, or dup2() onto it, is a moment from its end: the number names the old socket still, past
 * the shim. True: it is over. wrap_fd.c */
bool fdtab_closing_over(int fd);
struct stream *live_stream_again(int fd);

/* Nothing of ours, or on TCP for good: the kernel's, by the entry of the number alone. Calls nothing, so that a wrapper which asks this
 * first has no register to save before it goes on to libc: right after a system call each line of memory that it touches is cold. */
static inline bool plainly_kernels(uintptr_t e)
{
	if ((e && (e & 7) != (FD_STREAM | FDTAB_STAYS)) || __builtin_expect(atomic_load_explicit(&bg_left, memory_order_relaxed), 0))
		return false;
	fdtab_kernel_call();
	return true;
}

/* The stream that fd, whose entry is `e`, names, if the shim has anything to do with it. */
static inline struct stream *live_stream_of(int fd, uintptr_t e)
{
	struct stream *s = fdtab_stream_of(e);

	if (s && !(e & FDTAB_STAYS) && shim_on && !stream_pinned(s))
		return s;
	if (__builtin_expect(e == FDTAB_CLOSING, 0) && fdtab_closing_over(fd))
		return live_stream_again(fd);
	fdtab_kernel_call();
	if (s && atomic_load_explicit(&bg_left, memory_order_relaxed) && shim_on)
		bg_farewell();
	return NULL;
}

static inline struct stream *live_stream(int fd) { return live_stream_of(fd, fdtab_get(fd)); }

/* And which life of the struct it is: for calls that look at the stream again after one of the kernel's. */
static inline struct stream *live_stream_gen(int fd, uint32_t *ret_gen)
{
	struct stream *s;

	do {
		s = live_stream(fd);
		*ret_gen = s ? atomic_load(&s->gen) : 0;
	} while (s && fdtab_stream(fd) != s);
	return s;
}

/* A message that may have descriptors: streams among them go to TCP, as somebody else gets them. wrap_send.c */
bool before_pass(int fd, const struct msghdr *msg);	/* true: the kernel will refuse it */
void before_pass_any(const struct msghdr *msg);		/* by whatever socket */

/* Counts a call on a stream; and one that moves bytes, by s->tx_moves or s->rx_moves. */
#define count_move(moves, kind) stat_move(&atomic_load_explicit(&(moves), memory_order_relaxed)[kind])
static inline void count_call(enum call_id id)
{
	stat_calls_attach();
	stat_call(id, 0);
}

/* True in a child of vfork, _Fork or clone: it shares or copied our state without our handlers
 * having run, so it must leave that alone. */
static inline bool foreign_image(void)
{
	return sys(SYS_getpid) != atomic_load_explicit(&shim_pid, memory_order_relaxed);
}

/* Negative errno inside, -1 and errno outside. */
static inline long outside(long r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

/* recv() and send() of more are of so many: MAX_RW_COUNT in the kernel, whose read() and write() say EINVAL. */
static inline size_t most_of(size_t n) { return n > 0x7ffff000 ? 0x7ffff000 : n; }

/* The stream is on TCP from now on. False: it could not get there in time, and a kernel call that
 * moves bytes would put them out of order. */
static inline bool sent_home(struct stream *s, enum reason r)
{
	int e = errno;
	bool ok = stream_go_home(s, r) == 0;

	errno = e;
	return ok;
}

/* As sent_home(), for a stream that may not even be connected yet: then nothing needs to wait. */
static inline bool pinned_now(struct stream *s, enum reason r)
{
	return (!atomic_load_explicit(&s->connected, memory_order_relaxed) && stream_pin(s, r)) || sent_home(s, r);
}

/* home_while.c: for the time of a call that must find the stream on TCP, and may yet fail */
/* 0 or -ETIMEDOUT. stream_home_over() follows the call: what has not failed stays on TCP for good.
 * It leaves errno alone. */
int stream_home_while(struct stream *s, enum reason r);
int stream_home_to_read(struct stream *s, enum reason r);	/* for calls that read from it */
void stream_home_over(struct stream *s, uint32_t gen, bool failed, enum reason r);
/* All that `which` (NULL: any) says yes to. Unless the call is followed by another program
 * streams_home_over() comes next. */
void streams_home_while(bool (*which)(struct stream *s, int fd), enum reason r);
void streams_home_over(void);

/* Before a call that may yet fail; stream_home_over() follows. False: as sent_home(), and errno
 * says so. NULL: yes. */
static inline bool home_while(struct stream *s, enum reason r)
{
	int e = errno;
	bool ok = !s || stream_home_while(s, r) == 0;

	errno = ok ? e : ETIMEDOUT;
	return ok;
}

static inline bool home_to_read(struct stream *s, enum reason r)
{
	int e = errno;
	bool ok = !s || stream_home_to_read(s, r) == 0;

	errno = ok ? e : ETIMEDOUT;
	return ok;
}

/* After a plain kernel call on a stream (stream_plain_tx/rx said yes). They leave errno alone: to save it here would be
 * two calls by way of the PLT, which cost 10 ns each right after a system call. */
static inline ssize_t left_tx(struct stream *s, ssize_t n)
{
	fdtab_kernel_call();
	stream_plain_tx_leave(s, n);
	return n;
}

static inline ssize_t left_rx(struct stream *s, ssize_t n)
{
	fdtab_kernel_call();
	return stream_plain_rx_leave(s, n);
}

/* A vector that the kernel refuses before it moves a byte: then the real call gives the errno. */
static inline bool iov_refused(const struct iovec *iov, size_t n)
{
	if (n > 1024 || (n && usermem_bad(iov, n * sizeof(*iov), false)))
		return true;
	for (size_t i = 0; i < n; i++)
		if ((ssize_t)iov[i].iov_len < 0)
			return true;
	return false;
}

static inline size_t iov_bytes(const struct iovec *iov, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* A new fd number came from the kernel: whatever the table says about it is stale (a raw system call,
 * or libc from inside, has closed the old one). wrap_fd.c */
void fd_fresh(int fd);

/* ---- wanted from other files, until they have a header for it ---- */
/* All streams go home, then the shim is off: a seccomp filter may forbid any call that we need. */
void shim_before_seccomp(void);
/* As many streams as there are now go to TCP for good. */
void streams_to_tcp(enum reason r);
/* An io_uring that cannot be followed is about to be used in this process: it reads and writes sockets behind our back. */
void shim_before_io_uring(void);
void shim_before_deepbind(void);	/* a library is about to be opened whose calls go past us */
/* The application wants the number of an internal fd for itself: ours moves. New number or -errno. */
int fd_internal_move(int fd);
/* ---- fork.c: children that run none of our handlers; errno is not touched ---- */
/* In a child of vfork, which is about to copy or keep the stream's fd: the stream goes home and stays there while
 * this child lives. Async-signal-safe. 0 or -errno: it could not. */
int fork_lend(struct stream *s);
bool fork_keeps_fd(int fd);		/* in that child: an fd of ours that fork_lend() needs open until exec */
void fork_lend_survivors(void);		/* before exec: all streams without FD_CLOEXEC */
/* Before a child is made: as fork_lend() for all streams without FD_CLOEXEC and those that `named` (may be NULL) says
 * yes to. The same thread calls fork_after_spawn() with the child's pid; 0: no child (any more); -1: there is one, its
 * pid is not known. */
void fork_before_spawn(bool (*named)(const void *what, int fd), const void *what);
void fork_after_spawn(int pid);
/* In a child with a copy of our memory that libc did not make: it has nothing of ours, and knows
 * nothing of us. */
void fork_not_seen(void);
/* seccomp() by syscall(2), which is how it is called: -1 and errno. wrap_seccomp.c */
long raw_seccomp(unsigned int op, unsigned int flags, void *arg);
/* clone(), clone3(), fork() by syscall(2). False: it is the kernel's as it is. wrap_clone.c */
bool raw_clone(long n, const long *va, long *ret);
void fork_watch(int pid);		/* a forked child: when it ends, streams may be cut again */
void fork_failed(void);			/* fork() returned -1 */
/* fd no longer names the stream's socket: somebody closed it behind our back and the kernel gave the number to
 * something else. As stream_forget_fd(), but fd must not be used for anything. */
void stream_fd_stale(struct stream *s, int fd);

#endif
