/*
 * ready_ctl.c - epoll_ctl over streams. What the application registers goes to the kernel in the
 * form that the stream's paths need (item_wanted()), and into the instance's registry, armed if the
 * stream may be cut.
 *
 * A registration that the fast path cannot serve makes the stream fall back for good. Then the
 * kernel alone answers.
 *
 * Locks: stream.reg.lock, epoll.lock; none while a stream falls back.
 */
#include "base/shim.h"
#include "poll/ready_int.h"

static bool candidate(struct stream *s)
{
	return atomic_load(&s->mode) == MODE_ATTACHED;
}

/* Another thread has closed epfd since it was looked up: the struct may be another instance's,
 * which is none of this call's. e->lock held, and as long as it is the instance stays epfd's. */
static bool closed(const struct epoll *e, int epfd) { return fdtab_epoll(epfd) != e; }

/* After ADD or MOD of an armed item: as the kernel, report what is ready already. Returns bells
 * to ring. `now`: armed by this call, so threads that are in the kernel's wait may have no bell
 * armed: do it for them, and let one come out and look. */
static uint64_t consider(struct epitem *it, struct stream_view *v, bool now)
{
	uint32_t bits;

	*v = stream_view(it->s);	/* what came before the bell was there rang nobody */
	item_set_cut(it, v->cut);
	bits = item_own_bits(it, v);
	if (v->cut || bits)
		item_queue(it);
	if (!atomic_load(&it->e->sleepers) && !atomic_load(&it->e->watched))
		return 0;
	if (now)
		bell_arm(it->e->bell);
	return bits || now ? bell_bit(it->e->bell) : 0;
}

/* `arm`: the stream may be cut at any moment. -EXDEV, -EOPNOTSUPP, -ENOSPC: not in this
 * instance; nothing was added. */
static int add_locked(struct epitem *it, int epfd, bool arm, uint64_t *ring)
{
	struct stream_view v = { .kern = EPOLLIN | EPOLLOUT };
	struct epoll *e = it->e;
	struct epoll_event ev;
	struct epitem *old;
	int r;

	if (it->s) {
		v = stream_view(it->s);
		if (!arm && v.cut)
			return -EOPNOTSUPP;
	}
	it->kern_events = item_wanted(it, &v);
	ev.events = it->kern_events;
	ev.data.u64 = it->data;
	r = (int)sys(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, it->fd, &ev);
	if (r)
		return r;
	fdtab_kernel_call();
	old = item_by_fd(e, it->fd);
	if (old) {	/* its file was closed behind our back */
		if (old->s && old->s != it->s) {
			item_unindex_fd(old);
		} else {
			item_remove(old);
			item_free(old);
		}
	}
	it->inner = it->s ? NULL : fdtab_epoll(it->fd);
	if (it->inner)
		it->inner_gen = ready_epoll_gen(it->inner);
	item_insert(it);
	if (it->s && arm) {
		r = item_arm(it);
		if (r) {
			sys(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, it->fd, NULL);
			item_remove(it);
			return r;
		}
		*ring = consider(it, &v, true);
	}
	return 0;
}

/* MOD in the kernel, then here. */
static int mod_kernel(struct epitem *it, int epfd, const struct epoll_event *ev, uint32_t want)
{
	struct epoll_event k = { .events = want, .data.u64 = ev->data.u64 };
	int r = (int)sys(SYS_epoll_ctl, epfd, EPOLL_CTL_MOD, it->fd, &k);

	fdtab_kernel_call();
	if (!r)
		it->kern_events = want;
	return r;
}

