/*
 * link.c - see link.h.
 *
 * `readers` counts threads that walk the links (draining dirty bits, arming). Such a walk is short
 * and never sleeps. link_reap() unmaps a segment only when it has seen no reader after the link was
 * marked dead.
 */
#include "link/link_int.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/fdtab.h"
#include "base/loop.h"
#include "base/procfs.h"
#include "base/procs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "base/trace.h"
#include "gpu/gpu.h"
#include "link/path.h"
#include "link/peer_memory.h"
#include "link/rights.h"
#include "policy/log.h"

struct link links[LINK_MAX];
_Atomic uint32_t links_top;

static _Atomic uint32_t readers;
/* Bells that sleep now: a link that comes up while they sleep must know. */
static _Atomic uint64_t armed_now;

/* Critical: a handler that jumps out would leave the count raised for ever. */
void link_read_enter(void)
{
	critical_enter();
	atomic_fetch_add(&readers, 1);
}

void link_read_leave(void)
{
	atomic_fetch_sub(&readers, 1);
	critical_leave();
}

static void links_set_armed(uint64_t mask)
{
	uint32_t n;

	atomic_fetch_or(&armed_now, mask);
	link_read_enter();
	n = atomic_load(&links_top);
	for (uint32_t i = 0; i < n; i++) {
		/* not before armed_now is: link_up() has it the other way round */
		if (atomic_load(&links[i].state) != LINK_UP)
			continue;
		atomic_fetch_or(&links[i].segment.side[links[i].segment.me].armed, mask);
		/* The background thread arms it for itself, when it has a stream there that it
		 * waits for. */
		if (!links[i].wire || (loop_bell() && mask == 1ull << loop_bell()->idx))
			continue;
		links[i].wire->arm(&links[i], atomic_load(&links[i].direct) & mask);
	}
	link_read_leave();
}

static void links_clear_armed(uint64_t mask)
{
	uint32_t n;

	atomic_fetch_and(&armed_now, ~mask);
	link_read_enter();
	n = atomic_load(&links_top);
	for (uint32_t i = 0; i < n; i++) {
		if (link_is_up(&links[i])) {
			_Atomic uint64_t *a = &links[i].segment.side[links[i].segment.me].armed;

			if (atomic_load_explicit(a, memory_order_relaxed) & mask)
				atomic_fetch_and(a, ~mask);
			if (atomic_load_explicit(&links[i].direct, memory_order_relaxed) & mask)
				atomic_fetch_and(&links[i].direct, ~mask);
		}
	}
	link_read_leave();
}

/* What is set there, each bit a word of dirty ones, gets attention. */
static bool drain_words(struct link *l, struct segment_side *me)
{
	uint64_t sum = atomic_exchange(&me->summary, 0), bits;
	bool any = false;

	while (sum) {
		unsigned w = (unsigned)__builtin_ctzll(sum);

		sum &= sum - 1;
		if (w * 64 >= l->segment.slots)
			continue;	/* a peer's invention */
		bits = atomic_exchange(&me->dirty[w], 0);
		/* who found a bit still set says no more: what he published is seen now */
		arch_fence_taken();
		while (bits) {
			unsigned slot = w * 64 + (unsigned)__builtin_ctzll(bits);
			struct stream *s;

			bits &= bits - 1;
			s = slot < l->segment.slots ? atomic_load(&l->streams[slot]) : NULL;
			if (s) {
				link_user->attention(s);
				any = true;
			}
		}
	}
	return any;
}

static bool drain_one(struct link *l, struct lock *taking)
{
	struct segment_side *me = &l->segment.side[l->segment.me];
	bool any;

	if (l->wire)
		l->wire->poll(l);
	if (!atomic_load_explicit(&me->summary, memory_order_relaxed))
		return false;
	if (taking)
		lock_take(taking);
	any = drain_words(l, me);
	if (taking)
		lock_give(taking);
	return any;
}

bool links_drain(struct lock *taking)
{
	uint32_t n = atomic_load_explicit(&links_top, memory_order_acquire);
	bool any = false;

	for (uint32_t i = 0; i < n; i++)
		if (link_is_up(&links[i]))
			any |= drain_one(&links[i], taking);
	return any;
}

void link_ring_peer(struct link *l, uint64_t mask)
{
	link_read_enter();	/* the fds stay ours: link_reap() closes them when nobody is in
				 * here */
	while (mask) {
		int b = __builtin_ctzll(mask), fd;

		mask &= mask - 1;
		if (b >= BELL_MAX)
			continue;
		/* Not known yet: its BELL record is on the way, and is answered by a ring. */
		fd = atomic_load(&l->peer_bell[b]);
		if (fd >= 0 && fdtab_internal(fd)) {
			bell_ring_fd(fd);
			stat_add(STAT_bells_rung, 1);
			TRACE2(bell, l->index, b);
		}
	}
	link_read_leave();
}

