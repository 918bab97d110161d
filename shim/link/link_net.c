/*
 * link_net.c - a link between two hosts: its segment and queue pair, set up over a control
 * connection that discovery_net.c has proven. path_rdma.c has what goes over the link, and its end.
 *
 *   connector                                acceptor
 *   segment, HELLO(geometry) ----------------> segment of the same geometry, listens on an RDMA
 *                                              address of its own
 *   rdma_connect(token)    <---------------- WELCOME(address, port, token), or a reason
 *   LINK_UP                <==== RC ====>    LINK_UP
 *
 * From WELCOME to LINK_UP nobody reads the control connection: what comes there belongs to the
 * link.
 *
 * Background thread only, except path_died(), watch() and what link.h names. Locks: none of its
 * own.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/fdtab.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sock.h"
#include "base/sys.h"
#include "base/trace.h"
#include "gpu/gpu.h"
#include "link/link.h"
#include "link/other_version.h"
#include "link/path.h"
#include "policy/log.h"
#include "policy/words.h"
#include "rdma/verbs/cm.h"

static int channel_fd = -1;

static struct cm cms[LINK_MAX];		/* links[i]'s is cms[i] */

/* ---- callbacks of the transport: any thread, locks held ---- */

static void ring_own(void *arg, uint64_t mask)
{
	(void)arg;
	bell_ring(mask);
}

static void path_died(void *arg)
{
	struct link *l = arg;

	atomic_store(&l->path_dead, true);
	loop_kick();
}

static void busy(void *arg)
{
	(void)arg;
	loop_kick();
}

static void watch(void *arg)
{
	struct link *l = arg;

	loop_rewatch_fd(rc_fd(l->rc), EPOLLIN | EPOLLONESHOT, LOOP_CHANNEL, l->index);
}

/* ---- does this host have RDMA? ---- */

static enum reason reason_of(int err)
{
	switch (err) {
	case -ENOENT:
	case -ENOTSUP: return REASON_NO_VERBS;
	case -EOWNERDEAD: return REASON_RDMA_FORKED;
	case -EMFILE:
	case -ENFILE: return REASON_NO_FDS;
	default: return REASON_NO_DEVICE;
	}
}

enum { CONNECTIONS, DEVICES };		/* what is watched */

/* Each event once: it is not taken. librdmacm's devices are the program's as well, if it uses them,
 * and so is what they have to say. */
static void watch_device(int fd)
{
	loop_watch_fd(fd, EPOLLIN | EPOLLET, LOOP_PATH, path_watched(PATH_RDMA, DEVICES));
}

static int empty(void) { return fd_moment_sys(SYS_memfd_create, "closed", MFD_CLOEXEC); }

static int start(void)
{
	int fd;

	if (channel_fd >= 0)
		return 0;
	cm_watch = watch_device;
	cm_empty = empty;
	cm_empty_close = fd_internal_close;
	fd = cm_start();
	if (fd < 0)
		return fd;
	channel_fd = fd;
	return loop_watch_fd(fd, EPOLLIN, LOOP_PATH, path_watched(PATH_RDMA, CONNECTIONS));
}

