/*
 * fdtab.h - fd number -> what the library knows about it.
 *
 * A two-level table, chunks made on first use by mmap and never freed. Look-up is two loads, no
 * lock, async-signal-safe. Objects are type-stable (slabs that are never unmapped), so a stale
 * pointer is never a wild one; whoever needs certainty takes the object's lock and looks again.
 */
#ifndef RDMASHIM_FDTAB_H
#define RDMASHIM_FDTAB_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/event.h"
#include "base/lock.h"

enum fd_kind { FD_NONE, FD_STREAM, FD_EPOLL, FD_INTERNAL };	/* low two bits of an entry */
/* beside FD_STREAM: on TCP for good, no need to look at the stream */
#define FDTAB_STAYS ((uintptr_t)4)

#define FDTAB_CHUNK 1024
#define FDTAB_MAX   (1024 * FDTAB_CHUNK)

struct stream;
struct epoll;

extern _Atomic(_Atomic uintptr_t *) fdtab_chunk[FDTAB_MAX / FDTAB_CHUNK];

static inline uintptr_t fdtab_get(int fd)
{
	_Atomic uintptr_t *c;

	if ((unsigned)fd >= FDTAB_MAX)
		return 0;
	c = atomic_load_explicit(&fdtab_chunk[fd / FDTAB_CHUNK], memory_order_acquire);
	return c ? atomic_load_explicit(&c[fd % FDTAB_CHUNK], memory_order_acquire) : 0;
}

static inline enum fd_kind fdtab_kind(uintptr_t e) { return (enum fd_kind)(e & 3); }

/* What an entry says: NULL if it is of another kind. */
static inline struct stream *fdtab_stream_of(uintptr_t e)
{
	return fdtab_kind(e) == FD_STREAM ? (struct stream *)(e & ~(uintptr_t)7) : NULL;
}

static inline struct epoll *fdtab_epoll_of(uintptr_t e)
{
	return fdtab_kind(e) == FD_EPOLL ? (struct epoll *)(e & ~(uintptr_t)3) : NULL;
}

static inline struct stream *fdtab_stream(int fd) { return fdtab_stream_of(fdtab_get(fd)); }
static inline struct epoll *fdtab_epoll(int fd) { return fdtab_epoll_of(fdtab_get(fd)); }

/* A number of a stream or an epoll instance while its close() is under way, until the kernel has
 * closed it. */
extern uint32_t fdtab_closing;
#define FDTAB_CLOSING ((uintptr_t)&fdtab_closing | FD_INTERNAL)

static inline bool fdtab_internal(int fd)
{
	uintptr_t e = fdtab_get(fd);

	return fdtab_kind(e) == FD_INTERNAL && e != FDTAB_CLOSING;
}

/* Replaces the entry, returns the old one. False in *ok (if given) when out of memory or range. */
uintptr_t fdtab_set(int fd, enum fd_kind kind, void *obj, bool *ok);
/* A TCP-only stream's number: calls on it need one look-up. The stream's locks are held, so that
 * the number remains its own. */
void fdtab_stays(int fd, struct stream *s);
/* The kernel has closed fd: FDTAB_CLOSING goes, unless the number has a new owner already. */
void fdtab_closed(int fd);
extern struct event fdtab_closes;	/* rung when a number is FDTAB_CLOSING no more */
/* One past the highest fd that was ever set. */
int fdtab_top(void);
/* The first from `fd` on that has an entry, or fdtab_top(): ours lie far above the program's. */
int fdtab_next(int fd);

/* Calls that this thread has made of the kernel alone, on whatever descriptor: a wait that
 * follows must know what it knows by them. */
extern __thread uint32_t fdtab_kernel_calls __attribute__((tls_model("initial-exec")));
static inline void fdtab_kernel_call(void) { fdtab_kernel_calls++; }

/*
 * The kernel gives a new descriptor the lowest free number, and the program may mean that
 * number: dup2() onto it puts its own file there. So a descriptor of ours is made, and moved out
 * of its way (a high number, CLOEXEC, FD_INTERNAL), or used and closed, between fd_number_lock()
 * and fd_number_unlock(). The wrappers of dup2() and close_range() take the lock too, and
 * fork(), whose child would have a number of which its memory does not know. A leaf, and the
 * same thread may take it again: the lock is held while other libraries' fork handlers run.
 * Nothing waits under it.
 */
void fd_number_lock(void);
void fd_number_unlock(void);

extern struct lock fd_number_word;
static inline bool fd_number_held(void) { return atomic_load_explicit(&fd_number_word.v,
	memory_order_relaxed) != 0; }

/* fd_internal_sys(SYS_socket, ...): makes a descriptor by that system call and moves it. Its
 * number or -errno; -EMFILE if the library's share (1/8 of RLIMIT_NOFILE, none if that is below
 * 64) is used up. fd_moment_sys(): also beyond the share, for what is closed again soon, unless
 * the library has none at all and no share. */
#define fd_internal_sys(...) (fd_number_lock(), \
	fd_internal_made(fd_may_make() ? (int)sys(__VA_ARGS__) : -EMFILE, true))
#define fd_moment_sys(...) (fd_number_lock(), \
	fd_internal_made(fd_may_make() ? (int)sys(__VA_ARGS__) : -EMFILE, false))
bool fd_may_make(void);
int fd_internal_made(int fd, bool counted);	/* gives the lock */
long fd_share_left(void);	/* so many more may be made to stay */
/* Moves a fresh one, also beyond the share. The lock is held. Its number or -errno (then it is
 * closed). */
int fd_moment(int fd);
/* One that was made beyond the share is to stay: `fd`, or -EMFILE, and it is closed. */
int fd_internal_keep(int fd);
bool fd_may_keep(void);		/* whether it could */
/* Another number for `fd`, which stays open: for a socket that outlives the application's close. */
int fd_internal_dup(int fd);
void fd_internal_close(int fd);
/* A high number of ours for a file that has a low one, also beyond the share. The lock is held. */
int fd_internal_place(int fd);

/*
 * What only closer.c closes: sockets, and all else. One of ours, or a number that the kernel has
 * just given us where the program's are: the table says that it is ours until it is closed, so that
 * the program does not close it, and get the number for a file of its own.
 */
enum fd_apart { FD_APART_SOCKET, FD_APART_OTHER, FD_APARTS };
/* The lock is held for these four. False: no memory, or another's; it stays open. */
bool fd_apart(int fd, enum fd_apart kind);
int fd_apart_next(enum fd_apart kind);		/* or -1 */
void fd_apart_close(int fd, enum fd_apart kind);	/* its close waits for nobody by now */
bool fd_is_apart(int fd);
int fd_aparts(enum fd_apart kind);		/* any time */

/*
 * Another number of a stream that a thread of ours has for a moment: dup2() copies from it. A
 * child that is forked meanwhile has it too, and would keep a connection open that both ends
 * have closed. So it closes it. Made and said under the lock.
 */
bool fd_number(int fd, const struct stream *of);	/* False: too many, a child will keep it */
void fd_number_over(int fd);		/* it is closed */
void fd_number_close(int fd);
int fd_high(void);			/* our numbers are not below */
void fdtab_make_room(int fd);		/* the kernel has room for them from now on; `fd` is any */
bool fd_is_tcp(int fd);

void fdtab_after_fork(void);
/* when all that has an owner in the child has it */
void fdtab_after_fork_last(void (*closes)(struct stream *, int));

#endif