static void link_publish_bell(struct bell *b)
{
	uint32_t n;

	link_read_enter();
	n = atomic_load(&links_top);
	for (uint32_t i = 0; i < n; i++)
		if (link_is_up(&links[i]) && atomic_load(&links[i].proven))
			link_send_bell(&links[i], b->idx);
	link_read_leave();
}

const struct link_user *link_user;

void link_serve(const struct link_user *u) { link_user = u; }

const struct bell_events link_bell_events = { link_publish_bell, links_set_armed,
					      links_clear_armed };

/* ---- life, background thread only ---- */

/* vm.overcommit_memory is 2, for all that can be told. */
static bool strict_overcommit(void)
{
	static const char file[] = "/proc/sys/vm/overcommit_memory";
	int fd = -1;
	char mode = 0;

	if (proc_is_ours())
		fd = fd_moment_sys(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	sys(SYS_read, fd, &mode, 1);
	fd_internal_close(fd);
	return mode != '0' && mode != '1';
}

struct link *link_new(const struct path *path, int ctl, uid_t uid, pid_t pid)
{
	struct link *l = NULL;
	bool direct;

	for (uint32_t i = 0; i < LINK_MAX && !l && link_user_has_room(uid); i++)
		if (atomic_load(&links[i].state) == LINK_FREE)
			l = &links[i];
	if (!l)
		return NULL;
	l->ctl = ctl;
	l->index = (uint32_t)(l - links);
	l->peer_uid = uid;
	l->peer_pid = pid;
	l->peer_start = process_start(pid);
	l->segment = (struct segment){ 0 };
	l->streams = NULL;
	l->slot_used = NULL;
	l->nstreams = 0;
	atomic_store(&l->proven, false);
	l->next_slot = 0;
	l->peer_bells = 0;
	l->out_head = l->out_tail = 0;
	l->bells_untold = false;
	atomic_store(&l->distrusted, false);
	l->path = path;
	l->wire = NULL;
	l->host = (struct sockaddr_storage){ 0 };
	l->rc = NULL;
	l->cm = NULL;
	l->stat = NULL;
	atomic_store(&l->direct, 0);
	atomic_store(&l->reading, 0);
	atomic_store(&l->bg_waits, false);
	atomic_store(&l->path_dead, false);
	atomic_store(&l->no_device, false);
	l->path_told = false;
	l->why = 0;
	l->hung_up = false;
	l->caller = 0;
	l->life = 0;
	l->across = l->greeted = false;
	l->diag = l->pidfd = -1;
	l->process = 0;
	l->in_len = l->out_sent = 0;
	/* Whom the kernel keeps from looking into us need not know our addresses either. */
	l->looked_ns = 0;
	direct = pid > 0 && peer_memory_pin(l);
	atomic_store(&l->no_direct, !direct || sys(SYS_prctl, PR_GET_DUMPABLE) != 1);
	atomic_store(&l->no_read, !direct);
	atomic_store(&l->withdrawn, 0);
	l->since_us = now_us();
	if (!path->far)
		rights_ready();
	l->left_us = 0;
	atomic_store(&l->out_waiting, false);
	for (int b = 0; b < BELL_MAX; b++)
		atomic_store(&l->peer_bell[b], -1);
	atomic_store(&l->state, LINK_HELLO);
	if (atomic_load(&links_top) <= l->index)
		atomic_store(&links_top, l->index + 1);
	return l;
}

struct link *link_new_with(const struct path *path, int ctl, const struct segment *a, uid_t uid,
			    pid_t pid)
{
	struct link *l = link_new(path, ctl, uid, pid);

	if (l && link_has_segment(l, a)) {
		peer_memory_unpin(l);
		atomic_store(&l->state, LINK_FREE);	/* nobody has looked at it yet */
		return NULL;
	}
	return l;
}

int link_has_segment(struct link *l, const struct segment *a)
{
	void *p = mmap(NULL, a->slots * sizeof(void *), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *q = mmap(NULL, a->slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || q == MAP_FAILED) {
		if (p != MAP_FAILED)
			munmap(p, a->slots * sizeof(void *));
		if (q != MAP_FAILED)
			munmap(q, a->slots);
		return -ENOMEM;
	}
	l->streams = p;
	l->slot_used = q;
	l->segment = *a;
	l->segment.preallocated = strict_overcommit();
	l->segment.kept = !rights_socket_from(l->peer_uid);
	return 0;
}

/*
 * Whoever has a bell of ours can silence it. One of our own user, or root, could stop us anyway;
 * another user's process harms whoever else is linked to us, unless that is its own user too.
 */
static void mixed_now(void)
{
	uid_t me = (uid_t)sys(SYS_geteuid), other = 0;
	uint32_t n = atomic_load(&links_top), count = 0, foreign = 0;
	bool differ = false, was = atomic_load(&bells_mixed);

	for (uint32_t i = 0; i < n; i++) {
		if (!link_is_up(&links[i]) || links[i].path->far || !atomic_load(&links[i].proven))
			continue;
		differ |= count++ && links[i].peer_uid != other;
		other = links[i].peer_uid;
		foreign += other && other != me;
	}
	atomic_store(&bells_mixed, foreign && differ);
	if (foreign && differ && !was)
		bell_ring(UINT64_MAX);	/* who sleeps for ever sleeps in slices from now on */
}

void link_up(struct link *l)
{
	atomic_store(&l->state, LINK_UP);
	atomic_fetch_or(&l->segment.side[l->segment.me].armed, atomic_load(&armed_now));
	stat_add(STAT_links, 1);
	stat_add(STAT_net_links, l->path->far);
	atomic_store(&gpu_linked, 1);
}

void link_proven(struct link *l)
{
	if (atomic_exchange(&l->proven, true))
		return;
	mixed_now();
	for (uint64_t m = bell_made_mask(); m; m &= m - 1)
		link_send_bell(l, __builtin_ctzll(m));
}

bool link_has_room(const struct link *l)
{
	uint32_t half = l->segment.slots / 2;

	return memchr(l->slot_used + (l->segment.me ? half : 0), 0, half) != NULL;
}

/* Of a limited address space, what segments may take together; the rest is the program's. How
 * large one is is up to the end that makes it, so the other takes more. */
#define SPACE_SHARE       16
#define SPACE_SHARE_TAKEN 2

bool link_fits(const struct segment *a)
{
	uint64_t sum = a->total;
	struct rlimit lim;

	if (getrlimit(RLIMIT_AS, &lim) || lim.rlim_cur == RLIM_INFINITY)
		return true;
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) != LINK_FREE)
			sum += links[i].segment.total;
	return sum <= lim.rlim_cur / (a->me ? SPACE_SHARE_TAKEN : SPACE_SHARE);
}

