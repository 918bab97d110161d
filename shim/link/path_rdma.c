/*
 * path_rdma.c - the path over a queue pair between two hosts: what the calls and the background
 * thread ask of it (path.h), and what happens when the queue pair dies. link_net.c makes it.
 *
 * Locks: none of its own; rc.h has those of a queue pair.
 */
#include <string.h>

#include "base/loop.h"
#include "base/shim.h"
#include "base/trace.h"
#include "gpu/gpu.h"
#include "link/link.h"
#include "link/path.h"
#include "policy/log.h"
#include "rdma/verbs/cm.h"

/* ---- slots ---- */

static int slot_bind(struct link *l, uint32_t slot, uint16_t life, uint64_t *ret_addr,
		     uint32_t *ret_key)
{
	return rc_slot_bind(l->rc, slot, life, ret_addr, ret_key);
}

static void slot_peer(struct link *l, uint32_t slot, uint64_t addr, uint32_t key)
{
	rc_slot_peer(l->rc, slot, addr, key);
}

static void slot_unbind(struct link *l, uint32_t slot) { rc_slot_unbind(l->rc, slot); }

static void slot_left(struct link *l, uint32_t slot)
{
	rc_slot_left(l->rc, slot);
	gpu_landing_give(link_id(l), slot);
}

/* ---- bytes ---- */

static void publish(struct link *l, uint32_t slot) { rc_publish(l->rc, slot); }
static void credit(struct link *l, uint32_t slot) { rc_credit(l->rc, slot); }
static bool poll_it(struct link *l) { return rc_poll(l->rc); }

/* ---- sleep ---- */

static void arm(struct link *l, bool own) { (own ? rc_arm_own : rc_arm)(l->rc); }
static int channel(const struct link *l) { return rc_dead(l->rc) ? -1 : rc_fd(l->rc); }
static void unwatched(struct link *l) { rc_unwatched(l->rc); }

/* Bells that sleep, and that nobody but the background thread would ring. The last itself is
 * mostly among those that sleep. */
static uint64_t others(const struct link *l, uint64_t armed)
{
	armed &= ~atomic_load(&l->direct);
	return atomic_load(&l->bg_waits) ? armed : armed & ~(1ull << loop_bell()->idx);
}

/* The completion channel was readable. */
static void woken(struct link *l)
{
	uint64_t armed;

	rc_event(l->rc);
	rc_poll(l->rc);
	/* Whoever went to sleep, or left something to be posted, meanwhile found it armed. */
	armed = atomic_load(&l->segment.side[l->segment.me].armed);
	if (others(l, armed) || rc_waits(l->rc))
		rc_arm(l->rc);
	else if (armed & atomic_load(&l->direct))
		rc_arm_own(l->rc);
	else
		return;
	rc_poll(l->rc);
}

/* ---- room ---- */

static uint64_t least(const struct link *l, uint64_t size)
{
	return 2 * rc_credit_step(size, l->segment.ring_size);
}

static int64_t large_land(struct link *l, uint32_t slot, const uint8_t **ret_ring,
			  uint64_t *ret_addr, uint32_t *ret_key)
{
	return rc_large_land(l->rc, slot, ret_ring, ret_addr, ret_key);
}

static int64_t large_peer(struct link *l, uint32_t slot, uint64_t size, uint64_t addr,
			  uint32_t key, uint8_t **ret_ring)
{
	return rc_large_peer(l->rc, slot, size, addr, key, ret_ring);
}

static bool large_left(const struct link *l) { return rc_large_left(l->rc); }

static bool enlarge(struct link *l, uint32_t slot, uint64_t size)
{
	return rc_enlarge(l->rc, slot, size);
}

/* ---- device memory ---- */

static int device_reg(struct link *l, uint64_t addr, uint64_t size, int dmabuf, bool landing,
		      uint32_t *ret_key)
{
	return rc_device_reg(l->rc, addr, size, dmabuf, landing, ret_key);
}

static bool device_known(struct link *l, uint64_t addr, uint64_t size, uint32_t *ret_key)
{
	return rc_device_known(l->rc, addr, size, ret_key);
}

static void device_land(struct link *l, uint32_t slot, uint64_t size)
{
	rc_device_land(l->rc, slot, size);
}

static int device_peer(struct link *l, uint32_t slot, uint64_t size, uint64_t addr, uint32_t key)
{
	return rc_device_peer(l->rc, slot, size, addr, key);
}

static uint64_t device_size(const struct link *l, uint32_t slot)
{
	return rc_device_size(l->rc, slot);
}

static bool device_publish(struct link *l, uint32_t slot, uint64_t addr, uint32_t key, uint64_t n,
			   uint64_t *ret_seq)
{
	return rc_device_publish(l->rc, slot, addr, key, n, ret_seq);
}

