/*
 * fdtab.c - the table behind fdtab.h, and the place of the library's own descriptors.
 *
 * Locks: none for look-ups; `grow` serialises the making of chunks (a leaf); fd_number_word, see
 * fdtab.h (only `grow` below it).
 */
#include "base/fdtab.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/lock.h"
#include "base/sys.h"

_Atomic(_Atomic uintptr_t *) fdtab_chunk[FDTAB_MAX / FDTAB_CHUNK];

uint32_t fdtab_closing;
struct event fdtab_closes;
__thread uint32_t fdtab_kernel_calls;

static struct lock grow;
static _Atomic int top, internals;
static uint32_t closing_ours;
#define OURS  ((uintptr_t)&internals | FD_INTERNAL)
#define GOING ((uintptr_t)&closing_ours | FD_INTERNAL)	/* while fd_internal_close() closes it */
static struct { uint32_t mark; _Atomic int n; } aparts[FD_APARTS];
#define APART(kind) ((uintptr_t)&aparts[kind].mark | FD_INTERNAL)

static _Atomic uintptr_t *chunk_of(int fd)
{
	_Atomic(_Atomic uintptr_t *) *slot = &fdtab_chunk[fd / FDTAB_CHUNK];
	_Atomic uintptr_t *c = atomic_load_explicit(slot, memory_order_acquire);

	if (c)
		return c;
	lock_take(&grow);
	c = atomic_load(slot);
	if (!c) {
		void *p = mmap(NULL, FDTAB_CHUNK * sizeof(uintptr_t), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p != MAP_FAILED) {
			c = p;
			atomic_store_explicit(slot, c, memory_order_release);
		}
	}
	lock_give(&grow);
	return c;
}

uintptr_t fdtab_set(int fd, enum fd_kind kind, void *obj, bool *ok)
{
	_Atomic uintptr_t *c;
	uintptr_t old;
	int t;

	if (ok)
		*ok = false;
	if ((unsigned)fd >= FDTAB_MAX)
		return 0;
	if (kind == FD_NONE &&
	    !atomic_load_explicit(&fdtab_chunk[fd / FDTAB_CHUNK], memory_order_acquire)) {
		if (ok)
			*ok = true;
		return 0;
	}
	c = chunk_of(fd);
	if (!c)
		return 0;
	for (t = atomic_load(&top); t <= fd && !atomic_compare_exchange_weak(&top, &t, fd + 1);)
		;
	if (ok)
		*ok = true;
	old = atomic_exchange(&c[fd % FDTAB_CHUNK], kind == FD_NONE ? 0 : (uintptr_t)obj | kind);
	if (old == FDTAB_CLOSING)
		event_ring(&fdtab_closes);
	return old;
}

void fdtab_stays(int fd, struct stream *s)
{
	_Atomic uintptr_t *c;
	uintptr_t e = (uintptr_t)s | FD_STREAM;

	if ((unsigned)fd >= FDTAB_MAX)
		return;
	c = atomic_load_explicit(&fdtab_chunk[fd / FDTAB_CHUNK], memory_order_acquire);
	if (c)
		atomic_compare_exchange_strong(&c[fd % FDTAB_CHUNK], &e, e | FDTAB_STAYS);
}

void fdtab_closed(int fd)
{
	_Atomic uintptr_t *c =
		atomic_load_explicit(&fdtab_chunk[fd / FDTAB_CHUNK], memory_order_acquire);
	uintptr_t e = FDTAB_CLOSING;

	if (atomic_compare_exchange_strong(&c[fd % FDTAB_CHUNK], &e, 0))
		event_ring(&fdtab_closes);
}

int fdtab_top(void) { return atomic_load(&top); }

int fdtab_next(int fd)
{
	int n = fdtab_top();

	while (fd < n) {
		int end = (fd / FDTAB_CHUNK + 1) * FDTAB_CHUNK;
		_Atomic uintptr_t *c =
			atomic_load_explicit(&fdtab_chunk[fd / FDTAB_CHUNK], memory_order_acquire);

		for (; c && fd < end; fd++)
			if (atomic_load_explicit(&c[fd % FDTAB_CHUNK], memory_order_acquire))
				return fd;
		fd = end;
	}
	return n;
}

static long fd_limit(void)
{
	struct rlimit64 { uint64_t cur, max; } rl;

	if (sys(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &rl) < 0 || rl.cur > 1u << 30)
		return 1024;
	return (long)rl.cur;
}

/* None where an eighth is too few to be of use: each of ours would be one that the program
 * misses. But a limit that is lowered when there are some already leaves those for a moment:
 * connections that have a path are served on it, and end as they should. */
