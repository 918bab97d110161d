/*
 * ready_poll.c - poll and select over streams.
 *
 * A wait works on copies: a pollfd array for the kernel, with the thread's bell as its last
 * entry but one and, if a stream is on RDMA, its link's completion channel after that (of one
 * link; for others the background thread rings), and an array that says what each fd is to us:
 *   KERN   not a stream, or a TCP-only one
 *   PLAIN  a stream that is not cut while we are inside (counted in plain.rx)
 *   ATTACHED  a stream that may be cut at any moment: its view is read again in each round
 *   INNER  an epoll instance: the kernel's word for it is to be proved
 * Locks: none. Not re-entrant per thread only in its scratch memory, which a signal handler
 * finds busy and then maps its own.
 */
#include "libc/libc.h"
#include "link/link.h"
#include "poll/ready_int.h"
#include "conn/stream_int.h"
#include "base/signals.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

#define ON_STACK 64	/* entries; more than that go to scratch memory */
#define SPIN_MAX 64	/* streams whose views are looked at in each round of a spin */

#define IN_SET  (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)	/* fs/select.c */
#define OUT_SET (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define EX_SET  (POLLPRI)

enum kind { KERN, PLAIN, ATTACHED, INNER };

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

static __thread _Atomic uint32_t hit_rate __attribute__((tls_model("initial-exec")));
/* The thread's last look into the kernel. */
static __thread uint64_t looked_ns __attribute__((tls_model("initial-exec")));
static __thread struct {
	uint64_t sum;
	uint32_t calls;
	bool told;
} last_look __attribute__((tls_model("initial-exec")));

/* ---- scratch memory, one per thread ---- */

struct scratch { void *mem; size_t size; bool busy; };

static __thread struct scratch scratch __attribute__((tls_model("initial-exec")));
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static bool scratch_keyed;

static void scratch_gone(void *p)
{
	(void)p;
	if (scratch.mem)
		sys(SYS_munmap, scratch.mem, scratch.size);
	scratch.mem = NULL;
	scratch.size = 0;
}

static void scratch_init(void)
{
	scratch_keyed = !pthread_key_create(&scratch_key, scratch_gone);
}

/* At least n bytes; *ret_size is what scratch_put() wants to have back. */
static void *scratch_get(size_t n, size_t *ret_size)
{
	n = (n + 4095) & ~(size_t)4095;
	*ret_size = n;
	if (scratch.busy)
		return ready_map(n);
	pthread_once(&scratch_once, scratch_init);
	if (!scratch_keyed)
		return ready_map(n);
	scratch.busy = true;
	if (scratch.size < n) {
		if (scratch.mem)
			sys(SYS_munmap, scratch.mem, scratch.size);
		scratch.size = 0;
		scratch.mem = ready_map(n);
		if (scratch.mem) {
			scratch.size = n;
			pthread_setspecific(scratch_key, &scratch);
		}
	}
	if (!scratch.mem)
		scratch.busy = false;
	return scratch.mem;
}

static void scratch_put(void *p, size_t size)
{
	if (p == scratch.mem)
		scratch.busy = false;
	else
		sys(SYS_munmap, p, size);
}

/* ---- the entries ---- */

static void classify(struct pset *p, struct pent *t)
{
	struct stream *s = t->fd >= 0 ? fdtab_stream(t->fd) : NULL;

	t->kind = KERN;
	t->s = NULL;
	if (!s && t->fd >= 0 && fdtab_epoll(t->fd)) {
		ready_watch(fdtab_epoll(t->fd), true);
		t->kind = INNER;
		p->ninner++;
	}
	if (!s || stream_tcp_only(s))
		return;
	stream_waits_seen(s, t->fd);
	if (stream_plain_wait(s)) {
		t->kind = PLAIN;
		p->nplain++;
	} else if (stream_tcp_only(s)) {
		return;
	} else {
		t->kind = ATTACHED;
		p->ncand++;
	}
	t->s = s;
}

static void enter(struct pset *p, unsigned i, int fd, unsigned want, unsigned care)
{
	p->ent[i] = (struct pent){ .fd = fd, .want = (uint16_t)want, .care = (uint16_t)care };
	p->pfd[i] = (struct pollfd){ .fd = fd, .events = (short)want };
	p->sum = (p->sum + ((uint64_t)want << 32 | (uint32_t)fd)) * 0x9e3779b97f4a7c15ull;
	if (fd >= 0)
		classify(p, &p->ent[i]);
}

/* A plain entry whose stream has become a candidate is no longer plain. */
static void reclassify(struct pset *p)
{
	for (unsigned i = 0; p->nplain && i < p->n; i++) {
		struct pent *t = &p->ent[i];
		unsigned m;

		if (t->kind != PLAIN)
			continue;
		m = atomic_load_explicit(&t->s->mode, memory_order_relaxed);
		if (m == MODE_NEW || m == MODE_TCP_FOR_NOW)
			continue;
		p->nplain--;
		stream_plain_wait_leave(t->s);
		classify(p, t);
	}
}

