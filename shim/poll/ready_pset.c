/*
 * ready_pset.c - what poll and select wait for: the entries, and what paths and kernel report of
 * them.
 *
 * Locks: none. Only its scratch memory, one for each thread, is not re-entrant. A signal handler
 * that finds it busy maps its own.
 */
#include "conn/stream.h"
#include "conn/stream_learn.h"
#include "link/link.h"
#include "poll/ready_pset.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <sys/ioctl.h>

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

void *pset_get(size_t n, size_t *ret_size)
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

void pset_put(void *p, size_t size)
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
	if (!s || (stream_tcp_only(s) && !stream_learned(s)))
		return;
	t->s = s;
	if (stream_tcp_only(s))
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
}

void pset_enter(struct pset *p, unsigned i, int fd, unsigned want, unsigned care)
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

void pset_leave(void *arg)
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
unsigned pset_look(struct pset *p)
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

/* What the kernel calls ERR may be a header that somebody learns from. */
static unsigned learned_error(const struct pent *t, unsigned k)
{
	uint32_t gen = atomic_load(&t->s->gen);

	return fdtab_stream(t->fd) != t->s || stream_true_error(t->s, gen) ? k :
		k & ~(unsigned)POLLERR;
}

static bool inner_proved(int fd)
{
	struct epoll *e = fdtab_epoll(fd);

	return !e || ready_proved(e, ready_epoll_gen(e));
}

void pset_refresh(struct pset *p)
{
	for (unsigned i = 0; p->ninner && i < p->n; i++) {
		struct epoll *e = p->ent[i].kind == INNER ? fdtab_epoll(p->ent[i].fd) : NULL;

		if (e)
			ready_refresh(e);
	}
}

/* Takes the kernel's answers in; returns the number of ready entries. */
int pset_merge(struct pset *p, long answered)
{
	int n = 0;

	for (unsigned i = 0; i < p->n; i++) {
		struct pent *t = &p->ent[i];
		unsigned k = answered > 0 ? (uint16_t)p->pfd[i].revents : 0;

		if (k & POLLERR && t->s && stream_learned(t->s))
			k = learned_error(t, k);
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

enum ready_need ready_need_of(int fd)
{
	uintptr_t x = fdtab_get(fd);
	struct stream *s;

	switch (fdtab_kind(x)) {
	case FD_STREAM:
		s = fdtab_stream_of(x);
		if (x & FDTAB_STAYS || (stream_tcp_only(s) && !stream_learned(s)))
			return READY_NOT;
		return stream_on_link(s) ? READY_FAST : READY_NEEDED;
	case FD_EPOLL:
		return ready_may_be_false(fdtab_epoll_of(x)) ? READY_NEEDED : READY_NOT;
	default:
		return READY_NOT;
	}
}