#define LIMIT_LEAST 64
static long share_of(long limit) { return limit < LIMIT_LEAST ? 0 : limit / 8; }

bool fd_may_make(void) { return atomic_load(&internals) > 0 || share_of(fd_limit()) > 0; }

long fd_share_left(void)
{
	long left = share_of(fd_limit()) - atomic_load(&internals);

	return left > 0 ? left : 0;
}

/* Above what programs usually reach, below the limit, and low enough to keep the kernel's table
 * small. */
static int internal_base(long limit)
{
	long base = limit - (limit / 8 > 8 ? limit / 8 : 8);

	if (base > 8192)
		base = 8192;
	return base < 3 ? 3 : (int)base;
}

int fd_high(void) { return internal_base(fd_limit()); }

/* With a second thread the kernel waits for all readers of its table of descriptors before it
 * uses a larger one, 5 to 20 ms (expand_fdtable() in fs/file.c). With one it does not. */
void fdtab_make_room(int fd)
{
	long n;

	if (!fd_may_make())
		return;
	fd_number_lock();
	n = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd_high());
	if (n >= 0)
		sys(SYS_close, n);
	fd_number_unlock();
}

/* A high number for the same file. The lock is held. */
static int place(int fd, bool counted)
{
	long limit = fd_limit();
	long n, had = atomic_fetch_add(&internals, 1);
	bool ok;

	if (had >= share_of(limit) && (counted || !had)) {
		atomic_fetch_sub(&internals, 1);
		return -EMFILE;
	}
	n = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, internal_base(limit));
	if (n >= 0)
		fdtab_set((int)n, FD_INTERNAL, &internals, &ok);
	if (n < 0) {
		atomic_fetch_sub(&internals, 1);
		return (int)n;
	}
	if (!ok) {
		sys(SYS_close, n);
		atomic_fetch_sub(&internals, 1);
		return -ENOMEM;
	}
	return (int)n;
}

/* What was just made holds nothing that its close would wait for. */
static int move(int fd, bool counted)
{
	int n = fd < 0 ? fd : place(fd, counted);

	if (fd >= 0)
		sys(SYS_close, fd);
	return n;
}

int fd_internal_made(int fd, bool counted)
{
	int n = move(fd, counted);

	fd_number_unlock();
	return n;
}

int fd_moment(int fd) { return move(fd, false); }

bool fd_may_keep(void) { return atomic_load(&internals) <= share_of(fd_limit()); }

int fd_internal_keep(int fd)
{
	if (fd < 0 || fd_may_keep())
		return fd;
	fd_internal_close(fd);
	return -EMFILE;
}

/* Ours until the kernel has closed it, and then nobody's, unless another thread has got it
 * already. Not under the lock: a socket that lingers would hold up all that waits for it. But a
 * socket of TCP is forgotten under it: fork() copies the descriptors first, and later the memory
 * that says which are to be closed. (Of others the child may keep one. The thread for which a
 * fork() of another waits, see gpu/track.c, closes such.) */
void fd_internal_close(int fd)
{
	uintptr_t ours = OURS, going = GOING;
	_Atomic uintptr_t *c;
	bool tcp;

	if (!fdtab_internal(fd))
		return;
	c = &atomic_load(&fdtab_chunk[fd / FDTAB_CHUNK])[fd % FDTAB_CHUNK];
	if (!atomic_compare_exchange_strong(c, &ours, GOING))
		return;
	tcp = fd_is_tcp(fd);
	sys(SYS_close, fd);
	if (tcp)
		fd_number_lock();
	atomic_compare_exchange_strong(c, &going, 0);
	if (tcp)
		fd_number_unlock();
	atomic_fetch_sub(&internals, 1);
}

int fd_internal_dup(int fd)
{
	int n;

	fd_number_lock();
	n = place(fd, false);		/* the application gives a number back at the same moment */
	fd_number_unlock();
	return n;
}

int fd_internal_place(int fd) { return place(fd, false); }

/* ---- what is closed apart ---- */

static bool is_apart(uintptr_t e)
{
	return e == APART(FD_APART_SOCKET) || e == APART(FD_APART_OTHER);
}

bool fd_apart(int fd, enum fd_apart kind)
{
	uintptr_t e = fdtab_get(fd);
	bool ok = true;

	if (is_apart(e))
		return true;
	if (e && fdtab_kind(e) != FD_INTERNAL)	/* of one that was closed behind our back */
		return false;
	fdtab_set(fd, FD_INTERNAL, &aparts[kind].mark, &ok);
	if (!ok)
		return false;
	if (e != OURS)	/* or that of whoever had the number before and still waits in close() */
		atomic_fetch_add(&internals, 1);
	atomic_fetch_add(&aparts[kind].n, 1);
	return true;
}