static void leave(void *arg)
{
	struct pset *p = arg;

	for (unsigned i = 0; p->nplain && i < p->n; i++) {
		if (p->ent[i].kind == PLAIN) {
			stream_plain_wait_leave(p->ent[i].s);
			p->nplain--;
		}
	}
}

/* Sets what the kernel is asked; returns what the path shows. */
static unsigned look_one(struct pset *p, struct pent *t, struct pollfd *f)
{
	struct stream_view v = stream_view(t->s);

	t->cut = v.cut;
	if (!v.cut) {
		f->fd = t->fd;
		f->events = (short)t->want;
		t->home_seen = 0;
		p->nkern++;
		return ev_wide(v.coming) & t->want & t->care;
	}
	p->ncut++;
	p->far |= stream_sought(t->s)->far;
	/* What is up would end every sleep at once. RDHUP need not be asked for; with HUP or ERR
	 * the kernel has no more events. */
	f->fd = t->home_seen & (POLLHUP | POLLERR) ? -1 : t->fd;
	f->events = (short)(((t->want & ~EV_BANDS & ~(EV_INOUT & ~ev_wide(v.kern))) | POLLRDHUP) &
			    ~(t->home_seen & POLLRDHUP));
	if (f->fd >= 0 && (f->events & ~POLLRDHUP))
		p->nkern++;
	v.synth |= v.coming;
	p->ending |= v.look || v.synth & EV_HOME;
	return ev_wide(v.synth) & (t->want | EV_ALWAYS) & t->care;
}

/* Looks at every path; returns how many entries are ready there. */
static unsigned look(struct pset *p)
{
	unsigned ready = 0;

	reclassify(p);
	p->ncut = p->nkern = 0;
	p->ending = p->far = false;
	if (!p->ncand) {
		p->nkern = p->n;
		return 0;
	}
	link_read_enter();
	for (unsigned i = 0; i < p->n; i++) {
		struct pent *t = &p->ent[i];

		if (t->kind == ATTACHED) {
			t->rev = (uint16_t)look_one(p, t, &p->pfd[i]);
			ready += t->rev != 0;
		} else if (p->pfd[i].fd >= 0) {
			p->nkern++;
		}
	}
	link_read_leave();
	return ready;
}

static struct stream_view view_of(struct stream *s)
{
	struct stream_view v;

	link_read_enter();
	v = stream_view(s);
	link_read_leave();
	return v;
}

/*
 * The kernel writes down a reset's error before the connection's new state (tcp_reset() in
 * net/ipv4/tcp_input.c), and polls without the socket's lock. A program whose own call brought
 * the reset never sees ERR alone; here the bytes that brought it may have been sent by another
 * thread. SIOCINQ takes the lock.
 */
static unsigned whole_reset(const struct pent *t, unsigned k)
{
	struct pollfd p = { .fd = t->fd, .events = (short)t->want };
	struct timespec zero = { 0, 0 };
	int q;

	if ((k & (POLLERR | POLLHUP)) != POLLERR)
		return k;
	sys(SYS_ioctl, t->fd, SIOCINQ, &q);
	return sys(SYS_ppoll, &p, 1, &zero, NULL, 8) == 1 ? k | (uint16_t)p.revents : k;
}

/* The kernel's answer for an entry that may be cut. */
static void merge_cand(struct pent *t, unsigned answer)
{
	struct stream_view v = view_of(t->s);
	unsigned k = whole_reset(t, answer), fallback = k & EV_HOME;

	if (v.cut && fallback) {
		stream_home_event(t->s, fallback);
		v = view_of(t->s);
	}
	if (!v.cut) {
		t->rev |= k & (t->want | EV_ALWAYS | POLLNVAL) & t->care;
		return;
	}
	k &= (t->want | POLLNVAL) & ~EV_HOME & ~(EV_INOUT & ~ev_wide(v.kern));
	t->rev |= (k | (ev_wide(v.synth | v.coming) & (t->want | EV_ALWAYS))) & t->care;
	if (!t->rev)
		t->home_seen |= fallback;
}

static bool inner_proved(int fd)
{
	struct epoll *e = fdtab_epoll(fd);

	return !e || ready_proved(e, ready_epoll_gen(e));
}

/* After a sleep a bell may have been missed. */
static void refresh(struct pset *p)
{
	for (unsigned i = 0; p->ninner && i < p->n; i++) {
		struct epoll *e = p->ent[i].kind == INNER ? fdtab_epoll(p->ent[i].fd) : NULL;

		if (e)
			ready_refresh(e);
	}
}