static bool device_done(struct link *l, uint64_t seq) { return rc_device_done(l->rc, seq); }
static const char *device_name(const struct link *l) { return rc_device(l->rc); }

static const struct path_device device = {
	.reg = device_reg, .known = device_known, .land = device_land, .peer = device_peer,
	.size = device_size, .publish = device_publish, .done = device_done, .name = device_name,
};

/* ---- blocks that are read ---- */

static bool pull_can(const struct link *l) { return l->pulls && rc_pull_can(l->rc); }

#define AS_MEASURED 1		/* rdma_pull */
static uint64_t pull_least(const struct link *l)
{
	uint64_t n = shim_tunables()->rdma_pull;

	return !n ? UINT64_MAX : n == AS_MEASURED ? l->pull_least : n;
}

static int pull_reg(struct link *l, uint64_t addr, uint64_t n, bool landing, struct pull_mem *ret)
{
	return rc_pull_reg(l->rc, addr, n, landing, ret);
}

static void pull_dereg(struct link *l, struct pull_mem *m) { rc_pull_dereg(l->rc, m); }

static bool pull_offer(struct link *l, uint32_t slot, struct pull_offer *o)
{
	return rc_pull_offer(l->rc, slot, o);
}

static void pull_withdraw(struct link *l, uint32_t slot) { rc_pull_withdraw(l->rc, slot); }

static void pull_settled(struct link *l, uint32_t slot, uint64_t wr)
{
	rc_pull_settled(l->rc, slot, wr);
}

static uint32_t pull_heard(const struct link *l, uint32_t slot)
{
	return rc_pull_heard(l->rc, slot);
}

static bool pull_begin(struct link *l, uint32_t slot, uint32_t epoch, uint64_t rd,
		       struct pull_offer *ret)
{
	return rc_pull_begin(l->rc, slot, epoch, rd, ret);
}

static void pull_end(struct link *l, uint32_t slot, uint32_t serial, uint64_t n, bool stop)
{
	rc_pull_end(l->rc, slot, serial, n, stop);
}

static void pull_frozen(struct link *l, uint32_t slot, uint32_t epoch)
{
	rc_pull_frozen(l->rc, slot, epoch);
}

static void pull_alive(struct link *l, uint32_t slot) { rc_pull_alive(l->rc, slot); }

static int pull_read(struct link *l, uint32_t slot, const struct pull_piece *x, uint64_t *ret_seq)
{
	return rc_pull_read(l->rc, slot, x, ret_seq);
}

static int pull_done(const struct link *l, uint64_t seq) { return rc_pull_done(l->rc, seq); }

static const struct path_pull pull = {
	.can = pull_can, .least = pull_least, .reg = pull_reg, .dereg = pull_dereg,
	.offer = pull_offer,
	.withdraw = pull_withdraw, .settled = pull_settled, .heard = pull_heard,
	.begin = pull_begin, .end = pull_end, .frozen = pull_frozen, .alive = pull_alive,
	.read = pull_read, .done = pull_done,
};

/* ---- its end ---- */

static void log_counts(const struct link *l)
{
	struct rc_counts c;

	rc_counts(l->rc, &c);
	log_line(2, "link %u: %lu work requests, %lu records, %lu polls, %lu completions, %lu "
		 "armings, %lu events",
		 l->index, c.wrs, c.records, c.polls, c.completions, c.arms, c.events);
}

static void dead(struct link *l)
{
	struct ctl_msg m = { .type = CTL_DEAD, .version = CTL_VERSION };

	if (l->path_told || atomic_load(&l->state) != LINK_UP)
		return;
	l->path_told = true;
	atomic_store_explicit(&l->stat->phase, STAT_LINK_LOST, memory_order_relaxed);
	log_line(2, "link %u: the RDMA path is dead, %u streams go back to TCP", l->index,
		 l->nstreams);
	stat_add(STAT_paths_lost, 1);
	TRACE2(recovery, l->index, l->nstreams);
	rc_kill(l->rc);
	link_send(l, &m);
	for (uint32_t i = 0; i < l->segment.slots; i++) {
		struct stream *s = atomic_load(&l->streams[i]);

		if (s)
			link_user->path_dead(s);
	}
}

/* How long a queue pair may complete nothing. A path that is slow, and not dead, comes back: who
 * gives up one such after the other has twice the patience each time. */
#define RTTS       20
#define STALL_MOST 10000000u
#define CALM_US    60000000u
#define IWARP_US   1000000u	/* a completion waits for the device's own TCP */

static unsigned stalls;			/* in a row */
static uint64_t stalled_us;		/* when the last was */