static int create(struct segment *a, uint32_t slots, uint64_t ring, uint64_t large, int *ret_fd)
{
	int r = segment_create(a, slots, ring, large, ret_fd);

	if (r || link_fits(a))
		return r;
	segment_unmap(a);
	sys(SYS_close, *ret_fd);
	return -ENOMEM;
}

static uint32_t slots_for(pid_t peer, uint32_t most)
{
	uint32_t slots = LINK_FIRST_SLOTS;

	for (uint32_t i = 0; i < atomic_load(&links_top) && slots < most; i++)
		if (link_is_up(&links[i]) && !links[i].path->far && links[i].peer_pid == peer)
			slots *= 2;
	return slots < most ? slots : most;
}

int link_segment(struct segment *a, pid_t peer, int *ret_fd)
{
	const struct policy_tunables *t = shim_tunables();
	uint64_t large = t->ring_max > t->ring_size ? t->ring_max : 0;
	uint32_t slots = slots_for(peer, (uint32_t)t->link_streams);
	int r;

	fd_number_lock();
	r = create(a, slots, t->ring_size, large, ret_fd);
	/* Large rings are most of the address space, and can be done without; then so many
	 * connections at a time. */
	if (r && large)
		r = create(a, slots, t->ring_size, 0, ret_fd);
	while (r == -ENOMEM && slots >= 32)
		r = create(a, slots /= 2, t->ring_size, 0, ret_fd);
	if (!r) {
		*ret_fd = fd_moment(*ret_fd);
		if (*ret_fd < 0) {
			r = *ret_fd;
			segment_unmap(a);
		}
	}
	fd_number_unlock();
	return r;
}

int link_slot_alloc(struct link *l)
{
	uint32_t half = l->segment.slots / 2, slot;
	/* on one host the first, whose pages are there and in the caches */
	uint32_t from = l->path->far ? l->next_slot : 0;
	uint8_t *base = l->slot_used + (l->segment.me ? half : 0), *free;
	bool again;

	free = memchr(base + from, 0, half - from);
	if (!free)
		free = memchr(base, 0, from);
	if (!free)
		return -ENOSPC;
	*free = 1;
	l->next_slot = (uint32_t)(free - base + 1) % half;
	slot = (uint32_t)(free - l->slot_used);
	again = segment_slot_was_used(&l->segment, slot);
	if (segment_slot_reset(&l->segment, slot)) {
		*free = 0;
		return -ENOMEM;
	}
	stat_add(STAT_rings_reused, again);
	return (int)slot;
}

/* Side 0 takes the lower half. */
bool link_slot_ours(const struct link *l, uint32_t slot)
{
	return l->segment.me ? slot >= l->segment.slots / 2 : slot < l->segment.slots / 2;
}