static int mod_locked(struct epitem *it, int epfd, int fd, const struct epoll_event *ev,
		      uint64_t *ring)
{
	struct epitem probe = *it;
	struct stream_view v = { .kern = EPOLLIN | EPOLLOUT };
	bool arm = it->s && candidate(it->s) && fdtab_stream(fd) == it->s;
	bool now = false;
	uint32_t want;
	int r = 0;

	probe.events = ev->events;
	probe.disabled = false;
	if (arm || it->armed)
		v = stream_view(it->s);
	want = item_wanted(&probe, &v);
	if (!it->armed || !v.cut || want != it->kern_events || it->data != ev->data.u64 ||
	    fdtab_stream(fd) != it->s)
		r = mod_kernel(it, epfd, ev, want);
	if (r)
		return r;
	if (it->data != ev->data.u64 && it->armed) {
		/* Events are found by data: it must stay the only one with it. */
		item_disarm(it);
		arm = true;
	}
	item_set(it, ev->events, ev->data.u64);
	if (arm && !it->armed) {
		r = item_arm(it);
		now = true;
	}
	if (!r && it->armed)
		*ring = consider(it, &v, now);
	return r;
}

/* ---- registrations that are removed and made again ----
 *
 * Programs that wait for one direction at a time remove a descriptor and add it again with each
 * message (redis' event loop, libevent's, asyncio's). So a removal leaves the registration in
 * the kernel: the item is *parked*. Adding it again takes it up: of a cut stream the kernel has
 * the same whatever the application waits for, of one on TCP it is changed, one call for two.
 * What the kernel has beyond what the application registered is nobody's to see: it goes before
 * a thread sleeps in the instance, before others can see the instance (fork, exec, nested) and
 * with the descriptor. Of a stream on TCP it would speak (e->aloud): there it goes before the
 * kernel is asked at all, and no other process may have the instance.
 */

/* One that is parked under that number, or with that data (which has to be one item's alone), is
 * removed for good. */
static void unpark_like(struct epoll *e, int fd, const struct epoll_event *ev)
{
	struct stream *s = NULL;
	struct epitem *it;
	bool many;

	while (atomic_load_explicit(&e->parked, memory_order_relaxed)) {
		lock_take(&e->lock);
		it = item_by_fd(e, fd);
		if (ev && (!it || !it->parked))
			it = item_by_data(e, ev->data.u64, &many);
		if (it && it->parked)
			s = it->s;
		else
			it = NULL;
		lock_give(&e->lock);
		if (!it)
			return;
		ready_unpark_one(s, e, it);
	}
}

/* s->reg.lock and e->lock held, inside link_read. */
static bool park(struct epitem *it)
{
	if (it->events & EPOLLEXCLUSIVE || !item_may_park(it))
		return false;
	if (it->armed) {
		if (it->kern_events & EV_INOUT || !stream_view(it->s).cut)
			return false;
	} else if (candidate(it->s)) {
		return false;	/* about to be armed */
	}
	item_park(it);
	return true;
}

/* True: the item that was parked is the application's again, *ret_r says what its call gives. */
static bool take_up(struct epoll *e, int epfd, int fd, const struct epoll_event *ev, int *ret_r)
{
	struct stream *s = fdtab_stream(fd);
	struct epitem *it;
	uint64_t ring = 0;
	bool taken = false;

	if (!s || ev->events & EPOLLEXCLUSIVE)
		return false;
	link_read_enter();
	lock_take(&s->reg.lock);
	lock_take(&e->lock);
	it = item_by_fd(e, fd);
	if (it && it->parked && it->s == s && it->data == ev->data.u64 && !closed(e, epfd)) {
		item_unpark(it);
		*ret_r = mod_locked(it, epfd, fd, ev, &ring);
		taken = !*ret_r;
		if (!taken)
			item_park(it);
	}
	lock_give(&e->lock);
	lock_give(&s->reg.lock);
	link_read_leave();
	bell_ring(ring);
	return taken;
}

/* The item was entered while another thread closed the fd, and had perhaps looked already: see
 * forget() in stream_close.c, which takes the fd from the table first. By now the struct may be
 * another stream's, too. True: nobody else will take the item out, so it is out now, and as
 * after the close the kernel has no such registration. Both locks held. */