static uint64_t patience(const struct link *l, uint64_t now)
{
	uint64_t least = shim_tunables()->rdma_stall, us = least;
	uint64_t rtts = RTTS * (uint64_t)atomic_load(&l->stat->rtt) / 1000;

	if (l->stat->kind == STAT_LINK_IWARP && us < IWARP_US)
		us = IWARP_US;
	if (stalls && now - stalled_us > CALM_US)
		stalls = 0;
	us = (us > rtts ? us : rtts) << stalls;
	us = us < STALL_MOST ? us : STALL_MOST;
	return us > least ? us : least;
}

static void stuck(struct link *l, uint64_t us, uint64_t now)
{
	log_line(1, "link %u: %s has completed nothing for %lu ms and reports no error", l->index,
		 rc_device(l->rc), (unsigned long)(us / 1000));
	stalls += stalls < 16;
	stalled_us = now;
	dead(l);
}

/* One that is stuck is given up (rdma_stall). */
static uint64_t look(struct link *l)
{
	uint64_t now = now_us(), us, each;
	enum rc_looks r;

	if (atomic_load(&l->state) != LINK_UP || l->path_told || !shim_tunables()->rdma_stall ||
	    !rc_busy(l->rc)) {
		l->look_us = 0;
		return UINT64_MAX;
	}
	us = patience(l, now);
	each = us / RC_LOOKS;
	if (!l->look_us)
		l->look_us = now + each;
	if (now < l->look_us)
		return l->look_us;
	critical_enter();
	r = rc_look(l->rc);
	critical_leave();
	l->look_us = now + each;
	if (r == RC_BUSY)
		return l->look_us;
	if (r == RC_STUCK)
		stuck(l, us, now);
	l->look_us = 0;
	return UINT64_MAX;
}

static uint64_t work(struct link *l)
{
	uint64_t due = look(l);

	if (atomic_load(&l->state) != LINK_UP)
		return due;
	if (atomic_load(&l->path_dead) && !l->path_told)
		dead(l);
	/* No new stream comes to it; when the last has left, so may the link. Not before the
	 * peer has left each slot, too: what was said last may lie here still, or be thrown away
	 * by a close with something unread, and a peer that misses a BACK resets the connection. */
	if (l->path_told && !l->nstreams && !atomic_load(&l->out_waiting) &&
	    !memchr(l->slot_used, 1, l->segment.slots) &&
	    !memchr(l->slot_used, 3, l->segment.slots))
		link_kill(l, REASON_PATH_DEAD);
	return due;
}

static bool may_release(const struct link *l)
{
	return l->path_told && !l->nstreams && rc_fd(l->rc) >= 0 &&
	       atomic_load(&l->state) == LINK_UP;
}

static void release(struct link *l)
{
	log_line(2, "link %u: releases %s, waits for the peer", l->index, rc_device(l->rc));
	log_counts(l);
	loop_unwatch_fd(rc_fd(l->rc));
	cm_hangup(l->cm);
	rc_release(l->rc);
	gpu_landings_end(link_id(l));
	cm_close(l->cm);
}

static void end(struct link *l)
{
	if (rc_fd(l->rc) >= 0)
		log_counts(l);
	cm_hangup(l->cm);
	rc_close(l->rc);
	gpu_landings_end(link_id(l));
	cm_close(l->cm);
	stat_link_free(l->stat);
	l->stat = NULL;
	l->rc = NULL;
}

static void kill_it(struct link *l) { rc_kill(l->rc); }

static void ended(struct link *l)
{
	if (rc_fd(l->rc) >= 0)
		loop_unwatch_fd(rc_fd(l->rc));
	rc_kill(l->rc);
}

static const struct path_wire wire = {
	.bind = slot_bind, .peer = slot_peer, .unbind = slot_unbind, .left = slot_left,
	.publish = publish, .credit = credit, .poll = poll_it,
	.arm = arm, .channel = channel, .woken = woken, .unwatched = unwatched,
	.least = least, .large_land = large_land, .large_peer = large_peer,
	.large_left = large_left, .enlarge = enlarge,
	.work = work, .peer_says_dead = dead, .kill = kill_it, .ended = ended,
	.may_release = may_release, .release = release, .close = end, .log = log_counts,
	.event = link_net_events, .ever = verbs_loaded, .forked = link_net_after_fork,
};

const struct path path_rdma = {
	.kind = PATH_RDMA, .far = PATHS_FAR >> PATH_RDMA & 1, .registered = true,
	.wire = &wire, .device = &device, .pull = &pull,
	.available = link_net_available, .hello = link_net_hello, .welcome = link_net_welcome,
	.welcomed = link_net_welcomed,
};
