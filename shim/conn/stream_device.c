/*
 * stream_device.c - blocks of device memory to another host. They go from the sender's snapshot
 * (shim/gpu/send.c) by RDMA WRITE into a ring of device memory of the receiver's (rdma/verbs/rc.h,
 * "Device memory"), and from there into its buffer. Neither program's host memory is on that path,
 * nor is TCP.
 *
 * In the stream such bytes are like all other bytes of the ring. They are written when they were
 * posted, and consumed when the receiver's program has them. Until then the sender holds them, here
 * by a pin on their snapshot. A rewind copies them out of it and sends them by TCP. So a receiver
 * that cannot reach its device memory falls back, and gets them that way. No more is in flight at a
 * time than TCP would take back, as with larger rings. Before the driver ends, with the context or
 * the process, what is in flight is copied to host memory.
 *
 * The receiver grants its ring when the sender asks for it (link.h, DEVICE). The sender asks when
 * it has the first block for it. An end without a device, without the GPU path, or with memory that
 * its RDMA device cannot reach does not grant or does not ask, and the block goes by host memory.
 *
 * On one host this file only remembers blocks whose bytes a receiver has counted while its device
 * still reads the snapshots (stream_direct.c; block.here).
 *
 * Lock: snd.lock for the sender's half, rcv.lock for the receiver's.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_send.h"
#include "conn/stream_wake.h"
#include "gpu/gpu.h"
#include "link/link.h"
#include "link/path.h"
#include "policy/log.h"
#include "policy/stat.h"

#define SENDERS 64		/* streams with such blocks on the way, or that asked */
#define BLOCKS  16		/* of one stream */
#define BOUNCE  262144		/* bytes of a snapshot at a time, in a rewind */
#define LEAST   65536		/* less goes by host memory */
/* times that a ring's bytes could not be had, for a signal handler or a bad buffer perhaps,
 * before it is taken back */
#define LOST_MOST 4
#define PATIENCE_NAPS 1000	/* milliseconds for what is posted */
/* milliseconds: a peer on this host whose program does not receive again tells of the end after
 * ten ... */
#define READ_NAPS 50
#define HELD_US  100000	/* ... and a stream that ends stays on its link for that */
#define PATIENCE 64		/* blocks for which the peer's ring is waited for */

struct block {
	uint64_t lo, hi, at;	/* stream offsets; where in device memory */
	struct gpu_ref ref;
	uint64_t seq;	/* until that is done() the device may read the snapshot, whatever the
			 * peer has said */
	bool here;		/* on one host: the peer has the bytes, or reads them out of the
				 * snapshot until it says that it has read up to hi */
	uint8_t *saved;		/* all of it, in host memory: the snapshot is not held any more */
};

static struct device_out {
	struct stream *_Atomic s;	/* NULL: free */
	uint32_t wanted;		/* blocks for which there was no ring at the peer's */
	unsigned n;
	struct block block[BLOCKS];	/* in order */
	uint8_t *bounce;
} outs[SENDERS];
static _Atomic int nouts;		/* that are or were in use: most programs have none */
static _Atomic bool ending;		/* the driver is about to end: no more */

static uint8_t *pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* ---- sender ---- */

void device_end(void)
{
	atomic_store(&ending, true);
	device_save_all();
}

static struct device_out *out_of(struct stream *s)
{
	struct stream *none;

	if (s->device.out)
		return s->device.out;
	atomic_store(&nouts, 1);
	for (struct device_out *o = outs; o < outs + SENDERS; o++) {
		none = NULL;
		if (!atomic_load_explicit(&o->s, memory_order_relaxed) &&
		    atomic_compare_exchange_strong(&o->s, &none, s))
			return s->device.out = o;
	}
	return NULL;
}

static void block_end(struct block *b)
{
	if (b->saved)
		munmap(b->saved, b->hi - b->lo);
	else
		gpu_unref(&b->ref, false);
}