int fd_apart_next(enum fd_apart kind)
{
	int n = atomic_load(&aparts[kind].n) ? fdtab_top() : 0;

	for (int fd = fdtab_next(0); fd < n; fd = fdtab_next(fd + 1))
		if (fdtab_get(fd) == APART(kind))
			return fd;
	atomic_store(&aparts[kind].n, 0);	/* the program may have closed one behind our
						 * back */
	return -1;
}

bool fd_is_apart(int fd) { return is_apart(fdtab_get(fd)); }

int fd_aparts(enum fd_apart kind)
{
	return atomic_load_explicit(&aparts[kind].n, memory_order_relaxed);
}

void fd_apart_close(int fd, enum fd_apart kind)
{
	if (fdtab_get(fd) != APART(kind))
		return;
	fdtab_set(fd, FD_NONE, NULL, NULL);
	atomic_fetch_sub(&aparts[kind].n, 1);
	atomic_fetch_sub(&internals, 1);
	sys(SYS_close, fd);
}

/* ---- for a moment ---- */

#define BACK_SOON 32

struct lock fd_number_word;
static __thread unsigned number_depth __attribute__((tls_model("initial-exec")));
/* number + 1; 0: free, -1: being filled */
static struct { _Atomic int fd; const struct stream *of; } brief[BACK_SOON];

void fd_number_lock(void)
{
	critical_enter();
	if (!number_depth++)
		lock_take(&fd_number_word);
}

void fd_number_unlock(void)
{
	if (!--number_depth)
		lock_give(&fd_number_word);
	critical_leave();
}

bool fd_number(int fd, const struct stream *of)
{
	for (int i = 0; i < BACK_SOON; i++) {
		int zero = 0;

		if (!atomic_compare_exchange_strong(&brief[i].fd, &zero, -1))
			continue;
		brief[i].of = of;
		atomic_store(&brief[i].fd, fd + 1);
		return true;
	}
	return false;
}

/* Under the lock: fork() copies the descriptors first, and later the memory that says which they
 * are. */
void fd_number_over(int fd)
{
	fd_number_lock();
	for (int i = 0; i < BACK_SOON; i++) {
		int it = fd + 1;

		if (atomic_compare_exchange_strong(&brief[i].fd, &it, 0))
			break;
	}
	fd_number_unlock();
}

/* Forgotten last: by then the number may be another file's, which the child tells by its entry,
 * or by what it is. Not under the lock: a socket that lingers would hold up all that waits for
 * it. */
void fd_number_close(int fd)
{
	sys(SYS_close, fd);
	fd_number_over(fd);
}

bool fd_is_tcp(int fd)
{
	int protocol;
	socklen_t len = sizeof(protocol);

	return sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) >= 0 &&
	       protocol == IPPROTO_TCP;
}

/* What another thread of the parent is closing stays open here, and nobody closes it. */
void fdtab_after_fork(void)
{
	int n = fdtab_top();

	atomic_store(&grow.v, 0);
	atomic_store(&fd_number_word.v, 0);
	number_depth = 0;
	for (int fd = fdtab_next(0); fd < n; fd = fdtab_next(fd + 1))
		if (fdtab_get(fd) == FDTAB_CLOSING)
			fdtab_set(fd, FD_NONE, NULL, NULL);
}

/* Of ours no socket of TCP has a use in the child: one that is left is a thread's that is not
 * here. */
void fdtab_after_fork_last(void (*closes)(struct stream *, int))
{
	int n = fdtab_top(), have = 0;

	for (int i = 0; i < BACK_SOON; i++) {
		int fd = atomic_exchange(&brief[i].fd, 0) - 1;
		struct stream *s = fd >= 0 ? fdtab_stream(fd) : NULL;

		if (s && s == brief[i].of)
			closes(s, fd);
		else if (fd >= 0 && !fdtab_get(fd) && fd_is_tcp(fd))
			sys(SYS_close, fd);
	}
	for (int fd = fdtab_next(0); fd < n; fd = fdtab_next(fd + 1)) {
		if (fdtab_get(fd) == GOING) {	/* by a thread that is not here */
			sys(SYS_close, fd);
			fdtab_set(fd, FD_NONE, NULL, NULL);
		} else if (fdtab_internal(fd) && fd_is_tcp(fd)) {
			fd_internal_close(fd);
		}
		have += fdtab_internal(fd);
	}
	atomic_store(&internals, have);		/* a thread that is not here was between the
						 * entry and the count */
}