/* Takes the kernel's answers in; returns the number of ready entries. */
static int merge(struct pset *p, long answered)
{
	int n = 0;

	for (unsigned i = 0; i < p->n; i++) {
		struct pent *t = &p->ent[i];
		unsigned k = answered > 0 ? (uint16_t)p->pfd[i].revents : 0;

		if (!k) {
		} else if (t->kind == ATTACHED ||
			   (t->kind == PLAIN && k & EV_HOME && stream_on_link(t->s))) {
			merge_cand(t, k);
		} else if (t->kind == INNER && !inner_proved(t->fd)) {
			;
		} else {
			t->rev |= k & t->care;
			if (!t->rev) {	/* select: HUP or ERR that nobody asked for */
				t->off = true;
				p->pfd[i].fd = -1;
			}
		}
		if (t->kind == ATTACHED && t->cut && t->want & EV_OUT && !(t->rev & EV_OUT))
			stream_told_full(t->s);	/* who is told that it is not writable will not
						 * try to send */
		n += t->rev != 0;
	}
	return n;
}

/* ---- waiting ---- */

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

		if (look(p)) {
			r = 1;
			break;
		}
		now = now_ns();
		if (now >= deadline_ns)
			break;
		if (p->nkern && now - looked_ns >= READY_LOOK_NS)
			r = -merge(p, kernel_now(p));
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
	leave(nap->p);
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
	r = p->ncand && look(p) ? 0 : signals_since(mark) ? -EINTR : 1;
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
	return r > 0 ? merge(p, r) : r;
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
		unsigned ready = look(p);
		int r;

		if (ready || !deadline_ns) {
			long k = skip_kernel(p, ready, deadline_ns) ? 0 : kernel_now(p);

			if (k < 0 && !ready)
				return (int)k;
			return merge(p, k);
		}
		r = mask ? 0 : spin(p, deadline_ns);
		if (r < 0)
			return -r;
		if (r > 0)
			continue;
		r = sleep_once(p, deadline_ns, mask, mark);
		if (r)
			return r;
		refresh(p);
		if (deadline_ns != UINT64_MAX && now_ns() >= deadline_ns)
			deadline_ns = 0;	/* one last look */
	}
}

static int run(struct pset *p, uint64_t deadline_ns, const sigset_t *mask)
{
	int r;

	p->blocked = mask && deadline_ns ? signals_block(mask) : 0;
	r = run_blocked(p, deadline_ns, mask);
	signals_unblock(p->blocked);
	return r;
}

/* ---- entry points ---- */

static enum ready_need need_of(int fd)
{
	uintptr_t x = fdtab_get(fd);
	struct stream *s;

	switch (fdtab_kind(x)) {
	case FD_STREAM:
		s = fdtab_stream_of(x);
		if (x & FDTAB_STAYS || stream_tcp_only(s))
			return READY_NOT;
		return stream_on_link(s) ? READY_FAST : READY_NEEDED;
	case FD_EPOLL:
		return ready_may_be_false(fdtab_epoll_of(x)) ? READY_NEEDED : READY_NOT;
	default:
		return READY_NOT;
	}
}

enum ready_need ready_poll_needed(const struct pollfd *fds, nfds_t n)
{
	enum ready_need all = READY_NOT, one;

	for (nfds_t i = 0; i < n && all < READY_FAST; i++)
		if (fds[i].fd >= 0 && (one = need_of(fds[i].fd)) > all)
			all = one;
	return all;
}

static size_t pset_bytes(size_t n)
{
	return (n + 2) * sizeof(struct pollfd) + n * sizeof(struct pent);
}

static void pset_in(struct pset *p, void *mem, size_t n)
{
	p->ent = mem;
	p->pfd = (struct pollfd *)(p->ent + n);
	p->n = (unsigned)n;
}

static int poll_in(void *mem, struct pollfd *fds, nfds_t n, uint64_t deadline_ns,
		   const sigset_t *mask)
{
	struct pset p = { 0 };
	int r;

	pset_in(&p, mem, n);
	for (nfds_t i = 0; i < n; i++) {
		enter(&p, (unsigned)i, fds[i].fd, (uint16_t)fds[i].events,
		      (uint16_t)fds[i].events | POLLERR | POLLHUP | POLLNVAL);
	}
	r = run(&p, deadline_ns, mask);
	leave(&p);
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
	mem = scratch_get(pset_bytes(n), &size);
	if (!mem)
		return -ENOMEM;
	r = poll_in(mem, fds, n, deadline_ns, mask);
	scratch_put(mem, size);
	return r;
}

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
		if ((bit(r, fd) || bit(w, fd) || bit(x, fd)) && (one = need_of(fd)) > all)
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
		enter(p, i++, fd, want, care | POLLNVAL);
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
	k = run(&p, deadline_ns, mask);
	leave(&p);
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
	mem = scratch_get(pset_bytes(count), &size);
	if (!mem)
		return -ENOMEM;
	k = select_in(mem, count, n, r, w, x, deadline_ns, mask);
	scratch_put(mem, size);
	return k;
}