static bool idle(struct stream *s, const struct block *b)
{
	struct link *l = atomic_load(&s->link);

	if (b->here)	/* a connection may end, and its peer live and read */
		return atomic_load_explicit(&s->snd.ring.sh->offer_read, memory_order_acquire) >=
			       b->hi ||
		       !l || atomic_load(&l->state) == LINK_DEAD;
	return b->saved || !l || l->path->device->done(l, b->seq);
}

/* Nobody needs its bytes any more. */
static bool over(const struct stream *s, const struct block *b)
{
	return b->here || b->hi <= s->snd.ring.rd || cut_tx_on_tcp(&s->snd.cut) || s->snd.lost ||
	       atomic_load(&s->peer_gone) == 2;
}

static void out_end(struct stream *s)
{
	struct device_out *o = s->device.out;

	if (o->bounce)
		munmap(o->bounce, BOUNCE);
	o->bounce = NULL;
	o->n = o->wanted = 0;
	s->device.out = NULL;
	atomic_store(&o->s, NULL);
}

void device_settle(struct stream *s)
{
	struct device_out *o = s->device.out;
	unsigned gone = 0;

	while (gone < o->n && over(s, &o->block[gone]) && idle(s, &o->block[gone]))
		block_end(&o->block[gone++]);
	if (!gone && o->n)
		return;
	o->n -= gone;
	for (unsigned i = 0; i < o->n && gone; i++)
		o->block[i] = o->block[i + gone];
	if (!o->n && !stream_path(s)->device) {	/* nothing is remembered between blocks */
		if (!s->direct.stuck)
			out_end(s);
	} else if (!o->n && o->bounce) {
		munmap(o->bounce, BOUNCE);
		o->bounce = NULL;
	}
}

bool device_room(struct stream *s)
{
	if (s->device.out)
		device_settle(s);
	return !atomic_load(&ending) && out_of(s) && s->device.out->n < BLOCKS;
}

void device_read(struct stream *s, const struct gpu_ref *ref, uint64_t to)
{
	struct device_out *o = out_of(s);

	gpu_ref_used(ref);
	if (!o || o->n == BLOCKS) {	/* device_room() was asked before the offer, so who says
					 * that breaks rules */
		gpu_unref_late(ref);
		return;
	}
	o->block[o->n++] = (struct block){ .lo = to - ref->len, .hi = to, .ref = *ref,
					   .here = true };
}

/* What the peer has consumed by now, too. */
static void settle_now(struct stream *s)
{
	link_read_enter();
	if (atomic_load(&s->link))
		ring_tx_refresh(&s->snd.ring);	/* a lie is found by the next send */
	link_read_leave();
	device_settle(s);
}

void device_settle_all(void)
{
	if (!atomic_load_explicit(&nouts, memory_order_relaxed))
		return;
	for (struct device_out *o = outs; o < outs + SENDERS; o++) {
		struct stream *s = atomic_load(&o->s);

		if (!s || !lock_try(&s->snd.lock))
			continue;
		if (s->device.out == o && o->n)
			settle_now(s);
		lock_give(&s->snd.lock);
	}
}

/* The device is to read it no more, or, if it does not get there in time, its queue pair ends. In
 * naps: its completions are looked for here, with the lock held, and ring the background thread. */
static void finish(struct stream *s, const struct block *b, unsigned naps)
{
	struct link *l = atomic_load(&s->link);
	struct timespec nap = { 0, 1000000 };

	while (!idle(s, b) && naps--) {
		if (!l->wire->poll(l))
			sys(SYS_nanosleep, &nap, NULL);
	}
	if (!idle(s, b))
		l->wire->kill(l);
}

