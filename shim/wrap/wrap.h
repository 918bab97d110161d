/*
 * wrap.h - prototypes of the wrappers, and what they share.
 *
 * Include it first, as libc.h. A wrapper is the C function wrap_NAME with the
 * assembler name NAME, so that no header's attributes (nonnull, transparent unions) get in its way;
 * tests/unit/test_calls.sh compares the prototypes with the headers'.
 *
 * Locks: none.
 */
#ifndef RDMASHIM_WRAP_H
#define RDMASHIM_WRAP_H

#include "libc/libc.h"

#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream.h"
#include "base/loop.h"
#include "poll/ready.h"
#include "process/fork.h"

/* MSG_CMSG_COMPAT in linux/socket.h: the kernel's own, EINVAL from outside */
#define CMSG_COMPAT ((int)0x80000000)

/* The wrappers themselves. */
#define WRAP_EXPORT(ret, name, \
	params) ret wrap_##name params __asm__(#name) __attribute__((visibility("default")));
#define CALL(ret, name, params, args, where, doc) WRAP_EXPORT(ret, name, params)
#define CALLV(name, params, args, where, doc) WRAP_EXPORT(void, name, params)
#define VCALL(ret, name, params, last, args, where, doc) WRAP_EXPORT(ret, name, params)
#define OWN(ret, name, params, where, doc) WRAP_EXPORT(ret, name, params)
#include "libc/calls.def"

/* An ALIAS row, in the file that defines its wrapper. */
#define WRAP_ALIAS(alias_, name) \
	extern __typeof__(wrap_##name) wrap_alias_##alias_ __asm__(#alias_) \
		__attribute__((alias(#name), visibility("default")));

/* Another thread's close() of the number, or dup2() onto it, is a moment from its end: the
 * number names the old socket still, past the library. True: it is over. wrap_fd.c */
bool fdtab_closing_over(int fd);
struct stream *live_stream_again(int fd);

/* Nothing of ours, or on TCP for good: the kernel's, by the entry of the number alone. Calls
 * nothing, so that a wrapper which asks this first has no register to save before it goes on to
 * libc: right after a system call each line of memory that it touches is cold. */
static inline bool plainly_kernels(uintptr_t e)
{
	if ((e && (e & 7) != (FD_STREAM | FDTAB_STAYS)) ||
	    __builtin_expect(atomic_load_explicit(&loop_left, memory_order_relaxed), 0))
		return false;
	fdtab_kernel_call();
	return true;
}

/* The stream that fd, whose entry is `e`, names, if the library has anything to do with it. */
static inline struct stream *live_stream_of(int fd, uintptr_t e)
{
	struct stream *s = fdtab_stream_of(e);

	if (s && !(e & FDTAB_STAYS) && shim_on && !stream_tcp_only(s))
		return s;
	if (__builtin_expect(e == FDTAB_CLOSING, 0) && fdtab_closing_over(fd))
		return live_stream_again(fd);
	fdtab_kernel_call();
	if (s && atomic_load_explicit(&loop_left, memory_order_relaxed) && shim_on)
		loop_thread_left();
	return NULL;
}

static inline struct stream *live_stream(int fd) { return live_stream_of(fd, fdtab_get(fd)); }

/* And which life of the struct it is: for calls that look at the stream again after one of the
 * kernel's. */
static inline struct stream *live_stream_gen(int fd, uint32_t *ret_gen)
{
	struct stream *s;

	do {
		s = live_stream(fd);
		*ret_gen = s ? atomic_load(&s->gen) : 0;
	} while (s && fdtab_stream(fd) != s);
	return s;
}

/* A message that may have descriptors: streams among them go to TCP, as somebody else gets them.
 * wrap_send.c */
bool before_pass(int fd, const struct msghdr *msg);	/* true: the kernel will refuse it */
void before_pass_any(const struct msghdr *msg);		/* by whatever socket */

/* Counts a call on a stream; and one that moves bytes, by s->moves.tx or s->moves.rx. */
#define count_move(moves, kind) count_move_at(atomic_load_explicit(&(moves), \
	memory_order_relaxed), kind)
static inline void count_move_at(uint64_t *n, enum stream_move kind)
{
	if (__builtin_expect(n != NULL, 1))
		stat_move(&n[kind]);
}
static inline void count_call_on(enum call_id id, bool fast)
{
	stat_calls_attach();
	stat_call(id, fast);
}
static inline void count_call(enum call_id id, struct stream *s)
{
	count_call_on(id, stream_on_link(s));
}

/* Negative errno inside, -1 and errno outside. */
static inline long outside(long r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

/* recv() and send() of more are of so many: MAX_RW_COUNT in the kernel, whose read() and write()
 * say EINVAL. */
static inline size_t most_of(size_t n) { return n > 0x7ffff000 ? 0x7ffff000 : n; }

/* Before a call that may yet fail; stream_fallback_over() follows. False: as fall_back_now(),
 * and errno says so. NULL: yes. */
static inline bool fallback_while(struct stream *s, enum reason r)
{
	int e = errno, ret = s ? stream_fallback_while(s, r, false) : 0;

	errno = ret ? -ret : e;
	return !ret;
}

static inline bool fallback_to_read(struct stream *s, enum reason r)
{
	int e = errno, ret = s ? stream_fallback_to_read(s, r, false) : 0;

	errno = ret ? -ret : e;
	return !ret;
}

/* The same before one that moves bytes, and need not block: as it would for want of room, or of
 * bytes. */
static inline bool fallback_to_move(struct stream *s, enum reason r, bool reads, bool nonblock)
{
	int e = errno, ret = 0;

	nonblock |= s && atomic_load_explicit(&s->nonblock, memory_order_relaxed);
	if (s)
		ret = reads ? stream_fallback_to_read(s, r, nonblock)
			    : stream_fallback_while(s, r, nonblock);
	errno = ret ? -ret : e;
	return !ret;
}

/* After a plain kernel call on a stream (stream_plain_tx/rx said yes). They leave errno alone:
 * to save it here would be two calls by way of the PLT, which cost 10 ns each right after a
 * system call. */
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

/* A new fd number came from the kernel: whatever the table says about it is stale (a raw system
 * call, or libc from inside, has closed the old one). wrap_fd.c */
void fd_fresh(int fd);

/* seccomp() by syscall(2), which is how it is called: -1 and errno. wrap_seccomp.c */
long raw_seccomp(unsigned int op, unsigned int flags, void *arg);
int filter_by_prctl(const long *va);	/* the arguments after PR_SET_SECCOMP */

/* ---- wrap_rights.c ---- */
/* Calls of its table by syscall(2), likewise. */
long raw_rights(long n, const long *va);
bool prctl_is_seen(int option, long second);
/* As loop_alone(). */
bool program_alone(void);
/* Our threads end, and do not begin again before loop_resume(). The streams are on TCP. */
void own_threads_end(void);
void own_threads_resume(void);	/* or the library is off */

/* clone(), clone3(), fork() by syscall(2). False: it is the kernel's as it is. wrap_clone.c */
bool raw_clone(long n, const long *va, long *ret);

#endif
