/*
 * ready_pset.h - one call of poll or select: what it waits for.
 *
 * It works on copies. One is a pollfd array for the kernel. Its last entry but one is the thread's
 * bell. If a stream is on RDMA, its link's completion channel comes after that (of one link; for
 * others the background thread rings). The other is an array that says what each fd is to us.
 */
#ifndef RDMASHIM_READY_PSET_H
#define RDMASHIM_READY_PSET_H

#include "poll/ready_int.h"

#include <poll.h>

#define ON_STACK 64	/* entries; more than that go to scratch memory */

enum kind {
	KERN,		/* not a stream, or a TCP-only one */
	PLAIN,		/* a stream that is not cut while we are inside (counted in plain.rx) */
	ATTACHED,	/* a stream that may be cut at any moment: its view is read again in each
			 * round */
	INNER,		/* an epoll instance: the kernel's word for it is to be proved */
};

struct pent {
	struct stream *s;
	int fd;
	uint16_t want;		/* events asked for */
	uint16_t care;		/* result bits that count */
	uint16_t rev;		/* result */
	uint8_t kind;
	bool cut;		/* as of the last look */
	uint16_t home_seen;	/* events of the home socket that are up, and that the path does
				 * not show yet */
	bool off;		/* can show nothing that counts any more (select) */
};

struct pset {
	struct pollfd *pfd;	/* n + 2 */
	struct pent *ent;	/* n */
	unsigned n;
	unsigned nplain, ncand, ninner;
	unsigned ncut, nkern;	/* as of the last look; nkern: entries for which the kernel may
				 * answer */
	bool far;		/* as of the last look: one goes to another host */
	bool ending;		/* as of the last look: an end is among them, which is told whole */
	uint64_t sum;		/* tells sets apart */
	bool no_bell;
	uint64_t unheard_ns;	/* slept without one */
	struct stream *direct;	/* whose link's completion channel is slept on, too; NULL: none's */
	int direct_fd;
	uint64_t blocked;	/* of signals_block() */
};

/* ---- ready_pset.c ---- */
/* Scratch memory of the thread, at least n bytes; *ret_size is what pset_put() wants to have
 * back. A signal handler finds it busy, and gets memory of its own. NULL: there is none. */
void *pset_get(size_t n, size_t *ret_size);
void pset_put(void *p, size_t size);

static inline size_t pset_bytes(size_t n)
{
	return (n + 2) * sizeof(struct pollfd) + n * sizeof(struct pent);
}

static inline void pset_in(struct pset *p, void *mem, size_t n)
{
	p->ent = mem;
	p->pfd = (struct pollfd *)(p->ent + n);
	p->n = (unsigned)n;
}

/* Entry i; what it counts in streams and instances pset_leave() takes back. */
void pset_enter(struct pset *p, unsigned i, int fd, unsigned want, unsigned care);
void pset_leave(void *pset);
unsigned pset_look(struct pset *p);	/* at every path: how many entries are ready there */
int pset_merge(struct pset *p, long answered);	/* and the kernel's answers: how many are ready */
void pset_refresh(struct pset *p);	/* after a sleep a bell may have been missed */
enum ready_need ready_need_of(int fd);

/* ---- ready_poll.c ---- */
/* Waits: how many entries are ready, or -errno. */
int pset_run(struct pset *p, uint64_t deadline_ns, const sigset_t *mask);

#endif
