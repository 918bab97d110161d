/*
 * ready_select.c - select over streams: its sets are turned into entries, and back. Locks: none.
 */
#include "poll/ready_pset.h"

#include <string.h>

#define IN_SET  (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)	/* fs/select.c */
#define OUT_SET (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define EX_SET  (POLLPRI)

#define WORD (8 * sizeof(unsigned long))

static bool bit(const fd_set *set, int fd)
{
	return set && ((const unsigned long *)set)[fd / WORD] >> (fd % WORD) & 1;
}

static void mark(fd_set *set, int fd)
{
	((unsigned long *)set)[fd / WORD] |= 1ul << (fd % WORD);
}

static void wipe(fd_set *set, int n)
{
	if (set)
		memset(set, 0, ((size_t)n + WORD - 1) / WORD * sizeof(unsigned long));
}

enum ready_need ready_select_needed(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	enum ready_need all = READY_NOT, one;

	for (int fd = 0; fd < n && all < READY_FAST; fd++)
		if ((bit(r, fd) || bit(w, fd) || bit(x, fd)) && (one = ready_need_of(fd)) > all)
			all = one;
	return all;
}

static unsigned select_count(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	unsigned c = 0;

	for (int fd = 0; fd < n; fd++)
		c += bit(r, fd) || bit(w, fd) || bit(x, fd);
	return c;
}

static void select_enter(struct pset *p, int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	unsigned i = 0;

	for (int fd = 0; fd < n; fd++) {
		unsigned want = 0, care = 0;

		if (bit(r, fd)) {
			want |= POLLIN | POLLRDNORM | POLLRDBAND;
			care |= IN_SET;
		}
		if (bit(w, fd)) {
			want |= POLLOUT | POLLWRNORM | POLLWRBAND;
			care |= OUT_SET;
		}
		if (bit(x, fd)) {
			want |= POLLPRI;
			care |= EX_SET;
		}
		if (!care || i == p->n)
			continue;
		pset_enter(p, i++, fd, want, care | POLLNVAL);
	}
	p->n = i;
}

/* Writes the sets; the number of bits, or -EBADF. */
static int select_result(struct pset *p, int n, fd_set *r, fd_set *w, fd_set *x)
{
	int c = 0;

	for (unsigned i = 0; i < p->n; i++)
		if (p->ent[i].rev & POLLNVAL)
			return -EBADF;
	wipe(r, n);
	wipe(w, n);
	wipe(x, n);
	for (unsigned i = 0; i < p->n; i++) {
		struct pent *t = &p->ent[i];

		if ((t->want & POLLIN) && (t->rev & IN_SET)) {
			mark(r, t->fd);
			c++;
		}
		if ((t->want & POLLOUT) && (t->rev & OUT_SET)) {
			mark(w, t->fd);
			c++;
		}
		if ((t->want & POLLPRI) && (t->rev & EX_SET)) {
			mark(x, t->fd);
			c++;
		}
	}
	return c;
}

static int select_in(void *mem, unsigned count, int n, fd_set *r, fd_set *w, fd_set *x,
		     uint64_t deadline_ns, const sigset_t *mask)
{
	struct pset p = { 0 };
	int k;

	pset_in(&p, mem, count);
	select_enter(&p, n, r, w, x);
	k = pset_run(&p, deadline_ns, mask);
	pset_leave(&p);
	return k < 0 ? k : select_result(&p, n, r, w, x);
}

static __attribute__((noinline)) int select_small(unsigned count, int n, fd_set *r, fd_set *w,
						  fd_set *x, uint64_t deadline_ns,
						  const sigset_t *mask)
{
	struct { struct pent e[ON_STACK]; struct pollfd f[ON_STACK + 2]; } mem;

	return select_in(&mem, count, n, r, w, x, deadline_ns, mask);
}

int ready_select(int n, fd_set *r, fd_set *w, fd_set *x, uint64_t deadline_ns, const sigset_t *mask)
{
	unsigned count;
	size_t size;
	void *mem;
	int k;

	if (n < 0)
		return -EINVAL;
	count = select_count(n, r, w, x);
	if (count <= ON_STACK)
		return select_small(count, n, r, w, x, deadline_ns, mask);
	mem = pset_get(pset_bytes(count), &size);
	if (!mem)
		return -ENOMEM;
	k = select_in(mem, count, n, r, w, x, deadline_ns, mask);
	pset_put(mem, size);
	return k;
}