bool link_ended(struct link *l)
{
	struct pollfd p = { .events = POLLRDHUP };
	struct timespec zero = { 0, 0 };
	bool ended = true;

	lock_take(&l->out_lock);	/* the control socket stays open */
	if (link_is_up(l)) {
		p.fd = l->ctl;
		ended = sys(SYS_ppoll, &p, 1, &zero, NULL, 8) > 0 &&
			p.revents & (POLLRDHUP | POLLHUP | POLLERR);
	}
	lock_give(&l->out_lock);
	return ended;
}

bool link_peer_ending(const struct link *l)
{
	return l->peer_pid > 0 || l->pidfd < 0 ? process_ending(l->peer_pid, l->peer_start)
					       : process_ending_of(l->pidfd);
}

void link_streams(struct link *l, int more)
{
	l->nstreams += (uint32_t)more;
	if (l->stat)
		atomic_store_explicit(&l->stat->streams, l->nstreams, memory_order_relaxed);
}

void link_kill(struct link *l, int reason)
{
	int ctl;

	if (!link_is_up(l) && atomic_load(&l->state) != LINK_HELLO)
		return;
	lock_take(&l->out_lock);
	atomic_store(&l->state, LINK_DEAD);
	lock_give(&l->out_lock);
	l->why = (uint8_t)reason;
	mixed_now();
	log_line(2, "link %u (pid %d) ended: %s", l->index, l->peer_pid,
		 reason_name((unsigned)reason));
	if (reason == REASON_PROTOCOL)
		stat_add(STAT_bad_peer, 1);
	stat_add(STAT_links_lost, 1);
	ctl = l->ctl;
	l->ctl = -1;		/* first: a forked child closes what it finds here */
	loop_unwatch_fd(ctl);	/* it may be some time until it is closed */
	if (l->path->far)
		rights_done(ctl);
	else
		rights_end(ctl);
	if (l->stat)
		atomic_store_explicit(&l->stat->phase, STAT_LINK_LOST, memory_order_relaxed);
	if (l->wire)
		l->wire->ended(l);
	for (uint32_t i = 0; i < l->segment.slots; i++) {
		struct stream *s = atomic_load(&l->streams[i]);

		if (s)
			link_user->lost(s, reason);
	}
}

static void leave_namespace(struct link *l)
{
	if (l->diag >= 0)
		fd_internal_close(l->diag);
	if (l->pidfd >= 0)
		fd_internal_close(l->pidfd);
	l->diag = l->pidfd = -1;
}

bool link_reap(void)
{
	uint32_t n = atomic_load(&links_top);
	bool again = false;

	for (uint32_t i = 0; i < n; i++) {
		struct link *l = &links[i];
		bool early = l->wire && l->wire->may_release(l);

		if (!early && (atomic_load(&l->state) != LINK_DEAD || l->nstreams))
			continue;
		if (atomic_load(&readers)) {	/* they leave without a word */
			again = true;
			continue;
		}
		if (early) {
			l->wire->release(l);
			continue;
		}
		for (int b = 0; b < BELL_MAX; b++) {
			int fd = atomic_exchange(&l->peer_bell[b], -1);

			if (fd >= 0)
				fd_internal_close(fd);
		}
		if (l->streams) {
			munmap(l->streams, l->segment.slots * sizeof(void *));
			munmap(l->slot_used, l->segment.slots);
		}
		if (l->outq)
			munmap(l->outq, link_outq_size(l) * sizeof *l->outq);
		l->outq = NULL;
		if (l->wire)
			l->wire->close(l);
		l->wire = NULL;
		segment_unmap(&l->segment);
		peer_memory_unpin(l);
		leave_namespace(l);
		atomic_store(&l->state, LINK_FREE);
	}
	return again;
}

/* The links are the parent's: the child only releases them. */
void links_after_fork(void)
{
	uint32_t n = atomic_load(&links_top);

	rights_after_fork();
	for (uint32_t i = 0; i < n; i++) {
		struct link *l = &links[i];

		if (atomic_load(&l->state) == LINK_FREE)
			continue;
		if (l->ctl >= 0)
			fd_internal_close(l->ctl);
		peer_memory_unpin(l);
		leave_namespace(l);
		for (int b = 0; b < BELL_MAX; b++)
			if (atomic_load(&l->peer_bell[b]) >= 0)
				fd_internal_close(atomic_load(&l->peer_bell[b]));
		if (l->segment.base && !l->segment.apart)
			munmap(l->segment.base, l->segment.total);
		memset(l, 0, sizeof *l);
	}
	atomic_store(&links_top, 0);
	atomic_store(&readers, 0);
	atomic_store(&armed_now, 0);
	atomic_store(&bells_mixed, false);
}