static bool missed(struct epitem *it, int epfd, uint32_t gen)
{
	bool same;

	atomic_thread_fence(memory_order_seq_cst);
	same = atomic_load(&it->s->gen) == gen;
	if (same && fdtab_stream(it->fd) == it->s)
		return false;
	/* the file lives on under another number, or the last close is still to come */
	if (same && !atomic_load(&it->s->dead)) {
		item_unindex_fd(it);
		return false;
	}
	sys(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, it->fd, NULL);
	item_remove(it);
	return true;
}

/* The stream that fd names, NULL if it is none, with its lock over items held: then it is of
 * this life of the struct. */
static struct stream *lock_items_of(int fd, uint32_t *ret_gen)
{
	struct stream *s;

	while ((s = fdtab_stream(fd))) {
		lock_take(&s->reg.lock);
		*ret_gen = atomic_load(&s->gen);
		if (fdtab_stream(fd) == s)
			return s;
		lock_give(&s->reg.lock);
	}
	return NULL;
}

static int ctl_add(struct epoll *e, int epfd, int fd, struct epoll_event *ev)
{
	struct stream *s = fdtab_stream(fd);
	struct epitem *it;
	uint64_t ring = 0;
	bool arm, gone = false, fallback = false;
	uint32_t gen = 0;
	int r;

	if (atomic_load_explicit(&e->parked, memory_order_relaxed)) {
		if (take_up(e, epfd, fd, ev, &r))
			return r;
		unpark_like(e, fd, ev);
	}
	it = item_alloc();
	if (!it) {	/* no memory to know it by: on TCP the kernel alone answers */
		if (s && !stream_tcp_only(s))
			stream_fall_back(s, REASON_NO_MEMORY);
		return (int)sys(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, fd, ev);
	}
	for (;;) {
		link_read_enter();
		s = fallback ? NULL : lock_items_of(fd, &gen);
		*it = (struct epitem){ .e = e, .s = s, .fd = fd, .events = ev->events,
				       .data = ev->data.u64 };
		lock_take(&e->lock);
		arm = s && candidate(s);
		r = closed(e, epfd) ? -EBADF : add_locked(it, epfd, arm, &ring);
		gone = !r && s && missed(it, epfd, gen);
		lock_give(&e->lock);
		if (s)
			lock_give(&s->reg.lock);
		link_read_leave();
		if (s && !r && !stream_tcp_only(s))
			stream_waits_seen(s, fd);
		if (!s || (r != -EXDEV && r != -EOPNOTSUPP && r != -ENOSPC))
			break;
		stream_fall_back(s, REASON_FOREIGN_WAIT);
		fallback = true;	/* on TCP, or as good as lost: the kernel alone answers */
	}
	if (r || gone)
		item_free(it);
	bell_ring(ring);
	return r;
}

/* True: it is parked, by another thread just now: from the beginning. */
static bool mod_once(struct epoll *e, int epfd, int fd, struct epoll_event *ev, int *ret_r)
{
	struct stream *s = NULL;
	uint64_t ring = 0;
	struct epitem *it;
	bool again;
	int r = 0;

	link_read_enter();
	lock_take(&e->lock);
	it = item_by_fd(e, fd);
	again = it && it->parked && !closed(e, epfd);
	if (again) {
		;
	} else if (closed(e, epfd)) {
		r = -EBADF;
	} else if (it && it->events & EPOLLEXCLUSIVE) {
		r = -EINVAL;	/* as the kernel says of what it has as exclusive */
	} else if (it) {
		bool tcp_only = it->s && stream_tcp_only(it->s) && !it->armed;

		r = mod_locked(it, epfd, fd, ev, &ring);
		if ((r == -EXDEV || r == -EOPNOTSUPP || r == -ENOSPC) && it->s && !tcp_only)
			s = it->s;
	} else {
		r = (int)sys(SYS_epoll_ctl, epfd, EPOLL_CTL_MOD, fd, ev);
	}
	lock_give(&e->lock);
	link_read_leave();
	bell_ring(ring);
	if (s) {
		/* Registered in a way that the fast path cannot serve. */
		stream_fall_back(s, REASON_FOREIGN_WAIT);
		lock_take(&e->lock);
		r = closed(e, epfd) ? -EBADF : (int)sys(SYS_epoll_ctl, epfd, EPOLL_CTL_MOD, fd, ev);
		it = item_by_fd(e, fd);
		if (!r && it)
			it->kern_events = ev->events;
		lock_give(&e->lock);
	}
	*ret_r = r;
	return again;
}