/* What the peer has not said of by now, it may be reading still: a process that is stopped, say. */
static void here_end(struct stream *s, struct device_out *o)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < o->n; i++) {
		struct block *b = &o->block[i];

		if (!b->here)
			o->block[kept++] = *b;
		else if (idle(s, b))
			gpu_unref(&b->ref, false);
		else
			gpu_unref_late(&b->ref);
	}
	o->n = kept;
}

static void save(struct stream *s, struct block *b)
{
	uint8_t *mem = pages(b->hi - b->lo);

	finish(s, b, PATIENCE_NAPS);
	if (!mem)
		return;
	if (!gpu_region_read(&b->ref, b->at, mem, b->hi - b->lo)) {
		munmap(mem, b->hi - b->lo);
		return;
	}
	gpu_unref(&b->ref, false);
	b->saved = mem;
}

/* Blocks of which the peer has the bytes. All of them together. In naps, as many as are left: the
 * peer says that it has read one by a word in shared memory, and rings nobody. */
static void await_reads(struct stream *s, struct device_out *o, unsigned *naps)
{
	struct timespec nap = { 0, 1000000 };

	while (o->n && o->block[o->n - 1].here && !idle(s, &o->block[o->n - 1]) && *naps) {
		sys(SYS_nanosleep, &nap, NULL);
		--*naps;
	}
}

bool device_still_held(struct stream *s, uint64_t now)
{
	bool held = false;

	if (!atomic_load_explicit(&nouts, memory_order_relaxed))
		return false;
	lock_take(&s->snd.lock);
	if (s->device.out && !stream_path(s)->device)
		device_settle(s);
	if (s->device.out && s->device.out->n && s->device.out->block[0].here) {
		if (!s->device.held_until_us)
			s->device.held_until_us = now + HELD_US;
		held = now < s->device.held_until_us;
	}
	lock_give(&s->snd.lock);
	return held;
}

void device_save_all(void)
{
	unsigned naps = READ_NAPS;

	for (struct device_out *o = outs; o < outs + SENDERS && atomic_load(&nouts); o++) {
		struct stream *s = atomic_load(&o->s);

		if (!s)
			continue;
		lock_take(&s->snd.lock);
		if (s->device.out == o && o->n)
			settle_now(s);
		for (unsigned i = 0; s->device.out == o && i < o->n; i++)
			if (!o->block[i].here && !o->block[i].saved)
				save(s, &o->block[i]);
		if (s->device.out == o) {
			await_reads(s, o, &naps);
			here_end(s, o);
		}
		lock_give(&s->snd.lock);
	}
}

void device_detach(struct stream *s)
{
	struct device_out *o = s->device.out;

	if (!o)
		return;
	for (unsigned i = 0; i < o->n; i++) {
		if (o->block[i].here)
			continue;
		finish(s, &o->block[i], 20);
		block_end(&o->block[i]);
	}
	here_end(s, o);
	out_end(s);
}

void device_after_fork(void)
{
	for (struct device_out *o = outs; o < outs + SENDERS && atomic_load(&nouts); o++) {
		struct stream *s = atomic_load(&o->s);

		if (s)
			s->device.out = NULL;
		atomic_store(&o->s, NULL);
		o->n = o->wanted = 0;
		o->bounce = NULL;
	}
}

/* Perhaps the peer's program has its device ready later: it is asked less and less. */
static void ask(struct stream *s, struct link *l, struct device_out *o)
{
	struct ctl_msg m = { .type = CTL_DEVICE, .version = CTL_VERSION, .slot = s->slot };

	o->wanted++;
	if (!(o->wanted & (o->wanted - 1)))
		link_send(l, &m);
}

static void unreached(struct link *l, int e)
{
	if (!atomic_exchange(&l->no_device, true))
		log_line(2,
			 "link %u: %s cannot reach device memory (errno %d): its bytes go by host "
			 "memory",
			 l->index, l->path->device->name(l), -e);
}

