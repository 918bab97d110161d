/*
 * usermem.c - see usermem.h.
 *
 * The kernel is asked by calls that every program makes and that change nothing:
 * rt_sigprocmask() reads a set of signals before it finds that it does not know what to do with
 * it; getrandom() writes one byte, here the first of those that the caller is about to overwrite
 * anyway. (Not mincore(), for which systemd's @system-service ends a process.) Any answer but
 * EFAULT is a yes. (A null pointer would mean "no set" to the first of them.) Where the bytes
 * must stay as they are, FUTEX_WAKE_OP writes one word back by an atomic "or 0". A run of
 * several pages is asked for by madvise(MADV_POPULATE_READ or _WRITE), and page by page only
 * where that says no.
 */
#include "base/usermem.h"

#include "base/sys.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>

#define PAGE arch_page()

static bool readable(uintptr_t at)
{
	return sys(SYS_rt_sigprocmask, -1, at & ~7ul, NULL, 8ul) != -EFAULT;
}

static bool writable(uintptr_t at)
{
	return sys(SYS_getrandom, at, 1ul, 1u /* GRND_NONBLOCK */) != -EFAULT;
}

/* Makes span i the first. */
static void front(struct usermem *m, int i)
{
	__typeof__(m->span[0]) it = m->span[i];

	for (; i; i--)
		m->span[i] = m->span[i - 1];
	m->span[0] = it;
}

/* [from, to) is good: the span that it continues grows, or the oldest one makes room. */
static void learn(struct usermem *m, uintptr_t from, uintptr_t to)
{
	for (int i = 0; i < USERMEM_SPANS; i++) {
		__typeof__(m->span[0]) *s = &m->span[i];

		if (s->to && from <= s->to && to >= s->from) {
			s->from = from < s->from ? from : s->from;
			s->to = to > s->to ? to : s->to;
			front(m, i);
			return;
		}
	}
	m->span[USERMEM_SPANS - 1].from = from;
	m->span[USERMEM_SPANS - 1].to = to;
	front(m, USERMEM_SPANS - 1);
}

static bool known(struct usermem *m, uintptr_t page)
{
	for (int i = 0; i < USERMEM_SPANS; i++)
		if (page >= m->span[i].from && page < m->span[i].to) {
			front(m, i);
			return true;
		}
	return false;
}

/* By the word around it, which is in the same page and stays as it is. */
static bool writable_kept(uintptr_t first)
{
	static const uint32_t nobody = 0;	/* nobody waits there */
	uintptr_t at = first & ~3ul;

	return sys(SYS_futex, &nobody, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0, at,
		   FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 1)) != -EFAULT;
}

enum how { READ, WRITE, KEEP };

#define RUN (4 * PAGE)	/* shorter ones are asked for page by page */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* Pages that are about to be touched anyway are made present by one call (Linux 5.14), where a
 * call and a fault for each cost several times that. The bytes stay as they are. False: who
 * knows. */
static bool present(uintptr_t from, uintptr_t to, enum how how)
{
	static _Atomic bool unknown;
	long r;

	if (!from || to < from || to - from < RUN ||
	    atomic_load_explicit(&unknown, memory_order_relaxed))
		return false;
	r = sys(SYS_madvise, from, to - from,
		how == READ ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
	if (r == -EINVAL)	/* an older kernel; or memory of a device, which few programs
				 * send */
		atomic_store(&unknown, true);
	return !r;
}

static size_t look(struct usermem *m, const void *p, size_t n, enum how how)
{
	uintptr_t at = (uintptr_t)p, end = at + n, page, after;

	if (end < at)
		end = UINTPTR_MAX;
	for (page = at & -PAGE; page < end; page += PAGE) {
		uintptr_t first = page < at ? at : page;

		if (known(m, page))
			continue;
		after = (end + PAGE - 1) & -PAGE;
		if (present(page, after, how)) {
			learn(m, page, after);
			return n;
		}
		if (!page || !(how == KEEP    ? writable_kept(first)
			       : how == WRITE ? writable(first)
					      : readable(first)))
			return first - at;
		learn(m, page, page + PAGE);
	}
	return n;
}

size_t usermem_look(struct usermem *m, const void *p, size_t n, bool write)
{
	return look(m, p, n, write ? WRITE : READ);
}

__thread struct usermem usermem_mine[2] __attribute__((tls_model("initial-exec")));

bool usermem_bad_look(const void *p, size_t n, bool write)
{
	return look(&usermem_mine[write], p, n, write ? KEEP : READ) < n || !p;
}
