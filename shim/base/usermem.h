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
 * A look touches the memory, and may wait as long as that does: no lock is held over it. So whoever
 * looks has a copy of the struct, or nobody else has it at that moment; usermem_known() touches
 * nothing.
 *
 * Lock: a struct usermem belongs to the lock of the half that it is in, but for its first word.
 * Async-signal-safe.
 */
#ifndef RDMASHIM_USERMEM_H
#define RDMASHIM_USERMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define USERMEM_SPANS 4		/* a header, a body and the like take turns */

struct usermem {
	/* the stretch used last, or a part of it, for who has no lock: its address and, in the
	 * lowest bits, how many pages of 4 KiB it has */
	uint64_t first;
	/* whole pages; the one used last first */
	struct { uintptr_t from, to; } span[USERMEM_SPANS];
};

/* How many of the n bytes at p may be read (or written), from the first on. Looks at all of
 * them. */
size_t usermem_look(struct usermem *m, const void *p, size_t n, bool write);

/* The same where the bytes must stay as they are, of memory that is to be written. */
size_t usermem_look_kept(struct usermem *m, const void *p, size_t n);

/* Are n >= 1 bytes at p known to be good? Any thread, also without the lock. */
static inline bool usermem_known(const struct usermem *m, const void *p, size_t n)
{
	uint64_t first = __atomic_load_n(&m->first, __ATOMIC_RELAXED),
		 size = (first & 0xfff) << 12, off = (uintptr_t)p - (first & ~0xfffull);

	return off < size && n <= size - off;
}

/* The same, at once for what is known. With `write` the bytes may be overwritten. */
static inline size_t usermem_ok(struct usermem *m, const void *p, size_t n, bool write)
{
	return __builtin_expect(usermem_known(m, p, n), 1) ? n : usermem_look(m, p, n, write);
}

/* What a copy of the struct has learned. */
static inline void usermem_learned(struct usermem *m, const struct usermem *copy)
{
	memcpy(m->span, copy->span, sizeof m->span);
	__atomic_store_n(&m->first, copy->first, __ATOMIC_RELAXED);
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
