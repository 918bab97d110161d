/*
 * stream_room.c - how much may be in flight: what TCP has taken and could take back, rings that fit
 * it, and larger rings for senders that fill theirs.
 *
 * Locks: snd.lock, unless a function says otherwise.
 */
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_send.h"
#include "link/link.h"
#include "policy/log.h"

/* struct tcp_info as the kernel has it now; glibc's stops earlier. Fields from linux/tcp.h. */
struct tcp_info_bytes {
	uint8_t state, head[7];
	uint32_t u32[24];
	uint64_t pacing[2];
	uint64_t bytes_acked, bytes_received;
};
_Static_assert(offsetof(struct tcp_info_bytes, bytes_acked) == 120,
	       "linux/tcp.h: tcpi_bytes_acked is at 120");

static int tcp_bytes(int fd, struct tcp_info_bytes *ti)
{
	uint32_t len = sizeof *ti;
	long r = sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, ti, &len);

	if (r < 0)
		return (int)r;
	return len >= sizeof *ti ? 0 : -ENOTSUP;
}

/* The byte at which TCP stands, in the states of that mask. */
static int64_t kernel_offset(int fd, bool sent, bool client, uint32_t states, int tries)
{
	struct tcp_info_bytes a, b;
	int q, r;

	for (int i = 0; i < tries; i++) {
		r = tcp_bytes(fd, &a);
		if (r)
			return r;
		if (a.state > TCP_CLOSING || !(states & 1u << a.state))
			return -ENOTCONN;
		r = (int)sys(SYS_ioctl, fd, sent ? SIOCOUTQ : SIOCINQ, &q);
		if (r < 0)
			return r;
		r = tcp_bytes(fd, &b);
		if (r)
			return r;
		if (sent && a.bytes_acked == b.bytes_acked)
			return (int64_t)a.bytes_acked - (client ? 1 : 0) + q;
		if (!sent && a.bytes_received == b.bytes_received)
			return (int64_t)a.bytes_received - q;
	}
	return -EAGAIN;
}

int64_t stream_kernel_offset(int fd, bool sent, bool client)
{
	return kernel_offset(fd, sent, client, 1u << TCP_ESTABLISHED, 20);
}

/* Nobody writes to TCP while bytes of the ring are sent again: what it has beyond those is another
 * process's, of a child that could not wait any longer, or of whoever got the socket. The end is
 * one byte more, before and after the peer has acknowledged it. A peer that acknowledges so fast
 * that the count never stands still, which no honest one's does so often, may not hide that. */
bool stream_overtaken(const struct stream *s, uint64_t at)
{
	const uint32_t states = 1u << TCP_ESTABLISHED | 1u << TCP_CLOSE_WAIT | 1u << TCP_FIN_WAIT1 |
				1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSING | 1u << TCP_LAST_ACK;
	int64_t k = kernel_offset(atomic_load(&s->fd), true, s->role == ROLE_CLIENT, states, 1000);

	if (k < 0)	/* or there is no connection any more */
		return k == -EAGAIN;
	return (uint64_t)k != at - s->snd.cut.delta;
}

int stream_tcp_state(int fd)
{
	struct tcp_info_bytes ti;
	int r = tcp_bytes(fd, &ti);

	return r ? r : ti.state;
}

int64_t stream_kernel_received(int fd)
{
	struct tcp_info_bytes ti;
	int r = tcp_bytes(fd, &ti);

	return r ? r : (int64_t)ti.bytes_received;
}

/* What the peer's kernel would take now, beyond what is on the way; 0: not known (before Linux
 * 5.4). */