static void address(struct sockaddr_storage *ret, const struct sockaddr *a)
{
	memset(ret, 0, sizeof *ret);
	memcpy(ret, a,
	       a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	sockaddr_no_port(ret);
}

/* How good an address of ours is for RDMA by the policy, 0 the best, -1: not at all. Of one
 * network's the family of `like` first. */
static int rank_of(const struct ifaddrs *i, const struct sockaddr *like)
{
	const struct sockaddr *a = i->ifa_addr;
	int rank;

	if (!a || !(i->ifa_flags & IFF_UP) || (a->sa_family != AF_INET && a->sa_family != AF_INET6))
		return -1;
	rank = policy_via(atomic_load(&shim_policy), a);
	return rank < 0 ? -1 : 2 * rank + (a->sa_family != like->sa_family);
}

/* The address of ours, and with it the device, that RDMA takes for connections of `local`. 0 or
 * -errno. */
static int own_address(const struct sockaddr *local, struct sockaddr_storage *ret)
{
	struct sockaddr_storage a;
	struct ifaddrs *all, *i;
	int best = -1, rank;

	if (!policy_has_via(atomic_load(&shim_policy))) {
		address(ret, local);
		return cm_probe((void *)ret);
	}
	if (getifaddrs(&all))
		return -ENOMEM;
	for (i = all; i; i = i->ifa_next) {
		rank = rank_of(i, local);
		if (rank < 0 || (best >= 0 && rank >= best))
			continue;
		address(&a, i->ifa_addr);
		if (cm_probe((void *)&a))
			continue;
		best = rank;
		*ret = a;
	}
	freeifaddrs(all);
	return best < 0 ? -ENODEV : 0;
}

int link_net_available(const struct sockaddr *local)
{
	struct sockaddr_storage a;
	int r = start();

	if (r)
		return reason_of(r);
	r = own_address(local, &a);
	if (r)
		log_line(3, "no RDMA device for the address: errno %d", -r);
	return r ? reason_of(r) : 0;
}

/* ---- what rdmastat shows ---- */

static void ends_of(struct stat_link *s, const struct cm_way *w)
{
	struct ctl_tuple t;

	if ((w->from.ss_family != AF_INET && w->from.ss_family != AF_INET6) ||
	    w->to.ss_family != w->from.ss_family)
		return;
	tuple_from(&t, (void *)&w->from, (void *)&w->to);
	s->family = (uint8_t)t.family;
	s->lport = t.lport;
	s->pport = t.pport;
	memcpy(s->laddr, t.laddr, sizeof s->laddr);
	memcpy(s->paddr, t.paddr, sizeof s->paddr);
}

/* Again at each step of its life. The place stays the same. */
static void show(struct link *l, enum stat_link_phase phase)
{
	struct stat_link *s = l->stat = stat_link_begin(l->index);
	struct cm_way w;

	cm_way(l->cm, &w);
	atomic_store_explicit(&s->phase, (uint8_t)phase, memory_order_relaxed);
	atomic_store_explicit(&s->streams, l->nstreams, memory_order_relaxed);
	ends_of(s, &w);
	if (w.port) {
		s->kind = w.iwarp      ? STAT_LINK_IWARP
			  : w.ethernet ? STAT_LINK_ROCE
				       : STAT_LINK_INFINIBAND;
		s->port = w.port;
		s->qpn = w.qpn;
		s->peer_qpn = w.peer_qpn;
		memcpy(s->lgid, &w.sgid, sizeof s->lgid);
		memcpy(s->pgid, &w.dgid, sizeof s->pgid);
		fmt_string(s->device, sizeof s->device, "%s", rc_device(l->rc));
	}
	s->mtu = phase == STAT_LINK_UP ? rc_mtu(l->rc) : 0;
	stat_link_publish(s);
}

/* ---- making one ---- */

/* A link of this geometry on the control connection `fd`, in LINK_HELLO. NULL: no memory. */
static struct link *make(int fd, const struct sockaddr_storage *host, uint32_t slots, uint64_t ring,
			 int me)
{
	const struct policy_tunables *t = shim_tunables();
	struct rc_conf conf = { .ring = ring_own, .died = path_died, .busy = busy, .watch = watch };
	uint64_t large = t->rdma_ring_max > ring ? t->rdma_ring_max : 0,
		 most = large ? t->rdma_ring_memory / large : 0;
	struct segment a;
	struct link *l;
	int memfd, r;

	fd_number_lock();
	r = segment_create(&a, slots, ring, 0, &memfd);
	if (!r)
		sys(SYS_close, memfd);
	fd_number_unlock();
	if (r)
		return NULL;
	a.me = (uint8_t)me;
	a.permanent = true;
	a.apart = verbs_forks_apart();
	l = link_new_with(&path_rdma, fd, &a, 0, 0);
	if (!l) {
		segment_unmap(&a);
		return NULL;
	}
	l->proven = true;
	l->host = *host;
	l->cm = &cms[l->index];
	*l->cm = (struct cm){ .opt = { (uint8_t)t->rdma_retries, (uint8_t)t->rdma_ack_timeout,
				       (uint8_t)t->rdma_tos, (uint16_t)t->rdma_mtu } };
	conf.arg = l;
	conf.rtt = &stat_link_begin(l->index)->rtt;
	conf.budget = t->rdma_memory;
	conf.large_size = most ? large : 0;
	conf.large_most = most < RC_LARGE_MOST ? (uint32_t)most : RC_LARGE_MOST;
	l->rc = rc_new(&l->segment, &conf);
	if (l->rc) {
		l->wire = path_rdma.wire;
		show(l, STAT_LINK_CONNECTING);
		return l;
	}
	l->ctl = -1;	/* stays the caller's */
	link_kill(l, REASON_NO_MEMORY);
	return NULL;
}

/* Does this end read blocks out of the peer's memory, and give its own to be read? Where a child
 * does not get pages that a device knows, the program's must not be known to any. */
static uint32_t abilities(void)
{
	return shim_tunables()->rdma_pull && !verbs_forks_apart() ? LINK_PULLS : 0;
}

/* The queue pair is connected. */
static void may_pull(struct link *l)
{
	rc_pull_reads(l->rc, l->pulls ? l->cm->reads : 0);
	l->pull_least = PULL_NEVER;
	if (!l->pulls || !rc_pull_can(l->rc) || shim_tunables()->rdma_pull != 1)
		return;
	l->pull_least = rc_pull_least(l->rc);
	if (l->pull_least < PULL_NEVER)
		log_line(2, "link %u: blocks of %lu KiB and more are worth being read by %s",
			 l->index, (unsigned long)(l->pull_least >> 10), rc_device(l->rc));
	else
		log_line(2, "link %u: no block is worth being read by %s", l->index,
			 rc_device(l->rc));
}

int link_net_hello(int fd, const struct sockaddr_storage *host, uint32_t *ret_index)
{
	const struct policy_tunables *t = shim_tunables();
	struct ctl_msg m = { .index = (uint32_t)t->rdma_streams, .off = t->rdma_ring,
			     .epoch = abilities() };
	struct link *l = make(fd, host, m.index, m.off, 0);

	if (!l)
		return -ENOMEM;
	version_hello(&m);
	*ret_index = l->index;
	if (loop_watch_fd(fd, EPOLLIN, LOOP_LINK, l->index) < 0 || !link_send(l, &m))
		link_kill(l, REASON_NO_DISCOVERY);
	return 0;
}

/* own_address() for the control connection's address. */
static int ctl_address(struct link *l, struct sockaddr_storage *ret)
{
	struct sockaddr_storage a = { 0 };
	uint32_t len = sizeof a;
	long r = start();

	if (r)
		return (int)r;
	r = sys(SYS_getsockname, l->ctl, &a, &len);
	if (r < 0)
		return (int)r;
	sockaddr_normal(&a);
	return own_address((void *)&a, ret);
}

static int listen_at(struct link *l, struct ctl_msg *m)
{
	struct sockaddr_storage a;
	uint8_t token[CM_TOKEN];
	int r = ctl_address(l, &a), port;

	if (r)
		return r;
	if (sys(SYS_getrandom, token, sizeof token, 0) != sizeof token)
		return -EIO;
	port = cm_listen(l->cm, l->rc, (void *)&a, token);
	if (port < 0)
		return port;
	tuple_from(&m->tuple, (void *)&a, (void *)&a);
	m->tuple.lport = (uint16_t)port;
	m->tuple.pport = l->cm->opt.mtu;
	memcpy(m->tuple.paddr, token, sizeof token);
	return 0;
}

int link_net_welcome(int fd, const struct sockaddr_storage *host, const struct ctl_msg *hello)
{
	struct ctl_msg m = { .type = CTL_WELCOME, .version = CTL_VERSION };
	struct link *l;
	int r;

	if (hello->off > 1 << 20)
		return -EPROTO;		/* segment_create() checks the rest */
	l = make(fd, host, hello->index, hello->off, 1);
	if (!l)
		return -ENOMEM;
	m.epoch = hello->epoch & abilities();
	l->pulls = m.epoch & LINK_PULLS;
	r = listen_at(l, &m);
	if (r) {
		log_line(3, "link %u: no RDMA here: %s", l->index, reason_name(reason_of(r)));
		m.index = reason_of(r) == REASON_NO_VERBS || reason_of(r) == REASON_NO_DEVICE
				  ? REASON_PEER_NO_DEVICE
				  : (uint32_t)reason_of(r);
	}
	link_send(l, &m);
	if (r)
		link_kill(l, (int)reason_of(r));
	return 0;
}

static void sockaddr_of(const struct ctl_tuple *t, struct sockaddr_storage *ret)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(t->lport) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(t->lport) };

	memset(ret, 0, sizeof *ret);
	memcpy(&a4.sin_addr, t->laddr, 4);
	memcpy(&a6.sin6_addr, t->laddr, 16);
	if (t->family == AF_INET6)
		memcpy(ret, &a6, sizeof a6);
	else
		memcpy(ret, &a4, sizeof a4);
}

