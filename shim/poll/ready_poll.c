/*
 * ready_poll.c - poll over streams, and the wait that poll and select share. Locks: none.
 */
#include "base/signals.h"
#include "conn/stream_life.h"
#include "libc/libc.h"
#include "link/link.h"
#include "poll/ready_pset.h"

#include <pthread.h>

#define SPIN_MAX 64	/* streams whose views are looked at in each round of a spin */

static __thread _Atomic uint32_t hit_rate __attribute__((tls_model("initial-exec")));
/* The thread's last look into the kernel. */
static __thread uint64_t looked_ns __attribute__((tls_model("initial-exec")));
static __thread struct {
	uint64_t sum;
	uint32_t calls;
	bool told;
} last_look __attribute__((tls_model("initial-exec")));

/* The kernel has been asked, and found `r` entries ready. */
static void looked(const struct pset *p, long r)
{
	looked_ns = now_ns();
	last_look.sum = p->sum;
	last_look.calls = fdtab_kernel_calls;
	last_look.told = r > 0;
}

/* It must be asked though it was just now: about other descriptors; what it had to tell then may
 * still hold; and what this thread has done or seen since, by calls of the kernel alone, may be
 * an event by now. */
static bool knows_more(const struct pset *p)
{
	return last_look.sum != p->sum || last_look.calls != fdtab_kernel_calls || last_look.told;
}

static long kernel_now(struct pset *p)
{
	struct timespec zero = { 0, 0 };
	long r = sys(SYS_ppoll, p->pfd, p->n, &zero, NULL, 8);

	looked(p, r);
	return r;
}

/* Cancellation point. */
static int sleep_poll(struct pollfd *f, nfds_t n, uint64_t wait_ns, const sigset_t *mask)
{
	struct timespec t = { (time_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u) };
	int saved = errno, r = real_ppoll(f, n, wait_ns == UINT64_MAX ? NULL : &t, mask);

	if (r < 0)
		r = -errno;
	errno = saved;
	return r;
}

/* Spins on the paths. 0: nothing; 1: look; < 0: a ready count from the kernel, negated. */
static int spin(struct pset *p, uint64_t deadline_ns)
{
	struct spin sp;
	int r = 0;

	if (!p->ncut || p->n > SPIN_MAX || !spin_begin(&sp, &hit_rate, p->far))
		return 0;
	do {
		uint64_t now;

		if (pset_look(p)) {
			r = 1;
			break;
		}
		now = now_ns();
		if (now >= deadline_ns)
			break;
		if (p->nkern && now - looked_ns >= READY_LOOK_NS)
			r = -pset_merge(p, kernel_now(p));
	} while (!r && spin_again(&sp));
	spin_end(&hit_rate, r != 0);
	return r;
}

/* With the bell armed, before the last look: whoever makes room must tell. */
static void want_room(struct pset *p)
{
	link_read_enter();
	for (unsigned i = 0; i < p->n; i++) {
		struct pent *t = &p->ent[i];

		if (t->kind == ATTACHED && t->cut && (t->want & EV_OUT)) {
			struct stream_view v = stream_view(t->s);

			if (!((v.synth | v.kern | v.coming) & EPOLLOUT)) {
				stream_want_room(t->s);
				stream_told_full(t->s);
			}
		}
	}
	link_read_leave();
}

static struct bell *bell_for(struct pset *p)
{
	struct bell *b = p->ncand && !p->no_bell ? bell_thread() : NULL;

	p->direct = NULL;
	p->direct_fd = -1;
	for (unsigned i = 0; b && i < p->n; i++) {
		struct pent *t = &p->ent[i];

		if (t->kind != ATTACHED)
			continue;
		stream_bell_add(t->s, b, false);
		if (!t->cut || p->direct)
			continue;
		p->direct_fd = stream_sleep_on(t->s, b, 0);
		p->direct = p->direct_fd >= 0 ? t->s : NULL;
	}
	return b;
}

struct nap { struct pset *p; struct bell *b; };

static void cancelled(void *arg)
{
	struct nap *nap = arg;

	if (nap->b)
		bell_disarm(nap->b);
	pset_leave(nap->p);
	signals_unblock(nap->p->blocked);
}

static bool all_left(const struct pset *p)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->ent[i].kind == ATTACHED &&
		    (p->ent[i].cut || atomic_load(&p->ent[i].s->earn.stopped) != REASON_NO_BELL))
			return false;
	return true;
}

static uint64_t nap_time(const struct pset *p, const struct bell *b, uint64_t now,
			 uint64_t deadline_ns)
{
	uint64_t left = UINT64_MAX, slice = bell_slice(b);

	if (deadline_ns != UINT64_MAX)
		left = deadline_ns > now ? deadline_ns - now : 0;
	if (!bell_hears(b) && all_left(p))
		slice = BELL_SELDOM_NS;
	if (!p->ncand)
		slice = UINT64_MAX;
	if (p->ninner && ready_slice() < slice)
		slice = ready_slice();
	return left > slice ? slice : left;
}

/* Nobody wakes this thread: its streams leave the fast path. */
static void unheard(struct pset *p, uint64_t ns)
{
	p->unheard_ns += ns;
	for (unsigned i = 0; p->unheard_ns > BELL_PATIENCE_NS && i < p->n; i++)
		if (p->ent[i].kind == ATTACHED && p->ent[i].cut)
			stream_leave_path(p->ent[i].s, REASON_NO_BELL);
}