/* The key of the ring of snapshots for this link. False: it has none. */
static bool key_of(struct link *l, struct gpu_region *ring, uint32_t *ret)
{
	int e;

	if (l->path->device->known(l, ring->base, ring->size, ret))
		return true;
	if (atomic_load_explicit(&l->no_device, memory_order_relaxed))
		return false;
	gpu_region_open(ring);
	e = l->path->device->reg(l, ring->base, ring->size, ring->dmabuf, false, ret);
	gpu_region_close(ring);
	if (e)
		unreached(l, e);
	return !e;
}

static enum reason send_block(struct stream *s, const void *p, struct gpu_ref *ref, size_t *ret)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	struct device_out *o = out_of(s);
	struct gpu_region ring;
	uint64_t size, room, at, takes, held, seq;
	uint32_t key;

	if (atomic_load(&ending) || !o || !gpu_region_of(ref, p, &ring, &at))
		return REASON_DEVICE_MEMORY;
	if (!key_of(l, &ring, &key))
		return REASON_DEVICE_UNREACHED;
	size = l->path->device->size(l, s->slot);
	if (!size)
		ask(s, l, o);
	takes = stream_tcp_takes(s);
	/* so little it takes in any case */
	room = takes > s->snd.ring.size ? takes : s->snd.ring.size;
	if (room > size)
		room = size;
	if (ring_tx_refresh(&s->snd.ring))
		return REASON_PROTOCOL;
	device_settle(s);
	held = s->snd.ring.wr - s->snd.ring.rd;
	room = room > held ? room - held : 0;
	if (ref->len > room)
		ref->len = room;
	if (ref->len < LEAST || o->n == BLOCKS ||
	    !l->path->device->publish(l, s->slot, at, key, ref->len, &seq))
		return REASON_DEVICE_NOT_TAKEN;
	o->block[o->n++] = (struct block){ .lo = s->snd.ring.wr, .hi = s->snd.ring.wr + ref->len,
					   .at = at, .ref = *ref, .seq = seq };
	if (s->snd.ring.dev_hi != s->snd.ring.wr)
		s->snd.ring.dev_lo = s->snd.ring.wr;
	__atomic_store_n(&s->snd.ring.dev_hi, s->snd.ring.wr + ref->len, __ATOMIC_RELAXED);
	*ret = ref->len;
	return REASON_NONE;
}

size_t device_send(struct stream *s, const void *p, struct gpu_ref *ref)
{
	enum reason why;
	size_t n = 0;

	why = send_block(s, p, ref, &n);
	if (why) {
		gpu_ref_why(ref, why,
			     why == REASON_DEVICE_NOT_TAKEN && s->device.out->wanted < PATIENCE);
		gpu_unref(ref, false);
		return 0;
	}
	gpu_ref_used(ref);
	ring_tx_publish(&s->snd.ring, n);
	s->snd.cut.wr += n;
	stat_add(STAT_copy_device, n);
	stream_notify_peer(s);
	return n;
}

const uint8_t *device_held(struct stream *s, uint64_t off, size_t *ret_n)
{
	struct device_out *o = s->device.out;

	*ret_n = 0;
	for (unsigned i = 0; o && i < o->n; i++) {
		struct block *b = &o->block[i];

		if (off < b->lo || off >= b->hi)
			continue;
		*ret_n = b->hi - off;
		if (b->saved)
			return b->saved + (off - b->lo);
		if (!o->bounce)
			o->bounce = pages(BOUNCE);
		if (*ret_n > BOUNCE)
			*ret_n = BOUNCE;
		return o->bounce && gpu_region_read(&b->ref, b->at + (off - b->lo), o->bounce,
						     *ret_n)
			       ? o->bounce
			       : NULL;
	}
	return NULL;
}

/* ---- receiver ---- */

static void grant(struct stream *s, struct link *l, const struct gpu_region *r, uint32_t key)
{
	struct ctl_msg m = { .type = CTL_DEVICE_RING, .version = CTL_VERSION, .slot = s->slot,
			     .index = key,
		.off = r ? r->base : 0, .epoch = r ? (uint32_t)r->size : 0 };

	link_send(l, &m);
}

