/*
 * fdtab.c - the table behind fdtab.h, and the home of the shim's own descriptors.
 *
 * Lock: none for look-ups; `grow` serialises the making of chunks (a leaf).
 */
#include "fdtab.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "lock.h"
#include "sys.h"

_Atomic(_Atomic uintptr_t *) fdtab_chunk[FDTAB_MAX / FDTAB_CHUNK];

uint32_t fdtab_closing;
__thread uint32_t fdtab_kernel_calls;

static struct lock grow;
static _Atomic int top, internals;

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
	int t;

	if (ok)
		*ok = false;
	if ((unsigned)fd >= FDTAB_MAX)
		return 0;
	if (kind == FD_NONE && !atomic_load_explicit(&fdtab_chunk[fd / FDTAB_CHUNK], memory_order_acquire)) {
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
	return atomic_exchange(&c[fd % FDTAB_CHUNK], kind == FD_NONE ? 0 : (uintptr_t)obj | kind);
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
	_Atomic uintptr_t *c = atomic_load_explicit(&fdtab_chunk[fd / FDTAB_CHUNK], memory_order_acquire);
	uintptr_t e = FDTAB_CLOSING;

	atomic_compare_exchange_strong(&c[fd % FDTAB_CHUNK], &e, 0);
}

int fdtab_top(void) { return atomic_load(&top); }

static long fd_limit(void)
{
	struct rlimit64 { uint64_t cur, max; } rl;

	if (sys(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &rl) < 0 || rl.cur > 1u << 30)
		return 1024;
	return (long)rl.cur;
}

/* Above what programs usually reach, below the limit, and low enough to keep the kernel's table small. */
static int internal_base(long limit)
{
	long base = limit - (limit / 8 > 8 ? limit / 8 : 8);

	if (base > 8192)
		base = 8192;
	return base < 3 ? 3 : (int)base;
}

static int place(int fd, bool counted)
{
	long limit = fd_limit(), share = limit / 8 > 8 ? limit / 8 : 8;
	long n;
	bool ok;

	if (atomic_fetch_add(&internals, 1) >= share && counted) {
		atomic_fetch_sub(&internals, 1);
		return -EMFILE;
	}
	fd_brief_lock();
	n = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, internal_base(limit));
	if (n >= 0)
		fdtab_set((int)n, FD_INTERNAL, (void *)&internals, &ok);
	fd_brief_unlock();
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

int fd_internal(int fd)
{
	int n = place(fd, true);

	fd_brief_close(fd);
	return n;
}

void fd_internal_close(int fd)
{
	if (!fdtab_internal(fd))
		return;
	fdtab_set(fd, FD_NONE, NULL, NULL);
	sys(SYS_close, fd);
	atomic_fetch_sub(&internals, 1);
}

int fd_internal_dup(int fd)
{
	return place(fd, false);	/* the application gives a number back at the same moment */
}

/* ---- for a moment ---- */

#define BRIEF 32

static struct lock brief_lock;
static struct { _Atomic int fd; const struct stream *of; } brief[BRIEF];	/* number + 1; 0: free, -1: being filled */

void fd_brief_lock(void) { lock_take(&brief_lock); }
void fd_brief_unlock(void) { lock_give(&brief_lock); }

bool fd_brief(int fd, const struct stream *of)
{
	for (int i = 0; i < BRIEF; i++) {
		int zero = 0;

		if (!atomic_compare_exchange_strong(&brief[i].fd, &zero, -1))
			continue;
		brief[i].of = of;
		atomic_store(&brief[i].fd, fd + 1);
		return true;
	}
	return false;
}

/* Under the lock: fork() copies the descriptors first, and later the memory that says which they are. */
void fd_brief_over(int fd)
{
	fd_brief_lock();
	for (int i = 0; i < BRIEF; i++) {
		int it = fd + 1;

		if (atomic_compare_exchange_strong(&brief[i].fd, &it, 0))
			break;
	}
	fd_brief_unlock();
}

/* Forgotten last: by then the number may be another file's, which the child tells by its entry, or by what it is. Not under the lock: a
 * socket that lingers would hold up a fork. */
void fd_brief_close(int fd)
{
	sys(SYS_close, fd);
	fd_brief_over(fd);
}

long fd_brief_recv(int sock, struct msghdr *h, int ret_fds[FDS_MOST], int *ret_n)
{
	long r;

	*ret_n = 0;
	fd_brief_lock();
	r = sys(SYS_recvmsg, sock, h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	for (struct cmsghdr *c = r < 0 ? NULL : CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) && *ret_n < FDS_MOST; i++) {
			memcpy(&ret_fds[*ret_n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			fd_brief(ret_fds[(*ret_n)++], NULL);
		}
	}
	fd_brief_unlock();
	return r;
}

bool fd_is_tcp(int fd)
{
	int protocol;
	socklen_t len = sizeof(protocol);

	return sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) >= 0 && protocol == IPPROTO_TCP;
}

/* What another thread of the parent is closing stays open here, and nobody closes it. */
void fdtab_after_fork(void)
{
	int n = fdtab_top();

	atomic_store(&grow.v, 0);
	atomic_store(&brief_lock.v, 0);
	for (int fd = 0; fd < n; fd++)
		if (fdtab_get(fd) == FDTAB_CLOSING)
			fdtab_set(fd, FD_NONE, NULL, NULL);
}

/* Of ours no socket of TCP has a use in the child: one that is left is a thread's that is not here. */
void fdtab_after_fork_last(void (*closes)(struct stream *, int))
{
	int n = fdtab_top();

	for (int i = 0; i < BRIEF; i++) {
		int fd = atomic_exchange(&brief[i].fd, 0) - 1;
		struct stream *s = fd >= 0 ? fdtab_stream(fd) : NULL;

		if (s && s == brief[i].of)
			closes(s, fd);
		else if (fd >= 0 && !fdtab_get(fd) && fd_is_tcp(fd))
			sys(SYS_close, fd);
	}
	for (int fd = 0; fd < n; fd++)
		if (fdtab_internal(fd) && fd_is_tcp(fd))
			fd_internal_close(fd);
}