/* Not inlined: what pthread_cleanup_push() saves must not be the caller's. */
static __attribute__((noinline)) int nap(struct pset *p, struct bell *b, uint64_t left,
					 const sigset_t *mask)
{
	struct nap me = { p, b };
	int r;

	p->pfd[p->n] = (struct pollfd){ .fd = b ? b->fd : -1, .events = POLLIN };
	p->pfd[p->n + 1] = (struct pollfd){ .fd = p->direct_fd, .events = POLLIN };
	pthread_cleanup_push(cancelled, &me);
	r = sleep_poll(p->pfd, p->n + (b ? 1 : 0) + (p->direct ? 1 : 0), left, mask);
	pthread_cleanup_pop(0);
	return r;
}

/* Sleeps once. < 0: -errno; 0: look again; > 0: so many entries are ready. A handler that ran
 * since `mark` ends it. */
static int sleep_once(struct pset *p, uint64_t deadline_ns, const sigset_t *mask, uint32_t mark)
{
	struct bell *b = bell_for(p);
	uint64_t t0;
	int r;

	signals_wake(b ? b->fd : -1);
	if (b) {
		bell_sleep(b);
		if (p->ncut)
			want_room(p);
	}
	r = p->ncand && pset_look(p) ? 0 : signals_since(mark) ? -EINTR : 1;
	if (r <= 0) {
		signals_wake(-1);
		if (b)
			bell_disarm(b);
		return r;
	}
	t0 = now_ns();
	r = nap(p, b, nap_time(p, b, t0, deadline_ns), mask);
	signals_wake(-1);
	looked(p, r - (b && r > 0 && p->pfd[p->n].revents) -
			  (p->direct && r > 0 && p->pfd[p->n + 1].revents));
	if (p->ncut && !mask)
		spin_slept(&hit_rate, looked_ns - t0, p->far);
	if (p->ncut && !bell_hears(b) && r == 0)
		unheard(p, now_ns() - t0);
	if (b) {
		bell_disarm(b);
		if (r > 0 && p->pfd[p->n].revents)
			bell_drain(b);
		if (r > 0 && p->direct && p->pfd[p->n + 1].revents)
			wire_woken(&p->direct->link, p->direct_fd);
		if (r == -EINVAL) {	/* one entry more than RLIMIT_NOFILE admits */
			p->no_bell = true;
			return 0;
		}
	}
	return r > 0 ? pset_merge(p, r) : r;
}

/* May the look into the kernel be left out, because a path is ready and the kernel had its turn
 * just now? */
static bool skip_kernel(struct pset *p, unsigned ready, uint64_t deadline_ns)
{
	if (!ready || p->ending)
		return false;
	return !p->nkern || (deadline_ns && !knows_more(p) && now_ns() - looked_ns < READY_LOOK_NS);
}

static int run_blocked(struct pset *p, uint64_t deadline_ns, const sigset_t *mask)
{
	uint32_t mark = signals_mark();

	for (;;) {
		unsigned ready = pset_look(p);
		int r;

		if (ready || !deadline_ns) {
			long k = skip_kernel(p, ready, deadline_ns) ? 0 : kernel_now(p);

			if (k < 0 && !ready)
				return (int)k;
			return pset_merge(p, k);
		}
		r = mask ? 0 : spin(p, deadline_ns);
		if (r < 0)
			return -r;
		if (r > 0)
			continue;
		r = sleep_once(p, deadline_ns, mask, mark);
		if (r)
			return r;
		pset_refresh(p);
		if (deadline_ns != UINT64_MAX && now_ns() >= deadline_ns)
			deadline_ns = 0;	/* one last look */
	}
}

int pset_run(struct pset *p, uint64_t deadline_ns, const sigset_t *mask)
{
	int r;

	p->blocked = mask && deadline_ns ? signals_block(mask) : 0;
	r = run_blocked(p, deadline_ns, mask);
	signals_unblock(p->blocked);
	return r;
}

enum ready_need ready_poll_needed(const struct pollfd *fds, nfds_t n)
{
	enum ready_need all = READY_NOT, one;

	for (nfds_t i = 0; i < n && all < READY_FAST; i++)
		if (fds[i].fd >= 0 && (one = ready_need_of(fds[i].fd)) > all)
			all = one;
	return all;
}

static int poll_in(void *mem, struct pollfd *fds, nfds_t n, uint64_t deadline_ns,
		   const sigset_t *mask)
{
	struct pset p = { 0 };
	int r;

	pset_in(&p, mem, n);
	for (nfds_t i = 0; i < n; i++) {
		pset_enter(&p, (unsigned)i, fds[i].fd, (uint16_t)fds[i].events,
		      (uint16_t)fds[i].events | POLLERR | POLLHUP | POLLNVAL);
	}
	r = pset_run(&p, deadline_ns, mask);
	pset_leave(&p);
	for (nfds_t i = 0; r >= 0 && i < n; i++)
		fds[i].revents = (short)p.ent[i].rev;
	return r;
}

/* Not inlined: waits on few fds must not pay for the array, nor deep stacks for both. */
static __attribute__((noinline)) int poll_small(struct pollfd *fds, nfds_t n, uint64_t deadline_ns,
						const sigset_t *mask)
{
	struct { struct pent e[ON_STACK]; struct pollfd f[ON_STACK + 2]; } mem;

	return poll_in(&mem, fds, n, deadline_ns, mask);
}

int ready_poll(struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask)
{
	size_t size;
	void *mem;
	int r;

	if (n <= ON_STACK)
		return poll_small(fds, n, deadline_ns, mask);
	if (n >= FDTAB_MAX)	/* more than there can be: the kernel says EINVAL or EFAULT */
		return sleep_poll(fds, n, 0, NULL);
	mem = pset_get(pset_bytes(n), &size);
	if (!mem)
		return -ENOMEM;
	r = poll_in(mem, fds, n, deadline_ns, mask);
	pset_put(mem, size);
	return r;
}
