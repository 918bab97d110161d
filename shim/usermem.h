/*
 * usermem.h - may the application's buffer be touched? A system call answers a bad pointer with EFAULT; so do the
 * copies to and from a ring.
 *
 * A look costs a system call per page, so what was found good is remembered, a few stretches for each direction of a stream:
 * the next call with the same buffer costs two comparisons. So memory that was good and has been unmapped or
 * protected since is not noticed: using it crashes, as any other use of it by the program does.
 *
 * Lock: a struct usermem belongs to the lock of the half that it is in. Async-signal-safe.
 */
#ifndef RDMASHIM_USERMEM_H
#define RDMASHIM_USERMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USERMEM_SPANS 4		/* a header, a body and the like take turns */

struct usermem {
	struct { uintptr_t from, to; } span[USERMEM_SPANS];	/* whole pages; the one used last first */
};

/* How many of the n bytes at p may be read (or written), from the first on. Looks at all of them. */
size_t usermem_look(struct usermem *m, const void *p, size_t n, bool write);

/* The same, at once for what is known. With `write` the bytes may be overwritten. */
static inline size_t usermem_ok(struct usermem *m, const void *p, size_t n, bool write)
{
	uintptr_t at = (uintptr_t)p;

	if (__builtin_expect(at >= m->span[0].from && at + n <= m->span[0].to && at + n >= at, 1))
		return n;
	return usermem_look(m, p, n, write);
}

/* An address where no program has anything (the first page, the kernel's half): then the real call says EFAULT. For the structs that wrappers read themselves. */
static inline bool usermem_never(const void *p)
{
	return (uintptr_t)p - 4096 >= (1ul << 56) - 4096;
}

#endif