static uint64_t peer_window(int fd)
{
	struct { uint8_t before[228]; uint32_t snd_wnd; } ti;	/* linux/tcp.h */
	uint32_t len = sizeof ti;
	int q = 0;

	if (sys(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0 || len < sizeof ti ||
	    sys(SYS_ioctl, fd, SIOCOUTQ, &q) < 0)
		return 0;
	return ti.snd_wnd > (uint32_t)q ? ti.snd_wnd - (uint32_t)q : 0;
}

/* How many bytes TCP would take back now though nobody reads. UINT64_MAX: not known (before
 * Linux 4.12). *ret_full: it has no room for a program's. */
static uint64_t tcp_takes(const struct stream *s, bool *ret_full)
{
	uint32_t mem[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof mem;
	int fd = atomic_load(&s->fd);
	uint64_t room;

	*ret_full = false;
	if (sys(SYS_getsockopt, fd, SOL_SOCKET, SO_MEMINFO, mem, &len) < 0)
		return UINT64_MAX;
	room = mem[SK_MEMINFO_SNDBUF] > mem[SK_MEMINFO_WMEM_QUEUED]
		       ? mem[SK_MEMINFO_SNDBUF] - mem[SK_MEMINFO_WMEM_QUEUED]
		       : 0;
	*ret_full = room < mem[SK_MEMINFO_SNDBUF] / 3;	/* sk_stream_is_writeable() in
							 * include/net/sock.h */
	room = room / 4 * 3;	/* the kernel counts more for a buffer than its bytes */
	return stream_path(s)->far ? room + peer_window(fd) : room;
}

uint64_t stream_tcp_takes(const struct stream *s)
{
	bool full;

	return tcp_takes(s, &full);
}

static uint64_t large_now(const struct ring_tx *r)
{
	return r->large_size && r->buf == r->large ? r->size : 0;
}

/* Who polls sees it without a lock: it changes at once, and not by way of none. */
static void fits(struct stream *s, uint64_t room, bool full)
{
	uint64_t unused = room < s->snd.ring.size ? s->snd.ring.size - room : 0;

	s->snd.tcp_full = full;
	__atomic_store_n(&s->snd.ring.unused, unused, __ATOMIC_RELAXED);
}

void stream_fit_tcp(struct stream *s)
{
	struct link *l = atomic_load(&s->link);
	bool full;
	uint64_t room,
		old = s->snd.ring.old_to > s->snd.ring.rd ? s->snd.ring.old_to - s->snd.ring.rd : 0,
		least;

	if (!l || (l->wire && !large_now(&s->snd.ring))) {	/* so little TCP takes */
		fits(s, UINT64_MAX, false);
		return;
	}
	room = tcp_takes(s, &full);
	room = room > old ? room - old : 0;
	if (l->wire) {
		least = l->wire->least(l, s->snd.ring.size);
		room = room > least ? room : least;
		full = false;
	}
	fits(s, room, full);
}

#define LOCAL_FULLS 64	/* calls that found too little room, in a segment of both ends */
#define BULK_FULLS 2	/* ... of a sender that has earned by bytes, held or not */
#define FULLS 16	/* times that so much was published that who polls would have to wait */

bool stream_more_room(struct stream *s)
{
	uint64_t before = s->snd.ring.unused;

	if (!before && !s->snd.tcp_full)
		return false;
	if (s->wired && ++s->snd.fulls % FULLS)	/* it changes seldom */
		return false;
	stream_fit_tcp(s);
	return s->snd.ring.unused < before;
}

/* ---- large rings ---- */

static _Atomic uint64_t large_bytes;	/* of those that this process sends by */

void stream_rings_after_fork(void) { atomic_store(&large_bytes, 0); }

void stream_count_ring(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	atomic_store_explicit(&s->row->ring, l ? (uint32_t)s->snd.ring.size : 0,
			      memory_order_relaxed);
	atomic_store_explicit(&s->row->link, l && l->stat ? l->index + 1 : 0, memory_order_relaxed);
}

static void count_larger(struct stream *s)
{
	stat_add(STAT_rings_enlarged, 1);
	stream_count_ring(s);
}

void stream_filled(struct stream *s)
{
	struct ctl_msg m = { .type = CTL_MORE, .version = CTL_VERSION, .slot = s->slot };
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	uint64_t size = 2 * s->snd.ring.size, takes;
	bool full;

	if (large_now(&s->snd.ring) || s->snd.ring.dev_hi > s->snd.ring.rd ||
	    ring_tx_room(&s->snd.ring) >= s->snd.ring.size / 4)
		return;
	ring_tx_refresh(&s->snd.ring);	/* a lie is found by who needs the room */
	if (ring_tx_room(&s->snd.ring) >= s->snd.ring.size / 4)
		return;
	if (s->snd.ring.large_size) {
		if (s->snd.fulls++ % FULLS)
			return;
		takes = tcp_takes(s, &full);
		if (takes < size)
			return;
		while (size < takes && size < s->snd.ring.large_size)
			size *= 2;
		if (!l->wire->enlarge(l, s->slot, size))
			return;
		ring_tx_enlarge(&s->snd.ring, size);
		count_larger(s);
		stream_fit_tcp(s);
		log_line(3, "fd %d: sends by a ring of %lu bytes", atomic_load(&s->fd),
			 (unsigned long)s->snd.ring.size);
	} else if (s->snd.fulls < FULLS && ++s->snd.fulls == FULLS &&
		   l->wire->large_left(l)) {
		link_send(l, &m);
	}
}

/* False: so much is not permitted. */
static bool take_large(struct stream *s, uint64_t size)
{
	uint64_t now = large_now(&s->snd.ring);
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);

	if (atomic_fetch_add(&large_bytes, size - now) + size - now >
	    shim_tunables()->ring_memory) {
		atomic_fetch_sub(&large_bytes, size - now);
		return false;
	}
	if (!segment_have(&l->segment, s->snd.ring.large, now, size)) {
		atomic_fetch_sub(&large_bytes, size - now);
		s->snd.ring.large_size = now;	/* not asked for again */
		return false;
	}
	if (!ring_memory_take(s, size)) {
		atomic_fetch_sub(&large_bytes, size - now);
		return false;
	}
	if (!now && s->snd.ring.rd == s->snd.ring.wr)
		segment_give(&l->segment, s->snd.ring.buf, s->snd.ring.size);
	ring_tx_enlarge(&s->snd.ring, size);
	count_larger(s);
	stream_fit_tcp(s);
	log_line(4, "fd %d: sends by %lu bytes of its large ring", atomic_load(&s->fd),
		 (unsigned long)size);
	return true;
}

void stream_enlarge(struct stream *s, size_t want)
{
	uint64_t size = s->snd.ring.size;

	/* unused: TCP could not take more back */
	if (s->wired || !s->snd.ring.large_size || s->snd.ring.unused ||
	    s->snd.ring.rd != s->snd.ring.wr)
		return;
	/* the next call finds room while this one's bytes are read */
	while (size < 2 * want && size < s->snd.ring.large_size)
		size *= 2;
	if (size != s->snd.ring.size)
		take_large(s, size);
}

void stream_waits_for_room(struct stream *s)
{
	uint64_t size = 2 * s->snd.ring.size, takes;
	_Atomic uint32_t *fulls = &s->row->fulls;
	bool full;

	/* no locked operation: the lock is ours, and what it counts needs no more than that */
	atomic_store_explicit(fulls, atomic_load_explicit(fulls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (s->wired || !s->snd.ring.large_size || large_now(&s->snd.ring) ||
	    ++s->snd.fulls < (s->snd.hold.bulk ? BULK_FULLS : LOCAL_FULLS))
		return;
	s->snd.fulls = 0;
	takes = tcp_takes(s, &full);
	if (takes < size || full)
		return;
	while (size < takes && size < s->snd.ring.large_size)
		size *= 2;
	take_large(s, size);
}

void stream_give_large(struct stream *s)
{
	if (!s->wired)
		atomic_fetch_sub(&large_bytes, large_now(&s->snd.ring));
	s->snd.ring.large_size = 0;
}
