/*
 * usermem.h - may the application's buffer be touched? A system call answers a bad pointer with
 * EFAULT; so do the copies to and from a ring.
 *
 * A look costs a system call per page, so what was found good is remembered, a few stretches for
 * each direction of a stream: the next call with the same buffer costs two comparisons. So
 * memory that was good and has been unmapped or protected since is not noticed: using it
 * crashes, as any other use of it by the program does.
 *
 * Structs around the bytes (a msghdr, an array of pollfd) are looked at in the same way, by
 * usermem_bad().
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
	/* whole pages; the one used last first */
	struct { uintptr_t from, to; } span[USERMEM_SPANS];
};

/* How many of the n bytes at p may be read (or written), from the first on. Looks at all of
 * them. */
size_t usermem_look(struct usermem *m, const void *p, size_t n, bool write);

/* The same, at once for what is known. With `write` the bytes may be overwritten. */
static inline size_t usermem_ok(struct usermem *m, const void *p, size_t n, bool write)
{
	uintptr_t at = (uintptr_t)p;

	if (__builtin_expect(at >= m->span[0].from && at + n <= m->span[0].to && at + n >= at, 1))
		return n;
	return usermem_look(m, p, n, write);
}

/* Structs that a wrapper itself reads, or with `write` reads and writes: is that impossible?
 * Then the real call says EFAULT. What is there is not changed. Remembers for each thread what
 * was good. NULL is bad. */
extern __thread struct usermem usermem_mine[2] __attribute__((tls_model("initial-exec")));
bool usermem_bad_look(const void *p, size_t n, bool write);

static inline bool usermem_bad(const void *p, size_t n, bool write)
{
	const struct usermem *m = &usermem_mine[write];
	uintptr_t at = (uintptr_t)p;

	if (__builtin_expect(at >= m->span[0].from && at + n <= m->span[0].to && at + n >= at, 1))
		return false;
	return usermem_bad_look(p, n, write);
}

#endif