static int ctl_mod(struct epoll *e, int epfd, int fd, struct epoll_event *ev)
{
	int r;

	do {
		unpark_like(e, fd, ev);
	} while (mod_once(e, epfd, fd, ev, &r));
	return r;
}

/* As mod_once(). */
static bool del_once(struct epoll *e, int epfd, int fd, int *ret_r)
{
	struct stream *s = fdtab_stream(fd);
	struct epitem *it, *out = NULL;
	bool parks = false, again, gone;
	int r = 0;

	link_read_enter();
	for (;;) {	/* the item is looked up under the locks: in whatever life its stream is,
			 * the item is the one of this number */
		struct stream *its;

		if (s)
			lock_take(&s->reg.lock);
		lock_take(&e->lock);
		gone = closed(e, epfd);
		it = gone ? NULL : item_by_fd(e, fd);
		its = it ? it->s : NULL;
		if (!its || its == s)
			break;
		lock_give(&e->lock);
		if (s)
			lock_give(&s->reg.lock);
		s = its;
	}
	again = it && it->parked;
	if (!again) {
		parks = it && it->s && fdtab_stream(fd) == s && park(it);
		r = gone    ? -EBADF
		    : parks ? 0
			    : (int)sys(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, fd, NULL);
	}
	if (!again && !parks && it && (!r || r == -ENOENT || r == -EBADF)) {
		out = it;
		item_remove(out);
	}
	lock_give(&e->lock);
	if (s)
		lock_give(&s->reg.lock);
	link_read_leave();
	if (out)
		item_free(out);
	*ret_r = r;
	return again;
}

static int ctl_del(struct epoll *e, int epfd, int fd)
{
	int r;

	do {
		unpark_like(e, fd, NULL);
	} while (del_once(e, epfd, fd, &r));
	return r;
}

/* What may stand beside EPOLLEXCLUSIVE (EPOLLEXCLUSIVE_OK_BITS in the kernel's fs/eventpoll.c). */
#define EXCLUSIVE_MAY (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | \
	EPOLLEXCLUSIVE)

int ready_epoll_ctl(struct epoll *e, int epfd, int op, int fd, struct epoll_event *ev)
{
	struct epoll *inner;
	int r;

	if (op == EPOLL_CTL_DEL)
		return ctl_del(e, epfd, fd);
	if (!ev || (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD))
		return (int)sys(SYS_epoll_ctl, epfd, op, fd, ev);
	if (ev->events & EPOLLEXCLUSIVE && (op == EPOLL_CTL_MOD || ev->events & ~EXCLUSIVE_MAY))
		return (int)sys(SYS_epoll_ctl, epfd, op, fd, ev);	/* the kernel refuses it */
	r = op == EPOLL_CTL_MOD ? ctl_mod(e, epfd, fd, ev) : ctl_add(e, epfd, fd, ev);
	inner = r ? NULL : fdtab_epoll(fd);
	if (inner) {	/* what the kernel did not know of yet it tells now, as of any descriptor */
		bool more = op == EPOLL_CTL_ADD && atomic_load(&inner->watched);

		ready_watch(inner, more || !(ev->events & EPOLLET));
	}
	return r;
}