void link_net_welcomed(struct link *l, const struct ctl_msg *m, int fd)
{
	struct sockaddr_storage to, from;
	bool bound;
	int r;

	(void)fd;	/* none comes by TCP */
	if (m->index) {
		link_kill(l, m->index < REASON_COUNT ? (int)m->index : REASON_PROTOCOL);
		return;
	}
	l->pulls = m->epoch & abilities() & LINK_PULLS;
	loop_unwatch_fd(l->ctl);
	if (m->tuple.pport && (!l->cm->opt.mtu || m->tuple.pport < l->cm->opt.mtu))
		l->cm->opt.mtu = m->tuple.pport;
	sockaddr_of(&m->tuple, &to);
	r = ctl_address(l, &from);
	/* Where the policy says nothing, or only of the other family, the way there decides. */
	bound = policy_has_via(atomic_load(&shim_policy)) && from.ss_family == to.ss_family;
	if (!r)
		r = cm_connect(l->cm, l->rc, bound ? (void *)&from : NULL, (void *)&to,
			       m->tuple.paddr);
	if (r) {
		log_line(2, "link %u: rdma_resolve_addr: errno %d", l->index, -r);
		link_kill(l, REASON_RDMA_CONNECT);
	}
}

/* ---- connection events ---- */

static void changed(struct cm *c)
{
	struct link *l = &links[c - cms];

	if (l->cm != c || atomic_load(&l->state) == LINK_DEAD)
		return;
	if (c->state == CM_UP && atomic_load(&l->state) == LINK_HELLO) {
		if (loop_watch_fd(l->ctl, EPOLLIN, LOOP_LINK, l->index) < 0 ||
		    loop_watch_fd(rc_fd(l->rc), EPOLLONESHOT, LOOP_CHANNEL, l->index) < 0) {
			link_kill(l, REASON_NO_FDS);
			link_user->settled(l, REASON_NO_FDS);
			return;
		}
		may_pull(l);
		link_up(l);
		show(l, STAT_LINK_UP);
		rc_arm(l->rc);	/* for those who sleep already */
		log_line(2, "link %u: RDMA path up over %s, packets of %u bytes, %u reads",
			 l->index, rc_device(l->rc), rc_mtu(l->rc), l->cm->reads);
		link_user->settled(l, REASON_NONE);
	} else if (c->state == CM_DOWN && atomic_load(&l->state) == LINK_HELLO) {
		enum reason why = c->error == -ENOMEM ? REASON_NO_MEMORY : REASON_RDMA_CONNECT;

		log_line(2, "link %u: queue pair not connected: errno %d", l->index, -c->error);
		link_kill(l, why);
		link_user->settled(l, why);
	} else if (c->state == CM_DOWN) {
		rc_kill(l->rc);
	} else if (atomic_load(&l->state) == LINK_HELLO) {
		show(l, STAT_LINK_CONNECTING);
	}
}

/* Something has happened to a device: a queue pair that it has ended is dead, and any other shows
 * whether it still works, for who has nothing under way would not hear of it. */
static void look_at_all(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++) {
		struct link *l = &links[i];

		if (l->rc && l->wire == path_rdma.wire && atomic_load(&l->state) == LINK_UP &&
		    !rc_dead(l->rc)) {
			critical_enter();
			rc_try(l->rc);
			critical_leave();
		}
	}
}

void link_net_events(uint32_t what)
{
	if (what == DEVICES)
		look_at_all();
	else
		cm_events(changed);
}

/* Device and queue pairs are the parent's. */
void link_net_after_fork(void)
{
	if (cm_after_fork())
		memset(cms, 0, sizeof cms);
	channel_fd = -1;
}
