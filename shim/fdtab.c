/*
 * fdtab.c - the table behind fdtab.h, and the home of the shim's own descriptors.
 *
 * Lock: none for look-ups; `grow` serialises the making of chunks (a leaf).
 */
#include "fdtab.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

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
	n = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, internal_base(limit));
	if (n < 0) {
		atomic_fetch_sub(&internals, 1);
		return (int)n;
	}
	fdtab_set((int)n, FD_INTERNAL, (void *)&internals, &ok);
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

	sys(SYS_close, fd);
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

/* What another thread of the parent is closing stays open here, and nobody closes it. */
void fdtab_after_fork(void)
{
	int n = fdtab_top();

	atomic_store(&grow.v, 0);
	for (int fd = 0; fd < n; fd++)
		if (fdtab_get(fd) == FDTAB_CLOSING)
			fdtab_set(fd, FD_NONE, NULL, NULL);
}