void device_grant(struct stream *s)
{
	struct link *l = atomic_load(&s->link);
	struct gpu_region r;
	uint32_t key;
	int landing, e;

	if (s->rcv.ring.dev_size || atomic_load(&l->no_device))
		return;
	landing = gpu_landing_take(link_id(l), s->slot, &r);
	if (landing < 0)
		return;
	gpu_region_open(&r);
	e = l->path->device->reg(l, r.base, r.size, r.dmabuf, true, &key);
	gpu_region_close(&r);
	if (e) {
		unreached(l, e);
		gpu_landing_give(link_id(l), s->slot);
		return;
	}
	l->path->device->land(l, s->slot, r.size);
	lock_take(&s->rcv.lock);
	s->rcv.ring.dev_size = r.size;
	s->device.in = landing;
	lock_give(&s->rcv.lock);
	log_line(3, "fd %d: %lu bytes of device memory for what comes from another host",
		 atomic_load(&s->fd), (unsigned long)r.size);
	grant(s, l, &r, key);
}

void device_granted(struct stream *s, const struct ctl_msg *m)
{
	struct link *l = atomic_load(&s->link);

	if (l->path->device->peer(l, s->slot, m->epoch, m->off, m->index))
		link_kill(l, REASON_PROTOCOL);
}

/* So little that the CPU reads it itself, where it can. 0: not so. */
static size_t recv_small(struct stream *s, uint64_t pos, size_t n, const struct iovec *iov,
			 int niov)
{
	uint8_t part[GPU_SMALL];
	size_t at = 0, room = 0;

	for (int i = 0; i < niov; i++) {
		if (usermem_ok(&s->rcv.mem, iov[i].iov_base, iov[i].iov_len, true) < iov[i].iov_len)
			return 0;
		room += iov[i].iov_len;
	}
	if (n > room)
		n = room;
	if (n > sizeof part || !gpu_landing_small(s->device.in, pos, part, n))
		return 0;
	for (int i = 0; i < niov && at < n; i++) {
		size_t len = iov[i].iov_len < n - at ? iov[i].iov_len : n - at;

		memcpy(iov[i].iov_base, part + at, len);
		at += len;
	}
	return n;
}

ssize_t device_recv(struct stream *s, uint64_t off, size_t n, const struct iovec *iov, int niov,
		    bool peek)
{
	struct link *l = atomic_load(&s->link);
	uint64_t pos = off & (s->rcv.ring.dev_size - 1);
	size_t got;

	if (n > s->rcv.ring.dev_size - pos)
		n = s->rcv.ring.dev_size - pos;
	got = n <= GPU_SMALL ? recv_small(s, pos, n, iov, niov) : 0;
	if (!got)
		got = gpu_landing_read(s->device.in, pos, n, iov, niov, peek);
	if (!got) {
		log_line(2, "fd %d: what came into device memory cannot be had: TCP brings it",
			 atomic_load(&s->fd));
		if (++s->device.lost == LOST_MOST || gpu_landing_over())
			grant(s, l, NULL, 0);
		if (s->rcv.cut.state == CUT_RX_RING)
			stream_rx_event(s, CUT_EV_FALLBACK, 0, 0);
		bg_look(s);
		/* Who held them is gone, so nobody will send them again. */
		return atomic_load(&s->peer_gone) || s->rcv.cut.state == CUT_RX_RING ||
			s->rcv.cut.tail
			       ? -EIO
			       : -EAGAIN;
	}
	if (!peek)
		stat_add(STAT_copy_device, got);
	return (ssize_t)got;
}

const struct gpu_user device_user = {
	.settle = device_settle_all, .save = device_save_all, .end = device_end,
		.forked = device_after_fork, .pins = wire_any,
};
